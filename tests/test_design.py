"""The design against plain float64 arithmetic, whatever holds the data."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from marginpursuit.design import MemoryDesign, design_for, merged
from marginpursuit.losses import MarginLoss
from marginpursuit.tasks import Labels, Stretches, Tasks

LOSS = MarginLoss(1.0, 0.7, 0.4)


def dense(dtype, order="C", shape=(203, 7), seed=0):
    values = np.random.default_rng(seed).integers(0, 5, shape)
    if dtype is bool:
        values = values > 2
    return np.asarray(values.astype(dtype), order=order)


def csr(index_type):
    matrix = sparse.csr_matrix(dense(np.float64) * (dense(np.float64, seed=1) > 2))
    matrix.indices, matrix.indptr = (a.astype(index_type) for a in (matrix.indices, matrix.indptr))
    return matrix


MATRICES = {
    **{np.dtype(t).name: dense(t) for t in (float, np.float32, np.float16, np.int8, np.uint8)},
    **{np.dtype(t).name: dense(t) for t in (np.int16, np.int64, bool, np.longdouble)},
    "fortran": dense(float, "F"),
    "strided": dense(float, shape=(406, 14))[::2, ::2],
    "csr32": csr(np.int32),
    "csr64": csr(np.int64),
}


@pytest.fixture(params=MATRICES)
def case(request):
    """A design with its rows as a float64 array, labels of 3 classes, and weights."""
    matrix = MATRICES[request.param]
    rng = np.random.default_rng(3)
    rows = np.asarray(matrix.toarray() if sparse.issparse(matrix) else matrix, dtype=np.float64)
    weights = rng.random(len(rows)) * (rng.random(len(rows)) > 0.1)
    return matrix, rows, Labels(rng.integers(0, 3, len(rows)), 3), weights / weights.sum()


def standard(rows, weights):
    centre = weights @ rows
    return (rows - centre) / np.sqrt(weights @ (rows - centre) ** 2)


def test_scores_of_the_rows_that_parts_choose(case):
    matrix, rows, _, weights = case
    design = design_for(matrix)
    design.standardise(weights, centred=True)
    rng = np.random.default_rng(5)
    coef, intercept = rng.normal(size=(rows.shape[1], 5)), rng.normal(size=5)
    chosen, part = rng.random((3, len(rows))) < 0.3, np.array([2, 0, 0, 2, 0])
    scores, reads = standard(rows, weights) @ coef + intercept, design.n_passes
    found = design.part_scores(coef, intercept, chosen, part)
    assert design.n_passes == reads + 1
    assert [len(some) for some in found] == chosen.sum(axis=1).tolist()
    for k, some in enumerate(found):  # the second has no task
        assert_allclose(some, scores[chosen[k]][:, part == k], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("problems", [[2], [0, 1, 2], [0, 2]])
def test_sweep_and_scores(case, problems):
    matrix, rows, labels, weights = case
    design = design_for(matrix)
    design.standardise(weights, centred=True)
    z = standard(rows, weights)
    rng = np.random.default_rng(4)
    coef, intercept = (
        rng.normal(size=(rows.shape[1], len(problems))),
        rng.normal(size=len(problems)),
    )
    sweep = design.sweep(coef, intercept, Tasks.of(labels, weights, LOSS).take(np.array(problems)))
    scores = z @ coef + intercept
    sign = np.where(labels.codes[:, None] == problems, 1.0, -1.0)
    factors = weights[:, None] * sign * LOSS.derivative(sign * scores)
    assert_allclose(sweep.value, weights @ LOSS.value(sign * scores), rtol=1e-12)
    assert_allclose(sweep.slope, factors.sum(axis=0), rtol=1e-10, atol=1e-14)
    assert_allclose(sweep.gradient, z.T @ factors, rtol=1e-10, atol=1e-13)
    assert_allclose(design.scores(coef, intercept), scores, rtol=1e-11, atol=1e-12)


def test_moments(case):
    matrix, rows, _, weights = case
    z = standard(rows, weights)
    design = design_for(matrix)
    gram = design.standardise(weights, centred=True)
    assert_allclose(gram, (z.T * weights) @ z, rtol=1e-10, atol=1e-12)
    other = np.random.default_rng(5).random(len(rows)) * (weights > 0)
    assert_allclose(design.gram(other), (z.T * other) @ z, rtol=1e-10, atol=1e-10)
    assert_allclose(design.adjoint(other), other @ z, rtol=1e-10, atol=1e-10)
    assert_allclose(
        design.row_products(np.arange(1.0, 8.0)), (z * np.arange(1, 8)) @ z.T, atol=1e-9
    )
    diagonal = design_for(matrix)
    diagonal.standardise_diagonal(weights, centred=True)
    assert_allclose(diagonal.inverse_spread, design.inverse_spread, rtol=1e-10)
    plain = design_for(matrix)
    assert_allclose(plain.mean_square(weights), weights @ np.square(rows).sum(axis=1))


def test_coordinates_are_translated_both_ways(case):
    matrix, rows, _, weights = case
    design = design_for(matrix)
    design.standardise(weights, centred=True)
    linear = np.arange(14.0).reshape(7, 2), np.array([0.5, -1.0])
    coef, intercept = design.to_data(linear)
    assert_allclose(rows @ coef + intercept, design.scores(*linear), rtol=1e-10, atol=1e-11)
    for ours, back in zip(linear, design.from_data((coef, intercept)), strict=True):
        assert_allclose(back, ours, atol=1e-12)


def test_without_centring_the_spread_is_the_root_mean_square():
    rows = MATRICES["float64"]
    weights = np.full(len(rows), 1 / len(rows))
    design = design_for(rows)
    gram = design.standardise(weights, centred=False)
    assert_allclose(design.inverse_spread, 1 / np.sqrt(np.mean(rows**2, axis=0)))
    assert_array_equal(design.centre, 0)
    assert_allclose(np.diagonal(gram), 1)


@pytest.mark.parametrize("constant", [0.0, 1.0, 1e8, 0.1])
@pytest.mark.parametrize("kind", [np.array, sparse.csr_matrix])
def test_constant_columns_take_no_part(constant, kind):
    rows = dense(float)
    rows[:, 3] = constant
    design = design_for(kind(rows))
    weights = np.random.default_rng(0).random(len(rows))
    design.standardise(weights / weights.sum(), centred=True)
    assert_array_equal(np.flatnonzero(design.inverse_spread == 0), [3])
    assert_array_equal(design.to_data((np.ones((7, 1)), np.zeros(1)))[0][3], 0)


def test_an_offset_far_beyond_the_spread():
    rows = np.random.default_rng(0).normal(size=(300, 4))
    weights = np.full(300, 1 / 300)
    near, far = design_for(rows), design_for(rows + 1e8)
    assert_allclose(
        near.standardise(weights, centred=True), far.standardise(weights, centred=True), atol=1e-6
    )


@pytest.mark.parametrize("factor", [1e200, 1e-200, np.inf, np.nan])
def test_what_has_no_square_is_refused(factor):
    rows = dense(float) + 1.0
    rows[:, 2] *= factor
    with np.errstate(all="ignore"), pytest.raises(FloatingPointError):
        design_for(rows).standardise(np.full(len(rows), 1 / len(rows)), centred=True)


def test_threads_change_nothing_and_every_read_is_counted():
    rows = np.random.default_rng(0).normal(size=(200_000, 9))
    labels = Labels(np.arange(len(rows)) % 2, 2)
    weights = np.full(len(rows), 1 / len(rows))
    found = []
    for n_threads in (1, 2, 3, 2):
        with design_for(rows, n_threads=n_threads) as design:
            gram = design.standardise(weights, centred=True)
            sweep = design.sweep(np.ones((9, 1)), np.zeros(1), Tasks.of(labels, weights, LOSS))
            scores = design.scores(np.ones((9, 1)), np.zeros(1))
            assert design.n_passes == 4
        found.append((gram, sweep.value, sweep.gradient, sweep.slope, scores))
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            assert_array_equal(a, b)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
def test_no_wider_copy_of_the_data_is_made(dtype):
    rows = np.random.default_rng(0).integers(0, 255, (40_000, 300)).astype(dtype)
    weights = np.full(len(rows), 1 / len(rows))
    labels = Labels(np.arange(len(rows)) % 2, 2)
    with design_for(rows, n_threads=2) as design:
        tracemalloc.start()
        design.standardise(weights, centred=True)
        design.sweep(np.ones((300, 1)), np.zeros(1), Tasks.of(labels, weights, LOSS))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    vectors, chunks = 3 * 8 * len(rows), 2 * 2 * 8 * 1024 * 300
    assert peak < 0.1 * rows.nbytes + 9 * 8 * 300**2 + vectors + chunks


@pytest.mark.parametrize("n_tasks", [1, 7, 60])
def test_condensed_rows_are_swept_to_the_digits_of_float32(case, n_tasks):
    matrix, rows, labels, weights = case
    design = design_for(matrix)
    design.standardise(weights, centred=True)
    rng = np.random.default_rng(4)
    order = rng.permutation(len(rows))
    condensed = design.condensed(order)
    assert (condensed is design) == sparse.issparse(matrix)
    order = slice(None) if condensed is design else order
    coef, intercept = rng.normal(size=(rows.shape[1], n_tasks)), rng.normal(size=n_tasks)
    positive = np.arange(n_tasks) % 3
    tasks = Tasks(labels.codes, weights[None], positive, 0 * positive, (LOSS,) * n_tasks)
    moved = replace(tasks, codes=labels.codes[order], weights=weights[None, order])
    expected = design.sweep(coef, intercept, tasks)
    ours = condensed.sweep(coef, intercept, moved)
    for name in ("value", "gradient", "slope"):
        assert_allclose(getattr(ours, name), getattr(expected, name), rtol=1e-5, atol=1e-6)
    assert_allclose(condensed.gram(weights[order]), design.gram(weights), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("n_tasks", [7, 60])
def test_stretches_that_a_part_leaves_out_are_not_swept(n_tasks, monkeypatch):
    """Whatever stands there: NaN would be in every sum."""
    rng = np.random.default_rng(6)
    rows, codes = rng.normal(size=(1000, 5)), rng.integers(0, 3, 1000)
    weights = np.tile(rng.random(1000), (4, 1))
    part = np.arange(n_tasks) % 4
    for k in range(4):
        weights[k, k::7] = 0.0
    monkeypatch.setattr("marginpursuit.tasks._SHORT_STRETCH", 10)
    order, stretches = Stretches.of(weights)
    assert_array_equal(np.sort(order), np.arange(1000))
    assert len(stretches.edges) == 6
    for first, last, busy in zip(
        stretches.edges[:-1], stretches.edges[1:], stretches.busy.T, strict=True
    ):
        assert_array_equal((weights[:, order[first:last]] > 0).T, np.tile(busy, (last - first, 1)))
    coef, intercept = rng.normal(size=(5, n_tasks)), rng.normal(size=n_tasks)
    tasks = Tasks(codes, weights, np.arange(n_tasks) % 3, part, (LOSS,) * n_tasks)
    expected = design_for(rows).sweep(coef, intercept, tasks)
    only = np.flatnonzero(part == 2)
    rows[2::7] = np.nan
    ordered = np.ascontiguousarray(weights[:, order])
    cut = replace(tasks, codes=codes[order], weights=ordered, stretches=stretches)
    for design in (design_for(rows[order]), design_for(rows).condensed(order)):
        for which in (np.arange(n_tasks), only):
            ours = design.sweep(coef[:, which], intercept[which], cut.take(which))
            known = part[which] == 2  # the others have these rows
            for name in ("value", "gradient", "slope"):
                mine, right = getattr(ours, name), getattr(expected, name)[..., which]
                assert_allclose(mine[..., known], right[..., known], rtol=1e-5, atol=1e-4)
                assert np.all(np.isnan(mine[..., ~known]))


def test_threads_may_ask_for_threads():
    with design_for(np.ones((10, 2)), n_threads=2) as design:
        asked = []

        def inner(thread, n_threads):
            asked.append((thread, n_threads))

        design.in_threads(lambda thread, n_threads: design.in_threads(inner, 2), 2)
        assert asked == [(0, 1), (0, 1)]


def test_rows_in_too_many_stretches_stay_where_they_are():
    weights = (np.random.default_rng(7).random((9, 500)) > 0.5).astype(float)
    order, stretches = Stretches.of(weights)
    assert_array_equal(order, np.arange(500))
    assert_array_equal(stretches.edges, [0, 500])
    assert stretches.busy.all()


def test_threads_change_nothing_of_many_tasks():
    rows = sparse.random(500, 90, 0.1, format="csr", random_state=0)
    labels, weights = Labels(np.arange(500) % 21, 21), np.full(500, 1 / 500)
    coef = np.random.default_rng(0).normal(size=(90, 21))
    found = []
    for n_threads in (1, 2, 3):
        with design_for(rows, n_threads=n_threads) as design:
            design.standardise_diagonal(weights, centred=True)
            sweep = design.sweep(coef, np.zeros(21), Tasks.of(labels, weights, LOSS))
        found.append(sweep)
    for other in found[1:]:
        assert_array_equal(found[0].value, other.value)
        assert_array_equal(found[0].gradient, other.gradient)
        assert_array_equal(found[0].slope, other.slope)


def lone_columns(dtype=float):
    """Rows of which some have several columns alone; columns without any value; a stored zero."""
    rng = np.random.default_rng(0)
    rows = rng.integers(1, 9, (40, 60)) * (rng.random((40, 60)) < 0.05)
    rows[:, :5] += rng.integers(0, 3, (40, 5))
    rows[39, 5:], rows[:, 59] = 0, 0
    rows[38:, 59] = 4
    matrix = sparse.csr_matrix(rows.astype(dtype))
    matrix.data[-1] = 0  # so that row 38 has the last column alone
    return matrix


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.uint8, bool])
def test_lone_columns_are_merged(dtype):
    matrix = lone_columns(dtype)
    counts = np.count_nonzero(matrix.toarray(), axis=0)
    alone = matrix.toarray()[:, counts == 1].astype(bool)
    whole = design_for(matrix)
    fewer = merged(whole)
    assert np.sum(counts == 1) > np.sum(alone.any(axis=1)) > 3  # or there is nothing to merge
    assert fewer.n_columns == np.sum(counts > 1) + np.sum(alone.any(axis=1))
    # Rotated columns have the same inner products of rows, and the same total variance.
    rows, original = fewer.matrix.toarray(), matrix.toarray().astype(float)
    assert_allclose(rows @ rows.T, original @ original.T, rtol=1e-13, atol=1e-12)
    assert_allclose(rows.var(axis=0).sum(), original.var(axis=0).sum(), rtol=1e-12)
    linear = np.random.default_rng(1).normal(size=(fewer.n_columns, 3)), np.arange(3.0)
    coef, intercept = fewer.expanded(linear)
    assert_allclose(original @ coef, rows @ linear[0], rtol=1e-12, atol=1e-12)
    assert_allclose(np.sum(coef**2, axis=0), np.sum(linear[0] ** 2, axis=0), rtol=1e-12)
    assert_array_equal(intercept, linear[1])
    assert_allclose(fewer.contracted((coef, intercept))[0], linear[0], rtol=1e-12, atol=1e-13)


def test_reads_of_merged_columns_are_counted_once():
    matrix = lone_columns()
    whole = design_for(matrix)
    weights = np.full(40, 1 / 40)
    whole.standardise_diagonal(weights, centred=True)
    before, fewer = whole.n_passes, merged(whole)
    assert fewer.n_passes == before
    fewer.scores(np.ones((fewer.n_columns, 2)), np.zeros(2))
    assert whole.n_passes == fewer.n_passes == before + 1


def test_where_merging_is_not_worth_its_while():
    filled = sparse.csr_matrix(np.ones((4, 6)))
    assert merged(design_for(filled)) is None
    assert merged(design_for(sparse.csr_matrix((4, 6)))) is None
    for factor in (1e120, 1e-120):  # squares would leave the floats
        assert merged(design_for(lone_columns() * factor)) is None


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.uint8])
@pytest.mark.parametrize("n_factors", [0, 1, 99, 1700, 5000])
def test_adjoint_of_few_rows(n_factors, dtype, n_threads):
    """Whether rows without a factor are read or not makes no difference."""
    rng = np.random.default_rng(n_factors)
    matrix, factors = rng.integers(0, 9, size=(20_000, 7)).astype(dtype), np.zeros(20_000)
    factors[rng.choice(20_000, n_factors, replace=False)] = rng.normal(size=n_factors)
    with MemoryDesign(matrix, n_threads=n_threads) as design:
        design.standardise_diagonal(np.full(20_000, 1 / 20_000), centred=True)
        expected = factors @ ((matrix - design.centre) * design.inverse_spread)
        assert_allclose(design.adjoint(factors), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.uint8])
def test_few_rows_are_copied_right_whatever_was_asked_before(dtype, order):
    matrix = dense(dtype, order, (9000, 40), seed=2)
    rng, weights = np.random.default_rng(3), np.full(9000, 1 / 9000)
    for n_threads in (1, 2):
        with MemoryDesign(matrix, n_threads=n_threads) as design:
            design.standardise_diagonal(weights, centred=True)
            standard = (matrix - design.centre) * design.inverse_spread
            for share in (0.0, 0.02, 0.02, 0.09, 0.001, 0.3):
                factors = np.where(rng.random(9000) < share, rng.random(9000), 0.0)
                wanted = np.flatnonzero(factors)
                for _ in range(2):
                    expected = standard.T @ (factors[:, np.newaxis] * standard)
                    assert_allclose(design.gram(factors), expected, atol=1e-9)
                    assert_allclose(design.adjoint(factors), factors @ standard, atol=1e-9)
                    assert_array_equal(design.rows_at(wanted), matrix[wanted])
                    some = design.few(wanted).scores(np.eye(40), np.zeros(40))
                    assert_allclose(some, standard[wanted], atol=1e-12)
                    factors[wanted[::3]] *= 0.5
            many = np.sort(rng.choice(9000, 8000, replace=False))  # enough for all threads
            assert_array_equal(design.rows_at(many), matrix[many])
