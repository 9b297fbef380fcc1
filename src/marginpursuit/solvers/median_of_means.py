r"""Minimising the median of block means of the losses (Lecué, Lerasle and Mathieu 2018).

The rows are dealt into K blocks at random, and the risk is estimated by the median of the mean
losses of the blocks, which fewer than K/2 outliers cannot move far. Its gradient in the losses is
that of the mean of the median block. As there is no reason to prefer a partition, each step looks
at many fresh ones, and the weights of the rows are averaged over the partitions and over the steps.

Outliers that have already bent the coefficients no longer stand out by their losses. So it starts
from the best of some fits to a single block each, of which more than half are free of outliers as
long as there are fewer of these than half the blocks.
"""

from collections.abc import Callable

import numpy as np

from marginpursuit._validation import FloatArray
from marginpursuit.solvers._problem import Progress, Status
from marginpursuit.solvers.risk import EXACT, Risk, RobustSolution

__all__ = ["median_of_means", "minimise_median_of_means"]

# Fresh partitions in each step.
_PARTITIONS = 50

# The penalty, in standardised coordinates, of coefficients that are small enough for outliers to
# stand out by their scores; and, at least, of fits to a single block.
_HOLDING_PENALTY = 1.0
_BLOCK_PENALTY = 1e-4

# Fits to a single block that are tried, and steps before those that are averaged.
_TRIALS = 10
_FIRST_STEPS = 5

# With several blocks, weighted risks are minimised to this share of the tolerance.
_FINE = 1e-2

# Steps over which the weights are averaged at least.
_FEWEST_STEPS = 10


def median_of_means(
    losses: FloatArray, weights: FloatArray, n_blocks: int, generator: np.random.Generator
) -> tuple[float, FloatArray]:
    """Return the median of block means for one random partition, and its gradient in the losses.

    Parameters
    ----------
    losses : ndarray of shape (n_rows,)
        Losses.
    weights : ndarray of shape (n_rows,)
        Weights; each row is dealt to a block as a whole, one without weight to none.
    n_blocks : int
        The number K of blocks, odd and no more than there are rows with weight.
    generator : Generator
        The source of randomness.

    Returns
    -------
    float, ndarray of shape (n_rows,)
        The estimate, and the weights of the rows of the median block, divided by their sum.
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
    """Minimise the median of means, averaged over partitions.

    It stops where new weights change the weighted risk of the point by less than the tolerance
    times the value.

    Parameters
    ----------
    risk : Risk
        The risk of one class against the rest.
    block_rule : callable
        Gives the number of blocks from the scores of small coefficients.
    generator : Generator
        The source of randomness.
    max_iter : int
        The most weighted risks that are minimised with the full averaging.
    report : callable
        Is told of the progress.

    Returns
    -------
    RobustSolution, int
        The minimiser and the number of blocks.
    """

    def draw(losses: FloatArray) -> tuple[float, FloatArray]:
        """Average estimate and gradient over fresh partitions."""
        n_partitions = _PARTITIONS if n_blocks > 1 else 1
        total, gradient = 0.0, np.zeros(len(losses))
        for _ in range(n_partitions):
            estimate, part = median_of_means(losses, risk.weights, n_blocks, generator)
            total += estimate
            gradient += part
        return total / n_partitions, gradient / n_partitions

    origin = risk.origin()
    point = risk.minimise(risk.weights, origin, _HOLDING_PENALTY, _FINE * risk.tol)
    n_blocks = block_rule(risk.labels.sign(1) * point.margins)
    fine = _FINE * risk.tol if n_blocks > 1 else EXACT
    if n_blocks > 1:
        # At the origin all losses are the same, so that any block is the median.
        blocks = [
            median_of_means(origin.losses, risk.weights, n_blocks, generator)[1]
            for _ in range(_TRIALS)
        ]
        trials = [risk.minimise(block, origin, _BLOCK_PENALTY, fine) for block in blocks]
        point = min([point, *trials], key=lambda trial: draw(trial.losses)[0])
        for _ in range(_FIRST_STEPS):
            point = risk.minimise(draw(point.losses)[1], point, tol=fine)

    weights, history, finished = np.zeros(len(risk.weights)), list[Progress](), False
    while not finished and len(history) < max_iter:
        estimate, fresh = draw(point.losses)
        weights += (fresh - weights) / (len(history) + 1)
        ahead = risk.minimise(weights, point, tol=fine)
        value = estimate + point.charge
        gap = max(risk.decrease(weights, point, ahead), 0.0) / max(value, 1e-2)
        point = ahead
        history.append(Progress(len(history) + 1, risk.prepared.design.n_passes, value, gap))
        report(history[-1])
        finished = gap <= risk.tol and (len(history) >= _FEWEST_STEPS or n_blocks == 1)
    status = Status.CONVERGED if finished else Status.MAX_ITER
    arrays = np.array([draw(point.losses)[0] + point.charge]), np.array([gap])
    counted = risk.weights > 0
    influence = np.divide(weights, risk.weights, out=np.zeros_like(weights), where=counted)
    solution = RobustSolution(
        point.linear, *arrays, status, len(history), tuple(history), influence
    )
    return solution, n_blocks
