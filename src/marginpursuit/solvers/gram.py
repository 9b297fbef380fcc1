r"""The solver for data with a moderate number of columns, or of rows.

The loss has curvature in [0, 1], so the weighted Gram matrix of the rows plus the penalty bounds
the Hessian from above for every margin, scale and overconfidence, everywhere. It is computed and
factorised once and preconditions a quasi-Newton method that then needs few reads of the data.

With fewer rows than columns the same is done in the space of the rows: an optimal coefficient
vector is a combination of rows, so that with the n × n matrix of inner products K = R Rᵀ the
problem is that of a design with rows R, and no d × d matrix is ever made.

Where rows are plenty, the Gram matrix is that of a sample of them, and bounds the Hessian but for
some per cent, which the line search sees to.

Parts of the rows, as the folds of a cross-validation have them, share the Gram matrix of all rows:
the rows of a part weigh at most so many times what they weigh in the mean of all parts, and the
mean times that number bounds the Gram matrix of every part.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, solve_triangular
from scipy.linalg.lapack import dpstrf

from marginpursuit._namespaces import to_numpy
from marginpursuit._threads import serial_products
from marginpursuit._validation import FloatArray
from marginpursuit.design import Design, Linear, design_for, take_rows
from marginpursuit.solvers._interior_point import InteriorPoint
from marginpursuit.solvers._newton import NewtonDescent
from marginpursuit.solvers._penalty import design_unit, shared_weights
from marginpursuit.solvers._problem import Geometry, Problem, Progress, Solution, Status
from marginpursuit.solvers._quasi_newton import join, minimise, part
from marginpursuit.solvers._single import SingleProblem

__all__ = ["gram_geometry", "solve_gram"]

# A Gram matrix takes as long as reads of a twentieth as many as there are columns; what follows is
# in proportion, and at least so many steps. After the first number of quasi-Newton steps, the data
# have shown directions in which the Hessian is far below its bound, and the estimate of the gap is
# checked by the Hessian itself. The second is where the quasi-Newton method is given up.
_UNCHECKED_STEPS, _UNCHECKED_SHARE = 20, 0.1
_MOST_STEPS, _MOST_SHARE = 50, 0.05

# Fewer steps are also checked where rows above the level have no curvature to speak of: what the
# penalty alone decides is easily missed there.
_LITTLE_OVERCONFIDENCE = 0.1

# With so many rows for each column the rows that are short of the level decide everything, and the
# estimate of the quasi-Newton method is enough, once it knows the rate of its steps, which takes
# some even after a start nearby. A Newton step takes as long as forty reads of cov, so the
# quasi-Newton method may also go on for longer.
_PLENTY, _FEWEST_STEPS, _MOST_STEPS_OF_PLENTY = 100, 12, 150

# Rows for each column that are sampled for the Gram matrix, which is then some per cent off: as a
# preconditioner it is as good. How many times as many rows there are to be to do so.
_ROWS_PER_COLUMN, _WORTH_SAMPLING = 1000, 4

# Newton steps after which the interior-point method takes over.
_NEWTON_STEPS = 40

# Pivots below this many times the rounding of the inner products are rounding.
_RANK = 64.0


def solve_gram(problem: Problem) -> Solution:
    """Minimise by the quasi-Newton method, and finish by others where that is slow.

    Parameters
    ----------
    problem : Problem
        What to minimise, with a geometry from `gram_geometry`.

    Returns
    -------
    Solution
        The minimiser.
    """
    n_columns = problem.geometry.design.n_columns
    plenty = problem.geometry.design.n_rows >= _PLENTY * n_columns
    most = _MOST_STEPS_OF_PLENTY if plenty else _MOST_STEPS
    patience = max(most, min(int(_MOST_SHARE * n_columns), problem.max_iter - most))
    curved = all(loss.overconfidence >= _LITTLE_OVERCONFIDENCE for loss in problem.tasks.losses)
    first = minimise(
        replace(problem, max_iter=min(problem.max_iter, patience)),
        fewest=_FEWEST_STEPS if plenty and not curved else 0,
    )
    few = first.n_iter < max(_UNCHECKED_STEPS, _UNCHECKED_SHARE * n_columns)
    harmless = (few and curved) or (plenty and first.status is Status.CONVERGED)
    if harmless or first.n_iter == problem.max_iter:
        return first
    points, value, gap = join(problem, *first.linear), first.value.copy(), first.gap.copy()
    history, n_iter = list(first.history), first.n_iter
    for k in range(len(problem.tasks)):
        states = _finish(SingleProblem(problem, k), points[k])
        for iteration, state in zip(
            range(first.n_iter, problem.max_iter + 1), states, strict=False
        ):
            estimate = state.gap / float(problem.relative_to(value)[k])
            gap[k] = estimate if iteration > first.n_iter else max(gap[k], estimate)
            if iteration > first.n_iter:
                points[k], value[k] = state.point, state.value
                reads = problem.geometry.design.n_reads
                history.append(Progress(iteration, reads, float(value.mean()), float(gap.max())))
                problem.report(history[-1])
                problem.keep(problem, part(problem, points))
            if gap[k] <= problem.tol:
                break
        n_iter = max(n_iter, iteration)
    status = Status.CONVERGED
    if np.any(gap > problem.tol):
        status = Status.MAX_ITER if n_iter == problem.max_iter else Status.ROUNDING
    return Solution(part(problem, points), value, gap, status, n_iter, tuple(history))


def _finish(problem: SingleProblem, point: FloatArray) -> Iterator[NewtonDescent | InteriorPoint]:
    """Yield the state at the point and after each step, until rounding ends it.

    Newton's method is cheap and fast where the minimiser is held by more rows than columns. Where
    it does not get there soon the interior-point method does.
    """
    newton = NewtonDescent(problem, point)
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


def gram_geometry(
    design: Design, weights: FloatArray, unit: str, *, fit_intercept: bool
) -> Geometry:
    """Standardise the columns and factorise their Gram matrix.

    Parameters
    ----------
    design : Design
        The data; its coordinates are changed.
    weights : ndarray of shape (n_parts, n_rows)
        Sample weights of each part, sum one. Fewer rows than columns permit one part only.
    unit : str
        What a penalty of one means: a name in `UNITS`.
    fit_intercept : bool
        Whether there is an intercept; without one, columns are not centred.

    Returns
    -------
    Geometry
        Coordinates for `solve_gram`.
    """
    if design.n_rows < design.n_columns:
        return _row_geometry(design, weights, unit, fit_intercept)
    everywhere, bound = shared_weights(weights)
    gram = _sampled_gram(design, everywhere, fit_intercept)
    if gram is None:
        gram = design.standardise(everywhere, centred=fit_intercept)
    units = design_unit(design, weights, unit, centred=fit_intercept)
    return _column_geometry(design, gram, units, bound, fit_intercept)


def _sampled_gram(design: Design, weights: FloatArray, centred: bool) -> FloatArray | None:
    """Standardise the columns; return the Gram matrix of a sample, if that is enough and cheap."""
    n_rows, size = design.n_rows, _ROWS_PER_COLUMN * design.n_columns
    if n_rows < _WORTH_SAMPLING * size:
        return None
    # One row of each of as many stretches.
    edges = np.linspace(0, n_rows, size + 1)
    places = edges[:-1] + np.diff(edges) * np.random.default_rng(0).random(size)
    rows = places.astype(np.intp)
    share = np.asarray(to_numpy(take_rows(weights, rows)), dtype=np.float64)
    sample = design.sample(rows)
    if sample is None or not share.sum() > 0:
        return None
    design.standardise_diagonal(weights, centred=centred)
    sample.centre, sample.inverse_spread = design.centre, design.inverse_spread
    gram = sample.gram(share / share.sum())
    # What the sample lacks of the variance of a column, as where few rows have all of it.
    lacking = np.maximum((design.inverse_spread > 0) - gram.diagonal(), 0.0)
    return np.asarray(gram + np.diag(lacking))


def _column_geometry(
    design: Design, gram: FloatArray, unit: FloatArray, bound: float, fit_intercept: bool
) -> Geometry:
    """Make coordinates where `bound` times the Gram matrix bounds that of every part."""
    n_columns = design.n_columns
    # What is added is about the rounding of the sums, which grows where sparse rows are centred
    # after they are squared.
    offset = (design.centre * design.inverse_spread) ** 2 if design.is_sparse else np.zeros(1)
    rounding = design.rounding * n_columns * (1.0 + float(np.max(offset, initial=0.0)))
    # Columns that take no part have a zero on the diagonal; a coefficient of zero suits any
    # positive number there.
    still = np.where(design.inverse_spread > 0, 0.0, 1.0)
    mean_unit = np.mean(np.where(np.isfinite(unit), unit, 0.0), axis=0)

    @cache
    def factor(alpha: float) -> Any:
        diagonal, added = (alpha / bound) * mean_unit + still, rounding
        with serial_products():
            while True:
                try:
                    return cho_factor(gram + np.diag(diagonal + added), lower=True)
                except LinAlgError:  # sums in float32 may be further off than they usually are
                    added *= 10.0

    def precondition(points: FloatArray, alpha: float) -> FloatArray:
        # Centred columns have no product with the intercept, whose own curvature is at most one.
        solved = cho_solve(factor(alpha), points[:, :n_columns].T, check_finite=False)
        return np.hstack([solved.T, points[:, n_columns:]]) / bound

    return Geometry(design, fit_intercept, unit, precondition, design.to_data, design.from_data)


def _row_geometry(design: Design, weights: FloatArray, unit: str, fit_intercept: bool) -> Geometry:
    """Make coordinates from a factorisation L Lᵀ of the inner products of the rows.

    A point c has the scores L c and the norm of the penalty. It stands for the combination of the
    pivot rows P with factors a such that L c = K a, that is (L_P)ᵀ a = c.
    """
    if weights.shape[0] > 1:
        raise ValueError("fewer rows than columns permit one part only")
    design.standardise_diagonal(weights[0, :], centred=fit_intercept)
    units = design_unit(design, weights, unit, centred=fit_intercept)[0]
    metric = np.divide(1.0, units, out=np.zeros_like(units), where=units > 0)
    products = design.row_products(metric)
    tol = _RANK * design.n_rows * float(np.finfo(np.float64).eps * products.diagonal().max())
    with serial_products():
        factor, order, rank, _ = dpstrf(products, tol=tol, lower=1, overwrite_a=1)
    rank, order = max(int(rank), 1), order - 1  # a column of zeros where no column takes part
    lower = np.zeros((design.n_rows, rank))
    lower[order] = np.tril(factor)[:, :rank]
    pivots = order[:rank]
    reduced = design_for(lower, near=design)

    def to_data(linear: Linear) -> Linear:
        combinations = np.zeros((design.n_rows, linear[0].shape[1]))
        combinations[pivots] = _solve_lower(lower[pivots].T, linear[0], lower=False)
        coef = np.column_stack([metric * design.pullback(c) for c in combinations.T])
        return design.to_data((coef, linear[1]))

    def from_data(linear: Linear) -> Linear:
        coef, intercept = design.from_data(linear)
        scores = to_numpy(design.scores(coef, np.zeros(coef.shape[1])))
        return _solve_lower(lower[pivots], scores[pivots], lower=True), intercept

    column = _column_geometry(
        reduced, reduced.gram(weights[0, :]), np.ones((1, rank)), 1.0, fit_intercept
    )
    return replace(column, to_data=to_data, from_data=from_data)


def _solve_lower(triangle: FloatArray, right: FloatArray, *, lower: bool) -> FloatArray:
    """Solve a triangular system; where all is zero, so is the solution."""
    if not triangle.any():
        return np.zeros_like(right)
    return np.asarray(solve_triangular(triangle, right, lower=lower))
