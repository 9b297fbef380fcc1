"""The classifier of the paper, fitted exactly in a handful of reads of the data."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import assert_all_finite

from marginpursuit._validation import FloatArray
from marginpursuit.calibration import probability
from marginpursuit.classifiers._base import LinearClassifier, TrainingData
from marginpursuit.classifiers._margins import SCALE_RULES, SMOOTH_LINK, Margins
from marginpursuit.classifiers._progress import CallbackSupportMixin, Reporter, with_callbacks
from marginpursuit.classifiers._stream import Stream
from marginpursuit.design import Design, Linear, usable_threads
from marginpursuit.losses import MarginLoss
from marginpursuit.solvers import SOLVERS, Geometry, Problem, Solution, Status, choose_solver

__all__ = ["MarginPursuitClassifier"]

# The penalty of alpha="auto", on the coefficients of standardised columns: far below any curvature
# that data have, far above rounding. It only settles what the data leave open.
_NEGLIGIBLE_PENALTY = 1e-6

# A scale rule has settled when a refit, made to this tolerance, changes the scale by no more than
# this share.
_SETTLED = 0.02
_REFIT_TOLERANCE = 1e-3
_MOST_REFITS = 10


class MarginPursuitClassifier(CallbackSupportMixin, LinearClassifier):  # type: ignore[misc]
    r"""Linear classifier whose margins concentrate at a chosen level.

    Minimises, over coefficients w and intercept b, with weights c and margins m = y (x·w + b),

    .. math::

        \frac{1}{\sum_i c_i} \sum_i c_i\, \varphi(m_i) + \frac{\alpha}{2} \|w\|^2,

    where φ is :class:`~marginpursuit.losses.MarginLoss` with level γ = `margin`, scale s = `scale`
    and weight τ = `overconfidence`. The intercept is never penalised. Several classes are fitted
    one against the rest, all in the same reads of the data.

    Columns are standardised by algebra, never in memory, so with the default penalty neither the
    unit nor the origin of a column matters to the predictions.

    Parameters
    ----------
    margin : float, default=1.0
        The level γ > 0 at which margins are to concentrate. Only the ratio of scale to margin
        matters to the predictions, as long as the penalty is negligible.
    scale : float or {"auto", "variance", "confidence", "quantile"}, default="auto"
        The scale s > 0, beyond √2 times which a residual γ - m pulls no harder; or a rule that
        finds it from the margins, by refits until it reproduces itself:

        - "variance": s = 2 Var(m)/γ, the paper's Algorithm 1 with k = 2
          (:func:`~marginpursuit.location.variance_scale`);
        - "confidence": s² = n Var(m)/(2 log(2/δ)) with δ = 0.05
          (:func:`~marginpursuit.location.confidence_scale`);
        - "quantile": s = q √(n/(2 log(2/δ))), q the 75 % quantile of the \|m\|
          (:func:`~marginpursuit.location.consistent_quantile_scale`);
        - "auto": s = max(√2 γ, 2 v/γ), v = (interquartile range of m / 1.349)². That is the rule of
          Algorithm 1 with a variance that outliers do not move, but not below √2 γ. There
          truncation begins at a margin of -γ, the mirror image of the level; and from there on the
          probability link rises strictly between -γ and γ.
    overconfidence : float, default=1.0
        The weight τ in [0, 1] of margins above the level: 1 is the loss of the paper, 0 leaves them
        free, as a hinge does. Smaller values suit unbalanced or heavy-tailed clean data.
    alpha : float or "auto", default="auto"
        The penalty α >= 0 of the squared coefficients; or "auto", 1e-6 for the coefficients of
        standardised columns, which only settles what the data leave open.
    fit_intercept : bool, default=True
        Whether to fit b.
    solver : {"auto", "gram", "lbfgs", "steepest"}, default="auto"
        How to minimise; see :func:`~marginpursuit.solvers.choose_solver`. "steepest" is the paper's
        Algorithm 1 with `max_iter` steps.
    max_iter : int, default=1000
        The most iterations of the solver.
    tol : float, default=1e-6
        The estimated relative suboptimality at which the solver stops.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes; "balanced" gives all classes the same total weight.
    warm_start : bool, default=False
        Whether to start from the coefficients of the fit before.
    n_threads : int or None, default=None
        The number of threads; by default one for each processor. Results do not depend on it.
    random_state : int, RandomState instance or None, default=None
        Not used: every solver so far is deterministic.
    verbose : int, default=0
        Whether to print a line for each iteration.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The classes.
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Coefficients, for the data as it came.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Intercepts.
    scale_ : float
        The scale s of the fit.
    objective_ : float
        The minimum, summed over the problems of several classes.
    margin_location_ : ndarray of shape (1,) or (n_classes,)
        Catoni's estimate of the location of the training margins, at the scale of the fit.
    margin_statistics_ : MarginStatistics
        Location, mean, variance, skewness and quantiles of the training margins.
    n_iter_ : int
        Iterations of the final solve; the most of any class.
    n_sweeps_ : int
        Reads of the data, all refits included.
    n_features_in_ : int
        The number of features.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, where X has names that are all strings.

    References
    ----------
    .. [1] M. J. Holland, "Classification using margin pursuit", AISTATS 2019, arXiv:1810.04863.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from marginpursuit import MarginPursuitClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = MarginPursuitClassifier().fit(X, y)
    >>> model.score(X, y) > 0.96
    True
    >>> model.predict_proba(X[:1]).shape
    (1, 2)
    """

    def __init__(
        self,
        *,
        margin: float = 1.0,
        scale: float | str = "auto",
        overconfidence: float = 1.0,
        alpha: float | str = "auto",
        fit_intercept: bool = True,
        solver: str = "auto",
        max_iter: int = 1000,
        tol: float = 1e-6,
        class_weight: Any = None,
        warm_start: bool = False,
        n_threads: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.margin = margin
        self.scale = scale
        self.overconfidence = overconfidence
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.class_weight = class_weight
        self.warm_start = warm_start
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose

    @with_callbacks  # type: ignore[untyped-decorator]
    def fit(
        self, X: Any, y: Any, sample_weight: ArrayLike | None = None
    ) -> "MarginPursuitClassifier":
        """Fit the coefficients.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training samples, of any real dtype.
        y : array-like of shape (n_samples,)
            Class of each sample.
        sample_weight : array-like of shape (n_samples,), optional
            Weights >= 0; a weight of 2 is the same as the row twice.

        Returns
        -------
        self : MarginPursuitClassifier
            The fitted estimator.
        """
        self._check_parameters()
        self.__dict__.pop("_stream", None)
        data = self._check_training(X, y, sample_weight)
        report = Reporter(self, data.matrix, data.labels.codes)
        try:
            self._fit_data(data, np.zeros(data.matrix.shape[1], dtype=int), report)
        except FloatingPointError:
            assert_all_finite(data.matrix, estimator_name=type(self).__name__, input_name="X")
            matrix, exponents = _rescaled(data.matrix)
            self._fit_data(replace(data, matrix=matrix), exponents, report)
        report.finish()
        return self

    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> "MarginPursuitClassifier":
        """Learn from one batch of a stream, without looking at earlier ones again.

        Where the loss is quadratic (a large `scale` and ``overconfidence=1``) the result is that of
        one fit to all batches; elsewhere it comes near it. The columns are standardised by the
        first batch. The scale stays as it is: a number, or for "auto" √2 times the margin.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            The samples of the batch.
        y : array-like of shape (n_samples,)
            Their classes.
        classes : array-like of shape (n_classes,), optional
            All classes of the stream; needed in the first call only.
        sample_weight : array-like of shape (n_samples,), optional
            Weights >= 0.

        Returns
        -------
        self : MarginPursuitClassifier
            The estimator.
        """
        self._check_parameters()
        if isinstance(self.scale, str) and self.scale != "auto":
            raise ValueError(
                f"partial_fit needs scale to be a number or 'auto'; got {self.scale!r}"
            )
        if self.class_weight == "balanced":
            raise ValueError("partial_fit cannot balance classes that are still to come")
        data = self._check_batch(X, y, classes, sample_weight)
        with Design(data.matrix, n_threads=usable_threads(self.n_threads)) as design:
            if not hasattr(self, "_stream"):
                n_problems = len(data.labels.problems)
                self._stream = Stream.begin(design, data.weights, n_problems, self.fit_intercept)
                self.scale_ = float(
                    SMOOTH_LINK * self.margin if isinstance(self.scale, str) else self.scale
                )
                self.n_iter_ = self.n_sweeps_ = 0
            penalty = np.full(design.n_columns, _NEGLIGIBLE_PENALTY)
            if not isinstance(self.alpha, str):
                penalty = self.alpha * self._stream.inverse_spread**2
            loss = MarginLoss(self.margin, self.scale_, self.overconfidence)
            self._stream.update(design, data.labels, data.weights, loss, penalty)
            coef, intercept = design.to_data(self._stream.linear)
            self.n_sweeps_ += design.n_reads
        self.coef_, self.intercept_ = coef.T, intercept
        self.n_iter_ += 1
        return self

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the probability of each class, by the exact link of the loss.

        With several classes, the probabilities of each against the rest are divided by their sum.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Probabilities, in the order of `classes_`.
        """
        scores = self.decision_function(X)
        if scores.ndim == 1:
            scores = np.column_stack([-scores, scores])
        chances = probability(scores, self.margin, self.scale_)
        # The link has flat parts. This little decides ties there by the score, and rows that no
        # class claims.
        chances[np.arange(len(scores)), scores.argmax(axis=1)] += 1e-12
        return np.asarray(chances / chances.sum(axis=1, keepdims=True))

    def _fit_data(self, data: TrainingData, exponents: NDArray[np.int_], report: Reporter) -> None:
        """Fit to data whose columns were divided by 2 to the power of `exponents`."""
        threads = usable_threads(self.n_threads)
        with Design(data.matrix, n_threads=threads) as design:
            solver = SOLVERS[choose_solver(design) if self.solver == "auto" else self.solver]
            scale_free = isinstance(self.alpha, str)
            geometry = solver.prepare(
                design,
                data.weights,
                _NEGLIGIBLE_PENALTY if isinstance(self.alpha, str) else float(self.alpha),
                scale_free=scale_free,
                fit_intercept=self.fit_intercept,
            )
            start = self._start(data, geometry, exponents)
            solution, margins, scale = self._pursue(solver.solve, data, geometry, start, report)
            coef, intercept = geometry.to_data(solution.linear)
            self.n_sweeps_ = design.n_reads
        self.coef_ = np.ldexp(coef.T, -exponents)
        self.intercept_ = intercept
        self.scale_ = scale
        self.objective_ = float(solution.value.sum())
        self.n_iter_ = solution.n_iter
        self.margin_statistics_ = margins.statistics(scale)
        self.margin_location_ = self.margin_statistics_.location
        self._warn(solution)

    def _start(self, data: TrainingData, geometry: Geometry, exponents: NDArray[np.int_]) -> Linear:
        shape = (geometry.design.n_columns, len(data.labels.problems))
        if self.warm_start and hasattr(self, "coef_") and self.coef_.shape == shape[::-1]:
            return geometry.from_data((np.ldexp(self.coef_, exponents).T, self.intercept_))
        return np.zeros(shape), np.zeros(shape[1])

    def _pursue(
        self,
        solve: Callable[[Problem], Solution],
        data: TrainingData,
        geometry: Geometry,
        start: Linear,
        report: Reporter,
    ) -> tuple[Solution, Margins, float]:
        """Solve at the given scale, or at the one that the rule settles on."""

        def solve_at(scale: float, start: Linear, tol: float) -> tuple[Solution, Margins]:
            loss = MarginLoss(self.margin, scale, self.overconfidence)
            solution = solve(
                Problem(
                    geometry, data.labels, data.weights, loss, start, self.max_iter, tol, report
                )
            )
            scores = geometry.design.scores(*solution.linear)
            margins = np.where(
                data.labels.codes[:, np.newaxis] == data.labels.problems, scores, -scores
            )
            return solution, Margins(margins, data.weights, self.margin)

        if not isinstance(self.scale, str):
            return *solve_at(float(self.scale), start, self.tol), float(self.scale)
        rule = SCALE_RULES[self.scale]
        scale = SMOOTH_LINK * self.margin
        tol = max(self.tol, _REFIT_TOLERANCE)
        for _ in range(_MOST_REFITS):
            solution, margins = solve_at(scale, start, tol)
            previous, scale, start = scale, rule(margins), solution.linear
            if abs(scale - previous) <= _SETTLED * previous:
                break
        return *solve_at(scale, start, self.tol), scale

    def _warn(self, solution: Solution) -> None:
        if solution.status is Status.MAX_ITER:
            warnings.warn(
                f"{type(self).__name__} {solution.status.value}: the objective is estimated to be "
                f"{solution.gap.max():.1e} of its value above the minimum, where tol={self.tol:g} "
                f"was asked for. Set max_iter above {self.max_iter}.",
                ConvergenceWarning,
                stacklevel=4,
            )

    def _check_parameters(self) -> None:
        for name, rules in (("scale", sorted(SCALE_RULES)), ("alpha", ["auto"])):
            value = getattr(self, name)
            if isinstance(value, str) and value not in rules:
                raise ValueError(f"{name} must be a number or one of {rules}; got {value!r}")
        _check_number("margin", self.margin, lambda x: 0 < x < np.inf, "positive and finite")
        if not isinstance(self.scale, str):
            _check_number("scale", self.scale, lambda x: 0 < x < np.inf, "positive and finite")
        if not isinstance(self.alpha, str):
            _check_number("alpha", self.alpha, lambda x: 0 <= x < np.inf, "finite and >= 0")
        _check_number("overconfidence", self.overconfidence, lambda x: 0 <= x <= 1, "in [0, 1]")
        _check_number("tol", self.tol, lambda x: 0 < x < np.inf, "positive and finite")
        _check_number("max_iter", self.max_iter, lambda x: x >= 1, "an integer >= 1", Integral)
        if self.n_threads is not None:
            _check_number("n_threads", self.n_threads, lambda x: x >= 1, "None or >= 1", Integral)
        if self.solver not in ("auto", *SOLVERS):
            allowed = ["auto", *SOLVERS]
            raise ValueError(f"solver must be one of {allowed}; got {self.solver!r}")


def _check_number(
    name: str, value: Any, allowed: Callable[[Any], bool], rule: str, kind: type = Real
) -> None:
    if not isinstance(value, kind) or isinstance(value, bool) or not allowed(value):
        raise ValueError(f"{name} must be {rule}; got {value!r}")


def _rescaled(matrix: Any) -> tuple[Any, NDArray[np.int_]]:
    """Copy a matrix whose values have no squares, each column divided by a power of two."""
    is_sparse, scaled = sparse.issparse(matrix), matrix.astype(np.float64)
    largest = abs(scaled).max(axis=0)
    _, exponents = np.frexp(largest.toarray().ravel() if is_sparse else largest)
    if is_sparse:
        scaled.data = np.ldexp(scaled.data, -exponents[scaled.indices])
    else:
        scaled = np.ldexp(scaled, -exponents)
    return scaled, exponents
