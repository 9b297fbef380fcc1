"""Tables from files: CSV, Parquet, or an archive of NumPy arrays.

What cannot be read is refused with the line and the column where it stands.
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
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from marginpursuit._validation import FloatArray

__all__ = ["Table", "TableError", "read_table"]

_DELIMITERS = ",;\t"


class TableError(ValueError):
    """A file holds no table, or one that cannot be learned from."""


@dataclass(frozen=True, eq=False)
class Table:
    """Samples, and their classes where a target was asked for.

    Attributes
    ----------
    name : str
        The name of the file, without folder and ending.
    X : ndarray or sparse array of shape (n_samples, n_features)
        The samples.
    y : ndarray of shape (n_samples,) or None
        The target, as whole numbers or floats where it is numbers, as text otherwise.
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
        """Whether the columns have names of their own."""
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
        A ``.csv`` file (separated by comma, semicolon or tab; a first line that is not all numbers
        holds the names), a ``.parquet`` file (needs polars), or an ``.npz`` archive with the arrays
        ``X``, or ``data``, ``indices``, ``indptr`` and ``shape`` of a sparse matrix, and ``y``.
    target : str, optional
        The column to be predicted, by its name; columns without names are called 1, 2, and so on.
        In an archive, the name of the array; ``y`` if not given.
    drop : sequence of str, optional
        Columns to leave out.
    only : sequence of str, optional
        The columns to read, in this order; by default all but the target.

    Returns
    -------
    Table
        The table, in memory.

    Raises
    ------
    TableError
        If the file is no table of numbers; the error names line and column.
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
            f"{path}: the ending of the file must be one of {sorted(readers)}; got {path.suffix!r}"
        )
    content = path.read_bytes()
    try:
        X, y, columns = readers[path.suffix.lower()](content, _Wanted(target, drop, only))
    except TableError as error:
        raise TableError(f"{path}: {error}") from error.__cause__
    if 0 in X.shape:
        raise TableError(f"{path}: no samples, or no columns but the target: shape {X.shape}")
    return Table(path.stem, X, y, columns, hashlib.sha256(content).hexdigest())


_Parts = tuple[Any, NDArray[Any] | None, tuple[str, ...]]


class _Wanted(NamedTuple):
    """Which columns are wanted."""

    target: str | None
    drop: Sequence[str]
    only: Sequence[str] | None

    def columns(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the columns of X among those that a file has; refuse what it does not have."""
        name, times = Counter(names).most_common(1)[0] if names else ("", 0)
        if times > 1:
            raise TableError(f"the column {name!r} is there {times} times")
        target = [] if self.target is None else [self.target]
        for name in [*target, *self.drop, *(self.only or ())]:
            if name not in names:
                shown = ", ".join(map(repr, names[:20])) + (", ..." if len(names) > 20 else "")
                raise TableError(f"there is no column {name!r}; there are {shown}")
        return tuple(
            name for name in (self.only or names) if name not in self.drop and name not in target
        )


def _read_csv(content: bytes, wanted: _Wanted) -> _Parts:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise TableError(f"line {line}: byte {content[error.start]:#04x} is no UTF-8") from error
    first = text[: text.find("\n")] if "\n" in text else text
    delimiter = max(_DELIMITERS, key=first.count)
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        head = next((row for row in rows if row), None)
        if head is None:
            raise TableError("the file is empty")
        named = not all(_is_number(cell) for cell in head)
        names = [cell.strip() for cell in head] if named else list(_numbered(len(head)))
        columns = wanted.columns(names)
        places = [names.index(column) for column in columns]
        labelled = None if wanted.target is None else names.index(wanted.target)
        numbers, labels, lines = array("d"), [], array("q")
        for row in chain([] if named else [head], rows):
            if not row:
                continue
            if len(row) != len(names):
                raise TableError(f"line {rows.line_num}: {len(row)} cells, not {len(names)}")
            lines.append(rows.line_num)
            if labelled is not None:
                labels.append(row[labelled].strip())
            cells = [row[place] for place in places]
            try:
                numbers.extend(map(float, cells))
            except ValueError:
                _refuse_cell(cells, columns, rows.line_num)
    except csv.Error as error:
        raise TableError(f"line {rows.line_num}: {error}") from error
    X = np.frombuffer(numbers, dtype=np.float64).reshape(len(lines), len(columns))
    _refuse_not_finite(X, columns, "line", lines)
    if "" in labels:
        where = lines[labels.index("")]
        raise TableError(f"line {where}, column {wanted.target!r}: the target is missing")
    return X, None if labelled is None else _labels(labels), columns


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _refuse_cell(row: list[str], columns: tuple[str, ...], line: int) -> NoReturn:
    cell, column = next(
        (cell, column) for cell, column in zip(row, columns, strict=True) if not _is_number(cell)
    )
    what = f"{cell[:40]!r} is no number" if cell.strip() else "a value is missing"
    raise TableError(f"line {line}, column {column!r}: {what}")


def _labels(cells: list[str]) -> NDArray[Any]:
    """Return whole numbers if all are, else floats if all are, else text."""
    for kind in (np.int64, np.float64):
        try:
            labels = np.array([kind(cell) for cell in cells])
        except (ValueError, OverflowError):
            continue
        if np.all(np.isfinite(labels)):
            return labels
    return np.array(cells)


def _read_parquet(content: bytes, wanted: _Wanted) -> _Parts:
    try:
        import polars
    except ImportError as error:
        raise TableError("reading Parquet needs polars: pip install polars") from error
    try:
        frame = polars.read_parquet(io.BytesIO(content))
    except Exception as error:  # polars has errors of many kinds for broken files
        raise TableError(f"no Parquet file, or a damaged one: {error}") from error
    columns = wanted.columns(frame.columns)
    for column in columns:
        if not (frame[column].dtype.is_numeric() or frame[column].dtype == polars.Boolean):
            raise TableError(f"column {column!r}: {frame[column].dtype} is no type of numbers")
    for column in (*columns, *([] if wanted.target is None else [wanted.target])):
        missing = frame[column].is_null()
        if missing.any():
            raise TableError(f"row {missing.arg_max()}, column {column!r}: a value is missing")
    X = frame.select(columns).to_numpy().astype(np.float64)
    _refuse_not_finite(X, columns, "row", range(len(X)))
    return X, None if wanted.target is None else frame[wanted.target].to_numpy(), columns


def _read_npz(content: bytes, wanted: _Wanted) -> _Parts:
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except Exception as error:  # as many kinds as there are ways to break an archive
        raise TableError(f"no archive of arrays, or a damaged one: {error}") from error
    parts = ("data", "indices", "indptr", "shape")
    if "X" in arrays:
        X = arrays["X"]
    elif all(part in arrays for part in parts):
        try:
            shape = tuple(arrays["shape"].tolist())
            X = sparse.csr_array(tuple(arrays[part] for part in parts[:3]), shape=shape)
            X.check_format(full_check=True)
        except (ValueError, TypeError) as error:
            raise TableError(f"no sparse matrix: {error}") from error
    else:
        raise TableError(f"there must be an array X, or {parts}; there are {sorted(arrays)}")
    if X.ndim != 2 or X.dtype.kind not in "biuf":
        raise TableError(f"X must be a matrix of numbers; got shape {X.shape}, dtype {X.dtype}")
    columns = _numbered(X.shape[1])
    if wanted.drop or wanted.only:
        raise TableError("columns of an archive have no names to choose them by")
    if not sparse.issparse(X):
        _refuse_not_finite(X, columns, "row", range(len(X)))
    name = "y" if wanted.target is None else wanted.target
    if wanted.target is not None and name not in arrays:
        raise TableError(f"there is no array {name!r}; there are {sorted(arrays)}")
    y = arrays.get(name)
    if y is not None and y.shape != (X.shape[0],):
        raise TableError(f"{name} must have a label for each of {X.shape[0]} rows; got {y.shape}")
    return X, y, columns


def _numbered(count: int) -> tuple[str, ...]:
    """Return the names of columns without names."""
    return tuple(str(number + 1) for number in range(count))


def _refuse_not_finite(X: FloatArray, columns: tuple[str, ...], word: str, where: Any) -> None:
    finite = np.isfinite(X)
    if not finite.all():
        row, column = np.unravel_index(finite.argmin(), X.shape)
        value = float(X[row, column])
        what = "a value is missing (NaN)" if math.isnan(value) else f"{value} is not finite"
        raise TableError(f"{word} {where[row]}, column {columns[column]!r}: {what}")
