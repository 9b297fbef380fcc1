"""Find a data set, check that it is the right one, fetch it where it is missing."""

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

_VARIABLE = "MARGINPURSUIT_DATA"


class DatasetError(OSError):
    """A data set is not there and cannot be fetched, or a file is not what it should be."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set in memory.

    Attributes
    ----------
    name : str
        Its name.
    description : str
        What it is, where it is from and its licence as far as known.
    X : ndarray or CSR array of shape (n_samples, n_features)
        The samples, in the dtype they are stored in: cast integers before arithmetic of your own.
    y : ndarray of shape (n_samples,)
        The classes; -1 and 1 where there are two.
    groups : ndarray of shape (n_samples,) or None
        Which samples belong together and should not be split.
    n_train : int or None
        Where the set has an official split, the first `n_train` rows are for training.
    class_names : ndarray of str or None
        What the classes 0, 1, ... are called.
    paper_size : int or None
        The number of training rows that the paper prints.
    sha256 : str
        The SHA-256 sum of the arrays as they are stored, in hexadecimal digits.
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

    It is looked for as ``NAME.npz`` in the folder that the environment variable
    ``MARGINPURSUIT_DATA`` names, then in `cache_folder`; where it is in neither, it is downloaded
    from its public home into the cache. Whatever the way, its SHA-256 sum is checked.

    Parameters
    ----------
    name : str
        A name in `REGISTRY`.
    original_labels : bool, default=False
        Whether to return all classes, such as the ten digits, where the task is one of them against
        the rest.
    fetch : bool, default=True
        Whether to download what is missing.
    progress : callable, optional
        Makes, from the name of a file, a context manager that is called with the bytes so far and
        their total. By default a bar on standard error, where that is a terminal.

    Returns
    -------
    Dataset
        The data.

    Raises
    ------
    ValueError
        If there is no set of that name.
    DatasetError
        If it is missing and cannot be fetched, or a file is damaged.

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
        why = "it was not to be fetched" if entry.read else "it has no public home in this form"
        raise DatasetError(f"{name} is not in {_folders()}, and {why}. {_advice(name)}")
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
    """Return where the file of a data set lies, or None if it is nowhere.

    Parameters
    ----------
    name : str
        A name in `REGISTRY`.

    Returns
    -------
    Path or None
        The file in the folder that ``MARGINPURSUIT_DATA`` names, or else in the cache.

    Examples
    --------
    >>> from marginpursuit.datasets import find
    >>> find("digits") is None  # on board: no file is needed
    True
    """
    _entry(name)
    paths = (folder / f"{name}.npz" for folder in _folders())
    return next((path for path in paths if path.is_file()), None)


def cache_folder() -> Path:
    """Return the folder that fetched data is kept in; it need not exist.

    Returns
    -------
    Path
        ``marginpursuit`` in the place that the platform has for caches.

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
    # The XDG specification: a relative path is to be ignored.
    return (base if base.is_absolute() else Path.home() / ".cache") / "marginpursuit"


def _entry(name: str) -> Entry:
    if name not in REGISTRY:
        raise ValueError(f"name must be one of {sorted(REGISTRY)}; got {name!r}")
    return REGISTRY[name]


def _folders() -> list[Path]:
    named = os.environ.get(_VARIABLE)
    return [Path(named), cache_folder()] if named else [cache_folder()]


def _advice(name: str) -> str:
    return f"Put {name}.npz into {cache_folder()} or a folder that {_VARIABLE} names."


def _checked(name: str, entry: Entry, path: Path) -> Arrays:
    """Read a file that should be a data set."""
    known = entry.sha256 is not None and sha256_of(path) == entry.sha256
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
    except Exception as error:  # a damaged archive may raise anything
        raise DatasetError(f"{path} cannot be read: {error}. Remove it.") from error
    if not known:  # perhaps packed in another way
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
            f"{where} is not the data set {name}: the SHA-256 sum of its arrays is {seen}, "
            f"expected {entry.content_sha256}. Remove it; {_advice(name)}"
        )


def _content_sha256(arrays: Arrays) -> str:
    """Sum names, types, shapes and values: what counts, however the file is packed."""
    total = hashlib.sha256()
    for key in sorted(arrays):
        array = arrays[key]
        total.update(f"{key} {array.dtype.str} {array.shape}\n".encode())
        total.update(array.tobytes())
    return total.hexdigest()


def _fetch(
    name: str, entry: Entry, progress: Callable[[str], AbstractContextManager[Reached]]
) -> Arrays:
    """Download a data set, check it and keep it in the cache."""
    folder = cache_folder() / "downloads" / name
    files = [folder / source.file_name for source in entry.sources]
    for source, file in zip(entry.sources, files, strict=True):
        if file.exists():
            continue
        try:
            with progress(source.file_name) as reached:
                download(source.url, file, sha256=source.sha256, reached=reached)
        except DownloadError as error:
            raise DatasetError(
                f"{name} is not in {_folders()} and could not be downloaded: {error}. "
                f"{_advice(name)} Or save {source.url} as {file}."
            ) from error
    if entry.read is None:
        raise TypeError(f"the entry of {name} has sources, but nothing to read them with")
    try:
        arrays = entry.read(files)
        _check_content(name, entry, arrays, f"what {entry.sources[0].url} holds")
    except Exception as error:
        for file in files:  # a later call downloads them afresh
            file.unlink()
        raise (
            error
            if isinstance(error, DatasetError)
            else DatasetError(f"{name}: what was downloaded cannot be read: {error}")
        ) from error
    _keep(cache_folder() / f"{name}.npz", arrays)
    for file in files:
        file.unlink()
    folder.rmdir()
    return arrays


def _keep(path: Path, arrays: Arrays) -> None:
    """Write the arrays: an interrupted run leaves no half of a file."""
    with atomic_stream(path) as file:
        np.savez_compressed(file, allow_pickle=False, **dict(arrays))


def _matrix(arrays: Arrays) -> Any:
    if "X" in arrays:
        return arrays["X"]
    parts = (arrays["data"], arrays["indices"], arrays["indptr"])
    return sp.csr_array(parts, shape=tuple(arrays["shape"].tolist()))
