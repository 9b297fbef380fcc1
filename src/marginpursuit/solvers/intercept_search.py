r"""The best intercept under the hinge loss: for given scores, and beside the best coefficients.

For given scores h it is found exactly. As a function of b the objective

.. math::

    \sum_i c_i\, (1 - y_i (h_i + b))_+ + \frac{\lambda}{2}\, b^2

is convex, with a corner at b = y - h for each sample. Whatever the sign of y, the slope of the sum
rises by c there; it begins with minus the weight of the positive samples. Without a penalty the
minimisers are therefore the quantiles of the corners at that weight.

The least objective over all coefficients is a convex function F of b too. Its derivative is that of
the objective in b at the coefficients that are best beside b, so that bisection by its sign finds
the minimum. Stochastic steps only come near those coefficients, and then samples whose margin is to
be 1 are at random above it or below. The mean of the derivatives along all steps has little of that
noise. Where it is zero, the mean objective of the iterates is above the minimum over both w and b
by no more than that of steps without intercept may be, but for the noise of the draws: let g be the
gradients in w and a the derivatives in b; then by convexity

.. math::

    \frac1T \sum_t \Phi(w_t, b) - \Phi(w, b')
    \le \frac1T \sum_t \langle g_t, w_t - w \rangle + (b - b')\, \frac1T \sum_t a_t .
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass

import numpy as np

from marginpursuit._kernels import Descent
from marginpursuit._validation import FloatArray
from marginpursuit.design import MemoryDesign
from marginpursuit.solvers.kernel_descent import KernelRows, take_steps
from marginpursuit.solvers.stochastic import Draws

__all__ = ["InterceptSearch", "best_intercept", "outer_search"]

# Up to which intercepts are bisected. Without a penalty the objective changes by no more than b.
_PRECISION = 2.0**-10


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


def outer_search(
    slopes: Callable[[FloatArray], FloatArray], start: FloatArray
) -> tuple[FloatArray, int]:
    """Bisect several intercepts at once; the brackets are found by steps that double.

    Parameters
    ----------
    slopes : callable
        Returns the derivatives of convex functions, one of each intercept.
    start : ndarray of shape (n_problems,)
        The first intercepts to be tried.

    Returns
    -------
    intercepts : ndarray of shape (n_problems,)
        Each within 2⁻¹¹, or rounding, of a change of sign. At a NaN the search ends where it is.
    n_tried : int
        How often `slopes` was called.

    Examples
    --------
    >>> import numpy as np
    >>> from marginpursuit.solvers.intercept_search import outer_search
    >>> intercepts, n_tried = outer_search(lambda b: b - np.array([0.3, 6.0]), np.zeros(2))
    >>> intercepts.round(2), n_tried
    (array([0.3, 6. ]), 12)
    """
    b, low, high = start, np.full_like(start, -np.inf), np.full_like(start, np.inf)
    reach, n_tried = 1.0, 0
    while np.any(high - low > np.maximum(_PRECISION, 2 * np.spacing(np.abs(b)))):
        slope = slopes(b)
        n_tried += 1
        if np.any(np.isnan(slope)):
            break
        low, high = np.where(slope <= 0, b, low), np.where(slope >= 0, b, high)
        bracketed = np.isfinite(low) & np.isfinite(high)
        b = np.where(bracketed, 0.5 * low + 0.5 * high, b - np.copysign(reach, slope))
        reach *= 2.0
    return b, n_tried


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

    def fix(self, draws: Draws, n_steps: int) -> int:
        """Set the intercepts of descents that are to begin, and that keep them, by outer search.

        Each that is tried is given so many steps from zero, all along the same draws, which remain
        to be made. Returns the number of steps.
        """

        def slopes(intercepts: FloatArray) -> FloatArray:
            descents = [deepcopy(descent) for descent in self.descents]
            for descent, intercept in zip(descents, intercepts.tolist(), strict=True):
                descent.intercept = intercept
            take_steps(self.rows, descents, deepcopy(draws), n_steps)
            if not all(np.all(np.isfinite(descent.coef)) for descent in descents):
                return np.full_like(intercepts, np.nan)
            losses = np.array([descent.total_slope for descent in descents]) / n_steps
            return np.asarray(losses + self.penalty * intercepts)

        start = self.best(np.column_stack([descent.coef for descent in self.descents]))
        found, n_tried = outer_search(slopes, start)
        for descent, intercept in zip(self.descents, found.tolist(), strict=True):
            descent.intercept = intercept
        return n_tried * n_steps

    def update_path(self) -> None:
        """Set the intercepts at the marks to those that are best there."""
        for mark in range(len(self.descents[0].marks)):
            found = self.best(np.column_stack([descent.path[mark] for descent in self.descents]))
            for descent, intercept in zip(self.descents, found, strict=True):
                descent.path_intercept[mark] = intercept
