"""Stochastic steps in the feature space of a kernel.

The vector w is an expansion Σ c_j φ(x_j) in rows of the data, and only the values of the kernel,
K(x, x') = ⟨φ(x), φ(x')⟩, are known. A step shrinks all coefficients c and adds to those of the rows
it draws, for which it needs their kernel with all rows that have a coefficient.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from marginpursuit._kernels import Descent
from marginpursuit._validation import FloatArray
from marginpursuit.design import MemoryDesign
from marginpursuit.solvers.stochastic import Draws, descend

__all__ = ["KernelRows", "take_steps"]

# Elements up to which the whole kernel matrix is kept.
_MOST_ELEMENTS = 1 << 24

# Elements of a part of it, where it is not.
_PART_ELEMENTS = 1 << 22


class KernelRows:
    """Rows that are known by the values of a kernel between them.

    Parameters
    ----------
    kernel : callable
        Returns the kernel between the rows that its two arguments number, as float64 in C order.
    n_rows : int
        The number of rows.
    """

    def __init__(
        self, kernel: Callable[[NDArray[np.intp], NDArray[np.intp]], FloatArray], n_rows: int
    ) -> None:
        self._kernel, self._everything = kernel, np.arange(n_rows)
        self._whole = None
        if n_rows**2 <= _MOST_ELEMENTS:
            self._whole = MemoryDesign(kernel(self._everything, self._everything))

    def scores(self, coef: FloatArray, intercept: FloatArray) -> FloatArray:
        """Return the scores of all rows by several expansions, of shape (n_rows, n_expansions)."""
        if self._whole is not None:
            return self._whole.scores(coef, intercept)
        support = np.flatnonzero(np.any(coef != 0, axis=1))
        scores = np.tile(intercept, (len(coef), 1))
        step = max(1, _PART_ELEMENTS // max(1, len(support)))
        for first in range(0, len(coef) if len(support) else 0, step):
            rows = self._everything[first : first + step]
            scores[rows] += self._kernel(rows, support) @ coef[support]
        return scores

    def descend(self, descents: Sequence[Descent], draws: Draws, n_steps: int) -> None:
        """Take so many steps of several descents, all along the same rows.

        Parameters
        ----------
        descents : sequence of Descent
            With one coefficient for each row.
        draws : Draws
            Where the rows come from.
        n_steps : int
            The number of steps.
        """
        if self._whole is not None:
            for descent in descents:
                descent.own = self._everything
            descend(self._whole, descents, draws, n_steps)
            return
        batch = descents[0].batch
        step = max(1, _PART_ELEMENTS // (len(self._everything) * batch))
        for first in range(0, n_steps, step):
            rows, places = np.unique(
                draws.take(batch * min(step, n_steps - first)), return_inverse=True
            )
            support = [np.flatnonzero(descent.coef) for descent in descents]
            columns = np.unique(np.concatenate([rows, *support]))
            design = MemoryDesign(self._kernel(rows, columns))
            for descent in descents:
                part = replace(
                    descent,
                    sign=descent.sign[rows],
                    coef=descent.coef[columns],
                    total=None if descent.total is None else descent.total[columns],
                    own=np.searchsorted(columns, rows),
                )
                design.descend(part, places)
                descent.coef[columns] = part.coef
                if descent.total is not None:
                    descent.total[columns] = part.total
                descent.t, descent.square = part.t, part.square
                descent.total_slope = part.total_slope
                descent.intercept, descent.total_intercept = part.intercept, part.total_intercept


def take_steps(
    rows: MemoryDesign | KernelRows, descents: Sequence[Descent], draws: Draws, n_steps: int
) -> None:
    """Take so many steps of several descents, all along the same rows, of either kind."""
    if isinstance(rows, KernelRows):
        rows.descend(descents, draws, n_steps)
    else:
        descend(rows, descents, draws, n_steps)
