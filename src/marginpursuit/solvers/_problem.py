r"""The objective, and what solvers take and return.

**The objective**, written once. For task k (one positive class against the rest, the sample
weights c of one fold, which sum to one, a loss φ and a penalty α) and margins m = y (z·w + b) of
the standardised rows z,

.. math::

    F_k(w, b) = \sum_i c_i\, \varphi(m_i) + \frac{\alpha}{2} \sum_j u_j w_j^2 ,

where u_j is the *penalty weight* of column j. The intercept b is not penalised.
The gradient is Zᵀ(c y φ'(m)) + α u w, and the Hessian Zᵀ diag(c φ''(m)) Z + α diag(u).

A joint task has coefficients and an intercept for each class, the loss of all their scores
(`losses.joint`), and the penalty of all coefficients. Its Hessian has a block for each pair of
classes; the Gram matrix times a factor (`Tasks.curvature`) approximates the diagonal ones. Adding a
constant to all scores changes nothing, so coefficients and intercepts sum to zero over the classes
if those of the start do.

**Shapes.** A `Linear` is (coef, intercept) of shapes (n_columns, n_tasks) and (n_tasks,). A *point*
is the same as one row per task, (n_tasks, n_columns + 1), with the intercept as last entry, or
(n_tasks, n_columns) without intercept: `Problem.join` and `Problem.split` translate. A joint task
has one column of a `Linear` for each class, and its point is the points of its classes, end to end.

**The unit of the penalty.** With coefficients w for the data as given, v_j the variance of
column j (its mean square where there is no intercept) and d the number of columns that are not
constant, the penalty is α/2 times

============  ===============================
unit          squared norm
============  ===============================
absolute      Σ_j w_j²
column        Σ_j v_j w_j²
standardised  d Σ_j v_j w_j²
inflated      d Σ_j f_j v_j w_j²
common        (Σ_j v_j) Σ_j w_j²
row           q Σ_j w_j²
============  ===============================

"standardised" and "common" are the squared norm for rows whose mean squared norm has been scaled to
one: each column separately, or all columns by a common factor. In "inflated" the variance of a
column is multiplied by f_j = 1 + 10 min(1, (κ_j - 1)/n), with κ_j the kurtosis of the column:
(κ_j - 1)/n is the squared relative standard error of v_j. A column that is non-zero in k of n rows
has about 1/k, and a standard deviation that k rows determine. q is the lower quartile of the
squared norms of the rows: unlike their mean it does not depend on long rows, as long texts are.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from marginpursuit._namespaces import to_numpy
from marginpursuit._threads import Threads
from marginpursuit._validation import FloatArray
from marginpursuit.design import Design, Linear, Standardisation
from marginpursuit.losses import JointLoss, has
from marginpursuit.solvers.policy import Policy, default_policy
from marginpursuit.solvers.preconditioners import Preconditioner
from marginpursuit.tasks import Tasks

#: Indices or a range of rows.
Rows: TypeAlias = NDArray[np.intp] | slice


class Status(Enum):
    """How a solve ended, in order from best to worst; the value is the text that the user sees."""

    CONVERGED = "converged"
    ROUNDING = "stopped where rounding hides any further decrease"
    STALLED = "stopped where no step size gives a decrease"
    MAX_ITER = "reached max_iter before the tolerance"
    ALL_STEPS = "took all steps that were asked for"

    @classmethod
    def worst(cls, statuses: Iterable["Status"]) -> "Status":
        """Return the worst of some statuses."""
        return max(statuses, key=list(cls).index)


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a solve is after an iteration."""

    iteration: int
    passes: int  # over the data
    value: float  # mean objective of the tasks
    gap: float  # largest estimated relative suboptimality of a task


class Transform(Protocol):
    """A linear change of coordinates of models."""

    def to_data(self, linear: Linear) -> Linear:
        """Translate a model to one for the rows as they are."""

    def from_data(self, linear: Linear) -> Linear:
        """Translate a model for the rows as they are."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a solver is asked to prepare for: data, weights, losses and penalties."""

    design: Design
    weights: FloatArray  # (n_folds, n_rows), each row sums to one
    losses: tuple[Any, ...]  # all losses that may be fitted
    alpha_unit: str  # of the penalty: a name in the table of this module
    least_alpha: float  # the smallest penalty that may be fitted
    fit_intercept: bool
    n_problems: int = 1  # binary problems: one, or the number of classes
    is_search: bool = False  # whether many candidates are fitted to folds
    #: The order of the rows in a float32 copy; None where the solve needs float64.
    order: NDArray[np.intp] | None = None
    #: Weights of the variances in the penalty weights, (n_rows,) or (n_folds, n_rows); None:
    #: those of the folds.
    variance_weights: Any = None
    #: The number of rows n in the unit "inflated"; whole weights count as repetitions.
    n_samples: float = np.inf
    tol: float = 0.0  # the relative suboptimality that suffices
    policy: Policy = field(default_factory=default_policy)

    #: Why a solver without joint tasks refuses them.
    needs_one_against_rest: ClassVar[str] = (
        "it fits one class against the rest, not all classes by a joint loss: set "
        "multi_class='ovr', or another solver"
    )

    @property
    def is_joint(self) -> bool:
        """Whether the scores of all classes have a joint loss."""
        return any(isinstance(loss, JointLoss) for loss in self.losses)

    def lacks(self, capability: str) -> str | None:
        """Return None if all losses have a capability, or the words that refuse one without it."""
        for loss in self.losses:
            if not has(loss, capability):
                words = capability.replace("_", " ")
                return f"it needs a {words}; {type(loss).__name__} has none"
        return None

    @property
    def has_folds(self) -> bool:
        """Whether several folds are fitted."""
        return bool(self.weights.shape[0] > 1)


@dataclass(frozen=True, slots=True)
class Prepared:
    """Data prepared once by a solver, and used for every loss and penalty."""

    design: Design
    standardisation: Standardisation  # of the design's rows, as they are swept
    fit_intercept: bool
    penalty_weights: FloatArray  # (n_folds, n_columns), u; infinite for a column constant in a fold
    preconditioner: Preconditioner
    transform: Transform  # to and from models for the data as given
    order: NDArray[np.intp] | None = None  # of the rows in the design, if it is a reordered copy
    padded_rows: Any = None  # standardised and padded, for the compiled Newton method

    def to_data(self, linear: Linear) -> Linear:
        """Translate a model for the prepared rows to one for the data as given."""
        return self.transform.to_data(linear)

    def from_data(self, linear: Linear) -> Linear:
        """Translate a model for the data as given to one for the prepared rows."""
        return self.transform.from_data(linear)

    def zeros(self, n_tasks: int) -> Linear:
        """Return the model whose coefficients are zero."""
        return np.zeros((self.design.n_columns, n_tasks)), np.zeros(n_tasks)


@dataclass(frozen=True)
class Problem:
    """Tasks that are minimised together."""

    prepared: Prepared
    tasks: Tasks
    alphas: FloatArray  # (n_tasks,)
    start: Linear  # in the coordinates of `prepared`
    max_iter: int
    tol: float  # relative suboptimality at which a task is finished
    report: Callable[[Progress], None] | None = None
    random_state: Any = None  # seed or generator, for stochastic solvers
    on_iterate: Callable[["Problem", Linear], None] | None = None  # is given each iterate
    #: A solver that bounds the gap may stop where it is at most this multiple of the decrease of
    #: the objective since the start.
    decrease_fraction: float = 0.0
    policy: Policy = field(default_factory=default_policy)
    #: The inverse of a Hessian of each task, which replaces the preconditioner.
    inverse_hessian: FloatArray | None = None
    _objective_floors: FloatArray = field(init=False)  # (n_tasks,), see `relative_to`

    #: Suboptimality is relative to the objective, or to this fraction of the objective at zero
    #: coefficients where that is larger.
    floor_fraction: ClassVar[float] = 1e-2

    _curvature: FloatArray = field(init=False)  # (n_tasks,), the factor c of `precondition`

    def __post_init__(self) -> None:
        weights, n_folds = self.prepared.penalty_weights, self.tasks.weights.shape[0]
        if len(weights) == 1 < n_folds:  # all folds have the same penalty weights
            weights = np.broadcast_to(weights, (n_folds, weights.shape[1]))
            object.__setattr__(self, "prepared", replace(self.prepared, penalty_weights=weights))
        object.__setattr__(
            self, "_objective_floors", self.floor_fraction * self.tasks.values_at_zero()
        )
        object.__setattr__(self, "_curvature", self.tasks.curvature())

    def value_and_gradient(
        self, points: FloatArray, tasks: NDArray[np.intp]
    ) -> tuple[FloatArray, FloatArray]:
        """Return F and its gradient at one point for each of these tasks, in one pass."""
        coef, intercept = self.split(points)
        sweep = self.prepared.design.sweep(
            coef, intercept, self.tasks.take(tasks), self.prepared.standardisation
        )
        penalty = self.penalty if len(tasks) == len(self.tasks) else self.penalty[tasks]
        gradients, weights = np.empty_like(points), coef.T
        of_columns = self._columns(gradients)
        of_coef = of_columns[:, : weights.shape[1]]
        np.multiply(weights, self._of_columns(penalty), out=of_coef)
        squares = 0.5 * np.einsum("kj,kj->k", weights, of_coef)
        of_coef += sweep.gradient.T
        if self.prepared.fit_intercept:
            of_columns[:, -1] = sweep.slope
        value = sweep.value + np.sum(squares.reshape(len(tasks), -1), axis=1)
        return value, self.project(gradients, tasks)

    def take(self, which: NDArray[np.intp]) -> "Problem":
        """Return the problem of some tasks that have one column of the coefficients each."""
        start = self.start[0][:, which], self.start[1][which]
        return replace(self, tasks=self.tasks.take(which), alphas=self.alphas[which], start=start)

    def with_rows(self, rows: Rows, *, threads: Threads | None = None) -> "Problem":
        """Return the problem restricted to some rows, in memory; others have no weight."""
        tasks, design = self.tasks, self.prepared.design.subset(rows, threads)
        selected = replace(tasks, codes=tasks.codes[..., rows], weights=tasks.weights[:, rows])
        rows_before = self.prepared.padded_rows
        copied = None if rows_before is None else rows_before[rows]
        prepared = replace(self.prepared, design=design, padded_rows=copied)
        return replace(self, prepared=prepared, tasks=selected)

    def join(self, coef: FloatArray, intercept: FloatArray) -> FloatArray:
        """Return coefficients and intercepts as points, one row per task."""
        parts = [coef, intercept[np.newaxis]] if self.prepared.fit_intercept else [coef]
        columns = np.ascontiguousarray(np.concatenate(parts).T)
        return columns.reshape(len(columns) // self.tasks.columns_per_task, -1)

    def split(self, points: FloatArray) -> Linear:
        """Invert `join`."""
        points = self._columns(points)
        if self.prepared.fit_intercept:
            return points[:, :-1].T, points[:, -1].copy()
        return points.T, np.zeros(len(points))

    def _columns(self, points: FloatArray) -> FloatArray:
        """Return points as one row for each column of the coefficients; a view."""
        return points.reshape(len(points) * self.tasks.columns_per_task, -1)

    def _of_columns(self, of_tasks: NDArray[Any]) -> NDArray[Any]:
        """Repeat the entries of tasks for each of their columns."""
        n_columns = self.tasks.columns_per_task
        return of_tasks if n_columns == 1 else np.repeat(of_tasks, n_columns, axis=0)

    @cached_property
    def penalty(self) -> FloatArray:
        """α u of each squared coefficient, of shape (n_tasks, n_columns)."""
        weights = self.prepared.penalty_weights
        weights = np.where(np.isfinite(weights), weights, 0.0)
        return np.asarray(self.alphas[:, np.newaxis] * weights[self.tasks.fold])

    @cached_property
    def compiled_penalty(self) -> FloatArray:
        """The same as compiled solvers read it: infinite where the coefficient is fixed at zero."""
        is_free = np.isfinite(self.prepared.penalty_weights) & self.prepared.standardisation.varies
        return np.where(is_free[self.tasks.fold], self.penalty, np.inf)

    @cached_property
    def _is_fixed(self) -> NDArray[np.bool_] | None:
        """Which entries of each task's point are fixed at zero; None where there are none."""
        is_excluded = np.isinf(self.prepared.penalty_weights)
        if not is_excluded.any():
            return None
        is_fixed = is_excluded[self.tasks.fold]
        if self.prepared.fit_intercept:
            is_fixed = np.column_stack([is_fixed, np.zeros(len(is_fixed), dtype=bool)])
        return np.tile(is_fixed, self.tasks.columns_per_task)

    def project(self, points: FloatArray, tasks: NDArray[np.intp]) -> FloatArray:
        """Set the fixed entries of these tasks' points to zero, in place."""
        if self._is_fixed is not None:
            is_fixed = (
                self._is_fixed if len(tasks) == len(self._is_fixed) else self._is_fixed[tasks]
            )
            np.copyto(points, 0.0, where=is_fixed)
        return points

    def precondition(self, points: FloatArray, tasks: NDArray[np.intp]) -> FloatArray:
        """Apply the preconditioner to one point for each of these tasks.

        The inverse of c G + α u, with c the curvature of a task, is that of G + (α/c) u, over c.
        """
        if self.inverse_hessian is not None:
            return self.project(points @ self.inverse_hessian, tasks)
        curvature = self._curvature[tasks]
        ratios = self._of_columns(self.alphas[tasks] / curvature)
        columns, apply = self._columns(points), self.prepared.preconditioner.apply
        if np.all(ratios == ratios[0]):
            result = apply(columns, float(ratios[0]))
        else:
            result = np.empty_like(columns)

            def run(ratio: float) -> None:
                which = ratios == ratio
                result[which] = apply(columns[which], ratio)

            list(self.prepared.design.threads.map(run, np.unique(ratios).tolist()))
        result = result.reshape(points.shape)
        if self.tasks.columns_per_task > 1:
            result /= curvature[:, np.newaxis]
        return self.project(result, tasks)

    def relative_to(self, values: FloatArray | float) -> FloatArray:
        """Return what suboptimality is measured against: the objective.

        Where the data can be fitted almost exactly the objective tends to zero. It then counts as
        1 % of its value at zero coefficients.
        """
        return np.maximum(values, self._objective_floors)

    def strong_convexity_bounds(
        self, gradients: FloatArray, points: FloatArray, tasks: NDArray[np.intp]
    ) -> FloatArray:
        """Bound the suboptimality of these tasks by their gradients at these points.

        F - α/2 Σ_j u_j w_j² is convex, so that F exceeds its minimum in the coefficients by at most
        ½ Σ_j g_j² / (α u_j): infinite where a column has no penalty. The intercept has none. Its
        part is the derivative times the distance to its minimiser, which is taken as |b| + γ: the
        minimiser is assumed to be at most the level γ away from zero, in centred coordinates.
        """
        coef, intercept = self.split(gradients)
        penalty = self._of_columns(self.penalty[tasks]).T
        squares = coef**2
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = np.where(squares > 0, squares / penalty, 0.0)
        bounds = 0.5 * terms.sum(axis=0).reshape(len(tasks), -1).sum(axis=1)
        slopes, offsets = (
            np.abs(x).reshape(len(tasks), -1) for x in (intercept, self.split(points)[1])
        )
        distances = offsets + self.levels[tasks, np.newaxis]
        return np.asarray(bounds + np.sum(slopes * distances, axis=1))

    @cached_property
    def levels(self) -> FloatArray:
        """The level γ of each task; one for losses without a level."""
        return np.array([float(getattr(loss, "margin", 1.0)) for loss in self.tasks.losses])

    def notify(self, progress: Progress, points: FloatArray | None = None) -> None:
        """Report progress and hand over the iterate, to those that asked for them."""
        if self.report is not None:
            self.report(progress)
        if self.on_iterate is not None and points is not None:
            self.on_iterate(self, self.split(points))


@dataclass(frozen=True, slots=True)
class Solution:
    """Minimisers, in the coordinates of `Prepared`; arrays have one entry per task."""

    linear: Linear
    value: FloatArray  # the objective
    gap: FloatArray  # estimated relative suboptimality
    status: Status  # the worst of the tasks
    n_iter: int  # the largest of the tasks
    history: tuple[Progress, ...]
    #: Whether a bound, not only an estimate, meets the tolerance.
    is_proven: bool = field(default=False, kw_only=True)


def penalty_chains(problem: Problem) -> list[list[int]]:
    """Return the tasks that differ in their penalty only, from the largest penalty to the least.

    The chains of a fold are next to each other: its rows are copied once.
    """
    tasks = problem.tasks
    if len(tasks) == 1:
        return [[0]]
    chains: dict[Any, list[int]] = {}
    for k in np.argsort(-problem.alphas, kind="stable").tolist():
        chains.setdefault((tasks.losses[k], tasks.fold[k], tasks.positive[k]), []).append(k)
    return sorted(chains.values(), key=lambda chain: int(tasks.fold[chain[0]]))


#: The multiple of (κ - 1)/n in the unit "inflated". It was chosen among 0, 3, 10 and 30 on 50 cases
#: of 30 to 400 rows, none of `benchmarks/few_rows.py` (docs/choosing.md).
INFLATION = 10.0

#: Units that do not change when the columns are rotated.
ROTATION_INVARIANT = ("absolute", "common", "row")


def penalty_weights(
    name: str,
    inverse_deviation: FloatArray,
    variance: FloatArray,
    row_square: float = 1.0,
    inflation: FloatArray | float = 1.0,
) -> FloatArray:
    """Return the penalty weight of each fold and column for the unit of this name.

    `row_square` is the q of the unit "row", and `inflation` the factors f of "inflated".

    `variance`, of shape (n_folds, n_columns), is that of the standardised columns in each fold. A
    column that is constant in one fold but not in all has an infinite weight there: its
    coefficient is fixed at zero.
    """
    varies = inverse_deviation > 0
    is_constant = variance <= 1e-12  # up to rounding, relative to the variance over all folds
    if name in ("column", "standardised", "inflated"):
        n_varying = 1 if name == "column" else np.sum(~is_constant, axis=1, keepdims=True)
        weights = inflation * variance * n_varying
    else:
        deviation = np.divide(
            1.0, inverse_deviation, out=np.zeros_like(inverse_deviation), where=varies
        )
        squares = np.full(len(variance), row_square if name == "row" else 1.0)
        if name == "common":
            squares = variance @ deviation**2
        weights = np.outer(squares, inverse_deviation**2)
    return np.where(varies & is_constant, np.inf, weights)


def request_penalty_weights(request: Request, standardisation: Standardisation) -> FloatArray:
    """Return the penalty weight of each fold and column, for this standardisation."""
    variance = standardisation.varies[np.newaxis].astype(np.float64)
    if request.has_folds or request.variance_weights is not None:
        weights = request.weights if request.variance_weights is None else request.variance_weights
        weights = weights if weights.ndim == 2 else weights[np.newaxis, :]
        centred = request.fit_intercept
        variance = request.design.fold_variances(weights, standardisation, centred=centred)
    row_square = quartile_square(request) if request.alpha_unit == "row" else 1.0
    inflation = _inflation(request, standardisation) if request.alpha_unit == "inflated" else 1.0
    inverse_deviation = standardisation.inverse_deviation
    return penalty_weights(request.alpha_unit, inverse_deviation, variance, row_square, inflation)


def _inflation(request: Request, standardisation: Standardisation) -> FloatArray:
    """Return the factors of the variances in the unit "inflated".

    Weights of the variances decrease with 1/r² in the distance r of a row far away. Those of the
    kurtosis decrease with 1/r⁴, since its fourth moment grows with r⁴.
    """
    weights = mean_weights(request)[0]
    if request.variance_weights is not None:
        bounded, spread = to_numpy(weights), to_numpy(request.variance_weights)
        spread = spread if spread.ndim == 1 else spread.mean(axis=0)
        ratios = np.divide(spread, bounded, out=np.zeros_like(spread), where=bounded > 0)
        fourth = spread * (ratios / ratios.max()) ** 2
        weights = request.design.to_device(fourth / fourth.sum())
    kurtosis = request.design.kurtosis(weights, standardisation)
    # Weights of the variances may give a larger kurtosis than n, or one that is not finite.
    error = np.nan_to_num((kurtosis - 1.0) / request.n_samples, nan=1.0, posinf=1.0)
    return np.asarray(1.0 + INFLATION * np.clip(error, 0.0, 1.0))


def allows_float32(policy: Policy, n_elements: int, tol: float, *, is_joint: bool) -> bool:
    """Whether X has enough elements for solves of a float32 copy to a tolerance."""
    is_loose = is_joint and tol >= policy.min_unverified_tol
    return n_elements >= (
        policy.min_float32_joint_elements if is_loose else policy.min_float32_elements
    )


def quartile_square(request: Request, rounding: float = 1e-10) -> float:
    """Return the weighted lower quartile of ‖x‖² over the rows that are not zero.

    It is the least value whose cumulative weight is at least a quarter of the total weight, up to
    the relative `rounding` of both: equal weights in another unit have the same quartile.
    """
    squares = request.design.row_squares()
    weights = to_numpy(mean_weights(request)[0])
    used = np.flatnonzero((weights > 0) & (squares > 0))
    if not len(used):
        return 1.0
    order = used[np.argsort(squares[used])]
    cumulative = np.cumsum(weights[order])
    quarter = 0.25 * (1.0 - rounding) * cumulative[-1]
    return float(squares[order[np.searchsorted(cumulative, quarter)]])


def mean_penalty_weights(weights: FloatArray) -> FloatArray:
    """Return the mean over folds; infinite weights count as zero."""
    return np.asarray(np.mean(np.where(np.isfinite(weights), weights, 0.0), axis=0))


def mean_weights(request: Request) -> tuple[FloatArray, float]:
    """Return the mean of the weights of all folds, and the factor by which it majorises each."""
    weights = request.weights
    if not request.has_folds:
        return weights[0, :], 1.0
    mean = weights.mean(axis=0)
    is_used = mean > 0
    ratio = max(float((fold[is_used] / mean[is_used]).max()) for fold in weights)
    return mean, min(ratio, request.policy.max_fold_ratio)
