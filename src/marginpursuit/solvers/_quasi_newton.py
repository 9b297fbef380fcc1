"""Preconditioned L-BFGS for several problems that share every read of the data.

Each problem keeps a state of its own (point, gradient, memory, step); each read evaluates the
trial points of all problems that are not finished. The preconditioner is the initial inverse
Hessian, so its quality decides the number of reads.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from marginpursuit._validation import FloatArray
from marginpursuit.solvers._problem import Problem, Progress, Solution, Status, relative_to

_EPS = float(np.finfo(np.float64).eps)

# Curvature pairs that are remembered. More did not lower the number of reads on the benchmark sets.
_MEMORY = 20

_SUFFICIENT_DECREASE = 1e-4
_SHORTEST_STEP = 1e-10

# Steps without any decrease after which there is none to come.
_IDLE_STEPS = 20

# The share of the tolerance at which one estimate of the gap is enough.
_FAR_BELOW = 1e-3

# The fewest steps whose decreases are compared to estimate the decrease still to come.
_SHORTEST_SPAN = 5


def minimise(problem: Problem, *, times: int = 1) -> Solution:
    """Minimise the objective of every problem, sharing the reads.

    A problem is finished when its estimated gap meets the tolerance so many times in a row, or is
    far below it.
    """
    names = problem.labels.problems
    points = join(problem, *problem.start)
    values, gradients = evaluate(problem, points, names)
    states = [
        _Descent(points[:, k], float(values[k]), gradients[:, k], problem.geometry.precondition)
        for k in range(len(names))
    ]
    history: list[Progress] = []
    met = np.zeros(len(names), dtype=int)
    while True:
        values = np.array([state.value for state in states])
        gaps = np.array([state.gap for state in states]) / relative_to(problem.loss, values)
        reads = problem.geometry.design.n_reads
        history.append(Progress(len(history), reads, float(values.mean()), float(gaps.max())))
        problem.report(history[-1])
        met = np.where(gaps <= problem.tol, met + 1, 0)
        unfinished = (met < times) & (gaps > _FAR_BELOW * problem.tol)
        unfinished &= [not state.stalled for state in states]
        if not unfinished.any() or len(history) > problem.max_iter:
            break
        running = np.flatnonzero(unfinished)
        trials = np.column_stack([states[k].trial for k in running])
        trial_values, gradients = evaluate(problem, trials, names[running])
        for column, k in enumerate(running):
            states[k].advance(float(trial_values[column]), gradients[:, column])

    status = Status.CONVERGED
    if unfinished.any():
        status = Status.MAX_ITER
    elif np.any(gaps > problem.tol):
        status = Status.ROUNDING
    found = part(problem, np.column_stack([state.point for state in states]))
    return Solution(found, values, gaps, status, history[-1].iteration, tuple(history))


def evaluate(
    problem: Problem, points: FloatArray, names: NDArray[np.intp]
) -> tuple[FloatArray, FloatArray]:
    """Return the objective and its gradient at one point (a column) for each named problem."""
    geometry = problem.geometry
    coef, intercept = part(problem, points)
    sweep = geometry.design.sweep(
        coef, intercept, problem.loss, problem.labels, names, problem.weights
    )
    pull = (coef.T * geometry.penalty).T
    value = sweep.value + 0.5 * np.sum(coef * pull, axis=0)
    return value, join(problem, sweep.gradient + pull, sweep.slope)


def join(problem: Problem, coef: FloatArray, intercept: FloatArray) -> FloatArray:
    """Put coefficients and intercepts into points, one a column."""
    return np.vstack([coef, intercept]) if problem.geometry.fit_intercept else coef


def part(problem: Problem, points: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Invert `join`."""
    if problem.geometry.fit_intercept:
        return points[:-1], points[-1]
    return points, np.zeros(points.shape[1])


@dataclass(slots=True)
class _Descent:
    """The state of one problem; `trial` is where it wants to be evaluated next."""

    point: FloatArray
    value: float
    gradient: FloatArray
    precondition: Callable[[FloatArray], FloatArray]
    stalled: bool = False
    _values: list[float] = field(default_factory=list)
    _direction: FloatArray = field(init=False)
    _step: float = field(init=False)
    _pairs: list[tuple[FloatArray, FloatArray, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._turn()

    @property
    def trial(self) -> FloatArray:
        """The next point to evaluate."""
        return self.point + self._step * self._direction

    @property
    def gap(self) -> float:
        """Estimated suboptimality, the largest of several estimates but not above the value.

        Half the squared Newton decrement under the quasi-Newton model, exact for a quadratic that
        the model has learnt; and what is still to come if the decrease of the last 5, 10, 20, ...
        steps goes on at its rate (Aitken's extrapolation), which notices where the model is too
        stiff, and at the longer spans where the rate itself falls.
        """
        estimate = -0.5 * float(self.gradient @ self._direction)
        span = _SHORTEST_SPAN
        while 2 * span < len(self._values):
            start, middle, end = self._values[-1 - 2 * span :: span]
            before, after = start - middle, middle - end
            if after > 4 * _EPS * self.value:
                rate = after**2 / (before - after) if after < before else np.inf
                estimate = max(estimate, rate)
            span *= 2
        return min(estimate, self.value)

    def advance(self, value: float, gradient: FloatArray) -> None:
        """Take the evaluation of `trial`: move there, or shorten the step."""
        slope = float(self.gradient @ self._direction)
        enough = value <= self.value + _SUFFICIENT_DECREASE * self._step * slope
        # Where rounding hides the decrease, the slope still shows it: the function is convex.
        same = value <= self.value + 4 * _EPS * abs(self.value)
        flatter = same and abs(float(gradient @ self._direction)) <= 0.9 * abs(slope)
        if not (enough or flatter):
            self._shorten(value, slope)
            return
        change, bend = self._step * self._direction, gradient - self.gradient
        product = float(change @ bend)
        if product > _EPS * float(np.linalg.norm(change) * np.linalg.norm(bend)):
            self._pairs = [*self._pairs[1 - _MEMORY :], (change, bend, 1.0 / product)]
        self.point, self.value, self.gradient = self.point + change, value, gradient
        self._turn()

    def _turn(self) -> None:
        """Set the direction at the current point by the two-loop recursion."""
        direction = -self.gradient
        factors = []
        for change, bend, inverse in reversed(self._pairs):
            factors.append(inverse * float(change @ direction))
            direction = direction - factors[-1] * bend
        direction = self.precondition(direction)
        if self._pairs:
            _, bend, inverse = self._pairs[-1]
            direction = direction / (inverse * float(bend @ self.precondition(bend)))
        for (change, bend, inverse), factor in zip(self._pairs, reversed(factors), strict=True):
            direction = direction + (factor - inverse * float(bend @ direction)) * change
        self._direction, self._step = direction, 1.0
        self._values.append(self.value)
        idle = len(self._values) > _IDLE_STEPS and self._values[-1 - _IDLE_STEPS] <= self.value
        self.stalled = idle

    def _shorten(self, value: float, slope: float) -> None:
        # The minimiser of the parabola through what is known, within safe bounds.
        excess = value - self.value - self._step * slope
        best = -0.5 * slope * self._step**2 / excess if excess > 0 else 0.0
        self._step = float(np.clip(best, 0.1 * self._step, 0.5 * self._step))
        self.stalled = self._step < _SHORTEST_STEP
