"""Linear classifiers by a robust loss of the margin: no tuning, calibrated probabilities.

The estimators are exported here; `losses`, `location`, `calibration` and `bounds` are the theory.
"""

from importlib import import_module as _import_module
from importlib.metadata import version as _version
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

if _TYPE_CHECKING:
    from marginpursuit import blocks, bounds, calibration, location, losses
    from marginpursuit._probe import ProbeResult, probe
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
    "ProbeResult",
    "RobustGradientClassifier",
    "__version__",
    "blocks",
    "bounds",
    "calibration",
    "load_model",
    "location",
    "losses",
    "probe",
    "save_model",
    "show_versions",
]

__version__: str

# Where each name is defined. It is imported on first use: importing all estimators takes twice as
# long as importing one.
_definitions = {
    "MarginPursuitClassifierCV": "selection",
    "ProbeResult": "_probe",
    "probe": "_probe",
    "load_model": "model_files",
    "save_model": "model_files",
    "show_versions": "_versions",
}
_modules = {
    *("blocks", "bounds", "calibration", "classifiers", "design", "export", "location", "losses"),
    *("model_files", "selection", "solvers", "tasks"),
}


def __getattr__(name: str) -> _Any:
    """Lazy attributes: estimators, modules, and the version, which parses package metadata."""
    if name == "__version__":
        return _version("marginpursuit")
    if name in _modules:
        return _import_module(f"marginpursuit.{name}")
    if name in __all__:
        module = _definitions.get(name, "classifiers")
        value = getattr(_import_module(f"marginpursuit.{module}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
