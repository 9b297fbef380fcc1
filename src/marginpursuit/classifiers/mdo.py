"""Margin distribution optimisation, started from another linear classifier."""

from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter

from marginpursuit._threads import Threads, usable_threads
from marginpursuit._validation import FloatArray
from marginpursuit.classifiers._base import TrainingData
from marginpursuit.classifiers._margins import Margins
from marginpursuit.classifiers._one_vs_rest import SeparateClassifier
from marginpursuit.classifiers._parameters import FIT_PARAMETERS, FLAG, Allowed, number
from marginpursuit.classifiers._progress import Reporter
from marginpursuit.classifiers._refitted_halves import PROBABILITY
from marginpursuit.classifiers.margin_pursuit import MarginPursuitClassifier
from marginpursuit.design import Linear, MemoryDesign, Standardisation
from marginpursuit.losses import ProjectionLoss
from marginpursuit.solvers import Solution
from marginpursuit.solvers.sphere import SphereProblem, minimise_on_sphere

__all__ = ["MDOClassifier"]


class _Fit(NamedTuple):
    """The fit of one class against the rest."""

    solution: Solution
    margins: FloatArray  # at the solution
    loss: ProjectionLoss
    start_objective: float


class MDOClassifier(SeparateClassifier):
    r"""Linear classifier that minimises the margin-distribution loss of Garg and Roth.

    Starts from the coefficients of another linear classifier and minimises

    .. math:: \frac{1}{\sum_i c_i} \Bigl( \sum_{m_i \ge 0} c_i e^{-\alpha m_i^2}
              + \sum_{m_i < 0} c_i e^{-\beta m_i} \Bigr), \qquad
              m_i = y_i (z_i \cdot w + b)/r, \quad \|w\| = 1,

    where z are the columns standardised and r is the root mean square of the norms of the z, so
    that r = 1 for unit vectors. ``standardise=False, unit_rows=True`` is the published setting: z
    are the rows of X divided by their norms. The first sum bounds the probability that a random
    projection to few dimensions changes the decision, the second penalises errors [1]_. The loss is
    neither convex nor smooth: the result is a local minimiser, with no larger objective than the
    start.
    Several classes are fitted one against the rest.

    Parameters
    ----------
    start : estimator or None, default=None
        The learner to start from: any classifier with `coef_` and `intercept_`; a copy is fitted,
        with the weights if it takes any. None is
        :class:`~marginpursuit.MarginPursuitClassifier`.
    alpha : float or "profile", default="profile"
        The rate α > 0 for samples with a positive margin. "profile" is log(3/δ)/h² with δ = 0.05
        and h the median of the \|m\| at the start. That is k/(2 (2 + h)²), the rate of the
        projection profile (:func:`~marginpursuit.bounds.projection_profile`), for the dimension k
        to which the median sample can be projected with probability 1 - δ of the same decision.
    beta : float or "profile", default=1.0
        The rate β > 0 for samples with a negative margin. "profile" is √α, which gives both
        sides the same width.
    standardise : bool, default=True
        Whether the columns are standardised. The sphere ‖w‖ = 1 is that of the coefficients of the
        z, so that this changes the minimiser.
    unit_rows : bool, default=False
        Whether rows are divided by their norms first, in `fit` and in predictions.
    fit_intercept : bool, default=True
        Whether there is an intercept b.
    max_iter : int, default=1000
        The largest number of steps.
    tol : float, default=1e-4
        Stop where five steps together lower the objective by less than `tol` times its value.
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
    verbose : int, default=0
        Whether to print a line for each step.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The classes.
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Coefficients, for the data as given, or its rows divided by their norms with `unit_rows`;
        scores are the m above without the sign.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Intercepts.
    start_ : estimator
        The fitted classifier of the start.
    start_objective_, objective_ : float
        The objective at the start and at the end, summed over the problems of several classes.
    alpha_, beta_ : ndarray of shape (1,) or (n_classes,)
        The rates.
    projection_bound_, projection_dimension_ : ndarray of shape (1,) or (n_classes,)
        The risk bound by random projections of the fitted model, and the dimension k that it
        projects to (:func:`~marginpursuit.bounds.projection_risk_bound` with δ = 0.05, without
        weights). They need unit vectors, and are set for ``standardise=False, unit_rows=True`` and
        at least six samples only. A bound of 1 or more says nothing.
    n_iter_ : int
        Steps; of the class that took most.
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
    A weight of 2 is equivalent to a repeated row, if it is for the classifier of the start.

    References
    ----------
    .. [1] A. Garg and D. Roth, "Margin distribution and learning algorithms", ICML 2003.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from marginpursuit import MDOClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = MDOClassifier().fit(X, y)
    >>> model.objective_ < model.start_objective_
    True
    >>> model.score(X, y) > 0.97
    True
    """

    _allowed: ClassVar[dict[str, Allowed]] = {
        "start": Allowed("an estimator or None", lambda x: x is None or hasattr(x, "fit")),
        "alpha": number("that is positive and finite", lambda x: 0 < x < np.inf, ["profile"]),
        "beta": number("that is positive and finite", lambda x: 0 < x < np.inf, ["profile"]),
        "standardise": FLAG,
        "unit_rows": FLAG,
        "probability": PROBABILITY,
        **FIT_PARAMETERS,
    }

    def __init__(
        self,
        *,
        start: Any = None,
        alpha: float | str = "profile",
        beta: float | str = 1.0,
        standardise: bool = True,
        unit_rows: bool = False,
        fit_intercept: bool = True,
        max_iter: int = 1000,
        tol: float = 1e-4,
        class_weight: Any = None,
        probability: str | None = None,
        n_threads: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.start = start
        self.alpha = alpha
        self.beta = beta
        self.standardise = standardise
        self.unit_rows = unit_rows
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.tol = tol
        self.class_weight = class_weight
        self.probability = probability
        self.n_threads = n_threads
        self.verbose = verbose

    def _fit(self, data: TrainingData) -> None:
        with Threads(usable_threads(self.n_threads)) as threads:
            if self.unit_rows:
                data = replace(data, matrix=_unit_rows(data.matrix))
            design = MemoryDesign(data.matrix, threads)
            columns = design.standardisation(data.weights, centred=self.fit_intercept)
            standardisation, radius = columns, _root_mean_square_norm(columns)
            if not self.standardise:
                standardisation = Standardisation.identity(design.n_columns)
                radius = float(np.sqrt(design.mean_square(data.weights))) or 1.0
            coef, intercept = standardisation.from_data(self._fit_start(data))
            fits = []
            for k, name in enumerate(data.labels.positive_classes):
                problem = SphereProblem(
                    design,
                    standardisation,
                    sign=data.labels.sign(int(name)),
                    weights=data.weights,
                    loss=ProjectionLoss(),
                    fit_intercept=self.fit_intercept,
                    radius=radius,
                )
                point = _unit(problem, coef[:, k], intercept[k])
                fits.append(self._fit_problem(problem, point, columns, data))
        linears = [standardisation.to_data(fit.solution.linear) for fit in fits]
        self.alpha_ = np.array([fit.loss.alpha for fit in fits])
        self.beta_ = np.array([fit.loss.beta for fit in fits])
        self.start_objective_ = float(sum(fit.start_objective for fit in fits))
        if self.unit_rows and not self.standardise:
            margins = np.column_stack([fit.margins for fit in fits])
            self._keep_bounds(margins[data.weights > 0])
        self._keep(
            [fit.solution for fit in fits],
            [(coef / radius, intercept / radius) for coef, intercept in linears],
        )

    def _fit_problem(
        self,
        problem: SphereProblem,
        start: FloatArray,
        columns: Standardisation,
        data: TrainingData,
    ) -> _Fit:
        """Fit one class against the rest, by a loss that follows from the margins at the start."""
        margins = problem.margins(start)
        loss = self._loss(margins, data)
        problem = replace(problem, loss=loss)
        objective = problem.value(margins)
        if not objective < 1e100:  # its square is finite
            raise OverflowError(
                f"beta={loss.beta:g} is too large for margins as low as {margins.min():.3g}. Set a "
                "smaller beta."
            )
        if not self.standardise:
            start = self._conditioned_start(problem, start, columns)
        solution = minimise_on_sphere(problem, start, self.max_iter, self.tol, Reporter(self))
        return _Fit(solution, problem.margins(np.append(*solution.linear)), loss, objective)

    def _keep_bounds(self, margins: FloatArray) -> None:
        """Set the bound of each problem, from an even number of margins, at least six."""
        from marginpursuit.bounds import projection_risk_bound  # not loaded with the package

        n_even = len(margins) // 2 * 2
        if n_even >= 6:
            found = [projection_risk_bound(column) for column in margins[:n_even].T]
            self.projection_bound_ = np.array([each.bound for each in found])
            self.projection_dimension_ = np.array([each.k for each in found])

    def decision_function(self, X: Any) -> Any:
        """Return the scores h(x), positive for the second class or for the class of the column.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples; with `unit_rows` they are divided by their norms, and must be in memory.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            Scores; one column where there are two classes.
        """
        scores = super().decision_function(X)
        if not self.unit_rows:
            return scores
        # x·w/‖x‖ + b from x·w + b
        inverse = 1.0 / _row_norms(self._read(X, reset=False))
        if scores.ndim == 1:
            return (scores - self.intercept_[0]) * inverse + self.intercept_[0]
        return (scores - self.intercept_) * inverse[:, np.newaxis] + self.intercept_

    def _conditioned_start(
        self, problem: SphereProblem, point: FloatArray, columns: Standardisation
    ) -> FloatArray:
        """Descend in standardised columns first; return the better of the start and the result.

        Without standardisation the columns of unit rows have unequal variances, and the descent on
        the sphere of their coefficients ends early, in a worse minimum.
        """
        radius = _root_mean_square_norm(columns)
        conditioned = replace(problem, standardisation=columns, radius=radius)
        coef, intercept = columns.from_data((point[:-1, np.newaxis], point[-1:]))
        first = _unit(conditioned, coef[:, 0], float(intercept[0]))
        found = minimise_on_sphere(conditioned, first, self.max_iter, self.tol, Reporter(self))
        coef, intercept = columns.to_data(found.linear)
        better = _unit(problem, coef[:, 0], float(intercept[0]))
        values = [problem.value(problem.margins(each)) for each in (point, better)]
        return better if values[1] < values[0] else point

    def _fit_start(self, data: TrainingData) -> Linear:
        """Fit the classifier of the start; return its coefficients and intercepts."""
        learner = (
            MarginPursuitClassifier.as_published(
                fit_intercept=self.fit_intercept, n_threads=self.n_threads
            )
            if self.start is None
            else clone(self.start)
        )
        weights = {}
        if has_fit_parameter(learner, "sample_weight"):
            weights["sample_weight"] = data.weights * data.total_weight
        learner.fit(data.matrix, self.classes_[data.labels.codes], **weights)
        n_problems, n_columns = len(data.labels.positive_classes), data.matrix.shape[1]
        coef = np.asarray(getattr(learner, "coef_", None), dtype=np.float64)
        if coef.shape != (n_problems, n_columns):
            raise ValueError(
                f"start must fit a coef_ of shape {(n_problems, n_columns)}; got {coef.shape} from "
                f"{learner}"
            )
        self.start_ = learner
        intercept = np.zeros(n_problems)
        if self.fit_intercept:
            intercept[:] = learner.intercept_
        return coef.T, intercept

    def _loss(self, margins: FloatArray, data: TrainingData) -> ProjectionLoss:
        alpha, beta = self.alpha, self.beta
        if isinstance(alpha, str):
            counted = data.weights > 0
            sizes = np.abs(margins[counted, np.newaxis])
            median = Margins(sizes, data.weights[counted], data.total_weight, 1.0).quantiles((0.5,))
            # δ bounds the probability that a projection changes the decision for the median sample.
            # The dimension that minimises the risk bound is no alternative: for a few hundred
            # samples it is 1, where the loss is almost flat.
            delta, least_median = 0.05, 1e-6
            alpha = np.log(3.0 / delta) / max(float(median[0, 0]), least_median) ** 2
        if isinstance(beta, str):
            beta = float(np.sqrt(alpha))
        return ProjectionLoss(alpha, beta)


def _row_norms(matrix: Any) -> FloatArray:
    """Return the norm of each row, and 1 for rows of zeros."""
    if not isinstance(matrix, np.ndarray) and not hasattr(matrix, "multiply"):
        raise TypeError(
            "unit_rows=True needs rows in memory, an array or a sparse matrix; got "
            f"{type(matrix).__name__}. Divide the rows by their norms, and set unit_rows=False."
        )
    rows = matrix.astype(np.float64)
    squares = rows.multiply(rows).sum(axis=1) if hasattr(rows, "multiply") else np.sum(rows**2, 1)
    norms: FloatArray = np.sqrt(np.asarray(squares).ravel())
    if not np.all(np.isfinite(norms)):
        raise FloatingPointError("squares of the rows are not finite")
    return np.where(norms > 0, norms, 1.0)


def _unit_rows(matrix: Any) -> Any:
    """Return a float64 copy with rows divided by their norms; rows of zeros stay zero."""
    inverse = 1.0 / _row_norms(matrix)
    if isinstance(matrix, np.ndarray):
        return matrix * inverse[:, np.newaxis]
    return matrix.multiply(inverse[:, np.newaxis]).tocsr()


def _root_mean_square_norm(columns: Standardisation) -> float:
    """Return the root mean square of the norms of standardised rows, at least 1."""
    return max(1.0, float(np.sqrt(np.count_nonzero(columns.varies))))


def _unit(problem: SphereProblem, coef: FloatArray, intercept: float) -> FloatArray:
    """Scale coefficients to norm one; zero coefficients become the difference of class means.

    The intercept is clipped to the range of the scores.
    """
    norm = float(np.linalg.norm(coef))
    if norm == 0.0:
        coef = problem.design.adjoint(problem.weights * problem.sign, problem.standardisation)
        norm = float(np.linalg.norm(coef))
    coef = coef / norm if norm > 0 else np.eye(1, len(coef))[0]
    furthest = problem.radius * float(np.abs(problem.margins(np.append(coef, 0.0))).max())
    intercept = intercept / norm if norm > 0 else intercept
    return np.append(coef, np.clip(intercept, -furthest, furthest))
