"""Scale, overconfidence and penalty chosen by cross-validation, all in shared reads of the data."""

from collections.abc import Iterable
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.model_selection import ParameterGrid

from marginpursuit._namespaces import adopted, beside, is_elsewhere
from marginpursuit._threads import usable_threads
from marginpursuit._validation import FloatArray
from marginpursuit.classifiers import MarginPursuitClassifier
from marginpursuit.classifiers._base import TrainingData
from marginpursuit.classifiers._input import rescaled
from marginpursuit.classifiers._lazy import lazy_on_dask
from marginpursuit.classifiers._leverage import bounded_weights
from marginpursuit.classifiers._parameters import (
    CLASS_WEIGHT,
    FLAG,
    LEVERAGE_BOUND,
    RANDOM_STATE,
    check_parameters,
    number,
    numbers,
    one_of,
    whole,
)
from marginpursuit.design import Linear, design_for
from marginpursuit.selection._contest import Contest, Terms
from marginpursuit.selection._cross_validated import CrossValidatedClassifier
from marginpursuit.selection._scores import (
    THRESHOLDS,
    Judge,
    search_results,
)
from marginpursuit.selection._settings import Effort, Fold, FoldOptions, Setting

__all__ = ["MarginPursuitClassifierCV"]

# The penalties for dense and for sparse rows. Text wants smaller ones: on one class of news20 the
# test error is 1.8 % with 1e-6 and 1.2 % with 1e-7.
_ALPHAS = {
    False: (1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 3e-6, 1e-6),
    True: (1e-3, 1e-4, 1e-5, 3e-6, 1e-6, 3e-7, 1e-7),
}

_ALLOWED = {
    "scales": numbers("that are positive and finite", np.nextafter(0, 1), np.finfo(float).max),
    "overconfidences": numbers("in [0, 1]", 0.0, 1.0),
    "alphas": numbers("that are finite and >= 0", 0.0, np.finfo(float).max).or_none(),
    "alpha_unit": one_of(["auto", "absolute", "standardised", "common"]),
    "leverage_bound": LEVERAGE_BOUND,
    "margin": number("in [1e-100, 1e+100]", lambda x: 1e-100 <= x <= 1e100),
    "rule": one_of(["best", "one-standard-error"]),
    "threshold": one_of(["fitted", "zero"]),
    "refit": FLAG,
    "race": FLAG,
    "link": one_of(["fitted", "exact"]),
    "fit_intercept": FLAG,
    "solver": one_of(["auto", "gram", "lbfgs"]),
    "max_iter": whole(1),
    "tol": number("in (0, 1)", lambda x: 0 < x < 1),
    "class_weight": CLASS_WEIGHT,
    "n_threads": whole(1, None),
    "random_state": RANDOM_STATE,
    "verbose": whole(0, False, True),
}


class MarginPursuitClassifierCV(CrossValidatedClassifier):
    """Margin pursuit with scale, overconfidence and penalty chosen by cross-validation.

    All settings, folds and classes are fitted in the same reads of the data, with one Gram matrix,
    and from the largest scale to the smallest, each from the fit before. Where there are many rows,
    settings that are far behind on a sample of them drop out early (`race`).

    Rows may be in memory, in :mod:`~marginpursuit.blocks`, on a Dask cluster or in an array that
    NumPy cannot read in place, as on a GPU: the sweeps over all rows are made where they are, and
    the choice is the same, up to the tolerance of the fits. Labels, weights and the scores of
    held-out rows are kept here.

    Parameters
    ----------
    scales : sequence of float, default=(0.1, 0.3, 1.0, 3.0)
        Scales s to choose from; what matters is their ratio to the margin.
    overconfidences : sequence of float, default=(0.0, 1.0)
        Weights τ of margins above the level to choose from.
    alphas : sequence of float, optional
        Penalties to choose from; by default seven from 1e-3 to 1e-6 for dense rows, and from 1e-3
        to 1e-7 for sparse ones.
    alpha_unit : {"auto", "absolute", "standardised", "common"}, default="auto"
        What the penalties are multiples of, as in :class:`MarginPursuitClassifier`; "auto" is
        "standardised" for dense and "common" for sparse data, whose columns tend to share a unit.
    leverage_bound : float or None, default=1.0
        How hard a row that lies far out may pull in the fits, in medians of the distance, as in
        :class:`MarginPursuitClassifier`; None sets no bound. The distances are those among all
        rows, of all folds. In the scores every row counts as it came.
    margin : float, default=1.0
        The level γ.
    cv : int, splitter or iterable, default=5
        How to split, as scikit-learn has it; a number means stratified folds. Of rows that are not
        in memory a splitter sees the shape, beside labels and groups.
    scoring : str, callable or None, default=None
        How to judge; by default the share of correct predictions. A callable that looks at X gets
        held-out rows as they are held: of blocks, as :class:`~marginpursuit.blocks.Blocks`, which
        are not loaded unless it asks; of other libraries' arrays, as such an array.
    rule : {"best", "one-standard-error"}, default="best"
        Which setting to take: the one with the best mean score; or, of those within one standard
        error of it, the one with the largest penalty, then overconfidence, then scale.
    threshold : {"fitted", "zero"}, default="fitted"
        The score above which the second of two classes is predicted. "fitted": where settings are
        judged by the share of correct predictions, have an intercept and a fitted link, and there
        is no `class_weight`, each is judged at the threshold within ± `margin` that suits its
        held-out rows best, and the intercept is moved by that of the chosen one; this helps where
        rows are far on the wrong side, and costs no fits. "zero": the intercept is the one that
        minimises the loss.
    refit : bool, default=True
        Whether to fit the chosen setting to all rows.
    race : bool, default=True
        Whether settings may drop out early, by the rule of `marginpursuit.selection._race`. They
        keep the score they had then; ``cv_results_["n_resources"]`` tells on how many rows. A
        sample is held in memory, or on the device where the rows are, and has at most 2**25 stored
        elements (256 MiB in float64): a larger one is made smaller, and left out where it would
        then be too small for a round.
    link : {"fitted", "exact"}, default="fitted"
        Where probabilities come from: a monotone link fitted to the scores of the held-out rows, or
        the exact link of the loss.
    fit_intercept : bool, default=True
        Whether to fit an intercept.
    solver : {"auto", "gram", "lbfgs"}, default="auto"
        How to minimise, as in :class:`MarginPursuitClassifier`; but with "auto" and a penalty that
        is the same for all coefficients ("absolute" and "common"), fits to folds of sparse rows in
        memory with many columns are made by coordinate ascent in the dual.
    max_iter : int, default=1000
        The most iterations of a fit.
    tol : float, default=1e-3
        The estimated relative suboptimality at which fits to folds stop; the fit to all rows stops
        at a thousandth of it. Coordinate ascent in the dual stops where the relative gap to the
        dual objective, an upper bound but for what changes during a pass, is ten times as large.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes.
    n_threads : int or None, default=None
        The number of threads; by default one for each processor.
    random_state : int, RandomState instance or None, default=0
        Which rows the first rounds of a race take.
    verbose : int, default=0
        Whether to show a progress bar.

    Attributes
    ----------
    cv_results_ : dict of ndarrays
        Settings and scores under the names of scikit-learn's GridSearchCV, and the `threshold` at
        which a setting has its scores (with fitted ones, means over thresholds within 0.12 times
        the margin of it).
    best_params_ : dict
        The chosen setting: `alpha`, `overconfidence` and `scale`.
    best_score_ : float
        Its mean score.
    best_index_ : int
        Its place in `cv_results_`.
    best_estimator_ : MarginPursuitClassifier
        The fit to all rows; its `coef_`, `scale_` and statistics of the margins are attributes here
        too.
    threshold_ : float
        The threshold of the chosen setting.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        The intercept of `best_estimator_` less the threshold.
    alpha_unit_ : str
        The unit of the penalties.
    n_splits_ : int
        The number of folds.
    n_passes_ : float
        Reads of the data by fits and for held-out scores; those of a sample count by its share.
    refit_time_ : float
        Seconds for the fit to all rows.
    scorer_ : callable or None
        How settings were judged.
    classes_ : ndarray of shape (n_classes,)
        The classes.
    n_features_in_ : int
        The number of features.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, where X has names that are all strings.

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

    _takes_blocks = True
    _fits_elsewhere = True

    def __init__(
        self,
        *,
        scales: Iterable[float] = (0.1, 0.3, 1.0, 3.0),
        overconfidences: Iterable[float] = (0.0, 1.0),
        alphas: Iterable[float] | None = None,
        alpha_unit: str = "auto",
        leverage_bound: float | None = 1.0,
        margin: float = 1.0,
        cv: Any = 5,
        scoring: Any = None,
        rule: str = "best",
        threshold: str = "fitted",
        refit: bool = True,
        race: bool = True,
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
        self.alpha_unit = alpha_unit
        self.leverage_bound = leverage_bound
        self.margin = margin
        self.cv = cv
        self.scoring = scoring
        self.rule = rule
        self.threshold = threshold
        self.refit = refit
        self.race = race
        self.link = link
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.class_weight = class_weight
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self, X: Any, y: Any, sample_weight: ArrayLike | None = None, **params: Any
    ) -> "MarginPursuitClassifierCV":
        """Choose a setting by cross-validation and fit it to all rows.

        Parameters
        ----------
        X : {array-like, sparse matrix, Blocks, Dask array} of shape (n_samples, n_features)
            Training samples, of any real dtype, wherever :class:`MarginPursuitClassifier` takes
            them.
        y : {array-like, Dask array} of shape (n_samples,)
            Class of each sample.
        sample_weight : array-like of shape (n_samples,), optional
            Weights >= 0, in the fits and, where the scorer takes weights, in the scores. With
            metadata routing it is the scorer that says whether it wants them.
        **params : dict
            `groups` for the splitter; with metadata routing, whatever splitter and scorer ask for.

        Returns
        -------
        self : MarginPursuitClassifierCV
            The fitted estimator.
        """
        check_parameters(self, _ALLOWED)
        self._forget()
        data = self._check_training(X, y, sample_weight).on_host()
        self._refuse_missing(data.matrix)
        self.scorer_ = self._scorer
        to_splitter, to_scorer = self._route(sample_weight, params)
        unit = "common" if data.is_sparse else "standardised"
        self.alpha_unit_ = unit if self.alpha_unit == "auto" else self.alpha_unit
        folds = self._split(data, to_splitter, to_scorer)
        if self.rule == "one-standard-error" and len(folds) < 2:
            raise ValueError('rule="one-standard-error" needs at least 2 folds; cv has 1')
        with np.errstate(all="ignore"):
            try:
                start, weights = self._choose(data, folds, to_scorer)
            except FloatingPointError as error:
                if self.alpha_unit_ != "standardised":
                    raise OverflowError(f"the columns of X need another unit: {error}") from error
                matrix, _ = rescaled(data.matrix)  # on which no score depends
                _, weights = self._choose(replace(data, matrix=matrix), folds, to_scorer)
                start = None  # fits in another unit are not where this one will be
        if self.refit:
            self._refit(X, y, data.count * weights, start)
        return self

    @lazy_on_dask
    def predict_proba(self, X: Any) -> Any:
        """Return the probability of each class.

        Parameters
        ----------
        X : {array-like, sparse matrix, Blocks, Dask array} of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        array of shape (n_samples, n_classes)
            Probabilities, in the order of `classes_`; an array of the kind of the scores.
        """
        if self.link == "exact":
            return self.best_estimator_.predict_proba(X)
        scores = self.decision_function(X)
        scores = scores[:, np.newaxis] if scores.ndim == 1 else scores
        if not is_elsewhere(X):
            return self.link_.probabilities(scores)
        return beside(X, self.link_.probabilities(adopted(scores)))

    @property
    def _fits_threshold(self) -> bool:
        is_cut = self.scoring is None and len(self.classes_) == 2 and self.fit_intercept
        # The exact link is about the minimiser of the loss, and would disagree with predictions;
        # weights of classes move the cut on purpose, and correct predictions would move it back.
        is_free = self.link == "fitted" and self.class_weight is None
        return self.threshold == "fitted" and is_free and is_cut

    def _choose(
        self, data: TrainingData, folds: list[Fold], to_scorer: dict[str, Any]
    ) -> tuple[Linear | None, FloatArray]:
        """Hold the contest; set `cv_results_`, what is best, and the link.

        Returns where to begin the fit to all rows, if that is known, and the weights of the rows.
        """
        data, n_passes = self._bounded(data)
        alphas = _ALPHAS[data.is_sparse] if self.alphas is None else self.alphas
        grid = {"alpha": alphas, "overconfidence": self.overconfidences, "scale": self.scales}
        params = list(ParameterGrid({name: list(values) for name, values in grid.items()}))
        settings = [Setting(*(float(p[name]) for name in Setting._fields)) for p in params]
        judge = Judge(
            self.scorer_,
            data.matrix,
            data.labels.codes,
            self.classes_,
            to_scorer,
            float(self.margin) * THRESHOLDS if self._fits_threshold else np.zeros(1),
        )
        options = FoldOptions(
            float(self.margin),
            self.alpha_unit_,
            self.fit_intercept,
            self.solver,
            usable_threads(self.n_threads),
            are_penalised=all(setting.alpha > 0 for setting in settings),
        )
        terms = Terms(
            options,
            Effort(self.max_iter, self.tol),
            self.race,
            self.rule,
            self.link,
            self.random_state,
            self._class_factors if isinstance(self.class_weight, str) else None,
            type(self).__name__ if self.verbose else None,
        )
        outcome = Contest(data, folds, judge, terms).hold(settings)
        self.cv_results_ = search_results(
            params, outcome.scores, outcome.resources, outcome.thresholds
        )
        self.best_index_ = outcome.best
        self.best_params_ = params[outcome.best]
        self.best_score_ = float(outcome.scores[outcome.best].mean())
        self.threshold_ = float(outcome.thresholds[outcome.best])
        self.n_passes_ = n_passes + outcome.n_passes
        if outcome.link is not None:
            self.link_ = outcome.link
        return outcome.start, data.weights

    def _bounded(self, data: TrainingData) -> tuple[TrainingData, int]:
        """Return the data with the weights that the bound leaves, and the reads that this took."""
        if self.leverage_bound is None:
            return data, 0
        with design_for(data.matrix, n_threads=usable_threads(self.n_threads)) as design:
            bound = float(self.leverage_bound)
            weights = bounded_weights(design, data, bound, centred=self.fit_intercept)
            return replace(data, weights=weights), design.n_passes

    def _refit(self, X: Any, y: Any, weights: FloatArray, start: Linear | None) -> None:
        """Fit the chosen setting to all rows, with these weights, from a start if there is one."""
        begin = perf_counter()
        model = MarginPursuitClassifier(
            **self.best_params_,
            margin=self.margin,
            alpha_unit=self.alpha_unit_,
            fit_intercept=self.fit_intercept,
            solver=self.solver,
            max_iter=self.max_iter,
            tol=1e-3 * self.tol,
            n_threads=self.n_threads,
        )
        if start is not None:
            model.set_params(warm_start=True)
            model.coef_, model.intercept_ = start[0].T, start[1]
        # Classes and distances are in the weights already.
        own = {"class_weight": self.class_weight, "leverage_bound": self.leverage_bound}
        self.best_estimator_ = model.fit(X, y, weights).set_params(warm_start=False, **own)
        self.refit_time_ = perf_counter() - begin
        self.n_passes_ += self.best_estimator_.n_passes_
        for name in ("coef_", "scale_", "n_iter_", "objective_"):
            setattr(self, name, getattr(self.best_estimator_, name))
        for name in ("margin_location_", "margin_statistics_"):
            setattr(self, name, getattr(self.best_estimator_, name))
        self.intercept_ = self.best_estimator_.intercept_ - self.threshold_
