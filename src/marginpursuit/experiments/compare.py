"""Compare methods on a data set by cross-validation, under equal conditions.

Dense columns are standardised on the training part of each fold, for every method; sparse columns
are not. Every sample is held out once: errors, probabilities and margins are out-of-fold.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.linear_model import LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from marginpursuit import classifiers, selection
from marginpursuit.experiments.cross_validation import (
    Contamination,
    cross_validate,
    stratified_splits,
    vectorised_splits,
)
from marginpursuit.experiments.method_results import SetResult
from marginpursuit.experiments.scoring import SCORINGS

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
        if hasattr(method, "as_published"):
            known[f"{type(method).__name__}.as_published()"] = method.as_published()
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
    y: ArrayLike,
    *,
    name: str,
    description: str = "",
    sha256: str = "",
    groups: NDArray[Any] | None = None,
    chosen: Mapping[str, Any] | None = None,
    n_folds: int = 5,
    n_repeats: int = 1,
    seed: int = 0,
    scoring: str = "accuracy",
    baseline: str | None = None,
    contamination: Contamination | None = None,
    vectoriser: Any = None,
    progress: Callable[[str], None] | None = None,
) -> SetResult:
    """Cross-validate methods on a data set.

    Parameters
    ----------
    X : {array-like, sparse matrix, pandas.DataFrame} of shape (n_samples, n_features)
        Samples; a frame of mixed columns needs a `vectoriser`.
    y : array-like of shape (n_samples,)
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
    n_repeats : int, default=1
        Number of assignments of samples to folds.
    seed : int, default=0
        Seed of the first assignment of samples to folds.
    scoring : str, default="accuracy"
        The score that ranks the methods, one of `SCORINGS`.
    baseline : str, optional
        Name of the method that the others are compared with.
    contamination : Contamination, optional
        Contamination of the training rows of every fold; those of a mixed table are vectorised
        first.
    vectoriser : TableVectoriser, optional
        The transformer of a mixed table, fitted to the training rows of every fold.
    progress : callable, optional
        Called with the name of the method after each fold, and after a fold is vectorised.

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
    compared = dict(methods() if chosen is None else chosen)
    y = np.asarray(y)
    if vectoriser is None and not sparse.issparse(X):
        X = np.asarray(X)
    if scoring not in SCORINGS:
        raise ValueError(f"scoring must be one of {sorted(SCORINGS)}; got {scoring!r}")
    if baseline is not None and baseline not in compared:
        raise ValueError(
            f"baseline must be one of the methods {sorted(compared)}; got {baseline!r}"
        )
    classes, codes = np.unique(y, return_inverse=True)
    splits = stratified_splits(
        y,
        groups=groups,
        n_folds=n_folds,
        n_repeats=n_repeats,
        seed=seed,
        contamination=contamination,
    )
    if vectoriser is not None:
        splits = vectorised_splits(splits, vectoriser, X, progress)
    first = splits[0].matrices
    is_dense = not sparse.issparse(X if first is None else first[0])
    if contamination is not None:
        name = f"{name}, {contamination}"
        description += f" {contamination} among the training rows; held-out rows are unchanged."
    return SetResult(
        name,
        description.strip(),
        X.shape[0],
        X.shape[1],
        tuple(str(label) for label in classes.tolist()),
        is_dense,
        sha256,
        tuple(
            cross_validate(
                title,
                method,
                X,
                y if y.dtype.kind == "U" and _is_ours(method) else codes,
                splits,
                n_repeats=n_repeats,
                progress=progress,
            )
            for title, method in compared.items()
        ),
        scoring,
        baseline,
        () if vectoriser is None else tuple(map(str, vectoriser.describe(X))),
        majority_error=1 - float(np.bincount(codes).max()) / len(codes),
    )


def _is_ours(method: Any) -> bool:
    """Whether messages of a method may name its classes; some other methods reject text as such."""
    return type(method).__module__.partition(".")[0] == "marginpursuit"


def standardised(method: Any, X: Any, y: NDArray[Any]) -> Any:
    """Fit a method to standardised columns; return it for the original columns.

    A linear `MarginPursuitClassifierCV` is fitted to the original columns, since it standardises
    them.

    Parameters
    ----------
    method : estimator
        A classifier, fitted in place.
    X : {ndarray, sparse matrix} of shape (n_samples, n_features)
        Samples; a sparse matrix is not standardised.
    y : ndarray of shape (n_samples,)
        Classes.

    Returns
    -------
    estimator
        The method, with coefficients in the units of X. A method without coefficients, as with a
        kernel, is the last step of a pipeline with the `StandardScaler`.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.svm import LinearSVC
    >>> from marginpursuit.experiments.compare import standardised
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> standardised(LinearSVC(), X, y).score(X, y) > 0.98
    True
    """
    is_search = isinstance(method, selection.MarginPursuitClassifierCV)
    if sparse.issparse(X) or (is_search and method.kernel == "linear"):
        return method.fit(X, y)
    scaler = StandardScaler().fit(X)
    method.fit(scaler.transform(X), y)
    if not hasattr(method, "coef_"):
        return make_pipeline(scaler, method)
    method.coef_ = method.coef_ / scaler.scale_
    method.intercept_ = method.intercept_ - method.coef_ @ scaler.mean_
    return method
