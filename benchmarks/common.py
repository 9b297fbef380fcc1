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
from compare import comparisons, kept_results, ratios
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


def significant(value: float) -> str:
    """Return a time or a ratio with three significant digits, which `compare` can read."""
    return f"{value:.0f}" if value >= 999.5 else f"{value:#.3g}".rstrip(".")


def write_results(section: str, tables: Iterable[str]) -> list[str]:
    """Print versions and tables as they are computed, and keep them in a dated file."""
    versions = io.StringIO()
    with contextlib.redirect_stdout(versions):
        marginpursuit.show_versions()
    command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    text = [
        f"# Benchmarks, {datetime.date.today().isoformat()}",
        f"```\n{versions.getvalue()}processor      {_processor()}\ncommand        {command}\n```",
    ]
    print("\n\n".join(text), flush=True)
    for part in tables:
        text.append(part)
        print(f"\n{part}", flush=True)
    return keep(section, "\n\n".join(text) + "\n")


def keep(section: str, text: str, folder: Path | None = None) -> list[str]:
    """Write the results of a section to a dated file; print what became more than 10 % slower.

    The comparison is with the kept results of the same section, of any date. The new file replaces
    older ones of this section in its folder. Returns the lines about what became slower.
    """
    folder = folder or RESULTS
    compared = list(comparisons(text, kept_results(section, RESULTS)))
    found = [str(each) for each in compared if each.is_slower()]
    n_ratios = len(list(ratios(text)))
    print(
        f"\n{len(compared)} of {n_ratios} ratios compared with kept results of {section}, "
        f"{len(found)} more than 10 % slower"
    )
    print(*found, sep="\n", end="\n" if found else "")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{datetime.date.today().isoformat()}-{section}.md"
    partial = path.with_suffix(".partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)
    for older in kept_results(section, folder):
        if older != path:
            older.unlink()
    print(f"\nwritten to {path}")
    return found


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":")[1].strip()
    return platform.processor()
