"""Plots of a fit, as scikit-learn display classes; they need the extra `plot`."""

from marginpursuit.inspection._display import margins_of
from marginpursuit.inspection.calibration_link import CalibrationLinkDisplay
from marginpursuit.inspection.convergence import ConvergenceDisplay
from marginpursuit.inspection.margin_distribution import MarginDistributionDisplay
from marginpursuit.inspection.scale_path import ScalePathDisplay
from marginpursuit.inspection.selection import SelectionDisplay

__all__ = [
    "CalibrationLinkDisplay",
    "ConvergenceDisplay",
    "MarginDistributionDisplay",
    "ScalePathDisplay",
    "SelectionDisplay",
    "margins_of",
]
