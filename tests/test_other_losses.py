"""The losses and influence functions of the methods that margin pursuit is compared with."""

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import EPS, LARGEST
from strategies import positives, reals

from marginpursuit.location import catoni_location
from marginpursuit.losses import (
    INFLUENCE_BOUND,
    HingeLoss,
    LogisticLoss,
    MarginLoss,
    ProjectionLoss,
    influence,
    wide_curvature,
    wide_influence,
)

POINTS = np.concatenate([-np.logspace(-12, 1.6, 60), [0.0], np.logspace(-12, 1.6, 60)])


def logistic(m):
    return mp.log(1 + mp.exp(-m))


def projection(alpha, beta):
    return lambda m: mp.exp(-alpha * m * m) if m >= 0 else mp.exp(-beta * m)


def wide(u):
    return mp.sign(u) * mp.log1p(abs(u) + u * u / 2)


LOSSES = [
    (LogisticLoss(), logistic),
    (ProjectionLoss(), projection(1, 1)),
    (ProjectionLoss(alpha=30.0, beta=0.5), projection(30, mp.mpf(1) / 2)),
]


@pytest.mark.parametrize(("loss", "oracle"), LOSSES)
def test_losses_equal_high_precision(loss, oracle):
    wanted = [float(oracle(mp.mpf(float(m)))) for m in POINTS]
    np.testing.assert_allclose(loss.value(POINTS), wanted, rtol=1e-12, atol=1e-300)


@pytest.mark.parametrize(("loss", "oracle"), LOSSES)
def test_derivatives_equal_high_precision(loss, oracle):
    points = POINTS[(np.abs(POINTS) > 1e-6) & (np.abs(POINTS) < 20)]
    for order, ours in ((1, loss.derivative), (2, loss.curvature)):
        wanted = [float(mp.diff(oracle, mp.mpf(float(m)), order)) for m in points]
        np.testing.assert_allclose(ours(points), wanted, rtol=1e-9, atol=1e-290)


def test_the_kink_of_the_projection_loss():
    loss = ProjectionLoss(alpha=3.0, beta=2.0)
    assert loss.value(0.0) == 1.0
    assert loss.derivative(0.0) == 0.0
    assert loss.derivative(-1e-300) == pytest.approx(-2.0)
    assert loss.curvature(0.0) == pytest.approx(-6.0)
    inside = np.linspace(1e-3, 1 / np.sqrt(6.0) - 1e-3, 50)
    assert np.all(loss.curvature(inside) < 0)


@given(reals, st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_losses_never_rise_with_the_margin_nor_turn_nan(margin, alpha, beta):
    for loss in (HingeLoss(), LogisticLoss(), ProjectionLoss(alpha, beta)):
        assert loss.value(margin) >= 0
        assert loss.derivative(margin) <= 0
        assert loss.value(np.float32(0.5)).dtype == np.float32


def test_the_hinge_is_the_limit_of_the_margin_loss():
    margins = np.linspace(-3, 3, 601)
    for scale in (1e-2, 1e-4):
        rounded = MarginLoss(1.0, scale, 0.0).value(margins) / (scale * 2 * np.sqrt(2) / 3)
        lack = HingeLoss().value(margins) - rounded
        assert np.all((lack >= -1e-12) & (lack <= 0.54 * scale))


@pytest.mark.parametrize("rate", [0.0, -1.0, np.inf, np.nan])
def test_rates_must_be_positive(rate):
    with pytest.raises(ValueError, match="alpha must"):
        ProjectionLoss(alpha=rate)
    with pytest.raises(ValueError, match="beta must"):
        ProjectionLoss(beta=rate)


def test_wide_influence_equals_high_precision():
    points = np.concatenate([POINTS, [1e17, -1e19, 1e200]])
    wanted = [float(wide(mp.mpf(float(u)))) for u in points]
    np.testing.assert_allclose(wide_influence(points), wanted, rtol=1e-14)
    smooth = points[np.abs(points) < 1e3]
    slopes = [
        float((1 + abs(u)) / (1 + abs(u) + u * u / 2)) for u in map(mp.mpf, map(float, smooth))
    ]
    np.testing.assert_allclose(wide_curvature(smooth), slopes, rtol=1e-14)
    np.testing.assert_array_equal(wide_influence([-np.inf, np.inf]), [-np.inf, np.inf])
    np.testing.assert_array_equal(wide_curvature([-np.inf, 1e300, np.inf]), [0.0, 2e-300, 0.0])


@given(reals)
def test_wide_influence_bounds_that_of_the_paper(u):
    assert abs(wide_influence(u)) >= abs(influence(u)) * (1 - 1e-15)
    assert 0 <= wide_curvature(u) <= 1


def mean_of_wide_influence(point, values, weights, scale):
    return mp.fsum(
        mp.mpf(float(w)) * wide((point - mp.mpf(float(x))) / mp.mpf(float(scale)))
        for x, w in zip(values, weights, strict=True)
    )


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=12),
    st.sampled_from([1e-200, 1e-6, 0.1, 1.0, 1e3, 1e9]),
    st.integers(0, 2**31),
)
def test_wide_location_is_a_root(values, scale, seed):
    weights = np.random.default_rng(seed).random(len(values)) + 0.1
    root = float(catoni_location(values, scale, sample_weight=weights, influence="wide"))
    assert min(values) <= root <= max(values)
    near = 1e-12 * max(map(abs, values)) + 1e-300
    low = mean_of_wide_influence(mp.mpf(root) - near, values, weights, scale)
    high = mean_of_wide_influence(mp.mpf(root) + near, values, weights, scale)
    assert low <= 0 <= high


def test_wide_location_in_rows_and_at_the_ends_of_the_scale():
    x = np.random.default_rng(0).standard_t(2, size=(5, 31))
    rows = catoni_location(x, 0.5, axis=1, influence="wide")
    one_by_one = [catoni_location(row, 0.5, influence="wide") for row in x]
    np.testing.assert_allclose(rows, one_by_one, rtol=1e-12)
    np.testing.assert_allclose(
        catoni_location(x, 1e9, axis=1, influence="wide"), x.mean(axis=1), rtol=1e-6
    )
    twice = catoni_location(np.repeat(x[0], 2), 0.5, influence="wide")
    weighted = catoni_location(x[0], 0.5, sample_weight=np.full(31, 2.0), influence="wide")
    np.testing.assert_allclose(twice, weighted, rtol=1e-13)
    with pytest.raises(ValueError, match=r"influence must be one of .*; got 'narrow'"):
        catoni_location(x, 1.0, influence="narrow")


class TestHinge:
    @given(margin=reals, level=positives)
    def test_value_and_derivative(self, margin, level):
        loss = HingeLoss(level)
        exact = max(mp.mpf(level) - mp.mpf(margin), 0)
        if exact <= LARGEST:
            assert abs(loss.value(margin) - exact) <= EPS * exact
        assert loss.derivative(margin) == (-1.0 if exact > 0 else 0.0)

    def test_is_the_limit_of_the_one_sided_margin_loss(self):
        margins = np.linspace(-3, 3, 25)
        tiny = MarginLoss(1.0, 1e-9, 0.0)
        slope = 1e-9 * INFLUENCE_BOUND
        np.testing.assert_allclose(
            tiny.value(margins) / slope, HingeLoss().value(margins), atol=1e-8
        )
        np.testing.assert_allclose(
            tiny.derivative(margins) / slope, HingeLoss().derivative(margins)
        )

    @pytest.mark.parametrize("margin", [0.0, -1.0, np.nan, np.inf])
    def test_bad_level(self, margin):
        with pytest.raises(ValueError, match="margin must"):
            HingeLoss(margin)

    def test_kinds(self):
        assert HingeLoss().value(np.float32(0.5)).dtype == np.float32
        assert HingeLoss().value([-np.inf, np.inf]).tolist() == [np.inf, 0.0]
