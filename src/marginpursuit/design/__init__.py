"""How X is read: the narrow interface between solvers and whatever holds the data.

A `Design` answers what solvers ask of the data; there is one file for each kind of data, and
`design_for` chooses by the type of the matrix.
"""

from marginpursuit.design._base import (
    Design,
    Linear,
    PassCounter,
    Standardisation,
    design_for,
    elements_per_row,
    loaded,
    take_rows,
)
from marginpursuit.design._joint import can_sweep_tiles
from marginpursuit.design.arrays import ArrayDesign
from marginpursuit.design.blocks import BlockDesign
from marginpursuit.design.column_merge import ColumnRotation, merge_columns
from marginpursuit.design.factored import FactoredRows
from marginpursuit.design.memory import MemoryDesign

__all__ = [
    "ArrayDesign",
    "BlockDesign",
    "ColumnRotation",
    "Design",
    "FactoredRows",
    "Linear",
    "MemoryDesign",
    "PassCounter",
    "Standardisation",
    "can_sweep_tiles",
    "design_for",
    "elements_per_row",
    "loaded",
    "merge_columns",
    "take_rows",
]
