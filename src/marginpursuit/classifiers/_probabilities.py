"""Probabilities from the scores of several problems, by the exact link of the loss."""

import numpy as np
from sklearn.utils import gen_batches

from marginpursuit._validation import FloatArray
from marginpursuit.calibration import probability

# Rows whose scores are turned into probabilities at a time, so that intermediate arrays stay small.
_LINK_ROWS = 1 << 13


def exact_probabilities(scores: FloatArray, margin: float, scale: float) -> FloatArray:
    """Return probabilities of each class from scores of shape (n_rows, n_problems).

    With several classes, the probabilities of each against the rest are divided by their sum.
    """
    if scores.shape[1] == 1:
        scores = np.hstack([-scores, scores])
    chances = np.empty_like(scores)
    for rows in gen_batches(len(scores), _LINK_ROWS):
        chances[rows] = probability(scores[rows], margin, scale)
    # The link has flat parts. This little decides ties there by the score, and rows that no class
    # claims.
    chances[np.arange(len(scores)), scores.argmax(axis=1)] += 1e-12
    chances /= chances.sum(axis=1, keepdims=True)
    return chances
