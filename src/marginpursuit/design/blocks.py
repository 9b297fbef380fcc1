"""Rows that come in blocks: each block is a design in memory while it is read.

The results of blocks are added in order, so that no result depends on when a block arrives.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginpursuit._threads import Threads
from marginpursuit._validation import FloatArray
from marginpursuit.blocks import BlockResults, Blocks
from marginpursuit.design._base import BoolArray, Design, Standardisation, Sweep, design_for
from marginpursuit.design.memory import MemoryDesign
from marginpursuit.tasks import Tasks


@dataclass(frozen=True, slots=True)
class _Moments:
    """The weight of some rows, their mean, and the weighted sum of squares about it."""

    weight: float
    mean: FloatArray
    second: FloatArray  # (n_columns, n_columns), or its diagonal

    def __add__(self, other: "_Moments") -> "_Moments":
        """Combine the moments of two sets of rows, without the cancellation of raw moments."""
        weight = self.weight + other.weight
        fraction = other.weight / weight if weight > 0 else 0.0
        difference = other.mean - self.mean
        is_diagonal = self.second.ndim == 1
        square = difference**2 if is_diagonal else np.outer(difference, difference)
        second = self.second + other.second + self.weight * fraction * square
        return _Moments(weight, self.mean + fraction * difference, second)


@design_for.register(Blocks)
class BlockDesign(Design):
    """Blocks of rows, read one after another, each by all threads.

    Where blocks are read in parallel, as on a cluster, each is read by one thread.
    """

    def __init__(self, blocks: Blocks, threads: Threads | None = None) -> None:
        super().__init__(*blocks.shape, threads)
        self.is_sparse = blocks.is_sparse
        self._blocks = blocks
        self._n_threads = 1 if blocks.is_parallel else self.threads.n

    def from_dense_rows(self, rows: FloatArray) -> MemoryDesign:
        """Return a design of other dense rows, in memory."""
        return MemoryDesign(rows, self.threads)

    def persist_scores(
        self,
        function: Callable[..., Any],
        coef: FloatArray,
        intercept: FloatArray,
        standardisation: Standardisation,
        *vectors: NDArray[Any],
    ) -> BlockResults:
        """Compute a function of each block in one pass, and keep its result.

        The function is called with pairs of a slice of the block and the scores of these rows, and
        with the vectors of the block.
        """
        self.n_passes += 1
        linear = standardisation.to_data((coef, intercept))
        return self._blocks.persist(
            self._in_memory(partial(_map_scores, function, *linear)), *vectors
        )

    def _in_memory(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Turn a function of a design in memory into a function of the rows of a block."""
        return partial(_apply_to_rows, function, self._n_threads)

    def _total(self, function: Callable[..., Any], *vectors: NDArray[Any]) -> Any:
        return self._blocks.total(self._in_memory(function), *vectors)

    def _moments(
        self, weights: FloatArray, *, centred: bool, diagonal: bool
    ) -> tuple[FloatArray, FloatArray]:
        self.n_passes += 1  # the two passes are over a block in memory
        block_moments = partial(_block_moments, centred=centred, diagonal=diagonal)
        moments = self._total(block_moments, weights)
        return moments.mean, np.asarray(moments.second)

    def _score_chunks(
        self, coef: FloatArray, intercept: FloatArray
    ) -> Iterator[tuple[slice, FloatArray]]:
        function = self._in_memory(partial(MemoryDesign._scores, coef=coef, intercept=intercept))
        for _, span, scores in self._blocks.each(function):
            yield span, scores

    def _held_out_scores(
        self, coef: FloatArray, intercept: FloatArray, held_out: BoolArray, fold: NDArray[np.intp]
    ) -> list[FloatArray]:
        function = self._in_memory(partial(_held_out, coef, intercept, fold))
        scores = [scores for _, _, scores in self._blocks.each(function, held_out)]
        return [np.concatenate(folds) for folds in zip(*scores, strict=True)]

    def _sweep(self, coef: FloatArray, intercept: FloatArray, tasks: Tasks) -> Sweep:
        # Each block receives its slice of the codes and weights; the other fields are shared.
        shared = replace(tasks, codes=tasks.codes[..., :0], weights=tasks.weights[:, :0])
        sweep = partial(_sweep_block, coef, intercept, shared)
        return self._total(sweep, tasks.codes, tasks.weights)  # type: ignore[no-any-return]

    def _adjoint(self, factors: FloatArray) -> FloatArray:
        return np.asarray(self._total(MemoryDesign._adjoint, factors))

    def _gram(self, weights: FloatArray, mean: FloatArray) -> FloatArray:
        return np.asarray(self._total(partial(MemoryDesign._gram, mean=mean), weights))

    def _squares(self, weights: FloatArray, mean: FloatArray) -> FloatArray:
        return np.asarray(self._total(partial(MemoryDesign._squares, mean=mean), weights))

    def _fold_moments(self, weights: FloatArray, mean: FloatArray) -> tuple[FloatArray, FloatArray]:
        first, second = self._total(partial(_stacked_moments, mean), weights)
        return first, second

    def _even_moments(
        self, weights: FloatArray, mean: FloatArray, factors: FloatArray
    ) -> FloatArray:
        moments = partial(MemoryDesign._even_moments, mean=mean, factors=factors)
        return np.asarray(self._total(moments, weights))

    def _row_norms(self, mean: FloatArray, factors: FloatArray) -> FloatArray:
        function = self._in_memory(partial(MemoryDesign._row_norms, mean=mean, factors=factors))
        return np.concatenate([norms for _, _, norms in self._blocks.each(function)])

    def _largest(self, columns: NDArray[np.intp]) -> FloatArray:
        function = self._in_memory(partial(MemoryDesign._largest, columns=columns))
        return np.asarray(
            np.max([largest for _, _, largest in self._blocks.each(function)], axis=0)
        )

    def _row_products(self, mean: FloatArray, factors: FloatArray) -> FloatArray:
        products = np.empty((self.n_rows, self.n_rows))
        function = self._in_memory(partial(MemoryDesign.scaled_rows, mean=mean, factors=factors))
        for _, span, rows in self._blocks.each(function):  # products with some rows are scores
            coef = (rows * factors).T
            products[:, span] = self._scores(coef, -mean @ coef)
        return products


# Functions of a block are at the top level: workers import them by name, which closures do not
# allow.


def _apply_to_rows(
    function: Callable[..., Any], n_threads: int, rows: Any, *vectors: NDArray[Any]
) -> Any:
    """Call a function with a design of the rows, and the slices of vectors for these rows."""
    with np.errstate(all="ignore"), Threads(n_threads) as threads:
        return function(MemoryDesign(rows, threads), *vectors)


def _block_moments(
    design: MemoryDesign, weights: FloatArray, *, centred: bool, diagonal: bool
) -> _Moments:
    weight = float(weights.sum())
    relative = weights / weight if weight > 0 else weights
    mean, second = design._moments(relative, centred=centred, diagonal=diagonal)
    return _Moments(weight, mean, weight * second)


def _stacked_moments(mean: FloatArray, design: MemoryDesign, weights: FloatArray) -> FloatArray:
    return np.stack(design._fold_moments(weights, mean))


def _sweep_block(
    coef: FloatArray,
    intercept: FloatArray,
    shared: Tasks,
    design: MemoryDesign,
    codes: NDArray[np.intp],
    weights: FloatArray,
) -> Sweep:
    return design._sweep(coef, intercept, replace(shared, codes=codes, weights=weights))


def _held_out(
    coef: FloatArray,
    intercept: FloatArray,
    fold: NDArray[np.intp],
    design: MemoryDesign,
    held_out: BoolArray,
) -> list[FloatArray]:
    return design._held_out_scores(coef, intercept, held_out, fold)


def _map_scores(
    function: Callable[..., Any],
    coef: FloatArray,
    intercept: FloatArray,
    design: MemoryDesign,
    *vectors: NDArray[Any],
) -> Any:
    chunks: Iterable[tuple[slice, FloatArray]] = design._score_chunks(coef, intercept)
    if len(intercept) == 1:  # by all threads
        chunks = [(slice(None), design._scores(coef, intercept))]
    return function(chunks, *vectors)
