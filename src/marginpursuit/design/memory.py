"""Rows in memory, or mapped into it: a dense array or a CSR matrix, read as it is."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginpursuit import _kernels
from marginpursuit._kernels import Descent
from marginpursuit._threads import Threads, single_threaded_blas
from marginpursuit._validation import FloatArray
from marginpursuit.design import _moments
from marginpursuit.design._base import Design, Flags, Sweep
from marginpursuit.design._sweeps import sweep_csr, sweep_for
from marginpursuit.design._threaded_matrix import Block, ReadPolicy, ThreadedMatrix
from marginpursuit.design.standardisation import Standardisation
from marginpursuit.tasks import Tasks


class MemoryDesign(Design):
    """A dense array or a CSR matrix, read by the compiled kernels where they are installed.

    Parameters
    ----------
    matrix : ndarray or CSR matrix of shape (n_rows, n_columns)
        The rows, of any real dtype.
    threads : Threads, optional
        Worker threads, which belong to the caller.
    padded : ndarray of float32, optional
        The same rows with zero columns appended, for products in float32.
    policy : ReadPolicy, optional
        The sizes of the units of work.
    """

    def __init__(
        self,
        matrix: Any,
        threads: Threads | None = None,
        *,
        padded: NDArray[np.float32] | None = None,
        policy: ReadPolicy | None = None,
    ) -> None:
        super().__init__(matrix.shape[0], matrix.shape[1], threads)
        self._rows = ThreadedMatrix(matrix, self.threads, padded, policy)
        self.is_sparse = self._rows.is_sparse
        if padded is not None:
            self.rounding = 1e-8  # of sums of float32 products
        self.capabilities = frozenset({"subset", "row_access", "descend"})
        if hasattr(self._rows.kernels, "dual_pass"):
            self.capabilities |= {"dual_pass"}

    @property
    def matrix(self) -> Any:
        """The rows as they are."""
        return self._rows.matrix

    @property
    def n_stored(self) -> int:
        """The number of stored elements."""
        return self._rows.n_stored

    @property
    def tasks_per_pass(self) -> int:
        """The number of tasks that one `dual_pass` is for."""
        return int(self._rows.kernels.tasks_per_pass)

    def descend(self, descent: Descent, draws: NDArray[np.intp]) -> None:
        """Take stochastic gradient steps along drawn rows as they are: capability "descend"."""
        self._rows.make_contiguous()
        self._rows.kernels.descend(descent, draws)

    def dual_pass(self, *arguments: Any) -> None:
        """Visit CSR rows as they are by dual coordinate ascent: capability "dual_pass"."""
        self._rows.kernels.dual_pass(*arguments)

    def with_matrix(self, matrix: Any) -> "MemoryDesign":
        """Return a design of an equivalent matrix, whose passes count as passes of this design."""
        other = MemoryDesign(matrix, self.threads)
        other._counter = self._counter
        return other

    def like(self, rows: FloatArray) -> "MemoryDesign":
        """Return a design of other dense rows."""
        return MemoryDesign(rows, self.threads)

    def subset(
        self, rows: NDArray[np.intp] | slice, threads: Threads | None = None
    ) -> "MemoryDesign":
        """Return a design of some rows; a slice of dense rows is not copied."""
        if isinstance(rows, slice) or self.is_sparse:
            return MemoryDesign(self.matrix[rows], threads)
        return MemoryDesign(self._rows.copy_rows(rows), threads)

    def cached_subset(self, rows: NDArray[np.intp]) -> "MemoryDesign":
        """Return a design of a few dense rows, in rising order; rows of the last call are kept."""
        return MemoryDesign(self._rows.cached_rows(rows))

    def float32_copy(
        self, order: NDArray[np.intp], standardisation: Standardisation
    ) -> "MemoryDesign | None":
        """Return a float32 copy of the standardised dense rows, unless that is too large."""
        policy = self._rows.policy
        if self.is_sparse or 4 * self.n_rows * self.n_columns > policy.max_copy_bytes:
            return None
        width = -(-self.n_columns // _kernels.TILE_PADDING) * _kernels.TILE_PADDING
        padded = np.zeros((self.n_rows, width), dtype=np.float32)
        rows = padded[:, : self.n_columns]
        step = max(16, policy.chunk_elements // self.n_columns)

        def run(block: Block) -> None:
            _, first, last = block
            for start in range(first, last, step):
                span = slice(start, min(start + step, last))
                chunk = self.matrix[order[span]] - standardisation.mean
                chunk *= standardisation.inverse_deviation
                # Products of values within ±1e15 stay finite in float32. Only rows of weight
                # about zero are farther out in standard deviations.
                np.clip(chunk, -1e15, 1e15, out=rows[span])

        list(self.threads.map(run, self._rows.blocks))
        return MemoryDesign(rows, self.threads, padded=padded, policy=policy)

    def sweep(
        self,
        coef: FloatArray,
        intercept: FloatArray,
        tasks: Tasks,
        standardisation: Standardisation,
    ) -> Sweep:
        """Sum losses and gradients over the rows, for each task, in one pass."""
        self.n_passes += 1
        sweep = sweep_for(self._rows, tasks)
        if sweep is sweep_csr:  # its kernel standardises while it copies coefficients
            mean, factors = standardisation.mean, standardisation.inverse_deviation
            return sweep_csr(self._rows, coef, intercept, tasks, mean, factors)
        raw = sweep(self._rows, *standardisation.to_data((coef, intercept)), tasks)
        return Sweep(raw.value, standardisation.gradient(raw.gradient, raw.slope), raw.slope)

    def quadratic_forms(self, matrix: FloatArray | None = None) -> FloatArray:
        """Return x·Mx for every row as it is; without a matrix, ‖x‖²."""
        self.n_passes += 1
        return _moments.quadratic_forms(self._rows, matrix)

    def absolute_products(
        self, weights: FloatArray, standardisation: Standardisation, *, with_intercept: bool
    ) -> FloatArray:
        """Return the weighted sum of |z_j| Σ_k |z_k|, a diagonal that majorises the Gram matrix."""
        self.n_passes += 1
        return _moments.absolute_products(
            *(self._rows, weights, standardisation.mean, standardisation.inverse_deviation),
            with_intercept=with_intercept,
        )

    def scaled_rows(self, mean: FloatArray, factors: FloatArray) -> FloatArray:
        """Return all rows factors · (x - mean) as a dense array."""
        rows = self.matrix.toarray() if self.is_sparse else self.matrix
        return np.asarray((rows - mean) * factors)

    def _sweep(self, coef: FloatArray, intercept: FloatArray, tasks: Tasks) -> Sweep:
        return sweep_for(self._rows, tasks)(self._rows, coef, intercept, tasks)

    def _scores(self, coef: FloatArray, intercept: FloatArray) -> FloatArray:
        if len(intercept) > 1:
            return super()._scores(coef, intercept)
        rows, out, column = self._rows, np.empty(self.n_rows), np.ascontiguousarray(coef[:, 0])

        def run(block: Block) -> None:
            _, first, last = block
            rows.kernels.scores(first, last, column, float(intercept[0]), out)

        list(self.threads.map(run, rows.blocks))
        return out[:, np.newaxis]

    def _score_chunks(
        self, coef: FloatArray, intercept: FloatArray
    ) -> Iterator[tuple[slice, FloatArray]]:
        for span, chunk in self._rows.chunks(0, self.n_rows, len(intercept)):
            yield span, chunk @ coef + intercept

    def _held_out_scores(
        self, coef: FloatArray, intercept: FloatArray, held_out: Flags, fold: NDArray[np.intp]
    ) -> list[FloatArray]:
        own = [fold == k for k in range(len(held_out))]
        coefs = [coef if tasks.all() else coef[:, tasks] for tasks in own]
        rows = self._rows
        chunks: list[list[list[FloatArray]]] = [[[] for _ in own] for _ in rows.blocks]

        def run(block: Block) -> None:
            number, first, last = block
            for span, chunk in rows.chunks(first, last, len(fold)):
                for kept, its_coef, tasks, flags in zip(
                    chunks[number], coefs, own, held_out[:, span], strict=True
                ):
                    kept.append(chunk[flags] @ its_coef + intercept[tasks])

        with single_threaded_blas():
            list(self.threads.map(run, rows.blocks))
        return [
            np.concatenate([x for some in kept for x in some]) for kept in zip(*chunks, strict=True)
        ]

    def _adjoint(self, factors: FloatArray) -> FloatArray:
        return _moments.adjoint(self._rows, factors)

    def _gram(self, weights: FloatArray, mean: FloatArray) -> FloatArray:
        return _moments.gram(self._rows, weights, mean)

    def _squares(self, weights: FloatArray, mean: FloatArray) -> FloatArray:
        return _moments.squares(self._rows, weights, mean)

    def _fold_moments(self, weights: FloatArray, mean: FloatArray) -> tuple[FloatArray, FloatArray]:
        return _moments.fold_moments(self._rows, weights, mean)

    def _row_norms(self, mean: FloatArray, factors: FloatArray) -> FloatArray:
        return _moments.row_norms(self._rows, mean, factors)

    def _largest(self, columns: NDArray[np.intp]) -> FloatArray:
        return _moments.largest(self._rows, columns)

    def _row_products(self, mean: FloatArray, factors: FloatArray) -> FloatArray:
        return _moments.row_products(self._rows, mean, factors)
