"""Times of LDM and ODM: with a kernel on 5,000 rows of cov, linear on all rows, against SVMs."""

import contextlib
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from common import load, significant, standardised, table
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC, LinearSVC

from marginpursuit import LDMClassifier, ODMClassifier

KERNEL_ROWS = 5000
# λ₃ = n C gives the hinge the weight that it has in an SVM with C = 1.
KERNEL_WEIGHT = float(KERNEL_ROWS)


def run() -> Iterator[str]:
    """Measure LDM and ODM against scikit-learn's SVMs."""
    data = load("cov")
    if data is None:
        yield "## Margin distribution machines\n\ncov is missing, not run"
        return
    yield _kernel_table(*_sample(*data))
    yield _linear_table(*data)


def _kernel_table(X: Any, y: Any) -> str:
    peer = _times(SVC(), X, y)
    rows = []
    for name, model in (
        ("LDM, rbf", LDMClassifier(kernel="rbf", lambda3=KERNEL_WEIGHT, random_state=0)),
        ("ODM, rbf", ODMClassifier(kernel="rbf", loss_weight=KERNEL_WEIGHT, random_state=0)),
    ):
        times = _times(model, X, y)
        rows.append((name, *_cells(model, times), significant(times[1] / peer[1])))
    done = subprocess.run(
        [sys.executable, __file__], capture_output=True, text=True, check=True
    ).stdout
    return table(
        f"Kernel machines on {KERNEL_ROWS} rows of cov",
        ("method", "fit, s", "processor, s", "sweeps", "relative gap", "ours / SVC"),
        rows,
        f"LDM λ₁ = λ₂ = 1, λ₃ = {KERNEL_WEIGHT:g}; SVC with C = 1, tolerance 1e-3, took "
        f"{peer[1]:.1f} s of processor time. Peak memory of a fit of LDM: {done.strip()}; "
        f"the full kernel matrix has {8 * KERNEL_ROWS**2 / 1e6:.0f} MB. Target: LDM in less than "
        "60 s.",
    )


def _linear_table(X: Any, y: Any) -> str:
    X = standardised(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        peer = _times(LinearSVC(dual=False), X, y)
    rows = []
    for name, model in (("LDM", LDMClassifier()), ("ODM", ODMClassifier())):
        times = _times(model, X, y)
        rows.append((name, *_cells(model, times), significant(peer[1] / times[1])))
    return table(
        f"Linear machines on cov, {X.shape[0]} x {X.shape[1]}",
        ("method", "fit, s", "processor, s", "steps", "relative gap", "LinearSVC / ours"),
        rows,
        f"Default parameters; LinearSVC with dual=False (squared hinge) took {peer[1]:.1f} s of "
        "processor time. Target: seconds.",
    )


def _times(model: Any, X: Any, y: Any) -> tuple[float, float]:
    """Fit; return wall-clock and processor time in seconds."""
    start = time.perf_counter(), time.process_time()
    model.fit(X, y)
    return time.perf_counter() - start[0], time.process_time() - start[1]


def _cells(model: Any, times: tuple[float, float]) -> tuple[str, ...]:
    gap = float(model.duality_gap_[0])
    return f"{times[0]:.1f}", f"{times[1]:.1f}", str(model.n_iter_), f"{gap:.1e}"


def _sample(X: Any, y: Any) -> tuple[Any, Any]:
    chosen = np.random.default_rng(0).choice(len(y), KERNEL_ROWS, replace=False)
    return standardised(X[chosen]), y[chosen]


def main() -> None:
    """Fit kernel LDM and print the peak memory of this process."""
    X, y = _sample(*load("cov"))
    before = _peak_memory()
    LDMClassifier(kernel="rbf", lambda3=KERNEL_WEIGHT, random_state=0, tol=1e-2).fit(X, y)
    print(f"{_peak_memory()}, before the fit {before}")


def _peak_memory() -> str:
    """Return the peak memory of this process, if /proc has it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return f"{int(line.split()[1]) / 1e3:.0f} MB"
    return "unknown"


if __name__ == "__main__":
    main()
