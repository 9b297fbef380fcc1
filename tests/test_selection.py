"""The search: the same results as scikit-learn's, in shared passes over the data."""

import ast
import io
import itertools
import pickle
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from searches import (
    GRID,
    grid_search,
    rare_column,
    sparse_rows,
    three_classes,
    two_classes,
    wide,
)
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.metrics import make_scorer, roc_auc_score
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    PredefinedSplit,
    RepeatedStratifiedKFold,
    ShuffleSplit,
    StratifiedKFold,
)
from sklearn.utils.estimator_checks import parametrize_with_checks

from marginpursuit import MarginPursuitClassifier, MarginPursuitClassifierCV, selection
from marginpursuit.classifiers._shared import LinearClassifier

DATA = {f.__name__: f for f in (two_classes, three_classes, sparse_rows, wide, rare_column)}


@pytest.mark.parametrize("unit", ["absolute", "standardised", "common"])
@pytest.mark.parametrize("data", DATA)
def test_equals_grid_search(data, unit):
    X, y = DATA[data]()
    cv = StratifiedKFold(4, shuffle=True, random_state=0)
    # The log-loss depends on every score, the accuracy on signs alone.
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
        reference = grid_search(X, y, unit=unit, cv=cv, scoring=scoring)
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


def area_under_roc(estimator, X, y):
    assert X.shape == (len(y), 30)
    return roc_auc_score(y, estimator.decision_function(X))


GROUPS = np.arange(200) % 5
FIVE = np.arange(200) // 7 % 5 - 1  # fold -1 is never held out

SPLITTERS = {
    "KFold": KFold(3, shuffle=True, random_state=0),
    "GroupKFold": GroupKFold(3),
    "ShuffleSplit": ShuffleSplit(2, test_size=0.3, random_state=1),
    "RepeatedStratifiedKFold": RepeatedStratifiedKFold(n_splits=2, n_repeats=2, random_state=0),
    "PredefinedSplit": PredefinedSplit(FIVE),
}

SCORERS = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced_accuracy",
    "roc_auc": "roc_auc",
    "neg_log_loss": "neg_log_loss",
    "callable": area_under_roc,
    "make_scorer": make_scorer(roc_auc_score, response_method="decision_function"),
}


@pytest.mark.parametrize("scorer", SCORERS)
@pytest.mark.parametrize("splitter", SPLITTERS)
def test_every_scorer_and_splitter_equals_grid_search(scorer, splitter):
    X, y = two_classes()
    cv, scoring = SPLITTERS[splitter], SCORERS[scorer]
    groups = GROUPS if splitter == "GroupKFold" else None
    ours = MarginPursuitClassifierCV(
        **GRID, alpha_unit="standardised", cv=cv, scoring=scoring, tol=1e-9, link="exact"
    ).fit(X, y, groups=groups)
    theirs = grid_search(X, y, unit="standardised", cv=cv, scoring=scoring, groups=groups)
    assert ours.n_splits_ == theirs.n_splits_
    for k in range(ours.n_splits_):
        name = f"split{k}_test_score"
        assert_allclose(ours.cv_results_[name], theirs.cv_results_[name], rtol=2e-3, atol=2e-3)
    assert_allclose(ours.score(X, y), theirs.score(X, y), atol=2e-3 + 5 / len(y))


@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64", "float16", "float32"])
def test_every_dtype_gives_the_results_of_float64(dtype, convert):
    X, y = three_classes()
    X = np.abs(np.rint(3 * X))
    expected = MarginPursuitClassifierCV(**GRID, cv=3, scoring="neg_log_loss", tol=1e-6)
    if dtype == "float16" and convert is sparse.csr_matrix:
        pytest.skip("SciPy has no sparse matrices of float16")
    ours = clone(expected).fit(convert(X.astype(dtype)), y)
    expected.fit(convert(X), y)
    assert ours.best_params_ == expected.best_params_
    scores = [each.cv_results_["mean_test_score"] for each in (ours, expected)]
    assert_allclose(*scores, rtol=1e-4)


@pytest.mark.parametrize("class_weight", [None, "balanced", {"a": 3.0, "c": 0.5}])
def test_weights_equal_grid_search(class_weight):
    X, y = three_classes()
    weights = np.random.default_rng(0).integers(0, 4, len(y)).astype(float)
    cv = ShuffleSplit(3, test_size=0.3, random_state=1)
    model = MarginPursuitClassifierCV(
        **GRID, alpha_unit="absolute", cv=cv, tol=1e-9, class_weight=class_weight
    ).fit(X, y, sample_weight=weights)
    reference = grid_search(
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


def test_the_input_is_checked_once(monkeypatch):
    """The refit uses the checked data; the single-sample warning is given once."""
    calls, check = [], LinearClassifier._check_training

    def counted(self, *arguments):
        calls.append(type(self).__name__)
        return check(self, *arguments)

    monkeypatch.setattr(LinearClassifier, "_check_training", counted)
    X, y = three_classes()
    model = MarginPursuitClassifierCV(**GRID, cv=3).fit(X, y)
    assert calls == ["MarginPursuitClassifierCV"]
    best = model.best_estimator_
    assert best.n_features_in_ == X.shape[1]
    assert_array_equal(best.classes_, model.classes_)
    assert_array_equal(best.predict(X), model.predict(X))
    assert best.leverage_bound == model.leverage_bound


def test_the_search_uses_the_shared_names_of_classifiers():
    """Public estimators, and the names of one internal interface."""
    allowed = {"marginpursuit.classifiers", "marginpursuit.classifiers._shared"}
    for path in Path(selection.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            module = getattr(node, "module", None) or ""
            if isinstance(node, ast.ImportFrom) and module.startswith("marginpursuit.classifiers"):
                assert module in allowed, path.name


def test_feature_names_reach_the_refit():
    pandas = pytest.importorskip("pandas")
    X, y = two_classes()
    table = pandas.DataFrame(X, columns=[f"column {k}" for k in range(X.shape[1])])
    model = MarginPursuitClassifierCV(**GRID, cv=3).fit(table, y)
    assert_array_equal(model.best_estimator_.feature_names_in_, table.columns)
    model.best_estimator_.predict(table)  # which warns if it has no names


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
    within = [
        tuple(p.values())
        for p, mean in zip(results["params"], results["mean_test_score"], strict=True)
        if mean >= best.best_score_ - error
    ]
    assert tuple(simple.best_params_.values()) == max(within)


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
    assert model.margin_statistics_.mean.shape == (1 if model.multi_class_ == "joint" else 3,)
    again = pickle.loads(pickle.dumps(model))
    assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert_array_equal(
        model.cv_results_["mean_test_score"],
        clone(model).set_params(n_threads=3).fit(X, y).cv_results_["mean_test_score"],
    )


@pytest.mark.parametrize("n_missing", [0, 5])  # folds where the scorer returns NaN
def test_progress_bar(capsys, monkeypatch, n_missing):
    X, y = two_classes()
    calls = itertools.count()

    def scorer(estimator, X, y):
        return np.nan if next(calls) < n_missing else estimator.score(X, y)

    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr("sys.stderr", terminal)
    MarginPursuitClassifierCV(**GRID, verbose=1, scoring=scorer).fit(X, y)
    assert capsys.readouterr().out == ""
    assert "8 candidates on 200 rows" in terminal.getvalue()
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
        ("successive_halving", 1),
    ],
)
def test_bad_parameters(name, value):
    X, y = two_classes()
    with pytest.raises(ValueError, match=f"{name} must be"):
        MarginPursuitClassifierCV(**{name: value}).fit(X, y)


def test_the_default_penalties_of_sparse_data_follow_the_number_of_rows():
    X, y = two_classes()
    model = MarginPursuitClassifierCV(scales=[1.0], overconfidences=[0.0], cv=2)
    smallest = [
        min(model.fit(rows, y).cv_results_["param_alpha"]) for rows in (X, sparse.csr_matrix(X))
    ]
    assert smallest == pytest.approx([3e-3 / len(y), 0.01 / len(y)])


def test_the_default_overconfidences_of_sparse_data_are_zero():
    X, y = two_classes()
    model = MarginPursuitClassifierCV(scales=[1.0], alphas=[1e-2], cv=2)
    values = [
        set(model.fit(rows, y).cv_results_["param_overconfidence"])
        for rows in (X, sparse.csr_matrix(X))
    ]
    assert values == [{0.0, 1.0}, {0.0}]


def test_rows_without_weight_have_no_influence():
    """Even with values beyond float32, in which fits with a loose tolerance are made."""
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
    with pytest.raises(
        ValueError, match="fold 0 has training samples of 1 classes and 3 test samples"
    ):
        MarginPursuitClassifierCV(cv=[(one, np.arange(3))]).fit(X, y)
    X[3, 4] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        MarginPursuitClassifierCV().fit(X, y)


@pytest.mark.parametrize("unit", [1e-200, 1e200])
def test_units_whose_squares_overflow_or_underflow(unit):
    X, y = two_classes()
    expected = MarginPursuitClassifierCV(**GRID, cv=3).fit(X, y)
    ours = MarginPursuitClassifierCV(**GRID, cv=3).fit(X * unit, y)
    assert ours.best_params_ == expected.best_params_
    assert_array_equal(ours.predict(X * unit), expected.predict(X))
    with pytest.raises(OverflowError, match="squares over- or underflow"):
        MarginPursuitClassifierCV(**GRID, alpha_unit="absolute").fit(X * unit, y)


@pytest.mark.parametrize("estimator", [MarginPursuitClassifier, MarginPursuitClassifierCV])
def test_one_factor_does_not_rescale_columns_of_different_magnitude(estimator):
    X, y = two_classes()
    X = np.hstack([X, 1e200 * X[:, :1]])
    with pytest.raises(OverflowError, match="its largest absolute value"):
        estimator(alpha_unit="row").fit(X, y)


@pytest.mark.filterwarnings("ignore:classes with a single sample:UserWarning")
@pytest.mark.filterwarnings("ignore:The least populated class:UserWarning")
@parametrize_with_checks(
    [MarginPursuitClassifierCV(scales=[1.0, 0.3], overconfidences=[0.0, 1.0], alphas=[1e-2], cv=2)]
)
def test_scikit_learn_check(estimator, check):
    check(estimator)


def test_weights_are_repeated_rows_where_folds_keep_copies_together():
    X, y = load_iris(return_X_y=True)
    weights = np.random.default_rng(0).integers(0, 4, len(y))
    rows = np.repeat(np.arange(len(y)), weights)
    folds = list(StratifiedKFold(3).split(X, y))
    repeated = [tuple(np.flatnonzero(np.isin(rows, part)) for part in fold) for fold in folds]
    small = {"scales": (0.3, 1.0), "overconfidences": (0.0,)}
    weighted = MarginPursuitClassifierCV(cv=folds, **small).fit(X, y, weights)
    copies = MarginPursuitClassifierCV(cv=repeated, **small).fit(X[rows], y[rows])
    assert_allclose(list(weighted.best_params_.values()), list(copies.best_params_.values()))
    scores = (model.cv_results_["mean_test_score"] for model in (weighted, copies))
    assert_allclose(*scores, rtol=1e-12)
    assert_allclose(weighted.coef_, copies.coef_, rtol=1e-6)
