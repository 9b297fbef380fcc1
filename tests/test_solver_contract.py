"""The contract of every solver with every smooth loss, layout and type, and of a toy solver."""

import itertools
from functools import cache

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize

from marginpursuit import MarginPursuitClassifier
from marginpursuit._threads import Threads
from marginpursuit.design import design_for
from marginpursuit.losses import RHOS, LogisticLoss, MarginLoss
from marginpursuit.solvers import SOLVERS, Problem, Request, Solution, Status, plan
from marginpursuit.tasks import Labels, Tasks


class ToySolver:
    """SciPy's L-BFGS-B on the objective of each task, with the preparation of "lbfgs"."""

    name = "toy"

    def supports(self, request):
        return None if request.least_alpha > 0 else "it needs a penalty alpha > 0"

    def prepare(self, request):
        return SOLVERS["lbfgs"].prepare(request)

    def solve(self, problem):
        start = problem.join(*problem.start)
        found = [self._minimise(problem, k, point) for k, point in enumerate(start)]
        values = np.array([each.fun for each in found])
        linear = problem.split(np.array([each.x for each in found]))
        n_iter = max(each.nit for each in found)
        return Solution(linear, values, np.zeros(len(found)), Status.CONVERGED, n_iter, ())

    def _minimise(self, problem, task, start):
        def objective(point):
            value, gradient = problem.value_and_gradient(point[np.newaxis], np.array([task]))
            return float(value[0]), gradient[0]

        options = {"maxiter": problem.max_iter, "ftol": 1e-14, "gtol": 1e-9}
        return minimize(objective, start, jac=True, method="L-BFGS-B", options=options)


ALL = {**SOLVERS, "toy": ToySolver()}

LOSSES = [
    *(MarginLoss(1.0, 0.8, tau, rho) for rho in RHOS for tau in (0.0, 0.4, 1.0)),
    LogisticLoss(),
]
LAYOUTS = {
    "dense": np.ascontiguousarray,
    "columns": np.asfortranarray,
    "CSR": sparse.csr_array,
}

#: Steps of a fixed size, whose distance from the minimum depends on their number.
APPROXIMATE = {"steepest", "stochastic"}

each_case = pytest.mark.parametrize(
    ("name", "loss", "layout", "dtype"),
    [
        pytest.param(name, loss, layout, dtype, id=f"{name}-{loss}-{layout}-{dtype}")
        for (name, loss, layout), dtype in zip(
            itertools.product(ALL, LOSSES, LAYOUTS), itertools.cycle(["float64", "float32"])
        )
    ],
)


def data(dtype):
    """Return three classes in rows that float32 represents exactly."""
    rng = np.random.default_rng(0)
    X = np.round(8 * rng.normal(size=(150, 6))) / 8
    X[rng.random(X.shape) < 0.3] = 0.0
    return X.astype(dtype), np.argmax(X[:, :3] + rng.normal(size=(150, 3)), axis=1)


def request_for(X, loss, alpha=0.03, fit_intercept=True):
    weights = np.full(X.shape[0], 1 / X.shape[0])
    design = design_for(X, Threads(1))
    return Request(design, weights[np.newaxis], (loss,), "absolute", alpha, fit_intercept, 3)


def problem_for(solver, request, y, **options):
    prepared = solver.prepare(request)
    tasks = Tasks.of(Labels(y, 3), request.weights[0], request.losses[0])
    alphas, start = np.full(len(tasks), request.least_alpha), prepared.zeros(len(tasks))
    given = {"max_iter": 2000, "tol": 1e-9, "random_state": 0}
    return Problem(prepared, tasks, alphas, start, **given | options)


def objective(X, y, loss, coef, intercept, alpha):
    """Return the objective of each class against the rest, by its definition."""
    scores = np.asarray(X, dtype=float) @ coef + intercept
    margins = np.where(y[:, np.newaxis] == np.arange(3), 1.0, -1.0) * scores
    return np.mean(loss.value(margins), axis=0) + 0.5 * alpha * np.sum(coef**2, axis=0)


@cache
def minimum(loss, alpha):
    """Return the minimum of each class, by SciPy's minimiser of the definition."""
    X, y = data("float64")
    found = []
    for k in range(3):

        def value(point, k=k):
            coef, intercept = np.zeros((6, 3)), np.zeros(3)
            coef[:, k], intercept[k] = point[:-1], point[-1]
            return objective(X, y, loss, coef, intercept, alpha)[k]

        found.append(minimize(value, np.zeros(7), method="L-BFGS-B").fun)
    return np.array(found)


@each_case
def test_minimises_the_stated_objective_or_states_why_not(name, loss, layout, dtype):
    (X, y), solver, alpha = data(dtype), ALL[name], 0.03
    request = request_for(LAYOUTS[layout](X), loss, alpha)
    reason = solver.supports(request)
    if reason is not None:
        assert reason
        if name in SOLVERS:
            with pytest.raises(ValueError, match=name):
                plan(request, name)
        return
    solution = solver.solve(problem := problem_for(solver, request, y))
    coef, intercept = problem.prepared.to_data(solution.linear)
    assert coef.shape == (6, 3)
    assert intercept.shape == (3,)
    value = objective(X, y, loss, coef, intercept, alpha)
    np.testing.assert_allclose(solution.value, value, rtol=1e-6)
    assert solution.status in Status
    assert 0 <= solution.n_iter <= problem.max_iter
    best = minimum(loss, alpha)
    limit = 0.5 if name in APPROXIMATE else 1e-5
    assert np.all(value <= (1 + limit) * best + 1e-12), value / best - 1


def test_a_solver_states_why_it_does_not_support_a_request():
    X, y = data("float64")
    assert "alpha > 0" in ALL["toy"].supports(request_for(X, MarginLoss(), alpha=0.0))
    assert "alpha_unit" in SOLVERS["dual"].supports(request_for(X, MarginLoss()))
    with pytest.raises(ValueError, match=r"dual.*alpha_unit='standardised'.*got the unit 'common'"):
        MarginPursuitClassifier(solver="dual", alpha=0.1, alpha_unit="common").fit(X, y)


def test_one_line_registers_a_solver(monkeypatch):
    monkeypatch.setitem(SOLVERS, "toy", ToySolver())
    X, _ = data("float64")
    request = request_for(X, MarginLoss())
    assert plan(request, "toy").solver == "toy"
    with pytest.raises(ValueError, match="alpha > 0"):
        plan(request_for(X, MarginLoss(), alpha=0.0), "toy")
    assert plan(request).solver != "toy"
