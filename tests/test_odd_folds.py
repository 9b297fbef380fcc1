"""Selection with folds, weights and margins that are out of the ordinary."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import make_classification
from sklearn.model_selection import PredefinedSplit, ShuffleSplit, StratifiedShuffleSplit

from marginpursuit import MarginPursuitClassifierCV
from marginpursuit.selection import _race
from marginpursuit.selection._settings import Fold

GRID = {"scales": [1.0, 0.1], "overconfidences": [0.0, 1.0], "alphas": [1e-2, 1e-4]}


def rows(n_rows, n_classes, **options):
    return make_classification(
        n_rows, 5, n_informative=4, n_redundant=0, n_classes=n_classes, random_state=0, **options
    )


def assert_same_where_judged_last(raced, whole):
    kept = raced.cv_results_["n_resources"] == whole.cv_results_["n_resources"]
    assert kept[raced.best_index_]
    assert_allclose(
        raced.cv_results_["mean_test_score"][kept],
        whole.cv_results_["mean_test_score"][kept],
        atol=0.02,  # settings with other company are fitted to the same tolerance, but not alike
    )
    assert raced.best_score_ >= whole.best_score_ - 0.02


def search(X, y, weights=None, **options):
    raced = MarginPursuitClassifierCV(**GRID, **options).fit(X, y, weights)
    whole = MarginPursuitClassifierCV(**GRID, **options, race=False).fit(X, y, weights)
    assert_same_where_judged_last(raced, whole)
    return raced


@pytest.mark.parametrize("n_classes", [2, 5])
class TestSamples:
    """Samples of a race in which little is left of a fold."""

    def test_all_rows_of_small_training_sets(self, n_classes):
        """They are samples all the same: rows that are held out are missing."""
        X, y = rows(9603, n_classes)
        search(X, y, cv=StratifiedShuffleSplit(4, train_size=10, test_size=0.9, random_state=0))

    @pytest.mark.parametrize("scoring", [None, "neg_log_loss"])
    def test_few_rows_are_held_out(self, n_classes, scoring):
        X, y = rows(33000, n_classes)
        fold = np.full(len(y), -1)
        for code in range(n_classes):
            fold[np.flatnonzero(y == code)[:3]] = np.arange(3)
        search(X, y, cv=PredefinedSplit(fold), scoring=scoring)

    def test_few_rows_have_weight(self, n_classes):
        X, y = rows(9600, n_classes)
        weights, fold = np.zeros(len(y)), np.arange(len(y)) % 2
        for code in range(n_classes):
            some = np.flatnonzero(y == code)[:2]
            weights[some], fold[some] = 1.0, [0, 1]
        search(X, y, weights, cv=PredefinedSplit(fold))

    def test_folds_have_all_classes_that_they_had(self, n_classes):
        X, y = rows(33000, n_classes)
        y[y == 1] = 0
        y[::1100] = 1  # 30 rows, of which a sample has 20
        fold = np.arange(len(y)) // 3300
        model = MarginPursuitClassifierCV(**GRID)
        weights = np.where(np.arange(len(y)) % 3, 1.0, 0.0)
        data = model._check_training(X, y, weights)
        folds = [Fold(a, b) for a, b in PredefinedSplit(fold).split()]
        for part in _race.rounds(data, folds, np.random.RandomState(0), lambda: 1):
            codes = part.judged.labels.codes
            assert part.is_last == (len(part.data.weights) == len(y))
            for fit, lots in zip(part.fits, part.lots, strict=True):
                counted = part.data.weights[fit.train] > 0
                assert part.is_last or counted.all()
                assert len(np.unique(part.data.labels.codes[fit.train][counted])) == n_classes
                for k, places in lots:
                    held = fit.test[places]
                    for positive in (False, True):
                        some = held[(part.judged.weights[held] > 0) == positive]
                        own = folds[k].test[(weights[folds[k].test] > 0) == positive]
                        assert_array_equal(np.unique(codes[some]), np.unique(y[own]))


def test_folds_share_no_fit_that_lacks_a_class():
    X, y = rows(9600, 5)
    fold = np.arange(len(y)) % 4
    data = MarginPursuitClassifierCV(**GRID)._check_training(X, y, None)
    for n_folds, n_fits in ((4, 2), (2, 4)):  # that hold out rows of the last class
        fold[y == 4] = np.arange(np.count_nonzero(y == 4)) % n_folds
        folds = [Fold(a, b) for a, b in PredefinedSplit(fold).split()]
        part = next(_race.rounds(data, folds, np.random.RandomState(0), lambda: 1))
        assert len(part.fits) == n_fits


def test_nobody_drops_out_where_a_scorer_has_no_answer():
    scores = np.array([[0.9, 0.8, np.nan], [0.1, 0.2, 0.3]])
    assert_array_equal(_race.survivors(scores), [0, 1])


def test_masks_are_places():
    X, y = rows(200, 2)
    first = np.arange(200) < 120
    masks, places = ([(f(first), f(~first))] for f in (np.asarray, np.flatnonzero))
    ours, expected = (MarginPursuitClassifierCV(**GRID, cv=cv).fit(X, y) for cv in (masks, places))
    assert_array_equal(ours.cv_results_["mean_test_score"], expected.cv_results_["mean_test_score"])


def test_what_cannot_be_judged():
    X, y = rows(200, 2)
    fold = np.arange(200) % 3
    model = MarginPursuitClassifierCV(**GRID, cv=PredefinedSplit(fold))
    with pytest.raises(ValueError, match="positive weight; fold 1 has none"):
        model.fit(X, y, (fold != 1).astype(float))
    model.set_params(rule="one-standard-error", cv=ShuffleSplit(1, random_state=0))
    with pytest.raises(ValueError, match="at least 2 folds"):
        model.fit(X, y)


@pytest.mark.parametrize("unit", [1e-60, 1e-30, 1e30, 1e60])
def test_margins_beyond_float32(unit):
    X, y = rows(300, 2, flip_y=0.2)
    options = {"overconfidences": [0.0, 1.0], "alphas": [1e-2, 1e-4], "cv": 3}
    ours, expected = (
        MarginPursuitClassifierCV(margin=x, scales=[x, 0.3 * x], **options).fit(X, y)
        for x in (unit, 1.0)
    )
    assert_allclose(
        ours.cv_results_["mean_test_score"], expected.cv_results_["mean_test_score"], atol=0.01
    )
    assert ours.best_index_ == expected.best_index_
    assert_allclose(ours.coef_, unit * expected.coef_, rtol=1e-3)
    assert_allclose(ours.predict_proba(X), expected.predict_proba(X), atol=1e-2)
