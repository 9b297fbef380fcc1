"""How the data is read: the narrow waist between solvers and whatever holds X.

A `Design` answers what solvers ask of the data; there is one file for each thing that may hold it.
"""

from typing import Any

from marginpursuit._namespaces import is_foreign
from marginpursuit.blocks import Blocks
from marginpursuit.design._base import Design, Linear, Sweep
from marginpursuit.design.arrays import ArrayDesign
from marginpursuit.design.blocks import BlockDesign
from marginpursuit.design.memory import MemoryDesign
from marginpursuit.design.merged import MergedDesign, merged
from marginpursuit.design.rows import loaded, row_elements, take_rows

__all__ = [
    "ArrayDesign",
    "BlockDesign",
    "Design",
    "Linear",
    "MemoryDesign",
    "MergedDesign",
    "Sweep",
    "design_for",
    "loaded",
    "merged",
    "row_elements",
    "take_rows",
]


def design_for(matrix: Any, *, n_threads: int = 1, near: Design | None = None) -> Design:
    """Return the design that reads what holds the data, in so many threads.

    Labels and weights are expected where the data is; `near` is a design whose own will serve.
    """
    if isinstance(near, ArrayDesign):
        return near.beside(matrix)
    if isinstance(matrix, Blocks):
        return BlockDesign(matrix, n_threads=n_threads)
    if is_foreign(matrix):
        return ArrayDesign(matrix)
    return MemoryDesign(matrix, n_threads=n_threads)
