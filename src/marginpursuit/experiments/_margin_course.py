"""Held-out margins of fits with a growing number of iterations."""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from marginpursuit._validation import FloatArray
from marginpursuit.classifiers import MarginPursuitClassifier
from marginpursuit.experiments.method_results import Checkpoint, Course
from marginpursuit.inspection import margins_of
from marginpursuit.location import catoni_location

__all__ = ["fit_standardised", "margin_course"]


def fit_standardised(method: Any, X: Any, y: NDArray[Any]) -> Pipeline:
    """Fit a method to standardised columns; sparse columns are not standardised."""
    scaling = "passthrough" if sparse.issparse(X) else StandardScaler()
    return make_pipeline(scaling, method).fit(X, y)


def margin_course(
    method: Any,
    X_train: Any,
    y_train: NDArray[Any],
    X_test: Any,
    y_test: NDArray[Any],
    *,
    max_rows: int = 5000,
) -> Course | None:
    """Return the held-out margins after 1, 2, 4, … iterations; None without `max_iter`.

    At most `max_rows` training rows and `max_rows` test rows are used.
    """
    parameters = method.get_params(deep=False)
    if not isinstance(parameters.get("max_iter"), int) or "cv" in parameters:
        return None
    generator = np.random.default_rng(0)
    train, test = (
        generator.permutation(len(y))[:max_rows] if len(y) > max_rows else slice(None)
        for y in (y_train, y_test)
    )
    X_test, y_test = X_test[test], y_test[test]
    points = []
    for steps, model in _longer_fits(clone(method), X_train[train], y_train[train]):
        margins = margins_of(y_test, model.decision_function(X_test), model.classes_).ravel()
        location = float(catoni_location(margins, getattr(model[-1], "scale_", 1.0)))
        error = float(np.mean(model.predict(X_test) != y_test))
        points.append((steps, error, location, margins))
    edges = _bin_edges(points[-1][-1])
    checkpoints = tuple(
        Checkpoint(steps, error, location, tuple(_density(margins, edges).tolist()))
        for steps, error, location, margins in points
    )
    return Course(tuple(edges.tolist()), float(parameters.get("margin", 1.0)), checkpoints)


def _longer_fits(method: Any, X: Any, y: NDArray[Any]) -> Iterator[tuple[int, Any]]:
    """Yield fits with `max_iter` of 1, 2, 4, …, 512, up to convergence.

    Margin pursuit uses the gradient descent of the paper's Algorithm 1, since the other solvers
    converge within a few iterations.
    """
    by_descent = isinstance(method, MarginPursuitClassifier)
    if by_descent:
        scale = fit_standardised(clone(method), X, y)[-1].scale_
        method.set_params(scale=scale, solver="steepest", probability=None, multi_class="ovr")
    for steps in (2**k for k in range(10)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # few steps are intended
            model = fit_standardised(clone(method).set_params(max_iter=steps), X, y)
        yield steps, model
        if not by_descent and np.max(getattr(model[-1], "n_iter_", steps)) < steps:
            return  # converged


def _bin_edges(margins: FloatArray, n_bins: int = 60) -> FloatArray:
    """Return edges of bins for 99.6 % of the margins; zero is one of the edges."""
    low, high = np.quantile(margins, (0.002, 0.998))
    low, high = min(low, 0.0), max(high, 0.0)
    width = max(high - low, 1e-12) / n_bins
    n_negative = int(np.ceil(-low / width))
    return np.asarray(width * np.arange(-n_negative, n_bins - n_negative + 1))


def _density(margins: FloatArray, edges: FloatArray) -> FloatArray:
    """Return the density in each bin; margins outside count in the outermost bins."""
    counts, _ = np.histogram(np.clip(margins, edges[0], edges[-1]), edges)
    return np.asarray(counts / (len(margins) * (edges[1] - edges[0])))
