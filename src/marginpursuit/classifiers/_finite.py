"""Values out of range: NaN and infinity in X, and columns whose squares over- or underflow."""

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from marginpursuit._namespaces import is_array_api, namespace, to_device_of, to_numpy
from marginpursuit._validation import FloatArray
from marginpursuit.blocks import Blocks


def refuse_missing(matrix: Any, owner: str, names: NDArray[Any] | None) -> None:
    """Raise a ValueError for NaN or infinity in a matrix or blocks; name row and column."""
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


def first_missing(matrix: Any, chunk_rows: int = 1 << 20) -> tuple[int, int, float] | None:
    """Return row, column and value of the first NaN or infinity, or None.

    Arrays on a device are searched `chunk_rows` rows at a time, which bounds the temporary memory.
    """
    if is_array_api(matrix):
        xp = namespace(matrix)
        for start in range(0, matrix.shape[0], chunk_rows):
            rows = matrix[start : min(start + chunk_rows, matrix.shape[0]), :]
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


def range_error(reason: object) -> OverflowError:
    """Return the error of a fit whose squares over- or underflow, with a reason or the cause."""
    return OverflowError(
        f"X has columns whose squares over- or underflow float64 ({reason}). Divide each column by "
        "its largest absolute value."
    )


def rescaled(matrix: Any, *, by_one_factor: bool = False) -> tuple[Any, NDArray[np.int_]]:
    """Return a float64 copy with columns divided by powers of two, and the exponents.

    The power of two is that of the largest absolute value of the column, or of all columns. Blocks
    are divided each time that they are loaded.
    """
    if isinstance(matrix, Blocks):
        largest = np.max([size for _, _, size in matrix.each(_column_maxima)], axis=0)
    else:
        largest = _column_maxima(matrix)
    if by_one_factor:
        largest = np.full_like(largest, largest.max())
    _, exponents = np.frexp(largest)
    divide = partial(_divided, exponents=exponents)
    return matrix.map(divide) if isinstance(matrix, Blocks) else divide(matrix), exponents


def _column_maxima(matrix: Any) -> FloatArray:
    """Return the largest absolute value of each column."""
    if is_array_api(matrix):
        xp = namespace(matrix)
        return to_numpy(xp.max(xp.abs(xp.astype(matrix, xp.float64)), axis=0))
    largest = abs(matrix.astype(np.float64)).max(axis=0)
    return np.asarray(largest.toarray().ravel() if sparse.issparse(matrix) else largest)


def _divided(matrix: Any, exponents: NDArray[np.int_]) -> Any:
    """Return a float64 copy with column j divided by 2 ** exponents[j]."""
    if is_array_api(matrix):
        xp = namespace(matrix)
        return xp.astype(matrix, xp.float64) * to_device_of(matrix, np.ldexp(1.0, -exponents))
    scaled = matrix.astype(np.float64)
    if sparse.issparse(matrix):
        scaled.data = np.ldexp(scaled.data, -exponents[scaled.indices])
        return scaled
    return np.ldexp(scaled, -exponents, out=scaled)
