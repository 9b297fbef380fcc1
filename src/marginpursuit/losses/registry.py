"""The losses that the kernels know, by the code in `kernel_parameters`."""

from marginpursuit.losses.hinge import HingeLoss
from marginpursuit.losses.logistic import LogisticLoss
from marginpursuit.losses.margin import MarginLoss
from marginpursuit.losses.protocol import Loss
from marginpursuit.losses.rhos import RHOS


def from_kernel_parameters(code: float, margin: float, scale: float, overconfidence: float) -> Loss:
    """Return the loss with these kernel parameters.

    Examples
    --------
    >>> from marginpursuit.losses import MarginLoss
    >>> from marginpursuit.losses.registry import from_kernel_parameters
    >>> from_kernel_parameters(*MarginLoss(2.0, rho="huber").kernel_parameters)
    MarginLoss(margin=2.0, scale=1.0, overconfidence=1.0, rho='huber')
    """
    for rho in RHOS.values():
        if rho.kernel_code == code:
            return MarginLoss(margin, scale, overconfidence, rho.name)
    return HingeLoss(margin) if code == HingeLoss().kernel_parameters[0] else LogisticLoss()
