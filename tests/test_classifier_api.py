"""MarginPursuitClassifier: progress, scikit-learn and parameters."""

import contextlib
import io
import os
import subprocess
import sys

import numpy as np
import pytest
from classifier_data import CANCER, IRIS
from sklearn import config_context
from sklearn.calibration import CalibratedClassifierCV
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_html_repr

from marginpursuit import MarginPursuitClassifier, MarginPursuitClassifierCV, _kernels

# --- progress ------------------------------------------------------------------------------------


def test_verbose_prints_a_line_for_each_iteration(capsys):
    X, y = CANCER
    MarginPursuitClassifier().fit(X, y)
    assert capsys.readouterr().out == ""
    model = MarginPursuitClassifier(scale=1.0, verbose=1).fit(X, y)
    lines = capsys.readouterr().out.splitlines()
    solver = "gram" if _kernels.newton is None else "newton"
    assert lines[0].startswith(f"[MarginPursuitClassifier] solver {solver}: 569 rows x 30 columns")
    assert len(lines) == model.n_iter_ + 2
    assert lines[-1].startswith(f"[MarginPursuitClassifier] iteration {model.n_iter_}, ")
    assert f"objective {model.objective_:.6g}, relative gap " in lines[-1]
    MarginPursuitClassifier(verbose=True).partial_fit(X, y, classes=[0, 1])
    assert "iteration 1, " in capsys.readouterr().out


class Recorder:
    """A callback that keeps what it is called with."""

    def __init__(self):
        self.calls = []

    def setup(self, estimator, context):
        self.calls.append("setup")

    def teardown(self, estimator, context):
        self.calls.append("teardown")

    def on_fit_task_begin(self, estimator, context, *, X, y):
        self.calls.append(("begin", context.task_name, X, y))

    def on_fit_task_end(self, estimator, context, *, y, metadata, fitted_estimator):
        self.calls.append(("end", context.task_name, metadata, fitted_estimator))


def test_scikit_learn_callbacks_are_called():
    pytest.importorskip("sklearn.callback", reason="callbacks came with scikit-learn 1.9")
    X, y = CANCER
    labels = np.array(["no", "yes"])[y]
    recorder = Recorder()
    weights = np.ones(len(y))
    model = MarginPursuitClassifier(scale=1.0).set_callbacks(recorder)
    model.fit(X, labels, sample_weight=weights)
    calls = recorder.calls
    assert calls[0] == "setup"
    assert calls[-1] == "teardown"
    assert calls[1][:2] == ("begin", "fit")
    np.testing.assert_array_equal(calls[1][2], X)
    np.testing.assert_array_equal(calls[1][3], labels)
    tasks = [call[:2] for call in calls[2:-2]]
    assert tasks == [("begin", "iteration"), ("end", "iteration")] * (model.n_iter_ + 1)
    end = calls[-2]
    assert end[:2] == ("end", "fit")
    assert end[2]["sample_weight"] is weights
    np.testing.assert_array_equal(end[3].predict(X), model.predict(X))
    # Without callbacks the fit is one compiled call, whose sums are in another order.
    silent = MarginPursuitClassifier(scale=1.0).fit(X, labels, weights)
    np.testing.assert_allclose(model.coef_, silent.coef_, rtol=1e-12)
    recorder.calls.clear()
    with pytest.raises(ValueError, match="NaN"):
        model.fit(np.full_like(X, np.nan), labels)
    assert recorder.calls[-1] == "teardown"


def test_callbacks_of_scikit_learn_work():
    callback = pytest.importorskip("sklearn.callback", reason="since scikit-learn 1.9")
    pytest.importorskip("rich", reason="ProgressBar needs rich")
    X, y = CANCER
    with contextlib.redirect_stdout(io.StringIO()):
        MarginPursuitClassifier().set_callbacks(callback.ProgressBar()).fit(X, y)
        search = GridSearchCV(MarginPursuitClassifier(), {"overconfidence": [0.0, 1.0]}, cv=2)
        search.set_callbacks(callback.ProgressBar()).fit(X, y)
    monitor = callback.ScoringMonitor(scoring="accuracy")
    labels = np.array(["no", "yes"])[y]
    model = MarginPursuitClassifier().set_callbacks(monitor).fit(X, labels)
    (entry,) = monitor.get_logs().data
    assert entry["accuracy"] == model.score(X, labels)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_callbacks_of_a_search_are_called_for_each_fit_of_a_fold(kernel):
    pytest.importorskip("sklearn.callback", reason="callbacks came with scikit-learn 1.9")
    X, y = (part[:200] for part in CANCER)
    recorder, weights = Recorder(), np.ones(len(y))
    search = MarginPursuitClassifierCV(
        cv=3, alphas=[1e-3, 1e-2], scales=[1.0], overconfidences=[0.0], kernel=kernel, gammas=[0.1]
    )
    search.set_callbacks(recorder).fit(X, y, sample_weight=weights)
    calls = recorder.calls
    assert (calls[0], calls[-1]) == ("setup", "teardown")
    assert calls[1][:2] == ("begin", "fit")
    tasks = [call[:2] for call in calls[2:-2]]
    assert set(tasks) == {("begin", "fit of a fold"), ("end", "fit of a fold")}
    assert len(tasks) >= 2 * 6  # two candidates, three folds; more on the rungs of a kernel
    end = calls[-2]
    assert end[:2] == ("end", "fit")
    assert end[2]["sample_weight"] is weights
    np.testing.assert_array_equal(end[3].predict(X), search.predict(X))
    recorder.calls.clear()
    with pytest.raises(ValueError, match="NaN"):
        search.fit(np.full_like(X, np.nan), y)
    assert recorder.calls[-1:] in ([], ["teardown"])


def test_a_search_inside_a_search_propagates_callbacks():
    callback = pytest.importorskip("sklearn.callback", reason="since scikit-learn 1.9")
    pytest.importorskip("rich", reason="ProgressBar needs rich")
    X, y = (part[:100] for part in CANCER)
    inner = MarginPursuitClassifierCV(cv=2, alphas=[1e-3], scales=[1.0])
    outer = GridSearchCV(inner, {"rule": ["best", "one-standard-error"]}, cv=2)
    with contextlib.redirect_stdout(io.StringIO()):
        outer.set_callbacks(callback.ProgressBar()).fit(X, y)
    assert outer.best_score_ > 0.8


def test_no_callbacks_before_scikit_learn_1_9():
    # scikit-learn 1.9 itself imports its callbacks; so they are taken away from this import only.
    script = (
        "import builtins, sys, warnings\n"
        "original = builtins.__import__\n"
        "def without(name, globals=None, *rest):\n"
        "    if name == 'sklearn.callback' and globals['__name__'].startswith('marginpursuit'):\n"
        "        raise ImportError(name)\n"
        "    return original(name, globals, *rest)\n"
        "builtins.__import__ = without\n"
        "from sklearn.datasets import load_breast_cancer\n"
        "from marginpursuit import MarginPursuitClassifier\n"
        "from marginpursuit.classifiers import _progress\n"
        "assert _progress.with_callbacks.__module__ == _progress.__name__\n"
        "model = MarginPursuitClassifier(max_iter=1, scale=0.1)\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    model.fit(*load_breast_cancer(return_X_y=True))\n"
        "assert caught[0].filename == '<string>', caught[0].filename\n"
        "assert not hasattr(model, 'set_callbacks')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


# --- among others --------------------------------------------------------------------------------


def test_pipeline_search_calibration_and_cross_validation():
    X, y = CANCER
    pipeline = make_pipeline(StandardScaler(), MarginPursuitClassifier())
    assert pipeline.fit(X, y).score(X, y) > 0.95
    search = GridSearchCV(MarginPursuitClassifier(), {"overconfidence": [0.0, 0.5, 1.0]}, cv=3)
    assert search.fit(X, y).best_score_ > 0.94
    calibrated = CalibratedClassifierCV(MarginPursuitClassifier(), cv=3).fit(X, y)
    assert calibrated.predict_proba(X).shape == (len(y), 2)
    assert np.mean(cross_val_predict(MarginPursuitClassifier(), X, y, cv=3) == y) > 0.94


def test_metadata_is_routed():
    X, y = CANCER
    weights = np.random.default_rng(0).integers(0, 3, len(y)).astype(float)
    with config_context(enable_metadata_routing=True):
        model = MarginPursuitClassifier().set_fit_request(sample_weight=True)
        model = model.set_score_request(sample_weight=True)
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        pipeline = make_pipeline(scaler, model).fit(X, y, sample_weight=weights)
        results = cross_validate(model, X, y, cv=3, params={"sample_weight": weights})
    expected = MarginPursuitClassifier().fit(StandardScaler().fit_transform(X), y, weights)
    np.testing.assert_allclose(pipeline[-1].coef_, expected.coef_)
    assert np.all(results["test_score"] > 0.9)


def test_it_is_shown_in_notebooks():
    X, y = CANCER
    model = MarginPursuitClassifier(overconfidence=0.5)
    assert "MarginPursuitClassifier" in estimator_html_repr(model)
    page = estimator_html_repr(model.fit(X, y))
    assert "MarginPursuitClassifier" in page
    assert len(page) < 200_000
    assert repr(model) == "MarginPursuitClassifier(overconfidence=0.5)"


def test_the_docstring_names_every_parameter_and_attribute():
    X, y = IRIS
    text = MarginPursuitClassifier.__doc__
    for name in MarginPursuitClassifier.as_published().get_params():
        assert f"\n    {name} : " in text
    fitted = MarginPursuitClassifier.as_published().fit(X, y)
    for name in vars(fitted):
        if name.endswith("_"):
            assert f"\n    {name} : " in text, name


# --- parameters ----------------------------------------------------------------------------------

BAD_PARAMETERS = [
    *[("margin", value) for value in (0, -1.0, 1e200, np.nan, np.inf, "1", None, True, [1.0])],
    *[("scale", value) for value in (0, -1.0, np.nan, np.inf, "atuo", None, False, np.ones(3))],
    *[("overconfidence", value) for value in (-0.1, 1.1, np.nan, "auto", None, True)],
    *[("alpha", value) for value in (-1e-9, np.nan, np.inf, "none", None, True, 1j)],
    *[("fit_intercept", value) for value in ("False", None, 1, 0.0)],
    *[("solver", value) for value in ("simplex", None, 1, ["gram"], np.array(["gram", "lbfgs"]))],
    *[("max_iter", value) for value in (0, -5, 10.0, np.inf, None, "10", True)],
    *[("tol", value) for value in (0, -1e-6, 1, np.nan, np.inf, None, "1e-6", True)],
    *[("class_weight", value) for value in ("balance", 1.0, [1, 2], {1}, np.ones(2))],
    *[("warm_start", value) for value in ("yes", None, 1)],
    *[("n_threads", value) for value in (0, -1, 1.0, "2", True)],
    *[("random_state", value) for value in ("seed", 1.5, [1], -1, 2**32)],
    *[("verbose", value) for value in (-1, 0.5, None, "yes")],
]


@pytest.mark.parametrize(("name", "value"), BAD_PARAMETERS)
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_bad_parameters_are_refused_by_name(name, value, method):
    X, y = IRIS
    model = MarginPursuitClassifier(**{name: value})
    if method == "partial_fit" and name == "class_weight" and isinstance(value, str):
        pytest.skip("has no partial_fit")
    with pytest.raises(ValueError, match=f"^{name} must be .*; got ") as caught:
        getattr(model, method)(X, y)
    assert len(str(caught.value)) < 250


def test_messages_say_what_is_allowed():
    X, y = IRIS
    for name, value, words in (
        ("scale", "atuo", r"finite, or one of \['auto', 'confidence', 'quantile', 'variance'\]"),
        (
            "solver",
            "simplex",
            r"one of \['auto', 'newton', 'gram', .*'stochastic'\]; got 'simplex'",
        ),
        ("overconfidence", 2, r"a number in \[0, 1\]; got 2"),
        ("scale", 1e-6, r"scale must be at least 1e-05 times the margin, 1.0; got 1e-06"),
        ("n_threads", 0, "a whole number >= 1, or None; got 0"),
    ):
        with pytest.raises(ValueError, match=words):
            MarginPursuitClassifier(**{name: value}).fit(X, y)


def test_numbers_of_numpy_are_numbers():
    X, y = IRIS
    plain = MarginPursuitClassifier(
        margin=0.5, scale=1.5, overconfidence=0.5, alpha=0.25, max_iter=50, tol=0.125, n_threads=2
    ).fit(X, y)
    scalars = MarginPursuitClassifier(
        margin=np.float32(0.5),
        scale=np.float64(1.5),
        overconfidence=np.float16(0.5),
        alpha=np.float32(0.25),
        max_iter=np.int64(50),
        tol=np.float32(0.125),
        n_threads=np.int8(2),
        fit_intercept=np.True_,
        warm_start=np.False_,
        random_state=np.random.default_rng(0),
        verbose=np.int8(0),
    ).fit(X, y)
    np.testing.assert_array_equal(scalars.coef_, plain.coef_)
    rule = MarginPursuitClassifier(margin=np.float32(0.5)).fit(X, y)
    assert rule.scale_ == MarginPursuitClassifier(margin=0.5).fit(X, y).scale_


def test_the_environment_may_limit_threads(monkeypatch):
    monkeypatch.setitem(os.environ, "OMP_NUM_THREADS", "1")
    X, y = IRIS
    assert MarginPursuitClassifier().fit(X, y).score(X, y) > 0.8
