"""The large margin distribution machine of Zhang and Zhou."""

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from marginpursuit._kernels.coordinates import Terms
from marginpursuit._validation import FloatArray
from marginpursuit.classifiers._distribution import (
    PARAMETERS,
    POSITIVE,
    DistributionClassifier,
)
from marginpursuit.classifiers._parameters import Allowed, number, one_of
from marginpursuit.solvers._machine import (
    AugmentedRows,
    DualPoint,
    MachineFit,
    MarginDistributionProblem,
)
from marginpursuit.solvers.distribution import solve_interior_point

if TYPE_CHECKING:
    from marginpursuit.bounds import LeaveOneOutBound

__all__ = ["LDMClassifier"]

# The mean over pairs of rows of (m - m')², relative to the mean over rows of (m - mean)².
_VARIANCES = {"moment": 1.0, "pairwise": 2.0}


class LDMClassifier(DistributionClassifier):
    r"""Large margin distribution machine, linear or with a kernel.

    Minimises, over w and with margins m = y w·φ(x), mean and variance weighted,

    .. math::

        \tfrac12 \|w\|^2 + \lambda_1 \operatorname{var}(m) - \lambda_2 \operatorname{mean}(m)
        + \lambda_3 \operatorname{mean}\bigl((1 - m)_+\bigr),

    so that margins have a large mean and a small variance. For λ₁ = λ₂ = 0 this is a support vector
    machine without intercept, with C = λ₃/n. Several classes are fitted one against the rest. The
    duality gap of the result meets the tolerance.

    Parameters
    ----------
    lambda1 : float, default=1.0
        The weight λ₁ >= 0 of the variance of the margins.
    lambda2 : float, default=1.0
        The weight λ₂ >= 0 of their mean.
    lambda3 : float, default=100.0
        The weight λ₃ > 0 of the mean hinge loss.
    variance : {"moment", "pairwise"}, default="moment"
        The definition of the variance: the mean of (m - mean)², or the mean over all pairs of
        (m - m')², which is twice that and the definition in the code of [1]_.
    kernel : {"linear", "poly", "rbf", "sigmoid", "precomputed"} or callable, default="linear"
        The kernel; a function gets two matrices of rows and returns all kernel values. It must be
        positive semidefinite.
    gamma : {"scale", "auto"} or float, default="scale"
        Of "rbf", "poly" and "sigmoid"; "scale" is 1 / (n_features * weighted variance of X), "auto"
        is 1 / n_features.
    degree : int, default=3
        Of "poly".
    coef0 : float, default=0.0
        Of "poly" and "sigmoid".
    fit_intercept : bool, default=True
        Whether samples have a constant feature of 1, whose coefficient, the intercept, is then
        penalised like all others. The method of the articles has no intercept.
    solver : {"auto", "dual", "interior"}, default="auto"
        The solver. "dual" is coordinate descent on the dual, with shrinking. "interior" is a
        primal-dual interior-point method, whose number of iterations hardly depends on the
        parameters. "auto" is "interior" for at most 2048 features and no more features than
        samples, and for kernels with at most 1024 samples; it is "dual" otherwise. With kernels,
        and with more than 2048 features and lambda1 > 0, "dual" needs memory for four
        n_samples x n_samples matrices.
    max_iter : int, default=1000
        The largest number of iterations of the solver.
    tol : float, default=1e-6
        The duality gap, relative to the objective, at which the solver stops.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes; "balanced" gives all classes the same total weight.
    probability : "held_out" or None, default=None
        Where probabilities come from. "held_out" fits two more estimators, each to half of the
        rows, and a monotone link to the scores that they give the other half, as in
        :class:`MarginPursuitClassifier`; the fit then takes about twice as long. None: there is no
        `predict_proba`. No exact link is offered: the minimiser of this objective over all
        functions does not determine P(y | x).
    n_threads : int or None, default=None
        The number of threads in the linear case; by default one for each processor.
    random_state : int, RandomState instance, Generator or None, default=None
        Seed or generator of the order in which "dual" updates its variables.
    verbose : int, default=0
        Whether to print a line for each computation of the gap.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The classes.
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Coefficients, in the linear case only.
    dual_coef_ : ndarray of shape (1, n_support) or (n_classes, n_support)
        Coefficients of the kernel expansion, otherwise.
    support_ : ndarray of shape (n_support,)
        Indices of the samples in that expansion; usually all, since all enter the variance.
    support_vectors_ : {ndarray, sparse matrix} of shape (n_support, n_features)
        These samples, except for a precomputed kernel.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Intercepts.
    gamma_ : float
        The parameter of the kernel, where it has one.
    objective_ : float
        The minimum, summed over the problems of several classes.
    duality_gap_ : ndarray of shape (1,) or (n_classes,)
        The relative duality gap of each problem.
    leave_one_out_ : tuple of LeaveOneOutBound
        For each problem, the bound of :func:`~marginpursuit.bounds.leave_one_out_bound`, a
        fraction of the samples of positive weight.
    n_iter_ : int
        The number of iterations of the solver; the maximum over classes.
    link_ : FittedLink
        The link, with ``probability="held_out"``.
    n_features_in_ : int
        The number of features.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, where X has names that are all strings.

    References
    ----------
    .. [1] T. Zhang and Z.-H. Zhou, "Large margin distribution machine", KDD 2014.
    .. [2] T. Zhang and Z.-H. Zhou, "Optimal margin distribution machine", arXiv:1604.03348.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from marginpursuit import LDMClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = make_pipeline(StandardScaler(), LDMClassifier()).fit(X, y)
    >>> model.score(X, y) > 0.97
    True
    >>> float(model[-1].duality_gap_[0]) <= 1e-6
    True
    """

    leave_one_out_: "tuple[LeaveOneOutBound, ...]"

    _allowed: ClassVar[dict[str, Allowed]] = {
        "lambda1": number("that is finite and >= 0", lambda x: 0 <= x < np.inf),
        "lambda2": number("that is finite and >= 0", lambda x: 0 <= x < np.inf),
        "lambda3": POSITIVE,
        "variance": one_of(_VARIANCES),
        "solver": one_of(["auto", "dual", "interior"]),
        **PARAMETERS,
    }

    def __init__(
        self,
        *,
        lambda1: float = 1.0,
        lambda2: float = 1.0,
        lambda3: float = 100.0,
        variance: str = "moment",
        kernel: Any = "linear",
        gamma: float | str = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        fit_intercept: bool = True,
        solver: str = "auto",
        max_iter: int = 1000,
        tol: float = 1e-6,
        class_weight: Any = None,
        probability: str | None = None,
        n_threads: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.lambda1 = lambda1
        self.lambda2 = lambda2
        self.lambda3 = lambda3
        self.variance = variance
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.class_weight = class_weight
        self.probability = probability
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose

    def _terms(self, weights: FloatArray) -> Terms:
        """Return the dual of λ₃ p (1 - m)₊: -a for 0 ≤ a ≤ λ₃ p."""
        zero = np.zeros_like(weights)
        return Terms(zero, self.lambda3 * weights, zero, zero, gain_up=1.0, gain_down=1.0)

    def _moment_factors(self) -> tuple[float, float]:
        return 2.0 * _VARIANCES[self.variance] * self.lambda1, float(self.lambda2)

    def _solve_direct(self, machine: MarginDistributionProblem, rows: AugmentedRows) -> MachineFit:
        return solve_interior_point(machine, rows)

    def _keep(self, fits: list[MachineFit]) -> None:
        self.leave_one_out_ = tuple(_bound(fit.dual) for fit in fits if fit.dual is not None)


def _bound(dual: DualPoint) -> "LeaveOneOutBound":
    from marginpursuit.bounds import leave_one_out_bound  # lazy: importing bounds takes time

    # Divided by their upper bounds, which are proportional to the weights, all variables are in
    # [0, 1].
    # Interior-point iterates do not reach the bounds: within 1e-4 they count as there.
    scaled = np.clip(dual.a / dual.upper, 0.0, 1.0)
    diagonal = np.maximum(dual.upper * dual.curvature, 0.0)  # rounding may leave it negative
    return leave_one_out_bound(scaled, diagonal, box=1.0, tolerance=1e-4)
