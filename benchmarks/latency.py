"""The time of a prediction for one row, over that of LogisticRegression.

    python benchmarks/latency.py [--calls N]

Calls of the two estimators alternate in batches; the ratio is that of processor times, with which
other programs interfere least.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from common import significant, table, write_results
from scipy import sparse
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.linear_model import LogisticRegression

from marginpursuit import MarginPursuitClassifier, MarginPursuitClassifierCV

METHODS = ("predict", "decision_function", "predict_proba")
CONTAINERS: dict[str, Callable[[Any], Any]] = {
    "float64 array": lambda X: X,
    "float32 array": lambda X: X.astype(np.float32),
    "list": lambda X: X.tolist(),
    "sparse matrix": sparse.csr_array,
    "data frame": lambda X: pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])]),
}


def batch_time(call: Callable[[Any], Any], row: Any, n_calls: int) -> float:
    """Return the processor time of one call, in microseconds."""
    start = time.process_time()
    for _ in range(n_calls):
        call(row)
    return 1e6 * (time.process_time() - start) / n_calls


def cells(ours: Any, peer: Any, row: Any, n_calls: int, n_batches: int = 20) -> Iterator[str]:
    """Yield the median ratio of the batches, and the shortest times, for each method."""
    for name in METHODS:
        calls = [getattr(model, name) for model in (ours, peer)]
        size = max(1, n_calls // n_batches)
        times = [[batch_time(call, row, size) for call in calls] for _ in range(n_batches)]
        first, second = np.array(times).T
        ratio = significant(np.median(first / second))
        yield f"{ratio} ({first.min():.0f} / {second.min():.0f} µs)"


def run(n_calls: int) -> Iterator[str]:
    """Yield a table of ratios."""
    rows = []
    for load in (load_breast_cancer, load_digits):
        X, y = load(return_X_y=True)
        X = X / X.std(axis=0).clip(1e-9)
        for container, convert in CONTAINERS.items():
            data, row = convert(X), convert(X[:1])
            peer = LogisticRegression(max_iter=10_000).fit(data, y)
            for ours in (MarginPursuitClassifier(), MarginPursuitClassifierCV()):
                found = cells(ours.fit(data, y), peer, row, n_calls)
                name = type(ours).__name__
                rows.append((load.__name__.removeprefix("load_"), container, name, *found))
    yield table(
        "Time of a prediction for one row over that of LogisticRegression",
        (
            *("data", "container", "estimator"),
            *(f"ours / LogisticRegression, {name}" for name in METHODS),
        ),
        rows,
        f"Target: at most 1. Medians over batches of {n_calls} calls in all, processor time; in "
        "brackets the shortest mean time of a batch, ours / LogisticRegression.",
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=4000)
    write_results("latency", run(parser.parse_args().calls))
