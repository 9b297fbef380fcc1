"""The bounds against formulas in 50 digits, exact probabilities, tight examples and simulation."""

import math
from dataclasses import FrozenInstanceError, fields, replace

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from oracles import polynomial_roots
from scipy import integrate, stats

from marginpursuit import bounds
from marginpursuit.bounds import (
    algorithm_risk_bound,
    catoni_risk_bound,
    leave_one_out_bound,
    linear_complexity,
    location_bias_bound,
    location_bound,
    location_stability_bound,
    projection_profile,
    projection_risk_bound,
    subgaussian_mean_radius,
)
from marginpursuit.calibration import psi_transform
from marginpursuit.location import catoni_interval, catoni_location, confidence_scale
from marginpursuit.losses import INFLUENCE_BOUND, MarginLoss, curvature, influence

SQRT2 = math.sqrt(2.0)


def algorithm_inputs(**changes):
    inputs = {
        "n": 10**6,
        "dimension": 5,
        "delta": 0.05,
        "margin": 1.0,
        "scale": 2.0,
        "second_moment": 5.0,
        "strong_convexity": 0.8,
        "step": 0.3,
        "iterations": 50,
        "initial_distance": 1.5,
        "diameter": 4.0,
        "sub_gaussian": 0.7,
    }
    return inputs | changes


def location_inputs(**changes):
    return {"variance": 2.0, "n": 100, "delta": 0.05} | changes


def complexity_inputs(**changes):
    return {"n": 100, "delta": 0.05, "eta_2": 1.0, "eta_inf": 2.0} | changes


RESULTS = [
    algorithm_risk_bound(**algorithm_inputs()),
    location_bound(**location_inputs()),
    location_bias_bound(2.0, variance=1.0, absolute_third=2.0),
    location_stability_bound(100, 1.0),
    projection_risk_bound(np.linspace(-0.1, 1.0, 200), 0.1),
    leave_one_out_bound([0.0, 0.5], [1.0, 1.0], 1.0),
    catoni_risk_bound(**complexity_inputs()),
    linear_complexity(3, 1.0),
]


@pytest.mark.parametrize("result", RESULTS, ids=lambda result: type(result).__name__)
def test_a_result_is_frozen_and_shows_each_part_on_a_line(result):
    names = [field.name for field in fields(result)]
    lines = repr(result).splitlines()
    assert lines[0] == type(result).__name__
    assert [line.split()[0] for line in lines[1:]] == names
    assert all(len(line.split()) == 2 for line in lines[1:])
    assert all(len(line.split()[1]) <= len("-1.23457e-100") for line in lines[1:])
    assert str(result) == repr(result)
    assert result == replace(result)
    with pytest.raises(FrozenInstanceError):
        setattr(result, names[0], 1.0)


def test_public_names_are_sorted_and_hold_every_result():
    assert bounds.__all__ == sorted(bounds.__all__)
    assert {type(result).__name__ for result in RESULTS} <= set(bounds.__all__)


# --- Algorithm 1 ----------------------------------------------------------------------------------


@st.composite
def algorithm_cases(draw):
    """Draw inputs that the theorem admits."""
    positive = st.floats(0.01, 100.0)
    moment = draw(positive)
    kappa = moment * draw(st.floats(0.001, 1.0))
    diameter = draw(positive)
    return algorithm_inputs(
        n=draw(st.integers(1, 10**12)),
        dimension=draw(st.integers(1, 10**4)),
        delta=draw(st.floats(1e-6, 0.49)),
        margin=draw(positive),
        scale=draw(positive),
        second_moment=moment,
        strong_convexity=kappa,
        step=2.0 / (kappa + moment) * draw(st.floats(1e-6, 1.0)),
        iterations=draw(st.integers(0, 10**6)),
        initial_distance=diameter * draw(st.floats(0.0, 1.0)),
        diameter=diameter,
        sub_gaussian=draw(st.floats(0.5, 10.0)),
        approximation=draw(st.sampled_from([0.0, 1e-6, 1.0])),
    )


@settings(max_examples=60)
@given(algorithm_cases())
def test_parts_of_the_theorem_in_50_digits(case):
    result = algorithm_risk_bound(**case)
    with mp.workdps(50):
        number = {key: mp.mpf(value) for key, value in case.items()}
        n, d, delta, s = (number[key] for key in ("n", "dimension", "delta", "scale"))
        v, kappa, alpha = (number[k] for k in ("second_moment", "strong_convexity", "step"))
        width, c = number["diameter"], number["sub_gaussian"]
        beta = 2 * kappa * v / (kappa + v)
        cover = d * mp.log(max(3 * width * mp.sqrt(n) / (2 * delta), 3))
        t = cover + mp.log(1 / delta)
        slope = mp.mpf(8) / 9  # B²
        epsilon = s * mp.sqrt(2 * c * slope * v * (1 + 2 * mp.sqrt(t) + 2 * t))
        # E11: the statement has the 2s outside of its ε*, the proof inside; the sum is the same.
        inner = d * mp.log(3 * mp.sqrt(n) / (2 * delta)) + mp.log(1 / delta)
        printed = 2 * s * mp.sqrt(c * slope * v * inner)
        optimisation = (1 - alpha * beta) ** number["iterations"] * v
        optimisation *= number["initial_distance"] ** 2
        statistical = 4 * v / (beta**2 * n) * ((1 + delta) * v + epsilon) ** 2
        expected = {
            "confidence": 1 - 2 * delta,
            "admissible_step": 2 / (kappa + v),
            "rate": beta,
            "log_cover": cover,
            "epsilon_star": epsilon,
            "epsilon_star_printed": printed,
            "statistical": statistical,
        }
        for name, value in expected.items():
            assert getattr(result, name) == pytest.approx(float(value), rel=1e-12, abs=0), name
        # The base 1 - αβ has lost digits where αβ is nearly 1; there the power is as good as 0.
        assert result.optimisation == pytest.approx(float(optimisation), rel=1e-6, abs=1e-12)
    assert result.surrogate == result.optimisation + result.statistical
    total = result.surrogate + case["approximation"]
    full = psi_transform(1.0, case["margin"], case["scale"])
    assert result.vacuous == (total >= full) or total == pytest.approx(full)
    if result.vacuous:
        assert result.misclassification == 1.0
    else:
        back = psi_transform(result.misclassification, case["margin"], case["scale"])
        assert back == pytest.approx(total, rel=1e-9, abs=0)


def test_a_slow_contraction_is_accurate():
    case = algorithm_inputs(step=1e-12, iterations=10**12)
    result = algorithm_risk_bound(**case)
    assert result.optimisation == pytest.approx(math.exp(-result.rate) * 5.0 * 1.5**2, rel=1e-9)


def test_an_approximation_error_that_fills_the_range_makes_the_bound_vacuous():
    full = MarginLoss(1.0, 2.0).value(0.0)
    case = algorithm_inputs(n=10**9)
    assert algorithm_risk_bound(**case, approximation=0.5 * full).misclassification < 1.0
    result = algorithm_risk_bound(**case, approximation=full)
    assert result.surrogate < full
    assert result.vacuous
    assert result.misclassification == 1.0


def test_a_perfect_step_leaves_only_the_statistical_error():
    case = algorithm_inputs(second_moment=2.0, strong_convexity=2.0, step=0.5, iterations=1)
    assert algorithm_risk_bound(**case).optimisation == 0.0
    case["iterations"] = 0
    assert algorithm_risk_bound(**case).optimisation == 2.0 * 1.5**2


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("kappa", [0.1, 1.0, 3.0])
def test_an_admissible_step_contracts_and_a_longer_one_need_not(kappa, share):
    moment = 3.0
    result = algorithm_risk_bound(
        **algorithm_inputs(second_moment=moment, strong_convexity=kappa, step=0.1)
    )
    hessian = np.linspace(kappa, moment, 101)

    def contraction(step):
        return np.max((1 - step * hessian) ** 2) - (1 - step * result.rate)

    assert contraction(share * result.admissible_step) <= 1e-12
    assert contraction(1.01 * result.admissible_step) > 0


def test_recursion_with_adversarial_errors_stays_below_the_sum_e16():
    """E16: the sum holds through v/2 and (a + b)² ≤ 2a² + 2b²; as printed, a step is wrong."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        moment, share, start, error = rng.uniform(0.1, 3.0, size=4)
        kappa = moment * rng.uniform(0.01, 1.0)
        step = min(share / 3, 1.0) * 2 / (kappa + moment)
        beta = 2 * kappa * moment / (kappa + moment)
        steps = rng.integers(0, 60)
        hessian = rng.choice([kappa, moment])  # a quadratic risk in one dimension, w* = 0
        w = start
        for _ in range(steps):
            w = w - step * hessian * w
            w += math.copysign(step * error, w)
        a, b = math.sqrt(1 - step * beta) ** steps * start, 2 * error / beta
        assert abs(w) <= (a + b) * (1 + 1e-12)
        excess = 0.5 * hessian * w * w
        assert excess <= 0.5 * moment * (a + b) ** 2 * (1 + 1e-12)
        assert 0.5 * moment * (a + b) ** 2 <= moment * (a * a + b * b) * (1 + 1e-12)
        if a > 1e-3:  # the printed step, from v(a + b)² to v(a² + b²)
            assert moment * (a + b) ** 2 > moment * (a * a + b * b)


def test_e12_the_cover_needs_the_diameter():
    """An interval of length Δ needs Δ/(2ε) balls; the printed count is for Δ = 1 whatever Δ is."""
    n, delta = 100, 0.1
    radius = delta / math.sqrt(n)
    for diameter in (0.005, 0.5, 3.5, 100.0):
        case = algorithm_inputs(
            n=n, dimension=1, delta=delta, diameter=diameter, initial_distance=0.001
        )
        result = algorithm_risk_bound(**case)
        needed = math.ceil(diameter / (2 * radius) - 1e-9)
        assert math.exp(result.log_cover) >= needed
        printed = 1.5 * math.sqrt(n) / delta
        assert (printed >= needed) == (diameter <= 3.0)
    # In d dimensions the volume of the ball shows the same.
    for d in (2, 20):
        result = algorithm_risk_bound(
            **algorithm_inputs(n=n, dimension=d, delta=delta, diameter=100)
        )
        needed = d * math.log(50 / radius)
        assert d * math.log(1.5 * math.sqrt(n) / delta) < needed <= result.log_cover


def test_e12_the_unit_of_the_weights_matters():
    """With x in other units the problem is the same; the printed ε* does not see it, ours does."""
    unit = 1e3
    base = algorithm_risk_bound(**algorithm_inputs())
    other = algorithm_risk_bound(
        **algorithm_inputs(
            second_moment=5.0 / unit**2,
            strong_convexity=0.8 / unit**2,
            step=0.3 * unit**2,
            initial_distance=1.5 * unit,
            diameter=4.0 * unit,
        )
    )
    assert other.optimisation == pytest.approx(base.optimisation)
    assert other.epsilon_star_printed * unit == pytest.approx(base.epsilon_star_printed)
    assert other.log_cover == pytest.approx(base.log_cover + 5 * math.log(unit))
    assert other.epsilon_star * unit > 1.1 * base.epsilon_star


@pytest.mark.parametrize("dimension", [1, 2, 10, 100, 1000])
@pytest.mark.parametrize("delta", [0.5, 0.05, 1e-3, 1e-8])
def test_e13_mean_of_gaussian_vectors(dimension, delta):
    """‖x̄‖² is chi-squared over n for N(0, I), so that the probabilities are exact."""
    n = 7
    radius = subgaussian_mean_radius(n, delta, trace=dimension, spectral=1.0)
    assert stats.chi2.sf(n * radius**2, dimension) <= delta
    assert subgaussian_mean_radius(n, delta, trace=dimension) >= radius
    # An elongated law, of trace 1 and all but one direction small: by its Chernoff bound.
    weights = np.r_[1.0, np.full(dimension - 1, 0.01)]
    radius = subgaussian_mean_radius(1, delta, trace=weights.sum(), spectral=1.0)
    rate = 0.5 * np.linspace(0.01, 0.99, 99)
    log_mgf = -0.5 * np.log1p(-2 * np.outer(rate, weights)).sum(axis=1)
    assert np.min(log_mgf - rate * radius**2) <= math.log(delta)


@given(
    st.integers(1, 10**9),
    st.floats(1e-300, 0.999),
    st.floats(1e-3, 1e3),
    st.floats(1e-3, 1.0),
    st.floats(0.5, 10.0),
)
def test_mean_radius_in_50_digits(n, delta, trace, share, constant):
    spectral = share * trace
    radius = subgaussian_mean_radius(
        n, delta, trace=trace, spectral=spectral, sub_gaussian=constant
    )
    with mp.workdps(50):
        t, tr, largest = -mp.log(mp.mpf(delta)), mp.mpf(trace), mp.mpf(spectral)
        spread = tr + 2 * mp.sqrt(tr * largest * t) + 2 * largest * t
        expected = mp.sqrt(2 * mp.mpf(constant) / n * spread)
        assert radius == pytest.approx(float(expected), rel=1e-13, abs=0)


def test_e13_printed_radius_is_exceeded_almost_always():
    printed = 2 * math.sqrt(0.5 * 1.0 * math.log(1 / 0.05))
    assert printed == pytest.approx(2.4477, abs=1e-4)
    assert stats.chi2.sf(printed**2, 100) > 1 - 1e-12
    ours = subgaussian_mean_radius(1, 0.05, trace=100.0, spectral=1.0)
    assert 1e-4 < stats.chi2.sf(ours**2, 100) <= 0.05  # it holds, and is not far too large


def test_mean_of_random_signs_stays_in_the_radius():
    rng = np.random.default_rng(1)
    signs = rng.choice([-1.0, 1.0], size=(2000, 20, 30))  # sub-Gaussian with c = 1/2
    norm = np.linalg.norm(signs.mean(axis=1), axis=1)
    for delta in (0.5, 0.1, 0.01):
        radius = subgaussian_mean_radius(20, delta, trace=30.0, spectral=1.0)
        assert np.mean(norm > radius) <= delta
        printed = 2 * math.sqrt(0.5 * math.log(1 / delta) / 20)
        assert np.mean(norm > printed) == 1.0  # E13


@given(
    hnp.arrays(float, 3, elements=st.floats(-20, 20)),
    hnp.arrays(float, (2, 3), elements=st.floats(-3, 3)),
    st.floats(0.1, 10.0),
)
def test_e15_gradient_is_lipschitz_with_the_squared_norm(x, weights, scale):
    loss = MarginLoss(1.0, scale)
    gradients = [loss.derivative(w @ x) * x for w in weights]
    change = np.linalg.norm(gradients[0] - gradients[1])
    distance = np.linalg.norm(weights[0] - weights[1])
    assert change <= x @ x * distance * (1 + 1e-9) + 1e-9


def test_e15_printed_lipschitz_constant_fails():
    loss, x, distance = MarginLoss(1.0, 2.0), 10.0, 1e-3
    change = abs(loss.derivative(0.1 * x) - loss.derivative((0.1 + distance) * x)) * x
    assert change > 100 * x * distance / loss.scale / 10  # printed: ‖x‖ε/s
    assert change <= x * x * distance


def test_algorithm_on_a_law_where_everything_is_known():
    """Four inputs in the plane: the true gradient, κ, w* and c are sums, no estimates."""
    points = np.array([[1.0, 0.4], [0.2, 1.0], [-0.5, 0.8], [0.9, -0.3]])
    probabilities = np.array([0.4, 0.3, 0.2, 0.1])
    n, delta, steps, start = 400, 0.1, 40, np.array([0.5, -0.2])
    loss = MarginLoss(1.0, 3.0)  # labels are all 1: margins are scores

    def gradient(w, shares):
        return (shares * loss.derivative(points @ w)) @ points

    def risk(w):
        return probabilities @ loss.value(points @ w)

    axis = np.linspace(-1.5, 1.5, 13)
    grid = np.array([(a, b) for a in axis for b in axis])  # W is a square, of diameter 3√2
    moment = probabilities @ (points**2).sum(axis=1)
    weight = loss.curvature(grid @ points.T) * probabilities
    hessian = np.einsum("gi,ij,ik->gjk", weight, points, points)
    kappa = 0.9 * np.linalg.eigvalsh(hessian).min()  # less than the least, for what lies between
    best = np.zeros(2)
    for _ in range(2000):
        best = best - gradient(best, probabilities)
    assert np.abs(best).max() < 1.5
    result = algorithm_risk_bound(
        n=n,
        dimension=2,
        delta=delta,
        margin=loss.margin,
        scale=loss.scale,
        second_moment=moment,
        strong_convexity=kappa,
        step=1.9 / (kappa + moment),
        iterations=steps,
        initial_distance=np.linalg.norm(start - best),
        diameter=3 * SQRT2,
        sub_gaussian=_sub_gaussian_constant(grid, points, probabilities, loss),
    )
    rng = np.random.default_rng(2)
    wrong_gradient = wrong_risk = 0
    limit = ((1 + delta) * moment + result.epsilon_star) / math.sqrt(n)
    for shares in rng.multinomial(n, probabilities, size=200) / n:
        slopes = loss.derivative(grid @ points.T) * (shares - probabilities)
        wrong_gradient += np.linalg.norm(slopes @ points, axis=1).max() > limit
        w = start
        for _ in range(steps):
            w = w - 1.9 / (kappa + moment) * gradient(w, shares)
        assert np.abs(w).max() < 1.5  # E17: within W, without a projection
        wrong_risk += risk(w) - risk(best) > result.surrogate
    assert wrong_gradient <= 2 * delta * 200
    assert wrong_risk <= 2 * delta * 200


def _sub_gaussian_constant(grid, points, probabilities, loss):
    """Return c of A3 on a grid of weights and of directions and lengths of a."""
    angle = np.linspace(0, 2 * np.pi, 24, endpoint=False)
    directions = np.column_stack([np.cos(angle), np.sin(angle)])
    largest = 0.5
    for w in grid[::5]:
        b = (-loss.derivative(points @ w) / loss.scale)[:, None] * points
        along = (b - probabilities @ b) @ directions.T
        variance = probabilities @ along**2
        for length in np.geomspace(0.01, 100.0, 30):
            log_mgf = np.log(probabilities @ np.exp(np.minimum(length * along, 600)))
            largest = max(largest, np.max(log_mgf / (length**2 * variance)))
    return 1.05 * largest


def test_e18_excess_is_over_all_measurable_scores():
    """The erratum's law: among linear scores the best surrogate has not the least error."""
    x, probabilities = np.array([0.1, -5.0]), np.array([0.6, 0.4])  # y x
    loss = MarginLoss(1.0, 1.0)
    w = np.linspace(-1.0, 1.0, 20001)
    risk = loss.value(w[:, None] * x) @ probabilities
    error = (w[:, None] * x <= 0) @ probabilities
    best = risk.argmin()
    assert w[best] == pytest.approx(-0.195, abs=1e-3)
    assert error[best] == pytest.approx(0.6)
    assert error.min() == pytest.approx(0.4)
    case = algorithm_inputs(n=10**15, iterations=10**6, scale=1.0)
    # Over the linear ones: no excess surrogate risk, yet an excess error of 0.2.
    assert algorithm_risk_bound(**case).misclassification < 0.2
    # Over all scores: the labels are certain, so that the least risk and error are 0.
    case["approximation"] = risk[best]
    assert algorithm_risk_bound(**case).misclassification >= error[best]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n": 0}, "n must be a whole number of at least 1; got 0"),
        ({"n": 2.5}, "n must be a whole number of at least 1; got 2.5"),
        ({"dimension": -1}, "dimension must be a whole number"),
        ({"iterations": -1}, "iterations must be a whole number of at least 0; got -1"),
        ({"delta": 0.0}, "delta must be strictly between 0 and 0.5; got 0"),
        ({"delta": 0.5}, "delta must be strictly between 0 and 0.5; got 0.5"),
        ({"delta": math.nan}, "delta must not be NaN"),
        ({"margin": -1.0}, "margin must be positive"),
        ({"scale": 0.0}, "scale must be positive"),
        ({"second_moment": math.inf}, "second_moment must be positive and finite"),
        ({"strong_convexity": 6.0}, r"strong_convexity must be at most 5\.0.*got 6\.0"),
        ({"strong_convexity": 0.0}, "strong_convexity must be positive"),
        (
            {"step": 0.35},
            r"step must be at most 0\.3448.*2 / \(strong_convexity \+ second_moment\)",
        ),
        ({"step": 0.0}, "step must be positive"),
        ({"initial_distance": 4.5}, r"initial_distance must be at most 4\.0, the diameter"),
        ({"initial_distance": -1.0}, "initial_distance must be in"),
        ({"diameter": 0.0}, "diameter must be positive"),
        ({"sub_gaussian": 0.4}, r"sub_gaussian must be at least 0\.5.*got 0\.4"),
        ({"approximation": -0.1}, "approximation must be in"),
        ({"approximation": math.inf}, "approximation must be positive and finite"),
    ],
)
def test_algorithm_bound_refuses(changes, message):
    with pytest.raises(ValueError, match=message):
        algorithm_risk_bound(**algorithm_inputs(**changes))


def test_the_longest_admissible_step_is_admitted():
    result = algorithm_risk_bound(**algorithm_inputs())
    algorithm_risk_bound(**algorithm_inputs(step=result.admissible_step))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n": 0}, "n must be a whole number"),
        ({"delta": 1.0}, "delta must be strictly between 0 and 1"),
        ({"trace": 0.0}, "trace must be positive"),
        ({"spectral": 3.0}, r"spectral must be at most 2\.0, the trace"),
        ({"spectral": 0.0}, "spectral must be positive"),
        ({"sub_gaussian": 0.1}, "sub_gaussian must be at least"),
    ],
)
def test_mean_radius_refuses(changes, message):
    with pytest.raises(ValueError, match=message):
        subgaussian_mean_radius(**({"n": 3, "delta": 0.1, "trace": 2.0} | changes))


# --- Location: error ------------------------------------------------------------------------------


@settings(max_examples=60)
@given(
    st.floats(1e-3, 1e3),
    st.integers(1, 10**9),
    st.floats(1e-9, 0.999),
    st.floats(0.01, 100.0),
)
def test_radius_is_the_least_root_of_the_quadratic(variance, n, delta, factor):
    s = factor * math.sqrt(variance)
    result = location_bound(variance, n, delta, scale=s)
    with mp.workdps(50):
        v, scale, log_term = mp.mpf(variance), mp.mpf(s), mp.log(2 / mp.mpf(delta))
        share = v / scale**2 + 2 * log_term / n
        assert result.linear == pytest.approx(float(scale * share), rel=1e-13)
        assert result.bias == pytest.approx(float(v / scale), rel=1e-13)
        if share > 1:
            assert result.radius == math.inf or share < 1 + mp.mpf(10) ** -12
        else:
            # r² - 2sr + s²q = 0, and of its two roots the one below s.
            root = scale * (1 - mp.sqrt(1 - share))
            assert result.radius == pytest.approx(float(root), rel=1e-6)
            assert root <= scale
            assert result.linear / 2 <= result.radius <= result.linear


@given(st.floats(1e-3, 1e3), st.integers(60, 10**6), st.floats(1e-5, 0.5))
def test_the_default_scale_gives_the_least_bounds(variance, n, delta):
    best = location_bound(variance, n, delta)
    assert best.scale == confidence_scale(variance, n, delta)
    assert best.bias == pytest.approx(best.deviation)
    for factor in (0.9, 0.99, 1.01, 1.1):
        other = location_bound(variance, n, delta, scale=factor * best.scale)
        assert best.linear < other.linear
    interval = catoni_interval(np.zeros(n if n < 1000 else 1000), variance, delta=delta)
    if n < 1000:
        assert best.radius == pytest.approx(interval.radius, rel=1e-12)


def two_point_failure(n, p, s, radius):
    """Return the exact probability that the estimate misses the mean p of n draws from {0, 1}."""
    ones = np.arange(n + 1)
    weight = np.column_stack([n - ones, ones])
    values = np.broadcast_to([0.0, 1.0], weight.shape)
    estimate = catoni_location(values, s, sample_weight=weight, axis=1)
    return stats.binom.pmf(ones, n, p)[np.abs(estimate - p) > radius * (1 + 1e-12)].sum()


@pytest.mark.parametrize("n", [10, 17, 40, 150])
def test_location_radius_holds_exactly_on_two_point_laws(n):
    worst = 0.0
    for delta in (0.5, 0.1, 0.01, 1e-3):
        for p in (0.005, 0.05, 0.23, 0.5):
            best = location_bound(p * (1 - p), n, delta).scale
            for s in (0.3 * best, 0.7 * best, best, 1.5 * best, 4 * best):
                result = location_bound(p * (1 - p), n, delta, scale=s)
                if result.radius < math.inf:
                    failure = two_point_failure(n, p, s, result.radius)
                    worst = max(worst, failure / delta)
                    assert failure <= delta
    assert worst > 1e-3  # the comparison is not between nothing and something


def test_e3_printed_lemma_is_not_what_follows_and_fails():
    n, p, delta = 10, 0.23, 0.001
    v, log_term = p * (1 - p), math.log(2 / delta)
    result = location_bound(v, n, delta)
    printed = math.sqrt(2 * v * log_term / n)
    assert result.linear == pytest.approx(2 * printed)
    assert n <= 4 * log_term
    assert result.radius == math.inf  # says that n is too small, which the lemma does not
    assert two_point_failure(n, p, result.scale, printed) > 10 * delta
    # With n > 4 log(2/δ) there is a radius, and it is more than the printed one.
    enough = location_bound(v, 100, delta)
    printed = math.sqrt(2 * v * log_term / 100)
    assert printed < enough.radius < 2 * printed


def test_e3_linear_bound_fails_where_there_is_no_radius():
    """For one draw the estimate is the draw; v/s + 2s log(2/δ) is too small for a heavy tail."""
    delta, p = 0.001, 0.005
    v = p * (1 - p)
    result = location_bound(v, 1, delta)
    assert result.radius == math.inf
    assert result.linear < 1 - p
    assert two_point_failure(1, p, result.scale, result.linear) == pytest.approx(p)
    assert p > delta


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"variance": 0.0}, "variance must be positive"),
        ({"n": 0}, "n must be a whole number"),
        ({"delta": 1.0}, "delta must be strictly between 0 and 1; got 1"),
        ({"delta": [0.1, 0.2]}, "delta must be a single number"),
        ({"scale": -1.0}, "scale must be positive"),
    ],
)
def test_location_bound_refuses(changes, message):
    with pytest.raises(ValueError, match=message):
        location_bound(**location_inputs(**changes))


# --- Location: bias -------------------------------------------------------------------------------


def moments(x, weight=None):
    mean = np.average(x, weights=weight)
    z = x - mean
    return mean, {
        "variance": np.average(z**2, weights=weight),
        "absolute_third": np.average(np.abs(z) ** 3, weights=weight),
        "third": np.average(z**3, weights=weight),
        "fourth": np.average(z**4, weights=weight),
    }


samples = hnp.arrays(
    float,
    st.integers(2, 12),
    elements=st.floats(-10, 10).map(lambda x: round(x, 6))  # moments must not underflow
    | st.integers(-1000, 1000).map(float)
    | st.sampled_from([0.0, 1.0, 500.0]),
)


@settings(max_examples=300)
@given(samples, st.floats(-3, 3))
def test_estimate_is_within_the_bias_bound_of_the_mean(x, exponent):
    mean, m = moments(x)
    s = 10**exponent * max(math.sqrt(m["variance"]), 1e-3)
    result = location_bias_bound(s, **m)
    shift = catoni_location(x, s) - mean
    rounding = 1e-12 * (np.abs(x).max() + s)
    assert abs(shift) <= result.bound + rounding
    assert abs(shift) <= result.cubic + rounding
    assert abs(shift) <= result.spread + rounding
    assert result.bound == min(result.spread, result.cubic)
    assert abs(shift - result.expansion) <= result.remainder + rounding


@pytest.mark.parametrize("ratio", [0.2, 0.7, 0.72, 1.0, 3.0, 100.0])
@pytest.mark.parametrize("p", [0.001, 0.1, 0.4, 0.5])
def test_bias_bound_on_two_point_laws(p, ratio):
    """Rare large values: the third absolute moment is the third moment, and the bound is tight."""
    x, weight = np.array([0.0, 1.0]), np.array([1 - p, p])
    mean, m = moments(x, weight)
    s = ratio * math.sqrt(m["variance"])
    shift = catoni_location(x, s, sample_weight=weight) - mean
    result = location_bias_bound(s, **m)
    assert abs(shift) <= result.bound * (1 + 1e-9) + 1e-15
    assert abs(shift - result.expansion) <= result.remainder * (1 + 1e-9) + 1e-15
    if p == 0.001 and ratio == 100.0:
        assert result.bound <= 1.01 * abs(shift)


def test_cubic_bound_is_the_least_root():
    with mp.workdps(50):
        for s, v, a in [(1.0, 0.5, 0.6), (3.0, 1.0, 7.0), (50.0, 4.0, 9.0), (1.0, 1.0, 1.9999)]:
            cubic = location_bias_bound(s, variance=v, absolute_third=a).cubic
            p = 2 * mp.mpf(s) ** 2 - v
            roots = [r.real for r in polynomial_roots([-1, 0, 3 * p, -a])]
            assert cubic == pytest.approx(float(min(r for r in roots if r > 0)), rel=1e-13)
    # Beyond the condition E|x - μ|³ ≤ 2(2s² - v)^(3/2) there is no root; the spread remains.
    for s, a in [(1.0, 2.0001), (0.75, 1.0), (0.7, 1.0)]:
        none = location_bias_bound(s, variance=1.0, absolute_third=a)
        assert (none.cubic, none.bound) == (math.inf, 1.0)


@given(st.floats(0.5, 100.0), st.floats(0.1, 10.0), st.floats(1.0, 3.0), st.floats(-1.0, 1.0))
def test_expansion_and_remainder_in_50_digits(scale, spread, heaviness, skew):
    absolute = heaviness * spread**3
    third, fourth = skew * absolute, (heaviness * spread) ** 4
    result = location_bias_bound(
        scale, variance=spread**2, absolute_third=absolute, third=third, fourth=fourth
    )
    with mp.workdps(50):
        s, v, m_3, m_4 = mp.mpf(scale), mp.mpf(spread) ** 2, mp.mpf(third), mp.mpf(fourth)
        d, k = mp.mpf(result.bound), (mp.sqrt(33) - 1) / 2
        quartic = mp.sqrt(2) / 12 * (k - 1) ** 2 * (k + 2) / k**4
        remainder = d * v / (2 * s**2) + d**3 / (6 * s**2)
        remainder += quartic / s**3 * (d**4 + 6 * d**2 * v + 4 * d * abs(m_3) + m_4)
        assert result.remainder == pytest.approx(float(remainder), rel=1e-12, abs=0)
        assert result.expansion == pytest.approx(float(-m_3 / (6 * s**2)), rel=1e-12, abs=1e-300)


def test_bias_bound_tends_to_a_sixth_of_the_third_moment():
    m = {"variance": 1.0, "absolute_third": 2.5, "third": -2.0, "fourth": 9.0}
    small, large = location_bias_bound(1e3, **m), location_bias_bound(1e6, **m)
    assert large.bound == pytest.approx(2.5 / 6e12, rel=1e-9, abs=0)
    assert large.expansion == pytest.approx(2.0 / 6e12, rel=1e-12, abs=0)
    assert small.remainder / large.remainder == pytest.approx(1e9, rel=1e-2)  # order 1/s³


def test_the_constants_of_the_bias_bound():
    u = np.linspace(SQRT2, 30, 2_000_001)
    largest = np.max((u**3 / 6 - u + INFLUENCE_BOUND) / u**4)
    # With s = 1, v = m₃ = 0 in the formula, the remainder is C m₄ up to what the bound adds.
    tiny = location_bias_bound(1.0, variance=1e-40, absolute_third=1e-30, third=0.0, fourth=1.0)
    assert tiny.remainder == pytest.approx(largest, rel=1e-9)
    # ψ is a mixture of clips, and each clip is above its parabola.
    grid = np.linspace(-4, 4, 81)
    for point in grid:
        mixture, _ = integrate.quad(lambda k, u=point: k * np.clip(u, -k, k), 0, SQRT2, points=[1])
        assert mixture == pytest.approx(influence(point), abs=1e-8)
    u = np.linspace(-50, 50, 100_001)
    for k in np.r_[np.geomspace(0.01, 100, 60), 2 / 3, 3 / 2]:
        if k <= 2 / 3:
            parabola, mean = k - 2 * k * (u - 2) ** 2 / (2 + k) ** 2, k - 4 * k / (2 + k) ** 2
        elif k <= 3 / 2:
            parabola, mean = k - (u - 2) ** 2 / (8 - 4 * k), k - 2 / (8 - 4 * k)
        else:
            parabola, mean = u - (u - 1) ** 2 / (4 * k - 4), 1 - 1 / (4 * k - 4)
        assert np.all(parabola <= np.clip(u, -k, k) + 1e-9)
        assert mean > 0


def test_bias_bound_of_a_constant_and_at_extreme_scales():
    zero = {"variance": 0.0, "absolute_third": 0.0, "third": 0.0, "fourth": 0.0}
    result = location_bias_bound(1.0, **zero)
    assert (result.bound, result.expansion, result.remainder) == (0.0, 0.0, 0.0)
    m = {"variance": 1.0, "absolute_third": 2.0, "third": 1.0, "fourth": 5.0}
    assert location_bias_bound(1e-300, **m).bound == 1.0
    assert location_bias_bound(1e-300, **m).remainder == math.inf
    assert location_bias_bound(1e100, **m).bound == pytest.approx(2.0 / 6e200, rel=1e-12, abs=0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scale": 0.0}, "scale must be positive"),
        ({"variance": -1.0}, "variance must be in"),
        ({"variance": math.nan}, "variance must not be NaN"),
        ({"absolute_third": 0.5}, "variance is too large for absolute_third"),
        ({"third": 1.0}, "third and fourth must be given both or neither"),
        ({"third": 9.0, "fourth": 99.0}, "third is too large for absolute_third"),
        ({"third": 1.0, "fourth": 1.0}, "absolute_third is too large for fourth"),
    ],
)
def test_bias_bound_refuses(changes, message):
    with pytest.raises(ValueError, match=message):
        location_bias_bound(**({"scale": 1.0, "variance": 1.0, "absolute_third": 2.0} | changes))


# --- Location: stability --------------------------------------------------------------------------


@pytest.mark.parametrize("blocks", [1, 3, 10])
@pytest.mark.parametrize("changed", [1, 2, 5])
@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_stability_bound_is_attained(blocks, changed, side):
    """16 values at the edge and 11 far on the other side balance: ψ(√2/2)/B = 11/16."""
    s, inside, far = 2.0, 16 * blocks, 1e6
    edge = np.full(inside, s * SQRT2 / 2 * (1 - 1e-12))
    x = np.r_[edge, np.full(changed, far), np.full(11 * blocks + changed, -far)] * side
    estimate = catoni_location(x, s)
    assert abs(estimate) < 1e-9
    y = x.copy()
    y[inside : inside + changed] *= -1
    moved = abs(catoni_location(y, s) - estimate)
    result = location_stability_bound(x.size, s, n_inside=inside, n_changed=changed)
    if result.bound < math.inf:
        assert moved == pytest.approx(result.bound, rel=1e-8)
    else:
        assert 6.4 * changed > inside
        assert moved > s * SQRT2 / 2  # it leaves the range in which the edge can hold it


@settings(max_examples=200)
@given(st.integers(0, 2**32 - 1), st.integers(10, 120), st.integers(1, 8), st.floats(-1, 1.5))
def test_adversarial_changes_stay_below_the_stability_bound(seed, n, changed, exponent):
    rng = np.random.default_rng(seed)
    x = rng.standard_t(2, size=n)
    s = 10**exponent
    estimate = catoni_location(x, s)
    inside = int(np.sum(np.abs(x - estimate) <= s * SQRT2 / 2))
    changed = min(changed, n)
    result = location_stability_bound(n, s, n_inside=inside, n_changed=changed)
    order = np.argsort(x)
    for chosen, value in [
        (order[:changed], 1e9),
        (order[-changed:], -1e9),
        (np.argsort(np.abs(x - estimate))[:changed], 1e9),
        (rng.permutation(n)[:changed], rng.normal(scale=10 * s, size=changed)),
    ]:
        y = x.copy()
        y[chosen] = value
        moved = abs(catoni_location(y, s) - estimate)
        assert moved <= result.bound * (1 + 1e-9) + 1e-12
        if result.proof >= result.bound:
            assert moved <= result.proof * (1 + 1e-9) + 1e-12


def test_e7_the_statement_is_true_for_31_and_more():
    """The proof arrives at 2s/√n for m ≥ n/2, the statement is s/√n; it holds all the same."""
    for n in range(31, 3000):
        result = location_stability_bound(n, 1.0)
        assert result.bound <= result.statement
        assert result.n_inside >= n / 2
    assert location_stability_bound(30, 1.0).bound > location_stability_bound(30, 1.0).statement
    big = location_stability_bound(400, 3.0)
    assert big.proof == pytest.approx(3 * 2 / math.sqrt(400))
    assert big.statement == pytest.approx(3 / math.sqrt(400))


def test_e8_e9_the_slope_of_the_proof():
    def corrected(m):
        return 3 / 4 - (math.sqrt(m) + 1) / m

    def printed(m):
        return 1 / 2 - 2 * (math.sqrt(m) + 1) / m

    def enough(slope, m):
        return m * math.sqrt(2 / m) * slope(m) >= 4 * SQRT2 / 3

    for m in (8, 24, 100, 5000):
        assert curvature(SQRT2 / 2 + math.sqrt(2 / m)) == pytest.approx(corrected(m), abs=1e-12)
    assert printed(24) < 0.01 < 0.5 < corrected(24)
    assert not enough(printed, 24)
    assert not enough(printed, 52)
    assert enough(printed, 53)
    assert all(enough(corrected, m) for m in range(13, 2000))
    assert not enough(corrected, 12)
    # Our own bound is below s√(2/m) from m = 7 on, and below s√(2k/m) from m = 7k on.
    for changed in (1, 3):
        for m in range(7 * changed, 2000):
            result = location_stability_bound(m, 1.0, n_inside=m, n_changed=changed)
            assert result.bound <= result.proof
            assert result.proof == pytest.approx(math.sqrt(2 * changed / m))


def test_e10_a_changed_value_may_be_one_of_those_inside():
    """Changing a value at the edge is never worse than changing one far away."""
    s, far = 1.0, 1e6
    x = np.r_[np.full(32, s * SQRT2 / 2 * (1 - 1e-12)), far, np.full(23, -far)]
    estimate = catoni_location(x, s)
    y, z = x.copy(), x.copy()
    y[0] = -far
    z[32] = -far
    bound = location_stability_bound(x.size, s, n_inside=32).bound
    inside, outside = (estimate - catoni_location(other, s) for other in (y, z))
    assert 0 < inside < outside
    assert outside <= bound * (1 + 1e-8)


def test_stability_bound_in_50_digits_and_at_its_edges():
    with mp.workdps(50):
        edge, bound = mp.sqrt(2) / 2, 2 * mp.sqrt(2) / 3
        level = edge - edge**3 / 6
        for m, changed in [(7, 1), (32, 5), (64, 10), (1000, 3), (10**6, 1), (10**14, 1)]:
            result = location_stability_bound(m, 2.0, n_inside=m, n_changed=changed)
            target = min(level + 2 * bound * changed / m, bound)
            root = 2 * mp.sqrt(2) * mp.sin(mp.asin(target / bound) / 3)
            # At m = 6.4 k the slope is zero, and the root has half the digits.
            precision = 1e-7 if m < 100 else 1e-12
            assert result.bound == pytest.approx(float(2 * (root - edge)), rel=precision, abs=0)
    assert location_stability_bound(6, 1.0, n_inside=6).bound == math.inf
    assert location_stability_bound(63, 1.0, n_inside=63, n_changed=10).bound == math.inf
    none = location_stability_bound(5, 1.0, n_inside=0, n_changed=0)
    assert (none.bound, none.proof, none.statement) == (0.0, 0.0, 0.0)
    assert location_stability_bound(5, 1.0, n_inside=0).bound == math.inf


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n": 0}, "n must be a whole number"),
        ({"scale": 0.0}, "scale must be positive"),
        ({"n_inside": 11}, "n_inside must be at most n = 10; got 11"),
        ({"n_inside": -1}, "n_inside must be a whole number of at least 0"),
        ({"n_changed": 11}, "n_changed must be at most n = 10; got 11"),
        ({"n_changed": 1.5}, "n_changed must be a whole number"),
    ],
)
def test_stability_bound_refuses(changes, message):
    with pytest.raises(ValueError, match=message):
        location_stability_bound(**({"n": 10, "scale": 1.0} | changes))


# --- Random projections ---------------------------------------------------------------------------


def flip_probability(cosine, bias, k, factor=1.0):
    """Return P{⟨Pw, Px⟩ + b has the other sign}, from its representation by two chi-squares.

    ⟨Pw, Px⟩ is factor/(2k) times (1 + cos)A - (1 - cos)A' with A, A' chi-squared of k degrees; for
    entries N(0, 1/k) the factor is 1, for N(0, 1/d) it is k/d.
    """
    other = stats.chi2.ppf((np.arange(4000) + 0.5) / 4000, k)
    needed = ((1 - cosine) * other - 2 * k * bias / factor) / (1 + cosine)
    negative = np.mean(stats.chi2.cdf(needed, k))
    return negative if cosine + bias > 0 else 1 - negative


@pytest.mark.parametrize("k", [1, 2, 5, 20, 100, 1000])
def test_profile_bounds_the_probability_of_a_flip(k):
    for cosine in (-0.99, -0.5, 0.0, 0.05, 0.3, 0.9, 0.999):
        for bias in (0.0, 0.02, -0.25, 0.7, 1.5, -3.0):
            score = cosine + bias
            assert flip_probability(cosine, bias, k) <= projection_profile(score, k) + 1e-9
        if cosine > 0:  # without a bias it is a probability of an F law
            exact = stats.f.cdf((1 - cosine) / (1 + cosine), k, k)
            assert flip_probability(cosine, 0.0, k) == pytest.approx(exact, abs=1e-4)
            assert exact <= projection_profile(cosine, k)


def test_e19_the_entries_have_variance_1_over_k():
    d, k, cosine, bias = 400, 40, 0.95, -0.25
    rng = np.random.default_rng(3)
    w, x = np.zeros(d), np.zeros(d)
    w[0], x[0], x[1] = 1.0, cosine, math.sqrt(1 - cosine**2)
    matrices = rng.normal(size=(200, k, d))
    products = np.einsum("rk,rk->r", matrices @ w, matrices @ x)
    score = cosine + bias
    assert np.mean(products / k + bias < 0) == 0.0
    assert np.mean(products / d + bias < 0) == 1.0
    assert flip_probability(cosine, bias, k, factor=k / d) == pytest.approx(1.0)
    # The bound as printed, d for k, calls impossible what always happens.
    assert projection_profile(score, d) < 1e-5
    assert flip_probability(cosine, bias, k) <= projection_profile(score, k)


def test_profile_in_50_digits():
    score = [0.0, 1e-200, 1e-3, -0.05, 0.3, -1.0, 2.5, 1e3, 1e200, math.inf]
    for k in (1, 7, 400, 10**6):
        values = projection_profile(score, k)
        with mp.workdps(50):
            for h, value in zip(score, values, strict=True):
                size = abs(mp.mpf(h))
                if size == 0:
                    expected = mp.mpf(1)
                elif size == mp.inf:
                    expected = mp.mpf(0)
                else:
                    exponent = -(size**2) * k / (2 * (2 + size) ** 2)
                    expected = min(1, 3 * mp.exp(exponent), 2 / (size**2 * k))
                assert value == pytest.approx(float(expected), rel=1e-12, abs=1e-300)


def test_profile_broadcasts_and_keeps_the_float_type():
    score = np.linspace(-1, 1, 5, dtype=np.float32)
    table = projection_profile(score[:, None], [10, 100, 1000])
    assert table.shape == (5, 3)
    assert projection_profile(score, 10).dtype == np.float32
    assert isinstance(projection_profile(0.5, 10), np.float64)
    assert np.all(np.diff(table, axis=1) <= 0)
    np.testing.assert_array_equal(table, table[::-1])


@settings(max_examples=60)
@given(
    hnp.arrays(
        float, st.integers(3, 60).map(lambda n: 2 * n), elements=st.floats(-1, 1) | st.just(0.9)
    ),
    st.floats(1e-4, 0.24),
)
def test_projection_bound_is_the_least_over_every_k(margin, delta):
    result = projection_risk_bound(margin, delta)
    n = margin.size // 2
    k = np.arange(1, n - 1)
    projection = 2 / (delta * n) * projection_profile(margin[:, None], k).sum(axis=0)
    complexity = 2 * np.sqrt(((k + 2) * np.log(n * np.e / (k + 2)) + np.log(2 / delta)) / (2 * n))
    total = projection + complexity
    assert result.projection + result.complexity == pytest.approx(total.min(), rel=1e-12)
    assert result.projection == pytest.approx(projection[result.k - 1], rel=1e-12)
    assert result.complexity == pytest.approx(complexity[result.k - 1], rel=1e-12)
    assert result.training_error == np.mean(margin[:n] < 0)
    assert result.bound == result.training_error + result.projection + result.complexity
    assert result.confidence == 1 - 4 * delta


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_projection_bound_is_the_least_where_the_best_k_is_inside(seed):
    rng = np.random.default_rng(seed)
    margin = np.r_[np.full(5000, 0.8), rng.uniform(0.4, 1.0, size=1000)]
    result = projection_risk_bound(margin, 0.1)
    n = 3000
    k = np.arange(1, n - 1)
    values, counts = np.unique(margin, return_counts=True)
    total = 2 / (0.1 * n) * sum(
        c * projection_profile(v, k) for v, c in zip(values, counts, strict=True)
    ) + 2 * np.sqrt(((k + 2) * np.log(n * np.e / (k + 2)) + np.log(20)) / (2 * n))
    assert 1 < result.k < n - 2
    assert result.k == k[total.argmin()]
    assert result.bound == pytest.approx(total.min())


def test_projection_bound_of_one_half_counts_errors_of_the_first_half_only():
    margin = np.r_[np.full(50, 0.5), np.full(50, -0.5)]
    assert projection_risk_bound(margin, 0.1).training_error == 0.0
    assert projection_risk_bound(margin[::-1], 0.1).training_error == 1.0
    assert projection_risk_bound(np.zeros(6), 0.1).training_error == 0.0  # y h < 0 is an error


@pytest.mark.parametrize(
    ("margin", "delta", "message"),
    [
        (np.ones(7), 0.1, r"even number of at least 6 values.*got shape \(7,\)"),
        (np.ones(4), 0.1, "even number of at least 6"),
        (np.ones((2, 6)), 0.1, "one-dimensional"),
        (np.full(6, np.nan), 0.1, "margin must not be NaN"),
        (np.ones(6), 0.25, "delta must be strictly between 0 and 0.25; got 0.25"),
    ],
)
def test_projection_bound_refuses(margin, delta, message):
    with pytest.raises(ValueError, match=message):
        projection_risk_bound(margin, delta)


def test_profile_refuses():
    with pytest.raises(ValueError, match="k must be positive"):
        projection_profile(0.5, 0)
    with pytest.raises(ValueError, match="score must not be NaN"):
        projection_profile(math.nan, 3)


# --- Leave-one-out --------------------------------------------------------------------------------


def solve_dual(matrix, linear, box, held=None):
    """Minimise ½αᵀUα + uᵀα over the box by coordinate descent, with one variable held at zero."""
    alpha = np.zeros(len(linear))
    gradient = linear.copy()
    for _ in range(20_000):
        largest = 0.0
        for i in range(len(linear)):
            if i == held:
                continue
            new = min(max(alpha[i] - gradient[i] / matrix[i, i], 0.0), box)
            gradient += (new - alpha[i]) * matrix[:, i]
            largest = max(largest, abs(new - alpha[i]))
            alpha[i] = new
        if largest < 1e-13 * box:
            break
    return alpha


def ldm_dual(z, lambda_1, lambda_2):
    """Return U and u of the dual for rows z = y x, and the matrix that gives w."""
    n = len(z)
    quadratic = np.eye(z.shape[1]) + 2 * lambda_1 * np.cov(z.T, bias=True).reshape(2 * z.shape[1:])
    inverse = np.linalg.inv(quadratic)
    matrix = z @ inverse @ z.T
    return matrix, lambda_2 / n * matrix.sum(axis=1) - 1, inverse


def toy(seed, n, separation):
    rng = np.random.default_rng(seed)
    y = np.where(np.arange(n) % 2, 1.0, -1.0)
    return y[:, None] * (rng.normal(size=(n, 2)) + separation * y[:, None] * [1.0, 0.5])


@settings(max_examples=25)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(3, 12),
    st.floats(0.0, 2.0),
    st.sampled_from([0.0, 0.5, 4.0]),
    st.sampled_from([0.0, 1.0]),
    st.sampled_from([0.5, 5.0, 50.0]),
)
def test_left_out_errors_stay_below_the_bound(seed, n, separation, lambda_1, lambda_2, lambda_3):
    matrix, linear, _ = ldm_dual(toy(seed, n, separation), lambda_1, lambda_2)
    box = lambda_3 / n
    alpha = solve_dual(matrix, linear, box)
    result = leave_one_out_bound(alpha, np.diag(matrix), box, tolerance=1e-6)
    held = [solve_dual(matrix, linear, box, held=i) for i in range(n)]
    # The gradient of the dual at i is the margin of i less 1.
    margin = np.array([(matrix @ a + linear)[i] + 1 for i, a in enumerate(held)])
    assert np.mean(margin < -1e-6) <= result.counted
    assert result.counted <= result.bound + 1e-6


@pytest.mark.parametrize("seed", range(4))
def test_bound_is_above_the_leave_one_out_error_of_a_toy_machine(seed):
    lambda_1, lambda_2, lambda_3, n = 1.0, 0.5, 8.0, 24
    z = toy(seed, n, 1.0)
    matrix, linear, inverse = ldm_dual(z, lambda_1, lambda_2)
    alpha = solve_dual(matrix, linear, lambda_3 / n)
    w = inverse @ z.T @ (lambda_2 / n + alpha)
    primal = 0.5 * w @ w + lambda_1 * np.var(z @ w) - lambda_2 * np.mean(z @ w)
    primal += lambda_3 / n * np.maximum(1 - z @ w, 0).sum()
    dual = 0.5 * alpha @ matrix @ alpha + linear @ alpha
    constant = 0.5 * (lambda_2 / n) ** 2 * matrix.sum()
    assert primal == pytest.approx(-dual - constant, rel=1e-9)  # no gap: it is the machine
    errors = 0
    for i in range(n):
        rest = np.delete(z, i, axis=0)
        matrix_i, linear_i, inverse_i = ldm_dual(rest, lambda_1, lambda_2)
        alpha_i = solve_dual(matrix_i, linear_i, lambda_3 / n)
        errors += z[i] @ inverse_i @ rest.T @ (lambda_2 / (n - 1) + alpha_i) <= 0
    result = leave_one_out_bound(alpha, np.diag(matrix), lambda_3 / n)
    assert errors / n <= result.counted <= result.bound < 1.5


def test_left_out_parts():
    result = leave_one_out_bound([0.0, 0.3, 0.5, 1.0, 1.0 - 1e-10], [9.0, 3.0, 2.0, 1.0, 7.0], 1.0)
    assert result.free == pytest.approx((0.9 + 1.0) / 5)
    assert result.boxed == 2 / 5
    assert result.bound == result.free + result.boxed
    assert result.counted == 3 / 5
    strict = leave_one_out_bound([1.0 - 1e-10], [7.0], 1.0, tolerance=0.0)
    assert strict.boxed == 0.0
    assert strict.free == pytest.approx(7.0)
    below = leave_one_out_bound([-1e-12], [7.0], 1.0)
    assert below.bound == 0.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"alpha": [0.5, 1.1]}, r"alpha / box must be in .* got 1\.1 at index \(1,\)"),
        ({"alpha": [-0.1, 0.5]}, "alpha / box must be in"),
        ({"alpha": [0.5]}, r"got shapes \(1,\) and \(2,\)"),
        ({"alpha": [], "diagonal": []}, "of equal length of at least 1"),
        ({"alpha": [[0.5, 0.5]]}, "one-dimensional"),
        ({"diagonal": [1.0, -1.0]}, "diagonal must be in"),
        ({"box": 0.0}, "box must be positive"),
        ({"tolerance": -1.0}, "tolerance must be in"),
    ],
)
def test_left_out_bound_refuses(changes, message):
    with pytest.raises(ValueError, match=message):
        leave_one_out_bound(**({"alpha": [0.5, 1.0], "diagonal": [1.0, 1.0], "box": 1.0} | changes))


# --- Catoni estimate of the risk ------------------------------------------------------------------


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
def test_a_ball_is_covered_by_as_many_as_assumed(dimension):
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
def test_parts_of_the_catoni_risk_bound(n, delta, eta_2, eta_inf, constant):
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
def test_catoni_risk_bound_refuses(changes, message):
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
def test_linear_complexity_refuses(changes, message):
    with pytest.raises(ValueError, match=message):
        linear_complexity(**({"dimension": 2, "input_bound": 2.0} | changes))


# --- What else the errata say ---------------------------------------------------------------------


def test_e30_smoothness_is_a_second_moment():
    """For an input that never varies the variance is 0, yet the gradient is x²-Lipschitz."""
    loss, x, distance = MarginLoss(1.0, 2.0), 3.0, 1e-4
    change = abs(loss.derivative(1.0 + distance * x) - loss.derivative(1.0)) * x
    assert change == pytest.approx(x * x * distance, rel=1e-6)


def test_the_papers_summary_of_the_catoni_risk_bound_is_loose():
    """It has d B_X/√n for η₂/√n + η∞/n, which is of order √d B_X/√n once n is well above d."""
    shares = []
    for dimension in (1, 10, 1000, 10**5):
        eta = linear_complexity(dimension, 2.0)
        n = dimension**2
        result = catoni_risk_bound(n, 0.05, eta.eta_2, eta.eta_inf)
        summary = math.log(2 / 0.05) * dimension * 2.0 / math.sqrt(n)
        shares.append((result.complexity_2 + result.complexity_inf) / summary)
    assert max(shares) < 6  # a bound, up to the constants
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] < 0.01


def test_holding_at_zero_is_leaving_out_without_mean_and_variance_terms():
    z, box = toy(0, 10, 0.5), 0.8
    for lambda_1, lambda_2, same in [(0.0, 0.0, True), (1.0, 0.0, False), (0.0, 0.5, False)]:
        matrix, linear, _ = ldm_dual(z, lambda_1, lambda_2)
        gap = 0.0
        for i in range(10):
            held = matrix[i] @ solve_dual(matrix, linear, box, held=i) + linear[i] + 1
            rest = np.delete(z, i, axis=0)
            matrix_i, linear_i, inverse_i = ldm_dual(rest, lambda_1, lambda_2)
            alpha = solve_dual(matrix_i, linear_i, box)
            gap = max(gap, abs(z[i] @ inverse_i @ rest.T @ (lambda_2 / 9 + alpha) - held))
        assert (gap < 1e-9) == same


@pytest.mark.parametrize("lambda_1", [0.0, 1.0])
def test_left_out_bound_is_none_on_the_risk_with_a_mean_term(lambda_1):
    """Two equally likely inputs at 120°, n = 2: on every sample the bound is 0, the risk is not.

    The mean term alone lifts the margins of a sample above 1, so that no dual variable is needed;
    but a sample that holds the same input twice puts the other one on the wrong side.
    """
    points, lambda_2, box = np.array([[1.0, 0.0], [-0.5, math.sqrt(0.75)]]), 50.0, 0.5
    risk = bound = counted = 0.0
    for sample in ([0, 0], [0, 1], [1, 0], [1, 1]):
        z = points[sample]
        matrix, linear, inverse = ldm_dual(z, lambda_1, lambda_2)
        alpha = solve_dual(matrix, linear, box)
        w = inverse @ z.T @ (lambda_2 / 2 + alpha)
        risk += np.mean(points @ w <= 0) / 4
        result = leave_one_out_bound(alpha, np.diag(matrix), box)
        bound, counted = bound + result.bound / 4, counted + result.counted / 4
    assert risk == 0.25
    assert bound == counted == 0.0
