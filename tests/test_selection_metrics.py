"""Metrics of the search against those of scikit-learn, and the cost of its links."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from scipy.special import log_softmax
from searches import GRID, three_classes, two_classes
from sklearn.metrics import get_scorer, log_loss, make_scorer

from marginpursuit import MarginPursuitClassifierCV
from marginpursuit.classifiers._link import (
    FittedLink,
    _BinaryLogLoss,
    _LogLoss,
    _minimised,
    _pieces,
)
from marginpursuit.selection.metrics import fast_metric
from marginpursuit.selection.scoring import HeldOutScorer, PrecomputedScores
from marginpursuit.tasks import Labels

NAMES = ["accuracy", "balanced_accuracy", "neg_log_loss", "neg_brier_score", "roc_auc"]


def held_out(n_classes, seed=0):
    """Return codes, scores with ties, and a link."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(80, 1 if n_classes == 2 else n_classes)).round(1)
    return rng.integers(0, n_classes, 80), scores, FittedLink(1.0, np.array([1.0, 2, 3, 0.5]))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("name", [*NAMES, "roc_auc_ovr"])
def test_metrics_equal_those_of_scikit_learn(name, n_classes, weighted):
    scorer = get_scorer(name)
    if fast_metric(scorer, n_classes) is None:
        assert (name, n_classes) in [("roc_auc", 3), ("roc_auc_ovr", 2)]
        return
    codes, scores, link = held_out(n_classes)
    rows = np.arange(len(codes))
    weights = {"sample_weight": rows % 3.0} if weighted else {}
    labels = [0, 1, 2] if name == "neg_brier_score" else ["a", "b", "c"]
    classes = np.array(labels)[:n_classes]
    ours = HeldOutScorer(
        scorer, None, Labels(codes, len(classes)), classes, weights, np.zeros(1), 7
    )
    estimator = PrecomputedScores(classes, scores, link.probabilities)
    expected = scorer(estimator, rows, classes[codes], **weights)
    assert_allclose(ours(scores, rows, link.probabilities), expected, rtol=1e-12)


def test_other_options_are_left_to_scikit_learn():
    assert fast_metric(make_scorer(log_loss, normalize=False), 2) is None
    assert fast_metric(lambda estimator, X, y: 0.0, 2) is None
    codes, scores, link = held_out(3)
    rows = np.flatnonzero(codes < 2)
    ours = HeldOutScorer(
        get_scorer("accuracy"), None, Labels(codes, 3), np.arange(3), {}, np.zeros(1), 7
    )
    expected = np.mean(scores[rows].argmax(axis=1) == codes[rows])
    assert_allclose(ours(scores[rows], rows, link.probabilities), expected)


class TestMinimiser:
    """Projected Newton steps against L-BFGS-B on the documented objective."""

    MEAN, DEVIATION, COUNT = 3.0, 2.0, 40.0

    @classmethod
    def problem(cls, n_classes, spread, kind=_LogLoss, n_rows=60, seed=0):
        rng = np.random.default_rng(seed)
        scores = spread * rng.normal(size=(n_rows, 1 if n_classes == 2 else n_classes))
        best = scores.argmax(axis=1) if n_classes > 2 else (scores[:, 0] > 0).astype(int)
        codes = np.where(rng.random(n_rows) < 0.1, rng.integers(0, n_classes, n_rows), best)
        weights = rng.random(n_rows)
        pieces, target = np.stack(_pieces(scores, 0.1)), np.eye(n_classes)[codes]
        prior = cls.MEAN, cls.DEVIATION, cls.COUNT
        return kind(pieces, target, weights / weights.sum(), *prior)

    @classmethod
    def objective(cls, slopes, loss):
        """The mean log-loss plus Σ_k (a_k - μ)²/(2 n σ²), by SciPy's functions."""
        losses = -np.sum(loss.target * log_softmax(np.tensordot(slopes, loss.pieces, 1), 1), axis=1)
        ridge = np.sum((slopes - cls.MEAN) ** 2) / (2 * cls.COUNT * cls.DEVIATION**2)
        return np.average(losses, weights=loss.weights) + ridge

    @pytest.mark.parametrize("spread", [1e-3, 0.3, 1.0, 5.0, 1e3])
    @pytest.mark.parametrize(
        ("n_classes", "kind"), [(2, _LogLoss), (2, _BinaryLogLoss), (3, _LogLoss), (10, _LogLoss)]
    )
    def test_finds_the_minimum_within_bounds(self, n_classes, kind, spread):
        loss, bounds = self.problem(n_classes, spread, kind), (1e-3, 1e3)
        slopes = _minimised(loss, bounds)
        assert np.all((slopes >= bounds[0]) & (slopes <= bounds[1]))
        found = self.objective(slopes, loss)
        assert_allclose(loss.value(slopes), found, rtol=1e-12)
        for start in (1.0, self.MEAN, 10.0):
            start = np.full(4, start)
            peer = minimize(self.objective, start, loss, method="L-BFGS-B", bounds=[bounds] * 4)
            assert found <= peer.fun + 1e-9
        gradient, hessian = loss.derivatives(slopes)
        is_low, is_high = slopes <= bounds[0], slopes >= bounds[1]
        scale = np.sqrt(1e-12 * np.diag(hessian).max()) + 1e-12
        assert np.all(gradient[~is_low] <= scale)
        assert np.all(gradient[~is_high] >= -scale)

    @pytest.mark.parametrize(("n_classes", "kind"), [(2, _BinaryLogLoss), (3, _LogLoss)])
    def test_derivatives(self, n_classes, kind):
        loss, at = self.problem(n_classes, 1.0, kind), np.array([0.5, 1.5, 2.0, 0.3])
        gradient, hessian = loss.derivatives(at)
        for k, step in enumerate(1e-5 * np.eye(4)):
            value = (self.objective(at + step, loss) - self.objective(at - step, loss)) / 2e-5
            assert_allclose(gradient[k], value, atol=1e-9)
            change = loss.derivatives(at + step)[0] - loss.derivatives(at - step)[0]
            assert_allclose(hessian[k], change / 2e-5, atol=1e-8)

    @pytest.mark.parametrize("kind", [_LogLoss, _BinaryLogLoss])
    def test_a_slope_that_no_score_determines_is_the_mean_of_the_prior(self, kind):
        slopes = _minimised(self.problem(2, 0.1, kind), (1e-3, 1e3))
        assert_allclose(slopes[[0, 3]], self.MEAN, rtol=1e-12)
        assert np.all(np.abs(slopes[[1, 2]] - self.MEAN) > 1e-2)

    @pytest.mark.parametrize("n_classes", [2, 3])
    def test_the_link_minimises_the_documented_objective(self, n_classes):
        """Of its own probabilities; n is the sum of the weights, and γ scales the slopes."""
        rng = np.random.default_rng(1)
        margin, threshold = 0.3, 0.06
        codes, weights = rng.integers(0, n_classes, 80), rng.integers(0, 4, 80).astype(float)
        scores = rng.normal(size=(80, n_classes)) + np.eye(n_classes)[codes]
        scores = 0.4 * (scores[:, [1]] - scores[:, [0]] if n_classes == 2 else scores)

        def objective(scaled):
            proba = FittedLink(margin, scaled / margin, threshold).probabilities(scores)
            losses = -np.log(proba[np.arange(80), codes])
            return (weights @ losses + np.sum((scaled - 3) ** 2) / (2 * 2**2)) / weights.sum()

        link = FittedLink.fit(scores, codes, weights, margin, threshold, max_rows=1000)
        peer = minimize(objective, np.ones(4), method="L-BFGS-B", bounds=[(1e-3, 1e3)] * 4)
        assert objective(margin * link.slopes) <= peer.fun + 1e-12
        assert_allclose(margin * link.slopes, peer.x, rtol=1e-3)


class TestProbabilityScorers:
    """A scorer of probabilities is called with the link of all held-out rows of a candidate."""

    @pytest.mark.parametrize("data", [two_classes, three_classes])
    def test_scores_are_those_of_the_out_of_fold_probabilities(self, data):
        X, y = data()
        cv = [(np.arange(len(y)) % 4 != k, np.arange(len(y)) % 4 == k) for k in range(4)]
        model = MarginPursuitClassifierCV(**GRID, cv=cv, scoring="neg_log_loss").fit(X, y)
        proba = model.out_of_fold_proba_
        expected = [-log_loss(y[test], proba[test]) for _, test in cv]
        found = [model.cv_results_[f"split{k}_test_score"][model.best_index_] for k in range(4)]
        assert_allclose(found, expected, rtol=1e-6)

    def test_one_link_is_fitted_for_each_candidate(self, monkeypatch):
        fits = []
        fit = FittedLink.fit
        monkeypatch.setattr(
            FittedLink, "fit", lambda *args, **kw: fits.append(1) or fit(*args, **kw)
        )
        X, y = two_classes()
        for scoring, expected in [("neg_log_loss", 8 + 1), ("roc_auc", 1), (None, 1)]:
            fits.clear()
            MarginPursuitClassifierCV(**GRID, scoring=scoring).fit(X, y)
            assert len(fits) == expected

    def test_a_callable_may_ask_for_probabilities(self):
        X, y = two_classes()
        model = MarginPursuitClassifierCV(**GRID, scoring="neg_log_loss").fit(X, y)

        def scorer(estimator, X, y):
            return -log_loss(y, estimator.predict_proba(X))

        other = MarginPursuitClassifierCV(**GRID, scoring=scorer).fit(X, y)
        assert other.best_params_ == model.best_params_
        assert_allclose(other.best_score_, model.best_score_, rtol=1e-9)

    def test_on_subsamples_with_shared_fits(self):
        rng = np.random.default_rng(0)
        y = rng.integers(0, 3, 12_000)
        X = rng.normal(size=(12_000, 4)) + np.eye(4)[y]
        grid = {"scales": [1.0], "overconfidences": [0.0], "alphas": [1e1, 1e-4], "cv": 4}
        model = MarginPursuitClassifierCV(**grid, scoring="neg_log_loss", refit=False).fit(X, y)
        # The larger penalty is eliminated on a subsample; with 0.1 the log-losses are equal.
        assert model.cv_results_["n_resources"].min() < len(y)
        assert_allclose(-log_loss(y, model.out_of_fold_proba_), model.best_score_, rtol=1e-3)


def test_memory_of_kept_scores_is_bounded():
    X, y = two_classes()
    model = MarginPursuitClassifierCV(**GRID, threshold="zero")
    full = model.fit(X, y).out_of_fold_scores_
    model._policy = replace(model._policy, max_kept_bytes=4 * 8 * 100)
    thinned = model.fit(X, y).out_of_fold_scores_
    is_kept = np.isfinite(thinned)
    assert 95 <= np.count_nonzero(is_kept) <= 105
    assert_array_equal(thinned[is_kept], full[is_kept])
