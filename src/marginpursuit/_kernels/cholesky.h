/* The Cholesky factorisation of a matrix in lines of doubles, at one SIMD level.
 *
 * Lines have `length` doubles, a multiple of every vector: elements below the diagonal may be overwritten.
 */
#ifndef MARGINPURSUIT_CHOLESKY_H
#define MARGINPURSUIT_CHOLESKY_H

#include "sweep.h"
#include "vectors.h"

/* Replaces the upper triangle of a matrix by its Cholesky factor U, A = U'U; false if it is not
 * definite, or if it is interrupted. Four lines at a time are subtracted from those below: each element
 * of the matrix is then read and written once for four products. */
static int cholesky(ptrdiff_t size, ptrdiff_t length, double *a, interrupt_t *interrupt)
{
    enum { LINES = 4 };
    for (ptrdiff_t k = 0; k < size; k += LINES) {
        const ptrdiff_t n_lines = size - k < LINES ? size - k : LINES;
        double *first = a + k * length;
        for (ptrdiff_t q = 0; q < n_lines; q++) {
            double *line = first + q * length;
            for (ptrdiff_t p = 0; p < q; p++) {
                const double *above = first + p * length;
                const double element = above[k + q];
                for (ptrdiff_t j = k + q; j < size; j++) line[j] -= element * above[j];
            }
            if (!(line[k + q] > 0.0)) return 0;
            const double factor = 1.0 / sqrt(line[k + q]);
            for (ptrdiff_t j = k + q; j < size; j++) line[j] *= factor;
        }
        if (n_lines < LINES) break;
        const double n_left = (double)(size - k);
        if (is_interrupted(interrupt, 0.5 * LINES * n_left * n_left)) return 0;
        const double *lines[LINES] = {first, first + length, first + 2 * length, first + 3 * length};
        for (ptrdiff_t i = k + LINES; i < size; i++) {
            double *below = a + i * length;
            const vec column[LINES] = {splat(lines[0][i]), splat(lines[1][i]), splat(lines[2][i]),
                                       splat(lines[3][i])};
            for (ptrdiff_t j = i - i % LANES; j < size; j += LANES) {
                const vec even = column[0] * load_f8(lines[0] + j) + column[2] * load_f8(lines[2] + j);
                const vec odd = column[1] * load_f8(lines[1] + j) + column[3] * load_f8(lines[3] + j);
                store(below + j, load_f8(below + j) - (even + odd));
            }
        }
    }
    return 1;
}

/* Solves U'U x = x in place. */
static void cholesky_solve(ptrdiff_t size, ptrdiff_t length, const double *factor, double *x)
{
    for (ptrdiff_t i = 0; i < size; i++) {
        const double *line = factor + i * length;
        x[i] /= line[i];
        for (ptrdiff_t j = i + 1; j < size; j++) x[j] -= x[i] * line[j];
    }
    for (ptrdiff_t i = size - 1; i >= 0; i--) {
        const double *line = factor + i * length;
        x[i] = (x[i] - inner_product(size - i - 1, line + i + 1, x + i + 1)) / line[i];
    }
}

#endif
