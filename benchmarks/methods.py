"""The methods that are compared: ours, and peers with default parameters and tuned."""

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from problems import Shape
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.svm import LinearSVC

from marginpursuit import MarginPursuitClassifier, MarginPursuitClassifierCV

Make = Callable[[Any, int], Any]  # from folds and seed to an estimator
Applies = Callable[[Shape], bool]

# Newton's method with a Cholesky factor stores the Hessian of all coefficients.
_MAX_COEFFICIENTS = 4000


def _always(shape: Shape) -> bool:
    return True


class Method(NamedTuple):
    """A factory of an estimator, with its cost and its requirements."""

    make: Make
    fits: int = 1  # approximate number of fits
    applies: Applies = _always
    warm_up: Callable[[], None] = lambda: None  # compilation that is not timed


def tuned(estimator: Any, grid: dict[str, Any], **options: Any) -> Method:
    """Return a method that searches a grid by cross-validation."""
    size = int(np.prod([len(values) for values in grid.values()]))
    return Method(
        lambda cv, seed: GridSearchCV(seeded(estimator, seed), grid, cv=cv, **options), 5 * size + 1
    )


def seeded(estimator: Any, seed: int) -> Any:
    random = "random_state" in estimator.get_params()
    return clone(estimator).set_params(**({"random_state": seed} if random else {}))


def _both(
    name: str, estimator: Any, grid: dict[str, Any], applies: Applies = _always, **for_tuning: Any
) -> dict[str, Method]:
    """Return a peer with default parameters, and tuned."""
    searched = clone(estimator).set_params(**for_tuning)
    return {
        name: Method(lambda cv, seed: seeded(estimator, seed), 1, applies),
        f"{name}, tuned": tuned(searched, grid)._replace(applies=applies),
    }


def _two_classes(shape: Shape) -> bool:
    return shape.classes == 2


def _small_hessian(shape: Shape) -> bool:
    problems = 1 if shape.classes == 2 else shape.classes
    return not shape.is_sparse and shape.columns * problems <= _MAX_COEFFICIENTS


SOLVERS = {
    "lbfgs": _always,
    "newton-cholesky": _small_hessian,
    "newton-cg": _always,
    "liblinear": _two_classes,
    "saga": _always,
}

LOGISTIC = "logistic"  # prefix of the names of scikit-learn's LogisticRegression
OURS, OURS_CV = "MarginPursuitClassifier", "MarginPursuitClassifierCV"
OWN = {
    OURS: Method(lambda cv, seed: MarginPursuitClassifier()),
    OURS_CV: Method(lambda cv, seed: MarginPursuitClassifierCV(cv=cv), 36),
}

# The search without some of its defaults, to measure their effect.
VARIANTS = {
    f"{OURS_CV}, threshold zero": Method(
        lambda cv, seed: MarginPursuitClassifierCV(cv=cv, threshold="zero"), 36
    ),
    f"{OURS_CV}, no leverage bound": Method(
        lambda cv, seed: MarginPursuitClassifierCV(cv=cv, leverage_bound=None), 36
    ),
}

_C = {"C": np.logspace(-3, 3, 7)}
PEERS = _both("ridge", RidgeClassifier(), {"alpha": np.logspace(-2, 4, 7)})
for solver, applies in SOLVERS.items():
    estimator = LogisticRegression(solver=solver)
    PEERS |= _both(f"{LOGISTIC} {solver}", estimator, _C, applies, max_iter=1000)
PEERS |= {
    f"{LOGISTIC} lbfgs, tuned by log-loss": tuned(
        LogisticRegression(max_iter=1000), _C, scoring="neg_log_loss"
    ),
    **_both("SVC primal", LinearSVC(dual=False), _C),
    **_both("SVC dual", LinearSVC(dual=True), _C),
    **_both("SGD", SGDClassifier(), {"alpha": np.logspace(-7, -1, 7)}),
}

# One solver per objective: sufficient to compare minimisers.
ESSENTIAL = ["ridge, tuned", "logistic lbfgs, tuned", "SVC primal, tuned", "SGD, tuned"]

# Compared if installed.
OPTIONAL = ("rehline", "skglm")
if find_spec("rehline"):
    from rehline import plq_Ridge_Classifier

    PEERS |= _both("ReHLine", plq_Ridge_Classifier({"name": "svm"}), _C, _two_classes)
    ESSENTIAL.append("ReHLine, tuned")
if find_spec("skglm"):
    from skglm import SparseLogisticRegression

    @cache
    def _compile() -> None:
        """Compile its functions for dense and sparse rows, which takes long."""
        X, y = np.random.default_rng(0).normal(size=(20, 2)), np.arange(20) % 2
        for rows in (X, sparse.csr_matrix(X)):
            SparseLogisticRegression(alpha=1e-3).fit(rows, y)

    # Tuned only: with its default penalty all coefficients are zero. Its LinearSVC is left out: it
    # solves the dual without an intercept, and takes minutes on 4,000 rows if C is large.
    sparse_logistic = tuned(SparseLogisticRegression(), {"alpha": np.logspace(-7, -1, 7)})
    PEERS["skglm sparse logistic, tuned"] = sparse_logistic._replace(warm_up=_compile)
    ESSENTIAL.append("skglm sparse logistic, tuned")
