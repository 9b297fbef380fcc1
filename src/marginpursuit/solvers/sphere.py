r"""Descent on the unit sphere, for losses that only fix the direction of the coefficients.

For margins m = y (z·w + b)/r with ‖w‖ = 1, r the root mean square of the norms of the rows, the
mean of a loss that may be neither convex nor smooth is lowered by conjugate gradients: directions
are tangent to the sphere, and each step ends on it again. Along a step the scores are combinations
of those of the point and of the direction, so the line search costs no read.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from marginpursuit._validation import FloatArray
from marginpursuit.design import Design, Standardisation
from marginpursuit.losses import Loss
from marginpursuit.solvers._problem import Progress, Solution, Status

__all__ = ["SphereProblem", "minimise_on_sphere"]

_SUFFICIENT_DECREASE = 1e-4
_MOST_HALVINGS = 40

# The angle of the first step.
_FIRST_STEP = 0.1

# The tolerance is for the decrease of so many steps.
_SPAN = 5

# The value below which nothing is left to lower, and the share of the value below which a gradient,
# which is per unit of angle, is none.
_NOTHING = 1e-12


@dataclass(frozen=True, slots=True)
class SphereProblem:
    """The mean of a loss of one class against the rest."""

    design: Design
    standardisation: Standardisation
    sign: FloatArray
    weights: FloatArray  # (n_rows,), sum one
    loss: Loss
    fit_intercept: bool
    radius: float  # what scores are divided by

    def margins(self, point: FloatArray) -> FloatArray:
        """Return the margins of a point, coefficients and intercept, in one read."""
        scores = self.design.scores(point[:-1, np.newaxis], point[-1:], self.standardisation)
        scores = scores[:, 0]
        return np.asarray(self.sign * scores / self.radius)

    def value(self, margins: FloatArray) -> float:
        """Return the mean loss."""
        return float(self.weights @ self.loss.value(margins))

    def gradient(self, point: FloatArray, margins: FloatArray) -> FloatArray:
        """Return the gradient, tangent to the sphere, in one read."""
        factors = self.weights * self.sign * self.loss.derivative(margins) / self.radius
        slope = factors.sum() if self.fit_intercept else 0.0
        return self.tangent(
            point, np.append(self.design.adjoint(factors, self.standardisation), slope)
        )

    @staticmethod
    def tangent(point: FloatArray, vector: FloatArray) -> FloatArray:
        """Take out what leaves the sphere; the intercept is free."""
        result = vector.copy()
        result[:-1] -= (vector[:-1] @ point[:-1]) * point[:-1]
        return result


def minimise_on_sphere(
    problem: SphereProblem,
    start: FloatArray,
    max_iter: int,
    tol: float,
    report: Callable[[Progress], None],
) -> Solution:
    """Descend from a point to where five steps together lower the value by less than its tol-th.

    Parameters
    ----------
    problem : SphereProblem
        What to minimise.
    start : ndarray of shape (n_columns + 1,)
        Coefficients of norm one, and the intercept. The value at the result is never above its own.
    max_iter : int
        The most steps.
    tol : float
        The share of the value.
    report : callable
        Is told of the progress.

    Returns
    -------
    Solution
        The point, whose `gap` is the decrease of the last steps as a share of the value.
    """
    point, margins = start, problem.margins(start)
    gradient = problem.gradient(point, margins)
    direction, step = -gradient, _FIRST_STEP / max(float(np.linalg.norm(gradient)), _NOTHING**2)
    values, history, status = [problem.value(margins)], list[Progress](), Status.MAX_ITER
    while True:
        before = values[max(0, len(values) - 1 - _SPAN)]
        size = max(values[-1], _NOTHING)
        gap = (before - values[-1]) / size if len(values) > 1 else np.inf
        passes = problem.design.n_passes
        history.append(Progress(len(history), passes, values[-1], gap))
        report(history[-1])
        slope = float(gradient @ direction)
        flat = -slope <= (_NOTHING * size) ** 2
        if flat or (len(values) > _SPAN and gap <= tol):
            status, gap = Status.CONVERGED, min(gap, tol)
            break
        if len(history) > max_iter:
            break
        change = problem.margins(direction)
        length = _search(problem, point, direction, margins, change, values[-1], slope, step)
        if length == 0.0:
            if np.array_equal(direction, -gradient):  # no way down is left but through a corner
                status = Status.ROUNDING
                break
            direction = -gradient
            values.append(values[-1])
            continue
        point, margins = _move(point, direction, margins, change, length)
        values.append(problem.value(margins))
        old, gradient = problem.tangent(point, gradient), problem.gradient(point, margins)
        carried, square = problem.tangent(point, direction), float(old @ old)
        # Polak and Ribière's factor, never negative; a direction that leads up is dropped.
        factor = max(0.0, float(gradient @ (gradient - old)) / square) if square > 0 else 0.0
        direction, step = -gradient + factor * carried, length
        if float(gradient @ direction) > -0.1 * float(gradient @ gradient):
            direction = -gradient
    linear = point[:-1, np.newaxis], point[-1:]
    arrays = np.array([values[-1]]), np.array([gap])
    return Solution(linear, *arrays, status, history[-1].iteration, tuple(history))


def _move(
    point: FloatArray, direction: FloatArray, margins: FloatArray, change: FloatArray, length: float
) -> tuple[FloatArray, FloatArray]:
    """Go a length along a direction and back onto the sphere, intercept and margins included."""
    moved = point + length * direction
    norm = float(np.linalg.norm(moved[:-1]))
    return moved / norm, (margins + length * change) / norm


def _search(
    problem: SphereProblem,
    point: FloatArray,
    direction: FloatArray,
    margins: FloatArray,
    change: FloatArray,
    value: float,
    slope: float,
    step: float,
) -> float:
    """Return a length with a sufficient decrease, doubled while that helps; 0 if there is none."""

    def at(length: float) -> float:
        return problem.value(_move(point, direction, margins, change, length)[1])

    length = 2.0 * step
    for _ in range(_MOST_HALVINGS):
        best = at(length)
        if best <= value + _SUFFICIENT_DECREASE * length * slope and best < value:
            break
        length *= 0.5
    else:
        return 0.0
    while (further := at(2.0 * length)) < best:
        length, best = 2.0 * length, further
    return length
