r"""The solver for data with a moderate number of columns, or of rows.

The Gram matrix of the rows plus the penalty majorises the Hessian of every loss (`preconditioners`)
and is factorised once. It preconditions L-BFGS, which then needs few passes over the data.

With fewer rows than columns the same is done in the space of the rows (`_row_space`).

Without overconfidence rows with margins above the level have no loss. Where few rows are below it,
dual passes over these need no Gram matrix (`_working_set`). Only rows below the level, but close to
it, have curvature. Where these active rows are few, the Gram matrix is a poor majoriser. L-BFGS
then fits a subsample of the rows, and Newton's method, whose Hessian is a sum over active rows,
continues from there.

Where rows are many, the Gram matrix is that of a subsample. It majorises the Hessian up to a few
per cent; the line search protects. `plan_gram` says which of these methods run.
"""

from dataclasses import replace
from functools import partial
from typing import ClassVar

import numpy as np

from marginpursuit._namespaces import to_numpy
from marginpursuit._validation import FloatArray
from marginpursuit.design import ArrayDesign, Design, Linear, Standardisation, take_rows
from marginpursuit.losses import JointLoss
from marginpursuit.solvers._compiled_lbfgs import lbfgs_for
from marginpursuit.solvers._continuation import continued, joined, unverified
from marginpursuit.solvers._device_lbfgs import minimise_on_device
from marginpursuit.solvers._float32 import is_curved, solve_in_float32
from marginpursuit.solvers._joint_sampled_hessian import has_subsample, solve_by_subsample
from marginpursuit.solvers._numpy_lbfgs import minimise
from marginpursuit.solvers._problem import (
    Prepared,
    Problem,
    Request,
    Solution,
    Status,
    allows_float32,
    mean_penalty_weights,
    mean_weights,
    request_penalty_weights,
)
from marginpursuit.solvers._refine import at_start, refine, refine_some
from marginpursuit.solvers._row_space import RowSpace, with_truncation
from marginpursuit.solvers._sampled_hessian import minimise_by_sampled_hessian
from marginpursuit.solvers._working_set import solve_on_working_set
from marginpursuit.solvers.gram_plan import (
    can_subsample,
    has_sampled_hessian,
    overconfidence_of,
    plan_gram,
)
from marginpursuit.solvers.preconditioners import GramPreconditioner
from marginpursuit.solvers.sampling import better_start, stratified_rows, subsample, with_variances
from marginpursuit.tasks import JointTasks

__all__ = ["GramSolver"]


class GramSolver:
    """L-BFGS preconditioned by the Gram matrix, refined by Newton's method."""

    name: ClassVar[str] = "gram"
    supports_joint: ClassVar[bool] = True
    depends_on_units: ClassVar[bool] = False
    warm_starts: ClassVar[bool] = True
    solves_paths: ClassVar[bool] = False
    shares_passes: ClassVar[bool] = True
    bounds_gap: ClassVar[bool] = False
    merges_columns: ClassVar[bool] = False
    reads_factored_rows: ClassVar[bool] = True
    loose_stopping: ClassVar[tuple[int, float]] = (12, 1e-2)

    def supports(self, request: Request) -> str | None:
        """Return None, or why the request is not supported."""
        is_wide = request.design.n_rows < request.design.n_columns
        if request.has_folds and is_wide and not request.is_search:
            return "with fewer rows than columns it fits one fold at a time"
        return request.lacks("curvature_bound")

    def prepare(self, request: Request) -> Prepared:
        """Standardise the columns and compute their Gram matrix.

        Methods that fit a subsample may succeed without the Gram matrix of all rows, which is then
        computed only if it is needed.
        """
        design = request.design
        if design.n_rows < design.n_columns:
            return _prepare_rows(request)
        weights, fold_ratio = mean_weights(request)
        copies = request.order is not None
        standardisation, gram = _sampled_gram(request, weights) or (None, None)
        if standardisation is None:
            overconfidences = map(overconfidence_of, request.losses)
            waits = max(overconfidences) == 0.0 and can_subsample(request, request.policy)
            waits = waits or has_sampled_hessian(request) or _is_solved_in_float32(request)
            waits = waits and not request.is_search
            if copies or waits:
                standardisation = design.standardisation(weights, centred=request.fit_intercept)
            else:
                standardisation, gram = design.standardisation_and_gram(
                    weights, centred=request.fit_intercept
                )
        penalty_weights = request_penalty_weights(request, standardisation)
        preconditioner = GramPreconditioner(
            design=design,
            standardisation=standardisation,
            weights=weights,
            penalty_weights=mean_penalty_weights(penalty_weights),
            fit_intercept=request.fit_intercept,
            fold_ratio=fold_ratio,
            gram=gram,
            policy=request.policy,
        )
        prepared = Prepared(
            design=design,
            standardisation=standardisation,
            fit_intercept=request.fit_intercept,
            penalty_weights=penalty_weights,
            preconditioner=preconditioner,
            transform=standardisation,
        )
        return _copied(prepared, request, weights) if copies else prepared

    def separates_folds(self, request: Request) -> bool:
        """Return whether the Gram matrix is that of the rows, which differ between folds."""
        return request.design.n_rows < request.design.n_columns

    def solve_folds(self, problem: Problem, tol: FloatArray) -> Solution:
        """Minimise the objective of every task by L-BFGS, or over working sets."""
        n_confirmations = problem.policy.lbfgs.fold_confirmations
        if _runs_on_device(problem):
            return minimise_on_device(problem, n_confirmations=n_confirmations, tol=tol)
        found = _solve_on_working_sets(problem, tol)
        if found is not None:
            return found
        return lbfgs_for(problem)(problem, n_confirmations=n_confirmations, tol=tol)

    def solve(self, problem: Problem) -> Solution:
        """Minimise by the methods of `plan_gram`; joint tasks by L-BFGS alone."""
        if isinstance(problem.tasks, JointTasks):
            return _complete(problem, _solve_joint(problem))
        plan = plan_gram(problem)
        before = solve_on_working_set(problem) if plan.uses_working_set else None
        if before is not None:
            if before.is_proven or before.n_iter >= problem.max_iter:
                return before
            problem = continued(problem, before)
            plan = plan_gram(problem)
        if len(problem.tasks) >= problem.policy.lbfgs.many_tasks:
            solve = partial(minimise, n_confirmations=plan.n_confirmations)
            found = refine_some(problem, solve_in_float32(problem, solve))
        elif plan.fits_subsample and (sampled := _fit_subsample(problem)) is not None:
            found = refine(sampled, at_start(sampled), gap_weight=plan.gap_weight)
        else:
            if plan.samples_hessian:
                found = minimise_by_sampled_hessian(problem, plan)
            else:
                found = lbfgs_for(problem)(
                    problem,
                    n_confirmations=plan.n_confirmations,
                    min_iter=plan.min_steps,
                    max_iter=plan.max_steps,
                    tol=plan.tol,
                )
            if not plan.accepts(found):
                has_left = found.n_iter < problem.max_iter
                found = refine(problem, found) if has_left else unverified(found)
        found = _complete(problem, found)
        return found if before is None else joined(before, found)


def _complete(problem: Problem, solution: Solution) -> Solution:
    """Return the solution with a gap that includes the error of a truncated row space."""
    space = problem.prepared.transform
    if isinstance(space, RowSpace) and not space.is_exact:
        return with_truncation(problem, solution, space)
    return solution


def _solve_on_working_sets(problem: Problem, tol: FloatArray) -> Solution | None:
    """Minimise the objective of each task over its working set, without a Gram matrix.

    None where the matrix exists, as in a search, or a task has too many rows below the level. Half
    fits of 52,500 rows of digit5 take 0.15 s instead of 0.39.
    """
    preconditioner = problem.prepared.preconditioner
    assert isinstance(preconditioner, GramPreconditioner)
    if preconditioner.gram is not None or isinstance(problem.tasks, JointTasks):
        return None
    found = []
    for task, own_tol in enumerate(tol):
        alone = _of_task(problem, task, float(own_tol))
        solution = solve_on_working_set(alone) if plan_gram(alone).uses_working_set else None
        if solution is None or not solution.is_proven:
            return None
        found.append(solution)
    coefs, intercepts = zip(*(solution.linear for solution in found), strict=True)
    last = max(found, key=lambda solution: solution.n_iter)
    return replace(
        last,
        linear=(np.hstack(coefs), np.concatenate(intercepts)),
        value=np.concatenate([solution.value for solution in found]),
        gap=np.concatenate([solution.gap for solution in found]),
    )


def _of_task(problem: Problem, task: int, tol: float) -> Problem:
    """Return the problem of one task, with the weights of its fold alone."""
    own, fold = problem.take(np.array([task])), problem.tasks.fold[[task]]
    return replace(
        own,
        prepared=replace(problem.prepared, penalty_weights=problem.prepared.penalty_weights[fold]),
        tasks=replace(own.tasks, weights=own.tasks.weights[fold], fold=np.zeros(1, dtype=np.intp)),
        tol=tol,
    )


def _runs_on_device(problem: Problem) -> bool:
    """Whether steps on the device of the rows are faster than steps in NumPy.

    A problem that keeps its iterates does so in NumPy.
    """
    is_elsewhere = isinstance(problem.prepared.design, ArrayDesign)
    is_joint = isinstance(problem.tasks, JointTasks)
    is_large = problem.start[0].size >= problem.policy.min_device_coefficients
    return is_elsewhere and is_joint and is_large and problem.on_iterate is None


def _solve_joint(problem: Problem) -> Solution:
    """Minimise the objective of joint tasks by L-BFGS.

    Small problems, whose passes take less time than the steps between them, are solved up to
    rounding, unless products are in float32: the correction pairs of its rounding errors would make
    the last estimates of the gap too large. With few rows and a small penalty the estimates may be
    a hundredth of the gap: such problems are solved up to rounding too or, if large, below `tol`.
    """
    policy, design = problem.policy, problem.prepared.design
    n_products = design.n_stored * len(problem.start[1])
    if _runs_on_device(problem):
        return minimise_on_device(problem, n_confirmations=policy.lbfgs.final_confirmations)
    is_reliable = is_curved(problem)
    limit = policy.max_exact_joint_products if is_reliable else policy.max_exact_flat_products
    if design.rounding > Design.rounding or (is_reliable and n_products > limit):
        return solve_in_float32(problem, _minimise_joint)
    if n_products <= limit:
        solution = _minimise_joint(replace(problem, tol=min(policy.exact_joint_tol, problem.tol)))
    else:
        tight = replace(problem, tol=policy.flat_joint_tol * problem.tol)
        solution = solve_in_float32(tight, _minimise_joint)
    last = solution.history[-policy.lbfgs.joint_confirmations :]
    is_met = np.all(solution.gap <= problem.tol)
    is_confirmed = solution.status is not Status.MAX_ITER or all(
        progress.gap <= problem.tol for progress in last
    )
    return replace(solution, status=Status.CONVERGED) if is_met and is_confirmed else solution


def _minimise_joint(problem: Problem) -> Solution:
    """Minimise the objective of joint tasks.

    Where rows are many for each coefficient, the Hessian of a subsample preconditions in place of
    the Gram matrix (`_joint_sampled_hessian`), from the start or after some steps.
    """
    policy = problem.policy
    if has_subsample(problem, policy.direct_sampling_ratio):
        return solve_by_subsample(problem)
    solve = partial(lbfgs_for(problem), problem, n_confirmations=policy.lbfgs.joint_confirmations)
    if not has_subsample(problem, policy.hessian_sampling_ratio):
        return solve()
    first = solve(max_iter=min(policy.first_joint_steps, problem.max_iter))
    if first.status is not Status.MAX_ITER or first.n_iter >= problem.max_iter:
        return first
    return joined(first, solve_by_subsample(continued(problem, first)))


def _is_solved_in_float32(request: Request) -> bool:
    """Whether most solves read a float32 copy of the rows.

    The Gram matrix is then computed from that copy.
    """
    design, policy = request.design, request.policy
    is_joint = all(isinstance(loss, JointLoss) for loss in request.losses)
    has_many = request.n_problems >= policy.lbfgs.many_tasks
    n_elements = design.n_rows * design.n_columns
    is_large = allows_float32(policy, n_elements, request.tol, is_joint=is_joint)
    is_dense = "row_access" in design.capabilities and not design.is_sparse
    return (is_joint or has_many) and is_large and is_dense


def _sampled_gram(
    request: Request, weights: FloatArray
) -> tuple[Standardisation, FloatArray] | None:
    """Return the standardisation and the Gram matrix of a subsample, where that suffices."""
    design, policy = request.design, request.policy
    n_rows, size = design.n_rows, policy.gram_rows_per_column * design.n_columns
    is_cheap = "subset" in design.capabilities and not design.is_sparse
    if n_rows < policy.gram_sampling_ratio * size or not is_cheap:
        return None
    rows = stratified_rows(n_rows, size)
    own = np.asarray(to_numpy(take_rows(weights, rows)), dtype=np.float64)
    if not own.sum() > 0:
        return None
    standardisation = design.standardisation(weights, centred=request.fit_intercept)
    gram = design.subset(rows, design.threads).gram(own / own.sum(), standardisation)
    return standardisation, with_variances(gram, standardisation)


def _copied(prepared: Prepared, request: Request, weights: FloatArray) -> Prepared:
    """Return the same with a float32 copy of the standardised rows, if there can be one."""
    design, order, preconditioner = prepared.design, request.order, prepared.preconditioner
    assert order is not None
    assert isinstance(preconditioner, GramPreconditioner)
    copy = design.float32_copy(order, prepared.standardisation)
    if copy is None:
        preconditioner.compute()
        return prepared
    identity = Standardisation(
        np.zeros(design.n_columns), prepared.standardisation.varies.astype(np.float64)
    )
    gram = preconditioner.gram
    own = replace(
        preconditioner,
        design=copy,
        standardisation=identity,
        weights=weights[order],
        gram=copy.gram(weights[order], identity) if gram is None else gram,
    )
    return replace(prepared, design=copy, standardisation=identity, preconditioner=own, order=order)


def _fit_subsample(problem: Problem) -> Problem | None:
    """Fit a subsample of the rows, for one task; None where too many of its rows are active.

    Returns the problem with the preconditioner of the subsample, started at its fit if that has a
    lower objective than the start of the problem.
    """
    prepared, policy, design = problem.prepared, problem.policy, problem.prepared.design
    size = min(
        design.n_rows // policy.start_sampling,
        policy.max_start_rows_per_column * design.n_columns,
    )
    sample = subsample(problem, size)
    if sample is None:
        return None
    sample = replace(sample, max_iter=policy.max_lbfgs_steps, tol=policy.start_tol)
    found = lbfgs_for(sample)(sample).linear
    if _active_fraction(sample, found) > policy.max_active_fraction:
        return None
    if design.n_rows >= 2 * policy.newton_sampling * size:
        found = _newton_on_subsample(problem, found, design.n_rows // policy.newton_sampling)
    preconditioner = sample.prepared.preconditioner
    return replace(
        problem,
        prepared=replace(prepared, preconditioner=preconditioner),
        start=better_start(problem, found),
    )


def _newton_on_subsample(problem: Problem, found: Linear, size: int) -> Linear:
    """Return a point after Newton steps on a larger subsample than that of a first fit."""
    sample, policy = subsample(problem, size), problem.policy
    if sample is None:
        return found
    max_iter = min(problem.max_iter, policy.max_newton_start_steps)
    sample = replace(sample, start=found, max_iter=max_iter, tol=policy.newton_start_tol)
    return refine(sample, at_start(sample), gap_weight=0.0).linear


def _active_fraction(problem: Problem, linear: Linear) -> float:
    """Return the fraction of the rows of positive weight that have curvature, for one task."""
    prepared, tasks, loss = problem.prepared, problem.tasks.on_host(), problem.tasks.losses[0]
    scores = to_numpy(prepared.design.scores(*linear, prepared.standardisation))[:, 0]
    residual = loss.margin - tasks.sign(0) * scores
    is_active = (residual > 0) & (residual < loss.curvature_support)
    return float(np.mean(is_active[tasks.weights[0] > 0]))


def _prepare_rows(request: Request) -> Prepared:
    """Prepare in the space of the rows, for one fold."""
    space = RowSpace.of(request)
    reduced, rank = request.design.from_dense_rows(space.lower), space.lower.shape[1]
    identity = Standardisation.identity(rank)
    preconditioner = GramPreconditioner(
        design=reduced,
        standardisation=identity,
        weights=request.weights[0, :],
        penalty_weights=np.ones(rank),
        fit_intercept=request.fit_intercept,
        policy=request.policy,
        allows_hessian=False,
    )
    preconditioner.compute()
    return Prepared(
        design=reduced,
        standardisation=identity,
        fit_intercept=request.fit_intercept,
        penalty_weights=np.ones((1, rank)),
        preconditioner=preconditioner,
        transform=space,
    )
