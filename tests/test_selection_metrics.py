"""Metrics of the search against those of scikit-learn, and the cost of its links."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from scipy.special import log_softmax
from searches import GRID, three_classes, two_classes
from sklearn.metrics import get_scorer, log_loss, make_scorer

from marginpursuit import MarginPursuitClassifierCV, _kernels
from marginpursuit._kernels._link import LogLoss, link_pieces, link_slopes
from marginpursuit.classifiers._link import FittedLink
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
    assert_allclose(ours(scores[:, None], rows, [link.probabilities]), expected, rtol=1e-12)


@pytest.mark.filterwarnings("ignore:y_pred contains classes not in y_true")
@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_class_without_weight_has_no_part_in_the_balanced_accuracy(n_classes):
    codes, scores, link = held_out(n_classes)
    weights, classes = 1.0 * (codes != 1), np.arange(n_classes)
    scorer = get_scorer("balanced_accuracy")
    ours = HeldOutScorer(
        *(scorer, None, Labels(codes, n_classes), classes, {"sample_weight": weights}),
        *(np.zeros(1), 7),
    )
    estimator = PrecomputedScores(classes, scores, link.probabilities)
    expected = scorer(estimator, codes[:, None], codes, sample_weight=weights)
    found = ours(scores[:, None], np.arange(80), [link.probabilities])
    assert_allclose(found, expected, rtol=1e-12)
    assert 0 < expected < 1


def test_other_options_are_left_to_scikit_learn():
    assert fast_metric(make_scorer(log_loss, normalize=False), 2) is None
    assert fast_metric(lambda estimator, X, y: 0.0, 2) is None
    codes, scores, link = held_out(3)
    rows = np.flatnonzero(codes < 2)
    ours = HeldOutScorer(
        get_scorer("accuracy"), None, Labels(codes, 3), np.arange(3), {}, np.zeros(1), 7
    )
    expected = np.mean(scores[rows].argmax(axis=1) == codes[rows])
    assert_allclose(ours(scores[rows, None], rows, [link.probabilities]), expected)


class TestMinimiser:
    """Projected Newton steps, compiled and by NumPy, against L-BFGS-B."""

    MEAN, RIDGE, THRESHOLD, BOUNDS = 3.0, 1.0 / (40.0 * 2.0**2), 0.1, (1e-3, 1e3)
    KINDS = tuple({_kernels.link_slopes, link_slopes})

    @staticmethod
    def problem(n_classes, spread, n_rows=60, seed=0):
        rng = np.random.default_rng(seed)
        scores = spread * rng.normal(size=(n_rows, 1 if n_classes == 2 else n_classes))
        best = scores.argmax(axis=1) if n_classes > 2 else (scores[:, 0] > 0).astype(int)
        codes = np.where(rng.random(n_rows) < 0.1, rng.integers(0, n_classes, n_rows), best)
        weights = rng.random(n_rows)
        return scores, codes, weights / weights.sum()

    @classmethod
    def log_loss(cls, slopes, scores, codes, weights):
        """The mean log-loss by SciPy's functions; the pieces as the documentation states them."""
        low, high = -1.0 - cls.THRESHOLD, 1.0 - cls.THRESHOLD
        u = scores if scores.shape[1] > 1 else np.hstack([np.zeros_like(scores), scores])
        pieces = [np.minimum(u - low, 0), np.clip(u, low, 0), np.clip(u, 0, high)]
        pieces.append(np.maximum(u - high, 0))
        logits = np.tensordot(slopes, pieces, 1)
        return -weights @ log_softmax(logits, axis=1)[np.arange(len(u)), codes]

    @classmethod
    def objective(cls, slopes, *problem):
        """The mean log-loss plus the ridge."""
        return cls.log_loss(slopes, *problem) + 0.5 * cls.RIDGE * np.sum((slopes - cls.MEAN) ** 2)

    @classmethod
    def fitted(cls, kind, problem):
        slopes, log_loss = kind(*problem, cls.THRESHOLD, cls.MEAN, cls.RIDGE, cls.BOUNDS)
        return np.array(slopes), log_loss

    @pytest.mark.parametrize("spread", [1e-3, 0.3, 1.0, 5.0, 1e3])
    @pytest.mark.parametrize("n_classes", [2, 3, 10])
    @pytest.mark.parametrize("kind", KINDS)
    def test_finds_the_minimum_within_bounds(self, kind, n_classes, spread):
        problem, (low, high) = self.problem(n_classes, spread), self.BOUNDS
        slopes, log_loss = self.fitted(kind, problem)
        assert np.all((slopes >= low) & (slopes <= high))
        assert_allclose(log_loss, self.log_loss(slopes, *problem), rtol=1e-12)
        found = self.objective(slopes, *problem)
        for start in (1.0, self.MEAN, 10.0):
            peer = minimize(
                lambda point: self.objective(point, *problem),
                np.full(4, start),
                method="L-BFGS-B",
                bounds=[self.BOUNDS] * 4,
            )
            assert found <= peer.fun + 1e-9

    @pytest.mark.parametrize("spread", [0.3, 1.0, 5.0])
    @pytest.mark.parametrize("n_classes", [2, 3, 10])
    def test_both_kinds_find_the_same_slopes(self, n_classes, spread):
        found = [self.fitted(kind, self.problem(n_classes, spread))[0] for kind in self.KINDS]
        assert_allclose(found[0], found[-1], rtol=1e-5, atol=1e-5)

    @pytest.mark.parametrize("n_classes", [2, 3])
    def test_derivatives(self, n_classes):
        scores, codes, weights = self.problem(n_classes, 1.0)
        pieces = np.stack(link_pieces(scores, self.THRESHOLD))
        loss = LogLoss(pieces, np.eye(n_classes)[codes], weights, self.MEAN, self.RIDGE)
        at = np.array([0.5, 1.5, 2.0, 0.3])
        gradient, hessian = loss.derivatives(at)
        for k, step in enumerate(1e-5 * np.eye(4)):
            ends = [self.objective(at + sign * step, scores, codes, weights) for sign in (1, -1)]
            assert_allclose(gradient[k], (ends[0] - ends[1]) / 2e-5, atol=1e-9)
            change = loss.derivatives(at + step)[0] - loss.derivatives(at - step)[0]
            assert_allclose(hessian[k], change / 2e-5, atol=1e-8)

    @pytest.mark.parametrize("kind", KINDS)
    def test_a_slope_that_no_score_determines_is_the_mean_of_the_prior(self, kind):
        slopes, _ = self.fitted(kind, self.problem(2, 0.1))
        assert_allclose(slopes[[0, 3]], self.MEAN, rtol=1e-12)
        assert np.all(np.abs(slopes[[1, 2]] - self.MEAN) > 1e-2)

    @pytest.mark.parametrize("kind", KINDS)
    def test_a_singular_hessian(self, kind):
        """Without a ridge, scores on one piece leave the other slopes undetermined."""
        scores, codes, weights = self.problem(2, 0.1)
        slopes, _ = kind(scores, codes, weights, self.THRESHOLD, self.MEAN, 0.0, self.BOUNDS)
        assert np.all(np.isfinite(slopes))
        assert_allclose(np.array(slopes)[[0, 3]], self.MEAN, rtol=1e-12)

    @pytest.mark.skipif(_kernels._compiled is None, reason="installed without compiled kernels")
    @pytest.mark.parametrize(
        ("changes", "error"),
        [
            ({"codes": np.array([0, 2])}, IndexError),
            ({"codes": np.array([0, -1])}, IndexError),
            ({"codes": np.array([0])}, ValueError),
            ({"weights": np.array([1.0])}, ValueError),
            ({"scores": np.empty((0, 1))}, ValueError),
        ],
    )
    def test_the_kernel_refuses_arrays_of_another_shape(self, changes, error):
        given = {
            "scores": np.array([[0.5], [-0.5]]),
            "codes": np.array([0, 1]),
            "weights": np.array([0.5, 0.5]),
        }
        with pytest.raises(error):
            _kernels.link_slopes(*(given | changes).values(), 0.0, 3.0, 0.1, self.BOUNDS)

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

        link, _ = FittedLink.fit(scores, codes, weights, margin, threshold, max_rows=1000)
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
