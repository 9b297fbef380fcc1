/* One SIMD level of the sweeps; LEVEL names it and the compiler flags decide the instructions.
 *
 * A sweep (see `sweep`, at the end) processes the rows in tiles: the scores of a tile, then the
 * loss of each row (loss.h), then the adjoint product of the derivatives, for which the tile is still
 * in cache. The products of each layout and element type are in products.h, their vectors in
 * vectors.h. Rows that fit the registers have a sweep of their own in short_rows.h. Stochastic gradient
 * steps, made of the same products, are in descent.h. Sweeps of several tasks are in tiles.h (dense
 * rows), task_lanes.h and csr_passes.h (CSR rows), dual coordinate ascent in dual_pass.h and
 * csr_passes.h.
 *
 * All sums are in double, for every element type. No -ffast-math: NaN and inf propagate, and no
 * flag of the process changes.
 */
#include "loss.h"
#include "sweep.h"
#include "vectors.h"

#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)

enum {
    GROUP = 8,             /* rows or columns that are worked on together */
    NARROW_COLUMNS = 8,    /* columns under which a row is too short for vectors */
    SHORT_VECTORS = 8,     /* vectors up to which a row is short */
    LONG_ROW_BYTES = 320,  /* from which a short row takes longer to read than to work on */
    COPIED_COLUMNS = 1024, /* up to which a sweep works on copies of w and of the gradient */
};

/* Tiles. No memory is read while a tile is read again from cache, so tiles are small. Where a small
 * tile would have too few rows, a large one is used, which fits a second-level cache. */
enum {
    SMALL_TILE_BYTES = 6656,
    LARGE_TILE_BYTES = 1 << 19, /* within the bounds that follow */
    MIN_TILE_ROWS = 128,
    MAX_TILE_ROWS = 1024,
    MIN_COLUMN_ROWS = 64,   /* of a small tile of columns */
    CSR_TILE_ROWS = 16,
    CONVERTED_VALUES = 256, /* stored elements of a CSR row that are converted at a time */
};

enum {
    MAX_PREFETCH_BYTES = 1024, /* of a row in random order; hardware prefetchers fetch the rest */
};

ALWAYS_INLINE ptrdiff_t index_at(int wide, const void *indices, ptrdiff_t k)
{
    return wide ? (ptrdiff_t)((const int64_t *)indices)[k] : ((const int32_t *)indices)[k];
}

/* CSR rows take AVX2 at most (see rows.pxi). */
#ifndef __AVX512F__
#define WITH_CSR
ALWAYS_INLINE vec gather(int wide, const double *from, const void *indices, ptrdiff_t k)
{
#define FROM(c) from[index_at(wide, indices, k + (c))]
    return LANES_OF(FROM);
#undef FROM
}
#endif

static void prefetch_span(const char *p, ptrdiff_t bytes)
{
    if (bytes > MAX_PREFETCH_BYTES) bytes = MAX_PREFETCH_BYTES;
    for (ptrdiff_t k = 0; k < bytes; k += 64) PREFETCH(p + k);
}

static void prefetch_csr_row(const int wide, const matrix_t *m, ptrdiff_t row)
{
    const ptrdiff_t first = index_at(wide, m->indptr, row);
    const ptrdiff_t stored = index_at(wide, m->indptr, row + 1) - first, index = wide ? 8 : 4;
    prefetch_span((const char *)m->data + first * m->item, stored * m->item);
    prefetch_span((const char *)m->indices + first * index, stored * index);
}

ALWAYS_INLINE vec short_dot(const int n, const vec *row, const double *w)
{
    vec even = splat(0.0), odd = splat(0.0);
    UNROLL
    for (int c = 0; c + 1 < n; c += 2) {
        even += load_f8(w + c * LANES) * row[c];
        odd += load_f8(w + (c + 1) * LANES) * row[c + 1];
    }
    if (n % 2) even += load_f8(w + (n - 1) * LANES) * row[n - 1];
    return even + odd;
}

ALWAYS_INLINE void short_add(const int n, const vec *row, vec factor, vec *sum)
{
    UNROLL
    for (int c = 0; c < n; c++) sum[c] += factor * row[c];
}

#include "task_lanes.h"
#include "dual_pass.h"

#define NAMED(function) JOIN(function, NAME)
#define LOAD_VECTOR JOIN(load, NAME)

#define NAME f8
#define T double
#define VALUE PLAIN
#include "products.h"

#define NAME f4
#define T float
#define VALUE PLAIN
#include "products.h"

#define NAME f2
#define T half_t
#define VALUE half_value
#include "products.h"

#define NAME i1
#define T int8_t
#define VALUE PLAIN
#include "products.h"

#define NAME u1
#define T uint8_t
#define VALUE PLAIN
#include "products.h"

#define NAME i2
#define T int16_t
#define VALUE PLAIN
#include "products.h"

#define NAME u2
#define T uint16_t
#define VALUE PLAIN
#include "products.h"

#define NAME i4
#define T int32_t
#define VALUE PLAIN
#include "products.h"

#define NAME u4
#define T uint32_t
#define VALUE PLAIN
#include "products.h"

#define NAME i8
#define T int64_t
#define VALUE PLAIN
#include "products.h"

#ifdef WITH_CSR
#define CONVERT_ENTRY(name, T, VALUE) convert_##name,
static void (*const convert_of[N_TYPES])(const void *, ptrdiff_t k, ptrdiff_t n, double *) = {
    TYPES(CONVERT_ENTRY)
};

/* The stored elements [first, last) of a CSR row. */
typedef struct {
    ptrdiff_t first, last;
} csr_row_t;

ALWAYS_INLINE csr_row_t csr_row(const int wide, const matrix_t *m, ptrdiff_t i)
{
    return (csr_row_t){index_at(wide, m->indptr, i), index_at(wide, m->indptr, i + 1)};
}

ALWAYS_INLINE const double *converted(const matrix_t *m, ptrdiff_t k, csr_row_t row, int is_copied,
                                      double *copy, ptrdiff_t *n)
{
    *n = row.last - k < CONVERTED_VALUES ? row.last - k : CONVERTED_VALUES;
    if (!is_copied) convert_of[m->type](m->data, k, *n, copy);
    return copy;
}

#define IN_PLACE(m, k, row, copy, n) ((void)(copy), n = (row).last - (k), (const T *)(m)->data + (k))

#define NAME f8
#define T double
#define STORED IN_PLACE
#define STORED_AGAIN IN_PLACE
#include "csr_passes.h"

#define NAME f4
#define T float
#define STORED IN_PLACE
#define STORED_AGAIN IN_PLACE
#include "csr_passes.h"

#define NAME i8
#define T int64_t
#define STORED IN_PLACE
#define STORED_AGAIN IN_PLACE
#include "csr_passes.h"

#define NAME other
#define T double
#define STORED(m, k, row, copy, n) converted(m, k, row, 0, copy, &n)
#define STORED_AGAIN(m, k, row, copy, n) \
    converted(m, k, row, (row).last - (row).first <= CONVERTED_VALUES, copy, &n)
#include "csr_passes.h"
#endif

static ptrdiff_t tile_rows(layout_t layout, const matrix_t *m)
{
    const ptrdiff_t y_and_weight = 2 * sizeof(double);
    const ptrdiff_t row = m->n_columns * m->item + y_and_weight;
    const ptrdiff_t small = SMALL_TILE_BYTES / row, large = LARGE_TILE_BYTES / row / GROUP * GROUP;
    if (layout == CSR_32 || layout == CSR_64) return CSR_TILE_ROWS;
    if (small >= (layout == ROWS ? GROUP : MIN_COLUMN_ROWS)) return small / GROUP * GROUP;
    if (small >= 2 && layout == ROWS) return small >= 4 ? 4 : 2;
    return large < MIN_TILE_ROWS ? MIN_TILE_ROWS : large > MAX_TILE_ROWS ? MAX_TILE_ROWS : large;
}

/* The products of one layout and element type, for rows [first, first + n):
 * out[i] = x_i.coef and sum += the sum of factors[i] x_i, where i counts from `first`. */
typedef struct {
    void (*scores)(const matrix_t *, ptrdiff_t first, ptrdiff_t n, const double *coef, double *out);
    void (*adjoint)(const matrix_t *, ptrdiff_t first, ptrdiff_t n, const double *factors,
                     double *sum);
    double (*square)(const matrix_t *, ptrdiff_t row); /* of the norm of a row */
    /* Of dense rows; see sweep.h. */
    void (*moments)(const matrix_t *, ptrdiff_t first, ptrdiff_t n, const double *centre,
                    const double *factors, const double *weights, double *sum, double *squares);
    void (*norms)(const matrix_t *, ptrdiff_t first, ptrdiff_t n, const double *centre,
                  const double *factors, double *out);
    /* For dense rows, both in one, where the rows are short; returns the first row not swept. */
    ptrdiff_t (*short_sweep)(const matrix_t *, ptrdiff_t first, ptrdiff_t last, const sweep_t *,
                             loss_state_t *, double *gradient);
    void (*sweep_tasks)(const matrix_t *, ptrdiff_t n_rows, task_sweep_t *); /* for CSR rows */
    void (*dual_pass)(const matrix_t *, dual_pass_t *);                      /* likewise; doubles in
                                                                              * dense rows have one
                                                                              * in dual_pass.h */
} products_t;

#define PRODUCTS(layout, name) \
    layout##_scores_##name, layout##_adjoint_##name, layout##_square_##name
#define SPREADS(layout, name) layout##_moments_##name, layout##_norms_##name
#define ROWS_ENTRY(name, T, VALUE) \
    {PRODUCTS(rows, name), SPREADS(rows, name), short_sweep_##name, NULL, NULL},
#define COLUMNS_ENTRY(name, T, VALUE) \
    {PRODUCTS(columns, name), SPREADS(columns, name), NULL, NULL, NULL},
#define CSR_ENTRY(csr, name, passes) \
    {PRODUCTS(csr, name), NULL, NULL, NULL, csr##_sweep_tasks_##passes, csr##_dual_pass_##passes}
#define CSR_ENTRIES(csr)                                                                       \
    {CSR_ENTRY(csr, f8, f8),    CSR_ENTRY(csr, f4, f4),    CSR_ENTRY(csr, f2, other),          \
     CSR_ENTRY(csr, i1, other), CSR_ENTRY(csr, u1, other), CSR_ENTRY(csr, i2, other),          \
     CSR_ENTRY(csr, u2, other), CSR_ENTRY(csr, i4, other), CSR_ENTRY(csr, u4, other),          \
     CSR_ENTRY(csr, i8, i8)}

static const products_t products_of[N_LAYOUTS][N_TYPES] = {
    [ROWS] = {TYPES(ROWS_ENTRY)},
    [COLUMNS] = {TYPES(COLUMNS_ENTRY)},
#ifdef WITH_CSR
    [CSR_32] = CSR_ENTRIES(csr_32),
    [CSR_64] = CSR_ENTRIES(csr_64),
#endif
};

static void sweep(layout_t layout, int type, const matrix_t *m, ptrdiff_t first, ptrdiff_t last,
                  sweep_t *s)
{
    const products_t *products = &products_of[layout][type];
    const ptrdiff_t tile = tile_rows(layout, m), d = m->n_columns;
    /* Aligned, and in no cache line that another thread writes to. */
    ALIGNED double coef_copy[COPIED_COLUMNS], gradient_copy[COPIED_COLUMNS], f[MAX_TILE_ROWS];
    const double *coef = s->coef;
    double *gradient = s->gradient;
    loss_state_t state = start_loss(s);
    if (d <= COPIED_COLUMNS) {
        coef = memcpy(coef_copy, s->coef, (size_t)d * sizeof *coef);
        gradient = memset(gradient_copy, 0, (size_t)d * sizeof *gradient);
    }
    if (s->loss.kind == CATONI && products->short_sweep && NARROW_COLUMNS <= d
        && d <= SHORT_VECTORS * LANES)
        first = products->short_sweep(m, first, last, s, &state, gradient);
    for (ptrdiff_t i = first; i < last; i += tile) {
        const ptrdiff_t n = last - i < tile ? last - i : tile;
        products->scores(m, i, n, coef, f);
        apply_loss(&state, s, i, n, f);
        products->adjoint(m, i, n, f, gradient);
    }
    finish_loss(&state, s);
    if (d <= COPIED_COLUMNS)
        for (ptrdiff_t j = 0; j < d; j++) s->gradient[j] += gradient[j];
}

static void add_constant(ptrdiff_t n, double constant, double *out)
{
    ptrdiff_t k = 0;
    for (; k + LANES <= n; k += LANES) store(out + k, load_f8(out + k) + splat(constant));
    for (; k < n; k++) out[k] += constant;
}

static void scores(layout_t layout, int type, const matrix_t *m, ptrdiff_t first, ptrdiff_t last,
                   const double *coef, double intercept, double *out)
{
    const products_t *products = &products_of[layout][type];
    const ptrdiff_t tile = tile_rows(layout, m);
    for (ptrdiff_t i = first; i < last; i += tile) {
        const ptrdiff_t n = last - i < tile ? last - i : tile;
        products->scores(m, i, n, coef, out + i);
        add_constant(n, intercept, out + i);
    }
}

static void adjoint(layout_t layout, int type, const matrix_t *m, ptrdiff_t first, ptrdiff_t last,
                     const double *factors, double *sum)
{
    const products_t *products = &products_of[layout][type];
    const ptrdiff_t tile = tile_rows(layout, m);
    for (ptrdiff_t i = first; i < last; i += tile)
        products->adjoint(m, i, last - i < tile ? last - i : tile, factors + i, sum);
}

static void moments(layout_t layout, int type, const matrix_t *m, ptrdiff_t first, ptrdiff_t last,
                    const double *centre, const double *factors, const double *weights,
                    double *sum, double *squares)
{
    products_of[layout][type].moments(m, first, last - first, centre, factors, weights + first, sum,
                                      squares);
}

static void norms(layout_t layout, int type, const matrix_t *m, ptrdiff_t first, ptrdiff_t last,
                  const double *centre, const double *factors, double *out)
{
    const ptrdiff_t tile = tile_rows(layout, m);
    for (ptrdiff_t i = first; i < last; i += tile)
        products_of[layout][type].norms(m, i, last - i < tile ? last - i : tile, centre, factors,
                                        out + i);
}

static void row_squares(layout_t layout, int type, const matrix_t *m, ptrdiff_t first,
                        ptrdiff_t last, double *out)
{
    for (ptrdiff_t i = first; i < last; i++) out[i] = products_of[layout][type].square(m, i);
}

static void task_losses(const loss_t *loss, const ptrdiff_t *codes, ptrdiff_t positive,
                        const double *weight, double intercept, ptrdiff_t n, double *scores,
                        double *value, double *slope)
{
    ALIGNED double sign[MAX_TILE_ROWS];
    sweep_t s = {.sign = sign, .intercept = intercept, .loss = *loss};
    loss_state_t state = start_loss(&s);
    for (ptrdiff_t i = 0; i < n; i += MAX_TILE_ROWS) {
        const ptrdiff_t n_block = n - i < MAX_TILE_ROWS ? n - i : MAX_TILE_ROWS;
        for (ptrdiff_t k = 0; k < n_block; k++) sign[k] = is_positive(codes[i + k], positive) ? 1.0 : -1.0;
        s.weight = weight + i;
        apply_loss(&state, &s, 0, n_block, scores + i);
    }
    finish_loss(&state, &s);
    *value += s.value;
    *slope += s.slope;
}

static void sweep_tasks(layout_t layout, int type, const matrix_t *m, ptrdiff_t n_rows,
                        task_sweep_t *tasks)
{
    products_of[layout][type].sweep_tasks(m, n_rows, tasks);
}

static void dual_pass(layout_t layout, int type, const matrix_t *m, dual_pass_t *pass)
{
    if (layout == ROWS) dense_dual_pass(m, pass);
    else products_of[layout][type].dual_pass(m, pass);
}

static double add_dot(ptrdiff_t n, double factor, const double *x, double *y, const double *z)
{
    const vec f = splat(factor);
    vec sums[4] = {splat(0.0), splat(0.0), splat(0.0), splat(0.0)};
    ptrdiff_t j = 0;
    for (; j + 4 * LANES <= n; j += 4 * LANES) {
        UNROLL
        for (int v = 0; v < 4; v++) {
            const ptrdiff_t at = j + v * LANES;
            const vec updated = load_f8(y + at) + f * load_f8(x + at);
            store(y + at, updated);
            sums[v] += updated * load_f8(z + at);
        }
    }
    double sum = lane_sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
    for (; j < n; j++) {
        y[j] += factor * x[j];
        sum += y[j] * z[j];
    }
    return sum;
}

#include "joint.h"
#include "descent.h"

#if defined(__GNUC__)
#include "tiles.h"
#include "class_tiles.h"
#else
#define tiles NULL
#define class_tiles NULL
#endif

void JOIN(newton, LEVEL)(newton_t *);        /* newton.c */
void JOIN(kernel_newton, LEVEL)(kernel_newton_t *); /* kernel_newton.c */
void JOIN(lbfgs_advance, LEVEL)(lbfgs_t *); /* lbfgs.c */
void JOIN(lbfgs_run, LEVEL)(lbfgs_t *, ptrdiff_t);
void JOIN(lbfgs_renew, LEVEL)(lbfgs_t *);
void JOIN(fit_link, LEVEL)(link_t *); /* link.c */

const kernels_t JOIN(kernels, LEVEL) = {
    sweep,       scores,    adjoint, moments, norms, row_squares, task_losses,
    sweep_tasks, dual_pass, add_dot, descend, tiles, class_tiles, joint_losses,
    JOIN(newton, LEVEL),
    JOIN(kernel_newton, LEVEL),
    JOIN(lbfgs_advance, LEVEL),
    JOIN(lbfgs_run, LEVEL),
    JOIN(lbfgs_renew, LEVEL),
    JOIN(fit_link, LEVEL),
};
