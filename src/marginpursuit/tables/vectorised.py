"""A mixed table as a matrix and labels, in one call."""

import os
from typing import Any, NamedTuple

from numpy.typing import NDArray

from marginpursuit.tables.errors import TableError, absent_columns
from marginpursuit.tables.files import read_frame
from marginpursuit.tables.target import labels_of
from marginpursuit.tables.vectoriser import TableVectoriser, as_frame

__all__ = ["Vectorised", "vectorise"]


class Vectorised(NamedTuple):
    """A table as a matrix.

    Attributes
    ----------
    X : ndarray or sparse array of shape (n_samples, n_features)
        The matrix.
    y : ndarray of shape (n_samples,) or None
        The labels.
    vectoriser : TableVectoriser
        The fitted transformer.
    """

    X: Any
    y: NDArray[Any] | None
    vectoriser: TableVectoriser


def vectorise(
    table: str | os.PathLike[str] | Any, target: str | int | None = None, **options: Any
) -> Vectorised:
    """Turn a mixed table into a matrix and labels.

    For an estimate of an error, use `TableVectoriser` in a pipeline, so that it is fitted to the
    training rows only.

    Parameters
    ----------
    table : path-like or pandas.DataFrame
        A file that `read_frame` reads, or a table.
    target : str or int, optional
        The column to predict.
    **options : dict
        Parameters of `TableVectoriser`.

    Returns
    -------
    Vectorised
        The matrix, the labels and the fitted transformer.

    Examples
    --------
    >>> import pandas as pd
    >>> from marginpursuit.tables import vectorise
    >>> frame = pd.DataFrame({"size": [1.5, None, 2.0], "kind": ["a", "b", "a"]})
    >>> found = vectorise(frame, target="kind")
    >>> found.X.shape, found.y.tolist()
    ((3, 2), ['a', 'b', 'a'])
    """
    if isinstance(table, str | os.PathLike):
        raw = read_frame(table)
        frame, options = raw.frame, {"decimal": raw.decimal, **options}
    else:
        frame = as_frame(table)
    y = None
    if target is not None:
        name = str(target)
        if name not in frame.columns:
            raise TableError(absent_columns([name], frame.columns.tolist()))
        y, present = labels_of(frame[name])
        frame = frame[present]
    vectoriser = TableVectoriser(target=target, **options)
    return Vectorised(vectoriser.fit_transform(frame), y, vectoriser)
