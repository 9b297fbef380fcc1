"""Value and gradient of joint losses, for rows in memory as they are.

Each chunk of rows takes two matrix products, with the losses in between. Blocks of rows are summed
in order, so no result depends on the number of threads.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginpursuit import _kernels
from marginpursuit._threads import StoppedError, this_thread
from marginpursuit._validation import FloatArray
from marginpursuit.design._base import Design, Sweep
from marginpursuit.design._matrix import MatrixDesign
from marginpursuit.tasks import JointTasks, Tasks


def sweep_joint(rows: MatrixDesign, coef: FloatArray, intercept: FloatArray, tasks: Tasks) -> Sweep:
    """Sweep dense or CSR rows for joint tasks."""
    assert isinstance(tasks, JointTasks)
    n_scores, n_columns, n_classes = len(intercept), rows.n_columns, tasks.n_classes
    coef_rows = np.ascontiguousarray(coef.T, dtype=rows.product_type)

    if can_sweep_tiles(rows, tasks):
        sweep = _sweep_tiles if n_classes <= _kernels.TILE_TASKS else _sweep_class_tiles
        return sweep(rows, coef_rows, intercept, tasks)

    def add(first: int, last: int, total: FloatArray) -> None:
        for start, stop, used in tasks.used_ranges(first, last):
            columns = (used[:, np.newaxis] * n_classes + np.arange(n_classes)).ravel()
            some, own, offset = tasks.take(used), coef_rows[columns], intercept[columns]
            gradient, slope = np.zeros((len(columns), n_columns)), np.zeros(len(columns))
            value = np.zeros(len(used))
            for span, chunk in rows.chunks(start, stop, n_scores):
                product = (chunk @ own.T).T if rows.is_sparse else own @ chunk.T
                scores = np.ascontiguousarray(product, dtype=np.float64)
                value += joint_derivatives(scores, some, span.start, offset, slope)
                derivatives = scores.astype(rows.product_type, copy=False)
                gradient += (chunk.T @ derivatives.T).T if rows.is_sparse else derivatives @ chunk
            total[columns, :n_columns] += gradient
            total[columns, n_columns] += slope
            total[used * n_classes, n_columns + 1] += value

    total = rows.sum_blocks((n_scores, n_columns + 2), rows.n_rows, add)
    value = total[::n_classes, n_columns + 1].copy()
    return Sweep(value, total[:, :n_columns].T, total[:, n_columns].copy())


def can_sweep_tiles(rows: Design, tasks: Tasks) -> bool:
    """Whether a kernel sweeps the rows, padded in float32, with a tile of them in cache."""
    if not (isinstance(rows, MatrixDesign) and isinstance(tasks, JointTasks)):
        return False
    has_losses = all(joint.loss.kernel_parameters is not None for joint in tasks.losses)
    return rows.padded is not None and _kernels.TILE_TASKS > 0 and has_losses


def _sweep_tiles(
    rows: MatrixDesign, coef_rows: NDArray[Any], intercept: FloatArray, tasks: JointTasks
) -> Sweep:
    """Sweep padded float32 rows for joint tasks, one after the other."""
    assert rows.padded is not None
    n_classes, width = tasks.n_classes, rows.padded.shape[1]
    coef = _padded(coef_rows, tasks, width)

    def add(first: int, last: int, total: FloatArray) -> None:
        for start, stop, used in tasks.used_ranges(first, last):
            for k in used.tolist():
                own, joint = slice(k * n_classes, (k + 1) * n_classes), tasks.losses[k]
                gradient, slope = np.zeros((n_classes, width)), np.zeros(n_classes)
                total[own.start, width + 1] += _kernels.sweep_joint_tiles(
                    *(rows.padded, start, stop, np.array([joint.loss.kernel_parameters], float)),
                    *(joint.temperature, tasks.codes, tasks.weights[tasks.fold[k]]),
                    *(coef[k], intercept[own], gradient, slope),
                )
                total[own, :width] += gradient
                total[own, width] += slope

    total = rows.sum_blocks((len(intercept), width + 2), rows.n_rows, add)
    value, slope = total[::n_classes, width + 1].copy(), total[:, width].copy()
    return Sweep(value, total[:, : rows.n_columns].T, slope)


def _sweep_class_tiles(
    rows: MatrixDesign, coef_rows: NDArray[Any], intercept: FloatArray, tasks: JointTasks
) -> Sweep:
    """Sweep padded float32 rows for joint tasks of many classes, one after the other."""
    assert rows.padded is not None
    n_classes, n_columns, padding = tasks.n_classes, rows.n_columns, _kernels.TILE_PADDING
    coef = _padded(coef_rows, tasks, rows.padded.shape[1])
    width = (n_columns + padding) // padding * padding
    step = max(1, rows.policy.product_scores // n_classes)

    def add(first: int, last: int, total: FloatArray) -> None:
        work = np.empty(_kernels.class_tiles_work(n_classes, width), dtype=np.float32)
        for start, stop, used in tasks.used_ranges(first, last):
            for k in used.tolist():
                own, joint = slice(k * n_classes, (k + 1) * n_classes), tasks.losses[k]
                gradient, value = np.zeros((n_classes, width)), 0.0
                for begin in range(start, stop, step):
                    if this_thread.stop.is_set:
                        raise StoppedError
                    value += _kernels.sweep_class_tiles(
                        *(rows.padded, n_columns, begin, min(begin + step, stop)),
                        *(np.array([joint.loss.kernel_parameters], float), joint.temperature),
                        *(tasks.codes, tasks.weights[tasks.fold[k]]),
                        *(coef[k], intercept[own], gradient, work),
                    )
                total[own, : n_columns + 1] += gradient[:, : n_columns + 1]
                total[own.start, n_columns + 1] += value

    total = rows.sum_blocks((len(intercept), n_columns + 2), rows.n_rows, add)
    value, slope = total[::n_classes, n_columns + 1].copy(), total[:, n_columns].copy()
    return Sweep(value, total[:, :n_columns].T, slope)


def _padded(coef_rows: NDArray[Any], tasks: JointTasks, width: int) -> NDArray[np.float32]:
    """Return the coefficients of each task, with zeros up to `width` and a group of classes."""
    n_padded = -(-tasks.n_classes // _kernels.TILE_GROUP) * _kernels.TILE_GROUP
    coef = np.zeros((len(tasks), n_padded, width), dtype=np.float32)
    own = coef_rows.reshape(len(tasks), tasks.n_classes, -1)
    coef[:, : tasks.n_classes, : own.shape[2]] = own
    return coef


def joint_derivatives(
    scores: FloatArray, tasks: JointTasks, first: int, intercept: FloatArray, slope: FloatArray
) -> FloatArray:
    """Replace the scores of rows from `first` on by weighted derivatives.

    Scores have a row for each class of each task, to which the intercept is still to be added.
    Returns the weighted sum of the losses of each task; the sums of derivatives are added to
    `slope`.
    """
    n_classes, values = tasks.n_classes, np.empty(len(tasks))
    for k, joint in enumerate(tasks.losses):
        own, weights = slice(k * n_classes, (k + 1) * n_classes), tasks.weights[tasks.fold[k]]
        parameters = joint.loss.kernel_parameters
        if parameters is not None and _kernels.joint_losses is not None:
            values[k] = _kernels.joint_losses(
                *(first, np.array([parameters], dtype=np.float64), joint.temperature),
                *(tasks.codes, weights, intercept[own], scores[own], slope[own]),
            )
            continue
        span = slice(first, first + scores.shape[1])
        value, derivatives = joint.value_and_gradient(
            scores[own].T + intercept[own], tasks.codes[span], weights[span]
        )
        scores[own] = derivatives.T
        slope[own] += derivatives.sum(axis=0)
        values[k] = value.sum()
    return values
