"""Dual coordinate ascent against L-BFGS, and the bound of its duality gap."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from marginpursuit import MarginPursuitClassifier, _kernels
from marginpursuit._threads import Threads
from marginpursuit.design import ColumnRotation, design_for
from marginpursuit.losses import LogisticLoss, MarginLoss
from marginpursuit.solvers import SOLVERS, Policy, Problem, Request, Status, minimise
from marginpursuit.solvers._dual_passes import PassStopping
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


def folds():
    """Return the weights of three folds, two of which hold out some of the rows."""
    weights = np.random.default_rng(1).random((3, N_ROWS)) + 0.1
    weights[1, :20], weights[2, 50:] = 0.0, 0.0
    return weights / weights.sum(axis=1, keepdims=True)


def problem(X, codes, solver="dual", unit="common", fit_intercept=True, tol=1e-9, n_threads=1):
    """Pose every class on every fold with every loss: 54 tasks, in groups that are not full."""
    weights = folds()
    shape = len(LOSSES), len(weights), N_CLASSES
    which, fold, positive = (np.ravel(x) for x in np.indices(shape))
    tasks = Tasks(codes, weights, positive, fold, tuple(LOSSES[k] for k in which))
    alphas = 10.0 ** np.random.default_rng(2).uniform(-3, -1, len(tasks))
    design = design_for(X, Threads(n_threads))
    request = Request(
        *(design, weights, tuple(LOSSES), unit, alphas.min(), fit_intercept), n_problems=len(tasks)
    )
    prepared = SOLVERS[solver].prepare(request)
    return Problem(prepared, tasks, alphas, prepared.zeros(len(tasks)), 3000, tol)


def value_of(posed, found):
    """Return the objective, in a sweep of its own."""
    points = posed.join(*found.linear)
    return posed.value_and_gradient(points, np.arange(len(posed.tasks)))[0]


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_passes_in_one_call_are_those_of_separate_calls(fit_intercept):
    posed = problem(*rows(), fit_intercept=fit_intercept)
    separate = replace(posed, policy=Policy(dual_call_elements=1))
    together, found = (SOLVERS["dual"].solve(each) for each in (posed, separate))
    assert together.n_iter == found.n_iter > 20
    for ours, theirs in zip(together.linear, found.linear, strict=True):
        assert_array_equal(ours, theirs)
    assert_array_equal(together.gap, found.gap)
    few = SOLVERS["dual"].solve(replace(posed, max_iter=3))
    assert (few.status, few.n_iter) == (Status.MAX_ITER, 3)


@pytest.mark.parametrize("name", ["gap", "levels", "objective_floor", "tols"])
def test_stopping_has_an_entry_for_each_task(name):
    X, codes = rows()
    stopping = PassStopping(*np.ones((4, 1)), 1, 5, 1000, 0.03)
    kernels, weights = _kernels.rows(X), np.full(N_ROWS, 1 / N_ROWS)

    def run(own):
        return kernels.dual_pass(
            *(np.array([[0.0, 1.0, 1.0, 0.0]]), np.arange(N_ROWS), 0, False, codes, weights),
            *(np.ones(N_ROWS), 0.0, np.zeros(1, dtype=np.intp), np.ones(1), np.full(1, np.inf)),
            *(np.zeros((N_ROWS, 1)), np.zeros((N_COLUMNS, 1)), np.zeros(1), np.zeros((3, 1)), own),
        )

    with pytest.raises(ValueError, match=name):
        run(replace(stopping, **{name: np.ones(2)}))
    run(stopping)
    assert 1 <= stopping.n_passes <= 5


@pytest.mark.parametrize("unit", ["absolute", "common"])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("lone", [0, 40])
def test_the_minimiser_is_that_of_the_quasi_newton_method(unit, fit_intercept, lone):
    X, codes = rows(lone=lone)
    ours = problem(X, codes, "dual", unit, fit_intercept)
    reference = problem(X, codes, "lbfgs", unit, fit_intercept, tol=1e-12)
    assert isinstance(ours.prepared.transform, ColumnRotation) == bool(lone)
    found, expected = SOLVERS["dual"].solve(ours), SOLVERS["lbfgs"].solve(reference)
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
    posed = [problem(X, codes, solver, fit_intercept=fit_intercept) for solver in ("dual", "lbfgs")]
    found, expected = (minimise(each) for each in posed)
    assert_allclose(found.value, expected.value, rtol=1e-8)
    assert found.n_iter <= 1.2 * expected.n_iter


@pytest.mark.parametrize("tol", [0.3, 1e-2, 1e-4])
def test_the_gap_bounds_how_far_the_objective_is_off(tol):
    X, codes = rows()
    rough = problem(X, codes, tol=tol)
    found, best = SOLVERS["dual"].solve(rough), SOLVERS["dual"].solve(problem(X, codes))
    value = value_of(rough, found)
    assert np.all(found.gap <= tol)
    assert found.n_iter < best.n_iter
    assert np.all(value - value_of(rough, best) <= tol * rough.relative_to(value))
    assert np.any(value - value_of(rough, best) > 1e-3 * tol * value)


def test_each_task_has_a_tolerance_and_passes_are_counted():
    X, codes = rows()
    posed = problem(X, codes)
    before = posed.prepared.design.n_passes
    tols = np.where(posed.tasks.fold == 1, 1e-6, 0.5)
    found = SOLVERS["dual"].solve_folds(posed, tols)
    assert found.status is Status.CONVERGED
    assert np.all(found.gap <= tols)
    assert found.gap[posed.tasks.fold != 1].max() > 1e-6
    assert posed.prepared.design.n_passes >= before + found.n_iter
    few = replace(posed, max_iter=2, tol=1e-9)
    found = SOLVERS["dual"].solve(few)
    assert (found.status, found.n_iter) == (Status.MAX_ITER, 2)


def test_threads_change_nothing():
    X, codes = rows()
    one, two = (SOLVERS["dual"].solve(problem(X, codes, tol=1e-3, n_threads=n)) for n in (1, 2))
    assert_array_equal(one.linear[0], two.linear[0])
    assert_array_equal(one.linear[1], two.linear[1])


def test_rows_that_are_all_the_same_leave_the_intercept():
    X, codes = sparse.csr_matrix(np.ones((N_ROWS, 2))), np.arange(N_ROWS) % N_CLASSES
    posed = problem(X, codes, tol=1e-6)
    found = SOLVERS["dual"].solve(posed)
    reference = problem(X, codes, "lbfgs", tol=1e-12)
    expected = SOLVERS["lbfgs"].solve(reference).value
    assert_allclose(value_of(posed, found), expected, rtol=1e-5)


def test_what_is_refused_is_named():
    X, _ = rows()
    weights, loss = folds(), MarginLoss()

    def reason(X=X, unit="common", alpha=0.1, loss=loss):
        return SOLVERS["dual"].supports(Request(design_for(X), weights, (loss,), unit, alpha, True))

    assert reason() is None
    assert reason(unit="absolute") is None
    assert "one penalty for all coefficients" in reason(unit="standardised")
    assert "alpha_unit='standardised'" in reason(X=X.toarray())
    assert reason(X=X.toarray(), unit="standardised") is None
    assert "alpha > 0; got 0" in reason(alpha=0.0)
    assert reason(loss=LogisticLoss()) == "it needs a conjugate; LogisticLoss has none"


class TestDenseRows:
    """A standardised copy of dense rows, one task at a time, against the solver "gram"."""

    N_ROWS, N_COLUMNS = 70, 90

    @classmethod
    def rows(cls, dtype=np.float64):
        rng = np.random.default_rng(3)
        X = 3.0 * rng.normal(size=(cls.N_ROWS, cls.N_COLUMNS)) + rng.normal(size=cls.N_COLUMNS)
        X[:, 7] = 2.0  # a constant column
        y = (X[:, 0] - X[:, 1] + 3.0 * rng.normal(size=cls.N_ROWS) > 0).astype(int)
        return X.astype(dtype), y

    @classmethod
    def problem(cls, solver, alphas, fit_intercept=True, dtype=np.float64, n_threads=1):
        X, codes = cls.rows(dtype)
        weights = np.random.default_rng(4).random((1, cls.N_ROWS)) + 0.1
        weights[0, 5] = 0.0
        weights /= weights.sum()
        n, loss = len(alphas), MarginLoss(overconfidence=0.0)
        zeros = np.zeros(n, dtype=np.intp)
        tasks = Tasks(codes, weights, zeros + 1, zeros, (loss,) * n)
        design = design_for(X, Threads(n_threads))
        given = design, weights, (loss,), "standardised", min(alphas), fit_intercept
        prepared = SOLVERS[solver].prepare(Request(*given))
        return Problem(prepared, tasks, np.array(alphas), prepared.zeros(n), 2000, 1e-10)

    @pytest.mark.parametrize("fit_intercept", [True, False])
    @pytest.mark.parametrize("dtype", [np.float64, np.float32])
    def test_the_minimiser_is_that_of_the_gram_solver(self, fit_intercept, dtype):
        alphas = [0.3 / self.N_ROWS, 3.0 / self.N_ROWS, 1.0 / self.N_ROWS]
        posed = [self.problem(name, alphas, fit_intercept, dtype) for name in ("dual", "gram")]
        found, expected = (
            SOLVERS[name].solve(each) for name, each in zip(("dual", "gram"), posed, strict=True)
        )
        assert found.status is Status.CONVERGED
        assert found.is_proven
        assert_allclose(found.value, expected.value, rtol=1e-6)
        linear = posed[0].prepared.to_data(found.linear)
        other = posed[1].prepared.to_data(expected.linear)
        assert_allclose(linear[0], other[0], atol=1e-5)
        assert_allclose(linear[1], other[1], atol=1e-4)
        assert np.any(linear[0][7] != 0) == (not fit_intercept)  # it stands for an intercept
        assert np.any(linear[1] != 0) == fit_intercept

    @pytest.mark.parametrize("n_columns", [1, 7, 31, 32, 33, 90])
    def test_rows_of_float32_have_the_steps_of_the_same_rows_in_float64(self, n_columns):
        X, y = self.rows(np.float32)
        X = np.ascontiguousarray(X[:, :n_columns])
        coefs = []
        for rows in (X, X.astype(np.float64)):
            design = design_for(rows)
            squares, n = design.row_squares(), len(rows)
            coef, residual = np.zeros((n_columns, 1)), np.zeros((n, 1))
            for seed in range(3):
                design.dual_pass(
                    *(np.array([MarginLoss().kernel_parameters]), np.arange(n), seed, False),
                    *(
                        y.astype(np.intp),
                        np.full(n, 1.0 / n),
                        squares,
                        0.0,
                        np.ones(1, dtype=np.intp),
                    ),
                    *(
                        np.ones(1),
                        np.full(1, np.inf),
                        residual,
                        coef,
                        np.zeros(1),
                        np.zeros((3, 1)),
                    ),
                )
            coefs.append(coef)
        assert np.abs(coefs[0]).max() > 1e-3
        assert_allclose(*coefs, rtol=1e-9, atol=1e-12)

    def test_a_large_copy_is_in_float32_where_the_tolerance_permits(self):
        policy = replace(Policy(), min_float32_dual_elements=self.N_ROWS * self.N_COLUMNS)
        for tol, change, dtype in ((1e-5, 0, "f4"), (9e-6, 0, "f8"), (1e-5, 1, "f8")):
            least = policy.min_float32_dual_elements + change
            own = replace(policy, min_float32_dual_elements=least)
            X, _ = self.rows()
            weights = np.full((1, len(X)), 1.0 / len(X))
            given = design_for(X), weights, (MarginLoss(overconfidence=0.0),), "standardised", 0.1
            request = Request(*given, True, tol=tol, policy=own)
            assert SOLVERS["dual"].prepare(request).design.matrix.dtype == dtype

    def test_one_column(self):
        """Its copy is contiguous by rows and by columns."""
        X, y = self.rows()
        models = [
            MarginPursuitClassifier(solver=name, alpha=1e-2, alpha_unit="standardised", tol=1e-10)
            for name in ("dual", "gram")
        ]
        found, expected = (model.fit(X[:, :1], y).objective_ for model in models)
        assert_allclose(found, expected, rtol=1e-8)

    def test_a_chain_of_penalties_takes_fewer_passes_than_separate_fits(self):
        alphas = [k / self.N_ROWS for k in (0.3, 1.0, 3.0)]
        together = SOLVERS["dual"].solve(self.problem("dual", alphas))
        separate = [SOLVERS["dual"].solve(self.problem("dual", [alpha])) for alpha in alphas]
        assert_allclose(together.value, [float(each.value[0]) for each in separate], rtol=1e-8)
        assert together.n_iter < sum(each.n_iter for each in separate)
        few = replace(self.problem("dual", alphas), max_iter=2)
        found = SOLVERS["dual"].solve(few)
        assert (found.status, found.n_iter) == (Status.MAX_ITER, 6)  # two for each penalty

    def test_threads_do_not_change_the_result(self):
        alphas = [k / self.N_ROWS for k in (0.3, 1.0)]
        one, two = (
            SOLVERS["dual"].solve(self.problem("dual", alphas, n_threads=n)) for n in (1, 2)
        )
        assert_array_equal(one.linear[0], two.linear[0])

    def test_the_kernel_refuses_rows_that_it_cannot_read(self):
        for X in (np.zeros((3, 2), dtype=np.int64), np.zeros((3, 2), order="F")):
            kernels = _kernels.rows(X)
            one, many = np.ones(1), np.zeros(3)
            with pytest.raises(TypeError, match="contiguous rows of float64"):
                kernels.dual_pass(
                    *(np.array([[0.0, 1.0, 1.0, 0.0]]), np.arange(3), 0, False),
                    *(np.zeros(3, dtype=np.intp), many, many, 0.0, np.zeros(1, dtype=np.intp)),
                    *(one, one, np.zeros((3, 1)), np.zeros((2, 1)), np.zeros(1), np.zeros((3, 1))),
                )


@pytest.mark.parametrize("unit", ["absolute", "common", "row"])
def test_rows_without_weight_do_not_count_for_an_underflow(unit):
    weights = np.array([[0.5, 0.5, 0.0]])

    def prepare(first):
        design = design_for(sparse.csr_matrix([[first], [0.0], [3.0]]))
        request = Request(design, weights, (MarginLoss(1.0, 1.0, 0.0),), unit, 0.1, True)
        return SOLVERS["dual"].prepare(request)

    assert prepare(0.0).penalty_weights[0, 0] == 1.0
    with pytest.raises(FloatingPointError, match="no finite mean square"):
        prepare(1e-200)


def test_a_kernel_is_refused_with_what_to_do():
    """The units that dense rows need are refused with a kernel, so the error names the kernel."""
    X, codes = rows()
    model = MarginPursuitClassifier(solver="dual", kernel="rbf", alpha=0.1)
    with pytest.raises(ValueError, match=r"needs kernel='linear'.*Set solver='auto'"):
        model.fit(X.toarray(), codes == 1)
    assert model.set_params(solver="auto").fit(X.toarray(), codes == 1).n_iter_ > 0


def test_passes_do_not_depend_on_threads():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 300))
    y = (X[:, 0] + rng.normal(size=200) > 0).astype(int)
    models = [MarginPursuitClassifier(solver="dual", n_threads=n).fit(X, y) for n in (1, *[2] * 10)]
    assert len({model.n_passes_ for model in models}) == 1
    assert len({model.coef_.tobytes() for model in models}) == 1
