"""Test error, log-loss and time on real data: ours against peers, with defaults and tuned.

    python benchmarks/table.py --sets spambase hiva --seeds 2 --limit 60

Jobs run in parallel, one thread each. Results are stored as JSON lines, and an interrupted run
resumes. Seconds are of processor time.
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jobs
import numpy as np
import problems
from common import RESULTS, table, write_results
from methods import ESSENTIAL, LOGISTIC, OPTIONAL, OURS_CV, OWN, PEERS, VARIANTS

CLOSE = 0.2  # points of test error
CLOSE_LOSS = 1.05  # ratio of log-losses
SETS = [name for name, task in problems.TASKS.items() if not task.balanced]
CONTAMINATIONS = ["clean", "flips", "leverage"]

Measured = dict[str, list[jobs.Row]]  # the rows of each method, by seed


def run(arguments: Sequence[str] = ()) -> Iterator[str]:
    """Run the jobs that are not in the store; yield a table per data set, then a summary."""
    store = RESULTS / "table.jsonl"
    parser = jobs.options(__doc__, sets=SETS, contamination=CONTAMINATIONS, seeds=5, store=store)
    parser.add_argument(
        "--essential",
        action="store_true",
        help="on clean data too, tune one solver per objective only",
    )
    _add_part(parser)
    chosen = parser.parse_args(arguments)
    brief = {name: how for name, how in PEERS.items() if name in ESSENTIAL}
    contaminated = OWN | VARIANTS | brief
    untuned = {name: how for name, how in PEERS.items() if "tuned" not in name}
    clean = OWN | VARIANTS | (brief | untuned if chosen.essential else PEERS)
    methods = {name: clean if name == "clean" else contaminated for name in problems.CONTAMINATIONS}
    rows, missing = jobs.results(chosen, methods)
    cases: dict[tuple[str, str], Measured] = defaultdict(lambda: defaultdict(list))
    for row in sorted(rows, key=lambda row: (SETS.index(row["set"]), row["seed"])):
        cases[row["set"], row["contamination"]][row["method"]].append(row)
    for (name, kind), measured in cases.items():
        yield _one_set(name, kind, measured)
    for kind in [] if chosen.methods else chosen.contamination:
        of_kind = {name: measured for (name, k), measured in cases.items() if k == kind}
        yield _summary(kind, of_kind)
    for name, why in missing.items():
        yield f"{name}: not run. {why}"
    absent = [name for name in OPTIONAL if not any(name in peer.lower() for peer in PEERS)]
    if absent:
        yield f"Not installed, not compared: {', '.join(absent)}."


def _add_part(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--part", help="name of a part of the table, whose result file is one of its own"
    )


def _one_set(name: str, contamination: str, measured: Measured) -> str:
    first = next(row for rows in measured.values() for row in rows)
    most = max(len(rows) for rows in measured.values())
    return table(
        f"{name}, {contamination}: about {first['rows']:,} training rows",
        (
            "method",
            "error, %",
            "balanced error, %",
            "AUC",
            "log-loss",
            "seconds",
            "passes",
            "not converged",
        ),
        [_line(_named(*item, most), item[1]) for item in sorted(measured.items(), key=_by_error)],
        f"Means over {_seeds(most)}, or the number given, ± standard error. Not converged: "
        "warnings in all fits of a search.",
    )


def _named(method: str, rows: list[jobs.Row], most: int) -> str:
    """Return the name of a method, with the number of seeds if it has fewer than others."""
    few = len(rows) < most and len(jobs.done(rows)) == len(rows)
    return f"{method} ({_seeds(len(rows))})" if few else method


def _seeds(count: int) -> str:
    return f"{count} seeds" if count > 1 else "1 seed"


def _line(method: str, rows: list[jobs.Row]) -> list[str]:
    done = jobs.done(rows)
    if len(done) < len(rows) or not done:
        why = next(row["status"] for row in rows if row["status"] != jobs.DONE)
        return [method, why, *[""] * 6]
    return [
        method,
        jobs.mean_and_error(done, "error", 2),
        jobs.mean_and_error(done, "balanced_error", 2),
        jobs.mean_and_error(done, "auc", 4),
        jobs.mean_and_error(done, "log_loss", 4),
        f"{jobs.mean(done, 'processor_seconds'):.3g}",
        f"{jobs.mean(done, 'passes'):.0f}" if "passes" in done[0] else "",
        f"{jobs.mean(done, 'not_converged'):.0f}" if jobs.mean(done, "not_converged") else "",
    ]


class Comparison(NamedTuple):
    """Our search against the best tuned peer on one data set."""

    error: float  # in per cent
    best: str  # name of the best tuned peer
    best_error: float
    difference: float  # mean over seeds
    deviation: float  # standard error of the difference
    logistic: str | None  # the tuned logistic regression with the smallest log-loss
    ratio: float  # of the log-losses

    @property
    def is_close(self) -> bool:
        """Whether the difference is within the tolerance."""
        return self.difference <= CLOSE

    @property
    def is_best(self) -> bool:
        """Whether ours is best, or worse by at most one standard error."""
        return self.difference <= self.deviation

    def cells(self) -> Iterator[str]:
        """Yield the cells of a row."""
        yield f"{self.error:.2f}"
        yield f"{self.best_error:.2f} ({self.best})"
        yield f"{self.difference:+.2f} ± {self.deviation:.2f}"
        yield "yes" if self.is_close else f"no, by {self.difference - CLOSE:.2f}"
        yield "yes" if self.is_best else "no"
        yield f"{self.ratio:.3f} ({self.logistic})" if self.logistic else ""


def _compared(measured: Measured) -> Comparison | None:
    """Compare on one data set; None if ours or all tuned peers are missing."""
    ours = jobs.done(measured.get(OURS_CV, []))
    best = _best_tuned(measured, "error", ours)
    if best is None:
        return None
    differences = [a["error"] - b["error"] for a, b in zip(ours, measured[best], strict=True)]
    n_seeds = len(differences)
    deviation = np.std(differences, ddof=1) / np.sqrt(n_seeds) if n_seeds > 1 else 0.0
    regressions = {name: rows for name, rows in measured.items() if name.startswith(LOGISTIC)}
    logistic, ratio = _best_tuned(regressions, "log_loss", ours), np.nan
    if logistic is not None:
        ratio = jobs.mean(ours, "log_loss") / jobs.mean(measured[logistic], "log_loss")
    return Comparison(
        jobs.mean(ours, "error"),
        best,
        jobs.mean(measured[best], "error"),
        float(np.mean(differences)),
        float(deviation),
        logistic,
        ratio,
    )


def _best_tuned(measured: Measured, what: str, ours: list[jobs.Row]) -> str | None:
    """Return the tuned peer with the smallest mean that finished for all seeds of ours."""
    seeds = [row["seed"] for row in ours]
    means = {
        name: jobs.mean(rows, what)
        for name, rows in measured.items()
        if name in PEERS and "tuned" in name and [row["seed"] for row in jobs.done(rows)] == seeds
        if seeds and what in rows[0]
    }
    return min(means, key=lambda name: means[name]) if means else None


def _summary(contamination: str, cases: dict[str, Measured]) -> str:
    comparisons = {name: _compared(measured) for name, measured in cases.items()}
    found = [comparison for comparison in comparisons.values() if comparison]
    ratios = [comparison.ratio for comparison in found if comparison.logistic]
    return table(
        f"Summary, {contamination}",
        (
            "set",
            f"{OURS_CV}, error in %",
            "best tuned peer",
            "difference",
            f"within {CLOSE} points",
            "best or tied",
            "log-loss, ratio to logistic regression",
        ),
        [
            (name, *(comparison.cells() if comparison else ["not measured", *[""] * 5]))
            for name, comparison in comparisons.items()
        ],
        f"Within {CLOSE} points on {sum(c.is_close for c in found)} of {len(found)} "
        f"sets; best or tied on {sum(c.is_best for c in found)}; log-loss at most "
        f"{CLOSE_LOSS} times that of tuned logistic regression on "
        f"{sum(ratio <= CLOSE_LOSS for ratio in ratios)} of {len(ratios)}. The difference is the "
        "mean over seeds ± its standard error; tied: at most one standard error above zero. Peers "
        "that exceeded the time limit are left out. Logistic regression: the tuned one of "
        "scikit-learn with the smallest log-loss (skglm uses the sigmoid of twice the score as "
        "probability for two classes, which is not that of its model).",
    )


def _by_error(item: tuple[str, list[jobs.Row]]) -> float:
    done = jobs.done(item[1])
    return jobs.mean(done, "error") if done else np.inf


if __name__ == "__main__":
    names = argparse.ArgumentParser(add_help=False)
    _add_part(names)
    part = names.parse_known_args()[0].part
    write_results(f"table-{part}" if part else "table", run(sys.argv[1:]))
