"""The minimiser of the Catoni estimate of the risk."""

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from marginpursuit._validation import FloatArray
from marginpursuit.classifiers._base import TrainingData
from marginpursuit.classifiers._parameters import RANDOM_STATE, Allowed, number, one_of, whole
from marginpursuit.classifiers._robust_risk import ALLOWED, RobustRiskClassifier
from marginpursuit.location import confidence_scale
from marginpursuit.solvers import Progress
from marginpursuit.solvers.catoni_risk import CURVATURES, minimise_catoni_risk
from marginpursuit.solvers.risk import Risk, RobustSolution
from marginpursuit.solvers.sampling import random_generator

__all__ = ["CatoniRiskClassifier"]


class CatoniRiskClassifier(RobustRiskClassifier):
    r"""Linear classifier that minimises a robust estimate of its hinge risk.

    Minimises, over coefficients w and intercept b, θ + α‖w‖²/2, where θ is Catoni's estimate of
    the mean of the losses (Brownlees, Joly and Lugosi [1]_): the root of

    .. math:: \sum_i c_i\, \psi\bigl((\theta - \ell_i)/s\bigr) = 0, \qquad
              \ell_i = (1 - m_i)_+, \quad m_i = y_i (x_i \cdot w + b),

    with weights c. A sample whose loss differs from θ by several scales s has little or no
    influence on θ. The objective is not convex: its minimiser is followed from a large scale, where
    θ is the mean, down to the requested scale. Several classes are fitted one against the rest.

    Parameters
    ----------
    scale : float or "confidence", default=2.0
        The scale s > 0 in units of the loss; θ tends to the median for s → 0 and is the mean for
        s = inf. The default is the loss at a margin of -1. "confidence" is
        s² = n v/(2 log(2/δ)) with v the variance of the losses at the minimiser of their mean and
        δ = 0.05, the choice of the theory (:func:`~marginpursuit.location.confidence_scale`). It
        protects against heavy tails, less against outliers, which increase v.
    influence : {"truncated", "wide"}, default="truncated"
        The influence function ψ: that of the paper, constant beyond √2 s, or Catoni's widest, which
        grows logarithmically (:func:`~marginpursuit.losses.wide_influence`).
    loss : {"hinge", "logistic"}, default="hinge"
        The loss. The kink of the hinge is rounded over a ten-thousandth of the margin.
    alpha : float or "auto", default="auto"
        The penalty α >= 0 of the squared coefficients; or "auto", 1/n for the coefficients of
        standardised columns, with n the sum of the weights. It is the default of other libraries
        (C = 1) for data of unit variance.
    fit_intercept : bool, default=True
        Whether to fit b.
    n_init : int, default=1
        The number of descents, of which the one with the least objective is the result. Further
        ones start at minimisers of the mean loss of a random half of the samples.
    max_iter : int, default=200
        The largest number of iterations, each of which minimises a weighted risk.
    tol : float, default=1e-8
        Stop where the first-order decrease of the objective is less than `tol` times its value.
    random_state : int, RandomState instance, Generator or None, default=None
        Seed or generator of the halves; used with ``n_init > 1``.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes; "balanced" gives all classes the same total weight.
    probability : "held_out" or None, default=None
        Where probabilities come from. "held_out" fits two more estimators, each to half of the
        rows, and a monotone link to the scores that they give the other half, as in
        :class:`MarginPursuitClassifier`; the fit then takes about twice as long. None: there is no
        `predict_proba`. No exact link is offered: the minimiser of this objective over all
        functions does not determine P(y | x) (docs/methods.md).
    n_threads : int or None, default=None
        The number of threads; by default one for each processor. Results do not depend on it.
    verbose : int, default=0
        Whether to print a line for each iteration.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The classes.
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Coefficients, in the units of X.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Intercepts.
    risk_scale_ : ndarray of shape (1,) or (n_classes,)
        The scales s.
    sample_influence_ : ndarray of shape (n_samples,) or (n_samples, n_classes)
        The gradient of θ in the loss of each sample, divided by its weight: 1 for a mean, 0 for a
        sample without influence.
    objective_ : float
        The objective at the end, summed over the problems of several classes: a local minimum. At
        small scales it can be a third above the least of several starts; see `n_init`.
    n_iter_ : int
        The number of iterations; the maximum over classes.
    status_ : str
        How the fit ended.
    link_ : FittedLink
        The link, with ``probability="held_out"``.
    n_features_in_ : int
        The number of features.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, where X has names that are all strings.

    Notes
    -----
    A weight of 2 is equivalent to a repeated row.

    The penalty is relative to the standard deviations of the columns, which extreme outliers
    increase: set a smaller `alpha` then. Outliers that determine the minimiser of the mean, where
    the iterations start, may keep their influence.

    References
    ----------
    .. [1] C. Brownlees, E. Joly and G. Lugosi, "Empirical risk minimization for heavy-tailed
       losses", Annals of Statistics 43, 2015.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from marginpursuit import CatoniRiskClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = CatoniRiskClassifier().fit(X, y)
    >>> model.score(X, y) > 0.97
    True
    >>> model.sample_influence_.shape
    (569,)
    """

    _allowed: ClassVar[dict[str, Allowed]] = {
        "scale": number("that is positive", lambda x: x > 0, ["confidence"]),
        "influence": one_of(CURVATURES),
        "n_init": whole(1),
        "random_state": RANDOM_STATE,
        **ALLOWED,
    }

    def __init__(
        self,
        *,
        scale: float | str = 2.0,
        influence: str = "truncated",
        loss: str = "hinge",
        alpha: float | str = "auto",
        fit_intercept: bool = True,
        n_init: int = 1,
        max_iter: int = 200,
        tol: float = 1e-8,
        random_state: Any = None,
        class_weight: Any = None,
        probability: str | None = None,
        n_threads: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.scale = scale
        self.influence = influence
        self.loss = loss
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.class_weight = class_weight
        self.probability = probability
        self.n_threads = n_threads
        self.verbose = verbose

    def _fit(self, data: TrainingData) -> None:
        self.risk_scale_ = np.array(self._fit_risks(data))

    def _minimise(
        self, risk: Risk, data: TrainingData, report: Callable[[Progress], None]
    ) -> tuple[RobustSolution, float]:
        def by_confidence(losses: FloatArray) -> float:
            variance = float(data.weights @ (losses - data.weights @ losses) ** 2)
            # Equal losses have variance 0; the estimate is then the same for every scale.
            return float(confidence_scale(max(variance, 1e-4), data.n_samples))

        scale = by_confidence if isinstance(self.scale, str) else float(self.scale)
        return minimise_catoni_risk(
            risk,
            scale,
            self.influence,
            self.max_iter,
            report,
            n_init=self.n_init,
            random=random_generator(self.random_state),
        )
