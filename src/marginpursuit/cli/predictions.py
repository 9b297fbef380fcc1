"""Predictions of a saved model: new rows, what differs from the fit, and a CSV file."""

import csv
import io
import warnings
from typing import Any, NamedTuple

from marginpursuit import datasets
from marginpursuit.cli.data import is_data_set
from marginpursuit.cli.output import csv_cell, note
from marginpursuit.tables import TableVectoriser, read_frame, read_table

__all__ = ["NewRows", "as_csv", "predicted_columns", "read_new", "table_step"]


class NewRows(NamedTuple):
    """Rows to predict, and the columns that identify them."""

    X: Any
    ids: dict[str, list[str]]


def table_step(model: Any) -> TableVectoriser | None:
    """Return the vectoriser of a pipeline; None for a model of numbers."""
    first = model[0] if hasattr(model, "steps") else None
    return first if isinstance(first, TableVectoriser) else None


def read_new(model: Any, data: str) -> NewRows:
    """Read rows for a model; say how their columns differ from those of the fit."""
    vectoriser = table_step(model)
    if is_data_set(data):
        return NewRows(datasets.load(data).X, {})
    if vectoriser is None:
        names = getattr(model, "feature_names_in_", None)
        table = read_table(data, only=None if names is None else names.tolist())
        _note_extra(table.further)
        return NewRows(table.X, {})
    raw = read_frame(data)
    differences = vectoriser.differences(raw.frame)
    known = {vectoriser.target, *vectoriser.ids, *vectoriser.drop}
    _note_extra([name for name in differences.extra if name not in known])
    if not differences.missing:  # otherwise `transform` names them in its error
        for column, count in vectoriser.unknown_values(raw.frame).items():
            note(f"column {column}: {count} cells have a value that the fit did not have")
    ids = {
        name: raw.frame[name].astype(str).tolist()
        for name in vectoriser.ids
        if name in raw.frame.columns
    }
    return NewRows(raw.frame, ids)


def _note_extra(names: Any) -> None:
    if names:
        shown = ", ".join(map(repr, names[:20])) + (", ..." if len(names) > 20 else "")
        note(f"ignored, as the model does not have them: {shown}")


def predicted_columns(model: Any, new: NewRows, with_probabilities: bool) -> dict[str, list[Any]]:
    """Return the columns of the output: identifiers, predictions and probabilities."""
    columns: dict[str, list[Any]] = {**new.ids}
    with warnings.catch_warnings():
        # The names were checked when the rows were read.
        warnings.filterwarnings("ignore", "X does not have valid feature names", UserWarning)
        columns["prediction"] = model.predict(new.X).tolist()
        if with_probabilities:
            proba = model.predict_proba(new.X)
            for label, column in zip(model.classes_.tolist(), proba.T, strict=True):
                columns[f"probability of {label}"] = column.tolist()
    return columns


def as_csv(columns: dict[str, list[Any]]) -> str:
    """Return columns as CSV; cells that a spreadsheet would run are quoted."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(map(csv_cell, columns))
    writer.writerows(map(csv_cell, row) for row in zip(*columns.values(), strict=True))
    return stream.getvalue()
