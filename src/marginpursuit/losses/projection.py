"""The loss of margin distribution optimisation."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from marginpursuit._validation import Elementwise, FloatArray, like, positive, real, scalar


@dataclass(frozen=True, slots=True)
class ProjectionLoss:
    r"""The loss of Garg and Roth's margin distribution optimisation (2003).

    .. math:: e^{-\alpha m^2} \;\; (m \ge 0), \qquad e^{-\beta m} \;\; (m < 0)

    For a margin m of unit vectors, the first branch is the probability that a random projection
    changes the sign of a correct score (:func:`~marginpursuit.bounds.projection_profile`). The
    loss is continuous, with a kink at 0 where the derivative is -β from below and 0 from above. It
    is not convex: its curvature is negative for 0 < m < 1/√(2α).

    Parameters
    ----------
    alpha : float, default=1.0
        The rate α > 0 for correct scores (m ≥ 0).
    beta : float, default=1.0
        The rate β > 0 for wrong scores (m < 0).

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
        """Evaluate the derivative at each margin; at the kink, the one from above, 0."""
        right, wrong = self._sides(margin)
        bounded = np.minimum(right, self._support)
        above = -2.0 * self.alpha * bounded * np.exp(-self.alpha * bounded * bounded)
        return like(np.where(wrong < 0, -self.beta * np.exp(-self.beta * wrong), above), margin)

    @np.errstate(over="ignore", under="ignore")
    def curvature(self, margin: ArrayLike) -> Elementwise:
        """Evaluate the second derivative at each margin; at the kink, the one from above, -2α."""
        right, wrong = self._sides(margin)
        bounded = np.minimum(right, self._support)
        square = self.alpha * bounded * bounded
        above = 2.0 * self.alpha * (2.0 * square - 1.0) * np.exp(-square)
        return like(np.where(wrong < 0, self.beta**2 * np.exp(-self.beta * wrong), above), margin)

    @property
    def _support(self) -> float:
        """A margin at which the loss underflows; bounding margins by it avoids inf · 0."""
        return 40.0 / float(np.sqrt(self.alpha))

    @staticmethod
    def _sides(margin: ArrayLike) -> tuple[FloatArray, FloatArray]:
        margins = real("margin", margin)
        return np.maximum(margins, 0.0), np.minimum(margins, 0.0)
