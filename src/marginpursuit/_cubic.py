r"""Real roots of cubic polynomials, for any finite coefficients.

The appendix of the paper finds the roots of :math:`a x^3 + b x^2 + c x + d` by Cardano's and
Viète's formulae (`getroot`). In floating point these cancel, overflow and evaluate the arccosine of
1 + ε. The roots are therefore computed in another way (after Kahan, "To solve a real cubic
equation"):

1. The variable is scaled by a power of two, which is exact, so that |a| ≈ |d|. Two sign changes
   make a > 0 > d. Let ξ = ∛(-d/a). A root is at least ξ, or else one of the reversed
   polynomial (x → 1/x) is at least its own ξ.
2. That root is the largest real one, beyond which the cubic is convex: Newton's method from a
   point to the right descends to it monotonically.
3. Deflation from the constant term upwards, which is stable for a root that is at least ξ, leaves
   a quadratic with roots of one sign.

If one root is more than 10⁴⁵ times larger or smaller than the others, it is separated first: it is
-b/a or -d/c to the last bit.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from marginpursuit._validation import Elementwise, FloatArray, between, like

__all__ = ["CubicRoots", "cubic_roots"]

# A pair of roots is double if the polynomial at the midpoint of the pair is at most this fraction
# of the sum of the sizes of its terms: rounding of the coefficients changes it by as much.
_DOUBLE_ROOT_TOLERANCE = 8.0 * float(np.finfo(np.float64).eps)


@dataclass(frozen=True, slots=True, eq=False)
class CubicRoots:
    """The real roots of cubic polynomials.

    Attributes
    ----------
    roots : ndarray of shape (..., 3)
        The real roots in ascending order, each as often as its multiplicity, then NaN.
    count : ndarray of int of shape (...), or a scalar
        The number of real roots, with multiplicity; -1 where all coefficients are zero, so that
        every number is a root.

    Examples
    --------
    >>> from marginpursuit.calibration import cubic_roots
    >>> found = cubic_roots(1.0, 0.0, 0.0, -8.0)
    >>> found.roots, int(found.count)
    (array([ 2., nan, nan]), 1)
    """

    roots: FloatArray
    count: Elementwise


def cubic_roots(a: ArrayLike, b: ArrayLike, c: ArrayLike, d: ArrayLike) -> CubicRoots:
    r"""Find the real roots of :math:`a x^3 + b x^2 + c x + d`.

    If a = 0 they are the roots of the quadratic, if also b = 0 of the linear equation; a non-zero
    constant has none. A root that overflows is ±inf, one that underflows is 0.

    Each root is backward stable: it is that of a polynomial whose coefficients differ from the
    given ones by a few units in the last place. Well-separated roots are therefore accurate,
    at every magnitude; two or three roots that such a change can make equal, or complex, are
    returned as a double root or as real roots close to each other.

    Parameters
    ----------
    a, b, c, d : array_like
        The coefficients, from the highest power down, any finite numbers; they are broadcast.

    Returns
    -------
    CubicRoots
        The roots, padded with NaN to three, and how many there are.

    Examples
    --------
    >>> from marginpursuit.calibration import cubic_roots
    >>> found = cubic_roots(1.0, -6.0, 11.0, -6.0)
    >>> found.roots, found.count
    (array([1., 2., 3.]), np.int64(3))
    >>> cubic_roots([1.0, 0.0], [0.0, 1.0], [0.0, -1.0], [-8.0, -6.0]).roots
    array([[ 2., nan, nan],
           [-2.,  3., nan]])
    """
    named = zip("abcd", (a, b, c, d), strict=True)
    largest = float(np.finfo(np.float64).max)
    given = np.broadcast_arrays(*(between(name, x, -largest, largest) for name, x in named))
    terms = np.stack([x.ravel() for x in given])
    roots = np.full((terms.shape[1], 3), np.nan)
    outer, inner = _separable(terms)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        for where, solve in ((outer, _outer), (inner, _inner), (~(outer | inner), _connected)):
            if np.any(where):
                roots[where] = solve(*terms[:, where])
    roots += 0.0  # no negative zeros
    roots.sort(axis=1)  # NaN last
    count = np.where(np.any(terms != 0, axis=0), np.sum(~np.isnan(roots), axis=1), -1)
    shape = given[0].shape
    return CubicRoots(like(roots.reshape(*shape, 3), a, b, c, d), count.reshape(shape)[()])


def _separable(terms: FloatArray) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return where the outermost root can be split off as -b/a, and the innermost as -d/c.

    With B = b/(aξ) and C = c/(aξ²) the roots of t³ + Bt² + Ct ± 1 spread as far as B or C is large.
    """
    a, _, _, d = terms
    with np.errstate(divide="ignore", invalid="ignore"):
        la, lb, lc, ld = np.log2(np.abs(terms))
        big_b = lb - (2.0 * la + ld) / 3.0
        big_c = lc - (la + 2.0 * ld) / 3.0
    outer = (a == 0) | ((d != 0) & (big_b > 150.0) & (big_b >= big_c))
    inner = (a != 0) & ((d == 0) | ((big_c > 150.0) & (big_c > big_b)))
    return outer, inner


def _outer(a: FloatArray, b: FloatArray, c: FloatArray, d: FloatArray) -> FloatArray:
    far = np.where(a != 0, -b / a, np.nan)  # no third root where a = 0
    return np.column_stack([_quadratic(b, c, d), far])


def _inner(a: FloatArray, b: FloatArray, c: FloatArray, d: FloatArray) -> FloatArray:
    close = np.where(d != 0, -d / c, 0.0)
    return np.column_stack([_quadratic(a, b, c), close])


def _quadratic(a: FloatArray, b: FloatArray, c: FloatArray) -> FloatArray:
    """Find the real roots of a x² + b x + c, of any degree up to 2, with any coefficients."""
    la, lb, lc = np.log2(np.abs([a, b, c]))
    # Far apart, or of lower degree: each root is a quotient of neighbouring coefficients.
    split = (a == 0) | (c == 0) | (2.0 * lb - la - lc > 100.0)
    far = np.where(a != 0, -b / a, np.nan)
    close = np.where(b != 0, -c / b, np.where((a != 0) & (c == 0), 0.0, np.nan))
    power = np.rint(np.where(split, 0.0, 0.5 * (lc - la))).astype(np.int64)
    _, exponent = np.frexp(c)
    one = np.ldexp(a, 2 * power - exponent)
    two, three = np.ldexp(b, power - exponent), np.ldexp(c, -exponent)
    discriminant = two * two - 4.0 * one * three
    double = np.abs(discriminant) <= 4.0 * _DOUBLE_ROOT_TOLERANCE * (
        two * two + np.abs(one * three)
    )
    pair = _pair(one, two, three, np.where(double, 0.0, discriminant))
    pair = np.ldexp(pair, power[:, None])
    return np.where(split[:, None], np.column_stack([far, close]), pair)


def _pair(a: FloatArray, b: FloatArray, c: FloatArray, discriminant: FloatArray) -> FloatArray:
    """Find the real roots of a t² + b t + c, a double one where the discriminant is set to 0."""
    # The sum has no cancellation; the other root comes from the product of both, c/a.
    half = -0.5 * (b + np.copysign(np.sqrt(discriminant), b))
    first = half / a
    return np.column_stack([first, np.where(discriminant == 0, first, c / half)])


def _connected(a: FloatArray, b: FloatArray, c: FloatArray, d: FloatArray) -> FloatArray:
    """Find the real roots where a and d are not zero and the roots not too far apart."""
    # Scale: exact, and a and d become comparable.
    power = np.rint((np.log2(np.abs(d)) - np.log2(np.abs(a))) / 3.0).astype(np.int64)
    _, exponent = np.frexp(d)
    sign = np.sign(a)
    flip = -sign * np.sign(d)  # x → -x where a and d have the same sign
    one = sign * np.ldexp(a, 3 * power - exponent)
    two = flip * sign * np.ldexp(b, 2 * power - exponent)
    three = sign * np.ldexp(c, power - exponent)
    four = flip * sign * np.ldexp(d, -exponent)
    # Reverse where the cubic is positive at ξ: then its largest root need not exceed ξ.
    middle = np.cbrt(-four / one)
    turn = two * middle + three > 0
    one, two, three, four = (
        np.where(turn, x, y) for x, y in ((-four, one), (-three, two), (-two, three), (-one, four))
    )
    middle = np.where(turn, 1.0 / middle, middle)
    root = _largest(one, two, three, four, middle)
    constant = -four / root
    linear = (constant - three) / root
    # The cubic at the midpoint of the pair is the distance to the root times the discriminant/4a.
    # But a complex pair is near a double root only if the cubic has stationary points.
    discriminant = linear * linear - 4.0 * one * constant
    centre = -0.5 * linear / one
    value = 0.25 * discriminant / one * np.abs(centre - root)
    size = ((one * np.abs(centre) + np.abs(two)) * np.abs(centre) + np.abs(three)) * np.abs(centre)
    folds = two * two - 3.0 * one * three >= -4.0 * _DOUBLE_ROOT_TOLERANCE * two * two
    double = (np.abs(value) <= _DOUBLE_ROOT_TOLERANCE * (size - four)) & folds
    pair = _pair(one, linear, constant, np.where(double, 0.0, discriminant))
    found = np.column_stack([root, pair])
    found = np.where(turn[:, None], 1.0 / found, found)
    return flip[:, None] * np.ldexp(found, power[:, None])


def _largest(
    a: FloatArray, b: FloatArray, c: FloatArray, d: FloatArray, middle: FloatArray
) -> FloatArray:
    """Find the largest real root, where a > 0 > d and the cubic is not positive at `middle` = ξ."""
    # With d/t replaced by d/ξ in the cubic over t, the larger root of this quadratic is a bound.
    low = c + d / middle
    spread = np.sqrt(np.maximum(b * b - 4.0 * a * low, 0.0))
    start = np.where(b > 0, -2.0 * low / (b + spread), 0.5 * (spread - b) / a)
    root = np.maximum(start, middle)
    # At a triple root Newton's method has a third of the digits; the root is ξ.
    inflection = 3.0 * a * middle
    triple = (np.abs(b + inflection) <= _DOUBLE_ROOT_TOLERANCE * inflection) & (
        np.abs(c - inflection * middle) <= _DOUBLE_ROOT_TOLERANCE * inflection * middle
    )
    root[triple] = middle[triple]
    terms = np.stack([a, b, c, d, middle])
    active = np.flatnonzero(~triple)
    while active.size:
        one, two, three, four, least = terms[:, active]
        t = root[active]
        value = ((one * t + two) * t + three) * t + four
        t_next = np.maximum(t - value / ((3.0 * one * t + 2.0 * two) * t + three), least)
        descends = t_next < t  # false once rounding errors dominate
        active = active[descends]
        root[active] = t_next[descends]
    return root
