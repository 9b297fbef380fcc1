/* The fused sweeps: what the compiled module offers, for one block of rows.
 *
 * A sweep reads each row once: score, loss and derivative while the row is in cache, then the
 * gradient. Sign conventions are those of losses.py: margin m = y (x.w + b), residual level - m.
 *
 * sweep.c is compiled once for each SIMD level; each compilation fills one `kernels` table.
 */
#ifndef MARGINPURSUIT_SWEEP_H
#define MARGINPURSUIT_SWEEP_H

#include <stddef.h>
#include <stdint.h>

/* The number of element types that can be read as they are, in the order of TYPES below. */
enum { N_TYPES = 10, N_INDEX_TYPES = 2 };

typedef struct {
    double margin, scale, overconfidence;
} loss_t;

/* What accompanies the rows of a block, and what a sweep leaves behind. */
typedef struct {
    const double *sign;   /* y, one a row */
    const double *weight; /* sample weights, one a row */
    const double *coef;   /* w, one a column */
    double intercept;
    loss_t loss;
    double value;         /* out: sum of weighted losses */
    double slope;         /* out: sum of derivatives in the score, the gradient in the intercept */
    double *gradient;     /* in-out: sum over rows of derivative times row is added */
    double *margins;      /* out, one a row; may be NULL */
    double *curvature;    /* out, weighted second derivatives, one a row; may be NULL */
} sweep_t;

/* Element (i, j) of a dense block is at i * row_stride + j * column_stride, in elements;
 * one of the strides is 1. */
typedef struct {
    const void *data;
    ptrdiff_t n_rows, n_columns, row_stride, column_stride;
} dense_t;

/* Rows first .. first + n_rows - 1 of a CSR matrix. */
typedef struct {
    const void *data, *indices, *indptr;
    ptrdiff_t first, n_rows;
} csr_t;

typedef void (*dense_sweep_f)(const dense_t *, sweep_t *);
typedef void (*dense_scores_f)(const dense_t *, const double *coef, double intercept, double *scores);
typedef void (*dense_pullback_f)(const dense_t *, const double *factors, double *sum);
typedef void (*csr_sweep_f)(const csr_t *, sweep_t *);
typedef void (*csr_scores_f)(const csr_t *, const double *coef, double intercept, double *scores);
typedef void (*csr_pullback_f)(const csr_t *, const double *factors, double *sum);

typedef struct {
    dense_sweep_f dense_sweep[N_TYPES];
    dense_scores_f dense_scores[N_TYPES];
    dense_pullback_f dense_pullback[N_TYPES];
    csr_sweep_f csr_sweep[N_TYPES][N_INDEX_TYPES];
    csr_scores_f csr_scores[N_TYPES][N_INDEX_TYPES];
    csr_pullback_f csr_pullback[N_TYPES][N_INDEX_TYPES];
} kernels_t;

extern const kernels_t kernels_baseline;
#ifdef MARGINPURSUIT_X86
extern const kernels_t kernels_avx2;
extern const kernels_t kernels_avx512;
#endif

/* The SIMD levels this processor can run, as a count of the tables {baseline, avx2, avx512}. */
int usable_levels(void);
const kernels_t *kernels_at(int level);

#endif
