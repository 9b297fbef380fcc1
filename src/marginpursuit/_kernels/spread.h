/* Sums of squares about a centre, of dense rows or columns of one element type: products.h includes
 * this file, with the names that it says there.
 *
 * `squares` adds up the columns and `norms` the rows, so that a sum along a contiguous
 * vector for the one is a sum of such vectors for the other.
 */

/* The sum of f[j] (x[j] - c)^2, where c is centre[j] or, without a step, the same for all j. */
ALWAYS_INLINE double NAMED(spread)(const T *x, ptrdiff_t length, const double *centre,
                                   const int step, const double *f)
{
    vec even = splat(0.0), odd = splat(0.0);
    ptrdiff_t j = 0;
    for (; j + 2 * LANES <= length; j += 2 * LANES) {
        const vec c = step ? load_f8(centre + j) : splat(*centre);
        const vec d = step ? load_f8(centre + j + LANES) : c;
        const vec a = LOAD_VECTOR(x + j) - c, b = LOAD_VECTOR(x + j + LANES) - d;
        even += load_f8(f + j) * a * a;
        odd += load_f8(f + j + LANES) * b * b;
    }
    double sum = lane_sum(even + odd);
    for (; j < length; j++) {
        const double a = VALUE(x[j]) - centre[step ? j : 0];
        sum += f[j] * a * a;
    }
    return sum;
}

/* sum[j] += f (x[j] - c)^2, where c is as in `spread`. */
ALWAYS_INLINE void NAMED(add_spread)(const T *x, ptrdiff_t length, const double *centre,
                                     const int step, double f, double *sum)
{
    const vec factor = splat(f);
    ptrdiff_t j = 0;
    for (; j + LANES <= length; j += LANES) {
        const vec a = LOAD_VECTOR(x + j) - (step ? load_f8(centre + j) : splat(*centre));
        store(sum + j, load_f8(sum + j) + factor * a * a);
    }
    for (; j < length; j++) {
        const double a = VALUE(x[j]) - centre[step ? j : 0];
        sum[j] += f * a * a;
    }
}

static void NAMED(rows_squares)(const matrix_t *m, ptrdiff_t first, ptrdiff_t n,
                                const double *centre, const double *weights, double *sum)
{
    const T *x = (const T *)m->data + first * m->stride;
    for (ptrdiff_t i = 0; i < n; i++, x += m->stride)
        NAMED(add_spread)(x, m->n_columns, centre, 1, weights[i], sum);
}

static void NAMED(rows_norms)(const matrix_t *m, ptrdiff_t first, ptrdiff_t n,
                              const double *centre, const double *factors, double *out)
{
    const T *x = (const T *)m->data + first * m->stride;
    for (ptrdiff_t i = 0; i < n; i++, x += m->stride)
        out[i] = NAMED(spread)(x, m->n_columns, centre, 1, factors);
}

static void NAMED(columns_squares)(const matrix_t *m, ptrdiff_t first, ptrdiff_t n,
                                   const double *centre, const double *weights, double *sum)
{
    const T *x = (const T *)m->data + first;
    for (ptrdiff_t j = 0; j < m->n_columns; j++, x += m->stride)
        sum[j] += NAMED(spread)(x, n, centre + j, 0, weights);
}

static void NAMED(columns_norms)(const matrix_t *m, ptrdiff_t first, ptrdiff_t n,
                                 const double *centre, const double *factors, double *out)
{
    const T *x = (const T *)m->data + first;
    for (ptrdiff_t i = 0; i < n; i++) out[i] = 0.0;
    for (ptrdiff_t j = 0; j < m->n_columns; j++, x += m->stride)
        NAMED(add_spread)(x, n, centre + j, 0, factors[j], out);
}
