"""Which solver runs, and how it combines its methods: a plan that can be printed and tested."""

from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from marginpursuit.design import ArrayDesign
from marginpursuit.losses import MarginLoss
from marginpursuit.solvers._problem import Problem, Request, Solution, Status
from marginpursuit.solvers.policy import Policy


@dataclass(frozen=True, slots=True)
class Plan:
    """The solver for a request and why."""

    solver: str  # a name in `SOLVERS`
    reason: str

    def __str__(self) -> str:
        return f"solver {self.solver}: {self.reason}"


@dataclass(frozen=True, slots=True)
class GramPlan:
    """How the solver "gram" combines L-BFGS with Newton's method."""

    uses_working_set: bool  # dual passes over rows of small margin first, where these are few
    fits_subsample: bool  # fit a subsample first; with few active rows continue by Newton
    max_steps: int  # of L-BFGS
    min_steps: int
    tol: float  # to which L-BFGS runs
    trusted_steps: int  # up to which the L-BFGS estimate of the gap is not verified
    trusts_estimate: bool  # whether it is trusted after any number of steps
    gap_weight: float  # of the proven gap, against the Newton decrement
    n_confirmations: int = 1  # consecutive estimates of L-BFGS that must meet the tolerance
    samples_hessian: bool = False  # whether the Hessian of a subsample preconditions L-BFGS

    def accepts(self, solution: Solution, max_iter: int) -> bool:
        """Whether the L-BFGS solution needs no refinement, or no iterations are left for it."""
        is_trusted = self.trusts_estimate and solution.status is Status.CONVERGED
        is_short = solution.n_iter < self.trusted_steps
        is_accepted = solution.is_proven or is_trusted or is_short
        return is_accepted or solution.n_iter == max_iter

    def __str__(self) -> str:
        steps = ["dual passes over few rows"] * self.uses_working_set
        steps += ["fit a subsample, then Newton where few rows are active"] * self.fits_subsample
        method = "L-BFGS" + " with the Hessian of a subsample" * self.samples_hessian
        steps.append(f"{method}, at most {self.max_steps} steps, to {self.tol:.0e}")
        n_first = len(steps)
        if not self.trusts_estimate:
            steps.append(f"Newton refinement, unless within {self.trusted_steps} steps")
        return "; else ".join(steps[:n_first]) + "".join(f"; {step}" for step in steps[n_first:])


def plan(request: Request, solver: str = "auto") -> Plan:
    """Choose a solver for a request.

    Parameters
    ----------
    request : Request
        Data, losses and penalties.
    solver : str, default="auto"
        A name in `SOLVERS`, or "auto":

        =====================================================  ==============================
        data                                                   solver
        =====================================================  ==============================
        a single fit of sparse rows, at most 2**17 elements    newton
        of a dense copy, and the limits of newton below
        sparse rows, wide or many, with a rotation-invariant   dual
        penalty; in a single fit, of at least 0.01/n_rows
        folds of other sparse wide rows, few binary problems   lbfgs
        dense rows in memory, at most 2**21 elements and       newton
        128 coefficients of a task, fewer than 32 binary
        problems
        other dense rows of one binary problem, at most        dual
        2**24 elements: a single fit with overconfidence 0
        and at most 16 rows per column; folds of fewer rows
        than columns
        at most 2048 columns                                   gram
        at most 4096 rows, fewer than columns                  gram, in the space of the rows
        otherwise                                              lbfgs
        =====================================================  ==============================

    Returns
    -------
    Plan
        The solver, with the reason.

    Raises
    ------
    ValueError
        If the named solver does not support the request.
    """
    from marginpursuit.solvers import SOLVERS

    if solver != "auto":
        reason = SOLVERS[solver].supports(request)
        if reason is not None:
            raise ValueError(f"solver={solver!r} cannot be used here: {reason}")
        return Plan(solver, "as requested")
    # ASCII: `verbose` prints the plan, also where standard output has no UTF-8.
    shape = f"{request.design.n_rows} rows x {request.design.n_columns} columns"
    return (_sparse_plan if request.design.is_sparse else _dense_plan)(request, shape)


def _dense_plan(request: Request, shape: str) -> Plan:
    from marginpursuit.solvers import SOLVERS

    if _is_small(request) and SOLVERS["newton"].supports(request) is None:
        return Plan("newton", f"{shape}: each task is one compiled call")
    if _is_wide_binary(request) and SOLVERS["dual"].supports(request) is None:
        return Plan("dual", f"{shape}: dual passes cost less than a Gram matrix")
    return _default(request, shape)


def _sparse_plan(request: Request, shape: str) -> Plan:
    from marginpursuit.solvers import SOLVERS

    design, policy, default = request.design, request.policy, _default(request, shape)
    is_tiny = design.n_rows * design.n_columns <= policy.max_sparse_newton_elements
    is_tiny &= not request.is_search and _is_small(request)
    if is_tiny and SOLVERS["newton"].supports(request) is None:
        return Plan("newton", f"sparse rows, {shape}: a dense copy is small")
    is_wide = design.n_columns > design.n_rows >= policy.min_dual_rows
    if not (is_wide or default.solver == "lbfgs"):
        return default
    if SOLVERS["dual"].supports(request) is None and _dual_is_fast(request):
        return Plan("dual", f"sparse rows, {shape}: a dual pass costs one sweep")
    has_few_problems = request.n_problems < policy.min_row_space_problems
    is_large = is_wide and design.n_rows >= policy.min_lbfgs_rows
    is_in_memory = "row_access" in design.capabilities
    if request.is_search and is_large and is_in_memory and has_few_problems:
        return Plan("lbfgs", f"folds of sparse wide rows, {shape}: few problems share a factor")
    return default


def steps_before_hessian(request: Request, solver: str) -> int | None:
    """Return after how many iterations of a solver "gram" takes over; None where it does not."""
    from marginpursuit.solvers import SOLVERS

    policy, design = request.policy, request.design
    size = min(design.n_rows, design.n_columns)
    if solver not in ("lbfgs", "dual") or size > policy.max_hessian_size:
        return None
    if SOLVERS["gram"].supports(request) is not None:
        return None
    return max(policy.max_first_steps, ceil(policy.max_first_steps_per_column * size))


def _dual_is_fast(request: Request) -> bool:
    """Whether dual passes converge fast: for fold fits, to a loose tolerance, they always do."""
    is_relative = request.unit in ("common", "row")
    penalty = request.least_alpha * request.design.n_rows
    return request.is_search or (is_relative and penalty >= request.policy.min_dual_penalty)


def _is_small(request: Request) -> bool:
    """Whether a Hessian costs less than the calls of the interpreter that several passes take.

    The passes that many binary problems share cost less than a Hessian of each.
    """
    design, policy = request.design, request.policy
    if not request.is_joint and request.n_problems >= policy.lbfgs.many_tasks:
        return False
    size = (design.n_columns + 1) * (request.n_problems if request.is_joint else 1)
    n_elements = design.n_rows * (design.n_columns + 1)
    return size <= policy.max_newton_coefficients and n_elements <= policy.max_newton_elements


def _is_wide_binary(request: Request) -> bool:
    """Whether dual passes over dense rows take less time than a Gram matrix and its steps.

    Several classes have a joint loss instead. Folds share a Gram matrix of the columns, but not of
    the rows. A search takes 0.3 to 0.7 times as long with dual passes then (digit5, hiva and
    news20_minilm, 100 to 1,500 rows); of 400 rows of digit5, 0.13 times with overconfidence 0 alone
    and 1.6 times with 1 alone.
    """
    design, policy = request.design, request.policy
    if request.is_search:
        is_wide = design.n_rows < design.n_columns
    else:
        is_one_sided = max(map(_overconfidence, request.losses)) == 0.0
        max_rows = policy.max_dual_rows_per_column * design.n_columns
        is_wide = is_one_sided and design.n_rows <= max_rows
    has_penalty = request.least_alpha * design.n_rows >= policy.min_dual_penalty
    is_small = design.n_rows * design.n_columns <= policy.max_dense_dual_elements
    return request.n_problems == 1 and is_wide and has_penalty and is_small


def _default(request: Request, shape: str) -> Plan:
    design, policy = request.design, request.policy
    if design.n_columns <= policy.max_gram_columns:
        return Plan("gram", f"{shape}: the Gram matrix saves more sweeps than it costs")
    if design.n_rows < design.n_columns and design.n_rows <= policy.max_gram_rows:
        return Plan("gram", f"{shape}: the Gram matrix of the rows is small")
    return Plan("lbfgs", f"{shape}: a Gram matrix is too large")


def plan_gram(problem: Problem) -> GramPlan:
    """Plan how the solver "gram" solves a problem.

    With an overconfidence near zero few rows have curvature, and the Gram matrix majorises the
    Hessian poorly. The tables of `tests/test_plan.py` list the cases.
    """
    policy, design = problem.policy, problem.prepared.design
    n_columns, n_tasks = design.n_columns, len(problem.tasks)
    if n_tasks >= policy.lbfgs.many_tasks:
        return _plan_many(problem)
    is_overdetermined = design.n_rows >= policy.overdetermined_ratio * n_columns
    overconfidences = [_overconfidence(loss) for loss in problem.tasks.losses]
    is_curved = min(overconfidences) >= policy.min_overconfidence and all(
        _relative_scale(loss) >= policy.min_relative_scale for loss in problem.tasks.losses
    )
    limit = policy.max_lbfgs_steps_overdetermined if is_overdetermined else policy.max_lbfgs_steps
    per_column = min(int(policy.max_lbfgs_steps_per_column * n_columns), problem.max_iter - limit)
    is_shared = n_tasks > 1 and not (is_overdetermined or is_curved)
    trusted = max(policy.trusted_steps, ceil(policy.trusted_steps_per_column * n_columns))
    fits_subsample = all(
        (n_tasks == 1, max(overconfidences) == 0.0, can_subsample(problem, policy))
    )
    planned = GramPlan(
        uses_working_set=fits_subsample and _has_dual(problem),
        fits_subsample=fits_subsample,
        max_steps=min(problem.max_iter, max(limit, per_column)),
        min_steps=policy.min_lbfgs_steps if is_overdetermined and not is_curved else 0,
        tol=problem.tol * (policy.shared_tol if is_shared else 1.0),
        trusted_steps=trusted if is_curved else 0,
        trusts_estimate=is_overdetermined,
        gap_weight=policy.gap_weight_overdetermined if is_overdetermined else 1.0,
    )
    return _with_sampled_hessian(planned, problem)


def _with_sampled_hessian(planned: GramPlan, problem: Problem) -> GramPlan:
    """Return the plan with the Hessian of a subsample, where there is one.

    The estimates of the gap then need no rate of decrease, which takes more steps.
    """
    if not has_sampled_hessian(problem):
        return planned
    n_confirmations = problem.policy.sampled_hessian.n_confirmations
    return replace(planned, min_steps=0, n_confirmations=n_confirmations, samples_hessian=True)


def _plan_many(problem: Problem) -> GramPlan:
    """Plan L-BFGS alone: a Newton step of each of many tasks takes longer than all shared steps.

    Five estimates of the gap in a row must meet the tolerance, as for joint tasks.
    """
    return GramPlan(
        uses_working_set=False,
        fits_subsample=False,
        max_steps=problem.max_iter,
        min_steps=0,
        tol=problem.tol,
        trusted_steps=0,
        trusts_estimate=True,
        gap_weight=1.0,
        n_confirmations=5,
    )


def _has_dual(problem: Problem) -> bool:
    """Whether dual passes for one task are possible and converge fast, without its start.

    The penalty is compared in the unit "standardised": Σ_j 1/u_j is then one. Passes begin at zero.
    Another start saves more than they do, unless columns are many.
    """
    prepared, loss = problem.prepared, problem.tasks.losses[0]
    unit = prepared.unit[0, prepared.standardisation.varies]
    least = problem.policy.min_dual_penalty * np.sum(1.0 / unit) if np.all(unit > 0) else np.inf
    is_fast = problem.alphas[0] * prepared.design.n_rows >= least
    is_possible = (
        hasattr(loss, "conjugate") and getattr(loss, "kernel_parameters", None) is not None
    )
    n_columns, least_columns = len(unit), problem.policy.working_set.min_columns_from_start
    needs_no_start = n_columns >= least_columns or not any(map(np.any, problem.start))
    return (
        is_fast and is_possible and needs_no_start and "dual_pass" in prepared.design.capabilities
    )


def can_subsample(source: Problem | Request, policy: Policy) -> bool:
    """Whether a subsample of the rows, dense and in memory, is informative about all of them."""
    design = source.prepared.design if isinstance(source, Problem) else source.design
    min_rows = policy.start_sampling * policy.min_start_rows_per_column * design.n_columns
    is_dense = "row_access" in design.capabilities and not design.is_sparse
    return is_dense and design.n_rows >= min_rows


def has_sampled_hessian(source: Problem | Request) -> bool:
    """Whether the Hessian of a subsample is cheap next to the passes that it saves."""
    if isinstance(source, Problem):
        design, losses, n_problems = source.prepared.design, source.tasks.losses, 1
    else:
        design, losses, n_problems = source.design, source.losses, source.n_problems
    policy = source.policy.sampled_hessian
    n_needed = policy.sampling_ratio * policy.rows_per_column * design.n_columns
    if "subset" not in design.capabilities or isinstance(design, ArrayDesign):
        return False
    is_large = design.n_columns >= policy.min_columns
    if design.is_sparse:
        is_large = design.n_stored >= policy.min_sparse_elements
    is_single = len(losses) == n_problems == 1
    return is_single and is_large and design.n_rows >= n_needed and hasattr(losses[0], "curvature")


def _relative_scale(loss: object) -> float:
    """Return the scale of a margin loss in units of its level; infinite for other losses."""
    return loss.scale / loss.margin if isinstance(loss, MarginLoss) else np.inf


def _overconfidence(loss: object) -> float:
    """Return the weight of the curvature above the level; losses without a level have one."""
    return loss.overconfidence if isinstance(loss, MarginLoss) else 1.0
