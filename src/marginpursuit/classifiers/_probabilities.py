"""Probabilities from the scores of several problems, by the exact link of the loss."""

from typing import Any

import numpy as np
from sklearn.utils import gen_batches

from marginpursuit._namespaces import namespace
from marginpursuit._validation import FloatArray
from marginpursuit.calibration import probability
from marginpursuit.losses import MarginLoss

# What the chance of the highest score is raised by. The link has flat parts: this little decides
# ties there by the score, and rows that no class claims.
_TIE = 1e-12

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
    chances[np.arange(len(scores)), scores.argmax(axis=1)] += _TIE
    chances /= chances.sum(axis=1, keepdims=True)
    return chances


def array_probabilities(scores: Any, margin: float, scale: float) -> Any:
    """Do as `exact_probabilities` does, where the scores are; in float64."""
    xp = namespace(scores)
    scores = xp.astype(scores, xp.float64)
    if scores.shape[1] == 1:
        scores = xp.concat([-scores, scores], axis=1)
    chances = MarginLoss(margin, scale).link(scores)
    highest = xp.argmax(scores, axis=1)[:, None]
    classes = xp.arange(scores.shape[1], dtype=highest.dtype, device=scores.device)
    chances = chances + _TIE * xp.astype(highest == classes[None, :], xp.float64)
    return chances / xp.sum(chances, axis=1)[:, None]
