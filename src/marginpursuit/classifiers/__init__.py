"""scikit-learn estimators, one file each."""

from marginpursuit.classifiers.margin_pursuit import MarginPursuitClassifier
from marginpursuit.classifiers.pegasos import PegasosClassifier

__all__ = ["MarginPursuitClassifier", "PegasosClassifier"]
