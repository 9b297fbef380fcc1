r"""Minimising the Catoni estimate of the risk (Brownlees, Joly and Lugosi 2015).

The estimate θ of the risk solves Σ c_i ψ((θ - ℓ_i)/s) = 0. By the implicit function theorem its
gradient in the losses is

.. math::  \omega_i = \frac{c_i \psi'((\theta - \ell_i)/s)}{\sum_j c_j \psi'((\theta - \ell_j)/s)}.

It is not convex in the coefficients. So the scale starts where the estimate is all but the mean,
whose minimiser is unique, and is halved until it is the one asked for. Weighted risks are minimised
no further than the steps they lead to are worth. A step is doubled as long as that pays, and then
the way from the point before the last is followed further, which helps in valleys: along either the
margins are a line, so that to look costs no read.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from marginpursuit._validation import Elementwise, FloatArray
from marginpursuit.location import catoni_location
from marginpursuit.losses import curvature, wide_curvature
from marginpursuit.solvers._problem import Progress, Status
from marginpursuit.solvers.risk import Point, Risk, RobustSolution

__all__ = ["SLOPES", "catoni_estimate", "minimise_catoni_risk"]

#: The derivatives of the influence functions, by name.
SLOPES: dict[str, Callable[[FloatArray], Elementwise]] = {
    "truncated": curvature,
    "wide": wide_curvature,
}

_SUFFICIENT_DECREASE = 1e-4
_MOST_HALVINGS = 30
_MOST_DOUBLINGS = 3

# A weighted risk is minimised until what is left to gain is this share of what was gained, or at
# last this share of the tolerance.
_ENOUGH, _FINALLY = 0.1, 0.3


def catoni_estimate(
    losses: FloatArray, weights: FloatArray, scale: float, influence: str
) -> tuple[float, FloatArray]:
    """Estimate the mean of losses, and the influence of each: its gradient over its weight.

    Parameters
    ----------
    losses : ndarray of shape (n_rows,)
        Losses.
    weights : ndarray of shape (n_rows,)
        Weights of sum one.
    scale : float
        The scale s; infinite for the mean.
    influence : {"truncated", "wide"}
        The influence function.

    Returns
    -------
    float, ndarray of shape (n_rows,)
        The estimate, and influences whose weighted mean is one.
    """
    if scale == np.inf:
        return float(weights @ losses), np.ones(len(losses))
    # Equal weights are left out, which saves to sort the losses.
    unequal = weights if np.ptp(weights) > 0 else None
    estimate = float(catoni_location(losses, scale, sample_weight=unequal, influence=influence))
    distance = np.abs(losses - estimate)
    slopes = np.asarray(SLOPES[influence](distance / scale))
    if not weights @ slopes > 0:
        # Half of the weight is out of reach on either side: the values next to the estimate, which
        # is halfway between them, move it (E6).
        nearest = distance[weights > 0].min()
        slopes = np.where(distance <= nearest * (1.0 + 1e-9), 1.0, 0.0)
    return estimate, slopes / float(weights @ slopes)


def minimise_catoni_risk(
    risk: Risk,
    wanted: float | Callable[[FloatArray], float],
    influence: str,
    max_iter: int,
    report: Callable[[Progress], None],
) -> tuple[RobustSolution, float]:
    """Minimise the estimate, from the minimiser of the mean on.

    It stops where a step promises, to first order, a decrease of less than the tolerance times the
    value.

    Parameters
    ----------
    risk : Risk
        The risk of one class against the rest.
    wanted : float or callable
        The scale to aim for, or what gives it from the losses at the minimiser of the mean.
    influence : {"truncated", "wide"}
        The influence function.
    max_iter : int
        The most weighted risks that are minimised.
    report : callable
        Is told of the progress.

    Returns
    -------
    RobustSolution, float
        The minimiser and the scale.
    """
    finest = _FINALLY * risk.tol
    # Where the scale is known, the minimiser of the mean is but a start.
    share = 0.0 if callable(wanted) else _ENOUGH
    point = risk.minimise(risk.weights, risk.origin(), tol=finest, enough=share)
    target = wanted(point.losses) if callable(wanted) else wanted
    widest = float(np.ptp(point.losses[risk.weights > 0]))
    scale = max(target, widest)
    history: list[Progress] = []
    before = point
    while True:
        estimate, factors = catoni_estimate(point.losses, risk.weights, scale, influence)
        value = estimate + point.charge
        ahead = risk.minimise(risk.weights * factors, point, tol=finest, enough=_ENOUGH)
        promise = risk.decrease(risk.weights * factors, point, ahead)
        gap = max(promise, 0.0) / max(value, 1e-2) + ahead.lack
        passes = risk.prepared.design.n_passes
        history.append(Progress(len(history), passes, value, gap))
        report(history[-1])
        finished = scale == target and gap <= risk.tol
        if finished or len(history) > max_iter:
            break
        along = _Line(risk, scale, influence)
        moved, reached = along.descend(point, ahead, promise, value)
        if moved is point and scale == target:
            break
        moved, _ = along.extend(before, moved, reached)
        before, point, scale = point, moved, max(target, 0.5 * scale)
    status = Status.CONVERGED if finished else Status.ROUNDING
    if len(history) > max_iter and not finished:
        status = Status.MAX_ITER
    arrays = np.array([value]), np.array([gap])
    solution = RobustSolution(
        point.linear, *arrays, status, history[-1].iteration, tuple(history), factors
    )
    return solution, scale


@dataclass(frozen=True, slots=True)
class _Line:
    """Searches along lines, on which to look takes no read."""

    risk: Risk
    scale: float
    influence: str

    def descend(
        self, start: Point, end: Point, promise: float, value: float
    ) -> tuple[Point, float]:
        """Go from a point of this value towards the end, or beyond, as far as it falls as promised.

        Returns the point and its value.
        """
        if promise <= 0:
            return start, value
        share = 1.0
        for _ in range(_MOST_HALVINGS):
            point, reached = self._look(start, end, share)
            if reached < value - _SUFFICIENT_DECREASE * share * promise:
                return self.extend(start, point, reached) if share == 1.0 else (point, reached)
            share *= 0.5
        return start, value

    def extend(self, start: Point, end: Point, value: float) -> tuple[Point, float]:
        """Go on from an end of this value, twice as far each time, as long as the value falls."""
        found, share = (end, value), 1.0
        for _ in range(_MOST_DOUBLINGS):
            share *= 2.0
            point, reached = self._look(start, end, share)
            if reached >= found[1]:
                break
            found = point, reached
        return found

    def _look(self, start: Point, end: Point, share: float) -> tuple[Point, float]:
        point = self.risk.between(start, end, share)
        estimate, _ = catoni_estimate(point.losses, self.risk.weights, self.scale, self.influence)
        return point, estimate + point.charge
