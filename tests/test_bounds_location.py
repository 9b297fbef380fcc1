"""The bounds of the location estimate, against 50 digits and exact probabilities."""

import math

import mpmath as mp
import numpy as np
import pytest
from bound_inputs import location_inputs
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from oracles import polynomial_roots
from scipy import integrate, stats

from marginpursuit.bounds import (
    location_bias_bound,
    location_bound,
    location_stability_bound,
)
from marginpursuit.location import catoni_interval, catoni_location, confidence_scale
from marginpursuit.losses import INFLUENCE_BOUND, curvature, influence

SQRT2 = math.sqrt(2.0)


# Location: error ----------------------------------------------------------------------------------


@settings(max_examples=60)
@given(
    st.floats(1e-3, 1e3),
    st.integers(1, 10**9),
    st.floats(1e-9, 0.999),
    st.floats(0.01, 100.0),
)
def test_radius_is_the_smallest_root_of_the_quadratic(variance, n, delta, factor):
    s = factor * math.sqrt(variance)
    result = location_bound(variance, n, delta, scale=s)
    with mp.workdps(50):
        v, scale, log_term = mp.mpf(variance), mp.mpf(s), mp.log(2 / mp.mpf(delta))
        share = v / scale**2 + 2 * log_term / n
        assert result.linear == pytest.approx(float(scale * share), rel=1e-13)
        assert result.bias == pytest.approx(float(v / scale), rel=1e-13)
        if share > 1:
            assert result.radius == math.inf or share < 1 + mp.mpf(10) ** -12
        else:
            # The root of r² - 2sr + s²q = 0 below s.
            root = scale * (1 - mp.sqrt(1 - share))
            assert result.radius == pytest.approx(float(root), rel=1e-6)
            assert root <= scale
            assert result.linear / 2 <= result.radius <= result.linear


@given(st.floats(1e-3, 1e3), st.integers(60, 10**6), st.floats(1e-5, 0.5))
def test_the_default_scale_minimises_the_bounds(variance, n, delta):
    best = location_bound(variance, n, delta)
    assert best.scale == confidence_scale(variance, n, delta)
    assert best.bias == pytest.approx(best.deviation)
    for factor in (0.9, 0.99, 1.01, 1.1):
        other = location_bound(variance, n, delta, scale=factor * best.scale)
        assert best.linear < other.linear
    interval = catoni_interval(np.zeros(n if n < 1000 else 1000), variance, delta=delta)
    if n < 1000:
        assert best.radius == pytest.approx(interval.radius, rel=1e-12)


def two_point_failure(n, p, s, radius):
    """Return the exact probability that |estimate - p| exceeds the radius for n Bernoulli draws."""
    ones = np.arange(n + 1)
    weight = np.column_stack([n - ones, ones])
    values = np.broadcast_to([0.0, 1.0], weight.shape)
    estimate = catoni_location(values, s, sample_weight=weight, axis=1)
    return stats.binom.pmf(ones, n, p)[np.abs(estimate - p) > radius * (1 + 1e-12)].sum()


@pytest.mark.parametrize("n", [10, 17, 40, 150])
def test_location_radius_holds_exactly_on_two_point_distributions(n):
    worst = 0.0
    for delta in (0.5, 0.1, 0.01, 1e-3):
        for p in (0.005, 0.05, 0.23, 0.5):
            best = location_bound(p * (1 - p), n, delta).scale
            for s in (0.3 * best, 0.7 * best, best, 1.5 * best, 4 * best):
                result = location_bound(p * (1 - p), n, delta, scale=s)
                if result.radius < math.inf:
                    failure = two_point_failure(n, p, s, result.radius)
                    worst = max(worst, failure / delta)
                    assert failure <= delta
    assert worst > 1e-3  # the probabilities are not negligible


def test_e3_printed_lemma_does_not_follow_and_is_false():
    n, p, delta = 10, 0.23, 0.001
    v, log_term = p * (1 - p), math.log(2 / delta)
    result = location_bound(v, n, delta)
    printed = math.sqrt(2 * v * log_term / n)
    assert result.linear == pytest.approx(2 * printed)
    assert n <= 4 * log_term
    assert result.radius == math.inf  # n is too small; the lemma does not state this
    assert two_point_failure(n, p, result.scale, printed) > 10 * delta
    # With n > 4 log(2/δ) the radius is finite and larger than the printed one.
    enough = location_bound(v, 100, delta)
    printed = math.sqrt(2 * v * log_term / 100)
    assert printed < enough.radius < 2 * printed


def test_e3_linear_bound_fails_if_the_radius_is_infinite():
    """For one draw the estimate is the draw; v/s + 2s log(2/δ) is too small for a heavy tail."""
    delta, p = 0.001, 0.005
    v = p * (1 - p)
    result = location_bound(v, 1, delta)
    assert result.radius == math.inf
    assert result.linear < 1 - p
    assert two_point_failure(1, p, result.scale, result.linear) == pytest.approx(p)
    assert p > delta


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"variance": 0.0}, "variance must be positive"),
        ({"n": 0}, "n must be a whole number"),
        ({"delta": 1.0}, "delta must be strictly between 0 and 1; got 1"),
        ({"delta": [0.1, 0.2]}, "delta must be a single number"),
        ({"scale": -1.0}, "scale must be positive"),
    ],
)
def test_location_bound_rejects_invalid_arguments(changes, message):
    with pytest.raises(ValueError, match=message):
        location_bound(**location_inputs(**changes))


# Location: bias -----------------------------------------------------------------------------------


def moments(x, weight=None):
    mean = np.average(x, weights=weight)
    z = x - mean
    return mean, {
        "variance": np.average(z**2, weights=weight),
        "absolute_third": np.average(np.abs(z) ** 3, weights=weight),
        "third": np.average(z**3, weights=weight),
        "fourth": np.average(z**4, weights=weight),
    }


samples = hnp.arrays(
    float,
    st.integers(2, 12),
    elements=st.floats(-10, 10).map(lambda x: round(x, 6))  # moments must not underflow
    | st.integers(-1000, 1000).map(float)
    | st.sampled_from([0.0, 1.0, 500.0]),
)


@settings(max_examples=300)
@given(samples, st.floats(-3, 3))
def test_estimate_is_within_the_bias_bound_of_the_mean(x, exponent):
    mean, m = moments(x)
    s = 10**exponent * max(math.sqrt(m["variance"]), 1e-3)
    result = location_bias_bound(s, **m)
    shift = catoni_location(x, s) - mean
    rounding = 1e-12 * (np.abs(x).max() + s)
    assert abs(shift) <= result.bound + rounding
    assert abs(shift) <= result.cubic + rounding
    assert abs(shift) <= result.spread + rounding
    assert result.bound == min(result.spread, result.cubic)
    assert abs(shift - result.expansion) <= result.remainder + rounding


@pytest.mark.parametrize("ratio", [0.2, 0.7, 0.72, 1.0, 3.0, 100.0])
@pytest.mark.parametrize("p", [0.001, 0.1, 0.4, 0.5])
def test_bias_bound_on_two_point_distributions(p, ratio):
    """Rare large values: the third absolute moment is the third moment, and the bound is tight."""
    x, weight = np.array([0.0, 1.0]), np.array([1 - p, p])
    mean, m = moments(x, weight)
    s = ratio * math.sqrt(m["variance"])
    shift = catoni_location(x, s, sample_weight=weight) - mean
    result = location_bias_bound(s, **m)
    assert abs(shift) <= result.bound * (1 + 1e-9) + 1e-15
    assert abs(shift - result.expansion) <= result.remainder * (1 + 1e-9) + 1e-15
    if p == 0.001 and ratio == 100.0:
        assert result.bound <= 1.01 * abs(shift)


def test_cubic_bound_is_the_smallest_root():
    with mp.workdps(50):
        for s, v, a in [(1.0, 0.5, 0.6), (3.0, 1.0, 7.0), (50.0, 4.0, 9.0), (1.0, 1.0, 1.9999)]:
            cubic = location_bias_bound(s, variance=v, absolute_third=a).cubic
            p = 2 * mp.mpf(s) ** 2 - v
            roots = [r.real for r in polynomial_roots([-1, 0, 3 * p, -a])]
            assert cubic == pytest.approx(float(min(r for r in roots if r > 0)), rel=1e-13)
    # Beyond the condition E|x - μ|³ ≤ 2(2s² - v)^(3/2) there is no root.
    for s, a in [(1.0, 2.0001), (0.75, 1.0), (0.7, 1.0)]:
        none = location_bias_bound(s, variance=1.0, absolute_third=a)
        assert (none.cubic, none.bound) == (math.inf, 1.0)


@given(st.floats(0.5, 100.0), st.floats(0.1, 10.0), st.floats(1.0, 3.0), st.floats(-1.0, 1.0))
def test_expansion_and_remainder_in_50_digits(scale, spread, heaviness, skew):
    absolute = heaviness * spread**3
    third, fourth = skew * absolute, (heaviness * spread) ** 4
    result = location_bias_bound(
        scale, variance=spread**2, absolute_third=absolute, third=third, fourth=fourth
    )
    with mp.workdps(50):
        s, v, m_3, m_4 = mp.mpf(scale), mp.mpf(spread) ** 2, mp.mpf(third), mp.mpf(fourth)
        d, k = mp.mpf(result.bound), (mp.sqrt(33) - 1) / 2
        quartic = mp.sqrt(2) / 12 * (k - 1) ** 2 * (k + 2) / k**4
        remainder = d * v / (2 * s**2) + d**3 / (6 * s**2)
        remainder += quartic / s**3 * (d**4 + 6 * d**2 * v + 4 * d * abs(m_3) + m_4)
        assert result.remainder == pytest.approx(float(remainder), rel=1e-12, abs=0)
        assert result.expansion == pytest.approx(float(-m_3 / (6 * s**2)), rel=1e-12, abs=1e-300)


def test_bias_bound_tends_to_a_sixth_of_the_third_moment():
    m = {"variance": 1.0, "absolute_third": 2.5, "third": -2.0, "fourth": 9.0}
    small, large = location_bias_bound(1e3, **m), location_bias_bound(1e6, **m)
    assert large.bound == pytest.approx(2.5 / 6e12, rel=1e-9, abs=0)
    assert large.expansion == pytest.approx(2.0 / 6e12, rel=1e-12, abs=0)
    assert small.remainder / large.remainder == pytest.approx(1e9, rel=1e-2)  # order 1/s³


def test_the_constants_of_the_bias_bound():
    u = np.linspace(SQRT2, 30, 2_000_001)
    largest = np.max((u**3 / 6 - u + INFLUENCE_BOUND) / u**4)
    # With s = 1, v = m₃ = 0 in the formula, the remainder is C m₄ plus terms of the bound.
    tiny = location_bias_bound(1.0, variance=1e-40, absolute_third=1e-30, third=0.0, fourth=1.0)
    assert tiny.remainder == pytest.approx(largest, rel=1e-9)
    # ψ is a mixture of clip functions, each of which is above its parabola.
    grid = np.linspace(-4, 4, 81)
    for point in grid:
        mixture, _ = integrate.quad(lambda k, u=point: k * np.clip(u, -k, k), 0, SQRT2, points=[1])
        assert mixture == pytest.approx(influence(point), abs=1e-8)
    u = np.linspace(-50, 50, 100_001)
    for k in np.r_[np.geomspace(0.01, 100, 60), 2 / 3, 3 / 2]:
        if k <= 2 / 3:
            parabola, mean = k - 2 * k * (u - 2) ** 2 / (2 + k) ** 2, k - 4 * k / (2 + k) ** 2
        elif k <= 3 / 2:
            parabola, mean = k - (u - 2) ** 2 / (8 - 4 * k), k - 2 / (8 - 4 * k)
        else:
            parabola, mean = u - (u - 1) ** 2 / (4 * k - 4), 1 - 1 / (4 * k - 4)
        assert np.all(parabola <= np.clip(u, -k, k) + 1e-9)
        assert mean > 0


def test_bias_bound_of_a_constant_and_at_extreme_scales():
    zero = {"variance": 0.0, "absolute_third": 0.0, "third": 0.0, "fourth": 0.0}
    result = location_bias_bound(1.0, **zero)
    assert (result.bound, result.expansion, result.remainder) == (0.0, 0.0, 0.0)
    m = {"variance": 1.0, "absolute_third": 2.0, "third": 1.0, "fourth": 5.0}
    assert location_bias_bound(1e-300, **m).bound == 1.0
    assert location_bias_bound(1e-300, **m).remainder == math.inf
    assert location_bias_bound(1e100, **m).bound == pytest.approx(2.0 / 6e200, rel=1e-12, abs=0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scale": 0.0}, "scale must be positive"),
        ({"variance": -1.0}, "variance must be in"),
        ({"variance": math.nan}, "variance must not be NaN"),
        ({"absolute_third": 0.5}, "variance is too large for absolute_third"),
        ({"third": 1.0}, "third and fourth must be given both or neither"),
        ({"third": 9.0, "fourth": 99.0}, "third is too large for absolute_third"),
        ({"third": 1.0, "fourth": 1.0}, "absolute_third is too large for fourth"),
    ],
)
def test_bias_bound_rejects_invalid_arguments(changes, message):
    with pytest.raises(ValueError, match=message):
        location_bias_bound(**({"scale": 1.0, "variance": 1.0, "absolute_third": 2.0} | changes))


# Location: stability ------------------------------------------------------------------------------


@pytest.mark.parametrize("blocks", [1, 3, 10])
@pytest.mark.parametrize("changed", [1, 2, 5])
@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_stability_bound_is_attained(blocks, changed, side):
    """16 values at the edge and 11 far on the other side balance: ψ(√2/2)/B = 11/16."""
    s, inside, far = 2.0, 16 * blocks, 1e6
    edge = np.full(inside, s * SQRT2 / 2 * (1 - 1e-12))
    x = np.r_[edge, np.full(changed, far), np.full(11 * blocks + changed, -far)] * side
    estimate = catoni_location(x, s)
    assert abs(estimate) < 1e-9
    y = x.copy()
    y[inside : inside + changed] *= -1
    moved = abs(catoni_location(y, s) - estimate)
    result = location_stability_bound(x.size, s, n_inside=inside, n_changed=changed)
    if result.bound < math.inf:
        assert moved == pytest.approx(result.bound, rel=1e-8)
    else:
        assert 6.4 * changed > inside
        assert moved > s * SQRT2 / 2  # beyond the range in which the values at the edge compensate


@settings(max_examples=200)
@given(st.integers(0, 2**32 - 1), st.integers(10, 120), st.integers(1, 8), st.floats(-1, 1.5))
def test_adversarial_changes_are_below_the_stability_bound(seed, n, changed, exponent):
    rng = np.random.default_rng(seed)
    x = rng.standard_t(2, size=n)
    s = 10**exponent
    estimate = catoni_location(x, s)
    inside = int(np.sum(np.abs(x - estimate) <= s * SQRT2 / 2))
    changed = min(changed, n)
    result = location_stability_bound(n, s, n_inside=inside, n_changed=changed)
    order = np.argsort(x)
    for chosen, value in [
        (order[:changed], 1e9),
        (order[-changed:], -1e9),
        (np.argsort(np.abs(x - estimate))[:changed], 1e9),
        (rng.permutation(n)[:changed], rng.normal(scale=10 * s, size=changed)),
    ]:
        y = x.copy()
        y[chosen] = value
        moved = abs(catoni_location(y, s) - estimate)
        assert moved <= result.bound * (1 + 1e-9) + 1e-12
        if result.proof >= result.bound:
            assert moved <= result.proof * (1 + 1e-9) + 1e-12


def test_e7_the_statement_is_true_from_31_values_on():
    """The proof gives 2s/√n for m ≥ n/2; the statement s/√n is true."""
    for n in range(31, 3000):
        result = location_stability_bound(n, 1.0)
        assert result.bound <= result.statement
        assert result.n_inside >= n / 2
    assert location_stability_bound(30, 1.0).bound > location_stability_bound(30, 1.0).statement
    big = location_stability_bound(400, 3.0)
    assert big.proof == pytest.approx(3 * 2 / math.sqrt(400))
    assert big.statement == pytest.approx(3 / math.sqrt(400))


def test_e8_e9_the_slope_of_the_proof():
    def corrected(m):
        return 3 / 4 - (math.sqrt(m) + 1) / m

    def printed(m):
        return 1 / 2 - 2 * (math.sqrt(m) + 1) / m

    def enough(slope, m):
        return m * math.sqrt(2 / m) * slope(m) >= 4 * SQRT2 / 3

    for m in (8, 24, 100, 5000):
        assert curvature(SQRT2 / 2 + math.sqrt(2 / m)) == pytest.approx(corrected(m), abs=1e-12)
    assert printed(24) < 0.01 < 0.5 < corrected(24)
    assert not enough(printed, 24)
    assert not enough(printed, 52)
    assert enough(printed, 53)
    assert all(enough(corrected, m) for m in range(13, 2000))
    assert not enough(corrected, 12)
    # Our own bound is below s√(2/m) from m = 7 on, and below s√(2k/m) from m = 7k on.
    for changed in (1, 3):
        for m in range(7 * changed, 2000):
            result = location_stability_bound(m, 1.0, n_inside=m, n_changed=changed)
            assert result.bound <= result.proof
            assert result.proof == pytest.approx(math.sqrt(2 * changed / m))


def test_e10_a_changed_value_may_be_one_of_those_inside():
    """A change of a value at the edge has at most the effect of a change of a distant value."""
    s, far = 1.0, 1e6
    x = np.r_[np.full(32, s * SQRT2 / 2 * (1 - 1e-12)), far, np.full(23, -far)]
    estimate = catoni_location(x, s)
    y, z = x.copy(), x.copy()
    y[0] = -far
    z[32] = -far
    bound = location_stability_bound(x.size, s, n_inside=32).bound
    inside, outside = (estimate - catoni_location(other, s) for other in (y, z))
    assert 0 < inside < outside
    assert outside <= bound * (1 + 1e-8)


def test_stability_bound_in_50_digits_and_at_its_limits():
    with mp.workdps(50):
        edge, bound = mp.sqrt(2) / 2, 2 * mp.sqrt(2) / 3
        level = edge - edge**3 / 6
        for m, changed in [(7, 1), (32, 5), (64, 10), (1000, 3), (10**6, 1), (10**14, 1)]:
            result = location_stability_bound(m, 2.0, n_inside=m, n_changed=changed)
            target = min(level + 2 * bound * changed / m, bound)
            root = 2 * mp.sqrt(2) * mp.sin(mp.asin(target / bound) / 3)
            # At m = 6.4 k the derivative is zero, and the root has half of the digits.
            precision = 1e-7 if m < 100 else 1e-12
            assert result.bound == pytest.approx(float(2 * (root - edge)), rel=precision, abs=0)
    assert location_stability_bound(6, 1.0, n_inside=6).bound == math.inf
    assert location_stability_bound(63, 1.0, n_inside=63, n_changed=10).bound == math.inf
    none = location_stability_bound(5, 1.0, n_inside=0, n_changed=0)
    assert (none.bound, none.proof, none.statement) == (0.0, 0.0, 0.0)
    assert location_stability_bound(5, 1.0, n_inside=0).bound == math.inf


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n": 0}, "n must be a whole number"),
        ({"scale": 0.0}, "scale must be positive"),
        ({"n_inside": 11}, "n_inside must be at most n = 10; got 11"),
        ({"n_inside": -1}, "n_inside must be a whole number of at least 0"),
        ({"n_changed": 11}, "n_changed must be at most n = 10; got 11"),
        ({"n_changed": 1.5}, "n_changed must be a whole number"),
    ],
)
def test_stability_bound_rejects_invalid_arguments(changes, message):
    with pytest.raises(ValueError, match=message):
        location_stability_bound(**({"n": 10, "scale": 1.0} | changes))


@pytest.mark.parametrize("constant", [0.5, 0.8, 3.0])
def test_general_constant_of_the_envelope(constant):
    """The radius is the smallest root of the quadratic with C, and the scale minimises the sum."""
    v, n, delta = 2.0, 400, 0.02
    found = location_bound(v, n, delta, constant=constant)
    level = math.log(2 / delta)
    s, r = found.scale, found.radius
    assert -r / s + constant * (v + r * r) / s**2 + level / n == pytest.approx(0.0, abs=1e-12)
    assert r <= s / (2 * constant)  # the smaller of the two roots
    assert found.linear == pytest.approx(2 * constant * v / s + 2 * s * level / n)
    assert s**2 == pytest.approx(n * constant * v / level)
    for factor in (0.9, 1.1):
        other = location_bound(v, n, delta, constant=constant, scale=factor * s)
        assert other.linear > found.linear
    assert location_bound(v, 5, delta, constant=constant).radius == math.inf


def test_constant_of_the_envelope_is_at_least_one_half():
    with pytest.raises(ValueError, match=r"constant must be at least 0\.5"):
        location_bound(1.0, 100, 0.1, constant=0.49)
