"""Weights summed over intervals of scores: the compiled kernel, NumPy, and a plain loop."""

from math import ceil, isnan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_cases import compiled, needs_compiled
from numpy.testing import assert_array_equal

from marginpursuit._kernels import _arrays

KERNELS = [
    pytest.param("compiled", marks=needs_compiled),
    "numpy",
]
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e300, -1e300, 5e-324, -5e-324]


def sums_of(kernel):
    return compiled.interval_sums if kernel == "compiled" else _arrays.interval_sums


def sums_by_loop(scores, weights, width, first, n_intervals):
    found = np.zeros((scores.shape[1], n_intervals))
    last = first + n_intervals - 1
    for row, weight in zip(scores, weights, strict=True):
        for column, score in enumerate(row):
            place = first if isnan(score) else min(max(score / width, first), last)
            found[column, ceil(place) - first] += weight
    return found


@pytest.mark.parametrize("kernel", KERNELS)
@given(
    st.lists(
        st.one_of(st.floats(-3.0, 3.0), st.sampled_from(SPECIAL), st.integers(-9, 9)), min_size=6
    ),
    st.integers(1, 3),
    st.integers(-5, 3),
    st.integers(1, 9),
    st.sampled_from([0.02, 0.1, 1.0, 3.0]),
)
def test_sums_are_those_of_a_loop(kernel, values, n_columns, first, n_intervals, width):
    n_rows = len(values) // n_columns
    scores = np.array(values[: n_rows * n_columns], dtype=float).reshape(n_rows, n_columns)
    weights = np.linspace(-1.0, 2.0, n_rows)
    found = sums_of(kernel)(scores, weights, width, first, n_intervals)
    assert_array_equal(found, sums_by_loop(scores, weights, width, first, n_intervals))


@pytest.mark.parametrize("kernel", KERNELS)
def test_without_rows_the_sums_are_zero(kernel):
    found = sums_of(kernel)(np.zeros((0, 2)), np.zeros(0), 0.1, -3, 4)
    assert_array_equal(found, np.zeros((2, 4)))


@needs_compiled
@pytest.mark.parametrize(
    "given", [(np.zeros(3), 0.1, 0, 2), (np.zeros(2), 0.0, 0, 2), (np.zeros(2), 0.1, 0, 0)]
)
def test_kernel_checks_its_arguments(given):
    with pytest.raises(ValueError, match=r"length|interval"):
        compiled.interval_sums(np.zeros((2, 1)), *given)
