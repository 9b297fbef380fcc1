"""Predictions of a saved model: new rows, what differs from the fit, and a CSV file."""

import csv
import io
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from marginpursuit import datasets
from marginpursuit.cli.data import is_data_set, note_cells, read_mixed
from marginpursuit.cli.number_rows import classifier_of, read_number_rows
from marginpursuit.cli.output import csv_cell, note
from marginpursuit.tables import RawTable, TableVectoriser, unique_names

__all__ = ["NewRows", "as_csv", "predicted_columns", "read_new", "table_step", "target_name"]


class NewRows(NamedTuple):
    """Rows to predict, and the columns that identify them."""

    X: Any
    ids: dict[str, list[str]]


def table_step(model: Any) -> TableVectoriser | None:
    """Return the vectoriser of a pipeline; None for a model of numbers."""
    first = model[0] if hasattr(model, "steps") else None
    return first if isinstance(first, TableVectoriser) else None


def read_new(model: Any, data: str, max_gigabytes: float) -> NewRows:
    """Read rows for a model; say how their columns differ from those of the fit."""
    vectoriser = table_step(model)
    if is_data_set(data):
        return NewRows(datasets.load(data).X, {})
    if vectoriser is None:
        rows = read_number_rows(model, data, max_gigabytes)
        _note_extra([name for name in rows.further if name != target_name(model)])
        return NewRows(rows.X, {})
    raw = _numbered_as_in_fit(vectoriser, read_mixed(data, max_gigabytes))
    differences = vectoriser.differences(raw.frame)
    known = {*map(str, (vectoriser.target, *vectoriser.ids, *vectoriser.drop))}
    _note_extra([name for name in differences.extra if name not in known])
    if not differences.missing:  # otherwise `transform` names them in its error
        _note_unusable(vectoriser, raw)
    ids = {
        name: raw.frame[name].astype(str).tolist()
        for name in map(str, vectoriser.ids)
        if name in raw.frame.columns
    }
    return NewRows(raw.frame, ids)


def target_name(model: Any) -> str | None:
    """Return the column that a model of `fit` predicts, if its file has it."""
    vectoriser = table_step(model)
    if vectoriser is not None:
        return None if vectoriser.target is None else str(vectoriser.target)
    name = getattr(classifier_of(model), "target_name_", None)
    return name if isinstance(name, str) else None


def _numbered_as_in_fit(vectoriser: TableVectoriser, raw: RawTable) -> RawTable:
    """Rename the columns of a file without names that lacks the target of the fit."""
    names = vectoriser.feature_names_in_.tolist()
    is_alike = not raw.has_names and len(names) == raw.frame.shape[1]
    if not is_alike or not all(map(str.isdecimal, names)):
        return raw
    return replace(raw, frame=raw.frame.set_axis(names, axis=1))


def _note_unusable(vectoriser: TableVectoriser, raw: RawTable) -> None:
    """Say which columns have cells that the model cannot use, and which have no cells."""
    empty, unknown = vectoriser.empty_columns(raw.frame), vectoriser.unknown_rows(raw.frame)
    for column in vectoriser.used_columns:
        if column.name in unknown and column.name not in empty:
            note_cells(raw, column, unknown[column.name])
    if empty:
        note(f"columns without any value, unlike in the fit: {', '.join(map(repr, empty))}")


def _note_extra(names: Any) -> None:
    if names:
        shown = ", ".join(map(repr, names[:20])) + (", ..." if len(names) > 20 else "")
        note(f"ignored, as the model does not have them: {shown}")


def predicted_columns(
    model: Any,
    new: NewRows,
    with_probabilities: bool,
    progress: Callable[[int, int], None],
    chunk: int = 20_000,
) -> dict[str, list[Any]]:
    """Return the columns of the output: identifiers, predictions and probabilities.

    `progress` gets the number of predicted rows after each chunk, and the total.
    """
    n_rows = new.X.shape[0]
    rows: Any = new.X if isinstance(new.X, np.ndarray) or sparse.issparse(new.X) else new.X.iloc
    titles = [f"probability of {label}" for label in model.classes_.tolist()]
    names, _ = unique_names(["prediction", *titles, *new.ids])
    ids = dict(zip(names[1 + len(titles) :], new.ids.values(), strict=True))
    columns: dict[str, list[Any]] = {**ids, "prediction": []}
    columns |= {title: [] for title in titles if with_probabilities}
    with warnings.catch_warnings():
        # The names were checked when the rows were read.
        warnings.filterwarnings("ignore", "X does not have valid feature names", UserWarning)
        # `read_new` has counted the cells that cannot be read.
        warnings.filterwarnings("ignore", "column .*: no cell can be read", UserWarning)
        for start in range(0, n_rows, chunk):
            part = rows[start : start + chunk]
            columns["prediction"] += model.predict(part).tolist()
            if with_probabilities:
                for title, values in zip(titles, model.predict_proba(part).T, strict=True):
                    columns[title] += values.tolist()
            progress(min(start + chunk, n_rows), n_rows)
    return columns


def as_csv(columns: dict[str, list[Any]]) -> str:
    """Return columns as CSV; cells that a spreadsheet would run are quoted."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(map(csv_cell, columns))
    writer.writerows(map(csv_cell, row) for row in zip(*columns.values(), strict=True))
    return stream.getvalue()
