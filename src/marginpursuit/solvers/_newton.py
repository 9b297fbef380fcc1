"""Damped Newton steps for what the quasi-Newton method leaves unfinished.

Where overconfidence and scale are small, few rows have curvature and the Gram matrix is far from
the Hessian. The Hessian itself is then cheap, since it sums over those rows alone. It is damped by
a share of the Gram matrix, which bounds it (Levenberg and Marquardt); the share falls while full
steps succeed. Along a step the scores are a straight line, so the line search costs no read.
"""

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from marginpursuit._validation import FloatArray
from marginpursuit.solvers._problem import Problem

# The share of the Gram matrix to begin with, and the factors by which it falls and rises.
_DAMPING = 0.1
_EASE, _TIGHTEN = 0.2, 4.0

# A decrement counts as an estimate of the gap only where damping hardly distorts it.
_LIGHT_DAMPING = 1e-3

# The line search ends where the slope has fallen to this share, or after so many trials.
_FLAT = 0.1
_MOST_TRIALS = 20


class NewtonDescent:
    """One problem (one class against the rest) from a point on; `step` goes one step further."""

    def __init__(
        self, problem: Problem, name: int, coef: FloatArray, intercept: float, bound: FloatArray
    ) -> None:
        self._problem = problem
        self._geometry = problem.geometry
        self._sign = problem.labels.sign(name)
        self._penalty = problem.geometry.penalty
        self._bound = bound
        self._damping = _DAMPING
        self.coef, self.intercept = coef, intercept
        self._scores = self._score(coef, intercept)
        self.value = self._value()
        self.gap = np.inf

    def step(self) -> None:
        """Take one damped Newton step."""
        loss, weights, design = self._problem.loss, self._problem.weights, self._geometry.design
        margins = self._sign * self._scores
        factors = weights * self._sign * loss.derivative(margins)
        gradient = self._join(design.pullback(factors) + self._penalty * self.coef, factors.sum())
        direction = self._solve(weights * loss.curvature(margins), gradient)
        # Under heavy damping the decrement says little; the value bounds the gap in any case.
        decrement = -0.5 * float(gradient @ direction)
        self.gap = decrement if self._damping <= _LIGHT_DAMPING else self.value

        coef = direction[: design.n_columns]
        intercept = float(direction[-1]) if self._geometry.fit_intercept else 0.0
        change = self._score(coef, intercept)
        length = self._search(coef, change, float(gradient @ direction))
        self.coef = self.coef + length * coef
        self.intercept = self.intercept + length * intercept
        self._scores = self._scores + length * change
        self.value = self._value()
        if length > 0.6:
            self._damping *= _EASE
        elif length < 0.25:
            self._damping *= _TIGHTEN

    def _solve(self, curvature: FloatArray, gradient: FloatArray) -> FloatArray:
        """Apply minus the inverse of the damped Hessian."""
        design, n_columns = self._geometry.design, self._geometry.design.n_columns
        hessian = np.zeros((len(gradient), len(gradient)))
        hessian[:n_columns, :n_columns] = design.gram(curvature) + self._damping * self._bound
        hessian[np.arange(n_columns), np.arange(n_columns)] += self._penalty
        if self._geometry.fit_intercept:
            cross = design.pullback(curvature)
            hessian[-1, :n_columns], hessian[:n_columns, -1] = cross, cross
            hessian[-1, -1] = curvature.sum() + self._damping
        return -cho_solve(cho_factor(hessian, overwrite_a=True), gradient)

    def _search(self, coef: FloatArray, change: FloatArray, slope: float) -> float:
        """Find a length at which the slope along the step is nearly zero, by false position."""
        weights = self._problem.weights * self._sign * change

        def slope_at(length: float) -> float:
            margins = self._sign * (self._scores + length * change)
            pull = self._penalty * (self.coef + length * coef)
            return float(weights @ self._problem.loss.derivative(margins) + pull @ coef)

        low, slope_low, high, slope_high = 0.0, slope, np.inf, np.inf
        length = 1.0
        for _ in range(_MOST_TRIALS):
            slope_here = slope_at(length)
            if abs(slope_here) <= _FLAT * abs(slope):
                break
            if slope_here < 0:
                low, slope_low = length, slope_here
            else:
                high, slope_high = length, slope_here
            if high == np.inf:
                length = 4.0 * length
            else:
                share = slope_low / (slope_low - slope_high)
                length = low + (high - low) * float(np.clip(share, 0.1, 0.9))
        else:
            length = low  # the slope is still negative there, so the value has not risen
        return length

    def _value(self) -> float:
        margins = self._sign * self._scores
        penalty = 0.5 * float(self._penalty @ self.coef**2)
        return float(self._problem.weights @ self._problem.loss.value(margins)) + penalty

    def _score(self, coef: FloatArray, intercept: float) -> FloatArray:
        design = self._geometry.design
        return design.scores(coef[:, np.newaxis], np.array([intercept]))[:, 0]

    def _join(self, coef: FloatArray, intercept: float) -> FloatArray:
        return np.append(coef, intercept) if self._geometry.fit_intercept else coef
