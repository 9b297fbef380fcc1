"""Half fits: held-out scores of a single fit, for its link and the choice of its penalty.

The scores of a fit to its own rows are too far from zero: the link is fitted to
*held-out* scores. The rows are split into two halves by their content, and each half scores the
other. Both halves are folds of one problem over the data as they are prepared for the fit to all
rows, in shared passes. Each half has half the rows, so its penalty is twice that of the fit to all
rows. Where a penalty is to be chosen, both halves are fitted at several, from the largest to the
smallest, and the fit to all rows starts at the mean of the half fits at the chosen one
(`chosen_fits`). Otherwise the half fits start at the fit to all rows; those of a solver without
warm starts are solved next to it, in the same threads.
"""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from marginpursuit._namespaces import to_numpy
from marginpursuit._validation import FloatArray
from marginpursuit.classifiers._halves import Halves, split_keys
from marginpursuit.classifiers._input import TrainingData
from marginpursuit.classifiers._label_links import LabelLinks
from marginpursuit.classifiers._link import FittedLink, link_rows, thinning
from marginpursuit.design import Design, Linear, PassCounter, Standardisation, design_for
from marginpursuit.solvers import (
    FOLD_SOLVERS,
    ConcurrentSolver,
    FoldSolver,
    Problem,
    Solution,
    allows_float32,
    float32_problem,
)
from marginpursuit.tasks import JointTasks, Labels, LabelSets, RowRanges, Tasks


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class HalfFitPolicy:
    """Thresholds of the half fits."""

    #: Relative suboptimality of a half fit. For several labels and large joint tasks also where
    #: penalties are compared: with 1e-3 and 1e-5 the choices for 60 labels of 18 samples are the
    #: same, and 41 of 42 for 4 to 20 classes of digits, cov and news20_minilm (150 to 1,000 rows,
    #: seeds 100 to 105). The test log-losses of these change by at most 0.7 %, and fits take 0.49
    #: to 0.75 times as long.
    tol: float = 1e-3
    #: The same of sparse rows, in the dual: against 1e-4, the test log-losses of reuters and news20
    #: (1,500 and all rows, seeds 101 and 102) change by less than 0.7 %, and by 0.1 % in the mean.
    dual_tol: float = 3e-2
    max_iter: int = 100
    min_distinct_rows: int = 4  # of a class, so that each half has two
    max_link_rows: int = 1 << 14  # held-out rows to which the four slopes are fitted
    #: Classes of a joint loss from which the link is rescaled (`HalfFits.link_of`). Test log-losses
    #: then change by -0.3, -0.6, -1.7 and -2.5 % on 9,000, 3,000, 400 and 160 training rows of
    #: news20_minilm, -0.2 to +0.3 % on digits and -0.5 to +0.1 % on synthetic data (seeds 140 to
    #: 173). With three classes iris, wine and news20_minilm change by +1 to +3 %.
    min_rescaled_classes: int = 10

    #: The penalty "auto" is one of these multiples of 0.3/n, where there are fewer rows per column
    #: than this: with more, the best penalty depends on the data less (docs/choosing.md).
    factors: tuple[float, ...] = (1.0 / 3.0, 1.0, 10.0 / 3.0, 10.0)
    max_rows_per_column: float = 32.0
    #: Relative suboptimality of other half fits whose held-out log-losses are compared. On 16 small
    #: data sets the ratios of these losses then differ by at most 0.2 % between the solvers
    #: "newton" and "gram"; at 1e-3, by 1.3 %.
    choice_tol: float = 1e-5
    #: The same of solvers that bound the suboptimality, as "dual" by the duality gap. On 60
    #: samples of digit5, hiva, news20_minilm and synthetic data (100 to 2,000 rows, seeds 100 to
    #: 105) the choices are those at 1e-8, and the test log-losses change by at most 0.2 %. The
    #: ratios differ by 0.08 % in the median. A fit to 400 rows of digit5 takes 0.93 times as long
    #: as with 3e-4.
    bounded_choice_tol: float = 3e-3
    #: The choice is the least penalty, from 0.3/n on, whose log-loss is at most (1 + this) times
    #: the lowest: nearly equal losses, within the 0.2 %, lead to the same choice
    #: (tests/test_half_fits.py).
    max_increase: float = 5e-3
    #: 0.3/n is replaced by 0.1/n where the log-likelihood of the held-out rows is larger by this.
    #: On two classes of cov, higgs_small, mnist and nine other sets with 40 to 400 rows the
    #: accuracy changes by +0.25, +0.10, +0.07 and -0.06 to 0.00 points (docs/choosing.md).
    min_likelihood_gain: float = 1.0
    #: With a joint loss of several classes it is the largest penalty whose log-loss is at most (1 +
    #: this) times the lowest. Against 2 %, the accuracy changes by +0.17 ± 0.05 points on cov,
    #: -0.04 ± 0.02 on wine and -0.01 ± 0.02 on classes of news20_minilm, with 40 to 400 rows; four
    #: other sets change by less than their standard error (docs/choosing.md).
    max_joint_increase: float = 1e-2
    #: Half fits along a path of penalties end where the log-loss exceeds the lowest by this
    #: fraction. With 0.5 %, one of four samples of 90 to 569 rows misses a lower one
    #: (tests/test_half_fits.py). With a joint loss they end where it increases: a smaller penalty
    #: is chosen only if its log-loss is lower by `max_joint_increase`.
    max_path_increase: float = 2e-2
    #: Coefficients of all classes up to which there is a choice: six fits of as many take 250 MB.
    max_coefficients: int = 1 << 18
    #: Of more labels than this, evenly spaced ones are fitted for the choice. On 17 of 18 samples
    #: of digits, news20_minilm and synthetic data with 60 labels the choice is that of all labels;
    #: 8 labels choose alike on 14.
    max_choice_labels: int = 16

    #: Scores of a row, over all half fits, from which these read a float32 copy of the rows, and
    #: the least relative suboptimality there. Of 96 samples of digits, news20_minilm, cov, MNIST
    #: and synthetic data with 2 to 20 classes or 60 to 100 labels (400 to 16,000 rows, seeds 100 to
    #: 103), 95 have the same choice as with 1e-3, and fits take 0.77 to 1.06 times as long. The
    #: test log-losses change by at most 0.4 %; with 1e-2 by up to 2 %.
    min_float32_scores: int = 8
    float32_tol: float = 3e-3

    def chooses_penalty(self, n_samples: float, n_columns: int) -> bool:
        """Whether there are so few rows per column that the penalty is chosen."""
        return n_samples < self.max_rows_per_column * n_columns

    def factors_of(self, *, is_joint: bool) -> tuple[float, ...]:
        """Return the factors; with a joint loss those from one on.

        With a joint loss 0.1/n changes the accuracy of five data sets by -0.03 to +0.01 points, and
        a fit to 400 rows of digits takes 1.5 times as long.
        """
        return tuple(factor for factor in self.factors if not is_joint or factor >= 1.0)

    def half_fit_tol(self, factors: tuple[float, ...], *, bounds_gap: bool) -> float:
        """Return the relative suboptimality of half fits at these multiples of a penalty."""
        if len(factors) == 1:
            return self.tol
        return self.bounded_choice_tol if bounds_gap else self.choice_tol


@dataclass(frozen=True, slots=True)
class _HalfProblem:
    """The half fits of a problem at multiples of its penalty, as folds of one problem."""

    problem: Problem
    halves: Halves
    step: int  # held-out rows of which the link uses one
    max_link_rows: int
    factors: tuple[float, ...]

    @classmethod
    def of(
        cls,
        design: Design,
        data: TrainingData,
        problem: Problem,
        solver: str,
        factors: tuple[float, ...],
        policy: HalfFitPolicy,
    ) -> "_HalfProblem | None":
        """Split the rows; None where fewer than two classes have four distinct rows.

        Rows with several labels are split as if they were of one class.
        """
        codes, weights = (to_numpy(x) for x in (data.labels.strata, data.weights))
        min_classes = 1 if isinstance(data.labels, LabelSets) else 2
        max_rows = link_rows(policy.max_link_rows, len(data.labels.positive_classes))
        rows = design
        if data.has_kernel_features:
            rows = design_for(data.original_matrix, design.threads)
        keys = split_keys(rows, _key_standardisation(rows, problem, data))
        halves = Halves.of(keys, codes, weights, policy.min_distinct_rows, min_classes)
        if halves is None:
            return None
        step = thinning(int(np.count_nonzero(halves.held_out)), max_rows)
        halves = halves.thinned(step)
        fold_solver = FOLD_SOLVERS[solver]
        is_large_joint = fold_solver.shares_passes and _is_large_joint(problem)
        tol = policy.tol
        if not (isinstance(data.labels, LabelSets) or is_large_joint):
            tol = policy.half_fit_tol(factors, bounds_gap=fold_solver.bounds_gap)
        half_problem = _half_problem(problem, data.labels, halves, factors, tol, policy.max_iter)
        return cls(half_problem, halves, step, max_rows, factors)

    @property
    def tol(self) -> FloatArray:
        """The relative suboptimality of each task."""
        return np.full(len(self.problem.tasks), self.problem.tol)

    def results(self, solution: Solution, data: TrainingData) -> "list[HalfFits]":
        """Fit the link to the held-out scores, for each factor."""
        prepared, n_factors = self.problem.prepared, len(self.factors)
        coef, intercept = prepared.standardisation.to_data(solution.linear)
        # Columns of the scores: those of both halves for the first factor, then for the next.
        n_scores = intercept.size // (2 * n_factors)
        half = np.array(([0] * n_scores + [1] * n_scores) * n_factors)
        held_out, order = self.halves.held_out, prepared.order
        held_out = held_out if order is None else held_out[:, order]
        parts = prepared.design.held_out_scores(coef, intercept, held_out, half)
        kept = np.flatnonzero(held_out[0] | held_out[1])  # one half holds out each of these rows
        is_first = held_out[0, kept]
        kept = kept if order is None else order[kept]
        scores = np.empty((len(kept), n_factors * n_scores))
        scores[is_first], scores[~is_first] = parts
        counts = self.step * data.n_samples * to_numpy(data.weights)[kept]
        labels, margin = data.on_host().labels.take(kept), self.problem.tasks.losses[0].margin
        # The mean of both halves, for each factor.
        both = [x.reshape(*x.shape[:-1], n_factors, 2, n_scores) for x in solution.linear]
        coefs, intercepts = (0.5 * (x[..., 0, :] + x[..., 1, :]) for x in both)
        found = []
        is_rescaled = is_joint_link_rescaled(self.problem.tasks)
        for k, factor in enumerate(self.factors):
            own = scores[:, k * n_scores : (k + 1) * n_scores]
            link, log_loss = _link_of(own, labels, counts, margin, self.max_link_rows)
            norm = _centred_norm(both[0][:, k]) / np.sqrt(2.0) if is_rescaled else 0.0
            found.append(HalfFits(factor, link, log_loss, (coefs[:, k], intercepts[k]), norm))
        return found


@dataclass(frozen=True, slots=True)
class HalfFits:
    """Two half fits at a multiple of the penalty of a problem."""

    factor: float
    link: FittedLink | LabelLinks
    log_loss: float  # of the held-out rows, with the link; the mean over several labels
    linear: Linear  # the mean of both fits, in the coordinates of the prepared data
    #: The root mean square over both halves of the norm of all coefficients, less their mean over
    #: the classes; zero where the link is not rescaled.
    norm: float = 0.0

    def link_of(self, linear: Linear) -> FittedLink | LabelLinks:
        """Return the link for the scores of a fit to all rows.

        With a penalty the coefficients of a fit to more rows are larger, and so are its scores, but
        these also have less noise. The scores are divided by the square root of the ratio of the
        norms: divided by the ratio itself, they have a larger log-loss (news20_minilm).
        """
        whole = _centred_norm(linear[0]) if self.norm > 0 else 0.0
        if not (whole > 0 and isinstance(self.link, FittedLink)):
            return self.link
        factor = float(np.sqrt(self.norm / whole))
        return replace(
            self.link, margin=self.link.margin / factor, slopes=factor * self.link.slopes
        )


def _is_large_joint(problem: Problem) -> bool:
    """Whether the tasks are joint, with more products than are solved up to rounding by default."""
    n_products = problem.prepared.design.n_stored * problem.start[1].size
    is_large = n_products > problem.policy.max_exact_joint_products
    return is_large and isinstance(problem.tasks, JointTasks)


def is_joint_link_rescaled(tasks: Tasks) -> bool:
    """Whether the link of a joint loss is rescaled, which depends on the number of classes."""
    min_classes = HalfFitPolicy().min_rescaled_classes
    return isinstance(tasks, JointTasks) and tasks.n_classes >= min_classes


def _centred_norm(coef: FloatArray) -> float:
    """Return the norm of coefficients less their mean over the classes, the last axis."""
    return float(np.linalg.norm(coef - coef.mean(axis=-1, keepdims=True)))


def half_fits(
    design: Design,
    data: TrainingData,
    problem: Problem,
    solver: str,
    factors: tuple[float, ...] = (1.0,),
    policy: HalfFitPolicy | None = None,
) -> list[HalfFits]:
    """Fit both halves of the rows at multiples of a penalty, in shared passes.

    Parameters
    ----------
    design : Design
        The rows as given.
    data : TrainingData
        Labels, and the weights of the fit.
    problem : Problem
        The problem of the fit to all rows. The half fits begin at its start.
    solver : str
        The solver that prepared it.
    factors : tuple of float
        The multiples.
    policy : HalfFitPolicy, optional
        Thresholds.

    Returns
    -------
    list of HalfFits
        One for each factor, in rising order; those that cannot be chosen may be left out. Where
        fewer than two classes have four distinct rows (with several labels, fewer than four rows
        are distinct) there are no fits: one element has the factor 1, the link a priori and the
        start. Empty where the solver fits no folds.
    """
    if solver not in FOLD_SOLVERS:
        return []
    policy = HalfFitPolicy() if policy is None else policy
    halves = _HalfProblem.of(design, data, problem, solver, factors, policy)
    if halves is None:
        return _without_halves(data, problem)
    fold_solver = FOLD_SOLVERS[solver]
    if not fold_solver.shares_passes:
        return halves.results(fold_solver.solve_folds(halves.problem, halves.tol), data)
    copy, start = _float32_problem(halves.problem, policy, problem.tol), None
    found: list[HalfFits] = []
    # From the largest penalty to the smallest, each the start of the next. The path ends where the
    # log-loss exceeds the lowest by `max_path_increase`: smaller penalties, whose fits take more
    # steps, would have a larger one.
    max_increase = 0.0 if isinstance(problem.tasks, JointTasks) else policy.max_path_increase
    for k in reversed(range(len(factors))):
        part = _of_factor(copy, k, len(factors), start)
        solution = fold_solver.solve_folds(part, np.full(len(part.tasks), part.tol))
        of_factor = replace(halves, problem=part, factors=factors[k : k + 1])
        found[:0] = of_factor.results(solution, data)
        start = solution.linear
        lowest = min(fit.log_loss for fit in found)
        if found[0].log_loss > (1.0 + max_increase) * lowest:
            break
    if copy is not halves.problem:
        design.n_passes += copy.prepared.design.n_passes
    return found


def _of_factor(problem: Problem, number: int, n_factors: int, start: Linear | None) -> Problem:
    """Return the half fits at one of the factors, from a start; by default that of the problem."""
    n_tasks = len(problem.tasks) // n_factors
    which = np.arange(number * n_tasks, (number + 1) * n_tasks)
    if start is None:
        n_scores = problem.start[1].size // n_factors
        start = (problem.start[0][:, :n_scores], problem.start[1][:n_scores])
    alphas, tasks = problem.alphas[which], problem.tasks.take(which)
    return replace(problem, tasks=tasks, alphas=alphas, start=start)


def solve_with_half_fits(
    design: Design, data: TrainingData, problem: Problem, solver: ConcurrentSolver
) -> tuple[Solution, list[HalfFits]]:
    """Solve a problem and its half fits in the same threads.

    A single task is solved in the calling thread, and everything about its half fits in another.
    """
    policy = HalfFitPolicy()
    if data.is_sparse:
        policy = replace(policy, tol=policy.dual_tol)
    if len(problem.tasks) == 1:
        counter = PassCounter()
        given = _with_counter(design, problem, counter)
        wait = design.threads.start(partial(_separate_half_fits, given, data, solver, policy))
        solution, fits = solver.solve(problem), wait()
        design.n_passes += counter.n_passes
        return solution, fits
    halves = _HalfProblem.of(design, data, problem, solver.name, (1.0,), policy)
    if halves is None:
        return solver.solve(problem), _without_halves(data, problem)
    solution, half_solution = solver.solve_both(problem, halves.problem, halves.tol)
    return solution, halves.results(half_solution, data)


def _separate_half_fits(
    given: tuple[Design, Problem], data: TrainingData, solver: FoldSolver, policy: HalfFitPolicy
) -> list[HalfFits]:
    """Return the half fits of a problem, in any thread."""
    design, problem = given
    with np.errstate(all="ignore"):  # that of the calling thread does not hold here
        halves = _HalfProblem.of(design, data, problem, solver.name, (1.0,), policy)
        if halves is None:
            return _without_halves(data, problem)
        return halves.results(solver.solve_folds(halves.problem, halves.tol), data)


def _with_counter(design: Design, problem: Problem, counter: PassCounter) -> tuple[Design, Problem]:
    """Return a design, and a problem over it or a copy of it, whose passes count separately."""
    own, prepared = design.with_counter(counter), problem.prepared
    inner = own if prepared.design is design else prepared.design.with_counter(counter)
    return own, replace(problem, prepared=replace(prepared, design=inner))


def _without_halves(data: TrainingData, problem: Problem) -> list[HalfFits]:
    """Return the link a priori, in place of half fits."""
    margin = problem.tasks.losses[0].margin
    link: FittedLink | LabelLinks = FittedLink.a_priori(margin, data.total_weight)
    if isinstance(data.labels, LabelSets):
        link = LabelLinks.a_priori(data.labels.n_classes, margin)
    return [HalfFits(1.0, link, np.inf, problem.start)]


def _link_of(
    scores: FloatArray, labels: Labels, counts: FloatArray, margin: float, max_rows: int
) -> tuple[FittedLink | LabelLinks, float]:
    """Return the link of held-out scores and its log-loss, the mean over several labels."""
    if isinstance(labels, LabelSets):
        return LabelLinks.fit(scores, labels.indicator(), counts, margin, labels.factors)
    return FittedLink.fit(scores, labels.codes, counts, margin, max_rows=max_rows)


def chosen_fits(
    fits: list[HalfFits],
    n_samples: float,
    policy: HalfFitPolicy | None = None,
    *,
    is_joint: bool = False,
) -> HalfFits:
    """Return the fits at the smallest factor >= 1 whose log-loss is nearly the lowest.

    It is at most (1 + `max_increase`) times the lowest. With a joint loss it is the largest factor
    whose log-loss is at most (1 + `max_joint_increase`) times the lowest. One is replaced by the
    factor below it, if there is one, whose log-likelihood is larger by `min_likelihood_gain`.
    """
    policy = HalfFitPolicy() if policy is None else policy
    from_one = [fit for fit in fits if fit.factor >= 1.0]
    increase = policy.max_joint_increase if is_joint else policy.max_increase
    limit = (1.0 + increase) * min(fit.log_loss for fit in from_one)
    within = [fit for fit in from_one if fit.log_loss <= limit]
    best, smaller = within[-1 if is_joint else 0], fits[: len(fits) - len(from_one)]
    if smaller and best is from_one[0]:
        gain = n_samples * (best.log_loss - smaller[-1].log_loss)
        return smaller[-1] if gain > policy.min_likelihood_gain else best
    return best


def penalty_factors(data: TrainingData, problem: Problem, solver: str) -> tuple[float, ...]:
    """Return the multiples of the default penalty from which half fits choose.

    There are none where a choice costs more than it gains: with many rows for each column, sparse
    rows that are fitted in the dual, or no solver for small or wide dense rows.
    """
    policy, n_columns = HalfFitPolicy(), data.matrix.shape[1]
    is_large = problem.start[0].size > policy.max_coefficients
    is_fast = solver in ("newton", "gram") or (solver == "dual" and not data.is_sparse)
    if is_large or not is_fast or not policy.chooses_penalty(data.n_samples, n_columns):
        return ()
    return policy.factors_of(is_joint=isinstance(problem.tasks, JointTasks))


def label_subset(
    data: TrainingData, problem: Problem, policy: HalfFitPolicy | None = None
) -> tuple[TrainingData, Problem]:
    """Return data and problem of at most `max_choice_labels` labels, by which to choose."""
    policy = HalfFitPolicy() if policy is None else policy
    labels, n_labels = data.labels, len(problem.tasks)
    if not isinstance(labels, LabelSets) or n_labels <= policy.max_choice_labels:
        return data, problem
    which = np.linspace(0, n_labels - 1, policy.max_choice_labels).astype(np.intp)
    return replace(data, labels=labels.only(which)), problem.take(which)


def _key_standardisation(design: Design, problem: Problem, data: TrainingData) -> Standardisation:
    """Return the standardisation of the rows as given, by which they are split.

    The columns of dense rows are standardised. Solvers of sparse or wide rows may have replaced the
    columns, so these are not used. With a kernel the columns of the problem are its features.
    """
    prepared = problem.prepared
    if prepared.design is design:
        return prepared.standardisation
    is_replaced = design.is_sparse or data.has_kernel_features
    transform = None if is_replaced else prepared.transform
    if isinstance(transform, Standardisation):
        return transform
    if design.is_sparse:
        return Standardisation.identity(design.n_columns)
    return design.standardisation(data.weights, centred=prepared.fit_intercept)


def _half_problem(
    problem: Problem,
    labels: Labels,
    halves: Halves,
    factors: tuple[float, ...],
    tol: float,
    max_iter: int,
) -> Problem:
    """Return the problem of all half fits: the tasks of both halves, factor by factor.

    Labels with weights of classes have a fold for each half and label.
    """
    prepared, tasks, n_fits = problem.prepared, problem.tasks, 2 * len(factors)
    weights = halves.weights
    if isinstance(labels, LabelSets):
        weights = np.concatenate([labels.weights(own) for own in halves.weights])
    n_folds = len(weights) // 2
    first = np.arange(len(tasks)) % n_folds
    repeated = replace(
        tasks,
        weights=prepared.design.to_device(weights),
        positive=np.concatenate([tasks.positive] * n_fits),
        fold=np.tile(np.concatenate([first, n_folds + first]), len(factors)),
        losses=n_fits * tasks.losses,
    )
    return replace(
        problem,
        prepared=replace(prepared, penalty_weights=prepared.penalty_weights[:1]),
        tasks=repeated,
        alphas=2.0 * np.outer(np.repeat(factors, 2), problem.alphas).ravel(),
        start=(np.hstack([problem.start[0]] * n_fits), np.hstack([problem.start[1]] * n_fits)),
        max_iter=min(problem.max_iter, max_iter),
        tol=tol,
        report=None,
        on_iterate=None,
    )


def _float32_problem(problem: Problem, policy: HalfFitPolicy, fit_tol: float) -> Problem:
    """Return half fits of a float32 copy of the standardised rows, in the order of the halves.

    A sweep of the copy skips the tasks of a half where they have no weight, so that the fits to
    both halves cost as much as one to all rows. The problem is returned as it is where there can be
    no copy, few scores of a row, or few elements for the tolerance of the fit to all rows.
    """
    design, (low, high) = problem.prepared.design, problem.policy.float32_margins
    has_many_scores = problem.start[1].size >= policy.min_float32_scores
    n_elements, is_joint = design.n_rows * design.n_columns, isinstance(problem.tasks, JointTasks)
    is_large = allows_float32(problem.policy, n_elements, fit_tol, is_joint=is_joint)
    in_memory = "row_access" in design.capabilities  # weights elsewhere are not NumPy arrays
    in_range = low <= problem.tasks.losses[0].margin <= high
    if not (in_memory and has_many_scores and is_large and in_range):
        return problem
    copy = float32_problem(problem, *RowRanges.of(problem.tasks.weights))
    if copy is None:
        return problem
    return replace(copy, tol=max(problem.tol, policy.float32_tol))
