r"""Algorithm 1 of the paper: as a function with every choice open, and as a solver.

.. math::

    w_{t+1} = w_t + \frac{s\,a}{n} \sum_i \psi\Bigl(\frac{\gamma - y_i \langle w_t, x_i\rangle}{s}
    \Bigr) y_i x_i

for T steps of one size a, without stopping rule or projection. `margin_pursuit_descent` takes these
steps for two classes. The solver takes them for all tasks of a problem, and is the reference that
the other solvers are tested against.

The step must be below 2/(κ + v), v the mean of ‖x‖² and κ the strong convexity, a condition that
the paper states only in a proof (E17). Every κ ≥ 0 permits a < 2/v at most; the default 1/v is
admissible for all, since κ ≤ v. With an intercept or a penalty the gradient includes their terms,
and v grows by 1 and by the penalty.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from marginpursuit._namespaces import to_numpy
from marginpursuit._validation import (
    FloatArray,
    count,
    positive,
    scalar,
)
from marginpursuit.design import MemoryDesign
from marginpursuit.location import variance_scale
from marginpursuit.losses import MarginLoss
from marginpursuit.solvers._problem import (
    Prepared,
    Problem,
    Progress,
    Request,
    Solution,
    Status,
)
from marginpursuit.solvers._raw_rows import checked_rows, checked_start, prepare_raw
from marginpursuit.tasks import Labels, Tasks

__all__ = [
    "DescentPath",
    "SteepestDescentSolver",
    "margin_pursuit_descent",
]


class SteepestDescentSolver:
    """Steepest descent with a constant step size, for `max_iter` steps."""

    name: ClassVar[str] = "steepest"
    supports_joint: ClassVar[bool] = False
    depends_on_units: ClassVar[bool] = True
    reads_factored_rows: ClassVar[bool] = False

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
        inverse = problem.precondition(np.ones_like(points), tasks)
        # The entries of constant columns are zero; where all are constant, any step is admissible.
        limit = 2.0 * (float(inverse.max()) or 1.0)
        size = 0.5 * limit if step is None else step
        if not 0.0 < size < limit:
            raise ValueError(
                f"step must be in (0, {limit:g}), 2 over the mean of |x|²; got {step!r}"
            )
        history: list[Progress] = []
        decreases = np.zeros((problem.max_iter, len(tasks)))
        before = np.zeros(len(tasks))
        iterates = enumerate(_iterates(problem, lambda t: size))
        for iteration, (points, values, gradients, ahead) in iterates:
            passes = problem.prepared.design.n_passes
            history.append(Progress(iteration, passes, float(values.mean()), float("nan")))
            if iteration > 0:
                decreases[iteration - 1] = before - values
            last, last_gradients, before = points, gradients, values
            problem.notify(history[-1], ahead)
        gaps = _gaps(problem, last, last_gradients, _geometric_tail(decreases))
        gaps = np.minimum(gaps, values) / problem.relative_to(values)
        return Solution(
            linear=problem.split(last),
            value=values,
            gap=gaps,
            status=Status.ALL_STEPS,
            n_iter=problem.max_iter,
            history=tuple(history),
        )


def _iterates(
    problem: Problem, size: Callable[[int], float]
) -> Iterator[tuple[FloatArray, FloatArray, FloatArray, FloatArray | None]]:
    """Yield each iterate, its values and gradients, and the next; None after `max_iter` steps.

    `size` returns the step size of step t = 0, 1, ....
    """
    tasks = np.arange(len(problem.tasks))
    points = problem.join(*problem.start)
    for t in range(problem.max_iter):
        values, gradients = problem.value_and_gradient(points, tasks)
        ahead = points - size(t) * gradients
        yield points, values, gradients, ahead
        points = ahead
    values, gradients = problem.value_and_gradient(points, tasks)
    yield points, values, gradients, None


def _gaps(
    problem: Problem, points: FloatArray, gradients: FloatArray, decreases: FloatArray
) -> FloatArray:
    """Estimate the suboptimality: by strong convexity, or without a penalty by the gradient.

    By convexity it is at most the inner product of the gradient with the way to the minimiser. In
    the norm of standardised columns that way is about as long as the root mean square of the
    scores, plus the level γ. The expected decrease of further steps is a lower estimate. Strong
    convexity is applied to centred columns: for others the minimiser of the intercept may be far.
    """
    tasks = np.arange(len(problem.tasks))
    design, weights = problem.prepared.design, problem.tasks.weights[0, :]
    centred = problem.prepared.fit_intercept
    standardisation = design.standardisation(weights, centred=centred)
    coef, intercept = problem.split(gradients)
    squared_norms = np.sum(standardisation.gradient(coef, intercept) ** 2, axis=0) + intercept**2
    scores = to_numpy(design.scores(*problem.split(points), problem.prepared.standardisation))
    distances = problem.levels + np.sqrt(to_numpy(weights) @ scores**2)
    centred_coef = coef - standardisation.mean[:, np.newaxis] * intercept
    centred_gradients = problem.join(centred_coef, intercept)
    # In centred coordinates the intercept is the mean of the scores.
    centred_points = problem.join(problem.split(points)[0], to_numpy(weights) @ scores)
    bounds = problem.strong_convexity_bounds(centred_gradients, centred_points, tasks)
    estimates = np.maximum(decreases, np.sqrt(squared_norms) * distances)
    return np.asarray(np.where(np.isfinite(bounds), bounds, estimates))


def _geometric_tail(decreases: FloatArray) -> FloatArray:
    """Estimate the decrease by all further steps, from the decreases of the steps so far.

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


@dataclass(frozen=True, slots=True)
class DescentPath:
    """All iterates of `margin_pursuit_descent`.

    Attributes
    ----------
    path : ndarray of shape (n_steps + 1, n_features)
        The iterates, from the start to the last.
    objective : ndarray of shape (n_steps + 1,)
        The mean loss of each iterate.
    steps : ndarray of shape (n_steps,)
        The step sizes.
    loss : MarginLoss
        The loss, with its margin level and scale.

    Examples
    --------
    >>> import numpy as np
    >>> from marginpursuit.solvers import margin_pursuit_descent
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> found = margin_pursuit_descent(X, np.sign(X[:, 0]), margin=1.0, n_steps=50)
    >>> found.path.shape, found.steps.shape, bool((found.coef == found.path[-1]).all())
    ((51, 3), (50,), True)
    """

    path: FloatArray
    objective: FloatArray
    steps: FloatArray
    loss: MarginLoss

    @property
    def coef(self) -> FloatArray:
        """The last iterate."""
        return np.asarray(self.path[-1])


def margin_pursuit_descent(
    X: Any,
    y: ArrayLike,
    *,
    margin: float,
    scale: float | None = None,
    k: float = 2.0,
    start: ArrayLike | None = None,
    step: float | Callable[[int], float] | None = None,
    n_steps: int,
    on_step: Callable[[int, FloatArray], None] | None = None,
) -> DescentPath:
    r"""Run Algorithm 1 of the paper, margin pursuit by steepest descent, and return all iterates.

    Parameters
    ----------
    X : {array-like, CSR matrix} of shape (n_samples, n_features)
        Training samples with finite values. There is no intercept.
    y : array-like of shape (n_samples,)
        Labels, -1 or +1.
    margin : float
        The margin level γ > 0.
    scale : float, optional
        The scale s > 0. By default k Var(m)/γ (:func:`~marginpursuit.location.variance_scale`) with
        m the margins of `start`. The paper takes the variance of the margins of a score that does
        not exist yet (E34). Where the margins of the start are all equal, as for a start at zero,
        the variance is γ²/4, the largest one that margins of a least-squares fit to γ can have.
    k : float, default=2.0
        The factor k > 0 of the default scale.
    start : array-like of shape (n_features,), optional
        The first iterate w₀; by default zero.
    step : float or callable, optional
        The step size α > 0, or a function that returns that of step t = 0, 1, .... By default 1/v,
        v the mean of ‖x‖². The paper's proof needs α < 2/(κ + v), κ the strong convexity (E17).
    n_steps : int
        The number T of steps.
    on_step : callable, optional
        Called after each step with the number of steps taken and the iterate.

    Returns
    -------
    DescentPath
        The iterates in `path`, with their objectives, the step sizes and the loss.

    See Also
    --------
    stochastic_margin_pursuit : The learner of the paper's experiments.

    Examples
    --------
    >>> import numpy as np
    >>> from marginpursuit.solvers import margin_pursuit_descent
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 3))
    >>> y = np.sign(X @ [2.0, -1.0, 0.5])
    >>> found = margin_pursuit_descent(X, y, margin=1.0, n_steps=100)
    >>> found.path.shape
    (101, 3)
    >>> found.loss
    MarginLoss(margin=1.0, scale=0.5, overconfidence=1.0, rho='catoni')
    >>> bool(np.all(np.diff(found.objective) <= 0))
    True
    """
    n_steps = count("n_steps", n_steps)
    matrix, sign, weights = checked_rows(X, y)
    weights = weights / weights.sum()
    d = matrix.shape[1]
    coef = np.zeros(d) if start is None else checked_start(start, d)
    level = scalar("margin", positive("margin", margin))
    if scale is None:
        scale = _default_scale(sign * np.asarray(matrix @ coef).ravel(), level, k)
    loss = MarginLoss(level, scale)
    with MemoryDesign(matrix) as design:
        request = Request(design, weights[np.newaxis], (loss,), "absolute", 0.0, False)
        tasks = Tasks.of(Labels((sign > 0).astype(np.intp), 2), weights, loss)
        first = coef[:, np.newaxis], np.zeros(1)
        problem = Problem(prepare_raw(request), tasks, np.zeros(1), first, n_steps, tol=0.0)
        default = float(problem.precondition(np.ones((1, d)), np.arange(1)).min())
        sizes = _step_sizes(default if step is None else step, n_steps)
        path, objective = np.empty((n_steps + 1, d)), np.empty(n_steps + 1)
        for t, (points, values, *_) in enumerate(_iterates(problem, lambda t: float(sizes[t]))):
            path[t], objective[t] = points[0], values[0]
            if on_step is not None and t > 0:
                on_step(t, path[t].copy())
    return DescentPath(path, objective, sizes, loss)


def _default_scale(margins: FloatArray, level: float, k: float) -> float:
    """Return k Var(m)/γ, with γ²/4 for the variance of equal margins."""
    variance = float(np.var(margins))
    return float(variance_scale(variance if variance > 0 else level * level / 4.0, level, k))


def _step_sizes(step: float | Callable[[int], float], n_steps: int) -> FloatArray:
    sizes = [step(t) for t in range(n_steps)] if callable(step) else np.full(n_steps, step)
    return positive("step", sizes)
