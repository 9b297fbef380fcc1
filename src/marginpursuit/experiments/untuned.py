"""The paper's last claim, tested on our classifier: no tuning.

`MarginPursuitClassifier.as_published()`, on unscaled columns, against Pegasos and stochastic
margin pursuit at the best λ and column scaling of each, on the same trials.
"""

from typing import Any

import numpy as np

from marginpursuit.experiments._figures import dataset_panels, plot_test_error
from marginpursuit.experiments._fits import Fit
from marginpursuit.experiments._results import (
    Experiment,
    Results,
    Setting,
    Table,
    Verdict,
    percent,
)
from marginpursuit.experiments.naive_scaling import NaiveScaling, candidates, not_worse

__all__ = ["Untuned"]


class Untuned(Experiment):
    """`MarginPursuitClassifier` without tuning."""

    name = "untuned"
    title = "MarginPursuitClassifier without tuning, against the best λ of both learners"
    peers = NaiveScaling.learners

    def plan(self, setting: Setting) -> list[Fit]:
        """Return the untuned fits, and those of figures 3 and 4."""
        own = [
            Fit(data, "none", trial, "untuned")
            for data in setting.tabled
            for trial in range(setting.trials)
        ]
        return own + NaiveScaling().plan(setting)

    def verdicts(self, setting: Setting, results: Results) -> list[Verdict]:
        """Compare the test errors with each peer."""
        return [
            Verdict.of(
                f"Without tuning, MarginPursuitClassifier is no worse than {peer} tuned",
                "columns: unscaled for ours, the best scaling for the peer",
                "test error at most one percentage point above the lowest at the best λ",
                {
                    data: not_worse(
                        results.lowest(_untuned(data)),
                        results.lowest(_best(setting, results, data, peer)),
                    )
                    for data in setting.datasets
                },
            )
            for peer in self.peers
        ]

    def tables(self, setting: Setting, results: Results) -> list[Table]:
        """Return test errors and cost."""
        rows = []
        for data in setting.tabled:
            fit = _untuned(data)
            gradients = results.trials(fit, "gradients")[:, 0].mean()
            seconds = float(np.median(results.trials(fit, "seconds")))
            cost = f"{gradients:.0f} gradients, {1000 * seconds:.1f} ms"
            best = [_best(setting, results, data, peer) for peer in self.peers]
            cells = [f"{percent(results.lowest(b))} ({b.scaling}, λ = {b.penalty:g})" for b in best]
            rows.append((setting.label(data), percent(results.lowest(fit)), cost, *cells))
        header = ("data", "untuned", "its cost", *(f"best {peer}" for peer in self.peers))
        title = "Without tuning, against the best of all λ and scalings"
        return [Table(title, "", header, tuple(rows))]

    def draw(self, setting: Setting, results: Results) -> dict[str, Any]:
        """Draw the test errors of the peers, and ours with two standard errors."""
        figure, panels = dataset_panels(setting.datasets, 3.2)
        for panel, data in zip(panels, setting.datasets, strict=True):
            for peer in self.peers:
                best = _best(setting, results, data, peer)
                plot_test_error(panel, results, best, label=f"{peer}, best λ and scaling")
            errors = results.trials(_untuned(data), "test_error")
            gradients = results.trials(_untuned(data), "gradients").mean()
            standard_error = errors.std(ddof=1) / np.sqrt(len(errors))
            panel.errorbar(
                gradients, errors.mean(), 2 * standard_error, fmt="o", color="C3", label="untuned"
            )
        panels[0].legend(fontsize="x-small")
        return {self.name: figure}


def _untuned(data: str) -> Fit:
    return Fit(data, "none", 0, "untuned")


def _best(setting: Setting, results: Results, data: str, learner: str) -> Fit:
    """Return the best fit over all λ and scalings."""
    return results.best(
        fit for scaling in setting.scalings for fit in candidates(setting, data, scaling, learner)
    )
