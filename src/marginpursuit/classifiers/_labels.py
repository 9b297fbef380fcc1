"""Labels and weights of a fit: checks, classes, indices of classes, and totals of weights."""

from collections.abc import Mapping
from math import prod
from numbers import Integral
from reprlib import repr as short
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.utils.multiclass import is_multilabel

from marginpursuit._namespaces import (
    dtype_name,
    is_array_api,
    is_device_array,
    namespace,
    to_device_of,
    to_host,
    to_numpy,
)
from marginpursuit._validation import FloatArray, between, refuse_lazy, scalar
from marginpursuit.blocks import is_dask


def is_indicator(y: Any) -> bool:
    """Whether y has several columns of at most two values, as an indicator matrix has.

    Columns with missing values count as an indicator matrix, whose check refuses them by name.
    """
    if isinstance(y, np.ndarray):
        if y.ndim == 1:
            return False
        if y.ndim == 2 and y.shape[1] > 1 and y.dtype.kind in "biuf":
            if _is_binary(y):
                return True  # scikit-learn's test sorts all values
            if y.dtype.kind == "f" and np.isnan(y).any():
                return True
    if isinstance(y, list | tuple) and y and np.ndim(y[0]) == 0:
        return False
    return not is_dask(y) and not is_device_array(y) and bool(is_multilabel(y))


def checked_indicator(y: Any) -> Any:
    """Return an indicator matrix of 0 and 1, dense or sparse by column; refuse other values."""
    if isinstance(y, np.ma.MaskedArray):
        raise ValueError("y must not be a masked array: its mask would be ignored")
    is_sparse = sparse.issparse(y)
    matrix: Any = sparse.csc_matrix(y) if is_sparse else np.asarray(y)
    values = matrix.data if is_sparse else matrix
    if not _is_binary(values):
        values = np.unique(values)
        raise ValueError(
            f"y with several columns must be an indicator matrix of 0 and 1; got the values "
            f"{short(values.tolist())}. For one class a sample, pass y of shape (n_samples,)."
        )
    return matrix


def _is_binary(values: NDArray[Any]) -> bool:
    """Whether all values are 0 or 1."""
    return bool(np.all((values == 0) | (values == 1)))


def refuse_mixed(name: str, y: Any) -> None:
    """Refuse masked and missing labels, and labels that mix text with other types."""
    refuse_lazy(name, y)
    if isinstance(y, np.ma.MaskedArray):
        raise ValueError(f"{name} must not be a masked array: its mask would be ignored")
    labels, n_columns = y, 1
    if not isinstance(y, list | tuple):
        array = np.asarray(y)
        if array.ndim == 0:
            return
        labels, n_columns = array.ravel(), prod(array.shape[1:])
    if isinstance(labels, np.ndarray) and labels.dtype != object:
        if labels.dtype.kind in "fmM":  # NaN and NaT differ from themselves
            missing = np.flatnonzero(labels != labels).tolist()
            _refuse_missing_labels(name, labels, missing, n_columns)
        return
    texts = [isinstance(label, str) for label in labels]
    if all(texts):
        return
    missing = [k for k, label in enumerate(labels) if _is_missing(label)]
    _refuse_missing_labels(name, labels, missing, n_columns)
    if any(texts):
        other = labels[texts.index(False)]
        raise TypeError(
            f"{name} must not have mixed label types; got str and {type(other).__name__}"
        )


def refuse_objects(y: Any) -> None:
    """Refuse arrays of Python objects that are not text, whose type scikit-learn does not know.

    The categories of pandas have the dtype of their values.
    """
    if getattr(getattr(y, "dtype", None), "kind", "") != "O":
        return
    labels = np.asarray(y)
    first: Any = next(iter(labels.ravel()), "") if labels.dtype == object else ""
    if not isinstance(first, str):
        is_bool, is_int = isinstance(first, bool | np.bool_), isinstance(first, Integral)
        kind = "bool" if is_bool else "int" if is_int else "str"
        raise ValueError(
            f"Unknown label type: y has dtype object with labels of type {type(first).__name__}; "
            f"expected numbers or text. Convert them, as by y.astype({kind})."
        )


def _is_missing(label: Any) -> bool:
    """Whether a label is None, NaN, NaT or pandas' NA."""
    if label is None or type(label).__name__ in ("NAType", "NaTType"):
        return True
    numbers = float | np.floating | np.datetime64 | np.timedelta64
    return isinstance(label, numbers) and bool(label != label)


def _refuse_missing_labels(name: str, labels: Any, missing: list[int], n_columns: int = 1) -> None:
    """Raise a ValueError if there are missing labels, at these indices of the flattened labels."""
    if missing:
        place = f"{'row' if name == 'y' else 'entry'} {missing[0] // n_columns}"
        first = f"{labels[missing[0]]} in {place}"
        raise ValueError(
            f"{name} must not have missing labels; got {first}, the first of {len(missing)} among "
            f"{len(labels)} labels. Leave these out, or give them a label."
        )


def encode_labels(matrix: Any, target: Any) -> tuple[NDArray[Any], Any]:
    """Return the classes in ascending order, and the index of each label, next to the matrix."""
    if is_array_api(target):
        xp, is_bool = namespace(target), dtype_name(target) == "bool"
        classes, codes = _encode_on_device(xp, xp.astype(target, xp.uint8) if is_bool else target)
        classes = classes.astype(bool) if is_bool else classes
    else:
        classes, codes = _encode_in_numpy(target)
    if not is_array_api(matrix):
        return classes, codes
    xp = namespace(matrix)
    return classes, to_device_of(matrix, codes, xp.uint8 if len(classes) <= 256 else xp.int32)


def _encode_in_numpy(
    labels: NDArray[Any], max_range: int = 1 << 10
) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Encode labels of NumPy. Integers that span few values are counted, all others sorted."""
    if labels.dtype.kind == "i":
        low = int(labels.min())
        if int(labels.max()) - low < max_range:
            offsets = (labels.astype(np.int64) - low).astype(np.intp, copy=False)
            is_class = np.bincount(offsets) > 0
            classes = (np.flatnonzero(is_class) + low).astype(labels.dtype)
            codes = offsets if len(classes) == len(is_class) else np.cumsum(is_class)[offsets] - 1
            return classes, codes
    # np.unique(labels, return_inverse=True) can take 100 times as long as the binary search.
    classes = np.unique(labels)
    return classes, np.searchsorted(classes, labels)


def _encode_on_device(xp: Any, labels: Any, max_range: int = 16) -> tuple[NDArray[Any], Any]:
    """Encode labels with the functions of their library.

    Integers that span fewer than `max_range` values are compared with each of these values; all
    other labels are sorted, which takes longer.
    """
    if dtype_name(labels) in ("uint8", "int8", "int16", "int32", "int64"):
        low, high = int(xp.min(labels)), int(xp.max(labels))
        if high - low < max_range:
            seen = xp.stack([xp.any(labels == label) for label in range(low, high + 1)])
            classes = np.arange(low, high + 1).astype(dtype_name(labels))[to_numpy(seen)]
            if len(classes) == high - low + 1:
                return classes, labels - low
            return classes, xp.searchsorted(to_device_of(labels, classes), labels)
    found = xp.sort(xp.unique_values(labels), axis=0)
    return to_numpy(found), xp.searchsorted(found, labels)


def class_totals(codes: Any, weights: Any, n_classes: int) -> FloatArray:
    """Return the sum of the weights of each class."""
    if isinstance(codes, np.ndarray):
        return np.bincount(codes, weights, n_classes).astype(np.float64, copy=False)
    xp = namespace(codes)
    weights = xp.astype(weights, xp.float64)
    totals = [xp.sum(xp.where(codes == k, weights, 0.0)) for k in range(n_classes)]
    return to_numpy(xp.stack(totals))


def balanced_factors(codes: Any, weights: Any, n_classes: int) -> FloatArray:
    """Return a factor for each class that gives all classes in `codes` the same total weight."""
    totals = class_totals(codes, weights, n_classes)
    mean = totals.sum() / np.count_nonzero(totals)
    return np.asarray(np.divide(mean, totals, out=np.ones_like(totals), where=totals > 0))


def label_factors(class_weight: Any, is_positive: NDArray[np.bool_], weights: Any) -> FloatArray:
    """Return factors of the weights of rows without and with each label, of shape (2, n_labels).

    Parameters
    ----------
    class_weight : "balanced", dict or sequence of dict
        From 0 and 1 to a weight, for all labels or for each; a missing key is a weight of one.
    is_positive : ndarray of bool of shape (n_labels, n_rows)
        Whether rows have a label.
    weights : ndarray of shape (n_rows,)
        Weights of the rows.
    """
    n_labels = len(is_positive)
    if isinstance(class_weight, str):
        positive = is_positive @ weights
        totals = np.stack([weights.sum() - positive, positive])
        half = 0.5 * float(weights.sum())
        return np.asarray(np.divide(half, totals, out=np.ones_like(totals), where=totals > 0))
    is_shared = isinstance(class_weight, Mapping)
    given = [class_weight] * n_labels if is_shared else list(class_weight)
    if len(given) != n_labels:
        raise ValueError(
            f"class_weight has {len(given)} dicts; y has {n_labels} labels. Pass one dict for each "
            "label, one for all, or 'balanced'."
        )
    unknown = [key for own in given for key in own if key not in (0, 1)]
    if unknown:
        raise ValueError(
            f"class_weight with several labels must have the keys 0 and 1, for rows without and "
            f"with a label; got {short(unknown)}. A list of dicts has one for each label."
        )
    factors = [[class_factor(key, own.get(key, 1.0)) for own in given] for key in (0, 1)]
    return np.array(factors, dtype=np.float64)


def class_factor(label: Any, factor: Any) -> float:
    """Return a factor of `class_weight` as a float; refuse other values than numbers >= 0."""
    name = f"class_weight[{label!r}]"
    return scalar(name, between(name, factor, 0.0, 1e300))  # a sum of larger factors may overflow


def equal_weights(codes: Any) -> Any:
    """Return equal weights that sum to one; on a device, as a view of a single number."""
    n_rows = codes.shape[0]
    if not is_array_api(codes):
        return np.full(n_rows, 1.0 / n_rows)
    xp = namespace(codes)
    return xp.broadcast_to(to_device_of(codes, 1.0 / n_rows, xp.float64), (n_rows,))


def check_weights(sample_weight: ArrayLike | None, n_rows: int) -> FloatArray:
    """Return one weight a row, finite, non-negative and not all zero."""
    if sample_weight is None:
        return np.ones(n_rows)
    refuse_lazy("sample_weight", sample_weight)
    sample_weight = to_host(sample_weight)
    weights = between("sample_weight", sample_weight, 0.0, float(np.finfo(np.float64).max))
    if weights.ndim == 0:
        weights = np.full(n_rows, weights)
    if weights.shape != (n_rows,):
        raise ValueError(
            f"sample_weight must have shape {(n_rows,)}, one weight a sample; got {weights.shape}"
        )
    if not np.any(weights):
        raise ValueError("Sample weights must contain at least one non-zero number.")
    return weights
