"""Fitted classifiers as JSON and a list of numeric arrays, and back.

Numbers, text and None are JSON values. Every other value is a JSON object with a tag: ``array`` is
the index of a numeric array, ``text`` an array of text, ``objects`` one of JSON values, ``model`` a
classifier, ``record`` a dataclass, ``list``, ``tuple`` and ``dict`` a container. Pipelines also
have ``estimator`` (`_pipeline_encoding`), ``dtype``, ``scalar`` (a NumPy type) and ``slice``, and
kernel expansions of sparse rows ``csr``. Every value of a file is checked before it is used.
"""

import re
from collections.abc import Callable, Mapping
from functools import cached_property
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator

from marginpursuit import classifiers, selection
from marginpursuit._model_checks import model_error
from marginpursuit._table_records import Column, Feature
from marginpursuit.classifiers._shared import (
    FittedLink,
    LabelLinks,
    LinearClassifier,
    MarginStatistics,
    check_parameters,
)

#: The classes that a file may name.
CLASSES: dict[str, type[LinearClassifier]] = {
    name: getattr(package, name)
    for package in (classifiers, selection)
    for name in package.__all__
    if issubclass(getattr(package, name), LinearClassifier)
}

# The dataclasses that a fitted attribute may be; files store their fields in order.
_RECORDS: dict[str, Any] = {
    kind.__name__: kind for kind in (MarginStatistics, FittedLink, LabelLinks, Column, Feature)
}


class ModelFileError(ValueError):
    """A file is not a model file or is damaged, or a model cannot be stored in one."""


class UnsupportedValueError(Exception):
    """A value that a model file cannot hold."""


def encode_model(model: Any, arrays: list[NDArray[Any]]) -> dict[str, Any]:
    """Return class, parameters and fitted attributes; numeric arrays are appended to `arrays`."""
    name = type(model).__name__
    if CLASSES.get(name) is not type(model):
        advice = " Save its best_estimator_." if hasattr(model, "best_estimator_") else ""
        raise ModelFileError(
            f"a model file holds a classifier of this library, one of {sorted(CLASSES)}; got "
            f"{name}.{advice}"
        )
    if not (hasattr(model, "coef_") or hasattr(model, "dual_coef_")):
        raise ModelFileError(f"this {name} has no coefficients: call fit before save_model")
    parameters = {}
    for key, value in model.get_params(deep=False).items():
        try:
            parameters[key] = encode(value, arrays)
        except UnsupportedValueError as error:
            advice = f". No prediction needs it: call set_params({key}=None) before saving"
            advice = advice if key in ("cv", "scoring", "random_state") else ""
            raise ModelFileError(
                f"the parameter {key!r} does not fit in a file: {error}{advice}"
            ) from None
    fitted = {}
    state: Any = model.__getstate__()  # computes what is computed when first read
    for key, value in state.items():
        if _is_fitted_name(key) and key not in model._not_in_files:
            n_arrays = len(arrays)
            try:
                fitted[key] = encode(value, arrays)
            except UnsupportedValueError as error:
                if key == "classes_":
                    raise ModelFileError(
                        f"the classes of this {name} do not fit in a file: {error}; expected "
                        "numbers or text. Fit to y.astype(str)."
                    ) from None
                del arrays[n_arrays:]
    return {"class": name, "parameters": parameters, "fitted": fitted}


def _is_fitted_name(name: str) -> bool:
    """Whether this is the name of a public fitted attribute."""
    return re.fullmatch(r"[a-z][a-z0-9_]*_", name) is not None


def _is_json_value(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


def encode(value: Any, arrays: list[NDArray[Any]]) -> Any:
    """Return `value` as JSON; numeric arrays are appended to `arrays`."""
    if isinstance(value, np.generic):
        value = value.item()
    if _is_json_value(value):
        return value
    for kind, encoder in _ENCODERS.items():
        if isinstance(value, kind):
            return encoder(value, arrays)
    raise UnsupportedValueError(f"it is of type {type(value).__name__}")


def _encode_array(array: NDArray[Any], arrays: list[NDArray[Any]]) -> dict[str, Any]:
    if np.ma.is_masked(array):
        raise UnsupportedValueError("it is an array with masked values")
    if array.dtype.kind in "biuf" and array.dtype.itemsize <= 8:
        arrays.append(array)
        return {"array": len(arrays) - 1}
    # The elements of an array of objects may be scalars of NumPy (`OneHotEncoder.drop_idx_`).
    values = [v.item() if isinstance(v, np.generic) else v for v in array.tolist()]
    if array.ndim == 1 and all(isinstance(value, str) for value in values):
        return {"text": values, "object": array.dtype.kind == "O"}
    if array.ndim == 1 and all(_is_json_value(value) for value in values):
        return {"objects": values}
    raise UnsupportedValueError(f"it is an array of dtype {array.dtype}")


def _encode_csr(matrix: Any, arrays: list[NDArray[Any]]) -> dict[str, Any]:
    if matrix.format != "csr":
        raise UnsupportedValueError(f"it is a sparse matrix of format {matrix.format}")
    parts = [_encode_array(part, arrays) for part in (matrix.data, matrix.indices, matrix.indptr)]
    return {"csr": parts, "shape": list(map(int, matrix.shape))}


def _encode_record(record: Any, arrays: list[NDArray[Any]]) -> dict[str, Any]:
    fields = [encode(getattr(record, field), arrays) for field in record.__slots__]
    return {"record": type(record).__name__, "fields": fields}


def _encode_items(items: Any, arrays: list[NDArray[Any]]) -> dict[str, Any]:
    tag = "list" if isinstance(items, list) else "tuple"
    return {tag: [encode(item, arrays) for item in items]}


def _encode_dict(mapping: Any, arrays: list[NDArray[Any]]) -> dict[str, Any]:
    return {"dict": [[encode(part, arrays) for part in item] for item in mapping.items()]}


def _encode_type(kind: type, arrays: list[NDArray[Any]]) -> dict[str, Any]:
    if not issubclass(kind, np.floating | np.integer):
        raise UnsupportedValueError(f"it is the type {kind.__name__}")
    return {"scalar": np.dtype(kind).name}


def _encode_estimator(estimator: Any, arrays: list[NDArray[Any]]) -> dict[str, Any]:
    from marginpursuit._pipeline_encoding import encode_estimator  # its imports take time

    return encode_estimator(estimator, arrays)


# The encoder of each type that is not a JSON value.
_ENCODERS: dict[Any, Callable[[Any, list[NDArray[Any]]], dict[str, Any]]] = {
    np.ndarray: _encode_array,
    (sparse.spmatrix, sparse.sparray): _encode_csr,
    LinearClassifier: lambda model, arrays: {"model": encode_model(model, arrays)},
    tuple(_RECORDS.values()): _encode_record,
    (list, tuple): _encode_items,
    Mapping: _encode_dict,
    slice: lambda value, arrays: {"slice": [value.start, value.stop, value.step]},
    np.dtype: lambda value, arrays: {"dtype": value.str},
    type: _encode_type,
    BaseEstimator: _encode_estimator,
}


def decode(value: Any, arrays: list[NDArray[Any]]) -> Any:
    """Invert `encode`; raise a ModelFileError for a value that `encode` does not return."""
    if _is_json_value(value):
        return value
    tags = _DECODERS.keys() & value.keys() if isinstance(value, dict) else set()
    _require(len(tags) == 1)
    return _DECODERS[tags.pop()](value, arrays)


def _require(is_valid: bool) -> None:
    if not is_valid:
        raise ModelFileError("its header holds a value that no model file has")


def _decode_array(value: dict[str, Any], arrays: list[NDArray[Any]]) -> NDArray[Any]:
    number = value["array"]
    _require(len(value) == 1 and isinstance(number, int) and 0 <= number < len(arrays))
    found: NDArray[Any] = arrays[number]
    return found


def _decode_csr(value: dict[str, Any], arrays: list[NDArray[Any]]) -> Any:
    """Decode a CSR matrix whose indices increase within each row and are in its range."""
    parts, shape = value["csr"], value["shape"]
    _require(isinstance(parts, list) and len(parts) == 3)
    _require(isinstance(shape, list) and len(shape) == 2 and all(type(n) is int for n in shape))
    data, indices, indptr = (_decode_array(part, arrays) for part in parts)
    _require(all(part.ndim == 1 for part in (data, indices, indptr)))
    _require(indices.dtype.kind == "i" == indptr.dtype.kind and len(indices) == len(data))
    _require(len(indptr) == shape[0] + 1 and indptr[0] == 0 and indptr[-1] == len(data))
    _require(bool(np.all(indptr[:-1] <= indptr[1:])))
    _require(len(indices) == 0 or (indices.min() >= 0 and indices.max() < shape[1]))
    return sparse.csr_matrix((data, indices, indptr), shape=tuple(shape))


def _decode_text(
    value: dict[str, Any],
    arrays: list[NDArray[Any]],
    max_length: int = 4096,
    max_padding: int = 64,
) -> NDArray[Any]:
    """Decode an array of text.

    NumPy pads each entry to the longest one, also in every array of predictions. An entry has at
    most `max_length` characters, and the array `max_padding` times the characters of its entries.
    """
    texts, as_objects = value["text"], value.get("object")
    _require(isinstance(texts, list) and all(isinstance(text, str) for text in texts))
    _require(isinstance(as_objects, bool))
    if as_objects:
        return np.array(texts, dtype=object)
    lengths = [len(text) for text in texts]
    longest = max(lengths, default=0)
    if longest > max_length:
        raise ModelFileError(
            f"it has an array of text with an entry of {longest} characters; expected at most "
            f"{max_length}. Use shorter labels."
        )
    if len(texts) * longest > max_padding * (sum(lengths) + max_length):
        raise ModelFileError(
            f"it has an array of {len(texts)} texts of {sum(lengths)} characters, which padding to "
            f"the longest, of {longest}, makes more than {max_padding} times as large. Use labels "
            "of similar length, or an array of Python objects."
        )
    return np.array(texts, dtype=np.str_)


def _decode_objects(value: dict[str, Any], arrays: list[NDArray[Any]]) -> NDArray[Any]:
    items = value["objects"]
    _require(len(value) == 1 and isinstance(items, list) and all(map(_is_json_value, items)))
    found = np.empty(len(items), dtype=object)
    found[:] = items
    return found


def _decode_slice(value: dict[str, Any], arrays: list[NDArray[Any]]) -> slice:
    parts = value["slice"]
    _require(len(value) == 1 and isinstance(parts, list) and len(parts) == 3)
    _require(all(part is None or type(part) is int for part in parts))
    return slice(*parts)


def _decode_dtype(value: dict[str, Any], arrays: list[NDArray[Any]]) -> np.dtype[Any]:
    _require(len(value) == 1 and value["dtype"] in ("<f4", "<f8", "<i4", "<i8", "|O"))
    found: np.dtype[Any] = np.dtype(value["dtype"])
    return found


def _decode_scalar(value: dict[str, Any], arrays: list[NDArray[Any]]) -> Any:
    _require(len(value) == 1 and value["scalar"] in ("float32", "float64", "int32", "int64"))
    return getattr(np, value["scalar"])


def _decode_estimator(value: dict[str, Any], arrays: list[NDArray[Any]]) -> Any:
    from marginpursuit._pipeline_encoding import decode_estimator

    return decode_estimator(value, arrays)


def _decode_record(value: dict[str, Any], arrays: list[NDArray[Any]]) -> Any:
    name, fields = value["record"], value.get("fields")
    _require(isinstance(name, str) and name in _RECORDS and isinstance(fields, list))
    kind = _RECORDS[name]
    _require(len(value["fields"]) == len(kind.__slots__))
    return kind(*(decode(field, arrays) for field in value["fields"]))


def _decode_list(value: dict[str, Any], arrays: list[NDArray[Any]]) -> list[Any]:
    items = value.get("list", value.get("tuple"))
    _require(isinstance(items, list))
    return list(map(decode, items or (), repeat(arrays)))


def _decode_tuple(value: dict[str, Any], arrays: list[NDArray[Any]]) -> tuple[Any, ...]:
    return tuple(_decode_list(value, arrays))


def _decode_dict(value: dict[str, Any], arrays: list[NDArray[Any]]) -> dict[Any, Any]:
    items = value["dict"]
    _require(isinstance(items, list))
    _require(all(isinstance(item, list) and len(item) == 2 for item in items))
    _require(all(_is_key(key) for key, _ in items))
    return {key: decode(part, arrays) for key, part in items}


def _is_key(key: Any) -> bool:
    """Whether this is a label: text, or a number of at most 64 bits.

    Python's hash of an integer is its remainder modulo 2**61 - 1. Larger integers could all have
    the same hash, and a dict of them would take quadratic time.
    """
    return isinstance(key, str | float | None) or (isinstance(key, int) and -(2**63) <= key < 2**64)


# The decoder of each tag.
_DECODERS: dict[str, Callable[[dict[str, Any], list[NDArray[Any]]], Any]] = {
    "array": _decode_array,
    "csr": _decode_csr,
    "text": _decode_text,
    "model": lambda value, arrays: decode_model(value["model"], arrays),
    "record": _decode_record,
    "list": _decode_list,
    "tuple": _decode_tuple,
    "dict": _decode_dict,
    "objects": _decode_objects,
    "slice": _decode_slice,
    "dtype": _decode_dtype,
    "scalar": _decode_scalar,
    "estimator": _decode_estimator,
}


def decode_model(about: Any, arrays: list[NDArray[Any]]) -> Any:
    """Invert `encode_model`."""
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
    unknown = sorted(set(parameters) - set(model.get_params(deep=False)))
    if unknown:
        raise ModelFileError(f"it has parameters that {name} does not have: {unknown}")
    for key, value in parameters.items():
        setattr(model, key, decode(value, arrays))
    _check_parameters(model)
    for key, value in fitted.items():
        of_class = getattr(type(model), key, None)  # a method, or computed when first read
        is_free = of_class is None or isinstance(of_class, cached_property)
        if not (_is_fitted_name(key) and is_free):
            raise ModelFileError(f"{key!r} is not a fitted attribute of {name}")
        setattr(model, key, decode(value, arrays))
    _check_attributes(model)
    return model


def check_fitted_model(model: Any) -> None:
    """Refuse parameters that `fit` refuses, and attributes with which a model cannot predict."""
    _check_parameters(model)
    _check_attributes(model)


def _check_attributes(model: Any) -> None:
    error = model_error(model)
    if error is not None:
        raise ModelFileError(f"it does not hold a fitted {type(model).__name__}: {error}")


def _check_parameters(model: Any) -> None:
    """Refuse parameters that `fit` refuses."""
    try:
        check_parameters(model, model._allowed)
        if hasattr(model, "_check_parameters"):
            model._check_parameters()
    except (ValueError, TypeError, OverflowError) as error:
        raise ModelFileError(f"it has a parameter that fit refuses: {error}") from error
