"""Results of commands: runs and their reports, written to a folder and printed."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from marginpursuit._files import write_atomically
from marginpursuit.cli.output import Exit, note, say, show_table
from marginpursuit.experiments.method_results import MethodResult
from marginpursuit.experiments.runs import Run

__all__ = ["finish_comparison", "finish_tables", "write_report"]


def write_report(run: Run, path: Path) -> Path:
    """Write the HTML report of a run."""
    from marginpursuit.report import render  # needs the extra `report`

    path.parent.mkdir(parents=True, exist_ok=True)
    return write_atomically(path, render(run).encode())


def finish_comparison(run: Run, folder: Path, as_json: bool) -> None:
    """Write a run and its report, print its results; exit with an error if a method failed."""
    folder.mkdir(parents=True, exist_ok=True)
    saved = run.save(folder / "run.json")
    results = [(data.name, method) for data in run.sets for method in data.methods]
    if not as_json:
        _print_table([pair for pair in results if not pair[1].failure])
    path = write_report(run, folder / "report.html")
    if as_json:
        plain = [_as_dict(*pair) for pair in results]
        say({"run": str(saved), "report": str(path), "results": plain}, as_json=True)
    else:
        say(f"\nreport at {path.resolve()}", as_json=False)
    failed = [pair for pair in results if pair[1].failure]
    for name, method in failed:
        note(f"{method.name} failed on {name}: {method.failure}")
    if failed:
        raise typer.Exit(Exit.FAILED)


def _print_table(results: list[tuple[str, MethodResult]]) -> None:
    """Print one row per data set and method, by data set and test error."""
    if results:
        ordered = sorted(results, key=lambda pair: (pair[0], pair[1].error))
        header = ("data", "method", "test error", "95 % interval", "log-loss", "seconds")
        show_table(header, [_row(*pair) for pair in ordered], n_texts=2)


def finish_tables(run: Run, folder: Path | None, as_json: bool) -> None:
    """Print the tables of a run; with a folder, write the run and its report."""
    if as_json:
        say([asdict(table) for table in run.listings], as_json=True)
    else:
        for table in run.listings:
            say(f"{table.title}\n", as_json=False)
            show_table(table.header, table.rows, n_texts=1)
            say(f"\n{table.caption}\n", as_json=False)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        run.save(folder / "run.json")
        note(f"report at {write_report(run, folder / 'report.html').resolve()}")


def _as_dict(data: str, method: MethodResult) -> dict[str, Any]:
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
