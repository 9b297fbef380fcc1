"""The package as a whole: its names, its versions, its import, its layers' promises."""

import ast
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import marginpursuit
from marginpursuit import _kernels
from marginpursuit._versions import versions

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(marginpursuit.__path__, "marginpursuit.")
    if not module.name.endswith("__main__")
)

#: Packages that a module may need to be imported at all.
OPTIONAL = ("onnx", "skl2onnx", "torch", "triton")


@pytest.mark.parametrize("name", ["marginpursuit", *MODULES])
def test_exported_names_exist_once(name):
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name not in OPTIONAL:
            raise
        pytest.skip(f"{name} needs {error.name}, which is not installed")
    names = getattr(module, "__all__", None)
    if names is None:
        return
    assert all(hasattr(module, exported) for exported in names)
    assert len(set(names)) == len(names)


def test_public_names_are_few():
    assert len(marginpursuit.__all__) <= 25


def test_show_versions_names_kernels_and_packages(capsys):
    marginpursuit.show_versions()
    printed = capsys.readouterr().out
    for expected in ("marginpursuit", "numpy", "scipy", "scikit-learn", "kernels", "threads"):
        assert expected in printed
    assert marginpursuit.__version__ in printed
    assert _kernels.active() in printed


def test_versions_say_what_is_missing():
    found = versions(optional=["surely-not-installed"])
    assert found["surely-not-installed"] == "not installed (optional)"


def test_without_the_compiled_module_numpy_serves():
    """An install without a compiler has no `_compiled`; everything still works."""
    code = """
import sys
sys.modules["marginpursuit._kernels._compiled"] = None
from sklearn.datasets import load_breast_cancer
import marginpursuit
from marginpursuit import _kernels
X, y = load_breast_cancer(return_X_y=True)
assert "numpy" in _kernels.active(), _kernels.active()
assert marginpursuit.MarginPursuitClassifier().fit(X, y).score(X, y) > 0.95
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=120)


def test_optional_packages_are_not_imported():
    """`import marginpursuit` must not need, nor wait for, what only pictures need."""
    code = "import sys, marginpursuit; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_import_loads_little_besides_scikit_learn():
    """Import time, counted in modules, which do not vary as seconds do."""
    code = """
import sys
import sklearn.linear_model
before = set(sys.modules)
import marginpursuit
assert len(set(sys.modules) - before) < 5
from marginpursuit import MarginPursuitClassifier
print(*sorted(set(sys.modules) - before))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, timeout=120, capture_output=True, text=True
    )
    added = done.stdout.split()
    others = [name for name in added if name.partition(".")[0] != "marginpursuit"]
    assert len(others) < 5, others
    assert "marginpursuit.classifiers.pegasos" not in added
    lazy = {
        *("bounds", "cli", "datasets", "experiments", "inspection", "model_files", "report"),
        *("selection", "tables"),
    }
    assert lazy.isdisjoint(name.partition(".")[2].partition(".")[0] for name in added)


def test_no_private_scikit_learn_imports():
    for path in Path(marginpursuit.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sklearn"):
                parts = [*node.module.split("."), *(alias.name for alias in node.names)]
                assert not any(part.startswith("_") for part in parts), f"{path}: {parts}"


def test_fits_open_no_connection_and_start_no_process():
    program = """
import sys

def refuse(event, arguments):
    if event.startswith(("socket.connect", "socket.bind", "subprocess.", "os.fork", "os.system",
                         "os.posix_spawn", "os.exec", "os.spawn")):
        raise SystemExit(f"{event} {arguments}")

sys.addaudithook(refuse)
import numpy as np
import marginpursuit
X = np.random.default_rng(0).standard_normal((200, 3))
y = X[:, 0] > 0
for name in ("MarginPursuitClassifier", "LDMClassifier", "PegasosClassifier"):
    getattr(marginpursuit, name)().fit(X, y).predict(X)
print("done")
"""
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert result.stdout.strip() == "done", result.stderr
