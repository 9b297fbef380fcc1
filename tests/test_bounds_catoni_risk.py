"""The bound of Brownlees, Joly and Lugosi, and its complexities."""

import math

import numpy as np
import pytest
from bound_inputs import complexity_inputs
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate

from marginpursuit.bounds import (
    catoni_risk_bound,
    estimate_constants,
    linear_complexity,
)


@pytest.mark.parametrize("dimension", [1, 3, 50])
@pytest.mark.parametrize("radius", [0.5, 2.0])
def test_complexities_are_the_entropy_integrals(dimension, radius):
    largest, moment = 3.0, 4.0
    result = linear_complexity(
        dimension, largest, second_moment=moment, radius=radius, entropy_constant=1.5
    )
    assert result.diameter_2 == pytest.approx(2 * radius * math.sqrt(moment))
    assert result.diameter_inf == pytest.approx(2 * radius * largest)

    def log_cover(epsilon, diameter):
        return dimension * np.log(1.5 * diameter / epsilon)

    entropy, _ = integrate.quad(log_cover, 0, result.diameter_inf, args=(result.diameter_inf,))
    root, _ = integrate.quad(
        lambda e: math.sqrt(log_cover(e, result.diameter_2)), 0, result.diameter_2
    )
    assert result.eta_inf == pytest.approx(1.5 * entropy, rel=1e-8)
    assert result.eta_2 == pytest.approx(1.5 * root, rel=1e-6)
    full = linear_complexity(dimension, largest)
    assert full.eta_2 / full.diameter_2 == pytest.approx(result.eta_2 / result.diameter_2 / 1.5)
    assert full.diameter_2 == full.diameter_inf == 6.0


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_a_ball_is_covered_by_the_assumed_number_of_balls(dimension):
    """A greedy cover of a grid in the unit ball, of diameter 2, has at most (3/ε)^d centres."""
    axis = np.linspace(-1, 1, 41 if dimension < 3 else 15)
    grid = np.stack(np.meshgrid(*[axis] * dimension), axis=-1).reshape(-1, dimension)
    left = grid[np.linalg.norm(grid, axis=1) <= 1]
    left = left[np.argsort(np.linalg.norm(left, axis=1))]
    for epsilon in (0.3, 0.6, 1.0, 1.5, 2.0):
        rest, centres = left, 0
        while len(rest):
            rest = rest[np.linalg.norm(rest - rest[0], axis=1) > epsilon]
            centres += 1
        assert centres <= (3 / epsilon) ** dimension


@given(
    st.integers(1, 10**9),
    st.floats(1e-9, 0.999),
    st.floats(0, 1e3),
    st.floats(0, 1e3),
    st.floats(0.1, 10),
)
def test_terms_of_the_catoni_risk_bound(n, delta, eta_2, eta_inf, constant):
    result = catoni_risk_bound(
        n,
        delta,
        eta_2,
        eta_inf,
        deviation=2.0,
        deviation_constant=constant,
        complexity_constant=3.0,
    )
    assert result.confidence == 1 - delta
    assert result.deviation == pytest.approx(2 * constant * math.sqrt(math.log(3 / delta) / n))
    assert result.complexity_2 == pytest.approx(3 * math.log(2 / delta) * eta_2 / math.sqrt(n))
    assert result.complexity_inf == pytest.approx(3 * math.log(2 / delta) * eta_inf / n)
    assert result.bound == result.deviation + result.complexity_2 + result.complexity_inf
    assert (result.deviation_constant, result.complexity_constant) == (constant, 3.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n": 0}, "n must be a whole number"),
        ({"delta": 0.0}, "delta must be strictly between 0 and 1; got 0"),
        ({"eta_2": -1.0}, "eta_2 must be in"),
        ({"eta_inf": math.inf}, "eta_inf must be positive and finite"),
        ({"deviation": -1.0}, "deviation must be in"),
        ({"deviation_constant": 0.0}, "deviation_constant must be positive"),
        ({"complexity_constant": 0.0}, "complexity_constant must be positive"),
    ],
)
def test_catoni_risk_bound_rejects_invalid_arguments(changes, message):
    with pytest.raises(ValueError, match=message):
        catoni_risk_bound(**complexity_inputs(**changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dimension": 0}, "dimension must be a whole number"),
        ({"input_bound": 0.0}, "input_bound must be positive"),
        ({"second_moment": 4.5}, "second_moment must be at most input_bound squared, 4; got 4.5"),
        ({"radius": 0.0}, "radius must be positive"),
        ({"entropy_constant": 0.0}, "entropy_constant must be positive"),
    ],
)
def test_linear_complexity_rejects_invalid_arguments(changes, message):
    with pytest.raises(ValueError, match=message):
        linear_complexity(**({"dimension": 2, "input_bound": 2.0} | changes))


def test_the_papers_summary_of_the_catoni_risk_bound_is_loose():
    """It has d B_X/√n for η₂/√n + η∞/n, which is of order √d B_X/√n once n is well above d."""
    ratios = []
    for dimension in (1, 10, 1000, 10**5):
        eta = linear_complexity(dimension, 2.0)
        n = dimension**2
        result = catoni_risk_bound(n, 0.05, eta.eta_2, eta.eta_inf)
        summary = math.log(2 / 0.05) * dimension * 2.0 / math.sqrt(n)
        ratios.append((result.complexity_2 + result.complexity_inf) / summary)
    assert max(ratios) < 6  # a bound, up to the constants
    assert ratios == sorted(ratios, reverse=True)
    assert ratios[-1] < 0.01


def test_defaults_of_the_catoni_risk_bound():
    given = {"deviation": 1.0, "deviation_constant": 1.0, "complexity_constant": 1.0}
    expected = catoni_risk_bound(100, 0.05, 2.0, 3.0, **given)
    assert catoni_risk_bound(100, eta_2=2.0, eta_inf=3.0).bound == expected.bound


def test_complexities_of_a_data_set():
    """The radius is half of the diameter of W; E|x|^2 is at most the square of a bound given."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 3)), rng.choice([-1.0, 1.0], 200)
    constants = estimate_constants(X, y, radius=2.0)
    found = linear_complexity(constants=constants)
    assert found.diameter_inf == pytest.approx(constants.diameter * constants.input_bound)
    root = math.sqrt(constants.second_moment)
    assert found.diameter_2 == pytest.approx(constants.diameter * root)
    smaller = linear_complexity(input_bound=0.25 * root, constants=constants)
    assert smaller.diameter_2 == smaller.diameter_inf
    assert smaller.diameter_2 == pytest.approx(0.25 * constants.diameter * root)
