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

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor

from marginpursuit._namespaces import to_numpy
from marginpursuit._validation import FloatArray
from marginpursuit.design import MemoryDesign
from marginpursuit.losses import INFLUENCE_BOUND, influence_inverse, rho
from marginpursuit.solvers._problem import Problem


def part_of(problem: Problem, rows: NDArray[np.intp], *, n_threads: int = 1) -> Problem:
    """Return the problem with some of its rows, which are in memory, in the same coordinates."""
    whole, tasks = problem.geometry.design, problem.tasks
    assert isinstance(whole, MemoryDesign)
    design = MemoryDesign(whole.matrix[rows], n_threads=n_threads)
    design.centre, design.inverse_spread = whole.centre, whole.inverse_spread
    fewer = replace(tasks, codes=tasks.codes[rows], weights=tasks.weights[:, rows])
    return replace(problem, geometry=replace(problem.geometry, design=design), tasks=fewer)


class SmoothProblem:
    """One task of a problem, for any loss that has a curvature."""

    def __init__(self, problem: Problem, task: int) -> None:
        geometry, tasks = problem.geometry, problem.tasks.on_host()
        weights = tasks.weights[tasks.part[task]]
        self.loss = tasks.losses[task]
        self.rows = np.flatnonzero(weights)
        self.weights = weights[self.rows]
        self.sign = tasks.sign(task)[self.rows]
        self.penalty = np.append(problem.penalty[task], np.zeros(int(geometry.fit_intercept)))
        self._geometry, self._design = geometry, geometry.design
        self._problem, self._task = problem, np.array([task])

    def score(self, point: FloatArray) -> FloatArray:
        """Return the scores of the rows."""
        n_columns = self._design.n_columns
        intercept = point[n_columns:] if self._geometry.fit_intercept else np.zeros(1)
        scores = self._design.scores(point[:n_columns, np.newaxis], intercept)
        return np.asarray(to_numpy(scores)[self.rows, 0], dtype=np.float64)

    def value(self, point: FloatArray, scores: FloatArray) -> float:
        """Return the objective at a point with these scores."""
        losses = self.loss.value(self.sign * scores)
        return float(self.weights @ losses + 0.5 * self.penalty @ point**2)

    def pull(self, force: FloatArray) -> FloatArray:
        """Return what forces towards a higher margin, one a row, pull a point with."""
        return self._pullback(self._weighted(self.sign * force))

    def factorise(self, curvature: FloatArray) -> Any:
        """Factorise the Hessian where the rows have these curvatures."""
        n_columns, total = self._design.n_columns, self._weighted(curvature)
        # As in the preconditioner, what is added is below the rounding of the sums.
        matrix = np.diag(self.penalty + self._design.rounding * n_columns * total.sum())
        matrix[:n_columns, :n_columns] += self._design.gram(total)
        if self._geometry.fit_intercept:
            matrix[-1] += self._pullback(total)
            matrix[:-1, -1] = matrix[-1, :-1]
        still = self._project(np.ones(len(matrix))) == 0
        if still.any():
            matrix[still], matrix[:, still] = 0.0, 0.0
            matrix[still, still] = 1.0
        return cho_factor(matrix, lower=True, overwrite_a=True)

    def _weighted(self, values: FloatArray) -> FloatArray:
        """Return weight times value for every row of the data."""
        total = np.zeros(self._design.n_rows)
        total[self.rows] = self.weights * values
        return total

    def _pullback(self, factors: FloatArray) -> FloatArray:
        total = self._design.pullback(factors)
        total = np.append(total, factors.sum()) if self._geometry.fit_intercept else total
        return self._project(total)

    def _project(self, point: FloatArray) -> FloatArray:
        return np.asarray(self._problem.project(point[np.newaxis].copy(), self._task)[0])


class SingleProblem(SmoothProblem):
    """One task of a problem, with the two sides of its loss."""

    def __init__(self, problem: Problem, task: int) -> None:
        super().__init__(problem, task)
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
