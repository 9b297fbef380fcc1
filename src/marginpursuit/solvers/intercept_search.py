r"""The intercept that minimises the hinge loss for given scores.

As a function of b, with scores h, weights c and labels y = ±1, the objective

.. math::

    \sum_i c_i\, (1 - y_i (h_i + b))_+ + \frac{\lambda}{2}\, b^2

is convex and piecewise quadratic, with a breakpoint at b = y_i - h_i for each sample. For b → -∞
the derivative of the sum is minus the weight of the positive samples; at each breakpoint it
increases by c_i, whatever the sign of y_i. For λ = 0 the minimisers are therefore the quantiles of
the breakpoints at the weight of the positive samples.
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
    """Return the intercept that minimises the hinge loss of given scores, by one sort.

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
        The minimiser. Where the minimisers form an interval, its midpoint, or its finite end if the
        interval is unbounded.

    Examples
    --------
    >>> import numpy as np
    >>> from marginpursuit.solvers.intercept_search import best_intercept
    >>> best_intercept(np.array([2.0, 3.0, 5.0]), np.array([-1.0, 1.0, 1.0]), np.ones(3))
    -2.5
    """
    weighted = weights > 0
    sign, weights = sign[weighted], weights[weighted]
    breakpoints = sign - scores[weighted]
    order = np.argsort(breakpoints)
    breakpoints, cumulative = breakpoints[order], np.cumsum(weights[order])
    positive = float(weights[sign > 0].sum())
    derivative = cumulative - positive + penalty * breakpoints  # just above each breakpoint
    if penalty > 0:
        first = int(np.searchsorted(derivative, 0.0))
        # The zero of the derivative on the quadratic piece that ends at breakpoint `first`.
        root = (positive - np.append(0.0, cumulative)[first]) / penalty
        return float(np.append(breakpoints, np.inf)[first].clip(max=root))
    rounding = len(derivative) * np.finfo(np.float64).eps * cumulative[-1]
    first, last = np.searchsorted(derivative, (-rounding, rounding))
    return float(0.5 * breakpoints[first] + 0.5 * breakpoints[min(last, len(breakpoints) - 1)])


@dataclass(frozen=True, slots=True)
class InterceptSearch:
    """Sets the intercepts of several descents along the same rows to their minimisers."""

    rows: MemoryDesign | KernelRows
    weights: FloatArray
    penalty: float  # of the intercepts
    descents: Sequence[Descent]

    def best(self, coef: FloatArray) -> FloatArray:
        """Return the best intercepts for coefficients of shape (n_coefficients, n_descents)."""
        scores = self.rows.scores(coef, np.zeros(len(self.descents)))
        return np.array(
            [
                best_intercept(own, descent.sign, self.weights, self.penalty)
                for own, descent in zip(scores.T, self.descents, strict=True)
            ]
        )

    def update(self) -> None:
        """Set the intercepts to the minimisers for the current coefficients."""
        found = self.best(np.column_stack([descent.coef for descent in self.descents]))
        for descent, intercept in zip(self.descents, found.tolist(), strict=True):
            if descent.penalise_intercept:  # `square` is the squared norm of (w, b)
                before = descent.intercept
                descent.square += (intercept - before) * (intercept + before)
            descent.intercept = intercept

    def update_path(self) -> None:
        """Set the intercepts at the checkpoints to the minimisers for the coefficients there."""
        for checkpoint in range(len(self.descents[0].marks)):
            coef = np.column_stack([descent.path[checkpoint] for descent in self.descents])
            for descent, intercept in zip(self.descents, self.best(coef), strict=True):
                descent.path_intercept[checkpoint] = intercept
