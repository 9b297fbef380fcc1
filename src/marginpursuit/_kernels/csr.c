#include <math.h>

#include "csr.h"

enum { BLOCK = 64 }; /* columns of a table that a first-level cache holds */

/* The two widths of indices are two instances of the same functions. */
#define DEFINE_CSR(bits)                                                                          \
    static int is_sound_##bits(const csr_t *m)                                                    \
    {                                                                                             \
        const int##bits##_t *indices = m->indices, *indptr = m->indptr;                           \
        const uint64_t d = m->n_columns > 0 ? (uint64_t)m->n_columns : 0;                         \
        const uint64_t n_indices = UINT64_C(1) << (bits - 1); /* of this width */                 \
        const uint##bits##_t limit = (uint##bits##_t)(d < n_indices ? d : n_indices);             \
        int inside = 1; /* a negative index is a large unsigned one */                            \
        if (indptr[0] != 0 || indptr[m->n_rows] != m->n_stored) return 0;                         \
        for (ptrdiff_t k = 0; k < m->n_rows; k++)                                                 \
            if (indptr[k] > indptr[k + 1]) return 0;                                              \
        for (ptrdiff_t k = 0; k < m->n_stored; k++) /* without an exit: the loop is vectorised */ \
            inside &= (uint##bits##_t)indices[k] < limit;                                         \
        return inside;                                                                            \
    }                                                                                             \
                                                                                                  \
    static int add_squares_##bits(const csr_t *m, const double *data, const double *weights,      \
                                  ptrdiff_t first, ptrdiff_t last, double *total)                 \
    {                                                                                             \
        const int##bits##_t *indptr = m->indptr;                                                  \
        for (ptrdiff_t row = first; row < last; row++) {                                          \
            const ptrdiff_t begin = indptr[row], n = indptr[row + 1] - begin;                     \
            if (weights[row] == 0.0) continue;                                                    \
            if (begin < 0 || n < 0 || begin + n > m->n_stored) return 0;                          \
            const int##bits##_t *columns = (const int##bits##_t *)m->indices + begin;             \
            const double *x = data + begin;                                                       \
            for (ptrdiff_t k = 0; k < n; k++)                                                     \
                if (columns[k] < 0 || columns[k] >= m->n_columns) return 0;                       \
            for (ptrdiff_t j = 0; j < n; j++) {                                                   \
                const double factor = weights[row] * x[j];                                        \
                double *line = total + columns[j] * m->n_columns;                                 \
                for (ptrdiff_t k = 0; k < j; k++) line[columns[k]] += factor * x[k];              \
                line[columns[j]] += 0.5 * factor * x[j];                                          \
            }                                                                                     \
        }                                                                                         \
        return 1;                                                                                 \
    }                                                                                             \
                                                                                                  \
    static void add_moments_##bits(const csr_t *m, const double *data, const double *weights,     \
                                   double *total)                                                 \
    {                                                                                             \
        const int##bits##_t *indices = m->indices, *indptr = m->indptr;                           \
        for (ptrdiff_t row = 0; row < m->n_rows; row++) {                                         \
            if (weights[row] == 0.0) continue;                                                    \
            for (ptrdiff_t k = indptr[row]; k < indptr[row + 1]; k++) {                           \
                double *sums = total + 2 * indices[k];                                            \
                const double term = weights[row] * data[k];                                       \
                sums[0] += term;                                                                  \
                sums[1] += term * data[k];                                                        \
            }                                                                                     \
        }                                                                                         \
    }                                                                                             \
                                                                                                  \
    static void raise_to_largest_##bits(const csr_t *m, const double *data, double *largest)      \
    {                                                                                             \
        const int##bits##_t *indices = m->indices;                                                \
        for (ptrdiff_t k = 0; k < m->n_stored; k++) {                                             \
            const double size = fabs(data[k]);                                                    \
            if (size > largest[indices[k]]) largest[indices[k]] = size;                           \
        }                                                                                         \
    }

DEFINE_CSR(32)
DEFINE_CSR(64)

int csr_is_sound(const csr_t *m) { return m->wide ? is_sound_64(m) : is_sound_32(m); }

int csr_add_squares(const csr_t *m, const double *data, const double *weights, ptrdiff_t first,
                    ptrdiff_t last, double *total)
{
    return m->wide ? add_squares_64(m, data, weights, first, last, total)
                   : add_squares_32(m, data, weights, first, last, total);
}

int csr_moments(const csr_t *m, const double *data, const double *weights, double *total)
{
    if (!csr_is_sound(m)) return 0;
    if (m->wide) add_moments_64(m, data, weights, total);
    else add_moments_32(m, data, weights, total);
    return 1;
}

int csr_largest(const csr_t *m, const double *data, double *largest)
{
    if (!csr_is_sound(m)) return 0;
    if (m->wide) raise_to_largest_64(m, data, largest);
    else raise_to_largest_32(m, data, largest);
    return 1;
}

static ptrdiff_t block_end(ptrdiff_t first, ptrdiff_t n_columns)
{
    return first + BLOCK < n_columns ? first + BLOCK : n_columns;
}

void fill_table(task_sweep_t *tasks, const scaling_t *scaling, const char *coef,
                ptrdiff_t task_stride, ptrdiff_t column_stride, ptrdiff_t n_tasks)
{
    for (int k = 0; k < TASK_LANES; k++) tasks->intercept[k] = 0.0;
    for (ptrdiff_t first = 0; first < scaling->n_columns; first += BLOCK) {
        const ptrdiff_t last = block_end(first, scaling->n_columns);
        for (int k = 0; k < TASK_LANES; k++) {
            const char *from = coef + k * task_stride;
            double centre_score = 0.0;
            for (ptrdiff_t j = first; j < last; j++) {
                double scaled = 0.0;
                if (k < n_tasks)
                    scaled = *(const double *)(from + j * column_stride) * scaling->factors[j];
                centre_score += scaling->centre[j] * scaled;
                tasks->table[j * 2 * TASK_LANES + k] = scaled;
                tasks->table[(j * 2 + 1) * TASK_LANES + k] = 0.0;
            }
            tasks->intercept[k] -= centre_score;
        }
    }
}

void read_table(const task_sweep_t *tasks, const scaling_t *scaling, double *gradient,
                ptrdiff_t n_tasks)
{
    const ptrdiff_t d = scaling->n_columns;
    for (ptrdiff_t first = 0; first < d; first += BLOCK) {
        const ptrdiff_t last = block_end(first, d);
        for (ptrdiff_t k = 0; k < n_tasks; k++)
            for (ptrdiff_t j = first; j < last; j++)
                gradient[k * d + j] =
                    scaling->factors[j] * (tasks->table[(j * 2 + 1) * TASK_LANES + k]
                                           - scaling->centre[j] * tasks->slope[k]);
    }
}
