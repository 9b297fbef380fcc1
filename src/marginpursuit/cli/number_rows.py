"""Rows for a model of numbers: its columns, by name or by position, from a file of any kind."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from marginpursuit.cli.data import (
    labelled_rows,
    line_names,
    read_mixed_instead,
    read_numbers,
    row_names,
)
from marginpursuit.cli.output import note
from marginpursuit.tables import (
    Column,
    MixedTableError,
    RawTable,
    TableError,
    TableVectoriser,
    absent_columns,
    counted,
    has_ambiguous_thousands,
    is_missing,
    optional,
    parse,
)

__all__ = ["NumberRows", "classifier_of", "read_number_rows"]


class NumberRows(NamedTuple):
    """The columns of a model, the labels if a target is named, and what else the file has."""

    X: Any
    y: NDArray[Any] | None
    further: tuple[str, ...]  # columns that the model does not have
    names: tuple[str, ...] | None  # how each row is named


def classifier_of(model: Any) -> Any:
    """Return the last step of a pipeline, or the model itself."""
    return model[-1] if hasattr(model, "steps") else model


def read_number_rows(
    model: Any, data: str, max_gigabytes: float, target: str | None = None
) -> NumberRows:
    """Read the columns of a model of numbers, and a target if one is named."""
    names = getattr(model, "feature_names_in_", None)
    only = None if names is None else names.tolist()
    try:
        table = read_numbers(data, target, max_gigabytes=max_gigabytes, only=only)
    except MixedTableError as error:
        _refuse_other_pipelines(model, error)
        raw = read_mixed_instead(data, max_gigabytes, error)
        return _from_mixed(model, data, raw, target, only)
    X = table.X
    if only is None:
        X = X[:, _positions(model, data, table.columns, has_names=table.has_names)]
    elif not _is_of_fit(model):  # a `ColumnTransformer` finds columns by name
        X = optional("pandas").DataFrame(X, columns=only)
    return NumberRows(X, table.y, table.further, line_names(table))


def _is_of_fit(model: Any) -> bool:
    """Whether a model has no other steps than those of the command `fit`."""
    steps = model.steps[:-1] if hasattr(model, "steps") else []
    return all(type(step).__name__ == "StandardScaler" for _, step in steps)


def _refuse_other_pipelines(model: Any, error: MixedTableError) -> None:
    """Raise an error if cells of a pipeline may have been text or missing in its fit."""
    if not _is_of_fit(model):
        raise TableError(
            f"{str(error).rstrip('.')}. The model starts with a {type(model[0]).__name__}, not "
            "with the table step of the command fit; expected numbers. In Python, "
            "marginpursuit.load_model(...).predict takes a table like that of the fit."
        ) from error


def _positions(
    model: Any, data: str, columns: tuple[str, ...], *, has_names: bool
) -> NDArray[np.intp]:
    """Return the places of the columns of a model without names among those of a file.

    The file may have the target and the columns that the fit did not use, only the latter, or
    neither.
    """
    classifier = classifier_of(model)
    used = getattr(classifier, "used_columns_", np.ones(model.n_features_in_, dtype=bool))
    layouts = [used[used], used]
    target = getattr(classifier, "target_name_", "")
    if not used.all() and target.isdecimal():
        layouts.append(np.delete(used, int(target) - 1))
    found = next((layout for layout in layouts if len(layout) == len(columns)), None)
    if found is None:
        sizes = " or ".join(map(str, sorted({len(layout) for layout in layouts})))
        raise TableError(
            f"{data}: found {counted(len(columns), 'column')}; expected {sizes}, as in the fit, "
            "whose columns have no names"
        )
    places = np.flatnonzero(found)
    if has_names:
        order = ", ".join(repr(columns[place]) for place in places)
        note(f"the columns of the fit have no names; used by position: {order}")
    return places


def _from_mixed(
    model: Any, data: str, raw: RawTable, target: str | None, names: list[str] | None
) -> NumberRows:
    """Read the columns of a model from a table with cells of any kind."""
    y = None
    asked = [*(names or ()), *([] if target is None else [target])]
    given = raw.frame.columns.tolist()
    absent = [name for name in asked if name not in given]
    if absent:
        raise TableError(f"{data}: {absent_columns(absent, given)}")
    if target is not None:
        raw, y = labelled_rows(raw, target)
    own = tuple(name for name in given if name != target)
    if names is None:
        places = _positions(model, data, own, has_names=raw.has_names)
        names = [own[place] for place in places]
    raw = replace(raw, frame=raw.frame[names])
    try:
        columns = TableVectoriser(numeric=names, decimal=raw.decimal).describe(raw.frame)
    except TableError as error:
        raise TableError(f"{data}: {error}") from error
    X = np.column_stack([_numbers(data, raw, column) for column in columns])
    return NumberRows(X, y, tuple(n for n in own if n not in names), row_names(raw, ()))


def _numbers(data: str, raw: RawTable, column: Column) -> NDArray[np.float64]:
    """Return a column as numbers; raise an error for a cell that is not one."""
    cells = raw.frame[column.name]
    if has_ambiguous_thousands(cells, column):
        cell = next(cell for cell in map(str, cells) if column.thousands in cell)
        raise TableError(
            f"{data}: column {column.name!r}: {column.thousands!r} could be the decimal or the "
            f"thousands separator of {cell[:40]!r} and of all other cells. Write the numbers "
            "without thousands separators."
        )
    numbers: NDArray[np.float64] = parse(cells, column)
    if column.n_missing:
        row = int(np.flatnonzero(np.isnan(numbers))[0])
        cell = str(cells.iloc[row]).strip()
        found = "a missing value" if is_missing(cell) else repr(cell[:40])
        raise TableError(
            f"{data}: {raw.row_word} {raw.rows[row]}, column {column.name!r}: expected a number, "
            f"as in all rows of the fit; found {found}. Fill in the cell, leave out the row, or "
            "fit to a table with missing values, which the model then replaces."
        )
    if column.reason:
        note(f"column {column}")
    return numbers
