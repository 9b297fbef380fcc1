"""The thresholds of the search, in one value that is passed to it."""

from dataclasses import dataclass, field
from functools import partial

import numpy as np

from marginpursuit._validation import FloatArray
from marginpursuit.classifiers._shared import HalfFitPolicy
from marginpursuit.selection.candidates import Stopping
from marginpursuit.solvers import Policy


@dataclass(frozen=True, eq=False, repr=False)
class SelectionPolicy:
    """Thresholds of the search; each states its unit and where its value was measured.

    A value without a data set was chosen by an argument that its comment gives.
    """

    # Penalties of the default grid for dense rows. Where 1/n is more than 1/3 of the largest, all
    # are multiplied such that the largest is 3/n: with 160 rows of news20_minilm (20 classes) the
    # error of logistic regression is reached with 1e-2 (benchmarks/few_rows.py).
    dense_alphas: tuple[float, ...] = (1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 3e-6, 1e-6)
    largest_alpha_rows: float = 3.0

    # Penalties of sparse rows, times n, in the unit "row", and overconfidences of dense and sparse
    # rows. With these the test errors of reuters, a9a and one class of news20 by TF-IDF are 1.48,
    # 14.74 and 0.59 % (seed 100). With penalties from 1e-3 to 1e-7 in the unit "common" and both
    # overconfidences they are 1.48, 14.80 and 0.72 %, in 1.3 to 4 times the processor time.
    sparse_alphas: tuple[float, ...] = (10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01)
    dense_overconfidences: tuple[float, ...] = (0.0, 1.0)
    sparse_overconfidences: tuple[float, ...] = (0.0,)
    joint_overconfidences: tuple[float, ...] = (0.0,)

    # Scales. With a kernel no scale is better than 1 on the development sets of
    # `benchmarks/kernel_defaults.py`, with or without mislabelled rows. On sparse rows the losses
    # of the scales 1 and 3 are nearly equal, and 0.1 with a small penalty is 0.3 with a larger one.
    # On six splits of reuters, a9a and news20 (seeds 101 to 103) the test error of a search over
    # two scales is 0.02 points above that of a search over four, in the mean.
    # With a joint loss of several classes two scales and no overconfidence have the test error of
    # all eight combinations: +0.00 points in the mean of 45 searches (iris, wine, digits, five
    # ordered classes and cov, up to 2,000 rows; clean, 20 % mislabelled, 5 % leverage rows; seeds
    # 510 to 512), in 0.2 to 0.8 times the processor time.
    dense_scales: tuple[float, ...] = (0.1, 0.3, 1.0, 3.0)
    sparse_scales: tuple[float, ...] = (0.3, 1.0)
    joint_scales: tuple[float, ...] = (0.3, 1.0)
    kernel_scales: tuple[float, ...] = (1.0,)
    kernel_overconfidences: tuple[float, ...] = (0.0,)

    # With a kernel: factors of γ around its default and penalties times n. On the same sets more
    # values lower the error by less than 0.05 points. A penalty of 0.003/n suits the landmarks of
    # the search better than all rows: with it the mean test error of digits (seeds 110 to 115) is
    # 2.5 %, and 2.1 % without.
    gamma_factors: tuple[float, ...] = (0.03, 0.1, 0.3, 1.0)
    kernel_alphas: tuple[float, ...] = (3.0, 1.0, 0.3, 0.1, 0.03, 0.01)
    # The two steps of a search with a kernel. With two values of γ and 1,000 landmarks a search of
    # ten classes of MNIST (four splits of 1,347 rows) takes 2.1 times, of cov (two splits) 2.2
    # times and of digits (seeds 110 to 115) 1.8 times the processor time; the mean errors are
    # 11.41 % instead of 11.38, 28.12 instead of 28.12, and 2.04 instead of 2.08.
    gamma_components: int = 250  # landmarks of the first step
    search_components: int = 1000  # landmarks of the last step
    max_search_coefficients: int = 5000  # landmarks times classes, in the last step
    max_final_gammas: int = 2  # values of γ in the last step, for one binary problem
    max_final_gammas_of_several: int = 1  # and for several
    max_final_candidates: int = 1  # candidates in the last step, for each γ
    kernel_first_stopping: Stopping = field(default_factory=partial(Stopping, 20, 1e-2))
    kernel_last_stopping: Stopping = field(default_factory=partial(Stopping, 40, 1e-3))

    # Rungs of successive halving. With one more rung, of half of the rows, and without a limit on
    # the candidates the mean test error of 24 searches is 0.01 points lower than with a limit of a
    # quarter, in 1.0 to 2.2 times the processor time (synthetic tables, higgs_small, cov, protein,
    # a9a and digits 3 and 8; seeds 101 to 103).
    growth: int = 4  # the rows of a rung, divided by those of the rung before
    max_rungs: int = 3  # with the rung of the full data
    # The candidates of a rung, divided by those that stay. With a ratio of 8 the mean test error of
    # 150 searches is 0.000 ± 0.004 points higher, in 1.09 times the processor time (cov, protein,
    # digit5 and synthetic rows of two classes; clean, flipped labels, leverage rows; seeds 112 to
    # 121). With one that stays of three classes or more, the error of 252 searches is 0.044 ± 0.014
    # points higher, in 0.78 times the time (digits, news20_minilm and five synthetic classes; seeds
    # 112 to 139).
    elimination_ratio: int = 16
    min_remaining: int = 2  # least number of candidates that stay
    # Held-out rows, summed over the folds, from which `elimination_ratio` limits the candidates
    # that stay: the order of their scores on fewer rows is mostly noise.
    min_ranking_rows: int = 1000

    # The fewest rows of a subsample.
    min_rung_rows: int = 2000
    # The same with three classes or more. Against searches without such small rungs, the mean test
    # error of the 45 searches above changes by -0.01 points, and digits with leverage rows take 0.3
    # times the processor time.
    min_classes_rung_rows: int = 300
    # The fewest rows per column of a subsample. A subsample of 1/`growth` of all rows may have
    # fewer.
    min_rows_per_column: int = 3

    # The most stored elements of a subsample: 256 MiB in float64.
    max_rung_elements: int = 1 << 25

    # Held-out rows per fitted row. Scoring is cheap, and four times the rows halve the noise.
    scored_per_fitted: int = 4

    # The fewest rows that folds must train on in common to share a fit, as a fraction of the rows
    # of the fit.
    min_common_fraction: float = 0.75

    # The fewest rows of a class in a subsample, if the class has them.
    min_class_rows: int = 20

    # A candidate is eliminated if it is worse than the best by more standard errors than this. With
    # 3, 5,000 of 20,000 rows eliminate the winner of `tests/test_selection_halving.py`; searches of
    # cov, digit5 and news20_minilm take 0 to 5 % less processor time, and choose the same.
    elimination_errors: float = 3.5

    # Bytes of the state of all tasks that are solved together, and of the held-out scores that are
    # kept at a time. In the dual no pass is shared by more than eight tasks: more bytes than these
    # make a search on news20 with 20 classes no faster, and take more memory than the rows.
    max_state_bytes: int = 1 << 28  # in the primal
    max_dual_state_bytes: int = 1 << 25  # in the dual
    primal_state_arrays: int = 24  # arrays with an entry per coefficient, of a task in the primal
    dual_state_arrays: int = 2  # and in the dual

    # Sums of products are in float32 for tolerances of at least this, and margins γ in
    # `solvers.float32_margins`.
    float32_tol: float = 1e-4

    # Thresholds by which the solver of the fold fits is chosen, and by which it runs. With many
    # tasks the passes of "gram" are shared, and those of "newton" are not: the first rung of cov,
    # 27,334 rows, takes 0.2 s of processor time by "gram" and 0.75 s by "newton". With a limit of
    # 2**19, 18,000 rows of cov take 0.57 times the time and 10,000 rows of protein 1.4 times, but
    # the fits are less exact: the error of 10,000 rows of cov is 0.02 points higher (45 searches).
    solvers: Policy = field(default_factory=partial(Policy, max_newton_elements=1 << 20))

    # After slow solves the Hessian replaces the Gram matrix as preconditioner, if its active rows
    # cost few sweeps and the data are large. digit5: 45 sweeps instead of 86.
    slow_iterations: int = 8  # iterations from which a solve is slow
    max_hessian_sweeps: int = 16  # the most that the active rows may cost, in sweeps
    min_hessian_elements: int = 1 << 16  # stored; a sweep over fewer takes no measurable time
    hessian_tasks: int = 12  # tasks whose mean Hessian serves all

    # Dual ascent stops at a relative duality gap of `dual_gap_ratio` times `tol`. On news20 the
    # predictions for held-out rows hardly change below a gap of 5 %, which takes about 20 passes;
    # a gap of 0.1 % takes 400.
    dual_gap_ratio: float = 10.0

    # The most passes of dual ascent are `dual_passes` / `tol`: 200 with the default tolerance. With
    # small penalties and n close to d it may need a thousand, and unfinished fits have a lower
    # held-out error than their minimisers (reuters: 2.2 % instead of 2.4 %). Fits to all rows then
    # continue in the primal, for at least `min_primal_iterations`, since the first estimates of the
    # gap are ten times too small there, and until `primal_confirmations` consecutive estimates meet
    # `tol`. With five, one of 16 fits to 300 rows was three times as far from its minimum.
    dual_passes: float = 0.2
    min_primal_iterations: int = 40
    primal_confirmations: int = 10

    # Bytes of the fold fits that are kept to warm-start the refit.
    max_start_bytes: int = 1 << 28

    # The tolerance of the refit, as a multiple of that of the fold fits. With the defaults it is
    # that of a single fit, 1e-4.
    refit_tol_ratio: float = 0.1

    # Thresholds per margin γ. 20 per margin and thresholds beyond ± γ give the same test errors; 10
    # per margin cost half a point on higgs_small with leverage rows.
    thresholds_per_margin: int = 50

    # The half width, in thresholds, of the triangular weights that smooth the accuracy over them.
    # Smoothing takes 0.2 points off the test error of hiva and of higgs_small with leverage rows
    # and 0.1 off hiva with flipped labels; the other 11 of 14 cases (five small data sets, seeds 10
    # to 19) move by less than 0.1.
    smoothing: int = 7

    # The rule "auto" prefers the candidate of the single fit where rows are few. On 22 cases of 50
    # to 400 rows (digits 0, 3 and 8, spambase, cov, breast_cancer, digits, news20_minilm and
    # synthetic data, seeds from 2000 on) the error relative to logistic regression is 0.0 points in
    # the mean with the best candidate, -0.1 with one standard error and -0.25 with two. On 25 other
    # cases (seeds from 3000 on) it is -0.12 with the best candidate and -0.29 with two standard
    # errors.
    max_prior_rows: int = 400  # up to which they are few
    prior_errors: float = 2.0  # standard errors by which another candidate must be better

    # The most held-out rows to which the four slopes of the link of the chosen candidate are
    # fitted.
    max_link_rows: int = HalfFitPolicy().max_link_rows

    # The same of candidates that are scored by their probabilities. A search of spambase by
    # log-loss takes 2.3 times as long as one by accuracy with all rows in all links.
    max_scoring_link_rows: int = 1 << 11

    # Bytes of the held-out scores, in float32, that are kept of all candidates of a rung. Of more,
    # every k-th row is kept. Usually one or two candidates are kept at a time.
    max_kept_bytes: int = 1 << 30

    def default_grid(self, kind: str, n_samples: float) -> dict[str, tuple[float, ...]]:
        """Return the default values of `alphas`, `overconfidences` and `scales`.

        `kind` is "dense", "joint" for dense rows of several classes with a joint loss, "sparse" or
        "kernel". Penalties decrease.
        """
        if kind == "kernel":
            alphas = tuple(alpha / n_samples for alpha in self.kernel_alphas)
            return _grid(alphas, self.kernel_overconfidences, self.kernel_scales)
        if kind == "sparse":
            alphas = tuple(alpha / n_samples for alpha in self.sparse_alphas)
            return _grid(alphas, self.sparse_overconfidences, self.sparse_scales)
        factor = max(1.0, self.largest_alpha_rows / n_samples / self.dense_alphas[0])
        alphas = tuple(factor * alpha for alpha in self.dense_alphas)
        if kind == "joint":
            return _grid(alphas, self.joint_overconfidences, self.joint_scales)
        return _grid(alphas, self.dense_overconfidences, self.dense_scales)

    @property
    def thresholds(self) -> FloatArray:
        """The thresholds to choose from, inside ± 1, in units of the margin."""
        n = self.thresholds_per_margin
        return np.arange(1 - n, n) / n


def _grid(*values: tuple[float, ...]) -> dict[str, tuple[float, ...]]:
    return dict(zip(("alphas", "overconfidences", "scales"), values, strict=True))
