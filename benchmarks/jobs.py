"""Many jobs in separate processes with a time limit; results are stored when they finish.

A job is one method on one split of one data set. Its process is forked, so that imports and data
are shared, and is ended by a timer. Results are lines of JSON: an interrupted run resumes.
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

DONE, OVER, FAILED = "done", "over", "failed"  # the last two are followed by limit and reason
_KEY = ("set", "contamination", "rows", "method", "seed")


@dataclass(frozen=True, slots=True)
class Job:
    """One method on one split."""

    set: str
    contamination: str
    rows: int  # training rows
    method: str
    seed: int
    how: Method
    cost: float  # in any unit; the most expensive jobs start first

    @property
    def key(self) -> tuple[Any, ...]:
        """The key of its row in a store."""
        return tuple(getattr(self, name) for name in _KEY)


def options(description: str, **defaults: Any) -> argparse.ArgumentParser:
    """Return a parser of the options that all tables have."""
    parser = argparse.ArgumentParser(description=description)
    many: dict[str, Any] = {"nargs": "+", "metavar": "NAME"}
    parser.add_argument("--sets", **many, choices=problems.TASKS, default=defaults["sets"])
    parser.add_argument(
        "--contamination",
        **many,
        choices=problems.CONTAMINATIONS,
        default=defaults["contamination"],
    )
    parser.add_argument("--methods", **many, help="default: all")
    parser.add_argument("--seeds", type=int, default=defaults["seeds"], help="number of seeds")
    parser.add_argument("--rows", type=int, help="maximum number of training rows; default: all")
    parser.add_argument("--limit", type=int, default=120, help="seconds per job")
    parser.add_argument("--minutes", type=float, default=1440.0, help="time limit of the run")
    parser.add_argument("--processes", type=int, default=usable_threads(None))
    parser.add_argument("--threads", type=int, default=1, help="threads per process")
    parser.add_argument("--store", type=Path, default=defaults["store"], help="file of JSON lines")
    parser.add_argument(
        "--print-only", action="store_true", help="show the store without running jobs"
    )
    return parser


def plan(chosen: argparse.Namespace, methods: dict[str, dict[str, Method]]) -> Iterator[Job]:
    """Yield a job per data set, contamination, method and seed; `methods` are by contamination."""
    for name in chosen.sets:
        shape = problems.shape(name, chosen.rows)
        for contamination in chosen.contamination:
            for method, how in methods[contamination].items():
                if how.applies(shape) and method in (chosen.methods or methods[contamination]):
                    cost = how.fits * shape.stored * max(1, shape.classes - 1)
                    for seed in range(chosen.seeds):
                        yield Job(name, contamination, shape.rows, method, seed, how, cost)


def results(
    chosen: argparse.Namespace, methods: dict[str, dict[str, Method]]
) -> tuple[list[Row], dict[str, str]]:
    """Run the chosen jobs; return the rows, and the missing data sets with reasons."""
    missing = {name: why for name in chosen.sets if (why := problems.missing(name))}
    chosen.sets = [name for name in chosen.sets if name not in missing]
    planned = list(plan(chosen, methods))
    if chosen.methods and (unknown := set(chosen.methods) - {job.method for job in planned}):
        known = sorted({name for some in methods.values() for name in some})
        raise SystemExit(f"unknown methods {sorted(unknown)}; expected any of {known}")
    return run(planned, chosen), missing


def run(jobs: Iterable[Job], chosen: argparse.Namespace) -> list[Row]:
    """Run the jobs that are not in the store; return the rows of all.

    Jobs are ordered by seed, then by decreasing cost. A method that exceeded the time limit is not
    run with further seeds.
    """
    wanted = {job.key: job for job in jobs}
    rows = [row for row in read(chosen.store) if _key(row) in wanted]
    done = {_key(row) for row in rows}
    if chosen.print_only:
        return rows
    waiting = sorted((job for job in wanted.values() if job.key not in done), key=_rank)
    timed_out = {_key(row)[:-1] for row in rows if is_over(row)}
    total, stop = len(waiting), time.monotonic() + 60 * chosen.minutes
    running: dict[Connection, tuple[Job, Any]] = {}
    chosen.store.parent.mkdir(parents=True, exist_ok=True)
    for job in waiting:
        job.how.warm_up()  # once, before processes are forked
    with chosen.store.open("a") as store:
        while time.monotonic() < stop:
            while waiting and len(running) < chosen.processes:
                job = waiting.pop()
                if job.key[:-1] not in timed_out:
                    receiver, process = _start(job, chosen)
                    running[receiver] = job, process
            if not running:
                break
            for receiver in wait(list(running), timeout=stop - time.monotonic()):
                job, process = running.pop(receiver)
                row = _collect(job, receiver, process, chosen.limit)
                rows.append(row)
                if is_over(row):
                    timed_out.add(job.key[:-1])
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
    """Read a store; an incomplete last line is ignored."""
    lines = store.read_text().splitlines() if store.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def done(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if row["status"] == DONE]


def is_over(row: Row) -> bool:
    return str(row["status"]).startswith(OVER)


def mean(rows: Iterable[Row], what: str) -> float:
    return float(np.mean([row[what] for row in rows]))


def mean_and_error(rows: list[Row], what: str, digits: int) -> str:
    """Return the mean over seeds ± its standard error, as text."""
    if not rows or what not in rows[0]:
        return ""
    values = [row[what] for row in rows]
    error = f" ± {np.std(values, ddof=1) / np.sqrt(len(values)):.{digits}f}" if values[1:] else ""
    return f"{np.mean(values):.{digits}f}{error}"


def _rank(job: Job) -> tuple[int, float]:
    return -job.seed, job.cost  # the last one starts first


def _key(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in _KEY)


def _start(job: Job, chosen: argparse.Namespace) -> tuple[Connection, Any]:
    receiver, sender = get_context("fork").Pipe(duplex=False)
    process = get_context("fork").Process(target=_work, args=(job, chosen, sender))
    process.start()
    sender.close()  # only the process holds it, so the receiver notices when the process ends
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
    """Run a job; the target of a process."""
    os.environ["OMP_NUM_THREADS"] = str(chosen.threads)  # limits the threads of our kernels
    with threadpool_limits(chosen.threads):
        problem = problems.prepare(job.set, job.seed, job.contamination, chosen.rows)
        signal.alarm(chosen.limit)  # ends the process, also in compiled code
        try:
            sender.send(evaluate(job.how.make(problem.cv, job.seed), problem))
        except Exception as error:  # a method that fails is a result
            sender.send({"status": f"{FAILED}: {type(error).__name__}: {str(error)[:200]}"})


def evaluate(model: Any, problem: problems.Problem) -> Row:
    """Fit a model; return errors in per cent, times and chosen hyper-parameters."""
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
        # With several classes: the mean over the classes, each against the rest.
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
        row["passes"] = float(model.n_passes_)
    return row
