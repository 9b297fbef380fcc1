"""Errors of tables, and the optional packages that they need."""

from importlib import import_module
from typing import Any

__all__ = ["MixedTableError", "TableError", "optional"]


class TableError(ValueError):
    """A file does not hold a table, or a table does not match a model."""


class MixedTableError(TableError):
    """`read_table` cannot read a table that `read_frame` can: text, missing cells, equal names."""


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
