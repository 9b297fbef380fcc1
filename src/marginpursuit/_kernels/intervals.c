/* Weights of rows, summed over intervals of their scores: the intervals (k - 1, k] times a width, for
 * `n_intervals` integers k from `first` on. The first and the last interval are unbounded, and the first has
 * the scores that are NaN.
 */
#include "intervals.h"

void add_to_intervals(const intervals_t *t)
{
    const double first = (double)t->first, last = (double)(t->first + t->n_intervals - 1);
    for (ptrdiff_t row = 0; row < t->n_rows; row++) {
        const double *scores = t->scores + row * t->n_columns, weight = t->weights[row];
        double *sums = t->sums;
        for (ptrdiff_t j = 0; j < t->n_columns; j++, sums += t->n_intervals) {
            double interval = scores[j] / t->width;
            interval = interval > first ? interval : first;
            interval = interval < last ? interval : last;
            const ptrdiff_t below = (ptrdiff_t)interval;
            sums[below + ((double)below < interval) - t->first] += weight;
        }
    }
}
