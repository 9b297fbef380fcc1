r"""Kernel features: a kernel as a linear problem.

With landmarks :math:`s_1, \dots, s_m` among the training rows and a Cholesky factor L of their
kernel matrix, :math:`K_{mm} = L L^\top`, the features of a row x are

.. math:: z(x) = L^{-1} k(x), \qquad k(x) = (K(s_1, x), \dots, K(s_m, x)).

Their inner products are those of the kernel, projected on the span of the landmarks. If every
training row is a landmark this is exact: by the representer theorem the fit to z is the fit in the
feature space of the kernel. With fewer landmarks it is the Nyström approximation [1]_. A fit w to
the features is the expansion :math:`\sum_j c_j K(s_j, x)` with :math:`L^\top c = w`.

The factorisation has pivots. Landmarks whose pivot is below the rank tolerance are combinations of
others, up to rounding, and are left out: repeated rows, or rows beyond the rank of a polynomial.
Features below the rounding error of the largest are zero. Without this the feature of a landmark
far from all other rows is about 1e-200 in those rows, and its squares underflow in a subsample
without the landmark.

.. [1] C. K. I. Williams, M. Seeger, "Using the Nyström method to speed up kernel machines",
   NIPS 2000.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.linalg import solve_triangular
from sklearn.utils import gen_batches

from marginpursuit._pivoted_cholesky import inverse_of_lower, pivoted_cholesky
from marginpursuit._threads import Threads, usable_threads
from marginpursuit._validation import FloatArray
from marginpursuit.blocks import Blocks
from marginpursuit.classifiers._base import TrainingData
from marginpursuit.classifiers._finite import range_error
from marginpursuit.classifiers._kernel_expansion import (
    KernelExpansion,
    centre_of,
    gram_of,
    refuse_unusable,
)
from marginpursuit.classifiers._landmarks import KernelPolicy, landmarks
from marginpursuit.classifiers._leverage import median_distance, redescending_factors, within_limit
from marginpursuit.design import (
    FactoredRows,
    Linear,
    Standardisation,
    design_for,
    loaded,
    take_rows,
)
from marginpursuit.solvers import SOLVERS

#: Returns the kernel values of the rows with the first and those with the second indices, in
#: float64 or in the dtype given.
Kernel = Callable[..., NDArray[Any]]


class RowScores(NamedTuple):
    """Scores of all training rows, at which a fit starts."""

    scores: FloatArray  # (n_rows, n_problems), without the intercept
    intercept: FloatArray  # (n_problems,)


@dataclass(frozen=True, slots=True)
class KernelMap:
    """The features of all training rows, and the landmarks that define them."""

    landmarks: NDArray[np.intp]  # (rank,), training rows
    lower: FloatArray  # (rank, rank), the Cholesky factor of their kernel matrix
    features: Any  # (n_rows, rank), an array or `FactoredRows`, or Blocks where the rows are
    divisor: float = 1.0  # by which the values of the kernel were divided

    @classmethod
    def of(
        cls,
        kernel: Kernel,
        n_rows: int,
        candidates: NDArray[np.intp],
        policy: KernelPolicy,
        threads: Threads | None = None,
        *,
        factored: bool = False,
    ) -> "KernelMap":
        """Factorise the kernel matrix of the candidates and compute the features of all rows.

        ``kernel(a, b)`` returns the kernel values of the rows with indices `a` and `b`. With
        `factored`, features of many rows are `FactoredRows`: the fit to 435,759 rows of cov with
        1,000 landmarks takes half the processor time (`benchmarks/kernels.py`).

        Raises
        ------
        FloatingPointError
            If the kernel matrix is not positive semidefinite.
        OverflowError
            If a kernel value is not finite.
        ValueError
            If the kernel matrix is not symmetric.
        """
        threads = Threads() if threads is None else threads
        gram = gram_of(kernel, candidates)
        refuse_unusable(gram)
        probe = np.random.default_rng(0).standard_normal(len(gram))
        product = gram @ probe
        largest = float(gram.diagonal().max())  # of K(x, x)
        tol = policy.rank_tolerance * largest
        lower, pivots = pivoted_cholesky(gram, tol, threads.map)
        del gram
        _refuse_indefinite(lower, product, probe, tol)
        square, rank = np.asfortranarray(lower[pivots]), len(pivots)
        if not rank:  # a kernel that is zero has one feature, which is zero, and no coefficient
            lower, pivots, rank = np.zeros((len(lower), 1)), np.zeros(1, dtype=np.intp), 1
            square = np.eye(1)
        chosen = candidates[pivots]
        if factored and n_rows * rank > policy.max_double_elements:
            values = _kernel_values(kernel, n_rows, chosen, policy, threads)
            return cls(chosen, square, FactoredRows(values, square))
        is_large = n_rows * rank > policy.max_double_elements
        features = np.empty((n_rows, rank), dtype=np.float32 if is_large else np.float64)
        features[candidates] = lower
        found = cls(chosen, square, features)
        is_other = np.ones(n_rows, dtype=bool)
        is_other[candidates] = False
        others = np.flatnonzero(is_other)
        step = max(1, policy.block_elements // rank)
        if len(others):
            blocks = [others[first : first + step] for first in range(0, len(others), step)]
            inverse = inverse_of_lower(found.lower)
            fill = partial(found._fill, kernel, inverse.astype(features.dtype))
            list(threads.map(fill, blocks))
        if not is_large:  # squares of float32 features do not underflow in float64
            _clear_negligible(features, np.sqrt(max(largest, 0.0)), step)
        return found

    def _fill(
        self,
        kernel: Kernel,
        inverse: NDArray[Any],
        rows: NDArray[np.intp],
        n_parts: int = 8,
    ) -> None:
        """Compute the features of some rows that are not landmarks, as products with L⁻¹.

        Products release the lock of the interpreter, which triangular solves hold. L⁻¹ is lower
        triangular: eight groups of its rows take 9/16 of the products.
        """
        values = kernel(rows, self.landmarks, inverse.dtype)
        found = np.empty_like(values)
        edges = np.linspace(0, len(inverse), n_parts + 1).astype(np.intp)
        for first, last in pairwise(edges):
            np.matmul(values[:, :last], inverse[first:last, :last].T, out=found[:, first:last])
        self.features[rows] = found

    def start(self, given: RowScores) -> Linear:
        """Return the features' coefficients with the given scores at the landmarks.

        Of all functions with these scores it is the one of least norm.
        """
        scores = given.scores[self.landmarks]
        return solve_triangular(self.lower, scores, lower=True), given.intercept

    def expansion(self, coef: FloatArray) -> FloatArray:
        """Return the coefficients of all training rows, (n_rows, n_problems), for those of z."""
        combined = np.zeros((self.features.shape[0], coef.shape[1]))
        combined[self.landmarks] = solve_triangular(self.lower, coef, trans="T", lower=True)
        return combined / self.divisor


@dataclass(frozen=True, slots=True)
class BlockFeatures:
    """The features of the rows of a block; workers of a cluster receive a copy."""

    model: Any  # a `MappedKernelClassifier` with the kernel; not fitted
    landmarks: Any  # (rank, n_columns), rows
    inverse: FloatArray  # (rank, rank), L⁻¹ over the divisor of the kernel

    def __call__(self, rows: Any) -> FloatArray:
        """Return z(x) of each row."""
        return np.asarray(self.model._kernel_matrix(rows, self.landmarks) @ self.inverse.T)


def _kernel_values(
    kernel: Kernel,
    n_rows: int,
    chosen: NDArray[np.intp],
    policy: KernelPolicy,
    threads: Threads,
) -> NDArray[np.float32]:
    """Return the kernel of all rows with the landmarks, in float32."""
    values = np.empty((n_rows, len(chosen)), dtype=np.float32)
    step = max(1, policy.factored_block_elements // len(chosen))

    def fill(first: int) -> None:
        rows = np.arange(first, min(first + step, n_rows))
        values[rows[0] : rows[-1] + 1] = kernel(rows, chosen, np.float32)

    list(threads.map(fill, range(0, n_rows, step)))
    return values


def _single_rbf(rows: NDArray[Any], others: NDArray[Any], gamma: float) -> NDArray[np.float32]:
    """Return exp(-γ‖x - x'‖²) in float32, from differences to a centre of the other rows.

    For 54 columns it takes a fifth of the processor time of float64. The error is about 1e-6 where
    γ‖x‖² is about one. Two columns more make the exponent 2x·x' - ‖x‖² - ‖x'‖² one product.
    """
    centre = centre_of(others)
    first, second = (_with_squares(np.sqrt(gamma) * (part - centre)) for part in (rows, others))
    first[:, :-2] *= 2.0
    second[:, -2:] = second[:, :-3:-1]
    values = np.asarray(first @ second.T)
    np.minimum(values, 0.0, out=values)
    return np.asarray(np.exp(values, out=values))


def _with_squares(rows: FloatArray) -> NDArray[np.float32]:
    """Return x in float32, followed by -‖x‖² and one."""
    squares = -np.einsum("ij,ij->i", rows, rows)
    return np.column_stack([rows, squares, np.ones(len(rows))]).astype(np.float32)


def _distances_from_mean(data: TrainingData, rounding: float = 1e-12) -> FloatArray:
    """Return the distance of each row from the mean of the rows, the columns as they are.

    Under the kernel "rbf" all rows have the norm one, and one far from the others has about the
    same kernel value, zero, with all of them: many such rows shift the score everywhere. Distances
    below the rounding error of the mean are zero.
    """
    with design_for(data.matrix) as design:
        mean = design.adjoint(data.weights, Standardisation.identity(design.n_columns))
        centred = Standardisation(mean, np.ones(design.n_columns))
        distances = np.asarray(design.row_norms(centred), dtype=np.float64)
    if not np.all(np.isfinite(distances)):
        raise range_error("the distances of the rows from their mean are not finite")
    return np.where(distances > rounding * float(np.linalg.norm(mean)), distances, 0.0)


def _clear_negligible(features: FloatArray, largest: float, step: int) -> None:
    """Set features below the rounding error of the largest to zero, in blocks of rows."""
    negligible = float(np.finfo(np.float64).eps) * largest
    for span in gen_batches(len(features), step):
        block = features[span]
        block[np.abs(block) < negligible] = 0.0


def _refuse_indefinite(
    lower: FloatArray, product: FloatArray, probe: FloatArray, tol: float
) -> None:
    """Compare L Lᵀv with Kv for a random v: they differ if K has negative eigenvalues.

    The entries of K - L Lᵀ are at most `tol` where K is positive semidefinite.
    """
    error = float(np.abs(lower @ (lower.T @ probe) - product).max())
    rounding = 1e-10 * float(np.abs(product).max())
    if not error <= 10.0 * tol * float(np.abs(probe).sum()) + rounding:
        raise FloatingPointError(f"it differs from its Cholesky product L Lᵀ by {error:.1e}")


class MappedKernelClassifier(KernelExpansion):
    """A classifier that fits a kernel through its features.

    The parameters are those of `KernelExpansion`, `n_components`, `alpha_unit` and
    `leverage_bound`.
    """

    kernel: Any
    n_components: int | None
    n_threads: int | None
    margin: float
    alpha_unit: str
    leverage_bound: float | None
    solver: str
    intercept_: FloatArray
    _kernel_policy: ClassVar[KernelPolicy] = KernelPolicy()
    _fits_blocks = True

    def _bounded_kernel(self, data: TrainingData) -> tuple[TrainingData, float]:
        """Return the data with bounded weights, and the number by which the kernel is divided.

        In the unit "row" of the penalty it is the median of K(x, x), otherwise one.
        """
        self._set_kernel(data)
        median = median_distance(self._norms(data.matrix), data)
        if self.leverage_bound is not None:
            bound, distances = float(self.leverage_bound), self._leverage_distances(data)
            weights = within_limit(data, distances, bound * median_distance(distances, data))
            factors = self._redescending_factors(data, distances)
            if factors is not None:
                weights = weights * factors
            data = replace(data, weights=weights / weights.sum())
        is_relative = self.alpha_unit in ("auto", "row") and np.isfinite(median)
        return data, median**2 if is_relative else 1.0

    def _indefinite(self, error: FloatingPointError) -> ValueError:
        """Return the error of a kernel that is not positive semidefinite."""
        return ValueError(
            f"kernel={self.kernel!r} must be positive semidefinite on X: {error}. Choose another "
            "kernel or other parameters."
        )

    def _mapped(
        self, data: TrainingData, candidates: NDArray[np.intp] | None = None
    ) -> tuple[TrainingData, KernelMap]:
        """Return the data with kernel features as matrix and bounded weights, and the map.

        `candidates` are the landmarks; by default those of `n_components`.
        """
        data, divisor = self._bounded_kernel(data)
        matrix, policy = data.matrix, self._kernel_policy
        if candidates is None:
            candidates = landmarks(data, self.n_components, policy)
        with Threads(usable_threads(self.n_threads)) as threads:
            try:
                if isinstance(matrix, Blocks):
                    kernel_map = self._map_of_blocks(matrix, candidates, divisor)
                else:
                    kernel = partial(self._kernel_of_rows, matrix, divisor)
                    kernel_map = KernelMap.of(
                        kernel,
                        matrix.shape[0],
                        candidates,
                        policy,
                        threads,
                        factored=self._reads_factored_rows,
                    )
            except FloatingPointError as error:
                raise self._indefinite(error) from error
        kernel_map = replace(kernel_map, divisor=divisor)
        return replace(data, matrix=kernel_map.features, original_matrix=matrix), kernel_map

    @property
    def _is_rbf(self) -> bool:
        return isinstance(self.kernel, str) and self.kernel == "rbf"

    @property
    def _reads_factored_rows(self) -> bool:
        """Whether the solver reads `FactoredRows`; the unit "common" needs all variances."""
        if self.alpha_unit == "common":
            return False
        return self.solver == "auto" or SOLVERS[self.solver].reads_factored_rows

    def _scores_of(self, matrix: Any) -> RowScores | None:
        """Return the scores of rows by a fit with a kernel, or None if there is none for them."""
        is_fitted = hasattr(self, "dual_coef_") and self.n_features_in_ == matrix.shape[1]
        if not is_fitted or self._is_precomputed == hasattr(self, "support_vectors_"):
            return None  # the last fit had other columns, or another kind of kernel
        if self.multi_class_ == "ovo":
            return None  # the intercepts are those of pairs
        scores = np.reshape(self._expansion_scores(matrix), (matrix.shape[0], -1))
        return RowScores(scores - self.intercept_, self.intercept_)

    def _mapped_start(
        self, kernel_map: KernelMap, given: RowScores, data: TrainingData
    ) -> Linear | None:
        """Return the start with the given scores, unless its penalty exceeds the loss at zero.

        That loss is at most γ²/2 per problem. Scores of a fit with another kernel may have a large
        norm in the feature space of this one.
        """
        if given.scores.shape[1] != len(data.labels.positive_classes):
            return None
        coef, intercept = kernel_map.start(given)
        squared_norm = float(np.einsum("ij,ij->", coef, coef))
        limit = float(self.margin) ** 2 * coef.shape[1]
        is_small = self._penalty(data.n_samples) * squared_norm <= limit
        return (coef, intercept) if is_small else None

    def _map_of_blocks(
        self, blocks: Blocks, candidates: NDArray[np.intp], divisor: float
    ) -> KernelMap:
        """Return the map whose features are computed block by block, in every pass."""
        rows = loaded(take_rows(blocks, candidates))
        kernel, every = partial(self._kernel_of_rows, rows, divisor), np.arange(len(candidates))
        own = KernelMap.of(kernel, len(candidates), every, self._kernel_policy)
        rank = len(own.landmarks)
        inverse = inverse_of_lower(own.lower) / divisor
        model = type(self)(**self.get_params(deep=False))
        if hasattr(self, "gamma_"):
            model.gamma_ = self.gamma_
        features = blocks.map(BlockFeatures(model, rows[own.landmarks], inverse), rank)
        return replace(own, landmarks=candidates[own.landmarks], features=features)

    def _leverage_distances(self, data: TrainingData) -> FloatArray:
        """Return the distance of each row that `leverage_bound` refers to."""
        return _distances_from_mean(data) if self._is_rbf else self._norms(data.matrix)

    def _redescending_factors(
        self, data: TrainingData, distances: FloatArray | None = None
    ) -> FloatArray | None:
        """Return the factors by which rows far away count; None where all rows count alike.

        `distances` are those of `_leverage_distances`, if they are known.
        """
        if self.leverage_bound is None or not self._is_rbf:
            return None
        distances = self._leverage_distances(data) if distances is None else distances
        return redescending_factors(data, distances, float(self.leverage_bound))

    def _norms(self, matrix: Any) -> FloatArray:
        """Return √K(x, x) of each row."""
        return np.sqrt(np.maximum(self._squares(matrix), 0.0))

    def _squares(self, matrix: Any) -> FloatArray:
        """Return K(x, x) of each row."""
        n_rows = matrix.shape[0]
        if self._is_rbf:
            return np.ones(n_rows)
        if self._is_precomputed:
            return np.asarray(matrix.diagonal(), dtype=np.float64)
        if isinstance(matrix, Blocks):
            return np.concatenate([part for _, _, part in matrix.each(self._squares)])
        blocks = [matrix[span] for span in gen_batches(n_rows, self._kernel_policy.block_rows)]
        values = [self._kernel_matrix(rows, rows).diagonal() for rows in blocks]
        return np.concatenate(values)

    def _kernel_of_rows(
        self,
        matrix: Any,
        divisor: float,
        first: NDArray[np.intp],
        second: NDArray[np.intp],
        dtype: DTypeLike = np.float64,
    ) -> NDArray[Any]:
        """Return the kernel between training rows, given by their indices, over a divisor."""
        if self._is_rbf and dtype == np.float32 and isinstance(matrix, np.ndarray):
            return _single_rbf(matrix[first], matrix[second], self.gamma_)
        if self._is_precomputed:
            values = self._kernel_matrix(matrix[first][:, second], None)
        else:
            values = self._kernel_matrix(matrix[first], matrix[second])
        return (values if divisor == 1.0 else values / divisor).astype(dtype, copy=False)

    def _keep_mapped(self, kernel_map: KernelMap, data: TrainingData) -> None:
        """Replace the coefficients of the features by those of the expansion."""
        dual_coef = kernel_map.expansion(self.coef_.T)
        del self.coef_
        self._keep_expansion(data.original_matrix, dual_coef, self.intercept_)
