r"""Weights that bound the leverage of rows (Mallows' estimators [1]_).

The gradient of a row is φ'(m) y x: the loss bounds the derivative φ', not the row. At ten times the
distance the gradient is ten times as large. The weight of a row at distance r from the centre is
therefore multiplied by

.. math::

    \min(1, \kappa\, \tilde r / r),

where :math:`\tilde r` is the median of the positive distances and κ the bound: no gradient exceeds
that of a row at κ times the median distance. Then the weights of each class are rescaled to their
former total. Without this a class with a larger spread would lose weight, and the intercept would
shift.

.. [1] F. R. Hampel, E. M. Ronchetti, P. J. Rousseeuw, W. A. Stahel, "Robust Statistics: The
   Approach Based on Influence Functions", 1986, section 6.3.
"""

import numpy as np

from marginpursuit._namespaces import to_numpy
from marginpursuit._validation import FloatArray
from marginpursuit.classifiers._base import TrainingData
from marginpursuit.classifiers._input import class_totals
from marginpursuit.classifiers._margins import Margins
from marginpursuit.design import Design, Standardisation


def bounded_weights(
    design: Design, data: TrainingData, bound: float, *, centred: bool
) -> FloatArray:
    """Return weights with bounded leverage, as a NumPy array that sums to one.

    Distances are norms of standardised rows. Sparse rows are measured as they are: a column with
    few non-zeros would give their rows a large norm.
    """
    distances = row_distances(design, data, centred=centred)
    return within_limit(data, distances, bound * median_distance(distances, data))


def row_distances(
    design: Design,
    data: TrainingData,
    *,
    centred: bool,
    standardisation: Standardisation | None = None,
) -> FloatArray:
    """Return the distance of each row, by a standardisation that is by default that of the rows."""
    if design.is_sparse:
        standardisation = Standardisation.identity(design.n_columns)
    elif standardisation is None:
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
    apart = Margins(distances[is_apart, np.newaxis], weights[is_apart], data.count, 1.0)
    return float(apart.quantiles((0.5,))[0, 0])


def within_limit(data: TrainingData, distances: FloatArray, limit: float) -> FloatArray:
    """Return weights that shrink beyond a distance, with the same total for each class."""
    weights, codes = to_numpy(data.weights), to_numpy(data.labels.codes)
    factors = np.divide(limit, distances, out=np.ones_like(distances), where=distances > limit)
    bounded = weights * factors
    before, after = (class_totals(codes, x, data.labels.n_classes) for x in (weights, bounded))
    ratios = np.divide(before, after, out=np.zeros_like(before), where=after > 0)
    return np.asarray(bounded * ratios[codes])
