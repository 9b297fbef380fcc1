"""The margins of a fit whose rows come in blocks: they stay where the blocks are.

What leaves a block is a summary, of a size that hardly grows with its rows: margins are sorted into
*cells*, intervals of floats that share their leading bits, and of each cell there are weight, mean
and central moments up to the third. Summaries of blocks join without loss.

For most cells two points stand that have the same moments, those of Gauss's quadrature; they lie
within the cell. The sum of any cubic polynomial is then the same, and with it mean, variance and
skewness, and the sum of influences, as ψ is cubic up to where it is truncated and constant beyond.
The other cells, those that hold a quantile or in which truncation begins, are asked for again, in
finer cells and in the end value by value. So the statistics are those of a small weighted sample,
and the same as those of all margins but for rounding.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import count as count_from
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from marginpursuit._validation import FloatArray
from marginpursuit.classifiers._margins import ABSOLUTE_LEVEL, QUANTILES, Margins
from marginpursuit.design import BlockDesign, Linear
from marginpursuit.location import catoni_location
from marginpursuit.losses import TRUNCATION, MarginLoss
from marginpursuit.tasks import Labels

# Leading bits that the floats of a cell share: sign, exponent and six bits of the mantissa; how
# many more those of finer cells share; and the most values that are asked for one by one.
_FIRST_BITS, _MORE_BITS, _ALL_BITS = 18, 8, 64
_FEW = 1 << 15

#: The first and last float of some intervals, by their place among all floats.
_Intervals: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64]]


def block_margins(
    design: BlockDesign,
    linear: Linear,
    labels: Labels,
    weights: FloatArray,
    count: float,
    loss: MarginLoss,
) -> Margins:
    """Make margins of the scores of all rows, in one read, to be described at the loss's scale."""
    is_equal = bool(weights.min() == weights.max())
    vectors = (labels.codes,) if is_equal else (labels.codes, weights)
    held = design.hold_scores(partial(_sorted_margins, labels.positive_classes), *linear, *vectors)
    found: Sequence[_Cells] = held.total(partial(_cells, within=None, bits=_FIRST_BITS))
    for bits in count_from(_FIRST_BITS + _MORE_BITS, _MORE_BITS):
        wanted = [cells.unresolved(loss) for cells in found]
        n_values = sum(c.size[which].sum() for c, which in zip(found, wanted, strict=True))
        if not n_values:
            break
        within = [(c.first[which], c.last[which]) for c, which in zip(found, wanted, strict=True)]
        bits = _ALL_BITS if n_values <= _FEW else min(bits, _ALL_BITS)
        finer = held.total(partial(_cells, within=within, bits=bits))
        found = [c.but(which) + f for c, which, f in zip(found, wanted, finer, strict=True)]
    samples = tuple(replace(cells.sample(loss.margin), count=count) for cells in found)
    return BlockMargins(samples[0].values, samples[0].weights, count, loss.margin, samples)


@dataclass(frozen=True, slots=True)
class BlockMargins(Margins):
    """Margins of which each problem has a sample of its own."""

    samples: tuple[Margins, ...]

    def _groups(self) -> Iterator[Margins]:
        return iter(self.samples)


@dataclass(frozen=True, slots=True)
class _Cells:
    """Margins of one problem in intervals that do not overlap, in rising order."""

    first: NDArray[np.int64]  # the place of the least float of a cell, and of the greatest
    last: NDArray[np.int64]
    size: FloatArray  # the number of margins
    weight: FloatArray
    mean: FloatArray
    second: FloatArray  # the sum of weight times square about the mean
    third: FloatArray

    def __add__(self, other: "_Cells") -> "_Cells":
        """Join the cells of two sets of rows."""
        pairs = ((getattr(self, f.name), getattr(other, f.name)) for f in fields(self))
        return _joined(*(np.concatenate(pair) for pair in pairs))

    def but(self, which: NDArray[np.bool_]) -> "_Cells":
        """Return the other cells."""
        return _Cells(*(getattr(self, f.name)[~which] for f in fields(self)))

    def sample(self, level: float) -> Margins:
        """Return two margins for each cell, which have its moments up to the third."""
        spread = np.sqrt(self.second / self.weight)
        cubes = self.weight * spread**3
        skewness = np.divide(self.third, cubes, out=np.zeros_like(spread), where=cubes > 0)
        # In units of the spread the points are u and -1/u, where u - 1/u is the skewness.
        larger = 0.5 * np.abs(skewness) + np.hypot(1.0, 0.5 * skewness)
        up = np.where(skewness >= 0, larger, 1.0 / larger)
        low, high = _floats(self.first), _floats(self.last)
        values = np.clip([self.mean - spread / up, self.mean + spread * up], low, high)
        share = 1.0 / (1.0 + up * up)
        weights = self.weight / self.weight.sum() * np.array([1.0 - share, share])
        return Margins(values.reshape(-1, 1), weights.ravel(), 0.0, level)

    def unresolved(self, loss: MarginLoss) -> NDArray[np.bool_]:
        """Tell the cells of which a statistic at this scale depends on more than the moments."""
        sample = self.sample(loss.margin)
        location = catoni_location(sample.values[:, 0], loss.scale, sample_weight=sample.weights)
        bend = TRUNCATION * loss.scale
        size = sample.absolute().quantile_ends((ABSOLUTE_LEVEL,)).ravel()
        ends = sample.quantile_ends(QUANTILES).ravel()
        places = _places(np.concatenate([ends, [location - bend, location + bend], size, -size]))
        cell = np.maximum(np.searchsorted(self.first, places, side="right") - 1, 0)
        which = np.zeros(len(self.first), dtype=bool)
        which[cell[places <= self.last[cell]]] = True
        return which & (self.second > 0)  # or all margins are equal, but for less than 1e-150


def _joined(
    first: NDArray[np.int64],
    last: NDArray[np.int64],
    size: FloatArray,
    weight: FloatArray,
    mean: FloatArray,
    second: FloatArray,
    third: FloatArray,
) -> _Cells:
    """Join what is in the same cell."""
    order = np.argsort(first, kind="stable")
    starts = np.flatnonzero(np.diff(first[order], prepend=first[order[:1]] - 1))
    lengths = np.diff(starts, append=len(order))

    def total(values: FloatArray) -> FloatArray:
        return np.add.reduceat(values, starts) if len(starts) else values

    size, weight, mean, second, third = (x[order] for x in (size, weight, mean, second, third))
    anchor, weights = mean[starts], total(weight)  # equal values have their value for a mean
    shift = total(weight * (mean - np.repeat(anchor, lengths))) / weights
    apart = mean - np.repeat(anchor + shift, lengths)
    part = weight * apart * apart
    return _Cells(
        *(first[order[starts]], last[order[starts]], total(size), weights, anchor + shift),
        total(second + part),
        total(third + apart * (3.0 * second + part)),
    )


def _sorted_margins(
    problems: NDArray[np.intp],
    scores: FloatArray,
    codes: NDArray[np.integer[Any]],
    weights: FloatArray | None = None,
) -> tuple[FloatArray, FloatArray | None]:
    """Turn the scores of a block into margins, in rising order for each problem."""
    is_own = codes == problems[:, np.newaxis]
    margins = np.where(is_own, scores.T, -scores.T)
    if weights is None:
        margins.sort(axis=1)
        return margins, None
    margins, weights = margins[:, weights > 0], weights[weights > 0]
    order = np.argsort(margins, axis=1)
    return np.take_along_axis(margins, order, axis=1), weights[order]


def _cells(
    held: tuple[FloatArray, FloatArray | None], within: Sequence[_Intervals] | None, bits: int
) -> Any:
    """Return the cells of each problem of a block, or of its margins within some intervals."""
    margins, weights = held
    found = np.empty(len(margins), dtype=object)  # such arrays are added entry by entry
    for k, values in enumerate(margins):
        places, rows = _places(values), np.arange(len(values))
        if within is not None:
            starts = np.searchsorted(places, within[k][0])
            ends = np.searchsorted(places, within[k][1], side="right")
            kept = [rows[a:b] for a, b in zip(starts, ends, strict=True)]
            rows = np.concatenate(kept) if kept else rows[:0]
        values, places, ones = values[rows], places[rows], np.ones(len(rows))
        rest = np.int64((1 << (_ALL_BITS - bits)) - 1)
        found[k] = _joined(
            *(places & ~rest, places | rest, ones, ones if weights is None else weights[k, rows]),
            *(values, 0.0 * ones, 0.0 * ones),
        )
    return found


def _places(values: FloatArray) -> NDArray[np.int64]:
    """Return whole numbers that are in the order of the floats, negative ones flipped."""
    bits = np.ascontiguousarray(values).view(np.int64)
    return bits ^ ((bits >> 63) & np.iinfo(np.int64).max)


def _floats(places: NDArray[np.int64]) -> FloatArray:
    """Invert `_places`."""
    return (places ^ ((places >> 63) & np.iinfo(np.int64).max)).view(np.float64)
