r"""Calibration: bounds on the classification risk by the surrogate risk, and the link to η.

With :math:`\varphi(u) = s^2 \rho((\gamma - u)/s)`, the loss of a margin u at level γ and scale s,
and η = P{y = 1 | x} (E25), the conditional risk of a score u and its minimum are

.. math::

    C_\eta(u) = \eta\,\varphi(u) + (1 - \eta)\,\varphi(-u), \qquad
    H_{s,\gamma}(\eta) = \min_u C_\eta(u),

and the calibration transform of the paper's lemma (Holland 2018, after Bartlett, Jordan and
McAuliffe) is

.. math::

    \Psi_{s,\gamma}(\theta) = s^2 \rho(\gamma/s) - H_{s,\gamma}\big(\tfrac{1 + \theta}{2}\big),
    \qquad \Psi_{s,\gamma}(R(h) - R^*) \le R_\varphi(h) - R_\varphi^*,

where the two infima run over all measurable h; over a smaller class it can fail (E18).

All functions are independent of the overconfidence weight τ of `MarginLoss`: a minimiser lies in
[-γ, γ], where neither u nor -u exceeds the level. At τ = 0 and η = 0 or 1 it is not unique: every
score beyond the level has the same loss, zero. Except for `probability`, the functions are those of
Catoni's ρ.

Two regimes, with θ = |2η - 1| and u the minimiser for η ≥ 1/2, which solves
(1 + θ) ψ((γ - u)/s) = (1 - θ) ψ((γ + u)/s):

* *single cube*, (γ + u)/s ≥ √2: the right-hand side is constant, and ψ has an inverse;
* *double cube*, (γ + u)/s < √2: both sides are cubic. Of the three real roots (E2) ours is the
  middle one.

The code computes with θ, 1 - η and the difference γ - u, so that every result keeps its relative
precision at η = 0, 1/2 and 1, and where γ/s is nearly √2. The unit of length is γ in the double
cube and s in the single cube, and neither is squared before the last step; results overflow or
underflow only where the exact value does, for every positive finite γ and s.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from marginpursuit._cubic import CubicRoots, cubic_roots
from marginpursuit._validation import Elementwise, FloatArray, between, like, positive, real
from marginpursuit.losses import INFLUENCE_BOUND, RHOS, TRUNCATION
from marginpursuit.losses.margin import margin_link
from marginpursuit.losses.rhos import TRUNCATION_REST

__all__ = [
    "CubicRoots",
    "conditional_risk",
    "conditional_risk_minus",
    "cubic_roots",
    "optimal_score",
    "probability",
    "psi_inverse",
    "psi_tilde",
    "psi_transform",
]

# Both regimes are evaluated everywhere and one is selected; the other may divide by zero or
# overflow.
_either_regime = np.errstate(over="ignore", invalid="ignore", divide="ignore")


def conditional_risk(
    eta: ArrayLike, margin: ArrayLike = 1.0, scale: ArrayLike = 1.0
) -> Elementwise:
    r"""Evaluate :math:`H_{s,\gamma}(\eta)`, the least conditional risk.

    Parameters
    ----------
    eta : array_like
        Conditional probabilities of the positive class, in [0, 1].
    margin : array_like, default=1.0
        The level γ > 0.
    scale : array_like, default=1.0
        The scale s > 0.

    Returns
    -------
    ndarray or scalar
        H, from 0 at η = 0 and 1 to s²ρ(γ/s) at η = 1/2.

    Examples
    --------
    >>> from marginpursuit.calibration import conditional_risk
    >>> conditional_risk([0.0, 0.1, 0.5, 0.9])
    array([0.        , 0.133619  , 0.45833333, 0.133619  ])
    """
    theta, rest = _split(between("eta", eta, 0.0, 1.0))
    return like(_risk(theta, rest, _shape(margin, scale)), eta, margin, scale)


def optimal_score(eta: ArrayLike, margin: ArrayLike = 1.0, scale: ArrayLike = 1.0) -> Elementwise:
    r"""Find the score that minimises the conditional risk.

    It is odd about η = 1/2. At η = 1/2 with γ > s√2 every score up to γ - s√2 in size is a
    minimiser; 0 is returned.

    Parameters
    ----------
    eta : array_like
        Conditional probabilities of the positive class, in [0, 1].
    margin : array_like, default=1.0
        The level γ > 0.
    scale : array_like, default=1.0
        The scale s > 0.

    Returns
    -------
    ndarray or scalar
        The minimiser u, in [-γ, γ].

    Examples
    --------
    >>> from marginpursuit.calibration import optimal_score
    >>> optimal_score([0.0, 0.1, 0.5, 0.9])
    array([-1.        , -0.89505078,  0.        ,  0.89505078])
    """
    probabilities = between("eta", eta, 0.0, 1.0)
    theta, _ = _split(probabilities)
    score = _score(theta, _shape(margin, scale))
    return like(np.copysign(score, probabilities - 0.5), eta, margin, scale)


def psi_transform(theta: ArrayLike, margin: ArrayLike = 1.0, scale: ArrayLike = 1.0) -> Elementwise:
    r"""Evaluate the calibration transform :math:`\Psi_{s,\gamma}(\theta)`.

    It is convex, even and zero at zero, and bounds the excess surrogate risk from below by a
    function of the excess classification risk θ. Near zero it is of order θ² for γ < s√2 and of
    order θ for γ > s√2. The result has full relative precision for every θ.

    Parameters
    ----------
    theta : array_like
        Excess classification risks in [0, 1]; the formula is even, and [-1, 0] is accepted.
    margin : array_like, default=1.0
        The level γ > 0.
    scale : array_like, default=1.0
        The scale s > 0.

    Returns
    -------
    ndarray or scalar
        Ψ(θ), from 0 at θ = 0 to s²ρ(γ/s) at θ = ±1.

    Examples
    --------
    >>> from marginpursuit.calibration import psi_transform
    >>> psi_transform([0.0, 1e-100, 0.5, 1.0])
    array([0.00000000e+000, 6.94444444e-201, 1.49281244e-001, 4.58333333e-001])
    """
    size = np.abs(between("theta", theta, -1.0, 1.0))
    return like(_psi(size, _shape(margin, scale)), theta, margin, scale)


def conditional_risk_minus(
    eta: ArrayLike, margin: ArrayLike = 1.0, scale: ArrayLike = 1.0
) -> Elementwise:
    r"""Evaluate H⁻(η), the least conditional risk of a score with the wrong sign.

    H⁻(η) is the infimum of C_η(u) over u (2η - 1) ≤ 0. As φ is convex with φ'(0) < 0, it is
    attained at u = 0 for every η: H⁻(η) = φ(0) = s²ρ(γ/s). It exceeds H(η) except at η = 1/2: the
    loss is classification-calibrated.

    Parameters
    ----------
    eta : array_like
        Probabilities η in [0, 1] of the positive class.
    margin : array_like, default=1.0
        The level γ > 0.
    scale : array_like, default=1.0
        The scale s > 0.

    Returns
    -------
    ndarray or scalar
        H⁻(η).

    Examples
    --------
    >>> from marginpursuit.calibration import conditional_risk, conditional_risk_minus
    >>> conditional_risk_minus([0.5, 0.9]).round(4), conditional_risk([0.5, 0.9]).round(4)
    (array([0.4583, 0.4583]), array([0.4583, 0.1336]))
    """
    probabilities = between("eta", eta, 0.0, 1.0)
    at_zero = conditional_risk(np.ones_like(probabilities) * 0.5, margin, scale)
    return like(np.asarray(at_zero, dtype=np.float64), eta, margin, scale)


def psi_tilde(theta: ArrayLike, margin: ArrayLike = 1.0, scale: ArrayLike = 1.0) -> Elementwise:
    r"""Evaluate Ψ̃(θ) = H⁻((1 + θ)/2) - H((1 + θ)/2), whose biconjugate is Ψ.

    H is concave and H⁻ constant, so that Ψ̃ is convex and equals its biconjugate: it is
    :func:`psi_transform`.

    Parameters
    ----------
    theta : array_like
        Excess classification risks in [-1, 1].
    margin : array_like, default=1.0
        The level γ > 0.
    scale : array_like, default=1.0
        The scale s > 0.

    Returns
    -------
    ndarray or scalar
        Ψ̃(θ).

    Examples
    --------
    >>> from marginpursuit.calibration import psi_tilde, psi_transform
    >>> bool(psi_tilde(0.3) == psi_transform(0.3))
    True
    """
    return psi_transform(theta, margin, scale)


def psi_inverse(a: ArrayLike, margin: ArrayLike = 1.0, scale: ArrayLike = 1.0) -> Elementwise:
    r"""Invert the calibration transform: the θ in [0, 1] with :math:`\Psi_{s,\gamma}(\theta) = a`.

    An excess surrogate risk of `a` guarantees an excess classification risk of at most this. As
    s grows it tends to √(2a)/γ, which is positive; but :math:`\Psi_{s,\gamma}^{-1}(a/s)` tends to
    zero (E26).

    Parameters
    ----------
    a : array_like
        Excess surrogate risks, in [0, s²ρ(γ/s)].
    margin : array_like, default=1.0
        The level γ > 0.
    scale : array_like, default=1.0
        The scale s > 0.

    Returns
    -------
    ndarray or scalar
        θ in [0, 1].

    Notes
    -----
    Both Ψ and θ are explicit functions of the minimiser, which solves a cubic in the double cube
    and a quartic in the single cube. On the relevant interval the first is concave and the second
    convex, and Newton's method starts on the side from which it converges monotonically.

    Examples
    --------
    >>> from marginpursuit.calibration import psi_inverse, psi_transform
    >>> psi_inverse([0.0, 0.1, 0.4])
    array([0.        , 0.39864538, 0.91457909])
    >>> psi_inverse(psi_transform(1e-100))
    np.float64(1e-100)
    """
    values, shape = real("a", a), _shape(margin, scale)
    largest = _risk(*_split(np.asarray(0.5)), shape)
    # An end point that was rounded upwards is accepted as the end point.
    slack = 8.0 * float(np.finfo(like(values, a).dtype).eps)
    bad = (values < 0) | (values > largest * (1.0 + slack))
    if np.any(bad):
        seen, allowed = np.broadcast_arrays(values, largest)
        between("a", seen[bad][0], 0.0, float(allowed[bad][0]))
    far, single = _inverse_single(values, shape)
    theta = np.where(single, far, _inverse_double(values, shape))
    theta = np.where(values < largest, np.minimum(theta, 1.0), 1.0)
    return like(np.where(values > 0, theta, 0.0), a, margin, scale)


def probability(
    score: ArrayLike,
    margin: ArrayLike = 1.0,
    scale: ArrayLike = 1.0,
    rho: str = "catoni",
) -> Elementwise:
    r"""Return the probability η whose optimal score is given: the exact link of the loss.

    .. math::

        \eta(u) = \frac{\psi((\gamma + u)/s)}{\psi((\gamma + u)/s) + \psi((\gamma - u)/s)}
        \quad (|u| < \gamma), \qquad 0 \text{ or } 1 \text{ beyond.}

    Small probabilities are accurate to full relative precision. That of the negative class is
    ``probability(-score)``, which stays accurate where ``1 - probability(score)`` does not.

    Parameters
    ----------
    score : array_like
        Scores h(x), any real numbers including ±inf.
    margin : array_like, default=1.0
        The level γ > 0.
    scale : array_like, default=1.0
        The scale s > 0.
    rho : {"catoni", "pseudo_huber", "log_cosh", "huber", "square"}, default="catoni"
        The function ρ of the loss, with ψ = ρ'.

    Returns
    -------
    ndarray or scalar
        η(u), in [0, 1] and non-decreasing in the score.

    Examples
    --------
    >>> from marginpursuit.calibration import probability
    >>> probability([-2.0, -0.5, 0.0, 0.5, 1.0])
    array([0.        , 0.33697247, 0.5       , 0.66302753, 1.        ])
    """
    if rho not in RHOS:
        raise ValueError(f"rho must be one of {list(RHOS)}; got {rho!r}")
    scores = real("score", score)
    level, width = positive("margin", margin), positive("scale", scale)
    return like(margin_link(RHOS[rho], scores, level, width), score, margin, scale)


@dataclass(frozen=True, slots=True)
class _Shape:
    """Functions of γ and s alone."""

    level: FloatArray  # γ
    width: FloatArray  # s
    short: FloatArray  # √2 - γ/s, to full relative precision; -inf where γ/s overflows
    excess: FloatArray  # γ - s√2, likewise
    q: FloatArray  # γ²/(6s²), right in the double cube
    slope: FloatArray  # 1 - 3q = 1 - γ²/(2s²), likewise


@_either_regime
def _shape(margin: ArrayLike, scale: ArrayLike) -> _Shape:
    level, width = positive("margin", margin), positive("scale", scale)
    # √2 s - γ may cancel completely, so the product is computed exactly: with s = m 2ᵏ and
    # Veltkamp's splitting of both factors into halves whose products are exact (Dekker).
    root_upper = 1.4142135679721832  # the upper half of √2
    root_lower = TRUNCATION - root_upper
    mantissa, exponent = np.frexp(width)
    upper = (2.0**27 + 1.0) * mantissa
    upper = upper - (upper - mantissa)
    lower = mantissa - upper
    product = mantissa * TRUNCATION
    carry = ((upper * root_upper - product) + upper * root_lower + lower * root_upper) + (
        lower * root_lower + mantissa * TRUNCATION_REST
    )
    short = ((product - np.ldexp(level, -exponent)) + carry) / mantissa
    ratio = level / width
    return _Shape(
        level=level,
        width=width,
        short=short,
        excess=np.minimum(-short * width, level),
        q=ratio * ratio / 6.0,
        slope=0.5 * np.maximum(short, 0.0) * (TRUNCATION + ratio),
    )


def _split(eta: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return |2η - 1| and min(η, 1 - η), each to full relative precision."""
    return np.abs(2.0 * eta - 1.0), np.minimum(eta, 1.0 - eta)


def _depth(theta: FloatArray) -> FloatArray:
    """Solve the single cube: √2 - (γ - u)/s, in [0, √2].

    There (γ - u)/s = ψ⁻¹(B(1 - θ)/(1 + θ)), where arcsin((1 - θ)/(1 + θ)) = π/2 - 2 arctan √θ, so
    that the distance to √2 comes without a subtraction.
    """
    angle = np.arctan(np.sqrt(theta)) / 3.0
    return 4.0 * TRUNCATION * np.sin(angle) * np.cos(np.pi / 6.0 - angle)


@_either_regime
def _relative_score(theta: FloatArray, shape: _Shape) -> FloatArray:
    """Solve the double cube: x = u/γ, in [0, 1].

    The paper's double-cube condition, divided by 6γ/η, is θ(1 - q - 3qx²) = x(1 - 3q - qx²). Right
    minus left is concave and increasing from x = θ to the root. One Newton step from x = θ is exact
    at θ = 0 and θ = 1 and never more than 0.8 % short; three more reach the last bit.
    """
    q, slope = shape.q, shape.slope
    x = theta * (1.0 - q + q * theta * theta) / (slope + 3.0 * q * theta * theta)
    for _ in range(3):
        value = x * (slope - q * x * x) - theta * (1.0 - q - 3.0 * q * x * x)
        x = x - value / (slope + 3.0 * q * x * (2.0 * theta - x))
    return np.where(theta > 0, x, 0.0)


def _is_single(depth: FloatArray, shape: _Shape) -> NDArray[np.bool_]:
    """Return where (γ + u)/s ≥ √2: the paper's test of the edge u = δ, in terms of the depth."""
    return np.greater_equal(depth, 2.0 * shape.short)


@_either_regime
def _score(theta: FloatArray, shape: _Shape) -> FloatArray:
    """Find the minimiser u ≥ 0."""
    depth = _depth(theta)
    far = np.minimum(shape.excess + shape.width * depth, shape.level)
    near = shape.level * np.minimum(_relative_score(theta, shape), 1.0)
    return np.where(_is_single(depth, shape) & (theta > 0), far, near)


@_either_regime
def _risk(theta: FloatArray, rest: FloatArray, shape: _Shape) -> FloatArray:
    """Evaluate H from θ = |2η - 1| and `rest` = min(η, 1 - η)."""
    level, width, q, most = shape.level, shape.width, shape.q, 1.0 - rest
    # The equation that x solves restores the relative precision of y = 1 - x.
    y = 1.0 - _relative_score(theta, shape)
    z = 2.0 - y
    y = rest * z * (1.0 - q * z * z) / (most * (1.0 - q * y * y))
    z = 2.0 - y
    unit = most * y * y * (1.0 - 0.5 * q * y * y) + rest * z * z * (1.0 - 0.5 * q * z * z)
    near = level * (level * (0.5 * unit))
    # (γ - u)/s = ψ⁻¹(B(1 - η)/η) as in `_depth`, here relatively precise as it tends to 0.
    angle = np.arctan(2.0 * rest / (1.0 + np.sqrt(theta)) ** 2) / 1.5
    w = 2.0 * TRUNCATION * np.sin(angle)
    own = most * 0.5 * w * w * (1.0 - w * w / 12.0) - rest * (INFLUENCE_BOUND * w + 0.5)
    far = width * (width * own + 2.0 * rest * INFLUENCE_BOUND * level)
    return np.where(_is_single(_depth(theta), shape), far, near)


@_either_regime
def _psi(theta: FloatArray, shape: _Shape) -> FloatArray:
    """Evaluate Ψ for θ ≥ 0 without a difference of nearly equal terms.

    Both forms come from expanding φ(0) - C(u) and using the equation that u solves.
    """
    level, width, q = shape.level, shape.width, shape.q
    x, depth = _relative_score(theta, shape), _depth(theta)
    near = 0.5 * (level * x) * (level * (theta * (1.0 - q + q * x * x) - 0.5 * q * x * x * x))
    factor = (8.0 * TRUNCATION - 3.0 * depth) / (4.0 * (3.0 * TRUNCATION - depth))
    length = shape.excess + width * (depth * factor)
    # A tiny θ is multiplied by the longer of the two lengths first, which avoids underflow.
    product = (theta * np.maximum(length, width)) * np.minimum(length, width)
    far = INFLUENCE_BOUND * product + width * (width * _quartic_excess(shape))
    return np.where(_is_single(depth, shape), far, near)


def _quartic_excess(shape: _Shape) -> FloatArray:
    """Return ρ(γ/s) minus the linear function Bγ/s - 1/2 that continues ρ from beyond √2."""
    short = np.maximum(shape.short, 0.0)
    return short**3 * (4.0 * TRUNCATION - short) / 24.0


@_either_regime
def _inverse_double(a: FloatArray, shape: _Shape) -> FloatArray:
    """Invert Ψ in the double cube: with r = √a/γ and x = r√z, a cubic in z.

    It is concave and increasing up to the root, and the start is to the left of the root.
    """
    q, slope = shape.q, shape.slope
    r = np.sqrt(a) / shape.level
    linear = slope * (1.0 - q) + 6.0 * q * r * r
    square = 0.5 * q * (1.0 + 3.0 * q) * r * r
    cube = 0.5 * (q * r * r) ** 2
    z = 2.0 * (1.0 - q) / linear
    for _ in range(4):
        value = ((cube * z - square) * z + linear) * z - 2.0 * (1.0 - q)
        z = z - value / ((3.0 * cube * z - 2.0 * square) * z + linear)
    x = r * np.sqrt(z)
    return x * (slope - q * x * x) / (1.0 - q - 3.0 * q * x * x)


@_either_regime
def _inverse_single(a: FloatArray, shape: _Shape) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Invert Ψ in the single cube, a quartic in the depth h; also return where it applies.

    With k(h) = B - ψ(√2 - h) = h²(3√2 - h)/6, θ = k/(2B - k) and the quartic, in units of s and
    with e = √2 - γ/s, is (a - Be)k(h) + Bh³(8√2 - 3h)/24 - 2aB, where `_quartic_excess` is
    subtracted from a. It is written in y = h/r, divided by r² = 2aB. It is convex and increasing
    from the root to √2, and the start is to the right of the root: a bound from each of the first
    two terms alone.
    """
    level, width = shape.level, shape.width
    value = (a / width - width * _quartic_excess(shape)) / level
    square = INFLUENCE_BOUND * (shape.excess / level) + value
    cube = INFLUENCE_BOUND * (width / level)
    r = np.sqrt(2.0 * INFLUENCE_BOUND * value)

    def quartic(y: FloatArray) -> FloatArray:
        third = cube * r * y * (8.0 * TRUNCATION - 3.0 * r * y) / 24.0
        return y * y * (square * (3.0 * TRUNCATION - r * y) / 6.0 + third) - 1.0

    least = 2.0 * np.maximum(shape.short, 0.0)
    single = (least == 0) | ((least <= TRUNCATION) & (quartic(least / r) <= 0))
    y = np.fmin(np.sqrt(3.0 / (TRUNCATION * square)), TRUNCATION / r)
    y = np.fmin(np.cbrt(18.0 / (TRUNCATION * cube * r)), y)
    for _ in range(7):
        y = y - quartic(y) / ((square + cube * r * y) * y * (TRUNCATION - 0.5 * r * y))
    k = (r * y) ** 2 * (3.0 * TRUNCATION - r * y) / 6.0
    return k / (2.0 * INFLUENCE_BOUND - k), single
