"""The fitted link, and the threshold above which the second class is predicted."""

import dataclasses

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from searches import GRID, three_classes, two_classes
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold

from marginpursuit import MarginPursuitClassifierCV
from marginpursuit.classifiers._link import FittedLink
from marginpursuit.datasets import contaminate
from marginpursuit.selection.policy import SelectionPolicy
from marginpursuit.selection.scoring import HeldOutScorer
from marginpursuit.tasks import Labels

THRESHOLDS = SelectionPolicy().thresholds


class TestLink:
    """The link that is fitted to out-of-fold scores."""

    @pytest.mark.parametrize("threshold", [0.0, -0.5])
    def test_recovers_the_slopes(self, threshold):
        rng = np.random.default_rng(0)
        scores = rng.normal(scale=2.0, size=(60000, 1))
        truth = FittedLink(1.0, np.array([0.5, 2.0, 3.0, 1.0]), threshold)
        chance = truth.probabilities(scores)[:, 1]
        codes = (rng.random(len(chance)) < chance).astype(np.intp)
        found, _ = FittedLink.fit(
            scores, codes, np.ones(len(codes)), 1.0, threshold, max_rows=60000
        )
        assert_allclose(found.slopes, truth.slopes, atol=0.15)
        assert log_loss(codes, found.probabilities(scores)) <= log_loss(
            codes, truth.probabilities(scores)
        )

    @pytest.mark.parametrize("n_problems", [1, 3])
    def test_agrees_with_the_scores(self, n_problems):
        rng = np.random.default_rng(1)
        scores = rng.normal(size=(500, n_problems))
        codes = rng.integers(0, max(2, n_problems), 500)
        link, _ = FittedLink.fit(scores, codes, np.ones(500), 0.7, max_rows=500)
        chances = link.probabilities(scores)
        assert_allclose(chances.sum(axis=1), 1)
        best = scores.argmax(axis=1) if n_problems > 1 else (scores[:, 0] > 0).astype(int)
        assert_array_equal(chances.argmax(axis=1), best)
        if n_problems == 1:
            order = np.argsort(scores[:, 0])
            assert np.all(np.diff(chances[order, 1]) > 0)

    @pytest.mark.parametrize("n_problems", [1, 3])
    def test_no_probability_is_below_what_the_rows_support(self, n_problems):
        """Scores far beyond the held-out ones: 100 rows leave a quarter of a row to each class."""
        rng = np.random.default_rng(2)
        codes = rng.integers(0, max(2, n_problems), 100)
        means = codes[:, None] == np.arange(n_problems) if n_problems > 1 else codes[:, None] - 0.5
        scores = rng.normal(size=(100, n_problems)) + 4.0 * means
        link, _ = FittedLink.fit(scores, codes, np.ones(100), 1.0, max_rows=100)
        far = link.probabilities(100.0 * scores)
        n_classes = far.shape[1]
        assert link.smoothing == 0.25 / 100.25
        assert far.min() == pytest.approx(link.smoothing / n_classes)
        assert far.max() == pytest.approx(1 - link.smoothing * (n_classes - 1) / n_classes)
        exact = dataclasses.replace(link, smoothing=0.0)
        assert exact.probabilities(100.0 * scores).min() < 1e-16

    def test_knots_are_at_the_levels(self):
        link = FittedLink(2.0, np.array([0.5, 2.0, 3.0, 1.0]), -0.5)
        scores = np.linspace(-4.0, 4.0, 801)
        chances = link.probabilities(scores[:, None])[:, 1]
        slopes = np.diff(np.log(chances / (1 - chances))) / 0.01
        expected = np.select([scores < -1.5, scores < 0, scores < 2.5], [0.5, 2.0, 3.0], 1.0)
        assert_allclose(slopes, expected[:-1], rtol=1e-6)

    def test_certainty_is_bounded(self):
        scores = np.array([[-2.0], [2.0]] * 20)
        codes = np.array([0, 1] * 20)
        link, _ = FittedLink.fit(scores, codes, np.ones(40), 1.0, max_rows=40)
        chances = link.probabilities(scores)
        assert 0.9 < chances[1, 1] < 1 - 1e-3

    def test_is_better_than_the_exact_link_where_that_is_overconfident(self):
        X, y = load_digits(return_X_y=True)
        model = MarginPursuitClassifierCV(scales=[0.3], overconfidences=[0.0], alphas=[1e-4])
        fitted = log_loss(y[1000:], model.fit(X[:1000], y[:1000]).predict_proba(X[1000:]))
        model.set_params(link="exact")
        exact = log_loss(y[1000:], model.fit(X[:1000], y[:1000]).predict_proba(X[1000:]))
        assert fitted < 0.7 * exact


class TestThreshold:
    """The score above which the second class is predicted."""

    @staticmethod
    def scorer(codes, thresholds=THRESHOLDS, **metadata):
        return HeldOutScorer(
            None, None, Labels(codes, 2), np.array([0, 1]), metadata, thresholds, 7
        )

    @staticmethod
    def accuracy(scores, codes, index, margin=1.0, weights=None):
        """Return the smoothed accuracy: a mean with weights 7 - |k| over 13 thresholds."""
        adjacent = np.arange(-6, 7)
        correct = [
            np.average((scores > margin * (index - 49 + k) / 50) == codes, weights=weights)
            for k in adjacent
        ]
        return np.average(correct, weights=7 - abs(adjacent))

    @pytest.mark.parametrize("margin", [1.0, 3e-7, 4e50])
    @pytest.mark.parametrize("weighted", [False, True])
    def test_accuracies_are_those_of_predictions(self, margin, weighted):
        rng = np.random.default_rng(0)
        scores = np.r_[rng.normal(size=500), 0.0, -0.0, 1e-300, -1e-300, np.inf, -np.inf, np.nan]
        codes, scores = rng.integers(0, 2, scores.size), margin * scores
        rows = rng.permutation(scores.size)[:-50]
        weights = rng.random(scores.size) if weighted else None
        metadata = {"sample_weight": weights} if weighted else {}
        ours = self.scorer(codes, margin * THRESHOLDS, **metadata)(
            scores[rows, None, None], rows, [None]
        )[0]
        chosen = None if weights is None else weights[rows]
        expected = [
            self.accuracy(scores[rows], codes[rows], k, margin, chosen)
            for k in range(THRESHOLDS.size)
        ]
        assert_allclose(ours, expected, rtol=1e-12)
        assert np.ptp(ours) > 0.01

    def test_ties_go_to_the_threshold_closest_to_zero(self):
        values = np.full((3, 2, THRESHOLDS.size), 0.5)
        values[1, 0, :20] = 0.9  # in one fold: up to the nineteenth
        values[2, :, [10, 80]] = 0.7
        scores, thresholds = self.scorer(np.zeros(1)).at_best_thresholds(values)
        assert_array_equal(thresholds, THRESHOLDS[[49, 19, 80]])
        # A fold is scored at the threshold of the other one.
        assert_array_equal(scores, [[0.5, 0.5], [0.5, 0.5], [0.7, 0.7]])

    def test_scores_are_those_at_the_best_threshold_of_other_folds(self):
        X, y = two_classes()
        weights = np.random.default_rng(1).integers(0, 3, len(y)).astype(float)
        cv = StratifiedKFold(3, shuffle=True, random_state=2)
        # The unit "inflated" refers to all rows in a search, and to the rows of a fold in a fit.
        options = GRID | {"alpha_unit": "standardised", "tol": 1e-9}
        model = MarginPursuitClassifierCV(**options, cv=cv).fit(X, y, sample_weight=weights)
        assert model.threshold_ == model.cv_results_["threshold"][model.best_index_] != 0
        alone = clone(model.best_estimator_)
        accuracies = np.zeros((3, THRESHOLDS.size))
        for accuracy, (train, test) in zip(accuracies, cv.split(X, y), strict=True):
            scores = alone.fit(X[train], y[train], weights[train]).decision_function(X[test])
            for k in range(THRESHOLDS.size):
                accuracy[k] = self.accuracy(scores, y[test], k, weights=weights[test])
        means = accuracies.mean(axis=0)
        assert_allclose(means[model.threshold_ == THRESHOLDS], means.max())
        # Each fold is scored at the best threshold of the others.
        order = np.argsort(abs(THRESHOLDS), kind="stable")
        others = [np.delete(accuracies, k, axis=0).mean(axis=0)[order] for k in range(3)]
        best = [order[np.argmax(np.round(other, 12))] for other in others]
        expected = accuracies[np.arange(3), best]
        assert_allclose(model.best_score_, expected.mean(), rtol=1e-12)
        assert expected.mean() <= means.max()

    def test_corrects_an_intercept_that_leverage_rows_shift(self):
        rng = np.random.default_rng(3)
        y = (rng.random(3000) < 0.3).astype(int)
        X = rng.normal(size=(3000, 3)) + np.outer(2 * y - 1, [1.0, 0.5, 0.0])
        bad = contaminate(X[:1500], y[:1500], leverage=0.05, random_state=0)
        model = MarginPursuitClassifierCV(
            alphas=[1e-3, 1e-5], scales=[1.0, 0.1], leverage_bound=None
        )
        ours = model.fit(bad.X, bad.y).score(X[1500:], y[1500:])
        zero = clone(model).set_params(threshold="zero").fit(bad.X, bad.y)
        assert zero.threshold_ == 0.0
        assert_array_equal(zero.intercept_, zero.best_estimator_.intercept_)
        assert ours > zero.score(X[1500:], y[1500:]) + 0.03
        assert model.best_score_ > zero.best_score_
        scores = model.best_estimator_.decision_function(X) - model.threshold_
        assert_allclose(model.decision_function(X), scores, atol=1e-12)
        # The link is that of the shifted scores.
        assert_array_equal(model.predict_proba(X).argmax(axis=1), model.predict(X))
        assert log_loss(y[1500:], model.predict_proba(X[1500:])) < log_loss(
            y[1500:], zero.predict_proba(X[1500:])
        )

    def test_its_unit_is_the_margin(self):
        X, y = two_classes()
        grid = {"alphas": [1e-1], "overconfidences": [1.0]}
        one = MarginPursuitClassifierCV(**grid, scales=[0.5], tol=1e-6).fit(X, y)
        ten = MarginPursuitClassifierCV(**grid, scales=[5.0], margin=10.0, tol=1e-6).fit(X, y)
        assert one.threshold_ != 0
        assert_allclose(ten.threshold_, 10 * one.threshold_)
        assert_array_equal(one.predict(X), ten.predict(X))

    @pytest.mark.parametrize(
        ("data", "options"),
        [
            (three_classes, {}),
            (two_classes, {"scoring": "accuracy"}),
            (two_classes, {"fit_intercept": False}),
            (two_classes, {"threshold": "zero"}),
            (two_classes, {"link": "exact"}),
            (two_classes, {"class_weight": "balanced"}),
        ],
    )
    def test_is_zero_where_it_does_not_apply(self, data, options):
        model = MarginPursuitClassifierCV(**GRID, **options).fit(*data())
        assert model.threshold_ == 0.0
        assert not model.cv_results_["threshold"].any()
        assert_array_equal(model.intercept_, model.best_estimator_.intercept_)
