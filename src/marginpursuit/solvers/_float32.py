"""Many tasks, and joint tasks, on dense rows: in float32, verified in float64 where needed.

The products of a pass take half the time in float32. The rounding changes the gradient g by some δ,
and the suboptimality, measured by the preconditioner P, by about δᵀP⁻¹δ/2: a square, which is
far below the tolerance unless the penalty is negligible.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from marginpursuit.design import Standardisation
from marginpursuit.solvers._problem import Problem, Solution, allows_float32
from marginpursuit.tasks import JointTasks, RowRanges


def solve_in_float32(problem: Problem, solve: Callable[[Problem], Solution]) -> Solution:
    """Solve on a float32 copy of the rows, and on the rows themselves where that differs."""
    copy = _copied(problem)
    if copy is None:
        return solve(problem)
    first = solve(copy)
    is_accepted = bool(np.all(first.gap <= problem.tol))
    if is_accepted and not _is_certain(problem):
        points, tasks = problem.join(*first.linear), np.arange(len(problem.tasks))
        value, gradients = problem.value_and_gradient(points, tasks)
        error = gradients - copy.value_and_gradient(points, tasks)[1]
        rounding = 0.5 * np.einsum("kj,kj->k", error, problem.precondition(error, tasks))
        limit = problem.policy.max_float32_error * problem.tol * problem.relative_to(value)
        first, is_accepted = replace(first, value=value), bool(np.all(rounding <= limit))
    problem.prepared.design.n_passes += copy.prepared.design.n_passes
    if is_accepted:
        return replace(first, is_proven=False)
    return solve(replace(problem, start=first.linear))


def _is_certain(problem: Problem) -> bool:
    """Whether the rounding of float32 is far below the tolerance, by the penalty."""
    policy = problem.policy
    is_loose = problem.tol >= policy.min_unverified_tol
    return is_loose and _least_penalty(problem) >= policy.min_float32_penalty


def _copied(problem: Problem) -> Problem | None:
    """Return the problem on a float32 copy of the rows; None where float64 is needed or faster."""
    design, policy = problem.prepared.design, problem.policy
    low, high = policy.float32_margins
    n_elements, is_joint = design.n_rows * design.n_columns, isinstance(problem.tasks, JointTasks)
    is_large = allows_float32(policy, n_elements, problem.tol, is_joint=is_joint)
    in_range = all(low <= getattr(loss, "margin", 0.0) <= high for loss in problem.tasks.losses)
    is_fast = problem.tasks.has_compiled_losses or is_joint
    if not (is_large and in_range and is_curved(problem) and is_fast):
        return None
    return float32_problem(problem, design.copied_order(problem.prepared.standardisation))


def is_curved(problem: Problem) -> bool:
    """Whether rows or penalty determine the minimiser in spite of the rounding of float32."""
    design, policy = problem.prepared.design, problem.policy
    has_many_rows = design.n_rows >= policy.overdetermined_ratio * design.n_columns
    return has_many_rows or _least_penalty(problem) >= policy.min_float32_penalty


def _least_penalty(problem: Problem) -> float:
    """Return the least penalty of a standardised column that varies."""
    varies = problem.prepared.standardisation.varies
    return float(np.min(problem.penalty[:, varies], initial=np.inf))


def float32_problem(
    problem: Problem, order: NDArray[np.intp], ranges: RowRanges | None = None
) -> Problem | None:
    """Return the problem on a float32 copy of the standardised rows in this order, if it can be."""
    prepared, tasks = problem.prepared, problem.tasks
    in_memory = "row_access" in prepared.design.capabilities and not prepared.design.is_sparse
    copy = prepared.design.float32_copy(order, prepared.standardisation) if in_memory else None
    if copy is None:
        return None
    if is_curved(problem):
        prepared.preconditioner.compute_from(copy, order)
    own_tasks = replace(
        tasks,
        codes=np.ascontiguousarray(tasks.codes[..., order]),
        weights=np.ascontiguousarray(tasks.weights[:, order]),
        ranges=ranges,
    )
    identity = Standardisation.identity(copy.n_columns)
    own = replace(prepared, design=copy, standardisation=identity, order=order)
    return replace(problem, prepared=own, tasks=own_tasks)
