"""Checks of arguments that the public functions share, and the type of their results.

Functions compute in float64 and return the type of their arguments: float32 for float32, a scalar
for a scalar. An error names the argument, the values allowed and the value given.
"""

from reprlib import repr as short
from typing import Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray: TypeAlias = NDArray[np.float64]

#: The result of an elementwise function: an array, or a NumPy scalar if every input is a scalar.
Elementwise: TypeAlias = Any


def real(name: str, value: ArrayLike) -> FloatArray:
    """Return `value` as a float64 array; refuse values other than real numbers, and NaN."""
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{name} must not be a masked array: its mask would be ignored")
    try:
        array = np.asarray(value)
    except ValueError as error:  # rows of unequal length
        raise ValueError(f"{name} must be an array; got {short(value)}: {error}") from error
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name} must hold real numbers; got {short(value)}, dtype {array.dtype}")
    floats = array.astype(np.float64, copy=False)
    is_bad = np.isnan(floats)
    if is_bad.any():
        _refuse(is_bad, name, floats, "must not be NaN")
    return floats


def scalar(name: str, value: ArrayLike) -> float:
    """Return `value` as a float; refuse all but a single real number."""
    floats = real(name, value)
    if floats.ndim:
        raise ValueError(f"{name} must be a single number; got an array of shape {floats.shape}")
    return float(floats)


def positive(name: str, value: ArrayLike) -> FloatArray:
    """Return `value` as float64; refuse numbers outside (0, inf)."""
    floats = real(name, value)
    is_good = (floats > 0) & (floats < np.inf)
    if not is_good.all():
        _refuse(~is_good, name, floats, "must be positive and finite")
    return floats


def between(name: str, value: ArrayLike, low: float, high: float) -> FloatArray:
    """Return `value` as float64; refuse numbers outside [low, high]."""
    floats = real(name, value)
    is_good = (floats >= low) & (floats <= high)
    if not is_good.all():
        _refuse(~is_good, name, floats, f"must be in [{_text(low)}, {_text(high)}]")
    return floats


def inside(name: str, value: ArrayLike, low: float, high: float) -> FloatArray:
    """Return `value` as float64; refuse numbers outside the open interval (low, high)."""
    floats = real(name, value)
    is_good = (floats > low) & (floats < high)
    if not is_good.all():
        rule = f"must be strictly between {_text(low)} and {_text(high)}"
        _refuse(~is_good, name, floats, rule)
    return floats


def count(name: str, value: ArrayLike, least: int = 1) -> int:
    """Return `value` as an int; refuse all but a single integer of at least `least`."""
    # NumPy has no integer type for a Python int from 2⁶⁴ on.
    number = scalar(name, float(value) if isinstance(value, int) else value)
    if not number.is_integer() or number < least:
        raise ValueError(f"{name} must be a whole number of at least {least}; got {_text(number)}")
    return int(number)


def refuse_lazy(name: str, value: Any) -> None:
    """Raise a TypeError for a lazy frame, as of polars, whose rows are not in memory."""
    if type(value).__name__ == "LazyFrame":
        raise TypeError(
            f"{name} is a LazyFrame, whose rows are not computed yet; expected rows in memory. "
            "Call .collect() first."
        )


def checked_sparse(X: Any) -> Any:
    """Return a sparse matrix with index arrays that are in range and of one integer type.

    SciPy and the kernels read and write memory at the indices of a sparse matrix without a check.
    """
    if X.ndim != 2:
        raise ValueError(f"X must be a matrix of 2 dimensions; got {X.ndim}")
    if X.format in ("csr", "csc", "bsr"):
        return _checked_compressed(X)
    if X.format == "dok":
        X = X.tocoo()
    if X.format == "coo":
        return _checked_coordinates(X)
    _check_rows(X) if X.format == "lil" else _check_diagonals(X)
    return X


def without_duplicates(matrix: Any) -> Any:
    """Return a CSR matrix whose stored entries are unique: a copy if they are not.

    Products of a matrix sum duplicate entries; products of its squares would not.
    """
    if matrix.has_canonical_format:
        return matrix
    matrix = matrix.copy()
    matrix.sum_duplicates()
    return matrix


def _checked_compressed(X: Any) -> Any:
    """Check a CSR, CSC or BSR matrix."""
    n_major, n_minor = X.shape[::-1] if X.format == "csc" else X.shape
    data, indices, indptr = np.asarray(X.data), np.asarray(X.indices), np.asarray(X.indptr)
    if X.format == "bsr":
        size = data.shape[1:]
        if data.ndim != 3 or 0 in size or n_major % size[0] or n_minor % size[1]:
            _refuse_sparse(X, f"blocks that divide this shape, got data of shape {data.shape}")
        n_major, n_minor = n_major // size[0], n_minor // size[1]
    elif data.ndim != 1:
        _refuse_sparse(X, f"one value for each index, got data of shape {data.shape}")
    _check_integers(X, indices, indptr)
    n_stored = min(len(indices), len(data))
    is_monotone = (
        len(indptr) == n_major + 1
        and indptr[0] == 0
        and bool(np.all(indptr[1:] >= indptr[:-1]))
        and indptr[-1] <= n_stored
    )
    if not is_monotone:
        rule = f"an indptr of {n_major + 1} entries that rises from 0 to at most {n_stored}"
        _refuse_sparse(X, f"{rule}, and indices in [0, {n_minor})")
    _check_range(X, indices, n_minor)
    if indices.dtype == indptr.dtype and indices.dtype in (np.int32, np.int64):
        return X
    # The constructor of SciPy gives both arrays one type, int32 or int64.
    parts = (data, indices.astype(np.int64), indptr.astype(np.int64))
    return type(X)(parts, shape=X.shape)


def _checked_coordinates(X: Any) -> Any:
    """Check a COO matrix."""
    row, col, data = np.asarray(X.row), np.asarray(X.col), np.asarray(X.data)
    _check_integers(X, row, col)
    if not row.shape == col.shape == data.shape:
        _refuse_sparse(X, "one row and one column for each value")
    for indices, length in ((row, X.shape[0]), (col, X.shape[1])):
        _check_range(X, indices, length)
    if row.dtype == col.dtype and row.dtype in (np.int32, np.int64):
        return X
    return type(X)((data, (row.astype(np.int64), col.astype(np.int64))), shape=X.shape)


def _check_rows(X: Any) -> None:
    """Check a LIL matrix."""
    rows, data = np.asarray(X.rows), np.asarray(X.data)
    if not rows.shape == data.shape == X.shape[:1]:
        _refuse_sparse(X, "a list of columns and a list of values for each row")
    for columns, values in zip(rows, data, strict=True):
        if not isinstance(columns, list) or not isinstance(values, list):
            _refuse_sparse(X, "a list of columns and a list of values for each row")
        if len(columns) != len(values):
            _refuse_sparse(X, "one column for each value")
        if columns and not 0 <= min(columns) <= max(columns) < X.shape[1]:
            _refuse_sparse(X, f"indices in [0, {X.shape[1]})")


def _check_diagonals(X: Any) -> None:
    """Check a DIA matrix."""
    offsets, data = np.asarray(X.offsets), np.asarray(X.data)
    _check_integers(X, offsets)
    if data.ndim != 2 or len(offsets) != len(data) or len(np.unique(offsets)) != len(offsets):
        _refuse_sparse(X, "a different offset for each diagonal")


def _check_integers(X: Any, *indices: NDArray[Any]) -> None:
    """Refuse indices other than integers, which SciPy would truncate."""
    for array in indices:
        if array.ndim != 1 or array.dtype.kind not in "iu":
            shape = f"dtype {array.dtype} and shape {array.shape}"
            _refuse_sparse(X, f"vectors of integers as indices, got {shape}")


def _check_range(X: Any, indices: NDArray[Any], length: int) -> None:
    if len(indices) and not 0 <= indices.min() <= indices.max() < length:
        _refuse_sparse(X, f"indices in [0, {length})")


def _refuse_sparse(X: Any, rule: str) -> NoReturn:
    raise ValueError(f"X is a broken {X.format} matrix of shape {X.shape}: expected {rule}")


def like(result: FloatArray, *inputs: ArrayLike) -> Elementwise:
    """Return `result` as float32 if no input is wider, and as a scalar if all inputs are."""
    kinds = [x if isinstance(x, int | float) else np.asarray(x).dtype for x in inputs]
    narrow = np.result_type(*kinds) in (np.float32, np.float16)
    # A result out of the range of float32 becomes inf or 0, as in NumPy.
    with np.errstate(over="ignore", under="ignore"):
        return result.astype(np.float32 if narrow else np.float64, copy=False)[()]


def _refuse(is_bad: NDArray[np.bool_], name: str, values: FloatArray, rule: str) -> NoReturn:
    """Raise a ValueError for the first bad value."""
    first = np.argwhere(is_bad)[0]
    where = f" at index {tuple(int(i) for i in first)}" if first.size else ""
    raise ValueError(f"{name} {rule}; got {_text(values[tuple(first)])}{where}")


def _text(number: float) -> str:
    """Return the shortest text that is parsed as `number`, and 1 for 1.0."""
    return repr(float(number)).removesuffix(".0")
