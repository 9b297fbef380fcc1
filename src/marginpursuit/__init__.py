"""Linear classifiers that pursue a margin level: robust, tuning-free, with probabilities."""

from importlib.metadata import version as _version

from marginpursuit._versions import show_versions

__all__ = ["__version__", "show_versions"]

__version__ = _version("marginpursuit")
