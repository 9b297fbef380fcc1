"""L-BFGS with steps in compiled code: joint tasks whose rows are a float32 copy, few other tasks.

The kernel (`_kernels/lbfgs.c`) takes the steps of `_numpy_lbfgs.minimise`, each task with its own
correction pairs. A joint task whose passes are short also sweeps its rows there, so that Python
runs once in some hundred passes; tasks are divided among the threads. Tasks that differ in their
penalty only form a chain, from the largest penalty on: a task whose start is zero begins at the
minimiser of the next larger penalty. The passes of larger tasks, and of tasks that are not joint,
are shared and divided among the threads, as those of `minimise` are.
"""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginpursuit import _kernels
from marginpursuit._validation import FloatArray
from marginpursuit.design import can_sweep_tiles
from marginpursuit.solvers._numpy_lbfgs import Renewal, minimise
from marginpursuit.solvers._problem import (
    Problem,
    Progress,
    Solution,
    Status,
    penalty_chains,
)
from marginpursuit.solvers.policy import LbfgsPolicy
from marginpursuit.tasks import JointTasks

#: What the kernel returns for a task, by number; it returns 0 while the task is running.
_STATUSES = (Status.MAX_ITER, Status.CONVERGED, Status.ROUNDING, Status.MAX_ITER)


@dataclass(frozen=True, slots=True)
class LbfgsTask:
    """What the kernel reads of a task."""

    loss: FloatArray  # (1, 4), parameters of the margin loss; of others the level counts
    n_classes: int  # one unless the task is joint
    penalty: FloatArray  # (n_columns,), infinite where the coefficients are zero
    has_intercept: bool
    preconditioner: FloatArray  # the inverse matrix for each class, or for all together
    is_scaled: bool  # whether the last correction pair scales the preconditioner
    start: FloatArray
    tol: float
    objective_floor: float  # suboptimality is relative to max(objective, this)
    n_confirmations: int
    min_iter: int
    max_iter: int
    policy: LbfgsPolicy
    # Of a joint task whose rows the kernel sweeps:
    temperature: float = 1.0
    codes: NDArray[np.intp] | None = None
    weights: FloatArray | None = None  # (n_rows,)
    spans: NDArray[np.intp] | None = None  # (n_spans, 2), ranges of the rows that the task uses


def lbfgs_for(problem: Problem) -> Callable[..., Solution]:
    """Return `minimise_compiled` where the kernel supports the tasks, and `minimise` otherwise."""
    return minimise_compiled if _is_supported(problem) else minimise


def minimise_compiled(
    problem: Problem,
    *,
    n_confirmations: int = 1,
    min_iter: int = 0,
    max_iter: int | None = None,
    tol: FloatArray | float | None = None,
    renewal: Renewal | None = None,
) -> Solution:
    """Minimise the objective of every task; the parameters are those of `minimise`."""
    max_iter = problem.max_iter if max_iter is None else max_iter
    tol = problem.tol if tol is None else tol
    tasks, design = problem.tasks, problem.prepared.design
    tols = np.broadcast_to(np.asarray(tol, dtype=np.float64), len(tasks))
    rows = design.padded if isinstance(tasks, JointTasks) else None  # type: ignore[attr-defined]
    problem.prepared.preconditioner.compute()
    posed = _posed(problem, tols, n_confirmations, min_iter, max_iter)
    solves = [_kernels.Lbfgs(rows, task) for task in posed]
    before = design.n_passes
    n_products = 0 if rows is None else rows.size * tasks.columns_per_task
    is_short = rows is not None and n_products <= problem.policy.max_compiled_products
    if is_short and renewal is None:
        _run(problem, solves, n_products)
        return _solution(problem, solves, tols, before)
    running, iteration = np.arange(len(solves)), 0
    while len(running):  # the trial points of all tasks share passes over the data
        trial = np.stack([solves[k].trial for k in running])
        advances = [solves[k].advance for k in running]
        values, gradients = problem.value_and_gradient(trial, running)
        statuses = design.threads.map(operator.call, advances, values.tolist(), list(gradients))
        running = running[np.fromiter(statuses, dtype=int) == 0]
        _tell(problem, solves, iteration)
        iteration += 1
        if renewal is not None and len(running):
            inverse = renewal(solves[0].n_iter, problem.split(solves[0].point[np.newaxis]))
            if inverse is not None:
                solves[0].renew(np.ascontiguousarray(inverse))
    return _solution(problem, solves, tols, before)


def _is_supported(problem: Problem) -> bool:
    """Whether the kernel takes the steps, and faster than NumPy does for all tasks together."""
    tasks, policy, prepared = problem.tasks, problem.policy, problem.prepared
    if _kernels.Lbfgs is None or prepared.design.n_columns > policy.max_compiled_columns:
        return False
    if isinstance(tasks, JointTasks):
        is_small = tasks.columns_per_task <= _kernels.TILE_TASKS
        return is_small and can_sweep_tiles(prepared.design, tasks)
    is_narrow = 1 <= prepared.design.n_columns <= policy.max_compiled_binary_columns
    has_few = len(tasks) <= policy.max_compiled_binary_tasks
    return is_narrow and has_few and prepared.preconditioner.has_inverse


def _posed(
    problem: Problem, tols: FloatArray, n_confirmations: int, min_iter: int, max_iter: int
) -> list[LbfgsTask]:
    """Return what the kernel reads of each task."""
    prepared, tasks = problem.prepared, problem.tasks
    preconditioners = _preconditioners(problem)
    points, objective_floors = problem.join(*problem.start), problem.relative_to(0.0)
    joint = _joint_parts(tasks) if isinstance(tasks, JointTasks) else [{}] * len(tasks)
    posed = []
    for k in range(len(tasks)):
        posed.append(
            LbfgsTask(
                **{"loss": np.array([[0.0, problem.levels[k], 1.0, 0.0]])} | joint[k],
                n_classes=tasks.columns_per_task,
                penalty=problem.compiled_penalty[k],
                has_intercept=prepared.fit_intercept,
                preconditioner=preconditioners[k],
                is_scaled=problem.inverse_hessian is None,
                start=points[k],
                tol=float(tols[k]),
                objective_floor=float(objective_floors[k]),
                n_confirmations=n_confirmations,
                min_iter=min_iter,
                max_iter=max_iter,
                policy=problem.policy.lbfgs,
            )
        )
    return posed


def _joint_parts(tasks: JointTasks) -> list[dict[str, Any]]:
    """Return what the sweeps of each joint task read."""
    edges = np.array([0, len(tasks.codes)]) if tasks.ranges is None else tasks.ranges.edges
    spans = np.column_stack([edges[:-1], edges[1:]]).astype(np.intp)
    return [
        {
            "loss": np.array([joint.loss.kernel_parameters], dtype=np.float64),
            "temperature": joint.temperature,
            "codes": tasks.codes,
            "weights": tasks.weights[fold],
            "spans": spans if tasks.ranges is None else spans[tasks.ranges.is_used[fold]],
        }
        for joint, fold in zip(tasks.losses, tasks.fold, strict=True)
    ]


def _preconditioners(problem: Problem) -> list[FloatArray]:
    """Return the inverse matrix by which each task is preconditioned, as `Problem.precondition`."""
    if problem.inverse_hessian is not None:
        return [np.ascontiguousarray(problem.inverse_hessian)] * len(problem.tasks)
    prepared, curvature = problem.prepared, problem.tasks.curvature()
    ratios = problem.alphas / curvature
    distinct = np.unique(ratios)
    found = prepared.design.threads.map(prepared.preconditioner.inverse, distinct.tolist())
    inverse = dict(zip(distinct.tolist(), found, strict=True))
    scaled = {
        pair: np.ascontiguousarray(inverse[pair[0]] / pair[1])
        for pair in set(zip(ratios.tolist(), curvature.tolist(), strict=True))
    }
    return [scaled[pair] for pair in zip(ratios.tolist(), curvature.tolist(), strict=True)]


def _run(problem: Problem, solves: list[Any], n_products: int) -> None:
    """Run every solve to its end, chain by chain, in as many threads as there are.

    If progress is reported, the solves of all tasks advance by one sweep at a time.
    """
    threads = problem.prepared.design.threads
    n_sweeps = max(1, problem.policy.lbfgs_call_products // n_products)

    def run(chain: list[int]) -> None:
        before = np.zeros(1)
        for solve in (solves[k] for k in chain):
            if not solve.trial.any():
                solve.trial[:] = before
            while not solve.run(n_sweeps):
                pass
            before = solve.point

    if problem.report is None and problem.on_iterate is None:
        list(threads.map(run, penalty_chains(problem)))
        return
    running, iteration = solves, 0
    while running:
        running = [solve for solve in running if not solve.run(1)]
        _tell(problem, solves, iteration)
        iteration += 1


def _solution(problem: Problem, solves: list[Any], tols: FloatArray, n_passes: int) -> Solution:
    """Return the end of all solves; `n_passes` were made before them."""
    n_iter = max(solve.n_iter for solve in solves)
    problem.prepared.design.n_passes = n_passes + 1 + n_iter
    points = np.stack([solve.point for solve in solves])
    values, gaps, bounds = (
        np.array([getattr(solve, name) for solve in solves]) for name in ("value", "gap", "bound")
    )
    is_proven, history = bool(np.all(bounds <= tols)), _history(solves, n_passes)
    status = Status.worst(_STATUSES[solve.status] for solve in solves)
    return Solution(
        problem.split(points), values, gaps, status, n_iter, history, is_proven=is_proven
    )


def _tell(problem: Problem, solves: list[Any], iteration: int) -> None:
    """Report an iteration, if progress is reported."""
    if problem.report is None and problem.on_iterate is None:
        return
    value, gap = np.mean([x.value for x in solves]), max(x.gap for x in solves)
    n_passes = problem.prepared.design.n_passes
    points = np.stack([solve.point for solve in solves]) if iteration else None
    problem.notify(Progress(iteration, n_passes, float(value), float(gap)), points)


def _history(solves: list[Any], n_passes: int) -> tuple[Progress, ...]:
    """Return the progress of all tasks; a task that has ended keeps its last value and gap."""
    n_iter = max(solve.n_iter for solve in solves)
    values, gaps = np.empty((2, len(solves), n_iter + 1))
    for k, solve in enumerate(solves):
        for all_tasks, own in ((values, solve.values), (gaps, solve.gaps)):
            all_tasks[k, : solve.n_iter + 1] = own[: solve.n_iter + 1]
            all_tasks[k, solve.n_iter + 1 :] = own[solve.n_iter]
    pairs = zip(values.mean(axis=0).tolist(), gaps.max(axis=0).tolist(), strict=True)
    return tuple(Progress(i, n_passes + 1 + i, *pair) for i, pair in enumerate(pairs))
