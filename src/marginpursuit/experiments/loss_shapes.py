"""Figure 1 of the paper: ρ, its derivative ψ and its second derivative near the origin."""

from typing import Any

import numpy as np

from marginpursuit.experiments._results import Experiment, Results, Setting, Verdict, judge
from marginpursuit.losses import INFLUENCE_BOUND, TRUNCATION, curvature, influence, rho

__all__ = ["EXPERIMENT", "draw"]

_GRID = np.linspace(-3.0, 3.0, 601)


def draw() -> Any:
    """Draw ρ, ψ = ρ' and ρ'', with the truncation points ±√2 marked."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 2.8), layout="constrained")
    panels = figure.subplots(1, 3)
    curves = (
        (rho, r"$\rho(u)$"),
        (influence, r"$\rho'(u) = \psi(u)$"),
        (curvature, r"$\rho''(u)$"),
    )
    for axes, (function, title) in zip(panels, curves, strict=True):
        axes.plot(_GRID, function(_GRID))
        for end in (-TRUNCATION, TRUNCATION):
            axes.axvline(end, color="0.7", linewidth=0.8, linestyle=":")
        axes.set_title(title)
        axes.set_xlabel("u")
    return figure


def _judge(setting: Setting, results: Results) -> list[Verdict]:
    slopes = np.diff(rho(_GRID)) / np.diff(_GRID)
    convex = bool(np.all(np.diff(slopes) >= -1e-12))
    bounded = bool(np.all(np.abs(influence(_GRID)) <= INFLUENCE_BOUND))
    most = float(np.max(np.abs(influence(_GRID))))
    return [
        judge(
            "ρ is convex, and its derivative is bounded",
            "at scale 1",
            "slopes between 601 points of [-3, 3] rise; no |ψ| exceeds 2√2/3",
            {"no data": (convex and bounded, f"largest |ψ| {most:.4f}")},
        )
    ]


EXPERIMENT = Experiment(
    "figure1",
    "Figure 1: ρ, ρ' and ρ'' near the origin",
    plan=lambda setting: [],
    judge=_judge,
    draw=lambda setting, results: {"figure1": draw()},
)
