"""Writing files so that a reader never sees half of one."""

import os
import tempfile
from pathlib import Path


def write_atomically(path: str | os.PathLike[str], content: bytes) -> Path:
    """Write a file under another name, make it safe on disk, then give it its name.

    Whatever goes wrong on the way (no space, a kill, no permission), a file of that name that was
    there before is still there, whole.
    """
    path = Path(path)
    handle, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".partial")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(partial, 0o666 & ~mask)  # as open() would have; mkstemp lets the owner alone in
        os.replace(partial, path)
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise
    return path
