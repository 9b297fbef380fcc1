"""Rows that need not fit in memory: they come in blocks, each read while the one before is in use.

What is made here takes the place of X in `fit` and in the predictions of an estimator. A fit reads
every block once for the moments of the columns and once for each iteration. It holds two blocks and
some numbers a row: labels, weights, scores, and what is made of them at the end.
"""

from marginpursuit.blocks._blocks import Blocks
from marginpursuit.blocks.files import from_npy, from_parquet, to_npy

__all__ = ["Blocks", "from_npy", "from_parquet", "to_npy"]
