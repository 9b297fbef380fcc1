"""What the stochastic gradient methods share: sampled rows, steps along them, when to stop."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from marginpursuit._kernels import Descent
from marginpursuit._validation import FloatArray, between
from marginpursuit.design import Design, MemoryDesign

__all__ = [
    "RowSampler",
    "StoppingCriterion",
    "ascending_counts",
    "canonical_order",
    "descend",
    "doubling_stages",
]


class RowSampler:
    """Samples rows with replacement, with probabilities in proportion to their weights.

    A row is sampled if a uniform random number falls into its interval of the cumulative weights.

    Parameters
    ----------
    weights : ndarray of shape (n_rows,)
        Weights >= 0, not all zero.
    random : numpy.random.Generator or numpy.random.RandomState
        The source of uniform random numbers.
    order : ndarray of shape (n_rows,), optional
        The order of the rows in the cumulative weights; by default ascending. With
        `canonical_order`, the same random numbers sample a row of weight 2 and two equal rows of
        weight 1.
    """

    def __init__(
        self, weights: FloatArray, random: Any, order: NDArray[np.intp] | None = None
    ) -> None:
        self._random = random
        self._order = order
        self._n_rows = len(weights)
        self._cumulative = None  # for equal weights
        if weights.min() < weights.max():
            ordered = weights if order is None else weights[order]
            cumulative = np.cumsum(ordered)
            self._cumulative = cumulative / cumulative[-1]
            # The last row of positive weight ends at 1 in spite of rounding.
            self._cumulative[np.flatnonzero(ordered)[-1] :] = 1.0

    def sample(self, n: int) -> NDArray[np.intp]:
        """Return the indices of n sampled rows."""
        uniform = self._random.random(n)
        if self._cumulative is None:
            rows = (uniform * self._n_rows).astype(np.intp)
        else:
            rows = np.searchsorted(self._cumulative, uniform, side="right").astype(np.intp)
        return rows if self._order is None else np.asarray(self._order[rows])


def canonical_order(design: Design, codes: NDArray[np.intp], random: Any) -> NDArray[np.intp]:
    """Return an order of the rows that depends on their values and classes alone.

    Rows are sorted by class, or by the codes of their labels, (n_codes, n_rows), and then by their
    projection onto a random direction.
    """
    direction = random.standard_normal((design.n_columns, 1))
    projection = design.scores(direction, np.zeros(1))[:, 0]
    return np.lexsort((projection, *np.atleast_2d(codes)))


def descend(
    design: MemoryDesign,
    descents: Sequence[Descent],
    sampler: RowSampler,
    n_steps: int,
    *,
    max_rows: int = 1 << 18,
    max_elements: int = 1 << 24,
) -> None:
    """Take steps of several descents along the same sampled rows.

    The compiled steps return to Python after at most `max_rows` rows and `max_elements` matrix
    elements, which takes well below a second, so that an interrupt is handled.
    """
    batch = descents[0].batch
    row_elements = max(1, design.n_stored // design.n_rows)
    max_steps = max(1, min(max_rows, max_elements // row_elements) // batch)
    for first in range(0, n_steps, max_steps):
        rows = sampler.sample(batch * min(max_steps, n_steps - first))
        for descent in descents:
            design.descend(descent, rows)


def doubling_stages(n_steps: int) -> Iterator[int]:
    """Yield numbers of steps whose cumulative sums are 1, 2, 4, ... and finally `n_steps`."""
    n_taken = 0
    while n_taken < n_steps:
        stage = min(max(1, n_taken), n_steps - n_taken)
        n_taken += stage
        yield stage


class StoppingCriterion:
    """Stops when the objectives change little while the number of steps doubles.

    Step sizes decrease as 1/t. The change over a fixed number of steps therefore vanishes even far
    from the minimum; the change over a doubling does not.

    Parameters
    ----------
    tol : float
        The largest relative change of an objective over a doubling.
    n_rows : int
        The criterion is not met before this number of steps.
    n_confirmations : int, default=2
        The number of consecutive doublings with a small change. One alone occurs by chance.
    """

    def __init__(self, tol: float, n_rows: int, n_confirmations: int = 2) -> None:
        self._tol, self._n_rows, self._n_confirmations = tol, n_rows, n_confirmations
        self._previous: FloatArray | None = None
        self._n_confirmed = 0

    def is_met(self, n_taken: int, values: FloatArray) -> bool:
        """Record the objectives of all tasks after a doubling; return whether to stop."""
        previous, self._previous = self._previous, values
        if previous is None or n_taken < self._n_rows:
            return False
        is_small = bool(np.all(np.abs(values - previous) <= self._tol * np.abs(values)))
        self._n_confirmed = self._n_confirmed + 1 if is_small else 0
        return self._n_confirmed >= self._n_confirmations


def ascending_counts(name: str, values: ArrayLike, maximum: int) -> NDArray[np.intp]:
    """Return `values` as integers; refuse all but ascending integers from 0 to `maximum`."""
    numbers = np.atleast_1d(between(name, values, 0, maximum))
    if numbers.ndim != 1 or np.any(numbers % 1) or np.any(np.diff(numbers) <= 0):
        raise ValueError(f"{name} must be whole numbers in ascending order; got {values!r}")
    return numbers.astype(np.intp)
