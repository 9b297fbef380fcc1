r"""The solver for data with a moderate number of columns, or of rows.

The loss has curvature in [0, 1], so the weighted Gram matrix of the rows plus the penalty bounds
the Hessian from above for every margin, scale and overconfidence, everywhere. It is computed and
factorised once and preconditions a quasi-Newton method that then needs few reads of the data.

With fewer rows than columns the same is done in the space of the rows: an optimal coefficient
vector is a combination of rows, so that with the n × n matrix of inner products K = R Rᵀ the
problem is that of a design with rows R, and no d × d matrix is ever made.
"""

from dataclasses import replace

import numpy as np
from scipy.linalg import cho_factor, cho_solve, eigh

from marginpursuit._validation import FloatArray
from marginpursuit.design import Design, Linear
from marginpursuit.solvers._newton import NewtonDescent
from marginpursuit.solvers._problem import (
    Geometry,
    Problem,
    Progress,
    Solution,
    Status,
    relative_to,
)
from marginpursuit.solvers._quasi_newton import minimise

__all__ = ["gram_geometry", "solve_gram"]

# Quasi-Newton steps after which Newton's method takes over. Most fits are done by then.
_PATIENCE = 50


def solve_gram(problem: Problem) -> Solution:
    """Minimise by the quasi-Newton method, and finish by Newton's where that is slow.

    Parameters
    ----------
    problem : Problem
        What to minimise, with a geometry from `gram_geometry`.

    Returns
    -------
    Solution
        The minimiser.
    """
    first = minimise(replace(problem, max_iter=min(problem.max_iter, _PATIENCE)))
    if first.status is not Status.MAX_ITER or problem.max_iter <= _PATIENCE:
        return first
    assert problem.geometry.bound is not None
    coef, intercept = (part.copy() for part in first.linear)
    value, gap = first.value.copy(), first.gap.copy()
    history, n_iter = list(first.history), first.n_iter
    for k in np.flatnonzero(gap > problem.tol):
        name = int(problem.labels.problems[k])
        descent = NewtonDescent(
            problem, name, coef[:, k], float(intercept[k]), problem.geometry.bound
        )
        for iteration in range(first.n_iter + 1, problem.max_iter + 1):
            descent.step()
            coef[:, k], intercept[k], value[k] = descent.coef, descent.intercept, descent.value
            gap[k] = descent.gap / relative_to(problem.loss, descent.value)
            n_iter = max(n_iter, iteration)
            reads = problem.geometry.design.n_reads
            history.append(Progress(iteration, reads, float(value.mean()), float(gap.max())))
            problem.report(history[-1])
            if gap[k] <= problem.tol:
                break
    status = Status.CONVERGED if np.all(gap <= problem.tol) else Status.MAX_ITER
    return Solution((coef, intercept), value, gap, status, n_iter, tuple(history))


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
    # Columns that take no part have a zero on the diagonal; a coefficient of zero suits any
    # positive number there. What is added elsewhere is below the rounding of the sums.
    bound = gram + np.diag(penalty + 1e-14 * n_columns)
    bound[np.diag_indices(n_columns)] += np.where(design.inverse_spread > 0, 0.0, 1.0)
    factor = cho_factor(bound, lower=True)

    def precondition(vector: FloatArray) -> FloatArray:
        # Centred columns have no product with the intercept, whose own curvature is at most one.
        solved = cho_solve(factor, vector[:n_columns], check_finite=False)
        return np.concatenate([solved, vector[n_columns:]])

    return Geometry(
        design, fit_intercept, penalty, precondition, bound, design.to_data, design.from_data
    )


def _row_geometry(
    design: Design, weights: FloatArray, alpha: float, scale_free: bool, fit_intercept: bool
) -> Geometry:
    design.standardise_diagonal(weights, centred=fit_intercept)
    # Where the penalty is that of the raw coefficients, distances are those of the raw columns.
    column_weights = np.ones(design.n_columns) if scale_free else design.spread**2
    values, vectors = eigh(design.row_products(column_weights))
    kept = values > values[-1] * design.n_rows * np.finfo(np.float64).eps
    roots = np.sqrt(values[kept])
    reduced = Design(np.ascontiguousarray(vectors[:, kept] * roots))

    def to_data(linear: Linear) -> Linear:
        combination = vectors[:, kept] @ (linear[0].T / roots).T
        coef = np.column_stack([column_weights * design.pullback(c) for c in combination.T])
        return design.to_data((coef, linear[1]))

    def from_data(linear: Linear) -> Linear:
        coef, intercept = design.from_data(linear)
        scores = design.scores(coef, np.zeros(coef.shape[1]))
        return (vectors[:, kept].T @ scores / roots[:, np.newaxis]), intercept

    column = _column_geometry(
        reduced, reduced.gram(weights), np.full(reduced.n_columns, alpha), fit_intercept
    )
    return replace(column, to_data=to_data, from_data=from_data)
