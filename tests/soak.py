"""Fits, searches, updates and files for as long as is wanted, with faults: `make soak`.

    python tests/soak.py --minutes 60 --seed 1
    python tests/soak.py --episode interrupt --seed 4711

Each episode is a process of its own, with a seed that the output states. It fails if the process
crashes, takes longer than its limit, or ends with a wrong result. All connections are to this
machine.
"""

import argparse
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import fuzz_model_files as fuzz
import numpy as np
from scipy import sparse
from scipy.linalg import cho_factor

from marginpursuit import (
    MarginPursuitClassifier,
    MarginPursuitClassifierCV,
    load_model,
    save_model,
)

#: Seconds after which an episode counts as hanging, by default.
LIMIT = 180


def drawn(rng: np.random.Generator, max_rows: int = 3000) -> tuple[Any, Any, Any]:
    """Return random rows, labels and weights."""
    n_rows, n_columns = int(rng.integers(40, max_rows)), int(rng.integers(2, 40))
    n_classes = int(rng.choice([2, 2, 3, 8]))
    y = np.arange(n_rows) % n_classes
    X = rng.normal(size=(n_classes, n_columns))[y] + 2 * rng.normal(size=(n_rows, n_columns))
    X = X.astype(rng.choice([np.float64, np.float32]))
    if rng.random() < 0.3:
        X = sparse.csr_matrix(X * (rng.random(X.shape) < 0.3))
    weights = rng.exponential(size=n_rows) if rng.random() < 0.3 else None
    return X, np.array([f"class {k}" for k in range(n_classes)])[y], weights


def estimator(rng: np.random.Generator, **options: Any) -> Any:
    """Return a classifier or, less often, a search."""
    if rng.random() < 0.3:
        return MarginPursuitClassifierCV(cv=3, random_state=0, **options)
    options["solver"] = str(rng.choice(["auto", "gram", "lbfgs"]))
    return MarginPursuitClassifier(multi_class=str(rng.choice(["auto", "ovr"])), **options)


def threads(seed: int, folder: Path) -> None:
    """Fits by one and by two threads are equal, and so are those that a model file restores."""
    rng = np.random.default_rng(seed)
    X, y, weights = drawn(rng)
    state = rng.bit_generator.state
    models = []
    for n_threads in (1, 2):
        rng.bit_generator.state = state
        models.append(estimator(rng, n_threads=n_threads).fit(X, y, sample_weight=weights))
    np.testing.assert_array_equal(models[0].coef_, models[1].coef_)
    restored = load_model(save_model(models[0], folder / "a.model"))
    np.testing.assert_array_equal(restored.predict_proba(X), models[0].predict_proba(X))


def stream(seed: int, folder: Path) -> None:
    """Updates batch by batch learn the classes."""
    rng = np.random.default_rng(seed)
    X, y, _ = drawn(rng)
    model = MarginPursuitClassifier()
    for rows in np.array_split(rng.permutation(len(y)), int(rng.integers(2, 20))):
        model.partial_fit(X[rows], y[rows], classes=np.unique(y))
        save_model(model, folder / "a.model")
        np.testing.assert_array_equal(load_model(folder / "a.model").coef_, model.coef_)
    assert np.isfinite(model.decision_function(X)).all()


def interrupt(seed: int, folder: Path) -> None:
    """An interrupt at any time leaves a process in which the same fit has the same result."""
    rng = np.random.default_rng(seed)
    X, y, weights = drawn(rng)
    model = estimator(rng, n_threads=2)
    expected = model.fit(X, y, sample_weight=weights).coef_
    start = time.perf_counter()
    model.fit(X, y, sample_weight=weights)
    duration = time.perf_counter() - start
    for _ in range(5):
        timer = threading.Timer(rng.random() * duration, os.kill, (os.getpid(), signal.SIGINT))
        try:
            timer.start()
            model.fit(X, y, sample_weight=weights)
            timer.join()
            time.sleep(0.05)
        except KeyboardInterrupt:
            pass
        timer.join()
    np.testing.assert_array_equal(model.fit(X, y, sample_weight=weights).coef_, expected)


def killed(seed: int, folder: Path) -> None:
    """A fit that is killed resumes from its checkpoint and reaches the same minimum."""
    rng = np.random.default_rng(seed)
    X, y, weights = drawn(rng, max_rows=20_000)
    options = {"solver": "lbfgs", "tol": 1e-9, "n_threads": 1, "probability": None}
    options |= {"alpha": 1e-3, "checkpoint": folder / "a.npz"}
    model = MarginPursuitClassifier(**options)
    for _ in range(int(rng.integers(1, 4))):
        child = os.fork()
        if child == 0:
            model.fit(X, y, sample_weight=weights)
            os._exit(0)
        time.sleep(rng.random() * 0.5)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    found = model.fit(X, y, sample_weight=weights).objective_
    assert not (folder / "a.npz").exists()
    whole = model.set_params(checkpoint=None).fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(found, whole.objective_, rtol=1e-6)


def full_disk(seed: int, folder: Path) -> None:
    """A model file that cannot be written raises an OSError and leaves the old one."""
    rng = np.random.default_rng(seed)
    X, y, _ = drawn(rng)
    model, path = MarginPursuitClassifier().fit(X, y), folder / "a.model"
    size = save_model(model, path).stat().st_size
    before = path.read_bytes()
    limit = int(rng.integers(0, size))
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    other = MarginPursuitClassifier().fit(X, y[::-1])
    for write in (
        lambda: save_model(other, path),
        lambda: MarginPursuitClassifier(checkpoint=folder / "a.npz", solver="lbfgs").fit(X, y),
    ):
        try:
            write()
        except OSError:
            continue
        assert path.stat().st_size <= limit or path.read_bytes() == before
    assert path.read_bytes() == before
    assert {file.name for file in folder.iterdir()} <= {"a.model", "a.npz"}


def low_memory(seed: int, folder: Path) -> None:
    """A fit with little memory succeeds or raises a MemoryError; a smaller one then succeeds."""
    rng = np.random.default_rng(seed)
    X, y, weights = drawn(rng, max_rows=40_000)
    model = estimator(rng, n_threads=2)
    model.fit(X[:200], y[:200])
    # OpenBLAS waits for ever where it has no memory for a buffer; it keeps those of its calls.
    square = np.eye(1000)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: cho_factor(square @ square), range(16)))
    statm = Path("/proc/self/statm").read_text().split()
    used = resource.getpagesize() * int(statm[0])
    limit = used + int(rng.integers(1, 100)) * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    try:
        model.fit(X, y, sample_weight=weights)
    except MemoryError:
        pass
    except RuntimeError as error:
        if "can't start new thread" not in str(error):
            raise
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert np.isfinite(model.fit(X[:200], y[:200]).coef_).all()


def files(seed: int, folder: Path) -> None:
    """Damaged files are read or refused."""
    assert fuzz.run_cases(seed, range(500), time.monotonic() + LIMIT) == 500


def workers(seed: int, folder: Path) -> None:
    """A fit whose workers are killed has the coefficients of one whose workers are not.

    They agree up to rounding: products depend on the alignment of a block in memory.
    """
    import dask
    import dask.array as da
    import distributed

    rng = np.random.default_rng(seed)
    X, y, _ = drawn(rng)
    X = X.toarray() if sparse.issparse(X) else X
    model = MarginPursuitClassifier(solver="gram")
    address = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    with (
        dask.config.set({"distributed.worker.daemon": True}),
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, **address) as cluster,
        distributed.Client(cluster) as client,
    ):
        rows = da.from_array(X, chunks=(max(1, len(y) // 5), -1))
        expected = model.fit(rows, y).coef_
        pids = list(client.run(os.getpid).values())
        timer = threading.Timer(rng.random(), os.kill, (int(rng.choice(pids)), signal.SIGKILL))
        timer.start()
        np.testing.assert_allclose(model.fit(rows, y).coef_, expected, rtol=1e-9, atol=1e-12)
        timer.join()


EPISODES: dict[str, Callable[[int, Path], None]] = {
    each.__name__: each
    for each in (threads, stream, interrupt, killed, full_disk, low_memory, files)
} | ({"workers": workers} if find_spec("distributed") else {})


def run_episode(name: str, seed: int, limit: float) -> str:
    """Run an episode in a process of its own; return what went wrong."""
    command = [sys.executable, "-W", "ignore", __file__, "--episode", name, "--seed", str(seed)]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return f"took more than {limit:.0f} s"
    if name == "low_memory" and "OpenBLAS error: Memory allocation" in run.stderr:
        return ""  # OpenBLAS ends a process that has no memory for its buffer, without an exception
    return "" if run.returncode == 0 else f"status {run.returncode}: {run.stderr[-3000:]}"


def main() -> None:
    """Run one episode, or episodes until the time is over; print their seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32)
    parser.add_argument("--episode", choices=sorted(EPISODES))
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds; more under load")
    options = parser.parse_args()
    if options.episode:
        warnings.simplefilter("ignore")
        folder = tempfile.mkdtemp(prefix="soak-")
        try:
            EPISODES[options.episode](options.seed, Path(folder))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return
    print(f"seed {options.seed}", flush=True)
    generator, failures, number = random.Random(options.seed), 0, 0
    end = time.monotonic() + 60.0 * options.minutes
    while time.monotonic() < end or number < len(EPISODES):
        name = list(EPISODES)[number % len(EPISODES)]
        seed, start = generator.randrange(2**32), time.monotonic()
        wrong = run_episode(name, seed, options.limit)
        print(f"{name} --seed {seed}: {time.monotonic() - start:.1f} s {wrong or 'ok'}", flush=True)
        failures, number = failures + bool(wrong), number + 1
    print(f"{number} episodes, {failures} failed", flush=True)
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
