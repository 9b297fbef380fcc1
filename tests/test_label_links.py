"""Links of several labels: logistic fits in bins, and the decision that maximises F1."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from scipy.special import expit, log_expit
from sklearn.metrics import f1_score, log_loss

from marginpursuit.classifiers._label_links import LabelLinks


def sample(n_rows=1500, n_labels=4, seed=0):
    """Return scores, labels with the probabilities of known logistic links, and counts."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(-0.5, 0.8, size=(n_rows, n_labels))
    slopes, offsets = rng.uniform(2.0, 5.0, n_labels), rng.uniform(-2.0, 1.0, n_labels)
    is_positive = rng.random(scores.shape) < expit(slopes * scores + offsets)
    return scores, is_positive, rng.integers(1, 3, n_rows).astype(float)


def brute_force(scores, is_positive, counts, prior=(3.0, 2.0)):
    """Return slope and offset of one label by a general minimiser, without bins."""
    n_positive, n_negative = counts @ is_positive, counts @ ~is_positive
    target = np.where(is_positive, (n_positive + 1) / (n_positive + 2), 1 / (n_negative + 2))

    def value(point):
        z = point[0] * scores + point[1]
        losses = -(target * log_expit(z) + (1 - target) * log_expit(-z))
        return counts @ losses + 0.5 * ((point[0] - prior[0]) / prior[1]) ** 2

    return minimize(value, [3.0, 0.0], tol=1e-10).x


@pytest.mark.parametrize("margin", [1.0, 1e-3, 50.0])
def test_logistic_fits(margin):
    scores, is_positive, counts = sample()
    links, loss = LabelLinks.fit(margin * scores, is_positive, counts, margin)
    for k in range(scores.shape[1]):
        slope, offset = brute_force(scores[:, k], is_positive[:, k], counts)
        assert_allclose(links.slopes[k] * margin, slope, rtol=3e-3)  # bins are 1/32 margins wide
        found = links.offset - links.slopes[k] * links.thresholds[k]
        assert_allclose(found, offset, atol=5e-3)
    proba = links.probabilities(margin * scores - links.thresholds)
    expected = np.mean(
        [log_loss(y, p, sample_weight=counts) for y, p in zip(is_positive.T, proba.T, strict=True)]
    )
    assert_allclose(loss, expected, rtol=1e-3)


def test_decisions_maximise_f1():
    scores, is_positive, counts = sample()
    links, _ = LabelLinks.fit(scores, is_positive, counts, 1.0)
    proba = links.probabilities(scores - links.thresholds)
    values = [
        f1_score(is_positive, proba > level, average="micro", sample_weight=counts)
        for level in np.linspace(0.05, 0.9, 200)
    ]
    assert_allclose(links.decision_probability, 0.5 * max(values), atol=5e-3)
    assert_array_equal(scores - links.thresholds > 0, proba > links.decision_probability)
    found = f1_score(is_positive, scores > links.thresholds, average="micro", sample_weight=counts)
    assert found > max(values) - 0.01


def test_labels_that_scores_do_not_explain_are_not_predicted_everywhere():
    rng = np.random.default_rng(0)
    scores, is_positive = rng.normal(-1, 0.1, (1000, 5)), rng.random((1000, 5)) < 0.03
    links, _ = LabelLinks.fit(scores, is_positive, np.ones(1000), 1.0)
    assert np.mean(scores > links.thresholds) < 0.05


@pytest.mark.parametrize("value", [False, True])
@pytest.mark.parametrize("spread", [0.0, 1e-9, 100.0])
def test_constant_labels(value, spread):
    scores = spread * np.random.default_rng(0).normal(size=(50, 3)) + (1.0 if value else -1.0)
    links, loss = LabelLinks.fit(scores, np.full((50, 3), value), np.ones(50), 1.0)
    assert np.all(np.isfinite(links.thresholds))
    assert np.all(links.slopes > 0)
    assert loss < 0.2
    assert_array_equal(np.mean(scores > links.thresholds, axis=0) > 0.5, value)


def test_repeated_rows_are_weights():
    scores, is_positive, counts = sample(300)
    rows = np.repeat(np.arange(300), counts.astype(int))
    weighted, _ = LabelLinks.fit(scores, is_positive, counts, 1.0)
    repeated, _ = LabelLinks.fit(scores[rows], is_positive[rows], np.ones(len(rows)), 1.0)
    assert_allclose(weighted.slopes, repeated.slopes, rtol=1e-9)
    assert_allclose(weighted.thresholds, repeated.thresholds, rtol=1e-9, atol=1e-12)
