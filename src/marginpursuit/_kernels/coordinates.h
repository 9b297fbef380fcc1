/* One sweep of dual coordinate descent; coordinates.py documents the computation. */
#ifndef MARGINPURSUIT_COORDINATES_H
#define MARGINPURSUIT_COORDINATES_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    const double *sign, *lower, *upper, *up, *down;
    double gain_up, gain_down;
    const double *curvature;
    double *a;
    double *target; /* the scores of the matrix form, or the coefficients of the row form */
    ptrdiff_t n_target;
    const double *matrix; /* K, or the rows; NULL where these are sparse */
    ptrdiff_t stride;
    const double *data;
    const int64_t *indices, *indptr;
    const double *inverse_hessian; /* or NULL */
    int by_rows, constant;
} coordinates_t;

/* Returns the number of active variables, which are moved to the front of `order`, and writes the
 * largest derivative. */
ptrdiff_t sweep_coordinates(coordinates_t *, int64_t *order, ptrdiff_t n_order, double threshold,
                            double *largest);

#endif
