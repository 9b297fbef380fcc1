r"""The random-projection bound of Garg and Roth (2003) for linear rules.

A linear score h(x) = ⟨w, x⟩ + b with ‖w‖ = ‖x‖ = 1 is compared with ⟨Pw, Px⟩ + b, where P is a
k × d matrix of independent N(0, 1/k) entries. The paper writes d for the projected dimension as
well as for the ambient one, and N(0, 1/d); in both, k is meant (E19).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from marginpursuit._validation import Elementwise, FloatArray, like, positive, real
from marginpursuit.bounds._parts import Parts, failure_probability, given
from marginpursuit.bounds.constants import DataConstants

__all__ = ["ProjectionRiskBound", "projection_profile", "projection_risk_bound"]


def projection_profile(score: ArrayLike, k: ArrayLike) -> Elementwise:
    r"""Bound the probability that a projection to k dimensions flips the sign of a score.

    .. math:: \min\left\{1,\; 3\exp\frac{-h^2k}{2(2 + |h|)^2},\; \frac{2}{h^2k}\right\}

    The last is Chebyshev's inequality: ⟨Pw, Px⟩ has mean ⟨w, x⟩ and variance (1 + ⟨w, x⟩²)/k.

    Parameters
    ----------
    score : array_like
        Scores h(x) for unit w and x, or margins: the sign is irrelevant.
    k : array_like
        Dimensions projected to, positive. Broadcast against `score`.

    Returns
    -------
    ndarray or scalar
        The bound, in [0, 1].

    Examples
    --------
    >>> from marginpursuit.bounds import projection_profile
    >>> projection_profile([0.0, 0.1, 0.7], 400)
    array([1.00000000e+00, 5.00000000e-01, 4.35380486e-06])
    """
    return like(_profile(np.abs(real("score", score)), positive("k", k)), score, k)


@dataclass(frozen=True, repr=False, slots=True)
class ProjectionRiskBound(Parts):
    """The terms of the random-projection bound; see `projection_risk_bound`.

    Attributes
    ----------
    confidence : float
        The probability 1 - 4δ with which the bound holds.
    training_error : float
        The fraction of negative margins in the first half of the observations.
    k : int
        The dimension with the smallest bound.
    projection : float
        μ_k, the error of projecting to k dimensions.
    complexity : float
        The complexity term of learning in k dimensions.
    bound : float
        The sum of the three: a bound on P{y h(x) < 0}; vacuous from 1 on.

    Examples
    --------
    >>> import numpy as np
    >>> from marginpursuit.bounds import projection_risk_bound
    >>> bound = projection_risk_bound(np.full(200_000, 0.9), delta=0.05)
    >>> bound.k, round(bound.bound, 3)
    (216, 0.184)
    """

    confidence: float
    training_error: float
    k: int
    projection: float
    complexity: float
    bound: float


def projection_risk_bound(
    margin: ArrayLike | None = None,
    delta: float = 0.05,
    *,
    constants: DataConstants | None = None,
) -> ProjectionRiskBound:
    r"""Bound the error of a linear rule by its margins on 2n observations.

    With probability at least 1 - 4δ,

    .. math::

        P\{y\,h(x) < 0\} \le \frac1n \sum_{i=1}^n 1\{m_i < 0\} + \min_k \left( \mu_k
            + 2\sqrt{\frac{(k+2)\log\frac{ne}{k+2} + \log\frac2\delta}{2n}} \right), \qquad
        \mu_k = \frac{2}{\delta n} \sum_{i=1}^{2n} \mathrm{profile}(m_i, k),

    with k in place of the paper's d (E19) and k from 1 to n - 2. It needs ‖w‖ = ‖x‖ = 1. The
    minimum is found exactly by branch and bound: μ_k decreases and the other term increases with k,
    so between k₁ and k₂ the bound is at least μ at k₂ plus the other term at k₁.

    Parameters
    ----------
    margin : array_like of shape (2n,)
        Margins y h(x) for unit w and x; the training error counts the first n of them.
    delta : float, default=0.05
        δ in (0, 1/4).
    constants : DataConstants, optional
        Constants of a data set, if `margin` is not given: the margins of w*/‖w*‖ on x/‖x‖.

    Returns
    -------
    ProjectionRiskBound
        The bound and its terms.

    Examples
    --------
    >>> import numpy as np
    >>> from marginpursuit.bounds import projection_risk_bound
    >>> projection_risk_bound(np.full(200_000, 0.9), delta=0.05)
    ProjectionRiskBound
      confidence      0.8
      training_error  0
      k               216
      projection      0.00728991
      complexity      0.176504
      bound           0.183794
    """
    margins = real("margin", given("margin", margin, constants, "unit_row_margins"))
    if margins.ndim != 1 or margins.size < 6 or margins.size % 2:
        raise ValueError(
            "margin must be one-dimensional with an even number of at least 6 values, for 2n"
            f" observations with n >= 3; got shape {margins.shape}"
        )
    delta = failure_probability(delta, high=0.25)
    n = margins.size // 2
    # Equal margins are evaluated once.
    size, repeats = np.unique(np.abs(margins), return_counts=True)

    def terms(k: FloatArray) -> FloatArray:
        # np.sum instead of a dot product, which would start the threads of BLAS each time.
        sums = np.array([np.sum(repeats * _profile(size, one)) for one in k])
        capacity = (k + 2.0) * (1.0 - np.log((k + 2.0) / n)) + math.log(2.0 / delta)
        return np.column_stack([k, 2.0 / (delta * n) * sums, 2.0 * np.sqrt(capacity / (2.0 * n))])

    k, projection, complexity = _smallest(terms, n - 2)
    training_error = float(np.mean(margins[:n] < 0))
    return ProjectionRiskBound(
        confidence=1.0 - 4.0 * delta,
        training_error=training_error,
        k=int(k),
        projection=float(projection),
        complexity=float(complexity),
        bound=float(training_error + projection + complexity),
    )


def _smallest(terms: Callable[[FloatArray], FloatArray], last: int) -> FloatArray:
    """Return the row (k, decreasing, increasing) of `terms` with the smallest sum, k ≤ last."""
    rows = terms(np.unique([1.0, last]))
    while True:
        sums = rows[:, 1] + rows[:, 2]
        low, high = rows[:-1], rows[1:]
        split = (high[:, 0] - low[:, 0] > 1.0) & (high[:, 1] + low[:, 2] < sums.min())
        if not split.any():
            return np.asarray(rows[sums.argmin()])
        middle = np.floor(0.5 * (low[split, 0] + high[split, 0]))
        rows = np.vstack([rows, terms(middle)])
        rows = rows[rows[:, 0].argsort()]


@np.errstate(over="ignore", under="ignore", divide="ignore")
def _profile(size: FloatArray, k: FloatArray | float) -> FloatArray:
    ratio = 1.0 / (1.0 + 2.0 / size)  # h/(2 + h), from 0 to infinity
    exponential = 3.0 * np.exp(-0.5 * k * ratio * ratio)
    return np.minimum(np.minimum(exponential, 2.0 / (size * size * k)), 1.0)
