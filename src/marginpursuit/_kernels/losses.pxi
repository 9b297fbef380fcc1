"""Derivatives of losses at scores of rows, and the parameters of losses; see loss.h and joint.h."""


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
