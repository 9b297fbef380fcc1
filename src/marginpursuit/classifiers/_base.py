"""Base class of the linear classifiers: predictions, and fits in another unit of the columns."""

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from marginpursuit._namespaces import (
    as_torch,
    is_device_array,
    namespace,
    to_device_of,
    to_host,
    to_numpy,
)
from marginpursuit._threads import Threads, usable_threads
from marginpursuit._validation import FloatArray
from marginpursuit.classifiers._finite import range_error, rescaled
from marginpursuit.classifiers._input import InputChecks, TrainingData, plain_rows
from marginpursuit.classifiers._lazy import lazy_on_dask
from marginpursuit.classifiers._link import Link
from marginpursuit.classifiers._summary import SummaryMixin
from marginpursuit.design import design_for

__all__ = ["LinearClassifier", "ProbabilityMixin", "TrainingData"]


class LinearClassifier(SummaryMixin, InputChecks, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Base of the linear classifiers: a score x·coef + intercept for each binary problem.

    A subclass fits `coef_` of shape (n_problems, n_features), `intercept_` and `classes_`, and has
    the parameters `class_weight` and `n_threads`.

    Arrays that NumPy cannot read in place, such as those on a GPU, are scored by their own library;
    the result is an array of the same library and device.
    """

    coef_: FloatArray

    #: Fitted attributes with an entry per training row, which model files do not contain.
    _not_in_files: tuple[str, ...] = ()

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "coef_")

    @lazy_on_dask
    def decision_function(self, X: Any) -> Any:
        """Return the scores h(x), positive for the second class or for the class of the column.

        Parameters
        ----------
        X : {array-like, sparse matrix, Blocks, Dask array} of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        array of shape (n_samples,) or (n_samples, n_classes)
            Scores; one column where there are two classes, and one for each of several labels. From
            a Dask array, a Dask array; from an array that NumPy cannot read in place, as on a GPU,
            one of the same library and device.
        """
        scores = self._scores_of_few_rows(X)
        if scores is None:
            check_is_fitted(self)
            matrix = self._read(X, reset=False)
            coef = np.ascontiguousarray(self.coef_.T, dtype=np.float64)
            with (
                np.errstate(all="ignore"),
                Threads(usable_threads(self.n_threads)) as threads,
                design_for(matrix, threads) as design,
            ):
                scores = design.scores(coef, np.asarray(self.intercept_, dtype=np.float64))
        xp = namespace(scores)
        if not bool(xp.all(xp.isfinite(scores))):
            self._refuse_missing(self._read(X, reset=False))
            raise OverflowError(
                "X is too large for this fit: scores exceed the largest float. Pass samples in the "
                "units of the training data."
            )
        scores = scores[:, 0] if scores.shape[1] == 1 else scores
        return to_device_of(X, scores) if is_device_array(X) else scores

    def _scores_of_few_rows(self, X: Any, max_products: int = 1 << 16) -> Any:
        """Return the scores, (n_rows, n_problems), of few rows that need no check; else None.

        The checks of scikit-learn and the threads of a design take 0.15 ms, the product of one row
        0.01 ms (benchmarks/latency.py).
        """
        fitted = vars(self)
        coef = fitted.get("coef_")
        shape = getattr(X, "shape", None) or (len(X) if isinstance(X, list) else 0,)
        if coef is None or shape[0] * coef.size > max_products:
            return None
        rows = plain_rows(X, fitted.get("feature_names_in_"))
        if rows is None or rows.shape[1] != coef.shape[1]:
            return None
        with np.errstate(all="ignore"):  # the scores are checked instead
            return rows.astype(np.float64, copy=False) @ coef.T + self.intercept_

    @lazy_on_dask
    def predict(self, X: Any) -> Any:
        """Return the class of each sample.

        Parameters
        ----------
        X : {array-like, sparse matrix, Blocks, Dask array} of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        array of shape (n_samples,) or (n_samples, n_labels)
            Members of `classes_`, as an array of the library of the scores; text as a NumPy array.
            After a fit to several labels, an indicator matrix of 0 and 1.
        """
        check_is_fitted(self)
        parts, sliceable = _row_parts(X, len(self.classes_)), getattr(X, "iloc", X)
        if not parts:
            return self._predict_rows(X)
        try:
            return np.concatenate([self._predict_rows(sliceable[rows]) for rows in parts])
        except (ValueError, OverflowError):
            self._refuse_missing(self._read(X, reset=False))  # names the row of X, not of a part
            raise

    def _predict_rows(self, X: Any) -> Any:
        """Return the class of each sample, from the scores of all."""
        scores = self.decision_function(X)
        if getattr(self, "multilabel_", False):
            return np.asarray(scores > 0).astype(np.int64)
        if isinstance(scores, np.ndarray):
            codes = scores.argmax(axis=1) if scores.ndim == 2 else (scores > 0).astype(np.intp)
            return self.classes_[codes]
        scores = as_torch(scores) if is_device_array(X) else scores
        xp = namespace(scores)
        codes = xp.astype(scores > 0, xp.int64) if scores.ndim == 1 else xp.argmax(scores, axis=1)
        if self.classes_.dtype.kind not in "biuf":
            return np.asarray(self.classes_[to_numpy(codes)])
        labels = xp.take(to_device_of(scores, self.classes_), codes, axis=0)
        return to_device_of(X, labels) if is_device_array(X) else labels

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Return the accuracy: the fraction of samples whose class is predicted.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples.
        y : array-like of shape (n_samples,)
            Their classes.
        sample_weight : array-like of shape (n_samples,), optional
            Weights >= 0.

        Returns
        -------
        float
            The accuracy.
        """
        true, found = (to_host(x) for x in (y, self.predict(X)))
        return float(accuracy_score(true, found, sample_weight=sample_weight))

    @contextmanager
    def _rescaled(self, data: TrainingData) -> Iterator[TrainingData]:
        """Yield the data with columns divided by powers of two, for a fit to them.

        This is the second attempt of a fit that raised a FloatingPointError, because squares of the
        columns over- or underflow. The fit within the context sets `coef_`; on exit `coef_` is
        converted to the unit of the data. A fit that depends on the unit is refused.
        """
        self._refuse_missing(data.matrix)
        parameters = self._unit_dependent(data)
        if parameters:
            verb = "depends" if len(parameters) == 1 else "depend"
            raise range_error(f"{' and '.join(parameters)} {verb} on the unit of the columns")
        matrix, exponents = rescaled(data.matrix, by_one_factor=self._needs_one_factor(data))
        try:
            yield replace(data, matrix=matrix)
        except FloatingPointError as error:
            raise range_error(error) from error
        self.coef_ = np.ldexp(self.coef_, -exponents)
        if not np.all(np.isfinite(self.coef_)):
            self._reset()
            raise range_error("coefficients exceed the largest float")

    def _needs_one_factor(self, data: TrainingData) -> bool:
        """Return whether a fit depends on the units of the columns, but not on a common one."""
        return False

    def _unit_dependent(self, data: TrainingData) -> list[str]:
        """Return the parameters, as "name=value", through which a fit depends on the unit of X."""
        return []


def _row_parts(X: Any, n_scores: int, max_scores: int = 1 << 22) -> list[slice]:
    """Return slices of rows of X with at most `max_scores` scores; none where X is one part.

    Data other than arrays, CSR matrices and data frames of pandas are one part.
    """
    is_sliceable = isinstance(X, np.ndarray) or hasattr(X, "iloc") or _is_csr(X)
    step = max(1, max_scores // n_scores)
    if not is_sliceable or X.ndim != 2 or X.shape[0] <= step:
        return []
    return [slice(first, first + step) for first in range(0, X.shape[0], step)]


def _is_csr(X: Any) -> bool:
    return isinstance(X, (sparse.csr_matrix, sparse.csr_array))


def _probabilities(link: Link, scores: FloatArray, max_scores: int = 1 << 20) -> FloatArray:
    """Return the probabilities of scores; intermediate arrays have at most `max_scores` scores."""
    n_rows, step = len(scores), max(1, max_scores // scores.shape[1])
    first = np.asarray(link.probabilities(scores[:step]))
    if n_rows <= step:
        return first
    result = np.empty((n_rows, first.shape[1]))
    result[:step] = first
    for start in range(step, n_rows, step):
        result[start : start + step] = link.probabilities(scores[start : start + step])
    return result


def _has_probabilities(estimator: Any) -> bool:
    if getattr(estimator, "probability", "") is None:
        raise AttributeError(
            "probability=None was given; set probability to 'held_out' or 'exact' and fit again"
        )
    return True


class ProbabilityMixin:
    """`predict_proba` and `predict_log_proba` of a classifier that has a link.

    An estimator with a parameter `probability` that is None has neither method.
    """

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    @lazy_on_dask
    def predict_proba(self, X: Any) -> Any:
        """Return the probability of each class.

        With the exact link and several classes fitted one against the rest, the probabilities of
        each against the rest are divided by their sum.

        Parameters
        ----------
        X : {array-like, sparse matrix, Blocks, Dask array} of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        array of shape (n_samples, n_classes)
            Probabilities, in the order of `classes_`; an array of the library of the scores.
        """
        scores = self.decision_function(X)  # type: ignore[attr-defined]
        scores = scores[:, np.newaxis] if scores.ndim == 1 else scores
        link = self._fitted_link()
        if not is_device_array(X):
            return _probabilities(link, scores)
        return to_device_of(X, link.probabilities(as_torch(scores)))

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    @lazy_on_dask
    def predict_log_proba(self, X: Any) -> Any:
        """Return the logarithm of the probability of each class.

        Parameters
        ----------
        X : {array-like, sparse matrix, Blocks, Dask array} of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        array of shape (n_samples, n_classes)
            Logarithms of `predict_proba`.
        """
        probabilities = self.predict_proba(X)
        if not is_device_array(X):
            with np.errstate(divide="ignore"):  # the exact link may be zero
                return np.log(probabilities)
        return to_device_of(X, as_torch(probabilities).log())

    @abstractmethod
    def _fitted_link(self) -> Link:
        """Return the link from scores to probabilities."""
