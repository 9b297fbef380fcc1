"""Pegasos against its steps written out, the exact support vector machine, and its own theory."""

import pickle
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.optimize import minimize
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.preprocessing import scale
from sklearn.svm import SVC, LinearSVC

from marginpursuit import PegasosClassifier, _kernels
from marginpursuit.design import MemoryDesign
from marginpursuit.solvers.kernel_descent import KernelStorage
from marginpursuit.solvers.stochastic_steps import RowSampler, StoppingCriterion, canonical_order

CANCER = scale(load_breast_cancer().data), load_breast_cancer().target
IRIS = scale(load_iris().data), load_iris().target

needs_compiled = pytest.mark.skipif(
    _kernels._compiled is None, reason="so many steps take long without the compiled kernels"
)


class InBlocks(PegasosClassifier):
    """Computes a few rows of the kernel matrix at a time."""

    _kernel_storage = KernelStorage(max_cached=0, block=1 << 12)


def objective(X, y, w, alpha, weights=None):
    """Return the mean hinge and the penalty; y in {0, 1}."""
    hinge = np.maximum(0, 1 - np.where(y == 1, 1, -1) * (X @ w))
    return np.average(hinge, weights=weights) + alpha / 2 * w @ w


def exact(X, y, alpha, weights=None):
    """Return the minimum without intercept, from liblinear."""
    weights = np.ones(len(y)) if weights is None else weights / np.mean(weights)
    svc = LinearSVC(
        C=1 / (alpha * len(y)), loss="hinge", fit_intercept=False, tol=1e-8, max_iter=10**6
    )
    return objective(X, y, svc.fit(X, y, sample_weight=weights).coef_[0], alpha, weights)


def drawn(X, y, weights, seed, n):
    """Return the rows that a seed stands for."""
    codes, random = np.unique(y, return_inverse=True)[1], np.random.default_rng(seed)
    order = canonical_order(MemoryDesign(X), codes, random)
    return RowSampler(weights / weights.sum(), random, order).sample(n)


def by_hand(X, sign, alpha, rows, *, k=1, project=False, average=False, free=False):
    """Take the steps of the Pegasos article; X has its column of ones, if there is to be one.

    With `free`, that column, the last, neither shrinks nor is projected.
    """
    w, points = np.zeros(X.shape[1]), []
    body = slice(0, X.shape[1] - free)
    for t in range(1, len(rows) // k + 1):
        batch = rows[(t - 1) * k : t * k]
        violators = [i for i in batch if sign[i] * (X[i] @ w) < 1]
        step = sum((sign[i] * X[i] for i in violators), np.zeros(X.shape[1])) / (alpha * t * k)
        w[body] *= 1 - 1 / t
        w = w + step
        if project and np.any(w[body]):
            w[body] *= min(1, 1 / (np.sqrt(alpha) * np.linalg.norm(w[body])))
        points.append(w.copy())
    return np.mean(points, axis=0) if average else w


ONE = np.ones((150, 1))
SETTINGS = [
    {"project": project, "average": average, "batch_size": k}
    for project in (False, True)
    for average in (False, True)
    for k in (1, 4)
]


class TestSteps:
    @pytest.mark.parametrize("setting", SETTINGS, ids=str)
    @pytest.mark.parametrize("intercept", ["none", "penalised", "free"])
    @pytest.mark.parametrize("as_matrix", [np.asarray, sparse.csr_array])
    def test_every_class(self, setting, intercept, as_matrix):
        X, y = IRIS
        weights = np.random.default_rng(0).integers(0, 4, 150).astype(float)
        model = PegasosClassifier(
            alpha=0.1,
            fit_intercept=intercept != "none",
            penalise_intercept=intercept == "penalised",
            max_iter=200,
            random_state=7,
            **setting,
        ).fit(as_matrix(X), y, sample_weight=weights)
        k = setting["batch_size"]
        rows = drawn(X, y, weights, 7, 200 * k)
        options = {"k": k, "project": setting["project"], "average": setting["average"]}
        for label in range(3):
            sign = np.where(y == label, 1.0, -1.0)
            design = X if intercept == "none" else np.hstack([X, ONE])
            wanted = by_hand(design, sign, 0.1, rows, free=intercept == "free", **options)
            assert_allclose(model.coef_[label], wanted[:4], rtol=1e-8, atol=1e-9)
            b = 0.0 if intercept == "none" else wanted[4]
            assert_allclose(model.intercept_[label], b, rtol=1e-8, atol=1e-9)
        assert model.n_iter_ == 200

    @pytest.mark.parametrize("average", [False, True])
    def test_checkpoints(self, average):
        X, y = IRIS
        marks = [0, 1, 5, 300]
        model = PegasosClassifier(
            alpha=0.1, max_iter=300, average=average, checkpoints=marks, random_state=0
        ).fit(X, y)
        assert model.coef_path_.shape == (4, 3, 4)
        assert_array_equal(model.coef_path_[0], 0)
        for k, steps in enumerate(marks[1:], start=1):
            short = PegasosClassifier(
                alpha=0.1, max_iter=steps, average=average, random_state=0
            ).fit(X, y)
            assert_allclose(model.coef_path_[k], short.coef_, rtol=1e-10)
            assert_allclose(model.intercept_path_[k], short.intercept_, rtol=1e-10)

    def test_partial_fit_goes_on_where_it_was(self):
        X, y = IRIS
        random = np.random.default_rng(3)
        model = PegasosClassifier(alpha=0.1, fit_intercept=False, batch_size=2, random_state=3)
        rows = []
        for part in (np.arange(0, 150, 2), np.arange(1, 150, 2)):
            model.partial_fit(X[part], y[part], classes=[0, 1, 2])
            order = canonical_order(MemoryDesign(X[part]), y[part], random)
            rows.append(part[RowSampler(np.full(75, 1 / 75), random, order).sample(76)])
        wanted = by_hand(X, np.where(y == 2, 1.0, -1.0), 0.1, np.concatenate(rows), k=2)
        assert_allclose(model.coef_[2], wanted, rtol=1e-9)
        assert model.n_iter_ == 76

    def test_a_copy_goes_on_as_the_original(self):
        X, y = IRIS
        model = PegasosClassifier(random_state=0, average=True, max_iter=100).fit(X, y)
        other = pickle.loads(pickle.dumps(model))
        for each in (model, other):
            each.partial_fit(X[:30], y[:30])
        assert_array_equal(model.coef_, other.coef_)
        assert model.n_iter_ == 130


@needs_compiled
class TestOptimum:
    @pytest.mark.parametrize("setting", [{}, {"project": True}, {"batch_size": 10}], ids=str)
    def test_linear(self, setting):
        X, y = CANCER
        for alpha, gap in ((0.1, 0.003), (0.01, 0.02)):
            model = PegasosClassifier(
                alpha=alpha, fit_intercept=False, max_iter=100_000, random_state=0, **setting
            ).fit(X, y)
            best = exact(X, y, alpha)
            assert best * (1 - 1e-6) <= objective(X, y, model.coef_[0], alpha) <= best * (1 + gap)

    def test_weights(self):
        X, y = CANCER
        weights = np.random.default_rng(0).exponential(size=len(y)) * np.where(y == 1, 5, 1)
        model = PegasosClassifier(alpha=0.1, fit_intercept=False, random_state=0)
        model.fit(X, y, sample_weight=weights)
        best = exact(X, y, 0.1, weights)
        found = objective(X, y, model.coef_[0], 0.1, weights)
        assert best * (1 - 1e-6) <= found <= 1.005 * best
        plain = PegasosClassifier(alpha=0.1, fit_intercept=False, random_state=0).fit(X, y)
        assert objective(X, y, plain.coef_[0], 0.1, weights) > 1.02 * best

    def test_the_risk_bound_of_its_theory(self):
        """E F(mean iterate) <= F* + (√λ + R)² (1 + log T) / (2 λ T), with projection."""
        X, y = CANCER
        alpha, n_steps = 0.05, 2000
        radius = np.linalg.norm(X, axis=1).max()
        found = [
            objective(X, y, model.coef_[0], alpha)
            for model in (
                PegasosClassifier(
                    alpha=alpha,
                    fit_intercept=False,
                    project=True,
                    average=True,
                    max_iter=n_steps,
                    random_state=seed,
                ).fit(X, y)
                for seed in range(20)
            )
        ]
        bound = (np.sqrt(alpha) + radius) ** 2 * (1 + np.log(n_steps)) / (2 * alpha * n_steps)
        assert exact(X, y, alpha) < np.mean(found) <= exact(X, y, alpha) + bound

    def test_iterates_stay_in_the_ball(self):
        X, y = CANCER
        marks = np.arange(1, 200)
        for alpha in (1e-3, 0.1):
            path = (
                PegasosClassifier(
                    alpha=alpha, project=True, max_iter=200, checkpoints=marks, random_state=0
                )
                .fit(X, y)
                .coef_path_
            )
            norms = np.linalg.norm(path[:, 0], axis=1)
            assert np.all(norms <= (1 + 1e-12) / np.sqrt(alpha))
            assert norms.max() > 0.5 / np.sqrt(alpha)


class TestKernels:
    @pytest.mark.parametrize("setting", SETTINGS, ids=str)
    @pytest.mark.parametrize("intercept", ["none", "penalised", "free"])
    def test_a_linear_kernel_takes_the_linear_steps(self, setting, intercept):
        X, y = IRIS
        weights = np.random.default_rng(0).integers(0, 4, 150).astype(float)
        options = {
            "alpha": 0.1,
            "fit_intercept": intercept != "none",
            "penalise_intercept": intercept == "penalised",
            "max_iter": 600,
            "random_state": 0,
        } | setting
        linear, dual = (
            PegasosClassifier(kernel=kernel, **options).fit(X, y, sample_weight=weights)
            for kernel in ("linear", lambda a, b: a @ b.T)
        )
        assert_allclose(dual.decision_function(X), linear.decision_function(X), atol=1e-8)
        assert dual.n_iter_ == 600

    @pytest.mark.parametrize("setting", SETTINGS, ids=str)
    def test_more_rows_than_the_whole_kernel_is_kept_for(self, setting):
        X, y = CANCER
        options = {"kernel": "rbf", "alpha": 0.01, "max_iter": 300, "random_state": 0} | setting
        whole, parts = (kind(**options).fit(X, y) for kind in (PegasosClassifier, InBlocks))
        assert_allclose(parts.dual_coef_, whole.dual_coef_, rtol=1e-9)

    def test_a_kernel_between_a_row_and_itself(self):
        """A matrix of one element has rows and columns that are both contiguous."""
        X, y = CANCER
        options = {"kernel": "rbf", "alpha": 0.01, "project": True, "max_iter": 1}
        options["random_state"] = 0
        whole, parts = (kind(**options).fit(X, y) for kind in (PegasosClassifier, InBlocks))
        assert_allclose(parts.dual_coef_, whole.dual_coef_, rtol=1e-12)

    @needs_compiled
    def test_rbf_comes_near_the_exact_machine(self):
        X, y = CANCER
        alpha, gram = 0.01, rbf_kernel(*CANCER[:1], gamma=0.03)
        sign = np.where(y == 1, 1.0, -1.0)

        def value(coef):
            return np.mean(np.maximum(0, 1 - sign * (gram @ coef))) + alpha / 2 * coef @ gram @ coef

        options = {"alpha": alpha, "fit_intercept": False, "max_iter": 20_000, "random_state": 0}
        model = PegasosClassifier(kernel="rbf", gamma=0.03, **options).fit(X, y)
        coef = np.zeros(len(y))
        coef[model.support_] = model.dual_coef_[0]
        # The exact machine has an intercept. The minimum without is at least any value of the dual.
        top, signed = 1 / (alpha * len(y)), sign[:, None] * gram * sign
        dual = minimize(
            lambda a: (0.5 * a @ signed @ a - a.sum(), signed @ a - 1),
            np.zeros(len(y)),
            jac=True,
            bounds=[(0, top)] * len(y),
            method="L-BFGS-B",
        ).fun
        least = -alpha * dual
        assert least <= value(coef) <= 1.02 * least
        precomputed = PegasosClassifier(kernel="precomputed", **options).fit(gram, y)
        assert precomputed.score(gram, y) == pytest.approx(model.score(X, y), abs=0.01)
        exact_score = SVC(C=1 / (alpha * len(y)), gamma=0.03).fit(X, y).score(X, y)
        assert abs(model.score(X, y) - exact_score) < 0.02

    def test_sparse_rows(self):
        X, y = IRIS
        options = {"kernel": "poly", "alpha": 0.1, "max_iter": 300, "random_state": 0}
        dense = PegasosClassifier(**options).fit(X, y)
        thin = PegasosClassifier(**options).fit(sparse.csr_array(X), y)
        assert_allclose(
            thin.decision_function(sparse.csr_array(X)), dense.decision_function(X), atol=1e-9
        )


class TestStopping:
    @pytest.mark.parametrize("settings", [{}, {"average": True}, {"penalise_intercept": False}])
    def test_the_rule_is_the_one_stated(self, settings):
        """Of the objectives after 1, 2, 4, ... steps, by hand from checkpoints."""
        X, y = IRIS
        common = {"alpha": 0.1, "max_iter": 2**16, "random_state": 3, **settings}
        marks = 2 ** np.arange(17)
        path = PegasosClassifier(**common, checkpoints=marks).fit(X, y)
        assert path.n_iter_ == 2**16
        assert path.status_ == "took all steps that were asked for"
        values = np.array(
            [
                [
                    np.maximum(0, 1 - np.where(y == k, 1, -1) * (X @ w + b)).mean()
                    + 0.05 * (w @ w + b**2 * common.get("penalise_intercept", True))
                    for k, (w, b) in enumerate(zip(coef, intercept, strict=True))
                ]
                for coef, intercept in zip(path.coef_path_, path.intercept_path_, strict=True)
            ]
        )
        change = np.abs(np.diff(values, axis=0) / values[1:]).max(axis=1)
        for tol in (*np.logspace(-3.5, -0.1, 18), 1e-9):
            calm = (change <= tol) & (marks[1:] >= len(X))
            last = next((i for i in range(1, 16) if calm[i - 1] and calm[i]), None)
            wanted = 2**16 if last is None else marks[last + 1]
            stopped = PegasosClassifier(**common, tol=tol, checkpoints=marks).fit(X, y)
            assert stopped.n_iter_ == wanted
            assert (stopped.status_ == "converged") == (last is not None)
            at = int(np.log2(wanted))
            assert_allclose(stopped.coef_, path.coef_path_[at], rtol=1e-9)
            assert_allclose(stopped.coef_path_[: at + 1], path.coef_path_[: at + 1], rtol=1e-9)
            for after in stopped.coef_path_[at + 1 :]:
                assert_array_equal(after, stopped.coef_)

    def test_stopping_needs_two_consecutive_doublings(self):
        criterion = StoppingCriterion(0.1, n_rows=1)
        values = [1.0, 1.01, 2.0, 2.1, 2.2]
        told = [criterion.is_met(2**k, np.array([value, 1.0])) for k, value in enumerate(values)]
        assert told == [False, False, False, False, True]

    def test_it_ends_near_the_minimum(self):
        X, y = CANCER
        settings = {"alpha": 0.1, "fit_intercept": False, "average": True, "random_state": 0}
        model = PegasosClassifier(max_iter=10**7, tol=1e-3, **settings).fit(X, y)
        assert model.status_ == "converged"
        assert model.n_iter_ < 10**6
        least = exact(X, y, 0.1)
        assert objective(X, y, model.coef_[0], 0.1) <= 1.01 * least


class TestInput:
    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"alpha": 0.0}, "alpha must be a number that is positive and finite; got 0.0"),
            ({"max_iter": 0}, "max_iter must be a whole number >= 1; got 0"),
            ({"batch_size": 2.5}, "batch_size must be a whole number >= 1; got 2.5"),
            ({"project": 1}, "project must be True or False; got 1"),
            ({"kernel": "cosine"}, "kernel must be one of"),
            ({"checkpoints": [3, 2]}, "checkpoints must be whole numbers in ascending order"),
            ({"checkpoints": [9], "max_iter": 8}, r"checkpoints must be in \[0, 8\]"),
            ({"checkpoints": [1], "kernel": "rbf"}, "checkpoints need kernel='linear'"),
            ({"tol": 0.0}, r"tol must be a number in \(0, 1\), or None; got 0.0"),
            ({"tol": 0.1, "kernel": "rbf"}, "tol=0.1 needs kernel='linear'"),
        ],
    )
    def test_bad_parameters(self, changes, words):
        with pytest.raises(ValueError, match=words):
            PegasosClassifier(**changes).fit(*IRIS)

    def test_streams(self):
        X, y = IRIS
        with pytest.raises(ValueError, match="classes must be passed"):
            PegasosClassifier().partial_fit(X, y)
        for changes, words in (
            ({"class_weight": "balanced"}, "needs all labels at once"),
            ({"kernel": "rbf"}, "needs kernel='linear'; got 'rbf'"),
            ({"probability": "held_out"}, "'held_out' needs all samples at once"),
        ):
            assert not hasattr(PegasosClassifier(**changes), "partial_fit")
            with pytest.raises(AttributeError) as error:
                PegasosClassifier(**changes).partial_fit(X, y, classes=[0, 1, 2])
            assert words in str(error.value.__cause__)

    def test_values_beyond_all_floats(self):
        X, y = IRIS
        with pytest.raises(OverflowError, match="are too large, or alpha=1e-300"):
            PegasosClassifier(alpha=1e-300, random_state=0).fit(1e200 * X, y)
        with pytest.raises(OverflowError, match="X is too large for this kernel"):
            PegasosClassifier(kernel="poly", gamma=1.0, max_iter=50).fit(1e200 * X, y)


@pytest.mark.parametrize("options", [{}, {"search_intercept": "inner"}, {"average": True}])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_columns_far_from_zero_warn(options, kind):
    """Their fit predicts the majority; so do steps that end above the objective at zero."""
    X, y = CANCER
    weights = np.arange(len(y)) % 3
    model = PegasosClassifier(max_iter=2000, random_state=0, **options)
    with pytest.warns(ConvergenceWarning, match="above 1, that of zero coefficients. Standardise"):
        model.fit(kind(X + 1e8), y, sample_weight=weights)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PegasosClassifier(alpha=0.01, max_iter=2000, random_state=0, **options).fit(kind(X), y)
