"""scikit-learn estimators, one file each."""

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
