"""Pegasos, the stochastic sub-gradient method for support vector machines."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.metaestimators import available_if

from marginpursuit._kernels import Descent
from marginpursuit._validation import FloatArray
from marginpursuit.classifiers._base import TrainingData
from marginpursuit.classifiers._kernel_expansion import KERNEL_PARAMETERS, KernelClassifier
from marginpursuit.classifiers._parameters import (
    CLASS_WEIGHT,
    FLAG,
    RANDOM_STATE,
    Allowed,
    check_parameters,
    number,
    one_of,
    whole,
)
from marginpursuit.design import Linear, MemoryDesign
from marginpursuit.losses import HingeLoss
from marginpursuit.solvers import Status
from marginpursuit.solvers.intercept_search import InterceptSearch
from marginpursuit.solvers.kernel_descent import KernelRows, take_steps
from marginpursuit.solvers.stochastic import (
    Draws,
    Settling,
    checked_counts,
    doublings,
    own_order,
    random_source,
)

__all__ = ["PegasosClassifier"]

_SHARE = number("in (0, 1)", lambda x: 0 < x < 1)
_SEARCH = one_of(("inner", "outer"))
_ALLOWED = {
    "alpha": number("that is positive and finite", lambda x: 0 < x < np.inf),
    "fit_intercept": FLAG,
    "penalise_intercept": FLAG,
    "search_intercept": Allowed(
        f"False, or {_SEARCH.words}", lambda x: (FLAG.test(x) and not x) or _SEARCH.test(x)
    ),
    "max_iter": whole(1),
    "tol": Allowed("None or a number in (0, 1)", lambda x: x is None or _SHARE.test(x)),
    "batch_size": whole(1),
    "project": FLAG,
    "average": FLAG,
    **KERNEL_PARAMETERS,
    "class_weight": CLASS_WEIGHT,
    "n_threads": whole(1, None),
    "random_state": RANDOM_STATE,
}


def _can_stream(estimator: Any) -> bool:
    """Whether the parameters are such that batches can be taken one by one."""
    if isinstance(estimator.class_weight, str):
        raise AttributeError(
            "partial_fit cannot balance classes that are still to come; got class_weight="
            f"{estimator.class_weight!r}"
        )
    if estimator.search_intercept:
        raise AttributeError(
            "partial_fit cannot search the intercept that is best for samples still to come; got "
            f"search_intercept={estimator.search_intercept!r}"
        )
    if not estimator._is_linear:
        raise AttributeError(f"partial_fit needs kernel='linear'; got {estimator.kernel!r}")
    return True


class PegasosClassifier(KernelClassifier):
    r"""Support vector machine by stochastic sub-gradient steps of length 1/(λt).

    Minimises, over vectors w of the feature space of a kernel, with weights c and margins
    m = y ⟨w, φ(x)⟩,

    .. math::

        \frac{1}{\sum_i c_i} \sum_i c_i\, (1 - m_i)_+ + \frac{\lambda}{2} \|w\|^2 .

    Step t = 1, 2, ... draws k samples with replacement, in proportion to their weights, and sets

    .. math::

        w \leftarrow \Bigl(1 - \frac1t\Bigr) w
        + \frac{1}{\lambda t k} \sum_{i : m_i < 1} y_i\, \varphi(x_i),

    then may project onto the ball of radius 1/√λ, in which the minimum lies. It begins with w = 0,
    which the first step forgets in any case, and takes `max_iter` steps, as the original method has
    no stopping rule; `tol` sets one. Several classes are fitted one against the rest, all along the
    same draws. The result depends on `random_state`, and not on the order of the samples.

    Parameters
    ----------
    alpha : float, default=1e-3
        The penalty λ > 0.
    fit_intercept : bool, default=True
        Whether to fit an intercept b. The original method has none.
    penalise_intercept : bool, default=True
        Whether b is penalised and projected with w, as the coefficient of a column of ones. Without
        that the objective is not strongly convex, which the length of the steps relies on: b then
        takes large first steps, and long to recover from them where λ is small.
    search_intercept : {"inner", "outer"} or False, default=False
        Whether b is also set to the minimiser of the objective for the w that is found, which is
        exact and costs a read of all data and a sort for each class. With "inner" that happens
        before the first step, after 1, 2, 4, ... steps, and for the result and each checkpoint;
        between these b takes steps as w does. It rids an intercept without penalty of its first
        steps. With "outer" b takes no steps: bisection finds the b for which the derivative of the
        objective in b is zero in the mean of all `max_iter` steps, along the same draws for each b;
        for the result b is then set once more. That is about thirteen fits in turn, and two more
        each time that b doubles beyond 1, so scale the columns. It keeps the rate of the steps
        without a penalty of b, but as many steps with an inner search come nearer the minimum.
    max_iter : int, default=100000
        The number of steps T, for each b of an outer search. An objective within ε of the minimum
        takes a number of the order 1/(λε) [1]_.
    tol : float or None, default=None
        The fit stops where the objective has changed by less than this share of its value each
        time that the number of steps doubled, twice in a row, and after at least as many steps as
        there are samples; None takes all steps. Of ``kernel="linear"`` only, and not of an outer
        search. Until it stops the steps are the same as without, but for rounding.
    batch_size : int, default=1
        The number k of samples of a step.
    project : bool, default=False
        Whether to project; a part of the first version of the method, optional in the later one.
    average : bool, default=False
        Whether the result is the mean of all iterates rather than the last one.
    kernel : {"linear", "poly", "rbf", "sigmoid", "precomputed"} or callable, default="linear"
        The kernel. A linear one is fitted in the space of the features, others as an expansion in
        training samples.
    gamma : float or {"scale", "auto"}, default="scale"
        The factor in the kernels "poly", "rbf" and "sigmoid": 1 / (number of features · variance of
        all entries of X), or 1 / number of features, or a number.
    degree : int, default=3
        The degree of the kernel "poly".
    coef0 : float, default=0.0
        The constant in the kernels "poly" and "sigmoid".
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes; "balanced" gives all classes the same total weight.
    checkpoints : array-like of int or None, default=None
        Numbers of steps, rising, up to `max_iter`, after which the result so far is kept; of
        ``kernel="linear"`` only, and not of an outer search. Those beyond where `tol` stops the fit
        hold its result.
    n_threads : int or None, default=None
        The number of threads of predictions; by default one for each processor.
    random_state : int, RandomState instance, Generator or None, default=None
        Seed or source of the draws.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The classes.
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Coefficients; of ``kernel="linear"`` only.
    dual_coef_ : ndarray of shape (1, n_support) or (n_classes, n_support)
        Coefficients of the expansion; of other kernels only.
    support_ : ndarray of shape (n_support,)
        The training samples that take part in the expansion; likewise.
    support_vectors_ : {ndarray, CSR matrix} of shape (n_support, n_features)
        Their features; likewise, and not with ``kernel="precomputed"``.
    gamma_ : float
        The factor in the kernel; likewise.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Intercepts.
    coef_path_ : ndarray of shape (n_checkpoints, 1 or n_classes, n_features)
        Coefficients at the checkpoints, if there are any.
    intercept_path_ : ndarray of shape (n_checkpoints, 1 or n_classes)
        Intercepts at the checkpoints, if there are any.
    n_iter_ : int
        The number of steps taken, for all b of an outer search together.
    status_ : str
        How the fit ended.
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
        self.checkpoints = checkpoints
        self.n_threads = n_threads
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> "PegasosClassifier":
        """Take `max_iter` steps from zero, or as many as `tol` asks for.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training samples, of any real dtype; for ``kernel="precomputed"``, all values of the
            kernel between them.
        y : array-like of shape (n_samples,)
            Class of each sample.
        sample_weight : array-like of shape (n_samples,), optional
            Weights >= 0; a weight of 2 is the same as the row twice.

        Returns
        -------
        self : PegasosClassifier
            The fitted estimator.
        """
        marks = self._check_parameters()
        self._forget()
        data = self._check_training(X, y, sample_weight)
        self._random = random_source(self.random_state)
        self._refuse_missing(data.matrix)
        n_rows, n_columns = data.matrix.shape
        with np.errstate(all="ignore"):  # what goes wrong is seen in the result
            if self._is_linear:
                self._begin(data, n_columns, () if marks is None else marks)
                coef, self.intercept_ = self._descend(data, self.max_iter, self.tol)
                self.coef_ = coef.T
            else:
                self._set_kernel(data)
                self._begin(data, n_rows)
                self._keep_expansion(data.matrix, *self._descend(data, self.max_iter))
        if not self._is_linear or self.search_intercept == "outer":
            del self._descents  # no batch can follow
        if marks is not None:
            paths = [descent.path for descent in self._descents]
            self.coef_path_ = np.stack(paths, axis=1)
            self.intercept_path_ = np.stack([d.path_intercept for d in self._descents], axis=1)
            self.coef_path_[marks > self.n_iter_] = self.coef_
            self.intercept_path_[marks > self.n_iter_] = self.intercept_
        return self

    @available_if(_can_stream)  # type: ignore[untyped-decorator]
    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> "PegasosClassifier":
        """Take further steps, along samples of one batch of a stream.

        So many are taken that `n_samples` are drawn, as in `fit`. What went before, be it `fit` or
        other batches, is continued.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            The samples of the batch.
        y : array-like of shape (n_samples,)
            Their classes.
        classes : array-like of shape (n_classes,), optional
            All classes of the stream; needed in the first call only, and not after `fit`.
        sample_weight : array-like of shape (n_samples,), optional
            Weights >= 0, which count within the batch.

        Returns
        -------
        self : PegasosClassifier
            The estimator.
        """
        self._check_parameters()
        if not hasattr(self, "_descents"):
            if classes is None:
                raise ValueError("classes must be passed on the first call to partial_fit.")
            self._forget()
            self._random = random_source(self.random_state)
        data = self._check_batch(X, y, classes, sample_weight)
        with np.errstate(all="ignore"):
            if not hasattr(self, "_descents"):
                self._begin(data, self.n_features_in_)
            coef, self.intercept_ = self._descend(data, -(-len(data.weights) // self.batch_size))
        self.coef_ = coef.T
        return self

    def _check_parameters(self) -> NDArray[np.intp] | None:
        """Check the parameters; return the checkpoints."""
        check_parameters(self, _ALLOWED)
        if self.search_intercept == "outer":
            for name in ("tol", "checkpoints"):
                if getattr(self, name) is not None:
                    raise ValueError(f"{name} cannot go with search_intercept='outer'")
        if self.tol is not None and not self._is_linear:
            raise ValueError(f"tol needs kernel='linear'; got kernel={self.kernel!r}")
        if self.checkpoints is None:
            return None
        if not self._is_linear:
            raise ValueError(f"checkpoints need kernel='linear'; got kernel={self.kernel!r}")
        return checked_counts("checkpoints", self.checkpoints, self.max_iter)

    def _forget(self) -> None:
        super()._forget()
        for name in ("_descents", "_random"):
            self.__dict__.pop(name, None)

    def _begin(self, data: TrainingData, n_coefficients: int, marks: Any = ()) -> None:
        """Set one descent for each problem to w = 0."""
        moves = self.fit_intercept and self.search_intercept != "outer"
        self._descents = [
            Descent(
                HingeLoss(),
                np.empty(0),
                rate=1.0 / self.alpha,
                decay=1.0,
                coef=np.zeros(n_coefficients),
                radius=1.0 / float(np.sqrt(self.alpha)) if self.project else np.inf,
                batch=self.batch_size,
                fit_intercept=moves,
                penalise_intercept=moves and self.penalise_intercept,
                total=np.zeros(n_coefficients) if self.average else None,
                marks=np.asarray(marks, np.intp),
                path=np.zeros((len(marks), n_coefficients)),
                path_intercept=np.zeros(len(marks)),
            )
            for _ in data.labels.positive_classes
        ]

    def _descend(self, data: TrainingData, n_steps: int, tol: float | None = None) -> Linear:
        """Take steps along rows of these data; return what is learnt so far."""
        labels, status = data.labels, Status.ALL_STEPS
        for descent, name in zip(self._descents, labels.positive_classes, strict=True):
            descent.sign = labels.sign(name)
        with MemoryDesign(data.matrix) as design:
            order = own_order(design, labels.codes, self._random)
            draws = Draws(data.weights, self._random, order)
            rows = design if self._is_linear else KernelRows(self._kernel_of(data), design.n_rows)
            search, n_before = None, 0
            if self.fit_intercept and self.search_intercept:
                penalty = self.alpha * self.penalise_intercept
                search = InterceptSearch(rows, data.weights, penalty, self._descents)
            inner = search if self.search_intercept == "inner" else None
            if search and not inner:
                n_before = search.fix(draws, n_steps)
            settling = None if tol is None else Settling(tol, design.n_rows)
            for more in doublings(n_steps) if inner or settling else (n_steps,):
                if inner:
                    inner.update()
                take_steps(rows, self._descents, draws, more)
                if settling and settling.look(
                    self._descents[0].t, self._objectives(design, data.weights, self._point(search))
                ):
                    status = Status.CONVERGED
                    break
            coef, intercept = self._point(search)
            if search:
                search.update_path()
        for descent in self._descents:  # the labels of these data are not to be remembered
            descent.sign = np.empty(0)
        self.n_iter_, self.status_ = n_before + self._descents[0].t, status.value
        if not (np.all(np.isfinite(coef)) and np.all(np.isfinite(intercept))):
            self._forget()
            raise OverflowError(
                f"the columns of X need another unit, or alpha={self.alpha!r} is too small: "
                "coefficients exceed the largest float"
            )
        return coef, intercept

    def _point(self, search: InterceptSearch | None) -> Linear:
        """Return what is learnt so far."""
        points = [descent.point() for descent in self._descents]
        coef = np.column_stack([w for w, _ in points])
        return coef, search.best(coef) if search else np.array([b for _, b in points])

    def _objectives(self, design: MemoryDesign, weights: FloatArray, point: Linear) -> FloatArray:
        """Return what is minimised, for each problem."""
        coef, intercept = point
        sign = np.column_stack([descent.sign for descent in self._descents])
        losses = HingeLoss().value(sign * design.scores(coef, intercept))
        square = np.sum(coef**2, axis=0) + self.penalise_intercept * intercept**2
        return np.asarray(weights @ losses + 0.5 * self.alpha * square)

    def _kernel_of(self, data: TrainingData) -> Callable[..., FloatArray]:
        """Return the kernel between rows of these data, by their numbers."""

        def kernel(a: NDArray[np.intp], b: NDArray[np.intp]) -> FloatArray:
            if self._is_precomputed:
                values = self._kernel_matrix(data.matrix[a][:, b], None)
            else:
                values = self._kernel_matrix(data.matrix[a], data.matrix[b])
            if not np.all(np.isfinite(values)):
                raise OverflowError("X is too large for this kernel: its values exceed all floats")
            return values

        return kernel
