"""scikit-learn's checks of an estimator: with default parameters, and for several settings."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from marginpursuit import (
    CatoniRiskClassifier,
    LDMClassifier,
    MarginPursuitClassifier,
    MarginPursuitClassifierCV,
    MDOClassifier,
    MedianOfMeansClassifier,
    ODMClassifier,
    PegasosClassifier,
    RobustGradientClassifier,
)

PURSUIT = [
    {"scale": "confidence", "warm_start": True, "n_threads": 1, "tol": 1e-10},
    # One check compares fits to seven digits on fewer rows than columns, where a negligible penalty
    # and a loss that is not strictly convex leave less certain.
    {"alpha": 0.01, "overconfidence": 0.5, "class_weight": "balanced"},
    {"alpha": 0.01, "overconfidence": 0.0, "scale": 0.3, "tol": 1e-12},
    # (With 0.01 a score of that check lies, to rounding, where the link has an infinite slope.)
    {"alpha": 0.03, "scale": "variance", "tol": 1e-12},
    {"solver": "lbfgs"},
    {"solver": "steepest", "scale": 1.0, "max_iter": 100},
    {"solver": "stochastic", "scale": 1.0, "alpha": 1.0},
]
PEGASOS = [
    {"alpha": 0.1, "project": True},
    {"alpha": 0.1, "batch_size": 5, "average": True, "penalise_intercept": False},
    {"alpha": 0.1, "kernel": "rbf", "max_iter": 1000},
    {"alpha": 0.1, "penalise_intercept": False, "search_intercept": "inner"},
]
# Three classes are fitted one against one, except where a check sets `n_components`.
KERNELS = [
    {"kernel": "rbf"},
    {"kernel": "rbf", "multi_class": "joint"},
    {"kernel": "poly", "coef0": 1.0, "n_components": 20},
]
MACHINES = [{}, {"kernel": "rbf"}]
CATONI = [{"loss": "logistic", "influence": "wide", "class_weight": "balanced"}]
MEDIAN = [{"n_blocks": 1, "loss": "hinge", "alpha": 0.01}]
DEFAULTS = [
    CatoniRiskClassifier(),
    LDMClassifier(),
    MDOClassifier(),
    MarginPursuitClassifier(),
    MarginPursuitClassifierCV(),
    MedianOfMeansClassifier(),
    ODMClassifier(),
    PegasosClassifier(),
    RobustGradientClassifier(),
]
SETTINGS = [
    *(MarginPursuitClassifier.as_published(**setting) for setting in PURSUIT),
    *(MarginPursuitClassifier(**setting, alpha=0.01, tol=1e-10) for setting in KERNELS),
    MarginPursuitClassifierCV(kernel="rbf", alphas=[0.01], scales=[1.0], cv=2, tol=1e-6),
    *(PegasosClassifier(**setting) for setting in PEGASOS),
    # The duality gap bounds the square of the error in the scores.
    *(LDMClassifier(tol=1e-13, random_state=0, **setting) for setting in MACHINES),
    *(ODMClassifier(tol=1e-13, random_state=0, **setting) for setting in MACHINES),
    *(CatoniRiskClassifier(**setting) for setting in CATONI),
    *(MedianOfMeansClassifier(**setting) for setting in MEDIAN),
    # A large rate makes the objective so rough that rounding decides between its local minima.
    MDOClassifier(standardise=False, unit_rows=True, alpha=1.0, tol=1e-10),
    RobustGradientClassifier(loss="logistic", class_weight="balanced"),
    RobustGradientClassifier(estimate="geometric_median", n_blocks=1, alpha=0.01),
]


# Some checks fit classes of a single sample, which is warned of; those of scikit-learn 1.6 also
# classes of fewer samples than there are folds.
@pytest.mark.filterwarnings("ignore:classes with a single sample:UserWarning")
@pytest.mark.filterwarnings("ignore:The least populated class in y:UserWarning")
@parametrize_with_checks(DEFAULTS)
def test_with_default_parameters(estimator, check):
    check(estimator)


@pytest.mark.filterwarnings("ignore:classes with a single sample:UserWarning")
@pytest.mark.filterwarnings("ignore:.*took all steps")  # of steepest descent and stochastic steps
@parametrize_with_checks(SETTINGS)
def test_with_other_parameters(estimator, check):
    check(estimator)
