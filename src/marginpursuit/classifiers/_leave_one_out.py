r"""Held-out scores without half fits: leave-one-out to first order.

Without row i, of weight c_i, its margin m_i is to first order

.. math::

    m_i + \frac{h_i\, \varphi'(m_i)}{1 - h_i\, \varphi''(m_i)},
    \qquad h_i = c_i\, x_i^\top H^{-1} x_i,

with the Hessian H of the fit. The hat values h_i φ''(m_i) sum to the effective degrees of freedom
p. As in generalised cross-validation (Golub, Heath and Wahba, 1979), one number replaces all h_i,
the *mean hat value* p/Σ_i φ''(m_i). It needs no pass over the data, and rows of whole weights count
as copies.

- **Many rows of two classes.** The number of coefficients, an upper bound, replaces p. Where the
  mean hat value is small, its error is part of a small correction; otherwise there are half fits
  (`_half_fits`).
- **Several labels.** The Hessian is about the mean curvature of a label times the Gram matrix, plus
  the penalty. Its eigenvalues determine p, once for all labels. The link of a label has two
  parameters, and needs less accurate scores than the one with four slopes.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from marginpursuit._namespaces import namespace, to_numpy
from marginpursuit._validation import FloatArray
from marginpursuit.classifiers._half_fits import HalfFitPolicy, HalfFits
from marginpursuit.classifiers._input import TrainingData
from marginpursuit.classifiers._label_links import LabelLinks
from marginpursuit.classifiers._link import FittedLink, link_rows, thinning
from marginpursuit.classifiers._margins import Margins, MarginTiles
from marginpursuit.classifiers._score_bins import ScoreBins
from marginpursuit.design import MemoryDesign, Standardisation, design_for, take_rows
from marginpursuit.losses import MarginLoss
from marginpursuit.solvers import Problem
from marginpursuit.tasks import LabelSets


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LeaveOneOutPolicy:
    """Thresholds of the approximate held-out scores."""

    #: The largest mean hat value with two classes. Against half fits the mean test log-loss of 12
    #: splits (seeds 100 to 111) changes by -0.06 to +0.02 % on cov, higgs_small, a9a and synthetic
    #: data with 3,000 to 36,000 rows, where the mean hat value is 0.005 to 0.02; by -0.1 to +0.08 %
    #: with 0.02 to 0.06; and by +1.1 % on 2,000 rows of spambase, with 0.09.
    max_hat_value: float = 0.02
    #: The largest median over several labels; above it, log-losses of digits and of mnist increase
    #: by up to 4 % against half fits (docs/choosing.md).
    max_label_hat_value: float = 0.35
    #: The largest weight of a row in the loss, in units of the mean weight of a sample. The effect
    #: of a row of a larger weight is not that of a copy.
    max_relative_weight: float = 3.0


def mean_hat_values(
    degrees_of_freedom: FloatArray, mean_curvature: FloatArray, n_rows: float
) -> FloatArray:
    """Return p/Σ_i φ''(m_i) of each problem; infinite where that is not below one.

    Parameters
    ----------
    degrees_of_freedom : ndarray of shape (n_problems,)
        The number p, at most that of the coefficients with the intercept.
    mean_curvature : ndarray of shape (n_problems,)
        The weighted mean of φ'' over the rows.
    n_rows : float
        The number of rows; whole weights count as repeated rows.
    """
    total = n_rows * mean_curvature
    infinite = np.full_like(total, np.inf)
    return np.divide(degrees_of_freedom, total, out=infinite, where=total > degrees_of_freedom)


def leave_one_out_margins(
    margins: FloatArray, loss: MarginLoss, hat_values: FloatArray
) -> FloatArray:
    """Return the margins of rows that are left out one by one.

    Parameters
    ----------
    margins : ndarray of shape (..., n_problems)
        Margins of rows of a fit.
    loss : MarginLoss
        The loss of the fit.
    hat_values : ndarray of shape (n_problems,)
        The mean hat values, below one.
    """
    change = hat_values * np.asarray(loss.derivative(margins))
    return np.asarray(margins + change / (1.0 - hat_values * np.asarray(loss.curvature(margins))))


def leave_one_out_fits(problem: Problem, data: TrainingData, margins: Margins) -> list[HalfFits]:
    """Return the link of leave-one-out scores; an empty list where half fits are needed.

    The problem starts at its minimiser, which has these margins. With more than `max_link_rows`
    rows, every k-th is used.
    """
    largest = float(namespace(data.weights).max(data.weights))
    is_light = data.n_samples * largest <= LeaveOneOutPolicy().max_relative_weight
    if not is_light:
        return []
    if isinstance(data.labels, LabelSets):
        return _label_fits(problem, data, margins)
    return _binary_fits(problem, data, margins) if _is_large_binary(problem, data) else []


def _binary_fits(problem: Problem, data: TrainingData, margins: Margins) -> list[HalfFits]:
    """Return the link of two classes, where rows are many for each column."""
    limit, n_samples = LeaveOneOutPolicy().max_hat_value, data.n_samples
    n_coefficients = data.matrix.shape[1] + problem.prepared.fit_intercept
    if n_coefficients > limit * n_samples:
        return []
    rows = _Rows.of(data, HalfFitPolicy().max_link_rows)
    codes = to_numpy(take_rows(data.labels.codes, rows.numbers))
    sign, loss = np.where(codes == 1, 1.0, -1.0)[:, np.newaxis], problem.tasks.losses[0]
    own = sign * rows.scores(problem, data, margins, sign)
    curvature = rows.weights @ np.asarray(loss.curvature(own)) / rows.weights.sum()
    hat_values = mean_hat_values(np.full(1, n_coefficients), curvature, n_samples)
    if hat_values[0] > limit:
        return []
    scores = sign * leave_one_out_margins(own, loss, hat_values)
    fitted = FittedLink.fit(scores, codes, rows.counts, loss.margin, max_rows=len(codes))
    return [HalfFits(1.0, *fitted, problem.start)]


def _label_fits(problem: Problem, data: TrainingData, margins: Margins) -> list[HalfFits]:
    """Return the links of several labels, where a Gram matrix preconditions.

    Its eigenvalues take less time than half fits where it has at most four times as many entries as
    there are scores. Weights of classes, which differ between labels, need half fits.
    """
    limit, (n_columns, n_labels) = LeaveOneOutPolicy().max_label_hat_value, problem.start[0].shape
    labels = data.on_host().labels
    assert isinstance(labels, LabelSets)
    factors = labels.factors
    is_weighted = factors is not None and not np.array_equal(factors[0], factors[1])
    if is_weighted or n_columns**2 > 4 * data.n_samples * n_labels:
        return []
    rows = _Rows.of(data, link_rows(HalfFitPolicy().max_link_rows, n_labels))
    has_label = labels.take(rows.numbers).indicator()
    loss = problem.tasks.losses[0]
    scores = rows.scores(problem, data, margins, np.where(has_label, 1.0, -1.0))
    bins = ScoreBins.of(scores / loss.margin, has_label, rows.counts)
    sign = np.array([-1.0, 1.0])[:, np.newaxis, np.newaxis]  # of bins without and with a label
    own = sign * loss.margin * bins.scores
    curvature = np.sum(bins.counts * loss.curvature(own), axis=(0, 1)) / rows.counts.sum()
    preconditioner, alpha = problem.prepared.preconditioner, float(problem.alphas[0])
    degrees = preconditioner.degrees_of_freedom(alpha, curvature)
    if degrees is None:
        return []
    hat_values = mean_hat_values(degrees, curvature, data.n_samples)
    median = np.median(hat_values)
    if median > limit:
        return []
    # Larger values of labels with few rows would change the scores of these too much.
    held_out = leave_one_out_margins(own, loss, np.minimum(hat_values, median))
    bins = replace(bins, scores=sign * held_out / loss.margin)
    return [HalfFits(1.0, *LabelLinks.of_bins(bins, loss.margin, factors), problem.start)]


def _is_large_binary(problem: Problem, data: TrainingData) -> bool:
    """Whether the rows are of two classes, and more than `_small_table` fits.

    The half fits of smaller tables take less than a millisecond.
    """
    design, tasks = problem.prepared.design, problem.tasks
    is_binary = len(tasks) == 1 and data.labels.n_classes == 2 and not data.has_kernel_features
    return is_binary and design.n_stored > problem.policy.max_small_elements


@dataclass(frozen=True, slots=True)
class _Rows:
    """Every k-th row of positive weight."""

    numbers: NDArray[np.intp]
    every: int  # the number k
    weights: FloatArray
    counts: FloatArray  # the number of rows that each counts for

    @classmethod
    def of(cls, data: TrainingData, max_rows: int) -> "_Rows":
        """Choose at most `max_rows`."""
        weights, n_rows = data.weights, data.weights.shape[0]
        xp = namespace(weights)
        if bool(xp.all(weights > 0)):
            every = thinning(n_rows, max_rows)
            numbers = np.arange(0, n_rows, every)
        else:
            (used,) = xp.nonzero(weights)
            every = thinning(used.shape[0], max_rows)
            numbers = to_numpy(used[::every]).astype(np.intp, copy=False)
        own = to_numpy(take_rows(weights, numbers))
        return cls(numbers, every, own, every * data.n_samples * own)

    def scores(
        self, problem: Problem, data: TrainingData, margins: Margins, sign: FloatArray
    ) -> FloatArray:
        """Return the scores at the start of a problem, (n_rows, n_problems).

        Those in memory are the margins times the sign; blocks or a device are read once more.
        """
        prepared = problem.prepared
        is_in_memory = isinstance(prepared.design, MemoryDesign)
        if is_in_memory and not isinstance(margins, MarginTiles):
            return sign * margins.values[:: self.every]  # those of the rows of positive weight
        prepared.design.n_passes += 1
        identity = Standardisation.identity(data.matrix.shape[1])
        with design_for(take_rows(data.matrix, self.numbers), prepared.design.threads) as some:
            scores = some.scores(*prepared.to_data(problem.start), identity)
        return np.asarray(to_numpy(scores), dtype=np.float64)
