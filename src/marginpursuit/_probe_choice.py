"""The choice of the penalty of a linear probe, and its accuracies."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import check_cv

from marginpursuit._namespaces import namespace, to_device_of, to_numpy
from marginpursuit._validation import FloatArray
from marginpursuit.classifiers import MarginPursuitClassifier
from marginpursuit.classifiers._shared import PathFit, penalty_path, range_error
from marginpursuit.design import take_rows
from marginpursuit.selection import MarginPursuitClassifierCV
from marginpursuit.selection._cross_validated import checked_pairs, increasing_rows
from marginpursuit.selection.policy import SelectionPolicy

__all__ = ["Accuracies", "Choice", "FittedProbe", "Labelled", "accuracies"]

#: Rows and labels.
Labelled = tuple[Any, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Accuracies:
    """Accuracies of a linear classifier on some rows."""

    top_1: float
    top_5: float  # NaN with five classes or fewer
    mean_per_class: float  # the mean over the classes that the rows have

    @classmethod
    def of(cls, ranks: NDArray[np.intp], codes: NDArray[np.intp], n_classes: int) -> "Accuracies":
        """Count rows by the rank of the score of their class: 0 is the largest score."""
        sizes = np.bincount(codes, minlength=n_classes)
        correct = np.bincount(codes, weights=ranks == 0, minlength=n_classes)
        present = sizes > 0
        return cls(
            float(np.mean(ranks == 0)),
            float(np.mean(ranks < 5)) if n_classes > 5 else float("nan"),
            float(np.mean(correct[present] / sizes[present])),
        )


@dataclass(frozen=True)
class FittedProbe:
    """A fit after the choice of its penalty."""

    model: Any
    alpha: float
    alphas: FloatArray
    accuracies: FloatArray  # (n_alphas,)
    held_out: Accuracies
    rows: str  # that `held_out` is about


@dataclass(frozen=True)
class Choice:
    """How a penalty is chosen."""

    validation: Labelled | None
    cv: Any
    alphas: list[float] | None
    estimator: Any

    def with_folds_of(self, size: int) -> "Choice":
        """Return the choice for few rows a class: no more folds than these; one has no folds."""
        cv = min(self.cv, size) if isinstance(self.cv, int) else 5 if size >= 5 else size
        return Choice(self.validation, cv, self.alphas, self.estimator)

    def fit(self, X: Any, y: NDArray[Any]) -> FittedProbe:
        """Choose a penalty and fit."""
        if self.validation is None and isinstance(self.cv, int) and self.cv < 2:
            return _without_choice(X, y, self.estimator)
        if self._searches:
            return _searched(X, y, self.cv, self.estimator)
        model = self.estimator
        if model is None:
            model = MarginPursuitClassifier(probability=None)
        if isinstance(model.scale, str):
            raise ValueError(
                f"estimator.scale must be a number where penalties are chosen; got {model.scale!r}"
            )
        alphas = self.alphas
        if alphas is None:
            kind = "sparse" if hasattr(X, "tocsr") else "dense"
            alphas = list(SelectionPolicy().default_grid(kind, len(y))["alphas"])
        if self.validation is not None:
            return _by_validation(X, y, self.validation, alphas, model)
        return _by_folds(X, y, self.cv, alphas, model)

    @property
    def _searches(self) -> bool:
        if isinstance(self.estimator, MarginPursuitClassifierCV):
            return True
        return self.estimator is None and self.alphas is None and self.validation is None


def _searched(X: Any, y: NDArray[Any], cv: Any, estimator: Any) -> FittedProbe:
    """Choose by the search, and measure its out-of-fold scores."""
    search = MarginPursuitClassifierCV() if estimator is None else clone(estimator)
    model = search.set_params(cv=cv).fit(X, y)
    scores = model.out_of_fold_scores_
    known = np.isfinite(scores) if scores.ndim == 1 else np.isfinite(scores).all(axis=1)
    codes = np.searchsorted(model.classes_, y[known])
    held_out = Accuracies.of(_ranks(scores[known], codes), codes, len(model.classes_))
    alpha = float(model.best_params_["alpha"])
    alphas = np.unique(model.cv_results_["param_alpha"].astype(float))[::-1]
    return FittedProbe(model, alpha, alphas, np.empty(0), held_out, "out-of-fold")


def _without_choice(X: Any, y: NDArray[Any], estimator: Any) -> FittedProbe:
    """Fit a single row a class at the default penalty."""
    is_single = isinstance(estimator, MarginPursuitClassifier)
    model = clone(estimator) if is_single else MarginPursuitClassifier(probability=None)
    model.fit(X, y)
    nan = float("nan")
    return FittedProbe(
        model, model.alpha_, np.empty(0), np.empty(0), Accuracies(nan, nan, nan), "none"
    )


def _by_validation(
    X: Any,
    y: NDArray[Any],
    validation: Labelled,
    alphas: list[float],
    model: MarginPursuitClassifier,
) -> FittedProbe:
    """Choose the penalty with the best accuracy on validation rows, and continue its fit."""
    found: list[tuple[float, Accuracies]] = []
    best: tuple[PathFit, Accuracies] | None = None
    for fit, measured in _path(X, y, validation, alphas, model):
        found.append((fit.alpha, measured))
        if best is None or measured.top_1 > best[1].top_1:  # the largest penalty among equals
            best = fit, measured
    assert best is not None
    fit, held_out = best
    refitted = clone(model).set_params(alpha=fit.alpha, warm_start=True)
    refitted.coef_, refitted.intercept_ = fit.linear[0].T, fit.linear[1]
    refitted.fit(X, y).set_params(warm_start=model.warm_start)
    used, top_1 = (np.array(x) for x in zip(*((a, b.top_1) for a, b in found), strict=True))
    return FittedProbe(refitted, fit.alpha, used, top_1, held_out, "validation")


def _by_folds(
    X: Any, y: NDArray[Any], cv: Any, alphas: list[float], model: MarginPursuitClassifier
) -> FittedProbe:
    """Choose the penalty with the best mean accuracy over folds, and fit it to all rows."""
    by_fold: list[list[tuple[float, Accuracies]]] = []
    splits = check_cv(checked_pairs(cv), y, classifier=True).split(np.zeros(len(y)), y)
    for number, fold in enumerate(splits):
        train, held_out = (increasing_rows(number, rows, len(y)) for rows in fold)
        if not (len(train) and len(held_out)):
            raise ValueError(
                f"fold {number} has {len(train)} training and {len(held_out)} test rows; expected "
                "at least one of both"
            )
        parts = [(take_rows(X, rows), y[rows]) for rows in (train, held_out)]
        path = _path(*parts[0], parts[1], alphas, model)
        by_fold.append([(fit.alpha, measured) for fit, measured in path])
    if not by_fold:
        raise ValueError(
            f"cv has 0 folds: {cv!r}. Expected at least 1 pair of training and test rows."
        )
    top_1 = np.array([[measured.top_1 for _, measured in fold] for fold in by_fold]).mean(axis=0)
    best = int(np.argmax(top_1))
    own = [fold[best][1] for fold in by_fold]
    means = [
        float(np.mean([getattr(x, name) for x in own]))
        for name in ("top_1", "top_5", "mean_per_class")
    ]
    used = np.array([alpha for alpha, _ in by_fold[0]])
    refitted = clone(model).set_params(alpha=float(used[best])).fit(X, y)
    return FittedProbe(refitted, float(used[best]), used, top_1, Accuracies(*means), "out-of-fold")


def _path(
    X: Any,
    y: NDArray[Any],
    held_out: Labelled,
    alphas: list[float],
    model: MarginPursuitClassifier,
) -> Iterator[tuple[PathFit, Accuracies]]:
    """Yield the fits at decreasing penalties, with their accuracies on held-out rows."""
    own = clone(model)
    data = own._check_training(X, y, None)
    try:
        for fit in penalty_path(own, data, alphas):
            own.coef_, own.intercept_ = fit.linear[0].T, fit.linear[1]
            yield fit, accuracies(own, *held_out)
    except FloatingPointError as error:
        own._refuse_missing(data.matrix)
        raise range_error(error) from error


def accuracies(model: Any, X: Any, y: NDArray[Any], max_scores: int = 1 << 26) -> Accuracies:
    """Measure a fitted classifier on rows, in chunks of at most `max_scores` scores.

    Rows of classes that the classifier does not have, as in a fold without them, are errors, and
    count as one class.
    """
    n_classes = len(model.classes_)
    codes = np.searchsorted(model.classes_, y)
    is_known = model.classes_.take(codes, mode="clip") == y
    codes = np.where(is_known, codes, n_classes)
    step = max(1, max_scores // n_classes)
    ranks = []
    for first in range(0, len(y), step):
        last = min(first + step, len(y))
        ranks.append(_ranks(model.decision_function(X[first:last, :]), codes[first:last]))
    found = np.where(is_known, np.concatenate(ranks), n_classes)
    return Accuracies.of(found, codes, n_classes)


def _ranks(scores: Any, codes: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the number of classes before that of each row: a larger score, or equal and earlier.

    Scores are of any array library. One score a row is that of the second of two classes.
    """
    xp = namespace(scores)
    if scores.ndim == 1:
        scores = xp.stack([-scores, scores], axis=1)
    own_code = to_device_of(scores, codes, xp.int64)[:, None]
    classes = xp.arange(scores.shape[1], dtype=xp.int64, device=scores.device)[None, :]
    own = xp.where(classes == own_code, scores, xp.zeros_like(scores))
    own = xp.sum(own, axis=1)[:, None]
    is_before = (scores > own) | ((scores == own) & (classes < own_code))
    return np.asarray(to_numpy(xp.sum(xp.astype(is_before, xp.int64), axis=1)))
