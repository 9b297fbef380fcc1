"""Data sets, and ways to spoil them."""

from marginpursuit.datasets.contamination import Contaminated, contaminate

__all__ = ["Contaminated", "contaminate"]
