"""Tables of numbers from files: CSV, Parquet, or an archive of NumPy arrays.

An error names the line and the column of the value that cannot be read.
"""

import hashlib
import math
import os
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from marginpursuit._files import read_npz
from marginpursuit._progress_bar import Reached
from marginpursuit._validation import FloatArray
from marginpursuit.tables._content import (
    MAX_BYTES,
    check_archive,
    csv_lines,
    is_number,
    names_in,
    numbered,
    parquet_content,
    read_content,
    unique_names,
    unknown_suffix,
)
from marginpursuit.tables.columns import is_missing
from marginpursuit.tables.errors import MixedTableError, TableError, absent_columns, counted
from marginpursuit.tables.target import fractions_as_text, read_labels

__all__ = ["Table", "read_table"]


@dataclass(frozen=True, eq=False)
class Table:
    r"""Samples, and their classes if a target is named.

    Attributes
    ----------
    name : str
        The name of the file, without directory and suffix.
    X : ndarray or sparse array of shape (n_samples, n_features)
        The samples.
    y : ndarray of shape (n_samples,) or None
        The target, as integers or whole floats if every value of the file is the text of its
        number, otherwise as text: ``007`` and ``7`` are different labels, and so are ``0.5`` and
        ``0.50``.
    columns : tuple of str
        The names of the columns of X.
    sha256 : str
        The hash of the file.
    further : tuple of str
        Columns of the file that were not asked for by `only`.
    lines : sequence of int or None
        The line of each row in a CSV file.
    notes : tuple of str
        The columns of a CSV file that had no name and got one.
    has_names : bool
        Whether the file names its columns; else their names are 1, 2, and so on, with the target.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from marginpursuit.tables import read_table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "pets.csv")
    ...     _ = path.write_text("weight,kind\n4,1\n30,0\n")
    ...     table = read_table(path, target="kind")
    >>> table.name, table.X.tolist(), table.y.tolist(), list(table.lines)
    ('pets', [[4.0], [30.0]], [1, 0], [2, 3])
    """

    name: str
    X: Any
    y: NDArray[Any] | None
    columns: tuple[str, ...]
    sha256: str
    further: tuple[str, ...] = ()
    lines: Sequence[int] | None = None
    notes: tuple[str, ...] = ()
    has_names: bool = True


def read_table(
    path: str | os.PathLike[str],
    target: str | None = None,
    *,
    drop: Sequence[str] = (),
    only: Sequence[str] | None = None,
    max_bytes: int = MAX_BYTES,
    progress: Reached | None = None,
) -> Table:
    r"""Read samples, and a target column if one is named, from a file.

    Parameters
    ----------
    path : path-like
        A ``.csv`` or ``.tsv`` file (separated by comma, semicolon, tab or bar; the first line holds
        the names unless all its cells are numbers), a ``.parquet`` file (needs the extra
        `parquet`), or an ``.npz`` archive with the arrays ``X``, or ``data``, ``indices``,
        ``indptr`` and ``shape`` of a sparse matrix, and ``y``. A CSV file may be compressed
        (``.csv.gz``).
    target : str, optional
        The name of the column to predict; columns without names are called 1, 2, and so on. In an
        archive, the name of the array, by default ``y``.
    drop : sequence of str, optional
        Columns to omit.
    only : sequence of str, optional
        The columns to read, in this order; by default all but the target.
    max_bytes : int, default=2,000,000,000
        The most bytes of the file after decompression; more are an error.
    progress : callable, optional
        Called with the amount that is read, and the total.

    Returns
    -------
    Table
        The table, in memory.

    Raises
    ------
    TableError
        If the file is not a table of numbers, or a row has no label; the error names line and
        column. Also if it is larger than `max_bytes`.
    OSError
        If the file cannot be read.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from marginpursuit.tables import read_table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "pets.csv")
    ...     _ = path.write_text("weight,age,kind\n4.0,3,cat\n30,5,dog\n")
    ...     table = read_table(path, target="kind")
    >>> table.X.tolist(), table.y.tolist(), table.columns
    ([[4.0, 3.0], [30.0, 5.0]], ['cat', 'dog'], ('weight', 'age'))
    """
    path = Path(path)
    readers = {".csv": _read_csv, ".tsv": _read_csv, ".parquet": _read_parquet, ".npz": _read_npz}
    content, stem, suffix = read_content(path, max_bytes)
    if suffix not in readers:
        raise MixedTableError(unknown_suffix(path, suffix, readers))
    try:
        parts = readers[suffix](content, _Selection(target, drop, only, max_bytes, progress))
    except TableError as error:
        raise type(error)(f"{path}: {error}") from error.__cause__
    n_rows, n_columns = parts.X.shape
    if 0 in parts.X.shape:
        raise TableError(
            f"{path}: found {counted(n_rows, 'row')} and {counted(n_columns, 'column')} "
            "besides the target; expected at least one of each"
        )
    further: tuple[str, ...] = ()
    if only is not None and suffix != ".npz":
        own = set(parts.columns)
        further = tuple(name for name in names_in(content, suffix) if name not in own)
    return Table(
        stem,
        parts.X,
        parts.y,
        parts.columns,
        hashlib.sha256(content).hexdigest(),
        further,
        parts.lines,
        tuple(parts.notes),
        parts.has_names,
    )


class _Parts(NamedTuple):
    """What a reader finds in a file, as in `Table`."""

    X: Any
    y: NDArray[Any] | None
    columns: tuple[str, ...]
    lines: Sequence[int] | None = None
    notes: Sequence[str] = ()
    has_names: bool = True


class _Selection(NamedTuple):
    """The columns to read, by name; the limit, and the report of progress."""

    target: str | None
    drop: Sequence[str]
    only: Sequence[str] | None
    max_bytes: int
    progress: Reached | None

    def columns(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the columns of X among those of a file; refuse names that the file lacks."""
        _refuse_equal_names(names)
        target = [] if self.target is None else [self.target]
        known, omitted = set(names), {*self.drop, *target}
        asked = [*target, *self.drop, *(self.only or ())]
        absent = [name for name in asked if name not in known]
        if absent:
            raise TableError(absent_columns(absent, names))
        return tuple(name for name in (self.only or names) if name not in omitted)


def _refuse_equal_names(names: Sequence[str]) -> None:
    for name, count in Counter(filter(None, names)).most_common(1):
        if count > 1:
            raise MixedTableError(f"the column {name!r} is there {count} times")


def _read_csv(content: bytes, selection: _Selection) -> _Parts:
    lines = csv_lines(content, selection.progress)
    _refuse_equal_names(lines.names)
    names, notes = unique_names(lines.names)
    columns = selection.columns(names)
    cells = _Cells(names, columns, selection.target)
    for line, row in lines.rows:
        cells.append(row, line)
    return _Parts(*cells.table(), columns, cells.lines, notes, lines.has_names)


class _Cells:
    """The selected cells of a CSV file, as numbers and labels."""

    def __init__(self, names: list[str], columns: tuple[str, ...], target: str | None) -> None:
        self._columns = columns
        places = {name: place for place, name in enumerate(names)}
        self._places = [places[column] for column in columns]
        self._target = target
        self._target_place = None if target is None else places[target]
        self._numbers = array("d")
        self._labels: list[str] = []
        self.lines = array("q")

    def append(self, row: list[str], line: int) -> None:
        """Add the cells of one line."""
        self.lines.append(line)
        if self._target_place is not None:
            self._labels.append(row[self._target_place].strip())
        cells = [row[place] for place in self._places]
        text = "".join(cells)
        if ("_" in text or not text.isascii()) and not all(map(is_number, cells)):
            _refuse_cell(cells, self._columns, line)
        try:
            self._numbers.extend(map(float, cells))
        except ValueError:
            _refuse_cell(cells, self._columns, line)

    def table(self) -> tuple[FloatArray, NDArray[Any] | None]:
        """Return X and y."""
        X = np.frombuffer(self._numbers, dtype=np.float64)
        X = X.reshape(len(self.lines), len(self._columns))
        _refuse_not_finite(X, self._columns, "line", self.lines)
        _refuse_missing_labels(self._labels, self._target, "line", self.lines)
        return X, None if self._target is None else read_labels(self._labels)


def _refuse_cell(row: list[str], columns: tuple[str, ...], line: int) -> NoReturn:
    cell, column = next(
        (cell, column) for cell, column in zip(row, columns, strict=True) if not is_number(cell)
    )
    found = repr(cell[:40]) if cell.strip() else "a missing value"
    raise MixedTableError(f"line {line}, column {column!r}: expected a number, found {found}")


def _refuse_missing_labels(
    labels: list[str], target: str | None, word: str, where: Sequence[int]
) -> None:
    """Refuse labels that stand for a missing value; `read_frame` and `labels_of` leave them out."""
    missing = {label for label in set(labels) if is_missing(label)}
    if missing:
        row = next(row for row, label in enumerate(labels) if label in missing)
        found = f", {labels[row]!r}" if labels[row] else ""
        raise MixedTableError(
            f"{word} {where[row]}, column {target!r}: the target is missing{found}"
        )


def _read_parquet(content: bytes, selection: _Selection) -> _Parts:
    frame = parquet_content(content, selection.max_bytes)
    columns = selection.columns(frame.column_names)
    for column in (*columns, *([] if selection.target is None else [selection.target])):
        missing = frame[column].is_null()
        if frame[column].null_count:
            row = missing.index(True).as_py()
            raise MixedTableError(f"row {row}, column {column!r}: a missing value")
    arrays = [frame[column].to_numpy() for column in columns]
    for column, values in zip(columns, arrays, strict=True):
        if values.dtype.kind not in "biuf":
            raise MixedTableError(
                f"column {column!r}: expected numbers, found {frame[column].type}"
            )
    X = np.column_stack([values.astype(np.float64) for values in arrays or [np.empty((0, 0))]])
    _refuse_not_finite(X, columns, "row", range(len(X)))
    y = None if selection.target is None else _target(selection.target, frame[selection.target])
    return _Parts(X, y, columns)


def _target(name: str, column: Any) -> NDArray[Any]:
    """Return a Parquet column as labels; text becomes a NumPy array of text."""
    values: NDArray[Any] = column.to_numpy()
    if values.dtype.kind in "biu":
        return values
    labels = [str(value).strip() for value in values]
    _refuse_missing_labels(labels, name, "row", range(len(labels)))
    return fractions_as_text(values) if values.dtype.kind == "f" else np.array(labels)


def _read_npz(content: bytes, selection: _Selection) -> _Parts:
    check_archive(content, selection.max_bytes)
    try:
        arrays = read_npz(content)
    except ValueError as error:
        raise TableError(f"no archive of arrays, or a damaged one: {error}") from error
    X = _matrix(arrays)
    # Each column has a name. A sparse matrix may have more columns than values.
    max_columns = max(10**6, 64 * len(content))
    if X.shape[1] > max_columns:
        raise TableError(
            f"X has {X.shape[1]} columns; expected at most {max_columns} in an archive of "
            f"{len(content)} bytes"
        )
    columns = numbered(X.shape[1])
    if selection.drop or selection.only:
        raise TableError("columns of an archive have no names to choose them by")
    if not sparse.issparse(X):
        # No other reader reads archives.
        _refuse_not_finite(X, columns, "row", range(len(X)), missing=TableError)
    name = "y" if selection.target is None else selection.target
    if selection.target is not None and name not in arrays:
        raise TableError(f"there is no array {name!r}; there are {sorted(arrays)}")
    y = _archived_labels(name, arrays[name]) if name in arrays else None
    if y is not None and y.shape != (X.shape[0],):
        raise TableError(
            f"{name} must have a label for each of {counted(X.shape[0], 'row')}; got {y.shape}"
        )
    return _Parts(X, y, columns, has_names=False)


def _archived_labels(name: str, y: NDArray[Any]) -> NDArray[Any]:
    """Return labels as numbers or text; bytes are decoded as UTF-8."""
    if y.dtype.kind == "S":
        try:
            return np.char.decode(y, "utf-8")
        except UnicodeDecodeError as error:
            raise TableError(f"{name} must hold text in UTF-8; got {error.object!r}") from error
    if y.dtype.kind not in "biufU":
        raise TableError(f"{name} must hold numbers or text; got dtype {y.dtype}")
    return fractions_as_text(y)


def _matrix(arrays: dict[str, NDArray[Any]]) -> Any:
    """Return the array X, or the sparse matrix that the arrays describe."""
    parts = ("data", "indices", "indptr", "shape")
    if "X" in arrays:
        X: Any = arrays["X"]
    elif all(part in arrays for part in parts):
        try:
            shape = tuple(arrays["shape"].tolist())
            X = sparse.csr_array(tuple(arrays[part] for part in parts[:3]), shape=shape)
            X.check_format(full_check=True)
        except (ValueError, TypeError, OverflowError, IndexError) as error:
            raise TableError(f"no sparse matrix: {error}") from error
    else:
        raise TableError(f"there must be an array X, or {parts}; there are {sorted(arrays)}")
    if X.ndim != 2 or X.dtype.kind not in "biuf":
        raise TableError(f"X must be a matrix of numbers; got shape {X.shape}, dtype {X.dtype}")
    return X


def _refuse_not_finite(
    X: FloatArray,
    columns: tuple[str, ...],
    word: str,
    where: Any,
    missing: type[TableError] = MixedTableError,
) -> None:
    """Refuse infinite and missing numbers; the error for missing ones is of type `missing`."""
    finite = np.isfinite(X)
    if not finite.all():
        row, column = np.unravel_index(finite.argmin(), X.shape)
        value = float(X[row, column])
        found = "NaN, a missing value" if math.isnan(value) else str(value)
        place = f"{word} {where[row]}, column {columns[column]!r}"
        kind = missing if math.isnan(value) else TableError
        raise kind(f"{place}: expected a finite number, found {found}. Replace it.")
