"""MarginPursuitClassifier: starts, stops, threads, copies."""

import copy
import pickle
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import joblib
import numpy as np
import pytest
from classifier_data import CANCER, noisy
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from marginpursuit import (
    MarginPursuitClassifier,
    MarginPursuitClassifierCV,
    PegasosClassifier,
)
from marginpursuit.classifiers._margins import Margins, MarginStatisticsMixin

# --- starts, stops and state ---------------------------------------------------------------------


def test_warm_start_goes_on_from_the_fit_before():
    X, y = CANCER
    cold = MarginPursuitClassifier(scale=1.0, tol=1e-8, solver="gram").fit(X, y)
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
    model = MarginPursuitClassifier(
        scale=1.0, warm_start=True, solver="gram", alpha=0.01, tol=1e-8
    ).fit(X, y)
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
    assert "above tol=1e-08. Set max_iter above 1." in text
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
from marginpursuit import (
    MarginPursuitClassifier,
    MarginPursuitClassifierCV,
    PegasosClassifier,
)

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
from marginpursuit import (
    MarginPursuitClassifier,
    MarginPursuitClassifierCV,
    PegasosClassifier,
)

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


def test_statistics_of_the_margins_are_computed_when_they_are_read():
    """A pickle holds them instead of the margins, and another fit has its own."""
    X, y = noisy()
    model, other = (MarginPursuitClassifier().fit(X, y) for _ in range(2))
    assert "margin_statistics_" not in vars(model)
    copy = pickle.loads(pickle.dumps(model))
    assert "_margins" not in vars(copy)
    np.testing.assert_array_equal(copy.margin_location_, other.margin_location_)
    np.testing.assert_array_equal(other.margin_location_, other.margin_statistics_.location)
    location = other.margin_location_
    assert not np.allclose(other.fit(X[:50], y[:50]).margin_location_, location)
    assert not hasattr(MarginPursuitClassifier(), "margin_statistics_")


def test_threads_that_read_and_copy_a_model_find_its_statistics(monkeypatch):
    """One thread replaces the margins by their statistics while another one waits."""
    X, y = noisy()
    model = MarginPursuitClassifier().fit(X, y)
    both, slow = threading.Barrier(2, timeout=10), Margins.statistics

    def wait(margins, scale):
        both.wait()
        return slow(margins, scale)

    monkeypatch.setattr(Margins, "statistics", wait)
    with ThreadPoolExecutor(2) as pool:
        copies = list(pool.map(lambda _: pickle.loads(pickle.dumps(model)), range(2)))
    assert "_margins" not in vars(model)
    for other in copies:
        np.testing.assert_array_equal(other.margin_location_, model.margin_location_)


def test_margins_are_not_kept_after_their_statistics_were_read():
    X, y = noisy()
    model = MarginPursuitClassifier().fit(X, y)
    assert "_margins" in vars(model)
    assert model.margin_location_ is model.margin_statistics_.location
    assert "_margins" not in vars(model)
    with pytest.raises(AttributeError, match="no attribute 'margin_statistics_'"):
        MarginPursuitClassifier().margin_location_  # noqa: B018


def test_a_search_shares_the_margins_of_its_fit():
    """They are described when first read, in a copy by pickle at once, and anew after a refit."""
    X, y = CANCER
    model = MarginPursuitClassifierCV(scales=[1.0], alphas=[1e-2, 1e-3])
    assert not hasattr(model, "margin_statistics_")
    for rows in (slice(None), slice(0, 300)):
        model.fit(X[rows], y[rows])
        assert "margin_statistics_" not in vars(model)
        other, best = pickle.loads(pickle.dumps(model)), model.best_estimator_
        assert "_margins" not in vars(other)
        for found in (model, other):
            expected = best.margin_statistics_
            np.testing.assert_array_equal(found.margin_statistics_.quantiles, expected.quantiles)
            np.testing.assert_array_equal(found.margin_location_, best.margin_location_)
    assert not np.array_equal(model.margin_location_, model.fit(X, y).margin_location_)


def test_margins_that_take_much_memory_are_not_kept():
    """Their statistics are those of margins that are kept."""

    class LargeMargins(Margins):
        is_small = False

    parts = np.linspace(-1.0, 2.0, 90)[:, np.newaxis], np.full(90, 1 / 90), 90.0, 1.0
    large, small = MarginStatisticsMixin(), MarginStatisticsMixin()
    large._keep_margins(LargeMargins(*parts), 1.0)
    small._keep_margins(Margins(*parts), 1.0)
    assert "_margins" not in vars(large)
    np.testing.assert_allclose(large.margin_location_, small.margin_location_, rtol=1e-12)


@pytest.mark.parametrize("estimator", [MarginPursuitClassifier, PegasosClassifier])
def test_a_score_of_zero_is_the_first_class(estimator):
    X, y = noisy()
    model = estimator().fit(X, np.where(y > 0, "yes", "no"))
    model.coef_, model.intercept_ = np.zeros_like(model.coef_), np.zeros(1)
    assert set(model.predict(X)) == {"no"}
