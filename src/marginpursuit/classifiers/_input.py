"""Checks of what a user passes to an estimator, beyond those that scikit-learn makes.

An error names what was wrong, the value seen and what is allowed.
"""

from collections import Counter
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from marginpursuit._namespaces import (
    NARROW,
    WIDE,
    beside,
    dtype_name,
    is_elsewhere,
    is_foreign,
    namespace,
    to_numpy,
)
from marginpursuit._validation import FloatArray, between
from marginpursuit.blocks import Blocks

#: The largest float.
LARGEST = float(np.finfo(np.float64).max)

# The integers among which labels are looked for one by one, where they are, and the most of them.
_COUNTED = frozenset(("uint8", "int8", "int16", "int32", "int64"))
_FEW_LABELS = 16

# Rows that are looked through at a time for what is not finite, where they are.
_SEARCHED_ROWS = 1 << 20


def readable(X: Any) -> Any:
    """Return X, a list as an array; refuse what would be misread without a word.

    That is masks, which would be ignored; text, dates and categories, which would become numbers;
    and columns of the same name.
    """
    if isinstance(X, np.ma.MaskedArray):
        raise ValueError("X must not be a masked array: its mask would be ignored")
    if sparse.issparse(X):
        _refuse_broken(X)
        return X
    names = getattr(X, "column_names", getattr(X, "columns", None))  # of Arrow, pandas, polars
    if names is None or not hasattr(X, "__array__"):
        array = np.asarray(X)
        if not _holds_numbers(array):
            raise ValueError(f"X must hold numbers, not text or dates; got dtype {array.dtype}")
        return X if isinstance(X, np.ndarray) else array
    name, times = max(Counter(names).items(), key=lambda item: item[1], default=("", 0))
    if times > 1:
        raise ValueError(f"X must have column names that differ; got {name!r} {times} times")
    for name in names:
        column = X[name]
        if not _holds_numbers(column):
            dtype = getattr(column, "dtype", getattr(column, "type", None))
            raise ValueError(
                f"X must hold numbers, not text, dates or categories; column {name!r} has dtype "
                f"{dtype}"
            )
    return X


def _refuse_broken(X: Any) -> None:
    """Refuse a CSR or CSC matrix whose indices point outside: SciPy would read or write there."""
    if X.format not in ("csr", "csc"):
        return
    length = X.shape[1 if X.format == "csr" else 0]
    rises = X.indptr[0] == 0 and np.all(np.diff(X.indptr) >= 0) and X.indptr[-1] <= len(X.indices)
    if not rises or (len(X.indices) and not 0 <= X.indices.min() <= X.indices.max() < length):
        raise ValueError(
            f"X must have an indptr that rises from 0 to at most {len(X.indices)}, and indices in "
            f"[0, {length}); got a broken {X.format} matrix"
        )


def _holds_numbers(values: Any) -> bool:
    """Whether an array or the column of a data frame holds numbers, or objects that are no text."""
    dtype = getattr(values, "dtype", None)
    if str(dtype) == "category":
        return False
    # pandas names the kind even where missing values would make an object array.
    kind = getattr(dtype, "kind", None) or np.asarray(values).dtype.kind
    if kind != "O":
        return kind in "biufc"  # scikit-learn refuses complex numbers itself
    return not any(isinstance(value, str | bytes) for value in np.asarray(values).flat)


def stand_in(X: Any) -> NDArray[np.float32]:
    """Return an array of the shape of X, for checks that do not look at its values."""
    if dtype_name(X) not in NARROW | WIDE:
        raise ValueError(f"X must hold real numbers; got dtype {dtype_name(X)}")
    return np.broadcast_to(np.float32(0.0), tuple(X.shape))


def coded(matrix: Any, target: Any) -> tuple[NDArray[Any], Any]:
    """Return the classes in rising order, and where the rows are, the index of each label."""
    if is_foreign(target):
        xp, is_bool = namespace(target), dtype_name(target) == "bool"
        classes, codes = _coded_elsewhere(xp, xp.astype(target, xp.uint8) if is_bool else target)
        classes = classes.astype(bool) if is_bool else classes
    else:
        # Sorting labels to invert them is some of the time a hundred times slower than this.
        classes = np.unique(target)
        codes = np.searchsorted(classes, target)
    if not is_foreign(matrix):
        return classes, codes
    xp = namespace(matrix)
    return classes, beside(matrix, codes, xp.uint8 if len(classes) <= 256 else xp.int32)


def _coded_elsewhere(xp: Any, labels: Any) -> tuple[NDArray[Any], Any]:
    if dtype_name(labels) in _COUNTED:
        low, high = int(xp.min(labels)), int(xp.max(labels))
        if high - low < _FEW_LABELS:  # to look for each takes far less than to sort all
            seen = xp.stack([xp.any(labels == label) for label in range(low, high + 1)])
            classes = np.arange(low, high + 1).astype(dtype_name(labels))[to_numpy(seen)]
            if len(classes) == high - low + 1:
                return classes, labels - low
            return classes, xp.searchsorted(beside(labels, classes), labels)
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


def equal_weights(codes: Any) -> Any:
    """Return weights of all rows that are equal and sum to one; elsewhere, they take no memory."""
    n_rows = codes.shape[0]
    if not is_foreign(codes):
        return np.full(n_rows, 1.0 / n_rows)
    xp = namespace(codes)
    return xp.broadcast_to(beside(codes, 1.0 / n_rows, xp.float64), (n_rows,))


def refuse_missing(matrix: Any, owner: str, names: NDArray[Any] | None) -> None:
    """Refuse NaN and infinity in a dense array, CSR matrix or blocks; say where they are."""
    in_block = ""
    if isinstance(matrix, Blocks):
        found = ((block, missing) for block, _, missing in matrix.each(first_missing) if missing)
        block, missing = next(found, (0, None))
        in_block = f" of block {block}"
    else:
        missing = first_missing(matrix)
    if missing is None:
        return
    row, column, value = missing
    where = f"column {column}" if names is None else f"column {names[column]!r}"
    raise ValueError(
        f"Input X contains {'NaN' if np.isnan(value) else 'infinity'}: {owner} needs finite "
        f"numbers; got {value} in {where}, row {row}{in_block}. Impute or drop such values first."
    )


def first_missing(matrix: Any) -> tuple[int, int, float] | None:
    """Return row, column and value of the first NaN or infinity, if there is one."""
    if is_foreign(matrix):
        xp = namespace(matrix)
        for start in range(0, matrix.shape[0], _SEARCHED_ROWS):
            rows = matrix[start : min(start + _SEARCHED_ROWS, matrix.shape[0]), :]
            if not bool(xp.all(xp.isfinite(rows))):
                row, column, value = first_missing(to_numpy(rows)) or (0, 0, np.nan)
                return start + row, column, value
        return None
    is_sparse = sparse.issparse(matrix)
    stored = matrix.data if is_sparse else matrix
    finite = np.isfinite(stored)
    if finite.all():
        return None
    first = np.unravel_index(finite.argmin(), finite.shape)
    value = float(stored[first])
    if is_sparse:
        first = np.flatnonzero(matrix.indptr <= first[0])[-1], matrix.indices[first[0]]
    return int(first[0]), int(first[1]), value


def refuse_mixed(name: str, y: Any) -> None:
    """Refuse masked labels, and labels of which some are text and some are not."""
    if isinstance(y, np.ma.MaskedArray):
        raise ValueError(f"{name} must not be a masked array: its mask would be ignored")
    labels = y if isinstance(y, list | tuple) else np.asarray(y)
    if isinstance(labels, np.ndarray) and (labels.dtype != object or labels.ndim == 0):
        return
    texts = [isinstance(label, str) for label in labels]
    if any(texts) and not all(texts):
        stranger = labels[texts.index(False)]
        if stranger is None or (isinstance(stranger, float) and np.isnan(stranger)):
            raise ValueError(f"{name} must not have missing labels; got {stranger} among text")
        raise TypeError(
            f"{name} must not have mixed label types; got str and {type(stranger).__name__}"
        )


def check_weights(sample_weight: ArrayLike | None, n_rows: int) -> FloatArray:
    """Return one weight a row, finite, not negative and not all zero."""
    if sample_weight is None:
        return np.ones(n_rows)
    sample_weight = to_numpy(sample_weight) if is_elsewhere(sample_weight) else sample_weight
    weights = between("sample_weight", sample_weight, 0.0, LARGEST)
    if weights.ndim == 0:
        weights = np.full(n_rows, weights)
    if weights.shape != (n_rows,):
        raise ValueError(
            f"sample_weight must have shape {(n_rows,)}, one weight a sample; got {weights.shape}"
        )
    if not np.any(weights):
        raise ValueError("Sample weights must contain at least one non-zero number.")
    return weights


def rescaled(matrix: Any) -> tuple[Any, NDArray[np.int_]]:
    """Copy a matrix as float64, each column divided by a power of two near its largest value.

    Blocks are copied whenever they are loaded.
    """
    if isinstance(matrix, Blocks):
        largest = np.max([size for _, _, size in matrix.each(_largest)], axis=0)
    else:
        largest = _largest(matrix)
    _, exponents = np.frexp(largest)
    change = partial(_divided, exponents=exponents)
    return matrix.map(change) if isinstance(matrix, Blocks) else change(matrix), exponents


def _largest(matrix: Any) -> FloatArray:
    """Return the largest absolute value of each column."""
    if is_foreign(matrix):
        xp = namespace(matrix)
        return to_numpy(xp.max(xp.abs(xp.astype(matrix, xp.float64)), axis=0))
    largest = abs(matrix.astype(np.float64)).max(axis=0)
    return np.asarray(largest.toarray().ravel() if sparse.issparse(matrix) else largest)


def _divided(matrix: Any, exponents: NDArray[np.int_]) -> Any:
    """Copy a matrix as float64, its columns divided by powers of two."""
    if is_foreign(matrix):
        xp = namespace(matrix)
        return xp.astype(matrix, xp.float64) * beside(matrix, np.ldexp(1.0, -exponents))
    scaled = matrix.astype(np.float64)
    if sparse.issparse(matrix):
        scaled.data = np.ldexp(scaled.data, -exponents[scaled.indices])
        return scaled
    return np.ldexp(scaled, -exponents, out=scaled)
