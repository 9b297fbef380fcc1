import numpy as np
from numpy.typing import NDArray

_Floats = NDArray[np.float64]
_Indices = NDArray[np.int64]

def sweep_matrix(
    sign: _Floats,
    lower: _Floats,
    upper: _Floats,
    up: _Floats,
    down: _Floats,
    gain_up: float,
    gain_down: float,
    curvature: _Floats,
    a: _Floats,
    order: _Indices,
    threshold: float,
    matrix: _Floats,
    scores: _Floats,
) -> tuple[int, float]: ...
def sweep_dense(
    sign: _Floats,
    lower: _Floats,
    upper: _Floats,
    up: _Floats,
    down: _Floats,
    gain_up: float,
    gain_down: float,
    curvature: _Floats,
    a: _Floats,
    order: _Indices,
    threshold: float,
    rows: _Floats,
    coef: _Floats,
    inverse_hessian: _Floats | None,
    constant: bool,
) -> tuple[int, float]: ...
def sweep_sparse(
    sign: _Floats,
    lower: _Floats,
    upper: _Floats,
    up: _Floats,
    down: _Floats,
    gain_up: float,
    gain_down: float,
    curvature: _Floats,
    a: _Floats,
    order: _Indices,
    threshold: float,
    data: _Floats,
    indices: _Indices,
    indptr: _Indices,
    coef: _Floats,
    inverse_hessian: _Floats | None,
    constant: bool,
) -> tuple[int, float]: ...
