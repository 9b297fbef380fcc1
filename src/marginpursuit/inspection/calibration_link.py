"""The link from scores to probabilities, and the observed frequencies."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from marginpursuit._validation import FloatArray, between, count, positive, real
from marginpursuit.calibration import probability
from marginpursuit.inspection._display import ScoreDisplay, margins_of, require_attributes


class CalibrationLinkDisplay(ScoreDisplay):
    """The probability that the loss assigns to a score, and the observed frequencies.

    Create one with `from_estimator`, from a classifier with `margin` and `scale_`, or with
    `from_predictions`.

    Parameters
    ----------
    scores : ndarray of shape (n_bins,)
        Mean score of each bin.
    frequencies : ndarray of shape (n_bins,)
        Frequency of the class in each bin.
    level : float
        The margin level γ of the link.
    scale : float
        The scale s of the link.
    name : str, optional
        The label in the legend.

    Attributes
    ----------
    probabilities : ndarray of shape (n_bins,)
        The probabilities that the link assigns to the scores.
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
        """Draw the link, and the frequencies of the classes at given scores.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,)
            Classes of the samples.
        scores : array-like of shape (n_samples,) or (n_samples, n_classes)
            Scores h(x), as `decision_function` returns them; with several classes, the scores of
            all one-vs-rest problems are pooled.
        classes : array-like of shape (n_classes,)
            The classes, in the order of the scores.
        level : float, default=1.0
            The margin level γ of the link.
        scale : float, default=1.0
            The scale s of the link.
        n_bins : int, default=10
            The number of bins; each has the same number of samples.
        name : str, optional
            The label in the legend.
        ax : matplotlib Axes, optional
            The axes to draw on; by default those of a new figure.

        Returns
        -------
        CalibrationLinkDisplay
            The display, drawn.
        """
        values = real("scores", scores)
        is_true = margins_of(y_true, np.ones_like(values), classes).ravel() > 0
        order = np.argsort(values, axis=None, kind="stable")
        bins = [part for part in np.array_split(order, count("n_bins", n_bins)) if len(part)]
        return cls(
            [values.ravel()[part].mean() for part in bins],
            [is_true[part].mean() for part in bins],
            level=level,
            scale=scale,
            name=name,
        ).plot(ax=ax)

    def _draw(self, ax: Any, **options: Any) -> None:
        end = 1.05 * max(self.level, float(np.abs(self.scores).max(initial=0.0)))
        score = np.linspace(-end, end, 401)
        (self.line_,) = ax.plot(score, probability(score, self.level, self.scale), label=self.name)
        colour = self.line_.get_color()
        (self.points_,) = ax.plot(self.scores, self.frequencies, "o", color=colour)
        ax.set(xlabel="score h(x)", ylabel="probability, frequency", ylim=(-0.03, 1.03))

    @staticmethod
    def _loss_options(estimator: Any) -> dict[str, Any]:
        require_attributes(
            estimator, "a fit of a margin loss, as MarginPursuitClassifier", "margin", "scale_"
        )
        return {"level": estimator.margin, "scale": estimator.scale_}
