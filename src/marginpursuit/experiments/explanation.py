"""What a fit shows: coefficients in the units of the table, and suspicious rows."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from marginpursuit.experiments.coefficients import bootstrap, list_coefficients
from marginpursuit.experiments.cross_validation import (
    most_folds,
    stratified_splits,
    vectorised_splits,
)
from marginpursuit.experiments.method_results import (
    Explanation,
    SetResult,
    SuspiciousRow,
)
from marginpursuit.inspection import (
    LabelIssues,
    label_issues,
    row_influence,
)
from marginpursuit.selection import MarginPursuitClassifierCV
from marginpursuit.tables import counted

__all__ = [
    "TrainingRows",
    "explain",
    "explain_search",
    "find_label_issues",
    "suspicious_rows",
]

_Progress = Callable[[str], None] | None


class TrainingRows(NamedTuple):
    """The rows of a fit: a matrix or a frame, classes, and how each row is named."""

    X: Any
    y: NDArray[Any]
    vectoriser: Any = None  # an unfitted TableVectoriser, for a frame
    groups: NDArray[Any] | None = None
    names: Sequence[str] | None = None
    columns: Sequence[str] | None = None

    def row_name(self, row: int) -> str:
        """Return where a row is; rows without names are counted from 1."""
        return f"row {row + 1}" if self.names is None else self.names[row]


def find_label_issues(
    rows: TrainingRows, *, n_folds: int = 5, seed: int = 0, progress: _Progress = None
) -> LabelIssues:
    """Rank rows by how suspicious their label is.

    Every row is held out once. `MarginPursuitClassifierCV`, and the table step of a frame, are
    fitted to the other folds.

    Parameters
    ----------
    rows : TrainingRows
        The rows.
    n_folds : int, default=5
        The number of folds; reduced to the size of the second largest class.
    seed : int, default=0
        The seed of the assignment to folds.
    progress : callable, optional
        Called after each fold, and after a fold is vectorised.

    Returns
    -------
    LabelIssues
        The issues, in the order of the rows.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from marginpursuit.experiments.explanation import TrainingRows, find_label_issues
    >>> X, y = load_iris(return_X_y=True)
    >>> y[3] = 2
    >>> int(find_label_issues(TrainingRows(X, y), n_folds=2).ranking[0])
    3
    """
    classes, first, codes, sizes = np.unique(
        rows.y, return_index=True, return_inverse=True, return_counts=True
    )
    if sizes.min() < 2:
        rare = int(sizes.argmin())
        raise ValueError(
            f"class {classes.tolist()[rare]!r} has a single row, {rows.row_name(first[rare])}; "
            "expected at least two, so that one can be held out. Remove the row, or merge the "
            "class with another."
        )
    folds = min(n_folds, most_folds(codes))
    splits = stratified_splits(codes, groups=rows.groups, n_folds=folds, seed=seed)
    if rows.vectoriser is not None:
        splits = vectorised_splits(splits, rows.vectoriser, rows.X, progress)
    proba = np.empty((len(codes), len(classes)))
    given = classes, folds, most_folds(codes)
    n_search = min(_search_folds(codes[split.train], *given) for split in splits)
    for split in splits:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # small folds may not converge fully
            model = MarginPursuitClassifierCV(cv=n_search)
            model.fit(*split.training_rows(rows.X, codes))
        proba[split.test] = model.predict_proba(split.test_rows(rows.X, codes)[0])
        if progress is not None:
            progress("held-out probabilities")
    return label_issues(rows.y, proba, classes)


def _search_folds(codes: NDArray[np.intp], classes: NDArray[Any], n_folds: int, n_most: int) -> int:
    """Return the folds of the search in the rows that one of `n_folds` does not hold out.

    `n_most` is the most folds of all rows. The folds of the search are five, or the
    rows of the largest class if these are fewer. The second largest class needs two rows: a fold
    that holds out the only one would train on a single class. Every class needs one, without which
    all its held-out rows would look mislabelled.
    """
    counts, names = np.bincount(codes, minlength=len(classes)), classes.tolist()
    absent = np.flatnonzero(counts == 0).tolist()
    if absent:
        raise ValueError(
            f"class {names[absent[0]]!r} has no row left to fit where its groups are held out; "
            "expected rows in at least two groups. Merge the class with another, or leave it out."
        )
    *_, second, largest = np.argsort(counts, kind="stable").tolist()
    if counts[second] < 2:
        found = counted(int(counts[largest]), "row")
        raise ValueError(
            f"{n_folds} folds leave {found} of class {names[largest]!r} and {counts[second]} of "
            f"class {names[second]!r} to fit; expected at least 2 rows of each of two classes. "
            f"Add rows{', or raise n_folds' if n_folds < n_most else ''}."
        )
    return min(5, int(counts[largest]))


def suspicious_rows(
    rows: TrainingRows, issues: LabelIssues, model: Any, matrix: Any, most: int = 10
) -> tuple[SuspiciousRow, ...]:
    """List label issues, then outlying rows, then influential rows, `most` of each.

    A row is outlying if its distance is at least three medians, and influential if its influence is
    at least five means.

    Parameters
    ----------
    rows : TrainingRows
        The rows.
    issues : LabelIssues
        Their labels.
    model : estimator
        The classifier that is fitted to all rows.
    matrix : {ndarray, sparse matrix} of shape (n_samples, n_features)
        The rows as the classifier gets them.
    most : int, default=10
        The most rows of each kind.

    Returns
    -------
    tuple of SuspiciousRow
        The rows.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names", UserWarning)
        found = row_influence(model, matrix, rows.y)
    influence = found.influence
    chosen = [row for row in issues.ranking.tolist() if issues.is_label_issue[row]][:most]
    chosen += [row for row in np.argsort(-found.distance)[:most] if found.distance[row] >= 3]
    if influence is not None:
        chosen += [row for row in np.argsort(-influence)[:most] if influence[row] >= 5]
    return tuple(
        SuspiciousRow(
            rows.row_name(row),
            str(issues.given_label[row]),
            str(issues.predicted_label[row]),
            float(issues.label_quality[row]),
            float(found.distance[row]),
            None if influence is None else float(influence[row]),
            bool(issues.is_label_issue[row]),
        )
        for row in dict.fromkeys(int(row) for row in chosen)
    )


def explain(
    model: Any,
    rows: TrainingRows,
    *,
    fitted_vectoriser: Any = None,
    n_resamples: int = 100,
    most: int = 10,
    progress: _Progress = None,
) -> Explanation:
    """Explain a fitted linear classifier by the rows that it was fitted to.

    Parameters
    ----------
    model : estimator
        The fitted classifier.
    rows : TrainingRows
        The rows.
    fitted_vectoriser : TableVectoriser, optional
        The fitted table step of a frame.
    n_resamples : int, default=100
        Fits of the bootstrap. Hyper-parameters and the table step stay as they are.
    most : int, default=10
        The most rows of each kind.
    progress : callable, optional
        Called after each fit.

    Returns
    -------
    Explanation
        All coefficients, and the suspicious rows.
    """
    matrix = rows.X if fitted_vectoriser is None else fitted_vectoriser.transform(rows.X)
    features = None if fitted_vectoriser is None else fitted_vectoriser.features_
    issues = find_label_issues(rows, progress=progress)
    found = bootstrap(model, matrix, rows.y, n_resamples, progress)
    coefficients = list_coefficients(model, features=features, bootstrap=found)
    return Explanation(
        type(model).__name__,
        coefficients,
        suspicious_rows(rows, issues, model, matrix, most),
        matrix.shape[1],
        int(issues.is_label_issue.sum()),
        n_resamples,
    )


def explain_search(
    result: SetResult,
    rows: TrainingRows,
    *,
    n_resamples: int = 20,
    most_coefficients: int = 15,
    most_rows: int = 5,
    progress: _Progress = None,
) -> SetResult:
    """Add the explanation of `MarginPursuitClassifierCV`, fitted to all rows, to a comparison.

    Parameters
    ----------
    result : SetResult
        The comparison. It is returned as it is if it lacks the method.
    rows : TrainingRows
        The rows.
    n_resamples : int, default=20
        Fits of the bootstrap.
    most_coefficients, most_rows : int
        The most coefficients, and the most rows of each kind.
    progress : callable, optional
        Called after each fit, `n_resamples` + 5 times, and 5 times more for a frame.

    Returns
    -------
    SetResult
        The comparison with the explanation.
    """
    name = MarginPursuitClassifierCV.__name__
    if not any(method.name == name and not method.failure for method in result.methods):
        return result
    vectoriser = None if rows.vectoriser is None else clone(rows.vectoriser)
    matrix = rows.X if vectoriser is None else vectoriser.fit_transform(rows.X)
    model = MarginPursuitClassifierCV().fit(matrix, rows.y)
    if vectoriser is None and rows.columns is not None:
        model.feature_names_in_ = np.array(rows.columns, dtype=object)
    found = explain(
        model,
        rows,
        fitted_vectoriser=vectoriser,
        n_resamples=n_resamples,
        most=most_rows,
        progress=progress,
    )
    return replace(
        result, explanation=replace(found, coefficients=found.coefficients[:most_coefficients])
    )
