"""The smoothing of the fitted link: log-loss of (1 - ε) p + ε/K with ε = c/(n + c), over c.

    python benchmarks/smoothing.py                 # the seeds of the choice
    python benchmarks/smoothing.py --seed 400      # other seeds

Each data set is split into 50 to 1,000 training rows and at most 3,000 test rows, three times.
"""

import argparse
import dataclasses
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from common import table, write_results
from scipy import sparse
from sklearn.model_selection import train_test_split

from marginpursuit import MarginPursuitClassifier, MarginPursuitClassifierCV, datasets

POSITIVE = {"digit5": 5, "cov": 2}
NAMES = ("iris", "wine", "breast_cancer", "digits", "spambase", "digit5", "a9a", "protein", "cov",
         "hiva")  # fmt: skip
PRIOR_ROWS = (0.0, 0.25, 0.5, 1.0, 2.0)


def problems(seed: int) -> Iterator[tuple[str, int, tuple[Any, ...]]]:
    """Yield name, number of rows, and training rows, test rows, and the labels of both."""
    for name in NAMES:
        try:
            data = datasets.load(name, original_labels=True, fetch=False)
        except datasets.DatasetError:
            continue
        y = np.asarray(data.y)
        y = (y == POSITIVE[name]).astype(int) if name in POSITIVE else y
        for n_rows in (50, 100, 200, 400, 1000):
            if n_rows > 0.7 * len(y):
                continue
            for draw in range(seed, seed + 3):
                n_test = min(3000, len(y) - n_rows)
                yield (
                    name,
                    n_rows,
                    train_test_split(
                        data.X,
                        y,
                        train_size=n_rows,
                        test_size=n_test,
                        stratify=y,
                        random_state=draw,
                    ),
                )


def losses(model: Any, part: tuple[Any, ...]) -> tuple[list[float], float]:
    """Return the log-loss at each c, and the fraction of rows with a probability below 1e-6."""
    X, X_test, y, y_test = (x.toarray() if sparse.issparse(x) else x for x in part)
    model.fit(X, y)
    place = np.searchsorted(model.classes_, y_test)
    scores = model.decision_function(X_test).reshape(len(y_test), -1)
    found = []
    for prior_rows in PRIOR_ROWS:
        smoothing = prior_rows / (len(y) + prior_rows)
        proba = dataclasses.replace(model.link_, smoothing=smoothing).probabilities(scores)
        if not prior_rows:
            below = float(np.mean(proba.min(axis=1) < 1e-6))
        found.append(-float(np.mean(np.log(proba[np.arange(len(place)), place]))))
    return found, below


def run(seed: int) -> Iterator[str]:
    header = ("data", "rows", "probability below 1e-6", *(f"c = {c:g}" for c in PRIOR_ROWS))
    for kind in (MarginPursuitClassifier, MarginPursuitClassifierCV):
        by_case: dict[tuple[str, int], list[Any]] = {}
        for name, n_rows, part in problems(seed):
            try:
                found = losses(kind(), part)
                by_case.setdefault((name, n_rows), []).append(found)
            except ValueError as error:  # a class with too few rows for folds
                print(name, n_rows, error)
        rows, changes = [], []
        for (name, n_rows), cases in by_case.items():
            values = np.array([loss for loss, _ in cases])
            below = np.mean([fraction for _, fraction in cases])
            changes += (values - values[:, :1]).tolist()
            rows.append((name, n_rows, f"{below:.3f}", *(f"{v:.4f}" for v in values.mean(axis=0))))
        for title, summary in (("mean change", np.mean), ("largest increase", np.max)):
            rows.append((title, "", "", *(f"{v:+.4f}" for v in summary(changes, axis=0))))
        yield table(
            f"{kind.__name__}: log-loss by smoothing, seeds {seed} to {seed + 2}", header, rows
        )


def main() -> None:
    """Run with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=300, help="The first of three seeds.")
    warnings.simplefilter("ignore")  # some draws have classes of one row
    seed = parser.parse_args().seed
    write_results("smoothing" if seed == 300 else f"smoothing-{seed}", run(seed))


if __name__ == "__main__":
    main()
