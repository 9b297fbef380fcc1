"""The confidence interval, the rules for the scale, and what the functions of location refuse."""

import mpmath as mp
import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from location_cases import (
    EPSILON,
    samples,
)
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from marginpursuit.location import (
    CatoniInterval,
    catoni_interval,
    catoni_location,
    confidence_scale,
    consistent_quantile_scale,
    quantile_scale,
    variance_scale,
)


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
            (
                lambda: quantile_scale([0.0, 0.0, 1.0], 0.1, quantile=0.5),
                "the 0.5 quantile .* must be positive",
            ),
            (lambda: consistent_quantile_scale([np.inf]), "margins must be strictly between"),
            (lambda: consistent_quantile_scale([1.0], 0.0), "delta must be strictly between"),
            (
                lambda: consistent_quantile_scale([1.0, 0.0], quantile=0.0),
                "must be positive; got 0. Choose a larger quantile",
            ),
            (lambda: catoni_interval(np.ones(99), 0.0), "variance must be positive"),
            (lambda: catoni_interval(np.ones(99), [1.0, 2.0]), r"variance must broadcast .*\(2,\)"),
            (lambda: catoni_interval(np.ones(99), 1.0, 2.0), "delta must be strictly between"),
            (lambda: catoni_interval([], 1.0), "x must hold at least one value"),
        ],
    )
    def test_the_rules_and_the_interval_refuse(self, call, message):
        with pytest.raises(ValueError, match=message):
            call()


def test_default_confidence_of_the_interval():
    values = np.random.default_rng(0).normal(size=50)
    assert catoni_interval(values, 1.0) == catoni_interval(values, 1.0, 0.05)
    assert catoni_interval(values, 1.0) != catoni_interval(values, 1.0, 0.1)
