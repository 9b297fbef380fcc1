"""Writing files so that a reader never sees half of one."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def write_atomically(path: str | os.PathLike[str], content: bytes) -> Path:
    """Write a file under another name, make it safe on disk, then give it its name.

    Whatever goes wrong on the way (no space, a kill, no permission), a file of that name that was
    there before is still there, whole.
    """
    with atomic_stream(path) as stream:
        stream.write(content)
    return Path(path)


@contextmanager
def atomic_stream(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open what `write_atomically` writes, for content that comes piece by piece."""
    path = Path(path)
    handle, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".partial")
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(partial, 0o666 & ~mask)  # as open() would have; mkstemp lets the owner alone in
        os.replace(partial, path)
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise
