r"""Learning from a stream of batches, each seen once.

With S the sum of z zᵀ over all rows seen so far (z standardised, with a one for the intercept) and
g the gradient of the summed loss over the rows of a new batch, a batch moves the coefficients by
-S⁻¹ g. Since the loss has curvature at most one, S bounds the Hessian of everything seen. Where the
loss is quadratic this is recursive least squares, and equals the fit to all rows at once; elsewhere
rows of earlier batches are not looked at again, and it comes near that fit.

Above 4096 columns S would be too large, and its place is taken by a diagonal that bounds it:
|z_j| Σ_k |z_k|, summed over rows.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from marginpursuit._validation import FloatArray
from marginpursuit.design import Design, Labels, Linear
from marginpursuit.losses import MarginLoss

_MOST_COLUMNS = 4096


@dataclass(slots=True)
class Stream:
    """What is remembered between batches."""

    centre: FloatArray
    inverse_spread: FloatArray
    linear: Linear  # standardised coefficients and intercepts
    bound: FloatArray  # S, or its diagonal bound
    fit_intercept: bool

    @classmethod
    def begin(
        cls, design: Design, weights: FloatArray, n_problems: int, fit_intercept: bool
    ) -> "Stream":
        """Take the coordinates of the first batch, which all later ones keep."""
        design.standardise_diagonal(
            weights / weights.sum(), centred=fit_intercept and not design.is_sparse
        )
        # A column that is constant in this batch may vary in the next.
        inverse = np.where(design.inverse_spread > 0, design.inverse_spread, 1.0)
        size = design.n_columns + fit_intercept
        return cls(
            design.centre,
            inverse,
            (np.zeros((design.n_columns, n_problems)), np.zeros(n_problems)),
            np.zeros((size, size) if design.n_columns <= _MOST_COLUMNS else size),
            fit_intercept,
        )

    def update(
        self,
        design: Design,
        labels: Labels,
        weights: FloatArray,
        loss: MarginLoss,
        penalty: FloatArray,
    ) -> None:
        """Take one batch; weights are those of the rows, not divided by their sum."""
        design.centre, design.inverse_spread = self.centre, self.inverse_spread
        coef, intercept = self.linear
        sweep = design.sweep(coef, intercept, loss, labels, labels.problems, weights)
        total = weights.sum()
        gradient = sweep.gradient + total * (coef.T * penalty).T
        if self.fit_intercept:
            gradient = np.vstack([gradient, sweep.slope])
        diagonal = total * np.append(penalty, np.zeros(int(self.fit_intercept)))
        if self.bound.ndim == 2:
            self.bound += self._second_moment(design, weights) + np.diag(diagonal)
            # Directions not seen yet have no gradient; this keeps the factorisation defined.
            floor = 1e-12 * max(1.0, float(np.trace(self.bound)))
            step = cho_solve(cho_factor(self.bound + floor * np.eye(len(self.bound))), gradient)
        else:
            self.bound += design.absolute_products(weights, with_one=self.fit_intercept) + diagonal
            step = gradient / np.maximum(self.bound, 1e-300)[:, np.newaxis]
        n_columns = design.n_columns
        if self.fit_intercept:
            intercept = intercept - step[n_columns]
        self.linear = coef - step[:n_columns], intercept

    def _second_moment(self, design: Design, weights: FloatArray) -> FloatArray:
        gram = design.gram(weights)
        if not self.fit_intercept:
            return gram
        first = design.pullback(weights)
        return np.block([[gram, first[:, np.newaxis]], [first, weights.sum()]])
