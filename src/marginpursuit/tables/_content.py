"""The content of table files: bytes, text, lines of CSV, and names of columns."""

import csv
import gzip
import io
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from marginpursuit.tables.errors import TableError, optional

__all__ = [
    "CsvLines",
    "csv_lines",
    "is_number",
    "names_in",
    "numbered",
    "parquet_content",
    "read_content",
    "unique_names",
]


def read_content(path: Path) -> tuple[bytes, str, str]:
    """Return the bytes of a file, its name without suffixes, and its suffix without ``.gz``."""
    content = path.read_bytes()
    suffix, stem = path.suffix.lower(), path.stem
    if suffix == ".gz":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise TableError(f"{path}: expected a gzip file: {error}") from error
        suffix, stem = Path(stem).suffix.lower(), Path(stem).stem
    return content, stem, suffix


class CsvLines(NamedTuple):
    """The names of the columns, whether the file has them, and (line number, cells) of each row."""

    names: list[str]
    has_names: bool
    rows: Iterator[tuple[int, list[str]]]


def csv_lines(content: bytes) -> CsvLines:
    """Read CSV separated by comma, semicolon or tab; the first line decides which.

    The first line holds the names unless all its cells are numbers.
    """
    text = _decoded(content)
    first_line = text[: text.find("\n")] if "\n" in text else text
    delimiter = max(",;\t", key=first_line.count)
    lines = _lines(text, delimiter)
    first = next(lines, None)
    if first is None:
        raise TableError("the file is empty")
    _, cells = first
    if all(is_number(cell) for cell in cells):
        return CsvLines(list(numbered(len(cells))), False, _checked(first, lines, len(cells)))
    return CsvLines([cell.strip() for cell in cells], True, _checked(None, lines, len(cells)))


def _lines(text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the lines that have cells."""
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        for row in rows:
            if row:
                yield rows.line_num, row
    except csv.Error as error:
        raise TableError(f"line {rows.line_num}: {error}") from error


def _checked(
    first: tuple[int, list[str]] | None, lines: Iterator[tuple[int, list[str]]], n_cells: int
) -> Iterator[tuple[int, list[str]]]:
    """Yield the first line if it holds values, then the others; check the number of cells."""
    if first is not None:
        yield first
    for line, row in lines:
        if len(row) != n_cells:
            raise TableError(f"line {line}: {len(row)} cells, not {n_cells}")
        yield line, row


def _decoded(content: bytes) -> str:
    """Decode UTF-8, or UTF-16 with a byte order mark."""
    encoding = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        byte = content[error.start]
        raise TableError(f"line {line}: expected UTF-8, found byte {byte:#04x}") from error


def parquet_content(content: bytes) -> Any:
    """Return a Parquet file as an Arrow table."""
    parquet = optional("pyarrow.parquet", "parquet")
    try:
        return parquet.read_table(io.BytesIO(content))
    except Exception as error:  # pyarrow raises many types for broken files
        raise TableError(f"no Parquet file, or a damaged one: {error}") from error


def names_in(content: bytes, suffix: str) -> list[str]:
    """Return the names of the columns of a CSV or Parquet file."""
    if suffix == ".parquet":
        return list(parquet_content(content).column_names)
    return csv_lines(content).names


def is_number(cell: str) -> bool:
    """Whether a cell is a number in ASCII; Python also reads 1_000 and digits of other scripts."""
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell and cell.strip().isascii()


def numbered(count: int) -> tuple[str, ...]:
    """Return the names 1, 2, ... of columns without names."""
    return tuple(str(number + 1) for number in range(count))


def unique_names(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return a different name for each column, and a note on each change."""
    given = set(names)
    found: dict[str, None] = {}
    notes = []
    for number, name in enumerate(names):
        base = name or f"column {number + 1}"
        new, copy = base, 2
        while new in found or (new != name and new in given):
            new = f"{base} ({copy})"
            copy += 1
        if new != name:
            what = f"has the name {name!r} again" if name else "has no name"
            notes.append(f"column {number + 1} {what}; it is called {new!r}")
        found[new] = None
    return list(found), notes
