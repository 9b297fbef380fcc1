"""Results on disk: one line of JSON per finished fit, in a file that is only appended to.

A line is written by one system call, so lines of several processes do not interleave, and is synced
to disk before the fit counts as finished. An incomplete line of a killed process is ignored.
"""

import hashlib
import json
import os
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import marginpursuit
from marginpursuit.datasets import REGISTRY
from marginpursuit.experiments._fits import Fit, load_cached

__all__ = ["Store", "code_version", "key_of"]


@cache
def code_version() -> str:
    """Return the version and a hash of the source files that the results of fits depend on."""
    unrelated = {"__pycache__", "bounds", "cli", "experiments", "inspection", "report"}
    related = {"experiments/_fits.py", "experiments/_learners.py"}
    root = Path(marginpursuit.__file__).parent
    total = hashlib.sha256()
    for file in sorted(path for path in root.rglob("*") if path.is_file()):
        name = file.relative_to(root)
        if name.as_posix() in related or unrelated.isdisjoint(name.parts):
            total.update(f"{name.as_posix()}\n".encode() + file.read_bytes())
    return f"{marginpursuit.__version__}+{total.hexdigest()[:12]}"


def key_of(fit: Fit) -> str:
    """Return a hash of the configuration, the data and the code."""
    parts = {"fit": asdict(fit), "data": _data_version(fit.data), "code": code_version()}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


@cache
def _data_version(name: str) -> str:
    return REGISTRY[name].content_sha256 or load_cached(name).sha256


class Store:
    """Rows in a file, by key.

    Parameters
    ----------
    path : Path
        The file; the first row creates it and its folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def rows(self) -> dict[str, dict[str, Any]]:
        """Read all complete rows; of rows with equal keys the first counts."""
        found: dict[str, dict[str, Any]] = {}
        if self.path.exists():
            for line in self.path.read_bytes().split(b"\n"):
                try:
                    row = json.loads(line)
                    found.setdefault(row["key"], row)
                except (ValueError, KeyError, TypeError):
                    continue  # empty, or truncated by a kill
        return found

    def append(self, row: dict[str, Any]) -> None:
        """Append a row and sync it to disk.

        The row begins with a line break, so that it stays separate from a truncated line before it.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = b"\n" + json.dumps(row, separators=(",", ":")).encode() + b"\n"
        handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            if os.write(handle, line) != len(line):
                raise OSError(f"{self.path}: a row could not be written in full. Free disk space.")
            os.fsync(handle)
        finally:
            os.close(handle)
