"""Weights of classes with several labels: each label is the binary problem with its weights."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.utils.class_weight import compute_class_weight

from marginpursuit import MarginPursuitClassifier, MarginPursuitClassifierCV, load_model, save_model
from marginpursuit.blocks import Blocks
from marginpursuit.tasks import LabelSets

N_LABELS = 4
FIXED = {"alpha": 0.02, "alpha_unit": "absolute", "leverage_bound": None, "tol": 1e-10}
SEARCH = {"scales": [1.0], "overconfidences": [0.0], "alphas": [0.3, 0.003], "cv": 3}


def data(n_rows=160, n_columns=6, n_labels=N_LABELS):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n_rows, n_columns))
    scores = X @ rng.normal(size=(n_columns, n_labels)) + 2 * rng.logistic(size=(n_rows, n_labels))
    return X, (scores > np.linspace(0, 3, n_labels)).astype(int)


def dicts(n_labels=N_LABELS):
    return [{0: 1.0, 1: 1.0 + k} for k in range(n_labels)]


@pytest.mark.parametrize(
    ("class_weight", "solver"),
    [
        *[(own, "auto") for own in ("balanced", {0: 0.5, 1: 3.0}, {1: 4}, dicts())],
        *[(dicts(), solver) for solver in ("newton", "gram", "lbfgs", "dual", "steepest")],
    ],
)
def test_each_label_is_the_weighted_binary_problem(class_weight, solver):
    X, Y = data()
    X = sparse.csr_matrix(np.where(abs(X) > 0.5, X, 0.0)) if solver == "dual" else X
    settings = FIXED | {"probability": None, "solver": solver}
    weights = np.random.default_rng(0).integers(1, 4, len(Y))
    model = MarginPursuitClassifier(class_weight=class_weight, **settings).fit(X, Y, weights)
    for k in range(N_LABELS):
        own = class_weight[k] if isinstance(class_weight, list) else class_weight
        binary = MarginPursuitClassifier(class_weight=own, **settings).fit(X, Y[:, k], weights)
        assert_allclose(model.coef_[k], binary.coef_[0], rtol=1e-3, atol=1e-5)
        assert_allclose(model.intercept_[k], binary.intercept_[0], rtol=1e-3, atol=1e-5)


def test_balanced_weights_are_those_of_scikit_learn():
    X, Y = data()
    given = [
        dict(enumerate(compute_class_weight("balanced", classes=np.array([0, 1]), y=column)))
        for column in Y.T
    ]
    found, expected = (
        MarginPursuitClassifier(class_weight=own, **FIXED).fit(X, Y) for own in ("balanced", given)
    )
    assert_allclose(found.coef_, expected.coef_, rtol=1e-6)
    assert_allclose(found.link_.slopes, expected.link_.slopes, rtol=1e-6)


@pytest.mark.parametrize("kind", ["csr", "blocks", "dask", "sparse labels"])
def test_storages(kind):
    X, Y = data()
    expected = MarginPursuitClassifier(class_weight=dicts(), **FIXED).fit(X, Y)
    rows, labels = X, Y
    if kind == "csr":
        rows = sparse.csr_matrix(X)
    elif kind == "blocks":
        rows = Blocks([lambda: X[:50], lambda: X[50:]])
    elif kind == "dask":
        rows = pytest.importorskip("dask.array").from_array(X, chunks=(40, 6))
    else:
        labels = sparse.csc_matrix(Y)
    model = clone(expected).fit(rows, labels)
    assert_allclose(model.coef_, expected.coef_, rtol=1e-4, atol=1e-6)
    assert_allclose(model.predict_proba(X), expected.predict_proba(X), atol=5e-3)


@pytest.mark.parametrize("n_labels", [3, 70])
def test_equal_weights_change_the_decision_alone(n_labels):
    X, Y = data(120, 5, n_labels)
    plain = MarginPursuitClassifier(tol=1e-10).fit(X, Y)
    equal = MarginPursuitClassifier(class_weight={0: 2.0, 1: 2.0}, tol=1e-10).fit(X, Y)
    assert equal.alpha_ == plain.alpha_
    assert_allclose(equal.coef_, plain.coef_, rtol=1e-5, atol=1e-8)
    assert_allclose(equal.predict_proba(X), plain.predict_proba(X), atol=1e-3)
    assert equal.link_.decision_probability == 0.5
    assert_array_equal(equal.predict(X), equal.predict_proba(X) > 0.5)


def test_probabilities_are_those_of_weighted_rows():
    X, Y = data(4000)
    model = MarginPursuitClassifier(class_weight="balanced").fit(X[:2000], Y[:2000])
    proba, truth = model.predict_proba(X[2000:]), Y[2000:]
    rates = truth.mean(axis=0)
    weights = np.where(truth == 1, 0.5 / rates, 0.5 / (1 - rates))
    assert_allclose((weights * proba).mean(axis=0), 0.5, atol=0.03)
    plain = MarginPursuitClassifier().fit(X[:2000], Y[:2000])
    assert_allclose(plain.predict_proba(X[2000:]).mean(axis=0), rates, atol=0.03)


def test_a_label_without_rows_of_positive_weight():
    X, Y = data()
    Y[:, 1] = 0
    model = MarginPursuitClassifier(class_weight={0: 0.0, 1: 1.0}).fit(X, Y)
    assert np.all(np.isfinite(model.coef_))
    assert np.all(np.isfinite(model.predict_proba(X)))
    assert not model.predict(X)[:, 1].any()


def test_weights_of_labels_sum_to_one():
    _, Y = data()
    rows = np.full(len(Y), 1 / len(Y))
    labels = LabelSets.of(Y)
    assert_array_equal(labels.weights(rows), rows[None])
    factors = np.array([[1.0, 0.0, 1.0, 0.0], [5.0, 2.0, 1.0, 0.0]])
    weights = LabelSets(labels.codes, N_LABELS, factors).weights(rows)
    assert_allclose(weights.sum(axis=1), 1.0)
    assert_allclose(weights[0, Y[:, 0] == 1], 5 * weights[0, Y[:, 0] == 0][0])
    assert not weights[1, Y[:, 1] == 0].any()
    assert_allclose(weights[3], rows)


def test_the_search_with_equal_weights_chooses_alike():
    X, Y = data()
    plain = MarginPursuitClassifierCV(**SEARCH).fit(X, Y)
    equal = MarginPursuitClassifierCV(class_weight={0: 2.0, 1: 2.0}, **SEARCH).fit(X, Y)
    assert equal.best_params_ == plain.best_params_
    assert_allclose(
        equal.cv_results_["mean_test_score"], 2 * plain.cv_results_["mean_test_score"], rtol=1e-3
    )
    assert_allclose(equal.coef_, plain.coef_, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("class_weight", ["balanced", dicts()])
def test_the_search_refits_with_the_weights(class_weight):
    X, Y = data()
    search = MarginPursuitClassifierCV(class_weight=class_weight, leverage_bound=None, **SEARCH)
    search.fit(X, Y)
    model = MarginPursuitClassifier(
        **search.best_params_, class_weight=class_weight, leverage_bound=None, probability=None
    ).fit(X, Y)
    assert_allclose(search.coef_, model.coef_, rtol=1e-2, atol=1e-4)
    assert search.link_.decision_probability == 0.5
    more = search.predict(X).mean(axis=0)
    unweighted = MarginPursuitClassifierCV(leverage_bound=None, **SEARCH).fit(X, Y)
    assert more[-1] >= np.mean(unweighted.predict_proba(X)[:, -1] > 0.5)


def test_model_files(tmp_path):
    X, Y = data()
    model = MarginPursuitClassifier(class_weight=dicts()).fit(X, Y)
    save_model(model, tmp_path / "model.npz")
    loaded = load_model(tmp_path / "model.npz")
    assert loaded.class_weight == model.class_weight
    assert_array_equal(loaded.predict(X), model.predict(X))


@pytest.mark.parametrize(
    ("class_weight", "message"),
    [
        (dicts(3), "class_weight has 3 dicts; y has 4 labels"),
        ({"a": 2.0}, "must have the keys 0 and 1"),
        ({1: -1.0}, "class_weight"),
        ([1.0, 2.0, 3.0, 4.0], "a list of such dicts"),
    ],
)
def test_refusals(class_weight, message):
    X, Y = data()
    with pytest.raises(ValueError, match=message):
        MarginPursuitClassifier(class_weight=class_weight).fit(X, Y)


def test_a_list_is_for_several_labels():
    X, Y = data()
    with pytest.raises(ValueError, match="is for several labels"):
        MarginPursuitClassifier(class_weight=dicts(2)).fit(X, Y[:, 0])
