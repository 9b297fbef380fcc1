r"""Algorithm 1 of the paper as printed: the reference that the other solvers are tested against.

.. math::

    w_{t+1} = w_t + \frac{s\,a}{n} \sum_i \psi\Bigl(\frac{\gamma - y_i \langle w_t, x_i\rangle}{s}
    \Bigr) y_i x_i

for T steps of one size a, without stopping rule or projection. The step must be below
2/(κ + v), v the mean of ‖x‖² and κ the strong convexity, a condition that the paper states only in
a proof (E17). Every κ ≥ 0 permits a < 2/v at most; the default 1/v is admissible for all, since
κ ≤ v. With an intercept or a penalty the gradient includes their terms, and v grows by 1 and by the
penalty.
"""

from typing import ClassVar

import numpy as np

from marginpursuit._validation import FloatArray
from marginpursuit.design import Standardisation
from marginpursuit.solvers._problem import (
    Prepared,
    Problem,
    Progress,
    Request,
    Solution,
    Status,
    mean_weights,
    request_unit,
)
from marginpursuit.solvers.preconditioners import ScalarPreconditioner

__all__ = ["SteepestDescentSolver", "prepare_raw"]


def prepare_raw(request: Request) -> Prepared:
    """Prepare to read the rows as they are.

    The negligible penalty, in the unit "column", counts as none, as in the paper.
    """
    design = request.design
    weights, _ = mean_weights(request)
    units = np.full((request.weights.shape[0], design.n_columns), 1.0)
    if request.unit == "column":
        units = np.zeros_like(units)
    elif request.unit != "absolute":
        standardisation = design.standardisation(weights, centred=request.fit_intercept)
        units = request_unit(request, standardisation) * standardisation.deviation**2
        units[:, standardisation.inverse_deviation == 0] = np.inf  # fixes constant columns at zero
    largest = float(np.max(units, where=np.isfinite(units), initial=0.0))
    identity = Standardisation.identity(design.n_columns)
    mean_square = design.mean_square(weights)
    preconditioner = ScalarPreconditioner(mean_square, largest, request.fit_intercept)
    return Prepared(*(design, identity, request.fit_intercept, units, preconditioner, identity))


class SteepestDescentSolver:
    """Steepest descent with a constant step size, for `max_iter` steps."""

    name: ClassVar[str] = "steepest"

    def supports(self, request: Request) -> str | None:
        """Return None, or why the request is not supported."""
        if request.is_joint:
            return request.needs_one_against_rest
        return request.lacks("curvature_bound")

    def prepare(self, request: Request) -> Prepared:
        """Read the rows as they are."""
        return prepare_raw(request)

    def solve(self, problem: Problem, step: float | None = None) -> Solution:
        """Take `max_iter` steps of steepest descent.

        Parameters
        ----------
        problem : Problem
            What to minimise.
        step : float, optional
            The step size a > 0; by default 1/v.

        Returns
        -------
        Solution
            The last iterate.

        Raises
        ------
        ValueError
            If no strong convexity makes the step admissible.
        """
        tasks = np.arange(len(problem.tasks))
        points = problem.join(*problem.start)
        limit = 2.0 * float(problem.precondition(np.ones_like(points), tasks).min())
        size = 0.5 * limit if step is None else step
        if not 0.0 < size < limit:
            raise ValueError(
                f"step must be in (0, {limit:g}), 2 over the mean of |x|²; got {step:g}"
            )
        history: list[Progress] = []
        decreases = np.zeros((problem.max_iter, len(tasks)))
        before = np.zeros(len(tasks))
        for iteration in range(problem.max_iter + 1):
            values, gradients = problem.value_and_gradient(points, tasks)
            passes = problem.prepared.design.n_passes
            history.append(Progress(iteration, passes, float(values.mean()), float("nan")))
            if iteration > 0:
                decreases[iteration - 1] = before - values
            before = values
            is_last = iteration == problem.max_iter
            points = points if is_last else points - size * gradients
            problem.tell(history[-1], None if is_last else points)
        gaps = _remaining_decrease(decreases) / problem.relative_to(values)
        return Solution(
            *(problem.split(points), values, gaps, Status.ALL_STEPS),
            *(problem.max_iter, tuple(history)),
        )


def _remaining_decrease(decreases: FloatArray) -> FloatArray:
    """Estimate what further steps would gain, from the decreases of the steps so far.

    The decreases are extrapolated as a geometric series, whose ratio is that of the last one to the
    one half-way. Few steps, or decreases at the level of rounding, give no ratio; then it is one
    half. The result has an entry for each task.
    """
    n_steps = len(decreases)
    last, half_way = decreases[-1], decreases[(n_steps - 1) // 2]
    is_falling = (half_way > last) & (last > 0)
    fraction = np.divide(last, half_way, out=np.full_like(last, 0.5), where=is_falling)
    ratio = fraction ** (1.0 / max(1, n_steps - 1 - (n_steps - 1) // 2))
    return np.asarray(np.maximum(last, 0.0) * ratio / (1.0 - ratio))
