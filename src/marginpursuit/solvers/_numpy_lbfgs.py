"""Preconditioned L-BFGS for many tasks that share every pass over the data.

Each task has one row in every array of the state (point, gradient, correction pairs, step size).
Each pass evaluates the trial points of all running tasks. The preconditioner is the initial inverse
Hessian, so its quality decides the number of passes.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginpursuit import _kernels
from marginpursuit._validation import FloatArray
from marginpursuit.design import Linear
from marginpursuit.solvers._problem import Problem, Progress, Solution, Status

#: Maps the number of steps and the point to the inverse Hessian of the next steps, or to None where
#: the solve keeps the current one.
Renewal = Callable[[int, Linear], FloatArray | None]


def minimise(
    problem: Problem,
    *,
    n_confirmations: int = 1,
    min_iter: int = 0,
    max_iter: int | None = None,
    tol: FloatArray | float | None = None,
    renewal: Renewal | None = None,
) -> Solution:
    """Minimise the objective of every task, sharing the passes.

    Parameters
    ----------
    problem : Problem
        The tasks.
    n_confirmations : int, default=1
        Consecutive estimates of the gap that must meet the tolerance.
    min_iter : int, default=0
        Steps before a task is finished, unless its gap is far below the tolerance.
    max_iter : int, optional
        The most steps; by default those of the problem.
    tol : float or ndarray of shape (n_tasks,), optional
        Tolerances of the tasks; by default that of the problem.
    renewal : callable, optional
        Replaces the inverse Hessian of a single task on the way; the correction pairs are kept.

    Returns
    -------
    Solution
        The minimisers.
    """
    tol = problem.tol if tol is None else tol
    max_iter = problem.max_iter if max_iter is None else max_iter
    points = problem.join(*problem.start)
    values, gaps, bounds = (np.empty(len(points)) for _ in range(3))
    n_met = np.zeros(len(points), dtype=int)
    is_finished = np.zeros(len(points), dtype=bool)
    history: list[Progress] = []
    policy = problem.policy.lbfgs
    problem.prepared.preconditioner.compute()
    tasks = np.arange(len(points))
    state = _State(problem, tasks, points.copy(), *problem.value_and_gradient(points, tasks))
    while True:
        state.find_directions()
        running = state.tasks
        points[running], values[running] = state.points, state.values
        references = problem.relative_to(values)[running]
        gaps[running], bounds[running] = (x / references for x in state.gaps())
        gaps = np.where(bounds <= tol, bounds, gaps)
        n_passes = problem.prepared.design.n_passes
        progress = Progress(len(history), n_passes, float(values.mean()), float(gaps.max()))
        problem.notify(progress, points if history else None)
        history.append(progress)
        n_met = np.where(gaps <= tol, n_met + 1, 0)
        is_finished |= (gaps <= policy.certain_fraction * tol) | (bounds <= tol)
        if progress.iteration >= min_iter:
            is_finished |= n_met >= n_confirmations
        is_finished[running] |= state.has_stalled
        if is_finished.all() or len(history) > max_iter:
            break
        if np.mean(is_finished[running]) >= policy.compaction_fraction:
            state.keep(~is_finished[running])
        trial = state.points + state.steps()
        state.update(*problem.value_and_gradient(trial, state.tasks))
        inverse = renewal and renewal(len(history), problem.split(state.points))
        if inverse is not None:
            state.renew(inverse)
    status = Status.CONVERGED
    if not is_finished.all():
        status = Status.MAX_ITER
    elif np.any(gaps > tol):
        status = Status.ROUNDING
    found, n_iter = problem.split(points), history[-1].iteration
    is_proven = bool(np.all(bounds <= tol))
    return Solution(found, values, gaps, status, n_iter, tuple(history), is_proven=is_proven)


def remaining_decrease(values: Sequence[FloatArray | float], span: int) -> FloatArray:
    """Extrapolate the decrease of the last `span`, 2 span, ... steps geometrically (Aitken).

    `values` has the values after each step, of one task or of several. Returns the largest estimate
    of what is left of each; it is 0 where there are fewer than 2 span steps, or where the decrease
    is that of rounding.
    """
    last = np.asarray(values[-1], dtype=np.float64)
    rounding, largest = 4 * np.finfo(np.float64).eps * last, np.zeros_like(last)
    while 2 * span < len(values):
        start, middle, end = values[-1 - 2 * span :: span]
        before, after = np.subtract(start, middle), np.subtract(middle, end)
        with np.errstate(divide="ignore", invalid="ignore"):
            remaining = np.where(after < before, after**2 / (before - after), np.inf)
        largest = np.where(after > rounding, np.maximum(largest, remaining), largest)
        span *= 2
    return largest


def _dot(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return the inner product of each row of a with that of b."""
    return np.asarray(np.einsum("kj,kj->k", a, b))


class _State:
    """The running tasks, one row each."""

    def __init__(
        self,
        problem: Problem,
        tasks: NDArray[np.intp],
        points: FloatArray,
        values: FloatArray,
        gradients: FloatArray,
    ) -> None:
        self._problem, self._policy = problem, problem.policy.lbfgs
        self._eps = float(np.finfo(np.float64).eps)
        self.tasks, self.points = tasks, points
        self.values, self.gradients = values, gradients
        self.has_stalled = np.zeros(len(points), dtype=bool)
        self._past_values = [values]
        # Changes of the point, of the gradient g and of P⁻¹g, and the inverse of the product yᵀs.
        self._pairs: list[tuple[FloatArray, FloatArray, FloatArray, FloatArray]] = []
        self._conditioned = problem.precondition(gradients, tasks)  # P⁻¹g
        self._hessian_scaling = np.ones(len(points))  # yᵀP⁻¹y / yᵀs of the last pair
        # The same without a floor; and qᵀP⁻¹q, with q the result of the first loop of the two-loop
        # recursion: the part of the gradient that the pairs do not span.
        self._curvature, self._unexplored = np.zeros(len(points)), np.zeros(len(points))
        self._step_sizes = np.ones(len(points))
        self._directions = np.zeros_like(points)
        self._moved = np.ones(len(points), dtype=bool)  # since the directions were found

    def keep(self, which: NDArray[np.bool_]) -> None:
        """Drop all tasks but these."""
        for name in ("tasks", "points", "values", "gradients", "has_stalled"):
            setattr(self, name, getattr(self, name)[which])
        self._past_values = [values[which] for values in self._past_values]
        self._pairs = [(a[which], b[which], c[which], d[which]) for a, b, c, d in self._pairs]
        for name in ("_hessian_scaling", "_curvature", "_unexplored", "_step_sizes", "_moved"):
            setattr(self, name, getattr(self, name)[which])
        self._directions, self._conditioned = self._directions[which], self._conditioned[which]

    def renew(self, inverse_hessian: FloatArray) -> None:
        """Go on with another inverse Hessian."""
        self._problem = replace(self._problem, inverse_hessian=inverse_hessian)
        self._conditioned = self._problem.precondition(self.gradients, self.tasks)
        self._pairs = [
            (change, gradients, self._problem.precondition(gradients, self.tasks), inverse)
            for change, gradients, _, inverse in self._pairs
        ]
        self._step_sizes[:], self._moved[:] = 1.0, True

    def gaps(self) -> tuple[FloatArray, FloatArray]:
        """Return an estimate of the suboptimality, and a bound on it.

        The estimate is the largest of several, and at most the bound.

        One is half the squared Newton decrement under the L-BFGS model, exact for a quadratic that
        the model has learnt; it is infinite before the first pair, which measures the curvature.
        The others extrapolate the decrease of the last 5, 10, 20, ... steps geometrically (Aitken).
        They detect a model that is too stiff and, over the longer spans, a falling rate of
        decrease. The bound is that of strong convexity, or the value.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            missing = 1.0 / self._curvature - 1.0 / self._hessian_scaling
            missing = np.where(self._unexplored > 0, self._unexplored * missing, 0.0)
            missing = np.maximum(missing, 0.0)
        estimates = 0.5 * (missing - _dot(self.gradients, self._directions))
        remaining = remaining_decrease(self._past_values, self._policy.rate_span)
        estimates = np.maximum(estimates, remaining)
        bounds = self._problem.strong_convexity_bounds(self.gradients, self.points, self.tasks)
        bounds = np.minimum(bounds, self.values)
        return np.minimum(estimates, bounds), bounds

    def steps(self) -> FloatArray:
        """Return the steps to the trial points."""
        return self._step_sizes[:, np.newaxis] * self._directions

    def update(self, values: FloatArray, gradients: FloatArray) -> None:
        """Accept the trial points, which have these values and gradients, or shorten the steps."""
        policy, change = self._policy, self.steps()
        slopes = _dot(self.gradients, self._directions)
        decreases = values <= self.values + policy.sufficient_decrease * self._step_sizes * slopes
        # Where rounding hides the decrease, the slope along the step shows it: F is convex.
        is_equal = values <= self.values + 4 * self._eps * np.abs(self.values)
        is_flatter = np.abs(_dot(gradients, self._directions)) <= 0.9 * np.abs(slopes)
        accepted = self._moved = decreases | (is_equal & is_flatter)
        self._backtrack(~accepted, values, slopes)
        if accepted.any():
            # Usually all tasks move, and slices avoid copies.
            moved: Any = slice(None) if accepted.all() else accepted
            gradient_change = np.zeros_like(gradients)
            gradient_change[moved] = gradients[moved] - self.gradients[moved]
            self.points[moved] += change[moved]
            self.values = np.where(accepted, values, self.values)
            self.gradients[moved] = gradients[moved]
            self._add_pair(accepted, change, gradient_change)
            self._step_sizes[moved] = 1.0
        self._past_values.append(self.values)
        if len(self._past_values) > policy.max_idle_steps:
            self.has_stalled |= self._past_values[-1 - policy.max_idle_steps] <= self.values

    def _add_pair(
        self, accepted: NDArray[np.bool_], change: FloatArray, gradient_change: FloatArray
    ) -> None:
        """Keep a correction pair; it is zero for tasks that have not moved.

        P⁻¹ is applied to the gradients alone: the rest are differences of such products.
        """
        before = self._conditioned
        self._conditioned = self._problem.precondition(self.gradients, self.tasks)
        policy, product = self._policy, _dot(change, gradient_change)
        size = np.linalg.norm(change, axis=1) * np.linalg.norm(gradient_change, axis=1)
        usable = accepted & (product > self._eps * size)
        if not usable.any():
            return
        inverse = np.divide(1.0, product, out=np.zeros_like(product), where=usable)
        is_small = len(self.tasks) < policy.many_tasks
        memory = policy.memory if is_small else policy.memory_of_many_tasks
        conditioned = self._conditioned - before
        self._pairs = [*self._pairs[1 - memory :], (change, gradient_change, conditioned, inverse)]
        curvature = inverse * _dot(gradient_change, conditioned)
        self._curvature = np.where(usable, curvature, self._curvature)
        if self._problem.inverse_hessian is None:  # a Hessian needs no scaling
            scaling = np.maximum(curvature, policy.min_hessian_scaling)
            self._hessian_scaling = np.where(usable, scaling, self._hessian_scaling)

    def find_directions(self) -> None:
        """Set the L-BFGS directions of the tasks that have moved, by the two-loop recursion."""
        if not self._moved.any():
            return
        changes, gradient_changes, conditioned, inverses = (
            [pair[k] for pair in self._pairs] for k in range(4)
        )
        inverse = np.array(inverses).reshape(-1, len(self.tasks))
        remaining, factors = -self.gradients, np.zeros_like(inverse)
        newest_first = np.ascontiguousarray(inverse[::-1])
        _kernels.lbfgs_loop(changes[::-1], gradient_changes[::-1], newest_first, factors, remaining)
        directions = -self._conditioned  # plus the same multiples of P⁻¹y: P⁻¹ times the rest
        newest = conditioned[::-1]
        _kernels.lbfgs_loop(newest, newest, np.zeros_like(factors), factors, directions)
        self._unexplored = _dot(remaining, directions)
        directions /= self._hessian_scaling[:, np.newaxis]
        factors = np.negative(factors[::-1])
        _kernels.lbfgs_loop(gradient_changes, changes, inverse, factors, directions)
        moved: Any = slice(None) if self._moved.all() else self._moved
        self._directions[moved] = directions[moved]

    def _backtrack(self, which: NDArray[np.bool_], values: FloatArray, slopes: FloatArray) -> None:
        """Shorten steps to the minimiser of the interpolating parabola, by a factor of 2 to 10."""
        steps = self._step_sizes
        excess = values - self.values - steps * slopes
        best = np.divide(
            -0.5 * slopes * steps**2, excess, out=np.zeros_like(excess), where=excess > 0
        )
        self._step_sizes = np.where(which, np.clip(best, 0.1 * steps, 0.5 * steps), steps)
        self.has_stalled |= self._step_sizes < self._policy.min_step_size
