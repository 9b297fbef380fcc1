"""Processor time that importing an estimator adds to a process that has scikit-learn.

    python benchmarks/imports.py

Every import runs in a process of its own, with compiled bytecode from an earlier one.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from common import table, write_results

PEER = "import sklearn.linear_model"
STATEMENTS = {
    "marginpursuit": "import marginpursuit",
    "MarginPursuitClassifier": "from marginpursuit import MarginPursuitClassifier",
    "MarginPursuitClassifierCV": "from marginpursuit import MarginPursuitClassifierCV",
}
REPEATS = 4


def run() -> Iterator[str]:
    """Measure the imports in alternation."""
    times: dict[str, list[list[float]]] = {name: [] for name in STATEMENTS}
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"PYTHONPYCACHEPREFIX": folder}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for repeat in range(REPEATS + 1):  # the first one compiles
            for name, statement in STATEMENTS.items():
                code = f"a = now(); {PEER}; b = now(); {statement}; print(now() - b, b - a)"
                found = subprocess.run(
                    [sys.executable, "-c", f"from time import process_time as now; {code}"],
                    env=environment,
                    capture_output=True,
                    check=True,
                    text=True,
                )
                if repeat:
                    times[name].append([float(word) for word in found.stdout.split()])
    rows = []
    for name, measured in times.items():
        own, peer = map(min, zip(*measured, strict=True))
        rows.append((name, f"{own:.3f}", f"{own / peer:.3f}"))
    yield table(
        "Imports",
        ("imported", "seconds more than sklearn.linear_model", "ours / sklearn.linear_model"),
        rows,
        f"Processor time of the import after `{PEER}`, the least of {REPEATS} processes. Target: "
        "at most 0.1 s.",
    )


if __name__ == "__main__":
    write_results("imports", run())
