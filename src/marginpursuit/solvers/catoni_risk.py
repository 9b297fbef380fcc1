r"""Minimising the Catoni estimate of the risk (Brownlees, Joly and Lugosi 2015).

The estimate θ of the risk solves Σ c_i ψ((θ - ℓ_i)/s) = 0. By the implicit function theorem its
gradient in the losses is

.. math::  \omega_i = \frac{c_i \psi'((\theta - \ell_i)/s)}{\sum_j c_j \psi'((\theta - \ell_j)/s)}.

It is not convex in the coefficients. So the scale starts where the estimate is all but the mean,
whose minimiser is unique, and is halved until it is the one asked for. Weighted risks on the way
are minimised no further than the steps they lead to are worth, and a step is doubled as long as
that pays: along it the margins are a line, so that to look costs no read.
"""

from collections.abc import Callable

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

# A weighted risk is minimised to this share of what the step before promised, and at last to this
# share of the tolerance.
_ROUGHLY, _FINALLY = 0.1, 0.3


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
    scale_rule: Callable[[FloatArray], float],
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
    scale_rule : callable
        Gives the scale to aim for from the losses at the minimiser of the mean.
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
    point = risk.minimise(risk.weights, risk.origin(), tol=finest)
    target = scale_rule(point.losses)
    widest = float(np.ptp(point.losses[risk.weights > 0]))
    scale = max(target, widest)
    history: list[Progress] = []
    gap = _ROUGHLY
    while True:
        estimate, factors = catoni_estimate(point.losses, risk.weights, scale, influence)
        value = estimate + point.charge
        tol = max(_ROUGHLY * min(gap, _ROUGHLY), finest)
        ahead = risk.minimise(risk.weights * factors, point, tol=tol)
        promise = risk.decrease(risk.weights * factors, point, ahead)
        gap = max(promise, 0.0) / max(value, 1e-2) + ahead.lack
        reads = risk.geometry.design.n_reads
        history.append(Progress(len(history), reads, value, gap))
        report(history[-1])
        finished = scale == target and gap <= risk.tol
        if finished or len(history) > max_iter:
            break
        moved = _descend(risk, point, ahead, promise, value, scale, influence)
        if moved is point and scale == target and tol == finest:
            break
        point, scale = moved, max(target, 0.5 * scale)
    status = Status.CONVERGED if finished else Status.ROUNDING
    if len(history) > max_iter and not finished:
        status = Status.MAX_ITER
    arrays = np.array([value]), np.array([gap])
    solution = RobustSolution(
        point.linear, *arrays, status, history[-1].iteration, tuple(history), factors
    )
    return solution, scale


def _descend(
    risk: Risk, start: Point, end: Point, promise: float, value: float, scale: float, influence: str
) -> Point:
    """Go towards the end, or beyond, as long as the estimate falls as promised."""

    def look(share: float) -> tuple[Point, float]:
        point = risk.between(start, end, share)
        estimate, _ = catoni_estimate(point.losses, risk.weights, scale, influence)
        return point, estimate + point.charge

    if promise <= 0:
        return start
    share, (point, reached) = 1.0, look(1.0)
    if reached < value - _SUFFICIENT_DECREASE * promise:
        for _ in range(_MOST_DOUBLINGS):
            share *= 2.0
            further, lower = look(share)
            if lower >= reached:
                break
            point, reached = further, lower
        return point
    for _ in range(_MOST_HALVINGS):
        share *= 0.5
        point, reached = look(share)
        if reached < value - _SUFFICIENT_DECREASE * share * promise:
            return point
    return start
