"""L-BFGS for joint tasks whose rows are a float32 copy: steps in compiled code.

The kernel (`_kernels/lbfgs.c`) takes the steps of `_quasi_newton.minimise`, each task with its own
correction pairs. A task whose passes are short also sweeps its rows there, so that Python runs
once in some hundred passes; tasks are divided among the threads. Tasks that differ in their penalty
only form a chain, from the largest penalty on: a task whose start is zero begins at the minimiser
of the next larger penalty. The passes of larger tasks are shared and divided among the threads, as
those of `minimise` are.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginpursuit import _kernels
from marginpursuit._validation import FloatArray
from marginpursuit.design import MemoryDesign, can_sweep_tiles
from marginpursuit.solvers._problem import (
    Problem,
    Progress,
    Solution,
    Status,
    penalty_chains,
)
from marginpursuit.solvers._quasi_newton import minimise
from marginpursuit.solvers.policy import LbfgsPolicy
from marginpursuit.tasks import JointTasks

#: What the kernel returns for a task, by number; it returns 0 while the task is running.
_STATUSES = (Status.MAX_ITER, Status.CONVERGED, Status.ROUNDING, Status.MAX_ITER)


@dataclass(frozen=True, slots=True)
class JointTask:
    """What the kernel reads of a joint task."""

    loss: FloatArray  # (1, 4), parameters of the margin loss
    temperature: float
    n_classes: int
    codes: NDArray[np.intp]
    weights: FloatArray  # (n_rows,)
    spans: NDArray[np.intp]  # (n_spans, 2), ranges of the rows that the task uses
    penalty: FloatArray  # (n_columns,), infinite where the coefficients are zero
    has_intercept: bool
    preconditioner: FloatArray  # the inverse matrix for each class, or for all together
    is_scaled: bool  # whether the last correction pair scales the preconditioner
    start: FloatArray
    tol: float
    least: float  # the value below which suboptimality is not relative to the value
    n_confirmations: int
    max_iter: int
    policy: LbfgsPolicy


def minimise_joint(
    problem: Problem,
    *,
    n_confirmations: int = 1,
    max_iter: int | None = None,
    tol: FloatArray | float | None = None,
) -> Solution:
    """Minimise the objective of every joint task; the parameters are those of `minimise`.

    Rows that are no float32 copy, many columns, and more classes than the kernel takes, are left
    to `minimise`.
    """
    max_iter = problem.max_iter if max_iter is None else max_iter
    tol = problem.tol if tol is None else tol
    tasks, design = problem.tasks, problem.prepared.design
    is_small = tasks.columns_per_task <= _kernels.TILE_TASKS
    is_small &= design.n_columns <= problem.policy.max_compiled_columns
    if not (can_sweep_tiles(design, tasks) and is_small):
        return minimise(problem, n_confirmations=n_confirmations, max_iter=max_iter, tol=tol)
    assert isinstance(design, MemoryDesign)
    assert design.padded is not None
    tols = np.broadcast_to(np.asarray(tol, dtype=np.float64), len(tasks))
    posed = _posed(problem, tols, n_confirmations, max_iter)
    solves = [_kernels.JointLbfgs(design.padded, task) for task in posed]
    before = design.n_passes
    n_products = design.padded.size * tasks.columns_per_task
    if n_products <= problem.policy.max_compiled_products:
        _run(problem, solves, n_products)
    else:
        _run_shared(problem, solves)
    n_iter = [solve.n_iter for solve in solves]
    design.n_passes = before + 1 + max(n_iter)
    points = np.stack([solve.point for solve in solves])
    values, gaps, bounds = (
        np.array([getattr(solve, name) for solve in solves]) for name in ("value", "gap", "bound")
    )
    ends = {_STATUSES[solve.status] for solve in solves}
    order = (Status.MAX_ITER, Status.ROUNDING, Status.CONVERGED)
    status = next(status for status in order if status in ends)
    is_proven = bool(np.all(bounds <= tols))
    history = _history(solves, before)
    return Solution(
        problem.split(points), values, gaps, status, max(n_iter), history, is_proven=is_proven
    )


def _posed(
    problem: Problem, tols: FloatArray, n_confirmations: int, max_iter: int
) -> list[JointTask]:
    """Return what the kernel reads of each task."""
    prepared, tasks, policy = problem.prepared, problem.tasks, problem.policy.lbfgs
    assert isinstance(tasks, JointTasks)
    unit = np.where(prepared.standardisation.varies, prepared.unit, np.inf)
    preconditioners = _preconditioners(problem)
    points, least = problem.join(*problem.start), problem.relative_to(np.zeros(len(tasks)))
    edges = np.array([0, len(tasks.codes)]) if tasks.ranges is None else tasks.ranges.edges
    spans = np.column_stack([edges[:-1], edges[1:]]).astype(np.intp)
    posed = []
    for k, joint in enumerate(tasks.losses):
        own_unit = unit[tasks.fold[k]]
        with np.errstate(invalid="ignore"):  # α = 0 times an infinite unit
            penalty = np.where(np.isinf(own_unit), np.inf, problem.alphas[k] * own_unit)
        posed.append(
            JointTask(
                np.array([joint.loss.kernel_parameters], dtype=np.float64),
                joint.temperature,
                tasks.n_classes,
                tasks.codes,
                tasks.weights[tasks.fold[k]],
                spans if tasks.ranges is None else spans[tasks.ranges.is_used[tasks.fold[k]]],
                penalty,
                prepared.fit_intercept,
                preconditioners[k],
                problem.inverse_hessian is None,
                points[k],
                float(tols[k]),
                float(least[k]),
                n_confirmations,
                max_iter,
                policy,
            )
        )
    return posed


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

    Where someone listens, the solves of all tasks advance by one sweep at a time.
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

    if problem.report is None and problem.keep is None:
        list(threads.map(run, penalty_chains(problem), dynamic=True))
        return
    running, iteration = solves, 0
    while running:
        running = [solve for solve in running if not solve.run(1)]
        _tell(problem, solves, iteration)
        iteration += 1


def _run_shared(problem: Problem, solves: list[Any]) -> None:
    """Run all solves, whose trial points share passes over the data."""
    running, iteration = np.arange(len(solves)), 0
    while len(running):
        trial = np.stack([solves[k].trial for k in running])
        evaluated = zip(*problem.value_and_gradient(trial, running), strict=True)
        goes_on = [
            solves[k].advance(value, gradient) == 0
            for k, (value, gradient) in zip(running, evaluated, strict=True)
        ]
        running = running[goes_on]
        _tell(problem, solves, iteration)
        iteration += 1


def _tell(problem: Problem, solves: list[Any], iteration: int) -> None:
    """Report an iteration, where someone listens."""
    if problem.report is None and problem.keep is None:
        return
    value, gap = np.mean([x.value for x in solves]), max(x.gap for x in solves)
    n_passes = problem.prepared.design.n_passes
    points = np.stack([solve.point for solve in solves]) if iteration else None
    problem.tell(Progress(iteration, n_passes, float(value), float(gap)), points)


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
