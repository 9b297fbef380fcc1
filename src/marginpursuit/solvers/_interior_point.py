r"""Primal-dual interior-point method (Mehrotra) for one task whose loss has a conjugate.

Where the data are almost separable, few rows determine the minimiser, and Newton's method finds
these one at a time. An interior-point method approaches all of them at once, in about twenty steps,
each of which needs the Gram matrix of all rows.

The residual r of a side and its dual variable a in [0, B], with conjugate h of the loss, satisfy

.. math::

    r = h'(a) - s + t, \qquad a\,s = 0, \qquad (B - a)\,t = 0,

with slacks s > 0 where the loss is zero and t > 0 where its derivative is at the bound. The method
keeps a, B - a, s and t positive and drives both products to zero.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_solve

from marginpursuit._validation import FloatArray
from marginpursuit.solvers._single_task import SingleTask


@dataclass(frozen=True, slots=True)
class InteriorPointPolicy:
    """Constants of the interior-point method."""

    # The fraction of the step to the boundary (Nocedal and Wright, section 14.2).
    boundary_fraction: float = 0.99

    # The multiple of the estimated distance to the minimiser (`residual_cost`) in the bound on the
    # gap, as long as the dual residual is not zero.
    residual_safety: float = 100.0


class InteriorPoint:
    """Mehrotra's predictor-corrector method; `step` does one iteration.

    The dual arrays a, B - a, s and t are stacked to shape (4, n_sides, n_rows).

    Attributes
    ----------
    point, value : ndarray, float
        The best iterate and the objective there.
    gap : float
        The distance from `value` to a lower bound on the minimum.
    dual : ndarray of shape (n_sides, n_rows)
        The dual variables a of the last iterate.
    stalled : bool
        Whether rounding prevents further progress.
    """

    def __init__(self, task: SingleTask, point: FloatArray) -> None:
        self._task, self._policy = task, InteriorPointPolicy()
        self._iterate, self._scores = point, task.scores(point)
        sides, n_rows = task.sides, len(task.weights)
        self._state = np.empty((4, len(sides.sign), n_rows))
        self._state[:2] = 0.5 * sides.bound
        # The slacks take up the difference between residual and h'(a).
        excess = self._residuals() - sides.conjugate_derivative(self._state[0])
        self._state[2:] = np.maximum([-excess, excess], 0.0) + sides.level
        self._dual_residual = task.dual_residual(self._state[0], point)
        self.value, self.stalled = np.inf, False
        self._record()

    @property
    def decrement(self) -> float:
        """The expected decrease of the objective: the whole gap."""
        return self.gap

    @property
    def target(self) -> FloatArray:
        """The best point."""
        return self.point

    @property
    def dual(self) -> FloatArray:
        """The dual variables of the last iterate."""
        return np.asarray(self._state[0])

    def verified_gap(self) -> float:
        """Return the gap with the dual residual as it is, in one pass.

        The steps assume that their systems are solved exactly.
        """
        residual = self._task.dual_residual(self._state[0], self._iterate)
        return self.gap + self._task.residual_cost(residual, self._scores, 1.0)

    def find_direction(self) -> None:
        """Do nothing: the directions of a step share its factorisation."""

    def step(self) -> None:
        """Do one predictor and one corrector step with the same factorisation."""
        task, (dual, upper_distance, zero_slack, bound_slack) = self._task, self._state
        conjugate_slope = task.sides.conjugate_derivative(dual)
        slack_curvature = zero_slack / dual + bound_slack / upper_distance
        curvature = 1.0 / (task.sides.conjugate_curvature(conjugate_slope) + slack_curvature)
        try:
            factor = task.factorise(curvature.sum(axis=0))
        except LinAlgError:  # singular to working precision
            self.stalled = True
            return
        residual_error = self._residuals() - conjugate_slope
        system = _System(factor, curvature, residual_error)
        product = self._mean_product(self._state)
        *_, predictor = self._direction(system, np.zeros_like(self._state[2:]))
        ahead = self._mean_product(self._state + self._step_size(predictor) * predictor)
        # Mehrotra's centring parameter, (μ_affine / μ)³, and his second-order correction.
        targets = (ahead / product) ** 3 * product - predictor[:2] * predictor[2:]
        point, scores, change = self._direction(system, targets)
        size = self._step_size(change)
        self._iterate = self._iterate + size * point
        self._scores = self._scores + size * scores
        self._state += size * change
        self._dual_residual = (1.0 - size) * self._dual_residual  # linear in point and dual
        self._record()
        total = self._mean_product(self._state) * task.total_weight
        self.stalled = total <= self._rounding()

    def _record(self) -> None:
        """Keep the best point, and bound the gap."""
        task = self._task
        value = task.value(self._iterate, self._scores)
        if value < self.value:
            self.point, self.value = self._iterate, value
        gap = task.duality_gap(
            self._scores,
            self._state[0],
            self._dual_residual,
            safety=self._policy.residual_safety,
        )
        lower = max(task.lower_bound, value - gap)
        self.gap = max(self._rounding(), self.value - lower)

    def _rounding(self) -> float:
        return float(np.finfo(np.float64).eps) * (self.value - self._task.lower_bound)

    def _residuals(self) -> FloatArray:
        return self._task.sides.residual(self._task.sign * self._scores)

    def _direction(
        self, system: "_System", targets: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Solve for a zero dual residual and for the products `targets`, linearised.

        Returns the changes of the point, of its scores and of the stacked dual arrays.
        """
        task, (inner, slack) = self._task, (self._state[:2], self._state[2:])
        shift = system.residual_error + targets[0] / inner[0] - targets[1] / inner[1]
        dual = inner[0] + system.curvature * shift
        right = task.dual_residual(dual, self._iterate)
        point = cho_solve(system.factor, right)
        scores = task.scores(point)
        change = system.curvature * (shift - task.sides.sign * task.sign * scores)
        both = np.stack([change, -change])
        return point, scores, np.concatenate([both, (targets - slack * (inner + both)) / inner])

    def _step_size(self, change: FloatArray) -> float:
        """Return the largest step size, at most 1, that keeps all dual arrays positive."""
        fraction = self._policy.boundary_fraction
        return min(1.0, fraction / max(float(np.max(-change / self._state)), fraction))

    def _mean_product(self, state: FloatArray) -> float:
        """Return the weighted mean of the products a·s and (B - a)·t; inactive rows have none."""
        total = float(np.mean(state[:2] * state[2:], axis=(0, 1)) @ self._task.weights)
        return total / self._task.total_weight


@dataclass(frozen=True, slots=True)
class _System:
    """The Newton system of one iteration."""

    factor: Any  # of Q + Σ c_i (k⁺ + k⁻)_i x_i x_iᵀ
    curvature: FloatArray  # k = 1 / (h''(a) + s/a + t/(B - a))
    residual_error: FloatArray  # r - h'(a)
