"""Broken sparse matrices are refused before compiled code reads them; odd index types are read."""

import numpy as np
import pytest
from scipy import sparse

from marginpursuit import LDMClassifier, MarginPursuitClassifier, PegasosClassifier
from marginpursuit._validation import checked_sparse
from marginpursuit.blocks import Blocks
from marginpursuit.solvers import stochastic_margin_pursuit

RNG = np.random.default_rng(0)
DENSE = RNG.standard_normal((60, 6)) * (RNG.random((60, 6)) < 0.5)
Y = (DENSE[:, 0] + 0.3 * RNG.standard_normal(60) > 0).astype(int)


def matrix(kind, **changes):
    """Return the data in a sparse format, with attributes changed after the checks of SciPy."""
    options = {"blocksize": (2, 3)} if kind == "bsr" else {}
    X = getattr(sparse, f"{kind}_array")(DENSE, **options)
    for name, change in changes.items():
        if name in ("row", "col"):
            axis = ("row", "col").index(name)
            coords = list(X.coords)
            coords[axis] = change(coords[axis].copy())
            X.coords = tuple(coords)
        else:
            setattr(X, name, change(getattr(X, name).copy()))
    return X


def at(place, value):
    def change(array):
        array[place] = value
        return array

    return change


BROKEN = {
    "COO, negative row": ("coo", {"row": at(0, -1)}),
    "COO, row out of range": ("coo", {"row": at(3, 60)}),
    "COO, column out of range": ("coo", {"col": at(3, 10**6)}),
    "COO, short data": ("coo", {"data": lambda data: data[:-5]}),
    "COO, short rows": ("coo", {"row": lambda row: row[:-5]}),
    "COO, float rows": ("coo", {"row": lambda row: row + 0.5}),
    "BSR, indptr too large": ("bsr", {"indptr": at(-1, 10**7)}),
    "BSR, indptr that falls": ("bsr", {"indptr": at(5, 0)}),
    "BSR, short indptr": ("bsr", {"indptr": lambda indptr: indptr[:-3]}),
    "BSR, index out of range": ("bsr", {"indices": at(2, 99)}),
    "BSR, short data": ("bsr", {"data": lambda data: data[:-4]}),
    "BSR, other blocks": ("bsr", {"data": lambda data: data[:, :, [0, 1, 2, 0]]}),
    "BSR, flat data": ("bsr", {"data": np.ravel}),
    "CSR, float indices": ("csr", {"indices": lambda indices: indices + 0.25}),
    "CSR, float indptr": ("csr", {"indptr": lambda indptr: indptr.astype(float)}),
    "CSR, short indptr": ("csr", {"indptr": lambda indptr: indptr[:-1]}),
    "CSR, short data": ("csr", {"data": lambda data: data[:-1]}),
    "CSR, short indices": ("csr", {"indices": lambda indices: indices[:-1]}),
    "CSR, matrix of data": ("csr", {"data": lambda data: data[:, np.newaxis]}),
    "CSR, negative index": ("csr", {"indices": at(0, -1)}),
    "CSR, unsigned indptr that falls": (
        "csr",
        {"indptr": lambda indptr: at(5, 10**9)(indptr.astype(np.uint32))},
    ),
    "CSC, index out of range": ("csc", {"indices": at(0, 60)}),
    "CSC, indptr too large": ("csc", {"indptr": at(-1, 10**7)}),
    "DIA, short offsets": ("dia", {"offsets": lambda offsets: offsets[:-1]}),
    "DIA, equal offsets": ("dia", {"offsets": at(0, 1)}),
    "DIA, float offsets": ("dia", {"offsets": lambda offsets: offsets + 0.5}),
    "LIL, index out of range": ("lil", {"rows": at(0, [10**6])}),
    "LIL, short values": ("lil", {"data": at(0, [])}),
    "LIL, no list": ("lil", {"rows": at(0, None)}),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_matrices_are_refused(case):
    kind, changes = BROKEN[case]
    with pytest.raises(ValueError, match=f"X is a broken {kind} matrix of shape"):
        MarginPursuitClassifier().fit(matrix(kind, **changes), Y)


@pytest.mark.parametrize("case", ["COO, negative row", "BSR, short data", "CSR, short data"])
def test_broken_matrices_are_refused_everywhere(case):
    kind, changes = BROKEN[case]
    model = MarginPursuitClassifier().fit(DENSE, Y)
    with pytest.raises(ValueError, match="broken"):
        model.predict(matrix(kind, **changes))
    with pytest.raises(ValueError, match="broken"):
        PegasosClassifier().fit(matrix(kind, **changes), Y)
    with pytest.raises(ValueError, match="broken"):
        MarginPursuitClassifier().fit(Blocks([lambda: matrix(kind, **changes)], [60]), Y)
    with pytest.raises(ValueError, match="broken"):
        stochastic_margin_pursuit(matrix(kind, **changes), 2 * Y - 1, alpha=0.1, n_steps=10)


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr", "dia", "lil", "dok"])
def test_every_format_is_read(kind):
    np.testing.assert_array_equal(checked_sparse(matrix(kind)).toarray(), DENSE)


@pytest.mark.parametrize("kind", ["csr", "csc", "bsr"])
@pytest.mark.parametrize(
    ("indices", "indptr"),
    [("i4", "i8"), ("i8", "i4"), ("i2", "i4"), ("u4", "u4"), ("u8", "i4"), (">i4", ">i4")],
)
def test_index_arrays_of_other_types_are_converted(kind, indices, indptr):
    X = matrix(
        kind, indices=lambda array: array.astype(indices), indptr=lambda array: array.astype(indptr)
    )
    checked = checked_sparse(X)
    assert checked.indices.dtype == checked.indptr.dtype
    assert checked.indices.dtype in (np.int32, np.int64)
    np.testing.assert_array_equal(checked.toarray(), DENSE)


@pytest.mark.parametrize(
    "model", [MarginPursuitClassifier(), LDMClassifier(), PegasosClassifier(random_state=0)]
)
def test_fits_of_mixed_index_types(model):
    mixed = matrix("csr", indptr=lambda indptr: indptr.astype(np.int64))
    assert mixed.indices.dtype == np.int32
    fitted = model.fit(mixed, Y).coef_.copy()
    np.testing.assert_array_equal(fitted, model.fit(matrix("csr"), Y).coef_)


def test_good_matrices_are_not_copied():
    for kind in ("csr", "csc", "coo", "bsr"):
        X = matrix(kind)
        assert checked_sparse(X) is X


@pytest.mark.parametrize("block", [None, np.zeros(5), np.zeros((2, 2, 2)), 3.0])
def test_blocks_that_are_no_matrices_are_refused(block):
    for lengths in (None, [5]):
        with pytest.raises(ValueError, match="block 0 must be a matrix of 2 dimensions"):
            Blocks([lambda: block], lengths)


@pytest.mark.parametrize("block", [np.zeros((5, 0)), sparse.csr_array((5, 0))])
def test_blocks_without_columns_are_refused(block):
    with pytest.raises(ValueError, match="at least one column"):
        Blocks([lambda: block])


def test_dask_arrays_without_columns_are_refused():
    array = pytest.importorskip("dask.array")
    X = array.from_array(DENSE, chunks=(20, 6))[:, :0]
    with pytest.raises(ValueError, match="at least one column"):
        MarginPursuitClassifier().fit(X, Y)
