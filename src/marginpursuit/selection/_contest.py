"""The contest: settings are fitted to folds, judged by what these hold out, and one wins."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from marginpursuit._progress_bar import ProgressBar, Reached
from marginpursuit._validation import FloatArray
from marginpursuit.classifiers._base import TrainingData
from marginpursuit.classifiers._probabilities import exact_probabilities
from marginpursuit.design import Linear
from marginpursuit.selection._folds import FoldFits
from marginpursuit.selection._link import FittedLink, thinning
from marginpursuit.selection._race import (
    Round,
    everything,
    rounds,
    survivors,
    with_smaller_penalties,
)
from marginpursuit.selection._scores import Judge, Link
from marginpursuit.selection._settings import Effort, Fold, FoldOptions, Setting

#: Sums over folds of the fits to all rows but theirs; scores of the rows that a fold holds out, in
#: units of the margin.
Fits: TypeAlias = dict[Setting, Linear]
Held: TypeAlias = dict[tuple[Setting, int], FloatArray]

# Bytes of fits that are kept to begin the fit of the winner to all rows with.
_MOST_KEPT = 1 << 28


@dataclass(frozen=True)
class Terms:
    """What a contest goes by."""

    options: FoldOptions
    effort: Effort  # of the last round
    race: bool
    rule: str
    link: str
    random_state: Any
    balance: Callable[[NDArray[np.intp], FloatArray], FloatArray] | None
    title: str | None  # of a progress bar, if there is to be one


@dataclass(frozen=True)
class Outcome:
    """What a contest ends with."""

    scores: FloatArray  # (n_settings, n_folds)
    thresholds: FloatArray  # (n_settings,), at which the settings have these scores
    resources: NDArray[np.intp]  # (n_settings,), the rows that a setting was judged on at last
    best: int
    start: Linear | None  # about where the winner's fit to all rows will be, if that was kept
    link: FittedLink | None
    n_passes: float


class Contest:
    """Rounds in which settings are judged on the folds of the data.

    `terms.balance` returns the factor of each class for the rows of a fold, if they have any that
    depend on the fold.
    """

    def __init__(self, data: TrainingData, folds: list[Fold], judge: Judge, terms: Terms) -> None:
        self._data, self._folds, self._judge, self._terms = data, folds, judge, terms
        self._n_reads = 0.0
        # The link of the winner is fitted to some of the held-out rows: those alone are kept.
        sizes = [len(fold.test) for fold in folds]
        self._thinning = step = thinning(sum(sizes))
        self._kept = [slice(-sum(sizes[:k]) % step, None, step) for k in range(len(folds))]

    def hold(self, settings: list[Setting]) -> Outcome:
        """Judge all settings in rounds, and choose one of those in the last."""
        terms, folds = self._terms, self._folds
        self._scales = sorted({setting.scale for setting in settings})
        scores = np.full((len(settings), len(folds)), np.nan)
        thresholds = np.zeros(len(settings))
        resources = np.zeros(len(settings), dtype=np.intp)
        left = np.arange(len(settings))
        contest = iter([everything(self._data, folds)])
        if terms.race and len(folds) > 1:
            random = check_random_state(terms.random_state)
            contest = rounds(self._data, folds, random, lambda: len(left))
        for part in contest:
            resources[left] = self._size(part)
            judged, fits, held = self._judged(part, [settings[k] for k in left])
            scores[left], thresholds[left] = self._judge.at_best(judged)
            if part.is_last:
                break
            staying = survivors(scores[left])
            left = left[with_smaller_penalties([settings[k] for k in left], staying)]
        best = self._best(settings, scores, left)
        link = None
        if terms.link == "fitted":
            chosen = [held[settings[best], fold] for fold in range(len(folds))]
            rows = np.concatenate([fold.test for fold in folds])[:: self._thinning]
            threshold = float(thresholds[best])
            moved = terms.options.margin * np.concatenate(chosen, dtype=np.float64) - threshold
            link = self._fit_link(moved, rows, self._data, self._thinning, threshold)
        start = None
        if settings[best] in fits:
            coef, intercept = fits[settings[best]]
            start = coef / len(folds), intercept / len(folds)
        return Outcome(scores, thresholds, resources, best, start, link, self._n_reads)

    def _judged(self, part: Round, settings: list[Setting]) -> tuple[FloatArray, Fits, Held]:
        """Return the scores of settings in every fold, their fits, and what they held out.

        The scores are those at each threshold, of shape (n_settings, n_folds, n_thresholds).
        """
        places = {setting: place for place, setting in enumerate(settings)}
        shape = len(settings), len(self._folds), len(self._judge.thresholds)
        scores = np.full(shape, np.nan)
        fits, held = Fits(), Held()
        keeps = 8 * part.data.matrix.shape[1] * part.data.labels.n_classes * len(settings)
        effort, margin = self._terms.effort, self._terms.options.margin
        with (
            self._bar(f"{len(settings)} settings on {self._size(part)} rows") as reached,
            FoldFits(
                part.data.matrix,
                part.judged.matrix,
                part.data.labels,
                self._weights(part),
                part.fits,
                replace(self._terms.options, factor=1.0 / part.share),
                effort,
                rough=not part.is_last,
            ) as fold_fits,
        ):
            for setting, fit, linear, unseen in fold_fits.judge(places, self._scales):
                test = part.fits[fit].test
                for fold, own in part.lots[fit]:
                    link = self._link(setting, test[own], part.judged)
                    some = self._judge(unseen[own], part.rows[test[own]], link)
                    scores[places[setting], fold] = some
                if part.is_last and linear is not None and keeps <= _MOST_KEPT:
                    coef, intercept = fits.get(setting, (0.0, 0.0))
                    fits[setting] = coef + linear[0], intercept + linear[1]
                if part.is_last:
                    kept = unseen[self._kept[fit]] / margin  # which float32 may not hold
                    held[setting, fit] = kept.astype(np.float32)
                n_judged = np.isfinite(scores[:, :, 0]).sum()
                reached(int(n_judged), shape[0] * shape[1])
            self._n_reads += fold_fits.n_passes * part.share
        return scores, fits, held

    def _size(self, part: Round) -> int:
        """Return the number of rows that a round goes by, those that a fold holds out included."""
        return round(part.share * len(self._data.weights))

    def _bar(self, doing: str) -> AbstractContextManager[Reached]:
        title = self._terms.title
        return nullcontext(_ignore) if title is None else ProgressBar(f"{title}: {doing}")

    def _weights(self, part: Round) -> FloatArray:
        """Return the weights of the rows in each fit, zero for those that are held out."""
        codes = part.data.labels.codes
        weights = np.zeros((len(part.fits), len(codes)))
        for row, (train, _) in zip(weights, part.fits, strict=True):
            row[train] = part.data.weights[train]
            if self._terms.balance is not None:
                row[train] *= self._terms.balance(codes[train], row[train])[codes[train]]
        weights /= weights.sum(axis=1, keepdims=True)
        return weights

    def _link(self, setting: Setting, rows: NDArray[np.intp], data: TrainingData) -> Link:
        """Return what makes probabilities of the scores of held-out rows, if a scorer asks."""
        if self._terms.link == "exact":
            margin = self._terms.options.margin
            return lambda scores: exact_probabilities(scores, margin, setting.scale)
        return lambda scores: self._fit_link(scores, rows, data).probabilities(scores)

    def _fit_link(
        self,
        scores: FloatArray,
        rows: NDArray[np.intp],
        data: TrainingData,
        times: int = 1,
        threshold: float = 0.0,
    ) -> FittedLink:
        """Fit a link to scores, less a threshold, of rows of which each stands for so many."""
        weights, margin = times * data.count * data.weights[rows], self._terms.options.margin
        return FittedLink.fit(scores, data.labels.codes[rows], weights, margin, threshold)

    def _best(self, settings: list[Setting], scores: FloatArray, left: NDArray[np.intp]) -> int:
        means = scores[left].mean(axis=1)
        best = int(np.argmax(means))
        if self._terms.rule == "best":
            return int(left[best])
        error = scores[left[best]].std(ddof=1) / np.sqrt(scores.shape[1])
        return int(max(left[means >= means[best] - error], key=lambda k: settings[k]))


def _ignore(done: int, total: int | None) -> None:
    """Show nothing."""
