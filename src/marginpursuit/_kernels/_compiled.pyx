# cython: language_level=3, boundscheck=False, wraparound=False
"""Checked handles on the rows of a matrix, and the fused sweeps over them.

The handle checks its buffers once; a method then runs over rows [first, last) with the GIL
released. What it computes is written in sweep.h.
"""

from cpython.buffer cimport (
    PyBUF_FORMAT, PyBUF_STRIDES, PyBuffer_Release, PyObject_GetBuffer,
)
from libc.stdint cimport int32_t, int64_t


cdef extern from "sweep.h" nogil:
    ctypedef struct loss_t:
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
        double *margins
        double *curvature
    ctypedef struct dense_t:
        const void *data
        Py_ssize_t n_rows, n_columns, row_stride, column_stride
    ctypedef struct csr_t:
        const void *data
        const void *indices
        const void *indptr
        Py_ssize_t first, n_rows
    ctypedef void (*dense_sweep_f)(const dense_t *, sweep_t *) noexcept nogil
    ctypedef void (*dense_scores_f)(const dense_t *, const double *, double, double *) noexcept nogil
    ctypedef void (*dense_pullback_f)(const dense_t *, const double *, double *) noexcept nogil
    ctypedef void (*csr_sweep_f)(const csr_t *, sweep_t *) noexcept nogil
    ctypedef void (*csr_scores_f)(const csr_t *, const double *, double, double *) noexcept nogil
    ctypedef void (*csr_pullback_f)(const csr_t *, const double *, double *) noexcept nogil
    ctypedef struct kernels_t:
        dense_sweep_f *dense_sweep
        dense_scores_f *dense_scores
        dense_pullback_f *dense_pullback
        csr_sweep_f (*csr_sweep)[2]
        csr_scores_f (*csr_scores)[2]
        csr_pullback_f (*csr_pullback)[2]
    int usable_levels()
    const kernels_t *kernels_at(int level)


#: SIMD levels that this processor can run, slowest first.
LEVELS = ("baseline", "avx2", "avx512")[:usable_levels()]

cdef str BEST = LEVELS[len(LEVELS) - 1]

# Buffer formats in the order of the type tables of sweep.c; l and q are both 64 bits where C says
# so, hence the item size beside the format.
cdef dict TYPE_OF = {
    ("d", 8): 0, ("f", 4): 1, ("e", 2): 2, ("b", 1): 3, ("B", 1): 4, ("?", 1): 4, ("h", 2): 5,
    ("H", 2): 6, ("i", 4): 7, ("l", 4): 7, ("I", 4): 8, ("L", 4): 8, ("l", 8): 9, ("q", 8): 9,
}


cdef int level_of(str level) except -1:
    if level not in LEVELS:
        raise ValueError(f"level must be one of {LEVELS} on this processor; got {level!r}")
    return LEVELS.index(level)


cdef int type_of(Py_buffer *view, str what) except -1:
    """The row of the type tables that reads this buffer."""
    cdef str text = "B" if view.format == NULL else view.format.decode()
    code = TYPE_OF.get((text.lstrip("@="), view.itemsize))
    if code is None:
        raise TypeError(f"{what} of buffer format {text!r} cannot be read directly")
    return code


cdef class _Rows:
    """What dense and sparse rows share: their shape and the SIMD level in use."""

    cdef const kernels_t *kernels
    cdef int type
    cdef readonly Py_ssize_t n_rows, n_columns
    cdef readonly str level

    cdef int check_span(self, Py_ssize_t first, Py_ssize_t last) except -1:
        if not 0 <= first <= last <= self.n_rows:
            raise IndexError(f"rows [{first}, {last}) are not within the {self.n_rows} rows")
        return 0

    def sweep(
        self, Py_ssize_t first, Py_ssize_t last, loss,
        const double[::1] sign, const double[::1] weight,
        const double[::1] coef, double intercept, double[::1] gradient,
        double[::1] margins=None, double[::1] curvature=None,
    ):
        """Add the gradient of rows [first, last) to `gradient`; return value and slope.

        `sign`, `weight`, `margins` and `curvature` span all rows of the matrix.
        """
        cdef sweep_t s
        self.check_span(first, last)
        check_length("sign", sign.shape[0], self.n_rows)
        check_length("weight", weight.shape[0], self.n_rows)
        check_length("coef", coef.shape[0], self.n_columns)
        check_length("gradient", gradient.shape[0], self.n_columns)
        if first == last or self.n_columns == 0:
            raise ValueError("a sweep needs at least one row and one column")
        s.sign = &sign[first]
        s.weight = &weight[first]
        s.coef = &coef[0]
        s.intercept = intercept
        s.loss.margin, s.loss.scale = loss.margin, loss.scale
        s.loss.overconfidence = loss.overconfidence
        s.value = s.slope = 0.0
        s.gradient = &gradient[0]
        s.margins = s.curvature = NULL
        if margins is not None:
            check_length("margins", margins.shape[0], self.n_rows)
            s.margins = &margins[first]
        if curvature is not None:
            check_length("curvature", curvature.shape[0], self.n_rows)
            s.curvature = &curvature[first]
        with nogil:
            self.run_sweep(first, last, &s)
        return s.value, s.slope

    def scores(
        self, Py_ssize_t first, Py_ssize_t last,
        const double[::1] coef, double intercept, double[::1] out,
    ):
        """Write x.coef + intercept for rows [first, last) to the same rows of `out`."""
        self.check_span(first, last)
        check_length("coef", coef.shape[0], self.n_columns)
        check_length("out", out.shape[0], self.n_rows)
        if first < last and self.n_columns > 0:
            with nogil:
                self.run_scores(first, last, &coef[0], intercept, &out[first])

    def pullback(
        self, Py_ssize_t first, Py_ssize_t last, const double[::1] factors, double[::1] total,
    ):
        """Add the sum of factors[i] * row i over rows [first, last) to `total`."""
        self.check_span(first, last)
        check_length("factors", factors.shape[0], self.n_rows)
        check_length("total", total.shape[0], self.n_columns)
        if first < last and self.n_columns > 0:
            with nogil:
                self.run_pullback(first, last, &factors[first], &total[0])

    cdef void run_sweep(self, Py_ssize_t first, Py_ssize_t last, sweep_t *s) noexcept nogil:
        pass

    cdef void run_scores(
        self, Py_ssize_t first, Py_ssize_t last, const double *coef, double intercept, double *out,
    ) noexcept nogil:
        pass

    cdef void run_pullback(
        self, Py_ssize_t first, Py_ssize_t last, const double *factors, double *total,
    ) noexcept nogil:
        pass


cdef int check_length(str name, Py_ssize_t got, Py_ssize_t wanted) except -1:
    if got != wanted:
        raise ValueError(f"{name} must have length {wanted}; got {got}")
    return 0


cdef class DenseRows(_Rows):
    """A dense matrix in C or Fortran order (rows or columns contiguous), read as it is."""

    cdef Py_buffer view
    cdef dense_t block
    cdef bint held

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
        item = self.view.itemsize
        row, column = self.view.strides[0], self.view.strides[1]
        # The stride of an axis of length one is never used, whatever NumPy says it is.
        row = item if self.n_rows == 1 and column != item else row
        column = item if self.n_columns == 1 and row != item else column
        if item not in (row, column) or row % item or column % item:
            raise ValueError("rows or columns of the matrix must be contiguous")
        self.block.data = self.view.buf
        self.block.n_columns = self.n_columns
        self.block.row_stride = row // item
        self.block.column_stride = column // item

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)

    cdef dense_t rows(self, Py_ssize_t first, Py_ssize_t last) noexcept nogil:
        cdef dense_t block = self.block
        block.data = <const char *>block.data + first * block.row_stride * self.view.itemsize
        block.n_rows = last - first
        return block

    cdef void run_sweep(self, Py_ssize_t first, Py_ssize_t last, sweep_t *s) noexcept nogil:
        cdef dense_t block = self.rows(first, last)
        self.kernels.dense_sweep[self.type](&block, s)

    cdef void run_scores(
        self, Py_ssize_t first, Py_ssize_t last, const double *coef, double intercept, double *out,
    ) noexcept nogil:
        cdef dense_t block = self.rows(first, last)
        self.kernels.dense_scores[self.type](&block, coef, intercept, out)

    cdef void run_pullback(
        self, Py_ssize_t first, Py_ssize_t last, const double *factors, double *total,
    ) noexcept nogil:
        cdef dense_t block = self.rows(first, last)
        self.kernels.dense_pullback[self.type](&block, factors, total)


cdef class CsrRows(_Rows):
    """A CSR matrix, its indices checked once against the number of columns."""

    cdef Py_buffer data, indices, indptr
    cdef int held, index_type

    def __cinit__(self, data, indices, indptr, Py_ssize_t n_columns, str level=BEST):
        self.held = 0
        self.kernels = kernels_at(level_of(level))
        self.level = level
        PyObject_GetBuffer(data, &self.data, PyBUF_STRIDES | PyBUF_FORMAT)
        self.held = 1
        PyObject_GetBuffer(indices, &self.indices, PyBUF_STRIDES | PyBUF_FORMAT)
        self.held = 2
        PyObject_GetBuffer(indptr, &self.indptr, PyBUF_STRIDES | PyBUF_FORMAT)
        self.held = 3
        self.type = type_of(&self.data, "CSR data")
        index_type = type_of(&self.indices, "CSR indices")
        if index_type not in (7, 9) or type_of(&self.indptr, "CSR indptr") != index_type:
            raise TypeError("CSR indices and indptr must both be int32 or both be int64")
        self.index_type = 0 if index_type == 7 else 1
        self.n_columns = n_columns
        self.check_structure()

    def __dealloc__(self):
        if self.held > 2:
            PyBuffer_Release(&self.indptr)
        if self.held > 1:
            PyBuffer_Release(&self.indices)
        if self.held > 0:
            PyBuffer_Release(&self.data)

    cdef int check_structure(self) except -1:
        cdef Py_buffer *views[3]
        views[0], views[1], views[2] = &self.data, &self.indices, &self.indptr
        for k in range(3):
            contiguous = views[k].ndim == 1 and (
                views[k].shape[0] <= 1 or views[k].strides[0] == views[k].itemsize)
            if not contiguous:
                raise ValueError("CSR arrays must be contiguous and have 1 dimension")
        cdef Py_ssize_t n_stored = self.indices.shape[0], n_offsets = self.indptr.shape[0]
        cdef bint sound
        if n_offsets < 1 or self.data.shape[0] != n_stored:
            raise ValueError("CSR data and indices must have one length, and indptr a first entry")
        if self.index_type == 0:
            sound = csr_sound(<const int32_t *>self.indices.buf, <const int32_t *>self.indptr.buf,
                              n_stored, n_offsets, self.n_columns)
        else:
            sound = csr_sound(<const int64_t *>self.indices.buf, <const int64_t *>self.indptr.buf,
                              n_stored, n_offsets, self.n_columns)
        if not sound:
            raise ValueError("CSR indptr must rise from 0 to the number of stored elements, and "
                             f"every index be in [0, {self.n_columns})")
        self.n_rows = n_offsets - 1
        return 0

    cdef csr_t rows(self, Py_ssize_t first, Py_ssize_t last) noexcept nogil:
        cdef csr_t block
        block.data, block.indices = self.data.buf, self.indices.buf
        block.indptr = self.indptr.buf
        block.first, block.n_rows = first, last - first
        return block

    cdef void run_sweep(self, Py_ssize_t first, Py_ssize_t last, sweep_t *s) noexcept nogil:
        cdef csr_t block = self.rows(first, last)
        self.kernels.csr_sweep[self.type][self.index_type](&block, s)

    cdef void run_scores(
        self, Py_ssize_t first, Py_ssize_t last, const double *coef, double intercept, double *out,
    ) noexcept nogil:
        cdef csr_t block = self.rows(first, last)
        self.kernels.csr_scores[self.type][self.index_type](&block, coef, intercept, out)

    cdef void run_pullback(
        self, Py_ssize_t first, Py_ssize_t last, const double *factors, double *total,
    ) noexcept nogil:
        cdef csr_t block = self.rows(first, last)
        self.kernels.csr_pullback[self.type][self.index_type](&block, factors, total)


ctypedef fused index_t:
    int32_t
    int64_t


cdef bint csr_sound(
    const index_t *indices, const index_t *indptr,
    Py_ssize_t n_stored, Py_ssize_t n_offsets, Py_ssize_t n_columns,
) noexcept nogil:
    """Whether no access through these arrays can leave them."""
    cdef Py_ssize_t k
    cdef bint inside = True
    if indptr[0] != 0 or indptr[n_offsets - 1] != n_stored:
        return False
    for k in range(n_offsets - 1):
        if indptr[k] > indptr[k + 1]:
            return False
    for k in range(n_stored):  # no early exit: this loop is to be vectorised
        inside &= indices[k] >= 0 and indices[k] < n_columns
    return inside
