"""Arguments and options that several commands share, and the data they name."""

import ast
import importlib
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from marginpursuit import datasets
from marginpursuit.experiments.compare import methods
from marginpursuit.experiments.cross_validation import Contamination
from marginpursuit.experiments.scoring import SCORINGS

__all__ = [
    "Add",
    "AsJson",
    "Baseline",
    "Categorical",
    "Contaminate",
    "Data",
    "Drop",
    "Identifier",
    "MaxGigabytes",
    "Numeric",
    "OutputFolder",
    "Rate",
    "Scoring",
    "Target",
    "Text",
    "check_output",
    "completion",
    "load_estimator",
    "parse_parameter",
    "refuse_input",
    "select_contamination",
    "select_methods",
    "select_scoring",
]


def check_output(output: Path | None, *inputs: str | Path) -> None:
    """Raise an error, before the work, if an output file cannot be written or is an input."""
    if output is None:
        return
    if output.is_dir():
        raise typer.BadParameter(f"--output {output} is a folder; expected the name of a file.")
    target = Path(os.path.realpath(output))  # a new file replaces it, unless it is a device
    is_replaced = target.is_file() or not target.exists()
    if is_replaced and target.parent.is_dir() and not os.access(target.parent, os.W_OK):
        raise typer.BadParameter(
            f"--output {output}: the folder {target.parent} is not writable. Choose another."
        )
    if not output.parent.is_dir():
        raise typer.BadParameter(
            f"--output {output}: there is no folder {output.parent}. Create it, or choose another."
        )
    refuse_input(output, *inputs)


def refuse_input(output: Path, *inputs: str | Path) -> None:
    """Raise an error if an output file is one of the inputs."""
    for given in inputs:
        if output.is_file() and Path(given).exists() and output.samefile(given):
            raise typer.BadParameter(
                f"--output {output} is the file {given}, which this command reads; expected "
                "another file. Choose another name."
            )


def completion(names: Callable[[], Iterable[str]]) -> Any:
    """Return a shell completion over names, which are computed when the shell asks."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in names() if name.startswith(incomplete)]

    return complete


AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A .csv, .tsv or .txt file (also .gz), a .xlsx, .parquet or .npz file, or the name "
        "of a data set (see `datasets`).",
        autocompletion=completion(lambda: sorted(datasets.REGISTRY)),
    ),
]
Target = Annotated[
    str | None,
    typer.Option(
        "--target",
        "-t",
        metavar="COLUMN",
        help="The column to predict; unnamed columns are 1, 2, ... Not for named data sets.",
    ),
]
Drop = Annotated[
    list[str] | None,
    typer.Option("--drop", metavar="COLUMN", help="A column to ignore; may be repeated."),
]
Numeric = Annotated[
    list[str] | None,
    typer.Option(
        "--numeric", metavar="COLUMN", help="A column to read as numbers; may be repeated."
    ),
]
Categorical = Annotated[
    list[str] | None,
    typer.Option(
        "--categorical", metavar="COLUMN", help="A column of categories; may be repeated."
    ),
]
Text = Annotated[
    list[str] | None,
    typer.Option(
        "--text", metavar="COLUMN", help="A column of free text (TF-IDF); may be repeated."
    ),
]
Identifier = Annotated[
    list[str] | None,
    typer.Option(
        "--id", metavar="COLUMN", help="A column that identifies rows; shown, not used to predict."
    ),
]
MaxGigabytes = Annotated[
    float,
    typer.Option(
        min=0.0,
        help="The largest table that is read, in GB after decompression.",
    ),
]
OutputFolder = Annotated[
    Path,
    typer.Option(
        "--output", "-o", metavar="FOLDER", file_okay=False, help="Folder; created if missing."
    ),
]

Add = Annotated[
    list[str] | None,
    typer.Option(
        metavar="MODULE:ESTIMATOR",
        help="A further estimator, as package.module:Estimator; may be repeated. Its module is "
        "imported.",
    ),
]
Baseline = Annotated[
    str,
    typer.Option(
        help="The method that the others are compared with.",
        autocompletion=completion(lambda: list(methods())),
    ),
]
Scoring = Annotated[
    str,
    typer.Option(
        help=f"The score that ranks the methods: {', '.join(SCORINGS)}.",
        autocompletion=completion(lambda: list(SCORINGS)),
    ),
]
Contaminate = Annotated[
    str | None,
    typer.Option(
        metavar="KIND",
        help="Contaminate training rows, not held-out rows: flips (wrong labels) or leverage "
        "(rows multiplied by ten, with wrong labels).",
        autocompletion=completion(lambda: ["flips", "leverage"]),
    ),
]
Rate = Annotated[
    float, typer.Option(min=0.0, max=1.0, help="With --contaminate: fraction of the rows.")
]


def select_methods(
    names: list[str] | None, added: list[str] | None = None, baseline: str | None = None
) -> dict[str, Any]:
    """Return the named methods, or all; with further estimators and the baseline."""
    try:
        chosen = dict(methods(names))
        for place in added or []:
            name, estimator = load_estimator(place)
            if name in chosen:
                raise ValueError(f"--add {place}: a method of the name {name} is compared already")
            chosen[name] = estimator
        if baseline is not None and baseline not in chosen:
            chosen |= methods([baseline])
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    return chosen


def select_scoring(name: str) -> str:
    """Return the name of a score; raise an error for an unknown one."""
    if name not in SCORINGS:
        raise typer.BadParameter(f"scoring must be one of {', '.join(SCORINGS)}; got {name!r}")
    return name


def select_contamination(kind: str | None, rate: float) -> Contamination | None:
    """Return the contamination of the training rows; None for none."""
    if kind is None:
        return None
    if kind not in ("flips", "leverage"):
        raise typer.BadParameter(f"--contaminate must be flips or leverage; got {kind!r}")
    return Contamination("flips" if kind == "flips" else "leverage", rate)


def load_estimator(place: str) -> tuple[str, Any]:
    """Import package.module:Estimator; return its name and an instance.

    Modules in the current folder are found too. The estimator has its default parameters, with a
    `random_state` of 0.
    """
    module, _, name = place.partition(":")
    if not (module and name):
        raise ValueError(f"--add expects package.module:Estimator; got {place!r}")
    sys.path.insert(0, str(Path.cwd()))
    try:
        estimator = getattr(importlib.import_module(module), name)()
    except (ImportError, AttributeError, TypeError) as error:
        raise ValueError(f"--add {place}: {error}. Expected package.module:Estimator.") from error
    finally:
        sys.path.remove(str(Path.cwd()))
    if not (hasattr(estimator, "fit") and hasattr(estimator, "get_params")):
        raise ValueError(f"--add {place}: expected an estimator of scikit-learn's interface")
    if "random_state" in estimator.get_params(deep=False):
        estimator.set_params(random_state=0)
    return name, estimator


def parse_parameter(text: str) -> tuple[str, Any]:
    """Parse NAME=VALUE; a value that is not a Python literal is a string."""
    name, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"--set expects NAME=VALUE; got {text!r}")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value
