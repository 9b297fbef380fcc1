"""Real data sets, split into training and test rows, standardised and contaminated."""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.model_selection import GroupShuffleSplit, StratifiedGroupKFold, train_test_split
from sklearn.preprocessing import StandardScaler

from marginpursuit.datasets import Dataset, DatasetError, contaminate, load

TEST_FRACTION = 0.25
FOLDS = 5


class Task(NamedTuple):
    """A classification task on a data set."""

    dataset: str
    positive: int | None = None  # the class against the rest; None for all classes
    balanced: bool = False  # whether to draw equally many rows of both classes
    dropped: tuple[int, ...] = ()  # columns that contain rounding errors only


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
    "news20_minilm": Task("news20_minilm", dropped=(127, 223, 319)),
    "protein, balanced": Task("protein", balanced=True),
}

# Arguments of `contaminate` for the training rows; test rows stay clean.
CONTAMINATIONS: dict[str, dict[str, float]] = {
    "clean": {},
    "flips": {"flips": 0.1},
    "leverage": {"leverage": 0.05, "factor": 10.0},
    "noise": {"noise": 0.1, "noise_scale": 1.0, "degrees_of_freedom": 1.5},
}


class Problem(NamedTuple):
    """Training and test rows."""

    X: Any
    y: Any
    X_test: Any
    y_test: Any
    cv: Any  # folds for methods that choose hyper-parameters


class Shape(NamedTuple):
    """The size of the training data: decides which methods apply, and in which order they run."""

    rows: int
    columns: int
    stored: int
    classes: int
    is_sparse: bool


@cache
def dataset(name: str) -> Dataset:
    return load(name, original_labels=True, fetch=False)


def missing(task: str) -> str:
    """Return why the data of a task are missing; an empty string if they are not."""
    try:
        dataset(TASKS[task].dataset)
    except DatasetError as error:
        return str(error)
    return ""


def shape(task: str, max_rows: int | None) -> Shape:
    """Return the shape of the training rows."""
    data, rows = dataset(TASKS[task].dataset), _rows(task, seed=0)
    n_rows = min(round((1 - TEST_FRACTION) * len(rows)), max_rows or len(rows))
    n_classes = 2 if TASKS[task].positive is not None else len(np.unique(data.y))
    stored = (data.X.nnz if sparse.issparse(data.X) else data.X.size) * n_rows // data.X.shape[0]
    return Shape(n_rows, data.X.shape[1], stored, n_classes, sparse.issparse(data.X))


def prepare(task: str, seed: int, contamination: str, max_rows: int | None) -> Problem:
    """Split, by group if the data have groups; standardise dense columns; contaminate.

    The clean training rows determine the standardisation, so that it is the same for all methods.
    """
    data, positive = dataset(TASKS[task].dataset), TASKS[task].positive
    y = data.y if positive is None else np.where(data.y == positive, 1, -1)
    train, test = _split(task, seed, y)
    train = train[:max_rows]
    X, X_test = (_floats(data.X, TASKS[task].dropped, rows) for rows in (train, test))
    if not sparse.issparse(X):
        scaler = StandardScaler(copy=False).fit(X)
        X, X_test = scaler.transform(X), scaler.transform(X_test)
    cv: Any = FOLDS
    if data.groups is not None:
        folds = StratifiedGroupKFold(FOLDS, shuffle=True, random_state=seed)
        cv = list(folds.split(X, y[train], data.groups[train]))
    labels = y[train]
    if CONTAMINATIONS[contamination]:
        options = CONTAMINATIONS[contamination]
        X, labels, *_ = contaminate(X, labels, **options, random_state=seed)
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
            train_test_split(rows, test_size=TEST_FRACTION, stratify=y[rows], random_state=seed)
        )
    splitter = GroupShuffleSplit(1, test_size=TEST_FRACTION, random_state=seed)
    train, test = next(splitter.split(rows, groups=groups[rows]))
    return np.random.default_rng(seed).permutation(rows[train]), rows[test]


def _floats(X: Any, dropped: tuple[int, ...], rows: Any) -> Any:
    if sparse.issparse(X):
        return sparse.csr_matrix(X[rows], dtype=np.float64)  # the type that all methods accept
    return np.delete(X[rows], dropped, axis=1).astype(np.float64, order="C")
