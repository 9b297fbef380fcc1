"""Two solves of a problem, one after the other, as one."""

from collections.abc import Callable
from dataclasses import replace

from marginpursuit.solvers._problem import Problem, Progress, Solution, Status


def continued(problem: Problem, first: Solution, max_iter: int | None = None) -> Problem:
    """Return the problem for the iterations that are left after a first solve, from its end.

    `max_iter` includes those of the first solve; by default it is that of the problem.
    """
    max_iter = problem.max_iter if max_iter is None else max_iter
    return replace(
        problem,
        start=first.linear,
        max_iter=max_iter - first.n_iter,
        report=_later_report(problem.report, first.n_iter),
    )


def joined(first: Solution, second: Solution) -> Solution:
    """Return the second of two solves, with the iterations and the history of both."""
    return replace(
        second,
        n_iter=first.n_iter + second.n_iter,
        history=first.history + tuple(_later(step, first.n_iter) for step in second.history),
    )


def _later(step: Progress, n_iter: int) -> Progress:
    """Return a step with the number of iterations before the second solve added."""
    return replace(step, iteration=step.iteration + n_iter)


def _later_report(
    report: Callable[[Progress], None] | None, n_iter: int
) -> Callable[[Progress], None] | None:
    """Return a function that reports later steps; None if none is reported."""
    return None if report is None else lambda step: report(_later(step, n_iter))


def unverified(solution: Solution) -> Solution:
    """Return a solution whose estimate of the gap was to be verified by more iterations."""
    return replace(solution, status=Status.MAX_ITER)
