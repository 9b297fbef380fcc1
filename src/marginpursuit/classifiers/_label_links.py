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

The sums over rows are over bins of scores (`_score_bins`). All labels take the same Newton steps.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from marginpursuit._namespaces import namespace, to_device_of
from marginpursuit._validation import FloatArray
from marginpursuit.classifiers._link import SlopePrior, inside
from marginpursuit.classifiers._score_bins import ScoreBins


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

        Returns
        -------
        links : LabelLinks
            The links.
        log_loss : float
            The mean of their log-loss over rows and labels.
        """
        return cls.of_bins(ScoreBins.of(scores / margin, is_positive, counts), margin, factors)

    @classmethod
    def of_bins(
        cls,
        bins: ScoreBins,
        margin: float,
        factors: FloatArray | None = None,
        least_probability: float = 0.1,
    ) -> "tuple[LabelLinks, float]":
        """Fit the links to bins of held-out scores; `least_probability` is the least θ."""
        if factors is not None:
            bins = bins.weighted(factors)
        slopes, offsets = bins.logistic_fits(SlopePrior())
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
