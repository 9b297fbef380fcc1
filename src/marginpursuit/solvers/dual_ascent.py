r"""Dual coordinate ascent, for sparse rows with many columns.

With rows x as they came, one penalty p for all coefficients and dual variables a_i = -c_i φ'(m_i),
the minimiser is w = Σ y_i a_i x_i / p. A pass visits the rows in random order and maximises the
dual objective in the dual variable of each, with all others fixed (`_kernels/dual_pass.h`). It
costs about one sweep, and text needs a dozen passes, where L-BFGS with a diagonal preconditioner
needs ten times as many.

The intercept is the coefficient of a constant feature, whose penalty is on its distance to its
value after the last pass: the method of multipliers, for the constraint Σ y_i a_i = 0. Passes end
where the duality gap, summed as rows are visited, meets the tolerance.

Tasks of the same fold share a pass, as many as `tasks_per_pass`. Each group of tasks has its
coefficients, and its order of rows, to itself.
"""

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from marginpursuit._validation import FloatArray
from marginpursuit.design import MemoryDesign, Standardisation
from marginpursuit.solvers._problem import (
    ROTATION_INVARIANT,
    Prepared,
    Problem,
    Progress,
    Request,
    Solution,
    Status,
    mean_weights,
    request_unit,
)
from marginpursuit.solvers.lbfgs import merge_request
from marginpursuit.solvers.preconditioners import CentredDiagonalPreconditioner

__all__ = ["DualSolver"]


class DualSolver:
    """Dual coordinate ascent over CSR rows in memory."""

    name: ClassVar[str] = "dual"
    warm_starts: ClassVar[bool] = False
    loose_stopping: ClassVar[tuple[int, float]] = (20, 2.5e-2)

    def supports(self, request: Request) -> str | None:
        """Return None, or why the request is not supported."""
        if request.is_joint:
            return request.needs_one_against_rest
        if "dual_pass" not in request.design.capabilities:
            return "it needs a CSR matrix in memory and the compiled kernels"
        if request.unit not in ROTATION_INVARIANT:
            return (
                f"it needs one penalty for all coefficients: alpha_unit in {ROTATION_INVARIANT}, "
                f"with a number for alpha; got the unit {request.unit!r}"
            )
        if not request.least_alpha > 0:
            return f"it needs a penalty alpha > 0; got {request.least_alpha:g}"
        return request.lacks("conjugate") or request.lacks("kernel_parameters")

    def prepare(self, request: Request) -> Prepared:
        """Compute the unit of the penalty; rows are read as they came, with merged columns."""
        request, merge = merge_request(request)
        design = request.design
        weights, fold_ratio = mean_weights(request)
        standardisation = design.standardisation(weights, centred=request.fit_intercept)
        variance = standardisation.deviation**2
        units = request_unit(request, standardisation) * variance
        unit_of_fold = np.max(units, axis=1, where=np.isfinite(units), initial=0.0)
        unit_of_fold[unit_of_fold == 0.0] = 1.0  # all columns are constant
        identity = Standardisation.identity(design.n_columns)
        preconditioner = CentredDiagonalPreconditioner(
            *(fold_ratio, float(unit_of_fold.mean()), standardisation.mean, variance),
            request.fit_intercept,
        )
        return Prepared(
            *(design, identity, request.fit_intercept),
            np.repeat(unit_of_fold[:, np.newaxis], design.n_columns, axis=1),
            preconditioner,
            identity if merge is None else merge,
            merge=merge,
        )

    def separates_folds(self, request: Request) -> bool:
        """Return False: folds share the design matrix."""
        return False

    def solve(self, problem: Problem) -> Solution:
        """Maximise the dual of every task."""
        return self.solve_folds(problem, np.full(len(problem.tasks), problem.tol))

    def solve_folds(self, problem: Problem, tol: FloatArray) -> Solution:
        """Maximise the dual, from dual variables of zero, wherever the problem starts.

        Parameters
        ----------
        problem : Problem
            What to minimise, with positive penalties.
        tol : ndarray of shape (n_tasks,)
            The relative duality gap of each task at which passes end.

        Returns
        -------
        Solution
            The minimisers. Values and gaps are those of the last pass.
        """
        design, tasks = problem.prepared.design, problem.tasks
        assert isinstance(design, MemoryDesign)
        n_tasks = len(tasks)
        coef, intercept = np.empty((design.n_columns, n_tasks)), np.empty(n_tasks)
        value, gap = np.empty(n_tasks), np.empty(n_tasks)
        squares = design.quadratic_forms()
        groups = list(_task_groups(tasks.fold, design.tasks_per_pass))

        def run(group: NDArray[np.intp]) -> int:
            ascent = _Ascent(problem, group, squares)
            ascent.run(tol[group])
            n = len(group)
            coef[:, group], intercept[group] = ascent.coef[:, :n], ascent.intercept[:n]
            value[group], gap[group] = ascent.value[:n], ascent.gap[:n]
            return ascent.n_passes

        n_passes = max(design.threads.map(run, groups, dynamic=True))
        design.n_passes += n_passes
        status = Status.CONVERGED if np.all(gap <= tol) else Status.MAX_ITER
        end = Progress(n_passes, design.n_passes, float(value.mean()), float(gap.max()))
        problem.tell(end, problem.join(coef, intercept) if problem.keep is not None else None)
        return Solution((coef, intercept), value, gap, status, n_passes, (end,))


def _task_groups(fold: NDArray[np.intp], size: int) -> Iterator[NDArray[np.intp]]:
    """Yield groups of at most `size` tasks of the same fold."""
    for which in np.unique(fold):
        own = np.flatnonzero(fold == which)
        for first in range(0, len(own), size):
            yield own[first : first + size]


class _Ascent:
    """The state of a group of tasks; a group that is not full repeats its first task."""

    def __init__(self, problem: Problem, group: NDArray[np.intp], squares: FloatArray) -> None:
        prepared, tasks = problem.prepared, problem.tasks
        design = prepared.design
        assert isinstance(design, MemoryDesign)
        size = design.tasks_per_pass
        padded = np.append(group, np.repeat(group[0], size - len(group)))
        fold = tasks.fold[group[0]]
        self._max_iter, self._design = problem.max_iter, design
        self._losses = tasks.loss_parameters[padded]
        self._levels = np.array([tasks.losses[k].margin for k in padded])
        self._positive, self._codes = tasks.positive[padded], tasks.codes
        self._penalty = problem.alphas[padded] * prepared.unit[fold, 0]
        self._least = problem.relative_to(np.zeros(len(tasks)))[padded]
        self._weights = np.ascontiguousarray(tasks.weights[fold])
        self._rows = np.flatnonzero(self._weights > 0)
        median = float(np.median(squares[self._rows])) or 1.0
        constant = problem.policy.dual_intercept_square * median
        self._constant = constant if prepared.fit_intercept else 0.0
        self._squares = squares + self._constant
        self._residual = np.zeros((design.n_rows, size))
        self.coef, self.intercept = np.zeros((design.n_columns, size)), np.zeros(size)
        self.value, self.gap, self.n_passes = np.zeros(size), np.full(size, np.inf), 0

    def run(self, tols: FloatArray) -> None:
        """Pass over the rows until the gap of every task meets its tolerance."""
        random = np.random.default_rng(0)
        sums = np.zeros((3, len(self._penalty)))
        while self.n_passes < self._max_iter and np.any(self.gap[: len(tols)] > tols):
            self.intercept += self._constant * sums[2] / self._penalty
            self._design.dual_pass(
                *(self._losses, random.permutation(self._rows), self._codes, self._weights),
                *(self._squares, self._constant, self._positive, self._penalty, self._residual),
                *(self.coef, self.intercept, sums),
            )
            self.n_passes += 1
            self.value, gap, constraint = sums
            # The violated constraint is the derivative in the intercept, whose distance to its
            # minimiser is at most the level.
            missing = np.abs(constraint) * self._levels if self._constant > 0 else 0.0
            self.gap = (gap + missing) / np.maximum(self.value, self._least)
