"""The contract of every function ρ in the registry, and of one that is defined here."""

import pickle
from dataclasses import replace

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import EPS, EXACT_RHOS, LARGEST, exact_rho, neighbours, ulps, with_signs
from strategies import positives, reals

from marginpursuit._namespaces import to_numpy
from marginpursuit.losses import RHOS, MarginLoss, Rho

strict = pytest.importorskip("array_api_strict")


def _toy_value(xp, size, scale, weight):
    ratio = size / scale
    return weight * scale * scale * (ratio - xp.log1p(ratio))


#: The "fair" function u - log(1 + u), which no kernel knows.
TOY = Rho(
    name="fair",
    kernel_code=None,
    influence_bound=1.0,
    curvature_support=np.inf,
    scaled_value=_toy_value,
    scaled_influence=lambda xp, size, scale: size / (1.0 + size / scale),
    curvature_of_ratio=lambda xp, ratio: (1.0 + ratio) ** -2,
    inverse=lambda xp, c: c / (1.0 - c),
)

each_rho = pytest.mark.parametrize("rho", RHOS.values(), ids=RHOS)
each_rho_and_toy = pytest.mark.parametrize("rho", [*RHOS.values(), TOY], ids=[*RHOS, "toy"])

POINTS = with_signs(
    neighbours(np.sqrt(2.0), 5),
    neighbours(1.0, 5),
    neighbours(1e-4, 3),
    np.linspace(0, 3, 301),
    np.linspace(3, 40, 75),
    10.0 ** np.arange(-320, 309, 7),
    [0.0, 5e-324, 2.2e-308, 1e-160, 1e17, 1e18, 1e19, 1e300, 1e308],
)

# Roundings of a value, an influence and a curvature, in units in the last place. Of the curvature
# of log-cosh, exp(-2u) alone has u of them; it is compared absolutely beyond u = 1.
MOST_ULPS = {"catoni": 2.2, "pseudo_huber": 4.0, "log_cosh": 8.0, "huber": 1.0, "square": 1.0}


def test_registry_has_an_oracle_and_a_code_for_each():
    assert set(RHOS) == set(EXACT_RHOS)
    codes = [rho.kernel_code for rho in RHOS.values()]
    assert sorted(codes) == list(range(len(RHOS)))
    assert [rho.name for rho in RHOS.values()] == list(RHOS)


@each_rho
def test_functions_are_right_to_the_last_digits(rho):
    for u in POINTS.tolist():
        value, influence, curvature = exact_rho(rho.name, u)
        assert ulps(rho.value(u), value) <= MOST_ULPS[rho.name], u
        assert ulps(rho.influence(u), influence) <= MOST_ULPS[rho.name], u
        bound = 4 * EPS * max(1, float(curvature) * (1 + abs(u)))
        assert abs(mp.mpf(float(rho.curvature(u))) - curvature) <= bound, u
    arrays = [f(POINTS) for f in (rho.value, rho.influence, rho.curvature)]
    for function, array in zip((rho.value, rho.influence, rho.curvature), arrays, strict=True):
        np.testing.assert_allclose(array, [function(u) for u in POINTS.tolist()], rtol=4 * EPS)


@each_rho
@given(reals, positives, st.sampled_from([1.0, 0.3, 1e-300]))
def test_scaled_forms_overflow_only_where_the_result_does(rho, u, scale, weight):
    if not np.isfinite(u):
        return
    value, influence, _ = exact_rho(rho.name, mp.mpf(u) / mp.mpf(scale))
    value, influence = weight * mp.mpf(scale) ** 2 * value, weight * mp.mpf(scale) * influence
    if abs(value / LARGEST - 1) > 1e-12:
        assert ulps(rho.value(u, scale, weight), value) <= MOST_ULPS[rho.name] + 4
    if abs(abs(influence) / LARGEST - 1) > 1e-12:
        assert ulps(rho.influence(u, scale, weight), influence) <= MOST_ULPS[rho.name] + 4


@each_rho
def test_infinity(rho):
    for u in (np.inf, -np.inf):
        assert rho.value(u) == np.inf
        assert rho.influence(u) == np.sign(u) * rho.influence_bound
        assert rho.curvature(u) == (1.0 if rho.name == "square" else 0.0)


@each_rho_and_toy
@given(st.floats(-30, 30), st.floats(-30, 30))
def test_even_convex_and_bounded(rho, u, v):
    assert rho.value(-u) == rho.value(u) >= 0
    assert rho.influence(-u) == -rho.influence(u)
    assert abs(rho.influence(u)) <= min(abs(u), rho.influence_bound)
    assert 0 <= rho.curvature(u) <= 1
    low, high = sorted([u, v])
    assert rho.influence(low) <= rho.influence(high) * (1 + np.sign(high) * 4 * EPS) + 4 * EPS
    assert rho.influence(high) - rho.influence(low) <= (high - low) + 8 * EPS * (1 + abs(high))
    tangent = rho.value(u) + rho.influence(u) * (v - u)
    slack = 16 * EPS * (1 + rho.value(u) + rho.value(v) + abs(rho.influence(u) * (v - u)))
    assert tangent - slack <= rho.value(v) <= tangent + (v - u) ** 2 / 2 + slack


@each_rho_and_toy
def test_derivatives_by_finite_differences(rho):
    u, step = np.linspace(-4, 4, 322), 1e-5
    u = u[np.abs(np.abs(u) - 1.0) > 2 * step]  # the kink of Huber's influence
    for function, slope in ((rho.value, rho.influence), (rho.influence, rho.curvature)):
        difference = (function(u + step) - function(u - step)) / (2 * step)
        np.testing.assert_allclose(difference, slope(u), atol=2e-5)


@each_rho_and_toy
def test_influence_is_concave_on_the_positive_side(rho):
    """Newton's method for u + qψ(u) = t from the left, as in the dual, rests on it."""
    influence = rho.influence(np.linspace(0, 20, 2001))
    assert np.all(np.diff(influence, 2) <= 4 * EPS * 20)


@each_rho_and_toy
@given(st.floats(-1, 1), st.booleans())
def test_inverse(rho, fraction, near_the_bound):
    bound = min(rho.influence_bound, 1e6)
    c = fraction * bound if not near_the_bound else bound * (1 - 1e-9 * abs(fraction))
    if abs(c) == rho.influence_bound and not np.isfinite(rho.curvature_support):
        assert abs(rho.influence_inverse(c)) == np.inf
        return
    u = rho.influence_inverse(c)
    assert abs(u) <= rho.curvature_support
    assert rho.influence(u) == pytest.approx(c, rel=16 * EPS * (1 + abs(u)), abs=5e-324)


@each_rho_and_toy
def test_support_of_the_curvature(rho):
    if np.isfinite(rho.curvature_support):
        assert rho.curvature(np.nextafter(rho.curvature_support, 9)) == 0
        assert rho.influence(rho.curvature_support) == pytest.approx(rho.influence_bound, rel=EPS)
    else:
        assert rho.curvature(100.0) > 0
    assert rho.curvature(0.0) == 1


@each_rho_and_toy
def test_all_array_libraries_have_one_formula(rho):
    points = np.linspace(-5, 5, 41).reshape(41, 1)
    scale, weight = np.array([0.5, 1.0, 3.0]), np.array([1.0, 0.2, 0.0])
    values = np.linspace(-0.9, 0.9, 19) * min(rho.influence_bound, 1.0)
    for dtype in ("float64", "float32"):
        there = [
            strict.asarray(x.astype(dtype), device=strict.Device("device1"))
            for x in (points, scale, weight, values)
        ]
        tolerance = 50 * np.finfo(dtype).eps
        for name in ("value", "influence", "curvature"):
            found = getattr(rho, name)(*there[:3])
            assert str(found.dtype).endswith(dtype)
            wanted = getattr(rho, name)(points, scale, weight)
            np.testing.assert_allclose(to_numpy(found), wanted, rtol=tolerance, atol=tolerance)
        inverse = rho.influence_inverse(there[3])
        np.testing.assert_allclose(
            to_numpy(inverse), rho.influence_inverse(values), rtol=tolerance, atol=tolerance
        )


@each_rho_and_toy
def test_nan_stays_nan_and_nothing_warns(rho):
    with np.errstate(all="raise"):
        points = np.array([np.nan, 0.0, -0.0, 5e-324, 1e-200, 1e308, np.inf])
        for function in (rho.value, rho.influence):
            assert np.isnan(function(points)[0])
            assert not np.isnan(function(points)[1:6]).any()
        rho.curvature(points)
        rho.influence_inverse(np.array([0.0, 5e-324, min(rho.influence_bound, 1e9)]))


@each_rho
def test_is_a_value(rho):
    assert pickle.loads(pickle.dumps(rho)) == rho
    assert hash(rho) == hash(replace(rho))
    assert rho != replace(rho, name="other")


def test_a_loss_takes_a_rho_of_its_own():
    loss = MarginLoss(1.0, 0.5, 0.3, rho=TOY)
    assert loss.kernel_parameters is None
    assert loss.value(0.0) == pytest.approx(0.25 * (2 - np.log(3)))
    assert hash(loss) == hash(MarginLoss(1.0, 0.5, 0.3, TOY))
    with pytest.raises(ValueError, match=r"rho must be one of \['catoni', .*; got 'hubert'"):
        MarginLoss(rho="hubert")


@pytest.mark.parametrize("name", RHOS)
def test_curvature_is_zero_beyond_its_support_alone(name):
    loss = MarginLoss(1.0, 0.7, 0.0, name)
    support = loss.curvature_support
    if np.isinf(support):
        assert loss.curvature(1.0 - 50.0 * 0.7) > 0
    else:
        assert loss.curvature(1.0 - 0.99 * support) > 0
        assert loss.curvature(1.0 - 1.01 * support) == 0


def test_repr_of_a_loss_has_its_parameters():
    assert repr(MarginLoss(1.0, 0.7)) == (
        "MarginLoss(margin=1.0, scale=0.7, overconfidence=1.0, rho='catoni')"
    )
