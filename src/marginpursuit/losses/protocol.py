"""What a loss of the margin offers, and how a solver refuses a loss that lacks something."""

from typing import Any, Protocol

from numpy.typing import ArrayLike

from marginpursuit._validation import Elementwise

#: The number of a loss in the compiled kernels, and its three parameters.
KernelParameters = tuple[int, float, float, float]


class Loss(Protocol):
    r"""A loss φ of the margin m = y h(x).

    Every loss has the two methods below. The rest are *capabilities*: a loss that lacks one has no
    such attribute, or None. A solver states what it needs with :func:`require`.

    ====================  =========================================================================
    capability            meaning
    ====================  =========================================================================
    curvature             φ'' at each margin
    curvature_bound       the least upper bound of φ''
    value_and_derivative  φ and φ' times weights, unchecked, for arrays of any library
    kernel_parameters     code and parameters for the compiled kernels
    link                  the probability of the positive class whose optimal score is given
    side_weights          weights of the two sides of the level: 1, and τ if it is positive
    influence_bound       the least upper bound of \|φ'\| on a side of weight 1
    influence_inverse     the residual at which the derivative has a given size, weight 1
    conjugate             the convex conjugate in the residual, on a side of weight 1
    ====================  =========================================================================

    Examples
    --------
    >>> import numpy as np
    >>> from marginpursuit.losses import Loss
    >>> class Exponential:
    ...     def value(self, margin):
    ...         return np.exp(-np.asarray(margin))
    ...     def derivative(self, margin):
    ...         return -np.exp(-np.asarray(margin))
    >>> loss: Loss = Exponential()
    >>> loss.value(0.0), loss.derivative(0.0)
    (np.float64(1.0), np.float64(-1.0))
    """

    def value(self, margin: ArrayLike) -> Elementwise:
        """Evaluate the loss at each margin."""

    def derivative(self, margin: ArrayLike) -> Elementwise:
        """Evaluate the derivative of the loss at each margin."""


def has(loss: Any, capability: str) -> bool:
    """Whether a loss has a capability, an attribute that is not None."""
    return getattr(loss, capability, None) is not None


def require(loss: Any, *capabilities: str, solver: str) -> None:
    """Refuse a loss that lacks something a solver needs.

    Parameters
    ----------
    loss : Loss
        The loss.
    *capabilities : str
        Names of capabilities; see :class:`Loss`.
    solver : str
        The name of the solver, for the error message.

    Raises
    ------
    ValueError
        If the loss lacks one of the capabilities.

    Examples
    --------
    >>> from marginpursuit.losses import LogisticLoss, MarginLoss, require
    >>> require(MarginLoss(), "conjugate", solver="dual")
    >>> require(LogisticLoss(), "conjugate", solver="dual")
    Traceback (most recent call last):
        ...
    ValueError: dual needs a conjugate; LogisticLoss has none. Choose another solver or loss.
    """
    for capability in capabilities:
        if not has(loss, capability):
            article = "an" if capability[0] in "aeiou" else "a"
            needed = capability.replace("_", " ")
            raise ValueError(
                f"{solver} needs {article} {needed}; {type(loss).__name__} has none. Choose "
                "another solver or loss."
            )
