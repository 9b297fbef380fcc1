"""Shared parts of the benchmarks: data, timing, tables and result files."""

import contextlib
import datetime
import io
import json
import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from compare import slower
from scipy import sparse

import marginpursuit
from marginpursuit import datasets

RESULTS = Path(__file__).parent / "results"


def load(name: str) -> tuple[Any, Any] | None:
    """Return X and binary y in {0, 1} of a real data set, or None if it is missing."""
    try:
        data = datasets.load(name, original_labels=True, fetch=False)
    except datasets.DatasetError:
        return None
    positive = {"a9a": 1, "cov": 1, "digit5": 5, "protein": 1, "spambase": 1, "news20": 0}[name]
    return data.X, (data.y == positive).astype(int)


def standardised(X: Any) -> Any:
    """Return a float64 copy of standardised columns; sparse ones are divided by their RMS."""
    X = X.astype(np.float64)
    if sparse.issparse(X):
        root = np.sqrt(np.asarray(X.multiply(X).mean(axis=0)).ravel())
        return (X @ sparse.diags_array(1.0 / np.where(root > 0, root, 1.0))).tocsr()
    X -= X.mean(axis=0)
    deviation = X.std(axis=0)
    return X / np.where(deviation > 0, deviation, 1.0)


def shortest_time(
    call: Callable[[], Any],
    *,
    repeats: int = 15,
    max_seconds: float = 20.0,
    timer: Callable[[], float] = time.perf_counter,
) -> float:
    """Return the shortest time of several calls, in seconds; stop after `max_seconds`."""
    times: list[float] = []
    started = time.perf_counter()
    while len(times) < repeats and (not times or time.perf_counter() - started < max_seconds):
        start = timer()
        call()
        times.append(timer() - start)
    return min(times)


def in_process(module: str, call: str, limit: float) -> dict[str, Any]:
    """Call a function of a benchmark in a process of its own; `status` says how it ended.

    The function returns a dictionary that JSON can hold, which is added to the result.
    """
    code = f"import json, {module}; print(json.dumps({module}.{call}))"
    try:
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=limit,
            check=True,
        )
    except subprocess.TimeoutExpired:
        return {"status": f"over {limit:g} s"}
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or [f"exit code {error.returncode}"])[-1]
        return {"status": f"failed: {last}"}
    return {"status": "done"} | json.loads(done.stdout.splitlines()[-1])


def table(title: str, header: Iterable[str], rows: Iterable[Iterable[Any]], note: str = "") -> str:
    """Return a table as Markdown."""
    head = list(header)
    lines = [f"## {title}", "", f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [f"| {' | '.join(str(cell) for cell in row)} |" for row in rows]
    return "\n".join([*lines, *(["", note] if note else [])])


def write_results(name: str, tables: Iterable[str]) -> None:
    """Print versions and tables as they are computed, and write them to a dated file.

    Then print what became more than 10 % slower since the last kept results. Older results of the
    same program are removed.
    """
    versions = io.StringIO()
    with contextlib.redirect_stdout(versions):
        marginpursuit.show_versions()
    today = datetime.date.today().isoformat()
    command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    text = [
        f"# Benchmarks, {today}",
        f"```\n{versions.getvalue()}processor      {_processor()}\ncommand        {command}\n```",
    ]
    print("\n\n".join(text), flush=True)
    for part in tables:
        text.append(part)
        print(f"\n{part}", flush=True)
    RESULTS.mkdir(exist_ok=True)
    path, whole = RESULTS / f"{today}-{name}.md", "\n\n".join(text) + "\n"
    found = [str(each) for each in slower(whole, RESULTS.glob("*.md"))]
    print("\n" + ("\n".join(found) or "nothing became more than 10 % slower"))
    partial = path.with_suffix(".partial")
    partial.write_text(whole)
    os.replace(partial, path)
    dated = "[0-9]" * 4 + "-[0-9][0-9]-[0-9][0-9]-"
    for older in set(RESULTS.glob(f"{dated}{name}.md")) - {path}:
        older.unlink()
    print(f"\nwritten to {path}")


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":")[1].strip()
    return platform.processor()
