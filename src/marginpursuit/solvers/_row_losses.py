"""Losses of all rows of one task by the compiled kernels, in chunks of rows that the cache holds.

NumPy would read and write an array of all rows in each of about ten operations, in one thread.
"""

from typing import Any

import numpy as np

from marginpursuit import _kernels
from marginpursuit._threads import Threads
from marginpursuit._validation import FloatArray


class RowLosses:
    """Sums and derivatives of c_i φ(m_i) over rows with margins m_i = y_i f_i.

    Parameters
    ----------
    loss : Loss
        The loss φ, with `kernel_parameters`.
    sign, weights : ndarray of shape (n_rows,)
        Labels y and weights c > 0.
    threads : Threads
        Worker threads, which belong to the caller. Results do not depend on their number.
    chunk_rows : int
        The rows of a chunk: its arrays take 0.6 MB.
    """

    def __init__(
        self,
        loss: Any,
        sign: FloatArray,
        weights: FloatArray,
        threads: Threads,
        chunk_rows: int = 1 << 14,
    ) -> None:
        self._parameters = np.array([loss.kernel_parameters], dtype=np.float64)
        self._codes, self._weights = (sign > 0).astype(np.intp), np.ascontiguousarray(weights)
        self._signed_weights, self._threads = sign * weights, threads
        n_rows = len(weights)
        starts = range(0, max(1, n_rows), chunk_rows)  # without rows, one empty chunk
        self._spans = [slice(first, min(first + chunk_rows, n_rows)) for first in starts]

    def line(self, scores: FloatArray, change: FloatArray, step: float) -> tuple[float, float]:
        """Return the sum of the losses at the scores f + t g, and its derivative in t."""

        def sums(span: slice) -> tuple[float, float]:
            trial = step * change[span]
            trial += scores[span]
            value = self._differentiate(span, trial)
            return value, float(trial @ change[span])

        value, slope = np.sum(list(self._threads.map(sums, self._spans)), axis=0)
        return float(value), float(slope)

    def value_and_dual(self, scores: FloatArray) -> tuple[float, FloatArray]:
        """Return the sum of the losses, and -φ'(m) for every row."""
        dual = np.empty(len(scores))

        def run(span: slice) -> float:
            trial = scores[span].copy()
            value = self._differentiate(span, trial)
            np.divide(trial, self._signed_weights[span], out=dual[span])
            np.negative(dual[span], out=dual[span])
            return value

        return float(np.sum(list(self._threads.map(run, self._spans)))), dual

    def curvature(self, scores: FloatArray, width: FloatArray, least: float) -> FloatArray:
        """Return the divided difference of φ' over m ± the width, which is at least `least`."""
        curvature = np.empty(len(scores))

        def run(span: slice) -> None:
            own, here = np.maximum(width[span], least), scores[span]
            above, below = here + own, here - own
            self._differentiate(span, above)
            self._differentiate(span, below)
            above -= below  # the sign of a row reverses both the order and the derivatives
            own *= 2.0 * self._weights[span]
            np.divide(above, own, out=above, where=own > 0)  # weight times width may underflow
            np.maximum(above, 0.0, out=curvature[span])

        list(self._threads.map(run, self._spans))
        return curvature

    def _differentiate(self, span: slice, scores: FloatArray) -> float:
        """Turn the scores of a chunk into derivatives c y φ'; return the sum of the losses."""
        value, zero = np.zeros(1), np.zeros(1, dtype=np.intp)
        _kernels.task_losses(
            first=span.start,
            losses=self._parameters,
            codes=self._codes,
            weights=self._weights[np.newaxis],
            positive=zero + 1,
            part=zero,
            intercept=np.zeros(1),
            scores=scores[np.newaxis],
            value=value,
            slope=np.zeros(1),
            begin=0,
            end=1,
        )
        return float(value[0])
