"""Processor time of importing the package and its first estimator, next to scikit-learn.

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
    "sklearn.linear_model": PEER,
    "marginpursuit": "import marginpursuit",
    "MarginPursuitClassifier": "from marginpursuit import MarginPursuitClassifier",
    "MarginPursuitClassifierCV": "from marginpursuit import MarginPursuitClassifierCV",
    "MarginPursuitClassifier, then sklearn.linear_model": (
        f"from marginpursuit import MarginPursuitClassifier; {PEER}"
    ),
}
REPEATS = 7


def run() -> Iterator[str]:
    """Measure the imports in alternation."""
    seconds = dict.fromkeys(STATEMENTS, float("inf"))
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"PYTHONPYCACHEPREFIX": folder}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for repeat in range(REPEATS + 1):  # the first one compiles
            for name, statement in STATEMENTS.items():
                code = f"{statement}; import time; print(time.process_time())"
                found = subprocess.run(
                    [sys.executable, "-c", code],
                    env=environment,
                    capture_output=True,
                    check=True,
                    text=True,
                )
                if repeat:
                    seconds[name] = min(seconds[name], float(found.stdout))
    peer = seconds["sklearn.linear_model"]
    yield table(
        "Imports",
        ("imported", "seconds", "more than sklearn.linear_model, s"),
        [(name, f"{own:.3f}", f"{own - peer:+.3f}") for name, own in seconds.items()],
        f"Processor time of a process, the least of {REPEATS}, with the start of the interpreter. "
        "Target: at most 0.1 s more.",
    )


if __name__ == "__main__":
    write_results("imports", run())
