"""L-BFGS for one task, and the two-loop recursion for many; see lbfgs.c."""


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
        t.tol, t.objective_floor = task.tol, task.objective_floor
        t.min_iter, t.max_iter = task.min_iter, task.max_iter
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
