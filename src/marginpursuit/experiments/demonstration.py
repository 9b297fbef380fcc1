"""A short demonstration: clean rows, corrupted rows, a messy table, and text."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer

from marginpursuit import datasets
from marginpursuit.experiments._demonstration_tables import customers, messages
from marginpursuit.experiments.compare import compare, methods
from marginpursuit.experiments.cross_validation import Contamination
from marginpursuit.experiments.explanation import TrainingRows, explain_search
from marginpursuit.experiments.method_results import SetResult
from marginpursuit.experiments.runs import Run
from marginpursuit.tables import TableVectoriser

__all__ = ["count_fits", "demonstrate"]


def demonstrate(n_repeats: int = 2, progress: Callable[[str], None] | None = None) -> Run:
    """Compare `MarginPursuitClassifierCV` with linear methods of scikit-learn.

    There are four tables: breast_cancer, which is included with scikit-learn; the same with 5 %
    corrupted training rows; a generated table of customers with numbers, categories, dates, text
    and gaps; and generated messages, of which 8 % have a wrong label. All methods have their
    default parameters. The last two tables need the extra `tables`.

    Parameters
    ----------
    n_repeats : int, default=2
        Repetitions of a cross-validation with 5 folds.
    progress : callable, optional
        Called after each fit, `count_fits` times.

    Returns
    -------
    Run
        The results, with LogisticRegression as baseline.
    """
    sets = tuple(_compare(part, n_repeats, progress) for part in _parts())
    return Run.now("Demonstration: clean rows, corrupted rows, a messy table, text", sets=sets)


def count_fits(n_repeats: int = 2) -> int:
    """Return the number of steps of `demonstrate`: fits, and vectorised folds.

    Parameters
    ----------
    n_repeats : int, default=2
        Repetitions of the cross-validation.

    Returns
    -------
    int
        The number of steps.

    Examples
    --------
    >>> from marginpursuit.experiments.demonstration import count_fits
    >>> count_fits()
    305
    """
    n_folds = 5 * n_repeats
    compared = 4 * len(_methods()) * n_folds
    vectorised = 2 * (n_folds + 5)
    explained = 3 * 25
    return compared + vectorised + explained


class _Part(NamedTuple):
    name: str
    description: str
    X: Any
    y: NDArray[Any]
    sha256: str = ""
    contamination: Contamination | None = None
    vectoriser: TableVectoriser | None = None
    columns: tuple[str, ...] | None = None


def _parts() -> tuple[_Part, ...]:
    clean = datasets.load("breast_cancer")
    known = (clean.X, np.where(clean.y > 0, "benign", "malignant"), clean.sha256)
    table, status = customers()
    notes, labels = messages()
    return (
        _Part(
            "breast_cancer",
            clean.description,
            *known,
            columns=tuple(map(str, load_breast_cancer().feature_names)),
        ),
        _Part(
            "breast_cancer",
            "Why: one training row in twenty is ten times as far from the means of the columns and "
            "has a wrong label; each row has a bounded influence on the fit, so that these change "
            "it little. " + clean.description,
            *known,
            contamination=Contamination("leverage", 0.05),
        ),
        _Part(
            "customers, a messy table",
            "Generated: numbers with thousands separators, categories, dates, comments, gaps, an "
            "identifier.",
            table,
            status,
            vectoriser=TableVectoriser(ids=("customer",)),
        ),
        _Part(
            "messages, 8 % wrong labels",
            "Why: each training row has a bounded influence on the fit, so that wrong labels "
            "change it little. Generated: short texts of two kinds; 8 % have the wrong label.",
            notes,
            labels,
            vectoriser=TableVectoriser(text=("message",)),
        ),
    )


def _methods() -> dict[str, Any]:
    peers = ("LogisticRegression", "LinearSVC", "RidgeClassifier", "SGDClassifier")
    return methods(["MarginPursuitClassifierCV", *peers])


def _compare(part: _Part, n_repeats: int, progress: Callable[[str], None] | None) -> SetResult:
    result = compare(
        part.X,
        part.y,
        name=part.name,
        description=part.description,
        sha256=part.sha256,
        chosen=_methods(),
        n_folds=5,
        n_repeats=n_repeats,
        baseline="LogisticRegression",
        contamination=part.contamination,
        vectoriser=part.vectoriser,
        progress=progress,
    )
    if part.contamination is not None:  # the rows that are explained are not contaminated
        return result
    names = [f"row {number}" for number in range(1, len(part.y) + 1)]
    if "customer" in getattr(part.X, "columns", ()):
        names = part.X["customer"].tolist()
    rows = TrainingRows(
        part.X, np.asarray(part.y), part.vectoriser, names=names, columns=part.columns
    )
    return explain_search(result, rows, progress=progress)
