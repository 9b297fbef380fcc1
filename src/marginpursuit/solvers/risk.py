r"""The risk under weights of the rows that change: what robust estimates of it are made of.

An estimate A of the risk that is not a mean, but has a gradient in the losses of the rows that is
nowhere negative and sums to one, is to first order a weighted mean of the losses. So

.. math::  A(\ell_1(w), \dots, \ell_n(w)) + \tfrac12 \sum_j p_j w_j^2

is minimised by minimising weighted risks, each of which is convex and has a solver already: the
step from a point to the minimiser of the risk that is weighted by the gradient there leads down.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from marginpursuit._validation import FloatArray
from marginpursuit.design import Linear
from marginpursuit.losses import INFLUENCE_BOUND, LogisticLoss, MarginLoss
from marginpursuit.solvers._problem import Prepared, Problem, Solution
from marginpursuit.solvers._single_task import with_rows
from marginpursuit.tasks import Labels, Tasks

# The part of the margin over which the corner of the hinge is rounded: the rounded hinge is below
# the hinge by at most 0.54 times that.
_ROUNDED = 1e-4

_INNER_ITERATIONS = 1000

#: A tolerance of weighted risks that is as good as none; solvers get there quickly once they are
#: near.
EXACT = 1e-11

# The share of the rows below which those that count are worth copying.
_FEW = 0.5


@dataclass(frozen=True, slots=True)
class RiskLoss:
    """A loss and the unit in which it is measured."""

    loss: Any  # a MarginLoss; or any Loss that the solver knows what to do with
    unit: float

    def value(self, margins: FloatArray) -> FloatArray:
        """Return the losses in their unit."""
        return np.asarray(self.loss.value(margins) / self.unit)


RISK_LOSSES = {
    "hinge": RiskLoss(MarginLoss(1.0, _ROUNDED, 0.0), _ROUNDED * INFLUENCE_BOUND),
    "logistic": RiskLoss(LogisticLoss(), 1.0),
}


@dataclass(frozen=True, slots=True)
class Point:
    """Coefficients with what follows from them."""

    linear: Linear  # in the coordinates of the prepared
    margins: FloatArray
    losses: FloatArray
    charge: float  # the penalty
    lack: float = 0.0  # by what share the risk that it minimises may still fall


@dataclass(frozen=True, slots=True)
class RobustSolution(Solution):
    """A fit whose rows were weighted; `influence` is one for a row that counts as in a mean."""

    influence: FloatArray


@dataclass(frozen=True, slots=True)
class Risk:
    """The risk of one class against the rest."""

    prepared: Prepared
    alpha: float  # the penalty, in the unit of the prepared
    solve: Callable[[Problem], Solution]
    is_bounded: bool  # whether the solver bounds the gap, so that it can be asked for little
    labels: Labels  # of two classes
    weights: FloatArray  # (n_rows,), sum one
    loss: RiskLoss
    tol: float

    def at(self, linear: Linear) -> Point:
        """Look at coefficients, in one read."""
        margins = (
            self.labels.sign(1)
            * self.prepared.design.scores(*linear, self.prepared.standardisation)[:, 0]
        )
        return self._point(linear, margins)

    def between(self, start: Point, end: Point, share: float) -> Point:
        """Look at a point between two, which takes no read."""
        coef, intercept = (
            a + share * (b - a) for a, b in zip(start.linear, end.linear, strict=True)
        )
        margins = start.margins + share * (end.margins - start.margins)
        return self._point((coef, intercept), margins)

    def origin(self) -> Point:
        """Return the point without coefficients."""
        linear = np.zeros((self.prepared.design.n_columns, 1)), np.zeros(1)
        return self._point(linear, np.zeros(len(self.weights)))

    def minimise(
        self,
        weights: FloatArray,
        start: Point,
        holding: float = 0.0,
        tol: float = EXACT,
        enough: float = 0.0,
    ) -> Point:
        """Minimise the risk under these weights, of sum one, to a tolerance.

        It is also enough that what is left to gain is this share of what was gained.

        With a `holding` penalty that is the one of all coefficients, in place of the penalty. A
        solver that does not bound the gap goes as far as it can, whatever the tolerance.
        """
        prepared, alpha = self.prepared, self.alpha
        if holding > 0:
            unit = np.where(np.isfinite(prepared.unit), 1.0, prepared.unit)
            prepared, alpha = replace(prepared, unit=unit), holding
        problem = Problem(
            prepared,
            Tasks.of(self.labels, weights, self.loss.loss),
            np.array([alpha * self.loss.unit]),
            start.linear,
            _INNER_ITERATIONS,
            tol if self.is_bounded else EXACT,
            enough=enough,
        )
        counted = np.flatnonzero(weights)
        if len(counted) < _FEW * len(weights):
            problem = with_rows(problem, counted)
        solution = self.solve(problem)
        return replace(self.at(solution.linear), lack=float(solution.gap[0]))

    def decrease(self, weights: FloatArray, start: Point, end: Point) -> float:
        """Return by how much the weighted risk, penalty included, falls from start to end."""
        return float(weights @ (start.losses - end.losses)) + start.charge - end.charge

    def _point(self, linear: Linear, margins: FloatArray) -> Point:
        unit = np.where(np.isfinite(self.prepared.unit[0]), self.prepared.unit[0], 0.0)
        charge = 0.5 * self.alpha * float(unit @ linear[0][:, 0] ** 2)
        return Point(linear, margins, self.loss.value(margins), charge)
