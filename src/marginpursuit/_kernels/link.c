/* The link from scores to probabilities, by projected Newton steps in one call.
 *
 * classifiers/_link.py states the model: the logit of a class is the inner product of four positive
 * slopes with the pieces of its score, of which at most two are non-zero. The probabilities are the
 * softmax of the logits. The slopes minimise the weighted log-loss plus a ridge, within bounds.
 */
#include "link.h"

#include <math.h>
#include <string.h>

enum { MOST_STEPS = 100, MOST_HALVINGS = 40 };

/* The objective, its gradient and the lower triangle of its Hessian. */
typedef struct {
    double value, log_loss;
    double gradient[LINK_SLOPES];
    double hessian[LINK_SLOPES][LINK_SLOPES];
} link_sums_t;

/* Sets the two pieces of a score that may be non-zero; returns the number of the first. */
static int link_pieces(const link_t *t, double score, double *first, double *second)
{
    if (score < 0.0) {
        *first = score < t->low ? score - t->low : 0.0;
        *second = score > t->low ? score : t->low;
        return 0;
    }
    *first = score < t->high ? score : t->high;
    *second = score > t->high ? score - t->high : 0.0;
    return 2;
}

/* Adds a row: its log-loss, the mean m of its pieces under its probabilities less the pieces of its
 * class, and the covariance of the pieces under the probabilities, as E[p_i p_j] - m_i m_j. */
static void add_row(const link_t *t, ptrdiff_t row, const double *slopes, link_sums_t *sums)
{
    const ptrdiff_t n_classes = t->n_scores;
    const double *scores = t->scores + row * n_classes;
    double *first = t->work, *second = first + n_classes, *odds = second + n_classes;
    double highest = -INFINITY, total = 0.0, mean[LINK_SLOPES] = {0.0};
    double product[LINK_SLOPES][LINK_SLOPES] = {{0.0}};
    for (ptrdiff_t k = 0; k < n_classes; k++) {
        const int i = link_pieces(t, scores[k], first + k, second + k);
        odds[k] = slopes[i] * first[k] + slopes[i + 1] * second[k];
        highest = odds[k] > highest ? odds[k] : highest;
    }
    const ptrdiff_t own = t->codes[row];
    const double of_class = odds[own] - highest;
    for (ptrdiff_t k = 0; k < n_classes; k++) {
        const int i = scores[k] < 0.0 ? 0 : 2, j = i + 1;
        const double power = exp(odds[k] - highest);
        total += power;
        mean[i] += power * first[k];
        mean[j] += power * second[k];
        product[i][i] += power * first[k] * first[k];
        product[j][i] += power * first[k] * second[k];
        product[j][j] += power * second[k] * second[k];
    }
    const double weight = t->weights[row];
    const int side = scores[own] < 0.0 ? 0 : 2;
    sums->log_loss += weight * (log(total) - of_class);
    sums->gradient[side] -= weight * first[own];
    sums->gradient[side + 1] -= weight * second[own];
    for (int i = 0; i < LINK_SLOPES; i++) {
        mean[i] /= total;
        sums->gradient[i] += weight * mean[i];
        for (int j = 0; j <= i; j++)
            sums->hessian[i][j] += weight * (product[i][j] / total - mean[i] * mean[j]);
    }
}

/* The same for two classes, of which the first has the logit zero, in a third of the time: only two
 * pieces of the other, on the side of its score, are not zero. */
static void add_binary_row(const link_t *t, ptrdiff_t row, const double *slopes, link_sums_t *sums)
{
    double first, second;
    const int i = link_pieces(t, t->scores[row], &first, &second), j = i + 1;
    const double logit = slopes[i] * first + slopes[j] * second, power = exp(-fabs(logit));
    const double proba = (logit < 0.0 ? power : 1.0) / (1.0 + power), is_second = t->codes[row] == 1;
    const double excess = t->weights[row] * (proba - is_second);
    const double curvature = t->weights[row] * power / ((1.0 + power) * (1.0 + power));
    sums->log_loss += t->weights[row] * (log1p(power) + fmax(logit, 0.0) - is_second * logit);
    sums->gradient[i] += excess * first;
    sums->gradient[j] += excess * second;
    sums->hessian[i][i] += curvature * first * first;
    sums->hessian[j][i] += curvature * second * first;
    sums->hessian[j][j] += curvature * second * second;
}

static link_sums_t link_sums(const link_t *t, const double *slopes)
{
    link_sums_t sums;
    memset(&sums, 0, sizeof sums);
    for (ptrdiff_t row = 0; row < t->n_rows; row++) {
        if (t->n_scores == 1) add_binary_row(t, row, slopes, &sums);
        else add_row(t, row, slopes, &sums);
    }
    sums.value = sums.log_loss;
    for (int j = 0; j < LINK_SLOPES; j++) {
        const double deviation = slopes[j] - t->mean;
        sums.value += 0.5 * t->ridge * deviation * deviation;
        sums.gradient[j] += t->ridge * deviation;
        sums.hessian[j][j] += t->ridge;
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
            double rest = sums->hessian[i][j];
            for (int k = 0; k < j; k++) rest -= factor[i][k] * factor[j][k];
            const int is_regular = !is_fixed[i] && rest > 1e-14 * sums->hessian[i][i];
            factor[i][j] = j < i ? rest / factor[j][j] : is_regular ? sqrt(rest) : INFINITY;
            if (j < i) step[i] -= factor[i][j] * step[j];
        }
        step[i] /= factor[i][i];
    }
    for (int i = LINK_SLOPES - 1; i >= 0; i--) {
        for (int k = i + 1; k < LINK_SLOPES; k++) step[i] -= factor[k][i] * step[k];
        step[i] /= factor[i][i];
    }
}

void fit_link(link_t *t)
{
    for (int j = 0; j < LINK_SLOPES; j++) t->slopes[j] = t->mean;
    link_sums_t here = link_sums(t, t->slopes);
    for (int n = 0; n < MOST_STEPS; n++) {
        int is_fixed[LINK_SLOPES];
        double step[LINK_SLOPES], trial[LINK_SLOPES], longest = 0.0, decrement = 0.0, factor = 1.0;
        /* A slope at a bound, beyond which the objective would decrease, is fixed. */
        for (int j = 0; j < LINK_SLOPES; j++)
            is_fixed[j] = (t->slopes[j] <= t->least && here.gradient[j] > 0.0)
                          || (t->slopes[j] >= t->most && here.gradient[j] < 0.0);
        link_step(&here, is_fixed, step);
        /* Where all probabilities are zero or one the Hessian is small, and the step too long. */
        for (int j = 0; j < LINK_SLOPES; j++) longest = fmax(longest, fabs(step[j]));
        for (int j = 0; j < LINK_SLOPES; j++) {
            if (longest > t->most) step[j] *= t->most / longest;
            decrement -= here.gradient[j] * step[j];
        }
        if (!(decrement > 1e-11)) break;
        link_sums_t there = here;
        int is_lower = 0;
        for (int k = 0; k < MOST_HALVINGS && !is_lower; k++, factor *= 0.5) {
            double slope = 0.0;
            for (int j = 0; j < LINK_SLOPES; j++) {
                trial[j] = fmin(fmax(t->slopes[j] + factor * step[j], t->least), t->most);
                slope += here.gradient[j] * (trial[j] - t->slopes[j]);
            }
            there = link_sums(t, trial);
            is_lower = there.value <= here.value + 1e-4 * slope;
        }
        if (!is_lower) break; /* the decrease is below rounding */
        memcpy(t->slopes, trial, sizeof trial);
        here = there;
    }
    t->log_loss = here.log_loss;
}
