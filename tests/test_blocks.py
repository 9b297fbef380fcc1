"""Rows in blocks: fits equal to those in memory, memory use, files, errors that name the block."""

import threading
import time
import tracemalloc
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.datasets import load_breast_cancer, load_digits

from marginpursuit import MarginPursuitClassifier, PegasosClassifier
from marginpursuit.blocks import Blocks, from_npy, from_parquet, to_npy
from marginpursuit.design import design_for

# One solver for rows in memory and elsewhere: two solvers differ by their tolerance.
classifier = partial(MarginPursuitClassifier, solver="gram")
published = partial(MarginPursuitClassifier.as_published, solver="gram")


def in_blocks(X, *edges):
    """Return X in blocks that begin at the given rows."""
    edges = [0, *edges, X.shape[0]]
    parts = [X[a:b] for a, b in pairwise(edges)]
    return Blocks([partial(lambda part: part, part) for part in parts])


def cancer():
    return load_breast_cancer(return_X_y=True)


def assert_same_fit(ours, expected, rtol=1e-12):
    size = np.abs(expected.coef_).max()
    assert_allclose(ours.coef_, expected.coef_, rtol=rtol, atol=rtol * size)
    assert_allclose(ours.intercept_, expected.intercept_, rtol=rtol, atol=rtol)
    assert_allclose(ours.scale_, expected.scale_, rtol=rtol)
    assert ours.n_iter_ == expected.n_iter_


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.uint8])
@pytest.mark.parametrize("edges", [(), (100,), (1, 1, 250, 568)])
def test_fit_equals_the_fit_in_memory(dtype, edges):
    X, y = cancer()
    X = X.astype(dtype)
    expected = published().fit(X, y)
    blocks = in_blocks(X, *edges)
    ours = published().fit(blocks, y)
    assert_same_fit(ours, expected)
    assert ours.n_passes_ == expected.n_passes_ - 1  # mean and Gram matrix in one pass
    assert ours.n_features_in_ == 30
    assert_allclose(
        ours.decision_function(blocks), ours.decision_function(X), rtol=1e-13, atol=1e-14
    )
    assert_array_equal(ours.predict(blocks), ours.predict(X))
    assert_allclose(ours.predict_proba(blocks), ours.predict_proba(X), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    "settings",
    [
        {"fit_intercept": False},
        {"solver": "steepest", "max_iter": 20, "alpha": 1.0},
        {"class_weight": "balanced", "alpha": 0.1, "alpha_unit": "common"},
        {"scale": 3.0, "margin": 0.5},
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:.*took all steps")
def test_fit_of_other_settings(settings):
    X, y = cancer()
    weights = np.random.default_rng(0).integers(0, 3, len(y))
    weights[:120] = 0  # the first block has weight zero
    expected = classifier(leverage_bound=None, **settings).fit(X, y, weights)
    ours = classifier(leverage_bound=None, **settings).fit(in_blocks(X, 100, 300), y, weights)
    assert_same_fit(ours, expected)


@pytest.mark.parametrize(
    "settings",
    [
        {"overconfidence": 0.0, "scale": 0.1, "alpha": 1e-3, "alpha_unit": "standardised"},
        {"solver": "lbfgs", "max_iter": 5000, "tol": 1e-8},
    ],
    ids=["finish", "lbfgs"],
)
def test_long_fits_reach_the_same_minimum(settings):
    """Rounding errors change the iterates of a long fit, and leave the minimum unchanged."""
    X, y = cancer()
    expected = classifier(**settings).fit(X, y)
    ours = classifier(**settings).fit(in_blocks(X, 200), y)
    assert_allclose(ours.objective_, expected.objective_, rtol=1e-6)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_many_classes_and_sparse_blocks(kind):
    """Many iterations amplify the rounding of a joint fit, which stays within its tolerance."""
    X, y = load_digits(return_X_y=True)
    rows, blocks = kind(X), in_blocks(kind(X), 500, 1000)
    expected = published().fit(rows, y)
    ours = published().fit(blocks, y)
    assert_same_fit(ours, expected, rtol=1e-9)
    expected, ours = (classifier(tol=1e-6).fit(data, y) for data in (rows, blocks))
    assert expected.multi_class_ == ours.multi_class_ == "joint"
    assert_allclose(ours.objective_, expected.objective_, rtol=1e-6)
    assert_allclose(ours.decision_function(rows), expected.decision_function(rows), atol=1e-2)


def test_sparse_blocks_of_any_format_and_with_duplicate_entries():
    X, y = cancer()
    half = sparse.coo_array(X[:300] / 2)
    twice = sparse.coo_array(
        (np.tile(half.data, 2), (np.tile(half.row, 2), np.tile(half.col, 2))), half.shape
    )
    blocks = Blocks([lambda: twice, lambda: sparse.csc_array(X[300:])])
    expected = classifier().fit(sparse.csr_array(X), y)
    assert_same_fit(classifier().fit(blocks, y), expected, rtol=1e-7)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_underdetermined_fit(kind):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 90)) + 1.0, np.arange(40) % 2
    expected = classifier(alpha=0.1).fit(kind(X), y)
    ours = classifier(alpha=0.1).fit(in_blocks(kind(X), 7, 30), y)
    assert_same_fit(ours, expected, rtol=1e-9)


def test_variances_of_folds():
    X, _ = cancer()
    weights = np.random.default_rng(0).random((3, len(X)))
    weights /= weights.sum(axis=1, keepdims=True)
    found = []
    for matrix in (X, in_blocks(X, 10, 400)):
        design = design_for(matrix)
        z = design.standardisation(weights[0], centred=True)
        found.append(design.fold_variances(weights, z, centred=True))
    assert_allclose(*found, rtol=1e-11)


@pytest.mark.parametrize("factor", [1e200, 1e-200])
def test_columns_whose_squares_overflow_or_underflow(factor):
    X, y = cancer()
    X = X * np.where(np.arange(30) == 3, factor, 1.0)
    expected = classifier().fit(X, y)
    ours = classifier().fit(in_blocks(X, 200), y)
    assert_array_equal(ours.predict(X), expected.predict(X))
    assert_allclose(ours.coef_, expected.coef_, rtol=1e-10)


def test_moments_far_from_the_origin():
    """Each block is centred at its own mean, so that combining moments does not cancel."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(900, 4))
    weights = np.full(900, 1 / 900)
    near, far = (
        design_for(x).standardisation_and_gram(weights, centred=True)[1]
        for x in (rows, in_blocks(rows + 1e8, 300, 600))
    )
    assert_allclose(near, far, atol=1e-6)


def test_labels_of_blocks():
    X, y = cancer()
    loaders = [lambda: X[:200], lambda: X[200:]]
    blocks = Blocks(loaders, [200, 369], [lambda: y[:200], lambda: y[200:]])
    assert_array_equal(blocks.labels(), y)
    assert_array_equal(blocks.map(np.abs).labels(), y)
    with pytest.raises(ValueError, match="without labels"):
        Blocks(loaders).labels()


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_subset_of_rows(kind):
    X, _ = cancer()
    blocks, wanted = in_blocks(kind(X), 100, 100, 300), np.flatnonzero(np.arange(569) % 7 == 3)
    wanted = wanted[wanted < 300]  # none of the last block
    subset = blocks.take(wanted)
    assert subset.shape == (len(wanted), 30)
    assert_array_equal(kind(subset.gather()).sum(axis=1), kind(X[wanted]).sum(axis=1))
    again = subset.take(np.array([0, 20]))
    assert_array_equal(kind(again.gather()).sum(axis=0), kind(X[wanted[[0, 20]]]).sum(axis=0))
    assert_array_equal(again.edges, [0, 1, 1, 2, 2])
    assert blocks.elements_per_row == (30 if kind is np.asarray else kind(X[:100]).nnz / 100)
    with pytest.raises(ValueError, match="without labels"):
        subset.labels()


def test_subset_of_mapped_blocks_loads_each_block_once():
    loads = []
    blocks = Blocks([lambda: loads.append(1) or np.eye(3)], [3])
    subset = blocks.map(lambda rows: 2 * rows).take(np.array([1]))
    before = len(loads)
    assert_array_equal(subset.take(np.array([0])).gather(), [[0.0, 2.0, 0.0]])
    assert len(loads) == before + 1


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_partial_fit_uses_blocks_as_batches(kind):
    X, y = load_digits(return_X_y=True)
    weights = np.random.default_rng(0).integers(0, 3, len(y)).astype(float)
    weights[1200:1500] = 0  # a block of weight zero is skipped
    ours, expected = classifier(), classifier()
    ours.partial_fit(
        in_blocks(kind(X[:1700]), 700, 1200, 1500), y[:1700], range(10), weights[:1700]
    )
    ours.partial_fit(in_blocks(kind(X[1700:])), y[1700:], sample_weight=weights[1700:])
    for first, last in ((0, 700), (700, 1200), (1500, 1700), (1700, 1797)):
        rows = slice(first, last)
        expected.partial_fit(kind(X[rows]), y[rows], range(10), weights[rows])
    assert ours.n_iter_ == expected.n_iter_
    size = np.abs(expected.coef_).max()
    assert_allclose(ours.coef_, expected.coef_, rtol=1e-6, atol=1e-8 * size)


def test_partial_fit_checks_all_blocks_before_the_first_update():
    X, y = cancer()
    model = classifier().partial_fit(X, y, classes=[0, 1])
    coef, broken = model.coef_.copy(), X.copy()
    broken[305, 4] = np.nan
    with pytest.raises(ValueError, match="column 4, row 5 of block 2"):
        model.partial_fit(in_blocks(broken, 100, 300), y)
    with pytest.raises(ValueError, match=r"labels that are in classes; got \[2\]"):
        model.partial_fit(in_blocks(X, 100), np.where(np.arange(569) == 500, 2, y))
    with pytest.raises(ValueError, match=r"29 features, but .* 30 features"):
        model.partial_fit(in_blocks(X[:, :29], 100), y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.partial_fit(in_blocks(X, 100), y[1:])
    assert_array_equal(model.coef_, coef)


@pytest.fixture
def folder(tmp_path):
    X, _ = cancer()
    np.save(tmp_path / "b.npy", X[200:])
    np.save(tmp_path / "a.npy", np.asfortranarray(X[:200]))
    np.save(tmp_path / "one.npy", X)
    (tmp_path / "parts").mkdir()
    for name in ("a.npy", "b.npy"):
        (tmp_path / name).rename(tmp_path / "parts" / name)
    (tmp_path / "parts" / "notes.txt").write_text("not rows")
    return tmp_path


@pytest.mark.parametrize("name", ["one.npy", "parts"])
@pytest.mark.parametrize("block_bytes", [1, 10_000, 1 << 26])
def test_npy_files(folder, name, block_bytes):
    X, _ = cancer()
    blocks = from_npy(folder / name, block_bytes=block_bytes)
    most = {1: 569, 10_000: 14}.get(block_bytes, 1 if name == "one.npy" else 2)
    assert blocks.n_blocks == most
    assert_array_equal(np.concatenate([rows for _, _, rows in blocks.each(np.asarray)]), X)


def test_files_in_a_given_order(folder):
    X, _ = cancer()
    blocks = from_npy([folder / "parts" / "b.npy", folder / "parts" / "a.npy"])
    assert_array_equal(blocks.load(1), X[:200])


def test_errors_of_npy_files(folder, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"no .npy file"):
        from_npy(tmp_path / "empty")
    np.save(tmp_path / "flat.npy", np.ones(3))
    with pytest.raises(ValueError, match="2 dimensions; got 1"):
        from_npy(tmp_path / "flat.npy")
    np.save(tmp_path / "object.npy", np.array([[None]]), allow_pickle=True)
    with pytest.raises(ValueError, match=r"[Pp]ickle|Python objects"):
        from_npy(tmp_path / "object.npy")
    blocks = from_npy(folder / "one.npy", block_bytes=10_000)
    whole = (folder / "one.npy").read_bytes()
    (folder / "one.npy").write_bytes(whole[:-8])
    with pytest.raises(RuntimeError, match="block 13 could not be loaded"):
        blocks.load(13)


@pytest.mark.parametrize("nested", ["fixed", "variable", "none"])
def test_parquet(tmp_path, nested):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    X, y = cancer()
    if nested == "none":
        columns = {f"x{j}": X[:, j] for j in range(30)}
    else:
        kind = pa.list_(pa.float64(), 30) if nested == "fixed" else pa.list_(pa.float64())
        columns = {"embedding": pa.array(list(X), type=kind)}
    table = pa.table({"y": y, **columns})
    pq.write_table(table, tmp_path / "data.parquet", row_group_size=200)
    blocks = from_parquet(tmp_path, target="y")
    assert blocks.shape == X.shape
    assert_array_equal(blocks.edges, [0, 200, 400, 569])
    assert_array_equal(blocks.labels(), y)
    assert_array_equal(blocks.load(1), X[200:400])
    expected = classifier().fit(X, y)
    assert_same_fit(classifier().fit(blocks, blocks.labels()), expected)
    chosen = list(columns)[:2]
    assert from_parquet(tmp_path, columns=chosen).shape[1] == (2 if nested == "none" else 30)


def test_errors_of_parquet_files(tmp_path):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"x": [[1.0, 2.0], [3.0]]}), tmp_path / "ragged.parquet")
    with pytest.raises(RuntimeError, match=r"block 0.*lists of equal length"):
        from_parquet(tmp_path / "ragged.parquet")
    pq.write_table(pa.table({"x": [[1.0], None]}), tmp_path / "missing.parquet")
    with pytest.raises(RuntimeError, match=r"block 0.*without missing"):
        from_parquet(tmp_path / "missing.parquet")
    with pytest.raises(RuntimeError, match="no column 'z'"):
        from_parquet(tmp_path / "missing.parquet", columns=["z"])
    pq.write_table(
        pa.table({"x": [1.0, None, 2.0, 3.0], "z": [1, 2, 3, 4]}), tmp_path / "nan.parquet"
    )
    with pytest.raises(ValueError, match=r"NaN.*column 0, row 1 of block 0"):
        classifier().fit(from_parquet(tmp_path / "nan.parquet"), [0, 1, 0, 1])


def test_copy_to_npy(tmp_path, capsys, monkeypatch):
    X, y = cancer()
    blocks = Blocks([lambda: X[:200], lambda: X[200:]], [200, 369], [lambda: y])
    with monkeypatch.context() as patch:
        patch.setattr("sys.stderr.isatty", lambda: True, raising=False)
        copied = to_npy(blocks, tmp_path / "copy.npy")
    assert "2 of 2" in capsys.readouterr().err
    assert_array_equal(np.load(tmp_path / "copy.npy"), X)
    assert_array_equal(copied.labels(), y)
    narrow = to_npy(blocks, tmp_path / "narrow.npy", dtype=np.float32)
    assert_array_equal(narrow.load(0), X.astype(np.float32))
    assert capsys.readouterr().err == ""


def test_failed_copy_leaves_the_old_file(tmp_path):
    def fail():
        raise OSError("disk on fire")

    old = tmp_path / "copy.npy"
    old.write_bytes(b"as it was")
    broken = Blocks([lambda: np.ones((2, 2)), fail], [2, 2])
    with pytest.raises(RuntimeError, match=r"block 1 could not be loaded.*disk on fire"):
        to_npy(broken, old)
    assert old.read_bytes() == b"as it was"
    assert list(tmp_path.iterdir()) == [old]
    wider = Blocks([lambda: np.ones((2, 2), dtype=int), lambda: np.ones((2, 2))])
    with pytest.raises(
        TypeError, match="block 1 has dtype float64, which cannot be stored as int64"
    ):
        to_npy(wider, old)
    with pytest.raises(TypeError, match="sparse"):
        to_npy(in_blocks(sparse.csr_matrix(np.eye(3))), old)


GOOD = np.arange(12.0).reshape(6, 2)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.ones((6, 3)), r"block 1 must have shape \(6, 2\), .*got \(6, 3\)"),
        (np.ones((5, 2)), r"block 1 must have shape \(6, 2\), .*got \(5, 2\)"),
        (np.ones(6), r"block 1 must have shape \(6, 2\), .*got \(6,\)"),
        (np.full((6, 2), "a"), "block 1 must contain real numbers; got dtype <U1"),
        (np.full((6, 2), None), "block 1 must contain real numbers; got dtype object"),
        (sparse.csr_matrix((6, 2)), "block 1 must be dense like the first block; got sparse"),
    ],
    ids=["columns", "rows", "flat", "text", "object", "sparse"],
)
def test_errors_name_a_block_of_wrong_format(bad, message):
    blocks = Blocks([lambda: GOOD, lambda: bad], [6, 6])
    with pytest.raises((ValueError, TypeError), match=message):
        classifier().fit(blocks, np.arange(12) % 2)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_errors_name_block_and_row_of_missing_values(value, kind):
    X, y = cancer()
    X = X.copy()
    X[305, 4] = value
    blocks = in_blocks(kind(X), 100, 300)
    with pytest.raises(ValueError, match="column 4, row 5 of block 2"):
        classifier().fit(blocks, y)
    model = classifier().fit(cancer()[0], y)
    with pytest.raises(ValueError, match="column 4, row 5 of block 2"):
        model.predict(blocks)


def test_other_errors():
    X, y = cancer()
    with pytest.raises(ValueError, match="inconsistent numbers of samples: \\[569, 3\\]"):
        classifier().fit(in_blocks(X), y[:3])
    with pytest.raises(ValueError, match="at least one row; got 2 empty blocks"):
        in_blocks(X[:0], 0)
    with pytest.raises(ValueError, match="one number for each of 1 blocks; got 2"):
        Blocks([lambda: X], [1, 2])
    with pytest.raises(TypeError, match="needs X in memory; got Blocks"):
        PegasosClassifier().partial_fit(in_blocks(X), y, classes=[0, 1])
    model = classifier().fit(X, y)
    with pytest.raises(ValueError, match=r"29 features, but .* 30 features"):
        model.predict(in_blocks(X[:, :29]))


def test_empty_blocks_are_not_loaded():
    X, y = cancer()

    def fail():
        raise AssertionError("loaded")

    blocks = Blocks([fail, lambda: X[:100], fail, lambda: X[100:]], [0, 100, 0, 469])
    assert_same_fit(classifier().fit(blocks, y), classifier().fit(X, y))


def test_one_block_is_loaded_ahead():
    started = [threading.Event() for _ in range(4)]

    def load(k):
        started[k].set()
        return np.full((2, 1), float(k))

    blocks = Blocks([partial(load, k) for k in range(4)], [2] * 4)
    started[0].clear()
    for k, _, value in blocks.each(lambda rows: rows[0, 0]):
        assert value == k
        if k < 3:
            assert started[k + 1].wait(5)
        if k < 2:
            time.sleep(0.05)
            assert not started[k + 2].is_set()


def test_memory_is_two_blocks_and_a_few_numbers_per_row(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 200)).astype(np.float32)
    y = (X[:, 0] + rng.normal(size=len(X)) > 0).astype(int)
    np.save(tmp_path / "X.npy", X)
    block_bytes, row_bytes = 1 << 20, 100 * len(X)
    del X
    blocks = from_npy(tmp_path / "X.npy", block_bytes=block_bytes)
    tracemalloc.start()
    classifier(scale=2.0, n_threads=1).fit(blocks, y)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    matrices = 8 * 8 * 200**2
    assert peak < 3 * block_bytes + row_bytes + matrices + 4e6 < 16e6
