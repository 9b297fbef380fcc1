"""The root of Catoni's equation for the location, for each row of an array.

The values of a row have equal weights (`Equal`) or given ones (`Unequal`); the two classes have the
same methods.
"""

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from marginpursuit._validation import FloatArray
from marginpursuit.losses import INFLUENCE_BOUND, TRUNCATION, wide_curvature, wide_influence


def power_of_two(size: FloatArray) -> FloatArray:
    """Return the power of two 2⁻ᵏ for `size` in [2ᵏ⁻¹, 2ᵏ), where k is at most 1000 in size."""
    _, exponent = np.frexp(size)
    power: FloatArray = np.ldexp(1.0, -np.clip(exponent, -1000, 1000))
    return power


_Rows: TypeAlias = slice | NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Equal:
    """Rows of values with equal weights."""

    total: int

    def __getitem__(self, rows: _Rows) -> "Equal":
        return self

    def columns(self, columns: slice) -> "Equal":
        """Return the weights of some columns; the total stays that of all."""
        return self

    def mean(self, values: FloatArray) -> FloatArray:
        """Return the mean of each row, or the contribution of some columns to it."""
        return np.asarray(values.sum(axis=1) / self.total)

    def tally(self, u: FloatArray) -> FloatArray:
        """Return the weight at u > 1 minus the weight at u < -1, as terms of an exact sum."""
        above, below = np.count_nonzero(u > 1.0, axis=1), np.count_nonzero(u < -1.0, axis=1)
        return np.asarray(above - below, dtype=np.float64)[None]

    def balance(self, tally: FloatArray) -> FloatArray:
        """Return a tally as a fraction of the total weight; of balanced sides it is exactly 0."""
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

    The weights are stored as sums of a coarse and a fine part. Coarse parts are multiples of a
    power of two, and their sums in any order are exact; the rounding errors of sums of fine parts
    are negligible. Two sides whose weights differ by at most `rounding` of the total are balanced.
    """

    weight: FloatArray
    total: FloatArray
    coarse: FloatArray
    fine: FloatArray
    rounding: ClassVar[float] = 2.0**-50

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
        weight, coarse = self.weight[:, columns], self.coarse[:, columns]
        return Unequal(weight, self.total, coarse, self.fine[:, columns])

    def mean(self, values: FloatArray) -> FloatArray:
        return np.asarray((self.weight * values).sum(axis=1) / self.total)

    def tally(self, u: FloatArray) -> FloatArray:
        side = np.where(np.abs(u) > 1.0, np.sign(u), 0.0)
        return np.stack([(side * self.coarse).sum(axis=1), (side * self.fine).sum(axis=1)])

    def balance(self, tally: FloatArray) -> FloatArray:
        fraction = (tally[0] + tally[1]) / self.total
        return np.where(np.abs(fraction) <= self.rounding, 0.0, fraction)

    def middle(self, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        order = np.argsort(values, axis=1)
        coarse, fine = (np.take_along_axis(w, order, axis=1) for w in (self.coarse, self.fine))
        # The weight up to each value minus the weight beyond it, as a fraction of the total.
        excess = 2.0 * (coarse.cumsum(axis=1) + fine.cumsum(axis=1)) / self.total[:, None] - 1.0
        low = np.argmax(excess >= -self.rounding, axis=1)
        high = np.argmax(excess > self.rounding, axis=1)
        row = np.arange(len(values))
        return values[row, order[row, low]], values[row, order[row, high]]


Weights: TypeAlias = Equal | Unequal


@np.errstate(over="ignore", under="ignore")
def catoni_roots(
    rows: FloatArray,
    weight: FloatArray | None,
    scale: FloatArray,
    influence: str = "truncated",
    *,
    in_deviations: bool = False,
    block_elements: int = 1 << 16,
) -> FloatArray:
    """Return the root of each row of finite values, whose weights are equal if None.

    Each row has a scale; with `in_deviations` it is a multiple of its standard deviation. Rows are
    processed in blocks whose intermediate results fit the cache.
    """
    locators = {"truncated": _locate, "wide": _locate_wide}
    if influence not in locators:
        raise ValueError(f"influence must be one of {sorted(locators)}; got {influence!r}")
    weights: Weights = Equal(rows.shape[1])
    if weight is not None:
        # Values of weight zero are replaced by one of positive weight, so that the least and the
        # greatest value have positive weight.
        heaviest = np.take_along_axis(rows, weight.argmax(axis=1, keepdims=True), axis=1)
        rows, weights = np.where(weight > 0, rows, heaviest), Unequal.of(weight)
    # Multiplication by a power of two is exact; it keeps squares and cubes in the range of floats.
    power = power_of_two(np.maximum(rows.max(axis=1), -rows.min(axis=1)))
    rows = rows * power[:, None]
    unit = power
    if in_deviations:
        deviation = rows - weights.mean(rows)[:, None]
        unit = np.sqrt(weights.mean(deviation * deviation))
    # The values are near 1; at scales outside these bounds the estimate is constant.
    scales = np.clip(unit * scale, 2.0**-900, 2.0**200)
    found = np.empty(len(rows))
    step = max(1, block_elements // rows.shape[1])
    for start in range(0, len(rows), step):
        block = slice(start, start + step)
        found[block] = locators[influence](rows[block], weights[block], scales[block])
    return found / power


def _locate_wide(x: FloatArray, weights: Weights, scale: FloatArray) -> FloatArray:
    """Return the root of each row for the widest influence function.

    The mean influence is strictly increasing, and its root lies between the least and the greatest
    value. A Newton step is accepted if the last one halved the mean influence; bisection otherwise.
    """
    low, high = x.min(axis=1), x.max(axis=1)
    point, previous = 0.5 * (low + high), np.full(len(x), np.inf)
    done = np.zeros(len(x), dtype=bool)
    while not done.all():
        u = (point[:, None] - x) / scale[:, None]
        influence = wide_influence(u)
        value, slope = weights.mean(influence), weights.mean(wide_curvature(u)) / scale
        low, high = np.where(value <= 0, point, low), np.where(value >= 0, point, high)
        newton = np.clip(point - value / slope, low, high)
        # The residual is the rounding error of the sum, or the bracket that of the point.
        found = np.abs(value) <= 2.0**-50 * weights.mean(np.abs(influence))
        found |= high - low <= 2.0**-52 * np.abs(point)
        trusted = found | (np.abs(value) <= 0.5 * previous)
        following = np.where(trusted, newton, 0.5 * (low + high))
        point, previous = np.where(done, point, following), np.abs(value)
        done |= found
    return np.asarray(point)


def _locate(x: FloatArray, weights: Weights, scale: FloatArray) -> FloatArray:
    """Return the root of each row."""
    low, high = weights.middle(x)
    # Centring at the median keeps all digits of the differences from values near the root.
    centre = 0.5 * (low + high)
    # At s√2 above the upper median at least half of the weight has the influence B, so that the
    # mean influence is not negative there; likewise below. Values beyond ±8 scales have the
    # influence ±B in the whole bracket.
    ends = ((low - centre) / scale - TRUNCATION, (high - centre) / scale + TRUNCATION)
    z = np.clip((x - centre[:, None]) / scale[:, None], -8.0, 8.0)
    return np.asarray(centre + scale * bracketed_root(z, weights, *ends))


def bracketed_root(
    z: FloatArray, weights: Weights, low: FloatArray, high: FloatArray
) -> FloatArray:
    """Return the root at scale 1 in [low, high] of each row, centred at its median.

    Newton's method starts at the median, which is the root itself wherever the roots are not
    unique. A step that leaves the bracket or does not halve the value is replaced by bisection,
    which guarantees convergence.
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
        active = ~done
        rows, point, previous = rows[active], point[active], np.abs(value)[active]
        z, weights, low, high = z[active], weights[active], low[active], high[active]
    return result


def _equation(point: FloatArray, z: FloatArray, weights: Weights) -> tuple[FloatArray, FloatArray]:
    """Return the means of ψ(point - z) and ψ'(point - z) of each row.

    Beyond ±1, ψ is ±B plus a small rest. The terms ±B cancel exactly in the balance of the weights,
    so that the mean is accurate relative to the rests, even if most values are truncated.
    """
    chunk = 1 << 14  # values of one long row whose intermediate results fit the cache
    tally: FloatArray | float = 0.0
    rest, slope = np.zeros(len(z)), np.zeros(len(z))
    for start in range(0, z.shape[1], chunk):
        columns = slice(start, start + chunk)
        some = weights.columns(columns)
        u = point[:, None] - z[:, columns]
        rests, curvatures = _influence_by_parts(u)
        tally = tally + some.tally(u)
        rest += some.mean(rests)
        slope += some.mean(curvatures)
    return INFLUENCE_BOUND * weights.balance(np.asarray(tally)) + rest, slope


def _influence_by_parts(u: FloatArray) -> tuple[FloatArray, FloatArray]:
    r"""Return the rest of the influence and the curvature at each u, for sums that cancel.

    For \|u\| > 1, ψ(u) = sign(u) B + rest with the rest -sign(u) d²(√2/2 - d/6), where
    d = √2 - \|u\|; the curvature is d(√2 - d/2). For \|u\| ≤ 1 the rest is ψ(u) itself.
    """
    size = np.abs(u)
    gap = np.maximum(TRUNCATION - size, 0.0)
    outer = np.copysign(gap * gap * (0.5 * TRUNCATION - gap / 6.0), u)
    rest = np.where(size > 1.0, -outer, u * (1.0 - u * u / 6.0))
    return rest, gap * (TRUNCATION - 0.5 * gap)
