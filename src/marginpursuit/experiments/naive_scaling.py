"""Figures 3 and 4 of the paper: constant scale s = 1, against Pegasos.

The protocol is the paper's: γ = 1, each learner with its own step size and projection, the best of
seven λ by the lowest mean test error at any checkpoint, 25 trials. The paper says neither how the
columns are scaled nor whether its penalty is (λ/2)‖w‖² or λ‖w‖². Every scaling is a separate
interpretation, with both penalties; unscaled columns, where no λ learns, have the first only.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from marginpursuit._validation import FloatArray
from marginpursuit.experiments._figures import new_figure
from marginpursuit.experiments._fits import QUANTILES, Fit
from marginpursuit.experiments._results import (
    Experiment,
    Finding,
    Results,
    Setting,
    Table,
    Verdict,
    is_below,
    percent,
)

__all__ = ["NaiveScaling", "best_fit", "candidates", "not_worse", "penalty_name"]


def penalty_name(halved: bool) -> str:
    """Return the formula of the penalty."""
    return "(λ/2)‖w‖²" if halved else "λ‖w‖²"


def candidates(
    setting: Setting, data: str, scaling: str, learner: str, halved: bool = True
) -> list[Fit]:
    """Return the fits of the first trial, one for each λ."""
    return [
        Fit(data, scaling, 0, learner, penalty, setting.epochs, halved=halved)
        for penalty in setting.penalties
    ]


def best_fit(
    setting: Setting, results: Results, data: str, scaling: str, learner: str, halved: bool = True
) -> Fit:
    """Return the fit with the best λ."""
    return results.best(candidates(setting, data, scaling, learner, halved))


def not_worse(a: FloatArray, b: FloatArray, tolerance: float = 0.01) -> Finding:
    """Test whether the mean error a is at most one percentage point above the mean error b."""
    return Finding(bool(a.mean() - b.mean() <= tolerance), f"{percent(a)} against {percent(b)}")


def competitive(results: Results, ours: Fit, theirs: Fit) -> Finding:
    """Compare the lowest test errors."""
    a, b = results.lowest(ours), results.lowest(theirs)
    text = f"{percent(a)} (λ = {ours.penalty:g}) against {percent(b)} (λ = {theirs.penalty:g})"
    return Finding(not_worse(a, b).holds, f"{text}; difference {percent(a - b)}")


def symmetric(results: Results, ours: Fit, theirs: Fit) -> Finding:
    """Compare the absolute skewness of the final margins."""
    return _smaller(*(np.abs(_last(results, fit, "skewness")) for fit in (ours, theirs)))


def concentrated(results: Results, ours: Fit, theirs: Fit) -> Finding:
    """Compare the variance of the final margins."""
    return _smaller(*(_last(results, fit, "variance") for fit in (ours, theirs)))


def relatively_concentrated(results: Results, ours: Fit, theirs: Fit) -> Finding:
    """Compare the coefficient of variation of the final margins."""
    return _smaller(
        *(
            np.sqrt(_last(results, fit, "variance")) / np.abs(_last(results, fit, "mean"))
            for fit in (ours, theirs)
        )
    )


def rising(results: Results, ours: Fit, theirs: Fit) -> Finding:
    """Test whether the location of our margins never drops by more than 5 % of its range."""
    curve = results.mean(ours, "location")
    drop = float(np.max(np.maximum.accumulate(curve) - curve))
    holds = drop <= 0.05 * float(np.ptp(curve))
    return Finding(holds, f"from {curve[0]:.3g} to {curve[-1]:.3g}, falls by {drop:.2g}")


def peaking(results: Results, ours: Fit, theirs: Fit) -> Finding:
    """Test whether the location of Pegasos' margins peaks in the first third, then drops 10 %."""
    curve = results.mean(theirs, "location")
    peak = int(np.argmax(curve))
    counts = results.gradients(theirs)
    early = counts[peak] <= counts[-1] / 3
    dropped = curve[-1] < 0.9 * curve[peak]
    when = f"{100 * counts[peak] / counts[-1]:.0f} % of the run"
    text = f"peak {curve[peak]:.3g} at {when}, {curve[-1]:.3g} at its end"
    return Finding(bool(early and dropped), text)


def _last(results: Results, fit: Fit, field: str) -> FloatArray:
    return np.asarray(results.trials(fit, field)[:, -1])


def _smaller(a: FloatArray, b: FloatArray) -> Finding:
    return Finding(is_below(a, b), f"{a.mean():.3g} against {b.mean():.3g}")


class _Claim(NamedTuple):
    text: str
    criterion: str
    check: Callable[[Results, Fit, Fit], Finding]


class NaiveScaling(Experiment):
    """Figures 3 and 4, and the claims made about them."""

    name = "figures3-4"
    title = "Figures 3 and 4: errors and margins over the gradients, s = 1, against Pegasos"
    learners = ("margin pursuit", "Pegasos")
    claims = (
        _Claim(
            "With s = 1 margin pursuit is competitive with Pegasos, each at its best λ",
            "lowest mean test error at most one percentage point above that of Pegasos",
            competitive,
        ),
        _Claim(
            "The margins of margin pursuit are more symmetrically distributed",
            "absolute skewness of the final training margins smaller by two standard errors",
            symmetric,
        ),
        _Claim(
            "The margins of margin pursuit have the smaller variance",
            "variance of the final training margins smaller by two standard errors",
            concentrated,
        ),
        _Claim(
            "The margins of margin pursuit have the smaller variance, in units of their mean",
            "standard deviation over mean of the final margins smaller by two standard errors",
            relatively_concentrated,
        ),
        _Claim(
            "Margin pursuit increases the location of the margins monotonically",
            "mean location never falls by more than 5 % of its range",
            rising,
        ),
        _Claim(
            "The location of the margins of Pegasos peaks early and then settles down",
            "mean location highest in the first third of the run, and 10 % lower at its end",
            peaking,
        ),
    )

    @staticmethod
    def interpretations(setting: Setting) -> list[tuple[str, bool]]:
        """Return scalings, and whether the penalty is halved."""
        scaled = [scaling for scaling in setting.scalings if scaling != "none"]
        return [(each, True) for each in setting.scalings] + [(each, False) for each in scaled]

    def plan(self, setting: Setting) -> list[Fit]:
        """Return the fits of both learners for all data sets, scalings, penalties and trials."""
        fits = [
            fit
            for data in setting.tabled
            for scaling, halved in self.interpretations(setting)
            for learner in (self.learners if halved else self.learners[:1])
            for fit in candidates(setting, data, scaling, learner, halved)
        ]
        return [replace(fit, trial=trial) for trial in range(setting.trials) for fit in fits]

    def verdicts(self, setting: Setting, results: Results) -> list[Verdict]:
        """Check every claim under every scaling and penalty."""
        verdicts = []
        for scaling, halved in self.interpretations(setting):
            pairs = {
                data: self._best_pair(setting, results, data, scaling, halved)
                for data in setting.datasets
            }
            for claim, criterion, check in self.claims:
                findings = {data: check(results, *pair) for data, pair in pairs.items()}
                interpretation = f"columns: {scaling}; penalty {penalty_name(halved)}"
                verdicts.append(Verdict.of(claim, interpretation, criterion, findings))
        return verdicts

    def tables(self, setting: Setting, results: Results) -> list[Table]:
        """Return the lowest test errors of both learners."""
        rows = []
        for data in setting.tabled:
            for scaling, halved in self.interpretations(setting):
                ours, theirs = self._best_pair(setting, results, data, scaling, halved)
                a, b = results.lowest(ours), results.lowest(theirs)
                errors = f"{ours.penalty:g}", percent(a), f"{theirs.penalty:g}", percent(b)
                reading = setting.label(data), scaling, penalty_name(halved)
                rows.append((*reading, *errors, percent(a - b)))
        header = (
            *("data", "columns", "penalty", "best λ, margin pursuit", "test error"),
            *("best λ, Pegasos", "test error", "difference"),
        )
        return [Table("Lowest test error at the best λ, s = 1", "", header, tuple(rows))]

    def draw(self, setting: Setting, results: Results) -> dict[str, Any]:
        """Draw a figure for each data set and scaling."""
        figures = {}
        for data in setting.datasets:
            number = 4 if data in ("protein", "sido") else 3
            for scaling in setting.scalings:
                pair = self._best_pair(setting, results, data, scaling, True)
                figures[f"figure{number}-{data}-{scaling}"] = _draw_pair(results, pair)
        return figures

    def _best_pair(
        self, setting: Setting, results: Results, data: str, scaling: str, halved: bool
    ) -> tuple[Fit, Fit]:
        """Return margin pursuit with this penalty, and Pegasos, whose penalty is halved."""
        ours, theirs = self.learners
        return (
            best_fit(setting, results, data, scaling, ours, halved),
            best_fit(setting, results, data, scaling, theirs),
        )


def _draw_pair(results: Results, pair: tuple[Fit, Fit]) -> Any:
    """Draw margin pursuit above and Pegasos below, on the same axes."""
    figure, rows = new_figure(12.0, 5.2, 2, 4, sharex=True, sharey="col")
    for axes, fit in zip(rows, pair, strict=True):
        _draw_row(axes, results, fit)
    for panel, title in zip(rows[0], ("error", "margins", "variance", "skewness"), strict=True):
        panel.set(title=title, xscale="log")
    rows[0][1].set_yscale("symlog", linthresh=1.0)
    rows[0][2].set_yscale("log")
    for panel in rows[0][:2]:
        panel.legend(fontsize="x-small")
    for panel in rows[1]:
        panel.set_xlabel("gradients")
    figure.suptitle(f"{pair[0].data}, columns: {pair[0].scaling}; means over trials")
    return figure


def _draw_row(axes: Any, results: Results, fit: Fit) -> None:
    """Draw the errors of a fit and the statistics of its margins."""
    counts = results.gradients(fit)
    errors, margins, variance, skewness = axes
    errors.plot(counts, results.mean(fit, "train_error"), label="training")
    errors.plot(counts, results.mean(fit, "test_error"), label="test")
    errors.set_ylabel(f"{fit.learner}, λ = {fit.penalty:g}")
    quantiles = results.mean(fit, "quantiles")
    half = len(QUANTILES) // 2
    for k in range(half):
        label = f"{100 * QUANTILES[k]:g} to {100 * QUANTILES[-1 - k]:g} %"
        band = quantiles[k], quantiles[-1 - k]
        margins.fill_between(counts, *band, color="C0", alpha=0.2, linewidth=0, label=label)
    margins.plot(counts, quantiles[half], color="C0", label="median")
    margins.plot(counts, results.mean(fit, "mean"), color="C1", linestyle="--", label="mean")
    margins.plot(counts, results.mean(fit, "location"), color="C3", label="location")
    variance.plot(counts, results.mean(fit, "variance"))
    skewness.plot(counts, results.mean(fit, "skewness"))
    skewness.axhline(0.0, color="0.7", linewidth=0.8)
