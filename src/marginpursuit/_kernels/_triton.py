"""The sweep for one task, and moments, on a CUDA device: Triton kernels that read the rows once.

Each program takes every so many-th tile of rows, adds them up, in float32 for a sweep, and writes
its sums; those of all programs are added in float64. Which program takes which rows is fixed by the
shape of the data and the device, so that results repeat bit for bit.

A program is one warp. Some of its lanes share a row, the fewer the better: what is done once for a
row is done by each of them, and their sums have to meet. The columns that a lane sees keep their
coefficients and sums in registers, from the first tile to the last.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from marginpursuit._namespaces import to_numpy
from marginpursuit._validation import FloatArray
from marginpursuit.losses import INFLUENCE_BOUND, TRUNCATION, MarginLoss

#: The dtypes that the kernel reads as they are.
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.uint8)

#: The most columns whose sums fit the registers.
MOST_COLUMNS = 4096

# Where squares of margins, in units of the scale, would leave float32, the unit is this many times
# the level; a scale so many times the unit is as good as none.
_LARGEST_UNIT, _LARGEST_SCALE = 1e6, 1e15

# The registers of a thread, as many as permit 20, 16 or 12 warps on a multiprocessor, which shares
# 65,536 of them; and those that hold neither values, coefficients nor sums.
_REGISTERS, _ALL_REGISTERS, _OVERHEAD = (96, 128, 168), 1 << 16, 24

# The most that a program asks for at once. A dozen of them then wait for more than a device of
# 5 TB/s delivers in a microsecond, which is about what it takes to answer.
_TILE_BYTES, _TILE_VALUES, _MOST_DEPTH = 8192, 4096, 8

# The bytes of a load; and the columns, relative to those that there are, that loads may reach for.
_LEAST_LOAD, _LARGEST_LOAD, _MOST_PADDING = 4, 16, 1.2


@dataclass(frozen=True, slots=True)
class Tiling:
    """What a program reads at once: `depth` times `rows` rows, in chunks of `width` columns."""

    width: int
    chunks: int
    rows: int
    depth: int
    warps: int
    registers: int

    @property
    def programs(self) -> int:
        """How many of them a multiprocessor runs at a time: the same on each of its 4 parts."""
        return _ALL_REGISTERS // (32 * 4 * self.registers) * 4 // self.warps

    @classmethod
    @cache
    def of(cls, n_columns: int, stride: int, itemsize: int) -> "Tiling":
        """Choose for rows of so many columns that begin `stride` elements apart."""
        warps = 1 if n_columns <= 1024 else 4
        # Narrower values cost more instructions for each byte, and fewer are left for each row.
        share = 32 if itemsize == 1 else 16
        lanes = min(max(triton.next_power_of_2(triton.cdiv(n_columns, share)), 4), 32)
        load = min(_LARGEST_LOAD // itemsize, stride & -stride or _LARGEST_LOAD)
        while True:
            width = lanes * load * warps
            chunks = triton.cdiv(n_columns, width)
            is_close = chunks * width <= _MOST_PADDING * n_columns
            if is_close or load * itemsize <= _LEAST_LOAD or load == 1:
                break
            load //= 2
        rows, seen = 32 // lanes, chunks * load
        # A lane keeps coefficients and sums of the columns that it sees, and the values of one row
        # in float32 if they came otherwise. What is left takes the rows as they came.
        fixed = _OVERHEAD + seen * (2 if itemsize == 4 else 3)
        held = chunks * max(load * itemsize // 4, 1)  # for a row
        tile = min(_TILE_BYTES, _TILE_VALUES * itemsize) // (rows * n_columns * itemsize)
        # Where few lanes share a row, more programs do better than larger ones: 40M x 54 in float32
        # took an H200 1.98 ms with 96 registers each, and 2.2 ms with 128.
        most = _REGISTERS[0] if lanes < 8 else _REGISTERS[-1]
        depth = max(min((most - fixed) // held, tile, _MOST_DEPTH), 1)
        depth = 1 << depth.bit_length() - 1
        enough = [x for x in _REGISTERS[:-1] if x >= fixed + held * depth]
        return cls(width, chunks, rows, depth, warps, (*enough, _REGISTERS[-1])[0])


def sweep(
    matrix: Any,
    codes: Any,
    positive: int,
    weights: Any,
    coef: FloatArray,
    intercept: float,
    loss: MarginLoss,
) -> FloatArray:
    """Return the gradient, the value and the slope of one task, as one array.

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
    coef : ndarray of shape (n_columns,)
        Coefficients.
    intercept : float
        The intercept.
    loss : MarginLoss
        The loss.
    """
    n_rows, n_columns = matrix.shape
    unit = min(loss.scale, _LARGEST_UNIT * loss.margin)
    direction = torch.from_numpy((coef / unit).astype(np.float32))
    direction = direction.to(matrix.device, non_blocking=True)
    sums = launch(matrix, codes, positive, weights, direction, float(intercept), loss, unit)
    # The kernel has counted a row of average weight as one.
    total = to_numpy(sums.sum(dim=0)) * (unit / n_rows)
    total[n_columns] *= unit
    return np.asarray(total)


def launch(
    matrix: Any,
    codes: Any,
    positive: int,
    weights: Any,
    direction: Any,
    intercept: float,
    loss: MarginLoss,
    unit: float,
) -> Any:
    """Start the kernel; return a tensor with the sums of each program, margins in this unit."""
    n_rows, n_columns = matrix.shape
    tiling, programs = _shares(matrix)
    sums = torch.empty((programs, n_columns + 2), dtype=torch.float64, device=matrix.device)
    scale = min(loss.scale / unit, _LARGEST_SCALE)
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
            loss.margin / unit,
            TRUNCATION * scale,
            1.0 / (6.0 * scale * scale),
            INFLUENCE_BOUND * scale,
            loss.overconfidence,
            codes.stride(0),
            weights.stride(0),
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

    Parameters
    ----------
    matrix : torch.Tensor of shape (n_rows, n_columns)
        The rows, of one of `DTYPES`, contiguous along a row.
    weights : torch.Tensor of shape (n_rows,)
        Weights in float64; all may share one place in memory.
    centre : ndarray of shape (n_columns,)
        What is subtracted from each row, in float32.
    """
    n_rows, n_columns = matrix.shape
    tiling, programs = _shares(matrix)
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


def _shares(matrix: Any) -> tuple[Tiling, int]:
    """Return the tiling for a matrix, and the number of programs that share it."""
    tiling = Tiling.of(matrix.shape[1], matrix.stride(0), matrix.element_size())
    processors = 1  # of Triton's interpreter
    if matrix.is_cuda:
        processors = torch.cuda.get_device_properties(matrix.device).multi_processor_count
    tiles = triton.cdiv(matrix.shape[0], tiling.depth * tiling.rows)
    return tiling, min(tiles, processors * tiling.programs)


@triton.jit  # type: ignore[untyped-decorator]
def _ask(  # type: ignore[no-untyped-def]  # pragma: no cover - runs on the device
    matrix,
    first,
    left,
    STRIDE: tl.constexpr,
    N_COLUMNS: tl.constexpr,
    WIDTH: tl.constexpr,
    CHUNKS: tl.constexpr,
    ROWS: tl.constexpr,
    DEPTH: tl.constexpr,
):
    """Load a tile, all of it before any is used; return its chunks, those of a row together."""
    column, line = tl.arange(0, WIDTH), tl.arange(0, ROWS)
    x = ()
    for part in tl.static_range(DEPTH * CHUNKS):
        there = line < left - part // CHUNKS * ROWS
        inside = column < N_COLUMNS - part % CHUNKS * WIDTH
        place = (line + part // CHUNKS * ROWS)[:, None] * STRIDE + column[None, :]
        place = matrix + first * STRIDE + place + part % CHUNKS * WIDTH
        mask = there[:, None] & inside[None, :]
        x += (tl.load(place, mask=mask, other=0),)  # type: ignore[assignment]
    return x


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
    limit,
    cubic,
    steepest,
    overconfidence,
    code_stride,
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
    direction, gradient = (), ()  # tuples, as chunks need not be a power of two
    for chunk in tl.static_range(CHUNKS):
        inside = column < N_COLUMNS - chunk * WIDTH
        factors = tl.load(coef + chunk * WIDTH + column, mask=inside, other=0.0)
        direction += (factors[None, :],)  # type: ignore[assignment]
        gradient += (tl.zeros((ROWS, WIDTH), tl.float32),)  # type: ignore[assignment]
    value = tl.zeros((ROWS,), tl.float32)
    slope = tl.zeros((ROWS,), tl.float32)
    shared = (tl.load(weights) * n_rows).to(tl.float32)
    for tile in range(tl.program_id(0), tl.cdiv(n_rows, TILE), tl.num_programs(0)):
        first = tl.full((), TILE, tl.int64) * tile  # the interpreter counts tiles in Python
        left = tl.minimum(n_rows - first, TILE).to(tl.int32)
        x = _ask(matrix, first, left, STRIDE, N_COLUMNS, WIDTH, CHUNKS, ROWS, DEPTH)
        for depth in tl.static_range(DEPTH):
            there, row = line < left - depth * ROWS, first + depth * ROWS + line
            code = tl.load(codes + row * code_stride, mask=there, other=0)
            if IS_EQUAL:
                weight = shared
            else:
                own = tl.load(weights + row * weight_stride, mask=there, other=0.0)
                weight = (own * n_rows).to(tl.float32)
            sign = tl.where(code == positive, 1.0, -1.0)
            products = tl.zeros((ROWS, WIDTH), tl.float32)
            for chunk in tl.static_range(CHUNKS):
                products += x[depth * CHUNKS + chunk].to(tl.float32) * direction[chunk]
            residual = level - sign * (tl.sum(products, axis=1) + intercept)
            # With t the residual within ±s√2: ψ is t - t³/(6s²), and ρ is t²/2 - t⁴/(24s²) plus
            # B times what lies beyond, in units of s (see `losses`).
            within = tl.minimum(tl.maximum(residual, -limit), limit)
            square = within * within
            beyond = steepest * tl.abs(residual - within)
            charge = tl.where(residual < 0, weight * overconfidence, weight)
            charge = tl.where(there, charge, 0.0)
            value += charge * (square * (0.5 - 0.25 * cubic * square) + beyond)
            factor = -sign * charge * (within * (1.0 - cubic * square))
            slope += factor
            total = ()
            for chunk in tl.static_range(CHUNKS):
                row_sums = x[depth * CHUNKS + chunk].to(tl.float32) * factor[:, None]
                total += (gradient[chunk] + row_sums,)  # type: ignore[assignment]
            gradient = total
    here = sums + tl.program_id(0).to(tl.int64) * (N_COLUMNS + 2)
    for chunk in tl.static_range(CHUNKS):
        inside = column < N_COLUMNS - chunk * WIDTH
        total = tl.sum(gradient[chunk].to(tl.float64), axis=0)
        tl.store(here + chunk * WIDTH + column, total, mask=inside)
    tl.store(here + N_COLUMNS, tl.sum(value.to(tl.float64), axis=0))
    tl.store(here + N_COLUMNS + 1, tl.sum(slope.to(tl.float64), axis=0))


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
    origin, once, twice = (), (), ()
    for chunk in tl.static_range(CHUNKS):
        inside = column < N_COLUMNS - chunk * WIDTH
        shift = tl.load(centre + chunk * WIDTH + column, mask=inside, other=0.0)
        origin += (shift[None, :],)  # type: ignore[assignment]
        once += (tl.zeros((ROWS, WIDTH), tl.float64),)  # type: ignore[assignment]
        twice += (tl.zeros((ROWS, WIDTH), tl.float64),)  # type: ignore[assignment]
    for tile in range(tl.program_id(0), tl.cdiv(n_rows, TILE), tl.num_programs(0)):
        first = tl.full((), TILE, tl.int64) * tile  # the interpreter counts tiles in Python
        left = tl.minimum(n_rows - first, TILE).to(tl.int32)
        x = _ask(matrix, first, left, STRIDE, N_COLUMNS, WIDTH, CHUNKS, ROWS, DEPTH)
        for depth in tl.static_range(DEPTH):
            there, row = line < left - depth * ROWS, first + depth * ROWS + line
            if IS_EQUAL:
                weight = tl.where(there, 1.0, 0.0).to(tl.float64)
            else:
                weight = tl.load(weights + row * weight_stride, mask=there, other=0.0)
            new_once, new_twice = (), ()
            for chunk in tl.static_range(CHUNKS):
                away = x[depth * CHUNKS + chunk].to(tl.float32) - origin[chunk]
                away = away.to(tl.float64)
                weighted = away * weight[:, None]
                new_once += (once[chunk] + weighted,)  # type: ignore[assignment]
                new_twice += (twice[chunk] + weighted * away,)  # type: ignore[assignment]
            once, twice = new_once, new_twice
    shared = 1.0
    if IS_EQUAL:
        shared = tl.load(weights)
    here = sums + tl.program_id(0).to(tl.int64) * (2 * N_COLUMNS)
    for chunk in tl.static_range(CHUNKS):
        inside, place = column < N_COLUMNS - chunk * WIDTH, here + chunk * WIDTH + column
        tl.store(place, tl.sum(once[chunk], axis=0) * shared, mask=inside)
        tl.store(place + N_COLUMNS, tl.sum(twice[chunk], axis=0) * shared, mask=inside)
