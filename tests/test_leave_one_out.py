"""Approximate leave-one-out scores, in place of half fits where rows are many."""

import numpy as np
import pytest
from sklearn.metrics import log_loss

from marginpursuit import MarginPursuitClassifier, blocks
from marginpursuit.classifiers import margin_pursuit
from marginpursuit.classifiers._label_links import LabelLinks
from marginpursuit.classifiers._leave_one_out import leave_one_out_margins, mean_hat_values
from marginpursuit.design import Standardisation, design_for
from marginpursuit.losses import MarginLoss
from marginpursuit.solvers.preconditioners import DiagonalPreconditioner, GramPreconditioner


def rows(n_rows, n_columns, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, n_columns))
    return X, (X[:, 0] + X[:, 1] + rng.normal(size=n_rows) > 0).astype(int)


LARGE = rows(30_000, 10)
ONE_SIDED = MarginLoss(overconfidence=0.0)


@pytest.mark.parametrize("overconfidence", [0.0, 0.5])
def test_mean_of_exact_leave_one_out_fits(overconfidence):
    X, y = rows(400, 6)
    options = {
        "overconfidence": overconfidence,
        "alpha": 1e-6,
        "leverage_bound": None,
        "probability": None,
        "tol": 1e-10,
    }
    sign = 2.0 * y - 1.0
    fit = MarginPursuitClassifier(**options).fit(X, y)
    margins = sign * fit.decision_function(X)
    loss = MarginLoss(1.0, 1.0, overconfidence)
    hat_values = mean_hat_values(np.array([7.0]), np.mean(loss.curvature(margins))[None], 400)
    assert 0.02 < hat_values[0] < 0.05
    found = leave_one_out_margins(margins[:, None], loss, hat_values)[:, 0]
    some = np.flatnonzero(loss.derivative(margins) < -0.1)[:60]
    others = [np.delete(np.arange(400), i) for i in some]
    exact = np.array(
        [
            sign[i] * MarginPursuitClassifier(**options).fit(X[k], y[k]).decision_function(X[[i]])
            for i, k in zip(some, others, strict=True)
        ]
    )[:, 0]
    lost = margins[some] - exact
    assert np.all(lost > 0)
    assert np.mean(margins[some] - found[some]) == pytest.approx(lost.mean(), rel=0.1)


def test_rows_above_the_level_do_not_determine_the_fit():
    margins = np.array([[-3.0], [0.0], [0.9], [1.0], [1.1], [5.0]])
    found = leave_one_out_margins(margins, ONE_SIDED, np.array([0.01]))
    np.testing.assert_array_equal(found[3:], margins[3:])
    assert np.all(found[:3] < margins[:3])


def test_mean_hat_values():
    found = mean_hat_values(np.array([3.0, 3.0, 3.0]), np.array([0.5, 0.03, 0.0]), 100)
    np.testing.assert_allclose(found, [0.06, np.inf, np.inf])


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_degrees_of_freedom_are_a_trace(fit_intercept):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(50, 6)) @ rng.normal(size=(6, 6))
    X[:, 2] = 1.0  # constant
    weights, design = np.full(50, 0.02), design_for(X)
    standardisation = design.standardisation(weights, centred=True)
    gram, penalty = design.gram(weights, standardisation), np.array([1.0, 2.0, 0.0, 3.0, 4.0, 5.0])
    preconditioner = GramPreconditioner(design, standardisation, weights, penalty, fit_intercept)
    curvature = np.array([0.01, 0.3, 1.0])
    varies = np.arange(6) != 2
    G, u = gram[np.ix_(varies, varies)], np.diag(penalty[varies])
    expected = [np.trace(np.linalg.solve(c * G + 0.02 * u, c * G)) for c in curvature]
    found = preconditioner.degrees_of_freedom(0.02, curvature)
    np.testing.assert_allclose(found, np.array(expected) + fit_intercept, rtol=1e-10)


def test_unknown_degrees_of_freedom():
    X = np.random.default_rng(5).normal(size=(50, 3))
    weights, design = np.full(50, 0.02), design_for(X)
    identity, penalty = Standardisation.identity(3), np.ones(3)
    one = np.ones(1)
    free = GramPreconditioner(design, identity, weights, penalty, True)
    assert free.degrees_of_freedom(0.0, one) is None
    with np.errstate(over="ignore"):  # as in `fit`
        assert free.degrees_of_freedom(1e-320, one) is None
    assert DiagonalPreconditioner(1.0, penalty, True).degrees_of_freedom(0.1, one) is None


def test_large_fits_have_no_half_fits_and_about_the_same_probabilities(monkeypatch):
    X, y = LARGE
    model = MarginPursuitClassifier().fit(X, y)
    alone = MarginPursuitClassifier(probability=None).fit(X, y)
    assert model.n_passes_ == alone.n_passes_
    np.testing.assert_array_equal(model.coef_, alone.coef_)
    one = MarginPursuitClassifier(n_threads=1).fit(X, y)
    np.testing.assert_array_equal(one.link_.slopes, model.link_.slopes)
    monkeypatch.setattr(margin_pursuit, "leave_one_out_fits", lambda *_: [])
    halves = MarginPursuitClassifier().fit(X, y)
    assert halves.n_passes_ > model.n_passes_
    Z, v = rows(50_000, 10, seed=1)
    assert np.abs(halves.predict_proba(Z) - model.predict_proba(Z)).max() < 0.02
    losses = [log_loss(v, each.predict_proba(Z)) for each in (model, halves)]
    assert losses[0] < 1.001 * losses[1]


def labelled(n_rows, n_columns=20, n_labels=12, seed=0):
    rng = np.random.default_rng(seed)
    coef = np.random.default_rng(99).normal(size=(n_columns, n_labels))
    X = rng.normal(size=(n_rows, n_columns))
    return X, (X @ coef + 3.0 * rng.normal(size=(n_rows, n_labels)) > 3.0).astype(int)


def test_labels_have_the_mean_of_exact_leave_one_out_fits():
    X, Y = labelled(300)
    options = {"alpha": 1e-3, "solver": "gram", "leverage_bound": None, "tol": 1e-8}
    model = MarginPursuitClassifier(**options).fit(X, Y)
    alone = MarginPursuitClassifier(**options, probability=None)
    # A logistic regression of the labels on the exact scores, without a penalty or bins.
    exact = np.array(
        [
            alone.fit(np.delete(X, i, axis=0), np.delete(Y, i, axis=0)).decision_function(X[[i]])[0]
            for i in range(len(X))
        ]
    )
    scores = alone.fit(X, Y).decision_function(X)
    lost = np.mean((2 * Y - 1) * (scores - exact))
    slope = np.mean(model.link_.slopes)
    link, _ = LabelLinks.fit(exact, Y == 1, np.ones(len(X)), 1.0)
    inside, _ = LabelLinks.fit(scores, Y == 1, np.ones(len(X)), 1.0)
    assert lost > 0.05
    assert abs(slope - link.slopes.mean()) < 0.15 * (inside.slopes.mean() - link.slopes.mean())


def test_label_fits_have_no_half_fits_and_about_the_same_probabilities(monkeypatch):
    X, Y = labelled(2_000)
    Z, V = labelled(20_000, seed=1)
    model = MarginPursuitClassifier(solver="gram").fit(X, Y)
    alone = MarginPursuitClassifier(solver="gram", probability=None).fit(X, Y)
    assert model.n_passes_ == alone.n_passes_
    monkeypatch.setattr(margin_pursuit, "leave_one_out_fits", lambda *_: [])
    halves = MarginPursuitClassifier(solver="gram").fit(X, Y)
    assert halves.n_passes_ > model.n_passes_
    losses = [log_loss(V.ravel(), each.predict_proba(Z).ravel()) for each in (model, halves)]
    assert losses[0] < 1.002 * losses[1]


@pytest.mark.parametrize("reason", ["rows", "class weights", "sample weights", "solver"])
def test_labels_with_half_fits(reason):
    X, Y = labelled(60 if reason == "rows" else 2_000)
    options, weights = {"solver": "gram", "alpha": 1e-3}, None
    if reason == "class weights":
        options["class_weight"] = "balanced"
    elif reason == "sample weights":
        weights = np.where(np.arange(len(Y)) % 10, 0.5, 5.5)
    elif reason == "solver":
        options["solver"] = "lbfgs"
    model = MarginPursuitClassifier(**options).fit(X, Y, weights)
    alone = MarginPursuitClassifier(**options, probability=None).fit(X, Y, weights)
    assert model.n_passes_ > alone.n_passes_


def test_whole_weights_of_rows_with_labels_count_as_copies():
    X, Y = labelled(1_500)
    weights = np.random.default_rng(3).integers(1, 3, len(Y))
    options = {"solver": "gram", "tol": 1e-9, "leverage_bound": None}
    model = MarginPursuitClassifier(**options).fit(X, Y, weights)
    rows = np.repeat(np.arange(len(Y)), weights)
    repeated = MarginPursuitClassifier(**options).fit(X[rows], Y[rows])
    np.testing.assert_allclose(model.link_.slopes, repeated.link_.slopes, rtol=1e-5)
    np.testing.assert_allclose(model.link_.thresholds, repeated.link_.thresholds, atol=1e-5)


def in_blocks(X):
    middle = len(X) // 3
    return blocks.Blocks([lambda: X[:middle], lambda: X[middle:]])


def on_device(X):
    strict = pytest.importorskip("array_api_strict")
    return strict.asarray(X.copy(), device=strict.Device("device1"))


@pytest.mark.parametrize("place", [in_blocks, on_device])
@pytest.mark.parametrize("leverage_bound", [None, 1.0])
@pytest.mark.parametrize("has_zeros", [False, True], ids=["all rows", "weights of zero"])
def test_rows_elsewhere_have_the_link_of_rows_in_memory(place, leverage_bound, has_zeros):
    X, y = LARGE
    options = {"solver": "gram", "tol": 1e-10, "leverage_bound": leverage_bound}
    weights = (np.arange(len(y)) % 7 > 0).astype(float) if has_zeros else None
    trusted = MarginPursuitClassifier(**options).fit(X, y, weights)
    model = MarginPursuitClassifier(**options).fit(place(X), y, weights)
    alone = MarginPursuitClassifier(**options, probability=None).fit(place(X), y, weights)
    assert model.n_passes_ == alone.n_passes_ + 1
    np.testing.assert_allclose(model.link_.slopes, trusted.link_.slopes, rtol=1e-4)


@pytest.mark.parametrize("place", [in_blocks, on_device])
@pytest.mark.parametrize("has_zeros", [False, True], ids=["all rows", "weights of zero"])
def test_labels_of_rows_elsewhere_have_the_link_of_rows_in_memory(place, has_zeros):
    X, Y = labelled(2_000)
    options = {"solver": "gram", "tol": 1e-9, "alpha": 1e-3}
    weights = (np.arange(len(Y)) % 7 > 0).astype(float) if has_zeros else None
    trusted = MarginPursuitClassifier(**options).fit(X, Y, weights)
    model = MarginPursuitClassifier(**options).fit(place(X), Y, weights)
    np.testing.assert_allclose(model.link_.slopes, trusted.link_.slopes, rtol=1e-4)


def test_names_of_classes_and_order_of_rows_do_not_matter():
    X, y = LARGE[0][:28_000], LARGE[1][:28_000]
    model = MarginPursuitClassifier(tol=1e-10).fit(X, y)
    other = MarginPursuitClassifier(tol=1e-10).fit(X[::-1], 1 - y[::-1])
    np.testing.assert_allclose(other.predict_proba(X)[:, ::-1], model.predict_proba(X), atol=0.01)


@pytest.mark.parametrize("reason", ["separable", "weights", "small", "classes"])
def test_other_fits_have_half_fits(reason):
    X, y = LARGE
    weights = None
    if reason == "separable":
        X = X + 8.0 * np.outer(2 * y - 1, np.arange(10) < 2)
    elif reason == "weights":
        weights = np.where(np.arange(len(y)) % 10, 0.5, 5.5)
    elif reason == "small":
        X, y = X[:20_000], y[:20_000]
    elif reason == "classes":
        y = y + (X[:, 2] > 1)
    model = MarginPursuitClassifier(solver="gram").fit(X, y, weights)
    alone = MarginPursuitClassifier(solver="gram", probability=None).fit(X, y, weights)
    assert model.n_passes_ > alone.n_passes_


def test_solvers_of_the_paper_take_the_exact_link():
    model = MarginPursuitClassifier(solver="steepest", max_iter=5).fit(*LARGE)
    assert model.link_ is None
