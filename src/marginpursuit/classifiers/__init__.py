"""scikit-learn estimators, one file each."""

from marginpursuit.classifiers.ldm import LDMClassifier
from marginpursuit.classifiers.margin_pursuit import MarginPursuitClassifier
from marginpursuit.classifiers.pegasos import PegasosClassifier

__all__ = ["MarginPursuitClassifier", "PegasosClassifier"]
from marginpursuit.classifiers.odm import ODMClassifier
__all__ = ["LDMClassifier", "MarginPursuitClassifier", "ODMClassifier"]
from marginpursuit.classifiers.catoni_risk import CatoniRiskClassifier
from marginpursuit.classifiers.mdo import MDOClassifier
from marginpursuit.classifiers.median_of_means import MedianOfMeansClassifier
__all__ = [
    "CatoniRiskClassifier",
    "MDOClassifier",
    "MarginPursuitClassifier",
    "MedianOfMeansClassifier",
]
