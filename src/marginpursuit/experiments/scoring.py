"""Scores of held-out predictions under scikit-learn's names, and how each is written."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import f1_score, log_loss, roc_auc_score

from marginpursuit._validation import FloatArray

__all__ = ["SCORINGS", "Predictions", "Scoring", "all_scores"]


@dataclass(frozen=True, slots=True)
class Scoring:
    """A score, and the quantity that is written in its place.

    Attributes
    ----------
    name : str
        Name of the score in scikit-learn; larger is better.
    quantity : str
        Name of the written quantity, such as "error" for the accuracy.
    offset, sign : float
        The written quantity is offset + sign · score. With sign -1 smaller is better.
    is_percentage : bool
        Whether the quantity is written in per cent, and differences of it in points.

    Examples
    --------
    >>> from marginpursuit.experiments.scoring import SCORINGS
    >>> SCORINGS["accuracy"].written(0.975), SCORINGS["roc_auc"].written(0.975)
    ('2.50 %', '0.975')
    >>> SCORINGS["accuracy"].written_difference(0.014, 0.005), SCORINGS["accuracy"].unit
    ('-1.4 ± 0.5', 'points of error')
    """

    name: str
    quantity: str
    offset: float
    sign: float
    is_percentage: bool

    def value(self, score: float) -> float:
        """Return the written quantity, as a fraction."""
        return self.offset + self.sign * score

    def written(self, score: float) -> str:
        """Return the quantity as text."""
        value = self.value(score)
        return f"{100 * value:.2f} %" if self.is_percentage else f"{value:.3f}"

    def written_interval(self, low: float, high: float) -> str:
        """Return an interval of scores as an interval of the quantity, within its range."""
        largest = math.inf if self.name == "neg_log_loss" else 1.0
        ends = sorted(min(max(0.0, self.value(score)), largest) for score in (low, high))
        if self.is_percentage:
            return f"{100 * ends[0]:.2f} to {100 * ends[1]:.2f} %"
        return f"{ends[0]:.3f} to {ends[1]:.3f}"

    def written_difference(self, mean: float, half_width: float) -> str:
        """Return a difference of scores and the half width of its interval, without unit."""
        factor, digits = (100.0, 1) if self.is_percentage else (1.0, 3)
        change = round(factor * self.sign * mean, digits) + 0.0  # the sum replaces a negative zero
        return f"{change:+.{digits}f} ± {factor * half_width:.{digits}f}"

    @property
    def unit(self) -> str:
        """The unit of a difference."""
        return f"points of {self.quantity}" if self.is_percentage else self.quantity


#: The scores of a comparison, by name.
SCORINGS: dict[str, Scoring] = {
    scoring.name: scoring
    for scoring in (
        Scoring("accuracy", "error", 1.0, -1.0, True),
        Scoring("balanced_accuracy", "balanced error", 1.0, -1.0, True),
        Scoring("roc_auc", "AUC", 0.0, 1.0, False),
        Scoring("neg_log_loss", "log-loss", 0.0, -1.0, False),
        Scoring("f1", "F1", 0.0, 1.0, False),
    )
}


class Predictions(NamedTuple):
    """The predictions of a model for held-out samples.

    Attributes
    ----------
    classes : ndarray of shape (n_classes,)
        The classes of the model.
    labels : ndarray of shape (n_samples,)
        The predicted classes.
    proba : ndarray of shape (n_samples, n_classes) or None
        Probabilities; None without `predict_proba`.
    ranking : ndarray of shape (n_samples,) or (n_samples, n_classes), or None
        Scores of the second of two classes, or of each class; None without any. Two classes have
        those of `decision_function` if it exists, several have probabilities if they exist: the
        decision functions of a joint fit rank a class relative to the others of the same sample.
    """

    classes: NDArray[Any]
    labels: NDArray[Any]
    proba: FloatArray | None
    ranking: FloatArray | None

    @classmethod
    def of(cls, model: Any, X: Any) -> "Predictions":
        """Return the predictions of a fitted model."""
        proba = model.predict_proba(X) if hasattr(model, "predict_proba") else None
        binary = len(model.classes_) == 2
        ranking = proba[:, 1] if binary and proba is not None else proba
        if hasattr(model, "decision_function") and (binary or proba is None):
            ranking = model.decision_function(X)
        return cls(model.classes_, model.predict(X), proba, ranking)


def all_scores(y: NDArray[Any], predicted: Predictions) -> dict[str, float]:
    """Return the scores of held-out samples.

    F1 and AUC refer to the second of two classes in sorted order. With several classes they are
    unweighted means over the classes, each against the rest; over those that y has for the AUC.

    Parameters
    ----------
    y : ndarray of shape (n_samples,)
        The true classes.
    predicted : Predictions
        The predictions.

    Returns
    -------
    dict
        From the names in `SCORINGS` to scores. The log-loss is absent without probabilities. The
        AUC is absent without a ranking, and if fewer than two classes have samples.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.linear_model import RidgeClassifier
    >>> from marginpursuit.experiments.scoring import Predictions, all_scores
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> sorted(all_scores(y, Predictions.of(RidgeClassifier().fit(X, y), X)))
    ['accuracy', 'balanced_accuracy', 'f1', 'roc_auc']
    """
    classes, labels = predicted.classes, predicted.labels
    average = {"pos_label": classes[1]} if len(classes) == 2 else {"average": "macro"}
    # The mean recall over the classes that y has.
    recalls = [np.mean(labels[y == label] == label) for label in np.unique(y)]
    scores: dict[str, Any] = {
        "accuracy": np.mean(labels == y),
        "balanced_accuracy": np.mean(recalls),
        "f1": f1_score(y, labels, zero_division=0.0, **average),
    }
    if predicted.proba is not None:
        scores["neg_log_loss"] = -log_loss(y, predicted.proba, labels=classes)
    outcomes = y[:, np.newaxis] == classes
    present = outcomes.any(axis=0)
    if predicted.ranking is not None and present.sum() >= 2:
        binary = len(classes) == 2
        truth = outcomes[:, 1] if binary else outcomes[:, present]
        ranking = predicted.ranking if binary else predicted.ranking[:, present]
        scores["roc_auc"] = roc_auc_score(truth, ranking)
    return {name: float(score) for name, score in scores.items()}
