"""Subsets of the rows of whatever holds the data."""

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginpursuit._namespaces import is_array_api, namespace, to_device_of
from marginpursuit.blocks import Blocks


def take_rows(matrix: Any, rows: NDArray[np.intp]) -> Any:
    """Return some rows, in rising order, on the device of the data; blocks are not loaded yet."""
    if isinstance(matrix, Blocks):
        return matrix.take(rows)
    if is_array_api(matrix):
        xp = namespace(matrix)
        return xp.take(matrix, to_device_of(matrix, rows, xp.int64), axis=0)
    if isinstance(matrix, np.ndarray) and matrix.flags.c_contiguous:
        return matrix.take(rows, axis=0)  # 20 % faster than indexing
    return matrix[rows]


def loaded(matrix: Any) -> Any:
    """Return the rows of blocks in memory, and anything else as it is."""
    return matrix.gather() if isinstance(matrix, Blocks) else matrix


def elements_per_row(matrix: Any) -> float:
    """Return the mean number of stored elements of a row."""
    if isinstance(matrix, Blocks):
        return matrix.elements_per_row
    stored = getattr(matrix, "nnz", prod(matrix.shape))
    return float(stored / matrix.shape[0])
