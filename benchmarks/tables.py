"""Single fits and searches on small, medium and wide dense tables, against fast linear peers.

    python benchmarks/tables.py [--tables fits medium wide searches] [--sets NAME ...]

Ours and the peers alternate within one run, with the same number of threads. Matrix products run in
one thread in the first half of the calls and in all in the second, and the shortest time counts: a
thread of BLAS waits for its next product in a busy loop of 0.1 s, on a processor that the next
method needs. "As accurate" is the fastest peer whose test error is that of ours or lower.
"""

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import problems
from common import significant, table, write_results
from sklearn.datasets import (
    load_breast_cancer,
    load_digits,
    load_iris,
    load_wine,
    make_classification,
)
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits

from marginpursuit import MarginPursuitClassifier, MarginPursuitClassifierCV
from marginpursuit._threads import usable_threads

THREADS = usable_threads(None)
GRID = {"C": [10.0**k for k in range(-3, 4)]}


class Data(NamedTuple):
    """Training and test rows."""

    X: Any
    y: Any
    X_test: Any
    y_test: Any


def synthetic(n_rows: int, n_columns: int) -> Callable[[], Data]:
    """Return a function that draws rows of two classes, of which a tenth has a random label."""

    def draw() -> Data:
        X, y = make_classification(
            n_rows + 2000,
            n_columns,
            n_informative=n_columns // 2,
            n_redundant=n_columns // 5,
            flip_y=0.1,
            random_state=0,
        )
        return _split(X, y, n_rows)

    return draw


def included(load: Callable[..., Any]) -> Callable[[], Data]:
    """Return a function that splits a data set included with scikit-learn."""

    def draw() -> Data:
        X, y = load(return_X_y=True)
        return _split(X, y, round(0.75 * len(X)))

    return draw


def real(task: str, n_rows: int) -> Callable[[], Data]:
    """Return a function that takes the first training rows of a task of `problems`."""

    def draw() -> Data:
        problem = problems.prepare(task, 0, "clean", n_rows)
        return Data(problem.X, problem.y, problem.X_test, problem.y_test)

    return draw


def _split(X: Any, y: Any, n_rows: int) -> Data:
    X, X_test, y, y_test = train_test_split(X, y, train_size=n_rows, stratify=y, random_state=0)
    scaler = StandardScaler().fit(X)
    return Data(scaler.transform(X), y, scaler.transform(X_test), y_test)


FITS = {
    "100 x 10": synthetic(100, 10),
    "500 x 20": synthetic(500, 20),
    "spambase, 540 x 57": real("spambase", 540),
    "cov, 540 x 54": real("cov", 540),
    "2,500 x 60": synthetic(2500, 60),
    "iris": included(load_iris),
    "wine": included(load_wine),
    "breast cancer": included(load_breast_cancer),
    "digits": included(load_digits),
}
MEDIUM = {
    "higgs_small, 4,000 x 28": real("higgs_small", 4000),
    "protein, 4,000 x 74": real("protein", 4000),
    "digit5, 4,000 x 784": real("digit5", 4000),
    "10,000 x 50": synthetic(10000, 50),
    "100,000 x 50": synthetic(100000, 50),
    "10,000 x 1,000": synthetic(10000, 1000),
}
WIDE = {
    "digit5, 400 x 784": real("digit5", 400),
    "news20_minilm, 400 x 381, 20 classes": real("news20_minilm", 400),
    "hiva, 1,922 x 1,617": real("hiva", 1922),
}
SEARCHES = {
    "100 x 10": synthetic(100, 10),
    "1,000 x 10": synthetic(1000, 10),
    "spambase, 540 x 57": real("spambase", 540),
    "cov, 540 x 54": real("cov", 540),
    "15,000 x 10": synthetic(15000, 10),
    "iris": included(load_iris),
    "wine": included(load_wine),
    "breast cancer": included(load_breast_cancer),
    "digits": included(load_digits),
}


def run(arguments: Sequence[str] = ()) -> Iterator[str]:
    """Measure the chosen tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    tables = {"fits": _fits, "medium": _medium, "wide": _wide, "searches": _searches}
    parser.add_argument("--tables", nargs="+", choices=list(tables), default=list(tables))
    parser.add_argument("--sets", nargs="+", default=None, help="names of rows; default: all")
    parser.add_argument(
        "--clock",
        choices=["wall", "processor"],
        default="wall",
        help="processor time, summed over threads, where other programs run",
    )
    parser.add_argument("--seconds", type=float, default=3.0, help="time for each row and method")
    chosen = parser.parse_args(arguments)
    for name in chosen.tables:
        yield tables[name](chosen)
    if chosen.clock == "processor":
        yield "Times are processor times, summed over threads: other programs ran on the machine."


def _fits(chosen: Any) -> str:
    peers = {
        "LinearSVC": LinearSVC,
        "LogisticRegression": LogisticRegression,
        "RidgeClassifier": RidgeClassifier,
    }
    lines = _compared(FITS, MarginPursuitClassifier, peers, chosen)
    return _table("One fit with default parameters, small tables", lines, 1)


def _medium(chosen: Any) -> str:
    peers = {"LogisticRegression": LogisticRegression, "RidgeClassifier": RidgeClassifier}
    lines = _compared(MEDIUM, MarginPursuitClassifier, peers, chosen)
    return _table("One fit with default parameters, medium tables", lines, 1)


def _wide(chosen: Any) -> str:
    peers = {"LogisticRegression": LogisticRegression}
    lines = _compared(WIDE, MarginPursuitClassifier, peers, chosen)
    return _table("One fit with default parameters, wide tables", lines, 1)


def _searches(chosen: Any) -> str:
    peers = {
        "grid search": lambda: GridSearchCV(LogisticRegression(), GRID, n_jobs=1),
    }
    if chosen.clock == "wall":  # the processor time of other processes is not counted
        peers[f"grid search, n_jobs={THREADS}"] = lambda: GridSearchCV(
            LogisticRegression(), GRID, n_jobs=THREADS
        )
    lines = _compared(SEARCHES, MarginPursuitClassifierCV, peers, chosen)
    return _table(
        "Search over the default grid, against a grid of 7 values of C x 5 folds", lines, 5
    )


def _table(title: str, lines: list[tuple[str, ...]], target: int) -> str:
    return table(
        title,
        (
            *("data", "ours, ms", "error, %", "fastest peer", "its ms", "its error, %"),
            *("fastest / ours", "fastest as accurate", "as accurate / ours"),
        ),
        lines,
        f"The shortest of alternating calls, {THREADS} threads each. Target: at least {target} "
        "against peers that are as accurate.",
    )


def _compared(
    sets: dict[str, Callable[[], Data]],
    ours: Callable[[], Any],
    peers: dict[str, Callable[[], Any]],
    chosen: Any,
) -> list[tuple[str, ...]]:
    lines = []
    for name, draw in sets.items():
        if chosen.sets is not None and not any(part in name for part in chosen.sets):
            continue
        try:
            data = draw()
        except problems.DatasetError:
            lines.append((name, *["missing"] * 8))
            continue
        seconds, errors = _timed({"ours": ours} | peers, data, chosen)
        fastest = min(peers, key=lambda peer: seconds[peer])
        accurate = [peer for peer in peers if errors[peer] <= errors["ours"]]
        rival = min(accurate, key=lambda peer: seconds[peer], default=None)
        lines.append(
            (
                name,
                f"{1e3 * seconds['ours']:.1f}",
                f"{errors['ours']:.2f}",
                fastest,
                f"{1e3 * seconds[fastest]:.1f}",
                f"{errors[fastest]:.2f}",
                significant(seconds[fastest] / seconds["ours"]),
                rival or "none",
                "" if rival is None else significant(seconds[rival] / seconds["ours"]),
            )
        )
        print("|", " | ".join(lines[-1]), "|", flush=True, file=sys.stderr)
    return lines


def _timed(
    methods: dict[str, Callable[[], Any]], data: Data, chosen: Any, repeats: int = 13
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the shortest time of each method, in seconds, and its test error in per cent."""
    clock = time.perf_counter if chosen.clock == "wall" else time.process_time
    seconds, errors = dict.fromkeys(methods, np.inf), {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for limit in (1, None):
            spent = dict.fromkeys(methods, 0.0)
            for repeat in range(repeats):
                for name, make in methods.items():
                    if repeat > 0 and spent[name] > chosen.seconds / 2:
                        continue
                    with threadpool_limits(limit, user_api="blas"):
                        model, start = make(), clock()
                        model.fit(data.X, data.y)
                        last = clock() - start
                    spent[name] += last
                    seconds[name] = min(seconds[name], last)
                    if name not in errors:
                        errors[name] = 100 * (1 - model.score(data.X_test, data.y_test))
    return seconds, errors


if __name__ == "__main__":
    write_results("tables", run(sys.argv[1:]))
