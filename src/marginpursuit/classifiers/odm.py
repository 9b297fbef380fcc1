"""The optimal margin distribution machine of Zhang and Zhou."""

from typing import Any, ClassVar

import numpy as np

from marginpursuit._kernels.coordinates import Terms
from marginpursuit._validation import FloatArray
from marginpursuit.classifiers._distribution import (
    PARAMETERS,
    POSITIVE,
    DistributionClassifier,
)
from marginpursuit.classifiers._parameters import Allowed, number, one_of
from marginpursuit.solvers._machine import AugmentedRows, MachineFit, MarginDistributionProblem
from marginpursuit.solvers.distribution import solve_newton

__all__ = ["ODMClassifier"]


class ODMClassifier(DistributionClassifier):
    r"""Optimal margin distribution machine, linear or with a kernel.

    Minimises, over w and with margins m = y w·φ(x), the mean weighted,

    .. math::

        \tfrac12 \|w\|^2 + \frac{\lambda}{(1 - \theta)^2} \operatorname{mean}\bigl(
        (1 - \theta - m)_+^2 + \mu\,(m - 1 - \theta)_+^2 \bigr),

    so that margins within θ of 1 cost nothing, and larger ones are weighted by μ. Several classes
    are fitted one against the rest. The duality gap of the result meets the tolerance.

    Parameters
    ----------
    loss_weight : float, default=100.0
        The weight λ > 0 of the loss.
    mu : float, default=0.8
        The weight μ in (0, 1] of margins above 1 + θ.
    theta : float, default=0.2
        The half-width θ in [0, 1) of the band of margins that cost nothing.
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
        penalised like all others.
    solver : {"auto", "dual", "newton"}, default="auto"
        The solver. "dual" is coordinate descent on the dual, with shrinking. "newton" is a damped
        Newton method on the primal. "auto" is "newton" for at most 2048 features and no more
        features than samples, and for kernels with at most 1024 samples; it is "dual" otherwise.
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
        Indices of the samples in that expansion, those whose margin is outside of the band.
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
    .. [1] T. Zhang and Z.-H. Zhou, "Optimal margin distribution machine", IEEE Transactions on
       Knowledge and Data Engineering 32, 2020, arXiv:1604.03348.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from marginpursuit import ODMClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = make_pipeline(StandardScaler(), ODMClassifier()).fit(X, y)
    >>> model.score(X, y) > 0.97
    True
    >>> model[-1].n_iter_ < 20
    True
    """

    _allowed: ClassVar[dict[str, Allowed]] = {
        "loss_weight": POSITIVE,
        "mu": number("in (0, 1]", lambda x: 0 < x <= 1),
        "theta": number("in [0, 1)", lambda x: 0 <= x < 1),
        "solver": one_of(["auto", "dual", "newton"]),
        **PARAMETERS,
    }

    def __init__(
        self,
        *,
        loss_weight: float = 100.0,
        mu: float = 0.8,
        theta: float = 0.2,
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
        self.loss_weight = loss_weight
        self.mu = mu
        self.theta = theta
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
        """Return the dual of the loss: squares of ζ where a = ζ > 0, of β where a = -β < 0."""
        bound = np.full_like(weights, np.inf)
        up = (1.0 - self.theta) ** 2 / (2.0 * self.loss_weight * weights)
        return Terms(
            -bound, bound, up, up / self.mu, gain_up=1.0 - self.theta, gain_down=1.0 + self.theta
        )

    def _moment_factors(self) -> tuple[float, float]:
        return 0.0, 0.0

    def _solve_direct(self, machine: MarginDistributionProblem, rows: AugmentedRows) -> MachineFit:
        return solve_newton(machine, rows)
