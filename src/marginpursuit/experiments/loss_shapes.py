"""Figure 1 of the paper: ρ, its derivative ψ and its second derivative near the origin."""

from typing import Any

import numpy as np

from marginpursuit.losses import TRUNCATION, curvature, influence, rho


def draw() -> Any:
    """Draw ρ, ψ = ρ' and ρ'', with the truncation points ±√2 marked."""
    from matplotlib.figure import Figure

    u = np.linspace(-3.0, 3.0, 601)
    figure = Figure(figsize=(9.0, 2.8), layout="constrained")
    panels = figure.subplots(1, 3)
    curves = (
        (rho, r"$\rho(u)$"),
        (influence, r"$\rho'(u) = \psi(u)$"),
        (curvature, r"$\rho''(u)$"),
    )
    for axes, (function, title) in zip(panels, curves, strict=True):
        axes.plot(u, function(u))
        for end in (-TRUNCATION, TRUNCATION):
            axes.axvline(end, color="0.7", linewidth=0.8, linestyle=":")
        axes.set_title(title)
        axes.set_xlabel("u")
    return figure
