r"""Minimising the median of block means of the losses (Lecué, Lerasle and Mathieu 2018).

The rows are partitioned into K blocks at random, and the risk is estimated by the median of the
mean losses of the blocks, which fewer than K/2 outliers change only within the range of the other
blocks. Its gradient in the losses is that of the mean of the median block. Each iteration draws
several new partitions; the gradients are averaged over partitions and iterations.

The losses of outliers that have determined the coefficients are no longer large. The iterations
therefore start from the best of several fits to a single block each. More than half of the blocks
have no outlier as long as the outliers are fewer than half the blocks.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from marginpursuit._validation import FloatArray
from marginpursuit.solvers._problem import Progress, Status
from marginpursuit.solvers.risk import EXACT, Point, Risk, RobustSolution

__all__ = ["MedianOfMeansPolicy", "median_of_means", "minimise_median_of_means"]


@dataclass(frozen=True, slots=True)
class MedianOfMeansPolicy:
    """Constants of the iterations, chosen on contaminated data (`benchmarks/contamination.py`)."""

    n_partitions: int = 50  # drawn in each iteration
    n_block_fits: int = 10  # fits to a single block, as candidates for the start
    n_first_iterations: int = 5  # before gradients are averaged over iterations
    min_iterations: int = 10  # with averaging
    tolerance_fraction: float = 1e-2  # of the tolerance, to which weighted risks are minimised

    # Penalties α of standardised columns: of the first fit, whose coefficients are so small that
    # only outliers have large scores, and of the fits to a single block.
    first_penalty: float = 1.0
    block_penalty: float = 1e-4


def median_of_means(
    losses: FloatArray, weights: FloatArray, n_blocks: int, generator: np.random.Generator
) -> tuple[float, FloatArray]:
    """Return the median of block means for one random partition, and its gradient in the losses.

    The number of blocks is odd, and at most the number of rows with weight. A row belongs to one
    block with its whole weight; a row without weight to none. The gradient is the weights of the
    rows of the median block, divided by their sum.
    """
    rows = np.flatnonzero(weights)
    block = generator.permutation(np.arange(len(rows)) % n_blocks)
    mass = np.bincount(block, weights[rows], n_blocks)
    means = np.bincount(block, weights[rows] * losses[rows], n_blocks) / mass
    median = int(np.argsort(means, kind="stable")[n_blocks // 2])
    chosen = rows[block == median]
    gradient = np.zeros(len(losses))
    gradient[chosen] = weights[chosen] / mass[median]
    return float(means[median]), gradient


def minimise_median_of_means(
    risk: Risk,
    block_rule: Callable[[FloatArray], int],
    generator: np.random.Generator,
    max_iter: int,
    report: Callable[[Progress], None],
) -> tuple[RobustSolution, int]:
    """Minimise the median of means, averaged over partitions; return also the number of blocks.

    `block_rule` returns the number of blocks for the scores of small coefficients. The iterations
    stop where the new weights lower the weighted risk of the point by less than the tolerance times
    the value, or after `max_iter` of them with averaging.
    """
    policy = MedianOfMeansPolicy()
    origin, loose = risk.origin(), policy.tolerance_fraction * risk.tol
    point = risk.minimise(risk.weights, origin, penalty=policy.first_penalty, tol=loose)
    n_blocks = block_rule(risk.labels.sign(1) * point.margins)
    n_partitions = policy.n_partitions if n_blocks > 1 else 1
    draw = partial(_average, risk.weights, n_blocks, n_partitions, generator)
    tol = loose if n_blocks > 1 else EXACT
    if n_blocks > 1:
        point = _best_block_fit(risk, point, n_blocks, generator, draw, tol, policy)
        for _ in range(policy.n_first_iterations):
            point = risk.minimise(draw(point.losses)[1], point, tol=tol)

    weights, history, converged = np.zeros(len(risk.weights)), list[Progress](), False
    while not converged and len(history) < max_iter:
        estimate, drawn = draw(point.losses)
        weights += (drawn - weights) / (len(history) + 1)
        ahead = risk.minimise(weights, point, tol=tol)
        value = estimate + point.penalty
        gap = max(risk.decrease(weights, point, ahead), 0.0) / max(value, 1e-2)
        point = ahead
        history.append(Progress(len(history) + 1, risk.prepared.design.n_passes, value, gap))
        report(history[-1])
        converged = gap <= risk.tol and (len(history) >= policy.min_iterations or n_blocks == 1)
    status = Status.CONVERGED if converged else Status.MAX_ITER
    arrays = np.array([draw(point.losses)[0] + point.penalty]), np.array([gap])
    weighted = risk.weights > 0
    influence = np.divide(weights, risk.weights, out=np.zeros_like(weights), where=weighted)
    solution = RobustSolution(
        point.linear, *arrays, status, len(history), tuple(history), influence
    )
    return solution, n_blocks


def _average(
    weights: FloatArray,
    n_blocks: int,
    n_partitions: int,
    generator: np.random.Generator,
    losses: FloatArray,
) -> tuple[float, FloatArray]:
    """Return estimate and gradient, averaged over new partitions."""
    total, gradient = 0.0, np.zeros(len(losses))
    for _ in range(n_partitions):
        estimate, part = median_of_means(losses, weights, n_blocks, generator)
        total += estimate
        gradient += part
    return total / n_partitions, gradient / n_partitions


def _best_block_fit(
    risk: Risk,
    point: Point,
    n_blocks: int,
    generator: np.random.Generator,
    draw: Callable[[FloatArray], tuple[float, FloatArray]],
    tol: float,
    policy: MedianOfMeansPolicy,
) -> Point:
    """Return the point, or the fit to a single block, with the least median of means."""
    origin = risk.origin()
    # At the origin all losses are equal, so that the median block is a random one.
    blocks = [
        median_of_means(origin.losses, risk.weights, n_blocks, generator)[1]
        for _ in range(policy.n_block_fits)
    ]
    fits = [risk.minimise(block, origin, penalty=policy.block_penalty, tol=tol) for block in blocks]
    return min([point, *fits], key=lambda fit: draw(fit.losses)[0])
