r"""Coordinate ascent in the dual, for many fits to sparse rows with many columns.

With rows x as they came, one penalty p for all coefficients and forces f_i = -c_i φ'(m_i), the
minimiser is w = Σ y_i f_i x_i / p. The rows are visited in a random order, and the force of each is
set to what suits its margin with all other forces held (`_kernels/visits.h`). A pass over all rows
takes about as long as a sweep, and gets as far as ten and more of a quasi-Newton method whose
preconditioner is a diagonal: texts need a dozen passes.

The intercept is the coefficient of a column of constants, whose penalty is on its distance to where
it was after the last pass: the method of multipliers, for the constraint that the forces of both
sides are in balance. Passes end where the gap between the primal and the dual objective, summed up
as rows are visited, meets the tolerance.

Tasks on the same part of the rows are visited in teams, a lane of a vector each; a team has its
coefficients, and its rows, to itself.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from marginpursuit._validation import FloatArray
from marginpursuit.design import Design, MemoryDesign, merged
from marginpursuit.solvers._penalty import ROTATABLE, design_unit, shared_weights
from marginpursuit.solvers._problem import Prepared, Problem, Solution, Status

__all__ = ["has_dual", "prepare_dual", "solve_dual"]

# The square of the constant that stands for the intercept, in median squared norms of the rows. Ten
# times as much couples the rows more than their columns do.
_CONSTANT = 0.1


def has_dual(design: Design, unit: str) -> bool:
    """Whether rows can be visited, and there is one penalty for all coefficients."""
    return isinstance(design, MemoryDesign) and design.tasks_per_pass > 0 and unit in ROTATABLE


def prepare_dual(
    design: Design,
    weights: FloatArray,
    unit: str,
    *,
    fit_intercept: bool,
    order: NDArray[np.intp] | None = None,
) -> Prepared:
    """Find the unit of the penalty; rows stay as they came, but for columns that one row has.

    Parameters and result are those of `prepare_gram`; sparse rows are not copied in any order.
    """
    assert isinstance(design, MemoryDesign)
    fewer = merged(design)
    rows = design if fewer is None else fewer
    everywhere, bound = shared_weights(weights)
    rows.standardise_diagonal(everywhere, centred=fit_intercept)
    units = design_unit(rows, weights, unit, centred=fit_intercept) * rows.spread**2
    unit_of_part = np.max(units, axis=1, where=np.isfinite(units), initial=0.0)
    unit_of_part[unit_of_part == 0.0] = 1.0  # no column takes part
    mean_unit, mean, variance = unit_of_part.mean(), rows.centre, rows.spread**2
    rows.centre, rows.inverse_spread = np.zeros(rows.n_columns), np.ones(rows.n_columns)

    def precondition(points: FloatArray, alpha: float) -> FloatArray:
        """Divide by the diagonal, in coordinates in which columns are centred."""
        diagonal = bound * variance + alpha * mean_unit
        if not fit_intercept:
            return np.asarray(points / diagonal)
        slope = points[:, -1:]
        coef = (points[:, :-1] - slope * mean) / diagonal
        return np.hstack([coef, slope / bound - (coef @ mean)[:, np.newaxis]])

    return Prepared(
        rows,
        fit_intercept,
        np.repeat(unit_of_part[:, np.newaxis], rows.n_columns, axis=1),
        precondition,
        rows.to_data if fewer is None else fewer.expanded,
        rows.from_data if fewer is None else fewer.contracted,
    )


def solve_dual(problem: Problem, tols: FloatArray | None = None) -> Solution:
    """Minimise by passes over the rows, from forces of zero, wherever the problem starts.

    Parameters
    ----------
    problem : Problem
        What to minimise, with a prepared from `prepare_dual` and positive penalties.
    tols : ndarray of shape (n_tasks,), optional
        The tolerance of each task, if they differ.

    Returns
    -------
    Solution
        The minimiser.
    """
    design, tasks = problem.prepared.design, problem.tasks
    assert isinstance(design, MemoryDesign)
    coef, intercept = np.empty((design.n_columns, len(tasks))), np.empty(len(tasks))
    value, gap, passes = np.empty(len(tasks)), np.empty(len(tasks)), np.empty(len(tasks), int)
    allowed = np.full(len(tasks), problem.tol) if tols is None else tols
    squares = design.quadratic()
    teams = iter(list(_teams(tasks.part, design.tasks_per_pass)))

    def share(thread: int, n_threads: int) -> None:
        for team in teams:  # each goes to the thread that asks first
            ascent = _Ascent(problem, team, squares)
            ascent.run(allowed[team])
            n = len(team)
            coef[:, team], intercept[team] = ascent.coef[:, :n], ascent.intercept[:n]
            value[team], gap[team] = ascent.value[:n], ascent.gap[:n]
            passes[team] = ascent.n_passes

    design.in_threads(share, len(tasks))
    design.n_passes += int(passes.max())
    status = Status.CONVERGED if np.all(gap <= allowed) else Status.MAX_ITER
    return Solution((coef, intercept), value, gap, status, int(passes.max()), ())


def _teams(part: NDArray[np.intp], size: int) -> Iterator[NDArray[np.intp]]:
    """Yield tasks that are visited together: as many as a team has, of the same part."""
    for which in np.unique(part):
        own = np.flatnonzero(part == which)
        for first in range(0, len(own), size):
            yield own[first : first + size]


class _Ascent:
    """The state of a team; lanes without a task do the first one's."""

    def __init__(self, problem: Problem, team: NDArray[np.intp], squares: FloatArray) -> None:
        design, tasks = problem.prepared.design, problem.tasks
        assert isinstance(design, MemoryDesign)
        size = design.tasks_per_pass
        lanes = np.append(team, np.repeat(team[0], size - len(team)))
        part = tasks.part[team[0]]
        self._problem, self._lanes, self._design = problem, lanes, design
        self._losses = tasks.loss_parameters[lanes]
        self._positive, self._codes = tasks.positive[lanes], tasks.codes
        self._penalty = problem.alphas[lanes] * problem.prepared.unit[part, 0]
        self._least = problem.relative_to(np.zeros(len(tasks)))[lanes]
        self._weights = np.ascontiguousarray(tasks.weights[part])
        self._rows = np.flatnonzero(self._weights > 0)
        usual = float(np.median(squares[self._rows]))
        self._constant = _CONSTANT * (usual or 1.0) if problem.prepared.fit_intercept else 0.0
        self._squares = squares + self._constant
        self._residual = np.zeros((design.n_rows, size))
        self.coef, self.intercept = np.zeros((design.n_columns, size)), np.zeros(size)
        self.value, self.gap, self.n_passes = np.zeros(size), np.full(size, np.inf), 0

    def run(self, tols: FloatArray) -> None:
        """Pass over the rows until the gap of every task meets its tolerance."""
        random = np.random.default_rng(0)
        sums = np.zeros((3, len(self._lanes)))
        while self.n_passes < self._problem.max_iter and np.any(self.gap[: len(tols)] > tols):
            self.intercept += self._constant * sums[2] / self._penalty
            self._design.dual_pass(
                *(self._losses, random.permutation(self._rows), self._codes, self._weights),
                *(self._squares, self._constant, self._positive, self._penalty, self._residual),
                *(self.coef, self.intercept, sums),
            )
            self.n_passes += 1
            self.value, gap, balance = sums
            # The slope in the intercept, which is not a level away from where it belongs.
            missing = np.abs(balance) * self._losses[:, 0] if self._constant > 0 else 0.0
            self.gap = (gap + missing) / np.maximum(self.value, self._least)
