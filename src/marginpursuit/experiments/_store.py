"""Results on disk: one line of JSON for each finished fit, only ever appended.

A line is written by one call, so that lines of several processes do not mix, and forced to the disk
before the fit counts as finished. A line that a killed process left half written is passed over.
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
from marginpursuit.experiments._fits import Fit, source

__all__ = ["Store", "code_version", "key_of"]

# What has no part in the numbers of a fit, but for these files.
_APART = ("__pycache__", "bounds", "cli", "experiments", "inspection", "report")
_FITS = ("experiments/_fits.py", "experiments/_learners.py")


@cache
def code_version() -> str:
    """Name the code that fits depend on: the version, and a sum of the files."""
    root = Path(marginpursuit.__file__).parent
    total = hashlib.sha256()
    for file in sorted(path for path in root.rglob("*") if path.is_file()):
        name = file.relative_to(root)
        if name.as_posix() in _FITS or not {*name.parts} & {*_APART}:
            total.update(f"{name.as_posix()}\n".encode() + file.read_bytes())
    return f"{marginpursuit.__version__}+{total.hexdigest()[:12]}"


def key_of(fit: Fit) -> str:
    """Return a name for the outcome of a fit: it depends on its configuration, data and code."""
    parts = {"fit": asdict(fit), "data": _data_version(fit.data), "code": code_version()}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


@cache
def _data_version(name: str) -> str:
    return REGISTRY[name].content_sha256 or source(name).sha256


class Store:
    """Rows in a file, by key.

    Parameters
    ----------
    path : Path
        The file; it and its folder are made by the first row.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def rows(self) -> dict[str, dict[str, Any]]:
        """Read all whole rows; of those with the same key, the first counts."""
        found: dict[str, dict[str, Any]] = {}
        if self.path.exists():
            for line in self.path.read_bytes().split(b"\n"):
                try:
                    row = json.loads(line)
                    found.setdefault(row["key"], row)
                except (ValueError, KeyError, TypeError):
                    continue  # blank, or cut short by a kill
        return found

    def append(self, row: dict[str, Any]) -> None:
        """Add a row; when this returns, it is on the disk.

        It begins with a line break too: what a killed process left unfinished cannot spoil it.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = b"\n" + json.dumps(row, separators=(",", ":")).encode() + b"\n"
        handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            if os.write(handle, line) != len(line):
                raise OSError(f"{self.path}: a row could not be written whole; is the disk full?")
            os.fsync(handle)
        finally:
            os.close(handle)
