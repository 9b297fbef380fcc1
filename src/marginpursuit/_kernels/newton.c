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
 * minimiser.
 *
 * The method stops where both meet the tolerance, or the first alone meets `certain` times the
 * tolerance. The step of the last decrement is taken nevertheless: its Hessian, the expensive part, is
 * known. With `is_strict` the first alone counts only if it is that of the second derivative itself,
 * since the divided difference may be larger: once it is met, the next iteration has no widths. Of a
 * task with one score it does not count either where it has fallen by less than `fast_ratio`: a row of
 * large weight at the level, beyond which its curvature is zero, then shortens every step. The task
 * ends unfinished.
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
#include "newton_system.h"

#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)

/* The ratio of two decrements up to which the next step is by the same Hessian. The compiled fits of eight
 * small tables (benchmarks/tables.py) take 0.70 to 0.99 of the time that they take with a Hessian for each
 * step. With 0.03 they take 0.89 to 1.06 times as long as with 0.1, with 0.3 0.89 to 1.15 times. */
static const double fast_ratio = 0.1;

/* LINE_STEPS: those of a line search. SLOW_STEPS: steps in a row whose decrement is at most the tolerance,
 * while the bound is above it, and more than `fast_ratio` times the one before: each is cut short where the
 * curvature of a row ends, and the decrement says nothing of the suboptimality. In 14,000 random problems no
 * task that converged had as many. */
enum { LINE_STEPS = 40, SLOW_STEPS = 20 };

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
        if (is_intercept) /* the minimiser is assumed to be at most the level away from zero */
            *bound += size * (t->loss.margin + fabs(s->point[at / p * t->stride + p - 1]));
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
    double losses, value, slope;
} line_t;

static line_t newton_line(const newton_t *t, const newton_state_t *s)
{
    line_t line = {{0.0, 0.0, 0.0}, 0.0, 0.0, 0.0};
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
    line->losses = newton_losses(t, s, s->trial, s->trial_margins);
    line->value = line->losses + line->quadratic[0]
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

/* Minimises along the step and moves there; false, and no move, where the value does not decrease. The
 * penalty there is summed anew: after a far start the three terms along the line cancel. */
static int newton_advance(const newton_t *t, const newton_state_t *s, double decrement, line_t *line)
{
    newton_scores(t, s->step, s->change);
    *line = newton_line(t, s);
    const double size = newton_line_search(t, s, t->value, -2.0 * decrement, line);
    if (!(size > 0.0)) {
        line->value = t->value;
        return 0;
    }
    newton_move(t, s, size);
    line->value = line->losses + newton_penalty(t, s->point);
    return 1;
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

/* What an iteration takes from the last one. */
typedef struct {
    line_t line;      /* at the point */
    int has_factor;   /* whether `hessian` has the factor of the last Hessian */
    int is_exact;     /* whether the next Hessian may end the method: with `is_strict`, has no widths */
    double decrement; /* of the last step */
    int n_slow;       /* see SLOW_STEPS */
} iteration_t;

typedef enum { ENDED, STEPPED, NO_STEP } outcome_t;

/* Ends or steps by the factor of the last Hessian, where its decrement is small or has fallen fast. */
static outcome_t step_by_last_factor(newton_t *t, const newton_state_t *s, iteration_t *at)
{
    double bound;
    const double decrement = newton_decrement(t, s, &bound);
    const int is_met = meets_tolerance(t, 3.0 * decrement, bound, !t->is_strict);
    if (is_met && (!t->is_strict || t->gap <= t->certain * t->tol)) {
        t->status = NEWTON_CONVERGED;
        if (newton_advance(t, s, decrement, &at->line)) t->value = at->line.value;
        return ENDED;
    }
    const int is_fast = decrement <= fast_ratio * at->decrement && t->n_iter < t->max_iter;
    at->decrement = decrement;
    if (!is_fast || (t->is_strict && at->is_exact)) return NO_STEP;
    if (!newton_advance(t, s, decrement, &at->line)) return NO_STEP;
    t->n_passes += 2;
    return STEPPED;
}

static outcome_t end_with(newton_t *t, newton_status_t status)
{
    t->status = status;
    return ENDED;
}

/* Steps by the Hessian at the point; ends after the step where the tolerance is met. */
static outcome_t step_by_hessian(newton_t *t, const newton_state_t *s, iteration_t *at)
{
    double bound;
    const double decrement = newton_direction(t, s, &bound);
    const double work = 4.0 * (double)t->n_scores * (double)t->n_rows * (double)t->n_columns;
    if (is_interrupted(t->interrupt, work)) return end_with(t, NEWTON_INTERRUPTED);
    if (decrement < 0.0 || !isfinite(decrement)) return end_with(t, NEWTON_SINGULAR);
    at->has_factor = 1;
    const int falls_slowly = t->n_scores == 1 && t->is_strict && decrement > fast_ratio * at->decrement;
    const int is_slow = falls_slowly && at->is_exact && decrement > DBL_EPSILON * t->value;
    at->decrement = decrement;
    const int is_met = meets_tolerance(t, decrement, bound, 1);
    if (is_met && is_slow && !meets_tolerance(t, decrement, bound, 0))
        return end_with(t, NEWTON_SLOW);
    const int is_unproven = t->is_strict && !is_met && t->gap <= t->tol;
    at->n_slow = is_unproven && falls_slowly ? at->n_slow + 1 : 0;
    if (is_unproven && (at->n_slow == SLOW_STEPS || t->n_iter >= t->max_iter))
        t->gap = fmin(bound, t->value) / fmax(t->value, t->objective_floor);
    if (at->n_slow == SLOW_STEPS && t->n_iter < t->max_iter) return end_with(t, NEWTON_SLOW);
    const int is_finished = is_met && at->is_exact;
    if (is_finished) t->status = NEWTON_CONVERGED;
    if (t->n_iter >= t->max_iter) return ENDED;
    t->n_passes += 3; /* the gradient, the Hessian and the scores of the step */
    if (!newton_advance(t, s, decrement, &at->line) && (at->is_exact || !is_met))
        return is_finished ? ENDED : end_with(t, NEWTON_ROUNDING);
    if (is_met && t->is_strict) memset(s->width, 0, (size_t)t->n_rows * sizeof(double));
    at->is_exact = is_met || !t->is_strict;
    if (!is_finished) return STEPPED;
    t->value = at->line.value;
    t->n_iter++;
    return ENDED;
}

void JOIN(newton, LEVEL)(newton_t *t)
{
    const newton_state_t s = newton_state(t);
    const ptrdiff_t p = t->n_columns;
    const int continues = t->continues && newton_continue(t, &s);
    if (!continues) t->value = newton_begin(t, &s);
    iteration_t at = {{.value = t->value}, continues, !t->is_strict, t->value, 0};
    t->status = NEWTON_MAX_ITER, t->gap = 1.0; /* losses are not negative */
    t->n_passes = continues ? 1 : 2; /* the scores of the start and the last gradient */
    for (t->n_iter = 0;; t->n_iter++, newton_gradient(t, &s)) {
        t->value = at.line.value;
        outcome_t outcome = at.has_factor ? step_by_last_factor(t, &s, &at) : NO_STEP;
        if (outcome == NO_STEP) outcome = step_by_hessian(t, &s, &at);
        if (outcome == ENDED) break;
    }
    t->losses = t->value - newton_penalty(t, s.point);
    for (ptrdiff_t k = 0; k < t->n_scores; k++)
        memcpy(t->point + k * p, s.point + k * t->stride, (size_t)p * sizeof(double));
}
