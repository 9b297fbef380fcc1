"""The logistic loss."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from marginpursuit._validation import Elementwise, like, real
from marginpursuit.losses.protocol import KernelParameters
from marginpursuit.losses.rhos import array_functions


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

    @property
    def curvature_bound(self) -> float:
        """The upper bound 1/4 of the second derivative."""
        return 0.25

    @property
    def kernel_parameters(self) -> KernelParameters:
        """The code; the kernels evaluate log(1 + exp(r)) at the residual r = 0 - m."""
        return (5, 0.0, 1.0, 1.0)

    def value(self, margin: ArrayLike) -> Elementwise:
        """Evaluate the loss at each margin."""
        return like(self.value_and_derivative(real("margin", margin), 1.0)[0], margin)

    def derivative(self, margin: ArrayLike) -> Elementwise:
        """Evaluate the derivative at each margin, in [-1, 0]."""
        return like(self.value_and_derivative(real("margin", margin), 1.0)[1], margin)

    @np.errstate(under="ignore")
    def curvature(self, margin: ArrayLike) -> Elementwise:
        """Evaluate the second derivative at each margin, in [0, 1/4]."""
        power = np.exp(-np.abs(real("margin", margin)))
        # Rounding may exceed the bound by one unit in the last place.
        return like(np.minimum(power / np.square(1.0 + power), self.curvature_bound), margin)

    def link(self, score: Any) -> Any:
        """Return the probability 1/(1 + exp(-u)) of the positive class; unchecked."""
        return -self.value_and_derivative(-score, 1.0)[1]

    @np.errstate(under="ignore")
    def value_and_derivative(self, margin: Any, weight: Any) -> tuple[Any, Any]:
        """Evaluate the loss and its derivative times weights, unchecked, for any array library."""
        xp = array_functions(margin)
        power = xp.exp(-xp.abs(margin))
        is_negative = margin < 0
        value = xp.where(is_negative, -margin, xp.zeros_like(margin)) + xp.log1p(power)
        derivative = xp.where(is_negative, xp.ones_like(power), power) / (1.0 + power)
        return weight * value, -weight * derivative
