r"""Rounds of a cross-validation, each with more rows and fewer settings.

A round fits all settings that are left to a sample of the rows of every fold, and judges them by
four times as many rows, as far as there are so many: to judge is cheap, and halves the noise. A
setting then drops out if, with d_k the difference of its score to the best setting's in fold k,

.. math::

    \bar d > 3\, \max(\operatorname{sd}(d), \sigma) / \sqrt{K},

σ the median of these deviations over the better half of the settings (that of few folds may be
small by chance, and those of hopeless settings are large). The penalty that suits a sample is
larger than the one that suits all rows, in inverse proportion to their number (as a prior of fixed
width has it); a round therefore takes α times all rows over those it fits. It may still be a step
too large (on a quarter of news20_minilm it is), so the next smaller penalty stays with each setting
that does. The rounds have one row
of sixteen, one of four, one of two where many settings are left, and all rows; the last alone
decides.

A sample is held in memory, or on the device where the rows are, for as long as its round takes. It
has at most 2**25 stored elements, 256 MiB in float64, whatever holds the data: a larger one is made
smaller, and left out where it would then be too small for a round.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from marginpursuit._validation import FloatArray
from marginpursuit.classifiers._base import TrainingData
from marginpursuit.design import loaded, row_elements, take_rows
from marginpursuit.selection._folds import Fold, Setting
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

# The fewest rows of a class in a round, if the class has them.
_FEWEST_OF_CLASS = 20

# How many standard errors behind the best a setting may be.
_CAUTION = 3.0


@dataclass(frozen=True, slots=True)
class Round:
    """Some or all of the rows, and the folds among them."""

    data: TrainingData  # what is fitted
    judged: TrainingData  # what is held out, and what is fitted
    folds: list[Fold]  # places in `data` to fit, and places in `judged` to judge by
    rows: NDArray[np.intp]  # which rows of all `judged` has
    share: float  # of all rows that `data` has


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
    return Round(data, data, list(folds), np.arange(len(data.weights)), 1.0)


def survivors(scores: FloatArray) -> NDArray[np.intp]:
    """Return which settings may still win, given scores of shape (n_settings, n_folds)."""
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


def _sample(codes: NDArray[np.intp], size: int, random: np.random.RandomState) -> NDArray[np.intp]:
    """Draw rows of each class in about its proportion, in rising order."""
    kept = []
    for code in np.unique(codes):
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
    rows = _sample(data.labels.codes, n_judged, random)
    judged = _taken(data, rows)
    fitted = _sample(judged.labels.codes, n_fitted, random)
    inside = [Fold(_places(rows[fitted], train), _places(rows, test)) for train, test in folds]
    return Round(_taken(judged, fitted), judged, inside, rows, len(fitted) / len(data.weights))


def _taken(data: TrainingData, rows: NDArray[np.intp]) -> TrainingData:
    labels = Labels(data.labels.codes[rows], data.labels.n_classes)
    return replace(
        data, matrix=loaded(take_rows(data.matrix, rows)), labels=labels, weights=data.weights[rows]
    )


def _places(rows: NDArray[np.intp], wanted: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return where in rising rows those are that are wanted."""
    return np.flatnonzero(np.isin(rows, wanted, assume_unique=True))
