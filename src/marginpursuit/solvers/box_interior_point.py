r"""An interior-point method for hinge losses and a moderate number of columns.

For the machine whose losses are u_i (1 - m)₊, the dual variables a_i = u_i b_i are kept inside
0 < b < 1. With slacks s, t ≥ 0 of the margins, m - 1 = s - t, the solution has

    Qw = g z̄ + Zᵀ(u b),   b s = 0,   (1 - b) t = 0 .

The products are driven to zero by Mehrotra's predictor and corrector. Each step reads the data for
one weighted Gram matrix and factorises a matrix of the size of the columns; the number of steps
hardly depends on the data, their conditioning or the penalty.
"""

from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from marginpursuit._validation import FloatArray
from marginpursuit.solvers._machine import (
    AugmentedRows,
    DualPoint,
    Machine,
    MachineFit,
    quadratic_form,
)
from marginpursuit.solvers._problem import Progress, Status

__all__ = ["solve_interior_point"]

# The share of the way to the boundary that a step goes.
_SHARE = 0.995


def solve_interior_point(machine: Machine, rows: AugmentedRows) -> MachineFit:
    """Solve a machine of hinge losses for rows as they are.

    Parameters
    ----------
    machine : Machine
        What to minimise, with terms that are linear between 0 and `upper`.
    rows : AugmentedRows
        The rows.

    Returns
    -------
    MachineFit
        With w, the coefficient of the constant last.
    """
    path = _CentralPath(machine, rows)
    best, status, iteration = path.standing(), Status.MAX_ITER, 0
    for iteration in range(1, machine.max_iter + 1):
        if not path.step():
            status = Status.ROUNDING
            break
        standing = path.standing()
        best = standing if standing[1] <= best[1] else best
        machine.report(Progress(iteration, rows.passes, standing[0], standing[1]))
        if best[1] <= machine.tol:
            break
    if best[1] <= machine.tol:
        status = Status.CONVERGED
    value, gap, coef, share = best
    metric = cho_solve(path.factor, np.eye(rows.n_columns))
    upper = machine.terms.upper
    dual = DualPoint(upper * share, upper, rows.quadratic(metric))
    return MachineFit(coef, value, gap, status, iteration, dual)


class _CentralPath:
    """A point near the path of those whose rows all add the same to the gap."""

    def __init__(self, machine: Machine, rows: AugmentedRows) -> None:
        self._machine, self._rows = machine, rows
        self._upper = machine.terms.upper
        self.form, self.factor, self.offset = quadratic_form(machine, rows)
        self.coef = cho_solve(self.factor, self.offset)
        self.least = -0.5 * float(self.offset @ self.coef)  # of the square part
        self.margins = machine.sign * rows.scores(self.coef)
        # On the path all rows add the same to the gap, so their products are as these.
        self._unit = float(np.mean(self._upper)) / self._upper
        # With b = t / (s + t), both products are s t / (s + t): here the unit.
        excess = self.margins - 1.0
        root = np.hypot(excess, 2.0 * self._unit)
        self.above = self._unit + 0.5 * (root + excess)
        self.short = self._unit + 0.5 * (root - excess)
        self.share = self.short / (self.above + self.short)
        self._pulled = self._pull(self.share)

    def standing(self) -> tuple[float, float, FloatArray, FloatArray]:
        """Return the objective, the relative gap, and copies of w and b."""
        square = 0.5 * float(self.coef @ self.form @ self.coef) - float(self.offset @ self.coef)
        value = square + float(self._machine.terms.loss(self.margins).sum())
        total = self.offset + self._pulled
        below = float(self._upper @ self.share) - 0.5 * float(total @ cho_solve(self.factor, total))
        gap = self._machine.measure(value - below, value - self.least)
        return value, max(gap, 0.0), self.coef, self.share

    def step(self) -> bool:
        """Go one step along the path; return whether that was possible."""
        stiffness = 1.0 / (self.above / self.share + self.short / (1.0 - self.share))
        hessian = self.form + self._rows.gram(self._upper * stiffness)
        try:
            factor = cho_factor(hessian, lower=True, overwrite_a=True)
        except (LinAlgError, ValueError):  # singular to rounding, or not finite
            return False
        left, right = self.share * self.above, (1.0 - self.share) * self.short
        ahead = self._direction(factor, stiffness, -left, -right)
        length = self._length(ahead)
        share, above = self.share + length * ahead[2], self.above + length * ahead[3]
        products = share * above, (1.0 - share) * (self.short + length * ahead[4])
        mean = float(np.mean((left + right) / self._unit))
        wanted = 0.5 * float(np.mean((products[0] + products[1]) / self._unit)) ** 3 / mean**2
        left = wanted * self._unit - left - ahead[2] * ahead[3]
        right = wanted * self._unit - right + ahead[2] * ahead[4]
        move = self._direction(factor, stiffness, left, right)
        length = min(1.0, _SHARE * self._length(move))
        if not np.isfinite(length) or length < 1e-8:
            return False
        self.coef = self.coef + length * move[0]
        self.margins = self.margins + length * move[1]
        self.share = self.share + length * move[2]
        self.above = self.above + length * move[3]
        self.short = self.short + length * move[4]
        self._pulled = self._pull(self.share)
        return True

    def _direction(
        self, factor: Any, stiffness: FloatArray, left: FloatArray, right: FloatArray
    ) -> tuple[FloatArray, ...]:
        """Return the changes of w, m, b, s and t that take the products where they are wanted."""
        imbalance = self.margins - 1.0 - self.above + self.short
        wanted = left / self.share - right / (1.0 - self.share) - imbalance
        rest = self.offset + self._pulled - self.form @ self.coef
        coef = cho_solve(factor, rest + self._pull(stiffness * wanted))
        margins = self._machine.sign * self._rows.scores(coef)
        share = stiffness * (wanted - margins)
        above = (left - self.above * share) / self.share
        short = (right + self.short * share) / (1.0 - self.share)
        return coef, margins, share, above, short

    def _length(self, move: tuple[FloatArray, ...]) -> float:
        """Return how far the step may go before something reaches zero; at most one."""
        falls = [
            (self.share, move[2]),
            (1.0 - self.share, -move[2]),
            (self.above, move[3]),
            (self.short, move[4]),
        ]
        ratios = [np.max(-change / value) for value, change in falls]
        return float(1.0 / max(1.0, *ratios))

    def _pull(self, share: FloatArray) -> FloatArray:
        return self._rows.pull(self._machine.sign * self._upper * share)
