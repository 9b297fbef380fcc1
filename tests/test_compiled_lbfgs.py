"""L-BFGS in compiled code, against the same method in Python and SciPy's."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize

from marginpursuit import _kernels
from marginpursuit._threads import Threads
from marginpursuit.design import design_for
from marginpursuit.losses import RHOS, JointLoss, LogisticLoss, MarginLoss
from marginpursuit.solvers import (
    SOLVERS,
    LbfgsPolicy,
    Policy,
    Problem,
    Request,
    Status,
    float32_problem,
    minimise,
)
from marginpursuit.solvers._compiled_lbfgs import _posed, lbfgs_for, minimise_compiled
from marginpursuit.solvers.preconditioners import DiagonalPreconditioner
from marginpursuit.tasks import JointTasks, RowRanges, Tasks

pytestmark = pytest.mark.skipif(_kernels.Lbfgs is None, reason="needs the compiled kernels")

N_CLASSES = 5
#: The caller sweeps, in threads.
SHARED = Policy(max_compiled_products=0)


def problem_of(
    n_rows=200, seed=0, n_folds=1, alphas=(1e-3,), rho="catoni", threads=None, **options
):
    """Return joint tasks: a constant column, a column constant in a fold, rows without weight."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 7)) * [1.0, 10.0, 0.1, 1.0, 3.0, 1.0, 1.0] + 2.0
    X[:, 5] = 5.0
    X[: n_rows // 2, 6] = 1.0
    codes = np.argmax(X[:, :N_CLASSES] + rng.normal(size=(n_rows, N_CLASSES)), axis=1)
    weights = rng.random((n_folds, n_rows)) * (rng.random((n_folds, n_rows)) > 0.2)
    if n_folds > 1:
        weights[0, n_rows // 2 :] = 0.0
    weights /= weights.sum(axis=1, keepdims=True)
    joint = JointLoss(MarginLoss(1.0, 0.8, 0.0, rho), 0.3)
    policy = options.pop("policy", Policy())
    design = design_for(X) if threads is None else design_for(X, threads)
    request = Request(
        *(design, weights, (joint,), "standardised", min(alphas)),
        options.pop("fit_intercept", True),
        n_problems=N_CLASSES,
        policy=policy,
    )
    prepared = SOLVERS["gram"].prepare(request)
    pairs = [(fold, alpha) for fold in range(n_folds) for alpha in alphas]
    fold = np.array([fold for fold, _ in pairs], dtype=np.intp)
    tasks = JointTasks(
        *(codes, weights, np.zeros_like(fold), fold, (joint,) * len(fold)), n_classes=N_CLASSES
    )
    start = prepared.zeros(N_CLASSES * len(fold))
    problem = Problem(
        *(prepared, tasks, np.array([alpha for _, alpha in pairs]), start, 1000, 1e-6),
        policy=policy,
        **options,
    )
    copy = float32_problem(problem, *RowRanges.of(weights, min_mean_rows=1))
    assert copy is not None
    return problem, copy


def least_values(problem):
    """Return the minimum of each task by SciPy, for the rows in float64."""

    def objective(point, task):
        value, gradient = problem.value_and_gradient(point[np.newaxis], task)
        return value[0], gradient[0]

    options = {"maxiter": 500, "maxfun": 600, "ftol": 1e-12, "gtol": 1e-9, "maxcor": 20}
    points = problem.join(*problem.start)
    results = [
        minimize(objective, point, (np.array([k]),), "L-BFGS-B", jac=True, options=options)
        for k, point in enumerate(points)
    ]
    return np.array([result.fun for result in results])


def values_at(problem, linear):
    tasks = np.arange(len(problem.tasks))
    return problem.value_and_gradient(problem.join(*linear), tasks)[0]


@pytest.mark.parametrize("policy", [Policy(), SHARED], ids=["compiled", "shared"])
@pytest.mark.parametrize(
    ("rho", "fit_intercept"), [*((rho, True) for rho in sorted(RHOS)), ("catoni", False)]
)
def test_the_minimum_is_that_of_scipy(rho, fit_intercept, policy):
    problem, copy = problem_of(n_folds=2, rho=rho, fit_intercept=fit_intercept, policy=policy)
    found = minimise_compiled(copy, n_confirmations=3)
    least = least_values(problem)
    assert found.status is Status.CONVERGED
    assert np.all(found.gap <= 1e-6)
    assert np.all(values_at(problem, found.linear) <= (1 + 1e-5) * least)
    assert_allclose(found.value, least, rtol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_the_steps_are_those_of_python(seed):
    _, copy = problem_of(seed=seed)
    expected = minimise(copy, n_confirmations=3, max_iter=15)
    for policy in (Policy(), SHARED):
        found = minimise_compiled(replace(copy, policy=policy), n_confirmations=3, max_iter=15)
        assert found.n_iter == expected.n_iter
        assert_allclose(
            [x.value for x in found.history], [x.value for x in expected.history], rtol=1e-6
        )
        first = [x.gap for x in found.history[:8]]
        assert_allclose(first, [x.gap for x in expected.history[:8]], rtol=1e-2)
        assert found.status is expected.status
        assert found.is_proven == expected.is_proven


def test_correction_pairs_are_replaced_after_the_memory_is_full():
    problem, copy = problem_of(alphas=(1e-6,), rho="log_cosh")
    found = minimise_compiled(copy, n_confirmations=5, tol=1e-7)
    assert found.n_iter > 20 + 5
    assert values_at(problem, found.linear) <= (1 + 1e-5) * least_values(problem)


def test_results_do_not_depend_on_threads():
    options = {"n_folds": 2, "alphas": (1e-2, 1e-3, 1e-4)}
    found = []
    for n_threads in (1, 3):
        with Threads(n_threads) as threads:  # also limits BLAS to one thread, as in a fit
            _, copy = problem_of(threads=threads, **options)
            found.append(minimise_compiled(copy, n_confirmations=3).linear[0])
    assert_array_equal(found[0], found[1])


def test_a_start_of_zero_is_replaced_by_the_minimiser_of_the_next_larger_penalty():
    _, copy = problem_of(alphas=(1e-4, 1e-2, 1e-3))
    found = minimise_compiled(copy, n_confirmations=3)
    linear = copy.prepared.zeros(N_CLASSES)
    for k in (1, 2, 0):
        task = replace(copy, tasks=copy.tasks.take(np.array([k])), alphas=copy.alphas[[k]])
        linear = minimise_compiled(replace(task, start=linear), n_confirmations=3).linear
        columns = slice(k * N_CLASSES, (k + 1) * N_CLASSES)
        assert_array_equal(linear[0], found.linear[0][:, columns])


def test_coefficients_of_constant_columns_are_zero():
    found = minimise_compiled(problem_of(n_folds=2)[1])
    assert_array_equal(found.linear[0][5], 0.0)
    # Column 6 is constant in the first fold only.
    assert_array_equal(found.linear[0][6, :N_CLASSES], 0.0)
    assert np.all(found.linear[0][6, N_CLASSES:] != 0.0)


@pytest.mark.parametrize("policy", [Policy(), SHARED], ids=["compiled", "shared"])
def test_iterates_are_reported_and_kept(policy):
    reports, kept = [], []
    _, copy = problem_of(policy=policy)
    listening = replace(
        copy, report=reports.append, on_iterate=lambda problem, linear: kept.append(linear)
    )
    found, silent = minimise_compiled(listening), minimise_compiled(copy)
    assert_array_equal(found.linear[0], silent.linear[0])
    assert [x.value for x in reports] == [x.value for x in found.history]
    assert [x.iteration for x in reports] == list(range(found.n_iter + 1))
    assert len(kept) == found.n_iter
    assert_array_equal(kept[-1][0], found.linear[0])


def test_the_history_continues_the_passes_of_the_design():
    _, copy = problem_of(n_folds=2, alphas=(1e-2, 1e-4))
    before = copy.prepared.design.n_passes
    found = minimise_compiled(copy)
    assert copy.prepared.design.n_passes == before + found.n_iter + 1
    assert found.history[-1].passes == before + found.n_iter + 1
    assert found.history[-1].value == pytest.approx(found.value.mean())


def test_a_solve_that_ends_early_says_so():
    problem, copy = problem_of(alphas=(1e-5,))
    short = minimise_compiled(copy, max_iter=4)
    assert short.status is Status.MAX_ITER
    assert short.n_iter == 4
    least = least_values(problem)
    suboptimality = (short.value - least) / problem.relative_to(least)
    assert short.gap >= 0.1 * suboptimality
    # Float32 does not resolve this tolerance.
    rounding = minimise_compiled(copy, tol=1e-17)
    assert rounding.status is Status.ROUNDING
    assert_allclose(rounding.value, least, rtol=1e-5)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("alpha", [1e-2, 1e-6])
def test_the_gap_is_honest(seed, alpha):
    problem, copy = problem_of(seed=seed, alphas=(alpha,))
    found = minimise_compiled(copy, n_confirmations=3, tol=1e-4)
    least = least_values(problem)
    assert found.status is Status.CONVERGED
    assert (found.value - least) / problem.relative_to(least) <= 10 * 1e-4


def test_a_start_at_the_minimum_is_confirmed():
    _, copy = problem_of(alphas=(1e-2,))
    found = minimise_compiled(copy, tol=1e-7)
    again = minimise_compiled(replace(copy, start=found.linear), n_confirmations=1)
    assert again.n_iter <= 2
    assert_allclose(again.value, found.value, rtol=1e-6)


@pytest.mark.parametrize("level", getattr(_kernels._compiled, "LEVELS", ()))
def test_the_levels_agree(level):
    _, copy = problem_of()
    (task,) = _posed(copy, np.array([1e-6]), 3, 0, 1000)
    solve = _kernels.Lbfgs(copy.prepared.design.padded, task, level)
    while not solve.run(3):
        pass
    assert solve.value == pytest.approx(
        minimise_compiled(copy, n_confirmations=3).value[0], rel=1e-6
    )
    assert solve.run(3) == solve.status  # a solve that has ended does not go on


def test_arguments_are_checked():
    _, copy = problem_of()
    rows = copy.prepared.design.padded
    (task,) = _posed(copy, np.array([1e-6]), 1, 0, 10)
    wrong = {
        "codes": task.codes[:-1],
        "weights": task.weights[:-1],
        "spans": np.array([[0, len(rows) + 1]]),
        "penalty": task.penalty[:-1],
        "preconditioner": np.ascontiguousarray(task.preconditioner[:, :-1]),
        "n_classes": 1,
        "temperature": 0.0,
        "start": task.start[:-1],
    }
    for name, value in wrong.items():
        with pytest.raises((ValueError, IndexError)):
            _kernels.Lbfgs(rows, replace(task, **{name: value}))
    with pytest.raises(IndexError, match="class"):
        _kernels.Lbfgs(rows, replace(task, codes=task.codes + N_CLASSES))
    with pytest.raises(ValueError, match="sweep"):
        _kernels.Lbfgs(rows, task).run(0)
    with pytest.raises(ValueError, match="evaluated before"):
        _kernels.Lbfgs(rows, task).renew(task.preconditioner)
    with pytest.raises(ValueError, match="the preconditioner"):
        _kernels.Lbfgs(rows, task).renew(np.eye(2 + len(task.preconditioner)))


def test_line_searches_give_up_at_the_least_step_size():
    _, copy = problem_of(policy=Policy(lbfgs=LbfgsPolicy(min_step_size=0.6)))
    too_large = 1e3 * np.identity(copy.join(*copy.start).shape[1])
    found = minimise_compiled(replace(copy, inverse_hessian=too_large))
    assert found.status is Status.ROUNDING
    assert found.n_iter == 1
    assert found.gap > copy.tol


# --- tasks that are not joint ---------------------------------------------------------------------


LOSS = MarginLoss(1.0, 0.8, 0.0)


def binary_problem(fit_intercept=True, n_folds=2, loss=LOSS, tol=1e-8, **options):
    """Return one task a fold, over rows with a constant column and one constant in a fold."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(300, 6)) * [1.0, 10.0, 0.1, 1.0, 3.0, 1.0] + 2.0
    X[:, 4], X[:150, 5] = 5.0, 1.0
    codes = (X[:, 0] + rng.normal(size=300) > 2.0).astype(np.intp)
    weights = rng.random((n_folds, 300))
    weights[0, 150:] *= n_folds == 1
    weights /= weights.sum(axis=1, keepdims=True)
    request = Request(design_for(X), weights, (loss,), "standardised", 1e-3, fit_intercept)
    prepared, fold = SOLVERS["gram"].prepare(request), np.arange(n_folds)
    tasks = Tasks(codes, weights, np.ones_like(fold), fold, (loss,) * n_folds)
    start = prepared.zeros(n_folds)
    return Problem(prepared, tasks, np.full(n_folds, 1e-3), start, 1000, tol, **options)


@pytest.mark.parametrize("loss", [LOSS, LogisticLoss()], ids=["margin", "log"])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("n_folds", [1, 2])
def test_single_tasks_take_the_steps_of_numpy(n_folds, fit_intercept, loss):
    steps = []
    problem = binary_problem(fit_intercept, n_folds, loss, report=steps.append)
    found = minimise_compiled(problem, n_confirmations=2)
    assert steps == list(found.history)
    expected = minimise(replace(problem, report=None), n_confirmations=2)
    assert found.n_iter == expected.n_iter
    assert (found.status, found.is_proven) == (expected.status, expected.is_proven)
    assert_allclose(found.value, expected.value, rtol=1e-12)
    assert_allclose(found.linear[0], expected.linear[0], rtol=1e-6, atol=1e-9)
    assert_allclose(found.gap, expected.gap, rtol=1e-3)
    assert_allclose(found.value, least_values(problem), rtol=1e-8)


def test_least_iterations_of_single_tasks():
    problem = binary_problem(tol=1e-3)
    few = minimise_compiled(problem).n_iter
    assert minimise_compiled(problem, min_iter=few + 2).n_iter == few + 2
    certain = replace(problem, policy=Policy(lbfgs=LbfgsPolicy(certain_fraction=1.0)))
    assert minimise_compiled(certain, min_iter=few + 2).n_iter == few


def test_many_tasks_and_columns_are_left_to_numpy(monkeypatch):
    problem = binary_problem()
    assert lbfgs_for(problem) is minimise_compiled
    for policy in (
        Policy(max_compiled_binary_tasks=1),
        Policy(max_compiled_binary_columns=5),
        Policy(max_compiled_columns=5),
    ):
        assert lbfgs_for(replace(problem, policy=policy)) is minimise
    diagonal = DiagonalPreconditioner(1.0, problem.prepared.penalty_weights[0], True)
    without = replace(problem.prepared, preconditioner=diagonal)
    assert lbfgs_for(replace(problem, prepared=without)) is minimise
    monkeypatch.setattr(_kernels, "Lbfgs", None)
    assert lbfgs_for(problem) is minimise


def test_tasks_without_rows_are_not_swept():
    (task, _) = _posed(binary_problem(), np.full(2, 1e-6), 1, 0, 10)
    with pytest.raises(ValueError, match="must be rows"):
        _kernels.Lbfgs(None, task).run(1)
