r"""The loss of margin pursuit and its pieces, and the losses it is compared with.

Everything in the library that depends on the shape of the loss is defined here, once.

The core is Catoni and Giulini's soft truncation :math:`\psi` and its integral :math:`\rho`
(Holland 2018, equations for the influence function and the new loss):

.. math::

    \rho(u) = \begin{cases} u^2/2 - u^4/24 & |u| \le \sqrt 2 \\
                            B |u| - 1/2    & |u| > \sqrt 2 \end{cases}
    \qquad
    \psi(u) = \rho'(u) = \begin{cases} u - u^3/6 & |u| \le \sqrt 2 \\
                                       B\,\mathrm{sign}(u) & |u| > \sqrt 2 \end{cases}
    \qquad
    \rho''(u) = (1 - u^2/2)_+

with :math:`B = \psi(\sqrt 2) = 2\sqrt 2/3`.

Sign convention, used everywhere: a *score* is h(x); a *margin* is m = y h(x) with y in {-1, +1};
the *residual* of a margin is r = level - m, positive where the margin falls short of the level.

Invariants that the tests hold: :math:`\rho` is even, convex and C²; :math:`\psi` is odd,
non-decreasing and 1-Lipschitz, and lies between -log(1 - u + u²/2) and log(1 + u + u²/2);
:math:`\rho''` is in [0, 1].
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from marginpursuit._validation import Elementwise, FloatArray, between, like, positive, real, scalar

__all__ = [
    "INFLUENCE_BOUND",
    "TRUNCATION",
    "HingeLoss",
    "LogisticLoss",
    "Loss",
    "MarginLoss",
    "ProjectionLoss",
    "curvature",
    "influence",
    "influence_inverse",
    "rho",
    "wide_curvature",
    "wide_influence",
]

#: The point √2 beyond which ψ is constant.
TRUNCATION = float(np.sqrt(2.0))

#: B = ψ(√2) = 2√2/3, the largest value of ψ; rounded up, so that it bounds ψ.
INFLUENCE_BOUND = 2.0 * TRUNCATION / 3.0

# What the two constants above lack to be exact: √2 = TRUNCATION + _TRUNCATION_REST and likewise
# for B, to about 32 digits. Differences such as √2 - u keep full relative precision with them.
_TRUNCATION_REST = -9.667293313452913e-17
_INFLUENCE_BOUND_REST = -1.0145605624385797e-16


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
    return like(_scaled_rho(real("u", u)), u)


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
    return like(_scaled_influence(real("u", u)), u)


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
    return like(_scaled_curvature(real("u", u)), u)


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
    return like(_influence_inverse(between("c", values, -bound, bound)), c)


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
        share = size * (0.5 * size / (1.0 + size))
    return like(1.0 / (1.0 + np.where(size < np.inf, share, np.inf)), u)


class Loss(Protocol):
    """What the solvers ask of a loss of the margin: its value and its derivative."""

    def value(self, margin: ArrayLike) -> Elementwise:
        """Evaluate the loss at each margin."""

    def derivative(self, margin: ArrayLike) -> Elementwise:
        """Evaluate the derivative of the loss at each margin."""


@dataclass(frozen=True, slots=True)
class MarginLoss:
    r"""The family of losses of a margin m around a level γ.

    With residual r = γ - m, scale s and overconfidence weight τ,

    .. math::

        \varphi(m) = s^2 \rho(r/s) \;\; (m \le \gamma), \qquad
        \varphi(m) = \tau\, s^2 \rho(r/s) \;\; (m > \gamma).

    τ = 1 is the loss of the paper, which penalises a margin above the level as much as one below;
    τ = 0 is a smooth, one-sided, Huber-like hinge. All are convex and C¹, with slope bounded by
    s·2√2/3 and curvature in [0, 1], and classification-calibrated.

    Parameters
    ----------
    margin : float, default=1.0
        The level γ > 0 at which margins are to concentrate.
    scale : float, default=1.0
        The scale s > 0: residuals beyond s√2 are treated as outliers.
    overconfidence : float, default=1.0
        The weight τ in [0, 1] of margins above the level.

    Examples
    --------
    >>> from marginpursuit.losses import MarginLoss
    >>> MarginLoss(margin=1.0, scale=2.0).value([-1.0, 1.0, 3.0])
    array([1.83333333, 0.        , 1.83333333])
    >>> MarginLoss(margin=1.0, scale=2.0, overconfidence=0.0).value([-1.0, 1.0, 3.0])
    array([1.83333333, 0.        , 0.        ])
    """

    margin: float = 1.0
    scale: float = 1.0
    overconfidence: float = 1.0

    def __post_init__(self) -> None:
        checked = {
            "margin": positive("margin", self.margin),
            "scale": positive("scale", self.scale),
            "overconfidence": between("overconfidence", self.overconfidence, 0.0, 1.0),
        }
        for name, number in checked.items():
            object.__setattr__(self, name, scalar(name, number))

    def value(self, margin: ArrayLike) -> Elementwise:
        """Evaluate φ at each margin.

        Parameters
        ----------
        margin : array_like
            Margins y h(x), any real numbers including ±inf.

        Returns
        -------
        ndarray or scalar
            φ(m) ≥ 0.

        Examples
        --------
        >>> from marginpursuit.losses import MarginLoss
        >>> MarginLoss(overconfidence=0.5).value([0.0, 1.0, 2.0])
        array([0.45833333, 0.        , 0.22916667])
        """
        residual, weight = self._residual_and_weight(margin)
        charged = np.where(weight > 0, residual, 0.0)  # not 0 · inf
        return like(_scaled_rho(charged, self.scale, weight), margin)

    def derivative(self, margin: ArrayLike) -> Elementwise:
        """Evaluate φ' at each margin: the derivative in the margin, negative below the level.

        Parameters
        ----------
        margin : array_like
            Margins y h(x), any real numbers including ±inf.

        Returns
        -------
        ndarray or scalar
            φ'(m) = -s ψ((γ - m)/s), times the overconfidence weight above the level.

        Examples
        --------
        >>> from marginpursuit.losses import MarginLoss
        >>> MarginLoss(overconfidence=0.5).derivative([-9.0, 0.0, 2.0])
        array([-0.94280904, -0.83333333,  0.41666667])
        """
        residual, weight = self._residual_and_weight(margin)
        return like(-_scaled_influence(residual, self.scale, weight), margin)

    def curvature(self, margin: ArrayLike) -> Elementwise:
        """Evaluate φ'' at each margin, in [0, 1]; at the level itself, the value from below.

        Parameters
        ----------
        margin : array_like
            Margins y h(x), any real numbers including ±inf.

        Returns
        -------
        ndarray or scalar
            φ''(m) = ρ''((γ - m)/s), times the overconfidence weight above the level.

        Examples
        --------
        >>> from marginpursuit.losses import MarginLoss
        >>> MarginLoss(overconfidence=0.5).curvature([-9.0, 0.0, 1.0, 2.0])
        array([0.  , 0.5 , 1.  , 0.25])
        """
        residual, weight = self._residual_and_weight(margin)
        return like(_scaled_curvature(residual, self.scale, weight), margin)

    def _residual_and_weight(self, margin: ArrayLike) -> tuple[FloatArray, FloatArray]:
        with np.errstate(over="ignore"):  # a residual beyond the largest float counts as infinite
            residual = self.margin - real("margin", margin)
        return residual, np.where(residual < 0, self.overconfidence, 1.0)


@dataclass(frozen=True, slots=True)
class HingeLoss:
    r"""The hinge :math:`(\gamma - m)_+`, the loss of the support vector machine and of Pegasos.

    Parameters
    ----------
    margin : float, default=1.0
        The level γ > 0 up to which a margin is charged.

    Examples
    --------
    >>> from marginpursuit.losses import HingeLoss
    >>> HingeLoss().value([-1.0, 1.0, 3.0])
    array([2., 0., 0.])
    """

    margin: float = 1.0

    def __post_init__(self) -> None:
        margin = scalar("margin", positive("margin", self.margin))
        object.__setattr__(self, "margin", margin)

    def value(self, margin: ArrayLike) -> Elementwise:
        """Evaluate the hinge at each margin.

        Parameters
        ----------
        margin : array_like
            Margins y h(x), any real numbers including ±inf.

        Returns
        -------
        ndarray or scalar
            (γ - m)₊ ≥ 0.

        Examples
        --------
        >>> from marginpursuit.losses import HingeLoss
        >>> HingeLoss(margin=2.0).value([0.0, 1.0, 2.0])
        array([2., 1., 0.])
        """
        return like(np.maximum(self.margin - real("margin", margin), 0.0), margin)

    def derivative(self, margin: ArrayLike) -> Elementwise:
        """Evaluate the derivative in the margin; at the level itself, the value from above, 0.

        Parameters
        ----------
        margin : array_like
            Margins y h(x), any real numbers including ±inf.

        Returns
        -------
        ndarray or scalar
            -1 below the level, 0 from it on.

        Examples
        --------
        >>> from marginpursuit.losses import HingeLoss
        >>> HingeLoss().derivative([-9.0, 1.0, 2.0])
        array([-1.,  0.,  0.])
        """
        return like(np.where(real("margin", margin) < self.margin, -1.0, 0.0), margin)


@dataclass(frozen=True, slots=True)
class LogisticLoss:
    r"""The logistic loss :math:`\log(1 + e^{-m})`.

    Examples
    --------
    >>> from marginpursuit.losses import LogisticLoss
    >>> LogisticLoss().value([-50.0, 0.0, 50.0])
    array([5.00000000e+01, 6.93147181e-01, 1.92874985e-22])
    >>> LogisticLoss().derivative(0.0), LogisticLoss().curvature(0.0)
    (np.float64(-0.5), np.float64(0.25))
    """

    def value(self, margin: ArrayLike) -> Elementwise:
        """Evaluate the loss at each margin."""
        return like(np.logaddexp(0.0, -real("margin", margin)), margin)

    def derivative(self, margin: ArrayLike) -> Elementwise:
        """Evaluate the derivative at each margin, in [-1, 0]."""
        return like(-expit(-real("margin", margin)), margin)

    def curvature(self, margin: ArrayLike) -> Elementwise:
        """Evaluate the second derivative at each margin, in [0, 1/4]."""
        margins = real("margin", margin)
        with np.errstate(under="ignore"):
            return like(expit(margins) * expit(-margins), margin)


@dataclass(frozen=True, slots=True)
class ProjectionLoss:
    r"""The loss of Garg and Roth's margin distribution optimisation (2003).

    .. math:: e^{-\alpha m^2} \;\; (m \ge 0), \qquad e^{-\beta m} \;\; (m < 0)

    For a margin m of unit vectors, the first stands for the probability that a random projection
    flips the sign of a score that is right (:func:`~marginpursuit.bounds.projection_profile`). The
    loss is continuous, with a corner at 0 where the slope is -β from below and 0 from above, and it
    is not convex: its curvature is negative where 0 < m < 1/√(2α).

    Parameters
    ----------
    alpha : float, default=1.0
        The rate α > 0 for margins that are right.
    beta : float, default=1.0
        The rate β > 0 for margins that are wrong.

    Examples
    --------
    >>> from marginpursuit.losses import ProjectionLoss
    >>> ProjectionLoss(alpha=2.0).value([-1.0, 0.0, 1.0])
    array([2.71828183, 1.        , 0.13533528])
    """

    alpha: float = 1.0
    beta: float = 1.0

    def __post_init__(self) -> None:
        for name in ("alpha", "beta"):
            number = positive(name, getattr(self, name))
            object.__setattr__(self, name, scalar(name, number))

    @np.errstate(over="ignore", under="ignore")
    def value(self, margin: ArrayLike) -> Elementwise:
        """Evaluate the loss at each margin."""
        right, wrong = self._sides(margin)
        return like(np.exp(-self.alpha * right * right - self.beta * wrong), margin)

    @np.errstate(over="ignore", under="ignore")
    def derivative(self, margin: ArrayLike) -> Elementwise:
        """Evaluate the derivative at each margin; at the corner, the one from above, 0."""
        right, wrong = self._sides(margin)
        reach = np.minimum(right, self._furthest)  # not inf · 0
        above = -2.0 * self.alpha * reach * np.exp(-self.alpha * reach * reach)
        return like(np.where(wrong < 0, -self.beta * np.exp(-self.beta * wrong), above), margin)

    @np.errstate(over="ignore", under="ignore")
    def curvature(self, margin: ArrayLike) -> Elementwise:
        """Evaluate the second derivative at each margin; at the corner, the one from above, -2α."""
        right, wrong = self._sides(margin)
        reach = np.minimum(right, self._furthest)
        square = self.alpha * reach * reach
        above = 2.0 * self.alpha * (2.0 * square - 1.0) * np.exp(-square)
        return like(np.where(wrong < 0, self.beta**2 * np.exp(-self.beta * wrong), above), margin)

    @property
    def _furthest(self) -> float:
        """Where the loss is less than the least float."""
        return 40.0 / float(np.sqrt(self.alpha))

    @staticmethod
    def _sides(margin: ArrayLike) -> tuple[FloatArray, FloatArray]:
        margins = real("margin", margin)
        return np.maximum(margins, 0.0), np.minimum(margins, 0.0)


# The scaled forms τs²ρ(r/s), τsψ(r/s) and τρ''(r/s) order their factors such that nothing
# overflows or underflows on the way that the result does not.


@np.errstate(over="ignore", under="ignore")
def _scaled_rho(
    residual: FloatArray, scale: float = 1.0, weight: float | FloatArray = 1.0
) -> FloatArray:
    size = np.abs(residual)
    ratio = np.minimum(size / scale, TRUNCATION)
    inner = (weight * size) * (0.5 * size * (1.0 - ratio * ratio / 12.0))
    slope = INFLUENCE_BOUND + _INFLUENCE_BOUND_REST  # B to nearest, where the constant is above it
    outer = scale * (weight * (slope * size - 0.5 * scale))
    return np.where(size < scale * TRUNCATION, inner, outer)


@np.errstate(over="ignore", under="ignore")
def _scaled_influence(
    residual: FloatArray, scale: float = 1.0, weight: float | FloatArray = 1.0
) -> FloatArray:
    size = np.abs(residual)
    ratio = np.minimum(size / scale, TRUNCATION)
    # Beyond s√2 the left side is 2|r|/3, which is more than the right, sB.
    bounded = np.minimum(size * (1.0 - ratio * ratio / 6.0), scale * INFLUENCE_BOUND)
    return np.copysign(weight * bounded, residual)


@np.errstate(over="ignore", under="ignore")
def _scaled_curvature(
    residual: FloatArray, scale: float = 1.0, weight: float | FloatArray = 1.0
) -> FloatArray:
    size = np.abs(residual) / scale
    # 1 - u²/2 cancels near √2; there (√2 - u)(√2 + u)/2 does not, by the split constant.
    factored = 0.5 * ((TRUNCATION - size) + _TRUNCATION_REST) * (TRUNCATION + size)
    return weight * np.where(size <= 1.0, 1.0 - 0.5 * size * size, np.maximum(factored, 0.0))


@np.errstate(under="ignore")
def _influence_inverse(c: FloatArray) -> FloatArray:
    size = np.minimum(np.abs(c), INFLUENCE_BOUND)
    # Near B the arcsine loses half the digits; there the angle comes from the gap B - c, which
    # the split constant gives exactly: arcsin(z)/3 = π/6 - α with α = (2/3) arcsin(√((1 - z)/2)).
    gap = np.maximum((INFLUENCE_BOUND - size) + _INFLUENCE_BOUND_REST, 0.0)
    angle = (2 / 3) * np.arcsin(np.sqrt(0.5 * gap / INFLUENCE_BOUND))
    near = TRUNCATION * (np.cos(angle) - np.sqrt(3.0) * np.sin(angle))
    # Far from B, u = c + u³/6 takes what the angle lost to rounding back out, subnormals included.
    rough = 2.0 * TRUNCATION * np.sin(np.arcsin(size / INFLUENCE_BOUND) / 3)
    return np.copysign(np.where(size > 0.9 * INFLUENCE_BOUND, near, size + rough**3 / 6), c)
