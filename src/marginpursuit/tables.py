"""Tables from files: CSV, Parquet, or an archive of NumPy arrays.

An error names the line and the column of the value that cannot be read.
"""

import csv
import hashlib
import io
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
from marginpursuit._validation import FloatArray

__all__ = ["Table", "TableError", "read_table"]


class TableError(ValueError):
    """A file holds no table of numbers with labels."""


@dataclass(frozen=True, eq=False)
class Table:
    """Samples, and their classes if a target is named.

    Attributes
    ----------
    name : str
        The name of the file, without directory and suffix.
    X : ndarray or sparse array of shape (n_samples, n_features)
        The samples.
    y : ndarray of shape (n_samples,) or None
        The target, as integers or floats if every value of the file is the text of its number,
        otherwise as text: ``007`` and ``7`` are different labels.
    columns : tuple of str
        The names of the columns of X.
    sha256 : str
        The hash of the file.
    """

    name: str
    X: Any
    y: NDArray[Any] | None
    columns: tuple[str, ...]
    sha256: str

    @property
    def has_names(self) -> bool:
        """Whether the file names its columns."""
        return self.columns != _numbered(len(self.columns))


def read_table(
    path: str | os.PathLike[str],
    target: str | None = None,
    *,
    drop: Sequence[str] = (),
    only: Sequence[str] | None = None,
) -> Table:
    r"""Read samples, and a target column if one is named, from a file.

    Parameters
    ----------
    path : path-like
        A ``.csv`` file (separated by comma, semicolon or tab; the first line holds the names unless
        all its cells are numbers), a ``.parquet`` file (needs polars), or an ``.npz`` archive with
        the arrays ``X``, or ``data``, ``indices``, ``indptr`` and ``shape`` of a sparse matrix, and
        ``y``.
    target : str, optional
        The name of the column to predict; columns without names are called 1, 2, and so on. In an
        archive, the name of the array, by default ``y``.
    drop : sequence of str, optional
        Columns to omit.
    only : sequence of str, optional
        The columns to read, in this order; by default all but the target.

    Returns
    -------
    Table
        The table, in memory.

    Raises
    ------
    TableError
        If the file is not a table of numbers; the error names line and column.
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
    if path.suffix.lower() not in readers:
        raise TableError(
            f"{path}: the suffix of the file must be one of {sorted(readers)}; got {path.suffix!r}"
        )
    content = path.read_bytes()
    try:
        X, y, columns = readers[path.suffix.lower()](content, _Selection(target, drop, only))
    except TableError as error:
        raise TableError(f"{path}: {error}") from error.__cause__
    if 0 in X.shape:
        raise TableError(f"{path}: no samples, or no columns but the target: shape {X.shape}")
    return Table(path.stem, X, y, columns, hashlib.sha256(content).hexdigest())


_Parts = tuple[Any, NDArray[Any] | None, tuple[str, ...]]


class _Selection(NamedTuple):
    """The columns to read, by name."""

    target: str | None
    drop: Sequence[str]
    only: Sequence[str] | None

    def columns(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the columns of X among those of a file; refuse names that the file lacks."""
        name, count = Counter(names).most_common(1)[0] if names else ("", 0)
        if count > 1:
            raise TableError(f"the column {name!r} is there {count} times")
        target = [] if self.target is None else [self.target]
        known, omitted = set(names), {*self.drop, *target}
        for name in [*target, *self.drop, *(self.only or ())]:
            if name not in known:
                shown = ", ".join(map(repr, names[:20])) + (", ..." if len(names) > 20 else "")
                raise TableError(f"there is no column {name!r}; there are {shown}")
        return tuple(name for name in (self.only or names) if name not in omitted)


def _read_csv(content: bytes, selection: _Selection) -> _Parts:
    text = _decoded(content)
    first_line = text[: text.find("\n")] if "\n" in text else text
    delimiter = max(",;\t", key=first_line.count)
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        first = next((row for row in rows if row), None)
        if first is None:
            raise TableError("the file is empty")
        is_named = not all(_is_number(cell) for cell in first)
        names = [cell.strip() for cell in first] if is_named else list(_numbered(len(first)))
        columns = selection.columns(names)
        cells = _Cells(names, columns, selection.target)
        if not is_named:
            cells.append(first, rows.line_num)
        for row in rows:
            if row:
                cells.append(row, rows.line_num)
    except csv.Error as error:
        raise TableError(f"line {rows.line_num}: {error}") from error
    return *cells.table(), columns


def _decoded(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        byte = content[error.start]
        raise TableError(f"line {line}: expected UTF-8, found byte {byte:#04x}") from error


class _Cells:
    """The selected cells of a CSV file, as numbers and labels."""

    def __init__(self, names: list[str], columns: tuple[str, ...], target: str | None) -> None:
        self._n_cells = len(names)
        self._columns = columns
        places = {name: place for place, name in enumerate(names)}
        self._places = [places[column] for column in columns]
        self._target = target
        self._target_place = None if target is None else places[target]
        self._numbers = array("d")
        self._labels: list[str] = []
        self._lines = array("q")

    def append(self, row: list[str], line: int) -> None:
        """Add the cells of one line."""
        if len(row) != self._n_cells:
            raise TableError(f"line {line}: {len(row)} cells, not {self._n_cells}")
        self._lines.append(line)
        if self._target_place is not None:
            self._labels.append(row[self._target_place].strip())
        cells = [row[place] for place in self._places]
        text = "".join(cells)
        if ("_" in text or not text.isascii()) and not all(map(_is_number, cells)):
            _refuse_cell(cells, self._columns, line)
        try:
            self._numbers.extend(map(float, cells))
        except ValueError:
            _refuse_cell(cells, self._columns, line)

    def table(self) -> tuple[FloatArray, NDArray[Any] | None]:
        """Return X and y."""
        X = np.frombuffer(self._numbers, dtype=np.float64)
        X = X.reshape(len(self._lines), len(self._columns))
        _refuse_not_finite(X, self._columns, "line", self._lines)
        if "" in self._labels:
            line = self._lines[self._labels.index("")]
            raise TableError(f"line {line}, column {self._target!r}: the target is missing")
        return X, None if self._target is None else _labels(self._labels)


def _is_number(cell: str) -> bool:
    """Whether a cell is a number in ASCII; Python also reads 1_000 and digits of other scripts."""
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell and cell.strip().isascii()


def _refuse_cell(row: list[str], columns: tuple[str, ...], line: int) -> NoReturn:
    cell, column = next(
        (cell, column) for cell, column in zip(row, columns, strict=True) if not _is_number(cell)
    )
    found = repr(cell[:40]) if cell.strip() else "a missing value"
    raise TableError(f"line {line}, column {column!r}: expected a number, found {found}")


def _labels(cells: list[str]) -> NDArray[Any]:
    """Return integers or floats if no label is changed by the conversion, else text."""
    distinct = set(cells)
    for kind in (int, float):
        numbers = {cell: kind(cell) for cell in distinct if _survives(cell, kind)}
        if len(set(numbers.values())) == len(distinct):
            return np.array([numbers[cell] for cell in cells], np.int64 if kind is int else float)
    return np.array(cells)


def _survives(cell: str, kind: type[int] | type[float]) -> bool:
    """Whether a cell is the text of a number: 1, -2, 0.5 or 1.0, but not 007, 1_0 or 1e999."""
    try:
        number = kind(cell)
    except ValueError:
        return False
    if kind is int:
        return -(2**63) <= number < 2**63 and str(number) == cell
    return math.isfinite(number) and cell in (repr(number), repr(number).removesuffix(".0"))


def _read_parquet(content: bytes, selection: _Selection) -> _Parts:
    try:
        import polars
    except ImportError as error:
        raise TableError("reading Parquet needs polars: pip install polars") from error
    try:
        frame = polars.read_parquet(io.BytesIO(content))
    except Exception as error:  # polars raises many types for broken files
        raise TableError(f"no Parquet file, or a damaged one: {error}") from error
    columns = selection.columns(frame.columns)
    for column in columns:
        if not (frame[column].dtype.is_numeric() or frame[column].dtype == polars.Boolean):
            raise TableError(f"column {column!r}: expected numbers, found {frame[column].dtype}")
    for column in (*columns, *([] if selection.target is None else [selection.target])):
        missing = frame[column].is_null()
        if missing.any():
            raise TableError(f"row {missing.arg_max()}, column {column!r}: a missing value")
    X = frame.select(columns).to_numpy().astype(np.float64)
    _refuse_not_finite(X, columns, "row", range(len(X)))
    return X, None if selection.target is None else frame[selection.target].to_numpy(), columns


def _read_npz(content: bytes, selection: _Selection) -> _Parts:
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
    columns = _numbered(X.shape[1])
    if selection.drop or selection.only:
        raise TableError("columns of an archive have no names to choose them by")
    if not sparse.issparse(X):
        _refuse_not_finite(X, columns, "row", range(len(X)))
    name = "y" if selection.target is None else selection.target
    if selection.target is not None and name not in arrays:
        raise TableError(f"there is no array {name!r}; there are {sorted(arrays)}")
    y = _archived_labels(name, arrays[name]) if name in arrays else None
    if y is not None and y.shape != (X.shape[0],):
        raise TableError(f"{name} must have a label for each of {X.shape[0]} rows; got {y.shape}")
    return X, y, columns


def _archived_labels(name: str, y: NDArray[Any]) -> NDArray[Any]:
    """Return labels as numbers or text; bytes are decoded as UTF-8."""
    if y.dtype.kind == "S":
        try:
            return np.char.decode(y, "utf-8")
        except UnicodeDecodeError as error:
            raise TableError(f"{name} must hold text in UTF-8; got {error.object!r}") from error
    if y.dtype.kind not in "biufU":
        raise TableError(f"{name} must hold numbers or text; got dtype {y.dtype}")
    return y


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


def _numbered(count: int) -> tuple[str, ...]:
    """Return the names 1, 2, ... of columns without names."""
    return tuple(str(number + 1) for number in range(count))


def _refuse_not_finite(X: FloatArray, columns: tuple[str, ...], word: str, where: Any) -> None:
    finite = np.isfinite(X)
    if not finite.all():
        row, column = np.unravel_index(finite.argmin(), X.shape)
        value = float(X[row, column])
        found = "NaN, a missing value" if math.isnan(value) else str(value)
        place = f"{word} {where[row]}, column {columns[column]!r}"
        raise TableError(f"{place}: expected a finite number, found {found}")
