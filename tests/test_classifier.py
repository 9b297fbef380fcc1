"""MarginPursuitClassifier: the minimum, the scale, its statistics and weights."""

import numpy as np
import pytest
from classifier_data import CANCER, IRIS, noisy, objective
from scipy import sparse
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.multiclass import OneVsRestClassifier

from marginpursuit import MarginPursuitClassifier
from marginpursuit.calibration import probability
from marginpursuit.classifiers import margin_pursuit
from marginpursuit.classifiers._link import exact_probabilities
from marginpursuit.classifiers._margins import Margins
from marginpursuit.location import catoni_location
from marginpursuit.losses import JointLoss, MarginLoss
from marginpursuit.tasks import Labels

SETTINGS = [
    {"margin": 1.0, "scale": 1.0, "overconfidence": 1.0},
    {"margin": 2.0, "scale": 0.7, "overconfidence": 0.3},
    {"margin": 0.5, "scale": 0.4, "overconfidence": 0.0},
    {"margin": 1.0, "scale": 50.0, "overconfidence": 1.0},
]


# --- the minimum ---------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("alpha", ["negligible", 0.0, 0.02, 3.0])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_the_fit_minimises_the_stated_objective(setting, alpha, fit_intercept):
    X, y = noisy(150, 3)
    weights = np.random.default_rng(1).uniform(0.2, 2.0, len(y))
    model = MarginPursuitClassifier.as_published(
        alpha=alpha, fit_intercept=fit_intercept, tol=1e-12, **setting
    )
    model.fit(X, y, sample_weight=weights)
    centre = np.average(X, axis=0, weights=weights) if fit_intercept else np.zeros(3)
    spread = np.sqrt(np.average((X - centre) ** 2, axis=0, weights=weights))
    penalty = 1e-6 * spread**2 if alpha == "negligible" else np.full(3, alpha)

    def value(point):
        # In standardised coordinates, for the sake of the other minimiser only.
        coef = point[:3] / spread
        intercept = point[3] - centre @ coef if fit_intercept else 0.0
        return objective(coef, intercept, X, 2.0 * y - 1.0, weights, penalty=penalty, **setting)

    found = np.append(model.coef_[0] * spread, model.intercept_[0] + centre @ model.coef_[0])
    assert model.objective_ == pytest.approx(value(found), rel=1e-12)
    assert model.scale_ == setting["scale"]
    if not fit_intercept:
        assert model.intercept_ == 0
    for start in (np.zeros(4), found):
        other = minimize(value, start, method="BFGS", options={"gtol": 1e-9})
        assert model.objective_ <= other.fun * (1 + 1e-11)
    np.testing.assert_allclose(
        X @ model.coef_[0] + model.intercept_[0],
        X @ (other.x[:3] / spread) + (other.x[3] - centre @ (other.x[:3] / spread)) * fit_intercept,
        atol=1e-4,
    )


@pytest.mark.parametrize("solver", ["gram", "lbfgs", "steepest"])
def test_solvers_agree(solver):
    X, y = noisy(300, 4)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    setting = {"scale": 1.0, "alpha": 0.01, "tol": 1e-12, "max_iter": 2000}
    reference = MarginPursuitClassifier(**setting).fit(X, y)
    other = MarginPursuitClassifier(solver=solver, **setting).fit(X, y)
    np.testing.assert_allclose(other.coef_, reference.coef_, atol=1e-6)


def test_the_intercept_is_not_penalised():
    X, _ = noisy()
    y = np.arange(len(X)) % 8 == 0
    model = MarginPursuitClassifier(margin=3.0, alpha=1e12, scale=1e4, tol=1e-12).fit(X, y)
    np.testing.assert_allclose(model.coef_, 0, atol=1e-9)
    # Quadratic loss and no coefficients: the mean of the labels, times the margin.
    assert model.intercept_[0] == pytest.approx(3.0 * (1 / 8 - 7 / 8), rel=1e-6)


def test_only_the_ratio_of_scale_to_margin_matters():
    X, y = CANCER
    for factor in (1e-3, 7.0):
        one = MarginPursuitClassifier(margin=1.0, scale=0.8, tol=1e-10).fit(X, y)
        other = MarginPursuitClassifier(margin=factor, scale=0.8 * factor, tol=1e-10).fit(X, y)
        np.testing.assert_allclose(other.coef_, factor * one.coef_, rtol=1e-3, atol=1e-7 * factor)
        np.testing.assert_allclose(other.predict_proba(X), one.predict_proba(X), atol=1e-4)


def test_several_classes_are_separate_binary_fits():
    X, y = IRIS
    model = MarginPursuitClassifier.as_published(scale=1.5, tol=1e-10).fit(X, y)
    assert model.coef_.shape == (3, 4)
    assert model.intercept_.shape == (3,)
    total = 0.0
    for k in range(3):
        single = MarginPursuitClassifier.as_published(scale=1.5, tol=1e-10).fit(X, y == k)
        np.testing.assert_allclose(model.coef_[k], single.coef_[0], rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(model.margin_location_[k], single.margin_location_[0], rtol=1e-5)
        total += single.objective_
    assert model.objective_ == pytest.approx(total, rel=1e-8)
    other = OneVsRestClassifier(MarginPursuitClassifier.as_published(scale=1.5, tol=1e-10)).fit(
        X, y
    )
    np.testing.assert_array_equal(model.predict(X), other.predict(X))


# --- the scale -----------------------------------------------------------------------------------


def weighted_quantile(values, weights, level):
    """The quantile of the values, each repeated as often as its (whole) weight says."""
    return np.quantile(np.repeat(values, weights), level, method="averaged_inverted_cdf")


def rule_of(name, margins, weights, level):
    """The scale rules, from their definitions and for whole weights."""
    n = weights.sum()
    variances, robust, quantiles = [], [], []
    for column in margins.T:
        repeated = np.repeat(column, weights)
        variances.append(repeated.var())
        low, high = (weighted_quantile(column, weights, q) for q in (0.25, 0.75))
        robust.append(((high - low) / 1.349) ** 2)
        quantiles.append(weighted_quantile(np.abs(column), weights, 0.75) ** 2)
    log_term = 2 * np.log(2 / 0.05)
    return {
        "variance": 2 * np.mean(variances) / level,
        "confidence": np.sqrt(n * np.mean(variances) / log_term),
        "quantile": np.sqrt(n * np.mean(quantiles) / log_term),
        "auto": max(np.sqrt(2) * level, 2 * np.mean(robust) / level),
    }[name]


def margins_of(model, X, y):
    scores = model.decision_function(X)
    if scores.ndim == 1:
        return (np.where(y == model.classes_[1], 1, -1) * scores)[:, np.newaxis]
    if model.multi_class_ == "joint":
        loss = JointLoss.at_level(MarginLoss(model.margin, overconfidence=0.0))
        return loss.margins(scores, np.searchsorted(model.classes_, y))[:, np.newaxis]
    return np.where(y[:, np.newaxis] == model.classes_, scores, -scores)


@pytest.mark.parametrize("name", ["auto", "variance", "confidence", "quantile"])
@pytest.mark.parametrize("overconfidence", [1.0, 0.0])
@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("margin", [1.0, 0.2])
def test_a_scale_rule_gives_its_scale_back(name, overconfidence, n_classes, margin):
    X, y = noisy(n_classes=n_classes)
    weights = np.random.default_rng(0).integers(0, 4, len(y))
    model = MarginPursuitClassifier(
        leverage_bound=None, margin=margin, scale=name, overconfidence=overconfidence
    )
    model.fit(X, y, sample_weight=weights)
    wanted = rule_of(name, margins_of(model, X, y), weights, margin)
    assert model.scale_ == pytest.approx(wanted, rel=0.021)


def test_auto_is_above_its_least_scale_on_spread_out_margins():
    X, _ = noisy()
    model = MarginPursuitClassifier.as_published(overconfidence=0.0).fit(
        X, X[:, 0] > X[:, 0].mean()
    )
    assert model.scale_ > 2.0


def test_a_scale_rule_that_does_not_settle_is_warned_of(monkeypatch):
    X, y = CANCER
    monkeypatch.setitem(
        margin_pursuit.SCALE_RULES,
        "variance",
        lambda margins, seen=[1.0]: seen.append(0) or len(seen) ** 2,
    )
    with pytest.warns(ConvergenceWarning, match="no fixed point.*'variance'.*Set scale to"):
        MarginPursuitClassifier(scale="variance").fit(X, y)


# --- what is reported ----------------------------------------------------------------------------


def margins_with(weights, n_classes, seed=0):
    """Margins of scores drawn at random, as the classifier sees them."""
    rng = np.random.default_rng(seed)
    labels = Labels(rng.integers(0, n_classes, len(weights)), n_classes)
    scores = rng.standard_t(5, size=(len(weights), len(labels.positive_classes)))
    return Margins.from_scores(scores, labels, weights / weights.sum(), weights.sum(), 1.0)


def assert_statistics(found, margins, scale):
    """Compare statistics with those of margins of equal weight."""
    np.testing.assert_allclose(found.mean, margins.mean(axis=0))
    np.testing.assert_allclose(found.variance, margins.var(axis=0))
    third = ((margins - margins.mean(axis=0)) ** 3).mean(axis=0)
    np.testing.assert_allclose(found.skewness, third / margins.std(axis=0) ** 3, rtol=1e-9)
    location = [catoni_location(column, scale) for column in margins.T]
    np.testing.assert_allclose(found.location, location, rtol=1e-12)
    levels = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
    np.testing.assert_allclose(
        found.quantiles,
        np.quantile(margins, levels, axis=0, method="averaged_inverted_cdf"),
        rtol=1e-12,
    )


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_margin_statistics_are_those_of_the_margins(n_classes, weighted):
    X, y = noisy(n_classes=n_classes)
    weights = np.random.default_rng(0).integers(0, 4, len(y)) if weighted else np.ones(len(y), int)
    model = MarginPursuitClassifier(leverage_bound=None).fit(
        X, y, sample_weight=weights if weighted else None
    )
    margins = np.repeat(margins_of(model, X, y), weights, axis=0)
    assert_statistics(model.margin_statistics_, margins, model.scale_)
    np.testing.assert_array_equal(model.margin_location_, model.margin_statistics_.location)


@pytest.mark.parametrize("scale", [1e-5, 0.7, 1e3])
@pytest.mark.parametrize("weighted", [False, True])
def test_statistics_of_margins(weighted, scale):
    weights = np.random.default_rng(1).integers(0, 4, 400) if weighted else np.ones(400, int)
    margins = margins_with(weights, 3)
    counted = np.repeat(margins.values, weights[weights > 0], axis=0)
    assert_statistics(margins.statistics(scale), counted, scale)


@pytest.mark.parametrize("n_rows", [1, 2, 3, 4, 7])
def test_statistics_of_few_and_of_equal_margins(n_rows):
    for values in (np.arange(n_rows, dtype=float), np.full(n_rows, -0.3)):
        for scale in (1e-3, 0.1, 10.0):  # at small scales every point of an interval is a root
            margins = Margins(values[:, np.newaxis], np.full(n_rows, 1 / n_rows), n_rows, 1.0)
            found = margins.statistics(scale).location[0]
            expected = catoni_location(values, scale)
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


def test_margins_that_are_not_finite_are_refused():
    for bad in (np.nan, np.inf, -np.inf):
        margins = Margins(np.array([[1.0], [bad], [2.0]]), np.full(3, 1 / 3), 3.0, 1.0)
        with pytest.raises(FloatingPointError, match="not finite"):
            margins.statistics(1.0)


def test_statistics_of_many_problems_do_not_depend_on_their_grouping(monkeypatch):
    margins = margins_with(np.ones(400), 7)
    whole = margins.statistics(0.7)
    monkeypatch.setattr(Margins, "group_elements", 2 * 400)
    grouped = margins.statistics(0.7)
    for name in ("location", "mean", "variance", "skewness", "quantiles"):
        np.testing.assert_allclose(getattr(grouped, name), getattr(whole, name), rtol=1e-12)


@pytest.mark.parametrize("scale", ["auto", 0.3, 5.0])
@pytest.mark.parametrize("margin", [1.0, 0.25])
def test_probabilities_are_the_link_of_the_scores(scale, margin):
    X, y = noisy()
    model = MarginPursuitClassifier.as_published(scale=scale, margin=margin).fit(X, y)
    chances = model.predict_proba(X)
    expected = probability(model.decision_function(X), margin, model.scale_)
    np.testing.assert_allclose(chances[:, 1], expected, atol=2e-12)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0, rtol=1e-15)
    np.testing.assert_array_equal(model.classes_[chances.argmax(axis=1)], model.predict(X))


@pytest.mark.parametrize("scale", ["auto", 0.2])
def test_probabilities_of_several_classes(scale):
    X, y = noisy(n_classes=5)
    model = MarginPursuitClassifier.as_published(scale=scale).fit(X, y)
    far = np.vstack([X, X.mean(axis=0) + 50 * X.std(axis=0) * np.eye(6), X.mean(axis=0) - 1e6])
    chances = model.predict_proba(far)
    single = probability(model.decision_function(far), 1.0, model.scale_)
    claimed = single.sum(axis=1) > 1e-3
    np.testing.assert_allclose(
        chances[claimed], (single / single.sum(axis=1, keepdims=True))[claimed], atol=1e-8
    )
    np.testing.assert_allclose(chances.sum(axis=1), 1.0, rtol=1e-15)
    assert np.all((chances >= 0) & (chances <= 1))
    np.testing.assert_array_equal(model.classes_[chances.argmax(axis=1)], model.predict(far))


def test_long_input_is_linked_in_batches():
    scores = np.random.default_rng(0).normal(size=(569, 3))
    whole, parts = (exact_probabilities(scores, MarginLoss(1.0, 1.5), n) for n in (569, 100))
    np.testing.assert_array_equal(parts, whole)


def test_counts_of_work():
    X, y = CANCER
    model = MarginPursuitClassifier().fit(X, y)
    assert 1 <= model.n_iter_ < model.n_passes_ < 60
    assert isinstance(model.n_iter_, int)
    assert isinstance(model.n_passes_, int)


# --- weights -------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", ["auto", "variance", "confidence", "quantile", 0.7])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
def test_a_weight_is_a_number_of_copies(scale, n_classes, make):
    X, y = noisy(n_classes=n_classes)
    weights = np.random.default_rng(3).integers(0, 4, len(y))
    model = MarginPursuitClassifier(scale=scale, overconfidence=0.5)
    by_weight = clone(model).fit(make(X), y, sample_weight=weights)
    copies = model.fit(make(np.repeat(X, weights, axis=0)), np.repeat(y, weights))
    np.testing.assert_allclose(by_weight.coef_, copies.coef_, rtol=1e-7)
    np.testing.assert_allclose(by_weight.scale_, copies.scale_, rtol=1e-9)
    np.testing.assert_allclose(by_weight.margin_location_, copies.margin_location_, rtol=1e-9)
    np.testing.assert_allclose(
        by_weight.margin_statistics_.quantiles, copies.margin_statistics_.quantiles, rtol=1e-7
    )


@pytest.mark.parametrize("scale", ["auto", "confidence", 0.7])
def test_class_weights_are_sample_weights(scale):
    X, y = noisy(n_classes=3)
    weights = np.random.default_rng(3).uniform(0.5, 2.0, len(y))
    factors = {0: 2.0, 2: 0.25}
    by_class = MarginPursuitClassifier.as_published(class_weight=factors, scale=scale)
    by_class.fit(X, y, weights)
    by_sample = MarginPursuitClassifier.as_published(scale=scale).fit(
        X, y, weights * np.array([factors.get(label, 1.0) for label in y])
    )
    np.testing.assert_allclose(by_class.coef_, by_sample.coef_, rtol=1e-10)
    np.testing.assert_allclose(by_class.scale_, by_sample.scale_, rtol=1e-10)


@pytest.mark.parametrize("scale", ["auto", "confidence", 0.7])
def test_balanced_gives_every_class_the_same_total(scale):
    X, y = noisy(n_classes=3)
    keep = (y != 1) | (np.arange(len(y)) % 5 == 0)
    X, y = X[keep], y[keep]
    weights = np.random.default_rng(3).uniform(0.5, 2.0, len(y))
    balanced = MarginPursuitClassifier.as_published(class_weight="balanced", scale=scale).fit(
        X, y, weights
    )
    totals = np.bincount(y, weights)
    by_sample = MarginPursuitClassifier.as_published(scale=scale).fit(
        X, y, weights * (weights.sum() / (3 * totals))[y]
    )
    np.testing.assert_allclose(balanced.coef_, by_sample.coef_, rtol=1e-9)
    np.testing.assert_allclose(balanced.scale_, by_sample.scale_, rtol=1e-9)
