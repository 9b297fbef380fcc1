"""A matrix in memory: the blocks that threads work on, and the moments of its rows.

The block edges depend on the shape of the data alone, and the results of blocks are added in
order: no result depends on the number of threads.

Dense rows are centred before they are squared. CSR rows keep their zeros: sums are taken of the
stored elements, and the terms of the mean are added afterwards.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from marginpursuit import _kernels
from marginpursuit._threads import StoppedError, Threads, this_thread
from marginpursuit._validation import FloatArray
from marginpursuit.design._base import Design, Standardisation
from marginpursuit.design._csr_rows import (
    centred_squares,
    csr_row_products,
    even_moments,
    squared_rows,
    stored_elements,
)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ReadPolicy:
    """Sizes of the units of work; measured by `benchmarks/sweeps.py` unless said otherwise."""

    #: Stored elements below which a block costs more to hand to a thread than to sweep.
    block_elements: int = 1 << 18
    #: The same of CSR rows, whose elements take four times as long.
    csr_block_elements: int = 1 << 16
    #: Blocks of a sweep; each has a gradient of its own.
    max_blocks: int = 64
    #: Elements that are converted for one matrix product: they fit a second-level cache.
    chunk_elements: int = 1 << 17
    #: Elements of a temporary copy next to a copy of all rows. Larger ones are returned to the
    #: system at the end of a fit, and new pages take 1.3 of the 6 ms of a fit to 400 x 784 rows.
    buffer_elements: int = 1 << 15
    #: Scores of all tasks that one product computes: 16 MB.
    product_scores: int = 1 << 21
    #: Blocks that are summed by matrix products, bytes of all their sums, and rows of each.
    max_product_blocks: int = 8
    product_bytes: int = 1 << 26
    min_block_rows: int = 512
    #: Rows of a block from which there are more blocks, up to `max_blocks`, for more threads.
    large_block_rows: int = 1 << 16
    #: Rows of one matrix product: fewer take longer to convert than to multiply.
    min_product_rows: int = 1024
    #: Tasks up to which a block is read for each task, without a conversion or copy of rows, and
    #: not by matrix products: a sweep of 100,000 x 50 rows for two tasks takes a third of the time.
    max_single_tasks: int = 3
    #: Tasks of all folds up to which held-out scores are taken from those of all rows, one task at
    #: a time. Eight tasks of two folds, or ten of five, take as long by copies of the held-out rows
    #: (400 x 784 to 100,000 x 50 rows), and more memory.
    max_single_scores: int = 10
    #: The same of CSR rows, whose shared sweep is for eight tasks and in one thread: a shared sweep
    #: of two tasks over a9a takes 2.6 ms of processor time, two sweeps of one task 2.1 ms.
    max_single_csr_tasks: int = 2
    #: Bytes of a float32 copy of the rows.
    max_copy_bytes: int = 1 << 30
    #: Bound on the standardised values of such a copy: products of values within it stay finite.
    #: Only rows of weight about zero are farther out in standard deviations.
    max_float32_value: float = 1e15
    #: Least fraction of the columns that merging removes: with less, the merged copy costs more
    #: than the passes it speeds up (news20, one class: 5.7 s to 3.3 s with half the columns
    #: removed).
    min_merged_fraction: float = 0.125
    #: Absolute values of merged columns whose squares neither over- nor underflow.
    mergeable_magnitudes: tuple[float, float] = (1e-100, 1e100)


class Block(NamedTuple):
    """A range of rows [first, last) that one thread works on."""

    number: int
    first: int
    last: int


class MatrixDesign(Design):
    """A dense array or CSR matrix with its kernels, blocks and moments.

    Parameters
    ----------
    matrix : ndarray or CSR matrix of shape (n_rows, n_columns)
        The rows, of any real dtype.
    threads : Threads, optional
        Worker threads, which belong to the caller.
    padded : ndarray of float32, optional
        The same rows with zero columns appended. Products with the coefficients of several tasks
        are then in float32.
    policy : ReadPolicy, optional
        The sizes of the units of work.
    """

    def __init__(
        self,
        matrix: Any,
        threads: Threads | None = None,
        *,
        padded: NDArray[np.float32] | None = None,
        policy: ReadPolicy | None = None,
    ) -> None:
        super().__init__(matrix.shape[0], matrix.shape[1], threads)
        self.policy = ReadPolicy() if policy is None else policy
        self.matrix, self.padded = matrix, padded
        self.is_sparse = sparse.issparse(matrix)
        self.product_type = np.float64 if padded is None else np.float32
        if padded is not None:
            self.rounding = 1e-8  # of sums of float32 products
        self.kernels = _kernels.rows(matrix)
        self.capabilities = frozenset({"subset", "row_access", "descend"})
        if hasattr(self.kernels, "dual_pass"):
            self.capabilities |= {"dual_pass"}
        edges = _block_edges(matrix, self.policy)
        self.blocks = [Block(k, *pair) for k, pair in enumerate(pairwise(edges))]
        self._row_squares: FloatArray | None = None
        self._last_copy = np.empty(0, dtype=np.intp), np.empty((0, self.n_columns))
        self._last_largest = np.empty(0, dtype=np.intp), np.empty(0)

    @property
    def n_stored(self) -> int:
        """The number of stored elements."""
        return int(self.matrix.indptr[-1] if self.is_sparse else self.matrix.size)

    def make_contiguous(self) -> None:
        """Copy dense rows whose elements are apart in memory: single rows are read faster."""
        if not self.is_sparse and self.matrix.strides[1] != self.matrix.itemsize:
            self.matrix = np.ascontiguousarray(self.matrix)
            self.kernels = _kernels.rows(self.matrix)

    def sum_blocks(
        self, shape: tuple[int, int], n_items: int, add: Callable[[int, int, FloatArray], None]
    ) -> FloatArray:
        """Sum what add(first, last, total) adds to its total, over blocks of rows or columns.

        Each block is for one thread.
        """
        policy = self.policy
        n_blocks = min(
            max(policy.max_product_blocks, n_items // policy.large_block_rows),
            policy.max_blocks,
            policy.product_bytes // (8 * max(1, shape[0] * shape[1])),
            1 << max(0, n_items // policy.min_block_rows - 1).bit_length(),  # a power of two
        )
        edges = np.linspace(0, n_items, max(1, n_blocks) + 1).astype(int).tolist()
        totals = np.zeros((len(edges) - 1, *shape))
        list(self.threads.map(add, edges[:-1], edges[1:], list(totals)))
        return totals[0] if len(totals) == 1 else np.asarray(totals.sum(axis=0))

    def chunk_rows(self, n_tasks: int) -> int:
        """Return the number of rows of one product with `n_tasks` tasks."""
        min_rows = 256 if n_tasks > 1 else 16
        elements_per_row = max(1, self.n_stored // max(1, self.n_rows))
        n_rows = min(
            self.policy.product_scores // n_tasks, self.policy.chunk_elements // elements_per_row
        )
        return max(min_rows, n_rows)

    def chunks(self, first: int, last: int, n_tasks: int = 1) -> Iterator[tuple[slice, Any]]:
        """Yield chunks of rows [first, last), converted for products with `n_tasks` tasks."""
        step, dtype = self.chunk_rows(n_tasks), self.product_type if n_tasks > 1 else np.float64
        for start in range(first, last, step):
            if this_thread.stop.is_set:
                raise StoppedError
            span = slice(start, min(start + step, last))
            is_all = span.stop - span.start == self.n_rows
            rows = self.matrix if is_all else self.matrix[span]
            yield span, rows.astype(dtype, copy=False)

    def copy_rows(self, wanted: NDArray[np.intp]) -> Any:
        """Return a copy of some dense rows, made by all threads."""
        copy = np.empty((len(wanted), self.n_columns), dtype=self.matrix.dtype)
        n_parts = min(self.threads.n, 1 + copy.size // self.policy.block_elements)
        edges = [len(wanted) * k // n_parts for k in range(n_parts + 1)]

        def run(part: int) -> None:
            span = slice(edges[part], edges[part + 1])
            copy[span] = self.matrix[wanted[span]]

        list(self.threads.map(run, range(n_parts)))
        return copy

    def cached_rows(self, wanted: NDArray[np.intp]) -> FloatArray:
        """Return a read-only float64 copy of some dense rows, in rising order; the last is kept."""
        if not np.array_equal(self._last_copy[0], wanted):
            self._last_copy = wanted, self.copy_rows(wanted).astype(np.float64, copy=False)
        return self._last_copy[1]

    def _moments(
        self, weights: FloatArray, *, centred: bool, diagonal: bool
    ) -> tuple[FloatArray, FloatArray]:
        """Return the mean and the second moments about it.

        The sums of dense rows are about the medians of 15 rows, in one pass. To centre them then
        costs at most one digit where nine tenths of a sum of squares or less are due to the mean;
        otherwise a second pass takes the sums about the mean of the first. Two are counted in any
        case, so that the number of passes does not depend on how rows are stored.
        """
        if self.is_sparse or not diagonal:
            return super()._moments(weights, centred=centred, diagonal=diagonal)
        self.n_passes += 2
        centre = np.zeros(self.n_columns)
        if centred:
            rows = self.matrix[np.linspace(0, self.n_rows - 1, 15).astype(np.intp)]
            centre = np.partition(rows, 7, axis=0)[7].astype(np.float64)
        shift, second = self._sums_about(weights, centre)
        mean = centre + shift
        if not np.all(np.isfinite(mean)):
            raise FloatingPointError("the columns have no finite mean")
        if not centred:
            return centre, second
        if np.all(shift**2 <= 0.9 * second):
            return mean, second - shift**2
        shift, second = self._sums_about(weights, mean)
        return mean + shift, second - shift**2

    def _adjoint(self, factors: FloatArray) -> FloatArray:
        """Return Xᵀ factors."""
        totals = np.zeros((len(self.blocks), self.n_columns))
        factors = np.ascontiguousarray(factors)

        def run(block: Block) -> None:
            number, first, last = block
            self.kernels.adjoint(first, last, factors, totals[number])

        list(self.threads.map(run, self.blocks))
        return np.asarray(totals.sum(axis=0))

    def _gram(self, weights: FloatArray, mean: FloatArray) -> FloatArray:
        """Return the weighted sum of (x - mean)(x - mean)ᵀ; rows of weight zero are not read."""
        if self.is_sparse:
            return self._sparse_gram(np.ascontiguousarray(weights), mean)
        used = None if np.all(weights > 0) else np.flatnonzero(weights)
        matrix, policy, n_columns = self.matrix, self.policy, self.n_columns
        # Arrays of one type: NumPy converts others a few elements at a time.
        origin: Any = mean.astype(self.product_type)
        factors: Any = np.sqrt(weights).astype(self.product_type)

        def add(first: int, last: int, total: FloatArray) -> None:
            step = max(policy.min_product_rows, policy.chunk_elements // max(1, n_columns))
            # Both buffers are reused: freeing and allocating them in every step takes time.
            buffer = np.empty((min(step, last - first), n_columns), dtype=self.product_type)
            product = np.empty(total.shape, dtype=self.product_type)
            for start in range(first, last, step):
                if this_thread.stop.is_set:
                    raise StoppedError
                span: Any = slice(start, min(start + step, last))
                chunk = buffer[: span.stop - start]
                span = span if used is None else used[span]
                np.subtract(matrix[span], origin, out=chunk, casting="unsafe")
                chunk *= factors[span][:, np.newaxis]
                total += np.matmul(chunk.T, chunk, out=product)

        n_used = len(weights) if used is None else len(used)
        return self.sum_blocks((n_columns, n_columns), n_used, add)

    def _sparse_gram(self, weights: FloatArray, mean: FloatArray) -> FloatArray:
        matrix = self.matrix
        data = matrix.data.astype(np.float64, copy=False)

        def add(first: int, last: int, total: FloatArray) -> None:
            _kernels.csr_gram(data, matrix.indices, matrix.indptr, weights, first, last, total)

        half = self.sum_blocks((self.n_columns, self.n_columns), self.n_rows, add)
        cross = np.outer(self._adjoint(weights), mean)
        half += 0.5 * weights.sum() * np.outer(mean, mean) - cross
        return np.asarray(half + half.T)

    def _squares(self, weights: FloatArray, mean: FloatArray) -> FloatArray:
        """Return the weighted sum of (x - mean)²."""
        if self.is_sparse:
            return self._sparse_squares(weights, mean)
        return np.asarray(self._sums_about(weights, mean)[1])

    def _sums_about(self, weights: FloatArray, centre: FloatArray) -> FloatArray:
        """Return the weighted sums of x - centre and of its square, (2, n_columns), dense rows."""
        totals = np.zeros((len(self.blocks), 2, self.n_columns))
        weights = np.ascontiguousarray(weights)

        def run(block: Block) -> None:
            number, first, last = block
            self.kernels.moments(first, last, centre, weights, totals[number])

        list(self.threads.map(run, self.blocks))
        return np.asarray(totals.sum(axis=0))

    def _sparse_squares(self, weights: FloatArray, mean: FloatArray) -> FloatArray:
        """Sum weight · (x - mean)² over the stored elements, and mean² over the others.

        Where the sum is below 1e-3 of the squared mean, three digits cancel if it is centred after
        it has been taken; elements are then centred one by one.
        """
        totals = np.zeros((len(self.blocks), self.n_columns, 2))

        def run(block: Block) -> None:
            own = np.ascontiguousarray(weights[block.first : block.last])
            stored = stored_elements(self.matrix, block.first, block.last)
            _kernels.csr_moments(*stored, own, totals[block.number])

        list(self.threads.map(run, self.blocks))
        (first, second), scale = totals.sum(axis=0).T, weights.sum() * mean**2
        if not mean.any():
            return np.asarray(second)
        centred = second - 2.0 * mean * first + scale
        if np.all((centred >= 1e-3 * scale) & np.isfinite(centred)):
            return np.asarray(centred)
        return centred_squares(self.chunks(0, self.n_rows), weights, mean)

    def _fold_moments(self, weights: FloatArray, mean: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return sums of x - mean and of its square, under the weights of each fold."""
        n_folds = len(weights)
        if n_folds <= self.policy.max_single_tasks and not self.is_sparse:
            first, second = np.stack([self._sums_about(own, mean) for own in weights], axis=1)
            return first, second

        def add(begin: int, end: int, total: FloatArray) -> None:
            first, second = total[:n_folds], total[n_folds:]
            for span, chunk in self.chunks(begin, end):
                own = weights[:, span]
                if self.is_sparse:  # an element that is not stored contributes -mean and mean²
                    sums = own @ chunk
                    first += sums - np.outer(own.sum(axis=1), mean)
                    second += own @ chunk.multiply(chunk).tocsr() - 2.0 * (sums * mean)
                    second += np.outer(own.sum(axis=1), mean**2)
                else:
                    centred = chunk - mean
                    first += own @ centred
                    second += own @ np.square(centred, out=centred)

        total = self.sum_blocks((2 * n_folds, self.n_columns), self.n_rows, add)
        return total[:n_folds], total[n_folds:]

    def _even_moments(
        self, weights: FloatArray, mean: FloatArray, factors: FloatArray
    ) -> FloatArray:
        """Return weighted sums of z² and z⁴, with z = factors · (x - mean)."""
        if self.is_sparse:

            def add(begin: int, end: int, total: FloatArray) -> None:
                total += even_moments(self.chunks(begin, end), weights, mean, factors)

            return self.sum_blocks((2, self.n_columns), self.n_rows, add)
        totals, weights = np.zeros((len(self.blocks), 2, self.n_columns)), np.array(weights)

        def run(block: Block) -> None:
            kernels, own, used = self.kernels, weights, (block.first, block.last)
            if not np.all(weights[block.first : block.last] > 0):
                # Other rows may have squares that are not finite.
                rows = block.first + np.flatnonzero(weights[block.first : block.last])
                kernels, own, used = _kernels.rows(self.matrix[rows]), weights[rows], (0, len(rows))
            kernels.moments(*used, mean, own, totals[block.number], factors)

        list(self.threads.map(run, self.blocks))
        return np.asarray(totals.sum(axis=0))

    def _row_norms(self, mean: FloatArray, factors: FloatArray) -> FloatArray:
        """Return ‖factors · (x - mean)‖ of every row."""
        if self.is_sparse and not mean.any() and np.all(factors == 1.0):
            return np.sqrt(self.row_squares())
        norms, squares = np.empty(self.n_rows), factors**2
        slope, offset = -2.0 * mean * squares, float(np.sum(mean**2 * squares))

        def run(block: Block) -> None:
            _, first, last = block
            if not self.is_sparse:
                self.kernels.norms(first, last, mean, squares, norms)
                return
            # (x - mean)² = x² - 2 mean x + mean²
            self.kernels.scores(first, last, slope, offset, norms)
            own = np.empty(last - first)
            squared_rows(self.matrix, first, last).scores(0, last - first, squares, 0.0, own)
            norms[first:last] += own

        list(self.threads.map(run, self.blocks))
        return np.sqrt(np.maximum(norms, 0.0))

    def _largest(self, columns: NDArray[np.intp]) -> FloatArray:
        """Return the largest absolute value in each of some columns; those of dense rows are kept.

        A fit standardises the columns with several weights, and the same ones are constant.
        """
        if self.is_sparse:
            found = np.zeros((len(self.blocks), self.n_columns))

            def run(block: Block) -> None:
                stored = stored_elements(self.matrix, block.first, block.last)
                _kernels.csr_largest(*stored, found[block.number])

            list(self.threads.map(run, self.blocks))
            return np.asarray(found.max(axis=0)[columns])
        if np.array_equal(self._last_largest[0], columns):
            return self._last_largest[1]
        maxima: FloatArray = np.zeros(len(columns))
        step = max(1, self.policy.buffer_elements // len(columns))
        for start in range(0, self.n_rows, step):
            values = self.matrix[start : start + step, columns]
            ends = values.max(axis=0).astype(np.float64), values.min(axis=0).astype(np.float64)
            maxima = np.maximum(maxima, np.maximum(ends[0], -ends[1]))
        self._last_largest = columns, maxima
        return maxima

    def _row_products(self, mean: FloatArray, factors: FloatArray) -> FloatArray:
        """Return the inner products of all rows factors · (x - mean)."""
        if self.is_sparse:
            return csr_row_products(self.matrix, mean, factors, self.policy.product_scores)

        def add(first: int, last: int, total: FloatArray) -> None:
            step = max(self.policy.min_product_rows, self.policy.chunk_elements // self.n_rows)
            for start in range(first, last, step):
                if this_thread.stop.is_set:
                    raise StoppedError
                span = slice(start, min(start + step, last))
                chunk = (self.matrix[:, span] - mean[span]) * factors[span]
                total += chunk @ chunk.T

        return self.sum_blocks((self.n_rows, self.n_rows), self.n_columns, add)

    def row_squares(self) -> FloatArray:
        """Return ‖x‖² of every row as it is; those of CSR rows are computed once."""
        if not hasattr(self.kernels, "row_squares"):
            return self.quadratic_forms()
        if self._row_squares is None:
            self.n_passes += 1
            squares = np.empty(self.n_rows)

            def run(block: Block) -> None:
                self.kernels.row_squares(block.first, block.last, squares)

            list(self.threads.map(run, self.blocks))
            self._row_squares = squares
        return self._row_squares

    def quadratic_forms(self, matrix: FloatArray | None = None) -> FloatArray:
        """Return x·Mx for every row as it is; without a matrix, ‖x‖²."""
        if matrix is None and hasattr(self.kernels, "row_squares"):
            return self.row_squares()
        self.n_passes += 1
        total = np.empty(self.n_rows)
        step = max(256, self.policy.chunk_elements // max(1, self.n_columns))
        for start in range(0, self.n_rows, step):
            span = slice(start, start + step)
            chunk = self.matrix[span].astype(np.float64, copy=False)
            if self.is_sparse:
                mapped = chunk if matrix is None else sparse.csr_matrix(chunk @ matrix)
                total[span] = np.asarray(chunk.multiply(mapped).sum(axis=1)).ravel()
            else:
                mapped = chunk if matrix is None else chunk @ matrix
                total[span] = np.einsum("ij,ij->i", chunk, mapped)
        return total

    def absolute_products(
        self, weights: FloatArray, standardisation: Standardisation, *, with_intercept: bool
    ) -> FloatArray:
        """Return the weighted sum of |z_j| Σ_k |z_k|, a diagonal that majorises the Gram matrix.

        A one is appended to z for the intercept if there is one.
        """
        self.n_passes += 1
        mean, factors = standardisation.mean, standardisation.inverse_deviation
        n_columns = self.n_columns
        total = np.zeros(n_columns + with_intercept)
        for span, chunk in self.chunks(0, self.n_rows):
            if self.is_sparse:  # an element that is not stored has the size |mean|
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


def _block_edges(matrix: Any, policy: ReadPolicy) -> list[int]:
    """Cut the rows into blocks of about equal work.

    The number of blocks is limited such that adding their gradients is cheap next to the sweep.
    """
    n_rows, n_columns = matrix.shape
    is_sparse = sparse.issparse(matrix)
    stored = int(matrix.indptr[-1]) if is_sparse else n_rows * n_columns
    limit = min(
        stored // (policy.csr_block_elements if is_sparse else policy.block_elements),
        stored // (8 * max(1, n_columns)),
        n_rows,
        policy.max_blocks,
    )
    n_blocks = 1 << max(0, limit.bit_length() - 1)
    if not is_sparse:
        return [n_rows * k // n_blocks for k in range(n_blocks + 1)]
    edges = np.searchsorted(matrix.indptr, np.linspace(0, stored, n_blocks + 1))
    edges[0], edges[-1] = 0, n_rows
    return [int(edge) for edge in np.unique(edges)]
