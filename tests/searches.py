"""Data, grids and references that the tests of the search share."""

import numpy as np
from scipy import sparse
from sklearn import config_context
from sklearn.datasets import load_breast_cancer, make_classification
from sklearn.model_selection import GridSearchCV

from marginpursuit import MarginPursuitClassifier, MarginPursuitClassifierCV
from marginpursuit.selection.candidates import FitOptions, Fold, Stopping
from marginpursuit.selection.fold_data import FitPlan, FoldData
from marginpursuit.selection.policy import SelectionPolicy
from marginpursuit.selection.successive_halving import full_rung, next_size, subsampled_rung
from marginpursuit.solvers import Policy

GRID = {
    "leverage_bound": None,
    "scales": [2.0, 0.5],
    "overconfidences": [0.0, 1.0],
    "alphas": [1e-1, 1e-3],
}


def two_classes():
    X, y = load_breast_cancer(return_X_y=True)
    return X[:200], y[:200]


def three_classes():
    X, y = make_classification(200, 8, n_informative=5, n_classes=3, flip_y=0.2, random_state=0)
    return X + 3.0, np.array(["a", "b", "c"])[y]


def sparse_rows():
    X, y = three_classes()
    return sparse.csr_matrix(np.where(np.abs(X) > 3, X, 0)), y


def wide():
    return make_classification(60, 90, n_informative=10, random_state=1)


def rare_column():
    """A column that is non-zero in two rows, and constant in some folds."""
    X, y = two_classes()
    return np.column_stack([X, np.arange(len(y)) < 2]), y


def sparse_wide(n_classes, density=0.02):
    rng = np.random.default_rng(0)
    X = sparse.random(90, 300, density, format="csr", random_state=1)
    score = X[:, :150].sum(axis=1).A1 + 0.3 * rng.normal(size=90)
    return X, np.searchsorted(np.quantile(score, np.arange(1, n_classes) / n_classes), score)


def with_policy(model, *, solvers=None, **changes):
    """Set thresholds of the search of a model, and of its solvers, and return it."""
    model._policy = SelectionPolicy(solvers=Policy(**solvers or {}), **changes)
    return model


def grid_search(X, y, *, unit, cv, scoring=None, sample_weight=None, groups=None, **options):
    """Search the same grid with scikit-learn; sample weights count in fits and in scores."""
    model = MarginPursuitClassifier.as_published(
        **{"alpha_unit": unit, "multi_class": "auto", "tol": 1e-9} | options
    )
    found = GridSearchCV(
        model,
        {
            "alpha": GRID["alphas"],
            "overconfidence": GRID["overconfidences"],
            "scale": GRID["scales"],
        },
        cv=cv,
        scoring=scoring,
    )
    if sample_weight is None:
        return found.fit(X, y, groups=groups)
    # Without metadata routing, scikit-learn 1.6 passes the weights to fits only.
    with config_context(enable_metadata_routing=True):
        model.set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        return found.fit(X, y, sample_weight=sample_weight)


def training_data(X, y, sample_weight=None):
    return MarginPursuitClassifierCV()._check_training(X, y, sample_weight)


def folds_of(splitter, X, y):
    return [Fold(np.sort(train), np.sort(test)) for train, test in splitter.split(X, y)]


def rungs(data, folds, policy=None):
    """Draw all rungs of a search."""
    policy, random = policy or SelectionPolicy(), np.random.RandomState(0)
    drawn, size = [], next_size(data, 0, policy)
    while size is not None:
        drawn.append(subsampled_rung(data, folds, size, random, policy))
        size = next_size(data, size, policy)
    return [*drawn, full_rung(data, folds)]


def fold_plan(X, y, *, unit="common", solver="auto", are_penalised=True, **solvers):
    """Return the data of two folds, and the plan of the fits to all rows."""
    data = training_data(X, y)
    even = np.arange(len(y)) % 2 == 0
    folds = [Fold(np.flatnonzero(mask), np.flatnonzero(~mask)) for mask in (even, ~even)]
    weights = np.array([mask / mask.sum() for mask in (even, ~even)])
    fold_data = FoldData(data.matrix, data.matrix, data.labels, weights, folds)
    options = FitOptions(1.0, unit, True, solver, 1, are_penalised)
    policy = SelectionPolicy(solvers=Policy(**solvers))
    return fold_data, FitPlan.make(fold_data, options, Stopping(1000, 1e-3), policy, is_final=True)
