/* The products of the sweeps for one element type. No include guard: sweep.c includes this file
 * once for each type, with T (the type), VALUE (one element as double), LOAD_VECTOR (LANES elements
 * as a vector) and NAMED (the name of a function for this type).
 *
 * Dense rows and dense columns need the same two things of a contiguous vector x: `dot`, x.w, and
 * `add`, sum += f x. The scores of rows are dots with w and their adjoint product adds the rows up;
 * for columns it is the other way round.
 *
 * A row is read from end to end before the next one. Reading several rows side by side would load w
 * less often, but hardware prefetchers follow one stream better than several.
 */

/* x.w, spread over the lanes of the vector returned. The rest of x after the last whole vector
 * is read as the last LANES elements, with the elements already counted set to zero: nothing outside
 * x is read. Needs length >= LANES. */
ALWAYS_INLINE vec NAMED(dot)(const T *x, ptrdiff_t length, const double *w)
{
    vec even = splat(0.0), odd = splat(0.0);
    ptrdiff_t j = 0;
    for (; j + 2 * LANES <= length; j += 2 * LANES) {
        even += load_f8(w + j) * LOAD_VECTOR(x + j);
        odd += load_f8(w + j + LANES) * LOAD_VECTOR(x + j + LANES);
    }
    if (j + LANES <= length) {
        even += load_f8(w + j) * LOAD_VECTOR(x + j);
        j += LANES;
    }
    if (j < length) {
        const ptrdiff_t last = length - LANES;
        odd += load_f8(w + last) * keep_last(LOAD_VECTOR(x + last), length - j);
    }
    return even + odd;
}

/* out[k] = x_k.w for n vectors x_k, `stride` apart. */
static void NAMED(dots)(const T *x, ptrdiff_t stride, ptrdiff_t n, ptrdiff_t length,
                        const double *w, double *out)
{
    ptrdiff_t k = 0;
    for (; k + LANES <= n; k += LANES) {
        vec part[LANES];
        for (int r = 0; r < LANES; r++, x += stride) part[r] = NAMED(dot)(x, length, w);
        store(out + k, lane_sums(part));
    }
    for (; k < n; k++, x += stride) out[k] = lane_sum(NAMED(dot)(x, length, w));
}

/* sum += f_0 x_0 + ... + f_(n-1) x_(n-1) for n <= GROUP, in whole vectors. */
ALWAYS_INLINE void NAMED(add_group)(const int n, const T *const *x, const double *f,
                                    ptrdiff_t length, double *sum)
{
    const T *row[GROUP];
    vec factor[GROUP];
    UNROLL
    for (int k = 0; k < n; k++) row[k] = x[k], factor[k] = splat(f[k]);
    for (ptrdiff_t j = 0; j + LANES <= length; j += LANES) {
        vec total = load_f8(sum + j);
        UNROLL
        for (int k = 0; k < n; k++) total += factor[k] * LOAD_VECTOR(row[k] + j);
        store(sum + j, total);
    }
}

/* sum += f_0 x_0 + ... + f_(n-1) x_(n-1). The rest after the whole vectors is added last, for
 * all x_k at once: it overlaps them in `sum`, and a load that overlaps two earlier stores has to
 * wait for both. Needs length >= LANES. */
static void NAMED(add)(ptrdiff_t n, const T *const *x, const double *f, ptrdiff_t length,
                       double *sum)
{
    const ptrdiff_t rest = length % LANES, last = length - LANES;
    ptrdiff_t k = 0;
    for (; k + GROUP <= n; k += GROUP) NAMED(add_group)(GROUP, x + k, f + k, length, sum);
    if (n & 4) NAMED(add_group)(4, x + k, f + k, length, sum), k += 4;
    if (n & 2) NAMED(add_group)(2, x + k, f + k, length, sum), k += 2;
    if (n & 1) NAMED(add_group)(1, x + k, f + k, length, sum);
    if (rest) {
        vec even = splat(0.0), odd = splat(0.0);
        for (k = 0; k + 2 <= n; k += 2) {
            even += splat(f[k]) * keep_last(LOAD_VECTOR(x[k] + last), rest);
            odd += splat(f[k + 1]) * keep_last(LOAD_VECTOR(x[k + 1] + last), rest);
        }
        if (k < n) even += splat(f[k]) * keep_last(LOAD_VECTOR(x[k] + last), rest);
        store(sum + last, load_f8(sum + last) + (even + odd));
    }
}

/* Dense rows of fewer than NARROW_COLUMNS elements: too short for vectors, so the number of columns is
 * made a constant and the loops over them vanish. */
ALWAYS_INLINE void NAMED(narrow_scores_of)(const int d, const T *x, ptrdiff_t stride, ptrdiff_t n,
                                           const double *coef, double *out)
{
    double w[NARROW_COLUMNS];
    UNROLL
    for (int j = 0; j < d; j++) w[j] = coef[j];
    for (ptrdiff_t i = 0; i < n; i++, x += stride) {
        double total = 0.0;
        UNROLL
        for (int j = 0; j < d; j++) total += VALUE(x[j]) * w[j];
        out[i] = total;
    }
}

ALWAYS_INLINE void NAMED(narrow_adjoint_of)(const int d, const T *x, ptrdiff_t stride,
                                             ptrdiff_t n, const double *factors, double *sum)
{
    double total[NARROW_COLUMNS] = {0.0};
    for (ptrdiff_t i = 0; i < n; i++, x += stride) {
        UNROLL
        for (int j = 0; j < d; j++) total[j] += factors[i] * VALUE(x[j]);
    }
    UNROLL
    for (int j = 0; j < d; j++) sum[j] += total[j];
}

#define FOR_EACH_WIDTH(of) of(0) of(1) of(2) of(3) of(4) of(5) of(6) of(7)

static void NAMED(narrow_scores)(const T *x, ptrdiff_t stride, ptrdiff_t n, ptrdiff_t d,
                                 const double *coef, double *out)
{
#define WIDTH(d) case d: NAMED(narrow_scores_of)(d, x, stride, n, coef, out); break;
    switch (d) { FOR_EACH_WIDTH(WIDTH) }
#undef WIDTH
}

static void NAMED(narrow_adjoint)(const T *x, ptrdiff_t stride, ptrdiff_t n, ptrdiff_t d,
                                   const double *factors, double *sum)
{
#define WIDTH(d) case d: NAMED(narrow_adjoint_of)(d, x, stride, n, factors, sum); break;
    switch (d) { FOR_EACH_WIDTH(WIDTH) }
#undef WIDTH
}
#undef FOR_EACH_WIDTH

/* Dense rows (C order). */
static void NAMED(rows_scores)(const matrix_t *m, ptrdiff_t first, ptrdiff_t n, const double *coef,
                               double *out)
{
    const T *x = (const T *)m->data + first * m->stride;
    if (m->n_columns < NARROW_COLUMNS) NAMED(narrow_scores)(x, m->stride, n, m->n_columns, coef, out);
    else NAMED(dots)(x, m->stride, n, m->n_columns, coef, out);
}

static void NAMED(rows_adjoint)(const matrix_t *m, ptrdiff_t first, ptrdiff_t n,
                                 const double *factors, double *sum)
{
    const T *x = (const T *)m->data + first * m->stride, *row[MAX_TILE_ROWS];
    double f[MAX_TILE_ROWS];
    ptrdiff_t count = 0;
    if (m->n_columns < NARROW_COLUMNS) {
        NAMED(narrow_adjoint)(x, m->stride, n, m->n_columns, factors, sum);
        return;
    }
    for (ptrdiff_t i = 0; i < n; i++, x += m->stride) {
        row[count] = x;
        f[count] = factors[i];
        count += factors[i] != 0.0;
    }
    NAMED(add)(count, row, f, m->n_columns, sum);
}

/* Dense columns (Fortran order). */
static void NAMED(columns_scores)(const matrix_t *m, ptrdiff_t first, ptrdiff_t n,
                                  const double *coef, double *out)
{
    const T *x = (const T *)m->data + first, *column[GROUP];
    for (ptrdiff_t i = 0; i < n; i++) out[i] = 0.0;
    for (ptrdiff_t j = 0; j < m->n_columns; j += GROUP) {
        const ptrdiff_t n_group = m->n_columns - j < GROUP ? m->n_columns - j : GROUP;
        for (ptrdiff_t k = 0; k < n_group; k++) column[k] = x + (j + k) * m->stride;
        if (n >= LANES) NAMED(add)(n_group, column, coef + j, n, out);
        else
            for (ptrdiff_t k = 0; k < n_group; k++)
                for (ptrdiff_t i = 0; i < n; i++) out[i] += coef[j + k] * VALUE(column[k][i]);
    }
}

static void NAMED(columns_adjoint)(const matrix_t *m, ptrdiff_t first, ptrdiff_t n,
                                    const double *factors, double *sum)
{
    const T *x = (const T *)m->data + first;
    double total[GROUP];
    for (ptrdiff_t j = 0; j < m->n_columns; j += GROUP) {
        const ptrdiff_t n_group = m->n_columns - j < GROUP ? m->n_columns - j : GROUP;
        const T *column = x + j * m->stride;
        if (n >= LANES) NAMED(dots)(column, m->stride, n_group, n, factors, total);
        else
            for (ptrdiff_t k = 0; k < n_group; k++) {
                total[k] = 0.0;
                for (ptrdiff_t i = 0; i < n; i++)
                    total[k] += factors[i] * VALUE(column[k * m->stride + i]);
            }
        for (ptrdiff_t k = 0; k < n_group; k++) sum[j + k] += total[k];
    }
}

/* The square of the norm of one row; of a CSR row, if it names no column twice. */
static double NAMED(square)(const T *x, ptrdiff_t length)
{
    vec total = splat(0.0);
    ptrdiff_t j = 0;
    for (; j + LANES <= length; j += LANES) total += LOAD_VECTOR(x + j) * LOAD_VECTOR(x + j);
    double sum = lane_sum(total);
    for (; j < length; j++) sum += VALUE(x[j]) * VALUE(x[j]);
    return sum;
}

static double NAMED(rows_square)(const matrix_t *m, ptrdiff_t row)
{
    return NAMED(square)((const T *)m->data + row * m->stride, m->n_columns);
}

static double NAMED(columns_square)(const matrix_t *m, ptrdiff_t row)
{
    double sum = 0.0;
    const T *x = (const T *)m->data + row;
    for (ptrdiff_t j = 0; j < m->n_columns; j++, x += m->stride) sum += VALUE(*x) * VALUE(*x);
    return sum;
}

#ifdef WITH_CSR
/* CSR rows; `wide` says whether the indices are of 64 bits, and is a constant to the compiler. */
ALWAYS_INLINE void NAMED(csr_scores)(const int wide, const matrix_t *m, ptrdiff_t first,
                                     ptrdiff_t n, const double *coef, double *out)
{
    const T *x = m->data;
    for (ptrdiff_t i = 0; i < n; i++) {
        const ptrdiff_t end = index_at(wide, m->indptr, first + i + 1);
        ptrdiff_t k = index_at(wide, m->indptr, first + i);
        vec even = splat(0.0), odd = splat(0.0);
        for (; k + 2 * LANES <= end; k += 2 * LANES) {
            even += LOAD_VECTOR(x + k) * gather(wide, coef, m->indices, k);
            odd += LOAD_VECTOR(x + k + LANES) * gather(wide, coef, m->indices, k + LANES);
        }
        out[i] = lane_sum(even + odd);
        for (; k < end; k++) out[i] += VALUE(x[k]) * coef[index_at(wide, m->indices, k)];
    }
}

ALWAYS_INLINE void NAMED(csr_adjoint)(const int wide, const matrix_t *m, ptrdiff_t first,
                                       ptrdiff_t n, const double *factors, double *sum)
{
    const T *x = m->data;
    for (ptrdiff_t i = 0; i < n; i++) {
        const ptrdiff_t end = index_at(wide, m->indptr, first + i + 1);
        ptrdiff_t k = index_at(wide, m->indptr, first + i);
        if (factors[i] == 0.0) continue;
        const vec factor = splat(factors[i]);
        for (; k + LANES <= end; k += LANES) {
            ALIGNED double term[LANES];
            store(term, factor * LOAD_VECTOR(x + k));
            /* One by one: a row may name a column twice. */
            UNROLL
            for (int c = 0; c < LANES; c++) sum[index_at(wide, m->indices, k + c)] += term[c];
        }
        for (; k < end; k++) sum[index_at(wide, m->indices, k)] += factors[i] * VALUE(x[k]);
    }
}

static void NAMED(csr_32_scores)(const matrix_t *m, ptrdiff_t first, ptrdiff_t n,
                                 const double *coef, double *out)
{
    NAMED(csr_scores)(0, m, first, n, coef, out);
}

static void NAMED(csr_64_scores)(const matrix_t *m, ptrdiff_t first, ptrdiff_t n,
                                 const double *coef, double *out)
{
    NAMED(csr_scores)(1, m, first, n, coef, out);
}

static void NAMED(csr_32_adjoint)(const matrix_t *m, ptrdiff_t first, ptrdiff_t n,
                                   const double *factors, double *sum)
{
    NAMED(csr_adjoint)(0, m, first, n, factors, sum);
}

static void NAMED(csr_64_adjoint)(const matrix_t *m, ptrdiff_t first, ptrdiff_t n,
                                   const double *factors, double *sum)
{
    NAMED(csr_adjoint)(1, m, first, n, factors, sum);
}

ALWAYS_INLINE double NAMED(csr_square)(const int wide, const matrix_t *m, ptrdiff_t row)
{
    const ptrdiff_t first = index_at(wide, m->indptr, row);
    return NAMED(square)((const T *)m->data + first, index_at(wide, m->indptr, row + 1) - first);
}

static double NAMED(csr_32_square)(const matrix_t *m, ptrdiff_t row)
{
    return NAMED(csr_square)(0, m, row);
}

static double NAMED(csr_64_square)(const matrix_t *m, ptrdiff_t row)
{
    return NAMED(csr_square)(1, m, row);
}

/* out[j] = x[k + j]. */
static void NAMED(convert)(const void *data, ptrdiff_t k, ptrdiff_t n, double *out)
{
    const T *x = (const T *)data + k;
    ptrdiff_t j = 0;
    for (; j + LANES <= n; j += LANES) store(out + j, LOAD_VECTOR(x + j));
    for (; j < n; j++) out[j] = VALUE(x[j]);
}
#endif

#include "short_rows.h"
#include "spread.h"

#undef NAME
#undef T
#undef VALUE
