"""Figure 2 of the paper: H and Ψ for five margin levels, and the inverse of Ψ.

The last panel goes to s = 10⁴ where the paper stops at 15. There Ψ⁻¹(ε/s) seems to level off at a
positive value; in fact it tends to zero like √(2ε/s)/γ (erratum E26).
"""

from typing import Any

import numpy as np

from marginpursuit._validation import FloatArray
from marginpursuit.calibration import conditional_risk, psi_inverse, psi_transform
from marginpursuit.experiments._results import Experiment, Results, Setting, Verdict, judge
from marginpursuit.losses import MarginLoss

__all__ = ["EXCESS", "EXPERIMENT", "MARGINS", "draw"]

_ROOT = np.sqrt(2.0)

#: The levels of the figure's caption: √2/2, √2 - 0.4, √2 - 0.11, √2 + 0.11, 2√2.
MARGINS = (_ROOT / 2, _ROOT - 0.4, _ROOT - 0.11, _ROOT + 0.11, 2 * _ROOT)

#: The excess surrogate risk ε of the last panel.
EXCESS = 0.5

_UNIT = np.linspace(0.0, 1.0, 501)
_LEVELS = np.linspace(0.5, 4.0, 200)
_EXCESSES = (0.01, 0.02, 0.05, 0.1)


def draw() -> Any:
    """Draw H(η), Ψ(θ), Ψ⁻¹(a) over γ and a, and Ψ⁻¹(ε/s) over s."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12.0, 3.2), layout="constrained")
    risk, transform, inverse, scaling = figure.subplots(1, 4)
    for margin in MARGINS:
        label = rf"$\gamma = {margin:.2f}$"
        risk.plot(_UNIT, conditional_risk(_UNIT, margin), label=label)
        transform.plot(_UNIT, psi_transform(_UNIT, margin), label=label)
        scaling.loglog(*_over_scales(margin))
    risk.set(title=r"$H_{1,\gamma}(\eta)$", xlabel=r"$\eta$")
    transform.set(title=r"$\Psi_{1,\gamma}(\theta)$", xlabel=r"$\theta$")
    transform.legend(fontsize="x-small")
    for excess in _EXCESSES:
        inverse.plot(_LEVELS, psi_inverse(excess, _LEVELS), label=f"a = {excess:g}")
    inverse.set(title=r"$\Psi_{1,\gamma}^{-1}(a)$", xlabel=r"$\gamma$")
    inverse.legend(fontsize="x-small")
    scales = np.geomspace(1.0, 1e4, 200)
    scaling.loglog(scales, np.sqrt(2 * EXCESS / scales), color="0.5", linestyle=":")
    scaling.axvspan(1.0, 15.0, color="0.92", zorder=0, label="range of the paper's plot")
    scaling.legend(fontsize="x-small")
    scaling.set(title=r"$\Psi_{s,\gamma}^{-1}(\varepsilon/s)$", xlabel="s")
    return figure


def _over_scales(margin: float) -> tuple[FloatArray, FloatArray]:
    """Return Ψ⁻¹(ε/s) where Ψ is as large as ε/s anywhere."""
    scales = np.geomspace(1.0, 1e4, 200)
    largest = np.array([MarginLoss(margin, scale).value(0.0) for scale in scales])
    inside = scales[largest >= EXCESS / scales]
    return inside, np.asarray(psi_inverse(EXCESS / inside, margin, inside))


def _judge(setting: Setting, results: Results) -> list[Verdict]:
    curves = np.array([psi_transform(_UNIT, margin) for margin in MARGINS])
    convex = bool(np.all(np.diff(curves, 2, axis=1) >= -1e-12))
    monotone = bool(np.all(np.diff(curves, axis=0)[:, 1:] > 0))
    inverses = np.array([psi_inverse(excess, _LEVELS) for excess in _EXCESSES])
    falling = bool(np.all(np.diff(inverses, axis=1) <= 1e-12))
    gain = inverses[:, [0, 100]] - inverses[:, [99, 199]]
    fading = bool(np.all(gain[:, 1] < gain[:, 0]))
    at_most = f"Ψ(1) from {curves[0, -1]:.3f} to {curves[-1, -1]:.3f}"
    worth = f"Ψ⁻¹(0.1) from {inverses[-1, 0]:.3f} to {inverses[-1, -1]:.3f}"
    scales, bound = _over_scales(MARGINS[0])
    limit = np.sqrt(2 * EXCESS / scales[-1]) / MARGINS[0]
    tail = f"{bound[-1]:.4f} at s = 10⁴, where √(2ε/s)/γ = {limit:.4f}"
    return [
        judge(
            "Ψ is convex, and grows with γ",
            "the five levels of the caption, s = 1",
            "on 501 points of [0, 1]",
            {"no data": (convex and monotone, at_most)},
        ),
        judge(
            "The same excess surrogate risk is worth more at a larger γ, ever less so",
            "γ in [0.5, 4], s = 1",
            "Ψ⁻¹(a) falls in γ, and by less in the upper half of the range",
            {"no data": (falling and fading, worth)},
        ),
        judge(
            "As s grows, Ψ⁻¹(ε/s) levels off at a positive value",
            "ε = 0.5; s to 10⁴ rather than 15 (E26)",
            "at s = 10⁴ more than twice √(2ε/s)/γ",
            {"no data": (bool(bound[-1] > 2 * limit), tail)},
        ),
    ]


EXPERIMENT = Experiment(
    "figure2",
    "Figure 2: H, Ψ and its inverse",
    plan=lambda setting: [],
    judge=_judge,
    draw=lambda setting, results: {"figure2": draw()},
)
