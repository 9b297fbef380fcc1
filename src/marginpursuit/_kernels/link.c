/* The link from scores to probabilities, by projected Newton steps in one call, at one SIMD level.
 *
 * classifiers/_link.py states the model: the logit of a class is the inner product of four positive
 * slopes with the pieces of its score, of which at most two are non-zero. The probabilities are the
 * softmax of the logits. The slopes minimise the weighted log-loss plus a ridge, within bounds.
 */
#include "link.h"
#include "sweep.h"
#include "vec_math.h"

#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)

enum {
    MAX_ITER = 100,
    MAX_HALVINGS = 40,
    FIRST_STRIDE = 8,     /* the first fit is to every eighth row, and starts that to all rows */
    MANY_SCORES = 1 << 14 /* scores from which the first fit saves time */
};

/* The objective, its gradient and the lower triangle of its Hessian. */
typedef struct {
    double value, log_loss;
    double gradient[LINK_SLOPES];
    double hessian[LINK_SLOPES][LINK_SLOPES];
} link_sums_t;

/* LANES rows, and the same sums over the rows of each lane. */
typedef struct {
    ptrdiff_t rows[LANES];
    vec weight; /* zero for rows that are repeated after the last */
    vec slopes[LINK_SLOPES];
    vec log_loss, gradient[LINK_SLOPES], hessian[LINK_SLOPES][LINK_SLOPES];
} link_lanes_t;

/* Sets the pieces of scores, one for each slope; returns the logits. */
ALWAYS_INLINE vec link_pieces(const link_t *t, const vec *slopes, vec score, vec *pieces)
{
    const vec zero = splat(0.0), low = splat(t->low), high = splat(t->high);
    pieces[0] = smaller(score - low, zero);
    pieces[1] = smaller(larger(score, low), zero);
    pieces[2] = larger(smaller(score, high), zero);
    pieces[3] = larger(score - high, zero);
    return (slopes[0] * pieces[0] + slopes[1] * pieces[1])
           + (slopes[2] * pieces[2] + slopes[3] * pieces[3]);
}

/* Adds rows: their log-loss, the mean m of their pieces under their probabilities less the pieces of
 * their class, and the covariance of the pieces under the probabilities, as E[p_i p_j] - m_i m_j.
 * At most two neighbouring pieces of a score, both of one side, are not zero. */
static void add_rows(const link_t *t, link_lanes_t *s)
{
    const ptrdiff_t n_classes = t->n_scores;
    double *scores = t->work, *logits = scores + n_classes * LANES;
    ALIGNED double totals[LANES];
    vec highest = splat(-INFINITY), total = splat(0.0), pieces[LINK_SLOPES];
    vec mean[LINK_SLOPES], square[LINK_SLOPES], cross[LINK_SLOPES / 2];
    for (int i = 0; i < LINK_SLOPES; i++) mean[i] = square[i] = cross[i / 2] = splat(0.0);
    for (ptrdiff_t k = 0; k < n_classes; k++) {
#define SCORE(lane) t->scores[s->rows[lane] * n_classes + k]
        const vec score = LANES_OF(SCORE), logit = link_pieces(t, s->slopes, score, pieces);
        store(scores + k * LANES, score);
        store(logits + k * LANES, logit);
        highest = larger(highest, logit);
    }
    for (ptrdiff_t k = 0; k < n_classes; k++) {
        const vec power = exp_of_negative(load_f8(logits + k * LANES) - highest);
        link_pieces(t, s->slopes, load_f8(scores + k * LANES), pieces);
        total += power;
        UNROLL
        for (int i = 0; i < LINK_SLOPES; i++) {
            const vec product = power * pieces[i];
            mean[i] += product;
            square[i] += product * pieces[i];
            if (i % 2) cross[i / 2] += product * pieces[i - 1];
        }
    }
    store(totals, total);
#define CLASS_SCORE(lane) scores[t->codes[s->rows[lane]] * LANES + lane]
#define LOG_TOTAL(lane) log(totals[lane])
    const vec class_logit = link_pieces(t, s->slopes, LANES_OF(CLASS_SCORE), pieces);
    const vec excess = highest - class_logit, log_total = LANES_OF(LOG_TOTAL);
    s->log_loss += s->weight * (log_total + excess);
    for (int i = 0; i < LINK_SLOPES; i++) {
        mean[i] /= total;
        s->gradient[i] += s->weight * (mean[i] - pieces[i]);
        s->hessian[i][i] += s->weight * (square[i] / total);
        if (i % 2) s->hessian[i][i - 1] += s->weight * (cross[i / 2] / total);
        for (int j = 0; j <= i; j++) s->hessian[i][j] -= s->weight * mean[i] * mean[j];
    }
}

/* The same for two classes, of which the first has the logit zero. */
static void add_binary_rows(const link_t *t, link_lanes_t *s)
{
#define BINARY_SCORE(lane) t->scores[s->rows[lane]]
#define IS_SECOND(lane) (t->codes[s->rows[lane]] == 1 ? 1.0 : 0.0)
    vec pieces[LINK_SLOPES];
    const vec one = splat(1.0), is_second = LANES_OF(IS_SECOND);
    const vec logit = link_pieces(t, s->slopes, LANES_OF(BINARY_SCORE), pieces);
    const vec power = exp_of_negative(-absolute(logit)), total = one + power;
    const vec excess = s->weight * (where_negative(logit, power, one) / total - is_second);
    const vec curvature = s->weight * power / (total * total);
    s->log_loss += s->weight
                   * (log1p_of_unit(power) + larger(logit, splat(0.0)) - is_second * logit);
    for (int i = 0; i < LINK_SLOPES; i++) {
        s->gradient[i] += excess * pieces[i];
        s->hessian[i][i] += curvature * pieces[i] * pieces[i];
        if (i % 2) s->hessian[i][i - 1] += curvature * pieces[i] * pieces[i - 1];
    }
}

/* The sums over one of `stride` rows. */
static link_sums_t link_sums(const link_t *t, ptrdiff_t stride, const double *slopes)
{
    link_sums_t sums;
    link_lanes_t s;
    s.log_loss = splat(0.0);
    for (int i = 0; i < LINK_SLOPES; i++) {
        s.slopes[i] = splat(slopes[i]);
        s.gradient[i] = splat(0.0);
        for (int j = 0; j <= i; j++) s.hessian[i][j] = splat(0.0);
    }
    for (ptrdiff_t first = 0; first < t->n_rows; first += LANES * stride) {
        ALIGNED double weights[LANES];
        for (int lane = 0; lane < LANES; lane++) {
            const ptrdiff_t row = first + lane * stride;
            s.rows[lane] = row < t->n_rows ? row : first;
            weights[lane] = row < t->n_rows ? t->weights[row] : 0.0;
        }
        s.weight = load_f8(weights);
        if (t->n_scores == 1) add_binary_rows(t, &s);
        else add_rows(t, &s);
    }
    sums.value = sums.log_loss = lane_sum(s.log_loss);
    for (int i = 0; i < LINK_SLOPES; i++) {
        const double deviation = slopes[i] - t->mean;
        sums.value += 0.5 * t->ridge * deviation * deviation;
        sums.gradient[i] = lane_sum(s.gradient[i]) + t->ridge * deviation;
        for (int j = 0; j <= i; j++) sums.hessian[i][j] = lane_sum(s.hessian[i][j]);
        sums.hessian[i][i] += t->ridge;
    }
    return sums;
}

/* The Newton step by Cholesky's method; zero for a slope that is fixed, or for which the pivot is
 * zero up to rounding. */
static void link_step(const link_sums_t *sums, const int *is_fixed, double *step)
{
    double factor[LINK_SLOPES][LINK_SLOPES];
    for (int i = 0; i < LINK_SLOPES; i++) {
        step[i] = -sums->gradient[i];
        for (int j = 0; j <= i; j++) {
            double remainder = sums->hessian[i][j];
            for (int k = 0; k < j; k++) remainder -= factor[i][k] * factor[j][k];
            const int is_regular = !is_fixed[i] && remainder > 1e-14 * sums->hessian[i][i];
            factor[i][j] = j < i ? remainder / factor[j][j] : is_regular ? sqrt(remainder) : INFINITY;
            if (j < i) step[i] -= factor[i][j] * step[j];
        }
        step[i] /= factor[i][i];
    }
    for (int i = LINK_SLOPES - 1; i >= 0; i--) {
        for (int k = i + 1; k < LINK_SLOPES; k++) step[i] -= factor[k][i] * step[k];
        step[i] /= factor[i][i];
    }
}

/* Minimises the sum over one of `stride` rows, and the ridge, from the slopes on. */
static void newton_steps(link_t *t, ptrdiff_t stride)
{
    link_sums_t sums = link_sums(t, stride, t->slopes);
    for (int n = 0; n < MAX_ITER; n++) {
        int is_fixed[LINK_SLOPES];
        double step[LINK_SLOPES], trial[LINK_SLOPES], longest = 0.0, decrement = 0.0, factor = 1.0;
        /* A slope at a bound, beyond which the objective would decrease, is fixed. */
        for (int j = 0; j < LINK_SLOPES; j++)
            is_fixed[j] = (t->slopes[j] <= t->min_slope && sums.gradient[j] > 0.0)
                          || (t->slopes[j] >= t->max_slope && sums.gradient[j] < 0.0);
        link_step(&sums, is_fixed, step);
        /* Where all probabilities are zero or one the Hessian is small, and the step too long. */
        for (int j = 0; j < LINK_SLOPES; j++) longest = fmax(longest, fabs(step[j]));
        for (int j = 0; j < LINK_SLOPES; j++) {
            if (longest > t->max_slope) step[j] *= t->max_slope / longest;
            decrement -= sums.gradient[j] * step[j];
        }
        if (!(decrement > 1e-11)) break;
        link_sums_t trial_sums = sums;
        int is_lower = 0;
        for (int k = 0; k < MAX_HALVINGS && !is_lower; k++, factor *= 0.5) {
            double slope = 0.0;
            for (int j = 0; j < LINK_SLOPES; j++) {
                trial[j] = fmin(fmax(t->slopes[j] + factor * step[j], t->min_slope), t->max_slope);
                slope += sums.gradient[j] * (trial[j] - t->slopes[j]);
            }
            trial_sums = link_sums(t, stride, trial);
            is_lower = trial_sums.value <= sums.value + 1e-4 * slope;
        }
        if (!is_lower) break; /* the decrease is below rounding */
        memcpy(t->slopes, trial, sizeof trial);
        sums = trial_sums;
    }
    t->log_loss = sums.log_loss;
}

void JOIN(fit_link, LEVEL)(link_t *t)
{
    for (int j = 0; j < LINK_SLOPES; j++) t->slopes[j] = t->mean;
    if (t->n_rows * t->n_scores >= MANY_SCORES) newton_steps(t, FIRST_STRIDE);
    newton_steps(t, 1);
}
