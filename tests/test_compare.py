"""The comparison of methods, and run files."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.stats import binomtest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from marginpursuit import MarginPursuitClassifier, classifiers
from marginpursuit.experiments.compare import compare, methods, standardised
from marginpursuit.experiments.cross_validation import Contamination, stratified_splits
from marginpursuit.experiments.method_results import Fold, MethodResult
from marginpursuit.experiments.runs import Figure, Run, RunFileError, Table
from marginpursuit.experiments.scoring import Predictions, all_scores
from marginpursuit.experiments.timing import time_fits

X, Y = load_breast_cancer(return_X_y=True)
CHOSEN = ["MarginPursuitClassifier", "LogisticRegression", "RidgeClassifier"]


@pytest.fixture(scope="module")
def result():
    return compare(X, Y, name="cancer", chosen=methods(CHOSEN))


def test_rows_and_classes_of_any_sequence():
    pd = pytest.importorskip("pandas")
    data, codes = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[codes]
    chosen = methods(["MarginPursuitClassifier"])
    (expected,) = compare(data, names, name="iris", chosen=chosen).methods
    for rows, labels in [
        (data.tolist(), names.tolist()),
        (pd.DataFrame(data), pd.Series(names)),
        (data, names.astype(object)),
    ]:
        (found,) = compare(rows, labels, name="iris", chosen=chosen).methods
        assert found.failure is None
        assert found.error == expected.error


def test_methods_are_those_of_the_library_and_peers():
    known = methods()
    assert set(classifiers.__all__) <= set(known)
    peers = {"LogisticRegression", "LinearSVC", "RidgeClassifier", "SGDClassifier"}
    assert peers <= set(known)
    assert known["MarginPursuitClassifier.as_published()"].overconfidence == 1
    assert known["SGDClassifier"].random_state == 0
    with pytest.raises(ValueError, match=r"must be among .*got \['Nothing'\]"):
        methods(["Nothing", "LinearSVC"])


def test_errors_are_those_of_scikit_learn(result):
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    for name, ours in zip(CHOSEN, result.methods, strict=True):
        assert ours.name == name
        pipeline = make_pipeline(StandardScaler(), methods([name])[name])
        wrong = cross_val_predict(pipeline, X, Y, cv=folds) != Y
        assert ours.error == pytest.approx(wrong.mean(), abs=2 / len(Y))
        if name == "RidgeClassifier":
            assert ours.log_loss is ours.calibration is ours.course is None
            continue
        proba = cross_val_predict(pipeline, X, Y, cv=folds, method="predict_proba")
        assert ours.log_loss == pytest.approx(log_loss(Y, proba), rel=1e-4)
        bins = np.minimum((proba[:, 1] * 10).astype(int), 9)
        expected = [
            (proba[bins == b, 1].mean(), Y[bins == b].mean(), (bins == b).sum())
            for b in np.unique(bins)
        ]
        np.testing.assert_allclose(ours.calibration, expected, rtol=1e-3, atol=1e-3)


@given(st.lists(st.tuples(st.integers(1, 50), st.floats(0, 1)), min_size=1, max_size=6))
def test_interval_is_that_of_wilson(parts):
    folds = tuple(Fold(round(rate * n) / n, None, 1.0, n) for n, rate in parts)
    method = MethodResult("m", {}, {}, folds, None, None)
    wrong, n = round(sum(f.error * f.n_test for f in folds)), sum(f.n_test for f in folds)
    assert method.error == pytest.approx(wrong / n)
    expected = binomtest(wrong, n).proportion_ci(0.95, method="wilson")
    np.testing.assert_allclose(method.error_interval, expected, atol=1e-12)


def test_standardised_is_the_pipeline_in_the_units_of_the_data():
    for method in (LogisticRegression(), RidgeClassifier(), MarginPursuitClassifier()):
        ours = standardised(clone(method), X, Y).decision_function(X)
        theirs = make_pipeline(StandardScaler(), clone(method)).fit(X, Y).decision_function(X)
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-8)
    raw = sparse.csr_array(X)
    left = standardised(RidgeClassifier(), raw, Y)
    np.testing.assert_array_equal(left.coef_, RidgeClassifier().fit(raw, Y).coef_)


def test_course_shows_margins_that_approach_the_level():
    published = {"as published": MarginPursuitClassifier.as_published()}
    course = compare(X, Y, name="cancer", chosen=published).methods[0].course
    assert [point.steps for point in course.checkpoints] == [2**k for k in range(10)]
    assert 0.0 in course.edges
    width = course.edges[1] - course.edges[0]
    for point in course.checkpoints:
        assert sum(point.density) * width == pytest.approx(1.0)
    first, last = course.checkpoints[0], course.checkpoints[-1]
    assert abs(last.location - course.level) < abs(first.location - course.level)
    # The margins below zero are the errors.
    zero = course.edges.index(0.0)
    assert sum(last.density[:zero]) * width == pytest.approx(last.error, abs=1e-12)


def test_sparse_data_and_several_classes():
    iris, species = load_iris(return_X_y=True)
    names = np.array(["<a>", "b", "c"])[species]
    result = compare(
        sparse.csr_array(iris), names, name="iris", chosen=methods(CHOSEN[:1]), n_folds=3
    )
    assert not result.standardised
    assert result.classes == ("<a>", "b", "c")
    method = result.methods[0]
    assert method.failure is None
    assert sum(count for _, _, count in method.calibration) == 3 * len(species)


def test_groups_are_held_out_together():
    """A column per group determines the class, but only for groups in the training part."""
    groups = np.repeat(np.arange(20), 10)
    known = {"name": "groups", "chosen": methods(["RidgeClassifier"]), "n_folds": 4}
    labels = np.random.default_rng(0).permutation(np.arange(20) % 2)[groups]
    apart = compare(np.eye(20)[groups], labels, **known)
    assert apart.methods[0].error == 0
    together = compare(np.eye(20)[groups], labels, groups=groups, **known)
    assert together.methods[0].error > 0.2


def test_a_method_that_fails_is_a_result():
    chosen = {"broken": MarginPursuitClassifier(scale=-1.0), **methods(["RidgeClassifier"])}
    told = []
    result = compare(X, Y, name="cancer", chosen=chosen, n_folds=2, progress=told.append)
    assert "ValueError: scale must be" in result.methods[0].failure
    assert result.methods[1].failure is None
    assert told == ["RidgeClassifier"] * 2


def test_unknown_scoring_and_baseline():
    chosen = methods(CHOSEN[:1])
    with pytest.raises(ValueError, match=r"scoring must be one of .* got 'speed'"):
        compare(X, Y, name="cancer", chosen=chosen, scoring="speed")
    with pytest.raises(ValueError, match=r"baseline must be one of .* got 'LinearSVC'"):
        compare(X, Y, name="cancer", chosen=chosen, baseline="LinearSVC")


def test_repetitions_use_other_folds_and_do_not_narrow_the_interval():
    chosen = methods(["RidgeClassifier"])
    (one,) = compare(X, Y, name="cancer", chosen=chosen, n_folds=3).methods
    (two,) = compare(X, Y, name="cancer", chosen=chosen, n_folds=3, n_repeats=2).methods
    assert [f.error for f in two.folds[:3]] == [f.error for f in one.folds]
    assert [f.error for f in two.folds[3:]] != [f.error for f in one.folds]
    width = np.diff(one.error_interval)
    assert np.diff(two.error_interval) == pytest.approx(width, rel=0.1)


@pytest.mark.parametrize("kind", ["flips", "leverage"])
def test_contamination_changes_training_rows_only(kind):
    contamination = Contamination(kind, 0.1)
    splits = stratified_splits(Y, contamination=contamination, seed=3)
    for split, plain in zip(splits, stratified_splits(Y, seed=3), strict=True):
        np.testing.assert_array_equal(split.test, plain.test)
        rows, labels = split.training_rows(X, Y)
        clean, known = plain.training_rows(X, Y)
        wrong = labels != known
        assert wrong.sum() == round(0.1 * len(known))
        moved = clean[wrong]
        if kind == "leverage":
            mean = clean.mean(axis=0)
            moved = mean + 10 * (moved - mean)
        np.testing.assert_allclose(rows[wrong], moved, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(rows[~wrong], clean[~wrong], rtol=1e-12, atol=1e-12)


def test_contaminated_comparison():
    known = {"name": "cancer", "chosen": methods(CHOSEN[1:2]), "n_folds": 3}
    clean = compare(X, Y, **known)
    result = compare(X, Y, contamination=Contamination("leverage"), **known)
    assert result.name == "cancer, 5 % leverage outliers"
    assert "5 % leverage outliers among the training rows" in result.description
    assert result.methods[0].error > clean.methods[0].error + 0.02
    as_sparse = compare(sparse.csr_array(X), Y, contamination=Contamination("flips", 0.2), **known)
    assert as_sparse.name == "cancer, 20 % wrong labels"
    assert as_sparse.methods[0].failure is None


def test_scores_are_those_of_scikit_learn():
    iris, species = load_iris(return_X_y=True)
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    for data, y in ((X, Y), (iris, species)):
        result = compare(data, np.array(["a", "b", "c"])[y], name="d", chosen=methods(CHOSEN))
        several = len(result.classes) > 2
        names = {
            "accuracy": "accuracy",
            "balanced_accuracy": "balanced_accuracy",
            "f1": "f1_macro" if several else "f1",
            "neg_log_loss": "neg_log_loss",
            "roc_auc": "roc_auc_ovr" if several else "roc_auc",
        }
        for method in result.methods:
            pipeline = make_pipeline(StandardScaler(), methods([method.name])[method.name])
            for name, theirs in names.items():
                ours = method.scores(name)
                if method.name == "RidgeClassifier" and name == "neg_log_loss":
                    assert ours is None
                    continue
                if several and name == "roc_auc" and method.name == "RidgeClassifier":
                    assert 0.8 < min(ours) <= max(ours) <= 1  # scikit-learn needs probabilities
                    continue
                expected = cross_val_score(pipeline, data, y, cv=folds, scoring=theirs)
                np.testing.assert_allclose(ours, expected, rtol=1e-3, atol=1e-3)


def test_the_auc_is_that_of_the_classes_that_are_held_out():
    ranking = np.array([[0.9, 0.5, 0.1], [0.2, 0.3, 0.9], [0.3, 0.1, 0.5]])
    predicted = Predictions(np.arange(3), np.array([0, 2, 2]), None, ranking)
    expected = (1.0 + 0.5) / 2  # of the classes 0 and 1 against the rest
    assert all_scores(np.array([0, 1, 0]), predicted)["roc_auc"] == expected
    assert "roc_auc" not in all_scores(np.array([1, 1, 1]), predicted)


def test_calibration_error_is_the_mean_distance_from_the_diagonal():
    bins = ((0.1, 0.2, 30), (0.9, 0.7, 10))
    assert MethodResult("m", {}, {}, (), bins, None).calibration_error == pytest.approx(0.125)
    assert MethodResult("m", {}, {}, (), None, None).calibration_error is None


@pytest.mark.parametrize(
    ("y", "folds", "message"),
    [
        (np.zeros(6), 2, "at least 2 classes"),
        (np.array([0, 0, 0, 0, 0, 1]), 2, "class 1 has 1 sample;"),
        (np.array([0, 0, 0, 1, 1, 1]), 1, "n_folds must be a whole number of at least 2"),
    ],
)
def test_data_that_cannot_be_split(y, folds, message):
    with pytest.raises(ValueError, match=message):
        compare(np.eye(6), y, name="none", n_folds=folds)


def test_times_are_relative_to_a_pass_over_the_data():
    timings = time_fits(methods(CHOSEN[:1]), 1000, 3)
    assert [timing.name for timing in timings] == CHOSEN[:1]
    assert timings[0].seconds > 0
    assert timings[0].passes > 1
    assert timings[0].error < 0.3


def test_runs_are_saved_and_loaded(result, tmp_path):
    run = Run.now(
        "title",
        sets=(result,),
        listings=(Table("claims", "all", ("claim", "verdict"), (("a", "holds"),)),),
        figures=(Figure("f", "c", "<svg/>"),),
    )
    run.save(tmp_path / "run.json")
    assert Run.load(tmp_path / "run.json") == run
    assert Run.load(tmp_path) == run


def edit(run, *keys, value):
    content = json.loads(run.to_json())
    place = content
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    return json.dumps(content)


def test_invalid_runs_are_rejected(result):
    run = Run.now("title", sets=(result,))
    method = ("sets", 0, "methods", 0)
    for text, message in [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "not a run"),
        (edit(run, "format", value="marginpursuit run 2"), "another version"),
        (edit(run, "title", value=3), "run.title"),
        (edit(run, "strange", value=3), r"run: unknown fields \['strange'\]"),
        (edit(run, *method, "folds", 0, "error", value="0"), r"methods\[0\].folds\[0\].error"),
        (edit(run, *method, "folds", 0, "error", value=True), r"folds\[0\].error"),
        (edit(run, *method, "folds", 0, "error", value=float("inf")), r"folds\[0\].error"),
        (edit(run, *method, "folds", 0, value={}), r"folds\[0\]: .*missing"),
        (edit(run, *method, "calibration", 0, value=[1.0, 2.0]), r"calibration\[0\]"),
        (edit(run, *method, "settings", value=["x"]), "settings"),
    ]:
        with pytest.raises(RunFileError, match=message):
            Run.from_json(text)
