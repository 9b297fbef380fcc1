"""Pipelines of model files: the transformers that a file may name, their state, and its checks.

A transformer is stored as its class and its attributes. The class is looked up in a fixed table;
attributes are numbers, text, arrays, lists, dicts, or transformers of the table. Parameters that
would run code, read files or take unbounded time are refused, here and in files.
"""

import re
from collections.abc import Callable
from importlib import import_module
from typing import Any

from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from marginpursuit._model_encoding import ModelFileError, UnsupportedValueError, decode, encode

__all__ = ["decode_estimator", "encode_estimator", "is_stored_estimator"]

#: The module of each class that a file may name.
_MODULES = {
    **dict.fromkeys(["Pipeline", "FeatureUnion"], "sklearn.pipeline"),
    "ColumnTransformer": "sklearn.compose",
    **dict.fromkeys(["SimpleImputer", "MissingIndicator"], "sklearn.impute"),
    **dict.fromkeys(
        ["FunctionTransformer", "MaxAbsScaler", "MinMaxScaler", "OneHotEncoder", "OrdinalEncoder",
         "RobustScaler", "StandardScaler"],
        "sklearn.preprocessing",
    ),
    **dict.fromkeys(["PCA", "TruncatedSVD"], "sklearn.decomposition"),
    **dict.fromkeys(
        ["CountVectorizer", "HashingVectorizer", "TfidfTransformer", "TfidfVectorizer"],
        "sklearn.feature_extraction.text",
    ),
    "DatetimeEncoder": "skrub",
    "TableVectoriser": "marginpursuit.tables",
}  # fmt: skip


def _is_ngram_range(value: Any) -> bool:
    is_pair = isinstance(value, tuple) and len(value) == 2
    return is_pair and all(type(n) is int for n in value) and 1 <= value[0] <= value[1] <= 10


def _is_stop_words(value: Any) -> bool:
    is_list = isinstance(value, list) and all(isinstance(word, str) for word in value)
    return value is None or value == "english" or is_list


# The values of a parameter that a file may hold, whatever the class. A regular expression may take
# exponential time, a cache folder is unpickled, and text columns could name files to read.
_ALLOWED: dict[str, Callable[[Any], bool]] = {
    "func": lambda value: value is None,  # ColumnTransformer's "passthrough"
    "inverse_func": lambda value: value is None,
    "memory": lambda value: value is None,
    "n_jobs": lambda value: value is None or value == 1,
    "input": lambda value: value == "content",
    "preprocessor": lambda value: value is None,
    "tokenizer": lambda value: value is None,
    "token_pattern": lambda value: value in (None, r"(?u)\b\w\w+\b"),
    "analyzer": lambda value: value in ("word", "char", "char_wb"),
    "ngram_range": _is_ngram_range,
    "stop_words": _is_stop_words,
    "feature_name_combiner": lambda value: value == "concat",
    "periodic_encoding": lambda value: value is None,
    "n_oversamples": lambda value: type(value) is int and 0 <= value <= 1000,
}


def is_stored_estimator(value: Any) -> bool:
    """Whether a value is an instance of a class in the table."""
    name, module = type(value).__name__, type(value).__module__
    return name in _MODULES and module.partition(".")[0] == _MODULES[name].partition(".")[0]


def encode_estimator(estimator: Any, arrays: list[NDArray[Any]]) -> dict[str, Any]:
    """Return class and attributes of a transformer or pipeline."""
    name = type(estimator).__name__
    if not is_stored_estimator(estimator) or _class(name) is not type(estimator):
        raise UnsupportedValueError(
            f"it is of type {name}; a file holds classifiers of this library and "
            f"{', '.join(sorted(_MODULES))}"
        )
    state = {}
    for key, value in vars(estimator).items():
        if key in ("_stop_words_id",):  # the address of an object in this process
            continue
        _check_value(name, key, value)
        try:
            state[key] = encode(value, arrays)
        except UnsupportedValueError as error:
            raise UnsupportedValueError(f"{name}.{key}: {error}") from None
    return {"estimator": name, "state": state}


def decode_estimator(value: dict[str, Any], arrays: list[NDArray[Any]]) -> Any:
    """Invert `encode_estimator`."""
    name, state = value["estimator"], value.get("state")
    if len(value) != 2 or name not in _MODULES or not isinstance(state, dict):
        raise ModelFileError(f"it holds a {name!r}; expected one of {', '.join(sorted(_MODULES))}")
    kind = _class(name)
    estimator = kind.__new__(kind)
    for key, part in state.items():
        if re.fullmatch(r"_?[a-zA-Z][a-zA-Z0-9_]*", key) is None or hasattr(kind, key):
            raise ModelFileError(f"{key!r} is not an attribute of a {name}")
        found = decode(part, arrays)
        _check_value(name, key, found)
        setattr(estimator, key, found)
    absent = sorted(set(kind._get_param_names()) - set(state))
    if absent:
        raise ModelFileError(f"its {name} lacks the parameters {absent}")
    if isinstance(estimator, Pipeline):
        _check_steps(estimator)
    return estimator


def _check_value(name: str, key: str, value: Any) -> None:
    if key in _ALLOWED and not _ALLOWED[key](value):
        raise ModelFileError(
            f"the parameter {key!r} of its {name} has a value that a model file does not hold. "
            "Use the default."
        )


def _check_steps(pipeline: Any) -> None:
    steps = pipeline.steps
    if not (
        isinstance(steps, list)
        and steps
        and all(isinstance(step, tuple) and len(step) == 2 for step in steps)
        and all(isinstance(title, str) for title, _ in steps)
        and all(step == "passthrough" or hasattr(step, "get_params") for _, step in steps)
    ):
        raise ModelFileError("the steps of its pipeline are not names and estimators")


def _class(name: str) -> Any:
    try:
        return getattr(import_module(_MODULES[name]), name)
    except ImportError as error:
        raise ModelFileError(
            f"it holds a {name}, which needs {error.name}. "
            "Install it with: pip install 'marginpursuit[tables]'"
        ) from error
