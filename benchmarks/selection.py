"""Time of a search over 56 candidates, and of one fit, against the fastest peers.

    python benchmarks/selection.py                                  # all: ten minutes
    python benchmarks/selection.py --parts searches --sets cov      # one row
    python benchmarks/selection.py --clock processor --parts searches

Needs an idle machine: ours and the peers use all processors. Where other programs run, `--clock
processor` compares the processor times of searches in one thread each.
"""

import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jobs
import problems
from common import RESULTS, significant, table, write_results
from joblib import Parallel, delayed
from methods import OURS, PEERS, SOLVERS, Method
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from threadpoolctl import threadpool_limits

from marginpursuit import MarginPursuitClassifierCV
from marginpursuit._threads import usable_threads

SEARCHES = ("cov", "digit5", "news20_minilm")
FITS = ("cov", "protein", "digit5")
FASTEST = ("lbfgs", "newton-cholesky")  # of the solvers of logistic regression, by the table
WITHIN = 0.2  # points of test error above the best peer
THREADS = usable_threads(None)


def run(arguments: Sequence[str] = ()) -> Iterator[str]:
    """Compare searches and fits."""
    parser = jobs.options(
        __doc__,
        sets=list(dict.fromkeys(SEARCHES + FITS)),
        contamination=["clean"],
        seeds=3,
        store=RESULTS / "fits.jsonl",
    )
    tuned = RESULTS / "table.jsonl"
    parser.add_argument("--tuned", type=Path, default=tuned, help="the store of table.py")
    parts = ["searches", "fits"]
    parser.add_argument("--parts", nargs="+", choices=parts, default=parts)
    parser.add_argument("--clock", choices=["wall", "processor"], default="wall")
    parser.set_defaults(limit=60, processes=1, threads=THREADS)
    chosen = parser.parse_args(arguments)
    missing = [name for name in chosen.sets if problems.missing(name)]
    if missing:
        yield f"Missing, not run: {', '.join(missing)}."
    sets = [name for name in chosen.sets if name not in missing]
    fits = [name for name in FITS if name in sets and "fits" in chosen.parts]
    searches = [name for name in SEARCHES if name in sets and "searches" in chosen.parts]
    n_threads = 1 if chosen.clock == "processor" else THREADS
    ours = {
        name: _search(MarginPursuitClassifierCV(n_threads=n_threads), name, chosen)
        for name in sets
        if name in {*fits, *searches}
    }
    # Processes are forked before scikit-learn's search starts threads.
    if fits:
        yield _fits({name: ours[name][0].best_estimator_ for name in fits}, chosen)
    if searches:
        yield _searches({name: ours[name] for name in searches}, chosen, n_threads)


def _search(model: Any, name: str, chosen: Any) -> tuple[Any, float, float]:
    """Return the fitted search, its seconds and its test error in per cent."""
    problem = problems.prepare(name, 0, "clean", chosen.rows)
    seconds = _seconds(model.set_params(cv=problem.cv), problem, chosen.clock)
    return model, seconds, 100 * (1 - model.score(problem.X_test, problem.y_test))


def _seconds(model: Any, problem: Any, clock: str) -> float:
    """Return the time of a fit."""
    now = time.perf_counter if clock == "wall" else time.process_time
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = now()
        model.fit(problem.X, problem.y)
        return now() - start


def _fastest_solver(name: str, chosen: Any) -> str:
    """Return the solver of LogisticRegression that takes the least time for one fit."""
    shape, problem = (
        problems.shape(name, chosen.rows),
        problems.prepare(name, 0, "clean", chosen.rows),
    )
    able = [solver for solver in FASTEST if SOLVERS[solver](shape)]
    return min(
        able,
        key=lambda solver: _seconds(LogisticRegression(solver=solver), problem, chosen.clock),
    )


def _searches(ours: dict[str, tuple[Any, float, float]], chosen: Any, n_jobs: int) -> str:
    Parallel(n_jobs)(delayed(abs)(k) for k in range(n_jobs))  # starts the workers, untimed
    lines = []
    for name, (model, seconds, error) in ours.items():
        solver = _fastest_solver(name, chosen)
        grid = {"C": [10.0**k for k in range(-3, 4)]}
        peer = GridSearchCV(LogisticRegression(solver=solver), grid, n_jobs=n_jobs)
        with threadpool_limits(1 if chosen.clock == "processor" else None):
            _, its_seconds, its_error = _search(peer, name, chosen)
        lines.append(
            (
                name,
                f"{seconds:.2f}",
                f"{error:.2f}",
                len(model.cv_results_["params"]),
                solver,
                f"{its_seconds:.2f}",
                f"{its_error:.2f}",
                significant(its_seconds / seconds),
            )
        )
    return table(
        "Search with five folds, against GridSearchCV over 7 values of C",
        (
            "set",
            "ours, s",
            "ours, error in %",
            "candidates",
            "solver of LogisticRegression",
            "theirs, s",
            "theirs, error in %",
            "theirs / ours",
        ),
        lines,
        f"{chosen.clock.capitalize()} time, {n_jobs} threads each: ours in one process, "
        f"GridSearchCV with n_jobs={n_jobs} and the faster of {' and '.join(FASTEST)} for one fit, "
        "at most 100 iterations, the default. Times include the refit to all rows. Target: at "
        "least 12.",
    )


def _fits(ours: dict[str, Any], chosen: Any) -> str:
    table_rows = jobs.done(jobs.read(chosen.tuned))
    lines: list[tuple[str, ...]] = []
    for name, model in ours.items():
        # One fit without probabilities, which a search has from its folds.
        methods = {OURS: _fixed(clone(model).set_params(probability=None))}
        methods |= {peer: how for peer, how in PEERS.items() if "tuned" not in peer}
        for row in table_rows:
            same = (row["set"], row["contamination"], row["seed"]) == (name, "clean", 0)
            if same and row["chosen"] and row["method"] in PEERS:
                search = PEERS[row["method"]].make(5, 0)
                methods[row["method"]] = _fixed(search.estimator.set_params(**row["chosen"]))
        chosen.sets = [name]
        rows, _ = jobs.results(chosen, {"clean": methods})
        lines += _fastest(name, rows)
    return table(
        "One fit at the chosen hyper-parameters, against the fastest peer of similar error",
        ("set", "method", "error, %", "seconds", "theirs / ours"),
        lines,
        f"{THREADS} threads, one fit at a time, the shortest time of {chosen.seeds} splits, at most"
        f" {chosen.limit} s. Peers with default parameters and, if table.py has been run, as tuned "
        f"there; those with a test error within {WITHIN} points of the best peer, by time. "
        "Target: at least 5.",
    )


def _fixed(model: Any) -> Method:
    return Method(lambda cv, seed: clone(model))


def _fastest(name: str, rows: list[jobs.Row]) -> Iterator[tuple[str, ...]]:
    """Yield a line for ours and for all peers within the tolerance, by time."""
    measured: dict[str, list[jobs.Row]] = {}
    for row in rows:
        measured.setdefault(row["method"], []).append(row)
    summary = {
        method: (jobs.mean(some, "error"), min(row["seconds"] for row in some))
        for method, some in measured.items()
        if len(jobs.done(some)) == len(some)
    }
    best = min(error for method, (error, _) in summary.items() if method != OURS)
    good = [method for method, (error, _) in summary.items() if error <= best + WITHIN]
    for method in sorted({*good, OURS}, key=lambda method: summary[method][1]):
        error, seconds = summary[method]
        yield (
            name,
            method,
            f"{error:.2f}",
            f"{seconds:.3f}",
            "" if method == OURS else significant(seconds / summary[OURS][1]),
        )


if __name__ == "__main__":
    write_results("selection", run(sys.argv[1:]))
