"""Several labels in the search: one candidate for all labels, a link and a threshold of each."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import make_multilabel_classification
from sklearn.metrics import f1_score, log_loss, make_scorer, roc_auc_score
from sklearn.model_selection import GroupKFold, KFold, cross_val_score
from sklearn.utils import get_tags

from marginpursuit import MarginPursuitClassifier, MarginPursuitClassifierCV, load_model, save_model
from marginpursuit.blocks import from_npy
from marginpursuit.selection._cross_validated import label_splitter
from marginpursuit.tasks import LabelSets

SMALL = {"scales": (1.0,), "overconfidences": (0.0,), "alphas": (1e-2, 1e-4), "cv": 3}


def data(n_rows=120, n_labels=5, seed=0):
    X, Y = make_multilabel_classification(
        n_rows, 8, n_classes=n_labels, n_labels=2, random_state=seed
    )
    return X.astype(float), Y


@pytest.fixture(scope="module")
def fitted():
    X, Y = data(300)
    return X, Y, MarginPursuitClassifierCV(**SMALL).fit(X, Y)


def test_attributes_have_a_column_for_each_label(fitted):
    X, Y, model = fitted
    assert model.multilabel_
    assert_array_equal(model.classes_, range(5))
    assert model.coef_.shape == (5, 8)
    assert model.intercept_.shape == model.threshold_.shape == (5,)
    for found in (model.decision_function(X), model.predict_proba(X), model.predict(X)):
        assert found.shape == Y.shape
    assert model.out_of_fold_scores_.shape == model.out_of_fold_proba_.shape == Y.shape
    assert_array_equal(model.predict(X), model.decision_function(X) > 0)
    assert_array_equal(model.predict(X), model.predict_proba(X) > model.link_.decision_probability)
    assert model.score(X, Y) == np.mean(np.all(model.predict(X) == Y, axis=1))


def test_scores_are_held_out_log_losses(fitted):
    _, Y, model = fitted
    scores = model.cv_results_["mean_test_score"]
    assert model.best_score_ == scores.max()
    losses = [log_loss(Y[:, k], model.out_of_fold_proba_[:, k]) for k in range(5)]
    assert_allclose(-model.best_score_, np.mean(losses), rtol=1e-2)


def test_fold_fits_are_those_of_the_single_fit(fitted):
    X, Y, model = fitted
    splitter = label_splitter(LabelSets.of(Y), 3)
    train, test = next(iter(splitter.split()))
    alone = MarginPursuitClassifier(
        **model.best_params_, alpha_unit="standardised", probability="exact", leverage_bound=None
    ).fit(X[train], Y[train])
    unbounded = MarginPursuitClassifierCV(
        **(SMALL | {"alphas": [model.best_params_["alpha"]]}), leverage_bound=None, tol=1e-6
    ).fit(X, Y)
    expected = alone.decision_function(X[test]) - unbounded.threshold_
    assert_allclose(unbounded.out_of_fold_scores_[test], expected, atol=2e-3)


def test_rows_with_the_same_labels_are_in_different_folds():
    Y = np.repeat(np.eye(4, dtype=int), 30, axis=0)  # in the order of the labels
    for train, test in label_splitter(LabelSets.of(Y), 5).split():
        assert_array_equal(Y[test].sum(axis=0), 6)
        assert_array_equal(Y[train].sum(axis=0), 24)


@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_matrix, lambda X: X.astype(np.float32)])
@pytest.mark.parametrize("labels", [np.asarray, sparse.csc_matrix, pd.DataFrame, np.ndarray.tolist])
def test_containers(convert, labels):
    X, Y = data()
    options = SMALL | {"alpha_unit": "common", "tol": 1e-5, "leverage_bound": None}
    expected = MarginPursuitClassifierCV(**options).fit(X, Y)
    found = MarginPursuitClassifierCV(**options).fit(convert(X), labels(Y))
    assert found.best_params_ == expected.best_params_
    assert_allclose(found.predict_proba(X), expected.predict_proba(X), atol=5e-2)


@pytest.mark.parametrize("solver", ["newton", "gram", "lbfgs"])
def test_solvers_agree(solver):
    X, Y = data(n_labels=65)  # two codes for each row
    Y |= (
        np.random.default_rng(0).random(Y.shape) < 0.3
    )  # the fit to a fold without any is not unique
    model = MarginPursuitClassifierCV(solver=solver, **(SMALL | {"tol": 1e-6})).fit(X, Y)
    other = MarginPursuitClassifierCV(**(SMALL | {"tol": 1e-6})).fit(X, Y)
    assert_allclose(
        model.cv_results_["mean_test_score"], other.cv_results_["mean_test_score"], rtol=2e-3
    )


def test_dual_solver():
    X, Y = data(60)
    wide = sparse.csr_matrix(np.hstack([X, np.eye(60)]))
    options = SMALL | {"alpha_unit": "common", "alphas": (1e-1, 1e-2)}
    dual = MarginPursuitClassifierCV(solver="dual", **options).fit(wide, Y)
    primal = MarginPursuitClassifierCV(solver="gram", **options).fit(wide, Y)
    assert dual.best_params_ == primal.best_params_
    assert_allclose(dual.out_of_fold_proba_, primal.out_of_fold_proba_, atol=0.05)


@pytest.mark.parametrize(
    "scoring",
    [
        "f1_micro",
        "f1_macro",
        "accuracy",
        "roc_auc",
        make_scorer(roc_auc_score, response_method="predict_proba"),
    ],
)
def test_scorers(scoring):
    X, Y = data()
    model = MarginPursuitClassifierCV(**SMALL, scoring=scoring).fit(X, Y)
    assert 0 < model.best_score_ <= 1
    assert 0 < model.score(X, Y) <= 1


def test_f1_is_that_of_the_out_of_fold_predictions():
    X, Y = data(300)
    model = MarginPursuitClassifierCV(**SMALL, scoring="f1_micro").fit(X, Y)
    found = f1_score(Y, model.out_of_fold_scores_ > 0, average="micro")
    assert_allclose(model.best_score_, found, atol=0.01)


def test_exact_link():
    X, Y = data()
    model = MarginPursuitClassifierCV(**SMALL, link="exact").fit(X, Y)
    assert model.threshold_ == 0.0
    assert np.all((model.out_of_fold_proba_ > 0) & (model.out_of_fold_proba_ < 1))
    assert_array_equal(model.predict(X), model.predict_proba(X) > 0.5)


@pytest.mark.parametrize("cv", [KFold(3), GroupKFold(3), [(np.arange(60), np.arange(60, 120))]])
def test_splitters(cv):
    X, Y = data()
    groups = {"groups": np.arange(120) // 4} if isinstance(cv, GroupKFold) else {}
    model = MarginPursuitClassifierCV(**(SMALL | {"cv": cv})).fit(X, Y, **groups)
    assert model.n_splits_ in (1, 3)


def test_successive_halving_chooses_alike():
    X, Y = data(8400, 3)
    options = SMALL | {"alphas": (1.0, 1e-2, 1e-4)}
    model = MarginPursuitClassifierCV(**options).fit(X, Y)
    assert model.cv_results_["n_resources"].min() < 8400
    exhaustive = MarginPursuitClassifierCV(**options, successive_halving=False).fit(X, Y)
    assert_allclose(model.best_score_, exhaustive.best_score_, rtol=1e-3)


def test_constant_labels():
    X, Y = data()
    Y[:, 1], Y[:, 2] = 0, 1
    model = MarginPursuitClassifierCV(**SMALL).fit(X, Y)
    assert_array_equal(model.predict(X)[:, 1:3], [[0, 1]] * 120)


def test_weights_of_zero_leave_rows_out():
    X, Y = data()
    weights = np.ones(120)
    weights[::7] = 0
    model = MarginPursuitClassifierCV(**SMALL).fit(X, Y, weights)
    wrong = Y.copy()
    wrong[::7] = 1 - wrong[::7]
    folds = list(label_splitter(LabelSets.of(Y), 3).split())
    options = SMALL | {"cv": folds}
    other = MarginPursuitClassifierCV(**options).fit(X, wrong, weights)
    assert_allclose(other.coef_, model.coef_, rtol=1e-6)


def test_files_and_clones(tmp_path, fitted):
    X, Y, model = fitted
    again = load_model(save_model(model, tmp_path / "search.model"))
    assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert_array_equal(again.predict(X), model.predict(X))
    assert_array_equal(again.threshold_, model.threshold_)
    assert len(cross_val_score(clone(model), X, Y, cv=2)) == 2
    assert not clone(model).fit(X, Y[:, 0]).multilabel_


def test_refusals():
    X, Y = data(30)
    assert get_tags(MarginPursuitClassifierCV()).classifier_tags.multi_label
    with pytest.raises(ValueError, match="class_weight has 1 dicts; y has"):
        MarginPursuitClassifierCV(class_weight=[{1: 2.0}]).fit(X, Y)
    with pytest.raises(ValueError, match="from 2 to the number of samples, 30; got 31"):
        MarginPursuitClassifierCV(cv=31).fit(X, Y)


@pytest.mark.parametrize("n_labels", [3, 63])  # 63 labels have two codes
def test_blocks_and_dask_arrays(tmp_path, n_labels):
    dask_array = pytest.importorskip("dask.array")
    X, Y = make_multilabel_classification(90, 6, n_classes=n_labels, n_labels=2, random_state=0)
    options = {"scales": [1.0], "overconfidences": [0.0, 1.0], "alphas": [1e-4, 1e-2], "cv": 3}
    options["tol"] = 1e-5  # of the refit: a tenth
    expected = MarginPursuitClassifierCV(**options).fit(X, Y)
    np.save(tmp_path / "X.npy", X)
    blocks = from_npy(tmp_path / "X.npy", block_bytes=8 * 6 * 40)
    for own in (blocks, dask_array.from_array(X, chunks=(40, -1))):
        model = MarginPursuitClassifierCV(**options).fit(own, Y)
        assert model.best_params_ == expected.best_params_
        assert_allclose(model.coef_, expected.coef_, atol=1e-3)
        assert_allclose(model.threshold_, expected.threshold_, rtol=1e-3, atol=1e-2)
