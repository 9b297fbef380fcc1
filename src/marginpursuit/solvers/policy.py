"""The thresholds of the solvers, each with its unit and the measurement that set it.

Tests and experiments pass another `Policy` instead of changing these numbers. "Step" means one
iteration of L-BFGS, which takes one pass over the data. Unless another source is named, a number
was chosen on the sets cov, protein, digit5 and news20_minilm by `benchmarks/fits.py` and
`benchmarks/selection.py`.

The policies of all packages have no generated `__eq__` and `__repr__`, which take time at import
(`benchmarks/imports.py`).
"""

from dataclasses import dataclass, field
from functools import cache


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LbfgsPolicy:
    """Thresholds of the L-BFGS method that all tasks share."""

    #: Correction pairs that are kept; more did not lower the number of passes. From `many_tasks`
    #: tasks on, the two-loop recursion takes as long as a pass, and fewer pairs are kept.
    memory: int = 20
    many_tasks: int = 32
    memory_of_many_tasks: int = 8
    #: Armijo's constant, and the step size at which backtracking gives up.
    sufficient_decrease: float = 1e-4
    min_step_size: float = 1e-10
    #: Floor on the initial Hessian scaling; smaller values caused about 12 backtracks where rows
    #: lose their curvature on the way.
    min_hessian_scaling: float = 0.2
    #: Steps without any decrease after which the value has reached its rounding error.
    max_idle_steps: int = 20
    #: Fraction of the tolerance at which a single estimate of the gap is accepted.
    certain_fraction: float = 1e-3
    #: Otherwise, the consecutive estimates of the gap that must meet the tolerance. For fold fits:
    #: after a warm start a single small estimate is not reliable.
    fold_confirmations: int = 2
    #: For joint tasks: the Gram matrix is far from their Hessian, and the first small estimates may
    #: be wrong.
    joint_confirmations: int = 3
    #: For fits that no other method verifies, with a preconditioner that is far from the Hessian
    #: (the diagonal, the Gram matrix for many tasks), or whose renewals change the rate of
    #: decrease.
    final_confirmations: int = 5
    #: Steps of the shortest span over which the rate of decrease is estimated.
    rate_span: int = 5
    #: Fraction of the running tasks that must have finished before the arrays are compacted.
    compaction_fraction: float = 0.25


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SampledHessianPolicy:
    """Thresholds of L-BFGS with the Hessian of a subsample.

    A fit to a9a takes 9 passes with it and 15 with the Gram matrix, which costs 7 more.
    """

    #: Columns of dense rows, and stored elements of sparse ones, from which it is used: with fewer,
    #: a pass costs as much as a step between passes.
    min_columns: int = 256
    min_sparse_elements: int = 1 << 18
    #: Rows of the subsample per column, and how many times as many rows there must be.
    rows_per_column: int = 40
    sampling_ratio: int = 4
    #: The tolerance and the most steps of the fit to the subsample.
    start_tol: float = 1e-3
    max_start_steps: int = 50
    #: Consecutive estimates of the gap that must meet the tolerance. On a9a and eight sparse data
    #: sets with five settings of scale, penalty and overconfidence the relative suboptimality is
    #: then at most 0.9 times the tolerance; with one estimate, up to 1.6 times. In 6 of 280 other
    #: cases, of synthetic sparse sets with a scale of 3 or a margin of 0.3, it is up to 1.7 times.
    n_confirmations: int = 2
    #: Fraction of the tolerance at which a single estimate is accepted. On two splits of a9a and
    #: seven synthetic sparse sets with seven settings and four tolerances the largest
    #: suboptimality is then the same as without, and 5.6 steps suffice in place of 6.0.
    certain_fraction: float = 0.25


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class WorkingSetPolicy:
    """Thresholds of dual passes over a working set.

    Chosen on digit5, protein and cov (seed 100) and on synthetic data of 20 to 400 columns. digit5
    takes 0.39 s of processor time instead of 1.02 at the settings that the search chooses, and 0.6
    instead of 2.1 at the default settings.
    """

    start_sampling: int = 8  # one row in this number is in the subsample that is fitted first
    start_tol: float = 3e-2  # relative gap of the fit to the subsample
    start_passes: int = 10  # the most passes of the fit to the subsample
    #: The largest fraction of the subsample with margins below the level is `max_fraction` times
    #: d/(d + `half_columns`), for d columns: with fewer columns the products are a smaller part of
    #: the time of a step. With 50 columns and a fraction of 0.17, synthetic data take 1.1 to
    #: 1.4 times as long as by other methods; with 150 and 0.25, 0.5 to 1.3 times; with 400 and
    #: 0.37, 0.4 to 1.2 times.
    max_fraction: float = 0.55
    half_columns: int = 150
    growth: float = 2.0  # rows of the first working set / rows below the level
    first_tol: float = 1e-2  # relative gap of the first working set
    decrease: float = 1e-2  # factor between the tolerances of successive working sets
    last_fraction: float = 0.8  # tolerance of the last working set / tol
    #: Passes after which Newton's method takes over.
    max_passes: int = 200
    #: Columns from which the working set is used although the problem has a start. The passes begin
    #: at zero; to continue from the start takes the Gram matrix instead. The refit of a search on
    #: digit5 takes 0.24 s instead of 0.96 (seeds 0 and 2); on synthetic data with 200 columns, 0.6
    #: and 1.1 times as long.
    min_columns_from_start: int = 200


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class UncorrelatedPolicy:
    """Thresholds by which columns are uncorrelated: a diagonal preconditioner then suffices.

    10,000 x 300 independent normal columns take 18 ms of processor time by L-BFGS with a diagonal,
    and 98 ms by the solver "gram"; 100,000 x 50 take 20 and 48 ms.
    """

    #: Rows per column from which this is tried. With fewer, the penalty is chosen.
    min_rows_per_column: int = 32
    #: Rows of the first subsample, and steps of the power method on it.
    n_first_rows: int = 256
    n_power_steps: int = 8
    rows_per_column: int = 2  # of the second subsample, whose eigenvalues are computed
    #: Factor beyond the eigenvalues of independent columns.
    eigenvalue_margin: float = 2.0


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Policy:
    """Thresholds by which solvers are chosen and combined."""

    lbfgs: LbfgsPolicy = field(default_factory=LbfgsPolicy)
    sampled_hessian: SampledHessianPolicy = field(default_factory=SampledHessianPolicy)
    working_set: WorkingSetPolicy = field(default_factory=WorkingSetPolicy)
    uncorrelated: UncorrelatedPolicy = field(default_factory=UncorrelatedPolicy)

    #: Columns, or rows where these are fewer, up to which "auto" takes the Gram matrix. It costs
    #: about n_columns/20 sweeps, and saves more than 100 where columns are correlated.
    max_gram_columns: int = 2048
    max_gram_rows: int = 4096
    #: Relative gap to which tasks are refined where `tol` is larger. The bound on the gap estimates
    #: the distance to the minimiser, which a point with a large gap does not show: one of 20,000
    #: random problems ended 10.7 times a `tol` of 1e-2 above the minimum.
    max_refinement_tol: float = 1e-3
    #: Coefficients of a task, and elements of the rows, up to which "auto" takes the compiled
    #: Newton method (`benchmarks/tables.py`).
    max_newton_coefficients: int = 128
    max_newton_elements: int = 1 << 21
    #: Elements up to which a single fit to dense rows is one compiled call, in one thread.
    max_small_elements: int = 1 << 18
    #: Elements of a dense copy of sparse rows up to which a single fit takes that method: 400 rows
    #: of a9a take 8 ms of processor time, and 20 ms with "gram"; 4,000 rows take longer.
    max_sparse_newton_elements: int = 1 << 17
    #: Multiple of `tol` at which its Newton decrement is accepted without a bound.
    certain_decrement: float = 1e-4
    certain_fold_decrement: float = 0.1  # the same of folds, which are compared only
    #: Products of a Hessian, summed over the tasks, from which tasks are divided among threads.
    min_newton_thread_products: int = 1 << 22
    #: Products of an iteration of all tasks in one call of the kernel, which no signal interrupts:
    #: about 0.1 s.
    newton_call_products: int = 1 << 26
    #: Rows from which sparse wide rows take dual passes: 50 rows of reuters take 3 ms so, and 10 ms
    #: by the Gram matrix of the rows; 400 rows 10 and 90 ms. Fewer rows are solved close to
    #: rounding, such that weights have the effect of repeated rows to 1e-7.
    min_dual_rows: int = 50
    #: Rows from which, and problems up to which, folds of sparse wide rows take L-BFGS where dual
    #: passes are not possible: 3,533 rows of one class take 15 s by L-BFGS and 47 s with the
    #: n_rows × n_rows matrix of each fold; 20 classes share that matrix and take longer without.
    min_lbfgs_rows: int = 1025
    min_row_space_problems: int = 8

    #: Columns, or rows where these are fewer, up to which a solve by L-BFGS or dual passes
    #: continues with the Hessian where it cannot prove the tolerance, and the steps after which it
    #: does so in any case: at least this number, or this multiple of the columns or rows.
    max_hessian_size: int = 4096
    max_first_steps: int = 100
    max_first_steps_per_column: float = 0.1

    #: Penalty, in the unit "common", "row" or "standardised" and times n_rows, from which a single
    #: fit of wide rows takes dual passes: news20 takes 22 passes to 1e-6 with 0.3, and 3 to 6 times
    #: as many with 0.03.
    min_dual_penalty: float = 0.01
    #: Rows per column, and elements of the copy, up to which a single fit of dense rows and one
    #: binary problem takes dual passes (`benchmarks/tables.py`). With 5 to 13 rows per column,
    #: digit5, news20_minilm and synthetic data take 15 to 70 % of the time of the solver "gram";
    #: with 17 and 33, synthetic data take 1.1 and 1.5 times as long.
    max_dual_rows_per_column: float = 16.0
    max_dense_dual_elements: int = 1 << 24

    #: n_rows / n_columns from which the L-BFGS estimate of the gap is reliable.
    overdetermined_ratio: float = 100.0
    #: Steps after which the estimate of the gap is verified by the Hessian: a constant, and a
    #: multiple of n_columns, since verifying costs about n_columns/20 sweeps.
    trusted_steps: int = 20
    trusted_steps_per_column: float = 0.1
    #: Steps after which L-BFGS hands over to Newton's method, likewise; a Newton step on cov costs
    #: as much as many sweeps, so overdetermined problems take more.
    max_lbfgs_steps: int = 50
    max_lbfgs_steps_per_column: float = 0.05
    max_lbfgs_steps_overdetermined: int = 150
    #: Overconfidence below which rows above the level, and scale in units of the level below which
    #: rows at zero scores, have too little curvature for the estimate of the gap to notice what
    #: the penalty alone decides (`tests/test_convergence_property.py`).
    min_overconfidence: float = 0.1
    min_relative_scale: float = 0.5
    #: Steps before the rate of decrease is known well enough to stop, with little overconfidence.
    min_lbfgs_steps: int = 12
    #: Multiple of `tol` to which several tasks are solved together before each is refined alone:
    #: on news20_minilm a shared step for 20 classes costs a third of a Newton step of one.
    shared_tol: float = 1e-2

    #: Rows per column of the subsample whose Gram matrix preconditions; the matrix is then a few
    #: per cent off (cov: 0.31 s to 0.22 s).
    gram_rows_per_column: int = 1000
    gram_sampling_ratio: int = 4  # least ratio of all rows to the rows of that subsample
    #: Where few rows are active, one row in `start_sampling` is in the subsample that is fitted
    #: first. The minimiser for all rows is some per cent away from that of the subsample.
    start_sampling: int = 4
    min_start_rows_per_column: int = 15  # of that subsample; with fewer rows there is none
    max_start_rows_per_column: int = 200  # of that subsample
    start_tol: float = 1e-2  # relative gap of the fit to it
    #: One row in `newton_sampling` is in the second subsample, which is used where it has at least
    #: twice as many rows as the first. cov (seed 100, scales 0.03 and 0.1) then takes four or five
    #: steps over all rows instead of eight, and 0.79 and 0.91 times the processor time; with one
    #: row in 16, 0.73 and 0.85 times, but 200,000 of its rows have no such subsample and take 1.0
    #: instead of 0.75 times.
    newton_sampling: int = 8
    newton_start_tol: float = 1e-4  # relative gap of Newton's method on the second subsample
    max_newton_start_steps: int = 5  # of Newton's method on the second subsample
    #: Fraction of active rows up to which Newton's method continues from there: with 2 %, as on
    #: digit5 and protein, it saves L-BFGS ten steps or more; with 20 %, as on cov, it saves none.
    max_active_fraction: float = 0.08
    #: Weight of the proven gap in Newton's method from there; for overdetermined problems the gap
    #: can be 100 times too pessimistic. After L-BFGS that has missed the tolerance the weight is
    #: one: of 56 such problems, of 3,000 x 8 rows with a `tol` of 1e-6, seven take one to three
    #: steps less with 0.01, and end up to 4.7e-7 instead of 6e-9 above the minimum.
    gap_weight_overdetermined: float = 0.01

    #: Tasks whose objective is below this multiple of the loss of one row at score zero are refined
    #: alone. So few rows have curvature that the estimate of L-BFGS may be a thousandth of the gap;
    #: in the problems `draw_many` of the tests that was so up to 0.03.
    max_separated_rows: float = 0.1
    #: Newton steps of a task after which the interior-point method takes over.
    max_newton_steps: int = 40

    #: Products of a pass (stored elements times classes) up to which joint tasks are solved to
    #: `exact_joint_tol`, a relative suboptimality close to rounding: the probabilities of weighted
    #: and of repeated rows are then equal, as scikit-learn's checks require. Fits to 60 to 100 rows
    #: of synthetic data with 4 to 8 classes take 1.6 to 1.9 times as long.
    max_exact_joint_products: int = 1 << 12
    #: The same where neither rows nor penalty curve the objective (`is_curved` in `_float32.py`),
    #: and the fraction of `tol` to which larger tasks are then solved: of 800 random problems with
    #: penalties from 1e-7 to 0.1, 20 with at most 7e-5 ended 10 to 100 `tol` above the minimum.
    max_exact_flat_products: int = 1 << 17
    flat_joint_tol: float = 1e-2
    exact_joint_tol: float = 1e-15

    #: Products of a pass of one joint task up to which the kernel of L-BFGS sweeps the rows itself,
    #: and those of one call, which no signal interrupts: about 1 ms and 0.02 s. Larger passes are
    #: divided among the threads.
    max_compiled_products: int = 1 << 24
    lbfgs_call_products: int = 1 << 28
    #: Columns up to which that kernel takes the steps: with more, products of the preconditioner by
    #: BLAS are faster. 20 tasks of ten classes and 1,000 kernel features of digits (seed 110) take
    #: 4.5 s of processor time in the kernel and 2.8 s without.
    max_compiled_columns: int = 512
    #: The number of binary tasks (a fit, or both of its halves) and of columns up to which the
    #: kernel takes their steps: a step of a9a (123 columns) takes 0.15 ms in NumPy. The inverse of
    #: the preconditioner takes 0.1 ms for 123 columns, and 0.8 ms for 256.
    max_compiled_binary_tasks: int = 2
    max_compiled_binary_columns: int = 256

    #: Coefficients of a joint task up to which the Hessian of a subsample preconditions it, the
    #: rows of the subsample per coefficient, and the least ratio of all rows to those of the
    #: subsample.
    max_joint_hessian_size: int = 1024
    hessian_rows_per_coefficient: int = 50
    hessian_sampling_ratio: int = 2
    #: The same ratio from which that Hessian preconditions from the start. With fewer rows, the
    #: steps that the Gram matrix preconditions before it. 60,000 and 120,000 rows of cov with seven
    #: classes (seed 110) take 0.4 and 0.5 s of processor time; with the Gram matrix alone, 1.0 and
    #: 2.9 s. Synthetic data with five classes take 11 steps.
    direct_sampling_ratio: int = 8
    first_joint_steps: int = 20
    #: Rounds of L-BFGS on subsamples: the multiple of these rows, the most steps, and the multiple
    #: of the mean diagonal that is added to that of the Hessian at the end of the round; and the
    #: tolerance at which a round ends.
    subsample_rounds: tuple[tuple[int, int, float], ...] = (
        (1, 40, 3e-2),
        (1, 20, 1e-2),
        (4, 12, 3e-3),
    )
    subsample_tol: float = 1e-5
    #: Steps on all rows after which the Hessian is renewed, and the same multiples of its mean
    #: diagonal, the last of which remains.
    steps_per_hessian: int = 8
    #: What is added to the curvatures φ'' ≤ 1 of the rows. Solves of cov with seven classes
    #: (406,708 rows, seeds 100 to 105) take 0.76 s of processor time in the mean; with 0, 0.98 s.
    added_joint_curvature: float = 0.2
    joint_regularisation: tuple[float, ...] = (1e-3, 1e-4)

    #: Coefficients of joint tasks from which steps on the device of the rows are faster than steps
    #: in NumPy (`benchmarks/probe.py`).
    min_device_coefficients: int = 1 << 14

    #: Elements of X from which many and joint tasks are solved on a float32 copy. Below, float64
    #: keeps the probabilities of weighted and of repeated rows equal to 1e-7.
    min_float32_elements: int = 1 << 16
    #: The same for joint tasks and tolerances from `min_unverified_tol` on. Steps on the copy are
    #: compiled: fits to 60 to 1,000 rows of digits, cov with seven classes, news20_minilm and
    #: synthetic data with 4 to 12 classes take 0.22 to 0.74 times as long as in float64.
    min_float32_joint_elements: int = 1 << 10
    #: Margins γ for which float32 holds the scores.
    float32_margins: tuple[float, float] = (1e-20, 1e20)
    #: Least penalty of standardised columns, and fraction of `tol` up to which the suboptimality
    #: that float32 adds is accepted. With a penalty of 4e-5 (60 labels of digits) the rounding of
    #: the objective hides its decrease at a suboptimality of 4e-5; with 1e-3, at less than 1e-6.
    min_float32_penalty: float = 1e-3
    max_float32_error: float = 1e-2
    #: Tolerance from which solves with such a penalty are not verified in float64. In 153 fits of
    #: joint tasks and many labels to random data (heavy tails, collinear columns, large means) the
    #: rounding added at most 4.4e-7 of the objective, and changed its value by at most 8e-6. With
    #: the verification a joint fit to news20_minilm takes 1.10 times as long.
    min_unverified_tol: float = 1e-4

    #: Multiple of the majoriser that is added to a Hessian, since rows may become active.
    hessian_regularisation: float = 0.03
    #: Columns per point up to which the preconditioner is inverted instead of solved with.
    max_columns_per_inverse: int = 32
    #: Cap on the factor by which the mean Gram matrix majorises that of each fold; beyond it the
    #: line search protects.
    max_fold_ratio: float = 1.25
    #: Pivots below this multiple of the rounding error of inner products are zero.
    rank_tolerance: float = 64.0

    #: Square of the constant feature that stands for the intercept in dual passes, in median
    #: squared row norms; ten times as much couples rows more than their columns do (news20).
    dual_intercept_square: float = 0.1
    #: The tasks of a fold share dual passes while at least this number of them are above both their
    #: tolerance and this relative gap. Then each continues alone, over the rows that are not shrunk
    #: in it. On news20 a pass takes 12 ms for eight tasks and 6 ms for one; where one row in six is
    #: unshrunk, 1 ms. A search on reuters takes 4.0 s of processor time; with passes shared to the
    #: end, 11 s.
    min_shared_dual_tasks: int = 4
    shared_dual_gap: float = 1e-3
    #: Radius of shrinking, in units of (relative gap)^(1/4) times that of the ball that contains
    #: the minimiser. The ball is safe but large. Seven problems of reuters and news20 (seed 101)
    #: take the time of 9.6 full passes to 1e-6 in the geometric mean; in units of the ball alone,
    #: 10.7. With 0.01 rows are shrunk by mistake in five of them: 11.4 passes.
    dual_shrinking: float = 0.03
    #: Stored elements that dual passes visit in one call of the kernel, which no signal interrupts:
    #: about 0.02 s. Between calls a thread waits for others that hold the interpreter.
    dual_call_elements: int = 1 << 22
    #: The least tolerance, and the least number of elements, of dual passes over a copy of dense
    #: rows in float32. A step takes 0.87 times as long in a cache (400 x 784) and 0.5 times beyond
    #: (8,000 x 784). With tolerances of 1e-5 to 1e-4, the objectives of 48 such fits were at most
    #: 1.2e-5 of their value above the minimum (digit5, protein, synthetic rows).
    min_float32_dual_tol: float = 1e-5
    min_float32_dual_elements: int = 1 << 18


@cache
def default_policy() -> Policy:
    """Return the thresholds of a fit that is given no others; to make them anew takes 10 µs."""
    return Policy()
