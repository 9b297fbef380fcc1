"""Several labels against one logistic regression for each, by two wrappers of scikit-learn.

One has balanced weights of the classes too, by which a label is predicted more often.

The labels of news20 are made from its twenty classes: each label is a set of one to three classes,
as the tags of an article are. The sets are drawn with seed 0. Columns of dense data are
standardised for logistic regression; ours reads them as they are. Times of one thread are processor
times; set OPENBLAS_NUM_THREADS=1, so that threads of BLAS that wait are not counted.
"""

import argparse
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from common import significant, table, write_results
from defaults import load
from scipy import sparse
from sklearn.datasets import make_multilabel_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, label_ranking_average_precision_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from marginpursuit import MarginPursuitClassifier

#: Training rows of each data set.
ROWS = {"news20": (2000,), "news20_minilm": (2000, 13_192), "synthetic": (2000, 7000)}


def labelled(name: str, n_labels: int) -> tuple[Any, Any] | None:
    """Return X and an indicator matrix, or None if the data set is missing."""
    if name == "synthetic":
        X, Y = make_multilabel_classification(
            10_000, 60, n_classes=2 * n_labels, n_labels=5, length=500, random_state=0
        )
        frequent = np.argsort(-Y.sum(axis=0))[:n_labels]  # others are missing in some sample
        return X, Y[:, frequent]
    data = load(name)
    if data is None:
        return None
    X, y = data
    classes, random = np.unique(y), np.random.default_rng(0)
    tags = [random.choice(classes, random.integers(1, 4), replace=False) for _ in range(n_labels)]
    return X, np.stack([np.isin(y, tag) for tag in tags], axis=1).astype(int)


def measure(
    model: Any, parts: tuple[Any, ...], clock: Callable[[], float]
) -> tuple[float, float, float, float]:
    """Return micro and macro F1, ranking precision and the time of the fit by a clock."""
    train, labels, test, truth = parts
    start = clock()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(train, labels)
    seconds = clock() - start
    predicted = model.predict(test)
    proba = model.predict_proba(test)
    if isinstance(proba, list):  # of MultiOutputClassifier
        proba = np.stack([p[:, 1] for p in proba], axis=1)
    f1 = [f1_score(truth, predicted, average=kind, zero_division=0) for kind in ("micro", "macro")]
    return *f1, label_ranking_average_precision_score(truth, proba), seconds


def run(
    cases: Iterable[tuple[str, int]], n_labels: int, seeds: list[int], n_threads: int
) -> Iterator[str]:
    """Yield a table for each data set and number of rows."""
    clock = time.process_time if n_threads == 1 else time.perf_counter
    for name, n_rows in cases:
        data = labelled(name, n_labels)
        if data is None:
            yield f"{name}: missing"
            continue
        X, Y = data
        models = {
            "MarginPursuitClassifier": lambda: MarginPursuitClassifier(n_threads=n_threads),
            "OneVsRestClassifier": lambda: OneVsRestClassifier(LogisticRegression()),
            "MultiOutputClassifier": lambda: MultiOutputClassifier(LogisticRegression()),
            "OneVsRestClassifier, balanced": lambda: OneVsRestClassifier(
                LogisticRegression(class_weight="balanced")
            ),
        }
        results = np.empty((len(seeds), len(models), 4))
        for number, seed in enumerate(seeds):
            order = np.random.default_rng(seed).permutation(len(Y))
            train, test = order[:n_rows], order[n_rows : n_rows + 5000]
            test = test[Y[test].any(axis=1)]
            own = X[train], Y[train], X[test], Y[test]
            scaled = own
            if not sparse.issparse(X):
                scaler = StandardScaler().fit(X[train])
                scaled = scaler.transform(X[train]), Y[train], scaler.transform(X[test]), Y[test]
            for k, make in enumerate(models.values()):
                results[number, k] = measure(make(), own if k == 0 else scaled, clock)
        means = results.mean(axis=0)
        means[:, 3] = np.median(results[:, :, 3], axis=0)
        rows = [
            (
                method,
                *(f"{x:.4f}" for x in mean[:3]),
                f"{mean[3]:.2f}",
                significant(mean[3] / means[0, 3]),
            )
            for method, mean in zip(models, means, strict=True)
        ]
        yield table(
            f"{name}: {n_rows} rows, {X.shape[1]} columns, {n_labels} labels",
            ("method", "micro F1", "macro F1", "ranking precision", "seconds", "theirs / ours"),
            rows,
            f"Means over seeds {seeds}; seconds are medians of the "
            + ("processor time of one thread." if n_threads == 1 else "wall-clock time."),
        )


def main() -> None:
    """Run with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", default=list(ROWS), choices=list(ROWS))
    parser.add_argument("--rows", nargs="+", type=int, help="of each set, instead of its own")
    parser.add_argument("--labels", type=int, default=100)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--threads", type=int, default=1, help="with more, wall-clock times")
    options = parser.parse_args()
    cases = [(name, n_rows) for name in options.sets for n_rows in options.rows or ROWS[name]]
    with threadpool_limits(options.threads):
        tables = run(cases, options.labels, options.seeds, options.threads)
        write_results("labels", tables)


if __name__ == "__main__":
    main()
