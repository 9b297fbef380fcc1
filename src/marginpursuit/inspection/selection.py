"""The cross-validated error of the candidates of a search."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from marginpursuit._validation import FloatArray, real
from marginpursuit.inspection._display import Display, require_attributes


class SelectionDisplay(Display):
    """Cross-validated error by scale and overconfidence, at the best penalty of each pair.

    Create one with `from_estimator` from a fitted
    :class:`~marginpursuit.MarginPursuitClassifierCV`, or with `from_predictions` from candidates
    and their scores.

    Parameters
    ----------
    scales : ndarray of shape (n_scales,)
        Scales of the grid, increasing.
    overconfidences : ndarray of shape (n_overconfidences,)
        Overconfidences of the grid, increasing.
    errors : ndarray of shape (n_overconfidences, n_scales)
        One minus the mean score, at the best penalty; NaN for a pair without a candidate.
    alphas : ndarray of shape (n_overconfidences, n_scales)
        The best penalties.
    chosen : tuple of (float, float), optional
        Scale and overconfidence of the chosen candidate, marked by a square.

    Attributes
    ----------
    ax_ : matplotlib Axes
        The axes, after `plot`.
    figure_ : matplotlib Figure
        The figure, after `plot`.
    image_ : matplotlib AxesImage
        The coloured cells, after `plot`.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from marginpursuit import MarginPursuitClassifierCV
    >>> from marginpursuit.inspection import SelectionDisplay
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = MarginPursuitClassifierCV(alphas=[1e-4]).fit(X, y)
    >>> SelectionDisplay.from_estimator(model).errors.shape
    (2, 4)
    """

    def __init__(
        self,
        scales: ArrayLike,
        overconfidences: ArrayLike,
        errors: ArrayLike,
        alphas: ArrayLike,
        *,
        chosen: tuple[float, float] | None = None,
    ) -> None:
        self.scales: FloatArray = real("scales", scales)
        self.overconfidences: FloatArray = real("overconfidences", overconfidences)
        self.errors = np.asarray(errors, dtype=np.float64)
        self.alphas = np.asarray(alphas, dtype=np.float64)
        self.chosen = chosen
        shape = len(self.overconfidences), len(self.scales)
        if self.errors.shape != shape or self.alphas.shape != shape:
            raise ValueError(
                f"errors has shape {self.errors.shape} and alphas {self.alphas.shape}; they must "
                f"have shape {shape}: overconfidences by scales"
            )

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> "SelectionDisplay":
        """Draw the errors of a fitted `MarginPursuitClassifierCV`.

        Parameters
        ----------
        estimator : MarginPursuitClassifierCV
            The fitted estimator.
        ax : matplotlib Axes, optional
            The axes to draw on; by default those of a new figure.

        Returns
        -------
        SelectionDisplay
            The display, drawn.
        """
        require_attributes(
            estimator, "a fitted MarginPursuitClassifierCV", "cv_results_", "best_params_"
        )
        results, best = estimator.cv_results_, estimator.best_params_
        return cls.from_predictions(
            results["params"],
            results["mean_test_score"],
            chosen=(best["scale"], best["overconfidence"]),
            ax=ax,
        )

    @classmethod
    def from_predictions(
        cls,
        params: list[dict[str, float]],
        scores: ArrayLike,
        *,
        chosen: tuple[float, float] | None = None,
        ax: Any = None,
    ) -> "SelectionDisplay":
        """Draw the errors of given scores: one minus the score.

        Parameters
        ----------
        params : list of dict
            Candidates with `alpha`, `overconfidence` and `scale`, as in `cv_results_`.
        scores : array-like of shape (n_candidates,)
            The mean score of each candidate.
        chosen : tuple of (float, float), optional
            Scale and overconfidence of the chosen candidate.
        ax : matplotlib Axes, optional
            The axes to draw on; by default those of a new figure.

        Returns
        -------
        SelectionDisplay
            The display, drawn.
        """
        values = real("scores", scores)
        if len(values) != len(params) or not params:
            raise ValueError(
                f"scores must have {len(params)} entries, one per candidate; got {len(values)}"
            )
        scales = sorted({candidate["scale"] for candidate in params})
        overconfidences = sorted({candidate["overconfidence"] for candidate in params})
        errors = np.full((len(overconfidences), len(scales)), np.nan)
        alphas = np.full_like(errors, np.nan)
        for candidate, score in zip(params, values, strict=True):
            row = overconfidences.index(candidate["overconfidence"])
            cell = row, scales.index(candidate["scale"])
            if not errors[cell] <= 1.0 - score:
                errors[cell], alphas[cell] = 1.0 - score, candidate["alpha"]
        return cls(scales, overconfidences, errors, alphas, chosen=chosen).plot(ax=ax)

    def _draw(self, ax: Any, **options: Any) -> None:
        """Draw one cell per pair, with its error in per cent and its penalty."""
        self.image_ = ax.imshow(self.errors, cmap="viridis_r", aspect="auto", origin="lower")
        middle = 0.5 * (np.nanmin(self.errors) + np.nanmax(self.errors))
        for (row, column), error in np.ndenumerate(self.errors):
            if np.isfinite(error):
                text = f"{100 * error:.2f}\nα {self.alphas[row, column]:.0e}"
                colour = "white" if error > middle else "black"
                ax.text(column, row, text, ha="center", va="center", color=colour, fontsize="small")
        if self.chosen is not None:
            column = int(np.argmin(np.abs(self.scales - self.chosen[0])))
            row = int(np.argmin(np.abs(self.overconfidences - self.chosen[1])))
            ax.plot(column, row, "s", markersize=44, fillstyle="none", color="crimson")
        ax.set_xticks(range(len(self.scales)), [f"{scale:g}" for scale in self.scales])
        ax.set_yticks(range(len(self.overconfidences)), [f"{t:g}" for t in self.overconfidences])
        ax.set(xlabel="scale s", ylabel="overconfidence τ")
        ax.figure.colorbar(self.image_, ax=ax, label="1 - cross-validated score")
