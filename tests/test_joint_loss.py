"""The joint loss of several classes: 50-digit formulas, derivatives, convexity and its link."""

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize

from marginpursuit.losses import RHOS, JointLoss, MarginLoss

TEMPERATURES = [0.05, 0.3, 2.0]


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def joint(rho="catoni", temperature=0.3, margin=1.0, scale=1.3):
    return JointLoss(MarginLoss(margin, scale, 0.0, rho), temperature)


def exact_margin(scores, code, temperature):
    """Return f_y - T log Σ exp(f_k/T) to 50 digits."""
    with mpmath.workdps(50):
        others = [mpmath.exp(mpmath.mpf(x) / temperature) for x in np.delete(scores, code)]
        return mpmath.mpf(scores[code]) - temperature * mpmath.log(mpmath.fsum(others))


def draws(rng, n_rows=40, n_classes=5, size=2.0):
    return size * rng.normal(size=(n_rows, n_classes)), rng.integers(n_classes, size=n_rows)


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("size", [1e-3, 1.0, 30.0, 1e4])
def test_margins_agree_with_50_digits(rng, temperature, size):
    scores, codes = draws(rng, size=size)
    found = joint(temperature=temperature).margins(scores, codes)
    for row, code, margin in zip(scores, codes, found, strict=True):
        exact = exact_margin(row, code, temperature)
        assert abs(margin - exact) <= 8e-16 * (np.abs(row).max() + temperature)


@pytest.mark.parametrize("rho", RHOS)
@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_value_is_the_margin_loss_of_the_exact_margin(rng, rho, temperature):
    scores, codes = draws(rng)
    loss = joint(rho, temperature)
    exact = [float(exact_margin(*pair, temperature)) for pair in zip(scores, codes, strict=True)]
    np.testing.assert_allclose(loss.value(scores, codes), loss.loss.value(exact), rtol=1e-13)


@pytest.mark.parametrize("rho", RHOS)
@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_gradient_is_the_derivative_of_the_value(rng, rho, temperature):
    scores, codes = draws(rng)
    loss, step = joint(rho, temperature), 1e-6
    found = loss.gradient(scores, codes)
    for k in range(scores.shape[1]):
        change = step * np.eye(scores.shape[1])[k]
        ends = [loss.value(scores + sign * change, codes) for sign in (1, -1)]
        np.testing.assert_allclose(found[:, k], (ends[0] - ends[1]) / (2 * step), atol=2e-8)
    np.testing.assert_allclose(found.sum(axis=1), 0.0, atol=1e-14)


@pytest.mark.parametrize("rho", RHOS)
def test_scores_of_ten_thousand_are_finite(rng, rho):
    scores, codes = draws(rng, size=1e4)
    loss = joint(rho, 0.05)
    assert np.all(np.isfinite(loss.value(scores, codes)))
    gradient = loss.gradient(scores, codes)
    assert np.all(np.isfinite(gradient))
    bound = min(loss.loss.influence_bound, 1e6)
    assert np.all(np.abs(gradient) <= bound)


@pytest.mark.parametrize("rho", RHOS)
def test_two_classes_are_the_binary_loss(rng, rho):
    score, codes = rng.normal(size=30), rng.integers(2, size=30)
    sign, halves = 2.0 * codes - 1.0, np.column_stack([-score / 2, score / 2])
    loss = joint(rho)
    np.testing.assert_allclose(loss.value(halves, codes), loss.loss.value(sign * score), rtol=1e-14)
    slope = sign * loss.loss.derivative(sign * score)
    np.testing.assert_allclose(loss.gradient(halves, codes)[:, 1], slope, rtol=1e-14)
    np.testing.assert_allclose(loss.link(halves)[:, 1], loss.loss.link(score), atol=1e-14)


finite = st.floats(-50, 50)


@given(
    ends=arrays(np.float64, (2, 4), elements=finite),
    fraction=st.floats(0, 1),
    code=st.integers(0, 3),
    temperature=st.sampled_from(TEMPERATURES),
    rho=st.sampled_from(sorted(RHOS)),
)
def test_the_loss_is_convex(ends, fraction, code, temperature, rho):
    loss = joint(rho, temperature)
    middle = fraction * ends[0] + (1 - fraction) * ends[1]
    first, second, between = loss.value(np.stack([*ends, middle]), [code] * 3)
    chord = fraction * first + (1 - fraction) * second
    assert between <= chord + 1e-12 * (1.0 + chord)


@given(
    scores=arrays(np.float64, (4,), elements=st.floats(-3, 3)),
    code=st.integers(0, 3),
    temperature=st.sampled_from(TEMPERATURES),
    rho=st.sampled_from(sorted(set(RHOS) - {"square"})),
)
def test_the_curvature_bounds_hold(scores, code, temperature, rho):
    loss, step = joint(rho, temperature), 1e-5
    rows = scores + step * np.vstack([np.eye(4), -np.eye(4)])
    gradients = loss.gradient(rows, [code] * 8)
    hessian = (gradients[:4] - gradients[4:]) / (2 * step)
    largest = np.linalg.eigvalsh(0.5 * (hessian + hessian.T))[-1]
    assert largest <= loss.curvature_bound * (1 + 1e-6)
    trace = 2.0 + loss.loss.influence_bound / temperature
    assert np.trace(hessian) <= trace * (1 + 1e-6)


def dual_variables(loss, beta, odds, code):
    """Return dual variables of a row: -β for its class, and β times probabilities."""
    others = beta * np.asarray(odds) / np.sum(odds)
    return np.insert(others, code, -beta)


@pytest.mark.parametrize("rho", sorted(RHOS))
@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_conjugate_is_the_largest_difference(rng, rho, temperature, n_classes):
    loss, code = joint(rho, temperature), 1
    for fraction in (0.05, 0.5, 0.9):
        beta = fraction * min(2.0, loss.loss.influence_bound)
        dual = dual_variables(loss, beta, rng.random(n_classes - 1) + 0.1, code)

        def deficit(scores, dual=dual):
            value = loss.value([scores], [code])[0] - dual @ scores
            return value, loss.gradient([scores], [code])[0] - dual

        options = {"gtol": 1e-10, "maxiter": 10_000}
        best = minimize(deficit, np.zeros(n_classes), jac=True, method="BFGS", options=options)
        found = loss.conjugate_in_scores([dual], [code])[0]
        np.testing.assert_allclose(found, -best.fun, rtol=1e-7, atol=1e-8)


@given(
    scores=arrays(np.float64, (4,), elements=st.floats(-10, 10)),
    odds=arrays(np.float64, (3,), elements=st.floats(0, 1)),
    fraction=st.floats(0, 1),
    code=st.integers(0, 3),
    temperature=st.sampled_from(TEMPERATURES),
    rho=st.sampled_from(sorted(RHOS)),
)
def test_value_and_conjugate_bound_the_product(scores, odds, fraction, code, temperature, rho):
    """Fenchel's inequality, with equality at the gradient."""
    loss = joint(rho, temperature)
    beta = fraction * min(3.0, loss.loss.influence_bound)
    dual = dual_variables(loss, beta, odds + 1e-3, code)
    value, conjugate = loss.value([scores], [code])[0], loss.conjugate_in_scores([dual], [code])[0]
    size = 1.0 + value + np.abs(dual) @ np.abs(scores)
    assert value + conjugate >= dual @ scores - 1e-10 * size
    gradient = loss.gradient([scores], [code])[0]
    equal = value + loss.conjugate_in_scores([gradient], [code])[0] - gradient @ scores
    assert abs(equal) <= 1e-6 * (1.0 + value + np.abs(gradient) @ np.abs(scores))


def test_conjugate_outside_of_its_domain():
    loss = joint()
    bound = loss.loss.influence_bound
    dual = [[-1.0, 1.0, 0.1], [-1.0, 1.5, -0.5], [1.0, -0.5, -0.5], [-1.0 - bound, bound, 1.0]]
    assert np.all(loss.conjugate_in_scores(dual, [0] * 4) == np.inf)
    assert loss.conjugate_in_scores([[0.0, 0.0, 0.0]], [0])[0] == 0.0


def test_conjugate_of_two_classes_is_that_of_the_binary_loss():
    loss = joint()
    beta = np.linspace(0.0, loss.loss.influence_bound, 20)
    found = loss.conjugate_in_scores(np.column_stack([beta, -beta]), np.ones(20, dtype=int))
    np.testing.assert_allclose(found, loss.loss.conjugate(beta) - loss.margin * beta, rtol=1e-13)


def test_the_duality_gap_at_the_gradient_is_the_bound_by_strong_convexity(rng):
    loss, alpha = joint(), 0.05
    X, codes = rng.normal(size=(60, 4)), rng.integers(3, size=60)

    def objective(coef):
        scores = X @ coef.reshape(4, 3)
        gradient = X.T @ loss.gradient(scores, codes) / 60 + alpha * coef.reshape(4, 3)
        value = loss.value(scores, codes).mean() + 0.5 * alpha * coef @ coef
        return value, gradient.ravel()

    minimum = minimize(objective, np.zeros(12), jac=True, options={"gtol": 1e-12}).fun
    for size in (0.0, 0.1, 2.0):
        coef = size * rng.normal(size=12)
        value, gradient = objective(coef)
        dual = loss.gradient(X @ coef.reshape(4, 3), codes)
        penalty = np.sum((X.T @ dual / 60) ** 2) / (2 * alpha)
        lower = -np.mean(loss.conjugate_in_scores(dual, codes)) - penalty
        assert lower <= minimum + 1e-12
        np.testing.assert_allclose(value - lower, gradient @ gradient / (2 * alpha), rtol=1e-8)


@pytest.mark.parametrize("rho", ["catoni", "log_cosh", "pseudo_huber", "square"])
@pytest.mark.parametrize("temperature", [0.3, 2.0])
def test_the_link_inverts_the_minimiser_of_the_expected_loss(rng, rho, temperature):
    loss = joint(rho, temperature, scale=2.0)
    for probabilities in rng.dirichlet(np.ones(4), size=5):

        def risk(f, eta=probabilities):
            rows = np.tile(f, (4, 1))
            codes = np.arange(4)
            return eta @ loss.value(rows, codes), eta @ loss.gradient(rows, codes)

        found = minimize(risk, np.zeros(4), jac=True, options={"gtol": 1e-10})
        np.testing.assert_allclose(loss.link(found.x[None])[0], probabilities, atol=1e-6)
        assert np.argmax(found.x) == np.argmax(probabilities)


@given(
    scores=arrays(np.float64, (5,), elements=st.floats(-20, 20)),
    temperature=st.sampled_from(TEMPERATURES),
    rho=st.sampled_from(sorted(RHOS)),
)
def test_the_link_has_the_order_of_the_scores(scores, temperature, rho):
    found = joint(rho, temperature).link(scores[None])[0]
    assert np.all(found >= 0)
    assert found.sum() == pytest.approx(1.0, abs=1e-12)
    order = np.argsort(scores, kind="stable")
    assert np.all(np.diff(found[order]) >= -1e-12)


def test_other_array_libraries_give_the_same(rng):
    xp = pytest.importorskip("array_api_strict")
    scores, codes = draws(rng)
    loss = joint()
    places = xp.asarray(scores), xp.asarray(codes)
    expected = loss.value_and_gradient(scores, codes, 0.5)
    for found, wanted in zip(loss.value_and_gradient(*places, 0.5), expected, strict=True):
        np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(np.asarray(loss.link(places[0])), loss.link(scores), rtol=1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loss": MarginLoss()}, "overconfidence=0"),
        ({"temperature": 0.0}, "temperature"),
        ({"temperature": np.nan}, "temperature"),
    ],
)
def test_parameters_are_checked(change, message):
    parameters = {"loss": MarginLoss(overconfidence=0.0), "temperature": 1.0} | change
    with pytest.raises(ValueError, match=message):
        JointLoss(**parameters)


@pytest.mark.parametrize(
    ("scores", "codes"),
    [([1.0, 2.0], [0]), ([[1.0]], [0]), ([[1.0, 2.0]], [2]), ([[1.0, 2.0]], [0.5])],
)
def test_scores_and_codes_are_checked(scores, codes):
    with pytest.raises(ValueError, match="codes"):
        joint().value(scores, codes)
