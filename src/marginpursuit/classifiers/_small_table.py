"""A fit to a small dense table, in one compiled call.

On few rows a fit takes as long as the calls of Python and NumPy functions between its compiled
parts. `fit_small_table` is the fit of `MarginPursuitClassifier._fit` for the common case: equal
weights, or positive ones without a leverage bound, a linear kernel, a number as scale, the penalty
in the unit "standardised" or "inflated" and Newton's method. `_kernels/small_table.c` lists the
steps; minimisers and links are by the functions that the general fit calls as well, so that both
have the same results up to rounding.

A table that needs more, as one with rows far away, and a solve that does not converge are left to
the general fit, with its errors and warnings.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from marginpursuit import _kernels
from marginpursuit._validation import FloatArray
from marginpursuit.classifiers._half_fits import HalfFitPolicy
from marginpursuit.classifiers._halves import random_direction
from marginpursuit.classifiers._input import TrainingData
from marginpursuit.classifiers._leverage import FarRowPolicy
from marginpursuit.classifiers._link import FittedLink, SlopePrior, smoothing_of
from marginpursuit.classifiers._margins import Margins
from marginpursuit.design import Linear
from marginpursuit.losses import JointLoss, MarginLoss
from marginpursuit.solvers import INFLATION, Policy, Problem, default_policy
from marginpursuit.tasks import LabelSets, value_at_zero


@dataclass(frozen=True, slots=True)
class SmallProblem:
    """What the kernel reads besides rows and labels; `small_table.h` documents it."""

    n_classes: int
    n_samples: float
    loss: MarginLoss
    joint: JointLoss | None  # of several classes
    has_intercept: bool
    leverage_bound: float
    alpha: float
    inflation: float  # of the unit of alpha
    factors: FloatArray  # multiples of alpha; one for a link without a choice, none without a link
    tolerances: tuple[float, float, float, float]
    objective_floor: float
    max_iter: int
    half_max_iter: int
    max_increase: float
    max_joint_increase: float
    min_likelihood_gain: float
    min_distinct_rows: int
    direction: FloatArray
    far_rows: FarRowPolicy = field(default_factory=FarRowPolicy)
    prior: SlopePrior = field(default_factory=SlopePrior)

    @property
    def n_scores(self) -> int:
        """The number of scores of a row."""
        return 1 if self.joint is None else self.n_classes

    @property
    def temperature(self) -> float:
        """The temperature of the joint loss."""
        return 0.0 if self.joint is None else self.joint.temperature


def fit_small_table(
    model: Any, data: TrainingData, start: Linear | None = None, policy: Policy | None = None
) -> bool:
    """Fit a `MarginPursuitClassifier` to a small table, if the data are one.

    Parameters
    ----------
    model : MarginPursuitClassifier
        The classifier, with ``solver="auto"`` or "newton", whose fitted attributes are set.
    data : TrainingData
        Checked rows and labels.
    start : Linear, optional
        Coefficients and intercepts at which the fit begins; ignored if of another shape.
    policy : Policy, optional
        The limits of small tables.

    Returns
    -------
    bool
        Whether the fit is done. If not, no attribute is set.
    """
    policy = default_policy() if policy is None else policy
    if not (_has_small_table(data, policy) and _has_fixed_loss(model, data)):
        return False
    if not _has_usable_weights(model, data):
        return False
    problem = _make_problem(model, data, policy)
    if problem.loss.kernel_parameters is None:
        return False
    rows = np.ascontiguousarray(data.matrix, dtype=np.float64)
    weights, begin = data.weights.copy(), None
    if start is not None and start[0].T.shape == (problem.n_scores, rows.shape[1]):
        begin = np.concatenate([start[0].T.ravel(), start[1]]) if start[0].any() else None
    found = _kernels.small_table(rows, data.labels.codes, weights, problem, begin)
    if found is None:
        return False
    model.coef_, model.intercept_, scores, numbers = found
    model.objective_, model.n_iter_, model.n_passes_, factor, slopes, count = numbers
    model.alpha_, model.scale_ = factor * problem.alpha, problem.loss.scale
    model.multi_class_ = "ovr" if problem.joint is None else "joint"
    if model.probability == "held_out":
        margin = problem.loss.margin
        slopes = np.array(slopes) / margin
        model.link_ = FittedLink(margin, slopes, smoothing=smoothing_of(count))
    model._keep_margins(_margins(problem, data, scores.T, weights), problem.loss.scale)
    return True


def _has_small_table(data: TrainingData, policy: Policy) -> bool:
    """Whether the rows are a small dense table, each of one class.

    The link of a table with more than `max_link_rows` rows is fitted to some of them.
    """
    matrix, labels, half_policy = data.matrix, data.labels, HalfFitPolicy()
    if labels.n_classes >= half_policy.min_rescaled_classes:  # the link needs the half fits
        return False
    if type(matrix) is not np.ndarray or data.has_kernel_features:
        return False
    if data.variance_weights is not None:
        return False
    if _kernels.small_table is None or isinstance(labels, LabelSets):
        return False
    n_coefficients = matrix.shape[1] + 1
    n_scores = labels.n_classes if labels.n_classes > 2 else 1
    return (
        n_scores * n_coefficients <= policy.max_newton_coefficients
        and len(matrix) * n_coefficients <= policy.max_small_elements
        and len(matrix) <= half_policy.max_link_rows
    )


def _has_usable_weights(model: Any, data: TrainingData) -> bool:
    """Whether all weights are positive, and equal where the leverage is to be bounded."""
    least = data.weights.min()
    return bool(least > 0 and (model.leverage_bound is None or least == data.weights.max()))


def _has_fixed_loss(model: Any, data: TrainingData) -> bool:
    """Whether the parameters ask for a fixed scale, a joint loss and a unit by column."""
    is_joint = data.labels.n_classes > 2
    return bool(
        not isinstance(model.scale, str)
        and not (is_joint and (model.multi_class == "ovr" or model.overconfidence > 0))
        and _unit(model, data) in ("standardised", "inflated")
    )


def _unit(model: Any, data: TrainingData) -> str:
    """Return the unit of the penalty."""
    unit = model._resolve_alpha_unit(is_sparse=False, rows_per_column=data.rows_per_column)
    return str(unit)


def _make_problem(model: Any, data: TrainingData, policy: Policy) -> SmallProblem:
    half_policy, n_classes = HalfFitPolicy(), data.labels.n_classes
    loss, n_columns = model._loss(float(model.scale)), data.matrix.shape[1]
    joint = JointLoss.at_level(loss) if n_classes > 2 else None
    factors: tuple[float, ...] = (1.0,) if model.probability == "held_out" else ()
    if model.alpha == "auto" and half_policy.chooses_penalty(data.n_samples, n_columns):
        factors = half_policy.factors_of(is_joint=joint is not None)
    half_tol, direction = 1.0, np.zeros(n_columns)  # not used without half fits
    if factors:
        half_tol = half_policy.half_fit_tol(factors, bounds_gap=False)
        direction = random_direction(n_columns)
    bound = np.inf if model.leverage_bound is None else float(model.leverage_bound)
    return SmallProblem(
        n_classes=n_classes,
        n_samples=data.n_samples,
        loss=loss,
        joint=joint,
        has_intercept=bool(model.fit_intercept),
        leverage_bound=bound,
        alpha=model._penalty(data.n_samples),
        inflation=INFLATION if _unit(model, data) == "inflated" else 0.0,
        factors=np.array(factors),
        tolerances=(model.tol, policy.certain_decrement, half_tol, policy.certain_fold_decrement),
        objective_floor=Problem.floor_fraction * value_at_zero(joint or loss, n_classes),
        max_iter=int(model.max_iter),
        half_max_iter=min(int(model.max_iter), half_policy.max_iter),
        max_increase=half_policy.max_increase,
        max_joint_increase=half_policy.max_joint_increase,
        min_likelihood_gain=half_policy.min_likelihood_gain,
        min_distinct_rows=half_policy.min_distinct_rows,
        direction=direction,
    )


def _margins(
    problem: SmallProblem, data: TrainingData, scores: FloatArray, weights: FloatArray
) -> Margins:
    """Return the margins of scores of shape (n_rows, n_scores)."""
    level = problem.loss.margin
    if problem.joint is None:
        return Margins.from_scores(scores, data.labels, weights, data.total_weight, level)
    margins = problem.joint.margins(scores, data.labels.codes)
    return Margins.from_margins(margins[:, np.newaxis], weights, data.total_weight, level)
