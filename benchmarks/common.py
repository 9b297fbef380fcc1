"""What the benchmarks share: data, timing, tables and result files."""

import contextlib
import datetime
import io
import os
import platform
import shlex
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import marginpursuit
from marginpursuit import datasets

RESULTS = Path(__file__).parent / "results"


def load(name: str) -> tuple[Any, Any] | None:
    """Return X and binary y in {0, 1} of a real data set, or None where it is absent."""
    try:
        data = datasets.load(name, original_labels=True, fetch=False)
    except datasets.DatasetError:
        return None
    positive = {"a9a": 1, "cov": 1, "digit5": 5, "protein": 1, "spambase": 1, "news20": 0}[name]
    return data.X, (data.y == positive).astype(int)


def least_time(call: Callable[[], Any], *, repeats: int = 15, most_seconds: float = 20.0) -> float:
    """Return the least time of several calls, in seconds."""
    times: list[float] = []
    started = time.perf_counter()
    while len(times) < repeats and (not times or time.perf_counter() - started < most_seconds):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def table(title: str, header: Iterable[str], rows: Iterable[Iterable[Any]], note: str = "") -> str:
    """Lay a table out in Markdown."""
    head = list(header)
    lines = [f"## {title}", "", f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [f"| {' | '.join(str(cell) for cell in row)} |" for row in rows]
    return "\n".join([*lines, *(["", note] if note else [])])


def keep(name: str, tables: Iterable[str]) -> None:
    """Print tables as they come, after what they were made with, and keep them in a dated file."""
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
    path = RESULTS / f"{today}-{name}.md"
    partial = path.with_suffix(".partial")
    partial.write_text("\n\n".join(text) + "\n")
    os.replace(partial, path)
    print(f"\nkept as {path}")


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":")[1].strip()
    return platform.processor()
