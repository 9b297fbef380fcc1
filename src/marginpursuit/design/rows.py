"""Some rows of whatever holds the data."""

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginpursuit._namespaces import beside, is_foreign, namespace
from marginpursuit.blocks import Blocks


def take_rows(matrix: Any, rows: NDArray[np.intp]) -> Any:
    """Return some rows, in rising order, where they are; of blocks, they are not loaded yet."""
    if isinstance(matrix, Blocks):
        return matrix.take(rows)
    if is_foreign(matrix):
        xp = namespace(matrix)
        return xp.take(matrix, beside(matrix, rows, xp.int64), axis=0)
    if isinstance(matrix, np.ndarray) and matrix.flags.c_contiguous:
        return matrix.take(rows, axis=0)  # a fifth quicker than by an index
    return matrix[rows]


def loaded(matrix: Any) -> Any:
    """Return the rows of blocks in memory, and anything else as it is."""
    return matrix.gather() if isinstance(matrix, Blocks) else matrix


def row_elements(matrix: Any) -> float:
    """Return how many elements a row stores in the mean."""
    if isinstance(matrix, Blocks):
        return matrix.row_elements
    stored = getattr(matrix, "nnz", prod(matrix.shape))  # of a sparse matrix, or all
    return float(stored / matrix.shape[0])
