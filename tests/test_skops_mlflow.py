"""Fitted classifiers in files of skops and in models of mlflow."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.datasets import load_iris, make_multilabel_classification
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from marginpursuit import MarginPursuitClassifier, MarginPursuitClassifierCV, PegasosClassifier
from marginpursuit.export import trusted_types
from marginpursuit.model_files import CLASSES

X, Y = load_iris(return_X_y=True)
X, Y = X[30:120], Y[30:120]
SEARCH = {"cv": 2, "alphas": [1e-3], "scales": [1.0]}


def through_skops(model, trusted=None):
    io = pytest.importorskip("skops.io")
    return io.loads(io.dumps(model), trusted=trusted or trusted_types())


@pytest.mark.parametrize("name", CLASSES)
def test_skops_trusts_the_types_of_every_classifier(name):
    model = CLASSES[name]()
    own = {"probability": "held_out"} if "probability" in model.get_params() else SEARCH
    model.set_params(**own).fit(X, Y)
    again = through_skops(model)
    assert_array_equal(again.predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize("kind", [MarginPursuitClassifier, PegasosClassifier])
def test_a_stream_continues_after_skops(kind):
    model = kind(random_state=0).partial_fit(X, Y, classes=[0, 1, 2])
    again = through_skops(model)
    assert_array_equal(again.partial_fit(X, Y).coef_, model.partial_fit(X, Y).coef_)


def test_skops_of_several_labels_kernels_and_pipelines():
    rows, sets = make_multilabel_classification(60, 5, n_classes=3, random_state=0)
    models = [
        (MarginPursuitClassifier().fit(rows, sets), rows),
        (MarginPursuitClassifier(kernel="rbf").fit(X, Y), X),
        (make_pipeline(StandardScaler(), MarginPursuitClassifier()).fit(X, Y), X),
    ]
    for model, some in models:
        assert_array_equal(through_skops(model).predict_proba(some), model.predict_proba(some))


def test_skops_names_the_types_of_a_scorer():
    io = pytest.importorskip("skops.io")
    model = MarginPursuitClassifierCV(**SEARCH, scoring="neg_log_loss").fit(X, Y)
    content = io.dumps(model)
    others = set(io.get_untrusted_types(data=content)) - set(trusted_types())
    assert all(name.startswith("sklearn.metrics.") for name in others)
    again = io.loads(content, trusted=[*trusted_types(), *others])
    assert again.score(X, Y) == model.score(X, Y)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("serialization_format", ["skops", "cloudpickle"])
def test_mlflow_saves_and_loads_a_model(serialization_format, tmp_path):
    mlflow = pytest.importorskip("mlflow.sklearn")
    pytest.importorskip("skops.io")
    model = make_pipeline(StandardScaler(), MarginPursuitClassifier()).fit(X, Y)
    mlflow.save_model(
        model,
        str(tmp_path / "model"),
        serialization_format=serialization_format,
        skops_trusted_types=trusted_types(),
        pip_requirements=["marginpursuit"],
    )
    again = mlflow.load_model(str(tmp_path / "model"))
    assert_array_equal(again.predict_proba(X), model.predict_proba(X))


@pytest.mark.filterwarnings("ignore")
def test_mlflow_logs_a_model_of_a_run(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("mlflow.sklearn")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    try:
        model = MarginPursuitClassifierCV(**SEARCH).fit(X, Y)
        with mlflow.start_run():
            mlflow.log_params(model.best_params_)
            logged = mlflow.sklearn.log_model(
                model, name="model", skops_trusted_types=trusted_types(), pip_requirements=[]
            )
        again = mlflow.sklearn.load_model(logged.model_uri)
        predicted = mlflow.pyfunc.load_model(logged.model_uri).predict(X)
    finally:
        mlflow.set_tracking_uri(before)
    assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert_array_equal(np.asarray(predicted), model.predict(X))
