"""Passes of dual coordinate ascent over the rows of one task, or of tasks that share them.

`dual_ascent` describes the method and defines *lane* and *shrunk*. Rows that are copied for it are
scaled such that all coefficients have one penalty weight.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from marginpursuit._threads import StoppedError, this_thread
from marginpursuit._validation import FloatArray
from marginpursuit.design import MemoryDesign
from marginpursuit.solvers._problem import Problem, Request

__all__ = ["DualAscent", "PassStopping", "common_penalty", "row_type"]


def row_type(source: Request | Problem, n_rows: int) -> type[np.float64 | np.float32]:
    """Return the type of a copy of dense rows: float32 where that suffices and is faster."""
    design = source.design if isinstance(source, Request) else source.prepared.design
    policy, is_loose = source.policy, source.tol >= source.policy.min_float32_dual_tol
    is_large = n_rows * design.n_columns >= policy.min_float32_dual_elements
    return np.float32 if is_loose and is_large else np.float64


def common_penalty(weights: FloatArray) -> tuple[float, FloatArray]:
    """Return one penalty weight, and the factors of columns by which all have that weight.

    Columns without penalty, and those whose coefficient is fixed at zero, have the factor zero.
    """
    is_free = (weights > 0) & np.isfinite(weights)
    largest = float(np.max(weights, where=is_free, initial=0.0)) or 1.0
    inverse = np.divide(largest, weights, out=np.zeros_like(weights), where=is_free)
    return largest, np.sqrt(inverse)


@dataclass(slots=True)
class PassStopping:
    """When passes in one call of the kernel end; arrays have an entry a lane."""

    gap: FloatArray  # out: relative, after the last pass
    levels: FloatArray
    objective_floor: FloatArray  # the gap is relative to max(objective, this)
    tols: FloatArray  # infinite for lanes that repeat a task
    min_tasks: int  # whose gaps exceed their tolerances, as long as passes follow each other
    max_passes: int
    max_visits: int  # of rows, after which no other pass follows
    shrinking: float
    n_passes: int = 0  # out


@dataclass
class DualAscent:
    """The state of a task, or of a group of tasks: one that is not full repeats its first task."""

    design: MemoryDesign
    max_iter: int
    shrinking: float
    call_elements: int  # stored elements that passes in one call of the kernel visit
    losses: FloatArray  # (n_lanes, 4), as all arrays without another shape have an entry a lane
    levels: FloatArray
    positive: NDArray[np.intp]
    penalty: FloatArray
    objective_floor: FloatArray  # the gap is relative to max(objective, this)
    codes: NDArray[np.intp]  # (n_rows,), likewise weights and squares
    weights: FloatArray
    squares: FloatArray  # with the constant
    constant: float  # the square of the entry of a row for the intercept
    rows: NDArray[np.intp]  # those of positive weight, the unshrunk ones first
    residual: FloatArray  # (n_rows, n_lanes)
    coef: FloatArray  # (n_columns, n_lanes)
    intercept: FloatArray
    sums: FloatArray  # (3, n_lanes), value, gap and balance of the last pass
    gap: FloatArray  # relative
    radius: FloatArray  # by which the score of a row may change, per norm of the row
    n_passes: int = 0

    @classmethod
    def start(cls, problem: Problem, group: NDArray[np.intp]) -> "DualAscent":
        """Return tasks whose dual variables are zero."""
        prepared, tasks, policy = problem.prepared, problem.tasks, problem.policy
        design, fold = prepared.design, tasks.fold[group[0]]
        assert isinstance(design, MemoryDesign)
        size = 1 if len(group) == 1 else design.tasks_per_pass
        lanes = np.append(group, np.repeat(group[0], size - len(group)))
        weights, squares = np.ascontiguousarray(tasks.weights[fold]), design.row_squares()
        rows = np.flatnonzero(weights > 0)
        middle = len(rows) // 2
        median = float(np.partition(squares[rows], middle)[middle]) or 1.0
        constant = policy.dual_intercept_square * median if prepared.fit_intercept else 0.0
        ((_, codes, positive),) = tasks.by_codes(lanes)
        return cls(
            design=design,
            max_iter=problem.max_iter,
            shrinking=policy.dual_shrinking,
            call_elements=policy.dual_call_elements,
            losses=tasks.loss_parameters[lanes],
            levels=problem.levels[lanes],
            positive=positive,
            penalty=problem.alphas[lanes] * prepared.penalty_weights[fold, 0],
            objective_floor=problem.relative_to(np.zeros(len(tasks)))[lanes],
            codes=codes,
            weights=weights,
            squares=squares + constant,
            constant=constant,
            rows=rows,
            residual=np.zeros((design.n_rows, size)),
            coef=np.zeros((design.n_columns, size)),
            intercept=np.zeros(size),
            sums=np.zeros((3, size)),
            gap=np.full(size, np.inf),
            radius=np.full(size, np.inf),
        )

    def at_penalty(self, problem: Problem, task: int) -> "DualAscent":
        """Return the task with the dual variables of this one, which differs in its penalty only.

        The coefficients are the adjoint product of the dual variables divided by the penalty.
        """
        weight = problem.prepared.penalty_weights[problem.tasks.fold[task], 0]
        penalty = np.array([problem.alphas[task] * weight])
        return replace(
            self,
            penalty=penalty,
            rows=self.rows.copy(),
            residual=self.residual.copy(),
            coef=self.coef * (self.penalty / penalty),
            intercept=self.intercept.copy(),
            sums=np.zeros_like(self.sums),
            gap=np.full_like(self.gap, np.inf),
            radius=np.full_like(self.gap, np.inf),
            n_passes=0,
        )

    def alone(self, lane: int) -> "DualAscent":
        """Return the task of one lane, which continues alone; no row is shrunk."""
        own = [lane]
        return replace(
            self,
            losses=self.losses[own],
            levels=self.levels[own],
            positive=self.positive[own],
            penalty=self.penalty[own],
            objective_floor=self.objective_floor[own],
            rows=self.rows.copy(),
            residual=np.ascontiguousarray(self.residual[:, own]),
            coef=np.ascontiguousarray(self.coef[:, own]),
            intercept=self.intercept[own],
            sums=np.ascontiguousarray(self.sums[:, own]),
            gap=self.gap[own],
            radius=self.radius[own],
        )

    @property
    def value(self) -> FloatArray:
        """The objective, as it was during the last pass."""
        return np.asarray(self.sums[0])

    @property
    def lower_bound(self) -> float:
        """A lower bound on the objective of a single task, after a run that evaluates the gap."""
        return float(self.value[0] - self.gap[0] * self._scale[0])

    def run(self, tols: FloatArray, evaluates: bool, min_tasks: int = 1) -> None:
        """Pass over the rows until all but `min_tasks` - 1 tasks meet their tolerances.

        Shrunk rows are left out. The gap of a pass has terms at coefficients that change during the
        pass, and none of shrunk rows. With `evaluates`, the gap of all rows is evaluated before the
        end. Where it is larger than the tolerance, shrunk rows that contribute to it are visited
        again.
        """
        n_unshrunk = len(self.rows)
        while True:
            if this_thread.stop.is_set:
                raise StoppedError
            if self._is_finished(tols, min_tasks):
                if not evaluates:
                    return
                n_unshrunk = self._pass(self.rows, tols, min_tasks, is_frozen=True)
                if self._is_finished(tols, min_tasks):
                    return
            n_unshrunk = self._pass(self.rows[:n_unshrunk], tols, min_tasks)

    def _is_finished(self, tols: FloatArray, min_tasks: int) -> bool:
        n_unfinished = np.count_nonzero(self.gap[: len(tols)] > tols)
        return bool(self.n_passes >= self.max_iter or n_unfinished < min_tasks)

    @property
    def _scale(self) -> FloatArray:
        """What the gap is relative to."""
        return np.maximum(self.value, self.objective_floor)

    def _pass(
        self, rows: NDArray[np.intp], tols: FloatArray, min_tasks: int, *, is_frozen: bool = False
    ) -> int:
        """Visit rows in passes that follow each other; return how many of them are not shrunk.

        A frozen pass takes no steps, and no other follows it.
        """
        n_lanes, design = len(self.levels), self.design
        max_visits = self.call_elements * design.n_rows // max(1, design.n_stored)
        stopping = PassStopping(
            gap=self.gap,
            levels=self.levels,
            objective_floor=self.objective_floor,
            tols=np.append(tols, np.full(n_lanes - len(tols), np.inf)),
            min_tasks=min_tasks,
            max_passes=1 if is_frozen else self.max_iter - self.n_passes,
            max_visits=max_visits,
            shrinking=self.shrinking,
        )
        n_unshrunk = design.dual_pass(
            *(self.losses, rows, self.n_passes, is_frozen, self.codes, self.weights),
            *(self.squares, self.constant, self.positive, self.penalty, self.radius),
            *(self.residual, self.coef, self.intercept, self.sums, stopping),
        )
        if not is_frozen:
            self.n_passes += stopping.n_passes
        return n_unshrunk
