"""Tables from files, and mixed tables as matrices.

`read_table` reads numbers and needs no further package. `read_frame` reads cells of any kind, and
`TableVectoriser` turns them into a matrix; both need the extra `tables`.
"""

from marginpursuit._table_records import Column, Feature
from marginpursuit.tables._content import MAX_BYTES as MAX_BYTES  # for other layers of the package
from marginpursuit.tables.columns import is_identifier
from marginpursuit.tables.errors import MixedTableError, TableError
from marginpursuit.tables.errors import optional as optional  # for other layers of the package
from marginpursuit.tables.files import RawTable, column_counts, read_frame
from marginpursuit.tables.numeric import Table, read_table
from marginpursuit.tables.target import check_classes, guess_target, labels_of, read_labels
from marginpursuit.tables.vectoriser import TableVectoriser, vectorise

__all__ = [
    "Column",
    "Feature",
    "MixedTableError",
    "RawTable",
    "Table",
    "TableError",
    "TableVectoriser",
    "check_classes",
    "column_counts",
    "guess_target",
    "is_identifier",
    "labels_of",
    "read_frame",
    "read_labels",
    "read_table",
    "vectorise",
]
