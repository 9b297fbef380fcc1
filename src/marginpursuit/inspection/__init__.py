"""Pictures of a fit, as scikit-learn display classes; they need the extra `plot`."""

from marginpursuit.inspection.margin_distribution import MarginDistributionDisplay, margins_of
from marginpursuit.inspection.selection import SelectionDisplay

__all__ = ["MarginDistributionDisplay", "SelectionDisplay", "margins_of"]
