"""Find a data set, check its hash, and download it if it is missing."""

import hashlib
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from marginpursuit._files import atomic_stream
from marginpursuit._progress_bar import ProgressBar, Reached
from marginpursuit.datasets._download import DownloadError, download, sha256_of
from marginpursuit.datasets._formats import Arrays
from marginpursuit.datasets.registry import REGISTRY, Entry

__all__ = ["Dataset", "DatasetError", "cache_folder", "find", "load"]


class DatasetError(OSError):
    """A data set is missing and cannot be downloaded, or a file is damaged.

    Examples
    --------
    >>> from marginpursuit.datasets import DatasetError
    >>> issubclass(DatasetError, OSError)
    True
    """


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set in memory.

    Attributes
    ----------
    name : str
        Its name.
    description : str
        Content, origin and licence, if known.
    X : ndarray or CSR array of shape (n_samples, n_features)
        The samples, in the stored dtype: cast integers before arithmetic.
    y : ndarray of shape (n_samples,)
        The classes; -1 and 1 for binary tasks.
    groups : ndarray of shape (n_samples,) or None
        The group of each sample; a split should not divide a group.
    n_train : int or None
        With an official split, the first `n_train` rows are the training rows.
    class_names : ndarray of str or None
        Names of the classes 0, 1, ...
    paper_size : int or None
        Number of training rows in the paper.
    sha256 : str
        SHA-256 hash of the stored arrays, in hexadecimal digits.

    Examples
    --------
    >>> from marginpursuit.datasets import load
    >>> data = load("breast_cancer")
    >>> data.name, data.X.shape, data.groups is None
    ('breast_cancer', (569, 30), True)
    """

    name: str
    description: str
    X: Any
    y: NDArray[np.int8]
    groups: NDArray[Any] | None = None
    n_train: int | None = None
    class_names: NDArray[np.str_] | None = None
    paper_size: int | None = None
    sha256: str = ""


def load(
    name: str,
    *,
    original_labels: bool = False,
    fetch: bool = True,
    progress: Callable[[str], AbstractContextManager[Reached]] | None = None,
) -> Dataset:
    """Load a data set by name.

    The file ``NAME.npz`` is looked up in the folder given by the environment variable
    ``MARGINPURSUIT_DATA``, then in `cache_folder`; otherwise the data set is downloaded from its
    public source into the cache. The SHA-256 hash is always checked.

    Parameters
    ----------
    name : str
        A name in `REGISTRY`.
    original_labels : bool, default=False
        Whether to return the original classes, such as the ten digits, for a task that is one class
        against the rest.
    fetch : bool, default=True
        Whether to download a missing data set.
    progress : callable, optional
        Returns, for the name of a file, a context manager whose value is called with the bytes so
        far and their total. By default a progress bar on standard error, if that is a terminal.

    Returns
    -------
    Dataset
        The data.

    Raises
    ------
    ValueError
        If the name is unknown.
    DatasetError
        If the data set is missing and cannot be downloaded, or a file is damaged.

    Examples
    --------
    >>> from marginpursuit.datasets import load
    >>> data = load("digits")
    >>> data.X.shape, sorted(set(data.y.tolist()))
    ((1797, 64), [-1, 1])
    """
    entry = _entry(name)
    if entry.bundled is not None:
        arrays = entry.bundled()
    elif (path := find(name)) is not None:
        arrays = _checked(name, entry, path)
    elif fetch and entry.read is not None:
        arrays = _fetch(name, entry, progress or (lambda file: ProgressBar(file, "B")))
    else:
        reason = "fetch is False" if entry.read else "it has no public source in this form"
        raise DatasetError(f"{name} is not in {_folders()}, and {reason}. {_advice(name)}")
    y = arrays["y"]
    if entry.positive is not None and not original_labels:
        y = np.where(y == entry.positive, 1, -1).astype(np.int8)
    return Dataset(
        name,
        entry.description,
        _matrix(arrays),
        y,
        groups=arrays[entry.groups] if entry.groups else None,
        n_train=int(arrays["n_train"]) if "n_train" in arrays else None,
        class_names=arrays.get("target_names"),
        paper_size=entry.paper_size,
        sha256=entry.content_sha256 or _content_sha256(arrays),
    )


def find(name: str) -> Path | None:
    """Return the path of the file of a data set, or None if there is none.

    Parameters
    ----------
    name : str
        A name in `REGISTRY`.

    Returns
    -------
    Path or None
        The file in the folder given by ``MARGINPURSUIT_DATA``, or else in the cache.

    Examples
    --------
    >>> from marginpursuit.datasets import find
    >>> find("digits") is None  # included with scikit-learn: no file
    True
    """
    _entry(name)
    paths = (folder / f"{name}.npz" for folder in _folders())
    return next((path for path in paths if path.is_file()), None)


def cache_folder() -> Path:
    """Return the folder of downloaded data; it need not exist.

    Returns
    -------
    Path
        ``marginpursuit`` in the cache folder of the platform.

    Examples
    --------
    >>> from marginpursuit.datasets import cache_folder
    >>> "marginpursuit" in cache_folder().parts
    True
    """
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        base = Path(local) if local else Path.home() / "AppData" / "Local"
        return base / "marginpursuit" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "marginpursuit"
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # XDG specification: a relative path is ignored.
    return (base if base.is_absolute() else Path.home() / ".cache") / "marginpursuit"


def _entry(name: str) -> Entry:
    if name not in REGISTRY:
        raise ValueError(f"name must be one of {sorted(REGISTRY)}; got {name!r}")
    return REGISTRY[name]


def _folders() -> list[Path]:
    named = os.environ.get("MARGINPURSUIT_DATA")
    return [Path(named), cache_folder()] if named else [cache_folder()]


def _advice(name: str) -> str:
    return f"Put {name}.npz into {cache_folder()}, or set MARGINPURSUIT_DATA to its folder."


def _checked(name: str, entry: Entry, path: Path) -> Arrays:
    """Read the file of a data set and check it."""
    known = entry.sha256 is not None and sha256_of(path) == entry.sha256
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
    except Exception as error:  # a damaged archive may raise anything
        raise DatasetError(f"{path} cannot be read: {error}. Remove it.") from error
    if not known:  # possibly compressed differently
        _check_content(name, entry, arrays, str(path))
    return arrays


def _check_content(name: str, entry: Entry, arrays: Arrays, where: str) -> None:
    seen = _content_sha256(arrays)
    if entry.content_sha256 is None:
        if (shape := _matrix(arrays).shape) != entry.shape:
            raise DatasetError(
                f"{where} is not the data set {name}: shape {shape}, expected {entry.shape}"
            )
    elif seen != entry.content_sha256:
        raise DatasetError(
            f"{where} is not the data set {name}: the SHA-256 of its arrays is {seen}, "
            f"expected {entry.content_sha256}. Remove it; {_advice(name)}"
        )


def _content_sha256(arrays: Arrays) -> str:
    """Return the hash of names, types, shapes and values, independent of the compression."""
    total = hashlib.sha256()
    for key in sorted(arrays):
        array = arrays[key]
        total.update(f"{key} {array.dtype.str} {array.shape}\n".encode())
        total.update(array.tobytes())
    return total.hexdigest()


def _fetch(
    name: str, entry: Entry, progress: Callable[[str], AbstractContextManager[Reached]]
) -> Arrays:
    """Download a data set, check it and store it in the cache."""
    folder = cache_folder() / "downloads" / name
    files = [folder / source.file_name for source in entry.sources]
    for source, file in zip(entry.sources, files, strict=True):
        if file.exists():
            continue
        try:
            with progress(source.file_name) as report:
                download(source.url, file, sha256=source.sha256, progress=report)
        except DownloadError as error:
            raise DatasetError(
                f"{name} is not in {_folders()} and could not be downloaded: {error}. "
                f"{_advice(name)} Or save {source.url} as {file}."
            ) from error
    if entry.read is None:
        raise TypeError(f"the entry of {name} has sources but no function `read`")
    try:
        arrays = entry.read(files)
        _check_content(name, entry, arrays, f"the content of {entry.sources[0].url}")
    except Exception as error:
        for file in files:  # a later call downloads them again
            file.unlink()
        raise (
            error
            if isinstance(error, DatasetError)
            else DatasetError(f"{name}: the downloaded files cannot be read: {error}")
        ) from error
    _save(cache_folder() / f"{name}.npz", arrays)
    for file in files:
        file.unlink()
    folder.rmdir()
    return arrays


def _save(path: Path, arrays: Arrays) -> None:
    """Write the arrays atomically."""
    with atomic_stream(path) as file:
        np.savez_compressed(file, allow_pickle=False, **dict(arrays))


def _matrix(arrays: Arrays) -> Any:
    if "X" in arrays:
        return arrays["X"]
    parts = (arrays["data"], arrays["indices"], arrays["indptr"])
    return sp.csr_array(parts, shape=tuple(arrays["shape"].tolist()))
