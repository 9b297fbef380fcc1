"""Fitted linear classifiers for other systems."""
