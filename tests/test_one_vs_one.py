"""Kernel fits of one class against one: pairs, their coupling, predictions, weights and files."""

import pickle
import signal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_cases import compiled, each_level, needs_compiled
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.optimize import minimize
from sklearn.datasets import load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.multiclass import OneVsOneClassifier

from marginpursuit import (
    MarginPursuitClassifier,
    MarginPursuitClassifierCV,
    blocks,
    load_model,
    save_model,
)
from marginpursuit._kernels import _link
from marginpursuit._model_checks import model_error
from marginpursuit.classifiers._pairs import (
    KernelProblems,
    Pairs,
    class_scores,
    pair_scores,
)
from marginpursuit.losses import MarginLoss
from marginpursuit.solvers import Problem

pytestmark = needs_compiled

EXACT = {"alpha": 1e-3, "leverage_bound": None, "probability": None, "tol": 1e-12}


def rbf(**options):
    return MarginPursuitClassifier(kernel="rbf", **({"multi_class": "ovo", "gamma": 0.3} | options))


def three_classes(n=90, seed=0):
    """Return rows of three overlapping classes of the same size."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    centres = np.array([[0.0, 0.0], [1.5, 0.0], [0.5, 1.5]])
    return centres[y] + rng.normal(size=(n, 2)), y


# Pairs of classes


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"fit_intercept": False},
        {"overconfidence": 0.3, "rho": "pseudo_huber"},
        {"rho": "huber", "scale": 0.4, "margin": 2.0},
        {"scale": 0.05},
        {"alpha_unit": "absolute", "rho": "square"},
    ],
)
def test_pairs_are_those_of_one_vs_one_classifier(options):
    X, y = three_classes()
    own = EXACT | options
    model = rbf(**own).fit(X, y)
    # Two thirds of the rows belong to a pair: their mean loss has 3/2 of the weight.
    binary = MarginPursuitClassifier(kernel="rbf", gamma=0.3, **(own | {"alpha": 1.5e-3}))
    others = OneVsOneClassifier(binary).fit(X, y)
    expected = np.column_stack([-other.decision_function(X) for other in others.estimators_])
    assert_allclose(model._pair_scores(X), expected, atol=2e-4)
    total = sum(other.objective_ for other in others.estimators_)
    assert_allclose(model.objective_, total / 1.5, rtol=1e-6)


@each_level
@pytest.mark.parametrize("seed", range(8))
def test_newton_meets_its_tolerance(seed, level, monkeypatch):
    rng = np.random.default_rng(seed)
    X, y = three_classes(int(rng.integers(9, 200)), seed)
    loss = MarginLoss(1.0, float(rng.choice([0.1, 1.0])), float(rng.choice([0.0, 1.0])))
    gram, order = rbf_kernel(X, gamma=float(rng.choice([0.03, 3.0]))), np.argsort(y, kind="stable")
    pairs = Pairs(np.ascontiguousarray(gram[np.ix_(order, order)]), np.sort(y), 3, bool(seed % 3))
    weights = rng.uniform(0.5, 2.0, len(y))
    weights /= weights.sum()
    penalties = np.array([1e-2, 1e-3, 1e-5])
    newton = compiled.kernel_newton
    monkeypatch.setattr(
        "marginpursuit._kernels.kernel_newton", lambda *args: newton(*args, level=level)
    )
    precise = pairs.fit(weights, [loss] * 3, penalties, 1e-13, 1000)
    for tol in (1e-1, 1e-3, 1e-6):
        found = pairs.fit(weights, [loss] * 3, penalties, tol, 1000)
        assert np.all(found.solved.gaps <= tol)
        least = Problem.floor_fraction * float(loss.value(0.0)) / 2
        excess = found.solved.values - precise.solved.values
        assert np.all(excess <= tol * np.maximum(precise.solved.values, least))


def test_minimum_agrees_with_another_minimiser():
    X, y = three_classes(30)
    loss, alpha = MarginLoss(1.0, 1.0, 0.0), 1e-2
    model = rbf(**(EXACT | {"alpha": alpha})).fit(X, y)
    total = 0.0
    for a, b in ((0, 1), (0, 2), (1, 2)):
        own = (y == a) | (y == b)
        sign, gram = np.where(y[own] == a, 1.0, -1.0), rbf_kernel(X[own], gamma=0.3)

        def objective(point, sign=sign, gram=gram):
            scores = gram @ point[:-1] + point[-1]
            value = np.sum(loss.value(sign * scores)) / len(y)
            slopes = sign * loss.derivative(sign * scores) / len(y)
            gradient = gram @ (slopes + alpha * point[:-1])
            penalty = 0.5 * alpha * point[:-1] @ gram @ point[:-1]
            return value + penalty, np.append(gradient, slopes.sum())

        start = np.zeros(len(sign) + 1)
        options = {"maxiter": 10_000, "ftol": 1e-15, "gtol": 1e-10}
        total += minimize(objective, start, jac=True, method="L-BFGS-B", options=options).fun
    assert_allclose(model.objective_, total, rtol=1e-6)


def test_attributes_give_the_scores_of_pairs():
    X, y = three_classes()
    model = rbf(**EXACT).fit(X, y)
    assert model.multi_class_ == "ovo"
    assert model.dual_coef_.shape == (3, len(model.support_))
    assert model.intercept_.shape == (3,)
    assert model.n_support_.sum() == len(model.support_) < len(y)
    codes = np.repeat(np.arange(3), model.n_support_)
    assert_array_equal(y[model.support_], codes)
    assert_array_equal(model.support_vectors_, X[model.support_])
    assert np.all(model.dual_coef_ >= 0.0)
    assert_array_equal(model.dual_coef_[codes, np.arange(len(codes))], 0.0)
    kernel = rbf_kernel(X, model.support_vectors_, gamma=0.3)
    for k, (a, b) in enumerate(((0, 1), (0, 2), (1, 2))):
        of_a, of_b = codes == a, codes == b
        score = kernel[:, of_a] @ model.dual_coef_[b, of_a] + model.intercept_[k]
        score -= kernel[:, of_b] @ model.dual_coef_[a, of_b]
        assert_allclose(model._pair_scores(X)[:, k], score, atol=1e-12)


def test_missing_classes_and_classes_of_one_row():
    # A search may have a fold without a class: pairs with it have the other class, at the level.
    X, y = three_classes(30)
    order = np.argsort(y, kind="stable")
    gram = np.ascontiguousarray(rbf_kernel(X[order]))
    pairs = Pairs(gram, y[order], 3, fit_intercept=True)
    weights = np.where(y[order] == 1, 0.0, 0.05)
    found = pairs.fit(weights, [MarginLoss()], np.array([1e-3]), 1e-6, 100)
    assert_array_equal(found.intercept[0, [0, 2]], [1.0, -1.0])
    scores = pair_scores(gram, found.dual_coef, pairs.sizes, found.intercept)
    predicted = class_scores(scores, 3, 1.0)[:, 0].argmax(axis=1)
    assert set(predicted) == {0, 2}
    weights = np.where(y[order] == 0, 0.1, 0.0)
    found = pairs.fit(weights, [MarginLoss()], np.array([1e-3]), 1e-6, 100)
    assert_array_equal(found.intercept[0], [1.0, 1.0, 0.0])
    few = np.append(np.flatnonzero(y < 2), np.flatnonzero(y == 2)[:1])
    with pytest.warns(UserWarning, match="classes with a single sample"):
        model = rbf(**(EXACT | {"probability": "held_out"})).fit(X[few], y[few])
    assert_array_equal(model.predict(X[few[-1:]]), [2])


@pytest.mark.parametrize("second", ["ovo", "joint"])
def test_a_fit_of_pairs_is_no_start_of_a_later_fit(second):
    X, y = three_classes(40)
    y = np.where(np.arange(40) % 4 == 3, 3, y)  # six pairs, four scores
    model = rbf(**EXACT, warm_start=True).fit(X, y)
    again = model.set_params(multi_class=second).fit(X, y)
    expected = rbf(**EXACT).set_params(multi_class=second).fit(X, y)
    assert_array_equal(again.predict(X), expected.predict(X))


@pytest.mark.parametrize("absent", [0, 1, 3])
def test_a_class_without_weight_changes_no_other(absent):
    X, y = three_classes(40)
    y = np.where(np.arange(40) % 4 == 3, 3, y)
    kept = y != absent
    full = rbf(**EXACT).fit(X, y, sample_weight=kept.astype(float))
    part = rbf(**EXACT).fit(X[kept], y[kept])
    assert_array_equal(full.predict(X), part.predict(X))
    assert_array_equal(full.classes_, np.unique(y))


# Coupling


def logits_of(pairs):
    first, second = np.triu_indices(pairs.shape[-1], 1)
    odds = pairs[..., first, second]
    return np.ascontiguousarray(np.log(odds / (1.0 - odds)))


@pytest.mark.parametrize("n_classes", [2, 3, 6])
@pytest.mark.parametrize("coupled", [compiled and compiled.coupled, _link.coupled])
def test_coupling_is_the_minimum_of_its_objective(n_classes, coupled):
    rng = np.random.default_rng(n_classes)
    pairs = rng.uniform(0.02, 0.98, size=(5, n_classes, n_classes))
    pairs = np.triu(pairs, 1) + np.tril(1.0 - pairs.swapaxes(1, 2), -1)
    found = np.exp(coupled(logits_of(pairs), n_classes, 10.0))
    found /= found.sum(axis=1, keepdims=True)

    for r, p in zip(pairs, found, strict=True):

        def objective(p, r=r):
            differences = r.T * p[:, np.newaxis] - r * p
            return np.sum(np.triu(differences, 1) ** 2)

        constraint = {"type": "eq", "fun": lambda p: p.sum() - 1.0}
        start, bounds = np.full(n_classes, 1.0 / n_classes), [(0.0, 1.0)] * n_classes
        best = minimize(
            objective, start, bounds=bounds, constraints=constraint, options={"ftol": 1e-15}
        )
        assert_allclose(p, best.x, atol=2e-6)
        assert objective(p) <= best.fun + 1e-12


def test_consistent_pairs_return_their_probabilities():
    p = np.random.default_rng(0).dirichlet(np.ones(5), size=20)
    pairs = p[:, :, np.newaxis] / (p[:, :, np.newaxis] + p[:, np.newaxis, :])
    found = class_scores(logits_of(pairs) / 3.0, 5, 1.0)
    expected = np.log(p) - np.log(p).mean(axis=1, keepdims=True)
    assert_allclose(3.0 * found, expected, atol=1e-9)


pair_values = st.floats(-50.0, 50.0, allow_subnormal=False)


@given(st.integers(3, 6), st.data(), st.floats(0.1, 10.0))
def test_properties_of_class_scores(n_classes, data, margin):
    n_pairs = n_classes * (n_classes - 1) // 2
    values = data.draw(st.lists(pair_values, min_size=n_pairs, max_size=n_pairs))
    first, second = np.triu_indices(n_classes, 1)
    table = np.zeros((n_classes, n_classes))
    table[first, second] = values
    table -= table.T
    scores = class_scores(table[first, second], n_classes, margin)
    assert scores.shape == (n_classes,)
    assert np.all(np.isfinite(scores))
    assert abs(scores.sum()) < 1e-8 * margin
    # The names of the classes do not matter, nor does the unit of the scores.
    order = np.array(data.draw(st.permutations(range(n_classes))))
    renamed = class_scores(table[np.ix_(order, order)][first, second], n_classes, margin)
    assert_allclose(renamed, scores[order], atol=1e-7 * margin)
    assert_allclose(
        class_scores(2.0 * table[first, second], n_classes, 2.0 * margin), 2.0 * scores, rtol=1e-9
    )
    # A class that wins all its pairs clearly is the prediction.
    wins = np.all((table > 0.1 * margin) | np.eye(n_classes, dtype=bool), axis=1)
    assert not wins.any() or scores.argmax() == np.flatnonzero(wins)[0]


def test_no_rows_have_no_scores():
    assert class_scores(np.empty((0, 3)), 3, 1.0).shape == (0, 3)


# The classifier


@pytest.mark.parametrize("probability", ["held_out", "exact"])
def test_probabilities_are_inside_and_agree_with_predictions(probability):
    X, y = load_wine(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    model = rbf(gamma=0.03, probability=probability).fit(X, y)
    proba = model.predict_proba(X)
    assert proba.shape == (len(y), 3)
    assert np.all((proba > 0.0) & (proba < 1.0))
    assert_allclose(proba.sum(axis=1), 1.0, atol=1e-12)
    assert_array_equal(model.classes_[proba.argmax(axis=1)], model.predict(X))
    assert_array_equal(np.argsort(proba, axis=1), np.argsort(model.decision_function(X), axis=1))
    assert model.score(X, y) > 0.95
    if probability == "exact":
        logits = 3.0 * model._pair_scores(X)
        coupled = np.exp(_link.coupled(logits, 3, 10.0))
        assert_allclose(proba, coupled / coupled.sum(axis=1, keepdims=True), atol=1e-10)


def test_held_out_log_loss_is_that_of_the_joint_loss_or_less():
    X, y = three_classes(300)
    others, truth = three_classes(3000, seed=1)
    losses = {}
    for multi_class in ("ovo", "joint"):
        proba = rbf(multi_class=multi_class).fit(X, y).predict_proba(others)
        losses[multi_class] = -np.mean(np.log(proba[np.arange(len(truth)), truth]))
    assert losses["ovo"] < 1.03 * losses["joint"]


def test_auto_fits_pairs_where_all_rows_are_landmarks():
    X, y = three_classes()
    auto = {"multi_class": "auto"}
    assert rbf(**auto).fit(X, y).multi_class_ == "ovo"
    assert rbf(n_components=90).fit(X, y).multi_class_ == "ovo"
    assert rbf(**auto, n_components=90).fit(X, y).multi_class_ == "joint"
    assert rbf(**auto, n_components=20).fit(X, y).multi_class_ == "joint"
    assert rbf(**auto, scale="auto").fit(X, y).multi_class_ == "joint"
    assert rbf(**auto, solver="gram").fit(X, y).multi_class_ == "joint"
    assert rbf(**auto, overconfidence=1.0, solver="gram").fit(X, y).multi_class_ == "ovr"
    assert rbf(**auto, alpha_unit="common").fit(X, y).multi_class_ == "joint"
    assert rbf(**auto).fit(X, y == 1).multi_class_ == "ovr"
    assert rbf().fit(X, y == 1).multi_class_ == "ovr"
    labels = np.column_stack([y == 0, y == 1]).astype(int)
    assert rbf().fit(X, labels).predict(X).shape == labels.shape
    many = rbf(**auto)
    many._kernel_policy = type(many._kernel_policy)(max_auto_pair_rows=80)
    assert many.fit(X, y).multi_class_ == "joint"


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"kernel": "linear"}, "kernel other than 'linear'"),
        ({"n_components": 20}, "all rows as landmarks, at most 10000; got 90 rows"),
        ({"scale": "auto"}, "a number as scale; got 'auto'"),
        ({"solver": "gram"}, "solver='auto' or 'newton'; got 'gram'"),
        ({"alpha_unit": "common"}, "got 'common'"),
        ({"alpha": 0.0}, "alpha > 0; got 0.0"),
    ],
)
def test_refusals_state_the_reason(options, match):
    X, y = three_classes()
    model = MarginPursuitClassifier(**({"kernel": "rbf", "multi_class": "ovo"} | options))
    with pytest.raises(ValueError, match=match):
        model.fit(X, y)


def test_blocks_and_indefinite_kernels_are_refused(tmp_path):
    X, y = three_classes()
    np.save(tmp_path / "X.npy", X)
    rows = blocks.from_npy(tmp_path / "X.npy")
    with pytest.raises(ValueError, match=r"rows in blocks\. Load X, or set multi_class='joint'"):
        rbf().fit(rows, y)
    assert rbf(multi_class="auto", n_components=20).fit(rows, y).multi_class_ == "joint"
    indefinite = MarginPursuitClassifier(kernel=lambda a, b: -(a @ b.T), multi_class="ovo")
    with pytest.raises(ValueError, match="positive semidefinite"):
        indefinite.fit(X, y)


def test_weights_are_repetitions():
    X, y = three_classes(60)
    weights = np.random.default_rng(0).integers(0, 4, len(y))
    for options in ({}, {"alpha": 1e-3}, {"class_weight": "balanced"}):
        own = {"tol": 1e-12, "gamma": "scale"} | options
        weighted = rbf(**own).fit(X, y, sample_weight=weights)
        repeated = rbf(**own).fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
        assert weighted.alpha_ == pytest.approx(repeated.alpha_)
        scores = (model.decision_function(X) for model in (weighted, repeated))
        assert_allclose(*scores, atol=1e-5)
        assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-4)


def test_class_weights_are_weights_of_rows():
    X, y = three_classes()
    own = {"tol": 1e-12}
    by_class = rbf(class_weight={0: 3.0, 1: 1.0, 2: 0.5}, **own).fit(X, y)
    by_row = rbf(**own).fit(X, y, sample_weight=np.array([3.0, 1.0, 0.5])[y])
    assert_allclose(by_class.decision_function(X), by_row.decision_function(X), atol=1e-6)
    equal = rbf(**own).fit(X, y)
    assert np.mean(by_class.predict(X) == 0) > np.mean(equal.predict(X) == 0)


def test_order_of_rows_names_of_classes_and_kinds_of_kernels():
    X, y = three_classes()
    own = {"tol": 1e-12, "gamma": 0.3}
    model = rbf(**own).fit(X, y)
    scores = model.decision_function(X)
    order = np.random.default_rng(0).permutation(len(y))
    assert_allclose(rbf(**own).fit(X[order], y[order]).decision_function(X), scores, atol=1e-6)
    named = rbf(**own).fit(X, np.array(["c", "a", "b"])[y])
    assert_allclose(named.decision_function(X)[:, [2, 0, 1]], scores, atol=1e-6)
    rows = sparse.csr_matrix(X)
    assert_allclose(
        rbf(**own, leverage_bound=None, alpha=1e-3).fit(rows, y).decision_function(rows),
        rbf(**own, leverage_bound=None, alpha=1e-3).fit(X, y).decision_function(X),
        atol=1e-6,
    )
    gram = rbf_kernel(X, gamma=0.3)
    fixed = {"multi_class": "ovo", "alpha": 1e-3, "leverage_bound": None, "tol": 1e-12}
    for kernel, rows in (("precomputed", gram), (lambda a, b: rbf_kernel(a, b, gamma=0.3), X)):
        other = MarginPursuitClassifier(kernel=kernel, **fixed).fit(rows, y)
        expected = rbf(**fixed).fit(X, y).decision_function(X)
        assert_allclose(other.decision_function(rows), expected, atol=1e-6)


def test_units_of_the_penalty():
    X, y = three_classes()

    def product(a, b):
        return 50.0 * rbf_kernel(a, b, gamma=0.3)

    fixed = {"multi_class": "ovo", **EXACT}
    row = MarginPursuitClassifier(kernel=product, **fixed).fit(X, y)
    assert_allclose(
        row.decision_function(X), rbf(**EXACT).fit(X, y).decision_function(X), atol=1e-6
    )
    absolute = MarginPursuitClassifier(kernel=product, alpha_unit="absolute", **fixed).fit(X, y)
    same = rbf(**(EXACT | {"alpha": EXACT["alpha"] / 50.0})).fit(X, y)
    assert_allclose(absolute.decision_function(X), same.decision_function(X), atol=1e-4)


def test_files_copies_and_refits(tmp_path):
    X, y = load_iris(return_X_y=True)
    model = rbf(warm_start=True).fit(X, y)
    proba = model.predict_proba(X)
    again = load_model(save_model(model, tmp_path / "model"))
    assert_array_equal(again.predict_proba(X), proba)
    assert_array_equal(pickle.loads(pickle.dumps(model)).predict_proba(X), proba)
    assert_array_equal(model.fit(X, y).predict_proba(X), proba)
    assert model.set_params(multi_class="joint").fit(X, y).multi_class_ == "joint"
    assert not hasattr(model, "n_support_")
    again.n_support_ = again.n_support_[:2]
    assert "number of rows of each class" in model_error(again)
    again.n_support_ = np.array([1, 2, 3])
    assert "number of rows of each class" in model_error(again)
    again.n_support_, again.intercept_ = model_support(again), np.zeros(2)
    assert "intercept" in model_error(again)


def model_support(model):
    return np.array([len(model.support_) - 2, 1, 1])


def test_few_iterations_are_warned_of():
    X, y = three_classes()
    with pytest.warns(ConvergenceWarning, match="Set max_iter above 1, or tol above"):
        rbf(max_iter=1, alpha=1e-4).fit(X, y)
    search = MarginPursuitClassifierCV(kernel="rbf", max_iter=1, alphas=[1e-4], tol=1e-5)
    with pytest.warns(ConvergenceWarning, match=r"^MarginPursuitClassifierCV: the estimated"):
        search.fit(X, y)


def test_margin_statistics_are_those_of_the_class_scores():
    X, y = three_classes()
    model = rbf(**EXACT).fit(X, y)
    scores = model.decision_function(X)
    own = scores[np.arange(len(y)), y]
    scores[np.arange(len(y)), y] = -np.inf
    assert_allclose(model.margin_statistics_.mean, [np.mean(own - scores.max(axis=1))])


# The kernels


def problems(**changes):
    fields = {
        "rows": np.arange(4),
        "edges": np.array([0, 4]),
        "sign": np.array([1.0, 1.0, -1.0, -1.0]),
        "weight": np.full(4, 0.25),
        "losses": np.array([MarginLoss().kernel_parameters]),
        "penalties": np.array([0.1]),
        "has_intercept": True,
        "tol": 1e-6,
        "objective_floor": 1e-9,
        "max_iter": 50,
    }
    return KernelProblems(**(fields | changes))


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"rows": np.array([0, 1, 2, 4])}, IndexError),
        ({"edges": np.array([0, 3])}, ValueError),
        ({"edges": np.array([0, 4, 4])}, ValueError),
        ({"edges": np.array([1, 4])}, ValueError),
        ({"sign": np.ones(3)}, ValueError),
        ({"weight": np.ones(5)}, ValueError),
        ({"losses": np.ones((2, 4))}, ValueError),
        ({"penalties": np.ones(2)}, ValueError),
    ],
)
def test_kernel_checks_its_arguments(changes, error):
    own = problems(**changes)
    arrays = np.zeros((1, 4)), np.zeros((1, len(own.edges) - 1))
    with pytest.raises(error):
        compiled.kernel_newton(np.eye(4), own, *arrays, np.zeros((1, len(own.edges) - 1, 4)))


@pytest.mark.parametrize(
    "given",
    [
        (np.eye(4)[:3].copy(), np.zeros((1, 4)), np.zeros((1, 1)), np.zeros((1, 1, 4))),
        (np.eye(4), np.zeros((2, 4)), np.zeros((1, 1)), np.zeros((1, 1, 4))),
        (np.eye(4), np.zeros((1, 3)), np.zeros((1, 1)), np.zeros((1, 1, 4))),
        (np.eye(4), np.zeros((1, 4)), np.zeros((1, 2)), np.zeros((1, 1, 4))),
        (np.eye(4), np.zeros((1, 4)), np.zeros((1, 1)), np.zeros((1, 1, 3))),
    ],
)
def test_kernel_checks_its_arrays(given):
    with pytest.raises(ValueError, match="length"):
        compiled.kernel_newton(given[0], problems(), *given[1:])


@pytest.mark.parametrize(
    "given", [(np.zeros((0, 3)), 3, 1.0), (np.zeros((1, 2)), 3, 1.0), (np.zeros((1, 3)), 3, 0.0)]
)
def test_coupling_checks_its_arguments(given):
    with pytest.raises(ValueError, match=r"coupling|length"):
        compiled.coupled(*given)


@needs_compiled
@pytest.mark.parametrize(("n_rows", "n_problems"), [(80, 2000), (1500, 1)])
def test_a_signal_interrupts_between_and_within_fits(n_rows, n_problems):
    """The fit that a signal meets does not end, and those after it do not run."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(n_rows, 3))
    problems = KernelProblems(
        np.tile(np.arange(n_rows), n_problems),
        n_rows * np.arange(n_problems + 1),
        np.tile(rng.choice([-1.0, 1.0], n_rows), n_problems),
        np.full(n_rows * n_problems, 1.0 / n_rows),
        np.array([MarginLoss(1.0, 1.0, 0.0).kernel_parameters]),
        np.array([1e-3]),
        has_intercept=True,
        tol=1e-8,
        objective_floor=1e-3,
        max_iter=100,
    )
    coef, intercept = np.zeros((1, n_rows * n_problems)), np.zeros((1, n_problems))
    results = np.zeros((1, n_problems, 4))

    def interrupt(*_):
        raise InterruptedError

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        with pytest.raises(InterruptedError):
            compiled.kernel_newton(rbf_kernel(rows), problems, coef, intercept, results)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert (results[0, 0, 0] > 0.0) == (n_problems > 1)
    assert results[0, -1, 0] == 0.0


def test_columns_in_a_tiny_unit_are_refused_by_their_unit():
    X, y = load_iris(return_X_y=True)
    with pytest.raises(OverflowError, match="squares over- or underflow"):
        MarginPursuitClassifier(kernel="rbf").fit(1e-300 * X, y)
