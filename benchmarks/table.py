"""Test error, probabilities and cost on real sets: ours against peers, by default and tuned.

    python benchmarks/table.py --sets spambase hiva --seeds 2 --limit 60

Jobs run side by side, one thread each; what is done is kept in a store of JSON lines, and a run
that is stopped goes on from there. Seconds are of processor time.
"""

import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence

import jobs
import numpy as np
import problems
from common import RESULTS, keep, table
from methods import ESSENTIAL, OPTIONAL, OURS_CV, OWN, PEERS

CLOSE = 0.2  # points of test error
CLOSE_LOSS = 1.05  # ratio of log-losses
SETS = [name for name, task in problems.TASKS.items() if not task.balanced]
DAMAGE = ["clean", "flips", "leverage"]

Measured = dict[str, list[jobs.Row]]  # the rows of each method, in the order of seeds


def run(arguments: Sequence[str] = ()) -> Iterator[str]:
    """Run what is not in the store yet; lay out a table for each set, and the verdicts."""
    parser = jobs.options(__doc__, sets=SETS, damage=DAMAGE, seeds=5, store=RESULTS / "table.jsonl")
    chosen = parser.parse_args(arguments)
    spoilt = {OURS_CV: OWN[OURS_CV], **{name: PEERS[name] for name in ESSENTIAL}}
    methods = {name: spoilt if name != "clean" else OWN | PEERS for name in problems.DAMAGE}
    rows, absent = jobs.results(chosen, methods)
    cases: dict[tuple[str, str], Measured] = defaultdict(lambda: defaultdict(list))
    for row in sorted(rows, key=lambda row: (SETS.index(row["set"]), row["seed"])):
        cases[row["set"], row["damage"]][row["method"]].append(row)
    for (name, damage), measured in cases.items():
        yield _one_set(name, damage, measured, chosen.limit)
    for damage in chosen.damage:
        judged = {name: measured for (name, what), measured in cases.items() if what == damage}
        yield _verdicts(damage, judged)
    for name, why in absent.items():
        yield f"{name}: not run. {why}"
    missing = [name for name in OPTIONAL if not any(name in peer.lower() for peer in PEERS)]
    if missing:
        yield f"Not installed, so not compared: {', '.join(missing)}."


def _one_set(name: str, damage: str, measured: Measured, limit: int) -> str:
    first = next(row for rows in measured.values() for row in rows)
    size = f"{first['rows']:,} training rows"
    return table(
        f"{name}, {damage}: {size}",
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
        [_line(method, rows, limit) for method, rows in sorted(measured.items(), key=_by_error)],
        "Means over seeds ± standard error. Not converged: warnings in all fits of a search.",
    )


def _line(method: str, rows: list[jobs.Row], limit: int) -> list[str]:
    done = jobs.done(rows)
    if len(done) < len(rows) or not done:
        why = next(row["status"] for row in rows if row["status"] != jobs.DONE)
        return [method, f"{why}: {limit} s" if why == jobs.OVER else why, *[""] * 6]
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


def _verdicts(damage: str, cases: dict[str, Measured]) -> str:
    lines, close, tied, calibrated, compared = [], 0, 0, 0, 0
    for name, measured in cases.items():
        ours = jobs.done(measured.get(OURS_CV, []))
        best = _best_peer(measured, "error", "tuned", len(ours))
        if not ours or best is None:
            lines.append((name, *["not measured"] * 6))
            continue
        difference, error = _difference(ours, measured[best], "error")
        within, equal = difference <= CLOSE, difference <= error
        close, tied = close + within, tied + equal
        logistic = _best_peer(measured, "log_loss", "tuned", len(ours))
        ratio = ""
        if logistic is not None:
            compared += 1
            quotient = jobs.mean(ours, "log_loss") / jobs.mean(measured[logistic], "log_loss")
            calibrated += quotient <= CLOSE_LOSS
            ratio = f"{quotient:.3f} ({logistic})"
        lines.append(
            (
                name,
                f"{jobs.mean(ours, 'error'):.2f}",
                f"{jobs.mean(measured[best], 'error'):.2f} ({best})",
                f"{difference:+.2f} ± {error:.2f}",
                "yes" if within else f"no, by {difference - CLOSE:.2f}",
                "yes" if equal else "no",
                ratio,
            )
        )
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
        lines,
        f"Within {CLOSE} points on {close} of {len(cases)} sets; best or tied on {tied}; log-loss "
        f"at most {CLOSE_LOSS} times that of tuned logistic regression on {calibrated} of "
        f"{compared}. The difference is the mean over seeds ± its standard error; tied: not above "
        "zero by more than that. Peers that were over the limit are not among the best. Logistic "
        "regression: the tuned one with the least log-loss.",
    )


def _best_peer(measured: Measured, what: str, word: str, n_seeds: int) -> str | None:
    """Return the peer of a kind that has the least mean, of those that are done for all seeds."""
    means = {
        name: jobs.mean(rows, what)
        for name, rows in measured.items()
        if name in PEERS and word in name and len(jobs.done(rows)) == n_seeds and what in rows[0]
    }
    return min(means, key=lambda name: means[name]) if means else None


def _difference(ours: list[jobs.Row], theirs: list[jobs.Row], what: str) -> tuple[float, float]:
    """Return the mean difference and its standard error, seed by seed."""
    differences = [a[what] - b[what] for a, b in zip(ours, theirs, strict=True)]
    error = np.std(differences, ddof=1) / np.sqrt(len(differences)) if len(differences) > 1 else 0.0
    return float(np.mean(differences)), float(error)


def _by_error(item: tuple[str, list[jobs.Row]]) -> float:
    done = jobs.done(item[1])
    return jobs.mean(done, "error") if done else np.inf


if __name__ == "__main__":
    keep("table", run(sys.argv[1:]))
