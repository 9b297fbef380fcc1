"""The data that commands name: data sets, tables of numbers, and mixed tables."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray

from marginpursuit import datasets
from marginpursuit.cli.output import activity, note
from marginpursuit.experiments.explanation import TrainingRows
from marginpursuit.tables import (
    MAX_BYTES,
    Column,
    MixedTableError,
    RawTable,
    Table,
    TableError,
    TableVectoriser,
    absent_columns,
    check_classes,
    column_counts,
    copies_of,
    counted,
    expected_cells,
    guess_target,
    is_identifier,
    is_representable,
    labels_of,
    missing_code,
    missing_words,
    parse,
    read_frame,
    read_table,
    similar_classes,
    unreadable_rows,
)

__all__ = [
    "ColumnOptions",
    "Labelled",
    "is_data_set",
    "labelled_rows",
    "line_names",
    "note_cells",
    "read_labelled",
    "read_mixed",
    "read_mixed_instead",
    "read_numbers",
    "row_names",
]


class ColumnOptions(NamedTuple):
    """The columns that options name; None is no column."""

    drop: list[str] | None = None
    numeric: list[str] | None = None
    categorical: list[str] | None = None
    text: list[str] | None = None
    ids: list[str] | None = None


class Labelled(NamedTuple):
    """Samples, classes and a description of the data.

    A mixed table is a pandas frame and has a `vectoriser`, which is not fitted.
    """

    name: str
    X: Any
    y: NDArray[Any]
    sha256: str
    columns: tuple[str, ...] | None = None
    description: str = ""
    groups: NDArray[Any] | None = None
    vectoriser: TableVectoriser | None = None
    rows: tuple[str, ...] | None = None  # how a row is named: its line, and its identifiers
    target: str | None = None  # of a table of numbers; the vectoriser has that of a mixed table
    used_columns: NDArray[np.bool_] | None = None  # of a file without names: which X has

    @property
    def training_rows(self) -> TrainingRows:
        """The rows for an explanation."""
        columns = self.columns
        if self.used_columns is not None:
            columns = tuple(f"column {k + 1}" for k in np.flatnonzero(self.used_columns).tolist())
        return TrainingRows(self.X, self.y, self.vectoriser, self.groups, self.rows, columns)


def read_mixed(data: str, max_gigabytes: float) -> RawTable:
    """Read a file of cells of any kind; show progress and notes."""
    with activity(f"reading {Path(data).name}") as reached:
        raw = read_frame(data, max_bytes=int(1e9 * max_gigabytes), progress=reached)
    for message in raw.notes:
        note(message)
    return raw


def read_mixed_instead(data: str, max_gigabytes: float, reason: MixedTableError) -> RawTable:
    """Read a table that `read_numbers` refused; an error about the extra names the reason."""
    try:
        return read_mixed(data, max_gigabytes)
    except TableError as error:
        if not isinstance(error.__cause__, ImportError):
            raise
        raise TableError(f"{str(reason).rstrip('.')}. For mixed tables, {error}") from error


def read_numbers(
    data: str, target: str | None = None, *, max_gigabytes: float, **columns: Any
) -> Table:
    """Read a file of numbers; show progress. `columns` has `drop` or `only`."""
    with activity(f"reading {Path(data).name}") as reached:
        n_bytes = int(1e9 * max_gigabytes)
        table = read_table(data, target, max_bytes=n_bytes, progress=reached, **columns)
    for message in table.notes:
        note(message)
    return table


def read_labelled(
    data: str, target: str | None, options: ColumnOptions, max_gigabytes: float = MAX_BYTES / 1e9
) -> Labelled:
    """Load a data set by name, or read a file; print what was decided about its columns."""
    if is_data_set(data):
        return _named_data_set(data, target, options)
    suffix = Path(data.removesuffix(".gz")).suffix.lower()
    if target is None and suffix != ".npz":
        raise typer.BadParameter(_missing_target(data, max_gigabytes))
    _check_target(target, options)
    if options.categorical or options.text or options.ids:
        return _mixed_table(data, read_mixed(data, max_gigabytes), str(target), options)
    try:
        return _numeric_table(data, target, options, max_gigabytes)
    except MixedTableError as error:
        raw = read_mixed_instead(data, max_gigabytes, error)
    return _mixed_table(data, raw, str(target), options)


def _check_target(target: str | None, options: ColumnOptions) -> None:
    """Raise an error if another option names the target."""
    names = ("--drop", "--numeric", "--categorical", "--text", "--id")
    for option, columns in zip(names, options, strict=True):
        if target in (columns or ()):
            raise typer.BadParameter(
                f"--target and {option} both name the column {target!r}; expected different "
                f"columns. Leave out {option} {target!r}, or choose another target."
            )


def is_data_set(data: str) -> bool:
    """Return whether `data` is the name of a data set; an existing file takes precedence."""
    if Path(data).exists() or Path(data).suffix:
        return False
    if data not in datasets.REGISTRY:
        names = ", ".join(sorted(datasets.REGISTRY))
        raise TableError(f"{data!r} is neither a file nor a data set; data sets are {names}")
    return True


def _named_data_set(data: str, target: str | None, options: ColumnOptions) -> Labelled:
    if target is not None or any(options):
        raise typer.BadParameter(
            f"{data} is a named data set with fixed target and columns. "
            "Leave out --target, --drop and the other options for columns."
        )
    found = datasets.load(data)
    digest = datasets.REGISTRY[data].content_sha256 or ""
    return Labelled(
        data, found.X, found.y, digest, description=found.description, groups=found.groups
    )


def _missing_target(data: str, max_gigabytes: float) -> str:
    """Return the error of a table without a target: its columns, and the likeliest target."""
    with activity(f"reading {Path(data).name}"):
        counts = column_counts(data, max_bytes=int(1e9 * max_gigabytes))
    shown = ", ".join(list(counts)[:40]) + (", ..." if len(counts) > 40 else "")
    likeliest = guess_target(list(counts), list(counts.values()))
    hint = "" if likeliest is None else f" The likeliest is --target {likeliest!r}."
    return f"name the column to predict with --target. The columns are: {shown}.{hint}"


def _numeric_table(
    data: str, target: str | None, options: ColumnOptions, max_gigabytes: float
) -> Labelled:
    """Read a table of numbers; columns that number the rows are dropped, unless asked for."""
    dropped = options.drop or []
    table = read_numbers(data, target, max_gigabytes=max_gigabytes, drop=dropped)
    if table.y is None:
        raise typer.BadParameter("name the array to predict with --target")
    _refuse_absent(data, options.numeric or (), (*table.columns, *dropped))
    _check_labels(target or "y", table.y)
    if isinstance(table.X, np.ndarray):
        _refuse_large(table)
    X, columns = _without_identifiers(table, options)
    if isinstance(X, np.ndarray):
        _note_copies(target or "y", table.y, zip(columns, X.T, strict=True), X.shape[1])
        _note_codes(zip(columns, X.T, strict=True), X.shape[1])
    known = Labelled(table.name, X, table.y, table.sha256, rows=line_names(table), target=target)
    if table.has_names:
        return known._replace(columns=columns)
    if table.lines is None:  # an archive, which has the target elsewhere
        return known
    used = np.zeros(len(table.columns) + len({target, *dropped}), dtype=bool)
    used[[int(name) - 1 for name in table.columns]] = True
    return known._replace(used_columns=used)


def _refuse_absent(data: str, asked: Iterable[str], names: Sequence[str]) -> None:
    """Raise an error for columns that a file does not have."""
    known = set(names)
    absent = [name for name in asked if name not in known]
    if absent:
        raise TableError(f"{data}: {absent_columns(absent, names)}")


def _check_labels(target: str, y: NDArray[Any], words: str = "") -> None:
    """Raise an error if labels are not classes; note classes that look alike."""
    check_classes(target, len(np.unique(y)), len(y), missing=words)
    _note_similar(target, y)


def _note_similar(target: str, y: NDArray[Any]) -> None:
    for group in similar_classes(y):
        note(f"column {target!r}: the classes {', '.join(map(repr, group))} differ in case, blanks "
             "or the form of a number only. Write them alike if they are one class.")  # fmt: skip


def _refuse_large(table: Table) -> None:
    """Raise an error if the squares of a column overflow when it is standardised."""
    readable = is_representable(np.vstack([table.X.min(axis=0), table.X.max(axis=0)])).all(axis=0)
    if not readable.all():
        name = table.columns[int(readable.argmin())]
        option = f" with --drop {name!r}" if table.has_names else ""
        raise TableError(
            f"{table.name}: column {name!r} has numbers from 1e150 on, whose squares overflow; "
            f"expected smaller numbers. Choose another unit, or leave it out{option}."
        )


def _without_identifiers(table: Table, options: ColumnOptions) -> tuple[Any, tuple[str, ...]]:
    """Return the rows and the names of their columns, without those that number the rows."""
    X, columns = table.X, table.columns
    if not (isinstance(X, np.ndarray) and table.has_names):
        return X, columns
    kept = [
        name in (options.numeric or ()) or not is_identifier(name, values)
        for name, values in zip(columns, X.T, strict=True)
    ]
    if all(kept) or not any(kept):
        return X, columns
    dropped = [name for name, is_kept in zip(columns, kept, strict=True) if not is_kept]
    note(f"dropped, as a different integer in each row: {', '.join(dropped)}. "
         "Keep a column with --numeric.")  # fmt: skip
    return X[:, kept], tuple(name for name in columns if name not in dropped)


def _mixed_table(data: str, raw: RawTable, target: str, options: ColumnOptions) -> Labelled:
    asked = (target, *(name for group in options for name in group or ()))
    _refuse_absent(data, asked, raw.frame.columns.tolist())
    raw, y = labelled_rows(raw, target)
    vectoriser = TableVectoriser(
        numeric=tuple(options.numeric or ()),
        categorical=tuple(options.categorical or ()),
        text=tuple(options.text or ()),
        drop=tuple(options.drop or ()),
        ids=tuple(options.ids or ()),
        target=target,
        decimal=raw.decimal,
    )
    X = raw.frame.drop(columns=target)
    with activity("kinds of the columns"):
        columns = vectoriser.describe(X)
    for column in columns:
        note(f"column {column}")
        note_cells(raw, column, unreadable_rows(X[column.name], column))
    used = [column.name for column in columns if column.kind != "dropped"]
    _note_copies(target, y, ((name, X[name]) for name in used), len(used))
    numbers = [column for column in columns if column.kind == "number"]
    _note_codes(((part.name, parse(X[part.name], part)) for part in numbers), len(numbers))
    return Labelled(
        raw.name,
        X,
        y,
        raw.sha256,
        tuple(X.columns),
        vectoriser=vectoriser,
        rows=row_names(raw, options.ids or ()),
    )


def labelled_rows(raw: RawTable, target: str) -> tuple[RawTable, NDArray[Any]]:
    """Return the rows that have a label, and the labels; say how many have none."""
    y, present = labels_of(raw.frame[target])
    words = missing_words(raw.frame[target])
    _check_labels(target, y, words)
    if not present.all():
        left_out = counted(int((~present).sum()), "row")
        note(f"left out: {left_out} without a value of {target!r}. {words}".rstrip(" ."))
    frame = raw.frame[present].reset_index(drop=True)
    return replace(raw, frame=frame, rows=raw.rows[present]), y


def _note_copies(target: str, y: NDArray[Any], columns: Any, n_columns: int) -> None:
    """Say which columns determine the class; wide tables are not examined."""
    copies = copies_of(y, columns) if n_columns <= 1000 else []
    if copies:
        note(f"each of these columns alone determines {target!r}, by its values or by having one: "
             f"{', '.join(map(repr, copies))}. Leave out with --drop what is not known before the "
             "prediction.")  # fmt: skip


def _note_codes(columns: Iterable[tuple[str, Any]], n_columns: int) -> None:
    """Say which numbers may stand for missing values; wide tables are not examined."""
    for name, numbers in columns if n_columns <= 1000 else ():
        code = missing_code(numbers)
        if code is not None:
            note(f"column {name!r}: {code:.15g} is in many cells and far from all other numbers. "
                 "Empty these cells if it stands for a missing value.")  # fmt: skip


def note_cells(raw: RawTable, column: Column, rows: NDArray[np.intp]) -> None:
    """Say how many cells of a column the table step cannot use, and show the first."""
    if not len(rows):
        return
    count = f"{len(rows)} of {counted(len(raw.frame), 'cell')}"
    cell = str(raw.frame[column.name].iloc[rows[0]])[:40]
    first = f"{cell!r} in {raw.row_word} {raw.rows[rows[0]]}"
    if column.kind == "category":
        note(f"column {column.name!r}: the fit did not have the value of {count}, such as {first}")
        return
    note(f"column {column.name!r}: {count} cannot be read as a {expected_cells(column)} and count "
         f"as missing, such as {first}")  # fmt: skip


def line_names(table: Table) -> tuple[str, ...] | None:
    """Return the line of each row of a CSV file; None for other files."""
    return None if table.lines is None else tuple(f"line {number}" for number in table.lines)


def row_names(raw: RawTable, ids: Iterable[str]) -> tuple[str, ...]:
    """Return the line of each row, and its identifiers."""
    names = [f"{raw.row_word} {number}" for number in raw.rows.tolist()]
    for column in ids:
        cells = raw.frame[column].astype(str).tolist()
        names = [f"{name}, {column} {cell}" for name, cell in zip(names, cells, strict=True)]
    return tuple(names)
