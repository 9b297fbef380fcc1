r"""Catoni's estimate of location, its confidence interval, and the rules for its scale.

The estimate of the location of :math:`x_1, \dots, x_n` at scale s is the root θ of

.. math::  \sum_i w_i\, \psi\bigl((\theta - x_i)/s\bigr) = 0

(Holland 2018, equation est_BJL; of the x_i themselves, see E4), with :math:`\psi` the influence
function of :mod:`marginpursuit.losses`. A small scale gives the median, a large one the mean.

Invariants that the tests check: the estimate lies between the least and the greatest value; it is
equivariant under shifts, changes of unit and of sign; it is non-decreasing in every value; a weight
of 2 equals the value twice, and a weight of 0 equals its absence; if more than one θ solves the
equation, the estimate is the midpoint of the solutions, which is the median.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from marginpursuit._catoni_root import catoni_roots
from marginpursuit._validation import (
    Elementwise,
    FloatArray,
    between,
    inside,
    like,
    positive,
    scalar,
)

__all__ = [
    "CatoniInterval",
    "catoni_interval",
    "catoni_location",
    "confidence_scale",
    "consistent_quantile_scale",
    "quantile_scale",
    "variance_scale",
]


class CatoniInterval(NamedTuple):
    """A location estimate with an interval that contains the mean with probability 1 - delta.

    Attributes
    ----------
    location : ndarray or scalar
        The estimate.
    low, high : ndarray or scalar
        The ends of the interval, ``location - radius`` and ``location + radius``.
    radius : ndarray or scalar
        Half the width of the interval.
    scale : ndarray or scalar
        The scale s at which the estimate was taken.

    Examples
    --------
    >>> import numpy as np
    >>> from marginpursuit.location import catoni_interval
    >>> draws = np.random.default_rng(0).standard_t(3, size=1000)
    >>> location, low, high, radius, scale = catoni_interval(draws, variance=3.0, delta=0.01)
    >>> bool(low < location < high), bool(radius == (high - low) / 2)
    (True, True)
    """

    location: Elementwise
    low: Elementwise
    high: Elementwise
    radius: Elementwise
    scale: Elementwise


def catoni_location(
    x: ArrayLike,
    scale: ArrayLike | None = None,
    *,
    delta: float = 0.05,
    sample_weight: ArrayLike | None = None,
    axis: int | None = None,
    influence: str = "truncated",
) -> Elementwise:
    r"""Estimate the location of `x`: the root θ of :math:`\sum_i w_i\psi((\theta - x_i)/s)`.

    The root is exact up to rounding at every scale. For scales far below the spread of the data it
    is the median, for scales far above it the mean minus :math:`m_3/(6 s^2)`, with m₃ the third
    central moment. If several θ solve the equation (an even number of values with a gap of at least
    2√2 s in the middle, E6), the midpoint of the solutions is returned, which is the median.

    Parameters
    ----------
    x : array_like
        The values: finite real numbers, at least one.
    scale : array_like, optional
        The scale s > 0; with an `axis`, one number for all or one for each estimate. By default
        :func:`confidence_scale` of the variance of the values, their number and `delta`.
    delta : float, default=0.05
        The confidence level that sets the default scale, in (0, 1); not used with a `scale`.
    sample_weight : array_like, optional
        Weights w ≥ 0, of the shape of `x`, or one-dimensional along `axis`. A weight is a number of
        repetitions: 2 equals the value twice, 0 its absence. With a given `scale` only their ratios
        matter; in the default scale their sum is the number of values. Two sides whose weights are
        equal up to rounding are balanced.
    axis : int, optional
        The axis along which to estimate. By default all values make one estimate.
    influence : {"truncated", "wide"}, default="truncated"
        The influence function in place of ψ: ψ itself, or Catoni's widest
        (:func:`~marginpursuit.losses.wide_influence`), which is strictly increasing.

    Returns
    -------
    ndarray or scalar
        The estimates, of the shape of `x` without `axis` and of the float type of `x`.

    Raises
    ------
    ValueError
        If there is no value to estimate from, a value is not finite, a scale is not positive, a
        weight is negative or all are zero, or shapes do not match.

    Examples
    --------
    >>> from marginpursuit.location import catoni_location
    >>> x = [1.0, 2.0, 3.0, 100.0]
    >>> [catoni_location(x, scale).round(4) for scale in (1e-6, 5.0, 1e6)]
    [np.float64(2.5), np.float64(3.6214), np.float64(26.5)]
    >>> catoni_location([[1.0, 5.0], [2.0, 6.0], [9.0, 7.0]], scale=[1e9, 2.0], axis=0)
    array([4., 6.])
    """
    values = inside("x", x, -np.inf, np.inf)
    rows, shape = _rows(values, axis)
    weight, number = None, np.full(len(rows), float(rows.shape[1]))
    if sample_weight is not None:
        weight = _weight_rows(sample_weight, values.shape, axis, len(rows))
        number = weight.sum(axis=1)
    if scale is None:
        scales = np.asarray(confidence_scale(1.0, number, scalar("delta", delta)))
    else:
        scales = _expand("scale", positive("scale", scale), shape).ravel()
    found = catoni_roots(rows, weight, scales, influence, in_deviations=scale is None)
    return like(found.reshape(shape), x)


def catoni_interval(
    x: ArrayLike, variance: ArrayLike, delta: float = 0.05, *, axis: int | None = None
) -> CatoniInterval:
    r"""Estimate the mean of independent draws, with a confidence interval.

    At the scale of :func:`confidence_scale` the estimate θ of n independent draws from a law with
    mean μ and variance at most v obeys

    .. math::

        P\bigl\{|\theta - \mu| > s\,(1 - \sqrt{1 - 4L/n})\bigr\} \le \delta,
        \qquad s^2 = \frac{n v}{2 L}, \quad L = \log(2/\delta), \quad n > 4L,

    for every law with this mean and variance. The radius is √(2vL/n) (1 + O(L/n)). The paper's
    Lemma pointwise_accuracy prints √(2vL/n) itself, without the condition on n; that is not a
    bound (E3).

    Parameters
    ----------
    x : array_like
        The draws: finite real numbers.
    variance : array_like
        An upper bound v > 0 on the variance of the law, known beforehand; with an `axis`, one
        number for all or one for each estimate. An estimate from `x` itself voids the guarantee.
    delta : float, default=0.05
        The probability, in (0, 1), that the interval does not contain the mean.
    axis : int, optional
        The axis along which to estimate. By default all values make one estimate.

    Returns
    -------
    CatoniInterval
        The named tuple ``(location, low, high, radius, scale)``.

    Raises
    ------
    ValueError
        If there are at most 4 log(2/delta) draws, for which the theorem gives no radius.

    Examples
    --------
    >>> import numpy as np
    >>> from marginpursuit.location import catoni_interval
    >>> draws = np.random.default_rng(0).standard_t(3, size=1000)
    >>> interval = catoni_interval(draws, variance=3.0, delta=0.01)
    >>> interval.low < 0.0 < interval.high
    np.True_
    >>> interval.radius.round(4)
    np.float64(0.1793)
    """
    values = inside("x", x, -np.inf, np.inf)
    rows, shape = _rows(values, axis)
    n = rows.shape[1]
    log_term = float(_log_term(2.0, scalar("delta", delta)))
    if n <= 4.0 * log_term:
        raise ValueError(
            f"the interval needs more than 4 log(2/delta) = {4.0 * log_term:.4g} draws, that is "
            f"at least {int(4.0 * log_term) + 1}; got {n}"
        )
    variances = _expand("variance", positive("variance", variance), shape)
    scale = confidence_scale(variances, n, delta)
    ratio = 4.0 * log_term / n
    radius = scale * (ratio / (1.0 + np.sqrt(1.0 - ratio)))  # 1 - √(1 - ratio) cancels
    location = np.asarray(catoni_location(values, scale, axis=axis))
    parts = (location, location - radius, location + radius, radius, scale)
    return CatoniInterval(*(like(np.asarray(part), x) for part in parts))


def variance_scale(variance: ArrayLike, margin: ArrayLike, k: ArrayLike = 2.0) -> Elementwise:
    r"""Scale of the paper's Algorithm 1: :math:`s = k\,\mathrm{Var}(m)/\gamma`.

    At this scale the bias of the location estimate of the margins, at most Var(m)/s, is at most
    γ/k, with γ the margin level.

    Parameters
    ----------
    variance : array_like
        The variance of the margins, or an upper bound on it, positive.
    margin : array_like
        The margin level γ > 0.
    k : array_like, default=2.0
        The factor k > 0, which the paper leaves open.

    Returns
    -------
    ndarray or scalar
        The scale s.

    Examples
    --------
    >>> from marginpursuit.location import variance_scale
    >>> variance_scale(0.5, margin=2.0, k=10.0)
    np.float64(2.5)
    """
    ratio = positive("variance", variance) / positive("margin", margin)
    return like(ratio * positive("k", k), variance, margin, k)


def confidence_scale(variance: ArrayLike, n: ArrayLike, delta: ArrayLike = 0.05) -> Elementwise:
    r"""Scale that minimises the deviation bound: :math:`s^2 = n v/(2\log(2/\delta))`.

    This is the choice of s in the paper's Lemma pointwise_accuracy.

    Parameters
    ----------
    variance : array_like
        The variance v > 0, or an upper bound on it.
    n : array_like
        The number of values, positive.
    delta : array_like, default=0.05
        The probability, in (0, 1), that the bound fails.

    Returns
    -------
    ndarray or scalar
        The scale s.

    Examples
    --------
    >>> from marginpursuit.location import confidence_scale
    >>> confidence_scale(4.0, n=1000, delta=0.01).round(4)
    np.float64(19.4288)
    """
    factor = positive("n", n) / (2.0 * _log_term(2.0, delta))
    return like(np.sqrt(positive("variance", variance)) * np.sqrt(factor), variance)


def quantile_scale(
    margins: ArrayLike, penalty: float, delta: float = 0.05, quantile: float = 0.75
) -> Elementwise:
    r"""Scale of the paper's experiments: :math:`s = \sqrt{n q/(2\lambda\log(1/\delta))}`.

    Here q is a quantile of the absolute values. This is the rule as printed, for reproducing the
    experiments. It uses q, which has the unit of a margin, as a variance, and therefore depends on
    the unit of the margins (E20); :func:`consistent_quantile_scale` does not.

    Parameters
    ----------
    margins : array_like
        The margins m, finite, in any shape.
    penalty : float
        The coefficient λ > 0 of the squared norm in the objective.
    delta : float, default=0.05
        The confidence level, in (0, 1).
    quantile : float, default=0.75
        Which quantile of the absolute values is taken, in [0, 1].

    Returns
    -------
    scalar
        The scale s.

    Examples
    --------
    >>> from marginpursuit.location import quantile_scale
    >>> quantile_scale([-1.0, 0.5, 2.0, 3.0], penalty=0.1, delta=0.1).round(4)
    np.float64(4.4208)
    """
    size, n = _absolute_quantile(margins, quantile)
    log_term = _log_term(1.0, scalar("delta", delta))
    factor = n / (2.0 * positive("penalty", scalar("penalty", penalty)) * log_term)
    return like(np.sqrt(size) * np.sqrt(factor), margins)


def consistent_quantile_scale(
    margins: ArrayLike, delta: float = 0.05, quantile: float = 0.75
) -> Elementwise:
    r"""Scale from a quantile, in the unit of the margins: :math:`s = q\sqrt{n/(2\log(2/\delta))}`.

    The quantile q of the absolute values replaces the standard deviation in
    :func:`confidence_scale`. This version of :func:`quantile_scale` agrees with the lemma that the
    paper refers to (E20): the variance is q², and the penalty does not enter.

    Parameters
    ----------
    margins : array_like
        The margins m, finite, in any shape.
    delta : float, default=0.05
        The confidence level, in (0, 1).
    quantile : float, default=0.75
        Which quantile of the absolute values is taken, in [0, 1].

    Returns
    -------
    scalar
        The scale s.

    Examples
    --------
    >>> from marginpursuit.location import consistent_quantile_scale
    >>> consistent_quantile_scale([-1.0, 0.5, 2.0, 3.0], delta=0.1).round(4)
    np.float64(1.8384)
    """
    size, n = _absolute_quantile(margins, quantile)
    return like(size * confidence_scale(1.0, n, scalar("delta", delta)), margins)


def _log_term(numerator: float, delta: ArrayLike) -> FloatArray:
    """Return log(numerator/delta) as a difference, which does not overflow."""
    return np.asarray(np.log(numerator) - np.log(inside("delta", delta, 0.0, 1.0)))


def _absolute_quantile(margins: ArrayLike, quantile: float) -> tuple[FloatArray, int]:
    """Return the quantile of the |margins|, which must be positive, and their number."""
    values = inside("margins", margins, -np.inf, np.inf)
    if not values.size:
        raise ValueError(f"margins must hold at least one value; got shape {values.shape}")
    level = float(between("quantile", scalar("quantile", quantile), 0.0, 1.0))
    size = np.asarray(np.quantile(np.abs(values), level))
    if size == 0:
        raise ValueError(
            f"the {level:g} quantile of the absolute margins must be positive; got 0. Choose a "
            "larger quantile."
        )
    return size, values.size


def _rows(values: FloatArray, axis: int | None) -> tuple[FloatArray, tuple[int, ...]]:
    """Return the values of each estimate as a row, and the shape of the estimates."""
    last = values.reshape(-1) if axis is None else np.moveaxis(values, axis, -1)
    if not last.shape[-1]:
        raise ValueError(f"x must hold at least one value along the axis; got shape {values.shape}")
    return last.reshape(-1, last.shape[-1]), last.shape[:-1]


def _weight_rows(
    sample_weight: ArrayLike, shape: tuple[int, ...], axis: int | None, length: int
) -> FloatArray:
    """Return the weights in rows, as :func:`_rows` does for values of this shape."""
    weight = between("sample_weight", sample_weight, 0.0, float(np.finfo(np.float64).max))
    if weight.shape == shape:
        rows, _ = _rows(weight, axis)
    elif axis is not None and weight.shape == (shape[axis],):
        rows = np.broadcast_to(weight, (length, shape[axis]))
    else:
        raise ValueError(
            f"sample_weight must have the shape {shape} of x, or be one-dimensional along a given "
            f"axis; got shape {weight.shape}"
        )
    if not np.all(rows.any(axis=1)):
        raise ValueError("sample_weight must not be zero for all values of an estimate; got zeros")
    return rows


def _expand(name: str, value: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    """Broadcast `value` to the shape of the estimates."""
    try:
        return np.broadcast_to(value, shape)
    except ValueError:
        raise ValueError(
            f"{name} must broadcast to the shape {shape} of the estimates; got shape {value.shape}"
        ) from None
