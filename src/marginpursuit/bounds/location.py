r"""Bounds for Catoni's location estimate: its error, its bias, and its stability."""

import math
from dataclasses import dataclass

from marginpursuit._validation import count, scalar
from marginpursuit.bounds._parts import (
    Parts,
    failure_probability,
    given,
    nonnegative_number,
    positive_number,
)
from marginpursuit.bounds.constants import DataConstants
from marginpursuit.location import confidence_scale
from marginpursuit.losses import INFLUENCE_BOUND, TRUNCATION, influence, influence_inverse

__all__ = [
    "LocationBiasBound",
    "LocationBound",
    "LocationStabilityBound",
    "location_bias_bound",
    "location_bound",
    "location_stability_bound",
]


@dataclass(frozen=True, repr=False, slots=True)
class LocationBound(Parts):
    """The terms of the bound on the error of a location estimate; see `location_bound`.

    Attributes
    ----------
    confidence : float
        The probability 1 - δ with which the bound holds.
    scale : float
        The scale s of the estimate.
    bias : float
        2Cv/s.
    deviation : float
        2s log(2/δ)/n.
    linear : float
        The sum of these two, the paper's bound; proved only if `radius` is finite.
    radius : float
        The sharper bound on the distance between estimate and mean, at most `linear`; infinite
        if n or s is too small.

    Examples
    --------
    >>> from marginpursuit.bounds import location_bound
    >>> bound = location_bound(3.0, 1000, 0.01)
    >>> bound.radius < bound.linear == bound.bias + bound.deviation
    True
    """

    confidence: float
    scale: float
    bias: float
    deviation: float
    linear: float
    radius: float


def location_bound(
    variance: float | None = None,
    n: int | None = None,
    delta: float = 0.05,
    *,
    scale: float | None = None,
    constant: float = 0.5,
    constants: DataConstants | None = None,
) -> LocationBound:
    r"""Bound the distance between Catoni's estimate from n draws and the mean of the distribution.

    For a draw x with mean μ and variance at most v, the envelope ψ(u) ≤ log(1 + u + u²/2) bounds
    the sum of the ψ((xᵢ - θ)/s) at θ = μ + r: with probability 1 - δ/2 it is below

    .. math:: n \left( -\frac rs + \frac{v + r^2}{2s^2} \right) + L, \qquad L = \log(2/\delta).

    The smallest root r bounds the estimate from above and, by symmetry, from below:

    .. math:: r = s\,(1 - \sqrt{1 - q}), \qquad q = \frac{v}{s^2} + \frac{2L}{n} \le 1.

    The paper's v/s + 2sL/n is sq, between r and 2r, and like r needs q ≤ 1, a condition missing in
    the paper (E3). At the scale s² = nv/(2L), which minimises sq, it is 2√(2vL/n), not the
    √(2vL/n) of the paper's lemma; r is √(2vL/n) up to a factor 1 + O(L/n), and needs n ≥ 4L.

    The proof is for any influence function between -log(1 - u + Cu²) and log(1 + u + Cu²). With a
    general C, which is at least 1/2 wherever ψ(u) = u + o(u²), the quadratic has C(v + r²)/s², so
    that r = (s/(2C))(1 - √(1 - q)) with q = 4C²v/s² + 4CL/n ≤ 1, the paper's bound is
    2Cv/s + 2sL/n, and s² = nCv/L minimises it.

    Parameters
    ----------
    variance : float
        v > 0, an upper bound on the variance of the distribution.
    n : int
        Number of draws.
    delta : float, default=0.05
        δ in (0, 1).
    scale : float, optional
        The scale s > 0; by default √(nCv/L), which minimises the paper's bound, for C = 1/2
        :func:`~marginpursuit.location.confidence_scale`.
    constant : float, default=0.5
        C, at least 1/2. Both influence functions of this library have 1/2.
    constants : DataConstants, optional
        Constants of a data set, for the arguments that are not given: the variance of the margins.

    Returns
    -------
    LocationBound
        The bound and its terms.

    Examples
    --------
    >>> from marginpursuit.bounds import location_bound
    >>> location_bound(3.0, 1000, 0.01)
    LocationBound
      confidence  0.99
      scale       16.8258
      bias        0.178297
      deviation   0.178297
      linear      0.356594
      radius      0.179252
    """
    v = positive_number("variance", given("variance", variance, constants))
    n = count("n", given("n", n, constants))
    delta = failure_probability(delta)
    c = positive_number("constant", constant)
    if c < 0.5:  # the second-order terms of ψ(u) ≤ log(1 + u + Cu²) at 0
        raise ValueError(f"constant must be at least 0.5, for every influence function; got {c:g}")
    if scale is None:
        s = math.sqrt(2.0 * c) * float(confidence_scale(v, n, delta))
    else:
        s = positive_number("scale", scale)
    bias, deviation = 2.0 * c * v / s, 2.0 * s * math.log(2.0 / delta) / n
    linear = bias + deviation
    q = 2.0 * c * linear / s
    return LocationBound(
        confidence=1.0 - delta,
        scale=s,
        bias=bias,
        deviation=deviation,
        linear=linear,
        radius=linear / (1.0 + math.sqrt(1.0 - q)) if q <= 1.0 else math.inf,
    )


@dataclass(frozen=True, repr=False, slots=True)
class LocationBiasBound(Parts):
    r"""The terms of the bound on the bias; see `location_bias_bound`.

    Attributes
    ----------
    bound : float
        The bound on the distance between estimate and mean: the smaller of the next two.
    spread : float
        The standard deviation.
    cubic : float
        The bound of order E|x - mean|³/(6s²); infinite if the scale is too small.
    expansion : float or None
        -m₃/(6s²), the first term of estimate - mean; None without the third and fourth moments.
    remainder : float or None
        A bound on \|estimate - mean - expansion\|, of order 1/s³.

    Examples
    --------
    >>> from marginpursuit.bounds import location_bias_bound
    >>> bound = location_bias_bound(10.0, variance=1.0, absolute_third=2.415)
    >>> bound.bound == min(bound.spread, bound.cubic), bound.expansion is None
    (True, True)
    """

    bound: float
    spread: float
    cubic: float
    expansion: float | None
    remainder: float | None


def location_bias_bound(
    scale: float | None = None,
    *,
    variance: float | None = None,
    absolute_third: float | None = None,
    third: float | None = None,
    fourth: float | None = None,
    constants: DataConstants | None = None,
) -> LocationBiasBound:
    r"""Bound the distance between Catoni's estimate and the mean by central moments.

    This makes the paper's :math:`c/s^2` explicit. It holds for every distribution, including that
    of a sample, and at every scale. Let θ be the estimate, μ the mean, D = θ - μ, v the variance,
    and F(t) = Eψ((t - x)/s), which vanishes at θ.

    *Cubic.* \|ψ(u) - u\| ≤ \|u\|³/6 gives s\|F(μ)\| ≤ E\|x - μ\|³/(6s²), and ψ'(u) ≥ 1 - u²/2 gives
    sF'(t) ≥ 1 - (v + (t - μ)²)/(2s²). So \|D\| is at most the smallest root of
    3pD - D³ = E\|x - μ\|³ with p = 2s² - v,

    .. math:: 2\sqrt p\, \sin\left(\tfrac13 \arcsin \frac{E|x - \mu|^3}{2p^{3/2}}\right)
              = \frac{E|x - \mu|^3}{6s^2} (1 + O(s^{-2})),

    if p > 0 and the root exists, that is, E\|x - μ\|³ ≤ 2p^{3/2}.

    *Spread.* \|D\| ≤ √v at every scale. Since ψ(u) = ∫ clip(u, -k, k) k dk over k in (0, √2), it is
    enough that E clip(u, -k, k) > 0 for every k > 0 and every u of mean 1 and variance at most 1.
    Below the clip lies a parabola of positive expectation: k - 2k(u - 2)²/(2 + k)² if k ≤ 2/3,
    k - (u - 2)²/(8 - 4k) if 2/3 ≤ k ≤ 3/2, and u - (u - 1)²/(4k - 4) if k ≥ 3/2.

    *Remainder.* \|ψ(u) - u + u³/6\| ≤ Cu⁴ with C = 0.03064, the largest (√2/12)(k - 1)²(k + 2)/k⁴
    (at k = (√33 - 1)/2, u = √2 k). Hence

    .. math:: \left|D + \frac{m_3}{6s^2}\right| \le \frac{|D| v}{2s^2} + \frac{|D|^3}{6s^2}
              + \frac{C}{s^3} (D^4 + 6D^2 v + 4|D m_3| + m_4).

    Parameters
    ----------
    scale : float
        The scale s > 0 of the estimate.
    variance : float
        v, the variance (for a sample, with divisor n).
    absolute_third : float
        E|x - μ|³, or more.
    third, fourth : float, optional
        m₃ = E(x - μ)³ and m₄ = E(x - μ)⁴; both or neither.
    constants : DataConstants, optional
        Constants of a data set, for the arguments that are not given: the moments of the margins.

    Returns
    -------
    LocationBiasBound
        The bound and its terms.

    Examples
    --------
    >>> from marginpursuit.bounds import location_bias_bound
    >>> location_bias_bound(10.0, variance=1.0, absolute_third=2.415, third=2.0, fourth=9.0)
    LocationBiasBound
      bound      0.00404523
      spread     1
      cubic      0.00404523
      expansion  -0.00333333
      remainder  0.000296965
    """
    s = positive_number("scale", given("scale", scale, constants))
    variance = given("variance", variance, constants)
    absolute_third = given("absolute_third", absolute_third, constants)
    if constants is not None and third is None and fourth is None:
        third, fourth = constants.third, constants.fourth
    spread = math.sqrt(nonnegative_number("variance", variance))
    third_root = math.cbrt(nonnegative_number("absolute_third", absolute_third))
    _ordered("variance", spread, "absolute_third", third_root)
    # In units of the scale: an intermediate value overflows only if the result does.
    v, size = (spread / s) * (spread / s), (third_root / s) * (third_root / s) * (third_root / s)
    p = 2.0 - v
    top = 2.0 * p * math.sqrt(max(p, 0.0))
    cubic = math.inf
    if p > 0.0 and size <= top:
        cubic = s * math.sqrt(0.5 * p) * float(influence_inverse(INFLUENCE_BOUND * (size / top)))
    bound = min(spread, cubic)

    expansion = remainder = None
    if (third is None) != (fourth is None):
        raise ValueError("third and fourth must be given both or neither; got only one of them")
    if third is not None and fourth is not None:
        skew_root = math.cbrt(scalar("third", third))
        fourth_root = math.sqrt(math.sqrt(nonnegative_number("fourth", fourth)))
        _ordered("third", abs(skew_root), "absolute_third", third_root)
        _ordered("absolute_third", third_root, "fourth", fourth_root)
        skew, tail, b = skew_root / s, fourth_root / s, bound / s
        m_3, m_4, b_2 = skew * skew * skew, tail * tail * tail * tail, b * b
        expansion = -s * m_3 / 6.0
        quartic = b_2 * b_2 + 6.0 * b_2 * v + 4.0 * b * abs(m_3) + m_4
        remainder = s * (b * v / 2.0 + b * b_2 / 6.0 + _quartic_constant() * quartic)
    return LocationBiasBound(bound, spread, cubic, expansion, remainder)


@dataclass(frozen=True, repr=False, slots=True)
class LocationStabilityBound(Parts):
    """The terms of the stability bound; see `location_stability_bound`.

    Attributes
    ----------
    n_inside : int
        The number m of values within s√2/2 of the estimate, before the change.
    n_changed : int
        The number k of values that change.
    bound : float
        The bound on the shift of the estimate; infinite if m < 6.4 k.
    proof : float
        s√(2k/m), the result of the paper's proof (k = 1); valid if not below `bound`.
    statement : float
        s√(k/n), the statement of the paper (k = 1); valid if not below `bound`.

    Examples
    --------
    >>> from marginpursuit.bounds import location_stability_bound
    >>> bound = location_stability_bound(100, 1.0)
    >>> bound.bound < bound.statement < bound.proof
    True
    """

    n_inside: int
    n_changed: int
    bound: float
    proof: float
    statement: float


def location_stability_bound(
    n: int | None = None,
    scale: float | None = None,
    *,
    n_inside: int | None = None,
    n_changed: int = 1,
    constants: DataConstants | None = None,
) -> LocationStabilityBound:
    r"""Bound the shift of Catoni's estimate when k of n values are replaced arbitrarily.

    Let θ be the estimate, m the number of values within s√2/2 of it, and a = ψ(√2/2) = 11√2/24. A
    replaced value changes the sum of the ψ((θ - xᵢ)/s) by at most 2B, or B + a if it was one of the
    m. A shift of sh changes the term of each of the m values that stay by at least ψ(√2/2 + h) - a,
    as ψ' is largest at 0. With j of the replaced values among the m, a shift of sh suffices if

    .. math:: (m - j)\,(\psi(\sqrt2/2 + h) - a) \ge 2Bk - j\,(B - a),

    and j = 0 is the worst case whenever there is a solution, since then 2Bk ≤ m(B - a):

    .. math:: h = \psi^{-1}\left(a + \frac{2Bk}{m}\right) - \frac{\sqrt2}{2}, \qquad m \ge 6.4\,k.

    This replaces the paper's proposition. Its proof gives s√(2/m) (E7), with a slope that lacks a
    factor (E8) and a condition m ≥ 24 that the printed slope does not meet (E9), and ignores that
    one of the m values may be the one replaced (E10); h is below √(2k/m) from m = 7k on. The
    statement, s/√n for m ≥ n/2, is true for n ≥ 31.

    Parameters
    ----------
    n : int
        Number of values.
    scale : float
        The scale s > 0.
    n_inside : int, optional
        m, at most n; by default n/2, rounded up.
    n_changed : int, default=1
        k, at most n.
    constants : DataConstants, optional
        Constants of a data set, for the arguments that are not given.

    Returns
    -------
    LocationStabilityBound
        The bound and its terms.

    Examples
    --------
    >>> from marginpursuit.bounds import location_stability_bound
    >>> location_stability_bound(100, 1.0)
    LocationStabilityBound
      n_inside   50
      n_changed  1
      bound      0.0515672
      proof      0.2
      statement  0.1
    """
    n = count("n", given("n", n, constants))
    s = positive_number("scale", given("scale", scale, constants))
    inside = count("n_inside", -(-n // 2) if n_inside is None else n_inside, least=0)
    changed = count("n_changed", n_changed, least=0)
    for name, number in (("n_inside", inside), ("n_changed", changed)):
        if number > n:
            raise ValueError(f"{name} must be at most n = {n}; got {number}")
    ratio = changed / inside if inside else math.inf
    edge = TRUNCATION / 2.0
    shift = math.inf
    if changed == 0:
        shift = ratio = 0.0
    elif 32 * changed <= 5 * inside:  # 2B k/m ≤ B - ψ(√2/2), exactly
        need = 2.0 * INFLUENCE_BOUND * ratio
        level = min(float(influence(edge)) + need, INFLUENCE_BOUND)
        shift = float(influence_inverse(level)) - edge
        # ψ(√2/2 + h) - ψ(√2/2) = 3h/4 - √2h²/4 - h³/6: one fixed-point step removes the
        # cancellation error of the difference above for small h.
        shift = (need + shift * shift * (edge / 2.0 + shift / 6.0)) / 0.75
    return LocationStabilityBound(
        n_inside=inside,
        n_changed=changed,
        bound=s * shift,
        proof=s * math.sqrt(2.0 * ratio),
        statement=s * math.sqrt(changed / n),
    )


def _quartic_constant() -> float:
    """Return max (u³/6 - u + B)/u⁴ over u ≥ √2, which is attained at u = √2 (√33 - 1)/2.

    With u = √2 k the ratio is (√2/12)(k - 1)²(k + 2)/k⁴.
    """
    k = (math.sqrt(33.0) - 1.0) / 2.0
    return TRUNCATION / 12.0 * (k - 1.0) ** 2 * (k + 2.0) / k**4


def _ordered(name: str, low: float, other: str, high: float) -> None:
    """Check that (E|x - μ|ᵖ)^(1/p) increases with p (Lyapunov's inequality)."""
    if low > high * (1.0 + 1e-9):  # rounding of computed moments
        raise ValueError(
            f"{name} is too large for {other}: no distribution has these central moments"
        )
