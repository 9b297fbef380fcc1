"""The unit of the penalty of each column, for standardised rows.

With coefficients w for the data as they came, v_j the variance of column j (its mean square where
there is no intercept) and d the number of columns that are not constant, the penalty α/2 times

============  ===============================
unit          squared norm
============  ===============================
absolute      Σ_j w_j²
column        Σ_j v_j w_j²
standardised  d Σ_j v_j w_j²
common        (Σ_j v_j) Σ_j w_j²
row           q Σ_j w_j²
============  ===============================

"standardised" and "common" are the squared norm for rows whose mean squared norm has been scaled to
one: each column separately, or all columns by a common factor. q is the median of the squared norms
of the rows: unlike their mean it does not depend on a few long rows, as long texts are.
"""

import numpy as np

from marginpursuit._namespaces import to_numpy
from marginpursuit._validation import FloatArray
from marginpursuit.design import Standardisation
from marginpursuit.solvers._problem import Request

#: The units by name.
UNITS = ("absolute", "column", "standardised", "common", "row")

#: Units that do not change when the columns are rotated.
ROTATION_INVARIANT = ("absolute", "common", "row")


def penalty_unit(
    name: str, inverse_deviation: FloatArray, variance: FloatArray, median_square: float = 1.0
) -> FloatArray:
    """Return the unit of each fold and column; `median_square` is that of the unit "row".

    `variance`, of shape (n_folds, n_columns), is that of the standardised columns in each fold. A
    column that is constant in one fold but not in all has an infinite unit there: its coefficient
    is fixed at zero.
    """
    varies = inverse_deviation > 0
    is_constant = variance <= 1e-12  # up to rounding, relative to the variance over all folds
    if name in ("column", "standardised"):
        n_varying = np.count_nonzero(~is_constant, axis=1) if name == "standardised" else 1
        unit = variance * np.reshape(n_varying, (-1, 1))
    else:
        deviation = np.divide(
            1.0, inverse_deviation, out=np.zeros_like(inverse_deviation), where=varies
        )
        total = np.full(len(variance), median_square if name == "row" else 1.0)
        if name == "common":
            total = variance @ deviation**2
        unit = np.outer(total, inverse_deviation**2)
    return np.where(varies & is_constant, np.inf, unit)


def request_unit(request: Request, standardisation: Standardisation) -> FloatArray:
    """Return the unit of each fold and column of a request, for this standardisation."""
    variance = standardisation.varies[np.newaxis].astype(np.float64)
    if request.has_folds:
        variance = request.design.fold_variances(
            request.weights, standardisation, centred=request.fit_intercept
        )
    median_square = _median_square(request) if request.unit == "row" else 1.0
    inverse_deviation = standardisation.inverse_deviation
    return penalty_unit(request.unit, inverse_deviation, variance, median_square)


def _median_square(request: Request) -> float:
    """Return the weighted median of ‖x‖² over the rows that are not zero."""
    design = request.design
    norms = to_numpy(design.row_norms(Standardisation.identity(design.n_columns)))
    weights = to_numpy(mean_weights(request)[0])
    used = np.flatnonzero((weights > 0) & (norms > 0))
    if not len(used):
        return 1.0
    order = used[np.argsort(norms[used])]
    cumulative = np.cumsum(weights[order])
    return float(norms[order[np.searchsorted(cumulative, 0.5 * cumulative[-1])]]) ** 2


def mean_unit(unit: FloatArray) -> FloatArray:
    """Return the mean of the unit over folds, where it is finite."""
    return np.asarray(np.mean(np.where(np.isfinite(unit), unit, 0.0), axis=0))


def mean_weights(request: Request) -> tuple[FloatArray, float]:
    """Return the mean of the sample weights of all folds, and the factor that majorises each."""
    weights = request.weights
    if not request.has_folds:
        return weights[0, :], 1.0
    mean = weights.mean(axis=0)
    is_used = mean > 0
    ratio = max(float((fold[is_used] / mean[is_used]).max()) for fold in weights)
    return mean, min(ratio, request.policy.max_fold_ratio)
