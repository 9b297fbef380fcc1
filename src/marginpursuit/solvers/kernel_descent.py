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

__all__ = ["descend_in_kernel"]

# Elements up to which the whole kernel matrix is kept.
_MOST_ELEMENTS = 1 << 24

# Elements of a part of it, where it is not.
_PART_ELEMENTS = 1 << 22


def descend_in_kernel(
    kernel: Callable[[NDArray[np.intp], NDArray[np.intp]], FloatArray],
    descents: Sequence[Descent],
    draws: Draws,
    n_steps: int,
) -> None:
    """Take so many steps of several descents, all along the same rows.

    Parameters
    ----------
    kernel : callable
        Returns the kernel between the rows that its two arguments number, as float64 in C order.
    descents : sequence of Descent
        With one coefficient for each row.
    draws : Draws
        Where the rows come from.
    n_steps : int
        The number of steps.
    """
    n_rows, batch = len(descents[0].coef), descents[0].batch
    everything = np.arange(n_rows)
    if n_rows**2 <= _MOST_ELEMENTS:
        for descent in descents:
            descent.own = everything
        with MemoryDesign(kernel(everything, everything)) as design:
            descend(design, descents, draws, n_steps)
        return
    step = max(1, _PART_ELEMENTS // (n_rows * batch))
    for first in range(0, n_steps, step):
        rows, places = np.unique(
            draws.take(batch * min(step, n_steps - first)), return_inverse=True
        )
        support = [np.flatnonzero(descent.coef) for descent in descents]
        columns = np.unique(np.concatenate([rows, *support]))
        design = MemoryDesign(kernel(rows, columns))
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
            descent.intercept, descent.total_intercept = part.intercept, part.total_intercept
