"""What the shared checks let through, what they refuse and with which words."""

import re
from fractions import Fraction
from operator import index

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from strategies import reals

from marginpursuit._validation import between, count, inside, like, positive, real, scalar

SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)


@given(hnp.arrays(np.float64, SHAPES, elements=reals))
def test_real_passes_floats_through_uncopied(values):
    floats = real("x", values)
    assert floats is values or np.shares_memory(floats, values) or values.size == 0
    np.testing.assert_array_equal(floats, values)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, 1.0),
        (3, 3.0),
        (2**63, 2.0**63),
        ([1, 2.5], [1.0, 2.5]),
        ([], []),
        (((0, -0.0), (np.inf, -np.inf)), [[0.0, -0.0], [np.inf, -np.inf]]),
        (np.array([-128, 127], np.int8), [-128.0, 127.0]),
        (np.float16(0.1), float(np.float16(0.1))),
        (np.array([1.5, 2.5], ">f4"), [1.5, 2.5]),
        (np.longdouble("1.5"), 1.5),
        (np.asfortranarray([[1, 2], [3, 4]]), [[1.0, 2.0], [3.0, 4.0]]),
        (np.broadcast_to(np.float32(2), (2, 2)), [[2.0, 2.0], [2.0, 2.0]]),
    ],
    ids=repr,
)
def test_real_reads_every_real_kind(value, expected):
    floats = real("x", value)
    assert isinstance(floats, np.ndarray)
    assert floats.dtype == np.dtype("=f8")
    np.testing.assert_array_equal(floats, expected)


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        (1j, TypeError, "must hold real numbers; got 1j, dtype complex128"),
        ("auto", TypeError, "must hold real numbers; got 'auto', dtype <U4"),
        (b"1", TypeError, "must hold real numbers; got b'1', dtype |S1"),
        (None, TypeError, "must hold real numbers; got None, dtype object"),
        (10**20, TypeError, f"must hold real numbers; got {10**20}, dtype object"),
        (Fraction(1, 2), TypeError, "must hold real numbers; got Fraction(1, 2), dtype object"),
        (["1", "2"], TypeError, "must hold real numbers; got ['1', '2'], dtype <U1"),
        ([None] * 1000, TypeError, "got [None, None, None, None, None, None, ...], dtype object"),
        (np.array([0], "M8[s]"), TypeError, "dtype datetime64[s]"),
        (np.array([0], "m8[s]"), TypeError, "dtype timedelta64[s]"),
        (np.zeros(1, [("a", float)]), TypeError, "dtype [('a', '<f8')]"),
        (np.ma.array([1.0, 2.0]), TypeError, "must not be a masked array"),
        (np.ma.masked, TypeError, "must not be a masked array"),
        ([[1], [1, 2]], ValueError, "must be an array; got [[1], [1, 2]]: setting an array"),
        (np.nan, ValueError, "must not be NaN; got nan"),
        (np.float32("nan"), ValueError, "must not be NaN; got nan"),
        ([1, np.nan, np.nan], ValueError, "must not be NaN; got nan at index (1,)"),
        ([[1.0, 2.0], [3.0, np.nan]], ValueError, "must not be NaN; got nan at index (1, 1)"),
    ],
    ids=repr,
)
def test_real_refuses_the_rest(value, error, words):
    with pytest.raises(error, match=r"^a_name " + ".*" + re.escape(words)):
        real("a_name", value)


@pytest.mark.parametrize("check", [positive, scalar, count])
@pytest.mark.parametrize("value", ["1", None, 1j, np.nan, np.ma.array(1.0)], ids=repr)
def test_every_check_starts_from_real(check, value):
    with pytest.raises((TypeError, ValueError), match=r"^x must (hold real|not be)"):
        check("x", value)
    for interval in (between, inside):
        with pytest.raises((TypeError, ValueError), match=r"^x must (hold real|not be)"):
            interval("x", value, 0.0, 2.0)


@given(reals)
def test_positive_means_above_zero_and_finite(value):
    if 0 < value < np.inf:
        assert positive("s", value) == value
    else:
        with pytest.raises(ValueError, match=r"^s must be positive and finite; got ") as caught:
            positive("s", value)
        assert float(str(caught.value).split()[-1]) == value  # every digit is there


@given(reals, reals, reals)
def test_between_is_closed_and_inside_is_open(value, a, b):
    low, high = min(a, b), max(a, b)
    for check, allowed in (
        (between, low <= value <= high),
        (inside, low < value < high),
    ):
        if allowed:
            assert check("p", value, low, high) == value
        else:
            with pytest.raises(ValueError, match=r"^p must be "):
                check("p", value, low, high)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: between("p", 1.5, 0.0, 1.0), "p must be in [0, 1]; got 1.5"),
        (lambda: between("p", -np.inf, 0.0, 1.0), "p must be in [0, 1]; got -inf"),
        (
            # Six digits would print three equal numbers here.
            lambda: between("p", [0.1, np.nextafter(1 / 3, 1)], 0.1, 1 / 3),
            "p must be in [0.1, 0.3333333333333333]; got 0.33333333333333337 at index (1,)",
        ),
        (lambda: inside("d", 1, 0.0, 1.0), "d must be strictly between 0 and 1; got 1"),
        (lambda: positive("s", [1, -2]), "s must be positive and finite; got -2 at index (1,)"),
        (lambda: scalar("m", [1.0]), "m must be a single number; got an array of shape (1,)"),
        (lambda: scalar("m", []), "m must be a single number; got an array of shape (0,)"),
        (lambda: count("n", 0), "n must be a whole number of at least 1; got 0"),
        (lambda: count("n", 2, 3), "n must be a whole number of at least 3; got 2"),
        (lambda: count("n", 2.5), "n must be a whole number of at least 1; got 2.5"),
        (lambda: count("n", np.inf), "n must be a whole number of at least 1; got inf"),
        (lambda: count("n", [2, 3]), "n must be a single number; got an array of shape (2,)"),
    ],
)
def test_words_of_refusal(call, words):
    with pytest.raises(ValueError, match=f"^{re.escape(words)}$"):
        call()


@pytest.mark.parametrize("value", [2, 2.0, True + 1, np.int8(2), np.float32(2), np.array(2)])
def test_scalar_and_count_return_python_numbers(value):
    assert type(scalar("m", value)) is float
    assert type(count("n", value)) is int
    assert count("n", value, 2) == 2  # the least is allowed
    assert scalar("m", value) == index(count("n", value)) == 2


F2, F4, F8 = np.float16, np.float32, np.float64


@pytest.mark.parametrize(
    ("inputs", "kind"),
    [
        ([1.0], F8),
        ([1], F8),
        ([True], F8),
        ([2**63], F8),
        ([F2(1)], F4),
        ([F4(1)], F4),
        ([F8(1)], F8),
        ([np.longdouble(1)], F8),
        ([np.int8(1)], F8),
        ([[1.0]], F8),
        ([[F4(1)]], F4),
        ([np.array([1.0], ">f4")], F4),
        # A Python number takes the kind of its company; a NumPy number keeps its own.
        ([F4(1), 1.0], F4),
        ([F4(1), 1], F4),
        ([F4(1), F2(1)], F4),
        ([F4(1), F8(1)], F8),
        ([F4(1), [1.0]], F8),
        ([F4(1), np.int64(1)], F8),
    ],
    ids=repr,
)
@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_like_gives_back_the_kind_that_came_in(inputs, kind, shape):
    result = like(np.full(shape, 1 / 3), *inputs)
    assert result.dtype == kind
    assert np.shape(result) == shape
    assert isinstance(result, np.ndarray if shape else np.generic)
    np.testing.assert_array_equal(result, kind(1 / 3))


@given(reals, st.sampled_from(["raise", "ignore"]))
def test_like_rounds_to_float32_without_complaint(value, mode):
    with np.errstate(all=mode):
        result = like(np.array(value), F4(0))
    with np.errstate(all="ignore"):
        assert result == F4(value)
