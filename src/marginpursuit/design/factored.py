r"""Rows z = L⁻¹ k with a triangular matrix L, of which k and L are stored.

The features of a kernel are such rows. To compute them takes n m² products for n rows of m columns,
more than a fit to them. A score is z·w = k·(L⁻ᵀw), and a weighted sum of rows z is L⁻¹ times that
of the rows k: a pass over k and two triangular solves answer what solvers ask.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from marginpursuit._threads import Threads
from marginpursuit._validation import FloatArray
from marginpursuit.design._base import BoolArray, Design, Standardisation, Sweep, design_for
from marginpursuit.design.memory import MemoryDesign
from marginpursuit.tasks import Tasks


@dataclass(frozen=True, slots=True, eq=False)
class FactoredRows:
    """The rows L⁻¹ k."""

    values: NDArray[Any]  # (n_rows, n_columns), k of each row
    lower: FloatArray  # (n_columns, n_columns), L

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and columns."""
        n_rows, n_columns = self.values.shape
        return n_rows, n_columns


@design_for.register(FactoredRows)
class FactoredDesign(Design):
    """Rows L⁻¹ k, read by passes over k."""

    def __init__(self, rows: FactoredRows, threads: Threads | None = None) -> None:
        super().__init__(*rows.shape, threads)
        self.capabilities = frozenset({"subset"})
        self._lower, self._base = rows.lower, MemoryDesign(rows.values, self.threads)

    def from_dense_rows(self, rows: FloatArray) -> MemoryDesign:
        """Return a design of other dense rows."""
        return MemoryDesign(rows, self.threads)

    def subset(
        self, rows: NDArray[np.intp] | slice, threads: Threads | None = None
    ) -> "FactoredDesign":
        """Return a design of some rows; a slice is not copied."""
        values = self._base.subset(rows, self.threads).matrix
        return FactoredDesign(FactoredRows(values, self._lower), threads)

    def standardisation(
        self, weights: FloatArray, *, centred: bool, rows_per_column: int = 4
    ) -> Standardisation:
        """Return the mean of each column, and about its deviation.

        The deviations of all rows would take as long as their Gram matrix. Those of a subsample
        serve as units of the coefficients, which change no fit.
        """
        self.n_passes += 1
        mean = self._adjoint(weights) if centred else np.zeros(self.n_columns)
        if not np.all(np.isfinite(mean)):
            raise FloatingPointError("the columns have no finite mean")
        size = min(self.n_rows, rows_per_column * self.n_columns)
        some = np.linspace(0, self.n_rows - 1, size).astype(np.intp)
        variance = np.mean((self._rows(some) - mean) ** 2, axis=0)
        # A column that varies in other rows alone has a small deviation, and none is zero.
        least = 1e-3 * float(variance.mean())
        variance = np.maximum(variance, least if least > 0 else 1.0)
        return Standardisation(mean, 1.0 / np.sqrt(variance))

    def _rows(self, which: NDArray[np.intp] | slice) -> FloatArray:
        """Return some rows."""
        return np.asarray(self._solve(self._base.matrix[which].T.astype(np.float64)).T)

    def _chunks(self) -> Iterator[tuple[slice, FloatArray]]:
        """Yield chunks of rows."""
        step = max(256, self._base.policy.chunk_elements // self.n_columns)
        for start in range(0, self.n_rows, step):
            span = slice(start, min(start + step, self.n_rows))
            yield span, self._rows(span)

    def _solve(self, columns: FloatArray, max_columns: int = 512) -> FloatArray:
        """Return L⁻¹ times columns, `max_columns` at a time.

        A signal interrupts between two calls of LAPACK, of about 0.2 s with 4,000 landmarks.
        """
        solve = partial(solve_triangular, self._lower, lower=True, check_finite=False)
        if columns.ndim == 1 or columns.shape[1] <= max_columns:
            return np.asarray(solve(columns))
        starts = range(0, columns.shape[1], max_columns)
        return np.hstack([solve(columns[:, k : k + max_columns]) for k in starts])

    def _to_values(self, coef: FloatArray) -> FloatArray:
        """Return the coefficients L⁻ᵀw of k."""
        lower = self._lower
        return np.asarray(solve_triangular(lower, coef, trans="T", lower=True, check_finite=False))

    def _scores(self, coef: FloatArray, intercept: FloatArray) -> FloatArray:
        return self._base._scores(self._to_values(coef), intercept)

    def _score_chunks(
        self, coef: FloatArray, intercept: FloatArray
    ) -> Iterator[tuple[slice, FloatArray]]:
        return self._base._score_chunks(self._to_values(coef), intercept)

    def _map_scores(
        self, function: Callable[[slice, Any], Any], coef: FloatArray, intercept: FloatArray
    ) -> list[Any]:
        return self._base._map_scores(function, self._to_values(coef), intercept)

    def _held_out_scores(
        self, coef: FloatArray, intercept: FloatArray, held_out: BoolArray, fold: NDArray[np.intp]
    ) -> list[FloatArray]:
        return self._base._held_out_scores(self._to_values(coef), intercept, held_out, fold)

    def _sweep(self, coef: FloatArray, intercept: FloatArray, tasks: Tasks) -> Sweep:
        raw = self._base._sweep(self._to_values(coef), intercept, tasks)
        return Sweep(raw.value, self._solve(raw.gradient), raw.slope)

    def _adjoint(self, factors: FloatArray) -> FloatArray:
        return self._solve(self._base._adjoint(factors))

    def _gram(self, weights: FloatArray, mean: FloatArray) -> FloatArray:
        second = self._base._gram(weights, self._lower @ mean)
        return self._solve(self._solve(second).T)

    def _squares(self, weights: FloatArray, mean: FloatArray) -> FloatArray:
        return np.diagonal(self._gram(weights, mean))

    def _fold_moments(self, weights: FloatArray, mean: FloatArray) -> tuple[FloatArray, FloatArray]:
        first, second = np.zeros((2, len(weights), self.n_columns))
        for span, chunk in self._chunks():
            first += weights[:, span] @ (chunk - mean)
            second += weights[:, span] @ (chunk - mean) ** 2
        return first, second

    def _row_norms(self, mean: FloatArray, factors: FloatArray) -> FloatArray:
        norms = [np.linalg.norm((chunk - mean) * factors, axis=1) for _, chunk in self._chunks()]
        return np.concatenate(norms)

    def _largest(self, columns: NDArray[np.intp]) -> FloatArray:
        maxima = [np.abs(chunk[:, columns]).max(axis=0) for _, chunk in self._chunks()]
        return np.asarray(np.max(maxima, axis=0))

    def _row_products(self, mean: FloatArray, factors: FloatArray) -> FloatArray:
        rows = (self._rows(slice(None)) - mean) * factors
        return np.asarray(rows @ rows.T)
