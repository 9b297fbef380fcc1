"""Standard errors of coefficients by the bootstrap."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from marginpursuit._validation import FloatArray, count

__all__ = ["bootstrap_coefficients"]


def bootstrap_coefficients(
    fit: Callable[[Any, Any], Any],
    X: Any,
    y: ArrayLike,
    *,
    n_resamples: int = 100,
    random_state: int = 0,
    progress: Callable[[str], None] | None = None,
) -> FloatArray:
    """Return the standard errors of the coefficients of a linear classifier.

    Rows are drawn with replacement within each class, and the classifier is fitted again. The
    standard error is the standard deviation over the fits. It has no part for the choice of
    hyper-parameters, nor for the bias of the penalty.

    Parameters
    ----------
    fit : callable
        Called with X and y; returns a fitted classifier with `coef_`.
    X : {ndarray, sparse matrix} of shape (n_samples, n_features)
        Training samples.
    y : array-like of shape (n_samples,)
        Classes.
    n_resamples : int, default=100
        The number of fits.
    random_state : int, default=0
        The seed of the draws.
    progress : callable, optional
        Called after each fit.

    Returns
    -------
    ndarray of shape (n_problems, n_features)
        The standard errors, in the shape of `coef_`.

    Examples
    --------
    >>> import numpy as np
    >>> from marginpursuit import MarginPursuitClassifier
    >>> from marginpursuit.inspection import bootstrap_coefficients
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2))
    >>> y = X[:, 0] + 0.5 * rng.normal(size=200) > 0
    >>> model = MarginPursuitClassifier(probability=None).fit(X, y)
    >>> errors = bootstrap_coefficients(lambda X, y: model.fit(X, y), X, y, n_resamples=20)
    >>> errors.shape, bool((errors > 0).all())
    ((1, 2), True)
    """
    count("n_resamples", n_resamples, least=2)
    labels = np.asarray(y)
    groups = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    rng = np.random.default_rng(random_state)
    coefs = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the fit to all rows has given the same warnings
        for _ in range(n_resamples):
            rows = np.concatenate([rng.choice(group, len(group)) for group in groups])
            coefs.append(np.array(fit(X[rows], labels[rows]).coef_))
            if progress is not None:
                progress("bootstrap")
    return np.asarray(np.std(coefs, axis=0, ddof=1))
