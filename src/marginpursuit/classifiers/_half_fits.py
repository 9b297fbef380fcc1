r"""A probability link from two half fits, each of which scores the rows of the other half.

The scores of a fit to its own rows are too far from zero: the link is fitted to *held-out* scores.
The rows are split into two halves by their content. Both halves are folds of one problem over the
data as they are prepared for the fit to all rows, in shared passes. They start at that fit. Their
penalty is twice its own: each half has half the rows.

**The split.** The rows of a class are ordered by a random projection with a fixed seed, rounded to
float32, and distinct values alternate between the halves. Equal rows are in the same half, so that
a row of weight 2 is split like two copies of it, whatever the order of the rows. A class with fewer
than four distinct rows belongs to both halves, with half its weight, and is not scored.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginpursuit._namespaces import to_numpy
from marginpursuit._validation import FloatArray
from marginpursuit.classifiers._input import TrainingData
from marginpursuit.classifiers._link import FittedLink, thinning
from marginpursuit.design import Design, Linear, Standardisation
from marginpursuit.solvers import FOLD_SOLVERS, Problem

__all__ = ["HalfFitPolicy", "Halves", "held_out_link"]


@dataclass(frozen=True, slots=True)
class HalfFitPolicy:
    """Thresholds of the half fits."""

    tol: float = 1e-3  # relative suboptimality of a half fit
    max_iter: int = 100
    min_distinct_rows: int = 4  # of a class, so that each half has two
    max_link_rows: int = 1 << 14  # held-out rows to which the four slopes are fitted


@dataclass(frozen=True, slots=True)
class Halves:
    """Which rows are fitted and held out by each of the two half fits."""

    weights: FloatArray  # (2, n_rows), of the fits; each row sums to one
    held_out: NDArray[np.bool_]  # (2, n_rows)

    @classmethod
    def of(
        cls,
        projection: FloatArray,
        codes: NDArray[np.intp],
        weights: FloatArray,
        min_distinct_rows: int = 4,
    ) -> "Halves | None":
        """Split the rows; None unless two classes have enough distinct rows to be scored."""
        is_used = weights > 0
        # The class in the upper half of a key, the projection as an integer in the lower.
        bits = (projection.astype(np.float32) + np.float32(0.0)).view(np.uint32)  # -0.0 becomes 0.0
        keys = codes.astype(np.uint64) << np.uint64(32) | bits.astype(np.uint64)
        distinct, place = np.unique(keys[is_used], return_inverse=True)
        code = (distinct >> np.uint64(32)).astype(np.intp)
        n_distinct = np.bincount(code)
        is_split = n_distinct >= min_distinct_rows
        if np.count_nonzero(is_split) < 2:
            return None
        first = np.concatenate([[0], np.cumsum(n_distinct)[:-1]])
        # The half with one row more of an odd number alternates between the classes.
        half = (np.arange(len(distinct)) - first[code] + code) % 2
        fitted = np.zeros((2, len(weights)))
        held_out = np.zeros((2, len(weights)), dtype=bool)
        for number in range(2):
            held_out[number, is_used] = (is_split[code] & (half != number))[place]
            fitted[number, is_used] = np.where(is_split[code], half == number, 0.5)[place]
        fitted *= weights
        fitted /= fitted.sum(axis=1, keepdims=True)
        return cls(fitted, held_out)

    def thinned(self, step: int) -> "Halves":
        """Return the same fits, with one of `step` held-out rows, in the order of the rows."""
        rows = np.flatnonzero(self.held_out.any(axis=0))
        kept = np.zeros_like(self.held_out)
        kept[:, rows[::step]] = self.held_out[:, rows[::step]]
        return Halves(self.weights, kept)


def held_out_link(
    design: Design,
    data: TrainingData,
    problem: Problem,
    solver: str,
    fit: Linear,
    policy: HalfFitPolicy | None = None,
) -> FittedLink | None:
    """Return the link that is fitted to the held-out scores of two half fits.

    Parameters
    ----------
    design : Design
        The rows as they came.
    data : TrainingData
        Labels, and the weights of the fit.
    problem : Problem
        The problem of the fit to all rows.
    solver : str
        The solver that prepared it.
    fit : tuple of ndarray
        Its solution, in the coordinates of the prepared data.
    policy : HalfFitPolicy, optional
        Thresholds.

    Returns
    -------
    FittedLink or None
        None where fewer than two classes have four distinct rows, or the solver fits no folds.
    """
    policy = HalfFitPolicy() if policy is None else policy
    if solver not in FOLD_SOLVERS:
        return None
    codes, weights = (to_numpy(x) for x in (data.labels.codes, data.weights))
    projection = _projection(design, problem)
    halves = Halves.of(projection, codes, weights, policy.min_distinct_rows)
    if halves is None:
        return None
    step = thinning(int(np.count_nonzero(halves.held_out)), policy.max_link_rows)
    halves = halves.thinned(step)
    scores = _held_out_scores(problem, solver, fit, halves, policy)
    rows = [np.flatnonzero(held_out) for held_out in halves.held_out]
    order = np.argsort(np.concatenate(rows))  # the order of the rows, however they are split
    kept = np.concatenate(rows)[order]
    return FittedLink.fit(
        np.concatenate(scores)[order],
        codes[kept],
        step * data.n_samples * weights[kept],
        problem.tasks.losses[0].margin,
        max_rows=policy.max_link_rows,
    )


def _projection(design: Design, problem: Problem) -> FloatArray:
    """Return a random projection of the rows as they came, which has the same value for equal rows.

    The columns of dense rows are standardised. Solvers of sparse or wide rows may have replaced the
    columns, so these are not used.
    """
    prepared = problem.prepared
    standardisation = prepared.standardisation
    if prepared.design is not design:
        standardisation = Standardisation.identity(design.n_columns)
        if not design.is_sparse:
            weights, centred = problem.tasks.weights[0, :], prepared.fit_intercept
            standardisation = design.standardisation(weights, centred=centred)
    normal = np.random.default_rng(0).standard_normal((design.n_columns, 1))
    scores: Any = design.scores(normal, np.zeros(1), standardisation)
    return np.asarray(to_numpy(scores), dtype=np.float64)[:, 0]


def _held_out_scores(
    problem: Problem, solver: str, fit: Linear, halves: Halves, policy: HalfFitPolicy
) -> list[FloatArray]:
    """Fit both halves, in shared passes, and return the scores of the rows that each holds out."""
    prepared, tasks = problem.prepared, problem.tasks
    n_tasks, fold = len(tasks), np.repeat([0, 1], len(tasks))
    columns = np.repeat([0, 1], n_tasks * tasks.columns_per_task)  # the half of each score
    both = replace(
        tasks,
        weights=prepared.design.place(halves.weights),
        positive=np.tile(tasks.positive, 2),
        fold=fold,
        losses=2 * tasks.losses,
    )
    half_fits = replace(
        problem,
        prepared=replace(prepared, unit=np.repeat(prepared.unit, 2, axis=0)),
        tasks=both,
        alphas=2.0 * np.tile(problem.alphas, 2),
        start=(np.tile(fit[0], 2), np.tile(fit[1], 2)),
        max_iter=min(problem.max_iter, policy.max_iter),
        tol=policy.tol,
        report=None,
        keep=None,
    )
    solution = FOLD_SOLVERS[solver].solve_folds(half_fits, np.full(2 * n_tasks, policy.tol))
    linear = prepared.standardisation.to_data(solution.linear)
    return prepared.design.held_out_scores(*linear, halves.held_out, columns)
