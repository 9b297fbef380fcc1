r"""Preconditioned L-BFGS for joint tasks, with all arrays on the device of the rows.

A thousand classes have as many coefficients as some millions of rows have labels: the steps of
`_numpy_lbfgs`, in NumPy, then take longer than a pass over rows on a GPU. Here points, gradients
and correction pairs are float64 arrays of shape (n_columns + 1, n_classes) where the rows are, and
a few numbers of each step are copied. Tasks are solved one after the other.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from marginpursuit._namespaces import namespace, to_numpy
from marginpursuit._validation import FloatArray
from marginpursuit.design import Linear, Standardisation
from marginpursuit.solvers._numpy_lbfgs import remaining_decrease
from marginpursuit.solvers._problem import Problem, Progress, Solution, Status
from marginpursuit.tasks import JointTasks

__all__ = ["minimise_on_device"]


def minimise_on_device(
    problem: Problem, *, n_confirmations: int, tol: FloatArray | float | None = None
) -> Solution:
    """Minimise the objective of each joint task.

    Parameters
    ----------
    problem : Problem
        Joint tasks, whose rows are in an `ArrayDesign`, prepared with a Gram matrix.
    n_confirmations : int
        Consecutive estimates of the gap that must meet the tolerance.
    tol : float or ndarray of shape (n_tasks,), optional
        Tolerances of the tasks; by default that of the problem.

    Returns
    -------
    Solution
        The minimisers, in NumPy.
    """
    tolerances = np.broadcast_to(problem.tol if tol is None else tol, len(problem.tasks))
    found = [
        _minimise(_Objective.of(problem, task), problem, float(tolerance), n_confirmations)
        for task, tolerance in enumerate(tolerances)
    ]
    coef = np.concatenate([each.linear[0] for each in found], axis=1)
    intercept = np.concatenate([each.linear[1] for each in found])
    return Solution(
        (coef, intercept),
        np.concatenate([each.value for each in found]),
        np.concatenate([each.gap for each in found]),
        Status.worst(each.status for each in found),
        max(each.n_iter for each in found),
        tuple(step for each in found for step in each.history),
        is_proven=all(each.is_proven for each in found),
    )


@dataclass(frozen=True)
class _Objective:
    """Objective, gradient and preconditioner of one joint task, for points on the device."""

    xp: Any
    problem: Problem
    tasks: JointTasks  # the task
    standardisation: Standardisation  # on the device
    penalty: Any  # (n_columns, 1), α u
    inverse: Any  # of the preconditioner, (n_columns + 1, n_columns + 1)
    start: Any  # (n_columns + 1, n_classes)
    objective_floor: float  # suboptimality is relative to max(objective, this)

    @classmethod
    def of(cls, problem: Problem, task: int) -> "_Objective":
        """Copy what the objective of a task needs to the device."""
        prepared, to_device = problem.prepared, problem.prepared.design.to_device
        which = np.array([task])
        tasks = problem.tasks.take(which)
        assert isinstance(tasks, JointTasks)
        own = slice(task * tasks.n_classes, (task + 1) * tasks.n_classes)
        coef, intercept = problem.start[0][:, own], problem.start[1][own]
        point = [coef, intercept[np.newaxis]] if prepared.fit_intercept else [coef]
        curvature = float(tasks.curvature()[0])
        alpha = float(problem.alphas[task])
        inverse = prepared.preconditioner.inverse(alpha / curvature) / curvature
        z = prepared.standardisation
        return cls(
            namespace(to_device(intercept)),
            problem,
            tasks,
            Standardisation(to_device(z.mean), to_device(z.inverse_deviation)),
            to_device(problem.penalty[task][:, np.newaxis]),
            to_device(inverse),
            to_device(np.concatenate(point)),
            float(problem.relative_to(0.0)[task]),
        )

    def __call__(self, point: Any) -> tuple[float, Any]:
        """Return value and gradient at a point, in one pass over the data."""
        xp, prepared = self.xp, self.problem.prepared
        coef, intercept = self.split(point)
        sweep = prepared.design.sweep(coef, intercept, self.tasks, self.standardisation)
        shrinkage = self.penalty * coef
        value = float(sweep.value[0]) + 0.5 * float(xp.sum(coef * shrinkage))
        gradient: Any = sweep.gradient + shrinkage
        if prepared.fit_intercept:
            gradient = xp.concat([gradient, sweep.slope[None, :]], axis=0)
        return value, gradient

    def split(self, point: Any) -> tuple[Any, Any]:
        """Return coefficients and intercepts of a point."""
        n_columns = self.problem.prepared.design.n_columns
        if self.problem.prepared.fit_intercept:
            return point[:n_columns, :], point[n_columns, :]
        return point, point[0, :] * 0.0

    def bound(self, gradient: Any, point: Any) -> float:
        """Bound the suboptimality by strong convexity (`Problem.strong_convexity_bounds`)."""
        xp, tiny = self.xp, float(np.finfo(np.float64).tiny)
        coef, slope = self.split(gradient)
        terms = coef**2 / (self.penalty + tiny)
        distances = float(self.tasks.losses[0].margin) + xp.abs(self.split(point)[1])
        return 0.5 * float(xp.sum(terms)) + float(xp.sum(xp.abs(slope) * distances))


@dataclass
class _Pairs:
    """Correction pairs (s, y, 1/sᵀy), the newest last, and the scaling of the preconditioner."""

    memory: int
    min_scaling: float
    pairs: list[tuple[Any, Any, Any]] = field(default_factory=list)
    scaling: Any = 1.0  # yᵀP⁻¹y / yᵀs of the newest pair

    def add(self, objective: _Objective, change: Any, gradient_change: Any) -> None:
        """Add a pair unless its product is not positive."""
        xp = objective.xp
        product = float(xp.sum(change * gradient_change))
        size = float(xp.sum(change**2)) * float(xp.sum(gradient_change**2))
        if product <= np.finfo(np.float64).eps * size**0.5:
            return
        self.pairs = [*self.pairs[1 - self.memory :], (change, gradient_change, 1.0 / product)]
        conditioned = xp.matmul(objective.inverse, gradient_change)
        scaling = float(xp.sum(gradient_change * conditioned)) / product
        self.scaling = max(scaling, self.min_scaling)

    def direction(self, objective: _Objective, gradient: Any) -> Any:
        """Return the search direction by the two-loop recursion."""
        xp, remaining, factors = objective.xp, gradient, []
        for change, gradient_change, inverse in reversed(self.pairs):
            factors.append(inverse * xp.sum(change * remaining))
            remaining = remaining - factors[-1] * gradient_change
        result = xp.matmul(objective.inverse, remaining) / self.scaling
        for (change, gradient_change, inverse), factor in zip(
            self.pairs, reversed(factors), strict=True
        ):
            result = result + (factor - inverse * xp.sum(gradient_change * result)) * change
        return -result


def _minimise(
    objective: _Objective, problem: Problem, tol: float, n_confirmations: int
) -> Solution:
    """Minimise the objective of one task."""
    xp, policy = objective.xp, problem.policy.lbfgs
    pairs = _Pairs(policy.memory, policy.min_hessian_scaling)
    point, (value, gradient) = objective.start, objective(objective.start)
    values, history, n_met = [value], list[Progress](), 0
    while True:
        direction = pairs.direction(objective, gradient)
        slope = float(xp.sum(gradient * direction))
        reference = max(value, objective.objective_floor)
        bound = objective.bound(gradient, point) / reference
        remaining = float(remaining_decrease(values, policy.rate_span))
        gap = min(max(-0.5 * slope, remaining) / reference, bound)
        n_passes = problem.prepared.design.n_passes
        history.append(Progress(len(history), n_passes, value, gap))
        problem.notify(history[-1])
        n_met = n_met + 1 if gap <= tol else 0
        # The first direction has no measured curvature.
        if bound <= tol or (n_met >= n_confirmations and pairs.pairs):
            status = Status.CONVERGED
            break
        if len(history) > problem.max_iter:
            status = Status.MAX_ITER
            break
        found = _step(objective, point, value, direction, slope)
        if found is None:
            status = Status.CONVERGED if gap <= tol else Status.ROUNDING
            break
        change, value, new_gradient = found
        pairs.add(objective, change, new_gradient - gradient)
        point, gradient = point + change, new_gradient
        values.append(value)
    coef, intercept = (to_numpy(part) for part in objective.split(point))
    linear: Linear = (coef, intercept)
    n_iter, proven = history[-1].iteration, bound <= tol
    one = np.array([value]), np.array([gap])
    return Solution(linear, *one, status, n_iter, tuple(history), is_proven=proven)


def _step(
    objective: _Objective, point: Any, value: float, direction: Any, slope: float
) -> tuple[Any, float, Any] | None:
    """Backtrack to a sufficient decrease; None where rounding hides any decrease.

    Returns the change of the point, and value and gradient there. A value that equals the last one
    up to rounding is accepted where the slope along the step is flatter: the objective is convex.
    """
    xp, policy = objective.xp, objective.problem.policy.lbfgs
    rounding = 10.0 * objective.problem.prepared.design.rounding * abs(value)
    size = 1.0
    while size >= policy.min_step_size:
        change = size * direction
        new_value, new_gradient = objective(point + change)
        if new_value <= value + policy.sufficient_decrease * size * slope:
            return change, new_value, new_gradient
        if new_value <= value + rounding:
            is_flatter = abs(float(xp.sum(new_gradient * direction))) <= 0.9 * abs(slope)
            return (change, new_value, new_gradient) if is_flatter else None
        excess = new_value - value - size * slope
        best = -0.5 * slope * size**2 / excess if excess > 0 else 0.0
        size = min(max(best, 0.1 * size), 0.5 * size)
    return None
