"""The distribution of the margins y h(x), the thing that margin pursuit is about."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from marginpursuit._validation import FloatArray, positive, real
from marginpursuit.inspection._common import axes, margins_of
from marginpursuit.location import catoni_location


class MarginDistributionDisplay:
    """Histogram of margins y h(x), with the level they were to reach and their location.

    Use `from_estimator` or `from_predictions` to make one.

    Parameters
    ----------
    margins : ndarray of shape (n_margins,)
        Margins; with several classes, those of every class against the rest.
    level : float
        The margin level γ, marked in the picture.
    scale : float
        The scale at which the location of the margins is estimated.
    name : str, optional
        What the legend says.

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

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from marginpursuit import MarginPursuitClassifier
    >>> from marginpursuit.inspection import MarginDistributionDisplay
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = MarginPursuitClassifier().fit(X, y)
    >>> display = MarginDistributionDisplay.from_estimator(model, X, y)
    >>> round(display.location, 2)
    0.79
    """

    def __init__(
        self, margins: ArrayLike, *, level: float, scale: float, name: str | None = None
    ) -> None:
        self.margins: FloatArray = real("margins", margins).ravel()
        self.level = float(positive("level", level))
        self.scale = float(positive("scale", scale))
        self.name = name
        self.location = float(catoni_location(self.margins, self.scale))

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: ArrayLike, *, name: str | None = None, ax: Any = None
    ) -> "MarginDistributionDisplay":
        """Draw the margins of a fitted classifier.

        Parameters
        ----------
        estimator : estimator
            A fitted classifier with `decision_function`. Level and scale are taken from it where it
            has them, and are 1 otherwise.
        X : array-like of shape (n_samples, n_features)
            Samples.
        y : array-like of shape (n_samples,)
            Their classes.
        name : str, optional
            What the legend says; by default the name of the class. No legend if empty.
        ax : matplotlib Axes, optional
            Where to draw.

        Returns
        -------
        MarginDistributionDisplay
            The display, drawn.
        """
        return cls.from_predictions(
            y,
            estimator.decision_function(X),
            classes=estimator.classes_,
            level=getattr(estimator, "margin", 1.0),
            scale=getattr(estimator, "scale_", 1.0),
            name=type(estimator).__name__ if name is None else name,
            ax=ax,
        )

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
            What the legend says.
        ax : matplotlib Axes, optional
            Where to draw.

        Returns
        -------
        MarginDistributionDisplay
            The display, drawn.
        """
        margins = margins_of(y_true, scores, classes)
        return cls(margins, level=level, scale=scale, name=name).plot(ax=ax)

    def plot(self, ax: Any = None, *, bins: Any = "auto") -> "MarginDistributionDisplay":
        """Draw the histogram.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; by default a new figure.
        bins : int, sequence or str, default="auto"
            Bins, as NumPy's histogram takes them.

        Returns
        -------
        MarginDistributionDisplay
            The display itself.
        """
        ax = axes(ax)
        bins = (
            min(200, len(np.histogram_bin_edges(self.margins, bins)) - 1)
            if bins == "auto"
            else bins
        )
        density, edges = np.histogram(self.margins, bins, density=True)
        self.bars_ = ax.stairs(density, edges, fill=True, alpha=0.5, label=self.name)
        colour = self.bars_.get_facecolor()
        ax.axvline(self.location, color=colour, linewidth=1.5, alpha=1.0)
        ax.axvline(self.level, color="0.3", linestyle="--", linewidth=1.0)
        ax.axvline(0.0, color="0.3", linewidth=1.0)
        ax.set(xlabel="margin y h(x)", ylabel="density")
        if self.name:
            ax.legend()
        self.ax_, self.figure_ = ax, ax.figure
        return self
