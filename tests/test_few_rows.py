"""Predictions of few rows, which skip checks that their type makes unnecessary."""

import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError

from marginpursuit import MarginPursuitClassifier, MarginPursuitClassifierCV
from marginpursuit.classifiers._input import plain_rows

X, Y = load_iris(return_X_y=True)
NAMES = ["a", "b", "c", "d"]
FRAME = pd.DataFrame(X, columns=NAMES)


@pytest.fixture(scope="module")
def model():
    return MarginPursuitClassifier().fit(X, Y)


@pytest.fixture(scope="module")
def named():
    return MarginPursuitClassifier().fit(FRAME, Y)


CONTAINERS = {
    "array": lambda rows: rows,
    "by column": np.asfortranarray,
    "float32": lambda rows: rows.astype(np.float32),
    "float16": lambda rows: rows.astype(np.float16),
    "integers": lambda rows: np.round(rows).astype(np.int8),
    "booleans": lambda rows: rows > 2,
    "list": lambda rows: rows.tolist(),
    "list of integers": lambda rows: np.round(rows).astype(int).tolist(),
    "CSR": sparse.csr_array,
    "CSR matrix": sparse.csr_matrix,
}


@pytest.mark.parametrize("convert", CONTAINERS.values(), ids=CONTAINERS.keys())
def test_the_scores_are_those_of_many_rows(model, convert):
    rows = convert(X)
    few = model._scores_of_few_rows(rows)
    many = np.repeat(np.asarray(rows.toarray() if sparse.issparse(rows) else rows), 100, axis=0)
    assert model._scores_of_few_rows(many.astype(np.float64)) is None
    assert_allclose(few, model.decision_function(many)[::100], rtol=1e-12, atol=1e-12)


def test_frames_with_the_names_of_the_fit(named):
    few = named._scores_of_few_rows(FRAME)
    assert_allclose(few, named.decision_function(pd.concat([FRAME] * 100))[: len(X)], rtol=1e-12)
    mixed = FRAME.assign(b=FRAME["b"] > 3, c=FRAME["c"].astype(np.float32))
    assert named._scores_of_few_rows(mixed) is None  # pandas makes objects of them
    numbers = mixed.astype(np.float64)
    assert_allclose(named.decision_function(mixed), named.decision_function(numbers))


def test_other_rows_are_checked(model, named):
    assert plain_rows(X, np.array(NAMES, dtype=object)) is None  # scikit-learn warns
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        named.predict(X[:1])
    with pytest.raises(ValueError, match="feature names"):
        named.predict(FRAME[NAMES[::-1]])
    with pytest.raises(ValueError, match="expecting 4 features"):
        model.predict(X[:1, :3])
    with pytest.raises(ValueError, match="Expected 2D array"):
        model.predict(X[0])
    with pytest.raises(ValueError, match=r"inhomogeneous|unequal"):
        model.predict([[1.0], [1.0, 2.0]])
    with pytest.raises(ValueError, match="must hold numbers"):
        model.predict([["1", "2", "3", "4"]])
    with pytest.raises(ValueError, match="masked array"):
        model.predict(np.ma.masked_array(X[:1]))
    with pytest.raises(ValueError, match="column 'a' has dtype category"):
        named.predict(FRAME.astype({"a": "category"}))
    with pytest.raises(ValueError, match="0 sample"):
        model.predict(X[:0])
    with pytest.raises(NotFittedError):
        MarginPursuitClassifier().predict(X[:1])
    broken = sparse.csr_array(X[:1])
    broken.indices[0] = 99
    with pytest.raises(ValueError, match="expected indices in"):
        model.predict(broken)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("convert", [np.asarray, np.ndarray.tolist, sparse.csr_array])
def test_missing_values_are_named(model, value, convert):
    rows = X[:2].copy()
    rows[1, 2] = value
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        model.predict(convert(rows))


def test_missing_values_in_a_frame_are_named(named):
    with pytest.raises(ValueError, match="'c'"):
        named.predict(FRAME[:3].assign(c=np.nan))


def test_huge_values_raise_an_error_without_a_warning():
    model = MarginPursuitClassifier().fit(1e-6 * X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(OverflowError, match="X is too large for this fit"):
            model.predict(np.full((1, 4), 1e308))


def test_predictions_of_one_row_are_those_of_all():
    for y in (Y, Y > 0, np.array(["a", "b", "c"])[Y]):
        model = MarginPursuitClassifierCV(cv=2, alphas=[1e-3], scales=[1.0]).fit(X, y)
        for method in ("predict", "decision_function", "predict_proba"):
            call = getattr(model, method)
            found = np.concatenate([call(X[k : k + 1]) for k in range(0, 150, 10)])
            assert found.dtype == call(X).dtype
            if method == "predict":
                assert_array_equal(found, call(X)[::10])
            else:
                assert_allclose(found, call(X)[::10], rtol=1e-12)
