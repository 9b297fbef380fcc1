"""The internal interface of this package: the names that other packages use.

These are `selection`, `inspection`, `export`, model files and linear probes. All other names
outside `classifiers/__init__.py` are private to the package. Other packages also use some members
of estimators:

- parameters: `_allowed`, `_check_parameters`;
- input: `_check_training`, `_refuse_missing`, `_copy_input_attributes`;
- fits of checked data: `_fit`, `_rescaled`, `_take_margins_of`, `_fitted_link`, `_not_in_files`;
- kernels: `_set_kernel`, `_mapped`, `_bounded_kernel`, `_kernel_of_rows`, `_leverage_distances`,
  `_redescending_factors`.
"""

from marginpursuit.classifiers._base import LinearClassifier, ProbabilityMixin
from marginpursuit.classifiers._finite import range_error, refuse_missing, rescaled
from marginpursuit.classifiers._half_fits import HalfFitPolicy
from marginpursuit.classifiers._input import TrainingData, checked_matrix
from marginpursuit.classifiers._kernel_expansion import KernelExpansion, refuse_unusable
from marginpursuit.classifiers._kernel_fit import fit_with_kernel
from marginpursuit.classifiers._kernel_map import RowScores
from marginpursuit.classifiers._label_links import LabelLinks
from marginpursuit.classifiers._labels import balanced_factors, check_weights, refuse_mixed
from marginpursuit.classifiers._landmarks import systematic_sample
from marginpursuit.classifiers._leverage import bounded_weights, median_distance, robust_distances
from marginpursuit.classifiers._link import (
    ExactLabelLink,
    ExactLink,
    FittedLink,
    Link,
    exact_probabilities,
)
from marginpursuit.classifiers._margins import MarginStatistics, MarginStatisticsMixin
from marginpursuit.classifiers._one_vs_one import fits_pairs
from marginpursuit.classifiers._pairs import Pairs, class_scores, pair_scores
from marginpursuit.classifiers._parameters import (
    ALPHA_UNITS,
    FLAG,
    Allowed,
    check_kernel_options,
    check_parameters,
    dense_unit,
    numbers,
    one_of,
)
from marginpursuit.classifiers._penalty_path import PathFit, penalty_path
from marginpursuit.classifiers._progress import CallbackSupportMixin, Reporter, warn, with_callbacks

__all__ = [
    "ALPHA_UNITS",
    "FLAG",
    "Allowed",
    "CallbackSupportMixin",
    "ExactLabelLink",
    "ExactLink",
    "FittedLink",
    "HalfFitPolicy",
    "KernelExpansion",
    "LabelLinks",
    "LinearClassifier",
    "Link",
    "MarginStatistics",
    "MarginStatisticsMixin",
    "Pairs",
    "PathFit",
    "ProbabilityMixin",
    "Reporter",
    "RowScores",
    "TrainingData",
    "balanced_factors",
    "bounded_weights",
    "check_kernel_options",
    "check_parameters",
    "check_weights",
    "checked_matrix",
    "class_scores",
    "dense_unit",
    "exact_probabilities",
    "fit_with_kernel",
    "fits_pairs",
    "median_distance",
    "numbers",
    "one_of",
    "pair_scores",
    "penalty_path",
    "range_error",
    "refuse_missing",
    "refuse_mixed",
    "refuse_unusable",
    "rescaled",
    "robust_distances",
    "systematic_sample",
    "warn",
    "with_callbacks",
]
