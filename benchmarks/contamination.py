"""Test error of all methods of the library, and of peers, on clean and contaminated data.

    python benchmarks/contamination.py --sets spambase --seeds 3

All are tuned by cross-validation on the contaminated data. Jobs run as in `table.py`.
"""

import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import jobs
import numpy as np
import problems
from common import RESULTS, table, write_results
from methods import OURS_CV, OWN, PEERS, Method, seeded, tuned

from marginpursuit import classifiers

SETS = ["spambase", "a9a", "cov", "protein, balanced"]
MAX_ROWS = 50_000

# Grids of the searches, coarser for slower methods; others have default parameters.
GRIDS: dict[str, dict[str, Any]] = {
    "MarginPursuitClassifier": {"overconfidence": [0.0, 0.3, 1.0]},
    "PegasosClassifier": {"alpha": np.logspace(-6, 0, 7)},
    "LDMClassifier": {"lambda3": np.logspace(-1, 5, 4)},
    "ODMClassifier": {"loss_weight": np.logspace(0, 4, 5), "mu": [0.1, 0.8]},
    "MDOClassifier": {"beta": [0.1, 0.3, 1.0, 3.0, 10.0]},
    "CatoniRiskClassifier": {"scale": [0.5, 2.0, 8.0]},
    "MedianOfMeansClassifier": {"n_blocks": [1, 101, 1001]},
}


def run(arguments: Sequence[str] = ()) -> Iterator[str]:
    """Run the jobs that are not in the store; yield a table per data set."""
    store = RESULTS / "contamination.jsonl"
    kinds = list(problems.CONTAMINATIONS)
    parser = jobs.options(__doc__, sets=SETS, contamination=kinds, seeds=10, store=store)
    parser.set_defaults(rows=MAX_ROWS)
    chosen = parser.parse_args(arguments)
    methods = _methods()
    rows, missing = jobs.results(chosen, dict.fromkeys(problems.CONTAMINATIONS, methods))
    for name in chosen.sets:
        yield _one_set(name, [row for row in rows if row["set"] == name], list(methods), chosen)
    yield "Searched: " + "; ".join(f"{name}, {_grid(grid)}" for name, grid in GRIDS.items()) + "."
    for name, why in missing.items():
        yield f"{name}: not run. {why}"


def _grid(grid: dict[str, Any]) -> str:
    return " and ".join(
        f"{name} in {', '.join(f'{value:g}' for value in values)}" for name, values in grid.items()
    )


def _one_set(name: str, rows: list[jobs.Row], methods: list[str], chosen: Any) -> str:
    cells: dict[tuple[str, str], list[jobs.Row]] = defaultdict(list)
    for row in rows:
        cells[row["method"], row["contamination"]].append(row)
    lines = [
        (
            method,
            *(_cell(cells[method, kind], chosen) for kind in chosen.contamination),
            _seconds(cells[method, chosen.contamination[0]]),
        )
        for method in methods
    ]
    kinds = [
        f"{kind}: {', '.join(f'{key} = {value:g}' for key, value in arguments.items())}"
        for kind, arguments in problems.CONTAMINATIONS.items()
        if arguments
    ]
    return table(
        f"{name}: test error in %, by contamination of the training rows",
        ("method", *chosen.contamination, f"seconds, {chosen.contamination[0]}"),
        lines,
        f"Means over {chosen.seeds} seeds, or the number given in a cell, ± standard error; at "
        f"most {chosen.rows:,} training rows. "
        f"Arguments of `contaminate`: {'; '.join(kinds)}. Seconds of processor time, including the "
        "search.",
    )


def _methods() -> dict[str, Method]:
    library = {name: getattr(classifiers, name)() for name in classifiers.__all__}
    own = {
        name: tuned(estimator, GRIDS[name]) if name in GRIDS else _with_defaults(estimator)
        for name, estimator in library.items()
    }
    peers = ("logistic lbfgs, tuned", "SVC primal, tuned", "ridge, tuned")
    return {OURS_CV: OWN[OURS_CV], **own, **{name: PEERS[name] for name in peers}}


def _with_defaults(estimator: Any) -> Method:
    return Method(lambda cv, seed: seeded(estimator, seed))


def _cell(rows: list[jobs.Row], chosen: Any) -> str:
    if not rows:
        return "not run"
    if unfinished := [row["status"] for row in rows if row["status"] != jobs.DONE]:
        return str(unfinished[0])
    seeds = f" ({len(rows)} seeds)" if len(rows) < chosen.seeds else ""
    return jobs.mean_and_error(rows, "error", 2) + seeds


def _seconds(rows: list[jobs.Row]) -> str:
    finished = jobs.done(rows)
    return f"{jobs.mean(finished, 'processor_seconds'):.3g}" if finished else ""


if __name__ == "__main__":
    write_results("contamination", run(sys.argv[1:]))
