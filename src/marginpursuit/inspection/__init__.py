"""Pictures of a fit, as scikit-learn display classes; they need the extra `plot`."""

from marginpursuit.inspection.margin_distribution import MarginDistributionDisplay
from marginpursuit.inspection.selection import SelectionDisplay

__all__ = ["MarginDistributionDisplay", "SelectionDisplay"]
