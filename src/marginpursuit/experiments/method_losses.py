"""The contribution of one sample to the objective of each method, as a function of its margin.

For a method whose objective is a mean of losses, the contribution is the loss. For the others,
whose objective depends on all margins jointly, it is computed: one of a hundred margins varies, the
others are fixed, and the change of the objective is multiplied by the number of samples.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from scipy.stats import norm

from marginpursuit._validation import FloatArray
from marginpursuit.experiments._figures import new_figure
from marginpursuit.experiments._results import Experiment, Results, Setting
from marginpursuit.location import catoni_location
from marginpursuit.losses import HingeLoss, LogisticLoss, MarginLoss, ProjectionLoss

__all__ = ["MethodLosses"]

Objective: TypeAlias = Callable[[FloatArray], float]


class MethodLosses(Experiment):
    """The figure of ``docs/methods.md``.

    Attributes
    ----------
    n_samples : int
        Number of samples, of which one varies.
    margins : ndarray
        The margins of that sample.
    """

    name = "methods"
    title = "Contribution of one sample to the objective of each method, by its margin"
    n_samples = 100
    margins = np.linspace(-4.0, 4.0, 161)

    @property
    def others(self) -> FloatArray:
        """The fixed margins: quantiles of a normal distribution, nearly all positive."""
        n = self.n_samples
        return np.asarray(1.0 + 0.6 * norm.ppf((np.arange(1, n) - 0.5) / (n - 1)))

    @property
    def objectives(self) -> Mapping[str, Mapping[str, Objective]]:
        """The curves, by panel and label."""
        return {
            "margin pursuit": {
                "τ = 1": mean_of(MarginLoss().value),
                "τ = 0": mean_of(MarginLoss(overconfidence=0.0).value),
            },
            "Pegasos": {"hinge": mean_of(HingeLoss().value)},
            "MDO": {"α = 4, β = 1": mean_of(ProjectionLoss(4.0, 1.0).value)},
            "LDM": {"λ₁ = λ₂ = λ₃ = 1": large_margin_distribution},
            "ODM": {"θ = 0.2, μ = 0.8": mean_of(optimal_margin_distribution)},
            "Catoni risk": {"truncated": catoni("truncated"), "wide": catoni("wide")},
            "median of means": {
                "11 blocks": median_of_means,
                "1 block": mean_of(LogisticLoss().value),
            },
        }

    def contribution(self, objective: Objective) -> FloatArray:
        """Return n times the objective over the varying margin, minus its minimum."""
        others = self.others
        values = [objective(np.append(others, margin)) for margin in self.margins]
        return self.n_samples * (np.array(values) - min(values))

    def draw(self, setting: Setting, results: Results) -> dict[str, Any]:
        """Draw a panel for each method."""
        figure, axes = new_figure(9.0, 4.4, 2, 4, sharex=True)
        panels = axes.ravel()
        for panel, (method, curves) in zip(panels, self.objectives.items(), strict=False):
            for (name, objective), style in zip(curves.items(), ("-", "--"), strict=False):
                panel.plot(self.margins, self.contribution(objective), style, label=name)
            panel.set(title=method, ylim=(-0.2, 5.2))
            panel.axvline(0.0, color="0.7", linewidth=0.8, linestyle=":")
            panel.legend(fontsize="small", frameon=False, loc="upper right")
        for panel in panels[4:]:
            panel.set_xlabel("margin of the sample")
        panels[-1].set_axis_off()
        return {self.name: figure}


def mean_of(loss: Callable[[FloatArray], FloatArray]) -> Objective:
    """Return the mean of a loss as a function of the margins."""
    return lambda margins: float(np.mean(loss(margins)))


def large_margin_distribution(margins: FloatArray) -> float:
    """Return the objective of LDM for λ₁ = λ₂ = λ₃ = 1, without the penalty."""
    return float(np.var(margins) - np.mean(margins) + np.mean(HingeLoss().value(margins)))


def optimal_margin_distribution(margins: FloatArray) -> FloatArray:
    """Return the loss of ODM for θ = 0.2 and μ = 0.8, which is zero on [0.8, 1.2]."""
    short, above = np.maximum(0.8 - margins, 0.0), np.maximum(margins - 1.2, 0.0)
    return np.asarray((short**2 + 0.8 * above**2) / 0.8**2)


def catoni(influence: str) -> Objective:
    """Return the Catoni estimate of the hinge risk at scale 1."""
    return lambda m: float(catoni_location(HingeLoss().value(m), 1.0, influence=influence))


def median_of_means(margins: FloatArray, n_blocks: int = 11, n_partitions: int = 2000) -> float:
    """Return the median of block means of the logistic loss, averaged over partitions."""
    rng = np.random.default_rng(0)  # the same partitions for every margin
    order = rng.permuted(np.tile(np.arange(len(margins)), (n_partitions, 1)), axis=1)
    size = len(margins) // n_blocks
    losses = np.asarray(LogisticLoss().value(margins))
    blocks = losses[order[:, : size * n_blocks]].reshape(n_partitions, n_blocks, size)
    return float(np.median(blocks.mean(axis=2), axis=1).mean())
