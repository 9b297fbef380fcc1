r"""Dual coordinate descent for the margin distribution machines.

The dual, in one variable a_i for each row, is ½ (g z̄ + Zᵀa)ᵀQ⁻¹(g z̄ + Zᵀa) + Σ h_i(a_i); its
derivative in a_i is the margin plus h_i'. Each variable in turn is set to its minimiser, in random
order. Variables at a bound with a large derivative are skipped until the next check (shrinking).
The iterations stop where the duality gap meets the tolerance.

- In the feature space of a kernel matrix G, with P = diag(p) and the projector J = I - ssᵀ,
  s_i = y_i √p_i, Q⁻¹ is never formed: by Woodbury's identity the inner products of the rows under
  it are

  .. math:: \tilde G = G - c\,(B G)^\top (I + c\,B G B^\top)^{-1} (B G), \qquad B = J P^{1/2},

  where the matrix to factorise has no eigenvalue below one, however singular G is.
- For rows as they are, Q is a matrix of the size of the columns.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_solve, cholesky, solve_triangular

from marginpursuit._kernels.coordinates import Coordinates, MatrixCoordinates, RowCoordinates
from marginpursuit._validation import FloatArray
from marginpursuit.solvers._machine import (
    AugmentedRows,
    DualPoint,
    MachineFit,
    MarginDistributionProblem,
    quadratic_form,
)
from marginpursuit.solvers._problem import Progress, Status

__all__ = ["solve_matrix", "solve_rows"]


@dataclass(frozen=True, slots=True)
class CoordinatePolicy:
    """Sizes of uninterrupted work: an interrupt by the user is noticed within about a second."""

    pass_elements: int = 1 << 27  # elements read by one call of the compiled pass
    product_terms: int = 1 << 32  # multiplications of one matrix product
    min_block_rows: int = 64  # of a matrix product; fewer rows leave BLAS inefficient
    max_unchecked_passes: int = 20  # between two computations of the gap


def solve_matrix(machine: MarginDistributionProblem, gram: FloatArray, rng: Any) -> MachineFit:
    """Solve in the feature space of a kernel matrix, which is overwritten.

    The coefficients of the solution are those of the expansion in the rows. Raises a
    FloatingPointError if the kernel matrix is not positive semidefinite.
    """
    root = np.sqrt(machine.weights)
    unit, c = machine.sign * root, machine.variance
    inverse: Any = None
    if c > 0:
        try:
            inverse = _whiten(gram, root, unit, c)
        except LinAlgError as error:
            raise FloatingPointError("the kernel matrix is not positive semidefinite") from error
    if np.any(np.diagonal(gram) < -1e-8 * np.abs(gram).max()):
        raise FloatingPointError("the kernel matrix is not positive semidefinite")
    offset = machine.mean * machine.weights * machine.sign
    descent = MatrixCoordinates(gram, machine.sign, machine.terms, gram @ offset)
    value, gap, status, n_iter = _descend(machine, descent, descent.scores.copy(), rng)
    combined = offset + machine.sign * descent.a
    coef = combined
    if inverse is not None:
        factor, whitened = inverse
        inner = solve_triangular(factor, whitened @ combined, lower=True, trans=1)
        coef = combined - np.sqrt(c) * root * (inner - unit * (unit @ inner))
    return MachineFit(coef, value, gap, status, n_iter, _dual_point(descent))


def _whiten(
    gram: FloatArray, root: FloatArray, unit: FloatArray, c: float
) -> tuple[FloatArray, FloatArray]:
    """Turn G into G̃, in place; return the Cholesky factor L of I + c BGBᵀ and T = √c L⁻¹BG.

    Both are computed in blocks of rows, so that the user can interrupt.
    """
    policy = CoordinatePolicy()
    whitened = np.sqrt(c) * root[:, np.newaxis] * gram
    whitened -= np.outer(unit, unit @ whitened)
    factor = np.sqrt(c) * whitened * root
    factor -= np.outer(factor @ unit, unit)
    factor[np.diag_indices_from(factor)] += 1.0
    step = max(policy.min_block_rows, policy.product_terms // gram.size)
    for start in range(0, len(gram), step):
        span, rest = slice(start, start + step), slice(start + step, None)
        earlier = factor[span, :start]
        diagonal_block = cholesky(factor[span, span] - earlier @ earlier.T, lower=True)
        below = factor[rest, span] - factor[rest, :start] @ earlier.T
        factor[span, span] = diagonal_block
        factor[rest, span] = solve_triangular(diagonal_block, below.T, lower=True).T
        factor[span, rest] = 0.0
        whitened[span] = solve_triangular(
            diagonal_block, whitened[span] - earlier @ whitened[:start], lower=True
        )
    for start in range(0, len(gram), step):
        span = slice(start, start + step)
        gram[span] -= whitened[:, span].T @ whitened
    return factor, whitened


def solve_rows(machine: MarginDistributionProblem, rows: AugmentedRows, rng: Any) -> MachineFit:
    """Solve for rows without a kernel, dense or sparse.

    A variance term needs an n_columns x n_columns matrix. The coefficient of the constant column,
    if any, is last.
    """
    inverse_hessian, start = None, machine.mean * rows.adjoint(machine.weights * machine.sign)
    if machine.variance > 0:
        _, factor, offset = quadratic_form(machine, rows)
        inverse_hessian = np.ascontiguousarray(cho_solve(factor, np.eye(rows.n_columns)))
        inverse_hessian = 0.5 * (inverse_hessian + inverse_hessian.T)
        start = cho_solve(factor, offset)
    curvature = rows.quadratic(inverse_hessian)
    descent = RowCoordinates(
        rows.matrix,
        machine.sign,
        machine.terms,
        start,
        curvature,
        inverse_hessian,
        rows.constant,
    )
    value, gap, status, n_iter = _descend(machine, descent, descent.refresh(), rng)
    return MachineFit(descent.coef, value, gap, status, n_iter, _dual_point(descent))


def _dual_point(descent: Coordinates) -> DualPoint:
    return DualPoint(descent.a, descent.terms.upper, descent.curvature)


def _descend(
    machine: MarginDistributionProblem, descent: Coordinates, start: FloatArray, rng: Any
) -> tuple[float, float, Status, int]:
    """Minimise until the gap meets the tolerance; return objective, gap, status and passes.

    `start` are the scores for a = 0.
    """
    policy = CoordinatePolicy()
    sign, terms, all_rows = machine.sign, machine.terms, np.arange(len(machine.sign))
    constant = -0.5 * machine.mean * float(machine.weights @ (sign * start))
    active, threshold, checked, last_check = all_rows, np.inf, np.inf, 0
    for iteration in range(1, machine.max_iter + 1):
        active, largest = _sweep(descent, rng.permutation(active), threshold)
        threshold = largest
        late = (
            iteration - last_check >= policy.max_unchecked_passes or iteration == machine.max_iter
        )
        if largest > 0.5 * checked and not late:
            continue
        checked, last_check = largest, iteration
        margins = sign * descent.refresh()
        excess = terms.excess(descent.a, margins)
        moved = 0.5 * float(descent.a @ (margins - sign * start))
        regularised = moved + float(terms.loss(margins).sum())
        gap = float(excess.sum()) / machine.reference(regularised)
        machine.report(Progress(iteration, iteration, regularised + constant, gap))
        if gap <= machine.tol:
            return regularised + constant, gap, Status.CONVERGED, iteration
        if 2.0 * float(excess[active].sum()) < float(excess.sum()):
            active, threshold, checked = all_rows, np.inf, np.inf
    return regularised + constant, gap, Status.MAX_ITER, machine.max_iter


def _sweep(descent: Coordinates, order: Any, threshold: float) -> tuple[Any, float]:
    """Update variables in this order; return those not shrunk, and the largest derivative."""
    step = max(1, CoordinatePolicy().pass_elements // max(1, descent.work))
    kept, largest = [], 0.0
    for first in range(0, len(order), step):
        piece = order[first : first + step]
        n_kept, slope = descent.sweep(piece, threshold)
        kept.append(piece[:n_kept])
        largest = max(largest, slope)
    return np.concatenate(kept) if kept else order, largest
