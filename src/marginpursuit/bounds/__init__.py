"""The risk bounds of the paper and of the methods it compares with, with named terms.

Formulas that are wrong in the paper are corrected; the docstrings cite the erratum.
"""

from marginpursuit.bounds.algorithm import (
    AlgorithmRiskBound,
    algorithm_risk_bound,
    subgaussian_mean_radius,
)
from marginpursuit.bounds.constants import DataConstants, estimate_constants
from marginpursuit.bounds.dual import LeaveOneOutBound, leave_one_out_bound
from marginpursuit.bounds.location import (
    LocationBiasBound,
    LocationBound,
    LocationStabilityBound,
    location_bias_bound,
    location_bound,
    location_stability_bound,
)
from marginpursuit.bounds.margin import MarginBound, margin_bound
from marginpursuit.bounds.projection import (
    ProjectionRiskBound,
    projection_profile,
    projection_risk_bound,
)
from marginpursuit.bounds.robust_risk import (
    CatoniRiskBound,
    LinearComplexity,
    catoni_risk_bound,
    linear_complexity,
)

__all__ = [
    "AlgorithmRiskBound",
    "CatoniRiskBound",
    "DataConstants",
    "LeaveOneOutBound",
    "LinearComplexity",
    "LocationBiasBound",
    "LocationBound",
    "LocationStabilityBound",
    "MarginBound",
    "ProjectionRiskBound",
    "algorithm_risk_bound",
    "catoni_risk_bound",
    "estimate_constants",
    "leave_one_out_bound",
    "linear_complexity",
    "location_bias_bound",
    "location_bound",
    "location_stability_bound",
    "margin_bound",
    "projection_profile",
    "projection_risk_bound",
    "subgaussian_mean_radius",
]
