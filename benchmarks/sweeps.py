"""Time of one fused sweep, relative to reading the data once and to SciPy's sparse products."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from common import load, shortest_time, significant, table

from marginpursuit._threads import Threads, usable_threads
from marginpursuit.design import Standardisation, design_for
from marginpursuit.losses import MarginLoss
from marginpursuit.tasks import Labels, Tasks

THREADS = usable_threads(None)


def run() -> Iterator[str]:
    """Measure dense and sparse sweeps."""
    yield table(
        "Sweep: value, gradient and losses of all margins in one pass",
        (
            "data",
            "type",
            "reading X once, ms",
            "sweep, ms",
            "ours / reading X",
            "relative to the float64 sweep",
        ),
        _dense(),
        "Reading: the maximum of X, with as many threads as the sweep. "
        "Target: at most 1.25 times reading for float64 and float32; uint8 at 60,000 x 784 at most "
        "0.35 of the float64 sweep.",
    )
    data = load("news20")
    if data is None:
        yield "Sparse sweep: news20 is missing, not run."
        return
    yield table(
        "Sparse sweep against SciPy's X @ w and X.T @ v",
        ("data", "type", "SciPy, ms", "sweep, ms", "SciPy / ours"),
        _sparse(data[0]),
        "SciPy's products run in one thread; its matrix is float64. Target: at least 2.",
    )


def _dense() -> Iterator[tuple[str, ...]]:
    rng = np.random.default_rng(0)
    for shape in ((581_012, 54), (60_000, 784)):
        base = rng.integers(0, 256, size=shape).astype(np.uint8)
        reference = None
        for dtype in (np.float64, np.float32, np.float16, np.int16, np.uint8):
            X = base.astype(dtype)
            reading, sweep = shortest_time(lambda X=X: _read(X)), _sweep_time(X)
            reference = reference or sweep
            yield (
                f"{shape[0]:,} x {shape[1]}",
                np.dtype(dtype).name,
                f"{1e3 * reading:.1f}",
                f"{1e3 * sweep:.1f}",
                significant(sweep / reading),
                f"{sweep / reference:.2f}",
            )
        X = np.asfortranarray(base.astype(np.float64))
        sweep = _sweep_time(X)
        name = f"{shape[0]:,} x {shape[1]}, Fortran order"
        yield name, "float64", "", f"{1e3 * sweep:.1f}", "", f"{sweep / reference:.2f}"


def _sparse(counts: Any) -> Iterator[tuple[str, ...]]:
    X = counts.astype(np.float64)
    w, v = np.ones(X.shape[1]), np.ones(X.shape[0])
    X.T.tocsc()  # SciPy's transpose is a view: no conversion is timed
    products = shortest_time(lambda: (X @ w, X.T @ v))
    for matrix in (X, counts):
        sweep = _sweep_time(matrix)
        yield (
            f"news20, {X.nnz:,} stored",
            matrix.dtype.name,
            f"{1e3 * products:.1f}",
            f"{1e3 * sweep:.1f}",
            significant(products / sweep),
        )


def _sweep_time(X: Any) -> float:
    n_rows, n_columns = X.shape
    weights = np.full(n_rows, 1.0 / n_rows)
    tasks = Tasks.of(Labels(np.arange(n_rows) % 2, 2), weights, MarginLoss())
    coef, intercept = np.full((n_columns, 1), 1e-3), np.zeros(1)
    identity = Standardisation.identity(n_columns)
    with Threads(THREADS) as threads:
        design = design_for(X, threads)
        return shortest_time(
            lambda: design.sweep(coef, intercept, tasks, identity),
            repeats=40,
        )


def _read(X: Any) -> None:
    if X.dtype == np.float16:
        X = X.view(np.int16)  # NumPy's maximum of half precision is not vectorised
    edges = np.linspace(0, len(X), THREADS + 1).astype(int)
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda k: X[edges[k] : edges[k + 1]].max(), range(THREADS)))
