"""The paper's splits and scalings."""

import os
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from marginpursuit.datasets import (
    REGISTRY,
    Dataset,
    load,
    paper_split,
    scale_columns,
)

HERE = os.environ.get("MARGINPURSUIT_DATA", "")


def needs_file(name):
    missing = not (HERE and (Path(HERE) / f"{name}.npz").is_file())
    return pytest.mark.skipif(missing, reason=f"needs {name}.npz in MARGINPURSUIT_DATA")


def made(negatives, positives, columns=3, **more):
    y = np.repeat(np.array([-1, 1], np.int8), [negatives, positives])
    X = np.zeros((len(y), columns))
    return Dataset("made", "", X, np.random.default_rng(1).permutation(y), **more)


@settings(deadline=None)
@given(
    negatives=st.integers(4, 60),
    positives=st.integers(4, 60),
    columns=st.integers(1, 8),
    n_train=st.none() | st.integers(2, 6),
    trial=st.integers(0, 30),
)
def test_split_is_balanced_disjoint_and_maximal(negatives, positives, columns, n_train, trial):
    data = made(negatives, positives, columns)
    train, test = paper_split(data, trial, n_train=n_train)
    assert len(train) == (n_train or min(10 * columns, negatives, positives))
    assert abs(int(data.y[train].sum())) == len(train) % 2
    assert int(data.y[test].sum()) == 0
    rows = np.concatenate([train, test])
    assert len(np.unique(rows)) == len(rows)
    left = np.delete(data.y, rows)
    assert min((left == -1).sum(), (left == 1).sum()) == 0


def test_split_depends_on_the_trial_and_is_reproducible():
    data = made(300, 200, paper_size=100)
    first, again, other = paper_split(data, 0), paper_split(data, 0), paper_split(data, 1)
    np.testing.assert_array_equal(first.train, again.train)
    np.testing.assert_array_equal(first.test, again.test)
    assert len(np.intersect1d(first.train, other.train)) < 60
    assert len(np.intersect1d(first.train, paper_split(data, 0, seed=1).train)) < 60
    # In random order: the first half of the rows has both classes.
    assert abs(int(data.y[first.train[:50]].sum())) < 40
    assert abs(int(data.y[first.test[:100]].sum())) < 80


@pytest.mark.parametrize(
    ("name", "n_train", "n_test"),
    [pytest.param("cov", 540, 423140, marks=needs_file("cov")),
     pytest.param("digit5", 5000, 7626, marks=needs_file("digit5")),
     pytest.param("protein", 740, 1852, marks=needs_file("protein"))],
)  # fmt: skip
def test_split_sizes_are_those_of_the_paper(name, n_train, n_test, monkeypatch):
    monkeypatch.setenv("MARGINPURSUIT_DATA", HERE)
    train, test = paper_split(load(name))
    assert (len(train), len(test)) == (n_train, n_test)


def test_split_of_sido_has_an_odd_size():
    data = made(12226, 452, paper_size=REGISTRY["sido"].paper_size)
    train, test = paper_split(data)
    assert (len(train), int(data.y[train].sum()), len(test)) == (425, -1, 480)


def test_split_rejects_invalid_arguments():
    with pytest.raises(ValueError, match=r"classes -1 and 1; got \[-1\]"):
        paper_split(made(5, 0))
    with pytest.raises(ValueError, match=r"n_train is 10; .* of sizes \[10, 5\]"):
        paper_split(made(10, 5), n_train=10)
    with pytest.raises(ValueError, match="at least 2; got 1"):
        paper_split(made(10, 5), n_train=1)


@pytest.mark.parametrize("scaling", ["none", "min-max", "standard"])
def test_scaling_uses_training_rows_only(scaling):
    generator = np.random.default_rng(0)
    train = generator.integers(0, 200, (50, 3)).astype(np.uint8)
    train[:, 2] = 7
    test = generator.integers(0, 200, (20, 3)).astype(np.uint8)
    scaled, others = scale_columns(train, test, scaling)
    if scaling != "none":  # a constant column is only centred
        np.testing.assert_array_equal(others[:, 2], test[:, 2] - 7.0)
    if scaling == "min-max":
        np.testing.assert_allclose(scaled.min(axis=0), 0)
        np.testing.assert_allclose(scaled.max(axis=0), [1, 1, 0])
    elif scaling == "standard":
        np.testing.assert_allclose(scaled.mean(axis=0), 0, atol=1e-14)
        np.testing.assert_allclose(scaled.std(axis=0), [1, 1, 0])
    else:
        np.testing.assert_array_equal(scaled, train)
    # The linear map of column 0, computed from two training rows, applies to the test rows.
    i, j = np.argmin(train[:, 0]), np.argmax(train[:, 0])
    unit = (scaled[j, 0] - scaled[i, 0]) / (float(train[j, 0]) - float(train[i, 0]))
    shift = scaled[i, 0] - unit * float(train[i, 0])
    np.testing.assert_allclose(others[:, 0], unit * test[:, 0] + shift, atol=1e-12)
    sparse, _ = scale_columns(sp.csr_array(train), sp.csr_array(test), scaling)
    np.testing.assert_array_equal(sparse, scaled)


def test_rows_of_unit_length_have_standardised_columns_before():
    generator = np.random.default_rng(1)
    train, test = generator.normal(size=(30, 4)) * [1, 5, 9, 0], generator.normal(size=(9, 4))
    train[0] = train.mean(axis=0)
    scaled, others = scale_columns(train, test, "unit-rows")
    standard = scale_columns(train, test, "standard")
    for rows, before in zip((scaled, others), standard, strict=True):
        norms = np.linalg.norm(before, axis=1)
        np.testing.assert_allclose(rows * norms[:, None], before, atol=1e-14)
    np.testing.assert_allclose(np.linalg.norm(others, axis=1), 1.0)
    zero, _ = scale_columns([[1.0], [2.0], [3.0]], [[2.0]], "unit-rows")
    np.testing.assert_array_equal(zero, [[-1.0], [0.0], [1.0]])


def test_scaling_rejects_unknown_names():
    with pytest.raises(ValueError, match=r"one of \('none', .*'unit-rows'\); got 'max'"):
        scale_columns([[1.0]], [[1.0]], "max")
