"""Time of a fit as a function of the number of rows and columns."""

import time
from collections.abc import Iterator

import numpy as np
from common import table

from marginpursuit import MarginPursuitClassifier


def run() -> Iterator[str]:
    """Measure fits to synthetic data of growing size."""
    yield table(
        "Growth with rows (20 columns, float32)",
        _header("rows"),
        _grow([(n, 20) for n in (10_000, 100_000, 1_000_000, 10_000_000)]),
        "Target: time linear in rows within 20 %.",
    )
    yield table(
        "Growth with columns (100,000 rows, float32)",
        _header("columns"),
        _grow([(100_000, d) for d in (10, 30, 100, 300, 1000)], columns=True),
    )


def _header(size: str) -> tuple[str, ...]:
    per_pass = "per row and pass, relative to the first"
    return (size, "fit, s", "passes", "microseconds per row", per_pass)


def _grow(shapes: list[tuple[int, int]], *, columns: bool = False) -> Iterator[tuple[str, ...]]:
    first = None
    for n, d in shapes:
        rng = np.random.default_rng(0)
        X = rng.normal(size=(n, d)).astype(np.float32)
        y = (X @ rng.normal(size=d) + np.sqrt(d) * rng.normal(size=n) > 0).astype(int)
        times = []
        for _ in range(3):
            start = time.perf_counter()
            model = MarginPursuitClassifier(scale=1.0).fit(X, y)
            times.append(time.perf_counter() - start)
        seconds = min(times)
        rate = seconds / n / model.n_passes_
        first = first or rate
        yield (
            f"{d if columns else n:,}",
            f"{seconds:.3f}",
            str(model.n_passes_),
            f"{1e6 * seconds / n:.2f}",
            f"{rate / first:.2f}",
        )
