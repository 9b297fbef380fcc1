"""The commands."""

import ast
import csv
import io
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray

from marginpursuit import datasets as data_sets
from marginpursuit import experiments, load_model, save_model
from marginpursuit._files import write_atomically
from marginpursuit._versions import versions as installed
from marginpursuit.cli.output import (
    Commands,
    Exit,
    learning,
    note,
    progress,
    say,
    show_table,
)
from marginpursuit.experiments import overview
from marginpursuit.experiments.compare import (
    MethodResult,
    SetResult,
    compare,
    methods,
    standardised,
)
from marginpursuit.experiments.runs import Run
from marginpursuit.experiments.timing import time_fits
from marginpursuit.model_files import CLASSES
from marginpursuit.tables import TableError, read_table

__all__ = ["app"]

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Linear classifiers that pursue a margin level: compare, fit, predict, look.",
    epilog="Exit codes: 0 fine; 1 a method or figure failed; 2 the command was not understood; "
    "3 the data cannot be read or learned from; 4 a model or run file is refused; "
    "5 an optional package is missing; 130 interrupted.",
)


def _among(names: Any) -> Any:
    """Complete what begins one of some names."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in names() if name.startswith(incomplete)]

    return complete


_JSON = Annotated[bool, typer.Option("--json", help="Answer in JSON, on standard output.")]
_Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A .csv, .parquet or .npz file, or the name of a data set (see `datasets`).",
        autocompletion=_among(lambda: sorted(data_sets.REGISTRY)),
    ),
]
_Target = Annotated[
    str | None,
    typer.Option(
        "--target",
        "-t",
        metavar="COLUMN",
        help="The column to predict; columns without names are 1, 2, ... Not for named data sets.",
    ),
]
_Drop = Annotated[
    list[str] | None, typer.Option("--drop", metavar="COLUMN", help="A column to leave out.")
]
_Folder = Annotated[
    Path, typer.Option("--output", "-o", metavar="FOLDER", help="Where to write; made if missing.")
]


@app.command(
    "compare",
    epilog="Examples: `marginpursuit compare breast_cancer`; "
    "`marginpursuit compare wine.csv -t quality --method LinearSVC --method RidgeClassifier`",
)
def compare_command(
    data: _Data,
    target: _Target = None,
    drop: _Drop = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="A method to compare; by default all.",
            autocompletion=_among(lambda: list(methods())),
        ),
    ] = None,
    folds: Annotated[int, typer.Option(min=2, help="Folds of the cross-validation.")] = 5,
    seed: Annotated[int, typer.Option(min=0, help="Of the assignment to folds.")] = 0,
    output: _Folder = Path("out"),
    as_json: _JSON = False,
) -> None:
    """Cross-validate methods on a data set; print a table and write a report."""
    chosen = _chosen_methods(method)
    known = _labelled(data, target, drop)
    with learning(known.name), progress(known.name, folds * len(chosen)) as reached:
        result = compare(
            known.X,
            known.y,
            name=known.name,
            description=known.description,
            sha256=known.sha256,
            groups=known.groups,
            chosen=chosen,
            n_folds=folds,
            seed=seed,
            reached=reached,
        )
    _conclude(Run.now(f"Comparison on {known.name}", sets=(result,)), output, as_json)


@app.command(
    epilog="Examples: `marginpursuit reproduce figure1 figure2`; `marginpursuit reproduce --quick`"
)
def reproduce(
    figure: Annotated[
        list[str] | None,
        typer.Argument(
            help=f"Of {', '.join(overview.NAMES)}; by default all and a comparison.",
            autocompletion=_among(lambda: list(overview.NAMES)),
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A small version, on data that need no download.")
    ] = False,
    output: _Folder = Path("out"),
    as_json: _JSON = False,
) -> None:
    """Reproduce figures and claims of the paper, and write a report.

    A run that was stopped is taken up where it was.
    """
    unknown = [name for name in figure or [] if name not in overview.NAMES]
    if unknown:
        raise typer.BadParameter(
            f"there is no {', '.join(unknown)}; there are {', '.join(overview.NAMES)}"
        )
    names = list(dict.fromkeys(overview.NAMES[name] for name in figure or []))
    found = experiments.reproduce(names or None, quick=quick, out=output)
    sets: list[SetResult] = []
    if not names:
        with progress("comparison", overview.count_fits(quick=quick)) as reached:
            sets = overview.compare_bundled(quick=quick, reached=reached)
    _conclude(overview.gather(found, sets), output, as_json)
    if found.results.failures:
        note(f"{len(found.results.failures)} fits failed; the report says which")
        raise typer.Exit(Exit.FAILED)


@app.command(
    epilog="Example: `marginpursuit fit wine.csv -t quality -o wine.model --set overconfidence=0.5`"
)
def fit(
    data: _Data,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="MODEL", help="The file.")],
    target: _Target = None,
    drop: _Drop = None,
    method: Annotated[
        str,
        typer.Option(
            help="A method of this library.", autocompletion=_among(lambda: sorted(CLASSES))
        ),
    ] = "MarginPursuitClassifier",
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A parameter of the method."),
    ] = None,
    as_json: _JSON = False,
) -> None:
    """Fit a method to all of a data set, and keep the model in a file that is safe to open."""
    if method not in CLASSES:
        raise typer.BadParameter(f"method must be one of {sorted(CLASSES)}; got {method!r}")
    parameters = dict(_parameter(text) for text in set_ or [])
    model = CLASSES[method]()
    strangers = sorted(set(parameters) - set(model.get_params(deep=False)))
    if strangers:
        allowed = sorted(model.get_params(deep=False))
        raise typer.BadParameter(f"{method} has no parameter {strangers}; it has {allowed}")
    known = _labelled(data, target, drop)
    with learning(method):
        standardised(model.set_params(**parameters), known.X, known.y)
    if known.columns is not None:
        model.feature_names_in_ = np.array(known.columns, dtype=object)
    error = float(np.mean(_quietly(model.predict, known.X) != known.y))
    path = save_model(model, output)
    answer = {"model": str(path), "method": method, "training_error": error}
    say(
        answer if as_json else f"{method}, training error {100 * error:.2f} %, kept in {path}",
        as_json=as_json,
    )


@app.command(
    epilog="Examples: `marginpursuit predict wine.model new.csv`; "
    "`marginpursuit predict wine.model new.csv --probabilities -o predictions.csv`"
)
def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A file that `fit` wrote.")],
    data: _Data,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", "-p", help="Add the probability of each class.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to a file.")
    ] = None,
    as_json: _JSON = False,
) -> None:
    """Predict the class of each row; columns that the model does not know are passed over."""
    fitted = load_model(model)
    if probabilities and not hasattr(fitted, "predict_proba"):
        raise typer.BadParameter(f"{type(fitted).__name__} has no probabilities")
    if _is_named(data):
        X = data_sets.load(data).X
    else:
        names = getattr(fitted, "feature_names_in_", None)
        X = read_table(data, only=None if names is None else names.tolist()).X
    with learning(str(model)):
        labels = _quietly(fitted.predict, X).tolist()
        columns = {"prediction": labels}
        if probabilities:
            chances = _quietly(fitted.predict_proba, X)
            for label, column in zip(fitted.classes_.tolist(), chances.T, strict=True):
                columns[f"probability of {label}"] = column.tolist()
    if as_json:
        say(columns, as_json=True)
        return
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    if output is None:
        say(stream.getvalue().rstrip("\n"), as_json=False)
    else:
        note(f"{len(labels)} predictions in {write_atomically(output, stream.getvalue().encode())}")


@app.command(epilog="Example: `marginpursuit report out -o comparison.html`")
def report(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="A folder that a command wrote, or its run.json.")
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="By default beside the run."),
    ] = None,
    as_json: _JSON = False,
) -> None:
    """Write the report of a run as one HTML page that needs no network."""
    folder = run if run.is_dir() else run.parent
    path = _write_report(Run.load(run), output or folder / "report.html")
    say({"report": str(path)} if as_json else str(path), as_json=as_json)


@app.command()
def datasets(as_json: _JSON = False) -> None:
    """List the data sets that go by a name, and whether they are here."""
    rows = []
    for name, entry in data_sets.REGISTRY.items():
        path = data_sets.find(name)
        if entry.bundled is not None:
            state = "on board"
        elif path is not None:
            state = str(path)
        else:
            state = "fetched when asked for" if entry.read else "must be put in place"
        rows.append((name, state, entry.description, *map(str, entry.shape)))
    header = ("name", "state", "description", "rows", "columns")
    if as_json:
        say([dict(zip(header, row, strict=True)) for row in rows], as_json=True)
    else:
        show_table(header, rows, n_texts=3)


@app.command(
    epilog="Examples: `marginpursuit bench --rows 100000 --columns 50`; "
    "`marginpursuit bench --scale --gigabytes 10 --folder /scratch -o out`"
)
def bench(
    rows: Annotated[int, typer.Option(min=100, help="Rows of the artificial data.")] = 20_000,
    columns: Annotated[int, typer.Option(min=1, help="Columns of the artificial data.")] = 50,
    scale: Annotated[
        bool,
        typer.Option("--scale", help="Measure a file beyond memory, blocks and Dask instead."),
    ] = False,
    gigabytes: Annotated[
        float, typer.Option(min=0.001, help="With --scale: the size of the file.")
    ] = 1.0,
    folder: Annotated[
        Path | None,
        typer.Option(exists=True, file_okay=False, help="With --scale: where the file is made."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FOLDER", help="With --scale: write a run and its report."
        ),
    ] = None,
    as_json: _JSON = False,
) -> None:
    """Time a fit of every method, in reads of the data: a ratio that holds on other machines.

    With --scale: how fast a file is swept, as a share of reading it; how much memory a fit takes;
    and fits in memory, in blocks and on one and two Dask workers. The file is removed at the end.
    """
    if scale:
        _bench_scale(gigabytes, folder, output, as_json)
        return
    chosen = methods()
    with progress("bench", len(chosen)) as reached:
        timings = time_fits(chosen, rows, columns, reached=reached)
    if as_json:
        say([timing._asdict() for timing in timings], as_json=True)
    else:
        cells = ((t.name, f"{t.seconds:.4f}", f"{t.passes:.0f}", f"{t.error:.4f}") for t in timings)
        header = ("method", "seconds", "reads of the data", "training error")
        show_table(header, cells, n_texts=1)


def _bench_scale(gigabytes: float, folder: Path | None, output: Path | None, as_json: bool) -> None:
    """Measure large data, print what was found, and write it to a folder."""
    from marginpursuit.experiments import large_data

    with (
        large_data.large_file(gigabytes, folder) as file,
        progress("reading and sweeps", 1 + large_data.count_fits()) as reached,
    ):
        listings = [large_data.measure_file(file)]
        reached("fits")
        listings.append(large_data.compare_places(file, reached))
    if as_json:
        answer = [asdict(listing) for listing in listings]
        say(answer, as_json=True)
    else:
        for listing in listings:
            say(f"{listing.title}\n", as_json=False)
            show_table(listing.header, listing.rows, n_texts=1)
            say(f"\n{listing.caption}\n", as_json=False)
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        run = Run.now("Large data on this machine", listings=tuple(listings))
        run.save(output / "run.json")
        note(f"report at {_write_report(run, output / 'report.html').resolve()}")


@app.command()
def versions(as_json: _JSON = False) -> None:
    """Say what is installed: for bug reports."""
    found = installed()
    text = "\n".join(f"{name:<14} {version}" for name, version in found.items())
    say(found if as_json else text, as_json=as_json)


def _chosen_methods(names: list[str] | None) -> dict[str, Any]:
    try:
        return methods(names)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


class _Labelled(NamedTuple):
    """Samples with their classes, and what is known of them."""

    name: str
    X: Any
    y: NDArray[Any]
    sha256: str
    columns: tuple[str, ...] | None = None
    description: str = ""
    groups: NDArray[Any] | None = None


def _labelled(data: str, target: str | None, drop: list[str] | None) -> _Labelled:
    """Load a data set by its name, or read a file."""
    if _is_named(data):
        if target is not None or drop:
            raise typer.BadParameter(f"{data} is a named set: its target and columns are fixed")
        found = data_sets.load(data)
        digest = data_sets.REGISTRY[data].content_sha256 or ""
        return _Labelled(
            data, found.X, found.y, digest, description=found.description, groups=found.groups
        )
    table = read_table(data, target, drop=drop or [])
    if table.y is None:
        raise typer.BadParameter("name the column to predict with --target")
    columns = table.columns if table.has_names else None
    return _Labelled(table.name, table.X, table.y, table.sha256, columns)


def _is_named(data: str) -> bool:
    """Whether data are meant by name; a file of that name goes first."""
    if Path(data).exists() or Path(data).suffix:
        return False
    if data not in data_sets.REGISTRY:
        names = ", ".join(sorted(data_sets.REGISTRY))
        raise TableError(f"{data!r} is neither a file nor a data set; data sets are {names}")
    return True


def _parameter(text: str) -> tuple[str, Any]:
    """Read NAME=VALUE; a value that is no literal of Python is text."""
    name, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"--set wants NAME=VALUE; got {text!r}")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def _quietly(method: Any, X: Any) -> Any:
    """Call a method of a fitted model; the names of columns were checked when X was read."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names", UserWarning)
        return method(X)


def _conclude(run: Run, folder: Path, as_json: bool) -> None:
    """Write a run and its report, print its results, and exit as they deserve."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = run.save(folder / "run.json")
    done = [(result.name, m) for result in run.sets for m in result.methods if not m.failure]
    if done and not as_json:
        done.sort(key=lambda pair: (pair[0], pair[1].error))
        header = ("data", "method", "test error", "95 % interval", "log-loss", "seconds")
        show_table(header, [_row(*pair) for pair in done], n_texts=2)
    path = _write_report(run, folder / "report.html")
    if as_json:
        results = [_plain(result.name, m) for result in run.sets for m in result.methods]
        say({"run": str(kept), "report": str(path), "results": results}, as_json=True)
    else:
        say(f"\nreport at {path.resolve()}", as_json=False)
    failed = [(result.name, m) for result in run.sets for m in result.methods if m.failure]
    for name, method in failed:
        note(f"{method.name} failed on {name}: {method.failure}")
    if failed:
        raise typer.Exit(Exit.FAILED)


def _write_report(run: Run, path: Path) -> Path:
    from marginpursuit.report import render  # needs the extra `report`

    path.parent.mkdir(parents=True, exist_ok=True)
    return write_atomically(path, render(run).encode())


def _plain(data: str, method: MethodResult) -> dict[str, Any]:
    if method.failure:
        return {"data": data, "method": method.name, "failure": method.failure}
    return {
        "data": data,
        "method": method.name,
        "error": method.error,
        "interval": list(method.error_interval),
        "log_loss": method.log_loss,
        "seconds": method.seconds,
    }


def _row(data: str, method: MethodResult) -> tuple[str, ...]:
    low, high = method.error_interval
    return (
        data,
        method.name,
        f"{100 * method.error:.2f} %",
        f"{100 * low:.2f} to {100 * high:.2f}",
        "" if method.log_loss is None else f"{method.log_loss:.3f}",
        f"{method.seconds:.4f}",
    )
