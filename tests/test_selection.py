"""Selection by cross-validation: the same as scikit-learn's search, in shared reads."""

import io
import os
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits, make_classification
from sklearn.metrics import log_loss, make_scorer, roc_auc_score
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    RepeatedStratifiedKFold,
    ShuffleSplit,
    StratifiedKFold,
    TimeSeriesSplit,
)
from sklearn.utils.estimator_checks import parametrize_with_checks

from marginpursuit import MarginPursuitClassifier, MarginPursuitClassifierCV, _kernels
from marginpursuit.datasets import contaminate
from marginpursuit.design import MemoryDesign, MergedDesign
from marginpursuit.selection import _folds, _race
from marginpursuit.selection._link import FittedLink
from marginpursuit.selection._scores import THRESHOLDS, Judge
from marginpursuit.selection._settings import Fold
from marginpursuit.solvers import minimise
from marginpursuit.solvers._quasi_newton import evaluate, join

GRID = {
    "leverage_bound": None,
    "scales": [2.0, 0.5],
    "overconfidences": [0.0, 1.0],
    "alphas": [1e-1, 1e-3],
}


def two_classes():
    X, y = load_breast_cancer(return_X_y=True)
    return X[:200], y[:200]


def three_classes():
    X, y = make_classification(200, 8, n_informative=5, n_classes=3, flip_y=0.2, random_state=0)
    return X + 3.0, np.array(["a", "b", "c"])[y]


def sparse_rows():
    X, y = three_classes()
    return sparse.csr_matrix(np.where(np.abs(X) > 3, X, 0)), y


def wide():
    return make_classification(60, 90, n_informative=10, random_state=1)


def rare_column():
    """A column that only two rows have: it is constant in some folds."""
    X, y = two_classes()
    return np.column_stack([X, np.arange(len(y)) < 2]), y


DATA = {f.__name__: f for f in (two_classes, three_classes, sparse_rows, wide, rare_column)}


def search(X, y, *, unit, cv, scoring=None, sample_weight=None, **options):
    """Search the same grid by scikit-learn."""
    found = GridSearchCV(
        MarginPursuitClassifier(alpha_unit=unit, tol=1e-9, **options),
        {
            "alpha": GRID["alphas"],
            "overconfidence": GRID["overconfidences"],
            "scale": GRID["scales"],
        },
        cv=cv,
        scoring=scoring,
    )
    return found.fit(X, y, **({} if sample_weight is None else {"sample_weight": sample_weight}))


@pytest.mark.parametrize("unit", ["absolute", "standardised", "common"])
@pytest.mark.parametrize("data", DATA)
def test_equals_grid_search(data, unit):
    X, y = DATA[data]()
    cv = StratifiedKFold(4, shuffle=True, random_state=0)
    # Log-loss sees every score, where the share of errors would not notice a wrong fit.
    for scoring in (None, "neg_log_loss"):
        model = MarginPursuitClassifierCV(
            **GRID,
            alpha_unit=unit,
            cv=cv,
            scoring=scoring,
            threshold="zero",
            tol=1e-9,
            link="exact",
        ).fit(X, y)
        reference = search(X, y, unit=unit, cv=cv, scoring=scoring)
        assert model.cv_results_["params"] == reference.cv_results_["params"]
        for name in ("mean_test_score", "std_test_score", "split0_test_score"):
            assert_allclose(
                model.cv_results_[name], reference.cv_results_[name], rtol=2e-3, atol=2e-3
            )
        if scoring is None:
            assert_array_equal(
                model.cv_results_["rank_test_score"], reference.cv_results_["rank_test_score"]
            )
            assert model.best_params_ == reference.best_params_
            assert_allclose(model.best_score_, reference.best_score_, rtol=1e-12)
            assert_array_equal(model.predict(X), reference.predict(X))


@pytest.fixture
def solvers(monkeypatch):
    """Return a list that fits to folds append their solvers to; few rows are many."""
    names, judge = [], _folds.FoldFits.judge

    def noted(self, *arguments):
        names.append(self._solver)
        merges = [isinstance(batch.prepared.design, MergedDesign) for batch in self._batches]
        assert merges == [self._options.unit != "standardised"]
        return judge(self, *arguments)

    monkeypatch.setattr(_folds, "_FEW_ROWS", 50)
    monkeypatch.setattr(_folds.FoldFits, "judge", noted)
    return names


def sparse_wide(n_classes, density=0.02):
    rng = np.random.default_rng(0)
    X = sparse.random(90, 300, density, format="csr", random_state=1)
    score = X[:, :150].sum(axis=1).A1 + 0.3 * rng.normal(size=90)
    return X, np.searchsorted(np.quantile(score, np.arange(1, n_classes) / n_classes), score)


VISITED = "lbfgs" if _kernels._compiled is None else "dual"


@pytest.mark.parametrize(
    ("unit", "solver"), [("standardised", "lbfgs"), ("common", VISITED), ("absolute", VISITED)]
)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_sparse_wide_rows_equal_grid_search(unit, solver, n_classes, solvers):
    """Without a factorisation, and with columns merged that one row alone has."""
    X, y = sparse_wide(n_classes, density=0.03 if unit == "standardised" else 0.02)
    model = MarginPursuitClassifierCV(
        **GRID, alpha_unit=unit, cv=4, scoring="neg_log_loss", tol=1e-9, link="exact"
    ).fit(X, y)
    assert solvers == [solver]
    reference = search(X, y, unit=unit, cv=4, scoring="neg_log_loss")
    scores = [results.cv_results_["mean_test_score"] for results in (model, reference)]
    assert_allclose(*scores, rtol=1e-4)
    assert np.ptp(scores[0]) > 0.05


@pytest.mark.parametrize("alphas", [[1e-3], [0.0, 1e-3]])
@pytest.mark.parametrize("is_compiled", [True, False])
def test_rows_are_visited_where_there_is_a_dual(alphas, is_compiled, solvers, monkeypatch):
    if not is_compiled:
        monkeypatch.setattr(MemoryDesign, "tasks_per_pass", 0)
    X, y = sparse_wide(3)
    MarginPursuitClassifierCV(alphas=alphas, scales=[1.0], cv=3, refit=False).fit(X, y)
    assert solvers == [VISITED if is_compiled and min(alphas) > 0 else "lbfgs"]


@pytest.mark.skipif(_kernels._compiled is None, reason="installed without the compiled kernels")
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_fits_that_passes_leave_unfinished_are_minimisers(fit_intercept, monkeypatch):
    """Before their minimum, fits with small penalties look better than they are."""
    X = sparse.random(300, 400, 0.01, format="csr", random_state=1)
    score = X[:, :200].sum(axis=1).A1 + 0.5 * np.random.default_rng(0).normal(size=300)
    ends, gaps, visited = [], [], _folds.FoldFits._visited

    def checked(self, problem, tols):
        found = visited(self, problem, tols)
        best = minimise(replace(problem, max_iter=5000, tol=1e-9), times=5, fewest=100).value
        value, _ = evaluate(problem, join(problem, *found.linear), np.arange(len(tols)))
        ends.append(found.gap > _folds._GAP * tols)  # at the last pass
        gaps.append((value - best) / problem.relative_to(best))
        return found

    monkeypatch.setattr(_folds, "_FEW_ROWS", 50)
    monkeypatch.setattr(_folds, "_PASSES", 0.02)
    monkeypatch.setattr(_folds.FoldFits, "_visited", checked)
    MarginPursuitClassifierCV(
        scales=[1.0, 0.1], alphas=[1e-6], cv=4, refit=False, fit_intercept=fit_intercept
    ).fit(X, score > np.median(score))
    slow, gap = np.concatenate(ends), np.concatenate(gaps)
    assert np.any(slow)
    assert np.all(gap[slow] <= 3e-3)
    assert np.all(gap <= 1.5 * _folds._GAP * 1e-3)  # sums over a pass in which they change


def test_the_hessian_saves_sweeps_and_changes_no_score(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 40))
    score = X @ rng.normal(size=40) + rng.normal(size=3000)
    y = score > np.quantile(score, 0.95)  # rows that are all but told apart have no curvature
    model = MarginPursuitClassifierCV(
        alphas=[1e-5, 1e-6], overconfidences=[0.0], refit=False, race=False, tol=1e-6
    )
    bent = clone(model).fit(X, y)
    monkeypatch.setattr(_folds, "_SLOW", np.inf)
    straight = clone(model).fit(X, y)
    assert bent.n_passes_ < 0.7 * straight.n_passes_
    scores = [each.cv_results_["mean_test_score"] for each in (bent, straight)]
    assert_allclose(*scores, atol=5e-4)


@pytest.mark.parametrize("class_weight", [None, "balanced", {"a": 3.0, "c": 0.5}])
def test_weights_equal_grid_search(class_weight):
    X, y = three_classes()
    weights = np.random.default_rng(0).integers(0, 4, len(y)).astype(float)
    cv = ShuffleSplit(3, test_size=0.3, random_state=1)
    model = MarginPursuitClassifierCV(
        **GRID, alpha_unit="absolute", cv=cv, tol=1e-9, class_weight=class_weight
    ).fit(X, y, sample_weight=weights)
    reference = search(
        X, y, unit="absolute", cv=cv, sample_weight=weights, class_weight=class_weight
    )
    for k in range(3):
        assert_allclose(
            model.cv_results_[f"split{k}_test_score"],
            reference.cv_results_[f"split{k}_test_score"],
            atol=3.1 / 80,  # a row may change sides within the tolerance
        )
    alone = clone(reference.estimator).set_params(**model.best_params_)
    assert_allclose(model.coef_, alone.fit(X, y, weights).coef_, rtol=1e-3, atol=1e-4)


def test_any_scorer_judges_scores_alone():
    X, y = two_classes()

    def callable_scorer(estimator, X, y):
        assert X.shape[1] == 30
        return roc_auc_score(y, estimator.decision_function(X))

    results = [
        MarginPursuitClassifierCV(**GRID, cv=3, scoring=scoring).fit(X, y)
        for scoring in (
            "roc_auc",
            callable_scorer,
            make_scorer(roc_auc_score, response_method="decision_function"),
        )
    ]
    for other in results[1:]:
        assert_array_equal(
            results[0].cv_results_["mean_test_score"], other.cv_results_["mean_test_score"]
        )
    assert results[0].score(X, y) == roc_auc_score(y, results[0].decision_function(X))


def test_groups_reach_the_splitter():
    X, y = two_classes()
    groups = np.arange(len(y)) % 5
    model = MarginPursuitClassifierCV(**GRID, cv=GroupKFold(5)).fit(X, y, groups=groups)
    assert model.n_splits_ == 5
    with pytest.raises(ValueError, match="groups"):
        MarginPursuitClassifierCV(**GRID, cv=GroupKFold(5)).fit(X, y)
    with pytest.raises(TypeError, match="colour"):
        MarginPursuitClassifierCV(**GRID).fit(X, y, colour=1)


def test_metadata_routing():
    X, y = two_classes()
    weights = np.where(y == 1, 5.0, 1.0)
    with config_context(enable_metadata_routing=True):
        scorer = make_scorer(lambda y, p, sample_weight: np.average(y == p, weights=sample_weight))
        scorer.set_score_request(sample_weight=True)
        model = MarginPursuitClassifierCV(**GRID, cv=GroupKFold(4), scoring=scorer)
        model.set_fit_request(sample_weight=True)
        model.fit(X, y, sample_weight=weights, groups=np.arange(len(y)) % 4)
        routed = model.cv_results_["mean_test_score"]
        scorer.set_score_request(sample_weight=False)
        model.set_params(scoring=scorer)
        with pytest.raises(TypeError, match="sample_weight"):
            clone(model).fit(X, y, sample_weight=weights, groups=np.arange(len(y)) % 4)
    plain = MarginPursuitClassifierCV(**GRID, cv=GroupKFold(4), threshold="zero").fit(
        X, y, sample_weight=weights, groups=np.arange(len(y)) % 4
    )
    assert_array_equal(routed, plain.cv_results_["mean_test_score"])


def test_one_standard_error_prefers_the_simpler():
    X, y = two_classes()
    best = MarginPursuitClassifierCV(alphas=[1e-1, 1e-6], random_state=0).fit(X, y)
    simple = clone(best).set_params(rule="one-standard-error").fit(X, y)
    results = best.cv_results_
    scores = np.array([results[f"split{k}_test_score"] for k in range(5)])[:, best.best_index_]
    error = scores.std(ddof=1) / np.sqrt(5)
    near = [
        tuple(p.values())
        for p, mean in zip(results["params"], results["mean_test_score"], strict=True)
        if mean >= best.best_score_ - error
    ]
    assert tuple(simple.best_params_.values()) == max(near)


def test_without_refit_there_is_no_prediction():
    X, y = two_classes()
    model = MarginPursuitClassifierCV(**GRID, refit=False).fit(X, y)
    assert model.best_params_
    assert not hasattr(model, "coef_")
    assert not hasattr(model, "score")


def test_attributes_and_round_trip():
    X, y = three_classes()
    model = MarginPursuitClassifierCV(**GRID).fit(X, y)
    assert_array_equal(model.coef_, model.best_estimator_.coef_)
    assert model.scale_ == model.best_params_["scale"]
    assert model.margin_statistics_.mean.shape == (3,)
    again = pickle.loads(pickle.dumps(model))
    assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert_array_equal(
        model.cv_results_["mean_test_score"],
        clone(model).set_params(n_threads=3).fit(X, y).cv_results_["mean_test_score"],
    )


def test_progress_bar(capsys, monkeypatch):
    X, y = two_classes()
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr("sys.stderr", terminal)
    MarginPursuitClassifierCV(**GRID, verbose=1).fit(X, y)
    assert capsys.readouterr().out == ""
    assert "8 settings on 200 rows" in terminal.getvalue()
    assert "100 %  40 of 40" in terminal.getvalue()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("scales", []),
        ("scales", [0.0]),
        ("scales", 1.0),
        ("overconfidences", [1.5]),
        ("alphas", "auto"),
        ("alphas", [-1.0]),
        ("alpha_unit", "metre"),
        ("rule", "worst"),
        ("threshold", 0.5),
        ("link", "none"),
        ("tol", 0.0),
        ("race", 1),
    ],
)
def test_bad_parameters(name, value):
    X, y = two_classes()
    with pytest.raises(ValueError, match=f"{name} must be"):
        MarginPursuitClassifierCV(**{name: value}).fit(X, y)


def test_sparse_rows_are_offered_smaller_penalties():
    X, y = two_classes()
    model = MarginPursuitClassifierCV(scales=[1.0], overconfidences=[0.0], cv=2)
    smallest = [
        min(model.fit(rows, y).cv_results_["param_alpha"]) for rows in (X, sparse.csr_matrix(X))
    ]
    assert smallest == [1e-6, 1e-7]


def test_rows_of_no_weight_may_hold_anything():
    """Also values that float32, in which loose fits are made, does not."""
    X, y = two_classes()
    weights = np.ones(len(y))
    weights[5] = 0.0
    expected = MarginPursuitClassifierCV(**GRID).fit(X, y, sample_weight=weights)
    X[5] = 1e60
    ours = MarginPursuitClassifierCV(**GRID).fit(X, y, sample_weight=weights)
    assert ours.best_params_ == expected.best_params_
    assert_allclose(ours.coef_, expected.coef_, rtol=1e-5, atol=1e-7)


def test_bad_folds():
    X, y = two_classes()
    one = np.flatnonzero(y == 1)
    with pytest.raises(ValueError, match="fold 0 has 1 and 3"):
        MarginPursuitClassifierCV(cv=[(one, np.arange(3))]).fit(X, y)
    X[3, 4] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        MarginPursuitClassifierCV().fit(X, y)


@pytest.mark.parametrize("unit", [1e-200, 1e200])
def test_units_whose_squares_leave_the_floats(unit):
    X, y = two_classes()
    near = MarginPursuitClassifierCV(**GRID, cv=3).fit(X, y)
    far = MarginPursuitClassifierCV(**GRID, cv=3).fit(X * unit, y)
    assert far.best_params_ == near.best_params_
    assert_array_equal(far.predict(X * unit), near.predict(X))
    with pytest.raises(OverflowError, match="another unit"):
        MarginPursuitClassifierCV(**GRID, alpha_unit="absolute").fit(X * unit, y)


class TestLink:
    """The link that is fitted to scores of rows the fit had not seen."""

    @pytest.mark.parametrize("threshold", [0.0, -0.5])
    def test_recovers_the_slopes(self, threshold):
        rng = np.random.default_rng(0)
        scores = rng.normal(scale=2.0, size=(60000, 1))
        truth = FittedLink(1.0, np.array([0.5, 2.0, 3.0, 1.0]), threshold)
        chance = truth.probabilities(scores)[:, 1]
        codes = (rng.random(len(chance)) < chance).astype(np.intp)
        found = FittedLink.fit(scores, codes, np.ones(len(codes)), 1.0, threshold)
        assert_allclose(found.slopes, truth.slopes, atol=0.15)
        assert log_loss(codes, found.probabilities(scores)) <= log_loss(
            codes, truth.probabilities(scores)
        )

    @pytest.mark.parametrize("n_problems", [1, 3])
    def test_agrees_with_the_scores(self, n_problems):
        rng = np.random.default_rng(1)
        scores = rng.normal(size=(500, n_problems))
        codes = rng.integers(0, max(2, n_problems), 500)
        chances = FittedLink.fit(scores, codes, np.ones(500), 0.7).probabilities(scores)
        assert_allclose(chances.sum(axis=1), 1)
        best = scores.argmax(axis=1) if n_problems > 1 else (scores[:, 0] > 0).astype(int)
        assert_array_equal(chances.argmax(axis=1), best)
        if n_problems == 1:
            order = np.argsort(scores[:, 0])
            assert np.all(np.diff(chances[order, 1]) > 0)

    def test_knots_are_where_the_levels_are(self):
        link = FittedLink(2.0, np.array([0.5, 2.0, 3.0, 1.0]), -0.5)
        scores = np.linspace(-4.0, 4.0, 801)
        chances = link.probabilities(scores[:, None])[:, 1]
        slopes = np.diff(np.log(chances / (1 - chances))) / 0.01
        expected = np.select([scores < -1.5, scores < 0, scores < 2.5], [0.5, 2.0, 3.0], 1.0)
        assert_allclose(slopes, expected[:-1], rtol=1e-6)

    def test_certainty_is_bounded(self):
        scores = np.array([[-2.0], [2.0]] * 20)
        codes = np.array([0, 1] * 20)
        chances = FittedLink.fit(scores, codes, np.ones(40), 1.0).probabilities(scores)
        assert 0.9 < chances[1, 1] < 1 - 1e-3

    def test_is_better_than_the_exact_link_where_that_is_certain(self):
        X, y = load_digits(return_X_y=True)
        model = MarginPursuitClassifierCV(scales=[0.3], overconfidences=[0.0], alphas=[1e-4])
        fitted = log_loss(y[1000:], model.fit(X[:1000], y[:1000]).predict_proba(X[1000:]))
        model.set_params(link="exact")
        exact = log_loss(y[1000:], model.fit(X[:1000], y[:1000]).predict_proba(X[1000:]))
        assert fitted < 0.7 * exact


class TestThreshold:
    """The score above which the second class is predicted."""

    @staticmethod
    def judge(codes, thresholds=THRESHOLDS, **metadata):
        return Judge(None, None, codes, np.array([0, 1]), metadata, thresholds)

    @staticmethod
    def share(scores, truth, place, margin=1.0, weights=None):
        """Return the share about a threshold: a mean with weights 7 - |k| over 13 of them."""
        near = np.arange(-6, 7)
        correct = [
            np.average((scores > margin * (place - 49 + k) / 50) == truth, weights=weights)
            for k in near
        ]
        return np.average(correct, weights=7 - abs(near))

    @pytest.mark.parametrize("margin", [1.0, 3e-7, 4e50])
    @pytest.mark.parametrize("weighted", [False, True])
    def test_shares_are_those_of_predictions(self, margin, weighted):
        rng = np.random.default_rng(0)
        scores = np.r_[rng.normal(size=500), 0.0, -0.0, 1e-300, -1e-300, np.inf, -np.inf, np.nan]
        codes, scores = rng.integers(0, 2, scores.size), margin * scores
        rows = rng.permutation(scores.size)[:-50]
        weights = rng.random(scores.size) if weighted else None
        metadata = {"sample_weight": weights} if weighted else {}
        ours = self.judge(codes, margin * THRESHOLDS, **metadata)(scores[rows, None], rows, None)
        chosen = None if weights is None else weights[rows]
        expected = [
            self.share(scores[rows], codes[rows], place, margin, chosen)
            for place in range(THRESHOLDS.size)
        ]
        assert_allclose(ours, expected, rtol=1e-12)
        assert np.ptp(ours) > 0.01

    def test_of_equals_the_one_nearest_to_zero(self):
        judged = np.full((3, 2, THRESHOLDS.size), 0.5)
        judged[1, 0, :20] = 0.9  # in one fold: up to the nineteenth
        judged[2, :, [10, 80]] = 0.7
        scores, thresholds = self.judge(np.zeros(1)).at_best(judged)
        assert_array_equal(thresholds, THRESHOLDS[[49, 19, 80]])
        assert_array_equal(scores, [[0.5, 0.5], [0.9, 0.5], [0.7, 0.7]])

    def test_scores_are_those_at_the_best_threshold(self):
        X, y = two_classes()
        weights = np.random.default_rng(1).integers(0, 3, len(y)).astype(float)
        cv = StratifiedKFold(3, shuffle=True, random_state=2)
        model = MarginPursuitClassifierCV(**GRID, cv=cv, tol=1e-9).fit(X, y, sample_weight=weights)
        assert model.threshold_ == model.cv_results_["threshold"][model.best_index_] != 0
        alone = clone(model.best_estimator_)
        shares = np.zeros((3, THRESHOLDS.size))
        for share, (train, test) in zip(shares, cv.split(X, y), strict=True):
            scores = alone.fit(X[train], y[train], weights[train]).decision_function(X[test])
            for k in range(THRESHOLDS.size):
                share[k] = self.share(scores, y[test], k, weights=weights[test])
        means = shares.mean(axis=0)
        assert_allclose(means.max(), model.best_score_, rtol=1e-12)
        assert_allclose(means[model.threshold_ == THRESHOLDS], means.max())

    def test_leverage_moves_the_intercept_and_the_threshold_moves_it_back(self):
        rng = np.random.default_rng(3)
        y = (rng.random(3000) < 0.3).astype(int)
        X = rng.normal(size=(3000, 3)) + np.outer(2 * y - 1, [1.0, 0.5, 0.0])
        bad = contaminate(X[:1500], y[:1500], leverage=0.05, random_state=0)
        model = MarginPursuitClassifierCV(
            alphas=[1e-3, 1e-5], scales=[1.0, 0.1], leverage_bound=None
        )
        ours = model.fit(bad.X, bad.y).score(X[1500:], y[1500:])
        zero = clone(model).set_params(threshold="zero").fit(bad.X, bad.y)
        assert zero.threshold_ == 0.0
        assert_array_equal(zero.intercept_, zero.best_estimator_.intercept_)
        assert ours > zero.score(X[1500:], y[1500:]) + 0.03
        assert model.best_score_ > zero.best_score_
        scores = model.best_estimator_.decision_function(X) - model.threshold_
        assert_allclose(model.decision_function(X), scores, atol=1e-12)
        # The link belongs to the moved scores.
        assert_array_equal(model.predict_proba(X).argmax(axis=1), model.predict(X))
        assert log_loss(y[1500:], model.predict_proba(X[1500:])) < log_loss(
            y[1500:], zero.predict_proba(X[1500:])
        )

    def test_its_unit_is_the_margin(self):
        X, y = two_classes()
        grid = {"alphas": [1e-1], "overconfidences": [1.0]}
        one = MarginPursuitClassifierCV(**grid, scales=[0.5], tol=1e-6).fit(X, y)
        ten = MarginPursuitClassifierCV(**grid, scales=[5.0], margin=10.0, tol=1e-6).fit(X, y)
        assert one.threshold_ != 0
        assert_allclose(ten.threshold_, 10 * one.threshold_)
        assert_array_equal(one.predict(X), ten.predict(X))

    @pytest.mark.parametrize(
        ("data", "options"),
        [
            (three_classes, {}),
            (two_classes, {"scoring": "accuracy"}),
            (two_classes, {"fit_intercept": False}),
            (two_classes, {"threshold": "zero"}),
            (two_classes, {"link": "exact"}),
            (two_classes, {"class_weight": "balanced"}),
        ],
    )
    def test_is_zero_where_it_does_not_apply(self, data, options):
        model = MarginPursuitClassifierCV(**GRID, **options).fit(*data())
        assert model.threshold_ == 0.0
        assert not model.cv_results_["threshold"].any()
        assert_array_equal(model.intercept_, model.best_estimator_.intercept_)


class TestRace:
    """Dropping settings early."""

    def test_survivors(self):
        rng = np.random.default_rng(0)
        scores = 0.9 + 0.01 * rng.normal(size=(1, 5)) + 0.002 * rng.normal(size=(6, 5))
        scores[3] -= 0.2
        left = _race.survivors(scores)
        assert 3 not in left
        assert np.argmax(scores.mean(axis=1)) in left
        assert_array_equal(_race.survivors(np.ones((4, 5))), np.arange(4))

    def test_hopeless_settings_save_none(self):
        rng = np.random.default_rng(2)
        behind = np.array([0.0, 0.0, 0.0, 0.0, 0.01] + 6 * [0.3])
        noise = np.array(5 * [1e-3] + 6 * [0.1])
        scores = 0.9 - behind[:, np.newaxis] + noise[:, np.newaxis] * rng.normal(size=(11, 5))
        left = _race.survivors(scores)
        assert 4 not in left
        assert {0, 1, 2, 3} <= set(left)

    def test_the_next_smaller_penalty_stays(self):
        settings = [_folds.Setting(a, t, 1.0) for a in (1.0, 1e-2, 1e-1) for t in (0.0, 1.0)]
        staying = _race.with_smaller_penalties(settings, np.array([0, 3]))
        assert_array_equal(staying, [0, 3, 4])  # 1 and 0.1 without, 0.01 with overconfidence

    def test_samples_keep_folds_and_classes(self):
        rng = np.random.default_rng(1)
        X, y = rng.normal(size=(40000, 3)), 1 + (rng.random(40000) < 0.002).astype(int)
        y[:15000] = 0
        model = MarginPursuitClassifierCV(**GRID)
        data = model._check_training(X, y, None)
        folds = [Fold(a, b) for a, b in StratifiedKFold(5).split(X, y)]
        few = list(_race.rounds(data, folds, np.random.RandomState(0), lambda: 11))
        contest = list(_race.rounds(data, folds, np.random.RandomState(0), lambda: 12))
        fitted = [[len(fit.train) for fit in part.fits] for part in contest]
        sizes = [2000, 8000, 16000]
        assert_allclose(fitted[:3], np.transpose([sizes, sizes]), rtol=0.02)
        assert fitted[3] == [32000] * 5
        assert [len(part.fits) for part in few] == [2, 2, 5]
        judged = [sum(len(fit.test) for fit in part.fits) for part in contest]
        assert_allclose(judged, [10000, 40000, 40000, 40000], rtol=0.02)
        for part in contest:
            assert np.count_nonzero(part.data.labels.codes == 2) >= 20
            assert_array_equal(part.judged.matrix, X[part.rows])
            where = np.flatnonzero(np.isin(X[:, 0], part.data.matrix[:, 0]))
            assert_array_equal(part.data.matrix, X[where])
            assert_array_equal(part.data.labels.codes, y[where])
            assert_allclose(part.share, np.mean([len(fit.train) for fit in part.fits]) / 32000)
            self._assert_nothing_is_seen_twice(part, where, folds)

    @staticmethod
    def _assert_nothing_is_seen_twice(part, where, folds):
        """All folds are judged, each by a fit to rows that all folds beside it train on."""
        judged = []
        for fit, lots in zip(part.fits, part.lots, strict=True):
            for fold, places in lots:
                judged += [fold]
                own = part.rows[fit.test[places]]
                assert np.isin(own, folds[fold].test).all()
                assert np.isin(where[fit.train], folds[fold].train).all()
        assert sorted(judged) == list(range(len(folds)))

    def test_folds_that_leave_too_few_rows_together_are_held_out_alone(self):
        X, y = make_classification(9000, 6, n_informative=4, n_classes=3, random_state=0)
        data = MarginPursuitClassifierCV(**GRID)._check_training(X, y, None)
        two = MarginPursuitClassifierCV(**GRID)._check_training(X, y == 0, None)
        folds = [Fold(a, b) for a, b in StratifiedKFold(5).split(X, y)]
        part = next(_race.rounds(two, folds, np.random.RandomState(0), lambda: 1))
        assert len(part.fits) == 5  # of two classes
        for splitter, n_fits in (
            (TimeSeriesSplit(5), 2),
            (ShuffleSplit(4, test_size=0.25, random_state=0), 2),
            (ShuffleSplit(10, test_size=0.5, random_state=0), 10),
            (RepeatedStratifiedKFold(n_splits=3, n_repeats=2, random_state=0), 6),
        ):
            folds = [Fold(np.sort(a), np.sort(b)) for a, b in splitter.split(X, y)]
            part = next(_race.rounds(data, folds, np.random.RandomState(0), lambda: 1))
            assert len(part.fits) == n_fits
            where = np.flatnonzero(np.isin(X[:, 0], part.data.matrix[:, 0]))
            self._assert_nothing_is_seen_twice(part, where, folds)

    def test_the_winner_stays_the_same(self):
        X, y = make_classification(
            20000, 20, n_informative=8, flip_y=0.05, class_sep=0.7, random_state=3
        )
        raced = MarginPursuitClassifierCV(alphas=[1e-2, 1e-4, 1e-6]).fit(X, y)
        whole = MarginPursuitClassifierCV(alphas=[1e-2, 1e-4, 1e-6], race=False).fit(X, y)
        assert raced.cv_results_["n_resources"].min() < 20000
        assert raced.best_score_ >= whole.best_score_ - 2e-4
        kept = raced.cv_results_["n_resources"] == 20000
        assert_allclose(
            raced.cv_results_["mean_test_score"][kept],
            whole.cv_results_["mean_test_score"][kept],
            atol=2e-3,
        )


@pytest.mark.filterwarnings("ignore:a single sample:UserWarning")
@pytest.mark.filterwarnings("ignore:The least populated class:UserWarning")
@parametrize_with_checks(
    [MarginPursuitClassifierCV(scales=[1.0, 0.3], overconfidences=[0.0, 1.0], alphas=[1e-2], cv=2)]
)
def test_scikit_learn_check(estimator, check):
    check(estimator)


@pytest.mark.skipif(
    "MARGINPURSUIT_DATA" not in os.environ, reason="MARGINPURSUIT_DATA names no folder with data"
)
@pytest.mark.parametrize(
    ("name", "positive", "n_rows"), [("cov", 2, 40000), ("protein", 1, 40000), ("digit5", 5, 9000)]
)
def test_the_race_keeps_the_winner_on_real_data(name, positive, n_rows):
    file = Path(os.environ["MARGINPURSUIT_DATA"]) / f"{name}.npz"
    if not file.exists():
        pytest.skip(f"{file.name} is not in the folder that MARGINPURSUIT_DATA names")
    with np.load(file) as stored:
        rows = np.random.default_rng(0).permutation(len(stored["y"]))[:n_rows]
        X, y = stored["X"][rows], stored["y"][rows] == positive
    raced = MarginPursuitClassifierCV(refit=False).fit(X, y)
    whole = MarginPursuitClassifierCV(refit=False, race=False).fit(X, y)
    assert raced.cv_results_["n_resources"].min() < n_rows
    assert raced.best_score_ >= whole.best_score_ - 1e-3
