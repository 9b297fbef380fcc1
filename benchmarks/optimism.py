"""The score that a search reports, against the score on rows that it has not seen.

Nested validation: a search with five folds on some rows of a data set, then the accuracy of its
refit on up to 20,000 other rows, for several random draws. `best_score_` is the mean score of the
chosen candidate, often the largest of many, at a threshold that is fitted too. The difference from
the accuracy of the refit is its optimism; the refit has a quarter more rows than the fits to folds,
which makes it smaller.
"""

import argparse
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from common import table, write_results
from defaults import load

from marginpursuit import MarginPursuitClassifierCV

SETS = ("breast_cancer", "spambase", "a9a", "higgs_small", "digit5")
SEARCHES: dict[str, dict[str, Any]] = {
    'threshold="fitted"': {},
    'threshold="zero"': {"threshold": "zero"},
    'scoring="neg_log_loss"': {"scoring": "neg_log_loss"},
}


def differences(X: Any, y: Any, n_rows: int, seed: int) -> list[tuple[float, float]]:
    """Return `best_score_` and the score on other rows, for each search."""
    order = np.random.default_rng(seed).permutation(len(y))
    size = min(n_rows, int(0.7 * len(y)))
    train, test = order[:size], order[size : size + 20_000]
    found = []
    for options in SEARCHES.values():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = MarginPursuitClassifierCV(**options).fit(X[train], y[train])
        found.append((model.best_score_, model.score(X[test], y[test])))
    return found


def run(names: Iterable[str], sizes: Iterable[int], seeds: list[int]) -> Iterator[str]:
    """Yield a table for each search."""
    cases: list[tuple[str, int, Any]] = []
    for name in names:
        data = load(name)
        if data is None:
            continue
        for size in sizes:
            found = np.array([differences(*data, size, seed) for seed in seeds])
            cases.append((name, size, found))
    for k, search in enumerate(SEARCHES):
        rows = []
        for name, size, found in cases:
            reported, real = found[:, k].T
            difference = reported - real
            error = difference.std(ddof=1) / np.sqrt(len(seeds))
            means = (f"{x.mean():.4f}" for x in (reported, real))
            rows.append((name, size, *means, f"{difference.mean():+.4f} ± {error:.4f}"))
        optimism = [(found[:, k, 0] - found[:, k, 1]).mean() for _, _, found in cases]
        yield table(
            f"Optimism of the search, {search}",
            ("data", "rows", "best_score_", "score on other rows", "difference"),
            rows,
            f"Means over seeds {seeds}, ± standard error. Mean: {np.mean(optimism):+.4f}.",
        )


def main() -> None:
    """Run with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--rows", nargs="+", type=int, default=[200, 1000])
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(10)))
    options = parser.parse_args()
    write_results("optimism", run(options.sets, options.rows, options.seeds))


if __name__ == "__main__":
    main()
