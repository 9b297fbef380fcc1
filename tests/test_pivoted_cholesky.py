"""The blocked factorisation against the matrix, and against LAPACK's in one block."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg.lapack import dpstrf

from marginpursuit import _pivoted_cholesky
from marginpursuit._pivoted_cholesky import inverse_of_lower, pivoted_cholesky
from marginpursuit._threads import Threads


def matrix(n, rank, seed=0):
    rows = np.random.default_rng(seed).normal(size=(n, rank))
    return rows @ rows.T


@pytest.mark.parametrize("block", [8, 16, 1000])
@pytest.mark.parametrize(("n", "rank"), [(50, 60), (50, 50), (50, 20), (41, 3), (7, 7)])
def test_the_factor_has_the_matrix_and_its_rank(monkeypatch, block, n, rank):
    monkeypatch.setattr(_pivoted_cholesky, "_BLOCK_ROWS", block)
    gram = matrix(n, rank)
    lower, pivots = pivoted_cholesky(gram.copy(), 1e-9)
    assert lower.shape == (n, min(n, rank))
    assert len(np.unique(pivots)) == min(n, rank)
    assert_array_equal(np.triu(lower[pivots], 1), 0.0)
    assert np.all(np.diagonal(lower[pivots]) > 0)
    assert_allclose(lower @ lower.T, gram, atol=1e-8)
    assert_allclose(inverse_of_lower(lower[pivots]) @ lower[pivots], np.eye(len(pivots)), atol=1e-8)


def test_repeated_rows_in_other_blocks_are_no_pivots(monkeypatch):
    monkeypatch.setattr(_pivoted_cholesky, "_BLOCK_ROWS", 8)
    gram = np.tile(matrix(12, 12), (3, 3))
    lower, pivots = pivoted_cholesky(gram.copy(), 1e-9)
    assert len(pivots) == 12
    assert len(np.unique(pivots % 12)) == 12
    assert_allclose(lower @ lower.T, gram, atol=1e-9)


def test_one_block_has_the_pivots_of_lapack():
    gram = matrix(30, 30)
    factor, order, *_ = dpstrf(gram.T, tol=1e-9, lower=1)
    lower, pivots = pivoted_cholesky(gram.copy(), 1e-9)
    assert_array_equal(pivots, order - 1)
    assert_array_equal(lower[pivots], np.tril(factor))


def test_threads_do_not_change_the_factor(monkeypatch):
    monkeypatch.setattr(_pivoted_cholesky, "_BLOCK_ROWS", 8)
    gram = matrix(60, 40)
    expected = pivoted_cholesky(gram.copy(), 1e-9)
    with Threads(2) as threads:
        found = pivoted_cholesky(gram.copy(), 1e-9, threads.map)
    assert_array_equal(found[0], expected[0])
    assert_array_equal(found[1], expected[1])


def test_a_zero_matrix_has_no_pivot():
    lower, pivots = pivoted_cholesky(np.zeros((4, 4)), 0.0)
    assert lower.shape == (4, 0)
    assert len(pivots) == 0
