"""The classifier with a margin loss: a convex objective, minimised to a given tolerance."""

import os
from copy import copy
from dataclasses import replace
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning

from marginpursuit._namespaces import to_host, to_numpy
from marginpursuit._threads import Threads, usable_threads
from marginpursuit._validation import FloatArray
from marginpursuit.classifiers._base import ProbabilityMixin, TrainingData
from marginpursuit.classifiers._checkpoint import Checkpoint, data_digests
from marginpursuit.classifiers._finite import range_error
from marginpursuit.classifiers._half_fits import (
    HalfFits,
    chosen_fits,
    half_fits,
    label_subset,
    penalty_factors,
    solve_with_half_fits,
)
from marginpursuit.classifiers._kernel_fit import fit_with_kernel
from marginpursuit.classifiers._kernel_map import MappedKernelClassifier
from marginpursuit.classifiers._label_links import LabelLinks
from marginpursuit.classifiers._leave_one_out import leave_one_out_fits
from marginpursuit.classifiers._leverage import bounded_weights
from marginpursuit.classifiers._link import ExactLabelLink, ExactLink, FittedLink, Link
from marginpursuit.classifiers._margins import MarginStatisticsMixin, training_margins
from marginpursuit.classifiers._parameters import (
    ALPHA_UNITS,
    FIT_PARAMETERS,
    FLAG,
    KERNEL_PARAMETERS,
    LABEL_CLASS_WEIGHT,
    LEVERAGE_BOUND,
    RANDOM_STATE,
    SCALE_RULES,
    Allowed,
    ScaleIteration,
    check_kernel_options,
    check_parameters,
    convergence_message,
    first_scale,
    number,
    one_of,
    penalty,
    resolve_alpha_unit,
    whole,
)
from marginpursuit.classifiers._partial_fit import StreamingClassifier
from marginpursuit.classifiers._progress import (
    CallbackSupportMixin,
    Reporter,
    warn,
    with_callbacks,
)
from marginpursuit.classifiers._small_table import fit_small_table
from marginpursuit.design import Design, Linear, design_for
from marginpursuit.losses import RHOS, JointLoss, MarginLoss
from marginpursuit.solvers import (
    CONCURRENT_SOLVERS,
    FOLD_SOLVERS,
    SOLVERS,
    Prepared,
    Problem,
    Request,
    Solution,
    Solver,
    continue_with_gram,
    plan,
    steps_before_gram,
)
from marginpursuit.tasks import JointTasks, Labels, LabelSets, Tasks, value_at_zero

__all__ = ["MarginPursuitClassifier"]

#: Elements of dense rows, times the classes or labels that are fitted, from which a fit has several
#: threads. Below, a second one saves at most 7 % of the time, and costs 6 to 10 % where threads of
#: a BLAS still wait for work after another call (protein 4,000 x 74, digit5 400 x 784;
#: benchmarks/tables.py).
_MIN_THREADED_ELEMENTS = 1 << 19


class MarginPursuitClassifier(
    CallbackSupportMixin,  # type: ignore[misc]
    ProbabilityMixin,
    MarginStatisticsMixin,
    MappedKernelClassifier,
    StreamingClassifier,
):
    r"""Linear or kernel classifier that limits the influence of outliers and wrong labels.

    The margin of a sample with label y in {-1, +1} is m = y (x·w + b): positive if the sample is
    classified correctly. The coefficients w and the intercept b minimise

    .. math::

        \frac{1}{\sum_i c_i} \sum_i c_i\, \varphi(m_i) + \frac{\alpha}{2} \|w\|^2,

    with sample weights c. The loss φ is a function ρ of the residual γ - m
    (:class:`~marginpursuit.losses.MarginLoss`): its level γ is `margin`, its scale s is `scale`,
    and the weight τ of margins above the level is `overconfidence`. The intercept is not penalised.
    The :doc:`user guide </guide/margins>` has pictures.

    Columns are standardised algebraically, without a copy of X. With the default penalty the
    predictions for dense data depend neither on the unit nor on the origin of a column.

    `as_published` has the loss and, up to a robust variance, the scale of the paper [1]_.
    :class:`~marginpursuit.MarginPursuitClassifierCV` chooses hyper-parameters by cross-validation.

    Parameters
    ----------
    margin : float, default=1.0
        The level γ > 0 at which the loss is least. Leave it at 1: with a negligible penalty the
        predictions depend only on the ratio of scale to margin.
    scale : float or {"auto", "variance", "confidence", "quantile"}, default=1.0
        The scale s > 0. The influence of a residual γ - m grows about linearly up to s; with the
        default `rho` it is constant from √2 s on. Smaller values give misclassified samples less
        influence; try 0.1 to 3. The rules "auto", "variance", "confidence" and "quantile" compute s
        from the margins, by several fits (:doc:`/guide/parameters`).
    overconfidence : float, default=0.0
        The weight τ in [0, 1] of margins above the level: 0 ignores them, as the hinge loss does; 1
        is the loss of the paper.
    rho : {"catoni", "pseudo_huber", "log_cosh", "huber", "square"}, default="catoni"
        The function ρ of the loss, a name in :data:`~marginpursuit.losses.RHOS`. "catoni" is that
        of the paper. All but "square" have a bounded derivative, which makes the fit robust;
        "square" is weighted least squares.
    alpha : float, "auto" or "negligible", default="auto"
        The penalty α >= 0 of the squared coefficients, in the unit `alpha_unit`. Increase it where
        there are hardly more samples than columns, or labels are noisy.

        - "auto": 0.3/n, with n the sum of the sample weights, or the number of samples with
          positive weight if that is larger. With fewer than 32 samples per column it is chosen
          among 0.1/n, 0.3/n, 1/n and 3/n by the log-loss of held-out samples
          (:doc:`/guide/parameters`). With a kernel all these are a third as large.
        - "negligible": 1e-6 for the coefficients of standardised columns, whatever `alpha_unit` is.
          It determines only coefficients that the data leave undetermined.
    kernel : {"linear", "rbf", "poly", "sigmoid", "precomputed"} or callable, default="linear"
        "linear" draws a flat boundary; the others draw curved ones (:doc:`/guide/kernels`). "rbf"
        is exp(-γ‖x - x'‖²), "poly" (γ x·x' + c)^k and "sigmoid" tanh(γ x·x' + c), with γ, k and c
        the next three parameters. A callable returns the kernel of all rows of one matrix with all
        rows of another. For "precomputed", X is the kernel of all samples with the training
        samples. Standardise columns of different units first.
    gamma : float or {"scale", "auto"}, default="scale"
        The factor γ of the kernels "rbf", "poly" and "sigmoid". "scale" is 1/(d v), with d columns
        and the variance v of all entries of X, "auto" is 1/d.
    degree : int, default=3
        The degree k of the kernel "poly".
    coef0 : float, default=0.0
        The constant c of the kernels "poly" and "sigmoid".
    n_components : int or None, default=None
        With a kernel, the number of landmarks: training samples in which the score is expanded. All
        of them give an exact fit; fewer its Nyström approximation, in time proportional to
        n_samples · n_components². None is all samples up to 10,000, and 1,000 beyond or for rows in
        blocks.
    alpha_unit : {"auto", "absolute", "standardised", "inflated", "common", "row"}, default="auto"
        The unit of `alpha`, in place of ‖w‖², with d columns and v_j the variance of column j
        (without an intercept its mean square):

        - "standardised": d Σ_j v_j w_j², for columns of different units;
        - "inflated": the same, times a factor that grows with the kurtosis of the column, for few
          samples: columns whose variance few samples determine are shrunk more;
        - "common": (Σ_j v_j) ‖w‖², for columns of the same unit;
        - "row": q ‖w‖², with q the lower quartile of the squared norms of the rows; with a kernel,
          the median of those in its feature space;
        - "absolute": ‖w‖²;
        - "auto": "row" for sparse data and kernels, "inflated" with fewer than 32 samples per
          column, otherwise "standardised". "common" for ``solver="stochastic"`` and for
          `partial_fit` with sparse data; "standardised" for `partial_fit` with dense data.
    leverage_bound : float or None, default=1.0
        Samples at more than `leverage_bound` times the median distance from the centre get weights
        in inverse proportion to their distance; the total weight of each class is unchanged. Set a
        larger number, or None as in the paper, if samples far away are correct. Distances are those
        of standardised columns, norms for sparse rows, and √K(x, x) for kernels. "rbf" takes the
        distance from the mean of the columns as they are, and reduces weights far away faster
        (:doc:`/guide/kernels`). The default costs up to three passes over the data, and more where
        dense rows are far away.
    multi_class : {"auto", "joint", "ovr", "ovo"}, default="auto"
        How three classes or more are fitted (:doc:`/guide/classes`):

        - "joint": one problem, with the loss of the score of each sample's class less a smooth
          maximum of the others (:class:`~marginpursuit.losses.JointLoss`). It needs
          ``overconfidence=0``;
        - "ovr": each class against the rest;
        - "ovo": each pair of classes, for kernels; the scores of classes are logarithms of their
          probabilities by pairwise coupling [2]_. It needs all samples as landmarks, in memory, a
          number as `scale` and a positive penalty;
        - "auto": "ovo" for such fits of up to 2,000 samples with ``n_components=None``; otherwise
          "joint" where overconfidence is 0 and the solver supports it, and "ovr" where not. The
          solvers "dual" (that of sparse wide rows), "steepest" and "stochastic", and `partial_fit`,
          fit "ovr".
    probability : {"held_out", "exact"} or None, default="held_out"
        The link from scores to probabilities (:doc:`/guide/probabilities`).

        - "held_out": an increasing function, fitted to held-out scores: each half of the samples is
          scored by a fit to the other half. This costs about as much as the fit itself. Where
          samples of two classes are many, approximate leave-one-out scores cost at most one pass.
          Probabilities are strictly inside (0, 1), and the most probable class is the prediction.
          If fewer than two classes have four distinct samples, the logit is 3/γ times the score.
          The solvers "steepest" and "stochastic" use the exact link. `partial_fit` keeps the link
          of its last exact fit.
        - "exact": the link of the loss. It is right if the score minimises the expected loss over
          all functions, and overconfident for a linear score on few samples.
        - None: no probabilities. This saves the half fits, unless they choose the penalty.
    fit_intercept : bool, default=True
        Whether to fit b.
    solver : {"auto", "newton", "gram", "lbfgs", "dual", "steepest", "stochastic"}, default="auto"
        The algorithm (:doc:`/guide/solvers`). Leave it at "auto", which chooses by the shape of the
        data; `verbose=1` prints the choice with its reason. "steepest" is the paper's Algorithm 1
        with `max_iter` steps. "stochastic" is the learner of its experiments, with `max_iter` steps
        of one sample each (:func:`~marginpursuit.solvers.stochastic_margin_pursuit` has all its
        options). A solver that does not support the data, loss or penalty raises a ValueError that
        states the reason.
    max_iter : int, default=1000
        The maximum number of iterations of the solver.
    tol : float, default=1e-4
        The relative suboptimality (:doc:`/glossary`) at which the solver stops: the objective less
        its minimum, bounded or estimated, relative to the objective. A fit that ends above it
        warns. Set 1e-6 to compare coefficients; the test error hardly changes.
        "steepest" takes all steps. "stochastic" stops after at least one step for each sample, if
        the relative change of the objective was below `tol` the last two times that the number of
        steps doubled.
    class_weight : dict, list of dict, "balanced" or None, default=None
        Weights of the classes; "balanced" gives all classes the same total weight. With several
        labels, a dict has the weights of rows without and with a label, under the keys 0 and 1, and
        a list has a dict for each label. The weights of a label are divided by their sum: they do
        not change the penalty. They take 8 bytes for each row and label.
    warm_start : bool, default=False
        Whether to start from the coefficients of the previous fit; with a kernel, from its scores.
        Fits of one class against one do not use it.
    n_threads : int or None, default=None
        The largest number of threads; None uses one for each processor. Results do not depend on
        it.
    random_state : int, RandomState instance, Generator or None, default=None
        Seed or generator of ``solver="stochastic"``; other solvers do not use it.
    checkpoint : path-like or None, default=None
        A file to which `fit` writes coefficients, scale and iteration after each iteration. An
        interrupted fit resumes from it when `fit` is called again with the same data and
        parameters; a fit that ends removes the file. `partial_fit` and fits of one class against
        one do not use it.
    verbose : int, default=0
        Whether to print the chosen solver, with the reason, and a line for each iteration.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The classes; with several labels, the numbers of their columns.
    multilabel_ : bool
        Whether `y` was an indicator matrix.
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Coefficients, for X as given; with several labels, one row for each. Fits with a kernel have
        the next five attributes instead.
    dual_coef_ : ndarray of shape (1, n_support) or (n_classes, n_support)
        Coefficients c of the kernel expansion. With one class against one, row k has those of the
        fits against class k, positive where a row raises the score of its own class: the score of
        the pair a < b is the expansion in the rows of class a with row b, less that in the rows of
        class b with row a, plus the intercept of the pair. It is positive for class a.
    support_ : ndarray of shape (n_support,)
        The training rows of the expansion; with one class against one, sorted by class.
    n_support_ : ndarray of shape (n_classes,)
        With one class against one, the number of these rows of each class.
    support_vectors_ : {ndarray, sparse matrix} of shape (n_support, n_features)
        These rows; absent for ``kernel="precomputed"``.
    gamma_ : float
        The factor γ of the kernel; absent for ``kernel="precomputed"``.
    intercept_ : ndarray of shape (1,), (n_classes,) or (n_classes * (n_classes - 1) / 2,)
        Intercepts; with one class against one, those of the pairs (0, 1), (0, 2) and so on.
    alpha_ : float
        The penalty α of the fit.
    multi_class_ : str
        "joint", "ovr" or "ovo": how the classes were fitted; "ovr" with two classes.
    scale_ : float
        The scale s of the fit.
    objective_ : float
        The minimum, summed over the binary problems.
    margin_location_ : ndarray of shape (1,) or (n_classes,)
        Catoni's estimate of the location of the training margins, at the scale of the fit; one
        number for a joint loss, which has one margin per row, and for one class against one, where
        a margin is the score of the class of a row less the largest of the others.
    margin_statistics_ : MarginStatistics
        Location, mean, variance, skewness and quantiles of the training margins; computed when
        first read.
    link_ : FittedLink, LabelLinks or None
        The link of ``probability="held_out"``; that of several labels has
        `decision_probability`, above which a label is predicted. None where the exact link is used.
    n_iter_ : int
        Iterations of the solver, summed over the fits of a scale rule; the maximum of the classes.
    n_passes_ : int
        Passes over the data, summed over the fits of a scale rule and the half fits.
    n_features_in_ : int
        The number of features.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if X has names that are all strings.

    References
    ----------
    .. [1] M. J. Holland, "Classification using margin pursuit", AISTATS 2019, arXiv:1810.04863.
    .. [2] T.-F. Wu, C.-J. Lin, R. C. Weng, "Probability estimates for multi-class classification by
       pairwise coupling", JMLR 5, 2004; its second method.

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

    _accepts_blocks = True
    _accepts_device_arrays = True
    _accepts_label_sets = True

    _search: Any = None  # during the refit of a search, which warnings name instead

    _allowed: ClassVar[dict[str, Allowed]] = {
        "margin": number("in [1e-100, 1e+100]", lambda x: 1e-100 <= x <= 1e100),  # γ² is a float
        "scale": number("that is positive and finite", lambda x: 0 < x < np.inf, SCALE_RULES),
        "overconfidence": number("in [0, 1]", lambda x: 0 <= x <= 1),
        "rho": one_of(RHOS),
        "alpha": number(
            "that is finite and >= 0", lambda x: 0 <= x < np.inf, ["auto", "negligible"]
        ),
        **KERNEL_PARAMETERS,
        "n_components": whole(1, None),
        "alpha_unit": one_of(["auto", *ALPHA_UNITS]),
        "probability": one_of(["held_out", "exact"]).or_none(),
        "leverage_bound": LEVERAGE_BOUND,
        "multi_class": one_of(["auto", "joint", "ovr", "ovo"]),
        "solver": one_of(["auto", *SOLVERS]),
        **FIT_PARAMETERS,
        "class_weight": LABEL_CLASS_WEIGHT,
        "warm_start": FLAG,
        "random_state": RANDOM_STATE,
        "checkpoint": Allowed(
            "a path or None", lambda x: x is None or isinstance(x, str | os.PathLike)
        ),
    }

    def __init__(
        self,
        *,
        margin: float = 1.0,
        scale: float | str = 1.0,
        overconfidence: float = 0.0,
        rho: str = "catoni",
        alpha: float | str = "auto",
        kernel: Any = "linear",
        gamma: float | str = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        n_components: int | None = None,
        alpha_unit: str = "auto",
        leverage_bound: float | None = 1.0,
        multi_class: str = "auto",
        probability: str | None = "held_out",
        fit_intercept: bool = True,
        solver: str = "auto",
        max_iter: int = 1000,
        tol: float = 1e-4,
        class_weight: Any = None,
        warm_start: bool = False,
        n_threads: int | None = None,
        random_state: Any = None,
        checkpoint: str | os.PathLike[str] | None = None,
        verbose: int = 0,
    ) -> None:
        self.margin = margin
        self.scale = scale
        self.overconfidence = overconfidence
        self.rho = rho
        self.alpha = alpha
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.n_components = n_components
        self.alpha_unit = alpha_unit
        self.leverage_bound = leverage_bound
        self.multi_class = multi_class
        self.probability = probability
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.class_weight = class_weight
        self.warm_start = warm_start
        self.n_threads = n_threads
        self.random_state = random_state
        self.checkpoint = checkpoint
        self.verbose = verbose

    @classmethod
    def as_published(cls, **changes: Any) -> "MarginPursuitClassifier":
        """Return the learner of the paper: its loss, with a robust form of its scale rule.

        The scale follows from the margins by the rule "auto", which is that of the paper's
        Algorithm 1 with a robust variance; ``scale="variance"`` is the rule as printed. The penalty
        is negligible, rows have no leverage bound, several classes are fitted one against the rest,
        the link is exact and the tolerance is 1e-6.

        Parameters
        ----------
        **changes : dict
            Parameters whose values are to differ from the published ones.

        Returns
        -------
        MarginPursuitClassifier
            The estimator, not fitted.

        Examples
        --------
        >>> from marginpursuit import MarginPursuitClassifier
        >>> MarginPursuitClassifier.as_published(tol=1e-8).get_params()["overconfidence"]
        1.0
        """
        published: dict[str, Any] = {
            "scale": "auto",
            "overconfidence": 1.0,
            "alpha": "negligible",
            "alpha_unit": "absolute",
            "leverage_bound": None,
            "multi_class": "ovr",
            "probability": "exact",
            "tol": 1e-6,
        }
        return cls(**(published | changes))

    @with_callbacks  # type: ignore[untyped-decorator]
    def fit(
        self, X: Any, y: Any, sample_weight: ArrayLike | None = None
    ) -> "MarginPursuitClassifier":
        """Fit the coefficients.

        Parameters
        ----------
        X : {array-like, sparse matrix, Blocks, Dask array} of shape (n_samples, n_features)
            Training samples, of any real dtype: in memory, in :mod:`~marginpursuit.blocks`, or a
            Dask array or data frame, whose blocks are read by the workers of the active client. A
            torch tensor, CuPy or array-API array that NumPy cannot read in place, as on a GPU, is
            not copied; products are in float32 for data that float32 represents exactly. With a
            kernel such arrays are copied to NumPy. For ``kernel="precomputed"`` X is the kernel of
            each training sample with each, in memory.
        y : {array-like, sparse matrix, Dask array} of shape (n_samples,) or (n_samples, n_labels)
            Class of each sample, or an indicator matrix of 0 and 1, dense or sparse.
        sample_weight : array-like of shape (n_samples,), optional
            Weights >= 0; a weight of 2 equals two copies of the row.

        Returns
        -------
        self : MarginPursuitClassifier
            The fitted estimator.
        """
        self._check_parameters()
        is_linear = self.kernel == "linear"
        previous = copy(self) if self.warm_start else None
        self._reset()
        if not is_linear:
            X, y = to_host(X), to_host(y)
        data = self._check_training(X, y, sample_weight)
        report = checkpoint = None
        if self.verbose or hasattr(self, "_skl_callbacks"):  # set by scikit-learn's set_callbacks
            report = Reporter.for_callbacks(
                self,
                data.matrix,
                lambda: y if self.multilabel_ else self.classes_[to_numpy(data.labels.codes)],
                sample_weight,
            )
        if self.checkpoint is not None:
            checkpoint = Checkpoint(self.checkpoint, self._identity(data))
        with np.errstate(all="ignore"):  # the results are checked instead
            try:
                if is_linear:
                    start = None if previous is None else previous._coefficients()
                    self._fit(data, start, report, checkpoint)
                else:
                    scores = None if previous is None else previous._scores_of(data.matrix)
                    fit_with_kernel(self, data, scores, report, checkpoint)
            except FloatingPointError as error:
                if not is_linear:
                    raise range_error(error) from error
                # A start in the given unit does not apply to rescaled columns.
                with self._rescaled(data) as rescaled:
                    self._fit(rescaled, None, report, checkpoint)
        if checkpoint is not None:
            checkpoint.remove()
        if report is not None:
            report.finish()
        return self

    def _fit(
        self,
        data: TrainingData,
        start: Linear | None = None,
        report: Reporter | None = None,
        checkpoint: Checkpoint | None = None,
        *,
        is_stream: bool = False,
    ) -> None:
        """Fit checked data at the scale given, or at the fixed point of the scale rule.

        A small table is fitted in one compiled call (`fit_small_table`), unless the fit is
        reported. What follows is the general fit, with the same result.

        The weights of the data include `class_weight`; `leverage_bound` is applied here.
        `is_stream` is set by `partial_fit`, whose updates are of one class against the rest. Raises
        a FloatingPointError where squares of the columns are not finite.
        """
        is_plain = not any((report, checkpoint, is_stream)) and self.solver in ("auto", "newton")
        if is_plain and fit_small_table(self, data, start):
            return
        scale, n_iter = first_scale(self.scale, self.margin), 0
        if checkpoint is not None:
            start, scale, n_iter = checkpoint.state(start, scale)
        n_threads = usable_threads(self.n_threads) if _gains_from_threads(data) else 1
        with Threads(n_threads) as threads, design_for(data.matrix, threads) as design:
            data = bounded_weights(design, data, self.leverage_bound, centred=self.fit_intercept)
            solver, request, problem, max_steps = self._make_problem(
                design, data, start, scale, report, checkpoint, is_stream=is_stream
            )
            problem, fits = self._with_chosen_penalty(
                problem, design, data, solver.name, is_stream=is_stream
            )
            iteration = ScaleIteration(self.scale, scale)
            while True:
                if self._solves_both(solver, fits):
                    both = CONCURRENT_SOLVERS[solver.name]
                    solution, fits = solve_with_half_fits(design, data, problem, both)
                else:
                    solution = solver.solve(problem)
                if max_steps is not None:
                    solution = continue_with_gram(request, problem, solution, self.max_iter)
                n_iter += solution.n_iter
                margins = training_margins(
                    problem, solution.linear, data.labels, data.weights, data.total_weight
                )
                if iteration.is_finished(margins):
                    break
                iteration.advance()
                tasks = self._tasks(data, iteration.scale)
                problem = replace(problem, tasks=tasks, start=solution.linear)
            if self.probability == "held_out":
                problem = replace(problem, start=solution.linear)
                if not fits and solver.name in FOLD_SOLVERS:
                    fits = leave_one_out_fits(problem, data, margins)
                    fits = fits or half_fits(design, data, problem, solver.name)
                self.link_ = fits[0].link_of(solution.linear) if fits else None
            self._keep_margins(margins, iteration.scale)
            self.alpha_ = float(problem.alphas[0])
            self.n_passes_, transform = design.n_passes, problem.prepared.transform
        # Free the transformed copy of the rows before the coefficients of all columns are
        # allocated. `request` still holds X and its float32 copy, which do not raise the peak.
        del design, problem
        coef, intercept = transform.to_data(solution.linear)
        self.n_iter_ = n_iter
        self.scale_ = iteration.scale
        self.objective_ = float(solution.value.sum())
        self.coef_, self.intercept_ = coef.T, intercept - self._label_thresholds
        self._warn_unless_converged(solution, request, data, iteration)

    def _make_problem(
        self,
        design: Design,
        data: TrainingData,
        start: Linear | None,
        scale: float,
        report: Reporter | None,
        checkpoint: Checkpoint | None,
        *,
        is_stream: bool,
    ) -> tuple[Solver, Request, Problem, int | None]:
        """Report the plan; return the solver, its request, and the problem at a scale.

        The last value is the number of iterations after which `continue_with_gram` follows; None
        where it does not. A start of another shape than the coefficients is ignored.
        """
        request, tasks = self._request(design, data, scale, is_stream=is_stream)
        chosen = plan(request, self.solver)
        if report is not None:
            report.plan(chosen)
        solver = SOLVERS[chosen.solver]
        prepared = solver.prepare(request)
        shape = data.matrix.shape[1], len(tasks) * tasks.columns_per_task
        max_steps = steps_before_gram(request, chosen.solver)
        problem = Problem(
            prepared,
            tasks,
            alphas=np.full(len(tasks), request.least_alpha),
            start=_start(prepared, start, shape),
            max_iter=self.max_iter if max_steps is None else min(max_steps, self.max_iter),
            tol=self.tol,
            report=report,
            random_state=self.random_state,
            on_iterate=None if checkpoint is None else checkpoint.keep,
            policy=request.policy,
        )
        return solver, request, problem, max_steps

    def _request(
        self, design: Design, data: TrainingData, scale: float, *, is_stream: bool
    ) -> tuple[Request, Tasks]:
        """Return the request to a solver and the tasks at a scale; sets `multi_class_`."""
        variance_weights = data.variance_weights
        if variance_weights is not None:
            variance_weights = design.to_device(variance_weights)
        request = Request(
            design,
            weights=data.weights[np.newaxis, :],
            losses=(self._loss(scale),),
            alpha_unit=self._resolve_alpha_unit(
                is_sparse=data.is_sparse, rows_per_column=data.rows_per_column
            ),
            least_alpha=self._penalty(data.n_samples),
            fit_intercept=self.fit_intercept,
            n_problems=len(data.labels.positive_classes),
            variance_weights=variance_weights,
            n_samples=data.n_samples,
            tol=self.tol,
        )
        if data.has_kernel_features:
            request = replace(request, policy=self._kernel_policy.solvers)
        is_joint = not is_stream and self._is_joint(request, data.labels)
        self.multi_class_ = "joint" if is_joint else "ovr"
        tasks = self._tasks(data, scale)
        return replace(request, losses=tasks.losses), tasks

    @property
    def _label_thresholds(self) -> FloatArray:
        """The threshold of each label, where several labels have links of their own; else zero."""
        links = getattr(self, "link_", None)
        return links.thresholds if isinstance(links, LabelLinks) else np.zeros(1)

    def _solves_both(self, solver: Solver, fits: list[HalfFits]) -> bool:
        """Whether half fits are needed, and need not wait for the fit."""
        is_fixed = not isinstance(self.scale, str)
        is_needed = self.probability == "held_out" and is_fixed and not fits
        return is_needed and solver.name in CONCURRENT_SOLVERS

    def _with_chosen_penalty(
        self,
        problem: Problem,
        design: Design,
        data: TrainingData,
        solver: str,
        *,
        is_stream: bool,
    ) -> tuple[Problem, list[HalfFits]]:
        """Choose among the multiples of the default penalty, where there are few rows per column.

        Returns the problem at the penalty that `chosen_fits` selects by held-out log-loss, and a
        list of its half fits; otherwise the same problem and an empty list. A start of zero is
        replaced by the mean of the half fits. With many labels a subset of them chooses the
        penalty; neither its start nor its half fits are then used.
        """
        is_fixed = self.alpha != "auto" or isinstance(self.scale, str) or is_stream
        factors = () if is_fixed else penalty_factors(data, problem, solver)
        if not factors:
            return problem, []
        some_data, some_labels = label_subset(data, problem)
        fits = half_fits(design, some_data, some_labels, solver, factors)
        if not fits:
            return problem, []
        best = chosen_fits(fits, data.n_samples, is_joint=isinstance(problem.tasks, JointTasks))
        if some_labels is not problem:
            return replace(problem, alphas=best.factor * problem.alphas), []
        start = problem.start if problem.start[0].any() else best.linear
        return replace(problem, alphas=best.factor * problem.alphas, start=start), [best]

    def _coefficients(self) -> Linear | None:
        """Return the coefficients of a linear fit, or None if there is none."""
        return (self.coef_.T, self.intercept_) if hasattr(self, "coef_") else None

    def _fit_buffer(self, data: TrainingData) -> None:
        self._fit(data, report=Reporter(self) if self.verbose else None, is_stream=True)

    def _check_parameters(self) -> None:
        check_parameters(self, self._allowed)
        # Below this ratio the loss is s·|γ - m| up to rounding, and so is its decrease.
        min_ratio = 1e-5
        if first_scale(self.scale, self.margin) < min_ratio * self.margin:
            raise ValueError(
                f"scale must be at least {min_ratio:g} times the margin, {self.margin!r}; got "
                f"{self.scale!r}"
            )
        check_kernel_options(self.kernel, self.multi_class, self.alpha_unit)
        if self.multi_class == "joint" and self.overconfidence > 0:
            raise ValueError(
                "multi_class='joint' needs overconfidence=0, where it is convex; got "
                f"{self.overconfidence!r}. Set multi_class='ovr' to fit one class against the rest."
            )

    def _loss(self, scale: float) -> MarginLoss:
        return _margin_loss(self.margin, scale, self.overconfidence, self.rho)

    def _tasks(self, data: TrainingData, scale: float) -> Tasks:
        """Return the tasks of a fit at a scale, joint or one against the rest."""
        loss = self._loss(scale)
        if self.multi_class_ == "joint":
            return JointTasks.of(data.labels, data.weights, JointLoss.at_level(loss))
        return Tasks.of(data.labels, data.weights, loss)

    def _is_joint(self, request: Request, labels: Labels) -> bool:
        """Whether the classes have a joint loss; `request` is that of one class against the rest.

        "auto" fits one against the rest where the solver does not support joint losses, as for
        sparse wide rows, which take fewer passes in the dual.
        """
        n_classes = labels.n_classes
        if isinstance(labels, LabelSets):
            return False
        if n_classes == 2 or self.multi_class != "auto":
            return n_classes > 2 and self.multi_class == "joint"
        if self.overconfidence > 0:
            return False
        return SOLVERS[plan(request, self.solver).solver].supports_joint

    def _fitted_link(self) -> Link:
        fitted: Any = getattr(self, "link_", None) if self.probability != "exact" else None
        if fitted is not None:
            return fitted  # type: ignore[no-any-return]
        loss = self._loss(self.scale_)
        if getattr(self, "multilabel_", False):
            return ExactLabelLink(loss)
        if self.multi_class_ == "ovo":
            return FittedLink.a_priori(float(self.margin), np.inf)
        return ExactLink(JointLoss.at_level(loss) if self.multi_class_ == "joint" else loss)

    def _identity(self, data: TrainingData) -> dict[str, Any]:
        """Return the parameters and properties of the data that a resumed fit must share."""
        # The objective that is minimised does not depend on these.
        others = ("probability", "max_iter", "tol", "warm_start", "n_threads", "random_state")
        parameters = self.get_params(deep=False)
        for name in (*others, "checkpoint", "verbose"):
            del parameters[name]
        return {
            "shape": tuple(data.matrix.shape),
            "classes": self.classes_,
            **data_digests(data),
            **parameters,
        }

    def _needs_one_factor(self, data: TrainingData) -> bool:
        return self._resolve_alpha_unit(is_sparse=data.is_sparse) in ("common", "row")

    def _unit_dependent(self, data: TrainingData) -> list[str]:
        unit = self._resolve_alpha_unit(is_sparse=data.is_sparse)
        depends = {
            "alpha": self._penalty(data.n_samples) > 0 and unit == "absolute",
            "solver": self.solver != "auto" and SOLVERS[self.solver].depends_on_units,
            # The distance of a sparse row is its norm, in the unit of the columns.
            "leverage_bound": self.leverage_bound is not None
            and data.is_sparse
            and not self._needs_one_factor(data),
        }
        return [f"{name}={getattr(self, name)!r}" for name, value in depends.items() if value]

    def _penalty(self, n_samples: float) -> float:
        if self.kernel != "linear" and isinstance(self.alpha, str) and self.alpha == "auto":
            return self._kernel_policy.penalty / n_samples
        return penalty(self.alpha, n_samples)

    def _resolve_alpha_unit(self, *, is_sparse: bool, rows_per_column: float = np.inf) -> str:
        if self.kernel != "linear":  # `_mapped` divides the kernel by the unit "row"
            return "common" if self.alpha_unit == "common" else "absolute"
        return resolve_alpha_unit(
            self.alpha,
            self.alpha_unit,
            self.solver,
            is_sparse=is_sparse,
            rows_per_column=rows_per_column,
        )

    def _warn_unless_converged(
        self, solution: Solution, request: Request, data: TrainingData, iteration: ScaleIteration
    ) -> None:
        # The advice for the user differs where the penalty is far below the default.
        default = penalty("auto", data.n_samples)
        is_negligible = request.alpha_unit == "column" or request.least_alpha < 1e-2 * default
        shape = data.matrix.shape
        larger = "alpha='auto' or to a larger number" if self._search is None else "larger alphas"
        message = convergence_message(
            solution,
            self.tol,
            self.max_iter,
            shape=shape,
            larger_penalty=larger if is_negligible else None,
        )
        at_zero, largest = value_at_zero(request.losses[0]), float(solution.value.max())
        if np.isnan(solution.gap).any() and largest > 2.0 * at_zero:  # a solver without estimate
            message = (
                f"{solution.status.value}, and the objective, {largest:.3g}, is more than twice "
                f"the {at_zero:.3g} of zero coefficients. Standardise the columns of X, or set "
                "max_iter to several times the number of rows."
            )
        if message is None and not iteration.converged:
            message = (
                f"found no fixed point of the scale rule {self.scale!r}: at the scale "
                f"{iteration.scale:.3g} it returns {iteration.target:.3g}. Set scale to a number."
            )
        if message is not None:
            estimator = self if self._search is None else self._search
            warn(f"{type(estimator).__name__} {message}", ConvergenceWarning)


def _gains_from_threads(data: TrainingData) -> bool:
    """Whether a second thread shortens a fit; small tables have one compiled call instead."""
    n_problems = len(data.labels.positive_classes)
    is_dense = isinstance(data.matrix, np.ndarray)
    return not is_dense or data.matrix.size * n_problems >= _MIN_THREADED_ELEMENTS


@lru_cache(maxsize=128)
def _margin_loss(margin: float, scale: float, overconfidence: float, rho: str) -> MarginLoss:
    """Return the loss; its checks take 25 µs, and fits with equal parameters share it."""
    return MarginLoss(margin, scale, overconfidence, rho)


def _start(prepared: Prepared, start: Linear | None, shape: tuple[int, int]) -> Linear:
    """Return a start, for coefficients of this shape, as a point of the prepared data; or zero."""
    if start is None or start[0].shape != shape:
        return prepared.zeros(shape[1])
    return prepared.from_data(start)
