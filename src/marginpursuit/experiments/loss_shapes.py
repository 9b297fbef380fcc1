"""Figure 1 of the paper: ρ, its derivative ψ and its second derivative near the origin."""

from typing import Any

import numpy as np

from marginpursuit.experiments._figures import new_figure
from marginpursuit.experiments._results import Experiment, Results, Setting, Verdict
from marginpursuit.losses import INFLUENCE_BOUND, TRUNCATION, curvature, influence, rho

__all__ = ["LossShapes"]


class LossShapes(Experiment):
    """Figure 1, and the claim that ρ is convex with a bounded derivative."""

    name = "figure1"
    title = "Figure 1: ρ, ρ' and ρ'' near the origin"
    grid = np.linspace(-3.0, 3.0, 601)

    def draw(self, setting: Setting, results: Results) -> dict[str, Any]:
        """Draw ρ, ψ = ρ' and ρ'', with the truncation points ±√2 marked."""
        figure, panels = new_figure(9.0, 2.8, 1, 3)
        curves = (
            (rho, r"$\rho(u)$"),
            (influence, r"$\rho'(u) = \psi(u)$"),
            (curvature, r"$\rho''(u)$"),
        )
        for axes, (function, title) in zip(panels[0], curves, strict=True):
            axes.plot(self.grid, function(self.grid))
            for end in (-TRUNCATION, TRUNCATION):
                axes.axvline(end, color="0.7", linewidth=0.8, linestyle=":")
            axes.set(title=title, xlabel="u")
        return {self.name: figure}

    def verdicts(self, setting: Setting, results: Results) -> list[Verdict]:
        """Check on the grid that slopes increase and that |ψ| ≤ 2√2/3."""
        slopes = np.diff(rho(self.grid)) / np.diff(self.grid)
        largest = float(np.max(np.abs(influence(self.grid))))
        holds = bool(np.all(np.diff(slopes) >= -1e-12)) and largest <= INFLUENCE_BOUND
        return [
            Verdict.of(
                "ρ is convex, and its derivative is bounded",
                "at scale 1",
                "slopes between 601 points of [-3, 3] increase; |ψ| ≤ 2√2/3 at all points",
                {"no data": (holds, f"largest |ψ| {largest:.4f}")},
            )
        ]
