"""Which solver runs: a plan that can be printed and tested."""

from dataclasses import dataclass
from math import ceil

from marginpursuit.design import MemoryDesign
from marginpursuit.solvers._problem import Request
from marginpursuit.solvers.gram_plan import overconfidence_of, relative_scale
from marginpursuit.solvers.registry import SOLVERS
from marginpursuit.solvers.sampling import has_uncorrelated_columns


@dataclass(frozen=True, slots=True)
class Plan:
    """The solver for a request and why."""

    solver: str  # a name in `SOLVERS`
    reason: str

    def __str__(self) -> str:
        return f"solver {self.solver}: {self.reason}"


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
        penalty; in a single fit, of at least 0.01/n_rows in
        the unit "common" or "row"
        folds of other sparse wide rows, few binary problems   lbfgs
        a single fit of one binary problem to more than 2**18  lbfgs
        elements of dense rows in memory, with at least 32
        rows per column and uncorrelated columns
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
    if solver != "auto":
        reason = SOLVERS[solver].supports(request)
        if reason is not None:
            raise ValueError(f"solver={solver!r} cannot be used here: {reason}")
        return Plan(solver, "as requested")
    # ASCII: `verbose` prints the plan, also where standard output has no UTF-8.
    shape = f"{request.design.n_rows} rows x {request.design.n_columns} columns"
    return (_sparse_plan if request.design.is_sparse else _dense_plan)(request, shape)


def _dense_plan(request: Request, shape: str) -> Plan:
    if _is_uncorrelated_binary(request):
        return Plan("lbfgs", f"{shape}: the columns are uncorrelated")
    if _is_small(request) and SOLVERS["newton"].supports(request) is None:
        return Plan("newton", f"{shape}: each task is one compiled call")
    if _is_wide_binary(request) and SOLVERS["dual"].supports(request) is None:
        return Plan("dual", f"{shape}: dual passes cost less than a Gram matrix")
    return _default(request, shape)


def _sparse_plan(request: Request, shape: str) -> Plan:
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
        return Plan(
            "lbfgs",
            f"folds of sparse wide rows, {shape}: too few problems to pay for the n_rows x n_rows "
            "matrix of each fold",
        )
    return default


def steps_before_gram(request: Request, solver: str) -> int | None:
    """Return after how many iterations of a solver "gram" takes over; None where it does not."""
    policy, design = request.policy, request.design
    size = min(design.n_rows, design.n_columns)
    if solver not in ("lbfgs", "dual") or size > policy.max_hessian_size:
        return None
    if SOLVERS["gram"].supports(request) is not None:
        return None
    return max(policy.max_first_steps, ceil(policy.max_first_steps_per_column * size))


def _dual_is_fast(request: Request) -> bool:
    """Whether dual passes converge fast: for fold fits, to a loose tolerance, they always do."""
    is_relative = request.alpha_unit in ("common", "row")
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


def _is_uncorrelated_binary(request: Request) -> bool:
    """Whether L-BFGS with a diagonal preconditioner takes few passes, and the penalty proves it."""
    design, policy = request.design, request.policy
    is_single = request.n_problems == 1 and not (request.is_search or request.has_folds)
    n_rows = policy.uncorrelated.min_rows_per_column * design.n_columns
    is_large = design.n_rows >= n_rows and design.n_stored > policy.max_small_elements
    if not (is_single and is_large and isinstance(design, MemoryDesign)):
        return False
    has_penalty = request.least_alpha * design.n_rows >= policy.min_dual_penalty
    is_relative = request.alpha_unit in ("standardised", "inflated")
    is_wide = all(relative_scale(loss) >= policy.min_relative_scale for loss in request.losses)
    return has_penalty and is_relative and is_wide and has_uncorrelated_columns(request)


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
        is_one_sided = max(map(overconfidence_of, request.losses)) == 0.0
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
