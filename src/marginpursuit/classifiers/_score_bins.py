"""Sums over rows in bins of their scores, for many labels.

The bins are 1/32 of the margin wide. Rows with and without a label have bins of their own, each
with the mean score of its rows.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit, logit

from marginpursuit._validation import FloatArray
from marginpursuit.classifiers._link import SlopePrior


@dataclass(frozen=True, slots=True)
class ScoreBins:
    """Mean scores and counts, (2, n_bins, n_labels): of rows without a label, then with it."""

    scores: FloatArray  # in units of the margin
    counts: FloatArray

    per_margin: ClassVar[int] = 32  # bins
    limit: ClassVar[int] = 4  # margins beyond which the first and the last bin have all scores

    @classmethod
    def of(
        cls,
        scores: FloatArray,
        is_positive: NDArray[np.bool_],
        counts: FloatArray,
        *,
        chunk_elements: int = 1 << 16,
    ) -> "ScoreBins":
        """Sum over rows that count for numbers of rows; arrays of a chunk fit a cache."""
        n_labels = scores.shape[1]
        n_bins = 2 * cls.limit * cls.per_margin
        count, product = np.zeros((2, 2 * n_bins * n_labels))
        step = max(1, chunk_elements // n_labels)
        for first in range(0, len(scores), step):
            rows = slice(first, first + step)
            place = np.clip(cls.per_margin * scores[rows] + n_bins // 2, 0, n_bins - 1)
            index = place.astype(np.intp)
            index += n_bins * is_positive[rows]
            index *= n_labels
            index += np.arange(n_labels)
            weights = np.broadcast_to(counts[rows, np.newaxis], index.shape)
            count += np.bincount(index.ravel(), weights.ravel(), len(count))
            product += np.bincount(index.ravel(), (weights * scores[rows]).ravel(), len(count))
        mean = np.divide(product, count, out=np.zeros_like(product), where=count > 0)
        count, mean = (x.reshape(2, n_bins, n_labels) for x in (count, mean))
        is_used = count.any(axis=(0, 2))
        return cls(mean[:, is_used], count[:, is_used])

    def weighted(self, factors: FloatArray) -> "ScoreBins":
        """Return the bins with weighted counts and the same total of each label.

        A label whose rows all have a weight of zero keeps its counts.
        """
        sums = self.counts.sum(axis=1)
        after = np.sum(factors * sums, axis=0)
        factors = np.where(after > 0, factors, 1.0)
        factors = factors * sums.sum(axis=0) / np.where(after > 0, after, sums.sum(axis=0))
        return replace(self, counts=factors[:, np.newaxis] * self.counts)

    def logistic_fits(
        self, prior: SlopePrior, max_iter: int = 50, tol: float = 1e-8
    ) -> tuple[FloatArray, FloatArray]:
        """Return slopes and offsets, which minimise the log-loss of smoothed targets plus a ridge.

        Newton steps of all labels, none longer than 3 in either variable. Slopes are at least the
        lower bound of the prior.
        """
        n_negative, n_positive = self.counts.sum(axis=1)
        n_labels = len(n_positive)
        targets = np.stack([1.0 / (n_negative + 2.0), (n_positive + 1.0) / (n_positive + 2.0)])
        target = (targets[:, np.newaxis] * self.counts).reshape(-1, n_labels)
        count, scores = (x.reshape(-1, n_labels) for x in (self.counts, self.scores))
        ridge = 1.0 / prior.deviation**2
        # At the start the mean score has about the probability of the label, and few probabilities
        # are close to zero or one.
        middle = np.sum(count * scores, axis=0) / count.sum(axis=0)
        spread = np.sqrt(np.sum(count * (scores - middle) ** 2, axis=0) / count.sum(axis=0))
        slopes = prior.mean / np.maximum(1.0, spread)
        offsets = logit((n_positive + 1.0) / (n_positive + n_negative + 2.0)) - slopes * middle
        for _ in range(max_iter):
            proba = expit(slopes * scores + offsets)
            excess = count * proba - target
            curvature = count * proba * (1.0 - proba)
            g_slope = np.einsum("bl,bl->l", scores, excess) + ridge * (slopes - prior.mean)
            g_offset = excess.sum(axis=0)
            weighted = curvature * scores
            h_slope = np.einsum("bl,bl->l", weighted, scores) + ridge
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
        is_used = self.counts > 0
        order = np.argsort(-logits[is_used])
        positive = self.counts * np.array([0.0, 1.0])[:, np.newaxis, np.newaxis]
        hits = np.cumsum(positive[is_used][order])
        if not hits[-1] > 0:
            return 1.0
        return float(np.max(2.0 * hits / (np.cumsum(self.counts[is_used][order]) + hits[-1])))

    def log_loss(self, logits: FloatArray) -> float:
        """Return the mean log-loss of the bins."""
        losses = self.counts * log_expit(np.array([-1.0, 1.0])[:, np.newaxis, np.newaxis] * logits)
        return -float(losses.sum() / self.counts.sum())
