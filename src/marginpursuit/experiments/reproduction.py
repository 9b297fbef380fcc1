"""Run experiments and gather what they show."""

import io
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from marginpursuit._files import write_atomically
from marginpursuit._progress_bar import ProgressBar, Reached
from marginpursuit.datasets import DatasetError, load
from marginpursuit.experiments import (
    calibration_curves,
    cubic_conditions,
    loss_shapes,
    method_losses,
    naive_scaling,
    one_time_rescaling,
    untuned,
)
from marginpursuit.experiments._results import (
    FULL,
    QUICK,
    Experiment,
    Results,
    Setting,
    Table,
    Verdict,
)
from marginpursuit.experiments._runner import run_fits
from marginpursuit.experiments._store import Store, code_version

__all__ = ["EXPERIMENTS", "Reproduction", "reproduce"]

#: Every experiment, by name.
EXPERIMENTS: dict[str, Experiment] = {
    each.name: each
    for each in (
        loss_shapes.EXPERIMENT,
        calibration_curves.EXPERIMENT,
        cubic_conditions.EXPERIMENT,
        method_losses.EXPERIMENT,
        naive_scaling.EXPERIMENT,
        one_time_rescaling.EXPERIMENT,
        untuned.EXPERIMENT,
    )
}


@dataclass(frozen=True, eq=False)
class Reproduction:
    """What `reproduce` found.

    Attributes
    ----------
    setting : Setting
        What was run, without the data sets that could not be had.
    figures : mapping of str to matplotlib Figure
        The pictures, by name.
    verdicts : sequence of Verdict
        What the numbers say of each claim.
    tables : sequence of Table
        The numbers.
    not_run : mapping of str to str
        Data sets that were not run, and why.
    results : Results
        All results, to be looked at further; its `failures` are the fits that failed, and how.
    code : str
        The version of the code that the numbers are from.
    seconds : float
        How long it took.
    folder : Path
        Where the store and the files are.
    """

    setting: Setting
    figures: Mapping[str, Any]
    verdicts: Sequence[Verdict]
    tables: Sequence[Table]
    not_run: Mapping[str, str]
    results: Results
    code: str
    seconds: float
    folder: Path

    def text(self) -> str:
        """Return verdicts and tables as Markdown."""
        parts = [_markdown(table) for table in (*self.tables, _summary(self.verdicts))]
        notes = [f"Not run: {name}. {why}" for name, why in self.not_run.items()]
        notes += [f"Failed: {fit}: {why}" for fit, why in self.results.failures.items()]
        return "\n\n".join([*notes, *parts]) + "\n"


def reproduce(
    names: Iterable[str] | None = None,
    *,
    quick: bool = False,
    out: str | os.PathLike[str] = "out",
    progress: Reached | None = None,
    setting: Setting | None = None,
    processes: int | None = None,
    fetch: bool = True,
) -> Reproduction:
    """Run experiments of the paper, or take up where an earlier run was stopped.

    Finished fits are kept in ``results.jsonl`` in `out`, and never run again as long as neither
    their configuration nor the data nor the code has changed. Pictures, tables and verdicts are
    written beside it.

    Parameters
    ----------
    names : iterable of str, optional
        Names in `EXPERIMENTS`; by default all.
    quick : bool, default=False
        Whether to run a small version on data that comes with scikit-learn.
    out : path, default="out"
        The folder of the results; made if missing.
    progress : callable, optional
        Told the number of finished fits and of all. By default a bar with the time left on standard
        error, where that is a terminal.
    setting : Setting, optional
        How much to run; by default that of the paper, or the small one.
    processes : int, optional
        How many processes; by default one for each processor.
    fetch : bool, default=True
        Whether to download data that is missing.

    Returns
    -------
    Reproduction
        Figures, verdicts, tables, and what was not run.

    Examples
    --------
    >>> import tempfile
    >>> from marginpursuit.experiments import reproduce
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = reproduce(["cubics"], quick=True, out=folder)
    >>> [verdict.verdict for verdict in found.verdicts]
    ['does not hold', 'does not hold']
    """
    begin = time.perf_counter()
    chosen = _chosen(names)
    at_hand = setting or (QUICK if quick else FULL)
    not_run: dict[str, str] = {}
    if any(experiment.plan(at_hand) for experiment in chosen):
        at_hand, not_run = _at_hand(at_hand, fetch)
    fits = dict.fromkeys(fit for experiment in chosen for fit in experiment.plan(at_hand))
    folder = Path(out)
    store = Store(folder / "results.jsonl")
    with ProgressBar("fits") if progress is None else nullcontext(progress) as reached:
        results = Results(run_fits(fits, store, processes=processes, reached=reached))
    found = Reproduction(
        at_hand,
        {k: f for each in chosen for k, f in each.draw(at_hand, results).items()},
        [verdict for each in chosen for verdict in each.judge(at_hand, results)],
        [_noted(table, not_run) for each in chosen for table in each.tabulate(at_hand, results)],
        not_run,
        results,
        code_version(),
        time.perf_counter() - begin,
        folder,
    )
    _write(found)
    return found


def _chosen(names: Iterable[str] | None) -> list[Experiment]:
    wanted = list(EXPERIMENTS) if names is None else list(names)
    unknown = [name for name in wanted if name not in EXPERIMENTS]
    if unknown:
        raise ValueError(f"names must be among {list(EXPERIMENTS)}; got {unknown}")
    return [EXPERIMENTS[name] for name in wanted]


def _at_hand(setting: Setting, fetch: bool) -> tuple[Setting, dict[str, str]]:
    """Leave out the data sets that cannot be had, and say why."""
    not_run = {}
    for name in setting.datasets:
        try:
            load(name, fetch=fetch)
        except DatasetError as error:
            not_run[name] = str(error)
    left = [name for name in setting.datasets if name not in not_run]
    if not left:
        raise DatasetError("no data set can be had. " + " ".join(not_run.values()))
    return replace(setting, datasets=left), not_run


def _noted(table: Table, not_run: Mapping[str, str]) -> Table:
    missing = f"Not run: {', '.join(not_run)}." if not_run else ""
    return replace(table, note=" ".join(filter(None, (table.note, missing))))


def _summary(verdicts: Sequence[Verdict]) -> Table:
    rows = [
        (
            verdict.claim,
            verdict.reading,
            verdict.verdict,
            ", ".join(verdict.held_on),
            "; ".join(f"{data}: {text}" for data, text in verdict.evidence.items()),
        )
        for verdict in verdicts
    ]
    return Table("Claims", ("claim", "reading", "verdict", "held on", "evidence"), rows)


def _markdown(table: Table) -> str:
    lines = [f"### {table.title}", "", *([table.note, ""] if table.note else [])]
    for cells in (table.columns, ["---"] * len(table.columns), *table.rows):
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines)


def _write(found: Reproduction) -> None:
    """Write pictures and tables."""
    from matplotlib import rc_context

    contents = {"results.md": found.text().encode()}
    # Text as text, and no random or dated part: small files that change only with what they show.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "marginpursuit"}):
        for name, figure in found.figures.items():
            buffer = io.BytesIO()
            figure.savefig(buffer, format="svg", metadata={"Date": None})
            contents[f"{name}.svg"] = buffer.getvalue()
    found.folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        write_atomically(found.folder / name, content)
