"""Rows in memory, or mapped into it: a dense array or a CSR matrix, read as it is.

Each function `sweep_...` sums the losses and gradients of several tasks in one pass over the rows;
they differ in how the products are made. `sweep_for` chooses.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from marginpursuit import _kernels
from marginpursuit._kernels import Descent
from marginpursuit._threads import Threads
from marginpursuit._validation import FloatArray
from marginpursuit.design._base import BoolArray, PassCounter, Standardisation, Sweep, design_for
from marginpursuit.design._joint import sweep_joint
from marginpursuit.design._matrix import Block, MatrixDesign
from marginpursuit.tasks import JointTasks, Tasks

_Sweeper: TypeAlias = Callable[[MatrixDesign, FloatArray, FloatArray, Tasks], Sweep]


@design_for.register(np.ndarray)
@design_for.register(sparse.sparray)
@design_for.register(sparse.spmatrix)
class MemoryDesign(MatrixDesign):
    """A dense array or a CSR matrix, read by the compiled kernels where they are installed.

    The parameters are those of `MatrixDesign`.
    """

    #: The last float32 copy, with the order and the standardisation of its rows.
    _last_float32: "tuple[NDArray[np.intp], Standardisation | None, MemoryDesign | None]"
    _last_float32 = np.empty(0, dtype=np.intp), None, None

    @property
    def tasks_per_pass(self) -> int:
        """The number of tasks that one `dual_pass` is for."""
        return int(self.kernels.tasks_per_pass)

    def descend(self, descent: Descent, draws: NDArray[np.intp]) -> None:
        """Take stochastic gradient steps along drawn rows as they are: capability "descend"."""
        self.make_contiguous()
        self.kernels.descend(descent, draws)

    def dual_pass(self, *arguments: Any) -> int:
        """Visit rows by dual ascent: capability "dual_pass".

        They are CSR, or float64 or float32 and contiguous.
        """
        return int(self.kernels.dual_pass(*arguments))

    def with_matrix(self, matrix: Any) -> "MemoryDesign":
        """Return a design of an equivalent matrix, whose passes count as passes of this design."""
        other = MemoryDesign(matrix, self.threads)
        other._counter = self._counter
        return other

    def from_dense_rows(self, rows: FloatArray) -> "MemoryDesign":
        """Return a design of other dense rows."""
        return MemoryDesign(rows, self.threads)

    def subset(
        self, rows: NDArray[np.intp] | slice, threads: Threads | None = None
    ) -> "MemoryDesign":
        """Return a design of some rows; a slice of dense rows is not copied."""
        if self.padded is not None:
            padded = np.ascontiguousarray(self.padded[rows])
            return MemoryDesign(padded[:, : self.n_columns], threads, padded=padded)
        if isinstance(rows, slice) or self.is_sparse:
            return MemoryDesign(self.matrix[rows], threads)
        return MemoryDesign(self.copy_rows(rows), threads)

    def cached_subset(self, rows: NDArray[np.intp]) -> "MemoryDesign":
        """Return a design of a few dense rows, in rising order; rows of the last call are kept."""
        return MemoryDesign(self.cached_rows(rows), self.threads)

    def float32_copy(
        self, order: NDArray[np.intp], standardisation: Standardisation
    ) -> "MemoryDesign | None":
        """Return a float32 copy of the standardised dense rows, unless that is too large.

        The last copy is kept: half fits and the fit to all rows read the same.
        """
        policy, (last_order, last, copy) = self.policy, self._last_float32
        if copy is not None and last_order is order and last is standardisation:
            return copy.with_counter(PassCounter())
        if self.is_sparse or 4 * self.n_rows * self.n_columns > policy.max_copy_bytes:
            return None
        width = -(-self.n_columns // _kernels.TILE_PADDING) * _kernels.TILE_PADDING
        padded = np.zeros((self.n_rows, width), dtype=np.float32)
        rows = padded[:, : self.n_columns]
        step, limit = max(16, policy.chunk_elements // self.n_columns), policy.max_float32_value

        def run(block: Block) -> None:
            _, first, last = block
            for start in range(first, last, step):
                span = slice(start, min(start + step, last))
                chunk = self.matrix[order[span]] - standardisation.mean
                chunk *= standardisation.inverse_deviation
                rows[span] = np.clip(chunk, -limit, limit, out=chunk)

        list(self.threads.map(run, self.blocks))
        copy = MemoryDesign(rows, self.threads, padded=padded, policy=policy)
        self._last_float32 = order, standardisation, copy
        return copy

    def copied_order(self, standardisation: Standardisation) -> NDArray[np.intp]:
        """Return the order of the last copy, if the standardisation is that of the copy."""
        order, own, _ = self._last_float32
        return order if own is standardisation else super().copied_order(standardisation)

    def sweep(
        self,
        coef: FloatArray,
        intercept: FloatArray,
        tasks: Tasks,
        standardisation: Standardisation,
    ) -> Sweep:
        """Sum losses and gradients over the rows, for each task, in one pass."""
        self.n_passes += 1
        sweep = sweep_for(self, tasks)
        if sweep is sweep_csr:  # its kernel standardises while it copies coefficients
            mean, factors = standardisation.mean, standardisation.inverse_deviation
            return sweep_csr(self, coef, intercept, tasks, mean, factors)
        raw = sweep(self, *standardisation.to_data((coef, intercept)), tasks)
        return Sweep(raw.value, standardisation.gradient(raw.gradient, raw.slope), raw.slope)

    def scaled_rows(
        self,
        mean: FloatArray,
        factors: FloatArray,
        rows: NDArray[np.intp] | None = None,
        dtype: type[np.float64 | np.float32] = np.float64,
    ) -> Any:
        """Return the rows factors · (x - mean) as a dense array; all, or those of some indices.

        In float32 they are limited as those of `float32_copy` are.
        """
        if self.is_sparse:
            return np.asarray((self.matrix.toarray() - mean) * factors, dtype=dtype)
        n_rows = self.n_rows if rows is None else len(rows)
        out: Any = np.empty((n_rows, self.n_columns), dtype=dtype)
        step, limit = (
            max(16, self.policy.chunk_elements // self.n_columns),
            self.policy.max_float32_value,
        )

        def run(start: int) -> None:
            span: Any = slice(start, min(start + step, n_rows))
            chunk = self.matrix[span if rows is None else rows[span]]
            scaled = np.subtract(chunk, mean, out=out[span] if dtype is np.float64 else None)
            scaled *= factors
            if dtype is np.float32:
                np.clip(scaled, -limit, limit, out=out[span], casting="same_kind")

        list(self.threads.map(run, range(0, n_rows, step)))
        return out

    def _sweep(self, coef: FloatArray, intercept: FloatArray, tasks: Tasks) -> Sweep:
        return sweep_for(self, tasks)(self, coef, intercept, tasks)

    def _scores(self, coef: FloatArray, intercept: FloatArray) -> FloatArray:
        if len(intercept) > self.policy.max_single_tasks:
            return super()._scores(coef, intercept)
        out, columns = np.empty((len(intercept), self.n_rows)), np.ascontiguousarray(coef.T)

        def run(block: Block) -> None:
            _, first, last = block
            for column, offset, scores in zip(columns, intercept, out, strict=True):
                self.kernels.scores(first, last, column, offset, scores)

        list(self.threads.map(run, self.blocks))
        return out.T

    def _score_chunks(
        self, coef: FloatArray, intercept: FloatArray
    ) -> Iterator[tuple[slice, FloatArray]]:
        for span, chunk in self.chunks(0, self.n_rows, len(intercept)):
            yield span, chunk @ coef + intercept

    def _map_scores(
        self, function: Callable[[slice, Any], Any], coef: FloatArray, intercept: FloatArray
    ) -> list[Any]:
        n_scores = 8 * len(intercept)  # chunks of an eighth of the size: each thread has one
        if self.is_sparse:  # SciPy would copy other coefficients for each chunk
            coef = np.ascontiguousarray(coef)

        def run(block: Block) -> list[Any]:
            chunks = self.chunks(block.first, block.last, n_scores)
            return [function(span, chunk @ coef + intercept) for span, chunk in chunks]

        return [part for parts in self.threads.map(run, self.blocks) for part in parts]

    def _scores_of_few(
        self, coef: FloatArray, intercept: FloatArray, held_out: BoolArray, fold: NDArray[np.intp]
    ) -> list[FloatArray]:
        """Return the scores of held-out rows, for few tasks of each fold.

        Products with all rows of a block cost less than a copy of some of them. A block in which a
        fold holds out no row is not multiplied with the coefficients of that fold.
        """
        out, columns = np.empty((len(fold), self.n_rows)), np.ascontiguousarray(coef.T)

        def run(block: Block) -> None:
            _, first, last = block
            is_held_out = np.logical_or.reduce(held_out[:, first:last], axis=1)
            for k in np.flatnonzero(is_held_out[fold]):
                self.kernels.scores(first, last, columns[k], intercept[k], out[k])

        list(self.threads.map(run, self.blocks))
        return [out[np.ix_(fold == k, flags)].T for k, flags in enumerate(held_out)]

    def _held_out_scores(
        self, coef: FloatArray, intercept: FloatArray, held_out: BoolArray, fold: NDArray[np.intp]
    ) -> list[FloatArray]:
        if len(fold) <= self.policy.max_single_scores:
            return self._scores_of_few(coef, intercept, held_out, fold)
        given = coef, intercept, held_out, fold
        if coef.size <= self.policy.chunk_elements:
            return self._scores_of_many(*given, range(len(held_out)))
        return [self._scores_of_many(*given, [k])[0] for k in range(len(held_out))]

    def _scores_of_many(
        self,
        coef: FloatArray,
        intercept: FloatArray,
        held_out: BoolArray,
        fold: NDArray[np.intp],
        which: Sequence[int],
    ) -> list[FloatArray]:
        """Return the scores of the rows that some folds hold out, by copies of the coefficients.

        The product type is that of several tasks.
        """
        tasks = [fold == k for k in which]
        coefs = [np.ascontiguousarray(coef[:, own], dtype=self.product_type) for own in tasks]
        rows = [np.flatnonzero(held_out[k]) for k in which]
        sizes = zip(rows, tasks, strict=True)
        scores = [np.empty((len(own), np.count_nonzero(some))) for own, some in sizes]
        step = self.chunk_rows(max(2, int(np.bincount(fold).max())))

        def run(chunk: tuple[int, int]) -> None:
            k, start = chunk
            span = slice(start, start + step)
            some = self.matrix[rows[k][span]].astype(self.product_type, copy=False)
            scores[k][span] = some @ coefs[k]
            scores[k][span] += intercept[tasks[k]]

        chunks = [
            (k, start)
            for k, own in enumerate(scores)
            if own.shape[1]
            for start in range(0, len(own), step)
        ]
        list(self.threads.map(run, chunks))
        return scores


def sweep_for(rows: MatrixDesign, tasks: Tasks) -> _Sweeper:
    """Choose how to sweep these rows for these tasks."""
    if isinstance(tasks, JointTasks):
        return sweep_joint
    if not tasks.has_compiled_losses:
        return sweep_any_loss
    if len(tasks) == 1:
        return sweep_each_task
    if rows.is_sparse:
        has_few = len(tasks) <= rows.policy.max_single_csr_tasks
        return sweep_each_task if has_few else sweep_csr
    if rows.padded is not None and len(tasks) <= _kernels.FAST_TILE_TASKS:
        return sweep_tiles
    has_few = len(tasks) <= rows.policy.max_single_tasks and tasks.ranges is None
    return sweep_each_task if has_few else sweep_by_products


def sweep_each_task(
    rows: MatrixDesign, coef: FloatArray, intercept: FloatArray, tasks: Tasks
) -> Sweep:
    """Sweep a block for each task by the fused kernel: scores, loss and gradient of a row."""
    gradients = np.zeros((len(rows.blocks), len(tasks), rows.n_columns))
    sums = np.empty((len(rows.blocks), len(tasks), 2))
    columns = np.ascontiguousarray(coef.T)
    arguments = [
        (loss, tasks.sign(k), tasks.weights[tasks.fold[k]], columns[k], float(intercept[k]))
        for k, loss in enumerate(tasks.losses)
    ]

    def run(block: Block) -> None:
        number, first, last = block
        for k, own in enumerate(arguments):
            sums[number, k] = rows.kernels.sweep(first, last, *own, gradients[number, k])

    list(rows.threads.map(run, rows.blocks))
    value, slope = sums.sum(axis=0).T
    return Sweep(value, gradients.sum(axis=0).T, slope)


def sweep_by_products(
    rows: MatrixDesign, coef: FloatArray, intercept: FloatArray, tasks: Tasks
) -> Sweep:
    """Sweep dense rows by two matrix products a chunk, with the losses in between."""
    n_tasks, n_columns = len(tasks), rows.n_columns
    coef_rows = np.ascontiguousarray(coef.T, dtype=rows.product_type)

    def add(first: int, last: int, total: FloatArray) -> None:
        for start, stop, used in tasks.used_ranges(first, last):
            groups = list(tasks.by_codes(used))
            which = _as_slice(np.concatenate([own for own, _, _ in groups]))
            own = tasks.loss_parameters[which], tasks.weights, tasks.fold[which]
            positive = np.concatenate([positive for _, _, positive in groups])
            columns, offset, sums = coef_rows[which], intercept[which], total[which]
            value, slope = np.zeros((2, len(offset)))
            for span, chunk in rows.chunks(start, stop, n_tasks):
                scores = np.ascontiguousarray(columns @ chunk.T, dtype=np.float64)
                begin = 0
                for some, codes, _ in groups:
                    end = begin + len(some)
                    parameters, weights, fold = own
                    _kernels.task_losses(
                        *(span.start, parameters, codes, weights, positive, fold, offset),
                        *(scores, value, slope, begin, end),
                    )
                    begin = end
                sums[:, :n_columns] += scores.astype(rows.product_type, copy=False) @ chunk
            sums[:, n_columns] += value
            sums[:, n_columns + 1] += slope
            if not isinstance(which, slice):  # then the sums are a copy
                total[which] = sums

    total = rows.sum_blocks((n_tasks, n_columns + 2), rows.n_rows, add)
    value, slope = np.ascontiguousarray(total[:, n_columns:].T)
    return Sweep(value, total[:, :n_columns].T, slope)


def _as_slice(which: NDArray[np.intp]) -> slice | NDArray[np.intp]:
    """Return indices of consecutive tasks as a slice, which selects without a copy."""
    first, last = int(which[0]), int(which[-1])
    is_range = last - first == len(which) - 1 and bool(np.all(np.diff(which) == 1))
    return slice(first, last + 1) if is_range else which


def sweep_tiles(rows: MatrixDesign, coef: FloatArray, intercept: FloatArray, tasks: Tasks) -> Sweep:
    """Sweep padded float32 rows by the kernel that keeps a tile of rows in cache."""
    assert rows.padded is not None
    n_tasks, width = len(tasks), rows.padded.shape[1]
    parameters = tasks.loss_parameters

    def add(first: int, last: int, total: FloatArray) -> None:
        for start, stop, used in tasks.used_ranges(first, last):
            for some, codes, positive in _tile_groups(tasks, used):
                n = len(some)
                padded_tasks = -(-n // _kernels.TILE_GROUP) * _kernels.TILE_GROUP
                coef_rows = np.zeros((padded_tasks, width), dtype=np.float32)
                coef_rows[:n, : rows.n_columns] = coef.T[some]
                gradient, (value, slope) = np.zeros((n, width)), np.zeros((2, n))
                _kernels.sweep_tiles(
                    *(rows.padded, start, stop, parameters[some], codes, tasks.weights),
                    *(positive, tasks.fold[some], coef_rows, intercept[some]),
                    *(gradient, value, slope),
                )
                total[some] += np.column_stack([gradient, value, slope])

    total = rows.sum_blocks((n_tasks, width + 2), rows.n_rows, add)
    value, slope = np.ascontiguousarray(total[:, width:].T)
    return Sweep(value, total[:, : rows.n_columns].T, slope)


def _tile_groups(
    tasks: Tasks, used: NDArray[np.intp]
) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]]:
    """Yield the groups of `Tasks.by_codes`, divided by the number of tasks of a call."""
    for some, codes, positive in tasks.by_codes(used):
        n_parts = -(-len(some) // _kernels.TILE_TASKS)
        size = -(-len(some) // n_parts)  # parts of nearly equal size
        for first in range(0, len(some), size):
            yield some[first : first + size], codes, positive[first : first + size]


def sweep_csr(
    rows: MatrixDesign,
    coef: FloatArray,
    intercept: FloatArray,
    tasks: Tasks,
    mean: FloatArray | None = None,
    factors: FloatArray | None = None,
) -> Sweep:
    """Sweep CSR rows for groups of tasks; each group has its coefficients of a column together.

    With `mean` and `factors` coefficients and gradients are those of factors · (x - mean).
    """
    n_tasks, n_columns = len(tasks), rows.n_columns
    mean = np.zeros(n_columns) if mean is None else mean
    factors = np.ones(n_columns) if factors is None else factors
    value, slope, gradient = np.empty(n_tasks), np.empty(n_tasks), np.empty((n_tasks, n_columns))
    weights = np.ascontiguousarray(tasks.weights.T)
    size, n_threads = rows.kernels.tasks_per_pass, rows.threads.n

    for some, codes, positive in tasks.by_codes(np.arange(n_tasks)):
        own = tasks.loss_parameters[some], codes, weights, positive, tasks.fold[some]
        columns, offset, n = coef.T[some], intercept[some], len(some)
        results = gradient, value, slope
        if n < n_tasks:
            results = np.empty((n, n_columns)), np.empty(n), np.empty(n)
        run = partial(_sweep_csr_groups, rows, own, (mean, factors, columns, offset), results)
        starts = range(0, n, size)
        list(rows.threads.map(run, [starts[k::n_threads] for k in range(n_threads)]))
        if n < n_tasks:
            gradient[some], value[some], slope[some] = results
    return Sweep(value, gradient.T, slope)


def _sweep_csr_groups(
    rows: MatrixDesign,
    tasks: tuple[Any, ...],
    point: tuple[FloatArray, ...],
    results: tuple[FloatArray, ...],
    starts: range,
) -> None:
    """Sweep groups of tasks, one after the other, and write to the results."""
    size, n_tasks = rows.kernels.tasks_per_pass, len(point[-1])
    table = np.empty((rows.n_columns, 2, size))  # 16 MB for text: one per thread
    for first in starts:
        last = min(first + size, n_tasks)
        rows.kernels.sweep_tasks(*tasks, *point, table, *results, first, last)


def sweep_any_loss(
    rows: MatrixDesign, coef: FloatArray, intercept: FloatArray, tasks: Tasks
) -> Sweep:
    """Sweep with losses that the kernels do not have, in one more pass for each task."""
    n_tasks = len(tasks)
    value, slope, gradient = np.empty(n_tasks), np.empty(n_tasks), np.empty_like(coef)
    scores = np.empty((rows.n_rows, n_tasks))
    for span, chunk in rows.chunks(0, rows.n_rows, n_tasks):
        scores[span] = chunk @ coef + intercept
    for k, loss in enumerate(tasks.losses):
        sign, weights = tasks.sign(k), tasks.weights[tasks.fold[k]]
        margins = sign * scores[:, k]
        derivative = weights * sign * loss.derivative(margins)
        value[k], slope[k] = weights @ loss.value(margins), derivative.sum()
        gradient[:, k] = rows._adjoint(derivative)
    return Sweep(value, gradient, slope)
