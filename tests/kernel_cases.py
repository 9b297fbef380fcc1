"""Random problems for the kernels, and the same sums in extended precision."""

from dataclasses import dataclass

import numpy as np
import pytest
from scipy import sparse

from marginpursuit import _kernels
from marginpursuit._kernels import ArrayRows
from marginpursuit.losses import RHOS, HingeLoss, LogisticLoss, Loss, MarginLoss

compiled = _kernels._compiled
LEVELS = compiled.LEVELS if compiled else ()
needs_compiled = pytest.mark.skipif(not LEVELS, reason="installed without the compiled kernels")
LEVELS_OF_CSR = LEVELS[:2]  # CSR rows take AVX2 at most
each_level = pytest.mark.parametrize("level", LEVELS)
each_level_of_csr = pytest.mark.parametrize("level", LEVELS_OF_CSR)

TYPES = ["f8", "f4", "f2", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "?"]
LAYOUTS = ["C", "F", "csr32", "csr64"]

# Sizes around every width that a kernel changes its way at: 2, 4 and 8 lanes, groups of 8 rows,
# rows too narrow for vectors, rows that fit the registers, copies of up to 1024 columns, tiles.
COLUMNS = [1, 2, 3, 7, 8, 9, 12, 15, 16, 17, 23, 31, 32, 33, 40, 54, 63, 64, 65, 72, 100, 129]
ROWS = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24, 31, 33, 64, 65, 130]
LARGE = [(3000, 1), (3001, 5), (1030, 20), (2500, 9), (40, 1023), (30, 1025), (5, 5000), (300, 400)]

#: The losses that the kernels know, by kind.
LOSSES = {
    **{name: MarginLoss(1.1, 0.7, 0.4, name) for name in RHOS},
    "logistic": LogisticLoss(),
    "hinge": HingeLoss(0.6),
}

EPSILON = 2.3e-16  # a bound on the relative error of one rounding


def handle(matrix, layout, level):
    """Return the handle of `level` on a dense array, stored in `layout`."""
    if layout in ("C", "F"):
        stored = np.asarray(matrix, order=layout)
        return ArrayRows(stored) if level == "numpy" else compiled.DenseRows(stored, level)
    index = np.int32 if layout == "csr32" else np.int64
    filled = matrix.astype(bool)
    indptr = np.concatenate([[0], np.cumsum(filled.sum(axis=1))]).astype(index)
    data, indices = matrix[filled], np.nonzero(filled)[1].astype(index)
    if level == "numpy":
        values = data.astype(np.float64) if data.dtype == np.float16 else data
        return ArrayRows(sparse.csr_array((values, indices, indptr), shape=matrix.shape))
    return compiled.CsrRows(data, indices, indptr, matrix.shape[1], level)


def random_matrix(rng, n, d, dtype):
    """Return elements over the range of the type, about a third of them zero."""
    kind = np.dtype(dtype).kind
    if kind == "f":
        values = rng.normal(size=(n, d))
    elif kind == "b":
        values = rng.random((n, d)) < 0.5
    else:
        info = np.iinfo(dtype)
        values = rng.integers(info.min, info.max, size=(n, d), dtype=dtype, endpoint=True)
    return np.where(rng.random((n, d)) < 0.3, 0, values.astype(dtype)).astype(dtype)


@dataclass
class Problem:
    """A matrix with all that a sweep over it needs."""

    matrix: np.ndarray
    sign: np.ndarray
    weight: np.ndarray
    coef: np.ndarray
    intercept: float
    loss: Loss

    def sweep(self, rows, first=0, last=None, *, gradient=None):
        gradient = np.zeros(len(self.coef)) if gradient is None else gradient
        last = len(self.sign) if last is None else last
        value, slope = rows.sweep(
            first,
            last,
            self.loss,
            self.sign,
            self.weight,
            self.coef,
            self.intercept,
            gradient,
        )
        return np.concatenate([[value, slope], gradient])


def random_loss(rng, kinds=tuple(LOSSES)):
    """Return a loss of one of the kinds, with random parameters."""
    kind = rng.choice(kinds)
    if kind in RHOS:
        return MarginLoss(*rng.uniform(0.2, 2.0, 2), rng.choice([0.0, 0.3, 1.0]), str(kind))
    return HingeLoss(rng.uniform(0.2, 2.0)) if kind == "hinge" else LogisticLoss()


def random_parameters(rng, n_tasks, kind):
    """Return the kernel parameters of random losses of one kind, a row each."""
    return np.array([random_loss(rng, (kind,)).kernel_parameters for _ in range(n_tasks)], float)


def random_problem(rng, n, d, dtype, loss=None):
    matrix = random_matrix(rng, n, d, dtype)
    size = float(np.max(np.abs(matrix.astype(np.float64)), initial=1e-30))
    return Problem(
        matrix,
        sign=rng.choice([-1.0, 1.0], n),
        weight=rng.integers(0, 4, n) * rng.random(n),
        coef=3 * rng.normal(size=d) / (size * np.sqrt(d)),
        intercept=rng.normal(),
        loss=loss or random_loss(rng),
    )


def _catoni(u):
    root = np.sqrt(np.longdouble(2))
    inside, bound = u < root, 2 * root / 3
    return (
        np.where(inside, u**2 / 2 - u**4 / 24, bound * u - 0.5),
        np.where(inside, u - u**3 / 6, bound),
    )


def _pseudo_huber(u):
    norm = np.sqrt(1 + u * u)
    return u * u / (1 + norm), u / norm


def _log_cosh(u):
    value = np.where(u < 1, np.log1p(np.sinh(np.minimum(u, 1)) ** 2) / 2, 0)
    far = u + np.log1p(np.exp(-2 * u)) - np.log(np.longdouble(2))
    return np.where(u < 1, value, far), np.tanh(u)


def _huber(u):
    inside = u <= 1
    return np.where(inside, u * u / 2, u - 0.5), np.minimum(u, 1)


def _square(u):
    return u * u / 2, u


#: ρ and ψ at u >= 0 in extended precision.
EXACT = {
    "catoni": _catoni,
    "pseudo_huber": _pseudo_huber,
    "log_cosh": _log_cosh,
    "huber": _huber,
    "square": _square,
}


def exact_loss(loss, margins):
    """Return value and derivative at margins in extended precision."""
    if isinstance(loss, HingeLoss):
        residual = loss.margin - margins
        return np.maximum(residual, 0), -(residual > 0).astype(np.longdouble)
    if isinstance(loss, LogisticLoss):
        power = np.exp(-np.abs(margins))
        slope = np.where(margins < 0, 1, power) / (1 + power)
        return np.log1p(power) + np.maximum(-margins, 0), -slope
    residual, scale = loss.margin - margins, np.longdouble(loss.scale)
    value, influence = EXACT[loss.rho](np.abs(residual) / scale)
    side = np.where(residual < 0, loss.overconfidence, 1.0)
    return side * scale**2 * value, -side * scale * np.sign(residual) * influence


def oracle(problem, first, last):
    """Return the sums of a sweep and the margins in extended precision, each with its error bound.

    The bounds are those of plain summation: a sum of n terms is within n ε of the sum of their
    sizes; an error of a margin moves the derivative by no more, for the curvature is at most 1.
    """
    span = slice(first, last)
    x = problem.matrix[span].astype(np.float64).astype(np.longdouble)
    sign, weight = problem.sign[span], problem.weight[span]
    scale = getattr(problem.loss, "scale", 1.0)
    n, d = x.shape
    margins = sign * (x @ problem.coef + problem.intercept)
    margin_error = EPSILON * (d + 8) * (np.abs(x) @ np.abs(problem.coef) + abs(problem.intercept))
    values, slopes = (weight * x for x in exact_loss(problem.loss, margins))
    slopes = sign * slopes
    slope_error = weight * (margin_error + 16 * EPSILON * scale) + 16 * EPSILON * np.abs(slopes)
    value_error = np.abs(slopes) * margin_error + weight * margin_error**2 + 16 * EPSILON * values
    sums = np.concatenate([[values.sum(), slopes.sum()], slopes @ x])
    rounding = np.concatenate([[values.sum(), np.abs(slopes).sum()], np.abs(slopes) @ np.abs(x)])
    error = np.concatenate([[value_error.sum(), slope_error.sum()], slope_error @ np.abs(x)])
    return (sums, error + EPSILON * (n + 8) * rounding), (margins, margin_error)


def assert_within(seen, truth_and_error):
    truth, error = truth_and_error
    excess = np.abs(seen - truth) - error
    assert np.all(excess <= 0), f"off by {np.max(excess)} more than the bound"


def check(problem, rows, first, last, layout="dense"):
    """Hold all that is asked of rows [first, last) against the oracle."""
    n, d = problem.matrix.shape
    out = np.full(n, -7.0)
    sums, margins = oracle(problem, first, last)
    assert_within(problem.sweep(rows, first, last), sums)
    rows.scores(first, last, problem.coef, problem.intercept, out)
    assert_within(problem.sign[first:last] * out[first:last], margins)
    assert np.all(out[np.r_[0:first, last:n]] == -7.0)
    x, factors, total = problem.matrix.astype(np.float64), problem.weight - 1.0, np.ones(d)
    rows.adjoint(first, last, factors, total)
    terms = factors[first:last, np.newaxis] * x[first:last].astype(np.longdouble)
    bound = EPSILON * (n + 8) * (1 + np.abs(terms).sum(axis=0))
    assert_within(total, (1 + terms.sum(axis=0), bound))
    if not layout.startswith("csr"):
        check_spread(problem, rows, first, last)


def check_spread(problem, rows, first, last):
    """Hold sums about a centre, of columns and rows, against plain ones; the rest is left alone."""
    n, d = problem.matrix.shape
    x = problem.matrix.astype(np.float64)
    centre, factors = x[:1].sum(axis=0) + problem.coef, problem.coef**2
    centred = (x - centre)[first:last].astype(np.longdouble)
    squares, weight = centred**2, problem.weight[first:last, np.newaxis]
    total, out = np.ones((2, d)), np.full(n, -7.0)
    rows.moments(first, last, centre, problem.weight, total)
    for found, terms in zip(total, (weight * centred, weight * squares), strict=True):
        bound = EPSILON * (n + 8) * (1 + np.abs(terms).sum(axis=0))
        assert_within(found, (1 + terms.sum(axis=0), bound))
    root, even = np.sqrt(factors), np.ones((2, d))
    rows.moments(first, last, centre, problem.weight, even, root)
    z = (centred * root) ** 2
    for found, terms in zip(even, (weight * z, weight * z**2), strict=True):
        bound = EPSILON * (n + 16) * (1 + np.abs(terms).sum(axis=0))
        assert_within(found, (1 + terms.sum(axis=0), bound))
    rows.norms(first, last, centre, factors, out)
    norms = squares @ factors
    assert_within(out[first:last], (norms, EPSILON * (d + 8) * norms))
    assert np.all(out[np.r_[0:first, last:n]] == -7.0)


def unaligned(matrix):
    store = np.zeros(matrix.nbytes + 1, np.uint8)
    view = store[1:].view(matrix.dtype).reshape(matrix.shape)
    view[...] = matrix
    return view
