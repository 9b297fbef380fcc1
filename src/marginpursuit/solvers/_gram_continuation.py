"""A solve that continues in the solver "gram" where the first cannot prove the tolerance.

L-BFGS with a diagonal preconditioner and dual passes converge slowly where columns are nearly
collinear and the penalty is small, and the L-BFGS estimate of the gap may be wrong there. The
solver "gram" then continues, where its matrix of columns, or of rows, is small enough.
"""

from dataclasses import replace

import numpy as np

from marginpursuit.design import Linear
from marginpursuit.solvers._continuation import continued, joined, unverified
from marginpursuit.solvers._problem import Problem, Request, Solution
from marginpursuit.solvers.gram import GramSolver


def continue_with_gram(
    request: Request, problem: Problem, first: Solution, max_iter: int
) -> Solution:
    """Continue a solve that has not proven its tolerance, by the solver "gram".

    Parameters
    ----------
    request : Request
        The request for which the problem was prepared.
    problem : Problem
        The problem.
    first : Solution
        What the first solver found.
    max_iter : int
        The maximum number of iterations, with those of the first solver.

    Returns
    -------
    Solution
        The minimisers, in the coordinates of the problem.
    """
    if first.is_proven:
        return first
    if first.n_iter >= max_iter:
        return unverified(first)
    gram = GramSolver()
    prepared = gram.prepare(request)
    start = _reset(problem, first, prepared.from_data(problem.prepared.to_data(first.linear)))
    rest = continued(problem, first, max_iter)
    # The first solver has failed: no estimate of few steps is trusted.
    policy = replace(problem.policy, trusted_steps=0, trusted_steps_per_column=0.0)
    second = gram.solve(replace(rest, prepared=prepared, start=start, policy=policy))
    linear, value = first.linear, first.value
    if second.value.sum() <= value.sum():
        value = second.value
        linear = problem.prepared.from_data(prepared.to_data(second.linear))
    return replace(joined(first, second), linear=linear, value=value)


def _reset(problem: Problem, first: Solution, start: Linear) -> Linear:
    """Return a start with zeros for the tasks whose objective is above that of zero scores.

    Far from the minimum most rows are where the loss is linear, and the Gram matrix, a bound on the
    Hessian, then underestimates the gap.
    """
    is_kept = first.value <= problem.tasks.values_at_zero()
    columns = np.repeat(is_kept, problem.tasks.columns_per_task)
    return start[0] * columns, start[1] * columns
