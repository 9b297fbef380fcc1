"""Kernels of MarginPursuitClassifierCV: the choice of gamma, the refit and its predictions."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_iris, make_circles
from sklearn.metrics.pairwise import rbf_kernel

from marginpursuit import (
    MarginPursuitClassifier,
    MarginPursuitClassifierCV,
    load_model,
    save_model,
)
from marginpursuit.selection.kernel_search import (
    KernelSearch,
    default_gammas,
    replace_parameters,
)
from marginpursuit.selection.policy import SelectionPolicy
from marginpursuit.selection.search import SearchResult

SMALL = {"alphas": [0.01, 0.001], "scales": [1.0], "cv": 3}


def circles(n=150, seed=0):
    return make_circles(n, noise=0.15, factor=0.5, random_state=seed)


@pytest.fixture(scope="module")
def fitted():
    X, y = circles()
    return MarginPursuitClassifierCV(kernel="rbf", **SMALL).fit(X, y)


def test_search_finds_a_curved_boundary(fitted):
    new, truth = circles(300, seed=1)
    assert fitted.score(new, truth) > 0.9
    assert sorted(fitted.best_params_) == ["alpha", "gamma", "overconfidence", "scale"]
    assert fitted.gamma_ == fitted.best_params_["gamma"]
    assert not hasattr(fitted, "coef_")
    proba = fitted.predict_proba(new)
    assert -np.log(proba[np.arange(len(new)), truth]).mean() < 0.3
    assert fitted.out_of_fold_scores_.shape == (150,)


def test_refit_is_the_single_fit_of_the_chosen_candidate(fitted):
    X, y = circles()
    single = MarginPursuitClassifier(kernel="rbf", **fitted.best_params_, tol=1e-6).fit(X, y)
    scores = fitted.decision_function(X) + fitted.threshold_
    assert_allclose(scores, single.decision_function(X), atol=1e-3)
    assert_allclose(fitted.best_estimator_.decision_function(X), scores, atol=1e-12)


def correlation(estimator, X, y):
    predicted = estimator.predict(X)
    return np.corrcoef(predicted, y)[0, 1] if np.ptp(predicted) else np.nan


def test_values_of_gamma_without_a_score_rank_last():
    X, y = circles()
    # At γ = 10^6 no row is near another, and all predictions are equal.
    options = SMALL | {"kernel": "rbf", "scoring": correlation}
    for gammas in ([1.0, 1e6], [1e6, 1.0]):
        model = MarginPursuitClassifierCV(**options, gammas=gammas).fit(X, y)
        assert model.best_params_["gamma"] == 1.0
        results = model.cv_results_
        missing = np.isnan(results["mean_test_score"])
        assert_array_equal(missing, np.asarray(results["param_gamma"]) == 1e6)
        ranks = results["rank_test_score"]
        assert ranks[missing].min() > ranks[~missing].max()
    with pytest.raises(ValueError, match=r"^the score .*correlation.* is NaN for all candidates"):
        MarginPursuitClassifierCV(**options, gammas=[1e5, 1e6]).fit(X, y)


def test_results_list_the_candidates_of_both_steps():
    X, y = circles()
    alphas = [0.1, 0.03, 0.01, 0.003, 0.001]
    model = MarginPursuitClassifierCV(kernel="rbf", alphas=alphas, cv=3)
    model._policy = SelectionPolicy(
        gamma_factors=(0.1, 1.0, 10.0),
        gamma_components=40,
        search_components=100,
        max_final_candidates=1,
    )
    results = model.fit(X, y).cv_results_
    gammas, sizes = np.asarray(results["param_gamma"]), results["n_components"]
    assert len(np.unique(gammas)) == 3
    # The best candidate of two values of gamma, and the next smaller penalty if there is one, have
    # more landmarks.
    for gamma in np.unique(gammas[sizes == 100]):
        own = sizes[gammas == gamma].tolist()
        assert sorted(own) in ([40, 40, 40, 100, 100], [40, 40, 40, 40, 100])
    assert len(np.unique(gammas[sizes == 100])) == 2
    assert sizes[model.best_index_] == 100
    assert results["rank_test_score"][model.best_index_] == 1
    scores = results["mean_test_score"]
    assert scores[model.best_index_] == scores[sizes == 100].max() == model.best_score_
    assert results["params"][model.best_index_] == model.best_params_
    tried = {(p["gamma"], p["alpha"]) for p in results["params"]}
    assert len(tried) == len(gammas) == 15
    assert set(results["param_scale"]) == {1.0}


@pytest.mark.parametrize(("n_classes", "expected"), [(2, 100), (3, 60), (5, 40)])
def test_several_classes_have_fewer_landmarks(n_classes, expected):
    X, _ = circles()
    policy = SelectionPolicy(
        gamma_components=40, search_components=100, max_search_coefficients=180
    )
    model = MarginPursuitClassifier(kernel="rbf")
    data = model._check_training(X, np.arange(150) % n_classes, None)
    assert KernelSearch(model, data, [], print, policy)._sizes() == (40, expected)


def test_one_candidate_has_one_step():
    X, y = circles()
    model = MarginPursuitClassifierCV(kernel="rbf", gammas=[2.0], alphas=[0.01], cv=3)
    results = model.fit(X, y).cv_results_
    assert results["n_components"].tolist() == [150]


def test_refit_starts_at_the_fold_fits(monkeypatch):
    X, y = circles()
    starts = []
    fit = MarginPursuitClassifier._fit

    def record(self, data, start=None, *rest, **options):
        starts.append(start)
        fit(self, data, start, *rest, **options)

    monkeypatch.setattr(MarginPursuitClassifier, "_fit", record)
    model = MarginPursuitClassifierCV(kernel="rbf", **SMALL).fit(X, y)
    ((coef, intercept),) = starts
    # The mean of the fits to two thirds of the rows is close to the fit to all.
    mapped, _ = model.best_estimator_._mapped(model.best_estimator_._check_training(X, y, None))
    started = (mapped.matrix @ coef)[:, 0] + intercept
    scores = model.best_estimator_.decision_function(X)
    assert np.corrcoef(started, scores)[0, 1] > 0.95


def test_gamma_is_the_one_with_the_best_score():
    X, y = circles()
    gammas = [1e-6, 2.0, 1e5]
    model = MarginPursuitClassifierCV(kernel="rbf", gammas=gammas, **SMALL).fit(X, y)
    assert model.best_params_["gamma"] == 2.0
    only = MarginPursuitClassifierCV(kernel="rbf", gammas=[1e-6], **SMALL).fit(X, y)
    assert only.best_score_ < model.best_score_
    assert set(only.cv_results_["param_gamma"]) == {1e-6}


def test_default_gammas_do_not_change_with_outliers():
    X, y = circles()
    far = X.copy()
    far[::20] *= 100.0
    policy = SelectionPolicy()
    model = MarginPursuitClassifier()
    clean, contaminated = (
        default_gammas(model._check_training(rows, y, None), "rbf", policy) for rows in (X, far)
    )
    assert_allclose(contaminated, clean, rtol=0.3)
    wide = np.random.default_rng(0).standard_normal((400, 50))
    data = model._check_training(wide, np.arange(400) % 2, None)
    for kernel in ("rbf", "poly"):
        assert_allclose(default_gammas(data, kernel, policy)[3], 1 / 50, rtol=0.1)


@pytest.mark.parametrize("kernel", ["poly", "precomputed", "function"])
def test_other_kernels(kernel):
    X, y = circles()
    options = {"degree": 2, "coef0": 1.0, **SMALL}
    if kernel == "precomputed":
        X = rbf_kernel(X, gamma=2.0)
    given = (lambda a, b: rbf_kernel(a, b, gamma=2.0)) if kernel == "function" else kernel
    model = MarginPursuitClassifierCV(kernel=given, **options).fit(X, y)
    assert model.score(X, y) > 0.9
    assert ("gamma" in model.best_params_) == (kernel == "poly")
    assert model.__sklearn_tags__().input_tags.pairwise == (kernel == "precomputed")


@pytest.mark.parametrize("multi_class", ["joint", "ovo"])
def test_several_classes_sparse_rows_labels_and_weights(multi_class):
    X, y = load_iris(return_X_y=True)
    weights = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    several = {"kernel": "rbf", "multi_class": multi_class, **SMALL}
    dense = MarginPursuitClassifierCV(**several).fit(X, y, weights)
    assert dense.multi_class_ == multi_class
    assert dense.dual_coef_.shape[0] == 3
    rows = sparse.csr_matrix(X)
    other = MarginPursuitClassifierCV(**several).fit(rows, y, weights)
    assert_allclose(other.decision_function(rows), dense.decision_function(X), atol=1e-5)
    labels = np.column_stack([y == 0, y == 1]).astype(int)
    by_label = MarginPursuitClassifierCV(**several).fit(X, labels)
    assert by_label.predict(X).shape == labels.shape
    assert np.mean(by_label.predict(X) == labels) > 0.9


def test_copies_and_files(fitted, tmp_path):
    X, _ = circles()
    assert_array_equal(
        pickle.loads(pickle.dumps(fitted)).decision_function(X), fitted.decision_function(X)
    )
    again = load_model(save_model(fitted, tmp_path / "model"))
    assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))
    assert clone(fitted).get_params() == fitted.get_params()


def test_landmarks_far_from_the_rows_of_a_subsample():
    # K(x, x') of a far row is about 1e-195 for the next ones and zero for others. All rows are
    # landmarks. A rung with a quarter of the rows lacks some landmarks and has their neighbours.
    X, y = circles(400)
    far = np.arange(0, 400, 20)
    X[far] = 30.0 * np.arange(1, 21)[:, np.newaxis] + X[far]
    model = MarginPursuitClassifierCV(kernel="rbf", gammas=[0.25], **SMALL)
    model._policy = SelectionPolicy(min_rung_rows=50, min_rows_per_column=0)
    model.fit(X, y)
    near = np.setdiff1d(np.arange(400), far)
    assert model.score(X[near], y[near]) > 0.9


def test_squares_of_kernel_values_that_underflow_are_refused():
    X, y = circles()
    values = 1e-300 * rbf_kernel(X, gamma=2.0)
    for estimator in (MarginPursuitClassifier(), MarginPursuitClassifierCV(**SMALL)):
        estimator.set_params(kernel="precomputed", alpha_unit="absolute")
        with pytest.raises(OverflowError, match="squares over- or underflow"):
            estimator.fit(values, y)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gammas": [0.0]}, "gammas must be"),
        ({"alpha_unit": "standardised"}, "needs kernel='linear'"),
        ({"kernel": "precomputed"}, "square matrix"),
        ({"kernel": "cosine"}, "kernel must be one of"),
    ],
)
def test_unusable_parameters_are_refused(options, message):
    X, y = circles()
    with pytest.raises(ValueError, match=message):
        MarginPursuitClassifierCV(**{"kernel": "rbf", **options}).fit(X, y)


def test_the_best_candidate_of_the_first_step_is_continued():
    X, y = circles()
    model = MarginPursuitClassifierCV(kernel="rbf", gammas=[2.0], alphas=[0.003, 100.0], cv=3)
    model._policy = SelectionPolicy(gamma_components=40, search_components=100)
    results = model.fit(X, y).cv_results_
    sizes = dict(zip(results["param_alpha"], results["n_components"].tolist(), strict=True))
    assert sizes == {0.003: 100, 100.0: 40}


def test_one_gamma_whose_landmarks_are_all_rows_has_one_step():
    X, y = circles()
    evaluated = []

    def evaluate(mapped, candidates, limits):
        is_last = limits == SelectionPolicy().kernel_last_stopping
        evaluated.append((mapped.matrix.shape[0], len(candidates), is_last))
        raise InterruptedError

    model = MarginPursuitClassifier(kernel="rbf")
    data = model._check_training(X, y, None)
    grid = [{"alpha": a, "scale": 1.0, "overconfidence": 0.0} for a in (0.1, 0.01)]
    cases = {
        (200, 200): (grid, [2.0], True),
        (40, 100): (grid, [2.0], False),
        (20, 100): (grid[:1], [2.0], True),
        (150, 150): (grid, [1.0, 2.0], False),
    }
    for (few, more), (own, gammas, is_last) in cases.items():
        policy = SelectionPolicy(gamma_components=few, search_components=more)
        with pytest.raises(InterruptedError):
            KernelSearch(model, data, own, evaluate, policy).run(gammas)
        assert evaluated.pop() == (150, len(own), is_last)


def test_default_gammas_of_distances_and_of_norms():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((300, 20)) + 5.0
    model, policy = MarginPursuitClassifier(), SelectionPolicy(gamma_factors=(1.0,))
    data = model._check_training(rows, np.arange(300) % 2, None)
    distances = np.square(rows[:, None] - rows).sum(axis=2)
    median = np.median(distances[np.triu_indices(300, 1)])
    assert_allclose(default_gammas(data, "rbf", policy), 2.0 / median, rtol=1e-9)
    norms = np.median(np.square(rows).sum(axis=1))
    for kernel in ("poly", rbf_kernel):
        assert_allclose(default_gammas(data, kernel, policy), 1.0 / norms, rtol=1e-9)


def test_last_step_decides_and_the_refit_starts_at_its_fits():
    X, y = circles()
    model = MarginPursuitClassifier(kernel="rbf")
    data = model._check_training(X, y, None)
    grid = [{"alpha": a, "scale": 1.0, "overconfidence": 0.0} for a in (1.0, 0.1, 0.01)]
    calls = []

    def evaluate(mapped, candidates, limits):
        is_last = limits == SelectionPolicy().kernel_last_stopping
        # alpha = 0.1 is the best in the first step, 0.01 in the last. γ = 2, the second call, is
        # better than γ = 1 in the first step; γ = 1, the fourth call, in the last.
        means = [-c.alpha if is_last else float(c.alpha == 0.1) for c in candidates]
        scores = np.array(means)[:, None] + np.array([-0.01, 0.01]) + 2.0 * (len(calls) in (1, 3))
        calls.append(is_last)
        n, best = len(candidates), int(scores.mean(axis=1).argmax())
        start = (np.full((mapped.matrix.shape[1], 1), float(len(calls))), np.zeros(1))
        unused = np.zeros((150, 1))
        return SearchResult(
            *(scores, np.zeros(n), np.full(n, 150), best, start, 0.0, None, unused, unused),
            *(1.0, False),
        )

    policy = SelectionPolicy(gamma_components=20, search_components=50)
    found = KernelSearch(model, data, grid, evaluate, policy).run([1.0, 2.0])
    assert calls == [False, False, True, True]
    chosen = found.params[found.result.best]
    assert (chosen["gamma"], chosen["alpha"]) == (1.0, 0.01)
    assert found.n_components[found.result.best] == 50
    assert found.result.n_passes == 4.0
    assert found.start is not None
    # The coefficients of the start are those of the evaluation that decided, the fourth.
    own = replace_parameters(model, chosen["gamma"], n_components=50)
    mapped, _ = own._mapped(data)
    assert_allclose(found.start.scores, mapped.matrix @ np.full((mapped.matrix.shape[1], 1), 4.0))


def test_equal_rows_have_the_factors_as_gammas():
    model, policy = MarginPursuitClassifier(), SelectionPolicy()
    data = model._check_training(np.ones((6, 2)), np.arange(6) % 2, None)
    assert default_gammas(data, "rbf", policy) == list(policy.gamma_factors)


@pytest.mark.parametrize("classes", [2, 3])
def test_kernels_that_are_not_positive_semidefinite_are_named(classes):
    """Two classes have kernel features, three are fitted one against one."""
    X, y = load_iris(return_X_y=True)
    rows = y < classes
    with pytest.raises(ValueError, match="kernel='sigmoid' must be positive semidefinite on X"):
        MarginPursuitClassifierCV(kernel="sigmoid").fit(X[rows], y[rows])


def test_kernels_that_are_not_finite_or_not_symmetric_are_named():
    X, y = load_iris(return_X_y=True)
    with pytest.raises(OverflowError, match="kernel values exceed the largest float"):
        MarginPursuitClassifierCV(kernel="rbf", leverage_bound=None).fit(X * 1e200, y)
    kernel = X @ X.T + 100.0 * np.triu(np.ones((150, 150)))
    with pytest.raises(ValueError, match=r"kernel must be symmetric; .* differ by up to"):
        MarginPursuitClassifierCV(kernel="precomputed").fit(kernel, y)
