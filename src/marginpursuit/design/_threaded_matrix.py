"""A matrix in memory, cut into blocks and chunks that threads work on.

The block edges depend on the shape of the data alone, and the results of blocks are added in
order: no result depends on the number of threads.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from marginpursuit import _kernels
from marginpursuit._threads import Threads, single_threaded_blas
from marginpursuit._validation import FloatArray


@dataclass(frozen=True, slots=True)
class ReadPolicy:
    """Sizes of the units of work; measured by `benchmarks/sweeps.py` unless said otherwise."""

    #: Stored elements below which a block costs more to hand to a thread than to sweep.
    block_elements: int = 1 << 18
    #: Blocks of a sweep; each has a gradient of its own.
    max_blocks: int = 64
    #: Elements that are converted for one matrix product: they fit a second-level cache.
    chunk_elements: int = 1 << 17
    #: Scores that one product with a sparse matrix computes.
    sparse_scores: int = 1 << 21
    #: Blocks that are summed by matrix products, bytes of all their sums, and rows of each.
    max_product_blocks: int = 8
    product_bytes: int = 1 << 26
    min_block_rows: int = 512
    #: Rows of one matrix product: fewer take longer to convert than to multiply.
    min_product_rows: int = 1024
    #: Fraction of the rows up to which rows with a non-zero factor are copied, the others unread.
    max_copied_fraction: float = 0.1
    #: Bytes of a float32 copy of the rows.
    max_copy_bytes: int = 1 << 30


class Block(NamedTuple):
    """A range of rows [first, last) that one thread works on."""

    number: int
    first: int
    last: int


class ThreadedMatrix:
    """A dense array or CSR matrix with its kernels, blocks and threads.

    `padded`, if given, is a float32 array of which the matrix is a part, with zero columns
    appended. Products with the coefficients of several tasks are then in float32.
    """

    def __init__(
        self,
        matrix: Any,
        threads: Threads,
        padded: NDArray[np.float32] | None = None,
        policy: ReadPolicy | None = None,
    ) -> None:
        self.policy = ReadPolicy() if policy is None else policy
        self.matrix, self.threads, self.padded = matrix, threads, padded
        self.n_rows, self.n_columns = matrix.shape
        self.is_sparse = sparse.issparse(matrix)
        self.product_type = np.float64 if padded is None else np.float32
        self.kernels = _kernels.rows(matrix)
        edges = _block_edges(matrix, self.policy).tolist()
        self.blocks = [Block(k, *pair) for k, pair in enumerate(pairwise(edges))]
        self._last_copy = np.empty(0, dtype=np.intp), np.empty((0, self.n_columns))

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

        Each block is for one thread, in which BLAS starts no others.
        """
        policy = self.policy
        n_blocks = min(
            policy.max_product_blocks,
            policy.product_bytes // (8 * max(1, shape[0] * shape[1])),
            n_items // policy.min_block_rows,
        )
        edges = np.linspace(0, n_items, max(1, n_blocks) + 1).astype(int).tolist()
        totals = np.zeros((len(edges) - 1, *shape))
        with single_threaded_blas():
            list(self.threads.map(add, edges[:-1], edges[1:], list(totals)))
        return totals[0] if len(totals) == 1 else np.asarray(totals.sum(axis=0))

    def chunks(self, first: int, last: int, n_tasks: int = 1) -> Iterator[tuple[slice, Any]]:
        """Yield chunks of rows [first, last), converted for products with `n_tasks` tasks."""
        policy = self.policy
        min_rows = 256 if n_tasks > 1 else 16
        step = max(min_rows, policy.chunk_elements // max(1, self.n_columns))
        if self.is_sparse:
            step = max(min_rows, policy.sparse_scores // n_tasks)
        dtype = self.product_type if n_tasks > 1 else np.float64
        for start in range(first, last, step):
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
        """Return a read-only float64 copy of some dense rows, in rising order.

        Rows of the last call are copied from its result, where they are contiguous.
        """
        known, before = self._last_copy
        if not np.array_equal(known, wanted):
            place = np.searchsorted(known, wanted)
            is_known = place < len(known)
            is_known[is_known] = known[place[is_known]] == wanted[is_known]
            copy = np.empty((len(wanted), self.n_columns))
            copy[is_known] = before[place[is_known]]
            copy[~is_known] = self.copy_rows(wanted[~is_known])
            self._last_copy = wanted, copy
        return self._last_copy[1]


def _block_edges(matrix: Any, policy: ReadPolicy) -> NDArray[np.intp]:
    """Cut the rows into blocks of about equal work.

    The number of blocks is limited such that adding their gradients is cheap next to the sweep.
    """
    n_rows, n_columns = matrix.shape
    is_sparse = sparse.issparse(matrix)
    stored = int(matrix.indptr[-1]) if is_sparse else n_rows * n_columns
    limit = min(
        stored // policy.block_elements,
        stored // (8 * max(1, n_columns)),
        n_rows,
        policy.max_blocks,
    )
    n_blocks = 1 << max(0, limit.bit_length() - 1)
    if not is_sparse:
        return np.linspace(0, n_rows, n_blocks + 1).astype(np.intp)
    edges = np.searchsorted(matrix.indptr, np.linspace(0, stored, n_blocks + 1))
    edges[0], edges[-1] = 0, n_rows
    return np.unique(edges).astype(np.intp)
