r"""Minimising the Catoni estimate of the risk (Brownlees, Joly and Lugosi 2015).

The estimate θ of the risk solves Σ c_i ψ((θ - ℓ_i)/s) = 0. By the implicit function theorem its
gradient in the losses is

.. math::  \omega_i = \frac{c_i \psi'((\theta - \ell_i)/s)}{\sum_j c_j \psi'((\theta - \ell_j)/s)}.

The estimate is not convex in the coefficients. The scale therefore starts where the estimate is
close to the mean, whose minimiser is unique, and is halved until it is the requested one. Each
iteration minimises a weighted risk, to a fraction of its decrease, and searches along the line to
its minimiser and along the line from the last but one point. Margins are linear along both, so that
the searches need no pass over the data.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from marginpursuit._validation import Elementwise, FloatArray
from marginpursuit.location import catoni_location
from marginpursuit.losses import curvature, wide_curvature
from marginpursuit.solvers._line_search import backtrack, expand
from marginpursuit.solvers._problem import Progress, Status
from marginpursuit.solvers.risk import Point, Risk, RobustSolution

__all__ = ["CURVATURES", "catoni_estimate", "minimise_catoni_risk"]

#: The derivatives of the influence functions, by name.
CURVATURES: dict[str, Callable[[FloatArray], Elementwise]] = {
    "truncated": curvature,
    "wide": wide_curvature,
}


def catoni_estimate(
    losses: FloatArray, weights: FloatArray, scale: float, influence: str
) -> tuple[float, FloatArray]:
    """Estimate the mean of losses, and the influence of each: the gradient over the weight.

    The weights sum to one, and the weighted mean of the influences is one. An infinite scale gives
    the mean.
    """
    if scale == np.inf:
        return float(weights @ losses), np.ones(len(losses))
    # With equal weights the losses need no sorting.
    unequal = weights if np.ptp(weights) > 0 else None
    estimate = float(catoni_location(losses, scale, sample_weight=unequal, influence=influence))
    distance = np.abs(losses - estimate)
    slopes = np.asarray(CURVATURES[influence](distance / scale))
    if not weights @ slopes > 0:
        # All losses are farther from the estimate than the truncation, half of the weight on either
        # side. The estimate is then the midpoint of the two nearest losses (erratum E6).
        nearest = distance[weights > 0].min()
        slopes = np.where(distance <= nearest * (1.0 + 1e-9), 1.0, 0.0)
    return estimate, slopes / float(weights @ slopes)


def minimise_catoni_risk(
    risk: Risk,
    scale: float | Callable[[FloatArray], float],
    influence: str,
    max_iter: int,
    report: Callable[[Progress], None],
    *,
    n_init: int = 1,
    random: np.random.Generator | None = None,
) -> tuple[RobustSolution, float]:
    """Minimise the estimate, starting at the minimiser of the mean; return also the scale.

    The scale may be a function of the losses at the minimiser of the mean.

    The first descent decreases the scale from the range of the losses. `n_init` - 1 others, at the
    target scale, start at minimisers of the mean of a random half of the rows, drawn by `random`.
    The result is the local minimum with the least value.
    """
    descent = _Descent(risk, influence, max_iter, report)
    # A scale that depends on the losses needs the exact minimiser of the mean.
    fraction = 0.0 if callable(scale) else descent.decrease_fraction
    point = descent.minimise(risk.weights, risk.origin(), fraction)
    target = scale(point.losses) if callable(scale) else scale
    first_scale = max(target, float(np.ptp(point.losses[risk.weights > 0])))
    found = [descent.follow(point, first_scale, target)]
    for _ in range(n_init - 1):
        assert random is not None
        halved = risk.weights * (random.random(len(risk.weights)) < 0.5)
        if np.any(halved):
            start = descent.minimise(halved / halved.sum(), risk.origin(), fraction)
            found.append(descent.follow(start, target, target))
    return min(found, key=lambda solution: float(solution.value[0])), target


@dataclass(frozen=True, slots=True)
class _Descent:
    """Descent of the estimate from a point, by minimising weighted risks."""

    risk: Risk
    influence: str
    max_iter: int
    report: Callable[[Progress], None]

    #: A weighted risk is minimised until its gap is at most this fraction of its decrease, or of
    #: the tolerance.
    decrease_fraction: ClassVar[float] = 0.1
    tolerance_fraction: ClassVar[float] = 0.3

    def minimise(self, weights: FloatArray, start: Point, decrease_fraction: float) -> Point:
        """Minimise a weighted risk."""
        tol = self.tolerance_fraction * self.risk.tol
        return self.risk.minimise(weights, start, tol=tol, decrease_fraction=decrease_fraction)

    def follow(self, point: Point, scale: float, target: float) -> RobustSolution:
        """Descend from a point, halving the scale until it is the target.

        The iterations stop where the first-order decrease is less than the tolerance times the
        value.
        """
        risk, history, last = self.risk, list[Progress](), point
        while True:
            estimate, factors = catoni_estimate(point.losses, risk.weights, scale, self.influence)
            weights, value = risk.weights * factors, estimate + point.penalty
            ahead = self.minimise(weights, point, self.decrease_fraction)
            decrease = risk.decrease(weights, point, ahead)
            gap = max(decrease, 0.0) / max(value, 1e-2) + ahead.gap
            passes = risk.prepared.design.n_passes
            history.append(Progress(len(history), passes, value, gap))
            self.report(history[-1])
            converged = scale == target and gap <= risk.tol
            if converged or len(history) > self.max_iter:
                break
            objective = partial(self._objective, scale)
            moved, reached = _descend(risk, objective, point, ahead, value, decrease)
            if moved is point and scale == target:
                break
            moved, _ = _extend(risk, objective, last, moved, reached)
            last, point, scale = point, moved, max(target, 0.5 * scale)
        status = Status.CONVERGED if converged else Status.ROUNDING
        if len(history) > self.max_iter and not converged:
            status = Status.MAX_ITER
        return RobustSolution(
            point.linear,
            np.array([value]),
            np.array([gap]),
            status,
            history[-1].iteration,
            tuple(history),
            factors,
        )

    def _objective(self, scale: float, point: Point) -> float:
        losses, weights = point.losses, self.risk.weights
        return catoni_estimate(losses, weights, scale, self.influence)[0] + point.penalty


def _descend(
    risk: Risk,
    objective: Callable[[Point], float],
    start: Point,
    end: Point,
    value: float,
    decrease: float,
) -> tuple[Point, float]:
    """Search the line from a point of this value to the minimiser of a weighted risk, and beyond.

    `decrease` is that of the weighted risk: the objective has at most the slope -decrease. Returns
    the point and its value.
    """
    if decrease <= 0:
        return start, value
    step, reached = backtrack(
        lambda t: objective(risk.between(start, end, t)), value, -decrease, max_halvings=30
    )
    if step == 1.0:
        return _extend(risk, objective, start, end, reached)
    return (risk.between(start, end, step), reached) if step > 0 else (start, value)


def _extend(
    risk: Risk, objective: Callable[[Point], float], start: Point, end: Point, value: float
) -> tuple[Point, float]:
    """Double the distance from the start up to three times, as long as the objective falls.

    `value` is the objective at the end. Returns the point and its value.
    """
    step, value = expand(
        lambda t: objective(risk.between(start, end, t)), 1.0, value, max_doublings=3
    )
    return (end if step == 1.0 else risk.between(start, end, step)), value
