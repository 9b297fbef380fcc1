"""The link from scores to probabilities, by NumPy; the methods are those of the files of C."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginpursuit._namespaces import namespace
from marginpursuit._validation import FloatArray


def link_slopes(
    scores: FloatArray,
    codes: NDArray[np.intp],
    weights: FloatArray,
    threshold: float,
    mean: float,
    ridge: float,
    bounds: tuple[float, float],
) -> tuple[FloatArray, float]:
    """Return the four slopes of a link, and its mean log-loss.

    Parameters
    ----------
    scores : ndarray of shape (n_rows, n_scores)
        In units of the margin, as the threshold is. With one score there are two classes, of which
        the first has the score zero.
    codes : ndarray of shape (n_rows,)
        Classes of the rows.
    weights : ndarray of shape (n_rows,)
        Weights of the rows, with sum one.
    threshold : float
        The knots are 0 and ± 1 less the threshold.
    mean, ridge : float
        The objective is the mean log-loss plus ridge (slope - mean)²/2 for each slope.
    bounds : tuple of float
        Bounds of the slopes.

    Returns
    -------
    slopes : ndarray of shape (4,)
        The minimiser, by projected Newton steps from the mean.
    log_loss : float
        The mean log-loss, without the ridge.
    """
    pieces = np.stack(link_pieces(scores, threshold))
    n_rows, n_classes = pieces.shape[1:]
    target = np.zeros((n_rows, n_classes))
    target[np.arange(n_rows), codes] = 1.0
    loss = LogLoss(pieces, target, weights, mean, ridge)
    slopes = _minimised(loss, bounds)
    return slopes, loss.log_loss(slopes)


def link_pieces(scores: Any, threshold: float) -> list[Any]:
    """Return the pieces of scores that the four slopes multiply, each (n_rows, n_classes).

    They are arrays of the library of the scores. With two classes, the score is that of the second,
    and that of the first is zero.
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
class LogLoss:
    """The log-loss of targets, and the ridge, as a function of the four slopes.

    Sums over rows are by `einsum`: BLAS threads cost more than these products with four rows.
    """

    pieces: FloatArray  # (4, n_rows, n_classes)
    target: FloatArray  # (n_rows, n_classes), probabilities
    weights: FloatArray  # (n_rows,), sum one
    mean: float
    ridge: float

    def log_loss(self, slopes: FloatArray) -> float:
        """Return the mean of -Σ_k t_k log p_k."""
        logits = np.einsum("j,jnk->nk", slopes, self.pieces)
        highest = logits.max(axis=1)
        total = np.exp(logits - highest[:, np.newaxis]).sum(axis=1)
        losses = highest + np.log(total) - np.einsum("nk,nk->n", self.target, logits)
        return float(np.einsum("n,n->", self.weights, losses))

    def value(self, slopes: FloatArray) -> float:
        """Return the log-loss plus the ridge."""
        return self.log_loss(slopes) + 0.5 * self.ridge * float(np.sum((slopes - self.mean) ** 2))

    def derivatives(self, slopes: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the gradient and the Hessian of the value."""
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


def _minimised(
    loss: LogLoss, bounds: tuple[float, float], tol: float = 1e-13, max_iter: int = 100
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
        # With few rows of positive weight the Hessian may be singular: the shortest solution.
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


def coupled(logits: FloatArray, n_classes: int, limit: float) -> FloatArray:
    """Return logarithms of the probabilities of classes, from those of pairs of classes.

    `coupling.c` states the method.

    Parameters
    ----------
    logits : ndarray of shape (n_rows, n_classes * (n_classes - 1) / 2)
        Logits of the first class of each pair, in the order (0, 1), (0, 2), to (K - 2, K - 1).
    n_classes : int
        The number K of classes.
    limit : float
        The bound of the absolute logits.

    Returns
    -------
    ndarray of shape (n_rows, n_classes)
        The logarithms, less their mean.
    """
    first, second = np.triu_indices(n_classes, 1)
    pairs = np.zeros((len(logits), n_classes, n_classes))
    pairs[:, first, second] = 1.0 / (1.0 + np.exp(-np.clip(logits, -limit, limit)))
    pairs[:, second, first] = 1.0 - pairs[:, first, second]
    matrix = 1.0 - pairs * pairs.swapaxes(1, 2)
    every = np.arange(n_classes)
    matrix[:, every, every] = 1.0 + np.sum(pairs**2, axis=1)
    logs = np.log(np.linalg.solve(matrix, np.ones((len(logits), n_classes, 1)))[:, :, 0])
    return np.asarray(logs - logs.mean(axis=1, keepdims=True))
