"""Coordinates in the space of the rows, for fewer rows than columns.

An optimal coefficient vector is a combination of rows: with a factor of the n × n matrix of inner
products K = L Lᵀ the problem is that of a design with rows L, and no d × d matrix is computed.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpstrf

from marginpursuit._namespaces import to_numpy
from marginpursuit._validation import FloatArray
from marginpursuit.design import Design, Linear, Standardisation
from marginpursuit.solvers._problem import (
    Problem,
    Request,
    Solution,
    Status,
    request_penalty_weights,
)
from marginpursuit.tasks import JointTasks


@dataclass(frozen=True, slots=True)
class RowSpace:
    """Coordinates from a factorisation K = L Lᵀ of the inner products of the rows.

    A point c has the scores L c and the norm of the penalty. It stands for the combination of the
    pivot rows P with factors a such that L c = K a, that is (L_P)ᵀ a = c.
    """

    design: Design
    standardisation: Standardisation
    inverse_penalty_weights: FloatArray  # (n_columns,), 1/u, or zero
    lower: FloatArray  # (n_rows, rank)
    pivots: NDArray[np.intp]
    truncation: float  # the trace of K - L Lᵀ, up to rounding

    #: The smallest squared pivot, relative to the largest, above which a model for the rows has the
    #: objective of its point to 1e-8.
    exact_pivot: ClassVar[float] = 1e-8

    @property
    def is_exact(self) -> bool:
        """Whether a point has the objective of its model for the rows, up to rounding."""
        squares = self.lower[self.pivots].diagonal() ** 2
        return self.truncation == 0 and float(squares.min()) >= self.exact_pivot * squares.max()

    def to_data(self, linear: Linear) -> Linear:
        """Translate a point to a model for the rows as they are."""
        combinations = np.zeros((self.design.n_rows, linear[0].shape[1]))
        combinations[self.pivots] = _solve_lower(self.lower[self.pivots].T, linear[0], lower=False)
        columns = [self.design.adjoint(c, self.standardisation) for c in combinations.T]
        coef = self.inverse_penalty_weights[:, np.newaxis] * np.column_stack(columns)
        return self.standardisation.to_data((coef, linear[1]))

    def from_data(self, linear: Linear) -> Linear:
        """Translate a model for the rows as they are."""
        coef, intercept = self.standardisation.from_data(linear)
        zero = np.zeros(coef.shape[1])
        scores = to_numpy(self.design.scores(coef, zero, self.standardisation))
        return _solve_lower(self.lower[self.pivots], scores[self.pivots], lower=True), intercept

    def squared_norms(self, coef: FloatArray) -> FloatArray:
        """Return Σ_j u_j w_j² for the coefficients of standardised columns of each task."""
        is_free = self.inverse_penalty_weights > 0
        return np.asarray(1.0 / self.inverse_penalty_weights[is_free] @ coef[is_free] ** 2)

    def outside(self, slopes: FloatArray) -> float:
        """Return the squared norm of the part of Σ_i slopes_i x_i outside of the pivots' span.

        The residual of row i is x_i - Σ_p a_p x_p, with (L_P)ᵀ a = L_i. The weighted sum of the
        residuals is computed from the rows, so that its rounding error is relative to the norms of
        the rows. That of the trace of K - L Lᵀ is relative to their squares.
        """
        factors = slopes.copy()
        factors[self.pivots] = 0.0
        combined = (self.lower.T @ factors)[:, np.newaxis]
        factors[self.pivots] = -_solve_lower(self.lower[self.pivots].T, combined, lower=False)[:, 0]
        return float(
            self.inverse_penalty_weights @ self.design.adjoint(factors, self.standardisation) ** 2
        )

    @classmethod
    def of(cls, request: Request) -> "RowSpace":
        """Factorise the inner products of the standardised rows of a request with one fold."""
        if request.has_folds:
            raise ValueError("with fewer rows than columns one fold is prepared at a time")
        design = request.design
        standardisation = design.standardisation(
            request.weights[0, :], centred=request.fit_intercept
        )
        penalty_weights = request_penalty_weights(request, standardisation)[0]
        inverse_penalty_weights = np.divide(
            1.0, penalty_weights, out=np.zeros_like(penalty_weights), where=penalty_weights > 0
        )
        products = design.row_products(inverse_penalty_weights, standardisation)
        eps, squares = float(np.finfo(np.float64).eps), products.diagonal().copy()
        tol = request.policy.rank_tolerance * design.n_rows * eps * float(squares.max())
        factor, order, rank, _ = dpstrf(products, tol=tol, lower=1, overwrite_a=1)
        rank, order = max(int(rank), 1), order - 1  # one column of zeros where all are constant
        lower = np.zeros((design.n_rows, rank))
        lower[order] = np.tril(factor)[:, :rank]
        # Squared norms of the residuals of rows; each is at least its rounding error.
        rests = np.maximum(squares - np.einsum("ij,ij->i", lower, lower), eps * squares)
        truncation = float(rests[order[rank:]].sum())
        return cls(
            design, standardisation, inverse_penalty_weights, lower, order[:rank], truncation
        )


def _solve_lower(triangle: FloatArray, right: FloatArray, *, lower: bool) -> FloatArray:
    """Solve a triangular system; the solution of a zero system is zero."""
    if not triangle.any():
        return np.zeros_like(right)
    return np.asarray(solve_triangular(triangle, right, lower=lower))


def with_truncation(problem: Problem, solution: Solution, space: RowSpace) -> Solution:
    """Add to the gap a bound on the error of the truncated factorisation K ≈ L Lᵀ.

    Outside of the span of the pivot rows the gradient is Σ c_i φ'_i r_i, with residuals r of the
    rows whose squared norms sum to at most t = `RowSpace.truncation`. As φ'² ≤ 2φ, its squared norm
    is at most 2 t max(c) F, and by strong convexity the gap is at most t max(c) F/α. Where that
    exceeds the tolerance, this part of the gradient is computed at the solution, in a pass for each
    task. Let e be the gap of the solution within the span. At the minimiser within the span the
    norm is larger by at most √(2 t max(c) e): the change of φ', squared, is at most twice the
    Bregman distance of φ, and these sum to at most e. The objective is that of the rows as they
    are, also where t = 0 and small pivots magnify the rounding errors of a model for the rows.
    """
    largest = space.truncation * float(to_numpy(problem.tasks.weights).max())
    hidden = solution.value * largest / np.maximum(problem.alphas, largest)  # at most F: F* ≥ 0
    reference = problem.relative_to(solution.value)
    if np.any(hidden > 1e-9 * reference) or space.truncation == 0:
        solution = replace(solution, value=_data_value(problem, solution, space))
    if np.any(hidden > problem.tol * reference) and not isinstance(problem.tasks, JointTasks):
        hidden = np.minimum(hidden, _gap_outside(problem, solution, space, largest))
    gap = solution.gap + hidden / reference
    is_hidden = solution.status is Status.CONVERGED and np.any(gap > problem.tol)
    status = Status.ROUNDING if is_hidden else solution.status
    return replace(solution, gap=gap, status=status)


def _data_value(problem: Problem, solution: Solution, space: RowSpace) -> FloatArray:
    """Return the objective at the coefficients for the rows as they are, in one pass."""
    n_tasks, standardisation = len(problem.tasks), space.standardisation
    coef, intercept = standardisation.from_data(space.to_data(solution.linear))
    losses = space.design.sweep(coef, intercept, problem.tasks, standardisation).value
    squares = space.squared_norms(coef).reshape(n_tasks, -1).sum(axis=1)
    return np.asarray(losses + 0.5 * problem.alphas * squares)


def _gap_outside(
    problem: Problem, solution: Solution, space: RowSpace, largest: float
) -> FloatArray:
    """Bound the gap of each task by ‖g‖²/(2α), g the gradient outside of the pivots' span.

    `largest` is t max(c); see `with_truncation`.
    """
    prepared, tasks = problem.prepared, problem.tasks.on_host()
    scores = to_numpy(prepared.design.scores(*solution.linear, prepared.standardisation))
    squares = np.empty(len(tasks))
    for k, loss in enumerate(tasks.losses):
        sign, weights = tasks.sign(k), tasks.weights[tasks.fold[k]]
        squares[k] = space.outside(weights * sign * loss.derivative(sign * scores[:, k]))
    inside = solution.gap * problem.relative_to(solution.value)
    squares = (np.sqrt(squares) + np.sqrt(2.0 * largest * inside)) ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(squares > 0, squares / (2.0 * problem.alphas), 0.0)
