"""Matplotlib figures of the experiments: creation, the test-error panel, and SVG output."""

import io
from collections.abc import Sequence
from typing import Any

from marginpursuit.experiments._fits import Fit
from marginpursuit.experiments._results import Results

__all__ = ["dataset_panels", "new_figure", "plot_test_error", "to_svg"]


def new_figure(
    width: float, height: float, n_rows: int, n_columns: int, **options: Any
) -> tuple[Any, Any]:
    """Return a Matplotlib figure and its two-dimensional array of axes.

    The figure is created without pyplot, so no window and no global state is involved.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(n_rows, n_columns, squeeze=False, **options)


def dataset_panels(datasets: Sequence[str], height: float) -> tuple[Any, Any]:
    """Return a figure with one test-error panel per data set, and the panels."""
    figure, axes = new_figure(4.0 * len(datasets), height, 1, len(datasets))
    panels = axes[0]
    for panel, data in zip(panels, datasets, strict=True):
        panel.set(title=data, xlabel="gradients", xscale="log")
    panels[0].set_ylabel("test error")
    return figure, panels


def plot_test_error(panel: Any, results: Results, fit: Fit, *style: str, **options: Any) -> None:
    """Plot the mean test error of a fit over its gradient counts."""
    panel.plot(results.gradients(fit), results.mean(fit, "test_error"), *style, **options)


def to_svg(figure: Any) -> bytes:
    """Return a figure as SVG with text as text and without random or dated parts."""
    from matplotlib import rc_context

    buffer = io.BytesIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "marginpursuit"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()
