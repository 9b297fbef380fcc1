"""Readers of the original files of the data sets.

Every function takes the downloaded files and returns the arrays of the ``.npz`` layout: ``X`` or
the CSR arrays, ``y``, and optional arrays such as groups. Integers keep their narrow types.
"""

import gzip
import io
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Arrays",
    "challenge",
    "cover_type",
    "handwritten_digits",
    "higgs",
    "labelled_csv",
    "protein_homology",
    "svmlight_parts",
]

Arrays: TypeAlias = Mapping[str, NDArray[Any]]


def cover_type(files: Sequence[Path]) -> Arrays:
    """Read covtype.data.gz of the UCI repository: 54 integer columns and the class, 1 to 7."""
    table = np.loadtxt(files[0], dtype=np.int16, delimiter=",", ndmin=2)
    return {"X": table[:, :-1].copy(), "y": table[:, -1].astype(np.int8)}


def labelled_csv(files: Sequence[Path]) -> Arrays:
    """Read comma-separated numbers; the last column is the class, 0 or 1."""
    table = np.loadtxt(files[0], delimiter=",", ndmin=2)
    return {"X": table[:, :-1].astype(np.float32), "y": _signs(table[:, -1])}


def higgs(files: Sequence[Path]) -> Arrays:
    """Read training and test files; the first column is the class, 0 or 1."""
    parts = [np.loadtxt(file, ndmin=2) for file in files]
    table = np.concatenate(parts)
    return {
        "X": table[:, 1:].astype(np.float32),
        "y": _signs(table[:, 0]),
        "n_train": np.array(len(parts[0]), np.int32),
    }


def handwritten_digits(files: Sequence[Path]) -> Arrays:
    """Read MNIST's four idx files: images and labels for training, then for testing."""
    train, train_labels, test, test_labels = (_idx(file) for file in files)
    images = np.concatenate([train, test])
    return {
        "X": images.reshape(len(images), -1),
        "y": np.concatenate([train_labels, test_labels]).astype(np.int8),
        "n_train": np.array(len(train), np.int32),
    }


def protein_homology(files: Sequence[Path]) -> Arrays:
    """Read bio_train.dat of KDD Cup 2004: block, example, class (0 or 1), 74 numbers."""
    with tarfile.open(files[0]) as archive:
        (member,) = (m for m in archive if Path(m.name).name == "bio_train.dat")
        content = archive.extractfile(member)
        if content is None:
            raise ValueError(f"{member.name} is not a file")
        table = np.loadtxt(io.TextIOWrapper(content, "ascii"), ndmin=2)
    return {
        "X": table[:, 3:].astype(np.float32),
        "y": _signs(table[:, 2]),
        "block_id": table[:, 0].astype(np.int16),
        "example_id": table[:, 1].astype(np.int32),
    }


def challenge(files: Sequence[Path]) -> Arrays:
    """Read a zip of the causality and agnostic-learning challenges: the labelled training part.

    The text file ``*_train.data`` has a row of 0s and 1s for each compound; the file
    ``*_train.targets`` or ``*_train.labels`` has the classes, -1 or 1.
    """
    with zipfile.ZipFile(files[0]) as archive:
        rows = _member(archive, "_train.data")
        labels = _member(archive, "_train.targets", "_train.labels")
        return {
            "X": np.loadtxt(io.BytesIO(rows), dtype=np.uint8, ndmin=2),
            "y": np.loadtxt(io.BytesIO(labels), dtype=np.int8, ndmin=1),
        }


def svmlight_parts(files: Sequence[Path]) -> Arrays:
    """Read training and test files in LIBSVM's format with values 1."""
    from sklearn.datasets import load_svmlight_files

    train, train_labels, test, test_labels = load_svmlight_files(list(files), zero_based=False)
    counts = np.concatenate([np.diff(train.indptr), np.diff(test.indptr)])
    return {
        "data": np.concatenate([train.data, test.data]).astype(np.uint8),
        "indices": np.concatenate([train.indices, test.indices]).astype(np.int32),
        "indptr": np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
        "shape": np.array([len(counts), train.shape[1]], np.int64),
        "y": np.concatenate([train_labels, test_labels]).astype(np.int8),
        "n_train": np.array(train.shape[0], np.int32),
    }


def _signs(labels: NDArray[Any]) -> NDArray[np.int8]:
    """Map classes 0 and 1 to -1 and 1."""
    return (2 * labels - 1).astype(np.int8)


def _idx(file: Path) -> NDArray[np.uint8]:
    """Read the idx format: two zero bytes, the type, the number of axes, their lengths, data."""
    content = gzip.decompress(file.read_bytes())
    if content[:3] != b"\x00\x00\x08":
        raise ValueError(f"{file.name} is not an idx file of bytes; it begins with {content[:4]!r}")
    axes = content[3]
    shape = np.frombuffer(content, ">u4", axes, offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape)


def _member(archive: zipfile.ZipFile, *endings: str) -> bytes:
    """Return the content of the only member with one of these endings."""
    names = (name for name in archive.namelist() if not name.startswith("__MACOSX"))
    found = [name for name in names if name.endswith(endings)]
    if len(found) != 1:
        raise ValueError(f"expected one file *{' or *'.join(endings)} in the archive; got {found}")
    return archive.read(found[0])
