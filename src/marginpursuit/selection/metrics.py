"""Metrics of scikit-learn, computed from class codes without its validation of each call.

A search over 56 candidates and five folds calls its scorer 280 times. On a hundred rows a call of
scikit-learn's log-loss takes about as long as ten fits. The functions here have the values of
scikit-learn's, where every class is among the rows; otherwise scikit-learn's scorer is called.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import (
    accuracy_score,
    balanced_accuracy_score,
    brier_score_loss,
    log_loss,
    roc_auc_score,
)

from marginpursuit._validation import FloatArray

#: A metric of class codes, predictions of the kind that it uses, and weights (None: equal).
Metric = Callable[[NDArray[np.intp], NDArray[Any], FloatArray | None], float]


def fast_metric(scorer: Any, n_classes: int) -> tuple[str, float, Metric] | None:
    """Return response method, sign and metric of a scorer of scikit-learn, if it has one here."""
    function, options = getattr(scorer, "_score_func", None), getattr(scorer, "_kwargs", None)
    kind = "binary" if n_classes == 2 else "several"
    for known, own_options, kinds, response, metric in _METRICS:
        if function is known and options == own_options and kind in kinds:
            return response, float(scorer._sign), metric
    return None


def _accuracy(codes: NDArray[np.intp], found: NDArray[Any], weights: FloatArray | None) -> float:
    return float(np.average(found == codes, weights=weights))


def _balanced_accuracy(
    codes: NDArray[np.intp], found: NDArray[Any], weights: FloatArray | None
) -> float:
    """Return the mean of the recalls of the classes with positive weight."""
    weights = np.ones(len(codes)) if weights is None else weights
    totals = np.bincount(codes, weights)
    correct = np.bincount(codes, weights * (found == codes))
    return float(np.mean(correct[totals > 0] / totals[totals > 0]))


def _log_loss(codes: NDArray[np.intp], proba: FloatArray, weights: FloatArray | None) -> float:
    own = proba[np.arange(len(codes)), codes]
    eps = float(np.finfo(np.float64).eps)
    logs = np.log(np.minimum(np.maximum(own, eps), 1.0 - eps))  # a third of the time of np.clip
    return -float(logs.mean() if weights is None else np.average(logs, weights=weights))


def _brier_score(codes: NDArray[np.intp], proba: FloatArray, weights: FloatArray | None) -> float:
    """Return the mean of Σ_k (p_k - y_k)²; half of it for two classes, as in scikit-learn."""
    own = proba[np.arange(len(codes)), codes]
    squares = np.einsum("nk,nk->n", proba, proba) + 1.0 - 2.0 * own
    factor = 0.5 if proba.shape[1] == 2 else 1.0
    return factor * float(np.average(squares, weights=weights))


def _roc_auc(codes: NDArray[np.intp], scores: FloatArray, weights: FloatArray | None) -> float:
    """Return the probability that a row of the second class has the larger score of two rows.

    The other row is of the first class; a tie counts one half.
    """
    weights = np.ones(len(codes)) if weights is None else weights
    is_first = codes == 0
    negative, positive = scores[is_first], scores[~is_first]
    order = np.argsort(negative)
    ends = [np.searchsorted(negative[order], positive, side=side) for side in ("left", "right")]
    cumulative = np.concatenate([[0.0], np.cumsum(weights[is_first][order])])
    own = weights[~is_first]
    below = own @ (cumulative[ends[0]] + cumulative[ends[1]])
    return float(0.5 * below / (own.sum() * cumulative[-1]))


def _roc_auc_ovr(codes: NDArray[np.intp], proba: FloatArray, weights: FloatArray | None) -> float:
    columns = enumerate(proba.T)
    return float(np.mean([_roc_auc(1 * (codes == k), p, weights) for k, p in columns]))


# Function of scikit-learn, its options, the numbers of classes, the response method, own function.
_METRICS: tuple[tuple[Any, dict[str, Any], tuple[str, ...], str, Metric], ...] = (
    (accuracy_score, {}, ("binary", "several"), "predict", _accuracy),
    (balanced_accuracy_score, {}, ("binary", "several"), "predict", _balanced_accuracy),
    (log_loss, {}, ("binary", "several"), "predict_proba", _log_loss),
    (brier_score_loss, {}, ("binary", "several"), "predict_proba", _brier_score),
    (roc_auc_score, {}, ("binary",), "decision_function", _roc_auc),
    (roc_auc_score, {"multi_class": "ovr"}, ("several",), "predict_proba", _roc_auc_ovr),
)
