"""Pegasos, the stochastic subgradient method for support vector machines."""

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.metaestimators import available_if

from marginpursuit._kernels import Descent
from marginpursuit._validation import FloatArray
from marginpursuit.classifiers._base import TrainingData
from marginpursuit.classifiers._kernel_expansion import KernelClassifier
from marginpursuit.classifiers._link import thinning
from marginpursuit.classifiers._parameters import (
    CLASS_WEIGHT,
    FLAG,
    KERNEL_PARAMETERS,
    RANDOM_STATE,
    Allowed,
    check_parameters,
    number,
    whole,
)
from marginpursuit.classifiers._progress import warn
from marginpursuit.classifiers._refitted_halves import PROBABILITY
from marginpursuit.design import Linear, MemoryDesign, take_rows
from marginpursuit.losses import HingeLoss
from marginpursuit.solvers import Status
from marginpursuit.solvers.intercept_search import InterceptSearch
from marginpursuit.solvers.kernel_descent import KernelRows, KernelStorage, take_steps
from marginpursuit.solvers.sampling import random_generator
from marginpursuit.solvers.stochastic_steps import (
    RowSampler,
    StoppingCriterion,
    ascending_counts,
    canonical_order,
    doubling_stages,
)
from marginpursuit.tasks import Labels

__all__ = ["PegasosClassifier"]


def _can_stream(estimator: Any) -> bool:
    """Return True if the parameters permit `partial_fit`; raise an AttributeError otherwise."""
    if isinstance(estimator.class_weight, str):
        raise AttributeError(
            f"class_weight={estimator.class_weight!r} needs all labels at once, and partial_fit "
            "gets them in batches. Pass a dict from class to weight, or None."
        )
    if estimator.probability is not None:
        raise AttributeError(
            f"probability={estimator.probability!r} needs all samples at once, and partial_fit "
            "gets them in batches. Set probability=None."
        )
    if estimator.search_intercept:
        raise AttributeError(
            f"search_intercept={estimator.search_intercept!r} needs all samples at once, and "
            "partial_fit gets them in batches. Set search_intercept=False."
        )
    if not estimator._is_linear:
        raise AttributeError(
            f"partial_fit needs kernel='linear'; got {estimator.kernel!r}. Use fit for kernels."
        )
    return True


class PegasosClassifier(KernelClassifier):
    r"""Support vector machine by stochastic subgradient steps of size 1/(λt).

    Minimises, over vectors w of the feature space of a kernel, with weights c and margins
    m = y ⟨w, φ(x)⟩,

    .. math::

        \frac{1}{\sum_i c_i} \sum_i c_i\, (1 - m_i)_+ + \frac{\lambda}{2} \|w\|^2 .

    Step t = 1, 2, ... draws k samples with replacement, in proportion to their weights, and sets

    .. math::

        w \leftarrow \Bigl(1 - \frac1t\Bigr) w
        + \frac{1}{\lambda t k} \sum_{i : m_i < 1} y_i\, \varphi(x_i).

    With `project`, w is then projected onto the ball of radius 1/√λ, which contains the minimiser.
    The first iterate is w = 0. The original method has no stopping rule and takes `max_iter` steps;
    `tol` adds one. Several classes are fitted one against the rest, with the same draws. The result
    depends on `random_state`, and not on the order of the samples.

    Parameters
    ----------
    alpha : float, default=1e-3
        The penalty λ > 0.
    fit_intercept : bool, default=True
        Whether to fit an intercept b. The original method has none.
    penalise_intercept : bool, default=True
        Whether b is penalised and projected with w, as the coefficient of a constant column. The
        step size 1/(λt) relies on strong convexity, which the objective lacks without this penalty:
        the first steps of b are then large, and small λ need many steps to correct them.
    search_intercept : {"inner"} or False, default=False
        "inner" sets b to the exact minimiser of the objective for the current w before the first
        step, after 1, 2, 4, ... steps, at each checkpoint and for the result. Each time costs one
        pass over the data and one sort for each class. In between b takes steps like w. Use it
        with ``penalise_intercept=False``: on spambase with λ = 0.01 and 10,000 steps it lowers the
        mean excess of the objective over its minimum from 35 % to 10 %
        (``benchmarks/intercepts.py``).
    max_iter : int, default=100000
        The number of steps T. The objective is within ε of its minimum after a number of steps of
        order 1/(λε) [1]_.
    tol : float or None, default=None
        Stop if the objective changes by less than `tol` times its value during two successive
        doublings of the number of steps, and at least n_samples steps are taken. None takes all
        steps. For ``kernel="linear"`` only. Up to rounding the iterates are those without `tol`.
    batch_size : int, default=1
        The number k of samples drawn for a step.
    project : bool, default=False
        Whether to project after each step, as in the first version of the method.
    average : bool, default=False
        Whether the result is the mean of all iterates instead of the last one.
    kernel : {"linear", "poly", "rbf", "sigmoid", "precomputed"} or callable, default="linear"
        The kernel. A linear one is fitted in the space of the features, others as an expansion in
        training samples.
    gamma : float or {"scale", "auto"}, default="scale"
        Coefficient of the kernels "poly", "rbf" and "sigmoid". "scale" is
        1 / (n_features * weighted variance of X), "auto" is 1 / n_features.
    degree : int, default=3
        The degree of the kernel "poly".
    coef0 : float, default=0.0
        The constant of the kernels "poly" and "sigmoid".
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes; "balanced" gives all classes the same total weight.
    probability : "held_out" or None, default=None
        Where probabilities come from. "held_out" fits two more estimators, each to half of the
        rows, and a monotone link to the scores that they give the other half, as in
        :class:`MarginPursuitClassifier`; the fit then takes about twice as long. None: there is no
        `predict_proba`. No exact link is offered: the minimiser of this objective over all
        functions does not determine P(y | x). `partial_fit` needs None.
    checkpoints : array-like of int or None, default=None
        Increasing numbers of steps, up to `max_iter`, after which the current result is kept. For
        ``kernel="linear"`` only. Checkpoints after the step at which `tol` stops the fit hold the
        final result.
    n_threads : int or None, default=None
        The number of threads of predictions; by default one for each processor.
    random_state : int, RandomState instance, Generator or None, default=None
        Seed or generator of the draws.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The classes.
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Coefficients; with ``kernel="linear"`` only.
    dual_coef_ : ndarray of shape (1, n_support) or (n_classes, n_support)
        Coefficients of the expansion; with other kernels only.
    support_ : ndarray of shape (n_support,)
        Indices of the training samples of the expansion; with other kernels only.
    support_vectors_ : {ndarray, CSR matrix} of shape (n_support, n_features)
        These samples; with other kernels only, except "precomputed".
    gamma_ : float
        The coefficient of the kernel, if it has one.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Intercepts.
    coef_path_ : ndarray of shape (n_checkpoints, 1 or n_classes, n_features)
        Coefficients at the checkpoints, if there are any.
    intercept_path_ : ndarray of shape (n_checkpoints, 1 or n_classes)
        Intercepts at the checkpoints, if there are any.
    n_iter_ : int
        The number of steps taken.
    status_ : str
        How the fit ended.
    link_ : FittedLink
        The link, with ``probability="held_out"``.
    n_features_in_ : int
        The number of features.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, where X has names that are all strings.

    References
    ----------
    .. [1] S. Shalev-Shwartz, Y. Singer, N. Srebro, A. Cotter, "Pegasos: primal estimated
       sub-gradient solver for SVM", Mathematical Programming 127, 2011.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from marginpursuit import PegasosClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X = scale(X)
    >>> PegasosClassifier(alpha=0.01, random_state=0).fit(X, y).score(X, y) > 0.96
    True
    >>> model = PegasosClassifier(alpha=0.01, kernel="rbf", max_iter=2000, random_state=0)
    >>> model.fit(X, y).score(X, y) > 0.96
    True
    """

    n_iter_: int

    # Limits on the memory for kernel values.
    _kernel_storage: ClassVar[KernelStorage] = KernelStorage()

    _allowed: ClassVar[dict[str, Allowed]] = {
        "alpha": number("that is positive and finite", lambda x: 0 < x < np.inf),
        "fit_intercept": FLAG,
        "penalise_intercept": FLAG,
        "search_intercept": Allowed(
            "False or 'inner'",
            lambda x: x == "inner" if isinstance(x, str) else FLAG.test(x) and not x,
        ),
        "max_iter": whole(1),
        "tol": number("in (0, 1)", lambda x: 0 < x < 1).or_none(),
        "batch_size": whole(1),
        "project": FLAG,
        "average": FLAG,
        **KERNEL_PARAMETERS,
        "class_weight": CLASS_WEIGHT,
        "probability": PROBABILITY,
        "n_threads": whole(1, None),
        "random_state": RANDOM_STATE,
    }

    _private_state = ("_descents", "_random")

    def __init__(
        self,
        *,
        alpha: float = 1e-3,
        fit_intercept: bool = True,
        penalise_intercept: bool = True,
        search_intercept: str | bool = False,
        max_iter: int = 100_000,
        tol: float | None = None,
        batch_size: int = 1,
        project: bool = False,
        average: bool = False,
        kernel: Any = "linear",
        gamma: float | str = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        class_weight: Any = None,
        probability: str | None = None,
        checkpoints: ArrayLike | None = None,
        n_threads: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.penalise_intercept = penalise_intercept
        self.search_intercept = search_intercept
        self.max_iter = max_iter
        self.tol = tol
        self.batch_size = batch_size
        self.project = project
        self.average = average
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.class_weight = class_weight
        self.probability = probability
        self.checkpoints = checkpoints
        self.n_threads = n_threads
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> "PegasosClassifier":
        """Take `max_iter` steps from w = 0, or fewer if `tol` stops the fit.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training samples, of any real dtype; for ``kernel="precomputed"``, the kernel matrix.
        y : array-like of shape (n_samples,)
            Class of each sample.
        sample_weight : array-like of shape (n_samples,), optional
            Weights >= 0; a weight of 2 is the same as the row twice.

        Returns
        -------
        self : PegasosClassifier
            The fitted estimator.
        """
        checkpoints = self._check_parameters()
        self._reset()
        data = self._check_training(X, y, sample_weight)
        self._random = random_generator(self.random_state)
        self._refuse_missing(data.matrix)
        halves = self._halves_of(data)
        n_rows, n_columns = data.matrix.shape
        with np.errstate(all="ignore"):  # _descend checks that the result is finite
            if self._is_linear:
                self._begin(data, n_columns, () if checkpoints is None else checkpoints)
                coef, self.intercept_ = self._descend(data, self.max_iter, self.tol)
                self.coef_ = coef.T
                self._warn_if_above_zero(data)
            else:
                self._set_kernel(data)
                self._begin(data, n_rows)
                self._keep_expansion(data.matrix, *self._descend(data, self.max_iter))
        if not self._is_linear:
            del self._descents  # partial_fit is for linear kernels
        if checkpoints is not None:
            self._keep_path(checkpoints)
        self._fit_link(data, halves)
        return self

    def _warn_if_above_zero(self, data: TrainingData, max_rows: int = 10_000) -> None:
        """Warn where the objective exceeds 1, that of zero coefficients, on some of the rows.

        The steps of rows of length r are bounded by r/(α t): columns far from zero need more steps
        than were taken.
        """
        used = np.flatnonzero(data.weights > 0)
        rows = used[:: thinning(len(used), max_rows)]
        labels, weights = data.labels.take(rows), data.weights[rows]
        linear = self.coef_.T, self.intercept_
        with MemoryDesign(take_rows(data.matrix, rows)) as design:
            objectives = self._objectives(design, labels, weights, linear, weights.sum())
        if np.max(objectives) > 1.0:
            warn(
                f"{type(self).__name__} {Status.ALL_STEPS.value}, and its objective, "
                f"{np.max(objectives):.3g}, is above 1, that of zero coefficients. Standardise the "
                "columns of X, or set a larger max_iter or alpha.",
                ConvergenceWarning,
            )

    def _keep_path(self, checkpoints: NDArray[np.intp]) -> None:
        """Set `coef_path_` and `intercept_path_`."""
        self.coef_path_ = np.stack([descent.path for descent in self._descents], axis=1)
        self.intercept_path_ = np.stack([d.path_intercept for d in self._descents], axis=1)
        self.coef_path_[checkpoints > self.n_iter_] = self.coef_
        self.intercept_path_[checkpoints > self.n_iter_] = self.intercept_

    @available_if(_can_stream)  # type: ignore[untyped-decorator]
    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> "PegasosClassifier":
        """Take further steps with samples drawn from one batch of a stream.

        The number of steps is n_samples / batch_size, rounded up. The step number t continues from
        the preceding calls of `fit` or `partial_fit`.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            The samples of the batch.
        y : array-like of shape (n_samples,)
            Their classes.
        classes : array-like of shape (n_classes,), optional
            All classes of the stream; required in the first call, unless it follows `fit`.
        sample_weight : array-like of shape (n_samples,), optional
            Weights >= 0, normalised within the batch.

        Returns
        -------
        self : PegasosClassifier
            The estimator.
        """
        self._check_parameters()
        if not hasattr(self, "_descents"):
            if classes is None:
                raise ValueError("classes must be passed on the first call to partial_fit.")
            self._reset()
            self._random = random_generator(self.random_state)
        data = self._check_batch(X, y, classes, sample_weight)
        with np.errstate(all="ignore"):
            if not hasattr(self, "_descents"):
                self._begin(data, self.n_features_in_)
            coef, self.intercept_ = self._descend(data, -(-len(data.weights) // self.batch_size))
        self.coef_ = coef.T
        self.__dict__.pop("link_", None)  # that of the coefficients before
        return self

    def _check_parameters(self) -> NDArray[np.intp] | None:
        """Check the parameters; return the checkpoints."""
        check_parameters(self, self._allowed)
        if self.tol is not None and not self._is_linear:
            raise ValueError(
                f"tol={self.tol!r} needs kernel='linear'; got kernel={self.kernel!r}. Set tol=None."
            )
        if self.checkpoints is None:
            return None
        if not self._is_linear:
            raise ValueError(
                f"checkpoints need kernel='linear'; got kernel={self.kernel!r}. Set "
                "checkpoints=None."
            )
        return ascending_counts("checkpoints", self.checkpoints, self.max_iter)

    def _begin(self, data: TrainingData, n_coefficients: int, checkpoints: Any = ()) -> None:
        """Start one descent for each binary problem, at w = 0."""
        self._descents = [
            Descent(
                HingeLoss(),
                np.empty(0),
                rate=1.0 / self.alpha,
                decay=1.0,
                coef=np.zeros(n_coefficients),
                radius=1.0 / float(np.sqrt(self.alpha)) if self.project else np.inf,
                batch=self.batch_size,
                fit_intercept=self.fit_intercept,
                penalise_intercept=self.fit_intercept and self.penalise_intercept,
                total=np.zeros(n_coefficients) if self.average else None,
                marks=np.asarray(checkpoints, np.intp),
                path=np.zeros((len(checkpoints), n_coefficients)),
                path_intercept=np.zeros(len(checkpoints)),
            )
            for _ in data.labels.positive_classes
        ]

    def _descend(self, data: TrainingData, n_steps: int, tol: float | None = None) -> Linear:
        """Take steps with rows of these data; return coefficients and intercepts."""
        labels = data.labels
        for descent, positive in zip(self._descents, labels.positive_classes, strict=True):
            descent.sign = labels.sign(positive)
        with MemoryDesign(data.matrix) as design:
            order = canonical_order(design, labels.codes, self._random)
            sampler = RowSampler(data.weights, self._random, order)
            rows: MemoryDesign | KernelRows = design
            if not self._is_linear:
                rows = KernelRows(self._kernel_of(data), design.n_rows, self._kernel_storage)
            search = self._intercept_search(rows, data.weights)
            criterion = None if tol is None else StoppingCriterion(tol, design.n_rows)
            status = Status.ALL_STEPS
            for more in doubling_stages(n_steps) if search or criterion else (n_steps,):
                if search:
                    search.update()
                take_steps(rows, self._descents, sampler, more)
                if criterion is None:
                    continue
                linear = self._current(search)
                objectives = self._objectives(design, labels, data.weights, linear)
                if criterion.is_met(self._descents[0].t, objectives):
                    status = Status.CONVERGED
                    break
            coef, intercept = self._current(search)
            if search:
                search.update_path()
        for descent in self._descents:  # the next batch has other labels
            descent.sign = np.empty(0)
        self.n_iter_, self.status_ = self._descents[0].t, status.value
        if not (np.all(np.isfinite(coef)) and np.all(np.isfinite(intercept))):
            self._reset()
            raise OverflowError(
                "coefficients exceed the largest float: the columns of X are too large, or "
                f"alpha={self.alpha!r} is too small. Rescale the columns, or set a larger alpha."
            )
        return coef, intercept

    def _intercept_search(
        self, rows: MemoryDesign | KernelRows, weights: FloatArray
    ) -> InterceptSearch | None:
        if not (self.fit_intercept and self.search_intercept):
            return None
        penalty = self.alpha * self.penalise_intercept
        return InterceptSearch(rows, weights, penalty, self._descents)

    def _current(self, search: InterceptSearch | None) -> Linear:
        """Return the coefficients and intercepts after the last step."""
        points = [descent.point() for descent in self._descents]
        coef = np.column_stack([w for w, _ in points])
        return coef, search.best(coef) if search else np.array([b for _, b in points])

    def _objectives(
        self,
        design: MemoryDesign,
        labels: Labels,
        weights: FloatArray,
        linear: Linear,
        total_weight: float = 1.0,
    ) -> FloatArray:
        """Return the objective of each binary problem, for weights with this sum."""
        coef, intercept = linear
        sign = np.column_stack([labels.sign(positive) for positive in labels.positive_classes])
        margins = sign * design.scores(coef, intercept)
        losses = HingeLoss().value(np.where(np.isnan(margins), -np.inf, margins))  # an overflow
        square = np.sum(coef**2, axis=0) + self.penalise_intercept * intercept**2
        return np.asarray(weights @ losses / total_weight + 0.5 * self.alpha * square)

    def _kernel_of(self, data: TrainingData) -> Callable[..., FloatArray]:
        """Return the function that computes the kernel between rows of these data by index."""

        def kernel(a: NDArray[np.intp], b: NDArray[np.intp]) -> FloatArray:
            if self._is_precomputed:
                values = self._kernel_matrix(data.matrix[a][:, b], None)
            else:
                values = self._kernel_matrix(data.matrix[a], data.matrix[b])
            if not np.all(np.isfinite(values)):
                raise OverflowError(
                    "X is too large for this kernel: kernel values exceed the largest float. "
                    "Scale the columns."
                )
            return values

        return kernel
