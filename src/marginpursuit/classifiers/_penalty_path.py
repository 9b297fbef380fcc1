"""Fits at a sequence of penalties, each warm-started by the one before; the data are prepared once.

Penalties decrease: the minimiser for a large penalty takes few passes, and is close to that for the
next. Products of float32 rows on a CUDA device are in TF32: factors have 11 significant bits, which
suffices for the choice of a penalty.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from marginpursuit._namespaces import is_array_api
from marginpursuit._threads import Threads, usable_threads
from marginpursuit.classifiers._input import TrainingData
from marginpursuit.classifiers._leverage import bounded_weights
from marginpursuit.classifiers.margin_pursuit import MarginPursuitClassifier
from marginpursuit.design import ArrayDesign, Design, Linear, design_for
from marginpursuit.design.arrays import ArrayPolicy
from marginpursuit.solvers import FOLD_SOLVERS, Problem, plan

__all__ = ["PathFit", "penalty_path"]


@dataclass(frozen=True, slots=True)
class PathFit:
    """The fit at one penalty."""

    alpha: float
    linear: Linear  # for the rows as they are
    gap: float  # the estimated relative suboptimality
    n_iter: int


def penalty_path(
    model: MarginPursuitClassifier,
    data: TrainingData,
    alphas: Iterable[float],
    *,
    tol: float = 1e-3,
    max_iter: int = 200,
) -> Iterator[PathFit]:
    """Yield fits at penalties, from the largest to the smallest.

    Parameters
    ----------
    model : MarginPursuitClassifier
        The parameters of the fits, apart from the penalty, with a number as scale and a solver
        that fits folds.
    data : TrainingData
        Checked data, as `_check_training` of the model returns them.
    alphas : iterable of float
        The penalties.
    tol : float, default=1e-3
        The estimated relative suboptimality of the fits.
    max_iter : int, default=200
        The most iterations at one penalty.

    Yields
    ------
    PathFit
        The fit at each penalty.
    """
    falling = sorted(set(map(float, alphas)), reverse=True)
    least = model.__class__(**{**model.get_params(), "alpha": falling[-1]})
    with (
        Threads(usable_threads(model.n_threads)) as threads,
        _fast_design(data.matrix, threads) as design,
    ):
        data = bounded_weights(design, data, model.leverage_bound, centred=model.fit_intercept)
        request, tasks = least._request(design, data, float(model.scale), is_stream=False)
        solver = FOLD_SOLVERS[plan(request, model.solver).solver]
        prepared = solver.prepare(request)
        start = prepared.zeros(len(tasks) * tasks.columns_per_task)
        for alpha in falling:
            problem = Problem(prepared, tasks, np.full(len(tasks), alpha), start, max_iter, tol)
            solution = solver.solve_folds(problem, np.full(len(tasks), tol))
            prepared.preconditioner.forget()
            start = solution.linear
            linear = prepared.to_data(start)
            yield PathFit(alpha, linear, float(solution.gap.max()), solution.n_iter)


def _fast_design(matrix: Any, threads: Threads) -> Design:
    """Return a design whose products of float32 rows may be in TF32."""
    if is_array_api(matrix):
        return ArrayDesign(matrix, threads, policy=ArrayPolicy(float32_precision="high"))
    return design_for(matrix, threads)
