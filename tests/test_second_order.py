"""Newton's method, the active set and the interior-point method, for one task at a time."""

from dataclasses import replace
from types import SimpleNamespace

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

from marginpursuit.losses import MarginLoss
from marginpursuit.solvers import SOLVERS, Status, _finish, _newton, _single, minimise
from marginpursuit.solvers._interior_point import InteriorPoint
from marginpursuit.solvers._newton import NearDescent, NewtonDescent, _Line, _System
from marginpursuit.solvers._single import NearProblem, SingleProblem


class TestFinish:
    """What `gram` does where the quasi-Newton method is slow."""

    def problem(self, name="gram", **options):
        X, y = load_digits(return_X_y=True)
        given = {"alpha": 1e-6, "scale_free": True, "tol": 1e-10, "max_iter": 300} | options
        return make(X, (y == 0).astype(int), MarginLoss(1.0, 0.3, 0.0), name, **given)

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
        newton, interior = (kind(single(problem), point) for kind in (NewtonDescent, InteriorPoint))
        for _ in range(100):
            newton.step()
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
    descent, previous = NewtonDescent(single(problem), point), np.inf
    for _ in range(30):
        assert descent.value <= previous * (1 + 4e-16)  # rounding may hide the last decrease
        assert descent.value - minimum <= descent.gap + 1e-14
        previous = descent.value
        descent.step()
    assert descent.gap < 1e-12


@settings(max_examples=50)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(["separable", "wide", "deficient", "one_hot"]),
    st.sampled_from([0.05, 0.3, 1.0, 10.0]),
    st.sampled_from([0.0, 0.01, 0.3, 1.0]),
)
def test_balanced_forces_bound_the_minimum(seed, data, scale, tau):
    """Fenchel: any forces, at the point where they balance."""
    X, y = DATA[data]()
    problem = make(X, y, MarginLoss(1.0, scale, tau), "gram", alpha=1e-2, fit_intercept=False)
    one, rng = single(problem), np.random.default_rng(seed)
    force = one.most_force * rng.random((len(one.side), len(y))) ** rng.integers(1, 9)
    pull = one.pull((one.side * force).sum(axis=0))
    point = np.divide(pull, one.penalty, out=np.zeros_like(pull), where=one.penalty > 0)
    scores = one.score(point)
    bound = one.value(point, scores) - one.gap(scores, force, np.zeros_like(point))
    assert bound <= SOLVERS["gram"].solve(problem).value[0] * (1 + 1e-9)


def test_newton_steps_where_the_slope_jumps_up_and_is_flat_beyond():
    """There the slope has fallen as far as is asked for, and yet the value is higher."""

    def derivative(margins):
        return np.where(margins < 0.01, -1.0, 0.05)

    def value(margins):
        return np.where(margins < 0.01, -margins, 0.05 * (margins - 0.01) - 0.01)

    descent = along_a_line(derivative, value)
    assert abs(derivative(1.0)) <= 0.1
    assert value(1.0) > 0
    assert value(descent._search()) < 0


def test_newton_steps_where_the_slope_falls_slowly_towards_a_near_minimum():
    """False position would move the far end only, a tenth of the way at a time."""

    def derivative(margins):
        return np.where(margins < 0.001, 1e3 * margins - 1.0, 0.15 + 0.1 * (margins - 0.001))

    def value(margins):
        beyond = margins - 0.001
        return np.where(
            beyond < 0, margins * (500.0 * margins - 1.0), -5e-4 + beyond * (0.15 + 0.05 * beyond)
        )

    assert value(along_a_line(derivative, value)._search()) < 0


def along_a_line(derivative, value):
    """Return a descent in one dimension, at zero, with a step of one before it."""
    one = np.ones(1)
    descent = NewtonDescent.__new__(NewtonDescent)
    descent._problem = SimpleNamespace(
        loss=SimpleNamespace(derivative=derivative, value=value, overconfidence=1.0),
        **{"penalty": 0 * one, "straight": 0 * one, "weights": one, "sign": one},
    )
    descent.point, descent._scores = 0 * one, 0 * one
    descent._direction, descent._change, descent._slope = one, one, float(derivative(0.0))
    return descent


class TestRowsNearTheCurvedPart:
    """Without overconfidence few rows have curvature: those near it are looked at first."""

    @pytest.mark.parametrize("fit_intercept", [True, False])
    @pytest.mark.parametrize("scale", [0.02, 0.1, 0.3])
    def test_near_rows_lead_down_and_bound_the_gap(self, scale, fit_intercept):
        problem = with_few_curved_rows(scale=scale, fit_intercept=fit_intercept, tol=1e-10)
        interior = InteriorPoint(single(problem), origin(problem))
        while interior.gap > 1e-12 * interior.value and not interior.stalled:
            interior.step()
        start = minimise(replace(problem, max_iter=20)).linear
        point = np.vstack(start)[:, 0] if fit_intercept else start[0][:, 0]
        descent, previous = NearDescent(single(problem), point), np.inf
        for _ in range(30):
            assert descent.value <= previous * (1 + 4e-16)
            assert descent.value - interior.value <= descent.gap + 1e-14
            if descent.decrement <= 1e-11 * descent.value or descent.stalled:
                break
            previous = descent.value
            descent.step()
        assert_allclose(descent.value, interior.value, rtol=1e-9)
        assert descent.gap <= 1e-8 * descent.value

    def test_near_rows_save_reads(self, monkeypatch):
        passes = []
        for kind in (NearDescent, NewtonDescent):
            monkeypatch.setattr(_finish, "NearDescent", kind)
            problem = with_few_curved_rows()
            assert SOLVERS["gram"].solve(problem).status is Status.CONVERGED
            passes.append(problem.prepared.design.n_passes)
        assert passes[0] < passes[1]

    def test_near_rows_are_given_up_where_others_matter(self, monkeypatch):
        """As where those in the curve are no more than the columns that they have to determine."""
        monkeypatch.setattr(_newton, "_GROWTH", 1)
        monkeypatch.setattr(_newton, "_ROWS_PER_COLUMN", 1)
        X, y = normal(6000, 50, seed=8)
        problem = make(X, y, MarginLoss(1.0, 0.05, 0.0), "gram", alpha=1e-6, tol=1e-8)
        start = minimise(replace(problem, max_iter=20)).linear
        descent = NearDescent(single(problem), np.vstack(start)[:, 0])
        assert descent._inner is not None
        for _ in range(60):
            descent.step()
        assert descent._inner is None
        assert descent.gap <= 1e-8 * descent.value


@settings(max_examples=50)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.05, 0.3, 1.0]), st.integers(0, 100))
def test_rows_taken_for_straight_make_the_objective_no_larger(seed, scale, share):
    """And leave it as it is where they are straight."""
    rng, (X, y) = np.random.default_rng(seed), DATA["heavy_tailed"]()
    whole = single(make(X, y, MarginLoss(1.0, scale, 0.0), "gram", alpha=1e-3))
    here, there = rng.normal(size=(2, len(whole.penalty)))
    scores = whole.score(here)
    residual = whole.residual(scores)[0]
    near = (residual > 0) & (residual < 1.5 * scale) | (100 * rng.random(len(X)) < share)
    fewer = NearProblem(whole, near, scores)
    assert_allclose(fewer.value(here, fewer.score(here)), whole.value(here, scores), rtol=1e-12)
    above = whole.value(there, whole.score(there))
    assert fewer.value(there, fewer.score(there)) <= above * (1 + 1e-12)
    line = _Line(fewer, here, fewer.score(here), there, fewer.score(there))
    ahead, back = (
        fewer.value(p, fewer.score(p)) for p in (here + 1e-6 * there, here - 1e-6 * there)
    )
    assert_allclose(line.slope(0.0), (ahead - back) / 2e-6, rtol=1e-5, atol=1e-7)
    assert line.is_lower(0.5) == (
        fewer.value(here + 0.5 * there, fewer.score(here + 0.5 * there))
        <= fewer.value(here, fewer.score(here))
    )


class TestSystemsOfManyColumns:
    """Solved by conjugate gradients with the factor of an earlier Hessian."""

    def problem(self, n_columns=_single._WIDE, **options):
        X, y = normal(6000, n_columns, seed=3)
        return make(X, y, MarginLoss(1.0, 0.1, 0.0), "gram", **{"alpha": 1e-2, **options})

    def curvature(self, seed=0):
        rng = np.random.default_rng(seed)
        return np.where(np.arange(6000) % 20 == 0, rng.random(6000), 0.0)

    @pytest.mark.parametrize("fit_intercept", [True, False])
    def test_nearly_and_exactly(self, fit_intercept, monkeypatch):
        problem = single(self.problem(fit_intercept=fit_intercept))
        right = np.random.default_rng(1).normal(size=len(problem.penalty))
        hessians, system, plain = [], _System(problem), SingleProblem.factorise
        monkeypatch.setattr(
            problem,
            "factorise",
            lambda c: hessians.append(c) or SingleProblem.factorise(problem, c),
        )
        first, second = self.curvature(), 0.9 * self.curvature() + 0.1 * self.curvature(2)

        def exactly(curvature):
            return cho_solve(plain(problem, curvature), right)

        assert_allclose(system.solve(first, right), exactly(first), rtol=1e-12)
        assert_allclose(system.solve(first, right), exactly(first), rtol=1e-12)
        found, truth = system.solve(second, right), exactly(second)
        assert len(hessians) == 1
        assert 1e-8 < np.linalg.norm(found - truth) / np.linalg.norm(truth) < 0.1
        assert_allclose(system.solve(second, right, exactly=True), truth, rtol=1e-12)
        system.solve(3.0 * second, right)  # another Hessian altogether
        assert len(hessians) == 3

    def test_as_many_steps_as_rows_that_changed(self, monkeypatch):
        monkeypatch.setattr(_newton, "_MOST_PRODUCTS", 4)
        monkeypatch.setattr(_newton, "_PRECISION", 1e-9)
        problem, curvature = single(self.problem()), self.curvature()
        right, system = np.ones(len(problem.penalty)), _System(problem)
        system.solve(curvature, right)
        curvature = curvature.copy()
        curvature[[0, 20, 40]] = 1.0, 1.0, 0.0
        expected = cho_solve(problem.factorise(curvature), right)
        monkeypatch.setattr(problem, "factorise", None)
        assert_allclose(system.solve(curvature, right), expected, rtol=1e-6)

    def test_too_many_steps_make_a_new_factor(self, monkeypatch):
        problem = single(self.problem())
        right, system = np.ones(len(problem.penalty)), _System(problem)
        system.solve(self.curvature(), right)
        monkeypatch.setattr(_newton, "_MOST_PRODUCTS", 0)
        found = system.solve(1.1 * self.curvature(), right)
        expected = cho_solve(problem.factorise(1.1 * self.curvature()), right)
        assert_allclose(found, expected, rtol=1e-12)

    def test_multiply(self):
        problem, curvature = single(self.problem()), self.curvature()
        point = np.random.default_rng(4).normal(size=len(problem.penalty))
        product = problem.multiply(curvature)(point)
        assert_allclose(cho_solve(problem.factorise(curvature), product), point, rtol=1e-8)

    def test_only_where_it_pays(self):
        assert single(self.problem(_single._WIDE - 1)).multiply(self.curvature()) is None
        assert single(self.problem()).multiply(np.ones(6000)) is None

    def test_a_descent_ends_at_the_minimum(self):
        problem = self.problem(alpha=1e-4, tol=1e-9)
        start = minimise(replace(problem, max_iter=15)).linear
        descent = NewtonDescent(single(problem), np.vstack(start)[:, 0])
        while descent.decrement > 1e-10 * descent.value and not descent.stalled:
            descent.step()
        interior = InteriorPoint(single(problem), origin(problem))
        while interior.gap > 1e-10 * interior.value and not interior.stalled:
            interior.step()
        assert_allclose(descent.value, interior.value, rtol=1e-8)
        assert descent.gap <= 1e-7 * descent.value
