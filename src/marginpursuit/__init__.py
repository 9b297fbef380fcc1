"""Linear classifiers that pursue a margin level: robust, tuning-free, with probabilities.

The estimators are here; the mathematics is in `losses`, `location`, `calibration` and `bounds`.
"""

from importlib.metadata import version as _version

from marginpursuit import blocks, bounds, calibration, location, losses
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

__version__: str


def __getattr__(name: str) -> str:
    """Look the version up when it is asked for, which takes reading and parsing a file."""
    if name == "__version__":
        return _version("marginpursuit")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
