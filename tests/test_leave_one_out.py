"""Approximate leave-one-out scores, in place of half fits where rows are many."""

import numpy as np
import pytest
from sklearn.metrics import log_loss

from marginpursuit import MarginPursuitClassifier, blocks
from marginpursuit.classifiers import margin_pursuit
from marginpursuit.classifiers._leave_one_out import leave_one_out_margins
from marginpursuit.losses import MarginLoss


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
    found, step = leave_one_out_margins(margins, np.full(400, 1 / 400), loss, 7, 400)
    assert 0.02 < step < 0.05
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
    margins = np.array([-3.0, 0.0, 0.9, 1.0, 1.1, 5.0])
    found, step = leave_one_out_margins(margins, np.ones(6), ONE_SIDED, 1, 1000)
    assert 0 < step < 0.01
    np.testing.assert_array_equal(found[3:], margins[3:])
    assert np.all(found[:3] < margins[:3])


def test_whole_weights_count_as_copies():
    rng = np.random.default_rng(1)
    margins, weights = rng.normal(size=50), rng.integers(1, 4, 50)
    n_rows = float(weights.sum())
    once, step = leave_one_out_margins(margins, weights / n_rows, MarginLoss(), 3, n_rows)
    repeated = np.repeat(margins, weights)
    copies, other = leave_one_out_margins(repeated, np.ones(len(repeated)), MarginLoss(), 3, n_rows)
    assert step == pytest.approx(other)
    np.testing.assert_allclose(np.repeat(once, weights), copies)


def test_too_little_curvature():
    margins = np.full(10, 2.0)
    found, step = leave_one_out_margins(margins, np.ones(10), ONE_SIDED, 3, 10)
    assert step == np.inf
    assert found is margins


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


def in_blocks(X):
    return blocks.Blocks([lambda: X[:9_000], lambda: X[9_000:]])


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
