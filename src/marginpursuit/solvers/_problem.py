r"""What goes into a solver and what comes out.

The objective, written once. For problem k (one class against the rest) with weights c that sum
to one and margins m = y (z·w + b) in the coordinates z of the geometry,

.. math::

    F_k(w, b) = \sum_i c_i\, \varphi(m_i) + \tfrac12 \sum_j p_j w_j^2 .

The intercept b is never penalised. The coefficients of all problems are the columns of one array.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import numpy as np

from marginpursuit._validation import FloatArray
from marginpursuit.design import Design, Labels, Linear
from marginpursuit.losses import MarginLoss


class Status(Enum):
    """How a solve ended; the value is the text that the user sees."""

    CONVERGED = "converged"
    ROUNDING = "stopped where rounding hides any further decrease"
    MAX_ITER = "reached max_iter before the tolerance"
    ALL_STEPS = "took all steps that were asked for; this solver has no stopping rule"


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a solve is after an iteration."""

    iteration: int
    reads: int
    value: float  # the mean objective of the problems
    gap: float  # the largest estimated relative suboptimality of a problem


@dataclass(frozen=True, slots=True)
class Geometry:
    """The coordinates in which a solver works; made once, used for every loss.

    `precondition` applies the inverse of a matrix that bounds the Hessian from above, to
    coefficients with the intercept, if there is one, as last entry.
    """

    design: Design
    fit_intercept: bool
    penalty: FloatArray  # (n_columns,), the diagonal p
    precondition: Callable[[FloatArray], FloatArray]
    to_data: Callable[[Linear], Linear]  # from these coordinates to those of the data as it came
    from_data: Callable[[Linear], Linear]


@dataclass(frozen=True, slots=True)
class Problem:
    """A fit to be made."""

    geometry: Geometry
    labels: Labels
    weights: FloatArray  # (n_rows,), sum one
    loss: MarginLoss
    start: Linear  # in the coordinates of the geometry
    max_iter: int
    tol: float
    report: Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class Solution:
    """A fit that was made, in the coordinates of the geometry; arrays have an entry a problem."""

    linear: Linear
    value: FloatArray  # the objective
    gap: FloatArray  # estimated relative suboptimality
    status: Status  # the worst of the problems
    n_iter: int  # the most of the problems
    history: tuple[Progress, ...]


def relative_to(loss: MarginLoss, value: FloatArray | float) -> FloatArray:
    """Return what suboptimality is measured against: the objective itself.

    Where the data can be fitted almost exactly the objective tends to zero; it then counts as a
    hundredth of its value without coefficients.
    """
    return np.asarray(np.maximum(value, 1e-2 * float(loss.value(0.0))))
