"""Atomic writes: what is replaced, what is kept, and what is written to directly."""

import os
import stat
import threading

import pytest

from marginpursuit._files import atomic_stream, write_atomically

posix = pytest.mark.skipif(os.name != "posix", reason="needs POSIX files")
as_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs the privileges of root"
)


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_file_is_written_and_replaced(tmp_path):
    path = tmp_path / "a"
    assert write_atomically(path, b"old") == path
    write_atomically(str(path), b"new")
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_failed_write_leaves_the_old_file(tmp_path, error):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with pytest.raises(error), atomic_stream(path) as stream:  # noqa: PT012
        stream.write(b"half")
        raise error
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_an_error_names_the_file_that_was_asked_for(tmp_path):
    path = tmp_path / "absent" / "a"
    with pytest.raises(FileNotFoundError) as caught:
        write_atomically(path, b"content")
    assert caught.value.filename == str(path)


@posix
def test_a_fifo_is_written_to_directly(tmp_path):
    path = tmp_path / "fifo"
    os.mkfifo(path)
    received = []
    reader = threading.Thread(target=lambda: received.append(path.read_bytes()), daemon=True)
    reader.start()
    write_atomically(path, b"content")
    reader.join(2)
    assert received == [b"content"]
    assert stat.S_ISFIFO(path.stat().st_mode)


@posix
def test_a_device_is_written_to_directly(tmp_path):
    """A link to the device: a write that replaced its target would fail here without root."""
    path = tmp_path / "null"
    path.symlink_to("/dev/null")
    write_atomically(path, b"content")
    assert path.is_symlink()
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    assert os.listdir(tmp_path) == ["null"]


@as_root
def test_a_device_node_is_not_replaced(tmp_path):
    path = tmp_path / "node"
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        path.open("wb").close()
    except PermissionError:
        pytest.skip("this file system has no device nodes")
    write_atomically(path, b"content")
    assert stat.S_ISCHR(path.stat().st_mode)


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(IsADirectoryError if os.name == "posix" else PermissionError):
        write_atomically(tmp_path, b"content")


@posix
@pytest.mark.parametrize("exists", [True, False])
def test_a_symbolic_link_is_written_through(tmp_path, exists):
    (tmp_path / "elsewhere").mkdir()
    target = tmp_path / "elsewhere" / "target"
    if exists:
        target.write_bytes(b"old")
    inner, outer = tmp_path / "inner", tmp_path / "outer"
    inner.symlink_to("elsewhere/target")
    outer.symlink_to(inner)
    write_atomically(outer, b"new")
    assert outer.is_symlink()
    assert inner.is_symlink()
    assert target.read_bytes() == b"new"
    assert os.listdir(target.parent) == ["target"]


@posix
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o755, 0o666])
def test_the_mode_of_a_file_is_kept(tmp_path, mode):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    path.chmod(mode)
    write_atomically(path, b"new")
    assert mode_of(path) == mode


@posix
@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_a_new_file_has_the_mode_that_open_gives(tmp_path, mask):
    before = os.umask(mask)
    try:
        write_atomically(tmp_path / "a", b"new")
    finally:
        os.umask(before)
    assert mode_of(tmp_path / "a") == 0o666 & ~mask


@posix
def test_the_content_of_a_private_file_is_never_public(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    path.chmod(0o600)
    with atomic_stream(path):
        (partial,) = (other for other in tmp_path.iterdir() if other != path)
        assert mode_of(partial) == 0o600


@as_root
def test_owner_and_group_of_a_file_are_kept(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    os.chown(path, 12345, 23456)
    path.chmod(0o640)
    write_atomically(path, b"new")
    assert (path.stat().st_uid, path.stat().st_gid) == (12345, 23456)
    assert mode_of(path) == 0o640


@posix
def test_another_group_gets_no_more_than_all_users(tmp_path, monkeypatch):
    """Without the privilege to keep the group of a file, its permissions are not passed on."""

    def refuse(*_args):
        raise PermissionError

    path = tmp_path / "a"
    path.write_bytes(b"old")
    path.chmod(0o664)
    status = path.stat()
    other = os.stat_result((*status[:5], status.st_gid + 1, *status[6:]))
    stat_of = os.stat
    monkeypatch.setattr(os, "chown", refuse)
    monkeypatch.setattr(os, "stat", lambda p, **kw: other if p == path else stat_of(p, **kw))
    write_atomically(path, b"new")
    monkeypatch.undo()
    assert mode_of(path) == 0o644


@pytest.mark.parametrize("name", ["n" * 255, "é" * 127])
def test_long_names(tmp_path, name):
    write_atomically(tmp_path / name, b"new")
    assert (tmp_path / name).read_bytes() == b"new"
