/* The linear system of Newton's method for one task on few dense rows, at one SIMD level: scores,
 * weighted column sums, losses, curvatures and the Hessian. See newton.c.
 */
#ifndef MARGINPURSUIT_NEWTON_SYSTEM_H
#define MARGINPURSUIT_NEWTON_SYSTEM_H

#include "joint.h"
#include "loss.h"
#include "sweep.h"
#include "vectors.h"

/* GROUP_DOUBLES: of the rows that are added to all tiles, one after the other, from a cache of 32 KB. */
enum { TILE_LINES = 4, TILE_COLUMNS = 2 * LANES, GROUP_DOUBLES = 1 << 11 };

/* The arrays of a solve, which lie in `work`. n_scores x n_rows where nothing else is said. */
typedef struct {
    double *scores, *slopes;         /* f, and the derivatives of the loss in f */
    double *change;                  /* of the scores along the direction */
    double *trial, *other;
    double *sign, *margins;          /* n_rows; the margins of a joint loss */
    double *trial_margins, *width;   /* n_rows */
    double *curvature, *active;      /* n_rows; indices are stored in `active` */
    double *point, *gradient, *step; /* n_scores x stride */
    double *block;                   /* stride x stride */
    double *losses;                  /* Hessian of the losses, in lines of `line` doubles */
    double *hessian;                 /* the same with the penalty, or its factor */
    double *solution, *right;        /* of all coefficients, without padding */
    double *zeros;                   /* n_scores */
    double *intercepts;              /* n_scores, the second derivatives in the intercepts */
    double *total;                   /* one, the sum of the curvatures */
    ptrdiff_t line;
} newton_state_t;

static newton_state_t newton_state(const newton_t *t)
{
    const ptrdiff_t n = t->n_rows, all = t->n_scores * n, padded = t->n_scores * t->stride;
    const ptrdiff_t size = t->n_scores * t->n_columns, line = newton_line_length(size);
    newton_state_t s = {.line = line};
    double *at = t->work;
#define TAKE(name, count) (s.name = at, at += (count))
    TAKE(scores, all), TAKE(slopes, all), TAKE(change, all), TAKE(trial, all), TAKE(other, all);
    TAKE(sign, n), TAKE(margins, n), TAKE(trial_margins, n), TAKE(width, n);
    TAKE(curvature, n), TAKE(active, n);
    TAKE(point, padded), TAKE(gradient, padded), TAKE(step, padded);
    TAKE(block, t->stride * t->stride), TAKE(losses, size * line), TAKE(hessian, size * line);
    TAKE(solution, size), TAKE(right, size), TAKE(zeros, t->n_scores);
    TAKE(intercepts, t->n_scores), TAKE(total, 1);
#undef TAKE
    return s;
}

/* out_k = x.w_k of all rows. */
static void newton_scores(const newton_t *t, const double *point, double *out)
{
    const ptrdiff_t n = t->n_rows, stride = t->stride;
    for (ptrdiff_t k = 0; k < t->n_scores; k++) {
        const double *coef = point + k * stride;
        ptrdiff_t i = 0;
        for (; i + LANES <= n; i += LANES) {
            vec sums[LANES];
            for (int r = 0; r < LANES; r++) sums[r] = splat(0.0);
            for (ptrdiff_t j = 0; j < stride; j += LANES) {
                const vec values = load_f8(coef + j);
                UNROLL
                for (int r = 0; r < LANES; r++)
                    sums[r] += values * load_f8(t->rows + (i + r) * stride + j);
            }
            store(out + k * n + i, lane_sums(sums));
        }
        for (; i < n; i++) out[k * n + i] = inner_product(stride, t->rows + i * stride, coef);
    }
}

/* out_k += the sum of factors_ki x_i. */
static void newton_adjoint(const newton_t *t, const double *factors, double *out)
{
    const ptrdiff_t n = t->n_rows, stride = t->stride;
    for (ptrdiff_t k = 0; k < t->n_scores; k++)
        for (ptrdiff_t j = 0; j < stride; j += TILE_COLUMNS) {
            double *sum = out + k * stride + j;
            vec sums[2] = {load_f8(sum), load_f8(sum + LANES)};
            for (ptrdiff_t i = 0; i < n; i++) {
                const double *x = t->rows + i * stride + j;
                const vec factor = splat(factors[k * n + i]);
                sums[0] += factor * load_f8(x);
                sums[1] += factor * load_f8(x + LANES);
            }
            store(sum, sums[0]);
            store(sum + LANES, sums[1]);
        }
}

/* Turns values that signs make margins into derivatives; returns the sum of weighted losses. */
static double margin_losses(const newton_t *t, const newton_state_t *s, double *values)
{
    sweep_t sweep = {.sign = s->sign, .weight = t->weight, .loss = t->loss};
    loss_state_t state = start_loss(&sweep);
    apply_loss(&state, &sweep, 0, t->n_rows, values);
    finish_loss(&state, &sweep);
    return sweep.value;
}

/* Turns scores into derivatives in them; returns the sum of weighted losses. A joint loss also
 * writes its margins. */
static double newton_losses(const newton_t *t, const newton_state_t *s, double *scores,
                            double *margins)
{
    if (t->n_scores == 1) return margin_losses(t, s, scores);
    const joint_t joint = {t->loss, t->temperature, t->n_scores, t->codes, t->weight, s->zeros,
                           margins, t->n_rows};
    double value = 0.0;
    joint_losses(&joint, t->n_rows, scores, &value, s->right); /* the sums of slopes are not used */
    return value;
}

/* The divided difference of the derivative in the margin over +- the width of each row, at least
 * 1e-6 of the scale: a difference of derivatives then keeps ten digits. Returns the sum. */
static double newton_curvature(const newton_t *t, const newton_state_t *s)
{
    const double *at = t->n_scores == 1 ? s->scores : s->margins;
    double sum = 0.0;
    for (ptrdiff_t i = 0; i < t->n_rows; i++) {
        const double least = 1e-6 * t->loss.scale;
        s->width[i] = s->width[i] > least ? s->width[i] : least;
        s->trial[i] = at[i] + s->width[i];
        s->other[i] = at[i] - s->width[i];
    }
    margin_losses(t, s, s->trial);
    margin_losses(t, s, s->other);
    for (ptrdiff_t i = 0; i < t->n_rows; i++) {
        const double curvature = 0.5 * (s->trial[i] - s->other[i]) / s->width[i];
        s->curvature[i] = curvature > 0.0 ? curvature : 0.0;
        sum += s->curvature[i];
    }
    return sum;
}

/* block += the sum of factors_i x_i x_i' over some rows, lines [line, line + TILE_LINES) and columns
 * [first, first + TILE_COLUMNS), which stay in registers. */
static void add_tile(const newton_t *t, const double *factors, const ptrdiff_t *active, ptrdiff_t n,
                     ptrdiff_t line, ptrdiff_t first, double *block)
{
    vec sums[TILE_LINES][2];
    double *at = block + line * t->stride + first;
    UNROLL
    for (int l = 0; l < TILE_LINES; l++) {
        sums[l][0] = load_f8(at + l * t->stride);
        sums[l][1] = load_f8(at + l * t->stride + LANES);
    }
    for (ptrdiff_t a = 0; a < n; a++) {
        const double *x = t->rows + active[a] * t->stride;
        const vec factor = splat(factors[active[a]]);
        const vec low = factor * load_f8(x + first), high = factor * load_f8(x + first + LANES);
        UNROLL
        for (int l = 0; l < TILE_LINES; l++) {
            const vec entry = splat(x[line + l]);
            sums[l][0] += entry * low;
            sums[l][1] += entry * high;
        }
    }
    UNROLL
    for (int l = 0; l < TILE_LINES; l++) {
        store(at + l * t->stride, sums[l][0]);
        store(at + l * t->stride + LANES, sums[l][1]);
    }
}

/* block = the sum of factors_i x_i x_i', the upper triangle; rows in groups that the cache holds. An
 * interrupt ends it before. */
static void weighted_gram(const newton_t *t, const newton_state_t *s, const double *factors)
{
    ptrdiff_t *active = (ptrdiff_t *)s->active, n_active = 0;
    for (ptrdiff_t i = 0; i < t->n_rows; i++) {
        active[n_active] = i;
        n_active += factors[i] != 0.0;
    }
    memset(s->block, 0, (size_t)(t->stride * t->stride) * sizeof(double));
    const ptrdiff_t group = GROUP_DOUBLES / t->stride > 16 ? GROUP_DOUBLES / t->stride : 16;
    for (ptrdiff_t begin = 0; begin < n_active; begin += group) {
        const ptrdiff_t n_rows = n_active - begin < group ? n_active - begin : group;
        for (ptrdiff_t line = 0; line < t->n_columns; line += TILE_LINES)
            for (ptrdiff_t first = line - line % TILE_COLUMNS; first < t->n_columns;
                 first += TILE_COLUMNS)
                add_tile(t, factors, active + begin, n_rows, line, first, s->block);
        const double width = (double)t->n_columns;
        if (is_interrupted(t->interrupt, 0.5 * (double)n_rows * width * width)) return;
    }
}

/* Copies the block into the upper triangle of the Hessian of the losses, as that of the scores k <= l. */
static void place_block(const newton_t *t, const newton_state_t *s, ptrdiff_t k, ptrdiff_t l)
{
    const ptrdiff_t p = t->n_columns;
    for (ptrdiff_t i = 0; i < p; i++) {
        double *line = s->losses + (k * p + i) * s->line + l * p;
        for (ptrdiff_t j = 0; j < i; j++) line[j] = k == l ? 0.0 : s->block[j * t->stride + i];
        memcpy(line + i, s->block + i * t->stride + i, (size_t)(p - i) * sizeof(double));
    }
}

/* The second derivative of a joint loss in the scores k and l, for each row. With r_k the
 * derivatives, a = |r_y| and curvature c in the margin it is c r_k r_l / a^2 and, unless k or l is y,
 * (r_k [k = l] - r_k r_l / a) / T; see losses/joint.py. */
static void joint_curvature(const newton_t *t, const newton_state_t *s, ptrdiff_t k, ptrdiff_t l,
                            double *out)
{
    const ptrdiff_t n = t->n_rows;
    for (ptrdiff_t i = 0; i < n; i++) {
        const double a = -s->slopes[t->codes[i] * n + i];
        const double product = s->slopes[k * n + i] * s->slopes[l * n + i];
        out[i] = 0.0;
        if (a <= 0.0) continue;
        out[i] = s->curvature[i] * product / (a * a);
        if (t->codes[i] == k || t->codes[i] == l) continue;
        out[i] += ((k == l ? s->slopes[k * n + i] : 0.0) - product / a) / t->temperature;
    }
}

/* Finds the Hessian of the losses. */
static void newton_hessian(const newton_t *t, const newton_state_t *s)
{
    if (t->n_scores == 1) {
        weighted_gram(t, s, s->curvature);
        place_block(t, s, 0, 0);
        return;
    }
    for (ptrdiff_t k = 0; k < t->n_scores; k++)
        for (ptrdiff_t l = k; l < t->n_scores; l++) {
            joint_curvature(t, s, k, l, s->trial);
            weighted_gram(t, s, s->trial);
            if (is_interrupted(t->interrupt, 0.0)) return;
            place_block(t, s, k, l);
        }
}

/* Adds the penalty to the Hessian of the losses. */
static void add_penalty(const newton_t *t, const newton_state_t *s)
{
    const ptrdiff_t p = t->n_columns, size = t->n_scores * p;
    memcpy(s->hessian, s->losses, (size_t)(size * s->line) * sizeof(double));
    /* Rounding of the sums; equal intercepts of all classes change no joint loss. */
    const double rounding = DBL_EPSILON * (double)p * *s->total;
    for (ptrdiff_t k = 0; k < t->n_scores; k++) {
        for (ptrdiff_t j = 0; j < p; j++) {
            const ptrdiff_t at = k * p + j;
            if (isinf(t->penalty[j])) {
                for (ptrdiff_t i = 0; i < size; i++)
                    s->hessian[at * s->line + i] = s->hessian[i * s->line + at] = 0.0;
                s->hessian[at * s->line + at] = 1.0;
            } else s->hessian[at * s->line + at] += t->penalty[j] + rounding;
        }
        if (t->has_intercept && t->n_scores > 1)
            for (ptrdiff_t l = k; l < t->n_scores; l++)
                s->hessian[(k * p + p - 1) * s->line + l * p + p - 1] += *s->total;
        s->intercepts[k] = s->hessian[(k * p + p - 1) * (s->line + 1)];
    }
}

#endif
