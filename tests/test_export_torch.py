"""Linear classifiers as modules of PyTorch, and back."""

import io

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from random_models import random_model, random_models, random_rows
from sklearn.datasets import load_iris
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from marginpursuit import MarginPursuitClassifier, interop, load_model, save_model
from marginpursuit.export import from_torch, to_torch

torch = pytest.importorskip("torch")

X, Y = load_iris(return_X_y=True)


def expected(model, rows):
    if hasattr(model, "predict_proba"):
        return model.predict_proba(rows)
    return model.decision_function(rows).reshape(len(rows), -1)


def test_random_models_have_the_same_probabilities_and_return():
    rng = np.random.default_rng(0)
    for model in random_models(2):
        rows = random_rows(rng, model)
        module = to_torch(model)
        found = module(torch.from_numpy(rows)).detach().numpy()
        assert_allclose(found, expected(model, rows), rtol=1e-9, atol=1e-12)
        scores = module.linear(torch.from_numpy(rows)).detach().numpy()
        assert_allclose(scores, model.decision_function(rows).reshape(len(rows), -1), rtol=1e-9)
        again = from_torch(module)
        assert_array_equal(again.predict(rows), model.predict(rows))
        assert_allclose(expected(again, rows), expected(model, rows), rtol=1e-12)


def test_float32_has_the_rounding_error_of_its_scores():
    model = MarginPursuitClassifier().fit(X, Y)
    module = to_torch(model, dtype=torch.float32)
    found = module(torch.from_numpy(X.astype(np.float32)))
    assert found.dtype == torch.float32
    assert_allclose(found.detach().numpy(), model.predict_proba(X), atol=1e-5)


@pytest.mark.parametrize("kind", ["fitted", "exact"])
@pytest.mark.parametrize("problem", ["binary", "ovr", "joint", "labels"])
def test_gradients_are_those_of_finite_differences(kind, problem):
    rng = np.random.default_rng(1)
    model = random_model(rng, kind, problem)
    model.coef_ *= 0.1  # scores between the levels, where no probability is constant
    module = to_torch(model)
    rows = torch.from_numpy(rng.standard_normal((5, 4))).requires_grad_()
    assert torch.autograd.gradcheck(module, (rows,))


def test_a_pipeline_of_text_classes_survives_training_and_files(tmp_path):
    text = np.array(["a", "b", "c"])[Y]
    model = make_pipeline(StandardScaler(), MarginPursuitClassifier()).fit(X, text)
    module = to_torch(model)
    content = io.BytesIO()
    torch.save(module, content)
    content.seek(0)
    module = torch.load(content, weights_only=False)
    assert_allclose(module(torch.from_numpy(X)).detach(), model.predict_proba(X), atol=1e-9)
    optimiser = torch.optim.SGD(module.parameters(), lr=1e-3)
    loss = interop.torch_loss()(module.linear(torch.from_numpy(X)), torch.from_numpy(Y))
    loss.backward()
    optimiser.step()
    again = load_model(save_model(from_torch(module), tmp_path / "model"))
    assert again.classes_.tolist() == ["a", "b", "c"]
    assert_allclose(again.predict_proba(X), module(torch.from_numpy(X)).detach(), atol=1e-9)


@pytest.mark.parametrize("n_outputs", [1, 2, 3])
@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_trained_with_the_loss_has_its_exact_link(n_outputs, bias):
    torch.manual_seed(0)
    layer = torch.nn.Linear(4, n_outputs, bias=bias)
    model = from_torch(layer, margin=0.5, scale=2.0, rho="huber")
    scores = layer(torch.from_numpy(X.astype(np.float32))).detach().double().numpy()
    link = interop.margin_probabilities(scores, margin=0.5, scale=2.0, rho="huber")
    assert_allclose(model.predict_proba(X), link, atol=1e-5)
    assert_array_equal(model.predict(X), link.argmax(axis=1))


def test_other_modules_are_refused():
    with pytest.raises(TypeError, match=r"type ReLU; expected torch.nn.Linear, or a module that"):
        from_torch(torch.nn.ReLU())
    with pytest.raises(ValueError, match="for 2 classes"):
        from_torch(torch.nn.Linear(4, 3), classes=["a", "b"])
    with pytest.raises(ValueError, match="in order"):
        from_torch(torch.nn.Linear(4, 3), classes=["b", "a", "c"])
