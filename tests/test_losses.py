"""The loss and its pieces against 50-digit arithmetic, finite differences and the paper."""

import pickle
import re
from dataclasses import FrozenInstanceError, replace

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import BOUND, EPS, LARGEST, ROOT2, exact_margin_loss, neighbours, ulps, with_signs
from oracles import exact_rho as exact
from strategies import positives, reals, unit

from marginpursuit.losses import (
    INFLUENCE_BOUND,
    TRUNCATION,
    MarginLoss,
    curvature,
    influence,
    influence_inverse,
    rho,
)


def exact_rho(u):
    return exact("catoni", u)[0]


def exact_influence(u):
    return exact("catoni", u)[1]


def exact_curvature(u):
    return exact("catoni", u)[2]


POINTS = with_signs(
    neighbours(TRUNCATION),
    neighbours(INFLUENCE_BOUND),
    neighbours(1.0, 3),
    TRUNCATION * (1 - 10.0 ** -np.arange(1, 16)),
    np.linspace(0, 3, 601),
    10.0 ** np.arange(-320, 309, 7),
    [0.0, 5e-324, 1.5e-323, 2.2e-308, 1e-160, 2e-162, 1e300, LARGEST],
)
VALUES = with_signs(
    neighbours(INFLUENCE_BOUND, 40)[:41],
    neighbours(0.9 * INFLUENCE_BOUND, 3),
    INFLUENCE_BOUND * (1 - 10.0 ** -np.arange(1, 16)),
    np.linspace(0, 0.94, 601),
    10.0 ** np.arange(-320, 0, 7),
    [0.0, 5e-324, 1e-323, 2.2e-308],
)
PIECES = [(rho, exact_rho), (influence, exact_influence), (curvature, exact_curvature)]


@pytest.mark.parametrize(("function", "oracle"), PIECES)
def test_pieces_are_right_to_the_last_digits(function, oracle):
    worst = max(ulps(y, oracle(u)) for u, y in zip(POINTS, function(POINTS), strict=True))
    assert worst < 2.2


@pytest.mark.parametrize(("function", "oracle"), PIECES)
def test_pieces_round_float32_correctly(function, oracle):
    points = POINTS[np.abs(POINTS) < 1e38].astype(np.float32)
    results = function(points)
    assert results.dtype == np.float32
    assert max(ulps(y, oracle(float(u))) for u, y in zip(points, results, strict=True)) <= 0.501


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_inverse_is_right_to_the_last_digits(dtype):
    """ψ increases, so ψ⁻¹(c) is right to k ulps when ψ at u ± k ulps encloses c."""
    values = VALUES.astype(dtype)
    points = influence_inverse(values)
    slack = {np.float64: 2.5, np.float32: 0.501}[dtype] * np.spacing(np.abs(points))
    assert points.dtype == dtype
    for c, u, step in zip(values.tolist(), points.tolist(), slack.tolist(), strict=True):
        target = min(max(mp.mpf(c), -BOUND), BOUND)
        low, high = mp.mpf(u) - mp.mpf(step), mp.mpf(u) + mp.mpf(step)
        assert exact_influence(low) <= target <= exact_influence(high)
        assert abs(u) <= dtype(TRUNCATION)


@given(st.floats(-INFLUENCE_BOUND, INFLUENCE_BOUND))
def test_influence_undoes_its_inverse(c):
    assert influence(influence_inverse(c)) == pytest.approx(c, rel=4 * EPS, abs=5e-324)


@given(st.one_of(reals, st.floats(-2, 2)), st.sampled_from([np.float64, np.float32]))
def test_inverse_accepts_every_influence(u, dtype):
    """And gives u back, as well as the flat top of ψ allows: to √eps, not eps."""
    with np.errstate(over="ignore"):
        u = dtype(u)
    tolerance = 4 * float(np.finfo(dtype).eps) ** 0.5
    assert abs(influence_inverse(influence(u)) - np.clip(u, -ROOT2, ROOT2)) <= tolerance


def test_constants():
    assert float(ROOT2) == TRUNCATION
    assert np.nextafter(INFLUENCE_BOUND, 0) < BOUND <= INFLUENCE_BOUND
    assert influence_inverse(INFLUENCE_BOUND) == TRUNCATION
    assert influence_inverse(-INFLUENCE_BOUND) == -TRUNCATION


@pytest.mark.parametrize("u", [np.inf, -np.inf, np.float32("inf")])
def test_pieces_at_infinity(u):
    assert rho(u) == np.inf
    assert influence(u) == np.sign(u) * type(influence(u))(INFLUENCE_BOUND)
    assert curvature(u) == 0


def test_zeros_keep_their_sign():
    for function in (influence, influence_inverse):
        np.testing.assert_array_equal(np.signbit(function([0.0, -0.0])), [False, True])


# What the paper says of ρ and ψ.


def test_pieces_join_at_the_truncation():
    """The printed constant C₂ = -1/2 is the one that makes ρ continuous at √2."""
    assert mp.almosteq(ROOT2**2 / 2 - ROOT2**4 / 24, BOUND * ROOT2 - mp.mpf(1) / 2)
    assert rho(10.0) == pytest.approx(10 * 2 * np.sqrt(2) / 3 - 0.5, rel=2 * EPS)
    for function in (rho, influence, curvature):
        values = function(neighbours(TRUNCATION, 3))
        assert np.ptp(values) < 2e-15


def test_e5_influence_saturates_below_the_truncation_point():
    """The proof lets saturated summands be ±√2; they are ±2√2/3."""
    assert influence(np.sqrt(2)) == pytest.approx(0.9428, abs=1e-4)
    np.testing.assert_allclose(influence([-1e9, 1e9]), [-INFLUENCE_BOUND, INFLUENCE_BOUND], rtol=0)


@pytest.mark.parametrize("m", [24, 53, 1000])
def test_e8_slope_in_the_stability_proof(m):
    """The proof drops a factor 1/2: it takes 1 - u² for 1 - u²/2."""
    slope = curvature(np.sqrt(2) / 2 + np.sqrt(2 / m))
    assert slope == pytest.approx(3 / 4 - (np.sqrt(m) + 1) / m, rel=1e-13)
    assert slope > 1 / 2 - 2 * (np.sqrt(m) + 1) / m + 0.2


@given(st.one_of(reals, st.floats(-3, 3)))
def test_influence_is_odd_bounded_and_dominated(u):
    assert influence(-u) == -influence(u)
    assert abs(influence(u)) <= min(abs(u), INFLUENCE_BOUND)
    assert rho(-u) == rho(u) >= 0
    assert 0 <= curvature(u) <= 1


def assert_in_envelope(u, psi):
    # Written in log1p, which keeps the bounds' digits near 0, where they touch ψ to third order.
    with np.errstate(under="ignore"):
        upper, lower = np.log1p(u + u * u / 2), -np.log1p(-u + u * u / 2)
    slack = 4 * EPS * np.abs(psi)
    assert np.all(lower - slack <= psi)
    assert np.all(psi <= upper + slack)


def test_influence_lies_in_the_envelope_on_a_grid():
    u = np.concatenate([np.linspace(-5, 5, 200_001), POINTS[np.abs(POINTS) < 1e150]])
    assert_in_envelope(u, influence(u))


@given(st.one_of(st.floats(-1e150, 1e150), st.floats(-3, 3)))
def test_influence_lies_in_the_envelope(u):
    assert_in_envelope(u, influence(u))


@given(st.floats(-4, 4), st.floats(-4, 4))
def test_lipschitz_constants(u, v):
    distance = abs(u - v)
    assert abs(rho(u) - rho(v)) <= INFLUENCE_BOUND * distance + 8 * EPS
    assert abs(influence(u) - influence(v)) <= distance + 4 * EPS


def test_lipschitz_constants_are_attained():
    assert rho(1e6 + 1) - rho(1e6) == pytest.approx(INFLUENCE_BOUND, rel=1e-9)
    assert influence(1e-9) / 1e-9 == 1


# The loss of a margin.

moderate = st.floats(0.01, 100)
moderate_losses = st.builds(MarginLoss, moderate, moderate, unit)
extreme_losses = st.builds(MarginLoss, positives, positives, unit)


@st.composite
def losses_and_margins(draw, losses, count=1, largest=1e307):
    """Draw a loss and margins of any size or within a few scales of its level."""
    loss = draw(losses)
    near = st.floats(-4, 4).map(lambda t: loss.margin + t * loss.scale)
    margin = st.one_of(st.floats(-largest, largest), near)
    return loss, *(draw(margin) for _ in range(count))


# Bounds of a first-order rounding analysis, one unit for each rounding of 2⁻⁵³ relative. Value:
# the residual's rounding counts twice where φ is quadratic and 1.6 times where it is linear, and
# five more follow. Derivative: the residual, the bracket (3), and the two products.
VALUE_ULPS = 7
DERIVATIVE_ULPS = 6


def assert_matches_oracle(loss, margin):
    value, derivative, second = exact_margin_loss(loss, margin)
    if abs(value / LARGEST - 1) > VALUE_ULPS * EPS:  # else either side of overflow is right
        assert ulps(loss.value(margin), value) <= VALUE_ULPS
    assert ulps(loss.derivative(margin), derivative) <= DERIVATIVE_ULPS
    # The residual itself is rounded, so near s√2 only absolute precision is to be had.
    assert abs(float(mp.mpf(float(loss.curvature(margin))) - second)) <= 3 * EPS


@pytest.mark.parametrize("scale", [5e-324, 1e-300, 1e-154, 1e-8, 0.3, 1.0, 7.0, 1e154, 1e300])
@pytest.mark.parametrize("overconfidence", [0.0, 1e-300, 0.25, 1.0])
def test_loss_matches_mpmath_on_a_grid(scale, overconfidence):
    """With results from underflow to overflow, 5e-324 and 1e300 times any margin among them."""
    for level in {1e-300, 1.0, 3 * scale, 1e280}:
        loss = MarginLoss(level, scale, overconfidence)
        near = level + scale * np.array([-9.0, -2.0, -1.42, -1.41, -1.0, -1e-3, 0.0, 1e-9])
        far = with_signs([0.0, 1e-310, 1e-100, 1e-8, 1.0, 2.5, 1e8, 1e100, 1e250, 1e307])
        for margin in np.concatenate([near, 2 * level - near, far]).tolist():
            assert_matches_oracle(loss, margin)


@given(losses_and_margins(extreme_losses))
def test_loss_matches_mpmath(drawn):
    assert_matches_oracle(*drawn)


@pytest.mark.parametrize("overconfidence", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("scale", [1e-300, 0.5, 1.5e308, LARGEST])
def test_loss_at_the_ends_of_the_line(overconfidence, scale):
    """No inf · 0 and no inf - inf, not even where s√2 overflows."""
    loss = MarginLoss(1.0, scale, overconfidence)
    ends = np.array([-np.inf, np.inf])
    slope = scale * INFLUENCE_BOUND
    np.testing.assert_array_equal(loss.value(ends), [np.inf, np.inf if overconfidence else 0])
    np.testing.assert_array_equal(loss.derivative(ends), [-slope, overconfidence * slope])
    np.testing.assert_array_equal(loss.curvature(ends), [0, 0])


def test_residual_beyond_the_largest_float_counts_as_infinite():
    loss = MarginLoss(1e300, scale=2.0)
    assert loss.value(-LARGEST) == np.inf
    assert loss.derivative(-LARGEST) == -2 * INFLUENCE_BOUND
    assert loss.curvature(-LARGEST) == 0


def test_value_is_finite_up_to_the_largest_float():
    """u²/2 overflows before u²/2 (1 - u²/12) does."""
    loss = MarginLoss(scale=1.45e154)
    margin = -1.41 * 1.45e154
    assert 0.5 * margin * margin == np.inf
    assert_matches_oracle(loss, margin)
    assert np.isfinite(loss.value(margin))


def test_nothing_underflows_aloud():
    with np.errstate(all="raise"):
        for function in (rho, influence, curvature, influence_inverse):
            function([5e-324, 1e-310, 1e-200, 1e-30])
            function(np.float32([1e-45, 1e-30]))
        for scale in (1e-300, 1.0, 1e300):
            loss = MarginLoss(1.0, scale, overconfidence=1e-300)
            for method in (loss.value, loss.derivative, loss.curvature):
                method([-LARGEST, -1.0, 1.0 - EPS, 1.0 + EPS, 1e-310, LARGEST])


@pytest.mark.parametrize("overconfidence", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("scale", [0.2, 1.0, 30.0])
@pytest.mark.parametrize("level", [0.5, 2.0])
def test_derivatives_by_finite_differences(level, scale, overconfidence):
    loss = MarginLoss(level, scale, overconfidence)
    margin = level + scale * np.linspace(-3, 3, 302)  # even: the kink of φ' is not among them
    step = 1e-5 * scale
    for function, slope, unit_of_function in (
        (loss.value, loss.derivative, scale**2),
        (loss.derivative, loss.curvature, scale),
    ):
        difference = (function(margin + step) - function(margin - step)) / (2 * step)
        error = np.abs(difference - slope(margin))
        assert error.max() < 1e-5 * unit_of_function / scale


@given(losses_and_margins(moderate_losses, 2, largest=1e150))
def test_loss_lies_between_its_tangent_and_its_majoriser(drawn):
    """Convex, with curvature at most 1: φ(a) + φ'(a)(b - a) + [0, (b - a)²/2] encloses φ(b)."""
    loss, a, b = drawn
    step = b - a
    tangent = loss.value(a) + loss.derivative(a) * step
    slack = 16 * EPS * (loss.value(a) + loss.value(b) + abs(loss.derivative(a)) * abs(step))
    slack += 16 * EPS * loss.scale * max(abs(a), abs(b), loss.margin)
    assert tangent - slack <= loss.value(b)
    assert loss.value(b) <= tangent + step * step / 2 + slack


@given(losses_and_margins(extreme_losses, 2))
def test_derivative_increases_within_its_bounds(drawn):
    loss, *margins = drawn
    low, high = np.sort(margins)
    assert loss.derivative(low) <= loss.derivative(high) + 4 * EPS * abs(loss.derivative(high))
    assert np.all(np.abs(loss.derivative(margins)) <= loss.scale * INFLUENCE_BOUND)
    assert np.all(loss.value(margins) >= 0)
    weight = np.where(np.array(margins) > loss.margin, loss.overconfidence, 1)
    assert np.all((loss.curvature(margins) >= 0) & (loss.curvature(margins) <= weight))


@given(extreme_losses)
def test_loss_is_smooth_at_its_level(loss):
    """C¹: value and slope vanish from both sides; the curvature is the one from below."""
    below, level, above = neighbours(loss.margin, 1)
    gap = above - below
    assert loss.value(level) == loss.derivative(level) == 0
    assert loss.curvature(level) == 1
    assert -gap <= loss.derivative(below) < 0 <= loss.derivative(above) <= gap
    with np.errstate(over="ignore"):
        assert 0 <= loss.value([below, above]).max() <= gap * gap


@given(losses_and_margins(extreme_losses))
def test_overconfidence_weighs_the_side_above(drawn):
    loss, margin = drawn
    symmetric, one_sided = replace(loss, overconfidence=1), replace(loss, overconfidence=0)
    for name in ("value", "derivative", "curvature"):
        both, one, some = (getattr(x, name)(margin) for x in (symmetric, one_sided, loss))
        if margin <= loss.margin:
            assert some == both == one
        else:
            assert one == 0
            if np.isfinite(both):
                weighed = loss.overconfidence * both
                assert abs(some - weighed) <= 5 * max(np.spacing(abs(weighed)), 5e-324)


@given(st.integers(-(2**20), 2**20), st.sampled_from([0.25, 1.0, 64.0]))
def test_full_overconfidence_is_symmetric(k, scale):
    loss, step = MarginLoss(3.0, scale), k / 1024
    assert loss.value(3.0 - step) == loss.value(3.0 + step) == scale**2 * rho(step / scale)
    assert loss.derivative(3.0 - step) == -loss.derivative(3.0 + step)
    assert loss.curvature(3.0 - step) == loss.curvature(3.0 + step)


@given(st.floats(5e-324, LARGEST), st.floats(5e-324, LARGEST), st.floats(0, 1))
def test_e24_loss_is_classification_calibrated(level, scale, overconfidence):
    """φ'(0) = -sρ'(γ/s) < 0, whatever the parameters; the printed -ρ(γ) lacks a prime."""
    slope = MarginLoss(level, scale, overconfidence).derivative(0)
    assert slope < 0
    exact = -mp.mpf(scale) * exact_influence(mp.mpf(level) / mp.mpf(scale))
    assert ulps(slope, exact) <= DERIVATIVE_ULPS


def test_e24_printed_derivative_is_the_loss():
    assert MarginLoss(1.0).derivative(0.0) == pytest.approx(-5 / 6)
    assert -rho(1.0) == pytest.approx(-11 / 24)


@pytest.mark.parametrize("eta", [0.0, 0.2, 0.49, 0.51, 0.9, 1.0])
@pytest.mark.parametrize("overconfidence", [0.0, 0.5, 1.0])
def test_e25_conditional_risk_pulls_to_the_likelier_class(eta, overconfidence):
    """With ηφ(h) + (1 - η)φ(-h); as printed, φ(yh) twice, the risk would not depend on η."""
    loss = MarginLoss(1.2, 0.7, overconfidence)
    score = np.linspace(-2, 2, 4001)
    risk = eta * loss.value(score) + (1 - eta) * loss.value(-score)
    assert np.sign(score[risk.argmin()]) == np.sign(eta - 0.5)


# Parameters.


@pytest.mark.parametrize(
    ("parameters", "error", "words"),
    [
        ({"margin": 0}, ValueError, "margin must be positive and finite; got 0"),
        ({"margin": -0.25}, ValueError, "margin must be positive and finite; got -0.25"),
        ({"margin": np.inf}, ValueError, "margin must be positive and finite; got inf"),
        ({"margin": np.nan}, ValueError, "margin must not be NaN; got nan"),
        ({"margin": [1, 2]}, ValueError, "margin must be a single number; got an array of shape"),
        ({"margin": [1.0]}, ValueError, "margin must be a single number; got an array of shape"),
        ({"margin": None}, TypeError, "margin must hold real numbers; got None"),
        ({"scale": 0.0}, ValueError, "scale must be positive and finite; got 0"),
        ({"scale": -1e-300}, ValueError, "scale must be positive and finite; got -1e-300"),
        ({"scale": np.inf}, ValueError, "scale must be positive and finite; got inf"),
        ({"scale": np.nan}, ValueError, "scale must not be NaN; got nan"),
        ({"scale": "auto"}, TypeError, "scale must hold real numbers; got 'auto'"),
        ({"scale": 1j}, TypeError, "scale must hold real numbers; got 1j"),
        ({"overconfidence": -1e-9}, ValueError, "overconfidence must be in [0, 1]; got -1e-09"),
        (
            {"overconfidence": 1 + 1e-12},
            ValueError,
            "overconfidence must be in [0, 1]; got 1.000000000001",
        ),
        ({"overconfidence": np.nan}, ValueError, "overconfidence must not be NaN; got nan"),
    ],
)
def test_loss_refuses_parameters(parameters, error, words):
    with pytest.raises(error, match=f"^{re.escape(words)}"):
        MarginLoss(**parameters)


@given(extreme_losses)
def test_loss_is_a_value(loss):
    twin = MarginLoss(np.float64(loss.margin), np.array(loss.scale), loss.overconfidence)
    assert twin == loss
    assert hash(twin) == hash(loss)
    assert pickle.loads(pickle.dumps(loss)) == loss
    assert eval(repr(loss)) == loss
    assert loss != replace(loss, scale=2 * loss.scale)


def test_loss_is_frozen_and_holds_floats():
    loss = MarginLoss(np.float32(2), True, 0)
    assert [type(x) for x in (loss.margin, loss.scale, loss.overconfidence)] == [float] * 3
    assert MarginLoss() == MarginLoss(1, 1, 1)
    with pytest.raises(FrozenInstanceError):
        loss.scale = 2.0
    with pytest.raises((AttributeError, TypeError)):
        object.__setattr__(loss, "other", 1)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("sign", [-1, 1])
def test_inverse_domain_ends_at_the_bound_as_rounded(dtype, sign):
    edge = dtype(sign * INFLUENCE_BOUND)
    assert influence_inverse(edge) == sign * influence_inverse(dtype(0.5)).dtype.type(TRUNCATION)
    beyond = np.nextafter(edge, dtype(2 * sign))
    words = rf"^c must be in \[-(0\.94\d+), \1\]; got {float(beyond)}$"
    with pytest.raises(ValueError, match=words) as caught:
        influence_inverse(beyond)
    assert f", {abs(float(edge))}]" in str(caught.value)


@pytest.mark.parametrize("c", [1, True, 2, np.inf, -np.inf])
def test_inverse_refuses_what_influence_never_reaches(c):
    with pytest.raises(ValueError, match=r"^c must be in \[-0.94\d+, 0.94\d+\]; got "):
        influence_inverse(c)
