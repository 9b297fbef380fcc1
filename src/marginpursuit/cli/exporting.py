"""The command `export`: a model file as JSON, SQL, C or ONNX."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from marginpursuit import load_model
from marginpursuit._files import write_atomically
from marginpursuit.cli.inputs import AsJson, check_output, completion
from marginpursuit.cli.output import say
from marginpursuit.cli.predictions import table_step
from marginpursuit.export import to_c, to_dict, to_sql

__all__ = ["export"]

_FORMATS = ("json", "sql", "c", "onnx")


def export(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A file written by `fit`.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The new file.")],
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            "-f",
            help=f"One of {', '.join(_FORMATS)}; by default the ending of FILE.",
            autocompletion=completion(lambda: list(_FORMATS)),
        ),
    ] = None,
    table: Annotated[str, typer.Option(help="SQL: the table of the features.")] = "data",
    keep: Annotated[
        list[str] | None, typer.Option(help="SQL: a column that the query returns too.")
    ] = None,
    dialect: Annotated[str, typer.Option(help="SQL: standard, postgresql or sqlite.")] = "standard",
    name: Annotated[str, typer.Option(help="C: the beginning of all names.")] = "model",
    as_json: AsJson = False,
) -> None:
    """Write a linear model as JSON, a query in SQL, a file of C or an ONNX graph.

    Each has the scores, the prediction and the probabilities. A table of numbers gives a linear
    model; one with text, dates or categories does not.
    """
    chosen = format_ or output.suffix.removeprefix(".").lower()
    if chosen not in _FORMATS:
        raise typer.BadParameter(f"--format must be one of {', '.join(_FORMATS)}; got {chosen!r}")
    check_output(output, model)
    fitted = load_model(model)
    if table_step(fitted) is not None:
        raise typer.BadParameter(
            f"{model} has a table step, as models of mixed tables and of .xlsx files have, which "
            "has no other form; expected a model of a .csv, .parquet or .npz file of numbers. Use "
            f"marginpursuit predict {model} DATA, or save the numbers as .csv and fit again."
        )
    try:
        content = _content(fitted, chosen, table, keep or [], dialect, name)
    except (TypeError, ValueError) as error:
        raise typer.BadParameter(str(error)) from error
    path = write_atomically(output, content)
    say({"file": str(path), "format": chosen} if as_json else str(path), as_json=as_json)


def _content(
    fitted: Any, chosen: str, table: str, keep: list[str], dialect: str, name: str
) -> bytes:
    """Return the content of the file."""
    if chosen == "json":
        return json.dumps(to_dict(fitted), indent=1, ensure_ascii=False).encode()
    if chosen == "sql":
        return to_sql(fitted, table, keep=keep, dialect=dialect).encode()
    if chosen == "c":
        return to_c(fitted, name).encode()
    from marginpursuit.onnx import to_onnx  # imports skl2onnx

    graph: bytes = to_onnx(fitted).SerializeToString()
    return graph
