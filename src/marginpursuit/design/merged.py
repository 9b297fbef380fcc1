r"""Sparse rows with fewer columns: those that one row alone has become one column of that row.

Let row i have the values v in columns that no other row has. Rotated among themselves, such that
the first points along v, these columns are ‖v‖, 0, 0, ... in row i and 0 elsewhere: all but the
first may go. Nothing that is the same for rotated columns is changed: scores, inner products,
Euclidean norms of coefficients, the sum of the variances. Texts have half their columns so.
"""

from typing import Any

import numpy as np
from scipy import sparse

from marginpursuit.design._base import Linear
from marginpursuit.design.memory import MemoryDesign

# The share of columns that are to go, or a copy of the rows is not worth its while.
_WORTH_MERGING = 0.125

# Values whose squares neither overflow nor vanish.
_LEAST, _MOST = 1e-100, 1e100


class MergedDesign(MemoryDesign):
    """The rows of another design with lone columns merged; its reads count as reads of that."""

    def __init__(self, whole: MemoryDesign, rotation: Any) -> None:
        self._whole, n_passes = whole, whole.n_passes
        rows = sparse.csr_matrix(whole.matrix @ rotation)
        rows.sort_indices()
        super().__init__(rows, n_threads=whole.n_threads)
        self.n_passes, self._rotation = n_passes, rotation
        self._resources = whole._resources

    @property
    def n_passes(self) -> int:
        """The number of reads of the rows that these were made of."""
        return self._whole.n_passes

    @n_passes.setter
    def n_passes(self, count: int) -> None:
        self._whole.n_passes = count

    def rotated(self, matrix: Any) -> MemoryDesign:
        """Return a design of other rows of the same whole, in these columns.

        Columns that none of these rows has are left out.
        """
        rows = sparse.csr_matrix(matrix @ self._rotation)
        return MemoryDesign(rows, n_threads=self.n_threads)

    def expanded(self, linear: Linear) -> Linear:
        """Translate coefficients of these rows, as they are, to those of the whole."""
        return self._rotation @ linear[0], linear[1]

    def contracted(self, linear: Linear) -> Linear:
        """Translate coefficients of the whole, which are moved to the nearest that have a match."""
        return self._rotation.T @ linear[0], linear[1]


def merged(design: MemoryDesign) -> MergedDesign | None:
    """Return the same rows with fewer columns, where that is worth its while."""
    matrix = design.matrix
    n_columns = matrix.shape[1]
    values = matrix.data.astype(np.float64)
    counts = np.bincount(matrix.indices[values != 0], minlength=n_columns)
    lone = np.flatnonzero((counts[matrix.indices] == 1) & (values != 0))
    shared = np.flatnonzero(counts > 1)
    # The columns that are needed most lie side by side.
    shared = shared[np.argsort(-counts[shared], kind="stable")]
    owners = np.searchsorted(matrix.indptr, lone, side="right") - 1
    names, places = np.unique(owners, return_inverse=True)
    n_kept = len(shared) + len(names)
    sizes = np.abs(values[lone])
    unusual = np.any((sizes < _LEAST) | (sizes > _MOST))
    if n_kept > (1.0 - _WORTH_MERGING) * n_columns or n_kept == 0 or unusual:
        return None
    norms = np.sqrt(np.bincount(places, values[lone] ** 2))
    rotation = sparse.csr_matrix(
        (
            np.concatenate([np.ones(len(shared)), values[lone] / norms[places]]),
            (
                np.concatenate([shared, matrix.indices[lone]]),
                np.concatenate([np.arange(len(shared)), len(shared) + places]),
            ),
        ),
        shape=(n_columns, n_kept),
    )
    return MergedDesign(design, rotation)
