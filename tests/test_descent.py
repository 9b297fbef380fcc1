"""The stochastic steps of every kernel against the same steps written out in plain Python."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

from marginpursuit import _kernels
from marginpursuit._kernels import ArrayRows, Descent
from marginpursuit.losses import RHOS, HingeLoss, LogisticLoss, MarginLoss

compiled = _kernels._compiled
LEVELS = ["numpy", *(compiled.LEVELS if compiled else ())]
TYPES = ["f8", "f4", "f2", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "?"]
LAYOUTS = ["C", "F", "csr32", "csr64"]


def handle(matrix, layout, level):
    """Return the handle of `level` on a dense array, stored in `layout`."""
    if layout in ("C", "F"):
        stored = np.asarray(matrix, order=layout)
        return ArrayRows(stored) if level == "numpy" else compiled.DenseRows(stored, level)
    if level == "numpy":  # SciPy has no half precision
        return ArrayRows(sparse.csr_array(matrix.astype(np.float64)))
    index = np.int32 if layout == "csr32" else np.int64
    filled = matrix != 0
    indptr = np.concatenate([[0], np.cumsum(filled.sum(axis=1))]).astype(index)
    indices = np.nonzero(filled)[1].astype(index)
    return compiled.CsrRows(matrix[filled], indices, indptr, matrix.shape[1], level)


def slope(loss, margin):
    """Return the derivative of a loss in the margin, of the hinge and Catoni's loss written out."""
    if isinstance(loss, HingeLoss):
        return -1.0 if margin < loss.margin else 0.0
    if getattr(loss, "rho", None) != "catoni":
        return float(loss.derivative(margin))
    u = (loss.margin - margin) / loss.scale
    psi = u - u**3 / 6 if abs(u) <= 2**0.5 else np.copysign(2 * 2**0.5 / 3, u)
    return -loss.scale * psi * (loss.overconfidence if u < 0 else 1.0)


def expected(matrix, draws, start, **rules):
    """Take the steps of `Descent` one after the other.

    Returns w and b at each step, and their means.
    """
    r = {"intercept": 0.0, "radius": np.inf, "batch": 1} | rules
    free, penalised = r.get("fit_intercept", False), r.get("penalise_intercept", False)
    x = matrix.astype(np.float64)
    w, b, points, batch = start, r["intercept"], [], r["batch"]
    for t in range(len(draws) // batch):
        length, shrink = r["rate"] / (1 + t), 1 - r["decay"] / (1 + t)
        step, step_b = shrink * w, (shrink if penalised else 1.0) * b
        for i in draws[t * batch : (t + 1) * batch]:
            y = r["sign"][i]
            factor = -length * slope(r["loss"], y * (x[i] @ w + b)) * y / batch
            step = step + factor * x[i]
            step_b += factor if free else 0.0
        norm = np.sqrt(step @ step + (step_b**2 if penalised else 0.0))
        factor = min(1.0, r["radius"] / norm) if norm else 1.0
        w, b = factor * step, (factor if penalised else 1.0) * step_b
        points.append([*w, b])
    points = np.array(points)
    means = np.cumsum(points, axis=0) / np.arange(1, len(points) + 1)[:, np.newaxis]
    return points, means


def data(dtype="f8", n=40, d=13, seed=0):
    rng = np.random.default_rng(seed)
    least = {"f": None, "i": -3}.get(np.dtype(dtype).kind, 0)
    x = rng.normal(size=(n, d)) if least is None else rng.integers(least, 4, (n, d))
    x = np.where(rng.random((n, d)) < 0.3, 0, x).astype(dtype)
    return x, rng.choice([-1.0, 1.0], n), rng.integers(0, n, 96)


def check(rows, matrix, draws, *, averaged=False, rtol=1e-10, **rules):
    """Compare a descent, taken in two calls and recorded on the way, with the plain steps."""
    d = matrix.shape[1]
    start = np.linspace(-0.3, 0.2, d)
    points, means = expected(matrix, draws, start, **rules)
    marks = np.array([1, 2, 9, 10, 11, 20, len(points)])
    descent = Descent(
        coef=start.copy(),
        total=np.zeros(d) if averaged else None,
        marks=marks,
        path=np.full((len(marks), d), np.nan),
        path_intercept=np.full(len(marks), np.nan),
        **rules,
    )
    cut = 10 * descent.batch
    rows.descend(descent, draws[:cut])
    rows.descend(descent, draws[cut:])
    wanted = means if averaged else points
    size = np.abs(points).max()
    assert descent.t == len(points)
    assert_allclose(descent.coef, points[-1, :d], rtol=rtol, atol=rtol * size)
    assert_allclose(descent.intercept, points[-1, d], rtol=rtol, atol=rtol * size)
    assert_allclose(descent.path, wanted[marks - 1, :d], rtol=rtol, atol=rtol * size)
    assert_allclose(descent.path_intercept, wanted[marks - 1, d], rtol=rtol, atol=rtol * size)
    coef, intercept = descent.point()
    assert_allclose(np.append(coef, intercept), wanted[-1], rtol=rtol, atol=rtol * size)
    return points


LOSSES = [
    HingeLoss(),
    HingeLoss(0.4),
    MarginLoss(),
    MarginLoss(1, 1, 0),
    *(MarginLoss(1.3, 0.3, 0.4, rho) for rho in RHOS),
    LogisticLoss(),
]
INTERCEPTS = [(False, False), (True, False), (True, True)]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_steps(level, layout, loss):
    x, sign, draws = data()
    rows = handle(x, layout, level)
    for radius in (np.inf, 0.5):
        for batch in (1, 3):
            for fit, penalise in INTERCEPTS:
                for averaged in (False, True):
                    points = check(
                        *(rows, x, draws),
                        averaged=averaged,
                        loss=loss,
                        sign=sign,
                        rate=4.0,
                        decay=1.0 if isinstance(loss, HingeLoss) else 0.3,
                        radius=radius,
                        batch=batch,
                        fit_intercept=fit,
                        penalise_intercept=penalise,
                    )
                    norms = np.linalg.norm(points[:, : 13 + penalise], axis=1)
                    assert radius == np.inf or np.sum(np.isclose(norms, radius)) > 5


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", TYPES)
def test_element_types_and_widths(level, layout, dtype):
    for d in (1, 9, 33):
        x, sign, draws = data(dtype, d=d, seed=d)
        rules = {"loss": MarginLoss(1.0, 0.8), "sign": sign, "rate": 0.5, "decay": 0.1}
        check(handle(x, layout, level), x, draws, radius=0.7, fit_intercept=True, **rules)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(("fit", "penalise"), INTERCEPTS)
def test_a_kernel_matrix_takes_the_same_steps(level, batch, fit, penalise):
    """With K = XXᵀ and w = Xᵀc; columns of K in another order than its rows."""
    x, sign, draws = data()
    columns = np.random.default_rng(1).permutation(40)
    for radius in (np.inf, 0.5):
        for averaged in (False, True):
            rules = {
                "loss": HingeLoss(),
                "sign": sign,
                "rate": 4.0,
                "decay": 1.0,
                "radius": radius,
                "batch": batch,
                "fit_intercept": fit,
                "penalise_intercept": penalise,
            }
            points, means = expected(x, draws, np.zeros(13), **rules)
            wanted = (means if averaged else points)[-1]
            descent = Descent(
                coef=np.zeros(40),
                total=np.zeros(40) if averaged else None,
                own=np.argsort(columns),
                **rules,
            )
            rows = handle(x @ x[columns].T, "C", level)
            rows.descend(descent, draws[:30])
            rows.descend(descent, draws[30:])
            coef, intercept = descent.point()
            assert_allclose(coef @ x[columns], wanted[:13], rtol=1e-9, atol=1e-10)
            assert_allclose(intercept, wanted[13], rtol=1e-9, atol=1e-10)
            if radius < np.inf:
                norm = points[-1, : 13 + penalise] @ points[-1, : 13 + penalise]
                assert_allclose(descent.square, norm, rtol=1e-9)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("averaged", [False, True])
def test_scales_that_would_vanish(level, averaged):
    """Shrinking by half for ever, once to nothing, and once past it to the other side."""
    x, sign, draws = data()
    rules = {"loss": HingeLoss(), "sign": sign, "rate": 1e-3}
    for decay in (0.9, 2.0, 5.0, 30.0):
        check(handle(x, "C", level), x, draws, decay=decay, averaged=averaged, rtol=1e-9, **rules)
    wild = {"loss": MarginLoss(), "sign": sign, "rate": 1e7, "radius": 1.0}
    check(handle(x, "csr32", level), x, draws, decay=0.5, averaged=averaged, rtol=1e-9, **wild)


@pytest.mark.parametrize("level", LEVELS)
def test_not_a_number_is_handed_on(level):
    x, sign, draws = data()
    x[3, 2] = np.nan
    for loss in (HingeLoss(), MarginLoss()):
        descent = Descent(loss, sign, 1.0, 0.1, np.ones(13))
        handle(x, "C", level).descend(descent, draws)
        assert np.isnan(descent.coef[2]) or isinstance(loss, HingeLoss)


@pytest.mark.skipif(compiled is None, reason="installed without the compiled kernels")
class TestBuffers:
    def descend(self, draws, **changes):
        x, sign, _ = data()
        rules = {"loss": HingeLoss(), "sign": sign, "rate": 1.0, "decay": 1.0, "coef": np.zeros(13)}
        _kernels.rows(x).descend(Descent(**rules | changes), np.asarray(draws, np.intp))

    @pytest.mark.parametrize("draws", [[-1], [40], [0, 1, 2**40]])
    def test_draws_outside(self, draws):
        with pytest.raises(IndexError, match=r"draws must be in \[0, 40\)"):
            self.descend(draws)

    def test_a_kernel_matrix(self):
        own = np.arange(40)
        with pytest.raises(IndexError, match=r"own must be in \[0, 13\)"):
            self.descend([0], own=own)
        descent = Descent(HingeLoss(), np.ones(40), 1.0, 1.0, np.zeros(40), own=own)
        for other in (np.eye(40, dtype=np.float32), sparse.csr_array(np.eye(40))):
            with pytest.raises(TypeError, match="float64 in C order"):
                _kernels.rows(other).descend(descent, np.zeros(1, np.intp))

    @pytest.mark.parametrize("batch", [0, 2])
    def test_half_a_batch(self, batch):
        with pytest.raises(ValueError, match="fill batches"):
            self.descend([0, 1, 2], batch=batch)

    @pytest.mark.parametrize(
        "changes",
        [
            {"sign": np.ones(39)},
            {"coef": np.zeros(12)},
            {"total": np.zeros(14)},
            {"marks": np.array([1])},
            {"marks": np.array([1]), "path": np.zeros((1, 12)), "path_intercept": np.zeros(1)},
            {"marks": np.array([1]), "path": np.zeros((1, 13))},
        ],
        ids=str,
    )
    def test_lengths(self, changes):
        with pytest.raises(ValueError, match="must have length"):
            self.descend([0], **changes)
