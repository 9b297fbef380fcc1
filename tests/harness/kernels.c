/* Every kernel of every SIMD level against plain sums, without Python.
 *
 * Each array has its own allocation of exactly its size, so that AddressSanitizer sees an access of
 * one element too many. The program also runs under emulators and on platforms for which there is only
 * a cross compiler. It prints "N passed, N failed" and returns 1 if a check failed; with FIRST_FAILURE
 * defined it ends at that check.
 *
 * With more than one thread (an argument, POSIX only) all threads sweep disjoint spans of the same rows,
 * and call the other kernels on all of them, for ThreadSanitizer.
 */
#include "coupling.h"
#include "csr.h"
#include "intervals.h"
#include "link.h"
#include "small_table.h"
#include "sweep.h"
#include "vec_math.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef _WIN32
#include <pthread.h>
#endif

enum { F8, F4, F2, I1, U1, I2, U2, I4, U4, I8 };
enum { MOST_THREADS = 8 };

static const ptrdiff_t item_of[N_TYPES] = {8, 4, 2, 1, 1, 2, 2, 4, 4, 8};
static _Atomic int passed, failed;

static void *take(size_t size)
{
    void *memory = calloc(size ? size : 1, 1);
    if (!memory) {
        fprintf(stderr, "out of memory\n");
        exit(2);
    }
    return memory;
}

static double *doubles(ptrdiff_t n) { return take((size_t)n * sizeof(double)); }

static void expect(int is_true, const char *what, int level, int layout, int type, ptrdiff_t n,
                   ptrdiff_t d)
{
    passed += is_true;
    failed += !is_true;
    if (is_true) return;
    printf("FAILED %s: level %d, layout %d, type %d, %ld x %ld\n", what, level, layout, type, (long)n,
           (long)d);
#ifdef FIRST_FAILURE
    exit(1);
#endif
}

static int is_near(double a, double b, double size)
{
    return fabs(a - b) <= 1e-11 * (1.0 + size);
}

static _Thread_local uint64_t random_state = 1;

static uint64_t random_bits(void)
{
    uint64_t bits = random_state += UINT64_C(0x9e3779b97f4a7c15);
    bits = (bits ^ (bits >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    bits = (bits ^ (bits >> 27)) * UINT64_C(0x94d049bb133111eb);
    return bits ^ (bits >> 31);
}

static double uniform(void) { return (double)(random_bits() >> 11) * 0x1p-53; }

/* IEEE half precision of an integer of at most 11 bits. */
static uint16_t half_bits(double value)
{
    int exponent;
    if (value == 0.0) return 0;
    const double fraction = frexp(fabs(value), &exponent); /* in [1/2, 1) */
    const unsigned mantissa = (unsigned)((fraction * 2.0 - 1.0) * 1024.0);
    return (uint16_t)((value < 0.0 ? 0x8000u : 0u) | (unsigned)(exponent + 14) << 10 | mantissa);
}

static void put(int type, void *data, ptrdiff_t at, double value)
{
    switch (type) {
    case F8: ((double *)data)[at] = value; break;
    case F4: ((float *)data)[at] = (float)value; break;
    case F2: ((uint16_t *)data)[at] = half_bits(value); break;
    case I1: ((int8_t *)data)[at] = (int8_t)value; break;
    case U1: ((uint8_t *)data)[at] = (uint8_t)value; break;
    case I2: ((int16_t *)data)[at] = (int16_t)value; break;
    case U2: ((uint16_t *)data)[at] = (uint16_t)value; break;
    case I4: ((int32_t *)data)[at] = (int32_t)value; break;
    case U4: ((uint32_t *)data)[at] = (uint32_t)value; break;
    default: ((int64_t *)data)[at] = (int64_t)value;
    }
}

/* A matrix of small integers in one layout and type, and in double and C order. */
typedef struct {
    int level, type;
    layout_t layout;
    ptrdiff_t n, d;
    double *plain;
    matrix_t m;
    double *sign, *weight, *coef;
    ptrdiff_t *codes;
    const kernels_t *kernels;
} problem_t;

static void put_index(layout_t layout, void *indices, ptrdiff_t at, ptrdiff_t value)
{
    if (layout == CSR_64) ((int64_t *)indices)[at] = value;
    else ((int32_t *)indices)[at] = (int32_t)value;
}

static void fill_csr(problem_t *p)
{
    const size_t index = p->layout == CSR_64 ? 8 : 4;
    ptrdiff_t stored = 0, at = 0;
    for (ptrdiff_t k = 0; k < p->n * p->d; k++) stored += p->plain[k] != 0.0;
    void *data = take((size_t)(stored * p->m.item)), *indices = take((size_t)stored * index);
    void *indptr = take((size_t)(p->n + 1) * index);
    for (ptrdiff_t i = 0; i < p->n; i++) {
        for (ptrdiff_t j = 0; j < p->d; j++) {
            if (p->plain[i * p->d + j] == 0.0) continue;
            put(p->type, data, at, p->plain[i * p->d + j]);
            put_index(p->layout, indices, at++, j);
        }
        put_index(p->layout, indptr, i + 1, at);
    }
    p->m.data = data, p->m.indices = indices, p->m.indptr = indptr;
}

static problem_t problem_of(int level, layout_t layout, int type, ptrdiff_t n, ptrdiff_t d)
{
    problem_t p = {.level = level, .type = type, .layout = layout, .n = n, .d = d};
    const int is_unsigned = type == U1 || type == U2 || type == U4;
    /* CSR rows take AVX2 at most. */
    p.kernels = kernels_at((layout == CSR_32 || layout == CSR_64) && level > 1 ? 1 : level);
    p.plain = doubles(n * d), p.sign = doubles(n), p.weight = doubles(n), p.coef = doubles(d);
    p.codes = take((size_t)n * sizeof(ptrdiff_t));
    for (ptrdiff_t k = 0; k < n * d; k++) {
        const double value = floor(uniform() * 16.0) - (is_unsigned ? 0.0 : 8.0);
        p.plain[k] = uniform() < 0.4 ? 0.0 : value;
    }
    for (ptrdiff_t i = 0; i < n; i++) {
        p.codes[i] = (ptrdiff_t)(uniform() * 3.0);
        p.sign[i] = p.codes[i] == 1 ? 1.0 : -1.0;
        p.weight[i] = 0.5 + uniform();
    }
    for (ptrdiff_t j = 0; j < d; j++) p.coef[j] = (uniform() - 0.5) * 0.2;
    p.m.item = item_of[type], p.m.type = type;
    p.m.n_columns = d, p.m.stride = layout == COLUMNS ? n : d;
    if (layout == CSR_32 || layout == CSR_64) fill_csr(&p);
    else {
        void *data = take((size_t)(n * d * p.m.item));
        for (ptrdiff_t i = 0; i < n; i++)
            for (ptrdiff_t j = 0; j < d; j++)
                put(type, data, layout == COLUMNS ? j * n + i : i * d + j, p.plain[i * d + j]);
        p.m.data = data;
    }
    return p;
}

static void release(problem_t *p)
{
    free(p->plain), free(p->sign), free(p->weight), free(p->coef), free(p->codes);
    free((void *)p->m.data), free((void *)p->m.indices), free((void *)p->m.indptr);
}

static void expect_of(const problem_t *p, int is_true, const char *what)
{
    expect(is_true, what, p->level, (int)p->layout, p->type, p->n, p->d);
}

static double score_of(const problem_t *p, const double *coef, double intercept, ptrdiff_t row)
{
    double sum = intercept;
    for (ptrdiff_t j = 0; j < p->d; j++) sum += p->plain[row * p->d + j] * coef[j];
    return sum;
}

/* The loss of a residual and its derivative in the residual; formulas of losses/. */
static double loss_of(const loss_t *loss, double residual, double *influence)
{
    const double above = residual < 0.0 ? loss->overconfidence : 1.0, s = loss->scale;
    const double u = fabs(residual) / s, root2 = sqrt(2.0), bound = 2.0 * root2 / 3.0;
    double rho, psi;
    switch (loss->kind) {
    case CATONI:
        rho = u <= root2 ? u * u / 2.0 - u * u * u * u / 24.0 : 5.0 / 6.0 + bound * (u - root2);
        psi = u <= root2 ? u - u * u * u / 6.0 : bound;
        break;
    case PSEUDO_HUBER: rho = sqrt(1.0 + u * u) - 1.0, psi = u / sqrt(1.0 + u * u); break;
    case LOG_COSH: rho = log(cosh(u)), psi = tanh(u); break;
    case HUBER: rho = u <= 1.0 ? u * u / 2.0 : u - 0.5, psi = u <= 1.0 ? u : 1.0; break;
    case SQUARE: rho = u * u / 2.0, psi = u; break;
    case LOGISTIC:
        *influence = 1.0 / (1.0 + exp(-residual));
        return log1p(exp(residual));
    default:
        *influence = residual > 0.0 ? 1.0 : 0.0;
        return residual > 0.0 ? residual : 0.0;
    }
    *influence = above * s * (residual < 0.0 ? -psi : psi);
    return above * s * s * rho;
}

static loss_t loss_of_kind(loss_kind_t kind)
{
    const double is_two_sided = kind == LOGISTIC ? 1.0 : kind == HINGE ? 0.0 : 0.4;
    return (loss_t){kind, kind == LOGISTIC ? 0.0 : 1.1, kind == LOGISTIC ? 1.0 : 0.7, is_two_sided};
}

#include "exact.h"
#include "dual.h"
#include "kernel_fits.h"
#include "tables.h"

static void check_sweep(const problem_t *p, loss_kind_t kind, ptrdiff_t first, ptrdiff_t last)
{
    double *gradient = doubles(p->d), *truth = doubles(p->d), *size = doubles(p->d);
    double value = 0.0, slope = 0.0;
    sweep_t s = {.sign = p->sign, .weight = p->weight, .coef = p->coef, .intercept = 0.3,
                 .loss = loss_of_kind(kind), .gradient = gradient};
    int is_right = 1;
    p->kernels->sweep(p->layout, p->type, &p->m, first, last, &s);
    for (ptrdiff_t i = first; i < last; i++) {
        const double margin = p->sign[i] * score_of(p, p->coef, s.intercept, i);
        double influence;
        value += p->weight[i] * loss_of(&s.loss, s.loss.margin - margin, &influence);
        const double factor = -p->sign[i] * p->weight[i] * influence;
        slope += factor;
        for (ptrdiff_t j = 0; j < p->d; j++) {
            truth[j] += factor * p->plain[i * p->d + j];
            size[j] += fabs(factor * p->plain[i * p->d + j]);
        }
    }
    for (ptrdiff_t j = 0; j < p->d; j++) is_right &= is_near(gradient[j], truth[j], size[j]);
    expect_of(p, is_right && is_near(s.value, value, value), "sweep");
    expect_of(p, is_near(s.slope, slope, value), "slope of a sweep");
    free(gradient), free(truth), free(size);
}

static void check_products(const problem_t *p, ptrdiff_t first, ptrdiff_t last)
{
    double *out = doubles(p->n), *sum = doubles(p->d), *truth = doubles(p->d);
    int is_right = 1;
    p->kernels->scores(p->layout, p->type, &p->m, first, last, p->coef, 0.3, out);
    for (ptrdiff_t i = first; i < last; i++)
        is_right &= is_near(out[i], score_of(p, p->coef, 0.3, i), 8.0 * (double)p->d);
    expect_of(p, is_right, "scores");
    p->kernels->adjoint(p->layout, p->type, &p->m, first, last, p->weight, sum);
    for (ptrdiff_t i = first; i < last; i++)
        for (ptrdiff_t j = 0; j < p->d; j++) truth[j] += p->weight[i] * p->plain[i * p->d + j];
    is_right = 1;
    for (ptrdiff_t j = 0; j < p->d; j++) is_right &= is_near(sum[j], truth[j], 8.0 * (double)p->n);
    expect_of(p, is_right, "adjoint");
    is_right = 1;
    p->kernels->row_squares(p->layout, p->type, &p->m, first, last, out);
    for (ptrdiff_t i = first; i < last; i++)
        for (ptrdiff_t j = 0; j < p->d; j++) out[i] -= p->plain[i * p->d + j] * p->plain[i * p->d + j];
    for (ptrdiff_t i = first; i < last; i++) is_right &= is_near(out[i], 0.0, 64.0 * (double)p->d);
    expect_of(p, is_right, "row_squares");
    free(out), free(sum), free(truth);
}

/* Sums about a centre; the coefficients serve as centre and as factors. */
static void check_moments(const problem_t *p)
{
    double *out = doubles(p->n), *sum = doubles(p->d), *squares = doubles(p->d);
    double *second = doubles(p->d), *fourth = doubles(p->d);
    int is_right = 1;
    const ptrdiff_t first = p->n / 3;
    p->kernels->moments(p->layout, p->type, &p->m, first, p->n, p->coef, p->coef, p->weight, second,
                        fourth);
    p->kernels->moments(p->layout, p->type, &p->m, first, p->n, p->coef, NULL, p->weight, sum, squares);
    p->kernels->norms(p->layout, p->type, &p->m, first, p->n, p->coef, p->coef, out);
    for (ptrdiff_t i = first; i < p->n; i++)
        for (ptrdiff_t j = 0; j < p->d; j++) {
            const double a = p->plain[i * p->d + j] - p->coef[j];
            sum[j] -= p->weight[i] * a;
            squares[j] -= p->weight[i] * a * a;
            const double z = p->coef[j] * p->coef[j] * a * a;
            second[j] -= p->weight[i] * z;
            fourth[j] -= p->weight[i] * z * z;
            out[i] -= p->coef[j] * a * a;
        }
    for (ptrdiff_t j = 0; j < p->d; j++) {
        is_right &= is_near(sum[j], 0.0, 20.0 * (double)p->n);
        is_right &= is_near(squares[j], 0.0, 200.0 * (double)p->n);
        is_right &= is_near(second[j], 0.0, 2e3 * (double)p->n);
        is_right &= is_near(fourth[j], 0.0, 2e6 * (double)p->n);
    }
    for (ptrdiff_t i = 0; i < p->n; i++) is_right &= is_near(out[i], 0.0, 64.0 * (double)p->d);
    expect_of(p, is_right, "moments and norms");
    free(out), free(sum), free(squares), free(second), free(fourth);
}

/* Tasks that share a pass over CSR rows: each has the value and gradient of its own sweep. */
static void check_sweep_tasks(const problem_t *p, loss_kind_t kind)
{
    task_sweep_t tasks = {.codes = p->codes, .weight = p->weight, .n_parts = 1};
    double *gradient = doubles(p->d), *sign = doubles(p->n);
    tasks.table = doubles(p->d * 2 * TASK_LANES);
    for (int k = 0; k < TASK_LANES; k++) {
        tasks.positive[k] = k % 3, tasks.loss[k] = loss_of_kind(kind);
        tasks.intercept[k] = 0.1 * k;
        for (ptrdiff_t j = 0; j < p->d; j++)
            tasks.table[j * 2 * TASK_LANES + k] = p->coef[j] * (1.0 + k);
    }
    p->kernels->sweep_tasks(p->layout, p->type, &p->m, p->n, &tasks);
    for (int k = 0; k < TASK_LANES; k++) {
        double *coef = doubles(p->d);
        int is_right = 1;
        for (ptrdiff_t i = 0; i < p->n; i++) sign[i] = p->codes[i] == k % 3 ? 1.0 : -1.0;
        for (ptrdiff_t j = 0; j < p->d; j++) coef[j] = p->coef[j] * (1.0 + k), gradient[j] = 0.0;
        sweep_t s = {.sign = sign, .weight = p->weight, .coef = coef, .intercept = 0.1 * k,
                     .loss = tasks.loss[k], .gradient = gradient};
        p->kernels->sweep(p->layout, p->type, &p->m, 0, p->n, &s);
        for (ptrdiff_t j = 0; j < p->d; j++) {
            const double own = tasks.table[(j * 2 + 1) * TASK_LANES + k];
            is_right &= is_near(own, gradient[j], 16.0 * (double)p->n);
        }
        is_right &= is_near(tasks.slope[k], s.slope, s.value);
        expect_of(p, is_right && is_near(tasks.value[k], s.value, s.value), "sweep_tasks");
        free(coef);
    }
    free(gradient), free(sign), free(tasks.table);
}

/* Dual coordinate ascent: the gap is not negative, and passes reduce it. */
static void check_dual_pass(const problem_t *p, ptrdiff_t n_lanes, loss_kind_t kind)
{
    dual_pass_t pass = {.n_lanes = n_lanes, .codes = p->codes, .weight = p->weight,
                        .constant = 1.0};
    double *square = doubles(p->n), before = 0.0;
    pass.rows = take((size_t)p->n * sizeof(ptrdiff_t));
    pass.residual = doubles(p->n * n_lanes), pass.coef = doubles(p->d * n_lanes);
    p->kernels->row_squares(p->layout, p->type, &p->m, 0, p->n, square);
    for (ptrdiff_t i = 0; i < p->n; i++) square[i] += 1.0;
    pass.square = square;
    for (int k = 0; k < TASK_LANES; k++) {
        pass.positive[k] = k % 3 % n_lanes, pass.loss[k] = loss_of_kind(kind);
        pass.penalty[k] = 100.0 * (double)p->d, pass.radius[k] = INFINITY;
    }
    for (int round = 0; round <= 40; round++) {
        for (ptrdiff_t i = 0; i < p->n; i++) pass.rows[i] = i;
        pass.n_unshrunk = p->n, pass.seed = (uint64_t)round;
        pass.is_frozen = round == 0 || round == 40;
        p->kernels->dual_pass(p->layout, p->type, &p->m, &pass);
        if (round == 0) before = pass.gap[0];
    }
    expect_of(p, pass.gap[0] > -1e-9 * before && pass.gap[0] <= 0.1 * before, "dual_pass");
    for (int k = 0; k < n_lanes; k++) expect_of(p, is_dual_state(p, &pass, k), "state of dual_pass");
    for (int k = 0; k < TASK_LANES; k++) pass.radius[k] = 1e-3;
    for (int round = 0; round < 3; round++) {
        pass.is_frozen = 0;
        p->kernels->dual_pass(p->layout, p->type, &p->m, &pass);
    }
    expect_of(p, are_shrunk(p, &pass), "rows that dual_pass shrinks");
    free(square), free(pass.rows), free(pass.residual), free(pass.coef);
}

/* Stochastic gradient steps are those of `plain_descent`. */
static void check_descend(const problem_t *p, double radius, int has_total, int penalises)
{
    enum { STEPS = 400, BATCH = 3, MARKS = 2 };
    ptrdiff_t *draws = take(STEPS * BATCH * sizeof *draws), marks[MARKS] = {STEPS / 2, STEPS - 1};
    descent_t s = {.draws = draws, .n_steps = STEPS, .batch = BATCH, .sign = p->sign,
                   .loss = loss_of_kind(CATONI), .rate = 0.02, .decay = 0.4, .radius = radius,
                   .fit_intercept = 1, .penalise_intercept = penalises, .marks = marks,
                   .n_marks = MARKS, .intercept = 0.2};
    for (int k = 0; k < STEPS * BATCH; k++) draws[k] = (ptrdiff_t)(uniform() * (double)p->n);
    s.coef = doubles(p->d), s.factors = doubles(BATCH), s.path = doubles(MARKS * p->d);
    s.path_intercept = doubles(MARKS), s.lag = doubles(p->d);
    plain_t plain = {doubles(p->d), doubles(p->d), doubles(MARKS * p->d), {0.0}, s.intercept, 0.0};
    double *total = doubles(p->d);
    int is_right = 1;
    for (ptrdiff_t j = 0; j < p->d; j++) s.coef[j] = plain.coef[j] = 0.05 * (uniform() - 0.5);
    if (has_total) s.total = total;
    plain_descent(p, &s, &plain);
    p->kernels->descend(p->layout, p->type, &p->m, &s);
    for (ptrdiff_t j = 0; j < p->d; j++) {
        is_right &= is_near(s.coef[j], plain.coef[j], 1.0);
        if (has_total) is_right &= is_near(total[j], plain.total[j], STEPS);
    }
    for (ptrdiff_t j = 0; j < MARKS * p->d; j++) is_right &= is_near(s.path[j], plain.path[j], 1.0);
    for (int k = 0; k < MARKS; k++)
        is_right &= is_near(s.path_intercept[k], plain.path_intercept[k], 1.0);
    is_right &= s.t == STEPS && is_near(s.intercept, plain.intercept, 1.0);
    is_right &= is_near(s.total_intercept, plain.total_intercept, STEPS);
    expect_of(p, is_right, "descend");
    free(plain.coef), free(plain.total), free(plain.path);
    free(draws), free(s.coef), free(s.factors), free(s.path), free(s.path_intercept);
    free(s.lag), free(total);
}

/* An interrupt ends a solve before its first step, in the Hessian or in the factor; asked in vain it changes
 * nothing. */
static void check_interrupted_newton(const problem_t *p, const newton_t *solved)
{
    const ptrdiff_t size = solved->n_scores * solved->n_columns;
    newton_t t = *solved;
    int is_right = 1;
    t.point = doubles(size);
    for (int k = 0; k < 2; k++) {
        interrupt_t interrupt = {k ? never : always, 0x1p26, 0};
        t.interrupt = &interrupt;
        memset(t.point, 0, (size_t)size * sizeof(double));
        p->kernels->newton(&t);
        is_right &= interrupt.is_raised == !k && (t.status == NEWTON_INTERRUPTED) == !k;
        is_right &= k ? t.value == solved->value && interrupt.products > 0.0 : t.n_iter == 0;
        is_right &= interrupt.products < 0x1p26;
        for (ptrdiff_t j = 0; j < size; j++) is_right &= t.point[j] == (k ? solved->point[j] : 0.0);
    }
    free(t.point);
    expect_of(p, is_right, "interrupted newton");
}

static void check_newton(const problem_t *p, ptrdiff_t n_scores, loss_kind_t kind)
{
    const ptrdiff_t d = p->d + 1, stride = (d + NEWTON_PADDING - 1) / NEWTON_PADDING * NEWTON_PADDING;
    double *rows = doubles(p->n * stride), *penalty = doubles(d), *gradient = doubles(n_scores * d);
    newton_t t = {.rows = rows, .n_rows = p->n, .n_columns = d, .stride = stride,
                  .n_scores = n_scores, .codes = p->codes, .positive = 1, .temperature = 0.5,
                  .loss = loss_of_kind(kind), .weight = p->weight, .penalty = penalty, .tol = 1e-9,
                  .certain = 1e-3, .objective_floor = 1e-12, .max_iter = 100, .has_intercept = 1};
    int is_right = 1;
    if (n_scores > 1) t.loss.overconfidence = 0.0; /* a joint loss is convex below the level only */
    t.point = doubles(n_scores * d);
    t.work = doubles(newton_doubles(p->n, d, stride, n_scores));
    for (ptrdiff_t i = 0; i < p->n; i++) {
        memcpy(rows + i * stride, p->plain + i * p->d, (size_t)p->d * sizeof(double));
        rows[i * stride + p->d] = 1.0;
    }
    for (ptrdiff_t j = 0; j < p->d; j++) penalty[j] = j == 1 ? INFINITY : 3.0;
    for (int is_strict = 0; is_strict < 2; is_strict++) {
        t.is_strict = is_strict;
        for (ptrdiff_t k = 0; k < n_scores * d; k++) t.point[k] = 0.0;
        p->kernels->newton(&t);
        expect_of(p, t.status == NEWTON_CONVERGED || t.status == NEWTON_ROUNDING, "status of newton");
        const double value = newton_objective(&t, gradient);
        is_right &= is_near(t.value, value, value) && t.n_iter <= NEWTON_MOST && t.gap <= t.tol;
        for (ptrdiff_t k = 0; k < n_scores * d; k++) {
            const int is_fixed = isinf(penalty[k % d]);
            is_right &= is_fixed ? t.point[k] == 0.0 : fabs(gradient[k]) < 1e-3 * (1.0 + value);
        }
    }
    expect_of(p, is_right, "minimum of newton");
    /* With another penalty a solve continues from the last one; its minimum is that of a solve from zero. */
    double *continued = doubles(n_scores * d);
    for (ptrdiff_t j = 0; j < p->d; j++) penalty[j] *= 0.9;
    t.continues = 1;
    p->kernels->newton(&t);
    is_right = t.status == NEWTON_CONVERGED && t.gap <= t.tol;
    memcpy(continued, t.point, (size_t)(n_scores * d) * sizeof(double));
    for (ptrdiff_t k = 0; k < n_scores * d; k++) t.point[k] = 0.0;
    const double value = t.value;
    const ptrdiff_t n_passes = t.n_passes;
    t.continues = 0;
    p->kernels->newton(&t);
    is_right &= is_near(t.value, value, value) && n_passes < t.n_passes;
    for (ptrdiff_t k = 0; k < n_scores * d; k++) is_right &= fabs(t.point[k] - continued[k]) < 1e-3;
    expect_of(p, is_right, "newton that continues");
    free(continued);
    check_interrupted_newton(p, &t);
    /* In another unit of weights and penalties, a power of two, all but the value is the same. */
    const double gap = t.gap, unit = 1024.0;
    const ptrdiff_t n_iter = t.n_iter;
    double *weight = doubles(p->n), *before = doubles(n_scores * d);
    memcpy(before, t.point, (size_t)(n_scores * d) * sizeof(double));
    for (ptrdiff_t i = 0; i < p->n; i++) weight[i] = unit * p->weight[i];
    for (ptrdiff_t j = 0; j < d; j++) penalty[j] *= unit;
    for (ptrdiff_t k = 0; k < n_scores * d; k++) t.point[k] = 0.0;
    t.weight = weight, t.objective_floor *= unit;
    p->kernels->newton(&t);
    is_right = t.n_iter == n_iter && is_near(t.gap / gap, 1.0, 0.0);
    for (ptrdiff_t k = 0; k < n_scores * d; k++) is_right &= is_near(t.point[k], before[k], 0.0);
    expect_of(p, is_right, "newton in another unit");
    free(weight), free(before);
    free(rows), free(penalty), free(gradient), free(t.point), free(t.work);
}

/* L-BFGS in one call, and with the objective and gradient of plain sums, from the same start. */
static void check_lbfgs(const problem_t *p, loss_kind_t kind, int has_intercept)
{
    enum { CLASSES = 3, MOST_STEPS = 300 };
    const ptrdiff_t d = p->d, line = d + has_intercept, size = CLASSES * line;
    const ptrdiff_t width = (d + PADDING - 1) / PADDING * PADDING, stride = width + NEWTON_PADDING;
    if (!p->kernels->tiles) return;
    float *rows = calloc((size_t)(p->n * width), sizeof(float));
    double *plain = doubles(p->n * stride), *penalty = doubles(line), *gradient = doubles(size);
    double *inverse = doubles(line * line), *values = doubles(2 * (MOST_STEPS + 1));
    const ptrdiff_t spans[] = {0, p->n / 2, p->n / 2, p->n};
    newton_t exact = {.rows = plain, .n_rows = p->n, .n_columns = line, .stride = stride,
                      .n_scores = CLASSES, .codes = p->codes, .temperature = 0.5,
                      .loss = loss_of_kind(kind), .weight = p->weight, .penalty = penalty};
    exact.loss.overconfidence = 0.0;
    lbfgs_t t = {.rows = rows, .n_rows = p->n, .n_columns = d, .width = width, .spans = spans,
                 .n_spans = 2, .joint = {exact.loss, 0.5, CLASSES, p->codes, p->weight, NULL, NULL,
                 TILE_ROWS}, .has_intercept = has_intercept, .penalty = penalty,
                 .preconditioner = inverse, .block = line, .is_scaled = 1, .tol = 1e-5,
                 .objective_floor = 1e-12, .certain = 1e-3, .n_confirmations = 3, .max_iter = MOST_STEPS,
                 .sufficient_decrease = 1e-4, .min_step_size = 1e-10, .min_scaling = 1e-3,
                 .max_idle = 20, .rate_span = 5, .values = values, .gaps = values + MOST_STEPS + 1};
    double weights = 0.0, squares = 0.0;
    for (ptrdiff_t i = 0; i < p->n; i++) {
        weights += p->weight[i];
        for (ptrdiff_t j = 0; j < d; j++) {
            rows[i * width + j] = (float)p->plain[i * d + j];
            plain[i * stride + j] = rows[i * width + j];
            squares += p->weight[i] * plain[i * stride + j] * plain[i * stride + j];
        }
        if (has_intercept) plain[i * stride + d] = 1.0;
    }
    for (ptrdiff_t j = 0; j < d; j++) penalty[j] = j == 1 ? INFINITY : 3.0;
    for (ptrdiff_t j = 0; j < line; j++)
        inverse[j * (line + 1)] = 1.0 / (3.0 + (j < d ? squares : weights));
    t.trial = doubles(size), t.trial_gradient = doubles(size);
    t.coef = calloc((size_t)(TASK_GROUP * width), sizeof(float));
    t.work = doubles(lbfgs_doubles(size, CLASSES, width));
    double found[2];
    for (int calls = 0; calls < 2; calls++) {
        for (ptrdiff_t k = 0; k < size; k++) t.trial[k] = 0.0;
        t.n_iter = -1, t.n_pairs = t.first_pair = t.n_met = 0, t.has_stalled = 0;
        t.status = LBFGS_RUNNING, t.curvature = t.unexplored = 0.0;
        if (calls == 0) p->kernels->lbfgs_run(&t, MOST_STEPS + 1);
        while (t.status == LBFGS_RUNNING) {
            exact.point = t.trial;
            t.trial_value = newton_objective(&exact, t.trial_gradient);
            for (ptrdiff_t k = 0; k < size; k++)
                if (isinf(penalty[k % line])) t.trial_gradient[k] = 0.0;
            p->kernels->lbfgs_advance(&t);
        }
        exact.point = t.trial;
        const double value = newton_objective(&exact, gradient);
        double square = 0.0;
        int is_right = t.n_iter < MOST_STEPS && t.gap <= (t.status == LBFGS_CONVERGED ? 1e-5 : 1.0);
        for (ptrdiff_t k = 0; k < size; k++) {
            if (isinf(penalty[k % line])) is_right &= t.trial[k] == 0.0;
            else square += gradient[k] * gradient[k];
        }
        is_right &= fabs(t.value - value) <= 1e-5 * value && t.values[t.n_iter] == t.value;
        is_right &= square <= 1e-2 * value * (weights + squares) && t.gaps[t.n_iter] == t.gap;
        expect_of(p, is_right, calls ? "lbfgs_advance" : "lbfgs_run");
        found[calls] = value;
    }
    expect_of(p, fabs(found[0] - found[1]) <= 1e-4 * found[0], "minima of lbfgs");
    free(rows), free(plain), free(penalty), free(gradient), free(inverse), free(values);
    free(t.trial), free(t.trial_gradient), free(t.coef), free(t.work);
}

/* A small table: the gradient at the fit is zero, in the units of the rows; half fits choose a factor. */
static void check_small_table(int level, ptrdiff_t n, ptrdiff_t d, int has_intercept)
{
    const double factors[] = {1.0, 3.0};
    double *X = doubles(n * d), *direction = doubles(d);
    ptrdiff_t *codes = take((size_t)n * sizeof *codes);
    for (ptrdiff_t i = 0; i < n; i++) {
        codes[i] = i % 2;
        for (ptrdiff_t j = 0; j < d; j++) X[i * d + j] = uniform() + 0.2 * (double)codes[i];
    }
    for (ptrdiff_t j = 0; j < d; j++) direction[j] = uniform();
    if (d > 1)
        for (ptrdiff_t i = 0; i < n; i++) X[i * d + 1] = 2.0; /* a constant column */
    small_table_t t = {.kernels = kernels_at(level), .matrix = X, .n_rows = n, .n_columns = d,
                       .n_samples = (double)n, .codes = codes, .n_classes = 2, .n_scores = 1,
                       .loss = {CATONI, 1.0, 1.0, 0.0}, .has_intercept = has_intercept,
                       .leverage_bound = 1.0, .far_distance = 30.0, .apart_distance = 4.0,
                       .hidden_distance = 1000.0, .alpha = 0.01,
                       .inflation = d % 2 ? 10.0 : 0.0, .factors = factors, .min_distinct_rows = 4,
                       .tol = 1e-10, .certain = 1e-3, .half_tol = 1e-5, .half_certain = 0.1,
                       .objective_floor = 1e-4, .max_iter = 100, .half_max_iter = 100, .direction = direction,
                       .prior_variance = 4.0,
                       .link = {.low = -1.0, .high = 1.0, .mean = 3.0, .min_slope = 1e-3, .max_slope = 1e3}};
    t.coef = doubles(d), t.intercept = doubles(1), t.scores = doubles(n), t.weight = doubles(n);
    for (t.n_factors = 0; t.n_factors < 3; t.n_factors++) {
        t.work = doubles(small_table_doubles(&t));
        for (ptrdiff_t i = 0; i < n; i++) t.weight[i] = 1.0 / (double)n;
        int is_right = fit_small_table(&t);
        double total = 0.0, slope = 0.0, influence;
        for (ptrdiff_t i = 0; i < n; i++) {
            double score = t.intercept[0];
            for (ptrdiff_t j = 0; j < d; j++) score += t.coef[j] * X[i * d + j];
            is_right &= is_near(t.scores[i], score, 10.0 * fabs(score)) && t.weight[i] > 0.0;
            const double sign = codes[i] ? 1.0 : -1.0;
            loss_of(&t.loss, 1.0 - sign * score, &influence);
            slope += sign * t.weight[i] * influence;
            total += t.weight[i];
        }
        is_right &= is_near(total, 1.0, 1.0) && (!has_intercept || fabs(slope) < 1e-5);
        is_right &= t.factor == 1.0 || (t.n_factors == 2 && t.factor == 3.0);
        for (int k = 0; k < LINK_SLOPES && t.n_factors; k++)
            is_right &= t.link.slopes[k] >= 1e-3 && t.link.slopes[k] <= 1e3;
        expect(is_right, "small table", level, 0, (int)t.n_factors, n, d);
        free(t.work);
    }
    X[0] = NAN, t.n_factors = 0, t.work = doubles(small_table_doubles(&t));
    expect(!fit_small_table(&t), "small table with NaN", level, 0, 0, n, d);
    free(t.work), free(t.coef), free(t.intercept), free(t.scores), free(t.weight);
    free(X), free(direction), free(codes);
}

/* Tiles of float32 rows against the sweep in double. */
static void check_tiles(int level, ptrdiff_t n, ptrdiff_t d, ptrdiff_t n_tasks)
{
    problem_t p = problem_of(level, ROWS, F4, n, d);
    const ptrdiff_t padded = (n_tasks + TASK_GROUP - 1) / TASK_GROUP * TASK_GROUP;
    float *coef = take((size_t)(padded * d) * sizeof *coef);
    ptrdiff_t *positive = take((size_t)n_tasks * sizeof *positive);
    ptrdiff_t *part = take((size_t)n_tasks * sizeof *part);
    loss_t *loss = take((size_t)n_tasks * sizeof *loss);
    double *intercept = doubles(n_tasks), *value = doubles(n_tasks), *slope = doubles(n_tasks);
    tiles_t s = {n, n_tasks, p.codes, p.weight, coef, positive, part, loss, NULL, intercept, value,
                 slope, doubles(n_tasks * d), d};
    if (p.kernels->tiles) {
        for (ptrdiff_t t = 0; t < n_tasks; t++) {
            positive[t] = 1, loss[t] = loss_of_kind(CATONI);
            for (ptrdiff_t j = 0; j < d; j++) coef[t * d + j] = (float)p.coef[j];
        }
        p.kernels->tiles(p.m.data, 0, n, d, &s);
        double *gradient = doubles(d);
        sweep_t own = {.sign = p.sign, .weight = p.weight, .coef = p.coef,
                       .loss = loss_of_kind(CATONI), .gradient = gradient};
        p.kernels->sweep(ROWS, F4, &p.m, 0, n, &own);
        int is_right = 1;
        for (ptrdiff_t t = 0; t < n_tasks; t++) {
            is_right &= fabs(value[t] - own.value) <= 1e-4 * (1.0 + own.value);
            for (ptrdiff_t j = 0; j < d; j++)
                is_right &= fabs(s.gradient[t * d + j] - gradient[j]) <= 1e-4 * 16.0 * (double)n;
        }
        expect_of(&p, is_right, "tiles");
        free(gradient);
    }
    free(coef), free(positive), free(part), free(loss), free(intercept), free(value), free(slope);
    free(s.gradient);
    release(&p);
}

/* Tiles of float32 rows with a joint loss: the derivatives of a row sum to zero over the classes. */
static void check_joint_tiles(int level, ptrdiff_t n, ptrdiff_t d, ptrdiff_t n_classes)
{
    problem_t p = problem_of(level, ROWS, F4, n, d);
    const ptrdiff_t padded = (n_classes + TASK_GROUP - 1) / TASK_GROUP * TASK_GROUP;
    float *coef = take((size_t)(padded * d) * sizeof *coef);
    double *intercept = doubles(n_classes), *slope = doubles(n_classes), value = 0.0, sum = 0.0;
    const joint_t joint = {loss_of_kind(CATONI), 0.5, n_classes, p.codes, p.weight, intercept, NULL,
                           TILE_ROWS};
    tiles_t s = {.n_rows = n, .n_tasks = n_classes, .coef = coef, .joint = &joint, .value = &value,
                 .slope = slope, .gradient = doubles(n_classes * d), .stride = d};
    if (p.kernels->tiles) {
        for (ptrdiff_t i = 0; i < n; i++) p.codes[i] = i % n_classes;
        p.kernels->tiles(p.m.data, 0, n, d, &s);
        for (ptrdiff_t k = 0; k < n_classes; k++) sum += slope[k];
        expect_of(&p, value > 0.0 && fabs(sum) <= 1e-9 * (double)n, "tiles of a joint loss");
    }
    free(coef), free(intercept), free(slope), free(s.gradient);
    release(&p);
}

/* The joint loss of two classes is the loss of the difference of their scores. */
static void check_joint(int level, loss_kind_t kind, ptrdiff_t n)
{
    problem_t p = problem_of(level, ROWS, F8, n, 4);
    double *scores = doubles(2 * n), *margins = doubles(n), *intercept = doubles(2);
    double *slope = doubles(2), value = 0.0, truth = 0.0, influence;
    joint_t joint = {loss_of_kind(kind), 0.5, 2, p.codes, p.weight, intercept, margins, n};
    for (ptrdiff_t i = 0; i < n; i++) {
        p.codes[i] = i % 2;
        scores[i] = uniform() * 4.0, scores[n + i] = uniform() * 4.0;
        const double margin = i % 2 ? scores[n + i] - scores[i] : scores[i] - scores[n + i];
        truth += p.weight[i] * loss_of(&joint.loss, joint.loss.margin - margin, &influence);
    }
    p.kernels->joint_losses(&joint, n, scores, &value, slope);
    expect_of(&p, is_near(value, truth, truth) && is_near(slope[0], -slope[1], truth), "joint_losses");
    free(scores), free(margins), free(intercept), free(slope);
    release(&p);
}

static void check_vectors(int level, ptrdiff_t n)
{
    double *x = doubles(n), *y = doubles(n), *z = doubles(n), truth = 0.0;
    for (ptrdiff_t j = 0; j < n; j++) x[j] = uniform(), y[j] = uniform(), z[j] = uniform();
    for (ptrdiff_t j = 0; j < n; j++) truth += (y[j] + 0.5 * x[j]) * z[j];
    const double dot = kernels_at(level)->add_dot(n, 0.5, x, y, z);
    expect(is_near(dot, truth, truth), "add_dot", level, 0, 0, n, 1);
    free(x), free(y), free(z);
}

/* Sizes around every width at which a kernel changes its way. */
static const ptrdiff_t columns[] = {1, 2, 7, 8, 9, 12, 15, 16, 17, 23, 33, 40, 54, 64, 65, 129, 1030};
static const ptrdiff_t row_counts[] = {1, 3, 7, 8, 9, 17, 33, 65, 130};

static void check_layout(int level, layout_t layout, int type)
{
    const int n_columns = sizeof columns / sizeof *columns;
    const int n_counts = sizeof row_counts / sizeof *row_counts;
    for (int c = 0; c < n_columns; c++) {
        problem_t p = problem_of(level, layout, type, row_counts[(c * 4 + type) % n_counts], columns[c]);
        const ptrdiff_t first = p.n / 3, last = p.n - p.n / 5;
        check_products(&p, 0, p.n);
        check_products(&p, first, last);
        for (int kind = 0; kind < N_LOSS_KINDS; kind++)
            if (kind == CATONI || c % N_LOSS_KINDS == kind) check_sweep(&p, kind, 0, p.n);
        check_sweep(&p, CATONI, first, last);
        if (layout == ROWS && type < 2) check_dual_pass(&p, 1, c % 2 ? CATONI : PSEUDO_HUBER);
        if (layout == ROWS || layout == COLUMNS) check_moments(&p);
        else if (p.d >= 9 && p.d < 200) {
            if (p.n >= 3) check_csr(&p);
            check_sweep_tasks(&p, CATONI);
            check_sweep_tasks(&p, LOG_COSH);
            check_dual_pass(&p, 1, c % 2 ? CATONI : PSEUDO_HUBER);
            check_dual_pass(&p, TASK_LANES, c % 2 ? LOG_COSH : CATONI);
        }
        if (p.n >= 30 && p.d >= 9 && p.d < 200) {
            check_descend(&p, INFINITY, c % 2, 1);
            check_descend(&p, 0.1, (c + 1) % 2, c % 3 > 0);
        }
        release(&p);
    }
}

static void check_level(int level)
{
    static const ptrdiff_t few[] = {1, 3, 16, 20, 33};
    for (int layout = 0; layout < N_LAYOUTS; layout++)
        for (int type = 0; type < N_TYPES; type++) check_layout(level, (layout_t)layout, type);
    for (int k = 0; k < 5; k++) {
        problem_t p = problem_of(level, ROWS, F8, 70, few[k]);
        for (int kind = 0; kind <= LOGISTIC; kind++) check_newton(&p, 1, kind);
        check_newton(&p, 3, CATONI);
        check_lbfgs(&p, CATONI, 1);
        check_lbfgs(&p, LOG_COSH, 0);
        check_newton(&p, 3, PSEUDO_HUBER);
        release(&p);
        check_small_table(level, 60 + k * 9, few[k], k % 2);
        check_tiles(level, 60 + k * 9, PADDING * (k + 1), 1 + 11 * k);
        check_joint_tiles(level, 60 + k * 9, PADDING * (k + 1), 2 + 11 * k);
        check_class_tiles(level, 1 + 40 * k, few[k], 2 + 13 * k, k % 2 ? 4.0 : 0.1);
        for (int kind = 0; kind < N_LOSS_KINDS; kind++) {
            check_joint(level, kind, 1 + 40 * k);
            check_joint_classes(level, kind, 1 + 40 * k);
            check_task_losses(level, kind, 1 + 40 * k);
        }
        check_vectors(level, 1 + 17 * k);
        for (int kind = 0; kind <= LOGISTIC; kind++) check_kernel_newton(level, 5 + 17 * k, kind, k % 2);
    }
    check_dual(level);
}

#ifndef _WIN32
/* A span of rows; all threads write to one array of scores. */
typedef struct {
    const problem_t *p;
    ptrdiff_t first, last;
    double *scores, *gradient;
} span_t;

static void *run_span(void *argument)
{
    const span_t *span = argument;
    const problem_t *p = span->p;
    for (int kind = 0; kind < N_LOSS_KINDS; kind++) {
        sweep_t s = {.sign = p->sign, .weight = p->weight, .coef = p->coef,
                     .loss = loss_of_kind(kind), .gradient = span->gradient};
        p->kernels->sweep(p->layout, p->type, &p->m, span->first, span->last, &s);
    }
    p->kernels->scores(p->layout, p->type, &p->m, span->first, span->last, p->coef, 0.0, span->scores);
    p->kernels->adjoint(p->layout, p->type, &p->m, span->first, span->last, p->weight, span->gradient);
    check_products(p, 0, p->n);
    if (p->layout == ROWS || p->layout == COLUMNS) check_moments(p);
    else if (p->d < 1000) {
        check_sweep_tasks(p, PSEUDO_HUBER);
        check_dual_pass(p, 1, CATONI);
        check_dual_pass(p, TASK_LANES, PSEUDO_HUBER);
    }
    if (p->d < 1000) check_descend(p, 0.1, 1, 1);
    if (p->layout == ROWS && p->type == F8 && p->d < 50) {
        check_newton(p, 1, CATONI);
        check_newton(p, 3, LOG_COSH);
        check_joint_classes(p->level, CATONI, 70);
        check_task_losses(p->level, LOG_COSH, 70);
        check_tiles(p->level, 60, 2 * PADDING, 5);
        check_class_tiles(p->level, 130, 17, 50, 0.5);
        check_link(p->level, 80, 3, 1.0, 1e-2);
        check_kernel_newton(p->level, 40, CATONI, 1);
        check_small_table(p->level, 70, 5, 1);
    }
    return NULL;
}

static void check_threads(int level, layout_t layout, int type, ptrdiff_t d, int n_threads)
{
    problem_t p = problem_of(level, layout, type, 259, d);
    double *scores = doubles(p.n);
    pthread_t threads[MOST_THREADS];
    span_t spans[MOST_THREADS];
    int is_right = 1;
    for (int t = 0; t < n_threads; t++) {
        spans[t] = (span_t){&p, p.n * t / n_threads, p.n * (t + 1) / n_threads, scores, doubles(d)};
        is_right &= pthread_create(&threads[t], NULL, run_span, &spans[t]) == 0;
    }
    for (int t = 0; t < n_threads; t++) {
        pthread_join(threads[t], NULL);
        free(spans[t].gradient);
    }
    for (ptrdiff_t i = 0; i < p.n; i++)
        is_right &= is_near(scores[i], score_of(&p, p.coef, 0.0, i), 8.0 * (double)d);
    expect_of(&p, is_right, "threads");
    free(scores);
    release(&p);
}
#endif

int main(int count, char **arguments)
{
    const int n_threads = count > 1 ? atoi(arguments[1]) : 1, n_levels = usable_levels();
    for (int k = 0; n_threads < 2 && k < 24; k++)
        check_link(k / 4 % n_levels, 5 + 40 * (k % 3), k % 4 == 1 ? 1 : k % 4 + 2, 0.5 + k % 5,
                   k % 2 ? 1e-2 : 0.0);
    for (int k = 0; n_threads < 2 && k < 12; k++) check_coupling(1 + 5 * (k % 3), 2 + k, k % 4 * 8.0);
    for (int k = 0; n_threads < 2 && k < 12; k++) check_intervals(1 + 7 * (k % 4), 1 + k % 3, 1 + k, k - 6);
    for (ptrdiff_t n_tasks = 1; n_threads < 2 && n_tasks <= TASK_LANES; n_tasks++)
        for (int k = 0; k < 4; k++) check_tables(k ? 63 + k : 130, n_tasks, k % 2);
    for (int level = 0; level < n_levels; level++) {
        if (n_threads < 2) check_level(level);
#ifndef _WIN32
        else
            for (int layout = 0; layout < N_LAYOUTS; layout++)
                for (int type = 0; type < N_TYPES; type++) {
                    const int used = n_threads < MOST_THREADS ? n_threads : MOST_THREADS;
                    check_threads(level, (layout_t)layout, type, 5, used);
                    check_threads(level, (layout_t)layout, type, 54, used);
                    check_threads(level, (layout_t)layout, type, 1100, used);
                }
#endif
    }
    for (int level = 0; n_threads < 2 && level < n_levels; level++)
        for (int n_scores = 1; n_scores < 6; n_scores += 3) /* begins with one of several rows */
            check_link(level, 17001, n_scores, 1.5, 1e-2);
    if (n_threads < 2) check_logarithm();
    printf("%d SIMD levels\n%d passed, %d failed\n", n_levels, passed, failed);
    return failed != 0;
}
