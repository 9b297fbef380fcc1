"""Fitted classifiers as files that are safe to open.

A model file is a zip archive, uncompressed, of

- ``header.json``: format, version (2 for pipelines, 1 for others), library, class, the parameters
  and the fitted attributes, and the SHA-256, dtype and shape of each array;
- ``arrays/0.npy``, ``arrays/1.npy``, ...: the arrays of real numbers that the header refers to;

and its archive comment holds the SHA-256 of the header. No content of a file is executed: the class
is looked up in a fixed table, and arrays are not unpickled. Names, sizes and hashes are checked
before memory is allocated. Loading takes memory of at most 100 times the size of the file, and time
proportional to it (`tests/test_damaged_files.py`).
"""

import hashlib
import io
import json
import math
import os
import zipfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginpursuit._files import write_atomically
from marginpursuit._model_encoding import (
    CLASSES,
    ModelFileError,
    UnsupportedValueError,
    decode,
    decode_model,
    encode,
    encode_model,
)

__all__ = ["CLASSES", "ModelFileError", "load_model", "save_model"]

FORMAT = "marginpursuit model"
VERSION = 2

_HEADER = "header.json"


def save_model(model: Any, path: str | os.PathLike[str]) -> Path:
    """Write a fitted classifier of this library, or a pipeline that ends with one, to a file.

    Model files contain no code and are safe to open. They hold what predictions and further calls
    of `fit` need, but not the state of a stream (`partial_fit`). An existing file is replaced
    atomically.

    Parameters
    ----------
    model : estimator
        A fitted classifier of this library, or a scikit-learn Pipeline of `TableVectoriser` or
        common transformers of scikit-learn and such a classifier.
    path : path-like
        The file to write.

    Returns
    -------
    Path
        The path.

    Raises
    ------
    ModelFileError
        If the model is not of this library, is not fitted, or has a parameter that is neither a
        number, text, an array nor a list or dict of them; or if a pipeline has another transformer,
        or one that runs code of the user.

    Examples
    --------
    >>> import os, tempfile
    >>> from sklearn.datasets import load_breast_cancer
    >>> from marginpursuit import MarginPursuitClassifier, load_model, save_model
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = MarginPursuitClassifier().fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = save_model(model, os.path.join(folder, "cancer.model"))
    ...     again = load_model(path)
    >>> bool((again.decision_function(X) == model.decision_function(X)).all())
    True
    """
    arrays: list[NDArray[Any]] = []
    content = _pack(_encoded(model, arrays), arrays)
    _unpack(content)  # raises before an unreadable file is written
    return write_atomically(path, content)


def _encoded(model: Any, arrays: list[NDArray[Any]]) -> dict[str, Any]:
    """Return a classifier or a pipeline as JSON."""
    if not hasattr(model, "steps"):
        return encode_model(model, arrays)
    try:
        encoded: dict[str, Any] = encode(model, arrays)
    except UnsupportedValueError as error:
        raise ModelFileError(f"this pipeline does not fit in a file: {error}") from None
    return encoded


def load_model(path: str | os.PathLike[str]) -> Any:
    """Read a fitted classifier from a file that `save_model` wrote.

    Parameters
    ----------
    path : path-like
        The file to read.

    Returns
    -------
    estimator
        The classifier; its predictions equal those of the saved one bit for bit. Those of a
        pipeline may differ by rounding in matrix products of its transformers.

    Raises
    ------
    ModelFileError
        If the file is not a model file, is truncated or altered, or has another version of the
        format.
    OSError
        If the file cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sklearn.datasets import load_iris
    >>> from marginpursuit import MarginPursuitClassifier, load_model, save_model
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MarginPursuitClassifier().fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = save_model(model, Path(folder) / "iris.model")
    ...     loaded = load_model(Path(folder) / "iris.model")
    >>> bool((loaded.predict_proba(X) == model.predict_proba(X)).all())
    True
    """
    try:
        return _unpack(Path(path).read_bytes())
    except ModelFileError as error:
        raise ModelFileError(f"{os.fspath(path)}: {error}") from error.__cause__


def _pack(model: dict[str, Any], arrays: list[NDArray[Any]]) -> bytes:
    members = {}
    described = []
    for number, array in enumerate(arrays):
        stream = io.BytesIO()
        np.save(stream, np.ascontiguousarray(array).reshape(array.shape), allow_pickle=False)
        members[_array_name(number)] = stream.getvalue()
        described.append(
            {
                "dtype": array.dtype.str,
                "shape": list(array.shape),
                "sha256": hashlib.sha256(stream.getvalue()).hexdigest(),
            }
        )
    header = {
        "format": FORMAT,
        "version": VERSION if "estimator" in model else 1,
        "library": version("marginpursuit"),
        "model": model,
        "arrays": described,
    }
    members = {_HEADER: json.dumps(header, indent=1).encode(), **members}
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for member, content in members.items():
            # A fixed time, so that equal models make equal files.
            archive.writestr(zipfile.ZipInfo(member, (1980, 1, 1, 0, 0, 0)), content)
        archive.comment = hashlib.sha256(members[_HEADER]).hexdigest().encode()
    return stream.getvalue()


def _array_name(number: int) -> str:
    return f"arrays/{number}.npy"


# Decoding. Every value of a file is checked before it is used.


def _unpack(content: bytes) -> Any:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = _read_members(archive, len(content))
            comment = archive.comment
    except ModelFileError:
        raise
    except Exception as error:  # zipfile raises many types for broken archives
        raise ModelFileError("this is not a model file, or it is damaged or truncated") from error
    header = _read_header(members.pop(_HEADER), comment)
    try:
        return _decoded(header["model"], _read_arrays(header["arrays"], members))
    except RecursionError as error:
        raise ModelFileError("its header is nested too deeply") from error
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        if isinstance(error, ModelFileError):
            raise
        raise ModelFileError(f"its header holds a value that no model file has: {error}") from error


def _decoded(model: Any, arrays: list[NDArray[Any]]) -> Any:
    """Invert `_encoded`; a pipeline must predict rows that use all its values."""
    if not (isinstance(model, dict) and "estimator" in model):
        return decode_model(model, arrays)
    from marginpursuit._pipeline_check import check_pipeline  # its imports take time

    pipeline = decode(model, arrays)
    if not hasattr(pipeline, "steps"):
        raise ModelFileError(f"it holds a {type(pipeline).__name__}; expected a Pipeline")
    check_pipeline(pipeline)
    return pipeline


def _read_members(archive: zipfile.ZipFile, size: int) -> dict[str, bytes]:
    """Return the content of each member, after a check of names, compression and sizes."""
    entries = archive.infolist()
    wanted = [_HEADER, *(_array_name(number) for number in range(len(entries) - 1))]
    if [entry.filename for entry in entries] != wanted:
        raise ModelFileError("this is a zip archive but not a model file: its members are others")
    if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
        raise ModelFileError("a member is compressed; those of a model file are not")
    if sum(entry.file_size for entry in entries) > size:
        raise ModelFileError("members claim to be larger than the file")
    return {entry.filename: archive.read(entry) for entry in entries}


def _read_header(text: bytes, comment: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ModelFileError("its header is damaged") from error
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ModelFileError("this is not a model file: its header has no such format")
    # The version is checked first: the place of the hash may depend on it.
    if header.get("version") not in (1, VERSION):
        raise ModelFileError(
            f"it has version {header.get('version')!r} of the format, written by marginpursuit "
            f"{header.get('library')!r}; marginpursuit {version('marginpursuit')} reads versions "
            f"1 to {VERSION}"
        )
    if hashlib.sha256(text).hexdigest().encode() != comment:
        raise ModelFileError("its header was altered: the hash does not match")
    if "model" not in header or not isinstance(header.get("arrays"), list):
        raise ModelFileError("its header lacks an entry")
    return header


def _read_arrays(described: list[Any], members: dict[str, bytes]) -> list[NDArray[Any]]:
    if len(described) != len(members):
        raise ModelFileError(
            f"its header speaks of {len(described)} arrays; there are {len(members)}"
        )
    return [
        _read_array(name, content, about)
        for (name, content), about in zip(members.items(), described, strict=True)
    ]


def _read_array(name: str, content: bytes, about: Any) -> NDArray[Any]:
    if not isinstance(about, dict) or hashlib.sha256(content).hexdigest() != about.get("sha256"):
        raise ModelFileError(f"{name} was altered: the hash does not match")
    text = about.get("dtype")
    if not isinstance(text, str) or len(text) > 8:  # as <f8; longer names describe structures
        raise ModelFileError(f"{name} has no plain dtype")
    stream = io.BytesIO(content)
    try:
        dtype = np.dtype(text)
        if np.lib.format.read_magic(stream) != (1, 0):
            raise ValueError("not version 1.0 of the format")
        shape, by_column, stored = np.lib.format.read_array_header_1_0(stream)
    except Exception as error:  # NumPy raises many types for broken headers
        raise ModelFileError(f"{name} is not an array in the .npy format") from error
    n_bytes = len(content) - stream.tell()
    is_described = stored == dtype and not by_column and list(shape) == about.get("shape")
    if dtype.kind not in "biuf" or not is_described:
        raise ModelFileError(f"{name} is not the array of real numbers that the header describes")
    if min(shape, default=1) < 0 or math.prod(shape) * dtype.itemsize != n_bytes:
        raise ModelFileError(f"{name} has {n_bytes} bytes, which does not suit its shape {shape}")
    return np.frombuffer(content, dtype, offset=stream.tell()).reshape(shape).copy()
