r"""The paper's Algorithm 1, verbatim: the reference that the other solvers are tested against.

.. math::

    w_{t+1} = w_t + \frac{s\,a}{n} \sum_i \psi\Bigl(\frac{\gamma - y_i \langle w_t, x_i\rangle}{s}
    \Bigr) y_i x_i

for T steps of one size a, without stopping rule or projection. The step must be below
2/(κ + v), v the mean of ‖x‖² and κ the strong convexity, a condition that the paper states only in
a proof (E17). Every κ ≥ 0 permits a < 2/v at most; the default 1/v is admissible for all, since
κ ≤ v. With an intercept or a penalty the same is done to their gradient, and v grows by 1 and by
the penalty.
"""

import numpy as np

from marginpursuit._validation import FloatArray
from marginpursuit.design import Design
from marginpursuit.solvers._penalty import shared_weights
from marginpursuit.solvers._problem import Prepared, Problem, Progress, Solution, Status
from marginpursuit.solvers._quasi_newton import evaluate, join, part

__all__ = ["prepare_steepest", "solve_steepest"]


def prepare_steepest(
    design: Design, weights: FloatArray, unit: str, *, fit_intercept: bool
) -> Prepared:
    """Leave the data as it is. Parameters and result are those of `prepare_gram`.

    A unit other than the absolute is left out, penalty and all, as the paper has none.
    """
    everywhere, _ = shared_weights(weights)
    units = np.full((weights.shape[0], design.n_columns), 1.0 if unit == "absolute" else 0.0)
    mean_square = design.mean_square(everywhere)

    def precondition(points: FloatArray, alpha: float) -> FloatArray:
        smoothness = mean_square + float(fit_intercept) + alpha * float(units.max())
        # Any step will do where nothing moves.
        return points / (smoothness if smoothness > 0 else 1.0)

    return Prepared(design, fit_intercept, units, precondition, design.to_data, design.from_data)


def solve_steepest(problem: Problem, step: float | None = None) -> Solution:
    """Take `max_iter` steps of steepest descent.

    Parameters
    ----------
    problem : Problem
        What to minimise.
    step : float, optional
        The step size a > 0; by default 1/v.

    Returns
    -------
    Solution
        The last iterate.

    Raises
    ------
    ValueError
        If no strong convexity makes the step admissible.
    """
    tasks = np.arange(len(problem.tasks))
    points = join(problem, *problem.start)
    longest = 2.0 * float(problem.precondition(np.ones_like(points), tasks).min())
    size = 0.5 * longest if step is None else step
    if not 0.0 < size < longest:
        raise ValueError(f"step must be in (0, {longest:g}), 2 over the mean of |x|²; got {step:g}")
    history: list[Progress] = []
    for iteration in range(problem.max_iter + 1):
        values, gradients = evaluate(problem, points, tasks)
        passes = problem.prepared.design.n_passes
        history.append(Progress(iteration, passes, float(values.mean()), float("nan")))
        problem.report(history[-1])
        if iteration < problem.max_iter:
            points = points - size * gradients
            problem.keep(problem, part(problem, points))
    gaps = np.full(len(tasks), np.nan)
    return Solution(
        part(problem, points), values, gaps, Status.ALL_STEPS, problem.max_iter, tuple(history)
    )
