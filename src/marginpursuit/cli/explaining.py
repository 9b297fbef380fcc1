"""The commands `explain` and `issues`: coefficients, and suspicious rows."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from sklearn.base import clone

from marginpursuit import datasets, load_model
from marginpursuit._files import write_atomically
from marginpursuit.cli.data import (
    ColumnOptions,
    is_data_set,
    labelled_rows,
    read_labelled,
    read_mixed,
    row_names,
)
from marginpursuit.cli.folds import with_folds
from marginpursuit.cli.inputs import (
    AsJson,
    Categorical,
    Data,
    Drop,
    Identifier,
    MaxGigabytes,
    Numeric,
    Target,
    Text,
    check_output,
)
from marginpursuit.cli.number_rows import read_number_rows
from marginpursuit.cli.output import data_errors, note, progress, say, show_table
from marginpursuit.cli.predictions import as_csv, table_step, target_name
from marginpursuit.experiments.coefficients import Bootstrap, list_coefficients
from marginpursuit.experiments.cross_validation import most_folds
from marginpursuit.experiments.explanation import TrainingRows, find_label_issues
from marginpursuit.experiments.explanation import explain as explain_fit
from marginpursuit.experiments.method_results import Coefficient, SuspiciousRow
from marginpursuit.inspection import LabelIssues
from marginpursuit.tables import MAX_BYTES, TableError, absent_columns, counted

__all__ = ["explain", "issues"]

Top = Annotated[int, typer.Option(min=1, help="Coefficients and rows of each kind to print.")]


def explain(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A file written by `fit`.")],
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA", help="The data of the fit, for influential and suspicious rows."
        ),
    ] = None,
    target: Target = None,
    bootstrap: Annotated[
        int,
        typer.Option(min=2, help="With DATA: fits of the bootstrap for the standard errors."),
    ] = 100,
    top: Top = 10,
    max_gigabytes: MaxGigabytes = MAX_BYTES / 1e9,
    as_json: AsJson = False,
) -> None:
    """Show the coefficients of a model in the units of the table, and suspicious rows.

    An effect is the change of the score of a class. Standard errors are those of a bootstrap with
    fixed hyper-parameters and a fixed table step: without DATA the bootstrap of `fit`, which is
    stored in the model.
    """
    fitted = load_model(model)
    vectoriser = table_step(fitted)
    classifier = fitted[-1] if hasattr(fitted, "steps") else fitted
    if not hasattr(classifier, "coef_"):
        raise typer.BadParameter(
            "a model with a kernel has no coefficients; expected a linear model. For suspicious "
            "rows of the data: marginpursuit issues DATA"
        )
    if vectoriser is None and classifier is not fitted:
        raise typer.BadParameter("the pipeline of this model does not start with a table step")
    features = None if vectoriser is None else vectoriser.features_
    if data is None:
        stored = Bootstrap.of(classifier)
        coefficients = list_coefficients(classifier, features=features, bootstrap=stored)
        n_resamples = 0 if stored is None else stored.n_resamples
        if as_json:
            listed = [asdict(part) for part in coefficients]
            say({"coefficients": listed, "n_resamples": n_resamples}, as_json=True)
        else:
            _print_coefficients(coefficients[:top], n_resamples)
            absent = "" if n_resamples else "standard errors, which the model does not hold, "
            column = "" if target_name(fitted) else " --target COLUMN"
            note(f"For {absent}influential and suspicious rows: marginpursuit explain {model} "
                 f"DATA{column}")  # fmt: skip
        return
    target = target or target_name(fitted)
    rows = _training_rows(classifier, vectoriser, data, target, max_gigabytes)
    with data_errors(data):
        folds = min(5, most_folds(rows.y))
    n_steps = bootstrap + folds * (1 + (vectoriser is not None))
    with data_errors(data), progress("held-out probabilities", n_steps) as report_progress:
        found = explain_fit(
            classifier,
            rows,
            fitted_vectoriser=vectoriser,
            n_resamples=bootstrap,
            most=top,
            progress=report_progress,
        )
    if as_json:
        say(asdict(found), as_json=True)
        return
    _print_coefficients(found.coefficients[:top], found.n_resamples)
    _print_rows(found.rows, found.n_label_issues)


def issues(
    data: Data,
    target: Target = None,
    drop: Drop = None,
    numeric: Numeric = None,
    categorical: Categorical = None,
    text: Text = None,
    identifier: Identifier = None,
    folds: Annotated[int, typer.Option(min=2, help="Folds; every row is held out once.")] = 5,
    top: Annotated[int, typer.Option(min=1, help="Suspicious rows to print.")] = 20,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write all rows to a CSV file."),
    ] = None,
    max_gigabytes: MaxGigabytes = MAX_BYTES / 1e9,
    as_json: AsJson = False,
) -> None:
    """Rank the rows whose label is probably wrong, most suspicious first.

    Every row is held out once. Its label is suspicious if another class is at least as probable as
    it is on average in the rows of that class (confident learning), and at least 3.3 times as
    probable as the given label. A suspicious label may be right: check the row.
    """
    check_output(output, data)
    options = ColumnOptions(drop, numeric, categorical, text, identifier)
    known, folds = with_folds(read_labelled(data, target, options, max_gigabytes), folds)
    rows = known.training_rows
    n_steps = folds * (1 + (known.vectoriser is not None))
    with (
        data_errors(known.name, lambda text: text.replace("n_folds", "--folds")),
        progress("held-out probabilities", n_steps) as report_progress,
    ):
        found = find_label_issues(rows, n_folds=folds, progress=report_progress)
    columns = _issue_columns(rows, found)
    if as_json:
        say(columns, as_json=True)
        return
    n_issues = int(found.is_label_issue.sum())
    found_by = ": a fit without the row finds another class at least 3.3 times as probable"
    counts = f"{known.name}: {n_issues} of {counted(len(known.y), 'label')} are suspicious"
    say(counts + (found_by if n_issues else ""), as_json=False)
    shown = list(zip(*columns.values(), strict=True))[: min(top, n_issues)]
    header = ("row", "given label", "predicted label", "probability of the given label")
    cells = [(row[0], str(row[3]), str(row[4]), f"{row[2]:.3f}") for row in shown]
    if cells:
        show_table(header, cells, n_texts=3)
    if output is not None:
        path = write_atomically(output, as_csv(columns).encode())
        note(f"{counted(len(known.y), 'row')}, most suspicious first, in {path}")


def _issue_columns(rows: TrainingRows, found: LabelIssues) -> dict[str, list[Any]]:
    """Return the columns of the output, most suspicious row first."""
    order = found.ranking
    return {
        "row": [rows.row_name(row) for row in order.tolist()],
        "is_label_issue": found.is_label_issue[order].tolist(),
        "label_quality": found.label_quality[order].tolist(),
        "given_label": found.given_label[order].tolist(),
        "predicted_label": found.predicted_label[order].tolist(),
    }


def _training_rows(
    classifier: Any, vectoriser: Any, data: str, target: str | None, max_gigabytes: float
) -> TrainingRows:
    """Read the rows of a fit; their classes must be those of the model."""
    if is_data_set(data):
        found = datasets.load(data)
        rows = TrainingRows(found.X, found.y, groups=found.groups)
    elif vectoriser is not None:
        rows = _frame_rows(vectoriser, data, target, max_gigabytes)
    else:
        table = read_number_rows(classifier, data, max_gigabytes, target)
        if table.y is None:
            raise typer.BadParameter("name the column that the model predicts with --target")
        rows = TrainingRows(table.X, table.y, names=table.names)
    classes = {str(label): label for label in classifier.classes_.tolist()}
    unknown = sorted(set(map(str, rows.y.tolist())) - set(classes))
    if unknown:
        raise TableError(
            f"{data}: the target has the class {unknown[0]!r}; the model has {list(classes)}"
        )
    y = np.array([classes[str(label)] for label in rows.y.tolist()], classifier.classes_.dtype)
    return rows._replace(y=y)


def _frame_rows(vectoriser: Any, data: str, target: Any, max_gigabytes: float) -> TrainingRows:
    raw = read_mixed(data, max_gigabytes)
    if target not in raw.frame.columns:
        raise TableError(f"{data}: {absent_columns([target], raw.frame.columns.tolist())}")
    raw, y = labelled_rows(raw, target)
    ids = [name for name in map(str, vectoriser.ids) if name in raw.frame.columns]
    return TrainingRows(raw.frame, y, clone(vectoriser), names=row_names(raw, ids))


def _print_coefficients(coefficients: tuple[Coefficient, ...], n_resamples: int) -> None:
    error = f", ± standard error of {n_resamples} bootstrap fits" if n_resamples else ""
    say(f"Effects on the score, most important first{error}", as_json=False)
    header = ("feature", "change", "score of", "effect", *(["±"] if n_resamples else []))
    rows = [
        (
            part.feature,
            part.change,
            part.label,
            f"{part.effect:+.4g}",
            *([f"{part.standard_error:.2g}"] if part.standard_error is not None else []),
        )
        for part in coefficients
    ]
    show_table(header, rows, n_texts=3)


def _print_rows(rows: tuple[SuspiciousRow, ...], n_issues: int) -> None:
    say(f"\nsuspicious labels: {n_issues}; rows that look mislabelled, outlying (distance at "
        "least 3 medians) or influential (at least 5 means)", as_json=False)  # fmt: skip
    header = ("row", "label", "", "held-out prediction", "probability of the label", "distance",
              "influence")  # fmt: skip
    cells = [
        (
            row.row,
            row.given,
            "suspicious" if row.is_label_issue else "",
            row.predicted,
            f"{row.quality:.3f}",
            f"{row.distance:.1f}",
            "" if row.influence is None else f"{row.influence:.1f}",
        )
        for row in rows
    ]
    if cells:
        show_table(header, cells, n_texts=4)
