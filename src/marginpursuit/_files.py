"""Files: atomic writes, and NumPy archives of unknown origin.

A reader of a file that is written sees the old file or the whole new one.
"""

import io
import math
import os
import secrets
import stat
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray


def write_atomically(path: str | os.PathLike[str], content: bytes) -> Path:
    """Write a temporary file, flush it to disk, then rename it.

    If any step fails (no space, a kill, no permission), an existing file of that name is unchanged.
    """
    with atomic_stream(path) as stream:
        stream.write(content)
    return Path(path)


@contextmanager
def atomic_stream(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a stream whose content replaces the file when the context ends without an error.

    A symbolic link stays; the file that it points to is replaced. The new file has the mode of the
    file that it replaces, and its owner and group if the process may set them. A device, FIFO or
    socket is never replaced: the content is written to it directly.
    """
    try:
        existing = os.stat(path)
    except FileNotFoundError:
        existing = None
    if existing is not None and not stat.S_ISREG(existing.st_mode):
        with open(path, "wb") as stream:  # raises IsADirectoryError for a folder
            yield stream
        return
    target = Path(os.path.realpath(path))
    # The name is short for any target: file systems allow 255 bytes.
    partial = target.with_name(f".marginpursuit-{secrets.token_hex(8)}.partial")
    # A new file has the mode of open(), 0o666 less the umask of the process. The copy of an
    # existing file is private until it has the mode of that file.
    mode = 0o666 if existing is None else 0o600
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(partial, flags, mode)
    except OSError as error:  # names the file that was asked for
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error
    try:
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
            stream.flush()
            if existing is not None:
                _copy_permissions(existing, partial)
            os.fsync(stream.fileno())
        os.replace(partial, target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def _copy_permissions(source: os.stat_result, path: Path) -> None:
    """Give a file the owner, group and mode of `source`.

    Without the privilege to set the owner or the group, that of the process stays. Another group
    than that of `source` gets the permissions of all other users.
    """
    mode = stat.S_IMODE(source.st_mode)
    if hasattr(os, "chown"):  # not on Windows
        for owner in ((source.st_uid, -1), (-1, source.st_gid)):
            try:
                os.chown(path, *owner)
            except PermissionError:
                mode &= ~(stat.S_ISUID | stat.S_ISGID)
        if os.stat(path).st_gid != source.st_gid:
            mode = mode & ~stat.S_IRWXG | (mode & stat.S_IRWXO) << 3
    os.chmod(path, mode)


def read_npz(content: bytes, max_expansion: int = 1032) -> dict[str, NDArray[Any]]:
    """Return the arrays of an ``.npz`` archive; raise a ValueError for any other content.

    Sizes are checked before memory is allocated. The members take at most `max_expansion` times the
    size of the archive, by default the largest ratio of deflate; an array has the size of its
    member. Arrays of Python objects are refused.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = archive.infolist()
            if sum(entry.file_size for entry in entries) > max_expansion * len(content):
                raise ValueError("members claim to be larger than the archive can hold")
            return {
                entry.filename.removesuffix(".npy"): _read_npy(archive.read(entry))
                for entry in entries
            }
    except MemoryError:
        raise
    except Exception as error:  # zipfile, zlib and NumPy raise many types for broken archives
        raise ValueError(str(error) or type(error).__name__) from error


def _read_npy(content: bytes) -> NDArray[Any]:
    """Return an array in the ``.npy`` format, after a check of its size."""
    stream = io.BytesIO(content)
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    version = np.lib.format.read_magic(stream)
    if version not in readers:
        raise ValueError(f"version {version} of the .npy format; expected one of {list(readers)}")
    shape, by_column, dtype = readers[version](stream)
    if dtype.hasobject:
        raise ValueError("an array of Python objects; expected numbers or text")
    n_bytes = len(content) - stream.tell()
    if min(shape, default=1) < 0 or math.prod(shape) * dtype.itemsize != n_bytes:
        raise ValueError(f"an array of {n_bytes} bytes, which does not match its shape {shape}")
    if not n_bytes:
        return np.zeros(shape, dtype)
    flat = np.frombuffer(content, dtype, offset=stream.tell())
    return flat.reshape(shape, order="F" if by_column else "C").copy(order="K")
