"""Fits on a Dask cluster of this machine: against memory, two workers against one, and dask-ml's.

Blocks are files that workers read anew in every round. The machine should be idle: two workers
cannot be faster than one where there is no second processor to spare.
"""

import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from common import table

from marginpursuit import MarginPursuitClassifier

ROWS, COLUMNS, BLOCKS = 640_000, 250, 10
REPEATS = 3


def run() -> Iterator[str]:
    """Measure one worker, two workers and the fit in memory on the same data."""
    try:
        import distributed
    except ImportError:
        yield "Cluster: distributed is not installed, not run."
        return
    with tempfile.TemporaryDirectory() as folder:
        X, y = _data()
        step = len(X) // BLOCKS
        for k in range(BLOCKS):
            np.save(Path(folder, f"{k}.npy"), X[k * step : (k + 1) * step])
        rows = []
        for n_threads in (1, 2):
            model = MarginPursuitClassifier(n_threads=n_threads)
            seconds = _least(lambda model=model, X=X: model.fit(X, y))
            rows.append((f"in memory, {n_threads} threads", seconds, "", "", _error(model)))
        del X
        for n_workers in (1, 2):
            with (
                distributed.LocalCluster(
                    n_workers=n_workers, threads_per_worker=1, dashboard_address="127.0.0.1:0"
                ) as cluster,
                distributed.Client(cluster) as client,
            ):
                rows += _on(client, _lazy(folder), y, f"{n_workers} workers, blocks read anew")
                held = _lazy(folder).persist()
                distributed.wait(held)
                rows += _on(client, held, y, f"{n_workers} workers, blocks held")
                rows += _peer(held, y, f"{n_workers} workers, blocks held, dask-ml")
        base = rows[0][1]
        yield table(
            f"Dask: {ROWS:,} x {COLUMNS} float32 in {BLOCKS} blocks",
            (
                *("what", "fit, s", "relative to one thread in memory"),
                *("processor time of the busiest worker, s", "of the client, s", "test error"),
            ),
            [
                (name, f"{seconds:.2f}", f"{seconds / base:.2f}", *busy, f"{100 * error:.2f} %")
                for name, seconds, *busy, error in rows
            ],
            "Least of three fits. Workers have one thread each. dask-ml: LogisticRegression with "
            "lbfgs and at most 100 iterations. Target: two workers at least 1.7 times as fast as "
            "one; on a busy machine the processor times say what is possible.",
        )


def _on(client: Any, X: Any, y: Any, name: str) -> list[tuple[Any, ...]]:
    """Fit on the cluster of a client; the processor times are those of the last fit."""
    model = MarginPursuitClassifier()
    seconds = _least(lambda: model.fit(X, y), repeats=REPEATS - 1)
    workers, here = client.run(time.process_time), time.process_time()
    seconds = min(seconds, _least(lambda: model.fit(X, y), repeats=1))
    here = time.process_time() - here
    busiest = max(then - workers[key] for key, then in client.run(time.process_time).items())
    return [(name, seconds, f"{busiest:.2f}", f"{here:.2f}", _error(model))]


def _data(seed: int = 0, rows: int = ROWS) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, COLUMNS), dtype=np.float32)
    truth = np.random.default_rng(99).normal(size=COLUMNS).astype(np.float32)
    noise = rng.standard_normal(rows, dtype=np.float32) * np.float32(0.5 * np.sqrt(COLUMNS))
    return X, (X @ truth + noise > 0).astype(int)


def _lazy(folder: str) -> Any:
    import dask.array as da
    from dask import delayed

    shape = ROWS // BLOCKS, COLUMNS
    parts = [delayed(np.load)(f"{folder}/{k}.npy") for k in range(BLOCKS)]
    return da.concatenate([da.from_delayed(part, shape, np.float32) for part in parts])


def _peer(X: Any, y: Any, name: str) -> list[tuple[Any, ...]]:
    """Fit dask-ml's logistic regression, where it is installed and works."""
    try:
        import dask.array as da
        from dask_ml.linear_model import LogisticRegression

        labels = da.from_array(y, chunks=X.chunks[0])
        model = LogisticRegression(solver="lbfgs", max_iter=100)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            seconds = _least(lambda: model.fit(X, labels), repeats=1)
            return [(name, seconds, "", "", _error(model))]
    except Exception as error:  # an optional peer must not end the run
        print(f"dask-ml left out: {error!r}"[:300])
        return []


def _error(model: Any) -> float:
    X, y = _data(seed=1, rows=100_000)
    return float(np.mean(np.asarray(model.predict(X)) != y))


def _least(call: Callable[[], Any], repeats: int = REPEATS) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)
