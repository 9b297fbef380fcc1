"""Joint tasks preconditioned by the Hessian of a subsample, and problems over float32 copies."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from marginpursuit.design import design_for
from marginpursuit.losses import RHOS, JointLoss, MarginLoss
from marginpursuit.solvers import (
    SOLVERS,
    Policy,
    Problem,
    Request,
    Status,
    float32_problem,
    minimise,
)
from marginpursuit.solvers._compiled_lbfgs import lbfgs_for
from marginpursuit.solvers._float32 import solve_in_float32
from marginpursuit.solvers._joint_sampled_hessian import (
    has_subsample,
    inverse_hessian,
    joint_hessian,
    solve_by_subsample,
)
from marginpursuit.solvers.sampling import systematic_rows
from marginpursuit.tasks import JointTasks, Labels

N_CLASSES = 4

#: Copies and subsamples of the few rows of a test.
EAGER = Policy(min_float32_elements=1, hessian_rows_per_coefficient=10, hessian_sampling_ratio=2)


def problem_of(n_rows=3000, n_columns=6, seed=0, policy=EAGER, alpha=1e-4, **options):
    """Return a joint task: a constant column, a rare one, rows without weight."""
    rng = np.random.default_rng(seed)
    X = rng.normal(2.0, 3.0, size=(n_rows, n_columns))
    X[:, -1] = 5.0
    X[:, -2] = rng.random(n_rows) < 3.0 / n_rows
    codes = np.argmax(X[:, :N_CLASSES] + 2.0 * rng.normal(size=(n_rows, N_CLASSES)), axis=1)
    weights = rng.random(n_rows) * (rng.random(n_rows) > 0.1)
    weights /= weights.sum()
    joint = JointLoss(MarginLoss(1.0, 0.8, 0.0), 0.3)
    fit_intercept = options.pop("fit_intercept", True)
    request = Request(
        *(design_for(X), weights[None], (joint,), "standardised", alpha, fit_intercept),
        n_problems=N_CLASSES,
        policy=policy,
    )
    prepared = SOLVERS["gram"].prepare(request)
    tasks = JointTasks.of(Labels(codes, N_CLASSES), weights, joint)
    start = prepared.zeros(N_CLASSES)
    return Problem(prepared, tasks, np.array([alpha]), start, 1000, 1e-6, policy=policy, **options)


def in_float32(problem):
    return float32_problem(problem, np.arange(problem.prepared.design.n_rows))


@pytest.mark.parametrize("rho", RHOS)
def test_the_hessian_of_the_loss_is_the_derivative_of_its_gradient(rho):
    rng = np.random.default_rng(0)
    joint = JointLoss(MarginLoss(1.0, 0.8, 0.0, rho), 0.3)
    scores, codes, weights = rng.normal(size=(9, 5)), rng.integers(0, 5, 9), rng.random(9)
    found, step = joint.hessian(scores, codes, weights), 1e-6
    for k in range(5):
        change = step * (np.arange(5) == k)
        ends = [joint.gradient(scores + s * change, codes) for s in (1, -1)]
        expected = weights[:, None] * (ends[0] - ends[1]) / (2 * step)
        assert_allclose(found[:, k], expected, atol=1e-8)


def test_added_curvature_is_that_of_the_joint_margin():
    """In the direction of a change of the scores it adds the square of the change of the margin."""
    rng = np.random.default_rng(0)
    joint = JointLoss(MarginLoss(1.0, 0.8, 0.0), 0.3)
    scores, codes, weights = rng.normal(size=(9, 5)), rng.integers(0, 5, 9), rng.random(9)
    plain, added = (joint.hessian(scores, codes, weights, a) for a in (0.0, 0.2))
    change, step = rng.normal(size=(9, 5)), 1e-6
    ends = [joint.margins(scores + s * change, codes) for s in (step, -step)]
    expected = 0.2 * weights * ((ends[0] - ends[1]) / (2 * step)) ** 2
    assert_allclose(np.einsum("ij,ijk,ik->i", change, added - plain, change), expected, atol=1e-8)


@pytest.mark.parametrize("is_copy", [True, False])
def test_to_renew_a_hessian_by_itself_changes_nothing(is_copy):
    """One of another point changes the steps, but not the minimiser."""
    problem = in_float32(problem_of()) if is_copy else problem_of()
    first, other = (
        inverse_hessian(problem, lbfgs_for(problem)(problem, max_iter=n).linear, 1e-2)
        for n in (3, 12)
    )
    problem = replace(problem, inverse_hessian=first)
    numbers = []

    def same(n_steps, linear):
        numbers.append(n_steps)
        return first if n_steps == 4 else None

    runs = [
        lbfgs_for(problem)(problem, max_iter=7, renewal=renewal)
        for renewal in (lambda *_: None, same, lambda n_steps, _: other if n_steps == 4 else None)
    ]
    values = np.array([[step.value for step in run.history] for run in runs])
    assert set(range(1, 7)) <= set(numbers)
    assert_allclose(values[1], values[0], rtol=1e-12)
    assert_array_equal(values[2, :5], values[0, :5])
    assert np.all(np.abs(values[2, 5:] / values[0, 5:] - 1.0) > 1e-9)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("is_copy", [True, False])
def test_the_hessian_of_a_task_is_the_derivative_of_its_gradient(is_copy, fit_intercept):
    problem = problem_of(fit_intercept=fit_intercept)
    if is_copy:
        problem = in_float32(problem)
    point = 0.3 * np.random.default_rng(1).normal(size=problem.join(*problem.start).shape)
    problem.project(point, np.zeros(1, dtype=int))
    size, step, only = point.shape[1], 1e-3 if is_copy else 1e-6, np.zeros(1, dtype=int)
    found = joint_hessian(problem, problem.split(point)).reshape(size, size)
    penalty = np.zeros((N_CLASSES, size // N_CLASSES))
    penalty[:, : problem.penalty.shape[1]] = problem.penalty[0]
    found[np.diag_indices(size)] += penalty.ravel()
    is_free = problem.project(np.ones((1, size)), only)[0] > 0
    for j in np.flatnonzero(is_free):
        change = step * (np.arange(size) == j)
        ends = [problem.value_and_gradient(point + s * change, only)[1] for s in (1, -1)]
        expected = (ends[0] - ends[1])[0] / (2 * step)
        assert_allclose(found[j][is_free], expected[is_free], atol=3e-3 if is_copy else 1e-6)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_a_fit_by_subsamples_reaches_its_tolerance(seed, fit_intercept):
    problem = problem_of(seed=seed, alpha=1e-5, fit_intercept=fit_intercept)
    exact = minimise(replace(problem, tol=1e-12), n_confirmations=5)
    copy = in_float32(problem)
    assert copy is not problem
    assert has_subsample(copy, EAGER.hessian_sampling_ratio)
    found = solve_by_subsample(copy)
    assert found.status is Status.CONVERGED
    value = problem.value_and_gradient(problem.join(*found.linear), np.zeros(1, dtype=int))[0]
    assert value <= (1 + 10 * problem.tol) * exact.value
    assert_allclose(found.value, value, rtol=1e-7)
    assert [x.iteration for x in found.history][-1] == found.n_iter


def test_a_fit_by_subsamples_ends_at_max_iter():
    found = solve_by_subsample(replace(in_float32(problem_of()), max_iter=3))
    assert found.status is Status.MAX_ITER
    assert found.n_iter == 3


def test_a_start_with_a_lower_objective_is_kept():
    problem = in_float32(problem_of())
    minimum = minimise(replace(problem, tol=1e-9), n_confirmations=5)
    found = solve_by_subsample(replace(problem, start=minimum.linear))
    assert found.history[0].value <= minimum.value[0] * (1 + 1e-9)


def test_with_fewer_rows_subsamples_follow_some_steps():
    policy = replace(EAGER, direct_sampling_ratio=1000, first_joint_steps=3)
    found = SOLVERS["gram"].solve(problem_of(policy=policy))
    plain = SOLVERS["gram"].solve(problem_of(policy=replace(policy, max_joint_hessian_size=1)))
    values = [step.value for step in found.history]
    assert found.status is Status.CONVERGED
    assert_allclose(values[:4], [step.value for step in plain.history[:4]], rtol=1e-9)
    assert values[5] != plain.history[5].value
    assert found.n_iter == found.history[-1].iteration
    assert_allclose(found.value, plain.value, rtol=1e-5)
    ended = SOLVERS["gram"].solve(replace(problem_of(policy=policy), max_iter=3))
    assert ended.status is Status.MAX_ITER
    assert ended.n_iter == 3


def test_the_solver_uses_subsamples_where_rows_are_many():
    """The result is that without them, within the tolerance."""
    values = [
        SOLVERS["gram"].solve(problem_of(policy=policy)).value[0]
        for policy in (EAGER, replace(EAGER, max_joint_hessian_size=1), Policy())
    ]
    assert_allclose(values[1:], values[0], rtol=1e-5)


@pytest.mark.parametrize("n_classes", [3, 60])
@pytest.mark.parametrize("tol", [1e-6, 1e-4])
def test_a_fit_to_a_float32_copy_reaches_its_tolerance(n_classes, tol):
    rng = np.random.default_rng(n_classes)
    X = rng.normal(size=(1200, 20)) @ rng.normal(size=(20, 20)) + 100.0
    codes = np.argmax(
        X @ rng.normal(size=(20, n_classes)) + 20 * rng.normal(size=(1200, n_classes)), 1
    )
    codes[:n_classes] = np.arange(n_classes)
    weights, joint = np.full(1200, 1 / 1200), JointLoss(MarginLoss(1.0, 1.0, 0.0), 0.3)
    request = Request(
        *(design_for(X), weights[None], (joint,), "standardised", 3e-4, True),
        n_problems=n_classes,
        policy=replace(EAGER, max_joint_hessian_size=1),
    )
    prepared = SOLVERS["gram"].prepare(request)
    problem = Problem(
        *(prepared, JointTasks.of(Labels(codes, n_classes), weights, joint), np.array([3e-4])),
        *(prepared.zeros(n_classes), 1000, tol),
        policy=request.policy,
    )
    found = SOLVERS["gram"].solve(problem)
    exact = minimise(replace(problem, tol=1e-11), n_confirmations=5)
    value = problem.value_and_gradient(problem.join(*found.linear), np.zeros(1, dtype=int))[0]
    assert found.status is Status.CONVERGED
    assert value <= (1 + 10 * tol) * exact.value


def test_systematic_rows_are_drawn_with_their_probability():
    probability = np.tile([1.0, 0.25, 0.0, 0.5], 100)
    drawn = np.mean(
        [np.isin(np.arange(400), systematic_rows(probability, seed)) for seed in range(400)], axis=0
    )
    assert_array_equal(drawn[::4], 1.0)
    assert_array_equal(drawn[2::4], 0.0)
    assert_allclose(drawn, probability, atol=0.12)
    assert abs(len(systematic_rows(probability)) - 175) <= 1


def test_a_constant_column_does_not_prevent_the_copy():
    """Its coefficient is zero and has no penalty."""
    problem, used = problem_of(n_rows=1200, n_columns=40, alpha=1e-3), []

    def solve(posed):
        used.append(posed.prepared.design.padded is not None)
        return minimise(posed, n_confirmations=3)

    solve_in_float32(problem, solve)
    assert used == [True]


@pytest.mark.parametrize(("n_rows", "alpha"), [(3000, 1e-9), (500, 1e-2), (500, 1e-9)])
def test_the_gram_matrix_is_that_of_a_copy_where_float32_suffices(n_rows, alpha):
    problem = problem_of(n_rows=n_rows, alpha=alpha)
    prepared = problem.prepared
    assert prepared.preconditioner.gram is None
    in_float32(problem)
    if n_rows < 600 and alpha < 1e-3:
        assert prepared.preconditioner.gram is None
        return
    expected = prepared.design.gram(problem.tasks.weights[0], prepared.standardisation)
    assert_allclose(prepared.preconditioner.gram, expected, atol=1e-5)
    assert not np.array_equal(prepared.preconditioner.gram, expected)
