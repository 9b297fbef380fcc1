"""Data sets of all kinds, problems made of them, and their minima by a minimiser written here."""

from functools import cache

import numpy as np
from scipy import sparse

from marginpursuit._threads import Threads
from marginpursuit.design import design_for
from marginpursuit.losses import MarginLoss
from marginpursuit.solvers import SOLVERS, Policy, Problem, Request
from marginpursuit.solvers._interior_point import InteriorPoint
from marginpursuit.solvers._single_task import ProblemTask
from marginpursuit.tasks import Labels, Tasks


def normal(n, d, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, (X @ rng.normal(size=d) + np.sqrt(d) * rng.normal(size=n) > 0).astype(int)


def unbalanced():
    """One row in fifty is positive."""
    X, _ = normal(200, 4, seed=1)
    score = X[:, 0] + 0.7 * np.random.default_rng(1).normal(size=200)
    return X, (score >= np.sort(score)[-4]).astype(int)


def deficient():
    """Columns that repeat, add up to others or are constant."""
    X, y = normal(120, 3, seed=2)
    return np.column_stack([X, X[:, 0], X[:, 1] - X[:, 2], np.full(120, 3.0)]), y


def one_hot():
    rng = np.random.default_rng(3)
    kinds = rng.integers(0, 4, size=(120, 3))
    X = np.concatenate([kinds[:, [j]] == np.arange(4) for j in range(3)], axis=1)
    return X.astype(np.uint8), (kinds[:, 0] + 2 * (kinds[:, 1] == 2) > rng.random(120) * 4) + 0


def badly_scaled():
    X, y = normal(120, 5, seed=4)
    return X * 10.0 ** np.array([-6, -2, 0, 3, 6]) + np.array([0, 0.05, -1, 1e3, 0]), y


def separable():
    X, _ = normal(150, 5, seed=5)
    score = X @ np.array([1.0, -1.0, 0.5, 0.0, 0.0])
    return X[np.abs(score) > 0.3], (score[np.abs(score) > 0.3] > 0).astype(int)


def heavy_tailed():
    """With a column that only two rows have."""
    rng = np.random.default_rng(6)
    X = rng.standard_t(1.5, size=(120, 4))
    X[:, 3] = np.arange(120) < 2
    return X, (X[:, 0] - X[:, 1] + 2 * rng.normal(size=120) > 0).astype(int)


def wide():
    return normal(25, 60, seed=7)


def sparse_data():
    X, y = normal(150, 8, seed=8)
    return sparse.csr_matrix(X * (np.abs(X) > 1.2)), y


def wide_sparse():
    X, y = normal(25, 80, seed=9)
    return sparse.csr_array(X * (np.abs(X) > 1.5)), y


def classes():
    X, _ = normal(120, 4, seed=10)
    noise = np.random.default_rng(10).normal(size=(120, 4))
    X[:, 3] = X[:, :3].sum(axis=1) + noise[:, 3]
    return X.astype(np.float32), np.argmax(X + 0.7 * noise, axis=1)


DATA = {
    f.__name__: cache(f)
    for f in (
        *(unbalanced, deficient, one_hot, badly_scaled, separable, heavy_tailed),
        *(wide, sparse_data, wide_sparse, classes),
    )
}


def make(X, y, loss, name, *, alpha=1e-3, scale_free=False, fit_intercept=True, **options):
    """Prepare and pose the problem of a single fit for a solver; "dual" reads CSR rows."""
    X = sparse.csr_matrix(X) if name == "dual" else X
    design = design_for(X, Threads(options.pop("n_threads", 1)))
    weights = options.pop("weights", np.full(X.shape[0], 1 / X.shape[0]))
    labels = Labels(y.astype(np.intp), max(2, int(y.max()) + 1))
    unit = "column" if scale_free else "absolute"
    policy = options.pop("policy", Policy())
    request = Request(
        *(design, weights[np.newaxis], (loss,), unit, alpha, fit_intercept), policy=policy
    )
    assert SOLVERS[name].supports(request) is None
    prepared = SOLVERS[name].prepare(request)
    tasks = Tasks.of(labels, weights, loss)
    given = {"max_iter": 5000, "tol": 1e-11, "random_state": 0, "policy": policy}
    alphas, start = np.full(len(tasks), alpha), prepared.zeros(len(tasks))
    return Problem(prepared, tasks, alphas, start, **given | options)


def single(problem):
    return ProblemTask(problem, 0)


def origin(problem):
    return np.zeros(problem.prepared.design.n_columns + problem.prepared.fit_intercept)


def interior_minimum(problem, tol):
    """Return the minimum by the interior-point method, and its gap."""
    interior = InteriorPoint(single(problem), origin(problem))
    while interior.gap > tol * interior.value and not interior.stalled:
        interior.step()
    return interior.value, interior.gap


def with_few_curved_rows(tau=0.0, scale=0.1, dtype=np.float64, n_rows=6000, noise=0.03, **options):
    rng = np.random.default_rng(0)
    X = (20 * rng.normal(size=(n_rows, 8))).astype(dtype)
    X[:, 6] = np.where(np.arange(n_rows) % 1500 == 10, 60, 0)  # hardly a sample has it
    score = X[:, :3] @ [1.0, -1.0, 0.5] / 20 + noise * rng.standard_cauchy(n_rows)
    given = {"alpha": 1e-6, "scale_free": True, "tol": 1e-6} | options
    return make(X, (score > 0.3).astype(int), MarginLoss(1.0, scale, tau), "gram", **given)


class Objective:
    """The objective in standardised columns, with the loss typed in once more."""

    def __init__(self, X, sign, scale, tau, alpha, *, scale_free, fit_intercept):
        rows = np.asarray(X.toarray() if sparse.issparse(X) else X, dtype=np.longdouble)
        centre = rows.mean(axis=0) if fit_intercept else np.zeros(rows.shape[1])
        spread = np.sqrt(np.mean((rows - centre) ** 2, axis=0))
        moving = spread > 1e-12 * np.abs(centre)
        z = (rows[:, moving] - centre[moving]) / spread[moving]
        self.penalty = np.full(z.shape[1], alpha) if scale_free else alpha / spread[moving] ** 2
        if fit_intercept:
            z, self.penalty = np.column_stack([z, np.ones(len(z))]), np.append(self.penalty, 0.0)
        self.z, self.sign, self.scale, self.tau = z, sign, scale, tau
        self._rows, self._moving, self._spread = rows, moving, spread
        self._fit_intercept = fit_intercept

    def parts(self, margins):
        """Return loss, derivative and curvature."""
        residual = 1 - margins
        weight = np.where(residual >= 0, 1.0, self.tau)
        u = residual / self.scale
        inner = np.clip(u, -np.sqrt(np.longdouble(2)), np.sqrt(np.longdouble(2)))
        slope = inner - inner**3 / 6
        loss = inner**2 / 2 - inner**4 / 24 + slope * (u - inner)
        bend = np.maximum(1 - u**2 / 2, 0)
        return weight * self.scale**2 * loss, -weight * self.scale * slope, weight * bend

    def value(self, point):
        losses = self.parts(self.sign * (self.z @ point))[0]
        return np.mean(losses) + self.penalty @ point**2 / 2

    def derivatives(self, point):
        _, slope, bend = self.parts(self.sign * (self.z @ point))
        gradient = (self.sign * slope) @ self.z / len(self.z) + self.penalty * point
        z = self.z.astype(float)
        penalty = np.diag(self.penalty.astype(float))
        return gradient, (z.T * bend.astype(float)) @ z / len(z) + penalty

    def value_at(self, coef, intercept):
        """The value at coefficients for the data as it came."""
        point = (coef * self._spread)[self._moving]
        losses = self.parts(self.sign * (self._rows @ coef + intercept))[0]
        return float(np.mean(losses) + self.penalty[: len(point)] @ point**2 / 2)

    def length(self, point, step):
        """Return the minimiser along a descent direction, by bisection of the derivative."""
        margins, along = self.sign * (self.z @ point), self.sign * (self.z @ step)
        linear, square = self.penalty @ (point * step), self.penalty @ step**2

        def derivative(t):
            slope = self.parts(margins + t * along)[1]
            return slope @ along / len(along) + linear + t * square

        low, high = np.longdouble(0), np.longdouble(1)
        while derivative(high) < 0 and high < 2**60:
            low, high = high, 2 * high
        for _ in range(64):  # the bits of a long double
            middle = (low + high) / 2
            low, high = (middle, high) if derivative(middle) < 0 else (low, middle)
        return (low + high) / 2

    def minimum(self):
        """Minimise in long double, by Newton's method damped by the matrix of second moments.

        The method ends at a gradient of zero, or where no damping lets the value decrease: both
        up to the rounding of a long double. Any other end is an error.
        """
        point, damping = np.zeros(self.z.shape[1], dtype=np.longdouble), 1e-2
        z = self.z.astype(float)
        moments = z.T @ z / len(z) + 1e-14 * np.eye(z.shape[1])
        value = self.value(point)
        for _ in range(2000):
            gradient, hessian = self.derivatives(point)
            if np.abs(gradient).max() < 1e-17 or damping > 1e8:
                return float(value)
            matrix = hessian + damping * moments
            # A column that depends on others does so up to the rounding of its values: singular
            # values below n eps, of the matrix with a diagonal of ones, are those of rounding
            # errors, which a step would amplify.
            unit, rounding = 1 / np.sqrt(matrix.diagonal()), len(z) * np.finfo(float).eps
            scaled, right = matrix * np.outer(unit, unit), unit * gradient.astype(float)
            step = -unit * np.linalg.lstsq(scaled, right, rcond=rounding)[0]
            further = point + self.length(point, step) * step
            if (ahead := self.value(further)) < value:
                point, value, damping = further, ahead, max(damping / 5, 1e-16)
            else:
                damping *= 4
        raise AssertionError(f"no minimum after 2000 steps: gradient {np.abs(gradient).max():.1e}")


@cache
def minima(data, scale, tau, alpha, scale_free, fit_intercept):
    X, y = DATA[data]()
    problems = [1] if y.max() == 1 else range(int(y.max()) + 1)
    objectives = [
        Objective(
            *(X, np.where(y == k, 1.0, -1.0), scale, tau, alpha),
            scale_free=scale_free,
            fit_intercept=fit_intercept,
        )
        for k in problems
    ]
    return [(objective, objective.minimum()) for objective in objectives]
