"""Rows in an array of another library, on a GPU as a rule: computation stays where the data is.

Rows are taken in blocks through the functions of the array API standard. Data that float32 holds
is multiplied in float32 and added up in float64, a few thousand rows at a time. What crosses to
NumPy in a read is of the size of the coefficients; only scores stay where the data is. On a CUDA
device one task is swept by a fused kernel, in one read.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginpursuit._namespaces import NARROW, beside, dtype_name, namespace, to_numpy
from marginpursuit._validation import FloatArray
from marginpursuit.design._base import Design, Flags, Sweep
from marginpursuit.design.rows import take_rows
from marginpursuit.losses.margin import stacked
from marginpursuit.tasks import Tasks

# Elements of the data, or scores, in a block. A Gram matrix of 20M x 128 took an H200 26 ms in
# blocks of half this size, 21 ms in blocks of twice it, which take twice the memory.
_BLOCK_ELEMENTS = 1 << 26

# Rows whose products are added up in the dtype of the products. Errors of many groups average out;
# where there are few, they are smaller.
_GROUP, _SMALL_GROUP = 4096, 256
_FEW_ROWS = 1 << 20


class ArrayDesign(Design):
    """A matrix of torch, CuPy or any library that follows the array API standard."""

    def __init__(self, matrix: Any) -> None:
        super().__init__(*matrix.shape)
        self._xp, self._matrix = namespace(matrix), matrix
        is_narrow = dtype_name(matrix) in NARROW
        self._dtype = self._xp.float32 if is_narrow else self._xp.float64
        if is_narrow:
            self.rounding, self.resolution, self.smallest = 1e-8, 1e-6, 1e-17
        self._group = _GROUP if self.n_rows > _FEW_ROWS else _SMALL_GROUP
        self._kernels = _fused_kernels(matrix)
        self._resources.enter_context(_full_precision(matrix))

    def beside(self, rows: FloatArray) -> "ArrayDesign":
        """Return a design of other rows in the same place."""
        return ArrayDesign(beside(self._matrix, rows))

    def sample(self, rows: NDArray[np.intp]) -> Design:
        """Return a design of some rows, in the same place."""
        return ArrayDesign(take_rows(self._matrix, rows))

    def _sweep(self, coef: FloatArray, intercept: FloatArray, tasks: Tasks) -> Sweep:
        codes, weights = self.place(tasks.codes), self.place(tasks.weights)
        if len(tasks) == 1 and self._kernels is not None:
            part, positive = int(tasks.part[0]), int(tasks.positive[0])
            columns = self._kernels.sweep(
                self._matrix,
                codes,
                positive,
                weights[part, :],
                coef[:, 0],
                float(intercept[0]),
                tasks.losses[0],
            )[:, np.newaxis]
        else:
            columns = to_numpy(self._sweep_many(coef, intercept, tasks, codes, weights)).T
        return Sweep(columns[-2].copy(), columns[:-2], columns[-1].copy())

    def _sweep_many(
        self, coef: FloatArray, intercept: FloatArray, tasks: Tasks, codes: Any, weights: Any
    ) -> Any:
        """Return gradient, value and slope of each task, a row each."""
        xp, here = self._xp, self._here
        evaluate, columns = stacked(tasks.losses, here), here(coef)
        positive, offset = beside(codes, tasks.positive, codes.dtype), here(intercept)
        parts = np.unique(tasks.part)
        is_one = len(parts) == 1
        part = beside(codes, tasks.part, xp.int64)
        total = self._nothing(len(tasks), self.n_columns + 2)
        for span, rows in self._chunks(len(tasks)):
            # Rows of average weight count as one, which float32 holds.
            weight = weights[int(parts[0]), span][:, None] if is_one else weights[:, span].T
            weight = xp.astype(weight * float(self.n_rows), self._dtype)
            weight = weight if is_one else xp.take(weight, part, axis=1)
            sign = xp.astype(codes[span][:, None] == positive[None, :], self._dtype) * 2.0 - 1.0
            margins = sign * (xp.matmul(rows, columns) + offset)
            value, slope = evaluate(margins, weight)
            slope = sign * slope
            sums = [xp.sum(x, axis=0, dtype=xp.float64)[:, None] for x in (value, slope)]
            total = total + xp.concat([self._products(slope, rows), *sums], axis=1)
        return total / float(self.n_rows)

    def _scores(self, coef: FloatArray, intercept: FloatArray) -> Any:
        parts = [part for _, part in self._score_chunks(coef, intercept)]
        return parts[0] if len(parts) == 1 else self._xp.concat(parts, axis=0)

    def _score_chunks(self, coef: FloatArray, intercept: FloatArray) -> Iterator[tuple[slice, Any]]:
        columns, offset = self._here(coef), self._here(intercept)
        for span, rows in self._chunks(len(intercept)):
            yield span, self._xp.matmul(rows, columns) + offset

    def _part_scores(
        self, coef: FloatArray, intercept: FloatArray, chosen: Flags, part: NDArray[np.intp]
    ) -> list[FloatArray]:
        xp, own = self._xp, [part == k for k in range(len(chosen))]
        linear = [(self._here(coef[:, tasks]), self._here(intercept[tasks])) for tasks in own]
        scores: list[list[FloatArray]] = [[] for _ in own]
        for span, rows in self._chunks(len(part)):
            for kept, (columns, offset), flags in zip(scores, linear, chosen[:, span], strict=True):
                wanted = beside(rows, np.flatnonzero(flags), xp.int64)
                some = xp.take(rows, wanted, axis=0)
                kept.append(to_numpy(xp.matmul(some, columns) + offset))
        return [np.concatenate(kept, dtype=np.float64) for kept in scores]

    def _adjoint(self, factors: Any) -> FloatArray:
        xp, factors = self._xp, self.place(factors)
        if self._kernels is not None:
            return np.asarray(
                self._kernels.moments(self._matrix, factors, np.zeros(self.n_columns))[0]
            )
        unit = self._unit(factors)
        is_weighted = bool(xp.min(factors) < unit)
        total = self._nothing(self.n_columns)
        for span, rows in self._chunks():
            if is_weighted:
                rows = rows * xp.astype(factors[span] / unit, self._dtype)[:, None]
            # In float64 all the way: a mean must be as exact as the values of a constant column.
            total = total + xp.sum(rows, axis=0, dtype=xp.float64)
        return to_numpy(total * unit)

    def _gram(self, weights: Any) -> FloatArray:
        xp, weights = self._xp, self.place(weights)
        unit = self._unit(weights)
        is_weighted = bool(xp.min(weights) < unit)
        total = self._nothing(self.n_columns, self.n_columns)
        for span, rows in self._centred_chunks():
            if is_weighted:
                rows = rows * xp.astype(xp.sqrt(weights[span] / unit), self._dtype)[:, None]
            total = total + self._products(rows, rows)
        return to_numpy(total * unit)

    def _squares(self, weights: Any) -> FloatArray:
        return np.asarray(self._part_moments(self.place(weights)[None, :])[1][0])

    def _part_moments(self, weights: Any) -> tuple[FloatArray, FloatArray]:
        weights = self.place(weights)
        if self._kernels is not None and weights.shape[0] == 1:
            first, second = self._kernels.moments(self._matrix, weights[0, :], self.centre)
            # Values whose squares leave float32 are not for the other kernels.
            second = np.where(second < np.finfo(np.float32).max, second, np.inf)
            return first[np.newaxis], second[np.newaxis]
        unit = self._unit(weights)
        first = second = self._nothing(weights.shape[0], self.n_columns)
        for span, rows in self._centred_chunks():
            share = self._xp.astype(weights[:, span] / unit, self._dtype).T
            first = first + self._products(share, rows)
            second = second + self._products(share, rows * rows)
        return to_numpy(first * unit), to_numpy(second * unit)

    def _distances(self, factors: FloatArray) -> Any:
        xp, scale = self._xp, self._here(factors)
        squares = [
            xp.sum((rows * scale) ** 2, axis=1, dtype=xp.float64)
            for _, rows in self._centred_chunks()
        ]
        return xp.sqrt(xp.concat(squares))

    def _largest(self, columns: NDArray[np.intp]) -> FloatArray:
        xp, wanted = self._xp, beside(self._matrix, columns, self._xp.int64)
        largest = self._nothing(1, len(columns))[0, :]
        for _, rows in self._chunks():
            size = xp.max(xp.abs(xp.take(rows, wanted, axis=1)), axis=0)
            largest = xp.maximum(largest, xp.astype(size, xp.float64))
        return to_numpy(largest)

    def _row_products(self, factors: FloatArray) -> FloatArray:
        # There are few rows, and their products are factorised: that takes all digits.
        xp = self._xp
        centre, wide = (beside(self._matrix, x) for x in (self.centre, factors))
        total = self._nothing(self.n_rows, self.n_rows)
        step = max(1, _BLOCK_ELEMENTS // self.n_rows)
        for first in range(0, self.n_columns, step):
            span = slice(first, min(first + step, self.n_columns))
            rows = xp.astype(self._matrix[:, span], xp.float64) - centre[span]
            rows = rows * wide[span]
            total = total + xp.matmul(rows, rows.T)
        return to_numpy(total)

    def place(self, values: Any) -> Any:
        """Return an array with an entry a row where the data is; as a rule it is there already."""
        return beside(self._matrix, values)

    def _here(self, values: FloatArray) -> Any:
        return beside(self._matrix, values, self._dtype)

    def _nothing(self, *shape: int) -> Any:
        return self._xp.zeros(shape, dtype=self._xp.float64, device=self._matrix.device)

    def _unit(self, factors: Any) -> float:
        """Return what to divide factors by, that float32 holds them and their products."""
        largest = float(self._xp.max(self._xp.abs(factors)))
        return largest if largest > 0 else 1.0

    def _chunks(self, n_tasks: int = 1) -> Iterator[tuple[slice, Any]]:
        """Yield rows in the dtype of products, some at a time, for so many tasks."""
        group_elements = self._group * max(1, self.n_columns, n_tasks)
        step = max(1, _BLOCK_ELEMENTS // group_elements) * self._group
        for first in range(0, self.n_rows, step):
            span = slice(first, min(first + step, self.n_rows))
            yield span, self._xp.astype(self._matrix[span, :], self._dtype)

    def _centred_chunks(self) -> Iterator[tuple[slice, Any]]:
        centre = self._here(self.centre)
        for span, rows in self._chunks():
            yield span, rows - centre

    def _products(self, left: Any, right: Any) -> Any:
        """Return leftᵀ·right, summed over groups of rows in float64."""
        xp, size = self._xp, self._group
        whole = left.shape[0] // size * size
        rest = xp.matmul(left[whole:, :].T, right[whole:, :])
        total = xp.astype(rest, xp.float64)
        if whole:
            groups = [xp.reshape(x[:whole, :], (-1, size, x.shape[1])) for x in (left, right)]
            products = xp.matmul(groups[0].mT, groups[1])
            total = total + xp.sum(products, axis=0, dtype=xp.float64)
        return total


def _fused_kernels(matrix: Any) -> Any:
    """Return the kernels for CUDA, if this is a tensor that they can read."""
    if not getattr(matrix, "is_cuda", False):
        return None
    try:
        from marginpursuit._kernels import _triton
    except ImportError:  # torch without Triton
        return None
    readable = matrix.dtype in _triton.DTYPES and matrix.stride(1) == 1
    return _triton if readable and matrix.shape[1] <= _triton.MOST_COLUMNS else None


@contextmanager
def _full_precision(matrix: Any) -> Iterator[None]:
    """Keep torch from rounding the factors of float32 products to TF32, if it is set to do so."""
    if not getattr(matrix, "is_cuda", False):
        yield
        return
    import torch

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
