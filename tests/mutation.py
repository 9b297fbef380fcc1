"""Mutation testing of the mathematics: change one operator or number, and see whether a test fails.

    python tests/mutation.py [--sample 20] [--seed 0] [--part 0/1] [losses bounds model_files ...]

Every mutant runs in a forked process, with the tests that belong to its file, until the first
failure or the time limit, which counts as a failure. Survivors are printed; some are equivalent to
the original (a tolerance, a limit on iterations, a branch for speed).
"""

import argparse
import ast
import copy
import importlib.machinery
import os
import random
import signal
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "marginpursuit"

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
        "_kernels/_arrays.py": ["test_kernels.py", "test_task_kernels.py", "test_elementwise.py"],
    },
    "kernel_features": {
        "classifiers/_kernel_map.py": ["test_kernel_map.py", "test_kernel_blocks.py"],
        "classifiers/_kernel_expansion.py": ["test_kernel_expansion.py", "test_kernel_map.py"],
        "classifiers/_active_landmarks.py": ["test_kernel_map.py"],
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
    """Return the nodes that can be mutated, without annotations and defaults of dataclasses."""
    found = []
    for node in ast.walk(tree):
        is_operator = (
            (isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in SWAPS)
            or (isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS)
            or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub))
        )
        number = isinstance(node, ast.Constant) and type(node.value) in (int, float, bool)
        if is_operator or number:
            found.append(node)
    return found


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


def survives(path: Path, tree: ast.Module, tests: list[str], seconds: int) -> bool:
    """Run the tests on a mutant in a forked process; return whether all pass."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    signal.alarm(seconds)
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    code = compile(ast.fix_missing_locations(tree), str(path), "exec")
    original = importlib.machinery.SourceFileLoader.get_code

    def get_code(self, fullname):
        return code if Path(self.path) == path else original(self, fullname)

    importlib.machinery.SourceFileLoader.get_code = get_code
    import pytest

    arguments = ["-x", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0"]
    os._exit(pytest.main([*arguments, *(str(ROOT / "tests" / name) for name in tests)]))


def main() -> None:
    """Sample mutants of each file, and print those that no test notices."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("group", nargs="*", default=list(GROUPS))
    parser.add_argument("--sample", type=int, default=20, help="mutants of each file")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=int, default=120, help="limit for the tests of a mutant")
    parser.add_argument("--part", default="0/1", help="k/n: every n-th mutant from number k on")
    chosen = parser.parse_args()
    part, n_parts = map(int, chosen.part.split("/"))
    sys.path.insert(0, str(ROOT / "tests"))
    __import__("mpmath")
    __import__("scipy.stats")
    __import__("sklearn.linear_model")
    for group in chosen.group:
        for name, tests in GROUPS[group].items():
            path = SOURCE / name
            tree = ast.parse(path.read_text(encoding="utf-8"))
            if not survives(path, tree, tests, chosen.seconds):
                print(f"{name}: its tests fail, or take too long, without a change", flush=True)
                continue
            count = len(sites(tree))
            sample = sorted(
                random.Random(chosen.seed).sample(range(count), min(count, chosen.sample))
            )[part::n_parts]
            alive = []
            for index in sample:
                mutant, words = mutate(tree, index)
                if survives(path, mutant, tests, chosen.seconds):
                    alive.append(words)
            print(f"{name}: {len(sample) - len(alive)} of {len(sample)} killed", flush=True)
            for words in alive:
                print(f"  survivor, {words}", flush=True)


if __name__ == "__main__":
    main()
