"""What the displays share."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from marginpursuit._validation import FloatArray, real

__all__ = ["axes", "fit_stages", "margins_of", "staged_margins"]


def axes(ax: Any) -> Any:
    """Return axes to draw on: the given ones, or those of a new figure."""
    if ax is not None:
        return ax
    from matplotlib.figure import Figure

    return Figure(layout="constrained").subplots()


def margins_of(y_true: ArrayLike, scores: ArrayLike, classes: ArrayLike) -> FloatArray:
    """Return the margins y h(x), in the shape of the scores.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        Classes of the samples.
    scores : array-like of shape (n_samples,) or (n_samples, n_classes)
        Scores h(x), as `decision_function` returns them.
    classes : array-like of shape (n_classes,)
        The classes, in the order of the scores.

    Returns
    -------
    ndarray
        Scores of the right class, and minus the scores of others.

    Examples
    --------
    >>> from marginpursuit.inspection import margins_of
    >>> margins_of(["no", "yes"], [0.5, 2.0], ["no", "yes"])
    array([-0.5,  2. ])
    """
    values, labels, names = real("scores", scores), np.asarray(y_true), np.asarray(classes)
    unknown = np.setdiff1d(labels, names)
    if len(unknown):
        raise ValueError(f"y_true has labels that are not in classes: {unknown.tolist()}")
    right = labels == names[1] if values.ndim == 1 else labels[:, np.newaxis] == names
    if values.shape != right.shape:
        raise ValueError(
            f"scores must have shape {right.shape} for {len(names)} classes; got {values.shape}"
        )
    return np.where(right, values, -values)


def fit_stages(
    estimator: Any, X: Any, y: ArrayLike, parameter: str, values: Sequence[Any]
) -> list[Any]:
    """Fit copies of an estimator with one parameter at several values."""
    models = [clone(estimator).set_params(**{parameter: value}) for value in values]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # some are to stop early
        return [model.fit(X, y) for model in models]


def staged_margins(
    y_true: ArrayLike, scores: ArrayLike, classes: ArrayLike, name: str, stages: ArrayLike
) -> tuple[FloatArray, FloatArray]:
    """Return stages as an array, and the margins of each as a row.

    The stages, of which there must be as many as scores, are positive and rise; `name` is what they
    are called.
    """
    values, rising = real("scores", scores), real(name, stages)
    if rising.ndim != 1 or len(rising) != len(values) or not len(rising):
        raise ValueError(
            f"{name} must be a list with an entry for each of {len(values)} stages of scores; got "
            f"shape {rising.shape}"
        )
    if rising[0] <= 0 or np.any(np.diff(rising) <= 0):
        raise ValueError(f"{name} must be positive and rise; got {rising.tolist()}")
    return rising, np.stack([margins_of(y_true, stage, classes).ravel() for stage in values])
