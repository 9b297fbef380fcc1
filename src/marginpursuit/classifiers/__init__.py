"""scikit-learn estimators, one file each."""

from marginpursuit.classifiers.margin_pursuit import MarginPursuitClassifier

__all__ = ["MarginPursuitClassifier"]
