"""Newton's method, the active set and the interior-point method, for one task at a time."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.linalg import cho_solve
from sklearn.datasets import load_digits
from solver_problems import (
    DATA,
    make,
    minima,
    normal,
    origin,
    single,
    with_few_curved_rows,
)

from marginpursuit.losses import LogisticLoss, MarginLoss
from marginpursuit.solvers import SOLVERS, Policy, Status, minimise
from marginpursuit.solvers._active_set import HINGE, ActiveSet, RestrictedTask
from marginpursuit.solvers._damped_newton import DampedNewton, NewtonPolicy, NewtonSystem
from marginpursuit.solvers._interior_point import InteriorPoint
from marginpursuit.solvers._line_search import TaskLine, backtrack, exact_step, expand
from marginpursuit.solvers._refine import at_start, refine, solve_newton


class TestRefinement:
    """Second-order refinement, which `gram` applies where the quasi-Newton method is slow."""

    def problem(self, name="gram", **options):
        X, y = load_digits(return_X_y=True)
        given = {"alpha": 1e-6, "scale_free": True, "tol": 1e-10, "max_iter": 300} | options
        return make(X, (y == 0).astype(int), MarginLoss(1.0, 0.3, 0.0), name, **given)

    @pytest.mark.parametrize("seed", [100, 101, 102])
    def test_steps_over_all_rows_begin_after_steps_on_a_larger_subsample(self, seed):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(40_000, 6)) ** 3
        y = (X @ rng.normal(size=6) + 5.0 * rng.standard_cauchy(40_000) > 0).astype(int)
        given = {"alpha": 1e-6, "scale_free": True, "tol": 1e-6}
        first, least = [], np.inf
        for policy in (Policy(), Policy(newton_sampling=1 << 40)):
            whole = make(X, y, MarginLoss(1.0, 0.02, 0.0), "gram", policy=policy, **given)
            solution = SOLVERS["gram"].solve(whole)
            assert solution.status is Status.CONVERGED
            first.append(solution.history[0].value)
            least = min(least, float(solution.value[0]))
        assert first[0] - least < 0.5 * (first[1] - least)

    def test_nearly_separable_data_take_few_steps(self):
        """Of which most are of the quasi-Newton method, which alone would be far from the end."""
        solution = SOLVERS["gram"].solve(self.problem())
        assert solution.status is Status.CONVERGED
        assert solution.n_iter <= 120
        alone = minimise(self.problem())
        assert alone.status is Status.MAX_ITER
        assert alone.value[0] > 10 * solution.value[0]

    def test_newton_and_interior_point_arrive_at_the_same(self):
        problem = self.problem()
        start = minimise(replace(problem, max_iter=50))
        point = np.append(start.linear[0], start.linear[1])
        newton, interior = (kind(single(problem), point) for kind in (DampedNewton, InteriorPoint))
        for _ in range(100):
            newton.find_direction()
            newton.step()
        newton.find_direction()
        for _ in range(30):
            interior.step()
        assert interior.gap < 1e-12
        assert_allclose(newton.value, interior.value, rtol=1e-9)
        assert newton.gap < 1e-12

    def test_reads_stay_few(self):
        problem = self.problem(tol=1e-6)
        SOLVERS["gram"].solve(problem)
        assert problem.prepared.design.n_passes < 400


@pytest.mark.parametrize("scale", [0.05, 0.3, 1.0, 100.0])
@pytest.mark.parametrize("tau", [0.0, 1e-9, 1e-3, 0.3, 1.0])
@pytest.mark.parametrize("data", ["separable", "heavy_tailed", "wide", "one_hot"])
def test_interior_point_from_nowhere(data, tau, scale):
    """Whatever the loss it takes some twenty steps, and no lower bound is above the minimum."""
    X, y = DATA[data]()
    problem = make(X, y, MarginLoss(1.0, scale, tau), "gram", alpha=1e-6, scale_free=True)
    descent = InteriorPoint(single(problem), origin(problem))
    values, bounds = [descent.value], [descent.value - descent.gap]
    unit = 1e-2 * float(problem.tasks.losses[0].value(0.0))
    while descent.gap > 1e-12 * max(unit, descent.value) and len(values) < 41:
        descent.step()
        values.append(descent.value)
        bounds.append(descent.value - descent.gap)
    assert len(values) <= 40
    assert np.all(np.diff(values) <= 0)
    assert np.max(bounds) <= values[-1] + 1e-15


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("tau", [0.0, 0.3, 1.0])
def test_newton_bounds_the_gap_at_every_step(tau, fit_intercept):
    X, y = DATA["heavy_tailed"]()
    case = ("heavy_tailed", 0.3, tau, 1e-4, False, fit_intercept)
    [(_, minimum)] = minima(*case)
    problem = make(X, y, MarginLoss(1.0, 0.3, tau), "gram", alpha=1e-4, fit_intercept=fit_intercept)
    start = minimise(replace(problem, max_iter=10)).linear
    point = np.vstack(start)[:, 0] if fit_intercept else start[0][:, 0]
    descent, previous = DampedNewton(single(problem), point), np.inf
    for _ in range(30):
        descent.find_direction()
        assert descent.value <= previous * (1 + 4e-16)  # rounding may hide the last decrease
        assert descent.value - minimum <= descent.gap + 1e-14
        previous = descent.value
        descent.step()
    descent.find_direction()
    assert descent.gap < 1e-12


@settings(max_examples=50)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(["separable", "wide", "deficient", "one_hot"]),
    st.sampled_from([0.05, 0.3, 1.0, 10.0]),
    st.sampled_from([0.0, 0.01, 0.3, 1.0]),
)
def test_every_dual_point_bounds_the_minimum(seed, data, scale, tau):
    """The Fenchel-Young inequality: any dual variables, at the point with no dual residual."""
    X, y = DATA[data]()
    problem = make(X, y, MarginLoss(1.0, scale, tau), "gram", alpha=1e-2, fit_intercept=False)
    task, rng = single(problem), np.random.default_rng(seed)
    sides = task.sides
    dual = sides.bound * rng.random((len(sides.sign), len(y))) ** rng.integers(1, 9)
    total = task.adjoint((sides.sign * dual).sum(axis=0))
    point = np.divide(total, task.penalty, out=np.zeros_like(total), where=task.penalty > 0)
    scores = task.scores(point)
    assert_allclose(task.dual_residual(dual, point), 0.0, atol=1e-9 * np.abs(total).max())
    bound = task.value(point, scores) - task.duality_gap(scores, dual, np.zeros_like(point))
    assert bound <= SOLVERS["gram"].solve(problem).value[0] * (1 + 1e-9)


def test_a_loss_without_conjugate_has_no_gap():
    X, y = DATA["separable"]()
    newton = DampedNewton(single(make(X, y, LogisticLoss(), "gram")), np.zeros(X.shape[1] + 1))
    newton.find_direction()
    newton.step()
    newton.find_direction()
    assert newton.decrement > 0
    with pytest.raises(ValueError, match="needs a conjugate; LogisticLoss has none"):
        _ = newton.gap


class Function:
    """A function of the step size."""

    def __init__(self, value, derivative):
        self.value, self.derivative = value, derivative


def test_an_exact_step_where_the_derivative_jumps_and_is_small_beyond():
    """There the derivative has fallen as far as is asked for, and yet the value is higher."""

    def derivative(margins):
        return np.where(margins < 0.01, -1.0, 0.05)

    def value(margins):
        return np.where(margins < 0.01, -margins, 0.05 * (margins - 0.01) - 0.01)

    assert abs(derivative(1.0)) <= 0.1
    assert value(1.0) > 0
    assert value(exact_step(Function(value, derivative), -1.0)) < 0


def test_an_exact_step_where_the_derivative_falls_slowly_towards_a_near_minimum():
    """Plain false position would move the far end only, a tenth of the bracket at a time."""

    def derivative(margins):
        return np.where(margins < 0.001, 1e3 * margins - 1.0, 0.15 + 0.1 * (margins - 0.001))

    def value(margins):
        beyond = margins - 0.001
        return np.where(
            beyond < 0, margins * (500.0 * margins - 1.0), -5e-4 + beyond * (0.15 + 0.05 * beyond)
        )

    assert value(exact_step(Function(value, derivative), -1.0)) < 0


@settings(max_examples=50)
@given(st.floats(1e-6, 1e6), st.floats(1e-3, 1e3))
def test_line_searches_on_a_parabola(minimiser, curvature):
    """The exact step has at most a tenth of the first derivative; backtracking a decrease."""

    def value(step):
        return 0.5 * curvature * step * (step - 2 * minimiser)

    def derivative(step):
        return curvature * (step - minimiser)

    step = exact_step(Function(value, derivative), derivative(0.0))
    assert abs(step - minimiser) <= 0.1 * minimiser
    step, reached = backtrack(value, 0.0, derivative(0.0), first=4.0 * minimiser)
    assert reached == value(step) < 0
    assert step == minimiser
    assert expand(value, 0.1 * minimiser, value(0.1 * minimiser))[0] == 0.8 * minimiser


def test_backtracking_says_where_no_step_decreases():
    assert backtrack(lambda step: step, 0.0, -1.0) == (0.0, 0.0)


class TestActiveSet:
    """Without overconfidence few rows have curvature; the others enter by their linear part."""

    @pytest.mark.parametrize("fit_intercept", [True, False])
    @pytest.mark.parametrize("scale", [1e-4, 1e-3, 0.02])
    def test_values_fall_and_gaps_bound_them(self, scale, fit_intercept):
        problem = with_few_curved_rows(scale=scale, fit_intercept=fit_intercept, tol=1e-10)
        interior = InteriorPoint(single(problem), origin(problem))
        while interior.gap > 1e-12 * interior.value and not interior.stalled:
            interior.step()
        start = minimise(replace(problem, max_iter=20)).linear
        point = np.vstack(start)[:, 0] if fit_intercept else start[0][:, 0]
        descent, previous = ActiveSet(single(problem), point, HINGE), np.inf
        for _ in range(30):
            descent.find_direction()
            assert descent.value <= previous * (1 + 4e-16)
            assert descent.value - interior.value <= descent.gap + 1e-14
            if descent.decrement <= 1e-11 * descent.value or descent.stalled:
                break
            previous = descent.value
            descent.step()
        assert_allclose(descent.value, interior.value, rtol=1e-9)
        assert descent.gap <= 1e-8 * descent.value

    def test_it_saves_passes(self):
        passes = []
        for active_set in (HINGE, None):
            problem = with_few_curved_rows()
            start = minimise(replace(problem, max_iter=20)).linear
            problem = replace(problem, start=start)
            before = problem.prepared.design.n_passes
            solution = refine(problem, at_start(problem), active_set=active_set)
            assert solution.status is Status.CONVERGED
            passes.append(problem.prepared.design.n_passes - before)
        assert passes[0] < passes[1]

    def test_all_rows_become_active_where_the_others_matter(self):
        """As where rows with curvature are no more than the columns that they determine."""
        X, y = normal(6000, 50, seed=8)
        problem = make(X, y, MarginLoss(1.0, 0.05, 0.0), "gram", alpha=1e-6, tol=1e-8)
        start = minimise(replace(problem, max_iter=20)).linear
        few = replace(HINGE, per_curved_row=1.0, per_column=1.0, per_row=0.0)
        descent = ActiveSet(single(problem), np.vstack(start)[:, 0], few)
        descent.find_direction()
        assert descent._inner is not None
        while not descent.stalled:
            descent.step()
            descent.find_direction()
        solution = refine(problem, at_start(problem), active_set=few)
        assert solution.status is Status.CONVERGED


@settings(max_examples=50)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.05, 0.3, 1.0]), st.integers(0, 100))
def test_linear_parts_bound_the_objective_from_below(seed, scale, percent):
    """And equal it where the inactive rows are in their linear part."""
    rng, (X, y) = np.random.default_rng(seed), DATA["heavy_tailed"]()
    whole = single(make(X, y, MarginLoss(1.0, scale, 0.0), "gram", alpha=1e-3))
    here, there = rng.normal(size=(2, len(whole.penalty)))
    scores = whole.scores(here)
    residual = whole.sides.residual(whole.sign * scores)[0]
    active = (residual > 0) & (residual < 1.5 * scale) | (100 * rng.random(len(X)) < percent)
    task = RestrictedTask(whole, active, scores)

    def value(point):
        return task.value(point, task.scores(point))

    assert_allclose(value(here), whole.value(here, scores), rtol=1e-12)
    assert value(there) <= whole.value(there, whole.scores(there)) * (1 + 1e-12)
    line = TaskLine(task, here, task.scores(here), there, task.scores(there))
    difference = (value(here + 1e-6 * there) - value(here - 1e-6 * there)) / 2e-6
    assert_allclose(line.derivative(0.0), difference, rtol=1e-5, atol=1e-7)
    for step in (0.5, 3.0):
        change = value(here + step * there) - value(here)
        assert_allclose(line.value(step) - line.value(0.0), change, rtol=1e-9, atol=1e-12)


class TestSystemsOfManyColumns:
    """Solved by conjugate gradients with the factor of an earlier Hessian."""

    def problem(self, n_columns=256, **options):
        X, y = normal(6000, n_columns, seed=3)
        return make(X, y, MarginLoss(1.0, 0.1, 0.0), "gram", **{"alpha": 1e-2, **options})

    def curvature(self, seed=0):
        rng = np.random.default_rng(seed)
        return np.where(np.arange(6000) % 20 == 0, rng.random(6000), 0.0)

    @pytest.mark.parametrize("fit_intercept", [True, False])
    def test_nearly_and_exactly(self, fit_intercept, monkeypatch):
        problem = single(self.problem(fit_intercept=fit_intercept))
        right = np.random.default_rng(1).normal(size=len(problem.penalty))
        hessians, system, plain = [], NewtonSystem(problem, NewtonPolicy()), problem.factorise
        monkeypatch.setattr(problem, "factorise", lambda c: hessians.append(c) or plain(c))
        first, second = self.curvature(), 0.9 * self.curvature() + 0.1 * self.curvature(2)

        def exactly(curvature):
            return cho_solve(plain(curvature), right)

        assert_allclose(system.solve(first, right), exactly(first), rtol=1e-12)
        assert_allclose(system.solve(first, right), exactly(first), rtol=1e-12)
        found, truth = system.solve(second, right), exactly(second)
        assert len(hessians) == 1
        assert 1e-8 < np.linalg.norm(found - truth) / np.linalg.norm(truth) < 0.1
        assert_allclose(system.solve(second, right, exactly=True), truth, rtol=1e-12)
        system.solve(3.0 * second, right)  # another Hessian altogether
        assert len(hessians) == 3

    def test_as_many_steps_as_rows_that_changed(self, monkeypatch):
        policy = NewtonPolicy(cg_max_products=4, cg_tolerance=1e-9)
        problem, curvature = single(self.problem()), self.curvature()
        right, system = np.ones(len(problem.penalty)), NewtonSystem(problem, policy)
        system.solve(curvature, right)
        curvature = curvature.copy()
        curvature[[0, 20, 40]] = 1.0, 1.0, 0.0
        expected = cho_solve(problem.factorise(curvature), right)
        monkeypatch.setattr(problem, "factorise", None)
        assert_allclose(system.solve(curvature, right), expected, rtol=1e-6)

    def test_too_many_steps_make_a_new_factor(self):
        problem, policy = single(self.problem()), NewtonPolicy(cg_max_products=0)
        right, system = np.ones(len(problem.penalty)), NewtonSystem(problem, policy)
        system.solve(self.curvature(), right)
        found = system.solve(1.1 * self.curvature(), right)
        expected = cho_solve(problem.factorise(1.1 * self.curvature()), right)
        assert_allclose(found, expected, rtol=1e-12)

    def test_hessian_product(self):
        problem, curvature = single(self.problem()), self.curvature()
        point = np.random.default_rng(4).normal(size=len(problem.penalty))
        product = problem.hessian_product(curvature)(point)
        assert_allclose(cho_solve(problem.factorise(curvature), product), point, rtol=1e-8)

    def test_only_where_it_pays(self, monkeypatch):
        """Few columns or many rows with curvature are factorised anew."""
        changed = 0.9 * self.curvature() + 0.1 * self.curvature(2)
        dense = np.ones(6000)
        for n_columns, first, second, reused in (
            (256, self.curvature(), changed, True),
            (254, self.curvature(), changed, False),
            (256, dense, 1.1 * dense, False),
        ):
            problem = single(self.problem(n_columns))
            right, system = np.ones(len(problem.penalty)), NewtonSystem(problem, NewtonPolicy())
            system.solve(first, right)
            hessians, plain = [], problem.factorise
            monkeypatch.setattr(problem, "factorise", lambda c: hessians.append(c) or plain(c))  # noqa: B023
            system.solve(second, right)
            assert (len(hessians) == 0) == reused

    def test_a_descent_ends_at_the_minimum(self):
        problem = self.problem(alpha=1e-4, tol=1e-9)
        start = minimise(replace(problem, max_iter=15)).linear
        descent = DampedNewton(single(problem), np.vstack(start)[:, 0])
        descent.find_direction()
        while descent.decrement > 1e-10 * descent.value and not descent.stalled:
            descent.step()
            descent.find_direction()
        interior = InteriorPoint(single(problem), origin(problem))
        while interior.gap > 1e-10 * interior.value and not interior.stalled:
            interior.step()
        assert_allclose(descent.value, interior.value, rtol=1e-8)
        assert descent.gap <= 1e-7 * descent.value


@pytest.mark.parametrize("rho", ["pseudo_huber", "log_cosh", "huber", "square"])
@pytest.mark.parametrize("tau", [0.0, 0.3])
def test_refinement_of_every_rho(rho, tau):
    """The same minimum as that of the first-order method, whether or not φ' is bounded."""
    X, y = normal(400, 5, seed=4)
    problem = make(X, y, MarginLoss(1.0, 0.3, tau, rho), "gram", alpha=1e-3, tol=1e-10)
    solution = refine(problem, at_start(problem))
    assert solution.status is Status.CONVERGED
    assert_allclose(solution.value, minimise(replace(problem, tol=1e-12)).value, rtol=1e-8)


def test_newton_alone_is_for_every_smooth_loss():
    X, y = DATA["classes"]()
    problem = make(X, y, LogisticLoss(), "gram", alpha=1e-2, tol=1e-12)
    solution = solve_newton(problem)
    assert solution.status is Status.CONVERGED
    assert solution.n_iter < 15
    assert_allclose(solution.value, minimise(problem).value, rtol=1e-10)
