"""The best intercept under the hinge loss: brute force over kinks, and Pegasos that searches."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.optimize import linprog
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.preprocessing import scale
from sklearn.svm import SVC

from marginpursuit import PegasosClassifier, _kernels
from marginpursuit.datasets import DatasetError, load
from marginpursuit.design import MemoryDesign
from marginpursuit.solvers.intercept_search import best_intercept
from marginpursuit.solvers.kernel_descent import KernelStorage
from marginpursuit.solvers.stochastic_steps import RowSampler, canonical_order

CANCER = scale(load_breast_cancer().data), load_breast_cancer().target
IRIS = scale(load_iris().data), load_iris().target
WEIGHTS = np.random.default_rng(0).integers(0, 4, 150).astype(float)

needs_compiled = pytest.mark.skipif(
    _kernels._compiled is None, reason="so many steps take long without the compiled kernels"
)


def value(b, scores, sign, weights, penalty):
    """Return what is minimised over b, exactly for fractions."""
    hinge = (c * max(0, 1 - y * (h + b)) for h, y, c in zip(scores, sign, weights, strict=True))
    return sum(hinge) + penalty * b * b / 2


def by_kinks(scores, sign, weights):
    """Return the least and the greatest kink at which the loss is least."""
    kinks = [y - h for h, y, c in zip(scores, sign, weights, strict=True) if c > 0]
    values = [value(b, scores, sign, weights, 0) for b in kinks]
    found = [b for b, v in zip(kinks, values, strict=True) if v == min(values)]
    return min(found), max(found)


SAMPLES = st.lists(
    st.tuples(st.integers(-12, 12), st.sampled_from([-1, 1]), st.integers(0, 3)), min_size=1
).filter(lambda samples: any(c for *_, c in samples))


class TestBestIntercept:
    @given(SAMPLES)
    def test_without_penalty_it_is_in_the_middle_of_the_best_kinks(self, samples):
        """Many ties, and often one class only; all numbers are fractions of four."""
        scores, sign, weights = (np.array(column, float) for column in zip(*samples, strict=True))
        scores /= 4
        exact = [[Fraction(x) for x in column.tolist()] for column in (scores, sign, weights)]
        low, high = by_kinks(*exact)
        assert best_intercept(scores, sign, weights) == (low + high) / 2

    @given(SAMPLES, st.sampled_from([0.01, 0.3, 1.0, 20.0]))
    def test_with_a_penalty_no_other_is_as_good(self, samples, penalty):
        scores, sign, weights = (np.array(column, float) for column in zip(*samples, strict=True))
        scores /= 4
        b = Fraction(best_intercept(scores, sign, weights, penalty))
        exact = [[Fraction(x) for x in column.tolist()] for column in (scores, sign, weights)]
        at = value(b, *exact, Fraction(penalty))
        for step in (Fraction(1, 10**9), Fraction(1, 10), Fraction(1), Fraction(1000)):
            # The second difference is at least penalty step²; b itself is rounded.
            for other in (b - step, b + step):
                assert value(other, *exact, Fraction(penalty)) > at - Fraction(1, 10**20)

    @given(SAMPLES, st.sampled_from([0.0, 0.3]), st.randoms(use_true_random=False))
    def test_what_must_not_matter(self, samples, penalty, random):
        """The order of samples, a weight of 2 for two rows, the names of the classes."""
        scores, sign, weights = (np.array(column, float) for column in zip(*samples, strict=True))
        share = weights / weights.sum()  # no longer whole, so that sums are rounded
        b = best_intercept(scores, sign, share, penalty)
        order = np.array(random.sample(range(len(sign)), len(sign)))
        repeated = np.repeat(order, weights[order].astype(int))
        for rows, weight in (
            (order, share[order]),
            (repeated, np.full(len(repeated), 1 / len(repeated))),
        ):
            assert_allclose(
                best_intercept(scores[rows], sign[rows], weight, penalty), b, atol=1e-12
            )
        assert_allclose(best_intercept(-scores, -sign, share, penalty), -b, atol=1e-12)

    def test_a_linear_programme_finds_no_better(self):
        random = np.random.default_rng(1)
        for n in (3, 40):
            scores, sign = 3 * random.normal(size=n), random.choice([-1.0, 1.0], n)
            weights = random.exponential(size=n)
            least = linprog(
                np.append(weights, 0),
                A_ub=np.column_stack([-np.eye(n), -sign]),
                b_ub=sign * scores - 1,
                bounds=[(0, None)] * n + [(None, None)],
            ).fun
            b = best_intercept(scores, sign, weights)
            assert_allclose(value(b, scores, sign, weights, 0), least, rtol=1e-9)

    def test_rows_of_no_weight_may_hold_anything(self):
        scores, sign = np.array([0.5, np.nan, -0.25, np.inf]), np.array([1.0, -1.0, -1.0, 1.0])
        weights = np.array([1.0, 0.0, 2.0, 0.0])
        for penalty in (0.0, 0.1):
            wanted = best_intercept(scores[[0, 2]], sign[[0, 2]], weights[[0, 2]], penalty)
            assert best_intercept(scores, sign, weights, penalty) == wanted


def by_hand(X, sign, weights, rows, *, alpha, n_steps, k, project, average, penalise):
    """Take the steps of Pegasos; the intercept is searched after 0, 1, 2, 4, ... steps."""
    penalty = alpha * penalise
    w, b, points = np.zeros(X.shape[1]), 0.0, []
    for t in range(1, n_steps + 1):
        if (t - 1) & (t - 2) == 0 or t == 1:  # t - 1 is zero or a power of two
            b = best_intercept(X @ w, sign, weights, penalty)
        batch = rows[(t - 1) * k : t * k]
        margins = sign[batch] * (X[batch] @ w + b)
        assert not np.any(w) or np.all(np.abs(margins - 1) > 1e-9)  # or rounding would decide
        wrong = batch[margins < 1]
        w = (1 - 1 / t) * w + sign[wrong] @ X[wrong] / (alpha * t * k)
        b = (1 - penalise / t) * b + sign[wrong].sum() / (alpha * t * k)
        norm = np.sqrt(w @ w + penalise * b**2)
        if project and norm > 1 / np.sqrt(alpha):
            w = w / (np.sqrt(alpha) * norm)
            b = b / (np.sqrt(alpha) * norm) if penalise else b
        points.append(w)
    w = np.mean(points, axis=0) if average else w
    return w, best_intercept(X @ w, sign, weights, penalty)


# A search leaves some row with a margin of 1, but for rounding. By this seed none is drawn next.
OPTIONS = {"alpha": 0.1, "max_iter": 200, "random_state": 45}
SETTINGS = [
    {"project": project, "average": average, "batch_size": k, "penalise_intercept": penalise}
    for project in (False, True)
    for average, k in ((False, 1), (True, 4))
    for penalise in (False, True)
]


def objective(scores, sign, square, alpha, weights=None):
    """Return the mean hinge loss and the penalty."""
    return np.average(np.maximum(0, 1 - sign * scores), weights=weights) + alpha / 2 * square


class InBlocks(PegasosClassifier):
    """Computes a few rows of the kernel matrix at a time."""

    _kernel_storage = KernelStorage(max_cached=0, block=1 << 10)


class TestPegasos:
    @pytest.mark.parametrize("setting", SETTINGS, ids=str)
    @pytest.mark.parametrize("as_matrix", [np.asarray, sparse.csr_array])
    def test_the_steps_of_every_class(self, setting, as_matrix):
        X, y = IRIS
        model = PegasosClassifier(search_intercept="inner", **OPTIONS, **setting)
        model.fit(as_matrix(X), y, sample_weight=WEIGHTS)
        options = dict(setting)
        k, penalise = options.pop("batch_size"), options.pop("penalise_intercept")
        random = np.random.default_rng(OPTIONS["random_state"])
        order = canonical_order(MemoryDesign(X), y, random)
        rows = RowSampler(WEIGHTS / WEIGHTS.sum(), random, order).sample(200 * k)
        options |= {"alpha": 0.1, "n_steps": 200, "k": k, "penalise": penalise}
        for label in range(3):
            sign = np.where(y == label, 1.0, -1.0)
            w, b = by_hand(X, sign, WEIGHTS / WEIGHTS.sum(), rows, **options)
            assert_allclose(model.coef_[label], w, rtol=1e-8, atol=1e-9)
            assert_allclose(model.intercept_[label], b, rtol=1e-8, atol=1e-9)

    @pytest.mark.parametrize("setting", SETTINGS, ids=str)
    def test_a_linear_kernel_takes_the_linear_steps(self, setting):
        X, y = IRIS
        options = OPTIONS | setting | {"search_intercept": "inner"}
        linear, whole = (
            PegasosClassifier(kernel=kernel, **options).fit(X, y, sample_weight=WEIGHTS)
            for kernel in ("linear", lambda a, b: a @ b.T)
        )
        parts = InBlocks(kernel="poly", degree=1, gamma=1.0, **options)
        parts.fit(X, y, sample_weight=WEIGHTS)
        for model in (whole, parts):
            assert model.n_iter_ == linear.n_iter_
            assert_allclose(model.intercept_, linear.intercept_, atol=1e-8)
            assert_allclose(model.decision_function(X), linear.decision_function(X), atol=1e-8)

    @pytest.mark.parametrize("average", [False, True])
    def test_checkpoints(self, average):
        X, y = IRIS
        marks = [0, 1, 5, 300]
        options = {"alpha": 0.1, "search_intercept": "inner", "penalise_intercept": False}
        options |= {"average": average, "random_state": 0}
        model = PegasosClassifier(max_iter=300, checkpoints=marks, **options).fit(X, y)
        assert_array_equal(model.intercept_path_[0], -1)  # a third of the samples is positive
        for k, steps in enumerate(marks[1:], start=1):
            short = PegasosClassifier(max_iter=steps, **options).fit(X, y)
            assert_allclose(model.coef_path_[k], short.coef_, rtol=1e-10)
            assert_allclose(model.intercept_path_[k], short.intercept_, rtol=1e-10)

    def test_the_stopping_rule_sees_the_intercept_that_is_returned(self):
        X, y = IRIS
        marks = 2 ** np.arange(17)
        options = {"alpha": 0.1, "search_intercept": "inner", "penalise_intercept": False}
        options |= {"average": True, "max_iter": 2**16, "checkpoints": marks, "random_state": 3}
        path = PegasosClassifier(**options).fit(X, y)
        sign = np.where(y[:, np.newaxis] == np.arange(3), 1, -1)
        values = np.array(
            [
                np.maximum(0, 1 - sign * (X @ coef.T + b)).mean(axis=0) + 0.05 * np.sum(coef**2, 1)
                for coef, b in zip(path.coef_path_, path.intercept_path_, strict=True)
            ]
        )
        change = np.abs(np.diff(values, axis=0) / values[1:]).max(axis=1)
        stopped = set()
        for tol in np.logspace(-3, -0.5, 8):
            calm = (change <= tol) & (marks[1:] >= len(X))
            last = next((i for i in range(1, 16) if calm[i - 1] and calm[i]), 15)
            model = PegasosClassifier(tol=tol, **options).fit(X, y)
            assert model.n_iter_ == marks[last + 1]
            assert_allclose(model.intercept_, path.intercept_path_[last + 1], rtol=1e-9)
            stopped.add(model.n_iter_)
        assert len(stopped) > 2

    @needs_compiled
    @pytest.mark.parametrize("weighted", [False, True])
    def test_it_comes_near_the_exact_machine(self, weighted):
        X, y = CANCER
        sign, n = np.where(y == 1, 1.0, -1.0), len(y)
        weights = np.ones(n)
        if weighted:
            weights = np.random.default_rng(0).exponential(size=n) * np.where(y == 1, 5, 1)
        for alpha, gap in ((0.1, 0.005), (0.01, 0.02)):
            exact = SVC(kernel="linear", C=1 / (alpha * n), tol=1e-8)
            exact.fit(X, y, sample_weight=weights / weights.mean())
            w = exact.coef_[0]
            least = objective(X @ w + exact.intercept_, sign, w @ w, alpha, weights)
            for seed in range(3):
                model = PegasosClassifier(
                    alpha=alpha,
                    penalise_intercept=False,
                    search_intercept="inner",
                    random_state=seed,
                ).fit(X, y, sample_weight=weights)
                w = model.coef_[0]
                found = objective(X @ w + model.intercept_, sign, w @ w, alpha, weights)
                assert least * (1 - 1e-6) <= found <= least * (1 + gap)

    @needs_compiled
    def test_a_kernel_machine_comes_near_the_exact_one(self):
        X, y = CANCER
        alpha, gram, sign = 0.01, rbf_kernel(X, gamma=0.03), np.where(y == 1, 1.0, -1.0)
        exact = SVC(kernel="precomputed", C=1 / (alpha * len(y)), tol=1e-8).fit(gram, y)
        model = PegasosClassifier(
            kernel="precomputed",
            alpha=alpha,
            penalise_intercept=False,
            search_intercept="inner",
            max_iter=20_000,
            random_state=0,
        ).fit(gram, y)
        values = []
        for machine in (exact, model):
            coef = np.zeros(len(y))
            coef[machine.support_] = machine.dual_coef_[0]
            scores = gram @ coef
            values.append(objective(scores + machine.intercept_, sign, coef @ scores, alpha))
        assert values[0] * (1 - 1e-6) <= values[1] <= 1.02 * values[0]

    @needs_compiled
    def test_it_rids_the_free_intercept_of_its_first_steps(self):
        """On spambase: the mean objective of some seeds after 10,000 steps; see docs/methods.md."""
        try:
            data = load("spambase", fetch=False)
        except DatasetError as error:
            pytest.skip(str(error))
        X, y, alpha = scale(data.X.astype(float)), data.y, 0.01

        def mean_objective(**options):
            values = []
            for seed in range(12):
                model = PegasosClassifier(
                    alpha=alpha, max_iter=10_000, penalise_intercept=False, random_state=seed
                )
                w = model.set_params(**options).fit(X, y).coef_[0]
                values.append(objective(X @ w + model.intercept_, y, w @ w, alpha))
            return np.mean(values)

        assert mean_objective(search_intercept="inner") < 0.9 * mean_objective()

    def test_input(self):
        for value in (1, 0, True, None, "both", "outer"):
            with pytest.raises(ValueError, match="search_intercept must be False or 'inner'; got"):
                PegasosClassifier(search_intercept=value).fit(*IRIS)
        model = PegasosClassifier(max_iter=100, random_state=0, search_intercept="inner")
        with pytest.raises(AttributeError) as error:
            model.partial_fit(*IRIS)
        assert "search_intercept='inner' needs all samples at once" in str(error.value.__cause__)
        without = PegasosClassifier(**model.get_params() | {"fit_intercept": False}).fit(*IRIS)
        assert_array_equal(without.intercept_, 0)
        assert without.n_iter_ == 100
        with pytest.raises(OverflowError, match="the columns of X are too large"):
            model.set_params(alpha=1e-300).fit(1e200 * IRIS[0], IRIS[1])
