"""What the kernels refuse: wrong lengths, spans, dtypes and unsound sparse matrices."""

import numpy as np
import pytest
from kernel_cases import (
    LEVELS,
    check,
    compiled,
    each_level,
    handle,
    needs_compiled,
    random_problem,
    unaligned,
)
from scipy import sparse

from marginpursuit import _kernels
from marginpursuit.losses import MarginLoss


@pytest.mark.parametrize("name", ["sign", "weight", "coef", "gradient"])
@needs_compiled
def test_wrong_lengths_are_refused(name):
    arrays = {
        "sign": np.ones(4),
        "weight": np.ones(4),
        "coef": np.ones(3),
        "gradient": np.ones(3),
    }
    rows = compiled.DenseRows(np.ones((4, 3)))
    rows.sweep(0, 4, MarginLoss(), intercept=0.0, **arrays)
    for wrong in (np.ones(5), np.ones(0)):
        with pytest.raises(ValueError, match=rf"{name} must have length \d; got {len(wrong)}"):
            rows.sweep(0, 4, MarginLoss(), intercept=0.0, **arrays | {name: wrong})
    with pytest.raises(TypeError, match=f"'{name}' must not be None"):
        rows.sweep(0, 4, MarginLoss(), intercept=0.0, **arrays | {name: None})
    with pytest.raises(ValueError, match="dtype mismatch"):
        rows.sweep(0, 4, MarginLoss(), intercept=0.0, **arrays | {name: np.ones(4, np.float32)})


@needs_compiled
def test_wrong_lengths_of_products_are_refused():
    rows = compiled.DenseRows(np.ones((4, 3)))
    three, four = np.ones(3), np.ones(4)
    with pytest.raises(ValueError, match="coef must have length 3; got 4"):
        rows.scores(0, 4, four, 0.0, four)
    with pytest.raises(ValueError, match="out must have length 4; got 3"):
        rows.scores(0, 4, three, 0.0, three)
    with pytest.raises(ValueError, match="factors must have length 4; got 3"):
        rows.adjoint(0, 4, three, three)
    with pytest.raises(ValueError, match="total must have length 3; got 4"):
        rows.adjoint(0, 4, four, four)
    for k in range(3):
        wrong = [np.ones(7 - n if i == k else n) for i, n in enumerate((3, 3, 4))]
        with pytest.raises(ValueError, match="must have length"):
            rows.norms(0, 4, *wrong)
    shapes = (4, 4, (2, 3)), (3, 3, (2, 3)), (3, 4, (1, 3)), (3, 4, (2, 4))
    for wrong in shapes:
        with pytest.raises(ValueError, match="must have length"):
            rows.moments(0, 4, *map(np.ones, wrong))
    with pytest.raises(ValueError, match="factors must have length 3"):
        rows.moments(0, 4, *map(np.ones, (3, 4, (2, 3), 4)))


@needs_compiled
@pytest.mark.parametrize("span", [(-1, 2), (0, 5), (3, 2), (5, 5)])
def test_spans_outside_are_refused(span):
    three, four = np.ones(3), np.ones(4)
    for rows in (compiled.DenseRows(np.ones((4, 3))), handle(np.ones((4, 3)), "csr32", LEVELS[0])):
        with pytest.raises(IndexError, match="not within the 4 rows"):
            rows.sweep(*span, MarginLoss(), four, four, three, 0.0, three.copy())
        with pytest.raises(IndexError, match="not within the 4 rows"):
            rows.scores(*span, three, 0.0, four.copy())
        with pytest.raises(IndexError, match="not within the 4 rows"):
            rows.adjoint(*span, four, three.copy())
    dense = compiled.DenseRows(np.ones((4, 3)))
    with pytest.raises(IndexError, match="not within the 4 rows"):
        dense.moments(*span, three, four, np.ones((2, 3)))
    with pytest.raises(IndexError, match="not within the 4 rows"):
        dense.norms(*span, three, three, four.copy())


@needs_compiled
def test_dense_arrays_that_are_refused():
    with pytest.raises(ValueError, match="2 dimensions; got 1"):
        compiled.DenseRows(np.ones(3))
    with pytest.raises(TypeError, match="'>d' cannot be read"):
        compiled.DenseRows(np.ones((2, 3), ">f8"))
    with pytest.raises(BufferError, match="contiguous"):
        compiled.DenseRows(np.ones((4, 6))[::2, ::2])
    with pytest.raises(BufferError, match="aligned"):
        compiled.DenseRows(unaligned(np.ones((2, 3))))
    with pytest.raises(ValueError, match="level must be one of"):
        compiled.DenseRows(np.ones((2, 3)), "mmx")
    with pytest.raises(TypeError):
        compiled.DenseRows([[1.0]])


@needs_compiled
@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize(
    ("data", "indices", "indptr"),
    [
        ([1, 2], [0, -1], [0, 1, 2]),
        ([1, 2], [0, 3], [0, 1, 2]),
        ([1, 2], [0, 1], [0, 2, 1]),
        ([1, 2], [0, 1], [0, 3, 2]),
        ([1, 2], [0, 1], [1, 1, 2]),
        ([1, 2], [0, 1], [0, 1, 3]),
        ([1, 2], [0, 1], [0, 1, 1]),
        ([1, 2], [0, 1], [-1, 1, 2]),
        ([1, 2, 3], [0, 1], [0, 1, 2]),
        ([1], [0, 1], [0, 1, 2]),
        ([], [], []),
        ([], [], [1]),
    ],
)
def test_unsound_csr_is_refused(data, indices, indptr, index):
    parts = np.array(data, float), np.array(indices, index), np.array(indptr, index)
    with pytest.raises(ValueError, match="CSR"):
        compiled.CsrRows(*parts, 3)


@needs_compiled
def test_other_csr_arrays_that_are_refused():
    data, indices, indptr = np.ones(2), np.array([0, 1], "i4"), np.array([0, 1, 2], "i4")
    compiled.CsrRows(data, indices, indptr, 2)
    with pytest.raises(TypeError, match="both be int32 or both be int64"):
        compiled.CsrRows(data, indices.astype("i8"), indptr, 2)
    with pytest.raises(TypeError, match="both be int32 or both be int64"):
        compiled.CsrRows(data, indices.astype("u4"), indptr.astype("u4"), 2)
    with pytest.raises(BufferError, match="data must be contiguous"):
        compiled.CsrRows(np.ones(4)[::2], indices, indptr, 2)
    with pytest.raises(ValueError, match="indices must have 1 dimension"):
        compiled.CsrRows(data, indices[np.newaxis], indptr, 2)
    with pytest.raises(ValueError, match="every index"):
        compiled.CsrRows(data, indices, indptr, -1)
    broken = sparse.csr_array((data, indices, indptr), shape=(2, 2))
    broken.indices[1] = 7
    with pytest.raises(ValueError, match=r"every index be in \[0, 2\)"):
        _kernels.rows(broken)


@each_level
@pytest.mark.parametrize("index", ["i4", "i8"])
def test_csr_rows_may_be_empty_unsorted_and_name_a_column_twice(level, index):
    indices = np.r_[np.arange(40)[::-1], np.repeat(3, 37), np.arange(5)].astype(index)
    indptr = np.array([0, 0, 40, 40, 77, 82, 82], index)
    data = np.random.default_rng(10).normal(size=82)
    matrix = np.zeros((6, 41))
    np.add.at(matrix, (np.repeat(np.arange(6), np.diff(indptr)), indices), data)
    problem = random_problem(np.random.default_rng(11), 6, 41, "f8")
    problem.matrix = matrix
    check(problem, compiled.CsrRows(data, indices, indptr, 41, level), 0, 6, "csr")
