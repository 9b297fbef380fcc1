"""The out-of-fold scores and probabilities that a search keeps."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from searches import GRID, sparse_rows, sparse_wide, three_classes, two_classes, wide
from sklearn.base import clone
from sklearn.model_selection import (
    KFold,
    RepeatedStratifiedKFold,
    ShuffleSplit,
    StratifiedKFold,
    cross_val_predict,
)

from marginpursuit import MarginPursuitClassifierCV, load_model, save_model

CV = StratifiedKFold(3, shuffle=True, random_state=1)
# The unit "inflated" refers to all rows in a search, and to the rows of a fold in a fit to them.
COMPARED = GRID | {"alpha_unit": "standardised", "tol": 1e-9}


@pytest.mark.parametrize(
    ("data", "options"),
    [
        (two_classes, {}),
        (two_classes, {"link": "exact"}),
        (two_classes, {"margin": 1e30, "scales": [1e30]}),
        (three_classes, {}),
        (three_classes, {"multi_class": "ovr", "link": "exact"}),
        (three_classes, {"rule": "one-standard-error"}),
        (sparse_rows, {"alpha_unit": "common"}),
        (wide, {}),
    ],
)
def test_scores_are_those_of_cross_validated_fits(data, options):
    X, y = data()
    model = MarginPursuitClassifierCV(**COMPARED | {"cv": CV} | options).fit(X, y)
    alone = clone(model.best_estimator_).set_params(tol=1e-9)
    expected = cross_val_predict(alone, X, y, cv=CV, method="decision_function")
    scale = model.margin
    shifted = (expected - model.threshold_) / scale
    assert_allclose(model.out_of_fold_scores_ / scale, shifted, rtol=1e-4, atol=1e-4)
    proba = model.out_of_fold_proba_
    assert proba.shape == (len(y), len(model.classes_))
    assert_allclose(proba.sum(axis=1), 1.0)
    scores = model.out_of_fold_scores_.reshape(len(y), -1)
    assert_array_equal(proba, model._fitted_link().probabilities(scores))
    predicted = scores.argmax(axis=1) if scores.shape[1] > 1 else (scores[:, 0] > 0).astype(int)
    assert_array_equal(proba.argmax(axis=1), predicted)


def test_dual_fits_have_out_of_fold_scores():
    X, y = sparse_wide(3)
    model = MarginPursuitClassifierCV(solver="dual", scales=[0.5], alphas=[1e-2, 1e-3]).fit(X, y)
    assert model.out_of_fold_scores_.shape == (90, 3)
    accuracy = np.mean(model.classes_[model.out_of_fold_scores_.argmax(axis=1)] == y)
    assert_allclose(accuracy, model.best_score_)


def test_the_best_score_is_that_of_the_out_of_fold_scores():
    X, y = two_classes()
    model = MarginPursuitClassifierCV(threshold="zero", cv=4).fit(X, y)
    is_right = (model.out_of_fold_scores_ > 0) == y
    folds = [test for _, test in StratifiedKFold(4).split(X, y)]
    assert_allclose(np.mean([is_right[test].mean() for test in folds]), model.best_score_)


def test_rows_in_several_folds_have_the_mean_score():
    X, y = two_classes()
    cv = RepeatedStratifiedKFold(n_splits=3, n_repeats=2, random_state=0)
    options = COMPARED | {"scales": [1.0], "alphas": [1e-3], "overconfidences": [0.0]}
    model = MarginPursuitClassifierCV(**options, cv=cv, threshold="zero").fit(X, y)
    total = np.zeros(len(y))
    alone = clone(model.best_estimator_).set_params(tol=1e-9)
    for train, test in cv.split(X, y):
        total[test] += alone.fit(X[train], y[train]).decision_function(X[test])
    assert_allclose(model.out_of_fold_scores_, total / 2, atol=1e-4)


def test_rows_that_no_fold_holds_out_are_nan():
    X, y = three_classes()
    cv = ShuffleSplit(2, test_size=0.2, random_state=0)
    model = MarginPursuitClassifierCV(**GRID, cv=cv).fit(X, y)
    held_out = np.unique(np.concatenate([test for _, test in cv.split(X, y)]))
    is_held_out = np.isin(np.arange(len(y)), held_out)
    for found in (model.out_of_fold_scores_, model.out_of_fold_proba_):
        assert_array_equal(np.isfinite(found).all(axis=1), is_held_out)
        assert_array_equal(np.isnan(found).all(axis=1), ~is_held_out)


def test_rows_have_the_order_of_the_input():
    X, y = two_classes()
    order = np.random.default_rng(0).permutation(len(y))
    folds = list(KFold(3, shuffle=True, random_state=0).split(X))
    place = np.argsort(order)
    moved = [(np.sort(place[train]), np.sort(place[test])) for train, test in folds]
    model = MarginPursuitClassifierCV(**GRID, tol=1e-9)
    scores = clone(model).set_params(cv=folds).fit(X, y).out_of_fold_scores_
    other = clone(model).set_params(cv=moved).fit(X[order], y[order]).out_of_fold_scores_
    assert_allclose(other, scores[order], atol=1e-3)


def test_without_refit_and_with_eliminated_candidates():
    X, y = two_classes()
    X, y = np.tile(X, (60, 1)), np.tile(y, 60)
    model = MarginPursuitClassifierCV(refit=False, cv=3, scales=[1.0, 0.3]).fit(X, y)
    assert len(np.unique(model.cv_results_["n_resources"])) > 1
    assert np.isfinite(model.out_of_fold_scores_).all()
    assert not hasattr(model, "coef_")


def test_model_files_do_not_contain_them(tmp_path):
    X, y = two_classes()
    model = MarginPursuitClassifierCV(**GRID).fit(X, y)
    again = load_model(save_model(model, tmp_path / "search.model"))
    assert not hasattr(again, "out_of_fold_scores_")
    assert not hasattr(again, "out_of_fold_proba_")
    assert_array_equal(again.predict_log_proba(X), model.predict_log_proba(X))


@pytest.mark.parametrize("link", ["fitted", "exact"])
def test_log_probabilities(link):
    X, y = three_classes()
    model = MarginPursuitClassifierCV(**GRID, link=link).fit(X, y)
    with np.errstate(divide="ignore"):
        assert_array_equal(model.predict_log_proba(X), np.log(model.predict_proba(X)))
