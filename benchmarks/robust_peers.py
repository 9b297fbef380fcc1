"""Margin pursuit against a distributionally robust logistic regression, on few contaminated rows.

    pip install skwdro torch
    python benchmarks/robust_peers.py [--sets spambase] [--rows 300] [--seeds 2]

skwdro minimises the largest logistic loss over distributions within a Wasserstein radius ρ of the
sample. A fit to 300 rows takes 20 s, so that this is a table of its own, at default parameters
and with the radii given, and not a column of `contamination.py`.
"""

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import problems
from common import significant, table, write_results
from sklearn.linear_model import LogisticRegression

from marginpursuit import MarginPursuitClassifier

KINDS = ("clean", "flips", "leverage")


def run(arguments: Sequence[str] = ()) -> Iterator[str]:
    """Fit all methods to the same rows; yield a table per data set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", choices=problems.TASKS, default=["spambase"])
    parser.add_argument("--rows", type=int, default=300, help="training rows")
    parser.add_argument("--seeds", type=int, default=2, help="number of splits")
    parser.add_argument("--radii", nargs="+", type=float, default=[1e-2], help="of skwdro")
    chosen = parser.parse_args(arguments)
    if not find_spec("skwdro"):
        yield "Not run: skwdro is not installed."
        return
    for name in chosen.sets:
        missing = problems.missing(name)
        yield f"Missing, not run: {name}." if missing else _one_set(name, chosen)


def _methods(radii: list[float]) -> dict[str, Callable[[], Any]]:
    from skwdro.linear_models import LogisticRegression as RobustLogistic

    robust = {f"skwdro logistic, radius {r:g}": partial(RobustLogistic, rho=r) for r in radii}
    own = {"MarginPursuitClassifier": MarginPursuitClassifier}
    return {**own, "LogisticRegression": LogisticRegression, **robust}


def _one_set(name: str, chosen: argparse.Namespace) -> str:
    methods = _methods(chosen.radii)
    errors: dict[str, dict[str, list[float]]] = {m: {k: [] for k in KINDS} for m in methods}
    seconds: dict[str, list[float]] = {m: [] for m in methods}
    for seed in range(chosen.seeds):
        for kind in KINDS:
            data = problems.prepare(name, seed, kind, chosen.rows)
            for method, make in methods.items():
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    start = time.process_time()
                    # skwdro needs classes 0 and 1.
                    model = make().fit(np.asarray(data.X), (data.y > 0).astype(int))
                    seconds[method].append(time.process_time() - start)
                    found = np.ravel(model.predict(np.asarray(data.X_test)))
                errors[method][kind].append(100 * float(np.mean(found != (data.y_test > 0))))
                print(name, seed, kind, method, errors[method][kind][-1], file=sys.stderr)
    own = np.median(seconds["MarginPursuitClassifier"])
    lines = [
        (
            method,
            *(f"{np.mean(errors[method][kind]):.2f}" for kind in KINDS),
            f"{np.median(seconds[method]):.3g}",
            significant(np.median(seconds[method]) / own),
        )
        for method in methods
    ]
    return table(
        f"Test error in % on {name}, {chosen.rows} training rows",
        ("method", *KINDS, "processor s", "theirs / ours"),
        lines,
        f"Means over {chosen.seeds} splits. Contaminations are those of `contamination.py`: 10 % "
        "flipped labels; 5 % mislabelled rows at ten times their distance.",
    )


if __name__ == "__main__":
    write_results("robust-peers", run(sys.argv[1:]))
