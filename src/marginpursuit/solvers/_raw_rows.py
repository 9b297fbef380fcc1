"""Rows as they are: checks and preparation for the solvers that do not standardise."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from marginpursuit._validation import (
    FloatArray,
    between,
    checked_sparse,
    inside,
    without_duplicates,
)
from marginpursuit.design import Standardisation
from marginpursuit.solvers._problem import (
    Prepared,
    Request,
    mean_weights,
    request_penalty_weights,
)
from marginpursuit.solvers.preconditioners import ScalarPreconditioner

__all__ = ["checked_rows", "checked_start", "prepare_raw"]


def prepare_raw(request: Request) -> Prepared:
    """Prepare to read the rows as they are.

    The negligible penalty, in the unit "column", counts as none, as in the paper.
    """
    design = request.design
    weights, _ = mean_weights(request)
    penalty_weights = np.full((request.weights.shape[0], design.n_columns), 1.0)
    if request.alpha_unit == "column":
        penalty_weights = np.zeros_like(penalty_weights)
    elif request.alpha_unit != "absolute":
        standardisation = design.standardisation(weights, centred=request.fit_intercept)
        penalty_weights = (
            request_penalty_weights(request, standardisation) * standardisation.deviation**2
        )
        penalty_weights[:, standardisation.inverse_deviation == 0] = (
            np.inf
        )  # fixes constant columns at zero
    largest = float(np.max(penalty_weights, where=np.isfinite(penalty_weights), initial=0.0))
    identity = Standardisation.identity(design.n_columns)
    mean_square = design.mean_square(weights)
    preconditioner = ScalarPreconditioner(mean_square, largest, request.fit_intercept)
    return Prepared(
        design=design,
        standardisation=identity,
        fit_intercept=request.fit_intercept,
        penalty_weights=penalty_weights,
        preconditioner=preconditioner,
        transform=identity,
    )


def checked_start(start: ArrayLike, n_features: int) -> FloatArray:
    """Return a copy of the first coefficients; raise a ValueError for another shape."""
    coef = inside("start", start, -np.inf, np.inf)
    if coef.shape != (n_features,):
        raise ValueError(f"start must have shape {(n_features,)}; got {coef.shape}")
    return coef.copy()


def checked_rows(
    X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None
) -> tuple[Any, FloatArray, FloatArray]:
    """Return the checked matrix, the signs, and weights with maximum 1."""
    is_sparse = sparse.issparse(X)
    matrix: Any = without_duplicates(checked_sparse(X).tocsr()) if is_sparse else np.asarray(X)
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise ValueError(f"X must have rows and columns; got shape {matrix.shape}")
    inside("X", matrix.data if is_sparse else matrix, -np.inf, np.inf)
    sign = between("y", y, -1.0, 1.0)
    if sign.shape != matrix.shape[:1] or np.any(np.abs(sign) != 1):
        raise ValueError(
            f"y must contain -1 or +1 for each of {matrix.shape[0]} samples; got shape "
            f"{sign.shape} with values {np.unique(sign)[:5]}"
        )
    weights = np.ones(len(sign)) if sample_weight is None else sample_weight
    weights = between("sample_weight", weights, 0.0, np.finfo(np.float64).max)
    if weights.shape != sign.shape or not np.any(weights):
        raise ValueError(
            f"sample_weight must have shape {sign.shape} and a positive entry; got shape "
            f"{weights.shape} with maximum {weights.max(initial=0.0):g}"
        )
    return matrix, sign, weights / weights.max()
