/* One SIMD level of the sweeps; LEVEL names it and the compiler flags decide the instructions.
 *
 * Sums use `omp simd`, which permits reordering one reduction and nothing else: NaN and inf
 * propagate, and no flag of the process changes (-ffast-math would do both).
 * All sums are in double, whatever the element type.
 */
#include "sweep.h"

#include <math.h>
#include <string.h>

#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)

#if defined(__GNUC__)
#define ALWAYS_INLINE static inline __attribute__((always_inline))
#else
#define ALWAYS_INLINE static inline
#endif

#define TRUNCATION 1.4142135623730951
#define INFLUENCE_BOUND 0.9428090415820635

/* IEEE half precision as stored; converted by bits so that no compiler support is needed. */
typedef struct { uint16_t bits; } half_t;

ALWAYS_INLINE double half_value(half_t h)
{
    uint32_t magnitude = (uint32_t)(h.bits & 0x7fffu) << 13;
    uint32_t special = magnitude >= 0x0f800000u ? 0x70000000u : 0u; /* inf and NaN */
    uint32_t word = magnitude | special | ((uint32_t)(h.bits & 0x8000u) << 16);
    float small;
    memcpy(&small, &word, sizeof small);
    return special ? (double)small : (double)small * 0x1p112; /* also right for subnormals */
}

/* The loss of one margin: updates the sums of `s`, returns the derivative in the score. */
ALWAYS_INLINE double apply_loss(sweep_t *s, ptrdiff_t i, double score)
{
    const double scale = s->loss.scale, cap = scale * TRUNCATION;
    const double margin = s->sign[i] * score;
    const double residual = s->loss.margin - margin;
    const double size = fabs(residual);
    const double inner = size > cap ? cap : size; /* NaN stays NaN */
    const double ratio = inner / scale, square = ratio * ratio;
    const double weight = residual < 0.0 ? s->weight[i] * s->loss.overconfidence : s->weight[i];
    const double slope = -weight * copysign(inner * (1.0 - square / 6.0), residual);
    s->value += weight * (0.5 * inner * inner * (1.0 - square / 12.0)
                          + scale * INFLUENCE_BOUND * (size - inner));
    if (s->margins) s->margins[i] = margin;
    if (s->curvature) s->curvature[i] = size < cap ? weight * (1.0 - 0.5 * square) : 0.0;
    return s->sign[i] * slope;
}

/* TYPES(X) calls X(name, type, value of an element e as double). */
#define PLAIN(e) ((double)(e))
#define TYPES(X)              \
    X(f8, double, PLAIN)      \
    X(f4, float, PLAIN)       \
    X(f2, half_t, half_value) \
    X(i1, int8_t, PLAIN)      \
    X(u1, uint8_t, PLAIN)     \
    X(i2, int16_t, PLAIN)     \
    X(u2, uint16_t, PLAIN)    \
    X(i4, int32_t, PLAIN)     \
    X(u4, uint32_t, PLAIN)    \
    X(i8, int64_t, PLAIN)

/* Dense rows (C order), four at a time so that each element of w and of the gradient is loaded
 * once for four rows. */
#define ROWS_KERNELS(name, T, VALUE)                                                             \
    ALWAYS_INLINE void row_scores4_##name(const T *x, ptrdiff_t stride, ptrdiff_t d,             \
                                          const double *w, double *out)                          \
    {                                                                                            \
        const T *x0 = x, *x1 = x + stride, *x2 = x + 2 * stride, *x3 = x + 3 * stride;           \
        double s0 = 0.0, s1 = 0.0, s2 = 0.0, s3 = 0.0;                                           \
        _Pragma("omp simd reduction(+ : s0, s1, s2, s3)")                                        \
        for (ptrdiff_t j = 0; j < d; j++) {                                                      \
            s0 += VALUE(x0[j]) * w[j];                                                           \
            s1 += VALUE(x1[j]) * w[j];                                                           \
            s2 += VALUE(x2[j]) * w[j];                                                           \
            s3 += VALUE(x3[j]) * w[j];                                                           \
        }                                                                                        \
        out[0] = s0, out[1] = s1, out[2] = s2, out[3] = s3;                                      \
    }                                                                                            \
    ALWAYS_INLINE double row_score_##name(const T *x, ptrdiff_t d, const double *w)              \
    {                                                                                            \
        double s = 0.0;                                                                          \
        _Pragma("omp simd reduction(+ : s)")                                                     \
        for (ptrdiff_t j = 0; j < d; j++) s += VALUE(x[j]) * w[j];                               \
        return s;                                                                                \
    }                                                                                            \
    ALWAYS_INLINE void add_rows4_##name(const T *x, ptrdiff_t stride, ptrdiff_t d,               \
                                        const double *f, double *restrict g)                     \
    {                                                                                            \
        const T *x0 = x, *x1 = x + stride, *x2 = x + 2 * stride, *x3 = x + 3 * stride;           \
        const double f0 = f[0], f1 = f[1], f2 = f[2], f3 = f[3];                                 \
        _Pragma("omp simd")                                                                      \
        for (ptrdiff_t j = 0; j < d; j++)                                                        \
            g[j] += (f0 * VALUE(x0[j]) + f1 * VALUE(x1[j]))                                      \
                  + (f2 * VALUE(x2[j]) + f3 * VALUE(x3[j]));                                     \
    }                                                                                            \
    ALWAYS_INLINE void add_row_##name(const T *x, ptrdiff_t d, double f, double *restrict g)     \
    {                                                                                            \
        _Pragma("omp simd")                                                                      \
        for (ptrdiff_t j = 0; j < d; j++) g[j] += f * VALUE(x[j]);                               \
    }                                                                                            \
    static void rows_sweep_##name(const dense_t *b, sweep_t *s)                                  \
    {                                                                                            \
        const T *x = b->data;                                                                    \
        const ptrdiff_t d = b->n_columns, stride = b->row_stride;                                \
        ptrdiff_t i = 0;                                                                         \
        for (; i + 4 <= b->n_rows; i += 4, x += 4 * stride) {                                    \
            double f[4];                                                                         \
            row_scores4_##name(x, stride, d, s->coef, f);                                        \
            for (int k = 0; k < 4; k++) f[k] = apply_loss(s, i + k, f[k] + s->intercept);        \
            s->slope += (f[0] + f[1]) + (f[2] + f[3]);                                           \
            /* Rows without slope (margins above the level, overconfidence 0) add nothing. */    \
            if (f[0] != 0.0 || f[1] != 0.0 || f[2] != 0.0 || f[3] != 0.0)                        \
                add_rows4_##name(x, stride, d, f, s->gradient);                                  \
        }                                                                                        \
        for (; i < b->n_rows; i++, x += stride) {                                                \
            const double f = apply_loss(s, i, row_score_##name(x, d, s->coef) + s->intercept);   \
            s->slope += f;                                                                       \
            add_row_##name(x, d, f, s->gradient);                                                \
        }                                                                                        \
    }                                                                                            \
    static void rows_scores_##name(const dense_t *b, const double *w, double intercept,          \
                                   double *scores)                                               \
    {                                                                                            \
        const T *x = b->data;                                                                    \
        ptrdiff_t i = 0;                                                                         \
        for (; i + 4 <= b->n_rows; i += 4, x += 4 * b->row_stride) {                             \
            row_scores4_##name(x, b->row_stride, b->n_columns, w, scores + i);                   \
            for (int k = 0; k < 4; k++) scores[i + k] += intercept;                              \
        }                                                                                        \
        for (; i < b->n_rows; i++, x += b->row_stride)                                           \
            scores[i] = row_score_##name(x, b->n_columns, w) + intercept;                        \
    }                                                                                            \
    static void rows_pullback_##name(const dense_t *b, const double *f, double *sum)             \
    {                                                                                            \
        const T *x = b->data;                                                                    \
        ptrdiff_t i = 0;                                                                         \
        for (; i + 4 <= b->n_rows; i += 4, x += 4 * b->row_stride)                               \
            add_rows4_##name(x, b->row_stride, b->n_columns, f + i, sum);                        \
        for (; i < b->n_rows; i++, x += b->row_stride) add_row_##name(x, b->n_columns, f[i], sum); \
    }

/* Dense columns (Fortran order): strips of rows short enough for the second pass over the strip
 * to find it in cache. */
enum { STRIP_BYTES = 1 << 18, STRIP_SHORTEST = 64, STRIP_LONGEST = 2048 };

ALWAYS_INLINE ptrdiff_t strip_rows(const dense_t *b, size_t item)
{
    ptrdiff_t rows = (ptrdiff_t)(STRIP_BYTES / (item * (size_t)(b->n_columns ? b->n_columns : 1)));
    return rows < STRIP_SHORTEST ? STRIP_SHORTEST : rows > STRIP_LONGEST ? STRIP_LONGEST : rows;
}

#define COLUMNS_KERNELS(name, T, VALUE)                                                          \
    ALWAYS_INLINE void strip_scores_##name(const T *x, ptrdiff_t stride, ptrdiff_t n,            \
                                           ptrdiff_t d, const double *w, double intercept,       \
                                           double *restrict scores)                              \
    {                                                                                            \
        for (ptrdiff_t i = 0; i < n; i++) scores[i] = intercept;                                 \
        for (ptrdiff_t j = 0; j < d; j++) add_row_##name(x + j * stride, n, w[j], scores);       \
    }                                                                                            \
    ALWAYS_INLINE void strip_pullback_##name(const T *x, ptrdiff_t stride, ptrdiff_t n,          \
                                             ptrdiff_t d, const double *f, double *restrict g)   \
    {                                                                                            \
        for (ptrdiff_t j = 0; j < d; j++) g[j] += row_score_##name(x + j * stride, n, f);        \
    }                                                                                            \
    static void columns_sweep_##name(const dense_t *b, sweep_t *s)                               \
    {                                                                                            \
        double f[STRIP_LONGEST];                                                                 \
        const ptrdiff_t strip = strip_rows(b, sizeof(T));                                        \
        for (ptrdiff_t first = 0; first < b->n_rows; first += strip) {                           \
            const T *x = (const T *)b->data + first;                                             \
            const ptrdiff_t n = b->n_rows - first < strip ? b->n_rows - first : strip;           \
            strip_scores_##name(x, b->column_stride, n, b->n_columns, s->coef, s->intercept, f); \
            for (ptrdiff_t i = 0; i < n; i++) {                                                  \
                f[i] = apply_loss(s, first + i, f[i]);                                           \
                s->slope += f[i];                                                                \
            }                                                                                    \
            strip_pullback_##name(x, b->column_stride, n, b->n_columns, f, s->gradient);         \
        }                                                                                        \
    }                                                                                            \
    static void columns_scores_##name(const dense_t *b, const double *w, double intercept,       \
                                      double *scores)                                            \
    {                                                                                            \
        const ptrdiff_t strip = strip_rows(b, sizeof(T));                                        \
        for (ptrdiff_t first = 0; first < b->n_rows; first += strip)                             \
            strip_scores_##name((const T *)b->data + first, b->column_stride,                    \
                                b->n_rows - first < strip ? b->n_rows - first : strip,           \
                                b->n_columns, w, intercept, scores + first);                     \
    }                                                                                            \
    static void columns_pullback_##name(const dense_t *b, const double *f, double *sum)          \
    {                                                                                            \
        strip_pullback_##name(b->data, b->column_stride, b->n_rows, b->n_columns, f, sum);       \
    }

/* Either order, by the strides of the block. */
#define DENSE_KERNELS(name, T, VALUE)                                                            \
    ROWS_KERNELS(name, T, VALUE)                                                                 \
    COLUMNS_KERNELS(name, T, VALUE)                                                              \
    static void dense_sweep_##name(const dense_t *b, sweep_t *s)                                 \
    {                                                                                            \
        if (b->column_stride == 1) rows_sweep_##name(b, s);                                      \
        else columns_sweep_##name(b, s);                                                         \
    }                                                                                            \
    static void dense_scores_##name(const dense_t *b, const double *w, double intercept,         \
                                    double *scores)                                              \
    {                                                                                            \
        if (b->column_stride == 1) rows_scores_##name(b, w, intercept, scores);                  \
        else columns_scores_##name(b, w, intercept, scores);                                     \
    }                                                                                            \
    static void dense_pullback_##name(const dense_t *b, const double *f, double *sum)            \
    {                                                                                            \
        if (b->column_stride == 1) rows_pullback_##name(b, f, sum);                              \
        else columns_pullback_##name(b, f, sum);                                                 \
    }

/* Sparse rows. */
#define CSR_KERNELS(name, T, VALUE, I)                                                           \
    ALWAYS_INLINE double sparse_score_##name##_##I(const T *x, const I *column, ptrdiff_t n,     \
                                                   const double *w)                              \
    {                                                                                            \
        double s = 0.0;                                                                          \
        _Pragma("omp simd reduction(+ : s)")                                                     \
        for (ptrdiff_t k = 0; k < n; k++) s += VALUE(x[k]) * w[column[k]];                       \
        return s;                                                                                \
    }                                                                                            \
    ALWAYS_INLINE void add_sparse_##name##_##I(const T *x, const I *column, ptrdiff_t n,         \
                                               double f, double *g)                              \
    {                                                                                            \
        if (f == 0.0) return;                                                                    \
        for (ptrdiff_t k = 0; k < n; k++) g[column[k]] += f * VALUE(x[k]);                       \
    }                                                                                            \
    static void csr_sweep_##name##_##I(const csr_t *b, sweep_t *s)                               \
    {                                                                                            \
        const I *indptr = (const I *)b->indptr + b->first;                                       \
        for (ptrdiff_t i = 0; i < b->n_rows; i++) {                                              \
            const T *x = (const T *)b->data + indptr[i];                                         \
            const I *column = (const I *)b->indices + indptr[i];                                 \
            const ptrdiff_t n = (ptrdiff_t)(indptr[i + 1] - indptr[i]);                          \
            const double score = sparse_score_##name##_##I(x, column, n, s->coef);               \
            const double f = apply_loss(s, i, score + s->intercept);                             \
            s->slope += f;                                                                       \
            add_sparse_##name##_##I(x, column, n, f, s->gradient);                               \
        }                                                                                        \
    }                                                                                            \
    static void csr_scores_##name##_##I(const csr_t *b, const double *w, double intercept,       \
                                        double *scores)                                          \
    {                                                                                            \
        const I *indptr = (const I *)b->indptr + b->first;                                       \
        for (ptrdiff_t i = 0; i < b->n_rows; i++)                                                \
            scores[i] = intercept                                                                \
                + sparse_score_##name##_##I((const T *)b->data + indptr[i],                      \
                                            (const I *)b->indices + indptr[i],                   \
                                            (ptrdiff_t)(indptr[i + 1] - indptr[i]), w);          \
    }                                                                                            \
    static void csr_pullback_##name##_##I(const csr_t *b, const double *f, double *sum)          \
    {                                                                                            \
        const I *indptr = (const I *)b->indptr + b->first;                                       \
        for (ptrdiff_t i = 0; i < b->n_rows; i++)                                                \
            add_sparse_##name##_##I((const T *)b->data + indptr[i],                              \
                                    (const I *)b->indices + indptr[i],                           \
                                    (ptrdiff_t)(indptr[i + 1] - indptr[i]), f[i], sum);          \
    }

#define ALL_KERNELS(name, T, VALUE)     \
    DENSE_KERNELS(name, T, VALUE)       \
    CSR_KERNELS(name, T, VALUE, int32_t) \
    CSR_KERNELS(name, T, VALUE, int64_t)
TYPES(ALL_KERNELS)

#define DENSE_ENTRY(kind, name) dense_##kind##_##name,
#define CSR_ENTRY(kind, name) {csr_##kind##_##name##_int32_t, csr_##kind##_##name##_int64_t},
#define DENSE_SWEEP(name, T, VALUE) DENSE_ENTRY(sweep, name)
#define DENSE_SCORES(name, T, VALUE) DENSE_ENTRY(scores, name)
#define DENSE_PULLBACK(name, T, VALUE) DENSE_ENTRY(pullback, name)
#define CSR_SWEEP(name, T, VALUE) CSR_ENTRY(sweep, name)
#define CSR_SCORES(name, T, VALUE) CSR_ENTRY(scores, name)
#define CSR_PULLBACK(name, T, VALUE) CSR_ENTRY(pullback, name)

const kernels_t JOIN(kernels, LEVEL) = {
    {TYPES(DENSE_SWEEP)}, {TYPES(DENSE_SCORES)}, {TYPES(DENSE_PULLBACK)},
    {TYPES(CSR_SWEEP)},   {TYPES(CSR_SCORES)},   {TYPES(CSR_PULLBACK)},
};
