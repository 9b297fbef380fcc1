"""Blocks on a Dask cluster.

Each round is one task a block, in which the block is loaded, asked and forgotten: what travels to a
worker is the recipe for loading it (its part of the graph) and the question, never the rows. Where
a worker is lost its tasks run elsewhere. Results are added up by tasks in a tree, whose shape
depends on the number of blocks alone: they are the same, bit for bit, whatever ran where and when.

Labels and weights are placed on the workers once; as they came by a task, a lost worker's share of
them is made again.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import cloudpickle
import dask
import distributed
import numpy as np
from dask import delayed
from dask.optimization import cull
from numpy.typing import NDArray

from marginpursuit.blocks._blocks import Blocks, check_block, pieces, unchanged

# How many results a task adds up.
_FAN_IN = 8

# Vectors that stay placed on the workers, the latest: classes and weights of the rows.
_MOST_PLACED = 4

# Bytes of a recipe above which it holds rows itself; these are then sent once and kept.
_MOST_RECIPE_BYTES = 1 << 16

# Seconds that a cluster may be without any worker, and between looks at it.
_PATIENCE = 60.0
_LOOK = 1.0


class Recipe:
    """How to load a block: its part of a Dask graph, which the scheduler takes for a value."""

    def __init__(self, graph: dict[Any, Any], key: Any) -> None:
        self._graph, self._key = cull(graph, [key])[0], key

    def __call__(self) -> Any:
        """Load the rows, in this thread."""
        return dask.get(self._graph, self._key)


class _Piece:
    """What belongs to a block of a vector, packed: one number where all are the same."""

    def __init__(self, vector: NDArray[Any]) -> None:
        first = vector.reshape(-1)[:1]
        values = first if np.all(vector == first) else vector
        if values.dtype.kind == "i" and values.min() >= 0:
            values = values.astype(np.min_scalar_type(values.max()))
        self._values, self._shape, self._dtype = values, vector.shape, vector.dtype

    def unpack(self) -> NDArray[Any]:
        return np.ascontiguousarray(np.broadcast_to(self._values, self._shape), dtype=self._dtype)


class DaskBlocks(Blocks):
    """Blocks that are asked where they are.

    `sources` are recipes or, for blocks that the cluster holds, futures.
    """

    is_sparse = False
    is_parallel = True

    def __init__(
        self,
        client: distributed.Client,
        sources: Sequence[Any],
        lengths: Sequence[int] | None,
        n_columns: int,
        changes: Sequence[tuple[Callable[[Any], Any], ...]] | None = None,
    ) -> None:
        self._client, self._sources = client, list(sources)
        self._changes = [()] * len(self._sources) if changes is None else changes
        self._label_loaders = []
        self._placed: dict[tuple[int, tuple[int, ...]], tuple[NDArray[Any], dict[int, Any]]] = {}
        if lengths is None:
            asked = [self._submit(_length, source) for source in self._sources]
            lengths = [self._result(future) for future in asked]
        self.edges = np.concatenate([[0], np.cumsum(lengths, dtype=np.intp)])
        self.shape, self.row_elements = (int(self.edges[-1]), n_columns), float(n_columns)
        if not self.shape[0]:
            raise ValueError(f"blocks must have rows; got {len(self._sources)} blocks without any")

    def load(self, block: int) -> Any:
        """Load the rows of a block, here."""
        question = self._question(block, unchanged)
        return self._result(self._submit(_answer, question, self._sources[block]))

    def map(self, change: Callable[[Any], Any]) -> "DaskBlocks":
        """Return blocks whose rows go through a function, each time they are loaded."""
        return self._changed([change] * self.n_blocks, self.edges)

    def take(self, rows: NDArray[np.intp]) -> "DaskBlocks":
        """Return some of the rows, to which the blocks are cut whenever they are loaded."""
        return self._changed(*self._cuts(rows))

    def each(
        self, run: Callable[..., Any], *vectors: NDArray[Any]
    ) -> Iterator[tuple[int, slice, Any]]:
        """Apply a function to every block that has rows, on the workers; yield in order."""
        asked = [(block, self._submit(_answer, *args)) for block, args in self._ask(run, vectors)]
        for block, future in asked:
            yield block, self._span(block), self._result(future)

    def total(self, run: Callable[..., Any], *vectors: NDArray[Any]) -> Any:
        """Add up what the function returns for the blocks, on the workers."""
        # One graph, of which only the last key is kept: what is added up is forgotten at once.
        level = [delayed(_answer, pure=False)(*args) for _, args in self._ask(run, vectors)]
        while len(level) > 1:
            starts = range(0, len(level), _FAN_IN)
            level = [delayed(_sum, pure=False)(level[k : k + _FAN_IN]) for k in starts]
        return self._result(self._client.compute(level[0], optimize_graph=False))

    def _ask(
        self, run: Callable[..., Any], vectors: Sequence[NDArray[Any]]
    ) -> Iterator[tuple[int, list[Any]]]:
        """Yield the arguments of `_answer` for each block that has rows."""
        full = np.flatnonzero(np.diff(self.edges)).tolist()
        placed = [self._place(vector, full) for vector in vectors]
        for block in full:
            source, parts = self._sources[block], [parts[block] for parts in placed]
            yield block, [self._question(block, run), source, *parts]

    def _changed(
        self, changes: Sequence[Callable[[Any], Any]], edges: NDArray[np.intp]
    ) -> "DaskBlocks":
        """Return blocks that go through one more function each, and then have these edges."""
        chains = [(*chain, last) for chain, last in zip(self._changes, changes, strict=True)]
        lengths = np.diff(edges).tolist()
        return DaskBlocks(self._client, self._sources, lengths, self.shape[1], chains)

    def _question(self, block: int, run: Callable[..., Any]) -> "_Question":
        span = self._span(block)
        return _Question(block, (span.stop - span.start, self.shape[1]), self._changes[block], run)

    def _submit(self, task: Callable[..., Any], *args: Any) -> distributed.Future:
        return self._client.submit(task, *args, pure=False)

    def _span(self, block: int) -> slice:
        return slice(int(self.edges[block]), int(self.edges[block + 1]))

    def _place(self, vector: NDArray[Any], blocks: list[int]) -> dict[int, Any]:
        """Place a vector's pieces on the workers, unless they are there."""
        name = vector.__array_interface__["data"][0], vector.shape
        if name not in self._placed:
            parts = {
                block: self._submit(unchanged, _Piece(*pieces([vector], self._span(block))))
                for block in blocks
            }
            # The vector is kept, so that no other can come to lie where it lies.
            self._placed[name] = vector, parts
            while len(self._placed) > _MOST_PLACED:
                del self._placed[next(iter(self._placed))]
        return self._placed[name][1]

    def _result(self, future: distributed.Future) -> Any:
        """Wait for a result; give up where no worker is left, or no scheduler."""
        last_seen = time.monotonic()
        while True:
            try:
                with suppress(TimeoutError):
                    return future.result(timeout=_LOOK)
                if self._client.nthreads():
                    last_seen = time.monotonic()
            except (distributed.CancelledError, OSError) as error:
                raise ConnectionError(f"the Dask scheduler was lost: {error}") from error
            if time.monotonic() - last_seen > _PATIENCE:
                raise ConnectionError(f"the Dask cluster has had no worker for {_PATIENCE:g} s")


def from_dask(X: Any) -> Blocks:
    """Return the blocks of a Dask array, or of the values of a Dask data frame."""
    if hasattr(X, "to_dask_array"):
        X = X.to_dask_array()
    if X.ndim != 2:
        raise ValueError(f"X must have 2 dimensions; got {X.ndim}")
    X = X.rechunk({1: -1})
    try:
        client = distributed.get_client()
    except ValueError:
        client = None
    lengths = None if np.isnan(X.shape[0]) else X.chunks[0]
    keys = [row[0] for row in X.__dask_keys__()]
    if client is None:
        return Blocks(_recipes(X, keys), lengths)
    held = bool(distributed.futures_of(X))
    recipes = [] if held else _recipes(X, keys)
    if held or len(cloudpickle.dumps(recipes[0])) > _MOST_RECIPE_BYTES:
        by_key = {future.key: future for future in distributed.futures_of(client.persist(X))}
        return DaskBlocks(client, [by_key[key] for key in keys], lengths, X.shape[1])
    return DaskBlocks(client, recipes, lengths, X.shape[1])


def _recipes(X: Any, keys: list[Any]) -> list[Recipe]:
    graph = dict(X.__dask_optimize__(X.__dask_graph__(), keys))
    return [Recipe(graph, key) for key in keys]


def _rows(source: Any) -> Any:
    return np.asarray(source() if isinstance(source, Recipe) else source)


def _length(source: Any) -> int:
    return len(_rows(source))


class _Question:
    """What a block is asked, and what is known of it."""

    def __init__(
        self,
        block: int,
        shape: tuple[int, int],
        changes: tuple[Callable[[Any], Any], ...],
        run: Callable[..., Any],
    ) -> None:
        self.block, self.shape, self.changes, self.run = block, shape, changes, run


def _answer(question: _Question, source: Any, *parts: "_Piece") -> Any:
    """Load a block and ask it: what a task does."""
    try:
        rows = _rows(source)
        for change in question.changes:
            rows = change(rows)
    except Exception as error:
        raise RuntimeError(f"block {question.block} could not be loaded: {error!r}") from error
    check_block(question.block, rows, question.shape, is_sparse=False)
    return question.run(rows, *(part.unpack() for part in parts))


def _sum(results: list[Any]) -> Any:
    total, *others = results
    for other in others:
        total = total + other
    return total
