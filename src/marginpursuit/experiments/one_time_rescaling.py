"""Figure 5 of the paper: the scale is set once from the data, where λ is far too small.

The text leaves open how columns are scaled, when the change happens, what δ is (0.05 here), whether
the step keeps its 1/s after it, and whether t starts again; and its rule for the scale takes a
quantile for a variance (E20). Every reading below is run on the same trials.
"""

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from marginpursuit._validation import FloatArray
from marginpursuit.experiments import naive_scaling
from marginpursuit.experiments._fits import Fit
from marginpursuit.experiments._learners import Rescaling
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
from marginpursuit.experiments.naive_scaling import TOLERANCE, best_fit

__all__ = ["EXPERIMENT", "READINGS"]

#: Every combination after five epochs, and what an early change makes of three of them.
READINGS = (
    Rescaling("printed", "over scale", "on"),
    Rescaling("printed", "over scale", "restart"),
    Rescaling("printed", "plain", "on"),
    Rescaling("printed", "plain", "restart"),
    Rescaling("consistent", "over scale", "on"),
    Rescaling("consistent", "over scale", "restart"),
    Rescaling("consistent", "plain", "on"),
    Rescaling("consistent", "plain", "restart"),
    Rescaling("printed", "over scale", "on", after=1.0),
    Rescaling("printed", "plain", "on", after=1.0),
    Rescaling("consistent", "plain", "on", after=1.0),
)

#: λ as in the figure's caption.
_PENALTY = 1e-5
_PENALTY_OF = {"sido": 1e-3}

#: How many times longer than in the other figures: catching up may take time.
_PATIENCE = 2

#: By how much λ must cost before it counts as wandering about: five percentage points.
_WANDERING = 0.05


def _fit(setting: Setting, data: str, scaling: str, reading: Rescaling | None = None) -> Fit:
    """Return the fit of the first trial, with a λ far too small."""
    penalty = _PENALTY_OF.get(data, _PENALTY)
    return Fit(data, scaling, 0, "margin pursuit", penalty, _PATIENCE * setting.epochs, reading)


def _scalings(setting: Setting) -> list[str]:
    """Return the ways to scale under which the learner learns at all at its best λ."""
    return [scaling for scaling in setting.scalings if scaling != "none"]


def _plan(setting: Setting) -> list[Fit]:
    own = [
        replace(_fit(setting, data, scaling, reading), trial=trial)
        for data, scaling in product(setting.datasets, _scalings(setting))
        for trial in range(setting.trials)
        for reading in (None, *READINGS)
    ]
    return own + naive_scaling.EXPERIMENT.plan(setting)


def _judge(setting: Setting, results: Results) -> list[Verdict]:
    verdicts = []
    for scaling in _scalings(setting):
        wandering = {d: _wanders(setting, results, d, scaling) for d in setting.datasets}
        verdicts.append(
            judge(
                "With λ far too small and s = 1 the learner wanders about",
                f"columns: {scaling}",
                "lowest test error five percentage points above that at the best λ",
                wandering,
            )
        )
        for reading in READINGS:
            for claim, criterion, finding in _CLAIMS:
                findings = {
                    data: finding(setting, results, _fit(setting, data, scaling, reading))
                    for data in setting.datasets
                }
                verdicts.append(judge(claim, f"columns: {scaling}; {reading}", criterion, findings))
    return verdicts


def _wanders(setting: Setting, results: Results, data: str, scaling: str) -> tuple[bool, str]:
    ours = results.lowest(_fit(setting, data, scaling))
    best = results.lowest(best_fit(setting, results, data, scaling, "margin pursuit"))
    found = bool(ours.mean() - best.mean() >= _WANDERING)
    return found, f"{percent(ours)} against {percent(best)}"


def _later_error(results: Results, fit: Fit, switch: float) -> FloatArray:
    """Return each trial's mean test error over the checkpoints after the change."""
    later = results.gradients(fit) > switch
    return np.asarray(results.trials(fit, "test_error")[:, later].mean(axis=1))


def _accelerates(setting: Setting, results: Results, fit: Fit) -> tuple[bool, str]:
    plain = replace(fit, rescaling=None)
    switch = results.switch(fit)
    a, b = (_later_error(results, each, switch) for each in (fit, plain))
    return is_below(a, b), f"{percent(a)} against {percent(b)} without"


def _catches_up(setting: Setting, results: Results, fit: Fit) -> tuple[bool, str]:
    return _close(setting, results, fit, "margin pursuit")


def _matches(setting: Setting, results: Results, fit: Fit) -> tuple[bool, str]:
    return _close(setting, results, fit, "Pegasos")


def _close(setting: Setting, results: Results, fit: Fit, rival: str) -> tuple[bool, str]:
    a = results.lowest(fit)
    b = results.lowest(best_fit(setting, results, fit.data, fit.scaling, rival))
    return bool(a.mean() - b.mean() <= TOLERANCE), f"{percent(a)} against {percent(b)}"


_CLAIMS = (
    (
        "Setting the scale once from the data accelerates learning",
        "mean test error after the change smaller, by two standard errors, than without it",
        _accelerates,
    ),
    (
        "Setting the scale once from the data catches up with the best λ",
        "lowest test error at most one percentage point above that at the best λ",
        _catches_up,
    ),
    (
        "With the scale set from the data, naive settings match or exceed well-known competitors",
        "lowest test error at most one percentage point above that of Pegasos at its best λ",
        _matches,
    ),
)


def _tabulate(setting: Setting, results: Results) -> list[Table]:
    rows = []
    for scaling in _scalings(setting):
        best = [
            best_fit(setting, results, data, scaling, "margin pursuit") for data in setting.datasets
        ]
        plain = [_fit(setting, data, scaling) for data in setting.datasets]
        for name, fits in (("best λ, s = 1", best), ("s = 1 throughout", plain)):
            rows.append((scaling, name, *_errors(results, fits), *([""] * len(_CLAIMS))))
        for reading in READINGS:
            fits = [_fit(setting, data, scaling, reading) for data in setting.datasets]
            held = [
                ", ".join(fit.data for fit in fits if finding(setting, results, fit)[0]) or "none"
                for _, _, finding in _CLAIMS
            ]
            rows.append((scaling, str(reading), *_errors(results, fits), *held))
    columns = (
        "columns",
        "reading",
        *setting.datasets,
        "accelerated on",
        "caught up with the best λ on",
        "caught up with Pegasos on",
    )
    return [Table("Lowest test error where λ is far too small", columns, rows)]


def _errors(results: Results, fits: list[Fit]) -> list[str]:
    return [percent(results.lowest(fit)) for fit in fits]


def _draw(setting: Setting, results: Results) -> dict[str, Any]:
    return {
        f"figure5-{scaling}": _picture(setting, results, scaling) for scaling in _scalings(setting)
    }


def _picture(setting: Setting, results: Results, scaling: str) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.0 * len(setting.datasets), 3.6), layout="constrained")
    panels = figure.subplots(1, len(setting.datasets), squeeze=False)[0]
    shown = [reading for reading in READINGS if reading.after == READINGS[0].after]
    colours = ("C0", "C1", "C2", "C3", "C4", "C5", "C6", "C8")
    for panel, data in zip(panels, setting.datasets, strict=True):
        curves = [
            (best_fit(setting, results, data, scaling, "margin pursuit"), "best λ, s = 1", "0.3"),
            (_fit(setting, data, scaling), "s = 1 throughout", "0.6"),
        ] + [
            (_fit(setting, data, scaling, reading), str(reading).rsplit(", after", 1)[0], colour)
            for reading, colour in zip(shown, colours, strict=True)
        ]
        for fit, label, colour in curves:
            error = results.trials(fit, "test_error").mean(axis=0)
            style = "-" if fit.rescaling is None or fit.rescaling.step == "plain" else "--"
            panel.plot(results.gradients(fit), error, style, color=colour, label=label)
        panel.axvline(results.switch(curves[-1][0]), color="black", linewidth=1.0)
        panel.set(title=data, xlabel="gradients", xscale="log")
    panels[0].set_ylabel("test error")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize="x-small")
    figure.suptitle(f"columns: {scaling}, λ = {_PENALTY:g}; means over trials")
    return figure


EXPERIMENT = Experiment(
    "figure5",
    "Figure 5: the scale set once from the data, at a λ far too small",
    _plan,
    _judge,
    _draw,
    _tabulate,
)
