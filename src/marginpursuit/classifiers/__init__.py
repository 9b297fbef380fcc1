"""scikit-learn estimators, one file each; a file is imported when its estimator is first used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from marginpursuit.classifiers.catoni_risk import CatoniRiskClassifier
    from marginpursuit.classifiers.ldm import LDMClassifier
    from marginpursuit.classifiers.margin_pursuit import MarginPursuitClassifier
    from marginpursuit.classifiers.mdo import MDOClassifier
    from marginpursuit.classifiers.median_of_means import MedianOfMeansClassifier
    from marginpursuit.classifiers.odm import ODMClassifier
    from marginpursuit.classifiers.pegasos import PegasosClassifier
    from marginpursuit.classifiers.robust_gradient import RobustGradientClassifier

__all__ = [
    "CatoniRiskClassifier",
    "LDMClassifier",
    "MDOClassifier",
    "MarginPursuitClassifier",
    "MedianOfMeansClassifier",
    "ODMClassifier",
    "PegasosClassifier",
    "RobustGradientClassifier",
]

_modules = {
    "CatoniRiskClassifier": "catoni_risk",
    "LDMClassifier": "ldm",
    "MDOClassifier": "mdo",
    "MarginPursuitClassifier": "margin_pursuit",
    "MedianOfMeansClassifier": "median_of_means",
    "ODMClassifier": "odm",
    "PegasosClassifier": "pegasos",
    "RobustGradientClassifier": "robust_gradient",
}


def __getattr__(name: str) -> Any:
    """Import an estimator on first use."""
    if name not in _modules:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_modules[name]}"), name)
    globals()[name] = value
    return value
