"""The linear classifier whose gradient is estimated robustly."""

from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from marginpursuit._validation import FloatArray
from marginpursuit.classifiers._base import TrainingData
from marginpursuit.classifiers._one_vs_rest import SeparateClassifier
from marginpursuit.classifiers._parameters import (
    FIT_PARAMETERS,
    RANDOM_STATE,
    Allowed,
    number,
    one_of,
    whole,
)
from marginpursuit.classifiers._progress import Reporter
from marginpursuit.classifiers._refitted_halves import PROBABILITY
from marginpursuit.losses import LogisticLoss, MarginLoss
from marginpursuit.solvers.robust_gradient import (
    GradientProblem,
    block_gradient,
    catoni_gradient,
    is_sparse,
    length_limits,
    minimise_by_robust_gradient,
)
from marginpursuit.solvers.sampling import random_generator

__all__ = ["RobustGradientClassifier"]


class RobustGradientClassifier(SeparateClassifier):
    r"""Linear classifier at a root of a robust estimate of the gradient of its risk.

    The gradient of the mean loss is the mean of vectors, one for each sample. Where X has heavy
    tails it is far from the gradient of the risk with high probability. This classifier estimates
    it robustly and finds the coefficients at which the estimate, plus the gradient of the penalty
    α‖w‖²/2, is zero. The paper asks for such a procedure as future work: one without the dimension
    as a factor of its statistical error. Several classes are fitted one against the rest.

    Parameters
    ----------
    estimate : {"catoni", "geometric_median"}, default="catoni"
        The estimate of the mean gradient: Catoni's location of each coordinate, at the scale of
        :func:`~marginpursuit.location.confidence_scale` [1]_; or the geometric median of the mean
        gradients of blocks of samples [2]_.
    loss : {"margin", "logistic"}, default="margin"
        The loss: that of the paper, :class:`~marginpursuit.losses.MarginLoss` with level 1, or the
        logistic loss.
    scale : float, default=1.0
        The scale s > 0 of ``loss="margin"``.
    delta : float, default=0.05
        The probability δ, in (0, 1), of ``estimate="catoni"``.
    n_blocks : int or "auto", default="auto"
        The number of blocks of ``estimate="geometric_median"``. "auto" is 25, the least number of
        at least 8 log(1/δ) for δ = 0.05, and at most a quarter of the samples.
    alpha : float or "auto", default="auto"
        The penalty α >= 0 of the squared coefficients; or "auto", 1/n for the coefficients of
        columns divided by their standard deviation, with n the sum of the weights.
    fit_intercept : bool, default=True
        Whether to fit an intercept, which is not penalised.
    max_iter : int, default=200
        The largest number of iterations.
    tol : float, default=1e-8
        Stop where the Newton decrement is at most `tol` times the loss at zero coefficients.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes; "balanced" gives all classes the same total weight.
    probability : "held_out" or None, default=None
        Where probabilities come from. "held_out" fits two more estimators, each to half of the
        rows, and a monotone link to the scores that they give the other half, as in
        :class:`MarginPursuitClassifier`; the fit then takes about twice as long. None: there is no
        `predict_proba`. No exact link is offered: the minimiser of this objective over all
        functions does not determine P(y | x).
    n_threads : int or None, default=None
        The number of threads of predictions; by default one for each processor.
    random_state : int, RandomState instance, Generator or None, default=None
        Seed or generator of the blocks.
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
    objective_ : float
        The mean loss plus the penalty, summed over the problems of several classes. It is not what
        the fit minimises: it is larger than its minimum.
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
    Dense columns are centred if there is an intercept, and all columns are divided by their
    standard deviation, in a copy of X. Rows longer than twice the median count as rows of that
    length in means and deviations, and in the variances that set the scales of Catoni's locations.
    An iteration costs the gradients of all samples, in chunks of columns, and with up to 1,000
    columns a Hessian.

    With ``estimate="catoni"`` a weight of 2 is equivalent to a repeated row. With blocks it is not,
    since two rows may be in different blocks. A weight of 0 is always equivalent to no row.

    With heavy tails it improves on the plain gradient of the same loss, by up to half of the error.
    :class:`~marginpursuit.MarginPursuitClassifier`, whose default bounds the leverage of rows, is
    better still (``benchmarks/robust_gradients.py``).

    References
    ----------
    .. [1] M. J. Holland and K. Ikeda, "Better generalization with less data using robust gradient
       descent", ICML 2019.
    .. [2] A. Prasad, A. S. Suggala, S. Balakrishnan and P. Ravikumar, "Robust estimation via robust
       gradient estimation", Journal of the Royal Statistical Society B 82, 2020.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from marginpursuit import RobustGradientClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> RobustGradientClassifier().fit(X, y).score(X, y) > 0.95
    True
    """

    _allowed: ClassVar[dict[str, Allowed]] = {
        "estimate": one_of(["catoni", "geometric_median"]),
        "loss": one_of(["margin", "logistic"]),
        "scale": number("that is positive and finite", lambda x: 0 < x < np.inf),
        "delta": number("in (0, 1)", lambda x: 0 < x < 1),
        "n_blocks": Allowed(
            "a whole number >= 1, or 'auto'",
            lambda x: x == "auto" if isinstance(x, str) else whole(1).test(x),
        ),
        "alpha": number("that is finite and >= 0", lambda x: 0 <= x < np.inf, ["auto"]),
        "probability": PROBABILITY,
        "random_state": RANDOM_STATE,
        **FIT_PARAMETERS,
    }

    def __init__(
        self,
        *,
        estimate: str = "catoni",
        loss: str = "margin",
        scale: float = 1.0,
        delta: float = 0.05,
        n_blocks: int | str = "auto",
        alpha: float | str = "auto",
        fit_intercept: bool = True,
        max_iter: int = 200,
        tol: float = 1e-8,
        class_weight: Any = None,
        probability: str | None = None,
        n_threads: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.estimate = estimate
        self.loss = loss
        self.scale = scale
        self.delta = delta
        self.n_blocks = n_blocks
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
        rows, centre, deviation = _scaled(data, self.fit_intercept)
        varies = deviation > 0
        unit = np.where(varies, deviation, 1.0)
        penalty = (
            np.full(len(unit), 1.0 / data.n_samples)
            if isinstance(self.alpha, str)
            else self.alpha / unit**2
        )
        loss = LogisticLoss() if self.loss == "logistic" else MarginLoss(1.0, float(self.scale))
        limits = length_limits(rows, data.weights)
        blocks = self._blocks(data) if self.estimate == "geometric_median" else None
        solutions, linears = [], []
        for name in data.labels.positive_classes:
            problem = GradientProblem(
                rows,
                sign=data.labels.sign(int(name)),
                weights=data.weights,
                count=data.n_samples,
                loss=loss,
                penalty=penalty,
                fit_intercept=self.fit_intercept,
                limits=limits,
            )
            estimate = (
                partial(catoni_gradient, delta=self.delta)
                if blocks is None
                else partial(block_gradient, blocks=blocks)
            )
            solution = minimise_by_robust_gradient(
                problem, estimate, self.max_iter, self.tol, Reporter(self)
            )
            coef = np.where(varies, solution.linear[0][:, 0] / unit, 0.0)
            solutions.append(solution)
            linears.append((coef[:, np.newaxis], solution.linear[1] - centre @ coef))
        self._keep(solutions, linears)

    def _blocks(self, data: TrainingData) -> NDArray[np.intp]:
        """Return the block of each row: a random partition of the rows with weight."""
        weighted = np.flatnonzero(data.weights)
        n_blocks = self.n_blocks
        if isinstance(n_blocks, str):
            n_blocks = max(1, min(25, len(weighted) // 4))
        if n_blocks > len(weighted):
            raise ValueError(
                f"n_blocks must be at most {len(weighted)}, the number of samples with positive "
                f"weight; got {n_blocks}"
            )
        random = random_generator(self.random_state)
        blocks = np.zeros(len(data.weights), dtype=np.intp)
        blocks[weighted] = random.permutation(np.arange(len(weighted)) % n_blocks)
        return blocks

    def _unit_dependent(self, data: TrainingData) -> list[str]:
        return [] if self.alpha in ("auto", 0) else [f"alpha={self.alpha!r}"]


def _scaled(data: TrainingData, centred: bool) -> tuple[Any, FloatArray, FloatArray]:
    """Return the rows in float64, centred and divided by deviations; centres and deviations.

    Centres and deviations are those of rows whose length is limited (`length_limits`), so that a
    few long rows do not determine them. Sparse rows are not centred. A constant column has the
    deviation 0.
    """
    matrix, weights = data.matrix, data.weights
    if is_sparse(matrix):
        rows: Any = sparse.csr_array(matrix, dtype=np.float64)
        centre = np.zeros(rows.shape[1])
        deviation = _deviation(rows, weights, centre)
        limited = weights * length_limits(_divided(rows, deviation), weights)
        deviation = _deviation(rows, limited / limited.sum(), centre)
        return _divided(rows, deviation), centre, deviation
    rows = np.array(matrix, dtype=np.float64)
    centre, limited = np.zeros(rows.shape[1]), weights
    for _ in range(3):  # before the limits, with them, and with those of the new deviations
        centre = limited @ rows if centred else centre
        deviation = _deviation(rows - centre, limited, centre)
        limited = weights * length_limits(_divided(rows - centre, deviation), weights)
        limited = limited / limited.sum()
    rows -= centre
    return _divided(rows, deviation), centre, deviation


def _deviation(rows: Any, weights: FloatArray, centre: FloatArray) -> FloatArray:
    """Return root mean squares of centred columns; 0 for a column that is constant to rounding."""
    squares = rows.multiply(rows).T @ weights if is_sparse(rows) else weights @ rows**2
    squares = np.asarray(squares).ravel()
    is_small = squares < 1e-290
    if is_small.any():  # zero for a column that is not zero, where its squares underflow
        is_small &= np.asarray(abs(rows).sum(axis=0)).ravel() > 0
    if not np.all(np.isfinite(squares)) or is_small.any():
        raise FloatingPointError("squares of the columns over- or underflow")
    deviation: FloatArray = np.sqrt(squares)
    deviation[deviation <= 1e-12 * np.abs(centre)] = 0.0
    return deviation


def _divided(rows: Any, deviation: FloatArray) -> Any:
    """Return rows with columns divided by their deviations; columns without one are zero."""
    factors = np.divide(1.0, deviation, out=np.zeros_like(deviation), where=deviation > 0)
    if is_sparse(rows):
        return sparse.csr_array(rows @ sparse.diags_array(factors))
    return rows * factors
