r"""The problem of a margin distribution machine, and what comes out of solving it.

With weights p that sum to one, signed rows z_i = y_i x_i, their weighted mean z̄ and covariance C,
and margins m_i = z_i·w,

.. math::

    F(w) = \tfrac12 \|w\|^2 + \tfrac{c}{2} \sum_i p_i (m_i - \bar m)^2 - g\,\bar m
           + \sum_i \ell_i(m_i)
         = \tfrac12 w^\top Q w - g\,\bar z^\top w + \sum_i \ell_i(m_i), \qquad Q = I + c\,C .

The losses are given by their duals, `Terms`. For any a within the bounds of these,
w = Q⁻¹(g z̄ + Zᵀa) is the w that belongs to it, and F(w) exceeds the minimum by at most the duality
gap, the sum of a_i m_i + h_i(a_i) + ℓ_i(m_i) ≥ 0.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, eigh

from marginpursuit._kernels.coordinates import Terms
from marginpursuit._validation import FloatArray
from marginpursuit.design import MemoryDesign, Standardisation
from marginpursuit.solvers._problem import Progress, Status


@dataclass(frozen=True, slots=True)
class Machine:
    """A fit to be made, for one class against the rest."""

    sign: FloatArray
    weights: FloatArray  # p, positive, sum one
    terms: Terms
    variance: float  # c
    mean: float  # g
    max_iter: int
    tol: float
    report: Callable[[Progress], None]

    def measure(self, gap: float, regularised: float) -> float:
        """Return the gap relative to the objective, counted from the minimum of its square part.

        `regularised` is ½ (w - w₀)ᵀQ(w - w₀), w₀ = g Q⁻¹z̄, plus the losses; so for c = g = 0 it is
        the objective. It counts as at least a hundredth of the losses without coefficients.
        """
        least = 1e-2 * float(self.terms.loss(np.zeros_like(self.sign)).sum())
        return gap / max(regularised, least)


@dataclass(frozen=True, slots=True)
class MachineFit:
    """A fit that was made."""

    coef: FloatArray  # w, or the coefficients of an expansion in the rows
    value: float  # F(w)
    gap: float  # relative
    status: Status
    n_iter: int
    dual: "DualPoint | None" = None


@dataclass(frozen=True, slots=True)
class DualPoint:
    """Where a solver of the dual ended."""

    a: FloatArray
    upper: FloatArray  # the upper bounds of a
    curvature: FloatArray  # z_i·Q⁻¹z_i


class AugmentedRows:
    """The rows of a design as they are, each with a one appended if there is a constant."""

    def __init__(self, design: MemoryDesign, constant: bool) -> None:
        self._design, self.constant, self.matrix = design, constant, design.matrix
        self._identity = Standardisation.identity(design.n_columns)
        self.n_rows, self.n_columns = design.n_rows, design.n_columns + constant

    @property
    def passes(self) -> int:
        """The reads of the data so far."""
        return self._design.n_passes

    def scores(self, coef: FloatArray) -> FloatArray:
        """Return x·coef for every row."""
        n_columns = self._design.n_columns
        intercept = coef[n_columns:] if self.constant else np.zeros(1)
        return self._design.scores(coef[:n_columns, np.newaxis], intercept)[:, 0]

    def pull(self, factors: FloatArray) -> FloatArray:
        """Return the sum of factor times row."""
        total = self._design.adjoint(factors, self._identity)
        return np.append(total, factors.sum()) if self.constant else total

    def gram(self, weights: FloatArray) -> FloatArray:
        """Return the sum of weight times the outer square of the row."""
        gram = self._design.gram(weights, self._identity)
        if not self.constant:
            return gram
        total = np.empty((self.n_columns, self.n_columns))
        total[:-1, :-1] = gram
        total[-1] = total[:, -1] = self.pull(weights)
        return total

    def quadratic(self, matrix: FloatArray | None) -> FloatArray:
        """Return x·Mx for every row; without a matrix, its squared norm."""
        n_columns = self._design.n_columns
        if matrix is None:
            return self._design.quadratic_forms() + float(self.constant)
        total = self._design.quadratic_forms(np.ascontiguousarray(matrix[:n_columns, :n_columns]))
        if self.constant:
            total += self.scores(np.append(2.0 * matrix[:n_columns, -1], matrix[-1, -1]))
        return total


class KernelFeatures:
    """Rows whose inner products are a kernel matrix, one column for each eigenvalue that counts.

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
        kept[-1] = True  # a column of zeros where the kernel is zero
        roots = np.sqrt(np.maximum(values[kept], 0.0))
        self.rows = AugmentedRows(
            MemoryDesign(np.ascontiguousarray(vectors[:, kept] * roots)), False
        )
        self._back = np.divide(
            vectors[:, kept], roots, out=np.zeros_like(vectors[:, kept]), where=roots > 0
        )

    def expansion(self, coef: FloatArray) -> FloatArray:
        """Return the coefficients, in the rows of the matrix, of a combination of columns."""
        return self._back @ coef


def quadratic_form(machine: Machine, rows: AugmentedRows) -> tuple[FloatArray, Any, FloatArray]:
    """Return Q, its Cholesky factor and g z̄.

    Raises
    ------
    FloatingPointError
        Where the squares of the rows are too large for Q to be positive definite in floating point.
    """
    mean = rows.pull(machine.weights * machine.sign)
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
