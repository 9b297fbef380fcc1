"""The root that Catoni's estimate of location is, for each row of an array.

Rows count all values the same (`Equal`) or by weights (`Unequal`); the two have the same methods.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from marginpursuit._validation import FloatArray
from marginpursuit.losses import INFLUENCE_BOUND, TRUNCATION, wide_curvature, wide_influence

#: How many values of one long row are worked on at a time, such that they stay in the cache.
_STRETCH = 1 << 14

#: Two sides whose weights differ by no more than this share of the total count as balanced.
_WEIGHT_ROUNDING = 2.0**-50


def power_of_two(size: FloatArray) -> FloatArray:
    """Return the power of two that brings `size` near 1, as near as both it and its inverse go."""
    _, exponent = np.frexp(size)
    power: FloatArray = np.ldexp(1.0, -np.clip(exponent, -1000, 1000))
    return power


_Rows: TypeAlias = slice | NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Equal:
    """Rows of values that all count the same."""

    total: int

    def __getitem__(self, rows: _Rows) -> "Equal":
        return self

    def columns(self, columns: slice) -> "Equal":
        """Return the weights of some columns; the total stays that of all."""
        return self

    def mean(self, values: FloatArray) -> FloatArray:
        """Return the mean of each row, or the share of it that some columns contribute."""
        return np.asarray(values.sum(axis=1) / self.total)

    def tally(self, u: FloatArray) -> FloatArray:
        """Return the weight at u > 1 less that at u < -1, in parts that add up exactly."""
        above, below = np.count_nonzero(u > 1.0, axis=1), np.count_nonzero(u < -1.0, axis=1)
        return np.asarray(above - below, dtype=np.float64)[None]

    def balance(self, tally: FloatArray) -> FloatArray:
        """Return what is tallied as a share of the total; a balance is exactly 0."""
        return np.asarray(tally[0] / self.total)

    def middle(self, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the lower and the upper median."""
        n = values.shape[1]
        low, high = (n - 1) // 2, n // 2
        part = np.partition(values, (low, high), axis=1)
        return part[:, low], part[:, high]


@dataclass(frozen=True, slots=True)
class Unequal:
    """Rows of values with weights; methods as in :class:`Equal`.

    The weights are also held in two parts: coarse, whole multiples of a power of two of which sums
    in any order are exact, and fine, so small that the rounding of their sums does not matter.
    """

    weight: FloatArray
    total: FloatArray
    coarse: FloatArray
    fine: FloatArray

    @classmethod
    def of(cls, weight: FloatArray) -> "Unequal":
        weight = weight * power_of_two(weight.max(axis=1))[:, None]
        quantum = np.ldexp(1.0, np.frexp(weight.sum(axis=1))[1] - 52)[:, None]
        coarse = np.rint(weight / quantum) * quantum
        fine = weight - coarse
        return cls(weight, coarse.sum(axis=1) + fine.sum(axis=1), coarse, fine)

    def __getitem__(self, rows: _Rows) -> "Unequal":
        return Unequal(self.weight[rows], self.total[rows], self.coarse[rows], self.fine[rows])

    def columns(self, columns: slice) -> "Unequal":
        parts = (part[:, columns] for part in (self.weight, self.coarse, self.fine))
        weight, coarse, fine = parts
        return Unequal(weight, self.total, coarse, fine)

    def mean(self, values: FloatArray) -> FloatArray:
        return np.asarray((self.weight * values).sum(axis=1) / self.total)

    def tally(self, u: FloatArray) -> FloatArray:
        side = np.where(np.abs(u) > 1.0, np.sign(u), 0.0)
        return np.stack([(side * self.coarse).sum(axis=1), (side * self.fine).sum(axis=1)])

    def balance(self, tally: FloatArray) -> FloatArray:
        share = (tally[0] + tally[1]) / self.total
        return np.where(np.abs(share) <= _WEIGHT_ROUNDING, 0.0, share)

    def middle(self, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        order = np.argsort(values, axis=1)
        coarse, fine = (np.take_along_axis(w, order, axis=1) for w in (self.coarse, self.fine))
        # The excess of the weight up to each value over the weight beyond it.
        excess = 2.0 * (coarse.cumsum(axis=1) + fine.cumsum(axis=1)) / self.total[:, None] - 1.0
        low = np.argmax(excess >= -_WEIGHT_ROUNDING, axis=1)
        high = np.argmax(excess > _WEIGHT_ROUNDING, axis=1)
        row = np.arange(len(values))
        return values[row, order[row, low]], values[row, order[row, high]]


Weights: TypeAlias = Equal | Unequal


def locator(influence: str) -> Callable[[FloatArray, Weights, FloatArray], FloatArray]:
    """Return what finds the root of each row for an influence function."""
    locators = {"truncated": _locate, "wide": _locate_wide}
    if influence not in locators:
        raise ValueError(f"influence must be one of {sorted(locators)}; got {influence!r}")
    return locators[influence]


def _locate_wide(x: FloatArray, weights: Weights, scale: FloatArray) -> FloatArray:
    """Return the root of each row for the widest influence function.

    The mean of the influences grows strictly, so that bisection is safe between the least and the
    greatest value; Newton's method is quicker, and is trusted where it halves the value.
    """
    low, high = x.min(axis=1), x.max(axis=1)
    point, previous = 0.5 * (low + high), np.full(len(x), np.inf)
    done = np.zeros(len(x), dtype=bool)
    while not done.all():
        u = (point[:, None] - x) / scale[:, None]
        pull = wide_influence(u)
        value, slope = weights.mean(pull), weights.mean(wide_curvature(u)) / scale
        low, high = np.where(value <= 0, point, low), np.where(value >= 0, point, high)
        newton = np.clip(point - value / slope, low, high)
        # What is left is the rounding of the sum, or of the point itself.
        found = np.abs(value) <= 2.0**-50 * weights.mean(np.abs(pull))
        found |= high - low <= 2.0**-52 * np.abs(point)
        trusted = found | (np.abs(value) <= 0.5 * previous)
        following = np.where(trusted, newton, 0.5 * (low + high))
        point, previous = np.where(done, point, following), np.abs(value)
        done |= found
    return np.asarray(point)


def _locate(x: FloatArray, weights: Weights, scale: FloatArray) -> FloatArray:
    """Return the root of each row."""
    low, high = weights.middle(x)
    # Centred at the median, the differences from values near the root keep all their digits.
    centre = 0.5 * (low + high)
    # At s√2 above the upper median no less than half of the weight is out of reach below, so that
    # the root is not higher up; likewise below. Values beyond ±8 scales are out of reach for good.
    ends = ((low - centre) / scale - TRUNCATION, (high - centre) / scale + TRUNCATION)
    z = np.clip((x - centre[:, None]) / scale[:, None], -8.0, 8.0)
    return np.asarray(centre + scale * bracketed_root(z, weights, *ends))


def bracketed_root(
    z: FloatArray, weights: Weights, low: FloatArray, high: FloatArray
) -> FloatArray:
    """Return the root at scale 1 in [low, high] of each row, centred at its median.

    Newton's method from the median, which is the root itself wherever the roots are not unique;
    bisection where a step leaves the bracket or does not halve the value, so that it always ends.
    """
    result = np.empty(len(z))
    rows = np.arange(len(z))
    point = np.zeros(len(z))
    previous = np.full(len(z), np.inf)
    while rows.size:
        value, slope = _equation(point, z, weights)
        low, high = np.where(value <= 0, point, low), np.where(value >= 0, point, high)
        with np.errstate(divide="ignore", invalid="ignore"):
            newton_step = np.where(value == 0, 0.0, value / slope)
        newton = point - newton_step
        # ψ' is √2-Lipschitz, so that after a step h the error is at most √2 h²/slope.
        done = (newton_step**2 <= 2.0**-74 * slope) | (high - low <= 2.0**-51)
        done |= np.abs(newton_step) <= 2.0**-51
        result[rows[done]] = np.clip(newton, low, high)[done]

        trusted = (low < newton) & (newton < high) & (np.abs(value) <= 0.5 * previous)
        point = np.where(trusted, newton, 0.5 * (low + high))
        left = ~done
        rows, point, previous = rows[left], point[left], np.abs(value)[left]
        z, weights, low, high = z[left], weights[left], low[left], high[left]
    return result


def _equation(point: FloatArray, z: FloatArray, weights: Weights) -> tuple[FloatArray, FloatArray]:
    """Return the means of ψ(point - z) and ψ'(point - z) of each row.

    Beyond ±1, ψ is taken as ±B less a small rest. The ±B then cancel exactly in the balance of the
    weights, and the mean is accurate to the size of the rests, even where all but a few values are
    truncated. With d = √2 - |u| the rest is d²(√2/2 - d/6), and ψ' = d(√2 - d/2).
    """
    tally: FloatArray | float = 0.0
    rest, slope = np.zeros(len(z)), np.zeros(len(z))
    for start in range(0, z.shape[1], _STRETCH):
        part = slice(start, start + _STRETCH)
        some = weights.columns(part)
        u = point[:, None] - z[:, part]
        size = np.abs(u)
        gap = np.maximum(TRUNCATION - size, 0.0)
        outer = np.copysign(gap * gap * (0.5 * TRUNCATION - gap / 6.0), u)
        tally = tally + some.tally(u)
        rest += some.mean(np.where(size > 1.0, -outer, u * (1.0 - u * u / 6.0)))
        slope += some.mean(gap * (TRUNCATION - 0.5 * gap))
    return INFLUENCE_BOUND * weights.balance(np.asarray(tally)) + rest, slope
