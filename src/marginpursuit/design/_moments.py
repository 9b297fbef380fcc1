"""Rows in memory: how threads share them, and their sums and products, asked without a loss.

Rows are cut into blocks whose number depends on the shape of the data alone and whose results are
added in order, so that no result depends on the number of threads.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import local
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from marginpursuit import _kernels
from marginpursuit._threads import single_threaded_blas
from marginpursuit._validation import FloatArray
from marginpursuit.design._base import Design

# Work below which a block is not worth a task of its own.
_BLOCK_ELEMENTS = 1 << 18

#: Elements that are copied at a time for a matrix product, small enough for a cache.
CHUNK_ELEMENTS = 1 << 17

# The rounding of sums over rows whose products are in float32.
_FLOAT32_ROUNDING = 1e-8

# The most blocks there are.
_MOST_BLOCKS = 64

# The most blocks that are summed by matrix products, the bytes of all their sums, and the fewest
# rows (or columns) in one.
_MOST_PRODUCT_BLOCKS = 8
_BLOCK_BYTES = 1 << 26
_FEWEST_IN_BLOCK = 512

# Scores that a product with a sparse matrix makes at a time.
_SPARSE_ELEMENTS = 1 << 21

# The fewest rows (or columns) that make a copy for a matrix product worth its while.
_FEWEST_IN_PRODUCT = 1024

# The share of the rows up to which those with a factor are copied, and the others left unread.
_FEW = 0.1


_this_thread = local()


class ThreadedRows(Design):
    """A dense array or a CSR matrix in blocks, chunks and threads.

    `padded`, if there is one, is an array of which the matrix is a part: the same rows in float32,
    with zeros appended. Products with the coefficients of several tasks are then made in float32.
    """

    def __init__(
        self, matrix: Any, *, n_threads: int = 1, padded: NDArray[np.float32] | None = None
    ) -> None:
        super().__init__(*matrix.shape)
        self._padded = padded
        self._product_type = np.float64 if padded is None else np.float32
        if padded is not None:
            self.rounding = _FLOAT32_ROUNDING
        self.is_sparse = sparse.issparse(matrix)
        self._matrix = matrix
        self._rows = _kernels.rows(matrix)
        self._blocks = _block_edges(matrix)
        self.n_threads = n_threads
        self._pool: ThreadPoolExecutor | None = None
        self._last_copied = np.empty(0, dtype=np.intp), np.empty((0, self.n_columns))

    @property
    def matrix(self) -> Any:
        """The rows as they are, a dense array or CSR matrix."""
        return self._matrix

    @property
    def n_stored(self) -> int:
        """The number of elements that the matrix holds in memory."""
        return int(self._matrix.indptr[-1] if self.is_sparse else self._matrix.size)

    def in_threads(self, run: Callable[[int, int], None], most: int) -> None:
        """Call run(thread, n_threads) for every thread, of which `most` would find work."""
        n_threads = min(self.n_threads, most)
        # A thread that waits for others of its pool, as busy as itself, would wait for ever.
        if n_threads <= 1 or getattr(_this_thread, "is_of_pool", False):
            run(0, 1)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(
                self.n_threads, initializer=setattr, initargs=(_this_thread, "is_of_pool", True)
            )
            self._resources.callback(self._pool.shutdown, cancel_futures=True)
        list(self._pool.map(run, range(n_threads), [n_threads] * n_threads))

    def _for_blocks(self, run: Callable[[int, int, int], None]) -> None:
        """Call run(block, first, last) for every block, in threads if there are several."""
        n_blocks = len(self._blocks) - 1

        def share(thread: int, n_threads: int) -> None:
            for block in range(thread, n_blocks, n_threads):
                run(block, int(self._blocks[block]), int(self._blocks[block + 1]))

        self.in_threads(share, n_blocks)

    def _summed(
        self, shape: tuple[int, int], n_items: int, add: Callable[[int, int, FloatArray], None]
    ) -> FloatArray:
        """Sum what add(first, last, total) adds to its total, over blocks of rows or columns.

        Each block is for one thread, in which matrix products start no others.
        """
        n_blocks = min(
            _MOST_PRODUCT_BLOCKS,
            _BLOCK_BYTES // (8 * max(1, shape[0] * shape[1])),
            n_items // _FEWEST_IN_BLOCK,
        )
        edges = np.linspace(0, n_items, max(1, n_blocks) + 1).astype(int).tolist()
        totals = np.zeros((len(edges) - 1, *shape))

        def share(thread: int, n_threads: int) -> None:
            for block in range(thread, len(totals), n_threads):
                add(edges[block], edges[block + 1], totals[block])

        with single_threaded_blas():
            self.in_threads(share, len(totals))
        return totals[0] if len(totals) == 1 else np.asarray(totals.sum(axis=0))

    def _chunks(self, first: int, last: int, n_tasks: int = 1) -> Iterator[tuple[slice, Any]]:
        """Yield rows as float64, some at a time, for matrix products with so many tasks."""
        fewest = 256 if n_tasks > 1 else 16
        step = max(fewest, CHUNK_ELEMENTS // max(1, self.n_columns))
        step = max(fewest, _SPARSE_ELEMENTS // n_tasks) if self.is_sparse else step
        for start in range(first, last, step):
            span = slice(start, min(start + step, last))
            is_all = span.stop - span.start == self.n_rows
            rows = self._matrix if is_all else self._matrix[span]
            yield span, rows.astype(self._product_type if n_tasks > 1 else np.float64, copy=False)


class RowMoments(ThreadedRows):
    """A dense array or a CSR matrix whose moments can be asked for."""

    def quadratic(self, matrix: FloatArray | None = None) -> FloatArray:
        """Return x·Mx for every row as it is; without a matrix, its squared norm."""
        self.n_passes += 1
        total, step = np.empty(self.n_rows), max(256, CHUNK_ELEMENTS // max(1, self.n_columns))
        with single_threaded_blas():
            for start in range(0, self.n_rows, step):
                span = slice(start, start + step)
                rows = self._matrix[span].astype(np.float64, copy=False)
                if self.is_sparse:
                    mapped = rows if matrix is None else sparse.csr_matrix(rows @ matrix)
                    total[span] = np.asarray(rows.multiply(mapped).sum(axis=1)).ravel()
                else:
                    mapped = rows if matrix is None else rows @ matrix
                    total[span] = np.einsum("ij,ij->i", rows, mapped)
        return total

    def absolute_products(self, weights: FloatArray, *, with_one: bool) -> FloatArray:
        """Sum weight |z_j| Σ_k |z_k| over the rows: a diagonal that bounds the Gram matrix.

        With `with_one` each row has a one appended, for the intercept.
        """
        self.n_passes += 1
        total = np.zeros(self.n_columns + with_one)
        for span, rows in self._chunks(0, self.n_rows):
            if self.is_sparse:  # what is not stored has the size of the centre
                usual, centre = np.abs(self.centre), self.centre[rows.indices]
                size = rows.copy()
                size.data = np.abs(rows.data - centre) - np.abs(centre)
            else:
                size, usual = np.abs(rows - self.centre), np.zeros(self.n_columns)
            norms = size @ self.inverse_spread + usual @ self.inverse_spread + float(with_one)
            factors = weights[span] * norms
            total[: self.n_columns] += (
                factors @ size + factors.sum() * usual
            ) * self.inverse_spread
            total[self.n_columns :] += factors.sum()
        return total

    def scaled_rows(self, factors: FloatArray) -> FloatArray:
        """Return all rows, centred and multiplied by these factors."""
        rows = self._matrix.toarray() if self.is_sparse else self._matrix
        return np.asarray((rows - self.centre) * factors)

    def _adjoint(self, factors: FloatArray) -> FloatArray:
        large = not self.is_sparse and self._matrix.size >= _BLOCK_ELEMENTS
        if large and np.count_nonzero(factors) <= _FEW * self.n_rows:
            return self._adjoint_few(factors, np.flatnonzero(factors))
        totals = np.zeros((len(self._blocks) - 1, self.n_columns))
        factors = np.ascontiguousarray(factors)
        self._for_blocks(
            lambda block, first, last: self._rows.adjoint(first, last, factors, totals[block])
        )
        return np.asarray(totals.sum(axis=0))

    def _adjoint_few(self, factors: FloatArray, wanted: NDArray[np.intp]) -> FloatArray:
        """Sum factor times row over some dense rows; the others are not read."""
        rows = self._copied(wanted)

        def add(first: int, last: int, total: FloatArray) -> None:
            total += factors[wanted[first:last]] @ rows[first:last]

        return np.asarray(self._summed((1, self.n_columns), len(wanted), add)[0])

    def rows_at(self, wanted: NDArray[np.intp]) -> Any:
        """Return a copy of some dense rows, made by all threads."""
        copied = np.empty((len(wanted), self.n_columns), dtype=self._matrix.dtype)

        def share(thread: int, n_threads: int) -> None:
            span = slice(*(len(wanted) * k // n_threads for k in (thread, thread + 1)))
            copied[span] = self._matrix[wanted[span]]

        self.in_threads(share, 1 + copied.size // _BLOCK_ELEMENTS)
        return copied

    def _copied(self, wanted: NDArray[np.intp]) -> FloatArray:
        """Return a copy of some dense rows, in rising order, that is not to be written to.

        Rows that were asked for the last time are copied from there: in the data each may lie
        spread out over all of it.
        """
        known, before = self._last_copied
        if not np.array_equal(known, wanted):
            place = np.searchsorted(known, wanted)
            here = place < len(known)
            here[here] = known[place[here]] == wanted[here]
            copied = np.empty((len(wanted), self.n_columns))
            copied[here] = before[place[here]]
            copied[~here] = self.rows_at(wanted[~here])
            self._last_copied = wanted, copied
        return self._last_copied[1]

    def _gram(self, weights: FloatArray) -> FloatArray:
        """Sum weight times the outer square of the centred row, rows of weight zero unread."""
        if self.is_sparse:
            return self._sparse_gram(np.ascontiguousarray(weights))
        wanted = None if np.all(weights > 0) else np.flatnonzero(weights)
        matrix = self._matrix
        if wanted is not None and len(wanted) <= _FEW * self.n_rows:
            matrix, weights, wanted = self._copied(wanted), weights[wanted], None

        def add(first: int, last: int, total: FloatArray) -> None:
            step = max(_FEWEST_IN_PRODUCT, CHUNK_ELEMENTS // max(1, self.n_columns))
            # One copy and one product, over and over: not every system gives memory back for free.
            copied, product = (
                np.empty((min(step, last - first), self.n_columns), dtype=self._product_type),
                np.empty(total.shape, dtype=self._product_type),
            )
            for start in range(first, last, step):
                span: Any = slice(start, min(start + step, last))
                rows = copied[: span.stop - start]
                span = span if wanted is None else wanted[span]
                np.subtract(matrix[span], self.centre, out=rows, casting="unsafe")
                rows *= np.sqrt(weights[span])[:, np.newaxis]
                total += np.matmul(rows.T, rows, out=product)

        n_wanted = len(weights) if wanted is None else len(wanted)
        return self._summed((self.n_columns, self.n_columns), n_wanted, add)

    def _sparse_gram(self, weights: FloatArray) -> FloatArray:
        matrix = self._matrix
        data = matrix.data.astype(np.float64, copy=False)
        means = self._adjoint(weights)

        def add(first: int, last: int, total: FloatArray) -> None:
            _kernels.csr_gram(data, matrix.indices, matrix.indptr, weights, first, last, total)

        second = self._summed((self.n_columns, self.n_columns), self.n_rows, add)
        cross = np.outer(means, self.centre)
        square = weights.sum() * np.outer(self.centre, self.centre)
        return np.asarray(second - cross - cross.T + square)

    def _squares(self, weights: FloatArray) -> FloatArray:
        if self.is_sparse:
            total = np.zeros(self.n_columns)
            for span, rows in self._chunks(0, self.n_rows):
                share = weights[span]
                total += share @ rows.multiply(rows) - 2.0 * self.centre * (share @ rows)
                total += share.sum() * self.centre**2
            return total

        totals = np.zeros((len(self._blocks) - 1, self.n_columns))
        weights = np.ascontiguousarray(weights)
        self._for_blocks(
            lambda block, first, last: self._rows.squares(
                first, last, self.centre, weights, totals[block]
            )
        )
        return np.asarray(totals.sum(axis=0))

    def _part_moments(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        n_parts = len(weights)

        def add(begin: int, end: int, total: FloatArray) -> None:
            first, second = total[:n_parts], total[n_parts:]
            for span, rows in self._chunks(begin, end):
                share = weights[:, span]
                if self.is_sparse:  # what is not stored is minus the centre
                    cross = share @ rows * self.centre
                    squares = share @ rows.multiply(rows).tocsr() - 2.0 * cross
                    first += share @ rows - np.outer(share.sum(axis=1), self.centre)
                    second += squares + np.outer(share.sum(axis=1), self.centre**2)
                else:
                    rows = rows - self.centre
                    first += share @ rows
                    second += share @ np.square(rows, out=rows)

        total = self._summed((2 * n_parts, self.n_columns), self.n_rows, add)
        return total[:n_parts], total[n_parts:]

    def _distances(self, factors: FloatArray) -> FloatArray:
        squares = np.empty(self.n_rows)
        centre = self.centre

        def run(_: int, first: int, last: int) -> None:
            if not self.is_sparse:
                self._rows.norms(first, last, centre, factors**2, squares)
                return
            for span, rows in self._chunks(first, last):  # what is not stored is minus the centre
                size, usual = rows.copy(), centre[rows.indices]
                size.data = rows.data * (rows.data - 2.0 * usual)
                squares[span] = size @ factors**2 + np.sum((centre * factors) ** 2)

        self._for_blocks(run)
        return np.sqrt(np.maximum(squares, 0.0))

    def _largest(self, columns: NDArray[np.intp]) -> FloatArray:
        if self.is_sparse:
            size = abs(self._matrix.astype(np.float64, copy=False)).max(axis=0)
            return np.asarray(size.toarray().ravel()[columns])
        largest, step = np.zeros(len(columns)), max(1, CHUNK_ELEMENTS // len(columns))
        for start in range(0, self.n_rows, step):
            values = self._matrix[start : start + step, columns].astype(np.float64)
            largest = np.maximum(largest, np.abs(values).max(axis=0))
        return largest

    def _row_products(self, factors: FloatArray) -> FloatArray:
        if self.is_sparse:
            scaled = self._matrix.astype(np.float64).multiply(factors).tocsr()
            cross = scaled @ (self.centre * factors)
            offset = float(np.sum((self.centre * factors) ** 2))
            products = (scaled @ scaled.T).toarray()
            return np.asarray(products - cross - cross[:, np.newaxis] + offset)

        def add(first: int, last: int, total: FloatArray) -> None:
            step = max(_FEWEST_IN_PRODUCT, CHUNK_ELEMENTS // self.n_rows)
            for start in range(first, last, step):
                span = slice(start, min(start + step, last))
                rows = (self._matrix[:, span] - self.centre[span]) * factors[span]
                total += rows @ rows.T

        return self._summed((self.n_rows, self.n_rows), self.n_columns, add)


def _block_edges(matrix: Any) -> NDArray[np.intp]:
    """Cut the rows into blocks of about equal work; depends on the data's shape alone.

    Each block has a gradient of its own, so their number is also held to where adding those up
    stays small beside the sweep itself.
    """
    n_rows, n_columns = matrix.shape
    is_sparse = sparse.issparse(matrix)
    stored = int(matrix.indptr[-1]) if is_sparse else n_rows * n_columns
    most = min(stored // _BLOCK_ELEMENTS, stored // (8 * max(1, n_columns)), n_rows, _MOST_BLOCKS)
    n_blocks = 1 << max(0, most.bit_length() - 1)
    if not is_sparse:
        return np.linspace(0, n_rows, n_blocks + 1).astype(np.intp)
    edges = np.searchsorted(matrix.indptr, np.linspace(0, stored, n_blocks + 1))
    edges[0], edges[-1] = 0, n_rows
    return np.unique(edges).astype(np.intp)
