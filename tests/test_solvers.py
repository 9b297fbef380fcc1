"""Every solver against a minimiser written here, and against each other."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.optimize import minimize
from sklearn.datasets import load_breast_cancer, load_digits
from solver_problems import DATA, interior_minimum, make, minima, normal, with_few_curved_rows

from marginpursuit import MarginPursuitClassifier
from marginpursuit.design import design_for
from marginpursuit.losses import MarginLoss
from marginpursuit.solvers import SOLVERS, Policy, Request, Status, gram
from marginpursuit.tasks import Labels, Tasks

LOSSES = [(s, tau) for s in (0.05, 0.3, 1.0, 10.0, 100.0) for tau in (0.0, 0.3, 1.0)]
PENALTIES = [(1e-6, True), (0.0, False), (1e-4, False), (1.0, False)]


@cache
def cases():
    """Every data set with every loss, and the penalties and intercepts in turn."""
    found = []
    for i, name in enumerate(DATA):
        for j, loss in enumerate(LOSSES):
            options = PENALTIES[(i + j) % 4], bool((i + j // 4) % 2)
            found.append((name, *loss, *options[0], options[1]))
    return found


@pytest.mark.parametrize("case", cases(), ids=lambda case: "-".join(map(str, case)))
def test_reaches_the_minimum(case):
    """The gap is honest, and the value is that of the stated objective."""
    data, scale, tau, alpha, scale_free, fit_intercept = case
    X, y = DATA[data]()
    loss = MarginLoss(1.0, scale, tau)
    options = {"alpha": alpha, "scale_free": scale_free, "fit_intercept": fit_intercept}
    found = minima(*case)
    for name, tol in (("gram", 1e-10), ("gram", 1e-6), ("gram", 1e-3), ("lbfgs", 1e-7)):
        problem = make(X, y, loss, name, tol=tol, max_iter=700, **options)
        solution = SOLVERS[name].solve(problem)
        coef, intercept = problem.prepared.to_data(solution.linear)
        if name == "gram":
            assert solution.status is Status.CONVERGED
        for k, (objective, minimum) in enumerate(found):
            value = objective.value_at(coef[:, k], intercept[k])
            assert_allclose(solution.value[k], value, rtol=1e-10, atol=1e-14)
            unit = max(minimum, 1e-2 * float(loss.value(0.0)))
            assert value >= minimum - 1e-12 * unit
            if name == "gram":
                assert value - minimum <= 20 * max(solution.gap[k], 1e-12) * unit
                assert value - minimum <= 5 * tol * unit
            elif solution.status is Status.CONVERGED:
                # It knows the Hessian less well, and has been seen to be wrong by some hundred
                # times where columns depend on each other and the penalty is tiny.
                assert value - minimum <= 1000 * tol * unit


def test_newton_steps_below_rounding_are_not_taken():
    """Along dependent columns, such a step made coefficients of 1e8 out of rounding errors."""
    X, y = DATA["deficient"]()
    rng = np.random.default_rng(9)
    rows, columns = rng.permutation(len(y)), rng.permutation(X.shape[1])
    X, y = np.ascontiguousarray(X[rows][:, columns]), y[rows]
    loss, options = MarginLoss(1.0, 0.3, 0.3), {"alpha": 0.0, "fit_intercept": False}
    problem = make(X, y, loss, "gram", tol=1e-10, max_iter=700, **options)
    solution = SOLVERS["gram"].solve(problem)
    assert solution.status is Status.CONVERGED
    assert abs(solution.linear[0]).max() < 1.0
    (_, minimum), *_ = minima("deficient", 0.3, 0.3, 0.0, False, False)
    assert_allclose(solution.value, minimum, rtol=1e-10)


@pytest.mark.parametrize("data", ["deficient", "heavy_tailed", "separable"])
def test_the_reference_agrees_with_scipy(data):
    (objective, minimum), *_ = minima(data, 0.3, 0.3, 1e-4, False, True)
    point = np.zeros(objective.z.shape[1])
    for _ in range(3):
        point = minimize(
            lambda p: float(objective.value(p)),
            point,
            jac=lambda p: objective.derivatives(p)[0].astype(float),
            options={"gtol": 1e-12},
        ).x
    assert_allclose(objective.value(point), minimum, rtol=1e-10)


def test_solvers_agree_on_the_coefficients():
    X, y = normal(400, 6, seed=7)
    loss = MarginLoss(1.0, 0.9, 0.6)
    found = {}
    for name in SOLVERS:
        problem = make(X, y, loss, name, alpha=1e-2, max_iter=3000)
        found[name] = problem.prepared.to_data(SOLVERS[name].solve(problem).linear)
    for name in ("lbfgs", "steepest"):
        for a, b in zip(found["gram"], found[name], strict=True):
            assert_allclose(a, b, atol=1e-5)


@pytest.mark.parametrize("unit", ["absolute", "common"])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_columns_that_one_row_alone_has_keep_their_coefficients(unit, fit_intercept, n_classes):
    X = sparse.random(80, 400, 0.02, format="csr", random_state=0)
    y = np.arange(80) % n_classes
    options = {"alpha": 1e-2, "alpha_unit": unit, "fit_intercept": fit_intercept, "tol": 1e-11}
    found = {
        name: MarginPursuitClassifier(scale=0.5, solver=name, **options).fit(X, y)
        for name in ("gram", "lbfgs")
    }
    counts = np.bincount(X.indices, minlength=400)
    assert np.count_nonzero(counts <= 1) > 0.125 * 400  # so that it is worth merging them
    assert np.abs(found["gram"].coef_[:, counts == 1]).max() > 1e-3
    assert_allclose(found["lbfgs"].coef_, found["gram"].coef_, atol=1e-5)
    assert_allclose(found["lbfgs"].intercept_, found["gram"].intercept_, atol=1e-5)


@pytest.mark.parametrize(("scale", "tau"), [(0.7, 0.5), (0.3, 0.0)])
def test_several_classes_equal_separate_problems(scale, tau):
    """Also where all three methods of `gram` have their turn."""
    X, y = load_digits(n_class=4, return_X_y=True)
    loss = MarginLoss(1.0, scale, tau)
    options = {"alpha": 1e-6, "scale_free": True, "tol": 1e-9}
    together = SOLVERS["gram"].solve(make(X, y, loss, "gram", **options))
    assert together.status is Status.CONVERGED
    for k in range(4):
        alone = SOLVERS["gram"].solve(make(X, (y == k).astype(int), loss, "gram", **options))
        unit = max(alone.value[0], 1e-2 * float(loss.value(0.0)))
        assert abs(together.value[k] - alone.value[0]) <= 2e-9 * unit


@pytest.mark.parametrize("n_threads", [2, 3])
def test_classes_are_finished_side_by_side(n_threads):
    X, y = load_digits(n_class=4, return_X_y=True)
    found = []
    for threads in (1, n_threads):
        reports = []
        problem = make(
            *(X, y, MarginLoss(1.0, 0.3, 0.0), "gram"),
            **{"alpha": 1e-6, "scale_free": True, "tol": 1e-9, "n_threads": threads},
            report=reports.append,
        )
        solution = SOLVERS["gram"].solve(problem)
        assert tuple(reports) == solution.history
        assert len({p.iteration for p in reports}) < len(reports)  # classes have steps of their own
        assert np.all(np.diff([p.passes for p in reports]) >= 0)
        found.append((solution, problem.prepared.design.n_passes))
    (one, its_reads), (several, reads) = found
    assert_array_equal(one.linear[0], several.linear[0])
    assert_array_equal(one.gap, several.gap)
    assert [p.value for p in one.history] == [p.value for p in several.history]
    assert its_reads == reads


def test_the_preconditioner_of_many_points_is_that_of_few():
    X, _ = normal(200, 20, seed=8)
    weights = np.full((1, 200), 1 / 200)
    request = Request(design_for(X), weights, (MarginLoss(),), "standardised", 1e-4, True)
    preconditioner = SOLVERS["gram"].prepare(request).preconditioner
    points = np.random.default_rng(9).normal(size=(40, 21))
    few = np.concatenate([preconditioner.apply(point[np.newaxis], 1e-4) for point in points])
    assert_allclose(preconditioner.apply(points, 1e-4), few, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["gram", "lbfgs"])
@pytest.mark.parametrize(("scale", "tau"), [(0.3, 0.0), (1.0, 0.0), (0.3, 0.3), (1.0, 1.0)])
@pytest.mark.parametrize("load", [load_breast_cancer, load_digits])
def test_values_never_rise_and_each_iteration_is_reported(load, scale, tau, name):
    X, y = load(return_X_y=True)
    y = (y == 1).astype(int)
    reports = []
    problem = make(
        *(X, y, MarginLoss(1.0, scale, tau), name),
        **{"alpha": 1e-6, "scale_free": True, "tol": 1e-8, "max_iter": 300},
        report=reports.append,
    )
    solution = SOLVERS[name].solve(problem)
    assert tuple(reports) == solution.history
    assert [p.iteration for p in reports] == list(range(solution.n_iter + 1))
    assert np.all(np.diff([p.value for p in reports]) <= 1e-15)
    assert np.all(np.diff([p.passes for p in reports]) > 0)
    assert reports[-1].value == solution.value[0]
    assert reports[-1].passes <= problem.prepared.design.n_passes


@pytest.mark.parametrize("name", ["gram", "lbfgs"])
@pytest.mark.parametrize("max_iter", [1, 2, 60])
def test_too_few_iterations_are_said(name, max_iter):
    X, y = load_breast_cancer(return_X_y=True)
    problem = make(
        *(X, y, MarginLoss(1.0, 0.05, 0.0), name), scale_free=True, alpha=1e-6, max_iter=max_iter
    )
    solution = SOLVERS[name].solve(problem)
    assert solution.status is Status.MAX_ITER
    assert solution.n_iter == max_iter
    assert problem.tol < solution.gap.max() <= 1


@pytest.mark.parametrize("tau", [0.0, 1.0])
@pytest.mark.parametrize("name", ["gram", "lbfgs"])
def test_what_rounding_forbids_is_said(name, tau):
    """Columns far from zero blur the gradient."""
    X, y = normal(200, 4)
    loss, options = MarginLoss(1.0, 0.5, tau), {"alpha": 1e-6, "scale_free": True}
    problem = make(X + 1e9, y, loss, name, tol=1e-30, max_iter=400, **options)
    solution = SOLVERS[name].solve(problem)
    assert solution.status is Status.ROUNDING
    assert solution.n_iter < 400
    best = SOLVERS["gram"].solve(make(X, y, loss, "gram", **options)).value[0]
    assert_allclose(solution.value[0], best, rtol=1e-4)


@pytest.mark.parametrize("name", ["gram", "lbfgs"])
@pytest.mark.parametrize("tau", [0.0, 1.0])
@pytest.mark.parametrize("data", ["unbalanced", "wide", "sparse_data", "separable", "classes"])
def test_a_warm_start_at_the_minimum_stays_there(data, tau, name):
    X, y = DATA[data]()
    problem = make(X, y, MarginLoss(1.0, 0.8, tau), name, alpha=1e-3, tol=1e-10)
    first = SOLVERS[name].solve(problem)
    prepared = problem.prepared
    start = prepared.from_data(prepared.to_data(first.linear))
    again = SOLVERS[name].solve(replace(problem, start=start, tol=1e-8))
    # The first step measures the curvature that the estimate of the gap needs, along one direction.
    assert again.n_iter <= 2
    assert_allclose(again.value, first.value, rtol=1e-8)


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("tau", [0.0, 1.0])
def test_weights_count_rows(name, tau):
    """Dual passes get the easier data: small penalties and heavy tails take thousands of them."""
    is_dual = name == "dual"
    X, y = DATA["sparse_data" if is_dual else "heavy_tailed"]()
    X = X.toarray() if is_dual else X
    counts = np.random.default_rng(0).integers(0, 3, len(y))
    loss = MarginLoss(1.0, 0.5, tau)
    options = {"alpha": 0.1 if is_dual else 1e-3, "tol": 1e-12, "max_iter": 500}
    weighted = make(X, y, loss, name, weights=counts / counts.sum(), **options)
    repeated = make(np.repeat(X, counts, axis=0), np.repeat(y, counts), loss, name, **options)
    one, other = SOLVERS[name].solve(weighted), SOLVERS[name].solve(repeated)
    assert_allclose(one.value, other.value, rtol=1e-9)
    for a, b in zip(
        weighted.prepared.to_data(one.linear), repeated.prepared.to_data(other.linear), strict=True
    ):
        assert_allclose(a, b, atol=1e-4)


@pytest.mark.parametrize("name", ["gram", "lbfgs", "steepest"])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("shape", [(40, 3), (5, 9), (1, 4), (7, 1)])
@pytest.mark.parametrize("constant", [0.0, 2.0])
def test_data_that_say_nothing(shape, constant, fit_intercept, name):
    """Without intercept a constant column is one; otherwise nothing but the intercept is fitted."""
    X, y = np.full(shape, constant), (np.arange(shape[0]) % 3 == 0).astype(int)
    loss = MarginLoss(1.0, 1.0, 1.0)
    problem = make(
        *(X, y, loss, name), alpha=0.0, fit_intercept=fit_intercept, tol=1e-10, max_iter=300
    )
    coef, intercept = problem.prepared.to_data(SOLVERS[name].solve(problem).linear)
    score = float(X[0] @ coef[:, 0] + intercept[0])
    if constant == 0 and not fit_intercept:
        assert_array_equal(coef, 0)
    else:
        margins = np.where(y == 1, 1.0, -1.0)[:, None] * np.linspace(-1, 1, 4001)
        best = np.linspace(-1, 1, 4001)[loss.value(margins).mean(axis=0).argmin()]
        assert abs(score - best) < 1e-3


@pytest.mark.parametrize("name", ["gram", "lbfgs"])
def test_sparse_columns_far_from_zero_that_hardly_differ(name):
    """Their Gram matrix, centred after the fact, is not positive definite."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 200)
    column = 1e6 + rng.normal(size=200) + 2 * y
    X = np.column_stack([column, column + 1e-3 * rng.normal(size=200), rng.normal(size=200)])
    loss = MarginLoss(1.0, 1.0, 1.0)
    options = {"alpha": 1e-6, "scale_free": True, "tol": 1e-6, "max_iter": 300}
    found = [
        SOLVERS[name].solve(make(kind(X), y, loss, name, **options)).value[0]
        for kind in (np.asarray, sparse.csr_matrix)
    ]
    assert_allclose(found[1], found[0], rtol=1e-2)


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
        solution = SOLVERS["steepest"].solve(problem, step=step)
        assert_allclose(solution.linear[0][:, 0], w, rtol=1e-12)
        assert_array_equal(solution.linear[1], 0)
        assert solution.status is Status.ALL_STEPS
        assert solution.n_iter == 25
        least = SOLVERS["steepest"].solve(replace(problem, max_iter=20_000)).value
        assert np.all(solution.gap >= (solution.value - least) / solution.value)

    def test_e17_the_admissible_step_is_checked(self):
        X, y = normal(60, 3)
        problem = make(X, y, MarginLoss(), "steepest", alpha=0.0, fit_intercept=False, max_iter=1)
        longest = 2 / np.mean(np.sum(X**2, axis=1))
        SOLVERS["steepest"].solve(problem, step=0.999 * longest)
        for step in (1.001 * longest, 0.0, -0.1):
            with pytest.raises(ValueError, match="step must be in"):
                SOLVERS["steepest"].solve(problem, step=step)

    @pytest.mark.parametrize("fit_intercept", [True, False])
    def test_default_step_never_raises_the_value_and_arrives(self, fit_intercept):
        X, y = normal(100, 3, seed=2)
        loss, options = MarginLoss(1.0, 0.5), {"alpha": 0.1, "fit_intercept": fit_intercept}
        problem = make(X, y, loss, "steepest", max_iter=1000, **options)
        solution = SOLVERS["steepest"].solve(problem)
        assert np.all(np.diff([p.value for p in solution.history]) <= 1e-15)
        best = SOLVERS["gram"].solve(make(X, y, loss, "gram", **options)).value
        assert_allclose(solution.value, best, rtol=1e-10)

    def test_the_negligible_penalty_is_left_out(self):
        X, y = normal(60, 3)
        problem = make(X, y, MarginLoss(), "steepest", alpha=1e-6, scale_free=True, max_iter=1)
        assert_array_equal(problem.penalty, 0)


@pytest.mark.parametrize("tau", [0.0, 1.0])
def test_the_gram_matrix_of_a_sample_is_enough_of_overdetermined_problems(tau):
    """Also with a column that all but four rows have a zero in, and one that is nearly another."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30_000, 6))
    X[:, 4] = np.where(np.arange(30_000) % 7500 == 10, 30.0, 0.0)
    X[:, 5] = X[:, 0] + 1e-3 * X[:, 5]
    y = X @ np.ones(6) + rng.normal(size=30_000) > 0
    problem = make(X, y, MarginLoss(1.0, 0.3, tau), "gram", alpha=1e-6, tol=1e-8)
    ours = SOLVERS["gram"].solve(problem)
    policy = Policy(gram_sampling_ratio=10**9)
    whole = make(X, y, MarginLoss(1.0, 0.3, tau), "gram", alpha=1e-6, tol=1e-8, policy=policy)
    whole.prepared.preconditioner.compute()
    expected = SOLVERS["gram"].solve(whole)
    point = np.append(rng.normal(size=6), 1.0)[np.newaxis]
    one, other = (p.precondition(point, np.zeros(1, int)) for p in (problem, whole))
    assert not np.allclose(one, other, rtol=1e-6)  # it was a sample
    assert_allclose(ours.value, expected.value, rtol=1e-6)
    assert ours.n_iter <= 1.5 * expected.n_iter + 5


class TestFromASample:
    """Without overconfidence few rows have curvature: a sample first, then Newton steps."""

    def solve(self, problem):
        """Solve; check that no quasi-Newton step was taken on all rows, and how good it is."""
        solution = SOLVERS["gram"].solve(problem)
        assert solution.status is Status.CONVERGED
        assert [p.iteration for p in solution.history] == list(range(solution.n_iter + 1))
        assert np.all(np.diff([p.value for p in solution.history]) <= 1e-15)
        value, gap = interior_minimum(problem, 1e-10)
        assert solution.value[0] <= (value - gap) * (1 + 1.1 * problem.tol) + 1e-15
        assert solution.n_iter <= 40
        return solution

    @pytest.mark.parametrize("fit_intercept", [True, False])
    @pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int8])
    @pytest.mark.parametrize("scale", [0.02, 0.1, 0.2])
    def test_as_good_as_the_tolerance(self, scale, dtype, fit_intercept, monkeypatch):
        problem = with_few_curved_rows(scale=scale, dtype=dtype, fit_intercept=fit_intercept)
        monkeypatch.setattr(gram, "lbfgs_for", spy := Spy(gram.lbfgs_for))
        self.solve(problem)
        assert [given.prepared.design.n_rows for given in spy.given] == [1500]

    @pytest.mark.parametrize("tol", [1e-3, 1e-6, 1e-9])
    def test_tolerance(self, tol):
        self.solve(with_few_curved_rows(tol=tol))

    def test_weights_also_where_the_sample_has_none(self):
        rng = np.random.default_rng(1)
        weights = np.where(rng.random(6000) < 0.5, 0.0, rng.random(6000))
        self.solve(with_few_curved_rows(weights=weights / weights.sum()))
        few = np.zeros(6000)
        few[np.setdiff1d(np.arange(6000), gram.stratified_rows(6000, 1500))[:300]] = 1 / 300
        solution = SOLVERS["gram"].solve(with_few_curved_rows(weights=few))
        assert solution.status is Status.CONVERGED

    def test_start_at_the_minimum_and_far_from_it(self):
        problem = with_few_curved_rows()
        best = self.solve(problem)
        again = self.solve(replace(problem, start=best.linear))
        assert again.n_iter <= 1
        far = tuple(1e3 + 0.0 * part for part in best.linear)
        assert_allclose(self.solve(replace(problem, start=far)).value, best.value, rtol=2e-6)

    def test_many_rows_with_curvature_are_left_to_the_quasi_newton_method(self, monkeypatch):
        monkeypatch.setattr(gram, "lbfgs_for", spy := Spy(gram.lbfgs_for))
        SOLVERS["gram"].solve(with_few_curved_rows(scale=3.0, noise=3.0))
        assert [given.prepared.design.n_rows for given in spy.given] == [1500, 6000]

    @pytest.mark.parametrize("tau", [0.0, 1.0])
    def test_the_gram_matrix_waits_until_it_is_needed(self, tau, monkeypatch):
        expected = SOLVERS["gram"].solve(with_few_curved_rows(tau))
        problem = with_few_curved_rows(tau)
        assert (problem.prepared.preconditioner.gram is None) == (tau == 0)
        problem.prepared.preconditioner.gram = None
        design, weighed = problem.prepared.design, []
        whole = design.gram
        monkeypatch.setattr(
            design, "gram", lambda w, z: weighed.append(np.all(w > 0)) or whole(w, z)
        )
        assert_allclose(SOLVERS["gram"].solve(problem).value, expected.value, rtol=1e-9)
        assert any(weighed) == (tau > 0)

    def test_too_few_iterations_are_said(self):
        solution = SOLVERS["gram"].solve(with_few_curved_rows(max_iter=1, tol=1e-9))
        assert (solution.status, solution.n_iter) == (Status.MAX_ITER, 1)


class Spy:
    """A function that remembers what it was given first."""

    def __init__(self, function):
        self.function, self.given = function, []

    def __call__(self, given, **options):
        self.given.append(given)
        return self.function(given, **options)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_the_hessian_preconditions(fit_intercept):
    """Plus a multiple of the majoriser: by finite differences of the gradient, by columns."""
    X, y = normal(80, 4, seed=6)
    design, weights = design_for(X), np.full((1, 80), 1 / 80)
    loss, alpha, size = MarginLoss(1.0, 0.5, 0.0), 1e-3, 4 + fit_intercept
    request = Request(design, weights, (loss,), "standardised", alpha, fit_intercept)
    prepared = SOLVERS["gram"].prepare(request)
    prepared.preconditioner.compute()
    z = prepared.standardisation
    tasks = Tasks.of(Labels(y, 2), weights[0], loss)
    point = 0.2 * np.random.default_rng(7).normal(size=size)

    def gradient(point):
        sweep = design.sweep(point[:4, np.newaxis], np.append(point[4:], 0.0)[:1], tasks, z)
        shrinkage = alpha * prepared.penalty_weights[0] * point[:4]
        return np.append(sweep.gradient[:, 0] + shrinkage, sweep.slope)[:size]

    steps = 1e-6 * np.eye(size)
    hessian = [(gradient(point + h) - gradient(point - h)) / 2e-6 for h in steps]
    scores = design.scores(point[:4, np.newaxis], np.append(point[4:], 0.0)[:1], z)[:, 0]
    majoriser = prepared.preconditioner
    curvature = weights[0] * loss.curvature(tasks.sign(0) * scores)
    found, bounding = (
        np.linalg.inv(each.apply(np.eye(size), alpha))
        for each in (majoriser.with_hessian(curvature), majoriser)
    )
    penalty = alpha * np.append(prepared.penalty_weights[0], 0.0)[:size]
    regularisation = Policy().hessian_regularisation * (bounding - np.diag(penalty))
    assert_allclose(found, hessian + regularisation, atol=1e-8)


class TestRowSpace:
    """Rows that the pivots span, or nearly."""

    @staticmethod
    def problem(rest, **options):
        """Return a problem whose last row is a tenth of the first, plus `rest` in a new column."""
        X = np.random.default_rng(0).normal(size=(6, 10))
        X[:, 9] = 0.0
        X[5] = 0.1 * X[0]
        X[5, 9] = rest
        loss = MarginLoss(1.0, 1.0, 1.0)
        return make(X, np.arange(6) % 2, loss, "gram", fit_intercept=False, **options)

    def test_rests_are_computed_to_the_precision_of_the_rows(self):
        slopes = np.arange(1.0, 7.0)
        for rest in (1e-8, 1e-12):  # their squares are below the rounding error of ‖x‖²
            space = self.problem(rest).prepared.transform
            assert len(space.pivots) == 5
            assert_allclose(space.outside(slopes), (slopes[5] * rest) ** 2, rtol=1e-2)

    @pytest.mark.parametrize(("rest", "status"), [(0.0, Status.CONVERGED), (1e-8, Status.ROUNDING)])
    def test_only_rests_that_matter_count_as_rounding(self, rest, status):
        problem = self.problem(rest, alpha=1e-12, tol=1e-9)
        solution = SOLVERS["gram"].solve(problem)
        assert solution.status is status
        if status is Status.ROUNDING:
            assert np.all(solution.gap > 1e-9)
