"""What one sample adds to the objective of each method, by its margin, all other samples fixed.

For methods that sum a loss over the samples that is the loss itself. For the others, which look at
the margins as a whole, it is found out: the margin of one of a hundred samples is moved, and the
change of the objective is multiplied by their number.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.stats import norm

from marginpursuit._validation import FloatArray
from marginpursuit.experiments._results import Experiment
from marginpursuit.location import catoni_location
from marginpursuit.losses import HingeLoss, LogisticLoss, MarginLoss, ProjectionLoss

N_SAMPLES = 100
N_BLOCKS = 11
N_PARTITIONS = 2000

#: The margins of the sample that is moved, and of the others, which are nearly all right.
MARGINS = np.linspace(-4.0, 4.0, 161)
OTHERS = 1.0 + 0.6 * norm.ppf((np.arange(1, N_SAMPLES) - 0.5) / (N_SAMPLES - 1))


def added(objective: Callable[[FloatArray], float]) -> FloatArray:
    """Return n times the objective by the margin of one sample, above its least value."""
    values = [objective(np.append(OTHERS, margin)) for margin in MARGINS]
    return N_SAMPLES * (np.array(values) - min(values))


def mean_of(loss: Callable[[FloatArray], FloatArray]) -> Callable[[FloatArray], float]:
    """Return the objective that is a mean of losses."""
    return lambda margins: float(np.mean(loss(margins)))


def large_margin_distribution(margins: FloatArray) -> float:
    """Return the objective of LDM for λ₁ = λ₂ = λ₃ = 1, without the penalty."""
    return float(np.var(margins) - np.mean(margins) + np.mean(HingeLoss().value(margins)))


def optimal_margin_distribution(margins: FloatArray) -> FloatArray:
    """Return the loss of ODM for θ = 0.2 and μ = 0.8: nothing within the band around 1."""
    short, above = np.maximum(0.8 - margins, 0.0), np.maximum(margins - 1.2, 0.0)
    return np.asarray((short**2 + 0.8 * above**2) / 0.8**2)


def catoni(influence: str) -> Callable[[FloatArray], float]:
    """Return the Catoni estimate of the hinge risk at scale 1."""
    return lambda m: float(catoni_location(HingeLoss().value(m), 1.0, influence=influence))


def median_of_means(margins: FloatArray) -> float:
    """Return the median of block means of the logistic losses, averaged over partitions."""
    rng = np.random.default_rng(0)  # the same partitions for every margin
    order = rng.permuted(np.tile(np.arange(N_SAMPLES), (N_PARTITIONS, 1)), axis=1)
    size = N_SAMPLES // N_BLOCKS
    losses = np.asarray(LogisticLoss().value(margins))
    blocks = losses[order[:, : size * N_BLOCKS]].reshape(N_PARTITIONS, N_BLOCKS, size)
    return float(np.median(blocks.mean(axis=2), axis=1).mean())


#: The curves of each panel.
METHODS: dict[str, dict[str, Callable[[FloatArray], float]]] = {
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
        f"{N_BLOCKS} blocks": median_of_means,
        "1 block": mean_of(LogisticLoss().value),
    },
}


def draw() -> Any:
    """Draw a panel for each method."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 4.4), layout="constrained")
    panels = figure.subplots(2, 4, sharex=True).ravel()
    for axes, (method, curves) in zip(panels, METHODS.items(), strict=False):
        for (name, objective), style in zip(curves.items(), ("-", "--"), strict=False):
            axes.plot(MARGINS, added(objective), style, label=name)
        axes.set_title(method)
        axes.set_ylim(-0.2, 5.2)
        axes.axvline(0.0, color="0.7", linewidth=0.8, linestyle=":")
        axes.legend(fontsize="small", frameon=False, loc="upper right")
    for axes in panels[4:]:
        axes.set_xlabel("margin of the sample")
    panels[-1].set_axis_off()
    return figure


EXPERIMENT = Experiment(
    "methods",
    "What one sample adds to the objective of each method, by its margin",
    plan=lambda setting: [],
    judge=lambda setting, results: [],
    draw=lambda setting, results: {"methods": draw()},
)
