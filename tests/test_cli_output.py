"""Text that the command line prints and writes: control characters and formulas."""

import csv

import numpy as np
import pytest
from sklearn.datasets import load_iris
from typer.testing import CliRunner

from marginpursuit import MarginPursuitClassifier, save_model
from marginpursuit.cli.app import app
from marginpursuit.cli.output import csv_cell, printable


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
