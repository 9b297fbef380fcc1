r"""Weights of rows with bounded leverage: Mallows' estimators [1]_.

The gradient of a row is φ'(m) y x: the loss bounds the derivative φ', not the row. At ten times the
distance the gradient is ten times as large. The weight of a row at distance r from the centre is
therefore multiplied by

.. math::

    \min(1, \kappa\, \tilde r / r),

where :math:`\tilde r` is the median of the positive distances and κ the bound: no gradient exceeds
that of a row at κ times the median distance. Then the weights of each class are rescaled to their
former total. Without this a class with a larger spread would lose weight, and the intercept would
shift. Where rows are 30 times as far away or more, the variances in the unit of the penalty are
those of weights that decrease with 1/r²: otherwise these rows would set the unit of every column.

.. [1] F. R. Hampel, E. M. Ronchetti, P. J. Rousseeuw, W. A. Stahel, "Robust Statistics: The
   Approach Based on Influence Functions", 1986, section 6.3.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from marginpursuit._namespaces import to_numpy
from marginpursuit._validation import FloatArray
from marginpursuit.classifiers._input import TrainingData
from marginpursuit.classifiers._labels import class_totals
from marginpursuit.classifiers._margins import Margins
from marginpursuit.design import Design, Standardisation


class RowWeights(NamedTuple):
    """Weights of rows with bounded leverage, each a NumPy array that sums to one.

    `variances` are for the variances of columns in the unit of the penalty; None for those of the
    loss.
    """

    loss: FloatArray
    variances: FloatArray | None


def bounded_weights(
    design: Design, data: TrainingData, bound: float, *, centred: bool, max_repetitions: int = 10
) -> RowWeights:
    """Return weights with bounded leverage.

    Distances are norms of standardised rows. Sparse rows are measured as they are: a column with
    few non-zeros would give their rows a large norm. Their unit is a median, which rows far away
    do not change.
    """
    if design.is_sparse:
        distances = row_distances(design, data, centred=centred)
        limit = bound * median_distance(distances, data)
        return RowWeights(within_limit(data, distances, limit), None)
    before, own = to_numpy(data.weights), design.standardisation(data.weights, centred=centred)
    distances = row_distances(design, data, centred=centred, standardisation=own)
    limit = bound * median_distance(distances, data)
    first = weights = within_limit(data, distances, limit)
    # Rows far away also shift the mean and the deviations by which distances are measured. Each
    # repetition, with weights that they hardly change, measures more of their distance.
    for repetition in range(max_repetitions):
        spread = spread_weights(before, weights, bound)
        if spread is None:
            return RowWeights(weights, None)
        try:
            if repetition == 0 and _varies_far_away_only(
                design, own.varies, before, weights, bound, limit, centred=centred
            ):
                break
            nearer = design.standardisation(design.place(spread), centred=centred)
        except FloatingPointError:
            break
        distances = row_distances(design, data, centred=centred, standardisation=nearer)
        limit = bound * median_distance(distances, data)
        last, weights = weights, within_limit(data, distances, limit)
        if np.allclose(weights, last, rtol=1e-2, atol=0.0):
            return RowWeights(weights, spread_weights(before, weights, bound))
    return RowWeights(first, None)  # where most rows are equal their deviation converges to zero


#: The distance of a row far away, in medians of the distances, times the bound.
FAR_DISTANCE = 30.0


def _varies_far_away_only(
    design: Design,
    varies: NDArray[np.bool_],
    before: FloatArray,
    bounded: FloatArray,
    bound: float,
    limit: float,
    *,
    centred: bool,
) -> bool:
    """Whether a column has equal values in all rows but those far away, as a rare category has.

    Each repetition multiplies the deviation of such a column by about √p times the limit of the
    distances, with the fraction p of the weight that is far away: below 1 it converges to zero. On
    cov, where this is so, ten repetitions take a third of the time of a fit.
    """
    near = np.where(far_rows(before, bounded, bound), 0.0, before)
    if (before.sum() - near.sum()) * limit**2 >= before.sum():
        return False
    own = design.standardisation(design.place(near / near.sum()), centred=centred)
    return bool(np.any(varies & ~own.varies))


def far_rows(
    before: FloatArray, bounded: FloatArray, bound: float, min_distance: float = FAR_DISTANCE
) -> NDArray[np.bool_]:
    """Return which rows have a distance of about `min_distance` medians, times the bound."""
    is_used = before > 0
    ratios = np.divide(bounded, before, out=np.zeros_like(bounded), where=is_used)
    return np.asarray(is_used & (min_distance * ratios <= min(1.0, bound) * ratios.max()))


def spread_weights(
    before: FloatArray, bounded: FloatArray, bound: float, max_fraction: float = 0.25
) -> FloatArray | None:
    """Return weights for the variances of columns that rows far away do not determine, or None.

    A bounded weight decreases with 1/r in the distance r of a row, so that its part of a variance
    increases with r. Multiplied by the ratio of the weights it is bounded. None unless there are
    `far_rows`: smaller distances change a variance by a small factor. None also where such rows
    have more than `max_fraction` of the weight: a column whose values are zero in most rows, and
    about zero in the mean, has no outliers.
    """
    is_far = far_rows(before, bounded, bound)
    if not 0 < before[is_far].sum() <= max_fraction * before.sum():
        return None
    ratios = np.divide(bounded, before, out=np.zeros_like(bounded), where=before > 0)
    spread = bounded * ratios
    return np.asarray(spread / spread.sum())


def row_distances(
    design: Design,
    data: TrainingData,
    *,
    centred: bool,
    standardisation: Standardisation | None = None,
) -> FloatArray:
    """Return the distance of each row, by a standardisation that is by default that of the rows."""
    if design.is_sparse:
        distances = np.sqrt(design.row_squares())
    else:
        if standardisation is None:
            standardisation = design.standardisation(data.weights, centred=centred)
        distances = to_numpy(design.row_norms(standardisation)).astype(np.float64, copy=False)
    if not np.all(np.isfinite(distances[to_numpy(data.weights) > 0])):
        raise FloatingPointError("distances of rows are not finite")
    return distances


def median_distance(distances: FloatArray, data: TrainingData) -> float:
    """Return the median of the positive distances; infinity where there is none."""
    weights = to_numpy(data.weights)
    is_apart = (weights > 0) & (distances > 0)
    if not np.any(is_apart):
        return float("inf")
    distances, weights = distances[is_apart], weights[is_apart]
    if weights.min() == weights.max():  # a third of the time of a quantile on 100 rows
        return float(np.median(distances))
    return float(
        Margins(distances[:, np.newaxis], weights, data.count, 1.0).quantiles((0.5,))[0, 0]
    )


def within_limit(data: TrainingData, distances: FloatArray, limit: float) -> FloatArray:
    """Return weights that shrink beyond a distance, with the same total for each class."""
    weights, codes = to_numpy(data.weights), to_numpy(data.labels.strata)
    factors = np.divide(limit, distances, out=np.ones_like(distances), where=distances > limit)
    bounded = weights * factors
    before, after = (class_totals(codes, x, data.labels.n_strata) for x in (weights, bounded))
    ratios = np.divide(before, after, out=np.zeros_like(before), where=after > 0)
    return np.asarray(bounded * ratios[codes])
