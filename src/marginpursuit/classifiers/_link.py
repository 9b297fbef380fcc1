r"""A probability link that is fitted to out-of-fold scores.

The exact link of the loss holds for the minimiser over all functions. It is overconfident where no
linear score is optimal, and where few rows have margins below γ. The fitted link has a logit that
is piecewise linear in the score u, with f(0) = 0 and knots at 0, l = -γ - t and h = γ - t: the
levels ± γ after a threshold t has been subtracted from the scores,

.. math::

    \operatorname{logit} p = f(u) = a_1 \min(u - l, 0) + a_2 \min(\max(u, l), 0)
        + a_3 \max(\min(u, h), 0) + a_4 \max(u - h, 0).

The slopes a are positive, so f increases and has the sign of the score. With several classes the
probabilities are the softmax of the f(u). The slopes minimise the log-loss. There is no offset of a
class: with one, the most probable class could differ from the prediction.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from marginpursuit._namespaces import namespace
from marginpursuit._threads import single_threaded_blas
from marginpursuit._validation import FloatArray


@dataclass(frozen=True, slots=True)
class FittedLink:
    """The link, given by its knots and slopes."""

    margin: float
    slopes: FloatArray  # (4,)
    threshold: float = 0.0  # that was subtracted from the scores, within ± margin

    @classmethod
    def fit(
        cls,
        scores: FloatArray,
        codes: NDArray[np.intp],
        weights: FloatArray,
        margin: float,
        threshold: float = 0.0,
        *,
        max_rows: int,
        slope_bounds: tuple[float, float] = (1e-3, 1e3),
    ) -> "FittedLink":
        """Fit the slopes to out-of-fold scores.

        Parameters
        ----------
        scores : ndarray of shape (n_rows, n_problems)
            Out-of-fold scores, less the threshold.
        codes : ndarray of shape (n_rows,)
            Classes of the rows.
        weights : ndarray of shape (n_rows,)
            The number of rows that each row counts for.
        margin, threshold : float
            The knots.
        max_rows : int
            The most rows to use; of more, every k-th is taken.
        slope_bounds : tuple of float
            Bounds of slope times margin, which keep the link strictly increasing and its
            probabilities inside (0, 1).

        Returns
        -------
        FittedLink
            The link.
        """
        count, step = weights.sum(), thinning(len(codes), max_rows)
        codes, weights = codes[::step], weights[::step]
        weights = weights / weights.sum()
        pieces = np.stack(_pieces(scores[::step] / margin, threshold / margin))
        n_rows, n_classes = pieces.shape[1:]
        # Smoothed targets, as in Platt scaling: each other class has probability 1 / (n + K).
        other = 1.0 / (count + n_classes)
        target = np.full((n_rows, n_classes), other)
        target[np.arange(n_rows), codes] = 1.0 - (n_classes - 1) * other
        target *= weights[:, np.newaxis]

        def log_loss(slopes: FloatArray) -> tuple[float, FloatArray]:
            logits = np.tensordot(slopes, pieces, 1)
            logits -= logits.max(axis=1, keepdims=True)
            odds = np.exp(logits)
            total = odds.sum(axis=1, keepdims=True)
            logs = logits - np.log(total)
            excess = (weights[:, np.newaxis] / total) * odds - target
            return -float(np.sum(target * logs)), np.tensordot(pieces, excess, 2)

        bounds = [slope_bounds] * len(pieces)
        with single_threaded_blas():  # the solver's systems of four equations gain from no thread
            found = minimize(
                log_loss,
                np.ones(4),
                jac=True,
                method="L-BFGS-B",
                bounds=bounds,
                options={"ftol": 1e-14, "gtol": 1e-9},  # the result follows rounding otherwise
            )
        return cls(margin, found.x / margin, threshold)

    def probabilities(self, scores: Any) -> Any:
        """Return probabilities of shape (n_rows, n_classes), in the array library of the scores."""
        xp, slopes = namespace(scores), self.margin * self.slopes
        scaled = xp.astype(scores, xp.float64) / self.margin
        pieces = _pieces(scaled, self.threshold / self.margin)
        logits = sum(float(slope) * piece for slope, piece in zip(slopes, pieces, strict=True))
        odds = xp.exp(logits - xp.max(logits, axis=1)[:, None])
        # Probabilities that round to zero or one are moved to the next float inside (0, 1).
        least, most = float(np.finfo(np.float64).tiny), 1.0 - float(np.finfo(np.float64).epsneg)
        return xp.clip(odds / xp.sum(odds, axis=1)[:, None], least, most)


def thinning(n_rows: int, max_rows: int) -> int:
    """Return the smallest step at which at most `max_rows` of `n_rows` are taken."""
    return -(-n_rows // max_rows)


def _pieces(scores: Any, threshold: float) -> list[Any]:
    """Return the four terms of f without slopes, each of shape (n_rows, n_classes).

    With two classes, the score is that of the second, and that of the first is zero.
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
