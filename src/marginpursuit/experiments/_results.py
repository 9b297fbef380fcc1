"""The common parts of the experiments: settings, stored results, verdicts, tables, base class."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from marginpursuit._validation import FloatArray
from marginpursuit.experiments._fits import Fit

__all__ = [
    "FULL",
    "QUICK",
    "Experiment",
    "Finding",
    "Results",
    "Setting",
    "Table",
    "Verdict",
    "is_below",
    "percent",
]


@dataclass(frozen=True)
class Setting:
    """The size of a reproduction: data sets, scalings, penalties, trials and epochs.

    Attributes
    ----------
    datasets : sequence of str
        Names of the data sets.
    scalings : sequence of str
        Column scalings; the paper does not name its own.
    penalties : sequence of float
        Values of λ; results are for the best of them.
    trials : int
        Number of random splits.
    epochs : int
        Gradients per stochastic fit, divided by the number of training rows.
    additional : sequence of str
        Data sets that are not in the paper. They are fitted and tabled with a label, and no verdict
        depends on them.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from marginpursuit.experiments import QUICK
    >>> replace(QUICK, trials=1, additional=("cov",)).tabled
    ('breast_cancer', 'digits', 'cov')
    """

    datasets: Sequence[str]
    scalings: Sequence[str]
    penalties: Sequence[float]
    trials: int
    epochs: int
    additional: Sequence[str] = ()

    @property
    def tabled(self) -> tuple[str, ...]:
        """The data sets of the tables: those of the paper, then the additional ones."""
        return (*self.datasets, *self.additional)

    def label(self, data: str) -> str:
        """Return the name of a data set in the tables."""
        return f"{data} (not in the paper)" if data in self.additional else data


#: The setting of the paper. Its grid of λ is garbled in print; this is the likely meaning (E22).
#: hiva has molecular descriptors and binary columns as sido has, which is hard to obtain.
#:
#: >>> from marginpursuit.experiments import FULL
#: >>> FULL.trials, FULL.datasets
#: (25, ('cov', 'digit5', 'protein', 'sido'))
FULL = Setting(
    datasets=("cov", "digit5", "protein", "sido"),
    scalings=("none", "min-max", "standard", "unit-rows"),
    penalties=tuple(10.0**k for k in range(-6, 1)),
    trials=25,
    epochs=30,
    additional=("hiva",),
)

#: A small setting on data included with scikit-learn; takes less than a minute.
#:
#: >>> from marginpursuit.experiments import QUICK
#: >>> QUICK.trials, QUICK.datasets
#: (3, ('breast_cancer', 'digits'))
QUICK = Setting(
    datasets=("breast_cancer", "digits"),
    scalings=("min-max", "standard"),
    penalties=(1e-4, 1e-2, 1.0),
    trials=3,
    epochs=30,
)


class Results:
    """Stored rows, by fit.

    Parameters
    ----------
    rows : mapping of Fit to row
        The rows; a row with an error is a failure.
    """

    def __init__(self, rows: Mapping[Fit, Mapping[str, Any]]) -> None:
        self.failures = {fit: str(row["error"]) for fit, row in rows.items() if "error" in row}
        self._trials: dict[Fit, list[Mapping[str, Any]]] = {}
        for fit in sorted(rows, key=lambda fit: fit.trial):
            result = rows[fit].get("result", {})
            self._trials.setdefault(replace(fit, trial=0), []).append(result)

    def trials(self, fit: Fit, field: str) -> FloatArray:
        """Return a field of this fit for all trials, in order; NaN for failed fits."""
        values = [result.get(field) for result in self._trials[replace(fit, trial=0)]]
        shape = next((np.shape(value) for value in values if value is not None), (1,))
        return np.array([np.full(shape, np.nan) if v is None else v for v in values], np.float64)

    def mean(self, fit: Fit, field: str) -> FloatArray:
        """Return the mean of a field over the trials, for each checkpoint."""
        return np.asarray(self.trials(fit, field).mean(axis=0))

    def gradients(self, fit: Fit) -> FloatArray:
        """Return the gradient counts of the checkpoints."""
        return np.asarray(self.trials(fit, "gradients").max(axis=0))

    def lowest(self, fit: Fit) -> FloatArray:
        """Return the test error of each trial at the checkpoint with the lowest mean test error.

        For a fit with a change of the scale, only checkpoints after the change count.
        """
        # Negated comparison: the gradient counts of a failed fit are NaN, and are kept.
        later = ~(self.gradients(fit) <= self.switch(fit))
        errors = self.trials(fit, "test_error")[:, later]
        return np.asarray(errors[:, np.argmin(errors.mean(axis=0))])

    def switch(self, fit: Fit) -> float:
        """Return the gradient count at which the scale changes; 0 for a constant scale."""
        if fit.rescaling is None:
            return 0.0
        return float(self.gradients(fit)[-1]) * fit.rescaling.after / fit.epochs

    def best(self, fits: Iterable[Fit]) -> Fit:
        """Return the fit with the lowest mean test error at any checkpoint, as the paper does.

        The choice uses the test rows, so the error of the best fit is optimistic.
        """
        return min(fits, key=lambda fit: float(np.nan_to_num(self.lowest(fit).mean(), nan=1.0)))


class Finding(NamedTuple):
    """Whether a claim is true of a data set, and the numbers that show it."""

    holds: bool
    evidence: str


@dataclass(frozen=True)
class Verdict:
    """Whether a claim of the paper holds, under one interpretation of it.

    Attributes
    ----------
    claim : str
        The claim, paraphrased.
    interpretation : str
        What was assumed where the text of the paper leaves something open.
    criterion : str
        The condition under which the claim counts as true of a data set.
    verdict : {"holds", "holds in part", "does not hold"}
        True of all data sets, of some, of none.
    held_on : sequence of str
        The data sets of which it is true.
    evidence : mapping of str to str
        The numbers, by data set.

    Examples
    --------
    >>> from marginpursuit.experiments import Verdict
    >>> findings = {"digits": (True, "3 % less"), "cov": (False, "1 % more")}
    >>> verdict = Verdict.of("a lower error", "test error", "a smaller mean", findings)
    >>> verdict.verdict, list(verdict.held_on)
    ('holds in part', ['digits'])
    """

    claim: str
    interpretation: str
    criterion: str
    verdict: str
    held_on: Sequence[str]
    evidence: Mapping[str, str]

    @classmethod
    def of(
        cls,
        claim: str,
        interpretation: str,
        criterion: str,
        findings: Mapping[str, tuple[bool, str]],
    ) -> "Verdict":
        """Combine the findings on all data sets: (holds, evidence) by name."""
        held = [data for data, (holds, _) in findings.items() if holds]
        verdict = "does not hold"
        if held:
            verdict = "holds" if held == [*findings] else "holds in part"
        evidence = {data: text for data, (_, text) in findings.items()}
        return cls(claim, interpretation, criterion, verdict, held, evidence)


@dataclass(frozen=True, slots=True)
class Table:
    """A table of text: title, caption, column names and rows."""

    title: str
    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def markdown(self, level: int = 3) -> str:
        """Return the table as Markdown, under a heading of the given level."""
        lines = [f"{'#' * level} {self.title}", ""]
        if self.caption:
            lines += [self.caption, ""]
        for cells in (self.header, ("---",) * len(self.header), *self.rows):
            lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
        return "\n".join(lines)


class Experiment:
    """Base class of the experiments: a figure of the paper, or claims that need fits.

    A subclass sets `name` and `title` and overrides those methods that apply to it.

    Attributes
    ----------
    name : str
        Name in `EXPERIMENTS`.
    title : str
        Title of its figures.
    """

    name: ClassVar[str]
    title: ClassVar[str]

    def plan(self, setting: Setting) -> list[Fit]:
        """Return the fits that the experiment needs."""
        return []

    def verdicts(self, setting: Setting, results: Results) -> list[Verdict]:
        """Return the verdicts on its claims."""
        return []

    def draw(self, setting: Setting, results: Results) -> dict[str, Any]:
        """Return its Matplotlib figures, by name."""
        return {}

    def tables(self, setting: Setting, results: Results) -> list[Table]:
        """Return its tables."""
        return []


def is_below(a: FloatArray, b: FloatArray) -> bool:
    """Tell whether the mean of a - b over trials is below -2 standard errors."""
    difference = a - b
    error = difference.std(ddof=1) / np.sqrt(len(difference))
    return bool(difference.mean() < -2 * error)


def percent(values: FloatArray) -> str:
    """Write the mean over trials ± its standard error, in per cent."""
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else float("nan")
    return f"{100 * values.mean():.1f} ± {100 * error:.1f} %"
