"""Peak memory and time of default fits to many classes, over the number of rows.

    python benchmarks/many_classes.py [--rows 20000 200000 2000000] [--multi-class auto ovr]

Each fit is in a process of its own, ended after `--limit` seconds. The memory is the growth of the
peak of resident memory during the fit.
"""

import argparse
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from common import in_process, table, write_results
from growth import resident

from marginpursuit import MarginPursuitClassifier
from marginpursuit._threads import usable_threads


def measure(n_rows: int, n_classes: int, multi_class: str, n_threads: int) -> dict[str, Any]:
    """Fit once, to normal rows around the centres of the classes in ten columns."""
    rng = np.random.default_rng(0)
    y = np.arange(n_rows) % n_classes
    X, centres = rng.normal(size=(n_rows, 10)), 3.0 * rng.normal(size=(n_classes, 10))
    for first in range(0, n_rows, 1 << 16):  # a copy of all centres would exceed the rows
        X[first : first + (1 << 16)] += centres[y[first : first + (1 << 16)]]
    model = MarginPursuitClassifier(multi_class=multi_class, n_threads=n_threads)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X[: 2 * n_classes], y[: 2 * n_classes])  # imports
        caught.clear()
        before = resident(reset_peak=True)
        wall, processor = time.perf_counter(), time.process_time()
        model.fit(X, y)
    return {
        "X": X.nbytes,
        "seconds": time.perf_counter() - wall,
        "processor": time.process_time() - processor,
        "peak": resident() - before,
        "steps": model.n_iter_,
        "passes": model.n_passes_,
        "accuracy": float(np.mean(model.predict(X[:10_000]) == y[:10_000])),
        "warnings": len(caught),
    }


def row(chosen: argparse.Namespace, n_rows: int, multi_class: str) -> tuple[Any, ...]:
    """Measure in a process of its own; return a row of the table."""
    call = f"measure({n_rows}, {chosen.classes}, {multi_class!r}, {chosen.threads})"
    found = in_process("many_classes", call, chosen.limit)
    if found["status"] != "done":
        return f"{n_rows:,}", multi_class, found["status"], *[""] * 8
    return (
        *(f"{n_rows:,}", multi_class, f"{found['seconds']:.1f}", f"{found['processor']:.1f}"),
        f"{1e6 * found['processor'] / n_rows:.0f}",
        *(f"{1e-9 * found[name]:.2f}" for name in ("X", "peak")),
        *(found["steps"], found["passes"], f"{found['accuracy']:.3f}", found["warnings"]),
    )


def run(arguments: Sequence[str] = ()) -> Iterator[str]:
    """Measure all numbers of rows, smaller ones first."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", nargs="+", type=int, default=[20_000, 200_000, 2_000_000])
    parser.add_argument("--multi-class", nargs="+", default=["auto", "ovr"])
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=usable_threads(None))
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds of a fit")
    chosen = parser.parse_args(arguments)
    for each in chosen.multi_class:
        rows = []
        for n_rows in chosen.rows:
            rows.append(row(chosen, n_rows, each))
            print(*rows[-1], sep="  ", file=sys.stderr, flush=True)
        yield table(
            f"{chosen.classes:,} classes, 10 columns, multi_class={each!r}",
            (
                *("rows", "multi_class", "s", "processor s", "processor µs a row"),
                *("X, GB", "memory of the fit, GB", "steps", "passes", "accuracy", "warnings"),
            ),
            rows,
            f"{chosen.threads} threads, default parameters: the penalty is chosen, and the link is "
            "fitted to held-out scores. The memory is the growth of the peak of resident memory "
            "during the fit.",
        )


if __name__ == "__main__":
    write_results("many-classes", run(sys.argv[1:]))
