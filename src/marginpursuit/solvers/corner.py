r"""The minimiser of a hinge risk, found among the rows that are near the corner.

A row whose margin stays off the corner of the hinge takes part by its slope alone, which is known:
full short of the level, none above it. So only rows near the corner, and those that a step takes
past it, are looked at row by row; to these the interior-point method is applied. What bounds the
minimum of that problem from below bounds that of the whole.
"""

import numpy as np
from numpy.typing import NDArray

from marginpursuit._validation import FloatArray
from marginpursuit.losses import TRUNCATION
from marginpursuit.solvers._interior_point import InteriorPoint
from marginpursuit.solvers._problem import Problem, Progress, Solution, Status
from marginpursuit.solvers._single import NearProblem, SingleProblem

__all__ = ["solve_near_corner"]

# The rows that are looked at first: so many for each column, and at least this share of all.
_ROWS_PER_COLUMN, _SHARE = 10, 0.05

# All rows are looked at only to find out which are near.
_COARSE = 1e-2

# The share of the gap that is enough to which rows near the corner are solved.
_WITHIN = 0.5

_MOST_HALVINGS = 30


def solve_near_corner(problem: Problem) -> Solution:
    """Minimise the risk of a hinge with a rounded corner, for one task.

    Parameters
    ----------
    problem : Problem
        What to minimise, with a prepared from `prepare_gram` and a `MarginLoss` without
        overconfidence. The closer the start to the minimiser, the fewer rows are looked at.

    Returns
    -------
    Solution
        The minimiser.
    """
    single, point = SingleProblem(problem, 0), problem.join(*problem.start)[0]
    scores = single.score(point)
    value, bound = single.value(point, scores), 0.0
    first = value
    near, history, stuck = _nearest(single, scores), list[Progress](), False
    while True:
        unit = float(problem.relative_to(np.array([value]))[0])
        gap = (value - bound) / unit
        passes = problem.prepared.design.n_passes
        history.append(Progress(len(history), passes, value, gap))
        problem.tell(history[-1])
        is_enough = value - bound <= problem.enough * (first - value)
        if stuck or is_enough or gap <= problem.tol or len(history) > problem.max_iter:
            break
        first_look = near.all() and gap > _COARSE and _number(single) < len(near)
        wanted = 0.5 * unit * (max(problem.tol, _COARSE) if first_look else problem.tol)
        interior = InteriorPoint(NearProblem(single, near, scores), point)
        while interior.gap > wanted and not interior.stalled:
            interior.step()
            wanted = max(wanted, _WITHIN * problem.enough * (value - interior.value))
        bound = max(bound, interior.value - interior.gap)
        ahead = single.score(interior.point)
        past = ~near & (single.residual(ahead)[0] * single.residual(scores)[0] < 0)
        length = _search(single, point, scores, value, interior.point, ahead)
        point = point + length * (interior.point - point)
        scores = scores + length * (ahead - scores)
        value = single.value(point, scores)
        if first_look and not interior.stalled:
            near = _nearest(single, scores)
        elif past.any():
            near |= past
        elif interior.stalled or length == 0.0:
            stuck = bool(near.all())
            near[:] = True
    status = Status.CONVERGED
    if gap > problem.tol and not is_enough:
        status = Status.ROUNDING if stuck else Status.MAX_ITER
    arrays = np.array([value]), np.array([gap])
    found = problem.split(point[np.newaxis])
    return Solution(found, *arrays, status, history[-1].iteration, tuple(history))


def _number(single: SingleProblem) -> int:
    """Return how many rows are looked at first."""
    return max(_ROWS_PER_COLUMN * len(single.penalty), int(_SHARE * len(single.rows)))


def _nearest(single: SingleProblem, scores: FloatArray) -> NDArray[np.bool_]:
    """Return which rows are nearest the corner, with all in its curve."""
    distance, number = np.abs(single.residual(scores)[0]), _number(single)
    if number >= len(distance):
        return np.ones(len(distance), dtype=bool)
    reach = max(float(np.partition(distance, number)[number]), TRUNCATION * single.loss.scale)
    return np.asarray(distance <= reach)


def _search(
    single: SingleProblem,
    point: FloatArray,
    scores: FloatArray,
    value: float,
    end: FloatArray,
    end_scores: FloatArray,
) -> float:
    """Return a length, halved from one, at which the value falls; 0 if there is none."""
    length = 1.0
    for _ in range(_MOST_HALVINGS):
        ahead = point + length * (end - point)
        if single.value(ahead, scores + length * (end_scores - scores)) < value:
            return length
        length *= 0.5
    return 0.0
