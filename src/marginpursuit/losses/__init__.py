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

from marginpursuit.losses.of_margins import (
    HingeLoss,
    LogisticLoss,
    Loss,
    MarginLoss,
    ProjectionLoss,
)
from marginpursuit.losses.truncation import (
    INFLUENCE_BOUND,
    TRUNCATION,
    curvature,
    influence,
    influence_inverse,
    rho,
    wide_curvature,
    wide_influence,
)

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
