"""Data sets: files that are found, checked and rejected; the registry."""

import contextlib
import hashlib
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marginpursuit.datasets import (
    REGISTRY,
    DatasetError,
    cache_folder,
    find,
    load,
    loading,
)
from marginpursuit.datasets.registry import Entry

pytestmark = pytest.mark.usefixtures("empty_cache")

HERE = os.environ.get("MARGINPURSUIT_DATA", "")


def needs_file(name):
    missing = not (HERE and (Path(HERE) / f"{name}.npz").is_file())
    return pytest.mark.skipif(missing, reason=f"needs {name}.npz in MARGINPURSUIT_DATA")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=needs_file(n)) for n, e in REGISTRY.items() if e.sha256]
)
def test_every_file_matches_the_registry(name, monkeypatch):
    monkeypatch.setenv("MARGINPURSUIT_DATA", HERE)
    entry = REGISTRY[name]
    data = load(name)
    assert data.X.shape == entry.shape
    assert len(data.y) == entry.shape[0]
    if "20" in name:
        assert len(data.class_names) == 20 == len(set(data.y.tolist()))
    else:
        assert set(data.y.tolist()) == {-1, 1}
    with np.load(find(name)) as file:
        assert loading._content_sha256({k: file[k] for k in file.files}) == entry.content_sha256


@pytest.mark.parametrize(
    ("name", "positives"),
    [pytest.param("cov", 211840, marks=needs_file("cov")),
     pytest.param("digit5", 6313, marks=needs_file("digit5")),
     pytest.param("protein", 1296, marks=needs_file("protein"))],
)  # fmt: skip
def test_targets_are_those_of_the_paper(name, positives, monkeypatch):
    monkeypatch.setenv("MARGINPURSUIT_DATA", HERE)
    data = load(name)
    assert int((data.y == 1).sum()) == positives
    assert (data.groups is not None) == (name == "protein")
    if name == "cov":
        assert len(set(load(name, original_labels=True).y.tolist())) == 7


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """A registered data set, its folder, and a function that writes it."""
    arrays = {
        "X": np.arange(12, dtype=np.int16).reshape(6, 2),
        "y": np.array([1, 2, 3] * 2, np.int8),
    }
    monkeypatch.setenv("MARGINPURSUIT_DATA", str(tmp_path / "named"))
    (tmp_path / "named").mkdir()
    file = tmp_path / "named" / "tiny.npz"
    np.savez_compressed(file, **arrays)
    entry = Entry(
        "A tiny set.",
        shape=(6, 2),
        sha256=hashlib.sha256(file.read_bytes()).hexdigest(),
        content_sha256=loading._content_sha256(arrays),
        positive=2,
    )
    monkeypatch.setitem(REGISTRY, "tiny", entry)
    return file, arrays


def test_one_entry_adds_a_data_set(tiny):
    data = load("tiny")
    np.testing.assert_array_equal(data.y, [-1, 1, -1] * 2)
    np.testing.assert_array_equal(load("tiny", original_labels=True).y, [1, 2, 3] * 2)
    assert data.description == "A tiny set."


def test_the_data_folder_precedes_the_cache(tiny):
    file, _ = tiny
    cache_folder().mkdir(parents=True)
    (cache_folder() / "tiny.npz").write_bytes(b"junk")
    assert find("tiny") == file
    file.unlink()
    assert find("tiny") == cache_folder() / "tiny.npz"


def test_other_compression_of_the_same_arrays_is_accepted(tiny):
    file, arrays = tiny
    np.savez(file, **arrays)
    np.testing.assert_array_equal(load("tiny").X, arrays["X"])


def test_altered_files_are_rejected(tiny):
    file, arrays = tiny
    whole = file.read_bytes()
    altered = arrays["X"].copy()
    altered[3, 1] += 1
    np.savez_compressed(file, X=altered, y=arrays["y"])
    with pytest.raises(DatasetError, match="SHA-256 of its arrays"):
        load("tiny")
    np.savez_compressed(file, X=arrays["X"].astype(np.int32), y=arrays["y"])
    with pytest.raises(DatasetError, match="SHA-256"):
        load("tiny")
    np.savez(file, X=np.array([object()]), y=arrays["y"])
    with pytest.raises(DatasetError, match="cannot be read"):
        load("tiny")
    for damaged in (whole[: len(whole) // 2], b"", b"junk"):
        file.write_bytes(damaged)
        with pytest.raises(DatasetError, match="cannot be read"):
            load("tiny")


@settings(max_examples=200, deadline=None)
@given(position=st.integers(0, 10**6), value=st.integers(1, 255))
def test_every_flipped_byte_is_detected(tmp_path_factory, position, value):
    """After a change of any byte: a DatasetError, or the same arrays."""
    folder = tmp_path_factory.mktemp("flip")
    arrays = {"X": np.arange(40, dtype=np.int16).reshape(20, 2), "y": np.ones(20, np.int8)}
    entry = Entry("", shape=(20, 2), content_sha256=loading._content_sha256(arrays))
    np.savez_compressed(folder / "flip.npz", **arrays)
    content = bytearray((folder / "flip.npz").read_bytes())
    content[position % len(content)] ^= value
    (folder / "flip.npz").write_bytes(content)
    with contextlib.suppress(DatasetError):
        read = loading._checked("flip", entry, folder / "flip.npz")
        np.testing.assert_array_equal(read["X"], arrays["X"])


def test_unknown_names_are_listed():
    with pytest.raises(ValueError, match=r"one of \['a9a', .*'spambase', 'wine'\]; got 'nothing'"):
        load("nothing")
    with pytest.raises(ValueError, match="got 'nothing'"):
        find("nothing")


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_entries_are_complete(name):
    entry = REGISTRY[name]
    assert entry.description.endswith(".")
    assert (entry.read is None) == (not entry.sources)
    assert (entry.sha256 is None) == (entry.content_sha256 is None)
    assert sum([entry.bundled is not None, entry.sha256 is not None, name == "sido"]) == 1
    if entry.bundled:
        assert load(name).X.shape == entry.shape


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {"XDG_CACHE_HOME": "/c"}, "/c/marginpursuit"),
        ("linux", {"XDG_CACHE_HOME": "", "HOME": "/h"}, "/h/.cache/marginpursuit"),
        ("linux", {"XDG_CACHE_HOME": "not/absolute", "HOME": "/h"}, "/h/.cache/marginpursuit"),
        ("darwin", {"HOME": "/h"}, "/h/Library/Caches/marginpursuit"),
        ("win32", {"LOCALAPPDATA": "/l"}, "/l/marginpursuit/Cache"),
        ("win32", {"LOCALAPPDATA": "", "HOME": "/h"}, "/h/AppData/Local/marginpursuit/Cache"),
    ],
)
@pytest.mark.skipif(os.name == "nt", reason="the paths are written the POSIX way")
def test_cache_folder_of_the_platform(platform, variables, expected, monkeypatch):
    monkeypatch.setattr(loading.sys, "platform", platform)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert cache_folder() == Path(expected)
