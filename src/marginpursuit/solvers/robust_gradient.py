r"""Descent along a robust estimate of the mean gradient.

The gradient of the mean loss at w is the mean of the vectors gᵢ = φ'(mᵢ) yᵢ xᵢ. Where x has heavy
tails, a few long rows determine that mean. It is replaced by

* *Catoni*: the location of each coordinate of the gᵢ (`location.catoni_location`), at the scale
  that minimises its deviation bound;
* *geometric median*: the point with the least sum of distances from the mean gradients of K blocks
  of rows.

The result is a root of ĝ(w) + α u w, the estimate plus the gradient of the penalty. It is not the
minimiser of a function. The iterations take Newton's direction with the Hessian of the mean loss,
in which the curvature of long rows is limited as their influence on ĝ is.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from marginpursuit._validation import FloatArray
from marginpursuit.location import catoni_location, confidence_scale
from marginpursuit.solvers._problem import Progress, Solution, Status

__all__ = [
    "GradientProblem",
    "RobustGradientPolicy",
    "block_gradient",
    "catoni_gradient",
    "geometric_median",
    "length_limits",
    "minimise_by_robust_gradient",
]


def is_sparse(rows: Any) -> bool:
    """Whether a matrix is sparse; unlike SciPy's function it does not narrow the static type."""
    return bool(sparse.issparse(rows))


@dataclass(frozen=True, slots=True)
class RobustGradientPolicy:
    """Constants of the iterations (`benchmarks/robust_gradients.py`)."""

    #: Columns, or rows where these are fewer, above which the Hessian is replaced by its diagonal.
    max_hessian_size: int = 1000
    max_norm: float = 2.0  # in medians of the norms: longer rows have the curvature of this norm
    least_curvature: float = 1e-2  # of a row, as a fraction of the bound on the curvature
    max_halvings: int = 8  # of a step
    chunk_entries: int = 1 << 21  # entries of the gradients that are computed at a time


@dataclass(frozen=True, slots=True)
class GradientProblem:
    """One class against the rest, in the coordinates of `rows`."""

    rows: Any  # (n_rows, n_columns), an ndarray or a CSR matrix
    sign: FloatArray  # y in {-1, +1}
    weights: FloatArray  # (n_rows,), sum one
    count: float  # the number of observations that the weights stand for
    loss: Any  # with value, derivative, curvature and curvature_bound
    penalty: FloatArray  # (n_columns,), α u
    fit_intercept: bool
    limits: FloatArray  # (n_rows,), `length_limits` of the rows

    @property
    def n_coordinates(self) -> int:
        """The number of coefficients, with the intercept as the last where there is one."""
        return int(self.rows.shape[1]) + self.fit_intercept

    def margins(self, point: FloatArray) -> FloatArray:
        """Return the margins of coefficients and intercept."""
        d = self.rows.shape[1]
        intercept = point[d] if self.fit_intercept else 0.0
        return np.asarray(self.sign * (self.rows @ point[:d] + intercept))

    def factors(self, margins: FloatArray) -> FloatArray:
        """Return φ'(m) y, the factor of each row in its gradient."""
        return np.asarray(self.sign * self.loss.derivative(margins))

    def shrinkage(self, point: FloatArray) -> FloatArray:
        """Return the gradient of the penalty."""
        result = np.zeros_like(point)
        result[: len(self.penalty)] = self.penalty * point[: len(self.penalty)]
        return result

    def value(self, point: FloatArray, margins: FloatArray) -> float:
        """Return the mean loss plus the penalty."""
        d = len(self.penalty)
        losses = np.asarray(self.loss.value(margins))
        return float(self.weights @ losses + 0.5 * self.penalty @ point[:d] ** 2)


def catoni_gradient(
    problem: GradientProblem,
    factors: FloatArray,
    delta: float,
    policy: RobustGradientPolicy | None = None,
) -> FloatArray:
    """Estimate each coordinate of the mean gradient by Catoni's location.

    The scale of a coordinate is √(n v/(2 log(2/δ))). v is the variance with the weights of rows of
    limited length, since a few long rows would make the scale so large that the location is the
    mean.
    """
    policy = policy or RobustGradientPolicy()
    n_columns = problem.rows.shape[1]
    size = max(1, policy.chunk_entries // max(1, len(factors)))
    rows = problem.rows.tocsc() if is_sparse(problem.rows) else problem.rows
    parts = []
    for first in range(0, n_columns, size):
        columns = rows[:, first : first + size]
        dense = columns.toarray() if is_sparse(columns) else columns
        parts.append(_locations(dense * factors[:, np.newaxis], problem, delta))
    if problem.fit_intercept:
        parts.append(_locations(factors[:, np.newaxis], problem, delta))
    return np.concatenate(parts)


def _locations(values: FloatArray, problem: GradientProblem, delta: float) -> FloatArray:
    """Return Catoni's location of each column."""
    weighted = problem.weights > 0
    values, weights = values[weighted], problem.weights[weighted]
    limited = weights * problem.limits[weighted]
    limited /= limited.sum()
    means = limited @ values
    variances = limited @ (values - means) ** 2
    varies = variances > np.finfo(np.float64).tiny
    scales = np.ones(len(means))
    scales[varies] = confidence_scale(variances[varies], max(problem.count, 1.0), delta)
    unequal = weights if np.ptp(weights) > 0 else None
    found = catoni_location(values, scales, sample_weight=unequal, axis=0)
    return np.where(varies, found, means)


def block_gradient(
    problem: GradientProblem, factors: FloatArray, blocks: NDArray[np.intp]
) -> FloatArray:
    """Estimate the mean gradient by the geometric median of the means of blocks of rows.

    `blocks` has the block of each row; rows without weight do not count.
    """
    n_blocks = int(blocks.max()) + 1
    mass = np.bincount(blocks, problem.weights, n_blocks)
    entries = problem.weights * factors / mass[blocks]
    indices = blocks, np.arange(len(blocks))
    averaging = sparse.csr_array((entries, indices), shape=(n_blocks, len(blocks)))
    means = averaging @ problem.rows
    means = means.toarray() if is_sparse(means) else np.asarray(means)
    if problem.fit_intercept:
        means = np.column_stack([means, np.bincount(blocks, entries, n_blocks)])
    return geometric_median(means)


def geometric_median(points: FloatArray, tol: float = 1e-12, max_iter: int = 1000) -> FloatArray:
    """Return the point with the least sum of distances from points, by Weiszfeld's iterations.

    At a data point the step is that of Vardi and Zhang (2000), which leaves it unless it is the
    solution. The iterations stop where a step is below `tol` times the spread of the points.
    """
    current = np.median(points, axis=0)
    spread = float(np.max(np.linalg.norm(points - current, axis=1)))
    if spread == 0.0:
        return np.asarray(current)
    for _ in range(max_iter):
        distances = np.linalg.norm(points - current, axis=1)
        apart = distances > 1e-14 * spread
        if not apart.any():
            break
        inverse = 1.0 / distances[apart]
        target = inverse @ points[apart] / inverse.sum()
        n_equal = np.count_nonzero(~apart)
        if n_equal:
            gradient_norm = float(np.linalg.norm(inverse @ (points[apart] - current)))
            target = current + max(0.0, 1.0 - n_equal / max(gradient_norm, 1e-300)) * (
                target - current
            )
        step = float(np.linalg.norm(target - current))
        current = target
        if step <= tol * spread:
            break
    return np.asarray(current)


def minimise_by_robust_gradient(
    problem: GradientProblem,
    estimate: Callable[[GradientProblem, FloatArray], FloatArray],
    max_iter: int,
    tol: float,
    report: Callable[[Progress], None],
    policy: RobustGradientPolicy | None = None,
) -> Solution:
    """Find a root of the estimated gradient plus that of the penalty, from zero.

    Parameters
    ----------
    problem : GradientProblem
        The problem.
    estimate : callable
        Returns the estimate of the mean gradient for the factors φ'(m) y of the rows.
    max_iter : int
        The largest number of iterations.
    tol : float
        The iterations stop where the Newton decrement, half of ĝᵀH⁻¹ĝ, is at most `tol` times the
        loss at zero.
    report : callable
        Receives the progress.
    policy : RobustGradientPolicy, optional
        Constants of the iterations.

    Returns
    -------
    Solution
        The root; `value` is the mean loss plus the penalty there, and `gap` the decrement over the
        loss at zero.
    """
    policy = policy or RobustGradientPolicy()
    reference = float(problem.loss.value(0.0))
    point = np.zeros(problem.n_coordinates)
    margins = problem.margins(point)
    gradient = estimate(problem, problem.factors(margins))
    history, status = list[Progress](), Status.MAX_ITER
    while True:
        solve = _newton_solver(problem, margins, policy)
        direction = solve(gradient)
        merit = float(gradient @ direction)
        gap = 0.5 * merit / reference
        history.append(Progress(len(history), len(history), problem.value(point, margins), gap))
        report(history[-1])
        if gap <= tol:
            status = Status.CONVERGED
            break
        if len(history) > max_iter:
            break
        step, found = 1.0, None
        for _ in range(policy.max_halvings):
            candidate = point - step * direction
            there = problem.margins(candidate)
            slope = estimate(problem, problem.factors(there)) + problem.shrinkage(candidate)
            if float(slope @ solve(slope)) < merit:
                found = candidate, there, slope
                break
            step *= 0.5
        if found is None:
            status = Status.STALLED
            break
        point, margins, gradient = found
    d = problem.rows.shape[1]
    intercept = point[d:] if problem.fit_intercept else np.zeros(1)
    value = np.array([history[-1].value])
    return Solution(
        linear=(point[:d, np.newaxis], intercept),
        value=value,
        gap=np.array([gap]),
        status=status,
        n_iter=history[-1].iteration,
        history=tuple(history),
    )


def length_limits(rows: Any, weights: FloatArray) -> FloatArray:
    """Return min{1, (max_norm · median norm/‖x‖)²} for each row; the median is of weighted rows."""
    policy = RobustGradientPolicy()
    squares = rows.multiply(rows).sum(axis=1) if is_sparse(rows) else np.sum(rows**2, axis=1)
    squares = np.asarray(squares).ravel()
    counted = squares[(weights > 0) & (squares > 0)]
    largest = policy.max_norm**2 * float(np.median(counted)) if counted.size else 1.0
    return np.asarray(largest / np.maximum(squares, largest))


def _newton_solver(
    problem: GradientProblem,
    margins: FloatArray,
    policy: RobustGradientPolicy,
) -> Callable[[FloatArray], FloatArray]:
    """Return the function that applies the inverse of the Hessian, or of its diagonal."""
    bound = problem.loss.curvature_bound
    curvature = np.asarray(problem.loss.curvature(margins)) + policy.least_curvature * bound
    weights = problem.weights * problem.limits * curvature
    rows, d = problem.rows, problem.rows.shape[1]
    if rows.shape[0] < d and rows.shape[0] <= policy.max_hessian_size:
        return _row_space_solver(problem, weights)
    if d > policy.max_hessian_size:
        squares = rows.multiply(rows) if is_sparse(rows) else rows**2
        diagonal = np.asarray(squares.T @ weights).ravel() + problem.penalty
        diagonal = np.append(diagonal, weights.sum()) if problem.fit_intercept else diagonal
        floor = 1e-10 * float(diagonal.max(initial=1e-300))
        return lambda vector: vector / np.maximum(diagonal, floor)
    factor = linalg.cho_factor(_hessian(problem, weights))
    return lambda vector: np.asarray(linalg.cho_solve(factor, vector))


def _hessian(problem: GradientProblem, weights: FloatArray) -> FloatArray:
    """Return the Hessian at these weighted curvatures of the rows, regularised up to rounding."""
    rows, d = problem.rows, problem.rows.shape[1]
    column = weights[:, np.newaxis]
    product = rows.T @ (rows.multiply(column) if is_sparse(rows) else rows * column)
    hessian = np.zeros((problem.n_coordinates,) * 2)
    hessian[:d, :d] = product.toarray() if is_sparse(product) else product
    hessian[np.arange(d), np.arange(d)] += problem.penalty
    if problem.fit_intercept:
        hessian[d, :d] = hessian[:d, d] = np.asarray(rows.T @ weights).ravel()
        hessian[d, d] = weights.sum()
    jitter = 1e-10 * float(np.trace(hessian)) / len(hessian) + np.finfo(np.float64).tiny
    hessian[np.diag_indices(len(hessian))] += jitter
    return hessian


def _row_space_solver(
    problem: GradientProblem, weights: FloatArray, least: float = 1e-6
) -> Callable[[FloatArray], FloatArray]:
    """Return the function that applies the inverse of AᵀA + D, with fewer rows than columns.

    A has the rows, with an entry one for the intercept, times the roots of the weights. D has the
    penalties; entries below `least` times the mean diagonal of AᵀA, as that of the intercept, are
    raised to it. By Woodbury's identity the inverse is D⁻¹ - D⁻¹Aᵀ(I + AD⁻¹Aᵀ)⁻¹AD⁻¹.
    """
    roots, penalty = np.sqrt(weights)[:, np.newaxis], problem.penalty
    rows: Any = problem.rows
    scaled = sparse.csr_array(rows.multiply(roots)) if is_sparse(rows) else rows * roots
    if problem.fit_intercept:
        stack: Any = sparse.hstack if is_sparse(rows) else np.hstack
        scaled, penalty = stack([scaled, roots]), np.append(penalty, 0.0)
    squares = scaled.data**2 if is_sparse(scaled) else scaled**2
    diagonal = np.maximum(penalty, least * float(squares.sum()) / len(penalty))
    product = scaled @ sparse.diags_array(1.0 / diagonal) @ scaled.T
    matrix = product.toarray() if is_sparse(product) else product
    matrix[np.diag_indices(len(matrix))] += 1.0
    factor = linalg.cho_factor(matrix)

    def solve(vector: FloatArray) -> FloatArray:
        inner = linalg.cho_solve(factor, scaled @ (vector / diagonal))
        return np.asarray((vector - scaled.T @ inner) / diagonal)

    return solve
