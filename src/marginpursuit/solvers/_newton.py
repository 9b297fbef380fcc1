"""Newton steps for what the quasi-Newton method leaves unfinished.

Where overconfidence and scale are small, few rows have curvature and the Gram matrix is far from
the Hessian. The Hessian itself is then cheap, since it sums over those rows alone. The curvature of
a row is averaged over as far as the last step has moved its score, to both sides, so that a row
which is about to reach or to leave the curved part of the loss counts in time. Along a step the
scores are a straight line, so the line search costs no read. The force of a row beyond the curved
part stays as it is: what the forces pull with is kept, and only rows whose force changes are read
for it. So a step costs one read of all rows, for the scores, and the Hessian of few.

Two things make that cheaper. Where rows with curvature are few beside the columns that they have to
determine, which rows these are changes by few a step: `_System` keeps the factor of an earlier
Hessian. Where they are many, those near the curved part decide on the next steps: `NearDescent`
looks at the others only now and then.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_solve

from marginpursuit._validation import FloatArray
from marginpursuit.losses import TRUNCATION
from marginpursuit.solvers._single import NearProblem, SingleProblem

# The shortest distance to average over, in units of the scale; differences keep enough digits.
_SHORTEST_REACH = 1e-6

# Systems are solved by conjugate gradients where the curvatures, summed up, have changed by at most
# this share since a Hessian was factorised, in at most so many steps, up to this share.
_LITTLE_CHANGE, _MOST_PRODUCTS, _PRECISION = 0.5, 40, 0.1

# The line search ends where the slope has fallen to this share, or after so many trials.
_FLAT = 0.1
_MOST_TRIALS = 20

# Rows that are looked at: so many times those in the curved part of the loss, and for each column.
_GROWTH, _ROWS_PER_COLUMN = 3, 4

# How far the problem with these rows is solved: this share of what a step gains, or of the
# tolerance, in at most so many steps.
_COARSE, _WITHIN, _MOST_INNER_STEPS = 0.05, 0.1, 30

# The share of what a step has promised that it has to gain for these rows to be enough.
_LEAST_WORTH = 0.25


class NewtonDescent:
    """A descent from a point on; `step` goes one step further.

    `gap` bounds the suboptimality by the forces that the rows would have after a full step. Those
    balance, and where none leaves its bounds the gap is half the squared Newton decrement, which
    `decrement` is in any case: an estimate that does not count forces out of bounds.
    """

    def __init__(self, problem: SingleProblem, point: FloatArray) -> None:
        self._problem, self._system = problem, _System(problem)
        self.point, self._scores = point, problem.score(point)
        self.value, self.stalled = problem.value(point, self._scores), False
        self._force = -problem.loss.derivative(problem.sign * self._scores)
        self._pull = problem.pull(self._force) + problem.straight
        self._gap: float | None
        self._aim(np.zeros_like(self._scores))

    def step(self) -> None:
        """Go along the direction as long as the value falls."""
        length = self._search()
        self.point = self.point + length * self._direction
        self._scores = self._scores + length * self._change
        self.value = self._problem.value(self.point, self._scores)
        self.stalled = length == 0.0
        force = -self._problem.loss.derivative(self._problem.sign * self._scores)
        self._pull = self._pull + self._problem.pull(force - self._force)
        self._force = force
        self._aim(length * np.abs(self._change))

    def _aim(self, reach: FloatArray) -> None:
        """Set the direction from here, with curvatures averaged as far as `reach`."""
        problem, loss = self._problem, self._problem.loss
        margins = problem.sign * self._scores
        reach = np.maximum(reach, _SHORTEST_REACH * loss.scale)
        rise = loss.derivative(margins + reach) - loss.derivative(margins - reach)
        curvature = np.maximum(0.5 * rise / reach, 0.0)
        descent = self._pull - problem.penalty * self.point
        try:
            direction = self._system.solve(curvature, descent)
            # Forces balance, and prove a small gap, only if this is exact.
            if 0.5 * float(descent @ direction) <= problem.tolerance(self.value):
                direction = self._system.solve(curvature, descent, exactly=True)
        except LinAlgError:  # singular to rounding
            self.stalled, self._gap, self.decrement = True, self.value, self.value
            return
        self._direction = direction
        self._slope = -float(descent @ self._direction)
        self._change = problem.score(self._direction)
        self.decrement = -0.5 * self._slope
        self._curvature, self._gap = curvature, None

    @property
    def gap(self) -> float:
        """A bound on the suboptimality, computed when it is asked for."""
        if self._gap is None:
            self._gap = self._bound()
        return self._gap

    def _bound(self) -> float:
        """Bound the suboptimality by the forces after a full step."""
        problem = self._problem
        rows, wanted, target = self._ahead()
        possible = np.clip(problem.side * wanted, 0.0, problem.most_force)
        # Clipping leaves forces out of balance, and so does what a singular Hessian cannot undo.
        difference = np.zeros_like(self._force)
        difference[rows] = (problem.side * possible).sum(axis=0) - self._force[rows]
        pull = self._pull + problem.pull(difference)
        gap = problem.gap(self._scores, possible, pull - problem.penalty * target, rows)
        return min(self.value, gap + 0.5 * float(problem.penalty @ (target - self.point) ** 2))

    def _ahead(self) -> tuple[NDArray[np.intp], FloatArray, FloatArray]:
        """Return some rows, the forces that they want at the end of a full step, and that end.

        All others keep their force.
        """
        # Where a row has no curvature, its force stays, and takes nothing from the bound.
        curved = np.flatnonzero(self._curvature)
        change = self._problem.sign[curved] * self._change[curved]
        wanted = self._force[curved] - self._curvature[curved] * change
        return curved, wanted, self.point + self._direction

    def _search(self) -> float:
        """Find a length at which the slope along the step is nearly zero.

        This is false position in the Illinois variant.
        """
        line = _Line(self._problem, self.point, self._scores, self._direction, self._change)
        low, slope_low, high, slope_high = 0.0, self._slope, np.inf, np.inf
        length, before = 1.0, 0.0
        for _ in range(_MOST_TRIALS):
            slope = line.slope(length)
            # Where the slope jumps up soon, it may be flat beyond, and the value above that here.
            if abs(slope) <= _FLAT * abs(self._slope) and line.is_lower(length):
                break
            # An end that stays again counts as half as steep: else the other draws near slowly.
            stays = 0.5 if slope * before > 0 else 1.0
            if slope < 0:
                low, slope_low, slope_high = length, slope, stays * slope_high
            else:
                high, slope_high, slope_low = length, slope, stays * slope_low
            before = slope
            if high == np.inf:
                length = 4.0 * length
            else:
                share = slope_low / (slope_low - slope_high)
                length = low + (high - low) * float(np.clip(share, 0.1, 0.9))
        # Up to `low` the slope is negative, so there the value has not risen.
        return length if line.is_lower(length) else low


class _System:
    """Newton's linear systems, of which one is much like the one before.

    Where rows that are curved are few and columns many, most of a step goes into factorising the
    Hessian. So the factor of an earlier one is kept, and preconditions conjugate gradients, as long
    as these take few steps.
    """

    def __init__(self, problem: SingleProblem) -> None:
        self._problem = problem
        self._factor: Any = None
        self._curvature = np.zeros(len(problem.rows))  # of the factor

    def solve(
        self, curvature: FloatArray, right: FloatArray, *, exactly: bool = False
    ) -> FloatArray:
        """Solve for the Hessian with these curvatures; but for some per cent, unless exactly."""
        weights = self._problem.weights
        change = weights @ np.abs(curvature - self._curvature)
        if change > 0 and not exactly and change <= _LITTLE_CHANGE * (weights @ self._curvature):
            multiply = self._problem.multiply(curvature)
            found = multiply and self._conjugate_gradients(multiply, right)
            if found is not None:
                return found
        if self._factor is None or change > 0:
            self._factor, self._curvature = self._problem.factorise(curvature), curvature
        return np.asarray(cho_solve(self._factor, right, check_finite=False))

    def _conjugate_gradients(
        self, multiply: Callable[[FloatArray], FloatArray], right: FloatArray
    ) -> FloatArray | None:
        """Solve by conjugate gradients; None if that takes too many."""
        solution, residual = np.zeros_like(right), right
        direction, before, enough = np.zeros_like(right), np.inf, 0.0
        for step in range(_MOST_PRODUCTS + 1):
            ahead = cho_solve(self._factor, residual, check_finite=False)
            size = float(residual @ ahead)
            enough = enough if step else _PRECISION**2 * size
            if size <= enough:
                return solution
            direction = ahead + size / before * direction
            product = multiply(direction)
            length = size / float(direction @ product)
            solution, residual = solution + length * direction, residual - length * product
            before = size
        return None


class _Line:
    """The objective along a step.

    Without overconfidence a row that is above the level at both ends of a stretch is so between
    them, and costs nothing there: it is left out.
    """

    def __init__(
        self,
        problem: SingleProblem,
        point: FloatArray,
        scores: FloatArray,
        direction: FloatArray,
        change: FloatArray,
    ) -> None:
        self._loss, self._penalty = problem.loss, problem.penalty
        self._point, self._direction = point, direction
        self._straight = float(problem.straight @ direction)
        self._margins, self._changes = problem.sign * scores, problem.sign * change
        self._weights = problem.weights
        self._reach(1.0)

    def slope(self, length: float) -> float:
        """Return the derivative in the length."""
        slopes = self._loss.derivative(self._at(length))
        pull = self._penalty * (self._point + length * self._direction) @ self._direction
        return float(self._factors @ slopes + pull - self._straight)

    def is_lower(self, length: float) -> bool:
        """Whether the objective is no higher there than at the beginning."""
        return self._value(length) <= self._value(0.0)

    def _value(self, length: float) -> float:
        point = self._point + length * self._direction
        losses = self._some_weights @ self._loss.value(self._at(length))
        return float(losses + 0.5 * self._penalty @ point**2 - length * self._straight)

    def _at(self, length: float) -> FloatArray:
        """Return the margins of the rows that may cost something."""
        if length > self._longest:
            self._reach(length)
        return np.asarray(self._some_margins + length * self._some_changes)

    def _reach(self, length: float) -> None:
        """Choose the rows that may cost something up to this length."""
        self._longest, rows = length, np.arange(len(self._margins))
        if self._loss.overconfidence == 0:
            least = np.minimum(self._margins, self._margins + length * self._changes)
            rows = np.flatnonzero(least < self._loss.margin)
        self._some_margins, self._some_changes = self._margins[rows], self._changes[rows]
        self._some_weights = self._weights[rows]
        self._factors = self._some_weights * self._some_changes


class NearDescent(NewtonDescent):
    """A descent that looks at few rows, for losses without overconfidence.

    A step minimises the problem with only the rows near the curved part of the loss, all others
    taken for straight, by Newton steps that read no other rows. Its minimum bounds that of the
    whole from below. Once that has promised far more than there was to gain, other rows matter as
    much, and all steps from there on are plain.
    """

    def __init__(self, problem: SingleProblem, point: FloatArray) -> None:
        self._inner: NewtonDescent | None = None
        self._is_enough, self._worth = True, np.inf  # the value that a step is to get below
        super().__init__(problem, point)

    def _aim(self, reach: FloatArray) -> None:
        self._is_enough &= self.value <= self._worth
        if self._is_enough:
            self._aim_near()
        if not self._is_enough:
            self._inner = None
            super()._aim(reach)

    def _aim_near(self) -> None:
        """Set the direction to the minimiser of the problem with the rows that are near."""
        problem, near = self._problem, self._nearest()
        inner = NewtonDescent(NearProblem(problem, near, self._scores), self.point)
        least = _WITHIN * problem.tolerance(self.value)
        for _ in range(_MOST_INNER_STEPS):
            if inner.stalled or inner.decrement <= max(least, _COARSE * (self.value - inner.value)):
                break
            inner.step()
        if inner.stalled:
            self._is_enough = False
            return
        self._inner, self._near = inner, np.flatnonzero(near)
        self._direction = inner.point + inner._direction - self.point
        self._slope = -float((self._pull - problem.penalty * self.point) @ self._direction)
        self._change = problem.score(self._direction)
        self.decrement, self._gap = self.value - inner.value + inner.decrement, None
        self._worth = self.value - _LEAST_WORTH * self.decrement

    def _nearest(self) -> NDArray[np.bool_]:
        """Return which rows are in the curved part of the loss, or nearest to it."""
        loss, margins = self._problem.loss, self._problem.sign * self._scores
        half = 0.5 * TRUNCATION * loss.scale
        away = np.abs(margins - (loss.margin - half))
        curved = int(np.count_nonzero(away < half))
        number = max(_GROWTH * curved, _ROWS_PER_COLUMN * len(self.point))
        if number >= len(away):
            return np.ones(len(away), dtype=bool)
        return np.asarray(away <= np.partition(away, number)[number])

    def _ahead(self) -> tuple[NDArray[np.intp], FloatArray, FloatArray]:
        if self._inner is None:
            return super()._ahead()
        curved, wanted, target = self._inner._ahead()
        force = self._inner._force.copy()
        force[curved] = wanted
        return self._near, force, target
