"""Real roots of cubics, against exact rational arithmetic and mpmath.

The tests named after faults hold the solver to what the public demonstration code of the paper's
root finder got wrong.
"""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import polynomial_roots

from marginpursuit.calibration import CubicRoots, cubic_roots

EPS = np.finfo(float).eps


def backward_error(coefficients, root):
    """Exact |P(root)| over the sum of the sizes of its terms."""
    terms = [
        Fraction(float(c)) * Fraction(root) ** k
        for c, k in zip(coefficients, (3, 2, 1, 0), strict=True)
    ]
    size = sum(abs(t) for t in terms)
    return float(abs(sum(terms)) / size) if size else 0.0


def discriminant(coefficients):
    """The discriminant, exactly, over the sum of the sizes of its terms."""
    a, b, c, d = (Fraction(float(x)) for x in coefficients)
    terms = 18 * a * b * c * d, -4 * b**3 * d, b**2 * c**2, -4 * a * c**3, -27 * a**2 * d**2
    return float(sum(terms) / sum(abs(t) for t in terms))


def vieta_error(coefficients, roots):
    """How far a ∏(x - root) is from the polynomial, relative to the sums that make it up."""
    a, b, c, d = (Fraction(float(x)) for x in coefficients)
    r, s, t = (Fraction(float(x)) for x in roots)
    pairs = (
        (b + a * (r + s + t), abs(a) * (abs(r) + abs(s) + abs(t))),
        (c - a * (r * s + r * t + s * t), abs(a) * (abs(r * s) + abs(r * t) + abs(s * t))),
        (d + a * r * s * t, abs(a * r * s * t)),
    )
    return max(float(abs(x) / size) if size else float(x != 0) for x, size in pairs)


def vieta_limit(roots):
    # Taking two roots as one moves their product by the square of half their distance.
    return 1e-8 if np.any(np.diff(roots) == 0) else 64 * EPS


def expand(a, r, s, t):
    """The coefficients of a (x - r)(x - s)(x - t), rounded as floats round them."""
    return a, -a * (r + s + t), a * (r * s + r * t + s * t), -a * r * s * t


def random_sign(rng, n):
    return rng.choice([-1.0, 1.0], n)


# --- against other arithmetic -----------------------------------------------------------------


@pytest.mark.parametrize("decades", [0, 2, 6])
def test_matches_mpmath_polyroots(decades):
    rng = np.random.default_rng(decades)
    many = rng.normal(size=(60, 4)) * 10.0 ** rng.uniform(-decades, decades, size=(60, 4))
    for coefficients in many:
        found = cubic_roots(*coefficients)
        exact = polynomial_roots(coefficients.tolist())
        real = sorted(float(z.real) for z in exact if abs(z.imag) < 1e-40 * abs(z))
        assert found.count == len(real)
        slope = np.polyval(np.polyder(coefficients), real)
        size = np.polyval(np.abs(coefficients), np.abs(real))
        # What a change of every coefficient by an ulp does to each root.
        condition = size / np.abs(slope)
        assert np.all(np.abs(found.roots[: len(real)] - real) <= 4 * EPS * condition)


coefficient = st.builds(
    lambda mantissa, sign, exponent: sign * mantissa * 10.0**exponent,
    st.floats(1.0, 10.0),
    st.sampled_from([-1.0, 1.0]),
    st.integers(-30, 30),
)


@given(st.tuples(*[coefficient | st.just(0.0)] * 4))
def test_backward_stable_at_every_scale(coefficients):
    found = cubic_roots(*coefficients)
    roots = found.roots[: max(found.count, 0)]
    assert np.all(np.isfinite(roots))
    assert np.all(np.isnan(found.roots[roots.size :]))
    assert np.all(np.diff(roots) >= 0)
    for root in roots:
        assert backward_error(coefficients, float(root)) <= 32 * EPS


@given(st.tuples(*[coefficient] * 4))
def test_count_follows_the_exact_discriminant(coefficients):
    found = cubic_roots(*coefficients)
    exact = discriminant(coefficients)
    if exact >= 0:
        assert found.count == 3
    elif found.count == 3:  # a complex pair that rounding cannot tell from a double root
        assert exact > -500 * EPS
    else:
        assert found.count == 1
    if found.count == 3:
        assert vieta_error(coefficients, found.roots) <= vieta_limit(found.roots)


@given(
    st.floats(-1e3, 1e3).filter(lambda a: abs(a) > 1e-3),
    st.tuples(*[st.floats(1e-6, 1e6)] * 3),
    st.tuples(*[st.sampled_from([-1.0, 1.0])] * 3),
)
def test_recovers_known_roots(a, sizes, signs):
    truth = np.sort(np.multiply(sizes, signs))
    coefficients = expand(a, *truth)
    found = cubic_roots(*coefficients)
    assert found.count == 3
    assert vieta_error(coefficients, found.roots) <= vieta_limit(found.roots)
    gaps = np.abs(truth[:, None] - truth)[~np.eye(3, dtype=bool)].reshape(3, 2)
    if np.all(gaps > 0.1 * np.abs(truth)[:, None]):  # well separated, each from its neighbours
        reach = np.abs(a) * np.abs(truth) * np.prod(gaps, axis=1)
        size = np.polyval(np.abs(coefficients), np.abs(truth))
        assert np.all(np.abs(found.roots - truth) <= 16 * EPS * np.abs(truth) * size / reach)


@given(st.integers(-1000, 1000), st.integers(-1000, 1000), st.integers(-1000, 1000))
def test_integer_roots(r, s, t):
    found = cubic_roots(*map(float, expand(1, r, s, t)))
    truth = np.sort([r, s, t])
    assert found.count == 3
    # 8 ε 1000³ is what rounding may do to the polynomial, and its slope can be as small as 1.
    np.testing.assert_allclose(found.roots, truth, rtol=1e-8, atol=0)
    if len({r, s, t}) < 3:  # the multiple root is returned as such, not split
        assert np.any(np.diff(found.roots) == 0)


# --- faults of the demonstration code ----------------------------------------------------------


def test_no_division_by_zero_without_a_cubic_term():
    np.testing.assert_allclose(cubic_roots(0.0, 1.0, -3.0, 2.0).roots, [1, 2, np.nan])
    np.testing.assert_allclose(cubic_roots(0.0, 0.0, 2.0, -3.0).roots, [1.5, np.nan, np.nan])
    assert cubic_roots(0.0, 1.0, 0.0, 1.0).count == 0
    assert cubic_roots(0.0, 1.0, -2.0, 1.0).count == 2
    assert cubic_roots(0.0, 0.0, 0.0, 3.0).count == 0
    everything = cubic_roots(0.0, 0.0, 0.0, 0.0)
    assert everything.count == -1
    assert np.all(np.isnan(everything.roots))


@pytest.mark.parametrize("d", [-1.0, 1.0, -8.0, 1e-300, -1e300])
def test_pure_cube_does_not_cancel(d):
    """Δ₀ = 0 and Δ₁ < 0, where Cardano's formula with a fixed sign divides by zero."""
    found = cubic_roots(1.0, 0.0, 0.0, d)
    assert found.count == 1
    np.testing.assert_allclose(found.roots[0], np.cbrt(-d), rtol=4 * EPS)


def test_double_roots_built_in_floating_point():
    rng = np.random.default_rng(1)
    n = 50_000
    a = random_sign(rng, n) * 10.0 ** rng.uniform(-3, 3, n)
    twice, once = rng.normal(size=(2, n))
    found = cubic_roots(*expand(a, twice, twice, once))
    assert np.all(found.count == 3)
    truth = np.sort(np.column_stack([twice, twice, once]))
    error = np.max(np.abs(found.roots - truth), axis=1) / np.max(np.abs(truth), axis=1)
    # A double root alone would be good to √ε; one next to the third root to ∛ε at worst.
    assert np.quantile(error, 0.9) < 1e-13
    assert np.max(error) < 1e-4


def test_double_roots_of_quadratics_built_in_floating_point():
    a, root = np.random.default_rng(7).normal(size=(2, 5000))
    found = cubic_roots(0.0, a, -2 * a * root, a * root * root)
    assert np.all(found.count == 2)
    np.testing.assert_allclose(found.roots[:, :2], np.column_stack([root, root]), rtol=8 * EPS)


def test_triple_roots_built_in_floating_point():
    rng = np.random.default_rng(2)
    n = 50_000
    a = random_sign(rng, n) * 10.0 ** rng.uniform(-3, 3, n)
    root = rng.normal(size=n)
    found = cubic_roots(a, -3 * a * root, 3 * a * root * root, -a * root**3)
    assert np.all(found.count == 3)
    np.testing.assert_allclose(found.roots, np.broadcast_to(root[:, None], (n, 3)), rtol=8 * EPS)


def test_nearly_triple_roots():
    rng = np.random.default_rng(3)
    n = 20_000
    root = rng.normal(size=n)
    other = root * (1 + 10.0 ** rng.uniform(-12, -1, n))
    found = cubic_roots(*expand(1.0, root, root, other))
    assert np.all(found.count == 3)
    np.testing.assert_allclose(found.roots[:, 1], root, rtol=1e-4)


@pytest.mark.parametrize("change", [-2 * EPS, 0.0, 2 * EPS])
def test_nearly_double_roots_are_not_lost(change):
    """(x - 1)²(x - 3) with its constant moved a little, so that Δ has either sign."""
    found = cubic_roots(1.0, -5.0, 7.0, -3.0 * (1 + change))
    assert found.count == 3
    np.testing.assert_allclose(found.roots, [1, 1, 3], rtol=1e-7)


def test_clearly_complex_pairs_are_not_reported():
    assert cubic_roots(1.0, -5.0, 7.0, -3.0 - 1e-12).count == 1
    assert cubic_roots(1.0, -3.0, 3.0, -1.0 - 1e-12).count == 1
    assert cubic_roots(0.0, 1.0, -2.0, 1.0 + 1e-12).count == 0


def test_complex_pairs_near_the_real_root_are_not_reported():
    """(x - r)((x - m)² + δ²): where m is near r the cubic is small at m, whatever δ is.

    It is near no cubic with a double root where it is monotone, b² < 3ac.
    """
    rng = np.random.default_rng(6)
    n = 5000
    root, sign = rng.normal(size=n), random_sign(rng, n)
    middle = root * (1 + sign * 10.0 ** rng.uniform(-12, 0, n))
    product = middle**2 + (root * 10.0 ** rng.uniform(-8, 1, n)) ** 2
    product[::3] = root[::3] ** 2  # all three of the same modulus
    middle[::3] = root[::3] * (1 - 10.0 ** rng.uniform(-16, 0, middle[::3].size))
    b, c, d = -root - 2 * middle, 2 * root * middle + product, -root * product
    count = cubic_roots(1.0, b, c, d).count
    fold = [float(1 - 3 * Fraction(z) / Fraction(y) ** 2) for y, z in zip(b, c, strict=True)]
    monotone = np.array(fold) < -100 * EPS
    assert np.count_nonzero(monotone) > n / 2
    assert np.all(count[monotone] == 1)


def test_coefficients_over_twelve_decades():
    rng = np.random.default_rng(4)
    many = random_sign(rng, (4, 2000)) * 10.0 ** rng.uniform(-6, 6, (4, 2000))
    found = cubic_roots(*many)
    assert np.all(found.count >= 1)
    worst = max(
        backward_error(coefficients, float(root))
        for coefficients, roots, count in zip(many.T, found.roots, found.count, strict=True)
        for root in roots[:count]
    )
    assert worst < 16 * EPS


@pytest.mark.parametrize("factor", [1e-300, 1e-110, 1e110, 1e300])
def test_a_common_factor_changes_nothing(factor):
    roots = cubic_roots(*(factor * np.array([1.0, -6.0, 11.0, -6.0]))).roots
    np.testing.assert_allclose(roots, [1, 2, 3], rtol=1e-13)


@pytest.mark.parametrize("unit", [1e-90, 1e-40, 1e40, 1e90])
def test_the_unit_of_the_variable_scales_the_roots(unit):
    roots = cubic_roots(1.0, -6.0 * unit, 11.0 * unit**2, -6.0 * unit**3).roots
    np.testing.assert_allclose(roots, [unit, 2 * unit, 3 * unit], rtol=1e-13)


def test_roots_too_far_apart_for_one_scale():
    found = cubic_roots(1e-300, 1.0, -3.0, 2.0)
    np.testing.assert_allclose(found.roots, [-1e300, 1.0, 2.0], rtol=4 * EPS)
    found = cubic_roots(1.0, -3.0, 2.0, 1e-300)
    np.testing.assert_allclose(found.roots, [-5e-301, 1.0, 2.0], rtol=4 * EPS)
    found = cubic_roots(1e-200, 1.0, 1e200, 1.0)
    np.testing.assert_allclose(found.roots[0], -1e-200, rtol=4 * EPS)
    assert found.count == 1
    found = cubic_roots(1e-300, -1e300, 0.0, 1e-300)  # the outer root is 10⁶⁰⁰
    np.testing.assert_allclose(found.roots, [-1e-300, 1e-300, np.inf], rtol=4 * EPS)


def test_quadratics_at_every_scale():
    found = cubic_roots(
        0.0, [1e110, 1e-200, 1e300, 1.0], [-3e110, 0.0, 1e-300, 1e200], [2e110, -1e200, 0.0, 1.0]
    )
    np.testing.assert_allclose(found.roots[0], [1, 2, np.nan], rtol=4 * EPS)
    np.testing.assert_allclose(found.roots[1], [-1e200, 1e200, np.nan], rtol=4 * EPS)
    np.testing.assert_allclose(found.roots[2], [0, 0, np.nan], atol=0)
    np.testing.assert_allclose(found.roots[3], [-1e200, -1e-200, np.nan], rtol=4 * EPS)
    np.testing.assert_array_equal(found.count, [2, 2, 2, 2])


def test_zero_roots():
    np.testing.assert_array_equal(cubic_roots(2.0, 0.0, 0.0, 0.0).roots, [0, 0, 0])
    np.testing.assert_array_equal(cubic_roots(1.0, -2.0, 0.0, 0.0).roots, [0, 0, 2])
    np.testing.assert_array_equal(cubic_roots(1.0, 0.0, -4.0, 0.0).roots, [-2, 0, 2])
    assert not np.any(np.signbit(cubic_roots(2.0, 0.0, 0.0, 0.0).roots))


# --- form ---------------------------------------------------------------------------------------


def test_broadcasts_and_keeps_the_kind():
    found = cubic_roots(np.ones((2, 1)), np.zeros(3), 0.0, [-1.0, -8.0, -27.0])
    assert isinstance(found, CubicRoots)
    assert found.roots.shape == (2, 3, 3)
    assert found.count.shape == (2, 3)
    np.testing.assert_allclose(found.roots[..., 0], [[1, 2, 3]] * 2)
    one = cubic_roots(1, 0, 0, -1)
    assert one.roots.shape == (3,)
    assert isinstance(one.count, np.integer)
    single = np.float32(1)
    assert cubic_roots(single, single, single, single).roots.dtype == np.float32
    assert cubic_roots(single, single, single, 1.0).roots.dtype == np.float32
    assert cubic_roots(single, single, single, np.float64(1)).roots.dtype == np.float64
    empty = cubic_roots(np.ones((0,)), 1.0, 1.0, 1.0)
    assert empty.roots.shape == (0, 3)


def test_a_vector_is_its_elements():
    rng = np.random.default_rng(5)
    many = rng.normal(size=(4, 200)) * 10.0 ** rng.uniform(-9, 9, (4, 200))
    many[0, ::7] = 0.0
    many[3, ::5] = 0.0
    together = cubic_roots(*many)
    for i in range(200):
        alone = cubic_roots(*many[:, i])
        np.testing.assert_array_equal(alone.roots, together.roots[i])
        assert alone.count == together.count[i]


def test_the_result_is_frozen():
    with pytest.raises(AttributeError):
        cubic_roots(1.0, 0.0, 0.0, -1.0).count = 2


@pytest.mark.parametrize("name", "abcd")
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_refuses_what_is_not_finite(name, value):
    coefficients = dict.fromkeys("abcd", 1.0) | {name: value}
    with pytest.raises(ValueError, match=rf"^{name} must .*got {value:g}"):
        cubic_roots(**coefficients)


def test_refuses_what_is_not_real():
    with pytest.raises(TypeError, match="b must hold real numbers"):
        cubic_roots(1.0, 1j, 0.0, 0.0)
