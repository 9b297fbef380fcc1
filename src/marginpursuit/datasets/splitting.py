"""The paper's splits into training and test rows, and scaling of columns."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from marginpursuit._validation import FloatArray, count
from marginpursuit.datasets.loading import Dataset

__all__ = ["SCALINGS", "Split", "paper_split", "scale_columns"]

#: The scalings of `scale_columns`. The paper does not name its own.
SCALINGS = ("none", "min-max", "standard", "unit-rows")


class Split(NamedTuple):
    """Indices of training and test rows.

    Attributes
    ----------
    train, test : ndarray of int
        Row indices; the two are disjoint.

    Examples
    --------
    >>> from marginpursuit.datasets import load, paper_split
    >>> split = paper_split(load("breast_cancer"), trial=0)
    >>> len(split.train), bool(set(split.train).isdisjoint(split.test))
    (212, True)
    """

    train: NDArray[np.intp]
    test: NDArray[np.intp]


def paper_split(
    data: Dataset, trial: int = 0, *, n_train: int | None = None, seed: int = 0
) -> Split:
    """Draw training and test rows as the paper does: balanced, without replacement.

    Each class has half of the training rows; class -1 has one more if the number is odd. The test
    rows are the largest balanced subset of the others.

    Parameters
    ----------
    data : Dataset
        A data set with the two classes -1 and 1.
    trial : int, default=0
        Number of the trial; every trial is a new draw.
    n_train : int, optional
        Number of training rows. By default that of the paper; for other data sets ten times the
        number of columns, as in the paper, but at most the size of the smaller class, so that half
        of that class remains for testing.
    seed : int, default=0
        Seed; the draw depends on the seed and the trial only.

    Returns
    -------
    Split
        The row indices, in random order.

    Raises
    ------
    ValueError
        If the classes are not -1 and 1, or if there are too few rows.

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
    smallest = int(sizes.min())
    size = n_train or data.paper_size or min(10 * data.X.shape[1], smallest)
    negatives = (count("n_train", size, 2) + 1) // 2
    if negatives >= smallest:
        raise ValueError(
            f"n_train is {size}; it must leave test rows of both classes, of sizes "
            f"{sizes.tolist()}. Reduce n_train."
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
    """Scale columns by statistics of the training rows, or columns and then rows.

    Parameters
    ----------
    train, test : array-like or sparse array of shape (n_rows, n_columns)
        Rows.
    scaling : {"none", "min-max", "standard", "unit-rows"}
        "min-max" maps the training columns to [0, 1], "standard" to mean 0 and variance 1. A
        constant column is only centred. "unit-rows" divides each row of "standard" by its norm.

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
    rows, others = (rows - origin) / unit, (others - origin) / unit
    if scaling == "unit-rows":
        return _unit_rows(rows), _unit_rows(others)
    return rows, others


def _unit_rows(rows: FloatArray) -> FloatArray:
    """Divide each row by its norm; a row of zeros stays zero."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(norms > 0, norms, 1.0))
