"""Time two installed versions of the library against each other, in alternation.

    python benchmarks/versions.py OLD NEW [--rounds 3] [--sets cov digit5 ...]
        [--only "search, spambase" ...] [--processor-time]

OLD and NEW are folders that contain the package `marginpursuit` (an unpacked wheel, or
site-packages). Each measurement runs in a process of its own, old and new in turn, so that both see
the same machine; the shortest time of all rounds counts. Parameters are explicit, so that versions
with different defaults do the same work. On a busy machine the time of the processor, summed over
threads, varies less than that of the clock.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy import sparse

#: The paper's loss, and the loss without overconfidence, with a small penalty.
LOSSES = {
    "paper's loss": {"scale": 1.0, "overconfidence": 1.0},
    "overconfidence 0": {"scale": 0.3, "overconfidence": 0.0},
}
#: The penalties of the searches, for dense and for sparse rows.
DENSE_ALPHAS = (1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 3e-6, 1e-6)
SPARSE_ALPHAS = (1e-3, 1e-4, 1e-5, 3e-6, 1e-6, 3e-7, 1e-7)
POSITIVE = {"cov": 1, "digit5": 5, "protein": 1, "news20": 0, "a9a": 1, "spambase": 1}


def measurements(sets: list[str]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield what is measured: a name, and a function that does the work once."""
    from marginpursuit import MarginPursuitClassifier, MarginPursuitClassifierCV, datasets

    # Parameters that older versions do not have, at values that mean what those do.
    as_before = {"probability": None, "multi_class": "ovr", "leverage_bound": None}
    known = MarginPursuitClassifier().get_params()
    common = {name: value for name, value in as_before.items() if name in known}
    rng = np.random.default_rng(0)
    shapes = {"540 x 54": (540, 54), "425 x 4932": (425, 4932), "300,000 x 50": (300_000, 50)}
    for shape, (n_rows, n_columns) in shapes.items():
        X = rng.normal(size=(n_rows, n_columns))
        y = (X @ rng.normal(size=n_columns) + np.sqrt(n_columns) * rng.normal(size=n_rows)) > 0
        for label, loss in LOSSES.items():
            model = MarginPursuitClassifier(**loss, **common, alpha=1e-6, alpha_unit="absolute")
            yield f"fit, {shape}, {label}", lambda m=model, X=X, y=y: m.fit(X, y)
    for name in sets:
        data = datasets.load(name, original_labels=True, fetch=False)
        is_several = name not in POSITIVE
        y = data.y if is_several else data.y == POSITIVE[name]
        X = data.X.astype(np.float32) if is_several else data.X
        for label, loss in LOSSES.items():
            if name == "news20" and loss["overconfidence"] == 0:
                continue  # minutes
            parameters = loss | common | {"alpha": 1e-6, "alpha_unit": "standardised"}
            model = MarginPursuitClassifier(**parameters)
            yield f"fit, {name}, {label}", lambda m=model, X=X, y=y: m.fit(X, y)
        if name != "news20":
            alphas = SPARSE_ALPHAS if sparse.issparse(X) else DENSE_ALPHAS
            search = MarginPursuitClassifierCV(alphas=alphas)
            if "multi_class" in search.get_params():
                search.set_params(multi_class="ovr")
            yield f"search, {name}", lambda m=search, X=X, y=y: m.fit(X, y)


def _measure(arguments: argparse.Namespace, seconds: float = 1.5) -> None:
    """Print the shortest time of each measurement as a line of JSON."""
    warnings.simplefilter("ignore")
    clock = time.process_time if arguments.processor_time else time.perf_counter
    for name, run in measurements(arguments.sets):
        if arguments.only and name not in arguments.only:
            continue
        times: list[float] = []
        while len(times) < 15 and sum(times) < seconds:
            start = clock()
            run()
            times.append(clock() - start)
        print(json.dumps([name, min(times)]), flush=True)


def _times(folder: str, arguments: argparse.Namespace) -> dict[str, float]:
    command = [sys.executable, __file__, "--measure", "--sets", *arguments.sets]
    command += ["--only", *arguments.only] if arguments.only else []
    command += ["--processor-time"] if arguments.processor_time else []
    environment = os.environ | {"PYTHONPATH": folder}
    found = {}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            name, seconds = json.loads(line)
            found[name] = seconds
            print(f"{folder}: {name}: {seconds:.4f} s", file=sys.stderr, flush=True)
    if process.returncode:
        raise SystemExit(f"the measurement of {folder} failed with exit code {process.returncode}")
    return found


def main() -> None:
    """Time both versions in turn and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("versions", nargs="*", help="the folders of the old and the new version")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sets", nargs="*", default=["cov", "digit5", "news20_minilm"])
    parser.add_argument("--only", nargs="*", help="names of measurements; by default all")
    parser.add_argument("--processor-time", action="store_true")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        _measure(arguments)
        return
    if len(arguments.versions) != 2:
        parser.error(
            f"expected two folders, of the old and the new version; got {arguments.versions}"
        )
    shortest: list[dict[str, float]] = [{}, {}]
    for _ in range(arguments.rounds):
        for found, folder in zip(shortest, arguments.versions, strict=True):
            for name, seconds in _times(folder, arguments).items():
                found[name] = min(seconds, found.get(name, np.inf))
    print("| measurement | old, s | new, s | new / old |\n|---|---|---|---|")
    old, new = shortest
    for name, seconds in old.items():
        print(f"| {name} | {seconds:.4f} | {new[name]:.4f} | {new[name] / seconds:.2f} |")


if __name__ == "__main__":
    main()
