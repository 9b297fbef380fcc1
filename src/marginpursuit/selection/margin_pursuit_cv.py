"""Scale, overconfidence and penalty chosen by cross-validation, in shared passes over the data."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from time import perf_counter
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from marginpursuit._namespaces import to_device_of, to_host
from marginpursuit._threads import Threads, usable_threads
from marginpursuit.classifiers import MarginPursuitClassifier
from marginpursuit.classifiers._shared import (
    FLAG,
    Allowed,
    CallbackSupportMixin,
    KernelExpansion,
    Link,
    MarginStatisticsMixin,
    ProbabilityMixin,
    Reporter,
    RowScores,
    TrainingData,
    bounded_weights,
    check_kernel_options,
    check_parameters,
    dense_unit,
    fit_with_kernel,
    numbers,
    one_of,
    range_error,
    rescaled,
    with_callbacks,
)
from marginpursuit.design import Linear, design_for
from marginpursuit.selection._cross_validated import CrossValidatedClassifier
from marginpursuit.selection.candidates import Candidate, FitOptions, Fold, Stopping
from marginpursuit.selection.fold_data import fits_jointly
from marginpursuit.selection.pair_fits import PairKernels
from marginpursuit.selection.policy import SelectionPolicy
from marginpursuit.selection.scoring import HeldOutScorer, refuse_undefined, search_results
from marginpursuit.selection.search import Search, SearchOptions, SearchResult
from marginpursuit.selection.successive_halving import has_classes
from marginpursuit.solvers import FOLD_SOLVERS

__all__ = ["MarginPursuitClassifierCV"]


class MarginPursuitClassifierCV(
    CallbackSupportMixin,  # type: ignore[misc]
    ProbabilityMixin,
    KernelExpansion,
    MarginStatisticsMixin,
    CrossValidatedClassifier,
):
    """Linear or kernel classifier whose hyper-parameters are chosen by cross-validation.

    Like :class:`MarginPursuitClassifier` it limits the influence of outliers and wrong labels. It
    chooses the penalty and the scale of the loss, and for two classes the threshold between them;
    for two classes of dense rows, and several labels, also the overconfidence; with a kernel also
    its factor γ.

    All candidates, folds and classes share passes over the data, and candidates that are clearly
    worse on a subsample are eliminated early (:doc:`/guide/search`).

    The rows may be in memory, in :mod:`~marginpursuit.blocks`, on a Dask cluster or in an array
    that NumPy cannot read in place, for example on a GPU. The passes over the data run where the
    rows are. Labels, weights and the scores of held-out rows are kept in the memory of this
    process.

    `y` may be an indicator matrix of several labels. All labels have the same scale, overconfidence
    and penalty. Each has a link and a threshold of its own, as in
    :class:`MarginPursuitClassifier`.

    Parameters
    ----------
    scales : sequence of float, optional
        Scales s to choose from. By default 0.1, 0.3, 1 and 3; for sparse data and the joint loss of
        three classes or more 0.3 and 1; with a kernel 1.
    overconfidences : sequence of float, optional
        Weights τ of the loss above the margin level to choose from. By default 0 and 1 for dense
        data, and 0 for sparse data, kernels and the joint loss of three classes or more.
    alphas : sequence of float, optional
        Penalties to choose from. By default seven from 1e-6 to 1e-3 for dense data; with fewer than
        3,000 samples all are larger by the same factor, so that the largest is 3/n. Seven from
        0.01/n to 10/n for sparse data, and six from 0.01/n to 3/n with a kernel.
    kernel : {"linear", "rbf", "poly", "sigmoid", "precomputed"} or callable, default="linear"
        The kernel, as in :class:`MarginPursuitClassifier`.
    gammas : sequence of float, optional
        Factors γ of the kernels "rbf", "poly" and "sigmoid" to choose from. By default 0.03, 0.1,
        0.3 and 1 times 2/m for "rbf", with m the median of the squared distances between rows, and
        times 1/m for the others, with m the median of the squared norms. :doc:`/guide/kernels`
        describes the search.
    degree : int, default=3
        The degree of the kernel "poly".
    coef0 : float, default=0.0
        The constant of the kernels "poly" and "sigmoid".
    n_components : int or None, default=None
        The number of landmarks of the refit, as in :class:`MarginPursuitClassifier`, and an upper
        bound of those of the search.
    alpha_unit : {"auto", "absolute", "standardised", "inflated", "common", "row"}, default="auto"
        The unit of the penalties, as in :class:`MarginPursuitClassifier`.
    leverage_bound : float or None, default=1.0
        The bound on the influence of rows far from the others, as in
        :class:`MarginPursuitClassifier`; None sets no bound. The scores of the search are not
        weighted by it, except those of ``scoring=None`` with the kernel "rbf".
    margin : float, default=1.0
        The margin level γ.
    rho : {"catoni", "pseudo_huber", "log_cosh", "huber", "square"}, default="catoni"
        The function ρ of the loss, as in :class:`MarginPursuitClassifier`.
    cv : int, splitter or iterable, default=5
        How to split, as in scikit-learn; a number means stratified folds. Pass
        :class:`~sklearn.model_selection.GroupKFold` where rows belong together. If the rows are not
        in memory, a splitter gets their shape, with labels and groups.
    scoring : str, callable or None, default=None
        The scorer. None is accuracy, for two classes at the fitted `threshold`; "accuracy" is that
        at threshold zero, as in GridSearchCV. Try "roc_auc" or "neg_log_loss" for rare classes.
        With several labels None is the negative of the mean log-loss of the labels, and scorers
        that use predictions, such as "f1_micro", get those at the thresholds of the candidate. A
        callable that uses X gets the held-out rows in the container that holds them; those of a
        data frame are an array without names. It gets scores and probabilities, no coefficients.
    rule : {"auto", "best", "one-standard-error"}, default="auto"
        Which candidate to choose.

        - "best": the one with the best mean score.
        - "one-standard-error": among those within one standard error of it, the one with the
          largest penalty, then overconfidence, then scale.
        - "auto": "best", except with at most 400 rows, where folds hardly distinguish candidates:
          there that of :class:`MarginPursuitClassifier` is chosen, at threshold zero, unless the
          best has a mean score that is larger by two standard errors of the difference. A scorer,
          several labels, a kernel or candidates of your own have "best" for any number of rows.
    threshold : {"fitted", "zero"}, default="fitted"
        The score above which the second of two classes is predicted.

        - "fitted": that within ± `margin` with the best out-of-fold accuracy. It is subtracted from
          the intercept. This helps if labels of one class are wrong more often. It applies if
          `scoring` is None, there is an intercept, the link is fitted and `class_weight` is None.
        - "zero": the intercept is the minimiser of the loss.
    refit : bool, default=True
        Whether to fit the chosen candidate to all rows.
    successive_halving : bool, default=True
        Whether to eliminate candidates on growing subsamples of the rows; False evaluates every
        candidate on all rows. An eliminated candidate keeps the score it had then, and
        ``cv_results_["n_resources"]`` has the number of rows. A subsample is held in memory, or on
        the device that holds the rows, and has at most 2**25 stored elements.
    multi_class : {"auto", "joint", "ovr", "ovo"}, default="auto"
        How three classes or more are fitted, as in :class:`MarginPursuitClassifier`. With "joint",
        candidates with a positive overconfidence are fitted one class against the rest.
    link : {"fitted", "exact"}, default="fitted"
        Where probabilities come from: a monotone link fitted to out-of-fold scores, or the exact
        link of the loss.
    fit_intercept : bool, default=True
        Whether to fit an intercept.
    solver : {"auto", "newton", "gram", "lbfgs", "dual"}, default="auto"
        The solver, as in :class:`MarginPursuitClassifier`.
    max_iter : int, default=1000
        The most iterations of a fit.
    tol : float, default=1e-3
        The relative suboptimality (:doc:`/glossary`) at which fits to folds of all rows stop,
        bounded or estimated. Dual ascent stops at ten times it, fits to subsamples stop earlier,
        and the refit stops at a tenth of it.
    class_weight : dict, list of dict, "balanced" or None, default=None
        Weights of the classes.
    n_threads : int or None, default=None
        The number of threads; by default one per processor.
    random_state : int, RandomState instance, Generator or None, default=0
        The random numbers that draw subsamples.
    verbose : int, default=0
        Whether to show a progress bar.

    Attributes
    ----------
    cv_results_ : dict of ndarrays
        Candidates and scores under the names of scikit-learn's GridSearchCV, and the `threshold` at
        which a candidate has its scores. Accuracies at fitted thresholds are means over the
        thresholds within 0.12 times the margin, and those of a fold are at the threshold that is
        best in the other folds.
    best_params_ : dict
        The chosen candidate: `alpha`, `overconfidence` and `scale`, and the `gamma` of a kernel.
    best_score_ : float
        Its mean score. Where the candidate is the best of many, it is a little optimistic; that
        which ``rule="auto"`` prefers with at most 400 rows need not have the largest.
    best_index_ : int
        Its index in `cv_results_`.
    best_estimator_ : MarginPursuitClassifier
        The fit to all rows. Its `coef_`, `scale_` and statistics of the margins are attributes of
        the search too.
    multi_class_ : str
        "joint", "ovr" or "ovo": how several classes are fitted by the chosen candidate.
    threshold_ : float or ndarray of shape (n_labels,)
        The threshold of the chosen candidate, or one for each of several labels.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        The intercept of `best_estimator_` less the threshold.
    out_of_fold_scores_ : ndarray of shape (n_samples,) or (n_samples, n_classes)
        The score of each training row by the fits of the chosen candidate to the folds that hold
        it out, less the threshold: its sign, or largest column, is the prediction. The mean over
        folds if several hold the row out; NaN if none does. Rounded to single precision. If the
        scores of the candidates that were fitted to all rows exceed 1 GiB, every k-th row is kept
        and the others are NaN.
    out_of_fold_proba_ : ndarray of shape (n_samples, n_classes)
        The probabilities that the link assigns to `out_of_fold_scores_`. The four slopes of a
        fitted link are those of the predictions, fitted to the scores of all rows. Model files
        contain neither of the two attributes.
    alpha_unit_ : str
        The unit of the penalties.
    n_splits_ : int
        The number of folds.
    n_passes_ : float
        Passes over the data, for fits and for held-out scores; a pass over a subsample counts as
        the fraction of rows that it has.
    refit_time_ : float
        Seconds that the refit took.
    scorer_ : callable or None
        The scorer; None for accuracy.
    classes_ : ndarray of shape (n_classes,)
        The classes; with several labels, the numbers of their columns.
    multilabel_ : bool
        Whether `y` was an indicator matrix.
    n_features_in_ : int
        The number of features.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if X has names that are all strings.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from marginpursuit import MarginPursuitClassifierCV
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = MarginPursuitClassifierCV().fit(X, y)
    >>> model.best_score_ > 0.97
    True
    >>> sorted(model.best_params_)
    ['alpha', 'overconfidence', 'scale']
    """

    _accepts_blocks = True
    _accepts_device_arrays = True
    _accepts_label_sets = True
    _not_in_files = ("out_of_fold_scores_", "out_of_fold_proba_")
    _policy = SelectionPolicy()

    #: Parameters that the classifier has too may have the same values.
    _allowed: ClassVar[dict[str, Allowed]] = {
        name: MarginPursuitClassifier._allowed[name]
        for name in (
            "kernel",
            "degree",
            "coef0",
            "n_components",
            "alpha_unit",
            "leverage_bound",
            "margin",
            "rho",
            "multi_class",
            "fit_intercept",
            "max_iter",
            "tol",
            "class_weight",
            "n_threads",
            "random_state",
            "verbose",
        )
    } | {
        "scales": numbers(
            "that are positive and finite", np.nextafter(0, 1), np.finfo(float).max
        ).or_none(),
        "overconfidences": numbers("in [0, 1]", 0.0, 1.0).or_none(),
        "alphas": numbers("that are finite and >= 0", 0.0, np.finfo(float).max).or_none(),
        "gammas": numbers("that are positive and finite", np.nextafter(0, 1), 1e300).or_none(),
        "rule": one_of(["auto", "best", "one-standard-error"]),
        "threshold": one_of(["fitted", "zero"]),
        "refit": FLAG,
        "successive_halving": FLAG,
        "link": one_of(["fitted", "exact"]),
        "solver": one_of(["auto", *FOLD_SOLVERS]),
    }

    def __init__(
        self,
        *,
        scales: Iterable[float] | None = None,
        overconfidences: Iterable[float] | None = None,
        alphas: Iterable[float] | None = None,
        kernel: Any = "linear",
        gammas: Iterable[float] | None = None,
        degree: int = 3,
        coef0: float = 0.0,
        n_components: int | None = None,
        alpha_unit: str = "auto",
        leverage_bound: float | None = 1.0,
        margin: float = 1.0,
        rho: str = "catoni",
        cv: Any = 5,
        scoring: Any = None,
        rule: str = "auto",
        threshold: str = "fitted",
        refit: bool = True,
        successive_halving: bool = True,
        multi_class: str = "auto",
        link: str = "fitted",
        fit_intercept: bool = True,
        solver: str = "auto",
        max_iter: int = 1000,
        tol: float = 1e-3,
        class_weight: Any = None,
        n_threads: int | None = None,
        random_state: Any = 0,
        verbose: int = 0,
    ) -> None:
        self.scales = scales
        self.overconfidences = overconfidences
        self.alphas = alphas
        self.kernel = kernel
        self.gammas = gammas
        self.degree = degree
        self.coef0 = coef0
        self.n_components = n_components
        self.alpha_unit = alpha_unit
        self.leverage_bound = leverage_bound
        self.margin = margin
        self.rho = rho
        self.cv = cv
        self.scoring = scoring
        self.rule = rule
        self.threshold = threshold
        self.refit = refit
        self.successive_halving = successive_halving
        self.multi_class = multi_class
        self.link = link
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.class_weight = class_weight
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose

    @with_callbacks  # type: ignore[untyped-decorator]
    def fit(
        self, X: Any, y: Any, sample_weight: ArrayLike | None = None, **params: Any
    ) -> "MarginPursuitClassifierCV":
        """Choose a candidate by cross-validation and fit it to all rows.

        Parameters
        ----------
        X : {array-like, sparse matrix, Blocks, Dask array} of shape (n_samples, n_features)
            Training samples, of any real dtype, in any container that
            :class:`MarginPursuitClassifier` accepts.
        y : {array-like, sparse matrix, Dask array} of shape (n_samples,) or (n_samples, n_labels)
            Class of each sample, or an indicator matrix of 0 and 1, dense or sparse.
        sample_weight : array-like of shape (n_samples,), optional
            Weights >= 0, in the fits and, if the scorer accepts weights, in the scores. With
            metadata routing, the scorer requests them. In the fits a weight of 2 equals two copies
            of the row. In the search it does not if `cv` is a number: a row is in one fold, while
            its copies may be in several. Pass folds that keep copies together for equal results.
        **params : dict
            `groups` for the splitter; with metadata routing, what splitter and scorer request.

        Returns
        -------
        self : MarginPursuitClassifierCV
            The fitted estimator.
        """
        self._check_parameters()
        self._reset()
        if self.kernel != "linear":
            X, y = to_host(X), to_host(y)
        checked = self._check_training(X, y, sample_weight)
        data = checked.on_host()
        self._refuse_missing(data.matrix)
        self.scorer_ = self._scorer
        to_splitter, to_scorer = self._route(sample_weight, params, len(data.weights))
        unit = (
            "row" if data.is_sparse or self.kernel != "linear" else dense_unit(data.rows_per_column)
        )
        self.alpha_unit_ = unit if self.alpha_unit == "auto" else self.alpha_unit
        folds = self._split(data, to_splitter, to_scorer)
        if self.rule == "one-standard-error" and len(folds) < 2:
            raise ValueError(
                'cv has 1 fold; rule="one-standard-error" needs at least 2 folds. Set rule="best" '
                "or change cv."
            )
        report = None
        if hasattr(self, "_skl_callbacks"):  # set by scikit-learn's set_callbacks
            report = Reporter.for_callbacks(self, X, y, sample_weight)
        if self.kernel == "linear":
            bounded, start = self._search_linear(data, folds, to_scorer, report)
            if self.refit:
                weights = to_device_of(checked.weights, bounded.weights)
                refitted = replace(
                    checked, weights=weights, variance_weights=bounded.variance_weights
                )
                self._refit(refitted, start)
        else:
            self._fit_kernel(data, folds, to_scorer, report)
        if report is not None:
            report.finish()
        return self

    def _search_linear(
        self,
        data: TrainingData,
        folds: list[Fold],
        to_scorer: dict[str, Any],
        report: Reporter | None,
    ) -> tuple[TrainingData, Linear | None]:
        """Choose a candidate; return the data with bounded weights, and the start of the refit."""
        grid, candidates = self._grid(data)
        searched, result = data, None
        with np.errstate(all="ignore"):
            while result is None:
                try:
                    bounded, n_passes = self._bounded(searched)
                    prior = self._prior(bounded, candidates, len(folds))
                    search = self._search(
                        bounded, folds, to_scorer, candidates, report, prior=prior
                    )
                    result = search.run(candidates)
                except FloatingPointError as error:
                    if searched is not data or self.alpha_unit_ == "absolute":
                        raise range_error(error) from error
                    # The scores do not depend on the unit of the columns.
                    one_factor = self.alpha_unit_ in ("common", "row")
                    matrix, _ = rescaled(data.matrix, by_one_factor=one_factor)
                    searched = replace(data, matrix=matrix)
        self._set_results(grid, result)
        self.n_passes_ += n_passes
        # The coefficients of rescaled columns are not a start for those of the data.
        return bounded, result.start if searched is data else None

    def _check_parameters(self) -> None:
        check_parameters(self, self._allowed)
        check_kernel_options(self.kernel, self.multi_class, self.alpha_unit)

    def _fit_kernel(
        self,
        data: TrainingData,
        folds: list[Fold],
        to_scorer: dict[str, Any],
        report: Reporter | None,
    ) -> None:
        """Choose γ and a candidate, and refit, for a kernel other than "linear"."""
        from marginpursuit.selection.kernel_search import search_with_kernel

        grid, candidates = self._grid(data)
        model = self._estimator(
            alpha=min(candidate.alpha for candidate in candidates),
            alpha_unit=self.alpha_unit_,
            leverage_bound=self.leverage_bound,
            multi_class=self.multi_class,
        )
        with np.errstate(all="ignore"):  # the kernel values are checked instead
            model._set_kernel(data)
            # Scorers have the weights as given.
            factors = model._redescending_factors(data) if self.scoring is None else None
            if factors is not None:
                factors = factors * to_scorer.get("sample_weight", 1.0)
                to_scorer = {**to_scorer, "sample_weight": factors}

        def evaluate(
            mapped: TrainingData,
            candidates: list[Candidate],
            limits: Stopping | None = None,
            pairs: PairKernels | None = None,
        ) -> SearchResult:
            search = self._search(
                mapped, folds, to_scorer, candidates, report, limits=limits, pairs=pairs
            )
            return search.run(candidates)

        try:
            with np.errstate(all="ignore"):
                chosen = search_with_kernel(model, data, grid, self.gammas, evaluate, self._policy)
            self._set_results(chosen.params, chosen.result, chosen.n_components)
            if chosen.n_components is None:
                self.multi_class_ = "ovo"
            if self.refit:
                self._refit(data, None, chosen.start)
        except FloatingPointError as error:
            raise range_error(error) from error

    def _fitted_link(self) -> Link:
        return self.best_estimator_._fitted_link() if self.link == "exact" else self.link_

    @property
    def _fits_threshold(self) -> bool:
        is_binary = len(self.classes_) == 2 and not self.multilabel_
        is_cut = self.scoring is None and is_binary and self.fit_intercept
        # The exact link holds for the minimiser of the loss, not for shifted scores. Class weights
        # shift the threshold on purpose, and the best accuracy would shift it back.
        is_free = self.link == "fitted" and self.class_weight is None
        return self.threshold == "fitted" and is_free and is_cut

    def _grid(self, data: TrainingData) -> tuple[list[dict[str, Any]], list[Candidate]]:
        """Return the parameters of all candidates as the user gave them, and the candidates."""
        if self.kernel != "linear":
            kind = "kernel"
        elif data.is_sparse:
            kind = "sparse"
        elif has_classes(data.labels) and self.multi_class != "ovr":
            kind = "joint"
        else:
            kind = "dense"
        values = self._policy.default_grid(kind, data.n_samples)
        given = {name: getattr(self, name) for name in values}
        values |= {name: own for name, own in given.items() if own is not None}
        params = [
            dict(zip(Candidate._fields, own, strict=True)) for own in product(*values.values())
        ]
        return params, [Candidate(*map(float, own.values())) for own in params]

    def _prior(
        self, data: TrainingData, candidates: list[Candidate], n_folds: int
    ) -> Candidate | None:
        """Return the candidate of the single fit, where the rule "auto" prefers it; else None."""
        grids = (self.alphas, self.scales, self.overconfidences)
        is_auto = self.rule == "auto" and self.scoring is None and not self.multilabel_
        is_few = data.n_samples <= self._policy.max_prior_rows
        if not (is_auto and is_few and n_folds > 1) or any(grid is not None for grid in grids):
            return None
        model = self._estimator(
            alpha_unit=self.alpha_unit_, multi_class=self.multi_class, probability=None
        )
        model.classes_, model.multilabel_ = self.classes_, False
        model._search = self  # which warnings name
        model._fit(data)
        same = [
            candidate
            for candidate in candidates
            if (candidate.overconfidence, candidate.scale) == (model.overconfidence, model.scale)
        ]
        return min(
            same, key=lambda candidate: abs(np.log(candidate.alpha / model.alpha_)), default=None
        )

    def _search(
        self,
        data: TrainingData,
        folds: list[Fold],
        to_scorer: dict[str, Any],
        candidates: list[Candidate],
        report: Reporter | None,
        *,
        limits: Stopping | None = None,
        prior: Candidate | None = None,
        pairs: PairKernels | None = None,
    ) -> Search:
        """Return the search; `limits` may end its fits before `max_iter` and `tol` do."""
        policy, unit = self._policy, self.alpha_unit_
        if data.has_kernel_features and unit == "row":
            unit = "absolute"  # the kernel has been divided by the unit
        scorer = HeldOutScorer(
            self.scorer_,
            matrix=data.original_matrix if data.has_kernel_features else data.matrix,
            labels=data.labels,
            classes=self.classes_,
            metadata=to_scorer,
            thresholds=(
                float(self.margin) * policy.thresholds if self._fits_threshold else np.zeros(1)
            ),
            smoothing=policy.smoothing,
        )
        fits = FitOptions(
            margin=float(self.margin),
            alpha_unit=unit,
            fit_intercept=self.fit_intercept,
            solver=self.solver,
            n_threads=usable_threads(self.n_threads),
            are_penalised=all(candidate.alpha > 0 for candidate in candidates),
            rho=self.rho,
            n_samples=data.n_samples,
        )
        stopping = Stopping(self.max_iter, self.tol)
        is_joint = pairs is None and fits_jointly(
            self.multi_class, data.matrix, data.labels, fits, policy
        )
        options = SearchOptions(
            replace(fits, is_joint=is_joint),
            stopping=stopping if limits is None else stopping.loosened(limits),
            successive_halving=self.successive_halving,
            rule=self.rule,
            link=self.link,
            random_state=self.random_state,
            is_balanced=isinstance(self.class_weight, str) and not self.multilabel_,
            title=type(self).__name__ if self.verbose else None,
            report=report,
            prior=prior,
            pairs=pairs,
        )
        return Search(data, folds, scorer, options, policy)

    def _set_results(
        self,
        params: list[dict[str, Any]],
        result: SearchResult,
        n_components: NDArray[np.intp] | None = None,
    ) -> None:
        """Set `cv_results_`, the best candidate, the link and the passes of the search."""
        refuse_undefined(self.scorer_, result.scores, result.best)
        self.cv_results_ = search_results(
            params, result.scores, result.resources, result.thresholds, n_components
        )
        self.best_index_ = result.best
        self.best_params_ = params[result.best]
        self.best_score_ = float(result.scores[result.best].mean())
        self.threshold_ = result.threshold
        self.multi_class_ = "joint" if result.is_joint else "ovr"
        self.n_passes_ = result.n_passes
        if result.link is not None:
            self.link_ = result.link
        scores = result.out_of_fold_scores
        self.out_of_fold_scores_ = scores[:, 0] if scores.shape[1] == 1 else scores
        self.out_of_fold_proba_ = result.out_of_fold_proba

    def _estimator(self, **parameters: Any) -> MarginPursuitClassifier:
        """Return a classifier with the parameters of the search, to be fitted to checked data."""
        names = ("kernel", "degree", "coef0", "n_components", "margin", "rho", "fit_intercept")
        shared = {name: getattr(self, name) for name in (*names, "solver", "max_iter", "n_threads")}
        shared |= {
            "leverage_bound": None,  # the weights are bounded
            "probability": "exact",  # the search has fitted a link to its own folds
            "tol": self._policy.refit_tol_ratio * self.tol,
        }
        return MarginPursuitClassifier(**(shared | parameters))

    def _bounded(self, data: TrainingData) -> tuple[TrainingData, int]:
        """Return the data with bounded weights, and the number of passes that this took."""
        if self.leverage_bound is None:
            return data, 0
        with (
            Threads(usable_threads(self.n_threads)) as threads,
            design_for(data.matrix, threads) as design,
        ):
            bounded = bounded_weights(design, data, self.leverage_bound, centred=self.fit_intercept)
            return bounded, design.n_passes

    def _refit(
        self, data: TrainingData, start: Linear | None, scores: RowScores | None = None
    ) -> None:
        """Fit the chosen candidate to checked data, whose weights include classes and the bound."""
        begin = perf_counter()
        model = self._estimator(
            **self.best_params_, alpha_unit=self.alpha_unit_, multi_class=self.multi_class_
        )
        model._check_parameters()
        model._copy_input_attributes(self)
        model._search = self  # which warnings name
        as_given = {"class_weight": self.class_weight, "leverage_bound": self.leverage_bound}
        with np.errstate(all="ignore"):  # the results are checked instead
            if self.kernel != "linear":
                fit_with_kernel(model.set_params(**as_given), data, scores)
            else:
                try:
                    model._fit(data, start)
                except FloatingPointError:
                    with model._rescaled(data) as rescaled_data:
                        model._fit(rescaled_data)
        del model._search
        self.best_estimator_ = model.set_params(**as_given)
        self.refit_time_ = perf_counter() - begin
        self.n_passes_ += model.n_passes_
        kernel = ("dual_coef_", "support_", "support_vectors_", "n_support_", "gamma_")
        for name in (*kernel, "coef_", "scale_", "n_iter_", "objective_"):
            if hasattr(model, name):
                setattr(self, name, getattr(model, name))
        self._take_margins_of(model)
        self.intercept_ = model.intercept_ - self.threshold_
