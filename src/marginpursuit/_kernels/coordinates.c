/* See coordinates.h. */
#include "coordinates.h"

#include <math.h>

static void add(double *target, const double *row, double factor, ptrdiff_t n)
{
    for (ptrdiff_t j = 0; j < n; j++) target[j] += factor * row[j];
}

/* The inner product, in four independent sums. */
static double dot(const double *left, const double *right, ptrdiff_t n)
{
    double s0 = 0.0, s1 = 0.0, s2 = 0.0, s3 = 0.0;
    ptrdiff_t j = 0;
    for (; j + 4 <= n; j += 4) {
        s0 += left[j] * right[j];
        s1 += left[j + 1] * right[j + 1];
        s2 += left[j + 2] * right[j + 2];
        s3 += left[j + 3] * right[j + 3];
    }
    for (; j < n; j++) s0 += left[j] * right[j];
    return (s0 + s1) + (s2 + s3);
}

static double score(const coordinates_t *s, ptrdiff_t i)
{
    double total = 0.0;
    if (!s->by_rows) return s->target[i];
    if (s->matrix) total = dot(s->matrix + i * s->stride, s->target, s->stride);
    else
        for (int64_t k = s->indptr[i]; k < s->indptr[i + 1]; k++)
            total += s->data[k] * s->target[s->indices[k]];
    return s->constant ? total + s->target[s->n_target - 1] : total;
}

/* Adds M times `change` at entry j to the coefficients. */
static void move_entry(const coordinates_t *s, ptrdiff_t j, double change)
{
    if (s->inverse_hessian) add(s->target, s->inverse_hessian + j * s->n_target, change, s->n_target);
    else s->target[j] += change;
}

static void move(const coordinates_t *s, ptrdiff_t i, double change)
{
    const double *row = s->matrix ? s->matrix + i * s->stride : NULL;
    if (row && (!s->by_rows || !s->inverse_hessian)) add(s->target, row, change, s->stride);
    else if (row) {
        for (ptrdiff_t k = 0; k < s->stride; k++)
            if (row[k] != 0.0) move_entry(s, k, change * row[k]);
    } else
        for (int64_t k = s->indptr[i]; k < s->indptr[i + 1]; k++)
            move_entry(s, s->indices[k], change * s->data[k]);
    if (s->constant) move_entry(s, s->n_target - 1, change);
}

/* The minimiser over one variable between its bounds, where all others are fixed. */
static double minimiser(const coordinates_t *s, ptrdiff_t i, double margin)
{
    const double linear = s->curvature[i] * s->a[i] - margin;
    double best = 0.0;
    if (linear > -s->gain_up) best = (linear + s->gain_up) / (s->curvature[i] + s->up[i]);
    else if (linear < -s->gain_down) best = (linear + s->gain_down) / (s->curvature[i] + s->down[i]);
    return fmin(fmax(best, s->lower[i]), s->upper[i]);
}

ptrdiff_t sweep_coordinates(coordinates_t *s, int64_t *order, ptrdiff_t n_order, double threshold,
                            double *largest)
{
    ptrdiff_t kept = 0;
    *largest = 0.0;
    for (ptrdiff_t k = 0; k < n_order; k++) {
        const ptrdiff_t i = (ptrdiff_t)order[k];
        const double a = s->a[i], margin = s->sign[i] * score(s, i);
        const double rising = margin + s->up[i] * a - s->gain_up;
        const double falling = margin + s->down[i] * a - s->gain_down;
        /* The one-sided derivatives. */
        const double left = a <= s->lower[i] ? -INFINITY : a > 0.0 ? rising : falling;
        const double right = a >= s->upper[i] ? INFINITY : a >= 0.0 ? rising : falling;
        *largest = fmax(*largest, fmax(left, -right));
        if (fmin(-left, right) > threshold) continue;
        order[kept++] = i;
        const double best = minimiser(s, i, margin);
        if (best != a) {
            s->a[i] = best;
            move(s, i, s->sign[i] * (best - a));
        }
    }
    return kept;
}
