"""The data of fold fits, prepared for a solver.

The fits to all folds share passes over one design matrix: a fold is a row of a weight matrix, with
zeros for the rows that it holds out. In the space of the rows (Gram preconditioner, n < d) each
fold has a design matrix of its own.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginpursuit._threads import Threads
from marginpursuit._validation import FloatArray
from marginpursuit.design import (
    ColumnRotation,
    Design,
    design_for,
    elements_per_row,
    loaded,
    take_rows,
)
from marginpursuit.losses import JointLoss, MarginLoss
from marginpursuit.selection.candidates import FitOptions, Fold, Stopping
from marginpursuit.selection.policy import SelectionPolicy
from marginpursuit.solvers import (
    FOLD_SOLVERS,
    SOLVERS,
    FoldSolver,
    Prepared,
    Request,
    plan,
    request_merge,
)
from marginpursuit.tasks import Labels, LabelSets, RowRanges


@dataclass(frozen=True)
class FoldData:
    """Rows to fit and rows to score, and the folds that consist of them."""

    fitted: Any  # matrix of the rows to fit
    scored: Any  # matrix of the rows to score; the same object where both are all rows
    labels: Labels  # of the rows to fit
    weights: FloatArray  # (n_folds, n_rows to fit), zero for the rows that a fold holds out
    folds: Sequence[Fold]
    #: (n_rows to fit), the weights in the variances of the unit; None stands for `weights`.
    variance_weights: FloatArray | None = None

    def only(self, fold: int) -> "FoldData":
        """Return the data of one fold, without the rows that it holds out from the fit."""
        train = self.folds[fold].train
        return replace(
            self,
            fitted=take_rows(self.fitted, train),
            labels=self.labels.take(train),
            weights=np.ascontiguousarray(self.weights[[fold]][:, train]),
            folds=[self.folds[fold]],
            variance_weights=None
            if self.variance_weights is None
            else self.variance_weights[train],
        )

    @property
    def fold_variance_weights(self) -> FloatArray | None:
        """The weights of the variances for each fold, zero for the rows that it holds out."""
        if self.variance_weights is None:
            return None
        weights = np.where(self.weights > 0, self.variance_weights, 0.0)
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    def in_memory(self) -> "FoldData":
        """Return the same with the rows to fit loaded."""
        fitted = loaded(self.fitted)
        return replace(
            self, fitted=fitted, scored=fitted if self.scored is self.fitted else self.scored
        )


@dataclass(frozen=True)
class FitPlan:
    """How the fold fits of a rung are made."""

    options: FitOptions
    solver: FoldSolver
    stopping: Stopping  # of the fits that are scored
    loose: Stopping  # of the fits that only warm-start others
    is_final: bool  # whether the fits are to all rows, and decide
    policy: SelectionPolicy

    @classmethod
    def make(
        cls,
        data: FoldData,
        options: FitOptions,
        stopping: Stopping,
        policy: SelectionPolicy,
        *,
        is_final: bool,
    ) -> "FitPlan":
        """Choose solver and stopping rules."""
        request = _request(design_for(data.fitted), data, options, policy)
        solver = FOLD_SOLVERS[plan(request, options.solver).solver]
        loose = stopping.loosened(Stopping(*solver.loose_stopping))
        return cls(options, solver, stopping if is_final else loose, loose, is_final, policy)

    @property
    def takes_float32(self) -> bool:
        """Whether sums of products in float32 meet the tolerance, and float32 holds the scores."""
        low, high = self.policy.solvers.float32_margins
        return self.stopping.tol >= self.policy.float32_tol and low <= self.options.margin <= high

    def max_tasks_in_memory(self, n_floats: int) -> int:
        """Return the number of tasks, with this many floats of state each, that memory permits."""
        policy, is_primal = self.policy, self.solver.warm_starts
        n_bytes = policy.max_state_bytes if is_primal else policy.max_dual_state_bytes
        return max(1, n_bytes // (8 * n_floats))


@dataclass(frozen=True)
class FoldGroup:
    """Folds whose fits share passes over one design matrix."""

    folds: list[int]
    prepared: Prepared
    codes: Any  # class codes; like the weights, on the device that holds the rows
    weights: Any  # (n_folds of the group, n_rows of the design matrix), or for each fold and label
    ranges: RowRanges | None
    reader: Design  # of the rows to score
    tests: NDArray[np.bool_]  # (n_folds of the group, n_rows of the reader), the held-out rows
    n_passes: int  # over the rows to fit, that the preparation took


def prepare_groups(data: FoldData, fit_plan: FitPlan, stack: ExitStack) -> list[FoldGroup]:
    """Prepare the design matrices of all folds; `stack` closes them and their threads."""
    threads = stack.enter_context(Threads(fit_plan.options.n_threads))
    policy = fit_plan.policy
    request = _request(design_for(data.fitted), data, fit_plan.options, policy)
    is_separate = fit_plan.solver.separates_folds(request)
    n_bytes = 8 * data.fitted.shape[0] * elements_per_row(data.fitted)
    if is_separate and n_bytes <= policy.max_state_bytes:
        data = data.in_memory()  # each fold takes rows, and passes over them
    reader = stack.enter_context(design_for(data.scored, threads))
    every = list(range(len(data.folds)))
    if is_separate:
        return [_prepared(data.only(fold), [fold], reader, fit_plan, stack) for fold in every]
    return [_prepared(data, every, reader, fit_plan, stack)]


def _prepared(
    data: FoldData, folds: list[int], reader: Design, fit_plan: FitPlan, stack: ExitStack
) -> FoldGroup:
    design = stack.enter_context(design_for(data.fitted, reader.threads))
    codes, weights = data.labels.codes, data.weights
    request, ranges = _request(design, data, fit_plan.options, fit_plan.policy), None
    request = replace(request, tol=fit_plan.stopping.tol)
    if fit_plan.takes_float32 and fit_plan.solver.warm_starts:
        order, ranges = RowRanges.of(weights)
        request = replace(request, order=order)
    prepared = fit_plan.solver.prepare(request)
    if prepared.order is None:
        ranges = None
    else:
        codes = np.ascontiguousarray(codes[..., prepared.order])
        weights = np.ascontiguousarray(weights[:, prepared.order])
    if isinstance(data.labels, LabelSets) and data.labels.factors is not None:
        labels = replace(data.labels, codes=codes)
        weights = np.concatenate([labels.weights(own) for own in weights])
        prepared = replace(
            prepared, penalty_weights=np.repeat(prepared.penalty_weights, labels.n_classes, axis=0)
        )
        if ranges is not None:
            ranges = ranges._replace(is_used=np.repeat(ranges.is_used, labels.n_classes, axis=0))
    tests = np.zeros((len(folds), reader.n_rows), dtype=bool)
    for mask, fold in zip(tests, data.folds, strict=True):
        mask[fold.test] = True
    to_device = prepared.design.to_device
    return FoldGroup(
        folds,
        prepared,
        codes=to_device(codes),
        weights=to_device(weights),
        ranges=ranges,
        reader=reader,
        tests=tests,
        n_passes=design.n_passes,
    )


def fits_jointly(
    multi_class: str, matrix: Any, labels: Labels, options: FitOptions, policy: SelectionPolicy
) -> bool:
    """Whether several classes have a joint loss where overconfidence is zero; labels have none.

    "auto" fits sparse rows for which dual passes are faster one class against the rest.
    """
    if isinstance(labels, LabelSets):
        return False
    if labels.n_classes == 2 or multi_class != "auto":
        return labels.n_classes > 2 and multi_class == "joint"
    request = _whole_request(matrix, labels, options, policy)
    return SOLVERS[plan(request, options.solver).solver].supports_joint


def merged_columns(
    matrix: Any, labels: Labels, options: FitOptions, policy: SelectionPolicy
) -> tuple[Any, ColumnRotation] | None:
    """Merge sparse columns for all rungs of a search; None where it does not pay."""
    request = _whole_request(matrix, labels, options, policy)
    solver = FOLD_SOLVERS[plan(request, options.solver).solver]
    return request_merge(request) if solver.merges_columns else None


def _whole_request(
    matrix: Any, labels: Labels, options: FitOptions, policy: SelectionPolicy
) -> Request:
    """Return the request of fold fits to all rows."""
    weights = np.broadcast_to(1.0 / matrix.shape[0], (2, matrix.shape[0]))
    data = FoldData(matrix, matrix, labels, weights, ())
    return _request(design_for(matrix), data, options, policy)


def _request(
    design: Design, data: FoldData, options: FitOptions, policy: SelectionPolicy
) -> Request:
    return Request(
        design,
        weights=data.weights,
        losses=_losses(options),
        alpha_unit=options.alpha_unit,
        least_alpha=float(options.are_penalised),
        fit_intercept=options.fit_intercept,
        n_problems=len(data.labels.positive_classes),
        is_search=True,
        variance_weights=data.fold_variance_weights,
        n_samples=options.n_samples / options.alpha_factor,
        policy=policy.solvers,
    )


def _losses(options: FitOptions) -> tuple[MarginLoss | JointLoss, ...]:
    """Return a loss of each kind that candidates may have, for the choice of a solver."""
    loss = MarginLoss(options.margin, rho=options.rho)
    if not options.is_joint:
        return (loss,)
    return loss, JointLoss.at_level(replace(loss, overconfidence=0.0))
