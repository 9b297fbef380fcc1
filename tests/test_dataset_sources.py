"""Data sets from the files of their public sources. All requests go to a server in this process."""

import contextlib
import dataclasses
import gzip
import io
import os
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from file_server import unreachable

from marginpursuit.datasets import (
    REGISTRY,
    DatasetError,
    _formats,
    cache_folder,
    find,
    load,
    loading,
)
from marginpursuit.datasets.registry import Source

pytestmark = pytest.mark.usefixtures("empty_cache")

HERE = os.environ.get("MARGINPURSUIT_DATA", "")


def needs_file(name):
    missing = not (HERE and (Path(HERE) / f"{name}.npz").is_file())
    return pytest.mark.skipif(missing, reason=f"needs {name}.npz in MARGINPURSUIT_DATA")


def zipped(**members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in members.items():
            archive.writestr(name.replace("__", "/").replace("_DOT_", "."), text)
    return buffer.getvalue()


SMALL_SIDO = zipped(
    SIDO__sido0_train_DOT_data="0 1 0 1 \n1 1 0 0 \n0 0 0 1 \n",
    SIDO__sido0_train_DOT_targets="-1\n1\n-1\n",
    SIDO__sido0_test_DOT_data="0 0 0 0 \n",
    SIDO__sido0_DOT_param="something else\n",
)


@pytest.fixture
def small_sido(server, monkeypatch):
    """The entry of sido, with a small file on a server in this process."""
    server.files["/sido0_text.zip"] = SMALL_SIDO
    entry = dataclasses.replace(
        REGISTRY["sido"], shape=(3, 4), sources=[Source(server.url("/sido0_text.zip"))]
    )
    monkeypatch.setitem(REGISTRY, "sido", entry)
    return server


def test_sido_is_downloaded_read_and_stored(small_sido):
    data = load("sido")
    np.testing.assert_array_equal(data.X, [[0, 1, 0, 1], [1, 1, 0, 0], [0, 0, 0, 1]])
    np.testing.assert_array_equal(data.y, [-1, 1, -1])
    assert data.X.dtype == np.uint8
    assert data.paper_size == 425
    kept = cache_folder() / "sido.npz"
    assert find("sido") == kept
    assert [path for path in cache_folder().rglob("*") if path.is_file()] == [kept]
    np.testing.assert_array_equal(load("sido").X, data.X)
    assert len(small_sido.asked) == 1


def test_fetch_rejects_another_shape_and_downloads_again_next_time(small_sido):
    small_sido.files["/sido0_text.zip"] = zipped(
        a_train_DOT_data="0 1 0 1\n", a_train_DOT_targets="1\n"
    )
    with pytest.raises(DatasetError, match=r"shape \(1, 4\), expected \(3, 4\)"):
        load("sido")
    small_sido.files["/sido0_text.zip"] = SMALL_SIDO
    assert load("sido").X.shape == (3, 4)


@pytest.mark.parametrize(
    "content",
    [
        b"<html>not found</html>",
        SMALL_SIDO[:-30],
        SMALL_SIDO[:40] + b"?" * 8 + SMALL_SIDO[48:],
        zipped(a_train_DOT_data="0 1\n", b_train_DOT_data="0 1\n"),
        zipped(a_train_DOT_data="0 x\n", a_train_DOT_targets="1\n"),
    ],
)
def test_fetch_rejects_other_archives(small_sido, content):
    small_sido.files["/sido0_text.zip"] = content
    with pytest.raises(DatasetError, match="sido"):
        load("sido")
    assert find("sido") is None


def test_fetch_without_network_names_the_folder_for_the_file(monkeypatch):
    address = unreachable()
    monkeypatch.setitem(
        REGISTRY, "sido", dataclasses.replace(REGISTRY["sido"], sources=[Source(address)])
    )
    with pytest.raises(DatasetError) as caught:
        load("sido")
    message = str(caught.value)
    assert f"Put sido.npz into {cache_folder()}" in message
    assert "MARGINPURSUIT_DATA" in message
    # The original file in that folder is used as well.
    by_hand = Path(message.rsplit(" as ", 1)[1].removesuffix("."))
    by_hand.parent.mkdir(parents=True, exist_ok=True)
    by_hand.write_bytes(SMALL_SIDO)
    monkeypatch.setitem(REGISTRY, "sido", dataclasses.replace(REGISTRY["sido"], shape=(3, 4)))
    assert load("sido").X.shape == (3, 4)


def test_fetch_disabled_or_impossible():
    with pytest.raises(DatasetError, match="fetch is False"):
        load("cov", fetch=False)
    with pytest.raises(DatasetError, match=r"no public source.*Put reuters\.npz into"):
        load("reuters")


def test_progress_of_a_download_is_reported(small_sido):
    seen = []

    @contextlib.contextmanager
    def progress(file):
        yield lambda done, total: seen.append((file, done, total))

    load("sido", progress=progress)
    assert seen[-1] == ("sido0_text.zip", len(SMALL_SIDO), len(SMALL_SIDO))


def original_cov(arrays):
    table = np.column_stack([arrays["X"], arrays["y"]])
    lines = "".join(",".join(map(str, row)) + "\n" for row in table.tolist())
    return [gzip.compress(lines.encode())]


def original_digit5(arrays):
    def idx(array):
        shape = np.array(array.shape, ">u4").tobytes()
        return gzip.compress(bytes([0, 0, 8, array.ndim]) + shape + array.tobytes())

    cut = int(arrays["n_train"])
    images, labels = arrays["X"].reshape(-1, 28, 28), arrays["y"].astype(np.uint8)
    return [idx(part) for part in (images[:cut], labels[:cut], images[cut:], labels[cut:])]


def original_protein(arrays):
    rows = zip(arrays["block_id"], arrays["example_id"], arrays["y"], arrays["X"], strict=True)
    lines = "".join(
        f"{block}\t{example}\t{int(y > 0)}\t" + "\t".join(f"{x:.2f}" for x in row) + "\n"
        for block, example, y, row in rows
    ).encode()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name in ("bio_test.dat", "bio_train.dat"):
            info = tarfile.TarInfo(name)
            info.size = len(lines)
            archive.addfile(info, io.BytesIO(lines))
    return [buffer.getvalue()]


def original_hiva(arrays):
    rows = "".join(" ".join(map(str, row)) + " \n" for row in arrays["X"].tolist())
    labels = "".join(f"{y}\n" for y in arrays["y"])
    return [zipped(HIVA__hiva_train_DOT_data=rows, HIVA__hiva_train_DOT_labels=labels)]


def original_a9a(arrays):
    X = sp.csr_array((arrays["data"], arrays["indices"], arrays["indptr"]))
    lines = [
        f"{y:+d} " + " ".join(f"{j + 1}:1" for j in X.indices[begin:end]) + "\n"
        for y, begin, end in zip(arrays["y"], X.indptr[:-1], X.indptr[1:], strict=True)
    ]
    cut = int(arrays["n_train"])
    return ["".join(part).encode() for part in (lines[:cut], lines[cut:])]


def original_spambase(arrays):
    rows = zip(arrays["X"], arrays["y"], strict=True)
    return ["".join(",".join(map(str, x)) + f",{int(y > 0)}\n" for x, y in rows).encode()]


def original_higgs_small(arrays):
    rows = zip(arrays["X"], arrays["y"], strict=True)
    lines = [f"{int(y > 0)}\t" + "\t".join(map(str, x)) + "\n" for x, y in rows]
    cut = int(arrays["n_train"])
    return ["".join(part).encode() for part in (lines[:cut], lines[cut:])]


WHOLE = {"hiva", "a9a", "spambase", "higgs_small"}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=needs_file(name))
        for name in ("cov", "digit5", "protein", "hiva", "a9a", "spambase", "higgs_small")
    ],
)
def test_original_format_is_read_back(name, server, monkeypatch):
    """Original files written from the arrays are read as the same arrays.

    The small sets go all the way, over HTTP and with the real sum; of the large ones, some rows.
    """
    with np.load(Path(HERE) / f"{name}.npz") as file:
        arrays = {key: file[key] for key in file.files}
    entry = REGISTRY[name]
    if name not in WHOLE:
        arrays = {key: a[:300] if a.ndim else np.array(200, a.dtype) for key, a in arrays.items()}
        entry = dataclasses.replace(entry, content_sha256=loading._content_sha256(arrays))
    sources = []
    originals = globals()[f"original_{name}"](arrays)
    for source, content in zip(entry.sources, originals, strict=True):
        path = f"/{source.file_name}"
        server.files[path] = content
        sources.append(Source(server.url(path)))
    monkeypatch.setitem(REGISTRY, name, dataclasses.replace(entry, sources=sources))
    load(name)
    with np.load(cache_folder() / f"{name}.npz") as kept:
        assert sorted(kept.files) == sorted(arrays)
        for key, array in arrays.items():
            assert kept[key].dtype == array.dtype
            np.testing.assert_array_equal(kept[key], array)


def test_idx_of_another_type_is_rejected(tmp_path):
    file = tmp_path / "f.gz"
    file.write_bytes(gzip.compress(b"\x00\x00\x0d\x01\x00\x00\x00\x01\x00\x00\x00\x00"))
    with pytest.raises(ValueError, match="not an idx file of bytes"):
        _formats._idx(file)
