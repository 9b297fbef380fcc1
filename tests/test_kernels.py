"""Every kernel (SIMD level, element type, layout) against plain sums in extended precision."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import (
    COLUMNS,
    LARGE,
    LAYOUTS,
    LEVELS,
    ROWS,
    TYPES,
    Problem,
    assert_within,
    check,
    compiled,
    each_level,
    handle,
    needs_compiled,
    oracle,
    random_problem,
    unaligned,
)
from scipy import sparse

from marginpursuit import _kernels
from marginpursuit._kernels import ArrayRows, _arrays
from marginpursuit.losses import MarginLoss

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
        assert (rows.n_rows, rows.n_columns) == (n, d)
        assert rows.level == ("avx2" if level == "avx512" and layout.startswith("csr") else level)
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
    assert isinstance(_arrays.rows(np.ones((2, 3))), ArrayRows)


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
            result = problem.sweep(handle(problem.matrix, layout, level))
            assert result[0] == np.inf
            assert result[2 + column] == np.inf  # slope -y times -y inf
            assert np.isfinite(np.delete(result, [0, 2 + column])).all()


@pytest.mark.parametrize("level", ["numpy", *LEVELS])
@pytest.mark.parametrize("scale", [5e-324, 1e-300, 1e-10, 1.0, 1e10, 1e150, 1e300, 1.7e308])
def test_extreme_scales_follow_the_loss(level, scale):
    ratios = [0.0, 1e-320, 1e-200, 1e-8, 0.5, 1.0, 1.4142, 1.4143, 3.0, 1e8, 1e200, np.inf]
    matrix = np.ones((8, 9))
    rows = handle(matrix, "C", level)
    for above in (0.0, 0.5, 1.0):
        for margin in (1e-300, 1.0, 1e300):
            loss = MarginLoss(margin, scale, above)
            with np.errstate(over="ignore", under="ignore"):
                points = np.array([margin + side * scale * r for r in ratios for side in (-1, 1)])
                truth = loss.value(points), loss.derivative(points)
            for m, value, slope in zip(points, *truth, strict=True):
                for n in (1, 8):  # alone, and in a group
                    problem = Problem(matrix, np.ones(8), np.full(8, 1 / n), np.zeros(9), m, loss)
                    seen = problem.sweep(rows, 0, n)
                    np.testing.assert_allclose(seen[0], value, rtol=1e-14, atol=1e-322)
                    np.testing.assert_allclose(seen[1:], slope, rtol=1e-14, atol=1e-322)
