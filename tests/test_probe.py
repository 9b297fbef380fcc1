"""Linear probes: choice of the penalty, accuracies, few rows, and inputs."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.metrics import balanced_accuracy_score, top_k_accuracy_score
from sklearn.model_selection import PredefinedSplit

from marginpursuit import MarginPursuitClassifier, MarginPursuitClassifierCV, probe
from marginpursuit._probe_choice import Accuracies, _ranks
from marginpursuit.classifiers._shared import penalty_path
from marginpursuit.losses import JointLoss, MarginLoss

ALPHAS = [1e-2, 1e-3, 1e-4]


@pytest.fixture(scope="module")
def parts():
    X, y = load_digits(return_X_y=True)
    cut = [500, 800, 1200]
    return list(zip(np.split(X, cut), np.split(y, cut), strict=True))[:3]


@pytest.fixture(scope="module")
def result(parts):
    train, validation, test = parts
    return probe(*train, validation=validation, test=test, alphas=ALPHAS)


def test_accuracies_are_those_of_scikit_learn(parts, result):
    X, y = parts[2]
    scores, row = result.model.decision_function(X), {k: v[-1] for k, v in result.table.items()}
    assert row["top_1"] == pytest.approx(result.model.score(X, y))
    assert row["top_5"] == pytest.approx(top_k_accuracy_score(y, scores, k=5))
    balanced = balanced_accuracy_score(y, result.model.predict(X))
    assert row["mean_per_class"] == pytest.approx(balanced)
    assert (row["rows_per_class"], row["rows"], row["n_train"]) == ("all", "test", 500)


def test_the_penalty_has_the_best_validation_accuracy(parts, result):
    train, validation, _ = parts
    fits = [MarginPursuitClassifier(alpha=alpha, probability=None).fit(*train) for alpha in ALPHAS]
    expected = [fit.score(*validation) for fit in fits]
    assert_array_equal(result.alphas, ALPHAS)
    assert_allclose(result.validation_accuracies, expected, atol=2.5 / len(validation[1]))
    assert result.model.alpha == ALPHAS[int(np.argmax(result.validation_accuracies))]
    assert not result.model.warm_start


def test_the_model_is_the_fit_at_the_chosen_penalty(parts):
    train, validation, test = parts
    precise = MarginPursuitClassifier(tol=1e-6)
    result = probe(*train, validation=validation, test=test, alphas=ALPHAS, estimator=precise)
    expected = MarginPursuitClassifier(alpha=result.model.alpha, probability=None, tol=1e-6)
    assert result.model.objective_ == pytest.approx(expected.fit(*train).objective_, rel=1e-5)


def test_a_path_is_near_the_minimum_at_every_penalty(parts):
    X, y = parts[0]
    model = MarginPursuitClassifier(
        alpha_unit="standardised", probability=None, leverage_bound=None
    )
    loss = JointLoss.at_level(MarginLoss(overconfidence=0.0))
    n_varying, variance = np.count_nonzero(X.std(axis=0)), X.var(axis=0)
    found = list(penalty_path(model, model._check_training(X, y, None), ALPHAS[::-1]))
    assert [fit.alpha for fit in found] == ALPHAS
    for fit in found:
        coef, intercept = fit.linear
        penalty = 0.5 * fit.alpha * n_varying * np.sum(variance[:, np.newaxis] * coef**2)
        value = loss.value(X @ coef + intercept, y).mean() + penalty
        exact = clone(model).set_params(alpha=fit.alpha).fit(X, y).objective_
        assert exact * (1 - 1e-5) <= value <= exact * (1 + 1e-2)


def test_the_search_chooses_without_penalties_and_validation(parts):
    result = probe(*parts[0], test=parts[2], cv=3)
    assert isinstance(result.model, MarginPursuitClassifierCV)
    assert result.model.n_splits_ == 3
    assert result.table["alpha"] == [result.model.best_params_["alpha"]]
    out_of_fold = probe(*parts[0], estimator=MarginPursuitClassifierCV(scales=(1.0,)), cv=3)
    assert out_of_fold.table["rows"] == ["out-of-fold"]
    scores = out_of_fold.model.out_of_fold_scores_
    expected = np.mean(scores.argmax(axis=1) == parts[0][1])
    assert out_of_fold.table["top_1"][0] == pytest.approx(expected)


def test_penalties_by_cross_validation_and_by_a_split_that_is_given(parts):
    train, validation, _ = parts
    X, y = (np.concatenate(both) for both in zip(train, validation, strict=True))
    split = PredefinedSplit(np.repeat([-1, 0], [len(train[1]), len(validation[1])]))
    given = probe(X, y, cv=split, alphas=ALPHAS)
    arrays = probe(*train, validation=validation, alphas=ALPHAS)
    assert_array_equal(given.validation_accuracies, arrays.validation_accuracies)
    assert given.table["n_train"] == [len(y)]
    folds = probe(*train, cv=2, alphas=ALPHAS)
    assert folds.table["rows"] == ["out-of-fold"]
    assert folds.table["top_1"][0] == folds.validation_accuracies.max()


def test_few_rows_a_class(parts):
    train, validation, test = parts
    result = probe(
        *train, validation=validation, test=test, alphas=[1e-2], shots=[16, 4], n_draws=3
    )
    assert result.table["rows_per_class"] == [4, 16, "all"]
    assert result.table["n_train"] == [40, 160, 500]
    assert result.table["draws"] == [3, 3, 1]
    assert result.table["top_1"][0] < result.table["top_1"][1] < result.table["top_1"][2]
    assert result.table["top_1_std"][0] > 0
    again = probe(*train, validation=validation, test=test, alphas=[1e-2], shots=[4], n_draws=3)
    assert again.table["top_1"][0] == result.table["top_1"][0]


def test_one_row_a_class_has_no_folds(parts):
    with pytest.warns(UserWarning, match="classes with a single sample"):
        result = probe(*parts[0], test=parts[2], shots=[1], n_draws=1, alphas=[1e-3], cv=2)
    assert result.table["top_1"][0] > 0.3


def test_strings_float16_and_memory_maps(parts, tmp_path):
    (X, y), validation, _ = parts
    names = np.array([f"digit {k}" for k in range(10)])
    mapped = np.memmap(tmp_path / "features", dtype=np.float16, mode="w+", shape=X.shape)
    mapped[:] = X
    result = probe(
        mapped,
        names[y].tolist(),
        validation=(validation[0].astype(np.float16), names[validation[1]]),
        alphas=ALPHAS,
    )
    plain = probe(X, y, validation=validation, alphas=ALPHAS)
    assert_allclose(result.validation_accuracies, plain.validation_accuracies, atol=0.01)
    assert result.table["rows"] == ["validation"]
    assert result.model.classes_.tolist() == names.tolist()


def test_two_classes_have_no_top_5(parts):
    (X, y), validation, _ = parts
    result = probe(X, y > 4, validation=(validation[0], validation[1] > 4))
    assert np.isnan(result.table["top_5"][0])
    assert result.table["top_1"][0] == pytest.approx(max(result.validation_accuracies), abs=1e-12)
    assert " - " in repr(result)


def test_arrays_on_a_device(parts):
    strict = pytest.importorskip("array_api_strict")

    def place(values):
        return strict.asarray(np.array(values), device=strict.Device("device1"))

    there = [(place(X), place(y)) for X, y in parts[:2]]
    result = probe(*there[0], validation=there[1], alphas=ALPHAS, shots=[8], n_draws=1)
    here = probe(*parts[0], validation=parts[1], alphas=ALPHAS, shots=[8], n_draws=1)
    assert_allclose(result.validation_accuracies, here.validation_accuracies, atol=0.01)
    with pytest.raises(TypeError, match="put both on the same device"):
        probe(*there[0], validation=parts[1], alphas=ALPHAS)


@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.coo_matrix])
def test_sparse_rows(parts, kind):
    (X, y), validation, _ = parts
    result = probe(kind(X), y, validation=(kind(validation[0]), validation[1]), shots=[8])
    assert result.table["top_1"][0] > 0.6
    assert result.table["top_1"][1] > 0.85


def test_data_frames(parts):
    pd = pytest.importorskip("pandas")
    frames = [(pd.DataFrame(X), pd.Series(y)) for X, y in parts[:2]]
    result = probe(*frames[0], validation=frames[1], alphas=ALPHAS, shots=[4], n_draws=1)
    assert result.table["n_train"] == [40, 500]


def test_frames_that_cannot_be_fitted_are_named(parts):
    pd, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    X, y = parts[0]
    missing = pd.DataFrame(X).astype("Float64")
    missing.iloc[[3, 4, 5], 2] = pd.NA
    for options in ({"alphas": ALPHAS}, {"shots": [40]}, {}):
        with pytest.raises(ValueError, match="got nan in column 2, row 3"):
            probe(missing, y, **options)
    labels = pd.Series(y, dtype="Int64")
    labels[3] = pd.NA
    with pytest.raises(ValueError, match="y must not have missing labels; got nan in row 3"):
        probe(X, labels)
    with pytest.raises(TypeError, match="X is a LazyFrame"):
        probe(polars.DataFrame(X).lazy(), y)
    with pytest.raises(TypeError, match="y of test is a LazyFrame"):
        probe(X, y, test=(X, polars.DataFrame({"y": y}).lazy()))


@pytest.mark.parametrize("rare", [0, 3])
def test_held_out_rows_of_a_class_that_a_fold_lacks_are_errors(rare):
    rng = np.random.default_rng(0)
    y = np.repeat([rare, 1, 2], [4, 16, 20])
    X = rng.normal(size=(40, 2)) + 8.0 * np.where(y == 2, -1, 1)[:, np.newaxis]
    test = np.r_[:8]  # four rows of the rare class, among those of class 1, and four of class 1
    result = probe(X, y, cv=[(np.r_[8:40], test)], alphas=[1e-2])
    assert result.table["top_1"] == [0.5]
    assert result.table["mean_per_class"] == [0.5]


def test_tensors(parts):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    (X, y), validation, _ = parts
    there = [
        (torch.asarray(a).to(torch.bfloat16), torch.asarray(b)) for a, b in ((X, y), validation)
    ]
    result = probe(*there[0], validation=there[1], alphas=ALPHAS, shots=[8], n_draws=1)
    here = probe(X, y, validation=validation, alphas=ALPHAS)
    assert_allclose(result.validation_accuracies, here.validation_accuracies, atol=0.01)


def test_ranks_break_ties_as_predictions_do():
    scores = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 2.0]])
    assert _ranks(scores, np.array([1, 1])).tolist() == [1, 2]
    assert _ranks(scores, np.array([0, 2])).tolist() == [0, 0]
    assert _ranks(np.array([0.5, -0.5]), np.array([1, 1])).tolist() == [0, 1]
    found = Accuracies.of(np.array([0, 1, 0]), np.array([0, 0, 1]), 3)
    assert (found.top_1, found.mean_per_class) == (pytest.approx(2 / 3), 0.75)


def test_table(result):
    pd = pytest.importorskip("pandas")
    frame = result.to_frame()
    assert isinstance(frame, pd.DataFrame)
    assert list(frame.columns) == list(result.table)
    lines = repr(result).splitlines()
    assert len(lines) == 2
    assert lines[0].split() == list(result.table)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"y": [[0, 1]]}, ValueError, r"y has shape \(1, 2\); expected \(n_samples,\)"),
        ({"y": [0, 1]}, ValueError, r"X has shape \(500, 64\); expected \(2, n_features\)"),
        ({"validation": 3}, TypeError, r"validation must be a tuple \(X, y\); got int"),
        ({"test": (np.ones((1, 2)), [1])}, ValueError, "X of test has 2 columns; expected 64"),
        ({"test": (np.ones((1, 64)), [77])}, ValueError, "y of test has classes .*77"),
        ({"alphas": []}, ValueError, "alphas must be positive numbers"),
        ({"alphas": [0.0]}, ValueError, "alphas must be positive numbers"),
        ({"alphas": "auto"}, TypeError, "alphas must be a list of positive numbers; got 'auto'"),
        ({"shots": 3}, TypeError, "shots must be a list of numbers of rows a class; got 3"),
        ({"shots": [0]}, ValueError, "shots"),
        ({"random_state": -1}, ValueError, "random_state must be a whole number of at least 0"),
        ({"validation": (np.ones((0, 64)), [])}, ValueError, r"y of validation has shape \(0,\)"),
        ({"test": (np.ones((2, 64)), [1, None])}, ValueError, "y of test must not have missing"),
        ({"validation": None, "cv": 1}, ValueError, "cv must be a whole number of at least 2"),
        ({"validation": None, "cv": [], "alphas": [1.0]}, ValueError, "cv has 0 folds"),
        (
            {"validation": None, "cv": [([0, 1], [500])], "alphas": [1.0]},
            ValueError,
            "fold 0 of cv has rows from 500 to 500; expected rows from 0 to 499",
        ),
        (
            {"estimator": MarginPursuitClassifier(kernel="rbf")},
            ValueError,
            r"estimator.kernel must be one of \['linear'\].*got 'rbf'",
        ),
        (
            {"estimator": MarginPursuitClassifier(solver="steepest")},
            ValueError,
            "estimator.solver must be one of .*'newton'.*got 'steepest'",
        ),
        ({"shots": [400]}, ValueError, r"shots has 400; class \d has \d+ training rows"),
        ({"estimator": "svm"}, TypeError, "estimator must be a MarginPursuitClassifier"),
        (
            {"estimator": MarginPursuitClassifier(scale="auto"), "alphas": [1.0]},
            ValueError,
            "estimator.scale must be a number",
        ),
    ],
)  # fmt: skip
def test_errors_name_what_was_given(parts, changes, error, message):
    X, y = parts[0]
    options = {"validation": parts[1], **changes}
    with pytest.raises(error, match=message):
        probe(X, options.pop("y", y), **options)


def test_columns_out_of_range_need_another_unit(parts):
    (X, y), validation, _ = parts
    with pytest.raises(OverflowError, match="squares over- or underflow"):
        probe(1e300 * X, y, validation=validation, alphas=[1.0])


def test_a_search_splits_by_itself(parts):
    with pytest.raises(ValueError, match="PredefinedSplit"):
        probe(*parts[0], validation=parts[1], estimator=MarginPursuitClassifierCV())
