"""An interrupt ends a fit soon, wherever it is, and leaves no state of the process changed.

Times are processor times of the fitting process, which do not depend on what else the machine does.
"""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

FITS = {
    "one_against_rest": "MarginPursuitClassifier(multi_class='ovr').fit(*classes(60_000, 500))",
    "pairs": "MarginPursuitClassifier(kernel='rbf', multi_class='ovo').fit(*dense(6_000, 20))",
    "newton": "MarginPursuitClassifier(solver='newton').fit(*dense(10_000, 2_000))",
    "kernel": "MarginPursuitClassifier(kernel='rbf').fit(*dense(10_000, 20))",
    "ldm": "LDMClassifier().fit(*text(5_000))",
    "ldm_kernel": "LDMClassifier(kernel='rbf', **long).fit(*dense(2_500, 20))",
    "odm": "ODMClassifier(solver='dual', **long).fit(*dense(1_000_000, 20))",
    "dual": "MarginPursuitClassifier(alpha=1e-9, solver='dual').fit(*text(100_000))",
    "search": "MarginPursuitClassifierCV().fit(*classes(600_000, 2))",
    "wide": "MarginPursuitClassifier(solver='gram').fit(*dense(2_000, 16_000))",
    "gram": "MarginPursuitClassifier(solver='gram').fit(*dense(16_000, 2_000))",
}

CHILD = """
import sys, threading, time, warnings
import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_info
from marginpursuit import (
    LDMClassifier, MarginPursuitClassifier, MarginPursuitClassifierCV, ODMClassifier
)

rng = np.random.default_rng(0)
long = {"tol": 1e-15, "max_iter": 10**7}


def dense(n_rows, n_columns):
    return rng.normal(size=(n_rows, n_columns)), np.arange(n_rows) % 3


def classes(n_rows, n_classes):
    y = np.arange(n_rows) % n_classes
    return rng.normal(size=(n_rows, 20)) + rng.normal(size=(n_classes, 20))[y], y


def text(n_rows, stored=50):
    indices = rng.integers(0, 50_000, n_rows * stored)
    rows = rng.random(n_rows * stored), indices, np.arange(n_rows + 1) * stored
    return sparse.csr_matrix(rows, shape=(n_rows, 50_000)), np.arange(n_rows) % 2


def state():
    counts = sorted((x["filepath"], x["num_threads"]) for x in threadpool_info())
    return counts, threading.active_count()


warnings.simplefilter("ignore")
MarginPursuitClassifier(n_threads=2).fit(*classes(200, 3))
before = state()
for name in ("dense", "classes", "text"):  # the time of making the data is not that of the fit
    def started(*arguments, make=globals()[name]):
        made = make(*arguments)
        print("started", flush=True)
        return made
    globals()[name] = started
try:
    FIT
    print("finished", flush=True)
except KeyboardInterrupt:
    print(time.process_time(), flush=True)
    assert state() == before, (state(), before)
"""


def processor_time(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100.0


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads processor times as Linux states them")
@pytest.mark.parametrize("name", FITS)
def test_an_interrupt_ends_a_fit_within_a_second(name):
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD.replace("FIT", FITS[name])],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout.readline() == "started\n"
        start, end = processor_time(child.pid), time.monotonic() + 60
        while processor_time(child.pid) < start + 0.7 and time.monotonic() < end:
            time.sleep(0.02)
        before = processor_time(child.pid)
        child.send_signal(signal.SIGINT)
        output, errors = child.communicate(timeout=120)
    finally:
        child.kill()
    if output.strip() == "finished":
        pytest.skip("the fit took less than the time after which it is interrupted")
    assert child.returncode == 0, errors
    # Two threads, each of which ends what it is doing.
    assert float(output) - before < 1.5
