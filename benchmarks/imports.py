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
    seconds = dict.fromkeys(STATEMENTS, float("inf"))
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"PYTHONPYCACHEPREFIX": folder}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for repeat in range(REPEATS + 1):  # the first one compiles
            for name, statement in STATEMENTS.items():
                clock = "from time import process_time as now"
                code = f"{PEER}; {clock}; start = now(); {statement}; print(now() - start)"
                found = subprocess.run(
                    [sys.executable, "-c", code],
                    env=environment,
                    capture_output=True,
                    check=True,
                    text=True,
                )
                if repeat:
                    seconds[name] = min(seconds[name], float(found.stdout))
    yield table(
        "Imports",
        ("imported", "seconds more than sklearn.linear_model"),
        [(name, f"{own:.3f}") for name, own in seconds.items()],
        f"Processor time of the import after `{PEER}`, the least of {REPEATS} processes. Target: "
        "at most 0.1 s.",
    )


if __name__ == "__main__":
    write_results("imports", run())
