r"""What every design shares: the coordinates.

A `Design` answers four questions, each in one read of the data and in standardised coordinates
z = (x - centre) / spread, where a score is h(x) = z·coef + intercept:

- `sweep`: value and gradient of a sum of losses,
- `scores`: h(x) for every row,
- `adjoint`: the sum of factor times row,
- `gram`: the weighted second-moment matrix of the rows.

The data itself is never moved or scaled: centring and scaling are algebra on `coef` and on the
result. `n_passes` counts the reads.

Several tasks (classes, settings, folds) share each read: `coef` has shape (n_columns, n_tasks).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from marginpursuit._validation import FloatArray
from marginpursuit.tasks import Tasks

#: Coefficients (n_columns, n_tasks) and intercepts (n_tasks,).
Linear: TypeAlias = tuple[FloatArray, FloatArray]

#: Which rows are meant, (n_parts, n_rows).
Flags: TypeAlias = NDArray[np.bool_]

# Values without finite squares are met with FloatingPointError, not with warnings on the way there.
_unusual = np.errstate(over="ignore", invalid="ignore")


@dataclass(frozen=True, slots=True)
class Sweep:
    """What one read yields for each task, sums weighted and without penalty."""

    value: FloatArray  # (n_tasks,)
    gradient: FloatArray  # (n_columns, n_tasks), in the coefficients
    slope: FloatArray  # (n_tasks,), in the intercepts

    def __add__(self, other: "Sweep") -> "Sweep":
        """Join what two sets of rows yield."""
        return Sweep(
            self.value + other.value, self.gradient + other.gradient, self.slope + other.slope
        )


class Design(ABC):
    """Rows that can be read again and again, and the coordinates in which they are seen.

    What holds the rows is known to the methods below the public ones alone. Those speak of the rows
    as they are, with coefficients and intercepts to match, except that second moments are about
    the centre, which the spread of a column may be far below. They count no reads.
    """

    #: Whether rows are stored as CSR, and centred after they are squared for that reason.
    is_sparse = False

    #: The rounding of sums over rows; that of values beside the centre of their column, if it does
    #: not come from summing them; and the least values whose squares keep their digits.
    rounding, resolution, smallest = 1e-14, 0.0, 1e-140

    def __init__(self, n_rows: int, n_columns: int) -> None:
        self.n_rows, self.n_columns = n_rows, n_columns
        self.centre = np.zeros(n_columns)
        self.inverse_spread = np.ones(n_columns)
        self.n_passes = 0
        self._resources = ExitStack()  # what is to be given back at the end

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._resources.close()

    @property
    def spread(self) -> FloatArray:
        """The spread of each column, zero for one that takes no part."""
        moving = self.inverse_spread > 0
        return np.divide(1.0, self.inverse_spread, out=np.zeros(self.n_columns), where=moving)

    def to_data(self, linear: Linear) -> Linear:
        """Translate coefficients and intercepts to those of the data as it is."""
        coef, intercept = linear
        raw_coef = (coef.T * self.inverse_spread).T
        return raw_coef, intercept - self.centre @ raw_coef

    def from_data(self, linear: Linear) -> Linear:
        """Invert `to_data`; coefficients of columns that take no part become zero."""
        coef, intercept = linear
        return (coef.T * self.spread).T, intercept + self.centre @ coef

    def sweep(self, coef: FloatArray, intercept: FloatArray, tasks: Tasks) -> Sweep:
        """Sum loss and gradient over the rows, for each task, in one read."""
        self.n_passes += 1
        sweep = self._sweep(*self.to_data((coef, intercept)), tasks)
        gradient = sweep.gradient - np.outer(self.centre, sweep.slope)
        return Sweep(sweep.value, (gradient.T * self.inverse_spread).T, sweep.slope)

    def scores(self, coef: FloatArray, intercept: FloatArray) -> FloatArray:
        """Return h(x) for every row and task, of shape (n_rows, n_tasks)."""
        self.n_passes += 1
        return self._scores(*self.to_data((coef, intercept)))

    def part_scores(
        self, coef: FloatArray, intercept: FloatArray, chosen: Flags, part: NDArray[np.intp]
    ) -> list[FloatArray]:
        """Return h(x) of the rows that are chosen for each part, in one read, as NumPy arrays.

        `chosen` has shape (n_parts, n_rows), and `part` is an index into it for each task. A part
        has an array of shape (n_chosen, n_tasks), with the tasks that are its own.
        """
        self.n_passes += 1
        return self._part_scores(*self.to_data((coef, intercept)), chosen, part)

    def place(self, values: NDArray[Any]) -> Any:
        """Return an array with an entry a row where the rows are, for many reads."""
        return values

    def in_threads(self, run: Callable[[int, int], None], most: int) -> None:
        """Call run(thread, n_threads) for every thread, of which `most` would find work.

        There is one, where rows are not read by threads of this process.
        """
        run(0, 1)

    def adjoint(self, factors: FloatArray) -> FloatArray:
        """Return the sum of factor times standardised row, of shape (n_columns,)."""
        self.n_passes += 1
        total = self._adjoint(factors)
        return np.asarray((total - self.centre * factors.sum()) * self.inverse_spread)

    def gram(self, weights: FloatArray) -> FloatArray:
        """Return the sum of weight times the outer square of the standardised row."""
        self.n_passes += 1
        return self._scaled(self._gram(weights))

    @_unusual
    def standardise(self, weights: FloatArray, *, centred: bool) -> FloatArray:
        """Set centre and spread from weighted moments; return the Gram matrix.

        Weights sum to one. Without centring, as for a fit without intercept, the spread is the
        root mean square. A column without spread takes no part: its coefficient is zero.
        """
        second_moment = self._set_centre(weights, centred=centred, diagonal=False)
        self._set_spread(np.diagonal(second_moment))
        return self._scaled(second_moment)

    @_unusual
    def standardise_diagonal(self, weights: FloatArray, *, centred: bool) -> None:
        """Set centre and spread as `standardise` does, where a Gram matrix would be too large."""
        self._set_spread(self._set_centre(weights, centred=centred, diagonal=True))

    @_unusual
    def part_variances(self, weights: FloatArray, *, centred: bool) -> FloatArray:
        """Return the variance of each standardised column under several sets of weights.

        Each set sums to one. Without centring it is the mean square.
        """
        self.n_passes += 1
        first, second = self._part_moments(weights)
        variance = second - first**2 if centred else second
        return np.asarray(np.maximum(variance, 0.0) * self.inverse_spread**2)

    @_unusual
    def mean_square(self, weights: FloatArray) -> float:
        """Return the weighted mean of the squared norm of the rows, as they are."""
        self.n_passes += 1
        mean = float(self._squares(weights).sum())
        vanishes = mean == 0.0 and np.any(self._largest(np.arange(self.n_columns)) > 0)
        if vanishes or not mean < np.inf:
            raise FloatingPointError("the rows have no finite mean square")
        return mean

    @_unusual
    def distances(self) -> Any:
        """Return the norm of every standardised row, where the rows are."""
        self.n_passes += 1
        return self._distances(self.inverse_spread)

    def row_products(self, column_weights: FloatArray) -> FloatArray:
        """Return the n_rows x n_rows matrix of weighted inner products of standardised rows."""
        self.n_passes += 1
        return self._row_products(np.sqrt(column_weights) * self.inverse_spread)

    def sample(self, rows: NDArray[np.intp]) -> "Design | None":
        """Return a design of some rows, in rising order, as they are; None where that is costly."""
        return None

    def condensed(self, order: NDArray[np.intp]) -> "Design":
        """Return a design of the standardised rows that is quicker to sweep but has fewer digits.

        It has the rows in another order, or is the design itself where there is none.
        """
        return self

    def _scaled(self, second_moment: FloatArray) -> FloatArray:
        total = second_moment * self.inverse_spread
        return np.asarray((total.T * self.inverse_spread).T)

    def _set_centre(self, weights: FloatArray, *, centred: bool, diagonal: bool) -> FloatArray:
        """Set the centre, and return the second moments about it, all or their diagonal."""
        self.n_passes += 2
        mean = self._adjoint(weights)
        if not np.all(np.isfinite(mean)):
            raise FloatingPointError("the columns have no finite mean")
        self.centre = mean if centred else np.zeros(self.n_columns)
        return self._squares(weights) if diagonal else self._gram(weights)

    def _set_spread(self, second_moment: FloatArray) -> None:
        # A spread below the rounding of the centre is the rounding of a constant column. Sparse
        # rows cannot be centred before they are squared, which costs half the digits.
        summing = 1e-7 if self.is_sparse else self.n_rows * np.finfo(np.float64).eps
        still = second_moment <= (max(summing, self.resolution) * self.centre) ** 2
        columns, moving = np.flatnonzero(still), second_moment[~still]
        largest = self._largest(columns) if len(columns) else np.zeros(0)
        vanishes = np.any((largest > 0) & (largest < self.smallest))
        vanishes |= np.any(moving < self.smallest**2)
        if vanishes or not np.all(second_moment < 1e280):
            raise FloatingPointError("the squares of the columns lose digits")
        self.inverse_spread = np.zeros(self.n_columns)
        self.inverse_spread[~still] = 1.0 / np.sqrt(moving)

    def _scores(self, coef: FloatArray, intercept: FloatArray) -> FloatArray:
        """Return x·coef + intercept for every row and task."""
        scores = np.empty((self.n_rows, len(intercept)))
        for span, part in self._score_chunks(coef, intercept):
            scores[span] = part
        return scores

    @abstractmethod
    def _score_chunks(
        self, coef: FloatArray, intercept: FloatArray
    ) -> Iterator[tuple[slice, FloatArray]]:
        """Yield x·coef + intercept of some rows at a time."""

    @abstractmethod
    def _part_scores(
        self, coef: FloatArray, intercept: FloatArray, chosen: Flags, part: NDArray[np.intp]
    ) -> list[FloatArray]:
        """Return x·coef + intercept of the chosen rows and the tasks of each part."""

    @abstractmethod
    def _sweep(self, coef: FloatArray, intercept: FloatArray, tasks: Tasks) -> Sweep:
        """Sum loss and gradient over the rows, for each task."""

    @abstractmethod
    def _adjoint(self, factors: FloatArray) -> FloatArray:
        """Sum factor times row."""

    @abstractmethod
    def _gram(self, weights: FloatArray) -> FloatArray:
        """Sum weight times the outer square of the centred row."""

    @abstractmethod
    def _squares(self, weights: FloatArray) -> FloatArray:
        """Sum weight times the squares of the centred row: the diagonal of `_gram`."""

    @abstractmethod
    def _part_moments(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Sum the centred rows and their squares, under each of several sets of weights."""

    @abstractmethod
    def _distances(self, factors: FloatArray) -> Any:
        """Return the norm of every row, centred and multiplied by these factors."""

    @abstractmethod
    def _largest(self, columns: NDArray[np.intp]) -> FloatArray:
        """Return the largest absolute value in each of some columns."""

    @abstractmethod
    def _row_products(self, factors: FloatArray) -> FloatArray:
        """Return the inner products of all rows, centred and multiplied by these factors."""
