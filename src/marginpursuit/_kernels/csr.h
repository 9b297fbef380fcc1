/* CSR matrices without SIMD: checks of their indices, Gram matrices, and the table of a task sweep.
 *
 * `wide` says whether indices and indptr have 64 bits, or 32. */
#ifndef MARGINPURSUIT_CSR_H
#define MARGINPURSUIT_CSR_H

#include "sweep.h"

typedef struct {
    int wide;
    const void *indices, *indptr;
    ptrdiff_t n_stored, n_rows, n_columns;
} csr_t;

/* Whether no access through indices and indptr leaves the arrays. */
int csr_is_sound(const csr_t *);

/* Adds a matrix T to the (n_columns, n_columns) total, such that T plus its transpose is the sum of
 * weight times the outer square of the rows [first, last): each product of two values is computed
 * once. Rows of weight zero are not read. Returns 0 at the first index that is out of range. */
int csr_add_squares(const csr_t *, const double *data, const double *weights, ptrdiff_t first,
                    ptrdiff_t last, double *total);

/* Adds weighted sums of the values and of their squares to the (n_columns, 2) total; rows of weight
 * zero are not read. Returns 0 where the matrix is not sound. */
int csr_moments(const csr_t *, const double *data, const double *weights, double *total);

/* Raises each entry of `largest` to the largest absolute value of its column; NaNs do not count.
 * Returns 0 where the matrix is not sound. */
int csr_largest(const csr_t *, const double *data, double *largest);

/* Standardisation of the columns: the centre and the factor of each. */
typedef struct {
    ptrdiff_t n_columns;
    const double *centre, *factors;
} scaling_t;

/* Puts coefficients times factors into the table of a sweep, for n_tasks of its lanes; the intercepts
 * become minus centre.coef. Strides of `coef` are in bytes. */
void fill_table(task_sweep_t *, const scaling_t *, const char *coef, ptrdiff_t task_stride,
                ptrdiff_t column_stride, ptrdiff_t n_tasks);

/* Copies the gradients of n_tasks lanes, those of centred columns times factors, to rows of
 * n_columns. */
void read_table(const task_sweep_t *, const scaling_t *, double *gradient, ptrdiff_t n_tasks);

#endif
