"""The sweep for one task, and moments, on a CUDA device: Triton kernels that read the rows once.

With P programs, program p reads the tiles p, p + P, p + 2P, ... of rows, adds them up, in float32
for a sweep, and writes its sums; the sums of all programs are added in float64. The assignment of
rows to programs is fixed by the shape of the data and the device, so that results are reproducible
bit for bit.

A program is one warp. Several of its lanes share a row, and few are better than many: each of them
repeats the work per row, and their sums are reduced. Coefficients and sums of the columns of a lane
stay in registers from the first tile to the last.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import numpy as np
import torch
import triton
import triton.language as tl

from marginpursuit._namespaces import to_numpy
from marginpursuit._validation import FloatArray
from marginpursuit.losses import RHOS, Loss, MarginLoss

#: The dtypes that the kernel reads without conversion.
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.uint8)

#: The most columns whose sums fit the registers.
MOST_COLUMNS = 4096


@dataclass(frozen=True, slots=True)
class Policy:
    """Thresholds of the kernels, chosen on an H200 (`benchmarks/gpu.py`)."""

    # Margins are in units of the scale, but of at most this multiple of the level, such that their
    # squares fit float32; and the scale is at most this multiple of the unit.
    max_unit: float = 1e6
    max_scale: float = 1e15
    # Registers of a thread that allow 20, 16 or 12 warps per multiprocessor; all registers of a
    # multiprocessor; registers of a thread besides values, coefficients and sums.
    registers: tuple[int, ...] = (96, 128, 168)
    all_registers: int = 1 << 16
    overhead_registers: int = 24
    # Bytes and values of a tile, and groups of rows in it. A dozen programs then have more bytes in
    # flight than 5 TB/s deliver in a microsecond, the latency of the memory.
    tile_bytes: int = 8192
    tile_values: int = 4096
    max_depth: int = 8
    # Bytes of a load, and padded columns relative to the columns of the data.
    min_load_bytes: int = 4
    max_load_bytes: int = 16
    max_padding: float = 1.2
    # Columns per lane, for values of one byte and for wider ones: narrower values cost more
    # instructions per byte, which leaves fewer for each row.
    columns_per_lane: tuple[int, int] = (32, 16)


_POLICY = Policy()


@dataclass(frozen=True, slots=True)
class Tiling:
    """The tile of a program: `depth` times `rows` rows, in chunks of `width` columns."""

    width: int
    chunks: int
    rows: int
    depth: int
    warps: int
    registers: int

    @property
    def programs(self) -> int:
        """Programs per multiprocessor, the same number on each of its 4 partitions."""
        return _POLICY.all_registers // (32 * 4 * self.registers) * 4 // self.warps

    @classmethod
    @cache
    def of(cls, n_columns: int, stride: int, itemsize: int) -> "Tiling":
        """Choose the tiling for rows of `n_columns` columns that begin `stride` elements apart."""
        policy = _POLICY
        warps = 1 if n_columns <= 1024 else 4
        per_lane = policy.columns_per_lane[0 if itemsize == 1 else 1]
        lanes = min(max(triton.next_power_of_2(triton.cdiv(n_columns, per_lane)), 4), 32)
        load = min(policy.max_load_bytes // itemsize, stride & -stride or policy.max_load_bytes)
        while True:
            width = lanes * load * warps
            chunks = triton.cdiv(n_columns, width)
            is_padding_small = chunks * width <= policy.max_padding * n_columns
            if is_padding_small or load * itemsize <= policy.min_load_bytes or load == 1:
                break
            load //= 2
        rows, lane_columns = 32 // lanes, chunks * load
        # A lane holds coefficients and sums of its columns and, unless the data are float32, the
        # converted values of one row. The other registers hold rows in the dtype of the data.
        fixed_registers = policy.overhead_registers + lane_columns * (2 if itemsize == 4 else 3)
        row_registers = chunks * max(load * itemsize // 4, 1)  # for a row
        group_bytes = rows * n_columns * itemsize
        tile_depth = min(policy.tile_bytes, policy.tile_values * itemsize) // group_bytes
        # With few lanes per row, more programs are faster than larger ones: 40M x 54 in float32
        # took an H200 1.98 ms with 96 registers each, and 2.2 ms with 128.
        max_registers = policy.registers[0] if lanes < 8 else policy.registers[-1]
        register_depth = (max_registers - fixed_registers) // row_registers
        depth = max(min(register_depth, tile_depth, policy.max_depth), 1)
        depth = 1 << depth.bit_length() - 1
        sufficient = [
            x for x in policy.registers[:-1] if x >= fixed_registers + row_registers * depth
        ]
        return cls(width, chunks, rows, depth, warps, (*sufficient, policy.registers[-1])[0])


def sweep(
    matrix: Any,
    codes: Any,
    positive: int,
    weights: Any,
    coef: FloatArray,
    intercept: float,
    loss: Loss,
) -> FloatArray:
    """Return the gradient, the value and the slope of one task, as one array.

    The matrix is of one of `DTYPES` and contiguous along a row. Rows of the class `positive` have
    the sign +1. Weights are float64 and sum to one; all may share one place in memory. The loss has
    kernel parameters.
    """
    n_rows, n_columns = matrix.shape
    unit = _unit(loss)
    direction = torch.from_numpy((coef / unit).astype(np.float32))
    direction = direction.to(matrix.device, non_blocking=True)
    sums = launch(matrix, codes, positive, weights, direction, float(intercept), loss, unit)
    # The kernel has counted a row of average weight as one.
    total = to_numpy(sums.sum(dim=0)) * (unit / n_rows)
    total[n_columns] *= unit
    return np.asarray(total)


def _unit(loss: Any) -> float:
    """Return the unit of margins in which the kernel evaluates a loss."""
    if not isinstance(loss, MarginLoss):
        return 1.0
    return min(loss.scale, _POLICY.max_unit * loss.margin)


def launch(
    matrix: Any,
    codes: Any,
    positive: int,
    weights: Any,
    direction: Any,
    intercept: float,
    loss: Loss,
    unit: float,
) -> Any:
    """Start the kernel; return a tensor with the sums of each program, with margins in `unit`."""
    code, margin, scale, overconfidence = cast(Any, loss).kernel_parameters
    n_rows, n_columns = matrix.shape
    tiling, programs = _launch_size(matrix)
    sums = torch.empty((programs, n_columns + 2), dtype=torch.float64, device=matrix.device)
    with torch.cuda.device_of(matrix):
        _sweep[(programs,)](
            matrix,
            codes,
            weights,
            direction,
            sums,
            n_rows,
            positive,
            intercept / unit,
            margin / unit,
            min(scale / unit, _POLICY.max_scale),
            overconfidence,
            codes.stride(0),
            weights.stride(0),
            KIND=(*RHOS, "logistic", "hinge")[code],
            IS_EQUAL=weights.stride(0) == 0,
            STRIDE=matrix.stride(0),
            N_COLUMNS=n_columns,
            WIDTH=tiling.width,
            CHUNKS=tiling.chunks,
            ROWS=tiling.rows,
            DEPTH=tiling.depth,
            num_warps=tiling.warps,
            maxnreg=tiling.registers,
        )
    return sums


def moments(matrix: Any, weights: Any, centre: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the sums of weight times centred row, and times its squares, added up in float64.

    Matrix and weights are as in `sweep`; `centre` is subtracted from each row, in float32.
    """
    n_rows, n_columns = matrix.shape
    tiling, programs = _launch_size(matrix)
    sums = torch.empty((programs, 2, n_columns), dtype=torch.float64, device=matrix.device)
    origin = torch.from_numpy(centre.astype(np.float32)).to(matrix.device, non_blocking=True)
    with torch.cuda.device_of(matrix):
        _moments[(programs,)](
            matrix,
            weights,
            origin,
            sums,
            n_rows,
            weights.stride(0),
            IS_EQUAL=weights.stride(0) == 0,
            STRIDE=matrix.stride(0),
            N_COLUMNS=n_columns,
            WIDTH=tiling.width,
            CHUNKS=tiling.chunks,
            ROWS=tiling.rows,
            DEPTH=tiling.depth,
            num_warps=tiling.warps,  # and any number of registers: the sums take twice as many
        )
    first, second = to_numpy(sums.sum(dim=0))
    return first, second


def _launch_size(matrix: Any) -> tuple[Tiling, int]:
    """Return the tiling for a matrix, and the number of programs."""
    tiling = Tiling.of(matrix.shape[1], matrix.stride(0), matrix.element_size())
    processors = 1  # of Triton's interpreter
    if matrix.is_cuda:
        processors = torch.cuda.get_device_properties(matrix.device).multi_processor_count
    tiles = triton.cdiv(matrix.shape[0], tiling.depth * tiling.rows)
    return tiling, min(tiles, processors * tiling.programs)


@triton.jit  # type: ignore[untyped-decorator]
def _load_tile(  # type: ignore[no-untyped-def]  # pragma: no cover - runs on the device
    matrix,
    first,
    n_left,
    STRIDE: tl.constexpr,
    N_COLUMNS: tl.constexpr,
    WIDTH: tl.constexpr,
    CHUNKS: tl.constexpr,
    ROWS: tl.constexpr,
    DEPTH: tl.constexpr,
):
    """Load a whole tile; return its chunks, those of a row in succession."""
    column, line = tl.arange(0, WIDTH), tl.arange(0, ROWS)
    x = ()
    for part in tl.static_range(DEPTH * CHUNKS):
        is_row = line < n_left - part // CHUNKS * ROWS
        is_column = column < N_COLUMNS - part % CHUNKS * WIDTH
        address = (line + part // CHUNKS * ROWS)[:, None] * STRIDE + column[None, :]
        address = matrix + first * STRIDE + address + part % CHUNKS * WIDTH
        mask = is_row[:, None] & is_column[None, :]
        x += (tl.load(address, mask=mask, other=0),)  # type: ignore[assignment]
    return x


@triton.jit
def _catoni(size, scale):  # type: ignore[no-untyped-def]  # pragma: no cover - runs on the device
    # With t = min(r, s√2): ψ = t - t³/(6s²) and ρ = t²/2 - t⁴/(24s²) + sB(r - t).
    cubic = 1.0 / (6.0 * scale * scale)
    within = tl.minimum(size, 1.4142135623730951 * scale)
    square = within * within
    linear = 0.9428090415820635 * scale * (size - within)
    return square * (0.5 - 0.25 * cubic * square) + linear, within * (1.0 - cubic * square)


@triton.jit
def _pseudo_huber(size, scale):  # type: ignore[no-untyped-def]  # pragma: no cover
    ratio = size / scale
    norm = tl.sqrt(1.0 + ratio * ratio)
    is_linear = ratio > 1e18
    value = size * tl.where(is_linear, scale, size / (1.0 + norm))
    return value, tl.where(is_linear, scale, size / norm)


@triton.jit
def _log_cosh(size, scale):  # type: ignore[no-untyped-def]  # pragma: no cover
    # Power series up to u = 1/2 and 1/10, in which the closed forms would cancel in float32.
    ratio = size / scale
    square = tl.minimum(ratio, 1.0) * tl.minimum(ratio, 1.0)
    power = tl.exp(-2.0 * ratio)
    series = 17.0 / 2520.0 - square * (31.0 / 14175.0 - square * (691.0 / 935550.0))
    series = 0.5 - square * (1.0 / 12.0 - square * (1.0 / 45.0 - square * series))
    outer = scale * (size + scale * (tl.log(1.0 + power) - 0.6931471805599453))
    value = tl.where(ratio < 0.5, size * (size * series), outer)
    inner = size * (1.0 - square * (1.0 / 3.0 - square * (2.0 / 15.0)))
    return value, tl.where(ratio < 0.1, inner, scale * ((1.0 - power) / (1.0 + power)))


@triton.jit
def _huber(size, scale):  # type: ignore[no-untyped-def]  # pragma: no cover
    within = tl.minimum(size, scale)
    return 0.5 * within * within + scale * (size - within), within


@triton.jit
def _logistic(residual):  # type: ignore[no-untyped-def]  # pragma: no cover
    # log(1 + e^r); where e^-|r| is small, log(1 + x) is x - x²/2.
    power = tl.exp(-tl.abs(residual))
    log1p = tl.where(power < 1e-3, power * (1.0 - 0.5 * power), tl.log(1.0 + power))
    influence = tl.where(residual < 0, power, 1.0) / (1.0 + power)
    return tl.maximum(residual, 0.0) + log1p, influence


@triton.jit  # type: ignore[untyped-decorator]
def _loss(residual, scale, KIND: tl.constexpr):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Return a loss and its influence at residuals, for weight 1."""
    size = tl.abs(residual)
    if KIND == "logistic":
        value, influence = _logistic(residual)
    elif KIND == "hinge":
        value, influence = size, tl.where(residual == 0, 0.0, 1.0)
    elif KIND == "pseudo_huber":
        value, influence = _pseudo_huber(size, scale)
    elif KIND == "log_cosh":
        value, influence = _log_cosh(size, scale)
    elif KIND == "huber":
        value, influence = _huber(size, scale)
    elif KIND == "catoni":
        value, influence = _catoni(size, scale)
    else:
        value, influence = 0.5 * size * size, size
    if KIND != "logistic":
        influence = tl.where(residual < 0, -influence, influence)
    return value, influence


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
    KIND: tl.constexpr,
    IS_EQUAL: tl.constexpr,
    STRIDE: tl.constexpr,
    N_COLUMNS: tl.constexpr,
    WIDTH: tl.constexpr,
    CHUNKS: tl.constexpr,
    ROWS: tl.constexpr,
    DEPTH: tl.constexpr,
):
    TILE: tl.constexpr = DEPTH * ROWS
    column, line = tl.arange(0, WIDTH), tl.arange(0, ROWS)
    direction, gradient = (), ()  # tuples, as chunks need not be a power of two
    for chunk in tl.static_range(CHUNKS):
        is_column = column < N_COLUMNS - chunk * WIDTH
        factors = tl.load(coef + chunk * WIDTH + column, mask=is_column, other=0.0)
        direction += (factors[None, :],)  # type: ignore[assignment]
        gradient += (tl.zeros((ROWS, WIDTH), tl.float32),)  # type: ignore[assignment]
    value = tl.zeros((ROWS,), tl.float32)
    slope = tl.zeros((ROWS,), tl.float32)
    common_weight = (tl.load(weights) * n_rows).to(tl.float32)
    for tile in range(tl.program_id(0), tl.cdiv(n_rows, TILE), tl.num_programs(0)):
        first = tl.full((), TILE, tl.int64) * tile  # the interpreter counts tiles in Python
        n_left = tl.minimum(n_rows - first, TILE).to(tl.int32)
        x = _load_tile(matrix, first, n_left, STRIDE, N_COLUMNS, WIDTH, CHUNKS, ROWS, DEPTH)
        for depth in tl.static_range(DEPTH):
            is_row, row = line < n_left - depth * ROWS, first + depth * ROWS + line
            code = tl.load(codes + row * code_stride, mask=is_row, other=0)
            if IS_EQUAL:
                weight = common_weight
            else:
                row_weight = tl.load(weights + row * weight_stride, mask=is_row, other=0.0)
                weight = (row_weight * n_rows).to(tl.float32)
            sign = tl.where(code == positive, 1.0, -1.0)
            products = tl.zeros((ROWS, WIDTH), tl.float32)
            for chunk in tl.static_range(CHUNKS):
                products += x[depth * CHUNKS + chunk].to(tl.float32) * direction[chunk]
            residual = level - sign * (tl.sum(products, axis=1) + intercept)
            side_weight = tl.where(residual < 0, weight * overconfidence, weight)
            side_weight = tl.where(is_row, side_weight, 0.0)
            loss, influence = _loss(residual, scale, KIND)
            value += side_weight * loss
            factor = -sign * side_weight * influence
            slope += factor
            total = ()
            for chunk in tl.static_range(CHUNKS):
                row_sums = x[depth * CHUNKS + chunk].to(tl.float32) * factor[:, None]
                total += (gradient[chunk] + row_sums,)  # type: ignore[assignment]
            gradient = total
    out = sums + tl.program_id(0).to(tl.int64) * (N_COLUMNS + 2)
    for chunk in tl.static_range(CHUNKS):
        is_column = column < N_COLUMNS - chunk * WIDTH
        total = tl.sum(gradient[chunk].to(tl.float64), axis=0)
        tl.store(out + chunk * WIDTH + column, total, mask=is_column)
    tl.store(out + N_COLUMNS, tl.sum(value.to(tl.float64), axis=0))
    tl.store(out + N_COLUMNS + 1, tl.sum(slope.to(tl.float64), axis=0))


@triton.jit  # type: ignore[untyped-decorator]
def _moments(  # type: ignore[no-untyped-def]  # pragma: no cover - runs on the device
    matrix,
    weights,
    centre,
    sums,
    n_rows,
    weight_stride,
    IS_EQUAL: tl.constexpr,
    STRIDE: tl.constexpr,
    N_COLUMNS: tl.constexpr,
    WIDTH: tl.constexpr,
    CHUNKS: tl.constexpr,
    ROWS: tl.constexpr,
    DEPTH: tl.constexpr,
):
    TILE: tl.constexpr = DEPTH * ROWS
    column, line = tl.arange(0, WIDTH), tl.arange(0, ROWS)
    origin, first_moments, second_moments = (), (), ()
    for chunk in tl.static_range(CHUNKS):
        is_column = column < N_COLUMNS - chunk * WIDTH
        shift = tl.load(centre + chunk * WIDTH + column, mask=is_column, other=0.0)
        origin += (shift[None, :],)  # type: ignore[assignment]
        first_moments += (tl.zeros((ROWS, WIDTH), tl.float64),)  # type: ignore[assignment]
        second_moments += (tl.zeros((ROWS, WIDTH), tl.float64),)  # type: ignore[assignment]
    for tile in range(tl.program_id(0), tl.cdiv(n_rows, TILE), tl.num_programs(0)):
        first = tl.full((), TILE, tl.int64) * tile  # the interpreter counts tiles in Python
        n_left = tl.minimum(n_rows - first, TILE).to(tl.int32)
        x = _load_tile(matrix, first, n_left, STRIDE, N_COLUMNS, WIDTH, CHUNKS, ROWS, DEPTH)
        for depth in tl.static_range(DEPTH):
            is_row, row = line < n_left - depth * ROWS, first + depth * ROWS + line
            if IS_EQUAL:
                weight = tl.where(is_row, 1.0, 0.0).to(tl.float64)
            else:
                weight = tl.load(weights + row * weight_stride, mask=is_row, other=0.0)
            new_first, new_second = (), ()
            for chunk in tl.static_range(CHUNKS):
                centred = x[depth * CHUNKS + chunk].to(tl.float32) - origin[chunk]
                centred = centred.to(tl.float64)
                weighted = centred * weight[:, None]
                new_first += (first_moments[chunk] + weighted,)  # type: ignore[assignment]
                new_second += (second_moments[chunk] + weighted * centred,)  # type: ignore[assignment]
            first_moments, second_moments = new_first, new_second
    common_weight = 1.0
    if IS_EQUAL:
        common_weight = tl.load(weights)
    out = sums + tl.program_id(0).to(tl.int64) * (2 * N_COLUMNS)
    for chunk in tl.static_range(CHUNKS):
        is_column, address = column < N_COLUMNS - chunk * WIDTH, out + chunk * WIDTH + column
        tl.store(address, tl.sum(first_moments[chunk], axis=0) * common_weight, mask=is_column)
        tl.store(
            address + N_COLUMNS,
            tl.sum(second_moments[chunk], axis=0) * common_weight,
            mask=is_column,
        )
