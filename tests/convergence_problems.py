"""Random problems of all kinds, and their minima by a minimiser that uses no code of the library.

`draw` returns a problem with few rows and columns. `Objective` evaluates its objective in extended
precision from the coefficients of a fitted model, and finds the minimum by a damped Newton method
(Levenberg-Marquardt) on columns that were standardised in extended precision.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

WIDE = np.longdouble


@dataclass(frozen=True)
class Case:
    """One problem: data, sample weights and the parameters of the classifier."""

    X: Any
    y: np.ndarray
    weights: np.ndarray | None
    parameters: dict[str, Any]
    label: str

    def __str__(self) -> str:
        return f"{self.label} {self.parameters}"


# --- the loss, as functions of the margin -----------------------------------------------------


def rho(name, u):
    """Return ρ(u), ρ'(u) and ρ''(u) for u ≥ 0."""
    if name == "square":
        return u * u / 2, u, np.ones_like(u)
    if name == "huber":
        inside = u <= 1
        return np.where(inside, u * u / 2, u - 0.5), np.minimum(u, 1), inside * 1.0
    if name == "pseudo_huber":
        root = np.hypot(1, u)
        return u * u / (1 + root), u / root, root**-3
    if name == "log_cosh":
        tail = np.exp(-2 * u)
        value = np.where(u < 1e-4, u * u / 2, u + np.log1p(tail) - np.log(u.dtype.type(2)))
        return value, np.tanh(u), 4 * tail / (1 + tail) ** 2
    edge = np.sqrt(u.dtype.type(2))
    v = np.minimum(u, edge)
    beyond = u - v
    slope = v - v**3 / 6
    return v * v / 2 - v**4 / 24 + slope * beyond, slope, np.where(u < edge, 1 - u * u / 2, 0)


def margin_loss(m, p):
    """Return φ(m) and its first two derivatives for parameters p."""
    residual, scale = p["margin"] - m, p["scale"]
    value, slope, curvature = rho(p["rho"], np.abs(residual) / scale)
    side = np.where(residual >= 0, 1.0, p["overconfidence"])
    return side * scale**2 * value, -side * np.sign(residual) * scale * slope, side * curvature


def binary_loss(scores, sign, p):
    """Return losses, gradients (n, 1) and Hessians (n, 1, 1) in the scores (n, 1)."""
    value, slope, curvature = margin_loss(sign * scores[:, 0], p)
    return value, (sign * slope)[:, None], curvature[:, None, None]


def joint_loss(scores, codes, p):
    """Return losses, gradients (n, K) and Hessians (n, K, K) of the joint loss."""
    temperature = 0.3 * p["margin"]
    own = codes[:, None] == np.arange(scores.shape[1])
    others = np.where(own, -np.inf, scores)
    top = others.max(axis=1)
    odds = np.exp((others - top[:, None]) / temperature)
    total = odds.sum(axis=1)
    q = odds / total[:, None]
    m = np.sum(np.where(own, scores, 0), axis=1) - top - temperature * np.log(total)
    value, slope, curvature = margin_loss(m, p)
    direction = own * 1.0 - q
    spread = q[:, :, None] * np.eye(q.shape[1]) - q[:, :, None] * q[:, None, :]
    hessian = curvature[:, None, None] * direction[:, :, None] * direction[:, None, :]
    hessian = hessian - (slope / temperature)[:, None, None] * spread
    return value, slope[:, None] * direction, hessian


# --- the objective -----------------------------------------------------------------------------


class Objective:
    """The objective of a case, for models as they are fitted: one entry for each binary problem."""

    def __init__(self, case: Case, alpha: float) -> None:
        """Take the penalty of the fitted model, which may have chosen it."""
        p = self.p = {**case.parameters, "alpha": alpha}
        self.is_column_unit = case.parameters["alpha"] == "negligible"
        dense = case.X.toarray() if sparse.issparse(case.X) else case.X
        self.X = np.asarray(dense, dtype=WIDE)
        n, d = self.X.shape
        weights = np.ones(n) if case.weights is None else case.weights
        self.n_samples = max(np.sum(weights), np.count_nonzero(weights))
        self.c = np.asarray(weights, dtype=WIDE) / np.asarray(weights, dtype=WIDE).sum()
        self.mean = self.c @ self.X if p["fit_intercept"] else np.zeros(d, dtype=WIDE)
        # A column that has one value in all rows with weight is constant. Its computed mean may
        # differ from that value by rounding, and its computed variance is then above zero.
        used = self.X[self.c > 0]
        self.varies = np.any(used != (used[0] if p["fit_intercept"] else 0), axis=0)
        self.variance = np.where(self.varies, self.c @ (self.X - self.mean) ** 2, 0)
        self.deviation = np.sqrt(np.where(self.varies, self.variance, 1))
        self.codes = np.unique(case.y, return_inverse=True)[1]
        self.n_classes = int(self.codes.max()) + 1
        self.penalty = self._penalty(sparse.issparse(case.X))  # of each squared raw coefficient

    def _penalty(self, is_sparse):
        alpha, unit = self.p["alpha"], self.p["alpha_unit"]
        if self.is_column_unit:
            return alpha * self.variance
        if unit == "auto":
            is_wide = self.n_samples < 32 * len(self.variance)
            unit = "row" if is_sparse else "inflated" if is_wide else "standardised"
        if unit in ("standardised", "inflated"):
            factors = self._inflation() if unit == "inflated" else np.ones(len(self.variance))
            return alpha * np.count_nonzero(self.varies) * factors * self.variance
        factor = {"absolute": 1.0, "common": self.variance.sum(), "row": self._quartile_square()}
        return np.full(len(self.variance), alpha * factor[unit], dtype=WIDE)

    def _quartile_square(self):
        squares = np.sum(self.X**2, axis=1)
        used = np.flatnonzero((self.c > 0) & (squares > 0))
        if not len(used):
            return 1.0
        order = used[np.argsort(squares[used], kind="stable")]
        total = np.cumsum(self.c[order])
        # A cumulative weight that is a quarter of the total up to rounding counts as one.
        return squares[order[np.searchsorted(total, total[-1] / 4 * (1 - 1e-10))]]

    def _inflation(self):
        """Return 1 + 10 min(1, (κ - 1)/n) for the kurtosis κ of each column."""
        fourth = self.c @ ((self.X - self.mean) / self.deviation) ** 4
        return 1 + 10 * np.clip((np.where(self.varies, fourth, 1) - 1) / self.n_samples, 0, 1)

    def problems(self):
        """Return a loss of the scores for each problem, and the number of its score columns."""
        if self.p["multi_class"] == "joint" and self.n_classes > 2:
            return [lambda f: joint_loss(f, self.codes, self.p)], self.n_classes
        positive = [1] if self.n_classes == 2 else range(self.n_classes)
        signs = [np.where(self.codes == k, 1.0, -1.0) for k in positive]
        return [lambda f, s=s: binary_loss(f, s, self.p) for s in signs], 1

    def values(self, coef, intercept):
        """Return the objective of each problem at coefficients (n_columns, d) for X as it is."""
        losses, width = self.problems()
        scores = self.X @ coef.T.astype(WIDE) + intercept.astype(WIDE)
        squares = coef.astype(WIDE) ** 2 @ self.penalty
        spans = [slice(k * width, (k + 1) * width) for k in range(len(losses))]
        pairs = zip(losses, spans, strict=True)
        return np.array([self.c @ f(scores[:, s])[0] + squares[s].sum() / 2 for f, s in pairs])

    def minima(self, coef, intercept):
        """Return the minimum of each problem, the lower of two starts: zero and this model."""
        losses, width = self.problems()
        Z = (np.where(self.varies, self.X - self.mean, 0) / self.deviation).astype(float)
        Z = np.column_stack([Z, np.ones(len(Z))]) if self.p["fit_intercept"] else Z
        penalty = np.zeros(Z.shape[1])
        penalty[: len(self.penalty)] = self.penalty / self.deviation**2
        start = (coef.astype(WIDE) * self.deviation * self.varies).astype(float)
        if self.p["fit_intercept"]:
            own = intercept.astype(WIDE) + coef.astype(WIDE) @ self.mean
            start = np.column_stack([start, own.astype(float)])
        found = []
        for k, loss in enumerate(losses):
            own = start[k * width : (k + 1) * width]
            starts = [np.zeros_like(own), own]
            found.append(min(minimise(Z, self.c.astype(float), loss, penalty, w) for w in starts))
        return np.array(found)

    def at_zero(self):
        """Return the objective of each problem at zero scores."""
        losses, width = self.problems()
        zero = np.zeros((len(self.X), width))
        return np.array([float(self.c @ f(zero)[0]) for f in losses])


def minimise(Z, c, loss, penalty, start, max_iter=300):
    """Return the least value found by Newton steps with Levenberg-Marquardt damping."""
    w, damping = start.copy(), 1e-6
    width, size = w.shape

    def evaluate(w):
        value, gradient, hessian = loss(Z @ w.T)
        return float(c @ value) + 0.5 * float(np.sum(penalty * w * w)), gradient, hessian

    value, gradient, hessian = evaluate(w)
    for _ in range(max_iter):
        g = ((c[:, None] * gradient).T @ Z + penalty * w).astype(float).ravel()
        weighted = (c[:, None, None] * hessian).astype(float)
        H = np.zeros((width, size, width, size))
        for i in range(width):
            for j in range(width):
                H[i, :, j] = (Z * weighted[:, i, j, None]).T @ Z
            H[i, :, i] += np.diag(penalty)
        H = H.reshape(len(g), len(g))
        for _ in range(40):
            step = -np.linalg.solve(H + damping * np.eye(len(g)), g)
            trial = w + step.reshape(w.shape)
            found = evaluate(trial)
            if found[0] <= value:
                break
            damping *= 10
        else:
            return value
        predicted = -0.5 * float(g @ step)
        w, (value, gradient, hessian) = trial, found
        if predicted <= 1e-15 * value:
            return value
        damping = max(damping * 0.1, 1e-14)
    return value


# --- random problems ---------------------------------------------------------------------------


def draw(seed: int, solver: str) -> Case:
    """Return the problem of a seed, for a solver."""
    rng = np.random.default_rng([seed, len(solver)])
    is_sparse = solver == "dual" or (solver != "newton" and rng.random() < 0.25)
    n, d = int(rng.integers(6, 61)), int(rng.integers(1, 13))
    if rng.random() < 0.2:
        n, d = 20, 60
    X, kind = _columns(rng, n, d, is_sparse)
    score = X @ rng.normal(size=d) / (1e-300 + np.abs(X).max())
    score = (score - np.median(score)) / (1e-300 + score.std())
    score = score + rng.choice([0.0, 0.3, 2.0]) * rng.normal(size=n)
    n_classes = 3 if n >= 12 and rng.random() < 0.2 else 2
    cuts = np.quantile(score, rng.choice([[0.3, 0.6], [0.5, 0.8], [0.9, 0.95]]))[: n_classes - 1]
    y = np.searchsorted(cuts, score)
    y[: 2 * n_classes] = np.tile(np.arange(n_classes), 2)  # two rows at least of each class
    weights = rng.choice(["none", "random", "spread", "zeros"])
    w = {"none": None, "random": rng.exponential(size=n), "spread": 10.0 ** rng.uniform(-3, 3, n)}
    w["zeros"] = rng.integers(0, 3, size=n) * 1.0
    w["zeros"][: 2 * n_classes] = 1.0
    tau = float(rng.choice([0.0, 0.0, 1e-3, 0.3, 1.0]))
    margin = float(rng.choice([1.0, 1.0, 0.01, 100.0]))
    parameters = {
        "solver": solver,
        "margin": margin,
        "scale": margin * 10.0 ** rng.uniform(-2, 1.5),
        "overconfidence": tau,
        "rho": str(rng.choice(["catoni", "catoni", "pseudo_huber", "log_cosh", "huber", "square"])),
        "alpha": rng.choice(np.array([10.0 ** rng.uniform(-8, 0), "auto", "negligible"], object)),
        "alpha_unit": str(rng.choice(["absolute", "standardised", "common", "row", "auto"])),
        "fit_intercept": bool(rng.random() < 0.7),
        "tol": float(rng.choice([1e-2, 1e-3, 1e-4, 1e-6, 1e-8])),
        "multi_class": "joint" if tau == 0 and rng.random() < 0.5 else "ovr",
        "leverage_bound": None,
        "probability": None,
        "n_threads": 1,
    }
    if solver == "dual":
        parameters["alpha"] = "auto" if rng.random() < 0.3 else 10.0 ** rng.uniform(-6, 0)
        parameters["alpha_unit"] = str(rng.choice(["absolute", "common", "row"]))
        parameters["multi_class"] = "ovr"
    if solver == "steepest":
        parameters["multi_class"] = "ovr"
        parameters["max_iter"] = int(rng.choice([1, 10, 100, 1000]))
        if parameters["alpha"] == "negligible":  # counts as none there, as in the paper
            parameters["alpha"] = "auto"
    X = _stored(rng, X, is_sparse)
    label = f"seed={seed} {kind} {n}x{d} {X.dtype} weights={weights} classes={n_classes}"
    return Case(X, y, w[str(weights)], parameters, label)


def draw_many(seed: int) -> Case:
    """Return a problem of 32 to 39 classes, each against the rest, with a tiny penalty."""
    rng = np.random.default_rng([seed, 77])
    n_classes = int(rng.integers(32, 40))
    n, d = int(rng.integers(3 * n_classes, 500)), int(rng.integers(2, 25))
    kind = str(rng.choice(["normal", "collinear", "scaled", "heavy"]))
    X, y = rng.normal(size=(n, d)), np.arange(n) % n_classes
    X += (rng.normal(size=(n_classes, d)) * rng.choice([0.5, 2.0, 5.0]))[y]
    if kind == "collinear":
        X = X @ (np.ones((d, d)) + 10.0 ** rng.uniform(-4, -1) * rng.normal(size=(d, d)))
    elif kind == "scaled":
        X = X * 10.0 ** rng.uniform(-3, 3, size=d)
    elif kind == "heavy":
        X = X / rng.uniform(0.01, 1, size=(n, 1))
    parameters = {
        "solver": str(rng.choice(["gram", "lbfgs", "auto"])),
        "margin": 1.0,
        "scale": 10.0 ** rng.uniform(-1.5, 1),
        "overconfidence": float(rng.choice([0.0, 0.0, 0.3, 1.0])),
        "rho": str(rng.choice(["catoni", "catoni", "pseudo_huber", "log_cosh", "huber"])),
        "alpha": rng.choice(np.array([10.0 ** rng.uniform(-12, -4), "negligible"], object)),
        "alpha_unit": "standardised",
        "fit_intercept": bool(rng.random() < 0.7),
        "tol": float(rng.choice([1e-4, 1e-6, 1e-6])),
        "multi_class": "ovr",
        "leverage_bound": None,
        "probability": None,
        "n_threads": 1,
    }
    return Case(X, y, None, parameters, f"seed={seed} {kind} {n}x{d} classes={n_classes}")


def _columns(rng, n, d, is_sparse):
    """Return dense columns of a random kind, and the kind."""
    kind = str(rng.choice(["normal", "collinear", "shifted", "scaled", "heavy", "integer"]))
    X = rng.normal(size=(n, d))
    if is_sparse:
        X = X * (rng.random((n, d)) < 0.3)
    if kind == "collinear" and d > 1:
        X = X[:, [0] * d] + 10.0 ** rng.uniform(-6, -1) * X
    elif kind == "shifted":
        X = X + 10.0 ** rng.uniform(0, 2 if is_sparse else 5)
    elif kind == "scaled":
        X = X * 10.0 ** rng.uniform(-4, 4, size=d)
    elif kind == "heavy":
        X = X / rng.uniform(0.01, 1, size=(n, 1)) ** 2
    elif kind == "integer":
        X = np.round(2 * X)
    X[0, :] += 1e-9 * (np.abs(X).max() == 0)
    return X, kind


def _stored(rng, X, is_sparse):
    """Return the matrix in a random format, order and type."""
    types = [np.float64, np.float64, np.float32]
    types += [np.int32] if np.all(np.round(X) == X) else []
    X = X.astype(types[rng.integers(len(types))])
    if is_sparse:
        return (sparse.csr_matrix if rng.random() < 0.7 else sparse.csc_array)(X)
    return np.asfortranarray(X) if rng.random() < 0.3 else X
