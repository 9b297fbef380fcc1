"""The margin bound of Koltchinskii and Panchenko, by brute force and by simulation."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from marginpursuit.bounds import estimate_constants, margin_bound


def by_hand(margins, moment, delta, level, largest):
    n = len(margins)
    return (
        np.mean(np.asarray(margins) < level)
        + 4 / level * math.sqrt(moment / n)
        + 3 * math.sqrt(math.log(math.log2(2 * largest / level)) / n)
        + 3 * math.sqrt(math.log(4 / delta) / (2 * n))
    )


@settings(max_examples=50)
@given(
    hnp.arrays(float, st.integers(1, 30), elements=st.floats(-3, 3)),
    st.floats(0.01, 10),
    st.floats(0.001, 0.9),
    st.floats(0.1, 5),
)
def test_bound_is_the_smallest_over_all_levels(margins, moment, delta, largest):
    found = margin_bound(margins, moment, delta, largest_level=largest)
    expected = by_hand(margins, moment, delta, found.level, largest)
    assert found.bound == pytest.approx(expected, rel=1e-12)
    terms = (found.margin_error, found.complexity, found.uniformity, found.deviation)
    assert sum(terms) == pytest.approx(found.bound, rel=1e-15)
    assert found.confidence == 1 - delta
    assert 0 < found.level <= largest
    for level in np.append(np.geomspace(1e-3, 1, 50) * largest, found.level * 0.999):
        at = margin_bound(margins, moment, delta, level=level, largest_level=largest)
        assert at.level == level
        assert at.bound == pytest.approx(by_hand(margins, moment, delta, level, largest), rel=1e-12)
        assert found.bound <= at.bound * (1 + 1e-12)


def test_bound_holds_for_the_worst_of_many_directions():
    """Labels are noise: every w has the error 1/2, and the w that fits best has the bound above."""
    rng = np.random.default_rng(0)
    for n in (200, 5000):
        X, y = rng.normal(size=(n, 20)), rng.choice([-1.0, 1.0], n)
        w = np.linalg.lstsq(X, y, rcond=None)[0]
        margins = y * (X @ w) / np.linalg.norm(w)
        found = margin_bound(margins, np.mean(np.sum(X**2, axis=1)), largest_level=10.0)
        assert found.bound > 0.5


def test_bound_is_not_vacuous_for_wide_margins():
    margins = np.full(100_000, 0.9)
    found = margin_bound(margins, 1.0)
    assert found.margin_error == 0
    assert found.bound < 0.05


def test_bound_needs_no_bound_on_the_inputs():
    """The complexity depends on the mean square alone, not on the longest row."""
    rng = np.random.default_rng(1)
    X = rng.standard_t(3, size=(20_000, 2))
    y = np.sign(X[:, 0])
    constants = None
    with pytest.warns(UserWarning, match="power law"):
        constants = estimate_constants(X, y)
    found = margin_bound(constants=constants)
    norm = np.linalg.norm(constants.coef)
    again = margin_bound(y * (X @ constants.coef) / norm, np.mean(np.sum(X**2, axis=1)))
    assert found.bound == pytest.approx(again.bound, rel=1e-9)
    assert found.bound < 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"margin": []}, "at least one value"),
        ({"margin": [np.nan]}, "NaN"),
        ({"second_moment": 0.0}, "second_moment must be positive"),
        ({"delta": 1.0}, "delta must be"),
        ({"level": 2.0}, "level must be at most largest_level = 1; got 2"),
        ({"level": 0.0}, "level must be positive"),
    ],
)
def test_refuses_invalid_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        margin_bound(**({"margin": [1.0], "second_moment": 1.0} | arguments))


def test_missing_arguments_are_named():
    with pytest.raises(TypeError, match=r"margin is missing\. Pass it, or constants=estimate_c"):
        margin_bound()
    with pytest.raises(TypeError, match="second_moment is missing"):
        margin_bound([1.0])


def test_the_default_confidence_is_95_per_cent():
    margins = np.linspace(0.1, 2.0, 50)
    assert margin_bound(margins, 1.0).bound == margin_bound(margins, 1.0, 0.05).bound
