"""Measurements of the package's structure: constants, complexity, imports, and calls of a fit."""

import ast
import sys
import threading
import tomllib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import marginpursuit

PACKAGE = Path(marginpursuit.__file__).parent
ROOT = Path(__file__).parents[1]


def modules():
    """Return the syntax tree of each module, by its path in the package."""
    return {
        path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(PACKAGE.rglob("*.py"))
    }


def constants(module):
    """Return the names in capitals that a module assigns at its top level."""
    targets = []
    for node in module.body:
        if isinstance(node, ast.Assign):
            targets += node.targets
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            targets.append(node.target)
    names = [name.id for target in targets for name in ast.walk(target) if is_name(name)]
    return [name for name in names if name.strip("_") and name.lstrip("_").isupper()]


def is_name(node):
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def functions(module):
    return [n for n in ast.walk(module) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]


def complexity(function):
    """Return one plus the number of branches: conditions, loops, handlers and Boolean operators."""
    branches = (
        *(ast.If, ast.For, ast.While, ast.ExceptHandler, ast.IfExp),
        *(ast.comprehension, ast.Assert, ast.match_case),
    )
    total = 1
    for node in ast.walk(function):
        total += isinstance(node, branches)
        if isinstance(node, ast.BoolOp):
            total += len(node.values) - 1
    return total


def private_imports(module):
    """Return the private modules and names of this package that a module imports."""
    found = []
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("marginpursuit"):
            parts = [*node.module.split(".")[1:], *(alias.name for alias in node.names)]
            if any(part.startswith("_") for part in parts):
                found.append(".".join(node.module.split(".")[1:]) or parts[-1])
    return found


def layers():
    """Return the rank of each top-level module; 0 is the highest layer of the import contract."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    ranks = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    return {name.strip(): rank for rank, names in enumerate(ranks) for name in names.split(":")}


@dataclass
class Calls:
    """Calls between functions of the package, recorded by the profiler.

    Attributes
    ----------
    deepest : list of str
        The longest stack of frames of the package.
    files : set of str
        The files whose functions were called.
    upward : Counter
        Direct calls from a lower to a higher layer: (caller, callee).
    """

    deepest: list = field(default_factory=list)
    files: set = field(default_factory=set)
    upward: Counter = field(default_factory=Counter)

    @classmethod
    def of(cls, function):
        """Record the calls of a function, in all threads that it starts."""
        calls, ranks = cls(), layers()

        def record(frame, event, argument):
            if event == "call" and is_ours(frame):
                calls._add(frame, ranks)

        threading.setprofile(record)
        sys.setprofile(record)
        try:
            function()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
        return calls

    def _add(self, frame, ranks):
        self.files.add(file_of(frame))
        stack, caller = [name_of(frame)], caller_of(frame)
        while caller is not None:
            if is_ours(caller):
                stack.append(name_of(caller))
            caller = caller_of(caller)
        if len(stack) > len(self.deepest):
            self.deepest = stack[::-1]
        caller = caller_of(frame)
        if caller is not None and is_ours(caller):
            ours, theirs = (ranks.get(layer_of(each)) for each in (frame, caller))
            if ours is not None and theirs is not None and ours < theirs:
                self.upward[name_of(caller), name_of(frame)] += 1


def caller_of(frame):
    """Return the frame that called one; None for an item of `Threads.map`, in any thread."""
    caller = frame.f_back
    loops = "_threads.py:map", "_threads.py:run"  # the second is defined in the first
    is_item = caller is not None and is_ours(caller) and name_of(caller) in loops
    return None if is_item else caller


def is_ours(frame):
    return frame.f_code.co_filename.startswith(str(PACKAGE))


def file_of(frame):
    return Path(frame.f_code.co_filename).relative_to(PACKAGE).as_posix()


def name_of(frame):
    return f"{file_of(frame)}:{frame.f_code.co_name}"


def layer_of(frame):
    return file_of(frame).partition("/")[0].removesuffix(".py")
