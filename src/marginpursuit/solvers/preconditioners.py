r"""Preconditioners: approximate inverses of the Hessian, made once for every loss and penalty.

The losses have curvature in [0, 1], so the weighted Gram matrix of the rows plus the penalty
majorises the Hessian of every loss, everywhere. Folds share one matrix: the mean of their sample
weights, times the factor `fold_ratio` by which it majorises each of them.

A preconditioner is applied to points as `_problem` defines them.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, block_diag, cho_factor, cho_solve

from marginpursuit._threads import single_threaded_blas
from marginpursuit._validation import FloatArray
from marginpursuit.design import Design, Standardisation
from marginpursuit.solvers.policy import Policy


class Preconditioner(ABC):
    """Applies the inverse of a matrix that approximates the Hessian for a penalty α."""

    #: Whether `with_hessian` is available.
    allows_hessian: bool = False

    @abstractmethod
    def apply(self, points: FloatArray, alpha: float) -> FloatArray:
        """Return the inverse times each point, one per row."""

    def with_hessian(self, curvature: FloatArray) -> "Preconditioner":
        """Return a preconditioner from the Hessian with these weighted curvatures of the rows."""
        raise NotImplementedError(f"{type(self).__name__} has no matrix to replace")


@dataclass(frozen=True, slots=True)
class DiagonalPreconditioner(Preconditioner):
    """The diagonal of the Gram matrix, which is one for standardised columns, and the penalty."""

    fold_ratio: float
    unit: FloatArray  # (n_columns,), mean over folds
    fit_intercept: bool

    def apply(self, points: FloatArray, alpha: float) -> FloatArray:
        """Divide by the diagonal."""
        intercept = [self.fold_ratio] * int(self.fit_intercept)
        return np.asarray(points / np.append(self.fold_ratio + alpha * self.unit, intercept))


@dataclass(frozen=True, slots=True)
class CentredDiagonalPreconditioner(Preconditioner):
    """The diagonal for rows that are not centred, taken in centred coordinates."""

    fold_ratio: float
    unit: float
    mean: FloatArray  # (n_columns,)
    variance: FloatArray
    fit_intercept: bool

    def apply(self, points: FloatArray, alpha: float) -> FloatArray:
        """Centre, divide by the diagonal, and translate back."""
        diagonal = self.fold_ratio * self.variance + alpha * self.unit
        if not self.fit_intercept:
            return np.asarray(points / diagonal)
        intercept = points[:, -1:]
        coef = (points[:, :-1] - intercept * self.mean) / diagonal
        offset = (coef @ self.mean)[:, np.newaxis]
        return np.hstack([coef, intercept / self.fold_ratio - offset])


@dataclass(frozen=True, slots=True)
class ScalarPreconditioner(Preconditioner):
    """The smoothness constant: the mean of ‖x‖², one for an intercept, and the penalty."""

    mean_square: float
    unit: float
    fit_intercept: bool

    def apply(self, points: FloatArray, alpha: float) -> FloatArray:
        """Divide by the smoothness constant; it is zero only where all gradients are zero."""
        smoothness = self.mean_square + float(self.fit_intercept) + alpha * self.unit
        return points / (smoothness if smoothness > 0 else 1.0)


@dataclass(eq=False)
class GramPreconditioner(Preconditioner):
    """The Gram matrix of standardised rows, or a Hessian, and the penalty, by Cholesky factors.

    Centred columns have a zero product with the intercept, whose own curvature is at most one.
    """

    design: Design
    standardisation: Standardisation
    weights: FloatArray  # (n_rows,), those of the Gram matrix
    unit: FloatArray  # (n_columns,), mean over folds
    fit_intercept: bool
    fold_ratio: float = 1.0
    gram: FloatArray | None = None  # computed by `compute` where it is not given
    policy: Policy = field(default_factory=Policy)
    allows_hessian: bool = True
    matrix: FloatArray | None = None  # what is inverted; by default the majoriser
    _factors: dict[float, Any] = field(default_factory=dict, init=False)
    _inverses: dict[float, FloatArray] = field(default_factory=dict, init=False)

    def compute(self) -> None:
        """Compute the Gram matrix, unless it is known; `apply` does so on first use."""
        if self.gram is None:
            self.gram = self.design.gram(self.weights, self.standardisation)

    def factorise(self, alpha: float) -> Any:
        """Return the Cholesky factor of the matrix plus the penalty, computed once."""
        if alpha not in self._factors:
            if self.matrix is None:
                self.matrix = self._majoriser()
            diagonal = np.zeros(self._size)
            # Constant columns have a zero diagonal; any positive value keeps the factorisation
            # valid, since their coefficient is fixed at zero.
            constant = np.where(self.standardisation.varies, 0.0, 1.0)
            diagonal[: self.design.n_columns] = alpha * self.unit + constant
            self._factors[alpha] = _cholesky(self.matrix, diagonal, self._rounding())
        return self._factors[alpha]

    def apply(self, points: FloatArray, alpha: float) -> FloatArray:
        """Solve with the matrix of this penalty.

        For many points the product with the inverse is faster: several threads may compute
        products at the same time, while SciPy's triangular solves hold a lock.
        """
        if self.policy.max_columns_per_inverse * len(points) >= self._size:
            return points @ self._inverse(alpha)
        return np.asarray(cho_solve(self.factorise(alpha), points.T, check_finite=False).T)

    def with_hessian(self, curvature: FloatArray) -> "GramPreconditioner":
        """Return the same with the Hessian, plus a small multiple of the majoriser."""
        slope = self.design.adjoint(curvature, self.standardisation)[:, np.newaxis]
        gram = self.design.gram(curvature, self.standardisation)
        hessian = np.block([[gram, slope], [slope.T, curvature.sum()]])
        size = self._size
        majoriser = self.policy.hessian_regularisation * self._majoriser()
        return replace(self, matrix=hessian[:size, :size] + majoriser)

    @property
    def _size(self) -> int:
        return self.design.n_columns + self.fit_intercept

    def _majoriser(self) -> FloatArray:
        """Return a matrix that bounds the Hessian of every loss from above."""
        self.compute()
        assert self.gram is not None
        size = self._size
        whole = block_diag(self.gram, np.ones((1, 1)))[:size, :size]
        return np.asarray(self.fold_ratio * whole)

    def _inverse(self, alpha: float) -> FloatArray:
        if alpha not in self._inverses:
            identity = np.identity(self._size)
            self._inverses[alpha] = np.asarray(cho_solve(self.factorise(alpha), identity))
        return self._inverses[alpha]

    def _rounding(self) -> float:
        """Return the rounding error of the matrix; centring after summing adds to it."""
        design, z = self.design, self.standardisation
        offset = (z.mean * z.inverse_deviation) ** 2 if design.is_sparse else np.zeros(1)
        return design.rounding * design.n_columns * (1.0 + float(np.max(offset, initial=0.0)))


def _cholesky(matrix: FloatArray, diagonal: FloatArray, rounding: float) -> Any:
    """Factorise the matrix plus a diagonal and its rounding error.

    Sums in float32 may have a larger error; the addition then grows until the matrix is positive
    definite.
    """
    with single_threaded_blas():
        while True:
            whole = matrix.copy()
            whole.flat[:: len(matrix) + 1] += diagonal + rounding
            try:
                return cho_factor(whole, lower=True, overwrite_a=True)
            except LinAlgError:
                rounding *= 10.0
