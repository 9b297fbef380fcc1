"""Stochastic subgradient steps in the feature space of a kernel.

The vector w is an expansion Σ_j c_j φ(x_j) in rows of the data; only kernel values
K(x, x') = ⟨φ(x), φ(x')⟩ are available. A step multiplies all coefficients c by a factor and adds to
the coefficients of the sampled rows, for which it needs the kernel between these rows and all rows
with a non-zero coefficient.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from marginpursuit._kernels import Descent
from marginpursuit._validation import FloatArray
from marginpursuit.design import MemoryDesign
from marginpursuit.solvers.stochastic_steps import RowSampler, descend

__all__ = ["KernelRows", "KernelStorage", "take_steps"]


@dataclass(frozen=True, slots=True)
class KernelStorage:
    """How much of a kernel matrix is held in memory, in float64 elements."""

    max_cached: int = 1 << 24  # 128 MiB: up to 4096 rows the whole matrix is computed once
    block: int = 1 << 22  # 32 MiB at a time for larger matrices, which are recomputed as needed


class KernelRows:
    """Rows given by their kernel values.

    ``kernel(a, b)`` returns the kernel between the rows with indices `a` and those with indices
    `b`, as a C-ordered float64 array of shape (len(a), len(b)).
    """

    def __init__(
        self,
        kernel: Callable[[NDArray[np.intp], NDArray[np.intp]], FloatArray],
        n_rows: int,
        storage: KernelStorage,
    ) -> None:
        self._kernel, self._indices, self._block = kernel, np.arange(n_rows), storage.block
        self._cached = None
        if n_rows**2 <= storage.max_cached:
            self._cached = MemoryDesign(kernel(self._indices, self._indices))

    def scores(self, coef: FloatArray, intercept: FloatArray) -> FloatArray:
        """Return the scores of all rows by several expansions, of shape (n_rows, n_expansions)."""
        if self._cached is not None:
            return self._cached.scores(coef, intercept)
        support = np.flatnonzero(np.any(coef != 0, axis=1))
        scores = np.tile(intercept, (len(coef), 1))
        step = max(1, self._block // max(1, len(support)))
        for first in range(0, len(coef) if len(support) else 0, step):
            rows = self._indices[first : first + step]
            scores[rows] += self._kernel(rows, support) @ coef[support]
        return scores

    def descend(self, descents: Sequence[Descent], sampler: RowSampler, n_steps: int) -> None:
        """Take `n_steps` steps of each descent, which has one coefficient for each row.

        All descents use the same sampled rows.
        """
        if self._cached is not None:
            for descent in descents:
                descent.own = self._indices
            descend(self._cached, descents, sampler, n_steps)
            return
        batch = descents[0].batch
        step = max(1, self._block // (len(self._indices) * batch))
        for first in range(0, n_steps, step):
            sampled = sampler.sample(batch * min(step, n_steps - first))
            rows, positions = np.unique(sampled, return_inverse=True)
            support = [np.flatnonzero(descent.coef) for descent in descents]
            columns = np.unique(np.concatenate([rows, *support]))
            block = MemoryDesign(self._kernel(rows, columns))
            for descent in descents:
                _descend_in_block(block, descent, rows, columns, positions)


def _descend_in_block(
    block: MemoryDesign,
    descent: Descent,
    rows: NDArray[np.intp],
    columns: NDArray[np.intp],
    positions: NDArray[np.intp],
) -> None:
    """Take the steps along `rows[positions]` with the kernel between `rows` and `columns`.

    Coefficients outside of `columns` are zero and stay zero.
    """
    part = replace(
        descent,
        sign=descent.sign[rows],
        coef=descent.coef[columns],
        total=None if descent.total is None else descent.total[columns],
        own=np.searchsorted(columns, rows),
    )
    block.descend(part, positions)
    descent.coef[columns] = part.coef
    if descent.total is not None:
        descent.total[columns] = part.total
    descent.t, descent.square = part.t, part.square
    descent.intercept, descent.total_intercept = part.intercept, part.total_intercept


def take_steps(
    rows: MemoryDesign | KernelRows, descents: Sequence[Descent], sampler: RowSampler, n_steps: int
) -> None:
    """Take `n_steps` steps of each descent, along feature rows or kernel rows."""
    if isinstance(rows, KernelRows):
        rows.descend(descents, sampler, n_steps)
    else:
        descend(rows, descents, sampler, n_steps)
