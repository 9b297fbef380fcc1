"""Every solver against a minimiser written here, and against each other."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.optimize import minimize
from sklearn.datasets import load_breast_cancer, load_digits

from marginpursuit.design import Design, Labels
from marginpursuit.losses import MarginLoss
from marginpursuit.solvers import SOLVERS, Problem, Status, choose_solver
from marginpursuit.solvers.steepest import solve_steepest


def normal(n, d, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, (X @ rng.normal(size=d) + np.sqrt(d) * rng.normal(size=n) > 0).astype(int)


def unbalanced():
    X, y = normal(300, 5, seed=1)
    return X, (np.arange(300) % 50 == 0).astype(int) | (y & (X[:, 0] > 2))


def deficient():
    X, y = normal(150, 4, seed=2)
    one_hot = np.eye(3)[np.arange(150) % 3]
    return np.column_stack([X, X[:, 0], X[:, 1] - X[:, 2], one_hot, np.full(150, 3.0)]), y


def badly_scaled():
    X, y = normal(200, 5, seed=3)
    return X * 10.0 ** np.array([-6, -2, 0, 3, 6]) + np.array([0, 5, -1, 1e4, 0]), y


def wide():
    return normal(40, 90, seed=4)


def sparse_data():
    X, y = normal(250, 30, seed=5)
    return sparse.csr_matrix(X * (np.abs(X) > 1.2)), y


DATA = {f.__name__: f for f in (unbalanced, deficient, badly_scaled, wide, sparse_data)}
LOSSES = [(1.0, 1.0), (1.0, 0.2), (0.3, 0.5), (0.0, 1.0), (0.0, 0.3), (1.0, 50.0)]


def make(X, y, loss, name, *, alpha=1e-3, scale_free=False, fit_intercept=True, **options):
    design = Design(X)
    weights = np.full(X.shape[0], 1 / X.shape[0])
    labels = Labels(y.astype(np.intp), max(2, int(y.max()) + 1))
    geometry = SOLVERS[name].prepare(
        design, weights, alpha, scale_free=scale_free, fit_intercept=fit_intercept
    )
    n_problems = len(labels.problems)
    start = np.zeros((geometry.design.n_columns, n_problems)), np.zeros(n_problems)
    given = {"max_iter": 5000, "tol": 1e-11, "report": lambda progress: None} | options
    return Problem(geometry, labels, weights, loss, start, **given)


def reference(X, y, loss, alpha, *, scale_free=False, fit_intercept=True):
    """Minimise by Newton's method on standardised float64 data, to the last digits."""
    rows = np.asarray(X.toarray() if sparse.issparse(X) else X, dtype=np.float64)
    sign = np.where(y == 1, 1.0, -1.0)
    spread = rows.std(axis=0)
    spread = np.where(spread > 1e-12 * np.abs(rows).max(axis=0), spread, np.inf)
    z = (rows - rows.mean(axis=0)) / spread
    z = np.column_stack([z, np.ones(len(z))]) if fit_intercept else rows / spread
    penalty = alpha * (np.ones(rows.shape[1]) if scale_free else 1 / spread**2)
    penalty = np.append(penalty, 0.0) if fit_intercept else penalty

    def value(point):
        return np.mean(loss.value(sign * (z @ point))) + 0.5 * penalty @ point**2

    def gradient(point):
        slopes = sign * loss.derivative(sign * (z @ point)) / len(z)
        return slopes @ z + penalty * point

    point = np.zeros(z.shape[1])
    for _ in range(3):
        point = minimize(value, point, jac=gradient, method="BFGS", options={"gtol": 1e-13}).x
    damping = 1e-6
    for _ in range(400):
        weights = loss.curvature(sign * (z @ point)) / len(z)
        hessian = (z.T * weights) @ z + np.diag(penalty + damping)
        step = -np.linalg.solve(hessian, gradient(point))
        if value(point + step) <= value(point):
            point, damping = point + step, max(0.1 * damping, 1e-15)
        else:
            damping *= 10
        if damping > 1e6:
            break
    return value(point)


@pytest.mark.parametrize("name", ["gram", "lbfgs"])
@pytest.mark.parametrize(("overconfidence", "scale"), LOSSES)
@pytest.mark.parametrize("data", DATA)
def test_reaches_the_minimum(data, overconfidence, scale, name):
    X, y = DATA[data]()
    loss = MarginLoss(1.0, scale, overconfidence)
    solution = SOLVERS[name].solve(make(X, y, loss, name, scale_free=True))
    best = reference(X, y, loss, 1e-3, scale_free=True)
    assert solution.status is not Status.MAX_ITER
    # What the tolerance is relative to; and lbfgs, which knows the Hessian less well, has been seen
    # to estimate its gap 200 times too small.
    unit = max(best, 1e-2 * float(loss.value(0.0)))
    assert solution.value[0] <= best + (1e-10 if name == "gram" else 1e-8) * unit
    # Below the reference by no more than that is short of the minimum itself.
    assert solution.value[0] >= best * (1 - 1e-6)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("alpha", [0.0, 1e-4, 1.0])
@pytest.mark.parametrize("data", ["unbalanced", "wide"])
def test_absolute_penalty(data, alpha, fit_intercept):
    X, y = DATA[data]()
    loss = MarginLoss(1.0, 0.8, 1.0)
    options = {"alpha": alpha, "fit_intercept": fit_intercept}
    problem = make(X, y, loss, "gram", **options)
    solution = SOLVERS["gram"].solve(problem)
    best = reference(X, y, loss, alpha, fit_intercept=fit_intercept)
    assert solution.value[0] <= best + 1e-10 * float(loss.value(0.0))
    # The value is that of the stated objective at the coefficients for the data as it came.
    coef, intercept = problem.geometry.to_data(solution.linear)
    margins = np.where(y == 1, 1, -1) * (X @ coef[:, 0] + intercept[0])
    objective = np.mean(loss.value(margins)) + 0.5 * alpha * coef[:, 0] @ coef[:, 0]
    assert_allclose(solution.value[0], objective, rtol=1e-9, atol=1e-13)


def test_solvers_agree_on_the_coefficients():
    X, y = normal(400, 6, seed=7)
    loss = MarginLoss(1.0, 0.9, 0.6)
    found = {}
    for name in ("gram", "lbfgs"):
        problem = make(X, y, loss, name, alpha=1e-2)
        found[name] = problem.geometry.to_data(SOLVERS[name].solve(problem).linear)
    problem = make(X, y, loss, "steepest", alpha=1e-2, max_iter=3000)
    found["steepest"] = problem.geometry.to_data(solve_steepest(problem).linear)
    for name in ("lbfgs", "steepest"):
        for a, b in zip(found["gram"], found[name], strict=True):
            assert_allclose(a, b, atol=1e-5)


def test_several_classes_equal_separate_problems():
    X, y = load_digits(return_X_y=True)
    X, y = X[:300], y[:300]
    loss = MarginLoss(1.0, 0.7, 0.5)
    together = SOLVERS["gram"].solve(make(X, y, loss, "gram", tol=1e-9))
    for k in range(10):
        alone = SOLVERS["gram"].solve(make(X, (y == k).astype(int), loss, "gram", tol=1e-9))
        assert_allclose(together.value[k], alone.value[0], rtol=1e-7)


@pytest.mark.parametrize("name", ["gram", "lbfgs"])
def test_values_never_rise_and_the_gap_is_honest(name):
    X, y = load_breast_cancer(return_X_y=True)
    loss = MarginLoss(1.0, 0.3, 0.0)
    options = {"alpha": 1e-4, "scale_free": True}
    best = SOLVERS["gram"].solve(make(X, y, loss, "gram", **options, tol=1e-13)).value[0]
    values = []
    problem = make(X, y, loss, name, **options, tol=1e-7, report=lambda p: values.append(p.value))
    solution = SOLVERS[name].solve(problem)
    assert np.all(np.diff(values) <= 1e-14)
    assert solution.status is Status.CONVERGED
    assert (solution.value[0] - best) / best <= 1e-5


def test_newton_finishes_what_is_slow():
    """Where margins above the level are free, the quasi-Newton steps alone would take far more."""
    X, y = load_breast_cancer(return_X_y=True)
    problem = make(X, y, MarginLoss(1.0, 0.3, 0.0), "gram", alpha=1e-4, scale_free=True, tol=1e-10)
    finished = SOLVERS["gram"].solve(problem)
    without = SOLVERS["lbfgs"].solve(replace(problem, max_iter=finished.n_iter))
    assert finished.status is Status.CONVERGED
    assert finished.n_iter > 50
    assert without.value[0] > finished.value[0]


def test_too_few_iterations_are_said():
    X, y = normal(200, 5)
    for name in ("gram", "lbfgs"):
        problem = make(X, y, MarginLoss(1.0, 0.2, 0.0), name, max_iter=2)
        solution = SOLVERS[name].solve(problem)
        assert solution.status is Status.MAX_ITER
        assert solution.n_iter == 2
        assert solution.gap.max() > problem.tol


@pytest.mark.parametrize("name", ["gram", "lbfgs"])
@pytest.mark.parametrize("data", ["unbalanced", "wide", "sparse_data"])
def test_a_warm_start_at_the_minimum_stays_there(data, name):
    X, y = DATA[data]()
    problem = make(X, y, MarginLoss(1.0, 0.8), name, tol=1e-10)
    first = SOLVERS[name].solve(problem)
    geometry = problem.geometry
    start = geometry.from_data(geometry.to_data(first.linear))
    again = SOLVERS[name].solve(replace(problem, start=start, tol=1e-8))
    assert again.n_iter <= 1


class TestAlgorithm1:
    """The paper's Algorithm 1, against the five lines that it is."""

    def test_verbatim(self):
        X, y = normal(60, 3)
        sign = np.where(y == 1, 1.0, -1.0)
        s, gamma, step = 0.8, 1.5, 0.1
        w = np.zeros(3)
        for _ in range(25):
            u = (gamma - sign * (X @ w)) / s
            psi = np.clip(u, -np.sqrt(2), np.sqrt(2)) - np.clip(u, -np.sqrt(2), np.sqrt(2)) ** 3 / 6
            w = w + s * step / len(X) * (psi * sign) @ X
        problem = make(
            X, y, MarginLoss(gamma, s), "steepest", alpha=0.0, fit_intercept=False, max_iter=25
        )
        solution = solve_steepest(problem, step=step)
        assert_allclose(solution.linear[0][:, 0], w, rtol=1e-12)
        assert_array_equal(solution.linear[1], 0)
        assert solution.status is Status.ALL_STEPS
        assert solution.n_iter == 25

    def test_e17_the_admissible_step_is_checked(self):
        X, y = normal(60, 3)
        problem = make(X, y, MarginLoss(), "steepest", alpha=0.0, fit_intercept=False, max_iter=1)
        longest = 2 / np.mean(np.sum(X**2, axis=1))
        solve_steepest(problem, step=0.999 * longest)
        for step in (1.001 * longest, 0.0, -0.1):
            with pytest.raises(ValueError, match="step must be in"):
                solve_steepest(problem, step=step)


def test_the_table_of_choices():
    assert choose_solver(Design(np.zeros((5000, 2048)))) == "gram"
    assert choose_solver(Design(np.zeros((10, 5000)))) == "gram"
    assert choose_solver(Design(sparse.csr_matrix((5000, 3000)))) == "lbfgs"
