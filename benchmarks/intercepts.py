"""Suboptimality of Pegasos with each way to fit the intercept."""

from collections.abc import Iterator
from time import process_time
from typing import Any

import numpy as np
from common import load, significant, table
from sklearn.preprocessing import scale

from marginpursuit import MedianOfMeansClassifier, PegasosClassifier
from marginpursuit._validation import FloatArray

_SEEDS = 20
_FREE = {"penalise_intercept": False}
_INNER = {**_FREE, "search_intercept": "inner"}
_WAYS: dict[str, tuple[dict[str, Any], int]] = {  # parameters, and a factor of the steps
    "penalised": ({}, 1),
    "free": (_FREE, 1),
    "free, with search": (_INNER, 1),
    "with search, 13 times the steps": (_INNER, 13),
}


def run() -> Iterator[str]:
    """Measure on spambase, relative to the minimum without a penalty of the intercept."""
    data = load("spambase")
    if data is None:
        yield "Intercepts of Pegasos: spambase is missing, not run."
        return
    X, y = scale(np.asarray(data[0], dtype=np.float64)), data[1]
    sign = 2.0 * y - 1.0
    rows = [
        (f"{penalty:g}", f"{steps:,}", *cells)
        for penalty in (0.1, 0.01, 0.001)
        for steps in (10_000, 100_000)
        for cells in [_cells(X, y, sign, penalty, steps)]
    ]
    yield table(
        "Intercepts of Pegasos: per cent above the minimum on spambase",
        ("λ", "steps", *(f"ours / free, {way}" for way in _WAYS if way != "free"), *_WAYS),
        rows,
        f"Median and mean of {_SEEDS} seeds. Ratios: of processor times.",
    )


def _cells(X: FloatArray, y: Any, sign: FloatArray, penalty: float, steps: int) -> Iterator[str]:
    best = MedianOfMeansClassifier(n_blocks=1, loss="hinge", alpha=penalty, tol=1e-8, max_iter=1000)
    least = _objective(best.fit(X, y), X, sign, penalty)
    above, seconds = {}, {}
    for way, (options, times) in _WAYS.items():
        begin = process_time()
        fits = [
            PegasosClassifier(
                alpha=penalty, max_iter=times * steps, random_state=seed, **options
            ).fit(X, y)
            for seed in range(_SEEDS)
        ]
        seconds[way] = process_time() - begin
        above[way] = [100 * (_objective(fit, X, sign, penalty) / least - 1) for fit in fits]
    for way, own in seconds.items():
        if way != "free":
            yield significant(own / seconds["free"])
    for values in above.values():
        median, mean = (
            f"{x:.2g}" if x < 99 else f"{x:.0f}" for x in (np.median(values), np.mean(values))
        )
        yield f"{median}, {mean}"


def _objective(model: Any, X: FloatArray, sign: FloatArray, penalty: float) -> float:
    hinge = np.maximum(1.0 - sign * model.decision_function(X), 0.0).mean()
    return float(hinge + 0.5 * penalty * np.sum(model.coef_**2))
