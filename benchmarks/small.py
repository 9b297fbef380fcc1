"""Small data, where the fixed cost of a fit dominates, against LinearSVC."""

import warnings
from collections.abc import Iterator

import numpy as np
from common import shortest_time, table
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC

from marginpursuit import MarginPursuitClassifier


def run() -> Iterator[str]:
    """Measure two small shapes of the paper."""
    rng = np.random.default_rng(0)
    rows = []
    for name, X in (
        ("540 x 54, normal", rng.normal(size=(540, 54))),
        ("425 x 4932, binary, 11 % ones", (rng.random((425, 4932)) < 0.11).astype(np.float64)),
    ):
        noise = rng.normal(size=len(X))
        score = (X - X.mean(axis=0)) @ rng.normal(size=X.shape[1])
        y = (score / score.std() + noise > 0).astype(int)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            peer = shortest_time(lambda X=X, y=y: LinearSVC().fit(X, y))
        for scale in ("auto", 1.0):
            ours = shortest_time(
                lambda X=X, y=y, s=scale: MarginPursuitClassifier(scale=s).fit(X, y)
            )
            ratio = f"{peer / ours:.1f}"
            rows.append((name, scale, f"{1e3 * ours:.1f}", f"{1e3 * peer:.1f}", ratio))
    yield table(
        "Small data: a fit, against LinearSVC",
        ("data", "scale", "ours, ms", "LinearSVC, ms", "LinearSVC / ours"),
        rows,
        "Other parameters have their defaults. Target: above 1.",
    )
