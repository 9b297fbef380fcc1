"""A fit that is interrupted resumes from its checkpoint."""

import importlib.util
import os
import signal
import subprocess
import sys
import time

import fuzz_model_files as fuzz
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.datasets import load_breast_cancer, load_digits

from marginpursuit import MarginPursuitClassifier
from marginpursuit.blocks import Blocks
from marginpursuit.classifiers._checkpoint import Checkpoint, _row_hashes, data_digests
from marginpursuit.classifiers._landmarks import KernelPolicy

SETTINGS = {"scale": 0.5, "overconfidence": 0.5, "tol": 1e-10}


class InterruptedFitError(Exception):
    pass


def failing_after(X, n_loads):
    """Blocks of X that can be loaded a given number of times only."""
    loads = iter(range(n_loads))

    def load():
        if next(loads, None) is None:
            raise InterruptedFitError
        return X

    return Blocks([load], [len(X)])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "fit.npz"


def interrupt(X, y, path, n_loads=8, **settings):
    model = MarginPursuitClassifier.as_published(checkpoint=path, **SETTINGS | settings)
    with pytest.raises(RuntimeError, match="InterruptedFitError"):
        model.fit(failing_after(X, n_loads), y)


@pytest.mark.parametrize("load", [load_breast_cancer, load_digits])
@pytest.mark.parametrize("solver", ["gram", "lbfgs"])
def test_an_interrupted_fit_goes_on(path, load, solver):
    X, y = load(return_X_y=True)
    X = X[:, X.std(axis=0) > 0]
    settings = {"solver": solver, "alpha": 0.1, "alpha_unit": "standardised"}
    whole = MarginPursuitClassifier.as_published(**SETTINGS | settings).fit(X, y)
    interrupt(X, y, path, **settings)
    kept = int(np.load(path)["n_iter"])
    assert 0 < kept < whole.n_iter_
    rest = MarginPursuitClassifier.as_published(
        checkpoint=str(path), verbose=0, **SETTINGS | settings
    )
    rest.fit(X, y)
    assert_allclose(rest.objective_, whole.objective_, rtol=1e-9)
    assert rest.n_passes_ < whole.n_passes_
    assert rest.n_iter_ > kept
    assert not path.exists()
    assert_array_equal(rest.predict(X), whole.predict(X))


def test_the_scale_is_kept_too(path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 3))
    y = X[:, 0] + 3 * rng.normal(size=2000) > 0
    whole = MarginPursuitClassifier.as_published(scale="variance").fit(X, y)
    interrupt(X, y, path, n_loads=10, scale="variance", overconfidence=1.0, tol=1e-6)
    assert float(np.load(path)["scale"]) != np.sqrt(2)
    rest = MarginPursuitClassifier.as_published(scale="variance", checkpoint=path).fit(X, y)
    assert_allclose(rest.scale_, whole.scale_, rtol=0.03)
    assert_allclose(rest.coef_, whole.coef_, rtol=0.03)


def test_steepest_descent_keeps_its_iterates(path):
    X, y = load_breast_cancer(return_X_y=True)
    interrupt(X, y, path, n_loads=9, solver="steepest", max_iter=50)
    assert int(np.load(path)["n_iter"]) == 6  # of nine loads, three are for other things


@pytest.mark.parametrize("interrupted", [0, 1])
def test_the_interrupted_one_of_the_fits_with_a_kernel_goes_on(path, monkeypatch, interrupted):
    # With few landmarks in the first estimate the exact fit takes two, the second with more.
    policy = KernelPolicy(n_components=30)
    monkeypatch.setattr(MarginPursuitClassifier, "_kernel_policy", policy)
    rng = np.random.default_rng(2)
    X = rng.normal(size=(1600, 3))
    y = np.sum(X**2, axis=1) + 0.3 * rng.normal(size=1600) > 2.4
    options = {"kernel": "rbf", "n_components": 1600, "probability": None, "tol": 1e-8}
    keep, state, begun = Checkpoint.keep, Checkpoint.state, []

    def keep_three(self, problem, linear):
        keep(self, problem, linear)
        if [int(np.load(path)[name]) for name in ("n_fits", "n_iter")] == [interrupted, 3]:
            raise InterruptedFitError

    def listen(self, start, scale):
        content = path.read_bytes() if path.exists() else None
        given = state(self, start, scale)
        begun.append((given[2], content, None if given[0] is None else len(given[0][0])))
        return given

    whole = MarginPursuitClassifier(**options).fit(X, y)
    monkeypatch.setattr(Checkpoint, "state", listen)
    monkeypatch.setattr(Checkpoint, "keep", keep_three)
    with pytest.raises(InterruptedFitError):
        MarginPursuitClassifier(checkpoint=path, **options).fit(X, y)
    content = path.read_bytes()
    sizes = [size for _, _, size in begun]
    assert len(sizes) == interrupted + 1
    monkeypatch.setattr(Checkpoint, "keep", keep)
    begun.clear()
    rest = MarginPursuitClassifier(checkpoint=path, **options).fit(X, y)
    assert [n_iter for n_iter, _, _ in begun] == [3 * (k == interrupted) for k in range(2)]
    assert [size for _, _, size in begun][: interrupted + 1] == sizes
    assert begun[interrupted][1] == content  # the fit before it has left the file unchanged
    assert rest.n_iter_ > 3 * interrupted
    assert_allclose(rest.objective_, whole.objective_, rtol=1e-7)
    assert not path.exists()


def test_a_checkpoint_of_another_fit_is_refused(path):
    X, y = load_breast_cancer(return_X_y=True)
    interrupt(X, y, path)
    for other in ({"scale": 0.6}, {"fit_intercept": False}, {"class_weight": "balanced"}):
        model = MarginPursuitClassifier.as_published(checkpoint=path, **SETTINGS | other)
        with pytest.raises(ValueError, match=r"checkpoint .* this fit has .* Remove the file"):
            model.fit(X, y)
    with pytest.raises(ValueError, match="this fit has"):
        MarginPursuitClassifier.as_published(checkpoint=path, **SETTINGS).fit(X[:, 1:], y)
    with pytest.raises(ValueError, match="this fit has"):
        MarginPursuitClassifier.as_published(checkpoint=path, **SETTINGS).fit(X, 1 - y)
    assert path.exists()


@pytest.mark.parametrize("kind", ["one element", "order", "label", "weight"])
def test_a_checkpoint_for_other_data_of_the_same_shape_is_refused(path, kind):
    X, y = load_breast_cancer(return_X_y=True)
    weights, rows = np.ones(len(X)), np.flatnonzero(y)[:2]
    interrupt(X, y, path)
    if kind == "one element":
        X = X.copy()
        X[300, 7] = np.nextafter(X[300, 7], np.inf)
    elif kind == "order":
        X[rows] = X[rows[::-1]]
    elif kind == "label":
        y[[rows[0], np.flatnonzero(y == 0)[0]]] = 0, 1
    else:
        weights[rows] = 0.5, 1.5
    name = {"label": "labels", "weight": "weights"}.get(kind, "rows")
    model = MarginPursuitClassifier.as_published(checkpoint=path, **SETTINGS)
    with pytest.raises(ValueError, match=f"has {name}=.*; this fit has {name}="):
        model.fit(X, y, sample_weight=weights)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, bool])
def test_digests_do_not_depend_on_the_container(dtype):
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(50, 7)) * (rng.random((50, 7)) < 0.4) * 3).astype(dtype)
    X[0, 0] = -0.0 if dtype in (np.float64, np.float32) else 0
    forms = (
        *(X, np.asfortranarray(X), X.astype(np.float64), sparse.csr_matrix(X), sparse.csc_array(X)),
        *(Blocks([lambda: X[:20], lambda: X[20:]]), Blocks([lambda: sparse.csr_matrix(X)])),
    )
    if importlib.util.find_spec("array_api_strict") and dtype is not bool:
        strict = importlib.import_module("array_api_strict")
        forms += (strict.asarray(X, device=strict.Device("device1")),)
    hashes = []
    for form in forms:
        model = MarginPursuitClassifier()
        data = model._check_training(form, np.arange(50) % 2, None)
        hashes.append(data_digests(data))
    assert hashes == [hashes[0]] * len(forms)
    assert len(np.unique(_row_hashes(X))) == len(np.unique(X, axis=0))


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x03\x04 cut short"])
def test_a_checkpoint_that_cannot_be_read_is_refused(path, content):
    X, y = load_breast_cancer(return_X_y=True)
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"checkpoint .* cannot be read: remove it"):
        MarginPursuitClassifier(checkpoint=path).fit(X, y)


def test_a_pickle_in_a_checkpoint_is_not_loaded(path):
    X, y = load_breast_cancer(return_X_y=True)
    with open(path, "wb") as file:
        np.savez(file, fit=np.array([{"a": 1}], dtype=object))
    with pytest.raises(ValueError, match="cannot be read"):
        MarginPursuitClassifier(checkpoint=path).fit(X, y)


def test_only_a_path_is_a_checkpoint():
    X, y = load_breast_cancer(return_X_y=True)
    with pytest.raises(ValueError, match="checkpoint must be a path or None; got 3"):
        MarginPursuitClassifier(checkpoint=3).fit(X, y)


SLOW_FIT = """
import sys, time
import numpy as np
from sklearn.datasets import load_breast_cancer
from marginpursuit import MarginPursuitClassifier
from marginpursuit.blocks import Blocks
X, y = load_breast_cancer(return_X_y=True)
def load():
    time.sleep(0.1)
    return X
model = MarginPursuitClassifier.as_published(
    checkpoint=sys.argv[1], scale=0.5, overconfidence=0.5, tol=1e-10, solver="gram"
)
model.fit(Blocks([load], [len(X)]), y)
"""


@pytest.mark.slow
def test_a_process_that_is_killed_leaves_a_whole_checkpoint(path):
    X, y = load_breast_cancer(return_X_y=True)
    process = subprocess.Popen([sys.executable, "-c", SLOW_FIT, str(path)])
    try:
        deadline = time.monotonic() + 60
        while not path.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.3)
        os.kill(process.pid, signal.SIGKILL)
    finally:
        process.kill()
        process.wait(10)
    whole = MarginPursuitClassifier.as_published(**SETTINGS, solver="gram").fit(X, y)
    rest = MarginPursuitClassifier.as_published(checkpoint=path, **SETTINGS, solver="gram").fit(
        X, y
    )
    assert_allclose(rest.objective_, whole.objective_, rtol=1e-9)
    assert rest.n_passes_ < whole.n_passes_


@pytest.mark.parametrize(("scale", "n_iter"), [(0.5, 1), (0.5, 0), (0.0, 1), (np.inf, 1)])
def test_the_first_iterate_is_a_saved_state_and_none_before(path, scale, n_iter):
    counts = {"n_iter": n_iter, "n_fits": 0}
    parts = {"coef": np.ones((4, 3)), "intercept": np.ones(3), "scale": scale} | counts
    path.write_bytes(fuzz.checkpoint_of(**parts))
    if n_iter == 1 and 0 < scale < np.inf:
        assert Checkpoint(path, fuzz.IDENTITY).saved_state.n_iter == 1
    else:
        with pytest.raises(ValueError, match=f"scale {scale} after {n_iter} iterations"):
            Checkpoint(path, fuzz.IDENTITY)
