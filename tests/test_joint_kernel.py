"""The compiled kernel of the joint loss against `JointLoss`, at every SIMD level."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from marginpursuit.losses import RHOS, JointLoss, MarginLoss

_compiled = pytest.importorskip("marginpursuit._kernels._compiled")

N_CLASSES = 5


def case(n_rows, size=2.0):
    rng = np.random.default_rng(n_rows)
    scores = size * rng.normal(size=(N_CLASSES, n_rows))
    codes = rng.integers(N_CLASSES, size=n_rows).astype(np.intp)
    return scores, codes, rng.random(n_rows), rng.normal(size=N_CLASSES)


def call(scores, codes, weights, intercept, loss=None, temperature=0.3, first=0, **options):
    loss = MarginLoss(1.0, 0.8, 0.0) if loss is None else loss
    parameters, slope = np.array([loss.kernel_parameters]), np.ones(len(intercept))
    value = _compiled.joint_losses(
        first, parameters, temperature, codes, weights, intercept, scores, slope, **options
    )
    return value, slope - 1.0


@pytest.mark.parametrize("level", _compiled.LEVELS)
@pytest.mark.parametrize("rho", RHOS)
@pytest.mark.parametrize("n_rows", [1, 7, 63, 64, 65, 200])
@pytest.mark.parametrize("size", [0.5, 1e3])
def test_value_and_derivatives(level, rho, n_rows, size):
    scores, codes, weights, intercept = case(n_rows, size)
    joint = JointLoss(MarginLoss(1.0, 0.8, 0.0, rho), 0.2)
    values, expected = joint.value_and_gradient(scores.T + intercept, codes, weights)
    value, slope = call(
        *(scores, codes, weights, intercept, joint.loss, joint.temperature), level=level
    )
    largest = np.abs(expected).max() + 1.0
    assert_allclose(scores, expected.T, rtol=1e-12, atol=1e-13 * largest)
    assert_allclose(value, values.sum(), rtol=1e-12)
    assert_allclose(slope, expected.sum(axis=0), rtol=1e-10, atol=1e-11 * largest)


@pytest.mark.parametrize("level", _compiled.LEVELS)
@pytest.mark.parametrize("temperature", [3e-3, 0.03, 0.3])
@pytest.mark.parametrize("n_rows", [1, 45, 70])
def test_padding_of_the_last_block_has_no_effect(level, temperature, n_rows):
    """The powers of its zeros are one, in every class: none overflows to NaN."""
    scores, codes, weights, intercept = case(n_rows)
    scores[:], intercept[:] = 0.0, 0.0
    joint = JointLoss(MarginLoss(temperature / 0.3, temperature, 0.0), temperature)
    _, expected = joint.value_and_gradient(scores.T, codes, weights)
    _, slope = call(
        *(scores, codes, weights, intercept, joint.loss, joint.temperature), level=level
    )
    assert_allclose(slope, expected.sum(axis=0), rtol=1e-10, atol=1e-12 * temperature)


def test_rows_in_the_middle_of_the_data():
    scores, codes, weights, intercept = case(100)
    whole = scores.copy()
    call(whole, codes, weights, intercept)
    some = scores[:, 30:70].copy()
    call(some, codes, weights, intercept, first=30)
    assert_allclose(some, whole[:, 30:70], rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"codes": np.full(100, N_CLASSES, dtype=np.intp)}, IndexError),
        ({"codes": np.full(100, -1, dtype=np.intp)}, IndexError),
        ({"first": 1}, IndexError),
        ({"weights": np.ones(99)}, ValueError),
        ({"intercept": np.ones(4)}, ValueError),
        ({"temperature": 0.0}, ValueError),
        ({"temperature": np.nan}, ValueError),
    ],
)
def test_arguments_are_checked(change, error):
    names = ("scores", "codes", "weights", "intercept")
    arguments = dict(zip(names, case(100), strict=True)) | change
    with pytest.raises(error):
        call(**arguments)


class TestTiles:
    """Sweeps of rows in float32, with the classes of a joint loss."""

    def arguments(self, n, d, n_classes):
        rng = np.random.default_rng(n + d)
        rows = np.zeros((n, -(-d // 16) * 16), dtype=np.float32)
        rows[:, :d] = rng.normal(size=(n, d))
        coef = np.zeros((-(-n_classes // 4) * 4, rows.shape[1]), dtype=np.float32)
        coef[:n_classes, :d] = rng.normal(size=(n_classes, d)) / np.sqrt(d)
        return {
            "rows": rows,
            "parameters": np.array([MarginLoss(1.0, 0.8, 0.0).kernel_parameters], float),
            "temperature": 0.3,
            "codes": rng.integers(0, n_classes, n).astype(np.intp),
            "weights": rng.random(n) * (rng.random(n) > 0.2) / n,
            "coef": coef,
            "intercept": 0.1 * rng.normal(size=n_classes),
            "gradient": rng.normal(size=(n_classes, rows.shape[1])),
            "slope": rng.normal(size=n_classes),
        }

    @pytest.mark.parametrize("level", _compiled.LEVELS)
    @pytest.mark.parametrize(("n", "d"), [(1, 1), (67, 54), (300, 129)])
    @pytest.mark.parametrize("n_classes", [2, 5, 48])
    def test_a_sweep_is_that_of_the_loss(self, level, n_classes, n, d):
        given = self.arguments(n, d, n_classes)
        seen = {name: np.copy(x) for name, x in given.items()} | {"temperature": 0.3}
        first, last = n // 5, n - n // 7
        value = _compiled.sweep_joint_tiles(first=first, last=last, **seen, level=level)
        span, joint = slice(first, last), JointLoss(MarginLoss(1.0, 0.8, 0.0), 0.3)
        rows = given["rows"][span].astype(np.float64)
        scores = rows @ given["coef"][:n_classes].T + given["intercept"]
        values, slopes = joint.value_and_gradient(
            scores, given["codes"][span], given["weights"][span]
        )
        assert_allclose(value, values.sum(), rtol=1e-6)
        assert_allclose(seen["slope"], given["slope"] + slopes.sum(axis=0), atol=1e-6)
        assert_allclose(seen["gradient"], given["gradient"] + slopes.T @ rows, rtol=0, atol=1e-6)

    @pytest.mark.parametrize(
        ("name", "wrong", "error"),
        [
            ("rows", np.ones((10, 17), np.float32), ValueError),
            ("parameters", np.ones((1, 3)), ValueError),
            ("temperature", 0.0, ValueError),
            ("codes", np.full(10, 7), IndexError),
            ("codes", np.full(10, -1), IndexError),
            ("codes", np.zeros(9, int), ValueError),
            ("weights", np.ones(9), ValueError),
            ("coef", np.ones((7, 16), np.float32), ValueError),
            ("coef", np.ones((8, 32), np.float32), ValueError),
            ("gradient", np.ones((8, 16)), ValueError),
            ("gradient", np.ones((7, 9)), ValueError),
            ("slope", np.zeros(6), ValueError),
        ],
    )
    def test_nothing_is_read_outside(self, name, wrong, error):
        given = self.arguments(10, 9, 7)
        with pytest.raises(error):
            _compiled.sweep_joint_tiles(first=0, last=10, **given | {name: wrong})
        for first, last in ((-1, 5), (0, 11), (6, 5)):
            with pytest.raises(IndexError):
                _compiled.sweep_joint_tiles(first=first, last=last, **given)
        with pytest.raises(ValueError, match="at most 48 classes; got 49"):
            _compiled.sweep_joint_tiles(first=0, last=10, **self.arguments(10, 9, 49))


class TestClassTiles:
    """Sweeps of rows in float32, with any number of classes of a joint loss."""

    def arguments(self, n, d, n_classes, size=1.0):
        rng = np.random.default_rng(n + d)
        rows = np.zeros((n, -(-d // 16) * 16), dtype=np.float32)
        rows[:, :d] = rng.normal(size=(n, d))
        coef = np.zeros((-(-n_classes // 4) * 4, rows.shape[1]), dtype=np.float32)
        coef[:n_classes, :d] = size * rng.normal(size=(n_classes, d)) / np.sqrt(d)
        width = (d + 16) // 16 * 16
        return {
            "rows": rows,
            "n_columns": d,
            "parameters": np.array([MarginLoss(1.0, 0.8, 0.0).kernel_parameters], float),
            "temperature": 0.3,
            "codes": rng.integers(0, n_classes, n).astype(np.intp),
            "weights": rng.random(n) * (rng.random(n) > 0.2) / n,
            "coef": coef,
            "intercept": 0.1 * rng.normal(size=n_classes),
            "gradient": rng.normal(size=(n_classes, width)),
            "work": np.full(_compiled.class_tiles_work(n_classes, width), np.nan, np.float32),
        }

    @pytest.mark.parametrize("level", _compiled.LEVELS)
    @pytest.mark.parametrize(("n", "d"), [(1, 1), (67, 15), (67, 16), (300, 54)])
    @pytest.mark.parametrize(("n_classes", "size"), [(2, 1.0), (5, 9.0), (49, 1.0), (110, 40.0)])
    def test_a_sweep_is_that_of_the_loss(self, level, n_classes, size, n, d):
        given = self.arguments(n, d, n_classes, size)
        before = given["gradient"].copy()
        span, joint = slice(n // 5, n - n // 7), JointLoss(MarginLoss(1.0, 0.8, 0.0), 0.3)
        value = _compiled.sweep_class_tiles(first=span.start, last=span.stop, **given, level=level)
        rows = given["rows"][span, :d].astype(np.float64)
        scores = rows @ given["coef"][:n_classes, :d].T.astype(np.float64) + given["intercept"]
        values, slopes = joint.value_and_gradient(
            scores, given["codes"][span], given["weights"][span]
        )
        found, tolerance = given["gradient"] - before, 1e-6 * size
        assert_allclose(value, values.sum(), rtol=1e-6 * size)
        assert_allclose(found[:, :d], slopes.T @ rows, rtol=0, atol=tolerance)
        assert_allclose(found[:, d], slopes.sum(axis=0), rtol=0, atol=tolerance)
        assert_allclose(found[:, d + 1 :], 0.0, atol=1e-12)

    def test_rows_beyond_the_level_leave_the_gradient_as_it_is(self):
        given = self.arguments(100, 3, 60)
        given["rows"][:, 0], given["coef"][:] = 1.0, 0.0
        given["intercept"][:], given["codes"][:] = 0.0, 0
        given["coef"][0, 0] = 10.0
        before = given["gradient"].copy()
        assert _compiled.sweep_class_tiles(first=0, last=100, **given) == 0.0
        assert_allclose(given["gradient"], before, rtol=0, atol=0)

    def test_not_a_number_stays(self):
        given = self.arguments(100, 3, 60)
        given["rows"][70, 1] = np.nan
        assert np.isnan(_compiled.sweep_class_tiles(first=64, last=100, **given))
        assert np.isnan(given["gradient"][:, 1]).all()

    @pytest.mark.parametrize(
        ("name", "wrong", "error"),
        [
            ("rows", np.ones((10, 32), np.float32), ValueError),
            ("n_columns", 0, ValueError),
            ("n_columns", 17, ValueError),
            ("parameters", np.ones((1, 3)), ValueError),
            ("temperature", 0.0, ValueError),
            ("codes", np.full(10, 60), IndexError),
            ("codes", np.full(10, -1), IndexError),
            ("codes", np.zeros(9, int), ValueError),
            ("weights", np.ones(9), ValueError),
            ("coef", np.ones((59, 16), np.float32), ValueError),
            ("coef", np.ones((60, 32), np.float32), ValueError),
            ("intercept", np.ones(59), ValueError),
            ("gradient", np.ones((59, 16)), ValueError),
            ("gradient", np.ones((60, 32)), ValueError),
            ("work", np.ones(100, np.float32), ValueError),
        ],
    )
    def test_nothing_is_read_outside(self, name, wrong, error):
        given = self.arguments(10, 9, 60)
        with pytest.raises(error):
            _compiled.sweep_class_tiles(first=0, last=10, **given | {name: wrong})
        for first, last in ((-1, 5), (0, 11), (6, 5)):
            with pytest.raises(IndexError):
                _compiled.sweep_class_tiles(first=first, last=last, **given)
