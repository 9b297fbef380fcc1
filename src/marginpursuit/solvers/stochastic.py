r"""The learner of the paper's experiments: one sample a step, with projection.

For margin level γ, scale s and penalty λ, step t = 0, 1, ... draws one row and takes w to

.. math::

    w \leftarrow \Bigl(1 - \frac{\sqrt\lambda}{s\,(1 + t)}\Bigr) w
    + \frac{1}{\sqrt\lambda\,(1 + t)}\, \psi\Bigl(\frac{\gamma - m}{s}\Bigr)\, y\, x,

then onto the ball of radius 1/√λ. That is a step of length 1/(s √λ (1 + t)) along the gradient of
the loss, whose factor s cancels, and of (λ/2)‖w‖²; the paper leaves open whether it means the half
of the squared norm. The first w is drawn at random, the number of steps is given, and there is no
intercept unless one is asked for. The paper has no stopping rule; ours, `Settling`, is optional.

Rows are drawn with replacement, a row as often as its weight says.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from marginpursuit._kernels import Descent
from marginpursuit._validation import FloatArray, between, count, inside, positive, scalar
from marginpursuit.design import Design, MemoryDesign
from marginpursuit.location import consistent_quantile_scale, quantile_scale
from marginpursuit.losses import MarginLoss
from marginpursuit.solvers._problem import Prepared, Problem, Progress, Request, Solution, Status
from marginpursuit.solvers.steepest import prepare_raw

__all__ = [
    "Draws",
    "Settling",
    "StochasticPath",
    "StochasticSolver",
    "checked_counts",
    "descend",
    "doublings",
    "stochastic_margin_pursuit",
]

# Rows and elements after which the steps pause, so that an interrupt is answered.
_MOST_ROWS = 1 << 18
_MOST_ELEMENTS = 1 << 24

# Doublings of the number of steps in a row that must change hardly anything: one may by chance.
_CALM_DOUBLINGS = 2


class Draws:
    """Rows drawn at random with replacement, in proportion to their weights.

    Parameters
    ----------
    weights : ndarray of shape (n_rows,)
        Weights >= 0, not all zero.
    random : numpy.random.Generator or numpy.random.RandomState
        Where randomness comes from.
    order : ndarray of shape (n_rows,), optional
        The order in which the rows share the unit interval; by default the one they have. With the
        order of `own_order`, a row of weight 2 is drawn just when one of two equal rows would be.
    """

    def __init__(
        self, weights: FloatArray, random: Any, order: NDArray[np.intp] | None = None
    ) -> None:
        self._random = random
        self._order = order
        self._n_rows = len(weights)
        self._edges = None
        if weights.min() < weights.max():
            ordered = weights if order is None else weights[order]
            edges = np.cumsum(ordered)
            self._edges = edges / edges[-1]
            self._edges[np.flatnonzero(ordered)[-1] :] = 1.0  # no draw is beyond the last

    def take(self, n: int) -> NDArray[np.intp]:
        """Draw n rows."""
        places = self._random.random(n)
        if self._edges is None:
            rows = (places * self._n_rows).astype(np.intp)
        else:
            rows = np.searchsorted(self._edges, places, side="right").astype(np.intp)
        return rows if self._order is None else np.asarray(self._order[rows])


def own_order(design: Design, codes: NDArray[np.intp], random: Any) -> NDArray[np.intp]:
    """Return an order of the rows that depends on what they and their classes are, not on where."""
    direction = random.standard_normal((design.n_columns, 1))
    key = design.scores(direction, np.zeros(1))[:, 0]
    return np.lexsort((key, codes))


def random_source(random_state: Any) -> Any:
    """Return a generator of NumPy: the one given, or one that begins with the seed given."""
    return random_state if hasattr(random_state, "random") else np.random.default_rng(random_state)


def descend(design: MemoryDesign, descents: Sequence[Descent], draws: Draws, n_steps: int) -> None:
    """Take so many steps of several descents, all along the same rows."""
    batch = descents[0].batch
    row = max(1, design.n_stored // design.n_rows)
    pause = max(1, min(_MOST_ROWS, _MOST_ELEMENTS // row) // batch)
    for first in range(0, n_steps, pause):
        rows = draws.take(batch * min(pause, n_steps - first))
        for descent in descents:
            design.descend(descent, rows)


def doublings(n_steps: int) -> Iterator[int]:
    """Yield numbers of steps that take their sum to 1, 2, 4, ... and at last to `n_steps`."""
    taken = 0
    while taken < n_steps:
        more = min(max(1, taken), n_steps - taken)
        taken += more
        yield more


class Settling:
    """Whether a descent has settled: its objective hardly changes while the steps double, twice.

    Steps shrink with their number, so that over a few of them any objective hardly changes; over
    as many as all before, it does as long as there is something to gain.
    """

    def __init__(self, tol: float, n_rows: int) -> None:
        self._tol, self._n_rows = tol, n_rows
        self._before: FloatArray | None = None
        self._calm = 0

    def look(self, taken: int, values: FloatArray) -> bool:
        """Tell of the objectives of all tasks after so many steps; return whether to stop.

        Nothing is concluded before as many steps are taken as there are rows.
        """
        before, self._before = self._before, values
        if before is None or taken < self._n_rows:
            return False
        calm = bool(np.all(np.abs(values - before) <= self._tol * np.abs(values)))
        self._calm = self._calm + 1 if calm else 0
        return self._calm >= _CALM_DOUBLINGS


class StochasticSolver:
    """Stochastic gradient steps of one row each, with projection."""

    name: ClassVar[str] = "stochastic"

    def supports(self, request: Request) -> str | None:
        """Return None, or why the request is not supported."""
        if "descend" not in request.design.capabilities:
            return "it needs the rows in memory"
        if request.unit != "absolute" or not request.least_alpha > 0:
            return (
                "it needs a positive number for alpha with alpha_unit='absolute', since the step "
                f"size follows from it; got {request.least_alpha:g} in the unit {request.unit!r}"
            )
        lacking = [loss for loss in request.losses if not isinstance(loss, MarginLoss)]
        if lacking:
            return f"its step size needs a scale; {type(lacking[0]).__name__} has none"
        return None

    def prepare(self, request: Request) -> Prepared:
        """Read the rows as they are."""
        return prepare_raw(request)

    def solve(self, problem: Problem) -> Solution:
        """Take `max_iter` steps; progress is reported after 1, 2, 4, ... of them.

        The steps end earlier where the objectives have settled to the tolerance. A start at zero is
        replaced by a random one, as in the paper.

        Parameters
        ----------
        problem : Problem
            What to minimise.

        Returns
        -------
        Solution
            The last iterate.
        """
        design, tasks = problem.prepared.design, problem.tasks
        assert isinstance(design, MemoryDesign)
        random = random_source(problem.random_state)
        descents = _descents(problem, random)
        order = own_order(design, tasks.codes, random)
        folds = [
            (
                Draws(weights, random, order),
                [descents[k] for k in np.flatnonzero(tasks.fold == fold)],
            )
            for fold, weights in enumerate(tasks.weights)
        ]
        history: list[Progress] = []
        n_taken, status, settling = 0, Status.ALL_STEPS, Settling(problem.tol, design.n_rows)
        for n_steps in doublings(problem.max_iter):
            for draws, of_fold in folds:
                descend(design, of_fold, draws, n_steps)
            n_taken += n_steps
            points = problem.join(
                np.column_stack([descent.coef for descent in descents]),
                np.array([descent.intercept for descent in descents]),
            )
            values, _ = problem.value_and_gradient(points, np.arange(len(tasks)))
            history.append(Progress(n_taken, design.n_passes, float(values.mean()), float("nan")))
            problem.tell(history[-1])
            if settling.look(n_taken, values):
                status = Status.CONVERGED
                break
        gaps = np.full(len(values), np.nan)
        return Solution(problem.split(points), values, gaps, status, n_taken, tuple(history))


def _descents(problem: Problem, random: Any) -> list[Descent]:
    """Return the descent of each task at its start."""
    tasks, (coef, intercept) = problem.tasks, problem.start
    if not np.any(coef):
        coef = _random_start(random, coef.shape)
    return [
        replace(
            _margin_descent(loss, float(problem.alphas[k]), tasks.sign(k)),
            coef=coef[:, k].copy(),
            intercept=float(intercept[k]),
            fit_intercept=problem.prepared.fit_intercept,
        )
        for k, loss in enumerate(tasks.losses)
    ]


@dataclass(frozen=True, slots=True)
class StochasticPath:
    """Where `stochastic_margin_pursuit` was after some numbers of gradients."""

    n_gradients: NDArray[np.intp]  # (n_checkpoints,)
    coef: FloatArray  # (n_checkpoints, n_features)
    intercept: FloatArray  # (n_checkpoints,)
    scale: FloatArray  # (n_checkpoints,), the scale of the loss at that time


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
    fit_intercept: bool = False,
    checkpoints: ArrayLike | None = None,
    start: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    random_state: Any = None,
) -> StochasticPath:
    r"""Run the learner of the paper's experiments, and keep where it was on the way.

    Parameters
    ----------
    X : {array-like, CSR matrix} of shape (n_samples, n_features)
        Training samples, finite.
    y : array-like of shape (n_samples,)
        Their signs, -1 or +1.
    alpha : float
        The penalty λ > 0, which also sets the length of the steps and the radius of the ball.
    n_steps : int
        The number of steps, each along the gradient of one sample.
    loss : MarginLoss, optional
        The loss; by default that of the paper, γ = s = 1.
    rescale_after : int, optional
        Set the scale anew once, from all training margins, after so many steps.
    rescale_rule : {"printed", "consistent"}, default="printed"
        How: by the rule as printed, :func:`~marginpursuit.location.quantile_scale`, or in the unit
        of the margins, :func:`~marginpursuit.location.consistent_quantile_scale` (E20).
    delta : float, default=0.05
        The confidence level of the rule, in (0, 1); the paper does not say its own.
    step : float, optional
        The length a > 0 of the first of all steps; that of step t is a/(1 + t). By default as
        printed, 1/(s √λ), and again so after a change of the scale.
    steps_before : int, default=0
        The number of steps that an earlier run has taken to `start`: t begins there.
    fit_intercept : bool, default=False
        Whether to fit an intercept, which is neither penalised nor projected.
    checkpoints : array-like of int, optional
        Numbers of steps, from 0 to `n_steps`, after which coefficients are kept; by default
        `n_steps`.
    start : array-like of shape (n_features,), optional
        The first w; by default normal deviates of variance 1/n_features.
    sample_weight : array-like of shape (n_samples,), optional
        Weights >= 0; a sample is drawn in proportion to its weight.
    random_state : int, numpy.random.Generator, RandomState or None, default=None
        Seed or source of the start and of the draws.

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
    steps = count("n_steps", n_steps)
    penalty = scalar("alpha", positive("alpha", alpha))
    wait = steps if rescale_after is None else count("rescale_after", rescale_after)
    before = count("steps_before", steps_before, 0)
    if rescale_rule not in ("printed", "consistent"):
        raise ValueError(f"rescale_rule must be 'printed' or 'consistent'; got {rescale_rule!r}")
    matrix, sign, weights = _checked_data(X, y, sample_weight)
    marks = checked_counts("checkpoints", steps if checkpoints is None else checkpoints, steps)
    random, d = random_source(random_state), matrix.shape[1]
    coef = _random_start(random, (d,)) if start is None else _checked_start(start, d)
    path = StochasticPath(
        marks, np.empty((len(marks), d)), np.zeros(len(marks)), np.full(len(marks), loss.scale)
    )
    path.coef[marks == 0] = coef
    descent = replace(
        _margin_descent(loss, penalty, sign),
        coef=coef,
        fit_intercept=fit_intercept,
        t=before,
        marks=marks + before,
        path=path.coef,
        path_intercept=path.intercept,
    )
    if step is not None:
        descent.rate = scalar("step", positive("step", step))
        descent.decay = penalty * descent.rate
    draws = Draws(weights, random)
    with MemoryDesign(matrix) as design:
        descend(design, [descent], draws, min(wait, steps))
        if wait < steps:
            point = descent.coef[:, np.newaxis], np.array([descent.intercept])
            margins = sign * design.scores(*point)[:, 0]
            printed = rescale_rule == "printed"
            scale = (
                quantile_scale(margins, penalty, delta)
                if printed
                else consistent_quantile_scale(margins, delta)
            )
            rescaled = _margin_descent(replace(loss, scale=float(scale)), penalty, sign)
            descent.loss, descent.rate, descent.decay = rescaled.loss, rescaled.rate, rescaled.decay
            path.scale[marks > wait] = scale
            descend(design, [descent], draws, steps - wait)
    return path


def checked_counts(name: str, values: ArrayLike, most: int) -> NDArray[np.intp]:
    """Return whole numbers from 0 to `most`, rising."""
    numbers = np.atleast_1d(between(name, values, 0, most))
    if numbers.ndim != 1 or np.any(numbers % 1) or np.any(np.diff(numbers) <= 0):
        raise ValueError(f"{name} must be whole numbers that rise; got {values!r}")
    return numbers.astype(np.intp)


def _margin_descent(loss: MarginLoss, alpha: float, sign: FloatArray) -> Descent:
    """Return the rules of the paper's steps; they are to begin somewhere yet."""
    root = float(np.sqrt(alpha))
    return Descent(
        loss,
        sign,
        rate=1.0 / (loss.scale * root),
        decay=root / loss.scale,
        coef=np.empty(0),
        radius=1.0 / root,
    )


def _random_start(random: Any, shape: tuple[int, ...]) -> FloatArray:
    """Draw coefficients whose squares add up to about one."""
    return np.asarray(random.standard_normal(shape) / np.sqrt(shape[0]))


def _checked_start(start: ArrayLike, n_features: int) -> FloatArray:
    coef = inside("start", start, -np.inf, np.inf)
    if coef.shape != (n_features,):
        raise ValueError(f"start must have shape {(n_features,)}; got {coef.shape}")
    return coef.copy()


def _checked_data(
    X: Any, y: ArrayLike, sample_weight: ArrayLike | None
) -> tuple[Any, FloatArray, FloatArray]:
    """Return a matrix that can be read by rows, signs and weights."""
    is_sparse = sparse.issparse(X)
    matrix: Any = X.tocsr() if is_sparse else np.asarray(X)
    if is_sparse and not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise ValueError(f"X must have rows and columns; got shape {matrix.shape}")
    inside("X", matrix.data if is_sparse else matrix, -np.inf, np.inf)
    sign = between("y", y, -1.0, 1.0)
    if sign.shape != matrix.shape[:1] or np.any(np.abs(sign) != 1):
        raise ValueError(f"y must hold -1 or +1 for each of {matrix.shape[0]} samples")
    weights = np.ones(len(sign)) if sample_weight is None else sample_weight
    weights = between("sample_weight", weights, 0.0, np.finfo(np.float64).max)
    if weights.shape != sign.shape or not np.any(weights):
        raise ValueError(f"sample_weight must have shape {sign.shape} and not be all zero")
    return matrix, sign, weights / weights.max()
