/* Preconditioned L-BFGS for one task with a joint loss on dense float32 rows, or for any task whose
 * objective the caller evaluates, at one SIMD level.
 *
 * A point has `n_columns` coefficients for each class, and an intercept after them where there is
 * one. The objective is the sum of weighted losses plus the sum of penalty_j w_kj^2 / 2.
 *
 * Each iteration evaluates the trial point in a sweep, `lbfgs_run`, or by the caller, who sweeps in
 * several threads. `lbfgs_advance` accepts the trial point or shortens the step, and sets the next
 * trial point. The line search backtracks to a sufficient decrease, along parabolas.
 *
 * The suboptimality is estimated by half the squared Newton decrement under the L-BFGS model, and by
 * geometric extrapolation of the decrease of the last `rate_span`, 2 rate_span, ... steps; the
 * largest counts. It is at most the bound by strong convexity: the sum of gradient_j^2 / (2 penalty_j),
 * to which each intercept b adds its derivative times |b| plus the level. `n_confirmations` estimates
 * in a row must meet the tolerance, after `min_iter` iterations, or one of them `certain` times the
 * tolerance, or the bound.
 */
#include "sweep.h"
#include "vectors.h"

#include <float.h>

#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)

/* The arrays of a solve, which lie in `work`. */
typedef struct {
    double *point, *gradient, *direction, *remaining; /* n_classes x line entries */
    double *conditioned, *product;      /* the preconditioner P times the gradients of point and trial */
    double *changes, *gradient_changes; /* LBFGS_MEMORY correction pairs s and y */
    double *conditioned_changes;        /* P y of each pair */
    double *inverse, *factors;          /* 1/(s.y) of each pair, and of the two-loop recursion */
    double *sums, *slopes;              /* of a sweep: n_classes x width, n_classes */
    double *intercepts;                 /* n_classes */
    ptrdiff_t line, size;               /* entries of a class, and of a point */
} lbfgs_state_t;

static lbfgs_state_t lbfgs_state(const lbfgs_t *t)
{
    const ptrdiff_t n_classes = t->joint.n_classes, line = t->n_columns + t->has_intercept;
    lbfgs_state_t s = {.line = line, .size = n_classes * line};
    double *at = t->work;
#define TAKE(name, count) (s.name = at, at += (count))
    TAKE(point, s.size), TAKE(gradient, s.size), TAKE(direction, s.size);
    TAKE(remaining, s.size), TAKE(conditioned, s.size), TAKE(product, s.size);
    TAKE(changes, LBFGS_MEMORY * s.size), TAKE(gradient_changes, LBFGS_MEMORY * s.size);
    TAKE(conditioned_changes, LBFGS_MEMORY * s.size);
    TAKE(inverse, LBFGS_MEMORY), TAKE(factors, LBFGS_MEMORY);
    TAKE(sums, n_classes * t->width), TAKE(slopes, n_classes), TAKE(intercepts, n_classes);
#undef TAKE
    return s;
}

/* y += factor x */
static void add_multiple(ptrdiff_t n, double factor, const double *x, double *y)
{
    for (ptrdiff_t j = 0; j < n; j++) y[j] += factor * x[j];
}

/* Whether an entry of a class is an intercept, which has no penalty. */
static int is_intercept(const lbfgs_t *t, ptrdiff_t j) { return j == t->n_columns; }

/* Sets the entries of coefficients with an infinite penalty to zero. */
static void zero_fixed(const lbfgs_t *t, const lbfgs_state_t *s, double *x)
{
    for (ptrdiff_t j = 0; j < t->n_columns; j++)
        if (isinf(t->penalty[j]))
            for (ptrdiff_t k = 0; k < t->joint.n_classes; k++) x[k * s->line + j] = 0.0;
}

/* out_i = line.x_i for LANES blocks x_i, `stride` apart, whose results are as far apart. */
static void block_products(ptrdiff_t n, const double *line, const double *x, ptrdiff_t stride,
                           double *out)
{
    ALIGNED double results[LANES];
    vec sums[LANES];
    ptrdiff_t j = 0;
    for (int b = 0; b < LANES; b++) sums[b] = splat(0.0);
    for (; j + LANES <= n; j += LANES) {
        const vec elements = load_f8(line + j);
        UNROLL
        for (int b = 0; b < LANES; b++) sums[b] += elements * load_f8(x + b * stride + j);
    }
    store(results, lane_sums(sums));
    for (int b = 0; b < LANES; b++) {
        for (ptrdiff_t i = j; i < n; i++) results[b] += line[i] * x[b * stride + i];
        out[b * stride] = results[b];
    }
}

/* out = the preconditioner times x, block by block. */
static void precondition(const lbfgs_t *t, const lbfgs_state_t *s, const double *x, double *out)
{
    const ptrdiff_t n = t->block;
    for (ptrdiff_t i = 0; i < n; i++) {
        const double *line = t->preconditioner + i * n;
        ptrdiff_t first = 0;
        for (; first + LANES * n <= s->size; first += LANES * n)
            block_products(n, line, x + first, n, out + first + i);
        for (; first < s->size; first += n) out[first + i] = inner_product(n, line, x + first);
    }
    zero_fixed(t, s, out);
}

/* Evaluates the objective and its gradient at the trial point. */
static void sweep_trial(lbfgs_t *t, const lbfgs_state_t *s)
{
    const ptrdiff_t n_classes = t->joint.n_classes;
    joint_t joint = t->joint;
    joint.intercept = s->intercepts;
    t->trial_value = 0.0;
    memset(s->sums, 0, (size_t)(n_classes * t->width) * sizeof(double));
    memset(s->slopes, 0, (size_t)n_classes * sizeof(double));
    for (ptrdiff_t k = 0; k < n_classes; k++) {
        for (ptrdiff_t j = 0; j < t->n_columns; j++)
            t->coef[k * t->width + j] = (float)t->trial[k * s->line + j];
        s->intercepts[k] = t->has_intercept ? t->trial[k * s->line + t->n_columns] : 0.0;
    }
    tiles_t sweep = {.n_rows = t->n_rows, .n_tasks = n_classes, .coef = t->coef, .joint = &joint,
                     .value = &t->trial_value, .slope = s->slopes, .gradient = s->sums,
                     .stride = t->width};
    for (ptrdiff_t i = 0; i < t->n_spans; i++)
        JOIN(kernels, LEVEL).tiles(t->rows, t->spans[2 * i], t->spans[2 * i + 1], t->width, &sweep);
    for (ptrdiff_t k = 0; k < n_classes; k++) {
        double *gradient = t->trial_gradient + k * s->line;
        for (ptrdiff_t j = 0; j < t->n_columns; j++) {
            const double w = t->trial[k * s->line + j];
            gradient[j] = 0.0;
            if (isinf(t->penalty[j])) continue;
            gradient[j] = s->sums[k * t->width + j] + t->penalty[j] * w;
            t->trial_value += 0.5 * t->penalty[j] * w * w;
        }
        if (t->has_intercept) gradient[t->n_columns] = s->slopes[k];
    }
}

/* Keeps the step and the change of the gradient as a correction pair, if their product is positive. */
static void add_pair(lbfgs_t *t, const lbfgs_state_t *s)
{
    const ptrdiff_t at = (t->first_pair + t->n_pairs) % LBFGS_MEMORY;
    double *change = s->changes + at * s->size, *gradient_change = s->gradient_changes + at * s->size;
    double *conditioned = s->conditioned_changes + at * s->size;
    for (ptrdiff_t j = 0; j < s->size; j++) {
        change[j] = t->step_size * s->direction[j];
        gradient_change[j] = t->trial_gradient[j] - s->gradient[j];
        conditioned[j] = s->product[j] - s->conditioned[j];
    }
    const double product = inner_product(s->size, change, gradient_change);
    const double length = sqrt(inner_product(s->size, change, change));
    if (!(product > DBL_EPSILON * length
                        * sqrt(inner_product(s->size, gradient_change, gradient_change)))) {
        if (t->n_pairs == LBFGS_MEMORY) { /* the oldest pair has been overwritten */
            t->first_pair = (t->first_pair + 1) % LBFGS_MEMORY;
            t->n_pairs--;
        }
        return;
    }
    if (t->n_pairs < LBFGS_MEMORY) t->n_pairs++;
    else t->first_pair = (t->first_pair + 1) % LBFGS_MEMORY;
    s->inverse[at] = 1.0 / product;
    t->curvature = inner_product(s->size, gradient_change, conditioned) / product;
    if (t->is_scaled)
        t->scaling = t->curvature > t->min_scaling ? t->curvature : t->min_scaling;
}

/* Finds the direction of the point by the two-loop recursion. The preconditioner is linear: P times
 * what remains of the gradient is the same combination of P times the gradient and the P y. */
static void find_direction(lbfgs_t *t, const lbfgs_state_t *s)
{
    for (ptrdiff_t j = 0; j < s->size; j++) {
        s->remaining[j] = -s->gradient[j];
        s->direction[j] = -s->conditioned[j];
    }
    for (ptrdiff_t i = t->n_pairs - 1; i >= 0; i--) {
        const ptrdiff_t at = (t->first_pair + i) % LBFGS_MEMORY;
        s->factors[at] = s->inverse[at]
                         * inner_product(s->size, s->changes + at * s->size, s->remaining);
        add_multiple(s->size, -s->factors[at], s->gradient_changes + at * s->size, s->remaining);
        add_multiple(s->size, -s->factors[at], s->conditioned_changes + at * s->size, s->direction);
    }
    t->unexplored = inner_product(s->size, s->remaining, s->direction);
    for (ptrdiff_t j = 0; j < s->size; j++) s->direction[j] /= t->scaling;
    for (ptrdiff_t i = 0; i < t->n_pairs; i++) {
        const ptrdiff_t at = (t->first_pair + i) % LBFGS_MEMORY;
        const double *gradient_change = s->gradient_changes + at * s->size;
        const double factor = s->factors[at]
                              - s->inverse[at] * inner_product(s->size, gradient_change, s->direction);
        add_multiple(s->size, factor, s->changes + at * s->size, s->direction);
    }
    t->slope = inner_product(s->size, s->gradient, s->direction);
}

/* Accepts the trial point, or shortens the step. */
static void take_step(lbfgs_t *t, const lbfgs_state_t *s)
{
    const double before = t->value, step = t->step_size, value = t->trial_value;
    const double trial_slope = inner_product(s->size, t->trial_gradient, s->direction);
    const int decreases = value <= before + t->sufficient_decrease * step * t->slope;
    /* Where rounding hides the decrease, the slope along the step shows it: F is convex. */
    const int is_equal = value <= before + 4.0 * DBL_EPSILON * fabs(before);
    if (!decreases && !(is_equal && fabs(trial_slope) <= 0.9 * fabs(t->slope))) {
        const double excess = value - before - step * t->slope;
        double best = excess > 0.0 ? -0.5 * t->slope * step * step / excess : 0.0;
        best = best < 0.5 * step ? best : 0.5 * step;
        t->step_size = best > 0.1 * step ? best : 0.1 * step;
        t->has_stalled |= t->step_size < t->min_step_size;
        return;
    }
    precondition(t, s, t->trial_gradient, s->product);
    add_pair(t, s);
    memcpy(s->conditioned, s->product, (size_t)s->size * sizeof(double));
    memcpy(s->point, t->trial, (size_t)s->size * sizeof(double));
    memcpy(s->gradient, t->trial_gradient, (size_t)s->size * sizeof(double));
    t->value = value;
    t->step_size = 1.0;
    find_direction(t, s);
}

/* Sets the bound of the suboptimality by strong convexity. */
static void find_bound(lbfgs_t *t, const lbfgs_state_t *s)
{
    double bound = 0.0;
    for (ptrdiff_t k = 0; k < t->joint.n_classes; k++)
        for (ptrdiff_t j = 0; j < s->line; j++) {
            const double g = s->gradient[k * s->line + j];
            if (is_intercept(t, j))
                bound += fabs(g) * (t->joint.loss.margin + fabs(s->point[k * s->line + j]));
            else if (g != 0.0) bound += 0.5 * g * g / t->penalty[j];
        }
    t->bound = bound < t->value ? bound : t->value;
}

/* Sets the estimate of the suboptimality, at most the bound. */
static void find_gap(lbfgs_t *t)
{
    double missing = 0.0;
    if (t->unexplored > 0.0) missing = t->unexplored * (1.0 / t->curvature - 1.0 / t->scaling);
    t->gap = 0.5 * ((missing > 0.0 ? missing : 0.0) - t->slope);
    const double *last = t->values + t->n_iter;
    for (ptrdiff_t span = t->rate_span; 2 * span <= t->n_iter; span *= 2) {
        const double before = last[-2 * span] - last[-span], after = last[-span] - last[0];
        if (!(after > 4.0 * DBL_EPSILON * t->value)) continue;
        const double remaining = after < before ? after * after / (before - after) : INFINITY;
        t->gap = t->gap > remaining ? t->gap : remaining;
    }
    t->gap = t->gap < t->bound ? t->gap : t->bound;
}

/* Records the iteration, and sets the status. */
static void finish_iteration(lbfgs_t *t, const lbfgs_state_t *s)
{
    t->values[t->n_iter] = t->value;
    find_bound(t, s);
    find_gap(t);
    const double reference = fmax(t->value, t->objective_floor);
    t->gap /= reference;
    t->bound /= reference;
    if (t->bound <= t->tol) t->gap = t->bound;
    t->gaps[t->n_iter] = t->gap;
    t->n_met = t->gap <= t->tol ? t->n_met + 1 : 0;
    if (t->n_iter >= t->max_idle)
        t->has_stalled |= t->values[t->n_iter - t->max_idle] <= t->value;
    const int is_certain = t->gap <= t->certain * t->tol || t->bound <= t->tol;
    const int is_confirmed = t->n_iter >= t->min_iter && t->n_met >= t->n_confirmations;
    if (is_certain || is_confirmed || t->has_stalled)
        t->status = t->gap <= t->tol ? LBFGS_CONVERGED : LBFGS_ROUNDING;
    else if (t->n_iter >= t->max_iter) t->status = LBFGS_MAX_ITER;
}

void JOIN(lbfgs_advance, LEVEL)(lbfgs_t *t)
{
    const lbfgs_state_t s = lbfgs_state(t);
    if (t->n_iter < 0) { /* the start */
        memcpy(s.point, t->trial, (size_t)s.size * sizeof(double));
        memcpy(s.gradient, t->trial_gradient, (size_t)s.size * sizeof(double));
        t->value = t->trial_value;
        t->step_size = t->scaling = 1.0;
        precondition(t, &s, s.gradient, s.conditioned);
        find_direction(t, &s);
    } else take_step(t, &s);
    t->n_iter++;
    finish_iteration(t, &s);
    memcpy(t->trial, s.point, (size_t)s.size * sizeof(double));
    if (t->status == LBFGS_RUNNING) add_multiple(s.size, t->step_size, s.direction, t->trial);
}

void JOIN(lbfgs_renew, LEVEL)(lbfgs_t *t)
{
    const lbfgs_state_t s = lbfgs_state(t);
    precondition(t, &s, s.gradient, s.conditioned);
    for (ptrdiff_t i = 0; i < t->n_pairs; i++) {
        const ptrdiff_t at = (t->first_pair + i) % LBFGS_MEMORY * s.size;
        precondition(t, &s, s.gradient_changes + at, s.conditioned_changes + at);
    }
    if (t->n_pairs) {
        const ptrdiff_t last = (t->first_pair + t->n_pairs - 1) % LBFGS_MEMORY;
        t->curvature = s.inverse[last]
                       * inner_product(s.size, s.gradient_changes + last * s.size,
                                       s.conditioned_changes + last * s.size);
    }
    t->step_size = t->scaling = 1.0;
    find_direction(t, &s);
    memcpy(t->trial, s.point, (size_t)s.size * sizeof(double));
    add_multiple(s.size, 1.0, s.direction, t->trial);
}

void JOIN(lbfgs_run, LEVEL)(lbfgs_t *t, ptrdiff_t n_sweeps)
{
    const lbfgs_state_t s = lbfgs_state(t);
    for (ptrdiff_t i = 0; i < n_sweeps && t->status == LBFGS_RUNNING; i++) {
        sweep_trial(t, &s);
        JOIN(lbfgs_advance, LEVEL)(t);
    }
}
