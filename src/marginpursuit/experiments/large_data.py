"""Fits to data larger than memory and on a local cluster, measured on this machine.

A temporary file of synthetic rows is created. A separate process reads, sweeps and fits it, so that
its peak memory is that of a fit. The first rows are also fitted in memory, in blocks, and by one
and two workers of a Dask cluster if ``distributed`` is installed.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginpursuit import MarginPursuitClassifier
from marginpursuit._threads import Threads, usable_threads
from marginpursuit.blocks import Blocks, as_blocks, from_npy, to_npy
from marginpursuit.design import Standardisation, design_for
from marginpursuit.experiments.runs import Table
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

#: Columns of the synthetic data.
_COLUMNS = 256


@dataclass(frozen=True, slots=True)
class LargeFile:
    """Synthetic float32 rows in a ``.npy`` file, and their labels."""

    path: Path
    y: NDArray[np.int8]
    block_rows: int

    @property
    def n_bytes(self) -> int:
        """The size of the file."""
        return self.path.stat().st_size

    @property
    def block_bytes(self) -> int:
        """The size of a block."""
        return 4 * _COLUMNS * self.block_rows

    def blocks(self, n_blocks: int) -> Blocks:
        """Return the first blocks, of the size used by workers."""
        blocks = from_npy(self.path, block_bytes=self.block_bytes)
        loaders = [partial(blocks.load, block) for block in range(n_blocks)]
        return Blocks(loaders, [self.block_rows] * n_blocks)


@contextmanager
def large_file(
    gigabytes: float,
    folder: str | os.PathLike[str] | None = None,
    *,
    max_block_rows: int = 1 << 17,
    min_blocks: int = 4,
) -> Iterator[LargeFile]:
    """Create a file; it is removed at the end, also after an exception.

    Parameters
    ----------
    gigabytes : float
        Size of the file.
    folder : path-like, optional
        Folder of the file; by default the folder for temporary files.
    max_block_rows : int, default=131072
        Rows of a block, 128 MiB, if the file has at least `min_blocks` such blocks.
    min_blocks : int, default=4
        Smallest number of blocks.

    Yields
    ------
    LargeFile
        The file.

    Raises
    ------
    OSError
        If the disk has too little space.

    Examples
    --------
    >>> from marginpursuit.experiments.large_data import large_file
    >>> with large_file(0.001) as file:
    ...     file.blocks(3).shape
    (732, 256)
    """
    place = Path(folder or tempfile.gettempdir())
    free = shutil.disk_usage(place).free / 1e9
    if gigabytes > 0.95 * free:  # 5 % stay free for other programs
        raise OSError(
            f"a file of {gigabytes:g} GB does not fit in {place}, where {free:.1f} GB are free: "
            "choose a smaller size or another folder"
        )
    n_rows = int(gigabytes * 1e9 / (4 * _COLUMNS))
    block_rows = min(max_block_rows, n_rows // min_blocks)
    n_blocks = n_rows // block_rows
    y = np.empty(n_blocks * block_rows, dtype=np.int8)

    def load(block: int) -> NDArray[np.float32]:
        rows, y[block * block_rows : (block + 1) * block_rows] = synthetic(block, block_rows)
        return rows

    loaders = [partial(load, block) for block in range(n_blocks)]
    with tempfile.TemporaryDirectory(prefix="marginpursuit-", dir=place) as created:
        path = Path(created, "X.npy")
        to_npy(Blocks(loaders, [block_rows] * n_blocks), path)
        yield LargeFile(path, y, block_rows)


def synthetic(seed: int, n_rows: int) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Return normal rows and noisy linear labels; no linear rule separates them."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n_rows, _COLUMNS), dtype=np.float32)
    direction = np.random.default_rng(99).standard_normal(_COLUMNS, dtype=np.float32)
    noise = 0.5 * np.sqrt(_COLUMNS) * rng.standard_normal(n_rows, dtype=np.float32)
    return rows, rows @ direction + noise > 0


def measure_file(file: LargeFile) -> Table:
    """Read, sweep and fit a file in a separate process.

    Parameters
    ----------
    file : LargeFile
        The file.

    Returns
    -------
    Table
        Rates, and the peak resident memory.
    """
    labels = file.path.with_name("y.npy")
    np.save(labels, file.y)
    command = [sys.executable, "-m", __name__, str(file.path), str(labels), str(file.block_rows)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return Table(
        f"Larger than memory: {len(file.y):,} x {_COLUMNS} float32, {file.n_bytes / 1e9:.3g} GB",
        "Reading: all bytes of the file in order, 16 MB at a time, into one buffer; the faster of "
        "without and with read-ahead hints to the system. Shortest of three. Targets: less than "
        "1.5 GB resident, and each sweep at 80 % of the reading rate or more.",
        ("quantity", "measured"),
        tuple((quantity, measured) for quantity, measured in json.loads(done.stdout)),
    )


def _measure(file: LargeFile, repeats: int = 3) -> Iterator[tuple[str, str]]:
    """Time reading, sweeps and a fit; reading and sweeps alternate and are repeated."""
    weights = np.full(len(file.y), 1 / len(file.y))
    tasks = Tasks.of(Labels(file.y.astype(np.intp), 2), weights, MarginLoss())
    reading, sweep, cold = np.inf, np.inf, True
    blocks = from_npy(file.path)
    with Threads(usable_threads(None)) as threads:
        design, unscaled = design_for(blocks, threads), Standardisation.identity(_COLUMNS)
        coef, intercept = np.full((_COLUMNS, 1), 1e-3), np.zeros(1)
        sweep_once = partial(design.sweep, coef, intercept, tasks, unscaled)
        for _ in range(repeats):
            for read_ahead in (False, True):
                cold &= _drop_from_page_cache(file.path)
                read = partial(_read, file.path, read_ahead=read_ahead)
                reading = min(reading, _seconds(read))
            cold &= _drop_from_page_cache(file.path)
            sweep = min(sweep, _seconds(sweep_once))
    size = file.n_bytes
    yield "page cache", "dropped before each timing" if cold else "warm: could not be dropped"
    yield "reading, GB/s", f"{size / reading / 1e9:.2f}"
    yield "sweep, GB/s", f"{size / sweep / 1e9:.2f}"
    yield "sweep, relative to the reading rate", f"{100 * reading / sweep:.0f} %"
    _drop_from_page_cache(file.path)
    model = MarginPursuitClassifier()
    seconds = _seconds(partial(model.fit, blocks, file.y))
    yield "fit, s", f"{seconds:.1f}"
    yield "passes of a fit", str(model.n_passes_)
    rate = 100 * model.n_passes_ * reading / seconds
    yield "fit, relative to the reading rate", f"{rate:.0f} %"
    if sys.platform != "win32":
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
        yield "peak resident memory, GB", f"{peak / 1e9:.2f}"


def _read(path: Path, *, read_ahead: bool, chunk_bytes: int = 1 << 24) -> None:
    """Read a file in order into one buffer, optionally with read-ahead hints four chunks ahead."""
    buffer = bytearray(chunk_bytes)
    with open(path, "rb", buffering=0) as file:
        while file.readinto(buffer):
            if read_ahead and hasattr(os, "posix_fadvise"):
                offset = file.tell() + 4 * chunk_bytes
                os.posix_fadvise(file.fileno(), offset, chunk_bytes, os.POSIX_FADV_WILLNEED)


def _drop_from_page_cache(path: Path) -> bool:
    """Ask the system to drop the file from its page cache; return whether it supports this."""
    if not hasattr(os, "posix_fadvise"):
        return False
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return True


def has_dask() -> bool:
    """Return whether Dask and distributed are installed."""
    return all(find_spec(name) is not None for name in ("dask", "distributed"))


def count_fits(worker_counts: Sequence[int] = (1, 2)) -> int:
    """Return the number of fits that `compare_places` compares."""
    return 3 + 2 * len(worker_counts) * has_dask()


def compare_places(
    file: LargeFile,
    progress: Callable[[str], None] | None = None,
    *,
    max_bytes: float = 2.2e9,
    worker_counts: Sequence[int] = (1, 2),
    repeats: int = 3,
) -> Table:
    """Fit the same rows in memory, in blocks and on a local cluster.

    Parameters
    ----------
    file : LargeFile
        The rows.
    progress : callable, optional
        Called with the name of each finished fit.
    max_bytes : float, default=2.2e9
        Upper bound on the size of the rows; an even number of blocks is used.
    worker_counts : sequence of int, default=(1, 2)
        Sizes of the clusters.
    repeats : int, default=3
        Fits of each kind; the shortest counts.

    Returns
    -------
    Table
        Times, processor times, rounds and bytes.
    """
    n_blocks = int(min(file.n_bytes, max_bytes) / file.block_bytes) // 2 * 2
    y, fits = file.y[: n_blocks * file.block_rows], []
    for fit in _fits(file, n_blocks, y, worker_counts, repeats):
        fits.append(fit)
        if progress is not None:
            progress(fit.name)
    rows, labels = synthetic(1 << 30, 1 << 16)  # a seed that no block has
    return Table(
        f"In memory, in blocks, on a cluster: {len(y):,} x {_COLUMNS} float32 in {n_blocks} blocks",
        f"Shortest of {repeats} fits. Workers have one thread each; the scheduler runs in this "
        "process. If there are no more processors than workers, client and scheduler compete with "
        "the workers; the processor times show by how much. Blocks are loaded in every round, or "
        "held in the memory of the workers.",
        (
            *("fit", "seconds", "relative to one thread", "processor time of the client, s"),
            *("of the busiest worker, s", "rounds", "GB read", "test error"),
        ),
        tuple(
            (
                *(fit.name, f"{fit.seconds:.2f}", f"{fit.seconds / fits[0].seconds:.2f}"),
                *(f"{fit.client:.2f}", f"{fit.busiest:.2f}" if fit.rounds else ""),
                *(str(fit.rounds or ""), f"{fit.n_read / 1e9:.2f}"),
                f"{100 * np.mean(fit.model.predict(rows) != labels):.2f} %",
            )
            for fit in fits
        ),
    )


@dataclass(frozen=True, slots=True)
class _Fit:
    """The shortest of several fits."""

    name: str
    model: MarginPursuitClassifier
    seconds: float
    client: float  # processor time of this process
    busiest: float  # processor time of the worker that used most
    rounds: int
    n_read: float  # bytes


def _fits(
    file: LargeFile,
    n_blocks: int,
    y: NDArray[np.int8],
    worker_counts: Sequence[int],
    repeats: int,
) -> Iterator[_Fit]:
    """Yield the fits in memory, in blocks, and on each cluster."""
    X = np.array(np.load(file.path, mmap_mode="r")[: len(y)])
    yield _fit("in memory, 1 thread", X, y, repeats, n_threads=1)
    yield _fit("in memory, all threads", X, y, repeats)
    del X
    yield _fit("in blocks, all threads", file.blocks(n_blocks), y, repeats)
    for n_workers in worker_counts if has_dask() else ():
        import distributed

        with (
            distributed.LocalCluster(
                n_workers=n_workers, threads_per_worker=1, dashboard_address="127.0.0.1:0"
            ) as cluster,
            distributed.Client(cluster) as client,
        ):
            lazy, name = dask_rows(file, n_blocks), f"Dask, {n_workers} workers, blocks"
            yield _fit(f"{name} loaded in each round", lazy, y, repeats, client)
            # np.array copies: memory-mapped blocks load instantly, and Dask would assign all of
            # them to one worker.
            held = client.persist(lazy.map_blocks(np.array))
            distributed.wait(held)
            yield _fit(f"{name} held", held, y, repeats, client)


def _fit(
    name: str,
    X: Any,
    y: NDArray[np.int8],
    repeats: int,
    client: Any = None,
    n_threads: int | None = None,
) -> _Fit:
    """Return the shortest of `repeats` fits."""
    found = []
    for _ in range(repeats):
        before = client.run(time.process_time) if client else {}
        own, start = time.process_time(), time.perf_counter()
        matrix = as_blocks(X)
        model = MarginPursuitClassifier(n_threads=n_threads).fit(matrix, y)
        seconds, own = time.perf_counter() - start, time.process_time() - own
        after = client.run(time.process_time) if client else {}
        busiest = max((after[worker] - before[worker] for worker in after), default=0.0)
        n_read = float(model.n_passes_ * len(y) * 4 * _COLUMNS)
        rounds = getattr(matrix, "n_rounds", 0)
        found.append(_Fit(name, model, seconds, own, busiest, rounds, n_read))
    return min(found, key=lambda fit: fit.seconds)


def dask_rows(file: LargeFile, n_blocks: int) -> Any:
    """Return the first blocks of a file as a Dask array of memory-mapped blocks."""
    import dask.array as da
    from dask import delayed

    shape, load = (file.block_rows, _COLUMNS), delayed(_map_rows, pure=True)
    parts = [load(str(file.path), k * shape[0], (k + 1) * shape[0]) for k in range(n_blocks)]
    return da.concatenate([da.from_delayed(part, shape, np.float32) for part in parts])


def _map_rows(path: str, first: int, last: int) -> NDArray[np.float32]:
    return np.asarray(np.load(path, mmap_mode="r")[first:last])


def _seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


if __name__ == "__main__":
    path, labels, block_rows = sys.argv[1:]
    print(json.dumps([*_measure(LargeFile(Path(path), np.load(labels), int(block_rows)))]))
