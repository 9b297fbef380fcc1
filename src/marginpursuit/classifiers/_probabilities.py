"""Probabilities of the classes from scores, by the exact link of the loss."""

from typing import Any

import numpy as np
from sklearn.utils import gen_batches

from marginpursuit._namespaces import namespace
from marginpursuit.losses import JointLoss, MarginLoss


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
