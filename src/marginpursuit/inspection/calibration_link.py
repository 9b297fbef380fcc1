"""The link from scores to probabilities, and whether what happened agrees with it."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from marginpursuit._validation import FloatArray, between, count, positive, real
from marginpursuit.calibration import probability
from marginpursuit.inspection._common import axes, margins_of


class CalibrationLinkDisplay:
    """The probability that the loss assigns to a score, with the frequencies that were observed.

    Use `from_estimator` or `from_predictions` to make one.

    Parameters
    ----------
    scores : ndarray of shape (n_bins,)
        Mean score of each bin.
    frequencies : ndarray of shape (n_bins,)
        How often the class was the right one, in each bin.
    level : float
        The margin level γ of the link.
    scale : float
        The scale s of the link.
    name : str, optional
        What the legend says.

    Attributes
    ----------
    probabilities : ndarray of shape (n_bins,)
        What the link makes of the scores.
    ax_ : matplotlib Axes
        The axes, after `plot`.
    figure_ : matplotlib Figure
        The figure, after `plot`.
    line_ : matplotlib Line2D
        The link, after `plot`.
    points_ : matplotlib Line2D
        The frequencies, after `plot`.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from marginpursuit import MarginPursuitClassifier
    >>> from marginpursuit.inspection import CalibrationLinkDisplay
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = MarginPursuitClassifier().fit(X, y)
    >>> display = CalibrationLinkDisplay.from_estimator(model, X, y, n_bins=5)
    >>> display.frequencies.round(1).tolist()
    [0.0, 0.2, 1.0, 1.0, 1.0]
    """

    def __init__(
        self,
        scores: ArrayLike,
        frequencies: ArrayLike,
        *,
        level: float,
        scale: float,
        name: str | None = None,
    ) -> None:
        self.scores: FloatArray = real("scores", scores).ravel()
        self.frequencies: FloatArray = between("frequencies", frequencies, 0.0, 1.0).ravel()
        self.level = float(positive("level", level))
        self.scale = float(positive("scale", scale))
        self.name = name
        self.probabilities: FloatArray = probability(self.scores, self.level, self.scale)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike,
        *,
        n_bins: int = 10,
        name: str | None = None,
        ax: Any = None,
    ) -> "CalibrationLinkDisplay":
        """Draw the link of a fitted classifier that has one.

        Parameters
        ----------
        estimator : estimator
            A fitted classifier with `margin` and `scale_`.
        X : array-like of shape (n_samples, n_features)
            Samples, best such as were not used for the fit.
        y : array-like of shape (n_samples,)
            Their classes.
        n_bins : int, default=10
            The number of bins, with equally many samples each.
        name : str, optional
            What the legend says; by default the name of the class. No legend if empty.
        ax : matplotlib Axes, optional
            Where to draw.

        Returns
        -------
        CalibrationLinkDisplay
            The display, drawn.
        """
        return cls.from_predictions(
            y,
            estimator.decision_function(X),
            classes=estimator.classes_,
            level=estimator.margin,
            scale=estimator.scale_,
            n_bins=n_bins,
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
        n_bins: int = 10,
        name: str | None = None,
        ax: Any = None,
    ) -> "CalibrationLinkDisplay":
        """Draw the link, and the frequencies that given scores had.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,)
            Classes of the samples.
        scores : array-like of shape (n_samples,) or (n_samples, n_classes)
            Scores h(x), as `decision_function` returns them; with several classes, those of every
            class against the rest are taken together.
        classes : array-like of shape (n_classes,)
            The classes, in the order of the scores.
        level : float, default=1.0
            The margin level γ of the link.
        scale : float, default=1.0
            The scale s of the link.
        n_bins : int, default=10
            The number of bins, with equally many samples each.
        name : str, optional
            What the legend says.
        ax : matplotlib Axes, optional
            Where to draw.

        Returns
        -------
        CalibrationLinkDisplay
            The display, drawn.
        """
        values = real("scores", scores)
        happened = margins_of(y_true, np.ones_like(values), classes).ravel() > 0
        order = np.argsort(values, axis=None, kind="stable")
        bins = [part for part in np.array_split(order, count("n_bins", n_bins)) if len(part)]
        return cls(
            [values.ravel()[part].mean() for part in bins],
            [happened[part].mean() for part in bins],
            level=level,
            scale=scale,
            name=name,
        ).plot(ax=ax)

    def plot(self, ax: Any = None) -> "CalibrationLinkDisplay":
        """Draw the link and the frequencies.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; by default a new figure.

        Returns
        -------
        CalibrationLinkDisplay
            The display itself.
        """
        ax = axes(ax)
        end = 1.05 * max(self.level, float(np.abs(self.scores).max(initial=0.0)))
        score = np.linspace(-end, end, 401)
        (self.line_,) = ax.plot(score, probability(score, self.level, self.scale), label=self.name)
        colour = self.line_.get_color()
        (self.points_,) = ax.plot(self.scores, self.frequencies, "o", color=colour)
        ax.set(xlabel="score h(x)", ylabel="probability, frequency", ylim=(-0.03, 1.03))
        if self.name:
            ax.legend()
        self.ax_, self.figure_ = ax, ax.figure
        return self
