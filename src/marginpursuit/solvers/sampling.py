"""Sampled rows; what the stochastic gradient methods share: steps along them, when to stop."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from marginpursuit._kernels import Descent
from marginpursuit._validation import FloatArray, between
from marginpursuit.design import Design, Linear, MemoryDesign, Standardisation
from marginpursuit.solvers._problem import Problem

__all__ = [
    "RowSampler",
    "StoppingCriterion",
    "ascending_counts",
    "better_start",
    "canonical_order",
    "descend",
    "doubling_stages",
    "random_generator",
    "stratified_rows",
    "subsample",
    "systematic_rows",
    "with_variances",
]


def random_generator(random_state: Any) -> Any:
    """Return the given generator of NumPy, or a new one with the given seed."""
    return random_state if hasattr(random_state, "random") else np.random.default_rng(random_state)


def stratified_rows(n_rows: int, size: int) -> NDArray[np.intp]:
    """Draw one row at random from each of `size` ranges of equal length, with a fixed seed."""
    edges = np.linspace(0, n_rows, size + 1)
    places = edges[:-1] + np.diff(edges) * np.random.default_rng(0).random(size)
    return places.astype(np.intp)


def systematic_rows(probabilities: FloatArray, seed: int = 0) -> NDArray[np.intp]:
    """Draw each row with its probability, at equal steps of the cumulative probability."""
    cumulative = np.cumsum(probabilities) + np.random.default_rng(seed).random()
    return np.flatnonzero(np.diff(np.floor(cumulative), prepend=0.0) > 0)


def subsample(problem: Problem, size: int) -> Problem | None:
    """Return the problem of `size` rows with its own Gram matrix; None where these have no weight.

    It is prepared by the solver "gram" and has one task, which is neither reported nor kept.
    """
    prepared, design = problem.prepared, problem.prepared.design
    sample = problem.with_rows(stratified_rows(design.n_rows, size), threads=design.threads)
    weights = sample.tasks.weights
    total = float(weights.sum())
    if not total > 0:
        return None
    weights = weights / total
    some, gram = sample.prepared.design, prepared.preconditioner
    own: Any = replace(  # type: ignore[type-var]
        gram,
        design=some,
        weights=weights[0],
        gram=with_variances(
            some.gram(weights[0], prepared.standardisation), prepared.standardisation
        ),
        matrix=None,
    )
    return replace(
        sample,
        prepared=replace(sample.prepared, preconditioner=own),
        tasks=replace(sample.tasks, weights=weights),
        report=None,
        keep=None,
    )


def with_variances(gram: FloatArray, standardisation: Standardisation) -> FloatArray:
    """Return the Gram matrix of a subsample with the variances of all rows, where these are larger.

    A column whose variance is that of a few rows may have less in the subsample.
    """
    lacking = np.maximum(standardisation.varies - gram.diagonal(), 0.0)
    return np.asarray(gram + np.diag(lacking))


def better_start(problem: Problem, found: Linear) -> Linear:
    """Return a point, or a start that is not zero if its objective is lower; for one task."""
    if not any(map(np.any, problem.start)):
        return found
    both, only = (found, problem.start), np.zeros(1, dtype=np.intp)
    values = [problem.value_and_gradient(problem.join(*x), only)[0][0] for x in both]
    return both[int(np.argmin(values))]


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
