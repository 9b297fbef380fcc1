r"""The best intercept for given scores under the hinge loss, exactly.

As a function of b the objective

.. math::

    \sum_i c_i\, (1 - y_i (h_i + b))_+ + \frac{\lambda}{2}\, b^2

is convex, with a corner at b = y - h for each sample. Whatever the sign of y, the slope of the sum
rises by c there; it begins with minus the weight of the positive samples. Without a penalty the
minimisers are therefore the quantiles of the corners at that weight.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from marginpursuit._kernels import Descent
from marginpursuit._validation import FloatArray
from marginpursuit.design import MemoryDesign
from marginpursuit.solvers.kernel_descent import KernelRows

__all__ = ["InterceptSearch", "best_intercept"]


def best_intercept(
    scores: FloatArray, sign: FloatArray, weights: FloatArray, penalty: float = 0.0
) -> float:
    """Return the intercept that minimises the hinge loss of these scores; it takes one sort.

    Parameters
    ----------
    scores : ndarray of shape (n_rows,)
        Scores without intercept.
    sign : ndarray of shape (n_rows,)
        Labels, -1 or +1.
    weights : ndarray of shape (n_rows,)
        Weights >= 0, not all zero.
    penalty : float, default=0.0
        The penalty λ >= 0 of the intercept.

    Returns
    -------
    float
        The minimiser; where there is an interval of them, as there is without a penalty when all
        weights are equal, its middle, or its end if it has one only.

    Examples
    --------
    >>> import numpy as np
    >>> from marginpursuit.solvers.intercept_search import best_intercept
    >>> best_intercept(np.array([2.0, 3.0, 5.0]), np.array([-1.0, 1.0, 1.0]), np.ones(3))
    -2.5
    """
    counted = weights > 0
    sign, weights = sign[counted], weights[counted]
    corners = sign - scores[counted]
    order = np.argsort(corners)
    corners, crossed = corners[order], np.cumsum(weights[order])
    positive = float(weights[sign > 0].sum())
    slopes = crossed - positive + penalty * corners  # just after each corner
    if penalty > 0:
        first = int(np.searchsorted(slopes, 0.0))
        level = (positive - np.append(0.0, crossed)[first]) / penalty  # the root, if before it
        return float(np.append(corners, np.inf)[first].clip(max=level))
    slack = len(slopes) * np.finfo(np.float64).eps * crossed[-1]  # the rounding of the sums
    first, last = np.searchsorted(slopes, (-slack, slack))
    return float(0.5 * corners[first] + 0.5 * corners[min(last, len(corners) - 1)])


@dataclass(frozen=True, slots=True)
class InterceptSearch:
    """The search for the best intercepts of several descents along the same rows."""

    rows: MemoryDesign | KernelRows
    weights: FloatArray
    penalty: float  # of the intercepts
    descents: Sequence[Descent]

    def best(self, coef: FloatArray) -> FloatArray:
        """Return the best intercepts beside coefficients of shape (n_coefficients, n_descents)."""
        scores = self.rows.scores(coef, np.zeros(len(self.descents)))
        return np.array(
            [
                best_intercept(own, descent.sign, self.weights, self.penalty)
                for own, descent in zip(scores.T, self.descents, strict=True)
            ]
        )

    def update(self) -> None:
        """Set the intercepts to those that are best now."""
        found = self.best(np.column_stack([descent.coef for descent in self.descents]))
        for descent, intercept in zip(self.descents, found.tolist(), strict=True):
            if descent.penalise_intercept:  # it is a part of the norm
                before = descent.intercept
                descent.square += (intercept - before) * (intercept + before)
            descent.intercept = intercept

    def update_path(self) -> None:
        """Set the intercepts at the marks to those that are best there."""
        for mark in range(len(self.descents[0].marks)):
            found = self.best(np.column_stack([descent.path[mark] for descent in self.descents]))
            for descent, intercept in zip(self.descents, found, strict=True):
                descent.path_intercept[mark] = intercept
