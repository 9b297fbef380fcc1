"""The compiled Newton method: minimisers, honest gaps, tasks that it hands on, and its inputs."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from convergence_problems import draw
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning

from marginpursuit import MarginPursuitClassifier, _kernels
from marginpursuit._threads import Threads
from marginpursuit.design import design_for
from marginpursuit.losses import RHOS, JointLoss, MarginLoss
from marginpursuit.solvers import SOLVERS, Policy, Problem, Request, Status, newton
from marginpursuit.solvers.newton import NewtonSolver, TaskPaths, _kernel_tasks, _newton
from marginpursuit.tasks import JointTasks, Labels, Tasks

pytestmark = pytest.mark.skipif(
    _kernels.newton is None, reason="installed without the compiled kernels"
)


def rows(n, d, n_classes=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * rng.uniform(0.1, 10.0, size=d)
    scores = X @ rng.normal(size=(d, n_classes)) + np.sqrt(d) * rng.normal(size=(n, n_classes))
    codes = np.argmax(scores, axis=1)
    codes[:n_classes] = np.arange(n_classes)
    return X, codes


def make(solver, X, codes, loss, *, alpha=1e-3, weights=None, n_threads=1, **options):
    """Return the problem of all classes; `weights` has a row for each fold."""
    n, labels = len(X), Labels(codes, int(codes.max()) + 1)
    weights = np.full((1, n), 1 / n) if weights is None else weights
    design, n_problems = design_for(X, Threads(n_threads)), len(labels.positive_classes)
    request = Request(design, weights, (loss,), "standardised", alpha, True, n_problems)
    prepared = SOLVERS[solver].prepare(request)
    folds = np.arange(len(weights))
    if isinstance(loss, JointLoss):
        zero = np.zeros_like(folds)
        tasks = JointTasks(
            codes, weights, zero, folds, (loss,) * len(folds), n_classes=labels.n_classes
        )
    else:
        positive = np.tile(labels.positive_classes, len(folds))
        fold = np.repeat(folds, n_problems)
        tasks = Tasks(codes, weights, positive, fold, (loss,) * len(fold))
    start = prepared.zeros(len(tasks) * tasks.columns_per_task)
    given = {"max_iter": 1000, "tol": 1e-9} | options
    return Problem(prepared, tasks, np.full(len(tasks), alpha), start, **given)


@pytest.mark.parametrize("n_classes", [3, 5])
@pytest.mark.parametrize("rho", list(RHOS))
def test_joint_tasks_have_the_minimum_of_lbfgs(rho, n_classes):
    X, codes = rows(80, 4, n_classes)
    loss = JointLoss(MarginLoss(scale=0.7, overconfidence=0.0, rho=rho))
    found, expected = (
        SOLVERS[name].solve(make(name, X, codes, loss)) for name in ("newton", "gram")
    )
    assert found.status is Status.CONVERGED
    assert_allclose(found.value, expected.value, rtol=1e-9)
    assert_allclose(found.linear[0], expected.linear[0], atol=1e-4)
    assert_allclose(found.linear[0].sum(axis=1), 0.0, atol=1e-9)
    assert found.n_iter < 30


def test_folds_with_a_constant_column_fix_its_coefficient():
    X, codes = rows(60, 3)
    X[:, 1] = np.arange(60) >= 30
    weights = np.ones((2, 60))
    weights[0, 30:] = 0.0
    weights /= weights.sum(axis=1, keepdims=True)
    loss, tol = MarginLoss(overconfidence=0.0), np.full(2, 1e-8)
    found, expected = (
        SOLVERS[name].solve_folds(make(name, X, codes, loss, weights=weights), tol)
        for name in ("newton", "gram")
    )
    assert found.linear[0][1, 0] == 0.0
    assert_allclose(found.value, expected.value, rtol=1e-7)


@settings(max_examples=60, deadline=None)
@example(53, 10, 0.0, -2.0, 0.0, -3.0, 3)  # the intercept is far from its minimiser
@given(
    st.integers(5, 60),
    st.integers(1, 12),
    st.sampled_from([0.0, 0.3, 1.0]),
    st.floats(-2, 1),
    st.floats(-7, 0),
    st.floats(-8, -2),
    st.integers(0, 10**6),
)
def test_the_gap_is_honest_within_a_factor_of_ten(n, d, tau, log_scale, log_alpha, log_tol, seed):
    X, codes = rows(n, d, seed=seed)
    loss = MarginLoss(scale=10.0**log_scale, overconfidence=tau)
    problem = make("newton", X, codes, loss, alpha=10.0**log_alpha, tol=10.0**log_tol)
    minimum = NewtonSolver().solve(replace(problem, tol=1e-13))
    found = NewtonSolver().solve(problem)
    assert found.status is Status.CONVERGED
    excess = (found.value - minimum.value) / problem.relative_to(minimum.value)
    assert np.all(excess <= 10 * problem.tol + 1e-12)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_tasks_that_differ_in_their_penalty_have_the_minima_of_single_ones(n_classes):
    """They start at each other, from the largest penalty on, and take fewer iterations."""
    X, codes = rows(90, 5, n_classes)
    weights = np.random.default_rng(0).random((2, 90))
    weights /= weights.sum(axis=1, keepdims=True)
    one = make("newton", X, codes, MarginLoss(overconfidence=0.0), weights=weights)
    n, factors = len(one.tasks), np.array([10.0, 1.0, 100.0])
    tasks = one.tasks.take(np.tile(np.arange(n), 3))
    start = one.prepared.zeros(3 * n)
    alphas = np.repeat(factors, n) * 1e-3
    found = NewtonSolver().solve_folds(
        replace(one, tasks=tasks, alphas=alphas, start=start), np.full(3 * n, 1e-9)
    )
    for k, factor in enumerate(factors):
        single = replace(one, alphas=factor * one.alphas)
        expected = NewtonSolver().solve_folds(single, np.full(n, 1e-9))
        assert_allclose(found.value[k * n : (k + 1) * n], expected.value, rtol=1e-8)
    paths = TaskPaths.of(replace(one, tasks=tasks, alphas=alphas, start=start)).paths
    assert sorted(map(list, paths)) == [[2 * n + k, k, n + k] for k in range(n)]


def test_most_loose_fits_meet_their_tolerance():
    excess = []
    for seed in range(100):
        X, codes = rows(20 + seed, 1 + seed % 12, seed=seed)
        loss = MarginLoss(scale=10.0 ** (seed % 3 - 1), overconfidence=0.0)
        problem = make("newton", X, codes, loss, alpha=10.0 ** (-1 - seed % 6))
        minimum = NewtonSolver().solve(replace(problem, tol=1e-13)).value
        found = NewtonSolver().solve_folds(problem, np.array([1e-3])).value
        excess.append((found - minimum) / problem.relative_to(minimum))
    assert np.quantile(excess, 0.95) <= 1e-3
    assert np.max(excess) <= 1e-2


def alone(problem):
    """Return each task as a path of its own."""
    n = len(problem.tasks)
    return TaskPaths(list(np.arange(n)[:, np.newaxis]), *np.full((2, n), -1))


def path_problem(n_classes, **options):
    """Return tasks of three penalties on two folds that hold rows out, in a random order."""
    X, codes = rows(120, 6, n_classes)
    rng = np.random.default_rng(1)
    weights = rng.random((2, 120)) * (rng.random((2, 120)) < 0.7)
    weights /= weights.sum(axis=1, keepdims=True)
    margin = MarginLoss(scale=0.5, overconfidence=0.0)
    loss = margin if n_classes == 2 else JointLoss(margin)
    problem = make("newton", X, codes, loss, weights=weights, **options)
    order = rng.permutation(np.repeat(np.arange(2), 3))
    alphas = np.empty(6)
    alphas[order == 0], alphas[order == 1] = (rng.permutation([1e-1, 1e-3, 1e-5]) for _ in range(2))
    zero = problem.prepared.zeros(6 * problem.tasks.columns_per_task)
    return replace(problem, tasks=problem.tasks.take(order), alphas=alphas, start=zero)


@pytest.mark.parametrize("options", [{}, {"n_threads": 2}, {"newton_call_products": 1}])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_paths_of_penalties_have_the_minima_of_single_tasks(n_classes, options):
    policy = {"min_newton_thread_products": 0} | options
    n_threads = policy.pop("n_threads", 1)
    problem = path_problem(n_classes, n_threads=n_threads, policy=Policy(**policy))
    found = NewtonSolver().solve_folds(problem, np.full(6, 1e-10))
    alone = [
        NewtonSolver().solve(
            replace(
                problem,
                tasks=problem.tasks.take(np.array([k])),
                alphas=problem.alphas[[k]],
                start=problem.prepared.zeros(problem.tasks.columns_per_task),
            )
        )
        for k in range(6)
    ]
    assert_allclose(found.value, [own.value[0] for own in alone], rtol=1e-9)
    coef = np.hstack([own.linear[0] for own in alone])
    assert_allclose(found.linear[0], coef, atol=1e-3 * abs(coef).max())


def test_a_chain_of_penalties_takes_fewer_iterations():
    problem, tol, counts = path_problem(2), np.full(6, 1e-3), []
    for paths in (alone(problem), TaskPaths.of(problem)):
        tasks = _kernel_tasks(problem, paths, tol, 1.0, False)
        points, results = problem.join(*problem.start), np.zeros((6, 5))
        _kernels.newton(
            problem.prepared.padded_rows, tasks, points, results, np.concatenate(paths.paths)
        )
        counts.append(results[:, 2].sum())
    assert counts[1] < counts[0]


def test_a_task_of_a_chain_starts_at_the_better_of_two_points():
    problem = path_problem(2)
    solution = NewtonSolver().solve_folds(problem, np.full(6, 1e-10))
    warm = replace(problem, start=solution.linear)
    assert NewtonSolver().solve_folds(warm, np.full(6, 1e-3)).n_iter <= 1


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_path_of_scales_starts_at_the_next_larger_scale(n_classes, n_threads):
    """Two folds, two overconfidences, three scales and two penalties, of which one has one."""
    problem = path_problem(n_classes, n_threads=n_threads)
    rng = np.random.default_rng(2)
    taus = [0.0, 1.0] if n_classes == 2 else [0.0]
    each = [
        (fold, tau, scale, alpha)
        for fold in (0, 1)
        for tau in taus
        for scale in (3.0, 1.0, 0.1)
        for alpha in (1e-2, 1e-4)
        if (scale, alpha) != (1.0, 1e-4)
    ]
    each = [each[k] for k in rng.permutation(len(each))]
    margins = [MarginLoss(scale=scale, overconfidence=tau) for _, tau, scale, _ in each]
    tasks = replace(
        problem.tasks,
        positive=np.repeat(problem.tasks.positive[:1], len(each)),
        fold=np.array([fold for fold, *_ in each]),
        losses=tuple(margins if n_classes == 2 else map(JointLoss, margins)),
    )
    start = problem.prepared.zeros(len(each) * tasks.columns_per_task)
    alphas = np.array([alpha for *_, alpha in each])
    many = replace(problem, tasks=tasks, alphas=alphas, start=start)
    paths = TaskPaths.of(many)
    named = [[each[k] for k in path] for path in paths.paths]
    expected = [(3.0, 1e-2), (3.0, 1e-4), (1.0, 1e-2), (0.1, 1e-2), (0.1, 1e-4)]
    assert named == [[(f, t, *own) for own in expected] for f in (0, 1) for t in taus]
    for path in paths.paths:
        assert paths.task_at_larger_penalty[path].tolist() == [-1, path[0], -1, -1, path[3]]
        assert paths.task_at_larger_scale[path].tolist() == [-1, -1, path[0], path[2], path[2]]
    tol = np.full(len(each), 1e-10)
    found = NewtonSolver().solve_folds(many, tol)
    for k in range(len(each)):
        which = np.array([k])
        own = replace(
            many,
            tasks=tasks.take(which),
            alphas=alphas[which],
            start=problem.prepared.zeros(tasks.columns_per_task),
        )
        assert_allclose(found.value[k], NewtonSolver().solve_folds(own, tol[:1]).value, rtol=1e-8)


def test_a_path_of_scales_takes_fewer_iterations():
    problem, tol, counts = path_problem(2), np.full(6, 1e-3), []
    losses = [MarginLoss(scale=scale, overconfidence=0.0) for scale in (3.0, 1.0, 0.3)]
    tasks = replace(problem.tasks, fold=np.repeat([0, 1], 3), losses=tuple(losses * 2))
    problem = replace(problem, tasks=tasks, alphas=np.full(6, 1e-3))
    for paths in (alone(problem), TaskPaths.of(problem)):
        own = _kernel_tasks(problem, paths, tol, 1.0, False)
        points, results = problem.join(*problem.start), np.zeros((6, 5))
        _kernels.newton(
            problem.prepared.padded_rows, own, points, results, np.concatenate(paths.paths)
        )
        counts.append(results[:, 2].sum())
    assert counts[1] < counts[0]


def test_threads_and_simd_levels_do_not_change_a_fit():
    X, codes = rows(300, 40)
    weights = np.random.default_rng(0).random((8, 300))
    weights /= weights.sum(axis=1, keepdims=True)
    loss, policy = MarginLoss(overconfidence=0.0), Policy(min_newton_thread_products=0)
    one, two = (
        SOLVERS["newton"].solve(make("newton", X, codes, loss, weights=weights, **options))
        for options in ({}, {"n_threads": 2, "policy": policy})
    )
    assert_array_equal(one.linear[0], two.linear[0])
    problem = make("newton", X, codes, loss, weights=weights)
    tasks = _kernel_tasks(problem, alone(problem), np.full(8, 1e-9), 1.0, False)
    values = []
    for level in _kernels._compiled.LEVELS:
        points, results = problem.join(*problem.start), np.zeros((8, 5))
        _kernels.newton(problem.prepared.padded_rows, tasks, points, results, np.arange(8), level)
        values.append(results[:, 0])
    for value in values:
        assert_allclose(value, values[0], rtol=1e-12)


def test_a_warm_start_takes_two_iterations():
    """One whose estimates count only if the next, of the second derivative itself, agree."""
    X, codes = rows(100, 5)
    model = MarginPursuitClassifier(solver="newton", warm_start=True, alpha=1e-3).fit(X, codes)
    before, n_iter = model.objective_, model.n_iter_
    assert model.fit(X, codes).n_iter_ <= 2 < n_iter
    assert_allclose(model.objective_, before, rtol=1e-6)


def test_equal_columns_without_penalty_have_the_minimum_of_gram():
    """Rounding that is added to the diagonal leaves the Hessian a Cholesky factor."""
    X, codes = rows(50, 2)
    X = np.column_stack([X, X[:, 0]])
    loss = MarginLoss()
    found, expected = (
        SOLVERS[name].solve(make(name, X, codes, loss, alpha=0.0, tol=1e-6))
        for name in ("newton", "gram")
    )
    assert_allclose(found.value, expected.value, rtol=1e-5)


def almost_separable(seed, alphas):
    """Return a problem whose task without penalty the kernel does not finish."""
    X, codes = rows(50, 3, seed=seed)
    loss = MarginLoss(scale=0.01, overconfidence=0.0)
    one = make("newton", X, codes, loss, alpha=0.0, tol=1e-6)
    tasks = one.tasks.take(np.zeros(len(alphas), dtype=np.intp))
    start = one.prepared.zeros(len(alphas))
    return replace(one, tasks=tasks, alphas=np.array(alphas), start=start)


def test_progress_in_gram_is_that_of_all_tasks_and_iterates_of_some_are_not_kept():
    told, kept = [], []
    problem = replace(
        almost_separable(1, [1e-2, 0.0]),
        report=told.append,
        on_iterate=lambda _, linear: kept.append(linear[0].shape[1]),
    )
    found = SOLVERS["newton"].solve(problem)
    iterations = [progress.iteration for progress in told]
    assert iterations == [progress.iteration for progress in found.history] == sorted(iterations)
    assert found.n_iter == iterations[-1] > len(kept)
    assert set(kept) == {2}
    assert_allclose([told[-1].value, found.history[-1].value], found.value.mean(), rtol=1e-12)


def test_only_the_iterations_of_an_unfinished_task_count_against_max_iter():
    problem = almost_separable(1, [1e-2, 0.0])
    found = SOLVERS["newton"].solve(problem)
    # The first task takes 10 iterations, the second has no Cholesky factor in its first.
    limited = SOLVERS["newton"].solve(replace(problem, max_iter=10))
    assert (limited.n_iter, limited.status) == (10, Status.MAX_ITER)
    assert_allclose(limited.value[0], found.value[0], rtol=1e-12)
    assert found.value[1] < limited.value[1] < 1.1 * found.value[1]
    # The first task needs nine iterations and takes five; the second takes none before "gram".
    problem = almost_separable(2, [1e-2, 0.0])
    limited = SOLVERS["newton"].solve(replace(problem, max_iter=5))
    found = SOLVERS["newton"].solve(problem)
    assert limited.status is Status.MAX_ITER
    assert_allclose(limited.value, found.value, rtol=0.1)
    fewer = SOLVERS["newton"].solve(replace(problem, max_iter=found.n_iter - 1))
    assert fewer.n_iter == found.n_iter - 1
    folds = SOLVERS["newton"].solve_folds(replace(problem, max_iter=5), np.full(2, 1e-6))
    assert folds.n_iter == 5


def test_a_task_that_ends_before_its_first_step_has_a_gap_of_one():
    problem = almost_separable(1, [1e-2, 0.0])
    tol = np.full(2, 1e-6)
    first = _newton(problem, tol, certain=problem.policy.certain_decrement, is_strict=True)
    assert first.is_finished.tolist() == [True, False]
    assert first.n_iter[1] == 0
    assert first.solution.gap[1] == 1.0


def test_iterates_of_a_single_task_are_kept_in_gram_too():
    kept = []
    problem = almost_separable(0, [0.0])
    problem = replace(problem, on_iterate=lambda _, linear: kept.append(linear[0].copy()))
    silent = replace(problem, on_iterate=None)
    first = _newton(
        silent, np.full(1, 1e-6), certain=problem.policy.certain_decrement, is_strict=True
    )
    found = SOLVERS["newton"].solve(problem)
    assert len(kept) >= found.n_iter > first.solution.n_iter
    assert_allclose(kept[-1], found.linear[0], rtol=1e-6)


def test_a_task_whose_decrement_falls_slowly_has_not_stopped_by_rounding(monkeypatch):
    case, first = draw(17674, "newton"), []  # a row of large weight shortens every step

    def listen(*arguments, **options):
        first.append(_newton(*arguments, **options))
        return first[-1]

    monkeypatch.setattr(newton, "_newton", listen)
    MarginPursuitClassifier(**case.parameters).fit(case.X, case.y, case.weights)
    slow = [each.solution for each in first if not each.is_finished.all()]
    assert {solution.status for solution in slow} == {Status.MAX_ITER}


def test_each_iteration_is_reported_and_max_iter_stops_it():
    X, codes = rows(100, 5)
    model = MarginPursuitClassifier(solver="newton", probability=None)
    values = []

    def listen(progress):
        values.append(progress.value)

    problem = make("newton", X, codes, MarginLoss(overconfidence=0.0), report=listen)
    solution = SOLVERS["newton"].solve(problem)
    assert len(values) == solution.n_iter + 1 > 3
    silent = SOLVERS["newton"].solve(replace(problem, report=None))
    assert_array_equal(solution.linear[0], silent.linear[0])
    assert np.all(np.diff(values) <= 1e-15)
    stopped = SOLVERS["newton"].solve(replace(problem, max_iter=1, report=None))
    assert stopped.status is Status.MAX_ITER
    assert stopped.n_iter == 1
    with pytest.warns(UserWarning, match="max_iter"):
        model.set_params(max_iter=1).fit(X, codes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tol": np.zeros(3)}, "tol must have length 1"),
        ({"codes": np.zeros((1, 3), dtype=np.intp)}, "a row of codes must have length 20"),
        ({"code": np.ones(1, dtype=np.intp)}, "code"),
        ({"weights": np.zeros((1, 3))}, "weights must have length 20"),
        ({"penalty": np.zeros((1, 9))}, "a row of penalty must have length 4"),
        ({"fold": np.ones(1, dtype=np.intp)}, "fold 1 is not within 1 folds"),
        ({"task_at_larger_penalty": np.ones(1, dtype=np.intp)}, "task 1 is not within 1 tasks"),
        ({"task_at_larger_scale": np.full(1, -2)}, "task -2 is not within 1 tasks"),
        ({"losses": np.full((1, 4), 99.0)}, "99"),
        ({"n_columns": 99}, "at least one row, one column"),
        ({"n_scores": 3}, "a row of points must have length 12"),
    ],
)
def test_the_kernel_checks_what_it_reads(change, message):
    X, codes = rows(20, 3)
    problem = make("newton", X, codes, MarginLoss())
    tasks = replace(_kernel_tasks(problem, alone(problem), np.array([1e-6]), 1.0, False), **change)
    points, results = problem.join(*problem.start), np.zeros((1, 5))
    with pytest.raises((ValueError, IndexError), match=message):
        _kernels.newton(problem.prepared.padded_rows, tasks, points, results, np.arange(1))


def test_the_kernel_refuses_rows_that_are_not_padded():
    X, codes = rows(20, 3)
    problem = make("newton", X, codes, MarginLoss())
    tasks = _kernel_tasks(problem, alone(problem), np.array([1e-6]), 1.0, False)
    narrow = np.ascontiguousarray(problem.prepared.padded_rows[:, :5])
    points, results = problem.join(*problem.start), np.zeros((1, 5))
    with pytest.raises(ValueError, match="padded to a multiple of 16"):
        _kernels.newton(narrow, tasks, points, results, np.arange(1))
    with pytest.raises(IndexError, match="which"):
        _kernels.newton(problem.prepared.padded_rows, tasks, points, results, np.arange(2))


@pytest.mark.parametrize("seed", [4425, 10862, 29172, 39933])
def test_line_searches_of_joint_tasks_end(seed):
    """Their slope is nearly constant but close to the start, where 40 secant steps did not arrive.

    L-BFGS then took 809 to 1028 steps, up to 90 % above the minimum.
    """
    case = draw(seed, "newton")
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        model = MarginPursuitClassifier(**case.parameters).fit(case.X, case.y, case.weights)
    assert model.n_iter_ <= 150
