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
from marginpursuit.solvers._problem import Geometry, Problem, Progress, Solution, Status
from marginpursuit.solvers._quasi_newton import evaluate, join, part

__all__ = ["raw_geometry", "solve_steepest"]


def raw_geometry(
    design: Design, weights: FloatArray, alpha: float, *, scale_free: bool, fit_intercept: bool
) -> Geometry:
    """Leave the data as it is. Parameters and result are those of `gram_geometry`.

    The negligible, scale-free penalty is left out, as the paper has none.
    """
    penalty = np.full(design.n_columns, 0.0 if scale_free else alpha)
    smoothness = design.mean_square(weights) + float(fit_intercept) + float(penalty.max())
    smoothness = smoothness if smoothness > 0 else 1.0  # any step will do where nothing moves

    def precondition(vector: FloatArray) -> FloatArray:
        return vector / smoothness

    return Geometry(design, fit_intercept, penalty, precondition, design.to_data, design.from_data)


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
    names = problem.labels.problems
    points = join(problem, *problem.start)
    longest = 2.0 * float(problem.geometry.precondition(np.ones(1))[0])
    size = 0.5 * longest if step is None else step
    if not 0.0 < size < longest:
        raise ValueError(f"step must be in (0, {longest:g}), 2 over the mean of |x|²; got {step:g}")
    history: list[Progress] = []
    for iteration in range(problem.max_iter + 1):
        values, gradients = evaluate(problem, points, names)
        reads = problem.geometry.design.n_reads
        history.append(Progress(iteration, reads, float(values.mean()), float("nan")))
        problem.report(history[-1])
        if iteration < problem.max_iter:
            points = points - size * gradients
    gaps = np.full(len(names), np.nan)
    return Solution(
        part(problem, points), values, gaps, Status.ALL_STEPS, problem.max_iter, tuple(history)
    )
