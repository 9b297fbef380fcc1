"""The random-projection bound, against 50 digits, exact probabilities and brute force."""

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from marginpursuit.bounds import (
    projection_profile,
    projection_risk_bound,
)


def flip_probability(cosine, bias, k, factor=1.0):
    """Return P{⟨Pw, Px⟩ + b has the other sign}, from its representation by two chi-squares.

    ⟨Pw, Px⟩ is factor/(2k) times (1 + cos)A - (1 - cos)A' with A, A' chi-squared of k degrees; for
    entries N(0, 1/k) the factor is 1, for N(0, 1/d) it is k/d.
    """
    other = stats.chi2.ppf((np.arange(4000) + 0.5) / 4000, k)
    needed = ((1 - cosine) * other - 2 * k * bias / factor) / (1 + cosine)
    negative = np.mean(stats.chi2.cdf(needed, k))
    return negative if cosine + bias > 0 else 1 - negative


@pytest.mark.parametrize("k", [1, 2, 5, 20, 100, 1000])
def test_profile_bounds_the_probability_of_a_flip(k):
    for cosine in (-0.99, -0.5, 0.0, 0.05, 0.3, 0.9, 0.999):
        for bias in (0.0, 0.02, -0.25, 0.7, 1.5, -3.0):
            score = cosine + bias
            assert flip_probability(cosine, bias, k) <= projection_profile(score, k) + 1e-9
        if cosine > 0:  # without a bias: a probability of an F distribution
            exact = stats.f.cdf((1 - cosine) / (1 + cosine), k, k)
            assert flip_probability(cosine, 0.0, k) == pytest.approx(exact, abs=1e-4)
            assert exact <= projection_profile(cosine, k)


def test_e19_the_entries_have_variance_1_over_k():
    d, k, cosine, bias = 400, 40, 0.95, -0.25
    rng = np.random.default_rng(3)
    w, x = np.zeros(d), np.zeros(d)
    w[0], x[0], x[1] = 1.0, cosine, math.sqrt(1 - cosine**2)
    matrices = rng.normal(size=(200, k, d))
    products = np.einsum("rk,rk->r", matrices @ w, matrices @ x)
    score = cosine + bias
    assert np.mean(products / k + bias < 0) == 0.0
    assert np.mean(products / d + bias < 0) == 1.0
    assert flip_probability(cosine, bias, k, factor=k / d) == pytest.approx(1.0)
    # The printed bound, with d for k, is nearly 0 for an event of probability 1.
    assert projection_profile(score, d) < 1e-5
    assert flip_probability(cosine, bias, k) <= projection_profile(score, k)


def test_profile_in_50_digits():
    score = [0.0, 1e-200, 1e-3, -0.05, 0.3, -1.0, 2.5, 1e3, 1e200, math.inf]
    for k in (1, 7, 400, 10**6):
        values = projection_profile(score, k)
        with mp.workdps(50):
            for h, value in zip(score, values, strict=True):
                size = abs(mp.mpf(h))
                if size == 0:
                    expected = mp.mpf(1)
                elif size == mp.inf:
                    expected = mp.mpf(0)
                else:
                    exponent = -(size**2) * k / (2 * (2 + size) ** 2)
                    expected = min(1, 3 * mp.exp(exponent), 2 / (size**2 * k))
                assert value == pytest.approx(float(expected), rel=1e-12, abs=1e-300)


def test_profile_broadcasts_and_keeps_the_float_type():
    score = np.linspace(-1, 1, 5, dtype=np.float32)
    table = projection_profile(score[:, None], [10, 100, 1000])
    assert table.shape == (5, 3)
    assert projection_profile(score, 10).dtype == np.float32
    assert isinstance(projection_profile(0.5, 10), np.float64)
    assert np.all(np.diff(table, axis=1) <= 0)
    np.testing.assert_array_equal(table, table[::-1])


@settings(max_examples=60)
@given(
    hnp.arrays(
        float, st.integers(3, 60).map(lambda n: 2 * n), elements=st.floats(-1, 1) | st.just(0.9)
    ),
    st.floats(1e-4, 0.24),
)
def test_projection_bound_is_the_minimum_over_every_k(margin, delta):
    result = projection_risk_bound(margin, delta)
    n = margin.size // 2
    k = np.arange(1, n - 1)
    projection = 2 / (delta * n) * projection_profile(margin[:, None], k).sum(axis=0)
    complexity = 2 * np.sqrt(((k + 2) * np.log(n * np.e / (k + 2)) + np.log(2 / delta)) / (2 * n))
    total = projection + complexity
    assert result.projection + result.complexity == pytest.approx(total.min(), rel=1e-12)
    assert result.projection == pytest.approx(projection[result.k - 1], rel=1e-12)
    assert result.complexity == pytest.approx(complexity[result.k - 1], rel=1e-12)
    assert result.training_error == np.mean(margin[:n] < 0)
    assert result.bound == result.training_error + result.projection + result.complexity
    assert result.confidence == 1 - 4 * delta


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_projection_bound_is_the_minimum_if_the_best_k_is_inside(seed):
    rng = np.random.default_rng(seed)
    margin = np.r_[np.full(5000, 0.8), rng.uniform(0.4, 1.0, size=1000)]
    result = projection_risk_bound(margin, 0.1)
    n = 3000
    k = np.arange(1, n - 1)
    values, counts = np.unique(margin, return_counts=True)
    total = 2 / (0.1 * n) * sum(
        c * projection_profile(v, k) for v, c in zip(values, counts, strict=True)
    ) + 2 * np.sqrt(((k + 2) * np.log(n * np.e / (k + 2)) + np.log(20)) / (2 * n))
    assert 1 < result.k < n - 2
    assert result.k == k[total.argmin()]
    assert result.bound == pytest.approx(total.min())


def test_projection_bound_counts_errors_of_the_first_half_only():
    margin = np.r_[np.full(50, 0.5), np.full(50, -0.5)]
    assert projection_risk_bound(margin, 0.1).training_error == 0.0
    assert projection_risk_bound(margin[::-1], 0.1).training_error == 1.0
    assert projection_risk_bound(np.zeros(6), 0.1).training_error == 0.0  # y h < 0 is an error


@pytest.mark.parametrize(
    ("margin", "delta", "message"),
    [
        (np.ones(7), 0.1, r"even number of at least 6 values.*got shape \(7,\)"),
        (np.ones(4), 0.1, "even number of at least 6"),
        (np.ones((2, 6)), 0.1, "one-dimensional"),
        (np.full(6, np.nan), 0.1, "margin must not be NaN"),
        (np.ones(6), 0.25, "delta must be strictly between 0 and 0.25; got 0.25"),
    ],
)
def test_projection_bound_rejects_invalid_arguments(margin, delta, message):
    with pytest.raises(ValueError, match=message):
        projection_risk_bound(margin, delta)


def test_profile_rejects_invalid_arguments():
    with pytest.raises(ValueError, match="k must be positive"):
        projection_profile(0.5, 0)
    with pytest.raises(ValueError, match="score must not be NaN"):
        projection_profile(math.nan, 3)


def test_default_confidence_of_the_projection_bound():
    margin = np.linspace(-1.0, 3.0, 200)
    assert projection_risk_bound(margin) == projection_risk_bound(margin, 0.05)
    assert projection_risk_bound(margin) != projection_risk_bound(margin, 0.1)
