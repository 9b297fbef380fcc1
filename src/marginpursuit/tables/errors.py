"""Errors of tables, and the optional packages that they need."""

import difflib
from collections.abc import Sequence
from importlib import import_module
from typing import Any

__all__ = ["MixedTableError", "TableError", "absent_columns", "counted", "listed", "optional"]


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: 1 row, 2 rows, 2 classes."""
    plural = noun + ("es" if noun.endswith("s") else "s")
    return f"{count:,} {noun if count == 1 else plural}"


def listed(names: Sequence[str], most: int = 20) -> str:
    """Return the first names of columns, in quotes."""
    return ", ".join(map(repr, names[:most])) + (", ..." if len(names) > most else "")


def absent_columns(absent: Sequence[Any], names: Sequence[str]) -> str:
    """Return the error of columns that a table does not have, with the name most like the first."""
    by_letters = {name.strip().casefold(): name for name in names}
    close = difflib.get_close_matches(str(absent[0]).strip().casefold(), by_letters, n=1)
    hint = f". Did you mean {by_letters[close[0]]!r}?" if close else ""
    if sum(name != f"column {number}" for number, name in enumerate(names, 1)) < 2:
        hint = (
            ". Expected the names of the columns in the first line, separated by comma, semicolon, "
            "tab or bar. Remove lines above them, such as a title."
        )
    return f"there is no column {listed(absent)}; there are {listed(names)}{hint}"


class TableError(ValueError):
    """A file does not hold a table, or a table does not match a model.

    Examples
    --------
    >>> from marginpursuit.tables import TableError, check_classes
    >>> try:
    ...     check_classes("paid", 1, 1000)
    ... except TableError as error:
    ...     print(error)
    column 'paid' has the same value in all 1,000 rows; expected at least 2 classes. Choose \
another target.
    """


class MixedTableError(TableError):
    r"""`read_table` cannot read a table that `read_frame` may: text, missing cells, other files.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from marginpursuit.tables import MixedTableError, read_table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "pets.csv")
    ...     _ = path.write_text("size,kind\nsmall,cat\nlarge,dog\n")
    ...     try:
    ...         read_table(path, target="kind")
    ...     except MixedTableError as error:
    ...         print(str(error).partition("pets.csv: ")[2])
    line 2, column 'size': expected a number, found 'small'
    """


def optional(module: str, extra: str = "tables") -> Any:
    """Import an optional package; the error names the extra that installs it."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise TableError(
            f"this needs {package}, which is not installed. "
            f"Install it with: pip install 'marginpursuit[{extra}]'"
        ) from error
