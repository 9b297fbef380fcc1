"""Searches with a kernel and one class against one."""

import numpy as np
import pytest
from kernel_cases import needs_compiled
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_digits, load_iris
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import StratifiedKFold

from marginpursuit import (
    MarginPursuitClassifier,
    MarginPursuitClassifierCV,
    load_model,
    save_model,
)

pytestmark = needs_compiled

GRID = {"alphas": [1e-2, 1e-4], "gammas": [0.1, 1.0], "cv": 3}


def search(**options):
    own = {"kernel": "rbf", "multi_class": "ovo", "leverage_bound": None} | GRID | options
    return MarginPursuitClassifierCV(**own)


def test_scores_are_those_of_fits_to_the_folds():
    X, y = load_iris(return_X_y=True)
    found = search(tol=1e-8, overconfidences=[0.0, 0.5]).fit(X, y)
    folds = list(StratifiedKFold(3).split(X, y))
    results = found.cv_results_
    assert len(results["params"]) == 8
    for k, params in enumerate(results["params"]):
        for number, (train, test) in enumerate(folds):
            model = MarginPursuitClassifier(
                kernel="rbf", multi_class="ovo", leverage_bound=None, tol=1e-8, **params
            )
            score = model.fit(X[train], y[train]).score(X[test], y[test])
            assert_allclose(results[f"split{number}_test_score"][k], score, atol=0.021)
            if params == found.best_params_:
                held_out = model.decision_function(X[test])
                assert_allclose(found.out_of_fold_scores_[test], held_out, atol=1e-3)
    assert found.best_score_ == results["mean_test_score"].max()


def test_refit_has_the_chosen_candidate_and_the_link_of_the_folds(tmp_path):
    X, y = load_iris(return_X_y=True)
    found = search().fit(X, y)
    assert found.multi_class_ == found.best_estimator_.multi_class_ == "ovo"
    model = MarginPursuitClassifier(
        kernel="rbf", multi_class="ovo", leverage_bound=None, tol=1e-4, **found.best_params_
    ).fit(X, y)
    assert_allclose(found.decision_function(X), model.decision_function(X), atol=1e-6)
    assert_array_equal(found.n_support_, model.n_support_)
    proba = found.predict_proba(X)
    assert_allclose(proba, found.link_.probabilities(found.decision_function(X)))
    assert_array_equal(found.classes_[proba.argmax(axis=1)], found.predict(X))
    again = load_model(save_model(found, tmp_path / "model"))
    assert_array_equal(again.predict_proba(X), proba)


def test_exact_link_couples_the_pairs():
    X, y = load_iris(return_X_y=True)
    found = search(link="exact").fit(X, y)
    assert_allclose(found.predict_proba(X), found.best_estimator_.predict_proba(X))
    assert_allclose(found.out_of_fold_proba_.sum(axis=1), 1.0)


def test_kinds_of_kernels_agree():
    X, y = load_iris(return_X_y=True)
    named = search(gammas=[0.3]).fit(X, y)
    kernels = {"precomputed": rbf_kernel(X, gamma=0.3)}
    for kernel, given in (*kernels.items(), (lambda a, b: rbf_kernel(a, b, gamma=0.3), X)):
        other = search(kernel=kernel, gammas=None).fit(given, y)
        assert "gamma" not in other.best_params_
        assert_allclose(other.cv_results_["mean_test_score"], named.cv_results_["mean_test_score"])
        assert_allclose(other.decision_function(given), named.decision_function(X), atol=1e-6)


def test_subsamples_eliminate_candidates():
    X, y = load_digits(return_X_y=True)
    X = X / 16.0
    found = MarginPursuitClassifierCV(kernel="rbf", refit=False).fit(X, y)
    assert found.multi_class_ == "ovo"
    resources = found.cv_results_["n_resources"]
    assert len(resources) == 24
    assert set(resources) == {len(y) // 4, len(y)}
    assert 1 <= np.count_nonzero(resources == len(y)) <= 12
    assert found.best_score_ > 0.965
    precomputed = MarginPursuitClassifierCV(kernel="precomputed", alphas=[1e-5, 1e-6], refit=False)
    gamma = found.best_params_["gamma"]
    assert precomputed.fit(rbf_kernel(X, gamma=gamma), y).best_score_ > 0.965


def test_folds_without_a_class_weights_and_scorers():
    X, y = load_iris(return_X_y=True)
    every = np.arange(len(y))
    folds = [(every[y > 0], every[y == 0]), (every[::2], every[1::2])]
    found = search(cv=folds, successive_halving=False).fit(X, y)
    assert np.all(found.cv_results_["split0_test_score"] == 0.0)
    assert np.any(found.cv_results_["split1_test_score"] > 0.9)
    weights = np.where(y == 0, 0.0, 1.0)
    heavy = search(class_weight={0: 1.0, 1: 20.0, 2: 1.0}).fit(X, y)
    assert np.sum(heavy.predict(X) == 1) >= np.sum(search().fit(X, y).predict(X) == 1)
    by_loss = search(scoring="neg_log_loss").fit(X, y)
    assert by_loss.best_score_ > -0.3
    without = search().fit(X, y, sample_weight=weights + 1e-3)
    assert without.score(X[y > 0], y[y > 0]) > 0.9


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"kernel": "linear", "gammas": None}, "kernel other than 'linear'"),
        ({"alphas": [0.0, 0.1]}, "alpha > 0; got 0.0"),
        ({"n_components": 20}, "all rows as landmarks"),
    ],
)
def test_refusals_state_the_reason(options, match):
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match=match):
        search(**options).fit(X, y)


def test_auto_searches_pairs_of_exact_fits():
    X, y = load_iris(return_X_y=True)
    auto = {"multi_class": "auto"}
    assert search(**auto).fit(X, y).multi_class_ == "ovo"
    assert search(**auto, n_components=20).fit(X, y).multi_class_ == "joint"
    assert search(**auto, alphas=[0.0, 0.1]).fit(X, y).multi_class_ == "joint"
    assert search().fit(X, y == 1).multi_class_ == "ovr"
