"""The distribution of the margins y h(x)."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from marginpursuit._validation import FloatArray, positive, real
from marginpursuit.inspection._display import ScoreDisplay, margins_of
from marginpursuit.location import catoni_location


class MarginDistributionDisplay(ScoreDisplay):
    """Histogram of the margins y h(x), with the margin level and the location of the margins.

    Create one with `from_estimator` or `from_predictions`. Level and scale are those of the
    estimator, or 1 if it has none.

    Parameters
    ----------
    margins : ndarray of shape (n_margins,)
        Margins; with several classes, those of all one-vs-rest problems.
    level : float
        The margin level γ, marked by a dashed line.
    scale : float
        The scale at which the location of the margins is estimated.
    name : str, optional
        The label in the legend.
    marked : ndarray of shape (n_marked,), optional
        Margins that are marked at the axis, such as those of suspicious rows.

    Attributes
    ----------
    location : float
        Catoni's estimate of the location of the margins.
    ax_ : matplotlib Axes
        The axes, after `plot`.
    figure_ : matplotlib Figure
        The figure, after `plot`.
    bars_ : matplotlib StepPatch
        The histogram, after `plot`.
    marks_ : matplotlib Line2D or None
        The marked margins, after `plot`.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from marginpursuit import MarginPursuitClassifier
    >>> from marginpursuit.inspection import MarginDistributionDisplay
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = MarginPursuitClassifier.as_published().fit(X, y)
    >>> display = MarginDistributionDisplay.from_estimator(model, X, y)
    >>> round(display.location, 2)
    0.79
    """

    def __init__(
        self,
        margins: ArrayLike,
        *,
        level: float,
        scale: float,
        name: str | None = None,
        marked: ArrayLike | None = None,
    ) -> None:
        self.margins: FloatArray = real("margins", margins).ravel()
        self.level = float(positive("level", level))
        self.scale = float(positive("scale", scale))
        self.name = name
        self.marked: FloatArray | None = None if marked is None else real("marked", marked).ravel()
        self.location = float(catoni_location(self.margins, self.scale))

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        scores: ArrayLike,
        *,
        classes: ArrayLike,
        level: float = 1.0,
        scale: float = 1.0,
        name: str | None = None,
        marked: ArrayLike | None = None,
        ax: Any = None,
    ) -> "MarginDistributionDisplay":
        """Draw the margins of given scores.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,)
            Classes of the samples.
        scores : array-like of shape (n_samples,) or (n_samples, n_classes)
            Scores h(x), as `decision_function` returns them.
        classes : array-like of shape (n_classes,)
            The classes, in the order of the scores.
        level : float, default=1.0
            The margin level γ to mark.
        scale : float, default=1.0
            The scale of the location estimate.
        name : str, optional
            The label in the legend.
        marked : array-like of bool of shape (n_samples,), optional
            The rows whose margins are marked, such as `is_label_issue` of
            :func:`~marginpursuit.inspection.label_issues`. With several classes it is the margin of
            the class of the row.
        ax : matplotlib Axes, optional
            The axes to draw on; by default those of a new figure.

        Returns
        -------
        MarginDistributionDisplay
            The display, drawn.
        """
        margins = margins_of(y_true, scores, classes)
        of_marked = None if marked is None else _marked_margins(margins, y_true, classes, marked)
        return cls(margins, level=level, scale=scale, name=name, marked=of_marked).plot(ax=ax)

    def plot(self, ax: Any = None, *, bins: Any = "auto") -> "MarginDistributionDisplay":
        """Draw the histogram.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            The axes to draw on; by default those of a new figure.
        bins : int, sequence or str, default="auto"
            Bins, as for `numpy.histogram`; at most 200 with "auto".

        Returns
        -------
        MarginDistributionDisplay
            The display itself.
        """
        return self._plot(ax, bins=bins)

    def _draw(self, ax: Any, *, bins: Any = "auto", **options: Any) -> None:
        if isinstance(bins, str) and bins == "auto":
            bins = min(200, len(np.histogram_bin_edges(self.margins, bins)) - 1)
        density, edges = np.histogram(self.margins, bins, density=True)
        self.bars_ = ax.stairs(density, edges, fill=True, alpha=0.5, label=self.name)
        colour = self.bars_.get_facecolor()
        ax.axvline(self.location, color=colour, linewidth=1.5, alpha=1.0)
        ax.axvline(self.level, color="0.3", linestyle="--", linewidth=1.0)
        ax.axvline(0.0, color="0.3", linewidth=1.0)
        self.marks_ = None
        if self.marked is not None:
            bottom = np.zeros(len(self.marked))
            label = f"{len(self.marked)} marked rows"
            (self.marks_,) = ax.plot(self.marked, bottom, "|", color="C3", label=label)
        ax.set(xlabel="margin y h(x)", ylabel="density")


def _marked_margins(
    margins: FloatArray, y_true: ArrayLike, classes: ArrayLike, marked: ArrayLike
) -> FloatArray:
    """Return the margins of marked rows, each that of the class of the row."""
    labels, is_marked = np.asarray(y_true), np.asarray(marked)
    if is_marked.dtype != bool or is_marked.shape != labels.shape:
        raise ValueError(
            f"marked has dtype {is_marked.dtype} and shape {is_marked.shape}; expected bool and "
            f"{labels.shape}: whether each row is marked"
        )
    if margins.ndim == 2:
        is_own = labels[:, np.newaxis] == np.asarray(classes)
        margins = np.sum(margins, axis=1, where=is_own)
    return np.asarray(margins[is_marked])
