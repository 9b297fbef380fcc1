"""Mixed tables in the command line: compare, fit and predict."""

import json
from pathlib import Path

import numpy as np
import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("skrub")

from cli_calls import call, squeezed  # noqa: E402
from mixed_table import mixed_table  # noqa: E402

from marginpursuit import load_model, save_model  # noqa: E402
from marginpursuit.experiments.runs import Run  # noqa: E402


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Call a command in an empty folder; the exit code is checked."""
    monkeypatch.chdir(tmp_path)
    mixed_table().to_csv("customers.csv", index=False)
    return call


def test_compare_takes_a_mixed_table(run):
    done = run("compare", "customers.csv", "-t", "status", "--method", "MarginPursuitClassifier",
               "--folds", "3")  # fmt: skip
    for line in (
        "column customer: dropped, 200 values in 200 cells: an identifier",
        "column income: number, decimal '.', thousands ','",
        "column signup: date, format %d.%m.%Y",
        "column empty: dropped, no values; 200 missing",
    ):
        assert done.stderr.count(line) == 1
    (result,) = Run.load("out").sets
    assert (result.n_rows, result.n_columns, result.classes) == (200, 10, ("left", "stays"))
    assert result.columns[0] == "customer: dropped, 200 values in 200 cells: an identifier"
    assert all(method.error < 0.2 for method in result.methods)


def test_the_table_step_is_fitted_to_training_rows_only(run):
    """The value of a row that is held out is new: a leak would give it a column of its own."""
    from marginpursuit.experiments.cross_validation import stratified_splits, vectorised_splits
    from marginpursuit.tables import TableVectoriser

    frame = pd.DataFrame({"a": [f"v{k % 100}" for k in range(200)], "b": np.arange(200) % 7})
    y = np.arange(200) % 2
    vectoriser = TableVectoriser(min_frequency=1, categorical=["a"])
    for split in vectorised_splits(stratified_splits(y), vectoriser, frame):
        train, test = split.matrices
        known = set(frame["a"].iloc[split.train])
        assert train.shape[1] == test.shape[1] == len(known) + 1
        n_new = sum(value not in known for value in frame["a"].iloc[split.test])
        assert (test[:, 1:].sum(axis=1) == 0).sum() == n_new


def test_fit_and_predict_a_mixed_table(run):
    arguments = ("fit", "customers.csv", "-t", "status", "--id", "customer", "-o", "m",
                 "--method", "MarginPursuitClassifier", "--folds", "2")  # fmt: skip
    answer = json.loads(run(*arguments, "--json").stdout)
    assert (answer["n_columns"], answer["n_rows"]) == (10, 200)
    assert answer["n_features"] > 20
    assert answer["error"] < 0.2
    model = load_model("m")
    frame = mixed_table()
    new = frame[frame.columns[::-1]].drop(columns=["status", "empty"]).assign(more=1)
    new.to_csv("new.csv", index=False)
    done = run("predict", "m", "new.csv", "-p")
    lines = done.stdout.splitlines()
    assert lines[0] == "customer,prediction,probability of left,probability of stays"
    expected = model.predict(frame).tolist()
    assert [line.split(",")[:2] for line in lines[1:]] == [
        [name, label] for name, label in zip(frame["customer"], expected, strict=True)
    ]
    assert done.stderr == "ignored, as the model does not have them: 'more'\n"
    new.drop(columns=["age", "note"]).to_csv("less.csv", index=False)
    refused = run("predict", "m", "less.csv", code=3)
    assert "less.csv: the table lacks 2 of 7 columns: 'age', 'note'; it has " in refused.stderr
    new.assign(plan="new").to_csv("odd.csv", index=False)
    done = run("predict", "m", "odd.csv")
    assert (
        "the fit did not have the value of 200 of 200 cells, such as 'new' in line 2" in done.stderr
    )


def test_a_missing_target_is_guessed(run):
    message = squeezed(run("compare", "customers.csv", code=2).stderr)
    assert "The columns are: customer, age, income, plan" in message
    assert "The likeliest is --target 'status'" in message
    refused = run("compare", "customers.csv", "-t", "statu", code=3)
    assert "there is no column 'statu'; there are" in refused.stderr


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (["yes"] * 60, "column 'y' has the same value in all 60 rows; expected at least 2 classes"),
        (range(60), "column 'y' has 60 different values in 60 rows; expected classes"),
    ],
)
@pytest.mark.parametrize("plan", [1.5, "a"])
def test_targets_that_are_not_classes(cells, message, plan, run):
    frame = pd.DataFrame({"a": np.sin(np.arange(60.0)), "plan": plan, "y": cells})
    frame.to_csv("a.csv", index=False)
    assert message in run("fit", "a.csv", "-t", "y", "-o", "m", code=3).stderr


def test_the_folder_of_the_output_is_checked_first(run):
    fit = ("fit", "customers.csv", "-t", "status", "-o", "absent/m")
    assert "there is no folder absent." in squeezed(run(*fit, code=2).stderr)
    assert run("compare", "absent.csv", "-t", "y", code=3).stderr == (
        "error: absent.csv: No such file or directory\n"
    )


def test_rows_without_a_label_are_left_out(run):
    frame = mixed_table()
    frame.loc[:9, "status"] = ""
    frame.to_csv("a.csv", index=False)
    done = run("fit", "a.csv", "-t", "status", "-o", "m", "--folds", "2",
               "--method", "MarginPursuitClassifier")  # fmt: skip
    assert "left out: 10 rows without a value of 'status'\n" in done.stderr
    assert "190 rows" in done.stdout


def test_numeric_identifiers_are_dropped_with_a_note(run, tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"row": np.arange(60), "a": rng.normal(size=60)})
    frame.assign(y=(frame.a > 0).astype(int)).to_csv("n.csv", index=False)
    arguments = ("fit", "n.csv", "-t", "y", "-o", "m", "--folds", "2",
                 "--method", "MarginPursuitClassifier")  # fmt: skip
    assert "dropped, as a different integer in each row: row." in run(*arguments).stderr
    assert load_model("m").feature_names_in_.tolist() == ["a"]
    run(*arguments, "--numeric", "row")
    assert load_model("m").feature_names_in_.tolist() == ["row", "a"]
    frame.assign(b=1).drop(columns="row").to_csv("new.csv", index=False)
    assert "'a'" not in run("predict", "m", "new.csv", code=3).stderr.split(";")[0]


@pytest.fixture
def fitted_numbers(run):
    """Rows of numbers, and m, a model of them."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=60), "b": 1e4 * rng.normal(size=60)}).round(3)
    labelled = frame.assign(y=(frame.a > 0).astype(int))
    labelled.to_csv("n.csv")  # with an index, which has no name
    done = run("fit", "n.csv", "-t", "y", "-o", "m", "--folds", "2", "--bootstrap", "0",
               "--method", "MarginPursuitClassifier")  # fmt: skip
    assert "column 1 has no name; it is called 'column 1'\n" in done.stderr
    assert "dropped, as a different integer in each row: column 1. Keep" in done.stderr
    return labelled


def test_the_target_is_known_to_a_model_of_numbers(fitted_numbers, run):
    fitted_numbers.assign(more=1).to_csv("n.csv", index=False)
    assert (
        "ignored, as the model does not have them: 'more'\n" in run("predict", "m", "n.csv").stderr
    )
    tip = run("explain", "m").stderr.strip()
    assert tip.endswith("marginpursuit explain m DATA")
    assert "suspicious labels" in run("explain", "m", "n.csv", "--bootstrap", "2").stdout
    model = load_model("m")
    del model.target_name_
    save_model(model, "m")
    assert run("explain", "m").stderr.strip().endswith("explain m DATA --target COLUMN")


def test_a_model_of_numbers_reads_spreadsheets(fitted_numbers, run):
    pytest.importorskip("openpyxl")
    frame = fitted_numbers[["b", "a"]]
    expected = run("predict", "m", "n.csv").stdout
    frame.to_excel("n.xlsx", index=False)
    assert run("predict", "m", "n.xlsx").stdout == expected
    frame.to_csv("n.txt", index=False)
    assert run("predict", "m", "n.txt").stdout == expected
    text = frame.assign(b=[f"{value:,.3f}".translate({44: 46, 46: 44}) for value in frame.b])
    text.to_csv("eu.csv", index=False, sep=";", decimal=",")
    done = run("predict", "m", "eu.csv")
    assert done.stdout == expected
    assert "column b: number, decimal ',', thousands '.'\n" in done.stderr
    for cell, found in [("", "a missing value"), ("many", "'many'")]:
        text.assign(b=["1,5", cell, *text.b[2:]]).to_csv("eu.csv", index=False, sep=";")
        refused = run("predict", "m", "eu.csv", code=3).stderr
        assert (
            "eu.csv: line 3, column 'b': expected a number, as in all rows of the fit; " in refused
        )
        assert f"found {found}. Fill in the cell, leave out the row, or fit to a table" in refused
    text.drop(columns="a").to_csv("eu.csv", index=False, sep=";")
    assert "there is no column 'a'; there are 'b'" in run("predict", "m", "eu.csv", code=3).stderr


def test_numbers_need_no_extra(run, monkeypatch):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=60), "b": rng.normal(size=60)})
    frame.assign(y=(frame.a > 0).astype(int)).to_csv("n.csv", index=False)

    def absent(module):
        raise ImportError(module)

    monkeypatch.setattr("marginpursuit.tables.errors.import_module", absent)
    run("fit", "n.csv", "-t", "y", "-o", "m", "--folds", "2", "--method", "MarginPursuitClassifier")
    assert Path("m").exists()
    assert run("predict", "m", "n.csv").stderr == ""
    refused = run("compare", "customers.csv", "-t", "status", code=3).stderr
    assert "line 2, column 'customer': expected a number, found 'C10000'" in refused
    assert "pip install 'marginpursuit[tables]'" in refused
    assert "likeliest" in squeezed(run("compare", "n.csv", code=2).stderr)
