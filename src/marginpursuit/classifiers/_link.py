r"""Probabilities from scores: the exact link of the loss, and a link fitted to held-out scores.

The exact link of the loss holds for the minimiser over all functions. It is overconfident where no
linear score is optimal, and where few rows have margins below γ.

**The fitted link** has a logit that is piecewise linear in the score u, with f(0) = 0 and knots at
0, l = -γ - t and h = γ - t: the levels ± γ after a threshold t has been subtracted from the scores,

.. math::

    \operatorname{logit} p = f(u) = a_1 \min(u - l, 0) + a_2 \min(\max(u, l), 0)
        + a_3 \max(\min(u, h), 0) + a_4 \max(u - h, 0).

The slopes a are positive, so f increases and has the sign of the score. With several classes the
probabilities are the softmax of the f(u). There is no offset of a class: with one, the most
probable class could differ from the prediction. With ten classes or more the scores of a single fit
are multiplied by a factor first (`_half_fits.HalfFits.link_of`): knots and slopes include it.

The logit is extrapolated to scores beyond those that were held out, where n rows cannot support a
probability of 1e-16. The result is therefore (1 - ε) p + ε/K with K classes and ε = c/(n + c),
c = 1/4, chosen by `benchmarks/smoothing.py`. No class has a probability below ε/K.

The slopes minimise the log-loss of n rows plus a ridge Σ_k (γ a_k - μ)²/(2 n σ²), with μ = 3 and σ
= 2: the negative logarithm of a normal prior. It determines the slopes of intervals that hold few
scores. μ and σ were chosen on 15 data sets of 200, 1,000 and 2,000 rows with the seeds 100 and 101
(`docs/choosing.md`).
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import gen_batches

from marginpursuit._kernels import link_pieces, link_slopes
from marginpursuit._namespaces import namespace
from marginpursuit._validation import FloatArray
from marginpursuit.losses import JointLoss, MarginLoss


class Link(Protocol):
    """A function from scores to probabilities."""

    def probabilities(self, scores: Any) -> Any:
        """Return probabilities from scores, (n_rows, n_problems), in their array library."""


@dataclass(frozen=True, slots=True)
class SlopePrior:
    """The normal prior of slope times margin, and its bounds.

    The bounds keep the link strictly increasing and its probabilities inside (0, 1).
    """

    mean: float = 3.0
    deviation: float = 2.0
    bounds: tuple[float, float] = (1e-3, 1e3)


@dataclass(frozen=True, slots=True)
class FittedLink:
    """The link, given by its knots and slopes."""

    margin: float
    slopes: FloatArray  # (4,)
    threshold: float = 0.0  # that was subtracted from the scores, within ± margin
    smoothing: float = 0.0  # the weight ε of equal probabilities

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
        prior: SlopePrior | None = None,
    ) -> "tuple[FittedLink, float]":
        """Fit the slopes to out-of-fold scores, by a few Newton steps in one compiled call.

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
            The most rows to use, if `link_rows` allows as many; of more, every k-th is taken.
        prior : SlopePrior, optional
            Mean μ, standard deviation σ and bounds of slope times margin.

        Returns
        -------
        link : FittedLink
            The link.
        log_loss : float
            The mean log-loss of the rows, before the probabilities are smoothed.
        """
        is_used = weights > 0  # others may have scores that are not finite
        if not is_used.all():
            scores, codes, weights = scores[is_used], codes[is_used], weights[is_used]
        prior = SlopePrior() if prior is None else prior
        count = float(weights.sum())
        step = thinning(len(codes), link_rows(max_rows, scores.shape[1]))
        weights = weights[::step] / (count if step == 1 else weights[::step].sum())
        slopes, log_loss = link_slopes(
            np.ascontiguousarray(scores[::step] / margin, dtype=np.float64),
            np.ascontiguousarray(codes[::step], dtype=np.intp),
            weights,
            threshold / margin,
            prior.mean,
            1.0 / (count * prior.deviation**2),
            prior.bounds,
        )
        return cls(margin, np.array(slopes) / margin, threshold, smoothing_of(count)), log_loss

    @classmethod
    def a_priori(cls, margin: float, n_rows: float) -> "FittedLink":
        """Return the link without any held-out score: all slopes have the mean of the prior."""
        slopes = np.full(4, SlopePrior().mean / margin)
        return cls(margin, slopes, smoothing=smoothing_of(n_rows))

    def probabilities(self, scores: Any) -> Any:
        """Return probabilities of shape (n_rows, n_classes), in the array library of the scores."""
        xp, slopes = namespace(scores), self.margin * self.slopes
        scaled = xp.astype(scores, xp.float64) / self.margin
        pieces = link_pieces(scaled, self.threshold / self.margin)
        logits = sum(float(slope) * piece for slope, piece in zip(slopes, pieces, strict=True))
        odds = xp.exp(logits - xp.max(logits, axis=1)[:, None])
        probabilities = odds / xp.sum(odds, axis=1)[:, None]
        return inside(
            (1.0 - self.smoothing) * probabilities + self.smoothing / probabilities.shape[1]
        )


def smoothing_of(n_rows: float) -> float:
    """Return the weight ε of equal probabilities for a number of rows."""
    prior_rows = 0.25  # rows for which equal probabilities count (benchmarks/smoothing.py)
    return prior_rows / (float(n_rows) + prior_rows)


def link_rows(max_rows: int, n_scores: int, max_scores: int = 1 << 22) -> int:
    """Return the most rows with `n_scores` each that a link is fitted to.

    Copies of `max_scores` scores take about 150 MB.
    """
    return max(1, min(max_rows, max_scores // n_scores))


def thinning(n_rows: int, max_rows: int) -> int:
    """Return the smallest step at which at most `max_rows` of `n_rows` are taken."""
    return -(-n_rows // max_rows)


@dataclass(frozen=True, slots=True)
class ExactLabelLink:
    """The link of a loss, for several labels."""

    loss: MarginLoss

    def probabilities(self, scores: Any) -> Any:
        """Return the probability of each label, (n_rows, n_labels).

        Probabilities are strictly inside (0, 1), as scikit-learn requires of labels: where the
        link of the loss is zero or one, they are the next float inside.
        """
        columns = [
            exact_probabilities(scores[:, k : k + 1], self.loss)[:, 1]
            for k in range(scores.shape[1])
        ]
        return inside(namespace(scores).stack(columns, axis=1))


def inside(probabilities: Any) -> Any:
    """Return probabilities with zero and one moved to the next float inside (0, 1)."""
    least, most = float(np.finfo(np.float64).tiny), 1.0 - float(np.finfo(np.float64).epsneg)
    return namespace(probabilities).clip(probabilities, least, most)


@dataclass(frozen=True, slots=True)
class ExactLink:
    """The link of a loss: maps scores of least expected loss to probabilities."""

    loss: MarginLoss | JointLoss

    def probabilities(self, scores: Any) -> Any:
        """Return the probability of each class from scores of shape (n_rows, n_problems)."""
        return exact_probabilities(scores, self.loss)


def exact_probabilities(
    scores: Any, loss: MarginLoss | JointLoss, batch_rows: int = 1 << 13
) -> Any:
    """Return the probability of each class from scores of shape (n_rows, n_problems).

    With several classes, the probabilities of each against the rest are divided by their sum. A
    joint loss has a link of all scores.
    Scores of NumPy are processed `batch_rows` rows at a time, which bounds the temporary memory.
    """
    if not isinstance(scores, np.ndarray):
        return _linked(scores, loss)
    result = np.empty((len(scores), max(2, scores.shape[1])))
    for rows in gen_batches(len(scores), batch_rows):
        result[rows] = _linked(scores[rows], loss)
    return result


def _linked(scores: Any, loss: MarginLoss | JointLoss) -> Any:
    """Return the probabilities of some rows, as an array of the library of the scores."""
    xp = namespace(scores)
    scores = xp.astype(scores, xp.float64)
    if scores.shape[1] == 1:
        scores = xp.concat([-scores, scores], axis=1)
    probabilities = loss.link(scores)
    # Breaks ties on flat parts of the link in favour of argmax(score), also where the probability
    # of every class is zero.
    tie = 1e-12
    highest = xp.argmax(scores, axis=1)[:, None]
    classes = xp.arange(scores.shape[1], dtype=highest.dtype, device=scores.device)
    probabilities = probabilities + tie * xp.astype(highest == classes[None, :], xp.float64)
    return probabilities / xp.sum(probabilities, axis=1)[:, None]
