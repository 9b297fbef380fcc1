"""Data larger than memory: rows in blocks, the next of which is loaded while one is processed.

Blocks replace X in `fit` and in the predictions of an estimator. A fit makes one pass over the
blocks for the moments of the columns and one for each iteration. It keeps two blocks in memory, and
a few numbers per row: labels, weights, and finally margins.
"""

from typing import Any

from marginpursuit._namespaces import is_dask
from marginpursuit.blocks._blocks import BlockResults, Blocks
from marginpursuit.blocks.files import from_npy, from_parquet, to_npy

__all__ = ["BlockResults", "Blocks", "as_blocks", "from_npy", "from_parquet", "is_dask", "to_npy"]


def as_blocks(X: Any) -> Any:
    """Return the blocks of a Dask array or data frame; return anything else unchanged.

    In every pass the blocks are loaded again: by the workers of the current client, or in this
    process if there is none. ``X.persist()`` keeps them on the workers instead. Blocks are sparse
    if the ``meta`` of the array is. Dask arrays require ``distributed``.

    Examples
    --------
    >>> import numpy as np
    >>> from marginpursuit.blocks import as_blocks
    >>> X = np.ones((2, 2))
    >>> as_blocks(X) is X
    True
    """
    if not is_dask(X):
        return X
    from marginpursuit.blocks.dask import from_dask

    return from_dask(X)
