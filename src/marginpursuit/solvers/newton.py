"""The solver for small tables: Newton's method, each task in one compiled call.

On few rows the time of a fit is that of the calls of the interpreter. The standardised rows, sparse
ones too, are copied once, and the kernel `newton` takes a task from its start to its minimiser:
gradient, Hessian of the rows with curvature, Cholesky factor and line search. Tasks are solved one
after the other, in as many threads as there are. Those that differ in their penalty only form a
chain, from the largest penalty on: each continues from the minimiser of the next larger penalty, by
the Hessian there, if that is close; otherwise it starts there or at its own start, whichever has
the smaller objective. The fits of a search of 15,000 x 10 take a third of the passes. Chains that
differ in their scale form a *path*, from the largest scale on: the start of a task is the minimiser
of the next larger scale at the same penalty.

A task that the kernel does not finish, because its Hessian is singular to working precision or the
line search stalls far from the minimum, continues in the solver "gram".
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from marginpursuit import _kernels
from marginpursuit._validation import FloatArray
from marginpursuit.design import Design, MemoryDesign, Standardisation
from marginpursuit.losses import JointLoss
from marginpursuit.solvers._numpy_lbfgs import minimise
from marginpursuit.solvers._problem import (
    Prepared,
    Problem,
    Progress,
    Request,
    Solution,
    Status,
    mean_penalty_weights,
    mean_weights,
    request_penalty_weights,
)
from marginpursuit.solvers.gram import GramSolver
from marginpursuit.solvers.preconditioners import GramPreconditioner

__all__ = ["NewtonSolver"]

#: What the kernel returns for a task, by number.
_STATUSES = (Status.CONVERGED, Status.ROUNDING, *(Status.MAX_ITER,) * 3)


@dataclass(frozen=True, slots=True)
class NewtonTasks:
    """What the kernel reads of a problem; arrays have one row or entry per task."""

    losses: FloatArray  # (n_tasks, 4), parameters of the margin losses
    temperature: FloatArray  # of joint losses, otherwise zero
    penalty: FloatArray  # (n_tasks, n_columns), infinite where the coefficient is zero
    code: NDArray[np.intp]  # the row of `codes`
    positive: NDArray[np.intp]
    fold: NDArray[np.intp]
    task_at_larger_penalty: NDArray[np.intp]  # whose minimiser is another start, or -1
    task_at_larger_scale: NDArray[np.intp]  # whose minimiser is the start, or -1 for the given one
    tol: FloatArray
    objective_floor: FloatArray  # suboptimality is relative to max(objective, this)
    codes: NDArray[np.intp]  # (n_codes, n_rows)
    weights: FloatArray  # (n_folds, n_rows)
    n_scores: int
    n_columns: int
    has_intercept: bool
    max_iter: int
    certain: float  # multiple of `tol` at which the Newton decrement alone is accepted
    is_strict: bool  # whether the last Hessian must be that of the loss itself


class NewtonSolver:
    """Newton's method in one compiled call per task."""

    name: ClassVar[str] = "newton"
    supports_joint: ClassVar[bool] = True
    depends_on_units: ClassVar[bool] = False
    warm_starts: ClassVar[bool] = True
    solves_paths: ClassVar[bool] = True
    shares_passes: ClassVar[bool] = False
    bounds_gap: ClassVar[bool] = False
    merges_columns: ClassVar[bool] = False
    reads_factored_rows: ClassVar[bool] = False
    loose_stopping: ClassVar[tuple[int, float]] = (12, 1e-2)

    def supports(self, request: Request) -> str | None:
        """Return None, or why the request is not supported."""
        design = request.design
        if _kernels.newton is None:
            return "it needs the compiled kernels, which are not installed"
        if not isinstance(design, MemoryDesign):
            return "it needs rows in memory"
        n_elements = design.n_rows * (design.n_columns + 1)
        if design.is_sparse and n_elements > request.policy.max_newton_elements:
            return "it needs dense rows, or sparse ones whose dense copy is small"
        for loss in request.losses:
            if getattr(_margin_loss(loss), "kernel_parameters", None) is None:
                return f"it needs a compiled loss; {type(loss).__name__} has none"
        return request.lacks("curvature_bound")

    def prepare(self, request: Request) -> Prepared:
        """Standardise the columns, and copy them padded with zeros."""
        design = request.design
        weights, fold_ratio = mean_weights(request)
        standardisation = design.standardisation(weights, centred=request.fit_intercept)
        penalty_weights = request_penalty_weights(request, standardisation)
        preconditioner = GramPreconditioner(  # of tasks that continue in "gram"
            design=design,
            standardisation=standardisation,
            weights=weights,
            penalty_weights=mean_penalty_weights(penalty_weights),
            fit_intercept=request.fit_intercept,
            fold_ratio=fold_ratio,
            policy=request.policy,
            allows_hessian=False,
        )
        return Prepared(
            design=design,
            standardisation=standardisation,
            fit_intercept=request.fit_intercept,
            penalty_weights=penalty_weights,
            preconditioner=preconditioner,
            transform=standardisation,
            padded_rows=_padded(design, standardisation, constant=request.fit_intercept),
        )

    def separates_folds(self, request: Request) -> bool:
        """Return False: folds share the rows."""
        return False

    def solve_folds(self, problem: Problem, tol: FloatArray) -> Solution:
        """Minimise the objective of every task; the Newton decrement decides."""
        certain = problem.policy.certain_fold_decrement
        first = _newton(problem, tol, certain=certain, is_strict=False)
        n_confirmations = problem.policy.lbfgs.fold_confirmations

        def solve(part: Problem, tasks: NDArray[np.intp]) -> Solution:
            return minimise(part, n_confirmations=n_confirmations, tol=tol[tasks])

        return first.finished_by(solve, problem)

    def solve(self, problem: Problem) -> Solution:
        """Minimise the objective of every task, to a bound or a decrement far below `tol`."""
        tol = np.full(len(problem.tasks), float(problem.tol))
        certain = problem.policy.certain_decrement
        first = _newton(problem, tol, certain=certain, is_strict=True)
        return first.finished_by(lambda part, _: GramSolver().solve(part), problem)


class KernelSolution(NamedTuple):
    """What the kernel returns for all tasks, some of which it may not have finished."""

    solution: Solution
    n_iter: NDArray[np.intp]  # of each task
    is_finished: NDArray[np.bool_]

    def finished_by(
        self, solve: Callable[[Problem, NDArray[np.intp]], Solution], problem: Problem
    ) -> Solution:
        """Continue the unfinished tasks that have iterations left.

        `solve` is given their problem, which starts at the end of this solution, and their numbers.
        Its progress is reported as that of all tasks; `on_iterate`, which is given the coefficients
        of all tasks, is called only if all continue.
        """
        first, has_left = self.solution, self.n_iter < problem.max_iter
        rest = np.flatnonzero(~self.is_finished & has_left)
        if not len(rest):
            return first
        n_before, report = int(self.n_iter[rest].max()), problem.report
        ended = np.delete(first.value, rest)

        def of_all(step: Progress) -> Progress:
            value = (ended.sum() + len(rest) * step.value) / len(first.value)
            iteration = max(first.n_iter, n_before + step.iteration)
            return replace(step, iteration=iteration, value=float(value))

        points = problem.join(*first.linear)
        part = replace(
            problem,
            tasks=problem.tasks.take(rest),
            alphas=problem.alphas[rest],
            max_iter=problem.max_iter - n_before,
            report=None if report is None else lambda step: report(of_all(step)),
            on_iterate=None if len(ended) else problem.on_iterate,
        )
        second = solve(replace(part, start=part.split(points[rest])), rest)
        points[rest] = problem.join(*second.linear)
        value, gap = first.value.copy(), first.gap.copy()
        value[rest], gap[rest] = second.value, second.gap
        return Solution(
            linear=problem.split(points),
            value=value,
            gap=gap,
            status=second.status if np.all(self.is_finished | has_left) else first.status,
            n_iter=max(first.n_iter, n_before + second.n_iter),
            history=(*first.history, *map(of_all, second.history)),
        )


def _margin_loss(loss: Any) -> Any:
    return loss.loss if isinstance(loss, JointLoss) else loss


def _padded(design: Design, standardisation: Standardisation, *, constant: bool) -> FloatArray:
    """Return standardised rows, a column of ones for an intercept, and columns of zeros."""
    assert isinstance(design, MemoryDesign)
    n_columns, padding = design.n_columns, _kernels.ROW_PADDING
    width = -(-(n_columns + constant) // padding) * padding
    rows = np.zeros((design.n_rows, width))
    matrix = design.matrix.toarray() if design.is_sparse else design.matrix
    np.subtract(matrix, standardisation.mean, out=rows[:, :n_columns])
    rows[:, :n_columns] *= standardisation.inverse_deviation
    if constant:
        rows[:, n_columns] = 1.0
    return rows


def _newton(
    problem: Problem, tol: FloatArray, *, certain: float, is_strict: bool
) -> KernelSolution:
    """Run the kernel for every task.

    If progress is reported, the kernel runs from the start to each iterate in turn: the iterates
    and the solution are those of a single call.
    """
    paths = TaskPaths.of(problem)
    tasks = _kernel_tasks(problem, paths, tol, certain, is_strict)
    design, history = problem.prepared.design, list[Progress]()
    n_passes, start = design.n_passes, problem.join(*problem.start)
    is_silent = problem.report is None and problem.on_iterate is None
    for max_iter in [problem.max_iter] if is_silent else range(problem.max_iter + 1):
        points = start.copy()
        own = tasks if max_iter == tasks.max_iter else replace(tasks, max_iter=max_iter)
        results = _run(problem, own, paths.paths, points)
        n_iter = int(results[:, 2].max())
        if history and n_iter < max_iter:
            break
        design.n_passes = n_passes + int(results[:, 4].max())
        value, gap = float(results[:, 0].mean()), float(results[:, 1].max())
        history.append(Progress(n_iter, design.n_passes, value, gap))
        problem.notify(history[-1], points if len(history) > 1 else None)
    codes = results[:, 3].astype(int)
    solution = Solution(
        linear=problem.split(points),
        value=results[:, 0],
        gap=results[:, 1],
        status=_STATUSES[codes.max()],
        n_iter=n_iter,
        history=tuple(history),
    )
    return KernelSolution(solution, results[:, 2].astype(np.intp), codes == 0)


class TaskPaths(NamedTuple):
    """Tasks in the order in which they are solved, and where each starts."""

    paths: list[NDArray[np.intp]]  # from the largest scale on, each from the largest penalty on
    #: The task of the same path and scale with the next larger penalty.
    task_at_larger_penalty: NDArray[np.intp]
    #: The task of the next larger scale, with the same penalty if possible.
    task_at_larger_scale: NDArray[np.intp]

    @classmethod
    def of(cls, problem: Problem) -> "TaskPaths":
        """Return the paths of a problem; -1 stands for no task.

        The paths of a fold are next to each other: its rows are copied once.
        """
        tasks, n = problem.tasks, len(problem.tasks)
        at_larger_penalty, at_larger_scale = np.full((2, n), -1, dtype=np.intp)
        if n == 1:
            return cls([np.zeros(1, dtype=np.intp)], at_larger_penalty, at_larger_scale)
        losses, temperature = _loss_parameters(problem)
        code, margin, scale, overconfidence = losses.T
        same = tasks.fold, tasks.positive, code, margin, overconfidence
        order = np.lexsort((-problem.alphas, -temperature, -scale, *same[::-1]))
        is_first = np.ones(n, dtype=bool)
        is_first[1:] = np.any([np.diff(own[order]) != 0 for own in same], axis=0)
        is_head = is_first.copy()
        is_head[1:] |= (np.diff(scale[order]) != 0) | (np.diff(temperature[order]) != 0)
        at_larger_penalty[order[1:]] = np.where(is_head[1:], -1, order[:-1])
        alphas, heads = problem.alphas.tolist(), np.flatnonzero(is_head)
        larger, first = dict[float, int](), -1  # the last chain by penalty, and its first task
        for head, chain in zip(heads.tolist(), np.split(order, heads[1:]), strict=True):
            members: list[int] = chain.tolist()
            if not is_first[head]:
                at_larger_scale[members] = [larger.get(alphas[k], first) for k in members]
            larger, first = {alphas[k]: k for k in members}, members[0]
        return cls(
            np.split(order, np.flatnonzero(is_first)[1:]), at_larger_penalty, at_larger_scale
        )


def _loss_parameters(problem: Problem) -> tuple[FloatArray, FloatArray]:
    """Return code, margin, scale and overconfidence of each loss, and the temperature or zero."""
    tasks = problem.tasks
    distinct = {id(loss): loss for loss in tasks.losses}
    found = {
        key: (*_margin_loss(loss).kernel_parameters, getattr(loss, "temperature", 0.0))
        for key, loss in distinct.items()
    }
    parameters = np.array([found[id(loss)] for loss in tasks.losses], dtype=np.float64)
    return np.ascontiguousarray(parameters[:, :4]), np.ascontiguousarray(parameters[:, 4])


def _kernel_tasks(
    problem: Problem, paths: TaskPaths, tol: FloatArray, certain: float, is_strict: bool
) -> NewtonTasks:
    prepared, tasks = problem.prepared, problem.tasks
    penalty = np.zeros((len(tasks), prepared.design.n_columns + prepared.fit_intercept))
    penalty[:, : prepared.design.n_columns] = problem.compiled_penalty
    codes, code, positive = tasks.code_table()
    losses, temperature = _loss_parameters(problem)
    return NewtonTasks(
        losses=losses,
        temperature=temperature,
        penalty=penalty,
        code=np.ascontiguousarray(code),
        positive=np.ascontiguousarray(positive),
        fold=np.ascontiguousarray(tasks.fold),
        task_at_larger_penalty=paths.task_at_larger_penalty,
        task_at_larger_scale=paths.task_at_larger_scale,
        tol=tol,
        objective_floor=problem.relative_to(np.zeros(len(tasks))),
        codes=np.ascontiguousarray(codes),
        weights=np.ascontiguousarray(tasks.weights),
        n_scores=tasks.columns_per_task,
        n_columns=penalty.shape[1],
        has_intercept=prepared.fit_intercept,
        max_iter=problem.max_iter,
        certain=certain,
        is_strict=is_strict,
    )


def _run(
    problem: Problem, tasks: NewtonTasks, paths: list[NDArray[np.intp]], points: FloatArray
) -> FloatArray:
    """Run the kernel for all tasks, in threads where there is enough work; returns its results."""
    rows, threads, policy = (
        problem.prepared.padded_rows,
        problem.prepared.design.threads,
        problem.policy,
    )
    results, task_products = np.zeros((len(points), 5)), points.shape[1] ** 2 * len(rows)
    size = max(1, policy.newton_call_products // task_products)  # tasks of a call
    n_paths, n_chunks = len(paths), 1
    if len(points) * task_products >= policy.min_newton_thread_products:
        n_chunks = min(4 * threads.n, n_paths)
    edges = [n_paths * k // n_chunks for k in range(n_chunks + 1)]
    chunks = [np.concatenate(paths[a:b]) for a, b in pairwise(edges)]

    def run(chunk: NDArray[np.intp]) -> None:
        for first in range(0, len(chunk), size):
            _kernels.newton(rows, tasks, points, results, chunk[first : first + size])

    list(threads.map(run, chunks))
    return results
