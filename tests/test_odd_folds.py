"""The search with unusual folds, weights and margins."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import make_classification
from sklearn.model_selection import PredefinedSplit, ShuffleSplit

from marginpursuit import MarginPursuitClassifierCV

GRID = {"scales": [1.0, 0.1], "overconfidences": [0.0, 1.0], "alphas": [1e-2, 1e-4]}


def rows(n_rows, n_classes, **options):
    return make_classification(
        n_rows, 5, n_informative=4, n_redundant=0, n_classes=n_classes, random_state=0, **options
    )


def test_folds_may_be_masks():
    X, y = rows(200, 2)
    first = np.arange(200) < 120
    masks, indices = ([(f(first), f(~first))] for f in (np.asarray, np.flatnonzero))
    ours, expected = (MarginPursuitClassifierCV(**GRID, cv=cv).fit(X, y) for cv in (masks, indices))
    assert_array_equal(ours.cv_results_["mean_test_score"], expected.cv_results_["mean_test_score"])


def test_folds_that_are_refused():
    X, y = rows(200, 2)
    fold = np.arange(200) % 3
    model = MarginPursuitClassifierCV(**GRID, cv=PredefinedSplit(fold))
    with pytest.raises(ValueError, match="fold 1 has no test sample with a positive weight"):
        model.fit(X, y, (fold != 1).astype(float))
    model.set_params(rule="one-standard-error", cv=ShuffleSplit(1, random_state=0))
    with pytest.raises(ValueError, match="at least 2 folds"):
        model.fit(X, y)


@pytest.mark.parametrize(
    ("cv", "error", "message"),
    [
        ([], ValueError, r"0 folds: \[\]"),
        (iter([]), ValueError, "0 folds"),
        ((1,), TypeError, "fold 0 of cv is 1; expected a pair"),
        ([None], TypeError, "fold 0 of cv is None"),
        ([[1, 2, 3]], TypeError, "expected a pair"),
        ([(1, 2)], TypeError, r"shape \(\); expected a vector"),
        ([(np.arange(100) + 0.5, np.arange(100, 200))], TypeError, "dtype float64"),
        ([(np.ones(100, dtype=bool), np.arange(100, 200))], TypeError, r"mask of shape \(200,\)"),
        ([(np.arange(100), np.arange(100, 300))], ValueError, "rows from 100 to 299"),
        ([(np.arange(-100, 0), np.arange(100))], ValueError, "rows from -100 to -1"),
        ([([], [])], ValueError, "0 classes and 0 test samples"),
    ],
)
def test_folds_other_than_pairs_of_rows_are_refused(cv, error, message):
    X, y = rows(200, 2)
    with pytest.raises(error, match=message):
        MarginPursuitClassifierCV(**GRID, cv=cv).fit(X, y)


def test_rows_for_both_training_and_test_are_warned_of():
    X, y = rows(200, 2)
    cv = [(np.arange(100), np.arange(100, 200)), (np.arange(120), np.arange(100, 200))]
    with pytest.warns(
        UserWarning, match="fold 1 of cv trains on 20 of its 100 test rows"
    ) as caught:
        MarginPursuitClassifierCV(**GRID, cv=cv).fit(X, y)
    assert caught[0].filename == __file__


@pytest.mark.parametrize("weight", [2.0, np.float64(2.0), np.array(2)])
def test_one_weight_is_that_of_all_rows(weight):
    X, y = rows(200, 2)
    model = MarginPursuitClassifierCV(**GRID, cv=3)
    results = [
        model.fit(X, y, sample_weight=weights).cv_results_["mean_test_score"]
        for weights in (weight, np.full(200, 2.0))
    ]
    assert_array_equal(*results)


@pytest.mark.parametrize("unit", [1e-60, 1e-30, 1e30, 1e60])
def test_margins_beyond_float32(unit):
    X, y = rows(300, 2, flip_y=0.2)
    options = {"overconfidences": [0.0, 1.0], "alphas": [1e-2, 1e-4], "cv": 3}
    ours, expected = (
        MarginPursuitClassifierCV(margin=x, scales=[x, 0.3 * x], **options).fit(X, y)
        for x in (unit, 1.0)
    )
    assert_allclose(
        ours.cv_results_["mean_test_score"], expected.cv_results_["mean_test_score"], atol=0.01
    )
    assert ours.best_index_ == expected.best_index_
    assert_allclose(ours.coef_, unit * expected.coef_, rtol=1e-3)
    assert_allclose(ours.predict_proba(X), expected.predict_proba(X), atol=1e-2)
