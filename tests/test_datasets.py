"""Data sets: what is found, what is fetched, and what is refused.

Everything that goes over HTTP here goes to a server in this process; nothing leaves the machine.
"""

import contextlib
import dataclasses
import gzip
import hashlib
import http.server
import io
import os
import socket
import tarfile
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from marginpursuit._progress_bar import ProgressBar
from marginpursuit.datasets import (
    REGISTRY,
    Dataset,
    DatasetError,
    _download,
    _formats,
    cache_folder,
    find,
    load,
    loading,
    paper_split,
    scale_columns,
)
from marginpursuit.datasets._download import DownloadError, download
from marginpursuit.datasets.registry import Entry, Source

HERE = os.environ.get("MARGINPURSUIT_DATA", "")


def needs_file(name):
    missing = not (HERE and (Path(HERE) / f"{name}.npz").is_file())
    return pytest.mark.skipif(missing, reason=f"needs {name}.npz in MARGINPURSUIT_DATA")


@pytest.fixture(autouse=True)
def no_data_at_hand(monkeypatch, tmp_path):
    """An empty cache, and no folder of data unless a test names one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("MARGINPURSUIT_DATA", raising=False)
    monkeypatch.setattr(_download.time, "sleep", lambda seconds: None)


# A server that can misbehave -----------------------------------------------------------------


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        server = self.server
        begin = 0
        if asked := self.headers.get("Range"):
            begin = int(asked.removeprefix("bytes=").removesuffix("-"))
        server.asked.append(begin)
        if self.path not in server.files or server.fail_with:
            code = server.fail_with or 404
            self.send_error(code)
            return
        content = server.files[self.path]
        if begin > len(content) or (asked and begin == len(content)):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if asked and server.ranges:
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
        else:
            begin = 0
            self.send_response(200)
        self.send_header("Content-Length", str(len(content) - begin))
        self.end_headers()
        end = len(content) if server.cut_after is None else begin + server.cut_after
        self.wfile.write(content[begin:end])

    def log_message(self, *arguments):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = {}
        self.asked = []  # the offsets that were asked for
        self.fail_with = None
        self.cut_after = None  # bytes of an answer before the connection is dropped
        self.ranges = True

    def url(self, path):
        return f"http://127.0.0.1:{self.server_port}{path}"


@pytest.fixture
def server():
    running = Server()
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield running
    running.shutdown()
    thread.join(timeout=5)
    running.server_close()


def ignore(done, total):
    pass


CONTENT = bytes(range(256)) * 1000


def test_download_brings_the_file_and_tells_how_far_it_is(server, tmp_path):
    server.files["/f"] = CONTENT
    seen = []
    target = tmp_path / "new" / "f"
    download(
        server.url("/f"),
        target,
        sha256=hashlib.sha256(CONTENT).hexdigest(),
        progress=lambda done, total: seen.append((done, total)),
    )
    assert target.read_bytes() == CONTENT
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert [path.name for path in target.parent.iterdir()] == ["f"]


def test_download_goes_on_where_it_stopped(server, tmp_path):
    server.files["/f"] = CONTENT
    target = tmp_path / "f"
    (tmp_path / "f.partial").write_bytes(CONTENT[:1000])
    download(server.url("/f"), target, sha256=None, progress=ignore)
    assert server.asked == [1000]
    assert target.read_bytes() == CONTENT


def test_download_survives_connections_that_break(server, tmp_path):
    server.files["/f"] = CONTENT
    server.cut_after = len(CONTENT) // 3
    download(server.url("/f"), tmp_path / "f", sha256=None, progress=ignore)
    third = len(CONTENT) // 3
    assert server.asked == [0, third, 2 * third, 3 * third]
    assert (tmp_path / "f").read_bytes() == CONTENT


def test_download_that_stays_truncated_keeps_its_part_only(server, tmp_path):
    server.files["/f"] = CONTENT
    server.cut_after = 10
    with pytest.raises(DownloadError, match=r"ended after 40 of 256000 bytes"):
        download(server.url("/f"), tmp_path / "f", sha256=None, progress=ignore)
    assert (tmp_path / "f.partial").read_bytes() == CONTENT[:40]
    assert not (tmp_path / "f").exists()


def test_download_starts_again_where_the_server_knows_no_ranges(server, tmp_path):
    server.files["/f"] = CONTENT
    server.ranges = False
    (tmp_path / "f.partial").write_bytes(b"something else")
    download(server.url("/f"), tmp_path / "f", sha256=None, progress=ignore)
    assert (tmp_path / "f").read_bytes() == CONTENT


def test_download_takes_a_part_that_is_whole_already(server, tmp_path):
    server.files["/f"] = CONTENT
    (tmp_path / "f.partial").write_bytes(CONTENT)
    download(server.url("/f"), tmp_path / "f", sha256=None, progress=ignore)
    assert (tmp_path / "f").read_bytes() == CONTENT


def test_download_drops_a_part_that_is_longer_than_the_file(server, tmp_path):
    server.files["/f"] = CONTENT
    (tmp_path / "f.partial").write_bytes(CONTENT + b"!")
    download(server.url("/f"), tmp_path / "f", sha256=None, progress=ignore)
    assert (tmp_path / "f").read_bytes() == CONTENT


def test_download_refuses_a_wrong_sum_and_forgets_the_file(server, tmp_path):
    server.files["/f"] = CONTENT
    with pytest.raises(DownloadError, match=f"expected {'0' * 64}"):
        download(server.url("/f"), tmp_path / "f", sha256="0" * 64, progress=ignore)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("code", "requests"), [(404, 1), (403, 1), (503, 4)])
def test_download_asks_again_only_where_that_may_help(server, tmp_path, code, requests):
    server.fail_with = code
    with pytest.raises(DownloadError, match=str(code)):
        download(server.url("/f"), tmp_path / "f", sha256=None, progress=ignore)
    assert len(server.asked) == requests


def unreachable():
    """Return an address at which nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/f"


def test_download_without_network(tmp_path):
    with pytest.raises(DownloadError, match="refused"):
        download(unreachable(), tmp_path / "f", sha256=None, progress=ignore)


def test_download_reads_no_local_files(tmp_path):
    with pytest.raises(ValueError, match="http"):
        download("file:///etc/hostname", tmp_path / "f", sha256=None, progress=ignore)


# From the public home to the arrays ----------------------------------------------------------


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
    """The entry of sido, but its home is this process and its file is small."""
    server.files["/sido0_text.zip"] = SMALL_SIDO
    entry = dataclasses.replace(
        REGISTRY["sido"], shape=(3, 4), sources=[Source(server.url("/sido0_text.zip"))]
    )
    monkeypatch.setitem(REGISTRY, "sido", entry)
    return server


def test_sido_is_fetched_read_and_kept(small_sido):
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


def test_fetch_refuses_another_shape_and_downloads_afresh_next_time(small_sido):
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
def test_fetch_refuses_what_is_no_archive_of_the_challenge(small_sido, content):
    small_sido.files["/sido0_text.zip"] = content
    with pytest.raises(DatasetError, match="sido"):
        load("sido")
    assert find("sido") is None


def test_fetch_without_network_says_where_to_put_the_file(monkeypatch):
    address = unreachable()
    monkeypatch.setitem(
        REGISTRY, "sido", dataclasses.replace(REGISTRY["sido"], sources=[Source(address)])
    )
    with pytest.raises(DatasetError) as caught:
        load("sido")
    message = str(caught.value)
    assert f"Put sido.npz into {cache_folder()}" in message
    assert "MARGINPURSUIT_DATA" in message
    # Saving the original file there is the other way out.
    by_hand = Path(message.rsplit(" as ", 1)[1].removesuffix("."))
    by_hand.parent.mkdir(parents=True, exist_ok=True)
    by_hand.write_bytes(SMALL_SIDO)
    monkeypatch.setitem(REGISTRY, "sido", dataclasses.replace(REGISTRY["sido"], shape=(3, 4)))
    assert load("sido").X.shape == (3, 4)


def test_fetch_not_wanted_or_not_possible():
    with pytest.raises(DatasetError, match="fetch is False"):
        load("cov", fetch=False)
    with pytest.raises(DatasetError, match=r"no public source.*Put reuters\.npz into"):
        load("reuters")


def test_progress_of_a_fetch_reaches_the_caller(small_sido):
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
def test_original_format_gives_the_arrays_back(name, server, monkeypatch):
    """The files of the public home, written anew from the arrays, are read to the same arrays.

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


def test_idx_of_another_type_is_refused(tmp_path):
    file = tmp_path / "f.gz"
    file.write_bytes(gzip.compress(b"\x00\x00\x0d\x01\x00\x00\x00\x01\x00\x00\x00\x00"))
    with pytest.raises(ValueError, match="not an idx file of bytes"):
        _formats._idx(file)


# Files that are there -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=needs_file(n)) for n, e in REGISTRY.items() if e.sha256]
)
def test_every_file_is_what_the_registry_says(name, monkeypatch):
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
    """A registered set, its folder, and a function that writes it."""
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


def test_one_entry_adds_a_set(tiny):
    data = load("tiny")
    np.testing.assert_array_equal(data.y, [-1, 1, -1] * 2)
    np.testing.assert_array_equal(load("tiny", original_labels=True).y, [1, 2, 3] * 2)
    assert data.description == "A tiny set."


def test_named_folder_comes_before_the_cache(tiny):
    file, _ = tiny
    cache_folder().mkdir(parents=True)
    (cache_folder() / "tiny.npz").write_bytes(b"junk")
    assert find("tiny") == file
    file.unlink()
    assert find("tiny") == cache_folder() / "tiny.npz"


def test_same_arrays_packed_in_another_way_are_accepted(tiny):
    file, arrays = tiny
    np.savez(file, **arrays)
    np.testing.assert_array_equal(load("tiny").X, arrays["X"])


def test_altered_files_are_refused(tiny):
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
def test_no_flipped_byte_gets_through(tmp_path_factory, position, value):
    """Whatever byte is damaged: an error of ours, or the very same arrays."""
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
    with pytest.raises(ValueError, match=r"one of \['a9a', .*'sido', 'spambase'\]; got 'iris'"):
        load("iris")
    with pytest.raises(ValueError, match="iris"):
        find("iris")


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


# Splits ---------------------------------------------------------------------------------------


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
def test_split_is_balanced_disjoint_and_as_large_as_can_be(
    negatives, positives, columns, n_train, trial
):
    data = made(negatives, positives, columns)
    train, test = paper_split(data, trial, n_train=n_train)
    assert len(train) == (n_train or min(10 * columns, negatives, positives))
    assert abs(int(data.y[train].sum())) == len(train) % 2
    assert int(data.y[test].sum()) == 0
    rows = np.concatenate([train, test])
    assert len(np.unique(rows)) == len(rows)
    left = np.delete(data.y, rows)
    assert min((left == -1).sum(), (left == 1).sum()) == 0


def test_split_is_new_in_every_trial_and_the_same_every_time():
    data = made(300, 200, paper_size=100)
    first, again, other = paper_split(data, 0), paper_split(data, 0), paper_split(data, 1)
    np.testing.assert_array_equal(first.train, again.train)
    np.testing.assert_array_equal(first.test, again.test)
    assert len(np.intersect1d(first.train, other.train)) < 60
    assert len(np.intersect1d(first.train, paper_split(data, 0, seed=1).train)) < 60
    # In random order: the first half of the rows is not of one class.
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


def test_split_refuses():
    with pytest.raises(ValueError, match=r"classes -1 and 1; got \[-1\]"):
        paper_split(made(5, 0))
    with pytest.raises(ValueError, match=r"n_train is 10; .* of sizes \[10, 5\]"):
        paper_split(made(10, 5), n_train=10)
    with pytest.raises(ValueError, match="at least 2; got 1"):
        paper_split(made(10, 5), n_train=1)


@pytest.mark.parametrize("scaling", ["none", "min-max", "standard"])
def test_scaling_looks_at_training_rows_only(scaling):
    generator = np.random.default_rng(0)
    train = generator.integers(0, 200, (50, 3)).astype(np.uint8)
    train[:, 2] = 7
    test = generator.integers(0, 200, (20, 3)).astype(np.uint8)
    scaled, others = scale_columns(train, test, scaling)
    if scaling != "none":  # a constant column is only shifted
        np.testing.assert_array_equal(others[:, 2], test[:, 2] - 7.0)
    if scaling == "min-max":
        np.testing.assert_allclose(scaled.min(axis=0), 0)
        np.testing.assert_allclose(scaled.max(axis=0), [1, 1, 0])
    elif scaling == "standard":
        np.testing.assert_allclose(scaled.mean(axis=0), 0, atol=1e-14)
        np.testing.assert_allclose(scaled.std(axis=0), [1, 1, 0])
    else:
        np.testing.assert_array_equal(scaled, train)
    # One map for all rows: that of column 0, read off two training rows, holds for the test rows.
    i, j = np.argmin(train[:, 0]), np.argmax(train[:, 0])
    unit = (scaled[j, 0] - scaled[i, 0]) / (float(train[j, 0]) - float(train[i, 0]))
    shift = scaled[i, 0] - unit * float(train[i, 0])
    np.testing.assert_allclose(others[:, 0], unit * test[:, 0] + shift, atol=1e-12)
    sparse, _ = scale_columns(sp.csr_array(train), sp.csr_array(test), scaling)
    np.testing.assert_array_equal(sparse, scaled)


def test_scaling_refuses_unknown_names():
    with pytest.raises(ValueError, match=r"one of \('none', 'min-max', 'standard'\); got 'max'"):
        scale_columns([[1.0]], [[1.0]], "max")


# The bar --------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_bar_says_how_far_and_how_long(monkeypatch):
    now = iter([0.0, 30.0, 60.0, 61.0])
    monkeypatch.setattr("time.monotonic", lambda: next(now))
    stream = Terminal()
    with ProgressBar("fits", stream=stream) as reached:
        reached(10, 100)  # there before: says nothing about the speed
        reached(20, 100)
        reached(40, 100)
        reached(100, 100)
    drawings = stream.getvalue().split("\r\x1b[K")[1:]
    assert "10 of 100" in drawings[0]
    assert "left" not in drawings[0]
    assert drawings[1].endswith("20 of 100  4:00 left")
    assert drawings[2].endswith("40 of 100  2:00 left")
    assert "100 %" in drawings[3]
    assert stream.getvalue().endswith("\n")


def test_bar_draws_nothing_where_nobody_looks():
    stream = io.StringIO()
    with ProgressBar("file", "B", stream) as reached:
        reached(1, None)
    assert stream.getvalue() == ""
    terminal = Terminal()
    with ProgressBar("file", "B", terminal) as reached:
        reached(2_500_000, None)
    assert "2.5 MB" in terminal.getvalue()
