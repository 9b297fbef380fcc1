"""What every linear classifier of the library shares: input, labels, weights, predictions."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    assert_all_finite,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from marginpursuit._validation import FloatArray
from marginpursuit.design import Design, Labels, usable_threads


@dataclass(frozen=True, slots=True)
class TrainingData:
    """Checked input of a fit."""

    matrix: Any  # dense array or CSR matrix, of the dtype it came with
    labels: Labels
    weights: FloatArray  # sum one


class LinearClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Base of the linear classifiers: a score x·coef + intercept for each problem.

    A subclass fits `coef_` of shape (n_problems, n_features), `intercept_` and `classes_`, and has
    the parameters `class_weight` and `n_threads`.
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def decision_function(self, X: Any) -> FloatArray:
        """Return the scores h(x), positive for the second class or for the class of the column.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            Scores; one column where there are two classes.
        """
        check_is_fitted(self)
        matrix = self._check_matrix(X, reset=False)
        coef = np.ascontiguousarray(self.coef_.T, dtype=np.float64)
        with Design(matrix, n_threads=usable_threads(self.n_threads)) as design:
            scores = design.scores(coef, np.asarray(self.intercept_, dtype=np.float64))
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class of each sample.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray of shape (n_samples,)
            Members of `classes_`.
        """
        scores = self.decision_function(X)
        codes = (scores > 0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[codes])

    def _check_training(self, X: Any, y: Any, sample_weight: ArrayLike | None) -> TrainingData:
        """Check the input of a fit; sets `classes_` and what scikit-learn expects to be set."""
        matrix, target = self._check_matrix(X, y, reset=True)
        target = _check_target(target)
        self.classes_, codes = np.unique(target, return_inverse=True)
        weights = _check_weights(sample_weight, len(codes))
        weights = weights / weights.max()
        weights = weights * self._class_factors(codes, weights)[codes]
        present = self.classes_[np.bincount(codes, weights > 0, len(self.classes_)) > 0]
        if len(present) < 2:
            raise ValueError(
                f"{type(self).__name__} needs samples of at least 2 classes with positive weight; "
                f"got 1 class: {present.tolist()}"
            )
        return TrainingData(matrix, Labels(codes, len(self.classes_)), weights / weights.sum())

    def _check_batch(
        self, X: Any, y: Any, classes: ArrayLike | None, sample_weight: ArrayLike | None
    ) -> TrainingData:
        """Check a batch of a stream; the first one needs `classes`. Weights are as they came."""
        first = not hasattr(self, "classes_")
        if first and classes is None:
            raise ValueError("classes must be passed on the first call to partial_fit.")
        matrix, target = self._check_matrix(X, y, reset=first)
        assert_all_finite(matrix, estimator_name=type(self).__name__, input_name="X")
        target = _check_target(target)
        if first:
            self.classes_ = np.unique(np.asarray(classes))
            if len(self.classes_) < 2:
                raise ValueError(f"classes must name at least 2 classes; got {self.classes_}")
        elif classes is not None and not np.array_equal(self.classes_, np.unique(classes)):
            raise ValueError(
                f"classes={classes!r} are not those of the first call: {self.classes_}"
            )
        unknown = np.setdiff1d(target, self.classes_)
        if len(unknown):
            raise ValueError(f"y has labels that are not in classes: {unknown.tolist()}")
        codes = np.searchsorted(self.classes_, target)
        weights = _check_weights(sample_weight, len(codes))
        weights = weights * self._class_factors(codes, weights)[codes]
        return TrainingData(matrix, Labels(codes, len(self.classes_)), weights)

    def _class_factors(self, codes: NDArray[np.intp], weights: FloatArray) -> FloatArray:
        """Return the factor of each class that `class_weight` asks for."""
        factors = np.ones(len(self.classes_))
        if self.class_weight is None:
            return factors
        if isinstance(self.class_weight, str):
            if self.class_weight != "balanced":
                raise ValueError(
                    "class_weight must be None, 'balanced' or a dict from class to weight; got "
                    f"{self.class_weight!r}"
                )
            totals = np.bincount(codes, weights, minlength=len(factors))
            return np.divide(1.0, totals, out=factors, where=totals > 0)
        known = self.classes_.tolist()
        for label, factor in dict(self.class_weight).items():
            if label not in known:
                raise ValueError(f"class_weight names the class {label!r}, which is not in y")
            if not (np.isfinite(factor) and factor >= 0):
                raise ValueError(
                    f"class_weight must be finite and >= 0; got {factor} for {label!r}"
                )
            factors[known.index(label)] = factor
        return factors

    def _check_matrix(self, X: Any, y: Any = "no_validation", *, reset: bool) -> Any:
        """Check X, and y if given, and leave the dtype as it came.

        With y the values may still be infinite or NaN, which costs a read of the data to see.
        """
        if isinstance(X, np.ma.MaskedArray):
            raise ValueError("X must not be a masked array: its mask would be ignored")
        _refuse_text(X)
        training = not isinstance(y, str)
        checked = validate_data(
            self,
            X,
            y,
            reset=reset,
            accept_sparse="csr",
            dtype="numeric",
            ensure_all_finite=not training,
        )
        matrix, target = checked if training else (checked, None)
        if isinstance(matrix, sparse.csr_matrix | sparse.csr_array):
            matrix = _canonical(matrix)
        return (matrix, target) if training else matrix


def _canonical(matrix: Any) -> Any:
    """Add up entries that a CSR matrix names twice: their squares could not be added."""
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    return matrix


def _check_target(y: Any) -> NDArray[Any]:
    target = column_or_1d(y, warn=True)
    kinds = sorted({type(label).__name__ for label in target}) if target.dtype == object else []
    if len(kinds) > 1 and "str" in kinds:
        raise TypeError(f"y must not have mixed label types; got {' and '.join(kinds)}")
    check_classification_targets(target)
    return np.asarray(target)


def _check_weights(sample_weight: ArrayLike | None, n_rows: int) -> FloatArray:
    """Return one weight a row, finite, not negative and not all zero."""
    if sample_weight is None:
        return np.ones(n_rows)
    weights = np.asarray(sample_weight, dtype=np.float64)
    if weights.ndim == 0:
        weights = np.full(n_rows, float(weights))
    if weights.shape != (n_rows,):
        raise ValueError(
            f"sample_weight.shape == {weights.shape}, expected {(n_rows,)}: one weight a sample"
        )
    if not np.all(np.isfinite(weights)):
        raise ValueError("sample_weight must be finite; it contains NaN or infinity")
    if np.any(weights < 0):
        raise ValueError(f"sample_weight must not be negative; got {weights.min():g}")
    if not np.any(weights > 0):
        raise ValueError("Sample weights must contain at least one non-zero number.")
    return weights


def _refuse_text(X: Any) -> None:
    """Refuse text, which NumPy would turn into numbers without a word."""
    dtypes = getattr(X, "dtypes", None)
    columns = getattr(X, "columns", None)
    if columns is not None and dtypes is not None:  # a data frame: name the column
        for name, dtype in zip(columns, dtypes, strict=True):
            column = X[name]
            if str(dtype) in ("category", "Categorical", "String", "str", "string") or (
                str(dtype) == "object" and any(isinstance(value, str) for value in column)
            ):
                raise ValueError(f"X must hold numbers; column {name!r} has dtype {dtype}")
        return
    if not sparse.issparse(X):
        array = np.asarray(X)
        text = array.dtype.kind in "US" or (
            array.dtype.kind == "O" and any(isinstance(value, str) for value in array.flat)
        )
        if text:
            raise ValueError(f"X must hold numbers; got text, dtype {array.dtype}")
