"""The input of a fit, checked once for each call of `fit`: rows here, labels in `_labels`.

scikit-learn's `validate_data` checks shapes, lengths and feature names. This module adds what it
accepts although the values would be misread: masks, text, dates, categories, repeated column names
and sparse indices out of range. Every error names the value given and the values allowed.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from reprlib import repr as short
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, validate_data

from marginpursuit._namespaces import (
    as_torch,
    dtype_name,
    has_real_dtype,
    is_dask,
    is_device_array,
    namespace,
    to_device_of,
    to_host,
    to_numpy,
)
from marginpursuit._validation import (
    FloatArray,
    checked_sparse,
    refuse_lazy,
    without_duplicates,
)
from marginpursuit.blocks import Blocks, as_blocks
from marginpursuit.classifiers._finite import refuse_missing
from marginpursuit.classifiers._labels import (
    balanced_factors,
    check_weights,
    checked_indicator,
    class_factor,
    class_totals,
    encode_labels,
    equal_weights,
    is_indicator,
    label_factors,
    refuse_mixed,
    refuse_objects,
)
from marginpursuit.classifiers._progress import warn
from marginpursuit.tasks import Labels, LabelSets


@dataclass(frozen=True, slots=True)
class TrainingData:
    """Checked input of a fit."""

    matrix: Any  # dense array, CSR matrix or Blocks, of the dtype given
    labels: Labels
    weights: Any  # non-negative, sum one; on the device of the matrix, as the labels are
    total_weight: float  # the sum of the weights given; without weights, the number of rows
    original_matrix: Any = None  # the rows as given, where `matrix` holds their kernel features
    #: Weights of the variances in the unit of the penalty, in NumPy or next to `weights`; None
    #: stands for `weights`.
    variance_weights: Any = None

    @property
    def n_samples(self) -> float:
        """The number of rows that the penalty counts.

        It is the sum of the weights, and at least the number of rows with positive weight. Whole
        weights therefore count as repetitions, and weights that sum to one do not make the penalty
        large.
        """
        if isinstance(self.weights, np.ndarray):
            return max(self.total_weight, float(np.count_nonzero(self.weights)))
        xp = namespace(self.weights)
        return max(self.total_weight, float(xp.sum(xp.astype(self.weights > 0, xp.float64))))

    @property
    def rows_per_column(self) -> float:
        """The number of rows that the penalty counts, per column."""
        return self.n_samples / max(1, int(self.matrix.shape[1]))

    @property
    def has_kernel_features(self) -> bool:
        """Whether the matrix holds kernel features of the rows."""
        return self.original_matrix is not None

    @property
    def is_sparse(self) -> bool:
        """Whether the rows are stored as CSR, in memory or in blocks."""
        return bool(getattr(self.matrix, "is_sparse", sparse.issparse(self.matrix)))

    def on_host(self) -> "TrainingData":
        """Return a copy with labels and weights as NumPy arrays; the matrix is not moved."""
        if isinstance(self.weights, np.ndarray):
            return self
        codes = to_numpy(self.labels.codes).astype(np.intp, copy=False)
        labels = replace(self.labels, codes=codes)
        return replace(self, labels=labels, weights=to_numpy(self.weights))


class InputChecks:
    """Mixin that checks the input of `fit`, `partial_fit` and predictions.

    The estimator has the parameter `class_weight`. The checks set `classes_`, `n_features_in_` and
    `feature_names_in_`.
    """

    class_weight: Any
    classes_: NDArray[Any]
    n_features_in_: int

    # Whether `fit` accepts Blocks, and arrays that NumPy cannot read in place. Other estimators
    # refuse Blocks and copy such arrays to NumPy.
    _accepts_blocks = False
    _accepts_device_arrays = False

    # Whether y may be an indicator matrix of several labels.
    _accepts_label_sets = False

    # Private attributes that a fit sets; `_reset` removes them.
    _private_state: tuple[str, ...] = ()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_label = self._accepts_label_sets
        return tags

    def _reset(self) -> None:
        """Remove the fitted attributes, so that a fit that fails leaves none of an earlier fit."""
        fitted = [name for name in vars(self) if name[-1] == "_" != name[0]]
        for name in (*fitted, *self._private_state):
            self.__dict__.pop(name, None)

    def _copy_input_attributes(self, other: "InputChecks") -> None:
        """Take the attributes that the checks of another estimator have set."""
        for name in ("classes_", "multilabel_", "n_features_in_", "feature_names_in_"):
            if hasattr(other, name):
                setattr(self, name, getattr(other, name))

    def _check_training(self, X: Any, y: Any, sample_weight: ArrayLike | None) -> TrainingData:
        """Check the input of `fit`; set `classes_` and the attributes of `validate_data`."""
        if self._accepts_label_sets:
            y = np.asarray(y) if is_dask(y) else y
            self.multilabel_ = is_indicator(y)
            if self.multilabel_:
                return self._check_label_sets(X, y, sample_weight)
        matrix, target = self._read_labelled(X, y, reset=True)
        self.classes_, codes = encode_labels(matrix, target)
        if not isinstance(target, np.ndarray):  # the classes have the type of all labels
            check_classification_targets(np.tile(self.classes_, 2))
        data = self._weighted(matrix, Labels(codes, len(self.classes_)), sample_weight)
        sizes = class_totals(codes, data.weights > 0, len(self.classes_))
        present = self.classes_[sizes > 0].tolist()
        if len(present) < 2:
            # Other classes have labels, so that weights have removed them.
            rule = ". Weights below 1e-100 of their sum count as zero." * (len(self.classes_) > 1)
            raise ValueError(
                f"{type(self).__name__} needs samples of at least 2 classes with positive weight; "
                f"got 1 class: {present}{rule}"
            )
        _warn_of_lost_digits(data.matrix)
        single = self.classes_[sizes == 1].tolist()
        if single:
            warn(
                f"classes with a single sample: {short(single)}. A class cannot be learnt from one "
                "sample; add samples or drop the class."
            )
        return data

    def _check_label_sets(self, X: Any, y: Any, sample_weight: ArrayLike | None) -> TrainingData:
        """Check X with an indicator matrix; `classes_` numbers the labels."""
        matrix = self._read(to_host(X), reset=True)
        matrix = without_duplicates(matrix) if sparse.issparse(matrix) else matrix
        labels = LabelSets.of(checked_indicator(y))
        check_consistent_length(matrix, labels.codes.T)
        self.classes_ = np.arange(labels.n_classes)
        data = self._weighted(matrix, labels, sample_weight)
        if self.class_weight is None:
            return data
        is_positive = labels.has(labels.codes, labels.positive_classes)
        factors = label_factors(self.class_weight, is_positive, data.weights)
        return replace(data, labels=replace(labels, factors=factors))

    def _check_batch(
        self, X: Any, y: Any, classes: ArrayLike | None, sample_weight: ArrayLike | None
    ) -> TrainingData:
        """Check the input of `partial_fit`; the first batch sets `classes_`."""
        first = not hasattr(self, "classes_")
        matrix, target = self._read_labelled(X, y, reset=first)
        self._refuse_missing(matrix)
        if classes is not None:
            self._check_classes(classes, first)
        unknown = np.setdiff1d(target, self.classes_).tolist()
        if unknown:
            raise ValueError(f"y must hold labels that are in classes; got {short(unknown)}")
        codes = np.searchsorted(self.classes_, target)
        return self._weighted(matrix, Labels(codes, len(self.classes_)), sample_weight)

    def _check_classes(self, classes: ArrayLike, first: bool) -> None:
        """Check the classes named for a stream; set them for its first batch."""
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

    def _weighted(
        self, matrix: Any, labels: Labels, sample_weight: ArrayLike | None
    ) -> TrainingData:
        """Join checked rows and labels with the weights of samples and classes."""
        codes = labels.strata
        n_rows = codes.shape[0]
        # Several labels have weights of their own (`_check_label_sets`).
        has_factors = self.class_weight is not None and not isinstance(labels, LabelSets)
        if sample_weight is None and not has_factors:
            return TrainingData(matrix, labels, equal_weights(codes), float(n_rows))
        xp, weights = namespace(codes), to_device_of(codes, check_weights(sample_weight, n_rows))
        largest = float(xp.max(weights))
        weights = weights / largest  # the sum of weights near the largest float would overflow
        if has_factors:
            factors = to_device_of(codes, self._class_factors(codes, weights))
            weights = weights * xp.take(factors, xp.astype(codes, xp.int64), axis=0)
        total = float(xp.sum(weights))
        if total == 0:
            raise ValueError(
                f"class_weight must give at least one sample a positive weight; got "
                f"{self.class_weight}"
            )
        total_weight = min(total * largest, float(np.finfo(np.float64).max))
        weights = weights / total
        # Products of smaller weights underflow: they count as zero.
        weights = xp.where(weights < 1e-100, xp.zeros_like(weights), weights)
        return TrainingData(matrix, labels, weights, total_weight)

    def _class_factors(self, codes: Any, weights: Any) -> FloatArray:
        """Return the factor of each class according to `class_weight`."""
        if isinstance(self.class_weight, str):
            return balanced_factors(codes, weights, len(self.classes_))
        if not isinstance(self.class_weight, Mapping):
            raise ValueError(
                f"class_weight={short(self.class_weight)} is for several labels, a dict for each; "
                "y has one class a sample. Pass a dict from class to weight, or 'balanced'."
            )
        factors = {
            label: class_factor(label, factor) for label, factor in self.class_weight.items()
        }
        known = self.classes_.tolist()
        unknown = [label for label in factors if label not in known]
        # A factor of a class absent from y is an error only if a class of y has no factor.
        if unknown and any(label not in factors for label in known):
            raise ValueError(
                f"class_weight must name classes of y, {short(known)}; got {short(unknown)}"
            )
        return np.array([factors.get(label, 1.0) for label in known])

    def _read_labelled(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, Any]:
        """Check X, as `_read` does, and y.

        Arrays and CSR matrices that pass every check by their type, dtype and shape skip the checks
        of scikit-learn, which take 0.2 ms, and 0.6 ms where its code is not in cache; Newton's
        method takes 0.02 ms on 100 rows.
        """
        if reset and _passes_all_checks(X, y):
            self.n_features_in_ = X.shape[1]
            return without_duplicates(checked_sparse(X)) if sparse.issparse(X) else X, y
        if not isinstance(y, np.ndarray) and is_dask(y):
            y = np.asarray(y)
        if not self._accepts_device_arrays:
            X, y = (to_host(x) for x in (X, y))
        if is_device_array(y):
            if is_device_array(X):
                return self._read_device_arrays(X, y, reset=reset)
            y = to_numpy(y)
        refuse_mixed("y", y)
        refuse_objects(y)
        matrix, target = self._read(X, y=y, reset=reset)
        check_classification_targets(target)
        matrix = without_duplicates(matrix) if sparse.issparse(matrix) else matrix
        return matrix, np.asarray(target)

    def _read_device_arrays(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, Any]:
        """Check X and y where NumPy can read neither in place."""
        matrix, target = self._read(X, reset=reset), as_torch(y)
        if tuple(target.shape) != (matrix.shape[0],):
            raise ValueError(
                f"y must have shape {(matrix.shape[0],)}, one label a sample; got "
                f"{tuple(target.shape)}"
            )
        if dtype_name(target).startswith("float") and bool(namespace(target).any(target != target)):
            refuse_mixed("y", to_numpy(target))  # names the first row with NaN
        return matrix, target

    def _read(self, X: Any, **options: Any) -> Any:
        """Check X (and y, if given) and keep the dtype; infinity and NaN are found by the fit."""
        refuse_lazy("X", X)
        X = X if isinstance(X, np.ndarray) else as_blocks(X)
        if isinstance(X, Blocks):
            return self._read_blocks(X, **options)
        on_device = is_device_array(X)
        checked = validate_data(
            self,
            _shape_only(X) if on_device else checked_matrix(X),
            accept_sparse="csr",
            dtype="numeric",
            ensure_all_finite=False,
            **options,
        )
        if not on_device:
            return checked
        return (as_torch(X), checked[1]) if isinstance(checked, tuple) else as_torch(X)

    def _read_blocks(self, blocks: Blocks, *, reset: bool, **labels: Any) -> Any:
        """Check the shape of blocks, and y; the rows are checked when a block is loaded."""
        if not self._accepts_blocks:
            raise TypeError(f"{type(self).__name__} needs X in memory; got {type(blocks).__name__}")
        validate_data(self, blocks, reset=reset, skip_check_array=True)
        if not labels:
            return blocks
        target = validate_data(self, **labels)
        check_consistent_length(blocks, target)
        return blocks, target

    def _refuse_missing(self, matrix: Any) -> None:
        """Raise a ValueError that names the first NaN or infinity, if there is one."""
        names = getattr(self, "feature_names_in_", None)
        refuse_missing(matrix, type(self).__name__, names)


def plain_rows(X: Any, names: NDArray[Any] | None) -> Any:
    """Return X as a NumPy or CSR matrix if its type shows that it passes all checks; else None.

    This is for predictions of few rows, where the checks of scikit-learn take most of the time. A
    pandas data frame passes if its columns have the `names` of the fit and hold numbers.
    """
    refuse_lazy("X", X)
    if names is not None:
        dtypes = getattr(X, "dtypes", None)
        if dtypes is None or list(getattr(X, "columns", ())) != names.tolist():
            return None
        if any(getattr(dtype, "kind", "O") not in "biuf" for dtype in dtypes):
            return None
        X = X.to_numpy()
    elif isinstance(X, list):
        try:
            X = np.asarray(X)
        except ValueError:  # rows of unequal length
            return None
    elif getattr(X, "format", None) == "csr" and sparse.issparse(X):
        X = checked_sparse(X)
    elif type(X) is not np.ndarray:
        return None
    return X if _is_plain(X, "biuf") else None


def _is_plain(X: Any, kinds: str) -> bool:
    """Whether an array is a matrix of numbers of the given kinds of dtype, and not empty."""
    return (
        X.dtype.kind in kinds
        and X.dtype.itemsize <= 8
        and X.dtype.isnative
        and X.ndim == 2
        and min(X.shape) > 0
    )


def _passes_all_checks(X: Any, y: Any, max_classes: int = 10) -> bool:
    """Whether X is a matrix of floats, and y has an integer or a boolean for each row.

    scikit-learn warns of many classes; labels of a wider range than `max_classes` are left to it.
    """
    return (
        type(X) in (np.ndarray, sparse.csr_array, sparse.csr_matrix)
        and type(y) is np.ndarray
        and _is_plain(X, "f")
        and y.dtype.kind in "biu"
        and y.shape == X.shape[:1]
        and len(y) > 2 * max_classes
        and bool(int(y.max()) - int(y.min()) < max_classes)
    )


def checked_matrix(X: Any) -> Any:
    """Return X, a list as an array; refuse values that NumPy would convert to other values.

    These are masks, which NumPy ignores; text, dates and categories, which it converts to numbers;
    and columns of the same name, which a data frame returns together.
    """
    if isinstance(X, np.ma.MaskedArray):
        raise ValueError("X must not be a masked array: its mask would be ignored")
    if sparse.issparse(X):
        return checked_sparse(X)
    names = getattr(X, "column_names", getattr(X, "columns", None))  # of Arrow, pandas, polars
    if names is None or not hasattr(X, "__array__"):
        array = np.asarray(X)
        _refuse_others(array, "X must hold numbers, not text or dates; got")
        if array.dtype == np.longdouble and array.dtype.itemsize > 8:
            return _as_double(array)
        return X if isinstance(X, np.ndarray) else array
    name, count = max(Counter(names).items(), key=lambda item: item[1], default=("", 0))
    if count > 1:
        raise ValueError(f"X must have column names that differ; got {name!r} {count} times")
    for name in names:
        words = f"X must hold numbers, not text, dates or categories; column {name!r} has"
        _refuse_others(X[name], words)
    return X


def _as_double(array: NDArray[Any]) -> FloatArray:
    """Convert numbers of extended precision; refuse those beyond the largest double."""
    with np.errstate(over="ignore"):
        double = array.astype(np.float64)
    if np.any(np.isinf(double) & np.isfinite(array)):
        largest = float(np.finfo(np.float64).max)
        raise OverflowError(
            f"X must hold numbers up to {largest:.1e}, the largest double; got extended precision "
            "with larger ones. Choose another unit of the columns."
        )
    return double


def _warn_of_lost_digits(matrix: Any, n_rows: int = 256) -> None:
    """Warn of dense columns that vary by less than the rounding error of their mean.

    The first rows are enough: an offset is common to all.
    """
    if not isinstance(matrix, np.ndarray) or matrix.dtype.kind != "f":
        return
    with np.errstate(all="ignore"):
        low, high = matrix[:n_rows].min(axis=0), matrix[:n_rows].max(axis=0)
        rounding = len(matrix) * float(np.finfo(np.float64).eps) * np.maximum(-low, high)
        is_lost = (high > low) & (high - low <= rounding) & np.isfinite(rounding)
        lost = np.flatnonzero(is_lost).tolist()
    if lost:
        names = ", ".join(map(str, lost[:5])) + ", ..." * (len(lost) > 5)
        warn(
            f"columns {names} of X vary by less than the rounding error of their mean, and count "
            "as constant. Subtract their offset."
        )


def _refuse_others(values: Any, words: str) -> None:
    """Refuse an array or a column of a data frame that holds other values than numbers.

    Objects may be numbers or None. The error begins with `words`, and names the first other object.
    """
    advice = "Encode such columns first, as marginpursuit.tables.TableVectoriser does."
    dtype = getattr(values, "dtype", getattr(values, "type", None))  # of Arrow: type
    # The dtype of pandas states the kind also where missing values give an array of objects.
    kind = getattr(dtype, "kind", None) or np.asarray(values).dtype.kind
    if kind not in "biufcO" or str(dtype) == "category":  # validate_data refuses complex numbers
        raise ValueError(f"{words} dtype {dtype}. {advice}")
    cells = np.atleast_1d(np.asarray(values)) if kind == "O" else np.empty(0)
    for k, cell in enumerate(cells.flat):
        is_text = isinstance(cell, str | bytes)
        if not is_text and (cell is None or hasattr(cell, "__float__")):
            continue
        place = f"{short(cell)} in row {np.unravel_index(k, cells.shape)[0]}"
        if is_text:
            raise ValueError(f"{words} dtype {dtype} with {place}. {advice}")
        raise TypeError(  # that of float(), which scikit-learn's checks demand
            f"{words} dtype {dtype} with {place}: float() argument must be a string or a number, "
            f"not {type(cell).__name__!r}. {advice}"
        )


def _shape_only(X: Any) -> NDArray[np.float32]:
    """Return an array of zeros of the shape of X, for checks that do not read its values."""
    if not has_real_dtype(X):
        raise ValueError(f"X must hold real numbers; got dtype {dtype_name(X)}")
    return np.broadcast_to(np.float32(0.0), tuple(X.shape))
