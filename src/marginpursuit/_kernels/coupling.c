/* Pairwise coupling: the second method of Wu, Lin and Weng, "Probability estimates for multi-class
 * classification by pairwise coupling", JMLR 5, 2004.
 *
 * With r_ij the probability of class i among the classes i and j, the probabilities p minimise
 *
 *     sum_(i<j) (r_ji p_i - r_ij p_j)^2 = p'Qp / 2,   sum(p) = 1,
 *
 * with Q_ii = sum_(j != i) r_ji^2 and Q_ij = -r_ji r_ij, up to the factor two. At the minimum Qp = m e,
 * with e a vector of ones and m = p'Qp. Therefore (Q + ee')p = (m + 1) e: p is the solution of
 * (Q + ee') x = e over its sum. Q is positive semidefinite, and p is positive for r inside (0, 1). Bounded
 * logits keep p far above the rounding errors of the solution.
 */
#include "coupling.h"

#include <math.h>

/* Solves A x = e, A symmetric and positive definite, by a Cholesky factor in the lower triangle. */
static void solve_ones(ptrdiff_t n, double *a, double *x)
{
    for (ptrdiff_t j = 0; j < n; j++) {
        for (ptrdiff_t k = 0; k < j; k++)
            for (ptrdiff_t i = j; i < n; i++) a[i * n + j] -= a[i * n + k] * a[j * n + k];
        const double factor = 1.0 / sqrt(a[j * n + j]);
        for (ptrdiff_t i = j; i < n; i++) a[i * n + j] *= factor;
    }
    for (ptrdiff_t i = 0; i < n; i++) {
        x[i] = 1.0;
        for (ptrdiff_t j = 0; j < i; j++) x[i] -= a[i * n + j] * x[j];
        x[i] /= a[i * n + i];
    }
    for (ptrdiff_t i = n - 1; i >= 0; i--) {
        for (ptrdiff_t j = i + 1; j < n; j++) x[i] -= a[j * n + i] * x[j];
        x[i] /= a[i * n + i];
    }
}

void couple(coupling_t *t)
{
    const ptrdiff_t n = t->n_classes;
    double *a = t->work, *x = a + n * n;
    const double *logit = t->logits;
    for (ptrdiff_t row = 0; row < t->n_rows; row++) {
        double *out = t->out + row * n, mean = 0.0;
        for (ptrdiff_t i = 0; i < n; i++) a[i * n + i] = 1.0;
        for (ptrdiff_t i = 0; i < n; i++)
            for (ptrdiff_t j = i + 1; j < n; j++, logit++) {
                const double bounded = fmax(-t->limit, fmin(t->limit, *logit));
                const double odds = exp(bounded), q = 1.0 / (1.0 + odds), p = odds * q;
                a[i * n + i] += q * q;
                a[j * n + j] += p * p;
                a[j * n + i] = 1.0 - p * q;
            }
        solve_ones(n, a, x);
        for (ptrdiff_t i = 0; i < n; i++) out[i] = log(x[i]), mean += out[i] / (double)n;
        for (ptrdiff_t i = 0; i < n; i++) out[i] -= mean;
    }
}
