"""Coefficients of a linear classifier in the units of the table, with standard errors."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone

from marginpursuit._validation import FloatArray
from marginpursuit.experiments.compare import standardised
from marginpursuit.experiments.method_results import Coefficient
from marginpursuit.inspection import bootstrap_coefficients

__all__ = ["Bootstrap", "bootstrap", "list_coefficients"]


class Bootstrap(NamedTuple):
    """Standard errors of the coefficients of a fit.

    Attributes
    ----------
    coef : ndarray of shape (n_problems, n_features)
        The coefficients of the fit.
    errors : ndarray of shape (n_problems, n_features)
        Their standard errors.
    deviations : ndarray of shape (n_features,)
        The standard deviations of the features.
    n_resamples : int
        The number of fits of the bootstrap.
    """

    coef: FloatArray
    errors: FloatArray
    deviations: FloatArray
    n_resamples: int

    @classmethod
    def of(cls, model: Any) -> "Bootstrap | None":
        """Return the standard errors that `store` has left, if they are those of the present fit.

        They are absent or of another fit if the model was fitted by other means since.
        """
        stored = getattr(model, "bootstrap_", None)
        coef = np.atleast_2d(model.coef_)
        if not isinstance(stored, dict) or set(stored) != set(cls._fields):
            return None
        found = cls(**stored)
        shapes = [np.shape(found.coef), np.shape(found.errors), np.shape(found.deviations)]
        if shapes != [coef.shape, coef.shape, coef.shape[1:]]:
            return None
        return found if np.array_equal(found.coef, coef) else None

    def store(self, model: Any) -> None:
        """Keep the standard errors in a fitted model, and thus in its file."""
        model.bootstrap_ = self._asdict()


def bootstrap(
    model: Any,
    matrix: Any,
    y: NDArray[Any],
    n_resamples: int,
    progress: Callable[[str], None] | None = None,
) -> Bootstrap:
    """Return the standard errors of the coefficients of a fitted classifier.

    Parameters
    ----------
    model : estimator
        The fitted classifier.
    matrix : {ndarray, sparse matrix} of shape (n_samples, n_features)
        Its training samples.
    y : ndarray of shape (n_samples,)
        Their classes.
    n_resamples : int
        The number of fits, with the hyper-parameters of `model`.
    progress : callable, optional
        Called after each fit.

    Returns
    -------
    Bootstrap
        The standard errors.
    """
    pattern = getattr(model, "best_estimator_", model)
    if "probability" in pattern.get_params():  # saves the half fits
        pattern = clone(pattern).set_params(probability=None)
    errors = bootstrap_coefficients(
        lambda X, y: standardised(clone(pattern), X, y),
        matrix,
        y,
        n_resamples=n_resamples,
        progress=progress,
    )
    return Bootstrap(np.atleast_2d(model.coef_), errors, _deviations(matrix), n_resamples)


def list_coefficients(
    model: Any,
    *,
    features: Sequence[Any] | None = None,
    bootstrap: Bootstrap | None = None,
) -> tuple[Coefficient, ...]:
    """List the coefficients of a linear classifier in the units of the table.

    Parameters
    ----------
    model : estimator
        A fitted linear classifier.
    features : sequence of Feature, optional
        Names and units of the columns of the matrix; by default those of the model.
    bootstrap : Bootstrap, optional
        Standard errors, and the deviations of the features, which give the importance.

    Returns
    -------
    tuple of Coefficient
        The most important first: by effect times the standard deviation of the feature, or by the
        effect of a standardised feature if there is no bootstrap.
    """
    coef = np.atleast_2d(model.coef_)
    names, changes, scales = _units(model, coef.shape[1], features)
    spread = scales if bootstrap is None else bootstrap.deviations * scales
    effects = coef / scales
    labels = model.classes_[1:] if len(coef) == 1 else model.classes_
    order = np.argsort(-(np.abs(effects) * spread), axis=None)
    found = []
    for place in order.tolist():
        problem, column = divmod(place, coef.shape[1])
        effect = float(effects[problem, column])
        found.append(
            Coefficient(
                str(labels[problem]),
                names[column],
                changes[column],
                effect,
                None
                if bootstrap is None
                else float(bootstrap.errors[problem, column] / scales[column]),
                None if bootstrap is None else abs(effect) * float(spread[column]),
            )
        )
    return tuple(found)


def _units(
    model: Any, n_columns: int, features: Sequence[Any] | None
) -> tuple[list[str], list[str], FloatArray]:
    """Return names, changes and scales of the columns of a matrix."""
    if features is not None:
        return (
            [feature.name for feature in features],
            [feature.unit for feature in features],
            np.array([feature.scale for feature in features]),
        )
    names = getattr(model, "feature_names_in_", None)
    used = getattr(model, "used_columns_", np.ones(n_columns, dtype=bool))
    numbered = [f"column {number + 1}" for number in np.flatnonzero(used).tolist()]
    return list(numbered if names is None else names), ["+1"] * n_columns, np.ones(n_columns)


def _deviations(matrix: Any) -> FloatArray:
    if not sparse.issparse(matrix):
        return np.asarray(np.std(matrix, axis=0, dtype=np.float64))
    csr = sparse.csr_array(matrix)  # type: ignore[call-overload]
    mean = np.asarray(csr.mean(axis=0)).ravel()
    squares = np.asarray(csr.multiply(csr).mean(axis=0)).ravel()
    return np.asarray(np.sqrt(np.maximum(squares - mean**2, 0.0)))
