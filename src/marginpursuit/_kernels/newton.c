/* Newton's method for one task on few dense rows, in one call, at one SIMD level.
 *
 * The task has coefficients w_k of `n_scores` scores f_k = x.w_k: one score and a sign for each row,
 * or one score for each class and a joint loss. The objective is the sum of weighted losses plus
 * sum_k sum_j penalty_j w_kj^2 / 2. An intercept is the coefficient of a last column of ones.
 *
 * The second derivative of the loss is replaced by the divided difference of the first over +- the
 * last change of the margin, so that a row about to enter or leave the curved part of the loss is
 * counted. Scores are linear along a direction: the line search evaluates losses only.
 *
 * Half the squared Newton decrement estimates the suboptimality. By strong convexity it is at most
 * the sum of gradient_j^2 / (2 penalty_j), to which the intercepts, without a penalty, add their own
 * decrement. Where the step of an intercept alone is longer than the scale, the curvature changes along
 * it: gradient times level is then added, by convexity that of an intercept one level from its
 * minimiser. The method
 * stops where both meet the tolerance, or the first alone meets `certain` times the tolerance. The
 * step of the last decrement is taken nevertheless: its Hessian, the expensive part, is known. With
 * `is_strict` the first alone counts only if it is that of the second derivative itself, since the
 * divided difference may be larger: once it is met, the next iteration has no widths. Of a task with one score
 * it does not count either where it has fallen by less than `fast_ratio`: a row of large weight at the level,
 * beyond which its curvature is zero, then shortens every step. The task ends unfinished.
 *
 * Before a Hessian is computed, three times the decrement by the factor of the last one is an
 * estimate by which the method may stop: most solves end without a last Hessian. With `is_strict`
 * this needs the bound, and an estimate of at most `certain` times the tolerance. The step by that
 * factor, which costs one pass, is taken nevertheless: fits are compared. Where the decrement decreases
 * fast, the next step is by that factor as well.
 *
 * A task that differs from the last one in its penalty only continues from there: scores, derivatives and
 * the Hessian of the losses are in `work`. If the decrement is small compared to the objective, the first
 * step is by that Hessian and the new penalty. A chain of penalties then takes one Hessian or few.
 */
#include "cholesky.h"
#include "joint.h"
#include "loss.h"
#include "sweep.h"
#include "vectors.h"

#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)

/* The ratio of two decrements up to which the next step is by the same Hessian. The compiled fits of eight
 * small tables (benchmarks/tables.py) take 0.70 to 0.99 of the time that they take with a Hessian for each
 * step. With 0.03 they take 0.89 to 1.06 times as long as with 0.1, with 0.3 0.89 to 1.15 times. */
static const double fast_ratio = 0.1;

/* GROUP_DOUBLES: of the rows that are added to all tiles, one after the other, from a cache of 32 KB. */
enum { LINE_STEPS = 40, TILE_LINES = 4, TILE_COLUMNS = 2 * LANES, GROUP_DOUBLES = 1 << 11 };

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
                const vec here = load_f8(coef + j);
                UNROLL
                for (int r = 0; r < LANES; r++)
                    sums[r] += here * load_f8(t->rows + (i + r) * stride + j);
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
        const double here = 0.5 * (s->trial[i] - s->other[i]) / s->width[i];
        s->curvature[i] = here > 0.0 ? here : 0.0;
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
            const vec here = splat(x[line + l]);
            sums[l][0] += here * low;
            sums[l][1] += here * high;
        }
    }
    UNROLL
    for (int l = 0; l < TILE_LINES; l++) {
        store(at + l * t->stride, sums[l][0]);
        store(at + l * t->stride + LANES, sums[l][1]);
    }
}

/* block = the sum of factors_i x_i x_i', the upper triangle; rows in groups that the cache holds. An interrupt
 * ends it before. */
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
        const ptrdiff_t here = n_active - begin < group ? n_active - begin : group;
        for (ptrdiff_t line = 0; line < t->n_columns; line += TILE_LINES)
            for (ptrdiff_t first = line - line % TILE_COLUMNS; first < t->n_columns;
                 first += TILE_COLUMNS)
                add_tile(t, factors, active + begin, here, line, first, s->block);
        const double width = (double)t->n_columns;
        if (is_interrupted(t->interrupt, 0.5 * (double)here * width * width)) return;
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

/* Finds the gradient; its negative, without padding, is left in `right`. */
static void newton_gradient(const newton_t *t, const newton_state_t *s)
{
    memset(s->gradient, 0, (size_t)(t->n_scores * t->stride) * sizeof(double));
    newton_adjoint(t, s->slopes, s->gradient);
    for (ptrdiff_t k = 0; k < t->n_scores; k++)
        for (ptrdiff_t j = 0; j < t->n_columns; j++) {
            double *g = s->gradient + k * t->stride + j;
            *g = isinf(t->penalty[j]) ? 0.0 : *g + t->penalty[j] * s->point[k * t->stride + j];
            s->right[k * t->n_columns + j] = -*g;
        }
}

/* Solves with the factor for the step; returns half the squared decrement. `bound` is the bound of the
 * suboptimality by strong convexity. */
static double newton_decrement(const newton_t *t, const newton_state_t *s, double *bound)
{
    const ptrdiff_t p = t->n_columns, size = t->n_scores * p;
    *bound = 0.0;
    for (ptrdiff_t at = 0; at < size; at++) {
        const int is_intercept = t->has_intercept && at % p == p - 1;
        const double curvature = is_intercept ? s->intercepts[at / p] : t->penalty[at % p];
        const double size = fabs(s->right[at]), step = size == 0.0 ? 0.0 : size / curvature;
        *bound += 0.5 * size * step;
        if (is_intercept && step > t->loss.scale) *bound += size * t->loss.margin;
    }
    memcpy(s->solution, s->right, (size_t)size * sizeof(double));
    cholesky_solve(size, s->line, s->hessian, s->solution);
    memset(s->step, 0, (size_t)(t->n_scores * t->stride) * sizeof(double));
    for (ptrdiff_t k = 0; k < t->n_scores; k++)
        memcpy(s->step + k * t->stride, s->solution + k * p, (size_t)p * sizeof(double));
    return 0.5 * inner_product(size, s->right, s->solution);
}

/* Finds the step by the Hessian of the losses and the penalty; returns half the squared decrement, or -1
 * where their sum is singular, or after an interrupt. */
static double newton_factorise(const newton_t *t, const newton_state_t *s, double *bound)
{
    add_penalty(t, s);
    if (!cholesky(t->n_scores * t->n_columns, s->line, s->hessian, t->interrupt)) return -1.0;
    return newton_decrement(t, s, bound);
}

/* Finds the Newton step; returns half the squared decrement, or -1 where the Hessian is singular, or after
 * an interrupt. */
static double newton_direction(const newton_t *t, const newton_state_t *s, double *bound)
{
    *s->total = newton_curvature(t, s);
    if (*s->total == 0.0) { /* no row is active: widths that reach the level */
        const double *at = t->n_scores == 1 ? s->scores : s->margins;
        for (ptrdiff_t i = 0; i < t->n_rows; i++)
            s->width[i] = fabs(t->loss.margin - s->sign[i] * at[i]);
        *s->total = newton_curvature(t, s);
    }
    newton_hessian(t, s);
    if (is_interrupted(t->interrupt, 0.0)) return -1.0;
    return newton_factorise(t, s, bound);
}

/* Sets the gap, and returns whether the tolerance is met: by the decrement and the bound, or by the
 * decrement alone. */
static int meets_tolerance(newton_t *t, double decrement, double bound, int may_be_alone)
{
    const double reference = fmax(t->value, t->objective_floor);
    t->gap = decrement / reference;
    return (may_be_alone && t->gap <= t->certain * t->tol)
           || (t->gap <= t->tol && bound <= t->tol * reference);
}

/* The objective along the direction: the quadratic part is a0 + a1 t + a2 t^2. */
typedef struct {
    double quadratic[3];
    double value, slope;
} line_t;

static line_t newton_line(const newton_t *t, const newton_state_t *s)
{
    line_t line = {{0.0, 0.0, 0.0}, 0.0, 0.0};
    for (ptrdiff_t k = 0; k < t->n_scores; k++)
        for (ptrdiff_t j = 0; j < t->n_columns; j++) {
            if (isinf(t->penalty[j])) continue;
            const double w = s->point[k * t->stride + j], d = s->step[k * t->stride + j];
            line.quadratic[0] += 0.5 * t->penalty[j] * w * w;
            line.quadratic[1] += t->penalty[j] * w * d;
            line.quadratic[2] += 0.5 * t->penalty[j] * d * d;
        }
    return line;
}

/* Sets value and slope at a step size; leaves the derivatives in `trial`. */
static void evaluate_line(const newton_t *t, const newton_state_t *s, double size, line_t *line)
{
    const ptrdiff_t n = t->n_scores * t->n_rows;
    for (ptrdiff_t i = 0; i < n; i++) s->trial[i] = s->scores[i] + size * s->change[i];
    line->value = newton_losses(t, s, s->trial, s->trial_margins) + line->quadratic[0]
                  + size * (line->quadratic[1] + size * line->quadratic[2]);
    line->slope = inner_product(n, s->trial, s->change) + line->quadratic[1]
                  + 2.0 * size * line->quadratic[2];
}

/* Minimises along the direction until the slope has fallen to a tenth: secant steps, kept inside the
 * bracket. After a step that has not halved the bracket the minimum is close to the end that remained:
 * the next step is a tenth of the width from there. Returns the step size, 0 where the value does not
 * decrease. */
static double newton_line_search(const newton_t *t, const newton_state_t *s, double value,
                                 double slope, line_t *line)
{
    const double allowed = 4.0 * DBL_EPSILON * fabs(value);
    double low = 0.0, low_slope = slope, high = INFINITY, high_slope = 0.0, size = 1.0;
    double last_width = INFINITY;
    for (int k = 0; k < LINE_STEPS; k++) {
        evaluate_line(t, s, size, line);
        if (fabs(line->slope) <= 0.1 * fabs(slope) && line->value <= value + allowed) return size;
        if (!(line->slope < 0.0)) high = size, high_slope = line->slope;
        const double before = low, before_slope = low_slope;
        if (line->slope < 0.0) low = size, low_slope = line->slope;
        if (high == INFINITY) {
            const double rise = low_slope - before_slope;
            const double next = rise > 0.0 ? low - low_slope * (low - before) / rise : 10.0 * low;
            size = next > 10.0 * low ? 10.0 * low : next < 1.5 * low ? 1.5 * low : next;
        } else {
            const double width = high - low;
            const int is_high = size == high; /* the last step has moved this end */
            size = low - low_slope * width / (high_slope - low_slope);
            if (width > 0.5 * last_width) size = is_high ? low + 0.1 * width : high - 0.1 * width;
            last_width = width;
            if (!(size > low + 0.05 * width)) size = low + 0.05 * width;
            if (!(size < high - 0.05 * width)) size = high - 0.05 * width;
        }
    }
    evaluate_line(t, s, low, line);
    return low > 0.0 && line->value <= value + allowed ? low : 0.0;
}

/* Moves to the point at which the line was evaluated last. */
static void newton_move(const newton_t *t, const newton_state_t *s, double size)
{
    const ptrdiff_t n = t->n_rows, all = t->n_scores * n;
    for (ptrdiff_t i = 0; i < n; i++)
        s->width[i] = t->n_scores == 1 ? fabs(size * s->change[i])
                                       : fabs(s->trial_margins[i] - s->margins[i]);
    for (ptrdiff_t i = 0; i < all; i++) s->scores[i] += size * s->change[i];
    memcpy(s->slopes, s->trial, (size_t)all * sizeof(double));
    if (t->n_scores > 1) memcpy(s->margins, s->trial_margins, (size_t)n * sizeof(double));
    for (ptrdiff_t j = 0; j < t->n_scores * t->stride; j++) s->point[j] += size * s->step[j];
}

/* Minimises along the step and moves there; false, and no move, where the value does not decrease. */
static int newton_advance(const newton_t *t, const newton_state_t *s, double decrement, line_t *line)
{
    newton_scores(t, s->step, s->change);
    *line = newton_line(t, s);
    const double size = newton_line_search(t, s, t->value, -2.0 * decrement, line);
    if (size > 0.0) newton_move(t, s, size);
    else line->value = t->value;
    return size > 0.0;
}

/* The penalty term of the objective at coefficients with padding. */
static double newton_penalty(const newton_t *t, const double *coef)
{
    double sum = 0.0;
    for (ptrdiff_t k = 0; k < t->n_scores; k++)
        for (ptrdiff_t j = 0; j < t->n_columns; j++) {
            const double w = coef[k * t->stride + j];
            if (!isinf(t->penalty[j])) sum += 0.5 * t->penalty[j] * w * w;
        }
    return sum;
}

/* The objective at another point, which is left in `step`; its scores, derivatives and margins are left in
 * `change`, `trial` and `trial_margins`. */
static double evaluate_start(const newton_t *t, const newton_state_t *s, const double *point)
{
    const ptrdiff_t p = t->n_columns, all = t->n_scores * t->n_rows;
    for (ptrdiff_t k = 0; k < t->n_scores; k++)
        memcpy(s->step + k * t->stride, point + k * p, (size_t)p * sizeof(double));
    newton_scores(t, s->step, s->change);
    memcpy(s->trial, s->change, (size_t)all * sizeof(double));
    return newton_losses(t, s, s->trial, s->trial_margins) + newton_penalty(t, s->step);
}

static void take_start(const newton_t *t, const newton_state_t *s)
{
    const size_t all = (size_t)(t->n_scores * t->n_rows) * sizeof(double);
    memcpy(s->scores, s->change, all);
    memcpy(s->slopes, s->trial, all);
    if (t->n_scores > 1) memcpy(s->margins, s->trial_margins, (size_t)t->n_rows * sizeof(double));
    memcpy(s->point, s->step, (size_t)(t->n_scores * t->stride) * sizeof(double));
}

/* Starts at the better of two points; returns the objective, and leaves the gradient there. */
static double newton_begin(const newton_t *t, const newton_state_t *s)
{
    const ptrdiff_t doubles = newton_doubles(t->n_rows, t->n_columns, t->stride, t->n_scores);
    memset(s->point, 0, (size_t)(s->losses - s->point) * sizeof(double));
    memset(s->solution, 0, (size_t)(t->work + doubles - s->solution) * sizeof(double));
    /* The first access to memory takes about as long as 16 products for each double. */
    for (double *line = s->losses; line < s->solution; line += s->line) {
        memset(line, 0, (size_t)s->line * sizeof(double));
        if (is_interrupted(t->interrupt, 16.0 * (double)s->line)) break;
    }
    memset(s->width, 0, (size_t)t->n_rows * sizeof(double));
    for (ptrdiff_t i = 0; i < t->n_rows; i++)
        s->sign[i] = t->n_scores > 1 || is_positive(t->codes[i], t->positive) ? 1.0 : -1.0;
    double value = evaluate_start(t, s, t->point);
    take_start(t, s);
    if (t->other) {
        const double other = evaluate_start(t, s, t->other);
        if (other < value) value = other, take_start(t, s);
    }
    newton_gradient(t, s);
    return value;
}

/* Stays at the minimiser of the last task, if the decrement there is small compared to the objective; the
 * factor is that of the new penalty. */
static int newton_continue(newton_t *t, const newton_state_t *s)
{
    double bound;
    newton_gradient(t, s);
    t->value = t->losses + newton_penalty(t, s->point);
    const double decrement = newton_factorise(t, s, &bound);
    return decrement >= 0.0 && decrement <= fast_ratio * t->value;
}

void JOIN(newton, LEVEL)(newton_t *t)
{
    const newton_state_t s = newton_state(t);
    const ptrdiff_t p = t->n_columns;
    int has_factor = t->continues && newton_continue(t, &s);
    if (!has_factor) t->value = newton_begin(t, &s);
    line_t line = {.value = t->value};
    t->status = NEWTON_MAX_ITER, t->gap = 1.0; /* losses are not negative */
    t->n_passes = has_factor ? 1 : 2; /* the scores of the start and the last gradient */
    int is_exact = !t->is_strict;
    double before = t->value; /* the decrement of the last step */
    for (t->n_iter = 0;; t->n_iter++, newton_gradient(t, &s)) {
        double bound;
        t->value = line.value;
        if (has_factor) { /* of the last Hessian */
            const double last = newton_decrement(t, &s, &bound);
            const int is_met = meets_tolerance(t, 3.0 * last, bound, !t->is_strict);
            if (is_met && (!t->is_strict || t->gap <= t->certain * t->tol)) {
                t->status = NEWTON_CONVERGED;
                if (newton_advance(t, &s, last, &line)) t->value = line.value;
                break;
            }
            const int is_fast = last <= fast_ratio * before && t->n_iter < t->max_iter;
            before = last;
            if (is_fast && !(t->is_strict && is_exact) && newton_advance(t, &s, last, &line)) {
                t->n_passes += 2;
                continue;
            }
        }
        const double decrement = newton_direction(t, &s, &bound);
        if (is_interrupted(t->interrupt, 4.0 * (double)t->n_scores * (double)t->n_rows * (double)p)) {
            t->status = NEWTON_INTERRUPTED;
            break;
        }
        if (decrement < 0.0 || !isfinite(decrement)) {
            t->status = NEWTON_SINGULAR;
            break;
        }
        has_factor = 1;
        const int is_slow = t->n_scores == 1 && t->is_strict && is_exact
                            && decrement > fast_ratio * before
                            && decrement > DBL_EPSILON * t->value;
        before = decrement;
        const int is_met = meets_tolerance(t, decrement, bound, 1);
        if (is_met && is_slow && !meets_tolerance(t, decrement, bound, 0)) {
            t->status = NEWTON_SLOW;
            break;
        }
        const int is_finished = is_met && is_exact, is_next_exact = is_met || !t->is_strict;
        if (is_finished) t->status = NEWTON_CONVERGED;
        if (t->n_iter >= t->max_iter) break;
        t->n_passes += 3; /* the gradient, the Hessian and the scores of the step */
        if (!newton_advance(t, &s, decrement, &line) && (is_exact || !is_met)) {
            if (!is_finished) t->status = NEWTON_ROUNDING;
            break;
        }
        if (is_met && t->is_strict) memset(s.width, 0, (size_t)t->n_rows * sizeof(double));
        is_exact = is_next_exact;
        if (is_finished) {
            t->value = line.value;
            t->n_iter++;
            break;
        }
    }
    t->losses = t->value - newton_penalty(t, s.point);
    for (ptrdiff_t k = 0; k < t->n_scores; k++)
        memcpy(t->point + k * p, s.point + k * t->stride, (size_t)p * sizeof(double));
}
