"""Figure 2 of the paper: H and Ψ for five margin levels, and the inverse of Ψ.

The last panel extends to s = 10⁴; the paper stops at 15. In the paper's range Ψ⁻¹(ε/s) seems to
approach a positive limit, but it tends to zero like √(2ε/s)/γ (erratum E26).
"""

from typing import Any

import numpy as np

from marginpursuit._validation import FloatArray
from marginpursuit.calibration import conditional_risk, psi_inverse, psi_transform
from marginpursuit.experiments._figures import new_figure
from marginpursuit.experiments._results import Experiment, Results, Setting, Verdict
from marginpursuit.losses import MarginLoss

__all__ = ["CalibrationCurves"]


class CalibrationCurves(Experiment):
    """Figure 2, and the claims about Ψ and its inverse.

    Attributes
    ----------
    margins : tuple of float
        The margin levels γ of the caption: √2/2, √2 - 0.4, √2 - 0.11, √2 + 0.11, 2√2.
    scaled_excess : float
        The excess surrogate risk ε of the last panel.
    excesses : tuple of float
        The excess risks a of the panel Ψ⁻¹(a).
    """

    name = "figure2"
    title = "Figure 2: H, Ψ and its inverse"
    margins = tuple(
        float(np.sqrt(2.0) * f + c)
        for f, c in ((0.5, 0.0), (1.0, -0.4), (1.0, -0.11), (1.0, 0.11), (2.0, 0.0))
    )
    scaled_excess = 0.5
    excesses = (0.01, 0.02, 0.05, 0.1)
    unit = np.linspace(0.0, 1.0, 501)
    levels = np.linspace(0.5, 4.0, 200)

    def draw(self, setting: Setting, results: Results) -> dict[str, Any]:
        """Draw H(η), Ψ(θ), Ψ⁻¹(a) over γ and a, and Ψ⁻¹(ε/s) over s."""
        figure, panels = new_figure(12.0, 3.2, 1, 4)
        risk, transform, inverse, scaling = panels[0]
        for margin in self.margins:
            label = rf"$\gamma = {margin:.2f}$"
            risk.plot(self.unit, conditional_risk(self.unit, margin), label=label)
            transform.plot(self.unit, psi_transform(self.unit, margin), label=label)
            scaling.loglog(*self.inverse_over_scales(margin))
        risk.set(title=r"$H_{1,\gamma}(\eta)$", xlabel=r"$\eta$")
        transform.set(title=r"$\Psi_{1,\gamma}(\theta)$", xlabel=r"$\theta$")
        for excess in self.excesses:
            inverse.plot(self.levels, psi_inverse(excess, self.levels), label=f"a = {excess:g}")
        inverse.set(title=r"$\Psi_{1,\gamma}^{-1}(a)$", xlabel=r"$\gamma$")
        scales = np.geomspace(1.0, 1e4, 200)
        limit = np.sqrt(2 * self.scaled_excess / scales)
        scaling.loglog(scales, limit, color="0.5", linestyle=":")
        scaling.axvspan(1.0, 15.0, color="0.92", zorder=0, label="range of the paper's plot")
        scaling.set(title=r"$\Psi_{s,\gamma}^{-1}(\varepsilon/s)$", xlabel="s")
        for panel in (transform, inverse, scaling):
            panel.legend(fontsize="x-small")
        return {self.name: figure}

    def inverse_over_scales(self, margin: float) -> tuple[FloatArray, FloatArray]:
        """Return scales s with Ψ(1) ≥ ε/s, and Ψ⁻¹(ε/s)."""
        scales = np.geomspace(1.0, 1e4, 200)
        largest = np.array([MarginLoss(margin, scale).value(0.0) for scale in scales])
        inside = scales[largest >= self.scaled_excess / scales]
        return inside, np.asarray(psi_inverse(self.scaled_excess / inside, margin, inside))

    def verdicts(self, setting: Setting, results: Results) -> list[Verdict]:
        """Check convexity and monotonicity on grids, and the limit at s = 10⁴."""
        curves = np.array([psi_transform(self.unit, margin) for margin in self.margins])
        convex = bool(np.all(np.diff(curves, 2, axis=1) >= -1e-12))
        monotone = bool(np.all(np.diff(curves, axis=0)[:, 1:] > 0))
        inverses = np.array([psi_inverse(excess, self.levels) for excess in self.excesses])
        decreasing = bool(np.all(np.diff(inverses, axis=1) <= 1e-12))
        decrease = inverses[:, [0, 100]] - inverses[:, [99, 199]]  # lower and upper half of γ
        diminishing = bool(np.all(decrease[:, 1] < decrease[:, 0]))
        scales, bound = self.inverse_over_scales(self.margins[0])
        limit = np.sqrt(2 * self.scaled_excess / scales[-1]) / self.margins[0]
        return [
            Verdict.of(
                "Ψ is convex, and increases with γ",
                "the five levels of the caption, s = 1",
                "on 501 points of [0, 1]",
                {
                    "no data": (
                        convex and monotone,
                        f"Ψ(1) from {curves[0, -1]:.3f} to {curves[-1, -1]:.3f}",
                    )
                },
            ),
            Verdict.of(
                "The same excess surrogate risk implies a smaller excess risk at a larger γ, with "
                "diminishing returns",
                "γ in [0.5, 4], s = 1",
                "Ψ⁻¹(a) decreases in γ, and by less in the upper half of the range",
                {
                    "no data": (
                        decreasing and diminishing,
                        f"Ψ⁻¹(0.1) from {inverses[-1, 0]:.3f} to {inverses[-1, -1]:.3f}",
                    )
                },
            ),
            Verdict.of(
                "As s grows, Ψ⁻¹(ε/s) levels off at a positive value",
                "ε = 0.5; s to 10⁴ instead of 15 (E26)",
                "at s = 10⁴ more than twice √(2ε/s)/γ",
                {
                    "no data": (
                        bool(bound[-1] > 2 * limit),
                        f"{bound[-1]:.4f} at s = 10⁴, where √(2ε/s)/γ = {limit:.4f}",
                    )
                },
            ),
        ]
