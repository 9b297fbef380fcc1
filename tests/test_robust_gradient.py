"""Robust estimates of the gradient: the estimates, the root, and the classifier."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import optimize, sparse
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.exceptions import ConvergenceWarning

from marginpursuit import MarginPursuitClassifier, RobustGradientClassifier, load_model, save_model
from marginpursuit.location import catoni_location, confidence_scale
from marginpursuit.losses import LogisticLoss, MarginLoss
from marginpursuit.solvers.robust_gradient import (
    GradientProblem,
    RobustGradientPolicy,
    _newton_solver,
    block_gradient,
    catoni_gradient,
    geometric_median,
    length_limits,
    minimise_by_robust_gradient,
)


def drawn(n=200, d=4, seed=0):
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, d))
    return X, np.sign(X @ np.arange(1.0, d + 1) + random.normal(size=n))


def problem_of(X, y, weights=None, **changes):
    weights = np.ones(len(y)) if weights is None else np.asarray(weights, float)
    defaults = {"loss": LogisticLoss(), "penalty": np.full(X.shape[1], 0.01)}
    defaults |= {"fit_intercept": True, "limits": np.ones(len(y))}
    return GradientProblem(X, y, weights / weights.sum(), weights.sum(), **(defaults | changes))


# Estimates ------------------------------------------------------------------------------------


def test_catoni_gradient_is_the_location_of_each_coordinate():
    X, y = drawn()
    problem = problem_of(X, y)
    factors = problem.factors(problem.margins(np.full(5, 0.3)))
    vectors = factors[:, None] * np.column_stack([X, np.ones(len(X))])
    expected = [
        catoni_location(values, confidence_scale(np.var(values), 200, 0.1)) for values in vectors.T
    ]
    assert_allclose(catoni_gradient(problem, factors, 0.1), expected, rtol=1e-12)
    assert np.max(np.abs(np.array(expected) - vectors.mean(axis=0))) > 1e-6  # not the mean
    pieces = RobustGradientPolicy(chunk_entries=400)
    assert_allclose(catoni_gradient(problem, factors, 0.1, pieces), expected, rtol=1e-12)


@pytest.mark.parametrize("estimate", [lambda p, f: catoni_gradient(p, f, 0.05), "blocks"])
def test_sparse_rows_have_the_same_gradient(estimate):
    X, y = drawn()
    X[np.abs(X) < 0.8] = 0.0
    blocks = np.arange(200) % 7
    if estimate == "blocks":
        estimate = lambda p, f: block_gradient(p, f, blocks)  # noqa: E731
    factors = np.random.default_rng(1).normal(size=200)
    dense, other = (estimate(problem_of(rows, y), factors) for rows in (X, sparse.csr_array(X)))
    assert_allclose(other, dense, rtol=1e-12)


def test_weights_of_the_catoni_gradient_are_repetitions():
    X, y = drawn(60, 3)
    weights = np.random.default_rng(2).integers(0, 4, 60)
    repeated = np.repeat(np.arange(60), weights)
    factors = np.random.default_rng(3).normal(size=60)
    found = catoni_gradient(problem_of(X, y, weights), factors, 0.05)
    expected = catoni_gradient(problem_of(X[repeated], y[repeated]), factors[repeated], 0.05)
    assert_allclose(found, expected, rtol=1e-9)


def test_scales_are_those_of_rows_of_limited_length():
    X, y = drawn()
    X[:5] *= 1000.0
    limits = length_limits(X, np.ones(200))
    norms = np.linalg.norm(X, axis=1)
    median = np.median(norms**2)  # of the squares
    assert_allclose(limits, np.minimum(1.0, 4 * median / norms**2))
    problem = problem_of(X, y, limits=limits, fit_intercept=False)
    expected = []
    for values in X.T:
        mean = np.average(values, weights=limits)
        variance = np.average((values - mean) ** 2, weights=limits)
        expected.append(catoni_location(values, confidence_scale(variance, 200, 0.05)))
    assert_allclose(catoni_gradient(problem, np.ones(200), 0.05), expected, rtol=1e-12)
    assert np.linalg.norm(expected) < 0.2 * np.linalg.norm(X.mean(axis=0))


def test_a_coordinate_without_variance_is_its_mean():
    problem = problem_of(np.zeros((5, 1)), np.ones(5))
    assert_array_equal(catoni_gradient(problem, np.full(5, 2.0), 0.05), [0.0, 2.0])


@pytest.mark.parametrize("seed", range(3))
def test_geometric_median_has_the_least_sum_of_distances(seed):
    points = np.random.default_rng(seed).standard_t(2, size=(9, 3))

    def total(x):
        return np.linalg.norm(points - x, axis=1).sum()

    found = geometric_median(points)
    best = optimize.minimize(total, points.mean(axis=0), method="Nelder-Mead", tol=1e-12)
    assert total(found) <= best.fun * (1 + 1e-9)
    for direction in np.eye(3):
        assert total(found) <= total(found + 1e-4 * direction)
        assert total(found) <= total(found - 1e-4 * direction)


def test_geometric_median_at_a_data_point_and_of_equal_points():
    points = np.array([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    assert_allclose(geometric_median(points), 0.0, atol=1e-9)
    assert_array_equal(geometric_median(np.ones((3, 2))), [1.0, 1.0])
    assert_allclose(geometric_median(np.array([[0.0], [0.0], [0.0], [9.0]])), 0.0, atol=1e-9)


def test_block_gradient_is_the_median_of_the_means_of_blocks():
    X, y = drawn(50, 2)
    weights = np.random.default_rng(0).random(50)
    blocks = np.arange(50) % 5
    factors = np.random.default_rng(4).normal(size=50)
    vectors = factors[:, None] * np.column_stack([X, np.ones(50)])
    means = [
        np.average(vectors[blocks == k], axis=0, weights=weights[blocks == k]) for k in range(5)
    ]
    found = block_gradient(problem_of(X, y, weights), factors, blocks)
    assert_allclose(found, geometric_median(np.array(means)), rtol=1e-9)


def test_few_outliers_do_not_determine_the_median_of_blocks():
    X, y = drawn(100, 3)
    factors = np.ones(100)
    blocks = np.arange(100) % 11
    clean = block_gradient(problem_of(X, y), factors, blocks)
    X[[3, 30, 60, 90]] = 1e9
    found = block_gradient(problem_of(X, y), factors, blocks)
    assert np.linalg.norm(found - clean) < 1.0


# The root -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [None, RobustGradientPolicy(max_hessian_size=1)])
@pytest.mark.parametrize("loss", [LogisticLoss(), MarginLoss(1.0, 0.5)])
def test_the_result_is_a_root_of_the_estimated_gradient(loss, policy):
    X, y = drawn()
    problem = problem_of(X, y, loss=loss)
    blocks = np.arange(200) % 9
    for estimate in (
        lambda p, f: catoni_gradient(p, f, 0.05),
        lambda p, f: block_gradient(p, f, blocks),
    ):
        solution = minimise_by_robust_gradient(
            problem, estimate, 500, 1e-12, lambda progress: None, policy
        )
        point = np.append(solution.linear[0][:, 0], solution.linear[1])
        rest = estimate(problem, problem.factors(problem.margins(point)))
        assert np.linalg.norm(rest + problem.shrinkage(point)) < 1e-5
        assert solution.gap[0] <= 1e-12
        assert solution.value[0] == pytest.approx(problem.value(point, problem.margins(point)))


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_the_step_in_the_space_of_the_rows_is_that_of_the_columns(kind, fit_intercept):
    rng = np.random.default_rng(0)
    X, weights = rng.normal(size=(12, 40)), rng.random(12)
    weights[3] = 0.0
    given = problem_of(X, np.where(rng.random(12) < 0.5, -1.0, 1.0))
    problem = replace(
        given,
        rows=kind(X),
        weights=weights / weights.sum(),
        penalty=rng.uniform(0.5, 1.0, 40),
        fit_intercept=fit_intercept,
    )
    point, vector = (rng.normal(size=problem.n_coordinates) for _ in range(2))
    margins = problem.margins(point)
    wide = _newton_solver(problem, margins, RobustGradientPolicy())(vector)
    added = replace(
        problem, rows=kind(np.vstack([X, np.zeros((40, 40))]))
    )  # more rows than columns
    added = replace(
        added,
        sign=np.append(problem.sign, np.ones(40)),
        weights=np.append(problem.weights, np.zeros(40)),
        limits=np.append(problem.limits, np.ones(40)),
    )
    margins = np.append(margins, np.zeros(40))
    expected = _newton_solver(added, margins, RobustGradientPolicy())(vector)
    assert np.linalg.norm(wide - expected) < 1e-5 * np.linalg.norm(expected)


def test_wide_rows_take_few_iterations():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(50, 2000)), rng.integers(0, 2, 50)
    assert RobustGradientClassifier().fit(X, y).n_iter_ <= 20  # 116 with the diagonal


@pytest.mark.parametrize("unit", [1e-200, 1e-300])
def test_columns_whose_squares_underflow_are_rescaled(unit):
    X, y = drawn()
    model = RobustGradientClassifier()
    assert_array_equal(
        model.fit(X * unit, y).predict(X * unit), RobustGradientClassifier().fit(X, y).predict(X)
    )


def test_one_block_is_plain_risk_minimisation():
    X, y = load_breast_cancer(return_X_y=True)
    ours = RobustGradientClassifier(
        estimate="geometric_median", n_blocks=1, scale=2.0, alpha=1e-3
    ).fit(X, y)
    exact = MarginPursuitClassifier.as_published(
        scale=2.0, alpha=1e-3, alpha_unit="absolute", tol=1e-12
    ).fit(X, y)
    assert ours.objective_ == pytest.approx(exact.objective_, rel=1e-6)
    assert_allclose(ours.coef_, exact.coef_, atol=1e-3 * np.abs(exact.coef_).max())


# The classifier ----------------------------------------------------------------------------------


@pytest.mark.parametrize("estimate", ["catoni", "geometric_median"])
@pytest.mark.parametrize("loss", ["margin", "logistic"])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_several_classes_and_kinds_of_data(estimate, loss, kind):
    X, y = load_iris(return_X_y=True)
    names = np.array(["a", "b", "c"])[y]
    model = RobustGradientClassifier(estimate=estimate, loss=loss, random_state=0)
    model.fit(kind(X.astype(np.float32)), names)
    assert model.coef_.shape == (3, 4)
    assert model.score(kind(X), names) > (0.65 if loss == "margin" else 0.85)
    assert model.status_ == "converged"
    assert model.n_iter_ > 1


def test_units_and_origins_of_columns_do_not_matter():
    X, y = load_breast_cancer(return_X_y=True)
    first = RobustGradientClassifier().fit(X, y).decision_function(X)
    other = X * np.geomspace(1e-3, 1e4, X.shape[1]) + 7.0
    again = RobustGradientClassifier().fit(other, y).decision_function(other)
    assert_allclose(again, first, rtol=1e-5, atol=1e-5)


def test_constant_columns_have_no_coefficient():
    X, y = drawn()
    model = RobustGradientClassifier().fit(np.column_stack([X, np.full(200, 3.0)]), y)
    assert model.coef_[0, -1] == 0
    assert_allclose(model.coef_[0, :-1], RobustGradientClassifier().fit(X, y).coef_[0], rtol=1e-6)


@pytest.mark.parametrize("estimate", ["catoni", "geometric_median"])
@pytest.mark.parametrize("factor", [100.0, 1e4])
def test_long_rows_with_wrong_labels_do_little_harm(estimate, factor):
    """Ten rows of 1,000, a hundred or ten thousand times as long, with the wrong label."""
    X, y = drawn(1000, 5, seed=1)
    test, truth = drawn(5000, 5, seed=2)
    dirty, labels = X.copy(), y.copy()
    dirty[:10] *= factor
    labels[:10] = -np.sign(dirty[:10] @ np.arange(1.0, 6.0))
    clean = RobustGradientClassifier().fit(X, y).score(test, truth)
    plain = MarginPursuitClassifier.as_published(scale=1.0).fit(dirty, labels).score(test, truth)
    assert plain < clean - 0.1
    robust = RobustGradientClassifier(estimate=estimate, random_state=0).fit(dirty, labels)
    assert robust.score(test, truth) > clean - 0.03


def test_blocks_follow_the_seed_and_rows_without_weight_are_in_none():
    X, y = drawn()
    fits = [
        RobustGradientClassifier(estimate="geometric_median", random_state=seed).fit(X, y).coef_
        for seed in (0, 0, 1)
    ]
    assert_array_equal(fits[0], fits[1])
    assert np.any(fits[0] != fits[2])
    weights = np.ones(200)
    weights[150:] = 0.0
    spoilt = X.copy()
    spoilt[150:] = 1e6
    for estimate in ("catoni", "geometric_median"):
        method = RobustGradientClassifier(estimate=estimate, random_state=0)
        expected = method.fit(X[:150], y[:150]).coef_
        found = method.fit(spoilt, y, sample_weight=weights).coef_
        assert_allclose(found, expected, rtol=1e-6)


def test_a_fit_that_no_step_improves_is_not_said_to_need_more_iterations():
    random = np.random.default_rng(0)
    X = random.standard_t(1.2, size=(30, 2))
    y = X[:, 0] + random.normal(size=30) > 0
    model = RobustGradientClassifier(estimate="geometric_median", scale=0.3, random_state=0)
    words = (
        r"RobustGradientClassifier stopped where no step size gives a decrease: the convergence "
        r"measure that tol bounds is 8\.0e-03, above tol=1e-08\. More iterations do not lower it\. "
        r"Set a larger tol\."
    )
    with pytest.warns(ConvergenceWarning, match=words):
        model.fit(X, y)
    assert model.status_ == "stopped where no step size gives a decrease"
    assert model.n_iter_ < 10
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.set_params(tol=0.01).fit(X, y)


def test_model_files(tmp_path):
    X, y = load_iris(return_X_y=True)
    model = RobustGradientClassifier(loss="logistic").fit(X, y)
    save_model(model, tmp_path / "model")
    assert_array_equal(load_model(tmp_path / "model").predict(X), model.predict(X))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"estimate": "mean"}, "estimate must be one of"),
        ({"loss": "hinge"}, "loss must be one of"),
        ({"scale": 0.0}, "scale must be a number that is positive"),
        ({"delta": 1.0}, r"delta must be a number in \(0, 1\)"),
        ({"n_blocks": 0}, "n_blocks must be a whole number >= 1, or 'auto'"),
        ({"estimate": "geometric_median", "n_blocks": 201}, "n_blocks must be at most 200"),
        ({"alpha": -1.0}, "alpha must be"),
    ],
)
def test_refuses_invalid_parameters(parameters, message):
    X, y = drawn()
    with pytest.raises(ValueError, match=message):
        RobustGradientClassifier(**parameters).fit(X, y)
