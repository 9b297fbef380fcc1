"""Figure 2 of the paper: H and Ψ for five margin levels, and the inverse of Ψ.

The last panel goes to s = 10⁴ where the paper stops at 15. There Ψ⁻¹(ε/s) seems to level off at a
positive value; in fact it tends to zero like √(2ε/s)/γ (erratum E26).
"""

from typing import Any

import numpy as np

from marginpursuit.calibration import conditional_risk, psi_inverse, psi_transform
from marginpursuit.losses import MarginLoss

_ROOT = np.sqrt(2.0)

#: The levels of the figure's caption: √2/2, √2 - 0.4, √2 - 0.11, √2 + 0.11, 2√2.
MARGINS = (_ROOT / 2, _ROOT - 0.4, _ROOT - 0.11, _ROOT + 0.11, 2 * _ROOT)

#: The excess surrogate risk ε of the last panel.
EXCESS = 0.5


def draw() -> Any:
    """Draw H(η), Ψ(θ), Ψ⁻¹(a) over γ, and Ψ⁻¹(ε/s) over s."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12.0, 3.2), layout="constrained")
    risk, transform, inverse, scaling = figure.subplots(1, 4)
    unit = np.linspace(0.0, 1.0, 501)
    for margin in MARGINS:
        label = rf"$\gamma = {margin:.2f}$"
        risk.plot(unit, conditional_risk(unit, margin), label=label)
        transform.plot(unit, psi_transform(unit, margin), label=label)
    risk.set(title=r"$H_{1,\gamma}(\eta)$", xlabel=r"$\eta$")
    transform.set(title=r"$\Psi_{1,\gamma}(\theta)$", xlabel=r"$\theta$")
    transform.legend(fontsize="x-small")

    levels = np.linspace(0.5, 4.0, 200)
    for excess in (0.01, 0.02, 0.05, 0.1):
        inverse.plot(levels, psi_inverse(excess, levels), label=f"a = {excess:g}")
    inverse.set(title=r"$\Psi_{1,\gamma}^{-1}(a)$", xlabel=r"$\gamma$")
    inverse.legend(fontsize="x-small")

    scales = np.geomspace(1.0, 1e4, 200)
    for margin in MARGINS:
        largest = np.array([MarginLoss(margin, scale).value(0.0) for scale in scales])
        inside = scales[largest >= EXCESS / scales]
        scaling.loglog(inside, psi_inverse(EXCESS / inside, margin, inside))
    scaling.loglog(scales, np.sqrt(2 * EXCESS / scales), color="0.5", linestyle=":")
    scaling.axvspan(1.0, 15.0, color="0.92", zorder=0, label="range of the paper's plot")
    scaling.legend(fontsize="x-small")
    scaling.set(title=r"$\Psi_{s,\gamma}^{-1}(\varepsilon/s)$", xlabel="s")
    return figure
