"""The minimiser of the Catoni estimate of the risk."""

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from marginpursuit._validation import FloatArray
from marginpursuit.classifiers._base import TrainingData
from marginpursuit.classifiers._parameters import Allowed, number, one_of
from marginpursuit.classifiers._robust_risk import ALLOWED, RobustRiskClassifier
from marginpursuit.location import confidence_scale
from marginpursuit.solvers import Progress
from marginpursuit.solvers.catoni_risk import CURVATURES, minimise_catoni_risk
from marginpursuit.solvers.risk import Risk, RobustSolution

__all__ = ["CatoniRiskClassifier"]


class CatoniRiskClassifier(RobustRiskClassifier):
    r"""Linear classifier that minimises a robust estimate of its hinge risk.

    Minimises, over coefficients w and intercept b, θ + α‖w‖²/2, where θ is Catoni's estimate of
    the mean of the losses (Brownlees, Joly and Lugosi [1]_): the root of

    .. math:: \sum_i c_i\, \psi\bigl((\theta - \ell_i)/s\bigr) = 0, \qquad
              \ell_i = (1 - m_i)_+, \quad m_i = y_i (x_i \cdot w + b),

    with weights c. A sample whose loss is some scales s off the others has no say, or little, in
    which way θ falls. The objective is not convex: it is followed from a large scale, where it is
    the mean, down to the one asked for. Several classes are fitted one against the rest.

    Parameters
    ----------
    scale : float or "confidence", default=2.0
        The scale s > 0 in units of the loss; small ones make θ the median, an infinite one the
        mean. The default is the loss at a margin of -1: a sample that is as wrong as it is asked to
        be right still counts half or more, one that is twice as wrong hardly. "confidence"
        is s² = n v/(2 log(2/δ)) with v the variance of the losses at the minimiser of their mean
        and δ = 0.05, for which the theory is made
        (:func:`~marginpursuit.location.confidence_scale`). It guards against heavy tails, less so
        against outliers, which swell v.
    influence : {"truncated", "wide"}, default="truncated"
        The influence function ψ: that of the paper, which cuts off beyond √2 s, or Catoni's widest,
        which only fades (:func:`~marginpursuit.losses.wide_influence`).
    loss : {"hinge", "logistic"}, default="hinge"
        The loss. The corner of the hinge is rounded over a ten-thousandth of the margin.
    alpha : float or "auto", default="auto"
        The penalty α >= 0 of the squared coefficients; or "auto", 1/n for the coefficients of
        standardised columns, with n the sum of the weights. It is the default of other libraries
        (C = 1) for data of unit variance, and fades as data grow.
    fit_intercept : bool, default=True
        Whether to fit b.
    max_iter : int, default=200
        The most steps, each of which minimises a weighted risk.
    tol : float, default=1e-8
        The fit stops where a step promises to lower the objective by less than this share.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes; "balanced" gives all classes the same total weight.
    n_threads : int or None, default=None
        The number of threads; by default one for each processor. Results do not depend on it.
    verbose : int, default=0
        Whether to print a line for each step.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The classes.
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Coefficients, for the data as it came.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Intercepts.
    risk_scale_ : ndarray of shape (1,) or (n_classes,)
        The scales s.
    sample_influence_ : ndarray of shape (n_samples,) or (n_samples, n_classes)
        The gradient of θ in the loss of each sample over the weight of the sample: 1 is what a
        mean gives, 0 says that the sample was ignored.
    objective_ : float
        The minimum, summed over the problems of several classes.
    n_iter_ : int
        Steps; of the class that took most.
    status_ : str
        How the fit ended.
    n_features_in_ : int
        The number of features.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, where X has names that are all strings.

    Notes
    -----
    A weight of 2 is the same as the row twice.

    The penalty is relative to the spread of the columns, which extreme outliers swell; where there
    are such, a smaller `alpha` is safer. Outliers so extreme that the minimiser of the mean serves
    them first may be missed, as the descent begins there.

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
        max_iter: int = 200,
        tol: float = 1e-8,
        class_weight: Any = None,
        n_threads: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.scale = scale
        self.influence = influence
        self.loss = loss
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.tol = tol
        self.class_weight = class_weight
        self.n_threads = n_threads
        self.verbose = verbose

    def _fit(self, data: TrainingData) -> None:
        self.risk_scale_ = np.array(self._fit_risks(data))

    def _minimise(
        self, risk: Risk, data: TrainingData, report: Callable[[Progress], None]
    ) -> tuple[RobustSolution, float]:
        def by_confidence(losses: FloatArray) -> float:
            variance = float(data.weights @ (losses - data.weights @ losses) ** 2)
            # Where all losses are the same, any scale will do.
            return float(confidence_scale(max(variance, 1e-4), data.count))

        scale = by_confidence if isinstance(self.scale, str) else float(self.scale)
        return minimise_catoni_risk(risk, scale, self.influence, self.max_iter, report)
