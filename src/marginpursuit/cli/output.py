"""What all commands share: how they answer, how they show progress, how they fail."""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from marginpursuit.datasets import DatasetError
from marginpursuit.experiments.runs import RunFileError
from marginpursuit.model_files import ModelFileError
from marginpursuit.tables import TableError

__all__ = ["Commands", "Exit", "learning", "note", "progress", "say", "show_table"]


class Exit(IntEnum):
    """What the exit code says."""

    FAILED = 1  # something went wrong while computing
    USAGE = 2  # the command was not understood
    DATA = 3  # data cannot be read, or cannot be learned from
    FILE = 4  # a model or run file is refused
    EXTRA = 5  # an optional package is missing
    INTERRUPTED = 130  # Ctrl-C


class Commands(TyperGroup):
    """The commands; errors that are no defects of the library become a line and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # whoever read has seen enough
            raise
        except (ModelFileError, RunFileError) as error:
            code, message = Exit.FILE, str(error)
        except (TableError, DatasetError, _UnfitDataError, OSError) as error:
            code, message = Exit.DATA, str(error)
        except ModuleNotFoundError as error:
            extra = _EXTRAS.get((error.name or "").partition(".")[0])
            if extra is None:
                raise
            code = Exit.EXTRA
            message = f"this needs {error.name}; install it with: pip install '{extra}'"
        except KeyboardInterrupt:
            code, message = Exit.INTERRUPTED, "interrupted"
        note(f"error: {message}")
        raise typer.Exit(int(code))


class _UnfitDataError(ValueError):
    """A method refused the data."""


@contextmanager
def learning(name: str) -> Iterator[None]:
    """Take what a method says of the data for an error of the data, not of the library."""
    try:
        yield
    except (ValueError, OverflowError) as error:
        raise _UnfitDataError(f"{name}: {error}") from error


#: From an optional package to what installs it.
_EXTRAS = {
    "jinja2": "marginpursuit[report]",
    "markupsafe": "marginpursuit[report]",
    "matplotlib": "marginpursuit[plot]",
    "polars": "polars",
}


def say(content: Any, *, as_json: bool) -> None:
    """Print the answer of a command: JSON, or text as it is."""
    if as_json:
        typer.echo(json.dumps(content, indent=1, allow_nan=False))
    else:
        typer.echo(content)


def note(message: str) -> None:
    """Print what is not the answer."""
    typer.echo(message, err=True)


def show_table(header: Sequence[str], rows: Iterable[Sequence[str]], n_texts: int) -> None:
    """Print a table; after the first `n_texts` columns there are numbers."""
    table = Table(header_style="bold", box=None, pad_edge=False)
    for number, name in enumerate(header):
        left = number < n_texts
        table.add_column(name, justify="left" if left else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    # Without a terminal the width is that of a page: nothing is folded that a program reads.
    Console(width=None if os.isatty(1) else 160).print(table)


@contextmanager
def progress(label: str, total: int) -> Iterator[Any]:
    """Show a bar on standard error, if that is a terminal; yields a function that moves it."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bars:
        task = bars.add_task(label, total=total)

        def reached(name: str) -> None:
            bars.update(task, advance=1, description=name)

        yield reached
