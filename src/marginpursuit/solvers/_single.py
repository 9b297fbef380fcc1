r"""One of the problems with its Hessian and its dual at hand.

Where a problem is looked at alone, a point is a vector: coefficients and, if there is one, the
intercept. Only rows of positive weight count.

The loss of a row has two sides: short of the level, with weight one, and above it, with weight τ.
Each is a function of its own residual r, γ - m and m - γ, that is flat where r < 0. Its slope is a
force f between 0 and F = weight · s · B. Arrays of them have shape (n_sides, n_rows); with τ = 0
there is one side.

By Fenchel's inequality any such forces bound the minimum from below if they balance, that is if
they pull with what the penalty pulls back. So a gap is proven but for what they lack to balance.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor

from marginpursuit._namespaces import to_numpy
from marginpursuit._threads import Threads, single_threaded_blas
from marginpursuit._validation import FloatArray
from marginpursuit.design import Design, MemoryDesign
from marginpursuit.losses import INFLUENCE_BOUND, TRUNCATION, influence_inverse, rho
from marginpursuit.solvers._problem import Problem

# Columns from which on to multiply by a Hessian some times is quicker than to factorise it, and the
# share of the rows that may be copied for it.
_WIDE, _FEW_CURVED = 256, 0.1


def part_of(
    problem: Problem, rows: NDArray[np.intp] | slice, *, threads: Threads | None = None
) -> Problem:
    """Return the problem with some of its rows, which are in memory, in the same coordinates."""
    tasks, design = problem.tasks, problem.prepared.design.subset(rows, threads)
    fewer = replace(tasks, codes=tasks.codes[rows], weights=tasks.weights[:, rows])
    return replace(problem, prepared=replace(problem.prepared, design=design), tasks=fewer)


class SmoothProblem:
    """One task of a problem, for any loss that has a curvature."""

    def __init__(self, problem: Problem, task: int) -> None:
        prepared, tasks = problem.prepared, problem.tasks.on_host()
        weights = tasks.weights[tasks.fold[task]]
        self.loss = tasks.losses[task]
        self.rows = np.flatnonzero(weights)
        self.weights = weights[self.rows]
        self.sign = tasks.sign(task)[self.rows]
        self.penalty = np.append(problem.penalty[task], np.zeros(int(prepared.fit_intercept)))
        self._prepared, self._design = prepared, prepared.design
        self._problem, self._task = problem, np.array([task])

    def score(self, point: FloatArray) -> FloatArray:
        """Return the scores of the rows."""
        return self._scores(self._design, point)[self.rows]

    def value(self, point: FloatArray, scores: FloatArray) -> float:
        """Return the objective at a point with these scores."""
        losses = self.loss.value(self.sign * scores)
        return float(self.weights @ losses + 0.5 * self.penalty @ point**2)

    def pull(self, force: FloatArray) -> FloatArray:
        """Return what forces towards a higher margin, one a row, pull a point with."""
        return self._adjoint(self._weighted(self.sign * force))

    def factorise(self, curvature: FloatArray) -> Any:
        """Factorise the Hessian where the rows have these curvatures."""
        n_columns, total = self._design.n_columns, self._weighted(curvature)
        # As in the preconditioner, what is added is below the rounding of the sums.
        matrix = np.diag(self.penalty + self._design.rounding * n_columns * total.sum())
        matrix[:n_columns, :n_columns] += self._design.gram(total, self._prepared.standardisation)
        if self._prepared.fit_intercept:
            matrix[-1] += self._adjoint(total)
            matrix[:-1, -1] = matrix[-1, :-1]
        still = self._project(np.ones(len(matrix))) == 0
        if still.any():
            matrix[still], matrix[:, still] = 0.0, 0.0
            matrix[still, still] = 1.0
        with single_threaded_blas():
            return cho_factor(matrix, lower=True, overwrite_a=True)

    def multiply(self, curvature: FloatArray) -> Callable[[FloatArray], FloatArray] | None:
        """Return what multiplies by the Hessian where the rows have these curvatures.

        None where to factorise it is as quick, or the rows that it takes are too many to copy.
        """
        design, curved = self._design, np.flatnonzero(curvature)
        if not isinstance(design, MemoryDesign) or design.is_sparse or design.n_columns < _WIDE:
            return None
        if len(curved) > _FEW_CURVED * design.n_rows:
            return None
        some, factors = (
            design.cached_subset(self.rows[curved]),
            self.weights[curved] * curvature[curved],
        )

        def product(point: FloatArray) -> FloatArray:
            bends = factors * self._scores(some, point)
            return self._project(self._pulled(some, bends)) + self.penalty * point

        return product

    def tolerance(self, value: float) -> float:
        """Return the suboptimality that is asked for, where the objective has this value."""
        unit = self._problem.relative_to(np.full(len(self._problem.tasks), value))
        return self._problem.tol * float(unit[self._task[0]])

    def _weighted(self, values: FloatArray) -> FloatArray:
        """Return weight times value for every row of the data."""
        total = np.zeros(self._design.n_rows)
        total[self.rows] = self.weights * values
        return total

    def _adjoint(self, factors: FloatArray) -> FloatArray:
        return self._project(self._pulled(self._design, factors))

    def _scores(self, design: Design, point: FloatArray) -> FloatArray:
        n_columns = design.n_columns
        intercept = point[n_columns:] if self._prepared.fit_intercept else np.zeros(1)
        z = self._prepared.standardisation
        scores = design.scores(point[:n_columns, np.newaxis], intercept, z)
        return np.asarray(to_numpy(scores)[:, 0], dtype=np.float64)

    def _pulled(self, design: Design, factors: FloatArray) -> FloatArray:
        total = design.adjoint(factors, self._prepared.standardisation)
        return np.append(total, factors.sum()) if self._prepared.fit_intercept else total

    def _project(self, point: FloatArray) -> FloatArray:
        return np.asarray(self._problem.project(point[np.newaxis].copy(), self._task)[0])


class SingleProblem(SmoothProblem):
    """One task of a problem, with the two sides of its loss.

    `straight` is what rows pull with that are not looked at one by one.
    """

    def __init__(self, problem: Problem, task: int) -> None:
        super().__init__(problem, task)
        self.straight = np.zeros(len(self.penalty))
        n_sides = 2 if self.loss.overconfidence > 0 else 1
        self.side = np.array([[1.0], [-1.0]])[:n_sides]
        self.side_weight = np.array([[1.0], [self.loss.overconfidence]])[:n_sides]
        self.most_force = self.side_weight * self.loss.scale * INFLUENCE_BOUND

    def residual(self, scores: FloatArray) -> FloatArray:
        """Return the residuals of the sides."""
        return np.asarray(self.side * (self.loss.margin - self.sign * scores))

    def natural(self, force: FloatArray) -> FloatArray:
        """Return the residuals at which the sides have these forces."""
        share = np.minimum(force / (self.side_weight * self.loss.scale), INFLUENCE_BOUND)
        return np.asarray(self.loss.scale * influence_inverse(share))

    def gap(
        self,
        scores: FloatArray,
        force: FloatArray,
        imbalance: FloatArray,
        rows: NDArray[np.intp] | slice = slice(None),
    ) -> float:
        """Bound the suboptimality of a point with these scores, by forces of the sides.

        `force` is that of some rows; all others have the force that belongs to their score.
        """
        scale, natural = self.loss.scale, self.natural(force)
        conjugate = force * natural - self.side_weight * scale**2 * rho(natural / scale)
        losses = self.loss.value(self.sign * scores)
        residual = self.residual(scores)[:, rows]
        lack = losses[rows] + (conjugate - force * residual).sum(axis=0)
        # An imbalance costs at most its size times the distance to the minimiser.
        conditioned = self._problem.precondition(imbalance[np.newaxis], self._task)[0]
        size = np.sqrt(imbalance @ conditioned)
        distance = self.loss.margin + np.sqrt(self.weights @ scores**2)
        rounding = float(np.finfo(np.float64).eps) * float(self.weights @ losses)
        return max(rounding, float(self.weights[rows] @ lack + size * distance))


class NearProblem(SingleProblem):
    """The problem, without overconfidence, with all rows but some taken for straight.

    A row is straight short of the curved part of its loss and above the level. To take it for
    straight everywhere makes its loss no larger, as that is convex: what bounds the minimum of this
    problem from below bounds that of the whole.
    """

    def __init__(self, single: SingleProblem, near: NDArray[np.bool_], scores: FloatArray) -> None:
        super().__init__(part_of(single._problem, single.rows[near]), int(single._task[0]))
        short = ~near & (single.residual(scores)[0] > 0)
        force = float(self.most_force[0, 0])
        self.straight = single.pull(np.where(short, force, 0.0))
        # The straight part of the loss, carried on to a margin of zero.
        end = self.loss.margin - TRUNCATION * self.loss.scale
        self._constant = float(single.weights @ short) * float(self.loss.value(end) + force * end)

    def value(self, point: FloatArray, scores: FloatArray) -> float:
        """Return the objective at a point with these scores of the rows that are near."""
        return super().value(point, scores) + self._constant - float(self.straight @ point)
