"""Judging by scores of rows that a fit has not seen, with any scorer of scikit-learn.

Of two classes the second is predicted where the score is above a *threshold*. Where many rows are
far on the wrong side the intercept of the best fit gives way to them, though they would be as wrong
with any other; the share of correct predictions is therefore had at many thresholds.

Next to a threshold there are few held-out rows, and the best of many shares is best by chance. The
share at a threshold is therefore a mean over those next to it, with weights that fall linearly: of
14 cases (five small sets, spoilt or not, seeds 10 to 19) it took 0.2 points off the test error of
hiva and higgs_small with leverage rows, 0.1 off hiva with flipped labels, and moved the others by
less than 0.1.
"""

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin

from marginpursuit._validation import FloatArray
from marginpursuit.design import take_rows

#: Thresholds in units of the level. A step of 0.05 and thresholds beyond the level made no
#: difference to test errors; a step of 0.1 cost half a point on higgs_small with leverage rows,
#: where most scores are near the level.
THRESHOLDS = np.arange(-49, 50) / 50

# What the thresholds next to one count, of those up to 0.12 times the level away.
_NEARBY = np.convolve(np.ones(7), np.ones(7)) / 49

#: Turns scores of shape (n_rows, n_problems) into probabilities of each class.
Link = Callable[[FloatArray], FloatArray]


class Scored(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Stands in for a fitted classifier where a scorer asks: all it has are scores of some rows."""

    def __init__(self, classes: Any = None, scores: Any = None, link: Link | None = None) -> None:
        self.classes_ = classes
        self.scores = scores
        self.link = link

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def fit(self, X: Any, y: Any) -> "Scored":
        """Do nothing: scikit-learn wants every estimator to have it."""
        return self

    def decision_function(self, X: Any) -> FloatArray:
        """Return the scores, whatever X is."""
        return np.asarray(self.scores[:, 0] if self.scores.shape[1] == 1 else self.scores)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the classes that the scores speak for."""
        return np.asarray(self.classes_[_codes(self.scores)])

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the probabilities that the link makes of the scores."""
        assert self.link is not None
        return self.link(self.scores)


@dataclass(frozen=True)
class Judge:
    """Says how good scores are for the rows they belong to."""

    scorer: Any  # None: the share of correct predictions
    matrix: Any
    codes: NDArray[np.intp]
    classes: NDArray[Any]
    metadata: dict[str, Any]  # for the scorer; arrays with an entry a row are cut to size
    thresholds: FloatArray  # evenly spaced; zero alone unless there are two classes and no scorer

    def __call__(self, scores: FloatArray, rows: NDArray[np.intp], link: Link) -> FloatArray:
        """Return the score of the scores at each threshold, or about it where there are several."""
        metadata = {
            name: value[rows] if np.shape(value)[:1] == self.codes.shape else value
            for name, value in self.metadata.items()
        }
        if self.scorer is None:
            codes, weights = self.codes[rows], metadata.get("sample_weight")
            if len(self.thresholds) > 1:
                return _correct_at(self.thresholds, scores[:, 0], codes, weights)
            return np.array([np.average(_codes(scores) == codes, weights=weights)])
        stand_in = Scored(self.classes, scores, link)
        true = self.classes[self.codes[rows]]
        # scikit-learn's own scorers only hand X to the stand-in, which ignores it.
        samples = rows if hasattr(self.scorer, "_score_func") else take_rows(self.matrix, rows)
        return np.array([self.scorer(stand_in, samples, true, **metadata)], dtype=np.float64)

    def at_best(self, judged: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the scores of settings at the threshold that suits each best, and the thresholds.

        `judged` has the shape (n_settings, n_folds, n_thresholds). Of thresholds that are equally
        good the one nearest to zero is taken.
        """
        order = np.argsort(abs(self.thresholds), kind="stable")
        best = order[np.argmax(judged.mean(axis=1)[:, order], axis=1)]
        return judged[np.arange(len(best)), :, best], self.thresholds[best]


def search_results(
    params: list[dict[str, Any]],
    scores: FloatArray,
    resources: NDArray[np.intp],
    thresholds: FloatArray,
) -> dict[str, Any]:
    """Lay scores out as scikit-learn's searches do."""
    means = scores.mean(axis=1)
    results: dict[str, Any] = {
        "params": params,
        "n_resources": resources,
        "threshold": thresholds,
    }
    for name in params[0]:
        results[f"param_{name}"] = np.ma.array([setting[name] for setting in params])
    for fold, column in enumerate(scores.T):
        results[f"split{fold}_test_score"] = column
    # A setting that dropped out ranks behind all that did not.
    places = list(zip(-resources, -means, strict=True))
    behind = sorted(places)
    return results | {
        "mean_test_score": means,
        "std_test_score": scores.std(axis=1),
        "rank_test_score": np.array([1 + behind.index(place) for place in places], dtype=np.int32),
    }


def takes_weights(scorer: Any) -> bool:
    """Whether a scorer can weigh samples."""
    judged_by = scorer if scorer is None else getattr(scorer, "_score_func", scorer)
    return judged_by is None or "sample_weight" in signature(judged_by).parameters


def _correct_at(
    thresholds: FloatArray, scores: FloatArray, codes: NDArray[np.intp], weights: Any
) -> FloatArray:
    """Return the share of rows that are correct about each threshold.

    A row of the second class is correct at the thresholds below its score, another at the rest.
    """
    step = np.ptp(thresholds) / (len(thresholds) - 1)
    first = round(thresholds[0] / step) - len(_NEARBY) // 2
    n_thresholds = len(thresholds) + len(_NEARBY) - 1
    # Before the shift, which would round scores next to zero to zero; NaN is above no threshold.
    places = np.fmin(np.fmax(np.ceil(scores / step), first), first + n_thresholds)
    n_below = places.astype(np.intp) - first
    signed = (2.0 * codes - 1.0) * (1.0 if weights is None else weights)
    lost = np.cumsum(np.bincount(n_below, signed, n_thresholds)[:n_thresholds])
    total = len(codes) if weights is None else weights.sum()
    shares = np.average(codes, weights=weights) - lost / total
    return np.convolve(shares, _NEARBY, "valid")


def _codes(scores: FloatArray) -> NDArray[np.intp]:
    """Return the codes of the classes that scores of shape (n_rows, n_problems) speak for."""
    if scores.shape[1] == 1:
        return (scores[:, 0] > 0).astype(np.intp)
    return np.asarray(scores.argmax(axis=1))
