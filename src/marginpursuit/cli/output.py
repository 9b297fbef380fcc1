"""Output of all commands: results, progress, and errors with exit codes."""

import json
import math
import os
import re
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from typing import Any, ClassVar, TextIO

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from marginpursuit.datasets import DatasetError
from marginpursuit.experiments.runs import RunFileError
from marginpursuit.model_files import ModelFileError
from marginpursuit.tables import TableError

__all__ = [
    "Commands",
    "Exit",
    "activity",
    "csv_cell",
    "data_errors",
    "named_options",
    "note",
    "progress",
    "say",
    "show_table",
]


class Exit(IntEnum):
    """Exit codes."""

    FAILED = 1  # a method or figure failed
    USAGE = 2  # invalid command or option
    DATA = 3  # data cannot be read or fitted
    FILE = 4  # a model or run file is rejected
    EXTRA = 5  # an optional package is missing
    INTERRUPTED = 130  # Ctrl-C


class Commands(TyperGroup):
    """The commands; expected errors become a one-line message and an exit code.

    Errors that indicate a defect of the library keep their traceback.
    """

    #: From an optional package to the argument of pip that installs it.
    extras: ClassVar = {
        "jinja2": "marginpursuit[report]",
        "markupsafe": "marginpursuit[report]",
        "matplotlib": "marginpursuit[plot]",
        "onnx": "marginpursuit[onnx]",
        "polars": "polars",
        "skl2onnx": "marginpursuit[onnx]",
    }

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _show_warning
                # `note_search_folds` says it once, with the option that changes it.
                warnings.filterwarnings("ignore", "The least populated class in y", UserWarning)
                return super().invoke(ctx)
        except BrokenPipeError:  # the reader closed the pipe
            raise
        except (ModelFileError, RunFileError) as error:
            code, message = Exit.FILE, str(error)
        except (TableError, DatasetError, _DataError) as error:
            code, message = Exit.DATA, str(error)
        except OSError as error:
            known = error.filename is not None and error.strerror is not None
            code, message = (
                Exit.DATA,
                f"{error.filename}: {error.strerror}" if known else str(error),
            )
        except ModuleNotFoundError as error:
            extra = self.extras.get((error.name or "").partition(".")[0])
            if extra is None:
                raise
            code = Exit.EXTRA
            message = f"this needs {error.name}; install it with: pip install '{extra}'"
        except KeyboardInterrupt:
            code, message = Exit.INTERRUPTED, "interrupted"
        note(f"error: {message}")
        raise typer.Exit(int(code))


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning without the place in the code."""
    note(f"warning: {message}")


class _DataError(ValueError):
    """A method rejected the data."""


@contextmanager
def data_errors(name: str, reword: Callable[[str], str] = str) -> Iterator[None]:
    """Convert errors of a method into errors of the data; `reword` may change their text."""
    try:
        yield
    except (ValueError, OverflowError) as error:
        text = reword(str(error))
        raise _DataError(text if text.startswith(name) else f"{name}: {text}") from error


def named_options(message: str, option: str = "The option is --set cv=NUMBER.") -> str:
    """Return an error of a fit; one about the parameter `cv` also names the option that sets it."""
    is_about_cv = re.search(r"\bcv\b|\bn_splits\b", message) is not None
    return f"{message} {option}" if is_about_cv else message


def say(content: Any, *, as_json: bool) -> None:
    """Print the result of a command to standard output: JSON, or text as `printable` has it."""
    if as_json:
        typer.echo(json.dumps(_finite(content), indent=1, allow_nan=False))
    else:
        typer.echo(printable(str(content)))


def _finite(content: Any) -> Any:
    """Replace NaN and infinite numbers, which JSON does not have, by null."""
    if isinstance(content, dict):
        return {name: _finite(value) for name, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def note(message: str) -> None:
    """Print a message to standard error."""
    typer.echo(printable(message), err=True)


def printable(text: str) -> str:
    """Return text with control characters escaped, except tab and line feed.

    A terminal would obey the control characters of a file name or label.
    """
    if text.isprintable():
        return text
    return "".join(
        char.encode("unicode_escape").decode()
        if unicodedata.category(char) in ("Cc", "Cs") and char not in "\n\t"
        else char
        for char in text
    )


def csv_cell(value: Any) -> Any:
    """Return the value of a CSV cell; text that a spreadsheet would run as a formula is quoted.

    Such text starts with =, +, -, @, a tab or a carriage return and is not a number.
    """
    if not isinstance(value, str) or not value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def show_table(header: Sequence[str], rows: Iterable[Sequence[str]], n_texts: int) -> None:
    """Print a table; the first `n_texts` columns are left-aligned, the others right-aligned."""
    table = Table(header_style="bold", box=None, pad_edge=False)
    for number, name in enumerate(header):
        left = number < n_texts
        table.add_column(name, justify="left" if left else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    # Without a terminal the table is 160 characters wide, so that cells are not folded.
    Console(width=None if os.isatty(1) else 160).print(table)


@contextmanager
def progress(label: str, total: int) -> Iterator[Any]:
    """Show a progress bar on a terminal; yield a function that advances it and sets its label."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bars:
        task = bars.add_task(label, total=total)

        def advance(name: str) -> None:
            bars.update(task, advance=1, description=name)

        yield advance


@contextmanager
def activity(label: str) -> Iterator[Callable[[int, int | None], None]]:
    """Show the elapsed time of a step on a terminal, and remove the line when it ends.

    Yields a function of the amount done and the total, which draws a bar; the total may be None.
    """
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    off = not console.is_terminal
    with Progress(*columns, console=console, disable=off, transient=True) as bars:
        task = bars.add_task(label, total=None)

        def reached(done: int, total: int | None) -> None:
            bars.update(task, completed=done, total=total)

        yield reached
