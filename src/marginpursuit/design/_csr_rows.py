"""Sums over the stored elements of CSR rows, and over those that are not stored."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from marginpursuit import _kernels
from marginpursuit._validation import FloatArray


def stored_elements(
    matrix: Any, first: int, last: int
) -> tuple[FloatArray, NDArray[Any], NDArray[Any]]:
    """Return the values, as float64, column indices and row pointers of rows [first, last)."""
    start, stop = matrix.indptr[[first, last]]
    stored = matrix.data[start:stop].astype(np.float64, copy=False)
    return stored, matrix.indices[start:stop], matrix.indptr[first : last + 1] - start


def squared_rows(matrix: Any, first: int, last: int) -> Any:
    """Return a handle on the squared values of rows [first, last)."""
    stored, indices, indptr = stored_elements(matrix, first, last)
    parts = np.square(stored), indices, indptr
    return _kernels.rows(sparse.csr_matrix(parts, (last - first, matrix.shape[1])))


def centred_squares(
    chunks: Iterable[tuple[slice, Any]], weights: FloatArray, mean: FloatArray
) -> FloatArray:
    """Return the weighted sum of (x - mean)², with elements that are centred, then squared.

    `chunks` yields all rows, as ranges with their matrix.
    """
    n_columns, total = len(mean), np.zeros(len(mean))
    stored, n_stored = np.zeros(n_columns), np.zeros(n_columns, dtype=np.intp)
    for span, chunk in chunks:
        indices, own = chunk.indices, np.repeat(weights[span], np.diff(chunk.indptr))
        total += np.bincount(indices, own * (chunk.data - mean[indices]) ** 2, n_columns)
        stored += np.bincount(indices, own, n_columns)
        n_stored += np.bincount(indices, minlength=n_columns)
    others = np.maximum(weights.sum() - stored, 0.0)
    return np.asarray(total + np.where(n_stored < len(weights), others * mean**2, 0.0))


def even_moments(
    chunks: Iterable[tuple[slice, Any]], weights: FloatArray, mean: FloatArray, factors: FloatArray
) -> FloatArray:
    """Return weighted sums of z² and z⁴, with z = factors · (x - mean), of rows with weight."""
    powers, n_columns, total = np.array([[2], [4]]), len(mean), np.zeros((2, len(mean)))
    for span, chunk in chunks:
        own = weights[span]
        if not np.all(own > 0):  # other rows may have squares that are not finite
            own, chunk = own[own > 0], chunk[own > 0]
        indices, stored = chunk.indices, np.repeat(own, np.diff(chunk.indptr))
        squares = ((chunk.data - mean[indices]) * factors[indices]) ** 2
        for k, power in enumerate((squares, squares**2)):
            total[k] += np.bincount(indices, stored * power, n_columns)
        others = own.sum() - np.bincount(indices, stored, n_columns)
        total += np.maximum(others, 0.0) * (mean * factors) ** powers
    return total


def csr_row_products(
    matrix: Any, mean: FloatArray, factors: FloatArray, max_scores: int
) -> FloatArray:
    """Return the inner products of all rows factors · (x - mean), `max_scores` at a time.

    Columns with more stored elements than zeros are centred before they are multiplied. Those of
    the others have a variance of at least half their mean square: centring the products afterwards
    costs no digits.
    """
    matrix, (n_rows, n_columns) = matrix.astype(np.float64), matrix.shape
    n_stored = np.bincount(matrix.indices, minlength=n_columns)
    filled = np.flatnonzero(2 * n_stored > n_rows)
    centred = (matrix[:, filled].toarray() - mean[filled]) * factors[filled]
    factors = factors.copy()
    factors[filled] = 0.0
    scaled = matrix.multiply(factors).tocsr()
    cross, offset = scaled @ (mean * factors), float(np.sum((mean * factors) ** 2))
    products, columns = np.empty((n_rows, n_rows)), scaled.T.tocsr()
    step = max(1, max_scores // n_rows)
    for start in range(0, n_rows, step):
        span = slice(start, start + step)
        own = (scaled[span] @ columns).toarray() + centred[span] @ centred.T
        products[span] = own - cross - cross[span, np.newaxis] + offset
    return products
