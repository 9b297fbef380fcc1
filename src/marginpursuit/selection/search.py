"""The search: candidates are fitted to folds, scored on held-out rows, and one is chosen."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from marginpursuit._progress_bar import ProgressBar, Reached
from marginpursuit._validation import FloatArray
from marginpursuit.classifiers._shared import (
    FittedLink,
    TrainingData,
    balanced_factors,
    exact_probabilities,
    thinning,
)
from marginpursuit.design import Linear
from marginpursuit.losses import JointLoss, MarginLoss
from marginpursuit.selection.candidates import Candidate, FitOptions, Fold, FoldFit, Stopping
from marginpursuit.selection.fold_fits import FoldFits
from marginpursuit.selection.fold_groups import FitPlan, FoldData
from marginpursuit.selection.policy import SelectionPolicy
from marginpursuit.selection.scoring import HeldOutScorer, Link
from marginpursuit.selection.successive_halving import (
    Rung,
    full_rung,
    next_size,
    remaining,
    subsampled_rung,
    with_smaller_penalties,
)


@dataclass(frozen=True)
class SearchOptions:
    """Options of a search."""

    fits: FitOptions
    stopping: Stopping  # of the fits to all rows
    successive_halving: bool
    rule: str
    link: str
    random_state: Any
    is_balanced: bool  # whether the classes have equal weight in the training rows of each fold
    title: str | None  # of a progress bar; None shows none


@dataclass(frozen=True)
class SearchResult:
    """The scores of all candidates, and the chosen one."""

    scores: FloatArray  # (n_candidates, n_folds)
    thresholds: FloatArray  # (n_candidates,), at which the candidates have these scores
    resources: NDArray[np.intp]  # (n_candidates,), the rows of the last rung of each
    best: int
    start: Linear | None  # the mean of the chosen fold fits, which warm-starts the refit
    link: FittedLink | None
    n_passes: float
    is_joint: bool  # whether the chosen candidate has a joint loss


@dataclass
class _RungResult:
    """The scores of the candidates of a rung; of the last rung, also fits and held-out scores."""

    scores: FloatArray  # (n_candidates, n_folds, n_thresholds)
    sums: dict[Candidate, Linear] = field(default_factory=dict)  # of the fits to all folds
    held_out: dict[tuple[Candidate, int], FloatArray] = field(default_factory=dict)  # / margin


class Search:
    """A search over candidates by cross-validation."""

    def __init__(
        self,
        data: TrainingData,
        folds: list[Fold],
        scorer: HeldOutScorer,
        options: SearchOptions,
        policy: SelectionPolicy,
    ) -> None:
        self._data, self._folds, self._scorer = data, folds, scorer
        self._options, self._policy = options, policy
        self._n_passes = 0.0
        # The link of the chosen candidate is fitted to every k-th held-out row; others are dropped.
        sizes = [len(fold.test) for fold in folds]
        self._step = step = thinning(sum(sizes), policy.max_link_rows)
        self._link_rows = [slice(-sum(sizes[:k]) % step, None, step) for k in range(len(folds))]

    def run(self, candidates: list[Candidate]) -> SearchResult:
        """Evaluate the candidates rung by rung and choose one of those in the last."""
        scores = np.full((len(candidates), len(self._folds)), np.nan)
        thresholds = np.zeros(len(candidates))
        resources = np.zeros(len(candidates), dtype=np.intp)
        scales = sorted({candidate.scale for candidate in candidates})
        left, size = np.arange(len(candidates)), self._next_size(0, len(candidates))
        while True:
            rung = self._rung(size)
            current = [candidates[k] for k in left]
            result = self._evaluate(rung, current, scales)
            resources[left] = self._n_rows(rung)
            scores[left], thresholds[left] = self._scorer.at_best_thresholds(result.scores)
            if size is None:
                break
            kept = remaining(scores[left], self._policy)
            left = left[with_smaller_penalties(current, kept)]
            size = self._next_size(size, len(left))
        best = int(left[self._choose(current, scores[left])])
        return SearchResult(
            scores,
            thresholds,
            resources,
            best,
            self._start(result, candidates[best]),
            self._fitted_link(result, candidates[best], float(thresholds[best])),
            self._n_passes,
            self._is_joint(candidates[best]),
        )

    def _is_joint(self, candidate: Candidate) -> bool:
        return self._options.fits.is_joint and candidate.overconfidence == 0

    def _next_size(self, previous: int, n_candidates: int) -> int | None:
        if not self._options.successive_halving or len(self._folds) < 2:
            return None
        return next_size(self._data, previous, n_candidates, self._policy)

    def _rung(self, size: int | None) -> Rung:
        if size is None:
            return full_rung(self._data, self._folds)
        return subsampled_rung(self._data, self._folds, size, self._random, self._policy)

    @cached_property
    def _random(self) -> Any:
        return check_random_state(self._options.random_state)

    def _evaluate(
        self, rung: Rung, candidates: list[Candidate], scales: Sequence[float]
    ) -> _RungResult:
        """Fit candidates to the folds of a rung and score the held-out rows."""
        index = {candidate: k for k, candidate in enumerate(candidates)}
        shape = len(candidates), len(self._folds), len(self._scorer.thresholds)
        result = _RungResult(np.full(shape, np.nan))
        data = FoldData(
            rung.fitted.matrix,
            rung.scored.matrix,
            rung.fitted.labels,
            self._fold_weights(rung),
            rung.fits,
        )
        plan = FitPlan.make(
            data,
            replace(self._options.fits, alpha_factor=1.0 / rung.fraction),
            self._options.stopping,
            self._policy,
            is_final=rung.is_full,
        )
        label = f"{len(candidates)} candidates on {self._n_rows(rung)} rows"
        with self._progress_bar(label) as reached, FoldFits(data, plan) as fold_fits:
            for fit in fold_fits.held_out(index, scales):
                self._score(rung, fit, result.scores[index[fit.candidate]])
                if rung.is_full:
                    self._keep(fit, result, len(candidates))
                n_scored = np.isfinite(result.scores[:, :, 0]).sum()
                reached(int(n_scored), shape[0] * shape[1])
            self._n_passes += fold_fits.n_passes * rung.fraction
        return result

    def _score(self, rung: Rung, fit: FoldFit, scores: FloatArray) -> None:
        """Score a fit on each fold that it holds out; `scores` is (n_folds, n_thresholds)."""
        test = rung.fits[fit.fold].test
        for fold, own in rung.held_out[fit.fold]:
            rows = test[own]
            link = self._link(fit.candidate, rows, rung.scored)
            scores[fold] = self._scorer(fit.scores[own], rung.rows[rows], link)

    def _keep(self, fit: FoldFit, result: _RungResult, n_candidates: int) -> None:
        """Keep what the refit and the link of the chosen candidate need of a fit to all rows."""
        n_columns, n_classes = self._data.matrix.shape[1], self._data.labels.n_classes
        n_bytes = 8 * n_columns * n_classes * n_candidates
        if fit.linear is not None and n_bytes <= self._policy.max_start_bytes:
            coef, intercept = result.sums.get(fit.candidate, (0.0, 0.0))
            result.sums[fit.candidate] = coef + fit.linear[0], intercept + fit.linear[1]
        # In units of the margin, since float32 may not hold the scores.
        kept = fit.scores[self._link_rows[fit.fold]] / self._options.fits.margin
        result.held_out[fit.candidate, fit.fold] = kept.astype(np.float32)

    def _n_rows(self, rung: Rung) -> int:
        """Return the number of rows of a rung, with the fraction that a fold holds out."""
        return round(rung.fraction * len(self._data.weights))

    def _progress_bar(self, label: str) -> AbstractContextManager[Reached]:
        title = self._options.title
        return nullcontext(_ignore) if title is None else ProgressBar(f"{title}: {label}")

    def _fold_weights(self, rung: Rung) -> FloatArray:
        """Return the weights of the rows in each fit, zero for those that it holds out."""
        labels = rung.fitted.labels
        weights = np.zeros((len(rung.fits), len(labels.codes)))
        for own, (train, _) in zip(weights, rung.fits, strict=True):
            own[train] = rung.fitted.weights[train]
            if self._options.is_balanced:
                codes = labels.codes[train]
                own[train] *= balanced_factors(codes, own[train], labels.n_classes)[codes]
        weights /= weights.sum(axis=1, keepdims=True)
        return weights

    def _link(self, candidate: Candidate, rows: NDArray[np.intp], data: TrainingData) -> Link:
        """Return the link for the held-out rows of a fold, which is fitted if a scorer needs it."""
        if self._options.link == "exact":
            fits = self._options.fits
            loss = MarginLoss(fits.margin, candidate.scale, candidate.overconfidence, fits.rho)
            joint_loss = JointLoss.at_level(loss) if self._is_joint(candidate) else loss
            return partial(exact_probabilities, loss=joint_loss)
        return lambda scores: self._fit_link(scores, rows, data).probabilities(scores)

    def _fitted_link(
        self, result: _RungResult, candidate: Candidate, threshold: float
    ) -> FittedLink | None:
        """Return the link that is fitted to the out-of-fold scores of a candidate."""
        if self._options.link != "fitted":
            return None
        scores = [result.held_out[candidate, fold] for fold in range(len(self._folds))]
        shifted = self._options.fits.margin * np.concatenate(scores, dtype=np.float64) - threshold
        rows = np.concatenate([fold.test for fold in self._folds])[:: self._step]
        return self._fit_link(shifted, rows, self._data, self._step, threshold)

    def _fit_link(
        self,
        scores: FloatArray,
        rows: NDArray[np.intp],
        data: TrainingData,
        repeats: int = 1,
        threshold: float = 0.0,
    ) -> FittedLink:
        """Fit a link to scores, less the threshold, of rows that count `repeats` times each."""
        return FittedLink.fit(
            scores,
            data.labels.codes[rows],
            repeats * data.count * data.weights[rows],
            self._options.fits.margin,
            threshold,
            max_rows=self._policy.max_link_rows,
        )

    def _start(self, result: _RungResult, candidate: Candidate) -> Linear | None:
        """Return the mean of the fold fits of a candidate, if they were kept."""
        if candidate not in result.sums:
            return None
        coef, intercept = result.sums[candidate]
        return coef / len(self._folds), intercept / len(self._folds)

    def _choose(self, candidates: list[Candidate], scores: FloatArray) -> int:
        means = scores.mean(axis=1)
        best = int(np.argmax(means))
        if self._options.rule == "best":
            return best
        error = scores[best].std(ddof=1) / np.sqrt(scores.shape[1])
        within = np.flatnonzero(means >= means[best] - error)
        return int(max(within, key=lambda k: candidates[k]))


def _ignore(done: int, total: int | None) -> None:
    """Show nothing."""
