"""Mutation testing of the mathematics: change one operator or number, and see whether a test fails.

    python tests/mutation.py [--sample 20] [--seed 0] [--processes 2] [losses bounds ...]

The tests of a file run once without a change, and which lines each of them executes is recorded.
Every mutant runs in a forked process, with the tests that execute its statement, the shortest
first, until the first failure or the time limit, which counts as a failure. Where these pass, all
tests of the file run. Survivors are printed; some are equivalent to the original (a tolerance, a
limit on iterations, a branch for speed).
"""

import argparse
import ast
import copy
import importlib.machinery
import importlib.util
import os
import pickle
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
#: The package that the tests import: installed, or in `src`.
SOURCE = Path(importlib.util.find_spec("marginpursuit").origin).parent

#: Files that are mutated, and the tests that must notice.
GROUPS = {
    "losses": {
        "losses/rhos.py": ["test_losses.py", "test_rhos.py"],
        "losses/margin.py": ["test_losses.py", "test_loss_contract.py", "test_rhos.py"],
        "losses/catoni.py": ["test_wide_influence.py", "test_losses.py", "test_loss_contract.py"],
    },
    "location": {"location.py": ["test_location_scales.py", "test_location.py"]},
    "calibration": {"calibration.py": ["test_calibration.py", "test_calibration_gap.py"]},
    "bounds": {
        "bounds/algorithm.py": ["test_bounds_algorithm.py"],
        "bounds/location.py": ["test_bounds_location.py"],
        "bounds/margin.py": ["test_bounds_margin.py"],
        "bounds/constants.py": ["test_bounds_constants.py"],
        "bounds/projection.py": ["test_bounds_projection.py"],
        "bounds/robust_risk.py": ["test_bounds_catoni_risk.py"],
        "bounds/dual.py": ["test_bounds_leave_one_out.py"],
    },
    "arrays": {
        "_kernels/_arrays.py": [
            *("test_kernels.py", "test_task_kernels.py", "test_elementwise.py"),
            "test_descent.py",
        ],
    },
    "kernel_features": {
        "classifiers/_kernel_map.py": ["test_kernel_map.py", "test_kernel_blocks.py"],
        "classifiers/_kernel_expansion.py": [
            "test_kernel_expansion.py",
            "test_kernel_map.py",
            "test_kernel_blocks.py",
        ],
        "classifiers/_kernel_fit.py": ["test_kernel_map.py"],
        "classifiers/_landmarks.py": ["test_kernel_map.py"],
        "design/factored.py": ["test_factored_rows.py"],
        "solvers/_sampled_hessian.py": ["test_factored_rows.py"],
        "selection/kernel_search.py": ["test_kernel_search.py"],
    },
    "model_files": {
        "model_files.py": ["test_model_files.py", "test_damaged_files.py"],
        "_model_encoding.py": ["test_model_files.py", "test_damaged_files.py"],
        "_model_checks.py": ["test_model_files.py", "test_damaged_files.py"],
        "classifiers/_checkpoint.py": ["test_checkpoint.py"],
    },
    "solvers": {
        "solvers/steepest.py": ["test_algorithm_1.py", "test_solvers.py::TestAlgorithm1"],
        "experiments/_learners.py": [
            "test_claims.py",
            "test_reproduction.py::test_margin_pursuit_takes_the_steps_of_the_paper",
            "test_reproduction.py::test_interpretations_have_distinct_names",
        ],
    },
}

SWAPS: dict[type, type] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


def sites(tree: ast.Module) -> list[ast.AST]:
    """Return the nodes that can be mutated.

    Arguments of decorators (frozen, slots) and thresholds of policies are left out.
    """
    skipped = set()
    for node in ast.walk(tree):
        parts = list(getattr(node, "decorator_list", []))
        if isinstance(node, ast.ClassDef) and node.name.endswith("Policy"):
            parts += [part for part in node.body if isinstance(part, ast.AnnAssign)]
        skipped.update(id(inner) for part in parts for inner in ast.walk(part))
    found = []
    for node in ast.walk(tree):
        is_operator = (
            (isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in SWAPS)
            or (isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS)
            or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub))
        )
        number = isinstance(node, ast.Constant) and type(node.value) in (int, float, bool)
        if (is_operator or number) and id(node) not in skipped:
            found.append(node)
    return found


def statement_lines(tree: ast.Module, node: ast.AST) -> range:
    """Return the lines of the innermost statement around a node, without those of its body."""
    lines = range(node.lineno, node.end_lineno + 1)
    for statement in ast.walk(tree):
        if not isinstance(statement, ast.stmt):
            continue
        body = getattr(statement, "body", None)
        end = body[0].lineno - 1 if body else statement.end_lineno
        if statement.lineno <= node.lineno and node.end_lineno <= end:
            lines = range(statement.lineno, end + 1)  # an outer statement comes before an inner one
    return lines


def mutate(tree: ast.Module, index: int) -> tuple[ast.Module, str]:
    """Return a copy with one change, and its description."""
    changed = copy.deepcopy(tree)
    node = sites(changed)[index]
    before = ast.unparse(node)
    if isinstance(node, ast.BinOp | ast.BoolOp):
        node.op = SWAPS[type(node.op)]()
    elif isinstance(node, ast.Compare):
        node.ops[0] = SWAPS[type(node.ops[0])]()
    elif isinstance(node, ast.UnaryOp):
        node.op = ast.UAdd()
    elif isinstance(node, ast.Constant):
        value = node.value
        node.value = not value if isinstance(value, bool) else value * 2 if value else 1
    return changed, f"line {node.lineno}: {before}  ->  {ast.unparse(node)}"


@dataclass(eq=False)
class Coverage:
    """A pytest plugin: the lines of a file that each test executes, and its time."""

    path: str
    lines: dict[str, set[int]] = field(default_factory=dict)  # by test; "" for imports
    seconds: dict[str, float] = field(default_factory=dict)
    _current: str = ""

    def _trace(self, frame, event, argument):
        if frame.f_code.co_filename != self.path:
            return None
        self.lines.setdefault(self._current, set()).add(frame.f_lineno)
        return self._trace

    def start(self) -> None:
        """Record lines from now on, in all threads."""
        threading.settrace(self._trace)
        sys.settrace(self._trace)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        """Record the lines of one test."""
        self._current, begin = item.nodeid, time.process_time()
        try:
            return (yield)
        finally:
            self.seconds[item.nodeid] = time.process_time() - begin
            self._current = ""

    def tests_of(self, lines: range) -> list[str] | None:
        """Return the tests that execute one of these lines, or None for all: they run at import."""
        if self.lines.get("", set()) & set(lines):
            return None
        tests = [test for test in self.seconds if self.lines.get(test, set()) & set(lines)]
        return sorted(tests, key=self.seconds.__getitem__)


def run_tests(path: Path, tree: ast.Module, tests: list[str], plugins: list[object]) -> int:
    """Run tests with a changed file, in a process of their own; return the exit status."""
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    code = compile(ast.fix_missing_locations(tree), str(path), "exec")
    original = importlib.machinery.SourceFileLoader.get_code

    def get_code(self, fullname):
        return code if Path(self.path) == path else original(self, fullname)

    importlib.machinery.SourceFileLoader.get_code = get_code
    os.chdir(ROOT)
    arguments = ["-x", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0"]
    return int(pytest.main([*arguments, *tests], plugins=plugins))


def forked(seconds: int, function: Callable[..., int], *arguments: object) -> int:
    """Call a function in a forked process, whose exit status it returns; return its number."""
    child = os.fork()
    if not child:
        status = 1
        try:
            signal.alarm(seconds)
            status = function(*arguments)
        finally:
            os._exit(status)
    return child


def succeeds(child: int) -> bool:
    """Wait for a process; return whether its exit status is zero."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def record(path: Path, tree: ast.Module, tests: list[str], target: Path) -> int:
    """Run the tests without a change, and write what they execute to a file."""
    coverage = Coverage(str(path))
    coverage.start()
    status = run_tests(path, tree, tests, [coverage])
    sys.settrace(None)
    target.write_bytes(pickle.dumps((coverage.lines, coverage.seconds)))
    return status


def run_mutant(
    path: Path, tree: ast.Module, tests: list[str] | None, every: list[str], seconds: int
) -> int:
    """Run the tests that execute a statement, and then all; return the exit status.

    Tests that share a fixture or a cache may depend on a statement without executing it.
    """
    if tests and not succeeds(forked(seconds, run_tests, path, tree, tests, [])):
        return 1
    return run_tests(path, tree, every, [])


def survivors(
    path: Path, tests: list[str], chosen: argparse.Namespace, end: float
) -> tuple[int, list[str]] | None:
    """Return the number of mutants of a file and those that no test notices, or None.

    No mutant starts after the time `end`.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    every = [f"tests/{name}" for name in tests]
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "coverage"
        if not succeeds(forked(10 * chosen.seconds, record, path, tree, every, target)):
            return None
        coverage = Coverage(str(path), *pickle.loads(target.read_bytes()))
    nodes = sites(tree)
    sample = random.Random(chosen.seed).sample(range(len(nodes)), min(len(nodes), chosen.sample))
    running: dict[int, str] = {}
    alive: list[str] = []
    n_run = 0
    for index in [*sample, *[None] * chosen.processes]:
        if running and (index is None or len(running) == chosen.processes):
            child, status = os.wait()
            words = running.pop(child)
            if os.waitstatus_to_exitcode(status) == 0:
                alive.append(words)
                print(f"  survivor, {words}", flush=True)
        if index is not None and time.monotonic() < end:
            n_run += 1
            mutant, words = mutate(tree, index)
            chosen_tests = coverage.tests_of(statement_lines(tree, nodes[index]))
            words += "" if chosen_tests is None or chosen_tests else " (no test executes it)"
            arguments = path, mutant, chosen_tests, every, chosen.seconds
            running[forked(2 * chosen.seconds, run_mutant, *arguments)] = words
    return n_run, alive


def main() -> None:
    """Sample mutants of each file, and print those that no test notices."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("group", nargs="*", default=list(GROUPS), help="groups, or files of them")
    parser.add_argument("--sample", type=int, default=20, help="mutants of each file")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=int, default=120, help="limit for the tests of a mutant")
    parser.add_argument("--processes", type=int, default=1, help="mutants at a time")
    parser.add_argument(
        "--limit", type=float, default=float("inf"), help="seconds of the whole run"
    )
    chosen = parser.parse_args()
    end = time.monotonic() + chosen.limit
    sys.path.insert(0, str(ROOT / "tests"))
    for name in ("mpmath", "scipy.stats", "sklearn.linear_model"):
        __import__(name)
    every = {name: tests for files in GROUPS.values() for name, tests in files.items()}
    for group in chosen.group:
        for name, tests in GROUPS.get(group, {group: every.get(group, [])}).items():
            found = survivors(SOURCE / name, tests, chosen, end)
            if found is None:
                print(f"{name}: its tests fail, or take too long, without a change", flush=True)
                continue
            count, alive = found
            print(f"{name}: {count - len(alive)} of {count} killed", flush=True)


if __name__ == "__main__":
    main()
