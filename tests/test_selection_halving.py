"""Successive halving: the subsamples of the rungs, and the candidates that are eliminated."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from searches import folds_of, rungs, training_data
from sklearn.datasets import make_classification
from sklearn.model_selection import (
    PredefinedSplit,
    RepeatedStratifiedKFold,
    ShuffleSplit,
    StratifiedKFold,
    StratifiedShuffleSplit,
    TimeSeriesSplit,
)

from marginpursuit import MarginPursuitClassifierCV
from marginpursuit.selection.candidates import Candidate
from marginpursuit.selection.policy import SelectionPolicy
from marginpursuit.selection.successive_halving import (
    next_size,
    remaining,
    subsampled_rung,
    with_smaller_penalties,
)

POLICY = SelectionPolicy()


class TestElimination:
    """Which candidates stay."""

    def test_candidates_far_behind_are_eliminated(self):
        rng = np.random.default_rng(0)
        scores = 0.9 + 0.01 * rng.normal(size=(1, 5)) + 0.002 * rng.normal(size=(6, 5))
        scores[3] -= 0.2
        kept = remaining(scores, 999, POLICY)
        assert 3 not in kept
        assert np.argmax(scores.mean(axis=1)) in kept
        assert_array_equal(remaining(np.ones((4, 5)), 999, POLICY), np.arange(4))

    def test_deviations_of_bad_candidates_do_not_count(self):
        rng = np.random.default_rng(2)
        behind = np.array([0.0, 0.0, 0.0, 0.0, 0.01] + 6 * [0.3])
        noise = np.array(5 * [1e-3] + 6 * [0.1])
        scores = 0.9 - behind[:, np.newaxis] + noise[:, np.newaxis] * rng.normal(size=(11, 5))
        kept = remaining(scores, 999, POLICY)
        assert 4 not in kept
        assert {0, 1, 2, 3} <= set(kept)

    def test_the_bound_is_in_standard_errors(self):
        scores = np.array([[0.9, 0.92, 0.88, 0.9], [0.86, 0.9, 0.87, 0.87]])
        difference = scores[0] - scores[1]
        ratio = difference.mean() / (difference.std(ddof=1) / 2)
        for factor, expected in ((1.01, [0, 1]), (0.99, [0])):
            policy = SelectionPolicy(elimination_errors=factor * ratio)
            assert_array_equal(remaining(scores, 5000, policy), expected)

    @pytest.mark.parametrize(("n_candidates", "n_kept"), [(2, 2), (9, 2), (56, 4), (65, 5)])
    def test_a_sixteenth_stays_and_at_least_two(self, n_candidates, n_kept):
        mean = np.random.default_rng(4).permutation(n_candidates) * 1e-6
        scores = mean[:, np.newaxis] + np.array([0.9, 0.92, 0.88, 0.9])
        scores += 1e-2 * np.random.default_rng(5).normal(size=(1, 4)) * (mean > 0)[:, np.newaxis]
        policy = SelectionPolicy(elimination_errors=1e9)
        best = np.sort(np.argsort(-scores.mean(axis=1))[:n_kept])
        assert_array_equal(remaining(scores, 1000, policy), best)
        assert len(remaining(scores, 999, policy)) == n_candidates

    def test_candidates_with_an_undefined_score_are_eliminated(self):
        scores = np.array([[0.9, 0.8, np.nan], [0.1, 0.2, 0.3], [0.8, 0.9, 0.7], [-np.inf] * 3])
        assert_array_equal(remaining(scores, 5000, POLICY), [2])
        assert_array_equal(remaining(scores[[0, 3]], 5000, POLICY), [0, 1])

    def test_the_next_smaller_penalty_stays(self):
        candidates = [Candidate(a, t, 1.0) for a in (1.0, 1e-2, 1e-1) for t in (0.0, 1.0)]
        kept = with_smaller_penalties(candidates, np.array([0, 3]))
        assert_array_equal(kept, [0, 3, 4])  # 1 and 0.1 with τ = 0, 0.01 with τ = 1


class TestSizes:
    """The rows of the rungs."""

    @pytest.mark.parametrize(
        ("n_rows", "n_columns", "expected"),
        [
            (7999, 3, []),
            (8000, 3, [2000]),
            (40000, 3, [2500, 10000]),
            (40000, 1000, [10000]),  # 3 rows per column
            (40000, 20000, [10000]),
            (40000, 20001, []),  # a quarter of the rows has too many elements
        ],
    )
    def test_table(self, n_rows, n_columns, expected):
        assert self.sizes(n_rows, n_columns, 2) == expected

    @pytest.mark.parametrize(
        ("n_rows", "n_columns", "expected"),
        [(1199, 3, []), (1200, 3, [300]), (1200, 64, [300]), (4800, 3, [300, 1200])],
    )
    def test_three_classes(self, n_rows, n_columns, expected):
        assert self.sizes(n_rows, n_columns, 3) == expected

    def sizes(self, n_rows, n_columns, n_classes):
        data = training_data(np.zeros((n_rows, 1)), np.arange(n_rows) % n_classes)
        data = replace(data, matrix=np.broadcast_to(0.0, (n_rows, n_columns)))
        policy, sizes = SelectionPolicy(max_rung_elements=10000 * 20000), []
        size = next_size(data, 0, policy)
        while size is not None:
            sizes.append(size)
            size = next_size(data, size, policy)
        return sizes


def assert_folds_are_kept_apart(rung, where, folds):
    """Each fold is scored once, by a fit to training rows of that fold; `where` are its rows."""
    scored = []
    for fit, held_out in zip(rung.fits, rung.held_out, strict=True):
        for fold, index in held_out:
            scored.append(fold)
            assert np.isin(rung.rows[fit.test[index]], folds[fold].test).all()
            assert np.isin(where[fit.train], folds[fold].train).all()
    assert sorted(scored) == list(range(len(folds)))


class TestRungs:
    """The rows, folds and classes of a subsample."""

    def test_subsamples_keep_folds_and_classes(self):
        rng = np.random.default_rng(1)
        X, y = rng.normal(size=(40000, 3)), 1 + (rng.random(40000) < 0.002).astype(int)
        y[:15000] = 0
        data, folds = training_data(X, y), folds_of(StratifiedKFold(5), X, y)
        drawn = rungs(data, folds)
        fitted = [[len(fit.train) for fit in rung.fits] for rung in drawn]
        sizes = [2000, 8000]
        assert_allclose(fitted[:2], np.transpose([sizes, sizes]), rtol=0.02)
        assert fitted[2] == [32000] * 5
        n_scored = [sum(len(fit.test) for fit in rung.fits) for rung in drawn]
        assert_allclose(n_scored, [10000, 40000, 40000], rtol=0.02)
        for rung in drawn:
            assert np.count_nonzero(rung.fitted.labels.codes == 2) >= 20
            assert_array_equal(rung.scored.matrix, X[rung.rows])
            where = np.flatnonzero(np.isin(X[:, 0], rung.fitted.matrix[:, 0]))
            assert_array_equal(rung.fitted.matrix, X[where])
            assert_array_equal(rung.fitted.labels.codes, y[where])
            n_fitted = np.mean([len(fit.train) for fit in rung.fits])
            assert_allclose(rung.fraction, n_fitted / 32000)
            assert_folds_are_kept_apart(rung, where, folds)

    @pytest.mark.parametrize(
        ("splitter", "n_fits"),
        [
            (TimeSeriesSplit(5), 2),
            (ShuffleSplit(4, test_size=0.25, random_state=0), 2),
            (ShuffleSplit(10, test_size=0.5, random_state=0), 10),
            (RepeatedStratifiedKFold(n_splits=3, n_repeats=2, random_state=0), 6),
        ],
    )
    def test_folds_with_few_common_training_rows_share_no_fit(self, splitter, n_fits):
        X, y = make_classification(9000, 6, n_informative=4, n_classes=3, random_state=0)
        folds = folds_of(splitter, X, y)
        rung = rungs(training_data(X, y), folds)[0]
        assert len(rung.fits) == n_fits
        where = np.flatnonzero(np.isin(X[:, 0], rung.fitted.matrix[:, 0]))
        assert_folds_are_kept_apart(rung, where, folds)

    def test_folds_of_two_classes_share_no_fit(self):
        X, y = make_classification(9000, 6, random_state=0)
        rung = rungs(training_data(X, y), folds_of(StratifiedKFold(5), X, y))[0]
        assert len(rung.fits) == 5
        # They have most rows in common: each fits 4/5 of nearly the same 2,250 rows.
        assert [len(fit.train) for fit in rung.fits] == [1800] * 5
        assert 2250 <= len(rung.fitted.weights) <= 2400

    def test_a_subsample_does_not_repeat_the_draw_of_a_splitter_with_the_same_seed(self):
        X, y = make_classification(9000, 6, random_state=0)
        folds = folds_of(ShuffleSplit(4, test_size=0.25, random_state=0), X, y)
        data, policy = training_data(X, y), SelectionPolicy()
        rung = subsampled_rung(data, folds, 600, np.random.RandomState(0), policy)
        assert_allclose([len(fit.test) for fit in rung.fits], [600] * 4, rtol=0.1)

    def test_a_generator_draws_the_subsamples(self):
        X, y = make_classification(9000, 6, random_state=0)
        grid = {"scales": [1.0], "overconfidences": [0.0], "alphas": [10.0, 1e-3], "cv": 3}
        scores = []
        for seed in (0, 0, 1):
            model = MarginPursuitClassifierCV(**grid, random_state=np.random.default_rng(seed))
            results = model.fit(X, y).cv_results_
            assert results["n_resources"][0] < 9000
            scores.append(results["mean_test_score"][0])
        assert scores[0] == scores[1] != scores[2]

    @pytest.mark.parametrize(("n_folds", "n_fits"), [(4, 2), (2, 4)])
    def test_folds_share_no_fit_that_lacks_a_class(self, n_folds, n_fits):
        X, y = rows(9600, 5)
        fold = np.arange(len(y)) % 4
        fold[y == 4] = np.arange(np.count_nonzero(y == 4)) % n_folds
        rung = rungs(training_data(X, y), folds_of(PredefinedSplit(fold), X, y))[0]
        assert len(rung.fits) == n_fits

    @pytest.mark.parametrize("n_classes", [2, 5])
    def test_folds_keep_all_their_classes(self, n_classes):
        X, y = rows(33000, n_classes)
        y[y == 1] = 0
        y[::1100] = 1  # 30 rows, of which a subsample has 20
        weights = np.where(np.arange(len(y)) % 3, 1.0, 0.0)
        folds = folds_of(PredefinedSplit(np.arange(len(y)) // 3300), X, y)
        for rung in rungs(training_data(X, y, weights), folds):
            assert rung.is_full == (len(rung.fitted.weights) == len(y))
            for fit, held_out in zip(rung.fits, rung.held_out, strict=True):
                has_weight = rung.fitted.weights[fit.train] > 0
                assert rung.is_full or has_weight.all()
                codes = rung.fitted.labels.codes[fit.train][has_weight]
                assert len(np.unique(codes)) == n_classes
                for fold, index in held_out:
                    self._assert_same_classes(rung, fit.test[index], folds[fold].test, y, weights)

    @staticmethod
    def _assert_same_classes(rung, test, rows, y, weights):
        """The scored rows of a fold have its classes, with and without weight."""
        for is_positive in (False, True):
            some = test[(rung.scored.weights[test] > 0) == is_positive]
            own = rows[(weights[rows] > 0) == is_positive]
            assert_array_equal(np.unique(rung.scored.labels.codes[some]), np.unique(y[own]))


def rows(n_rows, n_classes):
    return make_classification(
        n_rows, 5, n_informative=4, n_redundant=0, n_classes=n_classes, random_state=0
    )


def assert_halving_keeps_the_best(X, y, weights=None, **options):
    """Candidates of the last rung have the scores of a search without successive halving."""
    grid = {"scales": [1.0, 0.1], "overconfidences": [0.0, 1.0], "alphas": [1e-2, 1e-4]}
    halved = MarginPursuitClassifierCV(**grid, **options).fit(X, y, weights)
    full = MarginPursuitClassifierCV(**grid, **options, successive_halving=False)
    full.fit(X, y, weights)
    kept = halved.cv_results_["n_resources"] == full.cv_results_["n_resources"]
    assert kept[halved.best_index_]
    assert_allclose(
        halved.cv_results_["mean_test_score"][kept],
        full.cv_results_["mean_test_score"][kept],
        atol=0.02,  # tasks that are solved with other tasks end elsewhere within the tolerance
    )
    assert halved.best_score_ >= full.best_score_ - 0.02


@pytest.mark.parametrize("n_classes", [2, 5])
class TestOddFolds:
    """Folds of which a subsample has few rows."""

    def test_all_rows_of_small_training_sets(self, n_classes):
        """The rungs are subsamples nevertheless: some held-out rows are missing."""
        X, y = rows(9603, n_classes)
        cv = StratifiedShuffleSplit(4, train_size=10, test_size=0.9, random_state=0)
        assert_halving_keeps_the_best(X, y, cv=cv, multi_class="ovr")

    @pytest.mark.parametrize("scoring", [None, "neg_log_loss"])
    def test_few_rows_are_held_out(self, n_classes, scoring):
        X, y = rows(33000, n_classes)
        fold = np.full(len(y), -1)
        for code in range(n_classes):
            fold[np.flatnonzero(y == code)[:3]] = np.arange(3)
        assert_halving_keeps_the_best(X, y, cv=PredefinedSplit(fold), scoring=scoring)

    def test_few_rows_have_weight(self, n_classes):
        X, y = rows(9600, n_classes)
        weights, fold = np.zeros(len(y)), np.arange(len(y)) % 2
        for code in range(n_classes):
            some = np.flatnonzero(y == code)[:2]
            weights[some], fold[some] = 1.0, [0, 1]
        assert_halving_keeps_the_best(X, y, weights, cv=PredefinedSplit(fold))


def test_the_winner_is_that_without_successive_halving():
    X, y = make_classification(
        20000, 20, n_informative=8, flip_y=0.05, class_sep=0.7, random_state=3
    )
    halved = MarginPursuitClassifierCV(alphas=[1e-2, 1e-4, 1e-6]).fit(X, y)
    full = MarginPursuitClassifierCV(alphas=[1e-2, 1e-4, 1e-6], successive_halving=False).fit(X, y)
    assert halved.cv_results_["n_resources"].min() < 20000
    assert halved.best_score_ >= full.best_score_ - 2e-4
    kept = halved.cv_results_["n_resources"] == 20000
    assert_allclose(
        halved.cv_results_["mean_test_score"][kept],
        full.cv_results_["mean_test_score"][kept],
        atol=2e-3,
    )


@pytest.mark.skipif(
    "MARGINPURSUIT_DATA" not in os.environ, reason="MARGINPURSUIT_DATA names no folder with data"
)
@pytest.mark.parametrize(
    ("name", "positive", "n_rows"), [("cov", 2, 40000), ("protein", 1, 40000), ("digit5", 5, 9000)]
)
def test_the_winner_on_real_data(name, positive, n_rows):
    file = Path(os.environ["MARGINPURSUIT_DATA"]) / f"{name}.npz"
    if not file.exists():
        pytest.skip(f"{file.name} is not in the folder that MARGINPURSUIT_DATA names")
    with np.load(file) as stored:
        rows = np.random.default_rng(0).permutation(len(stored["y"]))[:n_rows]
        X, y = stored["X"][rows], stored["y"][rows] == positive
    halved = MarginPursuitClassifierCV(refit=False).fit(X, y)
    full = MarginPursuitClassifierCV(refit=False, successive_halving=False).fit(X, y)
    assert halved.cv_results_["n_resources"].min() < n_rows
    assert halved.best_score_ >= full.best_score_ - 1e-3
