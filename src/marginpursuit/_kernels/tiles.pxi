"""Sweeps of float32 rows for several tasks or classes; see tiles.h and class_tiles.h."""

#: The multiples to which `sweep_tiles` expects columns, and rows of coefficients, to be padded, and
#: the largest number of tasks; 0 without vector instructions.
TILE_PADDING, TILE_GROUP = PADDING, TASK_GROUP
TILE_TASKS = MAX_TASKS if kernels_at(0).tiles != NULL else 0


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
    cdef loss_t loss[MAX_TASKS]
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
