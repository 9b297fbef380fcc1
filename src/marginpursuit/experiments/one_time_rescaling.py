"""Figure 5 of the paper: the scale is set once from the data, at a λ that is far too small.

The text leaves open how the columns are scaled, when the change happens, the value of δ (0.05
here), whether the step size keeps its factor 1/s, and whether the step counter restarts; its rule
for the scale uses a quantile in place of a variance (E20). All interpretations below are run on the
same trials.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from marginpursuit._validation import FloatArray
from marginpursuit.experiments._figures import dataset_panels, plot_test_error
from marginpursuit.experiments._fits import Fit
from marginpursuit.experiments._learners import Rescaling
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
from marginpursuit.experiments.naive_scaling import (
    NaiveScaling,
    best_fit,
    not_worse,
    penalty_name,
)

__all__ = ["OneTimeRescaling"]


def accelerates(setting: Setting, results: Results, fit: Fit) -> Finding:
    """Compare the mean test error after the change with that of the same fit without it."""
    switch = results.switch(fit)
    a, b = (_error_after(results, each, switch) for each in (fit, replace(fit, rescaling=None)))
    return Finding(is_below(a, b), f"{percent(a)} against {percent(b)} without")


def catches_up(setting: Setting, results: Results, fit: Fit) -> Finding:
    """Compare the lowest test error with that of margin pursuit at its best λ."""
    best = best_fit(setting, results, fit.data, fit.scaling, "margin pursuit", fit.halved)
    return not_worse(results.lowest(fit), results.lowest(best))


def matches(setting: Setting, results: Results, fit: Fit) -> Finding:
    """Compare the lowest test error with that of Pegasos at its best λ."""
    best = best_fit(setting, results, fit.data, fit.scaling, "Pegasos")
    return not_worse(results.lowest(fit), results.lowest(best))


def _error_after(results: Results, fit: Fit, switch: float) -> FloatArray:
    """Return the mean test error of each trial over the checkpoints after `switch` gradients."""
    later = results.gradients(fit) > switch
    return np.asarray(results.trials(fit, "test_error")[:, later].mean(axis=1))


class _Claim(NamedTuple):
    text: str
    criterion: str
    heading: str  # of the column in the table
    check: Callable[[Setting, Results, Fit], Finding]


class OneTimeRescaling(Experiment):
    """Figure 5, and the claims made about it.

    Attributes
    ----------
    interpretations : tuple of Rescaling
        All combinations after five epochs, and three of them after one epoch.
    with_full_penalty : tuple of Rescaling
        Those that are run with the penalty λ‖w‖² as well.
    """

    name = "figure5"
    title = "Figure 5: the scale set once from the data, at a λ far too small"
    interpretations = (
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
    with_full_penalty = (
        Rescaling("printed", "over scale", "on"),
        Rescaling("printed", "plain", "on"),
        Rescaling("consistent", "plain", "on"),
    )
    claims = (
        _Claim(
            "Setting the scale once from the data accelerates learning",
            "mean test error after the change smaller, by two standard errors, than without it",
            "accelerated on",
            accelerates,
        ),
        _Claim(
            "Setting the scale once from the data catches up with the best λ",
            "lowest test error at most one percentage point above that at the best λ",
            "caught up with the best λ on",
            catches_up,
        ),
        _Claim(
            "With the scale set from the data, a naive λ matches or exceeds well-known competitors",
            "lowest test error at most one percentage point above that of Pegasos at its best λ",
            "caught up with Pegasos on",
            matches,
        ),
    )

    def plan(self, setting: Setting) -> list[Fit]:
        """Return the fits of all interpretations, and those of figures 3 and 4."""
        constant = [(None, True), (None, False)]
        own = [
            replace(self.fit(setting, data, scaling, rescaling, halved), trial=trial)
            for data, scaling in product(setting.tabled, self.scalings(setting))
            for trial in range(setting.trials)
            for rescaling, halved in (*constant, *self.readings())
        ]
        return own + NaiveScaling().plan(setting)

    def readings(self) -> list[tuple[Rescaling, bool]]:
        """Return the changes of the scale, and whether the penalty is halved."""
        return [(each, True) for each in self.interpretations] + [
            (each, False) for each in self.with_full_penalty
        ]

    @staticmethod
    def penalty(data: str) -> float:
        """Return the λ of the figure's caption; hiva has that of sido."""
        return 1e-3 if data in ("sido", "hiva") else 1e-5

    def fit(
        self,
        setting: Setting,
        data: str,
        scaling: str,
        rescaling: Rescaling | None = None,
        halved: bool = True,
    ) -> Fit:
        """Return the fit of the first trial, with twice the epochs of the other figures."""
        epochs, penalty = 2 * setting.epochs, self.penalty(data)
        return Fit(data, scaling, 0, "margin pursuit", penalty, epochs, rescaling, halved)

    @staticmethod
    def scalings(setting: Setting) -> list[str]:
        """Return the scalings other than "none", at which no λ learns."""
        return [scaling for scaling in setting.scalings if scaling != "none"]

    def verdicts(self, setting: Setting, results: Results) -> list[Verdict]:
        """Check every claim under every scaling and interpretation."""
        verdicts = []
        for scaling in self.scalings(setting):
            verdicts.append(
                Verdict.of(
                    "With λ far too small and s = 1 the learner wanders about",
                    f"columns: {scaling}",
                    "lowest test error five percentage points above that at the best λ",
                    {
                        data: self._wanders(setting, results, data, scaling)
                        for data in setting.datasets
                    },
                )
            )
            for rescaling, halved in self.readings():
                for claim in self.claims:
                    findings = {
                        data: claim.check(
                            setting, results, self.fit(setting, data, scaling, rescaling, halved)
                        )
                        for data in setting.datasets
                    }
                    penalty = penalty_name(halved)
                    interpretation = f"columns: {scaling}; penalty {penalty}; {rescaling}"
                    verdicts.append(
                        Verdict.of(claim.text, interpretation, claim.criterion, findings)
                    )
        return verdicts

    def _wanders(self, setting: Setting, results: Results, data: str, scaling: str) -> Finding:
        """Compare s = 1 at the small λ with s = 1 at the best λ."""
        ours = results.lowest(self.fit(setting, data, scaling))
        best = results.lowest(best_fit(setting, results, data, scaling, "margin pursuit"))
        text = f"{percent(ours)} against {percent(best)}"
        return Finding(bool(ours.mean() - best.mean() >= 0.05), text)

    def tables(self, setting: Setting, results: Results) -> list[Table]:
        """Return the lowest test errors, and the data sets on which each claim holds."""
        rows = []
        for scaling in self.scalings(setting):
            best = [
                best_fit(setting, results, data, scaling, "margin pursuit")
                for data in setting.tabled
            ]
            constant = [self.fit(setting, data, scaling) for data in setting.tabled]
            for name, fits in (("best λ, s = 1", best), ("s = 1 throughout", constant)):
                rows.append((scaling, name, *_lowest(results, fits), *([""] * len(self.claims))))
            for rescaling, halved in self.readings():
                fits = [
                    self.fit(setting, data, scaling, rescaling, halved) for data in setting.tabled
                ]
                held = [
                    ", ".join(f.data for f in fits if claim.check(setting, results, f).holds)
                    for claim in self.claims
                ]
                cells = (name or "none" for name in held)
                reading = str(rescaling) if halved else f"{rescaling}, penalty λ‖w‖²"
                rows.append((scaling, reading, *_lowest(results, fits), *cells))
        headings = (claim.heading for claim in self.claims)
        header = ("columns", "interpretation", *map(setting.label, setting.tabled), *headings)
        return [Table("Lowest test error where λ is far too small", "", header, tuple(rows))]

    def draw(self, setting: Setting, results: Results) -> dict[str, Any]:
        """Draw a figure for each scaling."""
        return {
            f"figure5-{scaling}": self._draw(setting, results, scaling)
            for scaling in self.scalings(setting)
        }

    def _draw(self, setting: Setting, results: Results, scaling: str) -> Any:
        """Draw the test errors of the interpretations that change the scale after five epochs."""
        figure, panels = dataset_panels(setting.datasets, 3.6)
        shown = [each for each in self.interpretations if each.after == 5.0]
        colours = ("C0", "C1", "C2", "C3", "C4", "C5", "C6", "C8")
        for panel, data in zip(panels, setting.datasets, strict=True):
            best = best_fit(setting, results, data, scaling, "margin pursuit")
            constant = self.fit(setting, data, scaling)
            plot_test_error(panel, results, best, color="0.3", label="best λ, s = 1")
            plot_test_error(panel, results, constant, color="0.6", label="s = 1 throughout")
            for rescaling, colour in zip(shown, colours, strict=True):
                fit = self.fit(setting, data, scaling, rescaling)
                style = "-" if rescaling.step == "plain" else "--"
                label = str(rescaling).rsplit(", after", 1)[0]
                plot_test_error(panel, results, fit, style, color=colour, label=label)
            panel.axvline(results.switch(fit), color="black", linewidth=1.0)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize="x-small")
        figure.suptitle(f"columns: {scaling}, λ = {self.penalty(''):g}; means over trials")
        return figure


def _lowest(results: Results, fits: list[Fit]) -> list[str]:
    return [percent(results.lowest(fit)) for fit in fits]
