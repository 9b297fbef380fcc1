"""Few rows: the single fit and the search against logistic regression.

`news20_minilm` (sentence embeddings, 20 classes) with 8, 16 and 64 rows of each class, and two
tables with 50 to 400 rows in all. Each draw is a training part; the other rows, at most 6,000, are
the test part. Columns of logistic regression are standardised, except embeddings of unit length.
"""

import argparse
import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from common import significant, table, write_results
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from marginpursuit import MarginPursuitClassifier, MarginPursuitClassifierCV, datasets

#: Rows of each class, or rows in all.
CASES = {
    "news20_minilm": (8, 16, 64),
    "digit5": (50, 100, 200, 400),
    "spambase": (50, 100, 200, 400),
}


def draws(name: str, size: int, seeds: range) -> Iterator[tuple[Any, ...]]:
    """Yield training rows, their labels, test rows and their labels for each seed."""
    data = datasets.load(name, original_labels=True, fetch=False)
    X, y = np.asarray(data.X, dtype=np.float32), np.asarray(data.y)
    if name == "digit5":
        y = (y == 5).astype(int)
    for seed in seeds:
        order = np.random.default_rng(seed).permutation(len(y))
        # Each class in its proportion: some draws of 50 rows would have one row of digit 5.
        fractions = [np.mean(y == k) for k in np.unique(y)]
        counts = [
            size if name == "news20_minilm" else round(size * fraction) for fraction in fractions
        ]
        pairs = zip(np.unique(y), counts, strict=True)
        train = np.concatenate([order[y[order] == k][:count] for k, count in pairs])
        test = np.setdiff1d(order, train, assume_unique=True)
        test = np.random.default_rng(seed).permutation(test)[:6000]
        yield X[train], y[train], X[test], y[test]


def methods(name: str) -> dict[str, Any]:
    """Return unfitted classifiers."""
    scaling = "passthrough" if name == "news20_minilm" else StandardScaler()
    return {
        "single fit": MarginPursuitClassifier(),
        "search": MarginPursuitClassifierCV(),
        "LogisticRegression": make_pipeline(scaling, LogisticRegression()),
    }


def measure(model: Any, X: Any, y: Any, rows: Any, labels: Any) -> tuple[float, float, float]:
    """Return accuracy in per cent, log-loss and seconds of the fit."""
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # folds with few rows of a class, unfinished peers
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y)
    seconds = time.perf_counter() - start
    accuracy = 100 * float(np.mean(model.predict(rows) == labels))
    return accuracy, float(log_loss(labels, model.predict_proba(rows))), seconds


def run(names: list[str], seeds: range) -> Iterator[str]:
    """Yield one table for each data set."""
    for name in names:
        rows = []
        for size in CASES[name]:
            found: dict[str, list[tuple[float, float, float]]] = {key: [] for key in methods(name)}
            for part in draws(name, size, seeds):
                for key, model in methods(name).items():
                    found[key].append(measure(model, *part))
            *ours, peer = (np.array(values) for values in found.values())
            cells = [f"{np.mean(values[:, 0]):.2f}" for values in (*ours, peer)]
            for values in ours:
                difference = values[:, 0] - peer[:, 0]
                error = difference.std(ddof=1) / np.sqrt(len(difference))
                cells.append(f"{difference.mean():+.2f} ± {error:.2f}")
            cells += [f"{np.mean(values[:, 1]):.3f}" for values in (*ours, peer)]
            seconds = [np.median(values[:, 2]) for values in (*ours, peer)]
            cells += [significant(1e3 * own) for own in seconds]
            cells += [significant(seconds[-1] / own) for own in seconds[:-1]]
            rows.append((size, *cells))
        unit = "rows of each class" if name == "news20_minilm" else "rows"
        labels = ("single fit", "search", "LogisticRegression")
        header = (unit, *labels, "single fit less peer", "search less peer")
        header += tuple(f"log-loss, {label}" for label in labels)
        header += tuple(f"ms, {label}" for label in labels)
        header += tuple(f"LogisticRegression / ours, {label}" for label in labels[:-1])
        note = (
            f"Accuracy in per cent, means of {len(seeds)} draws, ± standard error; medians of the "
            "times."
        )
        yield table(name, header, rows, note)


def main() -> None:
    """Run with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--first", type=int, default=0, help="seed of the first draw")
    parser.add_argument("--draws", type=int, default=10)
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.draws)
    write_results("few-rows", run(options.sets, seeds))


if __name__ == "__main__":
    main()
