"""Arguments and results of every elementwise function of losses: shapes, kinds and refusals."""

import re

import numpy as np
import pytest

from marginpursuit import losses
from marginpursuit.losses import (
    RHOS,
    HingeLoss,
    LogisticLoss,
    MarginLoss,
    ProjectionLoss,
    curvature,
    influence,
    influence_inverse,
    rho,
    wide_curvature,
    wide_influence,
)

ELEMENTWISE = {
    "rho": ("u", rho),
    "influence": ("u", influence),
    "curvature": ("u", curvature),
    "influence_inverse": ("c", influence_inverse),
    "wide_influence": ("u", wide_influence),
    "wide_curvature": ("u", wide_curvature),
    **{
        f"{type(loss).__name__}.{method} {getattr(loss, 'rho', '')}": (
            "margin",
            getattr(loss, method),
        )
        for loss in [
            *(MarginLoss(0.75, 0.5, 0.25, name) for name in RHOS),
            HingeLoss(0.75),
            LogisticLoss(),
            ProjectionLoss(),
        ]
        for method in ("value", "derivative", "curvature")
    },
}
elementwise = pytest.mark.parametrize(
    ("name", "function"), ELEMENTWISE.values(), ids=ELEMENTWISE.keys()
)


def test_every_public_function_is_tested_elementwise():
    functions = [name for name in losses.__all__ if name.islower() and name != "require"]
    assert set(functions) <= set(ELEMENTWISE)


@elementwise
def test_arrays_of_every_shape_and_layout(name, function):
    points = np.linspace(-0.9, 0.9, 24)
    expected = np.array([function(x) for x in points.tolist()])
    for shape in ((24,), (4, 6), (2, 3, 4)):
        for layout in "CF":
            array = np.array(points.reshape(shape), order=layout)
            before = array.copy()
            array.flags.writeable = False
            result = function(array)
            np.testing.assert_array_equal(result, expected.reshape(shape))
            np.testing.assert_array_equal(array, before)
            assert not np.shares_memory(result, array)
    np.testing.assert_array_equal(function(points[::-2]), expected[::-2])
    np.testing.assert_array_equal(function(points.tolist()), expected)
    for empty in ([], np.empty((0, 3)), np.empty((2, 0), np.float32)):
        result = function(empty)
        assert result.shape == np.shape(empty)
        assert result.dtype == np.asarray(empty).dtype


@elementwise
@pytest.mark.parametrize(
    ("scalar", "dtype"),
    [
        (0, np.float64),
        (False, np.float64),
        (0.25, np.float64),
        (np.float64(0.25), np.float64),
        (np.int8(0), np.float64),
        (np.array(0.25), np.float64),
        (np.longdouble(0.25), np.float64),
        (np.float32(0.25), np.float32),
        (np.float16(0.25), np.float32),
    ],
    ids=lambda x: type(x).__name__,
)
def test_kinds_go_out_as_they_came_in(name, function, scalar, dtype):
    expected = dtype(function(float(scalar)))
    result = function(scalar)
    assert type(result) is dtype
    assert result == expected
    array = function(np.array([scalar, scalar]))
    assert array.dtype == dtype
    np.testing.assert_array_equal(array, [expected, expected])


@elementwise
@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        (np.nan, ValueError, "must not be NaN; got nan"),
        ([0.1, np.nan], ValueError, "must not be NaN; got nan at index (1,)"),
        (1j, TypeError, "must hold real numbers; got 1j"),
        ("0.5", TypeError, "must hold real numbers; got '0.5'"),
        (None, TypeError, "must hold real numbers; got None"),
        ([0.1, object], TypeError, "must hold real numbers"),
        (np.ma.array([0.1], mask=[True]), TypeError, "must not be a masked array"),
        ([[0.1], [0.1, 0.2]], ValueError, "must be an array; got [[0.1], [0.1, 0.2]]"),
    ],
    ids=repr,
)
def test_functions_name_the_argument_they_refuse(name, function, value, error, words):
    with pytest.raises(error, match=f"^{re.escape(f'{name} {words}')}"):
        function(value)
