"""Limits on the structure of the package, so that it stays readable."""

import numpy as np
import pytest
import structure

from marginpursuit import MarginPursuitClassifier, MarginPursuitClassifierCV

MODULES = structure.modules()

#: Private modules at the top of the package that every layer may use.
HELPERS = {"_files", "_namespaces", "_progress_bar", "_threads", "_validation", "_versions"}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 20))
    return X, (X[:, 0] + 0.5 * rng.standard_normal(2000) > 0).astype(int)


def calls_of(model, data):
    """Record the second of two fits: the first imports modules and fills caches."""
    model.fit(*data)
    return structure.Calls.of(lambda: model.fit(*data))


def test_module_constants_are_few():
    found = {name: structure.constants(module) for name, module in MODULES.items()}
    assert sum(map(len, found.values())) <= 100, found


@pytest.mark.parametrize("name", MODULES)
def test_functions_are_simple(name):
    found = {f.name: structure.complexity(f) for f in structure.functions(MODULES[name])}
    assert {name: value for name, value in found.items() if value > 15} == {}


def test_test_files_have_at_most_600_lines():
    lengths = {
        path.name: path.read_text(encoding="utf-8").count("\n")
        for path in (structure.ROOT / "tests").glob("*.py")
    }
    assert {name: length for name, length in lengths.items() if length > 600} == {}


@pytest.mark.parametrize("package", ["cli", "experiments", "report"])
def test_upper_layers_use_public_modules_and_helpers(package):
    private = {
        imported
        for name, module in MODULES.items()
        if name.startswith(f"{package}/")
        for imported in structure.private_imports(module)
        if not imported.startswith(package)
    }
    assert private <= HELPERS


@pytest.mark.parametrize(
    ("model", "max_frames", "max_files"),
    [
        (MarginPursuitClassifier(n_threads=2), 10, 11),
        (MarginPursuitClassifier(n_threads=2, solver="gram"), 10, 27),
        (MarginPursuitClassifierCV(n_threads=2), 14, 31),
        (MarginPursuitClassifierCV(n_threads=2, solver="gram"), 14, 41),
    ],
    ids=["fit", "larger fit", "search", "larger search"],
)
def test_calls_are_few_levels_deep_and_go_down(model, max_frames, max_files, data):
    """Larger data take the solver "gram". With one thread its work adds two frames to a fit."""
    calls = calls_of(model, data)
    assert 1 < len(calls.deepest) <= max_frames, calls.deepest
    assert 1 < len(calls.files) <= max_files, sorted(calls.files)
    assert not calls.upward


def test_complexity_counts_branches():
    source = """
def f(x):
    if x and x > 1 or x < -1:
        return [y for y in x if y]
    for y in x:
        try:
            z = 1 if y else 2
        except ValueError:
            pass
"""
    (function,) = structure.functions(structure.ast.parse(source))
    # One, the condition, two operators, the comprehension, the loop, the expression, the handler.
    assert structure.complexity(function) == 8


def test_constants_are_names_in_capitals_at_the_top():
    source = """
A, _B = 1, 2
C: int = 3
D: int
e = 4
__all__ = []
class F:
    G = 5
"""
    assert structure.constants(structure.ast.parse(source)) == ["A", "_B", "C"]


def test_calls_up_a_layer_are_recorded():
    """A caller in `losses` that calls `classifiers` goes up; the reverse goes down."""
    ranks = structure.layers()
    assert ranks["cli"] == 0
    assert ranks["classifiers"] < ranks["solvers"] < ranks["design"] < ranks["losses"]

    class Frame:
        def __init__(self, file, back=None):
            code = type("Code", (), {})()
            code.co_filename, code.co_name = str(structure.PACKAGE / file), "f"
            self.f_code, self.f_back = code, back

    up, down = structure.Calls(), structure.Calls()
    up._add(Frame("classifiers/_base.py", Frame("losses/margin.py")), ranks)
    down._add(Frame("losses/margin.py", Frame("classifiers/_base.py")), ranks)
    assert list(up.upward) == [("losses/margin.py:f", "classifiers/_base.py:f")]
    assert not down.upward
    assert len(up.deepest) == 2
