"""The design against plain float64 arithmetic, whatever holds the data."""

import time
import tracemalloc
from dataclasses import replace
from threading import Semaphore, get_ident

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from marginpursuit._threads import Threads
from marginpursuit.design import MemoryDesign, Standardisation, design_for, merge_columns
from marginpursuit.design._matrix import ReadPolicy
from marginpursuit.losses import MarginLoss
from marginpursuit.tasks import Labels, RowRanges, Tasks

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


def test_scores_of_the_rows_that_folds_hold_out(case):
    matrix, rows, *_ = case
    design = design_for(matrix)
    rng = np.random.default_rng(5)
    coef, intercept = rng.normal(size=(rows.shape[1], 5)), rng.normal(size=5)
    chosen, fold = rng.random((3, len(rows))) < 0.3, np.array([2, 0, 0, 2, 0])
    scores = rows @ coef + intercept
    found = design.held_out_scores(coef, intercept, chosen, fold)
    assert design.n_passes == 1
    assert [len(some) for some in found] == chosen.sum(axis=1).tolist()
    for k, some in enumerate(found):  # the second has no task
        assert_allclose(some, scores[chosen[k]][:, fold == k], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("problems", [[2], [0, 1, 2], [0, 2]])
def test_sweep_and_scores(case, problems):
    matrix, rows, labels, weights = case
    design = design_for(matrix)
    standardisation = design.standardisation(weights, centred=True)
    z = standard(rows, weights)
    rng = np.random.default_rng(4)
    coef, intercept = (
        rng.normal(size=(rows.shape[1], len(problems))),
        rng.normal(size=len(problems)),
    )
    tasks = Tasks.of(labels, weights, LOSS).take(np.array(problems))
    sweep = design.sweep(coef, intercept, tasks, standardisation)
    scores = z @ coef + intercept
    sign = np.where(labels.codes[:, None] == problems, 1.0, -1.0)
    factors = weights[:, None] * sign * LOSS.derivative(sign * scores)
    assert_allclose(sweep.value, weights @ LOSS.value(sign * scores), rtol=1e-12)
    assert_allclose(sweep.slope, factors.sum(axis=0), rtol=1e-10, atol=1e-14)
    assert_allclose(sweep.gradient, z.T @ factors, rtol=1e-10, atol=1e-13)
    found = design.scores(coef, intercept, standardisation)
    assert_allclose(found, scores, rtol=1e-11, atol=1e-12)
    assert_allclose(design.scores(coef, intercept), rows @ coef + intercept, rtol=1e-11, atol=1e-11)


def test_moments(case):
    matrix, rows, _, weights = case
    z = standard(rows, weights)
    design = design_for(matrix)
    standardisation, gram = design.standardisation_and_gram(weights, centred=True)
    assert_allclose(gram, (z.T * weights) @ z, rtol=1e-10, atol=1e-12)
    other = np.random.default_rng(5).random(len(rows)) * (weights > 0)
    assert_allclose(design.gram(other, standardisation), (z.T * other) @ z, rtol=1e-10, atol=1e-10)
    assert_allclose(design.adjoint(other, standardisation), other @ z, rtol=1e-10, atol=1e-10)
    products = design.row_products(np.arange(1.0, 8.0), standardisation)
    assert_allclose(products, (z * np.arange(1, 8)) @ z.T, atol=1e-9)
    diagonal = design.standardisation(weights, centred=True)
    assert_allclose(diagonal.inverse_deviation, standardisation.inverse_deviation, rtol=1e-10)
    norms = np.linalg.norm(z, axis=1)
    assert_allclose(design.row_norms(standardisation), norms, rtol=1e-9, atol=1e-9)
    assert_allclose(design.mean_square(weights), weights @ np.square(rows).sum(axis=1))


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_rows_without_weight_do_not_count_for_an_underflow(kind):
    weights = np.array([0.5, 0.5, 0.0])
    assert design_for(kind([[0.0], [0.0], [3.0]])).mean_square(weights) == 0.0
    with pytest.raises(FloatingPointError, match="no finite mean square"):
        design_for(kind([[1e-200], [0.0], [3.0]])).mean_square(weights)


def test_models_are_translated_both_ways(case):
    matrix, rows, _, weights = case
    design = design_for(matrix)
    standardisation = design.standardisation(weights, centred=True)
    linear = np.arange(14.0).reshape(7, 2), np.array([0.5, -1.0])
    coef, intercept = standardisation.to_data(linear)
    scores = design.scores(*linear, standardisation)
    assert_allclose(rows @ coef + intercept, scores, rtol=1e-10, atol=1e-11)
    for ours, back in zip(linear, standardisation.from_data((coef, intercept)), strict=True):
        assert_allclose(back, ours, atol=1e-12)


def test_without_centring_the_deviation_is_the_root_mean_square():
    rows = MATRICES["float64"]
    weights = np.full(len(rows), 1 / len(rows))
    design = design_for(rows)
    standardisation, gram = design.standardisation_and_gram(weights, centred=False)
    assert_allclose(standardisation.inverse_deviation, 1 / np.sqrt(np.mean(rows**2, axis=0)))
    assert_array_equal(standardisation.mean, 0)
    assert_allclose(np.diagonal(gram), 1)


@pytest.mark.parametrize("constant", [0.0, 1.0, 1e8, 0.1])
@pytest.mark.parametrize("kind", [np.array, sparse.csr_matrix])
def test_constant_columns_have_no_coefficient(constant, kind):
    rows = dense(float)
    rows[:, 3] = constant
    design = design_for(kind(rows))
    weights = np.random.default_rng(0).random(len(rows))
    standardisation = design.standardisation(weights / weights.sum(), centred=True)
    assert_array_equal(np.flatnonzero(~standardisation.varies), [3])
    assert_array_equal(standardisation.deviation[3], 0)
    assert_array_equal(standardisation.to_data((np.ones((7, 1)), np.zeros(1)))[0][3], 0)


def test_a_mean_far_beyond_the_deviation():
    rows = np.random.default_rng(0).normal(size=(300, 4))
    weights = np.full(300, 1 / 300)
    near, far = (
        design_for(x).standardisation_and_gram(weights, centred=True)[1] for x in (rows, rows + 1e8)
    )
    assert_allclose(near, far, atol=1e-6)


@pytest.mark.parametrize("factor", [1e200, 1e-200, np.inf, np.nan])
def test_what_has_no_square_is_refused(factor):
    rows = dense(float) + 1.0
    rows[:, 2] *= factor
    with np.errstate(all="ignore"), pytest.raises(FloatingPointError):
        design_for(rows).standardisation(np.full(len(rows), 1 / len(rows)), centred=True)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("value", [0.0, 1e6, -1e9])
def test_moments_keep_their_digits_where_few_rows_are_far_from_the_mean(order, value):
    """Sums are about the medians of 15 rows, which have no part in the other rows here."""
    rng = np.random.default_rng(5)
    rows, weights = rng.normal(size=(3001, 9)) * 0.1 + 1e3, rng.random(3001)
    few = np.linspace(0, 3000, 15).astype(int)
    rows[few, ::2], weights[few] = value, 0.0
    rows[:, 4], weights = 1 / 3, weights / weights.sum()
    design = design_for(np.asarray(rows, order=order))
    found = design.standardisation(weights, centred=True)
    exact, own = rows.astype(np.longdouble), weights.astype(np.longdouble)
    mean = own @ exact
    deviation = np.sqrt(own @ (exact - mean) ** 2)
    assert_allclose(found.mean, mean.astype(float), rtol=1e-14)
    assert_array_equal(found.varies, np.arange(9) != 4)
    assert_allclose(found.deviation[found.varies], deviation[found.varies].astype(float), rtol=1e-9)


def test_threads_change_nothing_and_every_pass_is_counted():
    rows = np.random.default_rng(0).normal(size=(200_000, 9))
    labels = Labels(np.arange(len(rows)) % 2, 2)
    weights = np.full(len(rows), 1 / len(rows))
    found = []
    for n_threads in (1, 2, 3, 2):
        with Threads(n_threads) as threads:
            design = design_for(rows, threads)
            z, gram = design.standardisation_and_gram(weights, centred=True)
            linear, tasks = (np.ones((9, 1)), np.zeros(1)), Tasks.of(labels, weights, LOSS)
            sweep = design.sweep(*linear, tasks, z)
            scores = design.scores(*linear, z)
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
    with Threads(2) as threads:
        design = design_for(rows, threads)
        tracemalloc.start()
        z, _ = design.standardisation_and_gram(weights, centred=True)
        design.sweep(np.ones((300, 1)), np.zeros(1), Tasks.of(labels, weights, LOSS), z)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    vectors, chunks = 3 * 8 * len(rows), 2 * 2 * 8 * 1024 * 300
    assert peak < 0.1 * rows.nbytes + 9 * 8 * 300**2 + vectors + chunks


@pytest.mark.parametrize("n_tasks", [1, 7, 60])
def test_a_float32_copy_is_swept_to_the_digits_of_float32(case, n_tasks):
    matrix, rows, labels, weights = case
    design = design_for(matrix)
    z = design.standardisation(weights, centred=True)
    rng = np.random.default_rng(4)
    order = rng.permutation(len(rows))
    copy = design.float32_copy(order, z)
    assert (copy is None) == sparse.issparse(matrix)
    if copy is None:
        return
    identity = Standardisation.identity(rows.shape[1])
    coef, intercept = rng.normal(size=(rows.shape[1], n_tasks)), rng.normal(size=n_tasks)
    positive = np.arange(n_tasks) % 3
    tasks = Tasks(labels.codes, weights[None], positive, 0 * positive, (LOSS,) * n_tasks)
    moved = replace(tasks, codes=labels.codes[order], weights=weights[None, order])
    expected = design.sweep(coef, intercept, tasks, z)
    ours = copy.sweep(coef, intercept, moved, identity)
    for name in ("value", "gradient", "slope"):
        assert_allclose(getattr(ours, name), getattr(expected, name), rtol=1e-5, atol=1e-6)
    ours, expected = copy.gram(weights[order], identity), design.gram(weights, z)
    assert_allclose(ours, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("n_tasks", [7, 60])
def test_ranges_that_a_fold_holds_out_are_not_swept(n_tasks):
    """NaN in these ranges does not reach the sums of the fold."""
    rng = np.random.default_rng(6)
    rows, codes = rng.normal(size=(1000, 5)), rng.integers(0, 3, 1000)
    weights = np.tile(rng.random(1000), (4, 1))
    fold = np.arange(n_tasks) % 4
    for k in range(4):
        weights[k, k::7] = 0.0
    order, ranges = RowRanges.of(weights, min_mean_rows=10)
    assert_array_equal(np.sort(order), np.arange(1000))
    assert len(ranges.edges) == 6
    for first, last, used in zip(
        ranges.edges[:-1], ranges.edges[1:], ranges.is_used.T, strict=True
    ):
        assert_array_equal((weights[:, order[first:last]] > 0).T, np.tile(used, (last - first, 1)))
    coef, intercept = rng.normal(size=(5, n_tasks)), rng.normal(size=n_tasks)
    tasks = Tasks(codes, weights, np.arange(n_tasks) % 3, fold, (LOSS,) * n_tasks)
    identity = Standardisation.identity(5)
    expected = design_for(rows).sweep(coef, intercept, tasks, identity)
    only = np.flatnonzero(fold == 2)
    rows[2::7] = np.nan
    ordered = np.ascontiguousarray(weights[:, order])
    cut = replace(tasks, codes=codes[order], weights=ordered, ranges=ranges)
    for design in (design_for(rows[order]), design_for(rows).float32_copy(order, identity)):
        for which in (np.arange(n_tasks), only):
            ours = design.sweep(coef[:, which], intercept[which], cut.take(which), identity)
            known = fold[which] == 2  # the others have these rows
            for name in ("value", "gradient", "slope"):
                mine, right = getattr(ours, name), getattr(expected, name)[..., which]
                assert_allclose(mine[..., known], right[..., known], rtol=1e-5, atol=1e-4)
                assert np.all(np.isnan(mine[..., ~known]))


def test_threads_may_ask_for_threads():
    """A worker does the work itself: waiting for its own pool it could wait for ever."""
    with Threads(2) as threads:
        outer = threads.map(lambda k: list(threads.map(lambda j: 10 * k + j, range(3))), range(4))
        assert list(outer) == [[10 * k + j for j in range(3)] for k in range(4)]


def test_each_thread_takes_the_next_item_when_it_is_free():
    """One thread is in the first item until the other has done the rest, in the same thread."""

    def run(k):
        assert set(threads.map(lambda _: get_ident(), range(2))) == {get_ident()}
        if k > 0:
            is_done.release()
        elif not all(is_done.acquire(timeout=10) for _ in range(4)):
            raise TimeoutError
        return get_ident()

    is_done = Semaphore(0)
    with Threads(2) as threads:
        for _ in range(2):  # what one map sets for its items is reset for the next
            first, *others = threads.map(run, range(5))
            assert len({first, get_ident(), *others}) == len({first, *others}) == 2
            assert first not in others


def test_an_error_ends_the_items_of_all_threads():
    def run(k):
        if k == 1:
            raise ZeroDivisionError
        if k == 0:
            time.sleep(0.05)
        done.append(k)

    done = []
    with Threads(2) as threads, pytest.raises(ZeroDivisionError):
        threads.map(run, range(1000))
    assert len(done) < 1000


@pytest.mark.parametrize(("n", "is_elsewhere"), [(1, False), (2, True)])
def test_a_function_is_started_in_a_worker_where_there_is_one(n, is_elsewhere):
    with Threads(n) as threads:
        assert (threads.start(get_ident)() != get_ident()) == is_elsewhere
        nested = threads.map(lambda k: threads.start(lambda: 2 * k)(), range(3))
        assert list(nested) == [0, 2, 4]


def test_errors_in_threads_reach_the_caller():
    with Threads(2) as threads, pytest.raises(ZeroDivisionError):
        list(threads.map(lambda k: 1 / k, [1, 0, 2]))
    with Threads(2) as threads, pytest.raises(ZeroDivisionError):
        list(threads.map(lambda k: 1 / k, [0, 1]))  # in the calling thread
    with Threads(2) as threads:
        assert list(threads.map(abs, [-1, 2])) == [1, 2]
    with Threads(2) as threads, pytest.raises(ZeroDivisionError):
        threads.start(lambda: 1 / 0)()


def test_rows_in_too_many_ranges_keep_their_order():
    weights = (np.random.default_rng(7).random((9, 500)) > 0.5).astype(float)
    order, ranges = RowRanges.of(weights)
    assert_array_equal(order, np.arange(500))
    assert_array_equal(ranges.edges, [0, 500])
    assert ranges.is_used.all()


def test_threads_change_nothing_of_many_tasks():
    rows = sparse.random(500, 90, 0.1, format="csr", random_state=0)
    labels, weights = Labels(np.arange(500) % 21, 21), np.full(500, 1 / 500)
    coef = np.random.default_rng(0).normal(size=(90, 21))
    found = []
    for n_threads in (1, 2, 3):
        with Threads(n_threads) as threads:
            design = design_for(rows, threads)
            z = design.standardisation(weights, centred=True)
            sweep = design.sweep(coef, np.zeros(21), Tasks.of(labels, weights, LOSS), z)
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
    merged, rotation = merge_columns(matrix, ReadPolicy())
    assert np.sum(counts == 1) > np.sum(alone.any(axis=1)) > 3  # or there is nothing to merge
    n_merged = merged.shape[1]
    assert n_merged == np.sum(counts > 1) + np.sum(alone.any(axis=1))
    # Rotated columns have the same inner products of rows, and the same total variance.
    rows, original = merged.toarray(), matrix.toarray().astype(float)
    assert_allclose(rows @ rows.T, original @ original.T, rtol=1e-13, atol=1e-12)
    assert_allclose(rows.var(axis=0).sum(), original.var(axis=0).sum(), rtol=1e-12)
    linear = np.random.default_rng(1).normal(size=(n_merged, 3)), np.arange(3.0)
    coef, intercept = rotation.to_data(linear)
    assert_allclose(original @ coef, rows @ linear[0], rtol=1e-12, atol=1e-12)
    assert_allclose(np.sum(coef**2, axis=0), np.sum(linear[0] ** 2, axis=0), rtol=1e-12)
    assert_array_equal(intercept, linear[1])
    assert_allclose(rotation.from_data((coef, intercept))[0], linear[0], rtol=1e-12, atol=1e-13)


def test_merged_coefficients_are_translated_without_a_copy():
    n_columns, n_tasks = 20_000, 10
    matrix = sparse.random(500, n_columns, 0.003, "csr", random_state=0)
    rows, rotation = merge_columns(matrix, ReadPolicy())
    merged = np.ones((n_tasks, rows.shape[1])).T  # contiguous for each task
    tracemalloc.start()
    try:
        coef, _ = rotation.to_data((merged, np.zeros(n_tasks)))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert merged.nbytes > 0.3 * coef.nbytes
    assert peak < 1.25 * coef.nbytes


def test_passes_over_merged_columns_are_counted_once():
    matrix = lone_columns()
    whole = design_for(matrix)
    whole.standardisation(np.full(40, 1 / 40), centred=True)
    before, fewer = whole.n_passes, whole.with_matrix(merge_columns(matrix, ReadPolicy())[0])
    assert fewer.n_passes == before
    fewer.scores(np.ones((fewer.n_columns, 2)), np.zeros(2))
    assert whole.n_passes == fewer.n_passes == before + 1


def test_where_columns_are_not_merged():
    filled = sparse.csr_matrix(np.ones((4, 6)))
    assert merge_columns(filled, ReadPolicy()) is None
    assert merge_columns(sparse.csr_matrix((4, 6)), ReadPolicy()) is None
    for factor in (1e120, 1e-120):  # squares would leave the floats
        assert merge_columns(lone_columns() * factor, ReadPolicy()) is None


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.uint8])
@pytest.mark.parametrize("n_factors", [0, 1, 99, 1700, 5000])
def test_adjoint_of_few_rows(n_factors, dtype, n_threads):
    """Whether rows without a factor are read or not makes no difference."""
    rng = np.random.default_rng(n_factors)
    matrix, factors = rng.integers(0, 9, size=(20_000, 7)).astype(dtype), np.zeros(20_000)
    factors[rng.choice(20_000, n_factors, replace=False)] = rng.normal(size=n_factors)
    with Threads(n_threads) as threads:
        design = MemoryDesign(matrix, threads)
        z = design.standardisation(np.full(20_000, 1 / 20_000), centred=True)
        expected = factors @ ((matrix - z.mean) * z.inverse_deviation)
        assert_allclose(design.adjoint(factors, z), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.uint8])
def test_few_rows_are_copied_right_whatever_was_asked_before(dtype, order):
    matrix = dense(dtype, order, (9000, 40), seed=2)
    rng, weights = np.random.default_rng(3), np.full(9000, 1 / 9000)
    for n_threads in (1, 2):
        with Threads(n_threads) as threads:
            design = MemoryDesign(matrix, threads)
            z = design.standardisation(weights, centred=True)
            standard = (matrix - z.mean) * z.inverse_deviation
            for fraction in (0.0, 0.02, 0.02, 0.09, 0.001, 0.3):
                factors = np.where(rng.random(9000) < fraction, rng.random(9000), 0.0)
                wanted = np.flatnonzero(factors)
                for _ in range(2):
                    expected = standard.T @ (factors[:, np.newaxis] * standard)
                    assert_allclose(design.gram(factors, z), expected, atol=1e-9)
                    assert_allclose(design.adjoint(factors, z), factors @ standard, atol=1e-9)
                    assert_array_equal(design.subset(wanted).matrix, matrix[wanted])
                    some = design.cached_subset(wanted).scores(np.eye(40), np.zeros(40), z)
                    assert_allclose(some, standard[wanted], atol=1e-12)
                    factors[wanted[::3]] *= 0.5
            many = np.sort(rng.choice(9000, 8000, replace=False))  # enough for all threads
            assert_array_equal(design.subset(many).matrix, matrix[many])
