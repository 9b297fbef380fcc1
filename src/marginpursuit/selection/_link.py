r"""A probability link that is fitted to scores of rows which the fit had not seen.

The exact link of the loss is right where the model is: where no linear score is the optimal one, or
where few rows are short of the level, it claims too much. The fitted link has a logit that is
piecewise linear in the score u, with f(0) = 0 and knots at zero and at l = -γ - t and h = γ - t,
where the levels are once scores have been moved by a threshold t,

.. math::

    \operatorname{logit} p = f(u) = a_1 \min(u - l, 0) + a_2 \min(\max(u, l), 0)
        + a_3 \max(\min(u, h), 0) + a_4 \max(u - h, 0),

with slopes a > 0, so that it rises and agrees with the sign of the score. With several classes the
probabilities are the softmax of the f(u). The slopes minimise the log-loss.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from marginpursuit._namespaces import namespace
from marginpursuit._validation import FloatArray

# Rows that four slopes are fitted to, at most.
_MOST_ROWS = 1 << 16

# Slopes times the level: none is flat, and none pretends to be certain.
_SLOPES = 1e-3, 1e3


@dataclass(frozen=True, slots=True)
class FittedLink:
    """The link, by its knots and slopes."""

    margin: float
    slopes: FloatArray  # (4,)
    threshold: float = 0.0  # that has been taken off the scores, within ± margin

    @classmethod
    def fit(
        cls,
        scores: FloatArray,
        codes: NDArray[np.intp],
        weights: FloatArray,
        margin: float,
        threshold: float = 0.0,
    ) -> "FittedLink":
        """Fit the slopes to scores of shape (n_rows, n_problems) of rows of these classes.

        A weight is the number of rows that a row stands for.
        """
        count, step = weights.sum(), thinning(len(codes))
        codes, weights = codes[::step], weights[::step]
        weights = weights / weights.sum()
        pieces = np.stack(_pieces(scores[::step] / margin, threshold / margin))
        n_rows, n_classes = pieces.shape[1:]
        # Nobody is certain after n rows: a little of each row counts for the other classes.
        doubt = 1.0 / (count + n_classes)
        target = np.full((n_rows, n_classes), doubt)
        target[np.arange(n_rows), codes] = 1.0 - (n_classes - 1) * doubt
        target *= weights[:, np.newaxis]

        def loss(slopes: FloatArray) -> tuple[float, FloatArray]:
            logits = np.tensordot(slopes, pieces, 1)
            logits -= logits.max(axis=1, keepdims=True)
            odds = np.exp(logits)
            total = odds.sum(axis=1, keepdims=True)
            logs = logits - np.log(total)
            excess = (weights[:, np.newaxis] / total) * odds - target
            return -float(np.sum(target * logs)), np.tensordot(pieces, excess, 2)

        found = minimize(loss, np.ones(4), jac=True, method="L-BFGS-B", bounds=[_SLOPES] * 4)
        return cls(margin, found.x / margin, threshold)

    def probabilities(self, scores: Any) -> Any:
        """Return the probability of each class, of shape (n_rows, n_classes), where scores are."""
        xp, slopes = namespace(scores), self.margin * self.slopes
        scaled = xp.astype(scores, xp.float64) / self.margin
        pieces = _pieces(scaled, self.threshold / self.margin)
        logits = sum(float(slope) * piece for slope, piece in zip(slopes, pieces, strict=True))
        odds = xp.exp(logits - xp.max(logits, axis=1)[:, None])
        return odds / xp.sum(odds, axis=1)[:, None]


def thinning(n_rows: int) -> int:
    """Return the step at which rows are taken, that no more than the most are."""
    return -(-n_rows // _MOST_ROWS)


def _pieces(scores: Any, threshold: float) -> list[Any]:
    """Cut the score of each class at the knots, into four arrays of shape (n_rows, n_classes).

    Of two classes the second has the score, and the first has zero.
    """
    xp, low, high = namespace(scores), -1.0 - threshold, 1.0 - threshold
    if scores.shape[1] == 1:
        scores = xp.concat([xp.zeros_like(scores), scores], axis=1)
    return [
        xp.clip(scores - low, None, 0.0),
        xp.clip(scores, low, 0.0),
        xp.clip(scores, 0.0, high),
        xp.clip(scores - high, 0.0, None),
    ]
