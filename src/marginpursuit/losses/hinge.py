"""The hinge loss."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from marginpursuit._validation import Elementwise, like, positive, real, scalar
from marginpursuit.losses.protocol import KernelParameters
from marginpursuit.losses.rhos import array_functions


@dataclass(frozen=True, slots=True)
class HingeLoss:
    r"""The hinge :math:`(\gamma - m)_+`, the loss of the support vector machine and of Pegasos.

    Parameters
    ----------
    margin : float, default=1.0
        The level γ > 0 below which a margin has a positive loss.

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

    @property
    def kernel_parameters(self) -> KernelParameters:
        """Code and level; the scale is 1 and the weight above the level 0."""
        return (6, self.margin, 1.0, 0.0)

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

    def curvature(self, margin: ArrayLike) -> Elementwise:
        """Evaluate the second derivative, 0 except at the level, where it is set to 0.

        Parameters
        ----------
        margin : array_like
            Margins y h(x), any real numbers including ±inf.

        Returns
        -------
        ndarray or scalar
            0.

        Examples
        --------
        >>> from marginpursuit.losses import HingeLoss
        >>> HingeLoss().curvature([-9.0, 1.0])
        array([0., 0.])
        """
        return like(np.zeros_like(real("margin", margin)), margin)

    def value_and_derivative(self, margin: Any, weight: Any) -> tuple[Any, Any]:
        """Evaluate the hinge and its derivative times weights, unchecked, for any array library."""
        residual = self.margin - margin
        xp = array_functions(residual)
        nothing = xp.zeros_like(residual)
        value = xp.where(residual <= 0, nothing, weight * residual)
        return value, xp.where(residual > 0, nothing - weight, nothing)
