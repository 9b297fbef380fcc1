r"""What goes into a solver and what comes out.

The objective, written once. For task k (one class against the rest, on one part of the rows, with
its loss φ and penalty α) with weights c that sum to one and margins m = y (z·w + b) in the
coordinates z of the prepared,

.. math::

    F_k(w, b) = \sum_i c_i\, \varphi(m_i) + \frac{\alpha}{2} \sum_j u_j w_j^2 ,

where u is what a penalty of one means to each column. The intercept b is never penalised. The
coefficients of all tasks are the columns of one array.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginpursuit._validation import FloatArray
from marginpursuit.design import Design, Linear
from marginpursuit.tasks import Tasks


class Status(Enum):
    """How a solve ended; the value is the text that the user sees."""

    CONVERGED = "converged"
    ROUNDING = "stopped where rounding hides any further decrease"
    MAX_ITER = "reached max_iter before the tolerance"
    ALL_STEPS = "took all steps that were asked for"


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a solve is after an iteration."""

    iteration: int
    passes: int
    value: float  # the mean objective of the tasks
    gap: float  # the largest estimated relative suboptimality of a task


@dataclass(frozen=True, slots=True)
class Prepared:
    """The coordinates in which a solver works; made once, used for every loss and penalty.

    `precondition` applies the inverse of a matrix that bounds the Hessian from above, for a penalty
    α, to points, one a row, with the intercept, if there is one, as last entry. `bent`, if there
    is such a thing, returns the same coordinates with a matrix near the Hessian where the loss has
    these curvatures, weight included, at the rows. `order` is that of the rows in the design, if it
    is not theirs.
    """

    design: Design
    fit_intercept: bool
    unit: FloatArray  # (n_parts, n_columns), u; infinite for a column that a part leaves out
    precondition: Callable[[FloatArray, float], FloatArray]
    to_data: Callable[[Linear], Linear]  # from these coordinates to those of the data as it came
    from_data: Callable[[Linear], Linear]
    with_hessian: "Callable[[FloatArray], Prepared] | None" = None
    order: NDArray[np.intp] | None = None


def _forget(problem: "Problem", linear: Linear) -> None:
    """Keep nothing of an iterate."""


@dataclass(frozen=True)
class Problem:
    """Fits to be made together."""

    prepared: Prepared
    tasks: Tasks
    alphas: FloatArray  # (n_tasks,)
    start: Linear  # in the coordinates of the prepared
    max_iter: int
    tol: float
    report: Callable[[Progress], None]
    random_state: Any = None  # seed or source, for solvers that draw
    keep: Callable[["Problem", Linear], None] = _forget  # is handed each iterate
    # A solver that bounds the gap may stop where that is at most this share of what it has gained.
    enough: float = 0.0

    @cached_property
    def _still(self) -> NDArray[np.bool_] | None:
        """The entries of each task's point that may not move, if there are any."""
        left_out = np.isinf(self.prepared.unit)
        if not left_out.any():
            return None
        still = left_out[self.tasks.part]
        if not self.prepared.fit_intercept:
            return still
        return np.column_stack([still, np.zeros(len(still), dtype=bool)])

    @cached_property
    def penalty(self) -> FloatArray:
        """The penalty of each squared coefficient, of shape (n_tasks, n_columns)."""
        unit = np.where(np.isfinite(self.prepared.unit), self.prepared.unit, 0.0)
        return np.asarray(self.alphas[:, np.newaxis] * unit[self.tasks.part])

    def project(self, points: FloatArray, tasks: NDArray[np.intp]) -> FloatArray:
        """Set the entries of these tasks' points to zero that may not move, and return them."""
        if self._still is not None:
            still = self._still if len(tasks) == len(self._still) else self._still[tasks]
            np.copyto(points, 0.0, where=still)
        return points

    def precondition(self, points: FloatArray, tasks: NDArray[np.intp]) -> FloatArray:
        """Apply the preconditioner to one point (a row) for each of these tasks."""
        alphas = self.alphas[tasks]
        if np.all(alphas == alphas[0]):
            return self.project(self.prepared.precondition(points, float(alphas[0])), tasks)
        result, different = np.empty_like(points), np.unique(alphas)

        def share(thread: int, n_threads: int) -> None:
            for alpha in different[thread::n_threads]:
                which = alphas == alpha
                result[which] = self.prepared.precondition(points[which], float(alpha))

        self.prepared.design.in_threads(share, len(different))
        return self.project(result, tasks)

    def relative_to(self, values: FloatArray | float) -> FloatArray:
        """Return what suboptimality is measured against: the objective itself.

        Where the data can be fitted almost exactly the objective tends to zero; it then counts as a
        hundredth of its value without coefficients.
        """
        return np.maximum(values, self._least)

    @cached_property
    def _least(self) -> FloatArray:
        without = {loss: float(loss.value(0.0)) for loss in set(self.tasks.losses)}
        return 1e-2 * np.array([without[loss] for loss in self.tasks.losses])


@dataclass(frozen=True, slots=True)
class Solution:
    """Fits that were made, in the coordinates of the prepared; arrays have an entry a task."""

    linear: Linear
    value: FloatArray  # the objective
    gap: FloatArray  # estimated relative suboptimality
    status: Status  # the worst of the tasks
    n_iter: int  # the most of the tasks
    history: tuple[Progress, ...]
