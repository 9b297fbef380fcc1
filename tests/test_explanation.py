"""Explanations: suspicious labels, standard errors, influence, and the commands that print them."""

import json

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from typer.testing import CliRunner

from marginpursuit import LDMClassifier, MarginPursuitClassifier, load_model, save_model
from marginpursuit.cli.app import app
from marginpursuit.experiments.coefficients import Bootstrap, bootstrap, list_coefficients
from marginpursuit.experiments.explanation import TrainingRows, explain, find_label_issues
from marginpursuit.inspection import bootstrap_coefficients, label_issues, row_influence


@pytest.fixture(scope="module")
def data():
    """Two classes, a wrong label in row 5 and an outlier in row 8."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((150, 3)) * [1.0, 10.0, 0.1]
    y = np.where(X[:, 0] + 0.05 * X[:, 1] > 0, "b", "a")
    X[5], y[5] = [3.0, 0.0, 0.0], "a"
    X[8] = [-30.0, 0.0, 0.0]
    y[8] = "a"
    return X, y


def test_label_issues_by_hand():
    """The thresholds are the means 0.8 and 0.6 of the probabilities of the given labels."""
    labels = np.array(["a", "a", "a", "b", "b"])
    proba = np.array([[0.9, 0.1], [0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.6, 0.4]])
    found = label_issues(labels, proba, ["a", "b"])
    np.testing.assert_allclose(found.label_quality, [0.9, 0.9, 0.6, 0.8, 0.4])
    assert found.predicted_label.tolist() == ["a", "a", "a", "b", "a"]
    assert found.is_label_issue.tolist() == [False] * 5  # 0.6 for a is below its threshold 0.8
    proba[4] = [0.95, 0.05]
    found = label_issues(labels, proba, ["a", "b"])
    assert found.is_label_issue.tolist() == [False] * 4 + [True]
    assert found.ranking[0] == 4
    frame = pytest.importorskip("pandas") and found.to_frame()
    names = ["is_label_issue", "label_quality", "given_label", "predicted_label"]
    assert frame.columns.tolist() == names


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": [["a"], ["b"]]}, "labels must be an array of one dimension.*got 2 dimensions"),
        ({"labels": None}, "labels must be an array of one dimension.*got 0 dimensions"),
        ({"classes": ["a", "a"]}, "classes must be distinct"),
        ({"proba": [[2.0, 0.1], [0.2, 0.8]]}, r"in \[0, 1\]; got values from 0 to 2. Pass prob"),
        ({"proba": [[-1.0, 0.1], [0.2, 0.8]]}, r"in \[0, 1\]; got values from -1 to 0.8"),
        ({"proba": sparse.csr_matrix(np.eye(2))}, r"dense array; got a sparse.*Pass its toarray"),
    ],
)
def test_label_issues_refuse_other_input(change, message):
    given = {"labels": ["a", "b"], "proba": [[0.9, 0.1], [0.2, 0.8]], "classes": ["a", "b"]}
    with pytest.raises((TypeError, ValueError), match=message):
        label_issues(**(given | change))


def test_labels_of_overlapping_classes_are_no_issues():
    """Labels are drawn from the probabilities: none is wrong."""
    rng = np.random.default_rng(0)
    p = rng.uniform(0.1, 0.9, 4000)
    labels = (rng.random(4000) < p).astype(int)
    proba = np.column_stack([1 - p, p])
    assert label_issues(labels, proba, [0, 1], max_ratio=1.0).is_label_issue.mean() > 0.15
    assert label_issues(labels, proba, [0, 1]).is_label_issue.mean() < 0.07


def test_twenty_per_cent_of_flipped_labels_are_flagged():
    rng = np.random.default_rng(0)
    true = rng.integers(0, 2, 2000)
    is_wrong = rng.random(2000) < 0.2
    labels = np.where(is_wrong, 1 - true, true)
    proba = np.where(true[:, np.newaxis] == [0, 1], 0.8, 0.2)
    proba += rng.uniform(-0.02, 0.02, 2000)[:, np.newaxis] * [1, -1]
    found = label_issues(labels, proba, [0, 1])
    assert found.is_label_issue[is_wrong].mean() > 0.45  # half of the rows are below the mean
    assert not found.is_label_issue[~is_wrong].any()


def test_quality_is_that_of_the_fit_where_it_is_given():
    labels, proba = np.array(["a", "b"]), np.array([[0.9, 0.1], [0.2, 0.8]])
    fitted = np.array([[0.3, 0.7], [0.4, 0.6]])
    found = label_issues(labels, proba, ["a", "b"], fitted_proba=fitted)
    assert found.label_quality.tolist() == [0.3, 0.6]
    assert found.predicted_label.tolist() == ["a", "b"]
    with pytest.raises(ValueError, match="fitted_proba must have a row"):
        label_issues(labels, proba, ["a", "b"], fitted_proba=fitted[:1])
    with pytest.raises(ValueError, match="max_ratio"):
        label_issues(labels, proba, ["a", "b"], max_ratio=2.0)


def test_label_issues_refuses_what_does_not_match():
    with pytest.raises(ValueError, match=r"a column for each of 2 classes; got shape \(1, 3\)"):
        label_issues(["a"], [[0.1, 0.2, 0.7]], ["a", "b"])
    with pytest.raises(ValueError, match="must be finite"):
        label_issues(["a"], [[np.nan, 0.2]], ["a", "b"])
    with pytest.raises(ValueError, match=r"labels must be among classes; got .*'c'"):
        label_issues(["c"], [[0.1, 0.9]], ["a", "b"])


def test_flipped_labels_are_found_first():
    X, y = load_breast_cancer(return_X_y=True)
    rng = np.random.default_rng(1)
    flipped = rng.choice(len(y), 20, replace=False)
    y[flipped] = 1 - y[flipped]
    from marginpursuit import MarginPursuitClassifierCV

    model = MarginPursuitClassifierCV(cv=3).fit(X, y)
    found = label_issues(y, model.out_of_fold_proba_, model.classes_)
    assert len(set(flipped) & set(found.ranking[:20].tolist())) >= 16


def test_classes_of_a_single_group_are_named():
    rng = np.random.default_rng(0)
    y = np.repeat(["a", "b", "c"], 10)
    rows = TrainingRows(rng.normal(size=(30, 2)), y, groups=np.repeat([0, 1, 2], 10))
    with pytest.raises(ValueError, match=r"class '[abc]' has no row left to fit .* two groups"):
        find_label_issues(rows, n_folds=3)


def test_bootstrap_agrees_with_the_variance_over_samples():
    """The bootstrap within one sample approximates the deviation over independent samples."""
    rng = np.random.default_rng(0)

    def draw():
        X = rng.standard_normal((300, 2))
        return X, (X[:, 0] + rng.standard_normal(300) > 0).astype(int)

    def fit(X, y):
        return MarginPursuitClassifier(probability=None).fit(X, y)

    true = np.std([fit(*draw()).coef_ for _ in range(60)], axis=0)
    errors = bootstrap_coefficients(fit, *draw(), n_resamples=60)
    np.testing.assert_allclose(errors, true, rtol=0.35)
    again = bootstrap_coefficients(fit, *draw(), n_resamples=2, random_state=1)
    assert again.shape == (1, 2)
    with pytest.raises(ValueError, match="n_resamples"):
        bootstrap_coefficients(fit, *draw(), n_resamples=1)


def test_influence_agrees_with_leaving_rows_out():
    """Rows that change the scores most when they are left out have the largest influence."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((200, 3)) * [1.0, 10.0, 0.1]
    y = (X[:, 0] + rng.standard_normal(200) > 0).astype(int)
    options = {"probability": None, "alpha": 1e-3, "alpha_unit": "absolute"}
    model = MarginPursuitClassifier(leverage_bound=None, **options).fit(X, y)
    scores = model.decision_function(X)
    influence = row_influence(model, X, y).influence
    change = []
    for row in range(60):
        kept = np.arange(len(y)) != row
        left = MarginPursuitClassifier(leverage_bound=None, **options).fit(X[kept], y[kept])
        change.append(np.sqrt(np.mean((left.decision_function(X) - scores) ** 2)))
    assert np.corrcoef(change, influence[:60])[0, 1] > 0.95
    assert influence.mean() == pytest.approx(1)


def test_distances_of_rows(data):
    X, y = data
    found = row_influence(LDMClassifier().fit(X, y), X, y)
    assert found.influence is None
    assert found.distance.argmax() == 8
    assert np.median(found.distance) == pytest.approx(1, rel=0.01)
    model = MarginPursuitClassifier().fit(sparse.csr_array(X), y)
    assert row_influence(model, sparse.csr_array(X), y).distance.argmax() >= 0
    three = np.where(X[:, 1] > 5, "c", y)
    assert row_influence(MarginPursuitClassifier().fit(X, three), X, three).influence.min() >= 0


def test_coefficients_are_ordered_by_importance():
    model = LogisticRegression().fit([[0.0, 0.0], [1.0, 100.0]], [0, 1])
    model.coef_ = np.array([[1.0, 0.1]])
    known = Bootstrap(model.coef_, np.array([[0.5, 0.25]]), np.array([0.5, 50.0]), 20)
    first, second = list_coefficients(model, bootstrap=known)
    assert (first.feature, first.effect, first.importance) == ("column 2", 0.1, 5.0)
    assert (second.label, second.standard_error) == ("1", 0.5)
    first, second = list_coefficients(model)
    assert (first.feature, first.standard_error, first.importance) == ("column 1", None, None)


def test_standard_errors_are_kept_with_the_fit_that_they_belong_to(data, tmp_path):
    X, y = data
    model = MarginPursuitClassifier().fit(X, y)
    assert Bootstrap.of(model) is None
    found = bootstrap(model, X, y, 5)
    np.testing.assert_allclose(found.deviations, X.std(axis=0))
    found.store(model)
    stored = Bootstrap.of(load_model(save_model(model, tmp_path / "m")))
    np.testing.assert_array_equal(stored.errors, found.errors)
    assert stored.n_resamples == 5
    model.fit(2 * X, y)
    assert Bootstrap.of(model) is None  # errors of an earlier fit
    for odd in ({"coef": model.coef_}, 3, found._replace(errors=found.errors[:, :2])._asdict()):
        model.bootstrap_ = odd
        assert Bootstrap.of(model) is None


def test_explanation_finds_the_wrong_label_and_the_outlier(data):
    X, y = data
    names = [f"line {number + 2}" for number in range(len(y))]
    model = MarginPursuitClassifier().fit(X, y)
    found = explain(model, TrainingRows(X, y, names=names), n_resamples=5)
    by_row = {row.row: row for row in found.rows}
    assert by_row["line 7"].is_label_issue
    assert by_row["line 7"].predicted == "b"
    assert by_row["line 10"].distance > 5
    assert found.coefficients[0].feature == "column 1"
    assert found.coefficients[0].standard_error > 0
    with pytest.raises(ValueError, match="class 'b' has a single row, line 4; expected at least"):
        explain(model, TrainingRows(X[:4], np.array([*"aaba"]), names=names), n_resamples=2)


def command(*arguments, code=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


def test_commands_on_numbers(data, tmp_path):
    X, y = data
    lines = [
        "u,v,w,kind",
        *(",".join([*map(str, row), label]) for row, label in zip(X, y, strict=True)),
    ]
    path = tmp_path / "a.csv"
    path.write_text("\n".join(lines))
    model = MarginPursuitClassifier().fit(X, y)
    model.feature_names_in_ = np.array(["u", "v", "w"], dtype=object)
    file = save_model(model, tmp_path / "m")
    done = command("explain", file)
    assert "u " in done.stdout
    assert "For standard errors, which the model does not hold, influential" in done.stderr
    fitted = tmp_path / "fitted"
    options = ["-t", "kind", "--method", "MarginPursuitClassifier", "--folds", 2]
    command("fit", path, *options, "-o", fitted, "--bootstrap", 3)
    done = command("explain", fitted)
    assert "± standard error of 3 bootstrap fits" in done.stdout
    assert "For influential and suspicious rows: " in done.stderr
    answer = json.loads(command("explain", fitted, "--json").stdout)
    assert answer["n_resamples"] == 3
    assert all(part["standard_error"] > 0 for part in answer["coefficients"])
    assert command("fit", path, *options, "-o", fitted, "--bootstrap", 1, code=2)
    done = command("explain", file, path, "-t", "kind", "--bootstrap", 5)
    assert "standard error of 5 bootstrap fits" in done.stdout
    assert "line 7 " in done.stdout
    answer = json.loads(
        command("explain", file, path, "-t", "kind", "--bootstrap", 5, "--json").stdout
    )
    assert answer["n_features"] == 3
    assert answer["coefficients"][0]["feature"] == "u"
    done = command("issues", path, "-t", "kind", "--folds", 3, "-o", tmp_path / "i.csv")
    assert "of 150 labels are suspicious" in done.stdout
    assert "line 7 " in done.stdout
    header, first = (tmp_path / "i.csv").read_text().splitlines()[:2]
    assert header == "row,is_label_issue,label_quality,given_label,predicted_label"
    assert first.startswith("line 7,True,")
    ranked = json.loads(command("issues", path, "-t", "kind", "--folds", 3, "--json").stdout)
    assert ranked["row"][0] == "line 7"
    path.write_text("\n".join(lines).replace(",a", ",z"))
    assert "the class 'z'" in command("explain", file, path, "-t", "kind", code=3).stderr


def test_commands_on_a_mixed_table(tmp_path):
    pytest.importorskip("skrub")
    from mixed_table import mixed_table
    from sklearn.pipeline import make_pipeline

    from marginpursuit.tables import TableVectoriser

    frame = mixed_table()
    path = tmp_path / "a.csv"
    frame.to_csv(path, index=False)
    vectoriser = TableVectoriser(target="status", ids=["customer"])
    model = make_pipeline(vectoriser, MarginPursuitClassifier()).fit(frame, frame["status"])
    file = save_model(model, tmp_path / "m")
    assert "note: refund" in command("explain", file).stdout
    done = command("explain", file, path, "--bootstrap", 3, "--json")
    answer = json.loads(done.stdout)
    effects = {part["feature"]: part for part in answer["coefficients"]}
    column = model[0].get_feature_names_out().tolist().index("age")
    scale = model[0].features_[column].scale
    assert effects["age"]["effect"] == pytest.approx(model[-1].coef_[0, column] / scale)
    assert all(
        row["row"].startswith("line ") and "customer C1" in row["row"] for row in answer["rows"]
    )
    assert "no column 'x'" in command("explain", file, path, "-t", "x", code=3).stderr
