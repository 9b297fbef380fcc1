"""Rows that lie far from the others, and rows that change a fit most."""

from dataclasses import dataclass
from reprlib import repr as short
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.validation import column_or_1d

from marginpursuit._validation import FloatArray
from marginpursuit.losses import JointLoss, MarginLoss

__all__ = ["RowInfluence", "row_influence"]


@dataclass(frozen=True, eq=False)
class RowInfluence:
    """How far each row lies from the others, and how much it changes the fit.

    Attributes
    ----------
    distance : ndarray of shape (n_samples,)
        The norm of the standardised row (sparse data: of the row), divided by its median.
    influence : ndarray of shape (n_samples,) or None
        The first-order change of the scores if the row is left out, divided by its mean over the
        rows. None for classifiers without a margin loss, and for several labels.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from marginpursuit import MarginPursuitClassifier
    >>> from marginpursuit.inspection import row_influence
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> found = row_influence(MarginPursuitClassifier().fit(X, y), X, y)
    >>> found.distance.shape, round(float(found.influence.mean()), 6)
    ((569,), 1.0)
    """

    distance: FloatArray
    influence: FloatArray | None


def row_influence(model: Any, X: Any, y: NDArray[Any], max_columns: int = 2000) -> RowInfluence:
    r"""Measure the distance of each row from the others, and its influence on a fit.

    A row with standardised features x, weight w and derivative g of its loss in the score changes
    the coefficients by H⁻¹x wg/n to first order, with the Hessian H of the objective. The root mean
    square of the change of all scores is w \|g\| √(xᵀH⁻¹GH⁻¹x) / n, with the Gram matrix G. With
    three classes or more, H is replaced by its bound, G. With more than `max_columns` columns or
    sparse data, G is replaced by the identity.

    Parameters
    ----------
    model : estimator
        A fitted linear classifier; influences need `MarginPursuitClassifier` or
        `MarginPursuitClassifierCV`.
    X : {ndarray, sparse matrix} of shape (n_samples, n_features)
        The training samples.
    y : ndarray of shape (n_samples,)
        Their classes.
    max_columns : int, default=2000
        The most columns of a Gram matrix.

    Returns
    -------
    RowInfluence
        Distances and influences.

    Examples
    --------
    >>> import numpy as np
    >>> from marginpursuit import MarginPursuitClassifier
    >>> from marginpursuit.inspection import row_influence
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 2))
    >>> y = (X[:, 0] > 0).astype(int)
    >>> X[7] *= 50
    >>> int(row_influence(MarginPursuitClassifier().fit(X, y), X, y).distance.argmax())
    7
    """
    centred = None
    if sparse.issparse(X):
        norms = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())  # type: ignore[attr-defined]
    else:
        columns = np.asarray(X, dtype=np.float64)
        deviation = columns.std(axis=0)
        centred = (columns - columns.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
        norms = np.linalg.norm(centred, axis=1)
    median = float(np.median(norms[norms > 0])) if np.any(norms > 0) else 1.0
    loss, fitted = _loss(model), getattr(model, "best_estimator_", model)
    if loss is None:
        return RowInfluence(norms / median, None)
    bound = getattr(model, "leverage_bound", None)
    limit = np.inf if bound is None else bound * median
    weights = np.divide(limit, norms, out=np.ones(len(norms)), where=norms > limit)
    slopes, curvatures = _derivatives(loss, fitted, model.decision_function(X), _codes(model, y))
    if centred is None or centred.shape[1] > max_columns:
        lengths = np.sqrt(1.0 + norms**2)
    else:
        lengths = _score_changes(centred, weights * curvatures)
    influence = weights * slopes * lengths
    mean = float(influence.mean())
    return RowInfluence(norms / median, influence / mean if mean > 0 else influence)


def _score_changes(centred: FloatArray, curvatures: FloatArray, ridge: float = 1e-3) -> FloatArray:
    """Return √(xᵀH⁻¹GH⁻¹x) of each row; the ridge, relative to the trace, keeps H invertible."""
    rows = np.column_stack([np.ones(len(centred)), centred])
    gram = rows.T @ rows / len(rows)
    hessian = (rows * curvatures[:, np.newaxis]).T @ rows / len(rows)
    size = len(hessian)
    hessian[np.diag_indices(size)] += ridge * max(float(np.trace(hessian)) / size, 1e-12)
    solved = np.linalg.solve(hessian, rows.T)
    return np.asarray(np.sqrt(np.maximum(np.einsum("ij,ij->j", solved, gram @ solved), 0.0)))


def _codes(model: Any, y: NDArray[Any]) -> NDArray[np.intp]:
    labels = column_or_1d(y, warn=True)
    unknown = np.setdiff1d(labels, model.classes_)
    if len(unknown):
        raise ValueError(
            f"y has classes that the model does not have: {short(unknown.tolist())}; expected some "
            f"of {short(model.classes_.tolist())}, as in its fit"
        )
    return np.asarray(np.searchsorted(model.classes_, labels))


def _loss(model: Any) -> MarginLoss | None:
    """Return the margin loss of a classifier; None for another loss and for several labels."""
    fitted = getattr(model, "best_estimator_", model)
    names = ("margin", "scale_", "overconfidence", "rho")
    has_labels = getattr(model, "multilabel_", False)
    if has_labels or not all(hasattr(fitted, name) for name in names):
        return None
    return MarginLoss(*(getattr(fitted, name) for name in names))


def _derivatives(
    loss: MarginLoss, fitted: Any, scores: FloatArray, codes: NDArray[np.intp]
) -> tuple[FloatArray, FloatArray]:
    """Return the norm of the derivative of the loss in the scores, and a curvature, of each row."""
    if scores.ndim == 1:
        margins = (2 * codes - 1) * scores
        return np.abs(np.asarray(loss.derivative(margins))), np.asarray(loss.curvature(margins))
    if getattr(fitted, "multi_class_", "ovr") == "joint":
        gradient = JointLoss.at_level(loss).gradient(scores, codes)
    else:
        signs = np.where(np.arange(scores.shape[1]) == codes[:, np.newaxis], 1.0, -1.0)
        gradient = np.asarray(loss.derivative(signs * scores))
    return np.asarray(np.linalg.norm(gradient, axis=1)), np.ones(len(codes))
