"""Compare methods on a data set by cross-validation, all under the same conditions.

Dense columns are standardised on the training part of each fold, for every method alike; sparse
ones are left as they are. Every sample is held out once, so that errors, probabilities and margins
are those of samples that the method had not seen.
"""

import math
import operator
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from marginpursuit import classifiers, selection
from marginpursuit._validation import FloatArray, count
from marginpursuit.inspection import margins_of
from marginpursuit.location import catoni_location

__all__ = [
    "Checkpoint",
    "Course",
    "Fold",
    "MethodResult",
    "SetResult",
    "compare",
    "methods",
    "standardised",
]

#: Numbers that a fit chose, shown with its result where the fitted model has them.
_CHOSEN = ("scale_", "alpha_", "overconfidence_", "n_iter_", "n_passes_")

# The course of training is followed on at most so many rows, and so many held-out rows.
_COURSE_ROWS = 5000
_NORMAL_QUANTILE = 1.959963984540054  # leaves 2.5 % above it
_COURSE_STEPS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_BINS = 60
_CALIBRATION_BINS = 10


@dataclass(frozen=True, slots=True)
class Fold:
    """What a method did on one fold."""

    error: float
    log_loss: float | None  # None where the method has no probabilities
    seconds: float  # of the fit, standardising included
    n_test: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Held-out margins at some point of a fit."""

    steps: int
    error: float
    location: float
    density: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Course:
    """Held-out margins over the course of training, on the same bins throughout."""

    edges: tuple[float, ...]
    level: float
    checkpoints: tuple[Checkpoint, ...]


@dataclass(frozen=True, slots=True)
class MethodResult:
    """A method on a data set."""

    name: str
    settings: dict[str, str]
    chosen: dict[str, float]  # by the fit itself, in the first fold
    folds: tuple[Fold, ...]
    calibration: tuple[tuple[float, float, int], ...] | None  # mean probability, frequency, count
    course: Course | None
    failure: str | None = None

    @property
    def error(self) -> float:
        """The share of all held-out samples that were given the wrong class."""
        return self._mean([fold.error for fold in self.folds])

    @property
    def error_interval(self) -> tuple[float, float]:
        """Wilson's interval, of level 95 %, for the test error.

        It takes the held-out samples for independent trials; that the fits of different folds share
        samples is left out of account.
        """
        n, z = sum(fold.n_test for fold in self.folds), _NORMAL_QUANTILE
        middle = (self.error + z * z / (2 * n)) / (1 + z * z / n)
        spread = self.error * (1 - self.error) / n + (z / (2 * n)) ** 2
        half = z / (1 + z * z / n) * math.sqrt(spread)
        return max(0.0, middle - half), min(1.0, middle + half)

    @property
    def log_loss(self) -> float | None:
        """The mean over all held-out samples; None where there are no probabilities."""
        losses = [fold.log_loss for fold in self.folds if fold.log_loss is not None]
        return self._mean(losses) if losses else None

    @property
    def seconds(self) -> float:
        """The mean time of a fit."""
        return sum(fold.seconds for fold in self.folds) / len(self.folds)

    def _mean(self, values: list[float]) -> float:
        sizes = [fold.n_test for fold in self.folds]
        return math.fsum(map(operator.mul, values, sizes)) / sum(sizes)


@dataclass(frozen=True, slots=True)
class SetResult:
    """All methods on a data set."""

    name: str
    description: str
    n_rows: int
    n_columns: int
    classes: tuple[str, ...]
    standardised: bool
    sha256: str
    methods: tuple[MethodResult, ...]


def methods(names: Sequence[str] | None = None) -> dict[str, Any]:
    """Return what can be compared: the methods of this library, and linear ones of scikit-learn.

    Parameters
    ----------
    names : sequence of str, optional
        The names of those that are wanted; by default all.

    Returns
    -------
    dict
        From name to an estimator that is not fitted.

    Examples
    --------
    >>> from marginpursuit.experiments.compare import methods
    >>> list(methods(["MarginPursuitClassifier", "LinearSVC"]))
    ['MarginPursuitClassifier', 'LinearSVC']
    """
    rooms = (classifiers, selection)
    ours = [getattr(room, name)() for room in rooms for name in room.__all__]
    peers = [LogisticRegression(max_iter=1000), LinearSVC(), RidgeClassifier(), SGDClassifier()]
    known: dict[str, Any] = {}
    for method in [*ours, *peers]:
        known[type(method).__name__] = method
        if "overconfidence" in method.get_params():
            one_sided = clone(method).set_params(overconfidence=0.0)
            known[f"{type(method).__name__}(overconfidence=0)"] = one_sided
    for method in known.values():
        if "random_state" in method.get_params():
            method.set_params(random_state=0)
    if names is None:
        return known
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"methods must be among {sorted(known)}; got {unknown}")
    return {name: known[name] for name in names}


def compare(
    X: Any,
    y: NDArray[Any],
    *,
    name: str,
    description: str = "",
    sha256: str = "",
    groups: NDArray[Any] | None = None,
    chosen: Mapping[str, Any] | None = None,
    n_folds: int = 5,
    seed: int = 0,
    reached: Callable[[str], None] | None = None,
) -> SetResult:
    """Cross-validate methods on a data set.

    Parameters
    ----------
    X : {ndarray, sparse matrix} of shape (n_samples, n_features)
        Samples.
    y : ndarray of shape (n_samples,)
        Their classes.
    name : str
        What the data set is called.
    description, sha256 : str, optional
        What it is, and its hash; kept with the result.
    groups : ndarray of shape (n_samples,), optional
        Which samples belong together: they are held out together.
    chosen : dict, optional
        From name to estimator; by default all of `methods`.
    n_folds : int, default=5
        The number of folds.
    seed : int, default=0
        Of the assignment of samples to folds.
    reached : callable, optional
        Called with the name of the method after each fold.

    Returns
    -------
    SetResult
        What came out. A method that fails is kept with its error.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from marginpursuit.experiments.compare import compare, methods
    >>> X, y = load_iris(return_X_y=True)
    >>> result = compare(X, y, name="iris", chosen=methods(["MarginPursuitClassifier"]))
    >>> len(result.methods[0].folds)
    5
    """
    classes, sizes = np.unique(y, return_counts=True)
    if len(classes) < 2:
        raise ValueError(f"y must have at least 2 classes; got {classes.tolist()}")
    if sizes.min() < count("n_folds", n_folds, least=2):
        raise ValueError(
            f"each class needs a sample in each of {n_folds} folds; class "
            f"{classes[sizes.argmin()].item()!r} has {sizes.min()}"
        )
    splitter = StratifiedKFold if groups is None else StratifiedGroupKFold
    folds = splitter(n_folds, shuffle=True, random_state=seed)
    splits = list(folds.split(np.zeros(len(y)), y, groups))
    return SetResult(
        name,
        description,
        X.shape[0],
        X.shape[1],
        tuple(str(label) for label in classes.tolist()),
        not sparse.issparse(X),
        sha256,
        tuple(
            _cross_validate(title, method, X, y, splits, reached or (lambda name: None))
            for title, method in (methods() if chosen is None else chosen).items()
        ),
    )


def standardised(method: Any, X: Any, y: NDArray[Any]) -> Any:
    """Fit a linear method to standardised columns; return it for the columns as they are.

    Parameters
    ----------
    method : estimator
        A linear classifier, which is fitted in place.
    X : {ndarray, sparse matrix} of shape (n_samples, n_features)
        Samples; a sparse matrix is not standardised.
    y : ndarray of shape (n_samples,)
        Their classes.

    Returns
    -------
    estimator
        The method, its coefficients brought back to the units of X.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.svm import LinearSVC
    >>> from marginpursuit.experiments.compare import standardised
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> standardised(LinearSVC(), X, y).score(X, y) > 0.98
    True
    """
    if sparse.issparse(X):
        return method.fit(X, y)
    scaler = StandardScaler().fit(X)
    method.fit(scaler.transform(X), y)
    method.coef_ = method.coef_ / scaler.scale_
    method.intercept_ = method.intercept_ - method.coef_ @ scaler.mean_
    return method


def _cross_validate(
    name: str,
    method: Any,
    X: Any,
    y: NDArray[Any],
    splits: list[tuple[Any, Any]],
    reached: Callable[[str], None],
) -> MethodResult:
    settings = {key: repr(value) for key, value in method.get_params(deep=False).items()}
    folds: list[Fold] = []
    chances: list[tuple[FloatArray, NDArray[np.bool_]]] = []
    chosen: dict[str, float] = {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            for train, test in splits:
                start = time.perf_counter()
                model = _fit(clone(method), X[train], y[train])
                seconds = time.perf_counter() - start
                error = float(np.mean(model.predict(X[test]) != y[test]))
                loss = None
                if hasattr(model, "predict_proba"):
                    proba = model.predict_proba(X[test])
                    loss = float(log_loss(y[test], proba, labels=model.classes_))
                    chances.append(_one_against_rest(proba, y[test], model.classes_))
                folds.append(Fold(error, loss, seconds, len(test)))
                chosen = chosen or _chosen(model[-1])
                reached(name)
            course = _course(method, X, y, *splits[0])
    except Exception as failure:  # one method that fails is a result, not the end of the others
        return MethodResult(
            name, settings, chosen, (), None, None, f"{type(failure).__name__}: {failure}"
        )
    calibration = _calibration(chances) if chances else None
    return MethodResult(name, settings, chosen, tuple(folds), calibration, course)


def _fit(method: Any, X: Any, y: NDArray[Any]) -> Pipeline:
    """Fit a method to standardised columns, or to sparse ones as they are."""
    scaling = "passthrough" if sparse.issparse(X) else StandardScaler()
    return make_pipeline(scaling, method).fit(X, y)


def _chosen(model: Any) -> dict[str, float]:
    values = {name: getattr(model, name, None) for name in _CHOSEN}
    values |= getattr(model, "best_params_", {})
    numbers = ((name, np.asarray(value)) for name, value in values.items())
    return {name: float(value.max()) for name, value in numbers if value.dtype.kind in "iuf"}


def _one_against_rest(
    proba: FloatArray, y: NDArray[Any], classes: NDArray[Any]
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Return probabilities and what happened: of the second of two classes, or of every class."""
    happened = y[:, np.newaxis] == classes
    if len(classes) == 2:
        return proba[:, 1], happened[:, 1]
    return proba.ravel(), happened.ravel()


def _calibration(
    chances: list[tuple[FloatArray, NDArray[np.bool_]]],
) -> tuple[tuple[float, float, int], ...]:
    """Compare probabilities with frequencies in bins of equal width."""
    proba = np.concatenate([part[0] for part in chances])
    happened = np.concatenate([part[1] for part in chances])
    bins = np.minimum((proba * _CALIBRATION_BINS).astype(int), _CALIBRATION_BINS - 1)
    return tuple(
        (float(proba[inside].mean()), float(happened[inside].mean()), int(inside.sum()))
        for inside in (bins == number for number in range(_CALIBRATION_BINS))
        if inside.any()
    )


def _course(method: Any, X: Any, y: NDArray[Any], train: Any, test: Any) -> Course | None:
    """Follow held-out margins over fits that may take more and more steps."""
    parameters = method.get_params(deep=False)
    if not isinstance(parameters.get("max_iter"), int) or "cv" in parameters:
        return None
    generator = np.random.default_rng(0)
    train, test = (
        generator.permutation(rows)[:_COURSE_ROWS] if len(rows) > _COURSE_ROWS else rows
        for rows in (train, test)
    )
    points = []
    for steps, model in _ever_longer(clone(method), X[train], y[train]):
        margins = margins_of(y[test], model.decision_function(X[test]), model.classes_).ravel()
        location = float(catoni_location(margins, getattr(model[-1], "scale_", 1.0)))
        wrong = float(np.mean(model.predict(X[test]) != y[test]))
        points.append((steps, wrong, location, margins))
    edges = _common_edges(points[-1][-1])
    checkpoints = tuple(
        Checkpoint(steps, wrong, location, tuple(_density(margins, edges).tolist()))
        for steps, wrong, location, margins in points
    )
    return Course(tuple(edges.tolist()), float(parameters.get("margin", 1.0)), checkpoints)


def _ever_longer(method: Any, X: Any, y: NDArray[Any]) -> Iterator[tuple[int, Any]]:
    """Fit with more and more steps; margin pursuit by the descent of the paper's Algorithm 1.

    Our own solvers arrive within a few steps, too few to look at.
    """
    by_descent = isinstance(method, classifiers.MarginPursuitClassifier)
    if by_descent:
        method.set_params(scale=_fit(clone(method), X, y)[-1].scale_, solver="steepest")
    for steps in _COURSE_STEPS:
        model = _fit(clone(method).set_params(max_iter=steps), X, y)
        yield steps, model
        if not by_descent and np.max(getattr(model[-1], "n_iter_", steps)) < steps:
            return  # arrived


def _common_edges(margins: FloatArray) -> FloatArray:
    """Return bins for nearly all margins of the last checkpoint, with zero among the edges."""
    low, high = np.quantile(margins, (0.002, 0.998))
    low, high = min(low, 0.0), max(high, 0.0)
    width = max(high - low, 1e-12) / _BINS
    below = int(np.ceil(-low / width))
    return np.asarray(width * np.arange(-below, _BINS - below + 1))


def _density(margins: FloatArray, edges: FloatArray) -> FloatArray:
    """Return the density in each bin; what lies outside is counted in the outermost ones."""
    counts, _ = np.histogram(np.clip(margins, edges[0], edges[-1]), edges)
    return np.asarray(counts / (len(margins) * (edges[1] - edges[0])))
