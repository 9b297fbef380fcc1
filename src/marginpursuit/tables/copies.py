"""Columns that are copies of the target, or nearly so."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginpursuit.tables.columns import text_cells

__all__ = ["copies_of"]


def copies_of(
    y: NDArray[Any], columns: Iterable[tuple[str, Any]], max_rows: int = 5000
) -> list[str]:
    """Return the columns whose value, or its absence, determines the class of nearly all rows.

    Parameters
    ----------
    y : ndarray of shape (n_samples,)
        The labels.
    columns : iterable of (str, ndarray or pandas.Series)
        Names and values of columns. Of those with more than one different value for each ten rows
        only the absence of a value is compared.
    max_rows : int, default=5000
        The most rows that are compared, at equal distances.

    Returns
    -------
    list of str
        The columns for which the most frequent class of each value, or of the rows with and of
        those without a value, has at most 1 % of the errors of the most frequent class of all rows.

    Examples
    --------
    >>> import numpy as np
    >>> from marginpursuit.tables import copies_of
    >>> y = np.array(["no", "yes"] * 20)
    >>> copies_of(y, [("paid", np.arange(40) % 2), ("size", np.arange(40) % 3)])
    ['paid']
    """
    rows = np.unique(np.linspace(0, len(y) - 1, min(max_rows, len(y))).astype(int))
    classes = np.unique(y[rows], return_inverse=True)[1]
    return [
        name
        for name, values in columns
        if any(_determines(codes, classes) for codes in _codes(values, rows))
    ]


def _codes(values: Any, rows: NDArray[Any]) -> list[NDArray[np.intp]]:
    """Return the place of the value of each row among the different ones, and whether it has one.

    Arrays have no missing values.
    """
    if isinstance(values, np.ndarray):
        return [np.unique(values[rows], return_inverse=True)[1]]
    text = text_cells(values.iloc[rows])
    return [text.codes, (text.cells != "").astype(np.intp)]


def _determines(codes: NDArray[np.intp], classes: NDArray[np.intp]) -> bool:
    shape = codes.max() + 1, classes.max() + 1
    if 10 * shape[0] > len(codes):
        return False
    counts = np.bincount(codes * shape[1] + classes, minlength=shape[0] * shape[1]).reshape(shape)
    n_errors = len(codes) - counts.max(axis=1).sum()
    n_errors_constant = len(codes) - counts.sum(axis=0).max()
    return bool(n_errors <= 0.01 * n_errors_constant and n_errors_constant > 0)
