r"""One task as a function of a single vector w, with its Hessian and its dual.

A point is a vector: coefficients and, if there is one, the intercept. Only rows of positive weight
count. With weights c, margins m_i = y_i x_i·w and a quadratic form Q, the objective is

.. math:: F(w) = \tfrac12 w^\top Q w - g^\top w + \sum_i c_i\, \varphi(m_i) .

The loss has one or two sides: below the level γ, with weight 1, and above it, with weight τ. Each
side is a function of its own residual, γ - m and m - γ, and zero where that is negative. Its
derivative, the *dual variable* a, lies in [0, B] with the bound B of the side. Arrays of dual
variables have shape (n_sides, n_rows); for τ = 0 there is one side.

By the Fenchel-Young inequality every a in [0, B] gives a lower bound on the minimum of F, if the
*dual residual* Σ c_i y_i (a⁺ - a⁻)_i x_i + g - Qw is zero for some w. A residual that is not zero
weakens the bound by `residual_cost`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import cho_factor

from marginpursuit._namespaces import to_numpy
from marginpursuit._validation import FloatArray
from marginpursuit.design import Design, MemoryDesign
from marginpursuit.losses import has, require
from marginpursuit.solvers._problem import Problem, Rows
from marginpursuit.solvers._row_losses import RowLosses


class TwoSides:
    """The sides of a loss as functions of their residuals, and their conjugates.

    Raises
    ------
    ValueError
        If the loss has no conjugate.
    """

    def __init__(self, loss: Any) -> None:
        require(loss, "conjugate", "side_weights", "curvature", solver="the duality gap")
        self._loss, self.level = loss, float(loss.margin)
        self._weight = np.array(loss.side_weights)[:, np.newaxis]
        self.sign = np.array([[1.0], [-1.0]])[: len(self._weight)]
        self.bound = self._weight * loss.influence_bound

    def residual(self, margins: FloatArray) -> FloatArray:
        """Return the residuals of the sides."""
        return np.asarray(self.sign * (self.level - margins))

    def conjugate_derivative(self, dual: FloatArray) -> FloatArray:
        """Return the residuals at which the sides have these dual variables as derivative."""
        return np.asarray(self._loss.influence_inverse(dual / self._weight))

    def conjugate_curvature(self, residual: FloatArray) -> FloatArray:
        """Return the second derivative of the conjugate where its derivative is `residual`."""
        with np.errstate(divide="ignore"):  # infinite at the bound, where the loss is linear
            return np.asarray(1.0 / (self._weight * self._loss.curvature(self.level - residual)))

    def conjugate(self, dual: FloatArray) -> FloatArray:
        """Return the conjugates of the sides."""
        return np.asarray(self._weight * self._loss.conjugate(dual / self._weight))


class SingleTask(ABC):
    """One task; a subclass provides the rows and the quadratic part.

    Attributes
    ----------
    loss : Loss
        The loss φ.
    scale : float
        The distance, in units of the margin, over which φ' changes.
    averages_curvature : bool
        Whether φ'' is replaced by its mean over the last change of the margin. That is right for
        a loss that is curved over a short interval only.
    sign, weights : ndarray of shape (n_rows,)
        Labels y and weights c > 0.
    total_weight : float
        The sum of the weights of all rows, in a restriction to active rows too.
    lower_bound : float
        A lower bound on F.
    """

    loss: Any
    scale: float
    averages_curvature: bool
    sign: FloatArray
    weights: FloatArray
    total_weight: float
    lower_bound: float

    @abstractmethod
    def scores(self, point: FloatArray) -> FloatArray:
        """Return x·w for every row, in one pass over the data."""

    @abstractmethod
    def adjoint(self, factors: FloatArray) -> FloatArray:
        """Return Σ c_i y_i f_i x_i, in one pass over the data."""

    @abstractmethod
    def quadratic_value(self, point: FloatArray) -> float:
        """Return ½ wᵀQw - gᵀw."""

    @abstractmethod
    def quadratic_gradient(self, point: FloatArray) -> FloatArray:
        """Return Qw - g."""

    @abstractmethod
    def factorise(self, curvature: FloatArray) -> Any:
        """Return the Cholesky factor of Q + Σ c_i k_i x_i x_iᵀ for curvatures k.

        Raises
        ------
        LinAlgError
            If the matrix is singular to working precision.
        """

    def hessian_product(self, curvature: FloatArray) -> Callable[[FloatArray], FloatArray] | None:
        """Return the product with Q + Σ c_i k_i x_i x_iᵀ, or None if it needs all rows."""
        return None

    @abstractmethod
    def tolerance(self, value: float) -> float:
        """Return the suboptimality at which to stop, where the objective has this value."""

    @abstractmethod
    def residual_cost(self, residual: FloatArray, scores: FloatArray, safety: float) -> float:
        """Return by how much a dual residual weakens the lower bound on the minimum.

        `safety` multiplies a distance to the minimiser that is estimated.
        """

    def value(self, point: FloatArray, scores: FloatArray) -> float:
        """Return the objective at a point with these scores."""
        losses = self.loss.value(self.sign * scores)
        return float(self.weights @ losses) + self.quadratic_value(point)

    def value_and_dual(self, point: FloatArray, scores: FloatArray) -> tuple[float, FloatArray]:
        """Return the objective at a point with these scores, and -φ'(m) for every row."""
        return self.value(point, scores), -self.loss.derivative(self.sign * scores)

    def line(self, scores: FloatArray, change: FloatArray, step: float) -> tuple[float, float]:
        """Return the sum of the weighted losses at f + t g, and its derivative in t."""
        margins, change = self.sign * (scores + step * change), self.sign * change
        slope = self.weights @ (change * self.loss.derivative(margins))
        return float(self.weights @ self.loss.value(margins)), float(slope)

    def mean_curvature(self, scores: FloatArray, width: FloatArray, least: float) -> FloatArray:
        """Return the divided difference of φ' over m ± the width, which is at least `least`."""
        margins, width = self.sign * scores, np.maximum(width, least)
        change = self.loss.derivative(margins + width) - self.loss.derivative(margins - width)
        return np.asarray(np.maximum(0.5 * change / width, 0.0))

    @property
    def has_conjugate(self) -> bool:
        """Whether the loss has a conjugate, so that the duality gap can be bounded."""
        return has(self.loss, "conjugate")

    @cached_property
    def sides(self) -> TwoSides:
        """The sides of the loss."""
        return TwoSides(self.loss)

    def dual_residual(self, dual: FloatArray, point: FloatArray) -> FloatArray:
        """Return Σ c_i y_i a_i x_i + g - Qw for dual variables of the sides."""
        return self.adjoint((self.sides.sign * dual).sum(axis=0)) - self.quadratic_gradient(point)

    def duality_gap(
        self,
        scores: FloatArray,
        dual: FloatArray,
        residual: FloatArray,
        *,
        rows: Rows = slice(None),
        safety: float = 1.0,
    ) -> float:
        """Bound the suboptimality of a point with these scores by dual variables of the sides.

        `dual` has a column for each of `rows`; the other rows have the derivative of their loss as
        dual variable, and add nothing to the gap.
        """
        margins = self.sign * scores
        losses = self.loss.value(margins)
        conjugates = self.sides.conjugate(dual) - dual * self.sides.residual(margins[rows])
        excess = float(self.weights[rows] @ (losses[rows] + conjugates.sum(axis=0)))
        rounding = float(np.finfo(np.float64).eps) * float(self.weights @ losses)
        return max(rounding, excess + self.residual_cost(residual, scores, safety))


class ProblemTask(SingleTask):
    """One task of a `Problem`: Q is the diagonal of penalties, and the intercept has none."""

    total_weight, lower_bound = 1.0, 0.0

    def __init__(self, problem: Problem, task: int) -> None:
        prepared, tasks = problem.prepared, problem.tasks.on_host()
        weights = tasks.weights[tasks.fold[task]]
        self.problem, self.task = problem, task
        self.loss = tasks.losses[task]
        self.averages_curvature = has(self.loss, "scale")
        self.scale = float(getattr(self.loss, "scale", 1.0))
        self.rows = np.flatnonzero(weights)
        self.weights = weights[self.rows]
        self.sign = tasks.sign(task)[self.rows]
        self.penalty = np.append(problem.penalty[task], np.zeros(int(prepared.fit_intercept)))
        self._design, self._fit_intercept = prepared.design, prepared.fit_intercept
        self._standardisation = prepared.standardisation
        self._has_all_rows = len(self.rows) == prepared.design.n_rows
        self._losses: RowLosses | None = None
        if getattr(self.loss, "kernel_parameters", None) is not None:
            threads = prepared.design.threads
            self._losses = RowLosses(self.loss, self.sign, self.weights, threads)

    def value_and_dual(self, point: FloatArray, scores: FloatArray) -> tuple[float, FloatArray]:
        """Return the objective at a point with these scores, and -φ'(m) for every row."""
        if self._losses is None:
            return super().value_and_dual(point, scores)
        value, dual = self._losses.value_and_dual(scores)
        return value + self.quadratic_value(point), dual

    def line(self, scores: FloatArray, change: FloatArray, step: float) -> tuple[float, float]:
        """Return the sum of the weighted losses at f + t g, and its derivative in t."""
        if self._losses is None:
            return super().line(scores, change, step)
        return self._losses.line(scores, change, step)

    def mean_curvature(self, scores: FloatArray, width: FloatArray, least: float) -> FloatArray:
        """Return the divided difference of φ' over m ± the width, which is at least `least`."""
        if self._losses is None:
            return super().mean_curvature(scores, width, least)
        return self._losses.curvature(scores, width, least)

    def scores(self, point: FloatArray) -> FloatArray:
        """Return x·w for every row, in one pass over the data."""
        scores = self._scores(self._design, point)
        return scores if self._has_all_rows else scores[self.rows]

    def adjoint(self, factors: FloatArray) -> FloatArray:
        """Return Σ c_i y_i f_i x_i, in one pass over the data."""
        return self._adjoint(self._design, self._weighted(self.sign * factors))

    def quadratic_value(self, point: FloatArray) -> float:
        """Return ½ wᵀQw."""
        return 0.5 * float(self.penalty @ point**2)

    def quadratic_gradient(self, point: FloatArray) -> FloatArray:
        """Return Qw."""
        return np.asarray(self.penalty * point)

    def factorise(self, curvature: FloatArray) -> Any:
        """Return the Cholesky factor of the Hessian for these curvatures of the rows."""
        n_columns, total = self._design.n_columns, self._weighted(curvature)
        # As in the Gram preconditioner, the diagonal is raised by the rounding of the sums.
        matrix = np.diag(self.penalty + self._design.rounding * n_columns * total.sum())
        matrix[:n_columns, :n_columns] += self._design.gram(total, self._standardisation)
        if self._fit_intercept:
            matrix[-1] += self._adjoint(self._design, total)
            matrix[:-1, -1] = matrix[-1, :-1]
        fixed = self._project(np.ones(len(matrix))) == 0
        if fixed.any():
            matrix[fixed], matrix[:, fixed] = 0.0, 0.0
            matrix[fixed, fixed] = 1.0
        return cho_factor(matrix, lower=True, overwrite_a=True)

    def hessian_product(self, curvature: FloatArray) -> Callable[[FloatArray], FloatArray] | None:
        """Return the product with the Hessian, from a copy of the rows with non-zero curvature.

        None where rows cannot be copied cheaply: sparse, or not in memory.
        """
        design, curved = self._design, np.flatnonzero(curvature)
        if not isinstance(design, MemoryDesign) or design.is_sparse:
            return None
        copied, factors = (
            design.cached_subset(self.rows[curved]),
            self.weights[curved] * curvature[curved],
        )

        def product(point: FloatArray) -> FloatArray:
            total = self._adjoint(copied, factors * self._scores(copied, point))
            return total + self.penalty * point

        return product

    def tolerance(self, value: float) -> float:
        """Return `tol` times what suboptimality is relative to."""
        reference = self.problem.relative_to(np.full(len(self.problem.tasks), value))
        return self.problem.tol * float(reference[self.task])

    def residual_cost(self, residual: FloatArray, scores: FloatArray, safety: float) -> float:
        """Return the norm of the residual times the distance to the minimiser.

        The norm is dual to that of the preconditioner, in which scores of root mean square s are at
        a distance of about s. That of the minimiser is at most about γ.
        """
        points = residual[np.newaxis], np.array([self.task])
        norm = np.sqrt(residual @ self.problem.precondition(*points)[0])
        distance = self.sides.level + np.sqrt(self.weights @ scores**2)
        return float(safety * norm * distance)

    def least_gap(self, point: FloatArray) -> float:
        """Return ½ gᵀP⁻¹g: F exceeds its minimum by at least this, as P majorises the Hessian."""
        _, dual = self.value_and_dual(point, self.scores(point))
        gradient = self.quadratic_gradient(point) - self.adjoint(dual)
        conditioned = self.problem.precondition(gradient[np.newaxis], np.array([self.task]))[0]
        return 0.5 * float(gradient @ conditioned)

    def _weighted(self, values: FloatArray) -> FloatArray:
        """Return weight times value for every row of the data."""
        if self._has_all_rows:
            return self.weights * values
        total = np.zeros(self._design.n_rows)
        total[self.rows] = self.weights * values
        return total

    def _scores(self, design: Design, point: FloatArray) -> FloatArray:
        n_columns = design.n_columns
        intercept = point[n_columns:] if self._fit_intercept else np.zeros(1)
        scores = design.scores(point[:n_columns, np.newaxis], intercept, self._standardisation)
        return np.asarray(to_numpy(scores)[:, 0], dtype=np.float64)

    def _adjoint(self, design: Design, factors: FloatArray) -> FloatArray:
        total = design.adjoint(factors, self._standardisation)
        total = np.append(total, factors.sum()) if self._fit_intercept else total
        return self._project(total)

    def _project(self, point: FloatArray) -> FloatArray:
        """Set the entries of coefficients that are fixed at zero to zero."""
        fixed = self.problem.project(point[np.newaxis].copy(), np.array([self.task]))
        return np.asarray(fixed[0])
