"""Gram matrix, moments and largest values of CSR rows; the loops in csr.c check their indices."""


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
