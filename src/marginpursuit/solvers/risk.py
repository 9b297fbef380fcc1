r"""Weighted risks, from which robust estimates of the risk are minimised.

An estimate A of the risk whose gradient in the losses of the rows is non-negative and sums to one
is, to first order, a weighted mean of the losses. The objective

.. math::  A(\ell_1(w), \dots, \ell_n(w)) + \tfrac12 \sum_j p_j w_j^2

is minimised by a sequence of weighted risks, each of which is convex: the direction from a point to
the minimiser of the risk weighted by the gradient of A at that point is a descent direction.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from marginpursuit._validation import FloatArray
from marginpursuit.design import Linear
from marginpursuit.losses import LogisticLoss, MarginLoss
from marginpursuit.solvers._problem import Prepared, Problem, Solution, mean_penalty_weights
from marginpursuit.tasks import Labels, Tasks

#: The tolerance of weighted risks that are solved as exactly as rounding permits.
EXACT = 1e-11


@dataclass(frozen=True, slots=True)
class RiskLoss:
    """A loss and its unit: `loss` divided by `unit` is the loss that is named."""

    loss: Any  # a MarginLoss, or another Loss that the solver supports
    unit: float

    def value(self, margins: FloatArray) -> FloatArray:
        """Return the losses in their unit."""
        return np.asarray(self.loss.value(margins) / self.unit)


def rounded_hinge(width: float = 1e-4) -> RiskLoss:
    """Return the hinge with its kink rounded over a multiple of `width`.

    The rounded hinge is below the hinge by at most 0.54 `width`.
    """
    loss = MarginLoss(1.0, width, 0.0)
    return RiskLoss(loss, loss.influence_bound)


RISK_LOSSES = {"hinge": rounded_hinge(), "logistic": RiskLoss(LogisticLoss(), 1.0)}


@dataclass(frozen=True, slots=True)
class Point:
    """Coefficients with their margins and losses."""

    linear: Linear  # in the coordinates of `Prepared`
    margins: FloatArray
    losses: FloatArray
    penalty: float  # ½ α Σ u_j w_j²
    gap: float = 0.0  # relative suboptimality of the weighted risk that it minimises


@dataclass(frozen=True, slots=True)
class RobustSolution(Solution):
    """A minimiser with the influence of each row: gradient of the estimate over weight."""

    influence: FloatArray


@dataclass(frozen=True, slots=True)
class Risk:
    """The risk of one class against the rest."""

    prepared: Prepared
    alpha: float  # the penalty, times the penalty weights of `prepared`
    solve: Callable[[Problem], Solution]
    bounds_gap: bool  # whether the solver bounds the gap, so that a loose tolerance is reliable
    labels: Labels  # of two classes
    weights: FloatArray  # (n_rows,), sum one
    loss: RiskLoss
    tol: float

    def at(self, linear: Linear) -> Point:
        """Evaluate coefficients, in one pass over the data."""
        scores = self.prepared.design.scores(*linear, self.prepared.standardisation)
        return self._point(linear, self.labels.sign(1) * scores[:, 0])

    def between(self, start: Point, end: Point, step: float) -> Point:
        """Evaluate start + step · (end - start), without a pass over the data."""
        coef, intercept = (
            a + step * (b - a) for a, b in zip(start.linear, end.linear, strict=True)
        )
        margins = start.margins + step * (end.margins - start.margins)
        return self._point((coef, intercept), margins)

    def origin(self) -> Point:
        """Return the point with coefficients zero."""
        return self._point(self.prepared.zeros(1), np.zeros(len(self.weights)))

    def minimise(
        self,
        weights: FloatArray,
        start: Point,
        *,
        penalty: float = 0.0,
        tol: float = EXACT,
        decrease_fraction: float = 0.0,
        max_iter: int = 1000,
        max_copied_fraction: float = 0.5,
    ) -> Point:
        """Minimise the risk with other weights, of sum one, from a point.

        A positive `penalty` is one of the coefficients of standardised columns, in place of that of
        the risk. The minimisation stops at a relative gap of `tol`, or of `EXACT` by a solver that
        does not bound the gap; also where the gap is at most `decrease_fraction` of the decrease.
        The rows with weight are copied if they are less than `max_copied_fraction` of all rows.
        """
        prepared, alpha = self.prepared, self.alpha
        if penalty > 0:
            is_free = np.isfinite(prepared.penalty_weights)
            penalty_weights = np.where(is_free, 1.0, np.inf)
            prepared, alpha = replace(prepared, penalty_weights=penalty_weights), penalty
        problem = Problem(
            prepared,
            Tasks.of(self.labels, weights, self.loss.loss),
            np.array([alpha * self.loss.unit]),
            start.linear,
            max_iter,
            tol if self.bounds_gap else EXACT,
            decrease_fraction=decrease_fraction,
        )
        weighted = np.flatnonzero(weights)
        if len(weighted) < max_copied_fraction * len(weights):
            problem = problem.with_rows(weighted)
        solution = self.solve(problem)
        return replace(self.at(solution.linear), gap=float(solution.gap[0]))

    def decrease(self, weights: FloatArray, start: Point, end: Point) -> float:
        """Return the decrease of the weighted risk, penalty included, from start to end."""
        return float(weights @ (start.losses - end.losses)) + start.penalty - end.penalty

    def _point(self, linear: Linear, margins: FloatArray) -> Point:
        penalty_weights = mean_penalty_weights(self.prepared.penalty_weights[:1])
        penalty = 0.5 * self.alpha * float(penalty_weights @ linear[0][:, 0] ** 2)
        return Point(linear, margins, self.loss.value(margins), penalty)
