"""What became slower since the last kept results, by the ratios in the tables of `results/`.

A ratio of times within one run is compared if the name of its column, or its row, has one of two
forms, where "ours" is what is measured and X is a peer or a reference:

- "X / ours": larger is better,
- "ours / X": smaller is better.

Nothing else is compared: absolute times vary between machines. A cell may go on after the number:
"0.10 (13 / 128 µs)", "97 %". A row is known by the title of its table, its first cell, and the next
cells up to the first ratio or the first cell that begins with a decimal fraction.
"""

import re
from collections.abc import Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

_THEIRS_OVER_OURS = re.compile(r"\S / ours\b")
_OURS_OVER_THEIRS = re.compile(r"\bours / \S")
_NUMBER = re.compile(r"\d+(\.\d+)?(e[+-]?\d+)?(?=$|[ %])")


class Ratio(NamedTuple):
    """A ratio of times within one run."""

    title: str
    row: str  # with the name of the column
    value: float
    rounding: float  # half a unit of the last digit
    larger_is_better: bool

    @property
    def worst(self) -> float:
        """The worst number that rounds to this one."""
        return self.value - self.rounding if self.larger_is_better else self.value + self.rounding

    def slowdown(self, before: float) -> float:
        """Return the factor by which this ratio is worse than a number."""
        worse, better = (before, self.value) if self.larger_is_better else (self.value, before)
        return worse / better if better else float("inf")


class Comparison(NamedTuple):
    """A ratio, and the kept one before it."""

    now: Ratio
    before: Ratio
    kept: str  # the file of the ratio before

    def is_slower(self, tolerance: float = 0.1) -> bool:
        """Return whether it is worse by more than this, and than rounding explains."""
        return self.now.slowdown(self.before.worst) > 1 + tolerance

    def __str__(self) -> str:
        percent = 100 * (self.now.slowdown(self.before.value) - 1)
        return (
            f"{percent:.0f} % slower: {self.now.title}, {self.now.row}: {self.now.value:g} instead "
            f"of {self.before.value:g} ({self.kept})"
        )


def ratios(text: str) -> Iterator[Ratio]:
    """Yield the ratios of all tables of a Markdown text."""
    title, header = "", list[str]()
    for line in text.splitlines():
        if line.startswith("## "):
            title = line[3:]
        if not line.startswith("|"):
            header = []
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not header:
            header = cells
            continue
        label = ", ".join(_label(header, cells))
        for name, cell in zip(header, cells, strict=False):
            if not _is_ratio(name) and not _is_ratio(cells[0]):
                continue
            if found := _NUMBER.match(cell):
                number, row = Decimal(found[0]), f"{label}, {name}"
                rounding = Decimal((0, (5,), int(number.as_tuple().exponent) - 1))
                larger = bool(_THEIRS_OVER_OURS.search(row))
                yield Ratio(title, row, float(number), float(rounding), larger)


def comparisons(text: str, kept: Iterable[Path]) -> Iterator[Comparison]:
    """Yield the ratios that kept files have, with those of the newest of these files."""
    now = {(ratio.title, ratio.row): ratio for ratio in ratios(text)}
    for path in sorted(kept, reverse=True):  # names begin with the date
        for before in ratios(path.read_text(encoding="utf-8")):
            ratio = now.pop((before.title, before.row), None)
            if ratio is not None:
                yield Comparison(ratio, before, path.name)


def kept_results(section: str, folder: Path) -> list[Path]:
    """Return the result files of a section, of any date: `2026-11-18-SECTION.md`."""
    name = re.compile(rf"\d{{4}}-\d\d-\d\d-{re.escape(section)}\.md")
    return sorted(path for path in folder.glob("*.md") if name.fullmatch(path.name))


def _is_ratio(name: str) -> bool:
    return bool(_THEIRS_OVER_OURS.search(name) or _OURS_OVER_THEIRS.search(name))


def _label(header: list[str], cells: list[str]) -> Iterator[str]:
    """Yield the cells that tell a row from others."""
    yield cells[0]
    if _is_ratio(cells[0]):
        return
    for name, cell in zip(header[1:], cells[1:], strict=False):
        if _is_ratio(name) or re.match(r"[-+<>]?\d+\.\d", cell):
            return
        yield cell
