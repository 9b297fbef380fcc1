"""Several labels: y as an indicator matrix, one problem for each label in shared passes."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.datasets import make_multilabel_classification
from sklearn.metrics import f1_score, label_ranking_average_precision_score
from sklearn.utils import get_tags
from sklearn.utils._testing import ignore_warnings

from marginpursuit import MarginPursuitClassifier, load_model, save_model
from marginpursuit._kernels import _arrays, task_losses
from marginpursuit.blocks import from_npy
from marginpursuit.tasks import LabelSets, LabelTasks, Tasks

N_LABELS = 70  # more than one code holds


def data(n_rows=150, n_labels=N_LABELS, seed=0):
    X, Y = make_multilabel_classification(
        n_rows, 8, n_classes=n_labels, n_labels=6, random_state=seed
    )
    return X + 0.5, Y


class TestCodes:
    """Labels as bits of codes."""

    @pytest.mark.parametrize("n_labels", [2, 62, 63, 130])
    @pytest.mark.parametrize("convert", [np.asarray, sparse.csc_matrix, sparse.csc_array])
    def test_round_trip(self, n_labels, convert):
        Y = np.random.default_rng(0).random((40, n_labels)) < 0.3
        labels = LabelSets.of(convert(Y.astype(int)))
        assert labels.codes.shape == (-(-n_labels // 62), 40)
        for k in range(n_labels):
            assert_array_equal(labels.is_positive(k), Y[:, k])
            assert_array_equal(labels.sign(k), np.where(Y[:, k], 1.0, -1.0))
            assert_array_equal(labels.take(np.arange(5, 20)).is_positive(k), Y[5:20, k])

    def test_tasks(self):
        _, Y = data()
        labels = LabelSets.of(Y)
        tasks = Tasks.of(labels, np.full(len(Y), 1 / len(Y)), MarginPursuitClassifier()._loss(1.0))
        assert isinstance(tasks, LabelTasks)
        assert len(tasks) == N_LABELS
        which = np.array([3, 65, 0, 69])
        taken = tasks.take(which)
        for k, label in enumerate(which):
            assert_array_equal(taken.sign(k), labels.sign(label))
        groups = list(tasks.by_codes(np.arange(N_LABELS)))
        assert_array_equal(np.concatenate([own for own, _, _ in groups]), np.arange(N_LABELS))

    def test_compiled_losses_read_bits(self):
        rng = np.random.default_rng(1)
        codes = rng.integers(0, 1 << 62, 50)
        loss = MarginPursuitClassifier()._loss(0.7)
        positive = ~np.array([0, 1, 30, 61])
        arguments = (np.array([loss.kernel_parameters] * 4), codes, rng.random((1, 50)), positive)
        results = []
        for function in (task_losses, _arrays.task_losses):
            scores, value, slope = (
                3 * np.sin(np.arange(200.0)).reshape(4, 50),
                np.zeros(4),
                np.zeros(4),
            )
            part = np.zeros(4, dtype=np.intp)
            function(0, *arguments, part, np.zeros(4), scores, value, slope, 0, 4)
            results.append((scores, value, slope))
        for ours, expected in zip(*results, strict=True):
            assert_allclose(ours, expected, rtol=1e-10)


@pytest.mark.parametrize(
    ("convert", "options"),
    [
        (np.asarray, {"alpha": 1e-3}),
        (np.asarray, {"alpha": 1e-3, "overconfidence": 1.0}),
        (np.asarray, {"alpha": 1e-3, "solver": "lbfgs"}),
        (np.float32, {"alpha": 1e-2}),
        (sparse.csr_matrix, {"alpha": 1e-3}),
        (sparse.csr_matrix, {"alpha": 1e-3, "solver": "lbfgs"}),
        (sparse.csr_matrix, {"solver": "dual", "alpha": 1e-2}),
        (lambda X: np.tile(X, 30), {"alpha": 1e-2}),  # more columns than rows
    ],
)
def test_each_label_is_fitted_as_by_itself(convert, options):
    X, Y = data()
    X = convert(X)
    weights = np.arange(len(Y)) % 3.0
    # The leverage bound keeps the total weight of each class, which labels do not have.
    model = MarginPursuitClassifier(
        **options, tol=1e-8, max_iter=20_000, leverage_bound=None, probability="exact"
    )
    model.fit(X, Y, weights)
    assert model.coef_.shape == (N_LABELS, X.shape[1])
    assert model.intercept_.shape == (N_LABELS,)
    scores, proba = model.decision_function(X), model.predict_proba(X)
    assert scores.shape == proba.shape == Y.shape
    for k in (0, 1, 61, 62, 69):
        if len(np.unique(Y[weights > 0, k])) < 2:
            continue
        with ignore_warnings():
            alone = MarginPursuitClassifier(**model.get_params()).fit(X, Y[:, k], weights)
        assert_allclose(scores[:, k], alone.decision_function(X), atol=2e-3)
        assert_allclose(proba[:, k], alone.predict_proba(X)[:, 1], atol=2e-3)


@pytest.mark.filterwarnings("ignore:.*took all steps")  # of steepest descent
@pytest.mark.parametrize(
    ("solver", "n_labels", "max_iter"), [("steepest", 3, 300), ("stochastic", N_LABELS, 20_000)]
)
@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_matrix])
def test_solvers_of_the_paper(solver, n_labels, max_iter, convert):
    X, Y = data(n_labels=n_labels)
    X = convert((X - X.mean(axis=0)) / X.std(axis=0))
    common = {"alpha": 0.1, "alpha_unit": "common"}
    model = MarginPursuitClassifier(solver=solver, max_iter=max_iter, random_state=0, **common)
    model.fit(X, Y)
    exact = MarginPursuitClassifier(probability="exact", **common).fit(X, Y)
    assert_allclose(model.coef_, exact.coef_, atol=0.05)
    assert np.mean(model.predict(X) == exact.predict(X)) > 0.95


def test_exact_probabilities_are_inside_of_zero_and_one():
    X, Y = data(60, 3)
    model = MarginPursuitClassifier(probability="exact", overconfidence=1.0).fit(X, Y)
    proba = model.predict_proba(100.0 * X)  # scores far beyond the level
    assert np.all((proba > 0) & (proba < 1))
    assert proba.min() < 1e-300
    assert np.all(np.isfinite(model.predict_log_proba(100.0 * X)))


@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_matrix])
def test_held_out_probabilities(convert):
    X, Y = data(300, 5)
    X = convert(X)
    model = MarginPursuitClassifier().fit(X[:200], Y[:200])
    proba, scores = model.predict_proba(X), model.decision_function(X)
    assert model.link_.slopes.shape == (5,)
    assert_array_equal(model.predict(X), proba > model.link_.decision_probability)
    assert_array_equal(model.predict(X), scores > 0)
    assert model.predict(X).dtype == np.int64
    assert np.all((proba > 0) & (proba < 1))
    assert_allclose(model.predict_log_proba(X), np.log(proba))
    for k in range(5):
        order = np.argsort(scores[:, k])
        assert np.all(np.diff(proba[order, k]) >= 0)
    assert label_ranking_average_precision_score(Y[200:], proba[200:]) > 0.75
    assert model.score(X, Y) == np.mean(np.all(model.predict(X) == Y, axis=1))


def test_rare_labels_have_a_threshold_of_their_own():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 4))
    odds = np.exp(2.0 * X[:, :3] - 3.0)
    Y = (rng.random((3000, 3)) < odds / (1.0 + odds)).astype(int)
    model = MarginPursuitClassifier().fit(X[:1500], Y[:1500])
    exact = MarginPursuitClassifier(probability="exact").fit(X[:1500], Y[:1500])
    assert_allclose(model.coef_, exact.coef_, atol=0.05)
    assert_allclose(model.intercept_ + model.link_.thresholds, exact.intercept_, atol=0.05)
    theta = model.link_.decision_probability
    assert 0.1 < theta < 0.5
    truth = odds[1500:] > theta / (1.0 - theta)
    assert np.all(np.mean(model.predict(X[1500:]) == truth, axis=0) > 0.95)
    f1 = f1_score(Y[1500:], model.predict(X[1500:]), average="micro")
    assert f1 > 1.2 * f1_score(Y[1500:], exact.predict(X[1500:]), average="micro")


@pytest.mark.parametrize("rho", ["catoni", "square"])
@pytest.mark.parametrize("overconfidence", [0.0, 1.0])
def test_constant_labels(rho, overconfidence):
    X, Y = data(60, 4)
    Y[:, 1], Y[:, 2] = 0, 1
    model = MarginPursuitClassifier(rho=rho, overconfidence=overconfidence).fit(X, Y)
    assert_allclose(model.coef_[1:3], 0.0, atol=1e-4)
    assert_array_equal(model.predict(X)[:, 1:3], [[0, 1]] * 60)
    proba = model.predict_proba(X)
    assert np.all(proba[:, 1] < 0.1)
    assert np.all(proba[:, 2] > 0.9)


def test_all_labels_may_be_constant():
    X, _ = data(30, 3)
    model = MarginPursuitClassifier().fit(X, np.zeros((30, 3), dtype=int))
    assert not model.predict(X).any()


@pytest.mark.parametrize(
    "convert",
    [
        np.asarray,
        lambda Y: Y.astype(bool),
        lambda Y: Y.astype(float),
        np.ndarray.tolist,
        sparse.csr_matrix,
        sparse.coo_array,
        pd.DataFrame,
    ],
)
def test_containers_of_labels(convert):
    X, Y = data(60, 3)
    expected = MarginPursuitClassifier().fit(X, Y)
    found = MarginPursuitClassifier().fit(X, convert(Y))
    assert_array_equal(found.coef_, expected.coef_)
    assert_array_equal(found.classes_, [0, 1, 2])
    assert found.multilabel_


def test_two_labels_are_not_two_classes(tmp_path):
    X, Y = data(60, 2)
    model = MarginPursuitClassifier().fit(X, Y)
    assert model.coef_.shape == (2, 8)
    assert model.predict(X).shape == (60, 2)
    again = load_model(save_model(model, tmp_path / "labels.model"))
    assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert_array_equal(again.predict(X), model.predict(X))
    model.fit(X, Y[:, 0])
    assert not model.multilabel_
    assert model.coef_.shape == (1, 8)


@pytest.mark.parametrize("probability", ["exact", None, "held_out"])
def test_model_files(tmp_path, probability):
    X, Y = data(60)
    model = MarginPursuitClassifier(probability=probability).fit(X, Y)
    again = load_model(save_model(model, tmp_path / "labels.model"))
    assert_array_equal(again.decision_function(X), model.decision_function(X))
    if probability is not None:
        assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_weights_count_as_repeated_rows():
    X, Y = data(80, 4)
    weights = np.random.default_rng(0).integers(0, 3, 80)
    rows = np.repeat(np.arange(80), weights)
    ours = MarginPursuitClassifier(tol=1e-10).fit(X, Y, weights)
    repeated = MarginPursuitClassifier(tol=1e-10).fit(X[rows], Y[rows])
    assert_allclose(ours.decision_function(X), repeated.decision_function(X), atol=1e-3)
    assert_allclose(ours.predict_proba(X), repeated.predict_proba(X), atol=1e-2)


@pytest.mark.parametrize(
    ("options", "n_labels"),
    [
        ({"tol": 1e-9, "leverage_bound": None}, 63),  # two codes
        ({"solver": "gram"}, 3),
        ({"probability": "exact", "solver": "gram"}, 3),
        ({"probability": None, "solver": "lbfgs", "scale": "auto"}, 3),
    ],
)
def test_blocks_and_dask_arrays(tmp_path, options, n_labels):
    dask_array = pytest.importorskip("dask.array")
    X, Y = data(n_labels=n_labels)
    weights = 1.0 + np.arange(len(Y)) % 3
    expected = MarginPursuitClassifier(**options).fit(X, Y, weights)
    np.save(tmp_path / "X.npy", X)
    blocks = from_npy(tmp_path / "X.npy", block_bytes=8 * 8 * 80)
    rows, labels = (dask_array.from_array(x, chunks=(80, -1)) for x in (X, Y))
    for own, target in ((blocks, sparse.csr_matrix(Y)), (rows, labels)):
        model = MarginPursuitClassifier(**options).fit(own, target, weights)
        assert_allclose(model.coef_, expected.coef_, rtol=1e-6, atol=1e-9)
        assert_allclose(model.intercept_, expected.intercept_, rtol=1e-6, atol=1e-9)
        assert_allclose(model.margin_location_, expected.margin_location_, rtol=1e-6)
        assert_array_equal(np.asarray(model.predict(own)), expected.predict(X))
        if options.get("probability", "held_out"):
            proba = np.asarray(model.predict_proba(own))
            assert_allclose(proba, expected.predict_proba(X), rtol=1e-5)


def test_rules_of_the_scale_use_all_labels():
    X, Y = data(100, 4)
    model = MarginPursuitClassifier(scale="auto").fit(X, Y)
    assert model.scale_ > 0
    assert model.margin_statistics_.mean.shape == (4,)


def test_checkpoints_belong_to_the_labels(tmp_path):
    X, Y = data(60, 3)
    model = MarginPursuitClassifier(checkpoint=tmp_path / "fit")
    one, other = (model._identity(model._check_training(X, y, None)) for y in (Y, 1 - Y))
    assert one["labels"] != other["labels"]
    assert_array_equal(model.fit(X, Y).coef_, MarginPursuitClassifier().fit(X, Y).coef_)


class TestErrors:
    """What is refused, and how."""

    @pytest.mark.parametrize(
        ("y", "message"),
        [
            (np.array([[1, 2], [2, 1], [1, 1]]), "indicator matrix of 0 and 1"),
            (np.array([[1, np.nan], [0, 1], [1, 1]]), "indicator matrix of 0 and 1; got .*nan"),
            (np.array([[0, 1, 2], [2, 1, 0], [1, 1, 1]]), "1d array"),
            (np.array([[0, 1], [1, 0]]), "inconsistent"),
            (sparse.csr_matrix([[0, 2], [2, 0], [2, 2]]), "indicator matrix of 0 and 1"),
        ],
    )
    def test_bad_labels(self, y, message):
        with pytest.raises(ValueError, match=message):
            MarginPursuitClassifier().fit(np.eye(3), y)

    def test_tags(self):
        weighted = MarginPursuitClassifier(class_weight="balanced")
        assert get_tags(weighted).classifier_tags.multi_label
        assert get_tags(MarginPursuitClassifier()).classifier_tags.multi_label

    def test_streams(self):
        X, Y = data(30, 3)
        with pytest.raises(ValueError, match="1d array"):
            MarginPursuitClassifier().partial_fit(X, Y, classes=[0, 1])
