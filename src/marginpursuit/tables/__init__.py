"""Tables from files, and mixed tables as matrices.

`read_table` reads numbers and needs no further package. `read_frame` reads cells of any kind, and
`TableVectoriser` turns them into a matrix; both need the extra `tables`. Names that are imported
`as` themselves are for other layers of the package.
"""

from marginpursuit._table_records import Column, Feature
from marginpursuit.tables._content import MAX_BYTES as MAX_BYTES
from marginpursuit.tables._content import unique_names as unique_names
from marginpursuit.tables.columns import expected_cells as expected_cells
from marginpursuit.tables.columns import has_ambiguous_thousands as has_ambiguous_thousands
from marginpursuit.tables.columns import is_identifier, unreadable_rows
from marginpursuit.tables.columns import is_missing as is_missing
from marginpursuit.tables.columns import is_representable as is_representable
from marginpursuit.tables.columns import missing_code as missing_code
from marginpursuit.tables.columns import parse as parse
from marginpursuit.tables.copies import copies_of
from marginpursuit.tables.errors import MixedTableError, TableError
from marginpursuit.tables.errors import absent_columns as absent_columns
from marginpursuit.tables.errors import counted as counted
from marginpursuit.tables.errors import optional as optional
from marginpursuit.tables.files import RawTable, column_counts, read_frame
from marginpursuit.tables.numeric import Table, read_table
from marginpursuit.tables.target import (
    check_classes,
    guess_target,
    labels_of,
    missing_words,
    read_labels,
)
from marginpursuit.tables.target import similar_classes as similar_classes
from marginpursuit.tables.vectorised import vectorise
from marginpursuit.tables.vectoriser import TableVectoriser

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
    "copies_of",
    "guess_target",
    "is_identifier",
    "labels_of",
    "missing_words",
    "read_frame",
    "read_labels",
    "read_table",
    "unreadable_rows",
    "vectorise",
]
