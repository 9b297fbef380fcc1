"""Line searches: backtracking to a sufficient decrease, and exact along a convex function.

Scores are linear in the step size t, so that neither search passes over the data.
"""

from collections.abc import Callable
from typing import Protocol

import numpy as np

from marginpursuit._validation import FloatArray
from marginpursuit.solvers._single_task import SingleTask


class Line(Protocol):
    """A function of the step size t."""

    def value(self, step: float) -> float:
        """Return f(t), up to a constant."""

    def derivative(self, step: float) -> float:
        """Return f'(t)."""


def backtrack(
    value_at: Callable[[float], float],
    value: float,
    slope: float,
    *,
    first: float = 1.0,
    sufficient_decrease: float = 1e-4,
    max_halvings: int = 40,
) -> tuple[float, float]:
    """Halve the step size until f(t) < f(0) + c t f'(0) (Armijo's condition).

    `value` and `slope` are f(0) and f'(0), `first` is the first step size, and c is
    `sufficient_decrease`, as in Nocedal and Wright, *Numerical Optimization*, section 3.1; 0
    accepts any decrease. Returns the step size and f there; 0 and f(0) if no step size satisfies
    the condition. 2⁻⁴⁰ is below the rounding of most directions.
    """
    step = first
    for _ in range(max_halvings):
        found = value_at(step)
        if found < value + sufficient_decrease * step * slope:
            return step, found
        step *= 0.5
    return 0.0, value


def expand(
    value_at: Callable[[float], float], step: float, value: float, *, max_doublings: int = 60
) -> tuple[float, float]:
    """Double a step size of this value as long as the value falls; return both."""
    for _ in range(max_doublings):
        further = value_at(2.0 * step)
        if not further < value:
            break
        step, value = 2.0 * step, further
    return step, value


def exact_step(
    line: Line, slope: float, *, flatness: float = 0.1, max_evaluations: int = 20
) -> float:
    """Return a step size at which the derivative of a convex function is nearly zero.

    False position in the Illinois variant, from a first step size of 1, which Newton's method
    accepts close to the minimiser. Brackets shrink by at least a tenth in each evaluation of f', of
    which there are at most `max_evaluations`. The search ends where |f'(t)| ≤ flatness · |f'(0)|
    and f(t) ≤ f(0); `slope` is f'(0) < 0.
    """
    low, slope_low, high, slope_high = 0.0, slope, np.inf, np.inf
    step, last, start = 1.0, 0.0, line.value(0.0)
    for _ in range(max_evaluations):
        current = line.derivative(step)
        # The derivative may jump between 0 and t: then it can be small where f(t) > f(0).
        if abs(current) <= flatness * abs(slope) and line.value(step) <= start:
            return step
        # Illinois: the derivative at an end of the bracket that stays twice is halved.
        retained = 0.5 if current * last > 0 else 1.0
        if current < 0:
            low, slope_low, slope_high = step, current, retained * slope_high
        else:
            high, slope_high, slope_low = step, current, retained * slope_low
        last = current
        if high == np.inf:
            step = 4.0 * step
        else:
            fraction = slope_low / (slope_low - slope_high)
            step = low + (high - low) * float(np.clip(fraction, 0.1, 0.9))
    # f' < 0 on [0, low], so that f(low) ≤ f(0).
    return step if line.value(step) <= start else low


class TaskLine:
    """The objective of a task along a direction.

    The quadratic part is q(t) = q(0) + a t + ½ b t². Value and derivative are computed together;
    those of the last step size are kept.
    """

    def __init__(
        self,
        task: SingleTask,
        point: FloatArray,
        scores: FloatArray,
        direction: FloatArray,
        score_change: FloatArray,
    ) -> None:
        self._task, self._scores, self._change = task, scores, score_change
        gradient = task.quadratic_gradient(point)
        self._linear = float(gradient @ direction)
        self._square = float((task.quadratic_gradient(point + direction) - gradient) @ direction)
        self._last = np.nan, np.nan, np.nan  # step size, value, derivative

    def value(self, step: float) -> float:
        """Return the objective, less the quadratic part at t = 0."""
        return self._at(step)[1] + step * (self._linear + 0.5 * step * self._square)

    def derivative(self, step: float) -> float:
        """Return the derivative of the objective."""
        return self._at(step)[2] + self._linear + step * self._square

    def _at(self, step: float) -> tuple[float, float, float]:
        """Return step size, sum of the losses and its derivative."""
        if step != self._last[0]:
            self._last = (step, *self._task.line(self._scores, self._change, step))
        return self._last
