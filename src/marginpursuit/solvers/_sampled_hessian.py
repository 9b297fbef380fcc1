"""L-BFGS that continues with the Hessian of a subsample of the rows as preconditioner.

The Gram matrix bounds the Hessian of one task from above. Where rows are many, columns are many and
a large part of the rows has curvature, L-BFGS takes long to learn the difference, and the Hessian
of a subsample is as cheap as its Gram matrix.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from marginpursuit.design import Linear
from marginpursuit.solvers._problem import Problem, Progress, Solution, Status
from marginpursuit.solvers._quasi_newton import minimise
from marginpursuit.solvers.plan import GramPlan
from marginpursuit.solvers.preconditioners import Preconditioner
from marginpursuit.solvers.sampling import stratified_rows


def minimise_by_sampled_hessian(problem: Problem, plan: GramPlan) -> Solution:
    """Take a few steps of L-BFGS with the Gram matrix, and the others with the Hessian there."""
    run = partial(
        minimise, n_confirmations=plan.n_confirmations, min_iter=plan.min_steps, tol=plan.tol
    )
    n_first = min(problem.policy.sampled_hessian.first_steps, plan.max_steps)
    first = run(problem, max_iter=n_first)
    n_left = plan.max_steps - first.n_iter
    if first.status is not Status.MAX_ITER or n_left <= 0:
        return first
    preconditioner = _sampled_hessian(problem, first.linear)
    continued = replace(
        problem,
        prepared=replace(problem.prepared, preconditioner=preconditioner),
        start=first.linear,
        report=later_report(problem.report, first.n_iter),
    )
    second = run(continued, max_iter=n_left)
    return joined(first, second)


def _sampled_hessian(problem: Problem, linear: Linear) -> Preconditioner:
    """Return the preconditioner with the Hessian of a subsample at a point, of one task."""
    prepared, policy = problem.prepared, problem.policy
    own, design = policy.sampled_hessian, prepared.design
    rows = stratified_rows(design.n_rows, own.rows_per_column * design.n_columns)
    sample = problem.with_rows(rows, threads=design.threads)
    some, tasks = sample.prepared.design, sample.tasks
    total = float(tasks.weights.sum())
    weights = tasks.weights[0] / (total if total > 0 else 1.0)
    scores = some.scores(*linear, prepared.standardisation)[:, 0]
    curvature = weights * tasks.losses[0].curvature(tasks.sign(0) * scores)
    changed = replace(policy, hessian_regularisation=own.regularisation)
    gram: Any = prepared.preconditioner  # a `GramPreconditioner`
    own_gram = replace(gram, design=some, weights=weights, policy=changed)
    return own_gram.with_hessian(curvature)  # type: ignore[no-any-return]


def joined(first: Solution, second: Solution) -> Solution:
    """Return the second of two solves, with the iterations and the history of both."""
    return replace(
        second,
        n_iter=first.n_iter + second.n_iter,
        history=first.history + tuple(later(step, first.n_iter) for step in second.history),
    )


def later(step: Progress, n_iter: int) -> Progress:
    """Return a step with the number of iterations before the second solve added."""
    return replace(step, iteration=step.iteration + n_iter)


def later_report(
    report: Callable[[Progress], None] | None, n_iter: int
) -> Callable[[Progress], None] | None:
    """Return a function that reports later steps; None where nobody listens."""
    return None if report is None else lambda step: report(later(step, n_iter))
