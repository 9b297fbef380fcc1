"""Scoring held-out rows by their scores h(x), with any scorer of scikit-learn.

With two classes, the second is predicted where h(x) exceeds a *threshold*. Rows far on the wrong
side move the intercept of the minimiser although they are misclassified either way. The accuracy is
therefore evaluated at many thresholds.

Few held-out rows lie close to any one threshold, so the largest of many accuracies is partly due to
chance. The accuracy at a threshold is therefore a mean over the adjacent ones, with triangular
weights (`SelectionPolicy.smoothing`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import signature
from reprlib import repr as short
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin

from marginpursuit import _kernels
from marginpursuit._validation import FloatArray
from marginpursuit.design import take_rows
from marginpursuit.selection.metrics import fast_metric
from marginpursuit.tasks import Labels, LabelSets

#: Turns scores of shape (n_rows, n_problems) into probabilities of each class.
Link = Callable[[FloatArray], FloatArray]


class PrecomputedScores(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier whose scores of some rows are given; scorers are called with it."""

    def __init__(
        self,
        classes: Any = None,
        scores: Any = None,
        link: Link | None = None,
        *,
        multilabel: bool = False,
    ) -> None:
        self.classes_ = classes
        self.scores = scores
        self.link = link
        self.multilabel = multilabel

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def fit(self, X: Any, y: Any) -> "PrecomputedScores":
        """Return self: scikit-learn requires the method of every estimator."""
        return self

    def decision_function(self, X: Any) -> FloatArray:
        """Return the scores; X is ignored."""
        return np.asarray(self.scores[:, 0] if self.scores.shape[1] == 1 else self.scores)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the classes with the largest scores, or an indicator matrix of labels."""
        if self.multilabel:
            return np.asarray(self.scores > 0).astype(np.int64)
        return np.asarray(self.classes_[_predicted(self.scores)])

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the probabilities that the link assigns to the scores."""
        assert self.link is not None
        return self.link(self.scores)


@dataclass(frozen=True)
class HeldOutScorer:
    """Scores the held-out rows of a fold, at one or several thresholds."""

    scorer: Any  # None: accuracy, or the negative log-loss of several labels
    matrix: Any
    labels: Labels
    classes: NDArray[Any]
    metadata: dict[str, Any]  # arguments of the scorer; those with an entry per row are indexed
    thresholds: FloatArray  # equidistant; [0] unless there are two classes and no scorer
    smoothing: int  # half width of the triangular weights over thresholds
    max_elements: int = 1 << 16  # scores that are counted at a time: temporary arrays of 512 KiB

    def __call__(
        self, scores: FloatArray, rows: NDArray[np.intp], links: Sequence[Link]
    ) -> FloatArray:
        """Return the values of the scorer for these rows, of shape (n_candidates, n_thresholds).

        `scores` has shape (n_rows, n_candidates, n_problems), and each candidate has a link.
        """
        metadata = {
            name: value[rows] if np.shape(value)[:1] == (self.labels.n_rows,) else value
            for name, value in self.metadata.items()
        }
        labels = self.labels.take(rows)
        if self.scorer is None and not isinstance(labels, LabelSets):
            return self._accuracy(scores, labels.codes, metadata.get("sample_weight"))
        own = [np.ascontiguousarray(scores[:, k]) for k in range(len(links))]
        given = zip(own, links, strict=True)
        values = [self._value(part, labels, rows, link, metadata) for part, link in given]
        return np.array(values)[:, np.newaxis]

    def _value(
        self,
        scores: FloatArray,
        labels: Labels,
        rows: NDArray[np.intp],
        link: Link,
        metadata: dict[str, Any],
    ) -> float:
        """Return the value of the scorer for one candidate."""
        if isinstance(labels, LabelSets):
            return self._of_labels(scores, labels, rows, link, metadata)
        codes = labels.codes
        fast = fast_metric(self.scorer, len(self.classes))
        has_all = np.bincount(codes, minlength=len(self.classes)).all()
        if fast is not None and has_all and metadata.keys() <= {"sample_weight"}:
            response, sign, metric = fast
            value = metric(codes, _response(response, scores, link), metadata.get("sample_weight"))
            return sign * value
        estimator = PrecomputedScores(self.classes, scores, link)
        return self._called(estimator, rows, self.classes[codes], metadata)

    def _called(
        self, estimator: Any, rows: NDArray[np.intp], y_true: Any, metadata: dict[str, Any]
    ) -> float:
        """Return the value of the scorer of scikit-learn or of the user."""
        # scikit-learn's own scorers only pass X to the estimator, which ignores it.
        X = rows if hasattr(self.scorer, "_score_func") else take_rows(self.matrix, rows)
        value = self.scorer(estimator, X, y_true, **metadata)
        try:
            return float(value)
        except (TypeError, ValueError) as error:
            found = f"{short(value)}; expected a number"
            raise TypeError(f"the scorer {_scorer_name(self.scorer)} returned {found}") from error

    def _of_labels(
        self,
        scores: FloatArray,
        labels: LabelSets,
        rows: NDArray[np.intp],
        link: Link,
        metadata: dict[str, Any],
    ) -> float:
        """Return the value of the scorer for several labels; the log-loss has their weights."""
        is_positive = labels.indicator()
        if self.scorer is not None:
            estimator = PrecomputedScores(self.classes, scores, link, multilabel=True)
            return self._called(estimator, rows, is_positive.astype(np.int64), metadata)
        proba = link(scores)
        losses = -np.log(np.where(is_positive, proba, 1.0 - proba))
        if labels.factors is not None:
            losses *= np.where(is_positive, labels.factors[1], labels.factors[0])
        return -float(np.average(losses.mean(axis=1), weights=metadata.get("sample_weight")))

    @property
    def uses_link(self) -> bool:
        """Whether scoring needs a fitted link.

        A scorer may call `predict_proba`; scorers of unknown kind may. The link of several labels
        has their thresholds, which decide every prediction.
        """
        if isinstance(self.labels, LabelSets):
            return True
        if self.scorer is None:
            return False
        response = getattr(self.scorer, "_response_method", "predict_proba")
        first = response if isinstance(response, str) else response[0]
        return bool(first == "predict_proba")

    def at_best_thresholds(self, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the values of each candidate in each fold, and the best thresholds.

        `values` has shape (n_candidates, n_folds, n_thresholds). The value in a fold is that at the
        threshold that is best in the other folds: at the best threshold of all folds it would be
        optimistic. Among equally good thresholds the smallest in absolute value is taken.
        """
        order = np.argsort(abs(self.thresholds), kind="stable")
        total = values.sum(axis=1)
        others = total[:, np.newaxis] - values
        # Sums that differ by rounding are equal.
        own = order[np.argmax(others.round(12)[:, :, order], axis=2)]
        best = order[np.argmax(total.round(12)[:, order], axis=1)]
        found = np.take_along_axis(values, own[:, :, np.newaxis], axis=2)[:, :, 0]
        return found, self.thresholds[best]

    def at_zero(self, values: FloatArray) -> FloatArray:
        """Return the values of a candidate in each fold at threshold zero."""
        return np.asarray(values[:, np.argmin(abs(self.thresholds))])

    def _accuracy(self, scores: FloatArray, codes: NDArray[np.intp], weights: Any) -> FloatArray:
        """Return accuracies of shape (n_candidates, n_thresholds), few candidates at a time."""
        if len(self.thresholds) > 1:
            given = codes, weights, self.thresholds, self.smoothing
            return _smoothed_accuracy(scores[:, :, 0], *given)
        step = max(1, self.max_elements // max(1, scores[:, 0].size))
        parts = [scores[:, k : k + step] for k in range(0, scores.shape[1], step)]
        correct = [_predicted(part) == codes[:, np.newaxis] for part in parts]
        return np.concatenate([np.average(x, axis=0, weights=weights) for x in correct])[
            :, np.newaxis
        ]


def best_candidate(scores: FloatArray) -> int:
    """Return the candidate with the largest mean over the folds, the first of equal ones.

    `scores` has shape (n_candidates, n_folds). A mean that is NaN is less than all others.
    """
    means = scores.mean(axis=1)
    return 0 if np.isnan(means).all() else int(np.nanargmax(means))


def _scorer_name(scorer: Any) -> str:
    function = getattr(scorer, "_score_func", scorer)
    return str(getattr(function, "__name__", repr(scorer)))


def refuse_undefined(scorer: Any, scores: FloatArray, best: int) -> None:
    """Raise a ValueError if no candidate has a mean score, as without a class in a fold.

    `scores` has shape (n_candidates, n_folds); `best` is the best candidate.
    """
    if not np.isnan(scores[best].mean()):
        return
    name = "" if scorer is None else f" {_scorer_name(scorer)}"
    folds = np.flatnonzero(np.isnan(scores).any(axis=0)).tolist()
    raise ValueError(
        f"the score{name} is NaN for all candidates in the mean over the folds: it is NaN in "
        f"{len(folds)} of {scores.shape[1]} folds, {folds}; expected a number in each. Scorers "
        "may be undefined for a fold without rows of some class: set cv to a StratifiedKFold, or "
        "another scoring."
    )


def search_results(
    params: list[dict[str, Any]],
    scores: FloatArray,
    resources: NDArray[np.intp],
    thresholds: FloatArray,
    n_components: NDArray[np.intp] | None = None,
) -> dict[str, Any]:
    """Return `cv_results_` in the layout of scikit-learn's searches.

    `n_components` are the landmarks of a kernel with which each candidate was evaluated.
    """
    means = scores.mean(axis=1)
    results: dict[str, Any] = {
        "params": params,
        "n_resources": resources,
        "threshold": thresholds,
    }
    for name in params[0]:
        results[f"param_{name}"] = np.ma.array(np.array([candidate[name] for candidate in params]))
    for fold, column in enumerate(scores.T):
        results[f"split{fold}_test_score"] = column
    # Candidates that were eliminated earlier rank behind all that were evaluated on more rows, or
    # with more landmarks; those without a mean score rank last, as in scikit-learn.
    sizes = np.zeros_like(resources)
    if n_components is not None:
        results["n_components"] = sizes = n_components
    is_missing = np.isnan(means)
    order = np.where(is_missing, 0.0, -means)
    keys = list(zip(is_missing, -sizes, -resources, order, strict=True))
    ordered = sorted(keys)
    return results | {
        "mean_test_score": means,
        "std_test_score": scores.std(axis=1),
        "rank_test_score": np.array([1 + ordered.index(key) for key in keys], dtype=np.int32),
    }


def takes_weights(scorer: Any) -> bool:
    """Whether a scorer accepts `sample_weight`."""
    function = scorer if scorer is None else getattr(scorer, "_score_func", scorer)
    return function is None or "sample_weight" in signature(function).parameters


def _smoothed_accuracy(
    scores: FloatArray,
    codes: NDArray[np.intp],
    weights: Any,
    thresholds: FloatArray,
    smoothing: int,
) -> FloatArray:
    """Return the accuracy at each threshold, averaged with triangular weights over adjacent ones.

    `scores` has shape (n_rows, n_candidates), the result (n_candidates, n_thresholds). A row of the
    second class is correct at the thresholds below its score, a row of the first at the others.
    """
    kernel = np.convolve(np.ones(smoothing), np.ones(smoothing)) / smoothing**2
    n_thresholds = len(thresholds) + len(kernel) - 1
    step = (thresholds[-1] - thresholds[0]) / (len(thresholds) - 1)
    first = round(thresholds[0] / step) - len(kernel) // 2
    # A score that is NaN exceeds no threshold.
    signed = (2.0 * codes - 1.0) * (1.0 if weights is None else weights)
    own = np.ascontiguousarray(scores)
    sums = _kernels.interval_sums(own, signed, step, first, n_thresholds + 1)
    lost = np.cumsum(sums[:, :-1], axis=1)
    total = len(codes) if weights is None else weights.sum()
    n_second = codes.sum() if weights is None else codes @ weights
    accuracy = (n_second - lost) / total
    return np.asarray(sliding_window_view(accuracy, len(kernel), axis=1) @ kernel)


def _response(method: str, scores: FloatArray, link: Link) -> NDArray[Any]:
    """Return what a response method returns; class codes for "predict"."""
    if method == "predict":
        return _predicted(scores)
    return link(scores) if method == "predict_proba" else scores[:, 0]


def _predicted(scores: FloatArray) -> NDArray[np.intp]:
    """Return the codes of the predicted classes, for scores of shape (..., n_problems)."""
    if scores.shape[-1] == 1:
        return (scores[..., 0] > 0).astype(np.intp)
    return np.asarray(scores.argmax(axis=-1))
