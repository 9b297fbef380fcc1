r"""An interior-point method for what Newton's method leaves unfinished.

Where the data can almost be separated, the minimiser depends on which few rows hold the margin, and
descent finds those one at a time. Mehrotra's primal-dual method approaches all of them at once, in
some twenty steps, each at the price of a Gram matrix of all rows.

A residual r of a side and its force f, between 0 and F, belong together where

.. math::

    r = s\,\psi^{-1}\Bigl(\frac{f}{\text{weight}\cdot s}\Bigr) - \text{below} + \text{above},
    \qquad f \cdot \text{below} = 0, \qquad (F - f) \cdot \text{above} = 0,

with `below` > 0 where the side is flat and `above` > 0 where it is truncated. The method keeps f,
F - f (the `room` of the force), below and above positive and drives the products to zero together.
"""

from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_solve

from marginpursuit._validation import FloatArray
from marginpursuit.losses import curvature
from marginpursuit.solvers._single import SingleProblem

_EPS = float(np.finfo(np.float64).eps)

# The share of the way to the nearest bound that a step may go.
_CAUTION = 0.99

# How many times the size of the scores the distance to the minimiser may be.
_FAR_AWAY = 100.0


class InteriorPoint:
    """A descent from a point on; `step` goes one step further.

    `point` and `value` are the best so far; `gap` is the distance from the value down to a lower
    bound on the minimum. The dual variables force, room, below and above are stacked.
    """

    def __init__(self, problem: SingleProblem, point: FloatArray) -> None:
        self._problem = problem
        self._here, self._scores = point, problem.score(point)
        self._dual = np.empty((4, len(problem.side), len(problem.rows)))
        self._dual[:2] = 0.5 * problem.most_force
        # What keeps the forces from fitting the residuals goes to below and above.
        excess = problem.residual(self._scores) - problem.natural(self._dual[0])
        self._dual[2:] = np.maximum([-excess, excess], 0.0) + problem.loss.margin
        self._imbalance = self._balance(self._dual[0])
        self.value, self.stalled = np.inf, False
        self._record()

    @property
    def decrement(self) -> float:
        """What the next steps are expected to gain: all that is left."""
        return self.gap

    def step(self) -> None:
        """Take one step: a predictor tells how far to centre, a corrector is where to go."""
        problem, (force, room, below, above) = self._problem, self._dual
        self._natural = problem.natural(force)
        with np.errstate(divide="ignore"):  # a force at its bound does not bend
            slack = 1.0 / (problem.side_weight * curvature(self._natural / problem.loss.scale))
        bend = 1.0 / (slack + below / force + above / room)
        try:
            factor = problem.factorise(bend.sum(axis=0))
        except LinAlgError:  # singular to rounding
            self.stalled = True
            return
        product = self._product(self._dual)
        *_, ahead = self._direction(factor, bend, np.zeros_like(self._dual[2:]))
        share = self._product(self._dual + self._length(ahead) * ahead) / product
        goals = share**3 * product - ahead[:2] * ahead[2:]
        point, scores, change = self._direction(factor, bend, goals)
        length = self._length(change)
        self._here = self._here + length * point
        self._scores = self._scores + length * scores
        self._dual += length * change
        self._imbalance *= 1.0 - length  # the balance is linear in point and force
        self._record()
        self.stalled = self._product(self._dual) <= _EPS * self.value

    def _record(self) -> None:
        """Keep the point if it is the best, and bound the minimum from below."""
        value = self._problem.value(self._here, self._scores)
        # As long as forces are out of balance, the minimiser may be far away: count it so much.
        gap = self._problem.gap(self._scores, self._dual[0], _FAR_AWAY * self._imbalance)
        if value < self.value:
            self.point, self.value = self._here, value
        self.gap = max(_EPS * self.value, self.value - max(0.0, value - gap))

    def _direction(
        self, factor: Any, bend: FloatArray, goals: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Solve for what takes the forces to balance and the two products to their goals.

        Returns the changes of the point, of its scores and of the dual variables.
        """
        problem, near, far = self._problem, self._dual[:2], self._dual[2:]
        push = problem.residual(self._scores) - self._natural
        push = push + goals[0] / near[0] - goals[1] / near[1]
        point = cho_solve(factor, self._balance(near[0] + bend * push))
        scores = problem.score(point)
        force = bend * (push - problem.side * problem.sign * scores)
        both = np.stack([force, -force])
        return point, scores, np.concatenate([both, (goals - far * (near + both)) / near])

    def _length(self, change: FloatArray) -> float:
        """Return how far a step may go, at most one, for all dual variables to stay positive."""
        return min(1.0, _CAUTION / max(float(np.max(-change / self._dual)), _CAUTION))

    def _product(self, dual: FloatArray) -> float:
        """Return the mean product of force and below, room and above."""
        return float(np.mean(dual[:2] * dual[2:], axis=(0, 1)) @ self._problem.weights)

    def _balance(self, force: FloatArray) -> FloatArray:
        """Return what the forces pull the point with, less what the penalty pulls back."""
        pull = self._problem.pull((self._problem.side * force).sum(axis=0))
        return pull + self._problem.straight - self._problem.penalty * self._here
