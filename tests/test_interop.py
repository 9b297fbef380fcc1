"""The loss in other libraries: values and derivatives, and training with each of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import make_classification

from marginpursuit import interop
from marginpursuit.losses import RHOS, JointLoss, MarginLoss

BOOSTING = [interop.lightgbm_objective, interop.xgboost_objective]


def binary_data(n=600):
    X, y = make_classification(n, 8, n_informative=5, class_sep=1.5, random_state=0)
    return X[: n // 2], y[: n // 2], X[n // 2 :], y[n // 2 :]


@pytest.mark.parametrize("make", BOOSTING)
@pytest.mark.parametrize("rho", RHOS)
@pytest.mark.parametrize("overconfidence", [0.0, 0.4, 1.0])
def test_gradients_are_finite_differences_of_the_loss(make, rho, overconfidence):
    loss = MarginLoss(1.2, 0.7, overconfidence, rho)
    parameters = {"margin": 1.2, "scale": 0.7, "overconfidence": overconfidence, "rho": rho}
    scores = np.linspace(-3.03, 3.01, 50)
    labels = np.arange(50) % 2
    weights = np.linspace(0.5, 2.0, 50)
    gradient, hessian = make(**parameters)(labels, scores, weights)
    sign, h = 2 * labels - 1, 1e-6
    difference = (loss.value(sign * (scores + h)) - loss.value(sign * (scores - h))) / (2 * h)
    np.testing.assert_allclose(gradient, weights * difference, atol=1e-8)
    assert (hessian > 0).all()


@given(
    rho=st.sampled_from(sorted(RHOS)),
    at=st.floats(-20, 20),
    other=st.floats(-20, 20),
    scale=st.floats(0.1, 10),
    overconfidence=st.sampled_from([0.0, 0.5, 1.0]),
)
def test_the_majoriser_lies_above_the_loss(rho, at, other, scale, overconfidence):
    loss = MarginLoss(1.0, scale, overconfidence, rho)
    objective = interop.lightgbm_objective(scale=scale, overconfidence=overconfidence, rho=rho)
    gradient, hessian = objective(np.array([1]), np.array([at]), None)
    if at > 1:  # above the level the majoriser of the half below does not apply
        return
    step = other - at
    above = loss.value(at) + gradient[0] * step + 0.5 * hessian[0] * step**2
    assert above >= loss.value(other) - 1e-9 * (1 + abs(above))


def test_exact_second_derivatives_are_the_curvature():
    scores = np.linspace(-3, 3, 41)
    objective = interop.lightgbm_objective(hessian="exact", overconfidence=1.0)
    _, hessian = objective(np.ones(41, int), scores, None)
    expected = np.maximum(MarginLoss().curvature(scores), 1e-3)
    np.testing.assert_allclose(hessian, expected)


@pytest.mark.parametrize("make", BOOSTING)
def test_several_classes_have_the_gradient_and_diagonal_of_the_joint_loss(make):
    rng = np.random.default_rng(0)
    scores, codes = rng.normal(size=(30, 4)), rng.integers(0, 4, 30)
    gradient, hessian = make(hessian="exact")(codes, scores, None)
    joint, h = JointLoss(MarginLoss(overconfidence=0.0)), 1e-4
    for k in range(4):
        step = h * (np.arange(4) == k)
        values = [joint.value(scores + i * step, codes) for i in (-1, 0, 1)]
        np.testing.assert_allclose(gradient[:, k], (values[2] - values[0]) / (2 * h), atol=1e-6)
        second = (values[2] - 2 * values[1] + values[0]) / h**2
        np.testing.assert_allclose(hessian[:, k], np.maximum(second, 1e-3), atol=2e-3)


def test_invalid_arguments_are_refused():
    with pytest.raises(ValueError, match='hessian must be "majoriser" or "exact"'):
        interop.lightgbm_objective(hessian="newton")
    with pytest.raises(ValueError, match="scale must be"):
        interop.xgboost_objective(scale=0.0)
    with pytest.raises(ValueError, match="needs overconfidence=0"):
        interop.lightgbm_objective(overconfidence=1.0)(np.zeros(2), np.zeros((2, 3)), None)


def test_probabilities_are_the_exact_link():
    scores = np.linspace(-2, 2, 9)
    found = interop.margin_probabilities(scores, scale=0.5)
    np.testing.assert_array_equal(found[:, 1], MarginLoss(scale=0.5).link(scores))
    np.testing.assert_allclose(found.sum(axis=1), 1)
    assert interop.margin_probabilities(np.zeros((2, 3))).shape == (2, 3)


def test_lightgbm_trains_with_the_loss():
    lightgbm = pytest.importorskip("lightgbm")
    X, y, X_test, y_test = binary_data()
    options = {"n_estimators": 30, "verbose": -1, "n_jobs": 1, "num_leaves": 8}
    model = lightgbm.LGBMClassifier(objective=interop.lightgbm_objective(), **options)
    model.fit(X, y, sample_weight=np.ones(len(y)))
    scores = model.predict(X_test, raw_score=True)
    assert np.mean((scores > 0) == y_test) > 0.85
    y3 = y + (X[:, 0] > 1)
    model = lightgbm.LGBMClassifier(objective=interop.lightgbm_objective(), **options).fit(X, y3)
    assert np.mean(np.argmax(model.predict(X, raw_score=True), axis=1) == y3) > 0.85


def test_xgboost_trains_with_the_loss():
    xgboost = pytest.importorskip("xgboost")
    X, y, X_test, y_test = binary_data()
    options = {"n_estimators": 30, "max_depth": 3, "base_score": 0.0, "n_jobs": 1}
    model = xgboost.XGBClassifier(objective=interop.xgboost_objective(), **options)
    model.fit(X, y, sample_weight=np.ones(len(y)))
    scores = model.predict(X_test, output_margin=True)
    assert np.mean((scores > 0) == y_test) > 0.85


# CatBoost compiles methods that do not use self, and warns of others.
@pytest.mark.filterwarnings("ignore:Can't optim.*calc_ders_range:UserWarning")
def test_catboost_trains_with_the_loss():
    catboost = pytest.importorskip("catboost")
    X, y, X_test, y_test = binary_data()
    model = catboost.CatBoostClassifier(
        loss_function=interop.catboost_objective(),
        eval_metric="Accuracy",
        learning_rate=0.3,
        iterations=30,
        depth=3,
        thread_count=1,
        logging_level="Silent",
        allow_writing_files=False,
    ).fit(X, y)
    scores = model.predict(X_test, prediction_type="RawFormulaVal")
    assert np.mean((scores > 0) == y_test) > 0.85


@pytest.mark.parametrize("rho", RHOS)
def test_jax_values_and_gradients(rho):
    jax = pytest.importorskip("jax")
    loss = MarginLoss(1.0, 0.7, 0.3, rho)
    function = interop.jax_loss(scale=0.7, overconfidence=0.3, rho=rho)
    scores = np.linspace(-3, 3, 13, dtype=np.float32)
    batch = jax.jit(jax.vmap(function, in_axes=(0, None)))
    np.testing.assert_allclose(batch(scores, 1), loss.value(scores), rtol=1e-5, atol=1e-6)
    gradients = jax.vmap(jax.grad(function), in_axes=(0, None))(scores, 0)
    np.testing.assert_allclose(gradients, -loss.derivative(-scores), rtol=1e-5, atol=1e-6)


def test_jax_joint_loss():
    jax = pytest.importorskip("jax")
    joint = JointLoss(MarginLoss(overconfidence=0.0))
    scores = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    codes = np.arange(6) % 4
    values = jax.vmap(interop.jax_loss())(scores, codes)
    np.testing.assert_allclose(values, joint.value(scores, codes), rtol=1e-5, atol=1e-6)
    gradients = jax.vmap(jax.grad(interop.jax_loss()))(scores, codes)
    np.testing.assert_allclose(gradients, joint.gradient(scores, codes), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rho", RHOS)
@pytest.mark.parametrize("overconfidence", [0.0, 1.0])
def test_torch_values_and_derivatives(rho, overconfidence):
    torch = pytest.importorskip("torch")
    loss = MarginLoss(1.0, 0.7, overconfidence, rho)
    module = interop.torch_loss(scale=0.7, overconfidence=overconfidence, rho=rho, reduction="none")
    scores = torch.linspace(-3.05, 3.0, 31, dtype=torch.float64, requires_grad=True)
    values = module(scores, torch.ones(31))
    np.testing.assert_allclose(values.detach(), loss.value(scores.detach()), rtol=1e-12)
    (slopes,) = torch.autograd.grad(values.sum(), scores, create_graph=True)
    np.testing.assert_allclose(slopes.detach(), loss.derivative(scores.detach()), rtol=1e-12)
    (second,) = torch.autograd.grad(slopes.sum(), scores)
    np.testing.assert_allclose(second, loss.curvature(scores.detach()), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_torch_narrow_types_do_not_overflow(dtype):
    torch = pytest.importorskip("torch")
    scores = torch.tensor([-6e4, 0.5], dtype=getattr(torch, dtype), requires_grad=True)
    value = interop.torch_loss(reduction="sum")(scores, torch.tensor([1, 1]))
    value.backward()
    assert torch.isfinite(value)
    assert torch.isfinite(scores.grad).all()


def test_torch_reductions_weights_and_several_classes():
    torch = pytest.importorskip("torch")
    joint = JointLoss(MarginLoss(overconfidence=0.0))
    rng = np.random.default_rng(0)
    scores, codes, weight = rng.normal(size=(8, 3)), rng.integers(0, 3, 8), rng.random(8)
    expected = joint.value(scores, codes)
    arguments = torch.tensor(scores), torch.tensor(codes), torch.tensor(weight)
    assert float(interop.torch_loss()(*arguments)) == pytest.approx(
        np.average(expected, weights=weight)
    )
    total = float(interop.torch_loss(reduction="sum")(*arguments[:2]))
    assert total == pytest.approx(expected.sum())
    with pytest.raises(ValueError, match="reduction must be"):
        interop.torch_loss(reduction="max")
    with pytest.raises(ValueError, match="target must have shape"):
        interop.torch_loss()(torch.zeros(3), torch.zeros(2))
