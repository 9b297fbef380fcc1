"""Results of commands: runs and their reports, written to a folder and printed."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from marginpursuit._files import write_atomically
from marginpursuit.cli.output import Exit, named_options, note, say, show_table
from marginpursuit.experiments.method_results import MethodResult, SetResult
from marginpursuit.experiments.paired_differences import Recommendation, recommend
from marginpursuit.experiments.runs import Run

__all__ = ["finish_comparison", "finish_tables", "write_report"]


def write_report(run: Run, path: Path) -> Path:
    """Write the HTML report of a run."""
    from marginpursuit.report import render  # needs the extra `report`

    path.parent.mkdir(parents=True, exist_ok=True)
    return write_atomically(path, render(run).encode())


def finish_comparison(run: Run, folder: Path, as_json: bool, hint: str = "") -> None:
    """Write a run and its report, print its results; exit with an error if a method failed.

    The recommendations are printed first, then `hint` and the path of the report. The table of all
    methods follows the recommendation of a single data set; those of several are in the report.
    """
    folder.mkdir(parents=True, exist_ok=True)
    saved = run.save(folder / "run.json")
    found = [(data, recommend(data)) for data in run.sets]
    if not as_json:  # before the report, which needs an extra
        _print_comparison(found)
    path = write_report(run, folder / "report.html")
    if as_json:
        say({"run": str(saved), "report": str(path), **_answer(found)}, as_json=True)
    else:
        say(f"\n{hint}\n" if hint else "", as_json=False)
        say(f"report at {path.resolve()}", as_json=False)
    failed = [(data.name, method) for data in run.sets for method in data.methods if method.failure]
    for name, method in failed:
        reason = named_options(str(method.failure), "The command fit has --set cv=NUMBER.")
        note(f"{method.name} failed on {name}: {reason}")
    if failed:
        raise typer.Exit(Exit.FAILED)


def _answer(found: list[tuple[SetResult, Recommendation]]) -> dict[str, Any]:
    """Return recommendations and results for JSON."""
    return {
        "recommendations": [_recommendation_dict(*pair) for pair in found],
        "results": [
            _as_dict(data, recommendation, method)
            for data, recommendation in found
            for method in data.methods
        ],
    }


def _print_comparison(found: list[tuple[SetResult, Recommendation]]) -> None:
    """Print the recommendations; of a single data set also the table of all methods."""
    if len(found) > 1:
        say(_overall(found), as_json=False)
    for data, recommendation in found:
        say(_recommendation_text(data, recommendation), as_json=False)
    if len(found) == 1:
        _print_table(*found[0])


def _overall(
    found: list[tuple[SetResult, Recommendation]], method: str = "MarginPursuitClassifierCV"
) -> str:
    """Count the data sets on which a method is better and worse than the baseline."""
    verdicts = [part.differences[method].verdict for _, part in found if method in part.differences]
    counts = [f"{word} on {verdicts.count(word)}" for word in ("better", "no difference", "worse")]
    baselines = " or ".join(sorted({str(data.baseline) for data, _ in found}))
    return f"{method} instead of {baselines}: {', '.join(counts)} of {len(found)} tables.\n"


def _recommendation_text(data: SetResult, recommendation: Recommendation) -> str:
    """Say which method to take, how much better it is, how sure that is, and why."""
    lines = [f"{data.name}: {recommendation.headline}", recommendation.reason, data.why]
    return "\n  ".join(line for line in lines if line)


def _recommendation_dict(data: SetResult, recommendation: Recommendation) -> dict[str, Any]:
    method = recommendation.method
    return {
        "data": data.name,
        "scoring": data.scoring,
        "baseline": data.baseline,
        "method": None if method is None else method.name,
        "text": f"{recommendation.headline} {recommendation.reason}".strip(),
        "why": data.why,
    }


def _print_table(data: SetResult, recommendation: Recommendation) -> None:
    """Print one row per method, best first."""
    if not recommendation.ranking:
        return
    scoring = recommendation.scoring
    differences = f"; differences in {scoring.unit} to {data.baseline}"
    say(f"\n{data.name}{differences if recommendation.differences else ''}", as_json=False)
    header = ["method", "", scoring.quantity, "95 % interval", "difference", "verdict"]
    also_loss = [] if scoring.name == "neg_log_loss" else ["log-loss"]
    rows = [_row(recommendation, method) for method in recommendation.ranking]
    show_table([*header, *also_loss, "seconds"], rows, n_texts=2)


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


def _as_dict(
    data: SetResult, recommendation: Recommendation, method: MethodResult
) -> dict[str, Any]:
    if method.failure:
        return {"data": data.name, "method": method.name, "failure": method.failure}
    difference = recommendation.differences.get(method.name)
    return {
        "data": data.name,
        "method": method.name,
        "recommended": method is recommendation.method,
        "error": method.error,
        "interval": list(method.error_interval),
        "score": method.score(data.scoring),
        "log_loss": method.log_loss,
        "seconds": method.seconds,
        "difference": None if difference is None else {
            "baseline": difference.baseline,
            "mean": difference.score.mean,
            "interval": list(difference.score.interval),
            "p_value": difference.score.p_value,
            "verdict": difference.verdict,
        },
    }  # fmt: skip


def _row(recommendation: Recommendation, method: MethodResult) -> tuple[str, ...]:
    difference = recommendation.differences.get(method.name)
    score = method.score(recommendation.scoring.name)
    loss = "" if method.log_loss is None else f"{method.log_loss:.3f}"
    return (
        method.name,
        "take" if method is recommendation.method else "",
        "" if score is None else recommendation.scoring.written(score),
        recommendation.interval(method),
        "" if difference is None else difference.written,
        "" if difference is None else difference.verdict,
        *([] if recommendation.scoring.name == "neg_log_loss" else [loss]),
        f"{method.seconds:.4f}",
    )
