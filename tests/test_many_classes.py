"""Many classes: memory is bounded, and results are those of all scores at once."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from marginpursuit import MarginPursuitClassifier
from marginpursuit.classifiers import _base
from marginpursuit.classifiers._link import FittedLink, link_rows
from marginpursuit.classifiers._margins import training_margins
from marginpursuit.design import MemoryDesign
from marginpursuit.losses import MarginLoss
from marginpursuit.solvers import SOLVERS, Problem, Request
from marginpursuit.tasks import Labels, Tasks


def rows(n_rows, n_classes, n_columns=4, seed=0):
    rng = np.random.default_rng(seed)
    codes = np.arange(n_rows) % n_classes
    return rng.normal(size=(n_classes, n_columns))[codes] + rng.normal(
        size=(n_rows, n_columns)
    ), codes


@pytest.mark.parametrize("weighted", [False, True])
def test_margins_in_tiles_have_the_statistics_of_all(weighted):
    X, codes = rows(200, 7)
    rng = np.random.default_rng(1)
    weights = rng.integers(0, 3, 200) + 0.0 if weighted else np.ones(200)
    labels, loss = Labels(codes, 7), MarginLoss(1.0, 1.0, 1.0)
    tasks = Tasks.of(labels, weights / weights.sum(), loss)
    request = Request(MemoryDesign(X), tasks.weights, tasks.losses, "standardised", 1e-3, True)
    prepared = SOLVERS["gram"].prepare(request)
    problem = Problem(prepared, tasks, np.full(7, 1e-3), prepared.zeros(7), 10, 1e-3)
    linear = rng.normal(size=(4, 7)), rng.normal(size=7)
    own = tasks.weights[0]
    whole = training_margins(problem, linear, labels, own, 200.0)
    tiles = training_margins(problem, linear, labels, own, 200.0, max_scores=450)
    assert tiles.tile == 2
    for name in ("location", "mean", "variance", "skewness", "quantiles"):
        own, expected = (getattr(m.statistics(0.5), name) for m in (tiles, whole))
        assert_allclose(own, expected, rtol=1e-12, atol=1e-14)
    averages = [m.average(lambda group: group.absolute().variance()) for m in (tiles, whole)]
    assert averages[0] == pytest.approx(averages[1], rel=1e-12)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix, pd.DataFrame])
@pytest.mark.parametrize("names", [np.arange(5), np.array(list("abcde"))])
def test_predictions_in_parts_are_those_of_all_rows(kind, names, monkeypatch):
    X, codes = rows(103, 5)
    model = MarginPursuitClassifier().fit(kind(X), names[codes])
    expected = model.classes_[np.argmax(model.decision_function(kind(X)), axis=1)]
    parts = _base._row_parts
    monkeypatch.setattr(_base, "_row_parts", lambda X, n: parts(X, n, max_scores=100))
    assert len(_base._row_parts(kind(X), 5)) == 6
    assert_array_equal(model.predict(kind(X)), expected)
    X[70, 2] = np.nan
    with pytest.raises(ValueError, match="row 70"):
        model.predict(kind(X))
    with pytest.raises(ValueError, match="features"):
        model.predict(kind(X)[:, :3] if kind is not pd.DataFrame else pd.DataFrame(X[:, :3]))


def test_probabilities_in_parts_are_those_of_all_rows():
    rng = np.random.default_rng(0)
    scores, link = rng.normal(size=(103, 5)), FittedLink(1.0, np.array([1.0, 2.0, 3.0, 0.5]))
    parts = _base._probabilities(link, scores, max_scores=50)
    assert_array_equal(parts, link.probabilities(scores))
    two = _base._probabilities(link, scores[:, :1], max_scores=50)
    assert_array_equal(two, link.probabilities(scores[:, :1]))


def test_links_of_many_classes_are_fitted_to_fewer_rows():
    assert link_rows(1 << 14, 1) == link_rows(1 << 14, 256) == 1 << 14
    assert link_rows(1 << 14, 1024) == 1 << 12
    assert link_rows(1 << 14, 1 << 23) == 1


LIMITED = """
import resource, sys, warnings
import numpy as np
from marginpursuit import MarginPursuitClassifier

multi_class = sys.argv[1]
rng = np.random.default_rng(0)
n_rows, n_classes = 16_000, 500
y = np.arange(n_rows) % n_classes
X = 3 * rng.normal(size=(n_classes, 4))[y] + rng.normal(size=(n_rows, 4))
warnings.simplefilter("ignore")
options = {"multi_class": multi_class, "max_iter": 1, "alpha": 1.0, "n_threads": 1}
MarginPursuitClassifier(**options).fit(X[:2000], y[:2000])  # imports, and stacks of threads
with open("/proc/self/statm") as file:
    used = resource.getpagesize() * int(file.read().split()[0])
limit = used + int(sys.argv[2]) * 2**20
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
model = MarginPursuitClassifier(**options).fit(X, y)
assert model.predict(X).shape == (n_rows,)
assert model.margin_statistics_.mean.shape == ((1,) if multi_class == "joint" else (n_classes,))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits the address space as Linux does")
@pytest.mark.parametrize("multi_class", ["joint", "ovr"])
def test_memory_does_not_grow_with_rows_times_classes(multi_class):
    run = subprocess.run(
        [sys.executable, "-c", LIMITED, multi_class, "300"],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert run.returncode == 0, run.stderr[-2000:]
