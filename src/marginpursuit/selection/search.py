"""The search: candidates are fitted to folds, scored on held-out rows, and one is chosen."""

from collections.abc import Callable, Sequence
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
    ExactLabelLink,
    FittedLink,
    LabelLinks,
    Reporter,
    TrainingData,
    balanced_factors,
    exact_probabilities,
)
from marginpursuit.design import Linear
from marginpursuit.losses import JointLoss, MarginLoss
from marginpursuit.selection.candidates import Candidate, FitOptions, Fold, FoldBatch, Stopping
from marginpursuit.selection.fold_data import FitPlan, FoldData, merged_columns
from marginpursuit.selection.fold_fits import FoldFits
from marginpursuit.selection.pair_fits import PairFoldFits, PairKernels
from marginpursuit.selection.policy import SelectionPolicy
from marginpursuit.selection.scoring import HeldOutScorer, best_candidate
from marginpursuit.selection.successive_halving import (
    Rung,
    full_rung,
    next_size,
    remaining,
    subsampled_rung,
    with_smaller_penalties,
)
from marginpursuit.tasks import LabelSets


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
    report: Reporter | None = None  # of callbacks, which it calls after each fit of a fold
    #: A candidate that is chosen, at threshold zero, unless another is significantly better.
    prior: Candidate | None = None
    #: The kernels of fits of one class against one; None for other fits.
    pairs: PairKernels | None = None


@dataclass(frozen=True)
class SearchResult:
    """The scores of all candidates, and the chosen one."""

    scores: FloatArray  # (n_candidates, n_folds)
    thresholds: FloatArray  # (n_candidates,), at which the candidates have these scores
    resources: NDArray[np.intp]  # (n_candidates,), the rows of the last rung of each
    best: int
    start: Linear | None  # the mean of the chosen fold fits, which warm-starts the refit
    threshold: Any  # of the chosen candidate, or one for each of several labels
    link: FittedLink | LabelLinks | None
    out_of_fold_scores: FloatArray  # (n_rows, n_problems), of the chosen candidate
    out_of_fold_proba: FloatArray  # (n_rows, n_classes)
    n_passes: float
    is_joint: bool  # whether the chosen candidate has a joint loss


@dataclass
class _CandidateRecord:
    """What a link, the out-of-fold scores and the refit need of the fits of a candidate."""

    #: By fold: scores / margin of the rows in `_RungResult.rows`, in float32.
    held_out: dict[int, FloatArray] = field(default_factory=dict)
    fits: list[Linear] = field(default_factory=list)  # to all folds, or none

    def detach(self) -> None:
        """Copy arrays that are parts of those of a batch, which has other candidates too."""
        self.held_out = {fold: scores.copy() for fold, scores in self.held_out.items()}
        self.fits = [(coef.copy(), intercept.copy()) for coef, intercept in self.fits]


@dataclass
class _RungResult:
    """The scores of the candidates of a rung, and what is kept of the fits."""

    scores: FloatArray  # (n_candidates, n_folds, n_thresholds)
    rows: list[NDArray[np.intp]]  # by fold, the scored rows of which held-out scores are kept
    step: int  # between these rows among the rows that a fold holds out; usually one
    kept: dict[int, _CandidateRecord] = field(default_factory=dict)  # by the index of the candidate


@dataclass
class _LinkedFolds:
    """Held-out scores of each fold, and a link that is fitted when probabilities are asked for."""

    scores: list[FloatArray]
    fit: Callable[[], Any]

    @cached_property
    def fitted(self) -> Any:
        """The link."""
        return self.fit()

    def subtract_thresholds(self) -> None:
        """Subtract the thresholds of labels from the scores."""
        self.scores = [scores - self.fitted.thresholds for scores in self.scores]

    @cached_property
    def probabilities(self) -> list[FloatArray]:
        """The probabilities of each fold, of all rows in one call."""
        ends = np.cumsum([len(scores) for scores in self.scores])
        found = self.fitted.probabilities(np.concatenate(self.scores))
        return np.split(np.asarray(found), ends[:-1])

    def of_fold(self, fold: int, scores: FloatArray) -> FloatArray:
        """Return the probabilities of a fold, whose scores are given."""
        return self.probabilities[fold]


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
        self._rotation, merge = None, None
        if options.pairs is None:
            merge = merged_columns(data.matrix, data.labels, options.fits, policy)
        if merge is not None:
            matrix, self._rotation = merge
            data = replace(data, matrix=matrix)
        self._data, self._folds, self._scorer = data, folds, scorer
        self._options, self._policy = options, policy
        self._n_passes = 0.0

    def run(self, candidates: list[Candidate]) -> SearchResult:
        """Evaluate the candidates rung by rung and choose one of those in the last.

        If the mean scores of all these are NaN, `best` is the first of them.
        """
        scores = np.full((len(candidates), len(self._folds)), np.nan)
        thresholds = np.zeros(len(candidates))
        resources = np.zeros(len(candidates), dtype=np.intp)
        scales = sorted({candidate.scale for candidate in candidates})
        left, size = np.arange(len(candidates)), self._next_size(0)
        while True:
            rung = self._rung(size)
            current = [candidates[k] for k in left]
            result = self._evaluate(rung, current, scales)
            resources[left] = self._n_rows(rung)
            scores[left], thresholds[left] = self._scorer.at_best_thresholds(result.scores)
            if size is None:
                break
            kept = remaining(scores[left], rung.n_held_out, self._policy)
            left = left[with_smaller_penalties(current, kept)]
            size = self._next_size(size)
        chosen = self._choose(current, scores[left])
        best, fits = int(left[chosen]), result.kept[chosen]
        if candidates[best] == self._options.prior:
            scores[best], thresholds[best] = self._scorer.at_zero(result.scores[chosen]), 0.0
        link: FittedLink | LabelLinks | None = None
        threshold: Any = float(thresholds[best])
        if self._options.link == "fitted":
            max_rows = self._policy.max_link_rows
            link = self._fitted_link(rung, result.rows, fits, threshold, max_rows=max_rows)
            threshold = getattr(link, "thresholds", threshold)  # those of several labels
        out_of_fold = self._out_of_fold_scores(result.rows, fits, threshold)
        return SearchResult(
            scores,
            thresholds,
            resources,
            best,
            start=self._start(fits),
            threshold=threshold,
            link=link,
            out_of_fold_scores=out_of_fold,
            out_of_fold_proba=self._out_of_fold_proba(out_of_fold, candidates[best], link),
            n_passes=self._n_passes,
            is_joint=self._is_joint(candidates[best]),
        )

    def _is_joint(self, candidate: Candidate) -> bool:
        return self._options.fits.is_joint and candidate.overconfidence == 0

    def _next_size(self, previous: int) -> int | None:
        if not self._options.successive_halving or len(self._folds) < 2:
            return None
        return next_size(self._data, previous, self._policy)

    def _rung(self, size: int | None) -> Rung:
        if size is None:
            return full_rung(self._data, self._folds)
        return subsampled_rung(self._data, self._folds, size, self._random, self._policy)

    @cached_property
    def _random(self) -> Any:
        seed = self._options.random_state
        if isinstance(seed, np.random.Generator):
            seed = int(seed.integers(2**31))
        return check_random_state(seed)

    def _evaluate(
        self, rung: Rung, candidates: list[Candidate], scales: Sequence[float]
    ) -> _RungResult:
        """Fit candidates to the folds of a rung and score the held-out rows."""
        index = {candidate: k for k, candidate in enumerate(candidates)}
        prior = next((k for c, k in index.items() if c == self._options.prior), None)
        shape = len(candidates), len(self._folds), len(self._scorer.thresholds)
        result = _RungResult(np.full(shape, np.nan), *self._kept_rows(rung, len(candidates)))
        prepare = self._fold_fits(rung)
        label = f"{len(candidates)} candidates on {self._n_rows(rung)} rows"
        n_fits = 0
        with self._progress_bar(label) as reached, prepare() as fold_fits:
            for batch in fold_fits.held_out(index, scales):
                indices = [index[candidate] for candidate in batch.candidates]
                self._keep(rung, batch, result, indices)
                self._score(rung, batch, result, indices)
                self._drop(rung, result, prior)
                n_fits += len(indices) * len(rung.held_out[batch.fold])
                reached(n_fits, shape[0] * shape[1])
                if self._options.report is not None:
                    for _ in indices:
                        self._options.report.finish_task("fit of a fold")
            self._n_passes += fold_fits.n_passes * rung.fraction
        return result

    def _fold_fits(self, rung: Rung) -> Callable[[], FoldFits | PairFoldFits]:
        """Return a function that prepares the fits to the folds of a rung."""
        options, weights = self._options, self._fold_weights(rung)
        fits = replace(options.fits, alpha_factor=1.0 / rung.fraction)
        if options.pairs is not None:
            return partial(PairFoldFits, options.pairs, rung, weights, fits, options.stopping)
        data = FoldData(
            fitted=rung.fitted.matrix,
            scored=rung.scored.matrix,
            labels=rung.fitted.labels,
            weights=weights,
            folds=rung.fits,
            variance_weights=rung.fitted.variance_weights,
        )
        plan = FitPlan.make(data, fits, options.stopping, self._policy, is_final=rung.is_full)
        return partial(FoldFits, data, plan)

    def _kept_rows(self, rung: Rung, n_candidates: int) -> tuple[list[NDArray[np.intp]], int]:
        """Return by fold the held-out rows whose scores are kept, and the step between them."""
        tests: dict[int, NDArray[np.intp]] = {
            fold: fit.test[positions]
            for fit, held_out in zip(rung.fits, rung.held_out, strict=True)
            for fold, positions in held_out
        }
        n_problems = len(self._data.labels.positive_classes)
        n_rows = sum(map(len, tests.values()))
        max_rows = self._policy.max_kept_bytes // (4 * n_problems * n_candidates)
        step = max(1, -(-n_rows // max(1, max_rows)))
        return [tests[fold][::step] for fold in range(len(self._folds))], step

    def _keep(self, rung: Rung, batch: FoldBatch, result: _RungResult, indices: list[int]) -> None:
        """Keep the scores of fits if a link needs them, and those of the last rung."""
        if not (rung.is_full or self._needs_link):
            return
        records = [result.kept.setdefault(index, _CandidateRecord()) for index in indices]
        for fold, held_out in rung.held_out[batch.fold]:
            # In units of the margin, since float32 may not hold the scores.
            scaled = batch.scores[held_out][:: result.step] / self._options.fits.margin
            for record, record_scores in zip(
                records, scaled.astype(np.float32).swapaxes(0, 1), strict=True
            ):
                record.held_out[fold] = record_scores
        if batch.linear is None:
            return
        coef, intercept = batch.linear
        if coef.nbytes * len(result.scores) * len(self._folds) > (
            self._policy.max_start_bytes * len(indices)
        ):
            return
        n_problems = len(intercept) // len(indices)
        for k, record in enumerate(records):
            columns = slice(k * n_problems, (k + 1) * n_problems)
            record.fits.append((coef[:, columns], intercept[columns]))

    def _score(self, rung: Rung, batch: FoldBatch, result: _RungResult, indices: list[int]) -> None:
        """Score fits on the folds that they hold out.

        If the scorer needs a fitted link, a candidate is scored when it has fits to all folds: its
        link is fitted to the held-out scores of all folds, as that of the chosen candidate is.
        """
        if not self._needs_link:
            test = rung.fits[batch.fold].test
            exact = [
                partial(self._exact_probabilities, candidate) for candidate in batch.candidates
            ]
            for fold, positions in rung.held_out[batch.fold]:
                values = self._scorer(batch.scores[positions], rung.rows[test[positions]], exact)
                result.scores[indices, fold] = values
            return
        for index in indices:
            if len(result.kept[index].held_out) == len(self._folds):
                self._score_by_link(rung, result, index)

    def _score_by_link(self, rung: Rung, result: _RungResult, index: int) -> None:
        """Score the fits of a candidate to all folds, with a link fitted to their scores."""
        kept, max_rows = result.kept[index], self._policy.max_scoring_link_rows
        fit_link = partial(self._fitted_link, rung, result.rows, kept, max_rows=max_rows)
        margin, folds = self._options.fits.margin, range(len(result.rows))
        scores = [margin * kept.held_out[fold].astype(np.float64) for fold in folds]
        linked = _LinkedFolds(scores, fit_link)
        if isinstance(rung.scored.labels, LabelSets):
            linked.subtract_thresholds()
        for fold, rows in enumerate(result.rows):
            own, link = linked.scores[fold][:, np.newaxis], partial(linked.of_fold, fold)
            result.scores[index, fold] = self._scorer(own, rung.rows[rows], [link])[0]

    def _drop(self, rung: Rung, result: _RungResult, prior: int | None) -> None:
        """Drop what is kept of candidates that have been scored and cannot be chosen.

        The rule "one-standard-error" may choose any of the last rung. `prior` is the index of the
        candidate that other rules may choose besides the best.
        """
        n_folds, kept = len(self._folds), result.kept
        complete = sorted(k for k, record in kept.items() if len(record.held_out) == n_folds)
        if not rung.is_full:
            for k in complete:
                del kept[k]
        elif self._options.rule != "one-standard-error" and len(complete) > 2:
            scores, _ = self._scorer.at_best_thresholds(result.scores[complete])
            needed = {complete[best_candidate(scores)], prior}
            for k in complete:
                if k not in needed:
                    del kept[k]
                else:
                    kept[k].detach()

    @property
    def _needs_link(self) -> bool:
        """Whether the scorer may ask for the probabilities of a fitted link."""
        return self._options.link == "fitted" and self._scorer.uses_link

    def _n_rows(self, rung: Rung) -> int:
        """Return the number of rows of a rung, with the fraction that a fold holds out."""
        return round(rung.fraction * len(self._data.weights))

    def _progress_bar(self, label: str) -> AbstractContextManager[Reached]:
        title = self._options.title
        return nullcontext(_ignore) if title is None else ProgressBar(f"{title}: {label}")

    def _fold_weights(self, rung: Rung) -> FloatArray:
        """Return the weights of the rows in each fit, zero for those that it holds out."""
        labels = rung.fitted.labels
        weights = np.zeros((len(rung.fits), labels.n_rows))
        for fold_weights, (train, _) in zip(weights, rung.fits, strict=True):
            fold_weights[train] = rung.fitted.weights[train]
            if self._options.is_balanced:
                codes = labels.codes[train]
                factors = balanced_factors(codes, fold_weights[train], labels.n_classes)
                fold_weights[train] *= factors[codes]
        weights /= weights.sum(axis=1, keepdims=True)
        return weights

    def _exact_probabilities(self, candidate: Candidate, scores: FloatArray) -> FloatArray:
        fits = self._options.fits
        if self._options.pairs is not None:
            return np.asarray(FittedLink.a_priori(fits.margin, np.inf).probabilities(scores))
        loss = MarginLoss(fits.margin, candidate.scale, candidate.overconfidence, fits.rho)
        if isinstance(self._data.labels, LabelSets):
            return np.asarray(ExactLabelLink(loss).probabilities(scores))
        joint_loss = JointLoss.at_level(loss) if self._is_joint(candidate) else loss
        return np.asarray(exact_probabilities(scores, joint_loss))

    def _fitted_link(
        self,
        rung: Rung,
        rows: list[NDArray[np.intp]],
        kept: _CandidateRecord,
        threshold: float = 0.0,
        *,
        max_rows: int,
    ) -> FittedLink | LabelLinks:
        """Return the link that is fitted to the held-out scores of a candidate."""
        parts = [kept.held_out[fold] for fold in range(len(self._folds))]
        all_rows, margin = np.concatenate(rows), self._options.fits.margin
        scores = margin * np.concatenate(parts, dtype=np.float64) - threshold
        labels = rung.scored.labels.take(all_rows)
        counts = rung.scored.total_weight * rung.scored.weights[all_rows]
        if isinstance(labels, LabelSets):
            return LabelLinks.fit(scores, labels.indicator(), counts, margin, labels.factors)[0]
        held_out = scores, labels.codes, counts, margin, threshold
        return FittedLink.fit(*held_out, max_rows=max_rows)[0]

    def _out_of_fold_scores(
        self, rows: list[NDArray[np.intp]], kept: _CandidateRecord, threshold: Any
    ) -> FloatArray:
        """Return the mean score of each row over the folds that hold it out, less the threshold.

        The scores of a row that no fold holds out are NaN.
        """
        n_rows = len(self._data.weights)
        total, count = np.zeros((n_rows, kept.held_out[0].shape[1])), np.zeros((n_rows, 1))
        for fold, fold_rows in enumerate(rows):
            total[fold_rows] += kept.held_out[fold]
            count[fold_rows] += 1
        return np.asarray(self._options.fits.margin * (total / count) - threshold)

    def _out_of_fold_proba(
        self, scores: FloatArray, candidate: Candidate, link: FittedLink | LabelLinks | None
    ) -> FloatArray:
        """Return the probabilities of the classes or labels; NaN for rows without a score."""
        held_out = np.flatnonzero(~np.isnan(scores[:, 0]))
        exact = partial(self._exact_probabilities, candidate)
        result = np.full((len(scores), self._data.labels.n_classes), np.nan)
        result[held_out] = (exact if link is None else link.probabilities)(scores[held_out])
        return result

    def _start(self, kept: _CandidateRecord) -> Linear | None:
        """Return the mean of the fold fits of a candidate, if they were kept."""
        if not kept.fits:
            return None
        coefs, intercepts = zip(*kept.fits, strict=True)
        mean = np.mean(coefs, axis=0), np.mean(intercepts, axis=0)
        return mean if self._rotation is None else self._rotation.to_data(mean)

    def _choose(self, candidates: list[Candidate], scores: FloatArray) -> int:
        means, root = scores.mean(axis=1), np.sqrt(scores.shape[1])
        best = best_candidate(scores)
        if self._options.prior in candidates:
            prior = candidates.index(self._options.prior)
            gain = scores[best] - scores[prior]
            error = gain.std(ddof=1) / root
            return prior if gain.mean() <= self._policy.prior_errors * error else best
        if self._options.rule != "one-standard-error" or not np.isfinite(means[best]):
            return best
        error = scores[best].std(ddof=1) / root
        within = np.flatnonzero(means >= means[best] - error)
        return int(max(within, key=lambda k: candidates[k]))


def _ignore(done: int, total: int | None) -> None:
    """Show nothing."""
