"""The default grid of the search with three classes or more."""

import numpy as np
import pytest

from marginpursuit import MarginPursuitClassifierCV


def classes_of(n_rows=1300, n_classes=3, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n_rows) % n_classes
    return rng.normal(size=(n_rows, 4)) + 2.0 * rng.normal(size=(n_classes, 4))[y], y


@pytest.mark.parametrize(
    ("n_classes", "multi_class", "scales", "overconfidences"),
    [
        (2, "auto", {0.1, 0.3, 1.0, 3.0}, {0.0, 1.0}),
        (3, "auto", {0.3, 1.0}, {0.0}),
        (3, "joint", {0.3, 1.0}, {0.0}),
        (3, "ovr", {0.1, 0.3, 1.0, 3.0}, {0.0, 1.0}),
    ],
)
def test_the_grid_depends_on_the_number_of_classes(n_classes, multi_class, scales, overconfidences):
    X, y = classes_of(90, n_classes)
    model = MarginPursuitClassifierCV(cv=2, alphas=[1e-3], multi_class=multi_class).fit(X, y)
    assert set(model.cv_results_["param_scale"]) == scales
    assert set(model.cv_results_["param_overconfidence"]) == overconfidences


def test_labels_have_the_grid_of_two_classes():
    X, y = classes_of(60)
    indicator = (y[:, np.newaxis] == np.arange(3)).astype(int)
    model = MarginPursuitClassifierCV(cv=2, alphas=[1e-3]).fit(X, indicator)
    assert len(model.cv_results_["param_scale"]) == 8


def test_subsamples_eliminate_candidates_from_1200_rows_on():
    X, y = classes_of()
    model = MarginPursuitClassifierCV().fit(X, y)
    resources = np.asarray(model.cv_results_["n_resources"])
    assert len(resources) == 14
    assert resources.max() == len(y)
    assert 4 <= np.count_nonzero(resources == len(y)) <= 8
    everything = MarginPursuitClassifierCV(successive_halving=False).fit(X, y)
    assert np.all(np.asarray(everything.cv_results_["n_resources"]) == len(y))
    assert model.best_score_ >= everything.best_score_ - 0.005
