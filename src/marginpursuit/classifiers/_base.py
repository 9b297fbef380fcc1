"""What every linear classifier of the library shares: input, labels, weights, predictions."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from reprlib import repr as short
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    check_consistent_length,
    check_is_fitted,
    validate_data,
)

from marginpursuit._namespaces import adopted, beside, is_elsewhere, namespace, to_numpy
from marginpursuit._threads import usable_threads
from marginpursuit._validation import FloatArray, between, scalar
from marginpursuit.blocks import Blocks, as_blocks, is_dask
from marginpursuit.classifiers._input import (
    LARGEST,
    balanced_factors,
    check_weights,
    class_totals,
    coded,
    equal_weights,
    readable,
    refuse_missing,
    refuse_mixed,
    rescaled,
    stand_in,
)
from marginpursuit.classifiers._lazy import lazy_on_dask
from marginpursuit.classifiers._progress import warn
from marginpursuit.design import design_for
from marginpursuit.tasks import Labels


@dataclass(frozen=True, slots=True)
class TrainingData:
    """Checked input of a fit."""

    matrix: Any  # dense array, CSR matrix or blocks, of the dtype they came with
    labels: Labels
    weights: Any  # sum one; like the labels, where the matrix is
    count: float  # the number of rows that the weights stand for: their sum as they came

    @property
    def is_sparse(self) -> bool:
        """Whether the rows are stored as CSR, in memory or in blocks."""
        return bool(getattr(self.matrix, "is_sparse", sparse.issparse(self.matrix)))

    def on_host(self) -> "TrainingData":
        """Return the same with labels and weights as NumPy arrays; the rows stay where they are."""
        codes = to_numpy(self.labels.codes).astype(np.intp, copy=False)
        labels = Labels(codes, self.labels.n_classes)
        return replace(self, labels=labels, weights=to_numpy(self.weights))


class LinearClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Base of the linear classifiers: a score x·coef + intercept for each problem.

    A subclass fits `coef_` of shape (n_problems, n_features), `intercept_` and `classes_`, and has
    the parameters `class_weight` and `n_threads`.

    Arrays that NumPy cannot read in place (on a GPU, as a rule) are scored where they are, and what
    is said of them is an array of the same library.
    """

    coef_: FloatArray

    # Whether X may come in blocks, and whether it is fitted where NumPy cannot read it.
    _takes_blocks = False
    _fits_elsewhere = False

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

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
            Scores; one column where there are two classes. From a Dask array, a Dask array; from an
            array that NumPy cannot read in place, as on a GPU, one of the same library and device.
        """
        check_is_fitted(self)
        matrix = self._read(X, reset=False)
        coef = np.ascontiguousarray(self.coef_.T, dtype=np.float64)
        with (
            np.errstate(all="ignore"),
            design_for(matrix, n_threads=usable_threads(self.n_threads)) as design,
        ):
            scores = design.scores(coef, np.asarray(self.intercept_, dtype=np.float64))
        xp = namespace(scores)
        if not bool(xp.all(xp.isfinite(scores))):
            self._refuse_missing(matrix)
            raise OverflowError("X is too large for this fit: scores exceed the largest float")
        scores = scores[:, 0] if scores.shape[1] == 1 else scores
        return beside(X, scores) if is_elsewhere(X) else scores

    @lazy_on_dask
    def predict(self, X: Any) -> Any:
        """Return the class of each sample.

        Parameters
        ----------
        X : {array-like, sparse matrix, Blocks, Dask array} of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        array of shape (n_samples,)
            Members of `classes_`. An array of the kind of the scores, except that text is NumPy's.
        """
        scores = self.decision_function(X)
        scores = adopted(scores) if is_elsewhere(X) else scores
        xp = namespace(scores)
        codes = xp.astype(scores > 0, xp.int64) if scores.ndim == 1 else xp.argmax(scores, axis=1)
        if self.classes_.dtype.kind not in "biuf":
            return np.asarray(self.classes_[to_numpy(codes)])
        labels = xp.take(beside(scores, self.classes_), codes, axis=0)
        return beside(X, labels) if is_elsewhere(X) else labels

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Return the share of samples whose class is predicted.

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
        true, found = (to_numpy(x) if is_elsewhere(x) else x for x in (y, self.predict(X)))
        return float(accuracy_score(true, found, sample_weight=sample_weight))

    def _forget(self) -> None:
        """Drop what an earlier fit left: one that fails is not to leave a mixture behind."""
        for name in [name for name in vars(self) if name[-1] == "_" != name[0]]:
            delattr(self, name)

    def _check_training(self, X: Any, y: Any, sample_weight: ArrayLike | None) -> TrainingData:
        """Check the input of a fit; sets `classes_` and what scikit-learn expects to be set."""
        matrix, target = self._read_labelled(X, y, reset=True)
        self.classes_, codes = coded(matrix, target)
        if not isinstance(target, np.ndarray):  # a few labels show what kind all are of
            check_classification_targets(np.tile(self.classes_, 2))
        data = self._weighted(matrix, codes, sample_weight)
        sizes = class_totals(codes, data.weights > 0, len(self.classes_))
        present = self.classes_[sizes > 0].tolist()
        if len(present) < 2:
            raise ValueError(
                f"{type(self).__name__} needs samples of at least 2 classes with positive weight; "
                f"got 1 class: {present}"
            )
        single = self.classes_[sizes == 1].tolist()
        if single:
            warn(f"a single sample is not enough to learn a class from; classes with one: {single}")
        return data

    def _check_batch(
        self, X: Any, y: Any, classes: ArrayLike | None, sample_weight: ArrayLike | None
    ) -> TrainingData:
        """Check a batch of a stream, of which the first one sets `classes_`."""
        first = not hasattr(self, "classes_")
        matrix, target = self._read_labelled(X, y, reset=first)
        self._refuse_missing(matrix)
        if classes is not None:
            refuse_mixed("classes", classes)
            known = np.unique(np.asarray(classes))
            if len(known) < 2:
                raise ValueError(f"classes must name at least 2 classes; got {known.tolist()}")
            if first:
                self.classes_ = known
            elif not np.array_equal(self.classes_, known):
                raise ValueError(
                    f"classes must be those of the first call, {self.classes_.tolist()}; "
                    f"got {known.tolist()}"
                )
        unknown = np.setdiff1d(target, self.classes_).tolist()
        if unknown:
            raise ValueError(f"y must hold labels that are in classes; got {unknown}")
        return self._weighted(matrix, np.searchsorted(self.classes_, target), sample_weight)

    def _weighted(self, matrix: Any, codes: Any, sample_weight: ArrayLike | None) -> TrainingData:
        """Join checked rows and labels with the weights of samples and classes."""
        n_rows, labels = codes.shape[0], Labels(codes, len(self.classes_))
        if sample_weight is None and self.class_weight is None:
            return TrainingData(matrix, labels, equal_weights(codes), float(n_rows))
        xp, weights = namespace(codes), beside(codes, check_weights(sample_weight, n_rows))
        largest = float(xp.max(weights))
        weights = weights / largest  # a sum of the largest floats would overflow
        if self.class_weight is not None:
            factors = beside(codes, self._class_factors(codes, weights))
            weights = weights * xp.take(factors, xp.astype(codes, xp.int64), axis=0)
        total = float(xp.sum(weights))
        if total == 0:
            raise ValueError(f"class_weight must leave a sample a weight; got {self.class_weight}")
        count = min(total * largest, LARGEST)
        return TrainingData(matrix, labels, weights / total, count)

    def _class_factors(self, codes: Any, weights: Any) -> FloatArray:
        """Return the factor of each class that `class_weight` asks for."""
        if isinstance(self.class_weight, str):
            return balanced_factors(codes, weights, len(self.classes_))
        factors = {label: _factor(label, factor) for label, factor in self.class_weight.items()}
        known = self.classes_.tolist()
        strangers = [label for label in factors if label not in known]
        # A class that y happens to lack may have a factor; but not one that a class then lacks.
        if strangers and any(label not in factors for label in known):
            raise ValueError(
                f"class_weight must name classes of y, {short(known)}; got {short(strangers)}"
            )
        return np.array([factors.get(label, 1.0) for label in known])

    def _fit_in_any_unit(self, data: TrainingData, fit: Callable[[TrainingData], None]) -> None:
        """Call `fit`, which sets `coef_` and may raise a FloatingPointError over its squares.

        Then the columns are divided by powers of two.
        """
        with np.errstate(all="ignore"):  # what goes wrong is seen in the result
            try:
                fit(data)
            except FloatingPointError:
                self._refuse_missing(data.matrix)
                self._fit_rescaled(data, fit)

    def _fit_rescaled(self, data: TrainingData, fit: Callable[[TrainingData], None]) -> None:
        """Fit to a copy of the data with its columns divided by powers of two."""
        matrix, exponents = rescaled(data.matrix)
        try:
            fit(replace(data, matrix=matrix))
        except FloatingPointError as error:
            raise OverflowError(f"the columns of X need another unit: {error}") from error
        self.coef_ = np.ldexp(self.coef_, -exponents)
        if not np.all(np.isfinite(self.coef_)):
            self._forget()
            raise OverflowError(
                "the columns of X need another unit: coefficients exceed the largest float"
            )

    def _read(self, X: Any, **options: Any) -> Any:
        """Check X and leave the dtype as it came; values may still be infinite or NaN."""
        X = as_blocks(X)
        if isinstance(X, Blocks):
            return self._read_blocks(X, **options)
        stays = is_elsewhere(X)
        checked = validate_data(
            self,
            stand_in(X) if stays else readable(X),
            accept_sparse="csr",
            dtype="numeric",
            ensure_all_finite=False,
            **options,
        )
        if not stays:
            return checked
        return (adopted(X), checked[1]) if isinstance(checked, tuple) else adopted(X)

    def _read_blocks(self, blocks: Blocks, *, reset: bool, **labels: Any) -> Any:
        """Check what is known of blocks, and y; the rest is checked when they are loaded."""
        if not self._takes_blocks:
            raise TypeError(f"{type(self).__name__} needs X in memory; got {type(blocks).__name__}")
        validate_data(self, blocks, reset=reset, skip_check_array=True)
        if not labels:
            return blocks
        target = validate_data(self, **labels)
        check_consistent_length(blocks, target)
        return blocks, target

    def _read_labelled(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, NDArray[Any]]:
        """Check X, as `_read` does, and y."""
        y = np.asarray(y) if is_dask(y) else y
        if not self._fits_elsewhere:
            X, y = (to_numpy(x) if is_elsewhere(x) else x for x in (X, y))
        if is_elsewhere(X) and is_elsewhere(y):
            matrix, target = self._read(X, reset=reset), adopted(y)
            if tuple(target.shape) != (matrix.shape[0],):
                raise ValueError(
                    f"y must have shape {(matrix.shape[0],)}, one label a sample; got "
                    f"{tuple(target.shape)}"
                )
            return matrix, target
        y = to_numpy(y) if is_elsewhere(y) else y
        refuse_mixed("y", y)
        matrix, target = self._read(X, y=y, reset=reset)
        check_classification_targets(target)
        is_sparse = sparse.issparse(matrix)
        if is_sparse and not matrix.has_canonical_format:
            # Entries that are named twice are to be added up: their squares could not be.
            matrix = matrix.copy()
            matrix.sum_duplicates()
        return matrix, np.asarray(target)

    def _refuse_missing(self, matrix: Any) -> None:
        names = getattr(self, "feature_names_in_", None)
        refuse_missing(matrix, type(self).__name__, names)


def _factor(label: Any, factor: Any) -> float:
    name = f"class_weight[{label!r}]"
    return scalar(name, between(name, factor, 0.0, 1e300))  # a sum of larger ones would overflow
