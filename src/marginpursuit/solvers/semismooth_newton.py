r"""Newton's method for machines with piecewise quadratic losses and few columns.

Without variance and mean term, F(w) = ½‖w‖² + Σ ℓ_i(m_i). Each ℓ_i has the slope -a_i(m), where a_i
is the minimiser of a m + h_i(a), and the curvature 1/up_i or 1/down_i where that is not zero. A
Newton step is exact as long as no row changes its piece, so that few of them end at the minimiser.

The a_i at any w are a point of the dual, and its gap is exactly ½‖∇F(w)‖².
"""

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import brentq

from marginpursuit._validation import FloatArray
from marginpursuit.solvers._machine import AugmentedRows, Machine, MachineFit
from marginpursuit.solvers._problem import Progress, Status

__all__ = ["solve_newton"]

# A full step is taken where the slope along it has fallen to this share.
_FLAT = 0.1


def solve_newton(machine: Machine, rows: AugmentedRows) -> MachineFit:
    """Solve a machine of piecewise quadratic losses for rows as they are.

    Parameters
    ----------
    machine : Machine
        What to minimise, without variance and mean term.
    rows : AugmentedRows
        The rows.

    Returns
    -------
    MachineFit
        With w, the coefficient of the constant last.
    """
    terms, sign = machine.terms, machine.sign
    coef, margins = np.zeros(rows.n_columns), np.zeros(rows.n_rows)
    status, before = Status.MAX_ITER, np.inf
    for iteration in range(machine.max_iter + 1):
        dual = terms.minimiser(margins)
        gradient = coef - rows.pull(sign * dual)
        value = 0.5 * float(coef @ coef) + float(terms.loss(margins).sum())
        gap = machine.measure(0.5 * float(gradient @ gradient), value)
        machine.report(Progress(iteration, rows.passes, value, gap))
        if not np.isfinite(gap):
            raise FloatingPointError("the squares of the rows are not finite")
        if gap <= machine.tol:
            status = Status.CONVERGED
        elif value >= before:
            status = Status.ROUNDING
        if status is not Status.MAX_ITER or iteration == machine.max_iter:
            break
        bend = np.where(dual > 0, 1.0 / terms.up, np.where(dual < 0, 1.0 / terms.down, 0.0))
        hessian = np.eye(rows.n_columns) + rows.gram(bend)
        direction = -cho_solve(cho_factor(hessian, lower=True), gradient)
        change = sign * rows.scores(direction)
        length = _search(machine, coef, margins, direction, change)
        coef, margins, before = coef + length * direction, margins + length * change, value
    return MachineFit(coef, value, gap, status, iteration)


def _search(
    machine: Machine,
    coef: FloatArray,
    margins: FloatArray,
    direction: FloatArray,
    change: FloatArray,
) -> float:
    """Return where along a step the slope is zero, or one where it is nearly so there."""
    pull, stiffness = float(coef @ direction), float(direction @ direction)

    def slope(length: float) -> float:
        dual = machine.terms.minimiser(margins + length * change)
        return pull + length * stiffness - float(dual @ change)

    first, high = slope(0.0), 1.0
    if abs(slope(1.0)) <= _FLAT * abs(first):
        return 1.0
    while slope(high) < 0:
        high *= 2.0
    return float(brentq(slope, 0.0, high, rtol=1e-3)) if first < 0 else 0.0
