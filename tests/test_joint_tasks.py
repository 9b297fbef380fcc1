"""Joint tasks in every layout: sweeps, solvers, folds and threads, against direct objectives."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

from marginpursuit import _kernels
from marginpursuit._threads import Threads
from marginpursuit.blocks import Blocks
from marginpursuit.design import Standardisation, design_for
from marginpursuit.losses import RHOS, JointLoss, MarginLoss
from marginpursuit.solvers import SOLVERS, Problem, Request, plan
from marginpursuit.tasks import JointTasks, Labels, RowRanges

N_CLASSES = 4


def in_blocks(X):
    return Blocks([partial(lambda part: part, part) for part in (X[:70], X[70:71], X[71:])])


def strict(X):
    return pytest.importorskip("array_api_strict").asarray(np.ascontiguousarray(X))


LAYOUTS = {
    "dense": np.ascontiguousarray,
    "columns": np.asfortranarray,
    "CSR": sparse.csr_array,
    "blocks": in_blocks,
    "array API": strict,
}


def data(dtype="float64", n_rows=160, n_columns=6, seed=0):
    """Return classes in rows that float32 represents exactly, with unequal weights."""
    rng = np.random.default_rng(seed)
    X = np.round(8 * rng.normal(size=(n_rows, n_columns))) / 8
    X[rng.random(X.shape) < 0.3] = 0.0
    codes = np.argmax(X[:, :N_CLASSES] + rng.normal(size=(n_rows, N_CLASSES)), axis=1)
    weights = rng.random(n_rows) + 0.2
    weights[:5] = 0.0
    return X.astype(dtype), codes.astype(np.intp), weights / weights.sum()


def direct(loss, scores, codes, weights):
    """Return the weighted joint loss and its derivatives in the scores, by SciPy."""
    own = np.arange(len(codes)), codes
    others = scores / loss.temperature
    others[own] = -np.inf
    margin = scores[own] - loss.temperature * logsumexp(others, axis=1)
    slope = weights * loss.loss.derivative(margin)
    derivative = -slope[:, np.newaxis] * softmax(others, axis=1)
    derivative[own] = slope
    return weights @ loss.loss.value(margin), derivative


def minimum(loss, X, codes, weights, alpha):
    """Return the minimum of the objective with the penalty α/2 Σ w², by SciPy."""
    shape = (N_CLASSES, X.shape[1] + 1)
    rows = np.column_stack([X, np.ones(len(X))]).astype(float)
    penalised = np.ones(shape)
    penalised[:, -1] = 0.0

    def objective(point):
        linear = point.reshape(shape)
        value, derivative = direct(loss, rows @ linear.T, codes, weights)
        shrinkage = alpha * penalised * linear
        total = value + 0.5 * np.sum(shrinkage * linear)
        return total, (derivative.T @ rows + shrinkage).ravel()

    options = {"maxiter": 5000, "maxfun": 10000, "ftol": 1e-15, "gtol": 1e-10}
    found = minimize(
        objective, np.zeros(shape).ravel(), jac=True, method="L-BFGS-B", options=options
    )
    return found.fun


def problem_of(X, codes, weights, loss, name, *, alpha=1e-2, n_threads=1, **options):
    design = design_for(X, Threads(n_threads))
    tasks = JointTasks.of(Labels(codes, N_CLASSES), design.to_device(weights), loss)
    request = Request(design, tasks.weights, tasks.losses, "absolute", alpha, True)
    prepared = SOLVERS[name].prepare(request)
    given = {"max_iter": 2000, "tol": 1e-10} | options
    return Problem(prepared, tasks, np.array([alpha]), prepared.zeros(N_CLASSES), **given)


@pytest.mark.parametrize("dtype", ["float64", "float32", "int8"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_sweep_is_the_direct_sum(layout, dtype):
    X, codes, weights = data(dtype)
    rng = np.random.default_rng(1)
    losses = tuple(JointLoss(MarginLoss(1.0, s, 0.0), t) for s, t in [(0.8, 0.3), (2.0, 1.0)])
    coef, intercept = rng.normal(size=(6, 2 * N_CLASSES)), rng.normal(size=2 * N_CLASSES)
    both = np.stack([weights, weights[::-1]])
    with design_for(LAYOUTS[layout](X)) as design:
        fold = np.array([1, 0])
        tasks = JointTasks(
            *(codes, both, np.zeros(2, dtype=np.intp), fold, losses), n_classes=N_CLASSES
        )
        sweep = design.sweep(coef, intercept, tasks, Standardisation.identity(6))
    assert sweep.value.shape == (2,)
    rtol = 1e-5 if layout == "array API" and dtype != "float64" else 1e-11
    for k, loss in enumerate(losses):
        own = slice(k * N_CLASSES, (k + 1) * N_CLASSES)
        scores = X.astype(float) @ coef[:, own] + intercept[own]
        value, derivative = direct(loss, scores, codes, both[fold[k]])
        assert_allclose(sweep.value[k], value, rtol=rtol)
        assert_allclose(sweep.gradient[:, own], X.T.astype(float) @ derivative, atol=rtol)
        assert_allclose(sweep.slope[own], derivative.sum(axis=0), atol=rtol)


@pytest.mark.parametrize("rho", RHOS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["gram", "lbfgs"])
def test_solvers_find_the_minimum(name, layout, rho):
    X, codes, weights = data()
    loss = JointLoss(MarginLoss(1.0, 0.8, 0.0, rho), 0.3)
    solution = SOLVERS[name].solve(problem_of(LAYOUTS[layout](X), codes, weights, loss, name))
    expected = minimum(loss, X, codes, weights, 1e-2)
    assert solution.value.shape == (1,)
    assert_allclose(solution.value[0], expected, rtol=1e-8)
    coef, intercept = solution.linear
    assert_allclose(intercept.sum(), 0.0, atol=1e-10)
    assert_allclose(coef.sum(axis=1), 0.0, atol=1e-10)


def test_fewer_rows_than_columns():
    X, codes, weights = data(n_rows=30, n_columns=50)
    loss = JointLoss(MarginLoss(1.0, 1.0, 0.0), 0.3)
    solution = SOLVERS["gram"].solve(problem_of(X, codes, weights, loss, "gram"))
    assert_allclose(solution.value[0], minimum(loss, X, codes, weights, 1e-2), rtol=1e-7)


def test_folds_and_penalties_are_tasks_of_one_problem():
    X, codes, weights = data()
    rng = np.random.default_rng(2)
    folds = weights * np.stack([rng.random(len(X)) < 0.7 for _ in range(2)])
    folds /= folds.sum(axis=1, keepdims=True)
    design = design_for(X)
    loss = JointLoss(MarginLoss(1.0, 0.8, 0.0), 0.3)
    fold, alphas = np.array([0, 1, 1]), np.array([1e-2, 1e-2, 1e-1])
    tasks = JointTasks(
        *(codes, folds, np.zeros(3, dtype=np.intp), fold, (loss,) * 3), n_classes=N_CLASSES
    )
    request = Request(design, folds, (loss,), "absolute", 1e-2, True, is_search=True)
    for name in ("gram", "lbfgs"):
        prepared = SOLVERS[name].prepare(request)
        start = prepared.zeros(3 * N_CLASSES)
        problem = Problem(prepared, tasks, alphas, start, 2000, 1e-10)
        solution = SOLVERS[name].solve_folds(problem, np.full(3, 1e-10))
        expected = [minimum(loss, X, codes, folds[k], a) for k, a in zip(fold, alphas, strict=True)]
        assert_allclose(solution.value, expected, rtol=1e-8)


def test_the_gradient_of_the_problem_is_its_derivative():
    X, codes, weights = data()
    loss = JointLoss(MarginLoss(1.0, 0.8, 0.0, "log_cosh"), 0.3)
    problem = problem_of(X, codes, weights, loss, "gram")
    point = np.random.default_rng(3).normal(size=(1, N_CLASSES * 7))
    only, step = np.zeros(1, dtype=int), 1e-6
    gradient = problem.value_and_gradient(point, only)[1][0]
    for j in range(point.size):
        change = step * np.eye(point.size)[[j]]
        ends = [problem.value_and_gradient(point + s * change, only)[0][0] for s in (1, -1)]
        assert_allclose(gradient[j], (ends[0] - ends[1]) / (2 * step), atol=1e-8)
    coef, intercept = problem.split(point)
    assert_array_equal(problem.join(coef, intercept), point)


def test_a_sweep_without_compiled_kernels_is_the_same(monkeypatch):
    X, codes, weights = data()
    problem = problem_of(X, codes, weights, JointLoss(MarginLoss(1.0, 0.8, 0.0), 0.3), "gram")
    point = np.random.default_rng(4).normal(size=(1, N_CLASSES * 7))
    compiled = problem.value_and_gradient(point, np.zeros(1, dtype=int))
    monkeypatch.setattr(_kernels, "joint_losses", None)
    for found, expected in zip(
        problem.value_and_gradient(point, np.zeros(1, dtype=int)), compiled, strict=True
    ):
        assert_allclose(found, expected, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("n_classes", [3, 60])
def test_a_float32_copy_is_swept_to_the_digits_of_float32(n_classes):
    """Two folds, with ranges of rows that only one of them uses."""
    rng = np.random.default_rng(5)
    rows, codes = rng.normal(2.0, 3.0, size=(900, 7)), rng.integers(0, n_classes, 900)
    weights = rng.random((2, 900)) / 900
    weights[0, ::3], weights[1, 1::3] = 0.0, 0.0
    loss, fold = JointLoss(MarginLoss(1.0, 0.8, 0.0), 0.3), np.arange(2)
    tasks = JointTasks(codes, weights, 0 * fold, fold, (loss, loss), n_classes=n_classes)
    design, identity = design_for(rows), Standardisation.identity(7)
    z = design.standardisation(weights[0], centred=True)
    order, ranges = RowRanges.of(weights, min_mean_rows=10)
    copy = design.float32_copy(order, z)
    moved = np.ascontiguousarray(weights[:, order])
    cut = replace(tasks, codes=codes[order], weights=moved, ranges=ranges)
    coef, intercept = rng.normal(size=(7, 2 * n_classes)), rng.normal(size=2 * n_classes)
    ours, expected = (
        d.sweep(coef, intercept, t, s) for d, t, s in ((copy, cut, identity), (design, tasks, z))
    )
    for name in ("value", "gradient", "slope"):
        assert_allclose(getattr(ours, name), getattr(expected, name), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("layout", ["dense", "CSR", "blocks"])
def test_threads_change_no_bit(layout):
    X, codes, weights = data(n_rows=3000)
    loss = JointLoss(MarginLoss(1.0, 0.8, 0.0), 0.3)
    found = []
    for n_threads in (1, 3):
        problem = problem_of(
            LAYOUTS[layout](X), codes, weights, loss, "lbfgs", n_threads=n_threads, max_iter=20
        )
        found.append(SOLVERS["lbfgs"].solve(problem).linear)
    assert_array_equal(found[0][0], found[1][0])
    assert_array_equal(found[0][1], found[1][1])


@pytest.mark.parametrize("name", ["dual", "stochastic", "steepest"])
def test_solvers_without_joint_tasks_refuse_them_by_name(name):
    X, _, weights = data()
    loss = JointLoss(MarginLoss(1.0, 0.8, 0.0), 0.3)
    design = design_for(sparse.csr_array(X))
    request = Request(design, weights[None], (loss,), "absolute", 1e-2, True)
    with pytest.raises(ValueError, match=f"solver='{name}'.*multi_class='ovr'"):
        plan(request, name)
