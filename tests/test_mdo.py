"""MDOClassifier: the descent on the sphere, where it starts, and that it never gets worse."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import minimize_scalar
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris, make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Perceptron
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

from marginpursuit import MarginPursuitClassifier, MDOClassifier, load_model, save_model
from marginpursuit.bounds import projection_profile, projection_risk_bound
from marginpursuit.classifiers import mdo
from marginpursuit.design import MemoryDesign, Standardisation
from marginpursuit.losses import ProjectionLoss
from marginpursuit.solvers.sphere import SphereProblem, minimise_on_sphere

CANCER = load_breast_cancer(return_X_y=True)
NOISY = make_classification(300, 6, n_informative=4, flip_y=0.15, random_state=2)


def standardised(X):
    return (X - X.mean(axis=0)) / X.std(axis=0)


def objective(X, y, coef, intercept, alpha, beta):
    """What is lowered, written out."""
    margins = np.where(y == 1, 1, -1) * (X @ coef + intercept)
    right = np.exp(-alpha * np.maximum(margins, 0) ** 2)
    return np.mean(np.where(margins >= 0, right, np.exp(-beta * np.minimum(margins, 0))))


@given(
    seed=st.integers(0, 2**31),
    alpha=st.floats(0.01, 1e3),
    beta=st.floats(0.01, 20.0),
    n_columns=st.integers(1, 5),
    fit_intercept=st.booleans(),
)
@settings(max_examples=60)
def test_never_worse_than_the_start(seed, alpha, beta, n_columns, fit_intercept):
    rng = np.random.default_rng(seed)
    X = rng.standard_t(2, size=(40, n_columns))
    y = (X[:, 0] + rng.normal(size=40) > 0).astype(int)
    y[:2] = 0, 1
    model = MDOClassifier(
        alpha=alpha, beta=beta, fit_intercept=fit_intercept, max_iter=20, tol=0.5
    ).fit(X, y)
    assert model.objective_ <= model.start_objective_
    written_out = objective(X, y, model.coef_[0], model.intercept_[0], alpha, beta)
    assert written_out == pytest.approx(model.objective_, rel=1e-6)


def test_coefficients_have_norm_one_in_standardised_columns():
    X, y = NOISY
    model = MDOClassifier().fit(X, y)
    radius = np.sqrt(X.shape[1])
    assert np.linalg.norm(model.coef_ * X.std(axis=0)) * radius == pytest.approx(1.0)


def problem_of(X, y, loss):
    design = MemoryDesign(standardised(X))
    n = len(y)
    standardisation = Standardisation.identity(design.n_columns)
    return SphereProblem(
        design, standardisation, np.where(y == 1, 1.0, -1.0), np.full(n, 1 / n), loss, True, 2.0
    )


def test_gradient_equals_finite_differences_along_the_sphere():
    X, y = NOISY
    problem = problem_of(X, y, ProjectionLoss(alpha=4.0, beta=1.5))
    rng = np.random.default_rng(0)
    for _ in range(5):
        point = rng.normal(size=7)
        point[:-1] /= np.linalg.norm(point[:-1])
        gradient = problem.gradient(point, problem.margins(point))
        assert gradient[:-1] @ point[:-1] == pytest.approx(0.0, abs=1e-12)
        direction = problem.tangent(point, rng.normal(size=7))

        def along(length, point=point, direction=direction):
            moved = point + length * direction
            moved[:-1] /= np.linalg.norm(moved[:-1])
            return problem.value(problem.margins(moved))

        slope = (along(1e-6) - along(-1e-6)) / 2e-6
        assert gradient @ direction == pytest.approx(slope, abs=1e-7)


def test_on_a_circle_it_finds_the_best_angle_nearby():
    X, y = make_classification(200, 2, n_informative=2, n_redundant=0, random_state=1)
    loss = ProjectionLoss(alpha=2.0, beta=1.0)
    problem = replace(problem_of(X, y, loss), fit_intercept=False)

    def value(angle):
        return problem.value(problem.margins(np.array([np.cos(angle), np.sin(angle), 0.0])))

    angles = np.linspace(0, 2 * np.pi, 721)
    best = angles[np.argmin([value(angle) for angle in angles])]
    best = minimize_scalar(value, bracket=(best - 0.01, best, best + 0.01))
    start = np.array([np.cos(best.x + 0.5), np.sin(best.x + 0.5), 0.0])
    found = minimise_on_sphere(problem, start, 500, 1e-10, lambda progress: None)
    assert found.value[0] <= best.fun + 1e-6
    assert np.linalg.norm(found.linear[0]) == pytest.approx(1.0)


def test_the_rate_by_rule_is_that_of_the_profile():
    X, y = CANCER
    model = MDOClassifier(beta="profile").fit(X, y)
    start = MarginPursuitClassifier.as_published().fit(X, y)
    z, radius = standardised(X), np.sqrt(X.shape[1])
    coef = start.coef_[0] * X.std(axis=0)
    intercept = start.intercept_[0] + start.coef_[0] @ X.mean(axis=0)
    size = np.abs(z @ coef + intercept) / np.linalg.norm(coef) / radius
    h = np.median(size)
    k = model.alpha_[0] * 2 * (2 + h) ** 2
    assert projection_profile(h, k) == pytest.approx(0.05, rel=1e-6)
    assert model.beta_[0] == pytest.approx(np.sqrt(model.alpha_[0]))


@pytest.mark.parametrize("start", [None, LogisticRegression(max_iter=5000), Perceptron()])
def test_it_starts_from_any_linear_learner(start):
    X, y = load_iris(return_X_y=True)
    model = MDOClassifier(start=start).fit(X, y)
    assert model.objective_ < model.start_objective_
    assert model.coef_.shape == (3, 4)
    assert model.alpha_.shape == (3,)
    if start is not None:
        assert not hasattr(start, "coef_")
        assert type(model.start_) is type(start)


def test_lowering_the_loss_lowers_the_training_error_of_a_plain_start():
    X, y = CANCER
    model = MDOClassifier().fit(X, y)
    assert model.score(X, y) > model.start_.score(X, y) + 0.005


def test_weights_count_rows_and_sparse_equals_dense():
    X, y = NOISY
    X = np.where(np.abs(X) < 0.5, 0.0, X)
    weights = np.random.default_rng(0).integers(0, 3, size=len(y))
    rows = np.repeat(np.arange(len(y)), weights)
    # Dense and sparse rows have different solvers: the start is one to which they agree.
    start = LogisticRegression(tol=1e-12, max_iter=10_000)
    method = MDOClassifier(start=start, max_iter=5, tol=0.9)
    one = clone(method).fit(X, y, sample_weight=weights)
    two = clone(method).fit(X[rows], y[rows])
    np.testing.assert_allclose(one.alpha_, two.alpha_, rtol=1e-6)
    assert one.start_objective_ == pytest.approx(two.start_objective_)
    np.testing.assert_allclose(one.coef_, two.coef_, rtol=1e-4, atol=1e-6)
    thin = clone(method).fit(sparse.csr_array(X), y, sample_weight=weights)
    np.testing.assert_allclose(thin.coef_, one.coef_, rtol=1e-4, atol=1e-6)


def test_a_start_without_direction_gets_one():
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(size=(50, 2)), rng.normal(size=(50, 2)) + 3.0])
    y = np.repeat([0, 1], 50)
    lazy = LogisticRegression(C=1e-300)
    model = MDOClassifier(start=lazy).fit(X, y)
    assert model.score(X, y) > 0.9


def test_too_few_steps_are_warned_of():
    with pytest.warns(ConvergenceWarning, match=r"MDOClassifier reached max_iter .* Set max_iter"):
        MDOClassifier(max_iter=1).fit(*NOISY)


@pytest.mark.parametrize(
    ("model", "error", "words"),
    [
        (MDOClassifier(alpha=0.0), ValueError, "alpha must be a number that is positive"),
        (MDOClassifier(beta="rule"), ValueError, "beta must be a number"),
        (MDOClassifier(start=3), ValueError, "start must be an estimator or None; got 3"),
        (MDOClassifier(start=GaussianNB()), ValueError, "start must fit a coef_ of shape"),
        (MDOClassifier(start=DecisionTreeClassifier()), ValueError, "start must fit a coef_"),
        (MDOClassifier(beta=1e6), OverflowError, "beta=1e.06 is too large for margins"),
    ],
)
def test_bad_parameters_are_refused(model, error, words):
    with pytest.raises(error, match=words):
        model.fit(*NOISY)


# The published setting: rows of unit length, no standardisation --------------------------------


def published(**changes):
    return MDOClassifier(standardise=False, unit_rows=True, **changes)


def unit_rows(X):
    return X / np.linalg.norm(X, axis=1, keepdims=True)


@pytest.mark.parametrize("kind", [np.asarray, np.float32, sparse.csr_matrix])
def test_published_setting_has_unit_coefficients_and_unit_rows(kind):
    X, y = NOISY
    X = X.astype(np.float32)
    model = published().fit(kind(X), y)
    assert np.linalg.norm(model.coef_) == pytest.approx(1.0)
    U = unit_rows(X.astype(float))
    rates = model.alpha_[0], model.beta_[0]
    written_out = objective(U, y, model.coef_[0], model.intercept_[0], *rates)
    assert model.objective_ == pytest.approx(written_out, rel=1e-6)
    assert model.objective_ <= model.start_objective_
    scores = U @ model.coef_[0] + model.intercept_[0]
    np.testing.assert_allclose(model.decision_function(kind(X)), scores, atol=1e-6)
    # The length of a row does not matter.
    longer = X * np.linspace(0.1, 9.0, len(X), dtype=np.float32)[:, None]
    np.testing.assert_allclose(model.decision_function(kind(longer)), scores, atol=1e-5)


def test_published_setting_with_several_classes():
    X, y = load_iris(return_X_y=True)
    model = published().fit(X, y)
    expected = unit_rows(X) @ model.coef_.T + model.intercept_
    np.testing.assert_allclose(model.decision_function(X), expected, atol=1e-10)
    assert model.projection_bound_.shape == model.projection_dimension_.shape == (3,)
    assert model.score(X, y) > 0.8


def test_published_objective_is_below_that_of_the_standardised_rule():
    """On the sphere of standardised columns the descent ends above the minimum on unit rows."""
    X, y = make_classification(400, 10, n_informative=5, flip_y=0.2, random_state=0)
    U = unit_rows(X * np.geomspace(0.1, 10.0, 10))
    model = published().fit(U, y)
    other = MDOClassifier().fit(U, y)
    norm = np.linalg.norm(other.coef_)
    rates = model.alpha_[0], model.beta_[0]
    rescaled = objective(U, y, other.coef_[0] / norm, other.intercept_[0] / norm, *rates)
    assert model.objective_ < rescaled


def test_projection_bound_of_the_fitted_model():
    X, y = NOISY
    model = published().fit(X[:301], y[:301])
    margins = np.where(y == 1, 1, -1)[:300] * model.decision_function(X[:300])
    found = projection_risk_bound(margins[: len(X[:301]) // 2 * 2], 0.05)
    assert model.projection_bound_[0] == pytest.approx(found.bound, rel=1e-6)
    assert model.projection_dimension_[0] == found.k
    for other in (MDOClassifier(), MDOClassifier(standardise=False), MDOClassifier(unit_rows=True)):
        assert not hasattr(other.fit(X, y), "projection_bound_")


def test_standardise_false_without_unit_rows_has_margins_over_the_root_mean_square():
    X, y = NOISY
    model = MDOClassifier(standardise=False).fit(X, y)
    radius = np.sqrt(np.mean(np.sum(X**2, axis=1)))
    assert np.linalg.norm(model.coef_) == pytest.approx(1 / radius)


def test_rows_of_zeros_stay_zero_and_rows_not_in_memory_are_refused():
    X, y = NOISY
    X = X.copy()
    X[0] = 0.0
    model = published().fit(X, y)
    assert model.decision_function(X)[0] == pytest.approx(model.intercept_[0])
    with pytest.raises(TypeError, match=r"unit_rows=True needs rows in memory.*unit_rows=False"):
        mdo._row_norms(object())


def test_published_model_files(tmp_path):
    X, y = NOISY
    model = published().fit(X, y)
    save_model(model, tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    np.testing.assert_array_equal(loaded.decision_function(X), model.decision_function(X))
    np.testing.assert_array_equal(loaded.projection_bound_, model.projection_bound_)
