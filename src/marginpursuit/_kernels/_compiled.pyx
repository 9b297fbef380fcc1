# cython: language_level=3, boundscheck=False, wraparound=False, freethreading_compatible=True
"""The compiled kernels: their arguments are checked here, and the loops, in C, run without the GIL.

It consists of the files that are included below, one for each group of kernels.
"""

from array import array

from cpython.buffer cimport (
    PyBUF_FORMAT, PyBUF_STRIDES, PyBuffer_Release, PyObject_GetBuffer,
)
from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport fabs, pow, sqrt
from libc.stdint cimport int32_t, int64_t, uint64_t, uintptr_t

from numpy import asarray, empty, zeros
from scipy.sparse import issparse

from marginpursuit._kernels._arrays import ArrayRows
from marginpursuit._threads import StoppedError, this_thread

include "declarations.pxi"


#: SIMD levels that this processor can run, slowest first.
LEVELS = ("baseline", "avx2", "avx512")[:usable_levels()]

cdef str BEST = LEVELS[len(LEVELS) - 1]


cdef int level_of(str level) except -1:
    if level not in LEVELS:
        raise ValueError(f"level must be one of {LEVELS} on this processor; got {level!r}")
    return LEVELS.index(level)


cdef int check_inside(str name, const Py_ssize_t[::1] places, Py_ssize_t length) except -1:
    cdef Py_ssize_t k
    cdef bint inside = True
    for k in range(places.shape[0]):  # no early exit, so that the compiler vectorises the loop
        inside &= places[k] >= 0 and places[k] < length
    if not inside:
        raise IndexError(f"{name} must be in [0, {length})")
    return 0


cdef int check_length(str name, Py_ssize_t got, Py_ssize_t wanted) except -1:
    if got != wanted:
        raise ValueError(f"{name} must have length {wanted}; got {got}")
    return 0


include "losses.pxi"
include "rows.pxi"
include "csr.pxi"
include "tiles.pxi"
include "newton.pxi"
include "lbfgs.pxi"
include "small_table.pxi"
include "probabilities.pxi"
include "coordinates.pxi"
