"""`partial_fit` of MarginPursuitClassifier."""

import pickle

import numpy as np
import pytest
from classifier_data import noisy, rho
from scipy import sparse
from sklearn.exceptions import NotFittedError

from marginpursuit import MarginPursuitClassifier, load_model, save_model
from marginpursuit.classifiers._online_newton import StreamPolicy

# --- streams -------------------------------------------------------------------------------------


def streaming(policy, **parameters):
    """A classifier whose `partial_fit` has other thresholds."""
    model = MarginPursuitClassifier.as_published(**parameters)
    model._stream_policy = StreamPolicy(**policy)
    return model


def stream(model, X, y, size, **arguments):
    for first in range(0, len(y), size):
        rows = slice(first, first + size)
        model.partial_fit(X[rows], y[rows], classes=np.unique(y), **arguments)
    return model


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("alpha", ["negligible", "auto", 0.05])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
def test_a_stream_equals_the_batch_fit_where_the_loss_is_quadratic(
    n_classes, alpha, fit_intercept, make
):
    X, y = noisy(300, n_classes=n_classes)
    # Four sparse rows are centred by their inner products, whose rounding error is above 1e-12.
    setting = {"scale": 1e5, "alpha": alpha, "fit_intercept": fit_intercept, "tol": 1e-11}
    batch = MarginPursuitClassifier.as_published(**setting).fit(X, y)
    for size in (4, 37, 300):
        model = stream(streaming({"min_rows": 40}, **setting), make(X), y, size)
        np.testing.assert_allclose(
            model.decision_function(X), batch.decision_function(X), rtol=2e-4, atol=2e-4
        )


def test_a_stream_of_single_rows_equals_the_batch_fit_where_the_loss_is_quadratic():
    X, y = noisy(120, 3)
    batch = MarginPursuitClassifier.as_published(scale=1e5, tol=1e-12).fit(X, y)
    model = stream(streaming({"min_rows": 20}, scale=1e5), X, y, 1)
    np.testing.assert_allclose(model.decision_function(X), batch.decision_function(X), atol=1e-5)


def test_weights_of_a_stream_are_copies():
    X, y = noisy(600)
    weights = np.random.default_rng(0).integers(0, 4, len(y))
    weights[230:460] = 0
    batch = MarginPursuitClassifier.as_published(scale=1e5, tol=1e-12).fit(X, y, weights)
    for unit in (1e-300, 1.0, 1e300):
        model = streaming({"min_rows": 100}, scale=1e5)
        for rows in (slice(0, 200), slice(200, 230), slice(230, 600)):
            model.partial_fit(X[rows], y[rows], classes=[0, 1], sample_weight=unit * weights[rows])
        np.testing.assert_allclose(
            model.decision_function(X), batch.decision_function(X), atol=1e-5
        )


@pytest.mark.parametrize("size", [17, 4000])
@pytest.mark.parametrize(
    ("parameters", "nearness", "differing"),
    [
        ({}, 0.02, 0.002),
        ({"scale": 1.0}, 0.05, 0.005),
        ({"overconfidence": 0.0}, 0.15, 0.005),
        ({"scale": 0.3, "overconfidence": 0.0}, 0.3, 0.02),
    ],
)
def test_a_stream_comes_near_the_batch_fit(size, parameters, nearness, differing):
    """Scores differ by a small share of their spread, and few predictions differ."""
    X, y = noisy(6000, 10)
    batch = MarginPursuitClassifier.as_published(**parameters).fit(X, y)
    model = MarginPursuitClassifier.as_published(**parameters).partial_fit(
        X[:2000], y[:2000], classes=[0, 1]
    )
    stream(model, X[2000:], y[2000:], size)
    scores = batch.decision_function(X)
    assert np.std(model.decision_function(X) - scores) < nearness * np.std(scores)
    assert np.mean(model.predict(X) != batch.predict(X)) < differing


def test_the_first_rows_of_a_stream_are_fitted_exactly():
    X, y = noisy(500)
    model = stream(MarginPursuitClassifier(scale=0.5), X, y, 100)
    batch = MarginPursuitClassifier(scale=0.5).fit(X, y)
    np.testing.assert_allclose(model.coef_, batch.coef_, rtol=1e-9)
    np.testing.assert_allclose(model.margin_location_, batch.margin_location_)
    assert model.n_passes_ > 3 * batch.n_passes_  # all fits count
    assert model.n_iter_ > 3 * batch.n_iter_


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
def test_the_memory_of_a_batch_may_be_used_again(make):
    X, y = noisy(500)
    model = stream(MarginPursuitClassifier(scale=0.5), make(X), y, 100)
    again = MarginPursuitClassifier(scale=0.5)
    for first in range(0, 500, 100):
        batch = make(X[first : first + 100].copy())
        again.partial_fit(batch, y[first : first + 100], classes=[0, 1])
        (batch if make is np.asarray else batch.data)[:] = np.nan
    np.testing.assert_array_equal(again.coef_, model.coef_)


def test_a_stream_may_begin_small_and_go_on_large():
    rng = np.random.default_rng(0)
    X = rng.standard_t(3, size=(6000, 6))
    y = X[:, 0] - X[:, 1] + rng.logistic(size=6000) > 1
    batch = MarginPursuitClassifier.as_published().fit(X, y)
    model = streaming({"min_rows": 0}).partial_fit(X[:60], y[:60], classes=[False, True])
    passes = model.n_passes_
    model.partial_fit(X[60:], y[60:])
    scores = batch.decision_function(X)
    assert np.std(model.decision_function(X) - scores) < 0.03 * np.std(scores)
    assert model.n_passes_ - passes < 40  # few parts, each read a few times


def test_a_column_may_be_constant_at_first():
    X, y = noisy(600)
    X[:200, 2] = 7.0
    batch = MarginPursuitClassifier.as_published(scale=1e5, alpha=1e-9, tol=1e-12).fit(X, y)
    model = stream(streaming({"min_rows": 0}, scale=1e5, alpha=1e-9), X, y, 100)
    np.testing.assert_allclose(model.decision_function(X), batch.decision_function(X), atol=1e-4)


def test_a_stream_forgets_rows_and_what_described_them():
    X, y = noisy(3000)
    model = stream(MarginPursuitClassifier(scale="variance"), X, y, 900)
    assert not hasattr(model, "objective_")
    assert not hasattr(model, "margin_statistics_")
    assert len(pickle.dumps(model)) < 6000
    scale = model.scale_
    assert model.partial_fit(X, y).scale_ == scale
    assert model.n_iter_ >= 2
    assert model.n_passes_ > model.n_iter_


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
def test_a_stream_of_many_columns(make):
    rng = np.random.default_rng(0)
    X = sparse.random_array((600, 2100), density=0.01, rng=rng).toarray()
    y = (X @ rng.normal(size=2100) > 0).astype(int)
    first, rest = slice(0, 200), slice(200, 600)
    model = streaming({"max_elements": 200}, scale=1.5)
    model.partial_fit(make(X[first]), y[first], classes=[0, 1])
    before = model.score(X[rest], y[rest])
    assert model._stream.bound.ndim == 1
    losses = []
    for _ in range(4):
        model.partial_fit(make(X[rest]), y[rest])
        margins = (2 * y[rest] - 1) * model.decision_function(X[rest])
        losses.append(np.mean(rho((1 - margins) / 1.5)))
    assert np.all(np.diff(losses) < 0)  # the steps are bounded: they never overshoot
    assert model.score(X[rest], y[rest]) > before + 0.02


def test_streams_may_mix_dense_and_sparse_batches():
    X, y = noisy(600)
    for max_columns in (2048, 3):
        policy = {"max_columns": max_columns, "min_rows": 200}
        models = []
        for kinds in ([np.asarray] * 4, [np.asarray, sparse.csr_array] * 2):
            model = streaming(policy, solver="gram")  # for dense and sparse rows
            for k, make in enumerate(kinds):
                rows = slice(150 * k, 150 * (k + 1))
                model.partial_fit(make(X[rows]), y[rows], classes=[0, 1])
            models.append(model)
        np.testing.assert_allclose(models[0].coef_, models[1].coef_, rtol=1e-8)


def test_a_class_may_come_late():
    X, y = noisy(3000, n_classes=3)
    order = np.argsort(y, kind="stable")
    model = MarginPursuitClassifier.as_published(scale=1e4)
    for rows in np.array_split(order, 6):
        model.partial_fit(X[rows], y[rows], classes=[0, 1, 2])
    batch = MarginPursuitClassifier.as_published(scale=1e4, tol=1e-12).fit(X, y)
    np.testing.assert_allclose(model.decision_function(X), batch.decision_function(X), atol=1e-4)


def test_a_stream_says_what_it_cannot_do():
    X, y = noisy(100)
    model = MarginPursuitClassifier()
    with pytest.raises(ValueError, match="classes must be passed on the first call"):
        model.partial_fit(X, y)
    with pytest.raises(ValueError, match=r"at least 2 classes; got \[1\]"):
        model.partial_fit(X, y, classes=[1])
    with pytest.raises(TypeError, match="classes must not have mixed"):
        model.partial_fit(X, y, classes=[1, "a"])
    with pytest.raises(ValueError, match=r"labels that are in classes; got \[0\]"):
        model.partial_fit(X, y, classes=[1, 2])
    with pytest.raises(NotFittedError):
        model.predict(X)
    model.partial_fit(X, y, classes=[0, 1])
    before = model.coef_.copy()
    with pytest.raises(ValueError, match=r"those of the first call, \[0, 1\]; got \[0, 1, 2\]"):
        model.partial_fit(X, y, classes=[0, 1, 2])
    with pytest.raises(ValueError, match="4 features"):
        model.partial_fit(X[:, :4], y)
    with pytest.raises(ValueError, match="column 0, row 0"):
        model.partial_fit(np.full((1, 6), np.nan), [1])
    with pytest.raises(OverflowError, match="squares over- or underflow"):
        MarginPursuitClassifier().partial_fit(X * 1e200, y, classes=[0, 1])
    np.testing.assert_array_equal(model.coef_, before)  # a bad batch leaves no trace
    model.partial_fit(X[:1], y[:1])
    balanced = MarginPursuitClassifier(class_weight="balanced")
    assert not hasattr(balanced, "partial_fit")
    with pytest.raises(AttributeError, match="partial_fit") as caught:
        balanced.partial_fit(X, y, classes=[0, 1])
    assert "cannot balance" in str(caught.value.__cause__)


def test_fit_and_partial_fit_follow_each_other(tmp_path):
    X, y = noisy(2000)
    model = MarginPursuitClassifier().fit(X, y)
    loaded = load_model(save_model(model, tmp_path / "m"))
    streamed = MarginPursuitClassifier().partial_fit(X[:500], y[:500], classes=[0, 1])
    for fitted in (model, loaded):
        with pytest.warns(UserWarning, match="begins a new stream and discards the coefficients"):
            fitted.partial_fit(X[:500], y[:500])
        np.testing.assert_array_equal(fitted.coef_, streamed.coef_)
        fitted.partial_fit(X[500:], y[500:])  # without a warning
    np.testing.assert_array_equal(
        streamed.fit(X, y).coef_, MarginPursuitClassifier().fit(X, y).coef_
    )
    assert streamed.fit(X[:, :2], y).coef_.shape == (1, 2)
