"""Losses of a margin: that of margin pursuit, and those it is compared with."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from marginpursuit._validation import Elementwise, FloatArray, between, like, positive, real, scalar
from marginpursuit.losses.truncation import (
    scaled_curvature,
    scaled_influence,
    scaled_rho,
)


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
        return like(scaled_rho(charged, self.scale, weight), margin)

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
        return like(-scaled_influence(residual, self.scale, weight), margin)

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
        return like(scaled_curvature(residual, self.scale, weight), margin)

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
