"""Distances and weights of the leverage bound, their display, and marked margins."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.linear_model import LogisticRegression

from marginpursuit import MarginPursuitClassifier, MarginPursuitClassifierCV
from marginpursuit.classifiers._shared import bounded_weights
from marginpursuit.design import design_for
from marginpursuit.inspection import (
    LeverageDisplay,
    MarginDistributionDisplay,
    label_issues,
    row_leverage,
)


@pytest.fixture(scope="module")
def fitted():
    X, y = load_breast_cancer(return_X_y=True)
    return X, y, MarginPursuitClassifier(probability=None).fit(X, y)


def test_distances_and_weights_by_hand(fitted):
    X, y, model = fitted
    found = row_leverage(model, X, y)
    norms = np.linalg.norm((X - X.mean(axis=0)) / X.std(axis=0), axis=1)
    assert_allclose(found.distance, norms / np.median(norms), rtol=1e-10)
    assert_allclose(found.weight, np.minimum(1.0, np.median(norms) / norms), rtol=1e-10)
    assert found.bound == 1.0


def test_weights_are_those_of_the_fit(fitted):
    """The fit has these weights, up to a factor for each class."""
    X, y, model = fitted
    data = MarginPursuitClassifier()._check_training(X, y, None)
    with design_for(X) as design:
        used = bounded_weights(design, data, 1.0, centred=True).weights
    ratio = used / row_leverage(model, X, y).weight
    for k in (0, 1):
        assert_allclose(ratio[y == k], ratio[y == k][0], rtol=1e-10)


def test_weighted_rows_equal_repeated_rows(fitted):
    X, y, model = fitted
    weights = np.arange(len(y)) % 3
    found = row_leverage(model, X, y, weights)
    rows = np.repeat(np.arange(len(y)), weights)
    assert_allclose(found.weight[rows], row_leverage(model, X[rows], y[rows]).weight, rtol=1e-10)


def test_sparse_rows_have_their_norm(fitted):
    X, y, _ = fitted
    matrix = sparse.csr_array(X)
    model = MarginPursuitClassifier(probability=None, leverage_bound=2.0).fit(matrix, y)
    norms = np.linalg.norm(X, axis=1)
    assert_allclose(row_leverage(model, matrix, y).distance, norms / np.median(norms), rtol=1e-10)


def test_without_a_bound_all_weights_are_one(fitted):
    X, y, _ = fitted
    model = MarginPursuitClassifierCV(leverage_bound=None, scales=(1.0,), cv=2).fit(X, y)
    found = row_leverage(model, X, y)
    assert np.all(found.weight == 1.0)
    assert found.bound is None
    assert pytest.importorskip("pandas") is not None
    assert found.to_frame().columns.tolist() == ["distance", "weight"]


def test_other_classifiers_are_refused(fitted):
    X, y, _ = fitted
    with pytest.raises(TypeError, match="LogisticRegression; expected a MarginPursuitClassifier"):
        row_leverage(LogisticRegression().fit(X[:50, :2], y[:50]), X, y)


def test_display_shows_rows_and_bound(fitted):
    pytest.importorskip("matplotlib", reason="plots need the extra plot")
    X, y, model = fitted
    display = LeverageDisplay.from_estimator(model, X, y)
    found = row_leverage(model, X, y)
    assert_allclose(display.points_.get_xdata(), found.distance)
    assert_allclose(display.points_.get_ydata(), found.weight)
    assert display.ax_.lines[-1].get_xdata()[0] == 1.0
    assert display.ax_.get_legend().get_texts()[0].get_text() == "MarginPursuitClassifier"
    plain = LeverageDisplay([1.0, 2.0], [1.0, 0.5]).plot()
    assert len(plain.ax_.lines) == 1
    assert plain.ax_.get_legend() is None
    with pytest.raises(ValueError, match="weight has 1 entries; expected 2"):
        LeverageDisplay([1.0, 2.0], [1.0])


def test_suspicious_rows_are_marked_in_the_margins():
    pytest.importorskip("matplotlib", reason="plots need the extra plot")
    X, y = load_iris(return_X_y=True)
    y[5] = 2
    model = MarginPursuitClassifierCV(cv=3, scales=(1.0,)).fit(X, y)
    flags = label_issues(y, model.out_of_fold_proba_, model.classes_).is_label_issue
    display = MarginDistributionDisplay.from_estimator(model, X, y, marked=flags)
    own = model.decision_function(X)[np.arange(len(y)), y]
    assert flags[5]
    assert_allclose(display.marks_.get_xdata(), own[flags])
    assert MarginDistributionDisplay.from_estimator(model, X, y).marks_ is None
    with pytest.raises(ValueError, match=r"marked has dtype int64 .* expected bool and \(150,\)"):
        MarginDistributionDisplay.from_estimator(model, X, y, marked=np.arange(150))


def test_rows_that_a_fit_refuses_or_rescales(fitted):
    X, y, model = fitted
    found = row_leverage(model, X, y)
    for factor in (1e300, 1e-300):
        assert_allclose(row_leverage(model, factor * X, y).weight, found.weight, rtol=1e-9)
    with_nan = X.copy()
    with_nan[3, 2] = np.nan
    with pytest.raises(ValueError, match=r"Input X contains NaN.*got nan in column 2, row 3"):
        row_leverage(model, with_nan, y)


@pytest.mark.parametrize("estimator", [MarginPursuitClassifier, MarginPursuitClassifierCV])
def test_distances_with_a_kernel(estimator):
    X, y = load_iris(return_X_y=True)
    quick = {"cv": 2} if estimator is MarginPursuitClassifierCV else {"gamma": 0.5}
    model = estimator(kernel="poly", degree=2, coef0=1.0, **quick).fit(X, y)
    norms = np.sqrt((model.gamma_ * np.sum(X * X, axis=1) + 1.0) ** 2)
    assert_allclose(row_leverage(model, X, y).distance, norms / np.median(norms))
    model = estimator(kernel="rbf", **quick).fit(X, y)
    distances = np.linalg.norm(X - X.mean(axis=0), axis=1)  # K(x, x) = 1 in every row
    assert_allclose(row_leverage(model, X, y).distance, distances / np.median(distances))


def test_rows_far_away_have_redescending_weights_under_rbf():
    X, y = load_iris(return_X_y=True)
    X[0] += 100.0
    found = row_leverage(MarginPursuitClassifier(kernel="rbf").fit(X, y), X, y)
    ratio = found.distance[0]
    assert ratio > 10
    # The limit is that of the class, whose median distance is the larger one.
    median = np.median(found.distance[y == 0])
    assert_allclose(found.weight[0], (5 * max(1.0, median) / ratio) ** 32 / ratio, rtol=1e-9)
