"""Files of mixed tables as pandas frames; they need the extra `tables`."""

import hashlib
import io
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginpursuit.tables._content import csv_lines, parquet_content, read_content, unique_names
from marginpursuit.tables.errors import TableError, optional

__all__ = ["RawTable", "column_counts", "read_frame"]


@dataclass(frozen=True, eq=False)
class RawTable:
    """A table as it is in a file.

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
        The columns that got another name.
    sha256 : str
        The hash of the file.
    """

    name: str
    frame: Any
    rows: NDArray[np.int64]
    row_word: str
    has_names: bool
    notes: tuple[str, ...]
    sha256: str


def read_frame(path: str | os.PathLike[str]) -> RawTable:
    r"""Read a table with cells of any kind.

    Parameters
    ----------
    path : path-like
        A ``.csv``, ``.tsv`` or ``.txt`` file (separated by comma, semicolon or tab, in UTF-8, or in
        UTF-16 with a byte order mark), which may be compressed (``.csv.gz``), an ``.xlsx`` file, of
        which the first sheet is read, or a ``.parquet`` file.

    Returns
    -------
    RawTable
        The table. Columns without a name, or with the name of another, get a new one.

    Raises
    ------
    TableError
        If the file is not a table, or if a package is missing.
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
    readers = {
        ".csv": _csv_frame,
        ".tsv": _csv_frame,
        ".txt": _csv_frame,
        ".xlsx": _excel_frame,
        ".parquet": _parquet_frame,
    }
    content, stem, suffix = read_content(path)
    if suffix not in readers:
        raise TableError(
            f"{path}: the suffix of the file must be one of {sorted(readers)}; got {suffix!r}"
        )
    try:
        frame, rows, has_names = readers[suffix](content)
    except TableError as error:
        raise TableError(f"{path}: {error}") from error.__cause__
    if 0 in frame.shape:
        raise TableError(f"{path}: expected rows and columns; got {frame.shape}")
    names, notes = unique_names([str(name).strip() for name in frame.columns])
    word = "row" if suffix in (".xlsx", ".parquet") else "line"
    digest = hashlib.sha256(content).hexdigest()
    return RawTable(
        stem, frame.set_axis(names, axis=1), rows, word, has_names, tuple(notes), digest
    )


_Parts = tuple[Any, NDArray[np.int64], bool]


def _csv_frame(content: bytes) -> _Parts:
    pandas = optional("pandas")
    table = csv_lines(content)
    lines, rows = [], []
    for line, row in table.rows:
        lines.append(line)
        rows.append(row)
    frame = pandas.DataFrame(rows, columns=table.names, dtype=object)
    return frame, np.array(lines, dtype=np.int64), table.has_names


def _excel_frame(content: bytes) -> _Parts:
    pandas = optional("pandas")
    optional("openpyxl")
    try:
        cells = pandas.read_excel(io.BytesIO(content), header=None, dtype=object)
    except Exception as error:  # openpyxl and zipfile raise many types for broken files
        raise TableError(f"no .xlsx file, or a damaged one: {error}") from error
    if not len(cells):
        raise TableError("the first sheet is empty")
    names = ["" if pandas.isna(name) else name for name in cells.iloc[0]]
    frame = cells.iloc[1:].reset_index(drop=True).infer_objects()
    # The first row of a sheet has the number 1.
    return frame.set_axis(names, axis=1), np.arange(2, len(frame) + 2), True


def _parquet_frame(content: bytes) -> _Parts:
    optional("pandas")
    frame = parquet_content(content).to_pandas().reset_index(drop=True)
    return frame, np.arange(len(frame)), True


def column_counts(path: str | os.PathLike[str], most: int = 21) -> dict[str, int]:
    r"""Return the number of different values of each column of a table, up to `most`.

    Parameters
    ----------
    path : path-like
        A file that `read_frame` reads; CSV files need no extra.
    most : int, default=21
        Where counting ends.

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
    content, _, suffix = read_content(Path(path))
    if suffix not in (".csv", ".tsv", ".txt"):
        frame = read_frame(path).frame
        return {name: min(most, int(frame[name].astype(str).nunique())) for name in frame}
    try:
        table = csv_lines(content)
        names, _ = unique_names(table.names)
        found: list[set[str]] = [set() for _ in names]
        for _, row in table.rows:
            for values, cell in zip(found, row, strict=True):
                if len(values) < most:
                    values.add(cell)
    except TableError as error:
        raise TableError(f"{path}: {error}") from error.__cause__
    return {name: len(values) for name, values in zip(names, found, strict=True)}
