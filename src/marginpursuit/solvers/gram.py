r"""The solver for data with a moderate number of columns, or of rows.

The loss has curvature in [0, 1], so the weighted Gram matrix of the rows plus the penalty bounds
the Hessian from above for every margin, scale and overconfidence, everywhere. It is computed and
factorised once and preconditions a quasi-Newton method that then needs few reads of the data.

With fewer rows than columns the same is done in the space of the rows: an optimal coefficient
vector is a combination of rows, so that with the n × n matrix of inner products K = R Rᵀ the
problem is that of a design with rows R, and no d × d matrix is ever made.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from scipy.linalg import cho_factor, cho_solve, eigh

from marginpursuit._validation import FloatArray
from marginpursuit.design import Design, Linear
from marginpursuit.solvers._interior_point import InteriorPoint
from marginpursuit.solvers._newton import NewtonDescent
from marginpursuit.solvers._problem import (
    Geometry,
    Problem,
    Progress,
    Solution,
    Status,
    relative_to,
)
from marginpursuit.solvers._quasi_newton import join, minimise, part
from marginpursuit.solvers._single import SingleProblem

__all__ = ["gram_geometry", "solve_gram"]

# A Gram matrix takes as long as reads of a twentieth as many as there are columns; what follows is
# in proportion, and at least so many steps. After the first number of quasi-Newton steps, the data
# have shown directions in which the Hessian is far below its bound, and the estimate of the gap is
# checked by the Hessian itself. The second is where the quasi-Newton method is given up.
_UNCHECKED_STEPS, _UNCHECKED_SHARE = 20, 0.1
_MOST_STEPS, _MOST_SHARE = 50, 0.25

# Fewer steps are also checked where rows above the level have no curvature to speak of: what the
# penalty alone decides is easily missed there.
_LITTLE_OVERCONFIDENCE = 0.1

# Newton steps after which the interior-point method takes over.
_NEWTON_STEPS = 40


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
    patience = max(_MOST_STEPS, min(int(_MOST_SHARE * n_columns), problem.max_iter - _MOST_STEPS))
    first = minimise(replace(problem, max_iter=min(problem.max_iter, patience)))
    few = first.n_iter < max(_UNCHECKED_STEPS, _UNCHECKED_SHARE * n_columns)
    harmless = few and problem.loss.overconfidence >= _LITTLE_OVERCONFIDENCE
    if harmless or first.n_iter == problem.max_iter:
        return first
    points, value, gap = join(problem, *first.linear), first.value.copy(), first.gap.copy()
    history, n_iter = list(first.history), first.n_iter
    for k, name in enumerate(problem.labels.problems):
        states = _finish(SingleProblem(problem, int(name)), points[:, k])
        for iteration, state in zip(
            range(first.n_iter, problem.max_iter + 1), states, strict=False
        ):
            estimate = float(state.gap / relative_to(problem.loss, state.value))
            gap[k] = estimate if iteration > first.n_iter else max(gap[k], estimate)
            if iteration > first.n_iter:
                points[:, k], value[k] = state.point, state.value
                reads = problem.geometry.design.n_reads
                history.append(Progress(iteration, reads, float(value.mean()), float(gap.max())))
                problem.report(history[-1])
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
    design: Design, weights: FloatArray, alpha: float, *, scale_free: bool, fit_intercept: bool
) -> Geometry:
    """Standardise the columns and factorise their Gram matrix.

    Parameters
    ----------
    design : Design
        The data; its coordinates are changed.
    weights : ndarray of shape (n_rows,)
        Sample weights, sum one.
    alpha : float
        The penalty, of the squared coefficients of the data as it came, or, if `scale_free`, of
        the standardised data.
    scale_free : bool
        Whether the penalty is that of the standardised coefficients.
    fit_intercept : bool
        Whether there is an intercept; without one, columns are not centred.

    Returns
    -------
    Geometry
        Coordinates for `solve_gram`.
    """
    if design.n_rows < design.n_columns:
        return _row_geometry(design, weights, alpha, scale_free, fit_intercept)
    gram = design.standardise(weights, centred=fit_intercept)
    penalty = alpha * (np.ones(design.n_columns) if scale_free else design.inverse_spread**2)
    return _column_geometry(design, gram, penalty, fit_intercept)


def _column_geometry(
    design: Design, gram: FloatArray, penalty: FloatArray, fit_intercept: bool
) -> Geometry:
    n_columns = design.n_columns
    # What is added is about the rounding of the sums, which grows where sparse rows are centred
    # after they are squared.
    offset = (design.centre * design.inverse_spread) ** 2 if design.is_sparse else np.zeros(1)
    rounding = 1e-14 * n_columns * (1.0 + float(np.max(offset, initial=0.0)))
    # Columns that take no part have a zero on the diagonal; a coefficient of zero suits any
    # positive number there.
    still = np.where(design.inverse_spread > 0, 0.0, 1.0)
    factor = cho_factor(gram + np.diag(penalty + rounding + still), lower=True)

    def precondition(vector: FloatArray) -> FloatArray:
        # Centred columns have no product with the intercept, whose own curvature is at most one.
        solved = cho_solve(factor, vector[:n_columns], check_finite=False)
        return np.concatenate([solved, vector[n_columns:]])

    return Geometry(design, fit_intercept, penalty, precondition, design.to_data, design.from_data)


def _row_geometry(
    design: Design, weights: FloatArray, alpha: float, scale_free: bool, fit_intercept: bool
) -> Geometry:
    design.standardise_diagonal(weights, centred=fit_intercept)
    # Where the penalty is that of the raw coefficients, distances are those of the raw columns.
    column_weights = np.ones(design.n_columns) if scale_free else design.spread**2
    values, vectors = eigh(design.row_products(column_weights))
    kept = values > values[-1] * design.n_rows * np.finfo(np.float64).eps
    kept[-1] = True  # a column of zeros where no column of the data takes part
    vectors, roots = vectors[:, kept], np.sqrt(np.maximum(values[kept], 0.0))
    inverse_roots = np.divide(1.0, roots, out=np.zeros_like(roots), where=roots > 0)[:, np.newaxis]
    reduced = Design(np.ascontiguousarray(vectors * roots))

    def to_data(linear: Linear) -> Linear:
        combinations = vectors @ (linear[0] * inverse_roots)
        coef = np.column_stack([column_weights * design.pullback(c) for c in combinations.T])
        return design.to_data((coef, linear[1]))

    def from_data(linear: Linear) -> Linear:
        coef, intercept = design.from_data(linear)
        scores = design.scores(coef, np.zeros(coef.shape[1]))
        return vectors.T @ scores * inverse_roots, intercept

    column = _column_geometry(
        reduced, reduced.gram(weights), np.full(reduced.n_columns, alpha), fit_intercept
    )
    return replace(column, to_data=to_data, from_data=from_data)
