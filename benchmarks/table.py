"""Test error, probabilities and cost on real sets: ours against peers, by default and tuned.

    python benchmarks/table.py --sets spambase hiva --seeds 2 --limit 60

Jobs run side by side, one thread each; what is done is kept in a store of JSON lines, and a run
that is stopped goes on from there. Seconds are of processor time.
"""

import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jobs
import numpy as np
import problems
from common import RESULTS, keep, table
from methods import ESSENTIAL, LOGISTIC, OPTIONAL, OURS_CV, OWN, PEERS, VARIANTS

CLOSE = 0.2  # points of test error
CLOSE_LOSS = 1.05  # ratio of log-losses
SETS = [name for name, task in problems.TASKS.items() if not task.balanced]
DAMAGE = ["clean", "flips", "leverage"]

Measured = dict[str, list[jobs.Row]]  # the rows of each method, in the order of seeds


def run(arguments: Sequence[str] = ()) -> Iterator[str]:
    """Run what is not in the store yet; lay out a table for each set, and the verdicts."""
    parser = jobs.options(__doc__, sets=SETS, damage=DAMAGE, seeds=5, store=RESULTS / "table.jsonl")
    parser.add_argument(
        "--essential",
        action="store_true",
        help="of the solvers that minimise the same function, tune one on clean data too",
    )
    chosen = parser.parse_args(arguments)
    brief = {name: how for name, how in PEERS.items() if name in ESSENTIAL}
    spoilt = {OURS_CV: OWN[OURS_CV], **VARIANTS, **brief}
    untuned = {name: how for name, how in PEERS.items() if "tuned" not in name}
    clean = OWN | VARIANTS | (brief | untuned if chosen.essential else PEERS)
    methods = {name: clean if name == "clean" else spoilt for name in problems.DAMAGE}
    rows, absent = jobs.results(chosen, methods)
    cases: dict[tuple[str, str], Measured] = defaultdict(lambda: defaultdict(list))
    for row in sorted(rows, key=lambda row: (SETS.index(row["set"]), row["seed"])):
        cases[row["set"], row["damage"]][row["method"]].append(row)
    for (name, damage), measured in cases.items():
        yield _one_set(name, damage, measured)
    for damage in chosen.damage:
        judged = {name: measured for (name, what), measured in cases.items() if what == damage}
        yield _verdicts(damage, judged)
    for name, why in absent.items():
        yield f"{name}: not run. {why}"
    missing = [name for name in OPTIONAL if not any(name in peer.lower() for peer in PEERS)]
    if missing:
        yield f"Not installed, so not compared: {', '.join(missing)}."


def _one_set(name: str, damage: str, measured: Measured) -> str:
    first = next(row for rows in measured.values() for row in rows)
    most = max(len(rows) for rows in measured.values())
    return table(
        f"{name}, {damage}: about {first['rows']:,} training rows",
        (
            "method",
            "error, %",
            "balanced error, %",
            "AUC",
            "log-loss",
            "seconds",
            "reads",
            "not converged",
        ),
        [_line(_named(*item, most), item[1]) for item in sorted(measured.items(), key=_by_error)],
        f"Means over {_seeds(most)}, or as many as are said, ± standard error. Not converged: "
        "warnings in all fits of a search.",
    )


def _named(method: str, rows: list[jobs.Row], most: int) -> str:
    """Name a method, and the number of seeds where it has fewer than others."""
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
        f"{jobs.mean(done, 'reads'):.0f}" if "reads" in done[0] else "",
        f"{jobs.mean(done, 'not_converged'):.0f}" if jobs.mean(done, "not_converged") else "",
    ]


class Verdict(NamedTuple):
    """How ours compares on one set."""

    error: float  # in per cent
    best: str  # of the tuned peers
    best_error: float
    difference: float  # mean over seeds
    deviation: float  # standard error of that
    logistic: str | None  # the tuned logistic regression with the least log-loss
    ratio: float  # of the log-losses

    @property
    def is_close(self) -> bool:
        """Whether ours is within the points that are allowed."""
        return self.difference <= CLOSE

    @property
    def is_best(self) -> bool:
        """Whether ours is best, or not behind by more than chance."""
        return self.difference <= self.deviation

    def cells(self) -> Iterator[str]:
        """Lay out a line of the table."""
        yield f"{self.error:.2f}"
        yield f"{self.best_error:.2f} ({self.best})"
        yield f"{self.difference:+.2f} ± {self.deviation:.2f}"
        yield "yes" if self.is_close else f"no, by {self.difference - CLOSE:.2f}"
        yield "yes" if self.is_best else "no"
        yield f"{self.ratio:.3f} ({self.logistic})" if self.logistic else ""


def _verdict(measured: Measured) -> Verdict | None:
    """Judge a set; None where ours or all tuned peers are missing."""
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
    return Verdict(
        jobs.mean(ours, "error"),
        best,
        jobs.mean(measured[best], "error"),
        float(np.mean(differences)),
        float(deviation),
        logistic,
        ratio,
    )


def _best_tuned(measured: Measured, what: str, ours: list[jobs.Row]) -> str | None:
    """Return the tuned peer with the least mean, of those that are done for the seeds of ours."""
    seeds = [row["seed"] for row in ours]
    means = {
        name: jobs.mean(rows, what)
        for name, rows in measured.items()
        if name in PEERS and "tuned" in name and [row["seed"] for row in jobs.done(rows)] == seeds
        if seeds and what in rows[0]
    }
    return min(means, key=lambda name: means[name]) if means else None


def _verdicts(damage: str, cases: dict[str, Measured]) -> str:
    verdicts = {name: _verdict(measured) for name, measured in cases.items()}
    judged = [verdict for verdict in verdicts.values() if verdict]
    ratios = [verdict.ratio for verdict in judged if verdict.logistic]
    return table(
        f"Verdicts, {damage}",
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
            (name, *(verdict.cells() if verdict else ["not measured", *[""] * 5]))
            for name, verdict in verdicts.items()
        ],
        f"Within {CLOSE} points on {sum(verdict.is_close for verdict in judged)} of {len(judged)} "
        f"sets; best or tied on {sum(verdict.is_best for verdict in judged)}; log-loss at most "
        f"{CLOSE_LOSS} times that of tuned logistic regression on "
        f"{sum(ratio <= CLOSE_LOSS for ratio in ratios)} of {len(ratios)}. The difference is the "
        "mean over seeds ± its standard error; tied: not above zero by more than that. Peers that "
        "were over the limit are not among the best. Logistic regression: the tuned one of "
        "scikit-learn with the least log-loss (skglm's has the sigmoid of twice the score for the "
        "probability of one of two classes, which is not that of its model).",
    )


def _by_error(item: tuple[str, list[jobs.Row]]) -> float:
    done = jobs.done(item[1])
    return jobs.mean(done, "error") if done else np.inf


if __name__ == "__main__":
    keep("table", run(sys.argv[1:]))
