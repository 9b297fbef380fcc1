"""Progress of a fit: printed lines, scikit-learn's callbacks, and warnings.

The callbacks are experimental and exist since scikit-learn 1.9.
"""

import sys
import warnings
from collections.abc import Callable
from typing import Any

from marginpursuit.solvers import Plan, Progress

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # scikit-learn before 1.9

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Empty, since scikit-learn has no callbacks."""

    def with_callbacks(method: Callable[..., Any]) -> Callable[..., Any]:
        """Return the method, since scikit-learn has no callbacks."""
        return method


__all__ = ["CallbackSupportMixin", "Reporter", "warn", "with_callbacks"]


class Reporter:
    """Prints the progress of one fit and calls the callbacks; `finish` ends it."""

    def __init__(self, estimator: Any) -> None:
        self._estimator = estimator
        self._context: Any = None
        self._data: dict[str, Any] = {}

    @classmethod
    def for_callbacks(cls, estimator: Any, X: Any, y: Any, sample_weight: Any) -> "Reporter":
        """Return a reporter that also calls scikit-learn's callbacks; y may be a function."""
        reporter = cls(estimator)
        if hasattr(estimator, "_init_callback_context"):
            metadata = None if sample_weight is None else {"sample_weight": sample_weight}
            reporter._data = data = {"X": X, "y": y, "metadata": metadata}
            reporter._context = estimator._init_callback_context(max_subtasks=None)
            reporter._context.call_on_fit_task_begin(estimator=estimator, **data)
        return reporter

    def __call__(self, progress: Progress) -> None:
        """Report one iteration."""
        if self._estimator.verbose:
            print(
                f"[{type(self._estimator).__name__}] iteration {progress.iteration}, "
                f"{progress.passes} passes: objective {progress.value:.6g}, "
                f"relative gap {progress.gap:.1e}",
                flush=True,
            )
        self.finish_task("iteration")

    def plan(self, chosen: Plan) -> None:
        """Print the chosen solver and the reason."""
        if self._estimator.verbose:
            print(f"[{type(self._estimator).__name__}] {chosen}", flush=True)

    def finish_task(self, name: str) -> None:
        """Call the callbacks for one task of the fit, which has ended."""
        if self._context is not None:
            task = self._context.subcontext(task_name=name)
            task.call_on_fit_task_begin(estimator=self._estimator, **self._data)
            task.call_on_fit_task_end(estimator=self._estimator, **self._data)

    def finish(self) -> None:
        """Report the end of the fit."""
        if self._context is not None:
            self._context.call_on_fit_task_end(
                estimator=self._estimator, **self._data, reconstruction_attributes={}
            )


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line outside the library that called it."""
    frame, level = sys._getframe(1), 2
    inside = ("marginpursuit.", "sklearn.callback.")
    while frame.f_back and frame.f_globals.get("__name__", "").startswith(inside):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
