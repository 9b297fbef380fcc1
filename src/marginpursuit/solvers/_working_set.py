r"""Dual passes over the rows of small margin, for one task and many dense rows.

Without overconfidence a row whose margin is above the level γ has the loss zero, and the dual
variable zero at the minimiser. The *working set* has the rows whose margin is below the level, and
as many again whose margin is next above it, at the fit to a subsample. Dual coordinate ascent
(`dual_ascent`) minimises their objective F_S ≤ F over a scaled copy. With dual variables of zero
for all other rows, F has the same lower bound: if F_S is known up to a gap g, F exceeds its minimum
by at most F - F_S + g. A pass over all rows computes F. Rows outside of the set whose margin has
come below the level are added to it, until the bound meets the tolerance.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from marginpursuit._validation import FloatArray
from marginpursuit.design import MemoryDesign, Standardisation
from marginpursuit.solvers._dual_passes import DualAscent, common_penalty, row_type
from marginpursuit.solvers._problem import Problem, Progress, Solution, Status
from marginpursuit.solvers._single_task import ProblemTask
from marginpursuit.solvers.sampling import stratified_rows


def solve_on_working_set(problem: Problem) -> Solution | None:
    """Minimise the objective of one task from zero; None where too many rows are below the level.

    The solution is proven, unless the most passes of the policy or `max_iter` do not reach `tol`.
    """
    policy, point = problem.policy.working_set, _fit_subsample(problem)
    if point is None:
        return None
    whole = ProblemTask(problem, 0)
    level, (margins, _) = whole.sides.level, _evaluated(whole, point)
    n_wanted = int(policy.growth * np.count_nonzero(margins < level))
    limit = np.partition(margins, n_wanted)[n_wanted] if n_wanted < len(margins) else np.inf
    is_wanted, tol = margins <= max(limit, level), policy.first_tol
    ascent, history = _Ascent(problem), list[Progress]()
    while True:
        ascent.add(whole.rows[is_wanted])
        state, point = ascent.state, ascent.run(tol)
        margins, value = _evaluated(whole, point)
        gap = (value - state.lower_bound) / float(problem.relative_to(value)[0])
        n_passes = problem.prepared.design.n_passes
        history.append(Progress(state.n_passes, n_passes, value, gap))
        problem.notify(history[-1], point[np.newaxis])
        if gap <= problem.tol or state.n_passes >= state.max_iter:
            return _solution(problem, point, history)
        is_wanted, tol = margins < level, _next_tolerance(problem, tol)


def _fit_subsample(problem: Problem) -> FloatArray | None:
    """Fit a subsample of the rows; None where the margins of too many are below the level."""
    policy, ascent = problem.policy.working_set, _Ascent(problem)
    rows = np.flatnonzero(problem.tasks.weights[0])
    n_columns = problem.prepared.design.n_columns
    most = problem.policy.max_start_rows_per_column * n_columns
    size = min(len(rows) // policy.start_sampling, most)
    ascent.add(rows[stratified_rows(len(rows), max(1, size))])
    state = ascent.state
    state.weights, state.max_iter = state.weights / state.weights.sum(), policy.start_passes
    point = ascent.run(policy.start_tol)
    max_fraction = policy.max_fraction * n_columns / (n_columns + policy.half_columns)
    return point if np.mean(state.residual > 0) <= max_fraction else None


def _next_tolerance(problem: Problem, tol: float) -> float:
    """Return the relative gap of the next working set; part of `tol` is left to the other rows."""
    policy = problem.policy.working_set
    last = policy.last_fraction * problem.tol
    return max(policy.decrease * tol, last) if tol > last else 0.5 * tol


def _evaluated(task: ProblemTask, point: FloatArray) -> tuple[FloatArray, float]:
    """Return the margins of all rows and the objective, in one pass over the data."""
    scores = task.scores(point)
    return task.sign * scores, task.value_and_dual(point, scores)[0]


class _Ascent:
    """Dual ascent over a growing set of rows, scaled such that all coefficients have one penalty.

    Attributes
    ----------
    state : DualAscent
        The dual variables of the rows and the coefficients; set by `add`.
    """

    state: DualAscent

    def __init__(self, problem: Problem) -> None:
        self._problem, self._rows = problem, np.empty(0, dtype=np.intp)
        self._is_in = np.zeros(problem.prepared.design.n_rows, dtype=bool)
        self._penalty_weight, self._factors = common_penalty(problem.prepared.penalty_weights[0])

    def add(self, rows: NDArray[np.intp]) -> None:
        """Add rows that are not in the set, with dual variables of zero."""
        self._is_in[rows] = True
        before, self._rows = self._rows, np.flatnonzero(self._is_in)
        if len(self._rows) == len(before) > 0:
            return
        problem, prepared, tasks = self._problem, self._problem.prepared, self._problem.tasks
        design, standardisation = prepared.design, prepared.standardisation
        assert isinstance(design, MemoryDesign)
        factors = self._factors * standardisation.inverse_deviation
        dtype = row_type(problem, len(self._rows))
        copy = design.from_dense_rows(
            design.scaled_rows(standardisation.mean, factors, self._rows, dtype)
        )
        identity = Standardisation.identity(design.n_columns)
        weight_of_all = np.full((1, design.n_columns), self._penalty_weight)
        codes = tasks.codes[..., self._rows]
        weights = np.ascontiguousarray(tasks.weights[:, self._rows])
        restricted = replace(
            problem,
            prepared=replace(
                prepared,
                design=copy,
                standardisation=identity,
                penalty_weights=weight_of_all,
            ),
            tasks=replace(tasks, codes=codes, weights=weights),
            max_iter=min(problem.max_iter, problem.policy.working_set.max_passes),
        )
        state = DualAscent.start(restricted, np.zeros(1, dtype=np.intp))
        if len(before):
            last = self.state
            state.residual[np.searchsorted(self._rows, before)] = last.residual
            state.coef, state.intercept, state.n_passes = last.coef, last.intercept, last.n_passes
        self.state = state

    def run(self, tol: float) -> FloatArray:
        """Pass over the rows to a relative gap; return the point in the problem's coordinates."""
        self.state.run(np.array([tol]), True)
        coef = self.state.coef[:, 0] * self._factors
        has_intercept = self._problem.prepared.fit_intercept
        return np.append(coef, self.state.intercept) if has_intercept else coef


def _solution(problem: Problem, point: FloatArray, history: list[Progress]) -> Solution:
    """Return the solution at the end of the history."""
    end = history[-1]
    is_proven = end.gap <= problem.tol
    return Solution(
        linear=problem.split(point[np.newaxis]),
        value=np.array([end.value]),
        gap=np.array([end.gap]),
        status=Status.CONVERGED if is_proven else Status.MAX_ITER,
        n_iter=end.iteration,
        history=tuple(history),
        is_proven=is_proven,
    )
