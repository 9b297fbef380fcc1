"""The training margins y h(x) of a fit, and statistics of their distribution.

Margins are arrays of NumPy (`Margins`) or of another library (`ArrayMargins`). The statistics of
both agree up to the rounding of the margins, which are float32 for data that float32 represents
exactly. Sums are float64.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, floor
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from marginpursuit._namespaces import namespace, to_device_of, to_numpy
from marginpursuit._threads import Threads
from marginpursuit._validation import FloatArray
from marginpursuit.design import BlockDesign, Linear
from marginpursuit.losses import TRUNCATION, JointLoss
from marginpursuit.solvers import Problem
from marginpursuit.tasks import Labels

#: The levels of the quantiles in `MarginStatistics`.
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class MarginStatistics:
    """The weighted distribution of the training margins y h(x) of each binary problem.

    Attributes
    ----------
    location : ndarray of shape (n_problems,)
        Catoni's estimate of location at the scale of the fit.
    mean, variance, skewness : ndarray of shape (n_problems,)
        Moments.
    quantiles : ndarray of shape (7, n_problems)
        Minimum, 5 %, 25 %, 50 %, 75 %, 95 % and maximum.
    """

    location: FloatArray
    mean: FloatArray
    variance: FloatArray
    skewness: FloatArray
    quantiles: FloatArray


@dataclass(frozen=True, slots=True)
class Margins:
    """Margins of all binary problems, and the weights of the rows."""

    values: FloatArray  # (n_rows, n_problems)
    weights: FloatArray  # (n_rows,), positive, sum one
    total_weight: float  # the sum of the weights before normalisation
    level: float  # the margin level γ

    #: Elements of `values` that a statistic processes at a time; bounds the temporary memory.
    group_elements: ClassVar[int] = 1 << 18

    #: Elements up to which a fit keeps its margins, with their weights at most 32 MB, until their
    #: statistics are read. Of 435,759 rows of cov these take 42 ms, a seventh of the time of a fit.
    kept_elements: ClassVar[int] = 1 << 21

    #: Level of the quantile of the absolute margins that the scale rule "quantile" uses.
    absolute_level: ClassVar[float] = 0.75

    #: Relative difference of two cumulative weights that is attributed to rounding.
    rounding: ClassVar[float] = 1e-10

    @classmethod
    def from_scores(
        cls,
        scores: FloatArray,
        labels: Labels,
        weights: FloatArray,
        total_weight: float,
        level: float,
        first: int = 0,
    ) -> "Margins":
        """Return the margins of the rows with positive weight; the scores are overwritten.

        The scores are those of the binary problems from number `first` on.
        """
        for column, positive in zip(scores.T, labels.positive_classes[first:], strict=False):
            np.negative(column, out=column, where=~labels.is_positive(positive))
        return cls.from_margins(scores, weights, total_weight, level)

    @classmethod
    def from_margins(
        cls, margins: FloatArray, weights: FloatArray, total_weight: float, level: float
    ) -> "Margins":
        """Return the margins, of shape (n_rows, n_problems), of the rows with positive weight."""
        counted = weights > 0
        if not counted.all():
            margins, weights = margins[counted], weights[counted]
        return cls(margins, weights, total_weight, level)

    def average(self, measure: Callable[["Margins"], FloatArray]) -> float:
        """Return the mean over the problems of a measure of each."""
        return float(np.mean(np.concatenate(list(self._map_groups(measure)))))

    def absolute(self) -> "Margins":
        """Return the absolute values of the margins."""
        return replace(self, values=np.abs(self.values))

    def variance(self) -> FloatArray:
        """Return the variance of each problem."""
        deviations = self._deviations(self._mean(self.values))
        return self._mean(deviations * deviations)

    def quantiles(self, levels: tuple[float, ...]) -> FloatArray:
        """Return quantiles of each problem, of shape (n_levels, n_problems).

        A weight of 2 equals two copies of the row. The quantile at level q is the first value at
        which the cumulative weight exceeds q; if a cumulative weight equals q, the mean of that
        value and the next.
        """
        if self._equal_weights:
            ranks = _ranks(levels, len(self.values))
            ordered = np.partition(self.values, sorted(set(ranks.flat)), axis=0)
            return np.asarray(ordered[ranks].mean(axis=0))
        return np.asarray(0.5 * self.quantile_ends(levels).sum(axis=0))

    def quantile_ends(self, levels: tuple[float, ...]) -> FloatArray:
        """Return the two values whose mean is a quantile, of shape (2, n_levels, n_problems)."""
        wanted = np.array(levels)
        rounding = self.rounding * np.minimum(wanted, 1.0 - wanted)
        result = np.empty((2, len(levels), self.values.shape[1]))
        for k, values in enumerate(self.values.T):
            order = np.argsort(values)
            cumulative = np.cumsum(self.weights[order])
            cumulative /= cumulative[-1]
            low = np.searchsorted(cumulative, wanted - rounding)
            high = np.searchsorted(cumulative, wanted + rounding, side="right")
            result[:, :, k] = values[order[np.minimum([low, high], len(order) - 1)]]
        return result

    def statistics(self, scale: float) -> MarginStatistics:
        """Return the statistics of each problem; the location is that at this scale."""

        def described(group: Margins) -> tuple[FloatArray, ...]:
            quantiles = group.quantiles(QUANTILES)
            return group._location(scale, quantiles), *group._moments(), quantiles

        parts = zip(*self._map_groups(described), strict=True)
        return MarginStatistics(*(np.concatenate(part, axis=-1) for part in parts))

    @property
    def is_small(self) -> bool:
        """Whether the margins take little memory, so that they may be kept with a fit."""
        return self.values.size <= self.kept_elements

    @property
    def _equal_weights(self) -> bool:
        return bool(self.weights.min() == self.weights.max())

    def _map_groups(self, function: Callable[["Margins"], Any]) -> Iterator[Any]:
        """Yield a function of the margins of each group of problems."""
        return map(function, self._groups())

    def _groups(self) -> Iterator["Margins"]:
        """Yield the margins of as many problems at a time as `group_elements` allows."""
        n_rows, n_problems = self.values.shape
        step = max(1, self.group_elements // n_rows)
        for first in range(0, n_problems, step):
            yield replace(self, values=self.values[:, first : min(first + step, n_problems)])

    def _location(self, scale: float, quantiles: FloatArray, max_steps: int = 100) -> FloatArray:
        """Return Catoni's location of each problem, by Newton's method with bisection.

        The mean of ψ((θ - m)/s), with ψ(u) = u - u³/6 up to ± √2, is non-decreasing in θ. The start
        is the median, which is a root wherever the roots are not unique. A step that leaves the
        bracket, or after which the mean has not halved, is replaced by the midpoint.
        """
        xp, low, point, high = namespace(self.values), quantiles[0], quantiles[3], quantiles[-1]
        if not (np.all(np.isfinite(low)) and np.all(np.isfinite(high))):
            raise FloatingPointError("the margins are not finite")
        eps, before = float(xp.finfo(self.values.dtype).eps), np.full_like(point, np.inf)
        for _ in range(max_steps):
            ratio = xp.clip(self._deviations(point) / -scale, -TRUNCATION, TRUNCATION)
            square = ratio * ratio
            influence = self._mean(ratio * (1.0 - square / 6.0))
            slope = 1.0 - 0.5 * self._mean(square)
            is_root = np.abs(influence) <= 4 * eps
            low, high = np.where(influence < 0, point, low), np.where(influence > 0, point, high)
            with np.errstate(divide="ignore", invalid="ignore"):
                trial = point - scale * influence / slope
            is_newton = (trial >= low) & (trial <= high) & (np.abs(influence) <= 0.5 * before)
            trial = np.where(is_newton, trial, 0.5 * (low + high))
            trial, before = np.where(is_root, point, trial), np.abs(influence)
            point, change = trial, np.abs(trial - point)
            if np.all(change <= 2 * eps * (scale + np.abs(point))):
                break
        return np.asarray(point)

    def _moments(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return mean, variance and skewness; the skewness of a constant is zero."""
        mean = self._mean(self.values)
        deviations = self._deviations(mean)
        squares = deviations * deviations
        variance, third = self._mean(squares), self._mean(squares * deviations)
        skewness = np.divide(third, variance**1.5, out=np.zeros_like(mean), where=variance > 0)
        return mean, variance, skewness

    def _mean(self, values: Any) -> FloatArray:
        """Return the weighted mean of each column."""
        return np.asarray(np.einsum("n,nk->k", self.weights, values))  # without BLAS threads

    def _deviations(self, mean: FloatArray) -> Any:
        return self.values - mean


@dataclass(frozen=True, slots=True)
class MarginTiles(Margins):
    """Margins of many problems, of which a tile at a time is in memory.

    A tile is computed whenever a statistic needs it, and the groups of its problems are described
    in parallel. The other fields are those of the first tile.
    """

    margins_of: Callable[[int, int], Margins]  # of the problems with numbers in [first, last)
    n_problems: int
    tile: int  # the number of problems in memory
    threads: Threads

    @classmethod
    def of(
        cls,
        margins_of: Callable[[int, int], Margins],
        n_problems: int,
        tile: int,
        threads: Threads,
    ) -> "MarginTiles":
        """Return the margins of problems in tiles."""
        first = margins_of(0, 1)
        own = first.values, first.weights, first.total_weight, first.level
        return cls(*own, margins_of, n_problems, tile, threads)

    @property
    def is_small(self) -> bool:
        """Return False: computing a tile reads the data."""
        return False

    def _map_groups(self, function: Callable[[Margins], Any]) -> Iterator[Any]:
        for first in range(0, self.n_problems, self.tile):
            tile = self.margins_of(first, min(first + self.tile, self.n_problems))
            yield from self.threads.map(function, list(tile._groups()))


@dataclass(frozen=True, slots=True)
class ArrayMargins(Margins):
    """Margins in an array that NumPy cannot read in place; statistics are NumPy arrays."""

    values: Any
    weights: Any  # None if all are equal
    is_sorted: bool = False  # whether the values of each problem are in ascending order

    group_elements: ClassVar[int] = 1 << 28

    @classmethod
    def from_scores(
        cls,
        scores: Any,
        labels: Labels,
        weights: Any,
        total_weight: float,
        level: float,
        first: int = 0,
    ) -> "ArrayMargins":
        """Return the margins of the rows with positive weight, from problem `first` on."""
        xp, last = namespace(scores), first + scores.shape[1]
        some = labels.positive_classes[first:last]
        positive = to_device_of(labels.codes, some, labels.codes.dtype)
        values = xp.where(labels.codes[:, None] == positive[None, :], scores, -scores)
        return cls.from_margins(values, weights, total_weight, level)

    @classmethod
    def from_margins(
        cls, margins: Any, weights: Any, total_weight: float, level: float
    ) -> "ArrayMargins":
        """Return the margins of the rows with positive weight.

        With equal weights and few elements the margins are sorted once, for all quantiles.
        """
        xp, values = namespace(margins), margins
        if not bool(xp.all(weights > 0)):
            (counted,) = xp.nonzero(weights)
            values, weights = xp.take(values, counted, axis=0), xp.take(weights, counted, axis=0)
        if not bool(xp.min(weights) == xp.max(weights)):
            return cls(values, weights, total_weight, level)
        is_sorted = values.shape[0] * values.shape[1] <= cls.group_elements
        values = xp.sort(values, axis=0) if is_sorted else values
        return cls(values, None, total_weight, level, is_sorted)

    @property
    def is_small(self) -> bool:
        """Return False: margins on a device are not kept."""
        return False

    def absolute(self) -> "ArrayMargins":
        return replace(self, values=abs(self.values), is_sorted=False)

    def quantiles(self, levels: tuple[float, ...]) -> FloatArray:
        ends = self._equal_ends(levels) if self.weights is None else self.quantile_ends(levels)
        return np.asarray(np.mean(ends, axis=0, dtype=np.float64))

    def quantile_ends(self, levels: tuple[float, ...]) -> FloatArray:
        xp, last = namespace(self.values), self.values.shape[0] - 1
        rounding = self.rounding * np.minimum(levels, 1.0 - np.array(levels))
        result = np.empty((2, len(levels), self.values.shape[1]))
        for k in range(self.values.shape[1]):
            values = self.values[:, k]
            order = xp.argsort(values, axis=0)
            cumulative = xp.cumulative_sum(xp.take(self.weights, order, axis=0), axis=0)
            cumulative = cumulative / cumulative[-1]
            low = xp.searchsorted(cumulative, to_device_of(cumulative, levels - rounding))
            high = xp.searchsorted(
                cumulative, to_device_of(cumulative, levels + rounding), side="right"
            )
            for end, found in enumerate((low, high)):
                rows = xp.take(order, xp.clip(found, 0, last), axis=0)
                result[end, :, k] = to_numpy(xp.take(values, rows, axis=0))
        return result

    def _equal_ends(self, levels: tuple[float, ...]) -> list[FloatArray]:
        """Return the two values whose mean is a quantile, for equal weights."""
        xp, rows = namespace(self.values), _ranks(levels, self.values.shape[0])
        ordered = self.values if self.is_sorted else xp.sort(self.values, axis=0)
        return [to_numpy(xp.take(ordered, to_device_of(ordered, row), axis=0)) for row in rows]

    @property
    def _equal_weights(self) -> bool:
        return self.weights is None

    def _mean(self, values: Any) -> FloatArray:
        xp = namespace(values)
        if self.weights is None:
            return np.asarray(to_numpy(xp.sum(values, axis=0, dtype=xp.float64)) / values.shape[0])
        return to_numpy(xp.sum(values * self.weights[:, None], axis=0, dtype=xp.float64))

    def _deviations(self, mean: FloatArray) -> Any:
        return self.values - to_device_of(self.values, mean, self.values.dtype)[None, :]


def training_margins(
    problem: Problem,
    linear: Linear,
    labels: Labels,
    weights: Any,
    total_weight: float,
    max_scores: int = 1 << 24,
) -> Margins:
    """Return the margins of all rows at a point of the problem; a joint task has one per row.

    `weights` are those of the rows, the same for all classes or labels. `total_weight` is their sum
    before normalisation. The margins of one class against the rest are computed for as many
    classes at a time as have `max_scores` scores.
    """
    prepared, tasks = problem.prepared, problem.tasks
    design, standardisation = prepared.design, prepared.standardisation
    loss = tasks.losses[0]
    if isinstance(design, BlockDesign):
        from marginpursuit.classifiers._block_margins import block_margins

        return block_margins(design, standardisation, linear, labels, weights, total_weight, loss)
    if isinstance(loss, JointLoss):
        parts = design.map_scores(
            lambda span, scores: loss.margins(scores, labels.codes[span]), *linear, standardisation
        )
        xp = namespace(parts[0])
        kind = Margins if isinstance(parts[0], np.ndarray) else ArrayMargins
        return kind.from_margins(xp.concat(parts)[:, None], weights, total_weight, loss.margin)

    def of(first: int, last: int) -> Margins:
        """Return the margins of some classes against the rest, in one pass."""
        coef, intercept = linear[0][:, first:last], linear[1][first:last]
        scores = design.scores(coef, intercept, standardisation)
        kind = Margins if isinstance(scores, np.ndarray) else ArrayMargins
        return kind.from_scores(scores, labels, weights, total_weight, loss.margin, first)

    n_problems, tile = len(linear[1]), max(1, max_scores // design.n_rows)
    if n_problems <= tile:
        return of(0, n_problems)
    return MarginTiles.of(of, n_problems, tile, design.threads)


class MarginStatisticsMixin:
    """Statistics of the training margins as attributes of a classifier, computed when first read.

    On 100 rows they take an eighth of the time of a fit. Margins that take much memory, or are not
    in NumPy, are described at once. A copy by pickle and a model file contain the statistics, not
    the margins.
    """

    _margins: tuple[Margins, float]  # with the scale of the fit; absent where there is no fit

    @cached_property
    def margin_statistics_(self) -> MarginStatistics:
        """Location, mean, variance, skewness and quantiles of the training margins."""
        self._describe_margins()
        if "margin_statistics_" not in vars(self):
            name = type(self).__name__
            raise AttributeError(f"{name!r} object has no attribute 'margin_statistics_'")
        return self.margin_statistics_

    @cached_property
    def margin_location_(self) -> FloatArray:
        """Catoni's estimate of the location of the training margins."""
        return self.margin_statistics_.location

    def _keep_margins(self, margins: Margins, scale: float) -> None:
        """Set the margins of a fit. Raises a FloatingPointError where they are not finite."""
        self._margins = margins, scale
        if not margins.is_small:
            self._describe_margins()
        elif not np.isfinite(margins.values).all():
            raise FloatingPointError("the margins are not finite")

    def _reset(self) -> None:
        """Remove the fitted attributes, the margins included."""
        super()._reset()  # type: ignore[misc]
        self.__dict__.pop("_margins", None)

    def _take_margins_of(self, model: "MarginStatisticsMixin") -> None:
        """Take the margins of another classifier, or their statistics if it has no margins."""
        for name in ("_margins", "margin_location_", "margin_statistics_"):
            self.__dict__.pop(name, None)
            if name in vars(model):
                setattr(self, name, getattr(model, name))

    def _describe_margins(self) -> None:
        """Replace the margins of a fit, if there are any, by their statistics."""
        own = vars(self)
        kept = own.get("_margins")
        if kept is not None:
            margins, scale = kept
            found = margins.statistics(scale)
            # The margins go last: another thread that finds them gone reads the statistics.
            own.update(margin_statistics_=found, margin_location_=found.location)
            own.pop("_margins", None)

    def __getstate__(self) -> Any:
        self._describe_margins()
        return super().__getstate__()


def _ranks(levels: tuple[float, ...], n: int) -> NDArray[np.int64]:
    """Return the indices of the two of n sorted values whose mean is a quantile, (2, n_levels).

    The two differ where the level times n is a whole number.
    """
    rounding = Margins.rounding
    low = [ceil(n * level * (1.0 - rounding)) - 1 for level in levels]
    high = [floor(n * level * (1.0 + rounding)) for level in levels]
    return np.array([[min(max(rank, 0), n - 1) for rank in ends] for ends in (low, high)])
