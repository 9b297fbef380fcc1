"""What the paper's last claim promises, by our own means: nothing to tune.

`MarginPursuitClassifier` as it comes, on columns as they come, on the same trials as Pegasos and
the stochastic margin pursuit at their best λ and under the best scaling of the columns.
"""

from typing import Any

import numpy as np

from marginpursuit.experiments import naive_scaling
from marginpursuit.experiments._fits import Fit
from marginpursuit.experiments._results import (
    Experiment,
    Results,
    Setting,
    Table,
    Verdict,
    judge,
    percent,
)
from marginpursuit.experiments.naive_scaling import LEARNERS, TOLERANCE, candidates

__all__ = ["EXPERIMENT"]


def _ours(data: str) -> Fit:
    return Fit(data, "none", 0, "untuned")


def _plan(setting: Setting) -> list[Fit]:
    own = [
        Fit(data, "none", trial, "untuned")
        for data in setting.datasets
        for trial in range(setting.trials)
    ]
    return own + naive_scaling.EXPERIMENT.plan(setting)


def _rival(setting: Setting, results: Results, data: str, learner: str) -> Fit:
    """Return the best of all λ and all ways to scale the columns."""
    return results.best(
        fit for scaling in setting.scalings for fit in candidates(setting, data, scaling, learner)
    )


def _judge(setting: Setting, results: Results) -> list[Verdict]:
    return [
        judge(
            f"Without tuning, MarginPursuitClassifier is no worse than {learner} tuned",
            "columns: as they come for ours, the best way to scale them for the other",
            "test error at most one percentage point above the lowest at the best λ",
            {data: _no_worse(setting, results, data, learner) for data in setting.datasets},
        )
        for learner in LEARNERS
    ]


def _no_worse(setting: Setting, results: Results, data: str, learner: str) -> tuple[bool, str]:
    a = results.lowest(_ours(data))
    b = results.lowest(_rival(setting, results, data, learner))
    return bool(a.mean() - b.mean() <= TOLERANCE), f"{percent(a)} against {percent(b)}"


def _tabulate(setting: Setting, results: Results) -> list[Table]:
    rows = []
    for data in setting.datasets:
        ours = _ours(data)
        passes = results.trials(ours, "gradients")[:, 0]
        rivals = [_rival(setting, results, data, learner) for learner in LEARNERS]
        cells = [
            f"{percent(results.lowest(fit))} ({fit.scaling}, λ = {fit.penalty:g})" for fit in rivals
        ]
        seconds = float(np.median(results.trials(ours, "seconds")))
        cost = f"{passes.mean():.0f} gradients, {1000 * seconds:.1f} ms"
        rows.append((data, percent(results.lowest(ours)), cost, *cells))
    columns = ("data", "untuned", "its cost", *(f"best {learner}" for learner in LEARNERS))
    return [Table("Without tuning, against the best of all λ and scalings", columns, rows)]


def _draw(setting: Setting, results: Results) -> dict[str, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.0 * len(setting.datasets), 3.2), layout="constrained")
    panels = figure.subplots(1, len(setting.datasets), squeeze=False)[0]
    for panel, data in zip(panels, setting.datasets, strict=True):
        for learner in LEARNERS:
            fit = _rival(setting, results, data, learner)
            error = results.trials(fit, "test_error").mean(axis=0)
            panel.plot(results.gradients(fit), error, label=f"{learner}, best λ and scaling")
        ours = results.trials(_ours(data), "test_error")
        gradients = results.trials(_ours(data), "gradients").mean()
        spread = ours.std(ddof=1) / np.sqrt(len(ours))
        panel.errorbar(gradients, ours.mean(), 2 * spread, fmt="o", color="C3", label="untuned")
        panel.set(title=data, xlabel="gradients", xscale="log")
    panels[0].set_ylabel("test error")
    panels[0].legend(fontsize="x-small")
    return {"untuned": figure}


EXPERIMENT = Experiment(
    "untuned",
    "MarginPursuitClassifier without tuning, against the best λ of both learners",
    _plan,
    _judge,
    _draw,
    _tabulate,
)
