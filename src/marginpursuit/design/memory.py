"""Rows in memory, or mapped into it: a dense array or a CSR matrix, read as it is.

This is what is asked with coefficients: sweeps, scores, and `descend`, which takes stochastic steps
along single rows. `_moments` has what is asked without, and how threads share the rows.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginpursuit import _kernels
from marginpursuit._kernels import Descent
from marginpursuit._threads import single_threaded_blas
from marginpursuit._validation import FloatArray
from marginpursuit.design._base import Design, Flags, Sweep
from marginpursuit.design._moments import CHUNK_ELEMENTS, RowMoments
from marginpursuit.losses import MarginLoss
from marginpursuit.tasks import Tasks

# The most bytes of rows that are copied to be read faster, and the range of their values, whose
# products float32 holds. Only rows of no weight, or next to none, can be further out.
_MOST_CONDENSED = 1 << 30
_CONDENSED = -1e15, 1e15


class MemoryDesign(RowMoments):
    """A dense array or a CSR matrix, read by the compiled kernels where there are any."""

    def descend(self, descent: Descent, draws: NDArray[np.intp]) -> None:
        """Take stochastic steps along rows that are drawn, as they are: not standardised."""
        if not self.is_sparse and self._matrix.strides[1] != self._matrix.itemsize:
            # Rows whose elements lie apart in memory would be read several times slower.
            self._matrix = np.ascontiguousarray(self._matrix)
            self._rows = _kernels.rows(self._matrix)
        self._rows.descend(descent, draws)

    @property
    def tasks_per_pass(self) -> int:
        """The number of tasks for which `dual_pass` visits rows; zero where it cannot."""
        return int(self._rows.tasks_per_pass) if hasattr(self._rows, "dual_pass") else 0

    def dual_pass(self, *arguments: Any) -> None:
        """Visit sparse rows, as they are, for a team of tasks, as the compiled kernel does."""
        self._rows.dual_pass(*arguments)

    def sweep(self, coef: FloatArray, intercept: FloatArray, tasks: Tasks) -> Sweep:
        """Sum loss and gradient over the rows, for each task, in one read."""
        if not self._in_teams(tasks):
            return super().sweep(coef, intercept, tasks)
        self.n_passes += 1
        return self._sweep_teams(coef, intercept, tasks, self.centre, self.inverse_spread)

    def _sweep(self, coef: FloatArray, intercept: FloatArray, tasks: Tasks) -> Sweep:
        if self._in_teams(tasks):
            d = self.n_columns
            return self._sweep_teams(coef, intercept, tasks, np.zeros(d), np.ones(d))
        sweep_tasks = self._sweep_one if len(tasks) == 1 else self._sweep_many
        if self._padded is not None and 1 < len(tasks) <= _kernels.TILE_TASKS:
            sweep_tasks = self._sweep_tiles
        if not _are_known(tasks):
            sweep_tasks = self._sweep_unknown
        return sweep_tasks(coef, intercept, tasks)

    def _in_teams(self, tasks: Tasks) -> bool:
        """Whether sparse rows are swept for some tasks at a time, and not by matrix products."""
        return self.is_sparse and len(tasks) > 1 and _are_known(tasks)

    def _sweep_one(self, coef: FloatArray, intercept: FloatArray, tasks: Tasks) -> Sweep:
        n_blocks = len(self._blocks) - 1
        gradients = np.zeros((n_blocks, self.n_columns))
        sums = np.empty((n_blocks, 2))
        column = np.ascontiguousarray(coef[:, 0])
        (loss,), sign, weights = tasks.losses, tasks.sign(0), tasks.weights[tasks.part[0]]

        def run(block: int, first: int, last: int) -> None:
            sums[block] = self._rows.sweep(
                first, last, loss, sign, weights, column, float(intercept[0]), gradients[block]
            )

        self._for_blocks(run)
        value, slope = sums.sum(axis=0)
        return Sweep(np.array([value]), gradients.sum(axis=0)[:, np.newaxis], np.array([slope]))

    def _sweep_many(self, coef: FloatArray, intercept: FloatArray, tasks: Tasks) -> Sweep:
        n_tasks, n_columns = len(tasks), self.n_columns
        losses = tasks.loss_parameters
        coef_rows = np.ascontiguousarray(coef.T, dtype=self._product_type)

        def add(first: int, last: int, total: FloatArray) -> None:
            for start, stop, busy in tasks.busy(first, last):
                own = losses[busy], tasks.codes, tasks.weights, tasks.positive[busy]
                columns, part, offset = coef_rows[busy], tasks.part[busy], intercept[busy]
                gradient, (value, slope) = (
                    np.zeros((len(busy), n_columns)),
                    np.zeros((2, len(busy))),
                )
                for span, rows in self._chunks(start, stop, n_tasks):
                    scores = np.ascontiguousarray(columns @ rows.T, dtype=np.float64)
                    _kernels.task_losses(
                        *(span.start, *own, part, offset, scores, value, slope, 0, len(busy))
                    )
                    gradient += scores.astype(self._product_type, copy=False) @ rows
                total[busy] += np.column_stack([gradient, value, slope])

        total = self._summed((n_tasks, n_columns + 2), self.n_rows, add)
        value, slope = np.ascontiguousarray(total[:, n_columns:].T)
        return Sweep(value, total[:, :n_columns].T, slope)

    def _sweep_tiles(self, coef: FloatArray, intercept: FloatArray, tasks: Tasks) -> Sweep:
        assert self._padded is not None
        n_tasks, width = len(tasks), self._padded.shape[1]
        losses = tasks.loss_parameters

        def add(first: int, last: int, total: FloatArray) -> None:
            for start, stop, busy in tasks.busy(first, last):
                padded_tasks = -(-len(busy) // _kernels.TILE_GROUP) * _kernels.TILE_GROUP
                coef_rows = np.zeros((padded_tasks, width), dtype=np.float32)
                coef_rows[: len(busy), : self.n_columns] = coef.T[busy]
                gradient, (value, slope) = np.zeros((len(busy), width)), np.zeros((2, len(busy)))
                _kernels.sweep_tiles(
                    *(self._padded, start, stop, losses[busy], tasks.codes, tasks.weights),
                    *(tasks.positive[busy], tasks.part[busy], coef_rows, intercept[busy]),
                    *(gradient, value, slope),
                )
                total[busy] += np.column_stack([gradient, value, slope])

        total = self._summed((n_tasks, width + 2), self.n_rows, add)
        value, slope = np.ascontiguousarray(total[:, width:].T)
        return Sweep(value, total[:, : self.n_columns].T, slope)

    def _sweep_teams(
        self,
        coef: FloatArray,
        intercept: FloatArray,
        tasks: Tasks,
        centre: FloatArray,
        factors: FloatArray,
    ) -> Sweep:
        """Sweep sparse rows, centred and multiplied by the factors, for some tasks at a time."""
        n_tasks, n_columns = len(tasks), self.n_columns
        losses = tasks.loss_parameters
        weights = np.ascontiguousarray(tasks.weights.T)
        gradient, (value, slope) = np.empty((n_tasks, n_columns)), np.empty((2, n_tasks))
        size = self._rows.tasks_per_pass

        def share(thread: int, n_threads: int) -> None:
            table = np.empty((n_columns, 2, size))
            for first in range(thread * size, n_tasks, n_threads * size):
                self._rows.sweep_tasks(
                    *(losses, tasks.codes, weights, tasks.positive, tasks.part),
                    *(centre, factors, coef.T, intercept, table),
                    *(gradient, value, slope, first, min(first + size, n_tasks)),
                )

        self.in_threads(share, -(-n_tasks // size))
        return Sweep(value, gradient.T, slope)

    def _sweep_unknown(self, coef: FloatArray, intercept: FloatArray, tasks: Tasks) -> Sweep:
        """Sweep with losses that the kernels do not know, in a further read for each task."""
        n_tasks = len(tasks)
        value, slope, gradient = np.empty(n_tasks), np.empty(n_tasks), np.empty_like(coef)
        scores = super()._scores(coef, intercept)
        for k, loss in enumerate(tasks.losses):
            sign, weights = tasks.sign(k), tasks.weights[tasks.part[k]]
            margins = sign * scores[:, k]
            factors = weights * sign * loss.derivative(margins)
            value[k], slope[k] = weights @ loss.value(margins), factors.sum()
            gradient[:, k] = self._adjoint(factors)
        return Sweep(value, gradient, slope)

    def _scores(self, coef: FloatArray, intercept: FloatArray) -> FloatArray:
        if len(intercept) > 1:
            return super()._scores(coef, intercept)
        out, column = np.empty(self.n_rows), np.ascontiguousarray(coef[:, 0])
        self._for_blocks(
            lambda _, first, last: self._rows.scores(first, last, column, float(intercept[0]), out)
        )
        return out[:, np.newaxis]

    def _score_chunks(
        self, coef: FloatArray, intercept: FloatArray
    ) -> Iterator[tuple[slice, FloatArray]]:
        for span, rows in self._chunks(0, self.n_rows, len(intercept)):
            yield span, rows @ coef + intercept

    def _part_scores(
        self, coef: FloatArray, intercept: FloatArray, chosen: Flags, part: NDArray[np.intp]
    ) -> list[FloatArray]:
        own = [part == k for k in range(len(chosen))]
        coefs = [coef if tasks.all() else coef[:, tasks] for tasks in own]
        scores: list[list[list[FloatArray]]] = [[[] for _ in own] for _ in self._blocks[1:]]

        def run(block: int, first: int, last: int) -> None:
            for span, rows in self._chunks(first, last, len(part)):
                for kept, its, tasks, flags in zip(
                    scores[block], coefs, own, chosen[:, span], strict=True
                ):
                    kept.append(rows[flags] @ its + intercept[tasks])

        with single_threaded_blas():
            self._for_blocks(run)
        return [
            np.concatenate([x for some in kept for x in some]) for kept in zip(*scores, strict=True)
        ]

    def sample(self, rows: NDArray[np.intp]) -> Design | None:
        """Return a design of some dense rows."""
        if self.is_sparse:
            return None
        return MemoryDesign(self.rows_at(rows), n_threads=self.n_threads)

    def few(self, rows: NDArray[np.intp]) -> "MemoryDesign":
        """Return a design of a few dense rows, in rising order and the same coordinates.

        Those that were asked for the last time, here or by a sum over few rows, are not read again.
        """
        fewer = MemoryDesign(self._copied(rows))
        fewer.centre, fewer.inverse_spread = self.centre, self.inverse_spread
        return fewer

    def condensed(self, order: NDArray[np.intp]) -> Design:
        """Return a design of the standardised rows in float32, unless that takes much memory."""
        if self.is_sparse or 4 * self.n_rows * self.n_columns > _MOST_CONDENSED:
            return self
        width = -(-self.n_columns // _kernels.TILE_PADDING) * _kernels.TILE_PADDING
        padded = np.zeros((self.n_rows, width), dtype=np.float32)
        rows = padded[:, : self.n_columns]

        def run(_: int, first: int, last: int) -> None:
            step = max(16, CHUNK_ELEMENTS // self.n_columns)
            for start in range(first, last, step):
                span = slice(start, min(start + step, last))
                chunk = (self._matrix[order[span]] - self.centre) * self.inverse_spread
                np.clip(chunk, *_CONDENSED, out=rows[span])

        self._for_blocks(run)
        return MemoryDesign(rows, n_threads=self.n_threads, padded=padded)


def _are_known(tasks: Tasks) -> bool:
    """Whether the kernels know the losses."""
    return all(isinstance(loss, MarginLoss) and loss.rho == "catoni" for loss in tasks.losses)
