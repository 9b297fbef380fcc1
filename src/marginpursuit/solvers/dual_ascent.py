r"""Dual coordinate ascent, for sparse rows with many columns, and for wide dense rows.

With rows x, one penalty p for all coefficients and dual variables a_i = -c_i φ'(m_i),
the minimiser is w = Σ y_i a_i x_i / p. A pass visits the rows in random order and maximises the
dual objective in the dual variable of each, with all others fixed (`_kernels/dual_pass.h`). It
costs about one sweep, and text needs a dozen passes, where L-BFGS with a diagonal preconditioner
needs ten times as many. Sparse rows are read as given; dense rows are copied and standardised,
such that the unit "standardised" or "inflated" is one penalty for all coefficients.

The intercept is the coefficient of a constant feature, whose penalty is on its distance to its
value after the last pass: the method of multipliers, for the constraint Σ y_i a_i = 0. Passes end
where the duality gap, summed as rows are visited, meets the tolerance.

Tasks of the same fold share a pass, as many as `tasks_per_pass`. Each group of tasks has its
coefficients, and its order of rows, to itself. The *lane* of a task is its place in the vectors of
the kernel. A row whose dual variable is zero, and whose margin is far above the level, is *shrunk*:
later passes leave it out.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from marginpursuit._validation import FloatArray
from marginpursuit.design import MemoryDesign, Standardisation
from marginpursuit.solvers._dual_passes import DualAscent, common_penalty, row_type
from marginpursuit.solvers._problem import (
    ROTATION_INVARIANT,
    Prepared,
    Problem,
    Progress,
    Request,
    Solution,
    Status,
    mean_weights,
    quartile_square,
    request_penalty_weights,
)
from marginpursuit.solvers.lbfgs import merge_request
from marginpursuit.solvers.preconditioners import CentredDiagonalPreconditioner

__all__ = ["DualSolver"]


class DualSolver:
    """Dual coordinate ascent over CSR rows, or a standardised copy of dense rows, in memory."""

    name: ClassVar[str] = "dual"
    supports_joint: ClassVar[bool] = False
    depends_on_units: ClassVar[bool] = False
    warm_starts: ClassVar[bool] = False
    solves_paths: ClassVar[bool] = False
    shares_passes: ClassVar[bool] = False
    bounds_gap: ClassVar[bool] = True
    merges_columns: ClassVar[bool] = True
    reads_factored_rows: ClassVar[bool] = False
    loose_stopping: ClassVar[tuple[int, float]] = (20, 2.5e-2)

    def supports(self, request: Request) -> str | None:
        """Return None, or why the request is not supported."""
        if request.is_joint:
            return request.needs_one_against_rest
        if "dual_pass" not in request.design.capabilities:
            return "it needs rows in memory and the compiled kernels"
        max_elements, design = request.policy.max_dense_dual_elements, request.design
        if self.separates_folds(request) and design.n_rows * design.n_columns > max_elements:
            return f"several folds need a CSR matrix, or at most {max_elements} dense elements"
        if request.design.is_sparse and request.alpha_unit not in ROTATION_INVARIANT:
            return (
                "it needs one penalty for all coefficients: alpha_unit in "
                f"{ROTATION_INVARIANT}, with a number for alpha; got the unit "
                f"{request.alpha_unit!r}"
            )
        if not request.design.is_sparse and request.alpha_unit not in ("standardised", "inflated"):
            return (
                "with dense rows it needs kernel='linear', alpha_unit='standardised' or "
                "'inflated' and a number for alpha; "
                f"got the unit {request.alpha_unit!r}. Set solver='auto'"
            )
        if not request.least_alpha > 0:
            return f"it needs a penalty alpha > 0; got {request.least_alpha:g}"
        return request.lacks("conjugate") or request.lacks("kernel_parameters")

    def prepare(self, request: Request) -> Prepared:
        """Compute the weight of the penalty; sparse rows are read as given.

        Columns are merged where several tasks share passes, whose coefficients exceed a cache.
        """
        if not request.design.is_sparse:
            return _prepared_dense(request)
        rotation = None
        if request.n_problems >= request.policy.min_shared_dual_tasks:
            request, rotation = merge_request(request)
        design = request.design
        weights, fold_ratio = mean_weights(request)
        fold_weights = _penalty_weights(request)
        shape = len(fold_weights), design.n_columns
        identity = Standardisation.identity(design.n_columns)
        preconditioner = CentredDiagonalPreconditioner(
            design=design,
            weights=weights,
            fold_ratio=fold_ratio,
            penalty_weight=float(fold_weights.mean()),
            fit_intercept=request.fit_intercept,
        )
        return Prepared(
            design=design,
            standardisation=identity,
            fit_intercept=request.fit_intercept,
            penalty_weights=np.broadcast_to(fold_weights[:, np.newaxis], shape),
            preconditioner=preconditioner,
            transform=identity if rotation is None else rotation,
        )

    def separates_folds(self, request: Request) -> bool:
        """Whether folds have a design matrix each: dense columns are standardised in each fold."""
        return request.has_folds and not request.design.is_sparse

    def solve(self, problem: Problem) -> Solution:
        """Maximise the dual of every task, until the gap at the last coefficients is small."""
        return _solved([_Passes(problem, np.full(len(problem.tasks), problem.tol), True)])[0]

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
        return _solved([_Passes(problem, tol, False)])[0]

    def solve_both(
        self, problem: Problem, other: Problem, other_tol: FloatArray
    ) -> tuple[Solution, Solution]:
        """Solve two problems over the same data, the second to a tolerance for each task."""
        own_tol = np.full(len(problem.tasks), problem.tol)
        both = [_Passes(problem, own_tol, True), _Passes(other, other_tol, False)]
        first, second = _solved(both)
        return first, second


class _Passes(NamedTuple):
    """A problem, and the gaps at which its dual passes stop."""

    problem: Problem
    tol: FloatArray  # (n_tasks,)
    evaluates: bool  # gaps at the last coefficients, and not only as summed during a pass

    @property
    def tasks_per_pass(self) -> int:
        """The number of tasks that share passes; one over dense rows."""
        design = self.problem.prepared.design
        assert isinstance(design, MemoryDesign)
        return design.tasks_per_pass


@dataclass
class _Found:
    """The end of the tasks of a problem; arrays have one entry or column per task."""

    coef: FloatArray
    intercept: FloatArray
    value: FloatArray
    gap: FloatArray
    n_passes: int = 0  # the most of any group

    @classmethod
    def empty(cls, problem: Problem, *, is_fold: bool) -> "_Found":
        """Return the arrays of a problem, to be set.

        The coefficients of fold fits are read for some tasks, those of a fit for all at once:
        SciPy would copy them unless their rows are contiguous.
        """
        shape = problem.prepared.design.n_columns, len(problem.tasks)
        return cls(np.empty(shape, order="F" if is_fold else "C"), *np.empty((3, shape[1])))

    def set(self, tasks: NDArray[np.intp], ascent: DualAscent, n_passes: int | None = None) -> None:
        """Set the results of tasks, which are the first lanes of the ascent."""
        n = len(tasks)
        self.coef[:, tasks], self.intercept[tasks] = ascent.coef[:, :n], ascent.intercept[:n]
        self.value[tasks], self.gap[tasks] = ascent.value[:n], ascent.gap[:n]
        self.n_passes = max(self.n_passes, ascent.n_passes if n_passes is None else n_passes)


def _solved(problems: list[_Passes]) -> list[Solution]:
    """Solve problems over the same data; each group of their tasks goes to the next free thread."""
    found = [_Found.empty(each.problem, is_fold=not each.evaluates) for each in problems]
    items = [
        (each, group, results)
        for each, results in zip(problems, found, strict=True)
        for group in _task_groups(each.problem)
    ]
    design = problems[0].problem.prepared.design
    design.row_squares()  # which the design keeps: threads that need it would each compute it
    list(design.threads.map(_run_group, *zip(*items, strict=True)))
    return [_solution(each, results) for each, results in zip(problems, found, strict=True)]


def _run_group(passes: _Passes, group: NDArray[np.intp], found: _Found) -> None:
    """Run the tasks of a group: together, and then each that has not finished alone."""
    problem, n, tols = passes.problem, len(group), passes.tol[group]
    if n > passes.tasks_per_pass:
        _run_chain(passes, group, found)
        return
    ascent, policy = DualAscent.start(problem, group), problem.policy
    if n == 1:
        ascent.run(tols, passes.evaluates)
        found.set(group, ascent)
        return
    shared_tols = np.maximum(tols, policy.shared_dual_gap)
    ascent.run(shared_tols, False, policy.min_shared_dual_tasks)
    found.set(group, ascent)
    is_unfinished = (ascent.gap[:n] > tols) | passes.evaluates
    for k in np.flatnonzero(is_unfinished).tolist():
        alone = ascent.alone(k)
        alone.run(tols[[k]], passes.evaluates)
        found.set(group[[k]], alone)


def _run_chain(passes: _Passes, group: NDArray[np.intp], found: _Found) -> None:
    """Run tasks that differ in their penalty, each from the dual variables of the one before.

    The largest penalty is first: it takes the fewest passes.
    """
    problem, n_passes = passes.problem, 0
    group = group[np.argsort(-problem.alphas[group], kind="stable")]
    ascent = DualAscent.start(problem, group[:1])
    for task in group:
        ascent = ascent.at_penalty(problem, task)
        ascent.run(passes.tol[[task]], passes.evaluates)
        n_passes += ascent.n_passes
        found.set(np.array([task]), ascent, n_passes)


def _solution(passes: _Passes, found: _Found) -> Solution:
    """Report the end of a problem."""
    problem, design = passes.problem, passes.problem.prepared.design
    design.n_passes += found.n_passes
    is_met = bool(np.all(found.gap <= passes.tol))
    status = Status.CONVERGED if is_met else Status.MAX_ITER
    value, gap = float(found.value.mean()), float(found.gap.max())
    end = Progress(found.n_passes, design.n_passes, value, gap)
    linear = found.coef, found.intercept
    problem.notify(end, problem.join(*linear) if problem.on_iterate is not None else None)
    is_proven = is_met and passes.evaluates
    return Solution(
        linear, found.value, found.gap, status, found.n_passes, (end,), is_proven=is_proven
    )


def _prepared_dense(request: Request) -> Prepared:
    """Copy dense rows, centred and scaled such that all coefficients have the same penalty."""
    design, (weights, _) = request.design, mean_weights(request)
    assert isinstance(design, MemoryDesign)
    standardisation = design.standardisation(weights, centred=request.fit_intercept)
    largest, factors = common_penalty(request_penalty_weights(request, standardisation)[0])
    scaling = Standardisation(standardisation.mean, factors * standardisation.inverse_deviation)
    dtype = row_type(request, design.n_rows)
    rows = design.scaled_rows(scaling.mean, scaling.inverse_deviation, dtype=dtype)
    copy, centred = design.with_matrix(rows), request.fit_intercept
    return Prepared(
        design=copy,
        standardisation=Standardisation.identity(design.n_columns),
        fit_intercept=centred,
        penalty_weights=np.full((1, design.n_columns), largest),  # other columns are zero
        preconditioner=CentredDiagonalPreconditioner(copy, weights, 1.0, largest, centred),
        transform=scaling,
    )


def _penalty_weights(request: Request) -> FloatArray:
    """Return the penalty weight of all columns in each fold; one where all rows are equal.

    The total variance of the columns is the mean of ‖x‖² less the square of the mean row.
    """
    design, weights = request.design, request.weights
    assert isinstance(design, MemoryDesign)
    squares = design.row_squares()
    means = weights @ squares
    # A mean of zero is that of zero rows, or of squares that underflow. Rows without weight count
    # for neither.
    underflows = not means.any() and design.matrix[np.any(weights > 0, axis=0)].count_nonzero() > 0
    if underflows or not np.all(np.isfinite(means)):
        raise FloatingPointError("the rows have no finite mean square")
    if request.alpha_unit == "absolute":
        return np.ones(len(weights))
    if request.alpha_unit == "row":
        return np.full(len(weights), quartile_square(request))
    identity, total = Standardisation.identity(design.n_columns), means.copy()
    if request.fit_intercept:
        total -= [np.sum(design.adjoint(fold, identity) ** 2) for fold in weights]
    return np.where(total > 1e-12 * means, total, 1.0)


def _task_groups(problem: Problem) -> Iterator[NDArray[np.intp]]:
    """Yield groups of tasks with the same fold and codes that share passes, or single tasks.

    Over dense rows no task shares a pass; a group has tasks that differ in their penalty only.
    """
    tasks, design = problem.tasks, problem.prepared.design
    assert isinstance(design, MemoryDesign)
    size = design.tasks_per_pass
    for fold in np.unique(tasks.fold):
        if size == 1:
            own = np.flatnonzero(tasks.fold == fold)
            kinds = [(tasks.losses[k], int(tasks.positive[k])) for k in own]
            for kind in dict.fromkeys(kinds):
                yield own[[each == kind for each in kinds]]
            continue
        for own, _, _ in tasks.by_codes(np.flatnonzero(tasks.fold == fold)):
            for first in range(0, len(own), size):
                group = own[first : first + size]
                is_shared = len(group) >= problem.policy.min_shared_dual_tasks
                yield from [group] if is_shared else np.split(group, len(group))
