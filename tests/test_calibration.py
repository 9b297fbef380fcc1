"""Calibration against brute-force minimisation of the conditional risk in mpmath.

The oracle knows the definition of the loss and nothing of the closed forms: it bisects the
derivative of the conditional risk, which is convex.
"""

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mpf

from marginpursuit.calibration import (
    conditional_risk,
    cubic_roots,
    optimal_score,
    probability,
    psi_inverse,
    psi_transform,
)
from marginpursuit.losses import MarginLoss, influence, rho

ROOT2 = float(np.sqrt(2.0))
BOUND = 2 * ROOT2 / 3


# --- the oracle ---------------------------------------------------------------------------------


def mp_rho(u):
    u, root = abs(u), mpmath.sqrt(2)
    return u**2 / 2 - u**4 / 24 if u <= root else 2 * root / 3 * u - mpf(1) / 2


def mp_influence(u):
    root = mpmath.sqrt(2)
    return u - u**3 / 6 if abs(u) <= root else mpmath.sign(u) * 2 * root / 3


def mp_risk(eta, u, margin, scale):
    return scale**2 * (
        eta * mp_rho((margin - u) / scale) + (1 - eta) * mp_rho((margin + u) / scale)
    )


def brute(eta, margin, scale, digits=50):
    """Minimiser and minimum of the conditional risk, and φ(0) less the minimum."""
    with mpmath.workdps(digits):
        eta, margin, scale = mpf(eta), mpf(float(margin)), mpf(float(scale))
        low, high = (mpf(0), margin) if eta > 0.5 else (-margin, mpf(0))
        for _ in range(int(3.33 * digits)):
            u = (low + high) / 2
            slope = (1 - eta) * mp_influence((margin + u) / scale) - eta * mp_influence(
                (margin - u) / scale
            )
            low, high = (u, high) if slope < 0 else (low, u)
        least = mp_risk(eta, u, margin, scale)
        return u, least, scale**2 * mp_rho(margin / scale) - least


def relative(value, exact):
    return float(abs(mpf(float(value)) - exact) / abs(exact))


def around(x):
    return [float(np.nextafter(x, 0)), float(x), float(np.nextafter(x, 9))]


RATIOS = [1e-3, 0.1, *around(ROOT2 / 2), 0.8, 1.0, 1.3, *around(ROOT2), 1.5, 3.0, 1e3]
NEAR_ROOT2 = [ROOT2 * (1 + x) for x in (-1e-4, -1e-8, -1e-12, 1e-12, 1e-8)]


def switch(ratio):
    """The η₀ at which the double cube gives way to the single cube."""
    return float(1 / (1 + influence(2 * ratio - ROOT2) / BOUND))


def interesting(ratio):
    """Probabilities: the ends, the middle, and both sides of the switch."""
    etas = [1e-12, 0.01, 0.3, 0.5 - 1e-9, 0.5 + 2**-53, 0.5 + 1e-12, 0.7, 0.99, 1 - 1e-12]
    if ROOT2 / 2 < ratio < ROOT2:
        etas += [*around(switch(ratio)), 1 - switch(ratio)]
    return [eta for eta in etas if eta != 0.5]  # where u = 0, and nothing is left to compare


@pytest.mark.parametrize("ratio", RATIOS + NEAR_ROOT2)
def test_risk_and_score_match_brute_force(ratio):
    # A scale that is a power of two leaves γ/s exact; the other does not.
    for scale, etas in ((1.0, interesting(ratio)), (0.3, interesting(ratio)[1::3])):
        margin = ratio * scale
        for eta in etas:
            u, least, _ = brute(eta, margin, scale)
            assert relative(optimal_score(eta, margin, scale), u) < 4e-15, (scale, eta)
            assert relative(conditional_risk(eta, margin, scale), least) < 4e-15, (scale, eta)


@pytest.mark.parametrize("ratio", RATIOS + NEAR_ROOT2)
def test_psi_matches_brute_force(ratio):
    for scale, thetas in ((1.0, [1e-16, 1e-12, 1e-6, 0.1, 0.5, 0.9, 1.0]), (7.7, [1e-12, 0.3])):
        margin = ratio * scale
        for theta in thetas:
            with mpmath.workdps(60):
                eta = (1 + mpf(theta)) / 2
            exact = brute(eta, margin, scale, digits=60)[2]
            assert relative(psi_transform(theta, margin, scale), exact) < 4e-15, (scale, theta)
            found = psi_inverse(float(exact), margin, scale)
            assert relative(found, mpf(theta)) < 8e-15, (scale, theta)


@pytest.mark.parametrize("ratio", [0.5, 1.0, ROOT2, 3.0])
def test_the_far_ends_match_brute_force(ratio):
    """θ = 1e-150 and η = 1e-200: nothing is lost on the way to 0, 1/2 or 1."""
    with mpmath.workdps(500):
        eta = (1 + mpf(1e-150)) / 2
    _, _, psi = brute(eta, ratio, 1.0, digits=500)
    assert relative(psi_transform(1e-150, ratio), psi) < 4e-15
    assert relative(psi_inverse(float(psi), ratio), mpf(1e-150)) < 8e-15
    _, least, _ = brute(1e-200, ratio, 1.0, digits=500)
    assert relative(conditional_risk(1e-200, ratio), least) < 4e-15


def test_the_oracle_minimises():
    """Direct comparison, without a derivative."""
    with mpmath.workdps(50):
        for eta, margin, scale in ((0.8, 0.5, 1.0), (0.9, 1.0, 1.0), (0.3, 5.0, 2.0)):
            u, least, _ = brute(eta, margin, scale)
            eta, margin, scale = mpf(eta), mpf(margin), mpf(scale)
            grid = [2 * margin * k / 200 for k in range(-200, 201)]
            for other in [*grid, u - mpf(10) ** -20, u + mpf(10) ** -20]:
                assert mp_risk(eta, other, margin, scale) > least


@pytest.mark.parametrize("overconfidence", [0.0, 0.3, 1.0])
def test_overconfidence_makes_no_difference(overconfidence):
    for margin, scale in ((0.5, 1.0), (1.0, 1.0), (2.0, 0.7), (1.3, 1.0)):
        loss = MarginLoss(margin, scale, overconfidence)
        for eta in (0.0, 0.03, 0.3, 0.49, 0.6, 0.97, 1.0):
            centre, reach = 0.0, 3 * margin
            for _ in range(12):  # a grid, ever finer about its best point
                u = np.clip(centre + np.linspace(-reach, reach, 401), -3 * margin, 3 * margin)
                risk = eta * loss.value(u) + (1 - eta) * loss.value(-u)
                centre, reach = u[np.argmin(risk)], reach / 8
            assert np.min(risk) == pytest.approx(conditional_risk(eta, margin, scale), rel=1e-12)
            if overconfidence > 0 or 0 < eta < 1:
                assert centre == pytest.approx(optimal_score(eta, margin, scale), abs=1e-6)
            else:  # every score beyond the level is free
                assert abs(centre) >= margin


# --- the paper's lemma ----------------------------------------------------------------------------

levels = st.floats(1e-3, 1e3)
scales = st.floats(1e-3, 1e3)
ratios = st.floats(1e-3, 20.0) | st.floats(0.7, 1.42) | st.sampled_from(RATIOS + NEAR_ROOT2)
unit = st.floats(0.0, 1.0)


@given(ratios)
def test_ends_of_psi_and_risk(ratio):
    peak = rho(ratio)
    assert psi_transform(0.0, ratio) == 0
    assert psi_transform(1.0, ratio) == pytest.approx(peak, rel=1e-14)
    assert conditional_risk(0.5, ratio) == pytest.approx(peak, rel=1e-14)
    np.testing.assert_array_equal(conditional_risk([0.0, 1.0], ratio), 0)
    np.testing.assert_allclose(
        optimal_score([0.0, 0.5, 1.0], ratio), [-ratio, 0, ratio], rtol=1e-15
    )


@given(ratios, unit, unit, unit)
def test_psi_is_convex_and_increasing(ratio, x, y, weight):
    mid = weight * x + (1 - weight) * y
    f = psi_transform([x, y, mid], ratio)
    assert f[2] <= (weight * f[0] + (1 - weight) * f[1]) * (1 + 1e-14) + 1e-300
    assert (f[0] <= f[1] * (1 + 1e-14)) or x > y
    assert psi_transform(-x, ratio) == f[0]


@given(ratios, unit, unit, unit)
def test_risk_is_concave_and_symmetric(ratio, x, y, weight):
    mid = weight * x + (1 - weight) * y
    f = conditional_risk([x, y, mid], ratio)
    rounding = 1e-15 * rho(2 * ratio)  # of the middle, times the slope at the ends
    assert f[2] >= (weight * f[0] + (1 - weight) * f[1]) * (1 - 1e-14) - rounding
    if 1 - (1 - x) == x:
        assert conditional_risk(1 - x, ratio) == f[0]
        assert optimal_score(1 - x, ratio) == -optimal_score(x, ratio)


@given(unit, levels, levels, scales)
def test_psi_increases_with_the_level(theta, one, other, scale):
    low, high = sorted((one, other))
    assert psi_transform(theta, low, scale) <= psi_transform(theta, high, scale) * (1 + 1e-14)
    top = psi_transform(1.0, low, scale)
    lower, upper = psi_inverse(theta * top, [high, low], scale)
    assert lower <= upper * (1 + 1e-14)


@given(unit, levels, scales)
def test_homogeneous_in_the_scale(p, margin, scale):
    ratio = margin / scale
    kappa = 1 + abs(ratio / (ratio - ROOT2)) if ratio != ROOT2 else np.inf  # of √2 - γ/s
    tolerance = 1e-14 * kappa
    for f, power in ((conditional_risk, 2), (optimal_score, 1), (psi_transform, 2)):
        expected = scale**power * f(p, ratio)
        assert f(p, margin, scale) == pytest.approx(expected, rel=tolerance)


@given(ratios, scales, unit | st.floats(1e-100, 1e-3))
def test_inverse_round_trips(ratio, scale, part):
    margin = ratio * scale
    a = psi_transform(part, margin, scale)
    assert psi_inverse(a, margin, scale) == pytest.approx(part, rel=1e-14)
    a = part * psi_transform(1.0, margin, scale)
    theta = psi_inverse(a, margin, scale)
    assert 0 <= theta <= 1
    assert psi_transform(theta, margin, scale) == pytest.approx(a, rel=1e-14)


@pytest.mark.parametrize("margin", [0.3, 1.0, 1.3, 5.0])
def test_inverse_accepts_the_end_point_however_rounded(margin):
    end = float(rho(margin))
    for a in (*around(end), end * (1 + 4e-16)):
        assert psi_inverse(a, margin) == pytest.approx(1.0, rel=1e-14)
    assert psi_inverse(np.float32(end), np.float32(margin)) == pytest.approx(1.0, rel=1e-6)
    assert psi_inverse(0.0, margin) == 0


@pytest.mark.parametrize("margin", [ROOT2 / 2, ROOT2 - 0.4, ROOT2 - 0.11, ROOT2 + 0.11, 2 * ROOT2])
@pytest.mark.parametrize(("scale", "K"), [(1.0, 2500), (4.0, 5000)])
def test_e32_inverse_by_the_grid_of_the_figure(margin, scale, K):
    """The caption's grid, of 2500 points for the plot over γ and (E32) 5000 for that over s."""
    grid = np.linspace(0, 1, K)
    values = psi_transform(grid, margin, scale)
    for a in np.linspace(0.01, 0.99, 25) * values[-1]:
        approximate = grid[np.max(np.flatnonzero(values <= a))]
        assert 0 <= psi_inverse(a, margin, scale) - approximate <= 1 / (K - 1)


@pytest.mark.parametrize(("margin", "expected"), [(0.8, 0.836), (1.0, 0.631), (1.3, 0.509)])
def test_the_regimes_meet(margin, expected):
    eta = switch(margin)
    assert eta == pytest.approx(expected, abs=5e-4)
    assert optimal_score(eta, margin) == pytest.approx(ROOT2 - margin, rel=1e-14)
    before, after = optimal_score([eta - 1e-9, eta + 1e-9], margin)
    assert 0 < after - before < 1e-7


# --- Bartlett's inequality, and where it ends ----------------------------------------------------


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), ratios, st.sampled_from([0.0, 0.4, 1.0]))
def test_bartlett_inequality_over_all_functions(seed, n, ratio, overconfidence):
    rng = np.random.default_rng(seed)
    mass, eta = rng.dirichlet(np.ones(n)), rng.random(n) ** rng.choice([0.2, 1.0, 5.0])
    h = rng.normal(size=n) * ratio * 10 ** rng.uniform(-6, 1)
    loss = MarginLoss(ratio, 1.0, overconfidence)
    excess = mass @ np.where(h > 0, 1 - eta, eta) - mass @ np.minimum(eta, 1 - eta)
    surrogate = mass @ (eta * loss.value(h) + (1 - eta) * loss.value(-h))
    surrogate_excess = surrogate - mass @ conditional_risk(eta, ratio)
    assert psi_transform(np.clip(excess, 0, 1), ratio) <= surrogate_excess + 1e-14 * loss.value(0.0)


@given(ratios, st.floats(1e-3, 1.0))
def test_bartlett_inequality_is_tight(ratio, theta):
    """A constant score just on the wrong side of zero attains it."""
    loss, h = MarginLoss(ratio), -1e-13 * ratio
    eta = (1 + theta) / 2
    surrogate = eta * loss.value(h) + (1 - eta) * loss.value(-h) - conditional_risk(eta, ratio)
    assert surrogate == pytest.approx(psi_transform(theta, ratio), rel=1e-6)


def test_e18_the_inequality_fails_over_linear_functions():
    mass, x, y = np.array([0.6, 0.4]), np.array([0.1, 5.0]), np.array([1, -1])
    w = np.linspace(-2, 2, 400_001)[:, None]
    surrogate = MarginLoss().value(y * x * w) @ mass
    error = (y * x * w <= 0) @ mass
    best = np.argmin(surrogate)
    assert w[best, 0] == pytest.approx(-0.195, abs=5e-4)
    excess = error[best] - np.min(error)
    assert excess == pytest.approx(0.6 - 0.4)
    assert psi_transform(excess) > surrogate[best] - np.min(surrogate) == 0
    # Over all functions the infimum of the surrogate risk is 0 here, and the inequality holds.
    assert psi_transform(error[best]) <= surrogate[best]


# --- the cubic conditions of the paper -----------------------------------------------------------


def double_cube(eta, margin):
    alpha = (eta - 1) / eta
    return (
        1 - alpha,
        -3 * margin * (1 + alpha),
        3 * (1 - alpha) * (margin**2 - 2),
        (1 + alpha) * (6 * margin - margin**3),
    )


@pytest.mark.parametrize("margin", [1.5, 2.0, 2 * ROOT2 + 0.5])
@pytest.mark.parametrize("eta", [0.1, 0.3, 0.45, 0.55, 0.7, 0.9])
def test_e1_single_cube_constants_are_swapped(eta, margin):
    alpha = (eta - 1) / eta
    for_minus = 6 * (margin + alpha * BOUND - margin**3 / 6)
    for_plus = -6 * (margin + BOUND / alpha - margin**3 / 6)
    minus = eta > 0.5
    b = -3 * margin if minus else 3 * margin
    right, printed = (for_minus, for_plus) if minus else (for_plus, for_minus)
    u = optimal_score(eta, margin)
    assert np.polyval([1, b, 3 * margin**2 - 6, right], u) == pytest.approx(0, abs=1e-12)
    assert abs(np.polyval([1, b, 3 * margin**2 - 6, printed], u)) > 0.2
    assert np.min(np.abs(cubic_roots(1, b, 3 * margin**2 - 6, right).roots - u)) < 1e-13


@given(st.floats(0.01, ROOT2 / 2), st.floats(0.01, 0.99).filter(lambda eta: abs(eta - 0.5) > 1e-3))
def test_e2_the_double_cube_has_three_real_roots(margin, eta):
    """The discriminant, in exact arithmetic, is positive; the minimiser is the middle root."""
    a, b, c, d = double_cube(Fraction(eta), Fraction(margin))
    assert 18 * a * b * c * d - 4 * b**3 * d + b**2 * c**2 - 4 * a * c**3 - 27 * a**2 * d**2 > 0
    found = cubic_roots(*map(float, (a, b, c, d)))
    assert found.count == 3
    assert found.roots[0] < -margin < found.roots[1] < margin < found.roots[2]
    assert optimal_score(eta, margin) == pytest.approx(found.roots[1], rel=1e-11)


def test_e2_rests_on_a_sign():
    """With α - 1 for 1 - α there is one real root, and it is wrong."""
    margin, eta = ROOT2 / 2, 0.8
    a, b, c, d = double_cube(eta, margin)
    wrong = cubic_roots(-a, b, c, d)
    assert wrong.count == 1
    assert wrong.roots[0] == pytest.approx(0.44352, abs=5e-6)
    assert optimal_score(eta, margin) == pytest.approx(0.47817, abs=5e-6)


def test_e23_the_depressed_cubic():
    """4(rz)³ - 12k² rz + 4q over r³ has 12k²/r² before z; printed is 12k³/r²."""
    p, q, z = -1.7, 0.3, 0.35
    k = np.sqrt(-p / 3)
    r = 2 * k
    v = r * z
    expected = 4 * (v**3 + p * v + q) / r**3
    assert 4 * z**3 - 12 * k**2 / r**2 * z + 4 * q / r**3 == pytest.approx(expected, rel=1e-14)
    assert abs(4 * z**3 - 12 * k**3 / r**2 * z + 4 * q / r**3 - expected) > 0.1
    # With k² the equation is 4z³ - 3z = -q/(2k³), and Viète's angles solve the cubic.
    angle = np.arccos(-q / (2 * k**3)) / 3
    roots = 2 * k * np.cos(np.array([2 * np.pi / 3 + angle, 2 * np.pi / 3 - angle, angle]))
    np.testing.assert_allclose(cubic_roots(1.0, 0.0, p, q).roots, np.sort(roots), rtol=1e-13)


@pytest.mark.parametrize(("margin", "scale"), [(0.5, 1.0), (1.0, 0.4), (3.0, 2.0)])
def test_e24_the_slope_at_zero_is_minus_the_influence(margin, scale):
    loss, h = MarginLoss(margin, scale), 1e-6 * scale
    slope = (loss.value(h) - loss.value(-h)) / (2 * h)
    assert slope == pytest.approx(-scale * influence(margin / scale), rel=1e-8)
    assert slope < 0
    assert abs(slope + scale * rho(margin / scale)) > 1e-2  # printed


def test_e25_the_conditional_risk_averages_over_labels():
    loss, eta, h = MarginLoss(0.9, 0.8), 0.83, 0.35
    expectation = sum(p * loss.value(y * h) for y, p in ((1, eta), (-1, 1 - eta)))
    with mpmath.workdps(30):
        right = mp_risk(mpf(eta), mpf(h), mpf(0.9), mpf(0.8))
    assert expectation == pytest.approx(float(right), rel=1e-14)
    for y in (1, -1):  # printed: the same label in both terms, so that η drops out
        assert abs(eta * loss.value(y * h) + (1 - eta) * loss.value(y * h) - expectation) > 1e-2


def test_e26_the_inverse_at_a_risk_over_s_tends_to_zero():
    scale = np.array([10.0, 1e2, 1e3, 1e4])
    found = psi_inverse(0.5 / scale, 1.0, scale)
    np.testing.assert_allclose(found, [0.316, 0.1, 0.0316, 0.01], rtol=3e-3)
    for margin in (0.5, 1.0, 2.0):
        huge = np.array([1e6, 1e9, 1e12])
        np.testing.assert_allclose(
            psi_inverse(0.02 / huge, margin, huge), np.sqrt(0.04 / huge) / margin, rtol=1e-9
        )
        # Not divided by s, the limit is positive.
        np.testing.assert_allclose(
            psi_inverse(0.02, margin, huge), np.sqrt(0.04) / margin, rtol=1e-9
        )


# --- the link -------------------------------------------------------------------------------------


@pytest.mark.parametrize("ratio", RATIOS)
def test_probability_matches_its_formula(ratio):
    with mpmath.workdps(50):
        for part in (-1 + 1e-15, -0.9, -0.5, -1e-9, 1e-9, 0.3, 0.8, 1 - 1e-12):
            score = part * ratio
            above = mp_influence(mpf(ratio) + mpf(score))
            below = mp_influence(mpf(ratio) - mpf(score))
            exact = above / (above + below)
            assert relative(probability(score, ratio), exact) < 2e-15
            assert relative(probability(-score, ratio), 1 - exact) < 2e-15


@given(ratios, scales, st.floats(0.0, 1.0))
def test_probability_inverts_the_score(ratio, scale, eta):
    margin = ratio * scale
    back = probability(optimal_score(eta, margin, scale), margin, scale)
    # A score next to ±γ is rounded by ε γ, the probability there by about twice as much.
    assert back == pytest.approx(eta, rel=1e-9, abs=1e-15 * max(1.0, margin / scale))


@given(ratios, st.floats(0.02, 0.999))
def test_score_inverts_the_probability(ratio, part):
    score = part * ratio
    if score > 1.001 * (ratio - ROOT2):  # below, the probability is constant
        back = optimal_score(probability(score, ratio), ratio)
        assert back == pytest.approx(score, rel=1e-9, abs=1e-7)


@given(ratios, st.floats(allow_nan=False), st.floats(allow_nan=False))
def test_probability_is_monotone_and_complementary(ratio, one, other):
    low, high = sorted((one, other))
    p = probability([low, high, -low], ratio)
    assert 0 <= p[0] <= p[1] * (1 + 1e-15) <= 1 + 1e-15
    assert p[0] + p[2] == pytest.approx(1.0, rel=1e-15)


def test_probability_beyond_the_level_and_on_the_plateau():
    np.testing.assert_array_equal(
        probability([-np.inf, -5.0, -1.0, 1.0, 5.0, np.inf]), [0, 0, 0, 1, 1, 1]
    )
    np.testing.assert_array_equal(probability([-0.5, 0.0, 0.5], 2.0), 0.5)
    assert probability(0.7, 2.0) > 0.5


# --- extremes -------------------------------------------------------------------------------------

EXTREMES = np.array([5e-324, 1e-308, 1e-300, 1e-200, 1e-100, 1.0, 1e100, 1e200, 1e300, 1.7e308])


def test_no_nan_at_any_level_and_scale():
    parts = np.array([0.0, 5e-324, 1e-300, 1e-17, 0.1, 0.5, 0.5 + 2**-53, 0.9, 1.0])
    margin, scale, part = np.meshgrid(EXTREMES, EXTREMES, parts, indexing="ij")
    score = optimal_score(part, margin, scale)
    assert np.all(np.abs(score) <= margin)
    eta = probability(score, margin, scale)
    assert np.all((eta >= 0) & (eta <= 1))
    assert np.all(conditional_risk(part, margin, scale) >= 0)
    psi = psi_transform(part, margin, scale)
    assert np.all(psi >= 0)
    theta = psi_inverse(psi, margin, scale)
    assert np.all((theta >= 0) & (theta <= 1))
    sound = (psi > 1e-290) & np.isfinite(psi)
    np.testing.assert_allclose(theta[sound], part[sound], rtol=1e-13)


def test_the_score_stays_within_the_level():
    margin = np.random.default_rng(0).uniform(0.01, 2.0, 5000)
    for eta in (1.0, 1 - 2**-53, 1 - 1e-15, 1e-17, 0.0):
        assert np.all(np.abs(optimal_score(eta, margin)) <= margin)


def test_the_inverse_stays_within_one():
    margin = np.random.default_rng(1).uniform(0.01, 3.0, 5000)
    for below in (0.0, 1e-16, 2e-16, 1e-15):
        assert np.all(psi_inverse(rho(margin) * (1 - below), margin) <= 1)


def test_the_inverse_underflows_to_zero():
    assert psi_inverse(1e-300, 1e200, 1e100) == 0  # Ψ(θ) is about 9e299 θ


@pytest.mark.parametrize("scale", [1e10, 1e150, 1e300, 1.7e308])
def test_a_large_scale_is_the_squared_loss(scale):
    eta, margin = np.array([1e-9, 0.2, 0.5, 0.9]), 3.0
    np.testing.assert_allclose(
        conditional_risk(eta, margin, scale), 2 * margin**2 * eta * (1 - eta), rtol=1e-14
    )
    np.testing.assert_allclose(
        optimal_score(eta, margin, scale), margin * (2 * eta - 1), rtol=1e-14
    )
    np.testing.assert_allclose(psi_transform(eta, margin, scale), (margin * eta) ** 2 / 2)
    np.testing.assert_allclose(probability(margin * eta, margin, scale), (1 + eta) / 2)


@pytest.mark.parametrize("scale", [1e-20, 1e-150, 1e-300])
def test_a_small_scale_is_the_absolute_loss(scale):
    eta, margin = np.array([1e-9, 0.2, 0.5, 0.9]), 3.0
    slope = BOUND * scale * margin
    np.testing.assert_allclose(
        conditional_risk(eta, margin, scale), 2 * slope * np.minimum(eta, 1 - eta), rtol=1e-14
    )
    np.testing.assert_allclose(optimal_score(eta, margin, scale), margin * np.sign(eta - 0.5))
    np.testing.assert_allclose(psi_transform(eta, margin, scale), slope * eta, rtol=1e-14)
    np.testing.assert_allclose(psi_inverse(slope * eta, margin, scale), eta, rtol=1e-14)


# --- form -----------------------------------------------------------------------------------------

FUNCTIONS = [conditional_risk, optimal_score, psi_transform, psi_inverse, probability]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_broadcasts_and_keeps_the_kind(function):
    first = np.array([0.1, 0.2, 0.3])
    margin, scale = np.array([[1.0], [2.0]]), np.float64(0.5)
    result = function(first, margin, scale)
    assert result.shape == (2, 3)
    for i in range(2):
        for j in range(3):
            alone = function(first[j], margin[i, 0], 0.5)
            assert result[i, j] == pytest.approx(alone, rel=4e-16)  # loops may differ by an ulp
    assert isinstance(function(0.1), np.float64)
    assert function(np.zeros(0)).shape == (0,)
    single = function(first.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, function(first), rtol=1e-6)
    assert function(first.astype(np.float32), margin).dtype == np.float64


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("value", [0.0, -1.0, np.inf, np.nan])
@pytest.mark.parametrize("name", ["margin", "scale"])
def test_refuses_levels_and_scales(function, name, value):
    with pytest.raises(ValueError, match=rf"^{name} must .*got {value:g}"):
        function(0.1, **{name: value})


@pytest.mark.parametrize("function", [conditional_risk, optimal_score])
@pytest.mark.parametrize("value", [-1e-9, 1 + 1e-9, np.nan, np.inf])
def test_refuses_probabilities_outside_the_unit_interval(function, value):
    with pytest.raises(ValueError, match=r"^eta must .*got .* at index \(1,\)"):
        function([0.5, value])


@pytest.mark.parametrize("value", [-1.01, 1.01, np.nan])
def test_refuses_theta_outside(value):
    with pytest.raises(ValueError, match=rf"^theta must .*got {value:g}"):
        psi_transform(value)


def test_refuses_surrogate_risks_that_cannot_be():
    with pytest.raises(ValueError, match=r"^a must be in \[0, 0.458333\d*\]; got 0.46"):
        psi_inverse(0.46)
    with pytest.raises(ValueError, match=r"^a must be in \[0, 0.458333\d*\]; got -0.1"):
        psi_inverse([0.1, -0.1])
    with pytest.raises(ValueError, match=r"^a must be in \[0, 0.458333\d*\]; got 1"):
        psi_inverse(1.0, [2.0, 1.0])
    with pytest.raises(ValueError, match="a must not be NaN"):
        psi_inverse(np.nan)


def test_refuses_a_score_that_is_not_a_number():
    with pytest.raises(ValueError, match="score must not be NaN"):
        probability(np.nan)
    with pytest.raises(TypeError, match="score must hold real numbers"):
        probability("high")


# --- what the paper leaves open -------------------------------------------------------------------


@pytest.mark.parametrize("overconfidence", [0.0, 0.5, 1.0])
@pytest.mark.parametrize(("margin", "scale"), [(1.5, 1.0), (2.0, 1.0), (3.0, 0.5)])
def test_at_even_odds_a_high_level_has_many_minimisers(margin, scale, overconfidence):
    """Up to γ - s√2 the two linear sides cancel; for γ ≤ s√2 there is one minimiser, 0."""

    def risk(u, loss):
        return (loss.value(u) + loss.value(-u)) / 2

    loss, edge = MarginLoss(margin, scale, overconfidence), margin - scale * ROOT2
    flat = risk(np.linspace(-edge, edge, 101), loss)
    np.testing.assert_allclose(flat, conditional_risk(0.5, margin, scale), rtol=1e-14)
    assert risk(edge + 0.2 * scale, loss) > flat[0] * (1 + 1e-6)
    for level in (0.5, 1.2, ROOT2):
        low = MarginLoss(level * scale, scale, overconfidence)
        assert risk(0.05 * scale, low) > risk(0.0, low) * (1 + 1e-6)


@pytest.mark.parametrize(
    ("ratio", "power"), [(0.5, 2.0), (1.4, 2.0), (ROOT2, 1.5), (1.5, 1.0), (4.0, 1.0)]
)
def test_psi_near_zero_has_three_rates(ratio, power):
    theta = np.array([1e-20, 1e-14])
    slope = np.diff(np.log(psi_transform(theta, ratio))) / np.diff(np.log(theta))
    assert slope == pytest.approx(power, abs=1e-5)
