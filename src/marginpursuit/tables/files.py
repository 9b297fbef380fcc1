"""Files of mixed tables as pandas frames; they need the extra `tables`."""

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from marginpursuit._progress_bar import Reached
from marginpursuit.tables._content import (
    MAX_BYTES,
    csv_lines,
    parquet_content,
    read_content,
    text_columns,
    unique_names,
    unknown_suffix,
)
from marginpursuit.tables._excel import excel_rows
from marginpursuit.tables.errors import TableError, counted, optional

__all__ = ["RawTable", "column_counts", "read_frame"]


@dataclass(frozen=True, eq=False)
class RawTable:
    r"""A table as it is in a file.

    Attributes
    ----------
    name : str
        The name of the file, without directory and suffix.
    frame : pandas.DataFrame
        The cells: text in CSV files, numbers, text, dates or missing values in others.
    rows : ndarray of shape (n_samples,)
        Where each row is in the file: the line, or the number of the row.
    row_word : {"line", "row"}
        What `rows` counts.
    has_names : bool
        Whether the file names its columns.
    notes : tuple of str
        The columns that got another name, sheets that are not read, and an encoding other than
        UTF-8 and UTF-16.
    sha256 : str
        The hash of the file.
    decimal : {".", ","}
        The decimal separator that the format suggests: a comma in files separated by semicolons.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from marginpursuit.tables import read_frame
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "pets.csv")
    ...     _ = path.write_text("weight,kind\n4,cat\n30,dog\n")
    ...     table = read_frame(path)
    >>> table.name, table.row_word, table.rows.tolist()
    ('pets', 'line', [2, 3])
    """

    name: str
    frame: Any
    rows: NDArray[np.int64]
    row_word: str
    has_names: bool
    notes: tuple[str, ...]
    sha256: str
    decimal: str = "."


def read_frame(
    path: str | os.PathLike[str],
    *,
    max_bytes: int = MAX_BYTES,
    progress: Reached | None = None,
) -> RawTable:
    r"""Read a table with cells of any kind.

    Parameters
    ----------
    path : path-like
        A ``.csv``, ``.tsv`` or ``.txt`` file (separated by comma, semicolon, tab or bar; in UTF-8,
        in UTF-16 with a byte order mark, or in Windows-1252), which may be compressed
        (``.csv.gz``), an ``.xlsx`` file, of which the first sheet is read, or a ``.parquet`` file.
    max_bytes : int, default=2,000,000,000
        The most bytes of the table after decompression; more are an error. The cells in memory may
        take many times as much.
    progress : callable, optional
        Called with the amount that is read, and the total (None if it is unknown).

    Returns
    -------
    RawTable
        The table. Columns without a name, or with the name of another, get a new one.

    Raises
    ------
    TableError
        If the file is not a table, if it is larger than `max_bytes`, or if a package is missing.
    OSError
        If the file cannot be read.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from marginpursuit.tables import read_frame
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "pets.csv")
    ...     _ = path.write_text("weight;weight;kind\n4,0;;cat\n30;5;dog\n")
    ...     table = read_frame(path)
    >>> table.frame.columns.tolist()
    ['weight', 'weight (2)', 'kind']
    >>> table.notes
    ("column 2 has the name 'weight' again; it is called 'weight (2)'",)
    """
    path = Path(path)
    readers: dict[str, Callable[[bytes], _Parts]] = {
        **dict.fromkeys((".csv", ".tsv", ".txt"), partial(_csv_frame, progress=progress)),
        ".xlsx": partial(_excel_frame, max_bytes=max_bytes, progress=progress),
        ".parquet": partial(_parquet_frame, max_bytes=max_bytes),
    }
    content, stem, suffix = read_content(path, max_bytes)
    if suffix not in readers:
        raise TableError(unknown_suffix(path, suffix, readers))
    try:
        parts = readers[suffix](content)
    except TableError as error:
        raise TableError(f"{path}: {error}") from error.__cause__
    frame = parts.frame
    if 0 in frame.shape:
        raise TableError(
            f"{path}: found {counted(frame.shape[0], 'row')} and "
            f"{counted(frame.shape[1], 'column')}; expected at least one of each"
        )
    names, notes = unique_names([str(name).strip() for name in frame.columns])
    return RawTable(
        stem,
        frame.set_axis(names, axis=1),
        parts.rows,
        "row" if suffix in (".xlsx", ".parquet") else "line",
        parts.has_names,
        (*parts.notes, *notes),
        hashlib.sha256(content).hexdigest(),
        parts.decimal,
    )


class _Parts(NamedTuple):
    """What a reader finds in a file, as in `RawTable`; the names of columns may be equal."""

    frame: Any
    rows: NDArray[np.int64]
    has_names: bool = True
    notes: Sequence[str] = ()
    decimal: str = "."


def _csv_frame(content: bytes, progress: Reached | None) -> _Parts:
    pandas = optional("pandas")
    table = csv_lines(content, progress, may_be_windows=True)
    lines, rows = [], []
    for line, row in table.rows:
        lines.append(line)
        rows.append(row)
    frame = pandas.DataFrame(rows, columns=table.names, dtype=object)
    decimal = "," if table.delimiter == ";" else "."
    return _Parts(frame, np.array(lines, np.int64), table.has_names, table.notes, decimal)


def _excel_frame(content: bytes, max_bytes: int, progress: Reached | None) -> _Parts:
    pandas = optional("pandas")
    names, rows, first, notes = excel_rows(content, max_bytes, progress)
    frame = pandas.DataFrame(rows, dtype=object).infer_objects().set_axis(names, axis=1)
    return _Parts(frame, np.arange(first, first + len(frame)), notes=notes)


def _parquet_frame(content: bytes, max_bytes: int) -> _Parts:
    optional("pandas")
    table = parquet_content(content, max_bytes)
    frame = table.to_pandas(ignore_metadata=True)
    texts = set(text_columns(content))
    for place, name in enumerate(frame.columns):
        if name in texts:
            frame.isetitem(place, frame.iloc[:, place].astype(object))
    return _Parts(frame, np.arange(len(frame)))


def column_counts(
    path: str | os.PathLike[str], most: int = 21, *, max_bytes: int = MAX_BYTES
) -> dict[str, int]:
    r"""Return the number of different values of each column of a table, up to `most`.

    Parameters
    ----------
    path : path-like
        A file that `read_frame` reads; CSV files need no extra.
    most : int, default=21
        Where counting ends.
    max_bytes : int, default=2,000,000,000
        The most bytes of the table after decompression; more are an error.

    Returns
    -------
    dict
        From names to numbers.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from marginpursuit.tables import column_counts
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "pets.csv")
    ...     _ = path.write_text("weight,kind\n4,cat\n30,dog\n31,dog\n")
    ...     column_counts(path)
    {'weight': 3, 'kind': 2}
    """
    content, _, suffix = read_content(Path(path), max_bytes)
    if suffix not in (".csv", ".tsv", ".txt"):
        frame = read_frame(path, max_bytes=max_bytes).frame
        return {name: min(most, int(frame[name].astype(str).nunique())) for name in frame}
    try:
        table = csv_lines(content, may_be_windows=True)
        names, _ = unique_names(table.names)
        found: list[set[str]] = [set() for _ in names]
        for _, row in table.rows:
            for values, cell in zip(found, row, strict=True):
                if len(values) < most:
                    values.add(cell)
    except TableError as error:
        raise TableError(f"{path}: {error}") from error.__cause__
    return {name: len(values) for name, values in zip(names, found, strict=True)}
