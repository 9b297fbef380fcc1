"""Files that commands read for a fitted model: other formats, files without names, types, names."""

from pathlib import Path

import numpy as np
import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("skrub")

from cli_calls import call, squeezed  # noqa: E402
from sklearn.compose import ColumnTransformer  # noqa: E402
from sklearn.impute import SimpleImputer  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import OneHotEncoder, StandardScaler  # noqa: E402

from marginpursuit import MarginPursuitClassifier, load_model, save_model  # noqa: E402

QUICK = ("--method", "MarginPursuitClassifier", "--folds", "2", "--bootstrap", "0")


def numbers(n=60):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=n), "flag": rng.integers(0, 2, n)}).round(3)
    return frame.assign(y=np.where(frame.a > 0, "yes", "no"))


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Call a command in a folder with n.csv, a table of numbers, and m, its model."""
    monkeypatch.chdir(tmp_path)
    numbers().to_csv("n.csv", index=False)
    call("fit", "n.csv", "-t", "y", "-o", "m", *QUICK)
    return call


@pytest.mark.parametrize("suffix", [".xlsx", ".parquet"])
def test_booleans_are_numbers_and_dates_are_not(suffix, run):
    pytest.importorskip("openpyxl")
    write = pd.DataFrame.to_excel if suffix == ".xlsx" else pd.DataFrame.to_parquet
    write(numbers().astype({"flag": bool}), f"new{suffix}", index=False)
    assert run("predict", "m", f"new{suffix}").stdout == run("predict", "m", "n.csv").stdout
    write(numbers().assign(flag=pd.Timestamp("2024-01-01")), f"new{suffix}", index=False)
    refused = run("predict", "m", f"new{suffix}", code=3).stderr
    assert refused.startswith(
        f"error: new{suffix}: column 'flag': expected numbers, found datetime64"
    )


@pytest.mark.parametrize("name", ["n.txt", "n.xlsx", "n.csv"])
def test_explain_reads_what_predict_reads(name, run):
    pytest.importorskip("openpyxl")
    explain = ("explain", "m", "--bootstrap", "2")
    expected = run(*explain, "n.csv").stdout.partition("suspicious labels")
    frame = numbers()
    if name == "n.xlsx":
        frame.to_excel(name, index=False)
    else:
        frame.to_csv(name, index=False, sep=";", decimal=",")
    assert run(*explain, name).stdout.partition("suspicious labels")[0] == expected[0]
    assert len(run("predict", "m", name).stdout.splitlines()) == 61
    frame.loc[:9, "y"] = "NA"
    frame.to_csv("missing.csv", index=False)
    assert (
        "left out: 10 rows without a value of 'y'. 10 cells such as 'NA'"
        in run(*explain, "missing.csv").stderr
    )
    frame.to_csv("missing.csv", index=False, columns=["a", "y"])
    assert "missing.csv: there is no column 'flag'" in run(*explain, "missing.csv", code=3).stderr


def test_explain_finds_the_classes_by_their_text(run):
    """A cast of the text "False" to a boolean is True."""
    frame = numbers().assign(y=numbers().y == "yes")
    frame.to_parquet("b.parquet")
    frame.to_csv("b.csv", index=False)
    run("fit", "b.parquet", "-t", "y", "-o", "b", *QUICK)
    effects = [run("explain", "b", f"b.{suffix}", "--bootstrap", "3").stdout.partition("\n\n")[0]
               for suffix in ("parquet", "csv")]  # fmt: skip
    assert effects[0] == effects[1]


def headerless(frame, path):
    frame.to_csv(path, index=False, header=False)


@pytest.mark.parametrize("columns", [["y", "a", "b"], ["a", "b", "y"], ["a", "y", "b"]])
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_files_without_names_may_have_the_target_or_not(columns, kernel, run):
    frame = numbers().rename(columns={"flag": "b"})
    frame = frame.assign(y=(frame.y == "yes").astype(int))
    headerless(frame[columns], "h.csv")
    target = str(1 + columns.index("y"))
    run("fit", "h.csv", "-t", target, "-o", "h", *QUICK, "--set", f"kernel={kernel}")
    expected = ["prediction", *map(str, load_model("h").predict(frame[["a", "b"]].to_numpy()))]
    assert run("predict", "h", "h.csv").stdout.split() == expected
    headerless(frame[["a", "b"]], "new.csv")
    done = run("predict", "h", "new.csv")
    assert (done.stdout.split(), done.stderr) == (expected, "")
    frame[["a", "b"]].to_csv("names.csv", index=False)
    done = run("predict", "h", "names.csv")
    assert done.stdout.split() == expected
    assert done.stderr == "the columns of the fit have no names; used by position: 'a', 'b'\n"
    frame[["a", "b"]].to_csv("names.csv", index=False, sep=";", decimal=",")
    assert run("predict", "h", "names.csv").stdout.split() == expected
    headerless(frame[["a"]], "new.csv")
    refused = run("predict", "h", "new.csv", code=3).stderr
    assert "new.csv: found 1 column; expected 2 or 3, as in the fit, whose columns have" in refused
    if kernel == "linear":
        assert "suspicious labels" in run("explain", "h", "h.csv", "--bootstrap", "2").stdout


def test_dropped_columns_of_files_without_names(run):
    frame = numbers().rename(columns={"flag": "b"})
    frame = frame.assign(y=(frame.y == "yes").astype(int), c=1000.0, d=frame.a * 1000)
    headerless(frame[["y", "c", "a", "b", "d"]], "h.csv")
    run("fit", "h.csv", "-t", "1", "--drop", "2", "--drop", "5", "-o", "h", *QUICK)
    expected = run("predict", "h", "h.csv").stdout
    assert expected.split()[1:] == [
        str(label) for label in load_model("h").predict(frame[["a", "b"]].to_numpy())
    ]
    for columns in (["c", "a", "b", "d"], ["a", "b"]):
        headerless(frame[columns], "new.csv")
        assert run("predict", "h", "new.csv").stdout == expected
    effects = run("explain", "h", "h.csv", "--bootstrap", "2").stdout
    assert "suspicious labels" in effects
    assert "column 3" in effects
    assert "column 4" in effects
    assert "column 1" not in effects


def test_mixed_tables_without_names_may_have_the_target_or_not(run):
    frame = numbers().rename(columns={"flag": "b"})
    frame = frame.assign(y=(frame.y == "yes").astype(int)).astype({"b": str})
    frame.loc[3, "b"] = ""
    headerless(frame[["y", "a", "b"]], "h.csv")
    run("fit", "h.csv", "-t", "1", "-o", "h", *QUICK)
    expected = run("predict", "h", "h.csv").stdout
    headerless(frame[["a", "b"]], "new.csv")
    assert run("predict", "h", "new.csv").stdout == expected


def test_archives_with_missing_numbers_name_them(run):
    frame = numbers()
    X = frame[["a", "flag"]].to_numpy()
    np.savez("n.npz", X=X, y=frame.y.to_numpy(str))
    run("fit", "n.npz", "-o", "z", *QUICK)
    assert run("predict", "z", "n.npz").stdout == run("predict", "m", "n.csv").stdout
    X[3, 1] = np.nan
    np.savez("nan.npz", X=X, y=frame.y.to_numpy(str))
    message = "error: nan.npz: row 3, column '2': expected a finite number, found NaN, a missing"
    assert message in run("predict", "z", "nan.npz", code=3).stderr
    assert message in run("fit", "nan.npz", "-o", "z", *QUICK, code=3).stderr
    np.savez("big.npz", X=frame[["a", "flag"]].to_numpy() * 1e160, y=frame.y.to_numpy(str))
    refused = run("fit", "big.npz", "-o", "z", *QUICK, code=3).stderr
    assert refused.endswith("Choose another unit, or leave it out.\n")


def test_pipelines_of_other_steps_get_numbers_by_name_or_a_true_error(run):
    frame = numbers()
    X, y = frame[["a", "flag"]], frame.y
    by_name = ColumnTransformer([("s", StandardScaler(), ["flag", "a"])])
    save_model(make_pipeline(by_name, MarginPursuitClassifier()).fit(X, y), "p")
    assert len(run("predict", "p", "n.csv").stdout.splitlines()) == 61
    imputed = X.mask(np.arange(120).reshape(60, 2) % 7 == 0)
    imputed.to_csv("missing.csv", index=False)
    save_model(make_pipeline(SimpleImputer(), MarginPursuitClassifier()).fit(imputed, y), "p")
    categories = X.assign(flag=np.where(X.flag, "u", "v"))
    categories.to_csv("text.csv", index=False)
    one_hot = ColumnTransformer([("o", OneHotEncoder(), ["flag"])], remainder="passthrough")
    save_model(make_pipeline(one_hot, MarginPursuitClassifier()).fit(categories, y), "q")
    for model, data, first in [
        ("p", "missing.csv", "SimpleImputer"),
        ("q", "text.csv", "ColumnTr"),
    ]:
        refused = run("predict", model, data, code=3).stderr
        assert f"error: {data}: line 2, column " in refused
        assert f". The model starts with a {first}" in refused
        assert "as in all rows of the fit" not in refused


def test_an_identifier_called_prediction_is_kept(run):
    frame = numbers().assign(prediction=[f"x{k}" for k in range(60)])
    frame["probability of no"] = frame.prediction
    frame.to_csv("i.csv", index=False)
    ids = ("--id", "prediction", "--id", "probability of no")
    run("fit", "i.csv", "-t", "y", "-o", "i", *ids, *QUICK)
    lines = run("predict", "i", "i.csv", "-p").stdout.splitlines()
    header = "prediction (2),probability of no (2),prediction,probability of no,probability of yes"
    assert lines[0] == header
    assert lines[1].startswith("x0,x0,yes,")


def test_further_sheets_are_noted(run):
    with pd.ExcelWriter("a.xlsx") as book:
        numbers().to_excel(book, sheet_name="data", index=False)
        numbers().to_excel(book, sheet_name="old", index=False)
    done = run("fit", "a.xlsx", "-t", "y", "-o", "m", *QUICK)
    assert "only the first of 2 sheets, 'data', is read\n" in done.stderr


def test_a_model_of_a_spreadsheet_has_a_table_step(run):
    pytest.importorskip("openpyxl")
    numbers().to_excel("n.xlsx", index=False)
    run("fit", "n.xlsx", "-t", "y", "-o", "x", *QUICK)
    refused = squeezed(run("export", "x", "-o", "x.sql", code=2).stderr)
    assert "as models of mixed tables and of .xlsx files have" in refused
    assert "save the numbers as .csv and fit again" in refused
    assert not Path("x.sql").exists()
