"""Real sets, split into training and test part, standardised and spoilt as a table asks for."""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.model_selection import GroupShuffleSplit, StratifiedGroupKFold, train_test_split
from sklearn.preprocessing import StandardScaler

from marginpursuit.datasets import Dataset, DatasetError, contaminate, load

TEST_SHARE = 0.25
FOLDS = 5


class Task(NamedTuple):
    """What is to be told apart in a data set."""

    dataset: str
    positive: int | None = None  # the class to tell from the rest; None for all classes
    balanced: bool = False  # whether to keep as many rows of the larger class as of the smaller
    dead: tuple[int, ...] = ()  # columns that hold rounding errors alone


TASKS = {
    "cov": Task("cov", positive=2),
    "digit5": Task("digit5", positive=5),
    "protein": Task("protein"),
    "hiva": Task("hiva"),
    "a9a": Task("a9a"),
    "reuters": Task("reuters"),
    "news20": Task("news20"),
    "news20, one class": Task("news20", positive=0),
    "higgs_small": Task("higgs_small"),
    "spambase": Task("spambase"),
    "news20_minilm": Task("news20_minilm", dead=(127, 223, 319)),
    "protein, balanced": Task("protein", balanced=True),
}

# What is done to the training part, and to nothing else.
DAMAGE: dict[str, dict[str, float]] = {
    "clean": {},
    "flips": {"flips": 0.1},
    "leverage": {"leverage": 0.05, "factor": 10.0},
    "noise": {"noise": 0.1, "noise_scale": 1.0, "degrees_of_freedom": 1.5},
}


class Problem(NamedTuple):
    """Rows to fit to and rows to judge by."""

    X: Any
    y: Any
    X_test: Any
    y_test: Any
    cv: Any  # for the methods that choose a setting


class Shape(NamedTuple):
    """What decides which methods apply, and how long they take."""

    rows: int
    columns: int
    stored: int
    classes: int
    is_sparse: bool


@cache
def dataset(name: str) -> Dataset:
    return load(name, original_labels=True, fetch=False)


def missing(task: str) -> str:
    """Say why a task cannot be had; an empty word if it can."""
    try:
        dataset(TASKS[task].dataset)
    except DatasetError as error:
        return str(error)
    return ""


def shape(task: str, most_rows: int | None) -> Shape:
    """Return the shape of the training part."""
    data, rows = dataset(TASKS[task].dataset), _rows(task, seed=0)
    n_rows = min(round((1 - TEST_SHARE) * len(rows)), most_rows or len(rows))
    n_classes = 2 if TASKS[task].positive is not None else len(np.unique(data.y))
    stored = (data.X.nnz if sparse.issparse(data.X) else data.X.size) * n_rows // data.X.shape[0]
    return Shape(n_rows, data.X.shape[1], stored, n_classes, sparse.issparse(data.X))


def prepare(task: str, seed: int, damage: str, most_rows: int | None) -> Problem:
    """Split by the seed, by group where rows belong together; standardise dense columns; spoil.

    Columns are standardised by the clean training part: the damage is the same for all methods.
    """
    data, positive = dataset(TASKS[task].dataset), TASKS[task].positive
    y = data.y if positive is None else np.where(data.y == positive, 1, -1)
    train, test = _split(task, seed, y)
    train = train[:most_rows]
    X, X_test = (_floats(data.X, TASKS[task].dead, rows) for rows in (train, test))
    if not sparse.issparse(X):
        scaler = StandardScaler(copy=False).fit(X)
        X, X_test = scaler.transform(X), scaler.transform(X_test)
    cv: Any = FOLDS
    if data.groups is not None:
        folds = StratifiedGroupKFold(FOLDS, shuffle=True, random_state=seed)
        cv = list(folds.split(X, y[train], data.groups[train]))
    labels = y[train]
    if DAMAGE[damage]:
        X, labels, *_ = contaminate(X, labels, **DAMAGE[damage], random_state=seed)
    return Problem(X, labels, X_test, y[test], cv)


def _rows(task: str, seed: int) -> Any:
    """Return the rows of a data set that a task uses."""
    y = dataset(TASKS[task].dataset).y
    if not TASKS[task].balanced:
        return np.arange(len(y))
    rng, (classes, sizes) = np.random.default_rng(seed), np.unique(y, return_counts=True)
    drawn = [rng.permutation(np.flatnonzero(y == label))[: sizes.min()] for label in classes]
    return np.sort(np.concatenate(drawn))


def _split(task: str, seed: int, y: Any) -> tuple[Any, Any]:
    rows, groups = _rows(task, seed), dataset(TASKS[task].dataset).groups
    if groups is None:
        return tuple(
            train_test_split(rows, test_size=TEST_SHARE, stratify=y[rows], random_state=seed)
        )
    splitter = GroupShuffleSplit(1, test_size=TEST_SHARE, random_state=seed)
    train, test = next(splitter.split(rows, groups=groups[rows]))
    return np.random.default_rng(seed).permutation(rows[train]), rows[test]


def _floats(X: Any, dead: tuple[int, ...], rows: Any) -> Any:
    if sparse.issparse(X):
        return sparse.csr_matrix(X[rows], dtype=np.float64)  # what all methods take
    return np.delete(X[rows], dead, axis=1).astype(np.float64, order="C")  # as arrays mostly are
