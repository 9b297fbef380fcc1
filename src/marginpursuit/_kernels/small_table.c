/* A fit to a small dense table in one call: the steps of classifiers/margin_pursuit.py for positive weights.
 *
 * 1. `bound_leverage`: weights that decrease beyond the median distance (classifiers/_leverage.py).
 * 2. `standardise_rows`: a padded copy of the rows, and the unit of the penalty (solvers/_problem.py).
 * 3. `split_rows`: the rows of each class in two halves by their content (classifiers/_half_fits.py).
 * 4. `fit_halves`: Newton's method for both halves, held-out scores, and a link fitted to them.
 * 5. `fit_rows`: Newton's method for all rows.
 *
 * With several factors the half fits come first: they choose a multiple of the penalty by their held-out
 * log-loss, and the fit starts at their mean. With one factor they start at the fit. With none there are
 * no half fits, and no link.
 *
 * The minimisers are those of newton.c, the link is that of link.c, and moments, norms and scores are those
 * of sweep.c. Each step returns 0 for a table that it does not support: with rows of outlying norms, squares
 * that lose digits, a class with few distinct rows, or a solve that does not converge. The general fit then
 * does all.
 */
#include "small_table.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { FLOAT64 = 0 /* the element type */ };

/* A row and the number by which it is sorted. */
typedef struct {
    uint64_t key;
    ptrdiff_t row;
} keyed_t;

/* The arrays of a fit, which lie in `work`. */
typedef struct {
    double *norms, *projection;            /* n_rows */
    double *half_weight;                   /* (2, n_rows), of the half fits */
    double *mean, *inverse, *column;       /* n_columns: mean and inverse deviation; scratch */
    double *unit;                          /* n_columns, of the penalty; 0 for a constant column */
    double *rows, *half_rows;              /* (n_rows, stride), standardised */
    double *gathered_weight;               /* n_rows, of a half */
    ptrdiff_t *gathered_codes;             /* n_rows, of a half */
    double *link_scores, *link_weight;     /* (n_rows, n_scores) and n_rows, held out */
    keyed_t *keyed, *merged;               /* n_rows */
    double *class_total, *bounded_total;   /* n_classes: of weights before and after the bound */
    uint64_t *last_key;                    /* n_classes */
    ptrdiff_t *n_distinct;                 /* n_classes */
    double *penalty;                       /* n_coefficients of a score */
    double *point, *half_points;           /* a point: (n_scores, n_coefficients) */
    double *padded;                        /* stride */
    double *newton_work, *link_work;
    ptrdiff_t stride, n_coefficients, point_size;
} state_t;

/* The layout of `work`; with `work` NULL, only its size is of use. */
static ptrdiff_t lay_out(const small_table_t *t, double *work, state_t *s)
{
    const ptrdiff_t n = t->n_rows, d = t->n_columns, k = t->n_scores;
    const ptrdiff_t p = d + (t->has_intercept != 0), stride = newton_line_length(p);
    ptrdiff_t size = 0;
    s->stride = stride, s->n_coefficients = p, s->point_size = k * p;
#define TAKE(name, count) (s->name = work ? (void *)(work + size) : NULL, size += (count))
    TAKE(norms, n), TAKE(projection, n), TAKE(half_weight, 2 * n);
    TAKE(mean, d), TAKE(inverse, d), TAKE(column, d), TAKE(unit, d);
    TAKE(rows, n * stride), TAKE(half_rows, n * stride), TAKE(gathered_weight, n), TAKE(gathered_codes, n);
    TAKE(link_scores, n * k), TAKE(link_weight, n);
    TAKE(keyed, 2 * n), TAKE(merged, 2 * n);
    TAKE(class_total, t->n_classes), TAKE(bounded_total, t->n_classes), TAKE(last_key, t->n_classes);
    TAKE(n_distinct, t->n_classes), TAKE(penalty, p), TAKE(point, k * p);
    TAKE(half_points, 2 * t->n_factors * k * p), TAKE(padded, stride);
    TAKE(newton_work, newton_doubles(n, p, stride, k)), TAKE(link_work, link_doubles(k));
#undef TAKE
    return size;
}

ptrdiff_t small_table_doubles(const small_table_t *t)
{
    state_t s;
    return lay_out(t, NULL, &s);
}

static matrix_t doubles_of(const double *data, ptrdiff_t n_columns)
{
    return (matrix_t){.data = data, .n_columns = n_columns, .stride = n_columns,
                      .item = sizeof(double)};
}

/* Sorts by key; returns the array, of the two, that has the result. */
static keyed_t *sort_by_key(ptrdiff_t n, keyed_t *from, keyed_t *to)
{
    for (ptrdiff_t run = 1; run < n; run *= 2) {
        for (ptrdiff_t first = 0; first < n; first += 2 * run) {
            const ptrdiff_t middle = first + run < n ? first + run : n;
            const ptrdiff_t last = middle + run < n ? middle + run : n;
            ptrdiff_t low = first, high = middle;
            for (ptrdiff_t k = first; k < last; k++) {
                const int is_low = high == last || (low < middle && from[low].key <= from[high].key);
                to[k] = is_low ? from[low] : from[high];
                low += is_low, high += !is_low;
            }
        }
        keyed_t *sorted = to;
        to = from, from = sorted;
    }
    return from;
}

/* The bits of a positive double are in its order. */
static uint64_t bits_of(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* 32 bits in the order of the values as float32; those of +-0 are equal. */
static uint64_t ordered_bits(double value)
{
    const float narrow = (float)value + 0.0f;
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof bits);
    return bits >> 31 ? ~bits : bits | (uint32_t)1 << 31;
}

/* Mean and inverse deviation of each column under the weights; see design/_base.py. */
static int find_moments(small_table_t *t, const state_t *s)
{
    const ptrdiff_t n = t->n_rows, d = t->n_columns;
    const matrix_t matrix = doubles_of(t->matrix, d);
    const double smallest = 1e-140, largest_variance = 1e280, rounding = (double)n * DBL_EPSILON;
    memset(s->mean, 0, (size_t)d * sizeof(double));
    memset(s->column, 0, (size_t)d * sizeof(double));
    t->kernels->adjoint(ROWS, FLOAT64, &matrix, 0, n, t->weight, s->mean);
    for (ptrdiff_t j = 0; j < d; j++) {
        if (!isfinite(s->mean[j])) return 0;
        if (!t->has_intercept) s->mean[j] = 0.0;
    }
    memset(s->inverse, 0, (size_t)d * sizeof(double));
    t->kernels->moments(ROWS, FLOAT64, &matrix, 0, n, s->mean, NULL, t->weight, s->inverse,
                        s->column);
    t->n_passes += 2;
    for (ptrdiff_t j = 0; j < d; j++) {
        const double variance = s->column[j], error = rounding * s->mean[j];
        if (!(variance < largest_variance)) return 0;
        s->inverse[j] = 0.0;
        if (variance > error * error) {
            if (variance < smallest * smallest) return 0;
            s->inverse[j] = 1.0 / sqrt(variance);
        } else if (fabs(s->mean[j]) < smallest) { /* a column of zeros, unless squares underflow */
            for (ptrdiff_t i = 0; i < n; i++)
                if (t->weight[i] > 0.0 && t->matrix[i * d + j] != 0.0) return 0;
        }
    }
    return 1;
}

/* norms = those of the standardised rows. */
static int find_norms(small_table_t *t, const state_t *s)
{
    const matrix_t matrix = doubles_of(t->matrix, t->n_columns);
    for (ptrdiff_t j = 0; j < t->n_columns; j++) s->column[j] = s->inverse[j] * s->inverse[j];
    t->kernels->norms(ROWS, FLOAT64, &matrix, 0, t->n_rows, s->mean, s->column, s->norms);
    t->n_passes++;
    int is_finite = 1;
    for (ptrdiff_t i = 0; i < t->n_rows; i++) {
        s->norms[i] = sqrt(s->norms[i]);
        is_finite &= isfinite(s->norms[i]) != 0;
    }
    return is_finite;
}

/* The median of the positive norms; infinite where there is none. */
static double median_norm(const small_table_t *t, const state_t *s)
{
    ptrdiff_t n = 0;
    for (ptrdiff_t i = 0; i < t->n_rows; i++)
        if (s->norms[i] > 0.0) s->keyed[n++] = (keyed_t){bits_of(s->norms[i]), i};
    if (n == 0) return INFINITY;
    const keyed_t *sorted = sort_by_key(n, s->keyed, s->merged);
    return 0.5 * (s->norms[sorted[(n - 1) / 2].row] + s->norms[sorted[n / 2].row]);
}

static double largest_norm(const small_table_t *t, const state_t *s)
{
    double largest = 0.0;
    for (ptrdiff_t i = 0; i < t->n_rows; i++)
        largest = s->norms[i] > largest ? s->norms[i] : largest;
    return largest;
}

/* Whether rows may be far away, which `_leverage.py` measures. The weights are equal; the norms are
 * replaced if rows are apart. */
static int has_far_rows(small_table_t *t, const state_t *s, double median)
{
    const ptrdiff_t n = t->n_rows, n_passes = t->n_passes;
    const double unit = fmax(1.0, t->leverage_bound), equal = t->weight[0];
    const double largest = largest_norm(t, s);
    if (!(largest > t->apart_distance * unit * median)) return 0;
    if (largest > t->far_distance * unit * median) return 1;
    ptrdiff_t n_others = 0;
    for (ptrdiff_t i = 0; i < n; i++) {
        t->weight[i] = s->norms[i] > t->apart_distance * unit * median ? 0.0 : 1.0;
        n_others += t->weight[i] > 0.0;
    }
    for (ptrdiff_t i = 0; i < n; i++) t->weight[i] /= (double)n_others;
    const int is_measured = find_moments(t, s) && find_norms(t, s);
    for (ptrdiff_t i = 0; i < n; i++) t->weight[i] = equal;
    t->n_passes = n_passes;
    return !is_measured || largest_norm(t, s) > t->hidden_distance * unit * median_norm(t, s);
}

/* Multiplies the weights by limit/norm beyond the limit, with the same total for each class. */
static int bound_leverage(small_table_t *t, const state_t *s)
{
    const ptrdiff_t n = t->n_rows;
    if (isinf(t->leverage_bound)) return 1;
    if (!find_moments(t, s) || !find_norms(t, s)) return 0;
    const double median = median_norm(t, s), limit = t->leverage_bound * median;
    double *norms = t->scores; /* written at the end */
    memcpy(norms, s->norms, (size_t)n * sizeof(double));
    if (has_far_rows(t, s, median)) return 0;
    memset(s->class_total, 0, (size_t)t->n_classes * sizeof(double));
    memset(s->bounded_total, 0, (size_t)t->n_classes * sizeof(double));
    for (ptrdiff_t i = 0; i < n; i++) {
        s->class_total[t->codes[i]] += t->weight[i];
        if (norms[i] > limit) t->weight[i] *= limit / norms[i];
        s->bounded_total[t->codes[i]] += t->weight[i];
    }
    for (ptrdiff_t i = 0; i < n; i++)
        t->weight[i] *= s->class_total[t->codes[i]] / s->bounded_total[t->codes[i]];
    return 1;
}

/* unit = that of the penalty: "inflated", or "standardised" where `inflation` is 0. */
static void find_unit(small_table_t *t, const state_t *s)
{
    const ptrdiff_t d = t->n_columns;
    memset(s->column, 0, (size_t)d * sizeof(double));
    if (t->inflation > 0.0) {
        for (ptrdiff_t i = 0; i < t->n_rows; i++) {
            const double *z = s->rows + i * s->stride;
            for (ptrdiff_t j = 0; j < d; j++)
                s->column[j] += t->weight[i] * (z[j] * z[j]) * (z[j] * z[j]);
        }
        t->n_passes++;
    }
    ptrdiff_t n_varying = 0;
    for (ptrdiff_t j = 0; j < d; j++) n_varying += s->inverse[j] > 0.0;
    for (ptrdiff_t j = 0; j < d; j++) {
        const double error = fmin(1.0, fmax(0.0, (s->column[j] - 1.0) / t->n_samples));
        s->unit[j] = s->inverse[j] > 0.0 ? (double)n_varying * (1.0 + t->inflation * error) : 0.0;
    }
}

/* rows = the standardised rows, a one for the intercept and zeros. */
static int standardise_rows(small_table_t *t, const state_t *s)
{
    const ptrdiff_t d = t->n_columns;
    if (!find_moments(t, s)) return 0;
    for (ptrdiff_t i = 0; i < t->n_rows; i++) {
        double *row = s->rows + i * s->stride;
        const double *x = t->matrix + i * d;
        for (ptrdiff_t j = 0; j < d; j++) row[j] = (x[j] - s->mean[j]) * s->inverse[j];
        for (ptrdiff_t j = d; j < s->stride; j++) row[j] = j < s->n_coefficients ? 1.0 : 0.0;
    }
    find_unit(t, s);
    return 1;
}

/* out = z.coef of all standardised rows z, for the coefficients of the first `n` columns. */
static void score_rows(const small_table_t *t, const state_t *s, const double *coef, ptrdiff_t n,
                       double *out)
{
    const matrix_t rows = doubles_of(s->rows, s->stride);
    memset(s->padded, 0, (size_t)s->stride * sizeof(double));
    memcpy(s->padded, coef, (size_t)n * sizeof(double));
    t->kernels->scores(ROWS, FLOAT64, &rows, 0, t->n_rows, s->padded, 0.0, out);
}

/* half_weight = weights of both halves with sum one: of four distinct rows of a class, in the order of
 * norm and projection, the first and the last are in the first half. */
static int split_rows(small_table_t *t, const state_t *s)
{
    const ptrdiff_t n = t->n_rows;
    if (!find_norms(t, s)) return 0;
    score_rows(t, s, t->direction, t->n_columns, s->projection);
    t->n_passes++;
    for (ptrdiff_t i = 0; i < n; i++) {
        const uint64_t key = ordered_bits(s->norms[i]) << 32 | ordered_bits(s->projection[i]);
        s->keyed[i] = (keyed_t){key, i};
    }
    const keyed_t *sorted = sort_by_key(n, s->keyed, s->merged);
    memset(s->n_distinct, 0, (size_t)t->n_classes * sizeof(ptrdiff_t));
    memset(s->half_weight, 0, (size_t)(2 * n) * sizeof(double));
    double total[2] = {0.0, 0.0};
    for (ptrdiff_t k = 0; k < n; k++) {
        const ptrdiff_t row = sorted[k].row, code = t->codes[row];
        if (s->n_distinct[code] == 0 || sorted[k].key != s->last_key[code]) s->n_distinct[code]++;
        s->last_key[code] = sorted[k].key;
        const int half = s->n_distinct[code] / 2 % 2;
        s->half_weight[half * n + row] = t->weight[row];
        total[half] += t->weight[row];
    }
    for (ptrdiff_t code = 0; code < t->n_classes; code++)
        if (s->n_distinct[code] < t->min_distinct_rows) return 0;
    for (ptrdiff_t i = 0; i < 2 * n; i++) s->half_weight[i] /= total[i >= n];
    return 1;
}

ptrdiff_t gather_rows(ptrdiff_t n_rows, ptrdiff_t stride, const double *rows, const double *weight,
                      const ptrdiff_t *codes, double *gathered_rows, double *gathered_weight,
                      ptrdiff_t *gathered_codes)
{
    ptrdiff_t n = 0;
    for (ptrdiff_t i = 0; i < n_rows; i++) {
        if (!(weight[i] > 0.0)) continue;
        memcpy(gathered_rows + n * stride, rows + i * stride, (size_t)stride * sizeof(double));
        gathered_weight[n] = weight[i];
        gathered_codes[n++] = codes[i];
    }
    return n;
}

/* A solve for all rows; the caller sets what differs. */
static newton_t newton_for(const small_table_t *t, const state_t *s)
{
    return (newton_t){
        .rows = s->rows, .n_rows = t->n_rows, .n_columns = s->n_coefficients, .stride = s->stride,
        .n_scores = t->n_scores, .codes = t->codes, .positive = 1, .loss = t->loss,
        .temperature = t->temperature, .weight = t->weight, .penalty = s->penalty,
        .has_intercept = t->has_intercept, .tol = t->tol, .certain = t->certain, .is_strict = 1,
        .objective_floor = t->objective_floor, .max_iter = t->max_iter, .work = s->newton_work};
}

/* The penalty alpha in its unit; a constant column is fixed at zero. */
static void set_penalty(const small_table_t *t, const state_t *s, double alpha)
{
    for (ptrdiff_t j = 0; j < t->n_columns; j++)
        s->penalty[j] = s->unit[j] > 0.0 ? alpha * s->unit[j] : INFINITY;
    if (t->has_intercept) s->penalty[t->n_columns] = 0.0;
}

/* Newton's method for the fits to a half, from the largest penalty to the smallest. Each continues from the
 * fit before it, or starts at `point` or at that fit, whichever has the smaller objective. Returns the
 * largest number of passes of a fit, or 0 where a solve does not converge. */
static ptrdiff_t fit_half(const small_table_t *t, const state_t *s, int half)
{
    const ptrdiff_t n = t->n_rows, size = s->point_size;
    newton_t solve = newton_for(t, s);
    solve.rows = s->half_rows, solve.weight = s->gathered_weight, solve.codes = s->gathered_codes;
    solve.n_rows = gather_rows(n, s->stride, s->rows, s->half_weight + half * n, t->codes,
                               s->half_rows, s->gathered_weight, s->gathered_codes);
    solve.tol = t->half_tol, solve.certain = t->half_certain, solve.is_strict = 0;
    solve.max_iter = t->half_max_iter;
    ptrdiff_t max_passes = 0;
    for (ptrdiff_t k = t->n_factors - 1; k >= 0; k--) {
        solve.point = s->half_points + (2 * k + half) * size;
        memcpy(solve.point, s->point, (size_t)size * sizeof(double));
        set_penalty(t, s, 2.0 * t->factors[k] * t->alpha);
        t->kernels->newton(&solve);
        if (solve.status != NEWTON_CONVERGED) return 0;
        max_passes = solve.n_passes > max_passes ? solve.n_passes : max_passes;
        solve.other = solve.point, solve.continues = 1;
    }
    return max_passes;
}

/* Fits the link to the held-out scores at a factor: each half scores the rows of the other. */
static link_t fit_held_out(small_table_t *t, const state_t *s, ptrdiff_t factor)
{
    const ptrdiff_t n = t->n_rows, p = s->n_coefficients;
    for (int half = 0; half < 2; half++)
        for (ptrdiff_t k = 0; k < t->n_scores; k++) {
            const double *points = s->half_points + (2 * factor + half) * s->point_size;
            score_rows(t, s, points + k * p, p, s->projection);
            for (ptrdiff_t i = 0; i < n; i++)
                if (s->half_weight[half * n + i] == 0.0)
                    s->link_scores[i * t->n_scores + k] = s->projection[i] / t->loss.margin;
        }
    t->count = 0.0;
    for (ptrdiff_t i = 0; i < n; i++) t->count += t->n_samples * t->weight[i];
    for (ptrdiff_t i = 0; i < n; i++) s->link_weight[i] = t->n_samples * t->weight[i] / t->count;
    link_t link = t->link;
    link.scores = s->link_scores, link.codes = t->codes, link.weights = s->link_weight;
    link.n_rows = n, link.n_scores = t->n_scores, link.work = s->link_work;
    link.ridge = 1.0 / (t->count * t->prior_variance);
    t->kernels->fit_link(&link);
    return link;
}

/* The smallest factor >= 1 whose log-loss is at most (1 + `max_increase`) times the lowest; with a joint
 * loss the largest factor whose log-loss is at most (1 + `max_joint_increase`) times the lowest. One is
 * replaced by the factor below it, if there is one, where that has a log-likelihood larger by
 * `min_likelihood_gain`. */
static ptrdiff_t chosen_factor(const small_table_t *t, const link_t *links)
{
    const int is_joint = t->n_scores > 1;
    ptrdiff_t unit_factor = 0, last = t->n_factors - 1;
    while (unit_factor < last && t->factors[unit_factor] < 1.0) unit_factor++;
    double lowest = INFINITY;
    for (ptrdiff_t k = unit_factor; k <= last; k++)
        lowest = links[k].log_loss < lowest ? links[k].log_loss : lowest;
    const double limit = (1.0 + (is_joint ? t->max_joint_increase : t->max_increase)) * lowest;
    ptrdiff_t chosen = is_joint ? last : unit_factor;
    while (chosen != (is_joint ? unit_factor : last) && !(links[chosen].log_loss <= limit))
        chosen += is_joint ? -1 : 1;
    if (chosen > 0 && chosen == unit_factor) {
        const double gain = links[unit_factor].log_loss - links[unit_factor - 1].log_loss;
        if (t->n_samples * gain > t->min_likelihood_gain) return unit_factor - 1;
    }
    return chosen;
}

/* Fits both halves from `point`, and their links, and chooses a factor. Unless there is a start,
 * `point` becomes the mean of its half fits. */
static int fit_halves(small_table_t *t, const state_t *s)
{
    const ptrdiff_t first = fit_half(t, s, 0), second = first ? fit_half(t, s, 1) : 0;
    if (second == 0) return 0;
    t->n_passes += (first > second ? first : second) + 1; /* and the held-out scores */
    link_t links[MAX_FACTORS];
    for (ptrdiff_t k = 0; k < t->n_factors; k++) links[k] = fit_held_out(t, s, k);
    const ptrdiff_t chosen = chosen_factor(t, links);
    t->factor = t->factors[chosen], t->link = links[chosen];
    if (t->start) return 1;
    const double *of_halves = s->half_points + 2 * chosen * s->point_size;
    for (ptrdiff_t j = 0; j < s->point_size; j++)
        s->point[j] = 0.5 * (of_halves[j] + of_halves[s->point_size + j]);
    return 1;
}

/* Fits all rows from `point`; writes the scores, and the coefficients for the rows as they are. */
static int fit_rows(small_table_t *t, const state_t *s)
{
    const ptrdiff_t d = t->n_columns, p = s->n_coefficients;
    newton_t solve = newton_for(t, s);
    solve.point = s->point;
    set_penalty(t, s, t->factor * t->alpha);
    t->kernels->newton(&solve);
    if (solve.status != NEWTON_CONVERGED) return 0;
    t->value = solve.value, t->n_iter = solve.n_iter;
    t->n_passes += solve.n_passes + 1; /* and the scores */
    for (ptrdiff_t k = 0; k < t->n_scores; k++) {
        const double *point = s->point + k * p;
        score_rows(t, s, point, p, t->scores + k * t->n_rows);
        t->intercept[k] = t->has_intercept ? point[d] : 0.0;
        for (ptrdiff_t j = 0; j < d; j++) {
            t->coef[k * d + j] = point[j] * s->inverse[j];
            t->intercept[k] -= s->mean[j] * t->coef[k * d + j];
        }
    }
    return 1;
}

/* point = the start, for standardised rows. */
static void set_start(const small_table_t *t, const state_t *s)
{
    const ptrdiff_t d = t->n_columns, p = s->n_coefficients;
    memset(s->point, 0, (size_t)s->point_size * sizeof(double));
    for (ptrdiff_t k = 0; k < t->n_scores && t->start; k++) {
        double intercept = t->start[t->n_scores * d + k];
        for (ptrdiff_t j = 0; j < d; j++) {
            const double coef = t->start[k * d + j];
            s->point[k * p + j] = s->inverse[j] > 0.0 ? coef / s->inverse[j] : 0.0;
            intercept += s->mean[j] * coef;
        }
        if (t->has_intercept) s->point[k * p + d] = intercept;
    }
}

int fit_small_table(small_table_t *t)
{
    state_t s;
    lay_out(t, t->work, &s);
    t->n_passes = 0, t->factor = 1.0;
    if (!bound_leverage(t, &s) || !standardise_rows(t, &s)) return 0;
    set_start(t, &s);
    if (t->n_factors > 0 && !split_rows(t, &s)) return 0;
    if (t->n_factors > 1) return fit_halves(t, &s) && fit_rows(t, &s);
    return fit_rows(t, &s) && (t->n_factors == 0 || fit_halves(t, &s));
}
