"""What became slower since the last kept results, by the ratios in the tables of `results/`.

A ratio is a column "X / ours" or "X / sweep": the time of a peer over that of the library in the
same run, larger is better. A row is known by the title of its table and its cells before the first
number.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple


class Slower(NamedTuple):
    """A ratio that fell."""

    title: str
    row: str
    before: float
    now: float
    kept: str  # the file of the former ratio

    def __str__(self) -> str:
        percent = 100 * (self.before / self.now - 1)
        return (
            f"{percent:.0f} % slower: {self.title}, {self.row}: {self.now:g} instead of "
            f"{self.before:g} ({self.kept})"
        )


def ratios(text: str) -> dict[tuple[str, str], float]:
    """Return the ratios of all tables of a Markdown text, by title and row."""
    found: dict[tuple[str, str], float] = {}
    title, header = "", list[str]()
    for line in text.splitlines():
        if line.startswith("## "):
            title, header = line[3:], []
        if not line.startswith("|") or line.startswith("|--"):
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not header:
            header = cells
            continue
        for name, cell in zip(header, cells, strict=False):
            if re.search(r" / (ours|sweep)\b", name) and _number(cell) is not None:
                found[title, ", ".join([*_label(cells), name])] = float(cell)
    return found


def slower(text: str, kept: Iterable[Path], tolerance: float = 0.1) -> Iterator[Slower]:
    """Yield the ratios that fell by more than `tolerance` since the newest file that has them."""
    now = ratios(text)
    seen: set[tuple[str, str]] = set()
    for path in sorted(kept, reverse=True):  # names begin with the date
        for key, before in ratios(path.read_text()).items():
            if key in now and key not in seen and now[key] * (1 + tolerance) < before:
                yield Slower(*key, before, now[key], path.name)
            seen.add(key)


def _label(cells: list[str]) -> Iterator[str]:
    """Yield the cells before the first number; at least the first."""
    for k, cell in enumerate(cells):
        if k > 0 and _number(cell) is not None:
            return
        yield cell


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None
