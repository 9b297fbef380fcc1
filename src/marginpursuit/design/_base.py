r"""The interface between solvers and whatever holds X.

A `Design` answers a few questions, each in one pass over the data. They are about standardised
rows z = (x - mean) / deviation, where a score is h(x) = z·coef + intercept. The data are never
copied or changed: the `Standardisation`, an argument, translates a model for standardised rows to
one for the rows x as they are, and gradients back.

- `sweep`: value and gradient of a weighted sum of losses,
- `scores`: h(x) for every row,
- `adjoint`: the weighted sum of rows Zᵀr,
- `gram`: the weighted second-moment matrix of the rows.

Several tasks share each pass: `coef` has shape (n_columns, n_tasks). What only some designs can do
is listed in `capabilities`, and asked for by name.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass
from functools import singledispatch
from math import prod
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from marginpursuit._namespaces import is_array_api, namespace, to_device_of, to_numpy
from marginpursuit._threads import Threads
from marginpursuit._validation import FloatArray
from marginpursuit.blocks import Blocks
from marginpursuit.tasks import Tasks

#: Coefficients (n_columns, n_tasks) and intercepts (n_tasks,).
Linear: TypeAlias = tuple[FloatArray, FloatArray]

#: Which rows each fold holds out, (n_folds, n_rows).
BoolArray: TypeAlias = NDArray[np.bool_]

# Squares that overflow are reported as FloatingPointError; NumPy's warnings would come before it.
_quiet = np.errstate(over="ignore", invalid="ignore")


@dataclass(frozen=True, slots=True, eq=False)
class Standardisation:
    """Weighted mean and inverse standard deviation of each column.

    Without centring the mean is zero and the deviation is the root mean square. A constant column
    has an inverse deviation of zero: its standardised values and its coefficient are zero.
    """

    mean: FloatArray  # (n_columns,)
    inverse_deviation: FloatArray  # (n_columns,)
    is_identity: bool = False

    @classmethod
    def identity(cls, n_columns: int) -> "Standardisation":
        """Return the standardisation that leaves columns as they are."""
        return cls(np.zeros(n_columns), np.ones(n_columns), is_identity=True)

    @property
    def varies(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Which columns are not constant."""
        return self.inverse_deviation > 0

    @property
    def deviation(self) -> FloatArray:
        """The standard deviation of each column."""
        inverse = self.inverse_deviation
        return np.divide(1.0, inverse, out=np.zeros_like(inverse), where=self.varies)

    def to_data(self, linear: Linear) -> Linear:
        """Translate a model for standardised rows to one for the rows as they are."""
        if self.is_identity:
            return linear
        coef, intercept = linear
        raw_coef = (coef.T * self.inverse_deviation).T
        return raw_coef, intercept - self.mean @ raw_coef

    def from_data(self, linear: Linear) -> Linear:
        """Invert `to_data`; coefficients of constant columns become zero."""
        if self.is_identity:
            return linear
        coef, intercept = linear
        return (coef.T * self.deviation).T, intercept + self.mean @ coef

    def gradient(self, raw: FloatArray, intercept: FloatArray) -> FloatArray:
        """Translate gradients (n_columns, n_tasks) in raw coefficients by the chain rule.

        `intercept` is the gradient in the intercepts, of shape (n_tasks,).
        """
        return ((raw - self.mean[:, None] * intercept).T * self.inverse_deviation).T

    def second_moment(self, raw: FloatArray) -> FloatArray:
        """Scale second moments about the mean, of shape (n_columns, n_columns)."""
        return np.asarray(raw * self.inverse_deviation * self.inverse_deviation[:, np.newaxis])


@dataclass(frozen=True, slots=True)
class Sweep:
    """Weighted sums over the rows for each task, without penalty."""

    value: FloatArray  # (n_tasks,), the loss
    gradient: FloatArray  # (n_columns, n_tasks), in the coefficients
    slope: FloatArray  # (n_tasks,), the derivative in the intercepts

    def __add__(self, other: "Sweep") -> "Sweep":
        """Add the sums over two disjoint sets of rows."""
        return Sweep(
            self.value + other.value, self.gradient + other.gradient, self.slope + other.slope
        )


@dataclass(slots=True)
class PassCounter:
    """Counts passes over the data, for all designs that read the same data."""

    n_passes: int = 0


class Design(ABC):
    """A matrix of rows that is read in passes.

    The abstract methods, whose names begin with an underscore, are about the rows as they are,
    except that second moments are about a given mean: the deviation of a column may be far below
    its mean. The public methods translate between these and standardised rows, and count passes.

    Parameters
    ----------
    n_rows, n_columns : int
        The shape.
    threads : Threads, optional
        Worker threads, which belong to the caller. By default the calling thread does the work.
    """

    #: Optional abilities, by name: "subset" (a design of some rows is cheap), "row_access" (single
    #: rows are in memory), "descend" (stochastic steps along rows), "dual_pass" (passes of dual
    #: coordinate ascent).
    capabilities: frozenset[str] = frozenset()

    #: Whether rows are stored as CSR. Their second moments are centred after they are summed.
    is_sparse = False

    #: Relative rounding error of a sum over rows.
    rounding: float = 1e-14

    #: Relative rounding error of a value next to the mean of its column, beyond that of summation.
    value_rounding: float = 0.0

    #: Magnitude below which the square of a value loses digits.
    smallest_magnitude: float = 1e-140

    #: Variance above which sums of squares may overflow.
    largest_variance: ClassVar[float] = 1e280

    def __init__(self, n_rows: int, n_columns: int, threads: Threads | None = None) -> None:
        self.n_rows, self.n_columns = n_rows, n_columns
        self.threads = Threads() if threads is None else threads
        self._counter = PassCounter()

    @property
    def n_passes(self) -> int:
        """The number of passes over the data so far."""
        return self._counter.n_passes

    @n_passes.setter
    def n_passes(self, n_passes: int) -> None:
        self._counter.n_passes = n_passes

    def with_counter(self, counter: PassCounter) -> Self:
        """Return the same design with another counter, for passes in another thread."""
        other = copy(self)
        other._counter = counter
        return other

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        return None

    @property
    def n_stored(self) -> int:
        """The number of stored elements."""
        return self.n_rows * self.n_columns

    def sweep(
        self,
        coef: FloatArray,
        intercept: FloatArray,
        tasks: Tasks,
        standardisation: Standardisation,
    ) -> Sweep:
        """Sum losses and gradients over the rows, for each task, in one pass."""
        self.n_passes += 1
        raw = self._sweep(*standardisation.to_data((coef, intercept)), tasks)
        return Sweep(raw.value, standardisation.gradient(raw.gradient, raw.slope), raw.slope)

    def scores(
        self,
        coef: FloatArray,
        intercept: FloatArray,
        standardisation: Standardisation | None = None,
    ) -> FloatArray:
        """Return h(x) for every row and task, of shape (n_rows, n_tasks).

        Without a standardisation the coefficients are those of the rows as they are.
        """
        self.n_passes += 1
        if standardisation is not None:
            coef, intercept = standardisation.to_data((coef, intercept))
        return self._scores(coef, intercept)

    def map_scores(
        self,
        function: Callable[[slice, Any], Any],
        coef: FloatArray,
        intercept: FloatArray,
        standardisation: Standardisation,
    ) -> list[Any]:
        """Return function(span, scores) for chunks of rows, in order and in one pass.

        The memory of the scores is independent of the number of rows.
        """
        self.n_passes += 1
        return self._map_scores(function, *standardisation.to_data((coef, intercept)))

    def held_out_scores(
        self, coef: FloatArray, intercept: FloatArray, held_out: BoolArray, fold: NDArray[np.intp]
    ) -> list[FloatArray]:
        """Return h(x) of the rows that each fold holds out, in one pass, as NumPy arrays.

        Coefficients are those of the rows as they are. `held_out` has shape (n_folds, n_rows), and
        `fold` is the fold of each task. The result has an array of shape (n_held_out, n_tasks) for
        each fold, with the tasks of that fold.
        """
        self.n_passes += 1
        return self._held_out_scores(coef, intercept, held_out, fold)

    def adjoint(self, factors: FloatArray, standardisation: Standardisation) -> FloatArray:
        """Return Zᵀ factors, the weighted sum of standardised rows, of shape (n_columns,)."""
        self.n_passes += 1
        total = self._adjoint(factors) - standardisation.mean * factors.sum()
        return np.asarray(total * standardisation.inverse_deviation)

    def gram(self, weights: FloatArray, standardisation: Standardisation) -> FloatArray:
        """Return Zᵀ diag(weights) Z of the standardised rows."""
        self.n_passes += 1
        return standardisation.second_moment(self._gram(weights, standardisation.mean))

    @_quiet
    def standardisation(self, weights: FloatArray, *, centred: bool) -> Standardisation:
        """Return weighted means and deviations; the weights sum to one.

        Raises
        ------
        FloatingPointError
            Where means or squares over- or underflow.
        """
        mean, variance = self._moments(weights, centred=centred, diagonal=True)
        return self._standardisation_of(mean, variance)

    @_quiet
    def standardisation_and_gram(
        self, weights: FloatArray, *, centred: bool
    ) -> tuple[Standardisation, FloatArray]:
        """Return weighted means and deviations, and the Gram matrix under the same weights."""
        mean, second_moment = self._moments(weights, centred=centred, diagonal=False)
        variance = np.diagonal(second_moment)
        # A sparse Gram matrix is centred after its sum. Where the variance is below this fraction
        # of the squared mean, three digits cancel; elements are then centred one by one.
        if self.is_sparse and np.any(variance < 1e-3 * mean**2):
            variance = self._squares(weights, mean)
        standardisation = self._standardisation_of(mean, variance)
        return standardisation, standardisation.second_moment(second_moment)

    @_quiet
    def fold_variances(
        self, weights: FloatArray, standardisation: Standardisation, *, centred: bool
    ) -> FloatArray:
        """Return the variance of each standardised column under the weights of each fold.

        Each row of `weights` sums to one. Without centring this is the mean square.
        """
        self.n_passes += 1
        first, second = self._fold_moments(weights, standardisation.mean)
        variance = second - first**2 if centred else second
        return np.asarray(np.maximum(variance, 0.0) * standardisation.inverse_deviation**2)

    @_quiet
    def kurtosis(self, weights: FloatArray, standardisation: Standardisation) -> FloatArray:
        """Return Σ_i c_i z_i⁴ / (Σ_i c_i z_i²)² of each standardised column; 1 for a constant one.

        The weights c sum to one.
        """
        self.n_passes += 1
        mean, factors = standardisation.mean, standardisation.inverse_deviation
        second, fourth = self._even_moments(weights, mean, factors)
        kurtosis = np.divide(fourth, second**2, out=np.ones_like(second), where=second > 0)
        return np.asarray(kurtosis)

    @_quiet
    def mean_square(self, weights: FloatArray) -> float:
        """Return the weighted mean of ‖x‖² over the rows as they are."""
        self.n_passes += 1
        mean = float(self._squares(weights, np.zeros(self.n_columns)).sum())
        if (mean == 0.0 and self.nonzero_columns(weights).any()) or not mean < np.inf:
            raise FloatingPointError("the rows have no finite mean square")
        return mean

    def nonzero_columns(self, weights: FloatArray) -> BoolArray:
        """Return whether each column is other than zero in a row with weight.

        Without "subset" all rows count.
        """
        can_select = "subset" in self.capabilities
        used = self.subset(np.flatnonzero(to_numpy(weights) > 0)) if can_select else self
        return np.asarray(used._largest(np.arange(self.n_columns)) > 0)

    @_quiet
    def row_norms(self, standardisation: Standardisation) -> Any:
        """Return the Euclidean norm of every standardised row, on the device of the rows."""
        self.n_passes += 1
        return self._row_norms(standardisation.mean, standardisation.inverse_deviation)

    def row_squares(self) -> FloatArray:
        """Return ‖x‖² of every row as it is."""
        norms = to_numpy(self.row_norms(Standardisation.identity(self.n_columns)))
        return np.asarray(norms.astype(np.float64) ** 2)

    def row_products(
        self, column_weights: FloatArray, standardisation: Standardisation
    ) -> FloatArray:
        """Return Z diag(column_weights) Zᵀ, of shape (n_rows, n_rows)."""
        self.n_passes += 1
        factors = np.sqrt(column_weights) * standardisation.inverse_deviation
        return self._row_products(standardisation.mean, factors)

    def to_device(self, values: NDArray[Any]) -> Any:
        """Return an array with one entry per row on the device of the rows."""
        return values

    @abstractmethod
    def from_dense_rows(self, rows: FloatArray) -> "Design":
        """Return a design of other dense rows, given in NumPy, on the device of these."""

    def subset(self, rows: NDArray[np.intp] | slice, threads: Threads | None = None) -> "Design":
        """Return a design of some rows, in rising order. This is the capability "subset"."""
        raise NotImplementedError(self._lacks("subset"))

    def float32_copy(
        self, order: NDArray[np.intp], standardisation: Standardisation
    ) -> "Design | None":
        """Return a float32 copy of the standardised rows in another order, which is faster to read.

        None where the copy would be too large, or where rows are read where they are.
        """
        return None

    def copied_order(self, standardisation: Standardisation) -> NDArray[np.intp]:
        """Return the row order of the cached `float32_copy`, or 0..n_rows-1 if there is none."""
        return np.arange(self.n_rows)

    def _lacks(self, capability: str) -> str:
        return f"{type(self).__name__} does not support {capability!r}"

    def _moments(
        self, weights: FloatArray, *, centred: bool, diagonal: bool
    ) -> tuple[FloatArray, FloatArray]:
        """Return the mean and the second moments about it: the matrix or its diagonal.

        Without centring the mean is zero.
        """
        self.n_passes += 2
        mean = self._adjoint(weights)
        if not np.all(np.isfinite(mean)):
            raise FloatingPointError("the columns have no finite mean")
        mean = mean if centred else np.zeros(self.n_columns)
        return mean, (self._squares if diagonal else self._gram)(weights, mean)

    def _standardisation_of(self, mean: FloatArray, variance: FloatArray) -> Standardisation:
        # A deviation below the rounding error of the mean is that of a constant column.
        summation = self.n_rows * float(np.finfo(np.float64).eps)
        is_constant = variance <= (max(summation, self.value_rounding) * mean) ** 2
        underflows = False
        if is_constant.any():
            largest = self._largest(np.flatnonzero(is_constant))
            underflows = bool(np.any((largest > 0) & (largest < self.smallest_magnitude)))
        varying = np.where(is_constant, 1.0, variance)
        is_finite = variance.max() < self.largest_variance  # false for NaN
        if underflows or not (is_finite and varying.min() >= self.smallest_magnitude**2):
            raise FloatingPointError("the squares of the columns lose digits")
        return Standardisation(mean, np.where(is_constant, 0.0, 1.0 / np.sqrt(varying)))

    def _scores(self, coef: FloatArray, intercept: FloatArray) -> FloatArray:
        """Return x·coef + intercept for every row and task."""
        scores = np.empty((self.n_rows, len(intercept)))
        self._map_scores(scores.__setitem__, coef, intercept)
        return scores

    def _map_scores(
        self, function: Callable[[slice, Any], Any], coef: FloatArray, intercept: FloatArray
    ) -> list[Any]:
        return [function(span, scores) for span, scores in self._score_chunks(coef, intercept)]

    @abstractmethod
    def _score_chunks(
        self, coef: FloatArray, intercept: FloatArray
    ) -> Iterator[tuple[slice, FloatArray]]:
        """Yield x·coef + intercept for chunks of rows."""

    @abstractmethod
    def _held_out_scores(
        self, coef: FloatArray, intercept: FloatArray, held_out: BoolArray, fold: NDArray[np.intp]
    ) -> list[FloatArray]:
        """Return x·coef + intercept of held-out rows for the tasks of each fold."""

    @abstractmethod
    def _sweep(self, coef: FloatArray, intercept: FloatArray, tasks: Tasks) -> Sweep:
        """Sum losses and gradients over the rows, for each task."""

    @abstractmethod
    def _adjoint(self, factors: FloatArray) -> FloatArray:
        """Return Xᵀ factors."""

    @abstractmethod
    def _gram(self, weights: FloatArray, mean: FloatArray) -> FloatArray:
        """Return the weighted sum of (x - mean)(x - mean)ᵀ."""

    @abstractmethod
    def _squares(self, weights: FloatArray, mean: FloatArray) -> FloatArray:
        """Return the weighted sum of (x - mean)², the diagonal of `_gram`."""

    @abstractmethod
    def _fold_moments(self, weights: FloatArray, mean: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return sums of x - mean and of its square, under the weights of each fold."""

    def _even_moments(
        self, weights: FloatArray, mean: FloatArray, factors: FloatArray
    ) -> FloatArray:
        """Return weighted sums of z² and z⁴, (2, n_columns), with z = factors · (x - mean)."""
        raise NotImplementedError(self._lacks("fourth moments"))

    @abstractmethod
    def _row_norms(self, mean: FloatArray, factors: FloatArray) -> Any:
        """Return ‖factors · (x - mean)‖ of every row."""

    @abstractmethod
    def _largest(self, columns: NDArray[np.intp]) -> FloatArray:
        """Return the largest absolute value in each of some columns."""

    @abstractmethod
    def _row_products(self, mean: FloatArray, factors: FloatArray) -> FloatArray:
        """Return the inner products of all rows factors · (x - mean)."""


@singledispatch
def design_for(matrix: Any, threads: Threads | None = None) -> Design:
    """Return the design that reads `matrix`, by the caller's threads.

    Each design registers the types that it reads; `ArrayDesign` reads every other type. Labels and
    weights are expected on the device of the data.
    """
    raise TypeError(f"no design reads a {type(matrix).__name__}")


def take_rows(matrix: Any, rows: NDArray[np.intp]) -> Any:
    """Return some rows, in rising order, on the device of the data; blocks are not loaded yet."""
    if isinstance(matrix, Blocks):
        return matrix.take(rows)
    if is_array_api(matrix):
        xp = namespace(matrix)
        return xp.take(matrix, to_device_of(matrix, rows, xp.int64), axis=0)
    if isinstance(matrix, np.ndarray) and matrix.flags.c_contiguous:
        return matrix.take(rows, axis=0)  # 20 % faster than indexing
    return matrix[rows]


def loaded(matrix: Any) -> Any:
    """Return the rows of blocks in memory, and anything else as it is."""
    return matrix.gather() if isinstance(matrix, Blocks) else matrix


def elements_per_row(matrix: Any) -> float:
    """Return the mean number of stored elements of a row."""
    if isinstance(matrix, Blocks):
        return matrix.elements_per_row
    stored = getattr(matrix, "nnz", prod(matrix.shape))
    return float(stored / matrix.shape[0])
