"""Each compiled function while memory runs out: MemoryError, no crash, and no reference is kept.

The kernels allocate nothing themselves; memory is that of Python objects and of buffers of arrays.
CPython's own test module lets the n-th allocation of the process fail. It may be that of another
thread: workers of pytest-xdist have one, so they run these tests in another process.
"""

import inspect
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from kernel_cases import compiled, needs_compiled

from marginpursuit._kernels import Descent
from marginpursuit.classifiers._leverage import FarRowPolicy
from marginpursuit.classifiers._link import SlopePrior
from marginpursuit.losses import MarginLoss

allocations = pytest.importorskip("_testcapi", reason="CPython was built without its test modules")
pytestmark = [
    needs_compiled,
    pytest.mark.skipif(
        not hasattr(allocations, "set_nomemory"), reason="no failing allocator in this build"
    ),
]

N, D, LANES = 12, 16, 8
MOST_ALLOCATIONS = 400  # of one call; the largest has 60


def arrays():
    rng = np.random.default_rng(0)
    return SimpleNamespace(
        loss=MarginLoss(),
        X=rng.normal(size=(N, D)),
        small=rng.normal(size=(N, D)).astype(np.float32),
        data=rng.normal(size=2 * N),
        indices=np.tile(np.array([1, 3], np.int32), N),
        indptr=2 * np.arange(N + 1, dtype=np.int32),
        sign=np.where(np.arange(N) % 2, 1.0, -1.0),
        weight=np.full(N, 1.0 / N),
        coef=np.zeros(D),
        out=np.zeros(N),
        codes=np.arange(N) % 2,
        task=np.zeros(LANES, np.intp),
        zeros=np.zeros(LANES),
        ones=np.ones(LANES),
        losses=np.tile(np.array(MarginLoss().kernel_parameters), (LANES, 1)),
        draws=np.arange(N),
    )


def newton_tasks(a):
    return SimpleNamespace(
        losses=a.losses[:1], weights=a.weight[None], penalty=np.ones((1, D)), tol=a.ones[:1],
        objective_floor=a.ones[:1], temperature=a.ones[:1], codes=a.codes[None], fold=a.task[:1],
        code=a.task[:1], positive=a.task[:1], task_at_larger_penalty=a.task[:1] - 1,
        task_at_larger_scale=a.task[:1] - 1, n_scores=1, n_columns=D,
        max_iter=5, has_intercept=False, certain=1.0, is_strict=False,
    )  # fmt: skip


def dense(a):
    return compiled.DenseRows(a.X)


def csr(a):
    return compiled.CsrRows(a.data, a.indices, a.indptr, D)


def sweep(handle, a):
    return handle(a).sweep(0, N, a.loss, a.sign, a.weight, a.coef, 0.0, np.zeros(D))


def sweep_tasks(a):
    csr(a).sweep_tasks(
        a.losses, a.codes, a.weight[:, None], a.task, a.task, a.coef, a.coef, np.zeros((LANES, D)),
        a.zeros, np.zeros((D, 2, LANES)), np.zeros((LANES, D)), np.zeros(LANES), np.zeros(LANES),
        0, LANES,
    )  # fmt: skip


def dual_pass(a):
    csr(a).dual_pass(
        a.losses, np.arange(N), 0, False, a.codes, a.weight, np.ones(N), 1.0, a.task, a.ones,
        a.ones, np.zeros((N, LANES)), np.zeros((D, LANES)), np.zeros(LANES), np.zeros((3, LANES)),
    )  # fmt: skip


def sweep_tiles(a):
    compiled.sweep_tiles(
        a.small, 0, N, a.losses[:4], a.codes, a.weight[None], a.task[:4], a.task[:4],
        np.zeros((4, D), np.float32), a.zeros[:4], np.zeros((4, D)), np.zeros(4), np.zeros(4),
    )  # fmt: skip


def dense_dual_pass(a):
    dense(a).dual_pass(
        a.losses[:1], np.arange(N), 0, False, a.codes, a.weight, np.ones(N), 1.0, a.task[:1],
        a.ones[:1], a.ones[:1], np.zeros((N, 1)), np.zeros((D, 1)), np.zeros(1), np.zeros((3, 1)),
    )  # fmt: skip


def coordinate_sweep(function, a, *arguments):
    function(
        a.sign, a.out, np.ones(N), a.out, a.out, 1.0, 1.0, np.ones(N), np.zeros(N), a.draws, 0.0,
        *arguments,
    )  # fmt: skip


def sweep_joint_tiles(a):
    compiled.sweep_joint_tiles(
        a.small, 0, N, a.losses[:1], 1.0, a.codes, a.weight, np.zeros((4, D), np.float32),
        a.zeros[:4], np.zeros((4, D)), np.zeros(4),
    )  # fmt: skip


def sweep_class_tiles(a):
    compiled.sweep_class_tiles(
        a.small, D - 1, 0, N, a.losses[:1], 1.0, a.codes, a.weight, np.zeros((4, D), np.float32),
        a.zeros[:4], np.zeros((4, D)), np.zeros(compiled.class_tiles_work(4, D), np.float32),
    )  # fmt: skip


def small_table(a):
    problem = SimpleNamespace(
        n_classes=2, n_scores=1, n_samples=N, loss=a.loss, temperature=0.0, has_intercept=True,
        leverage_bound=1.0, far_rows=FarRowPolicy(), alpha=0.1, inflation=10.0,
        factors=a.ones[:2], max_increase=0.0, max_joint_increase=0.0, min_likelihood_gain=1.0,
        min_distinct_rows=2,
        tolerances=(1e-6, 1e-4, 1e-5, 0.1), objective_floor=0.01, max_iter=50, half_max_iter=50,
        direction=np.ones(D), prior=SlopePrior(),
    )  # fmt: skip
    assert compiled.small_table(a.X, a.codes, a.weight.copy(), problem) is not None


def kernel_newton(a):
    problems = SimpleNamespace(
        rows=a.draws, edges=np.array([0, N]), sign=a.sign, weight=a.weight, has_intercept=True,
        losses=a.losses[:1], penalties=a.ones[:1], tol=1e-6, objective_floor=1e-9, max_iter=20,
    )  # fmt: skip
    compiled.kernel_newton(
        np.eye(N), problems, np.zeros((1, N)), np.zeros((1, 1)), np.zeros((1, 1, 4))
    )


CALLS = {
    "small_table": small_table,
    "kernel_newton": kernel_newton,
    "interval_sums": lambda a: compiled.interval_sums(a.X, a.weight, 0.5, -2, 5),
    "coupled": lambda a: compiled.coupled(a.X[:, :3].copy(), 3, 10.0),
    "rows": lambda a: compiled.rows(a.X),
    "dense dual_pass": dense_dual_pass,
    "link_slopes": lambda a: compiled.link_slopes(
        a.X, a.codes, a.weight, 0.0, 2.0, 0.01, (1e-3, 50.0)
    ),
    "lbfgs_loop": lambda a: compiled.lbfgs_loop(
        [a.X, a.X], [a.X, a.X], np.ones((2, N)), np.zeros((2, N)), np.ones((N, D))
    ),
    "sweep_matrix": lambda a: coordinate_sweep(
        compiled.sweep_matrix, a, np.eye(N), np.zeros(N)
    ),
    "sweep_dense": lambda a: coordinate_sweep(
        compiled.sweep_dense, a, a.X, np.zeros(D), None, False
    ),
    "sweep_sparse": lambda a: coordinate_sweep(
        compiled.sweep_sparse, a, a.data, a.indices.astype(np.int64),
        a.indptr.astype(np.int64), np.zeros(D), None, False,
    ),
    "dense rows": dense,
    "sweep of dense rows": lambda a: sweep(dense, a),
    "sweep of CSR rows": lambda a: sweep(csr, a),
    "scores": lambda a: dense(a).scores(0, N, a.coef, 0.0, a.out),
    "adjoint": lambda a: csr(a).adjoint(0, N, a.weight, np.zeros(D)),
    "moments": lambda a: dense(a).moments(0, N, a.coef, a.weight, np.zeros((2, D))),
    "even moments": lambda a: dense(a).moments(
        *(0, N, a.coef, a.weight, np.zeros((2, D)), a.coef)
    ),
    "norms": lambda a: dense(a).norms(0, N, a.coef, a.coef, a.out),
    "row_squares": lambda a: csr(a).row_squares(0, N, a.out),
    "descend": lambda a: dense(a).descend(
        Descent(a.loss, a.sign, 0.1, 0.1, np.zeros(D), total=np.zeros(D), batch=2), a.draws
    ),
    "sweep_tasks": sweep_tasks,
    "dual_pass": dual_pass,
    "sweep_tiles": sweep_tiles,
    "sweep_joint_tiles": sweep_joint_tiles,
    "sweep_class_tiles": sweep_class_tiles,
    "newton": lambda a: compiled.newton(
        a.X, newton_tasks(a), np.zeros((1, D)), np.zeros((1, 5)), a.task[:1]
    ),
    "csr_gram": lambda a: compiled.csr_gram(
        a.data, a.indices, a.indptr, a.weight, 0, N, np.zeros((D, D))
    ),
    "csr_moments": lambda a: compiled.csr_moments(
        a.data, a.indices, a.indptr, a.weight, np.zeros((D, 2))
    ),
    "csr_largest": lambda a: compiled.csr_largest(a.data, a.indices, a.indptr, np.zeros(D)),
    "joint_losses": lambda a: compiled.joint_losses(
        0, a.losses[:1], 1.0, a.codes, a.weight, a.zeros[:2], np.zeros((2, N)), np.zeros(2)
    ),
    "task_losses": lambda a: compiled.task_losses(
        0, a.losses[:2], a.codes, a.weight[None], a.task[:2], a.task[:2], a.zeros[:2],
        np.zeros((2, N)), np.zeros(2), np.zeros(2), 0, 2,
    ),
}  # fmt: skip


def test_every_function_is_called():
    text = inspect.getsource(inspect.getmodule(arrays))
    functions = [
        name for name, value in vars(compiled).items() if "cython_function" in type(value).__name__
    ]
    methods = [name for rows in (compiled.DenseRows, compiled.CsrRows) for name in dir(rows)]
    names = {name for name in functions + methods if not name.startswith("_")}
    assert "link_slopes" in names
    missing = {name for name in names if f".{name}(" not in text and f".{name}," not in text}
    assert missing <= {"n_rows", "n_columns", "level", "tasks_per_pass"}  # attributes


IS_WORKER = "PYTEST_XDIST_WORKER" in os.environ


@pytest.mark.skipif(not IS_WORKER, reason="this process has no other thread")
def test_in_another_process():
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", __file__]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(IS_WORKER, reason="test_in_another_process runs it")
@pytest.mark.parametrize("name", CALLS)
def test_memory_runs_out_at_any_allocation(name):
    call, a = CALLS[name], arrays()
    call(a)
    before = {key: sys.getrefcount(value) for key, value in vars(a).items()}
    n_failed = n_succeeded = 0
    for n in range(MOST_ALLOCATIONS):
        allocations.set_nomemory(n, n + 1)
        try:
            call(a)
            n_succeeded += 1
        except MemoryError:
            n_failed, n_succeeded = n_failed + 1, 0
        finally:
            allocations.remove_mem_hooks()
        if n_succeeded == 20:  # all allocations of the call come before the one that fails
            break
    assert n_succeeded == 20
    assert n_failed > 0
    assert {key: sys.getrefcount(value) for key, value in vars(a).items()} == before
    call(a)
