"""Blocks on a Dask cluster.

A *round* is one task per block: the task loads the block, applies a function to it and releases it.
A worker receives the graph that loads the block and the serialised function, never the rows. The
tasks of a lost worker run on another one. Results are summed by a tree reduction whose shape
depends on the blocks alone, so that the sum is bitwise the same for every schedule.

Labels and weights are sent to the workers once and persisted as results of tasks, so that Dask
recomputes those of a lost worker.

A fit raises an error after ``marginpursuit.no-worker-timeout`` ("60 s") without any worker, and
after ``marginpursuit.no-progress-timeout`` ("1 hour") in which no task of the fit ended although
there were workers. Both are settings of Dask's configuration; the environment variables
``DASK_MARGINPURSUIT__NO_WORKER_TIMEOUT`` and ``DASK_MARGINPURSUIT__NO_PROGRESS_TIMEOUT`` set them
as well.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import cloudpickle
import dask
import distributed
import numpy as np
from dask.optimization import cull
from numpy.typing import NDArray
from scipy import sparse

from marginpursuit.blocks._blocks import (
    Blocks,
    as_matrix,
    block_edges,
    call_loader,
    check_block,
    identity,
    refuse_no_columns,
    row_slice,
)
from marginpursuit.blocks._dask_client import DaskPolicy, TaskClient

__all__ = ["DaskBlocks", "DaskPolicy", "from_dask"]


def from_dask(X: Any, policy: DaskPolicy | None = None) -> Blocks:
    """Return the blocks of a Dask array, or of the values of a Dask data frame."""
    policy = DaskPolicy() if policy is None else policy
    if hasattr(X, "to_dask_array"):
        X = X.to_dask_array()
    if X.ndim != 2:
        raise ValueError(f"X must have 2 dimensions; got {X.ndim}")
    refuse_no_columns(X.shape[1])
    X = X.rechunk({1: -1})
    lengths = None if np.isnan(X.shape[0]) else X.chunks[0]
    try:
        client = distributed.get_client()
    except ValueError:
        return Blocks(_block_graphs(X), lengths)
    functions = (apply_to_block, apply_to_result, count_rows, identity, sum_results)
    tasks = TaskClient(client, functions, policy)
    sources = _block_sources(X, client, policy)
    return DaskBlocks(tasks, sources, lengths, X.shape[1], is_sparse=sparse.issparse(X._meta))


class BlockGraph:
    """The Dask graph of one block, which the scheduler passes to a task as a plain value."""

    def __init__(self, graph: dict[Any, Any], key: Any) -> None:
        self._graph, self._key = cull(graph, [key])[0], key

    def __call__(self) -> Any:
        """Load the rows in this thread."""
        return dask.get(self._graph, self._key)


def _block_graphs(X: Any) -> list[BlockGraph]:
    keys = _block_keys(X)
    graph = dict(X.__dask_optimize__(X.__dask_graph__(), keys))
    return [BlockGraph(graph, key) for key in keys]


def _block_sources(X: Any, client: distributed.Client, policy: DaskPolicy) -> list[Any]:
    """Return the graph of each block, or its future if X is persisted.

    An array whose graph contains the rows is persisted.
    """
    if not distributed.futures_of(X):
        graphs = _block_graphs(X)
        if len(cloudpickle.dumps(graphs[0])) <= policy.max_graph_bytes:
            return list(graphs)
    futures = {future.key: future for future in distributed.futures_of(client.persist(X))}
    return [futures[key] for key in _block_keys(X)]


def _block_keys(X: Any) -> list[Any]:
    return [row[0] for row in X.__dask_keys__()]


class DaskBlocks(Blocks):
    """Blocks that the workers of a cluster load and process.

    Parameters
    ----------
    tasks : TaskClient
        Submits the tasks.
    sources : sequence of BlockGraph or Future
        The graph of each block, or the future of a persisted block.
    lengths : sequence of int or None
        The number of rows of each block; None counts them in one round.
    n_columns : int
        The number of columns.
    functions : sequence of tuples of callables, optional
        The functions that are applied in turn to each block when it is loaded.
    is_sparse : bool
        Whether the blocks are sparse.

    Attributes
    ----------
    n_rounds : int
        The number of rounds of tasks whose results were returned to this process.
    """

    is_parallel = True

    def __init__(
        self,
        tasks: TaskClient,
        sources: Sequence[Any],
        lengths: Sequence[int] | None,
        n_columns: int,
        functions: Sequence[tuple[Callable[[Any], Any], ...]] | None = None,
        *,
        is_sparse: bool = False,
    ) -> None:
        self._tasks, self._sources, self.is_sparse = tasks, list(sources), is_sparse
        self._functions = [()] * len(self._sources) if functions is None else functions
        self._label_loaders, self.n_rounds = [], 0
        self._vectors: dict[tuple[int, tuple[int, ...]], tuple[NDArray[Any], list[Any]]] = {}
        if lengths is None:
            futures = [tasks.submit(count_rows, source) for source in self._sources]
            lengths = [tasks.result(future) for future in futures]
        self.edges = block_edges(lengths)
        self.shape, self.elements_per_row = (int(self.edges[-1]), n_columns), float(n_columns)

    def load(self, block: int) -> Any:
        """Load the rows of a block into this process."""
        task = self._block_task(block, cloudpickle.dumps(identity))
        return self._tasks.result(self._tasks.submit(apply_to_block, task, self._sources[block]))

    def map(self, function: Callable[[Any], Any], n_columns: int | None = None) -> "DaskBlocks":
        """Return blocks to which a function is applied each time they are loaded."""
        return self._mapped([function] * self.n_blocks, self.edges, n_columns)

    def take(self, rows: NDArray[np.intp]) -> "DaskBlocks":
        """Return a subset of the rows, selected each time a block is loaded."""
        return self._mapped(*self._row_selections(rows))

    def each(
        self, function: Callable[..., Any], *vectors: NDArray[Any]
    ) -> Iterator[tuple[int, slice, Any]]:
        """Apply a function to every non-empty block on the workers; yield results in order."""
        self.n_rounds += 1
        futures = self._apply(function, vectors)
        for block, future in zip(self._nonempty, futures, strict=True):
            yield block, self._span(block), self._tasks.result(future)

    def total(self, function: Callable[..., Any], *vectors: NDArray[Any]) -> Any:
        """Sum the results of a function of the blocks on the workers."""
        return self._sum(self._apply(function, vectors))

    def persist(self, function: Callable[..., Any], *vectors: NDArray[Any]) -> "_DaskResults":
        """Apply a function to the blocks and keep the results on the workers."""
        return _DaskResults(self._apply(function, vectors), self._tasks, self._sum)

    def _sum(self, futures: list[distributed.Future]) -> Any:
        self.n_rounds += 1
        return self._tasks.reduce(sum_results, futures, self.shape[1])

    def _apply(
        self, function: Callable[..., Any], vectors: Sequence[NDArray[Any]]
    ) -> list[distributed.Future]:
        """Submit one task for each non-empty block."""
        payload = cloudpickle.dumps(function)  # serialised once for all blocks
        block_tasks = [self._block_task(block, payload) for block in self._nonempty]
        sources = [self._sources[block] for block in self._nonempty]
        slices = [self._persisted(vector) for vector in vectors]
        return self._tasks.map(apply_to_block, block_tasks, sources, *slices)

    def _mapped(
        self,
        functions: Sequence[Callable[[Any], Any]],
        edges: NDArray[np.intp],
        n_columns: int | None = None,
    ) -> "DaskBlocks":
        """Return blocks with one more function each, after which they have the given edges.

        The rows are dense if a number of columns is given, and keep columns and format otherwise.
        """
        chains = [(*chain, last) for chain, last in zip(self._functions, functions, strict=True)]
        return DaskBlocks(
            self._tasks,
            self._sources,
            np.diff(edges).tolist(),
            self.shape[1] if n_columns is None else n_columns,
            chains,
            is_sparse=self.is_sparse and n_columns is None,
        )

    def _block_task(self, block: int, payload: bytes) -> "BlockTask":
        span = self._span(block)
        shape = span.stop - span.start, self.shape[1]
        return BlockTask(block, shape, self.is_sparse, self._functions[block], payload)

    def _persisted(self, vector: NDArray[Any]) -> list[Any]:
        """Return the slices of a vector for each block; larger ones as futures on the workers.

        Slices are persisted under the address and shape of the vector. The vector itself is kept
        as well, so that its address cannot be reused.
        """
        name = vector.__array_interface__["data"][0], vector.shape
        if name not in self._vectors:
            slices: list[Any] = [
                PackedVector(row_slice(vector, self._span(k))) for k in self._nonempty
            ]
            if not all(part.is_constant for part in slices):
                slices = self._tasks.map(identity, slices)
            self._vectors[name] = vector, slices
            while len(self._vectors) > self._tasks.policy.max_vectors:
                del self._vectors[next(iter(self._vectors))]
        return self._vectors[name][1]


class _DaskResults:
    """Results of blocks, in the memory of the workers."""

    def __init__(
        self,
        futures: list[distributed.Future],
        tasks: TaskClient,
        reduce: Callable[[list[distributed.Future]], Any],
    ) -> None:
        self._futures, self._tasks, self._reduce = futures, tasks, reduce

    def total(self, function: Callable[[Any], Any]) -> Any:
        payloads = [cloudpickle.dumps(function)] * len(self._futures)
        return self._reduce(self._tasks.map(apply_to_result, self._futures, payloads))


class PackedVector:
    """The entries of a vector for one block, compressed.

    Equal entries are stored once; non-negative integers have the smallest dtype that fits.
    """

    def __init__(self, vector: NDArray[Any]) -> None:
        first = vector.reshape(-1)[:1]
        values = first if np.all(vector == first) else vector
        if values.dtype.kind == "i" and values.min() >= 0:
            values = values.astype(np.min_scalar_type(values.max()))
        self._values, self._shape, self._dtype = values, vector.shape, vector.dtype

    @property
    def is_constant(self) -> bool:
        """Whether all entries are equal, so that sending them again is as cheap as persisting."""
        return self._values.size == 1

    @property
    def nbytes(self) -> int:
        """The number of bytes of the stored values."""
        return self._values.nbytes

    def unpack(self) -> NDArray[Any]:
        """Return the entries."""
        return np.ascontiguousarray(np.broadcast_to(self._values, self._shape), dtype=self._dtype)


@dataclass(frozen=True, slots=True)
class BlockTask:
    """What `apply_to_block` does with a block, and the properties that are checked before."""

    block: int
    shape: tuple[int, int]
    is_sparse: bool
    functions: tuple[Callable[[Any], Any], ...]  # applied in turn when the block is loaded
    payload: bytes  # the serialised function of the rows and slices of vectors

    def load(self, source: Any) -> Any:
        """Load the rows and apply the functions."""
        rows = _load(source)
        for function in self.functions:
            rows = function(rows)
        return rows


def _load(source: Any) -> Any:
    return as_matrix(source() if isinstance(source, BlockGraph) else source)


# The functions below run on workers. Their names are the task prefixes of the Dask dashboard.


def apply_to_block(task: BlockTask, source: Any, *slices: PackedVector) -> Any:
    """Load a block and apply a function to its rows."""
    rows = call_loader(task.block, partial(task.load, source))
    check_block(task.block, rows, task.shape, is_sparse=task.is_sparse)
    return cloudpickle.loads(task.payload)(rows, *(part.unpack() for part in slices))


def apply_to_result(result: Any, payload: bytes) -> Any:
    """Apply a serialised function to the persisted result of a block."""
    return cloudpickle.loads(payload)(result)


def count_rows(source: Any) -> int:
    """Load a block and count its rows."""
    return int(_load(source).shape[0])


def sum_results(results: list[Any]) -> Any:
    """Sum results from left to right."""
    total, *others = results
    for other in others:
        total = total + other
    return total
