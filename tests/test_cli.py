"""The command line, called in this process and as a program."""

import json
import os
import re
import runpy
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cli_calls import call, squeezed
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import marginpursuit
from marginpursuit import (
    MarginPursuitClassifier,
    MarginPursuitClassifierCV,
    experiments,
    load_model,
)
from marginpursuit.experiments.compare import standardised
from marginpursuit.experiments.demonstration import count_fits
from marginpursuit.experiments.runs import Run

X, Y = load_iris(return_X_y=True)
NAMES = ["sepal length", "sepal width", "petal length", "petal width"]
KINDS = np.array(["setosa", "versicolor", "virginica"])[Y]


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Call a command in an empty folder; the exit code is checked."""
    monkeypatch.chdir(tmp_path)
    return call


@pytest.fixture
def iris(tmp_path):
    """A CSV file with names, text as target and a column that is not numeric."""
    lines = [",".join(["id", *NAMES, "kind"])]
    lines += [
        ",".join([f"i{number}", *map(str, row), kind])
        for number, (row, kind) in enumerate(zip(X, KINDS, strict=True))
    ]
    path = tmp_path / "iris.csv"
    path.write_text("\n".join(lines))
    return path


@pytest.fixture
def model(run, iris):
    run("fit", iris, "-t", "kind", "--drop", "id", "-o", "iris.model")
    return Path("iris.model").resolve()


def test_fit_and_predict(run, iris, model):
    expected = MarginPursuitClassifierCV().fit(X, KINDS)
    again = load_model(model)
    np.testing.assert_array_equal(again.coef_, expected.coef_)
    assert again.feature_names_in_.tolist() == NAMES
    printed = run("predict", model, iris).stdout.splitlines()
    assert printed == ["prediction", *expected.predict(X)]
    run("predict", model, iris, "-p", "-o", "p.csv")
    rows = [line.split(",") for line in Path("p.csv").read_text().splitlines()]
    assert rows[0] == ["prediction", *(f"probability of {c}" for c in expected.classes_)]
    chances = np.array([row[1:] for row in rows[1:]], dtype=float)
    np.testing.assert_array_equal(chances, expected.predict_proba(X))
    answer = json.loads(run("predict", model, iris, "--json", "-p").stdout)
    assert answer["prediction"] == expected.predict(X).tolist()


def test_fit_prints_held_out_error_baseline_calibration_and_choice(run, iris):
    arguments = ("fit", iris, "-t", "kind", "--drop", "id", "-o", "m", "--folds", "3")
    answer = json.loads(run(*arguments, "--json").stdout)
    pipeline = make_pipeline(StandardScaler(), MarginPursuitClassifierCV())
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    held_out = cross_val_predict(pipeline, X, KINDS, cv=folds, method="predict_proba")
    labels = np.unique(KINDS)
    assert answer["error"] == pytest.approx(np.mean(labels[held_out.argmax(axis=1)] != KINDS))
    assert answer["log_loss"] == pytest.approx(log_loss(KINDS, held_out), rel=1e-4)
    assert answer["interval"][0] < answer["error"] < answer["interval"][1]
    assert 0 <= answer["calibration_error"] < 0.1
    assert answer["baseline_error"] == pytest.approx(2 / 3)
    assert answer["hyper_parameters"] == load_model("m").best_params_
    assert (answer["n_rows"], answer["n_columns"], answer["n_folds"]) == (150, 4, 3)
    assert answer["classes"] == {"setosa": 50, "versicolor": 50, "virginica": 50}
    printed = run(*arguments).stdout
    for text in (
        "MarginPursuitClassifierCV on iris: 150 rows, 4 columns, 3 classes",
        f"{100 * answer['error']:.2f} %, 95 % interval",
        "(3-fold cross-validation)",
        f"log-loss {answer['log_loss']:.3f}, expected calibration error",
        "66.67 % error, if always predicting the most frequent class, setosa",
        f"scale {answer['hyper_parameters']['scale']:.4g}",
        "saved in m",
    ):
        assert text in printed


@pytest.mark.filterwarnings("ignore:classes with a single sample:UserWarning")
def test_fit_of_a_class_with_one_row_has_no_held_out_error(run, tmp_path):
    rows = "\n".join(f"{k},{int(k == 9)}" for k in range(10))
    (tmp_path / "few.csv").write_text(f"a,y\n{rows}\n")
    arguments = ("fit", "few.csv", "-t", "y", "-o", "m", "--method", "MarginPursuitClassifier")
    words = "not measured: cross-validation needs at least 2 classes with at least 2 rows"
    assert words in run(*arguments).stdout
    answer = json.loads(run(*arguments, "--json").stdout)
    assert answer["error"] is None
    assert answer["reason"] in words


def test_columns_are_found_by_name(run, iris, model):
    """The order of columns and further columns are irrelevant; a missing column is named."""
    header, *lines = iris.read_text().splitlines()
    order = [4, 0, 2, 1, 3, 5]
    mixed = [",".join(line.split(",")[k] for k in order) for line in [header, *lines]]
    Path("mixed.csv").write_text("\n".join(mixed))
    assert run("predict", model, "mixed.csv").stdout == run("predict", model, iris).stdout
    Path("less.csv").write_text("\n".join(line.rsplit(",", 2)[0] for line in [header, *lines]))
    assert "no column 'petal width'" in run("predict", model, "less.csv", code=3).stderr


def test_named_data_sets_are_fitted_and_predicted(run):
    run("fit", "breast_cancer", "-o", "m", "--method", "PegasosClassifier")
    predicted = json.loads(run("predict", "m", "breast_cancer", "--json").stdout)["prediction"]
    assert np.mean(np.array(predicted) == load_breast_cancer().target * 2 - 1) > 0.9
    done = run("predict", "m", "breast_cancer", "-p", code=2)
    assert "PegasosClassifier has no probabilities" in squeezed(done.stderr)


def test_fit_takes_parameters(run, iris):
    arguments = ("fit", iris, "-t", "kind", "--drop", "id", "-o", "m", "--json",
                 "--method", "MarginPursuitClassifier")  # fmt: skip
    answer = json.loads(
        run(*arguments, "--set", "margin=2.5", "--set", "scale=variance", "--set", "class_weight="
            "{'setosa': 2.0, 'virginica': 1, 'versicolor': 1}").stdout
    )  # fmt: skip
    again = load_model("m")
    assert (again.margin, again.scale) == (2.5, "variance")
    assert again.class_weight["setosa"] == 2.0
    assert answer["model"] == "m"
    assert 0 <= answer["error"] < 0.3
    expected = standardised(clone(again), X, KINDS)
    np.testing.assert_allclose(again.coef_, expected.coef_)
    for setting, message in [
        ("strange=1", "has no parameter"),
        ("margin", "expects NAME=VALUE"),
    ]:
        assert message in squeezed(run(*arguments, "--set", setting, code=2).stderr)
    refused = run(*arguments, "--set", "margin=-1", code=3)
    assert "margin must be a number" in refused.stderr
    assert "one of" in squeezed(run(*arguments, "--method", "LinearSVC", code=2).stderr)


def test_compare_writes_a_report(run, iris):
    done = run("compare", iris, "-t", "kind", "--drop", "id", "--method", "RidgeClassifier",
               "--method", "MarginPursuitClassifier", "--folds", "3", "-o", "new/out")  # fmt: skip
    assert "MarginPursuitClassifier" in done.stdout
    path = Path("new/out/report.html").resolve()
    assert str(path) in done.stdout.replace("\n", "")
    assert "Comparison on iris" in path.read_text(encoding="utf-8")
    kept = Run.load("new/out")
    assert [method.name for method in kept.sets[0].methods] == [
        "RidgeClassifier",
        "MarginPursuitClassifier",
        "LogisticRegression",
    ]
    assert len(kept.sets[0].methods[0].folds) == 3
    path.unlink()
    again = json.loads(run("report", "new/out", "--json").stdout)
    assert Path(again["report"]).resolve() == path
    assert "Comparison on iris" in path.read_text(encoding="utf-8")
    run("report", "new/out/run.json", "-o", "other/page.html")
    assert Path("other/page.html").read_bytes() == path.read_bytes()


def test_compare_by_name_in_json(run):
    done = run("compare", "breast_cancer", "--method", "RidgeClassifier", "--folds", "2", "--json")
    answer = json.loads(done.stdout)
    result, baseline = answer["results"]
    assert baseline["method"] == "LogisticRegression"
    assert baseline["difference"] is None
    assert result["difference"]["baseline"] == "LogisticRegression"
    low, high = result["difference"]["interval"]
    assert low < result["difference"]["mean"] < high
    assert result["recommended"] != baseline["recommended"]
    assert result["data"] == "breast_cancer"
    assert 0 < result["interval"][0] < result["error"] < result["interval"][1] < 0.1
    assert result["log_loss"] is None
    assert Path(answer["run"]).exists()
    assert Path(answer["report"]).exists()


def test_compare_says_which_method_to_take(run):
    done = run("compare", "breast_cancer", "--method", "MarginPursuitClassifierCV",
               "--contaminate", "leverage", "--rate", "0.1",
               "--folds", "3", "--repeats", "2")  # fmt: skip
    first, second = done.stdout.splitlines()[:2]
    assert first.startswith(
        "breast_cancer, 10 % leverage outliers: Take MarginPursuitClassifierCV: error "
    )
    assert re.search(
        r"MarginPursuitClassifierCV instead of LogisticRegression: "
        r"-[\d.]+ ± [\d.]+ points of error: better\. p = ",
        second,
    )
    assert re.search(r"MarginPursuitClassifierCV +take", done.stdout)
    page = Path("out/report.html").read_text(encoding="utf-8")
    assert page.index("Which model to take") < page.index(">Summary<")
    assert second.strip() in page
    assert len(Run.load("out").sets[0].methods[0].folds) == 6


def test_compare_adds_estimators_and_takes_a_scoring(run, tmp_path):
    (tmp_path / "mine.py").write_text(
        "from sklearn.dummy import DummyClassifier\n"
        "class Mine(DummyClassifier): pass\n"
        "nothing = 1\n"
    )
    arguments = ("compare", "breast_cancer", "--method", "LinearSVC", "--folds", "2")
    for scoring in ("roc_auc", "neg_log_loss", "f1", "balanced_accuracy"):
        done = run(*arguments, "--add", "mine:Mine", "--scoring", scoring, "--json")
        answer = json.loads(done.stdout)
        mine = {result["method"]: result for result in answer["results"]}["Mine"]
        assert mine["difference"]["verdict"] == "worse"
        assert answer["recommendations"][0]["scoring"] == scoring
    for added, message in [
        ("mine", "expects package.module:Estimator"),
        ("absent:Mine", "No module named 'absent'"),
        ("mine:Yours", "has no attribute 'Yours'"),
        ("mine:nothing", "Expected package.module:Estimator"),
        ("mine:__builtins__", "Expected package.module:Estimator"),
        ("builtins:dict", "scikit-learn's interface"),
        ("sklearn.svm:LinearSVC", "compared already"),
    ]:
        assert message in squeezed(run(*arguments, "--add", added, code=2).stderr)
    for option, value, message in [
        ("--scoring", "speed", "scoring must be one of accuracy"),
        ("--contaminate", "noise", "must be flips or leverage"),
        ("--baseline", "Nothing", "must be among"),
    ]:
        assert message in squeezed(run(*arguments, option, value, code=2).stderr)


def test_a_method_that_fails_gives_an_exit_code(run, monkeypatch):
    broken = {"broken": MarginPursuitClassifier(scale=-1.0)}
    monkeypatch.setattr("marginpursuit.cli.inputs.methods", lambda names: broken)
    done = run("compare", "breast_cancer", "-o", "out", "--baseline", "broken", code=1)
    assert "broken failed on breast_cancer: ValueError: scale must be" in done.stderr
    assert Path("out/report.html").exists()


@pytest.mark.slow
def test_demo_shows_four_tables_and_names_the_report(run):
    pytest.importorskip("skrub")
    lines = run("demo", "-o", "out", "--repeats", "1").stdout.splitlines()
    names = [
        "breast_cancer",
        "breast_cancer, 5 % leverage outliers",
        "customers, a messy table",
        "messages, 8 % wrong labels",
    ]
    first, answers = lines[0], lines[2:]
    assert "MarginPursuitClassifierCV instead of LogisticRegression: better on " in first
    assert [line.partition(": Take ")[0] for line in answers[:10:3]] == names
    assert "MarginPursuitClassifierCV instead of LogisticRegression: -" in answers[4]
    assert ": better. p = " in answers[4]
    assert all(line.startswith("  Why: ") for line in answers[2:12:3])
    assert any("marginpursuit reproduce --quick" in line for line in lines)
    assert lines[-1] == f"report at {Path('out/report.html').resolve()}"
    assert len(lines) <= 24  # one screen
    kept = Run.load("out")
    assert [result.name for result in kept.sets] == names
    n_fits = sum(len(method.folds) for result in kept.sets for method in result.methods)
    assert n_fits == 4 * 5 * 5
    assert [result.explanation is not None for result in kept.sets] == [True, False, True, True]
    assert kept.sets[2].columns[0] == "customer: dropped, as asked"
    assert count_fits(1) == n_fits + 20 + 75


def test_reproduce_all_compares_and_reports_failures(run, monkeypatch):
    """Without names all experiments run; here two that need no fits replace them."""
    reproduce = experiments.reproduce

    def few(names, *, quick, out):
        assert (names, quick) == (None, True)
        found = reproduce(["figure1", "cubics"], quick=True, out=out)
        found.results.failures["a fit"] = "it broke"
        return found

    monkeypatch.setattr(experiments, "reproduce", few)
    monkeypatch.setattr("marginpursuit.experiments.overview.compare_bundled", lambda **options: [])
    done = run("reproduce", "--quick", "-o", "out", code=1)
    assert "1 fit failed" in done.stderr
    assert "Failed: a fit: it broke" in Run.load("out").listings[0].caption


def test_reproduce(run):
    run("reproduce", "figure1", "figure1", "-o", "out")
    assert sorted(path.name for path in Path("out").iterdir()) == [
        "figure1.svg",
        "report.html",
        "results.md",
        "run.json",
    ]
    kept = Run.load("out")
    assert len(kept.figures) == 1
    assert kept.listings[0].rows[0][3] == "holds"
    assert "unknown figures figure9" in squeezed(run("reproduce", "figure9", code=2).stderr)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["compare", "nothing"], 3, "'nothing' is neither a file nor a data set"),
        (["compare", "absent.csv", "-t", "y"], 3, "No such file"),
        (
            ["compare", "bad.csv", "-t", "y"],
            3,
            "bad.csv: line 3: found 1 cell, expected 2 as in the first line",
        ),
        (["compare", "good.csv", "-t", "z"], 3, "no column 'z'"),
        (["compare", "good.csv"], 2, "--target"),
        (["compare", "good.csv", "-t", "y", "--method", "Nothing"], 2, "must be among"),
        (["compare", "good.csv", "-t", "y"], 3, "Classes with a single row: 1 (line 3)"),
        (["compare", "one.csv", "-t", "y"], 3, "at least 2 classes"),
        (["compare", "breast_cancer", "-t", "y"], 2, "named data set"),
        (["fit", "one.csv", "-t", "y", "-o", "m"], 3, "has the same value in all"),
        (["fit", "good.csv", "-t", "y"], 2, "--output"),
        (["predict", "good.csv", "good.csv"], 4, "good.csv: this is not a model file"),
        (["predict", "absent.model", "good.csv"], 3, "No such file"),
        (["report", "good.csv"], 4, "not JSON"),
        (["report", "."], 3, "No such file"),
        (["nonsense"], 2, "No such command"),
        (["bench", "--rows", "1"], 2, "--rows"),
    ],
)
def test_errors_are_one_line_and_an_exit_code(run, tmp_path, arguments, code, message):
    (tmp_path / "bad.csv").write_text("a,y\n1,0\nx\n")
    (tmp_path / "good.csv").write_text("a,y\n1,0\n2,1\n3,0\n")
    (tmp_path / "one.csv").write_text("a,y\n1,0\n2,0\n3,0\n")
    result = run(*arguments, code=code)
    assert message in squeezed(result.stderr)
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    if code > 2:
        assert result.stderr.startswith("error: ")
        assert result.stderr.count("\n") == 1


def test_a_defect_has_a_traceback(run, monkeypatch):
    def defect():
        raise TypeError("a defect")

    monkeypatch.setattr("marginpursuit.cli.app.installed", defect)
    result = run("versions", code=1)
    assert isinstance(result.exception, TypeError)


def test_ctrl_c(run, monkeypatch):
    # A background job of a shell ignores the signal, and Python keeps that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setattr(
        "marginpursuit.cli.app.installed", lambda: signal.raise_signal(signal.SIGINT)
    )
    assert run("versions", code=130).stderr == "error: interrupted\n"


def test_missing_extras_are_named(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    monkeypatch.delitem(sys.modules, "marginpursuit.report", raising=False)
    Run.now("empty").save("run.json")
    done = run("report", "run.json", code=5)
    assert "pip install 'marginpursuit[report]'" in done.stderr


def test_version(run):
    assert run("--version").stdout == f"marginpursuit {marginpursuit.__version__}\n"


@pytest.mark.parametrize(("name", "n_classes"), [("iris", 3), ("wine", 3), ("digits", 2)])
def test_named_data_sets_are_compared(run, name, n_classes):
    run("compare", name, "--method", "RidgeClassifier", "--folds", "2", "-o", "out")
    assert len(Run.load("out").sets[0].classes) == n_classes


def test_datasets_versions_and_bench(run):
    names = {row["name"]: row for row in json.loads(run("datasets", "--json").stdout)}
    assert names["breast_cancer"]["state"] == "included with scikit-learn"
    assert {"cov", "digit5", "protein", "sido"} <= set(names)
    assert "breast_cancer" in run("datasets").stdout
    assert json.loads(run("versions", "--json").stdout)["marginpursuit"] == (
        marginpursuit.__version__
    )
    assert "kernels" in run("versions").stdout
    timings = json.loads(run("bench", "--rows", "200", "--columns", "2", "--json").stdout)
    assert all(timing["seconds"] > 0 for timing in timings)
    assert "MarginPursuitClassifier" in run("bench", "--rows", "200", "--columns", "2").stdout


@pytest.mark.parametrize(
    "command",
    [
        *("compare", "demo", "reproduce", "fit", "predict", "explain", "issues", "report"),
        *("datasets", "bench", "versions"),
    ],
)
def test_every_command_has_help(run, command):
    assert "Exit codes" in run("--help").stdout
    printed = run(command, "--help").stdout
    assert "Usage" in printed
    if command not in ("datasets", "versions"):
        assert "Example" in printed


def program(*arguments, **options):
    script = Path(sys.executable).with_name("marginpursuit")
    return subprocess.run(
        [str(script), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        **options,
    )


def test_the_module_is_the_program(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["marginpursuit", "--version"])
    with pytest.raises(SystemExit) as done:
        runpy.run_module("marginpursuit", run_name="__main__")
    assert done.value.code == 0
    assert capsys.readouterr().out.startswith("marginpursuit ")


def test_the_program_itself(tmp_path):
    done = program("versions", cwd=tmp_path, env={**os.environ, "LC_ALL": "C"})
    assert done.returncode == 0
    assert marginpursuit.__version__ in done.stdout


def test_shell_completion_knows_methods_and_data(tmp_path):
    environment = {**os.environ, "_MARGINPURSUIT_COMPLETE": "complete_bash", "COMP_CWORD": "2"}
    done = program(cwd=tmp_path, env={**environment, "COMP_WORDS": "marginpursuit compare breast"})
    assert "breast_cancer" in done.stdout


def test_without_the_extra_a_clear_message():
    code = "import sys; sys.modules['typer'] = None; from marginpursuit.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 5
    assert "pip install 'marginpursuit[cli]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_interrupt_of_the_imports_has_no_traceback():
    code = (
        "import signal, sys; from marginpursuit.cli import main\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == 'marginpursuit.cli.app': signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupt()); main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (130, "")
