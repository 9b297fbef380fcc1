"""Newton's method for dense rows and for binary problems with a kernel; see newton.c."""

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
    cdef const double[::1] tol = problem.tol, objective_floor = problem.objective_floor
    cdef const double[::1] temperature = problem.temperature
    cdef const Py_ssize_t[:, ::1] codes = problem.codes
    cdef const Py_ssize_t[::1] fold = problem.fold, code = problem.code, positive = problem.positive
    cdef const Py_ssize_t[::1] larger_penalty = problem.task_at_larger_penalty
    cdef const Py_ssize_t[::1] larger_scale = problem.task_at_larger_scale
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
        ("tol", tol.shape[0]), ("objective_floor", objective_floor.shape[0]),
        ("temperature", temperature.shape[0]),
        ("positive", positive.shape[0]), ("fold", fold.shape[0]), ("penalty", penalty.shape[0]),
        ("results", results.shape[0]), ("code", code.shape[0]),
        ("task_at_larger_penalty", larger_penalty.shape[0]),
        ("task_at_larger_scale", larger_scale.shape[0]),
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
        for j in (larger_penalty[k], larger_scale[k]):
            if not -1 <= j < n_tasks:
                raise IndexError(f"task {j} is not within {n_tasks} tasks")
        if larger_penalty[k] >= 0 and (fold[k], code[k], positive[k]) != (
            fold[larger_penalty[k]], code[larger_penalty[k]], positive[larger_penalty[k]]
        ):
            raise ValueError(f"task {k} follows task {larger_penalty[k]} of other rows or labels")
        if t.n_scores > 1 and not temperature[k] > 0:
            raise ValueError("a joint loss needs a positive temperature")
    if t.n_scores > 1:
        check_inside("codes", codes[0], t.n_scores)
    cdef double[::1] work = empty(newton_doubles(t.n_rows, t.n_columns, t.stride, t.n_scores))
    cdef interrupt_t interrupt = no_interrupt()
    t.work, t.interrupt = &work[0], &interrupt
    # The rows of a fold that have weight, with their weights and codes; the others do not count.
    cdef Py_ssize_t n_rows = t.n_rows, n_gathered = 0, last_fold = -1, last_code = -1
    for j in range(which.shape[0]):
        if j == 0 or fold[which[j]] != fold[which[j - 1]]:
            n_gathered = max(n_gathered, n_with_weight(weights[fold[which[j]]]) % n_rows)
    cdef double[::1] gathered_rows = empty(max(1, n_gathered * t.stride))
    cdef double[::1] gathered_weight = empty(max(1, n_gathered))
    cdef Py_ssize_t[::1] gathered_codes = empty(max(1, n_gathered), "intp")
    with nogil:
        for j in range(which.shape[0]):
            k = which[j]
            read_loss(parameters, k, &t.loss)
            if fold[k] != last_fold or code[k] != last_code:
                last_fold, last_code = fold[k], code[k]
                t.rows, t.weight, t.codes = &rows[0, 0], &weights[last_fold, 0], &codes[last_code, 0]
                t.n_rows = n_rows
                if n_with_weight(weights[last_fold]) % n_rows:
                    t.n_rows = gather_rows(
                        n_rows, t.stride, &rows[0, 0], &weights[last_fold, 0], &codes[last_code, 0],
                        &gathered_rows[0], &gathered_weight[0], &gathered_codes[0],
                    )
                    t.rows, t.weight, t.codes = &gathered_rows[0], &gathered_weight[0], &gathered_codes[0]
            t.positive, t.temperature, t.penalty = positive[k], temperature[k], &penalty[k, 0]
            t.tol, t.objective_floor, t.point = tol[k], objective_floor[k], &points[k, 0]
            if larger_scale[k] >= 0:
                points[k, :] = points[larger_scale[k], :]
            t.other = &points[larger_penalty[k], 0] if larger_penalty[k] >= 0 else NULL
            t.continues = j > 0 and larger_penalty[k] == which[j - 1] and t.status == 0  # converged
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

    `problems` is a `KernelProblems`. Problem k has the entries edges[k] to edges[k + 1] - 1 of its
    rows, signs and weights, and of each row of `coef`, which has one for each penalty. Its first
    penalty starts at the values of `coef` and `intercept`, (n_penalties, n_problems), each other
    one at the fit before. `results` receives value, gap, number of iterations and status of each,
    in the order of `intercept`.
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
    cdef double objective_floor = problems.objective_floor
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
    cdef double[::1] block = empty(largest * newton_line_length(largest))
    cdef interrupt_t interrupt = no_interrupt()
    t.work, t.gram, t.interrupt = &work[0], &block[0], &interrupt
    with nogil:
        for k in range(n_problems):
            first, t.n_rows = edges[k], edges[k + 1] - edges[k]
            t.stride = newton_line_length(t.n_rows)
            for i in range(t.n_rows):
                for j in range(t.n_rows):
                    block[i * t.stride + j] = gram[rows[first + i], rows[first + j]]
                for j in range(t.n_rows, t.stride):
                    block[i * t.stride + j] = 0.0
            t.sign, t.weight, t.intercept = &sign[first], &weight[first], intercept[0, k]
            t.objective_floor = 0.0
            for i in range(t.n_rows):
                t.objective_floor += objective_floor * weight[first + i]
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
