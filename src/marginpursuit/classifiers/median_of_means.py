"""The minimiser of the median of block means of the losses."""

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from sklearn.utils import check_random_state

from marginpursuit._validation import FloatArray
from marginpursuit.classifiers._base import TrainingData
from marginpursuit.classifiers._margins import Margins
from marginpursuit.classifiers._parameters import RANDOM_STATE, Allowed, whole
from marginpursuit.classifiers._robust_risk import ALLOWED, RobustRiskClassifier
from marginpursuit.solvers import Progress
from marginpursuit.solvers.median_of_means import minimise_median_of_means
from marginpursuit.solvers.risk import Risk, RobustSolution

__all__ = ["MedianOfMeansClassifier"]


class MedianOfMeansClassifier(RobustRiskClassifier):
    r"""Linear classifier that minimises the median of block means of its losses.

    The rows are partitioned into K blocks at random, and the risk is estimated by the median of the
    mean losses of the blocks (Lecué, Lerasle and Mathieu [1]_): more than half of the blocks
    contain none of fewer than K/2 outliers. The objective, in coefficients w and intercept b, is
    the mean of that estimate over partitions, plus α‖w‖²/2. Each iteration draws 50 new partitions
    and averages over all of them. With one block it is plain risk minimisation: logistic
    regression, or a support vector machine up to the rounded kink of its hinge, which changes
    coefficients by about one part in 10,000. Several classes are fitted one against the rest.

    Parameters
    ----------
    n_blocks : int or "auto", default="auto"
        The number K of blocks, odd; it should exceed twice the number of outliers. Without outliers
        a large K costs precision. "auto" is one more than twice the number of samples
        whose scores, while coefficients are small, are outlying: more than four standard deviations
        (from the quartiles) off the median. Wrong labels alone are not outlying.
    loss : {"hinge", "logistic"}, default="logistic"
        The loss. The kink of the hinge is rounded over a ten-thousandth of the margin.
    alpha : float or "auto", default="auto"
        The penalty α >= 0 of the squared coefficients; or "auto", 1/n for the coefficients of
        standardised columns, with n the sum of the weights. It is the default of other libraries
        (C = 1) for data of unit variance.
    fit_intercept : bool, default=True
        Whether to fit b.
    max_iter : int, default=100
        The largest number of iterations, each of which minimises a weighted risk.
    tol : float, default=1e-4
        The fit stops, after at least ten steps, where new weights change the objective by less
        than `tol` times its value.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes; "balanced" gives all classes the same total weight.
    probability : "held_out" or None, default=None
        Where probabilities come from. "held_out" fits two more estimators, each to half of the
        rows, and a monotone link to the scores that they give the other half, as in
        :class:`MarginPursuitClassifier`; the fit then takes about twice as long. None: there is no
        `predict_proba`. No exact link is offered: the minimiser of this objective over all
        functions does not determine P(y | x).
    n_threads : int or None, default=None
        The number of threads; by default one for each processor. Results do not depend on it.
    random_state : int, RandomState instance, Generator or None, default=None
        Seed or generator of the partitions.
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
    n_blocks_ : ndarray of shape (1,) or (n_classes,)
        The numbers of blocks.
    sample_influence_ : ndarray of shape (n_samples,) or (n_samples, n_classes)
        How often each sample was in the median block, relative to chance: about 1 for ordinary
        samples, about 0 for outliers.
    objective_ : float
        The objective at the end, summed over the problems of several classes. With the hinge it is
        that of the rounded kink, at most 5.4e-5 below the hinge's for each problem.
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
    Means of blocks are weighted, and a row belongs to one block with its whole weight. With one
    block a weight of 2 is therefore equivalent to a repeated row. With several blocks it is not,
    since two rows may be in different blocks. A weight of 0 is always equivalent to no row.

    The penalty is relative to the standard deviations of the columns, which extreme outliers
    increase: set a smaller `alpha` then.

    References
    ----------
    .. [1] G. Lecué, M. Lerasle and T. Mathieu, "Robust classification via MOM minimization",
       arXiv:1808.03106, 2018.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from marginpursuit import MedianOfMeansClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = MedianOfMeansClassifier(n_blocks=11, random_state=0).fit(X, y)
    >>> model.score(X, y) > 0.97
    True
    """

    _allowed: ClassVar[dict[str, Allowed]] = {
        "n_blocks": Allowed(
            "an odd whole number >= 1, or 'auto'",
            lambda x: x == "auto" if isinstance(x, str) else whole(1).test(x) and x % 2 == 1,
        ),
        "random_state": RANDOM_STATE,
        **ALLOWED,
    }

    def __init__(
        self,
        *,
        n_blocks: int | str = "auto",
        loss: str = "logistic",
        alpha: float | str = "auto",
        fit_intercept: bool = True,
        max_iter: int = 100,
        tol: float = 1e-4,
        class_weight: Any = None,
        probability: str | None = None,
        n_threads: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_blocks = n_blocks
        self.loss = loss
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.tol = tol
        self.class_weight = class_weight
        self.probability = probability
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose

    def _fit(self, data: TrainingData) -> None:
        n_rows = np.count_nonzero(data.weights)
        if not isinstance(self.n_blocks, str) and self.n_blocks > n_rows:
            raise ValueError(
                f"n_blocks must be at most {n_rows}, the number of samples with positive weight; "
                f"got {self.n_blocks}"
            )
        self.n_blocks_ = np.array(self._fit_risks(data))

    def _minimise(
        self, risk: Risk, data: TrainingData, report: Callable[[Progress], None]
    ) -> tuple[RobustSolution, int]:
        def rule(scores: FloatArray) -> int:
            if not isinstance(self.n_blocks, str):
                return int(self.n_blocks)
            return _blocks_for_outliers(scores, data)

        generator = _generator(self.random_state)
        return minimise_median_of_means(risk, rule, generator, self.max_iter, report)


def _blocks_for_outliers(scores: FloatArray, data: TrainingData) -> int:
    """Return one more than twice the number of outlying scores, with at least two rows a block.

    A score is outlying if it is more than 4 standard deviations from the median. The standard
    deviation is that of a normal distribution with the same quartiles, whose distance is 1.349.
    """
    counted = data.weights > 0
    values = Margins(scores[counted, np.newaxis], data.weights[counted], data.total_weight, 1.0)
    low, median, high = values.quantiles((0.25, 0.5, 0.75))[:, 0]
    outlying = np.abs(scores - median) > 4.0 * (high - low) / 1.349
    outliers = round(data.n_samples * float(data.weights @ outlying))
    most = (int(np.count_nonzero(counted)) // 2 - 1) // 2
    return 2 * min(outliers, max(most, 0)) + 1


def _generator(random_state: Any) -> np.random.Generator:
    """Return a Generator that is determined by the state."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    return np.random.default_rng(check_random_state(random_state).randint(2**31))
