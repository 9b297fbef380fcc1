"""The sweeps in NumPy, for matrices or installs that the compiled module does not support.

Same interface and same results (to rounding) as the compiled handles. Rows are converted in chunks,
so that no float64 copy of the whole matrix is made.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from marginpursuit._kernels._descent import Descent
from marginpursuit._validation import FloatArray
from marginpursuit.losses import Loss
from marginpursuit.losses.registry import from_kernel_parameters

# As in the compiled sweeps, infinities and NaN propagate without warnings.
_quiet = np.errstate(over="ignore", under="ignore", invalid="ignore")


class ArrayRows:
    """A dense array or CSR matrix of any real dtype, read through NumPy and SciPy."""

    level = "numpy"

    #: Tasks that `sweep_tasks` serves at once.
    tasks_per_pass = 64

    def __init__(self, matrix: Any) -> None:
        self.n_rows, self.n_columns = matrix.shape
        self._matrix = matrix

    @_quiet
    def sweep(
        self,
        first: int,
        last: int,
        loss: Loss,
        sign: FloatArray,
        weight: FloatArray,
        coef: FloatArray,
        intercept: float,
        gradient: FloatArray,
    ) -> tuple[float, float]:
        """Add the gradient of rows [first, last) to `gradient`; return value and slope."""
        value = slope = 0.0
        for span, rows in self._chunks(first, last):
            m = sign[span] * (rows @ coef + intercept)
            factors = sign[span] * weight[span] * _despite_nan(loss.derivative, m)
            value += float(weight[span] @ _despite_nan(loss.value, m))
            slope += float(factors.sum())
            gradient += factors @ rows
        return value, slope

    @_quiet
    def scores(
        self, first: int, last: int, coef: FloatArray, intercept: float, out: FloatArray
    ) -> None:
        """Write x.coef + intercept for rows [first, last) to the same rows of `out`."""
        for span, rows in self._chunks(first, last):
            out[span] = rows @ coef + intercept

    @_quiet
    def adjoint(self, first: int, last: int, factors: FloatArray, total: FloatArray) -> None:
        """Add the sum of factors[i] * row i over rows [first, last) to `total`."""
        for span, rows in self._chunks(first, last):
            total += factors[span] @ rows

    @_quiet
    def moments(
        self,
        first: int,
        last: int,
        centre: FloatArray,
        weights: FloatArray,
        total: FloatArray,
        factors: FloatArray | None = None,
    ) -> None:
        """Add the sums over rows [first, last) of weights[i] * z_i to `total[0]`.

        Those of weights[i] * z_i**2 are added to `total[1]`. z_i is row i less the centre or, with
        factors, the square of that times the factors.
        """
        for span, rows in self._chunks(first, last):
            centred = rows - centre
            if factors is not None:
                centred = np.square(centred * factors)
            total[0] += weights[span] @ centred
            total[1] += weights[span] @ np.square(centred, out=centred)

    @_quiet
    def norms(
        self, first: int, last: int, centre: FloatArray, factors: FloatArray, out: FloatArray
    ) -> None:
        """Write the sum of factors * (row - centre)**2 for rows [first, last) to `out`."""
        for span, rows in self._chunks(first, last):
            out[span] = np.square(rows - centre) @ factors

    @_quiet
    def sweep_tasks(
        self,
        losses: FloatArray,
        codes: NDArray[np.intp],
        weights: FloatArray,
        positive: NDArray[np.intp],
        part: NDArray[np.intp],
        centre: FloatArray,
        factors: FloatArray,
        coef: FloatArray,
        intercept: FloatArray,
        table: FloatArray,
        gradient: FloatArray,
        value: FloatArray,
        slope: FloatArray,
        begin: int,
        end: int,
    ) -> None:
        """Sweep all rows, centred and multiplied by the factors, for tasks [begin, end).

        `coef` and `gradient` have a row for each task, `losses` the kernel parameters of each, and
        `weights` a row for each row of the data and a column for each part. `table` is unused here.
        """
        tasks = slice(begin, end)
        scaled = coef[tasks] * factors
        raw_intercept = intercept[tasks] - scaled @ centre
        value[tasks], slope[tasks] = 0.0, 0.0
        total = np.zeros((end - begin, self.n_columns))
        for span, rows in self._chunks(0, self.n_rows):
            scores = np.ascontiguousarray((rows @ scaled.T).T)
            task_losses(
                *(span.start, losses[tasks], codes, weights.T, positive[tasks], part[tasks]),
                *(raw_intercept, scores, value[tasks], slope[tasks], 0, end - begin),
            )
            total += scores @ rows
        gradient[tasks] = factors * (total - np.outer(slope[tasks], centre))

    @_quiet
    def descend(self, descent: Descent, draws: NDArray[np.intp]) -> None:
        """Take a step for each `descent.batch` of the rows drawn."""
        for rows in draws.reshape(-1, descent.batch):
            self._step(descent, rows)
            descent.total_intercept += descent.intercept
            if descent.total is not None:
                descent.total += descent.coef
            mark = np.flatnonzero(descent.marks == descent.t)
            if len(mark):
                descent.path[mark], descent.path_intercept[mark] = descent.point()

    def _step(self, descent: Descent, rows: NDArray[np.intp]) -> None:
        """Take one step, as `Descent` says."""
        x, sign = self._matrix[rows].astype(np.float64), descent.sign[rows]
        step_number = 1.0 + descent.t
        margins = sign * (x @ descent.coef + descent.intercept)
        length = descent.rate / (step_number * descent.batch)
        factors = -length * sign * _despite_nan(descent.loss.derivative, margins)
        shrink = 1.0 - descent.decay / step_number
        coef, penalised = shrink * descent.coef, descent.penalise_intercept
        before = descent.intercept * (shrink if penalised else 1.0)
        intercept = before + (float(factors.sum()) if descent.fit_intercept else 0.0)
        if descent.own is None:
            coef += factors @ x
            square = float(coef @ coef) + (intercept * intercept if penalised else 0.0)
        else:  # ‖w + δ‖² = ‖w‖² + ⟨δ, w⟩ + ⟨δ, w + δ⟩
            scores = x @ coef
            np.add.at(coef, descent.own[rows], factors)
            scores += x @ coef + (before + intercept if penalised else 0.0)
            square = shrink**2 * descent.square + float(factors @ scores)
        if square > descent.radius * descent.radius:  # a power would raise where it overflows
            factor = descent.radius / float(np.sqrt(square))
            coef *= factor
            square *= factor**2
            intercept *= factor if penalised else 1.0
        descent.coef[:], descent.intercept, descent.square = coef, intercept, square
        descent.t += 1

    def _chunks(self, first: int, last: int) -> Iterator[tuple[slice, Any]]:
        chunk_elements = 1 << 16  # as float64 they fit a second-level cache
        step = max(1, chunk_elements // max(1, self.n_columns))
        if sparse.issparse(self._matrix):
            step = max(1, last - first)  # the stored elements are converted at once
        for start in range(first, last, step):
            span = slice(start, min(start + step, last))
            yield span, self._matrix[span].astype(np.float64, copy=False)


#: The name by which `_kernels` finds the handle in either module.
rows = ArrayRows


@_quiet
def task_losses(
    first: int,
    losses: FloatArray,
    codes: NDArray[np.intp],
    weights: FloatArray,
    positive: NDArray[np.intp],
    part: NDArray[np.intp],
    intercept: FloatArray,
    scores: FloatArray,
    value: FloatArray,
    slope: FloatArray,
    begin: int,
    end: int,
) -> None:
    """Turn the scores of some rows into derivatives, for tasks [begin, end).

    `scores` has a row for each task and a column for each row of the data from `first` on, to which
    the intercept is still to be added; `losses` has the kernel parameters of each task in a row.
    The weighted loss and the sum of the derivatives are added to `value` and `slope`.
    """
    span = slice(first, first + scores.shape[1])
    for k in range(begin, end):
        loss, weight = from_kernel_parameters(*losses[k]), weights[part[k], span]
        sign = np.where(is_positive(codes[span], int(positive[k])), 1.0, -1.0)
        margins = sign * (scores[k] + intercept[k])
        scores[k] = sign * weight * _despite_nan(loss.derivative, margins)
        value[k] += float(weight @ _despite_nan(loss.value, margins))
        slope[k] += float(scores[k].sum())


def is_positive(codes: NDArray[np.intp], positive: int) -> NDArray[np.bool_]:
    """Return whether rows with these codes have y = +1 in a task.

    The code is that of the class of a row, and `positive` the class of the task. If `positive` is
    negative, the code is a set of labels, and its bit ~positive is the label of the task.
    """
    return codes == positive if positive >= 0 else (codes >> ~positive & 1).astype(bool)


def lbfgs_loop(
    reads: Sequence[FloatArray],
    writes: Sequence[FloatArray],
    inverse: FloatArray,
    factors: FloatArray,
    points: FloatArray,
) -> None:
    """Apply all pairs to each task, a row of the points: one half of the two-loop recursion.

    With pair p and task k, factors[p, k] -= inverse[p, k] * (reads[p][k] . points[k]), then
    points[k] += factors[p, k] * writes[p][k].
    """
    for p, (read, write) in enumerate(zip(reads, writes, strict=True)):
        factors[p] -= inverse[p] * np.einsum("kj,kj->k", read, points)
        points += factors[p][:, np.newaxis] * write


def interval_sums(
    scores: FloatArray, weights: FloatArray, width: float, first: int, n_intervals: int
) -> FloatArray:
    """Return weights of rows, summed over intervals of their scores, for each column of scores.

    Parameters
    ----------
    scores : ndarray of shape (n_rows, n_columns)
        A score that is NaN belongs to the first interval.
    weights : ndarray of shape (n_rows,)
        Weights of the rows, of either sign.
    width : float
        The intervals are (k - 1, k] times this width; the first and the last are unbounded.
    first, n_intervals : int
        The least k, and the number of intervals.

    Returns
    -------
    ndarray of shape (n_columns, n_intervals)
        The sums, in the order of the rows.
    """
    sums = np.zeros((scores.shape[1], n_intervals))
    for row_sums, column in zip(sums, scores.T, strict=True):
        interval = np.clip(np.ceil(column / width), first, first + n_intervals - 1)
        interval[np.isnan(interval)] = first
        row_sums[:] = np.bincount(interval.astype(np.intp) - first, weights, n_intervals)
    return sums


def _despite_nan(function: Callable[[FloatArray], FloatArray], margins: FloatArray) -> FloatArray:
    """Apply a method of the loss, which refuses NaN; the result at NaN is NaN."""
    is_nan = np.isnan(margins)
    return np.where(is_nan, np.nan, function(np.where(is_nan, 0.0, margins)))


def csr_gram(
    data: FloatArray,
    indices: NDArray[Any],
    indptr: NDArray[Any],
    weights: FloatArray,
    first: int,
    last: int,
    total: FloatArray,
) -> None:
    """Add T to the total, such that T + Tᵀ sums weight times the outer square of some CSR rows.

    Rows of weight zero are not read.
    """
    matrix = sparse.csr_array((data, indices, indptr), shape=(len(weights), len(total)))
    counted = first + np.flatnonzero(weights[first:last])
    rows = matrix[counted]
    total += (rows.T @ (sparse.diags_array(0.5 * weights[counted]) @ rows)).toarray()


def csr_moments(
    data: FloatArray,
    indices: NDArray[Any],
    indptr: NDArray[Any],
    weights: FloatArray,
    total: FloatArray,
) -> None:
    """Add weighted sums of the values and of their squares to the total, (n_columns, 2).

    Rows of weight zero are not read.
    """
    entry_weights = np.repeat(weights, np.diff(indptr))
    is_read = entry_weights != 0
    columns, terms = indices[is_read], entry_weights[is_read] * data[is_read]
    for k, power in enumerate((terms, terms * data[is_read])):
        total[:, k] += np.bincount(columns, power, len(total))


def csr_largest(
    data: FloatArray, indices: NDArray[Any], indptr: NDArray[Any], largest: FloatArray
) -> None:
    """Raise each entry of `largest` to the largest absolute value of its column."""
    np.fmax.at(largest, indices, np.abs(data))
