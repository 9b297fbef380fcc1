from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from marginpursuit._kernels._descent import Descent
from marginpursuit.losses import Loss

LEVELS: tuple[str, ...]

def rows(matrix: Any) -> Any: ...
def joint_losses(
    first: int,
    parameters: NDArray[np.float64],
    temperature: float,
    codes: NDArray[np.intp],
    weights: NDArray[np.float64],
    intercept: NDArray[np.float64],
    scores: NDArray[np.float64],
    slope: NDArray[np.float64],
    level: str = ...,
) -> float: ...
def task_losses(
    first: int,
    losses: NDArray[np.float64],
    codes: NDArray[np.intp],
    weights: NDArray[np.float64],
    positive: NDArray[np.intp],
    part: NDArray[np.intp],
    intercept: NDArray[np.float64],
    scores: NDArray[np.float64],
    value: NDArray[np.float64],
    slope: NDArray[np.float64],
    begin: int,
    end: int,
    level: str = ...,
) -> None: ...
def lbfgs_loop(
    reads: Sequence[NDArray[np.float64]],
    writes: Sequence[NDArray[np.float64]],
    inverse: NDArray[np.float64],
    factors: NDArray[np.float64],
    points: NDArray[np.float64],
    level: str = ...,
) -> None: ...
def csr_gram(
    data: NDArray[np.float64],
    indices: NDArray[np.integer[Any]],
    indptr: NDArray[np.integer[Any]],
    weights: NDArray[np.float64],
    first: int,
    last: int,
    total: NDArray[np.float64],
) -> None: ...
def csr_moments(
    data: NDArray[np.float64],
    indices: NDArray[np.integer[Any]],
    indptr: NDArray[np.integer[Any]],
    weights: NDArray[np.float64],
    total: NDArray[np.float64],
) -> None: ...
def csr_largest(
    data: NDArray[np.float64],
    indices: NDArray[np.integer[Any]],
    indptr: NDArray[np.integer[Any]],
    largest: NDArray[np.float64],
) -> None: ...
def kernel_newton(
    gram: NDArray[np.float64],
    problems: Any,
    coef: NDArray[np.float64],
    intercept: NDArray[np.float64],
    results: NDArray[np.float64],
    level: str = ...,
) -> None: ...
def interval_sums(
    scores: NDArray[np.float64],
    weights: NDArray[np.float64],
    width: float,
    first: int,
    n_intervals: int,
) -> NDArray[np.float64]: ...
def coupled(logits: NDArray[np.float64], n_classes: int, limit: float) -> NDArray[np.float64]: ...
def small_table(
    matrix: NDArray[np.float64],
    codes: NDArray[np.intp],
    weights: NDArray[np.float64],
    problem: Any,
    start: NDArray[np.float64] | None = ...,
    level: str = ...,
) -> Any: ...

TILE_GROUP: int
TILE_PADDING: int
TILE_TASKS: int

def sweep_tiles(
    rows: NDArray[np.float32],
    first: int,
    last: int,
    losses: NDArray[np.float64],
    codes: NDArray[np.intp],
    weights: NDArray[np.float64],
    positive: NDArray[np.intp],
    part: NDArray[np.intp],
    coef: NDArray[np.float32],
    intercept: NDArray[np.float64],
    gradient: NDArray[np.float64],
    value: NDArray[np.float64],
    slope: NDArray[np.float64],
    level: str = ...,
) -> None: ...
def sweep_joint_tiles(
    rows: NDArray[np.float32],
    first: int,
    last: int,
    parameters: NDArray[np.float64],
    temperature: float,
    codes: NDArray[np.intp],
    weights: NDArray[np.float64],
    coef: NDArray[np.float32],
    intercept: NDArray[np.float64],
    gradient: NDArray[np.float64],
    slope: NDArray[np.float64],
    level: str = ...,
) -> float: ...
def class_tiles_work(n_classes: int, width: int) -> int: ...
def sweep_class_tiles(
    rows: NDArray[np.float32],
    n_columns: int,
    first: int,
    last: int,
    parameters: NDArray[np.float64],
    temperature: float,
    codes: NDArray[np.intp],
    weights: NDArray[np.float64],
    coef: NDArray[np.float32],
    intercept: NDArray[np.float64],
    gradient: NDArray[np.float64],
    work: NDArray[np.float32],
    level: str = ...,
) -> float: ...

class Lbfgs:
    trial: NDArray[np.float64]
    point: NDArray[np.float64]
    values: NDArray[np.float64]
    gaps: NDArray[np.float64]
    status: int
    n_iter: int
    value: float
    gap: float
    bound: float
    def __init__(self, rows: NDArray[np.float32] | None, task: Any, level: str = ...) -> None: ...
    def run(self, n_sweeps: int) -> int: ...
    def advance(self, value: float, gradient: NDArray[np.float64]) -> int: ...
    def renew(self, preconditioner: NDArray[np.float64]) -> None: ...

class _Rows:
    n_rows: int
    n_columns: int
    level: str
    def sweep(
        self,
        first: int,
        last: int,
        loss: Loss,
        sign: NDArray[np.float64],
        weight: NDArray[np.float64],
        coef: NDArray[np.float64],
        intercept: float,
        gradient: NDArray[np.float64],
    ) -> tuple[float, float]: ...
    def scores(
        self,
        first: int,
        last: int,
        coef: NDArray[np.float64],
        intercept: float,
        out: NDArray[np.float64],
    ) -> None: ...
    def adjoint(
        self, first: int, last: int, factors: NDArray[np.float64], total: NDArray[np.float64]
    ) -> None: ...
    def descend(self, descent: Descent, draws: NDArray[np.intp]) -> None: ...

class DenseRows(_Rows):
    def __init__(self, matrix: ArrayLike, level: str = ...) -> None: ...
    def squares(
        self,
        first: int,
        last: int,
        centre: NDArray[np.float64],
        weights: NDArray[np.float64],
        total: NDArray[np.float64],
    ) -> None: ...
    def norms(
        self,
        first: int,
        last: int,
        centre: NDArray[np.float64],
        factors: NDArray[np.float64],
        out: NDArray[np.float64],
    ) -> None: ...

class CsrRows(_Rows):
    tasks_per_pass: int
    def __init__(
        self,
        data: NDArray[Any],
        indices: NDArray[Any],
        indptr: NDArray[Any],
        n_columns: int,
        level: str = ...,
    ) -> None: ...
    def sweep_tasks(
        self,
        losses: NDArray[np.float64],
        codes: NDArray[np.intp],
        weights: NDArray[np.float64],
        positive: NDArray[np.intp],
        part: NDArray[np.intp],
        centre: NDArray[np.float64],
        factors: NDArray[np.float64],
        coef: NDArray[np.float64],
        intercept: NDArray[np.float64],
        table: NDArray[np.float64],
        gradient: NDArray[np.float64],
        value: NDArray[np.float64],
        slope: NDArray[np.float64],
        begin: int,
        end: int,
    ) -> None: ...
    def row_squares(self, first: int, last: int, out: NDArray[np.float64]) -> None: ...
    def dual_pass(
        self,
        losses: NDArray[np.float64],
        rows: NDArray[np.intp],
        seed: int,
        is_frozen: bool,
        codes: NDArray[np.intp],
        weights: NDArray[np.float64],
        squares: NDArray[np.float64],
        constant: float,
        positive: NDArray[np.intp],
        penalty: NDArray[np.float64],
        radius: NDArray[np.float64],
        residual: NDArray[np.float64],
        coef: NDArray[np.float64],
        intercept: NDArray[np.float64],
        sums: NDArray[np.float64],
        stopping: Any = ...,
    ) -> int: ...

def sweep_matrix(
    sign: NDArray[np.float64],
    lower: NDArray[np.float64],
    upper: NDArray[np.float64],
    up: NDArray[np.float64],
    down: NDArray[np.float64],
    gain_up: float,
    gain_down: float,
    curvature: NDArray[np.float64],
    a: NDArray[np.float64],
    order: NDArray[np.int64],
    threshold: float,
    matrix: NDArray[np.float64],
    scores: NDArray[np.float64],
) -> tuple[int, float]: ...
def sweep_dense(
    sign: NDArray[np.float64],
    lower: NDArray[np.float64],
    upper: NDArray[np.float64],
    up: NDArray[np.float64],
    down: NDArray[np.float64],
    gain_up: float,
    gain_down: float,
    curvature: NDArray[np.float64],
    a: NDArray[np.float64],
    order: NDArray[np.int64],
    threshold: float,
    rows: NDArray[np.float64],
    coef: NDArray[np.float64],
    inverse_hessian: NDArray[np.float64] | None,
    constant: bool,
) -> tuple[int, float]: ...
def sweep_sparse(
    sign: NDArray[np.float64],
    lower: NDArray[np.float64],
    upper: NDArray[np.float64],
    up: NDArray[np.float64],
    down: NDArray[np.float64],
    gain_up: float,
    gain_down: float,
    curvature: NDArray[np.float64],
    a: NDArray[np.float64],
    order: NDArray[np.int64],
    threshold: float,
    data: NDArray[np.float64],
    indices: NDArray[np.int64],
    indptr: NDArray[np.int64],
    coef: NDArray[np.float64],
    inverse_hessian: NDArray[np.float64] | None,
    constant: bool,
) -> tuple[int, float]: ...
