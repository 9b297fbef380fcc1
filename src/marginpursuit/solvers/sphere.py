r"""Conjugate gradients on the unit sphere, for losses that only fix the direction of w.

For margins m = y (z·w + b)/r with ‖w‖ = 1, r the root mean square of the norms of the rows, the
mean of a loss that may be neither convex nor smooth is minimised by Polak and Ribière's conjugate
gradients: directions are tangent to the sphere, and each step is followed by a projection onto it.
Along a step the margins are linear before the projection, so that the line search needs no pass
over the data.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from marginpursuit._validation import FloatArray
from marginpursuit.design import Design, Standardisation
from marginpursuit.losses import Loss
from marginpursuit.solvers._line_search import backtrack, expand
from marginpursuit.solvers._problem import Progress, Solution, Status

__all__ = ["SphereProblem", "minimise_on_sphere"]


@dataclass(frozen=True, slots=True)
class SphereProblem:
    """The mean of a loss of one class against the rest."""

    design: Design
    standardisation: Standardisation
    sign: FloatArray
    weights: FloatArray  # (n_rows,), sum one
    loss: Loss
    fit_intercept: bool
    radius: float  # r

    def margins(self, point: FloatArray) -> FloatArray:
        """Return the margins of a point, coefficients and intercept, in one pass over the data."""
        scores = self.design.scores(point[:-1, np.newaxis], point[-1:], self.standardisation)
        scores = scores[:, 0]
        return np.asarray(self.sign * scores / self.radius)

    def value(self, margins: FloatArray) -> float:
        """Return the mean loss."""
        return float(self.weights @ self.loss.value(margins))

    def gradient(self, point: FloatArray, margins: FloatArray) -> FloatArray:
        """Return the tangential gradient, in one pass over the data."""
        factors = self.weights * self.sign * self.loss.derivative(margins) / self.radius
        slope = factors.sum() if self.fit_intercept else 0.0
        return self.tangent(
            point, np.append(self.design.adjoint(factors, self.standardisation), slope)
        )

    @staticmethod
    def tangent(point: FloatArray, vector: FloatArray) -> FloatArray:
        """Project a vector onto the tangent space; the intercept is unconstrained."""
        result = vector.copy()
        result[:-1] -= (vector[:-1] @ point[:-1]) * point[:-1]
        return result


def minimise_on_sphere(
    problem: SphereProblem,
    start: FloatArray,
    max_iter: int,
    tol: float,
    report: Callable[[Progress], None],
    *,
    first_angle: float = 0.1,
    n_compared: int = 5,
) -> Solution:
    """Minimise until `n_compared` steps lower the value by less than `tol` times the value.

    The start is coefficients of norm one and the intercept; the result has no larger value. Its gap
    is the decrease of the last `n_compared` steps, relative to the value; at most `tol` where the
    gradient is zero, and where no step along -gradient lowers the value, as at a kink. The first
    step has an angle of `first_angle`, in radians.
    """
    tiny = 1e-12  # the least value that counts, and the relative gradient that counts as zero
    point, margins = start, problem.margins(start)
    gradient = problem.gradient(point, margins)
    direction, step = -gradient, first_angle / max(float(np.linalg.norm(gradient)), tiny**2)
    values, history, status = [problem.value(margins)], list[Progress](), Status.MAX_ITER
    while True:
        before = values[max(0, len(values) - 1 - n_compared)]
        reference = max(values[-1], tiny)
        gap = (before - values[-1]) / reference if len(values) > 1 else np.inf
        history.append(Progress(len(history), problem.design.n_passes, values[-1], gap))
        report(history[-1])
        slope = float(gradient @ direction)
        if -slope <= (tiny * reference) ** 2 or (len(values) > n_compared and gap <= tol):
            status, gap = Status.CONVERGED, min(gap, tol)
            break
        if len(history) > max_iter:
            break
        change = problem.margins(direction)
        size = _search(problem, point, direction, margins, change, values[-1], slope, step)
        if size == 0.0:
            if np.array_equal(direction, -gradient):  # at a kink of the loss
                status, gap = Status.ROUNDING, min(gap, tol)
                break
            direction = -gradient
            values.append(values[-1])
            continue
        point, margins = _move(point, direction, margins, change, size)
        values.append(problem.value(margins))
        last, gradient = gradient, problem.gradient(point, margins)
        direction, step = _next_direction(problem, point, last, gradient, direction), size
    linear = point[:-1, np.newaxis], point[-1:]
    arrays = np.array([values[-1]]), np.array([gap])
    return Solution(linear, *arrays, status, history[-1].iteration, tuple(history))


def _next_direction(
    problem: SphereProblem,
    point: FloatArray,
    last: FloatArray,
    gradient: FloatArray,
    direction: FloatArray,
) -> FloatArray:
    """Return the direction of Polak and Ribière, or -gradient if it is no descent direction."""
    transported, last = problem.tangent(point, direction), problem.tangent(point, last)
    square = float(last @ last)
    factor = max(0.0, float(gradient @ (gradient - last)) / square) if square > 0 else 0.0
    found = -gradient + factor * transported
    return found if float(gradient @ found) <= -0.1 * float(gradient @ gradient) else -gradient


def _move(
    point: FloatArray, direction: FloatArray, margins: FloatArray, change: FloatArray, step: float
) -> tuple[FloatArray, FloatArray]:
    """Take a step and project onto the sphere; return the point and its margins."""
    moved = point + step * direction
    norm = float(np.linalg.norm(moved[:-1]))
    return moved / norm, (margins + step * change) / norm


def _search(
    problem: SphereProblem,
    point: FloatArray,
    direction: FloatArray,
    margins: FloatArray,
    change: FloatArray,
    value: float,
    slope: float,
    last_step: float,
) -> float:
    """Return a step size with sufficient decrease, doubled while the value falls; 0 if none."""

    def value_at(step: float) -> float:
        return problem.value(_move(point, direction, margins, change, step)[1])

    step, reached = backtrack(value_at, value, slope, first=2.0 * last_step)
    return expand(value_at, step, reached)[0] if step > 0 else 0.0
