"""The margins of a fit whose rows come in blocks, without collecting them in one place.

Each block returns a summary whose size depends little on its number of rows. Its margins are
binned into *cells*: intervals of floats that share their leading bits. A cell stores the weight,
the mean and the second and third central moments of its margins. The summaries of two blocks
combine exactly.

A cell is represented by two weighted points with the same moments, the nodes of the two-point Gauss
quadrature. The points reproduce the sum of every cubic polynomial: mean, variance, skewness, and,
since Catoni's ψ is cubic up to its truncation and constant beyond, the sum of influences. A cell
that contains a quantile or the truncation point of ψ is *unresolved*: it is refined into smaller
cells and finally into single values. The statistics of the resulting weighted sample therefore
equal those of all margins up to rounding.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from marginpursuit._validation import FloatArray
from marginpursuit.blocks import BlockResults
from marginpursuit.classifiers._margins import QUANTILES, Margins
from marginpursuit.design import BlockDesign, Linear, Standardisation
from marginpursuit.location import catoni_location
from marginpursuit.losses import TRUNCATION, JointLoss, MarginLoss
from marginpursuit.tasks import Labels, LabelSets

#: The first and last float of some intervals, as integers in the order of the floats.
_Intervals: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class CellPolicy:
    """Sizes of the summaries of margins."""

    first_bits: int = (
        18  # leading bits that the floats of a cell share: sign, exponent, 6 bits more
    )
    more_bits: int = 8  # by which a refinement extends them
    max_values: int = 1 << 15  # unresolved margins of a tile that are returned one by one
    max_margins: int = 1 << 25  # of a tile of binary problems, which are kept until it is finished


def block_margins(
    design: BlockDesign,
    standardisation: Standardisation,
    linear: Linear,
    labels: Labels,
    weights: FloatArray,
    total_weight: float,
    loss: MarginLoss | JointLoss,
    policy: CellPolicy | None = None,
) -> Margins:
    """Return margins whose statistics at the scale of the loss are those of all rows.

    Each tile of binary problems takes one pass over the data; a joint loss, with one margin per
    row, is one tile.
    """
    policy = CellPolicy() if policy is None else policy
    is_equal = bool(weights.min() == weights.max())
    vectors = (labels.codes,) if is_equal else (labels.codes, weights)
    samples = list[Margins]()
    for (coef, intercept), margins in _tiles(design, linear, labels, loss, policy.max_margins):
        make = partial(_sorted_margins, margins)
        results = design.persist_scores(make, coef, intercept, standardisation, *vectors)
        found = _resolved_cells(results, loss, policy)
        samples += [
            replace(cells.sample(loss.margin), total_weight=total_weight) for cells in found
        ]
    first = samples[0]
    return BlockMargins(first.values, first.weights, total_weight, loss.margin, tuple(samples))


def _tiles(
    design: BlockDesign,
    linear: Linear,
    labels: Labels,
    loss: MarginLoss | JointLoss,
    max_margins: int,
) -> Iterator[tuple[Linear, Callable[..., FloatArray]]]:
    """Yield the coefficients of some problems, and the function of their margins."""
    if isinstance(loss, JointLoss):
        yield linear, partial(_joint_margins, loss)
        return
    n_problems, size = len(linear[1]), max(1, max_margins // design.n_rows)
    for first in range(0, n_problems, size):
        tile = slice(first, min(first + size, n_problems))
        positive = labels.positive_classes[tile]
        is_set = isinstance(labels, LabelSets)
        margins = partial(_margins_of_labels if is_set else _margins_against_rest, positive)
        yield (linear[0][:, tile], linear[1][tile]), margins


def _resolved_cells(
    results: BlockResults,
    loss: MarginLoss | JointLoss,
    policy: CellPolicy,
) -> "Sequence[_Cells]":
    """Return the cells of each problem, refined until they determine every statistic."""
    bits = policy.first_bits
    found: Sequence[_Cells] = results.total(partial(_cells, within=None, bits=bits))
    while True:
        unresolved = [cells.unresolved(loss) for cells in found]
        pairs = list(zip(found, unresolved, strict=True))
        n_values = sum(cells.size[which].sum() for cells, which in pairs)
        if not n_values:
            return found
        bits = 64 if n_values <= policy.max_values else min(bits + policy.more_bits, 64)
        within = [(cells.first[which], cells.last[which]) for cells, which in pairs]
        finer = results.total(partial(_cells, within=within, bits=bits))
        found = [
            cells.without(which) + refined
            for (cells, which), refined in zip(pairs, finer, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class BlockMargins(Margins):
    """Margins with one weighted sample for each binary problem."""

    samples: tuple[Margins, ...]

    def _groups(self) -> Iterator[Margins]:
        return iter(self.samples)


@dataclass(frozen=True, slots=True)
class _Cells:
    """Margins of one problem in disjoint intervals, in ascending order."""

    first: NDArray[np.int64]  # the first float of each cell, as an integer
    last: NDArray[np.int64]
    size: FloatArray  # the number of margins
    weight: FloatArray
    mean: FloatArray
    second: FloatArray  # the weighted sum of squares about the mean
    third: FloatArray  # the weighted sum of cubes about the mean

    def __add__(self, other: "_Cells") -> "_Cells":
        """Combine the cells of two sets of rows."""
        pairs = ((getattr(self, f.name), getattr(other, f.name)) for f in fields(self))
        return _combined(*(np.concatenate(pair) for pair in pairs))

    def without(self, which: NDArray[np.bool_]) -> "_Cells":
        """Return the other cells."""
        return _Cells(*(getattr(self, f.name)[~which] for f in fields(self)))

    def sample(self, level: float) -> Margins:
        """Return two weighted points for each cell, with its moments up to the third."""
        deviation = np.sqrt(self.second / self.weight)
        cubes = self.weight * deviation**3
        skewness = np.divide(self.third, cubes, out=np.zeros_like(deviation), where=cubes > 0)
        # In units of the standard deviation the points are u and -1/u, with u - 1/u the skewness.
        larger = 0.5 * np.abs(skewness) + np.hypot(1.0, 0.5 * skewness)
        up = np.where(skewness >= 0, larger, 1.0 / larger)
        low, high = _floats(self.first), _floats(self.last)
        values = np.clip([self.mean - deviation / up, self.mean + deviation * up], low, high)
        upper = 1.0 / (1.0 + up * up)
        weights = self.weight / self.weight.sum() * np.array([1.0 - upper, upper])
        return Margins(values.reshape(-1, 1), weights.ravel(), 0.0, level)

    def unresolved(self, loss: MarginLoss | JointLoss) -> NDArray[np.bool_]:
        """Return a mask of the cells whose moments do not determine every statistic."""
        sample = self.sample(loss.margin)
        location = catoni_location(sample.values[:, 0], loss.scale, sample_weight=sample.weights)
        truncation = TRUNCATION * loss.scale
        size = sample.absolute().quantile_ends((sample.absolute_level,)).ravel()
        ends = sample.quantile_ends(QUANTILES).ravel()
        bends = np.array([location - truncation, location + truncation])
        keys = _keys(np.concatenate([ends, bends, size, -size]))
        cell = np.maximum(np.searchsorted(self.first, keys, side="right") - 1, 0)
        which = np.zeros(len(self.first), dtype=bool)
        which[cell[keys <= self.last[cell]]] = True
        return which & (self.second > 0)  # zero: all margins of the cell agree to within 1e-150


def _combined(
    first: NDArray[np.int64],
    last: NDArray[np.int64],
    size: FloatArray,
    weight: FloatArray,
    mean: FloatArray,
    second: FloatArray,
    third: FloatArray,
) -> _Cells:
    """Combine entries of the same cell."""
    order = np.argsort(first, kind="stable")
    starts = np.flatnonzero(np.diff(first[order], prepend=first[order[:1]] - 1))
    lengths = np.diff(starts, append=len(order))

    def total(values: FloatArray) -> FloatArray:
        return np.add.reduceat(values, starts) if len(starts) else values

    size, weight, mean, second, third = (x[order] for x in (size, weight, mean, second, third))
    # Means are taken relative to the first entry, so that equal values give exactly their value.
    anchor, weights = mean[starts], total(weight)
    shift = total(weight * (mean - np.repeat(anchor, lengths))) / weights
    deviation = mean - np.repeat(anchor + shift, lengths)
    part = weight * deviation * deviation
    return _Cells(
        first=first[order[starts]],
        last=last[order[starts]],
        size=total(size),
        weight=weights,
        mean=anchor + shift,
        second=total(second + part),
        third=total(third + deviation * (3.0 * second + part)),
    )


def _margins_against_rest(
    positive_classes: NDArray[np.intp], scores: FloatArray, codes: NDArray[np.integer[Any]]
) -> FloatArray:
    """Return the margins of each class against the rest, of shape (n_problems, n_rows)."""
    is_positive = codes == positive_classes[:, np.newaxis]
    return np.where(is_positive, scores.T, -scores.T)


def _margins_of_labels(
    some: NDArray[np.intp], scores: FloatArray, codes: NDArray[np.intp]
) -> FloatArray:
    """Return the margins of some labels, of shape (n_labels, n_rows), for codes of label sets."""
    has_label = LabelSets.has(codes, some)
    return np.where(has_label, scores.T, -scores.T)


def _joint_margins(
    loss: JointLoss, scores: FloatArray, codes: NDArray[np.integer[Any]]
) -> FloatArray:
    """Return the joint margins, of shape (1, n_rows)."""
    return np.asarray(loss.margins(scores, codes))[np.newaxis]


def _sorted_margins(
    margins_of: Callable[..., FloatArray],
    chunks: Iterable[tuple[slice, FloatArray]],
    codes: NDArray[np.integer[Any]],
    weights: FloatArray | None = None,
) -> tuple[FloatArray, FloatArray | None]:
    """Return the margins of a block, in ascending order for each problem, and their weights.

    `chunks` are the scores of some rows of the block at a time.
    """
    margins = np.concatenate(
        [margins_of(scores, codes[..., span]) for span, scores in chunks], axis=1
    )
    if weights is None:
        margins.sort(axis=1)
        return margins, None
    margins, weights = margins[:, weights > 0], weights[weights > 0]
    order = np.argsort(margins, axis=1)
    return np.take_along_axis(margins, order, axis=1), weights[order]


def _cells(
    result: tuple[FloatArray, FloatArray | None], within: Sequence[_Intervals] | None, bits: int
) -> Any:
    """Return the cells of each problem of a block, or of its margins within some intervals."""
    margins, weights = result
    found = np.empty(len(margins), dtype=object)  # arrays of objects are added entry by entry
    for k, values in enumerate(margins):
        keys, rows = _keys(values), np.arange(len(values))
        if within is not None:
            starts = np.searchsorted(keys, within[k][0])
            ends = np.searchsorted(keys, within[k][1], side="right")
            kept = [rows[a:b] for a, b in zip(starts, ends, strict=True)]
            rows = np.concatenate(kept) if kept else rows[:0]
        values, keys, ones = values[rows], keys[rows], np.ones(len(rows))
        mask = np.int64((1 << (64 - bits)) - 1)
        found[k] = _combined(
            first=keys & ~mask,
            last=keys | mask,
            size=ones,
            weight=ones if weights is None else weights[k, rows],
            mean=values,
            second=0.0 * ones,
            third=0.0 * ones,
        )
    return found


def _keys(values: FloatArray) -> NDArray[np.int64]:
    """Return integers in the order of the floats: the bits, flipped for negative floats."""
    bits = np.ascontiguousarray(values).view(np.int64)
    return bits ^ ((bits >> 63) & np.iinfo(np.int64).max)


def _floats(keys: NDArray[np.int64]) -> FloatArray:
    """Invert `_keys`."""
    return (keys ^ ((keys >> 63) & np.iinfo(np.int64).max)).view(np.float64)
