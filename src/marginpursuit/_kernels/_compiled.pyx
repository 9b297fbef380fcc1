# cython: language_level=3, boundscheck=False, wraparound=False, freethreading_compatible=True
"""Checked handles on the rows of a matrix, and the fused sweeps over them.

The handle checks its buffers once; a method then runs over rows [first, last) with the GIL
released. sweep.h documents the computations.
"""

from array import array

from cpython.buffer cimport (
    PyBUF_FORMAT, PyBUF_STRIDES, PyBuffer_Release, PyObject_GetBuffer,
)
from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport fabs, pow, sqrt
from libc.stdint cimport int32_t, int64_t, uint64_t, uintptr_t
from libc.string cimport memcpy

from numpy import asarray, empty, zeros
from scipy.sparse import issparse

from marginpursuit._kernels._arrays import ArrayRows
from marginpursuit._threads import StoppedError, this_thread


cdef extern from "link.h" nogil:
    enum:
        LINK_SLOPES
    ctypedef struct link_t:
        const double *scores
        const Py_ssize_t *codes
        const double *weights
        Py_ssize_t n_rows, n_scores
        double low, high, mean, ridge, least, most
        double *work
        double slopes[LINK_SLOPES]
        double log_loss
    Py_ssize_t link_doubles(Py_ssize_t)


cdef extern from "sweep.h" nogil:
    ctypedef enum layout_t:
        ROWS, COLUMNS, CSR_32, CSR_64
    ctypedef struct matrix_t:
        const void *data
        Py_ssize_t n_columns, stride, item
        int type
        const void *indices
        const void *indptr
    ctypedef enum loss_kind_t:
        pass
    enum:
        SQUARE
        N_LOSS_KINDS
    ctypedef struct loss_t:
        loss_kind_t kind
        double margin, scale, overconfidence
    ctypedef struct sweep_t:
        const double *sign
        const double *weight
        const double *coef
        double intercept
        loss_t loss
        double value
        double slope
        double *gradient
    ctypedef struct descent_t:
        const Py_ssize_t *draws
        Py_ssize_t n_steps, batch
        const double *sign
        loss_t loss
        double rate, decay, radius
        int fit_intercept, penalise_intercept
        const Py_ssize_t *own
        Py_ssize_t t
        double *coef
        double intercept
        double square
        double *total
        double total_intercept
        const Py_ssize_t *marks
        Py_ssize_t n_marks
        double *path
        double *path_intercept
        double *factors
        double *lag
    enum:
        TASK_LANES
    ctypedef struct task_sweep_t:
        const Py_ssize_t *codes
        const double *weight
        Py_ssize_t n_parts
        Py_ssize_t positive[TASK_LANES]
        Py_ssize_t part[TASK_LANES]
        loss_t loss[TASK_LANES]
        double intercept[TASK_LANES]
        double value[TASK_LANES]
        double slope[TASK_LANES]
        double *table
    ctypedef struct dual_pass_t:
        Py_ssize_t *rows
        Py_ssize_t n_active
        Py_ssize_t n_lanes
        uint64_t seed
        int is_frozen
        const Py_ssize_t *codes
        const double *weight
        const double *square
        double constant
        Py_ssize_t positive[TASK_LANES]
        loss_t loss[TASK_LANES]
        double penalty[TASK_LANES]
        double radius[TASK_LANES]
        double intercept[TASK_LANES]
        double *residual
        double *coef
        double value[TASK_LANES]
        double gap[TASK_LANES]
        double balance[TASK_LANES]
    ctypedef struct joint_t:
        loss_t loss
        double temperature
        Py_ssize_t n_classes
        const Py_ssize_t *codes
        const double *weight
        const double *intercept
        double *margins
        Py_ssize_t stride
    enum:
        PADDING
        TASK_GROUP
        MOST_TASKS
        TILE_ROWS
    ctypedef struct tiles_t:
        Py_ssize_t n_rows
        Py_ssize_t n_tasks
        const Py_ssize_t *codes
        const double *weight
        const float *coef
        const Py_ssize_t *positive
        const Py_ssize_t *part
        const loss_t *loss
        const joint_t *joint
        const double *intercept
        double *value
        double *slope
        double *gradient
        Py_ssize_t stride
    ctypedef struct class_tiles_t:
        const joint_t *joint
        Py_ssize_t n_columns, stride, width
        const float *coef
        double value
        double *gradient
        float *work
    Py_ssize_t class_tile_floats(Py_ssize_t, Py_ssize_t)
    enum:
        NEWTON_PADDING
    ctypedef struct interrupt_t:
        int (*is_asked)() except -1 nogil
        double products
        int is_raised
    ctypedef struct newton_t:
        const double *rows
        Py_ssize_t n_rows, n_columns, stride, n_scores
        const Py_ssize_t *codes
        Py_ssize_t positive
        loss_t loss
        double temperature
        const double *weight
        const double *penalty
        int has_intercept, is_strict
        double tol, certain, least
        Py_ssize_t max_iter
        double *point
        const double *other
        int continues
        double *work
        interrupt_t *interrupt
        double losses, value, gap
        Py_ssize_t n_iter, n_passes
        int status
    Py_ssize_t newton_doubles(Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t)
    Py_ssize_t newton_line_length(Py_ssize_t)
    ctypedef struct kernel_newton_t:
        const double *gram
        Py_ssize_t n_rows, stride
        const double *sign
        const double *weight
        loss_t loss
        double penalty
        int has_intercept
        double tol, least
        Py_ssize_t max_iter
        double *coef
        double intercept
        double *work
        interrupt_t *interrupt
        double value, gap
        Py_ssize_t n_iter
        int status
    Py_ssize_t kernel_newton_doubles(Py_ssize_t)
    ctypedef struct lbfgs_t:
        const float *rows
        Py_ssize_t n_rows, n_columns, width
        const Py_ssize_t *spans
        Py_ssize_t n_spans
        joint_t joint
        int has_intercept
        const double *penalty
        const double *preconditioner
        Py_ssize_t block
        int is_scaled
        double tol, least, certain
        Py_ssize_t n_confirmations, min_iter, max_iter
        double sufficient_decrease, min_step_size, min_scaling
        Py_ssize_t max_idle, rate_span
        double *trial
        double *trial_gradient
        double trial_value
        float *coef
        double *values
        double *gaps
        double *work
        double value, gap, bound
        Py_ssize_t n_iter
        int status
    Py_ssize_t lbfgs_doubles(Py_ssize_t, Py_ssize_t, Py_ssize_t)
    ctypedef struct kernels_t:
        void (*sweep)(layout_t, int, const matrix_t *, Py_ssize_t, Py_ssize_t,
                      sweep_t *) noexcept nogil
        void (*scores)(layout_t, int, const matrix_t *, Py_ssize_t, Py_ssize_t,
                       const double *, double, double *) noexcept nogil
        void (*adjoint)(layout_t, int, const matrix_t *, Py_ssize_t, Py_ssize_t,
                         const double *, double *) noexcept nogil
        void (*moments)(layout_t, int, const matrix_t *, Py_ssize_t, Py_ssize_t,
                        const double *, const double *, double *, double *) noexcept nogil
        void (*norms)(layout_t, int, const matrix_t *, Py_ssize_t, Py_ssize_t,
                      const double *, const double *, double *) noexcept nogil
        void (*row_squares)(layout_t, int, const matrix_t *, Py_ssize_t, Py_ssize_t,
                            double *) noexcept nogil
        void (*task_losses)(const loss_t *, const Py_ssize_t *, Py_ssize_t, const double *, double,
                            Py_ssize_t, double *, double *, double *) noexcept nogil
        void (*sweep_tasks)(layout_t, int, const matrix_t *, Py_ssize_t,
                            task_sweep_t *) noexcept nogil
        void (*dual_pass)(layout_t, int, const matrix_t *, dual_pass_t *) noexcept nogil
        double (*add_dot)(Py_ssize_t, double, const double *, double *, const double *) noexcept nogil
        void (*descend)(layout_t, int, const matrix_t *, descent_t *) noexcept nogil
        void (*tiles)(const float *, Py_ssize_t, Py_ssize_t, Py_ssize_t, tiles_t *) noexcept nogil
        void (*class_tiles)(const float *, Py_ssize_t, Py_ssize_t, class_tiles_t *) noexcept nogil
        void (*joint_losses)(const joint_t *, Py_ssize_t, double *, double *,
                             double *) noexcept nogil
        void (*newton)(newton_t *) noexcept nogil
        void (*kernel_newton)(kernel_newton_t *) noexcept nogil
        void (*lbfgs_advance)(lbfgs_t *) noexcept nogil
        void (*lbfgs_run)(lbfgs_t *, Py_ssize_t) noexcept nogil
        void (*lbfgs_renew)(lbfgs_t *) noexcept nogil
        void (*fit_link)(link_t *) noexcept nogil
    int usable_levels()
    const kernels_t *kernels_at(int level)


cdef extern from "coupling.h" nogil:
    ctypedef struct coupling_t:
        const double *logits
        Py_ssize_t n_rows, n_classes
        double limit
        double *work
        double *out
    Py_ssize_t coupling_doubles(Py_ssize_t)
    void couple(coupling_t *)


cdef extern from "intervals.h" nogil:
    ctypedef struct intervals_t:
        const double *scores
        const double *weights
        Py_ssize_t n_rows, n_columns, n_intervals, first
        double width
        double *sums
    void add_to_intervals(const intervals_t *)


cdef extern from "small_table.h" nogil:
    enum:
        MOST_FACTORS
    ctypedef struct small_table_t:
        const kernels_t *kernels
        const double *matrix
        Py_ssize_t n_rows, n_columns
        double n_samples
        const Py_ssize_t *codes
        Py_ssize_t n_classes, n_scores
        loss_t loss
        double temperature
        int has_intercept
        double leverage_bound, far_distance, alpha, inflation
        const double *factors
        Py_ssize_t n_factors
        double min_gain, max_joint_increase, min_likelihood_gain
        Py_ssize_t min_distinct_rows
        double tol, certain, half_tol, half_certain, least
        Py_ssize_t max_iter, half_max_iter
        const double *direction
        link_t link
        double prior_variance
        double *work
        const double *start
        double *weight
        double *coef
        double *intercept
        double *scores
        double value, count, factor
        Py_ssize_t n_iter, n_passes
    Py_ssize_t small_table_doubles(const small_table_t *)
    bint fit_small_table(small_table_t *)
    Py_ssize_t gather_rows(Py_ssize_t, Py_ssize_t, const double *, const double *,
                           const Py_ssize_t *, double *, double *, Py_ssize_t *)


cdef extern from "csr.h" nogil:
    ctypedef struct csr_t:
        int wide
        const void *indices
        const void *indptr
        Py_ssize_t n_stored, n_rows, n_columns
    ctypedef struct scaling_t:
        Py_ssize_t n_columns
        const double *centre
        const double *factors
    bint csr_is_sound(const csr_t *)
    bint csr_add_squares(const csr_t *, const double *, const double *, Py_ssize_t, Py_ssize_t,
                         double *)
    bint c_csr_moments "csr_moments" (const csr_t *, const double *, const double *, double *)
    bint c_csr_largest "csr_largest" (const csr_t *, const double *, double *)
    void fill_table(task_sweep_t *, const scaling_t *, const char *, Py_ssize_t, Py_ssize_t,
                    Py_ssize_t)
    void read_table(const task_sweep_t *, const scaling_t *, double *, Py_ssize_t)


#: SIMD levels that this processor can run, slowest first.
LEVELS = ("baseline", "avx2", "avx512")[:usable_levels()]

cdef str BEST = LEVELS[len(LEVELS) - 1]

# CSR rows take AVX2 at most: their loads of single coefficients gain nothing from vectors of eight,
# whose divisions take longer. With AVX-512 dual passes take 1.12 to 1.27 times as long on an Intel
# Xeon (benchmarks/results, text). Their functions are not compiled for it.
cdef enum:
    MOST_LEVEL_OF_CSR = 1

# Buffer formats, numbered in the order of TYPES in vectors.h; l and q are both 64 bits where C
# says so, hence the item size next to the format.
cdef dict TYPE_OF = {
    ("d", 8): 0, ("f", 4): 1, ("e", 2): 2, ("b", 1): 3, ("B", 1): 4, ("?", 1): 4, ("h", 2): 5,
    ("H", 2): 6, ("i", 4): 7, ("l", 4): 7, ("I", 4): 8, ("L", 4): 8, ("l", 8): 9, ("q", 8): 9,
}


cdef enum:  # the types of kernel values and of indices
    FLOAT64 = 0
    FLOAT32 = 1
    INT32 = 7
    INT64 = 9


cdef int level_of(str level) except -1:
    if level not in LEVELS:
        raise ValueError(f"level must be one of {LEVELS} on this processor; got {level!r}")
    return LEVELS.index(level)


cdef int type_of(Py_buffer *view, str what) except -1:
    """The number of the element type of a buffer, if that can be read directly."""
    cdef str text = "B" if view.format == NULL else view.format.decode()
    code = TYPE_OF.get((text.lstrip("@="), view.itemsize))
    if code is None:
        raise TypeError(f"{what} of buffer format {text!r} cannot be read directly")
    if <uintptr_t>view.buf % <uintptr_t>view.itemsize:
        raise BufferError(f"{what} must be aligned to its elements")
    return code


cdef struct pass_rule_t:  # as `PassStopping`; passes and visits of rows that are left
    double *gap
    const double *levels
    const double *least
    const double *tols
    Py_ssize_t n_tasks, min_tasks, n_left, n_visits
    double shrinking


cdef int next_pass(pass_rule_t *rule, dual_pass_t *dual) noexcept nogil:
    """Set gaps and radii after a pass; return whether another follows."""
    cdef Py_ssize_t k, task, n_unfinished = 0
    cdef double scale, gap
    for k in range(TASK_LANES):
        task = k if k < rule.n_tasks else 0
        gap, scale = dual.gap[task], max(dual.value[task], rule.least[task])
        # The violated constraint is the derivative in the intercept, whose distance to its
        # minimiser is at most the level.
        if dual.constant > 0.0:
            gap += fabs(dual.balance[task]) * rule.levels[task]
        gap /= scale
        # The minimiser is in the ball with radius sqrt(2 gap/p), gap absolute, around the
        # coefficients, since the objective is p-strongly convex in them. The radius of shrinking
        # decreases faster, with gap^(3/4).
        dual.radius[k] = (
            rule.shrinking * pow(max(gap, 0.0), 0.75) * sqrt(2.0 * scale / dual.penalty[k])
        )
        if k < rule.n_tasks:
            rule.gap[k] = gap
            n_unfinished += gap > rule.tols[k]
    rule.n_left -= 1
    dual.seed += 1
    return n_unfinished >= rule.min_tasks and min(rule.n_left, rule.n_visits, dual.n_active) > 0


cdef void move_intercepts(Py_ssize_t n_tasks, dual_pass_t *dual) noexcept nogil:
    """Take the step of the method of multipliers that precedes a pass."""
    cdef Py_ssize_t k, task
    for k in range(TASK_LANES - 1, -1, -1):  # lanes that repeat the first task precede it
        task = k if k < n_tasks else 0
        dual.intercept[k] = (
            dual.intercept[task] + dual.constant * dual.balance[task] / dual.penalty[k]
        )


cdef class _Rows:
    """The common part of dense and sparse rows: their shape and the SIMD level in use."""

    cdef const kernels_t *kernels
    cdef layout_t layout
    cdef int type
    cdef matrix_t matrix
    cdef readonly Py_ssize_t n_rows, n_columns
    cdef readonly str level

    def __cinit__(self, *args, **kwargs):
        self.kernels = kernels_at(0)  # every object has kernels

    cdef int check_span(self, Py_ssize_t first, Py_ssize_t last) except -1:
        if not 0 <= first <= last <= self.n_rows:
            raise IndexError(f"rows [{first}, {last}) are not within the {self.n_rows} rows")
        return 0

    def sweep(
        self, Py_ssize_t first, Py_ssize_t last, loss,
        const double[::1] sign not None, const double[::1] weight not None,
        const double[::1] coef not None, double intercept, double[::1] gradient not None,
    ):
        """Add the gradient of rows [first, last) to `gradient`; return value and slope.

        `sign` and `weight` have an entry for each row of the matrix.
        """
        cdef sweep_t s
        self.check_span(first, last)
        check_length("sign", sign.shape[0], self.n_rows)
        check_length("weight", weight.shape[0], self.n_rows)
        check_length("coef", coef.shape[0], self.n_columns)
        check_length("gradient", gradient.shape[0], self.n_columns)
        s.sign = &sign[0]
        s.weight = &weight[0]
        s.coef = &coef[0]
        s.intercept = intercept
        s.loss = loss_of(loss)
        s.value = s.slope = 0.0
        s.gradient = &gradient[0]
        with nogil:
            self.kernels.sweep(self.layout, self.type, &self.matrix, first, last, &s)
        return s.value, s.slope

    def scores(
        self, Py_ssize_t first, Py_ssize_t last,
        const double[::1] coef not None, double intercept, double[::1] out not None,
    ):
        """Write x.coef + intercept for rows [first, last) to the same rows of `out`."""
        self.check_span(first, last)
        check_length("coef", coef.shape[0], self.n_columns)
        check_length("out", out.shape[0], self.n_rows)
        with nogil:
            self.kernels.scores(
                self.layout, self.type, &self.matrix, first, last, &coef[0], intercept, &out[0],
            )

    def adjoint(
        self, Py_ssize_t first, Py_ssize_t last,
        const double[::1] factors not None, double[::1] total not None,
    ):
        """Add the sum of factors[i] * row i over rows [first, last) to `total`."""
        self.check_span(first, last)
        check_length("factors", factors.shape[0], self.n_rows)
        check_length("total", total.shape[0], self.n_columns)
        with nogil:
            self.kernels.adjoint(
                self.layout, self.type, &self.matrix, first, last, &factors[0], &total[0],
            )

    def row_squares(self, Py_ssize_t first, Py_ssize_t last, double[::1] out not None):
        """Write the squared norm of rows [first, last) to `out`; CSR rows name no column twice."""
        self.check_span(first, last)
        check_length("out", out.shape[0], self.n_rows)
        if first < last:
            with nogil:
                self.kernels.row_squares(
                    self.layout, self.type, &self.matrix, first, last, &out[0]
                )

    def dual_pass(
        self, losses, Py_ssize_t[::1] rows not None, uint64_t seed, bint is_frozen,
        const Py_ssize_t[::1] codes not None, const double[::1] weights not None,
        const double[::1] squares not None, double constant,
        const Py_ssize_t[::1] positive not None, const double[::1] penalty not None,
        double[::1] radius not None, double[:, ::1] residual not None,
        double[:, ::1] coef not None, double[::1] intercept not None, double[:, ::1] sums not None,
        stopping=None,
    ):
        """Take a step of dual coordinate ascent for each active row, for one task or all lanes.

        Rows are CSR or, for one task, float64 or float32 and contiguous.

        Weights, and squared norms with the constant, have an entry for each row of the data,
        residuals a row for each, coefficients one for each column; all else has an entry for each
        task. Losses are functions of one rho. Value, duality gap and balance are written to the
        rows of `sums`; see sweep.h. Returns the number of rows that stay active, which are then
        first. A frozen pass takes no steps and visits the rows in the order given.

        With `stopping`, a `PassStopping`, passes are repeated until one of its criteria is met. Before
        each pass the intercepts move by the balance of the pass before, at first that in `sums`. On
        return `radius`, and the gap and the number of passes of `stopping`, are those after the last pass.
        """
        cdef const double[:, ::1] parameters = losses
        cdef Py_ssize_t k, task, n_tasks = coef.shape[1]
        cdef dual_pass_t dual
        cdef pass_rule_t rule
        cdef double[::1] gap = None
        cdef const double[::1] levels = None, least = None, tols = None
        # A single column is contiguous by rows as well.
        cdef layout_t layout = ROWS if self.n_columns == 1 and self.layout == COLUMNS else self.layout
        if n_tasks != 1 and n_tasks != self.tasks_per_pass:
            raise ValueError(
                f"a row of coef must have length 1 or {self.tasks_per_pass}; got {n_tasks}"
            )
        if layout == COLUMNS or (layout == ROWS and self.type not in (FLOAT64, FLOAT32)):
            raise TypeError(
                "dual coordinate ascent needs CSR rows, or contiguous rows of float64 or float32"
            )
        for name, length in (
            ("positive", positive.shape[0]), ("penalty", penalty.shape[0]),
            ("radius", radius.shape[0]), ("intercept", intercept.shape[0]),
            ("a row of residual", residual.shape[1]), ("a row of sums", sums.shape[1]),
        ):
            check_length(name, length, n_tasks)
        for name, length in (
            ("codes", codes.shape[0]), ("weights", weights.shape[0]),
            ("squares", squares.shape[0]), ("residual", residual.shape[0]),
        ):
            check_length(name, length, self.n_rows)
        check_length("coef", coef.shape[0], self.n_columns)
        check_losses(parameters, n_tasks)
        check_length("sums", sums.shape[0], 3)
        check_inside("rows", rows, self.n_rows)
        if rows.shape[0] == 0 or self.n_columns == 0:
            raise ValueError(
                f"expected at least one row and one column; got {rows.shape[0]} rows and "
                f"{self.n_columns} columns"
            )
        check_one_kind(parameters, 0, n_tasks)
        if parameters[0, 0] > <int>SQUARE:
            raise ValueError("dual coordinate ascent needs a function rho of the residual; "
                             f"got a loss of code {int(parameters[0, 0])}")
        dual.rows, dual.n_active, dual.codes = &rows[0], rows.shape[0], &codes[0]
        dual.n_lanes, dual.seed, dual.is_frozen = n_tasks, seed, is_frozen
        dual.weight, dual.square, dual.constant = &weights[0], &squares[0], constant
        dual.residual, dual.coef = &residual[0, 0], &coef[0, 0]
        if stopping is not None:
            gap, levels, least, tols = stopping.gap, stopping.levels, stopping.least, stopping.tols
            for name, length in (
                ("gap", gap.shape[0]), ("levels", levels.shape[0]), ("least", least.shape[0]),
                ("tols", tols.shape[0]),
            ):
                check_length(name, length, n_tasks)
            rule.gap, rule.levels, rule.least, rule.tols = &gap[0], &levels[0], &least[0], &tols[0]
            rule.n_tasks, rule.min_tasks = n_tasks, stopping.min_tasks
            rule.n_left, rule.n_visits = stopping.max_passes, stopping.max_visits
            rule.shrinking = stopping.shrinking
        with nogil:
            for k in range(TASK_LANES):
                task = k if k < n_tasks else 0
                dual.positive[k], dual.penalty[k] = positive[task], penalty[task]
                dual.radius[k], dual.intercept[k] = radius[task], intercept[task]
                dual.balance[k] = sums[2, task]
                read_loss(parameters, task, &dual.loss[k])
            while True:
                if gap is not None and not is_frozen:
                    move_intercepts(n_tasks, &dual)
                rule.n_visits -= dual.n_active
                self.kernels.dual_pass(layout, self.type, &self.matrix, &dual)
                if gap is None or not next_pass(&rule, &dual):
                    break
            for k in range(n_tasks):
                intercept[k], radius[k] = dual.intercept[k], dual.radius[k]
                sums[0, k], sums[1, k], sums[2, k] = dual.value[k], dual.gap[k], dual.balance[k]
        if stopping is not None:
            stopping.n_passes = stopping.max_passes - rule.n_left
        return dual.n_active

    def descend(self, descent, const Py_ssize_t[::1] draws not None):
        """Take a step for each `descent.batch` of the rows drawn; CSR rows name no column twice."""
        cdef descent_t s
        s.batch = descent.batch
        if s.batch < 1 or draws.shape[0] % s.batch:
            raise ValueError(f"draws must fill batches of {s.batch}; got {draws.shape[0]}")
        check_inside("draws", draws, self.n_rows)
        s.draws, s.n_steps, s.t = &draws[0], draws.shape[0] // s.batch, descent.t
        set_rules(&s, descent)
        cdef const double[::1] sign = descent.sign
        cdef double[::1] coef = descent.coef
        cdef double[::1] factors = array("d", bytes(8 * s.batch))
        check_length("sign", sign.shape[0], self.n_rows)
        check_length("coef", coef.shape[0], self.n_columns)
        s.sign, s.coef, s.factors = &sign[0], &coef[0], &factors[0]
        cdef const Py_ssize_t[::1] own
        s.own = NULL
        if descent.own is not None:
            own = descent.own
            check_length("own", own.shape[0], self.n_rows)
            if (self.layout != ROWS and self.n_columns > 1) or self.type != FLOAT64:
                raise TypeError("values of a kernel must be float64 in C order")
            check_inside("own", own, self.n_columns)
            s.own = &own[0]
        cdef double[::1] total, lag
        s.total = s.lag = NULL
        if descent.total is not None:
            total, lag = descent.total, array("d", bytes(8 * self.n_columns))
            check_length("total", total.shape[0], self.n_columns)
            s.total, s.lag = &total[0], &lag[0]
        cdef const Py_ssize_t[::1] marks = descent.marks
        cdef double[:, ::1] path = descent.path
        cdef double[::1] path_intercept = descent.path_intercept
        cdef Py_ssize_t first = 0, last
        while first < marks.shape[0] and marks[first] <= s.t:
            first += 1
        last = first
        while last < marks.shape[0] and marks[last] <= s.t + s.n_steps:
            last += 1
        s.n_marks = last - first
        if s.n_marks:
            check_length("path", path.shape[0], marks.shape[0])
            check_length("path_intercept", path_intercept.shape[0], marks.shape[0])
            check_length("a point of the path", path.shape[1], self.n_columns)
            s.marks, s.path = &marks[first], &path[first, 0]
            s.path_intercept = &path_intercept[first]
        with nogil:
            self.kernels.descend(self.layout, self.type, &self.matrix, &s)
        descent.t, descent.intercept, descent.total_intercept = s.t, s.intercept, s.total_intercept
        descent.square = s.square


cdef int check_inside(str name, const Py_ssize_t[::1] places, Py_ssize_t length) except -1:
    cdef Py_ssize_t k
    cdef bint inside = True
    for k in range(places.shape[0]):  # no early exit, so that the compiler vectorises the loop
        inside &= places[k] >= 0 and places[k] < length
    if not inside:
        raise IndexError(f"{name} must be in [0, {length})")
    return 0


cdef loss_t loss_of(loss) except *:
    """The loss as the kernels know it."""
    cdef loss_t found
    parameters = getattr(loss, "kernel_parameters", None)
    if parameters is None:
        raise TypeError(f"{type(loss).__name__} has no compiled kernel: kernel_parameters is None")
    code, found.margin, found.scale, found.overconfidence = parameters
    check_code(code)
    found.kind = <loss_kind_t><int>code
    return found


cdef int check_code(double code) except -1:
    if not (0 <= code < <int>N_LOSS_KINDS and code == <int>code):
        raise ValueError(
            f"the code of a loss must be a whole number in [0, {<int>N_LOSS_KINDS}); got {code}"
        )
    return 0


cdef int check_losses(const double[:, ::1] parameters, Py_ssize_t n_tasks) except -1:
    """Check rows of code, margin, scale and overconfidence, one for each task."""
    cdef Py_ssize_t k
    check_length("losses", parameters.shape[0], n_tasks)
    check_length("a loss", parameters.shape[1], 4)
    for k in range(n_tasks):
        check_code(parameters[k, 0])
    return 0


cdef int check_one_kind(
    const double[:, ::1] parameters, Py_ssize_t begin, Py_ssize_t end
) except -1:
    cdef Py_ssize_t k
    for k in range(begin, end):
        if parameters[k, 0] != parameters[begin, 0]:
            raise ValueError("the tasks of one pass over sparse rows must have losses of one kind")
    return 0


cdef void read_loss(const double[:, ::1] parameters, Py_ssize_t task, loss_t *loss) noexcept nogil:
    loss.kind = <loss_kind_t><int>parameters[task, 0]
    loss.margin, loss.scale = parameters[task, 1], parameters[task, 2]
    loss.overconfidence = parameters[task, 3]


cdef int set_rules(descent_t *s, descent) except -1:
    """Copy the parameters of a descent."""
    s.loss = loss_of(descent.loss)
    s.rate, s.decay, s.radius = descent.rate, descent.decay, descent.radius
    s.fit_intercept, s.penalise_intercept = descent.fit_intercept, descent.penalise_intercept
    s.intercept, s.total_intercept = descent.intercept, descent.total_intercept
    s.square = descent.square
    return 0


def task_losses(
    Py_ssize_t first, losses, const Py_ssize_t[::1] codes not None,
    const double[:, ::1] weights not None, const Py_ssize_t[::1] positive not None,
    const Py_ssize_t[::1] part not None, const double[::1] intercept not None,
    double[:, ::1] scores not None, double[::1] value not None, double[::1] slope not None,
    Py_ssize_t begin, Py_ssize_t end, str level=BEST,
):
    """Turn the scores of some rows into derivatives, for tasks [begin, end).

    `scores` has a row for each task and a column for each row of the data from `first` on, to which
    the intercept is still to be added; `losses` has the kernel parameters of each task in a row.
    The weighted loss and the sum of the derivatives are added to `value` and `slope`.
    """
    cdef const double[:, ::1] parameters = losses
    cdef Py_ssize_t n = scores.shape[1], n_tasks = scores.shape[0], k
    cdef const kernels_t *kernels = kernels_at(level_of(level))
    cdef loss_t loss
    for name, length in (
        ("positive", positive.shape[0]), ("part", part.shape[0]), ("value", value.shape[0]),
        ("slope", slope.shape[0]), ("intercept", intercept.shape[0]),
    ):
        check_length(name, length, n_tasks)
    check_losses(parameters, n_tasks)
    check_length("weights", weights.shape[1], codes.shape[0])
    if not 0 <= first <= first + n <= codes.shape[0]:
        raise IndexError(f"rows [{first}, {first + n}) are not within {codes.shape[0]} rows")
    if not 0 <= begin <= end <= n_tasks:
        raise IndexError(f"tasks [{begin}, {end}) are not within {n_tasks} tasks")
    for k in range(n_tasks):
        if not 0 <= part[k] < weights.shape[0]:
            raise IndexError(f"part {part[k]} is not within {weights.shape[0]} parts")
    if n == 0:
        return
    with nogil:
        for k in range(begin, end):
            read_loss(parameters, k, &loss)
            kernels.task_losses(&loss, &codes[first], positive[k], &weights[part[k], first],
                                intercept[k], n, &scores[k, 0], &value[k], &slope[k])


def joint_losses(
    Py_ssize_t first, parameters, double temperature, const Py_ssize_t[::1] codes not None,
    const double[::1] weights not None, const double[::1] intercept not None,
    double[:, ::1] scores not None, double[::1] slope not None, str level=BEST,
):
    """Turn the scores of some rows into derivatives of a joint loss; return its weighted sum.

    `scores` has a row for each class and a column for each row of the data from `first` on, to which
    the intercepts are still to be added. `parameters` are the kernel parameters of the margin loss.
    The sums of the derivatives are added to `slope`.
    """
    cdef Py_ssize_t n = scores.shape[1], n_classes = scores.shape[0], i
    cdef const kernels_t *kernels = kernels_at(level_of(level))
    cdef const double[:, ::1] row = parameters
    cdef double value = 0.0
    cdef joint_t joint
    check_length("intercept", intercept.shape[0], n_classes)
    check_length("slope", slope.shape[0], n_classes)
    check_joint(row, temperature, n_classes, codes, weights, first, first + n)
    if n == 0:
        return value
    read_loss(row, 0, &joint.loss)
    joint.temperature, joint.n_classes = temperature, n_classes
    joint.codes, joint.weight, joint.intercept = &codes[first], &weights[first], &intercept[0]
    joint.margins, joint.stride = NULL, n
    with nogil:
        kernels.joint_losses(&joint, n, &scores[0, 0], &value, &slope[0])
    return value


cdef int check_joint(
    const double[:, ::1] parameters, double temperature, Py_ssize_t n_classes,
    const Py_ssize_t[::1] codes, const double[::1] weights, Py_ssize_t first, Py_ssize_t last,
) except -1:
    """Check the joint loss of rows [first, last)."""
    check_losses(parameters, 1)
    check_length("weights", weights.shape[0], codes.shape[0])
    if n_classes < 2 or not temperature > 0:
        raise ValueError("a joint loss needs two classes and a positive temperature")
    if not 0 <= first <= last <= codes.shape[0]:
        raise IndexError(f"rows [{first}, {last}) are not within {codes.shape[0]} rows")
    for i in range(first, last):
        if not 0 <= codes[i] < n_classes:
            raise IndexError(f"class {codes[i]} is not within {n_classes} classes")
    return 0


#: The multiple to which `newton` expects the columns of its rows to be padded with zeros.
ROW_PADDING = NEWTON_PADDING


cdef int raise_if_stopped() except -1 nogil:
    """Raise what the handler of a signal raises; in a worker a `StoppedError` if its pool is stopped."""
    with gil:
        PyErr_CheckSignals()
        if this_thread.stop.is_set:
            raise StoppedError
        return 0


cdef interrupt_t no_interrupt() noexcept nogil:
    """Return the interrupt of a call, before there is any."""
    cdef interrupt_t found
    found.is_asked, found.products, found.is_raised = raise_if_stopped, 0.0, 0
    return found


cdef int keep_raised() except -1:
    """Let the exception that `raise_if_stopped` has left propagate."""
    return -1


cdef Py_ssize_t n_with_weight(const double[::1] weights) noexcept nogil:
    """The number of rows with a positive weight."""
    cdef Py_ssize_t n = 0, i
    for i in range(weights.shape[0]):
        n += weights[i] > 0
    return n


def newton(
    const double[:, ::1] rows not None, problem, double[:, ::1] points not None,
    double[:, ::1] results not None, const Py_ssize_t[::1] which not None, str level=BEST,
):
    """Minimise the objectives of some tasks by Newton's method, one after the other.

    `problem` is a `NewtonTasks`. A row of `points` holds the coefficients of a task, which are read
    as the start, unless the task starts at the coefficients of another one. A task that follows
    another one, from which it differs in penalty and tolerances only, starts at the coefficients of
    that one if its objective is less there, or continues from that one if it comes next in `which`.
    Tasks at which others start come before them. A row of `results` receives value, gap, number of
    iterations, status and passes.
    """
    cdef const double[:, ::1] parameters = problem.losses
    cdef const double[:, ::1] weights = problem.weights
    cdef const double[:, ::1] penalty = problem.penalty
    cdef const double[::1] tol = problem.tol, least = problem.least
    cdef const double[::1] temperature = problem.temperature
    cdef const Py_ssize_t[:, ::1] codes = problem.codes
    cdef const Py_ssize_t[::1] fold = problem.fold, code = problem.code, positive = problem.positive
    cdef const Py_ssize_t[::1] follows = problem.follows, starts = problem.starts
    cdef const kernels_t *kernels = kernels_at(level_of(level))
    cdef Py_ssize_t n_tasks = points.shape[0], k, j
    cdef newton_t t
    t.n_rows, t.stride, t.n_scores = rows.shape[0], rows.shape[1], problem.n_scores
    t.n_columns, t.max_iter = problem.n_columns, problem.max_iter
    t.has_intercept, t.certain = problem.has_intercept, problem.certain
    t.is_strict = problem.is_strict
    if t.n_rows < 1 or t.n_scores < 1 or not 1 <= t.n_columns <= t.stride:
        raise ValueError("Newton's method needs at least one row, one column and one score")
    if t.stride % NEWTON_PADDING:
        raise ValueError(f"rows must be padded to a multiple of {NEWTON_PADDING} columns")
    check_inside("which", which, n_tasks)
    for name, length in (
        ("tol", tol.shape[0]), ("least", least.shape[0]), ("temperature", temperature.shape[0]),
        ("positive", positive.shape[0]), ("fold", fold.shape[0]), ("penalty", penalty.shape[0]),
        ("results", results.shape[0]), ("code", code.shape[0]), ("follows", follows.shape[0]),
        ("starts", starts.shape[0]),
    ):
        check_length(name, length, n_tasks)
    check_losses(parameters, n_tasks)
    check_length("a row of codes", codes.shape[1], t.n_rows)
    check_inside("code", code, codes.shape[0])
    check_length("weights", weights.shape[1], t.n_rows)
    check_length("a row of penalty", penalty.shape[1], t.n_columns)
    check_length("a row of points", points.shape[1], t.n_scores * t.n_columns)
    check_length("a row of results", results.shape[1], 5)
    for k in range(n_tasks):
        if not 0 <= fold[k] < weights.shape[0]:
            raise IndexError(f"fold {fold[k]} is not within {weights.shape[0]} folds")
        for j in (follows[k], starts[k]):
            if not -1 <= j < n_tasks:
                raise IndexError(f"task {j} is not within {n_tasks} tasks")
        if follows[k] >= 0 and (fold[k], code[k], positive[k]) != (
            fold[follows[k]], code[follows[k]], positive[follows[k]]
        ):
            raise ValueError(f"task {k} follows task {follows[k]} of other rows or labels")
        if t.n_scores > 1 and not temperature[k] > 0:
            raise ValueError("a joint loss needs a positive temperature")
    if t.n_scores > 1:
        check_inside("codes", codes[0], t.n_scores)
    cdef double[::1] work = empty(newton_doubles(t.n_rows, t.n_columns, t.stride, t.n_scores))
    cdef interrupt_t interrupt = no_interrupt()
    t.work, t.interrupt = &work[0], &interrupt
    # The rows of a fold that have weight, with their weights and codes; the others do not count.
    cdef Py_ssize_t n_rows = t.n_rows, n_own = 0, of_fold = -1, of_code = -1
    for j in range(which.shape[0]):
        if j == 0 or fold[which[j]] != fold[which[j - 1]]:
            n_own = max(n_own, n_with_weight(weights[fold[which[j]]]) % n_rows)
    cdef double[::1] own_rows = empty(max(1, n_own * t.stride))
    cdef double[::1] own_weight = empty(max(1, n_own))
    cdef Py_ssize_t[::1] own_codes = empty(max(1, n_own), "intp")
    with nogil:
        for j in range(which.shape[0]):
            k = which[j]
            read_loss(parameters, k, &t.loss)
            if fold[k] != of_fold or code[k] != of_code:
                of_fold, of_code = fold[k], code[k]
                t.rows, t.weight, t.codes = &rows[0, 0], &weights[of_fold, 0], &codes[of_code, 0]
                t.n_rows = n_rows
                if n_with_weight(weights[of_fold]) % n_rows:
                    t.n_rows = gather_rows(
                        n_rows, t.stride, &rows[0, 0], &weights[of_fold, 0], &codes[of_code, 0],
                        &own_rows[0], &own_weight[0], &own_codes[0],
                    )
                    t.rows, t.weight, t.codes = &own_rows[0], &own_weight[0], &own_codes[0]
            t.positive, t.temperature, t.penalty = positive[k], temperature[k], &penalty[k, 0]
            t.tol, t.least, t.point = tol[k], least[k], &points[k, 0]
            if starts[k] >= 0:
                points[k, :] = points[starts[k], :]
            t.other = &points[follows[k], 0] if follows[k] >= 0 else NULL
            t.continues = j > 0 and follows[k] == which[j - 1] and t.status == 0  # converged
            kernels.newton(&t)
            if interrupt.is_raised:
                with gil:
                    keep_raised()
            results[k, 0], results[k, 1] = t.value, t.gap
            results[k, 2], results[k, 3] = <double>t.n_iter, <double>t.status
            results[k, 4] = <double>t.n_passes


def kernel_newton(
    const double[:, ::1] gram not None, problems, double[:, ::1] coef not None,
    double[:, ::1] intercept not None, double[:, :, ::1] results not None, str level=BEST,
):
    """Minimise the objectives of binary problems with a kernel by Newton's method, one by one.

    `problems` is a `KernelProblems`. Problem k has the entries edges[k] to edges[k + 1] - 1 of its rows, signs
    and weights, and of each row of `coef`, which has one for each penalty. Its first penalty starts at the
    values of `coef` and `intercept`, (n_penalties, n_problems), each other one at the fit before.
    `results` receives value, gap, number of iterations and status of each, in the order of `intercept`.
    """
    cdef const Py_ssize_t[::1] rows = problems.rows, edges = problems.edges
    cdef const double[::1] sign = problems.sign, weight = problems.weight
    cdef const double[:, ::1] losses = problems.losses
    cdef const double[::1] penalties = problems.penalties
    cdef const kernels_t *kernels = kernels_at(level_of(level))
    cdef Py_ssize_t n_problems = edges.shape[0] - 1, n_penalties = penalties.shape[0]
    cdef Py_ssize_t k, a, i, j, first, largest = 0
    cdef kernel_newton_t t
    t.has_intercept, t.max_iter = problems.has_intercept, problems.max_iter
    t.tol = problems.tol
    cdef double least = problems.least
    check_length("gram", gram.shape[1], gram.shape[0])
    check_inside("rows", rows, gram.shape[0])
    check_losses(losses, n_penalties)
    for name, got, wanted in (
        ("sign", sign.shape[0], rows.shape[0]), ("weight", weight.shape[0], rows.shape[0]),
        ("coef", coef.shape[0], n_penalties), ("a row of coef", coef.shape[1], rows.shape[0]),
        ("intercept", intercept.shape[0], n_penalties), ("results", results.shape[0], n_penalties),
        ("a row of intercept", intercept.shape[1], n_problems),
        ("a row of results", results.shape[1], n_problems),
        ("a result", results.shape[2], 4),
    ):
        check_length(name, got, wanted)
    if n_problems < 1 or edges[0] != 0 or edges[n_problems] != rows.shape[0]:
        raise ValueError("edges must begin with 0 and end with the number of rows")
    for k in range(n_problems):
        if edges[k + 1] <= edges[k]:
            raise ValueError("every problem needs at least one row")
        largest = max(largest, edges[k + 1] - edges[k])
    cdef double[::1] work = empty(kernel_newton_doubles(largest))
    cdef double[::1] own = empty(largest * newton_line_length(largest))
    cdef interrupt_t interrupt = no_interrupt()
    t.work, t.gram, t.interrupt = &work[0], &own[0], &interrupt
    with nogil:
        for k in range(n_problems):
            first, t.n_rows = edges[k], edges[k + 1] - edges[k]
            t.stride = newton_line_length(t.n_rows)
            for i in range(t.n_rows):
                for j in range(t.n_rows):
                    own[i * t.stride + j] = gram[rows[first + i], rows[first + j]]
                for j in range(t.n_rows, t.stride):
                    own[i * t.stride + j] = 0.0
            t.sign, t.weight, t.intercept = &sign[first], &weight[first], intercept[0, k]
            t.least = 0.0
            for i in range(t.n_rows):
                t.least += least * weight[first + i]
            for a in range(n_penalties):
                if a > 0:
                    for i in range(t.n_rows):
                        coef[a, first + i] = coef[a - 1, first + i]
                read_loss(losses, a, &t.loss)
                t.penalty, t.coef = penalties[a], &coef[a, first]
                kernels.kernel_newton(&t)
                if interrupt.is_raised:
                    with gil:
                        keep_raised()
                intercept[a, k] = t.intercept
                results[a, k, 0], results[a, k, 1] = t.value, t.gap
                results[a, k, 2], results[a, k, 3] = <double>t.n_iter, <double>t.status


def coupled(const double[:, ::1] logits not None, Py_ssize_t n_classes, double limit):
    """Return logarithms of the probabilities of classes; `_link.py` documents the arguments."""
    cdef coupling_t t
    t.n_rows, t.n_classes, t.limit = logits.shape[0], n_classes, limit
    if t.n_rows < 1 or n_classes < 2 or not limit > 0:
        raise ValueError("coupling needs at least one row, two classes and a positive limit")
    check_length("a row of logits", logits.shape[1], n_classes * (n_classes - 1) // 2)
    cdef double[::1] work = empty(coupling_doubles(n_classes))
    found = empty((t.n_rows, n_classes))
    cdef double[:, ::1] out = found
    t.logits, t.work, t.out = &logits[0, 0], &work[0], &out[0, 0]
    with nogil:
        couple(&t)
    return found


def interval_sums(
    const double[:, ::1] scores not None, const double[::1] weights not None, double width,
    Py_ssize_t first, Py_ssize_t n_intervals,
):
    """Return weights summed over intervals of scores; `_arrays.py` documents the arguments."""
    cdef intervals_t t
    t.n_rows, t.n_columns = scores.shape[0], scores.shape[1]
    t.first, t.n_intervals, t.width = first, n_intervals, width
    check_length("weights", weights.shape[0], t.n_rows)
    if n_intervals < 1 or not width > 0:
        raise ValueError("sums need at least one interval and a positive width")
    found = zeros((t.n_columns, n_intervals))
    cdef double[:, ::1] sums = found
    if t.n_rows > 0 and t.n_columns > 0:
        t.scores, t.weights, t.sums = &scores[0, 0], &weights[0], &sums[0, 0]
        with nogil:
            add_to_intervals(&t)
    return found


def link_slopes(
    const double[:, ::1] scores not None, const Py_ssize_t[::1] codes not None,
    const double[::1] weights not None, double threshold, double mean, double ridge, bounds,
    str level=BEST,
):
    """Return the four slopes of a link, and its mean log-loss; `_link.py` documents the arguments."""
    cdef link_t t
    cdef const kernels_t *kernels = kernels_at(level_of(level))
    t.n_rows, t.n_scores = scores.shape[0], scores.shape[1]
    if t.n_rows < 1 or t.n_scores < 1:
        raise ValueError("a link needs at least one row and one score")
    check_length("codes", codes.shape[0], t.n_rows)
    check_length("weights", weights.shape[0], t.n_rows)
    check_inside("codes", codes, max(2, t.n_scores))
    cdef double[::1] work = array("d", bytes(8 * link_doubles(t.n_scores)))
    t.scores, t.codes, t.weights, t.work = &scores[0, 0], &codes[0], &weights[0], &work[0]
    t.low, t.high, t.mean, t.ridge = -1.0 - threshold, 1.0 - threshold, mean, ridge
    t.least, t.most = bounds
    with nogil:
        kernels.fit_link(&t)
    return [t.slopes[k] for k in range(LINK_SLOPES)], t.log_loss


def small_table(
    const double[:, ::1] matrix not None, const Py_ssize_t[::1] codes not None,
    double[::1] weights not None, problem, const double[::1] start=None, str level=BEST,
):
    """Fit a small dense table in one call; None where the general fit is needed.

    `problem` is a `SmallProblem`. The weights, positive and with sum one, are overwritten by those
    with bounded leverage. `start` has coefficients and intercepts of all scores. Returns
    coefficients (n_scores, n_columns), intercepts, scores (n_scores, n_rows), and a tuple: the
    objective, Newton steps, passes, the chosen factor, the slopes of the link and the number of
    rows that it is fitted to.
    """
    cdef small_table_t t
    cdef const double[::1] factors = problem.factors, direction = problem.direction
    t.kernels = kernels_at(level_of(level))
    t.n_rows, t.n_columns = matrix.shape[0], matrix.shape[1]
    t.n_classes, t.n_scores, t.n_factors = problem.n_classes, problem.n_scores, factors.shape[0]
    if t.n_rows < 1 or t.n_columns < 1 or t.n_classes < 2 or t.n_scores not in (1, t.n_classes):
        raise ValueError("a small table needs rows, columns and two classes, or a score for each")
    if t.n_scores == 1 and t.n_classes > 2:
        raise ValueError(f"one score is for two classes; got {t.n_classes}")
    if t.n_factors > MOST_FACTORS:
        raise ValueError(f"there may be at most {MOST_FACTORS} factors; got {t.n_factors}")
    check_length("codes", codes.shape[0], t.n_rows)
    check_inside("codes", codes, t.n_classes)
    check_length("weights", weights.shape[0], t.n_rows)
    check_length("direction", direction.shape[0], t.n_columns)
    if start is not None:
        check_length("start", start.shape[0], t.n_scores * (t.n_columns + 1))
    t.loss, t.temperature = loss_of(problem.loss), problem.temperature
    if t.n_scores > 1 and not t.temperature > 0:
        raise ValueError("a joint loss needs a positive temperature")
    t.has_intercept, t.n_samples = problem.has_intercept, problem.n_samples
    t.leverage_bound, t.far_distance = problem.leverage_bound, problem.far_distance
    t.alpha, t.inflation = problem.alpha, problem.inflation
    t.min_gain, t.max_joint_increase = problem.min_gain, problem.max_joint_increase
    t.min_likelihood_gain = problem.min_likelihood_gain
    t.min_distinct_rows = problem.min_distinct_rows
    t.tol, t.certain, t.half_tol, t.half_certain = problem.tolerances
    t.least, t.max_iter, t.half_max_iter = problem.least, problem.max_iter, problem.half_max_iter
    t.link.low, t.link.high = -1.0, 1.0
    t.link.mean, t.prior_variance = problem.prior.mean, problem.prior.deviation ** 2
    t.link.least, t.link.most = problem.prior.bounds
    coef, intercept = empty((t.n_scores, t.n_columns)), empty(t.n_scores)
    scores = empty((t.n_scores, t.n_rows))
    cdef double[:, ::1] coef_view = coef, scores_view = scores
    cdef double[::1] intercept_view = intercept
    cdef double[::1] work = empty(small_table_doubles(&t))
    t.matrix, t.codes, t.direction = &matrix[0, 0], &codes[0], &direction[0]
    t.factors = &factors[0] if t.n_factors else NULL
    t.coef, t.intercept, t.scores = &coef_view[0, 0], &intercept_view[0], &scores_view[0, 0]
    t.weight, t.work = &weights[0], &work[0]
    t.start = NULL if start is None else &start[0]
    cdef bint is_fitted
    with nogil:
        is_fitted = fit_small_table(&t)
    if not is_fitted:
        return None
    slopes = [t.link.slopes[k] for k in range(LINK_SLOPES)] if t.n_factors else []
    numbers = t.value, t.n_iter, t.n_passes, t.factor, slopes, t.count
    return coef, intercept, scores, numbers


#: The multiples to which `sweep_tiles` expects columns, and rows of coefficients, to be padded, and
#: the largest number of tasks; 0 without vector instructions.
TILE_PADDING, TILE_GROUP = PADDING, TASK_GROUP
TILE_TASKS = MOST_TASKS if kernels_at(0).tiles != NULL else 0


def sweep_tiles(
    const float[:, ::1] rows not None, Py_ssize_t first, Py_ssize_t last, losses,
    const Py_ssize_t[::1] codes not None, const double[:, ::1] weights not None,
    const Py_ssize_t[::1] positive not None, const Py_ssize_t[::1] part not None,
    const float[:, ::1] coef not None, const double[::1] intercept not None,
    double[:, ::1] gradient not None, double[::1] value not None, double[::1] slope not None,
    str level=BEST,
):
    """Sweep rows [first, last) for all tasks, with products in float32.

    Rows, coefficients and gradients are padded with zeros to a multiple of `TILE_PADDING` columns,
    and the coefficients, a row for each task, to a multiple of `TILE_GROUP` tasks.
    """
    cdef const double[:, ::1] parameters = losses
    cdef Py_ssize_t n_tasks = positive.shape[0], k
    cdef const kernels_t *kernels = kernels_at(level_of(level))
    cdef loss_t loss[MOST_TASKS]
    cdef tiles_t s
    for name, length in (
        ("part", part.shape[0]), ("value", value.shape[0]), ("slope", slope.shape[0]),
        ("intercept", intercept.shape[0]), ("gradient", gradient.shape[0]),
    ):
        check_length(name, length, n_tasks)
    check_losses(parameters, n_tasks)
    check_length("codes", codes.shape[0], rows.shape[0])
    check_length("weights", weights.shape[1], rows.shape[0])
    check_length("coef", coef.shape[0], (n_tasks + TASK_GROUP - 1) // TASK_GROUP * TASK_GROUP)
    check_length("a row of coef", coef.shape[1], rows.shape[1])
    check_length("a row of gradient", gradient.shape[1], rows.shape[1])
    check_length("a row", rows.shape[1], (rows.shape[1] + PADDING - 1) // PADDING * PADDING)
    if not 0 < n_tasks <= TILE_TASKS:
        raise ValueError(f"there must be 1 to {TILE_TASKS} tasks; got {n_tasks}")
    if not 0 <= first <= last <= rows.shape[0]:
        raise IndexError(f"rows [{first}, {last}) are not within {rows.shape[0]} rows")
    for k in range(n_tasks):
        if not 0 <= part[k] < weights.shape[0]:
            raise IndexError(f"part {part[k]} is not within {weights.shape[0]} parts")
        read_loss(parameters, k, &loss[k])
    if first == last or rows.shape[1] == 0:
        return
    s.n_rows, s.n_tasks, s.codes, s.weight = rows.shape[0], n_tasks, &codes[0], &weights[0, 0]
    s.coef, s.positive, s.part, s.loss = &coef[0, 0], &positive[0], &part[0], loss
    s.intercept, s.value, s.slope = &intercept[0], &value[0], &slope[0]
    s.gradient, s.stride, s.joint = &gradient[0, 0], gradient.shape[1], NULL
    with nogil:
        kernels.tiles(&rows[0, 0], first, last, rows.shape[1], &s)


def sweep_joint_tiles(
    const float[:, ::1] rows not None, Py_ssize_t first, Py_ssize_t last, parameters,
    double temperature, const Py_ssize_t[::1] codes not None, const double[::1] weights not None,
    const float[:, ::1] coef not None, const double[::1] intercept not None,
    double[:, ::1] gradient not None, double[::1] slope not None, str level=BEST,
):
    """Sweep rows [first, last) for a joint loss of all classes, with products in float32.

    Rows, coefficients and gradients are padded as those of `sweep_tiles`, with a row of the
    coefficients for each class. `parameters` are the kernel parameters of the margin loss. Returns
    the weighted sum of the losses.
    """
    cdef const double[:, ::1] row = parameters
    cdef Py_ssize_t n_classes = intercept.shape[0]
    cdef const kernels_t *kernels = kernels_at(level_of(level))
    cdef double value = 0.0
    cdef joint_t joint
    cdef tiles_t s
    check_length("slope", slope.shape[0], n_classes)
    check_length("gradient", gradient.shape[0], n_classes)
    check_length("codes", codes.shape[0], rows.shape[0])
    check_length("coef", coef.shape[0], (n_classes + TASK_GROUP - 1) // TASK_GROUP * TASK_GROUP)
    check_length("a row of coef", coef.shape[1], rows.shape[1])
    check_length("a row of gradient", gradient.shape[1], rows.shape[1])
    check_length("a row", rows.shape[1], (rows.shape[1] + PADDING - 1) // PADDING * PADDING)
    if n_classes > TILE_TASKS:
        raise ValueError(f"there must be at most {TILE_TASKS} classes; got {n_classes}")
    check_joint(row, temperature, n_classes, codes, weights, first, last)
    if first == last or rows.shape[1] == 0:
        return value
    read_loss(row, 0, &joint.loss)
    joint.temperature, joint.n_classes = temperature, n_classes
    joint.codes, joint.weight, joint.intercept = &codes[0], &weights[0], &intercept[0]
    joint.margins, joint.stride = NULL, TILE_ROWS
    s.n_rows, s.n_tasks, s.joint, s.coef = rows.shape[0], n_classes, &joint, &coef[0, 0]
    s.value, s.slope = &value, &slope[0]
    s.gradient, s.stride = &gradient[0, 0], gradient.shape[1]
    with nogil:
        kernels.tiles(&rows[0, 0], first, last, rows.shape[1], &s)
    return value


def class_tiles_work(Py_ssize_t n_classes, Py_ssize_t width):
    """Return the number of float32 that `sweep_class_tiles` needs as work."""
    return class_tile_floats(n_classes, width)


def sweep_class_tiles(
    const float[:, ::1] rows not None, Py_ssize_t n_columns, Py_ssize_t first, Py_ssize_t last,
    parameters, double temperature, const Py_ssize_t[::1] codes not None,
    const double[::1] weights not None, const float[:, ::1] coef not None,
    const double[::1] intercept not None, double[:, ::1] gradient not None,
    float[::1] work not None, str level=BEST,
):
    """Sweep rows [first, last) for a joint loss of any number of classes, mostly in float32.

    Rows and coefficients are padded as those of `sweep_tiles`. A row of the gradient has that of
    the coefficients of a class in its first `n_columns` columns and that of the intercept in the
    next one. `work` has `class_tiles_work` elements. Returns the weighted sum of the losses.
    """
    cdef const double[:, ::1] row = parameters
    cdef Py_ssize_t n_classes = intercept.shape[0], width = gradient.shape[1]
    cdef const kernels_t *kernels = kernels_at(level_of(level))
    cdef joint_t joint
    cdef class_tiles_t s
    check_length("gradient", gradient.shape[0], n_classes)
    check_length("codes", codes.shape[0], rows.shape[0])
    check_length("coef", coef.shape[0], (n_classes + TASK_GROUP - 1) // TASK_GROUP * TASK_GROUP)
    check_length("a row of coef", coef.shape[1], rows.shape[1])
    check_length("a row of gradient", width, (n_columns + PADDING) // PADDING * PADDING)
    check_length("work", work.shape[0], class_tile_floats(n_classes, width))
    if not 0 < n_columns <= rows.shape[1]:
        raise ValueError(f"n_columns must be 1 to {rows.shape[1]}; got {n_columns}")
    check_joint(row, temperature, n_classes, codes, weights, first, last)
    if first == last:
        return 0.0
    read_loss(row, 0, &joint.loss)
    joint.temperature, joint.n_classes = temperature, n_classes
    joint.codes, joint.weight, joint.intercept = &codes[0], &weights[0], &intercept[0]
    s.joint, s.n_columns, s.stride, s.width = &joint, n_columns, rows.shape[1], width
    s.coef, s.value, s.gradient, s.work = &coef[0, 0], 0.0, &gradient[0, 0], &work[0]
    with nogil:
        kernels.class_tiles(&rows[0, 0], first, last, &s)
    return s.value


cdef class Lbfgs:
    """Preconditioned L-BFGS for one task.

    `task` is an `LbfgsTask`, whose arrays are kept. A solve continues until `status` is not zero: by
    `advance`, for a caller who evaluates the point `trial`, or by `run`, which sweeps the rows of a
    task with a joint loss, in float32 and padded as those of `sweep_tiles`.
    """

    cdef const kernels_t *kernels
    cdef lbfgs_t t
    cdef const float[:, ::1] rows
    cdef const Py_ssize_t[:, ::1] spans
    cdef const Py_ssize_t[::1] codes
    cdef const double[::1] weights, penalty
    cdef const double[:, ::1] preconditioner
    cdef float[::1] coef
    cdef readonly object trial, trial_gradient, point, values, gaps

    def __cinit__(self, rows, task, str level=BEST):
        cdef const double[:, ::1] parameters = task.loss
        cdef Py_ssize_t n_classes = task.n_classes, size
        cdef double[::1] trial, gradient, work
        self.kernels = kernels_at(level_of(level))
        self.penalty, self.preconditioner = task.penalty, task.preconditioner
        t = &self.t
        t.n_columns, t.has_intercept = self.penalty.shape[0], task.has_intercept
        t.block, size = self.preconditioner.shape[0], n_classes * (t.n_columns + t.has_intercept)
        if t.n_columns < 1 or n_classes < 1:
            raise ValueError("there must be columns and classes")
        if t.block < 1 or size % t.block:
            raise ValueError("a point must consist of blocks of the preconditioner")
        check_length("a row of the preconditioner", self.preconditioner.shape[1], t.block)
        check_losses(parameters, 1)
        read_loss(parameters, 0, &t.joint.loss)
        t.joint.n_classes = n_classes
        if rows is not None:
            self.set_rows(rows, task, parameters)
        trial = self.trial = empty(size)
        gradient = self.trial_gradient = empty(size)
        self.trial[:] = task.start
        work = all_arrays = empty(lbfgs_doubles(size, n_classes, t.width))
        self.point = all_arrays[:size]  # a view, which keeps the array
        self.values, self.gaps = empty(0), empty(0)
        t.penalty, t.work = &self.penalty[0], &work[0]
        t.preconditioner, t.is_scaled = &self.preconditioner[0, 0], task.is_scaled
        t.trial, t.trial_gradient = &trial[0], &gradient[0]
        t.tol, t.least, t.min_iter, t.max_iter = task.tol, task.least, task.min_iter, task.max_iter
        t.n_confirmations, policy = task.n_confirmations, task.policy
        t.certain, t.min_scaling = policy.certain_fraction, policy.min_hessian_scaling
        t.sufficient_decrease, t.min_step_size = policy.sufficient_decrease, policy.min_step_size
        t.max_idle, t.rate_span = policy.max_idle_steps, policy.rate_span
        t.n_iter = -1

    cdef int set_rows(self, rows, task, const double[:, ::1] parameters) except -1:
        """Keep the rows and the labels of a joint task, for `run`."""
        cdef Py_ssize_t first, last, n_classes = task.n_classes
        t = &self.t
        self.rows, self.spans, self.codes, self.weights = rows, task.spans, task.codes, task.weights
        t.n_rows, t.width, t.n_spans = self.rows.shape[0], self.rows.shape[1], self.spans.shape[0]
        if t.n_columns > t.width or not 2 <= n_classes <= TILE_TASKS:
            raise ValueError(f"there must be columns and 2 to {TILE_TASKS} classes")
        check_length("a row", t.width, (t.width + PADDING - 1) // PADDING * PADDING)
        check_length("codes", self.codes.shape[0], t.n_rows)
        check_length("a span", self.spans.shape[1], 2)
        for first, last in task.spans:
            check_joint(parameters, task.temperature, n_classes, self.codes, self.weights, first, last)
        n_padded = (n_classes + TASK_GROUP - 1) // TASK_GROUP * TASK_GROUP
        self.coef = array("f", bytes(4 * n_padded * t.width))
        t.rows, t.coef = &self.rows[0, 0], &self.coef[0]
        t.spans = &self.spans[0, 0] if t.n_spans else NULL
        t.joint.temperature = task.temperature
        t.joint.codes, t.joint.weight = &self.codes[0], &self.weights[0]
        t.joint.margins, t.joint.stride = NULL, TILE_ROWS
        return 0

    cdef int make_room(self, Py_ssize_t n_sweeps) except -1:
        """Make room for the values and gaps of `n_sweeps` more iterations."""
        cdef double[::1] values, gaps
        cdef Py_ssize_t n = self.t.n_iter + 1
        if n + n_sweeps > len(self.values):
            for name in ("values", "gaps"):
                old, new = getattr(self, name), empty(2 * (n + n_sweeps))
                new[:n] = old[:n]
                if name == "values":
                    self.values = new
                else:
                    self.gaps = new
        values, gaps = self.values, self.gaps
        self.t.values, self.t.gaps = &values[0], &gaps[0]
        return 0

    def run(self, Py_ssize_t n_sweeps):
        """Evaluate up to `n_sweeps` points; return the status: 0 while the solve continues."""
        if n_sweeps < 1 or self.t.rows == NULL:
            raise ValueError(f"there must be rows, and at least one sweep; got {n_sweeps}")
        self.make_room(n_sweeps)
        with nogil:
            self.kernels.lbfgs_run(&self.t, n_sweeps)
        return self.t.status

    def advance(self, double value, gradient):
        """Take the objective and the gradient at the trial point; return the status."""
        self.make_room(1)
        self.trial_gradient[:] = gradient
        self.t.trial_value = value
        with nogil:
            self.kernels.lbfgs_advance(&self.t)
        return self.t.status

    def renew(self, const double[:, ::1] preconditioner not None):
        """Go on with another preconditioner, which is not scaled; the correction pairs are kept."""
        check_length("the preconditioner", preconditioner.shape[0], self.t.block)
        check_length("a row of the preconditioner", preconditioner.shape[1], self.t.block)
        if self.t.n_iter < 0:
            raise ValueError("the start must be evaluated before its preconditioner is renewed")
        self.preconditioner = preconditioner
        self.t.preconditioner, self.t.is_scaled = &self.preconditioner[0, 0], 0
        with nogil:
            self.kernels.lbfgs_renew(&self.t)

    @property
    def status(self):
        """0 while the solve continues, then a number of `lbfgs_status_t`."""
        return self.t.status

    @property
    def n_iter(self):
        """The number of steps, those that were shortened included."""
        return self.t.n_iter

    @property
    def value(self):
        """The objective at `point`."""
        return self.t.value

    @property
    def gap(self):
        """The estimate of the relative suboptimality."""
        return self.t.gap

    @property
    def bound(self):
        """The bound of the relative suboptimality."""
        return self.t.bound


def lbfgs_loop(
    reads, writes, const double[:, ::1] inverse not None, double[:, ::1] factors not None,
    double[:, ::1] points not None, str level=BEST,
):
    """Apply all pairs to each task, a row of the points: one half of the two-loop recursion.

    With pair p and task k, factors[p, k] -= inverse[p, k] * (reads[p][k] . points[k]), then
    points[k] += factors[p, k] * writes[p][k].
    """
    cdef Py_ssize_t n_pairs = len(reads), n_tasks = points.shape[0], n = points.shape[1], p, k
    cdef const kernels_t *kernels = kernels_at(level_of(level))
    cdef const double[:, ::1] rows
    cdef double factor
    check_length("writes", len(writes), n_pairs)
    check_length("inverse", inverse.shape[0], n_pairs)
    check_length("factors", factors.shape[0], n_pairs)
    check_length("a row of inverse", inverse.shape[1], n_tasks)
    check_length("a row of factors", factors.shape[1], n_tasks)
    if n_pairs == 0 or n_tasks == 0 or n == 0:
        return
    cdef int64_t[::1] starts = array("q", bytes(16 * n_pairs))
    for p in range(2 * n_pairs):
        rows = (reads if p < n_pairs else writes)[p % n_pairs]
        check_length("a pair", rows.shape[0], n_tasks)
        check_length("a row of a pair", rows.shape[1], n)
        starts[p] = <int64_t><uintptr_t>&rows[0, 0]
    with nogil:
        for k in range(n_tasks):
            factor = 0.0
            for p in range(n_pairs + 1):  # adds the previous pair while this one is read
                factor = kernels.add_dot(
                    n, factor,
                    <const double *><uintptr_t>starts[n_pairs + (p - 1 if p > 0 else 0)] + k * n,
                    &points[k, 0],
                    <const double *><uintptr_t>starts[p if p < n_pairs else 0] + k * n,
                )
                if p < n_pairs:
                    factors[p, k] -= inverse[p, k] * factor
                    factor = factors[p, k]


cdef int check_length(str name, Py_ssize_t got, Py_ssize_t wanted) except -1:
    if got != wanted:
        raise ValueError(f"{name} must have length {wanted}; got {got}")
    return 0


cdef class DenseRows(_Rows):
    """A dense matrix in C or Fortran order (rows or columns contiguous), read as it is."""

    cdef Py_buffer view
    cdef bint held

    #: Tasks that `dual_pass` serves at once.
    tasks_per_pass = 1

    def __cinit__(self, matrix, str level=BEST):
        self.held = False
        self.kernels = kernels_at(level_of(level))
        self.level = level
        PyObject_GetBuffer(matrix, &self.view, PyBUF_STRIDES | PyBUF_FORMAT)
        self.held = True
        if self.view.ndim != 2:
            raise ValueError(f"a matrix has 2 dimensions; got {self.view.ndim}")
        self.type = type_of(&self.view, "a matrix")
        self.n_rows, self.n_columns = self.view.shape[0], self.view.shape[1]
        self.matrix.data, self.matrix.item = self.view.buf, self.view.itemsize
        self.matrix.type = self.type
        self.matrix.n_columns = self.n_columns
        self.set_layout()

    cdef int set_layout(self) except -1:
        cdef Py_ssize_t item = self.view.itemsize
        cdef Py_ssize_t row = self.view.strides[0], column = self.view.strides[1]
        # NumPy sets the stride of an axis of length one to any number; it is not used.
        if self.n_columns <= 1:
            column = item
        if self.n_rows <= 1:
            row = self.n_columns * item if column == item else item
        if (row != item and column != item) or row % item or column % item:
            raise BufferError("rows or columns of the matrix must be contiguous")
        self.layout = COLUMNS if row == item else ROWS
        self.matrix.stride = (column if row == item else row) // item
        return 0

    def moments(
        self, Py_ssize_t first, Py_ssize_t last, const double[::1] centre not None,
        const double[::1] weights not None, double[:, ::1] total not None,
    ):
        """Add the sums over rows [first, last) of weights[i] * (row i - centre) to `total[0]`.

        Those of weights[i] * (row i - centre)**2 are added to `total[1]`.
        """
        self.check_span(first, last)
        check_length("centre", centre.shape[0], self.n_columns)
        check_length("weights", weights.shape[0], self.n_rows)
        check_length("total", total.shape[0], 2)
        check_length("total", total.shape[1], self.n_columns)
        with nogil:
            self.kernels.moments(
                self.layout, self.type, &self.matrix, first, last, &centre[0], &weights[0],
                &total[0, 0], &total[1, 0],
            )

    def norms(
        self, Py_ssize_t first, Py_ssize_t last, const double[::1] centre not None,
        const double[::1] factors not None, double[::1] out not None,
    ):
        """Write the sum of factors * (row - centre)**2 for rows [first, last) to `out`."""
        self.check_span(first, last)
        check_length("centre", centre.shape[0], self.n_columns)
        check_length("factors", factors.shape[0], self.n_columns)
        check_length("out", out.shape[0], self.n_rows)
        with nogil:
            self.kernels.norms(
                self.layout, self.type, &self.matrix, first, last, &centre[0], &factors[0], &out[0],
            )

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)


cdef class CsrRows(_Rows):
    """A CSR matrix, its indices checked once against the number of columns."""

    cdef Py_buffer data, indices, indptr
    cdef int held

    #: Tasks that `sweep_tasks` and `dual_pass` serve at once.
    tasks_per_pass = TASK_LANES

    def __cinit__(self, data, indices, indptr, Py_ssize_t n_columns, str level=BEST):
        self.held = 0
        self.level = LEVELS[min(level_of(level), MOST_LEVEL_OF_CSR)]
        self.kernels = kernels_at(level_of(self.level))
        PyObject_GetBuffer(data, &self.data, PyBUF_STRIDES | PyBUF_FORMAT)
        self.held = 1
        PyObject_GetBuffer(indices, &self.indices, PyBUF_STRIDES | PyBUF_FORMAT)
        self.held = 2
        PyObject_GetBuffer(indptr, &self.indptr, PyBUF_STRIDES | PyBUF_FORMAT)
        self.held = 3
        self.type = type_of(&self.data, "CSR data")
        index_type = type_of(&self.indices, "CSR indices")
        if index_type not in (INT32, INT64) or type_of(&self.indptr, "CSR indptr") != index_type:
            raise TypeError("CSR indices and indptr must both be int32 or both be int64")
        self.layout = CSR_32 if index_type == INT32 else CSR_64
        self.n_columns = n_columns
        self.matrix.data, self.matrix.item = self.data.buf, self.data.itemsize
        self.matrix.type = self.type
        self.matrix.n_columns = n_columns
        self.matrix.indices, self.matrix.indptr = self.indices.buf, self.indptr.buf
        self.check_structure()

    def __dealloc__(self):
        if self.held > 2:
            PyBuffer_Release(&self.indptr)
        if self.held > 1:
            PyBuffer_Release(&self.indices)
        if self.held > 0:
            PyBuffer_Release(&self.data)

    def sweep_tasks(
        self, losses, const Py_ssize_t[::1] codes not None, const double[:, ::1] weights not None,
        const Py_ssize_t[::1] positive not None, const Py_ssize_t[::1] part not None,
        const double[::1] centre not None, const double[::1] factors not None,
        const double[:, :] coef not None, const double[::1] intercept not None,
        double[:, :, ::1] table not None, double[:, ::1] gradient not None,
        double[::1] value not None, double[::1] slope not None, Py_ssize_t begin, Py_ssize_t end,
    ):
        """Sweep all rows, centred and multiplied by the factors, for tasks [begin, end).

        These are at most `tasks_per_pass`, with losses of one kind. `coef` and `gradient` have a
        row for each task, `losses` the kernel parameters of each, and `weights` a row for each row
        of the data and a column for each part. `table` is scratch.
        """
        cdef const double[:, ::1] parameters = losses
        cdef Py_ssize_t n_tasks = coef.shape[0], n_columns = self.n_columns, k, task
        cdef task_sweep_t tasks
        cdef scaling_t scaling
        for name, length in (
            ("positive", positive.shape[0]), ("part", part.shape[0]), ("value", value.shape[0]),
            ("slope", slope.shape[0]), ("intercept", intercept.shape[0]),
            ("gradient", gradient.shape[0]),
        ):
            check_length(name, length, n_tasks)
        for name, length in (
            ("centre", centre.shape[0]), ("factors", factors.shape[0]),
            ("a row of coef", coef.shape[1]), ("a row of gradient", gradient.shape[1]),
            ("table", table.shape[0]),
        ):
            check_length(name, length, n_columns)
        check_losses(parameters, n_tasks)
        check_length("codes", codes.shape[0], self.n_rows)
        check_length("weights", weights.shape[0], self.n_rows)
        check_length("a column of the table", table.shape[1] * table.shape[2], 2 * TASK_LANES)
        check_inside("part", part, weights.shape[1])
        if not 0 <= begin < end <= n_tasks or end - begin > TASK_LANES:
            raise IndexError(f"tasks [{begin}, {end}) are not 1 to {TASK_LANES} of {n_tasks} tasks")
        tasks.codes, tasks.weight, tasks.n_parts = &codes[0], &weights[0, 0], weights.shape[1]
        tasks.table = &table[0, 0, 0]
        scaling.n_columns, scaling.centre, scaling.factors = n_columns, &centre[0], &factors[0]
        check_one_kind(parameters, begin, end)
        with nogil:
            for k in range(TASK_LANES):  # a lane without a task repeats the first one
                task = begin + k if begin + k < end else begin
                tasks.positive[k], tasks.part[k] = positive[task], part[task]
                read_loss(parameters, task, &tasks.loss[k])
            fill_table(&tasks, &scaling, <const char *>&coef[begin, 0], coef.strides[0],
                       coef.strides[1], end - begin)
            for k in range(end - begin):
                tasks.intercept[k] += intercept[begin + k]
            self.kernels.sweep_tasks(self.layout, self.type, &self.matrix, self.n_rows, &tasks)
            for k in range(end - begin):
                value[begin + k], slope[begin + k] = tasks.value[k], tasks.slope[k]
            read_table(&tasks, &scaling, &gradient[begin, 0], end - begin)

    cdef int check_structure(self) except -1:
        check_vector("data", &self.data)
        check_vector("indices", &self.indices)
        check_vector("indptr", &self.indptr)
        cdef Py_ssize_t n_stored = self.indices.shape[0], n_offsets = self.indptr.shape[0]
        cdef csr_t m
        if n_offsets < 1 or self.data.shape[0] != n_stored:
            raise ValueError("CSR data and indices must have one length, and indptr a first entry")
        m.wide, m.indices, m.indptr = self.layout == CSR_64, self.indices.buf, self.indptr.buf
        m.n_stored, m.n_rows, m.n_columns = n_stored, n_offsets - 1, self.n_columns
        if not csr_is_sound(&m):
            raise ValueError("CSR indptr must rise from 0 to the number of stored elements, and "
                             f"every index be in [0, {self.n_columns})")
        self.n_rows = n_offsets - 1
        return 0


def rows(matrix):
    """Return a handle on the rows of a dense array or a sparse matrix, without a copy.

    NumPy reads a matrix that this module cannot: longdouble, another byte order, strides in both
    directions, a sparse format other than CSR. A CSR matrix with indices out of range is refused.
    """
    try:
        # Cython does not check the result of isinstance for an error, such as lack of memory.
        if not issparse(matrix):
            return DenseRows(asarray(matrix))
        if matrix.format == "csr":
            return CsrRows(matrix.data, matrix.indices, matrix.indptr, matrix.shape[1])
    except (TypeError, BufferError):
        pass
    return ArrayRows(matrix)


cdef int check_vector(str name, Py_buffer *view) except -1:
    if view.ndim != 1:
        raise ValueError(f"CSR {name} must have 1 dimension; got {view.ndim}")
    if view.shape[0] > 1 and view.strides[0] != view.itemsize:
        raise BufferError(f"CSR {name} must be contiguous")
    return 0


cdef csr_t csr_parts(indices, indptr, Py_ssize_t n_values, Py_ssize_t n_columns) except *:
    """Return the parts of a CSR matrix without an element outside of the arrays that hold them.

    The caller keeps the arrays.
    """
    cdef const int32_t[::1] indices_32, indptr_32
    cdef const int64_t[::1] indices_64, indptr_64
    cdef csr_t m
    m.wide = memoryview(indptr).itemsize == 8
    m.n_columns, m.n_rows = n_columns, len(indptr) - 1
    m.n_stored = min(n_values, len(indices))
    if m.wide:
        indices_64, indptr_64 = indices, indptr
        m.indices, m.indptr = &indices_64[0], &indptr_64[0]
    else:
        indices_32, indptr_32 = indices, indptr
        m.indices, m.indptr = &indices_32[0], &indptr_32[0]
    return m


def csr_gram(
    const double[::1] data,
    indices,
    indptr,
    const double[::1] weights,
    Py_ssize_t first,
    Py_ssize_t last,
    double[:, ::1] total,
):
    """Add T to the total, such that T + Tᵀ sums weight times the outer square of some CSR rows.

    Rows of weight zero are not read.
    """
    cdef bint is_sound = True
    cdef csr_t m = csr_parts(indices, indptr, len(data), total.shape[0])
    if not 0 <= first <= last <= min(len(weights), m.n_rows):
        raise IndexError(f"rows {first} to {last} are not all there")
    check_length("total", total.shape[1], m.n_columns)
    if m.n_stored:
        with nogil:
            is_sound = csr_add_squares(&m, &data[0], &weights[0], first, last, &total[0, 0])
    if not is_sound:
        raise IndexError(f"CSR indices must be in [0, {m.n_columns})")


def csr_moments(
    const double[::1] data, indices, indptr, const double[::1] weights, double[:, ::1] total
):
    """Add weighted sums of the values and of their squares to the total, (n_columns, 2).

    Rows of weight zero are not read.
    """
    cdef bint is_sound = True
    cdef csr_t m = csr_parts(indices, indptr, len(data), total.shape[0])
    check_length("weights", len(weights), m.n_rows)
    check_length("rows of total", total.shape[1], 2)
    if m.n_stored:
        with nogil:
            is_sound = c_csr_moments(&m, &data[0], &weights[0], &total[0, 0])
    if not is_sound:
        raise IndexError(f"CSR indices must be in [0, {m.n_columns})")


def csr_largest(const double[::1] data, indices, indptr, double[::1] largest):
    """Raise each entry of `largest` to the largest absolute value of its column."""
    cdef bint is_sound = True
    cdef csr_t m = csr_parts(indices, indptr, len(data), len(largest))
    if m.n_stored:
        with nogil:
            is_sound = c_csr_largest(&m, &data[0], &largest[0])
    if not is_sound:
        raise IndexError(f"CSR indices must be in [0, {m.n_columns})")


include "coordinates.pxi"
