"""The margins of a fit: their distribution in numbers, and the scale rules that read it."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from marginpursuit._validation import FloatArray
from marginpursuit.location import (
    catoni_location,
    confidence_scale,
    consistent_quantile_scale,
    variance_scale,
)
from marginpursuit.losses import TRUNCATION

#: The levels at which quantiles of the margins are kept.
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


@dataclass(frozen=True, slots=True)
class Margins:
    """Margins y h(x) of all problems, shape (n_rows, n_problems), and the weights of the rows."""

    values: FloatArray
    weights: FloatArray  # sum one
    level: float

    def mean(self) -> FloatArray:
        """Return the mean margin of each problem."""
        return np.asarray(self.weights @ self.values)

    def variance(self) -> FloatArray:
        """Return the variance of the margins of each problem."""
        return np.asarray(self.weights @ np.square(self.values - self.mean()))

    def statistics(self, scale: float) -> "MarginStatistics":
        """Describe the distribution of the margins of each problem."""
        mean = self.mean()
        residual = self.values - mean
        square = residual * residual
        variance = np.asarray(self.weights @ square)
        third = self.weights @ np.multiply(square, residual, out=square)
        skewness = np.divide(third, variance**1.5, out=np.zeros_like(mean), where=variance > 0)
        counted = self.values[self.weights > 0]
        weights = self.weights[self.weights > 0]
        equal = np.ptp(weights) == 0
        return MarginStatistics(
            location=catoni_location(
                counted, scale, axis=0, sample_weight=None if equal else weights
            ),
            mean=mean,
            variance=variance,
            skewness=skewness,
            quantiles=np.quantile(
                counted,
                QUANTILES,
                axis=0,
                weights=None if equal else weights,
                method="inverted_cdf",
            ),
        )


@dataclass(frozen=True, slots=True, eq=False)
class MarginStatistics:
    """The distribution of the training margins y h(x) of each problem, weighted.

    Attributes
    ----------
    location : ndarray of shape (n_problems,)
        Catoni's estimate of location at the scale of the fit.
    mean, variance, skewness : ndarray of shape (n_problems,)
        Moments.
    quantiles : ndarray of shape (7, n_problems)
        Least, 5 %, 25 %, 50 %, 75 %, 95 % and greatest.
    """

    location: FloatArray
    mean: FloatArray
    variance: FloatArray
    skewness: FloatArray
    quantiles: FloatArray


#: The scale, in units of the margin level, from which on the probability link has no flat part
#: between -level and level (the paper's first case of the conditional risk, level/scale ≤ √2/2),
#: and from which on truncation sets in beyond a margin of -level only: beyond a sample that is as
#: wrong as it is asked to be right.
SMOOTH_LINK = TRUNCATION


def _auto(margins: Margins) -> float:
    """Algorithm 1's rule with a variance that outliers do not move, and not below the smooth link.

    s = max(√2 γ, k v/γ), v = (interquartile range / 1.349)², the variance of a normal law.
    """
    low, high = np.quantile(margins.values, (0.25, 0.75), axis=0)
    variance = float(np.mean(((high - low) / 1.349) ** 2))
    rule = variance_scale(variance, margins.level) if variance > 0 else 0.0
    return max(SMOOTH_LINK * margins.level, float(rule))


def _variance(margins: Margins) -> float:
    return float(variance_scale(_positive_variance(margins), margins.level))


def _confidence(margins: Margins) -> float:
    return float(confidence_scale(_positive_variance(margins), len(margins.values)))


def _quantile(margins: Margins) -> float:
    return float(consistent_quantile_scale(margins.values))


def _positive_variance(margins: Margins) -> float:
    # Where all margins are at the level, any scale will do; one far below it would only overflow.
    return max(float(margins.variance().mean()), (1e-3 * margins.level) ** 2)


#: Scale rules by the name that the parameter `scale` takes.
SCALE_RULES: dict[str, Callable[[Margins], float]] = {
    "auto": _auto,
    "confidence": _confidence,
    "quantile": _quantile,
    "variance": _variance,
}
