"""The choice of ρ in the classifiers: the minimum, probabilities, streams, searches and files."""

import warnings
from functools import cache

import mpmath as mp
import numpy as np
import pytest
from classifier_data import noisy
from oracles import exact_rho
from scipy import sparse
from scipy.optimize import minimize
from sklearn.base import clone

from marginpursuit import (
    MarginPursuitClassifier,
    MarginPursuitClassifierCV,
    _kernels,
    load_model,
    save_model,
)
from marginpursuit.blocks import Blocks
from marginpursuit.classifiers._online_newton import StreamPolicy
from marginpursuit.losses import RHOS
from marginpursuit.solvers import SOLVERS

SCALE, ALPHA = 0.6, 0.05


def value_and_influence(name, u):
    """ρ and ψ by their definitions, in the order of their table in the documentation."""
    size = np.abs(u)
    if name == "catoni":
        inner = np.minimum(size, np.sqrt(2))
        value = inner**2 / 2 - inner**4 / 24 + 2 * np.sqrt(2) / 3 * (size - inner)
        return value, np.sign(u) * (inner - inner**3 / 6)
    if name == "huber":
        inner = np.minimum(size, 1.0)
        return inner**2 / 2 + (size - inner), np.sign(u) * inner
    if name == "pseudo_huber":
        return np.sqrt(1 + u**2) - 1, u / np.sqrt(1 + u**2)
    if name == "log_cosh":
        return np.logaddexp(u, -u) - np.log(2), np.tanh(u)
    return u**2 / 2, u


@pytest.mark.parametrize("rho", RHOS)
def test_the_oracle_agrees_with_exact_arithmetic(rho):
    points = np.linspace(-4.0, 4.0, 41)
    value, influence = value_and_influence(rho, points)
    exact = [exact_rho(rho, mp.mpf(float(u))) for u in points]
    np.testing.assert_allclose(value, [float(e[0]) for e in exact], rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(influence, [float(e[1]) for e in exact], rtol=1e-13, atol=1e-15)


@cache
def data(n_classes):
    X, y = noisy(150, 4, n_classes)
    X = (X - X.mean(axis=0)) / X.std(axis=0) * [1.0, 0.5, 2.0, 1.0]
    X[np.abs(X) < 0.4] = 0.0
    return X, y, np.random.default_rng(1).integers(0, 4, len(y)).astype(float)


@cache
def minimum(rho, overconfidence, n_classes, weighted):
    """The sum over the binary problems of the minima that SciPy finds."""
    X, y, weights = data(n_classes)
    weights = weights / weights.sum() if weighted else np.full(len(y), 1.0 / len(y))

    def binary(positive):
        sign = np.where(y == positive, 1.0, -1.0)

        def objective(point):
            residual = 1.0 - sign * (X @ point[:-1] + point[-1])
            value, influence = value_and_influence(rho, residual / SCALE)
            side = weights * np.where(residual < 0, overconfidence, 1.0)
            slope = -side * SCALE * influence * sign
            penalty = 0.5 * ALPHA * point[:-1] @ point[:-1]
            gradient = np.append(X.T @ slope + ALPHA * point[:-1], slope.sum())
            return side @ value * SCALE**2 + penalty, gradient

        options = {"ftol": 1e-15, "gtol": 1e-11, "maxiter": 10_000}
        return minimize(objective, np.zeros(5), jac=True, method="L-BFGS-B", options=options).fun

    return sum(binary(k) for k in ([1] if n_classes == 2 else range(n_classes)))


EXACT_SOLVERS = [name for name in SOLVERS if name not in ("steepest", "stochastic")]


@pytest.mark.parametrize("rho", RHOS)
@pytest.mark.parametrize("overconfidence", [1.0, 0.4, 0.0])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("solver", EXACT_SOLVERS)
def test_every_solver_finds_the_minimum(rho, overconfidence, n_classes, weighted, make, solver):
    if solver == "dual" and make is np.asarray:
        pytest.skip("dual needs a CSR matrix")
    if solver == "newton" and (make is not np.asarray or _kernels.newton is None):
        pytest.skip("newton needs dense rows and the compiled kernels")
    X, y, weights = data(n_classes)
    model = MarginPursuitClassifier.as_published(
        scale=SCALE,
        overconfidence=overconfidence,
        rho=rho,
        alpha=ALPHA,
        multi_class="ovr",
        solver=solver,
        tol=1e-9,
        max_iter=20_000,
        n_threads=1,
    )
    model.fit(make(X), y, sample_weight=weights if weighted else None)
    expected = minimum(rho, overconfidence, n_classes, weighted)
    # The value of "dual" is that of the coefficients during its last pass.
    rtol = 1e-6 if solver == "dual" else 1e-8
    assert model.objective_ == pytest.approx(expected, rel=rtol)


@pytest.mark.parametrize("rho", RHOS)
@pytest.mark.parametrize(("solver", "steps"), [("steepest", 2000), ("stochastic", 40_000)])
def test_first_order_solvers_come_near_the_minimum(rho, solver, steps):
    X, y, _ = data(2)
    model = MarginPursuitClassifier.as_published(
        scale=SCALE, rho=rho, alpha=ALPHA, solver=solver, max_iter=steps, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
    gap = model.objective_ / minimum(rho, 1.0, 2, False) - 1
    assert -1e-9 < gap < (1e-6 if solver == "steepest" else 0.02)


@pytest.mark.parametrize("rho", RHOS)
@pytest.mark.parametrize("scale", ["auto", "variance", 0.7])
def test_blocks_give_the_fit_of_all_rows(rho, scale):
    X, y, _ = data(3)
    blocks = Blocks([lambda k=k: X[50 * k : 50 * (k + 1)] for k in range(3)])
    model = MarginPursuitClassifier(scale=scale, rho=rho, tol=1e-6)
    whole, parts = (clone(model).fit(x, y) for x in (X, blocks))
    np.testing.assert_allclose(parts.coef_, whole.coef_, rtol=1e-4, atol=1e-6)
    assert parts.scale_ == pytest.approx(whole.scale_, rel=1e-5)


@pytest.mark.parametrize("rho", RHOS)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_probabilities_are_the_link_of_the_loss(rho, n_classes):
    X, y, _ = data(n_classes)
    model = MarginPursuitClassifier.as_published(rho=rho, margin=0.5, scale=0.8).fit(X, y)
    scores = model.decision_function(X)
    scores = np.column_stack([-scores, scores]) if n_classes == 2 else scores
    inside = np.clip(scores, -0.5, 0.5)
    _, above = value_and_influence(rho, (0.5 + inside) / 0.8)
    _, below = value_and_influence(rho, (0.5 - inside) / 0.8)
    expected = above / (above + below)
    is_claimed = expected.sum(axis=1) > 1e-3
    expected = expected / expected.sum(axis=1, keepdims=True)
    found = model.predict_proba(X)
    np.testing.assert_allclose(found[is_claimed], expected[is_claimed], atol=1e-8)
    np.testing.assert_array_equal(model.classes_[found.argmax(axis=1)], model.predict(X))


@pytest.mark.parametrize("rho", RHOS)
def test_partial_fit_uses_rho(rho):
    X, y, _ = data(2)
    model = MarginPursuitClassifier.as_published(rho=rho, scale=0.6)
    model._stream_policy = StreamPolicy(min_rows=50)
    for rows in np.array_split(np.arange(150), 3):
        model.partial_fit(X[rows], y[rows], classes=[0, 1])
    batch = MarginPursuitClassifier.as_published(rho=rho, scale=0.6).fit(X, y)
    scores = batch.decision_function(X)
    error = np.std(model.decision_function(X) - scores) / np.std(scores)
    assert error < (1e-4 if rho == "square" else 0.3)


def test_fits_of_different_rho_differ():
    X, y, _ = data(2)
    coefs = [MarginPursuitClassifier(rho=rho, scale=0.6).fit(X, y).coef_ for rho in RHOS]
    for k, coef in enumerate(coefs):
        assert all(np.max(np.abs(coef - other)) > 1e-3 for other in coefs[:k])


@pytest.mark.parametrize("rho", RHOS)
@pytest.mark.parametrize("link", ["exact", "fitted"])
def test_a_search_refits_with_rho(rho, link):
    X, y, _ = data(2)
    grid = {"scales": [0.5], "alphas": [1e-3], "overconfidences": [0.5]}
    model = MarginPursuitClassifierCV(
        **grid, rho=rho, cv=3, link=link, leverage_bound=None, tol=1e-6
    )
    model.fit(X, y)
    assert model.best_estimator_.rho == rho
    alone = MarginPursuitClassifier.as_published(
        scale=0.5, alpha=1e-3, overconfidence=0.5, rho=rho, alpha_unit="standardised", tol=1e-9
    ).fit(X, y)
    np.testing.assert_allclose(model.coef_, alone.coef_, rtol=1e-3, atol=1e-4)
    if link == "exact":
        found, expected = model.predict_proba(X), alone.predict_proba(X)
        assert np.quantile(np.abs(found - expected), 0.9) < 0.05


@pytest.mark.parametrize("rho", RHOS)
def test_model_files_keep_rho(rho, tmp_path):
    X, y, _ = data(3)
    model = MarginPursuitClassifier(rho=rho, scale=0.6).fit(X, y)
    again = load_model(save_model(model, tmp_path / "model"))
    assert again.rho == rho
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_a_checkpoint_of_another_rho_is_refused(tmp_path):
    X, y, _ = data(2)
    path = tmp_path / "fit.npz"

    def load():
        if path.exists():
            raise InterruptedError
        return X

    settings = {"scale": 0.6, "checkpoint": path, "tol": 1e-12}
    with pytest.raises(RuntimeError, match="InterruptedError"):
        MarginPursuitClassifier(rho="huber", **settings).fit(Blocks([load], [len(X)]), y)
    with pytest.raises(ValueError, match="this fit has"):
        MarginPursuitClassifier(rho="log_cosh", **settings).fit(X, y)
    MarginPursuitClassifier(rho="huber", **settings).fit(X, y)


@pytest.mark.parametrize("rho", ["tukey", "", None, 1, RHOS["huber"]])
@pytest.mark.parametrize("model", [MarginPursuitClassifier, MarginPursuitClassifierCV])
def test_other_names_are_refused(model, rho):
    X, y, _ = data(2)
    with pytest.raises(ValueError, match=r"^rho must be one of \['catoni', .*\]; got "):
        model(rho=rho).fit(X, y)
