"""Linear classifiers by a robust loss of the margin: no tuning, calibrated probabilities.

The estimators are exported here; `losses`, `location`, `calibration` and `bounds` are the theory.
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
    RobustGradientClassifier,
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
    "RobustGradientClassifier",
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
    """Lazy attributes: reading the version parses package metadata."""
    if name == "__version__":
        return _version("marginpursuit")
    if name == "bounds":
        return _import_module("marginpursuit.bounds")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
