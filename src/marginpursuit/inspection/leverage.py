"""The rows that the leverage bound gives less weight."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from marginpursuit._namespaces import to_numpy
from marginpursuit._threads import Threads, usable_threads
from marginpursuit._validation import FloatArray, between, positive, real
from marginpursuit.classifiers import MarginPursuitClassifier
from marginpursuit.classifiers._shared import (
    TrainingData,
    median_distance,
    rescaled,
    robust_distances,
)
from marginpursuit.design import design_for
from marginpursuit.inspection._display import Display

__all__ = ["LeverageDisplay", "RowLeverage", "row_leverage"]


@dataclass(frozen=True, eq=False)
class RowLeverage:
    """The distance of each row from the centre, and its weight under the leverage bound.

    Attributes
    ----------
    distance : ndarray of shape (n_samples,)
        The norm of the standardised row (sparse data: of the row; with a kernel √K(x, x), or the
        distance from the mean for "rbf"), divided by its median.
    weight : ndarray of shape (n_samples,)
        The factor of the weight of the row: 1 within the bound, bound/distance beyond. With the
        kernel "rbf" rows far away have redescending weights, which are much smaller.
    bound : float or None
        The bound, in medians; None where the classifier has none.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from marginpursuit import MarginPursuitClassifier
    >>> from marginpursuit.inspection import row_leverage
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> found = row_leverage(MarginPursuitClassifier().fit(X, y), X, y)
    >>> inside = found.distance <= found.bound
    >>> bool((found.weight[inside] == 1).all()), bool((found.weight[~inside] < 1).all())
    (True, True)
    """

    distance: FloatArray
    weight: FloatArray
    bound: float | None

    def to_frame(self) -> Any:
        """Return distances and weights as a pandas frame, in the order of the rows."""
        import pandas

        return pandas.DataFrame({"distance": self.distance, "weight": self.weight})


def row_leverage(model: Any, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> RowLeverage:
    """Measure the distance of each row and its weight under the leverage bound of a classifier.

    Distances and weights are computed from the rows, in as many passes as the leverage bound takes,
    by the functions that the fit uses: a fitted classifier does not keep arrays with an entry for
    each row. The fit multiplies the weights of each class by a factor, which keeps their total
    before the redescending weights of "rbf".

    Parameters
    ----------
    model : MarginPursuitClassifier or MarginPursuitClassifierCV
        A fitted classifier.
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        The training samples.
    y : array-like of shape (n_samples,)
        Their classes.
    sample_weight : array-like of shape (n_samples,), optional
        The weights of the fit.

    Returns
    -------
    RowLeverage
        Distances and weights.

    Examples
    --------
    >>> import numpy as np
    >>> from marginpursuit import MarginPursuitClassifier
    >>> from marginpursuit.inspection import row_leverage
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 2))
    >>> y = (X[:, 0] > 0).astype(int)
    >>> X[7] *= 50
    >>> found = row_leverage(MarginPursuitClassifier().fit(X, y), X, y)
    >>> int(found.distance.argmax()), bool(found.weight[7] < 0.1)
    (7, True)
    """
    check_is_fitted(model)
    if not hasattr(model, "leverage_bound"):
        raise TypeError(
            f"model is of type {type(model).__name__}; expected a MarginPursuitClassifier or a "
            "MarginPursuitClassifierCV, which have leverage_bound"
        )
    own = clone(model)
    data = own._check_training(X, y, sample_weight).on_host()
    own._refuse_missing(data.matrix)
    with np.errstate(all="ignore"):
        try:
            distances, median, factors = _distances(model, data)
        except FloatingPointError:  # squares over- or underflow, as in a fit
            matrix, _ = rescaled(data.matrix, by_one_factor=data.is_sparse)
            distances, median, factors = _distances(model, replace(data, matrix=matrix))
    bound = model.leverage_bound
    limit = np.inf if bound is None else float(bound) * median
    weights = np.divide(limit, distances, out=np.ones_like(distances), where=distances > limit)
    return RowLeverage(distances / median, weights * factors, bound)


def _distances(model: Any, data: TrainingData) -> tuple[FloatArray, float, FloatArray | float]:
    """Return the distances that `leverage_bound` refers to, their median, and other factors."""
    if model.kernel != "linear":
        names = ("kernel", "degree", "coef0", "leverage_bound")
        kernel = {name: getattr(model, name) for name in names}
        expansion = MarginPursuitClassifier(gamma=getattr(model, "gamma_", "scale"), **kernel)
        expansion._set_kernel(data)
        distances = expansion._leverage_distances(data)
        factors = expansion._redescending_factors(data, distances)
        return distances, median_distance(distances, data), 1.0 if factors is None else factors
    threads = Threads(usable_threads(model.n_threads))
    with threads, design_for(data.matrix, threads) as design:
        placed = replace(data, weights=design.to_device(data.weights))
        found = robust_distances(
            design, placed, model.leverage_bound, centred=bool(model.fit_intercept)
        )
        return to_numpy(found.values), found.median, 1.0


class LeverageDisplay(Display):
    """The weights of the rows under the leverage bound, against their distances.

    Create one with `from_estimator`.

    Parameters
    ----------
    distance : ndarray of shape (n_samples,)
        Distances from the centre, in medians.
    weight : ndarray of shape (n_samples,)
        Factors of the weights, in [0, 1].
    bound : float, optional
        The leverage bound, marked by a dashed line.
    name : str, optional
        The label in the legend.

    Attributes
    ----------
    ax_ : matplotlib Axes
        The axes, after `plot`.
    figure_ : matplotlib Figure
        The figure, after `plot`.
    points_ : matplotlib Line2D
        The rows, after `plot`.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from marginpursuit import MarginPursuitClassifier
    >>> from marginpursuit.inspection import LeverageDisplay
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = MarginPursuitClassifier().fit(X, y)
    >>> display = LeverageDisplay.from_estimator(model, X, y)
    >>> display.weight.shape
    (569,)
    """

    def __init__(
        self,
        distance: ArrayLike,
        weight: ArrayLike,
        *,
        bound: float | None = None,
        name: str | None = None,
    ) -> None:
        self.distance: FloatArray = real("distance", distance).ravel()
        self.weight: FloatArray = between("weight", weight, 0.0, 1.0).ravel()
        if self.distance.shape != self.weight.shape:
            raise ValueError(
                f"weight has {len(self.weight)} entries; expected {len(self.distance)}, one for "
                "each distance"
            )
        self.bound = None if bound is None else float(positive("bound", bound))
        self.name = name

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike,
        *,
        sample_weight: ArrayLike | None = None,
        name: str | None = None,
        ax: Any = None,
    ) -> "LeverageDisplay":
        """Draw the training rows of a fitted classifier.

        Parameters
        ----------
        estimator : MarginPursuitClassifier or MarginPursuitClassifierCV
            The fitted classifier.
        X : array-like of shape (n_samples, n_features)
            The training samples.
        y : array-like of shape (n_samples,)
            Their classes.
        sample_weight : array-like of shape (n_samples,), optional
            The weights of the fit.
        name : str, optional
            The label in the legend; by default the name of the class. No legend if empty.
        ax : matplotlib Axes, optional
            The axes to draw on; by default those of a new figure.

        Returns
        -------
        LeverageDisplay
            The display, drawn.
        """
        found = row_leverage(estimator, X, y, sample_weight)
        label = type(estimator).__name__ if name is None else name
        return cls(found.distance, found.weight, bound=found.bound, name=label).plot(ax=ax)

    def _draw(self, ax: Any, **options: Any) -> None:
        is_apart = self.distance > 0  # the axis is logarithmic
        (self.points_,) = ax.semilogx(
            self.distance[is_apart], self.weight[is_apart], "o", alpha=0.4, label=self.name
        )
        if self.bound is not None:
            ax.axvline(self.bound, color="0.3", linestyle="--", linewidth=1.0)
        ax.set(xlabel="distance of the row, in medians", ylabel="weight", ylim=(-0.03, 1.05))
