"""Sums and products of rows in memory: what is asked of them without a loss."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from marginpursuit import _kernels
from marginpursuit._threads import serial_products
from marginpursuit._validation import FloatArray
from marginpursuit.design._threaded import BLOCK_ELEMENTS, PRODUCT_ELEMENTS, ThreadedRows

# The fewest rows (or columns) that make a copy for a matrix product worth its while.
_FEWEST_IN_PRODUCT = 1024

# The share of the rows up to which those with a factor are copied, and the others left unread.
_FEW = 0.1


class RowMoments(ThreadedRows):
    """A dense array or a CSR matrix whose moments can be asked for."""

    def quadratic(self, matrix: FloatArray | None = None) -> FloatArray:
        """Return x·Mx for every row as it is; without a matrix, its squared norm."""
        self.n_reads += 1
        total, step = np.empty(self.n_rows), max(256, PRODUCT_ELEMENTS // max(1, self.n_columns))
        with serial_products():
            for start in range(0, self.n_rows, step):
                span = slice(start, start + step)
                rows = self._matrix[span].astype(np.float64, copy=False)
                if self.is_sparse:
                    mapped = rows if matrix is None else sparse.csr_matrix(rows @ matrix)
                    total[span] = np.asarray(rows.multiply(mapped).sum(axis=1)).ravel()
                else:
                    mapped = rows if matrix is None else rows @ matrix
                    total[span] = np.einsum("ij,ij->i", rows, mapped)
        return total

    def absolute_products(self, weights: FloatArray, *, with_one: bool) -> FloatArray:
        """Sum weight |z_j| Σ_k |z_k| over the rows: a diagonal that bounds the Gram matrix.

        With `with_one` each row has a one appended, for the intercept.
        """
        self.n_reads += 1
        total = np.zeros(self.n_columns + with_one)
        for span, rows in self._chunks(0, self.n_rows):
            if self.is_sparse:  # what is not stored has the size of the centre
                usual, centre = np.abs(self.centre), self.centre[rows.indices]
                size = rows.copy()
                size.data = np.abs(rows.data - centre) - np.abs(centre)
            else:
                size, usual = np.abs(rows - self.centre), np.zeros(self.n_columns)
            norms = size @ self.inverse_spread + usual @ self.inverse_spread + float(with_one)
            factors = weights[span] * norms
            total[: self.n_columns] += (
                factors @ size + factors.sum() * usual
            ) * self.inverse_spread
            total[self.n_columns :] += factors.sum()
        return total

    def scaled_rows(self, factors: FloatArray) -> FloatArray:
        """Return all rows, centred and multiplied by these factors."""
        rows = self._matrix.toarray() if self.is_sparse else self._matrix
        return np.asarray((rows - self.centre) * factors)

    def _pullback(self, factors: FloatArray) -> FloatArray:
        large = not self.is_sparse and self._matrix.size >= BLOCK_ELEMENTS
        if large and np.count_nonzero(factors) <= _FEW * self.n_rows:
            return self._pullback_few(factors, np.flatnonzero(factors))
        totals = np.zeros((len(self._blocks) - 1, self.n_columns))
        factors = np.ascontiguousarray(factors)
        self._for_blocks(
            lambda block, first, last: self._rows.pullback(first, last, factors, totals[block])
        )
        return np.asarray(totals.sum(axis=0))

    def _pullback_few(self, factors: FloatArray, wanted: NDArray[np.intp]) -> FloatArray:
        """Sum factor times row over some dense rows; the others are not read."""
        step = max(16, PRODUCT_ELEMENTS // max(1, self.n_columns))

        def add(first: int, last: int, total: FloatArray) -> None:
            for start in range(first, last, step):
                rows = wanted[start : min(start + step, last)]
                total += factors[rows] @ self._matrix[rows].astype(np.float64, copy=False)

        return np.asarray(self._summed((1, self.n_columns), len(wanted), add)[0])

    def _gram(self, weights: FloatArray) -> FloatArray:
        """Sum weight times the outer square of the centred row, rows of weight zero unread."""
        if self.is_sparse:
            return self._sparse_gram(np.ascontiguousarray(weights))
        wanted = None if np.all(weights > 0) else np.flatnonzero(weights)

        def add(first: int, last: int, total: FloatArray) -> None:
            step = max(_FEWEST_IN_PRODUCT, PRODUCT_ELEMENTS // max(1, self.n_columns))
            # One copy and one product, over and over: not every system gives memory back for free.
            copied, product = (
                np.empty((min(step, last - first), self.n_columns)),
                np.empty_like(total),
            )
            for start in range(first, last, step):
                span: Any = slice(start, min(start + step, last))
                rows = copied[: span.stop - start]
                span = span if wanted is None else wanted[span]
                np.subtract(self._matrix[span], self.centre, out=rows, casting="unsafe")
                rows *= np.sqrt(weights[span])[:, np.newaxis]
                total += np.matmul(rows.T, rows, out=product)

        n_wanted = self.n_rows if wanted is None else len(wanted)
        return self._summed((self.n_columns, self.n_columns), n_wanted, add)

    def _sparse_gram(self, weights: FloatArray) -> FloatArray:
        matrix = self._matrix
        data = matrix.data.astype(np.float64, copy=False)
        means = self._pullback(weights)

        def add(first: int, last: int, total: FloatArray) -> None:
            _kernels.csr_gram(data, matrix.indices, matrix.indptr, weights, first, last, total)

        second = self._summed((self.n_columns, self.n_columns), self.n_rows, add)
        cross = np.outer(means, self.centre)
        square = weights.sum() * np.outer(self.centre, self.centre)
        return np.asarray(second - cross - cross.T + square)

    def _squares(self, weights: FloatArray) -> FloatArray:
        if self.is_sparse:
            total = np.zeros(self.n_columns)
            for span, rows in self._chunks(0, self.n_rows):
                share = weights[span]
                total += share @ rows.multiply(rows) - 2.0 * self.centre * (share @ rows)
                total += share.sum() * self.centre**2
            return total

        def add(first: int, last: int, total: FloatArray) -> None:
            for span, rows in self._chunks(first, last):
                rows = rows - self.centre
                total += weights[span] @ np.square(rows, out=rows)

        return np.asarray(self._summed((1, self.n_columns), self.n_rows, add)[0])

    def _part_moments(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        first = np.zeros((len(weights), self.n_columns))
        second = np.zeros_like(first)
        for span, rows in self._chunks(0, self.n_rows):
            share = weights[:, span]
            if self.is_sparse:  # what is not stored is minus the centre
                cross = share @ rows * self.centre
                squares = share @ rows.multiply(rows).tocsr() - 2.0 * cross
                first += share @ rows - np.outer(share.sum(axis=1), self.centre)
                second += squares + np.outer(share.sum(axis=1), self.centre**2)
            else:
                rows = rows - self.centre
                first += share @ rows
                second += share @ np.square(rows, out=rows)
        return first, second

    def _distances(self, factors: FloatArray) -> FloatArray:
        squares = np.empty(self.n_rows)
        centre = self.centre

        def run(_: int, first: int, last: int) -> None:
            for span, rows in self._chunks(first, last):
                if self.is_sparse:  # what is not stored is minus the centre
                    size, usual = rows.copy(), centre[rows.indices]
                    size.data = rows.data * (rows.data - 2.0 * usual)
                    squares[span] = size @ factors**2 + np.sum((centre * factors) ** 2)
                else:
                    rows = (rows - centre) * factors
                    squares[span] = np.einsum("ij,ij->i", rows, rows)

        self._for_blocks(run)
        return np.sqrt(np.maximum(squares, 0.0))

    def _largest(self, columns: NDArray[np.intp]) -> FloatArray:
        if self.is_sparse:
            size = abs(self._matrix.astype(np.float64, copy=False)).max(axis=0)
            return np.asarray(size.toarray().ravel()[columns])
        largest, step = np.zeros(len(columns)), max(1, PRODUCT_ELEMENTS // len(columns))
        for start in range(0, self.n_rows, step):
            values = self._matrix[start : start + step, columns].astype(np.float64)
            largest = np.maximum(largest, np.abs(values).max(axis=0))
        return largest

    def _row_products(self, factors: FloatArray) -> FloatArray:
        if self.is_sparse:
            scaled = self._matrix.astype(np.float64).multiply(factors).tocsr()
            cross = scaled @ (self.centre * factors)
            offset = float(np.sum((self.centre * factors) ** 2))
            products = (scaled @ scaled.T).toarray()
            return np.asarray(products - cross - cross[:, np.newaxis] + offset)

        def add(first: int, last: int, total: FloatArray) -> None:
            step = max(_FEWEST_IN_PRODUCT, PRODUCT_ELEMENTS // self.n_rows)
            for start in range(first, last, step):
                span = slice(start, min(start + step, last))
                rows = (self._matrix[:, span] - self.centre[span]) * factors[span]
                total += rows @ rows.T

        return self._summed((self.n_rows, self.n_rows), self.n_columns, add)
