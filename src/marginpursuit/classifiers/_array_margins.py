"""The margins of a fit, where the data is in an array that NumPy cannot read in place.

The numbers are those of `Margins`, up to the rounding of the margins themselves, which are in
float32 for data that float32 holds. Sums are in float64.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from marginpursuit._namespaces import beside, namespace, to_numpy
from marginpursuit._validation import FloatArray
from marginpursuit.classifiers._margins import QUANTILES, ROUNDING, Margins
from marginpursuit.losses import RHOS
from marginpursuit.tasks import Labels

# Steps after which bounds have closed in on a location.
_MOST_STEPS = 100


def margins_of(scores: Any, labels: Labels, weights: Any, count: float, level: float) -> Margins:
    """Turn the scores of all rows into margins, where they are."""
    if isinstance(scores, np.ndarray):
        return Margins.of(scores, labels, weights, count, level)
    xp = namespace(scores)
    positive = beside(labels.codes, labels.positive_classes, labels.codes.dtype)
    is_own = labels.codes[:, None] == positive[None, :]
    values = xp.where(is_own, scores, -scores)
    if not bool(xp.all(weights > 0)):
        (counted,) = xp.nonzero(weights)
        values, weights = xp.take(values, counted, axis=0), xp.take(weights, counted, axis=0)
    if not bool(xp.min(weights) == xp.max(weights)):
        return ArrayMargins(values, weights, count, level)
    # Rules and statistics both ask for quantiles. Sorted in one go, if that is no burden on memory.
    is_sorted = values.shape[0] * values.shape[1] <= ArrayMargins.group_elements
    values = xp.sort(values, axis=0) if is_sorted else values
    return ArrayMargins(values, None, count, level, is_sorted)


@dataclass(frozen=True, slots=True)
class ArrayMargins(Margins):
    """Margins as an array of another library."""

    values: Any
    weights: Any  # none where all are equal
    is_sorted: bool = False  # whether the margins of each problem rise

    group_elements: ClassVar[int] = 1 << 28

    def absolute(self) -> "ArrayMargins":
        return replace(self, values=abs(self.values), is_sorted=False)

    def variance(self) -> FloatArray:
        residual = self.values - self._typed(self._mean(self.values))
        return to_numpy(self._mean(residual * residual))

    def quantiles(self, levels: tuple[float, ...]) -> FloatArray:
        xp, last = namespace(self.values), self.values.shape[0] - 1
        if self.weights is None:
            ordered = self.values if self.is_sorted else xp.sort(self.values, axis=0)
            place = (last + 1) * np.array(levels)
            low, high = np.ceil(place * (1.0 - ROUNDING)) - 1, np.floor(place * (1.0 + ROUNDING))
            ends = np.clip([low, high], 0, last).astype(np.int64)
            found = [to_numpy(xp.take(ordered, beside(ordered, end), axis=0)) for end in ends]
            return np.asarray(np.mean(found, axis=0, dtype=np.float64))
        rounding = ROUNDING * np.minimum(levels, 1.0 - np.array(levels))
        columns = []
        for k in range(self.values.shape[1]):
            values = self.values[:, k]
            order = xp.argsort(values, axis=0)
            share = xp.cumulative_sum(xp.take(self.weights, order, axis=0), axis=0)
            share = share / share[-1]
            low = xp.searchsorted(share, beside(share, levels - rounding))
            high = xp.searchsorted(share, beside(share, levels + rounding), side="right")
            ends = (xp.take(order, xp.clip(end, 0, last), axis=0) for end in (low, high))
            found = [to_numpy(xp.take(values, end, axis=0)) for end in ends]
            columns.append(np.mean(found, axis=0, dtype=np.float64))
        return np.column_stack(columns)

    def _describe(self, scale: float, n_threads: int) -> tuple[FloatArray, ...]:
        mean = self._mean(self.values)
        residual = self.values - self._typed(mean)
        square = residual * residual
        variance, third = (to_numpy(self._mean(x)) for x in (square, square * residual))
        skewness = np.divide(third, variance**1.5, out=np.zeros_like(third), where=variance > 0)
        location = self._locate_from(scale, to_numpy(mean))
        return location, to_numpy(mean), variance, skewness, self.quantiles(QUANTILES)

    def _locate_from(self, scale: float, start: FloatArray) -> FloatArray:
        """Return Catoni's location, by Newton's method within bounds that close in.

        The sum of ψ((θ - m)/s) rises with θ; where it is flat, the bounds are halved.
        """
        xp, catoni = namespace(self.values), RHOS["catoni"]
        low, high = (to_numpy(end(self.values, axis=0)).astype(float) for end in (xp.min, xp.max))
        place, rounding = start, 8 * float(xp.finfo(self.values.dtype).eps)
        for _ in range(_MOST_STEPS):
            ratio = (self._typed(beside(self.values, place)) - self.values) / scale
            pull = to_numpy(self._mean(catoni.influence(ratio)))
            slope = to_numpy(self._mean(catoni.curvature(ratio)))
            low, high = np.where(pull < 0, place, low), np.where(pull > 0, place, high)
            step = np.divide(scale * pull, slope, out=np.full_like(pull, np.inf), where=slope > 0)
            ahead = place - np.where(pull == 0, 0.0, step)
            ahead = np.where((ahead >= low) & (ahead <= high), ahead, 0.5 * (low + high))
            place, moved = ahead, np.abs(ahead - place)
            if np.all(moved <= rounding * (scale + np.abs(place))):
                break
        return place

    def _mean(self, values: Any) -> Any:
        xp = namespace(values)
        if self.weights is None:
            return xp.sum(values, axis=0, dtype=xp.float64) / values.shape[0]
        return xp.sum(values * self.weights[:, None], axis=0, dtype=xp.float64)

    def _typed(self, row: Any) -> Any:
        """Return one number for each problem in the dtype of the margins."""
        return namespace(row).astype(row, self.values.dtype)[None, :]
