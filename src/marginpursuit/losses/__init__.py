r"""Losses of the margin: one file each, the functions ρ they are built from, and one protocol.

A loss is described by :class:`Loss`; solvers and kernels ask for capabilities by name
(:func:`require`). :data:`RHOS` lists the choices of ρ in :class:`MarginLoss`. A new loss is one
file here; with a C function of the same name in ``_kernels/loss.h`` and a kernel code, the compiled
kernels evaluate it.

The default ρ is the integral of Catoni and Giulini's soft truncation :math:`\psi`
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

from marginpursuit.losses.catoni import (
    curvature,
    influence,
    influence_inverse,
    rho,
    wide_curvature,
    wide_influence,
)
from marginpursuit.losses.hinge import HingeLoss
from marginpursuit.losses.joint import JointLoss
from marginpursuit.losses.logistic import LogisticLoss
from marginpursuit.losses.margin import MarginLoss
from marginpursuit.losses.projection import ProjectionLoss
from marginpursuit.losses.protocol import Loss, require
from marginpursuit.losses.protocol import has as has
from marginpursuit.losses.rhos import INFLUENCE_BOUND, RHOS, TRUNCATION, Rho

__all__ = [
    "INFLUENCE_BOUND",
    "RHOS",
    "TRUNCATION",
    "HingeLoss",
    "JointLoss",
    "LogisticLoss",
    "Loss",
    "MarginLoss",
    "ProjectionLoss",
    "Rho",
    "curvature",
    "influence",
    "influence_inverse",
    "require",
    "rho",
    "wide_curvature",
    "wide_influence",
]
