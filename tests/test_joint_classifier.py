"""`MarginPursuitClassifier` with several classes and a joint loss."""

from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.preprocessing import StandardScaler

from marginpursuit import MarginPursuitClassifier, MarginPursuitClassifierCV
from marginpursuit.blocks import Blocks
from marginpursuit.classifiers._half_fits import HalfFits
from marginpursuit.losses import JointLoss, MarginLoss
from marginpursuit.model_files import load_model, save_model

OPTIONS = {"overconfidence": 0.0, "scale": 1.0, "alpha": 1e-3, "alpha_unit": "standardised"}


def joint(**changes):
    return MarginPursuitClassifier(**(OPTIONS | {"tol": 1e-9, "leverage_bound": None} | changes))


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    return X, np.array(["setosa", "versicolor", "virginica"])[y]


@pytest.fixture(scope="module")
def fitted(iris):
    return joint().fit(*iris)


def ordered(n_rows, seed):
    """Return five ordered classes; the middle ones lie between others on a line."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 10))
    latent = X.sum(axis=1) / np.sqrt(10) + 0.7 * rng.logistic(size=n_rows)
    return X, np.digitize(latent, [-1.2, -0.35, 0.35, 1.2])


def test_attributes(iris, fitted):
    X, y = iris
    assert fitted.multi_class_ == "joint"
    assert fitted.coef_.shape == (3, 4)
    assert fitted.intercept_.shape == (3,)
    assert fitted.margin_location_.shape == (1,)
    scores = fitted.decision_function(X)
    assert scores.shape == (150, 3)
    assert_array_equal(fitted.predict(X), fitted.classes_[np.argmax(scores, axis=1)])
    assert_allclose(scores.sum(axis=1), 0.0, atol=1e-8)
    assert fitted.score(X, y) >= 0.97


def test_objective_and_margins_are_those_of_the_joint_loss(iris, fitted):
    X, y = iris
    loss = JointLoss(MarginLoss(1.0, 1.0, 0.0), 0.3)
    codes = np.unique(y, return_inverse=True)[1]
    scores = fitted.decision_function(X)
    penalty = 0.5e-3 * 4 * np.sum(X.var(axis=0) * fitted.coef_**2)
    assert_allclose(fitted.objective_, loss.value(scores, codes).mean() + penalty, rtol=1e-9)
    margins = loss.margins(scores, codes)
    assert_allclose(fitted.margin_statistics_.mean, [margins.mean()], rtol=1e-9)
    assert_allclose(fitted.margin_statistics_.quantiles[3], [np.median(margins)], rtol=1e-9)


def test_probabilities_are_those_of_the_joint_link(iris):
    X, y = iris
    model = joint(alpha=0.1, probability="exact").fit(X, y)  # scores within the level
    found, scores = model.predict_proba(X), model.decision_function(X)
    assert_allclose(found, JointLoss(MarginLoss(1.0, 1.0, 0.0), 0.3).link(scores), atol=1e-10)
    assert_allclose(found.sum(axis=1), 1.0)
    assert_array_equal(np.argmax(found, axis=1), np.argmax(scores, axis=1))


def test_the_temperature_follows_the_unit_of_the_margin(iris):
    X, y = iris
    once, twice = joint(alpha=1e-3).fit(X, y), joint(margin=2.0, scale=2.0, alpha=1e-3).fit(X, y)
    assert_allclose(twice.coef_, 2.0 * once.coef_, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "joint"),
        ({"multi_class": "ovr"}, "ovr"),
        ({"overconfidence": 0.5}, "ovr"),
        ({"overconfidence": 1.0, "multi_class": "ovr"}, "ovr"),
        ({"solver": "lbfgs"}, "joint"),
        ({"solver": "steepest", "alpha_unit": "absolute", "max_iter": 20}, "ovr"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*took all steps")
def test_which_classes_are_fitted_jointly(iris, changes, expected):
    assert joint(**changes).fit(*iris).multi_class_ == expected


def test_two_classes_are_one_binary_problem(iris):
    X, y = iris[0][:100], iris[1][:100]
    models = [joint(multi_class=name).fit(X, y) for name in ("joint", "ovr")]
    assert_allclose(models[0].coef_, models[1].coef_, rtol=1e-9)
    assert models[0].coef_.shape == (1, 4)


def test_what_cannot_be_joint_is_refused(iris):
    with pytest.raises(ValueError, match="multi_class='joint' needs overconfidence=0"):
        joint(multi_class="joint", overconfidence=0.5).fit(*iris)
    with pytest.raises(ValueError, match=r"solver='steepest'.*multi_class='ovr'"):
        joint(multi_class="joint", solver="steepest", alpha_unit="absolute").fit(*iris)
    with pytest.raises(AttributeError, match="partial_fit"):
        joint(multi_class="joint").partial_fit(*iris, classes=np.unique(iris[1]))


def test_a_stream_is_fitted_one_against_the_rest(iris):
    X, y = iris
    stream = joint().partial_fit(X, y, classes=np.unique(y))
    assert stream.multi_class_ == "ovr"
    assert_allclose(stream.coef_, joint(multi_class="ovr").fit(X, y).coef_, rtol=1e-4, atol=1e-6)


def in_blocks(X):
    parts = (X[:60], X[60:61], X[61:])
    return Blocks([partial(lambda part: part, part) for part in parts])


@pytest.mark.parametrize("layout", [np.asfortranarray, sparse.csr_matrix, in_blocks])
@pytest.mark.parametrize("solver", ["gram", "lbfgs"])
def test_layouts_agree(iris, fitted, layout, solver):
    X, y = iris
    model = joint(solver=solver).fit(layout(X), y)
    assert_allclose(model.objective_, fitted.objective_, rtol=1e-8)
    assert_allclose(model.coef_, fitted.coef_, rtol=1e-3, atol=1e-4)
    found, expected = model.margin_statistics_, fitted.margin_statistics_
    for name in ("location", "mean", "variance", "quantiles"):
        assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-3, atol=1e-3)


def test_a_weight_of_two_is_two_copies(iris):
    X, y = iris
    weights = np.ones(150)
    weights[::3] = 2.0
    copies = np.repeat(np.arange(150), weights.astype(int))
    weighted = joint().fit(X, y, sample_weight=weights)
    repeated = joint().fit(X[copies], y[copies])
    assert_allclose(weighted.objective_, repeated.objective_, rtol=1e-8)
    assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-3, atol=1e-4)


def test_class_weights_count_as_sample_weights(iris):
    X, y = iris
    by_class = joint(class_weight={"setosa": 1.0, "versicolor": 3.0, "virginica": 1.0}).fit(X, y)
    by_row = joint().fit(X, y, sample_weight=np.where(y == "versicolor", 3.0, 1.0))
    assert_allclose(by_class.coef_, by_row.coef_, rtol=1e-6, atol=1e-8)


def test_warm_starts_clones_and_model_files(iris, fitted, tmp_path):
    X, y = iris
    again = clone(fitted).set_params(warm_start=True).fit(X, y)
    assert again.fit(X, y).n_iter_ < fitted.n_iter_
    save_model(fitted, tmp_path / "joint.model")
    read = load_model(tmp_path / "joint.model")
    assert_array_equal(read.predict_proba(X), fitted.predict_proba(X))
    assert read.multi_class_ == "joint"


def test_a_scale_rule_uses_the_joint_margins(iris):
    model = joint(scale="auto", tol=1e-6).fit(*iris)
    assert model.scale_ >= np.sqrt(2.0) * 0.98
    assert model.multi_class_ == "joint"


def test_units_of_columns_change_no_prediction(iris):
    X, y = iris
    factors = np.array([1e-3, 1.0, 1e4, 10.0])
    scaled = joint().fit(X * factors, y)
    assert_allclose(scaled.coef_ * factors, joint().fit(X, y).coef_, rtol=1e-3, atol=1e-4)


def test_columns_whose_squares_overflow(iris):
    X, y = iris
    huge = joint().fit(X * 1e200, y)
    assert_array_equal(huge.predict(X * 1e200), joint().fit(X, y).predict(X))


def test_ordered_classes_are_as_accurate_as_softmax_regression():
    X, y = ordered(3000, 0)
    test, labels = ordered(4000, 1)
    scaler = StandardScaler().fit(X)
    softmax = LogisticRegression().fit(scaler.transform(X), y).score(scaler.transform(test), labels)
    found = joint(alpha=0.3 / 3000, tol=1e-5).fit(X, y).score(test, labels)
    against_rest = joint(alpha=0.3 / 3000, tol=1e-5, multi_class="ovr").fit(X, y)
    assert found >= softmax - 0.01
    assert found > against_rest.score(test, labels)


GRID = {"scales": [1.0], "alphas": [1e-2, 1e-4], "cv": 3}


def test_a_search_fits_candidates_without_overconfidence_jointly(iris):
    X, y = iris
    search = MarginPursuitClassifierCV(overconfidences=[0.0], **GRID).fit(X, y)
    assert search.multi_class_ == search.best_estimator_.multi_class_ == "joint"
    single = joint(alpha=search.best_params_["alpha"], leverage_bound=1.0).fit(X, y)
    assert_allclose(search.coef_, single.coef_, rtol=1e-3, atol=1e-4)
    assert search.predict_proba(X).shape == (150, 3)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"overconfidences": [1.0]}, "ovr"),
        ({"overconfidences": [0.0], "multi_class": "ovr"}, "ovr"),
    ],
)
def test_other_searches_fit_one_class_against_the_rest(iris, options, expected):
    search = MarginPursuitClassifierCV(**GRID, **options).fit(*iris)
    assert search.multi_class_ == search.best_estimator_.multi_class_ == expected
    assert search.margin_location_.shape == (3,)


def test_the_exact_link_of_a_search_is_that_of_the_joint_loss(iris):
    X, y = iris
    search = MarginPursuitClassifierCV(overconfidences=[0.0], link="exact", **GRID).fit(X, y)
    loss = JointLoss(MarginLoss(1.0, 1.0, 0.0), 0.3)
    assert_allclose(
        search.predict_proba(X), loss.link(search.decision_function(X)), rtol=1e-9, atol=1e-10
    )


def test_a_search_by_dual_passes_refuses_joint_losses(iris):
    X, y = sparse.csr_matrix(iris[0]), iris[1]
    options = {"solver": "dual", "alpha_unit": "common", "refit": False}
    assert MarginPursuitClassifierCV(**GRID, **options).fit(X, y).multi_class_ == "ovr"
    with pytest.raises(ValueError, match="solver='dual'"):
        MarginPursuitClassifierCV(**GRID, **options, multi_class="joint").fit(X, y)


def classes_around(n_classes, n_rows, seed=100):
    """Return overlapping normal classes with means in random directions, in 40 columns."""
    rng = np.random.default_rng(seed)
    means = 0.4 * rng.normal(size=(n_classes, 40))
    y = np.arange(n_rows) % n_classes
    return means[y] + rng.normal(size=(n_rows, 40)), y


def test_the_link_of_many_classes_is_rescaled_to_the_fit_to_all_rows(monkeypatch):
    X, y = classes_around(10, 4000)
    train, test = slice(400), slice(400, None)
    model = MarginPursuitClassifier().fit(X[train], y[train])
    factor = model.margin / model.link_.margin
    assert 0.5 < factor < 0.97  # fits to half of the rows have smaller coefficients
    proba = model.predict_proba(X[test])
    assert_array_equal(model.classes_[proba.argmax(axis=1)], model.predict(X[test]))
    monkeypatch.setattr(HalfFits, "link_of", lambda self, linear: self.link)
    other = MarginPursuitClassifier().fit(X[train], y[train])
    assert other.link_.margin == model.margin
    assert_allclose(factor * other.link_.slopes, model.link_.slopes)
    raw = other.predict_proba(X[test])
    assert log_loss(y[test], proba) < log_loss(y[test], raw)
    few = MarginPursuitClassifier().fit(*classes_around(9, 400))
    assert few.link_.margin == few.margin


@pytest.mark.parametrize(("seed", "n_rows"), [(0, 200), (1, 200), (3, 200), (1, 300)])
def test_a_small_penalty_is_solved_to_the_tolerance(seed, n_rows):
    """By the estimates of the gap alone these fits end 43 to 53 % above the minimum."""
    rng = np.random.default_rng(seed)
    X = rng.standard_t(3, size=(n_rows, 60))
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    y = np.argmax(X @ rng.normal(size=(60, 4)) + rng.gumbel(size=(n_rows, 4)), axis=1)
    alpha, loss = 3e-5, JointLoss.at_level(MarginLoss(1.0, 1.0, 0.0))
    options = {"alpha": alpha, "alpha_unit": "absolute", "leverage_bound": None}
    model = MarginPursuitClassifier(probability=None, tol=1e-3, **options).fit(X, y)

    def objective(point):
        coef, intercept = np.split(point.reshape(61, 4), [60])
        value, derivatives = loss.value_and_gradient(
            X @ coef + intercept, y, np.full(n_rows, 1 / n_rows)
        )
        gradient = np.vstack([X.T @ derivatives + alpha * coef, derivatives.sum(axis=0)])
        return value.sum() + 0.5 * alpha * np.sum(coef**2), gradient.ravel()

    start = np.vstack([model.coef_.T, model.intercept_]).ravel()
    exact = {"maxiter": 20000, "maxfun": 40000, "ftol": 1e-14, "gtol": 1e-12, "maxcor": 50}
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options=exact)
    assert objective(start)[0] <= (1 + 1e-2) * found.fun
