"""The sweep for one task on a CUDA device, as one Triton kernel: one read of the rows.

Each program takes every so many-th tile of rows, adds them up in float32 and writes its sums; those
of all programs are added in float64. Which program takes which rows is fixed by the
shape of the data and the device, so that results repeat bit for bit.
"""

from typing import Any

import torch
import triton
import triton.language as tl

from marginpursuit.losses import INFLUENCE_BOUND, TRUNCATION, MarginLoss

#: The dtypes that the kernel reads as they are.
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.uint8)

#: The most columns of which a tile fits the registers.
MOST_COLUMNS = 4096

# Elements in a tile and programs for each multiprocessor, fewer of them for narrow rows. A program
# is one warp, so that sums along and across the rows of its tile need no exchange through shared
# memory. On an H200, 54 to 784 columns of float32 are read at 96 % to 98 % of the rate of a plain
# sum. Sums in float64 within a program would cost a fifth of that for narrow rows.
_TILE_ELEMENTS = 2048
_NARROW, _FEW_PROGRAMS, _PROGRAMS = 64, 16, 32


def sweep(
    matrix: Any,
    codes: Any,
    positive: int,
    weights: Any,
    coef: Any,
    intercept: float,
    loss: MarginLoss,
) -> Any:
    """Return the gradient, the value and the slope of one task, as one float64 tensor.

    Parameters
    ----------
    matrix : torch.Tensor of shape (n_rows, n_columns)
        The rows, of one of `DTYPES`, contiguous along a row.
    codes : torch.Tensor of shape (n_rows,)
        The class of each row; `positive` is the one of sign +1.
    positive : int
        The positive class.
    weights : torch.Tensor of shape (n_rows,)
        Weights in float64 that sum to one; all may share one place in memory.
    coef : torch.Tensor of shape (n_columns,)
        Coefficients in float32.
    intercept : float
        The intercept.
    loss : MarginLoss
        The loss.
    """
    n_rows, n_columns = matrix.shape
    columns = triton.next_power_of_2(n_columns)
    rows = max(1, _TILE_ELEMENTS // columns)
    share = _FEW_PROGRAMS if columns <= _NARROW else _PROGRAMS
    programs = min(triton.cdiv(n_rows, rows), share * _multiprocessors(matrix.device))
    sums = torch.empty((programs, n_columns + 2), dtype=torch.float64, device=matrix.device)
    with torch.cuda.device_of(matrix):
        _sweep[(programs,)](
            matrix,
            codes,
            weights,
            coef,
            sums,
            n_rows,
            positive,
            float(intercept),
            loss.margin,
            loss.scale,
            loss.overconfidence,
            codes.stride(0),
            weights.stride(0),
            STRIDE=matrix.stride(0),
            N_COLUMNS=n_columns,
            TRUNCATED=TRUNCATION,
            BOUND=INFLUENCE_BOUND,
            ROWS=rows,
            COLUMNS=columns,
            num_warps=1,
        )
    # The kernel has counted a row of average weight as one.
    return sums.sum(dim=0) / n_rows


def _multiprocessors(device: Any) -> int:
    if device.type != "cuda":  # Triton's interpreter
        return 1
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


@triton.jit  # type: ignore[untyped-decorator]
def _sweep(  # type: ignore[no-untyped-def]  # pragma: no cover - runs on the device
    matrix,
    codes,
    weights,
    coef,
    sums,
    n_rows,
    positive,
    intercept,
    level,
    scale,
    overconfidence,
    code_stride,
    weight_stride,
    STRIDE: tl.constexpr,
    N_COLUMNS: tl.constexpr,
    TRUNCATED: tl.constexpr,
    BOUND: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    column = tl.arange(0, COLUMNS)
    inside = column < N_COLUMNS
    direction = tl.load(coef + column, mask=inside, other=0.0)
    gradient = tl.zeros((COLUMNS,), tl.float32)
    value = tl.zeros((ROWS,), tl.float32)
    slope = tl.zeros((ROWS,), tl.float32)
    for tile in range(tl.program_id(0), tl.cdiv(n_rows, ROWS), tl.num_programs(0)):
        row = tile * ROWS + tl.arange(0, ROWS).to(tl.int64)
        there = row < n_rows
        place = matrix + row[:, None] * STRIDE + column[None, :]
        x = tl.load(place, mask=there[:, None] & inside[None, :], other=0).to(tl.float32)
        code = tl.load(codes + row * code_stride, mask=there, other=0)
        weight = tl.load(weights + row * weight_stride, mask=there, other=0.0)
        weight = (weight * n_rows).to(tl.float32)
        sign = tl.where(code == positive, 1.0, -1.0)
        residual = level - sign * (tl.sum(x * direction[None, :], axis=1) + intercept)
        # With t the residual within ±s√2: ψ is t - t³/(6s²), and ρ is t²/2 - t⁴/(24s²) plus
        # B times what lies beyond, in units of s (see `losses`).
        within = tl.minimum(tl.maximum(residual, -TRUNCATED * scale), TRUNCATED * scale)
        square = (within / scale) * (within / scale)
        charge = weight * tl.where(residual < 0, overconfidence, 1.0)
        beyond = BOUND * scale * tl.abs(residual - within)
        value += charge * (within * within * (0.5 - square / 24.0) + beyond)
        factor = -sign * charge * within * (1.0 - square / 6.0)
        slope += factor
        gradient += tl.sum(x * factor[:, None], axis=0)
    here = sums + tl.program_id(0) * (N_COLUMNS + 2)
    tl.store(here + column, gradient.to(tl.float64), mask=inside)
    tl.store(here + N_COLUMNS, tl.sum(value, axis=0))
    tl.store(here + N_COLUMNS + 1, tl.sum(slope, axis=0))
