"""Atomic writes: a reader sees the old file or the whole new one."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def write_atomically(path: str | os.PathLike[str], content: bytes) -> Path:
    """Write a temporary file, flush it to disk, then rename it.

    If any step fails (no space, a kill, no permission), an existing file of that name is unchanged.
    """
    with atomic_stream(path) as stream:
        stream.write(content)
    return Path(path)


@contextmanager
def atomic_stream(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a stream whose content replaces the file when the context ends without an error."""
    path = Path(path)
    handle, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".partial")
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(partial, 0o666 & ~mask)  # the mode of open(); mkstemp sets 0o600
        os.replace(partial, path)
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise
