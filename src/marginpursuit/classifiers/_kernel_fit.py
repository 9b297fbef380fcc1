r"""Exact kernel fits with the support vectors as landmarks.

For a loss that is zero above the level (``overconfidence=0``) the gradient of the objective at a
score h is

.. math:: \sum_i c_i\, \varphi'(m_i)\, y_i K(x_i, \cdot) + \alpha h,

a combination of the *support vectors*, the rows whose margins are below the level, and of h. If h
minimises the objective over the span of some landmarks, and all support vectors are among them, the
gradient is in the span and therefore zero: h is the minimiser over the whole feature space. Support
vectors are often few. An exact fit to many rows begins with a fit to a sample of landmarks. The
support vectors of a fit, and the rows just above the level, are the landmarks of the next, until no
other row is a support vector.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginpursuit._validation import FloatArray
from marginpursuit.blocks import Blocks
from marginpursuit.classifiers._base import TrainingData
from marginpursuit.classifiers._checkpoint import Checkpoint
from marginpursuit.classifiers._kernel_map import RowScores
from marginpursuit.classifiers._one_vs_one import fit_pairs_of_classes, fits_pairs
from marginpursuit.classifiers._progress import Reporter
from marginpursuit.losses import JointLoss
from marginpursuit.tasks import LabelSets


def fit_with_kernel(
    model: Any,
    data: TrainingData,
    start: RowScores | None = None,
    report: Reporter | None = None,
    checkpoint: Checkpoint | None = None,
) -> None:
    """Fit checked data with a kernel: exactly, with `n_components` landmarks, or pairs of classes.

    `model` is a `MarginPursuitClassifier` with the parameters of the fit; `start` are scores of the
    rows at which the first fit starts.
    """
    if fits_pairs(model, data):
        fit_pairs_of_classes(model, data)
        return
    landmarks, start = _first_landmarks(model, data, start)
    while True:
        mapped, kernel_map = model._mapped(data, landmarks)
        linear = None if start is None else model._mapped_start(kernel_map, start, data)
        model._fit(mapped, linear, report, checkpoint)
        if landmarks is None:
            break
        start = _row_scores(model, mapped)
        landmarks = _next_landmarks(model, mapped, landmarks, start)
        if landmarks is None:
            break
        if checkpoint is not None:
            checkpoint.next_fit()
    model._keep_mapped(kernel_map, mapped)


def _first_landmarks(
    model: Any, data: TrainingData, start: RowScores | None
) -> tuple[NDArray[np.intp] | None, RowScores | None]:
    """Return the landmarks of the first fit, and the scores at which it starts.

    The landmarks are the support vectors at the given scores, or at those of a fit with few
    landmarks. They are None where all rows are to be landmarks.
    """
    policy, n_rows = model._kernel_policy, int(np.count_nonzero(data.weights))
    is_exact = policy.n_landmarks(n_rows, model.n_components) == n_rows
    is_exact &= not isinstance(data.matrix, Blocks)
    if not (is_exact and model.overconfidence == 0 and n_rows >= policy.min_support_rows):
        return None, start
    if start is None:
        changes = {"n_components": policy.n_components, "tol": max(model.tol, policy.first_tol)}
        changes |= {"probability": None, "checkpoint": None, "verbose": 0}
        rough = type(model)(**(model.get_params(deep=False) | changes))
        rough._copy_input_attributes(model)
        mapped, _ = rough._mapped(data)
        rough._fit(mapped)
        start = _row_scores(rough, mapped)
    margins = _least_margins(model, data, start)
    return _within(model, data, margins < policy.support_level), start


def _next_landmarks(
    model: Any, mapped: TrainingData, landmarks: NDArray[np.intp] | None, scores: RowScores
) -> NDArray[np.intp] | None:
    """Return the landmarks of another fit, or None where this fit is exact.

    `model` has been fitted to the features of these landmarks and gives these scores. At a relative
    suboptimality `tol` margins are known to about √tol: rows that are less than that below the
    level are not support vectors.
    """
    if landmarks is None or len(landmarks) == np.count_nonzero(mapped.weights):
        return None
    margins = _least_margins(model, mapped, scores)
    is_landmark = np.zeros(len(margins), dtype=bool)
    is_landmark[landmarks] = True
    if not np.any((margins < 1.0 - np.sqrt(model.tol)) & ~is_landmark & (mapped.weights > 0)):
        return None
    return _within(model, mapped, is_landmark | (margins < model._kernel_policy.support_level))


def _within(model: Any, data: TrainingData, is_support: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return the support vectors of positive weight, or all rows where these are most."""
    used = np.flatnonzero(data.weights > 0)
    support = used[is_support[used]]
    is_few = len(support) <= model._kernel_policy.max_support_fraction * len(used)
    return support if is_few and len(support) else used


def _row_scores(model: Any, data: TrainingData) -> RowScores:
    """Return the scores of the rows by a model that has been fitted to their features."""
    return RowScores(data.matrix @ model.coef_.T, model.intercept_ + model._label_thresholds)


def _least_margins(model: Any, data: TrainingData, at: RowScores) -> FloatArray:
    """Return the least margin of each row over the problems, in levels."""
    scores, labels = at.scores + at.intercept, data.labels
    is_joint = getattr(model, "multi_class_", model.multi_class) != "ovr" and scores.shape[1] > 1
    if is_joint and not isinstance(labels, LabelSets):
        loss = JointLoss.at_level(model._loss(model.margin))  # margins do not depend on the scale
        return np.asarray(loss.margins(scores, labels.codes) / model.margin)
    problems = labels.positive_classes
    margins = [labels.sign(k) * own for k, own in zip(problems, scores.T, strict=True)]
    return np.asarray(np.min(margins, axis=0) / model.margin)
