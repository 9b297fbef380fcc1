"""The column to predict: its labels, and a guess which column it is."""

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginpursuit.tables._content import is_number
from marginpursuit.tables.columns import is_missing, text_cells
from marginpursuit.tables.errors import TableError, counted

__all__ = [
    "check_classes",
    "fractions_as_text",
    "guess_target",
    "labels_of",
    "missing_words",
    "read_labels",
    "similar_classes",
]


def read_labels(cells: Sequence[str]) -> NDArray[Any]:
    """Return labels as whole numbers if the conversion changes none of them, else as text.

    Parameters
    ----------
    cells : sequence of str
        The cells of the target column.

    Returns
    -------
    ndarray of shape (n_samples,)
        The labels: integers, floats that are whole, or text. Fractions are text, because
        scikit-learn takes them for the values of a regression.

    Examples
    --------
    >>> from marginpursuit.tables import read_labels
    >>> read_labels(["0", "1"]), read_labels(["007", "7"]), read_labels(["0.5", "1"])
    (array([0, 1]), array(['007', '7'], dtype='<U3'), array(['0.5', '1'], dtype='<U3'))
    """
    distinct = set(cells)
    for kind in (int, float):
        numbers = {cell: kind(cell) for cell in distinct if _survives(cell, kind)}
        if len(set(numbers.values())) == len(distinct):
            return np.array([numbers[cell] for cell in cells], np.int64 if kind is int else float)
    return np.array(cells)


def fractions_as_text(labels: NDArray[Any]) -> NDArray[Any]:
    """Return floats as text unless all are whole, or one is missing; other labels as they are."""
    is_whole = labels.dtype.kind != "f" or np.all(labels == np.rint(labels))
    if is_whole or not np.isfinite(labels).all():
        return labels
    return np.array([np.format_float_positional(label, trim="-") for label in labels])


def _survives(cell: str, kind: type[int] | type[float]) -> bool:
    """Whether a cell is the text of a whole number: 1, -2 or 1.0, but not 007, 1_0 or 1e999."""
    try:
        number = kind(cell)
    except ValueError:
        return False
    if kind is int:
        return -(2**63) <= number < 2**63 and str(number) == cell
    is_text = cell in (repr(number), repr(number).removesuffix(".0"))
    return is_text and math.isfinite(number) and number % 1 == 0


def labels_of(series: Any, max_classes: int = 50) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return the labels of a column of a frame, and which rows have one.

    Parameters
    ----------
    series : pandas.Series
        The target.
    max_classes : int, default=50
        The most classes that may have fewer than ten rows each.

    Returns
    -------
    labels : ndarray of shape (n_present,)
        The labels of the rows that have one.
    present : ndarray of shape (n_samples,)
        Whether a row has a label.

    Examples
    --------
    >>> import pandas as pd
    >>> from marginpursuit.tables import labels_of
    >>> labels_of(pd.Series(["yes", "", "no"], name="paid"))
    (array(['yes', 'no'], dtype='<U3'), array([ True, False,  True]))
    """
    text = text_cells(series)
    cells = text.cells
    present = np.asarray(cells != "")
    if not present.any():
        reason = f"column {series.name!r}: expected classes, found no values"
        raise TableError(f"{reason}. {missing_words(series)}".removesuffix(". "))
    n_classes = len(text.present[0])
    if n_classes > 1:
        check_classes(series.name, n_classes, int(present.sum()), max_classes)
    return read_labels(cells[present].tolist()), present


def missing_words(series: Any) -> str:
    """Say which words of a target are read as missing labels; empty if there are none.

    Parameters
    ----------
    series : pandas.Series
        The target.

    Returns
    -------
    str
        The number of the cells, the most frequent word, and how to keep it.

    Examples
    --------
    >>> import pandas as pd
    >>> from marginpursuit.tables import missing_words
    >>> missing_words(pd.Series(["yes", "NA", "", "NA"]))
    "2 cells such as 'NA' count as missing. Replace them by another word to keep them as a class."
    """
    words = series[series.notna()].astype(str).str.strip().value_counts()
    counts = [(word, int(count)) for word, count in words.items() if word and is_missing(word)]
    if not counts:
        return ""
    total = counted(sum(count for _, count in counts), "cell")
    advice = "Replace them by another word to keep them as a class."
    return f"{total} such as {counts[0][0]!r} count as missing. {advice}"


def similar_classes(labels: NDArray[Any]) -> list[list[str]]:
    """Return the groups of classes that differ in case, blanks or the form of a number only.

    Parameters
    ----------
    labels : ndarray of shape (n_samples,)
        The labels.

    Returns
    -------
    list of list of str
        Groups of at least two classes.

    Examples
    --------
    >>> import numpy as np
    >>> from marginpursuit.tables import similar_classes
    >>> similar_classes(np.array(["Yes", "no", "yes", "1", "1.0"]))
    [['1', '1.0'], ['Yes', 'yes']]
    """
    groups: dict[str | float, list[str]] = {}
    for label in map(str, np.unique(labels).tolist()):
        text = "".join(label.split()).casefold()
        groups.setdefault(float(text) if is_number(text) else text, []).append(label)
    return [group for group in groups.values() if len(group) > 1]


def check_classes(
    name: Any, n_classes: int, n_rows: int, max_classes: int = 50, missing: str = ""
) -> None:
    """Raise an error if the values of a column are not classes.

    Parameters
    ----------
    name : object
        The name of the column.
    n_classes, n_rows : int
        The number of its different values, and of its rows.
    max_classes : int, default=50
        The most classes that may have fewer than ten rows each.
    missing : str, default=""
        What `missing_words` says of the column.

    Examples
    --------
    >>> from marginpursuit.tables import check_classes
    >>> check_classes("paid", 2, 1000)
    >>> check_classes("price", 900, 1000)
    Traceback (most recent call last):
        ...
    marginpursuit.tables.errors.TableError: column 'price' has 900 different values in 1000 rows; \
expected classes. Choose another target, or group its values into classes.
    """
    if n_classes == 1:
        raise TableError(
            f"column {name!r} has the same value in all {counted(n_rows, 'row')}"
            f"{' with a label' if missing else ''}; expected at least 2 classes. "
            f"{missing or 'Choose another target.'}"
        )
    if n_classes > max(max_classes, n_rows / 10):
        raise TableError(
            f"column {name!r} has {n_classes} different values in {n_rows} rows; expected classes. "
            "Choose another target, or group its values into classes."
        )


def guess_target(names: Sequence[str], counts: Sequence[int]) -> str | None:
    """Return the column that is most likely the target.

    Parameters
    ----------
    names : sequence of str
        The names of the columns.
    counts : sequence of int
        The number of different values of each column.

    Returns
    -------
    str or None
        Of the columns with 2 to 20 different values: the last whose name is usual for a target, or
        else the last. None if there is no such column.

    Examples
    --------
    >>> from marginpursuit.tables import guess_target
    >>> guess_target(["age", "churned", "city"], [60, 2, 12])
    'churned'
    """
    usual = re.compile(
        r"target|label|class|outcome|status|species|surviv|churn|default|diagnos|response|result"
        r"|fraud|spam|subscribed|approved|category|^y$",
        re.IGNORECASE,
    )
    eligible = [name for name, n in zip(names, counts, strict=True) if 2 <= n <= 20]
    named = [name for name in eligible if usual.search(name)]
    return next(reversed(named or eligible), None)
