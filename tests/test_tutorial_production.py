"""The code of docs/tutorials/production.md that needs optional packages, run as written."""

import re
from pathlib import Path

import pytest
from sklearn.datasets import load_iris
from test_export import has_functions

from marginpursuit import MarginPursuitClassifier
from marginpursuit.export import to_sql

PAGE = Path(__file__).parents[1] / "docs" / "tutorials" / "production.md"


def blocks():
    """The blocks of Python that are not doctests, by the heading of their section."""
    sections = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return [
        pytest.param(code, id=section.splitlines()[0])
        for section in sections
        for code in re.findall(r"^```python\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
        if ">>>" not in code
    ]


def test_the_page_has_such_blocks():
    assert len(blocks()) >= 5


@pytest.mark.filterwarnings("ignore")  # of the packages
@pytest.mark.parametrize("code", blocks())
def test_blocks_run(code, tmp_path, monkeypatch):
    for name in re.findall(r"^(?:import|from) (\w+)", code, re.MULTILINE):
        if name != "marginpursuit":
            pytest.importorskip(name)
    if "sqlite3" in code and not has_functions():
        pytest.skip("SQLite is older than 3.35 or has no mathematical functions")
    monkeypatch.chdir(tmp_path)
    X, y = load_iris(return_X_y=True)
    names = {"X": X, "y": y, "model": MarginPursuitClassifier().fit(X, y), "to_sql": to_sql}
    exec(compile(code, str(PAGE), "exec"), names)
