"""The time of a search with a scorer of scikit-learn, over that with the default scoring.

The searches of one repetition follow each other, and the ratio is that of processor times: it
varies less than that of elapsed times if other programs run.
"""

import argparse
import time
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from common import load, significant, table, write_results
from sklearn import datasets as toy

from marginpursuit import MarginPursuitClassifierCV

TOY = ("iris", "wine", "breast_cancer", "digits")
SCORERS = ("accuracy", "neg_log_loss", "neg_brier_score", "roc_auc", "balanced_accuracy")


def seconds(X: Any, y: Any, scoring: str | None) -> float:
    """Return the processor time of one search with one thread."""
    start = time.process_time()
    MarginPursuitClassifierCV(scoring=scoring, n_threads=1).fit(X, y)
    return time.process_time() - start


def run(names: Iterable[str], repeats: int) -> Iterator[str]:
    """Yield a table of ratios."""
    rows = []
    for name in names:
        data = getattr(toy, f"load_{name}")(return_X_y=True) if name in TOY else load(name)
        if data is None:
            rows.append((name, "missing"))
            continue
        X, y = data
        suffix = "_ovr" if len(np.unique(y)) > 2 else ""
        scorers = [f"roc_auc{suffix}" if scorer == "roc_auc" else scorer for scorer in SCORERS]
        found = [[seconds(X, y, scoring) for scoring in (None, *scorers)] for _ in range(repeats)]
        times = np.array(found)
        ratios = np.median(times[:, 1:] / times[:, :1], axis=0)
        rows.append((name, len(y), f"{times[:, 0].min():.2f} s", *map(significant, ratios)))
    yield table(
        "Time of a search over that with the default scoring",
        ("data", "rows", "default", *(f"ours / default, {scorer}" for scorer in SCORERS)),
        rows,
        f"Medians of {repeats} repetitions, processor time, one thread. With several classes "
        '"roc_auc" is "roc_auc_ovr".',
    )


def main() -> None:
    """Run with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", default=[*TOY, "spambase"])
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    write_results("scorers", run(options.sets, options.repeats))


if __name__ == "__main__":
    main()
