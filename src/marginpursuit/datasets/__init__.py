"""Data sets by name, the paper's way to split them, and ways to spoil them.

`load` finds a set in the folder that the variable ``MARGINPURSUIT_DATA`` names or in the user's
cache, checks it, and fetches it from its public home where it is in neither. Data never comes with
the library, but for the two sets that scikit-learn has on board.
"""

from marginpursuit.datasets.contamination import Contaminated, contaminate
from marginpursuit.datasets.loading import Dataset, DatasetError, cache_folder, find, load
from marginpursuit.datasets.registry import REGISTRY
from marginpursuit.datasets.splitting import Split, paper_split, scale_columns

__all__ = [
    "REGISTRY",
    "Contaminated",
    "Dataset",
    "DatasetError",
    "Split",
    "cache_folder",
    "contaminate",
    "find",
    "load",
    "paper_split",
    "scale_columns",
]
