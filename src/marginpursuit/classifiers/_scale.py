"""The scale of the loss from the margins: rules, and the fixed point s = rule(margins(s)).

A rule maps the margins of a fit at scale s to a new scale. `ScaleIteration` finds a scale that the
rule returns unchanged, by a fit at each trial scale.
"""

from collections.abc import Callable
from math import exp, log

import numpy as np

from marginpursuit._validation import FloatArray
from marginpursuit.classifiers._block_margins import block_margins
from marginpursuit.classifiers._margins import ArrayMargins, Margins
from marginpursuit.design import BlockDesign, Linear
from marginpursuit.location import confidence_scale, variance_scale
from marginpursuit.losses import TRUNCATION, JointLoss
from marginpursuit.solvers import Problem
from marginpursuit.tasks import Labels

#: The smallest scale of the rule "auto", and the first scale of every rule, in units of the margin
#: level γ. From √2 γ on the exact link increases strictly on (-γ, γ) (the paper's first case of the
#: conditional risk, γ/s ≤ √2/2), and ψ is truncated only at margins below -γ.
SMOOTH_LINK_SCALE = TRUNCATION


def training_margins(problem: Problem, linear: Linear, labels: Labels, count: float) -> Margins:
    """Return the margins of all rows at a point of the problem; a joint task has one per row.

    `count` is the sum of the weights of the rows before normalisation.
    """
    design, tasks = problem.prepared.design, problem.tasks
    weights, loss = tasks.weights[0, :], tasks.losses[0]
    if isinstance(design, BlockDesign):
        return block_margins(
            *(design, problem.prepared.standardisation, linear, labels, weights, count, loss)
        )
    scores = design.scores(*linear, problem.prepared.standardisation)
    kind = Margins if isinstance(scores, np.ndarray) else ArrayMargins
    if isinstance(loss, JointLoss):
        margins = loss.margins(scores, labels.codes)[:, None]
        return kind.from_margins(margins, weights, count, loss.margin)
    return kind.from_scores(scores, labels, weights, count, loss.margin)


class ScaleIteration:
    """Fixed-point iteration for the scale: Wegstein's method on its logarithm.

    Attributes
    ----------
    scale : float
        The scale of the last fit; after `advance`, that of the next.
    target : float
        The scale that the rule returned for the margins of the last fit.
    """

    def __init__(
        self,
        rule: Callable[[Margins], float] | None,
        scale: float,
        *,
        rtol: float = 0.02,
        max_fits: int = 10,
    ) -> None:
        """Begin at a scale; without a rule, that scale is the fixed point."""
        self._rule = rule
        self._rtol = rtol
        self._fits_left = max_fits
        self._last: tuple[float, float] | None = None  # scale and target of the fit before
        self.scale = self.target = scale

    @property
    def converged(self) -> bool:
        """Whether the rule returns the scale of the last fit, to within the tolerance."""
        return abs(self.target - self.scale) <= self._rtol * self.scale

    def is_finished(self, margins: Margins) -> bool:
        """Apply the rule to the margins of a fit; return whether no other fit follows."""
        if self._rule is None:
            return True
        self.target = self._rule(margins)
        self._fits_left -= 1
        return self.converged or self._fits_left == 0

    def advance(self) -> None:
        """Set the scale of the next fit.

        The secant through the last two points (log scale, log target) is intersected with the
        diagonal. Its slope is clipped to [-9, 1/2], so that the step is between 1/10 and 2 times
        that of the plain fixed-point iteration.
        """
        slope = 0.0
        if self._last is not None:
            slope = log(self.target / self._last[1]) / log(self.scale / self._last[0])
        step = log(self.target / self.scale) / (1.0 - min(max(slope, -9.0), 0.5))
        self._last = self.scale, self.target
        self.scale *= exp(step)


def _auto(margins: Margins) -> float:
    """Return max(√2 γ, 2 v/γ), where v = (interquartile range / 1.349)².

    v is the variance of a normal distribution with these quartiles; outliers do not change it.
    """

    def variance(group: Margins) -> FloatArray:
        low, high = group.quantiles((0.25, 0.75))
        return np.asarray(np.square((high - low) / 1.349))

    scale = variance_scale(_bounded_below(margins.average(variance), margins), margins.level)
    return max(SMOOTH_LINK_SCALE * margins.level, float(scale))


def _variance(margins: Margins) -> float:
    variance = margins.average(lambda group: group.variance())
    return float(variance_scale(_bounded_below(variance, margins), margins.level))


def _confidence(margins: Margins) -> float:
    variance = margins.average(lambda group: group.variance())
    return float(confidence_scale(_bounded_below(variance, margins), margins.count))


def _quantile(margins: Margins) -> float:
    def square(group: Margins) -> FloatArray:
        return np.asarray(np.square(group.absolute().quantiles((group.absolute_level,))[0]))

    variance = _bounded_below(margins.average(square), margins)
    return float(confidence_scale(variance, margins.count))


def _bounded_below(variance: float, margins: Margins) -> float:
    """Return the variance, at least (γ/100)²: equal margins leave the scale undetermined."""
    return max(variance, (1e-2 * margins.level) ** 2)


#: Scale rules by the name that the parameter `scale` takes.
SCALE_RULES: dict[str, Callable[[Margins], float]] = {
    "auto": _auto,
    "confidence": _confidence,
    "quantile": _quantile,
    "variance": _variance,
}
