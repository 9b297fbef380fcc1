"""What a penalty of one means to each column, in standardised coordinates.

With weights w of the data as it came, v_j the variance of column j (its mean square where there is
no intercept) and d the number of columns that vary, the penalty of a unit is

============  ===============================
unit          penalty
============  ===============================
absolute      Σ_j w_j²
column        Σ_j v_j w_j²
standardised  d Σ_j v_j w_j²
common        (Σ_j v_j) Σ_j w_j²
============  ===============================

The last two are those of rows that have been scaled, each column for itself or all columns alike,
such that their squared norm is one in the mean.
"""

import numpy as np

from marginpursuit._validation import FloatArray
from marginpursuit.design import Design

#: The units by name.
UNITS = ("absolute", "column", "standardised", "common")

#: Those that are the same for columns that have been rotated among themselves.
ROTATABLE = ("absolute", "common")

# A column whose variance in a part is below this share of its variance in all parts is constant
# there, but for rounding.
_CONSTANT = 1e-12

# Parts that share few rows would have the mean bound them by many times as much. They are alike as
# a rule, and the line search sees to it where they are not.
_MOST_BOUND = 1.25


def penalty_unit(name: str, inverse_spread: FloatArray, variance: FloatArray) -> FloatArray:
    """Return the unit of each part and column.

    `variance` is that of the standardised columns in each part. A column that is constant in a part
    but not elsewhere has a unit of infinity there: it takes no part.
    """
    moving = inverse_spread > 0
    if name in ("column", "standardised"):
        counted = np.count_nonzero(variance > _CONSTANT, axis=1) if name == "standardised" else 1
        unit = variance * np.reshape(counted, (-1, 1))
    else:
        spread = np.divide(1.0, inverse_spread, out=np.zeros_like(inverse_spread), where=moving)
        total = variance @ spread**2 if name == "common" else np.ones(len(variance))
        unit = np.outer(total, inverse_spread**2)
    return np.where(moving & (variance <= _CONSTANT), np.inf, unit)


def design_unit(design: Design, weights: FloatArray, name: str, *, centred: bool) -> FloatArray:
    """Return the unit for a design that is in standardised coordinates already."""
    variance = (design.inverse_spread > 0)[np.newaxis].astype(np.float64)
    if weights.shape[0] > 1:
        variance = design.part_variances(weights, centred=centred)
    return penalty_unit(name, design.inverse_spread, variance)


def shared_weights(weights: FloatArray) -> tuple[FloatArray, float]:
    """Return the mean of the weights of all parts, and about how many times it bounds each."""
    if weights.shape[0] == 1:
        return weights[0, :], 1.0
    mean = weights.mean(axis=0)
    counted = mean > 0
    most = max(float((part[counted] / mean[counted]).max()) for part in weights)
    return mean, min(most, _MOST_BOUND)
