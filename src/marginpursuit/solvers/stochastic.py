r"""The learner of the paper's experiments: projected stochastic gradient steps of one row each.

For margin level γ, scale s and penalty λ, step t = 0, 1, ... samples one row and sets

.. math::

    w \leftarrow \Bigl(1 - \frac{\sqrt\lambda}{s\,(1 + t)}\Bigr) w
    + \frac{1}{\sqrt\lambda\,(1 + t)}\, \psi\Bigl(\frac{\gamma - m}{s}\Bigr)\, y\, x,

and projects w onto the ball of radius 1/√λ. This is a step of size 1/(s √λ (1 + t)) along the
negative gradient of the loss, whose factor s cancels, and of (λ/2)‖w‖². The paper does not state
whether its penalty has the factor 1/2; `halved_penalty=False` is λ‖w‖². The first w is random, the
number of steps is given, and there is no intercept by default. The paper has no stopping criterion;
the solver adds `StoppingCriterion`.

Rows are sampled with replacement, with probabilities in proportion to their weights.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from marginpursuit._kernels import Descent
from marginpursuit._validation import FloatArray, count, positive, scalar
from marginpursuit.design import Design, MemoryDesign
from marginpursuit.location import consistent_quantile_scale, quantile_scale
from marginpursuit.losses import MarginLoss
from marginpursuit.solvers._problem import (
    ROTATION_INVARIANT,
    Prepared,
    Problem,
    Progress,
    Request,
    Solution,
    Status,
)
from marginpursuit.solvers._raw_rows import checked_rows, checked_start, prepare_raw
from marginpursuit.solvers.sampling import random_generator
from marginpursuit.solvers.stochastic_steps import (
    RowSampler,
    StoppingCriterion,
    ascending_counts,
    canonical_order,
    descend,
    doubling_stages,
)

__all__ = ["StochasticPath", "StochasticSolver", "stochastic_margin_pursuit"]


class StochasticSolver:
    """Projected stochastic gradient steps of one row each."""

    name: ClassVar[str] = "stochastic"
    supports_joint: ClassVar[bool] = False
    depends_on_units: ClassVar[bool] = True
    reads_factored_rows: ClassVar[bool] = False

    def supports(self, request: Request) -> str | None:
        """Return None, or the reason why the request is not supported."""
        if request.is_joint:
            return request.needs_one_against_rest
        if "descend" not in request.design.capabilities:
            return "it needs the rows in memory"
        if request.alpha_unit not in ROTATION_INVARIANT or not request.least_alpha > 0:
            return (
                "the step size follows from one positive penalty for all coefficients: it needs "
                f"alpha > 0 and alpha_unit in {('auto', *ROTATION_INVARIANT)}; got "
                f"{request.least_alpha:g} in the unit {request.alpha_unit!r}"
            )
        lacking = [loss for loss in request.losses if not isinstance(loss, MarginLoss)]
        if lacking:
            return f"its step size needs a scale; {type(lacking[0]).__name__} has none"
        return None

    def prepare(self, request: Request) -> Prepared:
        """Prepare the rows without standardisation."""
        return prepare_raw(request)

    def solve(self, problem: Problem) -> Solution:
        """Take at most `max_iter` steps; report progress after 1, 2, 4, ... of them.

        A start at zero is replaced by a random one, as in the paper.

        Parameters
        ----------
        problem : Problem
            The problem to minimise.

        Returns
        -------
        Solution
            The last iterate; its status is CONVERGED if `StoppingCriterion` was met.
        """
        design, tasks = problem.prepared.design, problem.tasks
        assert isinstance(design, MemoryDesign)
        random = random_generator(problem.random_state)
        descents = _task_descents(problem, random)
        samplers = _fold_samplers(problem, random)
        history: list[Progress] = []
        n_taken, status = 0, Status.ALL_STEPS
        criterion = StoppingCriterion(problem.tol, design.n_rows)
        for n_steps in doubling_stages(problem.max_iter):
            for fold, sampler in enumerate(samplers):
                members = [descents[k] for k in np.flatnonzero(tasks.fold == fold)]
                descend(design, members, sampler, n_steps)
            n_taken += n_steps
            points = problem.join(
                np.column_stack([descent.coef for descent in descents]),
                np.array([descent.intercept for descent in descents]),
            )
            values, _ = problem.value_and_gradient(points, np.arange(len(tasks)))
            history.append(Progress(n_taken, design.n_passes, float(values.mean()), float("nan")))
            problem.notify(history[-1])
            if criterion.is_met(n_taken, values):
                status = Status.CONVERGED
                break
        gaps = np.full(len(values), np.nan)
        return Solution(problem.split(points), values, gaps, status, n_taken, tuple(history))


def _task_descents(problem: Problem, random: Any) -> list[Descent]:
    """Return the descent of each task at its starting point."""
    tasks, (coef, intercept) = problem.tasks, problem.start
    if not np.any(coef):
        coef = _random_start(random, coef.shape)
        # No step depends on the coefficient of a column of zeros; zero minimises its penalty.
        coef[~problem.prepared.design.nonzero_columns(tasks.weights.sum(axis=0))] = 0.0
    # All columns that vary have the same penalty weight.
    weights = problem.prepared.penalty_weights
    largest = np.max(weights, axis=1, where=np.isfinite(weights), initial=0.0)
    penalties = problem.alphas * np.where(largest > 0, largest, 1.0)[tasks.fold]
    return [
        replace(
            _margin_descent(loss, float(penalties[k]), tasks.sign(k)),
            coef=coef[:, k].copy(),
            intercept=float(intercept[k]),
            fit_intercept=problem.prepared.fit_intercept,
        )
        for k, loss in enumerate(tasks.losses)
    ]


def _fold_samplers(problem: Problem, random: Any) -> list[RowSampler]:
    """Return the sampler of each fold, independent of the order of the rows."""
    order = canonical_order(problem.prepared.design, problem.tasks.codes, random)
    return [RowSampler(weights, random, order) for weights in problem.tasks.weights]


@dataclass(frozen=True, slots=True)
class StochasticPath:
    """Iterates of `stochastic_margin_pursuit` at its checkpoints.

    Examples
    --------
    >>> import numpy as np
    >>> from marginpursuit.solvers import stochastic_margin_pursuit
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> path = stochastic_margin_pursuit(
    ...     X, np.sign(X[:, 0]), alpha=0.01, n_steps=100, checkpoints=[0, 100], random_state=0
    ... )
    >>> path.n_gradients, path.coef.shape
    (array([  0, 100]), (2, 3))
    """

    n_gradients: NDArray[np.intp]  # (n_checkpoints,), the number of steps of one gradient each
    coef: FloatArray  # (n_checkpoints, n_features)
    intercept: FloatArray  # (n_checkpoints,)
    scale: FloatArray  # (n_checkpoints,), the scale of the loss at the checkpoint


def stochastic_margin_pursuit(
    X: Any,
    y: ArrayLike,
    alpha: float,
    n_steps: int,
    *,
    loss: MarginLoss | None = None,
    rescale_after: int | None = None,
    rescale_rule: str = "printed",
    delta: float = 0.05,
    step: float | None = None,
    steps_before: int = 0,
    halved_penalty: bool = True,
    fit_intercept: bool = False,
    checkpoints: ArrayLike | None = None,
    start: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    random_state: Any = None,
) -> StochasticPath:
    r"""Run the learner of the paper's experiments and return its iterates at checkpoints.

    Parameters
    ----------
    X : {array-like, CSR matrix} of shape (n_samples, n_features)
        Training samples with finite values.
    y : array-like of shape (n_samples,)
        Labels, -1 or +1.
    alpha : float
        The penalty λ > 0, which also determines the step size and the radius of the ball.
    n_steps : int
        The number of steps, each with the gradient of one sample.
    loss : MarginLoss, optional
        The loss; by default that of the paper with γ = s = 1.
    rescale_after : int, optional
        The number of steps after which the scale is computed once from all training margins. By
        default it is constant.
    rescale_rule : {"printed", "consistent"}, default="printed"
        The rule of that scale: as printed, :func:`~marginpursuit.location.quantile_scale`, or in
        the unit of the margins, :func:`~marginpursuit.location.consistent_quantile_scale` (E20).
    delta : float, default=0.05
        The confidence level of the rule, in (0, 1); the paper does not state its value.
    step : float, optional
        The size a > 0 of the step t = 0; step t has the size a/(1 + t). By default 1/(s √λ), as
        printed. After a change of the scale it is 1/(s √λ) in any case.
    steps_before : int, default=0
        The first value of t: the number of steps of an earlier run that ended at `start`.
    halved_penalty : bool, default=True
        Whether the penalty is (λ/2)‖w‖², as for Pegasos, or λ‖w‖², whose gradient is twice as
        large. The paper does not say.
    fit_intercept : bool, default=False
        Whether to fit an intercept, which is neither penalised nor projected.
    checkpoints : array-like of int, optional
        Numbers of steps, ascending from 0 to `n_steps`, after which the iterate is returned; by
        default `n_steps`.
    start : array-like of shape (n_features,), optional
        The first w; by default normally distributed with variance 1/n_features.
    sample_weight : array-like of shape (n_samples,), optional
        Weights >= 0; the probability of a sample is proportional to its weight.
    random_state : int, numpy.random.Generator, RandomState or None, default=None
        Seed or generator of the start and of the sampled rows.

    Returns
    -------
    StochasticPath
        Coefficients, intercept and scale at each checkpoint.

    References
    ----------
    .. [1] M. J. Holland, "Classification using margin pursuit", AISTATS 2019, arXiv:1810.04863.

    Examples
    --------
    >>> import numpy as np
    >>> from marginpursuit.solvers import stochastic_margin_pursuit
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 3))
    >>> y = np.sign(X @ [2.0, -1.0, 0.5])
    >>> path = stochastic_margin_pursuit(
    ...     X, y, alpha=0.01, n_steps=5000, checkpoints=[0, 10, 5000], random_state=0
    ... )
    >>> path.coef.shape
    (3, 3)
    >>> float(np.mean(y * (X @ path.coef[-1]) > 0)) > 0.95
    True
    """
    loss = MarginLoss() if loss is None else loss
    n_steps = count("n_steps", n_steps)
    alpha = scalar("alpha", positive("alpha", alpha))
    n_before = count("steps_before", steps_before, 0)
    size = None if step is None else scalar("step", positive("step", step))
    rescaling = _checked_rescaling(rescale_after, rescale_rule, delta)
    matrix, sign, weights = checked_rows(X, y, sample_weight)
    at_steps = ascending_counts(
        "checkpoints", n_steps if checkpoints is None else checkpoints, n_steps
    )
    random, d = random_generator(random_state), matrix.shape[1]
    coef = _random_start(random, (d,)) if start is None else checked_start(start, d)
    path = _path_from(coef, loss.scale, at_steps)
    descent = replace(
        _margin_descent(loss, alpha, sign, size, halved_penalty),
        coef=coef,
        fit_intercept=fit_intercept,
        t=n_before,
        marks=at_steps + n_before,
        path=path.coef,
        path_intercept=path.intercept,
    )
    sampler = RowSampler(weights, random)
    n_first = n_steps if rescaling is None else min(rescaling.after, n_steps)
    with MemoryDesign(matrix) as design:
        descend(design, [descent], sampler, n_first)
        if rescaling is not None and n_first < n_steps:
            scale = rescaling.scale(_margins(design, descent), alpha)
            _set_loss(descent, replace(loss, scale=scale), alpha, halved_penalty)
            path.scale[at_steps > n_first] = scale
            descend(design, [descent], sampler, n_steps - n_first)
    return path


@dataclass(frozen=True, slots=True)
class _Rescaling:
    """A single change of the scale, computed from the margins after some steps."""

    after: int  # steps
    rule: str
    delta: float

    def scale(self, margins: FloatArray, alpha: float) -> float:
        if self.rule == "printed":
            return float(quantile_scale(margins, alpha, self.delta))
        return float(consistent_quantile_scale(margins, self.delta))


def _checked_rescaling(after: int | None, rule: str, delta: float) -> _Rescaling | None:
    if rule not in ("printed", "consistent"):
        raise ValueError(f"rescale_rule must be 'printed' or 'consistent'; got {rule!r}")
    return None if after is None else _Rescaling(count("rescale_after", after), rule, delta)


def _path_from(coef: FloatArray, scale: float, at_steps: NDArray[np.intp]) -> StochasticPath:
    """Return a path that contains the start; the steps write the other checkpoints into it."""
    n = len(at_steps)
    path = StochasticPath(at_steps, np.empty((n, len(coef))), np.zeros(n), np.full(n, scale))
    path.coef[at_steps == 0] = coef
    return path


def _margins(design: Design, descent: Descent) -> FloatArray:
    scores = design.scores(descent.coef[:, np.newaxis], np.array([descent.intercept]))
    return np.asarray(descent.sign * scores[:, 0])


def _set_loss(descent: Descent, loss: MarginLoss, alpha: float, halved_penalty: bool) -> None:
    """Continue a descent with another loss and the step size of the paper for it."""
    rescaled = _margin_descent(loss, alpha, descent.sign, None, halved_penalty)
    descent.loss, descent.rate, descent.decay = rescaled.loss, rescaled.rate, rescaled.decay


def _margin_descent(
    loss: MarginLoss,
    alpha: float,
    sign: FloatArray,
    step: float | None = None,
    halved_penalty: bool = True,
) -> Descent:
    """Return the step sizes and the projection of the paper, without a starting point."""
    root = float(np.sqrt(alpha))
    size = 1.0 / (loss.scale * root) if step is None else step
    return Descent(
        loss,
        sign,
        rate=size,
        decay=(1.0 if halved_penalty else 2.0) * alpha * size,
        coef=np.empty(0),
        radius=1.0 / root,
    )


def _random_start(random: Any, shape: tuple[int, ...]) -> FloatArray:
    """Return random coefficients with an expected squared norm of 1 per task."""
    return np.asarray(random.standard_normal(shape) / np.sqrt(shape[0]))
