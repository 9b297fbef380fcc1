"""Data and formulas that the tests of the classifiers share."""

import numpy as np
from sklearn.datasets import load_breast_cancer, load_iris

CANCER = load_breast_cancer(return_X_y=True)
IRIS = load_iris(return_X_y=True)


def noisy(n_rows=400, n_columns=6, n_classes=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, n_columns)) * 10.0 ** rng.integers(-2, 3, n_columns) + 3.0
    score = (X - X.mean(axis=0)) / X.std(axis=0) @ rng.normal(size=n_columns)
    score += rng.logistic(size=n_rows)
    return X, np.searchsorted(np.quantile(score, np.arange(1, n_classes) / n_classes), score)


def rho(u):
    """The loss of the paper, written out again."""
    inner = np.abs(u) <= np.sqrt(2)
    return np.where(inner, u**2 / 2 - u**4 / 24, 2 * np.sqrt(2) / 3 * np.abs(u) - 0.5)


def objective(coef, intercept, X, sign, weights, *, margin, scale, overconfidence, penalty):
    """What is minimised, written out: penalty is that of each squared coefficient."""
    residual = margin - sign * (X @ coef + intercept)
    loss = np.where(residual < 0, overconfidence, 1.0) * scale**2 * rho(residual / scale)
    return float(weights @ loss / weights.sum() + 0.5 * np.sum(penalty * coef**2))


def make_data(n_rows=120, n_columns=5, n_classes=2, seed=0):
    """Small whole numbers, which every dtype holds exactly, and labels that follow them."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 50, (n_rows, n_columns)).astype(np.float64)
    score = X @ rng.normal(size=n_columns) + 10.0 * rng.normal(size=n_rows)
    return X, np.searchsorted(np.quantile(score, np.arange(1, n_classes) / n_classes), score)
