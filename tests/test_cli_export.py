"""The command `export`."""

import json
import sqlite3
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris
from sklearn.pipeline import make_pipeline
from test_export import needs_functions
from typer.testing import CliRunner

from marginpursuit import MarginPursuitClassifier, save_model
from marginpursuit.cli.app import app
from marginpursuit.export import from_dict, to_c
from marginpursuit.tables import TableVectoriser

FRAME = load_iris(as_frame=True)["data"]
Y = np.array(["setosa", "versicolor", "virginica"])[load_iris()["target"]]


@pytest.fixture
def model(tmp_path, monkeypatch):
    """A fitted model, saved as iris.model in the current folder."""
    monkeypatch.chdir(tmp_path)
    fitted = MarginPursuitClassifier().fit(FRAME, Y)
    save_model(fitted, "iris.model")
    return fitted


def export(*arguments, code=0):
    result = CliRunner().invoke(app, ["export", "iris.model", *arguments])
    assert result.exit_code == code, result.output
    return result


def test_json(model, tmp_path):
    export("-o", "iris.json")
    again = from_dict(json.loads((tmp_path / "iris.json").read_text(encoding="utf-8")))
    np.testing.assert_array_equal(again.predict_proba(FRAME), model.predict_proba(FRAME))


@needs_functions
def test_sql(model, tmp_path):
    rows = FRAME.assign(flower=range(len(FRAME)))
    result = export(
        *("-o", "query", "--format", "sql", "--table", "flowers", "--keep", "flower"),
        *("--dialect", "sqlite", "--json"),
    )
    assert json.loads(result.stdout) == {"file": "query", "format": "sql"}
    database = sqlite3.connect(":memory:")
    rows.to_sql("flowers", database, index=False)
    found = pd.read_sql_query((tmp_path / "query").read_text(encoding="utf-8"), database)
    database.close()
    assert found["prediction"].tolist() == model.predict(FRAME).tolist()
    assert found["flower"].tolist() == rows["flower"].tolist()


def test_c(model, tmp_path):
    export("-o", "iris.c", "--name", "iris")
    assert (tmp_path / "iris.c").read_text(encoding="utf-8") == to_c(model, "iris")


def test_onnx(model, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("skl2onnx")
    export("-o", "iris.onnx")
    providers = ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(tmp_path / "iris.onnx", providers=providers)
    labels, probabilities = session.run(None, {"X": FRAME.to_numpy()})
    assert labels.tolist() == model.predict(FRAME).tolist()
    np.testing.assert_allclose(probabilities, model.predict_proba(FRAME), atol=1e-9)


def test_onnx_without_its_package(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.delitem(sys.modules, "marginpursuit.onnx", raising=False)
    assert "pip install 'marginpursuit[onnx]'" in export("-o", "iris.onnx", code=5).output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "iris.txt"], "--format must be one of json, sql, c, onnx; got 'txt'"),
        (["-o", "iris.c", "--name", "1"], "name must be an identifier of C"),
        (["-o", "iris.sql", "--dialect", "other"], "dialect must be one of"),
    ],
)
def test_wrong_options_write_no_file(arguments, message, model, tmp_path):
    result = export(*arguments, code=2)
    assert message in " ".join(result.output.replace("│", "").split())
    assert [path.name for path in tmp_path.iterdir()] == ["iris.model"]


@pytest.mark.parametrize("suffix", ["json", "sql", "c", "onnx"])
def test_models_of_mixed_tables_are_refused(suffix, tmp_path, monkeypatch):
    pytest.importorskip("skrub")
    monkeypatch.chdir(tmp_path)
    frame = FRAME.assign(kind=["a", "b", "c"] * 50)
    fitted = make_pipeline(TableVectoriser(), MarginPursuitClassifier()).fit(frame, Y)
    save_model(fitted, "iris.model")
    refused = export("-o", f"iris.{suffix}", code=2)
    message = " ".join(refused.output.replace("│", "").split())
    assert "iris.model has a table step, as models of mixed tables and of .xlsx files " in message
    assert "Use marginpursuit predict iris.model DATA, or save" in message


def test_an_existing_file_stays_if_the_model_cannot_be_exported(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_model(MarginPursuitClassifier().fit(FRAME.to_numpy(), Y), "iris.model")
    (tmp_path / "iris.sql").write_text("old")
    result = export("-o", "iris.sql", code=2)
    assert "must name the 4 columns" in " ".join(result.output.replace("│", "").split())
    assert (tmp_path / "iris.sql").read_text() == "old"
