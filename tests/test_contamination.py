"""Contamination: what it touches, what it leaves alone, and that it says so."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from marginpursuit.datasets import contaminate

RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 4)) * (RNG.random((200, 4)) < 0.6)
Y = RNG.integers(0, 3, size=200)
SHARES = {"flips": 0.1, "leverage": 0.05, "noise": 0.2}


@given(
    flips=st.floats(0, 0.3),
    leverage=st.floats(0, 0.3),
    noise=st.floats(0, 0.3),
    seed=st.integers(0, 2**32),
    kind=st.sampled_from([np.asarray, sparse.csr_array, sparse.csc_matrix]),
)
def test_only_what_is_named_is_touched(flips, leverage, noise, seed, kind):
    data = kind(X)
    bad = contaminate(
        data, Y, flips=flips, leverage=leverage, factor=7.0, noise=noise, random_state=seed
    )
    after = bad.X.toarray() if sparse.issparse(bad.X) else bad.X
    wanted = [round(200 * share) for share in (flips, leverage, noise)]
    assert [int(part.sum()) for part in (bad.flipped, bad.leverage, bad.noisy)] == wanted
    assert int(bad.touched.sum()) == sum(wanted)
    np.testing.assert_array_equal(bad.y != Y, bad.flipped | bad.leverage)
    assert np.isin(bad.y, Y).all()
    np.testing.assert_array_equal(after[bad.leverage], 7.0 * X[bad.leverage])
    np.testing.assert_array_equal(
        after[~(bad.leverage | bad.noisy)], X[~(bad.leverage | bad.noisy)]
    )
    stored = X != 0 if sparse.issparse(data) else np.ones_like(X, dtype=bool)
    np.testing.assert_array_equal((after != X)[bad.noisy], stored[bad.noisy])


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array, sparse.csr_matrix])
def test_input_stays_as_it_is_and_the_kind_of_matrix_too(kind):
    data, labels = kind(X.copy()), Y.copy()
    bad = contaminate(data, labels, **SHARES, random_state=0)
    np.testing.assert_array_equal(data.toarray() if sparse.issparse(data) else data, X)
    np.testing.assert_array_equal(labels, Y)
    assert isinstance(bad.X, type(data))


def test_same_seed_same_damage_whether_dense_or_sparse():
    one, two = (contaminate(X, Y, **SHARES, random_state=3) for _ in range(2))
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a, b)
    other = contaminate(X, Y, **SHARES, random_state=4)
    assert np.any(other.touched != one.touched)
    thin = contaminate(sparse.csr_array(X), Y, **SHARES, random_state=3)
    for a, b in zip(one[1:], thin[1:], strict=True):
        np.testing.assert_array_equal(a, b)


def test_noise_has_the_size_of_the_column_and_heavy_tails():
    data = np.column_stack([np.full(20_000, 2.0), np.full(20_000, 200.0)])
    bad = contaminate(data, np.arange(20_000) % 2, noise=1.0, noise_scale=0.5, random_state=0)
    noise = (bad.X - data) / data
    # Quartiles of Student's law with 1.5 degrees of freedom are at ±0.882.
    np.testing.assert_allclose(np.quantile(noise, 0.75, axis=0), 0.5 * 0.8823, rtol=0.05)
    assert np.abs(noise).max() > 50


def test_text_labels_stay_text():
    bad = contaminate(X, np.array(["a", "b", "c"])[Y], flips=1.0, random_state=0)
    assert set(bad.y) <= {"a", "b", "c"}
    assert np.all(bad.y != np.array(["a", "b", "c"])[Y])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"flips": 1.5}, r"flips must be in \[0, 1\]; got 1.5"),
        ({"flips": 0.7, "noise": 0.7}, "add up to at most 1"),
        ({"factor": 0.0}, "factor must be positive"),
        ({"noise_scale": -1.0}, "noise_scale must be positive"),
        ({"degrees_of_freedom": 0.0}, "degrees_of_freedom must be positive"),
        ({"y": Y[:-1]}, "one label for each of the 200 rows"),
        ({"y": np.zeros(200), "flips": 0.1}, "at least 2 labels"),
        ({"X": X[:, 0]}, "two dimensions"),
    ],
)
def test_bad_requests_are_refused(change, words):
    arguments = {"X": X, "y": Y, **change}
    with pytest.raises(ValueError, match=words):
        contaminate(arguments.pop("X"), arguments.pop("y"), **arguments)


def test_no_damage_asked_for_none_done():
    bad = contaminate(X, np.zeros(200))
    np.testing.assert_array_equal(bad.X, X)
    assert not bad.touched.any()
