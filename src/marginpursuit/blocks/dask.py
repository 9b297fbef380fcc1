"""Blocks on a Dask cluster.

Each round is one task a block, in which the block is loaded, asked and forgotten: what travels to a
worker is the recipe for loading it (its part of the graph) and the question, never the rows. Where
a worker is lost its tasks run elsewhere. Results are added up by tasks in a tree that depends on
the shape of the blocks alone: they are the same, bit for bit, whatever ran where and when.

Labels and weights are placed on the workers once; as they came by a task, a lost worker's share of
them is made again.

A fit gives up with an error where nothing happens: after ``marginpursuit.no-worker-timeout``
("60 s") without any worker, and after ``marginpursuit.no-progress-timeout`` ("1 hour") in which no
task of a fit ended although there were workers. Both are settings of Dask's configuration, and so
the variables ``DASK_MARGINPURSUIT__NO_WORKER_TIMEOUT`` and
``DASK_MARGINPURSUIT__NO_PROGRESS_TIMEOUT`` of the environment set them too.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import cloudpickle
import dask
import distributed
import numpy as np
from dask.optimization import cull
from dask.utils import parse_timedelta
from numpy.typing import NDArray
from scipy import sparse

from marginpursuit.blocks._blocks import Blocks, check_block, in_rows, pieces, unchanged

# How many results a task adds up, and the bytes of Gram matrices that it may have at a time beyond
# the fewest.
_FEWEST_SUMMANDS, _MOST_SUMMANDS = 8, 64
_SUMMED_BYTES = 1 << 26

# Vectors that stay placed on the workers, the latest: classes and weights of the rows.
_MOST_PLACED = 4

# Bytes of a recipe above which it holds rows itself; these are then sent once and kept.
_MOST_RECIPE_BYTES = 1 << 16

# How long a cluster may be without any worker, and may end no task although it has some.
_TIMEOUTS = {"no-worker-timeout": "60 s", "no-progress-timeout": "1 hour"}

# Seconds between looks at a cluster.
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

    @property
    def is_small(self) -> bool:
        """Whether it is as well sent again as placed."""
        return self._values.size == 1

    def unpack(self) -> NDArray[Any]:
        return np.ascontiguousarray(np.broadcast_to(self._values, self._shape), dtype=self._dtype)


class DaskBlocks(Blocks):
    """Blocks that are asked where they are.

    `sources` are recipes or, for blocks that the cluster holds, futures. `n_rounds` counts how
    often all blocks were asked.
    """

    is_parallel = True

    def __init__(
        self,
        client: distributed.Client,
        sources: Sequence[Any],
        lengths: Sequence[int] | None,
        n_columns: int,
        changes: Sequence[tuple[Callable[[Any], Any], ...]] | None = None,
        *,
        is_sparse: bool = False,
    ) -> None:
        self._client, self._sources, self.is_sparse = client, list(sources), is_sparse
        self._changes = [()] * len(self._sources) if changes is None else changes
        self._label_loaders, self.n_rounds = [], 0
        self._placed: dict[tuple[int, tuple[int, ...]], tuple[NDArray[Any], list[Any]]] = {}
        if lengths is None:
            asked = [self._submit(_length, source) for source in self._sources]
            lengths = [self._result(future) for future in asked]
        self.edges = np.concatenate([[0], np.cumsum(lengths, dtype=np.intp)])
        self.shape, self.row_elements = (int(self.edges[-1]), n_columns), float(n_columns)
        if not self.shape[0]:
            raise ValueError(f"blocks must have rows; got {len(self._sources)} blocks without any")

    def load(self, block: int) -> Any:
        """Load the rows of a block, here."""
        question = self._question(block, cloudpickle.dumps(unchanged))
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
        self.n_rounds += 1
        blocks, futures = self._full, self._asked(run, vectors)
        for block, future in zip(blocks, futures, strict=True):
            yield block, self._span(block), self._result(future)

    def total(self, run: Callable[..., Any], *vectors: NDArray[Any]) -> Any:
        """Add up what the function returns for the blocks, on the workers."""
        return self._summed(self._asked(run, vectors))

    def hold(self, run: Callable[..., Any], *vectors: NDArray[Any]) -> "_HeldThere":
        """Keep what the function returns for the blocks, on the workers."""
        return _HeldThere(self._asked(run, vectors), self._map, self._summed)

    def _summed(self, futures: list[distributed.Future]) -> Any:
        self.n_rounds += 1
        # Only the last is kept here: what has been added up is forgotten at once.
        step = _SUMMED_BYTES // (8 * max(1, self.shape[1]) ** 2)
        step = min(max(step, _FEWEST_SUMMANDS), _MOST_SUMMANDS)
        while len(futures) > 1:
            starts = range(0, len(futures), step)
            futures = [self._submit(_sum, futures[k : k + step]) for k in starts]
        return self._result(futures.pop())

    @property
    def _full(self) -> list[int]:
        """The blocks that have rows."""
        return np.flatnonzero(np.diff(self.edges)).tolist()

    def _asked(
        self, run: Callable[..., Any], vectors: Sequence[NDArray[Any]]
    ) -> list[distributed.Future]:
        """Ask each block that has rows."""
        packed = cloudpickle.dumps(run)  # once, and not for every block
        questions = [self._question(block, packed) for block in self._full]
        sources = [self._sources[block] for block in self._full]
        return self._map(_answer, questions, sources, *(self._place(vector) for vector in vectors))

    def _map(self, task: Callable[..., Any], *args: list[Any]) -> list[distributed.Future]:
        return self._client.map(task, *args, pure=False)  # type: ignore[no-any-return]

    def _changed(
        self, changes: Sequence[Callable[[Any], Any]], edges: NDArray[np.intp]
    ) -> "DaskBlocks":
        """Return blocks that go through one more function each, and then have these edges."""
        chains = [(*chain, last) for chain, last in zip(self._changes, changes, strict=True)]
        return DaskBlocks(
            self._client,
            self._sources,
            np.diff(edges).tolist(),
            self.shape[1],
            chains,
            is_sparse=self.is_sparse,
        )

    def _question(self, block: int, packed: bytes) -> "_Question":
        span = self._span(block)
        shape = span.stop - span.start, self.shape[1]
        return _Question(block, shape, self.is_sparse, self._changes[block], packed)

    def _submit(self, task: Callable[..., Any], *args: Any) -> distributed.Future:
        return self._client.submit(task, *args, pure=False)

    def _span(self, block: int) -> slice:
        return slice(int(self.edges[block]), int(self.edges[block + 1]))

    def _place(self, vector: NDArray[Any]) -> list[Any]:
        """Place a vector's pieces on the workers, unless they are there, or are small."""
        name = vector.__array_interface__["data"][0], vector.shape
        if name not in self._placed:
            parts: list[Any] = [_Piece(*pieces([vector], self._span(k))) for k in self._full]
            if not all(part.is_small for part in parts):
                parts = self._map(unchanged, parts)
            # The vector is kept, so that no other can come to lie where it lies.
            self._placed[name] = vector, parts
            while len(self._placed) > _MOST_PLACED:
                del self._placed[next(iter(self._placed))]
        return self._placed[name][1]

    def _result(self, future: distributed.Future) -> Any:
        """Wait for a result; give up where no worker is left, no scheduler, or nothing happens."""
        without_worker, without_progress = (
            parse_timedelta(dask.config.get(f"marginpursuit.{name}", default))
            for name, default in _TIMEOUTS.items()
        )
        last_worker = last_progress = time.monotonic()
        seen = None
        while True:
            try:
                with suppress(TimeoutError):
                    return future.result(timeout=_LOOK)
                n_workers = len(self._client.nthreads())
                states = self._client.sync(self._client.scheduler.get_task_prefix_states)
            except (distributed.CancelledError, OSError) as error:
                raise ConnectionError(f"the Dask scheduler was lost: {error}") from error
            now = time.monotonic()
            last_worker = now if n_workers else last_worker
            ours = [states.get(task.__name__) for task in _TASKS]  # how many wait, run, are done
            last_progress = now if ours != seen else last_progress
            seen = ours
            if now - last_worker > without_worker:
                raise ConnectionError(
                    f"the Dask cluster has had no worker for {without_worker:g} s"
                )
            if n_workers and now - last_progress > without_progress:
                raise TimeoutError(
                    f"no task of a fit has ended for {without_progress:g} s on a Dask cluster with "
                    f"{n_workers} workers: look for a block that never loads, or set marginpursuit."
                    "no-progress-timeout to more in Dask's configuration"
                )


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
    sources: list[Any] = recipes
    if held or len(cloudpickle.dumps(recipes[0])) > _MOST_RECIPE_BYTES:
        by_key = {future.key: future for future in distributed.futures_of(client.persist(X))}
        sources = [by_key[key] for key in keys]
    return DaskBlocks(client, sources, lengths, X.shape[1], is_sparse=sparse.issparse(X._meta))


def _recipes(X: Any, keys: list[Any]) -> list[Recipe]:
    graph = dict(X.__dask_optimize__(X.__dask_graph__(), keys))
    return [Recipe(graph, key) for key in keys]


class _HeldThere:
    """What is kept of every block, on the workers."""

    def __init__(
        self, parts: list[Any], ask: Callable[..., list[Any]], add_up: Callable[[list[Any]], Any]
    ) -> None:
        self._parts, self._ask, self._add_up = parts, ask, add_up

    def total(self, ask: Callable[[Any], Any]) -> Any:
        packed = cloudpickle.dumps(ask)
        return self._add_up(self._ask(_reply, self._parts, [packed] * len(self._parts)))


def _rows(source: Any) -> Any:
    return in_rows(source() if isinstance(source, Recipe) else source)


def _length(source: Any) -> int:
    return int(_rows(source).shape[0])


class _Question:
    """What a block is asked, and what is known of it."""

    def __init__(
        self,
        block: int,
        shape: tuple[int, int],
        is_sparse: bool,
        changes: tuple[Callable[[Any], Any], ...],
        packed: bytes,
    ) -> None:
        self.block, self.shape, self.is_sparse = block, shape, is_sparse
        self.changes, self.packed = changes, packed


def _answer(question: _Question, source: Any, *parts: "_Piece") -> Any:
    """Load a block and ask it: what a task does."""
    try:
        rows = _rows(source)
        for change in question.changes:
            rows = change(rows)
    except Exception as error:
        raise RuntimeError(f"block {question.block} could not be loaded: {error!r}") from error
    check_block(question.block, rows, question.shape, is_sparse=question.is_sparse)
    return cloudpickle.loads(question.packed)(rows, *(part.unpack() for part in parts))


def _reply(held: Any, packed: bytes) -> Any:
    """Ask what is held of a block: what a task does that needs no rows."""
    return cloudpickle.loads(packed)(held)


def _sum(results: list[Any]) -> Any:
    total, *others = results
    for other in others:
        total = total + other
    return total


# Everything that runs on workers.
_TASKS = (_answer, _length, _reply, _sum, unchanged)
