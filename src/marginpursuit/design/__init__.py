"""How X is read: the narrow interface between solvers and whatever holds the data.

A `Design` answers what solvers ask of the data; there is one file for each kind of data.
"""

from typing import Any

from marginpursuit._namespaces import is_array_api
from marginpursuit._threads import Threads
from marginpursuit.blocks import Blocks
from marginpursuit.design._base import Design, Linear, Standardisation, Sweep
from marginpursuit.design._matrix import ReadPolicy
from marginpursuit.design.arrays import ArrayDesign
from marginpursuit.design.blocks import BlockDesign
from marginpursuit.design.column_merge import ColumnMerge, merge_columns
from marginpursuit.design.memory import MemoryDesign
from marginpursuit.design.rows import elements_per_row, loaded, take_rows

__all__ = [
    "ArrayDesign",
    "BlockDesign",
    "ColumnMerge",
    "Design",
    "Linear",
    "MemoryDesign",
    "ReadPolicy",
    "Standardisation",
    "Sweep",
    "design_for",
    "elements_per_row",
    "loaded",
    "merge_columns",
    "take_rows",
]


def design_for(matrix: Any, threads: Threads | None = None) -> Design:
    """Return the design that reads what holds the data, by the caller's threads.

    Labels and weights are expected on the device of the data.
    """
    if isinstance(matrix, Blocks):
        return BlockDesign(matrix, threads)
    if is_array_api(matrix):
        return ArrayDesign(matrix)
    return MemoryDesign(matrix, threads)
