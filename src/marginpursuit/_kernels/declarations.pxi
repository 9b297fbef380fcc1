"""The types and functions of C that the module calls; their headers document them."""


cdef extern from "link.h" nogil:
    enum:
        LINK_SLOPES
    ctypedef struct link_t:
        const double *scores
        const Py_ssize_t *codes
        const double *weights
        Py_ssize_t n_rows, n_scores
        double low, high, mean, ridge, min_slope, max_slope
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
        Py_ssize_t n_unshrunk
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
        MAX_TASKS
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
        double tol, certain, objective_floor
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
        double tol, objective_floor
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
        double tol, objective_floor, certain
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
        void (*moments)(layout_t, int, const matrix_t *, Py_ssize_t, Py_ssize_t, const double *,
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
        MAX_FACTORS
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
        double leverage_bound, far_distance, apart_distance, hidden_distance
        double alpha, inflation
        const double *factors
        Py_ssize_t n_factors
        double max_increase, max_joint_increase, min_likelihood_gain
        Py_ssize_t min_distinct_rows
        double tol, certain, half_tol, half_certain, objective_floor
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
