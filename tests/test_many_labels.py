"""Many labels: the solve in float32, and the choice of the penalty by some of the labels."""

from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import make_multilabel_classification

from marginpursuit import MarginPursuitClassifier
from marginpursuit._threads import Threads
from marginpursuit.classifiers._half_fits import HalfFitPolicy, label_subset
from marginpursuit.design import design_for
from marginpursuit.solvers import SOLVERS, Policy, Problem, Request, minimise
from marginpursuit.solvers._float32 import solve_in_float32
from marginpursuit.tasks import LabelSets, Tasks

SOLVE = partial(minimise, n_confirmations=5)


def data(n_rows=1200, n_columns=60, n_labels=70, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_t(5, size=(n_rows, n_columns)) @ rng.normal(size=(n_columns, n_columns))
    scores = X @ rng.normal(size=(n_columns, n_labels))
    scores = scores / scores.std(axis=0) + rng.logistic(size=scores.shape) - 1.5
    return X, (scores > 0).astype(int)


def posed(X, Y, alpha, policy, tol=1e-6):
    labels = LabelSets.of(Y)
    loss = MarginPursuitClassifier()._loss(1.0)
    weights = np.full(len(X), 1.0 / len(X))
    design = design_for(X, Threads(1))
    tasks = Tasks.of(labels, weights, loss)
    request = Request(
        *(design, weights[None, :], tasks.losses, "standardised", alpha, True),
        n_problems=len(tasks),
        policy=policy,
    )
    prepared = SOLVERS["gram"].prepare(request)
    alphas = np.full(len(tasks), alpha)
    start = prepared.zeros(len(tasks))
    return Problem(prepared, tasks, alphas, start, 1000, tol, policy=policy)


@pytest.mark.parametrize(("alpha", "unit"), [(0.3 / 1200, 1.0), (3.0 / 1200, 1e6)])
def test_float32_meets_the_tolerance_of_float64(alpha, unit):
    X, Y = data()
    X = unit * (X + 100.0)
    exact = SOLVERS["gram"].solve(posed(X, Y, alpha, Policy(min_float32_elements=1 << 40), 1e-11))
    problem = posed(X, Y, alpha, Policy())
    found = solve_in_float32(problem, SOLVE)
    points = problem.join(*found.linear)
    value, _ = problem.value_and_gradient(points, np.arange(len(points)))
    assert_allclose(found.value, value, rtol=1e-13)  # that of the rows, not of the copy
    assert np.all(value <= exact.value * (1 + 1e-6))
    assert np.all(found.gap <= 1e-6)


HARD = {
    "heavy tails": lambda rng, X: rng.standard_t(1.5, size=X.shape),
    "collinear": lambda rng, X: X[:, :5] @ rng.normal(size=(5, X.shape[1])) + 1e-3 * X,
    "large means": lambda rng, X: X * 10.0 ** rng.uniform(-3, 6, X.shape[1]) + 1e4,
    "log-normal": lambda rng, X: np.exp(2 * rng.normal(size=X.shape)),
}


@pytest.mark.parametrize("kind", HARD)
@pytest.mark.parametrize("penalty", [1e-3, 1e-1])
def test_solves_to_a_loose_tolerance_are_not_verified_and_equal_those_in_float64(kind, penalty):
    """`penalty` is that of each standardised column, the least in float32 and a usual one."""
    X, Y = data(n_labels=40)
    X = HARD[kind](np.random.default_rng(3), X)
    alpha, tol = penalty / X.shape[1], 1e-4
    expected = SOLVE(posed(X, Y, alpha, Policy(), tol))  # in float64
    problem = posed(X, Y, alpha, Policy(), tol)
    found = solve_in_float32(problem, SOLVE)
    assert np.all(found.gap <= tol)
    points = problem.join(*found.linear)
    n_passes = problem.prepared.design.n_passes
    value, _ = problem.value_and_gradient(points, np.arange(len(points)))
    assert np.all(value <= expected.value * (1 + 0.1 * tol))
    assert_allclose(found.value, value, rtol=0.1 * tol)
    # A tolerance below the limit takes two more passes, of the rows and of the copy.
    verified = posed(X, Y, alpha, Policy(min_unverified_tol=2 * tol), tol)
    solve_in_float32(verified, SOLVE)
    assert verified.prepared.design.n_passes == n_passes + 2


@pytest.mark.parametrize(
    "policy",
    [
        Policy(max_float32_error=0.0),  # no rounding is accepted
        Policy(float32_margins=(2.0, 3.0)),
        Policy(min_float32_penalty=np.inf),
    ],
)
def test_float64_goes_on_where_float32_is_not_accepted(policy):
    X, Y = data(n_labels=40)
    expected = SOLVERS["gram"].solve(posed(X, Y, 1e-3, Policy(min_float32_elements=1 << 40), 1e-9))
    found = solve_in_float32(posed(X, Y, 1e-3, policy, 1e-9), SOLVE)
    assert_allclose(found.value, expected.value, rtol=1e-8)


def test_some_labels_choose_the_penalty():
    X, Y = make_multilabel_classification(
        300, 60, n_classes=70, n_labels=5, length=500, random_state=0
    )
    model = MarginPursuitClassifier(n_threads=1).fit(X, Y)
    chosen = np.linspace(0, 69, HalfFitPolicy().max_choice_labels).astype(int)
    some = MarginPursuitClassifier(n_threads=1).fit(X, Y[:, chosen])
    assert model.alpha_ == some.alpha_ > 0.9 / 300
    assert model.link_.slopes.shape == (70,)
    none = MarginPursuitClassifier(n_threads=1, probability=None).fit(X, Y)
    assert_array_equal(none.coef_, model.coef_)


def test_few_labels_are_all_fitted():
    X, Y = data(n_rows=60, n_columns=5, n_labels=16)
    model = MarginPursuitClassifier()
    training = model._check_training(X, Y, None)
    problem = posed(X, Y, 1e-3, Policy())
    assert label_subset(training, problem) == (training, problem)
    fewer, part = label_subset(training, problem, HalfFitPolicy(max_choice_labels=3))
    assert_array_equal(fewer.labels.indicator(), Y[:, [0, 7, 15]])
    assert_array_equal(part.tasks.positive, [0, 7, 15])
    assert part.start[0].shape == (5, 3)


def test_the_preconditioner_is_applied_once_a_step(monkeypatch):
    X, Y = data()
    problem, n_calls = posed(X, Y, 0.3 / 1200, Policy()), 0
    apply = Problem.precondition

    def counted(self, points, tasks):
        nonlocal n_calls
        n_calls += 1
        return apply(self, points, tasks)

    monkeypatch.setattr(Problem, "precondition", counted)
    found = minimise(problem)
    assert found.n_iter > 5
    assert n_calls <= found.n_iter + 1
