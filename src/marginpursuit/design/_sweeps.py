"""Value and gradient of the losses of several tasks, for rows in memory as they are.

Each function makes one pass over the rows; they differ in how the products are made. `sweep_for`
chooses.
"""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from marginpursuit import _kernels
from marginpursuit._validation import FloatArray
from marginpursuit.design import _moments
from marginpursuit.design._base import Sweep
from marginpursuit.design._joint import sweep_joint
from marginpursuit.design._threaded_matrix import Block, ThreadedMatrix
from marginpursuit.tasks import JointTasks, Tasks

_Sweeper: TypeAlias = Callable[[ThreadedMatrix, FloatArray, FloatArray, Tasks], Sweep]


def sweep_for(rows: ThreadedMatrix, tasks: Tasks) -> _Sweeper:
    """Choose how to sweep these rows for these tasks."""
    if isinstance(tasks, JointTasks):
        return sweep_joint
    if not tasks.has_kernels:
        return sweep_any_loss
    if len(tasks) == 1:
        return sweep_one_task
    if rows.is_sparse:
        return sweep_csr
    if rows.padded is not None and len(tasks) <= _kernels.TILE_TASKS:
        return sweep_tiles
    return sweep_by_products


def sweep_one_task(
    rows: ThreadedMatrix, coef: FloatArray, intercept: FloatArray, tasks: Tasks
) -> Sweep:
    """Sweep by the fused kernel: scores, loss and gradient while a row is in cache."""
    gradients = np.zeros((len(rows.blocks), rows.n_columns))
    sums = np.empty((len(rows.blocks), 2))
    column, offset = np.ascontiguousarray(coef[:, 0]), float(intercept[0])
    (loss,), sign, weights = tasks.losses, tasks.sign(0), tasks.weights[tasks.fold[0]]

    def run(block: Block) -> None:
        number, first, last = block
        sums[number] = rows.kernels.sweep(
            first, last, loss, sign, weights, column, offset, gradients[number]
        )

    list(rows.threads.map(run, rows.blocks))
    value, slope = sums.sum(axis=0)
    return Sweep(np.array([value]), gradients.sum(axis=0)[:, np.newaxis], np.array([slope]))


def sweep_by_products(
    rows: ThreadedMatrix, coef: FloatArray, intercept: FloatArray, tasks: Tasks
) -> Sweep:
    """Sweep dense rows by two matrix products a chunk, with the losses in between."""
    n_tasks, n_columns = len(tasks), rows.n_columns
    parameters = tasks.loss_parameters
    coef_rows = np.ascontiguousarray(coef.T, dtype=rows.product_type)

    def add(first: int, last: int, total: FloatArray) -> None:
        for start, stop, used in tasks.used_ranges(first, last):
            own = parameters[used], tasks.codes, tasks.weights, tasks.positive[used]
            columns, fold, offset = coef_rows[used], tasks.fold[used], intercept[used]
            gradient, (value, slope) = np.zeros((len(used), n_columns)), np.zeros((2, len(used)))
            for span, chunk in rows.chunks(start, stop, n_tasks):
                scores = np.ascontiguousarray(columns @ chunk.T, dtype=np.float64)
                _kernels.task_losses(
                    *(span.start, *own, fold, offset, scores, value, slope, 0, len(used))
                )
                gradient += scores.astype(rows.product_type, copy=False) @ chunk
            total[used] += np.column_stack([gradient, value, slope])

    total = rows.sum_blocks((n_tasks, n_columns + 2), rows.n_rows, add)
    value, slope = np.ascontiguousarray(total[:, n_columns:].T)
    return Sweep(value, total[:, :n_columns].T, slope)


def sweep_tiles(
    rows: ThreadedMatrix, coef: FloatArray, intercept: FloatArray, tasks: Tasks
) -> Sweep:
    """Sweep padded float32 rows by the kernel that keeps a tile of rows in cache."""
    assert rows.padded is not None
    n_tasks, width = len(tasks), rows.padded.shape[1]
    parameters = tasks.loss_parameters

    def add(first: int, last: int, total: FloatArray) -> None:
        for start, stop, used in tasks.used_ranges(first, last):
            padded_tasks = -(-len(used) // _kernels.TILE_GROUP) * _kernels.TILE_GROUP
            coef_rows = np.zeros((padded_tasks, width), dtype=np.float32)
            coef_rows[: len(used), : rows.n_columns] = coef.T[used]
            gradient, (value, slope) = np.zeros((len(used), width)), np.zeros((2, len(used)))
            _kernels.sweep_tiles(
                *(rows.padded, start, stop, parameters[used], tasks.codes, tasks.weights),
                *(tasks.positive[used], tasks.fold[used], coef_rows, intercept[used]),
                *(gradient, value, slope),
            )
            total[used] += np.column_stack([gradient, value, slope])

    total = rows.sum_blocks((n_tasks, width + 2), rows.n_rows, add)
    value, slope = np.ascontiguousarray(total[:, width:].T)
    return Sweep(value, total[:, : rows.n_columns].T, slope)


def sweep_csr(
    rows: ThreadedMatrix,
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
    parameters, size = tasks.loss_parameters, rows.kernels.tasks_per_pass

    starts, n_threads = range(0, n_tasks, size), rows.threads.n

    def run(starts: range) -> None:
        table = np.empty((n_columns, 2, size))  # 16 MB for text: one per thread
        for first in starts:
            rows.kernels.sweep_tasks(
                *(parameters, tasks.codes, weights, tasks.positive, tasks.fold),
                *(mean, factors, coef.T, intercept, table),
                *(gradient, value, slope, first, min(first + size, n_tasks)),
            )

    list(rows.threads.map(run, [starts[k::n_threads] for k in range(n_threads)]))
    return Sweep(value, gradient.T, slope)


def sweep_any_loss(
    rows: ThreadedMatrix, coef: FloatArray, intercept: FloatArray, tasks: Tasks
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
        gradient[:, k] = _moments.adjoint(rows, derivative)
    return Sweep(value, gradient, slope)
