"""The classifiers inside scikit-learn's meta-estimators, skrub, SHAP and data frames."""

import numpy as np
import pandas as pd
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_iris, make_classification
from sklearn.ensemble import BaggingClassifier, StackingClassifier, VotingClassifier
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    TunedThresholdClassifierCV,
    cross_validate,
)
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from marginpursuit import MarginPursuitClassifier, MarginPursuitClassifierCV

X, Y = make_classification(120, 5, n_informative=3, class_sep=0.5, random_state=0)
WEIGHTS = np.random.default_rng(0).integers(0, 4, len(Y)).astype(float)
SEARCH = MarginPursuitClassifierCV(cv=2, alphas=[1e-2], scales=[1.0])
MODELS = [MarginPursuitClassifier(), SEARCH]
each_model = pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def weighted_scorer():
    """The balanced accuracy, with weights; `set_score_request` needs metadata routing."""
    with sklearn.config_context(enable_metadata_routing=True):
        scorer = sklearn.metrics.make_scorer(sklearn.metrics.balanced_accuracy_score)
        return scorer.set_score_request(sample_weight=True)


def assert_uses_weights(meta, y=Y):
    """Weights that are passed to `fit` change the probabilities, as equal weights do not."""
    with_weights = clone(meta).fit(X, y, sample_weight=WEIGHTS).predict_proba(X)
    with_equal = clone(meta).fit(X, y, sample_weight=np.ones(len(X))).predict_proba(X)
    assert np.abs(np.asarray(with_weights) - np.asarray(with_equal)).max() > 1e-3


@each_model
@pytest.mark.parametrize(
    "wrap",
    [
        lambda model: make_pipeline(StandardScaler().set_fit_request(sample_weight=False), model),
        lambda model: CalibratedClassifierCV(model, cv=2),
        lambda model: TunedThresholdClassifierCV(model, cv=2, scoring=weighted_scorer()),
        lambda model: FixedThresholdClassifier(model, threshold=0.3),
        lambda model: VotingClassifier([("one", model)], voting="soft"),
        lambda model: BaggingClassifier(model, 2, random_state=0),
        OneVsRestClassifier,
    ],
    ids=["pipeline", "calibrated", "tuned", "fixed", "voting", "bagging", "one against rest"],
)
def test_weights_are_routed(routing, model, wrap):
    assert_uses_weights(wrap(clone(model).set_fit_request(sample_weight=True)))


@each_model
def test_weights_are_routed_through_a_grid_search(routing, model):
    model = clone(model).set_fit_request(sample_weight=True)
    search = GridSearchCV(model, {"rho": ["catoni", "huber"]}, cv=2, scoring="accuracy")
    with pytest.raises(sklearn.exceptions.UnsetMetadataPassedError):
        search.fit(X, Y, sample_weight=WEIGHTS)
    search.scoring = weighted_scorer()
    assert_uses_weights(search)


@each_model
def test_weights_are_routed_to_several_outputs(routing, model):
    model = clone(model).set_fit_request(sample_weight=True)
    labels = np.stack([Y, X[:, 0] > 0], axis=1).astype(int)
    assert_uses_weights(MultiOutputClassifier(model), labels)
    assert ClassifierChain(model).fit(X, labels).predict(X).shape == labels.shape


@each_model
def test_stacking_with_routed_weights(routing, model):
    model = clone(model).set_fit_request(sample_weight=True)
    final = MarginPursuitClassifier().set_fit_request(sample_weight=True)
    assert_uses_weights(StackingClassifier([("one", model)], final, cv=2))


@each_model
def test_without_routing_weights_go_to_the_last_step(model):
    pipeline = make_pipeline(StandardScaler(), clone(model))
    name = f"{type(model).__name__.lower()}__sample_weight"
    direct = clone(model).fit(StandardScaler().fit_transform(X), Y, sample_weight=WEIGHTS)
    pipeline.fit(X, Y, **{name: WEIGHTS})
    assert_allclose(
        pipeline.predict_proba(X), direct.predict_proba(StandardScaler().fit_transform(X))
    )


@each_model
def test_a_frozen_estimator_is_calibrated_without_another_fit(model):
    frozen = pytest.importorskip("sklearn.frozen", reason="since scikit-learn 1.6").FrozenEstimator
    model = clone(model).fit(X, Y)
    coef = model.coef_.copy()
    calibrated = CalibratedClassifierCV(frozen(model)).fit(X[:60], Y[:60])
    assert_array_equal(model.coef_, coef)
    assert_array_equal(frozen(model).fit(X[:5], Y[:5]).predict(X), model.predict(X))
    assert_allclose(calibrated.predict_proba(X).sum(axis=1), 1.0)


@each_model
def test_a_tuned_threshold_increases_balanced_accuracy(model):
    rare = np.flatnonzero(Y == 0).tolist() + np.flatnonzero(Y == 1)[:12].tolist()
    rows, y = X[rare], Y[rare]
    tuned = TunedThresholdClassifierCV(clone(model), cv=2).fit(rows, y)
    plain = clone(model).fit(rows, y)
    score = sklearn.metrics.balanced_accuracy_score
    assert score(y, tuned.predict(rows)) >= score(y, plain.predict(rows))


@each_model
def test_one_against_one_and_cross_validation(model):
    rows, y = load_iris(return_X_y=True)
    assert OneVsOneClassifier(clone(model)).fit(rows, y).score(rows, y) > 0.9
    scoring = ["accuracy", "neg_log_loss", "roc_auc_ovr"]
    found = cross_validate(clone(model), rows, y, cv=3, scoring=scoring, error_score="raise")
    assert found["test_accuracy"].mean() > 0.9


@each_model
def test_set_output_of_a_pipeline_keeps_the_names(model):
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(5)])
    pipeline = make_pipeline(StandardScaler(), clone(model)).set_output(transform="pandas")
    pipeline.fit(frame, Y)
    assert pipeline[-1].feature_names_in_.tolist() == frame.columns.tolist()
    plain = make_pipeline(StandardScaler(), clone(model)).fit(X, Y)
    assert_array_equal(pipeline.predict(frame), plain.predict(X))


def frames():
    """The rows as data frames of each library, with their labels."""
    names = [f"x{j}" for j in range(5)]
    columns = {name: X[:, j] for j, name in enumerate(names)}

    def pandas():
        return pd.DataFrame(columns), pd.Series(Y, name="y")

    def polars():
        library = pytest.importorskip("polars")
        return library.DataFrame(columns), library.Series("y", Y)

    def arrow():
        library = pytest.importorskip("pyarrow")
        return library.table(columns), library.array(Y)

    return {"pandas": pandas, "polars": polars, "pyarrow": arrow}


@each_model
@pytest.mark.parametrize("library", frames())
def test_data_frames_of_all_libraries(model, library):
    rows, y = frames()[library]()
    fitted = clone(model).fit(rows, y)
    plain = clone(model).fit(X, Y)
    assert_allclose(fitted.coef_, plain.coef_)
    assert_array_equal(fitted.predict(rows), plain.predict(X))
    if not hasattr(fitted, "feature_names_in_"):
        pytest.skip(f"scikit-learn {sklearn.__version__} does not read the names of {library}")
    assert fitted.feature_names_in_.tolist() == [f"x{j}" for j in range(5)]
    names = [f"x{j}" for j in reversed(range(5))]
    other = rows.select(names) if hasattr(rows, "select") else rows[names]
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict(other)


@each_model
def test_skrub_pipelines(model):
    skrub = pytest.importorskip("skrub")
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(5)])
    frame["kind"] = np.where(X[:, 0] > 0, "left", "right")
    pipeline = make_pipeline(skrub.TableVectorizer(), StandardScaler(), clone(model))
    assert pipeline.fit(frame, Y).score(frame, Y) > 0.6
    assert len(pipeline.predict_proba(frame)) == len(Y)


@pytest.mark.filterwarnings("ignore")  # of SHAP's own dependencies
@pytest.mark.parametrize("n_classes", [2, 3])
def test_shap_explains_the_scores(n_classes):
    shap = pytest.importorskip("shap")
    rows, y = load_iris(return_X_y=True)
    rows, y = rows[: 50 * n_classes], y[: 50 * n_classes]
    model = MarginPursuitClassifier().fit(rows, y)
    found = shap.LinearExplainer(model, rows)(rows)
    total = found.values.sum(axis=1) + found.base_values
    assert_allclose(total, model.decision_function(rows), atol=1e-6)
