"""The paper's stochastic learner: its steps, its sampled rows, its limit."""

import signal
import time
import warnings
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.stats import chisquare
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import scale

from marginpursuit import MarginPursuitClassifier, PegasosClassifier, _kernels
from marginpursuit.design import MemoryDesign
from marginpursuit.losses import MarginLoss, influence
from marginpursuit.solvers import stochastic_margin_pursuit
from marginpursuit.solvers.stochastic_steps import RowSampler, canonical_order

needs_compiled = pytest.mark.skipif(
    _kernels._compiled is None, reason="slow without the compiled kernels"
)


def data(n=120, d=6, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, np.sign(X @ rng.normal(size=d) + rng.normal(size=n))


def reference_steps(X, y, alpha, loss, rows, w, t=0, factor=1.0):
    """Take the steps as printed in the paper, one after the other."""
    root = np.sqrt(alpha)
    for i in rows:
        m = y[i] * (X[i] @ w)
        psi = float(influence((loss.margin - m) / loss.scale))
        step = 1 / (loss.scale * root * (1 + t))
        w = (1 - factor * alpha * step) * w + psi * y[i] * X[i] / (root * (1 + t))
        w, t = w * min(1.0, 1 / (root * np.linalg.norm(w))), t + 1
    return w


def sampled(seed, n, d, n_steps):
    """Return the start and the rows that belong to a seed."""
    random = np.random.default_rng(seed)
    return random.standard_normal(d) / np.sqrt(d), (random.random(n_steps) * n).astype(int)


class TestPath:
    @pytest.mark.parametrize("as_matrix", [np.asarray, np.asfortranarray, sparse.csr_array])
    @pytest.mark.parametrize(
        "alpha", [0.01, 0.1, 1.0]
    )  # for much smaller ones the steps amplify rounding errors
    def test_steps(self, as_matrix, alpha):
        X, y = data()
        start, rows = sampled(3, 120, 6, 500)
        checkpoints = [0, 1, 2, 77, 500]
        for loss in (MarginLoss(), MarginLoss(1.5, 0.4)):
            path = stochastic_margin_pursuit(
                as_matrix(X), y, alpha, 500, loss=loss, checkpoints=checkpoints, random_state=3
            )
            wanted = [reference_steps(X, y, alpha, loss, rows[:k], start) for k in checkpoints]
            assert_allclose(path.coef, wanted, rtol=1e-9, atol=1e-9)
            assert_array_equal(path.n_gradients, checkpoints)
            assert_array_equal(path.intercept, 0)
            assert_array_equal(path.scale, loss.scale)

    def test_a_penalty_without_the_half_shrinks_twice_as_much(self):
        X, y = data()
        start, rows = sampled(3, 120, 6, 300)
        path = stochastic_margin_pursuit(
            *(X, y, 0.1, 300), halved_penalty=False, rescale_after=100, random_state=3
        )
        first = reference_steps(X, y, 0.1, MarginLoss(), rows[:100], start, factor=2.0)
        later = replace(MarginLoss(), scale=float(path.scale[-1]))
        wanted = reference_steps(X, y, 0.1, later, rows[100:], first, t=100, factor=2.0)
        assert_allclose(path.coef[-1], wanted, rtol=1e-8)

    @pytest.mark.parametrize("rule", ["printed", "consistent"])
    def test_rescaling_once(self, rule):
        """E20: the printed rule uses a quantile of |m| as a variance, and divides by λ."""
        X, y = data()
        start, rows = sampled(1, 120, 6, 300)
        alpha, delta = 0.01, 0.1
        path = stochastic_margin_pursuit(
            *(X, y, alpha, 300),
            rescale_after=100,
            rescale_rule=rule,
            delta=delta,
            checkpoints=[100, 101, 300],
            random_state=1,
        )
        w = reference_steps(X, y, alpha, MarginLoss(), rows[:100], start)
        q = np.quantile(np.abs(X @ w), 0.75)
        scales = {
            "printed": np.sqrt(120 * q / (2 * alpha * np.log(1 / delta))),
            "consistent": q * np.sqrt(120 / (2 * np.log(2 / delta))),
        }
        assert_allclose(path.scale, [1.0, scales[rule], scales[rule]], rtol=1e-9)
        assert_allclose(path.coef[0], w, rtol=1e-9)
        later = replace(MarginLoss(), scale=scales[rule])
        for k, n_steps in ((1, 101), (2, 300)):
            wanted = reference_steps(X, y, alpha, later, rows[100:n_steps], w, t=100)
            assert_allclose(path.coef[k], wanted, rtol=1e-8)

    @needs_compiled
    def test_converges_to_the_exact_minimum(self):
        X, y = data(400, 5)
        for tau in (0.0, 1.0):
            exact = MarginPursuitClassifier.as_published(
                scale=1.0, overconfidence=tau, alpha=0.1, fit_intercept=False
            ).fit(X, y)
            path = stochastic_margin_pursuit(
                X, y, 0.1, 300_000, loss=MarginLoss(1, 1, tau), random_state=0
            )
            assert_allclose(path.coef[-1], exact.coef_[0], atol=5e-3)

    def test_start_seed_and_generator(self):
        X, y = data()
        one, same, other = (
            stochastic_margin_pursuit(X, y, 0.1, 50, random_state=seed).coef
            for seed in (5, np.random.default_rng(5), 6)
        )
        assert_array_equal(one, same)
        assert np.all(one != other)
        start = np.arange(6.0)
        path = stochastic_margin_pursuit(X, y, 0.1, 5, start=start, checkpoints=[0])
        assert_array_equal(path.coef[0], start)
        assert_array_equal(start, np.arange(6.0))

    def test_run_continues_another_run(self):
        X, y = data()
        checkpoints = [10, 30, 50, 80]
        whole = stochastic_margin_pursuit(X, y, 0.1, 80, checkpoints=checkpoints, random_state=5)
        generator = np.random.default_rng(5)
        first = stochastic_margin_pursuit(
            X, y, 0.1, 30, checkpoints=checkpoints[:2], random_state=generator
        )
        second = stochastic_margin_pursuit(
            *(X, y, 0.1, 50),
            start=first.coef[-1],
            steps_before=30,
            step=1 / np.sqrt(0.1),  # as printed, for s = 1
            checkpoints=[20, 50],
            random_state=generator,
        )
        assert_allclose(np.concatenate([first.coef, second.coef]), whole.coef, rtol=1e-9)

    def test_intercept_is_not_penalised(self):
        X, y = data()
        path = stochastic_margin_pursuit(
            X * 1e-9, np.where(y > 0, 1.0, -1.0), 1.0, 20_000, fit_intercept=True, random_state=0
        )
        rate = np.mean(y > 0)
        # The exact minimiser of η φ(b) + (1 - η) φ(-b); a penalty of 1 would shrink it.
        grid = np.linspace(-1, 1, 2001)
        loss = MarginLoss()
        best = grid[np.argmin(rate * loss.value(grid) + (1 - rate) * loss.value(-grid))]
        assert_allclose(path.intercept[-1], best, atol=0.03)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"alpha": 0.0}, "alpha must be positive"),
            ({"step": 0.0}, "step must be positive"),
            ({"steps_before": -1}, "steps_before must be a whole number of at least 0"),
            ({"n_steps": 0}, "n_steps must be a whole number"),
            ({"rescale_after": 1.5}, "rescale_after must be a whole number"),
            ({"rescale_after": 5, "rescale_rule": "both"}, "'printed' or 'consistent'; got 'both'"),
            ({"checkpoints": [2, 1]}, "checkpoints must be whole numbers in ascending order"),
            ({"checkpoints": [11]}, r"checkpoints must be in \[0, 10\]"),
            ({"start": [1.0]}, r"start must have shape \(6,\)"),
            ({"y": np.zeros(120)}, "y must contain -1 or"),
            ({"y": np.ones(119)}, "y must contain -1 or"),
            ({"X": np.full((120, 6), np.inf)}, "X must be strictly between"),
            ({"X": np.empty((0, 6))}, "X must have rows and columns"),
            ({"sample_weight": np.zeros(120)}, "a positive entry"),
            ({"sample_weight": np.ones(119)}, "must have shape"),
        ],
    )
    def test_bad_input(self, changes, message):
        X, y = data()
        with pytest.raises(ValueError, match=message):
            stochastic_margin_pursuit(**{"X": X, "y": y, "alpha": 0.1, "n_steps": 10} | changes)

    def test_duplicate_entries_are_summed(self):
        X, y = data()
        index = np.tile([0, 1, 2, 3, 4, 5, 0], 120)
        values = np.column_stack([X, X[:, :1]]).ravel()
        doubled = sparse.csr_array((values, index, np.arange(0, 841, 7)), shape=(120, 6))
        given = doubled.copy()
        X[:, 0] *= 2
        one, other = (
            stochastic_margin_pursuit(m, y, 0.1, 300, random_state=0).coef for m in (X, doubled)
        )
        assert_allclose(one, other, rtol=1e-9)
        assert_array_equal(given.data, doubled.data)


class TestRowSampler:
    def test_probabilities_are_proportional_to_weights(self):
        weights = np.array([0.0, 3.0, 0.0, 1.0, 2.0, 0.0])
        rows = RowSampler(weights, np.random.default_rng(0)).sample(60_000)
        counts = np.bincount(rows, minlength=6)
        assert_array_equal(counts[weights == 0], 0)
        assert chisquare(counts[weights > 0], 10_000 * weights[weights > 0]).pvalue > 1e-3
        equal = np.bincount(RowSampler(np.ones(6), np.random.default_rng(0)).sample(60_000))
        assert chisquare(equal).pvalue > 1e-3

    def test_ends_of_the_unit_interval(self):
        class Least:
            def random(self, n):
                return np.zeros(n)

        class Largest:
            def random(self, n):
                return np.full(n, np.nextafter(1.0, 0.0))

        assert_array_equal(RowSampler(np.array([0.0, 0.0, 1.0, 2.0]), Least()).sample(1), 2)
        for weights in ([0.1] * 3 + [0.3, 0.0], np.append(np.full(997, 0.1), [0.7, 0.0, 0.0])):
            rows = RowSampler(np.array(weights), Largest()).sample(1)
            assert_array_equal(rows, np.flatnonzero(weights)[-1])

    def test_canonical_order_does_not_depend_on_positions(self):
        X, y = data()
        codes = (y > 0).astype(np.intp)
        shuffled = np.random.default_rng(1).permutation(120)
        one, other = (
            canonical_order(MemoryDesign(X[rows]), codes[rows], np.random.default_rng(0))
            for rows in (np.arange(120), shuffled)
        )
        assert_array_equal(one, shuffled[other])


class TestClassifier:
    X, y = load_iris(return_X_y=True)
    SETTING: ClassVar = {
        "solver": "stochastic",
        "alpha": 0.1,
        "scale": 1.0,
        "leverage_bound": None,
        "max_iter": 2000,
    }

    @pytest.mark.parametrize("as_matrix", [np.asarray, sparse.csr_array])
    def test_columns_of_zeros_have_coefficients_of_zero(self, as_matrix):
        """Their random start would remain, but for the penalty."""
        X, y = data()
        X[:, 1], X[-1, 1] = 0.0, 1.0
        weights = np.append(np.ones(len(y) - 1), 0.0)
        model = MarginPursuitClassifier(solver="stochastic", alpha=0.1, random_state=0)
        coef = model.fit(as_matrix(X), y, sample_weight=weights).coef_[0]
        assert_array_equal(np.flatnonzero(coef), [0, 2, 3, 4, 5])
        assert_array_equal(model.fit(as_matrix(0.0 * X), y).coef_, 0.0)

    def test_stops_when_a_doubling_of_the_steps_changes_little(self):
        X, y = load_breast_cancer(return_X_y=True)
        X = scale(X)
        setting = {**self.SETTING, "max_iter": 10**6, "random_state": 0}
        short = MarginPursuitClassifier(**setting, tol=1e-2).fit(X, y)
        assert len(y) <= short.n_iter_ < 10**5
        assert short.n_iter_ == 2 ** int(np.log2(short.n_iter_))
        same = MarginPursuitClassifier(**setting | {"max_iter": short.n_iter_}).fit(X, y)
        np.testing.assert_array_equal(short.coef_, same.coef_)
        further = MarginPursuitClassifier(**setting | {"max_iter": 4 * short.n_iter_}).fit(X, y)
        assert further.n_iter_ == 4 * short.n_iter_  # the default tolerance is not met
        assert abs(further.objective_ - short.objective_) <= 0.03 * short.objective_

    def coef(self, X, y, sample_weight=None, **changes):
        model = MarginPursuitClassifier(**self.SETTING | {"random_state": 0} | changes)
        return model.fit(X, y, sample_weight=sample_weight).coef_

    def test_sample_order_is_irrelevant_and_weights_are_counts(self):
        rng = np.random.default_rng(0)
        rows, counts = rng.permutation(150), rng.integers(0, 3, 150)
        coef = self.coef(self.X, self.y)
        assert_allclose(self.coef(self.X[rows], self.y[rows]), coef, rtol=1e-9)
        repeated = self.coef(np.repeat(self.X, counts, axis=0), np.repeat(self.y, counts))
        assert_allclose(self.coef(self.X, self.y, counts), repeated, rtol=1e-9)
        assert_allclose(self.coef(sparse.csr_array(self.X), self.y), coef, rtol=1e-9)

    def test_seed_determines_the_fit(self):
        one, same, other = (self.coef(self.X, self.y, random_state=seed) for seed in (0, 0, 1))
        assert_array_equal(one, same)
        assert np.all(one != other)

    @needs_compiled
    def test_converges_to_the_exact_fit(self):
        X = scale(self.X)
        one_against_rest = self.SETTING | {"solver": "gram", "multi_class": "ovr"}
        exact = MarginPursuitClassifier(**one_against_rest).fit(X, self.y)
        model = MarginPursuitClassifier(**self.SETTING | {"max_iter": 300_000, "tol": 1e-6})
        model.set_params(random_state=0).fit(X, self.y)
        assert exact.objective_ <= model.objective_ <= 1.001 * exact.objective_
        assert_allclose(model.coef_, exact.coef_, atol=0.02)
        assert_allclose(model.intercept_, exact.intercept_, atol=0.02)
        assert model.n_iter_ == 300_000

    def test_a_scale_rule(self):
        X = scale(self.X)
        model = MarginPursuitClassifier(**self.SETTING | {"scale": "auto", "random_state": 0})
        assert model.fit(X, self.y).scale_ > 0
        assert model.score(X, self.y) > 0.75

    @pytest.mark.filterwarnings("ignore:.*took all steps")
    def test_progress_is_reported_after_each_doubling(self, capsys):
        self.coef(self.X, self.y, max_iter=10, verbose=1)
        plan, *lines = capsys.readouterr().out.splitlines()
        assert plan == "[MarginPursuitClassifier] solver stochastic: as requested"
        assert [line.split("iteration ")[1].split(",")[0] for line in lines] == list(
            map(str, (1, 2, 4, 8, 10))
        )

    @pytest.mark.parametrize(
        ("changes", "given"),
        [
            ({"alpha": "negligible"}, r".* in the unit 'column'"),
            ({"alpha_unit": "standardised"}, r".* in the unit 'standardised'"),
            ({"alpha": 0.0}, "0"),
        ],
    )
    def test_needs_a_penalty(self, changes, given):
        with pytest.raises(ValueError, match=f"it needs alpha > 0.*got {given}"):
            self.coef(self.X, self.y, **changes)

    def test_default_parameters(self):
        X, y = load_breast_cancer(return_X_y=True)
        X = (X - X.mean(axis=0)) / X.std(axis=0)
        model = MarginPursuitClassifier(solver="stochastic", max_iter=20_000, random_state=0)
        assert model.fit(X, y).score(X, y) > 0.95
        model.set_params(leverage_bound=None).fit(X, y)
        alpha = 0.3 * X.shape[1] / len(y)  # every column has variance one
        same = clone(model).set_params(alpha=alpha, alpha_unit="absolute").fit(X, y)
        np.testing.assert_allclose(same.coef_, model.coef_, rtol=1e-6)

    def test_overflow_and_missing_values(self):
        with pytest.raises(OverflowError, match="on the unit of the columns"):
            self.coef(self.X * 1e200, self.y)
        with pytest.raises(ValueError, match="contains NaN"):
            self.coef(np.where(self.X[0, 0] == self.X, np.nan, self.X), self.y)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no interval timer on Windows")
@needs_compiled
@pytest.mark.parametrize("as_matrix", [np.asarray, np.asfortranarray, sparse.csr_array])
@pytest.mark.parametrize(
    "model",
    [
        MarginPursuitClassifier(
            solver="stochastic", alpha=1e-3, scale=1.0, max_iter=10**10, tol=1e-14
        ),
        PegasosClassifier(max_iter=10**10, batch_size=100),
    ],
    ids=["pursuit", "pegasos"],
)
def test_interrupt_is_handled_within_a_second(model, as_matrix):
    X = as_matrix(np.random.default_rng(0).normal(size=(20_000, 50)))
    y = np.arange(20_000) % 2
    start = time.monotonic()

    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, y)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - start < 2.0  # one second, and a margin for a busy machine


def test_columns_of_any_scale_end_with_a_warning():
    X, y = load_breast_cancer(return_X_y=True)
    model = MarginPursuitClassifier(solver="stochastic", random_state=0)
    with pytest.warns(
        ConvergenceWarning, match=r"all steps.*twice the 0\.458 of zero.*Standardise"
    ):
        model.fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model.fit(scale(X), y).score(scale(X), y) > 0.95
