"""ONNX graphs of classifiers and pipelines: labels and probabilities in onnxruntime."""

import importlib

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from random_models import random_model, random_models, random_rows
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_iris, make_multilabel_classification
from sklearn.ensemble import RandomForestClassifier, VotingClassifier
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from marginpursuit import (
    LDMClassifier,
    MarginPursuitClassifier,
    MarginPursuitClassifierCV,
)

onnxruntime = pytest.importorskip("onnxruntime")
skl2onnx = pytest.importorskip("skl2onnx")
to_onnx = importlib.import_module("marginpursuit.onnx").to_onnx

X, Y = load_iris(return_X_y=True)
TEXT = np.array(["setosa", "versicolor é", "virginica"])
MATRIX = {"zipmap": False}


def run(model, rows, options=MATRIX, opset=None):
    """Return the outputs of the graph of a model, for rows of the type of the input."""
    graph = skl2onnx.to_onnx(model, rows[:1], options={id(model): options}, target_opset=opset)
    return outputs(graph, rows)


def outputs(graph, rows):
    content = graph.SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return session.run(None, {"X": rows})


def expected(model, rows, *, raw=False):
    """The second output: probabilities, or scores with a column for each class."""
    if not raw and hasattr(model, "predict_proba"):
        return model.predict_proba(rows)
    scores = model.decision_function(rows)
    return np.stack([-scores, scores], axis=1) if scores.ndim == 1 else scores


@pytest.mark.parametrize("seed", range(2))
def test_random_models_have_the_same_labels_and_probabilities(seed):
    rng = np.random.default_rng(100 + seed)
    for model in random_models(seed):
        rows = random_rows(rng, model)
        labels, values = run(model, rows)
        assert_array_equal(labels, model.predict(rows))
        assert_allclose(values, expected(model, rows), rtol=1e-9, atol=1e-9)


def test_float32_rows_differ_by_the_rounding_of_the_result():
    """The graph computes in float64, as `predict_proba` does for float32 rows."""
    rng = np.random.default_rng(0)
    for model in random_models(7):
        rows = random_rows(rng, model).astype(np.float32)
        labels, values = run(model, rows)
        assert values.dtype == np.float32
        assert_array_equal(labels, model.predict(rows))
        assert_allclose(values, expected(model, rows), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("opset", [13, 17, 18])
def test_older_operator_sets(opset):
    for kind in ("fitted", "exact"):
        model = random_model(np.random.default_rng(0), kind, "joint")
        rows = random_rows(np.random.default_rng(1), model)
        assert_allclose(run(model, rows, opset=opset)[1], model.predict_proba(rows), atol=1e-12)
    with pytest.raises(ValueError, match="got target_opset=12; expected at least 13"):
        run(model, rows, opset=12)


@pytest.mark.parametrize(
    "model",
    [
        MarginPursuitClassifier(),
        MarginPursuitClassifier(probability="exact"),
        MarginPursuitClassifier.as_published(),
        MarginPursuitClassifierCV(cv=2, alphas=[1e-3], scales=[1.0]),
        MarginPursuitClassifierCV(cv=2, alphas=[1e-3], scales=[1.0], link="exact"),
        LDMClassifier(probability="held_out"),
        LDMClassifier(),
    ],
    ids=lambda model: str(model)[:60],
)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_fitted_classifiers(model, n_classes):
    rows, y = X[: 50 * n_classes], Y[: 50 * n_classes]
    model = model.fit(rows, TEXT[y])
    labels, values = run(model, rows)
    assert_array_equal(labels, model.predict(rows))
    assert_allclose(values, expected(model, rows), atol=1e-9)


def test_several_labels():
    rows, sets = make_multilabel_classification(100, 5, n_classes=3, random_state=0)
    model = MarginPursuitClassifier().fit(rows, sets)
    labels, values = run(model, rows)
    assert_array_equal(labels, model.predict(rows))
    assert_allclose(values, model.predict_proba(rows), atol=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_pipeline(dtype):
    """The rounding error of a float32 scaler is that of the input, here a relative 1e-6."""
    rows = X.astype(dtype)
    model = make_pipeline(StandardScaler(), MarginPursuitClassifier()).fit(X, TEXT[Y])
    labels, values = run(model, rows)
    assert_array_equal(labels, model.predict(rows))
    tolerance = 1e-4 if dtype == np.float32 else 1e-9
    assert_allclose(values, model.predict_proba(rows), atol=tolerance)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("include_bias", [False, True])
def test_polynomial_features(dtype, include_bias):
    """skl2onnx writes the bias as float32, which cannot be concatenated with float64 columns."""
    features = PolynomialFeatures(2, include_bias=include_bias)
    model = make_pipeline(StandardScaler(), features, MarginPursuitClassifier()).fit(X, Y)
    labels, values = outputs(to_onnx(model, dtype=dtype), X.astype(dtype))
    assert_array_equal(labels, model.predict(X))
    tolerance = 1e-4 if dtype == np.float32 else 1e-9
    assert_allclose(values, model.predict_proba(X), atol=tolerance)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_zipmap_returns_a_dict_for_each_row(dtype):
    rows = X[:5].astype(dtype)
    model = MarginPursuitClassifier().fit(X, TEXT[Y])
    labels, dicts = run(model, rows, {})
    assert_array_equal(labels, model.predict(rows))
    assert list(dicts[0]) == TEXT.tolist()
    values = [list(row.values()) for row in dicts]
    assert_allclose(values, model.predict_proba(rows), rtol=1e-6)


def test_zipmap_columns_returns_an_output_for_each_class():
    model = MarginPursuitClassifier().fit(X, Y)
    labels, *columns = run(model, X, {"zipmap": "columns"})
    assert_array_equal(labels, model.predict(X))
    assert_allclose(np.stack(columns, axis=1), model.predict_proba(X), atol=1e-9)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_further_options(n_classes):
    rows, y = X[: 50 * n_classes], Y[: 50 * n_classes]
    model = MarginPursuitClassifier().fit(rows, TEXT[y])
    labels, values = run(model, rows, {**MATRIX, "raw_scores": True})
    assert_allclose(values, expected(model, rows, raw=True), rtol=1e-9, atol=1e-12)
    numbers, _ = run(model, rows, {**MATRIX, "nocl": True})
    assert_array_equal(TEXT[numbers], labels)
    *_, classes = run(model, rows, {**MATRIX, "output_class_labels": True})
    assert_array_equal(classes, model.classes_)


@pytest.mark.parametrize(
    "classes",
    [np.array([False, True]), np.array([-3, 2**40]), np.array([1.0, 2.0]),
     np.array([3, 200], np.uint8), np.array(["a", "b"], object)],
    ids=lambda classes: str(classes.dtype),
)  # fmt: skip
def test_types_of_classes(classes):
    model = MarginPursuitClassifier().fit(X[:100], classes[Y[:100]])
    labels, _ = run(model, X)
    assert_array_equal(labels, model.predict(X))
    assert [list(row) for row in run(model, X[:1], {})[1]] == [classes.tolist()]


def test_integer_rows():
    rows = np.round(10 * X).astype(np.int64)
    model = MarginPursuitClassifier().fit(rows, Y)
    labels, values = run(model, rows)
    assert_array_equal(labels, model.predict(rows))
    assert_allclose(values, model.predict_proba(rows), rtol=1e-6)


def test_inside_a_calibrated_classifier():
    rows, y = X[50:], Y[50:]
    model = CalibratedClassifierCV(MarginPursuitClassifier(), cv=2).fit(rows, y)
    labels, values = run(model, rows)
    assert_array_equal(labels, model.predict(rows))
    assert_allclose(values, model.predict_proba(rows), atol=1e-6)
    labels, dicts = run(model, rows.astype(np.float32), {})
    assert_allclose([list(row.values()) for row in dicts], values, atol=1e-4)


def test_inside_a_voting_classifier():
    members = [("ours", MarginPursuitClassifier()), ("trees", RandomForestClassifier(5))]
    model = VotingClassifier(members, voting="soft", flatten_transform=False).fit(X, Y)
    rows = X.astype(np.float32)
    labels, values = run(model, rows)
    assert_array_equal(labels, model.predict(rows))
    assert_allclose(values, model.predict_proba(rows), atol=1e-5)


def test_the_stock_converter_of_linear_classifiers_has_other_probabilities():
    """The docs warn against it; this is the difference that they state."""
    from skl2onnx.common.shape_calculator import calculate_linear_classifier_output_shapes
    from skl2onnx.operator_converters.linear_classifier import convert_sklearn_linear_classifier

    from marginpursuit.onnx import register

    model = MarginPursuitClassifier().fit(X, Y)
    options = {"zipmap": [True, False], "nocl": [True, False], "raw_scores": [True, False]}
    try:
        skl2onnx.update_registered_converter(
            MarginPursuitClassifier,
            "StockLinearClassifier",
            calculate_linear_classifier_output_shapes,
            convert_sklearn_linear_classifier,
            options=options,
        )
        _, values = run(model, X)
    finally:
        register()
    assert np.abs(values - model.predict_proba(X)).max() > 0.4


def test_errors_name_what_is_expected():
    classes = np.array([0.5, 1.5])
    model = random_model(np.random.default_rng(0), "fitted", "binary", classes=classes)
    with pytest.raises(ValueError, match=r"got the classes \[0.5, 1.5\]; ONNX has labels that are"):
        run(model, X)
    labels, _ = run(model, X, {**MATRIX, "nocl": True})
    assert_array_equal(classes[labels], model.predict(X))
    kernel = MarginPursuitClassifier(kernel="rbf").fit(X, Y)
    with pytest.raises(ValueError, match="MarginPursuitClassifier with kernel='rbf', which has"):
        run(kernel, X)
    with pytest.raises(ValueError, match="expected one matrix of 4 columns"):
        run(MarginPursuitClassifier().fit(X, Y), X[:, :3])
    with pytest.raises(NotFittedError):
        to_onnx(MarginPursuitClassifier())
    own = type("Own", (StandardScaler,), {})
    with pytest.raises(TypeError, match=r"skl2onnx cannot convert this model: .*Own.*save_model"):
        to_onnx(make_pipeline(own(), MarginPursuitClassifier()).fit(X, Y))
    with pytest.raises(ValueError, match="dtype must be float64 or float32"):
        to_onnx(MarginPursuitClassifier().fit(X, Y), dtype=np.int64)


def test_graphs_have_no_unused_constants():
    for model in random_models(0):
        graph = to_onnx(model).graph
        used = {name for node in graph.node for name in node.input}
        assert {constant.name for constant in graph.initializer} <= used
