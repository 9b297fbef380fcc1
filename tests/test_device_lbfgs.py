"""Joint losses of many classes on a device, compared with the same data in NumPy."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from marginpursuit import MarginPursuitClassifier
from marginpursuit._namespaces import to_numpy
from marginpursuit.design import ArrayDesign, Standardisation
from marginpursuit.losses import JointLoss, MarginLoss
from marginpursuit.solvers import Problem, Request, Status
from marginpursuit.solvers._device_lbfgs import minimise_on_device
from marginpursuit.solvers._numpy_lbfgs import minimise, remaining_decrease
from marginpursuit.solvers.gram import GramSolver
from marginpursuit.solvers.policy import Policy
from marginpursuit.tasks import JointTasks, Labels

strict = pytest.importorskip("array_api_strict")
DEVICE1 = strict.Device("device1")


def rows_and_labels(n_rows=300, n_columns=9, n_classes=5):
    rng = np.random.default_rng(0)
    means = rng.normal(size=(n_classes, n_columns))
    y = np.arange(n_rows) % n_classes
    return means[y] + 1.2 * rng.normal(size=(n_rows, n_columns)) + 3.0, y


def on_device(values, dtype=None):
    return strict.asarray(np.array(values), dtype=dtype, device=DEVICE1)


def problem_of(design, place, y, weights, alpha, *, fit_intercept=True, tol=1e-8, max_iter=500):
    """Return a joint task for each row of the weights."""
    loss = JointLoss.at_level(MarginLoss(overconfidence=0.0))
    request = Request(design, weights, (loss,), "standardised", alpha, fit_intercept)
    prepared = GramSolver().prepare(request)
    n_tasks, n_classes = len(weights), int(y.max()) + 1
    tasks = JointTasks(
        place(y),
        place(weights),
        np.zeros(n_tasks, dtype=np.intp),
        np.arange(n_tasks),
        (loss,) * n_tasks,
        n_classes=n_classes,
    )
    start = prepared.zeros(n_tasks * n_classes)
    return Problem(prepared, tasks, np.full(n_tasks, alpha), start, max_iter, tol)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_the_minimiser_is_that_of_numpy(fit_intercept):
    X, y = rows_and_labels()
    rng = np.random.default_rng(1)
    weights = rng.random((2, len(y))) * (rng.random((2, len(y))) < 0.7)
    weights /= weights.sum(axis=1, keepdims=True)
    design = ArrayDesign(on_device(X))
    problem = problem_of(design, on_device, y, weights, 1e-3, fit_intercept=fit_intercept)
    found = minimise_on_device(problem, n_confirmations=5)
    reference = minimise(problem, n_confirmations=5)
    assert found.status is Status.CONVERGED
    assert_allclose(found.value, reference.value, rtol=1e-7)
    scores = [
        to_numpy(design.scores(*each.linear, problem.prepared.standardisation))
        for each in (found, reference)
    ]
    assert_allclose(scores[0], scores[1], atol=2e-3)


def test_a_warm_start_at_the_minimum_takes_few_passes():
    X, y = rows_and_labels()
    weights = np.full((1, len(y)), 1 / len(y))
    problem = problem_of(ArrayDesign(on_device(X)), on_device, y, weights, 1e-3)
    first = minimise_on_device(problem, n_confirmations=5)
    again = minimise_on_device(
        Problem(problem.prepared, problem.tasks, problem.alphas, first.linear, 500, 1e-4),
        n_confirmations=2,
    )
    assert again.n_iter <= 3 < first.n_iter


def test_a_decrease_by_rounding_is_not_extrapolated():
    geometric = (1.0 + 0.5 ** np.arange(21.0)).tolist()
    assert_allclose(remaining_decrease(geometric, 5), 0.5**20, rtol=1e-9)
    assert remaining_decrease(geometric[:10], 5) == 0
    assert remaining_decrease([1.0] * 11, 5) == 0
    assert remaining_decrease([1.0] * 10 + [1.0 - 2.0**-53], 5) == 0
    assert remaining_decrease([1.0] * 10 + [0.5], 5) == np.inf
    both = np.column_stack([geometric, np.ones(21)])
    assert_allclose(remaining_decrease(list(both), 5), [0.5**20, 0.0], rtol=1e-9)


def test_too_few_iterations_are_reported():
    X, y = rows_and_labels()
    weights = np.full((1, len(y)), 1 / len(y))
    problem = problem_of(ArrayDesign(on_device(X)), on_device, y, weights, 1e-4, max_iter=2)
    found = minimise_on_device(problem, n_confirmations=5)
    assert found.status is Status.MAX_ITER
    assert found.gap[0] > problem.tol


def test_sums_stay_on_the_device_of_the_coefficients():
    X, y = rows_and_labels()
    design, n_columns = ArrayDesign(on_device(X)), X.shape[1]
    loss = JointLoss.at_level(MarginLoss(overconfidence=0.0))
    weights = np.full(len(y), 1 / len(y))
    tasks = JointTasks.of(Labels(on_device(y), 5), on_device(weights), loss)
    rng = np.random.default_rng(2)
    coef, intercept = rng.normal(size=(n_columns, 5)), rng.normal(size=5)
    mean, deviation = X.mean(axis=0), X.std(axis=0)
    here = design.sweep(coef, intercept, tasks, Standardisation(mean, 1 / deviation))
    there = design.sweep(
        on_device(coef),
        on_device(intercept),
        tasks,
        Standardisation(on_device(mean), on_device(1 / deviation)),
    )
    assert isinstance(here.gradient, np.ndarray)
    for name in ("value", "gradient", "slope"):
        assert getattr(there, name).device == DEVICE1
        assert_allclose(to_numpy(getattr(there, name)), getattr(here, name), rtol=1e-12)


def test_a_fit_with_many_coefficients_takes_steps_on_the_device():
    X, y = rows_and_labels()
    policy = Policy(min_device_coefficients=1)
    weights = np.full((1, len(y)), 1 / len(y))
    problem = problem_of(ArrayDesign(on_device(X)), on_device, y, weights, 1e-3, tol=1e-6)
    small = GramSolver().solve(problem)
    large = GramSolver().solve(
        Problem(
            *(problem.prepared, problem.tasks, problem.alphas, problem.start, 500, 1e-6),
            policy=policy,
        )
    )
    assert_allclose(large.value, small.value, rtol=1e-6)
    assert len(large.history) != len(small.history)


def test_default_fit_of_many_classes():
    X, y = rows_and_labels(1300, 40, 420)
    device = MarginPursuitClassifier(probability=None, solver="gram", alpha=1e-2)
    model = device.fit(on_device(X), on_device(y))
    reference = MarginPursuitClassifier(probability=None, solver="gram", alpha=1e-2).fit(X, y)
    assert model.coef_.size >= Policy().min_device_coefficients
    assert_allclose(model.objective_, reference.objective_, rtol=1e-5)
