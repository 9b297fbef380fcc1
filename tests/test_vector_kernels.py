"""The two-loop recursion and the weighted Gram matrix of CSR rows."""

import numpy as np
import pytest
from kernel_cases import (
    LEVELS,
    compiled,
    needs_compiled,
)
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from marginpursuit._kernels import _arrays


class TestPairLoop:
    """One half of the two-loop recursion."""

    @pytest.mark.parametrize("n", [1, 7, 8, 31, 32, 33, 100])
    @pytest.mark.parametrize("level", ["numpy", *LEVELS])
    def test_each_task_goes_through_all_pairs(self, level, n):
        rng = np.random.default_rng(n)
        reads, writes = rng.normal(size=(2, 4, 3, n))
        inverse, factors, points = (
            rng.normal(size=(4, 3)),
            rng.normal(size=(4, 3)),
            rng.normal(size=(3, n)),
        )
        expected, wanted = points.copy(), factors.copy()
        for p in range(4):
            for k in range(3):
                wanted[p, k] -= inverse[p, k] * (reads[p, k] @ expected[k])
                expected[k] += wanted[p, k] * writes[p, k]
        loop = _arrays.lbfgs_loop if level == "numpy" else compiled.lbfgs_loop
        options = {} if level == "numpy" else {"level": level}
        loop(list(reads), list(writes), inverse, factors, points, **options)
        scale = np.abs(expected).max()
        assert_allclose(points, expected, rtol=1e-11, atol=1e-12 * scale)
        assert_allclose(factors, wanted, rtol=1e-11, atol=1e-12 * scale)

    @needs_compiled
    def test_without_pairs_nothing_changes(self):
        points = np.ones((2, 5))
        compiled.lbfgs_loop([], [], np.empty((0, 2)), np.empty((0, 2)), points)
        assert_array_equal(points, 1.0)

    @needs_compiled
    @pytest.mark.parametrize("wrong", range(5))
    def test_nothing_is_touched_outside(self, wrong):
        arrays = [[np.ones((2, 5))], [np.ones((2, 5))], np.ones((1, 2)), np.ones((1, 2))]
        arrays.append(np.ones((2, 5)))
        arrays[wrong] = [
            [np.ones((2, 4))],
            [np.ones((1, 5))],
            np.ones((1, 3)),
            np.ones((2, 2)),
            np.ones((3, 5)),
        ][wrong]
        with pytest.raises(ValueError, match="must have length"):
            compiled.lbfgs_loop(*arrays)


class TestCsrGram:
    @pytest.mark.parametrize("index", [np.int32, np.int64])
    @pytest.mark.parametrize("kernels", [_arrays, pytest.param(compiled, marks=needs_compiled)])
    def test_sums_of_outer_squares(self, kernels, index):
        rng = np.random.default_rng(0)
        matrix = np.where(rng.random((30, 7)) < 0.4, rng.normal(size=(30, 7)), 0.0)
        weights = rng.normal(size=30) * (rng.random(30) < 0.7)
        stored = sparse.csr_array(matrix)
        stored.data[np.repeat(weights == 0, np.diff(stored.indptr))] = np.nan  # is not read
        indices, indptr = stored.indices.astype(index), stored.indptr.astype(index)
        total = np.ones((7, 7))
        for first, last in ((3, 12), (12, 30), (30, 30)):
            kernels.csr_gram(stored.data, indices, indptr, weights, first, last, total)
        expected = 2 + (matrix[3:].T * weights[3:]) @ matrix[3:]
        assert_allclose(total + total.T, expected, atol=1e-14)
        nothing = np.empty(0, index)
        kernels.csr_gram(np.empty(0), nothing, np.zeros(3, index), np.ones(2), 0, 2, total)

    @pytest.mark.parametrize("index", [np.int32, np.int64])
    @pytest.mark.parametrize("kernels", [_arrays, pytest.param(compiled, marks=needs_compiled)])
    def test_moments_and_largest_values_of_columns(self, kernels, index):
        rng = np.random.default_rng(1)
        matrix = np.where(rng.random((30, 7)) < 0.4, rng.normal(size=(30, 7)), 0.0)
        matrix[:, 3] = 0.0
        weights = rng.normal(size=30) * (rng.random(30) < 0.7)
        stored = sparse.csr_array(matrix)
        parts = stored.indices.astype(index), stored.indptr.astype(index)
        largest = np.full(7, 0.5)
        kernels.csr_largest(stored.data, *parts, largest)
        assert_array_equal(largest, np.maximum(np.abs(matrix).max(axis=0), 0.5))
        stored.data[np.repeat(weights == 0, np.diff(stored.indptr))] = np.nan  # is not read
        total = np.ones((7, 2))
        kernels.csr_moments(stored.data, *parts, weights, total)
        expected = 1 + np.column_stack([weights @ matrix, weights @ matrix**2])
        assert_allclose(total, expected, atol=1e-14)
        nothing = np.empty(0), np.empty(0, index), np.zeros(3, index)
        kernels.csr_moments(*nothing, np.ones(2), total)
        kernels.csr_largest(*nothing, largest)

    @needs_compiled
    def test_moments_and_largest_values_read_nothing_outside(self):
        given = {
            "data": np.ones(2),
            "indices": np.array([0, 1], np.int32),
            "indptr": np.array([0, 1, 2], np.int32),
        }
        sums, largest = {"weights": np.ones(2), "total": np.zeros((2, 2))}, {"largest": np.zeros(2)}
        for name, wrong in (
            ("data", np.ones(1)),
            ("indices", np.array([0, 2], np.int32)),
            ("indices", np.array([-1, 1], np.int32)),
            ("indptr", np.array([0, 3, 2], np.int32)),
            ("indptr", np.array([1, 1, 2], np.int32)),
        ):
            with pytest.raises(IndexError):
                compiled.csr_moments(**given | sums | {name: wrong})
            with pytest.raises(IndexError):
                compiled.csr_largest(**given | largest | {name: wrong})
        for name, wrong in (("weights", np.ones(1)), ("total", np.zeros((2, 3)))):
            with pytest.raises(ValueError, match="length"):
                compiled.csr_moments(**given | sums | {name: wrong})

    @needs_compiled
    def test_nothing_is_read_outside(self):
        given = {
            "data": np.ones(2),
            "indices": np.array([0, 1], np.int32),
            "indptr": np.array([0, 1, 2], np.int32),
            "weights": np.ones(2),
            "first": 0,
            "last": 2,
            "total": np.zeros((2, 2)),
        }
        compiled.csr_gram(**given)
        for name, wrong, error in (
            ("data", np.ones(1), IndexError),
            ("indices", np.array([0, 2], np.int32), IndexError),
            ("indices", np.array([-1, 1], np.int32), IndexError),
            ("indptr", np.array([0, 3, 2], np.int32), IndexError),
            ("indptr", np.array([-1, 1, 2], np.int32), IndexError),
            ("indptr", np.array([0, 1], np.int32), IndexError),
            ("weights", np.ones(1), IndexError),
            ("first", -1, IndexError),
            ("last", 3, IndexError),
            ("total", np.zeros((2, 3)), ValueError),
        ):
            with pytest.raises(error):
                compiled.csr_gram(**given | {name: wrong})
