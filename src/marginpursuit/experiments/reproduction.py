"""Run experiments, and write their figures, verdicts and tables."""

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
from marginpursuit.experiments._figures import to_svg
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
from marginpursuit.experiments.calibration_curves import CalibrationCurves
from marginpursuit.experiments.cubic_conditions import CubicConditions
from marginpursuit.experiments.loss_shapes import LossShapes
from marginpursuit.experiments.margin_location import MarginLocation
from marginpursuit.experiments.method_losses import MethodLosses
from marginpursuit.experiments.naive_scaling import NaiveScaling
from marginpursuit.experiments.one_time_rescaling import OneTimeRescaling
from marginpursuit.experiments.theorem import TheoremInNumbers
from marginpursuit.experiments.untuned import Untuned

__all__ = ["EXPERIMENTS", "Reproduction", "reproduce"]

#: Every experiment, by the name that `reproduce` takes.
#:
#: >>> from marginpursuit.experiments import EXPERIMENTS
#: >>> list(EXPERIMENTS)[:2]
#: ['figure1', 'figure2']
EXPERIMENTS: dict[str, Experiment] = {
    each.name: each
    for each in (
        LossShapes(),
        CalibrationCurves(),
        CubicConditions(),
        MethodLosses(),
        NaiveScaling(),
        OneTimeRescaling(),
        Untuned(),
        MarginLocation(),
        TheoremInNumbers(),
    )
}


@dataclass(frozen=True, eq=False)
class Reproduction:
    """The result of `reproduce`.

    Attributes
    ----------
    setting : Setting
        What was run, without the data sets that are not available.
    figures : mapping of str to matplotlib Figure
        The figures, by name.
    verdicts : sequence of Verdict
        The verdict on each claim.
    tables : sequence of Table
        The tables.
    not_run : mapping of str to str
        Data sets that were not run, and the reason.
    results : Results
        All stored results; its `failures` are the failed fits and their errors.
    code : str
        The version of the code that computed the results.
    seconds : float
        Wall-clock time.
    folder : Path
        The folder with the store and the files.

    Examples
    --------
    >>> import tempfile
    >>> from marginpursuit.experiments import reproduce
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = reproduce(["cubics"], quick=True, out=folder)
    >>> found.setting.datasets, found.not_run
    (('breast_cancer', 'digits'), {})
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

    def claims(self) -> Table:
        """Return the verdicts as a table; its caption names what was not run or failed."""
        rows = tuple(
            (
                each.claim,
                each.interpretation,
                each.criterion,
                each.verdict,
                "; ".join(f"{data}: {numbers}" for data, numbers in each.evidence.items()),
            )
            for each in self.verdicts
        )
        header = ("claim", "interpretation", "true if", "verdict", "evidence")
        notes = [f"Not run: {name}. {why}" for name, why in self.not_run.items()]
        notes += [f"Failed: {fit}: {why}" for fit, why in self.results.failures.items()]
        return Table("Claims", " ".join(notes), header, rows)

    def text(self) -> str:
        """Return tables and verdicts as Markdown."""
        return "\n\n".join(table.markdown() for table in (*self.tables, self.claims())) + "\n"


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
    """Run experiments of the paper, or resume an interrupted run.

    Finished fits are stored in ``results.jsonl`` in `out`. A stored fit is not repeated while its
    configuration, the data and the code are unchanged. Figures, tables and verdicts are written to
    the same folder.

    Parameters
    ----------
    names : iterable of str, optional
        Names in `EXPERIMENTS`; by default all.
    quick : bool, default=False
        Whether to run a small version on data included with scikit-learn.
    out : path, default="out"
        The folder of the results; created if missing.
    progress : callable, optional
        Called with the number of finished fits and the total. By default a progress bar on standard
        error, if that is a terminal.
    setting : Setting, optional
        Data sets, penalties and trials; by default those of the paper, or the small ones.
    processes : int, optional
        Number of processes; by default one per processor.
    fetch : bool, default=True
        Whether to download missing data.

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
    chosen = _select(names)
    available = setting or (QUICK if quick else FULL)
    not_run: dict[str, str] = {}
    if any(experiment.plan(available) for experiment in chosen):
        available, not_run = _without_missing_data(available, fetch)
    fits = dict.fromkeys(fit for experiment in chosen for fit in experiment.plan(available))
    folder = Path(out)
    with ProgressBar("fits") if progress is None else nullcontext(progress) as report:
        rows = run_fits(fits, Store(folder / "results.jsonl"), processes=processes, progress=report)
    found = _collect(chosen, available, not_run, Results(rows), folder)
    found = replace(found, seconds=time.perf_counter() - begin)
    _write(found)
    return found


def _select(names: Iterable[str] | None) -> list[Experiment]:
    wanted = list(EXPERIMENTS) if names is None else list(names)
    unknown = [name for name in wanted if name not in EXPERIMENTS]
    if unknown:
        raise ValueError(f"names must be among {list(EXPERIMENTS)}; got {unknown}")
    return [EXPERIMENTS[name] for name in wanted]


def _without_missing_data(setting: Setting, fetch: bool) -> tuple[Setting, dict[str, str]]:
    """Return the setting with the available data sets, and the reasons for the others."""
    not_run = {}
    for name in setting.tabled:
        try:
            load(name, fetch=fetch)
        except DatasetError as error:
            not_run[name] = str(error)
    left = [name for name in setting.datasets if name not in not_run]
    if not left:
        raise DatasetError("no data set is available. " + " ".join(not_run.values()))
    additional = [name for name in setting.additional if name not in not_run]
    return replace(setting, datasets=left, additional=additional), not_run


def _collect(
    chosen: Sequence[Experiment],
    setting: Setting,
    not_run: Mapping[str, str],
    results: Results,
    folder: Path,
) -> Reproduction:
    """Draw the figures, and compute tables and verdicts."""
    figures: dict[str, Any] = {}
    verdicts: list[Verdict] = []
    tables: list[Table] = []
    for experiment in chosen:
        figures |= experiment.draw(setting, results)
        verdicts += experiment.verdicts(setting, results)
        tables += experiment.tables(setting, results)
    if not_run:
        note = f"Not run: {', '.join(not_run)}."
        tables = [replace(t, caption=f"{t.caption} {note}".strip()) for t in tables]
    return Reproduction(
        setting, figures, verdicts, tables, not_run, results, code_version(), 0.0, folder
    )


def _write(found: Reproduction) -> None:
    """Write tables and figures to the folder."""
    found.folder.mkdir(parents=True, exist_ok=True)
    write_atomically(found.folder / "results.md", found.text().encode())
    for name, figure in found.figures.items():
        write_atomically(found.folder / f"{name}.svg", to_svg(figure))
