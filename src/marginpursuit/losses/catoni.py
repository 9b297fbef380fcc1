"""Catoni and Giulini's soft truncation ψ and its integral ρ; Catoni's widest influence function."""

import numpy as np
from numpy.typing import ArrayLike

from marginpursuit._validation import Elementwise, between, like, real
from marginpursuit.losses.rhos import CATONI, INFLUENCE_BOUND


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
