"""The paper's central claim: γ becomes the location of the margins, est(ŵ) ≈ γ.

est is Catoni's location of the training margins at the scale of the loss. It is evaluated at the
exact minimiser of the loss, without penalty and intercept as in Algorithm 1, on standardised
columns. Multiplying γ, s and w by one number multiplies the loss by its square, so that est/γ
depends on the ratio s/γ and on τ alone: s = 1 is fixed, and γ varies.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from marginpursuit._validation import FloatArray
from marginpursuit.experiments._figures import dataset_panels
from marginpursuit.experiments._fits import Fit
from marginpursuit.experiments._results import Experiment, Finding, Results, Setting, Table, Verdict

__all__ = ["MarginLocation"]


class MarginLocation(Experiment):
    """Where the margins of the minimiser are, and how many exceed the level.

    Attributes
    ----------
    levels : tuple of float
        The levels γ, in units of the scale: s/γ from 100, nearly least squares, to 0.1.
    settings : tuple of (float, float)
        Pairs of a level γ and an overconfidence weight τ; τ = 1 is the loss of the paper.
    tolerance : float
        The claim counts as true where est is within this fraction of γ.
    """

    name = "location"
    title = "Location of the margins at the minimiser, over the level γ"
    levels = (0.01, 0.3, 1.0, 3.0, 10.0)
    settings = (
        *((level, 1.0) for level in levels),
        *((level, 0.5) for level in levels),
        (1.0, 0.0),
    )
    tolerance = 0.1

    def plan(self, setting: Setting) -> list[Fit]:
        """Return the fits for all data sets, levels and overconfidence weights."""
        return [
            replace(self.fit(data, level, weight), trial=trial)
            for data in setting.tabled
            for trial in range(setting.trials)
            for level, weight in self.settings
        ]

    @staticmethod
    def fit(data: str, level: float, weight: float = 1.0) -> Fit:
        """Return the fit of the first trial."""
        return Fit(data, "standard", 0, "minimiser", margin=level, overconfidence=weight)

    def verdicts(self, setting: Setting, results: Results) -> list[Verdict]:
        """Check est ≈ γ for each s/γ and τ, and the fraction of rows above γ for τ = 1."""
        located = [
            Verdict.of(
                "The margin level γ becomes the location of the margins, est(ŵ) ≈ γ",
                f"s/γ = {1 / level:.3g}, τ = {weight:g}",
                f"mean of est/γ over trials within {self.tolerance:g} of 1",
                {
                    data: self._is_located(_ratio(results, self.fit(data, level, weight)))
                    for data in setting.datasets
                },
            )
            for level, weight in self.settings
        ]
        penalised = Verdict.of(
            "A larger γ leads to fewer correct examples being penalised as overconfident",
            "τ = 1; correct training rows with a margin above γ, at the minimiser for that γ",
            "their fraction decreases with every step of γ",
            {data: self._is_decreasing(results, data) for data in setting.datasets},
        )
        return [*located, penalised]

    def _is_located(self, ratio: FloatArray) -> Finding:
        holds = bool(abs(ratio.mean() - 1.0) <= self.tolerance)
        return Finding(holds, _mean_and_error(ratio))

    def _is_decreasing(self, results: Results, data: str) -> Finding:
        fractions = [_above(results, self.fit(data, level)).mean() for level in self.levels]
        text = ", ".join(
            f"{fraction:.2f} at γ = {level:g}"
            for fraction, level in zip(fractions, self.levels, strict=True)
        )
        return Finding(bool(np.all(np.diff(fractions) < 0)), text)

    def tables(self, setting: Setting, results: Results) -> list[Table]:
        """Return est/γ and the fraction of correct rows above γ."""
        header = ("τ", "s/γ", *(setting.label(data) for data in setting.tabled))
        located, above = [], []
        for level, weight in self.settings:
            setup = f"{weight:g}", f"{1 / level:.3g}"
            fits = [self.fit(data, level, weight) for data in setting.tabled]
            located.append((*setup, *(_mean_and_error(_ratio(results, fit)) for fit in fits)))
            above.append((*setup, *(_mean_and_error(_above(results, fit)) for fit in fits)))
        return [
            Table("Location of the margins over the level, est/γ", "", header, tuple(located)),
            Table("Fraction of the correct rows with a margin above γ", "", header, tuple(above)),
        ]

    def draw(self, setting: Setting, results: Results) -> dict[str, Any]:
        """Draw est/γ over s/γ, with two standard errors."""
        figure, panels = dataset_panels(setting.datasets, 3.2)
        ratios = [1 / level for level in self.levels]
        for panel, data in zip(panels, setting.datasets, strict=True):
            for weight in (1.0, 0.5):
                found = [_ratio(results, self.fit(data, level, weight)) for level in self.levels]
                errors = [2 * each.std(ddof=1) / np.sqrt(len(each)) for each in found]
                means = [each.mean() for each in found]
                panel.errorbar(ratios, means, errors, marker="o", label=f"τ = {weight:g}")
            panel.axhline(1.0, color="0.7", linewidth=0.8)
            panel.set(xscale="log", yscale="linear", xlabel="s/γ", ylabel="est/γ")
        panels[0].legend(fontsize="x-small")
        return {self.name: figure}


def _ratio(results: Results, fit: Fit) -> FloatArray:
    """Return est/γ of each trial."""
    return np.asarray(results.trials(fit, "own_location")[:, 0] / fit.margin)


def _above(results: Results, fit: Fit) -> FloatArray:
    """Return the fraction of the correct rows above γ of each trial."""
    return np.asarray(results.trials(fit, "above_level")[:, 0])


def _mean_and_error(values: FloatArray) -> str:
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else float("nan")
    return f"{values.mean():.2f} ± {error:.2f}"
