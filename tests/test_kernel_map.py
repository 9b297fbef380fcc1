"""Kernels of MarginPursuitClassifier: exact fits, Nyström features, inputs and files."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import optimize, sparse
from sklearn.base import clone
from sklearn.datasets import load_iris, make_blobs, make_moons
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV

from marginpursuit import (
    MarginPursuitClassifier,
    MarginPursuitClassifierCV,
    load_model,
    save_model,
)
from marginpursuit.classifiers._kernel_map import KernelMap
from marginpursuit.classifiers._landmarks import KernelPolicy, landmarks
from marginpursuit.datasets import contaminate
from marginpursuit.losses import MarginLoss
from marginpursuit.model_files import ModelFileError

PRECISE = {"tol": 1e-12, "leverage_bound": None}


def moons(n=80, seed=0):
    return make_moons(n, noise=0.3, random_state=seed)


def product(rows, others):
    return np.asarray(rows @ others.T)


def minimum(kernel, penalty, sign, weights, loss, alpha):
    """Minimise Σ c φ(y (K a + b)) + α/2 aᵀQa over a and b by SciPy; return value, a and b.

    Newton's method with the exact Hessian, from the formulas of the loss alone.
    """

    def value(point):
        scores = kernel @ point[:-1] + point[-1]
        return weights @ loss.value(sign * scores) + 0.5 * alpha * point[:-1] @ penalty @ point[:-1]

    def gradient(point):
        slopes = weights * sign * loss.derivative(sign * (kernel @ point[:-1] + point[-1]))
        return np.append(kernel.T @ slopes + alpha * penalty @ point[:-1], slopes.sum())

    found = optimize.minimize(
        value,
        np.zeros(kernel.shape[1] + 1),
        jac=gradient,
        method="BFGS",
        options={"gtol": 1e-10, "maxiter": 20000},
    )
    return found.fun, found.x[:-1], found.x[-1]


@pytest.mark.parametrize("overconfidence", [0.0, 0.5])
@pytest.mark.parametrize("n_components", [None, 12])
def test_fit_minimises_the_kernel_objective(n_components, overconfidence):
    X, y = moons(40)
    weights = np.random.default_rng(1).uniform(0.5, 2.0, 40)
    alpha, gamma = 0.01, 5.0
    model = MarginPursuitClassifier(
        kernel="rbf",
        gamma=gamma,
        n_components=n_components,
        alpha=alpha,
        overconfidence=overconfidence,
        scale=1.5,
        **PRECISE,
    ).fit(X, y, weights)
    rows = X if n_components is None else model.support_vectors_
    assert len(rows) == (n_components or 40)
    loss = MarginLoss(1.0, 1.5, overconfidence)
    value, coef, intercept = minimum(
        rbf_kernel(X, rows, gamma=gamma),
        rbf_kernel(rows, rows, gamma=gamma),
        2.0 * y - 1.0,
        weights / weights.sum(),
        loss,
        alpha,
    )
    assert_allclose(model.objective_, value, rtol=1e-9)
    others, _ = moons(30, seed=2)
    expected = rbf_kernel(others, rows, gamma=gamma) @ coef + intercept
    assert_allclose(model.decision_function(others), expected, atol=1e-4)


@pytest.mark.parametrize("target", ["binary", "joint", "labels"])
def test_inner_products_as_kernel_are_the_linear_fit(target):
    X, y = load_iris(return_X_y=True)
    y = {"binary": y == 1, "joint": y, "labels": y[:, np.newaxis] >= np.array([1, 2])}[target]
    options = {"alpha": 0.01, "alpha_unit": "absolute", "multi_class": "joint", **PRECISE}
    linear = MarginPursuitClassifier(**options).fit(X, y)
    kernel = MarginPursuitClassifier(kernel=product, **options).fit(X, y)
    assert kernel.dual_coef_.shape == (len(linear.coef_), 4)  # the rank of the rows
    assert not hasattr(kernel, "coef_")
    assert_allclose(kernel.objective_, linear.objective_, rtol=1e-8)
    assert_allclose(kernel.decision_function(X), linear.decision_function(X), atol=1e-4)
    assert_array_equal(kernel.predict(X), linear.predict(X))
    found, expected = (np.asarray(m.predict_proba(X)) for m in (kernel, linear))
    assert_allclose(found, expected, atol=2e-3)


@pytest.mark.parametrize("n_components", [None, 20])
def test_precomputed_kernel_is_the_named_one(n_components):
    X, y = moons()
    new, _ = moons(30, seed=1)
    options = {"n_components": n_components, "alpha": 0.01, **PRECISE}
    named = MarginPursuitClassifier(kernel="rbf", gamma=0.5, **options).fit(X, y)
    given = MarginPursuitClassifier(kernel="precomputed", **options)
    given.fit(rbf_kernel(X, X, gamma=0.5), y)
    assert given.n_features_in_ == 80
    scores = given.decision_function(rbf_kernel(new, X, gamma=0.5))
    expected = named.decision_function(new)
    # The landmarks depend on the content of X, which is another for a precomputed kernel.
    assert_allclose(scores, expected, atol=1e-6 if n_components is None else 0.5)
    assert np.mean((scores > 0) == (expected > 0)) > 0.9


def test_landmarks_depend_on_the_content_of_the_rows():
    X, y = moons(200)
    weights = np.random.default_rng(0).integers(0, 3, 200)
    order = np.random.default_rng(1).permutation(weights.sum())
    options = {"kernel": "rbf", "n_components": 25, "alpha": 0.001, "tol": 1e-10}
    weighted = MarginPursuitClassifier(**options).fit(X, y, weights)
    repeated = MarginPursuitClassifier(**options)
    repeated.fit(np.repeat(X, weights, axis=0)[order], np.repeat(y, weights)[order])
    assert_array_equal(
        np.sort(weighted.support_vectors_[:, 0]), np.sort(repeated.support_vectors_[:, 0])
    )
    new, _ = moons(50, seed=3)
    assert_allclose(weighted.decision_function(new), repeated.decision_function(new), atol=1e-5)
    assert_allclose(weighted.predict_proba(new), repeated.predict_proba(new), atol=1e-3)
    assert np.all(weights[weighted.support_] > 0)


def test_repeated_rows_are_not_landmarks():
    X, y = moons(40)
    X, y = np.vstack([X, X]), np.append(y, y)
    data = MarginPursuitClassifier(kernel="rbf")._check_training(X, y, None)
    assert len(landmarks(data, 60, KernelPolicy())) == 40
    model = MarginPursuitClassifier(kernel="rbf", gamma=3.0).fit(X, y)
    assert len(model.support_) == 40


def test_many_rows_have_nystrom_features_by_default():
    policy = KernelPolicy(max_exact_rows=50, n_components=20)
    assert policy.n_landmarks(50, None) == 50
    assert policy.n_landmarks(51, None) == 20
    assert policy.n_landmarks(51, 30) == 30
    assert policy.n_landmarks(10, 30) == 10


@pytest.mark.parametrize("margin", [1.0, 40.0])
@pytest.mark.parametrize("target", ["binary", "joint", "ovr", "labels"])
def test_support_vectors_as_landmarks_are_the_exact_fit(target, margin):
    X, y = make_blobs(300, centers=3, cluster_std=1.0, random_state=0)
    y = {"binary": y == 1, "labels": y[:, np.newaxis] >= np.array([1, 2])}.get(target, y)
    weights = np.random.default_rng(0).integers(0, 3, 300)
    options = {"kernel": "rbf", "gamma": 0.3, "alpha": 1e-4, "tol": 1e-10, "probability": None}
    options |= {"margin": margin, "scale": margin}
    options["multi_class"] = target if target in ("joint", "ovr") else "auto"
    direct = MarginPursuitClassifier(**options).fit(X, y, weights)
    model = MarginPursuitClassifier(**options)
    model._kernel_policy = KernelPolicy(n_components=10, min_support_rows=100)
    model.fit(X, y, weights)
    assert len(model.support_) < 0.7 * np.count_nonzero(weights)
    assert_allclose(model.objective_, direct.objective_, rtol=1e-8)
    assert_allclose(model.decision_function(X), direct.decision_function(X), atol=1e-3 * margin)


def test_features_have_the_kernel_as_inner_products():
    X, _ = moons(60)
    policy = KernelPolicy(block_elements=100)  # several blocks
    gram = rbf_kernel(X, gamma=2.0)
    some = np.arange(0, 60, 2)
    found = KernelMap.of(lambda a, b, dtype=float: gram[np.ix_(a, b)], 60, some, policy)
    assert set(found.landmarks) <= set(some)
    projected = gram[:, some] @ np.linalg.pinv(gram[np.ix_(some, some)]) @ gram[some]
    assert_allclose(found.features @ found.features.T, projected, atol=1e-6)


@pytest.mark.parametrize("kernel", ["rbf", "poly"])
def test_many_features_are_in_single_precision(kernel):
    X, y = moons(400)
    options = {"kernel": kernel, "coef0": 1.0, "n_components": 30, "alpha": 1e-3, "gamma": 2.0}
    double = MarginPursuitClassifier(**options).fit(100.0 + X if kernel == "rbf" else X, y)
    single = MarginPursuitClassifier(**options)
    single._kernel_policy = KernelPolicy(max_double_elements=1, block_elements=1000)
    single.fit(100.0 + X if kernel == "rbf" else X, y)
    rows = 100.0 + X if kernel == "rbf" else X
    assert_allclose(single.decision_function(rows), double.decision_function(rows), atol=0.02)
    assert_allclose(single.objective_, double.objective_, rtol=1e-3)


@pytest.mark.parametrize("kernel", ["rbf", "poly"])
def test_sparse_and_single_precision_rows(kernel):
    X, y = moons()
    X = np.round(X, 2)
    options = {"kernel": kernel, "coef0": 1.0, "n_components": 30, "alpha": 0.01, "tol": 1e-10}
    dense = MarginPursuitClassifier(**options).fit(X, y)
    for rows in (sparse.csr_matrix(X), sparse.csr_array(X)):
        other = MarginPursuitClassifier(**options).fit(rows, y)
        assert sparse.issparse(other.support_vectors_)
        assert_allclose(other.decision_function(rows), dense.decision_function(X), atol=1e-6)
    single = MarginPursuitClassifier(**options).fit(X.astype(np.float32), y)
    assert_allclose(single.decision_function(X), dense.decision_function(X), atol=1e-3)


def test_probabilities_of_a_curved_boundary():
    X, y = moons(600)
    new, truth = moons(600, seed=1)
    linear = MarginPursuitClassifier().fit(X, y)
    model = MarginPursuitClassifier(kernel="rbf").fit(X, y)
    assert model.score(new, truth) > linear.score(new, truth) + 0.03
    proba = model.predict_proba(new)
    assert_allclose(proba.sum(axis=1), 1.0)
    likelihood = proba[np.arange(len(truth)), truth]
    assert -np.log(likelihood).mean() < 0.3


def test_leverage_of_rows_with_a_large_kernel_value_is_bounded():
    X, y = moons(200)
    far, labels = np.vstack([X, [[20.0, -20.0]]]), np.append(y, 0)
    options = {"kernel": "poly", "degree": 2, "coef0": 1.0, "gamma": 1.0, "alpha": 0.01}
    clean = MarginPursuitClassifier(**options).fit(X, y).decision_function(X)
    bounded = MarginPursuitClassifier(**options).fit(far, labels).decision_function(X)
    options["leverage_bound"] = None
    free = MarginPursuitClassifier(**options).fit(far, labels).decision_function(X)
    assert np.abs(bounded - clean).mean() < 0.5 * np.abs(free - clean).mean()


def unbalanced(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 10))
    return X, (np.square(X[:, :3]).sum(axis=1) < 0.6).astype(int)


def test_rows_far_from_the_others_have_less_weight_under_rbf():
    X, y = unbalanced(400, 0)
    bad = contaminate(X, y, leverage=0.05, random_state=0)
    options = {"kernel": "rbf", "gamma": 0.1, "alpha": 1e-3, "probability": None}
    shifts = {}
    for bound in (None, 1.0):
        model = MarginPursuitClassifier(leverage_bound=bound, **options)
        clean, contaminated = (model.fit(*data).intercept_ for data in ((X, y), (bad.X, bad.y)))
        shifts[bound] = abs(clean[0] - contaminated[0])
    assert shifts[None] > 0.8
    assert shifts[1.0] < 0.5 * shifts[None]
    mapped, _ = model._mapped(model._check_training(bad.X, bad.y, None))
    weights = mapped.weights / mapped.weights.max()
    ordinary = ~bad.leverage & (bad.y == y)
    assert weights[bad.leverage].max() < 0.4 < np.median(weights[ordinary])


def test_distances_below_the_rounding_error_of_the_mean_are_zero():
    X, y = unbalanced(60, 0)
    X[:, :] = 1e6 + 0.1
    model = MarginPursuitClassifier(kernel="rbf", gamma=1.0)
    mapped, _ = model._mapped(model._check_training(X, y, None))
    assert_allclose(mapped.weights, 1 / 60, rtol=1e-12)


def test_unit_of_the_kernel_does_not_change_a_fit_with_bounded_leverage():
    """The fit by c K is that by K, also where a row exceeds the bound."""
    X, y = moons(60)
    X, y = np.vstack([X, [[20.0, -20.0]]]), np.append(y, 0)
    kernel = (X @ X.T + 1.0) ** 2
    options = {"kernel": "precomputed", "alpha": 0.01, "tol": 1e-10}
    free = MarginPursuitClassifier(**options, leverage_bound=None).fit(kernel, y)
    one = MarginPursuitClassifier(**options).fit(kernel, y).decision_function(kernel)
    small = kernel / 1024
    other = MarginPursuitClassifier(**options).fit(small, y).decision_function(small)
    assert np.abs(free.decision_function(kernel) - one)[:60].mean() > 0.05
    assert_allclose(other, one, rtol=1e-5, atol=1e-5)


def test_names_texts_copies_and_grid_search():
    pandas = pytest.importorskip("pandas")
    X, y = moons()
    frame, labels = pandas.DataFrame(X, columns=["a", "b"]), np.array(["no", "yes"])[y]
    model = MarginPursuitClassifier(kernel="rbf", n_components=20).fit(frame, labels)
    assert model.feature_names_in_.tolist() == ["a", "b"]
    assert set(model.predict(frame)) == {"no", "yes"}
    copied = pickle.loads(pickle.dumps(model))
    assert_array_equal(copied.decision_function(frame), model.decision_function(frame))
    assert clone(model).get_params() == model.get_params()
    assert "2 columns and 2 classes" in model.summary()
    gram = rbf_kernel(X)
    search = GridSearchCV(MarginPursuitClassifier(kernel="precomputed"), {"alpha": [0.1, 0.01]})
    assert search.fit(gram, y).score(gram, y) > 0.8


def test_model_file_holds_the_expansion(tmp_path):
    X, y = load_iris(return_X_y=True)
    for rows, kernel in ((X, "rbf"), (sparse.csr_matrix(X), "poly"), (X @ X.T, "precomputed")):
        model = MarginPursuitClassifier(kernel=kernel, n_components=30).fit(rows, y)
        again = load_model(save_model(model, tmp_path / "model"))
        assert_array_equal(again.decision_function(rows), model.decision_function(rows))
        assert_array_equal(again.predict_proba(rows), model.predict_proba(rows))
    with pytest.raises(ModelFileError, match="'kernel' does not fit in a file"):
        save_model(MarginPursuitClassifier(kernel=product).fit(X, y), tmp_path / "model")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("dual_coef_", np.zeros(3), "shape"),
        ("dual_coef_", np.full((1, 20), np.nan), "not finite"),
        ("support_vectors_", np.zeros((3, 2)), "does not have the 20 rows"),
        ("support_vectors_", np.full((20, 2), np.nan), "rows of its expansion are not finite"),
        ("gamma_", -1.0, "gamma"),
        ("intercept_", np.zeros(2), "intercept"),
    ],
)
def test_altered_expansions_are_not_loaded(name, value, message, tmp_path):
    model = MarginPursuitClassifier(kernel="rbf", n_components=20).fit(*moons())
    setattr(model, name, value)
    with pytest.raises(ModelFileError, match=message):
        save_model(model, tmp_path / "model")


@pytest.mark.parametrize(
    ("options", "rows", "message"),
    [
        ({"kernel": "cosine"}, None, "kernel must be one of"),
        ({"kernel": "rbf", "n_components": 0}, None, "n_components must be a whole number >= 1"),
        ({"kernel": "rbf", "gamma": 0.0}, None, "gamma must be"),
        ({"kernel": "rbf", "alpha_unit": "standardised"}, None, "needs kernel='linear'"),
        ({"kernel": "precomputed"}, None, r"square matrix .* got shape \(80, 2\)"),
        ({"kernel": "precomputed"}, -np.eye(80), "positive semidefinite"),
        ({"kernel": "precomputed"}, np.arange(6400.0).reshape(80, 80), "must be symmetric"),
        ({"kernel": "sigmoid", "gamma": 1.0, "coef0": -1.0}, None, "positive semidefinite"),
        ({"kernel": lambda a, b: np.zeros(3)}, None, r"must return real numbers of shape"),
        ({"kernel": lambda a, b: np.nan * (a @ b.T)}, None, "must return numbers; got NaN"),
        ({"kernel": "rbf"}, np.full((80, 2), np.nan), "contains NaN"),
    ],
)
def test_unusable_kernels_are_refused(options, rows, message):
    X, y = moons()
    with pytest.raises(ValueError, match=message):
        MarginPursuitClassifier(**options).fit(X if rows is None else rows, y)


@pytest.mark.parametrize("estimator", [MarginPursuitClassifier, MarginPursuitClassifierCV])
@pytest.mark.parametrize(("kernel", "value"), [("rbf", 1.0), ("poly", 0.0)])
def test_equal_rows_have_the_score_of_the_intercept(kernel, value, estimator):
    X, y = np.full((60, 2), value), np.arange(60) % 3 == 0
    model = estimator(kernel=kernel).fit(X, y)
    assert_array_equal(model.predict(X), np.zeros(60, dtype=bool))
    # The linear fit has nothing but an intercept either.
    expected = estimator().fit(X, y).predict_proba(X)
    assert_allclose(model.predict_proba(X), expected, atol=1e-2)


@pytest.mark.parametrize("estimator", [MarginPursuitClassifier, MarginPursuitClassifierCV])
def test_rows_beyond_the_largest_float_are_refused(estimator):
    X, y = moons()
    with pytest.raises(OverflowError, match="distances of the rows from their mean are not finite"):
        estimator(kernel="rbf").fit(1e200 * X, y)


def test_predictions_check_the_columns():
    X, y = moons()
    model = MarginPursuitClassifier(kernel="rbf").fit(X, y)
    with pytest.raises(ValueError, match="features"):
        model.predict(np.ones((3, 5)))
    with pytest.raises(ValueError, match="NaN"):
        model.predict(np.full((3, 2), np.nan))
    assert not hasattr(model, "partial_fit")


@pytest.mark.parametrize("kernel", ["rbf", "precomputed"])
def test_warm_start_continues_from_the_scores_of_the_previous_fit(kernel):
    X, y = moons(200)
    rows = rbf_kernel(X, gamma=2.0) if kernel == "precomputed" else X
    options = {"gamma": 2.0, "alpha": 1e-4, "solver": "lbfgs", "probability": None, "tol": 1e-5}
    cold = MarginPursuitClassifier(kernel=kernel, **options).fit(rows, y)
    warm = MarginPursuitClassifier(kernel=kernel, warm_start=True, **options).fit(rows, y)
    assert warm.n_iter_ == cold.n_iter_
    warm.fit(rows, y)
    assert warm.n_iter_ < 0.5 * cold.n_iter_
    assert_allclose(warm.decision_function(rows), cold.decision_function(rows), atol=2e-2)


def test_warm_start_of_other_data_classes_and_kernels():
    X, y = moons(200)
    model = MarginPursuitClassifier(kernel="rbf", warm_start=True, alpha=1e-3, gamma=50.0)
    model.fit(X, y)
    changes = (
        ({}, X[:, :1], y),
        ({}, X, y + (X[:, 0] > 1)),
        ({"gamma": 0.01}, X, y),  # the scores of γ = 50 have a large norm here
        ({"kernel": "linear"}, X, y),
        ({"kernel": "poly", "gamma": 1.0}, X, y),
    )
    for options, rows, labels in changes:
        model.set_params(**options).fit(rows, labels)
        cold = clone(model).set_params(warm_start=False).fit(rows, labels)
        assert_allclose(model.objective_, cold.objective_, rtol=1e-5)


def test_warm_start_after_another_kind_of_kernel():
    X, y = moons(80)
    gram = rbf_kernel(X)
    model = MarginPursuitClassifier(kernel="precomputed", warm_start=True).fit(gram, y)
    assert model.set_params(kernel="rbf").fit(gram, y).score(gram, y) > 0.8
    assert model.set_params(kernel="precomputed").fit(gram, y).score(gram, y) > 0.8


@pytest.mark.parametrize("estimator", [MarginPursuitClassifier, MarginPursuitClassifierCV])
def test_origin_of_the_columns_does_not_change_rbf(estimator):
    X, y = moons()
    options = {"gamma": 2.0} if estimator is MarginPursuitClassifier else {"gammas": [0.2, 2.0]}
    X = np.round(64 * X) / 64  # exact with the offset
    near, far = (estimator(kernel="rbf", **options).fit(rows, y) for rows in (X, X + 2.0**20))
    assert_allclose(far.decision_function(X + 2.0**20), near.decision_function(X), atol=1e-6)


def test_default_penalty():
    X, y = moons(60)
    model = MarginPursuitClassifier(kernel="rbf", solver="lbfgs").fit(X, y)
    assert_allclose(model.alpha_, 0.1 / 60)
    chosen = MarginPursuitClassifier(kernel="rbf").fit(X, y)  # the solver is "gram"
    assert np.any(np.isclose(60 * chosen.alpha_, [1 / 30, 0.1, 1 / 3, 1.0]))


def test_checkpoint_of_a_kernel_fit_is_removed(tmp_path):
    X, y = moons()
    path = tmp_path / "fit.npz"
    model = MarginPursuitClassifier(kernel="rbf", checkpoint=path, solver="lbfgs").fit(X, y)
    assert not path.exists()
    assert model.score(X, y) > 0.8


@pytest.mark.parametrize("divisor", [1.0, 2.0, 3.0])
def test_kernel_values_are_divided(divisor):
    X, _ = moons(20)
    model = MarginPursuitClassifier(kernel=product)
    some, others = np.arange(4), np.arange(4, 20)
    found = model._kernel_of_rows(X, divisor, some, others)
    assert_allclose(found, X[some] @ X[others].T / divisor, rtol=1e-14)


@pytest.mark.parametrize("policy", [KernelPolicy(), KernelPolicy(max_double_elements=1)])
def test_one_row_very_far_away_changes_no_other_score(policy):
    X, y = moons(300)
    far = np.vstack([X, [[1e8, 1e8]]])
    options = {"kernel": "rbf", "gamma": 1.0, "alpha": 1e-3, "n_components": 60}
    scores = []
    for rows, labels in ((X, y), (far, np.append(y, 0))):
        model = MarginPursuitClassifier(**options, probability=None)
        model._kernel_policy = policy
        scores.append(model.fit(rows, labels).decision_function(X))
    assert_allclose(scores[1], scores[0], atol=0.1)
