r"""Rounds of a cross-validation, each with more rows and fewer settings.

A round fits all settings that are left to samples of the rows, and judges them by four times as
many rows, as far as there are so many: to judge is cheap, and halves the noise. Of several classes,
whose fits are many, folds are held out together, as a sample leaves out most rows anyway: one fit,
to rows that all folds of the first half train on, is judged by what each of these folds holds out,
another by the second half. Where the folds of a half train on too few rows in common, as those of
repeated splits, or on none of a class, each has a fit of its own; as with two classes, where that
costs little, and where cov lost its winner with one of three samples when folds shared fits. A
setting then drops out if, with d_k the difference of its score to the best setting's in fold k,

.. math::

    \bar d > 3\, \max(\operatorname{sd}(d), \sigma) / \sqrt{K},

σ the median of these deviations over the better half of the settings (that of few folds may be
small by chance, and those of hopeless settings are large). The penalty that suits a sample is
larger than the one that suits all rows, in inverse proportion to their number (as a prior of fixed
width has it); a round therefore takes α times the rows of a fold over those it fits. It may still
be a step too large (on a quarter of news20_minilm it is), so the next smaller penalty stays with
each setting that does. The rounds fit one row of sixteen of those that a fold has, one of four, one
of two where many settings are left, and all rows; the last, with a fit for each fold, alone
decides.

The samples of a round are held in memory, or on the device where the rows are, for as long as it
takes. They have at most 2**25 stored elements, 256 MiB in float64, whatever holds the data: larger
ones are made smaller, and left out where they would then be too small for a round.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from marginpursuit._validation import FloatArray
from marginpursuit.classifiers._base import TrainingData
from marginpursuit.design import loaded, row_elements, take_rows
from marginpursuit.selection._settings import Fold, Setting
from marginpursuit.tasks import Labels

# Each round has so many times the rows of the one before, and there are at most so many.
_GROWTH = 4
_MOST_ROUNDS = 3

# Settings after the last sample for which there is one more, of half the rows: the last round is
# ten times as careful.
_MANY_SETTINGS = 12

# The fewest rows of a round. There are also to be so many for each column, but where not even all
# rows are as many, the last sample is taken all the same.
_FEWEST_ROWS = 2000
_ROWS_PER_COLUMN = 3

# The most elements of a sample.
_MOST_ELEMENTS = 1 << 25

# Rows that a round judges by, for each row that it fits.
_JUDGED = 4

# The share of the rows of a fit that must be there for folds to be held out together.
_ENOUGH = 0.75

# The fewest rows of a class in a round, if the class has them.
_FEWEST_OF_CLASS = 20

# How many standard errors behind the best a setting may be.
_CAUTION = 3.0


class Lot(NamedTuple):
    """What a fit is judged by that holds out the rows of this fold, among others."""

    fold: int
    places: NDArray[np.intp] | slice  # among the rows that the fit holds out


@dataclass(frozen=True, slots=True)
class Round:
    """Some or all of the rows, and the fits that are made to them."""

    data: TrainingData  # what is fitted
    judged: TrainingData  # what is held out, what is fitted, and perhaps more
    fits: list[Fold]  # places in `data` to fit, and places in `judged` to judge by
    lots: list[list[Lot]]  # what each fit is judged by: the rows that some folds hold out
    rows: NDArray[np.intp]  # which rows of all `judged` has
    share: float  # of the rows of a fold that a fit has

    @property
    def is_last(self) -> bool:
        """Whether these are all rows, and not a sample."""
        return self.data is self.judged


def rounds(
    data: TrainingData,
    folds: Sequence[Fold],
    random: np.random.RandomState,
    n_left: Callable[[], int],
) -> Iterator[Round]:
    """Yield the rounds, the last with all rows; `n_left` says how many settings are left."""
    n_rows, n_columns = data.matrix.shape
    fewest = max(_FEWEST_ROWS, min(_ROWS_PER_COLUMN * n_columns, n_rows // _GROWTH))
    most = int(_MOST_ELEMENTS / max(1.0, row_elements(data.matrix)))
    sizes = [min(n_rows // _GROWTH, most) // _GROWTH**k for k in range(_MOST_ROUNDS - 1)]
    sizes = sorted(size for size in sizes if size >= fewest)
    for size in sizes:
        yield _sampled(data, folds, size, min(_JUDGED * size, most, n_rows), random)
    if sizes and n_left() >= _MANY_SETTINGS and n_rows // 2 <= most:
        yield _sampled(data, folds, n_rows // 2, min(n_rows, most), random)
    yield everything(data, folds)


def everything(data: TrainingData, folds: Sequence[Fold]) -> Round:
    """Return the round with all rows."""
    lots = [[Lot(fold, slice(None))] for fold in range(len(folds))]
    return Round(data, data, list(folds), lots, np.arange(len(data.weights)), 1.0)


def survivors(scores: FloatArray) -> NDArray[np.intp]:
    """Return which settings may still win, given scores of shape (n_settings, n_folds).

    Where a scorer has no answer, as for a fold of one class, all may.
    """
    if not np.all(np.isfinite(scores)):
        return np.arange(len(scores))
    behind = scores[np.argmax(scores.mean(axis=1))] - scores
    deviation = behind.std(axis=1, ddof=1)
    distance = behind.mean(axis=1)
    better = deviation[(distance <= np.median(distance)) & (deviation > 0)]
    usual = np.median(better) if len(better) else 0.0
    error = np.maximum(deviation, usual) / np.sqrt(scores.shape[1])
    return np.flatnonzero(distance <= _CAUTION * error)


def with_smaller_penalties(
    settings: Sequence[Setting], staying: NDArray[np.intp]
) -> NDArray[np.intp]:
    """Add to each setting that stays the one that differs by the next smaller penalty."""
    kept = set(staying.tolist())
    for place in staying:
        alpha, *rest = settings[place]
        smaller = [k for k, (a, *other) in enumerate(settings) if a < alpha and other == rest]
        kept.update(sorted(smaller, key=lambda k: settings[k].alpha)[-1:])
    return np.array(sorted(kept), dtype=np.intp)


def _sample(labels: Labels, size: int, random: np.random.RandomState) -> NDArray[np.intp]:
    """Draw rows of each class in about its proportion, in rising order."""
    codes, kept = labels.codes, []
    for code in range(labels.n_classes):
        rows = np.flatnonzero(codes == code)
        wanted = max(_FEWEST_OF_CLASS, round(size * len(rows) / len(codes)))
        kept.append(random.permutation(rows)[:wanted])
    return np.sort(np.concatenate(kept))


def _sampled(
    data: TrainingData,
    folds: Sequence[Fold],
    n_fitted: int,
    n_judged: int,
    random: np.random.RandomState,
) -> Round:
    n_rows, counted = len(data.weights), data.weights > 0
    drawn = _completed(_sample(data.labels, n_judged, random), data, folds)
    # Dense rows in memory are judged where they are.
    judged = data if isinstance(data.matrix, np.ndarray) else _taken(data, drawn)
    rows = np.arange(n_rows) if judged is data else drawn
    wanted = _flags(n_rows, drawn)
    trains, tests = (
        np.array([(_flags(n_rows, places) & wanted)[rows] for places in some])
        for some in zip(*folds, strict=True)
    )
    trains &= counted[rows]
    usual = float(np.mean([np.count_nonzero(counted[fold.train]) for fold in folds]))
    size = round(usual * n_fitted / n_rows)
    every = np.arange(len(folds))
    halves = [np.array_split(every, 2)] if data.labels.n_classes > 2 else []
    for groups in *halves, np.split(every, len(every)):
        common = [np.flatnonzero(trains[group].all(axis=0)) for group in groups]
        is_enough = min(map(len, common)) >= _ENOUGH * size
        if is_enough and all(
            _n_classes(judged, places) == _n_classes(judged, trains[k])
            for group, places in zip(groups, common, strict=True)
            for k in group
        ):
            break
    fitted = [places[_sample(judged.labels.take(places), size, random)] for places in common]
    together = np.flatnonzero(_flags(len(rows), np.concatenate(fitted)))
    fits, lots = [], []
    for group, train in zip(groups, fitted, strict=True):
        held = tests[group].any(axis=0)
        fits.append(Fold(np.searchsorted(together, train), np.flatnonzero(held)))
        lots.append([Lot(int(k), np.flatnonzero(tests[k][held])) for k in group])
    share = float(np.mean([len(train) for train in fitted])) / usual
    return Round(_taken(judged, together), judged, fits, lots, rows, share)


def _completed(
    drawn: NDArray[np.intp], data: TrainingData, folds: Sequence[Fold]
) -> NDArray[np.intp]:
    """Add a row of each class that a fold fits or holds out where none of these was drawn."""
    wanted = _flags(len(data.weights), drawn)
    kinds = 2 * data.labels.codes + (data.weights > 0)  # rows without weight stand for themselves
    for places in chain.from_iterable(folds):
        own = kinds[places]
        n_drawn = np.bincount(own[wanted[places]], minlength=2 * data.labels.n_classes)
        for kind in np.flatnonzero(n_drawn == 0):
            wanted[places[own == kind][:1]] = True
    return np.flatnonzero(wanted)


def _n_classes(data: TrainingData, rows: NDArray[Any]) -> int:
    return int(np.count_nonzero(np.bincount(data.labels.codes[rows])))


def _taken(data: TrainingData, rows: NDArray[np.intp]) -> TrainingData:
    return replace(
        data,
        matrix=loaded(take_rows(data.matrix, rows)),
        labels=data.labels.take(rows),
        weights=data.weights[rows],
    )


def _flags(size: int, places: NDArray[np.intp]) -> NDArray[np.bool_]:
    flags = np.zeros(size, dtype=bool)
    flags[places] = True
    return flags
