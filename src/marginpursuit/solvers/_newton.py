"""Newton steps for what the quasi-Newton method leaves unfinished.

Where overconfidence and scale are small, few rows have curvature and the Gram matrix is far from
the Hessian. The Hessian itself is then cheap, since it sums over those rows alone. The curvature of
a row is averaged over as far as the last step has moved its score, to both sides, so that a row
which is about to reach or to leave the curved part of the loss counts in time. Along a step the
scores are a straight line, so the line search costs no read. The force of a row beyond the curved
part stays as it is: what the forces pull with is kept, and only rows whose force changes are read
for it. So a step costs one read of all rows, for the scores, and the Hessian of few.
"""

import numpy as np
from scipy.linalg import LinAlgError, cho_solve

from marginpursuit._validation import FloatArray
from marginpursuit.solvers._single import SingleProblem

# The shortest distance to average over, in units of the scale; differences keep enough digits.
_SHORTEST_REACH = 1e-6

# The line search ends where the slope has fallen to this share, or after so many trials.
_FLAT = 0.1
_MOST_TRIALS = 20


class NewtonDescent:
    """A descent from a point on; `step` goes one step further.

    `gap` bounds the suboptimality by the forces that the rows would have after a full step. Those
    balance, and where none leaves its bounds the gap is half the squared Newton decrement, which
    `decrement` is in any case: an estimate that does not count forces out of bounds.
    """

    def __init__(self, problem: SingleProblem, point: FloatArray) -> None:
        self._problem = problem
        self.point, self._scores = point, problem.score(point)
        self.value, self.stalled = problem.value(point, self._scores), False
        self._force = -problem.loss.derivative(problem.sign * self._scores)
        self._pull = problem.pull(self._force)
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
        try:
            factor = problem.factorise(curvature)
        except LinAlgError:  # singular to rounding
            self.stalled, self._gap, self.decrement = True, self.value, self.value
            return
        descent = self._pull - problem.penalty * self.point
        self._direction = cho_solve(factor, descent)
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
        # Where a row has no curvature, its force stays, and takes nothing from the bound.
        curved = np.flatnonzero(self._curvature)
        force, change = self._force[curved], problem.sign[curved] * self._change[curved]
        wanted = force - self._curvature[curved] * change
        possible = np.clip(problem.side * wanted, 0.0, problem.most_force)
        # Clipping leaves forces out of balance, and so does what a singular Hessian cannot undo.
        difference = np.zeros_like(self._force)
        difference[curved] = (problem.side * possible).sum(axis=0) - force
        pull = self._pull + problem.pull(difference)
        imbalance = pull - problem.penalty * (self.point + self._direction)
        gap = problem.gap(self._scores, possible, imbalance, curved)
        return min(self.value, gap + 0.5 * float(problem.penalty @ self._direction**2))

    def _search(self) -> float:
        """Find a length at which the slope along the step is nearly zero, by false position."""
        problem, direction, change = self._problem, self._direction, self._change
        factors = problem.weights * problem.sign * change
        pull, stiffness = problem.penalty * direction @ self.point, problem.penalty @ direction**2

        def slope_at(length: float) -> float:
            margins = problem.sign * (self._scores + length * change)
            return float(factors @ problem.loss.derivative(margins) + pull + length * stiffness)

        def is_lower(length: float) -> bool:
            ahead = problem.value(self.point + length * direction, self._scores + length * change)
            return ahead <= self.value

        low, slope_low, high, slope_high = 0.0, self._slope, np.inf, np.inf
        length = 1.0
        for _ in range(_MOST_TRIALS):
            slope = slope_at(length)
            # Where the slope jumps up soon, it may be flat beyond, and the value above that here.
            if abs(slope) <= _FLAT * abs(self._slope) and is_lower(length):
                break
            if slope < 0:
                low, slope_low = length, slope
            else:
                high, slope_high = length, slope
            if high == np.inf:
                length = 4.0 * length
            else:
                share = slope_low / (slope_low - slope_high)
                length = low + (high - low) * float(np.clip(share, 0.1, 0.9))
        # Up to `low` the slope is negative, so there the value has not risen.
        return length if is_lower(length) else low
