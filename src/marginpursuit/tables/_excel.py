"""Rows of the first sheet of an Excel file."""

import io
from typing import Any, NamedTuple

from marginpursuit._progress_bar import Reached
from marginpursuit.tables._content import check_archive, check_size
from marginpursuit.tables.errors import TableError, optional

__all__ = ["ExcelRows", "excel_rows"]


class ExcelRows(NamedTuple):
    """The names of the columns, the cells of each row, and the number of the first row of cells.

    All rows have the length of `names`; empty cells are None. `notes` is on further sheets.
    """

    names: list[str]
    rows: list[list[Any]]
    first: int
    notes: list[str]


def excel_rows(content: bytes, max_bytes: int, progress: Reached | None = None) -> ExcelRows:
    """Read the first sheet of an Excel file; its first row that is not empty has the names."""
    openpyxl = optional("openpyxl")
    check_archive(content, max_bytes)
    try:
        book = openpyxl.load_workbook(io.BytesIO(content), read_only=True, data_only=True)
        sheet, *further = book.worksheets
        total = sheet.max_row
        sheet.reset_dimensions()  # the size that the file states may be wrong
        rows = _filled_rows(sheet.iter_rows(values_only=True), total, max_bytes, progress)
    except TableError:
        raise
    except Exception as error:  # openpyxl and zipfile raise many types for broken files
        raise TableError(f"no .xlsx file, or a damaged one: {error}") from error
    header = next((number for number, row in enumerate(rows) if row), None)
    if header is None:
        raise TableError("the first sheet is empty. Expected a row of names and rows of cells.")
    n_columns = max(map(len, rows))
    # A wide row makes all rows wide; a reference to an object takes 8 bytes.
    check_size(8 * n_columns * len(rows), max_bytes)
    padded = [[*row, *[None] * (n_columns - len(row))] for row in rows[header:]]
    names = ["" if cell is None else str(cell) for cell in padded[0]]
    notes = []
    if further:
        notes = [f"only the first of {1 + len(further)} sheets, {sheet.title!r}, is read"]
    return ExcelRows(names, padded[1:], header + 2, notes)  # the first row of a sheet is row 1


def _filled_rows(
    sheet_rows: Any, total: int | None, max_bytes: int, progress: Reached | None
) -> list[list[Any]]:
    """Return the rows up to the last that is not empty, each up to its last cell."""
    max_rows = 2**20  # of an Excel sheet
    rows: list[list[Any]] = []
    n_cells = n_filled = 0
    for number, cells in enumerate(sheet_rows):
        row = list(cells)
        n_cells += len(row)
        check_size(8 * n_cells, max_bytes)
        if number >= max_rows:
            raise TableError(
                f"the sheet has more than {max_rows:,} rows, the most of an .xlsx file"
            )
        while row and row[-1] in (None, ""):
            row.pop()
        rows.append(row)
        n_filled = len(rows) if row else n_filled
        if progress is not None and number % 1024 == 0:
            progress(number, total)
    return rows[:n_filled]
