"""The risk bound of Algorithm 1, against 50 digits, exact probabilities and simulation."""

import math

import mpmath as mp
import numpy as np
import pytest
from bound_inputs import algorithm_inputs
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from marginpursuit.bounds import (
    algorithm_risk_bound,
    subgaussian_mean_radius,
)
from marginpursuit.calibration import psi_transform
from marginpursuit.losses import MarginLoss

SQRT2 = math.sqrt(2.0)


@st.composite
def algorithm_cases(draw):
    """Draw arguments that satisfy the assumptions of the theorem."""
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
def test_terms_of_the_theorem_in_50_digits(case):
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
        # E11: ε* of the statement excludes the factor 2s, ε* of the proof includes it; same sum.
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
        # 1 - αβ cancels if αβ is nearly 1; the power is negligible then.
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


def test_a_large_approximation_error_makes_the_bound_vacuous():
    full = MarginLoss(1.0, 2.0).value(0.0)
    case = algorithm_inputs(n=10**9)
    assert algorithm_risk_bound(**case, approximation=0.5 * full).misclassification < 1.0
    result = algorithm_risk_bound(**case, approximation=full)
    assert result.surrogate < full
    assert result.vacuous
    assert result.misclassification == 1.0


def test_an_exact_step_leaves_only_the_statistical_error():
    case = algorithm_inputs(second_moment=2.0, strong_convexity=2.0, step=0.5, iterations=1)
    assert algorithm_risk_bound(**case).optimisation == 0.0
    case["iterations"] = 0
    assert algorithm_risk_bound(**case).optimisation == 2.0 * 1.5**2


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("kappa", [0.1, 1.0, 3.0])
def test_an_admissible_step_size_contracts_and_a_larger_one_may_not(kappa, share):
    moment = 3.0
    result = algorithm_risk_bound(
        **algorithm_inputs(second_moment=moment, strong_convexity=kappa, step=0.1)
    )
    hessian = np.linspace(kappa, moment, 101)

    def contraction(step):
        return np.max((1 - step * hessian) ** 2) - (1 - step * result.rate)

    assert contraction(share * result.admissible_step) <= 1e-12
    assert contraction(1.01 * result.admissible_step) > 0


def test_recursion_with_adversarial_errors_is_below_the_sum_e16():
    """E16: the sum holds through v/2 and (a + b)² ≤ 2a² + 2b²; the printed step is wrong."""
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
    """An interval of length Δ needs Δ/(2ε) balls; the printed count is that of Δ = 1."""
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
    # In d dimensions the volume of the ball gives the same.
    for d in (2, 20):
        result = algorithm_risk_bound(
            **algorithm_inputs(n=n, dimension=d, delta=delta, diameter=100)
        )
        needed = d * math.log(50 / radius)
        assert d * math.log(1.5 * math.sqrt(n) / delta) < needed <= result.log_cover


def test_e12_the_bound_depends_on_the_unit_of_the_weights():
    """A change of the unit of x does not change the problem; the printed ε* is not invariant."""
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
    """‖x̄‖² is chi-squared over n for N(0, I), so the probabilities are exact."""
    n = 7
    radius = subgaussian_mean_radius(n, delta, trace=dimension, spectral=1.0)
    assert stats.chi2.sf(n * radius**2, dimension) <= delta
    assert subgaussian_mean_radius(n, delta, trace=dimension) >= radius
    # An anisotropic distribution of trace 1 with one dominant direction: by its Chernoff bound.
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
    assert 1e-4 < stats.chi2.sf(ours**2, 100) <= 0.05  # valid, and not excessively large


def test_mean_of_random_signs_is_within_the_radius():
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


def test_algorithm_on_a_known_distribution():
    """Four inputs in the plane: the true gradient, κ, w* and c are exact sums."""
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
    kappa = (
        0.9 * np.linalg.eigvalsh(hessian).min()
    )  # below the smallest, to cover points between those of the grid
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
        assert np.abs(w).max() < 1.5  # E17: inside W without a projection
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
    """E18: the linear score of smallest surrogate risk does not minimise the error."""
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
    # Over linear scores: excess surrogate risk 0, excess error 0.2.
    assert algorithm_risk_bound(**case).misclassification < 0.2
    # Over all scores: the labels are deterministic, so the smallest risk and error are 0.
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
def test_algorithm_bound_rejects_invalid_arguments(changes, message):
    with pytest.raises(ValueError, match=message):
        algorithm_risk_bound(**algorithm_inputs(**changes))


def test_the_largest_admissible_step_size_is_accepted():
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
def test_mean_radius_rejects_invalid_arguments(changes, message):
    with pytest.raises(ValueError, match=message):
        subgaussian_mean_radius(**({"n": 3, "delta": 0.1, "trace": 2.0} | changes))


def test_e30_smoothness_is_a_second_moment():
    """For a constant input the variance is 0, and the gradient is x²-Lipschitz."""
    loss, x, distance = MarginLoss(1.0, 2.0), 3.0, 1e-4
    change = abs(loss.derivative(1.0 + distance * x) - loss.derivative(1.0)) * x
    assert change == pytest.approx(x * x * distance, rel=1e-6)


def test_e35_the_two_norms_of_the_outer_product():
    """E‖xxᵀ‖ is the trace of E xxᵀ, d times its norm for isotropic x."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200_000, 5))
    outer_norms = [np.linalg.norm(np.outer(x, x), 2) for x in X[:50]]
    np.testing.assert_allclose(outer_norms, np.sum(X[:50] ** 2, axis=1))
    assert np.mean(np.sum(X**2, axis=1)) == pytest.approx(5.0, rel=0.01)
    assert np.linalg.norm(X.T @ X / len(X), 2) == pytest.approx(1.0, rel=0.02)


def test_e35_the_norm_of_the_expectation_removes_a_factor_d():
    def squares(dimension):
        """Return ε*² for isotropic x, as the proof has it and with the norm of E xxᵀ."""
        case = algorithm_inputs(
            n=10**6, dimension=dimension, second_moment=float(dimension), strong_convexity=1.0,
            step=1.0 / (1.0 + dimension),
        )  # fmt: skip
        bounds = [algorithm_risk_bound(**case, spectral_moment=x) for x in (None, 1.0)]
        return np.array([bound.epsilon_star**2 for bound in bounds])

    small, large = squares(100), squares(10_000)
    as_proved, corrected = np.log10(large / small) / 2  # exponents of d
    assert as_proved == pytest.approx(2.0, abs=0.05)
    assert corrected == pytest.approx(1.0, abs=0.05)


def test_epsilon_star_with_the_norm_of_the_expectation_in_50_digits():
    case = algorithm_inputs(second_moment=5.0, spectral_moment=1.25, sub_gaussian=0.7)
    with mp.workdps(50):
        cover = case["dimension"] * mp.log(
            3 * mp.mpf(case["diameter"]) * mp.sqrt(case["n"]) / (2 * mp.mpf(case["delta"]))
        )
        t, v, top = cover - mp.log(mp.mpf(case["delta"])), mp.mpf(5), mp.mpf(1.25)
        spread = v + 2 * mp.sqrt(v * top * t) + 2 * top * t
        expected = case["scale"] * mp.sqrt(2 * mp.mpf(0.7) * mp.mpf(8) / 9 * spread)
    found = algorithm_risk_bound(**case).epsilon_star
    assert found == pytest.approx(float(expected), rel=1e-13)
    with pytest.raises(
        ValueError, match=r"spectral_moment must be at most 5\.0, the second_moment"
    ):
        algorithm_risk_bound(**(case | {"spectral_moment": 5.1}))


def test_a_small_set_has_a_cover_of_at_least_three_balls_for_each_dimension():
    case = algorithm_inputs(n=1, delta=0.4, diameter=0.1, initial_distance=0.05, step=None)
    result = algorithm_risk_bound(**case)
    assert result.log_cover == pytest.approx(case["dimension"] * math.log(3.0), rel=1e-15)


def test_default_confidence_of_the_algorithm_bound():
    case = algorithm_inputs()
    assert case.pop("delta") == 0.05
    assert algorithm_risk_bound(**case).confidence == pytest.approx(0.9)
