"""The content of table files: bytes, text, lines of CSV, and names of columns."""

import contextlib
import csv
import gzip
import io
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from marginpursuit._progress_bar import Reached
from marginpursuit.tables.errors import MixedTableError, TableError, counted, optional

__all__ = [
    "MAX_BYTES",
    "CsvLines",
    "check_archive",
    "check_size",
    "csv_lines",
    "is_number",
    "names_in",
    "numbered",
    "parquet_content",
    "read_content",
    "text_columns",
    "unique_names",
    "unknown_suffix",
]


#: The default limit of the content of a file, in bytes, after decompression. The cells of a mixed
#: table take up to 25 times this memory, as Python objects.
MAX_BYTES = 2 * 10**9


def read_content(path: Path, max_bytes: int = MAX_BYTES) -> tuple[bytes, str, str]:
    """Return the bytes of a file, its name without suffixes, and its suffix without ``.gz``.

    The content of a gzip file is decompressed, whatever its suffix.
    """
    has_gz = path.suffix.lower() == ".gz"
    inner = Path(path.stem) if has_gz else path
    with open(path, "rb") as file:
        # A compressed file may lack the suffix: a download that was renamed.
        is_packed = has_gz or file.peek(2)[:2] == b"\x1f\x8b"
        try:
            with gzip.open(file) if is_packed else contextlib.nullcontext(file) as stream:
                content = _read_stream(stream, path, max_bytes)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise TableError(f"{path}: expected a gzip file: {error}") from error
    return content, inner.stem, inner.suffix.lower()


def _read_stream(
    stream: IO[bytes] | gzip.GzipFile, path: Path, max_bytes: int, chunk: int = 2**20
) -> bytes:
    content = io.BytesIO()
    while part := stream.read(chunk):
        content.write(part)
        check_size(content.tell(), max_bytes, str(path))
    return content.getvalue()


def check_size(n_bytes: int, max_bytes: int, what: str = "the table") -> None:
    """Raise an error if a table takes more bytes than the limit."""
    if n_bytes > max_bytes:
        raise TableError(
            f"{what} has more than {max_bytes / 1e9:g} GB after decompression, the limit for a "
            "table in memory. Raise the limit by --max-gigabytes (max_bytes in Python), or use "
            "blocks of rows (marginpursuit.blocks)."
        )


def check_archive(content: bytes, max_bytes: int) -> None:
    """Raise an error if the members of a zip archive take more bytes than the limit.

    `zipfile` reads at most the stated size of a member. Its reader reports a damaged archive.
    """
    with contextlib.suppress(zipfile.BadZipFile), zipfile.ZipFile(io.BytesIO(content)) as archive:
        check_size(sum(entry.file_size for entry in archive.infolist()), max_bytes)


class CsvLines(NamedTuple):
    """The names of the columns, whether the file has them, and (line number, cells) of each row."""

    names: list[str]
    has_names: bool
    rows: Iterator[tuple[int, list[str]]]
    notes: list[str]  # on the encoding, if it is not UTF-8 or UTF-16
    delimiter: str


def csv_lines(
    content: bytes, progress: Reached | None = None, *, may_be_windows: bool = False
) -> CsvLines:
    """Read CSV separated by comma, semicolon, tab or bar; the first line decides which.

    The first line holds the names unless all its cells are numbers; before it may be a line such as
    sep=; that names the separator, as Excel reads it. `progress` gets the number of characters.
    Text that is not UTF-8 is an error, or Windows-1252.
    """
    text, notes = _decoded(content, may_be_windows)
    header = _unquoted_header(text)
    named = re.fullmatch(r"(?i:sep)=([^\w\"\r\n])\r?", header)
    delimiter = named[1] if named else max(",;\t|", key=header.count)
    lines = _lines(text, delimiter, progress)
    if named:
        next(lines)
    first = next(lines, None)
    if first is None:
        raise TableError("the file is empty. Expected a line of names and lines of cells.")
    _, cells = first
    if all(is_number(cell) for cell in cells):
        rows = _checked(first, lines, len(cells))
        return CsvLines(list(numbered(len(cells))), False, rows, notes, delimiter)
    rows = _checked(None, lines, len(cells))
    return CsvLines([cell.strip() for cell in cells], True, rows, notes, delimiter)


def _unquoted_header(text: str) -> str:
    """Return the first line that is not empty without quoted parts, which may have line feeds."""
    start = len(text) - len(text.lstrip("\r\n"))
    end, n_quotes = start, 0
    while (feed := text.find("\n", end)) >= 0:
        n_quotes += text.count('"', end, feed)
        if n_quotes % 2 == 0:
            return "".join(text[start:feed].split('"')[::2])
        end = feed + 1
    return text[start:].partition("\n")[0]  # one line, or a sign for inches


def _lines(text: str, delimiter: str, progress: Reached | None) -> Iterator[tuple[int, list[str]]]:
    """Yield the lines that have cells."""
    stream = io.StringIO(text, newline="")
    rows = csv.reader(stream, delimiter=delimiter, strict=True, skipinitialspace=True)
    try:
        for number, row in enumerate(rows):
            if row:
                yield rows.line_num, row
            if progress is not None and number % 4096 == 0:
                progress(stream.tell(), len(text))
    except csv.Error as error:
        raise TableError(f"line {rows.line_num}: {_csv_reason(error)}") from error


def _csv_reason(error: csv.Error) -> str:
    if "field limit" in str(error):
        return (
            f"a cell has more than {csv.field_size_limit():,} characters. Expected a closing quote "
            "before; add it, or shorten the cell."
        )
    if "unexpected end of data" in str(error):
        return "a quoted cell has no end. Add the closing quote."
    if "expected after" in str(error):
        return "a cell goes on after its closing quote. Write quotes within a cell twice."
    return str(error)


def _checked(
    first: tuple[int, list[str]] | None, lines: Iterator[tuple[int, list[str]]], n_cells: int
) -> Iterator[tuple[int, list[str]]]:
    """Yield the first line if it holds values, then the others; check the number of cells."""
    if first is not None:
        yield first
    for line, row in lines:
        if len(row) != n_cells:
            raise TableError(
                f"line {line}: found {counted(len(row), 'cell')}, expected {n_cells} as in the "
                "first line. Quote cells that contain the separator, and remove lines that are not "
                "rows, such as titles and totals."
            )
        yield line, row


def _decoded(content: bytes, may_be_windows: bool) -> tuple[str, list[str]]:
    """Decode UTF-8, UTF-16 with a byte order mark, or Windows-1252, with a note on the last."""
    encoding = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    if encoding == "utf-8-sig":
        _refuse_utf16(content)
    try:
        return content.decode(encoding), []
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        found = f"line {line}: expected text in UTF-8, found byte {content[error.start]:#04x}"
        if b"\0" in content:
            raise TableError(f"{found} of a binary file. Save the table as .csv.") from error
        if may_be_windows:
            with contextlib.suppress(UnicodeDecodeError):
                text = content.decode("cp1252")
                return text, [f"line {line} is not UTF-8; the file is read as Windows-1252"]
        raise MixedTableError(f"{found}. Save the table as UTF-8.") from error


def _refuse_utf16(content: bytes) -> None:
    """Raise an error for text in UTF-16 without a byte order mark: every other byte is zero."""
    starts = content[0:200:2], content[1:200:2]
    if any(part.count(0) > len(part) / 2 for part in starts):
        raise TableError(
            "line 1: expected text in UTF-8, found text in UTF-16 without a byte order mark. Save "
            "the table as UTF-8."
        )


def unknown_suffix(path: Path, suffix: str, expected: Iterable[str]) -> str:
    """Return the error of a file that a reader of some suffixes does not read."""
    return (
        f"{path}: found the suffix {suffix!r}, expected one of {', '.join(expected)} (text files "
        "also with .gz). Save the table as one of these."
    )


def parquet_content(content: bytes, max_bytes: int = MAX_BYTES) -> Any:
    """Return a Parquet file as an Arrow table, with columns of text encoded as dictionaries.

    A value that a file repeats thus takes the memory of one value. The size is checked by the
    counts that the file states, then batch by batch. The index of a frame is left out if it has no
    name.
    """
    parquet, arrow = optional("pyarrow.parquet", "parquet"), optional("pyarrow", "parquet")
    try:
        file = parquet.ParquetFile(io.BytesIO(content), read_dictionary=text_columns(content))
        about = file.metadata
        groups = map(about.row_group, range(about.num_row_groups))
        n_bytes = sum(group.total_byte_size for group in groups)
        check_size(max(n_bytes, about.num_rows * about.num_columns), max_bytes)
        batches, n_bytes = [], 0
        for batch in file.iter_batches():
            batches.append(batch)
            n_bytes += batch.nbytes
            check_size(n_bytes, max_bytes)
        table = arrow.Table.from_batches(batches, file.schema_arrow)
        return table.select(_without_index(table.column_names))
    except TableError:
        raise
    except Exception as error:  # pyarrow raises many types for broken files
        raise TableError(f"no Parquet file, or a damaged one: {error}") from error


def _without_index(names: Iterable[str]) -> list[str]:
    """Leave out the index of a frame: it is a column of the file, and numbers the rows."""
    return [name for name in names if not name.startswith("__index_level_")]


def text_columns(content: bytes) -> list[str]:
    """Return the names of the columns of text of a Parquet file."""
    parquet, arrow = optional("pyarrow.parquet", "parquet"), optional("pyarrow", "parquet")
    schema = parquet.read_schema(io.BytesIO(content))
    return [field.name for field in schema if field.type in (arrow.string(), arrow.binary())]


def names_in(content: bytes, suffix: str) -> list[str]:
    """Return the names of the columns of a CSV or Parquet file."""
    if suffix == ".parquet":
        schema = optional("pyarrow.parquet", "parquet").read_schema(io.BytesIO(content))
        return _without_index(schema.names)
    return unique_names(csv_lines(content).names)[0]


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
