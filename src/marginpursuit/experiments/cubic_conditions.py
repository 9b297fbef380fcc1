"""The figures of the appendix: the cubics whose roots minimise the conditional risk.

The paper's versions contain two errors. The double-cube polynomial has three real roots, not one
(E2); the constant terms of the two single-cube polynomials are swapped (E1). The figure shows the
correct polynomials, and next to them the single cubes as printed.
"""

from typing import Any, TypeAlias

import numpy as np

from marginpursuit.calibration import cubic_roots, optimal_score
from marginpursuit.experiments._figures import new_figure
from marginpursuit.experiments._results import Experiment, Results, Setting, Verdict
from marginpursuit.losses import INFLUENCE_BOUND, TRUNCATION

__all__ = ["CubicConditions", "double_cube", "single_cube"]

Cubic: TypeAlias = tuple[float, float, float, float]


def double_cube(eta: float, margin: float) -> Cubic:
    """Return the coefficients of the double-cube condition, highest power first."""
    ratio = (eta - 1) / eta
    return (
        1 - ratio,
        -3 * margin * (1 + ratio),
        3 * (1 - ratio) * (margin**2 - 2),
        (1 + ratio) * (6 * margin - margin**3),
    )


def single_cube(eta: float, margin: float, *, printed: bool = False) -> Cubic:
    """Return the coefficients of the single-cube condition: *minus* above η = 1/2, *plus* below.

    With `printed`, the constant term is that of the paper (E1).
    """
    ratio = (eta - 1) / eta
    sign = -1.0 if eta > 0.5 else 1.0
    factor = ratio if (eta > 0.5) != printed else 1 / ratio
    constant = 6 * (margin + factor * INFLUENCE_BOUND - margin**3 / 6)
    return 1.0, 3 * sign * margin, 3 * margin**2 - 6, constant * (sign if printed else -sign)


class CubicConditions(Experiment):
    """The figures of the appendix, and what the paper says of their roots.

    Attributes
    ----------
    double_margin, single_margin : float
        Margin levels of the two figures.
    """

    name = "cubics"
    title = "The appendix's figures: the cubics whose roots minimise the conditional risk"
    double_margin = float(np.sqrt(2.0) / 2)
    single_margin = float(2 * np.sqrt(2.0) + 0.5)

    def draw(self, setting: Setting, results: Results) -> dict[str, Any]:
        """Draw the double cube, and the two single cubes as they are and as printed."""
        figure, panels = new_figure(11.0, 3.2, 1, 3)
        double, minus, plus = panels[0]
        cubics = {"right": double_cube(0.8, self.double_margin)}
        _draw_panel(double, self.double_margin, cubics, 0.8, half_width=4.0)
        double.set_title("double cube, η = 0.8")
        for panel, eta, name in ((minus, 0.8, "minus"), (plus, 0.2, "plus")):
            cubics = {
                "right": single_cube(eta, self.single_margin),
                "as printed (E1)": single_cube(eta, self.single_margin, printed=True),
            }
            _draw_panel(panel, self.single_margin, cubics, eta, half_width=1.4)
            panel.set_title(f"single cube, {name}, η = {eta:g}")
        return {self.name: figure}

    def verdicts(self, setting: Setting, results: Results) -> list[Verdict]:
        """Count the real roots of the double cube; evaluate the single cubes at the minimiser."""
        etas = np.linspace(0.51, 0.99, 49)
        counts = [int(cubic_roots(*double_cube(eta, self.double_margin)).count) for eta in etas]
        correct, printed = (self._largest_residual(printed=flag) for flag in (False, True))
        return [
            Verdict.of(
                "The double-cube polynomial has a single real root",
                "γ = √2/2, η from 0.51 to 0.99 (E2)",
                "one real root for every η",
                {"no data": (max(counts) == 1, f"{min(counts)} to {max(counts)} real roots")},
            ),
            Verdict.of(
                "The single-cube polynomials vanish at the minimiser",
                "γ = 2√2 + 1/2, constant terms as printed (E1)",
                "their value there is below 10⁻⁹",
                {
                    "no data": (
                        printed < 1e-9,
                        f"{printed:.3g}; with the terms swapped {correct:.1g}",
                    )
                },
            ),
        ]

    def _largest_residual(self, *, printed: bool) -> float:
        """Return the largest |cubic(minimiser)| of the two single cubes."""
        return max(
            abs(
                float(
                    np.polyval(
                        single_cube(eta, self.single_margin, printed=printed),
                        optimal_score(eta, self.single_margin),
                    )
                )
            )
            for eta in (0.2, 0.8)
        )


def _draw_panel(
    panel: Any, margin: float, cubics: dict[str, Cubic], eta: float, *, half_width: float
) -> None:
    """Draw cubics on ± half_width · γ, with ±γ, the truncation points and the minimiser."""
    u = np.linspace(-half_width * margin, half_width * margin, 401)
    for (name, cubic), style in zip(cubics.items(), ("-", "--"), strict=False):
        panel.plot(u, np.polyval(cubic, u), style, label=name)
    for end in (-margin, margin):
        panel.axvline(end, color="C0", linewidth=0.8)
    if margin > TRUNCATION:
        for edge in (TRUNCATION - margin, margin - TRUNCATION):
            panel.axvline(edge, color="C2", linewidth=0.8)
    panel.axvline(float(optimal_score(eta, margin)), color="C6", label="minimiser")
    panel.axhline(0.0, color="0.7", linewidth=0.8)
    largest = np.abs(np.polyval(cubics["right"], np.linspace(-margin, margin, 101))).max()
    panel.set(xlabel="u", ylim=(-2 * largest, 2 * largest))
    panel.legend(fontsize="x-small")
