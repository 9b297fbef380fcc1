"""The solver for losses that bend everywhere, on data with a moderate number of columns or rows.

Newton's method with a line search, which costs no read as the scores along a step are a line.
"""

import numpy as np
from scipy.linalg import cho_solve

from marginpursuit._validation import FloatArray
from marginpursuit.solvers._problem import Problem, Progress, Solution, Status
from marginpursuit.solvers._single import SmoothProblem

__all__ = ["solve_newton"]

_SUFFICIENT_DECREASE = 1e-4
_MOST_HALVINGS = 50


def solve_newton(problem: Problem) -> Solution:
    """Minimise by Newton's method, until half the squared decrement meets the tolerance.

    Parameters
    ----------
    problem : Problem
        What to minimise, with a prepared from `prepare_gram` and a loss with a `curvature`, such
        as the logistic one.

    Returns
    -------
    Solution
        The minimiser.
    """
    points = problem.join(*problem.start)
    value, gap = np.zeros(len(points)), np.zeros(len(points))
    history: list[Progress] = []
    n_iter, stalled = 0, False
    for k, point in enumerate(points):  # each is changed where it lies
        single, iteration = SmoothProblem(problem, k), 0
        scores = single.score(point)
        while True:
            value[k] = single.value(point, scores)
            margins = single.sign * scores
            descent = single.pull(-single.loss.derivative(margins)) - single.penalty * point
            direction = cho_solve(single.factorise(single.loss.curvature(margins)), descent)
            slope = -float(descent @ direction)
            gap[k] = -0.5 * slope / float(problem.relative_to(value)[k])
            passes = problem.prepared.design.n_passes
            history.append(Progress(iteration, passes, float(value[k]), float(gap[k])))
            problem.tell(history[-1])
            if gap[k] <= problem.tol or iteration == problem.max_iter:
                break
            change = single.score(direction)
            length = _search(single, point, scores, direction, change, value[k], slope)
            if length == 0.0:
                stalled = True
                break
            point += length * direction
            scores = scores + length * change
            iteration += 1
        n_iter = max(n_iter, iteration)
    status = Status.CONVERGED
    if np.any(gap > problem.tol):
        status = Status.ROUNDING if stalled and n_iter < problem.max_iter else Status.MAX_ITER
    return Solution(problem.split(points), value, gap, status, n_iter, tuple(history))


def _search(
    problem: SmoothProblem,
    point: FloatArray,
    scores: FloatArray,
    direction: FloatArray,
    change: FloatArray,
    value: float,
    slope: float,
) -> float:
    """Return a length, halved from one, with a sufficient decrease; 0 if there is none."""
    length = 1.0
    for _ in range(_MOST_HALVINGS):
        ahead = problem.value(point + length * direction, scores + length * change)
        if ahead < value + _SUFFICIENT_DECREASE * length * slope:
            return length
        length *= 0.5
    return 0.0
