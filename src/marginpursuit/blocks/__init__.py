"""Rows that need not fit in memory: they come in blocks, each read while the one before is in use.

What is made here takes the place of X in `fit` and in the predictions of an estimator. A fit reads
every block once for the moments of the columns and once for each iteration. It holds two blocks and
some numbers a row: labels, weights, and margins at the end.
"""

from typing import Any

from marginpursuit.blocks._blocks import Blocks, Held
from marginpursuit.blocks.files import from_npy, from_parquet, to_npy

__all__ = ["Blocks", "Held", "as_blocks", "from_npy", "from_parquet", "is_dask", "to_npy"]


def is_dask(X: Any) -> bool:
    """Whether X is a Dask array or data frame; this imports no Dask."""
    return type(X).__module__.partition(".")[0] == "dask"


def as_blocks(X: Any) -> Any:
    """Return the blocks of a Dask array or data frame, and anything else as it is.

    Blocks are loaded anew in every read, by the workers of the client that is in use, or here where
    there is none. ``X.persist()`` keeps them on the workers instead. Blocks may be sparse if the
    ``meta`` of the array is. This needs ``distributed``.
    """
    if not is_dask(X):
        return X
    from marginpursuit.blocks.dask import from_dask

    return from_dask(X)
