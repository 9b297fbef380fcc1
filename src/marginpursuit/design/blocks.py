"""Rows that come in blocks: each is a design in memory for as long as it is read.

Results of blocks are added in their order, so that no result depends on when a block arrives.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginpursuit._validation import FloatArray
from marginpursuit.blocks import Blocks
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

    def _in_memory(self, ask: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of rows that asks a design in memory, with the centre of this one."""
        centre, n_threads = self.centre, self._n_threads

        def run(rows: Any, *vectors: NDArray[Any]) -> Any:
            with np.errstate(all="ignore"), MemoryDesign(rows, n_threads=n_threads) as design:
                design.centre = centre
                return ask(design, *vectors)

        return run

    def _total(self, ask: Callable[..., Any], *vectors: NDArray[Any]) -> Any:
        return self._blocks.total(self._in_memory(ask), *vectors)

    def _set_centre(self, weights: FloatArray, *, centred: bool, diagonal: bool) -> FloatArray:
        self.n_reads += 1  # a block is read twice while it is in memory

        def ask(design: MemoryDesign, weights: FloatArray) -> _Moments:
            weight = float(weights.sum())
            shares = weights / weight if weight > 0 else weights
            second = design._set_centre(shares, centred=centred, diagonal=diagonal)
            return _Moments(weight, design.centre, weight * second)

        moments = self._total(ask, weights)
        self.centre = moments.mean
        return np.asarray(moments.second)

    def _score_chunks(
        self, coef: FloatArray, intercept: FloatArray
    ) -> Iterator[tuple[slice, FloatArray]]:
        run = self._in_memory(lambda design: design._scores(coef, intercept))
        for _, span, scores in self._blocks.each(run):
            yield span, scores

    def _part_scores(
        self, coef: FloatArray, intercept: FloatArray, chosen: Flags, part: NDArray[np.intp]
    ) -> list[FloatArray]:
        run = self._in_memory(
            lambda design, chosen: design._part_scores(coef, intercept, chosen, part)
        )
        scores = [scores for _, _, scores in self._blocks.each(run, chosen)]
        return [np.concatenate(parts) for parts in zip(*scores, strict=True)]

    def _sweep(self, coef: FloatArray, intercept: FloatArray, tasks: Tasks) -> Sweep:
        # What goes with the rows is handed over in pieces, and not with the question.
        question = replace(tasks, codes=tasks.codes[:0], weights=tasks.weights[:, :0])

        def ask(design: MemoryDesign, codes: NDArray[np.intp], weights: FloatArray) -> Sweep:
            return design._sweep(coef, intercept, replace(question, codes=codes, weights=weights))

        return self._total(ask, tasks.codes, tasks.weights)  # type: ignore[no-any-return]

    def _pullback(self, factors: FloatArray) -> FloatArray:
        return np.asarray(self._total(MemoryDesign._pullback, factors))

    def _gram(self, weights: FloatArray) -> FloatArray:
        return np.asarray(self._total(MemoryDesign._gram, weights))

    def _squares(self, weights: FloatArray) -> FloatArray:
        return np.asarray(self._total(MemoryDesign._squares, weights))

    def _part_moments(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        first, second = self._total(
            lambda design, shares: np.stack(design._part_moments(shares)), weights
        )
        return first, second

    def _largest(self, columns: NDArray[np.intp]) -> FloatArray:
        run = self._in_memory(lambda design: design._largest(columns))
        return np.asarray(np.max([largest for _, _, largest in self._blocks.each(run)], axis=0))

    def _row_products(self, factors: FloatArray) -> FloatArray:
        products = np.empty((self.n_rows, self.n_rows))
        run = self._in_memory(lambda design: design.scaled_rows(factors))
        for _, span, rows in self._blocks.each(run):  # the scores of a row are its products
            coef = (rows * factors).T
            products[:, span] = self._scores(coef, -self.centre @ coef)
        return products
