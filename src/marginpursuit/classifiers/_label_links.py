r"""Probabilities and decisions of several labels, from held-out scores.

**Probabilities.** The link of label k is logistic, logit p = a_k u + b_k, with smoothed targets as
in Platt's method: (n₁ + 1)/(n₁ + 2) for the n₁ rows with the label and 1/(n₀ + 2) for the n₀
others. A label without any row then has a small positive probability. The slope has the ridge
(γ a_k - μ)²/(2 n σ²) of `_link`, which decides where few rows have a label.

**Decisions.** A label is predicted where its probability exceeds θ = F*/2, with F* the largest
micro-averaged F1 of the held-out rows over all θ. For probabilities that are true this θ maximises
the expected F1. At θ = 1/2, which maximises accuracy, a label of few rows is hardly ever predicted.
θ is at least 0.1: with a lower one, labels that the columns do not explain are predicted for every
row. The *threshold* t_k is the score with probability θ. It is subtracted from the scores, so that
their sign is the decision, and logit p = logit θ + a_k (u - t_k).

**Weights of classes.** With `class_weight` the rows with and without a label count for their
weights in the link as well. Probabilities are those of rows so weighted, and θ is 1/2: the decision
has the least weighted error.

The sums over rows are over bins of scores, 1/32 of the margin wide, with the mean score of each
bin. All labels take the same Newton steps.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit, logit

from marginpursuit._namespaces import namespace, to_device_of
from marginpursuit._validation import FloatArray
from marginpursuit.classifiers._link import SlopePrior, inside


@dataclass(frozen=True, slots=True)
class LabelLinks:
    """A link for each label: logit p = offset + slope · score."""

    slopes: FloatArray  # (n_labels,), positive
    thresholds: FloatArray  # (n_labels,), which were subtracted from the scores
    offset: float = 0.0  # logit of the probability above which a label is predicted

    @classmethod
    def a_priori(cls, n_labels: int, margin: float) -> "LabelLinks":
        """Return the links without any held-out score: slopes have the mean of the prior."""
        return cls(np.full(n_labels, SlopePrior().mean / margin), np.zeros(n_labels))

    @classmethod
    def fit(
        cls,
        scores: FloatArray,
        is_positive: NDArray[np.bool_],
        counts: FloatArray,
        margin: float,
        factors: FloatArray | None = None,
        prior: SlopePrior | None = None,
        least_probability: float = 0.1,
    ) -> "tuple[LabelLinks, float]":
        """Fit the links of all labels to held-out scores.

        Parameters
        ----------
        scores : ndarray of shape (n_rows, n_labels)
            Held-out scores.
        is_positive : ndarray of bool of shape (n_rows, n_labels)
            Whether a row has a label.
        counts : ndarray of shape (n_rows,)
            The number of rows that each row counts for.
        margin : float
            The level γ, the unit of the scores.
        factors : ndarray of shape (2, n_labels), optional
            Factors of the counts of rows without and with a label, by `class_weight`.
        prior : SlopePrior, optional
            Mean μ, standard deviation σ and bounds of slope times margin.
        least_probability : float
            The least θ.

        Returns
        -------
        links : LabelLinks
            The links.
        log_loss : float
            The mean of their log-loss over rows and labels.
        """
        bins = _Bins.of(scores / margin, is_positive, counts)
        if factors is not None:
            bins = bins.weighted(factors)
        slopes, offsets = bins.logistic_fits(SlopePrior() if prior is None else prior)
        logits = slopes * bins.scores + offsets
        offset = 0.0
        if factors is None:
            offset = float(logit(max(0.5 * bins.largest_f1(logits), least_probability)))
        links = cls(slopes / margin, margin * (offset - offsets) / slopes, offset)
        return links, bins.log_loss(logits)

    @property
    def decision_probability(self) -> float:
        """The probability θ above which a label is predicted."""
        return float(expit(self.offset))

    def probabilities(self, scores: Any) -> Any:
        """Return the probability of each label, (n_rows, n_labels), strictly inside (0, 1)."""
        xp = namespace(scores)
        slopes = to_device_of(scores, self.slopes, xp.float64)
        logits = self.offset + slopes * xp.astype(scores, xp.float64)
        # exp(-logit) overflows below -709; probabilities there are below 1e-304.
        return inside(1.0 / (1.0 + xp.exp(-xp.clip(logits, -700.0, None))))


@dataclass(frozen=True, slots=True)
class _Bins:
    """Sums over held-out rows in bins of scores; arrays have the shape (n_bins, n_labels)."""

    scores: FloatArray  # the mean score of a bin, in units of the margin
    negative: FloatArray  # the count of rows without the label
    positive: FloatArray  # the count of rows with it

    per_margin: ClassVar[int] = 32  # bins
    limit: ClassVar[int] = 4  # margins beyond which the first and the last bin have all scores

    @classmethod
    def of(
        cls,
        scores: FloatArray,
        is_positive: NDArray[np.bool_],
        counts: FloatArray,
        *,
        chunk_elements: int = 1 << 20,
    ) -> "_Bins":
        """Sum over the rows; the scores are in units of the margin."""
        n_labels = scores.shape[1]
        n_bins = 2 * cls.limit * cls.per_margin
        sums = np.zeros((3, n_bins * n_labels))
        step = max(1, chunk_elements // n_labels)
        for first in range(0, len(scores), step):
            rows = slice(first, first + step)
            place = np.floor(cls.per_margin * scores[rows]) + n_bins // 2
            index = np.clip(place, 0, n_bins - 1).astype(np.intp) * n_labels + np.arange(n_labels)
            weights = np.broadcast_to(counts[rows, np.newaxis], index.shape)
            for total, own in zip(
                sums, (weights, weights * is_positive[rows], weights * scores[rows]), strict=True
            ):
                total += np.bincount(index.ravel(), own.ravel(), len(total))
        count, positive, product = sums.reshape(3, n_bins, n_labels)
        mean = np.divide(product, count, out=np.zeros_like(product), where=count > 0)
        return cls(mean, np.maximum(count - positive, 0.0), positive)

    def weighted(self, factors: FloatArray) -> "_Bins":
        """Return the bins with weighted counts and the same total of each label.

        A label whose rows all have a weight of zero keeps its counts.
        """
        sums = np.stack([self.negative.sum(axis=0), self.positive.sum(axis=0)])
        after = np.sum(factors * sums, axis=0)
        factors = np.where(after > 0, factors, 1.0)
        factors = factors * sums.sum(axis=0) / np.where(after > 0, after, sums.sum(axis=0))
        return replace(
            self, negative=factors[0] * self.negative, positive=factors[1] * self.positive
        )

    def logistic_fits(
        self, prior: SlopePrior, max_iter: int = 50, tol: float = 1e-8
    ) -> tuple[FloatArray, FloatArray]:
        """Return slopes and offsets, which minimise the log-loss of smoothed targets plus a ridge.

        Newton steps of all labels, none longer than 3 in either variable. Slopes are at least the
        lower bound of the prior.
        """
        n_negative, n_positive = self.negative.sum(axis=0), self.positive.sum(axis=0)
        target = self.positive * ((n_positive + 1.0) / (n_positive + 2.0))
        target += self.negative / (n_negative + 2.0)
        count, ridge = self.positive + self.negative, 1.0 / prior.deviation**2
        # At the start the mean score has about the probability of the label, and few probabilities
        # are close to zero or one.
        middle = np.sum(count * self.scores, axis=0) / count.sum(axis=0)
        spread = np.sqrt(np.sum(count * (self.scores - middle) ** 2, axis=0) / count.sum(axis=0))
        slopes = prior.mean / np.maximum(1.0, spread)
        offsets = logit((n_positive + 1.0) / (n_positive + n_negative + 2.0)) - slopes * middle
        for _ in range(max_iter):
            proba = expit(slopes * self.scores + offsets)
            excess = count * proba - target
            curvature = count * proba * (1.0 - proba)
            g_slope = np.einsum("bl,bl->l", self.scores, excess) + ridge * (slopes - prior.mean)
            g_offset = excess.sum(axis=0)
            weighted = curvature * self.scores
            h_slope = np.einsum("bl,bl->l", weighted, self.scores) + ridge
            h_offset, h_both = curvature.sum(axis=0) + 1e-9, weighted.sum(axis=0)
            determinant = h_slope * h_offset - h_both**2
            along_slope = h_both * g_offset - h_offset * g_slope
            along_offset = h_both * g_slope - h_slope * g_offset
            step = np.stack([along_slope, along_offset]) / determinant
            step *= np.minimum(1.0, 3.0 / np.maximum(np.abs(step).max(axis=0), 1e-100))
            slopes, offsets = slopes + step[0], offsets + step[1]
            if np.abs(step).max() < tol:
                break
        return np.maximum(slopes, prior.bounds[0]), offsets

    def largest_f1(self, logits: FloatArray) -> float:
        """Return the largest micro-averaged F1 of one threshold for all logits; 1 without rows."""
        order = np.argsort(-logits, axis=None)
        positive = self.positive.ravel()[order]
        if not np.any(positive > 0):
            return 1.0
        predicted = np.cumsum(positive + self.negative.ravel()[order])
        return float(np.max(2.0 * np.cumsum(positive) / (predicted + positive.sum())))

    def log_loss(self, logits: FloatArray) -> float:
        """Return the mean log-loss of the bins."""
        losses = self.positive * log_expit(logits) + self.negative * log_expit(-logits)
        return -float(losses.sum() / (self.positive.sum() + self.negative.sum()))
