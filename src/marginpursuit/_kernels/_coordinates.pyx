# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, freethreading_compatible=True
"""The sweeps of coordinates.py, compiled; coordinates.py documents the computations."""

from libc.math cimport INFINITY, fmax, fmin
from libc.stdint cimport int64_t


cdef struct state_t:
    const double *sign
    const double *lower
    const double *upper
    const double *up
    const double *down
    double gain_up, gain_down
    const double *curvature
    double *a
    # The scores of the matrix form, or the coefficients of the row form.
    double *target
    Py_ssize_t n_target
    const double *matrix  # K, or the rows; NULL where these are sparse
    Py_ssize_t stride
    const double *data
    const int64_t *indices
    const int64_t *indptr
    const double *inverse_hessian
    bint by_rows, constant


cdef inline void add(double *target, const double *row, double factor, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t j
    for j in range(n):
        target[j] += factor * row[j]


cdef inline double dot(const double *left, const double *right, Py_ssize_t n) noexcept nogil:
    """The inner product, in four independent sums."""
    cdef double s0 = 0.0, s1 = 0.0, s2 = 0.0, s3 = 0.0
    cdef Py_ssize_t j = 0
    while j + 4 <= n:
        s0 += left[j] * right[j]
        s1 += left[j + 1] * right[j + 1]
        s2 += left[j + 2] * right[j + 2]
        s3 += left[j + 3] * right[j + 3]
        j += 4
    while j < n:
        s0 += left[j] * right[j]
        j += 1
    return (s0 + s1) + (s2 + s3)


cdef inline double score(state_t *s, Py_ssize_t i) noexcept nogil:
    cdef double total
    cdef Py_ssize_t k
    if not s.by_rows:
        return s.target[i]
    if s.matrix != NULL:
        total = dot(s.matrix + i * s.stride, s.target, s.stride)
    else:
        total = 0.0
        for k in range(s.indptr[i], s.indptr[i + 1]):
            total += s.data[k] * s.target[s.indices[k]]
    return total + s.target[s.n_target - 1] if s.constant else total


cdef inline void move_entry(state_t *s, Py_ssize_t j, double change) noexcept nogil:
    """Add M times `change` at entry j to the coefficients."""
    if s.inverse_hessian == NULL:
        s.target[j] += change
    else:
        add(s.target, s.inverse_hessian + j * s.n_target, change, s.n_target)


cdef inline void move(state_t *s, Py_ssize_t i, double change) noexcept nogil:
    cdef Py_ssize_t k
    if s.matrix != NULL and (not s.by_rows or s.inverse_hessian == NULL):
        add(s.target, s.matrix + i * s.stride, change, s.stride)
    elif s.matrix != NULL:
        for k in range(s.stride):
            if s.matrix[i * s.stride + k] != 0.0:
                move_entry(s, k, change * s.matrix[i * s.stride + k])
    else:
        for k in range(s.indptr[i], s.indptr[i + 1]):
            move_entry(s, s.indices[k], change * s.data[k])
    if s.constant:
        move_entry(s, s.n_target - 1, change)


cdef (Py_ssize_t, double) run(
    state_t *s, int64_t *order, Py_ssize_t n_order, double threshold
) noexcept nogil:
    cdef Py_ssize_t i, k, kept = 0
    cdef double largest = 0.0, margin, a, rising, falling, left, right, linear, best
    for k in range(n_order):
        i = order[k]
        a = s.a[i]
        margin = s.sign[i] * score(s, i)
        rising = margin + s.up[i] * a - s.gain_up
        falling = margin + s.down[i] * a - s.gain_down
        left = -INFINITY if a <= s.lower[i] else (rising if a > 0 else falling)
        right = INFINITY if a >= s.upper[i] else (rising if a >= 0 else falling)
        largest = fmax(largest, fmax(left, -right))
        if fmin(-left, right) > threshold:
            continue
        order[kept] = i
        kept += 1
        linear = s.curvature[i] * a - margin
        best = 0.0
        if linear > -s.gain_up:
            best = (linear + s.gain_up) / (s.curvature[i] + s.up[i])
        elif linear < -s.gain_down:
            best = (linear + s.gain_down) / (s.curvature[i] + s.down[i])
        best = fmin(fmax(best, s.lower[i]), s.upper[i])
        if best != a:
            s.a[i] = best
            move(s, i, s.sign[i] * (best - a))
    return kept, largest


cdef int check(
    state_t *s, const double[::1] sign, const double[::1] lower, const double[::1] upper,
    const double[::1] up, const double[::1] down, double gain_up, double gain_down,
    const double[::1] curvature, double[::1] a, const int64_t[::1] order,
) except -1:
    """Set the common state of all sweeps; refuse arrays of unequal length and wrong indices."""
    cdef Py_ssize_t n = sign.shape[0], k
    if not (lower.shape[0] == upper.shape[0] == up.shape[0] == down.shape[0]
            == curvature.shape[0] == a.shape[0] == n):
        raise ValueError(f"all arrays must have an entry for each of the {n} rows")
    for k in range(order.shape[0]):
        if not 0 <= order[k] < n:
            raise IndexError(f"order must name rows in [0, {n}); got {order[k]}")
    if n == 0:
        raise ValueError("there must be a row")
    s.sign, s.lower, s.upper = &sign[0], &lower[0], &upper[0]
    s.up, s.down, s.gain_up, s.gain_down = &up[0], &down[0], gain_up, gain_down
    s.curvature, s.a = &curvature[0], &a[0]
    s.matrix = s.data = s.inverse_hessian = NULL
    s.indices = s.indptr = NULL
    s.by_rows, s.constant = False, False
    return 0


def sweep_matrix(
    const double[::1] sign, const double[::1] lower, const double[::1] upper,
    const double[::1] up, const double[::1] down, double gain_up, double gain_down,
    const double[::1] curvature, double[::1] a, int64_t[::1] order, double threshold,
    const double[:, ::1] matrix, double[::1] scores,
):
    """Sweep where scores are a symmetric matrix times y a."""
    cdef state_t s
    cdef (Py_ssize_t, double) found
    check(&s, sign, lower, upper, up, down, gain_up, gain_down, curvature, a, order)
    if not matrix.shape[0] == matrix.shape[1] == scores.shape[0] == sign.shape[0]:
        raise ValueError("matrix and scores must have an entry for each row")
    s.matrix, s.stride, s.target = &matrix[0, 0], matrix.shape[1], &scores[0]
    if order.shape[0] == 0:
        return 0, 0.0
    with nogil:
        found = run(&s, &order[0], order.shape[0], threshold)
    return found


cdef int set_coef(
    state_t *s, Py_ssize_t n_columns, double[::1] coef, const double[:, ::1] inverse_hessian,
    bint constant,
) except -1:
    cdef Py_ssize_t n = n_columns + constant
    if coef.shape[0] != n or n == 0:
        raise ValueError(f"coef must have length {n}; got {coef.shape[0]}")
    if inverse_hessian is not None and not inverse_hessian.shape[0] == inverse_hessian.shape[1] == n:
        raise ValueError(f"inverse_hessian must have {n} rows and columns")
    s.by_rows, s.constant, s.target, s.n_target = True, constant, &coef[0], n
    s.inverse_hessian = NULL if inverse_hessian is None else &inverse_hessian[0, 0]
    return 0


def sweep_dense(
    const double[::1] sign, const double[::1] lower, const double[::1] upper,
    const double[::1] up, const double[::1] down, double gain_up, double gain_down,
    const double[::1] curvature, double[::1] a, int64_t[::1] order, double threshold,
    const double[:, ::1] rows, double[::1] coef, const double[:, ::1] inverse_hessian,
    bint constant,
):
    """Sweep over dense rows."""
    cdef state_t s
    cdef (Py_ssize_t, double) found
    check(&s, sign, lower, upper, up, down, gain_up, gain_down, curvature, a, order)
    set_coef(&s, rows.shape[1], coef, inverse_hessian, constant)
    if rows.shape[0] != sign.shape[0]:
        raise ValueError(f"rows must be {sign.shape[0]}; got {rows.shape[0]}")
    s.matrix, s.stride = &rows[0, 0], rows.shape[1]
    if order.shape[0] == 0:
        return 0, 0.0
    with nogil:
        found = run(&s, &order[0], order.shape[0], threshold)
    return found


def sweep_sparse(
    const double[::1] sign, const double[::1] lower, const double[::1] upper,
    const double[::1] up, const double[::1] down, double gain_up, double gain_down,
    const double[::1] curvature, double[::1] a, int64_t[::1] order, double threshold,
    const double[::1] data, const int64_t[::1] indices, const int64_t[::1] indptr,
    double[::1] coef, const double[:, ::1] inverse_hessian, bint constant,
):
    """Sweep over the rows of a CSR matrix, whose indices the caller has checked."""
    cdef state_t s
    cdef (Py_ssize_t, double) found
    check(&s, sign, lower, upper, up, down, gain_up, gain_down, curvature, a, order)
    set_coef(&s, coef.shape[0] - constant, coef, inverse_hessian, constant)
    if indptr.shape[0] != sign.shape[0] + 1 or data.shape[0] != indices.shape[0]:
        raise ValueError("CSR arrays must be of one matrix with a row for each sign")
    s.indptr = &indptr[0]
    if data.shape[0]:
        s.data, s.indices = &data[0], &indices[0]
    if order.shape[0] == 0:
        return 0, 0.0
    with nogil:
        found = run(&s, &order[0], order.shape[0], threshold)
    return found
