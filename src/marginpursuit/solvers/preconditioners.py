r"""Preconditioners: approximate inverses of the Hessian, made once for every loss and penalty.

The losses have curvature in [0, 1], so the weighted Gram matrix of the rows plus the penalty
majorises the Hessian of every loss, everywhere. Folds share one matrix: the mean of their sample
weights, times the factor `fold_ratio` by which it majorises each of them.

A preconditioner is applied to points as `_problem` defines them. The one of the Gram matrix is in
`gram`.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from marginpursuit._validation import FloatArray
from marginpursuit.design import Design, Standardisation


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
    unit: FloatArray  # (n_columns,), mean over folds
    fit_intercept: bool

    def apply(self, points: FloatArray, alpha: float) -> FloatArray:
        """Divide by the diagonal."""
        intercept = [self.fold_ratio] * int(self.fit_intercept)
        return np.asarray(points / np.append(self.fold_ratio + alpha * self.unit, intercept))


@dataclass(frozen=True)
class CentredDiagonalPreconditioner(Preconditioner):
    """The diagonal for rows that are not centred, taken in centred coordinates."""

    design: Design
    weights: FloatArray  # (n_rows,), mean over folds
    fold_ratio: float
    unit: float
    fit_intercept: bool

    @cached_property
    def _standardisation(self) -> Standardisation:
        """Mean and deviation of the columns: few problems need them, and they take some passes."""
        return self.design.standardisation(self.weights, centred=self.fit_intercept)

    def apply(self, points: FloatArray, alpha: float) -> FloatArray:
        """Centre, divide by the diagonal, and translate back."""
        mean, deviation = self._standardisation.mean, self._standardisation.deviation
        diagonal = self.fold_ratio * deviation**2 + alpha * self.unit
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
    unit: float
    fit_intercept: bool

    def apply(self, points: FloatArray, alpha: float) -> FloatArray:
        """Divide by the smoothness constant; it is zero only where all gradients are zero."""
        smoothness = self.mean_square + float(self.fit_intercept) + alpha * self.unit
        return points / (smoothness if smoothness > 0 else 1.0)
