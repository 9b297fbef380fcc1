"""Algorithm 1 as a function: against the lines that are printed, and its default choices."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from solver_problems import make

from marginpursuit import MarginPursuitClassifier
from marginpursuit.losses import MarginLoss, influence
from marginpursuit.solvers import SOLVERS, margin_pursuit_descent
from marginpursuit.solvers._raw_rows import checked_rows
from marginpursuit.solvers.steepest import _geometric_tail


def drawn(n=60, d=3, seed=0):
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, d))
    return X, np.sign(X @ random.normal(size=d) + random.normal(size=n))


def printed(X, y, margin, scale, sizes, w):
    """The update of Algorithm 1, once for each step size."""
    path = [w]
    for size in sizes:
        psi = influence((margin - y * (X @ path[-1])) / scale)
        path.append(path[-1] + scale * size / len(X) * (psi * y) @ X)
    return np.array(path)


def inverse_mean_square(X):
    return 1 / np.mean(np.sum(X**2, axis=1))


@pytest.mark.parametrize("as_matrix", [np.asarray, np.float32, sparse.csr_array])
def test_takes_the_printed_steps(as_matrix):
    X, y = drawn()
    X = X.astype(np.float32).astype(float)
    start = np.array([0.5, -1.0, 2.0])
    found = margin_pursuit_descent(
        as_matrix(X), y, margin=1.5, scale=0.8, start=start, step=0.1, n_steps=25
    )
    wanted = printed(X, y, 1.5, 0.8, [0.1] * 25, start)
    assert_allclose(found.path, wanted, rtol=1e-11, atol=1e-13)
    assert_array_equal(found.coef, found.path[-1])
    values = [MarginLoss(1.5, 0.8).value(y * (X @ w)).mean() for w in wanted]
    assert_allclose(found.objective, values, rtol=1e-11)
    assert_array_equal(found.steps, 0.1)


def test_default_step_is_one_over_the_mean_square():
    X, y = drawn(seed=1)
    size = inverse_mean_square(X)
    found = margin_pursuit_descent(X, y, margin=1.0, scale=1.0, n_steps=7)
    assert_allclose(found.steps, size, rtol=1e-14)
    assert_allclose(found.path, printed(X, y, 1.0, 1.0, [size] * 7, np.zeros(3)), rtol=1e-11)


@pytest.mark.parametrize(("alpha", "fit_intercept"), [(0.0, False), (0.3, False), (0.3, True)])
def test_default_step_of_the_solver(alpha, fit_intercept):
    """1/v, where the intercept adds 1 and the penalty its largest factor to v."""
    X, y = drawn(seed=2)
    problem = make(
        X, y > 0, MarginLoss(), "steepest", alpha=alpha, fit_intercept=fit_intercept, max_iter=1
    )
    coef, intercept = SOLVERS["steepest"].solve(problem).linear
    size = 1 / (1 / inverse_mean_square(X) + fit_intercept + alpha)
    slope = size * influence(1.0) * y / len(y)
    assert_allclose(coef[:, 0], slope @ X, rtol=1e-12)
    assert_allclose(intercept, fit_intercept * slope.sum(), rtol=1e-12)


def test_step_as_a_function_of_the_step_number():
    X, y = drawn(seed=3)
    seen = []
    found = margin_pursuit_descent(
        X,
        y,
        margin=1.0,
        scale=2.0,
        step=lambda t: 0.2 / (1 + t),
        n_steps=4,
        on_step=lambda t, coef: seen.append((t, coef)),
    )
    sizes = [0.2, 0.1, 0.2 / 3, 0.05]
    assert_allclose(found.steps, sizes)
    assert_allclose(found.path, printed(X, y, 1.0, 2.0, sizes, np.zeros(3)), rtol=1e-11)
    assert [t for t, _ in seen] == [1, 2, 3, 4]
    assert_array_equal([coef for _, coef in seen], found.path[1:])


@pytest.mark.parametrize("k", [2.0, 5.0])
def test_e34_the_scale_of_a_start_at_zero_bounds_that_of_least_squares(k):
    X, y = drawn(300, 5, seed=4)
    margin = 3.0
    found = margin_pursuit_descent(X, y, margin=margin, k=k, n_steps=1)
    assert found.loss == MarginLoss(margin, k * margin / 4)
    margins = y * (X @ np.linalg.lstsq(X, margin * y, rcond=None)[0])
    r_squared = margins.mean() / margin
    assert np.var(margins) == pytest.approx(r_squared * (1 - r_squared) * margin**2)
    assert k * np.var(margins) / margin <= found.loss.scale


def test_e34_the_scale_of_another_start_is_that_of_its_margins():
    X, y = drawn(seed=5)
    start = np.array([1.0, 2.0, -1.0])
    found = margin_pursuit_descent(X, y, margin=0.5, start=start, n_steps=1)
    assert found.loss.scale == pytest.approx(2 * np.var(y * (X @ start)) / 0.5)


def test_the_solver_of_the_classifier_ends_at_the_last_iterate():
    X, y = drawn(seed=6)
    found = margin_pursuit_descent(X, y, margin=1.0, scale=0.7, n_steps=40)
    model = MarginPursuitClassifier.as_published(
        solver="steepest", scale=0.7, fit_intercept=False, max_iter=40
    ).fit(X, y)
    assert_allclose(model.coef_[0], found.coef, rtol=1e-10)


def test_converges_to_the_minimiser():
    X, y = drawn(seed=7)
    found = margin_pursuit_descent(X, y, margin=1.0, scale=0.7, n_steps=3000)
    model = MarginPursuitClassifier.as_published(
        scale=0.7, fit_intercept=False, alpha=0.0, tol=1e-12
    ).fit(X, y)
    assert_allclose(found.coef, model.coef_[0], rtol=1e-6)
    assert np.all(np.diff(found.objective) <= 1e-15)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"margin": 0.0}, "margin must be positive"),
        ({"scale": -1.0}, "scale must be positive"),
        ({"k": 0.0}, "k must be positive"),
        ({"step": 0.0}, "step must be positive"),
        ({"step": lambda t: 1.0 - t}, "step must be positive"),
        ({"n_steps": 0}, "n_steps must be a whole number of at least 1"),
        ({"start": [1.0]}, r"start must have shape \(3,\)"),
        ({"start": [1.0, np.nan, 1.0]}, "start"),
        ({"y": np.zeros(60)}, "y must contain -1 or"),
        ({"X": np.full((60, 3), np.inf)}, "X must"),
    ],
)
def test_refuses_invalid_arguments(wrong, message):
    X, y = drawn()
    arguments = {"X": X, "y": y, "margin": 1.0, "n_steps": 2} | wrong
    with pytest.raises(ValueError, match=message):
        margin_pursuit_descent(arguments.pop("X"), arguments.pop("y"), **arguments)


@pytest.mark.parametrize("n_steps", [3, 8, 21])
@pytest.mark.parametrize("ratio", [0.3, 0.9])
def test_geometric_tail_is_the_rest_of_a_geometric_series(n_steps, ratio):
    decreases = 5.0 * ratio ** np.arange(n_steps)[:, np.newaxis]
    rest = 5.0 * ratio**n_steps / (1 - ratio)
    assert_allclose(_geometric_tail(decreases), [rest], rtol=1e-12)


def test_geometric_tail_without_a_ratio_is_the_last_one():
    """One step, or decreases that do not fall: the ratio is one half."""
    assert_array_equal(_geometric_tail(np.array([[3.0]])), [3.0])
    assert_array_equal(_geometric_tail(np.array([[1.0], [2.0], [4.0]])), [4.0])
    assert_array_equal(_geometric_tail(np.array([[1.0], [0.0]])), [0.0])


def test_weights_must_have_one_entry_for_each_row_and_a_positive_one():
    X, y = drawn(4)
    for weights in (np.ones(3), np.zeros(4)):
        with pytest.raises(ValueError, match="sample_weight must have shape"):
            checked_rows(X, y, weights)
