"""Mistakes in the use of the command line: files that stay, and messages that name the cause."""

import gzip
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from marginpursuit import load_model
from marginpursuit.experiments.runs import Run
from marginpursuit.model_files import ModelFileError

pd = pytest.importorskip("pandas")
pytest.importorskip("skrub")

from cli_calls import call, squeezed  # noqa: E402
from mixed_table import mixed_table  # noqa: E402

ONE = ("--method", "MarginPursuitClassifier")
QUICK = (*ONE, "--folds", "2", "--bootstrap", "0")


def numbers(n=60):
    """Return a table of numbers with two classes."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=n), "b": rng.normal(size=n)})
    return frame.assign(y=np.where(frame.a > 0, "yes", "no"))


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Call a command in a folder with a table of numbers, n.csv; the exit code is checked."""
    monkeypatch.chdir(tmp_path)
    numbers().to_csv("n.csv", index=False)
    return call


@pytest.mark.parametrize(
    "command",
    [
        ("fit", "n.csv", "-t", "y", "-o", "n.csv"),
        ("fit", "n.csv", "-t", "y", "-o", "link.csv"),
        ("fit", "link.csv", "-t", "y", "-o", "./n.csv"),
        ("predict", "m", "n.csv", "-o", "n.csv"),
        ("predict", "m", "n.csv", "-o", "m"),
        ("issues", "n.csv", "-t", "y", "-o", "n.csv"),
        ("export", "m", "-f", "json", "-o", "m"),
        ("report", "out", "-o", "out/run.json"),
        ("report", "out/run.json", "-o", "out/run.json"),
    ],
)
def test_an_input_is_not_replaced_by_the_output(command, run, tmp_path):
    Path("link.csv").symlink_to("n.csv")
    Path("m").write_text("not read before the check")
    Path("out").mkdir()
    Run.now("empty").save("out/run.json")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    message = squeezed(run(*command, code=2).stderr)
    assert "which this command reads; expected another file. Choose another name." in message
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("command", ["fit", "issues"])
def test_an_output_that_is_a_folder_is_refused_before_the_work(command, run, tmp_path):
    message = squeezed(run(command, "n.csv", "-t", "y", "-o", tmp_path, code=2).stderr)
    assert "is a folder; expected the name of a file." in message


def test_a_folder_without_permission_is_refused_before_the_work(run, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)  # root may write anywhere
    message = squeezed(run("fit", "n.csv", "-t", "y", "-o", "m", code=2).stderr)
    assert "is not writable. Choose another." in message
    run("fit", "n.csv", "-t", "y", "-o", "/dev/null", *QUICK)


@pytest.mark.parametrize("name", ["a.csv", "a.xlsx"])
def test_a_title_above_the_names_is_explained(name, run):
    text = "Report of 2024\n\n" + numbers().to_csv(index=False)
    Path("a.csv").write_text(text, encoding="utf-8")
    rows = [[*line.split(","), None, None][:3] for line in text.splitlines()]
    pd.DataFrame(rows).to_excel("a.xlsx", index=False, header=False)
    message = run("fit", name, "-t", "y", "-o", "m", code=3).stderr
    assert "there is no column 'y'; there are 'Report of 2024'" in message
    assert "Expected the names of the columns in the first line" in message
    assert "Remove lines above them, such as a title." in message


@pytest.mark.parametrize("command", [("compare", "n.csv", "-t", "y"), ("demo",), ("reproduce",)])
def test_a_file_is_not_a_folder_for_the_results(command, run):
    assert "'n.csv' is a file" in squeezed(run(*command, "-o", "n.csv", code=2).stderr)


def with_rare(frame, n_rare):
    frame = frame.copy()
    frame.loc[frame.index[5 : 5 + n_rare], frame.columns[-1]] = "rare"
    return frame


@pytest.mark.parametrize("table", [numbers, mixed_table])
def test_compare_and_issues_leave_out_the_only_row_of_a_class(table, run):
    frame = with_rare(table(), 1)
    frame.to_csv("rare.csv", index=False)
    target = frame.columns[-1]
    done = run("compare", "rare.csv", "-t", target, *ONE, "--folds", "3")
    assert "cannot be both fitted and held out: rare (line 7)\n" in done.stderr
    (result,) = Run.load("out").sets
    assert (result.n_rows, len(result.classes)) == (len(frame) - 1, 2)
    assert not any(method.failure for method in result.methods)
    done = run("issues", "rare.csv", "-t", target, "--folds", "2")
    assert "rare (line 7)" in done.stderr
    assert f"of {len(frame) - 1} labels are suspicious" in done.stdout


@pytest.mark.filterwarnings("always:classes with a single sample:UserWarning")
def test_a_rare_class_does_not_reduce_the_folds(run):
    """It is absent from some folds, and the only row of a class is left out of the measurement."""
    frame = with_rare(numbers(), 3)
    frame.loc[20, "y"] = "stray"
    frame.to_csv("rare.csv", index=False)
    stray = "left out of the cross-validation, as the only row of a class cannot be both fitted "
    few = "has 5 folds, and the smallest class 3 rows: some folds hold out none of it."
    for command in (["compare", *ONE], ["issues"], ["fit", "-o", "m", "--bootstrap", "2"]):
        done = run(*command[:1], "rare.csv", "-t", "y", *command[1:])
        assert f"{stray}and held out: stray (line 22)\n" in done.stderr
        assert (
            f"the cross-validation {few} Choose fewer folds with --folds NUMBER.\n" in done.stderr
        )
        assert done.stderr.count("single sample") <= 1
    assert "5-fold cross-validation" in done.stdout
    for method in Run.load("out").sets[0].methods:
        assert len(method.folds) == 5
        assert method.score("roc_auc") > 0.5


def test_two_large_classes_are_needed_to_measure_an_error(run):
    numbers().groupby("y").head(4).to_csv("few.csv", index=False)
    done = run("compare", "few.csv", "-t", "y", code=1)
    assert "4 folds instead of --folds 5: the second largest class has 4 rows\n" in done.stderr
    failure = "the largest classes, no and yes, have 3 and 3. Set cv to a smaller number, or use "
    assert failure in done.stderr
    assert "The command fit has --set cv=NUMBER.\n" in done.stderr


@pytest.mark.parametrize("table", [numbers, mixed_table])
def test_labels_that_are_words_for_missing_values(table, run):
    frame = table(200).rename(columns={"y": "status"}).assign(status=["yes", "NA"] * 100)
    frame.to_csv("a.csv", index=False)
    fit = ("fit", "a.csv", "-t", "status", "-o", "m", *QUICK)
    words = "100 cells such as 'NA' count as missing. Replace them by another word to keep them"
    refused = run(*fit, code=3).stderr
    assert "the same value in all 100 rows with a label; expected at least 2 classes" in refused
    assert words in refused
    frame.assign(status="None").to_csv("a.csv", index=False)
    assert "found no values. 200 cells such as 'None' count" in run(*fit, code=3).stderr
    frame.assign(status=["yes", "NA", "no", "no"] * 50).to_csv("a.csv", index=False)
    assert "left out: 50 rows without a value of 'status'. 50 cells such as" in run(*fit).stderr


def test_a_model_is_saved_before_its_error_is_measured(run, monkeypatch):
    def refuse(model, path):
        raise ModelFileError("refused")

    monkeypatch.setattr("marginpursuit.cli.app.save_model", refuse)
    monkeypatch.setattr("marginpursuit.cli.app.evaluate", None)
    assert run("fit", "n.csv", "-t", "y", "-o", "m", *QUICK, code=4).stderr == "error: refused\n"


@pytest.mark.parametrize("table", [numbers, mixed_table])
@pytest.mark.parametrize("method", ["LDMClassifier", "MarginPursuitClassifierCV"])
def test_a_model_with_a_kernel_keeps_its_scaler_and_is_not_explained(method, table, run):
    frame = table()
    if table is numbers:
        frame["b"] *= 1e6  # without the scaler this column alone determines the distances
    frame.to_csv("k.csv", index=False)
    target = frame.columns[-1]
    run("fit", "k.csv", "-t", target, "-o", "k", "--method", method, "--set", "kernel=rbf",
        "--folds", "2")  # fmt: skip
    model = load_model("k")
    assert [type(step).__name__ for _, step in model.steps][-2:] == ["StandardScaler", method]
    assert model.score(frame[["a", "b"]] if table is numbers else frame, frame[target]) > 0.8
    assert len(run("predict", "k", "k.csv").stdout.splitlines()) == len(frame) + 1
    for data in ([], ["k.csv", "-t", target]):
        refused = squeezed(run("explain", "k", *data, code=2).stderr)
        assert "a model with a kernel has no coefficients; expected a linear model" in refused


@pytest.mark.parametrize("table", [numbers, mixed_table])
def test_a_misspelt_column_is_told_the_likeliest_name(table, run):
    frame = table().rename(columns=str.capitalize)
    frame.to_csv("a.csv", index=False)
    target = frame.columns[-1]
    for given in (target.lower(), f"{target}s" if table is mixed_table else f" {target}"):
        refused = run("fit", "a.csv", "-t", given, "-o", "m", code=3).stderr
        assert f"there is no column {given!r}; there are " in refused
        assert refused.endswith(f". Did you mean {target!r}?\n")


@pytest.mark.parametrize("table", [numbers, mixed_table])
@pytest.mark.parametrize("option", ["--drop", "--numeric", "--categorical", "--text", "--id"])
def test_a_column_of_an_option_is_in_the_file(table, option, run):
    frame = table()
    frame.to_csv("a.csv", index=False)
    fit = ("fit", "a.csv", "-t", frame.columns[-1], "-o", "m", option, "agee")
    refused = run(*fit, code=3).stderr
    assert refused.startswith("error: a.csv: there is no column 'agee'; there are ")


@pytest.mark.parametrize("table", [numbers, mixed_table])
def test_classes_that_differ_in_case_are_noted(table, run):
    frame = table()
    target = frame.columns[-1]
    label = frame[target].iloc[0]
    frame.loc[::2, target] = frame.loc[::2, target].str.replace(label, label.upper())
    frame.to_csv("a.csv", index=False)
    noted = f"column {target!r}: the classes {label.upper()!r}, {label!r} differ in case, blank"
    assert noted in run("fit", "a.csv", "-t", target, "-o", "m", *QUICK).stderr
    table().to_csv("a.csv", index=False)
    assert "differ in case" not in run("fit", "a.csv", "-t", target, "-o", "m", *QUICK).stderr


def test_fractions_are_classes(run):
    """scikit-learn takes them for the values of a regression."""
    numbers().assign(y=np.where(numbers().y == "yes", 1.5, 0.5)).to_csv("a.csv", index=False)
    assert (
        "the most frequent class, 1.5" in run("fit", "a.csv", "-t", "y", "-o", "m", *QUICK).stdout
    )
    assert set(run("predict", "m", "a.csv").stdout.split()) == {"prediction", "0.5", "1.5"}
    run("compare", "a.csv", "-t", "y", *ONE, "--method", "LinearSVC", "--folds", "2")
    assert Run.load("out").sets[0].classes == ("0.5", "1.5")
    assert "labels are suspicious" in run("issues", "a.csv", "-t", "y", "--folds", "2").stdout


def test_classes_that_are_one_number_are_noted(run):
    numbers().assign(y=["1", "1.0", "0"] * 20).to_csv("a.csv", index=False)
    noted = "column 'y': the classes '1', '1.0' differ in case, blanks or the form of a number only"
    assert noted in run("fit", "a.csv", "-t", "y", "-o", "m", *QUICK).stderr


def test_columns_whose_squares_overflow_are_named(run):
    frame = numbers()
    frame.insert(0, "huge", frame.a * 1e199)
    frame.to_csv("a.csv", index=False)
    for command in (["compare"], ["fit", "-o", "m"], ["issues"]):
        refused = run(*command[:1], "a.csv", "-t", "y", *command[1:], code=3).stderr
        words = "a: column 'huge' has numbers from 1e150 on, whose squares overflow; expected"
        assert words in refused
        assert refused.endswith("leave it out with --drop 'huge'.\n")
    run("fit", "a.csv", "-t", "y", "-o", "m", *QUICK, "--drop", "huge")


def test_a_ragged_table_has_one_error(run):
    lines = mixed_table().to_csv(index=False).splitlines()
    Path("a.csv").write_text("\n".join([*lines[:5], lines[5] + ",more", *lines[6:]]))
    refused = run("fit", "a.csv", "-t", "status", "-o", "m", code=3).stderr
    assert refused == (
        "error: a.csv: line 6: found 12 cells, expected 11 as in the first line. Quote cells that "
        "contain the separator, and remove lines that are not rows, such as titles and totals.\n"
    )


def test_a_binary_file_has_one_error(run):
    Path("a.csv").write_bytes(b"\x89PNG\0\xff")
    assert run("fit", "a.csv", "-t", "y", "-o", "m", code=3).stderr == (
        "error: a.csv: line 1: expected text in UTF-8, found byte 0x89 of a binary file. Save the "
        "table as .csv.\n"
    )


def test_gzip_files_need_no_suffix(run):
    Path("packed.csv").write_bytes(gzip.compress(Path("n.csv").read_bytes()))
    done = run("fit", "packed.csv", "-t", "y", "-o", "m", *QUICK)
    assert "MarginPursuitClassifier on packed: 60 rows" in done.stdout


def test_predict_notes_cells_that_it_cannot_use(run):
    frame = mixed_table().assign(age=[f"{20 + k % 50}.5" for k in range(200)])
    frame.to_csv("a.csv", index=False)
    run("fit", "a.csv", "-t", "status", "-o", "m", *QUICK)
    frame.assign(age=frame.age.str.replace(".", ",")).to_csv("new.csv", index=False)
    assert run("predict", "m", "new.csv", "-o", "p.csv").stderr == (
        "column 'age': 200 of 200 cells cannot be read as a number with decimal '.' and count as "
        "missing, such as '20,5' in line 2\n"
        "200 predictions in p.csv\n"
    )
    frame.loc[3, "signup"] = "soon"
    frame.assign(age="", plan="NA").to_csv("new.csv", index=False)
    assert run("predict", "m", "new.csv", "-o", "p.csv").stderr == (
        "column 'signup': 1 of 200 cells cannot be read as a date of the format %d.%m.%Y and count "
        "as missing, such as 'soon' in line 5\n"
        "columns without any value, unlike in the fit: 'age', 'plan'\n"
        "200 predictions in p.csv\n"
    )


@pytest.mark.parametrize("cell", ["1e999", "inf", "1,5", "unknown"])
def test_fit_notes_cells_that_are_not_numbers(cell, run):
    frame = mixed_table().assign(age=[f"{20 + k % 50}.5" for k in range(200)])
    frame.loc[7, "age"] = cell
    frame.to_csv("a.csv", index=False)
    assert (
        "column 'age': 1 of 200 cells cannot be read as a number with decimal '.' and count as "
        f"missing, such as {cell!r} in line 9\n"
    ) in run("fit", "a.csv", "-t", "status", "-o", "m", *QUICK).stderr


@pytest.mark.parametrize("kind", ["number", "category", "date"])
def test_a_copy_of_the_target_is_noted(kind, run):
    """Also one that has values in the rows of one class only."""
    frame = numbers()
    is_yes = frame.y == "yes"
    days = pd.Series(pd.date_range("2024-01-01", periods=len(frame))).astype(str)
    copies = {"number": is_yes.astype(int), "category": frame.y, "date": days.where(is_yes)}
    frame.insert(0, "paid", copies[kind])
    frame.to_csv("a.csv", index=False)
    done = run("fit", "a.csv", "-t", "y", "-o", "m", *QUICK)
    found = "determines 'y', by its values or by having one: 'paid'. Leave out with --drop"
    assert f"each of these columns alone {found}" in done.stderr
    assert "determines" not in run("fit", "n.csv", "-t", "y", "-o", "m", *QUICK).stderr


@pytest.mark.parametrize("option", ["--drop", "--numeric", "--categorical", "--text", "--id"])
def test_the_target_is_named_once(option, run):
    refused = run("fit", "n.csv", "-t", "y", option, "y", "-o", "m", code=2).stderr
    assert f"--target and {option} both name the column 'y'" in squeezed(refused)


def test_errors_about_the_folds_of_the_search_name_the_option(run):
    few = numbers().groupby("y").head(3)
    few.to_csv("few.csv", index=False)
    fit = ("fit", "few.csv", "-t", "y", "-o", "m", "--folds", "2", "--bootstrap", "0")
    assert "--set cv=NUMBER" in run(*fit, code=3).stderr
    run(*fit, "--set", "cv=2")
    with_rare(numbers(), 3).to_csv("rare.csv", index=False)
    done = run("fit", "rare.csv", "-t", "y", "-o", "m", "--folds", "2", "--bootstrap", "0")
    assert "the search has 5 folds, and the smallest class 3 rows" in done.stderr
    assert "Choose fewer folds with --set cv=NUMBER." in done.stderr
    assert "n_splits" not in done.stderr


@pytest.mark.filterwarnings("ignore:classes with a single sample:UserWarning")
def test_few_rows_have_suspicious_labels_or_an_error_that_names_the_option(run):
    frame = with_rare(numbers(), 1)
    frame.to_csv("rare.csv", index=False)
    run("fit", "rare.csv", "-t", "y", "-o", "m", *QUICK)
    line = 2 + int(np.flatnonzero(frame.y == "rare")[0])
    single = f"rare.csv: class 'rare' has a single row, line {line}; expected at least two"
    assert single in run("explain", "m", "rare.csv", "-t", "y", code=3).stderr
    few = numbers().groupby("y").head(3)
    few.to_csv("few.csv", index=False)
    assert "of 6 labels are suspicious" in run("issues", "few.csv", "-t", "y").stdout
    few.groupby("y").head(2).to_csv("few.csv", index=False)
    run("fit", "few.csv", "-t", "y", "-o", "m", *QUICK, "--method", "MarginPursuitClassifier")
    words = "2 folds leave 1 row of class 'yes' and 1 of class 'no' to fit; expected at "
    words += "least 2 rows of each of two classes. Add rows.\n"
    for name, *command in (("few", "issues"), ("few.csv", "explain", "m")):
        assert f"{name}: {words}" in run(*command, "few.csv", "-t", "y", code=3).stderr


def test_one_column_is_singular(run):
    numbers()[["a", "y"]].to_csv("a.csv", index=False)
    assert (
        "60 rows, 1 column, 2 classes" in run("fit", "a.csv", "-t", "y", "-o", "m", *QUICK).stdout
    )
    Path("a.csv").write_text("a\n0.5\n")
    assert run("predict", "m", "a.csv", "-o", "p.csv").stderr == "1 prediction in p.csv\n"


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")
def test_files_that_cannot_be_written_are_named(run):
    done = run("fit", "n.csv", "-t", "y", "-o", "/proc/x.model", *QUICK, code=3)
    assert done.stderr == "error: /proc/x.model: No such file or directory\n"


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")
def test_the_home_folder_need_not_be_writable(run):
    mixed_table().to_csv("a.csv", index=False)
    run("fit", "a.csv", "-t", "status", "-o", "m", *QUICK)
    environment = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-m", "marginpursuit", "predict", "m", "a.csv"],
        env={**environment, "HOME": "/proc"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 201


@pytest.mark.parametrize("is_mixed", [False, True])
@pytest.mark.parametrize("code", ["-999", "9999999"])
def test_numbers_that_may_stand_for_missing_values_are_noted(code, is_mixed, run):
    frame = numbers(100).assign(age=[str(20 + k % 50) for k in range(100)])
    frame["few"] = ["0"] * 10 + ["1"] * 90
    frame["size"] = ["0"] * 10 + [str(1000 + 100 * k) for k in range(90)]
    frame.loc[10:20, "age"] = code
    frame = frame.assign(plan=["a", "b"] * 50) if is_mixed else frame
    frame.to_csv("a.csv", index=False)
    noted = run("fit", "a.csv", "-t", "y", "-o", "m", *QUICK).stderr
    found = f"column 'age': {code} is in many cells and far from all other numbers. Empty these"
    assert found in noted
    assert noted.count("far from all other numbers") == 1


def test_the_summary_of_a_fit_has_short_lines(run):
    frame = numbers()
    frame.assign(y=frame.y + " of very many words" * 50).to_csv("a.csv", index=False)
    lines = run("fit", "a.csv", "-t", "y", "-o", "m", *QUICK).stdout.splitlines()
    assert max(map(len, lines)) < 150
    assert any(line.startswith("  hyper-parameters  scale 1, alpha 0") for line in lines)
