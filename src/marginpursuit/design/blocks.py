"""Rows that come in blocks: each is a design in memory for as long as it is read.

Results of blocks are added in their order, so that no result depends on when a block arrives.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginpursuit._validation import FloatArray
from marginpursuit.blocks import Blocks, Held
from marginpursuit.design._base import Design, Flags, Sweep
from marginpursuit.design.memory import MemoryDesign
from marginpursuit.tasks import Tasks


@dataclass(frozen=True, slots=True)
class _Moments:
    """The weight of some rows, their mean, and the sum of weight times squares about it."""

    weight: float
    mean: FloatArray
    second: FloatArray  # (n_columns, n_columns), or its diagonal

    def __add__(self, other: "_Moments") -> "_Moments":
        """Join the moments of two sets of rows, without the cancellation of raw moments."""
        weight = self.weight + other.weight
        share = other.weight / weight if weight > 0 else 0.0
        apart = other.mean - self.mean
        square = apart**2 if self.second.ndim == 1 else np.outer(apart, apart)
        second = self.second + other.second + self.weight * share * square
        return _Moments(weight, self.mean + share * apart, second)


class BlockDesign(Design):
    """Blocks of rows, read one after another in as many threads as a block has work for."""

    def __init__(self, blocks: Blocks, *, n_threads: int = 1) -> None:
        super().__init__(*blocks.shape)
        self.is_sparse = blocks.is_sparse
        self._blocks = blocks
        self._n_threads = 1 if blocks.is_parallel else n_threads

    def hold_scores(
        self,
        make: Callable[..., Any],
        coef: FloatArray,
        intercept: FloatArray,
        *vectors: NDArray[Any],
    ) -> Held:
        """Keep what a function makes of the scores and vectors of each block, in one read."""
        self.n_passes += 1
        ask = partial(_make_of_scores, make, *self.to_data((coef, intercept)))
        return self._blocks.hold(self._in_memory(ask), *vectors)

    def _in_memory(self, ask: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of rows that asks a design in memory, with the centre of this one."""
        return partial(_ask_rows, ask, self.centre, self._n_threads)

    def _total(self, ask: Callable[..., Any], *vectors: NDArray[Any]) -> Any:
        return self._blocks.total(self._in_memory(ask), *vectors)

    def _set_centre(self, weights: FloatArray, *, centred: bool, diagonal: bool) -> FloatArray:
        self.n_passes += 1  # a block is read twice while it is in memory
        moments = self._total(partial(_moments, centred=centred, diagonal=diagonal), weights)
        self.centre = moments.mean
        return np.asarray(moments.second)

    def _score_chunks(
        self, coef: FloatArray, intercept: FloatArray
    ) -> Iterator[tuple[slice, FloatArray]]:
        run = self._in_memory(partial(MemoryDesign._scores, coef=coef, intercept=intercept))
        for _, span, scores in self._blocks.each(run):
            yield span, scores

    def _part_scores(
        self, coef: FloatArray, intercept: FloatArray, chosen: Flags, part: NDArray[np.intp]
    ) -> list[FloatArray]:
        run = self._in_memory(partial(_scores_of_parts, coef, intercept, part))
        scores = [scores for _, _, scores in self._blocks.each(run, chosen)]
        return [np.concatenate(parts) for parts in zip(*scores, strict=True)]

    def _sweep(self, coef: FloatArray, intercept: FloatArray, tasks: Tasks) -> Sweep:
        # What goes with the rows is handed over in pieces, and not with the question.
        question = replace(tasks, codes=tasks.codes[:0], weights=tasks.weights[:, :0])
        ask = partial(_sweep_tasks, coef, intercept, question)
        return self._total(ask, tasks.codes, tasks.weights)  # type: ignore[no-any-return]

    def _adjoint(self, factors: FloatArray) -> FloatArray:
        return np.asarray(self._total(MemoryDesign._adjoint, factors))

    def _gram(self, weights: FloatArray) -> FloatArray:
        return np.asarray(self._total(MemoryDesign._gram, weights))

    def _squares(self, weights: FloatArray) -> FloatArray:
        return np.asarray(self._total(MemoryDesign._squares, weights))

    def _part_moments(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        first, second = self._total(_stacked_moments, weights)
        return first, second

    def _distances(self, factors: FloatArray) -> FloatArray:
        run = self._in_memory(partial(MemoryDesign._distances, factors=factors))
        return np.concatenate([distances for _, _, distances in self._blocks.each(run)])

    def _largest(self, columns: NDArray[np.intp]) -> FloatArray:
        run = self._in_memory(partial(MemoryDesign._largest, columns=columns))
        return np.asarray(np.max([largest for _, _, largest in self._blocks.each(run)], axis=0))

    def _row_products(self, factors: FloatArray) -> FloatArray:
        products = np.empty((self.n_rows, self.n_rows))
        run = self._in_memory(partial(MemoryDesign.scaled_rows, factors=factors))
        for _, span, rows in self._blocks.each(run):  # the scores of a row are its products
            coef = (rows * factors).T
            products[:, span] = self._scores(coef, -self.centre @ coef)
        return products


# What a block is asked. These functions go to workers by name, which closures do not.


def _ask_rows(
    ask: Callable[..., Any], centre: FloatArray, n_threads: int, rows: Any, *vectors: NDArray[Any]
) -> Any:
    """Ask a design in memory about rows and what goes with them."""
    with np.errstate(all="ignore"), MemoryDesign(rows, n_threads=n_threads) as design:
        design.centre = centre
        return ask(design, *vectors)


def _moments(
    design: MemoryDesign, weights: FloatArray, *, centred: bool, diagonal: bool
) -> _Moments:
    weight = float(weights.sum())
    shares = weights / weight if weight > 0 else weights
    second = design._set_centre(shares, centred=centred, diagonal=diagonal)
    return _Moments(weight, design.centre, weight * second)


def _sweep_tasks(
    coef: FloatArray,
    intercept: FloatArray,
    question: Tasks,
    design: MemoryDesign,
    codes: NDArray[np.intp],
    weights: FloatArray,
) -> Sweep:
    return design._sweep(coef, intercept, replace(question, codes=codes, weights=weights))


def _scores_of_parts(
    coef: FloatArray,
    intercept: FloatArray,
    part: NDArray[np.intp],
    design: MemoryDesign,
    chosen: Flags,
) -> list[FloatArray]:
    return design._part_scores(coef, intercept, chosen, part)


def _stacked_moments(design: MemoryDesign, weights: FloatArray) -> FloatArray:
    return np.stack(design._part_moments(weights))


def _make_of_scores(
    make: Callable[..., Any],
    coef: FloatArray,
    intercept: FloatArray,
    design: MemoryDesign,
    *vectors: NDArray[Any],
) -> Any:
    return make(design._scores(coef, intercept), *vectors)
