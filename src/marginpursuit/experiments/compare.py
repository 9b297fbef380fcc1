"""Compare methods on a data set by cross-validation, under equal conditions.

Dense columns are standardised on the training part of each fold, for every method; sparse columns
are not. Every sample is held out once: errors, probabilities and margins are out-of-fold.
"""

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from marginpursuit import classifiers, selection
from marginpursuit._validation import FloatArray, count
from marginpursuit.experiments._margin_course import fit_standardised, margin_course
from marginpursuit.experiments.method_results import Fold, MethodResult, SetResult

__all__ = ["compare", "methods", "standardised"]


def methods(names: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the methods to compare: those of this library, and linear ones of scikit-learn.

    Parameters
    ----------
    names : sequence of str, optional
        Names of methods; by default all.

    Returns
    -------
    dict
        From name to unfitted estimator.

    Examples
    --------
    >>> from marginpursuit.experiments.compare import methods
    >>> list(methods(["MarginPursuitClassifier", "LinearSVC"]))
    ['MarginPursuitClassifier', 'LinearSVC']
    """
    ours = [
        getattr(package, name)() for package in (classifiers, selection) for name in package.__all__
    ]
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
    progress: Callable[[str], None] | None = None,
) -> SetResult:
    """Cross-validate methods on a data set.

    Parameters
    ----------
    X : {ndarray, sparse matrix} of shape (n_samples, n_features)
        Samples.
    y : ndarray of shape (n_samples,)
        Classes.
    name : str
        Name of the data set.
    description, sha256 : str, optional
        Description and hash of the data set; stored with the result.
    groups : ndarray of shape (n_samples,), optional
        Group of each sample; a group is held out as a whole.
    chosen : dict, optional
        From name to estimator; by default all of `methods`.
    n_folds : int, default=5
        Number of folds.
    seed : int, default=0
        Seed of the assignment of samples to folds.
    progress : callable, optional
        Called with the name of the method after each fold.

    Returns
    -------
    SetResult
        The results. A method that fails is included with its error.

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
            f"class {classes[sizes.argmin()].item()!r} has {sizes.min()} samples; each class needs "
            f"at least n_folds = {n_folds}. Reduce n_folds or merge classes."
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
            _cross_validate(title, method, X, y, splits, progress or (lambda name: None))
            for title, method in (methods() if chosen is None else chosen).items()
        ),
    )


def standardised(method: Any, X: Any, y: NDArray[Any]) -> Any:
    """Fit a linear method to standardised columns; return it for the original columns.

    Parameters
    ----------
    method : estimator
        A linear classifier, fitted in place.
    X : {ndarray, sparse matrix} of shape (n_samples, n_features)
        Samples; a sparse matrix is not standardised.
    y : ndarray of shape (n_samples,)
        Classes.

    Returns
    -------
    estimator
        The method, with coefficients in the units of X.

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
    progress: Callable[[str], None],
) -> MethodResult:
    """Fit a method to all folds; a failure is stored in the result."""
    settings = {key: repr(value) for key, value in method.get_params(deep=False).items()}
    folds: list[Fold] = []
    probabilities: list[tuple[FloatArray, NDArray[np.bool_]]] = []
    chosen: dict[str, float] = {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            for train, test in splits:
                start = time.perf_counter()
                model = fit_standardised(clone(method), X[train], y[train])
                seconds = time.perf_counter() - start
                error = float(np.mean(model.predict(X[test]) != y[test]))
                loss = None
                if hasattr(model, "predict_proba"):
                    proba = model.predict_proba(X[test])
                    loss = float(log_loss(y[test], proba, labels=model.classes_))
                    probabilities.append(_one_vs_rest(proba, y[test], model.classes_))
                folds.append(Fold(error, loss, seconds, len(test)))
                chosen = chosen or _fitted_numbers(model[-1])
                progress(name)
            course = margin_course(method, X, y, *splits[0])
    except Exception as failure:  # the other methods still run
        return MethodResult(
            name, settings, chosen, (), None, None, f"{type(failure).__name__}: {failure}"
        )
    calibration = _calibration(probabilities) if probabilities else None
    return MethodResult(name, settings, chosen, tuple(folds), calibration, course)


def _fitted_numbers(model: Any) -> dict[str, float]:
    """Return the hyper-parameters and counts chosen by the fit, of those that the model has."""
    names = ("scale_", "alpha_", "overconfidence_", "n_iter_", "n_passes_")
    values = {name: getattr(model, name, None) for name in names}
    values |= getattr(model, "best_params_", {})
    numbers = ((name, np.asarray(value)) for name, value in values.items())
    return {name: float(value.max()) for name, value in numbers if value.dtype.kind in "iuf"}


def _one_vs_rest(
    proba: FloatArray, y: NDArray[Any], classes: NDArray[Any]
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Return probabilities and outcomes of the positive class, or of every class with several."""
    outcome = y[:, np.newaxis] == classes
    if len(classes) == 2:
        return proba[:, 1], outcome[:, 1]
    return proba.ravel(), outcome.ravel()


def _calibration(
    parts: list[tuple[FloatArray, NDArray[np.bool_]]], n_bins: int = 10
) -> tuple[tuple[float, float, int], ...]:
    """Return mean probability, frequency and count of the non-empty bins of equal width."""
    proba = np.concatenate([part[0] for part in parts])
    outcome = np.concatenate([part[1] for part in parts])
    bins = np.minimum((proba * n_bins).astype(int), n_bins - 1)
    return tuple(
        (float(proba[inside].mean()), float(outcome[inside].mean()), int(inside.sum()))
        for inside in (bins == number for number in range(n_bins))
        if inside.any()
    )
