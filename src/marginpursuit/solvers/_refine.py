"""Second-order refinement: each task of a problem alone, from a start to the tolerance."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from marginpursuit._namespaces import to_numpy
from marginpursuit._validation import FloatArray
from marginpursuit.solvers._active_set import HINGE, ActiveSet, ActiveSetPolicy
from marginpursuit.solvers._damped_newton import DampedNewton
from marginpursuit.solvers._interior_point import InteriorPoint
from marginpursuit.solvers._problem import Problem, Progress, Solution, Status
from marginpursuit.solvers._single_task import ProblemTask


def solve_newton(problem: Problem) -> Solution:
    """Minimise by Newton's method, for any loss with a bounded curvature.

    The problem is prepared by the solver "gram". For a loss without conjugate the gap is half the
    squared Newton decrement.
    """
    return refine(problem, at_start(problem))


def solve_hinge(problem: Problem) -> Solution:
    """Minimise the risk of a hinge with a rounded kink by an active-set method.

    The problem is prepared by the solver "gram", for a `MarginLoss` without overconfidence. The
    closer the start to the minimiser, the fewer rows become active.
    """
    return refine(problem, at_start(problem), active_set=HINGE)


def at_start(problem: Problem) -> Solution:
    """Return the start as a `Solution` with unknown value and gap."""
    unknown = np.zeros(len(problem.tasks))
    return Solution(problem.start, unknown, unknown, Status.MAX_ITER, 0, ())


def refine(
    problem: Problem,
    first: Solution,
    *,
    gap_weight: float = 1.0,
    active_set: ActiveSetPolicy | None = None,
) -> Solution:
    """Take each task from a first solution to the tolerance; several tasks in parallel.

    A task has converged if its Newton decrement and `gap_weight` times the bound on its duality gap
    meet the tolerance. For a loss without conjugate the decrement decides. With `active_set`, for a
    loss without overconfidence, an active-set method comes first. The history continues that of
    `first`.
    """
    points, value, gap = problem.join(*first.linear), first.value.copy(), first.gap.copy()
    history, n_iter, converged = list(first.history), first.n_iter, True
    run = partial(_steps, first=first, gap_weight=gap_weight, active_set=active_set)
    for task, steps in _each_task(problem, points, run):
        for step in steps:
            gap[task] = step.gap
            if step.is_new:
                points[task], value[task] = step.point, step.value
                passes = problem.prepared.design.n_passes
                last = Progress(step.iteration, passes, float(value.mean()), float(gap.max()))
                history.append(last)
                problem.notify(last, points)
            n_iter = max(n_iter, step.iteration)
        converged &= step.has_converged
    status = Status.CONVERGED
    if not converged:
        status = Status.MAX_ITER if n_iter == problem.max_iter else Status.ROUNDING
    return Solution(problem.split(points), value, gap, status, n_iter, tuple(history))


def refine_some(problem: Problem, first: Solution) -> Solution:
    """Refine tasks that L-BFGS leaves above the tolerance, each alone by second-order methods.

    These are the tasks that rounding has stopped, and those whose classes are almost separated: the
    objective is less than `max_separated_rows` times the loss of one row with score zero, which
    takes a small penalty.
    """
    weights = to_numpy(problem.tasks.weights).max(axis=1)[problem.tasks.fold]
    max_value = problem.policy.max_separated_rows * weights * problem.tasks.values_at_zero()
    is_separated = first.value < max_value
    which = np.flatnonzero(is_separated | (first.gap > problem.tol))
    if len(which) == 0 or first.is_proven or first.n_iter >= problem.max_iter:
        return first
    some = replace(problem, start=first.linear, on_iterate=None).take(which)
    own = replace(first, linear=some.start, value=first.value[which], gap=first.gap[which])
    refined = refine(some, own)
    coef, intercept, value, gap = (x.copy() for x in (*first.linear, first.value, first.gap))
    coef[:, which], intercept[which] = refined.linear
    value[which], gap[which] = refined.value, refined.gap
    status = Status.CONVERGED if np.all(gap <= problem.tol) else refined.status
    return replace(refined, linear=(coef, intercept), value=value, gap=gap, status=status)


class _Step(NamedTuple):
    """A task after an iteration; not new if it is the first solution."""

    iteration: int
    point: FloatArray
    value: float
    gap: float  # relative
    is_new: bool
    has_converged: bool


def _each_task(
    problem: Problem,
    points: FloatArray,
    run: Callable[[Problem, int, FloatArray], Iterable[_Step]],
) -> Iterator[tuple[int, Iterable[_Step]]]:
    """Yield every task with its steps; each thread takes one task at a time."""
    design, n_tasks = problem.prepared.design, len(problem.tasks)
    if n_tasks == 1 or "row_access" not in design.capabilities or design.threads.n == 1:
        for task in range(n_tasks):
            yield task, run(problem, task, points[task])
        return
    views = [problem.with_rows(slice(None)) for _ in range(design.threads.n)]
    for begin in range(0, n_tasks, len(views)):
        group = range(begin, min(begin + len(views), n_tasks))
        runs = [
            partial(run, view, task, points[task]) for task, view in zip(group, views, strict=False)
        ]
        found = list(design.threads.map(_all_steps, runs))
        for view in views:
            design.n_passes += view.prepared.design.n_passes
            view.prepared.design.n_passes = 0
        yield from zip(group, found, strict=True)


def _all_steps(run: Callable[[], Iterable[_Step]]) -> list[_Step]:
    return list(run())


def _steps(
    problem: Problem,
    index: int,
    point: FloatArray,
    *,
    first: Solution,
    gap_weight: float,
    active_set: ActiveSetPolicy | None,
) -> Iterator[_Step]:
    """Yield a task at its start and after each iteration, until it has converged."""
    task = ProblemTask(problem, index)
    has_gap = gap_weight > 0 and task.has_conjugate
    decrease_fraction = problem.decrease_fraction if has_gap else 0.0
    value, gap, start_value = float(first.value[index]), float(first.gap[index]), -np.inf
    methods, is_new = _Methods(task, point, active_set), not first.history
    for iteration in range(first.n_iter, problem.max_iter + 1):
        method = methods.current
        method.find_direction()
        if is_new:
            point, value = method.point, method.value
        start_value = max(start_value, value)
        reference = float(problem.relative_to(value)[index])
        estimate = method.decrement / reference
        if has_gap and (estimate <= problem.tol or iteration == problem.max_iter):
            estimate = max(estimate, gap_weight * method.gap / reference)
        estimate = min(estimate, value / reference)  # the minimum is not negative
        gap = _checked_gap(task, method, estimate if is_new else max(gap, estimate), reference)
        has_converged = gap <= min(problem.tol, problem.policy.max_refinement_tol)
        if decrease_fraction > 0 and not has_converged:
            has_converged = method.gap <= decrease_fraction * (start_value - value)
        yield _Step(iteration, point, value, gap, is_new, has_converged)
        if has_converged or iteration == problem.max_iter or not methods.choose_next():
            return
        methods.current.step()
        is_new = True


def _checked_gap(
    task: ProblemTask, method: DampedNewton | InteriorPoint, gap: float, reference: float
) -> float:
    """Verify a gap of the interior-point method that meets the tolerance.

    The gap assumes that the linear systems of the steps are solved exactly. Where their matrix is
    singular to working precision it is too small: it is raised to the gap with the true dual
    residual, and to a lower bound on the suboptimality.
    """
    if gap > task.problem.tol or not isinstance(method, InteriorPoint):
        return gap
    verified = max(method.verified_gap(), task.least_gap(method.point))
    return max(gap, min(verified, method.value) / reference)


class _Methods:
    """The methods that refine a task, one after the other; `current` is the one in use.

    Newton's method converges fast where more rows than columns have curvature. After
    `max_newton_steps` the interior-point method takes over, if the loss has a conjugate and a
    bounded derivative. The active-set method needs a loss that is linear far from the level.
    """

    def __init__(
        self, task: ProblemTask, point: FloatArray, active_set: ActiveSetPolicy | None
    ) -> None:
        self._task = task
        self._has_bound = task.has_conjugate and bool(np.all(np.isfinite(task.sides.bound)))
        self._newton_steps, self._before = 0, (np.inf, np.inf)
        self.current: DampedNewton | InteriorPoint
        if active_set is None or task.loss.curvature_support == np.inf:
            self.current = DampedNewton(task, point)
        else:
            self.current = ActiveSet(task, point, active_set)

    def choose_next(self) -> bool:
        """Choose the method of the next step; return whether there is one."""
        method, (value, decrement) = self.current, self._before
        if isinstance(method, InteriorPoint):
            return not method.stalled
        has_ended = method.stalled or (method.value >= value and method.decrement >= decrement)
        most = self._task.problem.policy.max_newton_steps
        if self._has_bound and (has_ended or self._newton_steps == most):
            self.current = InteriorPoint(self._task, method.point)
            return True
        self._newton_steps, self._before = self._newton_steps + 1, (method.value, method.decrement)
        return not has_ended
