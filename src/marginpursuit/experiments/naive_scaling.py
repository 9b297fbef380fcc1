"""Figures 3 and 4 of the paper: the scale s = 1 throughout, against Pegasos.

The specification is the paper's: γ = 1, both learners with their own step and projection, best λ of
seven by the lowest mean test error over all checkpoints, 25 trials. What it does not say is how the
columns are scaled, so all three ways are run, and each is a reading of its own.
"""

from typing import Any

import numpy as np

from marginpursuit._validation import FloatArray
from marginpursuit.experiments._fits import QUANTILES, Fit
from marginpursuit.experiments._results import (
    Experiment,
    Results,
    Setting,
    Table,
    Verdict,
    is_below,
    judge,
    percent,
)

__all__ = ["EXPERIMENT", "best_fit", "candidates"]

LEARNERS = ("margin pursuit", "Pegasos")

#: What counts as the same error: a percentage point.
TOLERANCE = 0.01


def candidates(setting: Setting, data: str, scaling: str, learner: str) -> list[Fit]:
    """Return the fits of the first trial, one for each λ."""
    return [Fit(data, scaling, 0, learner, p, setting.epochs) for p in setting.penalties]


def best_fit(setting: Setting, results: Results, data: str, scaling: str, learner: str) -> Fit:
    """Return the fit with the best λ."""
    return results.best(candidates(setting, data, scaling, learner))


def _plan(setting: Setting) -> list[Fit]:
    return [
        Fit(data, scaling, trial, learner, penalty, setting.epochs)
        for data in setting.datasets
        for scaling in setting.scalings
        for trial in range(setting.trials)
        for learner in LEARNERS
        for penalty in setting.penalties
    ]


def _judge(setting: Setting, results: Results) -> list[Verdict]:
    verdicts = []
    for scaling in setting.scalings:
        pairs = {
            data: tuple(best_fit(setting, results, data, scaling, name) for name in LEARNERS)
            for data in setting.datasets
        }
        for claim, criterion, finding in _CLAIMS:
            findings = {data: finding(results, *pair) for data, pair in pairs.items()}
            verdicts.append(judge(claim, f"columns: {scaling}", criterion, findings))
    return verdicts


def _competitive(results: Results, ours: Fit, theirs: Fit) -> tuple[bool, str]:
    a, b = results.lowest(ours), results.lowest(theirs)
    text = f"{percent(a)} (λ = {ours.penalty:g}) against {percent(b)} (λ = {theirs.penalty:g})"
    return bool(a.mean() - b.mean() <= TOLERANCE), f"{text}; difference {percent(a - b)}"


def _last(results: Results, fit: Fit, field: str) -> FloatArray:
    return np.asarray(results.trials(fit, field)[:, -1])


def _smaller(a: FloatArray, b: FloatArray) -> tuple[bool, str]:
    return is_below(a, b), f"{a.mean():.3g} against {b.mean():.3g}"


def _symmetric(results: Results, ours: Fit, theirs: Fit) -> tuple[bool, str]:
    return _smaller(*(np.abs(_last(results, fit, "skewness")) for fit in (ours, theirs)))


def _concentrated(results: Results, ours: Fit, theirs: Fit) -> tuple[bool, str]:
    return _smaller(*(_last(results, fit, "variance") for fit in (ours, theirs)))


def _concentrated_in_its_unit(results: Results, ours: Fit, theirs: Fit) -> tuple[bool, str]:
    return _smaller(
        *(
            np.sqrt(_last(results, fit, "variance")) / np.abs(_last(results, fit, "mean"))
            for fit in (ours, theirs)
        )
    )


def _rising(results: Results, ours: Fit, theirs: Fit) -> tuple[bool, str]:
    curve = results.trials(ours, "location").mean(axis=0)
    fall = float(np.max(np.maximum.accumulate(curve) - curve))
    reach = float(np.ptp(curve))
    return fall <= 0.05 * reach, f"from {curve[0]:.3g} to {curve[-1]:.3g}, falls by {fall:.2g}"


def _peaking(results: Results, ours: Fit, theirs: Fit) -> tuple[bool, str]:
    curve = results.trials(theirs, "location").mean(axis=0)
    peak = int(np.argmax(curve))
    counts = results.gradients(theirs)
    early = counts[peak] <= counts[-1] / 3
    settled = curve[-1] < 0.9 * curve[peak]
    when = f"{100 * counts[peak] / counts[-1]:.0f} % of the run"
    return bool(early and settled), f"peak {curve[peak]:.3g} at {when}, {curve[-1]:.3g} at its end"


_CLAIMS = (
    (
        "With s = 1 margin pursuit is competitive with Pegasos, each at its best λ",
        "lowest mean test error at most one percentage point above that of Pegasos",
        _competitive,
    ),
    (
        "The margins of margin pursuit are more symmetrically distributed",
        "absolute skewness of the training margins at the end smaller by two standard errors",
        _symmetric,
    ),
    (
        "The margins of margin pursuit have the smaller variance",
        "variance of the training margins at the end smaller by two standard errors",
        _concentrated,
    ),
    (
        "The margins of margin pursuit have the smaller variance, in units of their mean",
        "standard deviation over mean at the end smaller by two standard errors",
        _concentrated_in_its_unit,
    ),
    (
        "Margin pursuit pushes the location of the margins up monotonically",
        "mean location never falls by more than 5 % of its range",
        _rising,
    ),
    (
        "The location of the margins of Pegasos peaks early and then settles down",
        "mean location highest in the first third of the run, and at its end 10 % lower",
        _peaking,
    ),
)


def _tabulate(setting: Setting, results: Results) -> list[Table]:
    rows = []
    for data in setting.datasets:
        for scaling in setting.scalings:
            ours, theirs = (best_fit(setting, results, data, scaling, name) for name in LEARNERS)
            a, b = results.lowest(ours), results.lowest(theirs)
            rows.append(
                (
                    data,
                    scaling,
                    f"{ours.penalty:g}",
                    percent(a),
                    f"{theirs.penalty:g}",
                    percent(b),
                    percent(a - b),
                )
            )
    columns = (
        "data",
        "columns",
        "best λ, margin pursuit",
        "test error",
        "best λ, Pegasos",
        "test error",
        "difference",
    )
    return [Table("Lowest test error at the best λ, s = 1", columns, rows)]


def _draw(setting: Setting, results: Results) -> dict[str, Any]:
    figures = {}
    for data in setting.datasets:
        number = 4 if data in ("protein", "sido") else 3
        for scaling in setting.scalings:
            pair = [best_fit(setting, results, data, scaling, name) for name in LEARNERS]
            figures[f"figure{number}-{data}-{scaling}"] = _picture(results, pair)
    return figures


def _picture(results: Results, pair: list[Fit]) -> Any:
    """Draw margin pursuit above and Pegasos below, on the same axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12.0, 5.2), layout="constrained")
    rows = figure.subplots(2, 4, sharex=True, sharey="col")
    for axes, fit in zip(rows, pair, strict=True):
        counts = results.gradients(fit)
        mean = {
            field: results.trials(fit, field).mean(axis=0)
            for field in ("train_error", "test_error", "mean", "location", "variance", "skewness")
        }
        bands = results.trials(fit, "quantiles").mean(axis=0)
        axes[0].plot(counts, mean["train_error"], label="training")
        axes[0].plot(counts, mean["test_error"], label="test")
        half = len(QUANTILES) // 2
        for k in range(half):
            label = f"{100 * QUANTILES[k]:g} to {100 * QUANTILES[-1 - k]:g} %"
            axes[1].fill_between(
                counts, bands[k], bands[-1 - k], color="C0", alpha=0.2, linewidth=0, label=label
            )
        axes[1].plot(counts, bands[half], color="C0", label="median")
        axes[1].plot(counts, mean["mean"], color="C1", linestyle="--", label="mean")
        axes[1].plot(counts, mean["location"], color="C3", label="location")
        axes[2].plot(counts, mean["variance"])
        axes[3].plot(counts, mean["skewness"])
        axes[3].axhline(0.0, color="0.7", linewidth=0.8)
        axes[0].set_ylabel(f"{fit.learner}, λ = {fit.penalty:g}")
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


EXPERIMENT = Experiment(
    "figures3-4",
    "Figures 3 and 4: errors and margins over the gradients, s = 1, against Pegasos",
    _plan,
    _judge,
    _draw,
    _tabulate,
)
