"""What a fit shows: plots (extra `plot`), standard errors, influential rows, suspicious labels."""

from marginpursuit.inspection._display import margins_of
from marginpursuit.inspection.calibration_link import CalibrationLinkDisplay
from marginpursuit.inspection.coefficients import bootstrap_coefficients
from marginpursuit.inspection.convergence import ConvergenceDisplay
from marginpursuit.inspection.label_issues import LabelIssues, label_issues
from marginpursuit.inspection.leverage import LeverageDisplay, RowLeverage, row_leverage
from marginpursuit.inspection.margin_distribution import MarginDistributionDisplay
from marginpursuit.inspection.row_influence import RowInfluence, row_influence
from marginpursuit.inspection.scale_path import ScalePathDisplay
from marginpursuit.inspection.selection import SelectionDisplay

__all__ = [
    "CalibrationLinkDisplay",
    "ConvergenceDisplay",
    "LabelIssues",
    "LeverageDisplay",
    "MarginDistributionDisplay",
    "RowInfluence",
    "RowLeverage",
    "ScalePathDisplay",
    "SelectionDisplay",
    "bootstrap_coefficients",
    "label_issues",
    "margins_of",
    "row_influence",
    "row_leverage",
]
