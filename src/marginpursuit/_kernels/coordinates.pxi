"""The sweeps of coordinates.py, compiled: checks of their arguments. The loops are in coordinates.c."""


cdef extern from "coordinates.h" nogil:
    ctypedef struct coordinates_t:
        const double *sign
        const double *lower
        const double *upper
        const double *up
        const double *down
        double gain_up, gain_down
        const double *curvature
        double *a
        double *target
        Py_ssize_t n_target
        const double *matrix
        Py_ssize_t stride
        const double *data
        const int64_t *indices
        const int64_t *indptr
        const double *inverse_hessian
        bint by_rows, constant
    Py_ssize_t sweep_coordinates(coordinates_t *, int64_t *, Py_ssize_t, double, double *)


cdef int check_coordinates(
    coordinates_t *s, const double[::1] sign, const double[::1] lower, const double[::1] upper,
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


cdef tuple sweep_in_order(coordinates_t *s, int64_t[::1] order, double threshold):
    cdef Py_ssize_t kept
    cdef double largest
    if order.shape[0] == 0:
        return 0, 0.0
    with nogil:
        kept = sweep_coordinates(s, &order[0], order.shape[0], threshold, &largest)
    return kept, largest


def sweep_matrix(
    const double[::1] sign, const double[::1] lower, const double[::1] upper,
    const double[::1] up, const double[::1] down, double gain_up, double gain_down,
    const double[::1] curvature, double[::1] a, int64_t[::1] order, double threshold,
    const double[:, ::1] matrix, double[::1] scores,
):
    """Sweep where scores are a symmetric matrix times y a."""
    cdef coordinates_t s
    check_coordinates(&s, sign, lower, upper, up, down, gain_up, gain_down, curvature, a, order)
    if not matrix.shape[0] == matrix.shape[1] == scores.shape[0] == sign.shape[0]:
        raise ValueError("matrix and scores must have an entry for each row")
    s.matrix, s.stride, s.target = &matrix[0, 0], matrix.shape[1], &scores[0]
    return sweep_in_order(&s, order, threshold)


cdef int set_coef(
    coordinates_t *s, Py_ssize_t n_columns, double[::1] coef, const double[:, ::1] inverse_hessian,
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
    cdef coordinates_t s
    check_coordinates(&s, sign, lower, upper, up, down, gain_up, gain_down, curvature, a, order)
    set_coef(&s, rows.shape[1], coef, inverse_hessian, constant)
    if rows.shape[0] != sign.shape[0]:
        raise ValueError(f"rows must be {sign.shape[0]}; got {rows.shape[0]}")
    s.matrix, s.stride = &rows[0, 0], rows.shape[1]
    return sweep_in_order(&s, order, threshold)


def sweep_sparse(
    const double[::1] sign, const double[::1] lower, const double[::1] upper,
    const double[::1] up, const double[::1] down, double gain_up, double gain_down,
    const double[::1] curvature, double[::1] a, int64_t[::1] order, double threshold,
    const double[::1] data, const int64_t[::1] indices, const int64_t[::1] indptr,
    double[::1] coef, const double[:, ::1] inverse_hessian, bint constant,
):
    """Sweep over the rows of a CSR matrix, whose indices the caller has checked."""
    cdef coordinates_t s
    check_coordinates(&s, sign, lower, upper, up, down, gain_up, gain_down, curvature, a, order)
    set_coef(&s, coef.shape[0] - constant, coef, inverse_hessian, constant)
    if indptr.shape[0] != sign.shape[0] + 1 or data.shape[0] != indices.shape[0]:
        raise ValueError("CSR arrays must be of one matrix with a row for each sign")
    s.indptr = &indptr[0]
    if data.shape[0]:
        s.data, s.indices = &data[0], &indices[0]
    return sweep_in_order(&s, order, threshold)
