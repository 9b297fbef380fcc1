"""Text that the command line prints and writes: control characters and formulas."""

import csv
import json

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_iris
from typer.testing import CliRunner

from marginpursuit import MarginPursuitClassifier, save_model
from marginpursuit.cli.app import app
from marginpursuit.cli.output import activity, csv_cell, printable, say
from marginpursuit.cli.predictions import NewRows, predicted_columns


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        ("=HYPERLINK(1)", "'=HYPERLINK(1)"),
        ("+cmd|'/c calc'!A1", "'+cmd|'/c calc'!A1"),
        ("-2+3", "'-2+3"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "'\t=1"),
        ("-1", "-1"),
        ("+1", "+1"),
        ("a=b", "a=b"),
        (-1, -1),
        (0.5, 0.5),
    ],
)
def test_formulas_are_neutralised(value, cell):
    assert csv_cell(value) == cell


def test_json_has_null_for_numbers_that_are_not_finite(capsys):
    """Effects of columns of 1e-300 are infinite."""
    say({"a": [float("inf"), 1.5, (float("nan"), "nan")], "b": None}, as_json=True)
    assert json.loads(capsys.readouterr().out) == {"a": [None, 1.5, [None, "nan"]], "b": None}


def test_predictions_hold_no_formulas(tmp_path):
    X, y = load_iris(return_X_y=True)
    labels = np.array(["=1+1", "b", "@c"])[y]
    model = save_model(MarginPursuitClassifier().fit(X, labels), tmp_path / "a.model")
    np.savez(tmp_path / "new.npz", X=X)
    path = tmp_path / "out.csv"
    result = CliRunner().invoke(app, ["predict", str(model), str(tmp_path / "new.npz"), "-o", path])
    assert result.exit_code == 0, result.output
    with open(path, newline="") as file:
        found = {row[0] for row in csv.reader(file)}
    assert found == {"prediction", "'=1+1", "b", "'@c"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[2Jb", r"a\x1b[2Jb"),
        ("a\x9b2Jb\x07\x7f\r", r"a\x9b2Jb\x07\x7f\r"),
        ("a\udcff", r"a\udcff"),
        ("é ✓\xa0\n\tb", "é ✓\xa0\n\tb"),
    ],
)
def test_control_characters_are_escaped(text, shown):
    assert printable(text) == shown


def test_file_names_do_not_reach_the_terminal_raw(tmp_path):
    result = CliRunner().invoke(app, ["predict", str(tmp_path / "a\x1b[2J.model"), "b.csv"])
    assert result.exit_code != 0
    assert "\x1b[2J" not in result.output
    assert r"\x1b[2J" in result.output


def test_activity_shows_label_and_bar_on_a_terminal(monkeypatch, capsys):
    with activity("reading a.csv") as reached:
        reached(1, 2)
    assert capsys.readouterr().err == ""  # not a terminal
    monkeypatch.setenv("FORCE_COLOR", "1")
    with activity("reading a.csv") as reached:
        reached(1, None)
        reached(1, 2)
    assert "reading a.csv" in capsys.readouterr().err


@pytest.mark.parametrize("as_sparse", [False, True])
def test_predictions_in_chunks_are_those_of_all_rows(as_sparse):
    X, y = load_iris(return_X_y=True)
    model = MarginPursuitClassifier().fit(X, y)
    rows = NewRows(sparse.csr_array(X) if as_sparse else X, {"id": list("a" * len(y))})
    done = []
    found = predicted_columns(model, rows, True, lambda *amounts: done.append(amounts), chunk=40)
    assert list(found) == ["id", "prediction", *(f"probability of {k}" for k in range(3))]
    assert found["prediction"] == model.predict(X).tolist()
    np.testing.assert_allclose(found["probability of 1"], model.predict_proba(X)[:, 1])
    assert done == [(40, 150), (80, 150), (120, 150), (150, 150)]
