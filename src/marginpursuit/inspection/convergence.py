"""The loss during a fit."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone

from marginpursuit._validation import FloatArray, real
from marginpursuit.inspection._display import (
    Display,
    fit_stages,
    staged_margins,
)
from marginpursuit.losses import MarginLoss


class ConvergenceDisplay(Display):
    """The mean loss of the margins against the iterations of a fit.

    Create one with `from_estimator` or `from_predictions`.

    Parameters
    ----------
    steps : ndarray of shape (n_stages,)
        Numbers of iterations.
    losses : ndarray of shape (n_stages,)
        The mean loss after each number of iterations.
    name : str, optional
        The label in the legend.

    Attributes
    ----------
    ax_ : matplotlib Axes
        The axes, after `plot`.
    figure_ : matplotlib Figure
        The figure, after `plot`.
    line_ : matplotlib Line2D
        The losses, after `plot`.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import StandardScaler
    >>> from marginpursuit import MarginPursuitClassifier
    >>> from marginpursuit.inspection import ConvergenceDisplay
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X = StandardScaler().fit_transform(X)
    >>> model = MarginPursuitClassifier(solver="steepest", scale=2.0)
    >>> display = ConvergenceDisplay.from_estimator(model, X, y, steps=[1, 10, 100])
    >>> display.losses.round(2).tolist()
    [0.28, 0.1, 0.05]
    """

    def __init__(self, steps: ArrayLike, losses: ArrayLike, *, name: str | None = None) -> None:
        self.steps: FloatArray = real("steps", steps)
        self.losses: FloatArray = real("losses", losses)
        self.name = name

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike,
        *,
        steps: Sequence[int] = (1, 2, 4, 8, 16, 32, 64, 128, 256),
        name: str | None = None,
        ax: Any = None,
    ) -> "ConvergenceDisplay":
        """Draw the loss during a fit: a copy of the estimator is fitted for each `max_iter`.

        Parameters
        ----------
        estimator : estimator
            A linear classifier with the parameter `max_iter`, fitted or not. Level, scale and
            overconfidence of the loss are those of the estimator, or 1 if it has none. If a rule
            chooses the scale, the scale of the converged fit is used.
        X : array-like of shape (n_samples, n_features)
            Samples.
        y : array-like of shape (n_samples,)
            Their classes.
        steps : sequence of int, optional
            Values of `max_iter`.
        name : str, optional
            The label in the legend; by default the name of the class. No legend if empty.
        ax : matplotlib Axes, optional
            The axes to draw on; by default those of a new figure.

        Returns
        -------
        ConvergenceDisplay
            The display, drawn.
        """
        if isinstance(getattr(estimator, "scale", None), str):  # a rule; all stages use one loss
            scale = clone(estimator).fit(X, y).scale_
            estimator = clone(estimator).set_params(scale=scale)
        models = fit_stages(estimator, X, y, "max_iter", steps)
        return cls.from_predictions(
            y,
            [model.decision_function(X) for model in models],
            classes=models[-1].classes_,
            steps=steps,
            overconfidence=getattr(estimator, "overconfidence", 1.0),
            name=type(estimator).__name__ if name is None else name,
            ax=ax,
            **cls._loss_options(models[-1]),
        )

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        scores: ArrayLike,
        *,
        classes: ArrayLike,
        steps: ArrayLike,
        level: float = 1.0,
        scale: float = 1.0,
        overconfidence: float = 1.0,
        name: str | None = None,
        ax: Any = None,
    ) -> "ConvergenceDisplay":
        """Draw the loss of given scores at several stages of a fit.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,)
            Classes of the samples.
        scores : array-like of shape (n_stages, n_samples) or (n_stages, n_samples, n_classes)
            Scores h(x) at each stage.
        classes : array-like of shape (n_classes,)
            The classes, in the order of the scores.
        steps : array-like of shape (n_stages,)
            Numbers of iterations, increasing.
        level, scale, overconfidence : float, default=1.0
            Parameters of the loss.
        name : str, optional
            The label in the legend.
        ax : matplotlib Axes, optional
            The axes to draw on; by default those of a new figure.

        Returns
        -------
        ConvergenceDisplay
            The display, drawn.
        """
        stages, margins = staged_margins(y_true, scores, classes, "steps", steps)
        loss = MarginLoss(level, scale, overconfidence)
        return cls(stages, np.mean(loss.value(margins), axis=1), name=name).plot(ax=ax)

    def _draw(self, ax: Any, **options: Any) -> None:
        (self.line_,) = ax.loglog(self.steps, self.losses, marker="o", label=self.name)
        ax.set(xlabel="iterations", ylabel="mean loss of the margins")
