"""The figures of the appendix: the cubics whose roots minimise the conditional risk.

As drawn in the paper they carry two slips. The double-cube polynomial has three real roots rather
than one (E2); the constant terms of the two single-cube polynomials are swapped (E1). Drawn here is
what is right, with the printed single cubes beside it.
"""

from typing import Any, TypeAlias

import numpy as np

from marginpursuit.calibration import cubic_roots, optimal_score
from marginpursuit.experiments._results import Experiment, Results, Setting, Verdict, judge
from marginpursuit.losses import INFLUENCE_BOUND, TRUNCATION

__all__ = ["EXPERIMENT", "double_cube", "draw", "single_cube"]

Cubic: TypeAlias = tuple[float, float, float, float]

#: The levels of the two figures, and probabilities either side of one half.
DOUBLE_MARGIN = np.sqrt(2.0) / 2
SINGLE_MARGIN = 2 * np.sqrt(2.0) + 0.5
ETAS = (0.2, 0.8)


def double_cube(eta: float, margin: float) -> Cubic:
    """Return the coefficients of the double-cube condition, from the highest power down."""
    ratio = (eta - 1) / eta
    return (
        1 - ratio,
        -3 * margin * (1 + ratio),
        3 * (1 - ratio) * (margin**2 - 2),
        (1 + ratio) * (6 * margin - margin**3),
    )


def single_cube(eta: float, margin: float, *, printed: bool = False) -> Cubic:
    """Return the coefficients of the single-cube condition: *minus* above η = 1/2, *plus* below.

    `printed` gives the constant term as the paper has it (E1).
    """
    ratio = (eta - 1) / eta
    sign = -1.0 if eta > 0.5 else 1.0
    force = ratio if (eta > 0.5) != printed else 1 / ratio
    constant = 6 * (margin + force * INFLUENCE_BOUND - margin**3 / 6)
    return 1.0, 3 * sign * margin, 3 * margin**2 - 6, constant * (sign if printed else -sign)


def draw() -> Any:
    """Draw the double cube, and the two single cubes as they are and as printed."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.0, 3.2), layout="constrained")
    double, minus, plus = figure.subplots(1, 3)
    _panel(double, DOUBLE_MARGIN, {"right": double_cube(0.8, DOUBLE_MARGIN)}, 0.8, reach=4.0)
    double.set_title("double cube, η = 0.8")
    for panel, eta, name in ((minus, 0.8, "minus"), (plus, 0.2, "plus")):
        cubics = {
            "right": single_cube(eta, SINGLE_MARGIN),
            "as printed (E1)": single_cube(eta, SINGLE_MARGIN, printed=True),
        }
        _panel(panel, SINGLE_MARGIN, cubics, eta, reach=1.4)
        panel.set_title(f"single cube, {name}, η = {eta:g}")
    return figure


def _panel(panel: Any, margin: float, cubics: dict[str, Cubic], eta: float, reach: float) -> None:
    u = np.linspace(-reach * margin, reach * margin, 401)
    for (name, cubic), style in zip(cubics.items(), ("-", "--"), strict=False):
        panel.plot(u, np.polyval(cubic, u), style, label=name)
    for end in (-margin, margin):
        panel.axvline(end, color="C0", linewidth=0.8)
    if margin > TRUNCATION:
        for edge in (-abs(TRUNCATION - margin), abs(TRUNCATION - margin)):
            panel.axvline(edge, color="C2", linewidth=0.8)
    panel.axvline(float(optimal_score(eta, margin)), color="C6", label="minimiser")
    panel.axhline(0.0, color="0.7", linewidth=0.8)
    values = np.abs(np.polyval(cubics["right"], np.linspace(-margin, margin, 101)))
    panel.set(xlabel="u", ylim=(-2 * values.max(), 2 * values.max()))
    panel.legend(fontsize="x-small")


def _judge(setting: Setting, results: Results) -> list[Verdict]:
    etas = np.linspace(0.51, 0.99, 49)
    counts = [int(cubic_roots(*double_cube(eta, DOUBLE_MARGIN)).count) for eta in etas]
    ours, printed = (
        max(_residual(eta, single_cube(eta, SINGLE_MARGIN, printed=flag)) for eta in ETAS)
        for flag in (False, True)
    )
    return [
        judge(
            "The double-cube polynomial has a single real root",
            "γ = √2/2, η from 0.51 to 0.99 (E2)",
            "one real root for every η",
            {"no data": (max(counts) == 1, f"{min(counts)} to {max(counts)} real roots")},
        ),
        judge(
            "The single-cube polynomials vanish at the minimiser",
            "γ = 2√2 + 1/2, constant terms as printed (E1)",
            "their value there is below 10⁻⁹",
            {"no data": (printed < 1e-9, f"{printed:.3g}; with the terms swapped {ours:.1g}")},
        ),
    ]


def _residual(eta: float, cubic: Cubic) -> float:
    return abs(float(np.polyval(cubic, optimal_score(eta, SINGLE_MARGIN))))


EXPERIMENT = Experiment(
    "cubics",
    "The appendix's figures: the cubics whose roots minimise the conditional risk",
    plan=lambda setting: [],
    judge=_judge,
    draw=lambda setting, results: {"cubics": draw()},
)
