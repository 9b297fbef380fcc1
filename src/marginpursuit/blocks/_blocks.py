"""Rows in blocks, loaded one after another."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from functools import partial, reduce
from itertools import pairwise
from operator import add
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from marginpursuit._validation import checked_sparse, count, without_duplicates

__all__ = ["BlockResults", "Blocks"]


class Blocks:
    """Rows in blocks, each of which is loaded in every pass over the data.

    Parameters
    ----------
    loaders : sequence of callables
        Each returns the rows of a block, the same in every call: an array of shape
        (n_rows, n_columns) and any real dtype, or a sparse matrix.
    lengths : sequence of int, optional
        The number of rows of each block. By default every block is loaded once to count them.
    label_loaders : sequence of callables, optional
        Each returns the labels of a block, for `labels`.

    Attributes
    ----------
    shape : tuple of int
        The number of rows and of columns.
    edges : ndarray of shape (n_blocks + 1,)
        Block k contains the rows ``edges[k]`` to ``edges[k + 1] - 1``.
    is_sparse : bool
        Whether the blocks are sparse.
    elements_per_row : float
        The number of stored elements per row: the number of columns, or for sparse rows the mean
        over the first block.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from marginpursuit import MarginPursuitClassifier
    >>> from marginpursuit.blocks import Blocks
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> blocks = Blocks([lambda: X[:200], lambda: X[200:]])
    >>> blocks.shape
    (569, 30)
    >>> MarginPursuitClassifier().fit(blocks, y).score(blocks, y) > 0.96
    True
    """

    #: Whether blocks are processed in parallel, so that each is processed by a single thread.
    is_parallel = False

    def __init__(
        self,
        loaders: Sequence[Callable[[], Any]],
        lengths: Sequence[int] | None = None,
        label_loaders: Sequence[Callable[[], Any]] = (),
    ) -> None:
        self._loaders, self._label_loaders = list(loaders), list(label_loaders)
        if lengths is None:
            lengths = [self._load_matrix(k).shape[0] for k in range(len(self._loaders))]
        if len(lengths) != len(self._loaders):
            raise ValueError(
                f"lengths must have one number for each of {len(self._loaders)} blocks; "
                f"got {len(lengths)}"
            )
        self.edges = block_edges(lengths)
        first = self._load_matrix(self._nonempty[0])
        self.shape: tuple[int, int] = int(self.edges[-1]), first.shape[1]
        refuse_no_columns(self.shape[1])
        self.is_sparse = sparse.issparse(first)
        self.elements_per_row = float(
            first.nnz / first.shape[0] if self.is_sparse else first.shape[1]
        )

    @property
    def n_blocks(self) -> int:
        """The number of blocks, including empty ones."""
        return len(self.edges) - 1

    def labels(self) -> NDArray[Any]:
        """Load the labels of all blocks.

        Returns
        -------
        ndarray of shape (n_rows,)
            The labels, in the order of the rows.
        """
        if not self._label_loaders:
            raise ValueError(
                "labels() was called on blocks without labels. Pass y as an array, or pass "
                "label_loaders to Blocks or target to from_parquet."
            )
        return np.concatenate([np.asarray(load()) for load in self._label_loaders])

    def load(self, block: int) -> Any:
        """Load the rows of a block.

        Parameters
        ----------
        block : int
            The index of the block.

        Returns
        -------
        {ndarray, CSR matrix} of shape (n_rows, n_columns)
            The rows.
        """
        rows, span = self._load(block), self._span(block)
        check_block(block, rows, (span.stop - span.start, self.shape[1]), is_sparse=self.is_sparse)
        return rows

    def with_labels(self, other: "Blocks") -> "Blocks":
        """Return the same rows with the labels of other blocks."""
        return Blocks(self._loaders, np.diff(self.edges).tolist(), other._label_loaders)

    def map(self, function: Callable[[Any], Any], n_columns: int | None = None) -> "Blocks":
        """Return blocks to which a function is applied each time they are loaded.

        Parameters
        ----------
        function : callable
            Takes and returns the rows of a block.
        n_columns : int, optional
            The number of columns of the mapped rows, which are then dense. By default the blocks of
            a cluster keep their columns and format, and others are loaded to find out.

        Returns
        -------
        Blocks
            The mapped rows, with the same labels.

        Examples
        --------
        >>> import numpy as np
        >>> from marginpursuit.blocks import Blocks
        >>> Blocks([lambda: np.eye(3)]).map(lambda rows: 2 * rows).load(0)[1]
        array([0., 2., 0.])
        """
        loaders = [partial(_load_mapped, self, k, function) for k in range(self.n_blocks)]
        mapped = Blocks(loaders, np.diff(self.edges).tolist(), self._label_loaders)
        if n_columns is not None and (mapped.shape[1] != n_columns or mapped.is_sparse):
            raise ValueError(
                f"function must return dense rows with {n_columns} columns; got "
                f"{mapped.shape[1]} columns, {'sparse' if mapped.is_sparse else 'dense'}"
            )
        return mapped

    def take(self, rows: NDArray[np.intp]) -> "Blocks":
        """Return a subset of the rows, selected each time a block is loaded.

        Parameters
        ----------
        rows : ndarray of int
            The indices of the rows, in ascending order.

        Returns
        -------
        Blocks
            The subset, in the same number of blocks, without labels.

        Examples
        --------
        >>> import numpy as np
        >>> from marginpursuit.blocks import Blocks
        >>> Blocks([lambda: np.eye(3), lambda: np.ones((2, 3))]).take(np.array([1, 4])).gather()
        array([[0., 1., 0.],
               [1., 1., 1.]])
        """
        subset, (selections, edges) = copy(self), self._row_selections(rows)
        subset._loaders = [partial(_load_mapped, self, k, f) for k, f in enumerate(selections)]
        subset._label_loaders, subset.edges = [], edges
        subset.shape = len(rows), self.shape[1]
        return subset

    def gather(self) -> Any:
        """Load all rows into memory.

        Returns
        -------
        {ndarray, CSR matrix} of shape (n_rows, n_columns)
            The rows.
        """
        parts = [rows for _, _, rows in self.each(identity)]
        return sparse.vstack(parts, format="csr") if self.is_sparse else np.concatenate(parts)

    def each(
        self, function: Callable[..., Any], *vectors: NDArray[Any]
    ) -> Iterator[tuple[int, slice, Any]]:
        """Apply a function to every non-empty block, while the next block is loaded.

        Parameters
        ----------
        function : callable
            Called with the rows of a block and the entries of each vector for these rows.
        *vectors : ndarray of shape (..., n_rows)
            Vectors with one entry per row.

        Yields
        ------
        block : int
            The index of the block, in ascending order.
        span : slice
            The rows of the block.
        result : object
            The result of the function.
        """
        nonempty = self._nonempty
        with ThreadPoolExecutor(1) as reader:
            loading = reader.submit(self.load, nonempty[0])
            for block, following in zip(nonempty, [*nonempty[1:], None], strict=True):
                rows = loading.result()
                if following is not None:
                    loading = reader.submit(self.load, following)
                span = self._span(block)
                yield block, span, function(rows, *(row_slice(v, span) for v in vectors))

    def total(self, function: Callable[..., Any], *vectors: NDArray[Any]) -> Any:
        """Sum the results of `each`, in the order of the blocks.

        Parameters
        ----------
        function : callable
            Called as by `each`.
        *vectors : ndarray of shape (..., n_rows)
            Vectors with one entry per row.

        Returns
        -------
        object
            The sum.
        """
        return reduce(add, (result for _, _, result in self.each(function, *vectors)))

    def persist(self, function: Callable[..., Any], *vectors: NDArray[Any]) -> "BlockResults":
        """Apply a function to every non-empty block and keep the results where they are computed.

        Parameters
        ----------
        function : callable
            Called as by `each`.
        *vectors : ndarray of shape (..., n_rows)
            Vectors with one entry per row.

        Returns
        -------
        BlockResults
            The results.
        """
        return _LocalResults([result for _, _, result in self.each(function, *vectors)])

    @property
    def _nonempty(self) -> list[int]:
        """The indices of the blocks with rows."""
        return np.flatnonzero(np.diff(self.edges)).tolist()

    def _span(self, block: int) -> slice:
        return slice(int(self.edges[block]), int(self.edges[block + 1]))

    def _row_selections(
        self, rows: NDArray[np.intp]
    ) -> tuple[list[Callable[[Any], Any]], NDArray[np.intp]]:
        """Return functions that select the rows of each block, and the edges of the subset."""
        edges = np.searchsorted(rows, self.edges)
        spans = zip(self.edges, pairwise(edges), strict=False)
        return [partial(_select, rows[start:stop] - first) for first, (start, stop) in spans], edges

    def _load(self, block: int) -> Any:
        return as_matrix(call_loader(block, self._loaders[block]))

    def _load_matrix(self, block: int) -> Any:
        """Load a block whose shape is not known yet."""
        rows = self._load(block)
        if rows.ndim != 2:
            raise ValueError(
                f"block {block} must be a matrix of 2 dimensions, one row a sample; got "
                f"{rows.ndim} dimensions, dtype {rows.dtype}"
            )
        return rows


class BlockResults(Protocol):
    """One result per non-empty block, kept where it was computed.

    Examples
    --------
    >>> import numpy as np
    >>> from marginpursuit.blocks import Blocks
    >>> blocks = Blocks([lambda: np.ones((2, 3)), lambda: np.ones((4, 3))])
    >>> int(blocks.persist(len).total(lambda n_rows: n_rows))
    6
    """

    def total(self, function: Callable[[Any], Any]) -> Any:
        """Sum a function of the results, in the order of the blocks."""


class _LocalResults:
    """Results in the memory of this process."""

    def __init__(self, results: list[Any]) -> None:
        self._results = results

    def total(self, function: Callable[[Any], Any]) -> Any:
        return reduce(add, map(function, self._results))


def block_edges(lengths: Sequence[int]) -> NDArray[np.intp]:
    """Return the cumulative lengths of the blocks, from 0 to the number of rows."""
    counts = [count(f"lengths[{k}]", length, 0) for k, length in enumerate(lengths)]
    edges = np.concatenate([[0], np.cumsum(counts, dtype=np.intp)])
    if edges[-1] == 0:
        raise ValueError(f"blocks must have at least one row; got {len(counts)} empty blocks")
    return edges


def refuse_no_columns(n_columns: int) -> None:
    """Raise a ValueError if the rows have no columns."""
    if n_columns < 1:
        raise ValueError("blocks must have at least one column; got 0 columns")


def call_loader(block: int, load: Callable[[], Any]) -> Any:
    """Return what a loader returns; its errors name the block."""
    try:
        return load()
    except Exception as error:
        raise RuntimeError(f"block {block} could not be loaded: {error!r}") from error


def as_matrix(rows: Any) -> Any:
    """Return the result of a loader as an array, or as a CSR matrix without duplicate entries."""
    if not sparse.issparse(rows):
        return np.asarray(rows)
    return without_duplicates(checked_sparse(rows).tocsr())


def row_slice(vector: NDArray[Any], span: slice) -> NDArray[Any]:
    """Return the entries of a vector for some rows."""
    return np.ascontiguousarray(vector[..., span])


def check_block(block: int, rows: Any, shape: tuple[int, int], *, is_sparse: bool) -> None:
    """Raise an error that names the block if its format, dtype or shape is not as expected."""
    if sparse.issparse(rows) != is_sparse:
        formats = ("dense", "sparse")
        raise TypeError(
            f"block {block} must be {formats[is_sparse]} like the first block; "
            f"got {formats[not is_sparse]}"
        )
    if rows.dtype.kind not in "biuf":
        raise TypeError(f"block {block} must contain real numbers; got dtype {rows.dtype}")
    if rows.shape != shape:
        raise ValueError(
            f"block {block} must have shape {shape}, from its length and the columns of the first "
            f"block; got {rows.shape}"
        )


def identity(value: Any) -> Any:
    """Return the argument."""
    return value


def _select(rows: NDArray[np.intp], block: Any) -> Any:
    return block[rows]


def _load_mapped(blocks: Blocks, block: int, function: Callable[[Any], Any]) -> Any:
    return function(blocks.load(block))
