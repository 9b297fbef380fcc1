"""Fits to small tables in one compiled call: the results are those of the general fit."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from marginpursuit import MarginPursuitClassifier, _kernels
from marginpursuit.classifiers import _small_table
from marginpursuit.classifiers._progress import Reporter
from marginpursuit.classifiers._small_table import fit_small_table
from marginpursuit.solvers import Policy

pytestmark = pytest.mark.skipif(
    _kernels.small_table is None, reason="installed without the compiled kernels"
)


def rows(n, d, n_classes=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * rng.uniform(0.1, 10.0, size=d) + rng.normal(size=d)
    scores = X @ rng.normal(size=(d, n_classes)) + np.sqrt(d) * rng.normal(size=(n, n_classes))
    y = np.argmax(scores, axis=1)
    y[: 6 * n_classes] = np.arange(6 * n_classes) % n_classes
    return X, y


def general_fit(model, X, y, **options):
    """Fit with a reporter of the iterations, which only the general fit has."""
    model._reset()
    data = model._check_training(X, y, options.get("sample_weight"))
    with np.errstate(all="ignore"):
        model._fit(data, options.get("start"), Reporter(model))
    return model


def is_small(model, X, y, sample_weight=None, policy=None, start=None):
    """Whether a fit is one call."""
    model._reset()
    data = model._check_training(X, y, sample_weight)
    with np.errstate(all="ignore"):
        return fit_small_table(model, data, start, policy)


def assert_same(found, expected):
    for name in ("n_iter_", "n_passes_", "multi_class_", "scale_", "alpha_"):
        assert getattr(found, name) == getattr(expected, name), name
    size = np.abs(expected.coef_).max()
    assert found.coef_.shape == expected.coef_.shape
    assert_allclose(found.coef_, expected.coef_, rtol=1e-9, atol=1e-11 * size)
    assert_allclose(found.intercept_, expected.intercept_, rtol=1e-9, atol=1e-10)
    assert_allclose(found.objective_, expected.objective_, rtol=1e-11)
    statistics = found.margin_statistics_, expected.margin_statistics_
    for name in ("mean", "variance", "quantiles", "location"):
        assert_allclose(*(getattr(x, name) for x in statistics), rtol=1e-8, atol=1e-9)
    assert hasattr(found, "link_") == hasattr(expected, "link_")
    if hasattr(found, "link_"):
        assert_allclose(found.link_.slopes, expected.link_.slopes, rtol=1e-6)
        assert found.link_.smoothing == pytest.approx(expected.link_.smoothing, rel=1e-12)


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(40, 150),
    d=st.integers(1, 12),
    n_classes=st.integers(2, 4),
    seed=st.integers(0, 10**6),
    alpha=st.sampled_from(["auto", "auto", 1e-3, 1.0]),
    leverage_bound=st.sampled_from([1.0, 0.5, 3.0, None]),
    probability=st.sampled_from(["held_out", "held_out", "exact", None]),
    fit_intercept=st.booleans(),
    scale=st.sampled_from([1.0, 0.2, 5.0]),
    rho=st.sampled_from(["catoni", "pseudo_huber", "log_cosh", "huber"]),
    repeated=st.booleans(),
)
def test_fits_are_those_of_the_general_fit(n, d, n_classes, seed, repeated, **parameters):
    X, y = rows(n, d, n_classes, seed)
    if repeated:  # equal rows are in the same half, and a column is constant
        X, y = np.concatenate([X, X[:20]]), np.concatenate([y, y[:20]])
        X[:, 0] = 3.0
    model = MarginPursuitClassifier(n_threads=1, **parameters)
    found = MarginPursuitClassifier(n_threads=1, **parameters)
    if is_small(found, X, y):  # not with a row far away, or a solve that ends by rounding
        event("compared")
        assert_same(found, general_fit(model, X, y))


def test_default_fits_are_one_call():
    for n_classes in (2, 3):
        X, y = rows(100, 10, n_classes)
        assert is_small(MarginPursuitClassifier(), X, y)
        model = MarginPursuitClassifier().fit(X, y)
        assert_same(model, general_fit(MarginPursuitClassifier(), X, y))


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.float16, np.uint8])
def test_types_and_orders_are_read_as_doubles(dtype):
    X, y = rows(120, 5)
    X = np.asfortranarray(np.abs(10 * X).clip(0, 200)).astype(dtype)
    found, expected = MarginPursuitClassifier(), MarginPursuitClassifier()
    assert is_small(found, X, y)
    assert_same(found, general_fit(expected, X, y))


def test_equal_weights_count_as_repetitions():
    X, y = rows(80, 4)
    weights = np.full(80, 3.0)
    found = MarginPursuitClassifier()
    assert is_small(found, X, y, weights)
    assert_same(found, general_fit(MarginPursuitClassifier(), X, y, sample_weight=weights))


@pytest.mark.parametrize("alpha", ["auto", 1e-3])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_starts_and_weights_without_a_bound(alpha, n_classes):
    X, y = rows(80, 4, n_classes)
    weights = np.random.default_rng(1).uniform(0.1, 3.0, size=80)
    first = MarginPursuitClassifier(leverage_bound=None, alpha=2e-3).fit(X, y, weights)
    start = first.coef_.T, first.intercept_
    found, expected = (MarginPursuitClassifier(leverage_bound=None, alpha=alpha) for _ in range(2))
    assert is_small(found, X, y, weights, start=start)
    assert_same(found, general_fit(expected, X, y, sample_weight=weights, start=start))
    assert not is_small(found, X, y, np.where(np.arange(80) == 70, 0.0, weights))


def test_warm_starts_take_fewer_steps():
    X, y = rows(60, 3)
    model = MarginPursuitClassifier(warm_start=True, alpha=1e-3).fit(X, y)
    n_iter = model.n_iter_
    assert model.fit(X, y).n_iter_ < n_iter


def test_starts_of_another_shape_are_ignored():
    X, y = rows(60, 3)
    found, expected = MarginPursuitClassifier(), MarginPursuitClassifier()
    assert is_small(found, X, y, start=(np.ones((2, 1)), np.ones(1)))
    assert_same(found, general_fit(expected, X, y))


def test_constant_columns_have_zero_coefficients():
    X, y = rows(80, 4)
    X[:, 1], X[:, 3] = 0.0, 7.0
    model = MarginPursuitClassifier()
    assert is_small(model, X, y)
    assert np.all(model.coef_[:, [1, 3]] == 0.0)
    assert_same(model, general_fit(MarginPursuitClassifier(), X, y))


class TestGeneralFit:
    """What is left to the general fit, and its errors and warnings."""

    @pytest.mark.parametrize(
        "parameters",
        [
            {"scale": "auto"},
            {"alpha": "negligible"},
            {"alpha_unit": "common"},
            {"class_weight": {0: 1.0, 1: 2.0}},
        ],
    )
    def test_parameters(self, parameters):
        assert not is_small(MarginPursuitClassifier(**parameters), *rows(60, 3))

    def test_several_classes_one_against_the_rest(self):
        X, y = rows(60, 3, 3)
        assert not is_small(MarginPursuitClassifier(multi_class="ovr"), X, y)
        assert not is_small(MarginPursuitClassifier(overconfidence=0.5), X, y)

    def test_sparse_rows_weights_and_label_sets(self):
        X, y = rows(60, 3)
        model = MarginPursuitClassifier()
        assert not is_small(model, sparse.csr_matrix(X), y)
        assert not is_small(model, X, y, np.arange(1.0, 61.0))
        assert not is_small(model, X, np.column_stack([y, 1 - y, y]))

    def test_larger_tables(self):
        X, y = rows(60, 3)
        policy = replace(Policy(), max_small_elements=60 * 4 - 1)
        assert not is_small(MarginPursuitClassifier(), X, y, policy=policy)
        policy = replace(Policy(), max_small_elements=60 * 4)
        assert is_small(MarginPursuitClassifier(), X, y, policy=policy)

    def test_more_rows_than_a_link_is_fitted_to(self):
        X, y = rows((1 << 14) + 1, 1)
        assert not is_small(MarginPursuitClassifier(), X, y)
        assert is_small(MarginPursuitClassifier(), X[:-1], y[:-1])

    def test_rows_far_away(self):
        X, y = rows(60, 3)
        X[0] *= 1e6
        assert not is_small(MarginPursuitClassifier(), X, y)
        assert_same(
            MarginPursuitClassifier().fit(X, y), general_fit(MarginPursuitClassifier(), X, y)
        )

    def test_classes_with_few_distinct_rows(self):
        X, y = rows(60, 3)
        y[:] = 0
        X[:6], y[:6] = X[0], 1
        model = MarginPursuitClassifier()
        assert not is_small(model, X, y)
        assert model.fit(X, y).link_.slopes == pytest.approx(3.0)

    @pytest.mark.parametrize("factor", [1e-160, 1e160])
    def test_squares_that_lose_digits(self, factor):
        X, y = rows(60, 3)
        model = MarginPursuitClassifier()
        assert not is_small(model, factor * X, y)
        fitted = model.fit(factor * X, y)
        assert_allclose(fitted.coef_ * factor, MarginPursuitClassifier().fit(X, y).coef_, rtol=1e-6)

    def test_missing_values(self):
        X, y = rows(60, 3)
        for value in (np.nan, np.inf):
            X[4, 1] = value
            assert not is_small(MarginPursuitClassifier(), X, y)
            with pytest.raises(ValueError, match=r"(?i)nan|infinity|inf"):
                MarginPursuitClassifier().fit(X, y)

    def test_solves_that_do_not_converge(self):
        X, y = rows(100, 10)
        model = MarginPursuitClassifier(max_iter=1)
        assert not is_small(model, X, y)
        with pytest.warns(ConvergenceWarning, match="max_iter"):
            model.fit(X, y)

    def test_no_attribute_is_set(self):
        X, y = rows(60, 3)
        X[0] *= 1e6
        model = MarginPursuitClassifier()
        model._check_training(X, y, None)
        before = set(vars(model))
        assert not is_small(model, X, y)
        assert set(vars(model)) == before


class TestInputs:
    """The compiled function checks what it is given."""

    def problem(self, **changes):
        model = MarginPursuitClassifier()
        data = model._check_training(*rows(60, 3), None)
        return replace(_small_table._make_problem(model, data, Policy()), **changes)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"factors": np.ones(9)}, "at most 8 factors"),
            ({"direction": np.ones(2)}, "direction must have length 3"),
            ({"n_classes": 3}, "one score is for two classes"),
            ({"n_classes": 1}, "two classes"),
        ],
    )
    def test_problems(self, changes, message):
        X, y = rows(60, 3)
        with pytest.raises(ValueError, match=message):
            _kernels.small_table(X, y, np.full(60, 1 / 60), self.problem(**changes))

    def test_codes(self):
        X, y = rows(60, 3)
        with pytest.raises(IndexError, match="codes"):
            _kernels.small_table(X, y + 1, np.full(60, 1 / 60), self.problem())
        with pytest.raises(ValueError, match="weights must have length 60"):
            _kernels.small_table(X, y, np.full(59, 1 / 59), self.problem())
        with pytest.raises(ValueError, match="start must have length 4"):
            _kernels.small_table(X, y, np.full(60, 1 / 60), self.problem(), np.ones(3))
        with pytest.raises(ValueError, match="codes must have length 60"):
            _kernels.small_table(X, y[1:], np.full(60, 1 / 60), self.problem())

    @pytest.mark.parametrize("level", [] if _kernels.small_table is None else ["baseline", "avx2"])
    def test_levels_agree(self, level):
        from marginpursuit._kernels import _compiled

        if level not in _compiled.LEVELS:
            pytest.skip(f"this processor has no {level}")
        X, y = rows(90, 7)
        problem = self.problem(direction=np.ones(7))
        found, best = (
            _kernels.small_table(X[:60], y[:60], np.full(60, 1 / 60), problem, **own)
            for own in ({"level": level}, {})
        )
        assert_allclose(found[0], best[0], rtol=1e-9)
        assert_allclose(found[3][4], best[3][4], rtol=1e-6)
