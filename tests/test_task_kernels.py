"""The kernels that serve several tasks at once, against one sweep for each task."""

import numpy as np
import pytest
from kernel_cases import (
    LEVELS,
    LEVELS_OF_CSR,
    LOSSES,
    TYPES,
    compiled,
    each_level,
    each_level_of_csr,
    handle,
    needs_compiled,
    random_loss,
    random_matrix,
    random_parameters,
)
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import brentq

from marginpursuit._kernels import _arrays
from marginpursuit.losses import RHOS, MarginLoss
from marginpursuit.losses.registry import from_kernel_parameters


class TestTaskLosses:
    """The losses between the two matrix products of a sweep for many tasks."""

    @staticmethod
    def arguments(rng, n, n_tasks=7, n_parts=3, n_rows=None):
        n_rows = n if n_rows is None else n_rows
        losses = np.array([random_loss(rng).kernel_parameters for _ in range(n_tasks)], float)
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
            loss = from_kernel_parameters(*given["losses"][k])
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
            ("losses", np.ones((6, 4)), ValueError),
            ("losses", np.ones((7, 3)), ValueError),
            ("losses", np.full((7, 4), 7.0), ValueError),
            ("losses", np.full((7, 4), np.nan), ValueError),
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


class TestTaskLanes:
    """Sweeps over CSR rows for some tasks at a time."""

    @staticmethod
    def arguments(rng, matrix, kind="catoni", n_tasks=11, n_parts=3):
        n, d = matrix.shape
        losses = random_parameters(rng, n_tasks, kind)
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
    @pytest.mark.parametrize("level", ["numpy", *LEVELS_OF_CSR])
    @pytest.mark.parametrize(
        ("n", "d", "dtype", "end"),
        [(1, 1, "f8", 3), (33, 70, "f8", 10), (130, 17, "f4", 4), (40, 200, "u1", 9)]
        + [(3, 900, dtype, 4) for dtype in ("f4", "i2", "i8")]  # rows converted in parts
        + [(30, 64, dtype, 7) for dtype in TYPES],
    )
    def test_each_task_is_a_sweep(self, level, layout, n, d, dtype, end):
        self.check(level, layout, n, d, dtype, end)

    @pytest.mark.parametrize("kind", LOSSES)
    @pytest.mark.parametrize("level", ["numpy", *LEVELS_OF_CSR])
    def test_every_loss(self, level, kind):
        self.check(level, "csr32", 40, 30, "f4", 10, kind)

    def check(self, level, layout, n, d, dtype, end, kind="catoni"):
        rng = np.random.default_rng(n + d + end)
        matrix = random_matrix(rng, n, d, dtype)
        given = self.arguments(rng, matrix, kind)
        seen = {name: array.copy() for name, array in given.items()}
        seen["coef"] = np.asfortranarray(seen["coef"]) if end == 4 else seen["coef"]
        handle(matrix, layout, level).sweep_tasks(**seen, begin=2, end=end)
        z = (matrix.astype(np.float64) - given["centre"]) * given["factors"]
        for k in range(11):
            if not 2 <= k < end:
                for name in ("gradient", "value", "slope"):
                    assert_array_equal(seen[name][k], given[name][k])
                continue
            loss = from_kernel_parameters(*given["losses"][k])
            weight = given["weights"][:, given["part"][k]]
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
            ("losses", np.ones((10, 4)), ValueError),
            ("losses", np.ones((11, 3)), ValueError),
            ("losses", np.full((11, 4), 7.0), ValueError),
            ("losses", np.full((11, 4), -1.0), ValueError),
            ("losses", np.full((11, 4), 0.5), ValueError),
            ("losses", np.arange(44.0).reshape(11, 4) % 5, ValueError),
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


class TestDualPass:
    """Steps of dual coordinate ascent, one lane for each task."""

    @staticmethod
    def arguments(rng, matrix, rho="catoni"):
        n, d = matrix.shape
        size = np.sqrt(np.mean(np.sum(matrix.astype(float) ** 2, axis=1))) or 1.0
        constant = 0.3 * size**2
        return {
            "losses": np.array(
                [
                    MarginLoss(1.0, s, t, rho).kernel_parameters
                    for s in (0.03, 0.5, 1.0, 40.0)
                    for t in (0.0, 0.7)
                ],
                dtype=float,
            ),
            "rows": rng.permutation(n)[: max(1, n - 2)],
            "seed": 7,
            "is_frozen": False,
            "codes": rng.integers(0, 3, n),
            "weights": rng.random(n) / n + 1e-3,
            "squares": np.sum(matrix.astype(float) ** 2, axis=1) + constant,
            "constant": constant,
            "positive": rng.integers(0, 3, 8),
            "penalty": size**2 * 10.0 ** rng.uniform(-6, 2, 8),
            "radius": np.full(8, np.inf),
            "residual": rng.normal(size=(n, 8)),
            "coef": rng.normal(size=(d, 8)) / size,
            "intercept": rng.normal(size=8),
            "sums": rng.normal(size=(3, 8)),
        }

    @classmethod
    def argument_of_a_task(cls, given, task):
        """Return the arguments for one task alone."""
        by_task = {name: given[name][[task]] for name in cls.PER_TASK}
        by_column = {name: np.ascontiguousarray(given[name][:, [task]]) for name in cls.PER_COLUMN}
        return {**cls.copied(given), **by_task, **by_column}

    PER_TASK = ("losses", "positive", "penalty", "radius", "intercept")
    PER_COLUMN = ("residual", "coef", "sums")

    @staticmethod
    def copied(given):
        return {k: np.copy(v) if np.ndim(v) else v for k, v in given.items()}

    @staticmethod
    def stepped(matrix, given, rows, task):
        """Take the steps for one task, with each dual variable from a bracketing root finder."""
        loss, p = from_kernel_parameters(*given["losses"][task]), given["penalty"][task]
        residual, coef = given["residual"][:, task].copy(), given["coef"][:, task].copy()
        b, x = given["intercept"][task], matrix.astype(np.float64)
        value = gap = balance = 0.0

        def dual(r):
            return -float(loss.derivative(loss.margin - r))

        for i in rows:
            y = 1.0 if given["codes"][i] == given["positive"][task] else -1.0
            c, score, before = given["weights"][i], x[i] @ coef, residual[i]
            m, q = y * (score + b), given["weights"][i] * given["squares"][i] / p
            value += c * (loss.value(m) + 0.5 * dual(before) * y * score)
            old = loss.margin - before
            gap += c * (loss.value(m) - loss.value(old) + dual(before) * (m - old))
            t = loss.margin - m + q * dual(before)
            end = abs(t) + 1.0
            after = brentq(lambda r, q=q, t=t: r + q * dual(r) - t, -end, end, xtol=1e-15)
            change = y * c * (dual(after) - dual(before)) / p
            coef, b = coef + change * x[i], b + given["constant"] * change
            residual[i] = after
            balance += c * y * dual(after)
        return residual, coef, b, (value, gap, balance)

    @each_level_of_csr
    @pytest.mark.parametrize("layout", ["csr32", "csr64"])
    @pytest.mark.parametrize(
        ("n", "d", "dtype"),
        [
            (1, 1, "f8"),
            (33, 70, "f8"),
            (20, 9, "f4"),
            *((12, 20, dtype) for dtype in TYPES),
            (4, 900, "i2"),
            (4, 900, "i8"),
        ],
    )
    def test_each_lane_is_a_task(self, level, layout, n, d, dtype):
        self.check(level, layout, n, d, dtype)

    @each_level_of_csr
    @pytest.mark.parametrize("rho", RHOS)
    def test_every_rho(self, level, rho):
        self.check(level, "csr32", 30, 20, "f8", rho)

    def check(self, level, layout, n, d, dtype, rho="catoni"):
        rng = np.random.default_rng(n + d)
        matrix = random_matrix(rng, n, d, dtype)
        given = self.arguments(rng, matrix, rho)
        seen, rows = self.copied(given), handle(matrix, layout, level)
        assert rows.dual_pass(**seen) == len(given["rows"])
        assert sorted(seen["rows"]) == sorted(given["rows"])  # in the order of the visits
        for task in range(8):
            alone = self.argument_of_a_task(given, task)
            rows.dual_pass(**alone)
            assert_array_equal(alone["rows"], seen["rows"])
            expected = self.stepped(matrix, given, seen["rows"], task)
            size = np.abs(expected[1]).max() + np.abs(given["coef"]).max()
            for found, lane in ((seen, task), (alone, 0)):
                residual, coef, intercept, sums = expected
                if lane == 0 and found is alone and given["losses"][task, 3] == 0.0:
                    # A task alone does not store the residuals of rows above the level.
                    found["residual"] = np.maximum(found["residual"], 0.0)
                    residual = np.maximum(residual, 0.0)
                assert_allclose(found["residual"][:, lane], residual, rtol=1e-6, atol=1e-8)
                assert_allclose(found["coef"][:, lane], coef, rtol=1e-6, atol=1e-8 * size)
                assert_allclose(found["intercept"][lane], intercept, rtol=1e-6, atol=1e-8)
                assert_allclose(found["sums"][:, lane], sums, rtol=1e-6, atol=1e-9)

    @each_level_of_csr
    @pytest.mark.parametrize("n_tasks", [1, 8])
    def test_a_frozen_pass_evaluates(self, level, n_tasks):
        """Value, gap and balance are those of one point; nothing else changes."""
        rng = np.random.default_rng(5)
        matrix = random_matrix(rng, 30, 20, "f8")
        given = self.arguments(rng, matrix) | {"is_frozen": True}
        given = given if n_tasks == 8 else self.argument_of_a_task(given, 2)
        seen = self.copied(given)
        handle(matrix, "csr32", level).dual_pass(**seen)
        for name in ("rows", "residual", "coef", "intercept"):
            assert_array_equal(seen[name], given[name])
        rows = given["rows"]
        c, x = given["weights"][rows], matrix[rows].astype(float)
        for task in range(n_tasks):
            loss = from_kernel_parameters(*given["losses"][task])
            y = np.where(given["codes"][rows] == given["positive"][task], 1.0, -1.0)
            score = x @ given["coef"][:, task]
            m, old = y * (score + given["intercept"][task]), loss.margin
            old = old - given["residual"][rows, task]
            dual = -c * loss.derivative(old)
            expected = (
                np.sum(c * loss.value(m) + 0.5 * dual * y * score),
                np.sum(c * (loss.value(m) - loss.value(old)) + dual * (m - old)),
                np.sum(y * dual),
            )
            assert_allclose(seen["sums"][:, task], expected, rtol=1e-9, atol=1e-12)

    @each_level_of_csr
    @pytest.mark.parametrize("n_tasks", [1, 8])
    @pytest.mark.parametrize("is_frozen", [False, True])
    def test_rows_far_above_the_level_are_shrunk(self, level, n_tasks, is_frozen):
        rng = np.random.default_rng(6)
        matrix = random_matrix(rng, 60, 20, "f8")
        given = self.arguments(rng, matrix) | {"is_frozen": is_frozen}
        given["losses"][:, 3] = 0.0
        given["residual"], given["radius"] = np.zeros((60, 8)), np.full(8, 0.1)
        given["intercept"], given["positive"] = np.full(8, 3.0), np.ones(8, int)
        given["penalty"][:] = 1e6  # coefficients and intercepts hardly move
        given = given if n_tasks == 8 else self.argument_of_a_task(given, 3)
        seen = self.copied(given)
        n_active = handle(matrix, "csr32", level).dual_pass(**seen)
        assert sorted(seen["rows"]) == sorted(given["rows"])
        y = np.where(given["codes"] == 1, 1.0, -1.0)[:, np.newaxis]
        residual = 1.0 - y * (matrix.astype(float) @ given["coef"] + given["intercept"])
        slack = residual + 0.1 * np.sqrt(given["squares"])[:, np.newaxis]
        is_far = np.all(slack < 0, axis=1)
        assert set(seen["rows"][n_active:]) == set(np.flatnonzero(is_far)) & set(given["rows"])
        assert 0 < n_active < len(given["rows"])

    @needs_compiled
    @pytest.mark.parametrize(
        ("name", "wrong", "error"),
        [
            ("losses", np.ones((7, 4)), ValueError),
            ("losses", np.ones((8, 3)), ValueError),
            ("losses", np.full((8, 4), 5.0), ValueError),
            ("losses", np.arange(32.0).reshape(8, 4) % 5, ValueError),
            ("rows", np.array([6]), IndexError),
            ("rows", np.array([-1]), IndexError),
            ("rows", np.zeros(0, int), ValueError),
            ("codes", np.zeros(5, int), ValueError),
            ("weights", np.ones(5), ValueError),
            ("squares", np.ones(5), ValueError),
            ("positive", np.zeros(7, int), ValueError),
            ("penalty", np.ones(9), ValueError),
            ("radius", np.ones(7), ValueError),
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


@needs_compiled
class TestTiles:
    """Sweeps of several tasks in float32."""

    def arguments(self, n, d, n_tasks, seed=0):
        rng = np.random.default_rng(seed)
        padded = np.zeros((n, -(-d // 16) * 16), dtype=np.float32)
        padded[:, :d] = rng.normal(size=(n, d))
        coef = np.zeros((-(-n_tasks // 4) * 4, padded.shape[1]), dtype=np.float32)
        coef[:n_tasks, :d] = rng.normal(size=(n_tasks, d)) / np.sqrt(d)
        losses = np.array([random_loss(rng).kernel_parameters for _ in range(n_tasks)], float)
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
            loss = from_kernel_parameters(*given["losses"][k])
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
            ("losses", np.ones((6, 4)), ValueError),
            ("losses", np.ones((7, 3)), ValueError),
            ("losses", np.full((7, 4), 7.0), ValueError),
            ("losses", np.full((7, 4), np.nan), ValueError),
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


@pytest.mark.parametrize("label", [0, 1, 2])
def test_labels_are_bits_of_the_code_of_a_row(label):
    codes = np.arange(8)
    expected = [bool(code & 2**label) for code in codes]
    assert_array_equal(_arrays.is_positive(codes, ~label), expected)
    assert_array_equal(_arrays.is_positive(codes, label), codes == label)
