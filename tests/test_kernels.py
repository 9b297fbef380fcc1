"""Every kernel (SIMD level, element type, layout) against plain sums in extended precision."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.optimize import brentq

from marginpursuit import _kernels
from marginpursuit._kernels import ArrayRows, _arrays
from marginpursuit.losses import MarginLoss

compiled = _kernels._compiled
LEVELS = compiled.LEVELS if compiled else ()
needs_compiled = pytest.mark.skipif(not LEVELS, reason="installed without the compiled kernels")
each_level = pytest.mark.parametrize("level", LEVELS)

TYPES = ["f8", "f4", "f2", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "?"]
LAYOUTS = ["C", "F", "csr32", "csr64"]

# Sizes around every width that a kernel changes its way at: 2, 4 and 8 lanes, groups of 8 rows,
# rows too narrow for vectors, rows that fit the registers, copies of up to 1024 columns, tiles.
COLUMNS = [1, 2, 3, 7, 8, 9, 12, 15, 16, 17, 23, 31, 32, 33, 40, 54, 63, 64, 65, 72, 100, 129]
ROWS = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24, 31, 33, 64, 65, 130]
LARGE = [(3000, 1), (3001, 5), (1030, 20), (2500, 9), (40, 1023), (30, 1025), (5, 5000), (300, 400)]

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
    loss: MarginLoss

    def sweep(self, rows, first=0, last=None, *, gradient=None, margins=None, curvature=None):
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
            margins,
            curvature,
        )
        return np.concatenate([[value, slope], gradient])


def random_problem(rng, n, d, dtype, loss=None):
    matrix = random_matrix(rng, n, d, dtype)
    size = float(np.max(np.abs(matrix.astype(np.float64)), initial=1e-30))
    return Problem(
        matrix,
        sign=rng.choice([-1.0, 1.0], n),
        weight=rng.integers(0, 4, n) * rng.random(n),
        coef=3 * rng.normal(size=d) / (size * np.sqrt(d)),
        intercept=rng.normal(),
        loss=loss or MarginLoss(*rng.uniform(0.2, 2.0, 2), rng.choice([0.0, 0.3, 1.0])),
    )


def oracle(problem, first, last):
    """Sum in extended precision; return what a sweep yields and how far off it may be.

    The bounds are those of plain summation: a sum of n terms is within n ε of the sum of their
    sizes; an error of a margin moves the derivative by no more, for the curvature is at most 1.
    """
    span = slice(first, last)
    x = problem.matrix[span].astype(np.float64).astype(np.longdouble)
    sign, weight = problem.sign[span], problem.weight[span]
    scale, above = problem.loss.scale, problem.loss.overconfidence
    n, d = x.shape
    margins = sign * (x @ problem.coef + problem.intercept)
    margin_error = EPSILON * (d + 8) * (np.abs(x) @ np.abs(problem.coef) + abs(problem.intercept))
    residual = problem.loss.margin - margins
    u = np.abs(residual) / scale
    inside, root = u < np.sqrt(np.longdouble(2)), np.sqrt(np.longdouble(2))
    rho = np.where(inside, u**2 / 2 - u**4 / 24, 2 * root / 3 * u - 0.5)
    psi = np.sign(residual) * np.where(inside, u - u**3 / 6, 2 * root / 3)
    charge = weight * np.where(residual < 0, above, 1.0)
    values, slopes = charge * scale**2 * rho, -sign * charge * scale * psi
    slope_error = weight * (margin_error + 16 * EPSILON * scale)
    value_error = np.abs(slopes) * margin_error + weight * margin_error**2 + 16 * EPSILON * values
    sums = np.concatenate([[values.sum(), slopes.sum()], slopes @ x])
    rounding = np.concatenate([[values.sum(), np.abs(slopes).sum()], np.abs(slopes) @ np.abs(x)])
    own = np.concatenate([[value_error.sum(), slope_error.sum()], slope_error @ np.abs(x)])
    bends = charge * np.where(inside, 1 - u**2 / 2, 0)
    bend_error = weight * (3 * margin_error / scale + 16 * EPSILON)
    return (sums, own + EPSILON * (n + 8) * rounding), (margins, margin_error), (bends, bend_error)


def assert_within(seen, truth_and_error):
    truth, error = truth_and_error
    excess = np.abs(seen - truth) - error
    assert np.all(excess <= 0), f"off by {np.max(excess)} more than the bound"


def check(problem, rows, first, last, layout="dense"):
    """Hold all that is asked of rows [first, last) against the oracle."""
    n, d = problem.matrix.shape
    margins, curvature, out = np.full(n, -7.0), np.full(n, -7.0), np.full(n, -7.0)
    sums, true_margins, bends = oracle(problem, first, last)
    assert_within(problem.sweep(rows, first, last, margins=margins, curvature=curvature), sums)
    assert_within(problem.sweep(rows, first, last), sums)
    assert_within(margins[first:last], true_margins)
    assert_within(curvature[first:last], bends)
    rows.scores(first, last, problem.coef, problem.intercept, out)
    assert_within(problem.sign[first:last] * out[first:last], true_margins)
    outside = np.r_[0:first, last:n]
    assert np.all(margins[outside] == -7.0)
    assert np.all(curvature[outside] == -7.0)
    assert np.all(out[outside] == -7.0)
    x, factors, total = problem.matrix.astype(np.float64), problem.weight - 1.0, np.ones(d)
    rows.adjoint(first, last, factors, total)
    terms = factors[first:last, np.newaxis] * x[first:last].astype(np.longdouble)
    bound = EPSILON * (n + 8) * (1 + np.abs(terms).sum(axis=0))
    assert_within(total, (1 + terms.sum(axis=0), bound))
    if not layout.startswith("csr"):
        check_spread(problem, rows, first, last)


def check_spread(problem, rows, first, last):
    """Hold sums of squares of columns and rows against plain ones; the rest is left alone."""
    n, d = problem.matrix.shape
    x = problem.matrix.astype(np.float64)
    centre, factors = x[:1].sum(axis=0) + problem.coef, problem.coef**2
    squares = np.square(x - centre)[first:last].astype(np.longdouble)
    total, out = np.ones(d), np.full(n, -7.0)
    rows.squares(first, last, centre, problem.weight, total)
    columns = (problem.weight[first:last, np.newaxis] * squares).sum(axis=0)
    assert_within(total, (1 + columns, EPSILON * (n + 8) * (1 + columns)))
    rows.norms(first, last, centre, factors, out)
    norms = squares @ factors
    assert_within(out[first:last], (norms, EPSILON * (d + 8) * norms))
    assert np.all(out[np.r_[0:first, last:n]] == -7.0)


# Every level, type and layout


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("level", ["numpy", *LEVELS])
def test_every_kernel_sums_what_it_should(level, dtype, layout):
    rng = np.random.default_rng(TYPES.index(dtype))
    shapes = zip(rng.choice(ROWS, len(COLUMNS)), COLUMNS, strict=True)
    for n, d in shapes:
        problem = random_problem(rng, n, d, dtype)
        first, last = np.sort(rng.integers(0, n, 2, endpoint=True))
        rows = handle(problem.matrix, layout, level)
        assert (rows.n_rows, rows.n_columns, rows.level) == (n, d, level)
        check(problem, rows, 0, n, layout)
        check(problem, rows, first, last, layout)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["f8", "f4", "u1"])
@pytest.mark.parametrize("level", ["numpy", *LEVELS])
def test_large_matrices(level, dtype, layout):
    rng = np.random.default_rng(2)
    for n, d in LARGE:
        problem = random_problem(rng, n, d, dtype)
        check(problem, handle(problem.matrix, layout, level), 0, n, layout)


@needs_compiled
@settings(max_examples=150)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(0, 70),
    d=st.integers(0, 140),
    dtype=st.sampled_from(TYPES),
    layout=st.sampled_from(LAYOUTS),
    level=st.sampled_from(["numpy", *LEVELS]),
    data=st.data(),
)
def test_any_shape_and_span(seed, n, d, dtype, layout, level, data):
    problem = random_problem(np.random.default_rng(seed), n, max(d, 1), dtype)
    problem.matrix, problem.coef = problem.matrix[:, :d], problem.coef[:d]
    first = data.draw(st.integers(0, n))
    last = data.draw(st.integers(first, n))
    check(problem, handle(problem.matrix, layout, level), first, last, layout)


@each_level
@pytest.mark.parametrize("dtype", TYPES)
def test_each_element_is_read_exactly(level, dtype):
    """Also half-precision subnormals, infinities and NaN; by vectors and one by one."""
    kind, bits = np.dtype(dtype).kind, 8 * np.dtype(dtype).itemsize
    if bits <= 16 and kind != "b":
        values = np.arange(2**bits, dtype=f"u{bits // 8}").view(dtype)
    elif kind in "iu":
        info = np.iinfo(dtype)
        values = np.array([info.min, info.min + 1, 0, 1, 2**24 + 1, info.max - 1, info.max], dtype)
    elif kind == "b":
        values = np.array([False, True])
    else:
        info = np.finfo(dtype)
        values = np.array([info.tiny, info.smallest_subnormal, -info.max, np.inf, -np.inf], dtype)
    with np.errstate(invalid="ignore"):  # signalling NaN
        truth = values.astype(np.float64)
    for d in (1, 3, 9, 40, 150):
        matrix = np.zeros((len(values), d), dtype)
        matrix[np.arange(len(values)), np.arange(len(values)) % d] = values
        out = np.empty(len(values))
        for layout in ("C", "F"):
            rows = handle(matrix, layout, level)
            rows.scores(0, len(values), np.ones(d), 0.0, out)
            np.testing.assert_array_equal(out, truth)
        # Rows of 19, of which the last elements are read one by one.
        filled = np.zeros((len(values), 19), dtype)
        filled[np.arange(len(values)), d % 19] = values
        indptr = np.arange(len(values) + 1, dtype=np.int32) * 19
        columns = np.tile(np.arange(19, dtype=np.int32), len(values))
        rows = compiled.CsrRows(filled.ravel(), columns, indptr, 19, level)
        rows.scores(0, len(values), np.ones(19), 0.0, out)
        np.testing.assert_array_equal(out, truth)


# Reproducible, whatever the threads


@each_level
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["f8", "f4", "u1"])
@pytest.mark.parametrize("d", [5, 54, 300])
def test_calls_repeat_bit_for_bit_and_threads_do_not_matter(level, dtype, layout, d):
    problem = random_problem(np.random.default_rng(3), 400, d, dtype)
    rows = handle(problem.matrix, layout, level)
    spans = [(0, 130), (130, 131), (131, 260), (260, 400)]
    alone = [problem.sweep(rows, *span) for span in spans]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda span: problem.sweep(rows, *span), spans * 5))
    for k, result in enumerate(together):
        np.testing.assert_array_equal(result, alone[k % len(spans)])
    truth, error = oracle(problem, 0, 400)[0]
    assert_within(np.sum(alone, axis=0), (truth, 2 * error))


@pytest.mark.parametrize("level", ["numpy", *LEVELS])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradient_is_added_to_what_is_there(level, layout):
    for d in (3, 20, 100, 1100):
        problem = random_problem(np.random.default_rng(4), 30, d, "f8")
        rows = handle(problem.matrix, layout, level)
        there = np.full(d, 2.0**30)
        expected = there + problem.sweep(rows)[2:]
        problem.sweep(rows, gradient=there)
        np.testing.assert_allclose(there, expected, rtol=1e-15)


# Strides and buffers


def dense_views():
    base = np.random.default_rng(5).normal(size=(60, 90))
    return {
        "every other row": base[::2],
        "some columns": base[:, 3:40],
        "transposed": base.T,
        "rows backwards": base[::-1],
        "columns of Fortran order": np.asfortranarray(base)[:, ::3],
        "rows of Fortran order": np.asfortranarray(base)[5:50],
        "one row repeated": np.broadcast_to(base[0], (9, 90)),
        "overlapping windows": np.lib.stride_tricks.sliding_window_view(base[0], 12),
        "single row, odd strides": base[7:8, ::2],
        "single column, odd strides": base[::2, ::90],
        "single element": base[::60, ::90],
        "no rows": base[:0],
        "no columns": base[:, :0],
    }


@each_level
@pytest.mark.parametrize("name", dense_views())
def test_views_are_read_in_place(level, name):
    view = dense_views()[name]
    problem = random_problem(np.random.default_rng(6), *view.shape, "f8")
    problem.matrix = view
    assert isinstance(_kernels.rows(view), compiled.DenseRows)
    check(problem, compiled.DenseRows(view, level), 0, len(view))


@needs_compiled
def test_read_only_and_memory_mapped_arrays(tmp_path):
    problem = random_problem(np.random.default_rng(7), 50, 20, "f4")
    problem.matrix.tofile(tmp_path / "matrix")
    mapped = np.memmap(tmp_path / "matrix", dtype="f4", mode="r", shape=(50, 20))
    problem.matrix.flags.writeable = False
    problem.coef.flags.writeable = problem.sign.flags.writeable = False
    for matrix in (problem.matrix, mapped):
        rows = _kernels.rows(matrix)
        assert isinstance(rows, compiled.DenseRows)
        check(problem, rows, 0, 50)
    read_only = sparse.csr_array(problem.matrix)
    for part in (read_only.data, read_only.indices, read_only.indptr):
        part.flags.writeable = False
    rows = _kernels.rows(read_only)
    assert isinstance(rows, compiled.CsrRows)
    check(problem, rows, 0, 50, "csr")


def unaligned(matrix):
    store = np.zeros(matrix.nbytes + 1, np.uint8)
    view = store[1:].view(matrix.dtype).reshape(matrix.shape)
    view[...] = matrix
    return view


@pytest.mark.parametrize(
    "other",
    [
        lambda x: x.astype(">f8"),
        lambda x: x.astype(np.longdouble),
        lambda x: x.astype(np.uint64),
        lambda x: np.repeat(np.repeat(x, 2, 0), 2, 1)[::2, ::2],
        unaligned,
        sparse.csc_array,
        lambda x: sparse.csr_array(x.astype(np.longdouble)),
    ],
    ids=["big-endian", "longdouble", "uint64", "strided twice", "unaligned", "CSC", "CSR long"],
)
def test_what_cannot_be_read_directly_numpy_reads(other):
    problem = random_problem(np.random.default_rng(8), 30, 20, "f8")
    problem.matrix = np.abs(np.rint(4 * problem.matrix))
    rows = _kernels.rows(other(problem.matrix))
    assert isinstance(rows, ArrayRows)
    check(problem, rows, 0, 30)


def test_without_the_compiled_module_numpy_serves(monkeypatch):
    assert "compiled" in _kernels.active()
    monkeypatch.setattr(_kernels, "_compiled", None)
    assert _kernels.active().startswith("numpy")
    assert isinstance(_kernels.rows(np.ones((2, 3))), ArrayRows)


# NaN, infinities, extremes


@pytest.mark.parametrize("level", ["numpy", *LEVELS])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["f8", "f4", "f2"])
def test_nan_and_infinity_reach_value_and_gradient(level, layout, dtype):
    for n, d in [(11, 3), (19, 13), (19, 53), (21, 75)]:
        problem = random_problem(np.random.default_rng(9), n, d, dtype, MarginLoss())
        problem.weight[:], problem.coef = 1.0, np.abs(problem.coef) + 0.1
        clean = problem.matrix.copy()
        for column in range(d):
            row = (7 * column) % n
            problem.matrix = clean.copy()
            problem.matrix[row, column] = np.nan
            rows = handle(problem.matrix, layout, level)
            assert np.isnan(problem.sweep(rows)[[0, 1, 2 + column]]).all()
            assert np.isfinite(problem.sweep(rows, row + 1)).all()
            problem.matrix[row, column] = -np.inf * problem.sign[row]  # a margin of -inf
            margins, curvature = np.empty(n), np.empty(n)
            result = problem.sweep(
                handle(problem.matrix, layout, level), margins=margins, curvature=curvature
            )
            assert margins[row] == -np.inf
            assert curvature[row] == 0.0
            assert result[0] == np.inf
            assert result[2 + column] == np.inf  # slope -y times -y inf
            assert np.isfinite(np.delete(result, [0, 2 + column])).all()


@pytest.mark.parametrize("level", ["numpy", *LEVELS])
@pytest.mark.parametrize("scale", [5e-324, 1e-300, 1e-10, 1.0, 1e10, 1e150, 1e300, 1.7e308])
def test_extreme_scales_follow_the_loss(level, scale):
    reach = [0.0, 1e-320, 1e-200, 1e-8, 0.5, 1.0, 1.4142, 1.4143, 3.0, 1e8, 1e200, np.inf]
    matrix, curvature = np.ones((8, 9)), np.empty(8)
    rows = handle(matrix, "C", level)
    for above in (0.0, 0.5, 1.0):
        for margin in (1e-300, 1.0, 1e300):
            loss = MarginLoss(margin, scale, above)
            with np.errstate(over="ignore", under="ignore"):
                points = np.array([margin + side * scale * r for r in reach for side in (-1, 1)])
                truth = loss.value(points), loss.derivative(points), loss.curvature(points)
            for m, value, slope, bend in zip(points, *truth, strict=True):
                for n in (1, 8):  # alone, and in a group
                    problem = Problem(matrix, np.ones(8), np.full(8, 1 / n), np.zeros(9), m, loss)
                    seen = problem.sweep(rows, 0, n, curvature=curvature)
                    np.testing.assert_allclose(seen[0], value, rtol=1e-14, atol=1e-322)
                    np.testing.assert_allclose(seen[1:], slope, rtol=1e-14, atol=1e-322)
                    np.testing.assert_allclose(n * curvature[:n], bend, atol=1e-15)


# What is refused


@pytest.mark.parametrize("name", ["sign", "weight", "coef", "gradient", "margins", "curvature"])
@needs_compiled
def test_wrong_lengths_are_refused(name):
    arrays = {
        "sign": np.ones(4),
        "weight": np.ones(4),
        "coef": np.ones(3),
        "gradient": np.ones(3),
        "margins": np.ones(4),
        "curvature": np.ones(4),
    }
    rows = compiled.DenseRows(np.ones((4, 3)))
    rows.sweep(0, 4, MarginLoss(), intercept=0.0, **arrays)
    for wrong in (np.ones(5), np.ones(0)):
        with pytest.raises(ValueError, match=rf"{name} must have length \d; got {len(wrong)}"):
            rows.sweep(0, 4, MarginLoss(), intercept=0.0, **arrays | {name: wrong})
    if name not in ("margins", "curvature"):
        with pytest.raises(TypeError, match=f"'{name}' must not be None"):
            rows.sweep(0, 4, MarginLoss(), intercept=0.0, **arrays | {name: None})
    with pytest.raises(ValueError, match="dtype mismatch"):
        rows.sweep(0, 4, MarginLoss(), intercept=0.0, **arrays | {name: np.ones(4, np.float32)})


@needs_compiled
def test_wrong_lengths_of_products_are_refused():
    rows = compiled.DenseRows(np.ones((4, 3)))
    three, four = np.ones(3), np.ones(4)
    with pytest.raises(ValueError, match="coef must have length 3; got 4"):
        rows.scores(0, 4, four, 0.0, four)
    with pytest.raises(ValueError, match="out must have length 4; got 3"):
        rows.scores(0, 4, three, 0.0, three)
    with pytest.raises(ValueError, match="factors must have length 4; got 3"):
        rows.adjoint(0, 4, three, three)
    with pytest.raises(ValueError, match="total must have length 3; got 4"):
        rows.adjoint(0, 4, four, four)
    for ask, lengths in ((rows.squares, (3, 4, 3)), (rows.norms, (3, 3, 4))):
        for k in range(3):
            wrong = [np.ones(7 - n if i == k else n) for i, n in enumerate(lengths)]
            with pytest.raises(ValueError, match="must have length"):
                ask(0, 4, *wrong)


@needs_compiled
@pytest.mark.parametrize("span", [(-1, 2), (0, 5), (3, 2), (5, 5)])
def test_spans_outside_are_refused(span):
    three, four = np.ones(3), np.ones(4)
    for rows in (compiled.DenseRows(np.ones((4, 3))), handle(np.ones((4, 3)), "csr32", LEVELS[0])):
        with pytest.raises(IndexError, match="not within the 4 rows"):
            rows.sweep(*span, MarginLoss(), four, four, three, 0.0, three.copy())
        with pytest.raises(IndexError, match="not within the 4 rows"):
            rows.scores(*span, three, 0.0, four.copy())
        with pytest.raises(IndexError, match="not within the 4 rows"):
            rows.adjoint(*span, four, three.copy())
    dense = compiled.DenseRows(np.ones((4, 3)))
    for ask in (dense.squares, dense.norms):
        with pytest.raises(IndexError, match="not within the 4 rows"):
            ask(*span, three, three.copy(), three.copy())


@needs_compiled
def test_dense_arrays_that_are_refused():
    with pytest.raises(ValueError, match="2 dimensions; got 1"):
        compiled.DenseRows(np.ones(3))
    with pytest.raises(TypeError, match="'>d' cannot be read"):
        compiled.DenseRows(np.ones((2, 3), ">f8"))
    with pytest.raises(BufferError, match="contiguous"):
        compiled.DenseRows(np.ones((4, 6))[::2, ::2])
    with pytest.raises(BufferError, match="aligned"):
        compiled.DenseRows(unaligned(np.ones((2, 3))))
    with pytest.raises(ValueError, match="level must be one of"):
        compiled.DenseRows(np.ones((2, 3)), "mmx")
    with pytest.raises(TypeError):
        compiled.DenseRows([[1.0]])


@needs_compiled
@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize(
    ("data", "indices", "indptr"),
    [
        ([1, 2], [0, -1], [0, 1, 2]),
        ([1, 2], [0, 3], [0, 1, 2]),
        ([1, 2], [0, 1], [0, 2, 1]),
        ([1, 2], [0, 1], [0, 3, 2]),
        ([1, 2], [0, 1], [1, 1, 2]),
        ([1, 2], [0, 1], [0, 1, 3]),
        ([1, 2], [0, 1], [0, 1, 1]),
        ([1, 2], [0, 1], [-1, 1, 2]),
        ([1, 2, 3], [0, 1], [0, 1, 2]),
        ([1], [0, 1], [0, 1, 2]),
        ([], [], []),
        ([], [], [1]),
    ],
)
def test_unsound_csr_is_refused(data, indices, indptr, index):
    parts = np.array(data, float), np.array(indices, index), np.array(indptr, index)
    with pytest.raises(ValueError, match="CSR"):
        compiled.CsrRows(*parts, 3)


@needs_compiled
def test_other_csr_arrays_that_are_refused():
    data, indices, indptr = np.ones(2), np.array([0, 1], "i4"), np.array([0, 1, 2], "i4")
    compiled.CsrRows(data, indices, indptr, 2)
    with pytest.raises(TypeError, match="both be int32 or both be int64"):
        compiled.CsrRows(data, indices.astype("i8"), indptr, 2)
    with pytest.raises(TypeError, match="both be int32 or both be int64"):
        compiled.CsrRows(data, indices.astype("u4"), indptr.astype("u4"), 2)
    with pytest.raises(BufferError, match="data must be contiguous"):
        compiled.CsrRows(np.ones(4)[::2], indices, indptr, 2)
    with pytest.raises(ValueError, match="indices must have 1 dimension"):
        compiled.CsrRows(data, indices[np.newaxis], indptr, 2)
    with pytest.raises(ValueError, match="every index"):
        compiled.CsrRows(data, indices, indptr, -1)
    broken = sparse.csr_array((data, indices, indptr), shape=(2, 2))
    broken.indices[1] = 7
    with pytest.raises(ValueError, match=r"every index be in \[0, 2\)"):
        _kernels.rows(broken)


@each_level
@pytest.mark.parametrize("index", ["i4", "i8"])
def test_csr_rows_may_be_empty_unsorted_and_name_a_column_twice(level, index):
    indices = np.r_[np.arange(40)[::-1], np.repeat(3, 37), np.arange(5)].astype(index)
    indptr = np.array([0, 0, 40, 40, 77, 82, 82], index)
    data = np.random.default_rng(10).normal(size=82)
    matrix = np.zeros((6, 41))
    np.add.at(matrix, (np.repeat(np.arange(6), np.diff(indptr)), indices), data)
    problem = random_problem(np.random.default_rng(11), 6, 41, "f8")
    problem.matrix = matrix
    check(problem, compiled.CsrRows(data, indices, indptr, 41, level), 0, 6, "csr")


class TestTaskLosses:
    """What stands between the two matrix products of a sweep for many tasks."""

    @staticmethod
    def arguments(rng, n, n_tasks=7, n_parts=3, n_rows=None):
        n_rows = n if n_rows is None else n_rows
        losses = np.column_stack(
            [rng.uniform(0.3, 2, (n_tasks, 2)), rng.choice([0.0, 0.3, 1.0], n_tasks)]
        )
        return {
            "losses": losses,
            "codes": rng.integers(0, 4, n_rows),
            "weights": rng.random((n_parts, n_rows)) * rng.integers(0, 2, (n_parts, n_rows)),
            "positive": rng.integers(0, 4, n_tasks),
            "part": rng.integers(0, n_parts, n_tasks),
            "intercept": rng.normal(size=n_tasks),
            "scores": 3 * rng.normal(size=(n_tasks, n)),
            "value": rng.normal(size=n_tasks),
            "slope": rng.normal(size=n_tasks),
        }

    @pytest.mark.parametrize("n", [0, 1, 3, 8, 100, 1024, 2500])
    @pytest.mark.parametrize("level", ["numpy", *LEVELS])
    def test_each_task_is_a_loss(self, level, n):
        rng = np.random.default_rng(n)
        given = self.arguments(rng, n, n_rows=n + 9)
        seen = {name: array.copy() for name, array in given.items()}
        if level == "numpy":
            _arrays.task_losses(5, **seen, begin=1, end=6)
        else:
            compiled.task_losses(5, **seen, begin=1, end=6, level=level)
        span = slice(5, 5 + n)
        for k in range(7):
            if not 1 <= k < 6:
                for name in ("scores", "value", "slope"):
                    assert_array_equal(seen[name][k], given[name][k])
                continue
            loss = MarginLoss(*given["losses"][k])
            sign = np.where(given["codes"][span] == given["positive"][k], 1.0, -1.0)
            weight = given["weights"][given["part"][k], span]
            margins = sign * (given["scores"][k] + given["intercept"][k])
            slopes = sign * weight * loss.derivative(margins)
            value = given["value"][k] + weight @ loss.value(margins)
            assert_allclose(seen["scores"][k], slopes, rtol=1e-13, atol=1e-14)
            assert_allclose(seen["value"][k], value, rtol=1e-12, atol=1e-12)
            assert_allclose(seen["slope"][k], given["slope"][k] + slopes.sum(), atol=1e-11)

    @needs_compiled
    @pytest.mark.parametrize(
        ("name", "wrong", "error"),
        [
            ("losses", np.ones((6, 3)), ValueError),
            ("losses", np.ones((7, 2)), ValueError),
            ("positive", np.zeros(6, int), ValueError),
            ("part", np.full(7, 3), IndexError),
            ("part", np.full(7, -1), IndexError),
            ("value", np.zeros(8), ValueError),
            ("slope", np.zeros(6), ValueError),
            ("intercept", np.zeros(6), ValueError),
            ("codes", np.zeros(9, int), ValueError),
            ("weights", np.ones((3, 9)), ValueError),
            ("scores", np.ones((7, 11)), IndexError),
        ],
    )
    def test_nothing_is_read_outside(self, name, wrong, error):
        given = self.arguments(np.random.default_rng(0), 10)
        with pytest.raises(error):
            compiled.task_losses(0, **given | {name: wrong}, begin=0, end=7)
        for first, begin, end in ((-1, 0, 7), (1, 0, 7), (0, -1, 7), (0, 0, 8), (0, 5, 3)):
            with pytest.raises(IndexError):
                compiled.task_losses(first, **given, begin=begin, end=end)


class TestTeams:
    """Sweeps over CSR rows for some tasks at a time."""

    @staticmethod
    def arguments(rng, matrix, n_tasks=11, n_parts=3):
        n, d = matrix.shape
        losses = np.column_stack(
            [rng.uniform(0.3, 2, (n_tasks, 2)), rng.choice([0.0, 0.3, 1.0], n_tasks)]
        )
        size = float(np.max(np.abs(matrix.astype(np.float64)), initial=1e-30))
        return {
            "losses": losses,
            "codes": rng.integers(0, 4, n),
            "weights": rng.random((n, n_parts)) * rng.integers(0, 2, (n, n_parts)),
            "positive": rng.integers(0, 4, n_tasks),
            "part": rng.integers(0, n_parts, n_tasks),
            "centre": size * rng.normal(size=d),
            "factors": rng.integers(0, 3, d) / size,
            "coef": rng.normal(size=(n_tasks, d)) / np.sqrt(d),
            "intercept": rng.normal(size=n_tasks),
            "table": rng.normal(size=(d, 2, 8)),
            "gradient": rng.normal(size=(n_tasks, d)),
            "value": rng.normal(size=n_tasks),
            "slope": rng.normal(size=n_tasks),
        }

    @pytest.mark.parametrize("layout", ["csr32", "csr64"])
    @pytest.mark.parametrize("level", ["numpy", *LEVELS])
    @pytest.mark.parametrize(
        ("n", "d", "dtype", "end"),
        [(1, 1, "f8", 3), (33, 70, "f8", 10), (130, 17, "f4", 4), (40, 200, "u1", 9)]
        + [(30, 64, dtype, 7) for dtype in TYPES],
    )
    def test_each_task_is_a_sweep(self, level, layout, n, d, dtype, end):
        rng = np.random.default_rng(n + d + end)
        matrix = random_matrix(rng, n, d, dtype)
        given = self.arguments(rng, matrix)
        seen = {name: array.copy() for name, array in given.items()}
        seen["coef"] = np.asfortranarray(seen["coef"]) if end == 4 else seen["coef"]
        handle(matrix, layout, level).sweep_tasks(**seen, begin=2, end=end)
        z = (matrix.astype(np.float64) - given["centre"]) * given["factors"]
        for k in range(11):
            if not 2 <= k < end:
                for name in ("gradient", "value", "slope"):
                    assert_array_equal(seen[name][k], given[name][k])
                continue
            loss, weight = MarginLoss(*given["losses"][k]), given["weights"][:, given["part"][k]]
            sign = np.where(given["codes"] == given["positive"][k], 1.0, -1.0)
            margins = sign * (z @ given["coef"][k] + given["intercept"][k])
            slopes = sign * weight * loss.derivative(margins)
            assert_allclose(seen["value"][k], weight @ loss.value(margins), rtol=1e-11, atol=1e-12)
            assert_allclose(seen["slope"][k], slopes.sum(), rtol=1e-11, atol=1e-11)
            assert_allclose(seen["gradient"][k], slopes @ z, rtol=1e-10, atol=1e-10)

    @needs_compiled
    @pytest.mark.parametrize(
        ("name", "wrong", "error"),
        [
            ("losses", np.ones((10, 3)), ValueError),
            ("losses", np.ones((11, 2)), ValueError),
            ("codes", np.zeros(5, int), ValueError),
            ("weights", np.ones((5, 3)), ValueError),
            ("positive", np.zeros(10, int), ValueError),
            ("part", np.full(11, 3), IndexError),
            ("part", np.full(11, -1), IndexError),
            ("part", np.zeros(10, int), ValueError),
            ("centre", np.zeros(4), ValueError),
            ("factors", np.zeros(4), ValueError),
            ("coef", np.ones((11, 4)), ValueError),
            ("intercept", np.zeros(10), ValueError),
            ("table", np.ones((5, 2, 7)), ValueError),
            ("table", np.ones((4, 2, 8)), ValueError),
            ("gradient", np.ones((11, 4)), ValueError),
            ("gradient", np.ones((10, 5)), ValueError),
            ("value", np.zeros(10), ValueError),
            ("slope", np.zeros(12), ValueError),
        ],
    )
    def test_nothing_is_touched_outside(self, name, wrong, error):
        rng = np.random.default_rng(0)
        matrix = random_matrix(rng, 6, 5, "f8")
        given, rows = self.arguments(rng, matrix), handle(matrix, "csr32", LEVELS[-1])
        with pytest.raises(error):
            rows.sweep_tasks(**given | {name: wrong}, begin=0, end=8)
        for begin, end in ((-1, 3), (0, 9), (5, 5), (6, 5), (4, 12)):
            with pytest.raises(IndexError):
                rows.sweep_tasks(**given, begin=begin, end=end)


class TestVisits:
    """Visits to single rows, for a team of tasks."""

    @staticmethod
    def arguments(rng, matrix):
        n, d = matrix.shape
        size = np.sqrt(np.mean(np.sum(matrix.astype(float) ** 2, axis=1))) or 1.0
        constant = 0.3 * size**2
        return {
            "losses": np.array(
                [(1.0, s, t) for s in (0.03, 0.5, 1.0, 40.0) for t in (0.0, 0.7)], dtype=float
            ),
            "rows": rng.permutation(n)[: max(1, n - 2)],
            "codes": rng.integers(0, 3, n),
            "weights": rng.random(n) / n + 1e-3,
            "squares": np.sum(matrix.astype(float) ** 2, axis=1) + constant,
            "constant": constant,
            "positive": rng.integers(0, 3, 8),
            "penalty": size**2 * 10.0 ** rng.uniform(-6, 2, 8),
            "residual": rng.normal(size=(n, 8)),
            "coef": rng.normal(size=(d, 8)) / size,
            "intercept": rng.normal(size=8),
            "sums": rng.normal(size=(3, 8)),
        }

    @staticmethod
    def visited(matrix, given, task):
        """Visit rows for one task, each force by bisection."""
        loss, p = MarginLoss(*given["losses"][task]), given["penalty"][task]
        residual, coef = given["residual"][:, task].copy(), given["coef"][:, task].copy()
        b, x = given["intercept"][task], matrix.astype(np.float64)
        value = gap = balance = 0.0

        def force(r):
            return -float(loss.derivative(loss.margin - r))

        for i in given["rows"]:
            y = 1.0 if given["codes"][i] == given["positive"][task] else -1.0
            c, score, before = given["weights"][i], x[i] @ coef, residual[i]
            m, q = y * (score + b), given["weights"][i] * given["squares"][i] / p
            value += c * (loss.value(m) + 0.5 * force(before) * y * score)
            old = loss.margin - before
            gap += c * (loss.value(m) - loss.value(old) + force(before) * (m - old))
            t = loss.margin - m + q * force(before)
            reach = abs(t) + 1.0
            after = brentq(lambda r, q=q, t=t: r + q * force(r) - t, -reach, reach, xtol=1e-15)
            change = y * c * (force(after) - force(before)) / p
            coef, b = coef + change * x[i], b + given["constant"] * change
            residual[i] = after
            balance += c * y * force(after)
        return residual, coef, b, (value, gap, balance)

    @each_level
    @pytest.mark.parametrize("layout", ["csr32", "csr64"])
    @pytest.mark.parametrize(
        ("n", "d", "dtype"),
        [(1, 1, "f8"), (33, 70, "f8"), (20, 9, "f4"), *((12, 20, dtype) for dtype in TYPES)],
    )
    def test_each_task_is_visited(self, level, layout, n, d, dtype):
        rng = np.random.default_rng(n + d)
        matrix = random_matrix(rng, n, d, dtype)
        given = self.arguments(rng, matrix)
        seen = {k: np.copy(v) if np.ndim(v) else v for k, v in given.items()}
        handle(matrix, layout, level).dual_pass(**seen)
        for task in range(8):
            residual, coef, intercept, sums = self.visited(matrix, given, task)
            size = np.abs(coef).max() + np.abs(given["coef"]).max()
            assert_allclose(seen["residual"][:, task], residual, rtol=1e-6, atol=1e-8)
            assert_allclose(seen["coef"][:, task], coef, rtol=1e-6, atol=1e-8 * size)
            assert_allclose(seen["intercept"][task], intercept, rtol=1e-6, atol=1e-8)
            assert_allclose(seen["sums"][:, task], sums, rtol=1e-6, atol=1e-9)

    @needs_compiled
    @pytest.mark.parametrize(
        ("name", "wrong", "error"),
        [
            ("losses", np.ones((7, 3)), ValueError),
            ("losses", np.ones((8, 2)), ValueError),
            ("rows", np.array([6]), IndexError),
            ("rows", np.array([-1]), IndexError),
            ("rows", np.zeros(0, int), ValueError),
            ("codes", np.zeros(5, int), ValueError),
            ("weights", np.ones(5), ValueError),
            ("squares", np.ones(5), ValueError),
            ("positive", np.zeros(7, int), ValueError),
            ("penalty", np.ones(9), ValueError),
            ("residual", np.ones((5, 8)), ValueError),
            ("residual", np.ones((6, 7)), ValueError),
            ("coef", np.ones((4, 8)), ValueError),
            ("coef", np.ones((5, 9)), ValueError),
            ("intercept", np.ones(7), ValueError),
            ("sums", np.ones((2, 8)), ValueError),
            ("sums", np.ones((3, 7)), ValueError),
        ],
    )
    def test_nothing_is_touched_outside(self, name, wrong, error):
        rng = np.random.default_rng(0)
        matrix = random_matrix(rng, 6, 5, "f8")
        given, rows = self.arguments(rng, matrix), handle(matrix, "csr32", LEVELS[-1])
        with pytest.raises(error):
            rows.dual_pass(**given | {name: wrong})


class TestPairLoop:
    """One half of the two-loop recursion."""

    @pytest.mark.parametrize("n", [1, 7, 8, 31, 32, 33, 100])
    @pytest.mark.parametrize("level", ["numpy", *LEVELS])
    def test_each_task_goes_through_all_pairs(self, level, n):
        rng = np.random.default_rng(n)
        reads, writes = rng.normal(size=(2, 4, 3, n))
        inverse, factors, points = (
            rng.normal(size=(4, 3)),
            rng.normal(size=(4, 3)),
            rng.normal(size=(3, n)),
        )
        expected, wanted = points.copy(), factors.copy()
        for p in range(4):
            for k in range(3):
                wanted[p, k] -= inverse[p, k] * (reads[p, k] @ expected[k])
                expected[k] += wanted[p, k] * writes[p, k]
        loop = _arrays.lbfgs_loop if level == "numpy" else compiled.lbfgs_loop
        options = {} if level == "numpy" else {"level": level}
        loop(list(reads), list(writes), inverse, factors, points, **options)
        scale = np.abs(expected).max()
        assert_allclose(points, expected, rtol=1e-11, atol=1e-12 * scale)
        assert_allclose(factors, wanted, rtol=1e-11, atol=1e-12 * scale)

    @needs_compiled
    def test_without_pairs_nothing_changes(self):
        points = np.ones((2, 5))
        compiled.lbfgs_loop([], [], np.empty((0, 2)), np.empty((0, 2)), points)
        assert_array_equal(points, 1.0)

    @needs_compiled
    @pytest.mark.parametrize("wrong", range(5))
    def test_nothing_is_touched_outside(self, wrong):
        arrays = [[np.ones((2, 5))], [np.ones((2, 5))], np.ones((1, 2)), np.ones((1, 2))]
        arrays.append(np.ones((2, 5)))
        arrays[wrong] = [
            [np.ones((2, 4))],
            [np.ones((1, 5))],
            np.ones((1, 3)),
            np.ones((2, 2)),
            np.ones((3, 5)),
        ][wrong]
        with pytest.raises(ValueError, match="must have length"):
            compiled.lbfgs_loop(*arrays)


@needs_compiled
class TestTiles:
    """Sweeps of several tasks in float32."""

    def arguments(self, n, d, n_tasks, seed=0):
        rng = np.random.default_rng(seed)
        padded = np.zeros((n, -(-d // 16) * 16), dtype=np.float32)
        padded[:, :d] = rng.normal(size=(n, d))
        coef = np.zeros((-(-n_tasks // 4) * 4, padded.shape[1]), dtype=np.float32)
        coef[:n_tasks, :d] = rng.normal(size=(n_tasks, d)) / np.sqrt(d)
        losses = np.column_stack([np.ones(n_tasks), *rng.random((2, n_tasks))])
        return {
            "rows": padded,
            "losses": losses,
            "codes": rng.integers(0, 3, n),
            "weights": rng.random((3, n)) * (rng.random((3, n)) > 0.2) / n,
            "positive": rng.integers(0, 3, n_tasks),
            "part": rng.integers(0, 3, n_tasks),
            "coef": coef,
            "intercept": 0.1 * rng.normal(size=n_tasks),
            "gradient": rng.normal(size=(n_tasks, padded.shape[1])),
            "value": rng.normal(size=n_tasks),
            "slope": rng.normal(size=n_tasks),
        }

    @pytest.mark.parametrize(("n", "d"), [(1, 1), (3, 16), (67, 54), (64, 129), (300, 784)])
    @pytest.mark.parametrize("n_tasks", [1, 2, 5, 8, 47, 48])
    @each_level
    def test_each_task_is_a_sweep(self, level, n_tasks, n, d):
        given = self.arguments(n, d, n_tasks)
        seen = {name: array.copy() for name, array in given.items()}
        first, last = n // 5, n - n // 7
        compiled.sweep_tiles(first=first, last=last, **seen, level=level)
        rows, span = given["rows"].astype(np.float64), slice(first, last)
        for k in range(n_tasks):
            loss = MarginLoss(*given["losses"][k])
            sign = np.where(given["codes"][span] == given["positive"][k], 1.0, -1.0)
            weight = given["weights"][given["part"][k], span]
            margins = sign * (rows[span] @ given["coef"][k] + given["intercept"][k])
            slopes = sign * weight * loss.derivative(margins)
            value = given["value"][k] + weight @ loss.value(margins)
            assert_allclose(seen["value"][k], value, rtol=1e-6, atol=1e-7)
            assert_allclose(seen["slope"][k], given["slope"][k] + slopes.sum(), atol=1e-6)
            gradient = given["gradient"][k] + slopes @ rows[span]
            assert_allclose(seen["gradient"][k], gradient, rtol=0, atol=1e-6)

    @pytest.mark.parametrize(
        ("name", "wrong", "error"),
        [
            ("rows", np.ones((10, 17), np.float32), ValueError),
            ("losses", np.ones((6, 3)), ValueError),
            ("losses", np.ones((7, 2)), ValueError),
            ("coef", np.ones((7, 16), np.float32), ValueError),
            ("coef", np.ones((8, 32), np.float32), ValueError),
            ("gradient", np.ones((7, 9)), ValueError),
            ("gradient", np.ones((8, 16)), ValueError),
            ("part", np.full(7, 3), IndexError),
            ("part", np.full(7, -1), IndexError),
            ("part", np.zeros(6, int), ValueError),
            ("value", np.zeros(8), ValueError),
            ("slope", np.zeros(6), ValueError),
            ("intercept", np.zeros(6), ValueError),
            ("codes", np.zeros(9, int), ValueError),
            ("weights", np.ones((3, 9)), ValueError),
        ],
    )
    def test_nothing_is_read_outside(self, name, wrong, error):
        given = self.arguments(10, 9, 7)
        with pytest.raises(error):
            compiled.sweep_tiles(first=0, last=10, **given | {name: wrong})
        for first, last in ((-1, 5), (0, 11), (6, 5)):
            with pytest.raises(IndexError):
                compiled.sweep_tiles(first=first, last=last, **given)
        with pytest.raises(ValueError, match="1 to 48 tasks; got 49"):
            compiled.sweep_tiles(first=0, last=10, **self.arguments(10, 9, 49))


class TestCsrGram:
    @pytest.mark.parametrize("index", [np.int32, np.int64])
    @pytest.mark.parametrize("kernels", [_arrays, pytest.param(compiled, marks=needs_compiled)])
    def test_sums_of_outer_squares(self, kernels, index):
        rng = np.random.default_rng(0)
        matrix = np.where(rng.random((30, 7)) < 0.4, rng.normal(size=(30, 7)), 0.0)
        weights = rng.normal(size=30) * (rng.random(30) < 0.7)
        stored = sparse.csr_array(matrix)
        stored.data[np.repeat(weights == 0, np.diff(stored.indptr))] = np.nan  # is not read
        indices, indptr = stored.indices.astype(index), stored.indptr.astype(index)
        total = np.ones((7, 7))
        for first, last in ((3, 12), (12, 30), (30, 30)):
            kernels.csr_gram(stored.data, indices, indptr, weights, first, last, total)
        assert_allclose(total, 1 + (matrix[3:].T * weights[3:]) @ matrix[3:], atol=1e-14)
        nothing = np.empty(0, index)
        kernels.csr_gram(np.empty(0), nothing, np.zeros(3, index), np.ones(2), 0, 2, total)

    @needs_compiled
    def test_nothing_is_read_outside(self):
        given = {
            "data": np.ones(2),
            "indices": np.array([0, 1], np.int32),
            "indptr": np.array([0, 1, 2], np.int32),
            "weights": np.ones(2),
            "first": 0,
            "last": 2,
            "total": np.zeros((2, 2)),
        }
        compiled.csr_gram(**given)
        for name, wrong, error in (
            ("data", np.ones(1), IndexError),
            ("indices", np.array([0, 2], np.int32), IndexError),
            ("indices", np.array([-1, 1], np.int32), IndexError),
            ("indptr", np.array([0, 3, 2], np.int32), IndexError),
            ("indptr", np.array([-1, 1, 2], np.int32), IndexError),
            ("indptr", np.array([0, 1], np.int32), IndexError),
            ("weights", np.ones(1), IndexError),
            ("first", -1, IndexError),
            ("last", 3, IndexError),
            ("total", np.zeros((2, 3)), ValueError),
        ):
            with pytest.raises(error):
                compiled.csr_gram(**given | {name: wrong})
