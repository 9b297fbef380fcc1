r"""Preconditioners: approximate inverses of the Hessian, made once for every loss and penalty.

The losses have curvature in [0, 1], so the weighted Gram matrix of the rows plus the penalty
majorises the Hessian of every loss, everywhere. Folds share one matrix: the mean of their sample
weights, times the factor `fold_ratio` by which it majorises each of them.

A preconditioner is applied to points as `_problem` defines them.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, block_diag, cho_factor, cho_solve
from scipy.linalg.lapack import dpotri

from marginpursuit._validation import FloatArray
from marginpursuit.design import Design, Standardisation
from marginpursuit.solvers.policy import Policy, default_policy


class Preconditioner(ABC):
    """Applies the inverse of a matrix that approximates the Hessian for a penalty α."""

    #: Whether `with_hessian` is available.
    allows_hessian: bool = False
    #: Whether `inverse` is available.
    has_inverse: ClassVar[bool] = False

    def compute(self) -> None:
        """Compute what `apply` needs for every penalty, once."""
        return None

    def compute_from(self, copy: Design, order: NDArray[np.intp]) -> None:
        """Compute the same from a copy of the standardised rows, in this order."""
        return None

    @abstractmethod
    def apply(self, points: FloatArray, alpha: float) -> FloatArray:
        """Return the inverse times each point, one per row."""

    def forget(self) -> None:
        """Drop what `apply` has computed for single penalties."""
        return None

    def degrees_of_freedom(self, alpha: float, curvature: FloatArray) -> FloatArray | None:
        """Return the effective degrees of freedom of fits whose losses have mean curvatures.

        None where they are not known.
        """
        return None

    def inverse(self, alpha: float) -> FloatArray:
        """Return the inverse itself, which `apply` multiplies by."""
        raise NotImplementedError(f"{type(self).__name__} has no matrix to invert")

    def with_hessian(self, curvature: FloatArray) -> "Preconditioner":
        """Return a preconditioner from the Hessian with these weighted curvatures of the rows."""
        raise NotImplementedError(f"{type(self).__name__} has no matrix to replace")


@dataclass(frozen=True, slots=True)
class DiagonalPreconditioner(Preconditioner):
    """The diagonal of the Gram matrix, which is one for standardised columns, and the penalty."""

    fold_ratio: float
    penalty_weights: FloatArray  # (n_columns,), mean over folds
    fit_intercept: bool

    def apply(self, points: FloatArray, alpha: float) -> FloatArray:
        """Divide by the diagonal."""
        intercept = [self.fold_ratio] * int(self.fit_intercept)
        return np.asarray(
            points / np.append(self.fold_ratio + alpha * self.penalty_weights, intercept)
        )


@dataclass(frozen=True)
class CentredDiagonalPreconditioner(Preconditioner):
    """The diagonal for rows that are not centred, taken in centred coordinates."""

    design: Design
    weights: FloatArray  # (n_rows,), mean over folds
    fold_ratio: float
    penalty_weight: float
    fit_intercept: bool

    @cached_property
    def _standardisation(self) -> Standardisation:
        """Mean and deviation of the columns: few problems need them, and they take some passes."""
        return self.design.standardisation(self.weights, centred=self.fit_intercept)

    def apply(self, points: FloatArray, alpha: float) -> FloatArray:
        """Centre, divide by the diagonal, and translate back."""
        mean, deviation = self._standardisation.mean, self._standardisation.deviation
        diagonal = self.fold_ratio * deviation**2 + alpha * self.penalty_weight
        if not self.fit_intercept:
            return np.asarray(points / diagonal)
        intercept = points[:, -1:]
        coef = (points[:, :-1] - intercept * mean) / diagonal
        offset = (coef @ mean)[:, np.newaxis]
        return np.hstack([coef, intercept / self.fold_ratio - offset])


@dataclass(frozen=True, slots=True)
class ScalarPreconditioner(Preconditioner):
    """The smoothness constant: the mean of ‖x‖², one for an intercept, and the penalty."""

    mean_square: float
    penalty_weight: float
    fit_intercept: bool

    def apply(self, points: FloatArray, alpha: float) -> FloatArray:
        """Divide by the smoothness constant; it is zero only where all gradients are zero."""
        smoothness = self.mean_square + float(self.fit_intercept) + alpha * self.penalty_weight
        return points / (smoothness if smoothness > 0 else 1.0)


@dataclass(eq=False)
class GramPreconditioner(Preconditioner):
    """The Gram matrix of standardised rows, or a Hessian, and the penalty, by Cholesky factors.

    Centred columns have a zero product with the intercept, whose own curvature is at most one.
    """

    design: Design
    standardisation: Standardisation
    weights: FloatArray  # (n_rows,), those of the Gram matrix
    penalty_weights: FloatArray  # (n_columns,), mean over folds
    fit_intercept: bool
    fold_ratio: float = 1.0
    gram: FloatArray | None = None  # computed on first use where it is not given
    policy: Policy = field(default_factory=default_policy)
    allows_hessian: bool = True
    has_inverse: ClassVar[bool] = True
    matrix: FloatArray | None = None  # what is inverted; by default the majoriser
    _factors: dict[float, Any] = field(default_factory=dict, init=False)
    _inverses: dict[float, FloatArray] = field(default_factory=dict, init=False)

    def compute(self) -> None:
        """Compute the majoriser, unless it or another matrix is to be inverted already."""
        if self.matrix is None:
            self.matrix = self._majoriser()

    def compute_from(self, copy: Design, order: NDArray[np.intp]) -> None:
        """Compute the Gram matrix from a float32 copy of the rows, in a third of the time."""
        if self.matrix is None and self.gram is None:
            identity = Standardisation.identity(copy.n_columns)
            self.gram = copy.gram(self.weights[order], identity)

    def adopt(self, matrix: FloatArray) -> None:
        """Invert another matrix than the majoriser from now on."""
        self.matrix = matrix
        self.forget()

    def apply(self, points: FloatArray, alpha: float) -> FloatArray:
        """Solve with the matrix of this penalty, whose factor is computed once.

        For many points the product with the inverse is faster: several threads may compute
        products at the same time, while SciPy's triangular solves hold a lock.
        """
        if alpha not in self._factors:
            self._factors[alpha] = self._factorise(alpha)
        factor = self._factors[alpha]
        size = len(factor[0])
        if self.policy.max_columns_per_inverse * len(points) < size:
            return np.asarray(cho_solve(factor, points.T, check_finite=False).T)
        return points @ self.inverse(alpha)

    def forget(self) -> None:
        """Drop the factors and inverses of all penalties."""
        self._factors.clear()
        self._inverses.clear()

    def inverse(self, alpha: float) -> FloatArray:
        """Return the inverse of the matrix of this penalty, which is computed once."""
        if alpha not in self._inverses:
            factor, _ = self._factors.get(alpha) or self._factorise(alpha)
            self._inverses[alpha] = inverse_of_factor(factor)
        return self._inverses[alpha]

    def degrees_of_freedom(self, alpha: float, curvature: FloatArray) -> FloatArray | None:
        """Return Σ_j cλ_j/(cλ_j + 1), with the eigenvalues λ of the Gram matrix over the penalty.

        The Hessian of a loss of mean curvature c is about c times the Gram matrix plus the penalty.
        An intercept adds one. None where a column has no penalty.
        """
        varies, penalty = self.standardisation.varies, alpha * self.penalty_weights
        if not np.all(penalty[varies] > 0):
            return None
        scale = np.divide(1.0, np.sqrt(penalty), out=np.zeros_like(penalty), where=varies)
        if self.gram is None:
            self.gram = self.design.gram(self.weights, self.standardisation)
        relative = scale[:, np.newaxis] * self.gram * scale
        if not np.all(np.isfinite(relative)):
            return None
        ratios = np.outer(curvature, np.maximum(np.linalg.eigvalsh(relative), 0.0))
        return np.asarray(np.sum(ratios / (ratios + 1.0), axis=1) + self.fit_intercept)

    def with_hessian(self, curvature: FloatArray) -> "GramPreconditioner":
        """Return the same with the Hessian, plus a small multiple of the majoriser."""
        slope = self.design.adjoint(curvature, self.standardisation)[:, np.newaxis]
        gram = self.design.gram(curvature, self.standardisation)
        hessian = np.block([[gram, slope], [slope.T, curvature.sum()]])
        majoriser = self.policy.hessian_regularisation * self._majoriser()
        size = len(majoriser)
        return replace(self, matrix=hessian[:size, :size] + majoriser)

    def _majoriser(self) -> FloatArray:
        """Return a matrix that bounds the Hessian of every loss from above."""
        if self.gram is None:
            self.gram = self.design.gram(self.weights, self.standardisation)
        size = len(self.gram) + self.fit_intercept
        return np.asarray(self.fold_ratio * block_diag(self.gram, np.ones((1, 1)))[:size, :size])

    def _factorise(self, alpha: float) -> Any:
        """Return the Cholesky factor of the matrix plus the penalty and its rounding error.

        Centring after summing adds to the rounding error, and sums in float32 may have a larger
        one: the addition grows until the matrix is positive definite.
        """
        self.compute()
        assert self.matrix is not None
        design, z = self.design, self.standardisation
        # Constant columns have a zero diagonal; any positive value keeps the factorisation valid,
        # since their coefficient is fixed at zero.
        diagonal = np.zeros(len(self.matrix))
        diagonal[: design.n_columns] = alpha * self.penalty_weights + np.where(z.varies, 0.0, 1.0)
        offset = (z.mean * z.inverse_deviation) ** 2 if design.is_sparse else np.zeros(1)
        rounding = design.rounding * design.n_columns * (1.0 + float(np.max(offset, initial=0.0)))
        while True:
            whole = self.matrix.copy()
            whole.flat[:: len(whole) + 1] += diagonal + rounding
            try:
                return cho_factor(whole, lower=True, overwrite_a=True)
            except LinAlgError:
                rounding *= 10.0


def inverse_of_factor(factor: FloatArray) -> FloatArray:
    """Return the inverse of a matrix from its lower Cholesky factor.

    It takes a third of the operations of solves with the columns of the identity.
    """
    lower = np.tril(dpotri(factor, lower=1)[0])
    return np.asarray(lower + np.tril(lower, -1).T)
