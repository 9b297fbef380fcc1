"""Many jobs in processes of their own, each with a limit, results kept as they come.

A job is one method on one split of one set. Its process is forked, so that nothing is imported or
read from disk twice, and has a timer that ends it. Results are lines of JSON: a run that is stopped
goes on where it was.
"""

import argparse
import json
import os
import signal
import sys
import time
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import numpy as np
import problems
from methods import Method
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import balanced_accuracy_score, log_loss, roc_auc_score
from sklearn.preprocessing import label_binarize
from threadpoolctl import threadpool_limits

from marginpursuit._threads import usable_threads

Row = dict[str, Any]

DONE, OVER, FAILED = "done", "over", "failed"  # the last two go on to say what of, and why
_KEY = ("set", "damage", "rows", "method", "seed")


@dataclass(frozen=True, slots=True)
class Job:
    """One method on one split."""

    set: str
    damage: str
    rows: int  # of the training part
    method: str
    seed: int
    how: Method
    cost: float  # in any unit: decides who begins

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells its row from others in a store."""
        return tuple(getattr(self, name) for name in _KEY)


def options(description: str, **defaults: Any) -> argparse.ArgumentParser:
    """Make a parser of what all tables have options for."""
    parser = argparse.ArgumentParser(description=description)
    many: dict[str, Any] = {"nargs": "+", "metavar": "NAME"}
    parser.add_argument("--sets", **many, choices=problems.TASKS, default=defaults["sets"])
    parser.add_argument("--damage", **many, choices=problems.DAMAGE, default=defaults["damage"])
    parser.add_argument("--methods", **many, help="default: all")
    parser.add_argument("--seeds", type=int, default=defaults["seeds"], help="how many")
    parser.add_argument("--rows", type=int, help="the most training rows; default: all")
    parser.add_argument("--limit", type=int, default=120, help="seconds for a job")
    parser.add_argument("--minutes", type=float, default=1440.0, help="when to stop altogether")
    parser.add_argument("--processes", type=int, default=usable_threads(None))
    parser.add_argument("--threads", type=int, default=1, help="of each process")
    parser.add_argument("--store", type=Path, default=defaults["store"], help="lines of JSON")
    parser.add_argument("--print-only", action="store_true", help="run nothing, show the store")
    return parser


def plan(chosen: argparse.Namespace, methods: dict[str, dict[str, Method]]) -> Iterator[Job]:
    """Yield a job for each set, damage, method and seed; `methods` are those of each damage."""
    for name in chosen.sets:
        shape = problems.shape(name, chosen.rows)
        for damage in chosen.damage:
            for method, how in methods[damage].items():
                if how.applies(shape) and method in (chosen.methods or methods[damage]):
                    cost = how.fits * shape.stored * max(1, shape.classes - 1)
                    for seed in range(chosen.seeds):
                        yield Job(name, damage, shape.rows, method, seed, how, cost)


def results(
    chosen: argparse.Namespace, methods: dict[str, dict[str, Method]]
) -> tuple[list[Row], dict[str, str]]:
    """Run what is asked for; return the rows, and why sets that are not at hand are not."""
    absent = {name: why for name in chosen.sets if (why := problems.missing(name))}
    chosen.sets = [name for name in chosen.sets if name not in absent]
    planned = list(plan(chosen, methods))
    if chosen.methods and (unknown := set(chosen.methods) - {job.method for job in planned}):
        known = sorted({name for some in methods.values() for name in some})
        raise SystemExit(f"no method {sorted(unknown)} for these sets; there are {known}")
    return run(planned, chosen), absent


def run(jobs: Iterable[Job], chosen: argparse.Namespace) -> list[Row]:
    """Run the jobs whose results are not in the store yet; return all that it has of them.

    One seed after the other, and of a seed the long jobs first. A method that has gone over the
    limit is not tried on further seeds.
    """
    wanted = {job.key: job for job in jobs}
    rows = [row for row in read(chosen.store) if _key(row) in wanted]
    done = {_key(row) for row in rows}
    if chosen.print_only:
        return rows
    waiting = sorted((job for job in wanted.values() if job.key not in done), key=_rank)
    hopeless = {_key(row)[:-1] for row in rows if is_over(row)}
    total, stop = len(waiting), time.monotonic() + 60 * chosen.minutes
    running: dict[Connection, tuple[Job, Any]] = {}
    chosen.store.parent.mkdir(parents=True, exist_ok=True)
    for job in waiting:
        job.how.warm_up()  # here once, so that no process has to
    with chosen.store.open("a") as store:
        while time.monotonic() < stop:
            while waiting and len(running) < chosen.processes:
                job = waiting.pop()
                if job.key[:-1] not in hopeless:
                    receiver, process = _start(job, chosen)
                    running[receiver] = job, process
            if not running:
                break
            for receiver in wait(list(running), timeout=stop - time.monotonic()):
                job, process = running.pop(receiver)
                row = _collect(job, receiver, process, chosen.limit)
                rows.append(row)
                if is_over(row):
                    hopeless.add(job.key[:-1])
                store.write(json.dumps(row) + "\n")
                store.flush()
                left = len(waiting) + len(running)
                print(
                    f"{total - left}/{total} {' '.join(map(str, job.key))}: {row['status']}",
                    file=sys.stderr,
                    flush=True,
                )
    for _, process in running.values():
        process.kill()
        process.join()
    return rows


def read(store: Path) -> list[Row]:
    """Read a store; a last line that is torn is left out."""
    lines = store.read_text().splitlines() if store.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def done(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if row["status"] == DONE]


def is_over(row: Row) -> bool:
    return str(row["status"]).startswith(OVER)


def mean(rows: Iterable[Row], what: str) -> float:
    return float(np.mean([row[what] for row in rows]))


def mean_and_error(rows: list[Row], what: str, digits: int) -> str:
    """Lay out the mean over seeds and its standard error."""
    if not rows or what not in rows[0]:
        return ""
    values = [row[what] for row in rows]
    error = f" ± {np.std(values, ddof=1) / np.sqrt(len(values)):.{digits}f}" if values[1:] else ""
    return f"{np.mean(values):.{digits}f}{error}"


def _rank(job: Job) -> tuple[int, float]:
    return -job.seed, job.cost  # the last one is taken first


def _key(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in _KEY)


def _start(job: Job, chosen: argparse.Namespace) -> tuple[Connection, Any]:
    receiver, sender = get_context("fork").Pipe(duplex=False)
    process = get_context("fork").Process(target=_work, args=(job, chosen, sender))
    process.start()
    sender.close()  # the process alone holds it now: when it ends, the receiver knows
    return receiver, process


def _collect(job: Job, receiver: Connection, process: Any, limit: int) -> Row:
    row: Row = dict(zip(_KEY, job.key, strict=True))
    try:
        row |= receiver.recv()
    except EOFError:
        process.join()
        over = process.exitcode == -signal.SIGALRM
        code = process.exitcode
        row["status"] = f"{OVER} {limit} s" if over else f"{FAILED}: ended with code {code}"
    process.join()
    receiver.close()
    return row


def _work(job: Job, chosen: argparse.Namespace, sender: Connection) -> None:
    """Do a job; this is what a process does."""
    os.environ["OMP_NUM_THREADS"] = str(chosen.threads)  # which our threads heed
    with threadpool_limits(chosen.threads):
        problem = problems.prepare(job.set, job.seed, job.damage, chosen.rows)
        signal.alarm(chosen.limit)  # ends the process, in whatever code it is then
        try:
            sender.send(evaluate(job.how.make(problem.cv, job.seed), problem))
        except Exception as error:  # a method that fails is a result
            sender.send({"status": f"{FAILED}: {type(error).__name__}: {str(error)[:200]}"})


def evaluate(model: Any, problem: problems.Problem) -> Row:
    """Fit a model and say how good it is, in per cent, and what it cost."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", ConvergenceWarning)
        start, busy = time.perf_counter(), time.process_time()
        model.fit(problem.X, problem.y)
        seconds, busy = time.perf_counter() - start, time.process_time() - busy
    y, best = problem.y_test, getattr(model, "best_params_", {})
    predicted, scores = model.predict(problem.X_test), model.decision_function(problem.X_test)
    row: Row = {
        "status": DONE,
        "columns": problem.X.shape[1],
        "error": 100 * float(np.mean(predicted != y)),
        "balanced_error": 100 * (1 - float(balanced_accuracy_score(y, predicted))),
        # For several classes the mean over them, each against the rest.
        "auc": float(roc_auc_score(label_binarize(y, classes=model.classes_), scores)),
        "seconds": seconds,
        "processor_seconds": busy,
        "not_converged": len(caught),
        "chosen": {name: np.asarray(value).item() for name, value in best.items()},
    }
    if hasattr(model, "predict_proba"):
        row["log_loss"] = float(
            log_loss(y, model.predict_proba(problem.X_test), labels=model.classes_)
        )
    if hasattr(model, "n_passes_"):
        row["reads"] = float(model.n_passes_)
    return row
