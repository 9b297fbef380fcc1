"""Base of a classifier with cross-validation: splitters, scorers and metadata of scikit-learn."""

import reprlib
from collections.abc import Iterable
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn import get_config
from sklearn.exceptions import NotFittedError
from sklearn.metrics import check_scoring
from sklearn.model_selection import PredefinedSplit, StratifiedKFold, check_cv
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.metaestimators import available_if

from marginpursuit._namespaces import is_array_api, is_device_array, to_numpy
from marginpursuit.blocks import is_dask
from marginpursuit.classifiers._shared import LinearClassifier, TrainingData, check_weights, warn
from marginpursuit.selection.candidates import Fold
from marginpursuit.selection.scoring import PrecomputedScores, takes_weights
from marginpursuit.tasks import Labels, LabelSets

_NO_REFIT = "refit=False was given, so there is no fit to all rows; set refit=True and fit again"


def _was_refitted(estimator: Any) -> bool:
    if not estimator.refit:
        raise AttributeError(_NO_REFIT)
    return True


class CrossValidatedClassifier(LinearClassifier):
    """A linear classifier with the parameters `cv`, `scoring` and `refit`."""

    cv: Any
    scoring: Any
    refit: bool
    scorer_: Any
    n_splits_: int
    multilabel_: bool

    def __sklearn_is_fitted__(self) -> bool:
        is_fitted = super().__sklearn_is_fitted__()
        if not (is_fitted or self.refit) and hasattr(self, "cv_results_"):
            raise NotFittedError(_NO_REFIT)
        return is_fitted

    @available_if(_was_refitted)  # type: ignore[untyped-decorator]
    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Return the value of `scoring` for the predictions: by default the accuracy.

        With several labels the accuracy is the fraction of samples with all labels predicted.

        Parameters
        ----------
        X : {array-like, sparse matrix, Blocks, Dask array} of shape (n_samples, n_features)
            Samples.
        y : {array-like, Dask array} of shape (n_samples,) or (n_samples, n_labels)
            Their classes, or an indicator matrix of their labels.
        sample_weight : array-like of shape (n_samples,), optional
            Weights of the samples.

        Returns
        -------
        float
            The score.
        """
        if self.scoring is None:
            return float(super().score(X, y, sample_weight))
        weights = {} if sample_weight is None else {"sample_weight": to_numpy(sample_weight)}
        y_true = to_numpy(y) if is_array_api(y) else y
        scorer = getattr(self, "scorer_", None) or self._scorer  # model files have none
        if not is_device_array(X):
            return float(scorer(self, X, y_true, **weights))
        scores = to_numpy(self.decision_function(X))  # scorers expect NumPy arrays
        estimator = PrecomputedScores(
            self.classes_,
            scores.reshape(len(scores), -1),
            lambda scores: to_numpy(self.predict_proba(X)),
            multilabel=self.multilabel_,
        )
        return float(scorer(estimator, X, y_true, **weights))

    def get_metadata_routing(self) -> MetadataRouter:
        """Return the objects that may request metadata: the splitter and the scorer.

        Returns
        -------
        MetadataRouter
            The routing.
        """
        router = MetadataRouter(owner=type(self).__name__).add_self_request(self)
        to_split = MethodMapping().add(caller="fit", callee="split")
        router.add(splitter=check_cv(self.cv), method_mapping=to_split)
        to_score = MethodMapping().add(caller="fit", callee="score")
        if self.scoring is not None:
            router.add(scorer=self._scorer, method_mapping=to_score)
        return router

    @property
    def _scorer(self) -> Any:
        if self.scoring is None:
            return None
        if isinstance(self.scoring, list | tuple | set | dict):
            raise ValueError(
                f"scoring must be one scorer, its name or None; got {self.scoring!r}. Several "
                "metrics of one fit are computed from out_of_fold_scores_ and out_of_fold_proba_."
            )
        return check_scoring(PrecomputedScores(), self.scoring)

    def _route(
        self, sample_weight: ArrayLike | None, params: dict[str, Any], n_rows: int
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the metadata of the splitter and those of the scorer."""
        weights = {}
        if sample_weight is not None:
            weights = {"sample_weight": check_weights(sample_weight, n_rows)}
        given = {
            name: to_numpy(value) if is_array_api(value) or is_dask(value) else value
            for name, value in params.items()
            if value is not None
        }
        if get_config()["enable_metadata_routing"]:
            routed = process_routing(self, "fit", **given, **weights)
            # Accuracy has no scorer that could request metadata.
            return routed.splitter.split, weights if self.scoring is None else routed.scorer.score
        unknown = sorted(set(given) - {"groups"})
        if unknown:
            raise TypeError(
                f"fit got {unknown}; without metadata routing it accepts X, y, sample_weight and "
                "groups. Enable metadata routing, or omit them."
            )
        return given, weights if takes_weights(self.scorer_) else {}

    def _split(
        self, data: TrainingData, params: dict[str, Any], to_scorer: dict[str, Any]
    ) -> list[Fold]:
        """Return the folds; raise a ValueError for one that cannot be fitted or scored."""
        y = data.labels.strata
        cv, fewest = checked_pairs(self.cv), 2  # classes in the training rows of a fold
        if isinstance(data.labels, LabelSets):
            fewest = 1
            if isinstance(cv, Integral):
                cv = label_splitter(data.labels, int(cv))
            else:
                y = data.labels.indicator().astype(np.int8)
        # That of `check_cv`, which examines the labels again.
        splitter = (
            StratifiedKFold(cv) if isinstance(cv, Integral) else check_cv(cv, y, classifier=True)
        )
        in_memory = isinstance(data.matrix, np.ndarray) or sparse.issparse(data.matrix)
        rows = data.matrix if in_memory else np.broadcast_to(0.0, tuple(data.matrix.shape))
        if isinstance(self.cv, Integral) and not isinstance(data.labels, LabelSets):
            self._check_class_sizes(data.labels)
        splits = splitter.split(rows, y, **params)
        folds = [
            Fold(*(increasing_rows(k, own, len(y)) for own in split))
            for k, split in enumerate(splits)
        ]
        if not folds:
            raise ValueError(
                f"cv has 0 folds: {self.cv!r}. Expected at least 1 pair of training and test rows."
            )
        _check_folds(folds, data, to_scorer.get("sample_weight"), fewest)
        if not isinstance(self.cv, Integral):
            _warn_of_overlap(folds, len(y))
        self.n_splits_ = len(folds)
        return folds

    def _check_class_sizes(self, labels: Labels) -> None:
        """Raise a ValueError where stratified folds are not possible.

        The largest class needs a row for each fold, and the second largest two rows: a fold that
        holds out the only one trains on a single class.
        """
        counts = np.bincount(labels.strata, minlength=labels.n_classes)
        second, largest = np.sort(counts)[-2:]
        if largest >= self.cv and second >= 2:
            return
        names = [str(name) for name in self.classes_[np.argsort(-counts)[:2]]]
        found = f"the largest classes, {names[0]} and {names[1]}, have {largest} and {second}"
        if second < 2:  # no number of folds helps
            raise ValueError(
                f"cross-validation needs two classes with at least 2 samples; {found}. Add samples "
                "of another class, or use MarginPursuitClassifier, which needs no folds."
            )
        raise ValueError(
            f"cv={self.cv} needs a class with at least {self.cv} samples and another one with at "
            f"least 2; {found}. Set cv to a smaller number, or use MarginPursuitClassifier, which "
            "needs no folds."
        )


def _check_folds(folds: list[Fold], data: TrainingData, weights: Any, fewest: int) -> None:
    """Raise a ValueError for a fold that cannot be fitted or scored.

    `weights` are those of the scorer, or None; `fewest` is the number of classes to be fitted.
    """
    strata = data.labels.strata
    for k, fold in enumerate(folds):
        counts = np.bincount(strata[fold.train], data.weights[fold.train] > 0)
        n_classes = np.count_nonzero(counts)
        if n_classes < fewest or len(fold.test) == 0:
            raise ValueError(
                f"fold {k} has training samples of {n_classes} classes and {len(fold.test)} "
                f"test samples; expected at least {fewest} and 1 test sample. Change cv."
            )
        if weights is not None and not np.any(np.asarray(weights)[fold.test]):
            raise ValueError(
                f"fold {k} has no test sample with a positive weight; expected at least one. "
                "Change cv or sample_weight."
            )


def _warn_of_overlap(folds: list[Fold], n_rows: int) -> None:
    """Warn of the first fold with rows for both training and test."""
    for k, fold in enumerate(folds):
        is_test = np.zeros(n_rows, dtype=bool)
        is_test[fold.test] = True
        n_both = np.count_nonzero(is_test[fold.train])
        if n_both:
            warn(
                f"fold {k} of cv trains on {n_both} of its {len(fold.test)} test rows; expected "
                "disjoint rows. Scores and probabilities of such rows are optimistic."
            )
            return


def label_splitter(labels: Labels, n_folds: int) -> PredefinedSplit:
    """Return a splitter that assigns the rows to folds in the order of their label sets.

    Rows with the same labels are assigned to the folds in turn, whatever the order
    of the rows. scikit-learn's folds of several labels are ranges of rows.
    """
    if not 2 <= n_folds <= labels.n_rows:
        raise ValueError(
            f"cv must be a number of folds from 2 to the number of samples, {labels.n_rows}; got "
            f"{n_folds}"
        )
    fold = np.empty(labels.n_rows, dtype=np.intp)
    fold[np.lexsort(labels.codes)] = np.arange(labels.n_rows) % n_folds
    return PredefinedSplit(fold)


def checked_pairs(cv: Any) -> Any:
    """Return an iterable of folds as a list of pairs, and any other value of `cv` as it is."""
    if not isinstance(cv, Iterable) or isinstance(cv, str) or hasattr(cv, "split"):
        return cv
    folds = list(cv)
    for k, fold in enumerate(folds):
        if not isinstance(fold, (tuple, list, np.ndarray)) or len(fold) != 2:
            raise TypeError(
                f"fold {k} of cv is {reprlib.repr(fold)}; expected a pair of training and test "
                "rows. Set cv to a number of folds, a splitter, or an iterable of such pairs."
            )
    return folds


def increasing_rows(k: int, rows: Any, n_rows: int) -> NDArray[np.intp]:
    """Return the indices, or the indices of the mask, of fold number k in increasing order."""
    rows = np.asarray(rows)
    if rows.dtype == bool and rows.shape == (n_rows,):
        return np.flatnonzero(rows)
    if rows.size == 0:
        return np.empty(0, dtype=np.intp)
    if rows.ndim != 1 or rows.dtype.kind not in "iu":
        raise TypeError(
            f"fold {k} of cv has rows of dtype {rows.dtype} and shape {rows.shape}; expected a "
            f"vector of integers, or a mask of shape ({n_rows},)."
        )
    if rows.min() < 0 or rows.max() >= n_rows:
        raise ValueError(
            f"fold {k} of cv has rows from {rows.min()} to {rows.max()}; expected rows from 0 to "
            f"{n_rows - 1}."
        )
    rows = rows.astype(np.intp, copy=False)
    return rows if np.all(rows[1:] >= rows[:-1]) else np.sort(rows)
