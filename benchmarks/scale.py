"""Data beyond memory: 10 GB that are fitted in less than 1.5 GB, at the rate of reading the file.

The size in GB is found in MARGINPURSUIT_SCALE_GB, the folder for the file in TMPDIR. The file is
taken out of the page cache before each timing, so that reading means the disk; where the system
cannot do that, the cache is warm, and the table says so.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from common import table

from marginpursuit import MarginPursuitClassifier
from marginpursuit._threads import usable_threads
from marginpursuit.blocks import Blocks, from_npy, to_npy
from marginpursuit.design import design_for
from marginpursuit.losses import MarginLoss
from marginpursuit.tasks import Labels, Tasks

COLUMNS = 256
BLOCK_ROWS = 1 << 16
GIGABYTES = float(os.environ.get("MARGINPURSUIT_SCALE_GB", "10"))


def run() -> Iterator[str]:
    """Make the file, and measure in a process of its own: its peak of memory is the fit's."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "X.npy")
        n_blocks = max(1, round(GIGABYTES * 1e9 / (4 * COLUMNS * BLOCK_ROWS)))
        to_npy(_synthetic(n_blocks), path)
        command = [sys.executable, __file__, str(path)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        n_rows = n_blocks * BLOCK_ROWS
        yield table(
            f"Beyond memory: {n_rows:,} x {COLUMNS} float32, {path.stat().st_size / 1e9:.1f} GB",
            ("what", "measured"),
            [line.split("\t") for line in done.stdout.splitlines()],
            "Reading: all bytes of the file in order, 16 MB at a time, into one buffer. Targets: "
            "less than 1.5 GB resident, and each sweep at 80 % of the rate of reading or more.",
        )


def _synthetic(n_blocks: int) -> Blocks:
    return Blocks([lambda k=k: _rows(k) for k in range(n_blocks)], [BLOCK_ROWS] * n_blocks)


def _rows(block: int) -> np.ndarray:
    return np.random.default_rng(block).standard_normal((BLOCK_ROWS, COLUMNS), dtype=np.float32)


def _measure(path: Path) -> Iterator[tuple[str, str]]:
    """Time reading, sweeps and a fit, each of them twice and in turn."""
    blocks, size = from_npy(path), path.stat().st_size
    truth = np.random.default_rng(1).normal(size=COLUMNS)
    rng = np.random.default_rng(2)
    y = np.empty(blocks.shape[0], dtype=np.int8)
    for _, span, scores in blocks.each(lambda rows: rows @ truth.astype(np.float32)):
        y[span] = scores + 16.0 * rng.normal(size=len(scores)) > 0
    weights = np.full(len(y), 1 / len(y))
    tasks = Tasks.of(Labels(y.astype(np.intp), 2), weights, MarginLoss())
    times: dict[str, list[float]] = {"reading": [], "sweep": []}
    cold = True
    with design_for(blocks, n_threads=usable_threads(None)) as design:
        for _ in range(3):
            cold &= _forget(path)
            times["reading"].append(_seconds(lambda: _read(path)))
            cold &= _forget(path)
            times["sweep"].append(
                _seconds(lambda: design.sweep(np.full((COLUMNS, 1), 1e-3), np.zeros(1), tasks))
            )
    reading, sweep = min(times["reading"]), min(times["sweep"])
    yield "page cache", "dropped before each timing" if cold else "warm: could not be dropped"
    yield "reading, GB/s", f"{size / reading / 1e9:.2f}"
    yield "sweep, GB/s", f"{size / sweep / 1e9:.2f}"
    yield "sweep, of the rate of reading", f"{100 * reading / sweep:.0f} %"
    _forget(path)
    model = MarginPursuitClassifier()
    fit = _seconds(lambda: model.fit(blocks, y))
    yield "fit, s", f"{fit:.1f}"
    yield "reads of a fit", str(model.n_sweeps_)
    yield "fit, of the rate of reading", f"{100 * model.n_sweeps_ * reading / fit:.0f} %"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    yield "most memory resident, GB", f"{peak / 1e9:.2f}"


def _seconds(call: object) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _read(path: Path) -> None:
    buffer = bytearray(1 << 24)
    with open(path, "rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def _forget(path: Path) -> bool:
    """Ask the system to drop the file from its page cache; say whether it can be asked."""
    if not hasattr(os, "posix_fadvise"):
        return False
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return True


if __name__ == "__main__":
    for what, measured in _measure(Path(sys.argv[1])):
        print(f"{what}\t{measured}")
