"""Dual passes over the rows of small margin, verified by all rows."""

from dataclasses import replace

import numpy as np
import pytest
from solver_problems import make, single

from marginpursuit.losses import MarginLoss
from marginpursuit.solvers import SOLVERS, Policy, Status
from marginpursuit.solvers._working_set import solve_on_working_set
from marginpursuit.solvers.gram_plan import plan_gram
from marginpursuit.solvers.policy import WorkingSetPolicy

pytest.importorskip("marginpursuit._kernels._compiled")


ANY_FRACTION = Policy(working_set=WorkingSetPolicy(max_fraction=100.0))


def rare(seed=100, *, n_rows=4000, dtype=np.float64, rate=0.125):
    """Few rows are positive: few margins are below the level."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 30))
    X[:, :3] *= 5.0
    X[:, 3] = 1.0
    score = X[:, :8] @ rng.normal(size=8) / 8.0 + 0.2 * rng.normal(size=n_rows)
    y = (score > np.quantile(score, 1.0 - rate)).astype(int)
    return (np.rint(X).astype(dtype) if np.issubdtype(dtype, np.integer) else X.astype(dtype)), y


def problem(X, y, *, scale=0.3, **options):
    given = {"alpha": 1e-3, "scale_free": True, "tol": 1e-6, "policy": ANY_FRACTION} | options
    return make(X, y, MarginLoss(1.0, scale, 0.0), "gram", **given)


def minimum(whole):
    """Return the minimum by Newton's method over all rows, with a start that is not zero."""
    start = np.full_like(whole.start[0], 1e-3), np.zeros(1)
    exact = replace(whole, start=start, tol=1e-12)
    assert not plan_gram(exact).uses_working_set
    solution = SOLVERS["gram"].solve(exact)
    assert solution.gap[0] <= 1e-9
    return float(solution.value[0])


def objective(whole, solution):
    task = single(whole)
    point = whole.join(*solution.linear)[0]
    return task.value(point, task.scores(point))


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int16])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("scale_free", [True, False])
@pytest.mark.parametrize("is_weighted", [True, False])
def test_the_bound_holds_and_meets_the_tolerance(dtype, fit_intercept, scale_free, is_weighted):
    X, y = rare(dtype=dtype)
    weights = np.random.default_rng(0).integers(0, 4, len(y)) if is_weighted else np.ones(len(y))
    options = {"fit_intercept": fit_intercept, "weights": weights / weights.sum()}
    alpha = 1e-3 if scale_free else 1e-2
    whole = problem(X, y, scale_free=scale_free, alpha=alpha, **options)
    assert plan_gram(whole).uses_working_set
    solution = solve_on_working_set(whole)
    assert solution.status is Status.CONVERGED
    assert solution.is_proven
    np.testing.assert_allclose(solution.value[0], objective(whole, solution), rtol=1e-12)
    least = minimum(whole)
    for step in solution.history:
        unit = float(whole.relative_to(step.value)[0])
        assert -1e-9 * unit <= step.value - least <= step.gap * unit + 1e-9 * unit
    assert solution.gap[0] <= 1e-6


def test_rows_outside_of_the_set_are_added():
    """A first set that is too small, from a fit of one pass to one row in 40."""
    own = WorkingSetPolicy(start_sampling=40, start_passes=1, growth=0.2, max_fraction=100.0)
    X, y = rare()
    whole = problem(X, y, policy=Policy(working_set=own))
    solution = solve_on_working_set(whole)
    assert solution.is_proven
    assert len(solution.history) >= 3
    assert solution.history[0].gap > 1e-2
    unit = float(whole.relative_to(solution.value)[0])
    assert solution.value[0] - minimum(whole) <= 1e-6 * unit


def test_the_set_is_read_and_not_the_data():
    whole = problem(*rare())
    before = whole.prepared.design.n_passes
    solution = solve_on_working_set(whole)
    n_passes = whole.prepared.design.n_passes - before
    assert n_passes == 1 + len(solution.history) <= 6 < solution.n_iter


def test_newton_continues_after_the_most_passes():
    reported, kept = [], []
    policy = Policy(working_set=WorkingSetPolicy(max_passes=3, max_fraction=100.0))
    whole = problem(
        *rare(),
        policy=policy,
        report=reported.append,
        on_iterate=lambda _, linear: kept.append(linear),
    )
    first = solve_on_working_set(whole)
    assert (first.n_iter, first.status, first.is_proven) == (3, Status.MAX_ITER, False)
    reported.clear()
    kept.clear()
    solution = SOLVERS["gram"].solve(whole)
    assert solution.status is Status.CONVERGED
    assert solution.n_iter > 3
    assert list(solution.history) == reported
    assert len(kept) >= 2
    unit = float(whole.relative_to(solution.value)[0])
    assert solution.value[0] - minimum(whole) <= 1e-6 * unit


@pytest.mark.parametrize("max_passes", [3, 200])
def test_with_many_columns_it_is_used_from_any_start(max_passes):
    own = WorkingSetPolicy(max_passes=max_passes, max_fraction=100.0, min_columns_from_start=1)
    started, exact = problem(*rare(), policy=Policy(working_set=own)), minimum(problem(*rare()))
    start = tuple(np.ones_like(part) for part in started.start)
    started = replace(started, start=start)
    assert plan_gram(started).uses_working_set
    assert not plan_gram(replace(started, policy=ANY_FRACTION)).uses_working_set
    solution = SOLVERS["gram"].solve(started)
    assert solution.status is Status.CONVERGED
    assert solution.value[0] - exact <= 1e-6 * float(started.relative_to(solution.value)[0])


def halves(whole):
    """Return the fits to the even and the odd rows, as two folds of a problem."""
    weights = np.zeros((2, whole.prepared.design.n_rows))
    weights[0, ::2], weights[1, 1::2] = whole.tasks.weights[0, ::2], whole.tasks.weights[0, 1::2]
    tasks = replace(
        whole.tasks,
        weights=weights / weights.sum(axis=1, keepdims=True),
        positive=np.repeat(whole.tasks.positive, 2),
        fold=np.arange(2),
        losses=2 * whole.tasks.losses,
    )
    start = tuple(np.repeat(part, 2, axis=-1) for part in whole.start)
    return replace(whole, tasks=tasks, alphas=np.repeat(whole.alphas, 2), start=start)


def test_each_fold_has_its_working_set():
    folds, tol = halves(problem(*rare(), policy=ANY_FRACTION)), np.array([1e-4, 1e-6])
    found = SOLVERS["gram"].solve_folds(folds, tol)
    assert folds.prepared.preconditioner.gram is None  # it was not needed
    assert found.is_proven
    assert np.all(found.gap <= tol)
    points, both = folds.join(*found.linear), np.arange(2)
    value, _ = folds.value_and_gradient(points, both)
    np.testing.assert_allclose(found.value, value, rtol=1e-12)
    # The same by L-BFGS, since one fold has too many rows below the level.
    none = halves(problem(*rare(), policy=Policy(working_set=WorkingSetPolicy(max_fraction=0.0))))
    exact = SOLVERS["gram"].solve_folds(none, np.full(2, 1e-10))
    assert none.prepared.preconditioner.gram is not None
    assert np.all(value - exact.value <= tol * folds.relative_to(value))


def test_max_iter_is_respected():
    solution = SOLVERS["gram"].solve(problem(*rare(), max_iter=4))
    assert (solution.n_iter, solution.status) == (4, Status.MAX_ITER)
    assert solution.gap[0] > 1e-6


def test_many_rows_below_the_level_leave_it_to_newton():
    X, y = rare()
    noise = (np.random.default_rng(1).random(len(y)) < 0.5).astype(int)
    assert solve_on_working_set(problem(X, noise, policy=Policy())) is None
    assert solve_on_working_set(problem(*rare(rate=0.02), policy=Policy())).is_proven


@pytest.mark.parametrize("n_used", [1, 2, 20])
def test_few_rows_of_positive_weight(n_used):
    X, y = rare()
    weights = np.zeros(len(y))
    weights[np.argsort(-y)[:n_used]] = 1.0 / n_used
    whole = problem(X, y, weights=weights)
    solution = SOLVERS["gram"].solve(whole)
    assert solution.status is Status.CONVERGED
    unit = float(whole.relative_to(solution.value)[0])
    assert solution.value[0] - minimum(whole) <= 1e-6 * unit


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"alpha": 1e-7}, "a small penalty"),
        ({"alpha": 0.0}, "no penalty"),
        ({"tau": 0.5}, "overconfidence"),
        ({"n_rows": 1700}, "few rows per column"),
    ],
)
def test_the_plan_uses_it_only_where_it_converges_fast(options, reason):
    tau, n_rows = options.pop("tau", 0.0), options.pop("n_rows", 4000)
    given = {"alpha": 1e-3, "scale_free": True, "tol": 1e-6} | options
    whole = make(*rare(n_rows=n_rows), MarginLoss(1.0, 0.3, tau), "gram", **given)
    assert not plan_gram(whole).uses_working_set, reason
    assert plan_gram(problem(*rare())).uses_working_set


@pytest.mark.parametrize("n_threads", [1, 2])
def test_results_do_not_depend_on_threads(n_threads):
    alone, threaded = (solve_on_working_set(problem(*rare(), n_threads=n)) for n in (1, n_threads))
    np.testing.assert_array_equal(alone.linear[0], threaded.linear[0])
