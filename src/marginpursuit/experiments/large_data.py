"""Data beyond memory and on a cluster, measured on this machine.

A file of synthetic rows is made for a while. In a process of its own, whose peak of memory is then
that of a fit, it is read, swept and fitted. Its first rows are also fitted in memory, in blocks and
by one and two workers of a Dask cluster where ``distributed`` is installed.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginpursuit import MarginPursuitClassifier
from marginpursuit._threads import usable_threads
from marginpursuit.blocks import Blocks, as_blocks, from_npy, to_npy
from marginpursuit.design import design_for
from marginpursuit.experiments.runs import Listing
from marginpursuit.losses import MarginLoss
from marginpursuit.tasks import Labels, Tasks

__all__ = [
    "LargeFile",
    "compare_places",
    "count_fits",
    "dask_rows",
    "has_dask",
    "large_file",
    "measure_file",
    "synthetic",
]

_COLUMNS = 256

# Rows of the blocks that workers have, 128 MiB, and the fewest blocks.
_BLOCK_ROWS, _FEWEST_BLOCKS = 1 << 17, 4

# Bytes that are fitted in memory too, and bytes that are read at a time.
_MOST_IN_MEMORY = 2.2e9
_READ = 1 << 24

# Times that something is measured, numbers of workers, and the seed of rows that are not fitted.
_REPEATS = 3
_WORKERS = (1, 2)
_TEST_SEED, _TEST_ROWS = 1 << 30, 1 << 16


@dataclass(frozen=True, slots=True)
class LargeFile:
    """Synthetic rows in a ``.npy`` file, and their labels."""

    path: Path
    y: NDArray[np.int8]
    block_rows: int

    @property
    def n_bytes(self) -> int:
        """The size of the file."""
        return self.path.stat().st_size

    def blocks(self, n_blocks: int) -> Blocks:
        """Return the first rows, in the blocks that workers have."""
        blocks = from_npy(self.path, block_bytes=4 * _COLUMNS * self.block_rows)
        loaders = [partial(blocks.load, block) for block in range(n_blocks)]
        return Blocks(loaders, [self.block_rows] * n_blocks)


@contextmanager
def large_file(
    gigabytes: float, folder: str | os.PathLike[str] | None = None
) -> Iterator[LargeFile]:
    """Make a file, to be removed at the end, whatever ends it.

    Parameters
    ----------
    gigabytes : float
        Its size.
    folder : path-like, optional
        Where to make it; by default the folder for temporary files.

    Yields
    ------
    LargeFile
        The file.

    Raises
    ------
    OSError
        If there is not enough space.

    Examples
    --------
    >>> from marginpursuit.experiments.large_data import large_file
    >>> with large_file(0.001) as file:
    ...     file.blocks(3).shape
    (732, 256)
    """
    place = Path(folder or tempfile.gettempdir())
    free = shutil.disk_usage(place).free / 1e9
    if gigabytes > 0.95 * free:  # a full disk is trouble for others too
        raise OSError(
            f"a file of {gigabytes:g} GB does not fit in {place}, where {free:.1f} GB are free: "
            "choose a smaller size or another folder"
        )
    n_rows = int(gigabytes * 1e9 / (4 * _COLUMNS))
    block_rows = min(_BLOCK_ROWS, n_rows // _FEWEST_BLOCKS)
    n_blocks = n_rows // block_rows
    y = np.empty(n_blocks * block_rows, dtype=np.int8)

    def load(block: int) -> NDArray[np.float32]:
        rows, y[block * block_rows : (block + 1) * block_rows] = synthetic(block, block_rows)
        return rows

    loaders = [lambda block=block: load(block) for block in range(n_blocks)]
    with tempfile.TemporaryDirectory(prefix="marginpursuit-", dir=place) as made:
        path = Path(made, "X.npy")
        to_npy(Blocks(loaders, [block_rows] * n_blocks), path)
        yield LargeFile(path, y, block_rows)


def synthetic(seed: int, n_rows: int) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Return rows and labels, which no linear rule tells apart without errors."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n_rows, _COLUMNS), dtype=np.float32)
    direction = np.random.default_rng(99).standard_normal(_COLUMNS, dtype=np.float32)
    noise = 0.5 * np.sqrt(_COLUMNS) * rng.standard_normal(n_rows, dtype=np.float32)
    return rows, rows @ direction + noise > 0


def measure_file(file: LargeFile) -> Listing:
    """Read, sweep and fit a file, in a process of its own.

    Parameters
    ----------
    file : LargeFile
        The file.

    Returns
    -------
    Listing
        Rates, and the most memory that was resident.
    """
    labels = file.path.with_name("y.npy")
    np.save(labels, file.y)
    command = [sys.executable, "-m", __name__, str(file.path), str(labels), str(file.block_rows)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return Listing(
        f"Beyond memory: {len(file.y):,} x {_COLUMNS} float32, {file.n_bytes / 1e9:.3g} GB",
        "Reading: all bytes of the file in order, 16 MB at a time, into one buffer; the better of "
        "without and with a word to the system of what comes next. Least of three. Targets: less "
        "than 1.5 GB resident, and each sweep at 80 % of the rate of reading or more.",
        ("what", "measured"),
        tuple((what, measured) for what, measured in json.loads(done.stdout)),
    )


def _measure(file: LargeFile) -> Iterator[tuple[str, str]]:
    """Time reading, sweeps and a fit, each several times and in turn."""
    weights = np.full(len(file.y), 1 / len(file.y))
    tasks = Tasks.of(Labels(file.y.astype(np.intp), 2), weights, MarginLoss())
    reading, sweep, cold = np.inf, np.inf, True
    blocks = from_npy(file.path)
    with design_for(blocks, n_threads=usable_threads(None)) as design:
        coef, intercept = np.full((_COLUMNS, 1), 1e-3), np.zeros(1)
        for _ in range(_REPEATS):
            for ahead in (False, True):
                cold &= _forget(file.path)
                reading = min(reading, _seconds(partial(_read, file.path, ahead=ahead)))
            cold &= _forget(file.path)
            sweep = min(sweep, _seconds(partial(design.sweep, coef, intercept, tasks)))
    size = file.n_bytes
    yield "page cache", "dropped before each timing" if cold else "warm: could not be dropped"
    yield "reading, GB/s", f"{size / reading / 1e9:.2f}"
    yield "sweep, GB/s", f"{size / sweep / 1e9:.2f}"
    yield "sweep, of the rate of reading", f"{100 * reading / sweep:.0f} %"
    _forget(file.path)
    model = MarginPursuitClassifier()
    seconds = _seconds(partial(model.fit, blocks, file.y))
    yield "fit, s", f"{seconds:.1f}"
    yield "reads of a fit", str(model.n_passes_)
    yield "fit, of the rate of reading", f"{100 * model.n_passes_ * reading / seconds:.0f} %"
    if sys.platform != "win32":
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
        yield "most memory resident, GB", f"{peak / 1e9:.2f}"


def _read(path: Path, *, ahead: bool) -> None:
    buffer = bytearray(_READ)
    with open(path, "rb", buffering=0) as file:
        while file.readinto(buffer):
            if ahead and hasattr(os, "posix_fadvise"):
                place = file.tell() + 4 * _READ
                os.posix_fadvise(file.fileno(), place, _READ, os.POSIX_FADV_WILLNEED)


def _forget(path: Path) -> bool:
    """Ask the system to drop the file from its page cache; say whether it can be asked."""
    if not hasattr(os, "posix_fadvise"):
        return False
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return True


def has_dask() -> bool:
    """Whether there can be a cluster."""
    return all(find_spec(name) is not None for name in ("dask", "distributed"))


def count_fits() -> int:
    """Return how many fits `compare_places` compares."""
    return 3 + 2 * len(_WORKERS) * has_dask()


def compare_places(file: LargeFile, reached: Callable[[str], None] | None = None) -> Listing:
    """Fit the same rows in memory, in blocks and on a cluster of this machine.

    Parameters
    ----------
    file : LargeFile
        The rows, of which no more than 2 GB are taken, in an even number of blocks.
    reached : callable, optional
        Called with the name of each fit that is done.

    Returns
    -------
    Listing
        Times, processor times, rounds and bytes.
    """
    n_blocks = int(min(file.n_bytes, _MOST_IN_MEMORY) / (4 * _COLUMNS * file.block_rows)) // 2 * 2
    y, fits = file.y[: n_blocks * file.block_rows], []
    for fit in _fits(file, n_blocks, y):
        fits.append(fit)
        if reached is not None:
            reached(fit.name)
    rows, labels = synthetic(_TEST_SEED, _TEST_ROWS)
    return Listing(
        f"In memory, in blocks, on a cluster: {len(y):,} x {_COLUMNS} float32 in {n_blocks} blocks",
        "Least of three fits. Workers have one thread each; the scheduler runs here. Where there "
        "are no more processors than workers, client and scheduler take their time from the "
        "workers; the processor times say how much. Blocks are read anew in every round, or held "
        "by the workers.",
        (
            *("fit", "seconds", "relative to one thread", "processor time here, s"),
            *("of the busiest worker, s", "rounds", "GB read", "test error"),
        ),
        tuple(
            (
                *(fit.name, f"{fit.seconds:.2f}", f"{fit.seconds / fits[0].seconds:.2f}"),
                *(f"{fit.here:.2f}", f"{fit.busiest:.2f}" if fit.rounds else ""),
                *(str(fit.rounds or ""), f"{fit.n_read / 1e9:.2f}"),
                f"{100 * np.mean(fit.model.predict(rows) != labels):.2f} %",
            )
            for fit in fits
        ),
    )


@dataclass(frozen=True, slots=True)
class _Fit:
    """The fastest of some fits."""

    name: str
    model: MarginPursuitClassifier
    seconds: float
    here: float  # processor time of this process
    busiest: float  # and of the worker that used most
    rounds: int
    n_read: float  # bytes


def _fits(file: LargeFile, n_blocks: int, y: NDArray[np.int8]) -> Iterator[_Fit]:
    X = np.array(np.load(file.path, mmap_mode="r")[: len(y)])
    yield _fit("in memory, 1 thread", X, y, n_threads=1)
    yield _fit("in memory, all threads", X, y)
    del X
    yield _fit("in blocks, all threads", file.blocks(n_blocks), y)
    for n_workers in _WORKERS if has_dask() else ():
        import distributed

        with (
            distributed.LocalCluster(
                n_workers=n_workers, threads_per_worker=1, dashboard_address="127.0.0.1:0"
            ) as cluster,
            distributed.Client(cluster) as client,
        ):
            lazy, name = dask_rows(file, n_blocks), f"Dask, {n_workers} workers, blocks"
            yield _fit(f"{name} read anew", lazy, y, client)
            # Copied: what takes no time to load would all come to be held by one worker.
            held = client.persist(lazy.map_blocks(np.array))
            distributed.wait(held)
            yield _fit(f"{name} held", held, y, client)


def _fit(
    name: str, X: Any, y: NDArray[np.int8], client: Any = None, n_threads: int | None = None
) -> _Fit:
    found = []
    for _ in range(_REPEATS):
        before = client.run(time.process_time) if client else {}
        here, start = time.process_time(), time.perf_counter()
        matrix = as_blocks(X)
        model = MarginPursuitClassifier(n_threads=n_threads).fit(matrix, y)
        seconds, here = time.perf_counter() - start, time.process_time() - here
        after = client.run(time.process_time) if client else {}
        busiest = max((after[worker] - before[worker] for worker in after), default=0.0)
        n_read = float(model.n_passes_ * len(y) * 4 * _COLUMNS)
        rounds = getattr(matrix, "n_rounds", 0)
        found.append(_Fit(name, model, seconds, here, busiest, rounds, n_read))
    return min(found, key=lambda fit: fit.seconds)


def dask_rows(file: LargeFile, n_blocks: int) -> Any:
    """Return some blocks of a file as a Dask array, which maps them where they are read."""
    import dask.array as da
    from dask import delayed

    shape, load = (file.block_rows, _COLUMNS), delayed(_mapped, pure=True)
    parts = [load(str(file.path), k * shape[0], (k + 1) * shape[0]) for k in range(n_blocks)]
    return da.concatenate([da.from_delayed(part, shape, np.float32) for part in parts])


def _mapped(path: str, first: int, last: int) -> NDArray[np.float32]:
    return np.asarray(np.load(path, mmap_mode="r")[first:last])


def _seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


if __name__ == "__main__":
    path, labels, block_rows = sys.argv[1:]
    print(json.dumps([*_measure(LargeFile(Path(path), np.load(labels), int(block_rows)))]))
