r"""The optimisation problem of a margin distribution machine (LDM, ODM), and its solution.

With weights p of sum one, signed rows z_i = y_i x_i, their weighted mean z̄ and covariance C, and
margins m_i = z_i·w,

.. math::

    F(w) = \tfrac12 \|w\|^2 + \tfrac{c}{2} \sum_i p_i (m_i - \bar m)^2 - g\,\bar m
           + \sum_i \ell_i(m_i)
         = \tfrac12 w^\top Q w - g\,\bar z^\top w + \sum_i \ell_i(m_i), \qquad Q = I + c\,C .

The losses are given by the functions h_i of their dual, `Terms`. Every a within the bounds of these
corresponds to w = Q⁻¹(g z̄ + Zᵀa), and F(w) exceeds the minimum by at most the duality gap, the sum
of a_i m_i + h_i(a_i) + ℓ_i(m_i) ≥ 0.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve, eigh

from marginpursuit._kernels.coordinates import Terms
from marginpursuit._validation import FloatArray
from marginpursuit.design import MemoryDesign, Standardisation
from marginpursuit.losses import HingeLoss
from marginpursuit.solvers._problem import Problem, Progress, Status
from marginpursuit.solvers._single_task import SingleTask


@dataclass(frozen=True, slots=True)
class MarginDistributionProblem:
    """One binary problem of a margin distribution machine."""

    sign: FloatArray
    weights: FloatArray  # p, positive, sum one
    terms: Terms
    variance: float  # c
    mean: float  # g
    max_iter: int
    tol: float
    report: Callable[[Progress], None]

    def reference(self, excess: float) -> float:
        """Return what suboptimality is relative to.

        `excess` is the objective less the minimum of its quadratic part, which is the objective
        itself for c = g = 0. It is at least 1 % of the losses at w = 0, as in `Problem`.
        """
        losses = self.terms.loss(np.zeros_like(self.sign))
        return max(excess, Problem.floor_fraction * float(losses.sum()))


@dataclass(frozen=True, slots=True)
class DualPoint:
    """Dual variables at the solution."""

    a: FloatArray
    upper: FloatArray  # upper bounds of a
    curvature: FloatArray  # z_i·Q⁻¹z_i


@dataclass(frozen=True, slots=True)
class MachineFit:
    """The solution of one binary problem."""

    coef: FloatArray  # w, or the coefficients of an expansion in the rows
    value: float  # F(w)
    gap: float  # relative duality gap
    status: Status
    n_iter: int
    dual: DualPoint | None = None


class AugmentedRows:
    """The rows of a design as they are, each with a 1 appended if there is an intercept."""

    def __init__(self, design: MemoryDesign, constant: bool) -> None:
        self._design, self.constant, self.matrix = design, constant, design.matrix
        self.n_rows, self.n_columns = design.n_rows, design.n_columns + constant
        self._identity = Standardisation.identity(design.n_columns)

    @property
    def n_passes(self) -> int:
        """The number of passes over the data so far."""
        return self._design.n_passes

    def scores(self, coef: FloatArray) -> FloatArray:
        """Return x·coef for every row."""
        n_columns = self._design.n_columns
        intercept = coef[n_columns:] if self.constant else np.zeros(1)
        return self._design.scores(coef[:n_columns, np.newaxis], intercept)[:, 0]

    def adjoint(self, factors: FloatArray) -> FloatArray:
        """Return Σ f_i x_i."""
        total = self._design.adjoint(factors, self._identity)
        return np.append(total, factors.sum()) if self.constant else total

    def gram(self, weights: FloatArray) -> FloatArray:
        """Return Σ weight_i x_i x_iᵀ."""
        gram = self._design.gram(weights, self._identity)
        if not self.constant:
            return gram
        total = np.empty((self.n_columns, self.n_columns))
        total[:-1, :-1] = gram
        total[-1] = total[:, -1] = self.adjoint(weights)
        return total

    def quadratic(self, matrix: FloatArray | None) -> FloatArray:
        """Return x·Mx for every row, with M the identity by default."""
        n_columns = self._design.n_columns
        if matrix is None:
            return self._design.quadratic_forms() + float(self.constant)
        total = self._design.quadratic_forms(np.ascontiguousarray(matrix[:n_columns, :n_columns]))
        if self.constant:
            total += self.scores(np.append(2.0 * matrix[:n_columns, -1], matrix[-1, -1]))
        return total


class KernelFeatures:
    """Rows whose inner products are a kernel matrix, with a column for each positive eigenvalue.

    Raises
    ------
    FloatingPointError
        If the matrix is not positive semidefinite.
    """

    def __init__(self, gram: FloatArray) -> None:
        values, vectors = eigh(gram)
        rounding = len(gram) * float(np.finfo(np.float64).eps) * float(np.abs(values).max())
        if values[0] < -max(rounding, 1e-8 * abs(values[-1])):
            raise FloatingPointError("the kernel matrix is not positive semidefinite")
        kept = values > rounding
        kept[-1] = True  # a column of zeros if the kernel is zero
        roots = np.sqrt(np.maximum(values[kept], 0.0))
        self.rows = AugmentedRows(
            MemoryDesign(np.ascontiguousarray(vectors[:, kept] * roots)), False
        )
        self._inverse = np.divide(
            vectors[:, kept], roots, out=np.zeros_like(vectors[:, kept]), where=roots > 0
        )

    def expansion(self, coef: FloatArray) -> FloatArray:
        """Return the coefficients of an expansion in the rows that has these features."""
        return self._inverse @ coef


def quadratic_form(
    machine: MarginDistributionProblem, rows: AugmentedRows
) -> tuple[FloatArray, Any, FloatArray]:
    """Return Q, its Cholesky factor and g z̄.

    Raises
    ------
    FloatingPointError
        If the squares of the rows are too large for Q to be positive definite in floating point.
    """
    mean = rows.adjoint(machine.weights * machine.sign)
    form = np.eye(rows.n_columns)
    if machine.variance > 0:
        form += machine.variance * (rows.gram(machine.weights) - np.outer(mean, mean))
    if not np.all(np.isfinite(form)):
        raise FloatingPointError("the rows have no finite covariance")
    try:
        factor = cho_factor(form, lower=True)
    except np.linalg.LinAlgError as error:
        raise FloatingPointError("the covariance of the rows is lost in rounding") from error
    return form, factor, machine.mean * mean


class TermLosses:
    """The losses ℓ_i of `Terms`, as a function of all margins."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms

    def value(self, margins: FloatArray) -> FloatArray:
        """Return ℓ_i(m_i)."""
        return self._terms.loss(margins)

    def derivative(self, margins: FloatArray) -> FloatArray:
        """Return ℓ_i'(m_i)."""
        return -self._terms.minimiser(margins)


@dataclass(frozen=True)
class ConjugateHinge(HingeLoss):
    """The hinge (1 - m)₊ with its conjugate, which is 0 for dual variables in [0, 1]."""

    side_weights = (1.0,)
    influence_bound = 1.0

    def curvature(self, margin: Any) -> Any:
        """Return the second derivative at the kink, which is infinite."""
        return np.full_like(margin, np.inf)

    def influence_inverse(self, dual: FloatArray) -> FloatArray:
        """Return the residual 0 of the kink."""
        return np.zeros_like(dual)

    def conjugate(self, dual: FloatArray) -> FloatArray:
        """Return 0."""
        return np.zeros_like(dual)


class MachineTask(SingleTask):
    """A machine as a task with a dense quadratic form Q.

    `loss` is that of all rows, without `weights`, which are its weights.
    """

    scale, averages_curvature = 1.0, False

    def __init__(
        self,
        machine: MarginDistributionProblem,
        rows: AugmentedRows,
        loss: Any,
        weights: FloatArray,
    ) -> None:
        self.machine, self.rows, self.loss = machine, rows, loss
        self.sign, self.weights, self.total_weight = machine.sign, weights, float(weights.sum())
        self._form, self.factor, self._offset = quadratic_form(machine, rows)
        self.start = np.asarray(cho_solve(self.factor, self._offset))  # minimises ½ wᵀQw - gᵀw
        self.lower_bound = -0.5 * float(self._offset @ self.start)

    def scores(self, point: FloatArray) -> FloatArray:
        """Return x·w for every row, in one pass over the data."""
        return self.rows.scores(point)

    def adjoint(self, factors: FloatArray) -> FloatArray:
        """Return Σ c_i y_i f_i x_i, in one pass over the data."""
        return self.rows.adjoint(self.weights * self.sign * factors)

    def quadratic_value(self, point: FloatArray) -> float:
        """Return ½ wᵀQw - g z̄ᵀw."""
        return 0.5 * float(point @ self._form @ point) - float(self._offset @ point)

    def quadratic_gradient(self, point: FloatArray) -> FloatArray:
        """Return Qw - g z̄."""
        return np.asarray(self._form @ point - self._offset)

    def factorise(self, curvature: FloatArray) -> Any:
        """Return the Cholesky factor of Q + Σ c_i k_i x_i x_iᵀ."""
        matrix = self._form + self.rows.gram(self.weights * curvature)
        if not np.all(np.isfinite(matrix)):
            raise FloatingPointError("the squares of the rows are not finite")
        return cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)

    def tolerance(self, value: float) -> float:
        """Return `tol` times what suboptimality is relative to."""
        return self.machine.tol * self.machine.reference(value - self.lower_bound)

    def residual_cost(self, residual: FloatArray, scores: FloatArray, safety: float) -> float:
        """Return ½ ρᵀQ⁻¹ρ: with it the gap is exactly the duality gap, as Q is definite."""
        return 0.5 * float(residual @ cho_solve(self.factor, residual))
