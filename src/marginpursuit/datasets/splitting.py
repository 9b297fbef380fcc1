"""The paper's way to draw training and test rows, and to scale the columns."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from marginpursuit._validation import FloatArray, count
from marginpursuit.datasets.loading import Dataset

__all__ = ["SCALINGS", "Split", "paper_split", "scale_columns"]

#: The ways to scale columns. The paper does not say which it uses.
SCALINGS = ("none", "min-max", "standard")


class Split(NamedTuple):
    """Rows for training and rows for testing.

    Attributes
    ----------
    train, test : ndarray of int
        Numbers of rows; no row is in both.
    """

    train: NDArray[np.intp]
    test: NDArray[np.intp]


def paper_split(
    data: Dataset, trial: int = 0, *, n_train: int | None = None, seed: int = 0
) -> Split:
    """Draw training and test rows as the paper does: balanced, without replacement.

    Half of the training rows are of either class (of an odd number, class -1 gets one more); of
    the rest, as many rows as possible are for testing, again as many of either class.

    Parameters
    ----------
    data : Dataset
        A set with the two classes -1 and 1.
    trial : int, default=0
        The number of the trial; every trial is a new draw.
    n_train : int, optional
        The number of training rows. By default what the paper prints for the set; for other sets
        at most ten times the number of columns, as in the paper, and at most the size of the
        smaller class, so that half of it is left for testing.
    seed : int, default=0
        The draws depend on it and on the trial alone.

    Returns
    -------
    Split
        The rows, in random order.

    Raises
    ------
    ValueError
        If there are not two classes -1 and 1, or too few rows.

    Examples
    --------
    >>> from marginpursuit.datasets import load, paper_split
    >>> data = load("breast_cancer")
    >>> train, test = paper_split(data, trial=3)
    >>> len(train), int(data.y[train].sum()), int(data.y[test].sum())
    (212, 0, 0)
    """
    classes, sizes = np.unique(data.y, return_counts=True)
    if classes.tolist() != [-1, 1]:
        raise ValueError(f"{data.name} must have the classes -1 and 1; got {classes.tolist()}")
    least = int(sizes.min())
    size = n_train or data.paper_size or min(10 * data.X.shape[1], least)
    negatives = (count("n_train", size, 2) + 1) // 2
    if negatives >= least:
        raise ValueError(
            f"n_train must leave rows of both classes, whose sizes are {sizes.tolist()}, for "
            f"testing; got {size}"
        )
    generator = np.random.default_rng([seed, trial])
    negative, positive = (
        generator.permutation(np.flatnonzero(data.y == label)) for label in (-1, 1)
    )
    positives = size - negatives
    left = min(len(negative) - negatives, len(positive) - positives)
    train = np.concatenate([negative[:negatives], positive[:positives]])
    test = np.concatenate([negative[negatives:][:left], positive[positives:][:left]])
    return Split(generator.permutation(train), generator.permutation(test))


def scale_columns(train: Any, test: Any, scaling: str) -> tuple[FloatArray, FloatArray]:
    """Scale columns by what the training rows show.

    Parameters
    ----------
    train, test : array-like or sparse array of shape (n_rows, n_columns)
        The rows.
    scaling : {"none", "min-max", "standard"}
        "min-max" brings the training columns to [0, 1], "standard" to mean 0 and variance 1. A
        constant column is only shifted.

    Returns
    -------
    tuple of ndarray
        Training and test rows in float64.

    Examples
    --------
    >>> from marginpursuit.datasets import scale_columns
    >>> train, test = scale_columns([[1, 7], [3, 7]], [[5, 8]], "min-max")
    >>> train.tolist(), test.tolist()
    ([[0.0, 0.0], [1.0, 0.0]], [[2.0, 1.0]])
    """
    if scaling not in SCALINGS:
        raise ValueError(f"scaling must be one of {SCALINGS}; got {scaling!r}")
    rows, others = (
        np.asarray(part.toarray() if hasattr(part, "toarray") else part, dtype=np.float64)
        for part in (train, test)
    )
    if scaling == "none":
        return rows, others
    if scaling == "min-max":
        origin = rows.min(axis=0)
        unit = rows.max(axis=0) - origin
    else:
        origin, unit = rows.mean(axis=0), rows.std(axis=0)
    unit = np.where(unit > 0, unit, 1.0)
    return (rows - origin) / unit, (others - origin) / unit
