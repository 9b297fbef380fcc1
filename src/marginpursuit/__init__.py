"""Linear classifiers that pursue a margin level: robust, tuning-free, with probabilities.

The estimators are here; the mathematics is in `losses`, `location`, `calibration` and `bounds`.
"""

from importlib import import_module as _import_module
from importlib.metadata import version as _version
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from marginpursuit import blocks, calibration, location, losses
from marginpursuit._versions import show_versions
from marginpursuit.classifiers import (
    CatoniRiskClassifier,
    LDMClassifier,
    MarginPursuitClassifier,
    MDOClassifier,
    MedianOfMeansClassifier,
    ODMClassifier,
    PegasosClassifier,
)
from marginpursuit.model_files import load_model, save_model
from marginpursuit.selection import MarginPursuitClassifierCV

__all__ = [
    "CatoniRiskClassifier",
    "LDMClassifier",
    "MDOClassifier",
    "MarginPursuitClassifier",
    "MarginPursuitClassifierCV",
    "MedianOfMeansClassifier",
    "ODMClassifier",
    "PegasosClassifier",
    "__version__",
    "blocks",
    "bounds",
    "calibration",
    "load_model",
    "location",
    "losses",
    "save_model",
    "show_versions",
]

if _TYPE_CHECKING:
    from marginpursuit import bounds

__version__: str


def __getattr__(name: str) -> _Any:
    """Get what few ask for, and takes time at import: the version is in a file to be parsed."""
    if name == "__version__":
        return _version("marginpursuit")
    if name == "bounds":
        return _import_module("marginpursuit.bounds")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
