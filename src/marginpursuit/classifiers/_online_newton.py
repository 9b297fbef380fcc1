r"""Online Newton steps for `partial_fit`.

The first rows are stored and fitted exactly: five for each column and at least a thousand. After
that each batch is read once. Let S be the sum of z zᵀ over all rows so far (z standardised, with a
one appended for the intercept), κ the mean curvature φ″ over them, P the penalty times their
weight, and g the gradient over the new rows. A batch changes the coefficients by -(κS + P)⁻¹ g: a
Newton step with the same curvature for all rows. If the loss is quadratic, κ = 1 and this is
recursive least squares, whose result is the fit to all rows at once. Otherwise the curvatures and
gradients of earlier rows are not updated, and the result approximates that fit. A batch with more
rows than all before it is split into parts that double in size.

Above `StreamPolicy.max_columns` columns S is replaced by a diagonal that majorises it: the sum of
|z_j| Σ_k |z_k| over the rows.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from operator import getitem
from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg import cho_factor, cho_solve

from marginpursuit._threads import Threads
from marginpursuit._validation import FloatArray
from marginpursuit.blocks import Blocks
from marginpursuit.classifiers._base import TrainingData
from marginpursuit.classifiers._leverage import median_distance, row_distances, within_limit
from marginpursuit.design import Linear, MemoryDesign, Standardisation
from marginpursuit.losses import MarginLoss
from marginpursuit.tasks import Labels, Tasks


@dataclass(frozen=True, slots=True)
class StreamPolicy:
    """Thresholds of `partial_fit`."""

    max_columns: int = 2048  # with more, S has a diagonal majoriser; S takes 32 MiB at 2048
    rows_per_column: int = 5  # rows of the exact fit for each coefficient
    min_rows: int = 1000  # rows of the exact fit, at least
    max_elements: int = 1 << 24  # stored elements that end the exact fit: 128 MiB of float64
    min_curvature: float = 0.01  # floor of κ, which bounds the step size


@dataclass(slots=True)
class Stream:
    """The state between batches, after the exact fit to the first rows."""

    standardisation: Standardisation
    linear: Linear  # standardised coefficients and intercepts
    bound: FloatArray  # S, or its diagonal majoriser
    curvature: FloatArray  # κ of each binary problem
    n_rows: int
    n_weighted: int  # rows with positive weight
    weight: float  # the sum of the weights of the rows
    fit_intercept: bool
    is_sparse: bool  # whether the first rows were stored as CSR
    limit: float  # distance of a row beyond which its weight shrinks
    policy: StreamPolicy

    @classmethod
    def begin(
        cls,
        data: TrainingData,
        linear: Linear,
        loss: MarginLoss,
        *,
        fit_intercept: bool,
        leverage_bound: float | None,
        threads: int,
        policy: StreamPolicy,
    ) -> "Stream":
        """Begin with the first rows and their fit; their standardisation is that of all rows."""
        with Threads(threads) as pool:
            design = MemoryDesign(data.matrix, pool)
            is_narrow = design.n_columns <= policy.max_columns
            first = design.standardisation(data.weights, centred=fit_intercept and is_narrow)
            # A column that is constant in these rows may vary in a later batch.
            standardisation = Standardisation(
                first.mean, np.where(first.varies, first.inverse_deviation, 1.0)
            )
            size = design.n_columns + fit_intercept
            stream = cls(
                standardisation,
                linear=standardisation.from_data(linear),
                bound=np.zeros((size, size) if is_narrow else size),
                curvature=np.zeros(len(data.labels.positive_classes)),
                n_rows=0,
                n_weighted=0,
                weight=0.0,
                fit_intercept=fit_intercept,
                is_sparse=data.is_sparse,
                limit=float("inf"),
                policy=policy,
            )
            if leverage_bound is not None:
                stream.limit = leverage_bound * median_distance(
                    stream._distances(design, data), data
                )
                data = stream._bounded(design, data)
            stream._count(design, data, loss)
        return stream

    def update(
        self,
        data: TrainingData,
        loss: MarginLoss,
        alpha: Callable[[float], float],
        unit: FloatArray,
        threads: int,
    ) -> int:
        """Step along a batch and return the data passes.

        `alpha` is the penalty for a number of rows, in the unit of each column.
        """
        passes = 0
        for part in _parts(data, self.n_rows):
            with Threads(threads) as pool:
                design = MemoryDesign(part.matrix, pool)
                part = self._bounded(design, part)
                before = self.weight * alpha(self.n_samples)
                self._count(design, part, loss)
                after = self.weight * alpha(self.n_samples)
                self._step(design, part, loss, before * unit, after * unit)
                passes += design.n_passes
        return passes

    @property
    def n_samples(self) -> float:
        """The number of rows so far, as `TrainingData.n_samples` counts them."""
        return max(self.weight, float(self.n_weighted))

    def to_data(self) -> Linear:
        """Return coefficients and intercepts for X as given."""
        return self.standardisation.to_data(self.linear)

    def _distances(self, design: MemoryDesign, data: TrainingData) -> FloatArray:
        """Return the distances of rows, by the standardisation of the first rows."""
        own = None if design.is_sparse else self.standardisation
        return np.asarray(row_distances(design, data, own))

    def _bounded(self, design: MemoryDesign, data: TrainingData) -> TrainingData:
        """Return the data with bounded leverage."""
        if self.limit == float("inf"):
            return data
        return replace(data, weights=within_limit(data, self._distances(design, data), self.limit))

    def _count(self, design: MemoryDesign, data: TrainingData, loss: MarginLoss) -> None:
        """Add rows to S, to the mean curvature and to the totals."""
        is_positive = data.labels.codes[:, np.newaxis] == data.labels.positive_classes
        scores = design.scores(*self.linear, self.standardisation)
        curvature = data.weights @ loss.curvature(np.where(is_positive, scores, -scores))
        self.n_rows += design.n_rows
        self.n_weighted += int(np.count_nonzero(data.weights))
        self.weight += data.total_weight
        self.curvature += (data.total_weight / self.weight) * (curvature - self.curvature)
        weights = data.total_weight * data.weights
        if self.bound.ndim == 1:
            self.bound += design.absolute_products(
                weights, self.standardisation, with_intercept=self.fit_intercept
            )
        elif self.fit_intercept:
            first = design.adjoint(weights, self.standardisation)[:, np.newaxis]
            gram = design.gram(weights, self.standardisation)
            self.bound += np.block([[gram, first], [first.T, data.total_weight]])
        else:
            self.bound += design.gram(weights, self.standardisation)

    def _step(
        self,
        design: MemoryDesign,
        data: TrainingData,
        loss: MarginLoss,
        penalty_before: FloatArray,
        penalty: FloatArray,
    ) -> None:
        """Take a Newton step for rows that `_count` has added.

        `penalty` is that of each column for the sum of the losses of all rows so far;
        `penalty_before` that without these rows.
        """
        coef, intercept = self.linear
        weights = data.total_weight * data.weights
        tasks = Tasks.of(data.labels, weights, loss)
        sweep = design.sweep(coef, intercept, tasks, self.standardisation)
        gradient = sweep.gradient + (coef.T * (penalty - penalty_before)).T
        if self.fit_intercept:
            gradient = np.vstack([gradient, sweep.slope])
            penalty = np.append(penalty, 0.0)
        step = self._solve(gradient, penalty)
        self.linear = (
            coef - step[: len(coef)],
            intercept - step[len(coef)] if self.fit_intercept else intercept,
        )

    def _solve(self, gradient: FloatArray, penalty: FloatArray) -> FloatArray:
        """Apply the inverse of κS + P to the gradient of each binary problem."""
        if self.bound.ndim == 1:
            bound = (self.bound + penalty)[:, np.newaxis]
            return np.divide(gradient, bound, out=np.zeros_like(gradient), where=bound > 0)
        # S is singular while there are few rows; the gradient is zero in its null space. A small
        # multiple of the identity keeps the factorisation defined.
        floor = 1e-12 * np.trace(self.bound)
        step = np.empty_like(gradient)
        for k, curvature in enumerate(np.maximum(self.curvature, self.policy.min_curvature)):
            hessian = curvature * self.bound
            hessian[np.diag_indices_from(hessian)] += penalty + floor
            step[:, k] = cho_solve(cho_factor(hessian, overwrite_a=True), gradient[:, k])
        return step


def batches(data: TrainingData) -> Iterator[TrainingData]:
    """Yield data in memory as one batch, and blocks one after another."""
    if not isinstance(data.matrix, Blocks):
        yield data
        return
    for block, edges in enumerate(pairwise(data.matrix.edges.tolist())):
        yield from _part(data, slice(*edges), partial(data.matrix.load, block))


def stacked(buffer: TrainingData | None, batch: TrainingData) -> TrainingData:
    """Return a copy of the stored rows followed by a batch."""
    parts = [batch] if buffer is None else [buffer, batch]
    matrices = [part.matrix for part in parts]
    matrix: Any
    if any(sparse.issparse(matrix) for matrix in matrices):
        matrix = sparse.vstack([sparse.csr_array(m) for m in matrices], format="csr")
    else:
        matrix = np.concatenate(matrices)
    total_weight = sum(part.total_weight for part in parts)
    return TrainingData(
        matrix,
        Labels(np.concatenate([p.labels.codes for p in parts]), batch.labels.n_classes),
        np.concatenate([(part.total_weight / total_weight) * part.weights for part in parts]),
        total_weight,
    )


def is_enough(buffer: TrainingData, policy: StreamPolicy) -> bool:
    """Whether the stored rows suffice for the exact fit with which a stream begins."""
    n_rows, n_columns = buffer.matrix.shape
    wanted = max(policy.min_rows, policy.rows_per_column * (n_columns + 1))
    n_elements = getattr(buffer.matrix, "nnz", buffer.matrix.size)
    return bool(n_rows >= wanted or n_elements >= policy.max_elements)


def _parts(data: TrainingData, size: int) -> Iterator[TrainingData]:
    """Split a batch into parts of `size` rows, twice that number, and so on."""
    n_rows, first = len(data.weights), 0
    while first < n_rows:
        rows = slice(first, first + size)
        yield from _part(data, rows, partial(getitem, data.matrix, rows))
        first, size = first + size, 2 * size


def _part(data: TrainingData, rows: slice, load: Callable[[], Any]) -> Iterator[TrainingData]:
    """Yield some rows, which `load` loads, unless all their weights are zero."""
    weights = data.weights[rows]
    total = float(weights.sum())
    if total > 0:
        labels = data.labels.take(rows)
        yield TrainingData(load(), labels, weights / total, data.total_weight * total)
