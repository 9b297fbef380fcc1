"""Taking tasks to the tolerance one by one, from where a method that they share has left them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from marginpursuit._threads import single_threaded_blas
from marginpursuit._validation import FloatArray
from marginpursuit.design import Design
from marginpursuit.solvers._interior_point import InteriorPoint
from marginpursuit.solvers._newton import NearDescent, NewtonDescent
from marginpursuit.solvers._problem import Problem, Progress, Solution, Status
from marginpursuit.solvers._single import SingleProblem, part_of

# Newton steps after which the interior-point method takes over.
_NEWTON_STEPS = 40


def finished(problem: Problem, first: Solution, trust: float, *, near: bool = False) -> Solution:
    """Take every task from where the first method left it to the tolerance.

    Once the Newton decrement meets the tolerance, so must `trust` times the proven gap. `near` says
    whether rows near the curved part of the loss decide, and are looked at first. Several tasks are
    finished side by side, as many as there are threads.
    """
    points, value, gap = problem.join(*first.linear), first.value.copy(), first.gap.copy()
    history, n_iter = list(first.history), first.n_iter
    for task, steps in _in_turn(problem, first, points, trust, near=near):
        for step in steps:
            gap[task] = step.gap
            if step.is_fresh:
                points[task], value[task] = step.point, step.value
                passes = problem.prepared.design.n_passes
                last = Progress(step.iteration, passes, float(value.mean()), float(gap.max()))
                history.append(last)
                problem.tell(last, points)
            n_iter = max(n_iter, step.iteration)
    status = Status.CONVERGED
    if np.any(gap > problem.tol):
        status = Status.MAX_ITER if n_iter == problem.max_iter else Status.ROUNDING
    return Solution(problem.split(points), value, gap, status, n_iter, tuple(history))


class _Step(NamedTuple):
    """Where a task is after a step of its own; not fresh, where the first method left it."""

    iteration: int
    point: FloatArray
    value: float
    gap: float
    is_fresh: bool


def _in_turn(
    problem: Problem, first: Solution, points: FloatArray, trust: float, *, near: bool
) -> Iterator[tuple[int, Iterable[_Step]]]:
    """Yield every task and its steps; several tasks are taken side by side by the threads."""
    design, n_tasks = problem.prepared.design, len(problem.tasks)
    if n_tasks == 1 or "row_access" not in design.capabilities or design.threads.n == 1:
        for task in range(n_tasks):
            yield task, _steps(problem, task, first, points[task], trust, near=near)
        return
    alone = [part_of(problem, slice(None)) for _ in range(design.threads.n)]
    for begin in range(0, n_tasks, len(alone)):
        wave = range(begin, min(begin + len(alone), n_tasks))
        runs = [
            partial(_steps, own, task, first, points[task], trust, near=near)
            for task, own in zip(wave, alone, strict=False)
        ]
        found = _at_once(design, runs)
        for own in alone:
            design.n_passes += own.prepared.design.n_passes
            own.prepared.design.n_passes = 0
        yield from zip(wave, found, strict=True)


def _at_once(design: Design, runs: Sequence[Callable[[], Iterable[_Step]]]) -> list[list[_Step]]:
    """Return what each run yields, a thread for each."""
    with single_threaded_blas():
        return list(design.threads.map(_all_steps, runs))


def _all_steps(run: Callable[[], Iterable[_Step]]) -> list[_Step]:
    return list(run())


def _steps(
    problem: Problem, task: int, first: Solution, point: FloatArray, trust: float, *, near: bool
) -> Iterator[_Step]:
    """Yield where a task is, and after each step, until it meets the tolerance."""
    states = _finish(SingleProblem(problem, task), point, near=near)
    value, gap = float(first.value[task]), float(first.gap[task])
    for iteration, state in zip(range(first.n_iter, problem.max_iter + 1), states, strict=False):
        fresh = iteration > first.n_iter or not first.history
        if fresh:
            point, value = state.point, state.value
        unit = float(problem.relative_to(value)[task])
        estimate = state.decrement / unit
        if estimate <= problem.tol or iteration == problem.max_iter:
            estimate = max(estimate, trust * state.gap / unit)
        gap = estimate if fresh else max(gap, estimate)
        yield _Step(iteration, point, value, gap, fresh)
        if gap <= problem.tol:
            return


def _finish(
    problem: SingleProblem, point: FloatArray, *, near: bool
) -> Iterator[NewtonDescent | InteriorPoint]:
    """Yield the state at the point and after each step, until rounding ends it.

    Newton's method is cheap and fast where the minimiser is held by more rows than columns. Where
    it does not get there soon the interior-point method does.
    """
    newton = (NearDescent if near else NewtonDescent)(problem, point)
    yield newton
    for _ in range(_NEWTON_STEPS):
        if newton.stalled:
            break
        newton.step()
        yield newton
    interior = InteriorPoint(problem, newton.point)
    while not interior.stalled:
        interior.step()
        yield interior
