"""Preconditioned L-BFGS for many tasks that share every read of the data.

Each task has a row in every array of the state (point, gradient, memory, step); each read evaluates
the trial points of all tasks that are still running. The preconditioner is the initial inverse
Hessian, so its quality decides the number of reads.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginpursuit import _kernels
from marginpursuit._threads import single_threaded_blas
from marginpursuit._validation import FloatArray
from marginpursuit.solvers._problem import Problem, Progress, Solution, Status

_EPS = float(np.finfo(np.float64).eps)

# Curvature pairs that are remembered. More did not lower the number of reads on the benchmark sets;
# where tasks are many, to go through the pairs takes as long as a read, and fewer are kept.
_MEMORY = 20
_SHORT_MEMORY = 8
_MANY_TASKS = 32

_SUFFICIENT_DECREASE = 1e-4
_SHORTEST_STEP = 1e-10

# The share of the bound that the Hessian is taken for at least. Where rows lose their curvature on
# the way, less than that makes steps so long that a dozen reads go into shortening them.
_LEAST_STIFFNESS = 0.2

# Steps without any decrease after which there is none to come.
_IDLE_STEPS = 20

# The share of the tolerance at which one estimate of the gap is enough.
_FAR_BELOW = 1e-3

# The fewest steps whose decreases are compared to estimate the decrease still to come.
_SHORTEST_SPAN = 5

# The share of the tasks that must have finished for the others to be moved together.
_WORTH_MOVING = 0.25


def minimise(
    problem: Problem, *, times: int = 1, fewest: int = 0, tols: FloatArray | float | None = None
) -> Solution:
    """Minimise the objective of every task, sharing the reads.

    A task is finished when its estimated gap meets the tolerance, which may be one of its own, so
    many times in a row, after the fewest steps at least, or is far below it.
    """
    with single_threaded_blas():
        return _minimise(problem, times, fewest, problem.tol if tols is None else tols)


def _minimise(problem: Problem, times: int, fewest: int, tol: float | FloatArray) -> Solution:
    points = join(problem, *problem.start)
    state = _Descents(problem, points)
    values, gaps = np.empty(len(points)), np.empty(len(points))
    met = np.zeros(len(points), dtype=int)
    finished = np.zeros(len(points), dtype=bool)
    history: list[Progress] = []
    while True:
        here = state.tasks
        points[here], values[here] = state.points, state.values
        gaps[here] = state.gaps() / problem.relative_to(values)[here]
        passes = problem.prepared.design.n_passes
        history.append(Progress(len(history), passes, float(values.mean()), float(gaps.max())))
        problem.report(history[-1])
        if history[-1].iteration > 0:
            problem.keep(problem, part(problem, points))
        met = np.where(gaps <= tol, met + 1, 0)
        finished |= gaps <= _FAR_BELOW * tol
        if history[-1].iteration >= fewest:
            finished |= met >= times
        finished[here] |= state.stalled
        if finished.all() or len(history) > problem.max_iter:
            break
        if np.mean(finished[here]) >= _WORTH_MOVING:
            state.keep(~finished[here])
        state.advance()

    status = Status.CONVERGED
    if not finished.all():
        status = Status.MAX_ITER
    elif np.any(gaps > tol):
        status = Status.ROUNDING
    found = part(problem, points)
    return Solution(found, values, gaps, status, history[-1].iteration, tuple(history))


def evaluate(
    problem: Problem, points: FloatArray, tasks: NDArray[np.intp]
) -> tuple[FloatArray, FloatArray]:
    """Return the objective and its gradient at one point (a row) for each of these tasks."""
    prepared = problem.prepared
    coef, intercept = part(problem, points)
    sweep = prepared.design.sweep(coef, intercept, problem.tasks.take(tasks))
    pull = coef * problem.penalty[tasks].T
    value = sweep.value + 0.5 * np.sum(coef * pull, axis=0)
    return value, problem.project(join(problem, sweep.gradient + pull, sweep.slope), tasks)


def join(problem: Problem, coef: FloatArray, intercept: FloatArray) -> FloatArray:
    """Put coefficients and intercepts into points, one a row."""
    parts = [coef, intercept[np.newaxis]] if problem.prepared.fit_intercept else [coef]
    return np.ascontiguousarray(np.concatenate(parts).T)


def part(problem: Problem, points: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Invert `join`."""
    if problem.prepared.fit_intercept:
        return points[:, :-1].T, points[:, -1].copy()
    return points.T, np.zeros(len(points))


def _dot(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return the inner product of each row of a with that of b."""
    return np.asarray(np.einsum("kj,kj->k", a, b))


class _Descents:
    """The running tasks, a row each."""

    def __init__(self, problem: Problem, points: FloatArray) -> None:
        self._problem = problem
        self.tasks = np.arange(len(points))
        self.points = points.copy()
        self.values, self.gradients = evaluate(problem, points, self.tasks)
        self.stalled = np.zeros(len(points), dtype=bool)
        self._past = [self.values]
        self._pairs: list[tuple[FloatArray, FloatArray, FloatArray]] = []
        self._stiffness = np.ones(len(points))  # of the last pair, as the preconditioner sees it
        self._steps = np.ones(len(points))
        self._directions = self._turn()

    def keep(self, which: NDArray[np.bool_]) -> None:
        """Forget all tasks but these."""
        self.tasks, self.points, self.values = (
            self.tasks[which],
            self.points[which],
            self.values[which],
        )
        self.gradients, self.stalled = self.gradients[which], self.stalled[which]
        self._past = [values[which] for values in self._past]
        self._pairs = [(a[which], b[which], c[which]) for a, b, c in self._pairs]
        self._stiffness, self._steps = self._stiffness[which], self._steps[which]
        self._directions = self._directions[which]

    def gaps(self) -> FloatArray:
        """Estimate the suboptimality: the largest of several estimates but not above the value.

        Half the squared Newton decrement under the quasi-Newton model, exact for a quadratic that
        the model has learnt; and what is still to come if the decrease of the last 5, 10, 20, ...
        steps goes on at its rate (Aitken's extrapolation), which notices where the model is too
        stiff, and at the longer spans where the rate itself falls.
        """
        estimates = -0.5 * _dot(self.gradients, self._directions)
        span = _SHORTEST_SPAN
        while 2 * span < len(self._past):
            start, middle, end = self._past[-1 - 2 * span :: span]
            before, after = start - middle, middle - end
            with np.errstate(divide="ignore", invalid="ignore"):
                rates = np.where(after < before, after**2 / (before - after), np.inf)
            falling = after > 4 * _EPS * self.values
            estimates = np.where(falling, np.maximum(estimates, rates), estimates)
            span *= 2
        return np.minimum(estimates, self.values)

    def advance(self) -> None:
        """Evaluate all trial points: move there, or shorten the step."""
        change = self._steps[:, np.newaxis] * self._directions
        values, gradients = evaluate(self._problem, self.points + change, self.tasks)
        slopes = _dot(self.gradients, self._directions)
        enough = values <= self.values + _SUFFICIENT_DECREASE * self._steps * slopes
        # Where rounding hides the decrease, the slope still shows it: the function is convex.
        same = values <= self.values + 4 * _EPS * np.abs(self.values)
        moved = enough | (
            same & (np.abs(_dot(gradients, self._directions)) <= 0.9 * np.abs(slopes))
        )
        self._shorten(~moved, values, slopes)
        if moved.any():
            self._remember(moved, change, gradients - self.gradients)
            # As a rule all tasks move, and nothing needs copying.
            here: Any = slice(None) if moved.all() else moved
            self.points[here] += change[here]
            self.values = np.where(moved, values, self.values)
            self.gradients[here] = gradients[here]
            self._steps[here] = 1.0
            self._directions[here] = self._turn()[here]
        self._past.append(self.values)
        if len(self._past) > _IDLE_STEPS:
            self.stalled |= self._past[-1 - _IDLE_STEPS] <= self.values

    def _remember(self, moved: NDArray[np.bool_], change: FloatArray, bend: FloatArray) -> None:
        """Keep what a step has shown of the Hessian; nothing, of a task that has not moved."""
        product = _dot(change, bend)
        size = np.linalg.norm(change, axis=1) * np.linalg.norm(bend, axis=1)
        usable = moved & (product > _EPS * size)
        if not usable.any():
            return
        inverse = np.divide(1.0, product, out=np.zeros_like(product), where=usable)
        memory = _MEMORY if len(self.tasks) < _MANY_TASKS else _SHORT_MEMORY
        self._pairs = [*self._pairs[1 - memory :], (change, bend, inverse)]
        stiffness = inverse * _dot(bend, self._problem.precondition(bend, self.tasks))
        stiffness = np.maximum(stiffness, _LEAST_STIFFNESS)
        self._stiffness = np.where(usable, stiffness, self._stiffness)

    def _turn(self) -> FloatArray:
        """Return the directions at the current points, by the two-loop recursion."""
        changes = [change for change, _, _ in self._pairs]
        bends = [bend for _, bend, _ in self._pairs]
        inverse = np.array([inverse for _, _, inverse in self._pairs]).reshape(-1, len(self.tasks))
        directions, factors = -self.gradients, np.zeros_like(inverse)
        newest_first = np.ascontiguousarray(inverse[::-1])
        _kernels.lbfgs_loop(changes[::-1], bends[::-1], newest_first, factors, directions)
        directions = self._problem.precondition(directions, self.tasks)
        directions /= self._stiffness[:, np.newaxis]
        factors = np.negative(factors[::-1])
        _kernels.lbfgs_loop(bends, changes, inverse, factors, directions)
        return directions

    def _shorten(self, which: NDArray[np.bool_], values: FloatArray, slopes: FloatArray) -> None:
        """Shorten steps to the minimiser of the parabola through what is known, within bounds."""
        excess = values - self.values - self._steps * slopes
        best = np.divide(
            -0.5 * slopes * self._steps**2, excess, out=np.zeros_like(excess), where=excess > 0
        )
        shorter = np.clip(best, 0.1 * self._steps, 0.5 * self._steps)
        self._steps = np.where(which, shorter, self._steps)
        self.stalled |= self._steps < _SHORTEST_STEP
