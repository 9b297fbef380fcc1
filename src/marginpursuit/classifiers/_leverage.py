r"""Weights that keep rows which lie far out from pulling hard.

What pulls at the coefficients is the derivative of the loss times the row. The loss bounds the one,
not the other: a row that lies ten times as far out pulls ten times as hard. A row at the distance r
from the centre has its weight multiplied by

.. math::

    \min(1, \kappa\, \tilde r / r),

where :math:`\tilde r` is the median of the distances that are not zero and κ the bound, so that no
row pulls harder than one at κ times the median distance (the weights of Mallows' estimators [1]_).
After that the rows of each class are given back the total weight that they had: otherwise a class
that spreads wider than the others would count for less, and the threshold would move.

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
    """Return the weights of the rows with the bound, as a NumPy array that sums to one.

    Distances are norms of standardised rows. Sparse rows are measured as they are: a column with
    few non-zeros would give their rows a large norm.
    """
    weights, codes = to_numpy(data.weights), to_numpy(data.labels.codes)
    standardisation = Standardisation.identity(design.n_columns)
    if not design.is_sparse:
        standardisation = design.standardisation(data.weights, centred=centred)
    distances = to_numpy(design.row_norms(standardisation)).astype(np.float64, copy=False)
    if not np.all(np.isfinite(distances[weights > 0])):
        raise FloatingPointError("the rows have no finite distances")
    away = (weights > 0) & (distances > 0)
    if not np.any(away):
        return weights
    apart = Margins(distances[away, np.newaxis], weights[away], data.count, 1.0)
    limit = bound * float(apart.quantiles((0.5,))[0, 0])
    factors = np.divide(limit, distances, out=np.ones_like(distances), where=distances > limit)
    lighter = weights * factors
    before, after = (class_totals(codes, x, data.labels.n_classes) for x in (weights, lighter))
    shares = np.divide(before, after, out=np.zeros_like(before), where=after > 0)
    return np.asarray(lighter * shares[codes])
