"""What the experiments have in common: their settings, their results, and how these are judged."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from marginpursuit._validation import FloatArray
from marginpursuit.experiments._fits import Fit

__all__ = [
    "FULL",
    "QUICK",
    "Experiment",
    "Results",
    "Setting",
    "Table",
    "Verdict",
    "is_below",
    "judge",
    "percent",
]


@dataclass(frozen=True)
class Setting:
    """How much is run.

    Attributes
    ----------
    datasets : sequence of str
        The data sets.
    scalings : sequence of str
        The ways to scale columns; the paper does not say which it used.
    penalties : sequence of float
        The values of λ among which the best is chosen.
    trials : int
        Draws of training and test rows.
    epochs : int
        Gradients computed by each stochastic fit, in units of the number of training rows.
    """

    datasets: Sequence[str]
    scalings: Sequence[str]
    penalties: Sequence[float]
    trials: int
    epochs: int


#: The paper's own. Its grid of λ is garbled in print; this is the likely meaning (E22).
FULL = Setting(
    datasets=("cov", "digit5", "protein", "sido"),
    scalings=("none", "min-max", "standard"),
    penalties=tuple(10.0**k for k in range(-6, 1)),
    trials=25,
    epochs=30,
)

#: On data that comes with scikit-learn, in less than a minute.
QUICK = Setting(
    datasets=("breast_cancer", "digits"),
    scalings=("min-max", "standard"),
    penalties=(1e-4, 1e-2, 1.0),
    trials=3,
    epochs=30,
)


class Results:
    """Rows of the store, by what was asked for.

    Parameters
    ----------
    rows : mapping of Fit to row
        The rows; those with an error count as failures.
    """

    def __init__(self, rows: Mapping[Fit, Mapping[str, Any]]) -> None:
        self.failures = {fit: str(row["error"]) for fit, row in rows.items() if "error" in row}
        self._trials: dict[Fit, list[Mapping[str, Any]]] = {}
        for fit in sorted(rows, key=lambda fit: fit.trial):
            result = rows[fit].get("result", {})
            self._trials.setdefault(replace(fit, trial=0), []).append(result)

    def trials(self, fit: Fit, field: str) -> FloatArray:
        """Return a field of this fit in all trials, in their order; NaN where it failed."""
        values = [result.get(field) for result in self._trials[replace(fit, trial=0)]]
        shape = next((np.shape(value) for value in values if value is not None), (1,))
        return np.array([np.full(shape, np.nan) if v is None else v for v in values], np.float64)

    def gradients(self, fit: Fit) -> FloatArray:
        """Return the numbers of gradients at the checkpoints."""
        return np.asarray(self.trials(fit, "gradients").max(axis=0))

    def lowest(self, fit: Fit) -> FloatArray:
        """Return each trial's test error at the checkpoint where their mean is lowest.

        Of a fit whose scale is changed, only what comes after the change counts.
        """
        later = ~(self.gradients(fit) <= self.switch(fit))  # of a failed fit too, which has NaN
        errors = self.trials(fit, "test_error")[:, later]
        return np.asarray(errors[:, np.argmin(errors.mean(axis=0))])

    def switch(self, fit: Fit) -> float:
        """Return the number of gradients at which the scale is changed; 0 if it is not."""
        if fit.rescaling is None:
            return 0.0
        return float(self.gradients(fit)[-1]) * fit.rescaling.after / fit.epochs

    def best(self, fits: Iterable[Fit]) -> Fit:
        """Return the fit with the lowest mean test error over all checkpoints, as the paper does.

        The choice looks at the test rows, so the error of the best is a little too good.
        """
        return min(fits, key=lambda fit: float(np.nan_to_num(self.lowest(fit).mean(), nan=1.0)))


@dataclass(frozen=True)
class Verdict:
    """What the numbers say of a claim, under one reading of it.

    Attributes
    ----------
    claim : str
        The claim, in our words.
    reading : str
        How it was read where the text leaves something open.
    criterion : str
        When it counts as true of a data set.
    verdict : {"holds", "holds in part", "does not hold"}
        True of all data sets, of some, of none.
    held_on : sequence of str
        The data sets of which it is true.
    evidence : mapping of str to str
        The numbers, by data set.
    """

    claim: str
    reading: str
    criterion: str
    verdict: str
    held_on: Sequence[str]
    evidence: Mapping[str, str]


def judge(
    claim: str, reading: str, criterion: str, findings: Mapping[str, tuple[bool, str]]
) -> Verdict:
    """Turn what was found on each data set into a verdict."""
    held = [data for data, (found, _) in findings.items() if found]
    verdict = "does not hold" if not held else "holds in part" if held != [*findings] else "holds"
    evidence = {data: text for data, (_, text) in findings.items()}
    return Verdict(claim, reading, criterion, verdict, held, evidence)


@dataclass(frozen=True)
class Table:
    """Numbers to be read: a title, names of columns, and rows of text."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True)
class Experiment:
    """A figure or a claim of the paper.

    Attributes
    ----------
    name : str
        Its name.
    title : str
        What it shows.
    plan : callable
        Returns the fits that it needs.
    judge : callable
        Returns the verdicts on its claims.
    draw : callable
        Returns its pictures, Matplotlib figures by name.
    tabulate : callable
        Returns its tables.
    """

    name: str
    title: str
    plan: Callable[[Setting], list[Fit]]
    judge: Callable[[Setting, Results], list[Verdict]]
    draw: Callable[[Setting, Results], dict[str, Any]]
    tabulate: Callable[[Setting, Results], list[Table]] = lambda setting, results: []


def is_below(a: FloatArray, b: FloatArray) -> bool:
    """Tell whether a is below b, trial by trial, by more than twice the standard error of that."""
    difference = a - b
    error = difference.std(ddof=1) / np.sqrt(len(difference))
    return bool(difference.mean() < -2 * error)


def percent(values: FloatArray) -> str:
    """Write the mean over trials and its standard error, in per cent."""
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else float("nan")
    return f"{100 * values.mean():.1f} ± {100 * error:.1f} %"
