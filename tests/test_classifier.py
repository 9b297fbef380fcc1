"""MarginPursuitClassifier: what it minimises, what it reports, and how it behaves among others."""

import contextlib
import copy
import io
import os
import pickle
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import joblib
import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize
from sklearn import config_context
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_validate
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_html_repr

from marginpursuit import MarginPursuitClassifier
from marginpursuit.calibration import probability
from marginpursuit.classifiers import _margins, _probabilities, _stream, margin_pursuit
from marginpursuit.location import catoni_location

CANCER = load_breast_cancer(return_X_y=True)
IRIS = load_iris(return_X_y=True)


def noisy(n_rows=400, n_columns=6, n_classes=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, n_columns)) * 10.0 ** rng.integers(-2, 3, n_columns) + 3.0
    score = (X - X.mean(axis=0)) / X.std(axis=0) @ rng.normal(size=n_columns)
    score += rng.logistic(size=n_rows)
    return X, np.searchsorted(np.quantile(score, np.arange(1, n_classes) / n_classes), score)


def rho(u):
    """The loss of the paper, written out again."""
    inner = np.abs(u) <= np.sqrt(2)
    return np.where(inner, u**2 / 2 - u**4 / 24, 2 * np.sqrt(2) / 3 * np.abs(u) - 0.5)


def objective(coef, intercept, X, sign, weights, *, margin, scale, overconfidence, penalty):
    """What is minimised, written out: penalty is that of each squared coefficient."""
    residual = margin - sign * (X @ coef + intercept)
    loss = np.where(residual < 0, overconfidence, 1.0) * scale**2 * rho(residual / scale)
    return float(weights @ loss / weights.sum() + 0.5 * np.sum(penalty * coef**2))


SETTINGS = [
    {"margin": 1.0, "scale": 1.0, "overconfidence": 1.0},
    {"margin": 2.0, "scale": 0.7, "overconfidence": 0.3},
    {"margin": 0.5, "scale": 0.4, "overconfidence": 0.0},
    {"margin": 1.0, "scale": 50.0, "overconfidence": 1.0},
]


# --- the minimum ---------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("alpha", ["auto", 0.0, 0.02, 3.0])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_the_fit_minimises_the_stated_objective(setting, alpha, fit_intercept):
    X, y = noisy(150, 3)
    weights = np.random.default_rng(1).uniform(0.2, 2.0, len(y))
    model = MarginPursuitClassifier(alpha=alpha, fit_intercept=fit_intercept, tol=1e-12, **setting)
    model.fit(X, y, sample_weight=weights)
    centre = np.average(X, axis=0, weights=weights) if fit_intercept else np.zeros(3)
    spread = np.sqrt(np.average((X - centre) ** 2, axis=0, weights=weights))
    penalty = 1e-6 * spread**2 if alpha == "auto" else np.full(3, alpha)

    def value(point):
        # In standardised coordinates, for the sake of the other minimiser only.
        coef = point[:3] / spread
        intercept = point[3] - centre @ coef if fit_intercept else 0.0
        return objective(coef, intercept, X, 2.0 * y - 1.0, weights, penalty=penalty, **setting)

    found = np.append(model.coef_[0] * spread, model.intercept_[0] + centre @ model.coef_[0])
    assert model.objective_ == pytest.approx(value(found), rel=1e-12)
    assert model.scale_ == setting["scale"]
    if not fit_intercept:
        assert model.intercept_ == 0
    for start in (np.zeros(4), found):
        other = minimize(value, start, method="BFGS", options={"gtol": 1e-9})
        assert model.objective_ <= other.fun * (1 + 1e-11)
    np.testing.assert_allclose(
        X @ model.coef_[0] + model.intercept_[0],
        X @ (other.x[:3] / spread) + (other.x[3] - centre @ (other.x[:3] / spread)) * fit_intercept,
        atol=1e-4,
    )


@pytest.mark.parametrize("solver", ["gram", "lbfgs", "steepest"])
def test_solvers_agree(solver):
    X, y = noisy(300, 4)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    setting = {"scale": 1.0, "alpha": 0.01, "tol": 1e-12, "max_iter": 2000}
    reference = MarginPursuitClassifier(**setting).fit(X, y)
    other = MarginPursuitClassifier(solver=solver, **setting).fit(X, y)
    np.testing.assert_allclose(other.coef_, reference.coef_, atol=1e-6)


def test_the_intercept_is_not_penalised():
    X, _ = noisy()
    y = np.arange(len(X)) % 8 == 0
    model = MarginPursuitClassifier(margin=3.0, alpha=1e12, scale=1e4, tol=1e-12).fit(X, y)
    np.testing.assert_allclose(model.coef_, 0, atol=1e-9)
    # Quadratic loss and no coefficients: the mean of the labels, times the margin.
    assert model.intercept_[0] == pytest.approx(3.0 * (1 / 8 - 7 / 8), rel=1e-6)


def test_only_the_ratio_of_scale_to_margin_matters():
    X, y = CANCER
    for factor in (1e-3, 7.0):
        one = MarginPursuitClassifier(margin=1.0, scale=0.8, tol=1e-10).fit(X, y)
        other = MarginPursuitClassifier(margin=factor, scale=0.8 * factor, tol=1e-10).fit(X, y)
        np.testing.assert_allclose(other.coef_, factor * one.coef_, rtol=1e-3, atol=1e-7 * factor)
        np.testing.assert_allclose(other.predict_proba(X), one.predict_proba(X), atol=1e-4)


def test_several_classes_are_separate_binary_fits():
    X, y = IRIS
    model = MarginPursuitClassifier(scale=1.5, tol=1e-10).fit(X, y)
    assert model.coef_.shape == (3, 4)
    assert model.intercept_.shape == (3,)
    total = 0.0
    for k in range(3):
        single = MarginPursuitClassifier(scale=1.5, tol=1e-10).fit(X, y == k)
        np.testing.assert_allclose(model.coef_[k], single.coef_[0], rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(model.margin_location_[k], single.margin_location_[0], rtol=1e-5)
        total += single.objective_
    assert model.objective_ == pytest.approx(total, rel=1e-8)
    other = OneVsRestClassifier(MarginPursuitClassifier(scale=1.5, tol=1e-10)).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), other.predict(X))


# --- the scale -----------------------------------------------------------------------------------


def weighted_quantile(values, weights, level):
    """The quantile of the values, each repeated as often as its (whole) weight says."""
    return np.quantile(np.repeat(values, weights), level, method="averaged_inverted_cdf")


def rule_of(name, margins, weights, level):
    """The scale rules, from their definitions and for whole weights."""
    n = weights.sum()
    variances, robust, quantiles = [], [], []
    for column in margins.T:
        repeated = np.repeat(column, weights)
        variances.append(repeated.var())
        low, high = (weighted_quantile(column, weights, q) for q in (0.25, 0.75))
        robust.append(((high - low) / 1.349) ** 2)
        quantiles.append(weighted_quantile(np.abs(column), weights, 0.75) ** 2)
    log_term = 2 * np.log(2 / 0.05)
    return {
        "variance": 2 * np.mean(variances) / level,
        "confidence": np.sqrt(n * np.mean(variances) / log_term),
        "quantile": np.sqrt(n * np.mean(quantiles) / log_term),
        "auto": max(np.sqrt(2) * level, 2 * np.mean(robust) / level),
    }[name]


def margins_of(model, X, y):
    scores = model.decision_function(X)
    if scores.ndim == 1:
        return (np.where(y == model.classes_[1], 1, -1) * scores)[:, np.newaxis]
    return np.where(y[:, np.newaxis] == model.classes_, scores, -scores)


@pytest.mark.parametrize("name", ["auto", "variance", "confidence", "quantile"])
@pytest.mark.parametrize("overconfidence", [1.0, 0.0])
@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("margin", [1.0, 0.2])
def test_a_scale_rule_gives_its_scale_back(name, overconfidence, n_classes, margin):
    X, y = noisy(n_classes=n_classes)
    weights = np.random.default_rng(0).integers(0, 4, len(y))
    model = MarginPursuitClassifier(margin=margin, scale=name, overconfidence=overconfidence)
    model.fit(X, y, sample_weight=weights)
    wanted = rule_of(name, margins_of(model, X, y), weights, margin)
    assert model.scale_ == pytest.approx(wanted, rel=0.021)


def test_auto_is_above_its_least_scale_on_spread_out_margins():
    X, _ = noisy()
    model = MarginPursuitClassifier(overconfidence=0.0).fit(X, X[:, 0] > X[:, 0].mean())
    assert model.scale_ > 2.0


def test_a_scale_rule_that_does_not_settle_is_warned_of(monkeypatch):
    X, y = CANCER
    monkeypatch.setitem(
        margin_pursuit.SCALE_RULES,
        "variance",
        lambda margins, seen=[1.0]: seen.append(0) or len(seen) ** 2,
    )
    with pytest.warns(ConvergenceWarning, match="rule 'variance' gives back.*Set scale to a num"):
        MarginPursuitClassifier(scale="variance").fit(X, y)


# --- what is reported ----------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_threads", [1, 2])
def test_margin_statistics_are_those_of_the_margins(n_threads, n_classes, weighted, monkeypatch):
    monkeypatch.setattr(_margins, "_WORTH_A_THREAD", 0)
    X, y = noisy(n_classes=n_classes)
    weights = np.random.default_rng(0).integers(0, 4, len(y)) if weighted else np.ones(len(y), int)
    model = MarginPursuitClassifier(n_threads=n_threads)
    model.fit(X, y, sample_weight=weights if weighted else None)
    margins = np.repeat(margins_of(model, X, y), weights, axis=0)
    found = model.margin_statistics_
    np.testing.assert_allclose(found.mean, margins.mean(axis=0))
    np.testing.assert_allclose(found.variance, margins.var(axis=0))
    third = ((margins - margins.mean(axis=0)) ** 3).mean(axis=0)
    np.testing.assert_allclose(found.skewness, third / margins.std(axis=0) ** 3, rtol=1e-9)
    location = [catoni_location(column, model.scale_) for column in margins.T]
    np.testing.assert_allclose(found.location, location, rtol=1e-12)
    np.testing.assert_array_equal(model.margin_location_, found.location)
    levels = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
    np.testing.assert_allclose(
        found.quantiles,
        np.quantile(margins, levels, axis=0, method="averaged_inverted_cdf"),
        rtol=1e-12,
    )


def test_statistics_of_many_problems_do_not_depend_on_their_grouping(monkeypatch):
    X, y = noisy(n_classes=7)
    model = MarginPursuitClassifier().fit(X, y).margin_statistics_
    monkeypatch.setattr(_margins.Margins, "group_elements", 2 * len(y))
    other = MarginPursuitClassifier().fit(X, y).margin_statistics_
    for name in ("location", "mean", "variance", "skewness", "quantiles"):
        np.testing.assert_allclose(getattr(model, name), getattr(other, name), rtol=1e-12)


@pytest.mark.parametrize("scale", ["auto", 0.3, 5.0])
@pytest.mark.parametrize("margin", [1.0, 0.25])
def test_probabilities_are_the_link_of_the_scores(scale, margin):
    X, y = noisy()
    model = MarginPursuitClassifier(scale=scale, margin=margin).fit(X, y)
    chances = model.predict_proba(X)
    expected = probability(model.decision_function(X), margin, model.scale_)
    np.testing.assert_allclose(chances[:, 1], expected, atol=2e-12)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0, rtol=1e-15)
    np.testing.assert_array_equal(model.classes_[chances.argmax(axis=1)], model.predict(X))


@pytest.mark.parametrize("scale", ["auto", 0.2])
def test_probabilities_of_several_classes(scale):
    X, y = noisy(n_classes=5)
    model = MarginPursuitClassifier(scale=scale).fit(X, y)
    far = np.vstack([X, X.mean(axis=0) + 50 * X.std(axis=0) * np.eye(6), X.mean(axis=0) - 1e6])
    chances = model.predict_proba(far)
    single = probability(model.decision_function(far), 1.0, model.scale_)
    claimed = single.sum(axis=1) > 1e-3
    np.testing.assert_allclose(
        chances[claimed], (single / single.sum(axis=1, keepdims=True))[claimed], atol=1e-8
    )
    np.testing.assert_allclose(chances.sum(axis=1), 1.0, rtol=1e-15)
    assert np.all((chances >= 0) & (chances <= 1))
    np.testing.assert_array_equal(model.classes_[chances.argmax(axis=1)], model.predict(far))


def test_long_input_is_linked_in_batches(monkeypatch):
    X, y = CANCER
    model = MarginPursuitClassifier().fit(X, y)
    whole = model.predict_proba(X)
    monkeypatch.setattr(_probabilities, "_LINK_ROWS", 100)
    np.testing.assert_array_equal(model.predict_proba(X), whole)


def test_counts_of_work():
    X, y = CANCER
    model = MarginPursuitClassifier().fit(X, y)
    assert 1 <= model.n_iter_ < model.n_passes_ < 60
    assert isinstance(model.n_iter_, int)
    assert isinstance(model.n_passes_, int)


# --- weights -------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", ["auto", "variance", "confidence", "quantile", 0.7])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
def test_a_weight_is_a_number_of_copies(scale, n_classes, make):
    X, y = noisy(n_classes=n_classes)
    weights = np.random.default_rng(3).integers(0, 4, len(y))
    model = MarginPursuitClassifier(scale=scale, overconfidence=0.5)
    by_weight = clone(model).fit(make(X), y, sample_weight=weights)
    copies = model.fit(make(np.repeat(X, weights, axis=0)), np.repeat(y, weights))
    np.testing.assert_allclose(by_weight.coef_, copies.coef_, rtol=1e-7)
    np.testing.assert_allclose(by_weight.scale_, copies.scale_, rtol=1e-9)
    np.testing.assert_allclose(by_weight.margin_location_, copies.margin_location_, rtol=1e-9)
    np.testing.assert_allclose(
        by_weight.margin_statistics_.quantiles, copies.margin_statistics_.quantiles, rtol=1e-7
    )


@pytest.mark.parametrize("scale", ["auto", "confidence", 0.7])
def test_class_weights_are_sample_weights(scale):
    X, y = noisy(n_classes=3)
    weights = np.random.default_rng(3).uniform(0.5, 2.0, len(y))
    factors = {0: 2.0, 2: 0.25}
    by_class = MarginPursuitClassifier(class_weight=factors, scale=scale).fit(X, y, weights)
    by_sample = MarginPursuitClassifier(scale=scale).fit(
        X, y, weights * np.array([factors.get(label, 1.0) for label in y])
    )
    np.testing.assert_allclose(by_class.coef_, by_sample.coef_, rtol=1e-10)
    np.testing.assert_allclose(by_class.scale_, by_sample.scale_, rtol=1e-10)


@pytest.mark.parametrize("scale", ["auto", "confidence", 0.7])
def test_balanced_gives_every_class_the_same_total(scale):
    X, y = noisy(n_classes=3)
    keep = (y != 1) | (np.arange(len(y)) % 5 == 0)
    X, y = X[keep], y[keep]
    weights = np.random.default_rng(3).uniform(0.5, 2.0, len(y))
    balanced = MarginPursuitClassifier(class_weight="balanced", scale=scale).fit(X, y, weights)
    totals = np.bincount(y, weights)
    by_sample = MarginPursuitClassifier(scale=scale).fit(
        X, y, weights * (weights.sum() / (3 * totals))[y]
    )
    np.testing.assert_allclose(balanced.coef_, by_sample.coef_, rtol=1e-9)
    np.testing.assert_allclose(balanced.scale_, by_sample.scale_, rtol=1e-9)


# --- starts, stops and state ---------------------------------------------------------------------


def test_warm_start_goes_on_from_the_fit_before():
    X, y = CANCER
    cold = MarginPursuitClassifier(scale=1.0, tol=1e-8).fit(X, y)
    warm = clone(cold).set_params(warm_start=True).fit(X, y)
    assert warm.n_iter_ == cold.n_iter_
    warm.fit(X, y)
    assert warm.n_iter_ <= 1 < cold.n_iter_
    assert warm.objective_ <= cold.objective_ * (1 + 1e-8)
    warm.fit(X[:, :5], y)  # another shape: it starts afresh
    np.testing.assert_allclose(warm.coef_, clone(cold).fit(X[:, :5], y).coef_, rtol=1e-12)


def test_warm_start_in_the_space_of_the_rows():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 60)), np.arange(30) % 2
    model = MarginPursuitClassifier(scale=1.0, warm_start=True).fit(X, y)
    before = model.coef_.copy()
    assert model.fit(X, y).n_iter_ <= 1
    np.testing.assert_allclose(model.coef_, before, rtol=1e-3, atol=1e-6)


def test_too_few_iterations_are_warned_of_at_the_line_of_the_user():
    X, y = CANCER
    model = MarginPursuitClassifier(max_iter=1, scale=0.1, tol=1e-8)
    with pytest.warns(ConvergenceWarning) as caught:
        model.fit(X, y)
    (warning,) = caught
    text = str(warning.message)
    assert "reached max_iter" in text
    assert "e-0" in text or "e+0" in text  # the gap, as a number
    assert "tol=1e-08 was asked for. Set max_iter above 1." in text
    assert warning.filename == __file__
    assert model.score(X, y) > 0.8


def test_fits_repeat_bit_for_bit_whatever_the_threads():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60_000, 20)).astype(np.float32)
    y = X[:, 0] + rng.normal(size=len(X)) > 0
    for data in (X, sparse.csr_array(X)):
        fits = [
            MarginPursuitClassifier(n_threads=n, overconfidence=0.5).fit(data, y)
            for n in (1, 2, 5, None, 2)
        ]
        for other in fits[1:]:
            np.testing.assert_array_equal(fits[0].coef_, other.coef_)
            np.testing.assert_array_equal(fits[0].intercept_, other.intercept_)
            np.testing.assert_array_equal(
                fits[0].decision_function(data), other.decision_function(data)
            )


def test_64_fits_in_8_threads_are_bit_equal():
    X, y = CANCER
    reference = MarginPursuitClassifier().fit(X, y)
    with ThreadPoolExecutor(8) as pool:
        fits = list(pool.map(lambda _: MarginPursuitClassifier().fit(X, y), range(64)))
    for other in fits:
        np.testing.assert_array_equal(other.coef_, reference.coef_)
        np.testing.assert_array_equal(other.margin_location_, reference.margin_location_)


PROCESSES = """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
import joblib
import numpy as np
from marginpursuit import MarginPursuitClassifier

def fit(_=None):
    X = np.random.default_rng(0).normal(size=(20_000, 30))  # enough for several threads
    return MarginPursuitClassifier(n_threads=2).fit(X, X[:, 0] > X[:, 1] ** 2).coef_.tobytes()

if __name__ == "__main__":
    expected = fit()
    for method in set(multiprocessing.get_all_start_methods()) - {"forkserver"}:
        context = multiprocessing.get_context(method)
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            assert set(pool.map(fit, range(2))) == {expected}, method
        print(method)
    assert set(joblib.Parallel(2)(joblib.delayed(fit)() for _ in range(4))) == {expected}
    print("loky")
"""


def test_fork_spawn_and_joblib_after_a_fit_are_bit_equal(tmp_path):
    script = tmp_path / "processes.py"
    script.write_text(PROCESSES)
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert {"spawn", "loky"} <= set(done.stdout.split())


INTERRUPTED = """
import signal
import numpy as np
from sklearn.exceptions import NotFittedError
from marginpursuit import MarginPursuitClassifier

X = np.random.default_rng(0).normal(size=(200_000, 30))
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background shell ignores it
model = MarginPursuitClassifier(solver="steepest", scale=1.0, max_iter=10**7, verbose=1)
try:
    model.fit(X, X[:, 0] > 0)
except KeyboardInterrupt:
    try:
        model.predict(X)
    except NotFittedError:
        print("interrupted", flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT for a single process on Windows")
def test_an_interrupt_ends_a_fit_at_once():
    waits = []
    for _ in range(3):  # a busy machine may delay one
        with subprocess.Popen(
            [sys.executable, "-c", INTERRUPTED], stdout=subprocess.PIPE, text=True
        ) as process:
            for line in process.stdout:
                if "iteration 3," in line:
                    break
            start = time.monotonic()
            process.send_signal(signal.SIGINT)
            last = process.communicate(timeout=60)[0].splitlines(keepends=True)[-1]
            waits.append(time.monotonic() - start)
        assert process.returncode == 0
        assert last == "interrupted\n"
        if waits[-1] < 2.0:
            break
    assert waits[-1] < 2.0  # a second, and what a busy machine adds


def test_a_fit_that_fails_leaves_no_mixture():
    X, y = CANCER
    model = MarginPursuitClassifier().fit(X, y)
    with pytest.raises(ValueError, match="1 class"):
        model.fit(X[:, :3], np.zeros(len(y)))
    with pytest.raises(NotFittedError):
        model.predict(X)
    assert model.fit(X, y).score(X, y) > 0.9


def test_copies_are_bit_equal(tmp_path):
    X, y = noisy(n_classes=3)
    fitted = MarginPursuitClassifier().fit(X, y)
    streamed = MarginPursuitClassifier(scale=2.0)
    for _ in range(4):
        streamed.partial_fit(X, y, classes=[0, 1, 2])
    joblib.dump([fitted, streamed], tmp_path / "models")
    for copies in (
        pickle.loads(pickle.dumps([fitted, streamed])),
        copy.deepcopy([fitted, streamed]),
        joblib.load(tmp_path / "models"),
    ):
        for model, other in zip([fitted, streamed], copies, strict=True):
            assert model.get_params() == other.get_params()
            np.testing.assert_array_equal(model.decision_function(X), other.decision_function(X))
            np.testing.assert_array_equal(model.predict_proba(X), other.predict_proba(X))
        np.testing.assert_array_equal(
            copies[1].partial_fit(X, y).coef_,
            copy.deepcopy(streamed).partial_fit(X, y).coef_,
        )
    again = clone(fitted)
    assert not hasattr(again, "coef_")
    np.testing.assert_array_equal(again.fit(X, y).coef_, fitted.coef_)


# --- streams -------------------------------------------------------------------------------------


def stream(model, X, y, size, **arguments):
    for first in range(0, len(y), size):
        rows = slice(first, first + size)
        model.partial_fit(X[rows], y[rows], classes=np.unique(y), **arguments)
    return model


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("alpha", ["auto", 0.05])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
def test_a_stream_equals_the_batch_fit_where_the_loss_is_quadratic(
    n_classes, alpha, fit_intercept, make, monkeypatch
):
    X, y = noisy(300, n_classes=n_classes)
    setting = {"scale": 1e5, "alpha": alpha, "fit_intercept": fit_intercept, "tol": 1e-12}
    batch = MarginPursuitClassifier(**setting).fit(X, y)
    monkeypatch.setattr(_stream, "_LEAST_ROWS", 40)
    for size in (4, 37, 300):
        model = stream(MarginPursuitClassifier(**setting), make(X), y, size)
        np.testing.assert_allclose(
            model.decision_function(X), batch.decision_function(X), rtol=2e-4, atol=2e-4
        )


def test_a_stream_of_single_rows_equals_the_batch_fit_where_the_loss_is_quadratic(monkeypatch):
    X, y = noisy(120, 3)
    monkeypatch.setattr(_stream, "_LEAST_ROWS", 20)
    batch = MarginPursuitClassifier(scale=1e5, tol=1e-12).fit(X, y)
    model = stream(MarginPursuitClassifier(scale=1e5), X, y, 1)
    np.testing.assert_allclose(model.decision_function(X), batch.decision_function(X), atol=1e-5)


def test_weights_of_a_stream_are_copies(monkeypatch):
    X, y = noisy(600)
    weights = np.random.default_rng(0).integers(0, 4, len(y))
    weights[230:460] = 0
    monkeypatch.setattr(_stream, "_LEAST_ROWS", 100)
    batch = MarginPursuitClassifier(scale=1e5, tol=1e-12).fit(X, y, weights)
    for unit in (1e-300, 1.0, 1e300):
        model = MarginPursuitClassifier(scale=1e5)
        for rows in (slice(0, 200), slice(200, 230), slice(230, 600)):
            model.partial_fit(X[rows], y[rows], classes=[0, 1], sample_weight=unit * weights[rows])
        np.testing.assert_allclose(
            model.decision_function(X), batch.decision_function(X), atol=1e-5
        )


@pytest.mark.parametrize("size", [17, 4000])
@pytest.mark.parametrize(
    ("parameters", "nearness", "differing"),
    [
        ({}, 0.02, 0.002),
        ({"scale": 1.0}, 0.05, 0.005),
        ({"overconfidence": 0.0}, 0.15, 0.005),
        ({"scale": 0.3, "overconfidence": 0.0}, 0.3, 0.02),
    ],
)
def test_a_stream_comes_near_the_batch_fit(size, parameters, nearness, differing):
    """Scores differ by a small share of their spread, and few predictions differ."""
    X, y = noisy(6000, 10)
    batch = MarginPursuitClassifier(**parameters).fit(X, y)
    model = MarginPursuitClassifier(**parameters).partial_fit(X[:2000], y[:2000], classes=[0, 1])
    stream(model, X[2000:], y[2000:], size)
    scores = batch.decision_function(X)
    assert np.std(model.decision_function(X) - scores) < nearness * np.std(scores)
    assert np.mean(model.predict(X) != batch.predict(X)) < differing


def test_the_first_rows_of_a_stream_are_fitted_exactly():
    X, y = noisy(500)
    model = stream(MarginPursuitClassifier(scale=0.5), X, y, 100)
    batch = MarginPursuitClassifier(scale=0.5).fit(X, y)
    np.testing.assert_allclose(model.coef_, batch.coef_, rtol=1e-9)
    np.testing.assert_allclose(model.margin_location_, batch.margin_location_)
    assert model.n_passes_ > 3 * batch.n_passes_  # all fits count
    assert model.n_iter_ > 3 * batch.n_iter_


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
def test_the_memory_of_a_batch_may_be_used_again(make):
    X, y = noisy(500)
    model = stream(MarginPursuitClassifier(scale=0.5), make(X), y, 100)
    again = MarginPursuitClassifier(scale=0.5)
    for first in range(0, 500, 100):
        batch = make(X[first : first + 100].copy())
        again.partial_fit(batch, y[first : first + 100], classes=[0, 1])
        (batch if make is np.asarray else batch.data)[:] = np.nan
    np.testing.assert_array_equal(again.coef_, model.coef_)


def test_a_stream_may_begin_small_and_go_on_large(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.standard_t(3, size=(6000, 6))
    y = X[:, 0] - X[:, 1] + rng.logistic(size=6000) > 1
    monkeypatch.setattr(_stream, "_LEAST_ROWS", 0)
    batch = MarginPursuitClassifier().fit(X, y)
    model = MarginPursuitClassifier().partial_fit(X[:60], y[:60], classes=[False, True])
    passes = model.n_passes_
    model.partial_fit(X[60:], y[60:])
    scores = batch.decision_function(X)
    assert np.std(model.decision_function(X) - scores) < 0.03 * np.std(scores)
    assert model.n_passes_ - passes < 40  # few parts, each read a few times


def test_a_column_may_be_constant_at_first(monkeypatch):
    X, y = noisy(600)
    X[:200, 2] = 7.0
    monkeypatch.setattr(_stream, "_LEAST_ROWS", 0)
    batch = MarginPursuitClassifier(scale=1e5, alpha=1e-9, tol=1e-12).fit(X, y)
    model = stream(MarginPursuitClassifier(scale=1e5, alpha=1e-9), X, y, 100)
    np.testing.assert_allclose(model.decision_function(X), batch.decision_function(X), atol=1e-4)


def test_a_stream_forgets_rows_and_what_described_them():
    X, y = noisy(3000)
    model = stream(MarginPursuitClassifier(scale="variance"), X, y, 900)
    assert not hasattr(model, "objective_")
    assert not hasattr(model, "margin_statistics_")
    assert len(pickle.dumps(model)) < 6000
    scale = model.scale_
    assert model.partial_fit(X, y).scale_ == scale
    assert model.n_iter_ >= 2
    assert model.n_passes_ > model.n_iter_


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
def test_a_stream_of_many_columns(make, monkeypatch):
    rng = np.random.default_rng(0)
    X = sparse.random_array((600, 2100), density=0.01, rng=rng).toarray()
    y = (X @ rng.normal(size=2100) > 0).astype(int)
    monkeypatch.setattr(_stream, "_MOST_ELEMENTS", 200)
    first, rest = slice(0, 200), slice(200, 600)
    model = MarginPursuitClassifier(scale=1.5).partial_fit(make(X[first]), y[first], classes=[0, 1])
    before = model.score(X[rest], y[rest])
    assert model._stream.bound.ndim == 1
    losses = []
    for _ in range(4):
        model.partial_fit(make(X[rest]), y[rest])
        margins = (2 * y[rest] - 1) * model.decision_function(X[rest])
        losses.append(np.mean(rho((1 - margins) / 1.5)))
    assert np.all(np.diff(losses) < 0)  # the steps are bounded: they never overshoot
    assert model.score(X[rest], y[rest]) > before + 0.02


def test_streams_may_mix_dense_and_sparse_batches(monkeypatch):
    X, y = noisy(600)
    for most_columns in (2048, 3):
        monkeypatch.setattr(_stream, "_MOST_COLUMNS", most_columns)
        monkeypatch.setattr(_stream, "_LEAST_ROWS", 200)
        models = []
        for kinds in ([np.asarray] * 4, [np.asarray, sparse.csr_array] * 2):
            model = MarginPursuitClassifier()
            for k, make in enumerate(kinds):
                rows = slice(150 * k, 150 * (k + 1))
                model.partial_fit(make(X[rows]), y[rows], classes=[0, 1])
            models.append(model)
        np.testing.assert_allclose(models[0].coef_, models[1].coef_, rtol=1e-8)


def test_a_class_may_come_late():
    X, y = noisy(3000, n_classes=3)
    order = np.argsort(y, kind="stable")
    model = MarginPursuitClassifier(scale=1e4)
    for rows in np.array_split(order, 6):
        model.partial_fit(X[rows], y[rows], classes=[0, 1, 2])
    batch = MarginPursuitClassifier(scale=1e4, tol=1e-12).fit(X, y)
    np.testing.assert_allclose(model.decision_function(X), batch.decision_function(X), atol=1e-4)


def test_a_stream_says_what_it_cannot_do():
    X, y = noisy(100)
    model = MarginPursuitClassifier()
    with pytest.raises(ValueError, match="classes must be passed on the first call"):
        model.partial_fit(X, y)
    with pytest.raises(ValueError, match=r"at least 2 classes; got \[1\]"):
        model.partial_fit(X, y, classes=[1])
    with pytest.raises(TypeError, match="classes must not have mixed"):
        model.partial_fit(X, y, classes=[1, "a"])
    with pytest.raises(ValueError, match=r"labels that are in classes; got \[0\]"):
        model.partial_fit(X, y, classes=[1, 2])
    with pytest.raises(NotFittedError):
        model.predict(X)
    model.partial_fit(X, y, classes=[0, 1])
    before = model.coef_.copy()
    with pytest.raises(ValueError, match=r"those of the first call, \[0, 1\]; got \[0, 1, 2\]"):
        model.partial_fit(X, y, classes=[0, 1, 2])
    with pytest.raises(ValueError, match="4 features"):
        model.partial_fit(X[:, :4], y)
    with pytest.raises(ValueError, match="column 0, row 0"):
        model.partial_fit(np.full((1, 6), np.nan), [1])
    with pytest.raises(OverflowError, match="unit"):
        MarginPursuitClassifier().partial_fit(X * 1e200, y, classes=[0, 1])
    np.testing.assert_array_equal(model.coef_, before)  # a bad batch leaves no trace
    model.partial_fit(X[:1], y[:1])
    balanced = MarginPursuitClassifier(class_weight="balanced")
    assert not hasattr(balanced, "partial_fit")
    with pytest.raises(AttributeError, match="partial_fit") as caught:
        balanced.partial_fit(X, y, classes=[0, 1])
    assert "cannot balance" in str(caught.value.__cause__)


def test_fit_and_partial_fit_follow_each_other():
    X, y = noisy(2000)
    model = MarginPursuitClassifier().fit(X, y)
    streamed = MarginPursuitClassifier().partial_fit(X[:500], y[:500], classes=[0, 1])
    np.testing.assert_array_equal(model.partial_fit(X[:500], y[:500]).coef_, streamed.coef_)
    np.testing.assert_array_equal(
        streamed.fit(X, y).coef_, MarginPursuitClassifier().fit(X, y).coef_
    )
    assert streamed.fit(X[:, :2], y).coef_.shape == (1, 2)


# --- progress ------------------------------------------------------------------------------------


def test_verbose_prints_a_line_for_each_iteration(capsys):
    X, y = CANCER
    MarginPursuitClassifier().fit(X, y)
    assert capsys.readouterr().out == ""
    model = MarginPursuitClassifier(scale=1.0, verbose=1).fit(X, y)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == model.n_iter_ + 1
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
    np.testing.assert_array_equal(
        model.coef_, MarginPursuitClassifier(scale=1.0).fit(X, labels, weights).coef_
    )
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
    for name in MarginPursuitClassifier().get_params():
        assert f"\n    {name} : " in text
    fitted = MarginPursuitClassifier().fit(X, y)
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
    *[("solver", value) for value in ("newton", None, 1, ["gram"], np.array(["gram", "lbfgs"]))],
    *[("max_iter", value) for value in (0, -5, 10.0, np.inf, None, "10", True)],
    *[("tol", value) for value in (0, -1e-6, 1, np.nan, np.inf, None, "1e-6", True)],
    *[("class_weight", value) for value in ("balance", 1.0, [1, 2], {1}, np.ones(2))],
    *[("warm_start", value) for value in ("yes", None, 1)],
    *[("n_threads", value) for value in (0, -1, 1.0, "2", True)],
    *[("random_state", value) for value in ("seed", 1.5, [1])],
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
            "newton",
            r"one of \['auto', 'gram', 'lbfgs', 'steepest', 'stochastic'\]; got 'newton'",
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
