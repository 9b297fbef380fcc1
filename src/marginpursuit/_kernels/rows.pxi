"""Handles on the rows of dense and CSR matrices: sweeps, scores, dual passes and stochastic steps.

A handle checks its buffers once, and a method the arrays that it receives; it then runs over rows
[first, last). sweep.h documents the computations.
"""

# CSR rows take AVX2 at most: their loads of single coefficients gain nothing from vectors of eight,
# whose divisions take longer. With AVX-512 dual passes took 1.12 to 1.27 times as long on an Intel
# Xeon (benchmarks/text.py at commit c15a07e). Their functions are not compiled for it.
cdef enum:
    MAX_CSR_LEVEL = 1

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


cdef int type_of(Py_buffer *view, str what) except -1:
    """The number of the element type of a buffer, if that can be read directly."""
    cdef str text = "B" if view.format == NULL else view.format.decode()
    code = TYPE_OF.get((text.lstrip("@="), view.itemsize))
    if code is None:
        raise TypeError(f"{what} of buffer format {text!r} cannot be read directly")
    if <uintptr_t>view.buf % <uintptr_t>view.itemsize:
        raise BufferError(f"{what} must be aligned to its elements")
    return code


cdef int check_vector(str name, Py_buffer *view) except -1:
    if view.ndim != 1:
        raise ValueError(f"CSR {name} must have 1 dimension; got {view.ndim}")
    if view.shape[0] > 1 and view.strides[0] != view.itemsize:
        raise BufferError(f"CSR {name} must be contiguous")
    return 0


cdef struct pass_rule_t:  # as `PassStopping`; passes and visits of rows that are left
    double *gap
    const double *levels
    const double *objective_floor
    const double *tols
    Py_ssize_t n_tasks, min_tasks, n_left, n_visits
    double shrinking


cdef int next_pass(pass_rule_t *rule, dual_pass_t *dual) noexcept nogil:
    """Set gaps and radii after a pass; return whether another follows."""
    cdef Py_ssize_t k, task, n_unfinished = 0
    cdef double scale, gap
    for k in range(TASK_LANES):
        task = k if k < rule.n_tasks else 0
        gap, scale = dual.gap[task], max(dual.value[task], rule.objective_floor[task])
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
    return n_unfinished >= rule.min_tasks and min(rule.n_left, rule.n_visits, dual.n_unshrunk) > 0


cdef void move_intercepts(Py_ssize_t n_tasks, dual_pass_t *dual) noexcept nogil:
    """Take the step of the method of multipliers that precedes a pass."""
    cdef Py_ssize_t k, task
    for k in range(TASK_LANES - 1, -1, -1):  # lanes that repeat the first task precede it
        task = k if k < n_tasks else 0
        dual.intercept[k] = (
            dual.intercept[task] + dual.constant * dual.balance[task] / dual.penalty[k]
        )


cdef int set_rules(descent_t *s, descent) except -1:
    """Copy the parameters of a descent."""
    s.loss = loss_of(descent.loss)
    s.rate, s.decay, s.radius = descent.rate, descent.decay, descent.radius
    s.fit_intercept, s.penalise_intercept = descent.fit_intercept, descent.penalise_intercept
    s.intercept, s.total_intercept = descent.intercept, descent.total_intercept
    s.square = descent.square
    return 0


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
        """Take a step of dual coordinate ascent for each unshrunk row, for one task or all lanes.

        Rows are CSR or, for one task, float64 or float32 and contiguous.

        Weights, and squared norms with the constant, have an entry for each row of the data,
        residuals a row for each, coefficients one for each column; all else has an entry for each
        task. Losses are functions of one rho. Value, duality gap and balance are written to the
        rows of `sums`; see sweep.h. Returns the number of rows that are not shrunk, which are then
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
        cdef const double[::1] levels = None, objective_floor = None, tols = None
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
        dual.rows, dual.n_unshrunk, dual.codes = &rows[0], rows.shape[0], &codes[0]
        dual.n_lanes, dual.seed, dual.is_frozen = n_tasks, seed, is_frozen
        dual.weight, dual.square, dual.constant = &weights[0], &squares[0], constant
        dual.residual, dual.coef = &residual[0, 0], &coef[0, 0]
        if stopping is not None:
            gap, levels, tols = stopping.gap, stopping.levels, stopping.tols
            objective_floor = stopping.objective_floor
            for name, length in (
                ("gap", gap.shape[0]), ("levels", levels.shape[0]),
                ("objective_floor", objective_floor.shape[0]),
                ("tols", tols.shape[0]),
            ):
                check_length(name, length, n_tasks)
            rule.gap, rule.levels, rule.tols = &gap[0], &levels[0], &tols[0]
            rule.objective_floor = &objective_floor[0]
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
                rule.n_visits -= dual.n_unshrunk
                self.kernels.dual_pass(layout, self.type, &self.matrix, &dual)
                if gap is None or not next_pass(&rule, &dual):
                    break
            for k in range(n_tasks):
                intercept[k], radius[k] = dual.intercept[k], dual.radius[k]
                sums[0, k], sums[1, k], sums[2, k] = dual.value[k], dual.gap[k], dual.balance[k]
        if stopping is not None:
            stopping.n_passes = stopping.max_passes - rule.n_left
        return dual.n_unshrunk

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
        const double[::1] factors = None,
    ):
        """Add the sums over rows [first, last) of weights[i] * z_i to `total[0]`.

        Those of weights[i] * z_i**2 are added to `total[1]`. z_i is row i less the centre or, with
        factors, the square of that times the factors.
        """
        cdef const double *factor = NULL
        if factors is not None:
            check_length("factors", factors.shape[0], self.n_columns)
            factor = &factors[0]
        self.check_span(first, last)
        check_length("centre", centre.shape[0], self.n_columns)
        check_length("weights", weights.shape[0], self.n_rows)
        check_length("total", total.shape[0], 2)
        check_length("total", total.shape[1], self.n_columns)
        with nogil:
            self.kernels.moments(
                self.layout, self.type, &self.matrix, first, last, &centre[0], factor, &weights[0],
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
        self.level = LEVELS[min(level_of(level), MAX_CSR_LEVEL)]
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
