"""Catoni and Giulini's soft truncation ψ and its integral ρ; Catoni's widest influence function."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from marginpursuit._validation import Elementwise, FloatArray, between, like, real
from marginpursuit.losses.rhos import Rho, at_least, at_most

#: The point √2 beyond which ψ is constant.
TRUNCATION = float(np.sqrt(2.0))

#: B = ψ(√2) = 2√2/3, the largest value of ψ; rounded up, so that it bounds ψ.
INFLUENCE_BOUND = 2.0 * TRUNCATION / 3.0

# The rounding errors of the two constants: √2 = TRUNCATION + TRUNCATION_REST and likewise for B, to
# about 32 digits. Differences such as √2 - u keep full relative precision with them.
TRUNCATION_REST = -9.667293313452913e-17
INFLUENCE_BOUND_REST = -1.0145605624385797e-16


def _value(xp: Any, size: Any, scale: Any, weight: Any) -> Any:
    ratio = at_most(xp, size / scale, TRUNCATION)
    inner = (weight * size) * (0.5 * size * (1.0 - ratio * ratio / 12.0))
    slope = INFLUENCE_BOUND + INFLUENCE_BOUND_REST  # B to nearest; INFLUENCE_BOUND is rounded up
    outer = scale * (weight * (slope * size - 0.5 * scale))
    return xp.where(size < scale * TRUNCATION, inner, outer)


def _influence(xp: Any, size: Any, scale: Any) -> Any:
    ratio = at_most(xp, size / scale, TRUNCATION)
    # Beyond s√2 the first argument is 2|r|/3, which exceeds the second, sB.
    return at_most(xp, size * (1.0 - ratio * ratio / 6.0), scale * INFLUENCE_BOUND)


def _curvature(xp: Any, ratio: Any) -> Any:
    # 1 - u²/2 cancels near √2; there (√2 - u)(√2 + u)/2 with the split constant is exact.
    factored = 0.5 * ((TRUNCATION - ratio) + TRUNCATION_REST) * (TRUNCATION + ratio)
    return xp.where(ratio <= 1.0, 1.0 - 0.5 * ratio * ratio, at_least(xp, factored, 0.0))


def _inverse(xp: Any, c: Any) -> Any:
    c = at_most(xp, c, INFLUENCE_BOUND)
    # Near B the arcsine loses half the digits; there the angle comes from the gap B - c, which
    # the split constant gives exactly: arcsin(z)/3 = π/6 - α with α = (2/3) arcsin(√((1 - z)/2)).
    gap = at_least(xp, (INFLUENCE_BOUND - c) + INFLUENCE_BOUND_REST, 0.0)
    angle = (2 / 3) * xp.asin(xp.sqrt(0.5 * gap / INFLUENCE_BOUND))
    near = TRUNCATION * (xp.cos(angle) - 3.0**0.5 * xp.sin(angle))
    # Elsewhere u = c + u³/6 removes the rounding error of the angle, subnormals included.
    rough = 2.0 * TRUNCATION * xp.sin(xp.asin(c / INFLUENCE_BOUND) / 3)
    return xp.where(c > 0.9 * INFLUENCE_BOUND, near, c + rough**3 / 6)


def influence_by_parts(u: FloatArray) -> tuple[FloatArray, FloatArray]:
    r"""Return the rest of the influence and the curvature at each u, for sums that cancel.

    For \|u\| > 1, ψ(u) = sign(u) B + rest with the rest -sign(u) d²(√2/2 - d/6), where
    d = √2 - \|u\|; the curvature is d(√2 - d/2). For \|u\| ≤ 1 the rest is ψ(u) itself.
    """
    size = np.abs(u)
    gap = np.maximum(TRUNCATION - size, 0.0)
    outer = np.copysign(gap * gap * (0.5 * TRUNCATION - gap / 6.0), u)
    rest = np.where(size > 1.0, -outer, u * (1.0 - u * u / 6.0))
    return rest, gap * (TRUNCATION - 0.5 * gap)


#: u²/2 - u⁴/24 up to √2, then B|u| - 1/2: the ρ of the paper.
CATONI = Rho(
    name="catoni",
    kernel_code=0,
    influence_bound=INFLUENCE_BOUND,
    curvature_support=TRUNCATION,
    scaled_value=_value,
    scaled_influence=_influence,
    curvature_of_ratio=_curvature,
    inverse=_inverse,
)


def rho(u: ArrayLike) -> Elementwise:
    r"""Evaluate the loss :math:`\rho`: quadratic near zero, linear far out.

    Parameters
    ----------
    u : array_like
        Points, any real numbers including ±inf.

    Returns
    -------
    ndarray or scalar
        :math:`\rho(u) \ge 0`, of the shape and float type of `u`.

    Examples
    --------
    >>> from marginpursuit.losses import rho
    >>> rho(0.0), rho(1.0)
    (np.float64(0.0), np.float64(0.4583333333333333))
    >>> rho([-2.0, 2.0])
    array([1.38561808, 1.38561808])
    """
    return like(CATONI.value(real("u", u)), u)


def influence(u: ArrayLike) -> Elementwise:
    r"""Evaluate the soft truncation :math:`\psi = \rho'`.

    Parameters
    ----------
    u : array_like
        Points, any real numbers including ±inf.

    Returns
    -------
    ndarray or scalar
        :math:`\psi(u)`, in :math:`[-2\sqrt 2/3, 2\sqrt 2/3]`.

    Examples
    --------
    >>> from marginpursuit.losses import influence
    >>> influence([-10.0, 0.0, 1.0])
    array([-0.94280904,  0.        ,  0.83333333])
    """
    return like(CATONI.influence(real("u", u)), u)


def curvature(u: ArrayLike) -> Elementwise:
    r"""Evaluate :math:`\rho''(u) = (1 - u^2/2)_+`.

    Accurate to full relative precision up to :math:`\pm\sqrt 2`, where it vanishes.

    Parameters
    ----------
    u : array_like
        Points, any real numbers including ±inf.

    Returns
    -------
    ndarray or scalar
        :math:`\rho''(u)`, in [0, 1].

    Examples
    --------
    >>> from marginpursuit.losses import curvature
    >>> curvature([0.0, 1.0, 2.0])
    array([1. , 0.5, 0. ])
    """
    return like(CATONI.curvature(real("u", u)), u)


def influence_inverse(c: ArrayLike) -> Elementwise:
    r"""Invert the influence function: the u in :math:`[-\sqrt2, \sqrt2]` with ψ(u) = c.

    With :math:`u = 2\sqrt2\sin\theta` the cubic :math:`u - u^3/6` becomes
    :math:`B\sin 3\theta`, so the inverse is :math:`2\sqrt2\sin(\arcsin(c/B)/3)`, a closed form
    that makes the root finder of the paper's appendix unnecessary.

    Parameters
    ----------
    c : array_like
        Values of ψ, with :math:`|c| \le 2\sqrt 2/3`.

    Returns
    -------
    ndarray or scalar
        The points u.

    Examples
    --------
    >>> from marginpursuit.losses import influence_inverse
    >>> influence_inverse([-5 / 6, 0.0, 5 / 6])
    array([-1.,  0.,  1.])
    """
    values = real("c", c)
    # B rounded to the type of c may lie above B; that is still B.
    bound = float(np.result_type(np.asarray(c), np.float16).type(INFLUENCE_BOUND))
    return like(CATONI.influence_inverse(between("c", values, -bound, bound)), c)


def wide_influence(u: ArrayLike) -> Elementwise:
    r"""Evaluate Catoni's widest influence function, sign(u) log(1 + \|u\| + u²/2).

    It grows without bound, but as a logarithm; it is the upper end of the envelope in which every
    influence function of Catoni's theory lies, and the one of Brownlees, Joly and Lugosi (2015).

    Parameters
    ----------
    u : array_like
        Points, any real numbers including ±inf.

    Returns
    -------
    ndarray or scalar
        The influence, of the shape and float type of `u`.

    Examples
    --------
    >>> from marginpursuit.losses import wide_influence
    >>> wide_influence([-2.0, 0.0, 2.0])
    array([-1.60943791,  0.        ,  1.60943791])
    """
    points = real("u", u)
    size = np.abs(points)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        near = np.log1p(size * (1.0 + 0.5 * size))
        far = 2.0 * np.log(np.maximum(size, 1.0)) - np.log(2.0)  # where the square overflows
    return like(np.copysign(np.where(size < 1e18, near, far), points), u)


def wide_curvature(u: ArrayLike) -> Elementwise:
    r"""Evaluate the derivative of :func:`wide_influence`, (1 + \|u\|)/(1 + \|u\| + u²/2).

    Parameters
    ----------
    u : array_like
        Points, any real numbers including ±inf.

    Returns
    -------
    ndarray or scalar
        The derivative, in [0, 1]; it vanishes at infinity only.

    Examples
    --------
    >>> from marginpursuit.losses import wide_curvature
    >>> wide_curvature([0.0, 2.0])
    array([1. , 0.6])
    """
    size = np.abs(real("u", u))
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        ratio = size * (0.5 * size / (1.0 + size))
    return like(1.0 / (1.0 + np.where(size < np.inf, ratio, np.inf)), u)
