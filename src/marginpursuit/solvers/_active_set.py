r"""Active-set method for one task whose loss is linear outside of an interval of the margin.

Without overconfidence the loss is linear where the residual γ - m exceeds the support of φ'', and
zero where it is negative. Only the *active* rows, those in or near the curved part, enter an
iteration by their loss; the others enter by their linear part, a constant gradient. As the loss is
convex it is nowhere below its linear part: the minimum of the restricted problem is a lower bound
on that of the whole. An iteration minimises the restricted problem by the interior-point method and
then searches along the line to its minimiser, with all rows.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marginpursuit._validation import FloatArray
from marginpursuit.solvers._damped_newton import DampedNewton
from marginpursuit.solvers._interior_point import InteriorPoint
from marginpursuit.solvers._single_task import ProblemTask


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ActiveSetPolicy:
    """Which rows are active, and how the restricted problem is solved."""

    # The number of active rows is the largest of these multiples: of the rows with curvature, of
    # the columns, of all rows.
    per_curved_row: float
    per_column: float
    per_row: float

    # The restricted problem is solved up to this fraction of the tolerance.
    tolerance_fraction: float

    # The relative gap to which the problem is solved if all rows are equally far from the curved
    # part, as at w = 0: the solution only serves to select the active rows.
    selection_tolerance: float = 1e-2

    max_steps: int = 30  # for a restricted problem

    # The least ratio of actual to predicted decrease (Nocedal and Wright, section 4.1). Below it
    # the linear parts of too many inactive rows are wrong, and all rows become active.
    min_decrease_ratio: float = 0.25


#: For a hinge that is rounded over 1e-4 of the margin: few rows have curvature
#: (`benchmarks/contamination.py`).
HINGE = ActiveSetPolicy(1.0, 10.0, 0.05, 0.5)


class RestrictedTask(ProblemTask):
    """The task with only the active rows; the others enter by the linear part at `scores`."""

    def __init__(self, task: ProblemTask, active: NDArray[np.bool_], scores: FloatArray) -> None:
        super().__init__(task.problem.with_rows(task.rows[active]), task.task)
        sides, loss = task.sides, task.loss
        linear = ~active & (sides.residual(task.sign * scores)[0] > 0)
        slope = float(sides.bound[0, 0])
        self._linear = task.adjoint(np.where(linear, slope, 0.0))
        # The linear part of the loss, continued to a margin of zero.
        end = sides.level - loss.curvature_support
        self._constant = float(task.weights @ linear) * float(loss.value(end) + slope * end)

    def quadratic_value(self, point: FloatArray) -> float:
        """Return ½ wᵀQw plus the linear parts of the inactive rows."""
        return super().quadratic_value(point) + self._constant - float(self._linear @ point)

    def quadratic_gradient(self, point: FloatArray) -> FloatArray:
        """Return the gradient of `quadratic_value`."""
        return super().quadratic_gradient(point) - self._linear


class ActiveSet(DampedNewton):
    """Active-set iterations; `stalled` once they predict the decrease badly.

    `decrement` is the predicted decrease of the objective.
    """

    def __init__(self, task: ProblemTask, point: FloatArray, selection: ActiveSetPolicy) -> None:
        super().__init__(task, point)
        self._whole, self._selection = task, selection
        self._inner: InteriorPoint | None = None
        self._required = np.inf  # the largest value at which the last step counts as a success
        self._start_value, self._lower_bound = self.value, task.lower_bound
        self._active = np.zeros(len(task.weights), dtype=bool)

    def find_direction(self) -> None:
        """Set the direction to the minimiser of the restricted problem."""
        selection, self._inner = self._selection, None
        if self._is_solved():
            self.decrement = self._gap = self.value - self._lower_bound
            return
        if self.value <= self._required:
            self._active |= self._nearest()
            task = RestrictedTask(self._whole, self._active, self._scores)
            inner = InteriorPoint(task, self.point)
            target, fraction = self._accuracy()
            for step in range(selection.max_steps + 1):
                inner.find_direction()
                target_decrement = max(target, fraction * (self.value - inner.value))
                if (
                    inner.stalled
                    or inner.decrement <= target_decrement
                    or step == selection.max_steps
                ):
                    break
                inner.step()
            self._lower_bound = max(self._lower_bound, inner.value - inner.gap)
            if not inner.stalled:
                self._step_towards(inner)
                return
        self._required, self.stalled = -np.inf, True
        self.decrement = self._gap = self.value - self._lower_bound

    @property
    def gap(self) -> float:
        """A bound on the suboptimality, by a lower bound on the restricted minimum."""
        if self._inner is None or self._gap is not None:
            return super().gap
        bound = self._inner.value - self._inner.gap
        self._gap = self.value - max(self._task.lower_bound, bound)
        return self._gap

    def _is_solved(self) -> bool:
        """Whether the lower bound of earlier restricted problems proves the tolerance."""
        decrease = self._whole.problem.decrease_fraction * (self._start_value - self.value)
        return self.value - self._lower_bound <= max(self._task.tolerance(self.value), decrease)

    def _accuracy(self) -> tuple[float, float]:
        """Return the decrement at which a restricted problem is solved, as two numbers.

        The first is an absolute decrement; the second a fraction of the decrease of the objective
        in this step. Either is sufficient.
        """
        selection, problem = self._selection, self._whole.problem
        tolerance = self._task.tolerance(self.value)
        target = selection.tolerance_fraction * tolerance
        if self._active.all() and self._n_active() < len(self._active):
            reference = tolerance / problem.tol
            coarse = selection.tolerance_fraction * selection.selection_tolerance * reference
            if self.value - self._lower_bound > 2.0 * coarse:
                target = max(target, coarse)
        return target, 0.5 * problem.decrease_fraction

    def _step_towards(self, inner: InteriorPoint) -> None:
        """Set the direction to the solution of the restricted problem."""
        self._inner = inner
        self._set_direction(inner.target - self.point)
        self.decrement = self.value - inner.value + inner.decrement
        self._required = self.value - self._selection.min_decrease_ratio * self.decrement
        self._active = self._crossing() if not self._active.all() else ~self._active

    def _crossing(self) -> NDArray[np.bool_]:
        """Return the rows whose margin crosses the level between the point and the target."""
        sign, residual = self._task.sign, self._task.sides.residual
        before, after = (
            residual(sign * scores)[0]
            for scores in (self._scores, self._scores + self._score_change)
        )
        return np.asarray(before * after < 0)

    def _distance(self) -> FloatArray:
        """Return the distance of each margin to the middle of the curved part of the loss."""
        half = 0.5 * self._task.loss.curvature_support
        distance = self._task.sign * self._scores - (self._task.sides.level - half)
        return np.asarray(np.abs(distance))

    def _n_active(self) -> int:
        """Return the number of rows that are to be active."""
        selection, distance = self._selection, self._distance()
        curved = np.count_nonzero(distance < 0.5 * self._task.loss.curvature_support)
        return int(
            max(
                selection.per_curved_row * curved,
                selection.per_column * len(self.point),
                selection.per_row * len(distance),
            )
        )

    def _nearest(self) -> NDArray[np.bool_]:
        """Return the rows in the curved part of the loss, and those nearest to it."""
        distance, number = self._distance(), self._n_active()
        if number >= len(distance):
            return np.ones(len(distance), dtype=bool)
        return np.asarray(distance <= np.partition(distance, number)[number])
