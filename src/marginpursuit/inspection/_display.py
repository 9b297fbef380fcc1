"""The base of the displays, and the margins that they draw."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import column_or_1d

from marginpursuit._validation import FloatArray, real

__all__ = [
    "Display",
    "ScoreDisplay",
    "fit_stages",
    "margins_of",
    "require_attributes",
    "staged_margins",
]

_Display = TypeVar("_Display", bound="Display")
_ScoreDisplay = TypeVar("_ScoreDisplay", bound="ScoreDisplay")


class Display(ABC):
    """Draws on given axes or on those of a new figure, with a legend if there is a name."""

    name: str | None = None
    ax_: Any
    figure_: Any

    def plot(self: _Display, ax: Any = None) -> _Display:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            The axes to draw on; by default those of a new figure.

        Returns
        -------
        Display
            The display itself.
        """
        return self._plot(ax)

    def _plot(self: _Display, ax: Any, **options: Any) -> _Display:
        """Draw with options of the subclass, and set `ax_` and `figure_`."""
        if ax is None:
            from matplotlib.figure import Figure

            ax = Figure(layout="constrained").subplots()
        self._draw(ax, **options)
        if self.name:
            ax.legend()
        self.ax_, self.figure_ = ax, ax.figure
        return self

    @abstractmethod
    def _draw(self, ax: Any, **options: Any) -> None:
        """Draw on the axes."""

    @staticmethod
    def _loss_options(estimator: Any) -> dict[str, Any]:
        """Return margin level and scale of a fitted estimator, or 1 if it has none."""
        level, scale = getattr(estimator, "margin", 1.0), getattr(estimator, "scale_", 1.0)
        return {"level": level, "scale": scale}


class ScoreDisplay(Display):
    """A display of the scores of one fitted classifier."""

    from_predictions: ClassVar[Callable[..., Any]]

    @classmethod
    def from_estimator(
        cls: type[_ScoreDisplay],
        estimator: Any,
        X: Any,
        y: ArrayLike,
        *,
        name: str | None = None,
        **options: Any,
    ) -> _ScoreDisplay:
        """Draw the display of a fitted classifier.

        Parameters
        ----------
        estimator : estimator
            A fitted classifier with `decision_function`.
        X : array-like of shape (n_samples, n_features)
            Samples, preferably not those of the fit.
        y : array-like of shape (n_samples,)
            Their classes.
        name : str, optional
            The label in the legend; by default the name of the class. No legend if empty.
        **options : dict
            Further options of `from_predictions`, such as `ax`.

        Returns
        -------
        Display
            The display, drawn.
        """
        display: _ScoreDisplay = cls.from_predictions(
            y,
            estimator.decision_function(X),
            classes=estimator.classes_,
            name=type(estimator).__name__ if name is None else name,
            **cls._loss_options(estimator),
            **options,
        )
        return display


def margins_of(y_true: ArrayLike, scores: ArrayLike, classes: ArrayLike) -> FloatArray:
    """Return the margins y h(x), in the shape of the scores.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_labels)
        Classes of the samples, or an indicator matrix of 0 and 1.
    scores : array-like of shape (n_samples,) or (n_samples, n_classes)
        Scores h(x), as `decision_function` returns them.
    classes : array-like of shape (n_classes,)
        The classes, in the order of the scores; with an indicator matrix, the labels.

    Returns
    -------
    ndarray
        The scores of the true class or labels, and the negative scores of the others.

    Examples
    --------
    >>> from marginpursuit.inspection import margins_of
    >>> margins_of(["no", "yes"], [0.5, 2.0], ["no", "yes"])
    array([-0.5,  2. ])
    """
    values, labels, names = real("scores", scores), np.asarray(y_true), np.asarray(classes)
    if labels.ndim == 2 and labels.shape[1] == 1:  # which fit takes, too
        labels = column_or_1d(labels, warn=True)
    is_indicator = labels.ndim == 2
    unknown = np.setdiff1d(labels, [0, 1] if is_indicator else names)
    if len(unknown):
        raise ValueError(
            f"y_true has labels that are not in classes: {unknown.tolist()}. Add them to classes; "
            "an indicator matrix has values of 0 and 1."
        )
    if is_indicator:
        is_true = labels == 1
    else:
        is_true = labels == names[1] if values.ndim == 1 else labels[:, np.newaxis] == names
    if values.shape != is_true.shape:
        raise ValueError(
            f"scores has shape {values.shape}; expected {is_true.shape} for {len(names)} classes. "
            "Pass one score per sample, or one per sample and class."
        )
    return np.where(is_true, values, -values)


def require_attributes(estimator: Any, expected: str, *names: str) -> None:
    """Raise a TypeError if an estimator lacks an attribute that a display reads."""
    for name in names:
        if not hasattr(estimator, name):
            raise TypeError(
                f"estimator is of type {type(estimator).__name__}, which has no {name}; expected "
                f"{expected}"
            )


def fit_stages(
    estimator: Any, X: Any, y: ArrayLike, parameter: str, values: Sequence[Any]
) -> list[Any]:
    """Fit one copy of an estimator for each value of a parameter."""
    models = [clone(estimator).set_params(**{parameter: value}) for value in values]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # small max_iter are intended
        return [model.fit(X, y) for model in models]


def staged_margins(
    y_true: ArrayLike, scores: ArrayLike, classes: ArrayLike, name: str, stages: ArrayLike
) -> tuple[FloatArray, FloatArray]:
    """Return stages as an array, and the margins at each stage as a row.

    The stages are positive and increase; error messages call them `name`.
    """
    values, increasing = real("scores", scores), real(name, stages)
    if increasing.ndim != 1 or len(increasing) != len(values) or not len(increasing):
        raise ValueError(
            f"{name} has shape {increasing.shape}; expected ({len(values)},): one entry for each "
            "stage of scores"
        )
    if increasing[0] <= 0 or np.any(np.diff(increasing) <= 0):
        raise ValueError(
            f"{name} must be positive and increase; got {increasing.tolist()}. Sort them, with the "
            "scores."
        )
    margins = np.stack([margins_of(y_true, stage, classes).ravel() for stage in values])
    return increasing, margins
