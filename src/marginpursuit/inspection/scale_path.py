"""The distribution of the margins as a function of the scale."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from marginpursuit._validation import FloatArray, positive, real
from marginpursuit.inspection._display import (
    Display,
    fit_stages,
    require_attributes,
    staged_margins,
)
from marginpursuit.location import catoni_location


class ScalePathDisplay(Display):
    """Quantiles and location of the margins against the scale of the loss.

    Create one with `from_estimator` or `from_predictions`.

    Parameters
    ----------
    scales : ndarray of shape (n_scales,)
        Scales.
    margins : ndarray of shape (n_scales, n_margins)
        The margins of the fit at each scale.
    level : float
        The margin level γ, marked by a dashed line.
    chosen : float, optional
        The chosen scale, marked by a dotted line.

    Attributes
    ----------
    quantiles : ndarray of shape (5, n_scales)
        The 5 %, 25 %, 50 %, 75 % and 95 % quantiles of the margins.
    locations : ndarray of shape (n_scales,)
        Catoni's estimate of the location of the margins, at the scale of each fit.
    errors : ndarray of shape (n_scales,)
        The fraction of margins that are not positive; with two classes, the error.
    ax_ : matplotlib Axes
        The axes, after `plot`.
    figure_ : matplotlib Figure
        The figure, after `plot`.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from marginpursuit import MarginPursuitClassifier
    >>> from marginpursuit.inspection import ScalePathDisplay
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> display = ScalePathDisplay.from_estimator(
    ...     MarginPursuitClassifier.as_published(), X, y, scales=[0.1, 1.0, 10.0]
    ... )
    >>> display.locations.round(2).tolist()
    [0.87, 0.8, 0.79]
    """

    def __init__(
        self,
        scales: ArrayLike,
        margins: ArrayLike,
        *,
        level: float,
        chosen: float | None = None,
    ) -> None:
        self.scales: FloatArray = positive("scales", scales)
        values = real("margins", margins)
        self.level = float(positive("level", level))
        self.chosen = chosen
        self.quantiles: FloatArray = np.quantile(values, (0.05, 0.25, 0.5, 0.75, 0.95), axis=1)
        self.locations: FloatArray = np.array(
            [catoni_location(row, scale) for row, scale in zip(values, self.scales, strict=True)]
        )
        self.errors: FloatArray = np.mean(values <= 0, axis=1)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike,
        *,
        scales: Sequence[float] | None = None,
        ax: Any = None,
    ) -> "ScalePathDisplay":
        """Draw the margins of an estimator; a copy of it is fitted at each scale.

        Parameters
        ----------
        estimator : estimator
            A linear classifier with the parameters `margin` and `scale`, fitted or not. The scale
            of its own fit is marked.
        X : array-like of shape (n_samples, n_features)
            Samples.
        y : array-like of shape (n_samples,)
            Their classes.
        scales : sequence of float, optional
            The scales; by default 13 from 0.1 to 100 times the margin level.
        ax : matplotlib Axes, optional
            The axes to draw on; by default those of a new figure.

        Returns
        -------
        ScalePathDisplay
            The display, drawn.
        """
        require_attributes(
            estimator, "a classifier with both, as MarginPursuitClassifier", "margin", "scale"
        )
        if scales is None:
            scales = (estimator.margin * np.geomspace(0.1, 100.0, 13)).tolist()
        *models, own = fit_stages(estimator, X, y, "scale", [*scales, estimator.scale])
        return cls.from_predictions(
            y,
            [model.decision_function(X) for model in models],
            classes=own.classes_,
            scales=scales,
            level=estimator.margin,
            chosen=own.scale_,
            ax=ax,
        )

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        scores: ArrayLike,
        *,
        classes: ArrayLike,
        scales: ArrayLike,
        level: float = 1.0,
        chosen: float | None = None,
        ax: Any = None,
    ) -> "ScalePathDisplay":
        """Draw the margins of given scores, of one fit per scale.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,)
            Classes of the samples.
        scores : array-like of shape (n_scales, n_samples) or (n_scales, n_samples, n_classes)
            Scores h(x) of the fit at each scale.
        classes : array-like of shape (n_classes,)
            The classes, in the order of the scores.
        scales : array-like of shape (n_scales,)
            The scales, increasing.
        level : float, default=1.0
            The margin level γ to mark.
        chosen : float, optional
            A scale to mark.
        ax : matplotlib Axes, optional
            The axes to draw on; by default those of a new figure.

        Returns
        -------
        ScalePathDisplay
            The display, drawn.
        """
        stages, margins = staged_margins(y_true, scores, classes, "scales", scales)
        return cls(stages, margins, level=level, chosen=chosen).plot(ax=ax)

    def _draw(self, ax: Any, **options: Any) -> None:
        least, low, median, high, most = self.quantiles
        ax.fill_between(self.scales, least, most, alpha=0.2, color="C0", label="5 % to 95 %")
        ax.fill_between(self.scales, low, high, alpha=0.35, color="C0", label="25 % to 75 %")
        ax.semilogx(self.scales, median, color="C0", label="median")
        ax.semilogx(self.scales, self.locations, color="C1", label="location")
        ax.axhline(self.level, color="0.3", linestyle="--", linewidth=1.0)
        ax.axhline(0.0, color="0.3", linewidth=1.0)
        if self.chosen is not None:
            ax.axvline(self.chosen, color="C3", linestyle=":", label="chosen scale")
        ax.set(xlabel="scale s", ylabel="margin y h(x)")
        ax.legend()
