"""Choosing settings by cross-validation."""

from marginpursuit.selection.margin_pursuit_cv import MarginPursuitClassifierCV

__all__ = ["MarginPursuitClassifierCV"]
