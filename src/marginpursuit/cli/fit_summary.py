"""What `fit` prints: the cross-validated error, a baseline, calibration and hyper-parameters."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from marginpursuit.cli.data import Labelled
from marginpursuit.cli.folds import with_folds
from marginpursuit.cli.output import named_options
from marginpursuit.experiments.coefficients import bootstrap
from marginpursuit.experiments.compare import standardised
from marginpursuit.experiments.cross_validation import (
    cross_validate,
    fitted_numbers,
    stratified_splits,
    vectorised_splits,
)
from marginpursuit.experiments.method_results import MethodResult
from marginpursuit.tables import TableError, counted

__all__ = ["FitSummary", "evaluate", "fit_labelled"]


def fit_labelled(
    model: Any, known: Labelled, n_resamples: int, progress: Callable[[str], None]
) -> Any:
    """Fit a method to all rows; return it, or its pipeline with the steps before it.

    These are the vectoriser of a mixed table, and the scaler of a method without coefficients.
    `model` itself is fitted in place, and keeps the standard errors of `n_resamples` fits of a
    bootstrap. `progress` is called after each fit.
    """
    vectoriser = None if known.vectoriser is None else clone(known.vectoriser)
    matrix = known.X if vectoriser is None else vectoriser.fit_transform(known.X)
    fitted = standardised(model, matrix, known.y)
    progress("bootstrap")
    if n_resamples and hasattr(model, "coef_"):
        bootstrap(model, matrix, known.y, n_resamples, progress).store(model)
    scaling = [] if fitted is model else fitted.steps[:-1]
    if vectoriser is not None:
        return Pipeline([("table", vectoriser), *scaling, ("classifier", model)])
    if known.columns is not None:
        first = scaling[0][1] if scaling else model
        first.feature_names_in_ = np.array(known.columns, dtype=object)
    if known.used_columns is not None:
        model.used_columns_ = known.used_columns
    if known.target is not None:
        model.target_name_ = known.target
    return fitted


def evaluate(
    model: Any, known: Labelled, folds: int, progress: Callable[[str], None]
) -> MethodResult | None:
    """Cross-validate a method, as `with_folds` permits; None if that is not possible."""
    try:
        known, n_folds = with_folds(known, folds)
    except TableError:
        return None
    splits = stratified_splits(known.y, groups=known.groups, n_folds=n_folds)
    if known.vectoriser is not None:
        splits = vectorised_splits(splits, known.vectoriser, known.X, progress)
    return cross_validate(
        type(model).__name__,
        clone(model),
        known.X,
        known.y,
        splits,
        with_course=False,
        progress=progress,
    )


@dataclass(frozen=True)
class FitSummary:
    """The result of a fit."""

    data: str
    method: str
    n_columns: int
    n_features: int
    class_sizes: dict[str, int]
    chosen: dict[str, float]
    evaluation: MethodResult | None
    model: Path

    @classmethod
    def of(
        cls, model: Any, known: Labelled, evaluation: MethodResult | None, path: Path
    ) -> "FitSummary":
        """Collect the summary of a fitted model."""
        classes, sizes = np.unique(known.y, return_counts=True)
        # n_iter_ and n_passes_ are counts.
        numbers = {n: value for n, value in fitted_numbers(model).items() if not n.startswith("n_")}
        return cls(
            known.name,
            type(model).__name__,
            known.X.shape[1],
            model.n_features_in_,
            dict(zip(map(str, classes.tolist()), sizes.tolist(), strict=True)),
            getattr(model, "best_params_", numbers),
            evaluation,
            path,
        )

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return sum(self.class_sizes.values())

    @property
    def majority_error(self) -> float:
        """The error of predicting the most frequent class."""
        return 1 - max(self.class_sizes.values()) / self.n_rows

    @property
    def missing_evaluation(self) -> str | None:
        """The reason for which there is no cross-validated error; None if there is one."""
        if self.evaluation is None:
            return "cross-validation needs at least 2 classes with at least 2 rows"
        failure = self.evaluation.failure
        return None if failure is None else named_options(failure)

    def as_dict(self) -> dict[str, Any]:
        """Return the summary for JSON."""
        content: dict[str, Any] = {
            "model": str(self.model),
            "data": self.data,
            "method": self.method,
            "n_rows": self.n_rows,
            "n_columns": self.n_columns,
            "n_features": self.n_features,
            "classes": self.class_sizes,
            "hyper_parameters": {name: float(value) for name, value in self.chosen.items()},
            "baseline_error": self.majority_error,
        }
        if self.evaluation is None or self.missing_evaluation:
            return {**content, "error": None, "reason": self.missing_evaluation}
        return {
            **content,
            "error": self.evaluation.error,
            "interval": list(self.evaluation.error_interval),
            "n_folds": len(self.evaluation.folds),
            "log_loss": self.evaluation.log_loss,
            "calibration_error": self.evaluation.calibration_error,
        }

    def as_text(self) -> str:
        """Return the summary in words."""
        frequent = shorten(
            max(self.class_sizes, key=lambda label: self.class_sizes[label]), 60, placeholder=" ..."
        )
        numbers = ", ".join(
            f"{name.rstrip('_')} {float(value):.4g}" for name, value in self.chosen.items()
        )
        is_encoded = self.n_features != self.n_columns
        encoded = f"{counted(self.n_features, 'feature')}, " if is_encoded else ""
        lines = [
            f"{self.method} on {self.data}: {counted(self.n_rows, 'row')}, "
            f"{counted(self.n_columns, 'column')}, {encoded}"
            f"{counted(len(self.class_sizes), 'class')}",
            *self._evaluation_lines(),
            f"  baseline          {100 * self.majority_error:.2f} % error, if always predicting "
            f"the most frequent class, {frequent}",
            f"  hyper-parameters  {numbers or 'none chosen by the fit'}",
            f"  model             fitted to all rows, saved in {self.model}",
        ]
        return "\n".join(lines)

    def _evaluation_lines(self) -> list[str]:
        result = self.evaluation
        if result is None or self.missing_evaluation:
            return [f"  held-out error    not measured: {self.missing_evaluation}"]
        low, high = result.error_interval
        return [
            f"  held-out error    {100 * result.error:.2f} %, 95 % interval {100 * low:.2f} to "
            f"{100 * high:.2f} % ({len(result.folds)}-fold cross-validation)",
            "  calibration       " + _calibration(result),
        ]


def _calibration(result: MethodResult) -> str:
    if result.log_loss is None or result.calibration_error is None:
        return "no probabilities"
    return (
        f"log-loss {result.log_loss:.3f}, expected calibration error "
        f"{result.calibration_error:.3f} (held-out rows)"
    )
