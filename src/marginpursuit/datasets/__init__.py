"""Data sets by name, the paper's splits, and contamination of data.

`load` looks for a data set in the folder given by the environment variable ``MARGINPURSUIT_DATA``,
then in the user's cache, and otherwise downloads it from its public source. Its hash is always
checked. The library contains no data; two data sets are included with scikit-learn.
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
