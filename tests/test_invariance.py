"""What must not change the predictions of a default MarginPursuitClassifier, for random data."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import clone

from marginpursuit import MarginPursuitClassifier

FEW = settings(max_examples=25)


@st.composite
def problems(draw):
    """Rows, labels and a generator; the number of classes and the shape of the data vary."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_rows, n_columns = draw(st.integers(60, 150)), draw(st.integers(1, 8))
    n_classes = draw(st.sampled_from([2, 2, 3]))
    X = rng.standard_t(4, size=(n_rows, n_columns))
    score = X @ rng.normal(size=n_columns) + rng.logistic(size=n_rows)
    y = np.searchsorted(np.quantile(score, np.arange(1, n_classes) / n_classes), score)
    return X, y, rng


PUBLISHED = MarginPursuitClassifier.as_published()


def scores(X, y, at=None, learner=None, **fit):
    """Scores of a default fit, or of another learner, one column a class, and the model."""
    model = clone(learner or MarginPursuitClassifier()).fit(X, y, **fit)
    found = model.decision_function(X if at is None else at)
    return found, model


def assert_same(found, expected, tol=1e-6):
    np.testing.assert_allclose(found, expected, rtol=tol, atol=tol)


@FEW
@given(problems(), st.integers(-300, 300))
def test_unit(problem, exponent):
    X, y, _ = problem
    assert_same(scores(X * 10.0**exponent, y)[0], scores(X, y)[0])


@FEW
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # tol below rounding
@given(problems(), st.floats(-1e6, 1e6))
def test_origin(problem, shift):
    X, y, _ = problem
    exact = MarginPursuitClassifier(tol=1e-13)
    assert_same(scores(X + shift, y, learner=exact)[0], scores(X, y, learner=exact)[0], tol=1e-6)


@FEW
@given(problems())
def test_units_and_origins_of_columns(problem):
    X, y, rng = problem
    factors = 10.0 ** rng.integers(-150, 151, X.shape[1]) * rng.choice([-1, 1], X.shape[1])
    assert_same(scores((X + rng.normal(size=X.shape[1])) * factors, y)[0], scores(X, y)[0])


@FEW
@given(problems(), st.integers(2, 5))
def test_repetition_of_all_rows(problem, times):
    X, y, _ = problem
    tiled = np.tile(X, (times, 1)), np.tile(y, times)
    assert_same(scores(*tiled, at=X, learner=PUBLISHED)[0], scores(X, y, learner=PUBLISHED)[0])


@FEW
@given(problems())
def test_order_of_rows_and_columns(problem):
    X, y, rng = problem
    rows, columns = rng.permutation(len(y)), rng.permutation(X.shape[1])
    assert_same(scores(X[rows], y[rows], at=X)[0], scores(X, y)[0])
    assert_same(scores(X[:, columns], y)[0], scores(X, y)[0])


@FEW
@given(problems())
def test_names_of_classes(problem):
    X, y, rng = problem
    names = rng.permutation(["w", "x", "yy", "z"])[: y.max() + 1]
    expected, model = scores(X, y)
    found, renamed = scores(X, names[y])
    order = np.argsort(names)
    if len(names) == 2:
        assert_same(found, expected if order[1] == 1 else -expected)
    else:
        assert_same(found, expected[:, order])
    np.testing.assert_array_equal(renamed.predict(X), names[model.predict(X)])


@FEW
@given(problems())
def test_weights_count_rows(problem):
    X, y, rng = problem
    weights = rng.integers(0, 4, len(y))
    weights[[np.argmax(y == k) for k in range(y.max() + 1)]] = 3  # no class is lost
    repeated = np.repeat(X, weights, axis=0), np.repeat(y, weights)
    exact = MarginPursuitClassifier(tol=1e-13)
    expected, model = scores(*repeated, at=X, learner=exact)
    found, weighted = scores(X, y, learner=exact, sample_weight=weights)
    assert_same(found, expected, tol=1e-6)
    assert_same(weighted.predict_proba(X), model.predict_proba(X), tol=1e-4)
    expected, _ = scores(*repeated, at=X, learner=PUBLISHED)
    for unit in (1, 1e250):
        assert_same(scores(X, y, learner=PUBLISHED, sample_weight=unit * weights)[0], expected)


@FEW
@given(problems(), st.sampled_from(["csr", "csc", "coo"]))
def test_storage(problem, kind):
    X, y, _ = problem
    X = np.where(np.abs(X) < 0.7, 0.0, X)
    stored = sparse.coo_array(X).asformat(kind)
    # One solver: the half fits that choose the penalty end at a tolerance of 1e-3.
    learner = MarginPursuitClassifier(
        alpha_unit="standardised", leverage_bound=None, tol=1e-13, solver="gram"
    )
    found, expected = scores(stored, y, learner=learner)[0], scores(X, y, learner=learner)[0]
    assert_same(found, expected, tol=1e-6)
    narrow = X.astype(np.float32)
    assert_same(scores(narrow, y)[0], scores(narrow.astype(np.float64), y)[0])
    assert_same(scores(np.asfortranarray(narrow), y)[0], scores(narrow, y)[0])


@FEW
@given(problems(), st.floats(0.01, 100.0))
def test_margin(problem, margin):
    X, y, _ = problem
    model = MarginPursuitClassifier.as_published(margin=margin).fit(X, y)
    expected, reference = scores(X, y, learner=PUBLISHED)
    assert_same(model.decision_function(X) / margin, expected)
    assert_same(model.predict_proba(X), reference.predict_proba(X))
    assert model.scale_ == pytest.approx(margin * reference.scale_)
