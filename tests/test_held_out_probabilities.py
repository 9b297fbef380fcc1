"""The parameter `probability` of the classifiers that fit no folds in shared passes."""

import re

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.datasets import load_iris, make_classification
from sklearn.exceptions import NotFittedError
from sklearn.metrics import log_loss
from sklearn.metrics.pairwise import rbf_kernel

from marginpursuit import (
    CatoniRiskClassifier,
    LDMClassifier,
    MDOClassifier,
    MedianOfMeansClassifier,
    ODMClassifier,
    PegasosClassifier,
    RobustGradientClassifier,
    load_model,
    save_model,
)

CLASSIFIERS = [
    CatoniRiskClassifier,
    LDMClassifier,
    MDOClassifier,
    MedianOfMeansClassifier,
    ODMClassifier,
    PegasosClassifier,
    RobustGradientClassifier,
]
every = pytest.mark.parametrize("kind", CLASSIFIERS)


def make(kind, **options):
    seeded = {"random_state": 0} if "random_state" in kind().get_params() else {}
    return kind(probability="held_out", **seeded, **options)


def two_classes():
    X, y = make_classification(300, 5, flip_y=0.1, class_sep=1.5, random_state=0)
    return X, np.array(["no", "yes"])[y]


@every
def test_two_classes(kind, tmp_path):
    X, y = two_classes()
    model = make(kind).fit(X[:200], y[:200])
    proba, scores = model.predict_proba(X), model.decision_function(X)
    assert proba.shape == (300, 2)
    assert np.all((proba > 0) & (proba < 1))
    assert_allclose(proba.sum(axis=1), 1.0)
    assert_array_equal(model.classes_[proba.argmax(axis=1)], model.predict(X))
    assert np.all(np.diff(proba[np.argsort(scores), 1]) >= 0)
    assert_allclose(model.predict_log_proba(X), np.log(proba))
    assert log_loss(y[200:], proba[200:]) < 0.5
    again = load_model(save_model(model, tmp_path / "file.model"))
    assert_array_equal(again.predict_proba(X), proba)


@every
def test_the_link_does_not_change_the_fit(kind):
    X, y = two_classes()
    model = make(kind).fit(X, y)
    without = make(kind).set_params(probability=None).fit(X, y)
    assert_array_equal(model.coef_, without.coef_)
    assert not hasattr(without, "link_")


@pytest.mark.parametrize("kind", [LDMClassifier, PegasosClassifier, CatoniRiskClassifier])
def test_several_classes_and_sparse_rows(kind):
    X, y = load_iris(return_X_y=True)
    model = make(kind).fit(sparse.csr_matrix(X), y)
    proba = model.predict_proba(X)
    assert proba.shape == (150, 3)
    assert_array_equal(proba.argmax(axis=1), model.predict(X))
    assert log_loss(y, proba) < 0.8


@every
def test_is_absent_by_default(kind):
    model = kind()
    assert model.probability is None
    assert not hasattr(model, "predict_proba")
    with pytest.raises(AttributeError, match="has no attribute"):
        model.predict_log_proba(np.eye(2))
    with pytest.raises(ValueError, match="probability"):
        kind(probability="exact").fit(*two_classes())


def test_weights_and_class_weight():
    X, y = two_classes()
    weights = np.arange(len(y)) % 3.0
    rows = np.repeat(np.arange(len(y)), weights.astype(int))
    ours = make(LDMClassifier, tol=1e-12, class_weight="balanced").fit(X, y, weights)
    repeated = make(LDMClassifier, tol=1e-12, class_weight="balanced").fit(X[rows], y[rows])
    assert_allclose(ours.predict_proba(X), repeated.predict_proba(X), atol=1e-3)


@pytest.mark.parametrize("kind", [LDMClassifier, PegasosClassifier])
def test_kernels(kind):
    X, y = two_classes()
    kernel = make(kind, kernel="rbf", gamma=0.2).fit(X, y)
    given = make(kind, kernel="precomputed").fit(rbf_kernel(X, gamma=0.2), y)
    assert log_loss(y, kernel.predict_proba(X)) < 0.6
    proba = given.predict_proba(rbf_kernel(X, gamma=0.2))
    assert log_loss(y, proba) < 0.6


@every
@pytest.mark.filterwarnings("ignore:RobustGradientClassifier stopped where no step size")
def test_a_row_far_from_all_others_leaves_the_others_distinct(kind):
    X, y = two_classes()
    X[4, 1] = 1e300
    try:
        make(kind).set_params(probability=None).fit(X, y).predict(X)
    except OverflowError as error:
        with pytest.raises(OverflowError, match=re.escape(str(error)[:30])):
            make(kind).fit(X, y).predict(X)
    else:
        assert len(np.unique(make(kind).fit(X, y).predict_proba(np.delete(X, 4, axis=0)))) > 4


@every
def test_coefficients_without_a_link_have_no_probabilities(kind):
    X, y = two_classes()
    model = kind().fit(X, y).set_params(probability="held_out")
    with pytest.raises(NotFittedError, match=r"has no link: .* Call fit with probability="):
        model.predict_proba(X)


def test_updates_discard_the_link():
    X, y = two_classes()
    model = make(PegasosClassifier).fit(X, y).set_params(probability=None)
    model.partial_fit(X, y).set_params(probability="held_out")
    with pytest.raises(NotFittedError, match="an update by partial_fit"):
        model.predict_proba(X)


def test_too_few_rows():
    X, y = np.eye(4), [0, 0, 1, 1]
    for kind in CLASSIFIERS:
        model = make(kind)
        with pytest.raises(ValueError, match="4 distinct rows"):
            model.fit(X, y)
        assert not [name for name in vars(model) if name.endswith("_")]


@pytest.mark.parametrize("kind", [MedianOfMeansClassifier, RobustGradientClassifier])
def test_a_half_fit_that_fails_leaves_nothing_fitted(kind):
    X, y = two_classes()
    model = make(kind, n_blocks=61)
    if kind is RobustGradientClassifier:
        model.set_params(estimate="geometric_median")
    words = (
        r"in a half fit of probability='held_out', which has 50 of the 100 rows: "
        "n_blocks must be at most 50"
    )
    with pytest.raises(ValueError, match=words):
        model.fit(X[:100], y[:100])
    assert not [name for name in vars(model) if name.endswith("_")]
