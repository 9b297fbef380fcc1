"""Damped Newton method for one task.

The Hessian is Q + Σ c_i φ''(m_i) x_i x_iᵀ, a sum over the rows with non-zero curvature. φ'' is
replaced by the divided difference of φ' over ± the last change of the margin, so that a row about
to enter or leave the curved part of the loss is counted. Scores are linear along a direction, so
that the line search needs no pass over the data. The dual variable of a row in a linear part of the
loss is constant, and Σ c_i y_i a_i x_i is updated by the changes of the dual variables. A step thus
costs one pass over all rows, for the scores of the direction, and passes over the rows whose dual
variable changes.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_solve

from marginpursuit._validation import FloatArray
from marginpursuit.solvers._line_search import TaskLine, exact_step
from marginpursuit.solvers._single_task import SingleTask


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class NewtonPolicy:
    """Thresholds of Newton's method; measured by the fits of `benchmarks/fits.py`.

    Conjugate gradients replace a factorisation only with many columns and few rows with curvature,
    as on digit5 with its 784 columns.
    """

    # The least half-width of the divided difference, in units of the scale of the loss: a
    # difference of derivatives then keeps ten digits.
    min_half_width: float = 1e-6

    # The least number of columns, and the largest fraction of rows with curvature, for which a
    # factor of an earlier Hessian preconditions conjugate gradients.
    cg_min_columns: int = 256
    cg_max_row_fraction: float = 0.1

    # The largest change Σ c_i |k_i - k'_i| of the curvatures since that factorisation, relative to
    # Σ c_i k'_i.
    cg_max_change: float = 0.5

    # The largest number of products, and the relative residual, in the norm of the preconditioner.
    cg_max_products: int = 40
    cg_tolerance: float = 0.1


class NewtonSystem:
    """Newton's linear systems for one task; the factor of an earlier Hessian is reused."""

    def __init__(self, task: SingleTask, policy: NewtonPolicy) -> None:
        self._task, self._policy = task, policy
        self._factor: Any = None
        self._curvature = np.zeros(len(task.weights))  # of the factor

    def solve(
        self, curvature: FloatArray, right: FloatArray, *, exactly: bool = False
    ) -> FloatArray:
        """Solve for the Hessian with these curvatures; to `cg_tolerance` unless `exactly`."""
        weights = self._task.weights
        change = float(weights @ np.abs(curvature - self._curvature))
        if change > 0 and not exactly and self._can_reuse(curvature, change, len(right)):
            found = self._conjugate_gradients(curvature, right)
            if found is not None:
                return found
        if self._factor is None or change > 0:
            self._factor, self._curvature = self._task.factorise(curvature), curvature
        return np.asarray(cho_solve(self._factor, right, check_finite=False))

    def _can_reuse(self, curvature: FloatArray, change: float, n_columns: int) -> bool:
        policy = self._policy
        return (
            n_columns >= policy.cg_min_columns
            and change <= policy.cg_max_change * float(self._task.weights @ self._curvature)
            and int(np.count_nonzero(curvature)) <= policy.cg_max_row_fraction * len(curvature)
        )

    def _conjugate_gradients(self, curvature: FloatArray, right: FloatArray) -> FloatArray | None:
        """Solve by preconditioned conjugate gradients; None if that needs too many products."""
        multiply = self._task.hessian_product(curvature)
        if multiply is None:
            return None
        solution, residual = np.zeros_like(right), right
        direction, last, target = np.zeros_like(right), np.inf, 0.0
        for iteration in range(self._policy.cg_max_products + 1):
            conditioned = cho_solve(self._factor, residual, check_finite=False)
            square = float(residual @ conditioned)
            target = target if iteration else self._policy.cg_tolerance**2 * square
            if square <= target:
                return solution
            direction = conditioned + square / last * direction
            product = multiply(direction)
            step = square / float(direction @ product)
            solution, residual = solution + step * direction, residual - step * product
            last = square
        return None


class DampedNewton:
    """Newton's method with an exact line search: `find_direction` and `step` in turn.

    Attributes
    ----------
    point, value, gradient : ndarray, float, ndarray
        The iterate, the objective and its gradient there.
    decrement : float
        Half the squared Newton decrement, -½ ∇F·d for the direction d: an estimate of the
        suboptimality.
    stalled : bool
        Whether rounding prevents a further decrease.
    """

    def __init__(self, task: SingleTask, point: FloatArray) -> None:
        self._task, self._policy = task, NewtonPolicy()
        self._system = NewtonSystem(task, self._policy)
        self.point, self._scores = point, task.scores(point)
        self.value, self._dual = task.value_and_dual(point, self._scores)
        self.decrement, self.stalled = np.inf, False
        self._gap: float | None = None
        self._adjoint = task.adjoint(self._dual)
        self._last_change = np.zeros_like(self._scores)  # absolute, of the scores

    @property
    def gradient(self) -> FloatArray:
        """The gradient Qw - g - Σ c_i y_i a_i x_i."""
        return self._task.quadratic_gradient(self.point) - self._adjoint

    @property
    def target(self) -> FloatArray:
        """The point after a full step."""
        return self.point + self._direction

    def find_direction(self) -> None:
        """Solve Newton's system, with curvatures averaged over ± the last change of the margins."""
        task, gradient = self._task, self.gradient
        least = self._policy.min_half_width * task.scale
        curvature = task.mean_curvature(self._scores, self._last_change, least)
        try:
            direction = self._system.solve(curvature, -gradient)
            # The dual residual after a full step is zero only if the solution is exact.
            if -0.5 * float(gradient @ direction) <= task.tolerance(self.value):
                direction = self._system.solve(curvature, -gradient, exactly=True)
        except LinAlgError:  # singular to working precision
            self.stalled, self._gap, self.decrement = True, self.value, self.value
            return
        self._curvature = curvature
        self._set_direction(direction)
        self.decrement = -0.5 * self._slope

    def step(self) -> None:
        """Minimise along the direction.

        Where the predicted decrease is below the rounding error of the objective, the direction is
        that of rounding errors. Along dependent columns it may be long without a change of scores.
        """
        if self.decrement <= np.finfo(np.float64).eps * self.value:
            self.stalled = True
            return
        line = TaskLine(self._task, self.point, self._scores, self._direction, self._score_change)
        size = exact_step(line, self._slope)
        self.point = self.point + size * self._direction
        self._scores = self._scores + size * self._score_change
        self.value, dual = self._task.value_and_dual(self.point, self._scores)
        self.stalled = size == 0.0
        self._adjoint = self._adjoint + self._task.adjoint(dual - self._dual)
        self._dual = dual
        if self._task.averages_curvature:
            self._last_change = size * np.abs(self._score_change)

    @property
    def gap(self) -> float:
        """A bound on the suboptimality, computed on demand; the loss needs a conjugate.

        The dual variables after a full step have, to first order, a dual residual of zero, and the
        gap is `decrement`. Dual variables outside of their bounds are clipped, which leaves a
        residual.
        """
        if self._gap is not None:
            return self._gap
        task, rows = self._task, np.flatnonzero(self._curvature)
        score_change = task.sign[rows] * self._score_change[rows]
        predicted = self._dual[rows] - self._curvature[rows] * score_change
        dual = np.clip(task.sides.sign * predicted, 0.0, task.sides.bound)
        change = np.zeros_like(self._dual)
        change[rows] = (task.sides.sign * dual).sum(axis=0) - self._dual[rows]
        gradient = task.quadratic_gradient(self.target)
        residual = self._adjoint + task.adjoint(change) - gradient
        square = 0.5 * float((gradient - task.quadratic_gradient(self.point)) @ self._direction)
        gap = task.duality_gap(self._scores, dual, residual, rows=rows) + square
        self._gap = min(self.value - task.lower_bound, gap)
        return self._gap

    def _set_direction(self, direction: FloatArray) -> None:
        self._direction, self._slope = direction, float(self.gradient @ direction)
        self._score_change, self._gap = self._task.scores(direction), None
