"""The constants estimated from data: against known distributions, and in every bound."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

from marginpursuit import MarginPursuitClassifier
from marginpursuit.bounds import (
    DataConstants,
    algorithm_risk_bound,
    catoni_risk_bound,
    estimate_constants,
    linear_complexity,
    location_bias_bound,
    location_bound,
    location_stability_bound,
    margin_bound,
    projection_risk_bound,
)
from marginpursuit.bounds.constants import _best_scale, _tail_index
from marginpursuit.losses import MarginLoss, curvature


def normal(n=4000, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, np.sign(X @ np.arange(1.0, d + 1) + rng.normal(size=n))


@pytest.fixture(scope="module")
def constants():
    return estimate_constants(*normal())


def test_moments_of_normal_inputs(constants):
    assert (constants.n, constants.dimension) == (4000, 3)
    assert constants.second_moment == pytest.approx(3.0, rel=0.05)
    assert constants.spectral_moment == pytest.approx(1.0, rel=0.1)
    assert constants.failures == ()
    X, y = normal()
    assert constants.input_bound == np.linalg.norm(X, axis=1).max()
    margins = y * (X @ constants.coef)
    assert_allclose(constants.margins, margins, rtol=1e-9, atol=1e-12)
    centred = margins - margins.mean()
    assert constants.variance == pytest.approx(np.var(margins))
    assert constants.absolute_third == pytest.approx(np.mean(np.abs(centred) ** 3))
    assert constants.third == pytest.approx(np.mean(centred**3), rel=1e-6)
    assert constants.fourth == pytest.approx(np.mean(centred**4))


@pytest.mark.parametrize("scale", [0.7, 3.0])
def test_coefficients_minimise_the_empirical_risk(scale):
    X, y = normal()
    found = estimate_constants(X, y, margin=2.0, scale=scale, radius=0.01)
    model = MarginPursuitClassifier.as_published(
        margin=2.0, scale=scale, fit_intercept=False, alpha=0.0, tol=1e-12
    ).fit(X, y)
    assert_allclose(found.coef, model.coef_[0], rtol=1e-4)
    assert found.initial_distance == 0.01
    assert found.diameter == 0.02


def test_kappa_bounds_the_curvature_everywhere_on_the_ball(constants):
    """The Hessian at points of W, in the worst directions, is at least κ."""
    X, y = normal()
    rng = np.random.default_rng(1)
    least = []
    for _ in range(30):
        step = rng.normal(size=3)
        w = constants.coef + 0.5 * constants.diameter * step / np.linalg.norm(step)
        weights = curvature((constants.margin - y * (X @ w)) / constants.scale)
        least.append(np.linalg.eigvalsh((X * weights[:, None]).T @ X / len(X))[0])
    assert constants.strong_convexity > 0
    assert constants.strong_convexity < min(least)


def test_kappa_is_that_of_the_formula():
    X, y = normal(500, 2)
    found = estimate_constants(X, y, scale=5.0, radius=0.3)
    residuals = np.abs(1.0 - found.margins) + 0.3 * np.linalg.norm(X, axis=1)
    weights = np.clip(1 - (residuals / 5.0) ** 2 / 2, 0, None)
    expected = np.linalg.eigvalsh((X * weights[:, None]).T @ X / len(X))[0]
    assert found.strong_convexity == pytest.approx(expected, rel=1e-9)


def test_default_scale_has_the_smallest_ratio_of_scale_to_curvature():
    X, y = normal(1000, 2)
    best = estimate_constants(X, y)
    for factor in (0.5, 2.0):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            other = estimate_constants(X, y, scale=factor * best.scale)
        assert best.scale / best.strong_convexity < other.scale / max(
            other.strong_convexity, 1e-300
        )


def test_scales_to_choose_from():
    X, y = normal(1000, 2)
    found = estimate_constants(X, y, radius=0.4)
    norms = np.linalg.norm(X, axis=1)
    plain = estimate_constants(X, y, radius=0.4, scale=10.0)
    largest = max(1.0, float(np.max(np.abs(1.0 - plain.margins) + 0.4 * norms)))
    ratios = {}
    for scale in np.geomspace(0.5, 2.0 * largest, 10):
        weights = curvature((np.abs(1.0 - plain.margins) + 0.4 * norms) / scale)
        kappa = np.linalg.eigvalsh((X * weights[:, None]).T @ X / len(X))[0]
        ratios[scale] = scale / max(kappa, 1e-300)
    best = _best_scale(X, norms, 1.0, plain.margins, 0.4)
    assert best == pytest.approx(min(ratios, key=ratios.__getitem__), rel=1e-12)
    assert found.scale > 0


def test_sub_gaussian_constant_is_one_half_for_bounded_and_larger_for_skewed_gradients():
    rng = np.random.default_rng(0)
    X = rng.choice([-1.0, 1.0], (2000, 2))  # gradients of random signs: c = 1/2
    y = rng.choice([-1.0, 1.0], 2000)
    assert estimate_constants(X, y, scale=100.0).sub_gaussian == pytest.approx(0.5, abs=0.01)
    X[:20, 0] = 15.0
    with pytest.warns(UserWarning, match="power law"):
        assert estimate_constants(X, y, scale=100.0).sub_gaussian > 0.7


def test_sub_gaussian_constant_bounds_the_moment_generating_function(constants):
    X, y = normal()
    loss = MarginLoss(constants.margin, constants.scale)
    factors = -loss.derivative(constants.margins) * y / loss.scale
    gradients = factors[:, None] * X
    gradients -= gradients.mean(axis=0)
    values, axes = np.linalg.eigh(gradients.T @ gradients / len(X))
    for variance, axis in zip(values, axes.T, strict=True):
        for a in (0.1, 0.9, 3.0):
            along = a * gradients @ axis / np.sqrt(variance)
            assert np.log(np.mean(np.exp(along))) <= 1.05 * constants.sub_gaussian * a * a


# Assumptions that fail ----------------------------------------------------------------------


def test_dependent_columns_are_warned_of_and_left_out():
    X, y = normal(500, 2)
    X = np.column_stack([X, X[:, 0] - X[:, 1]])
    with pytest.warns(UserWarning, match="3 columns span 2 dimensions"):
        found = estimate_constants(X, y)
    assert found.dimension == 2
    assert found.strong_convexity > 0
    assert found.failures[0].startswith("strong_convexity: E xxᵀ is singular")


def test_heavy_tails_are_warned_of():
    rng = np.random.default_rng(0)
    X = rng.standard_t(2.5, size=(3000, 2))
    with pytest.warns(UserWarning, match=r"sub_gaussian, second_moment: .* exponent [12]\.\d"):
        estimate_constants(X, np.sign(X[:, 0]))


def test_few_rows_are_warned_of():
    X, y = normal(25, 3)
    with pytest.warns(UserWarning, match="25 rows are less than ten for each of 3 dimensions"):
        estimate_constants(X, y)
    assert not any("less than ten" in words for words in estimate_constants(*normal(30)).failures)


def test_columns_next_to_a_much_longer_one_are_left_out():
    X, y = normal(500, 3)
    with pytest.warns(UserWarning, match="3 columns span 1 dimensions"):
        assert estimate_constants(X * [1.0, 3e-6, 1e-6], y).dimension == 1


@pytest.mark.parametrize("n", [36, 400])
def test_tail_index_is_that_of_hill(n):
    norms = np.random.default_rng(0).pareto(2.0, n) + 1.0
    largest = np.sort(norms)[::-1]
    k = int(np.sqrt(n))
    hill = 1.0 / np.mean([np.log(largest[i] / largest[k]) for i in range(k)])
    assert _tail_index(norms) == pytest.approx(hill, rel=1e-12)
    assert _tail_index(norms[:24]) == np.inf


def test_a_loss_without_curvature_is_warned_of():
    X, y = normal(500, 2)
    with pytest.warns(UserWarning, match="no curvature on W"):
        found = estimate_constants(X, y, scale=0.01)
    assert found.strong_convexity == 0
    with pytest.raises(ValueError, match="strong_convexity must be positive"):
        algorithm_risk_bound(constants=found, iterations=10)


# Every bound --------------------------------------------------------------------------------


def test_algorithm_risk_bound_takes_all_constants(constants):
    found = algorithm_risk_bound(constants=constants, iterations=200, n=10**8)
    names = ("dimension", "margin", "scale", "second_moment", "strong_convexity", "diameter")
    names += ("initial_distance", "sub_gaussian", "spectral_moment")
    arguments = {name: getattr(constants, name) for name in names}
    assert found == algorithm_risk_bound(10**8, iterations=200, **arguments)
    assert found.admissible_step == pytest.approx(
        2 / (constants.strong_convexity + constants.second_moment)
    )
    assert algorithm_risk_bound(constants=constants, iterations=1).statistical > found.statistical


def test_bounds_of_the_location_take_the_moments_of_the_margins(constants):
    assert location_bound(constants=constants) == location_bound(constants.variance, 4000, 0.05)
    moments = {name: getattr(constants, name) for name in ("variance", "absolute_third")}
    both = moments | {"third": constants.third, "fourth": constants.fourth}
    assert location_bias_bound(constants=constants) == location_bias_bound(constants.scale, **both)
    assert location_stability_bound(constants=constants) == location_stability_bound(
        4000, constants.scale
    )


def test_bounds_of_the_risk_take_margins_and_complexities(constants):
    X, y = normal()
    unit = constants.coef / np.linalg.norm(constants.coef)
    assert_allclose(constants.unit_margins, y * (X @ unit), atol=1e-12)
    rows = X / np.linalg.norm(X, axis=1, keepdims=True)
    assert_allclose(constants.unit_row_margins, y * (rows @ unit), atol=1e-12)
    assert margin_bound(constants=constants).level > 0
    assert projection_risk_bound(constants=constants) == projection_risk_bound(
        constants.unit_row_margins, 0.05
    )
    complexity = linear_complexity(constants=constants)
    assert complexity == linear_complexity(
        3,
        constants.input_bound,
        second_moment=constants.second_moment,
        radius=constants.diameter / 2,
    )
    assert catoni_risk_bound(constants=constants) == catoni_risk_bound(
        4000, 0.05, complexity.eta_2, complexity.eta_inf
    )


def test_an_odd_number_of_rows_is_halved_without_the_last():
    X, y = normal(301, 2)
    found = estimate_constants(X, y)
    assert len(found.margins) == 301
    assert len(found.unit_row_margins) == 300
    projection_risk_bound(constants=found)


# Input ---------------------------------------------------------------------------------------


def test_sparse_and_float32_input():
    X, y = normal(500, 3)
    X = X.astype(np.float32)
    dense = estimate_constants(X, y)
    other = estimate_constants(sparse.csr_array(X), y.astype(int))
    assert other.strong_convexity == pytest.approx(dense.strong_convexity)
    assert_allclose(other.coef, dense.coef, rtol=1e-6)


def test_every_constant_has_its_assumption_and_the_repr_no_arrays(constants):
    assert isinstance(constants, DataConstants)
    lines = repr(constants).splitlines()
    names = {line.split()[0] for line in lines[1:]}
    assert {"margins", "norms", "coef"}.isdisjoint(names)
    assert set(DataConstants.assumptions) < names
    estimated = {"strong_convexity", "variance", "second_moment", "sub_gaussian", "diameter"}
    assert estimated <= set(DataConstants.assumptions)


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (np.zeros((4, 2)), [1, -1, 1, -1], "row other than zero"),
        (np.ones((4, 2)), [1, 1, 1, 1], r"y must contain -1 and \+1"),
        (np.ones((4, 2)), [1, -1], "one for each of 4 samples"),
        (np.ones(4), [1, -1, 1, -1], "rows and columns"),
        (np.full((2, 1), np.inf), [1, -1], "X must be"),
    ],
)
def test_refuses_invalid_data(X, y, message):
    with pytest.raises(ValueError, match=message):
        estimate_constants(X, y)
