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

from marginpursuit._validation import count

__all__ = ["Blocks", "Held"]


class Blocks:
    """Rows in blocks, each of which is loaded whenever it is needed.

    Parameters
    ----------
    loaders : sequence of callables
        Each returns the rows of a block, the same at every call: an array of shape
        (n_rows, n_columns), of any real dtype, or a sparse matrix.
    lengths : sequence of int, optional
        The number of rows of each block. By default every block is loaded once to count them.
    label_loaders : sequence of callables, optional
        Each returns the labels of a block, for `labels`.

    Attributes
    ----------
    shape : tuple of int
        The number of rows and of columns.
    edges : ndarray of shape (n_blocks + 1,)
        Block k has the rows from ``edges[k]`` on, up to but without ``edges[k + 1]``.
    is_sparse : bool
        Whether the blocks are sparse.
    row_elements : float
        The elements that a row stores: the number of columns; of sparse rows, those of the first
        block in the mean.

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

    #: Whether several blocks are asked at a time, so that each is to be asked in one thread.
    is_parallel = False

    def __init__(
        self,
        loaders: Sequence[Callable[[], Any]],
        lengths: Sequence[int] | None = None,
        label_loaders: Sequence[Callable[[], Any]] = (),
    ) -> None:
        self._loaders, self._label_loaders = list(loaders), list(label_loaders)
        if lengths is None:
            lengths = [self._load(k).shape[0] for k in range(len(self._loaders))]
        if len(lengths) != len(self._loaders):
            raise ValueError(
                f"lengths must have one number for each of {len(self._loaders)} blocks; "
                f"got {len(lengths)}"
            )
        counts = [count(f"lengths[{k}]", length, 0) for k, length in enumerate(lengths)]
        self.edges = np.concatenate([[0], np.cumsum(counts, dtype=np.intp)])
        if self.edges[-1] == 0:
            raise ValueError(f"blocks must have rows; got {len(self._loaders)} blocks without any")
        first = self._load(int(np.flatnonzero(counts)[0]))
        self.shape: tuple[int, int] = int(self.edges[-1]), first.shape[1]
        self.is_sparse = sparse.issparse(first)
        self.row_elements = float(first.nnz / first.shape[0] if self.is_sparse else first.shape[1])

    @property
    def n_blocks(self) -> int:
        """The number of blocks, some of which may be empty."""
        return len(self.edges) - 1

    def labels(self) -> NDArray[Any]:
        """Load the labels of all blocks.

        Returns
        -------
        ndarray of shape (n_rows,)
            The labels, in the order of the rows.
        """
        if not self._label_loaders:
            raise ValueError("these blocks came without labels: pass y as an array")
        return np.concatenate([np.asarray(load()) for load in self._label_loaders])

    def load(self, block: int) -> Any:
        """Load the rows of a block.

        Parameters
        ----------
        block : int
            Its number, from 0 on.

        Returns
        -------
        {ndarray, CSR matrix} of shape (n_rows, n_columns)
            The rows.
        """
        rows, n_rows = self._load(block), int(self.edges[block + 1] - self.edges[block])
        check_block(block, rows, (n_rows, self.shape[1]), is_sparse=self.is_sparse)
        return rows

    def with_labels(self, other: "Blocks") -> "Blocks":
        """Return the same rows with the labels of others."""
        return Blocks(self._loaders, np.diff(self.edges).tolist(), other._label_loaders)

    def map(self, change: Callable[[Any], Any]) -> "Blocks":
        """Return blocks whose rows go through a function, each time they are loaded.

        Parameters
        ----------
        change : callable
            Takes and returns the rows of a block.

        Returns
        -------
        Blocks
            The changed rows.

        Examples
        --------
        >>> import numpy as np
        >>> from marginpursuit.blocks import Blocks
        >>> Blocks([lambda: np.eye(3)]).map(lambda rows: 2 * rows).load(0)[1]
        array([0., 2., 0.])
        """
        loaders = [_Changed(partial(self.load, k), change) for k in range(self.n_blocks)]
        return Blocks(loaders, np.diff(self.edges).tolist(), self._label_loaders)

    def take(self, rows: NDArray[np.intp]) -> "Blocks":
        """Return some of the rows, to which the blocks are cut whenever they are loaded.

        Parameters
        ----------
        rows : ndarray of int
            The numbers of the rows, rising.

        Returns
        -------
        Blocks
            These rows, in as many blocks, without labels.

        Examples
        --------
        >>> import numpy as np
        >>> from marginpursuit.blocks import Blocks
        >>> Blocks([lambda: np.eye(3), lambda: np.ones((2, 3))]).take(np.array([1, 4])).gather()
        array([[0., 1., 0.],
               [1., 1., 1.]])
        """
        fewer, (cuts, edges) = copy(self), self._cuts(rows)
        fewer._loaders = [_Changed(partial(self.load, k), cut) for k, cut in enumerate(cuts)]
        fewer._label_loaders, fewer.edges = [], edges
        fewer.shape = len(rows), self.shape[1]
        return fewer

    def gather(self) -> Any:
        """Load all rows into memory.

        Returns
        -------
        {ndarray, CSR matrix} of shape (n_rows, n_columns)
            The rows.
        """
        parts = [rows for _, _, rows in self.each(unchanged)]
        return sparse.vstack(parts, format="csr") if self.is_sparse else np.concatenate(parts)

    def each(
        self, run: Callable[..., Any], *vectors: NDArray[Any]
    ) -> Iterator[tuple[int, slice, Any]]:
        """Apply a function to every block that has rows; the next is read meanwhile.

        Parameters
        ----------
        run : callable
            Called with the rows of a block and what belongs to them of each vector.
        *vectors : ndarray of shape (..., n_rows)
            What goes with the rows.

        Yields
        ------
        block : int
            The number of the block, in rising order.
        span : slice
            Its rows.
        result : object
            What the function returns.
        """
        full = np.flatnonzero(np.diff(self.edges)).tolist()
        with ThreadPoolExecutor(1) as reader:
            ahead = reader.submit(self.load, full[0])
            for block, after in zip(full, [*full[1:], None], strict=True):
                rows = ahead.result()
                if after is not None:
                    ahead = reader.submit(self.load, after)
                span = slice(int(self.edges[block]), int(self.edges[block + 1]))
                yield block, span, run(rows, *pieces(vectors, span))

    def total(self, run: Callable[..., Any], *vectors: NDArray[Any]) -> Any:
        """Add up what `each` yields, in the order of the blocks.

        Parameters
        ----------
        run : callable
            Called as by `each`.
        *vectors : ndarray of shape (..., n_rows)
            What goes with the rows.

        Returns
        -------
        object
            The sum.
        """
        return reduce(add, (result for _, _, result in self.each(run, *vectors)))

    def hold(self, run: Callable[..., Any], *vectors: NDArray[Any]) -> "Held":
        """Keep what a function makes of every block that has rows, where it is made.

        Parameters
        ----------
        run : callable
            Called as by `each`.
        *vectors : ndarray of shape (..., n_rows)
            What goes with the rows.

        Returns
        -------
        Held
            What can be asked of the results.
        """
        return _HeldHere([result for _, _, result in self.each(run, *vectors)])

    def _cuts(self, rows: NDArray[np.intp]) -> tuple[list["_Cut"], NDArray[np.intp]]:
        """Return what cuts each block to these rows, and where the blocks then begin."""
        edges = np.searchsorted(rows, self.edges)
        spans = zip(self.edges, pairwise(edges), strict=False)
        return [_Cut(rows[start:stop] - first) for first, (start, stop) in spans], edges

    def _load(self, block: int) -> Any:
        try:
            rows = self._loaders[block]()
        except Exception as error:
            raise RuntimeError(f"block {block} could not be loaded: {error!r}") from error
        return in_rows(rows)


def in_rows(rows: Any) -> Any:
    """Return what a loader returned as an array, or as a CSR matrix."""
    is_sparse = sparse.issparse(rows)
    if not is_sparse:
        return np.asarray(rows)
    rows = rows.tocsr()
    if not rows.has_canonical_format:  # squares need entries that are named once
        rows = rows.copy()
        rows.sum_duplicates()
    return rows


def pieces(vectors: Sequence[NDArray[Any]], span: slice) -> list[NDArray[Any]]:
    """Return what belongs to some rows of each vector."""
    return [np.ascontiguousarray(vector[..., span]) for vector in vectors]


def check_block(block: int, rows: Any, shape: tuple[int, int], *, is_sparse: bool) -> None:
    """Refuse rows that are not as the other blocks, or as was said, and name the block."""
    if sparse.issparse(rows) != is_sparse:
        kinds = ("dense", "sparse")
        raise TypeError(
            f"block {block} must be {kinds[is_sparse]} as the first is; got {kinds[not is_sparse]}"
        )
    if rows.dtype.kind not in "biuf":
        raise TypeError(f"block {block} must hold real numbers; got dtype {rows.dtype}")
    if rows.shape != shape:
        raise ValueError(
            f"block {block} must have shape {shape}, {shape[1]} columns as the others and as many "
            f"rows as was said; got {rows.shape}"
        )


def unchanged(rows: Any) -> Any:
    """Return what it is given."""
    return rows


class _Cut:
    """Takes some rows of a block."""

    def __init__(self, rows: NDArray[np.intp]) -> None:
        self._rows = rows

    def __call__(self, block: Any) -> Any:
        return block[self._rows]


class Held(Protocol):
    """Something that is kept of every block."""

    def total(self, ask: Callable[[Any], Any]) -> Any:
        """Add up what a function says of each, in the order of the blocks."""


class _HeldHere:
    """What is kept of every block, in memory."""

    def __init__(self, parts: list[Any]) -> None:
        self._parts = parts

    def total(self, ask: Callable[[Any], Any]) -> Any:
        return reduce(add, map(ask, self._parts))


class _Changed:
    """A loader of rows that go through a function."""

    def __init__(self, load: Callable[[], Any], change: Callable[[Any], Any]) -> None:
        self._load, self._change = load, change

    def __call__(self) -> Any:
        return self._change(self._load())
