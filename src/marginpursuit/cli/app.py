"""The commands."""

from pathlib import Path
from typing import Annotated

import typer

from marginpursuit import datasets as data_sets
from marginpursuit import experiments, load_model, save_model
from marginpursuit._files import write_atomically
from marginpursuit._versions import versions as installed
from marginpursuit.cli.data import ColumnOptions, read_labelled
from marginpursuit.cli.explaining import explain, issues
from marginpursuit.cli.exporting import export
from marginpursuit.cli.fit_summary import FitSummary, evaluate, fit_labelled
from marginpursuit.cli.folds import note_search_folds, with_folds
from marginpursuit.cli.inputs import (
    Add,
    AsJson,
    Baseline,
    Categorical,
    Contaminate,
    Data,
    Drop,
    Identifier,
    MaxGigabytes,
    Numeric,
    OutputFolder,
    Rate,
    Scoring,
    Target,
    Text,
    check_output,
    completion,
    parse_parameter,
    refuse_input,
    select_contamination,
    select_methods,
    select_scoring,
)
from marginpursuit.cli.output import (
    Commands,
    Exit,
    activity,
    data_errors,
    named_options,
    note,
    progress,
    say,
    show_table,
)
from marginpursuit.cli.predictions import as_csv, predicted_columns, read_new
from marginpursuit.cli.results import finish_comparison, finish_tables, write_report
from marginpursuit.experiments import demonstration, overview
from marginpursuit.experiments.compare import compare, methods
from marginpursuit.experiments.explanation import explain_search
from marginpursuit.experiments.method_results import SetResult
from marginpursuit.experiments.runs import Run
from marginpursuit.experiments.timing import time_fits
from marginpursuit.model_files import CLASSES
from marginpursuit.tables import MAX_BYTES, counted

__all__ = ["app"]

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 success; 1 a method or figure failed; 2 invalid command or option; "
    "3 data cannot be read or fitted; 4 a model or run file is rejected; "
    "5 an optional package is missing; 130 interrupted.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        say(f"marginpursuit {installed()['marginpursuit']}", as_json=False)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Robust linear classifiers: compare, fit, predict, report."""


@app.command(
    "compare",
    epilog="Examples: `marginpursuit compare breast_cancer`; "
    "`marginpursuit compare wine.csv -t quality --method LinearSVC --scoring roc_auc`; "
    "`marginpursuit compare iris --add sklearn.ensemble:RandomForestClassifier --repeats 3`",
)
def compare_command(
    data: Data,
    target: Target = None,
    drop: Drop = None,
    numeric: Numeric = None,
    categorical: Categorical = None,
    text: Text = None,
    identifier: Identifier = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="A method to compare; may be repeated. By default all.",
            autocompletion=completion(lambda: list(methods())),
        ),
    ] = None,
    add: Add = None,
    baseline: Baseline = "LogisticRegression",
    scoring: Scoring = "accuracy",
    contaminate: Contaminate = None,
    rate: Rate = 0.05,
    folds: Annotated[int, typer.Option(min=2, help="Folds of the cross-validation.")] = 5,
    repeats: Annotated[
        int, typer.Option(min=1, help="Repetitions of the cross-validation, with other folds.")
    ] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the assignment to folds.")] = 0,
    output: OutputFolder = Path("out"),
    max_gigabytes: MaxGigabytes = MAX_BYTES / 1e9,
    as_json: AsJson = False,
) -> None:
    """Cross-validate methods on a data set; say which to take, print a table, write a report.

    Each method is compared with the baseline over the same folds. The intervals of the differences
    are corrected for overlapping training rows (Nadeau and Bengio 2003).
    """
    chosen = select_methods(method, add, baseline)
    contamination = select_contamination(contaminate, rate)
    options = ColumnOptions(drop, numeric, categorical, text, identifier)
    known, folds = with_folds(read_labelled(data, target, options, max_gigabytes), folds)
    total = folds * repeats * (len(chosen) + (known.vectoriser is not None))
    if contamination is None and "MarginPursuitClassifierCV" in chosen:
        total += 25 + 5 * (known.vectoriser is not None)
    with data_errors(known.name), progress(known.name, total) as report_progress:
        result = compare(
            known.X,
            known.y,
            name=known.name,
            description=known.description,
            sha256=known.sha256,
            groups=known.groups,
            chosen=chosen,
            n_folds=folds,
            n_repeats=repeats,
            seed=seed,
            scoring=select_scoring(scoring),
            baseline=baseline,
            contamination=contamination,
            vectoriser=known.vectoriser,
            progress=report_progress,
        )
        if contamination is None:
            result = explain_search(result, known.training_rows, progress=report_progress)
    finish_comparison(Run.now(f"Comparison on {result.name}", sets=(result,)), output, as_json)


@app.command(epilog="Example: `marginpursuit demo -o out`")
def demo(
    repeats: Annotated[int, typer.Option(min=1, help="Repetitions of the cross-validation.")] = 2,
    output: OutputFolder = Path("out"),
    as_json: AsJson = False,
) -> None:
    """Compare on clean rows, corrupted rows, a messy table and text; takes about a minute.

    The data are included with scikit-learn or generated. All methods have their default parameters.
    """
    with progress("demo", demonstration.count_fits(repeats)) as report_progress:
        run = demonstration.demonstrate(repeats, report_progress)
    hint = (
        "Your own table: marginpursuit compare FILE.csv --target COLUMN\n"
        "Figures and claims of the paper: marginpursuit reproduce --quick"
    )
    finish_comparison(run, output, as_json, hint)


@app.command(
    epilog="Examples: `marginpursuit reproduce figure1 figure2`; `marginpursuit reproduce --quick`"
)
def reproduce(
    figure: Annotated[
        list[str] | None,
        typer.Argument(
            help=f"Any of {', '.join(overview.NAMES)}; by default all and a comparison.",
            autocompletion=completion(lambda: list(overview.NAMES)),
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A small version, on data that need no download.")
    ] = False,
    output: OutputFolder = Path("out"),
    as_json: AsJson = False,
) -> None:
    """Reproduce figures and claims of the paper, and write a report.

    An interrupted run resumes from its finished fits.
    """
    unknown = [name for name in figure or [] if name not in overview.NAMES]
    if unknown:
        raise typer.BadParameter(
            f"unknown figures {', '.join(unknown)}; expected any of {', '.join(overview.NAMES)}"
        )
    names = list(dict.fromkeys(overview.NAMES[name] for name in figure or []))
    found = experiments.reproduce(names or None, quick=quick, out=output)
    sets: list[SetResult] = []
    if not names:
        with progress("comparison", overview.count_fits(quick=quick)) as report_progress:
            sets = overview.compare_bundled(quick=quick, progress=report_progress)
    finish_comparison(overview.gather(found, sets), output, as_json)
    if found.results.failures:
        note(f"{counted(len(found.results.failures), 'fit')} failed; see the report")
        raise typer.Exit(Exit.FAILED)


@app.command(
    epilog="Examples: `marginpursuit fit wine.csv -t quality -o wine.model`; "
    "`marginpursuit fit iris -o iris.model --method MarginPursuitClassifier "
    "--set overconfidence=0.5`"
)
def fit(
    data: Data,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="MODEL", help="Model file.")],
    target: Target = None,
    drop: Drop = None,
    numeric: Numeric = None,
    categorical: Categorical = None,
    text: Text = None,
    identifier: Identifier = None,
    method: Annotated[
        str,
        typer.Option(
            help="A method of this library.", autocompletion=completion(lambda: sorted(CLASSES))
        ),
    ] = "MarginPursuitClassifierCV",
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A parameter of the method."),
    ] = None,
    folds: Annotated[
        int, typer.Option(min=2, help="Folds of the cross-validation that measures the error.")
    ] = 5,
    bootstrap: Annotated[
        int,
        typer.Option(
            min=0, help="Fits of the bootstrap that gives `explain` its standard errors; 0: none."
        ),
    ] = 50,
    max_gigabytes: MaxGigabytes = MAX_BYTES / 1e9,
    as_json: AsJson = False,
) -> None:
    """Fit a method to a data set, and save the model in a file that is safe to open.

    The printed error is cross-validated: the method, including its choice of hyper-parameters, is
    fitted once more without each fold. The saved model is fitted to all rows.
    """
    check_output(output, data)
    if method not in CLASSES:
        raise typer.BadParameter(f"method must be one of {sorted(CLASSES)}; got {method!r}")
    parameters = dict(parse_parameter(text) for text in set_ or [])
    model = CLASSES[method]()
    unknown = sorted(set(parameters) - set(model.get_params(deep=False)))
    if unknown:
        allowed = sorted(model.get_params(deep=False))
        raise typer.BadParameter(f"{method} has no parameter {unknown}; expected one of {allowed}")
    options = ColumnOptions(drop, numeric, categorical, text, identifier)
    known = read_labelled(data, target, options, max_gigabytes)
    if bootstrap == 1:
        raise typer.BadParameter("--bootstrap must be 0, or at least 2; got 1")
    n_steps = 1 + bootstrap + folds * (1 + (known.vectoriser is not None))
    with progress(f"fit of {method}", n_steps) as report_progress:
        with data_errors(method, named_options):
            fitted = fit_labelled(model.set_params(**parameters), known, bootstrap, report_progress)
        path = save_model(fitted, output)  # before the cross-validation, which takes longer
        note_search_folds(model, known.y)
        evaluation = evaluate(model, known, folds, report_progress)
    summary = FitSummary.of(model, known, evaluation, path)
    say(summary.as_dict() if as_json else summary.as_text(), as_json=as_json)


@app.command(
    epilog="Examples: `marginpursuit predict wine.model new.csv`; "
    "`marginpursuit predict wine.model new.csv --probabilities -o predictions.csv`"
)
def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A file written by `fit`.")],
    data: Data,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", "-p", help="Add the probability of each class.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to a file.")
    ] = None,
    max_gigabytes: MaxGigabytes = MAX_BYTES / 1e9,
    as_json: AsJson = False,
) -> None:
    """Predict the class of each row.

    Columns are found by name. Further columns are ignored, with a note; missing ones are an error.
    """
    check_output(output, model, data)
    fitted = load_model(model)
    if probabilities and not hasattr(fitted, "predict_proba"):
        raise typer.BadParameter(f"{type(fitted).__name__} has no probabilities")
    new = read_new(fitted, data, max_gigabytes)
    with data_errors(data), activity("predictions") as reached:
        columns = predicted_columns(fitted, new, probabilities, reached)
    if as_json:
        say(columns, as_json=True)
        return
    content = as_csv(columns)
    if output is None:
        say(content.rstrip("\n"), as_json=False)
    else:
        path = write_atomically(output, content.encode())
        note(f"{counted(len(columns['prediction']), 'prediction')} in {path}")


app.command(
    epilog="Examples: `marginpursuit explain wine.model`; "
    "`marginpursuit explain wine.model wine.csv -t quality`"
)(explain)
app.command(
    epilog="Examples: `marginpursuit issues wine.csv -t quality`; "
    "`marginpursuit issues customers.csv -t status --id customer -o suspicious.csv`"
)(issues)


app.command(
    epilog="Examples: `marginpursuit export wine.model -o wine.json`; "
    "`marginpursuit export wine.model -o wine.sql --table wines --keep bottle --dialect postgresql`"
)(export)


@app.command(epilog="Example: `marginpursuit report out -o comparison.html`")
def report(
    run: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="A folder written by a command, or its run.json."),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="By default next to the run."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write the report of a run as one self-contained HTML page."""
    folder = run if run.is_dir() else run.parent
    output = output or folder / "report.html"
    refuse_input(output, folder / "run.json" if run.is_dir() else run)
    path = write_report(Run.load(run), output)
    say({"report": str(path)} if as_json else str(path), as_json=as_json)


@app.command()
def datasets(as_json: AsJson = False) -> None:
    """List the named data sets, and where they are."""
    rows = []
    for name, entry in data_sets.REGISTRY.items():
        path = data_sets.find(name)
        if entry.bundled is not None:
            state = "included with scikit-learn"
        elif path is not None:
            state = str(path)
        else:
            state = "downloaded on first use" if entry.read else "must be provided as a file"
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
    rows: Annotated[int, typer.Option(min=100, help="Rows of the synthetic data.")] = 20_000,
    columns: Annotated[int, typer.Option(min=1, help="Columns of the synthetic data.")] = 50,
    scale: Annotated[
        bool,
        typer.Option("--scale", help="Measure a large file, blocks and Dask instead."),
    ] = False,
    gigabytes: Annotated[
        float, typer.Option(min=0.001, help="With --scale: size of the file.")
    ] = 1.0,
    folder: Annotated[
        Path | None,
        typer.Option(exists=True, file_okay=False, help="With --scale: folder of the file."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FOLDER",
            file_okay=False,
            help="With --scale: write a run and its report.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Time a fit of every method, relative to reading the data once, and count its passes.

    With --scale: the rate of a sweep over a file relative to reading it, the memory of a fit, and
    fits in memory, in blocks and on one and two Dask workers. The file is removed at the end.
    """
    if scale:
        finish_tables(_measure_large_data(gigabytes, folder), output, as_json)
        return
    chosen = methods()
    with progress("bench", len(chosen)) as report_progress:
        timings = time_fits(chosen, rows, columns, progress=report_progress)
    if as_json:
        say([timing._asdict() for timing in timings], as_json=True)
    else:
        cells = [
            (
                t.name,
                f"{t.seconds:.4f}",
                f"{t.reads:.0f}",
                "" if t.passes is None else str(t.passes),
                f"{t.error:.4f}",
            )
            for t in timings
        ]
        header = ("method", "seconds", "time / time of one read", "passes over the data",
                  "training error")  # fmt: skip
        show_table(header, cells, n_texts=1)


def _measure_large_data(gigabytes: float, folder: Path | None) -> Run:
    """Measure fits to a large temporary file."""
    from marginpursuit.experiments import large_data

    with (
        large_data.large_file(gigabytes, folder) as file,
        progress("reading and sweeps", 1 + large_data.count_fits()) as report_progress,
    ):
        rates = large_data.measure_file(file)
        report_progress("fits")
        fits = large_data.compare_places(file, report_progress)
    return Run.now("Large data on this machine", listings=(rates, fits))


@app.command()
def versions(as_json: AsJson = False) -> None:
    """Print the installed versions, for bug reports."""
    found = installed()
    text = "\n".join(f"{name:<14} {version}" for name, version in found.items())
    say(found if as_json else text, as_json=as_json)
