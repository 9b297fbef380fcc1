"""How a fit tells what it is doing: lines on request, and scikit-learn's callbacks.

The callbacks are experimental and exist from scikit-learn 1.9 on; this is the only file that knows
of them.
"""

from collections.abc import Callable
from typing import Any

from marginpursuit.solvers import Progress

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # scikit-learn before 1.9

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Stands in where scikit-learn has no callbacks."""

    def with_callbacks(method: Callable[..., Any]) -> Callable[..., Any]:
        """Stand in where scikit-learn has no callbacks."""
        return method


__all__ = ["CallbackSupportMixin", "Reporter", "with_callbacks"]


class Reporter:
    """Passes the progress of one fit on; `finish` ends it."""

    def __init__(self, estimator: Any, X: Any, y: Any) -> None:
        self._estimator = estimator
        self._data = {"X": X, "y": y}
        self._context = None
        if hasattr(estimator, "_init_callback_context"):
            self._context = estimator._init_callback_context(max_subtasks=None)
            self._context.call_on_fit_task_begin(estimator=estimator, **self._data)

    def __call__(self, progress: Progress) -> None:
        """Report one iteration."""
        if self._estimator.verbose:
            print(
                f"[{type(self._estimator).__name__}] iteration {progress.iteration}, "
                f"{progress.reads} reads: objective {progress.value:.6g}, "
                f"relative gap {progress.gap:.1e}",
                flush=True,
            )
        if self._context is not None:
            task = self._context.subcontext(task_name="iteration")
            task.call_on_fit_task_begin(estimator=self._estimator, **self._data)
            task.call_on_fit_task_end(estimator=self._estimator, **self._data)

    def finish(self) -> None:
        """Report that the fit is over."""
        if self._context is not None:
            self._context.call_on_fit_task_end(
                estimator=self._estimator, **self._data, reconstruction_attributes={}
            )
