"""Value and gradient of joint losses, for rows in memory as they are.

Each chunk of rows takes two matrix products, with the losses in between. Chunks are summed in
order, so no result depends on the number of threads.
"""

import numpy as np

from marginpursuit._validation import FloatArray
from marginpursuit.design._base import Sweep
from marginpursuit.design._threaded_matrix import ThreadedMatrix
from marginpursuit.tasks import JointTasks, Tasks


def sweep_joint(
    rows: ThreadedMatrix, coef: FloatArray, intercept: FloatArray, tasks: Tasks
) -> Sweep:
    """Sweep dense or CSR rows for joint tasks."""
    assert isinstance(tasks, JointTasks)
    n_scores, n_columns, n_classes = len(intercept), rows.n_columns, tasks.n_classes
    coef = np.ascontiguousarray(coef, dtype=rows.product_type)

    def add(first: int, last: int, total: FloatArray) -> None:
        for start, stop, used in tasks.used_ranges(first, last):
            columns = (used[:, np.newaxis] * n_classes + np.arange(n_classes)).ravel()
            own = slice(None) if len(used) == len(tasks) else columns
            some, its_coef, offset = tasks.take(used), coef[:, own], intercept[own]
            gradient, sums = np.zeros((len(columns), n_columns)), np.zeros((len(columns), 2))
            for span, chunk in rows.chunks(start, stop, n_scores):
                scores = np.asfortranarray(chunk @ its_coef, dtype=np.float64)
                scores += offset
                sums[::n_classes, 0] += joint_derivatives(scores, some, span)
                sums[:, 1] += scores.sum(axis=0)
                derivatives = scores.astype(rows.product_type, copy=False)
                gradient += (chunk.T @ derivatives).T if rows.is_sparse else derivatives.T @ chunk
            total[own] += np.hstack([gradient, sums])

    total = rows.sum_blocks((n_scores, n_columns + 2), rows.n_rows, add)
    value = total[::n_classes, n_columns].copy()
    return Sweep(value, total[:, :n_columns].T, total[:, n_columns + 1].copy())


def joint_derivatives(scores: FloatArray, tasks: JointTasks, span: slice) -> FloatArray:
    """Replace scores of shape (n_rows, n_tasks · n_classes) by weighted derivatives.

    Returns the weighted sum of the losses of each task; `span` are the rows of the chunk.
    """
    n_classes, values = tasks.n_classes, np.empty(len(tasks))
    for k, loss in enumerate(tasks.losses):
        own = slice(k * n_classes, (k + 1) * n_classes)
        weights = tasks.weights[tasks.fold[k], span]
        value, scores[:, own] = loss.value_and_gradient(scores[:, own], tasks.codes[span], weights)
        values[k] = value.sum()
    return values
