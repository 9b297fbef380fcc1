"""The location estimate against 50-digit arithmetic, and what the paper proves of it as properties.

The oracle solves the equation by bisection with mpmath on the very floats that the library is
given. Tests of errata show where the printed statement fails and that the one used here holds.
"""

import mpmath as mp
import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import optimize, stats

from marginpursuit import _catoni_root, location
from marginpursuit.location import (
    CatoniInterval,
    catoni_interval,
    catoni_location,
    confidence_scale,
    consistent_quantile_scale,
    quantile_scale,
    variance_scale,
)
from marginpursuit.losses import INFLUENCE_BOUND, TRUNCATION, curvature, influence, rho

ROOT2 = mp.sqrt(2)
BOUND = 2 * ROOT2 / 3
EPSILON = np.finfo(float).eps


def equation(theta, x, scale, weight=None):
    """Sum w ψ((θ - x)/s) with 50 digits; the saturated values are counted, so that they cancel."""
    balance = total = mp.mpf(0)
    reach = mp.mpf(float(scale)) * ROOT2
    for value, w in zip(x, np.ones(len(x)) if weight is None else weight, strict=True):
        distance, w = theta - mp.mpf(float(value)), mp.mpf(float(w))
        if abs(distance) >= reach:
            balance += w * mp.sign(distance)
        else:
            u = distance / mp.mpf(float(scale))
            total += w * (u - u**3 / 6)
    return BOUND * balance + total


def reference(x, scale, weight=None):
    """The root, by bisection; the middle of the roots where there is more than one."""
    used = np.asarray(x, dtype=float)[np.ones(len(x)) > 0 if weight is None else weight > 0]
    least, most = mp.mpf(float(used.min())), mp.mpf(float(used.max()))

    def edge(below):
        low, high = least, most
        for _ in range(130):
            middle = (low + high) / 2
            low, high = (middle, high) if below(middle) else (low, middle)
        return (low + high) / 2

    first = edge(lambda t: equation(t, x, scale, weight) < 0)
    if equation(first + (most - least) * mp.mpf(2) ** -120, x, scale, weight) != 0:
        return first
    return (first + edge(lambda t: equation(t, x, scale, weight) <= 0)) / 2


def rounding(theta, x, scale):
    """Half a unit in the last place of θ, and a few of the smaller of scale and spread."""
    return 0.5001 * np.spacing(abs(float(theta))) + 4 * EPSILON * min(float(scale), np.ptp(x))


def assert_solves(theta, x, scale, weight=None):
    """The exact sum changes sign within rounding of θ."""
    x = np.asarray(x, dtype=float)
    used = x if weight is None else x[np.asarray(weight) > 0]
    error = mp.mpf(rounding(theta, used, scale))
    theta = mp.mpf(float(theta))
    assert (
        equation(theta - error, x, scale, weight) <= 0 <= equation(theta + error, x, scale, weight)
    )


SAMPLES = {
    "normal": lambda rng, n: rng.standard_normal(n),
    "cauchy": lambda rng, n: rng.standard_cauchy(n),
    "ties": lambda rng, n: rng.integers(0, 4, n).astype(float),
    "skew": lambda rng, n: np.exp(4.0 * rng.standard_normal(n)),
    "far": lambda rng, n: 1e6 + rng.standard_normal(n),
    "outlier": lambda rng, n: np.append(rng.standard_normal(n - 1), 1e9),
}
WEIGHTS = {
    "none": lambda rng, n: None,
    "real": lambda rng, n: rng.gamma(0.5, size=n),
    "whole": lambda rng, n: np.append(rng.integers(0, 4, n - 1), 1.0),
}

values = st.floats(-100.0, 100.0, allow_subnormal=False) | st.integers(-3, 3).map(float)
samples = st.lists(values, min_size=1, max_size=9).map(np.array)
scales = st.floats(-6.0, 6.0).map(lambda e: 10.0**e)


class TestRoot:
    @pytest.mark.parametrize("weighting", WEIGHTS)
    @pytest.mark.parametrize("sample", SAMPLES)
    def test_matches_fifty_digits_at_every_scale(self, sample, weighting):
        rng = np.random.default_rng(0)
        for n, factor in [(2, 0.3), (3, 1e-3), (6, 0.05), (9, 0.2), (14, 0.6), (17, 5.0)]:
            x, weight = SAMPLES[sample](rng, n), WEIGHTS[weighting](rng, n)
            scale = factor * (np.ptp(x) or 1.0)
            expected = reference(x, scale, weight)
            found = catoni_location(x, scale, sample_weight=weight)
            assert abs(mp.mpf(float(found)) - expected) <= rounding(expected, x, scale)

    @pytest.mark.parametrize("exponent", [-12, -9, -6, -3, 3, 6, 9, 12])
    @pytest.mark.parametrize("n", [4, 7])
    def test_matches_fifty_digits_at_extreme_scales(self, n, exponent):
        x = np.random.default_rng(n).standard_t(2.1, size=n)
        scale = 10.0**exponent * np.ptp(x)
        expected = reference(x, scale)
        found = catoni_location(x, scale)
        assert abs(mp.mpf(float(found)) - expected) <= rounding(expected, x, scale)

    @given(samples, scales, st.data())
    def test_solves_the_equation(self, x, scale, data):
        weight = data.draw(
            st.none() | st.lists(st.integers(0, 3), min_size=len(x), max_size=len(x))
        )
        assume(weight is None or any(weight))
        assert_solves(catoni_location(x, scale, sample_weight=weight), x, scale, weight)

    @pytest.mark.parametrize("closeness", [0.0, 1e-15, 1e-12, 1e-8, 1e-4])
    @pytest.mark.parametrize("sign", [-1, 1])
    def test_accurate_where_the_equation_is_nearly_flat(self, sign, closeness):
        # At s = gap/(2√2) the values either side of the gap are only just out of reach.
        for x in ([0.0, 1.0], [-7.0, 0.0, 0.0, 1.0, 1.5, 9.0], [0.0, 0.125, 1.0, 1.0]):
            middle = np.sort(x)[len(x) // 2 - 1 : len(x) // 2 + 1]
            scale = np.ptp(middle) / (2.0 * TRUNCATION) * (1.0 + sign * closeness)
            expected = reference(x, scale)
            error = abs(mp.mpf(float(catoni_location(x, scale))) - expected)
            assert error <= 2 * EPSILON

    def test_outlier_at_a_scale_between_bulk_and_outlier(self):
        # The bulk is 1e-5 scales wide, and still located to its own rounding, not the scale's.
        bulk = np.random.default_rng(3).standard_normal(40)
        x = np.append(bulk, 1e9)
        error = abs(mp.mpf(float(catoni_location(x - 2357.0, 1e5))) - reference(x - 2357.0, 1e5))
        assert error <= np.spacing(2357.0)
        centred = x - reference(x, 1e5)
        assert abs(catoni_location(np.array(centred, dtype=float), 1e5)) < 1e-13

    def test_many_values(self):
        x = np.random.default_rng(1).standard_t(2.1, size=200_001)
        for scale in (1e-3, 0.1, 3.0, 1e3, 1e6):
            expected = optimize.brentq(
                lambda t, s=scale: float(influence((t - x) / s).mean()), -1, 1, xtol=1e-15
            )
            assert_allclose(catoni_location(x, scale), expected, rtol=0, atol=2e-12)

    @pytest.mark.parametrize("unit", [1e300, 2.0**1000, 1e-300, 2.0**-1060])
    @pytest.mark.parametrize("factor", [1e-280, 1e-3, 0.5, 3.0, 1e5])
    def test_very_large_and_very_small_units(self, unit, factor):
        x = np.array([-3.0, 0.0, 0.5, 1.0, 20.0])
        with np.errstate(all="raise"):
            found = catoni_location(x * unit, max(factor * unit, 5e-324))
        expected = catoni_location(x, max(factor * unit, 5e-324) / unit)
        assert_allclose(found / unit, expected, rtol=4e-16, atol=3 * 5e-324 / unit)

    @pytest.mark.parametrize("scale", [5e-324, 1e-300, 1.0, 1e300, np.finfo(float).max])
    def test_the_largest_and_smallest_floats(self, scale):
        top = np.finfo(float).max
        with np.errstate(all="raise"):
            assert catoni_location([-top, top], scale) == 0.0
            assert catoni_location([top, top, -top], top) == pytest.approx(top * 0.6, rel=0.2)
            assert catoni_location([5e-324, 5e-324, 5e-324], scale) == 5e-324
            assert catoni_location([0.0, 1e-323, 1e-323], scale) in (5e-324, 1e-323)

    @given(values, scales, st.integers(1, 5))
    def test_constant_data_and_single_values(self, value, scale, n):
        assert catoni_location(np.full(n, value), scale) == value
        assert catoni_location(np.full(n, value)) == value

    @pytest.mark.parametrize("low", [0.0, -40.0])
    def test_bisects_where_newton_has_no_slope(self, low):
        # From the median Newton's method is hardly ever stopped; here it starts out of reach.
        z = np.array([[5.0, 5.0, 6.0], [5.0, 5.0, 6.0], [-3.0, 3.0, 5.5]])
        ends = np.full(3, low), np.full(3, 40.0)
        found = _catoni_root.bracketed_root(z, _catoni_root.Equal(3), *ends)
        for root, row in zip(found, z, strict=True):
            assert_solves(root, row, 1.0)

    def test_a_block_of_rows_does_not_see_the_others(self, monkeypatch):
        rng = np.random.default_rng(2)
        x = rng.standard_t(2.1, size=(40, 25)) * 10.0 ** rng.uniform(-5, 5, (40, 1))
        scale = 10.0 ** rng.uniform(-7, 7, 40)
        weight = rng.integers(0, 3, x.shape) + (np.arange(25) == 0)
        expected = [[catoni_location(r, s) for r, s in zip(x, scale, strict=True)]]
        rows = zip(x, scale, weight, strict=True)
        expected += [[catoni_location(r, s, sample_weight=w) for r, s, w in rows]]
        for block in (1, 60, 1 << 16):
            monkeypatch.setattr(location, "_BLOCK", block)
            assert_array_equal(catoni_location(x, scale, axis=1), expected[0])
            found = catoni_location(x, scale, axis=1, sample_weight=weight)
            assert_allclose(found, expected[1], rtol=2e-16)


class TestProperties:
    @given(samples, scales)
    def test_lies_between_the_extremes(self, x, scale):
        assert x.min() <= catoni_location(x, scale) <= x.max()

    @given(samples, scales, st.integers(-50, 50))
    def test_moves_with_a_shift(self, x, scale, shift):
        moved = catoni_location(x + shift, scale) - catoni_location(x, scale)
        assert abs(moved - shift) <= 8 * EPSILON * (np.abs(x).max() + abs(shift))

    @given(samples, scales, st.floats(1e-3, 1e3))
    def test_moves_with_the_unit(self, x, scale, unit):
        moved = catoni_location(unit * x, unit * scale)
        tolerance = 8 * EPSILON * (np.abs(x).max() + min(scale, np.ptp(x))) + 1e-300
        assert abs(moved / unit - catoni_location(x, scale)) <= tolerance

    @given(samples, scales, st.integers(-200, 200))
    def test_powers_of_two_and_signs_change_nothing_else(self, x, scale, exponent):
        unit = 2.0**exponent
        assert catoni_location(unit * x, unit * scale) == unit * catoni_location(x, scale)
        assert_allclose(catoni_location(-x, scale), -catoni_location(x, scale), rtol=1e-15)

    @given(samples, scales, st.data())
    def test_never_falls_when_a_value_grows(self, x, scale, data):
        index = data.draw(st.integers(0, len(x) - 1))
        grown = x.copy()
        grown[index] += data.draw(st.floats(0.0, 300.0))
        before, after = catoni_location(x, scale), catoni_location(grown, scale)
        assert after >= before - 4 * rounding(before, grown, scale)

    @given(samples, scales, st.randoms(use_true_random=False))
    def test_order_does_not_matter(self, x, scale, random):
        mixed = x.tolist()
        random.shuffle(mixed)
        found = catoni_location(mixed, scale)
        assert abs(found - catoni_location(x, scale)) <= 2 * rounding(found, x, scale)

    @given(samples, scales)
    def test_distance_from_the_mean_is_of_order_one_over_scale_squared(self, x, scale):
        # Proposition empirical_gamma_control, part 2, with the constant c = (max - min)³/2.
        distance = abs(catoni_location(x, scale) - x.mean())
        rounding_error = 8 * EPSILON * np.abs(x).max()
        assert distance <= 0.5 * np.ptp(x) * (np.ptp(x) / scale) ** 2 + rounding_error


class TestSmallScales:
    @given(st.lists(st.integers(-1000, 1000), min_size=1, max_size=12, unique=True), st.data())
    def test_is_the_median_below_the_gaps(self, x, data):
        # Proposition empirical_gamma_control, part 1, without ties (E6). The values either side
        # of the middle are at least 1, and in the middle of an even number at least 1/2, away.
        scale = data.draw(
            st.floats(-12.0, np.log10(0.5 / TRUNCATION) - 1e-9).map(lambda e: 10.0**e)
        )
        assert catoni_location(x, scale) == np.median(x)

    @given(st.floats(-300.0, -1.0).map(lambda e: 10.0**e))
    def test_e6_ties_at_the_median_keep_the_estimate_off_it(self, scale):
        # Three values at 0 hold two saturated ones: 3ψ(θ/s) = 2B, so θ = .6812 s for every s.
        found = catoni_location([0.0, 0.0, 0.0, 1.0, 5.0], scale)
        assert found > 0.0 == np.median([0.0, 0.0, 0.0, 1.0, 5.0])
        if scale > 1e-250:
            ratio = 2.0 * TRUNCATION * np.sin(np.arcsin(2.0 / 3.0) / 3.0)
            assert ratio == pytest.approx(0.6812, abs=5e-5)
            assert_allclose(found, ratio * scale, rtol=1e-14)

    @given(st.lists(st.integers(-50, 50), min_size=2, max_size=10), st.floats(1e-9, 0.3))
    def test_e6_an_even_number_of_values_has_an_interval_of_roots(self, x, scale):
        x = np.sort(np.array(x, dtype=float))
        low, high = x[(len(x) - 1) // 2], x[len(x) // 2]
        assume(len(x) % 2 == 0 and high > low)
        ends = mp.mpf(low) + ROOT2 * mp.mpf(scale), mp.mpf(high) - ROOT2 * mp.mpf(scale)
        for end in ends:  # both solve the equation, and neither is the median
            assert equation(end, x, scale) == 0
        assert catoni_location(x, scale) == np.median(x)

    def test_weighted_median_and_its_ties(self):
        x = [0.0, 1.0, 10.0, 20.0]
        assert catoni_location(x, 1e-9, sample_weight=[1, 1, 5, 2]) == 10.0
        off = catoni_location(x, 1e-9, sample_weight=[1, 1, 5, 1]) - 10.0  # 5ψ(θ/s) = -B
        assert_allclose(off, -2e-9 * TRUNCATION * np.sin(np.arcsin(0.2) / 3.0), rtol=1e-5)
        assert catoni_location(x, 1e-9, sample_weight=[1, 2, 2, 1]) == 5.5
        assert catoni_location(x, 1e-9, sample_weight=[2, 0, 1, 1]) == 5.0
        assert catoni_location(x, 1e-9, sample_weight=[0.1, 0.2, 0.3, 0.0]) == 5.5
        nearly = catoni_location(x, 1e-9, sample_weight=[0.1, 0.2, 0.3, 1e-14])
        assert nearly == pytest.approx(10.0, abs=2e-9)

    def test_e5_saturated_summands_are_two_thirds_of_root_two(self):
        # The proof sums ±√2 and leaves out the scale; the median solves the equation with both.
        x, scale = np.array([0.0, 1.0, 5.0]), 0.1
        summands = influence((catoni_location(x, scale) - x) / scale)
        assert_allclose(summands, [INFLUENCE_BOUND, 0.0, -INFLUENCE_BOUND], rtol=1e-15)
        assert_allclose(INFLUENCE_BOUND, 2.0 * np.sqrt(2.0) / 3.0, rtol=1e-15)
        assert abs(influence(1.0 - x).sum()) > 0.1  # as printed, without the scale


class TestLargeScales:
    @pytest.mark.parametrize("weighted", [False, True])
    def test_mean_less_third_moment_and_the_rate_of_the_rest(self, weighted):
        rng = np.random.default_rng(4)
        x = rng.exponential(size=50)
        weight = rng.random(50) if weighted else np.ones(50)
        mean = np.average(x, weights=weight)
        second, third = (np.average((x - mean) ** k, weights=weight) for k in (2, 3))
        for scale in (20.0, 40.0, 80.0):
            found = catoni_location(x, scale, sample_weight=weight)
            rest = found - (mean - third / (6.0 * scale**2))
            # The next term of the expansion of the cubic's root in 1/s.
            assert_allclose(rest, -second * third / (12.0 * scale**4), rtol=20.0 / scale**2 * 5)

    @given(samples, st.floats(8.0, 12.0).map(lambda e: 10.0**e))
    def test_is_the_mean(self, x, factor):
        scale = factor * (np.ptp(x) or 1.0)
        exact = mp.fsum(mp.mpf(float(v)) for v in x) / len(x)
        assert abs(mp.mpf(float(catoni_location(x, scale))) - exact) <= rounding(exact, x, scale)


class TestWeights:
    @given(samples, scales, st.data())
    def test_whole_weights_repeat_the_value(self, x, scale, data):
        weight = data.draw(st.lists(st.integers(0, 4), min_size=len(x), max_size=len(x)))
        assume(any(weight))
        repeated = np.repeat(x, weight)
        found = catoni_location(x, scale, sample_weight=weight)
        assert abs(found - catoni_location(repeated, scale)) <= 2 * rounding(found, repeated, scale)
        default = catoni_location(x, sample_weight=weight)
        assert abs(default - catoni_location(repeated)) <= 2e-15 * np.abs(repeated).max()

    @given(samples, scales, st.floats(1e-300, 1e300), st.data())
    def test_only_ratios_matter(self, x, scale, factor, data):
        weight = data.draw(st.lists(st.integers(1, 4), min_size=len(x), max_size=len(x)))
        plain = catoni_location(x, scale, sample_weight=weight)
        scaled = catoni_location(x, scale, sample_weight=factor * np.array(weight))
        # Rounded weights move a root where the equation is flat, but no further than a balance.
        assert abs(plain - scaled) <= 1e-7 * min(scale, np.ptp(x)) + rounding(plain, x, scale)

    @pytest.mark.parametrize("idle", [1e300, -1e300, 0.3])
    @pytest.mark.parametrize("scale", [None, 1e-3, 0.7, 50.0])
    def test_values_without_weight_do_not_matter(self, scale, idle):
        x, weight = np.array([1e-3, 2e-3, 5e-3, 7e-3]), np.array([1.0, 2.0, 1.5, 0.5])
        expected = catoni_location(x, scale, sample_weight=weight)
        found = catoni_location(
            np.insert(x, (0, 2), idle), scale, sample_weight=np.insert(weight, (0, 2), 0.0)
        )
        assert_allclose(found, expected, rtol=4e-16)

    def test_sums_of_many_weights_are_exact(self):
        # A running float sum of 0.1 leaves the two sides unequal; they are not.
        n = 10_000
        x = np.arange(2.0 * n)
        assert catoni_location(x, 1e-3, sample_weight=np.full(2 * n, 0.1)) == n - 0.5
        heavy = np.append(np.full(n, 0.1), [0.1 * n])
        assert (
            catoni_location(np.append(x[:n], 2.0 * n), 1e-3, sample_weight=heavy) == 1.5 * n - 0.5
        )

    def test_along_an_axis(self):
        rng = np.random.default_rng(5)
        x, weight = rng.standard_normal((6, 3, 4)), rng.random(3)
        full = np.broadcast_to(weight[:, None], x.shape)
        found = catoni_location(x, 0.4, sample_weight=weight, axis=1)
        assert found.shape == (6, 4)
        assert_array_equal(found, catoni_location(x, 0.4, sample_weight=full, axis=1))
        assert_array_equal(found[2, 1], catoni_location(x[2, :, 1], 0.4, sample_weight=weight))


class TestStability:
    """Proposition stability: one of n values changed, m of them within s√2/2 of the estimate."""

    def test_e7_the_inequality_behind_the_statement(self):
        # Of the m values one may be the changed one (E10), so that m - 1 make up for it.
        n = np.concatenate([np.arange(30, 2000), 10 ** np.arange(4, 9)])
        step = influence(np.sqrt(0.5) + 1.0 / np.sqrt(n)) - influence(np.sqrt(0.5))
        holds = (np.ceil(n / 2) - 1) * step >= 2.0 * INFLUENCE_BOUND
        assert np.all(holds[n >= 35])
        assert not holds[n == 34][0]

    def test_e7_the_printed_proof_gives_twice_the_statement(self):
        m, n = 50, 100
        assert np.sqrt(2.0 / m) == pytest.approx(2.0 / np.sqrt(n))

    @given(st.integers(35, 60), st.floats(-1.0, 1.5).map(lambda e: 10.0**e), st.data())
    def test_e7_one_value_moves_the_estimate_by_at_most_scale_over_root_n(self, n, scale, data):
        bulk = data.draw(st.lists(st.floats(-1.0, 1.0), min_size=4, max_size=4))
        tail = data.draw(
            st.lists(st.sampled_from([-90.0, -2.0, 2.0, 90.0]), min_size=3, max_size=3)
        )
        x = np.resize(np.concatenate([np.resize(bulk, 4), tail]), n)
        before = catoni_location(x, scale)
        assume(np.sum(np.abs(before - x) <= scale * np.sqrt(0.5)) >= n / 2)
        for index in range(7):
            for target in (-1e6, 1e6):
                changed = x.copy()
                changed[index] = target
                moved = abs(catoni_location(changed, scale) - before)
                assert moved <= scale / np.sqrt(n) * (1.0 + 1e-12)

    @pytest.mark.parametrize(("n", "least"), [(25, 1.01), (35, 0.88), (36, 0.88), (50, 0.74)])
    def test_e7_the_hardest_samples(self, n, least):
        # Of m values some lie at 0 and the rest at -c, all others far out, where one more goes.
        m = (n + 1) // 2
        below = np.array([0.0, 0.2, 0.4, 0.7, 1.0, 1.2, 1.4])[:, None, None, None]
        near, above = np.arange(m + 1)[:, None, None], m + np.arange(n - m + 1)[:, None]
        i = np.arange(n)
        x = np.where(i < near, 0.0, np.where(i < m, -below, np.where(i < above, 50.0, -50.0)))
        x = x.reshape(-1, n)
        before = catoni_location(x, 1.0, axis=1)
        inner = np.sum(np.abs(before[:, None] - x) <= np.sqrt(0.5), axis=1) >= n / 2
        worst = 0.0
        for index in (0, m - 1, n - 1):
            for target in (-50.0, 50.0):
                changed = x[inner].copy()
                changed[:, index] = target
                moved = np.abs(catoni_location(changed, 1.0, axis=1) - before[inner])
                worst = max(worst, moved.max() * np.sqrt(n))
        assert worst > least  # the statement is nearly sharp, and false for fewer values
        assert n < 35 or worst <= 1.0

    @given(st.integers(4, 10**6))
    def test_e8_the_slope_at_the_end_of_the_shift(self, m):
        slope = float(curvature(np.sqrt(0.5) + np.sqrt(2.0 / m)))
        assert slope == pytest.approx(0.75 - (np.sqrt(m) + 1.0) / m, abs=1e-14)
        printed = 0.5 - 2.0 * (np.sqrt(m) + 1.0) / m
        assert printed < slope - 0.24
        # The corrected D is a lower bound of the change of ψ over the shift.
        change = float(influence(np.sqrt(0.5) + np.sqrt(2.0 / m)) - influence(np.sqrt(0.5)))
        assert change >= np.sqrt(2.0 / m) * slope - 1e-15

    def test_e9_from_which_m_on_the_shift_suffices(self):
        m = np.arange(4, 200)
        corrected = m * np.sqrt(2.0 / m) * (0.75 - (np.sqrt(m) + 1.0) / m)
        printed = m * np.sqrt(2.0 / m) * (0.5 - 2.0 * (np.sqrt(m) + 1.0) / m)
        needed = 4.0 * np.sqrt(2.0) / 3.0
        assert corrected[m == 24][0] == pytest.approx(3.49, abs=5e-3)
        assert printed[m == 24][0] == pytest.approx(0.058, abs=5e-4)
        assert_array_equal(corrected >= needed, m >= 13)
        assert_array_equal(printed >= needed, m >= 53)

    @given(samples, scales, st.floats(-1e3, 1e3), st.data())
    def test_e10_the_impact_of_one_value_is_at_most_twice_the_bound(self, x, scale, new, data):
        index = data.draw(st.integers(0, len(x) - 1))
        estimate = catoni_location(x, scale)
        with np.errstate(over="ignore"):
            impact = influence((estimate - new) / scale) - influence((estimate - x[index]) / scale)
        assert abs(impact) <= 2.0 * INFLUENCE_BOUND  # printed: at least

    def test_e10_a_saturated_value_may_move_away_freely(self):
        x = np.array([-3.0, 0.0, 0.5, 1.0, 2.0])
        away = np.array([-1e6, 0.0, 0.5, 1.0, 2.0])
        assert catoni_location(x, 1.0) - x[0] >= TRUNCATION
        assert catoni_location(x, 1.0) == catoni_location(away, 1.0)
        # Printed without the scale: the distance is above √2, and the estimate moves.
        assert catoni_location(x, 100.0) - x[0] >= TRUNCATION
        assert catoni_location(x, 100.0) - catoni_location(away, 100.0) > 1.0


class TestInterval:
    @given(st.integers(40, 400), st.floats(1e-4, 0.999), st.floats(-6, 6).map(lambda e: 10.0**e))
    def test_radius_is_the_root_of_catonis_quadratic(self, n, delta, variance):
        log_term = np.log(2.0 / delta)  # at most 40/4
        got = catoni_interval(np.zeros(n), variance, delta)
        s, r = mp.mpf(float(got.scale)), mp.mpf(float(got.radius))
        quadratic = r**2 - 2 * s * r + variance + 2 * s**2 * log_term / n
        assert abs(quadratic) <= 1e-14 * s * s
        assert r < s
        simple = np.sqrt(2.0 * variance * log_term / n)
        # Between the printed radius and the one that the bound it is derived from gives (E3).
        assert simple <= got.radius <= 2.0 * simple * (1.0 + 1e-14)

    def test_radius_keeps_its_digits_for_many_draws(self):
        found = catoni_interval(np.zeros(10**5), 2.0, 0.5)
        log_term = mp.log(4)
        exact = mp.sqrt(10**5 / log_term) * (1 - mp.sqrt(1 - 4 * log_term / 10**5))
        assert abs(found.radius - exact) <= 4 * EPSILON * exact

    def test_parts_and_shapes(self):
        x = np.random.default_rng(6).standard_normal((30, 3))
        found = catoni_interval(x, [1.0, 2.0, 3.0], 0.1, axis=0)
        assert isinstance(found, CatoniInterval)
        assert found._fields == ("location", "low", "high", "radius", "scale")
        assert_allclose(found.scale, confidence_scale([1.0, 2.0, 3.0], 30, 0.1))
        assert_array_equal(found.location, catoni_location(x, found.scale, axis=0))
        assert_array_equal(found.low, found.location - found.radius)
        assert_array_equal(found.high, found.location + found.radius)
        with pytest.raises(AttributeError):
            found.radius = 0.0
        single = catoni_interval(x[:, 1].astype(np.float32), 2.0, 0.1)
        assert {part.dtype for part in single} == {np.dtype(np.float32)}
        assert single.location == pytest.approx(found.location[1], rel=1e-6)

    def test_e3_refuses_too_few_draws_and_says_how_many_are_needed(self):
        # 4 log(2/0.05) = 14.76
        with pytest.raises(
            ValueError, match=r"more than 4 log\(2/delta\) = 14.76.*least 15; got 14"
        ):
            catoni_interval(np.zeros(14), 1.0, 0.05)
        assert catoni_interval(np.zeros(15), 1.0, 0.05).radius > 0

    def test_e3_the_printed_radius_is_not_a_bound(self):
        n, delta, p = 10, 0.001, 0.23
        log_term = np.log(2.0 / delta)
        assert n <= 4.0 * log_term
        variance = p * (1.0 - p)
        printed = np.sqrt(2.0 * variance * log_term / n)
        miss = two_point_miss(n, p, confidence_scale(variance, n, delta), printed)
        assert miss > 1.2 * delta

    def test_e3_the_radius_is_a_bound_on_every_two_point_law(self):
        # The number of successes is binomial, so that the probability of a miss is exact.
        for n in (15, 20, 31, 32, 50, 100):
            for delta in (0.5, 0.1, 0.05, 0.01, 0.001):
                if n <= 4.0 * np.log(2.0 / delta):
                    continue
                for p in (0.01, 0.05, 0.1, 0.23, 0.4, 0.5):
                    found = catoni_interval(np.zeros(n), p * (1.0 - p), delta)
                    assert two_point_miss(n, p, found.scale, found.radius) <= delta

    @pytest.mark.parametrize(
        ("law", "mean", "variance"),
        [
            (stats.t(2.5), 0.0, 5.0),
            (stats.lognorm(1.0), np.exp(0.5), (np.e - 1.0) * np.e),
            (stats.pareto(2.2), 2.2 / 1.2, 2.2 / (1.2**2 * 0.2)),
        ],
        ids=["t", "lognormal", "pareto"],
    )
    def test_covers_the_mean_of_heavy_tails(self, law, mean, variance):
        assert_allclose([law.mean(), law.var()], [mean, variance])
        draws = law.rvs(size=(60, 4000), random_state=np.random.default_rng(7))
        found = catoni_interval(draws, variance, 0.1, axis=0)
        covered = (found.low <= mean) & (mean <= found.high)
        assert covered.mean() >= 0.9
        # The interval says something: it is not far wider than the normal one.
        assert found.radius[0] < 2.0 * stats.norm.ppf(0.95) * np.sqrt(variance / 60)


def two_point_miss(n, p, scale, radius):
    """P{|θ - p| > radius} of n draws that are 1 with probability p and else 0, exactly."""
    successes = np.arange(n + 1)
    draws = (np.arange(n)[:, None] < successes).astype(float)
    missed = np.abs(catoni_location(draws, scale, axis=0) - p) > radius
    return stats.binom.pmf(successes, n, p)[missed].sum()


class TestScales:
    def test_variance_scale(self):
        assert variance_scale(3.0, 0.5) == 12.0
        assert variance_scale(3.0, 0.5, k=4.0) == 24.0
        assert_array_equal(variance_scale([1.0, 2.0], [1.0, 4.0], 8.0), [8.0, 4.0])
        assert variance_scale(np.float32(1.0), 2.0).dtype == np.float32

    @given(st.floats(1e-9, 1e9), st.floats(0.1, 10.0), st.floats(0.1, 100.0))
    def test_variance_scale_bounds_the_bias_by_a_share_of_the_margin(self, variance, margin, k):
        # Of the bound Var/s + 2sL/n on the error, the part that does not vanish with n is γ/k.
        assert variance / variance_scale(variance, margin, k) == pytest.approx(margin / k)

    @given(st.floats(1e-9, 1e9), st.integers(1, 10**9), st.floats(1e-300, 0.999))
    def test_confidence_scale_minimises_the_deviation_bound(self, variance, n, delta):
        scale = confidence_scale(variance, n, delta)
        exact = mp.sqrt(n * mp.mpf(variance) / (2 * mp.log(2 / mp.mpf(delta))))
        assert abs(scale - exact) <= 4 * EPSILON * exact

        def bound(s):
            return variance / s + 2.0 * s * np.log(2.0 / delta) / n

        assert bound(scale) <= min(bound(0.99 * scale), bound(1.01 * scale))

    def test_confidence_scale_broadcasts(self):
        found = confidence_scale([1.0, 4.0], [[10], [40]], 0.1)
        assert found.shape == (2, 2)
        assert found[1, 1] == pytest.approx(4.0 * found[0, 0])
        assert np.isfinite(confidence_scale(1e300, 10**9, 5e-324))

    def test_default_scale_is_the_confidence_rule_with_the_empirical_variance(self):
        x = np.random.default_rng(8).standard_t(2.1, size=(50, 4))
        weight = np.random.default_rng(9).random(50)
        for delta in (0.05, 0.5):
            expected = catoni_location(x, confidence_scale(x.var(axis=0), 50, delta), axis=0)
            assert_allclose(catoni_location(x, delta=delta, axis=0), expected, rtol=1e-13)
        assert_array_equal(catoni_location(x, axis=0), catoni_location(x, delta=0.05, axis=0))
        assert catoni_location(x, delta=0.05) != catoni_location(x, delta=0.5)
        mean = np.average(x, axis=0, weights=weight)
        variance = np.average((x - mean) ** 2, axis=0, weights=weight)
        expected = catoni_location(
            x, confidence_scale(variance, weight.sum()), axis=0, sample_weight=weight
        )
        found = catoni_location(x, axis=0, sample_weight=weight)
        assert_allclose(found, expected, rtol=1e-13)
        with np.errstate(all="raise"):
            assert_allclose(catoni_location(x * 1e300) / 1e300, catoni_location(x), rtol=1e-14)

    def test_quantile_scales_by_hand(self):
        margins = [-8.0, 1.0, 2.0, 4.0, -3.0]  # the absolute ones in order: 1 2 3 4 8
        exact = mp.sqrt(5 * mp.mpf(4) / (2 * mp.mpf(0.25) * mp.log(10)))
        assert_allclose(quantile_scale(margins, 0.25, 0.1), float(exact), rtol=1e-15)
        exact = mp.sqrt(5 * mp.mpf(3) / (2 * mp.mpf(0.25) * mp.log(20)))
        assert_allclose(quantile_scale(margins, 0.25, quantile=0.5), float(exact), rtol=1e-15)
        exact = mp.sqrt(5 * mp.mpf(4) ** 2 / (2 * mp.log(20)))
        assert_allclose(consistent_quantile_scale(margins, 0.1), float(exact), rtol=1e-15)
        exact = mp.sqrt(5 * mp.mpf(8) ** 2 / (2 * mp.log(40)))
        assert_allclose(consistent_quantile_scale(margins, quantile=1.0), float(exact), rtol=1e-15)
        narrow = np.array(margins, dtype=np.float32)
        assert quantile_scale(narrow, 0.25).dtype == np.float32
        assert consistent_quantile_scale(narrow).dtype == np.float32

    @given(samples, st.floats(1e-3, 1e3))
    @example(np.array([1.0, -2.0, 5.0]), 100.0)
    def test_e20_only_the_consistent_rule_follows_the_unit(self, margins, unit):
        assume(np.quantile(np.abs(margins), 0.75) > 1e-9)
        consistent = consistent_quantile_scale(unit * margins) / consistent_quantile_scale(margins)
        printed = quantile_scale(unit * margins, 0.1) / quantile_scale(margins, 0.1)
        assert consistent == pytest.approx(unit)
        assert printed == pytest.approx(np.sqrt(unit))

    def test_e20_only_the_consistent_rule_leaves_the_estimate_alone(self):
        x = np.random.default_rng(10).exponential(size=40)
        changed = 1e3 * x
        same = catoni_location(changed, consistent_quantile_scale(changed)) / 1e3
        assert same == pytest.approx(catoni_location(x, consistent_quantile_scale(x)), rel=1e-13)
        other = catoni_location(changed, quantile_scale(changed, 1.0)) / 1e3
        assert abs(other - catoni_location(x, quantile_scale(x, 1.0))) > 0.01


class TestInput:
    def test_axes_and_kinds(self):
        x = np.random.default_rng(11).standard_normal((4, 5, 6))
        assert catoni_location(x, 1.0) == catoni_location(x.ravel(), 1.0)
        assert isinstance(catoni_location(x, 1.0), np.float64)
        for axis in (0, 1, 2, -1):
            rest = tuple(np.delete(x.shape, axis))
            found = catoni_location(x, np.full(rest, 0.7), axis=axis)
            assert found.shape == rest
            assert_array_equal(found, np.apply_along_axis(catoni_location, axis, x, 0.7))
        columns = catoni_location(x, np.arange(1.0, 7.0), axis=0)
        assert_array_equal(columns[:, 3], catoni_location(x[:, :, 3], 4.0, axis=0))
        assert catoni_location(x.astype(np.float32), np.float64(0.5)).dtype == np.float32
        assert catoni_location([1, 2, 4], 1.0).dtype == np.float64
        assert catoni_location(7, 1.0) == 7.0
        assert catoni_location(np.zeros((3, 0)), 1.0, axis=0).shape == (0,)
        assert catoni_location(np.zeros((3, 0)), axis=0, sample_weight=np.ones(3)).shape == (0,)

    def test_leaves_its_arguments_alone(self):
        x, weight = np.array([3.0, 1.0, 2.0, 9.0]), np.array([1.0, 0.0, 2.0, 2.0])
        for array in (x, weight):
            array.flags.writeable = False
        catoni_location(x, 0.5, sample_weight=weight)
        catoni_location(x)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"x": []}, r"at least one value along the axis; got shape \(0,\)"),
            ({"x": np.zeros((0, 3)), "axis": 0}, r"at least one value .* \(0, 3\)"),
            ({"x": [1.0, np.nan]}, r"x must not be NaN; got nan at index \(1,\)"),
            ({"x": [1.0, -np.inf]}, r"x must be strictly between -inf and inf; got -inf"),
            ({"scale": 0.0}, "scale must be positive and finite; got 0"),
            ({"scale": -1.0}, "scale must be positive and finite; got -1"),
            ({"scale": np.inf}, "scale must be positive and finite; got inf"),
            ({"scale": np.nan}, "scale must not be NaN"),
            ({"scale": [1.0, 2.0]}, r"scale must broadcast to the shape \(\).*got shape \(2,\)"),
            ({"x": np.ones((2, 3)), "axis": 0, "scale": [1.0, 2.0]}, r"scale .*\(3,\).*\(2,\)"),
            ({"delta": 0.0}, "delta must be strictly between 0 and 1; got 0"),
            ({"delta": 1.0}, "delta must be strictly between 0 and 1; got 1"),
            ({"delta": [0.1, 0.2]}, "delta must be a single number"),
            ({"sample_weight": [1.0, -1.0, 1.0]}, r"sample_weight must be in \[0, .*got -1 at"),
            ({"sample_weight": [1.0, np.inf, 1.0]}, "sample_weight .* got inf"),
            ({"sample_weight": [0.0, 0.0, 0.0]}, "sample_weight must not be zero for all"),
            ({"sample_weight": [1.0, 1.0]}, r"sample_weight must have the shape \(3,\).*\(2,\)"),
            ({"x": np.ones((2, 3)), "sample_weight": [1.0, 1.0]}, r"shape \(2, 3\) of x"),
            (
                {"x": np.ones((2, 2)), "sample_weight": [[1.0, 0.0], [1.0, 0.0]], "axis": 0},
                "sample_weight must not be zero for all",
            ),
        ],
    )
    def test_refuses(self, arguments, message):
        with pytest.raises(ValueError, match=message):
            catoni_location(**({"x": [1.0, 2.0, 3.0]} | arguments))

    def test_refuses_an_axis_that_is_not_there(self):
        with pytest.raises(np.exceptions.AxisError):
            catoni_location([1.0, 2.0], 1.0, axis=1)

    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (lambda: variance_scale(0.0, 1.0), "variance must be positive"),
            (lambda: variance_scale(1.0, -1.0), "margin must be positive"),
            (lambda: variance_scale(1.0, 1.0, 0.0), "k must be positive"),
            (lambda: confidence_scale(-1.0, 10), "variance must be positive"),
            (lambda: confidence_scale(1.0, 0), "n must be positive"),
            (lambda: confidence_scale(1.0, 10, 1.0), "delta must be strictly between 0 and 1"),
            (lambda: quantile_scale([1.0], 0.0), "penalty must be positive"),
            (lambda: quantile_scale([1.0], 0.1, 1.0), "delta must be strictly between 0 and 1"),
            (lambda: quantile_scale([1.0], 0.1, 0.1, 1.5), r"quantile must be in \[0, 1\]"),
            (lambda: quantile_scale([], 0.1), "margins must hold at least one value"),
            (lambda: quantile_scale([0.0, 0.0, 1.0], 0.1, quantile=0.5), "no scale: the 0.5 quant"),
            (lambda: consistent_quantile_scale([np.inf]), "margins must be strictly between"),
            (lambda: consistent_quantile_scale([1.0], 0.0), "delta must be strictly between"),
            (lambda: consistent_quantile_scale([1.0, 0.0], quantile=0.0), "no scale"),
            (lambda: catoni_interval(np.ones(99), 0.0), "variance must be positive"),
            (lambda: catoni_interval(np.ones(99), [1.0, 2.0]), r"variance must broadcast .*\(2,\)"),
            (lambda: catoni_interval(np.ones(99), 1.0, 2.0), "delta must be strictly between"),
            (lambda: catoni_interval([], 1.0), "x must hold at least one value"),
        ],
    )
    def test_the_rules_and_the_interval_refuse(self, call, message):
        with pytest.raises(ValueError, match=message):
            call()


class TestTwoEstimates:
    """Equation est_BJL takes the hinge losses, the lemma's minimiser the margins (E4)."""

    margins = np.array([-0.5, 0.2, 0.9, 1.4, 3.0])

    def test_e4_the_minimiser_of_the_objective_is_the_estimate_of_the_margins(self):
        best = optimize.minimize_scalar(
            lambda level: rho((level - self.margins) / 0.7).sum(),
            bounds=(-1.0, 4.0),
            method="bounded",
            options={"xatol": 1e-9},
        )
        assert best.x == pytest.approx(catoni_location(self.margins, 0.7), abs=1e-6)

    def test_e4_the_estimate_of_the_hinge_losses_is_another(self):
        of_margins = catoni_location(self.margins, 0.7)
        of_losses = catoni_location(np.maximum(1.0 - self.margins, 0.0), 0.7)
        assert abs(of_losses - of_margins) > 0.3
        assert abs((1.0 - of_losses) - of_margins) > 0.1
        # Where no margin exceeds 1 the one is 1 less the other, and then only.
        short = self.margins[:3]
        of_losses = catoni_location(np.maximum(1.0 - short, 0.0), 0.7)
        assert of_losses == pytest.approx(1.0 - catoni_location(short, 0.7), rel=1e-14)


def test_e8_the_slope_needs_four_values():
    # The proof asks for m ≥ 3; but √2/2 + √(2/m) is at most √2, within the cubic, from m = 4 on.
    for m in (3, 4):
        slope = curvature(np.sqrt(0.5) + np.sqrt(2.0 / m))
        formula = 0.75 - (np.sqrt(m) + 1.0) / m
        assert slope == pytest.approx(0.0, abs=1e-15)
        assert formula == pytest.approx(0.0 if m == 4 else -0.1607, abs=1e-4)
