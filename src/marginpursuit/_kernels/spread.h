/* Sums of squares about a centre, of dense rows or columns of one element type: products.h includes
 * this file, and documents the macros T, VALUE, NAMED and LOAD_VECTOR.
 *
 * `moments` adds up the columns, the differences and their squares or, with factors, the second and
 * fourth powers of the differences times these; and `norms` the squares of the rows.
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

/* sum[j] += f_k z_k[j] and squares[j] += f_k z_k[j]^2 for z_k = x_k - centre or, if `is_even`, its
 * square times that of the factors, and n vectors x_k, `stride` apart, in whole vectors. The rest
 * after these is added to rest[0] and rest[1], as the last lanes of the last LANES elements. */
ALWAYS_INLINE void NAMED(add_moments)(const int n, const int is_even, const T *x, ptrdiff_t stride,
                                      ptrdiff_t length, const double *centre,
                                      const double *factors, const double *f, double *sum,
                                      double *squares, vec *rest)
{
    ptrdiff_t j = 0;
    vec factor[4];
    UNROLL
    for (int k = 0; k < n; k++) factor[k] = splat(f[k]);
    for (; j + LANES <= length; j += LANES) {
        const vec c = load_f8(centre + j);
        vec a = load_f8(sum + j), b = load_f8(squares + j);
        UNROLL
        for (int k = 0; k < n; k++) {
            vec d = LOAD_VECTOR(x + k * stride + j) - c;
            if (is_even) d *= load_f8(factors + j), d *= d;
            const vec g = factor[k] * d;
            a += g, b += g * d;
        }
        store(sum + j, a), store(squares + j, b);
    }
    if (j < length) {
        const ptrdiff_t last = length - LANES;
        const vec c = load_f8(centre + last);
        UNROLL
        for (int k = 0; k < n; k++) {
            vec d = keep_last(LOAD_VECTOR(x + k * stride + last) - c, length - j);
            if (is_even) d *= load_f8(factors + last), d *= d;
            const vec g = factor[k] * d;
            rest[0] += g, rest[1] += g * d;
        }
    }
}

ALWAYS_INLINE void NAMED(sum_rows)(const int is_even, const matrix_t *m, ptrdiff_t first,
                                   ptrdiff_t n, const double *centre, const double *factors,
                                   const double *weights, double *sum, double *squares)
{
    const ptrdiff_t d = m->n_columns, stride = m->stride, last = d - LANES;
    const T *x = (const T *)m->data + first * stride;
    vec rest[2] = {splat(0.0), splat(0.0)};
    ptrdiff_t i = 0;
    if (d < LANES) {
        for (; i < n; i++, x += stride)
            for (ptrdiff_t j = 0; j < d; j++) {
                double a = VALUE(x[j]) - centre[j];
                if (is_even) a *= factors[j], a *= a;
                sum[j] += weights[i] * a, squares[j] += weights[i] * a * a;
            }
        return;
    }
    for (; i + 4 <= n; i += 4, x += 4 * stride)
        NAMED(add_moments)(4, is_even, x, stride, d, centre, factors, weights + i, sum, squares, rest);
    for (; i < n; i++, x += stride)
        NAMED(add_moments)(1, is_even, x, stride, d, centre, factors, weights + i, sum, squares, rest);
    if (d % LANES) {
        store(sum + last, load_f8(sum + last) + rest[0]);
        store(squares + last, load_f8(squares + last) + rest[1]);
    }
}

static void NAMED(rows_moments)(const matrix_t *m, ptrdiff_t first, ptrdiff_t n,
                                const double *centre, const double *factors,
                                const double *weights, double *sum, double *squares)
{
    if (factors) NAMED(sum_rows)(1, m, first, n, centre, factors, weights, sum, squares);
    else NAMED(sum_rows)(0, m, first, n, centre, factors, weights, sum, squares);
}

static void NAMED(rows_norms)(const matrix_t *m, ptrdiff_t first, ptrdiff_t n,
                              const double *centre, const double *factors, double *out)
{
    const T *x = (const T *)m->data + first * m->stride;
    for (ptrdiff_t i = 0; i < n; i++, x += m->stride)
        out[i] = NAMED(spread)(x, m->n_columns, centre, 1, factors);
}

ALWAYS_INLINE void NAMED(sum_columns)(const int is_even, const matrix_t *m, ptrdiff_t first,
                                      ptrdiff_t n, const double *centre, const double *factors,
                                      const double *weights, double *sum, double *squares)
{
    const T *x = (const T *)m->data + first;
    for (ptrdiff_t j = 0; j < m->n_columns; j++, x += m->stride) {
        const double factor = is_even ? factors[j] : 1.0;
        vec a = splat(0.0), b = splat(0.0);
        ptrdiff_t i = 0;
        for (; i + LANES <= n; i += LANES) {
            vec d = LOAD_VECTOR(x + i) - splat(centre[j]);
            if (is_even) d *= splat(factor), d *= d;
            const vec g = load_f8(weights + i) * d;
            a += g, b += g * d;
        }
        sum[j] += lane_sum(a), squares[j] += lane_sum(b);
        for (; i < n; i++) {
            double d = VALUE(x[i]) - centre[j];
            if (is_even) d *= factor, d *= d;
            sum[j] += weights[i] * d, squares[j] += weights[i] * d * d;
        }
    }
}

static void NAMED(columns_moments)(const matrix_t *m, ptrdiff_t first, ptrdiff_t n,
                                   const double *centre, const double *factors,
                                   const double *weights, double *sum, double *squares)
{
    if (factors) NAMED(sum_columns)(1, m, first, n, centre, factors, weights, sum, squares);
    else NAMED(sum_columns)(0, m, first, n, centre, factors, weights, sum, squares);
}

static void NAMED(columns_norms)(const matrix_t *m, ptrdiff_t first, ptrdiff_t n,
                                 const double *centre, const double *factors, double *out)
{
    const T *x = (const T *)m->data + first;
    for (ptrdiff_t i = 0; i < n; i++) out[i] = 0.0;
    for (ptrdiff_t j = 0; j < m->n_columns; j++, x += m->stride)
        NAMED(add_spread)(x, n, centre + j, 0, factors[j], out);
}
