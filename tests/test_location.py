"""The location estimate against 50-digit arithmetic, and what the paper proves of it as properties.

The oracle solves the equation by bisection with mpmath on the very floats that the library is
given. Tests of errata show where the printed statement fails and that the one used here holds.
"""

import mpmath as mp
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from location_cases import (
    EPSILON,
    ROOT2,
    SAMPLES,
    WEIGHTS,
    assert_solves,
    equation,
    reference,
    rounding,
    samples,
    scales,
    values,
)
from numpy.testing import assert_allclose, assert_array_equal
from scipy import optimize

from marginpursuit import _catoni_root
from marginpursuit.location import (
    catoni_location,
)
from marginpursuit.losses import INFLUENCE_BOUND, TRUNCATION, curvature, influence, rho


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

    def test_rows_are_independent_of_each_other_and_of_blocks(self):
        rng = np.random.default_rng(2)
        x = rng.standard_t(2.1, size=(40, 25)) * 10.0 ** rng.uniform(-5, 5, (40, 1))
        scale = 10.0 ** rng.uniform(-7, 7, 40)
        weight = rng.integers(0, 3, x.shape) + (np.arange(25) == 0)
        rows = list(zip(x, scale, weight, strict=True))
        expected = [catoni_location(r, s) for r, s, _ in rows]
        assert_array_equal(catoni_location(x, scale, axis=1), expected)
        expected = [catoni_location(r, s, sample_weight=w) for r, s, w in rows]
        found = catoni_location(x, scale, axis=1, sample_weight=weight)
        assert_allclose(found, expected, rtol=2e-16)
        for weights in (None, weight + 0.5):
            found = [
                _catoni_root.catoni_roots(x, weights, scale, block_elements=block)
                for block in (1, 60, 1 << 16)
            ]
            assert_allclose(found[1], found[0], rtol=2e-16)
            assert_allclose(found[2], found[0], rtol=2e-16)


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


def test_e33_the_example_of_rays_at_finite_scales():
    """Margins of the best ray: 1 with probability 2/3, -1 with probability 1/3."""
    margins = [1.0, 1.0, -1.0]
    assert catoni_location(margins, 1e6) == pytest.approx(1 / 3)
    assert catoni_location(margins, 1.0) == pytest.approx(0.509, abs=5e-4)
    assert catoni_location(margins, 0.3) == pytest.approx(0.853, abs=5e-4)
    estimates = [float(catoni_location(margins, s)) for s in np.geomspace(1e-4, 1e4, 60)]
    assert np.all(np.diff(estimates) < 0)
    assert 1 / 3 < estimates[-1] < estimates[0] < 1
    # A level between 1/3 and the estimate is exceeded: the opposite of the remark.
    assert catoni_location(margins, 1.0) > 0.5
    # The best ray minimises the risk of the new loss too, which increases with the error rate.
    for level, scale in ((0.4, 1.0), (1.0, 0.3), (2.0, 5.0)):
        assert rho((level + 1) / scale) > rho((level - 1) / scale)


class TestStatementsOfSection2:
    """Statements of the text on the estimate, which no proposition of the paper has."""

    @given(
        st.lists(st.floats(-100, 100), min_size=1, max_size=30),
        st.floats(0.05, 20.0),
        st.floats(0.01, 3.0),
    )
    def test_the_majority_is_not_far_on_one_side(self, values, scale, distance):
        values = np.array(values)
        estimate = float(catoni_location(values, scale))
        # The sum of the influences is zero: a fraction p with at least ψ(u) each, and the others
        # with at least -B each, so that p ψ(u) <= (1 - p) B.
        limit = INFLUENCE_BOUND / (INFLUENCE_BOUND + influence(distance))
        rounding = 1e-9 * (scale + np.abs(values).max())
        for sign in (1.0, -1.0):
            is_far = sign * (estimate - values) > distance * scale + rounding
            assert np.mean(is_far) <= limit + 1e-9
        assert_allclose(
            INFLUENCE_BOUND / (INFLUENCE_BOUND + influence(TRUNCATION)), 0.5, rtol=1e-12
        )

    def test_the_limit_of_the_majority_is_attained(self):
        # Half of the values are √2 s below the estimate, and the others any distance above.
        values = np.array([-TRUNCATION, -TRUNCATION, 50.0, 90.0])
        assert_allclose(influence(0.0 - values).sum(), 0.0, atol=1e-12)

    def test_the_estimate_of_the_hinge_risk_is_not_convex(self):
        inputs = np.array([0.0, -3.0, 1.0, 4.0, 1.0, -4.0, -4.0])  # y x, one column

        def estimate(coef):
            return float(catoni_location(np.maximum(1.0 - coef * inputs, 0.0), 1.0))

        assert estimate(0.5) > 0.5 * (estimate(0.0) + estimate(1.0)) + 0.27

    @pytest.mark.parametrize(("scale", "fewest", "most"), [(10.0, 1, 10), (0.05, 100, 10_000)])
    def test_fixed_point_steps_end_at_the_root_that_is_computed_directly(self, scale, fewest, most):
        values = np.random.default_rng(0).standard_t(2.1, 201)
        root, point, steps = float(catoni_location(values, scale)), float(values.mean()), 0
        while abs(point - root) > 1e-8:
            point += scale * float(influence((values - point) / scale).mean())
            steps += 1
        assert fewest <= steps <= most
