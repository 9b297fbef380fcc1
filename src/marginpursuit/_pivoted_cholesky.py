r"""The Cholesky factorisation of a large matrix with pivots, in blocks.

LAPACK factorises a matrix of 10,000 rows in one call of ten seconds, which no signal interrupts.
Here rows are taken in blocks. The pivots of a block are chosen by LAPACK among its rows, from what
the pivots of the blocks before leave of the matrix. A matrix of one block has the pivots of LAPACK.
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpstrf

from marginpursuit._validation import FloatArray

#: Rows of a block. A product of two blocks with 10,000 pivots takes half a second on one core.
_BLOCK_ROWS = 1024


def pivoted_cholesky(
    gram: FloatArray, tol: float, run: Callable[..., Iterable[Any]] = map
) -> tuple[FloatArray, NDArray[np.intp]]:
    """Return L of shape (n, rank) with L Lᵀ = K up to `tol`, and the rows of its pivots, in order.

    K is symmetric and is overwritten. The rows of the pivots are lower triangular. `run` maps a
    function over blocks of rows, as the built-in does.
    """
    n = len(gram)
    lower, pivots, is_pivot = np.zeros((n, n)), np.empty(0, dtype=np.intp), np.zeros(n, dtype=bool)
    for start in range(0, n, _BLOCK_ROWS):
        block, rank = np.arange(start, min(start + _BLOCK_ROWS, n)), len(pivots)
        done = lower[block, :rank].T

        def reduce(rows: NDArray[np.intp], block: Any = block, done: Any = done) -> FloatArray:
            """Return what the pivots so far leave of the block's columns."""
            rest = gram[rows, block[0] : block[-1] + 1]
            return rest - lower[rows, : len(done)] @ done if len(done) else rest

        corner = reduce(block) if start else gram[:_BLOCK_ROWS, :_BLOCK_ROWS]
        if not corner.diagonal().max() > tol:  # LAPACK takes the first pivot whatever its size
            continue
        # The matrix is symmetric: its transpose is in the order of LAPACK.
        factor, order, n_new, _ = dpstrf(corner.T, tol=tol, lower=1, overwrite_a=n <= _BLOCK_ROWS)
        n_new, new = int(n_new), block[order[: int(n_new)] - 1]
        span = slice(rank, rank + n_new)
        lower[block[order - 1], span] = np.tril(factor)[:, :n_new]
        is_pivot[new] = True
        pivots = np.append(pivots, new)
        is_other = ~is_pivot
        is_other[block] = False
        rest = np.flatnonzero(is_other)
        parts = [rest[k : k + _BLOCK_ROWS] for k in range(0, len(rest), _BLOCK_ROWS)]
        columns, triangle = new - start, np.asfortranarray(lower[new, span])
        for part, found in zip(parts, run(reduce, parts), strict=True):
            lower[part, span] = solve_triangular(triangle, found[:, columns].T, lower=True).T
    return lower[:, : len(pivots)], pivots


def inverse_of_lower(lower: FloatArray) -> FloatArray:
    """Return the inverse of a lower triangular matrix, in blocks of columns."""
    inverse = np.zeros_like(lower, order="C")
    for start in range(0, len(lower), _BLOCK_ROWS // 4):
        end = min(start + _BLOCK_ROWS // 4, len(lower))
        right = np.eye(len(lower) - start, end - start)
        inverse[start:, start:end] = solve_triangular(lower[start:, start:], right, lower=True)
    return inverse
