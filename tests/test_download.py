"""Downloads: resumed, checked, complete or absent. Requests go to a server in this process."""

import hashlib

import pytest
from file_server import unreachable

from marginpursuit.datasets._download import DownloadError, download

pytestmark = pytest.mark.usefixtures("empty_cache")


def ignore(done, total):
    pass


CONTENT = bytes(range(256)) * 1000


def test_download_writes_the_file_and_reports_progress(server, tmp_path):
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


def test_download_resumes(server, tmp_path):
    server.files["/f"] = CONTENT
    target = tmp_path / "f"
    (tmp_path / "f.partial").write_bytes(CONTENT[:1000])
    download(server.url("/f"), target, sha256=None, progress=ignore)
    assert server.asked == [1000]
    assert target.read_bytes() == CONTENT


def test_download_retries_broken_connections(server, tmp_path):
    server.files["/f"] = CONTENT
    server.cut_after = len(CONTENT) // 3
    download(server.url("/f"), tmp_path / "f", sha256=None, progress=ignore)
    third = len(CONTENT) // 3
    assert server.asked == [0, third, 2 * third, 3 * third]
    assert (tmp_path / "f").read_bytes() == CONTENT


def test_truncated_download_leaves_a_partial_file_only(server, tmp_path):
    server.files["/f"] = CONTENT
    server.cut_after = 10
    with pytest.raises(DownloadError, match=r"ended after 40 of 256000 bytes"):
        download(server.url("/f"), tmp_path / "f", sha256=None, progress=ignore)
    assert (tmp_path / "f.partial").read_bytes() == CONTENT[:40]
    assert not (tmp_path / "f").exists()


def test_download_restarts_if_the_server_does_not_support_ranges(server, tmp_path):
    server.files["/f"] = CONTENT
    server.ranges = False
    (tmp_path / "f.partial").write_bytes(b"something else")
    download(server.url("/f"), tmp_path / "f", sha256=None, progress=ignore)
    assert (tmp_path / "f").read_bytes() == CONTENT


def test_download_accepts_a_complete_partial_file(server, tmp_path):
    server.files["/f"] = CONTENT
    (tmp_path / "f.partial").write_bytes(CONTENT)
    download(server.url("/f"), tmp_path / "f", sha256=None, progress=ignore)
    assert (tmp_path / "f").read_bytes() == CONTENT


def test_download_drops_a_partial_file_that_is_too_long(server, tmp_path):
    server.files["/f"] = CONTENT
    (tmp_path / "f.partial").write_bytes(CONTENT + b"!")
    download(server.url("/f"), tmp_path / "f", sha256=None, progress=ignore)
    assert (tmp_path / "f").read_bytes() == CONTENT


def test_download_rejects_a_wrong_hash_and_removes_the_file(server, tmp_path):
    server.files["/f"] = CONTENT
    with pytest.raises(DownloadError, match=f"expected {'0' * 64}"):
        download(server.url("/f"), tmp_path / "f", sha256="0" * 64, progress=ignore)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("code", "requests"), [(404, 1), (403, 1), (503, 4)])
def test_download_retries_server_errors_only(server, tmp_path, code, requests):
    server.fail_with = code
    with pytest.raises(DownloadError, match=str(code)):
        download(server.url("/f"), tmp_path / "f", sha256=None, progress=ignore)
    assert len(server.asked) == requests


def test_download_without_network(tmp_path):
    with pytest.raises(DownloadError, match="refused"):
        download(unreachable(), tmp_path / "f", sha256=None, progress=ignore)


def test_download_rejects_local_files(tmp_path):
    with pytest.raises(ValueError, match="http"):
        download("file:///etc/hostname", tmp_path / "f", sha256=None, progress=ignore)
