"""How rows in memory are cut, and shared among threads.

Rows are cut into blocks whose number depends on the shape of the data alone and whose results are
added in order, so that no result depends on the number of threads.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from marginpursuit import _kernels
from marginpursuit._threads import serial_products
from marginpursuit._validation import FloatArray
from marginpursuit.design._base import Design

#: Work below which a block is not worth a task of its own.
BLOCK_ELEMENTS = 1 << 18

#: Elements that are copied at a time for a matrix product, small enough for a cache.
PRODUCT_ELEMENTS = 1 << 17

# The most blocks there are.
_MOST_BLOCKS = 64

# The most blocks that are summed by matrix products, the bytes of all their sums, and the fewest
# rows (or columns) in one.
_MOST_PRODUCT_BLOCKS = 8
_BLOCK_BYTES = 1 << 26
_FEWEST_IN_BLOCK = 512

# Scores that a product with a sparse matrix makes at a time.
_SPARSE_ELEMENTS = 1 << 21


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
        self.is_sparse = sparse.issparse(matrix)
        self._matrix = matrix
        self._rows = _kernels.rows(matrix)
        self._blocks = _block_edges(matrix)
        self.n_threads = n_threads
        self._pool: ThreadPoolExecutor | None = None

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
        if n_threads <= 1:
            run(0, 1)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.n_threads)
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

        with serial_products():
            self.in_threads(share, len(totals))
        return totals[0] if len(totals) == 1 else np.asarray(totals.sum(axis=0))

    def _chunks(self, first: int, last: int, n_tasks: int = 1) -> Iterator[tuple[slice, Any]]:
        """Yield rows as float64, some at a time, for matrix products with so many tasks."""
        fewest = 256 if n_tasks > 1 else 16
        step = max(fewest, PRODUCT_ELEMENTS // max(1, self.n_columns))
        step = max(fewest, _SPARSE_ELEMENTS // n_tasks) if self.is_sparse else step
        for start in range(first, last, step):
            span = slice(start, min(start + step, last))
            is_all = span.stop - span.start == self.n_rows
            rows = self._matrix if is_all else self._matrix[span]
            yield span, rows.astype(self._product_type if n_tasks > 1 else np.float64, copy=False)


def _block_edges(matrix: Any) -> NDArray[np.intp]:
    """Cut the rows into blocks of about equal work; depends on the data's shape alone.

    Each block has a gradient of its own, so their number is also held to where adding those up
    stays small beside the sweep itself.
    """
    n_rows, n_columns = matrix.shape
    is_sparse = sparse.issparse(matrix)
    stored = int(matrix.indptr[-1]) if is_sparse else n_rows * n_columns
    most = min(stored // BLOCK_ELEMENTS, stored // (8 * max(1, n_columns)), n_rows, _MOST_BLOCKS)
    n_blocks = 1 << max(0, most.bit_length() - 1)
    if not is_sparse:
        return np.linspace(0, n_rows, n_blocks + 1).astype(np.intp)
    edges = np.searchsorted(matrix.indptr, np.linspace(0, stored, n_blocks + 1))
    edges[0], edges[-1] = 0, n_rows
    return np.unique(edges).astype(np.intp)
