"""Numbers of folds that the classes permit, and notes where they are smaller than asked for."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginpursuit.cli.data import Labelled
from marginpursuit.cli.output import note
from marginpursuit.experiments.cross_validation import most_folds
from marginpursuit.tables import TableError, counted

__all__ = ["note_search_folds", "with_folds"]


def with_folds(known: Labelled, folds: int) -> tuple[Labelled, int]:
    """Return rows that can be cross-validated, and the number of folds.

    Classes with a single row are left out. The two largest classes have a row in each fold.
    """
    _, codes, sizes = np.unique(known.y, return_inverse=True, return_counts=True)
    singles = np.flatnonzero(sizes[codes] == 1)
    named = [f"{known.y[row]} ({known.training_rows.row_name(row)})" for row in singles[:5]]
    listed = ", ".join(named) + (", ..." if len(singles) > 5 else "")
    sizes = sizes[sizes > 1]
    if len(sizes) < 2:
        raise TableError(
            f"{known.name}: cross-validation needs at least 2 classes with at least 2 rows; found "
            f"{len(sizes)}. Classes with a single row: {listed}. Add rows, or merge classes."
        )
    if len(singles):
        note("left out of the cross-validation, as the only row of a class cannot be both fitted "
             f"and held out: {listed}")  # fmt: skip
        known = _without(known, singles)
    n_folds = min(folds, most_folds(known.y))
    if n_folds < folds:
        note(f"{n_folds} folds instead of --folds {folds}: the second largest class has "
             f"{counted(n_folds, 'row')}")  # fmt: skip
    fewest = int(sizes.min())
    if fewest < n_folds:
        note(f"the cross-validation has {n_folds} folds, and the smallest class "
             f"{counted(fewest, 'row')}: some folds hold out none of it. Choose fewer folds with "
             "--folds NUMBER.")  # fmt: skip
    return known, n_folds


def _without(known: Labelled, rows: NDArray[np.intp]) -> Labelled:
    """Leave out rows."""
    kept = np.delete(np.arange(len(known.y)), rows)
    is_frame = known.vectoriser is not None
    return known._replace(
        X=known.X.iloc[kept].reset_index(drop=True) if is_frame else known.X[kept],
        y=known.y[kept],
        groups=None if known.groups is None else known.groups[kept],
        rows=None if known.rows is None else tuple(known.rows[row] for row in kept.tolist()),
    )


def note_search_folds(model: Any, y: NDArray[Any]) -> None:
    """Say that a class has fewer rows than the search of a method has folds."""
    cv = getattr(model, "cv", None)
    fewest = int(np.unique(y, return_counts=True)[1].min())
    if isinstance(cv, int) and 2 <= fewest < cv:
        note(f"the search has {cv} folds, and the smallest class {counted(fewest, 'row')}: some "
             "folds hold out none of it. Choose fewer folds with --set cv=NUMBER.")  # fmt: skip
