r"""The Hessian of a joint task, summed over a subsample of the rows, as a preconditioner.

With f the scores of K classes at a row z, and p, q as in `losses.joint`, the Hessian in the
coefficients is the sum over the rows of the Kronecker products

.. math::

    c \left( \varphi''(m)\, p\, p^\top + \frac{|\varphi'(m)|}{T} (\operatorname{diag} q - q q^\top)
        \right) \otimes z z^\top .

Where rows are many, that of a subsample differs from it by some per cent. The subsample is fitted
first, then a larger one, then all rows. Each is preconditioned by the Hessian of the first
subsample at the point where it begins. On all rows the Hessian is renewed every few steps of
L-BFGS, which keeps its correction pairs: these are of all rows.
"""

from dataclasses import replace

import numpy as np
from scipy.linalg import cho_factor

from marginpursuit._validation import FloatArray
from marginpursuit.design import Linear, MemoryDesign
from marginpursuit.solvers._compiled_lbfgs import lbfgs_for
from marginpursuit.solvers._problem import Problem, Solution
from marginpursuit.solvers.preconditioners import inverse_of_factor
from marginpursuit.solvers.sampling import better_start, systematic_rows

__all__ = ["has_subsample", "solve_by_subsample"]


def has_subsample(problem: Problem, ratio: float) -> bool:
    """Whether there are at least `ratio` times the rows of a subsample, and few coefficients."""
    design, policy = problem.prepared.design, problem.policy
    is_dense = isinstance(design, MemoryDesign) and not design.is_sparse
    size = problem.join(*problem.start).shape[1]
    n_needed = ratio * policy.hessian_rows_per_coefficient * size
    is_small = size <= policy.max_joint_hessian_size
    return len(problem.tasks) == 1 and is_dense and is_small and design.n_rows >= n_needed


def solve_by_subsample(problem: Problem) -> Solution:
    """Minimise the objective of a joint task, preconditioned by Hessians of a subsample."""
    policy = problem.policy
    sample = _subsample(problem, 1)
    found, inverse = problem.start, None
    for factor, max_iter, regularisation in policy.subsample_rounds:
        rows = sample if factor == 1 else _subsample(problem, factor)
        rows = replace(rows, start=found, inverse_hessian=inverse)
        found = lbfgs_for(rows)(rows, max_iter=max_iter, tol=policy.subsample_tol).linear
        inverse = inverse_hessian(sample, found, regularisation)

    def renewed(n_steps: int, linear: Linear) -> FloatArray | None:
        """Return the inverse Hessian of the subsample at a point, every few steps."""
        number, is_between = divmod(n_steps, policy.steps_per_hessian)
        if is_between or number == 0:
            return None
        values = policy.joint_regularisation
        return inverse_hessian(sample, linear, values[min(number, len(values)) - 1])

    problem = replace(problem, start=better_start(problem, found), inverse_hessian=inverse)
    n_confirmations = policy.lbfgs.final_confirmations
    return lbfgs_for(problem)(problem, n_confirmations=n_confirmations, renewal=renewed)


def _subsample(problem: Problem, factor: int) -> Problem:
    """Return the problem of a subsample, in which long rows are more frequent but weigh less.

    It has `factor` times the rows of the subsample whose Hessian preconditions.
    A column that is constant in most rows varies in rows that are long, as columns are
    standardised. A row is drawn with a probability π that is the mean of a uniform one, of one in
    proportion to its squared norm and of one in proportion to its weight c; it has the weight c/π.
    """
    prepared, policy = problem.prepared, problem.policy
    design, weights = prepared.design, problem.tasks.weights[0]
    squares = np.asarray(design.row_norms(prepared.standardisation), dtype=np.float64) ** 2
    is_used = weights > 0
    importance = np.where(is_used, squares / squares[is_used].mean() + 1.0, 0.0)
    importance += weights / weights[is_used].mean()
    size = factor * policy.hessian_rows_per_coefficient * problem.join(*problem.start).shape[1]
    probability = np.minimum(1.0, size * importance / importance.sum())
    rows = systematic_rows(probability)
    sample = problem.with_rows(rows, threads=design.threads)
    own = sample.tasks.weights / probability[rows]
    tasks = replace(sample.tasks, weights=own / own.sum(), ranges=None)
    return replace(sample, tasks=tasks, report=None, on_iterate=None)


def inverse_hessian(problem: Problem, linear: Linear, regularisation: float) -> FloatArray:
    """Return the inverse of the Hessian of a joint task at a point, slightly enlarged.

    The curvatures of all rows are enlarged, since rows may become active or change to the part of
    the loss that is not linear. `regularisation` times the mean of the diagonal is added as well.
    Equal intercepts of all classes change no score difference: they have the curvature of the mean.
    """
    fit_intercept = problem.prepared.fit_intercept
    hessian = joint_hessian(problem, linear, problem.policy.added_joint_curvature)
    n_classes, width = hessian.shape[:2]
    size = n_classes * width
    mean = float(np.einsum("kiki->", hessian)) / size
    if fit_intercept:
        hessian[:, -1, :, -1] += mean / n_classes
    matrix = hessian.reshape(size, size)
    penalty = np.zeros((n_classes, width))
    penalty[:, : problem.penalty.shape[1]] = problem.penalty[0]
    matrix.flat[:: size + 1] += penalty.ravel() + regularisation * mean
    factor, _ = cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)
    return inverse_of_factor(factor)


def joint_hessian(
    problem: Problem, linear: Linear, added_curvature: float = 0.0, chunk_rows: int = 1024
) -> FloatArray:
    """Return the Hessian of the loss, of shape (n_classes, width, n_classes, width).

    The width is the number of columns, and one more for an intercept. Sums over `chunk_rows` rows
    are those of the type of the rows.
    """
    prepared, tasks = problem.prepared, problem.tasks
    n_classes, design, z = tasks.columns_per_task, prepared.design, prepared.standardisation
    assert isinstance(design, MemoryDesign)
    scores = design.scores(*linear, z)
    curvature = tasks.losses[0].hessian(scores, tasks.codes, tasks.weights[0], added_curvature)
    width = design.n_columns + prepared.fit_intercept
    rows = np.ones((design.n_rows, width), dtype=design.product_type)
    rows[:, : design.n_columns] = design.scaled_rows(z.mean, z.inverse_deviation)
    total = np.zeros((n_classes, width, n_classes, width))

    def add(k: int) -> None:
        """Add the blocks of class k with the classes up to k, but for the last class."""
        for first in range(0, len(rows), chunk_rows):
            span = slice(first, first + chunk_rows)
            factors = curvature[span, k, : k + 1, np.newaxis].astype(rows.dtype)
            weighted = (factors * rows[span, np.newaxis, :]).reshape(-1, (k + 1) * width)
            total[k, :, : k + 1] += (rows[span].T @ weighted).reshape(width, k + 1, width)

    list(design.threads.map(add, range(n_classes - 1)))
    for k in range(n_classes - 1):
        total[:k, :, k] = total[k, :, :k].transpose(1, 0, 2)
    # Equal changes of all scores do not change the loss: the blocks of a class have the sum zero.
    last = -total[:-1].sum(axis=0)
    total[-1], total[:, :, -1] = last, last.transpose(1, 2, 0)
    total[-1, :, -1] = -last[:, :-1].sum(axis=1)
    return total
