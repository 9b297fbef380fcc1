"""Coordinate ascent in the dual against the quasi-Newton method, and its own promises."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from marginpursuit import _kernels
from marginpursuit.design import design_for
from marginpursuit.design.merged import MergedDesign
from marginpursuit.losses import MarginLoss
from marginpursuit.solvers import SOLVERS, Problem, Status, minimise
from marginpursuit.solvers._quasi_newton import evaluate, join
from marginpursuit.solvers.dual_ascent import has_dual, prepare_dual, solve_dual
from marginpursuit.tasks import Tasks

pytestmark = pytest.mark.skipif(
    _kernels._compiled is None, reason="installed without the compiled kernels"
)

N_ROWS, N_COLUMNS, N_CLASSES = 90, 60, 3
LOSSES = [MarginLoss(1.0, s, t) for s in (0.1, 1.0, 3.0) for t in (0.0, 1.0)]


def rows(n_columns=N_COLUMNS, lone=0):
    """Return counts, of which some columns may be those of one row alone, and classes."""
    rng = np.random.default_rng(0)
    X = rng.poisson(0.2, size=(N_ROWS, n_columns)).astype(np.float64)
    X[:, n_columns - lone :] = 0.0
    for j in range(n_columns - lone, n_columns):
        X[rng.integers(N_ROWS), j] = 1.0 + rng.random()
    score = X @ rng.normal(size=(n_columns, N_CLASSES)) + rng.normal(size=(N_ROWS, N_CLASSES))
    return sparse.csr_matrix(X), score.argmax(axis=1)


def parts():
    """Return the weights of three parts, two of them without some of the rows."""
    weights = np.random.default_rng(1).random((3, N_ROWS)) + 0.1
    weights[1, :20], weights[2, 50:] = 0.0, 0.0
    return weights / weights.sum(axis=1, keepdims=True)


def problem(X, codes, prepare, unit="common", fit_intercept=True, tol=1e-9, **options):
    """Pose every class on every part with every loss: 54 tasks, teams with lanes left over."""
    weights = parts()
    shape = len(LOSSES), len(weights), N_CLASSES
    which, part, positive = (np.ravel(x) for x in np.indices(shape))
    tasks = Tasks(codes, weights, positive, part, tuple(LOSSES[k] for k in which))
    design = design_for(X, **options)
    prepared = prepare(design, weights, unit, fit_intercept=fit_intercept)
    alphas = 10.0 ** np.random.default_rng(2).uniform(-3, -1, len(tasks))
    start = np.zeros((prepared.design.n_columns, len(tasks))), np.zeros(len(tasks))
    return Problem(prepared, tasks, alphas, start, 3000, tol, report=lambda progress: None)


def value_of(posed, found):
    """Return the objective, in a sweep of its own."""
    return evaluate(posed, join(posed, *found.linear), np.arange(len(posed.tasks)))[0]


@pytest.mark.parametrize("unit", ["absolute", "common"])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("lone", [0, 40])
def test_the_minimiser_is_that_of_the_quasi_newton_method(unit, fit_intercept, lone):
    X, codes = rows(lone=lone)
    ours = problem(X, codes, prepare_dual, unit, fit_intercept)
    reference = problem(X, codes, SOLVERS["lbfgs"].prepare, unit, fit_intercept, tol=1e-12)
    assert isinstance(ours.prepared.design, MergedDesign) == bool(lone)
    found, expected = solve_dual(ours), SOLVERS["lbfgs"].solve(reference)
    assert found.status is Status.CONVERGED
    assert_allclose(value_of(ours, found), expected.value, rtol=1e-8)
    assert_allclose(found.value, expected.value, rtol=1e-5)  # as it was on the way
    linear, other = ours.prepared.to_data(found.linear), reference.prepared.to_data(expected.linear)
    scores = (X @ coef + intercept for coef, intercept in (linear, other))
    assert_allclose(*scores, atol=2e-3)
    assert np.any(linear[1] != 0) == fit_intercept


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("lone", [0, 40])
def test_the_primal_may_go_on_in_the_same_columns(fit_intercept, lone):
    """Its steps are those in standardised columns, which a mean far from zero does not delay."""
    X, codes = rows(lone=lone)
    X = sparse.csr_matrix(X.toarray() + 20.0 * np.eye(1, N_COLUMNS))
    posed = [
        problem(X, codes, prepare, fit_intercept=fit_intercept)
        for prepare in (prepare_dual, SOLVERS["lbfgs"].prepare)
    ]
    found, expected = (minimise(each) for each in posed)
    assert_allclose(found.value, expected.value, rtol=1e-8)
    assert found.n_iter <= 1.2 * expected.n_iter


@pytest.mark.parametrize("tol", [0.3, 1e-2, 1e-4])
def test_the_gap_bounds_how_far_the_objective_is_off(tol):
    X, codes = rows()
    rough = problem(X, codes, prepare_dual, tol=tol)
    found, best = solve_dual(rough), solve_dual(problem(X, codes, prepare_dual))
    value = value_of(rough, found)
    assert np.all(found.gap <= tol)
    assert found.n_iter < best.n_iter
    assert np.all(value - value_of(rough, best) <= tol * rough.relative_to(value))
    assert np.any(value - value_of(rough, best) > 1e-3 * tol * value)


def test_each_task_has_a_tolerance_and_passes_are_counted():
    X, codes = rows()
    posed = problem(X, codes, prepare_dual)
    before = posed.prepared.design.n_passes
    tols = np.where(posed.tasks.part == 1, 1e-6, 0.5)
    found = solve_dual(posed, tols)
    assert found.status is Status.CONVERGED
    assert np.all(found.gap <= tols)
    assert found.gap[posed.tasks.part != 1].max() > 1e-6
    assert posed.prepared.design.n_passes >= before + found.n_iter
    few = Problem(
        posed.prepared, posed.tasks, posed.alphas, posed.start, 2, 1e-9, report=lambda _: None
    )
    found = solve_dual(few)
    assert (found.status, found.n_iter) == (Status.MAX_ITER, 2)


def test_threads_change_nothing():
    X, codes = rows()
    one, two = (solve_dual(problem(X, codes, prepare_dual, tol=1e-3, n_threads=n)) for n in (1, 2))
    assert_array_equal(one.linear[0], two.linear[0])
    assert_array_equal(one.linear[1], two.linear[1])


def test_rows_that_are_all_the_same_leave_the_intercept():
    X, codes = sparse.csr_matrix(np.ones((N_ROWS, 2))), np.arange(N_ROWS) % N_CLASSES
    posed = problem(X, codes, prepare_dual, tol=1e-6)
    found = solve_dual(posed)
    reference = problem(X, codes, SOLVERS["lbfgs"].prepare, tol=1e-12)
    expected = SOLVERS["lbfgs"].solve(reference).value
    assert_allclose(value_of(posed, found), expected, rtol=1e-5)


def test_who_has_a_dual():
    X, _ = rows()
    assert has_dual(design_for(X), "common")
    assert has_dual(design_for(X), "absolute")
    assert not has_dual(design_for(X), "standardised")
    assert not has_dual(design_for(X.toarray()), "common")
