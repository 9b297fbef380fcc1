/* Newton's method for one binary problem with a kernel, in one call, at one SIMD level.
 *
 * The score is h = K c + b with the kernel matrix K of the rows, coefficients c and an intercept b. The
 * objective is the sum of weighted losses plus penalty c'Kc / 2. Let g be the derivatives of the losses in
 * the scores and D > 0 their curvatures in the active rows A. The minimiser of the quadratic model has
 *
 *     penalty c = -g - D (h_new - h),
 *
 * which is c = -g / penalty outside A, and a system of |A| equations inside:
 *
 *     (K_AA + penalty D^-1) c_A = h_A - D^-1 g_A - K_AL c_L - b,   sum(c) = 0,
 *
 * with L all rows outside A. Its matrix is that of a Cholesky factorisation. Rows with margins above the
 * level have c = 0 where overconfidence is zero: the system is as small as the number of active rows.
 *
 * The curvature is the divided difference of the derivative over +- the last change of the score, as in
 * newton.c.
 *
 * With r = penalty c + g the duality gap is r'Kr / (2 penalty), if the derivatives sum to zero. It bounds the
 * suboptimality; a sum other than zero adds the decrement of the intercept, sum(g)^2 / (2 sum(D)). The method
 * stops after a step that meets the tolerance by it, or whose half squared Newton decrement is a hundredth of
 * the tolerance, where rounding errors of r may keep the gap above it.
 *
 * A step with thousands of active rows takes seconds, within which the caller can interrupt.
 */
#include "cholesky.h"
#include "loss.h"
#include "sweep.h"
#include "vectors.h"

#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)

enum { MAX_HALVINGS = 40 };

static const double decrement_fraction = 1e-2; /* of the tolerance, which the decrement alone must meet */

/* The arrays of a solve, which lie in `work`; n_rows doubles unless stated otherwise. */
typedef struct {
    double *scores, *slopes;      /* K c, and the derivatives g of the losses */
    double *curvature, *width;
    double *target, *change;      /* the next coefficients, and K times the step */
    double *step, *trial, *other;
    double *right, *ones;         /* of the active rows: solutions of the system */
    double *active;               /* holds the indices of the active rows */
    double *matrix;               /* of the active rows, in lines of up to `stride` doubles */
} kernel_state_t;

static kernel_state_t kernel_state(const kernel_newton_t *t)
{
    const ptrdiff_t n = t->n_rows;
    kernel_state_t s;
    double *at = t->work;
#define TAKE(name) (s.name = at, at += n)
    TAKE(scores), TAKE(slopes), TAKE(curvature), TAKE(width), TAKE(target), TAKE(step);
    TAKE(trial), TAKE(other), TAKE(right), TAKE(ones), TAKE(active);
    s.matrix = at, at += n * t->stride;
    s.change = at; /* padded to the stride */
#undef TAKE
    return s;
}

/* Turns scores into derivatives; returns the sum of weighted losses. */
static double kernel_losses(const kernel_newton_t *t, double intercept, double *scores)
{
    sweep_t sweep = {.sign = t->sign, .weight = t->weight, .loss = t->loss, .intercept = intercept};
    loss_state_t state = start_loss(&sweep);
    apply_loss(&state, &sweep, 0, t->n_rows, scores);
    finish_loss(&state, &sweep);
    return sweep.value;
}

/* out = K c, of `stride` doubles: the rows of K are its columns. */
static void kernel_product(const kernel_newton_t *t, const double *coef, double *out)
{
    memset(out, 0, (size_t)t->stride * sizeof(double));
    for (ptrdiff_t i = 0; i < t->n_rows; i++) {
        if (coef[i] == 0.0) continue;
        const double *row = t->gram + i * t->stride;
        const vec factor = splat(coef[i]);
        for (ptrdiff_t j = 0; j < t->stride; j += LANES)
            store(out + j, load_f8(out + j) + factor * load_f8(row + j));
    }
}

/* The divided differences of the derivatives over +- the width, at least 1e-6 of the scale. Returns the
 * number of active rows, whose indices it stores. */
static ptrdiff_t kernel_curvature(const kernel_newton_t *t, const kernel_state_t *s)
{
    ptrdiff_t *active = (ptrdiff_t *)s->active, n_active = 0;
    const double min_width = 1e-6 * t->loss.scale;
    for (ptrdiff_t i = 0; i < t->n_rows; i++) {
        s->width[i] = s->width[i] > min_width ? s->width[i] : min_width;
        s->trial[i] = s->scores[i] + s->width[i];
        s->other[i] = s->scores[i] - s->width[i];
    }
    kernel_losses(t, t->intercept, s->trial);
    kernel_losses(t, t->intercept, s->other);
    for (ptrdiff_t i = 0; i < t->n_rows; i++) {
        s->curvature[i] = 0.5 * (s->trial[i] - s->other[i]) / s->width[i];
        active[n_active] = i;
        n_active += s->curvature[i] > 1e-8 * t->weight[i];
    }
    return n_active;
}

/* The active rows; where there are none, those of widths that reach the level. */
static ptrdiff_t kernel_active(const kernel_newton_t *t, const kernel_state_t *s)
{
    const ptrdiff_t n_active = kernel_curvature(t, s);
    if (n_active > 0) return n_active;
    for (ptrdiff_t i = 0; i < t->n_rows; i++)
        s->width[i] = fabs(t->loss.margin - t->sign[i] * (s->scores[i] + t->intercept));
    return kernel_curvature(t, s);
}

/* Finds the minimiser of the quadratic model: coefficients in `target`, and the intercept. False where the
 * matrix is not definite, or after an interrupt. */
static int kernel_target(const kernel_newton_t *t, const kernel_state_t *s, double *intercept)
{
    const ptrdiff_t n = t->n_rows, m = kernel_active(t, s), line = newton_line_length(m);
    const ptrdiff_t *active = (const ptrdiff_t *)s->active;
    double outside = 0.0, sums[2] = {0.0, 0.0};
    int has_outside = 0;
    for (ptrdiff_t i = 0; i < n; i++) s->target[i] = -s->slopes[i] / t->penalty;
    for (ptrdiff_t a = 0; a < m; a++) s->target[active[a]] = 0.0;
    for (ptrdiff_t i = 0; i < n; i++) outside += s->target[i], has_outside |= s->target[i] != 0.0;
    for (ptrdiff_t a = 0; a < m; a++) {
        const ptrdiff_t i = active[a];
        const double *row = t->gram + i * t->stride;
        double *matrix_row = s->matrix + a * line;
        for (ptrdiff_t b = a; b < m; b++) matrix_row[b] = row[active[b]];
        for (ptrdiff_t b = m; b < line; b++) matrix_row[b] = 0.0;
        matrix_row[a] += t->penalty / s->curvature[i];
        s->right[a] = s->scores[i] + t->intercept - s->slopes[i] / s->curvature[i];
        if (has_outside) s->right[a] -= inner_product(n, row, s->target);
        s->ones[a] = 1.0;
    }
    if (!cholesky(m, line, s->matrix, t->interrupt)) return 0;
    cholesky_solve(m, line, s->matrix, s->right);
    *intercept = 0.0;
    if (t->has_intercept && m > 0) {
        cholesky_solve(m, line, s->matrix, s->ones);
        for (ptrdiff_t a = 0; a < m; a++) sums[0] += s->right[a], sums[1] += s->ones[a];
        *intercept = (sums[0] + outside) / sums[1];
    }
    for (ptrdiff_t a = 0; a < m; a++) s->target[active[a]] = s->right[a] - *intercept * s->ones[a];
    return 1;
}

/* Halves the step until the value decreases; the derivatives are left in `trial`. Returns the step size, or 0
 * where the value does not decrease. `quadratic` are the coefficients of the penalty along the step. */
static double kernel_line_search(kernel_newton_t *t, const kernel_state_t *s, double intercept,
                                 double slope, const double *quadratic)
{
    const double rounding = 4.0 * DBL_EPSILON * fabs(t->value), intercept_step = intercept - t->intercept;
    double step_size = 1.0;
    for (int k = 0; k < MAX_HALVINGS; k++, step_size *= 0.5) {
        for (ptrdiff_t i = 0; i < t->n_rows; i++) s->trial[i] = s->scores[i] + step_size * s->change[i];
        const double value = kernel_losses(t, t->intercept + step_size * intercept_step, s->trial)
                             + quadratic[0] + step_size * (quadratic[1] + step_size * quadratic[2]);
        if (value <= t->value + 1e-4 * step_size * slope + rounding) {
            t->value = value;
            return step_size;
        }
    }
    return 0.0;
}

/* The duality gap, and the decrement of the intercept; overwrites step and change. */
static double kernel_gap(const kernel_newton_t *t, const kernel_state_t *s)
{
    double sum = 0.0, curvature = 0.0;
    for (ptrdiff_t i = 0; i < t->n_rows; i++) {
        s->step[i] = t->penalty * t->coef[i] + s->slopes[i];
        sum += s->slopes[i], curvature += s->curvature[i];
    }
    kernel_product(t, s->step, s->change);
    const double gap = 0.5 * inner_product(t->n_rows, s->step, s->change) / t->penalty;
    return t->has_intercept && sum != 0.0 ? gap + 0.5 * sum * sum / curvature : gap;
}

/* One problem without a second class: its intercept is the level, where the loss is zero. */
static int has_one_sign(const kernel_newton_t *t)
{
    for (ptrdiff_t i = 1; i < t->n_rows; i++)
        if (t->sign[i] != t->sign[0]) return 0;
    return 1;
}

void JOIN(kernel_newton, LEVEL)(kernel_newton_t *t)
{
    const kernel_state_t s = kernel_state(t);
    const ptrdiff_t n = t->n_rows;
    t->status = NEWTON_MAX_ITER, t->gap = t->value = 0.0, t->n_iter = 0;
    if (t->has_intercept && has_one_sign(t)) {
        memset(t->coef, 0, (size_t)n * sizeof(double));
        t->intercept = t->sign[0] * t->loss.margin;
        t->status = NEWTON_CONVERGED;
        return;
    }
    t->gap = 1.0; /* before any step */
    kernel_product(t, t->coef, s.change);
    memcpy(s.scores, s.change, (size_t)n * sizeof(double));
    memcpy(s.slopes, s.change, (size_t)n * sizeof(double));
    memset(s.width, 0, (size_t)n * sizeof(double));
    double square = inner_product(n, t->coef, s.scores); /* c'Kc */
    t->value = kernel_losses(t, t->intercept, s.slopes) + 0.5 * t->penalty * square;
    for (; t->n_iter < t->max_iter; t->n_iter++) {
        double intercept;
        const int is_found = kernel_target(t, &s, &intercept);
        if (is_interrupted(t->interrupt, 4.0 * (double)n * (double)n)) {
            t->status = NEWTON_INTERRUPTED;
            return;
        }
        if (!is_found) {
            t->status = NEWTON_SINGULAR;
            return;
        }
        for (ptrdiff_t i = 0; i < n; i++) s.step[i] = s.target[i] - t->coef[i];
        kernel_product(t, s.step, s.change);
        const double intercept_step = intercept - t->intercept, cross = inner_product(n, t->coef, s.change);
        const double quadratic[3] = {0.5 * t->penalty * square, t->penalty * cross,
                                     0.5 * t->penalty * inner_product(n, s.step, s.change)};
        double slope = inner_product(n, s.slopes, s.change) + quadratic[1];
        for (ptrdiff_t i = 0; i < n; i++) slope += s.slopes[i] * intercept_step;
        const double decrement = -0.5 * slope;
        const double step_size = kernel_line_search(t, &s, intercept, slope, quadratic);
        const double reference = fmax(t->value, t->objective_floor);
        if (step_size > 0.0) {
            for (ptrdiff_t i = 0; i < n; i++) {
                s.scores[i] += step_size * s.change[i];
                s.width[i] = fabs(step_size * (s.change[i] + intercept_step));
                t->coef[i] = step_size == 1.0 ? s.target[i] : t->coef[i] + step_size * s.step[i];
            }
            memcpy(s.slopes, s.trial, (size_t)n * sizeof(double));
            t->intercept += step_size * intercept_step;
            square = 2.0 * (quadratic[0] + step_size * (quadratic[1] + step_size * quadratic[2]))
                     / t->penalty;
            t->gap = kernel_gap(t, &s) / reference;
        }
        if (decrement <= decrement_fraction * t->tol * reference && decrement / reference < t->gap)
            t->gap = decrement / reference;
        if (t->gap <= t->tol || !(step_size > 0.0)) {
            t->status = t->gap <= t->tol ? NEWTON_CONVERGED : NEWTON_ROUNDING;
            t->n_iter++;
            return;
        }
    }
}
