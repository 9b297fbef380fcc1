"""The contract of every loss, and of one that is defined here and known to no kernel."""

import pickle
from dataclasses import dataclass

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import EPS, exact_margin_loss
from scipy import sparse
from strategies import reals

from marginpursuit._namespaces import to_numpy
from marginpursuit.calibration import probability
from marginpursuit.design import Standardisation, design_for
from marginpursuit.losses import (
    RHOS,
    HingeLoss,
    LogisticLoss,
    MarginLoss,
    ProjectionLoss,
    require,
)
from marginpursuit.losses.margin import stacked
from marginpursuit.losses.protocol import has
from marginpursuit.losses.registry import from_kernel_parameters
from marginpursuit.tasks import Labels, Tasks

strict = pytest.importorskip("array_api_strict")


@dataclass(frozen=True)
class ToyLoss:
    """The exponential loss, with no more than a loss must have and its curvature."""

    def value(self, margin):
        return np.exp(-np.asarray(margin, dtype=float))

    def derivative(self, margin):
        return -self.value(margin)

    def curvature(self, margin):
        return self.value(margin)


def _exact_toy(loss, margin):
    power = mp.exp(-margin)
    return power, -power, power


def _exact_hinge(loss, margin):
    residual = mp.mpf(loss.margin) - margin
    return max(residual, 0), mp.mpf(-1 if residual > 0 else 0), mp.mpf(0)


def _exact_logistic(loss, margin):
    power = mp.exp(-abs(margin))
    slope = (1 if margin < 0 else power) / (1 + power)
    return mp.log1p(power) + max(-margin, 0), -slope, power / (1 + power) ** 2


def _exact_projection(loss, margin):
    a, b = mp.mpf(loss.alpha), mp.mpf(loss.beta)
    if margin < 0:
        power = mp.exp(-b * margin)
        return power, -b * power, b**2 * power
    power = mp.exp(-a * margin**2)
    return power, -2 * a * margin * power, 2 * a * (2 * a * margin**2 - 1) * power


EXACT = {
    MarginLoss: exact_margin_loss,
    HingeLoss: _exact_hinge,
    LogisticLoss: _exact_logistic,
    ProjectionLoss: _exact_projection,
    ToyLoss: _exact_toy,
}

LOSSES = [
    *(MarginLoss(0.8, 0.6, tau, rho) for rho in RHOS for tau in (0.0, 0.3, 1.0)),
    HingeLoss(0.7),
    LogisticLoss(),
    ProjectionLoss(0.4, 0.9),
    ToyLoss(),
]
each_loss = pytest.mark.parametrize("loss", LOSSES, ids=str)


def with_capability(name):
    return pytest.mark.parametrize("loss", [x for x in LOSSES if has(x, name)], ids=str)


MARGINS = np.concatenate([np.linspace(-6.01, 8.02, 141), [-700.5, -40.0, -1e-9, 0.0, 1e-9, 45.0]])


@each_loss
def test_exact(loss):
    found = [f(MARGINS) for f in (loss.value, loss.derivative, loss.curvature)]
    for k, margin in enumerate(MARGINS.tolist()):
        exact = EXACT[type(loss)](loss, mp.mpf(margin))
        for array, number in zip(found, exact, strict=True):
            # The residual itself is rounded, and an exponent m has a relative error of m ε.
            bound = 8 * EPS * (1 + abs(margin)) * max(abs(number), mp.mpf("1e-300"))
            bound += 0 if isinstance(loss, ProjectionLoss | ToyLoss) else 4 * EPS * abs(margin)
            assert abs(mp.mpf(float(array[k])) - number) <= bound, margin


@each_loss
def test_derivatives_by_finite_differences(loss):
    margins, step = np.linspace(-3.003, 3.004, 200), 1e-5
    kinks = [0.0, getattr(loss, "margin", 0.0), 0.2, 1.4]  # Huber's at 0.8 ± 0.6
    margins = margins[np.min(np.abs(margins[:, None] - kinks), axis=1) > 2 * step]
    for function, slope in ((loss.value, loss.derivative), (loss.derivative, loss.curvature)):
        difference = (function(margins + step) - function(margins - step)) / (2 * step)
        np.testing.assert_allclose(difference, slope(margins), rtol=2e-5, atol=2e-5)


@each_loss
@given(st.lists(st.floats(-30, 30), min_size=2, max_size=9))
def test_non_negative_convex_and_of_bounded_curvature(loss, margins):
    margins = np.sort(margins)
    values, slopes = loss.value(margins), loss.derivative(margins)
    assert np.all(values >= 0)
    if isinstance(loss, ProjectionLoss):  # which is not convex
        return
    assert np.all(np.diff(slopes) >= -8 * EPS * np.abs(slopes[1:]))
    tangents = values[:-1] + slopes[:-1] * np.diff(margins)
    slack = 64 * EPS * (1 + values[:-1] + values[1:] + np.abs(slopes[:-1] * np.diff(margins)))
    assert np.all(tangents - slack <= values[1:])
    if has(loss, "curvature_bound"):
        assert np.all(loss.curvature(margins) >= 0)
        assert np.all(loss.curvature(margins) <= loss.curvature_bound)
        most = tangents + 0.5 * loss.curvature_bound * np.diff(margins) ** 2
        assert np.all(values[1:] <= most + slack)


def test_every_loss_but_the_hinge_attains_the_bound_of_its_curvature():
    for loss in LOSSES:
        if has(loss, "curvature_bound"):
            at = loss.margin if isinstance(loss, MarginLoss) else 0.0
            assert loss.curvature(at) == loss.curvature_bound


@each_loss
def test_infinite_margins(loss):
    if isinstance(loss, ToyLoss):
        return
    values = loss.value(np.array([-np.inf, np.inf]))
    slopes = loss.derivative(np.array([-np.inf, np.inf]))
    assert values[0] == np.inf
    assert slopes[0] < 0
    decreasing = not isinstance(loss, MarginLoss) or loss.overconfidence == 0
    assert (values[1], slopes[1]) == (0.0, 0.0) if decreasing else values[1] == np.inf


@with_capability("value_and_derivative")
@pytest.mark.parametrize("library", ["numpy", "strict"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_arrays_of_any_library(loss, library, dtype):
    margins = np.append(np.linspace(-5, 6, 45), [-80.0, 80.0]).astype(dtype)
    weights = np.random.default_rng(0).random(47).astype(dtype)
    weights[::5] = 0.0
    there = [margins, weights]
    if library == "strict":
        there = [strict.asarray(x, device=strict.Device("device1")) for x in there]
    value, derivative = loss.value_and_derivative(*there)
    wanted = margins.astype(float), weights.astype(float)
    tolerance = 60 * np.finfo(dtype).eps
    for found, exact in ((value, loss.value), (derivative, loss.derivative)):
        assert str(found.dtype).endswith(dtype)
        expected = wanted[1] * exact(wanted[0])
        np.testing.assert_allclose(to_numpy(found), expected, rtol=tolerance, atol=tolerance)


@with_capability("value_and_derivative")
def test_nan_stays_nan_and_weight_zero_of_an_infinite_margin_is_zero(loss):
    margins, weights = np.array([np.nan, -np.inf]), np.array([1.0, 0.0])
    value, derivative = loss.value_and_derivative(margins[:1], weights[:1])
    assert np.isnan(value).all()
    assert np.isnan(derivative).all() or isinstance(loss, HingeLoss)
    if isinstance(loss, MarginLoss):
        assert loss.value_and_derivative(margins[1:], weights[1:]) == (0.0, 0.0)


@pytest.mark.parametrize(
    "losses",
    [
        *([MarginLoss(0.5 + k, 0.3 * k + 0.1, k / 3, rho) for k in range(4)] for rho in RHOS),
        [LogisticLoss()] * 3,
        [MarginLoss(rho="huber"), MarginLoss()],
        [HingeLoss(), LogisticLoss(), MarginLoss(rho="huber"), MarginLoss()],
    ],
    ids=lambda losses: type(losses[0]).__name__,
)
def test_stacked_losses_are_the_losses_of_the_columns(losses):
    rng = np.random.default_rng(1)
    margins, weights = 2 * rng.normal(size=(30, len(losses))), rng.random((30, 1))
    for place in (np.asarray, lambda x: strict.asarray(np.asarray(x))):
        value, derivative = stacked(losses, place)(place(margins), place(weights))
        for k, loss in enumerate(losses):
            column = margins[:, k]
            expected = weights[:, 0] * loss.value(column), weights[:, 0] * loss.derivative(column)
            for found, wanted in zip((value, derivative), expected, strict=True):
                np.testing.assert_allclose(to_numpy(found)[:, k], wanted, rtol=1e-13, atol=1e-15)


@with_capability("link")
def test_link_is_that_of_the_minimiser_of_the_conditional_risk(loss):
    """ηφ(u) + (1 - η)φ(-u) is stationary at u for η = link(u)."""
    scores = np.linspace(-0.79, 0.79, 41)
    eta = loss.link(scores)
    assert np.all(np.diff(eta) >= 0)
    balance = eta * loss.derivative(scores) - (1 - eta) * loss.derivative(-scores)
    np.testing.assert_allclose(balance, 0.0, atol=1e-15)
    np.testing.assert_allclose(eta + loss.link(-scores), 1.0, rtol=1e-15)
    assert loss.link(np.array([0.0])) == 0.5
    assert loss.link(np.array([-np.inf, np.inf])).tolist() == [0.0, 1.0]
    there = strict.asarray(scores, device=strict.Device("device1"))
    np.testing.assert_allclose(to_numpy(loss.link(there)), eta, rtol=1e-14)


@pytest.mark.parametrize("rho", RHOS)
def test_probability_is_the_link(rho):
    scores = np.linspace(-2, 2, 33)
    for margin, scale in ((1.0, 0.5), (0.3, 7.0), (1.0, 1e200)):
        linked = MarginLoss(margin, scale, 0.2, rho).link(scores)
        np.testing.assert_array_equal(probability(scores, margin, scale, rho), linked)
    with pytest.raises(ValueError, match=r"rho must be one of \['catoni', .*; got 'hubert'"):
        probability(0.0, rho="hubert")


@with_capability("conjugate")
@given(st.floats(0, 0.999), st.floats(0, 20))
def test_conjugate(loss, fraction, other):
    """Fenchel's inequality c r ≤ φ(r) + φ*(c), with equality at the inverse of the influence."""
    bound = min(loss.influence_bound, 5.0)
    c = np.array(fraction * bound)
    residual = loss.influence_inverse(c)
    below = loss.margin - residual
    conjugate = loss.conjugate(c)
    assert -loss.derivative(below) == pytest.approx(float(c), rel=1e-9, abs=1e-12)
    slack = 1e-9 * (1 + abs(c * residual))
    assert abs(c * residual - loss.value(below) - conjugate) <= slack
    assert c * other <= loss.value(loss.margin - other) + conjugate + slack
    assert loss.side_weights == ((1.0, loss.overconfidence) if loss.overconfidence else (1.0,))


@with_capability("kernel_parameters")
def test_kernel_parameters_name_the_loss(loss):
    assert from_kernel_parameters(*loss.kernel_parameters) == loss


def test_codes_differ():
    codes = {}
    for loss in LOSSES:
        if has(loss, "kernel_parameters"):
            name = getattr(loss, "rho", type(loss).__name__)
            assert codes.setdefault(loss.kernel_parameters[0], name) == name
    assert sorted(codes) == list(range(7))


@each_loss
def test_is_a_value(loss):
    assert pickle.loads(pickle.dumps(loss)) == loss
    assert hash(loss) == hash(pickle.loads(pickle.dumps(loss)))


@given(reals)
def test_no_loss_of_a_real_margin_is_nan(margin):
    for loss in LOSSES[:-1]:
        assert loss.value(margin) >= 0
        assert not np.isnan(loss.derivative(margin))
        assert not np.isnan(loss.curvature(margin))


def test_a_solver_refuses_by_name():
    require(MarginLoss(rho="log_cosh"), "conjugate", "influence_bound", solver="dual")
    with pytest.raises(ValueError, match=r"^dual needs a conjugate; LogisticLoss has none\. "):
        require(LogisticLoss(), "curvature", "conjugate", solver="dual")
    with pytest.raises(ValueError, match=r"^newton needs a curvature bound; HingeLoss has none"):
        require(HingeLoss(), "curvature_bound", solver="newton")
    with pytest.raises(ValueError, match=r"^x needs an influence bound; ToyLoss has none"):
        require(ToyLoss(), "influence_bound", solver="x")


@each_loss
@pytest.mark.parametrize("layout", [np.ascontiguousarray, np.asfortranarray, sparse.csr_array])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_designs_sweep_with_every_loss(loss, layout, n_classes):
    """By the kernels that know the loss, and by its own methods otherwise."""
    rng = np.random.default_rng(2)
    x, weights = rng.normal(size=(40, 5)), rng.random(40) / 40
    labels = Labels(rng.integers(0, n_classes, 40), n_classes)
    tasks = Tasks.of(labels, weights, loss)
    assert tasks.has_compiled_losses == has(loss, "kernel_parameters")
    coef, intercept = rng.normal(size=(5, len(tasks))), rng.normal(size=len(tasks))
    sweep = design_for(layout(x)).sweep(coef, intercept, tasks, Standardisation.identity(5))
    for k in range(len(tasks)):
        sign = tasks.sign(k)
        margins = sign * (x @ coef[:, k] + intercept[k])
        factors = weights * sign * loss.derivative(margins)
        assert sweep.value[k] == pytest.approx(weights @ loss.value(margins), rel=1e-12)
        np.testing.assert_allclose(sweep.gradient[:, k], factors @ x, rtol=1e-10, atol=1e-12)
        assert sweep.slope[k] == pytest.approx(factors.sum(), rel=1e-10, abs=1e-13)
