"""Rows in an array of another library, usually on a GPU: all work is done on its device.

Rows are read in blocks through the functions of the array API standard. Data of a dtype that
float32 represents exactly are multiplied in float32 and summed in float64 over groups of a few
thousand rows. Only arrays of the size of the coefficients are copied to NumPy in a pass; scores
stay on the device. On a CUDA device one task is swept by a fused kernel.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from marginpursuit._namespaces import (
    is_exact_in_float32,
    namespace,
    to_device_of,
    to_numpy,
)
from marginpursuit._threads import Threads
from marginpursuit._validation import FloatArray
from marginpursuit.design._base import BoolArray, Design, Sweep, design_for, take_rows
from marginpursuit.losses.margin import stacked
from marginpursuit.tasks import JointTasks, Tasks


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ArrayPolicy:
    """Sizes of the units of work on a device; measured on an H200 by `benchmarks/gpu.py`."""

    #: Elements of the data, or scores, in a block. A Gram matrix of 20M × 128 takes 26 ms with half
    #: as many and 21 ms with twice as many, which take twice the memory.
    block_elements: int = 1 << 26
    #: Rows whose products are summed in the dtype of the products. Rounding errors of many groups
    #: average out; with fewer rows than `many_rows`, smaller groups have smaller errors.
    group_rows: int = 4096
    small_group_rows: int = 256
    many_rows: int = 1 << 20
    #: The precision of float32 products, as torch names it: "highest" is float32, "high" is TF32,
    #: whose factors have 11 significant bits as those of float16. A pass over 1.28M × 1,024 with
    #: 1,000 classes takes 124 ms and 38 ms (`benchmarks/probe.py`).
    float32_precision: str = "highest"


@design_for.register(object)
class ArrayDesign(Design):
    """A matrix of torch, CuPy or any library that follows the array API standard.

    As a context manager it sets the precision of torch's float32 products to that of the policy:
    by default factors are not rounded to TF32.
    """

    capabilities = frozenset({"subset"})

    def __init__(
        self, matrix: Any, threads: Threads | None = None, *, policy: ArrayPolicy | None = None
    ) -> None:
        n_rows, n_columns = matrix.shape
        super().__init__(n_rows, n_columns, threads)
        self._policy = ArrayPolicy() if policy is None else policy
        self._xp, self._matrix = namespace(matrix), matrix
        is_narrow = is_exact_in_float32(matrix)
        self._dtype = self._xp.float32 if is_narrow else self._xp.float64
        if is_narrow:
            self.rounding, self.value_rounding, self.smallest_magnitude = 1e-8, 1e-6, 1e-17
            if self._policy.float32_precision != "highest":
                self.rounding = 1e-7
        is_large = self.n_rows > self._policy.many_rows
        self._group = self._policy.group_rows if is_large else self._policy.small_group_rows
        self._kernels = _fused_kernels(matrix)
        self._joint_kernel = _joint_kernel(matrix)
        self._context = ExitStack()

    def __enter__(self) -> Self:
        precision = self._policy.float32_precision
        self._context.enter_context(_float32_precision(self._matrix, precision))
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._context.close()

    def from_dense_rows(self, rows: FloatArray) -> "ArrayDesign":
        """Return a design of other dense rows on the same device."""
        return ArrayDesign(to_device_of(self._matrix, rows), self.threads, policy=self._policy)

    def subset(
        self, rows: NDArray[np.intp] | slice, threads: Threads | None = None
    ) -> "ArrayDesign":
        """Return a design of some rows, on the same device."""
        some = self._matrix[rows, :] if isinstance(rows, slice) else take_rows(self._matrix, rows)
        return ArrayDesign(some, threads, policy=self._policy)

    def _sweep(self, coef: FloatArray, intercept: FloatArray, tasks: Tasks) -> Sweep:
        codes, weights = self.to_device(tasks.codes), self.to_device(tasks.weights)
        if isinstance(tasks, JointTasks):
            return self._sweep_joint(coef, intercept, tasks, codes, weights)
        if len(tasks) == 1 and self._kernels is not None and tasks.has_compiled_losses:
            fold, positive = int(tasks.fold[0]), int(tasks.positive[0])
            columns = self._kernels.sweep(
                self._matrix,
                codes,
                positive,
                weights[fold, :],
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
        """Return gradient, value and slope of each task, as one row per task."""
        xp, here = self._xp, self._here
        evaluate, columns = stacked(tasks.losses, here), here(coef)
        positive, offset = to_device_of(codes, tasks.positive, codes.dtype), here(intercept)
        folds = np.unique(tasks.fold)
        is_one = len(folds) == 1
        fold = to_device_of(codes, tasks.fold, xp.int64)
        total = self._zeros(len(tasks), self.n_columns + 2)
        for span, rows in self._chunks(len(tasks)):
            # Weights are multiplied by the number of rows, which makes them about one in float32.
            weight = weights[int(folds[0]), span][:, None] if is_one else weights[:, span].T
            weight = xp.astype(weight * float(self.n_rows), self._dtype)
            weight = weight if is_one else xp.take(weight, fold, axis=1)
            sign = xp.astype(codes[span][:, None] == positive[None, :], self._dtype) * 2.0 - 1.0
            margins = sign * (xp.matmul(rows, columns) + offset)
            value, slope = evaluate(margins, weight)
            slope = sign * slope
            sums = [xp.sum(x, axis=0, dtype=xp.float64)[:, None] for x in (value, slope)]
            total = total + xp.concat([self._products(slope, rows), *sums], axis=1)
        return total / float(self.n_rows)

    def _sweep_joint(
        self, coef: Any, intercept: Any, tasks: JointTasks, codes: Any, weights: Any
    ) -> Sweep:
        """Sweep for joint tasks; the sums stay on the device where the coefficients are there."""
        xp, columns, offset = self._xp, self._here(coef), self._here(intercept)
        n_scores = intercept.shape[0]
        # Groups of at least `n_scores` rows: their products are then not larger than the rows.
        group = max(self._group, min(self._policy.group_rows, n_scores))
        total, value = self._zeros(n_scores, self.n_columns + 1), self._zeros(len(tasks))
        for span, rows in self._chunks(n_scores):
            scores = xp.matmul(rows, columns) + offset
            # Weights are multiplied by the number of rows, which makes them about one.
            weight = xp.astype(weights[:, span] * float(self.n_rows), self._dtype)
            values, slope = self._joint_derivatives(scores, codes[span], weight, tasks)
            value = value + values
            slopes = xp.sum(slope, axis=0, dtype=xp.float64)[:, None]
            total = total + xp.concat([self._products(slope, rows, group), slopes], axis=1)
        sums, values = total / float(self.n_rows), value / float(self.n_rows)
        if isinstance(coef, np.ndarray):
            sums, values = to_numpy(sums), to_numpy(values)
        return Sweep(values, sums[:, :-1].T, sums[:, -1])

    def _joint_derivatives(
        self, scores: Any, codes: Any, weights: Any, tasks: JointTasks
    ) -> tuple[Any, Any]:
        """Return the weighted loss of each task, and derivatives that may overwrite the scores."""
        xp, n_classes = self._xp, tasks.n_classes
        parts, sums = [], []
        for k, loss in enumerate(tasks.losses):
            own = scores[:, k * n_classes : (k + 1) * n_classes]
            weight = weights[int(tasks.fold[k]), :]
            kernel = self._joint_kernel
            if kernel is not None and kernel.supports(loss, n_classes):
                value, derivative = kernel.joint_losses(own, codes, weight, loss), own
            else:
                value, derivative = loss.value_and_gradient(own, codes, weight)
            parts.append(derivative)
            sums.append(xp.sum(value, dtype=xp.float64))
        slope = parts[0] if len(parts) == 1 else xp.concat(parts, axis=1)
        return xp.stack(sums), slope

    def _scores(self, coef: FloatArray, intercept: FloatArray) -> Any:
        parts = [part for _, part in self._score_chunks(coef, intercept)]
        return parts[0] if len(parts) == 1 else self._xp.concat(parts, axis=0)

    def _score_chunks(self, coef: FloatArray, intercept: FloatArray) -> Iterator[tuple[slice, Any]]:
        columns, offset = self._here(coef), self._here(intercept)
        for span, rows in self._chunks(len(intercept)):
            yield span, self._xp.matmul(rows, columns) + offset

    def _held_out_scores(
        self, coef: FloatArray, intercept: FloatArray, held_out: BoolArray, fold: NDArray[np.intp]
    ) -> list[FloatArray]:
        xp, own = self._xp, [fold == k for k in range(len(held_out))]
        linear = [(self._here(coef[:, tasks]), self._here(intercept[tasks])) for tasks in own]
        scores: list[list[FloatArray]] = [[] for _ in own]
        for span, rows in self._chunks(len(fold)):
            for kept, (columns, offset), flags in zip(
                scores, linear, held_out[:, span], strict=True
            ):
                wanted = to_device_of(rows, np.flatnonzero(flags), xp.int64)
                some = xp.take(rows, wanted, axis=0)
                kept.append(to_numpy(xp.matmul(some, columns) + offset))
        return [np.concatenate(kept, dtype=np.float64) for kept in scores]

    def _adjoint(self, factors: Any) -> FloatArray:
        xp, factors = self._xp, self.to_device(factors)
        if self._kernels is not None:
            return np.asarray(
                self._kernels.moments(self._matrix, factors, np.zeros(self.n_columns))[0]
            )
        unit = self._unit(factors)
        is_weighted = bool(xp.min(factors) < unit)
        total = self._zeros(self.n_columns)
        for span, rows in self._chunks():
            if is_weighted:
                rows = rows * xp.astype(factors[span] / unit, self._dtype)[:, None]
            # Summed in float64: the mean of a constant column must equal its values.
            total = total + xp.sum(rows, axis=0, dtype=xp.float64)
        return to_numpy(total * unit)

    def _gram(self, weights: Any, mean: FloatArray) -> FloatArray:
        xp, weights = self._xp, self.to_device(weights)
        unit = self._unit(weights)
        is_weighted = bool(xp.min(weights) < unit)
        total = self._zeros(self.n_columns, self.n_columns)
        for span, rows in self._centred_chunks(mean):
            if is_weighted:
                rows = rows * xp.astype(xp.sqrt(weights[span] / unit), self._dtype)[:, None]
            total = total + self._products(rows, rows)
        return to_numpy(total * unit)

    def _squares(self, weights: Any, mean: FloatArray) -> FloatArray:
        return np.asarray(self._fold_moments(self.to_device(weights)[None, :], mean)[1][0])

    def _fold_moments(self, weights: Any, mean: FloatArray) -> tuple[FloatArray, FloatArray]:
        weights = self.to_device(weights)
        if self._kernels is not None and weights.shape[0] == 1:
            first, second = self._kernels.moments(self._matrix, weights[0, :], mean)
            # Squares beyond float32 count as infinite: the other kernels would overflow.
            second = np.where(second < np.finfo(np.float32).max, second, np.inf)
            return first[np.newaxis], second[np.newaxis]
        unit = self._unit(weights)
        first = second = self._zeros(weights.shape[0], self.n_columns)
        for span, rows in self._centred_chunks(mean):
            relative = self._xp.astype(weights[:, span] / unit, self._dtype).T
            first = first + self._products(relative, rows)
            second = second + self._products(relative, rows * rows)
        return to_numpy(first * unit), to_numpy(second * unit)

    def _even_moments(
        self, weights: FloatArray, mean: FloatArray, factors: FloatArray
    ) -> FloatArray:
        placed, scale = self.to_device(weights), self._here(factors)
        unit = self._unit(placed)
        total = self._zeros(2, self.n_columns)
        for span, rows in self._centred_chunks(mean):
            relative = self._xp.astype(placed[span] / unit, self._dtype)[:, None]
            squares = self._xp.where(relative > 0, rows * scale, self._xp.zeros_like(rows)) ** 2
            sums = [self._products(relative, power) for power in (squares, squares**2)]
            total = total + self._xp.concat(sums)
        return to_numpy(total * unit)

    def _row_norms(self, mean: FloatArray, factors: FloatArray) -> Any:
        xp, scale = self._xp, self._here(factors)
        squares = [
            xp.sum((rows * scale) ** 2, axis=1, dtype=xp.float64)
            for _, rows in self._centred_chunks(mean)
        ]
        return xp.sqrt(xp.concat(squares))

    def _largest(self, columns: NDArray[np.intp]) -> FloatArray:
        xp, wanted = self._xp, to_device_of(self._matrix, columns, self._xp.int64)
        largest = self._zeros(1, len(columns))[0, :]
        for _, rows in self._chunks():
            size = xp.max(xp.abs(xp.take(rows, wanted, axis=1)), axis=0)
            largest = xp.maximum(largest, xp.astype(size, xp.float64))
        return to_numpy(largest)

    def _row_products(self, mean: FloatArray, factors: FloatArray) -> FloatArray:
        # The products are factorised, which needs float64; the rows are few.
        xp = self._xp
        centre, wide = (to_device_of(self._matrix, x) for x in (mean, factors))
        total = self._zeros(self.n_rows, self.n_rows)
        step = max(1, self._policy.block_elements // self.n_rows)
        for first in range(0, self.n_columns, step):
            span = slice(first, min(first + step, self.n_columns))
            rows = xp.astype(self._matrix[:, span], xp.float64) - centre[span]
            rows = rows * wide[span]
            total = total + xp.matmul(rows, rows.T)
        return to_numpy(total)

    def to_device(self, values: Any) -> Any:
        """Return an array with one entry per row on the device of the data."""
        return to_device_of(self._matrix, values)

    def _here(self, values: FloatArray) -> Any:
        return to_device_of(self._matrix, values, self._dtype)

    def _zeros(self, *shape: int) -> Any:
        return self._xp.zeros(shape, dtype=self._xp.float64, device=self._matrix.device)

    def _unit(self, factors: Any) -> float:
        """Return a divisor after which factors and their products are within float32."""
        largest = float(self._xp.max(self._xp.abs(factors)))
        return largest if largest > 0 else 1.0

    def _chunks(self, n_tasks: int = 1) -> Iterator[tuple[slice, Any]]:
        """Yield chunks of rows in the dtype of products, for products with `n_tasks` tasks."""
        group_elements = self._group * max(1, self.n_columns, n_tasks)
        step = max(1, self._policy.block_elements // group_elements) * self._group
        for first in range(0, self.n_rows, step):
            span = slice(first, min(first + step, self.n_rows))
            yield span, self._xp.astype(self._matrix[span, :], self._dtype)

    def _centred_chunks(self, mean: FloatArray) -> Iterator[tuple[slice, Any]]:
        centre = self._here(mean)
        for span, rows in self._chunks():
            yield span, rows - centre

    def _products(self, left: Any, right: Any, group: int | None = None) -> Any:
        """Return leftᵀ right; groups of rows are summed in float64."""
        xp, size = self._xp, self._group if group is None else group
        whole = left.shape[0] // size * size
        rest = xp.matmul(left[whole:, :].T, right[whole:, :])
        total = xp.astype(rest, xp.float64)
        if whole:
            groups = [xp.reshape(x[:whole, :], (-1, size, x.shape[1])) for x in (left, right)]
            products = xp.matmul(groups[0].mT, groups[1])
            total = total + xp.sum(products, axis=0, dtype=xp.float64)
        return total


def _fused_kernels(matrix: Any) -> Any:
    """Return the CUDA kernels, if this is a tensor that they can read."""
    if not getattr(matrix, "is_cuda", False):
        return None
    try:
        from marginpursuit._kernels import _triton
    except ImportError:  # torch without Triton
        return None
    readable = matrix.dtype in _triton.DTYPES and matrix.stride(1) == 1
    return _triton if readable and matrix.shape[1] <= _triton.MOST_COLUMNS else None


def _joint_kernel(matrix: Any) -> Any:
    """Return the CUDA kernel of joint losses, if scores of this tensor are in float32."""
    if not getattr(matrix, "is_cuda", False) or not is_exact_in_float32(matrix):
        return None
    try:
        from marginpursuit._kernels import _triton_joint
    except ImportError:  # torch without Triton
        return None
    return _triton_joint


@contextmanager
def _float32_precision(matrix: Any, precision: str) -> Iterator[None]:
    """Set the precision of torch's float32 products on a CUDA device."""
    if not getattr(matrix, "is_cuda", False):
        yield
        return
    import torch

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
