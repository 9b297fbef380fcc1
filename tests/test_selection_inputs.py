"""The search on blocks, Dask and device arrays: the choice of data in memory, in bounded memory."""

import itertools
import tracemalloc
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from searches import rungs, two_classes, with_policy
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GroupKFold, KFold, ShuffleSplit

from marginpursuit import MarginPursuitClassifierCV
from marginpursuit._namespaces import to_numpy
from marginpursuit.blocks import Blocks, from_npy
from marginpursuit.classifiers._link import FittedLink
from marginpursuit.selection.policy import SelectionPolicy

# Below a tolerance of 1e-4, rows in memory are swept in float64 too.
# One solver for rows in memory and elsewhere: two solvers differ by their tolerance.
GRID = {
    "scales": [2.0, 0.5],
    "overconfidences": [0.0, 1.0],
    "alphas": [1e-1, 1e-3],
    "tol": 5e-5,
    "solver": "gram",
}


def narrow():
    X, y = make_classification(300, 8, n_informative=5, n_classes=3, flip_y=0.2, random_state=0)
    return X + 3.0, np.array(["a", "b", "c"])[y]


def wide():
    return make_classification(60, 90, n_informative=10, random_state=1)


def long():
    """Enough rows for a rung with a subsample."""
    return make_classification(9000, 6, flip_y=0.1, random_state=2)


def blocks(X):
    """Three blocks, one of which is empty."""
    third = X.shape[0] // 3
    spans = slice(0, third), slice(0, 0), slice(third, None)
    return Blocks([partial(X.__getitem__, span) for span in spans])


def on_dask(X):
    return pytest.importorskip("dask.array").from_array(X, chunks=(len(X) // 4, 5))


def elsewhere(X):
    strict = pytest.importorskip("array_api_strict")
    return strict.asarray(np.array(X), device=strict.Device("device1"))


def in_torch(X):
    """A tensor of a dtype that NumPy lacks, on a GPU if there is one."""
    torch = pytest.importorskip("torch")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.asarray(X, device=device).to(torch.bfloat16)


def assert_same_choice(ours, expected, rtol=1e-9):
    assert ours.best_params_ == expected.best_params_
    for name in ("mean_test_score", "std_test_score", "split1_test_score"):
        assert_allclose(ours.cv_results_[name], expected.cv_results_[name], rtol=rtol, atol=rtol)
    assert_array_equal(ours.cv_results_["n_resources"], expected.cv_results_["n_resources"])
    assert_allclose(ours.link_.slopes, expected.link_.slopes, rtol=1e3 * rtol)
    # The fit to all rows ends where its tolerance of 1e-6 of the objective is met.
    assert_allclose(ours.coef_, expected.coef_, rtol=1e-3, atol=1e-4 * abs(expected.coef_).max())


@pytest.mark.parametrize("data", [narrow, wide, long])
@pytest.mark.parametrize("kind", [blocks, on_dask, elsewhere])
def test_the_choice_is_that_in_memory(data, kind):
    X, y = data()
    model = MarginPursuitClassifierCV(**GRID, cv=3, scoring="neg_log_loss")
    expected = model.fit(X, y)
    assert (min(expected.cv_results_["n_resources"]) < len(y)) == (data is long)
    ours = MarginPursuitClassifierCV(**model.get_params()).fit(kind(X), y)
    # Subsamples in memory are swept in float32, which moves the scores of eliminated candidates.
    assert_same_choice(ours, expected, rtol=1e-7 if data is long else 1e-9)
    # Blocks yield the mean and the Gram matrix in one pass.
    assert expected.n_passes_ - 6 <= ours.n_passes_ <= expected.n_passes_
    assert_array_equal(to_numpy(ours.predict(kind(X[:12]))), expected.predict(X[:12]))


def test_sparse_blocks():
    X, y = narrow()
    rows = sparse.csr_matrix(np.where(abs(X) > 3, X, 0))
    expected = MarginPursuitClassifierCV(**GRID, cv=3).fit(rows, y)
    ours = MarginPursuitClassifierCV(**GRID, cv=3).fit(blocks(rows), y)
    assert ours.alpha_unit_ == "row"
    assert_same_choice(ours, expected, rtol=1e-7)


@pytest.mark.parametrize("data", [narrow, wide])
def test_tensors(data):
    X, y = data()
    X = in_torch(X)
    expected = MarginPursuitClassifierCV(**GRID, cv=3).fit(X.float().cpu().numpy(), y)
    assert_same_choice(MarginPursuitClassifierCV(**GRID, cv=3).fit(X, y), expected, rtol=1e-4)


@pytest.mark.parametrize("kind", [on_dask, elsewhere])
@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_labels_weights_and_groups_are_where_the_rows_are(kind, class_weight):
    X, y = make_classification(200, 6, random_state=3)
    weights, groups = np.arange(200) % 3 + 0.5, np.arange(200) % 4
    model = MarginPursuitClassifierCV(**GRID, cv=GroupKFold(4), class_weight=class_weight)
    expected = model.fit(X, y, sample_weight=weights, groups=groups)
    there = [kind(values[:, np.newaxis])[:, 0] for values in (y, weights, groups)]
    ours = MarginPursuitClassifierCV(**model.get_params())
    ours.fit(kind(X), there[0], sample_weight=there[1], groups=there[2])
    assert_same_choice(ours, expected)


@pytest.mark.parametrize("kind", [blocks, elsewhere])
def test_splitters_see_shapes_and_scorers_the_rows_as_they_are(kind):
    X, y = narrow()
    seen = []

    class Splitter(ShuffleSplit):
        def split(self, X, y=None, groups=None):
            assert X.shape == (300, 8)
            return super().split(X, y, groups)

    def scorer(estimator, X, y):
        seen.append(X.gather() if kind is blocks else to_numpy(X))
        return float(np.mean(estimator.predict(X) == y))

    cv = Splitter(2, test_size=50, random_state=0)
    model = MarginPursuitClassifierCV(**GRID, cv=cv, scoring=scorer, successive_halving=False)
    ours, theirs = model.fit(kind(X), y), [np.sort(test) for _, test in cv.split(X, y)]
    assert len(seen) == 16
    assert all(any(np.array_equal(rows, X[test]) for test in theirs) for rows in seen)
    plain = MarginPursuitClassifierCV(**GRID, cv=cv).fit(X, y)
    assert_allclose(ours.cv_results_["mean_test_score"], plain.cv_results_["mean_test_score"])


def test_columns_without_finite_squares():
    X, y = narrow()
    expected = MarginPursuitClassifierCV(**GRID, cv=3).fit(X, y)
    for kind in (blocks, elsewhere):
        ours = MarginPursuitClassifierCV(**GRID, cv=3).fit(kind(X * 1e200), y)
        assert ours.best_params_ == expected.best_params_
        # One of the two starts from the fits to folds, and both meet the tolerance.
        assert_allclose(ours.coef_ * 1e200, expected.coef_, atol=1e-3 * abs(expected.coef_).max())


@pytest.mark.parametrize("data", [narrow, wide])
def test_little_memory_takes_more_passes_for_the_same_choice(data):
    X, y = data()
    model = MarginPursuitClassifierCV(**GRID, cv=3, scoring="neg_log_loss")
    expected = model.fit(X, y)
    # Two paths and folds at a time, and wide data are not loaded.
    ours = with_policy(clone(model), max_state_bytes=5000).fit(blocks(X), y)
    assert ours.n_passes_ > 1.5 * expected.n_passes_
    # Tasks that are solved with fewer others keep more L-BFGS pairs, and end elsewhere within tol.
    assert_same_choice(ours, expected, rtol=5e-4)


@pytest.mark.parametrize("kind", [np.asarray, blocks, sparse.csr_matrix])
@pytest.mark.parametrize(
    ("max_elements", "sizes"),
    [
        (1 << 25, [1500, 6000]),  # 2/3 of 2250 and 9000: the training rows of 3 folds
        (6 * 2100, [1400, 6000]),
        (6 * 1999, [6000]),  # fewer rows than the smallest rung
    ],
)
def test_subsamples_are_bounded(kind, max_elements, sizes):
    X, y = long()
    X = kind(X)
    model = MarginPursuitClassifierCV(**GRID, cv=3)
    data = model._check_training(X, y, None)
    folds = model._split(data, {}, {})
    drawn = rungs(data, folds, SelectionPolicy(max_rung_elements=max_elements))
    for rung in drawn[:-1]:
        assert rung.fitted.matrix.size <= max_elements
        assert rung.scored.matrix is X or rung.scored.matrix.size <= max_elements
    assert_allclose([len(rung.fits[0].train) for rung in drawn], sizes, rtol=0.01)


def test_blocks_are_loaded_once_per_pass(monkeypatch):
    """And once to find their shape, to be checked, and to draw the subsample."""
    X, y = long()
    loads = []
    whole = Blocks([lambda: loads.append(1) or X], [9000])
    ours = MarginPursuitClassifierCV(**GRID, cv=3).fit(whole, y)
    counted = MarginPursuitClassifierCV(**GRID, cv=3)
    read = []
    monkeypatch.setattr(
        "marginpursuit.selection.search.FoldFits.__exit__",
        lambda self, *_: read.append(self.n_passes),
    )
    counted.fit(X, y)
    in_subsamples = 0.25 * read[0]
    assert len(loads) == ours.n_passes_ - in_subsamples + 3


def test_wide_blocks_are_loaded_once_for_all_folds():
    X, y = wide()
    loads = []
    ours = MarginPursuitClassifierCV(**GRID).fit(Blocks([lambda: loads.append(1) or X], [60]), y)
    assert len(loads) < 10 + ours.best_estimator_.n_passes_ < ours.n_passes_


def test_the_link_is_fitted_to_every_kth_out_of_fold_score():
    X, y = narrow()
    cv = ShuffleSplit(3, test_size=100, random_state=0)
    grid = GRID | {"scales": [0.5], "overconfidences": [1.0], "alphas": [1e-3]}
    model = MarginPursuitClassifierCV(**grid, cv=cv, leverage_bound=None)
    ours = with_policy(clone(model), max_link_rows=43).fit(X, y)  # every seventh of 300
    fit, codes, scores = clone(ours.best_estimator_), [], []
    for train, test in cv.split(X, y):
        held_out = np.sort(test)
        scores.append(fit.fit(X[train], y[train]).decision_function(X[held_out]))
        codes.append(np.searchsorted(ours.classes_, y[held_out]))
    scores, codes = np.concatenate(scores)[::7], np.concatenate(codes)[::7]
    expected, _ = FittedLink.fit(scores, codes, np.full(43, 7.0), 1.0, max_rows=43)
    assert_allclose(ours.link_.slopes, expected.slopes, rtol=1e-2)
    assert not np.allclose(ours.link_.slopes, model.fit(X, y).link_.slopes, rtol=1e-1)


def test_memory_is_a_few_blocks_and_some_numbers_per_row(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 200)).astype(np.float32)
    y = (X[:, 0] + rng.normal(size=len(X)) > 0).astype(int)
    np.save(tmp_path / "X.npy", X)
    del X
    rows = from_npy(tmp_path / "X.npy", block_bytes=1 << 20)
    model = MarginPursuitClassifierCV(scales=[1.0], alphas=[1e-3], cv=2, n_threads=1)
    with_policy(model, max_rung_elements=200 * 2500)
    tracemalloc.start()
    model.fit(rows, y)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 15e6 < 20_000 * 200 * 4


@pytest.mark.parametrize("kind", [blocks, on_dask, elsewhere])
def test_missing_values_are_named(kind):
    X, y = narrow()
    X[205, 4] = np.nan
    where = {blocks: "row 105 of block 2", on_dask: "row 55 of block 2", elsewhere: "row 205"}[kind]
    with pytest.raises(ValueError, match=f"NaN: MarginPursuitClassifierCV.*column 4, {where}"):
        MarginPursuitClassifierCV().fit(kind(X), y)


def test_wrong_lengths_are_refused():
    X, y = narrow()
    for kind in (blocks, elsewhere):
        with pytest.raises(ValueError, match="inconsistent numbers of samples"):
            MarginPursuitClassifierCV().fit(kind(X), y[1:])


@pytest.mark.filterwarnings("ignore:classes with a single sample:UserWarning")
@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ((3, 3), r"^cv=5 needs .*a and b, have 3 and 3\. Set cv to a smaller number"),
        ((60, 1), r"needs two classes .*a and b, have 60 and 1\. Add samples of another class"),
    ],
)
def test_classes_with_few_samples_are_refused_with_advice_that_helps(sizes, words):
    X, y = np.random.default_rng(0).normal(size=(sum(sizes), 3)), np.repeat(["a", "b"], sizes)
    with pytest.raises(ValueError, match=words):
        MarginPursuitClassifierCV().fit(X, y)
    if min(sizes) > 1:
        MarginPursuitClassifierCV(cv=min(sizes)).fit(X, y)


def test_iterators_are_refused_as_candidates():
    X, y = narrow()
    for name in ("scales", "alphas", "overconfidences"):
        with pytest.raises(ValueError, match=f"{name} must be a sequence"):
            MarginPursuitClassifierCV(**{name: iter([1.0])}).fit(X, y)


@pytest.mark.parametrize(
    ("scoring", "kind", "words"),
    [
        (lambda *_: np.nan, ValueError, "is NaN for all candidates"),
        (["accuracy", "f1"], ValueError, "one scorer"),
        (lambda *_: None, TypeError, "the scorer <lambda> returned None; expected a number"),
        (lambda *_: np.ones(2), TypeError, r"the scorer <lambda> returned array\(\[1"),
    ],
)
def test_scorers_without_a_number_are_refused(scoring, kind, words):
    X, y = narrow()
    with pytest.raises(kind, match=words):
        MarginPursuitClassifierCV(scoring=scoring).fit(X, y)


@pytest.mark.filterwarnings("ignore:invalid value encountered in subtract")  # NumPy's deviation
def test_a_scorer_of_minus_infinity_leaves_the_first_candidate():
    X, y = narrow()
    grid, options = GRID | {"solver": "auto"}, {"rule": "one-standard-error"}
    model = MarginPursuitClassifierCV(**grid, **options, scoring=lambda *_: -np.inf).fit(X, y)
    assert model.best_index_ == 0
    assert model.best_score_ == -np.inf


@pytest.mark.filterwarnings("ignore:Only one class is present in y_true")
@pytest.mark.parametrize("rule", ["best", "one-standard-error"])
def test_folds_of_one_class_are_named_where_a_scorer_is_undefined(rule):
    X, y = two_classes()
    order = np.argsort(y, kind="stable")
    model = MarginPursuitClassifierCV(**GRID | {"cv": KFold(5)}, scoring="roc_auc", rule=rule)
    words = (
        r"the score roc_auc_score is NaN for all candidates in the mean over the folds: it is NaN "
        r"in \d of 5 folds, \[0, .*\]; expected a number in each\. .* StratifiedKFold"
    )
    with pytest.raises(ValueError, match=words):
        model.fit(X[order], y[order])


@pytest.mark.parametrize("rule", ["best", "one-standard-error"])
def test_candidates_without_a_score_rank_last(rule):
    X, y = narrow()
    calls = itertools.count()

    def scorer(estimator, X, y):
        call = next(calls)
        return np.nan if call % 5 == 0 and call < 20 else np.mean(estimator.predict(X) == y)

    model = MarginPursuitClassifierCV(**GRID, scoring=scorer, rule=rule).fit(X, y)
    means, ranks = (model.cv_results_[f"{name}_test_score"] for name in ("mean", "rank"))
    is_missing = np.isnan(means)
    assert 0 < np.count_nonzero(is_missing) < len(means)
    assert ranks[is_missing].min() > ranks[~is_missing].max()
    assert model.best_score_ == means[model.best_index_]
    if rule == "best":
        assert model.best_score_ == np.nanmax(means)
        assert ranks[model.best_index_] == 1


def test_a_search_without_refit_says_so():
    X, y = narrow()
    model = MarginPursuitClassifierCV(**GRID).fit(X, y)
    model.set_params(refit=False).fit(X, y)
    assert not hasattr(model, "margin_statistics_")  # those of the fit before
    for method in (model.predict, model.predict_proba, model.decision_function):
        with pytest.raises(NotFittedError, match="set refit=True"):
            method(X)
