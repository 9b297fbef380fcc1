"""Kernels of rows in blocks: Nyström features, block by block."""

from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.datasets import load_iris, make_moons
from sklearn.gaussian_process.kernels import RBF

from marginpursuit import (
    MarginPursuitClassifier,
    MarginPursuitClassifierCV,
    ODMClassifier,
    load_model,
    save_model,
)
from marginpursuit.blocks import Blocks
from marginpursuit.classifiers._landmarks import KernelPolicy

X, Y = make_moons(300, noise=0.3, random_state=0)
X = np.round(X, 2).astype(np.float32).astype(np.float64)
OPTIONS = {"n_components": 40, "coef0": 1.0, "alpha": 1e-3, "tol": 1e-10}


def in_blocks(rows, convert=np.asarray):
    edges = (0, 120, 120, len(rows))  # one is empty
    return Blocks([lambda a=a, b=b: convert(rows[a:b]) for a, b in pairwise(edges)])


def squared_product(rows, others):
    return np.asarray((rows @ others.T + 1.0) ** 2)


def assert_equal_fit(kernel, convert):
    weights = np.random.default_rng(0).integers(0, 3, len(Y))
    expected = MarginPursuitClassifier(kernel=kernel, **OPTIONS).fit(X, Y, weights)
    blocks = in_blocks(X, convert)
    model = MarginPursuitClassifier(kernel=kernel, **OPTIONS).fit(blocks, Y, weights)
    assert_array_equal(model.support_, expected.support_)
    assert_allclose(model.objective_, expected.objective_, rtol=1e-6)
    scores = expected.decision_function(X)
    assert_allclose(model.decision_function(X), scores, atol=1e-3)
    assert_allclose(model.decision_function(blocks), model.decision_function(X), atol=1e-6)


@pytest.mark.parametrize("convert", [np.asarray, np.float32, sparse.csr_matrix])
@pytest.mark.parametrize("kernel", ["rbf", "poly"])
def test_fit_equals_that_in_memory(kernel, convert):
    assert_equal_fit(kernel, convert)


def test_fit_with_a_function_equals_that_in_memory():
    assert_equal_fit(squared_product, np.asarray)


def test_default_has_landmarks_among_few_rows_too():
    model = MarginPursuitClassifier(kernel="rbf", gamma=50.0)
    model._kernel_policy = KernelPolicy(n_components=20)
    assert len(model.fit(in_blocks(X), Y).support_) == 20
    assert model.predict_proba(in_blocks(X)).shape == (len(Y), 2)
    assert len(model.fit(X, Y).support_) > 100


def test_several_classes_warm_starts_and_files(tmp_path):
    rows, y = load_iris(return_X_y=True)
    model = MarginPursuitClassifier(kernel="rbf", n_components=30, warm_start=True)
    model.fit(in_blocks(rows), y)
    before = model.decision_function(rows)
    model.fit(in_blocks(rows), y)
    assert_allclose(model.decision_function(rows), before, atol=0.05)
    assert model.score(rows, y) > 0.95
    again = load_model(save_model(model, tmp_path / "model"))
    assert_array_equal(again.predict(in_blocks(rows)), model.predict(rows))


def test_search_chooses_as_in_memory():
    options = {"kernel": "rbf", "alphas": [0.01, 0.001], "cv": 3, "n_components": 50}
    expected = MarginPursuitClassifierCV(**options).fit(X, Y)
    model = MarginPursuitClassifierCV(**options).fit(in_blocks(X), Y)
    assert model.best_params_ == expected.best_params_
    assert_allclose(model.decision_function(X), expected.decision_function(X), atol=0.05)


@pytest.mark.slow
def test_dask_cluster_computes_the_features():
    da, distributed = pytest.importorskip("dask.array"), pytest.importorskip("distributed")
    expected = MarginPursuitClassifier(kernel="rbf", **OPTIONS).fit(X, Y)
    cluster = {"n_workers": 1, "threads_per_worker": 2, "processes": False}
    with distributed.Client(**cluster, dashboard_address="127.0.0.1:0"):
        for convert in (np.asarray, sparse.csr_matrix):
            rows = da.from_array(X, chunks=(100, 2)).map_blocks(convert, meta=convert(X[:1]))
            model = MarginPursuitClassifier(kernel="rbf", **OPTIONS).fit(rows, Y)
            assert_allclose(model.decision_function(X), expected.decision_function(X), atol=1e-3)
            assert_array_equal(model.predict(rows).compute(), model.predict(X))


def test_what_is_refused():
    with pytest.raises(TypeError, match=r"kernel='precomputed'\) needs X in memory; got Blocks"):
        MarginPursuitClassifier(kernel="precomputed").fit(in_blocks(X), Y)
    with pytest.raises(TypeError, match="needs X in memory; got Blocks"):
        ODMClassifier(kernel="rbf").fit(in_blocks(X), Y)
    missing = X.copy()
    missing[200, 1] = np.nan
    with pytest.raises(ValueError, match="column 1, row 80 of block 2"):
        MarginPursuitClassifier(kernel="rbf").fit(in_blocks(missing), Y)
    with pytest.raises(ValueError, match="dense rows with 3 columns; got 2 columns, dense"):
        in_blocks(X).map(np.asarray, 3)


def test_kernel_object_with_parameters_of_its_own():
    assert_equal_fit(RBF(length_scale=0.5), np.asarray)
