r"""Learning from a stream of batches.

The first rows, five for each column and at least a thousand, are kept and fitted exactly. After
that each batch is seen once. With S the sum of z zᵀ over all rows so far (z standardised, with a
one for the intercept), κ the mean curvature of the loss over them, P the penalty times their
number, and g the gradient over the new rows, a batch moves the coefficients by -(κS + P)⁻¹ g, a
step of Newton's method with the curvature taken to be the same for all rows. Where the loss is
quadratic, κ is 1 and this is recursive least squares, which equals the fit to all rows at once;
elsewhere rows of earlier batches are not looked at again, and it comes near that fit. A batch that
is larger than all before it is taken in parts that are not.

Above 2048 columns S would be too large, and a diagonal that bounds it takes the place of κS:
|z_j| Σ_k |z_k|, summed over rows.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from operator import getitem
from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg import cho_factor, cho_solve

from marginpursuit._validation import FloatArray
from marginpursuit.blocks import Blocks
from marginpursuit.classifiers._base import TrainingData
from marginpursuit.design import Linear, MemoryDesign
from marginpursuit.losses import MarginLoss
from marginpursuit.tasks import Labels, Tasks

_MOST_COLUMNS = 2048

# What is kept for the exact fit at the beginning: enough rows, but not too many stored elements.
_ROWS_PER_COLUMN = 5
_LEAST_ROWS = 1000
_MOST_ELEMENTS = 1 << 24

# No step is taken as if the curvature were less.
_LEAST_CURVATURE = 0.01


@dataclass(slots=True)
class Stream:
    """What is remembered between batches, once the first rows are fitted."""

    centre: FloatArray
    inverse_spread: FloatArray
    linear: Linear  # standardised coefficients and intercepts
    bound: FloatArray  # S, or its diagonal bound
    curvature: FloatArray  # κ of each problem
    n_rows: int
    weight: float  # the sum of the weights of the rows
    fit_intercept: bool

    @classmethod
    def begin(
        cls, data: TrainingData, linear: Linear, loss: MarginLoss, fit_intercept: bool, threads: int
    ) -> "Stream":
        """Begin with the first rows and their fit; all later rows keep their coordinates."""
        with MemoryDesign(data.matrix, n_threads=threads) as design:
            is_narrow = design.n_columns <= _MOST_COLUMNS
            design.standardise_diagonal(data.weights, centred=fit_intercept and is_narrow)
            # A column that is constant so far may vary in the next batch.
            moving = design.inverse_spread > 0
            design.inverse_spread = np.where(moving, design.inverse_spread, 1.0)
            size = design.n_columns + fit_intercept
            stream = cls(
                design.centre,
                design.inverse_spread,
                design.from_data(linear),
                np.zeros((size, size) if is_narrow else size),
                np.zeros(len(data.labels.positive_classes)),
                0,
                0.0,
                fit_intercept,
            )
            stream._count(design, data, loss)
        return stream

    def update(
        self, data: TrainingData, loss: MarginLoss, penalty: FloatArray, threads: int
    ) -> int:
        """Learn from a batch, given the penalty for a weight of one; return the reads it took."""
        passes = 0
        for part in _parts(data, self.n_rows):
            with MemoryDesign(part.matrix, n_threads=threads) as design:
                design.centre, design.inverse_spread = self.centre, self.inverse_spread
                self._count(design, part, loss)
                self._step(design, part, loss, penalty)
                passes += design.n_passes
        return passes

    def to_data(self) -> Linear:
        """Return coefficients and intercepts for the data as it comes."""
        coef = (self.linear[0].T * self.inverse_spread).T
        return coef, self.linear[1] - self.centre @ coef

    def _count(self, design: MemoryDesign, data: TrainingData, loss: MarginLoss) -> None:
        """Add rows to the sums over all rows."""
        right = data.labels.codes[:, np.newaxis] == data.labels.positive_classes
        scores = design.scores(*self.linear)
        curvature = data.weights @ loss.curvature(np.where(right, scores, -scores))
        self.n_rows += design.n_rows
        self.weight += data.count
        self.curvature += (data.count / self.weight) * (curvature - self.curvature)
        weights = data.count * data.weights
        if self.bound.ndim == 1:
            self.bound += design.absolute_products(weights, with_one=self.fit_intercept)
        elif self.fit_intercept:
            first = design.adjoint(weights)[:, np.newaxis]
            self.bound += np.block([[design.gram(weights), first], [first.T, data.count]])
        else:
            self.bound += design.gram(weights)

    def _step(
        self, design: MemoryDesign, data: TrainingData, loss: MarginLoss, penalty: FloatArray
    ) -> None:
        coef, intercept = self.linear
        weights = data.count * data.weights
        sweep = design.sweep(coef, intercept, Tasks.of(data.labels, weights, loss))
        gradient = sweep.gradient + data.count * (coef.T * penalty).T
        if self.fit_intercept:
            gradient = np.vstack([gradient, sweep.slope])
            penalty = np.append(penalty, 0.0)
        step = self._solve(gradient, self.weight * penalty)
        self.linear = (
            coef - step[: len(coef)],
            intercept - step[len(coef)] if self.fit_intercept else intercept,
        )

    def _solve(self, gradient: FloatArray, penalty: FloatArray) -> FloatArray:
        """Apply the inverse of κS + P to the gradient of each problem."""
        if self.bound.ndim == 1:
            bound = (self.bound + penalty)[:, np.newaxis]
            return np.divide(gradient, bound, out=np.zeros_like(gradient), where=bound > 0)
        # Directions not seen yet have no gradient; the floor keeps the factorisation defined.
        floor = 1e-12 * np.trace(self.bound)
        step = np.empty_like(gradient)
        for k, curvature in enumerate(np.maximum(self.curvature, _LEAST_CURVATURE)):
            hessian = curvature * self.bound
            hessian[np.diag_indices_from(hessian)] += penalty + floor
            step[:, k] = cho_solve(cho_factor(hessian, overwrite_a=True), gradient[:, k])
        return step


def batches(data: TrainingData) -> Iterator[TrainingData]:
    """Yield what is in memory as it is, and blocks one after another."""
    if not isinstance(data.matrix, Blocks):
        yield data
        return
    for block, edges in enumerate(pairwise(data.matrix.edges.tolist())):
        yield from _part(data, slice(*edges), partial(data.matrix.load, block))


def stack(held: TrainingData | None, batch: TrainingData) -> TrainingData:
    """Put a batch below the rows that are held already, all copied."""
    parts = [batch] if held is None else [held, batch]
    matrices = [part.matrix for part in parts]
    matrix: Any
    if any(sparse.issparse(matrix) for matrix in matrices):
        matrix = sparse.vstack([sparse.csr_array(m) for m in matrices], format="csr")
    else:
        matrix = np.concatenate(matrices)
    count = sum(part.count for part in parts)
    return TrainingData(
        matrix,
        Labels(np.concatenate([p.labels.codes for p in parts]), batch.labels.n_classes),
        np.concatenate([(part.count / count) * part.weights for part in parts]),
        count,
    )


def is_enough(held: TrainingData) -> bool:
    """Whether no more rows need to be held for an exact fit."""
    n_rows, n_columns = held.matrix.shape
    wanted = max(_LEAST_ROWS, _ROWS_PER_COLUMN * (n_columns + 1))
    return bool(n_rows >= wanted or getattr(held.matrix, "nnz", held.matrix.size) >= _MOST_ELEMENTS)


def _parts(data: TrainingData, most: int) -> Iterator[TrainingData]:
    """Cut a batch into parts: at most so many rows, then twice as many, and so on."""
    n_rows, first = len(data.weights), 0
    while first < n_rows:
        rows = slice(first, first + most)
        yield from _part(data, rows, partial(getitem, data.matrix, rows))
        first, most = first + most, 2 * most


def _part(data: TrainingData, rows: slice, load: Callable[[], Any]) -> Iterator[TrainingData]:
    """Yield some rows, which `load` loads, unless none of them counts."""
    weights = data.weights[rows]
    share = float(weights.sum())
    if share > 0:
        labels = data.labels.take(rows)
        yield TrainingData(load(), labels, weights / share, data.count * share)
