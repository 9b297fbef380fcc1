"""Fitted classifiers as files that are safe to open.

A model file is a zip archive, uncompressed, of

- ``header.json``: what the file is (format, version, library, class), the parameters and the fitted
  attributes, and the SHA-256, dtype and shape of each array;
- ``arrays/0.npy``, ``arrays/1.npy``, ...: the arrays that the header refers to, real numbers only;

and its archive comment holds the SHA-256 of the header. Nothing in a file is ever run: the class is
looked up in a fixed table, and arrays are never unpickled. Names, sizes and hashes are checked
before an array is made, and nothing larger than the file itself is.
"""

import hashlib
import io
import json
import math
import os
import re
import zipfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginpursuit import classifiers, selection
from marginpursuit._files import write_atomically
from marginpursuit.classifiers._shared import LinearClassifier, MarginStatistics
from marginpursuit.selection.link import FittedLink

__all__ = ["ModelFileError", "load_model", "save_model"]

FORMAT = "marginpursuit model"
VERSION = 1

#: The classes that a file may name.
CLASSES: dict[str, type[LinearClassifier]] = {
    name: getattr(room, name)
    for room in (classifiers, selection)
    for name in room.__all__
    if issubclass(getattr(room, name), LinearClassifier)
}

# Values with names, that a fitted attribute may be.
_RECORDS: dict[str, Any] = {kind.__name__: kind for kind in (MarginStatistics, FittedLink)}

_HEADER = "header.json"
_NUMBERS = "biuf"  # the kinds of dtype that an array in a file may have
_LONGEST_TYPE_NAME = 8  # of a dtype in a file, such as <f8; longer ones describe structures
_FITTED_NAME = re.compile(r"[a-z][a-z0-9_]*_")
_FIXED_TIME = (1980, 1, 1, 0, 0, 0)  # so that equal models make equal files


class ModelFileError(ValueError):
    """A file is not a model file, is damaged, or cannot hold what it was asked to hold."""


def save_model(model: Any, path: str | os.PathLike[str]) -> Path:
    """Write a fitted classifier of this library to a file.

    Kept are the parameters and the fitted attributes that are numbers, text, arrays of them, or
    lists and dicts of all these: whatever predictions and further fits need. The state of a stream
    (`partial_fit`) is not kept. An existing file is replaced at once or not at all.

    Parameters
    ----------
    model : estimator
        A fitted classifier of `marginpursuit.classifiers`.
    path : path-like
        The file to write.

    Returns
    -------
    Path
        The path.

    Raises
    ------
    ModelFileError
        If the model is none of this library, is not fitted, or has a parameter that is neither a
        number, text, an array nor a list or dict of them.

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
    content = _pack(_encode_model(model, arrays), arrays)
    _unpack(content)  # what could not be read back is not to be written
    return write_atomically(path, content)


def load_model(path: str | os.PathLike[str]) -> Any:
    """Read a fitted classifier from a file that `save_model` wrote.

    Parameters
    ----------
    path : path-like
        The file to read.

    Returns
    -------
    estimator
        The classifier; its predictions equal those of the one that was saved, bit for bit.

    Raises
    ------
    ModelFileError
        If the file is no model file, is truncated or altered, or was written in another version of
        the format.
    OSError
        If the file cannot be read.

    Examples
    --------
    See `save_model`.
    """
    try:
        return _unpack(Path(path).read_bytes())
    except ModelFileError as error:
        raise ModelFileError(f"{os.fspath(path)}: {error}") from error.__cause__


# Packing. Values are encoded as JSON; what JSON has no word for becomes an object with one key.


class _UnfitError(Exception):
    """A value has no place in a model file."""


def _encode_model(model: Any, arrays: list[NDArray[Any]]) -> dict[str, Any]:
    """Return class, parameters and fitted attributes; numeric arrays are appended to `arrays`."""
    name = type(model).__name__
    if CLASSES.get(name) is not type(model):
        raise ModelFileError(
            f"a model file holds a classifier of this library, one of {sorted(CLASSES)}; got {name}"
        )
    if not hasattr(model, "coef_"):
        raise ModelFileError(
            f"this {name} has no coefficients: call fit before save_model; one with a kernel other "
            "than 'linear' has no place in a model file"
        )
    parameters = {}
    for key, value in model.get_params(deep=False).items():
        try:
            parameters[key] = _encode(value, arrays)
        except _UnfitError as error:
            raise ModelFileError(f"the parameter {key!r} does not fit in a file: {error}") from None
    fitted = {}
    for key, value in vars(model).items():
        if _FITTED_NAME.fullmatch(key):
            kept = len(arrays)
            try:
                fitted[key] = _encode(value, arrays)
            except _UnfitError:
                del arrays[kept:]
    return {"class": name, "parameters": parameters, "fitted": fitted}


def _encode(value: Any, arrays: list[NDArray[Any]]) -> Any:
    """Return `value` as JSON has it; numeric arrays are appended to `arrays`."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    name = type(value).__name__
    if isinstance(value, np.ndarray) and not np.ma.is_masked(value):
        return _encode_array(value, arrays)
    if isinstance(value, LinearClassifier):
        return {"model": _encode_model(value, arrays)}
    if name in _RECORDS and isinstance(value, _RECORDS[name]):
        fields = [getattr(value, field) for field in value.__slots__]
        return {"record": name, "fields": [_encode(field, arrays) for field in fields]}
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [_encode(item, arrays) for item in value]}
    if isinstance(value, Mapping):
        return {"dict": [[_encode(part, arrays) for part in item] for item in value.items()]}
    raise _UnfitError(f"it is of type {name}")


def _encode_array(array: NDArray[Any], arrays: list[NDArray[Any]]) -> dict[str, Any]:
    if array.dtype.kind in _NUMBERS and array.dtype.itemsize <= 8:
        arrays.append(array)
        return {"array": len(arrays) - 1}
    values = array.tolist()
    if array.ndim != 1 or not all(isinstance(value, str) for value in values):
        raise _UnfitError(f"it is an array of dtype {array.dtype}")
    return {"text": values, "object": array.dtype.kind == "O"}


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
        "version": VERSION,
        "library": version("marginpursuit"),
        "model": model,
        "arrays": described,
    }
    members = {_HEADER: json.dumps(header, indent=1).encode(), **members}
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for member, content in members.items():
            archive.writestr(zipfile.ZipInfo(member, _FIXED_TIME), content)
        archive.comment = hashlib.sha256(members[_HEADER]).hexdigest().encode()
    return stream.getvalue()


def _array_name(number: int) -> str:
    return f"arrays/{number}.npy"


# Unpacking: every step checks before it believes.


def _unpack(content: bytes) -> Any:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = _read_members(archive, len(content))
            comment = archive.comment
    except ModelFileError:
        raise
    except Exception as error:  # zipfile raises many kinds for broken archives
        raise ModelFileError("this is no model file, or it is damaged or cut short") from error
    header = _read_header(members.pop(_HEADER), comment)
    try:
        return _decode_model(header["model"], _read_arrays(header["arrays"], members))
    except RecursionError as error:
        raise ModelFileError("its header is nested too deeply") from error


def _read_members(archive: zipfile.ZipFile, size: int) -> dict[str, bytes]:
    """Return the content of each member; nothing is read whose declared size cannot be true."""
    entries = archive.infolist()
    wanted = [_HEADER, *(_array_name(number) for number in range(len(entries) - 1))]
    if [entry.filename for entry in entries] != wanted:
        raise ModelFileError("this is a zip archive, but no model file: its members are others")
    if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
        raise ModelFileError("a member is compressed, as no model file has it")
    if sum(entry.file_size for entry in entries) > size:
        raise ModelFileError("members claim to be larger than the file")
    return {entry.filename: archive.read(entry) for entry in entries}


def _read_header(text: bytes, comment: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ModelFileError("its header is damaged") from error
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ModelFileError("this is no model file: its header does not say so")
    # Before the hash: another version may keep it elsewhere.
    if header.get("version") != VERSION:
        raise ModelFileError(
            f"it has version {header.get('version')!r} of the format, written by marginpursuit "
            f"{header.get('library')!r}; marginpursuit {version('marginpursuit')} reads version "
            f"{VERSION}"
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
    if not isinstance(text, str) or len(text) > _LONGEST_TYPE_NAME:
        raise ModelFileError(f"{name} has no plain dtype")
    stream = io.BytesIO(content)
    try:
        dtype = np.dtype(text)
        if np.lib.format.read_magic(stream) != (1, 0):
            raise ValueError("not version 1.0 of the format")
        shape, by_column, stored = np.lib.format.read_array_header_1_0(stream)
    except Exception as error:  # a header written by hand can fail in many ways
        raise ModelFileError(f"{name} is no array in the .npy format") from error
    left = len(content) - stream.tell()
    if dtype.kind not in _NUMBERS or stored != dtype or by_column or list(shape) != about["shape"]:
        raise ModelFileError(f"{name} is not the array of real numbers that the header describes")
    if min(shape, default=1) < 0 or math.prod(shape) * dtype.itemsize != left:
        raise ModelFileError(f"{name} has {left} bytes, which does not suit its shape {shape}")
    return np.frombuffer(content, dtype, offset=stream.tell()).reshape(shape).copy()


def _decode(value: Any, arrays: list[NDArray[Any]]) -> Any:
    """Invert `_encode`; a ModelFileError where there is nothing to invert."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    match value:
        case {"array": int(number)} if len(value) == 1 and 0 <= number < len(arrays):
            return arrays[number]
        case {"text": [*texts], "object": bool(as_objects)} if all(
            isinstance(text, str) for text in texts
        ):
            return np.array(texts, dtype=object if as_objects else np.str_)
        case {"model": model}:
            return _decode_model(model, arrays)
        case {"record": str(name), "fields": [*fields]} if name in _RECORDS and len(fields) == len(
            _RECORDS[name].__slots__
        ):
            return _RECORDS[name](*(_decode(field, arrays) for field in fields))
        case {"list": [*items]}:
            return [_decode(item, arrays) for item in items]
        case {"tuple": [*items]}:
            return tuple(_decode(item, arrays) for item in items)
        case {"dict": [*items]} if all(isinstance(item, list) and len(item) == 2 for item in items):
            pairs = ([_decode(part, arrays) for part in item] for item in items)
            try:
                return dict(pairs)
            except TypeError:  # a key that cannot be one
                pass
    raise ModelFileError("its header holds a value that no model file has")


def _decode_model(about: Any, arrays: list[NDArray[Any]]) -> Any:
    """Invert `_encode_model`."""
    kinds = {"class": str, "parameters": dict, "fitted": dict}
    if not isinstance(about, dict) or any(
        not isinstance(about.get(key), kind) for key, kind in kinds.items()
    ):
        raise ModelFileError("its header does not describe a model")
    name, parameters, fitted = (about[key] for key in kinds)
    if name not in CLASSES:
        raise ModelFileError(
            f"it holds a {name!r}, which this version of the library does not have; it has "
            f"{sorted(CLASSES)}"
        )
    model = CLASSES[name]()
    strangers = sorted(set(parameters) - set(model.get_params(deep=False)))
    if strangers:
        raise ModelFileError(f"it has parameters that {name} does not have: {strangers}")
    for key, value in parameters.items():
        setattr(model, key, _decode(value, arrays))
    for key, value in fitted.items():
        if not _FITTED_NAME.fullmatch(key) or hasattr(type(model), key):
            raise ModelFileError(f"{key!r} is no fitted attribute of {name}")
        setattr(model, key, _decode(value, arrays))
    problem = _what_is_wrong(model)
    if problem:
        raise ModelFileError(f"it holds no fitted {name}: {problem}")
    return model


def _what_is_wrong(model: Any) -> str | None:
    """Say why a model could not predict; None if it could."""
    parts: list[Any] = [
        getattr(model, name, None) for name in ("classes_", "coef_", "intercept_", "n_features_in_")
    ]
    classes, coef, intercept, columns = parts
    if not all(isinstance(part, np.ndarray) for part in (classes, coef, intercept)):
        return "classes, coefficients or intercept are missing"
    if classes.ndim != 1 or len(classes) < 2 or not np.all(classes[:-1] < classes[1:]):
        return "its classes are not at least two different labels in order"
    problems = 1 if len(classes) == 2 else len(classes)
    if type(columns) is not int or coef.shape != (problems, columns) or columns < 1:
        return (
            f"its coefficients have shape {coef.shape}, for {len(classes)} classes and {columns!r} "
            "columns"
        )
    if intercept.shape != (problems,):
        return f"its intercept has shape {intercept.shape}"
    if not (coef.dtype.kind == intercept.dtype.kind == "f"):
        return "its coefficients are no floats"
    if not (np.all(np.isfinite(coef)) and np.all(np.isfinite(intercept))):
        return "its coefficients are not finite"
    names = getattr(model, "feature_names_in_", None)
    if names is not None and (not isinstance(names, np.ndarray) or names.shape != (columns,)):
        return "its feature names do not suit its columns"
    return None
