"""Time and peak memory of fits and searches over rows, columns, classes and non-zeros.

    python benchmarks/growth.py [--parts rows columns ...] [--limit 120] [--minutes 600]

Each point is a method on data of one size, in a process of its own that is ended at its limit of
seconds; a method that was ended is not run on larger data. All methods have the same number of
threads, and are fitted to a few rows of the same kind before they are timed. Points are stored as
lines of JSON, so that an interrupted run resumes. Each part gives a table and a figure,
`results/growth-PART.svg`.
"""

import argparse
import contextlib
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from common import RESULTS, in_process, shortest_time, significant, table, write_results
from joblib import parallel_config
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_info, threadpool_limits

from marginpursuit import MarginPursuitClassifier, MarginPursuitClassifierCV
from marginpursuit._threads import usable_threads

GRID = {"C": [10.0**k for k in range(-3, 4)]}
SHORT = 0.1  # seconds: a call that takes less is repeated
REPEATS = 5  # the shortest of these counts
TINY_ROWS, TINY_COLUMNS, TINY_CLASSES = 100, 10, 3

Data = tuple[Any, Any]
Point = dict[str, Any]


def dense(n_rows: int, n_columns: int, n_classes: int = 2) -> Data:
    """Draw normal rows in float32; the classes are linear in them, with noise."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_rows, n_columns), dtype=np.float32)
    if n_classes == 2:
        noise = np.sqrt(n_columns) * rng.standard_normal(n_rows)
        return X, (X @ rng.normal(size=n_columns) + noise > 0).astype(np.intp)
    y = rng.integers(0, n_classes, n_rows)
    centres = rng.standard_normal((n_classes, n_columns)).astype(np.float32)
    for first in range(0, n_rows, 1 << 16):  # a copy of all centres would exceed the rows
        X[first : first + (1 << 16)] += centres[y[first : first + (1 << 16)]]
    return X, y


def words(n_nonzeros: int, per_row: int = 100, n_columns: int = 50_000) -> Data:
    """Draw CSR rows of words with frequencies like 1/rank; a few columns decide the class."""
    rng = np.random.default_rng(0)
    n_rows = n_nonzeros // per_row
    ranks = n_columns ** rng.random(n_rows * per_row)
    indices, indptr = ranks.astype(np.int32), np.arange(0, n_rows * per_row + 1, per_row)
    X = sparse.csr_matrix((np.ones(len(indices)), indices, indptr), (n_rows, n_columns))
    X.sum_duplicates()
    X.data = np.log1p(X.data)
    scores = X @ (rng.standard_normal(n_columns) * (rng.random(n_columns) < 0.1))
    noise = 0.3 * scores.std() * rng.standard_normal(n_rows)
    return X, (scores + noise > np.median(scores)).astype(np.intp)


class Part(NamedTuple):
    """A figure: what grows, and the peer of a single fit and of a search."""

    title: str
    sizes: tuple[int, ...]
    draw: Callable[[int], Data]
    peer: Callable[[], Any]


PARTS = {
    "rows": Part(
        "rows (50 columns)",
        tuple(10**k for k in range(2, 8)),
        lambda size: dense(size, 50),
        LogisticRegression,
    ),
    "columns": Part(
        "columns (10,000 rows)",
        (10, 30, 100, 300, 1_000, 3_000, 10_000),
        lambda size: dense(10_000, size),
        LogisticRegression,
    ),
    "classes": Part(
        "classes (20,000 rows, 50 columns)",
        (2, 5, 10, 30, 100, 300, 1_000),
        lambda size: dense(20_000, 50, size),
        LogisticRegression,
    ),
    "nonzeros": Part(
        "non-zeros (50,000 columns)",
        (10**5, 10**6, 10**7, 10**8),
        words,
        LinearSVC,
    ),
}


def methods(part: Part, n_threads: int) -> dict[str, Callable[[], Any]]:
    """Return the methods of a part by name: ours and the peer, a fit and a search each."""
    peer = part.peer.__name__
    grid = partial(GridSearchCV, part.peer(), GRID, n_jobs=n_threads)
    return {
        "fit": partial(MarginPursuitClassifier, n_threads=n_threads),
        f"fit, {peer}": part.peer,
        "search": partial(MarginPursuitClassifierCV, n_threads=n_threads),
        f"search, {peer}": grid,
    }


def measure(part: str, size: int, method: str, n_threads: int) -> Point:
    """Return seconds of a fit, the growth of the peak of resident memory, and bytes of X.

    A fit of the same method to `tiny` comes first: imports, first calls of libraries and the start
    of worker processes take neither time nor memory of the measurement. The memory is that of the
    first call, without the worker processes of a grid search.
    """
    make = methods(PARTS[part], n_threads)[method]
    X, y = PARTS[part].draw(size)
    with warnings.catch_warnings(), limited(n_threads):
        warnings.simplefilter("ignore")
        make().fit(*tiny(X, y))
        before = resident(reset_peak=True)
        seconds = shortest_time(lambda: make().fit(X, y), repeats=1)
        peak = max(0, resident() - before)
        if seconds < SHORT:
            again = shortest_time(lambda: make().fit(X, y), repeats=REPEATS - 1)
            seconds = min(seconds, again)
        pools = [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
    return {
        "seconds": seconds,
        "peak_bytes": peak,
        "data_bytes": X.nbytes if isinstance(X, np.ndarray) else X.data.nbytes + X.indices.nbytes,
        "blas_threads": max(pools, default=None),
    }


def tiny(X: Any, y: Any) -> Data:
    """Return a few rows of the same kind: dense or sparse, two or several classes."""
    rows = X[:TINY_ROWS] if sparse.issparse(X) else X[:TINY_ROWS, :TINY_COLUMNS]
    return rows, np.arange(rows.shape[0]) % min(TINY_CLASSES, len(np.unique(y)))


@contextlib.contextmanager
def limited(n_threads: int) -> Iterator[None]:
    """Limit the threads of BLAS and OpenMP; those of worker processes to one each."""
    workers = parallel_config(backend="loky", inner_max_num_threads=1)
    with threadpool_limits(n_threads), workers:
        yield


def resident(*, reset_peak: bool = False) -> int:
    """Return the peak of resident memory in bytes; Linux can reset it to the present value."""
    import resource

    status = Path("/proc/self/status")
    if not status.exists():
        return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if reset_peak:
        Path("/proc/self/clear_refs").write_text("5")
    lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
    return 1024 * int(lines["VmHWM"].split()[0])


def run(arguments: Sequence[str] = ()) -> Iterator[str]:
    """Measure the chosen parts, smaller sizes first."""
    chosen = _options().parse_args(arguments)
    chosen.results.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + 60 * chosen.minutes
    for name in chosen.parts:
        part, points = PARTS[name], _stored(chosen.store)
        for size in chosen.sizes or part.sizes:
            for method in methods(part, chosen.threads):
                known = [p for p in points if (p["part"], p["method"]) == (name, method)]
                is_done = any(p["size"] == size for p in known)
                has_ended = any(p["status"] != "done" and p["size"] < size for p in known)
                if is_done or has_ended or time.monotonic() > end:
                    continue
                call = f"measure({name!r}, {size}, {method!r}, {chosen.threads})"
                point: Point = {"part": name, "size": size, "method": method}
                points.append(point | in_process("growth", call, chosen.limit))
                with chosen.store.open("a") as store:
                    print("\n" + json.dumps(points[-1]), file=store)
                print(json.dumps(points[-1]), file=sys.stderr, flush=True)
        own = [p for p in points if p["part"] == name]
        if any("seconds" in p for p in own):
            _draw(part, own, chosen.results / f"growth-{name}.svg")
        yield _table(part, own, chosen)


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--sizes", nargs="+", type=int, help="default: those of each part")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds of a point")
    parser.add_argument("--minutes", type=float, default=600.0, help="then no point is started")
    parser.add_argument("--threads", type=int, default=usable_threads(None))
    parser.add_argument("--store", type=Path, default=RESULTS / "growth.jsonl")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the figures")
    return parser


def _stored(store: Path) -> list[Point]:
    """Return the points of a store; a line that was not written to its end is left out."""
    points = []
    for line in store.read_text().splitlines() if store.exists() else ():
        with contextlib.suppress(json.JSONDecodeError):
            points.append(json.loads(line))
    return points


def _table(part: Part, points: list[Point], chosen: argparse.Namespace) -> str:
    names = list(methods(part, chosen.threads))
    found = {(p["size"], p["method"]): p for p in points}
    lines = []
    for size in sorted({p["size"] for p in points}):
        own = [found.get((size, name), {"status": ""}) for name in names]
        data = [p["data_bytes"] for p in own if "data_bytes" in p]
        lines.append(
            (
                f"{size:,}",
                *(significant(p["seconds"]) if "seconds" in p else p["status"] for p in own),
                *(_ratio(own[k + 1], own[k]) for k in (0, 2)),
                *(f"{1e-6 * p['peak_bytes']:.3g}" if "seconds" in p else p["status"] for p in own),
                f"{1e-6 * data[0]:.3g}" if data else "",
            )
        )
    peer, n_threads = part.peer.__name__, chosen.threads
    blas = sorted({p["blas_threads"] for p in points if p.get("blas_threads")})
    return table(
        f"Growth with {part.title}",
        (
            *("size", *(f"{name}, s" for name in names)),
            *(f"fit, {peer} / ours", f"search, {peer} / ours"),
            *(f"{name}, MB" for name in names),
            "X, MB",
        ),
        lines,
        f"Threads: {n_threads} of ours; of BLAS {' or '.join(map(str, blas)) or 'unknown'} in "
        f"every method, set by threadpoolctl; GridSearchCV(n_jobs={n_threads}) has one of BLAS in "
        "each worker process. Each point has a process of its own, ended after "
        f"{chosen.limit:g} s. The method is first fitted to {TINY_ROWS} rows there, which also "
        f"starts worker processes; then one call is timed, and {REPEATS - 1} more if it takes less "
        f"than {SHORT:g} s: the shortest counts. MB: growth of the peak of resident memory during "
        "the first timed call, without that of worker processes.",
    )


def _ratio(peer: Point, ours: Point) -> str:
    if "seconds" not in peer or "seconds" not in ours:
        return ""
    return significant(peer["seconds"] / ours["seconds"])


def _draw(part: Part, points: list[Point], path: Path) -> None:
    """Draw time and memory over the size, on logarithmic axes."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams["svg.hashsalt"] = "growth"
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    axes = figure.subplots(1, 2)
    names = list(dict.fromkeys(p["method"] for p in points))
    for axis, key, factor, label in (
        (axes[0], "seconds", 1.0, "seconds"),
        (axes[1], "peak_bytes", 1e-6, "peak memory, MB"),
    ):
        for name in names:
            own = sorted((p["size"], p[key]) for p in points if p["method"] == name and key in p)
            style = {"linestyle": "--" if "," in name else "-", "marker": "o", "markersize": 3}
            color = "C0" if name.startswith("fit") else "C1"
            values = [factor * max(value, 1e5 if key == "peak_bytes" else 0) for _, value in own]
            axis.plot([size for size, _ in own], values, label=name, color=color, **style)
        axis.set(xscale="log", yscale="log", xlabel=part.title, ylabel=label)
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize="small")
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    write_results("growth", run(sys.argv[1:]))
