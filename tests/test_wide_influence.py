"""Catoni's wide influence function and its derivative, from their formulas."""

import mpmath
import numpy as np
import pytest
from numpy.testing import assert_allclose

from marginpursuit.losses import wide_curvature, wide_influence

POINTS = np.array([-1e3, -7.0, -1.0, -0.1, 0.3, 1.0, 2.0, 40.0])


def test_formulas():
    size = np.abs(POINTS)
    expected = np.sign(POINTS) * np.log(1.0 + size + size**2 / 2.0)
    assert_allclose(wide_influence(POINTS), expected, rtol=1e-13)
    expected = (1.0 + size) / (1.0 + size + size**2 / 2.0)
    assert_allclose(wide_curvature(POINTS), expected, rtol=1e-13)


def test_curvature_is_the_derivative():
    step = 1e-5
    slope = (wide_influence(POINTS + step) - wide_influence(POINTS - step)) / (2.0 * step)
    assert_allclose(wide_curvature(POINTS), slope, rtol=1e-6)


def test_points_whose_square_overflows():
    for size in (1e17, 1e19, 1e200, 1e308):
        point = mpmath.mpf(size)
        expected = float(mpmath.log(1 + point + point**2 / 2))
        assert wide_influence(size) == pytest.approx(expected, rel=1e-14)
        assert wide_influence(-size) == -wide_influence(size)
