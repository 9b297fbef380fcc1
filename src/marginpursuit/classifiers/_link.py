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
probable class could differ from the prediction.

The slopes minimise the log-loss of n rows plus a ridge Σ_k (γ a_k - μ)²/(2 n σ²), with μ = 3 and σ
= 2: the negative logarithm of a normal prior. It determines the slopes of intervals that hold few
scores. μ and σ were chosen on 15 data sets of 200, 1,000 and 2,000 rows with the seeds 100 and 101
(`docs/choosing.md`).
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.utils import gen_batches

from marginpursuit._namespaces import namespace
from marginpursuit._validation import FloatArray
from marginpursuit.losses import JointLoss, MarginLoss


class Link(Protocol):
    """A function from scores to probabilities."""

    def probabilities(self, scores: Any) -> Any:
        """Return probabilities from scores, (n_rows, n_problems), in their array library."""


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
        prior: tuple[float, float] = (3.0, 2.0),
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
        prior : tuple of float
            Mean μ and standard deviation σ of slope times margin, a priori.

        Returns
        -------
        FittedLink
            The link.
        """
        is_used = weights > 0  # others may have scores that are not finite
        scores, codes, weights = scores[is_used], codes[is_used], weights[is_used]
        count, step = weights.sum(), thinning(len(codes), max_rows)
        codes, weights = codes[::step], weights[::step]
        pieces = np.stack(_pieces(scores[::step] / margin, threshold / margin))
        n_rows, n_classes = pieces.shape[1:]
        target = np.zeros((n_rows, n_classes))
        target[np.arange(n_rows), codes] = 1.0
        kind = _BinaryLogLoss if n_classes == 2 else _LogLoss
        loss = kind(pieces, target, weights / weights.sum(), *prior, float(count))
        return cls(margin, _minimised(loss, slope_bounds) / margin, threshold)

    @classmethod
    def a_priori(cls, margin: float, mean: float = 3.0) -> "FittedLink":
        """Return the link without any held-out score: all slopes have the mean of the prior."""
        return cls(margin, np.full(4, mean / margin))

    def probabilities(self, scores: Any) -> Any:
        """Return probabilities of shape (n_rows, n_classes), in the array library of the scores."""
        xp, slopes = namespace(scores), self.margin * self.slopes
        scaled = xp.astype(scores, xp.float64) / self.margin
        pieces = _pieces(scaled, self.threshold / self.margin)
        logits = sum(float(slope) * piece for slope, piece in zip(slopes, pieces, strict=True))
        odds = xp.exp(logits - xp.max(logits, axis=1)[:, None])
        return inside(odds / xp.sum(odds, axis=1)[:, None])


@dataclass(frozen=True, slots=True)
class _LogLoss:
    """The log-loss of targets, and the ridge of the prior, as a function of the four slopes.

    Sums over rows are by `einsum`: BLAS threads cost more than these products with four rows.
    """

    pieces: FloatArray  # (4, n_rows, n_classes)
    target: FloatArray  # (n_rows, n_classes), probabilities
    weights: FloatArray  # (n_rows,), sum one
    mean: float  # μ
    deviation: float  # σ
    count: float  # n

    @property
    def ridge(self) -> float:
        """The factor 1/(n σ²)."""
        return 1.0 / (self.count * self.deviation**2)

    def value(self, slopes: FloatArray) -> float:
        """Return the mean of -Σ_k t_k log p_k, plus the ridge."""
        logits = np.einsum("j,jnk->nk", slopes, self.pieces)
        highest = logits.max(axis=1)
        total = np.exp(logits - highest[:, np.newaxis]).sum(axis=1)
        losses = highest + np.log(total) - np.einsum("nk,nk->n", self.target, logits)
        penalty = 0.5 * self.ridge * np.sum((slopes - self.mean) ** 2)
        return float(np.einsum("n,n->", self.weights, losses) + penalty)

    def derivatives(self, slopes: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the gradient and the Hessian."""
        logits = np.einsum("j,jnk->nk", slopes, self.pieces)
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        probabilities = odds / odds.sum(axis=1, keepdims=True)
        excess = self.weights[:, np.newaxis] * (probabilities - self.target)
        gradient = np.einsum("jnk,nk->j", self.pieces, excess)
        # The Hessian is the mean covariance of the pieces under the probabilities of a row.
        means = np.einsum("jnk,nk->jn", self.pieces, probabilities)
        spread = self.pieces - means[:, :, np.newaxis]
        scaled = spread * (self.weights[:, np.newaxis] * probabilities)
        hessian = np.einsum("ink,jnk->ij", scaled, spread) + self.ridge * np.eye(4)
        return gradient + self.ridge * (slopes - self.mean), hessian


class _BinaryLogLoss(_LogLoss):
    """The same for two classes, of which the first has the logit zero, in a third of the time."""

    def value(self, slopes: FloatArray) -> float:
        """Return the mean of log(1 + e^z) - t z, plus the ridge; z is the second logit."""
        logits = slopes @ self.pieces[:, :, 1]
        losses = np.logaddexp(0.0, logits) - self.target[:, 1] * logits
        penalty = 0.5 * self.ridge * np.sum((slopes - self.mean) ** 2)
        return float(np.einsum("n,n->", self.weights, losses) + penalty)

    def derivatives(self, slopes: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the gradient and the Hessian."""
        pieces = self.pieces[:, :, 1]
        probabilities = expit(slopes @ pieces)
        excess = self.weights * (probabilities - self.target[:, 1])
        curvature = self.weights * probabilities * (1.0 - probabilities)
        gradient = np.einsum("jn,n->j", pieces, excess) + self.ridge * (slopes - self.mean)
        hessian = np.einsum("in,jn->ij", pieces * curvature, pieces) + self.ridge * np.eye(4)
        return gradient, hessian


def _minimised(
    loss: _LogLoss, bounds: tuple[float, float], tol: float = 1e-13, max_iter: int = 100
) -> FloatArray:
    """Return the minimiser within bounds, by projected Newton steps from the mean of the prior.

    Stops at a Newton decrement of `tol`. A slope at a bound at which the loss would decrease only
    outside is fixed for a step. Without a score on a piece its slope is the mean of the prior.
    """
    low, high = bounds
    slopes = np.full(4, loss.mean)
    value = loss.value(slopes)
    for _ in range(max_iter):
        gradient, hessian = loss.derivatives(slopes)
        is_fixed = ((slopes <= low) & (gradient > 0)) | ((slopes >= high) & (gradient < 0))
        free = np.flatnonzero(~is_fixed)
        step = np.zeros(4)
        # A singular Hessian, of scores that all but a few weights leave out, has many solutions.
        step[free] = np.linalg.lstsq(hessian[np.ix_(free, free)], -gradient[free], rcond=None)[0]
        # Where all probabilities are zero or one the Hessian is small, and the step too long.
        step *= min(1.0, high / max(1e-100, np.abs(step).max()))
        if -(gradient @ step) <= tol:
            break
        for factor in 0.5 ** np.arange(40):
            trial = np.clip(slopes + factor * step, low, high)
            trial_value = loss.value(trial)
            if trial_value <= value + 1e-4 * (gradient @ (trial - slopes)):
                break
        else:
            break  # the decrease is below rounding
        slopes, value = trial, trial_value
    return slopes


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
    """The link of a loss: the probabilities whose optimal scores are given."""

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
