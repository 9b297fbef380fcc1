"""The margins of a fit: their distribution in numbers, and the scale rules that read it."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from marginpursuit._validation import FloatArray
from marginpursuit.location import catoni_location, confidence_scale, variance_scale
from marginpursuit.losses import TRUNCATION
from marginpursuit.tasks import Labels

#: The levels at which quantiles of the margins are kept.
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)

#: The level of the quantile of the absolute margins that a scale rule reads.
ABSOLUTE_LEVEL = 0.75

# Margins from which on to start a thread takes less than it saves.
_WORTH_A_THREAD = 1 << 14

#: Shares of the weight that differ by no more than this, relatively, differ by rounding.
ROUNDING = 1e-10


@dataclass(frozen=True, slots=True)
class Margins:
    """Margins y h(x) of all problems, shape (n_rows, n_problems), and the weights of the rows."""

    values: FloatArray
    weights: FloatArray  # positive, sum one
    count: float  # the number of rows that the weights stand for
    level: float

    #: Margins that are worked on at a time, so that intermediate arrays stay small beside the data.
    group_elements: ClassVar[int] = 1 << 18

    @classmethod
    def of(
        cls, scores: FloatArray, labels: Labels, weights: FloatArray, count: float, level: float
    ) -> "Margins":
        """Turn the scores of all rows, which are overwritten, into margins."""
        for k, problem in enumerate(labels.positive_classes):
            column = scores[:, k]
            np.negative(column, out=column, where=labels.codes != problem)
        counted = weights > 0
        if not counted.all():
            scores, weights = scores[counted], weights[counted]
        return cls(scores, weights, count, level)

    def average(self, measure: Callable[["Margins"], FloatArray]) -> float:
        """Return the mean over the problems of what `measure` says of each."""
        return float(np.mean(np.concatenate([measure(group) for group in self._groups()])))

    def absolute(self) -> "Margins":
        """Return the sizes of the margins."""
        return replace(self, values=np.abs(self.values))

    def variance(self) -> FloatArray:
        """Return the variance of each problem."""
        return self.weights @ np.square(self.values - self.weights @ self.values)

    def quantiles(self, levels: tuple[float, ...]) -> FloatArray:
        """Return quantiles of each problem, of shape (n_levels, n_problems).

        A weight of 2 counts as the row twice: the quantile is the first value up to which the
        share of the weight exceeds the level; where it meets the level, halfway to the next value.
        """
        if self._equal_weights:
            return np.quantile(self.values, levels, axis=0, method="averaged_inverted_cdf")
        return np.asarray(0.5 * self.quantile_ends(levels).sum(axis=0))

    def quantile_ends(self, levels: tuple[float, ...]) -> FloatArray:
        """Return the two values whose mean is a quantile, of shape (2, n_levels, n_problems)."""
        shares = np.array(levels)
        rounding = ROUNDING * np.minimum(shares, 1.0 - shares)
        result = np.empty((2, len(levels), self.values.shape[1]))
        for k, values in enumerate(self.values.T):
            order = np.argsort(values)
            share = np.cumsum(self.weights[order])
            share /= share[-1]
            low = np.searchsorted(share, shares - rounding)
            high = np.searchsorted(share, shares + rounding, side="right")
            result[:, :, k] = values[order[np.minimum([low, high], len(order) - 1)]]
        return result

    def statistics(self, scale: float, n_threads: int = 1) -> "MarginStatistics":
        """Describe the distribution of the margins of each problem."""
        described = (group._describe(scale, n_threads) for group in self._groups())
        parts = zip(*described, strict=True)
        return MarginStatistics(*(np.concatenate(part, axis=-1) for part in parts))

    @property
    def _equal_weights(self) -> bool:
        return bool(self.weights.min() == self.weights.max())

    def _groups(self) -> Iterator["Margins"]:
        """Yield the margins of some problems at a time."""
        n_rows, n_problems = self.values.shape
        step = max(1, self.group_elements // n_rows)
        for first in range(0, n_problems, step):
            values = self.values[:, first : min(first + step, n_problems)]
            yield replace(self, values=values)

    def _describe(self, scale: float, n_threads: int) -> tuple[FloatArray, ...]:
        if n_threads > 1 and self.values.size > _WORTH_A_THREAD:
            with ThreadPoolExecutor(1) as pool:  # the location takes as long as all the rest
                location = pool.submit(self._locate, scale)
                shape = self._shape()
                return location.result(), *shape
        return self._locate(scale), *self._shape()

    def _locate(self, scale: float) -> FloatArray:
        weights = None if self._equal_weights else self.weights
        return np.asarray(catoni_location(self.values, scale, axis=0, sample_weight=weights))

    def _shape(self) -> tuple[FloatArray, ...]:
        mean = self.weights @ self.values
        residual = self.values - mean
        square = np.square(residual)
        variance = self.weights @ square
        third = self.weights @ np.multiply(square, residual, out=square)
        skewness = np.divide(third, variance**1.5, out=np.zeros_like(mean), where=variance > 0)
        return mean, variance, skewness, self.quantiles(QUANTILES)


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

    def variance(group: Margins) -> FloatArray:
        low, high = group.quantiles((0.25, 0.75))
        return np.asarray(np.square((high - low) / 1.349))

    rule = variance_scale(_positive(margins.average(variance), margins), margins.level)
    return max(SMOOTH_LINK * margins.level, float(rule))


def _variance(margins: Margins) -> float:
    variance = margins.average(lambda group: group.variance())
    return float(variance_scale(_positive(variance, margins), margins.level))


def _confidence(margins: Margins) -> float:
    variance = margins.average(lambda group: group.variance())
    return float(confidence_scale(_positive(variance, margins), margins.count))


def _quantile(margins: Margins) -> float:
    def square(group: Margins) -> FloatArray:
        return np.asarray(np.square(group.absolute().quantiles((ABSOLUTE_LEVEL,))[0]))

    return float(confidence_scale(_positive(margins.average(square), margins), margins.count))


def _positive(variance: float, margins: Margins) -> float:
    # Where all margins are at the level, any scale will do that is not far below it.
    return max(variance, (1e-2 * margins.level) ** 2)


#: Scale rules by the name that the parameter `scale` takes.
SCALE_RULES: dict[str, Callable[[Margins], float]] = {
    "auto": _auto,
    "confidence": _confidence,
    "quantile": _quantile,
    "variance": _variance,
}
