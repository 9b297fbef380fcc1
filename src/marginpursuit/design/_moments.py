"""Moments and products of rows in memory: what is computed without a loss.

Dense rows are centred before they are squared. CSR rows keep their zeros: sums are taken of the
stored elements, and the terms of the mean are added afterwards.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from marginpursuit import _kernels
from marginpursuit._threads import single_threaded_blas
from marginpursuit._validation import FloatArray
from marginpursuit.design._threaded_matrix import Block, ThreadedMatrix


def adjoint(rows: ThreadedMatrix, factors: FloatArray) -> FloatArray:
    """Return Xᵀ factors."""
    is_large = not rows.is_sparse and rows.matrix.size >= rows.policy.block_elements
    max_used = rows.policy.max_copied_fraction * rows.n_rows
    if is_large and np.count_nonzero(factors) <= max_used:
        return _adjoint_of_few(rows, factors, np.flatnonzero(factors))
    totals, factors = np.zeros((len(rows.blocks), rows.n_columns)), np.ascontiguousarray(factors)

    def run(block: Block) -> None:
        number, first, last = block
        rows.kernels.adjoint(first, last, factors, totals[number])

    list(rows.threads.map(run, rows.blocks))
    return np.asarray(totals.sum(axis=0))


def _adjoint_of_few(
    rows: ThreadedMatrix, factors: FloatArray, used: NDArray[np.intp]
) -> FloatArray:
    """Return Xᵀ factors from a copy of the dense rows with a non-zero factor."""
    copy = rows.cached_rows(used)

    def add(first: int, last: int, total: FloatArray) -> None:
        total += factors[used[first:last]] @ copy[first:last]

    return np.asarray(rows.sum_blocks((1, rows.n_columns), len(used), add)[0])


def gram(rows: ThreadedMatrix, weights: FloatArray, mean: FloatArray) -> FloatArray:
    """Return the weighted sum of (x - mean)(x - mean)ᵀ; rows of weight zero are not read."""
    if rows.is_sparse:
        return _sparse_gram(rows, np.ascontiguousarray(weights), mean)
    used = None if np.all(weights > 0) else np.flatnonzero(weights)
    matrix, policy = rows.matrix, rows.policy
    if used is not None and len(used) <= policy.max_copied_fraction * rows.n_rows:
        matrix, weights, used = rows.cached_rows(used), weights[used], None
    n_columns = rows.n_columns

    def add(first: int, last: int, total: FloatArray) -> None:
        step = max(policy.min_product_rows, policy.chunk_elements // max(1, n_columns))
        # Both buffers are reused: freeing and allocating them in every step takes time.
        buffer = np.empty((min(step, last - first), n_columns), dtype=rows.product_type)
        product = np.empty(total.shape, dtype=rows.product_type)
        for start in range(first, last, step):
            span: Any = slice(start, min(start + step, last))
            chunk = buffer[: span.stop - start]
            span = span if used is None else used[span]
            np.subtract(matrix[span], mean, out=chunk, casting="unsafe")
            chunk *= np.sqrt(weights[span])[:, np.newaxis]
            total += np.matmul(chunk.T, chunk, out=product)

    n_used = len(weights) if used is None else len(used)
    return rows.sum_blocks((n_columns, n_columns), n_used, add)


def _sparse_gram(rows: ThreadedMatrix, weights: FloatArray, mean: FloatArray) -> FloatArray:
    matrix = rows.matrix
    data = matrix.data.astype(np.float64, copy=False)

    def add(first: int, last: int, total: FloatArray) -> None:
        _kernels.csr_gram(data, matrix.indices, matrix.indptr, weights, first, last, total)

    second = rows.sum_blocks((rows.n_columns, rows.n_columns), rows.n_rows, add)
    cross = np.outer(adjoint(rows, weights), mean)
    return np.asarray(second - cross - cross.T + weights.sum() * np.outer(mean, mean))


def squares(rows: ThreadedMatrix, weights: FloatArray, mean: FloatArray) -> FloatArray:
    """Return the weighted sum of (x - mean)²."""
    if rows.is_sparse:
        total = np.zeros(rows.n_columns)
        for span, chunk in rows.chunks(0, rows.n_rows):
            own = weights[span]
            total += own @ chunk.multiply(chunk) - 2.0 * mean * (own @ chunk)
            total += own.sum() * mean**2
        return total
    totals, weights = np.zeros((len(rows.blocks), rows.n_columns)), np.ascontiguousarray(weights)

    def run(block: Block) -> None:
        number, first, last = block
        rows.kernels.squares(first, last, mean, weights, totals[number])

    list(rows.threads.map(run, rows.blocks))
    return np.asarray(totals.sum(axis=0))


def fold_moments(
    rows: ThreadedMatrix, weights: FloatArray, mean: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return sums of x - mean and of its square, under the weights of each fold."""
    n_folds = len(weights)

    def add(begin: int, end: int, total: FloatArray) -> None:
        first, second = total[:n_folds], total[n_folds:]
        for span, chunk in rows.chunks(begin, end):
            own = weights[:, span]
            if rows.is_sparse:  # an element that is not stored contributes -mean and mean²
                sums = own @ chunk
                first += sums - np.outer(own.sum(axis=1), mean)
                second += own @ chunk.multiply(chunk).tocsr() - 2.0 * (sums * mean)
                second += np.outer(own.sum(axis=1), mean**2)
            else:
                centred = chunk - mean
                first += own @ centred
                second += own @ np.square(centred, out=centred)

    total = rows.sum_blocks((2 * n_folds, rows.n_columns), rows.n_rows, add)
    return total[:n_folds], total[n_folds:]


def row_norms(rows: ThreadedMatrix, mean: FloatArray, factors: FloatArray) -> FloatArray:
    """Return ‖factors · (x - mean)‖ of every row."""
    norms = np.empty(rows.n_rows)
    offset = float(np.sum((mean * factors) ** 2))

    def run(block: Block) -> None:
        _, first, last = block
        if not rows.is_sparse:
            rows.kernels.norms(first, last, mean, factors**2, norms)
            return
        for span, chunk in rows.chunks(first, last):  # (x - mean)² = mean² + x (x - 2 mean)
            difference = chunk.copy()
            difference.data = chunk.data * (chunk.data - 2.0 * mean[chunk.indices])
            norms[span] = difference @ factors**2 + offset

    list(rows.threads.map(run, rows.blocks))
    return np.sqrt(np.maximum(norms, 0.0))


def largest(rows: ThreadedMatrix, columns: NDArray[np.intp]) -> FloatArray:
    """Return the largest absolute value in each of some columns."""
    if rows.is_sparse:
        sizes = abs(rows.matrix.astype(np.float64, copy=False)).max(axis=0)
        return np.asarray(sizes.toarray().ravel()[columns])
    maxima: FloatArray = np.zeros(len(columns))
    step = max(1, rows.policy.chunk_elements // len(columns))
    for start in range(0, rows.n_rows, step):
        values = rows.matrix[start : start + step, columns].astype(np.float64)
        maxima = np.maximum(maxima, np.abs(values).max(axis=0))
    return maxima


def row_products(rows: ThreadedMatrix, mean: FloatArray, factors: FloatArray) -> FloatArray:
    """Return the inner products of all rows factors · (x - mean)."""
    if rows.is_sparse:
        scaled = rows.matrix.astype(np.float64).multiply(factors).tocsr()
        cross = scaled @ (mean * factors)
        offset = float(np.sum((mean * factors) ** 2))
        products = (scaled @ scaled.T).toarray()
        return np.asarray(products - cross - cross[:, np.newaxis] + offset)

    def add(first: int, last: int, total: FloatArray) -> None:
        step = max(rows.policy.min_product_rows, rows.policy.chunk_elements // rows.n_rows)
        for start in range(first, last, step):
            span = slice(start, min(start + step, last))
            chunk = (rows.matrix[:, span] - mean[span]) * factors[span]
            total += chunk @ chunk.T

    return rows.sum_blocks((rows.n_rows, rows.n_rows), rows.n_columns, add)


def quadratic_forms(rows: ThreadedMatrix, matrix: FloatArray | None = None) -> FloatArray:
    """Return x·Mx for every row as it is; without a matrix, ‖x‖²."""
    total = np.empty(rows.n_rows)
    step = max(256, rows.policy.chunk_elements // max(1, rows.n_columns))
    with single_threaded_blas():
        for start in range(0, rows.n_rows, step):
            span = slice(start, start + step)
            chunk = rows.matrix[span].astype(np.float64, copy=False)
            if rows.is_sparse:
                mapped = chunk if matrix is None else sparse.csr_matrix(chunk @ matrix)
                total[span] = np.asarray(chunk.multiply(mapped).sum(axis=1)).ravel()
            else:
                mapped = chunk if matrix is None else chunk @ matrix
                total[span] = np.einsum("ij,ij->i", chunk, mapped)
    return total


def absolute_products(
    rows: ThreadedMatrix,
    weights: FloatArray,
    mean: FloatArray,
    factors: FloatArray,
    *,
    with_intercept: bool,
) -> FloatArray:
    """Return the weighted sum of |z_j| Σ_k |z_k|, a diagonal that majorises the Gram matrix.

    z = factors · (x - mean), with a one appended for the intercept if there is one.
    """
    n_columns = rows.n_columns
    total = np.zeros(n_columns + with_intercept)
    for span, chunk in rows.chunks(0, rows.n_rows):
        if rows.is_sparse:  # an element that is not stored has the size |mean|
            offset, stored_mean = np.abs(mean), mean[chunk.indices]
            size = chunk.copy()
            size.data = np.abs(chunk.data - stored_mean) - np.abs(stored_mean)
        else:
            size, offset = np.abs(chunk - mean), np.zeros(n_columns)
        row_sums = size @ factors + offset @ factors + float(with_intercept)
        products = weights[span] * row_sums
        total[:n_columns] += (products @ size + products.sum() * offset) * factors
        total[n_columns:] += products.sum()
    return total
